#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Keep the guest up for whoever looks at it with gdb.
sleep infinity
