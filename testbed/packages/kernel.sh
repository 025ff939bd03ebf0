#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# In a guest with the packages of `make deb`, its server up: is it their kernel, and does a mount of it hold what is
# written? The release is in $RELEASE, the export's directory in $EXPORT.

. "$(dirname "${BASH_SOURCE[0]}")"/verdicts.sh

booted() {
	[[ $(uname -r) == "$RELEASE" ]]
}

# They are where the package puts them, and nothing says that they are of another kernel's tree.
loaded() {
	[[ $(modinfo -F filename "$1") == "/lib/modules/$RELEASE/kernel/"* && -z $(</sys/module/"$1"/taint) ]]
}

# mounted VERSION: what is written there is in the export, and read again after the mount has gone and come back.
mounted() {
	local here=/tmp/nfs there=localhost:/
	[[ $1 != 3 ]] || there=localhost:$EXPORT
	mkdir -p $here
	head -c 9000000 /dev/urandom >/tmp/data
	for turn in write read; do
		mount -t nfs -o "vers=$1,nolock" "$there" $here || return 1
		[[ $turn == read ]] || cp /tmp/data $here/data-"$1" || return 1
		cmp /tmp/data $here/data-"$1" || return 1
		umount $here || return 1
	done
	cmp /tmp/data "$EXPORT"/data-"$1"
}

{
	check "the kernel is the package's" booted
	for module in sunrpc nfsd; do
		check "$module is the package's" loaded $module
	done
	for version in 3 4.0 4.2; do
		check "a mount by NFSv$version holds what is written" mounted $version
	done
} | tee /results/ktap
exit 0
