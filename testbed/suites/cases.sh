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

# What topics of nfs-utils have in common

# shellcheck disable=SC2034 # it is for those who source this
nothing='^$'
OPTIONS=rw,insecure,no_root_squash,no_subtree_check

# begin_nfsdctl: nfsdctl with the patches is where any user may run it, exportfs and rpc.mountd are those with the patches;
# there is an export, and no server yet
begin_nfsdctl()
{
	mkdir /tmp/bin && cp "$PROGRAMS/nfsdctl" /tmp && cp "$PROGRAMS/exportfs" /tmp/bin/ &&
		cp "$PROGRAMS/mountd" /tmp/bin/rpc.mountd || exit 1
	PATH=/tmp/bin:$PATH
	# mountd reads there what is mounted below an export, and this root has none.
	cp -a /etc /tmp/etc && ln -sfn /proc/self/mounts /tmp/etc/mtab && mount --bind /tmp/etc /etc || exit 1
	ctl=/tmp/nfsdctl
	as=()
	disk io 512
	mkdir -p /run/rpcbind
	conf threads=8
	mount --bind /tmp/nfs.conf /etc/nfs.conf || exit 1
	touch /tmp/exports && mount --bind /tmp/exports /etc/exports || exit 1
	exportfs -o "$OPTIONS,fsid=0" "*:$EXPORT" || exit 1
	rpcbind -w && rpc.mountd || exit 1
	echo 10 >/proc/fs/nfsd/nfsv4gracetime
}

# conf LINE…: nfs.conf has these in [nfsd]
conf()
{
	printf '%s\n' "[nfsd]" vers4.0=n "$@" >/tmp/nfs.conf
}

# says STATUS OUT ERR ARGUMENT…: nfsdctl, or what $ctl is, ends with the status; what it prints matches the two patterns,
# and what is on stderr is at most one line. Where it is not so, /results/said has what it printed. $as is who runs it.
says()
{
	local status=$1 out=$2 err=$3 printed told

	shift 3
	printed=$("${as[@]}" "$ctl" "$@" 2>/tmp/err)
	[ $? -eq "$status" ] && told=$(</tmp/err) && [[ $printed =~ $out && $told =~ $err && $told != *$'\n'* ]] && return
	printf '%.100s\n' "${ctl##*/} $*:" >>/results/said
	cat /tmp/err - <<<"$printed" >>/results/said
	return 1
}

threads()
{
	[ "$(cat /proc/fs/nfsd/threads)" = "$1" ]
}

# exports LINE…: what is in /etc/exports, and in force if exportfs takes it
exports()
{
	printf '%s\n' "$@" >/tmp/exports
	ctl=exportfs says 0 "$nothing" "$nothing" -ra
}

# refused LINE ERR: exportfs says one line of that in /etc/exports, behind another one
refused()
{
	printf '%s\n' "$EXPORT 127.0.0.9($OPTIONS)" "$1" >/tmp/exports
	ctl=exportfs says 1 "$nothing" "$2" -ra
}

# cached PATH CLIENT OPTION VALUE: the kernel's cache has the export, with this value of the option, or with none
cached()
{
	[ "$(awk -v path="$1" -v client="$2(" -v option=",$3=" '$1 == path && index($2, client) == 1 {
		found = match($2, option "[a-z0-9:]*")
		print found ? substr($2, RSTART + length(option), RLENGTH - length(option)) : "none"
	}' /proc/net/rpc/nfsd.export/content)" = "$4" ]
}
