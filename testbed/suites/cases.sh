# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
# What scripts that run programs in a guest have in common. Sourced. What came of each case is a line of
# /results/verdicts: ok or not ok, and its name.

# check NAME COMMAND…: a case, which is that the command succeeds
check()
{
	local name=$1

	shift
	if "$@"; then echo "ok $name"; else echo "not ok $name"; fi >>/results/verdicts
}

# disk NAME MB: an XFS at $EXPORT on a disk that takes 10 ms for each request
disk()
{
	mkdir "/sys/kernel/config/nullb/$1" && cd "/sys/kernel/config/nullb/$1" || exit 1
	echo "$2" >size && echo 1 >memory_backed && echo 10000000 >completion_nsec && echo 2 >irqmode && echo 1 >power ||
		exit 1
	cd /tmp || exit 1
	mkdir -p "$EXPORT"
	mkfs.xfs -q "/dev/$1" && mount "/dev/$1" "$EXPORT" || exit 1
	echo 0 >"/sys/block/$1/queue/read_ahead_kb"
}
