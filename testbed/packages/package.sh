#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# What mmdebstrap runs for a Debian machine that gets packages of ours, with the root as $2.
set -e
root=$2

# The files and directories that a package of modules or of a kernel could leave behind, and what is in them.
traces() {
	(
		cd "$root"
		where=(usr/lib/modules usr/src boot etc var/lib/dkms)
		find "${where[@]}" -type f -print0 | xargs -0 sha256sum
		find "${where[@]}" -type l -printf '%p -> %l\n' -o -type d -printf '%p %p/\n'
	) | sort -k 2
}

# With a terminal of its own apt may keep the root's /dev/pts busy when mmdebstrap unmounts it.
apt() {
	DEBIAN_FRONTEND=noninteractive chroot "$root" apt-get -y -o Dpkg::Use-Pty=0 "$@"
}

case $1 in
# Before the kernel is there: what its initial RAM disk has to do.
initramfs)
	mkdir -p "$root"/etc/initramfs-tools/{conf.d,scripts} "$root"/usr/share/initramfs-tools/modules.d
	echo MODULES=list >"$root"/etc/initramfs-tools/conf.d/testbed
	# What the root is mounted with, and the disks for tests: here the kernel has no udev that would load their drivers.
	printf '%s\n' virtio_pci 9pnet_virtio 9p nvme nd_e820 nd_pmem virtio_blk >"$root"/usr/share/initramfs-tools/modules.d/testbed
	# The kernel's command line says boot=share.
	cat >"$root"/etc/initramfs-tools/scripts/share <<-'END'
		mountroot() {
			modprobe 9pnet_virtio
			modprobe 9p
			mount -t 9p -o ro,trans=virtio,version=9p2000.L,cache=loose,msize=262144 root "$rootmnt"
		}
	END
	;;
# With all of it there: install the packages $4…, keep the root as it is then and what was said in $3, and purge them.
packages)
	out=$3
	shift 3
	names=()
	traces >"$out"/before
	for package in "$@"; do
		names+=("$(dpkg-deb -f "$package" Package)")
		cp "$package" "$root"/tmp
	done
	apt --no-install-recommends install "${@/#*\//\/tmp/}" >"$out"/install.log 2>&1 || { cat "$out"/install.log; exit 1; }
	rm "$root"/tmp/*.deb
	if [[ -d $root/var/lib/dkms ]]; then
		cat "$root"/var/lib/dkms/*/*/*/*/log/make.log >"$out"/make.log
		module=$(basename "$(dirname "$root"/usr/src/*/dkms.conf)")
		headers=$(echo "$root"/usr/src/linux-headers-*-amd64)
		chroot "$root" dkms build "${module%-*}/${module##*-}" -k 6.12.0-amd64 --kernelsourcedir "${headers#"$root"}" \
			>"$out"/other.log 2>&1 && exit 1
	fi
	tar -C "$root" --one-file-system -cf "$out"/patched.tar .
	apt purge "${names[@]}" >"$out"/purge.log 2>&1 || { cat "$out"/purge.log; exit 1; }
	traces >"$out"/after
	;;
esac
