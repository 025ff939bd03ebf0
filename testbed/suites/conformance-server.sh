# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
# What the conformance suites test: a server of 8 threads that exports /srv/test and /srv/scratch, each an XFS on a disk in
# memory, to all versions under these names. $SUITE is where the suite was built. Sourced.

# disk NAME SIZE_MIB [NSEC]: each request takes so long, or no time
disk()
{
	local dir=/sys/kernel/config/nullb/$1

	mkdir "$dir" && echo "$2" >"$dir/size" && echo 1 >"$dir/memory_backed" || return
	if [ -n "$3" ]; then
		echo "$3" >"$dir/completion_nsec" && echo 2 >"$dir/irqmode" || return
	fi
	echo 1 >"$dir/power"
}

# mode N: how the server does READs and WRITEs
mode()
{
	echo "$1" >/sys/kernel/debug/nfsd/io_cache_write && echo "$1" >/sys/kernel/debug/nfsd/io_cache_read || exit 1
	# There are kernels where this one follows io_cache_read, and does not come back.
	[ "$1" -ne 0 ] || echo 0 >/sys/kernel/debug/nfsd/disable-splice-read || exit 1
}

# verdict STATUS NAME: keep what came of a test
verdict()
{
	case $1 in
	0) echo "passed $2" ;;
	32) echo "skipped $2" ;;
	*) echo "failed $2" ;;
	esac >>/results/verdicts
}

# fio brings libaio; what was built on an older Debian wants it by the name that it had there.
mkdir -p /tmp/lib
ln -s /usr/lib/x86_64-linux-gnu/libaio.so.1t64 /tmp/lib/libaio.so.1
export LD_LIBRARY_PATH=/tmp/lib

# NFSv4's names begin at /srv, for the guest's root cannot be exported, and what is walked over has to be on a disk.
for dir in /srv /srv/test /srv/scratch; do
	mkdir -p $dir
	disk "${dir##*/}" 1024 || exit 1
	mkfs.xfs -q "/dev/${dir##*/}" && mount "/dev/${dir##*/}" $dir || exit 1
	chmod 777 $dir
done
exportfs -o rw,insecure,no_root_squash,no_subtree_check,fsid=0 "*:/srv" || exit 1
exportfs -o rw,insecure,no_root_squash,no_subtree_check "*:/srv/test" "*:/srv/scratch" || exit 1
# So that localhost:/srv/test is the same to all versions
ln -s . /srv/srv
mkdir -p /run/rpcbind
rpcbind -w && rpc.statd && rpc.mountd || exit 1
echo 10 >/proc/fs/nfsd/nfsv4gracetime
rpc.nfsd 8 || exit 1
# Nobody is going to reclaim anything.
sleep 15
