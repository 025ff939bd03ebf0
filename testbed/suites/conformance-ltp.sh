# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
# LTP's NFS tests, by TCP and IPv4, NFSv3, 4.1 and 4.2, in the default mode and with direct I/O. LTP makes its own file
# system in a file, and exports and mounts it itself. nfs06 mounts all versions at once.
#
# IPv6 and UDP are left out: what they change is not ours, and each is as long again. So is NFSv4.0: for a lease after its
# client has unmounted, the server has the file system in use that LTP wants to unmount, on any kernel. nfs10 goes on
# until 30 s have passed, which they do not on simulated time. nfs03, which makes files by a process each, nfs05, which
# compiles each, and fsx have less of the same to do than by default.
export LTPROOT=$SUITE LTP_SINGLE_FS_TYPE=xfs LTP_NFS_NETNS_USE_LO=1 TMPDIR=/srv/ltp KCONFIG_SKIP_CHECK=1
PATH=/tmp/bin:$PATH:$SUITE/testcases/bin
tests=(nfs01 nfs02 nfs03 nfs04 nfs05 nfs07 nfs08 nfs09 nfslock01 nfsstat01 nfsstat02 fsx)

# try NAME COMMAND…: run a test, and keep what came of it
try()
{
	echo "== $1" >>/results/log
	timeout 900 "${@:2}" >>/results/log 2>&1
	verdict $? "$1"
}

# NFSv4 walks to what LTP exports from the root, and the guest's own cannot be exported: one that can takes its place.
mkdir /tmp/top && mount -t tmpfs tmpfs /tmp/top || exit 1
for dir in /*; do
	if [ -L "$dir" ]; then
		cp -d "$dir" /tmp/top
	elif [ -d "$dir" ]; then
		mkdir "/tmp/top$dir" && { [ "$dir" = /tmp ] || mount --rbind "$dir" "/tmp/top$dir"; } || exit 1
	fi
done
mkdir /tmp/top/old && pivot_root /tmp/top /tmp/top/old || exit 1
# Where LTP's own namespace has to see what LTP mounts.
mount --make-rshared / || exit 1
exportfs -u "*:/srv" && exportfs -f || exit 1

# LTP would look for drivers below /lib/modules, and here all that there is has been built in.
mkdir /tmp/bin && ln -s /usr/bin/true /tmp/bin/tst_check_drivers
disk ltp 4096 && mkfs.xfs -q /dev/ltp && mkdir $TMPDIR && mount /dev/ltp $TMPDIR || exit 1
for mode in 0 2; do
	mode $mode
	for version in 3 4.1 4.2; do
		for test in "${tests[@]}"; do
			case $test in
			nfs03) less=(DIR_NUM=20 FILE_NUM=20) ;;
			nfs05) less=(DIR_NUM=5 FILE_NUM=4) ;;
			fsx) less=(ITERATIONS=5000) ;;
			*) less=() ;;
			esac
			try "v$version-mode$mode $test" env "${less[@]}" "$test.sh" -v "$version" -t tcp
		done
	done
	try "all-mode$mode nfs06" nfs06.sh -v 3,3,4.1,4.1,4.2,4.2 -t tcp,tcp,tcp,tcp,tcp,tcp
done
exit 0
