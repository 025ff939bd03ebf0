#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# In a guest with the package of modules: are they what is loaded, and is any module of other sources refused?
ours=/lib/modules/$(uname -r)/updates/dkms
# Where dkms keeps the kernel's own while the package is there.
own=$(echo /var/lib/dkms/*/original_module/"$(uname -r)"/x86_64)

. "$(dirname "${BASH_SOURCE[0]}")"/verdicts.sh

unload() {
	umount /proc/fs/nfsd /var/lib/nfs/rpc_pipefs 2>/dev/null
	# What rpcsec_gss_krb5 has of auth_rpcgss it gives back only after a grace period.
	for _ in 1 2 3; do
		modprobe -r nfsd nfsv4 nfsv3 nfs lockd rpcrdma rpcsec_gss_krb5 auth_rpcgss sunrpc 2>/dev/null && break
		sleep 1
	done
	! grep -q '^sunrpc ' /proc/modules
}

# It is loaded, and modprobe took the package's file: only that is marked as not of the kernel's tree.
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
	modprobe lockd && modprobe auth_rpcgss && refused "$own"/nfsd.ko.xz
}

ours_is_refused() {
	unload && insmod "$own"/sunrpc.ko.xz && refused "$ours"/lockd.ko.xz
}

{
	# Which these are has been asked of dkms.
	for module in "$ours"/*.ko*; do
		module=${module##*/}
		module=${module%%.*}
		check "$module is the package's" loaded "$module"
	done
	check "the RPC server's modules can be unloaded" unload
	check "Debian's nfsd is refused beside the package's sunrpc" kernels_nfsd_is_refused
	check "the package's lockd is refused beside Debian's sunrpc" ours_is_refused
} | tee /results/ktap
exit 0
