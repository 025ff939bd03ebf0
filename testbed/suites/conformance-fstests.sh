# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
# The tests of fstests that are quick and are of the group rw (READ and WRITE in all ways), by NFSv3 and 4.2, in the
# default mode and with direct I/O. Two are left out. generic/030 prints how fast it was, and has no filter for the TiB a
# second of simulated time. generic/451 goes on until 30 s have passed, which they do not, for its readers never wait.
export FSTYP=nfs TEST_DIR=/mnt/test SCRATCH_MNT=/mnt/scratch

mkdir /mnt/test /mnt/scratch /tmp/etc
# The root is only read, and fstests wants users of its own.
cp /etc/passwd /etc/group /tmp/etc
for name in passwd group; do
	mount --bind /tmp/etc/$name /etc/$name || exit 1
done
number=10000
for user in fsgqa fsgqa2 123456-fsgqa; do
	echo "$user:x:$number:$number::/tmp:/bin/bash" >>/etc/passwd
	echo "$user:x:$number:" >>/etc/group
	number=$((number + 1))
done

cd "$SUITE" || exit 1
mapfile -t tests < <(grep -lE '^_begin_fstest .*\brw\b' tests/generic/[0-9][0-9][0-9] |
	xargs grep -lE '^_begin_fstest .*\bquick\b' | sed 's,^tests/,,' | grep -vE "generic/(030|451)$")
for mode in 0 2; do
	mode $mode
	for version in 3 4.2; do
		# fstests looks for what is mounted by the name that the server has for it.
		[ $version = 3 ] && top=/srv || top=
		export TEST_DEV=localhost:$top/test SCRATCH_DEV=localhost:$top/scratch
		export NFS_MOUNT_OPTIONS="-o vers=$version" TEST_FS_MOUNT_OPTS="-o vers=$version"
		export RESULT_BASE=/results/v$version-mode$mode
		mkdir "$RESULT_BASE"
		# What came of each test is in result.xml.
		timeout 3600 ./check -nfs -R xunit "${tests[@]}" >"$RESULT_BASE/log" 2>&1
	done
done
exit 0
