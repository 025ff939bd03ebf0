# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
# fsx and fsstress side by side, for each version and mode. fsx holds what it reads against what it wrote; afterwards a
# client on another host has to see what is on the server's disk. How much they do is given as operations, for most
# operations of fsstress take no simulated time at all.

# Each request to these disks takes 10 ms. They are two, for fsstress fills its own now and then.
for program in fsx fsstress; do
	mkdir -p /srv/$program /mnt/$program
	disk $program 1024 10000000 && mkfs.xfs -q /dev/$program && mount /dev/$program /srv/$program || exit 1
	exportfs -o rw,insecure,no_root_squash,no_subtree_check "*:/srv/$program" || exit 1
done

# The other host: a network of its own, and so a client of its own.
unshare --net sleep 1000000 &
other=$!
while [ "$(readlink /proc/$other/ns/net)" = "$(readlink /proc/self/ns/net)" ]; do
	sleep 0.1
done
on_other()
{
	nsenter -t $other --net "$@"
}
ip link add server type veth peer name client && ip link set client netns $other || exit 1
ip addr add 192.0.2.1/30 dev server && ip link set server up
on_other ip addr add 192.0.2.2/30 dev client && on_other ip link set client up || exit 1

# What there is below a directory: what each name is, the sizes of files, and what is in their first MiB, for fsstress
# makes files of a GiB that are nearly all hole.
contents() # DIR
{
	(
		cd "$1" || exit
		find . -printf '%p %y %m %U:%G %n %l\n' | sort
		find . -type f -printf '%s %p\n' | sort | while read -r size name; do
			echo "$size $name $(head -c 1M "$name" | md5sum)"
		done
	)
}

stress() # VERSION MODE
{
	local name=v$1-mode$2 program pid began=$SECONDS fsstress

	mode "$2"
	for program in fsx fsstress; do
		mount -t nfs -o vers="$1" localhost:/srv/$program /mnt/$program || exit 1
	done
	# What the server or the version does not have, fsx finds out itself.
	"$SUITE"/ltp/fsx -q -S 1 -P /results -N 100000 /mnt/fsx/file >"/results/$name.fsx" 2>&1 &
	pid=$!
	"$SUITE"/ltp/fsstress -d /mnt/fsstress -p 4 -s 1 -n 5000 >"/results/$name.fsstress" 2>&1
	verdict $? "$name fsstress"
	fsstress=$((SECONDS - began))
	wait $pid
	verdict $? "$name fsx"
	echo "$name: fsstress for $fsstress s of simulated time, fsx for $((SECONDS - began))"
	for program in fsx fsstress; do
		umount /mnt/$program
		on_other mount -t nfs -o vers="$1" 192.0.2.1:/srv/$program /mnt/$program || exit 1
		contents /mnt/$program >"/results/$name.$program.client"
		contents /srv/$program >"/results/$name.$program.server"
		umount /mnt/$program
		cmp "/results/$name.$program.client" "/results/$name.$program.server"
		verdict $? "$name $program: another client sees what is on the disk"
		rm -rf /srv/$program/*
	done
}

for mode in 0 2; do
	for version in 3 4.0 4.2; do
		stress $version $mode
	done
done
kill $other
exit 0
