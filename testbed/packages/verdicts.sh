#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# How a script in a guest says what it found, in KTAP. Sourced.

# check NAME COMMAND…
check() {
	local name=$1 verdict=ok
	shift
	"$@" || verdict="not ok"
	echo "$verdict $((++n)) $name"
}
