#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# In a guest with the package of modules: are they what is loaded, and is any module of other sources refused?
kernel=/lib/modules/$(uname -r)
own=$kernel/kernel
ours=$kernel/updates/dkms

# check NAME COMMAND…
check() {
	local name=$1 verdict=ok
	shift
	"$@" || verdict="not ok"
	echo "$verdict $((++n)) $name" | tee -a /results/ktap
}

unload() {
	umount /proc/fs/nfsd /var/lib/nfs/rpc_pipefs 2>/dev/null
	modprobe -r nfsd nfsv4 nfsv3 nfs lockd rpcrdma rpcsec_gss_krb5 auth_rpcgss sunrpc 2>/dev/null
	! grep -q '^sunrpc ' /proc/modules
}

# The module's file, and that it is loaded: its build id is that of the file.
loaded() {
	modprobe "$1" && [[ $(modinfo -F filename "$1") == "$ours/$1.ko"* ]] &&
		[[ $(</sys/module/"$1"/taint) == *O* ]]
}

# insmod FILE has to fail for a symbol that there is not.
refused() {
	dmesg -C
	! insmod "$1" && dmesg | grep "Unknown symbol svc_"
}

kernels_nfsd_is_refused() {
	modprobe lockd && modprobe auth_rpcgss && modprobe nfs_acl && modprobe nfs_localio
	refused "$own"/fs/nfsd/nfsd.ko.xz
}

ours_is_refused() {
	unload && insmod "$own"/net/sunrpc/sunrpc.ko.xz && refused "$ours"/lockd.ko.xz
}

for module in sunrpc auth_rpcgss rpcrdma lockd nfsd nfsv4; do
	check "$module is the package's" loaded $module
done
check "the RPC server's modules can be unloaded" unload
check "Debian's nfsd is refused beside the package's sunrpc" kernels_nfsd_is_refused
check "the package's lockd is refused beside Debian's sunrpc" ours_is_refused
exit 0
