# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
# The Connectathon tests basic, special and lock by each version. Its general tests time nroff and compilers, and are
# left out.
special=(op_unlk op_ren op_chmod "dupreq 100 testfile" excltest "negseek testfile" "rename 100" truncate holey
	"nfsidem 50 testdir" rewind telldir freesp "bigfile -s 30 bigfile" "bigfile2 bigfile2")

PATH=$SUITE/basic:$PATH	# test2 makes its tree with test1

# try NAME COMMAND…: run a test in a directory of its own
try()
{
	local name=$1

	mkdir /mnt/here && cd /mnt/here || exit 1
	echo "== $name" >>/results/log
	timeout 600 "${@:2}" >>/results/log 2>&1
	verdict $? "$name"
	cd /
	rm -rf /mnt/here
}

for mode in 0 2; do
	mode $mode
	for version in 3 4.0 4.1 4.2; do
		mount -t nfs -o "vers=$version" localhost:/srv/test /mnt || exit 1
		what="v$version-mode$mode"
		for number in 1 2 3 4 5 6 7 8 9; do
			NFSTESTDIR=/mnt/here/basic try "$what basic test$number" "$SUITE/basic/test$number" -f
		done
		for line in "${special[@]}"; do
			read -ra words <<<"$line"
			TMPDIR='' try "$what special ${words[0]}" "$SUITE/special/${words[0]}" "${words[@]:1}"
		done
		for locks in tlocklfs tlock64; do
			try "$what lock $locks" "$SUITE/lock/$locks" /mnt/here
		done
		umount /mnt || exit 1
	done
done
exit 0
