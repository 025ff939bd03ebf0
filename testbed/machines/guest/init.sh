#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The guest's init: mounts what a server needs, runs the host's script $RUN (below /host, which is the host's root and
# is only read; User-mode Linux finds its name in /results) with what it leaves in /results, writes its exit status there,
# and powers off.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t debugfs debugfs /sys/kernel/debug
mount -t tracefs tracefs /sys/kernel/tracing
mount -t configfs configfs /sys/kernel/config
for dir in /run /tmp /mnt /srv /var/lib/nfs; do
	mount -t tmpfs tmpfs $dir
done
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
ln -s /proc/self/fd /dev/fd
for fd in in out err; do
	ln -s fd/$((n++)) /dev/std$fd
done
mkdir /var/lib/nfs/{v4recovery,rpc_pipefs,sm,sm.bak}
touch /var/lib/nfs/{etab,rmtab,xtab}
mount -t nfsd nfsd /proc/fs/nfsd
mount -t rpc_pipefs rpc_pipefs /var/lib/nfs/rpc_pipefs
if grep -qw hostfs /proc/filesystems; then
	mount -t hostfs -o ro,hostfs=/ host /host
	mount -t hostfs -o "hostfs=$RESULTS" results /results
	RUN=$(readlink /results/from/run)
else
	options=trans=virtio,version=9p2000.L,msize=262144
	mount -t 9p -o ro,cache=loose,$options host /host
	mount -t 9p -o $options results /results
fi
ip link set lo up
# What is mounted here is to ask the server, and not to go around it, unless a script says so.
localio=/sys/module/nfs/parameters/localio_enabled
[ ! -e $localio ] || echo N >$localio
cd /tmp
bash "/host$RUN" </dev/null
echo $? >/results/exit
sync
# No program can be loaded any more when the root's device is off, and init must not end.
mkfifo never
exec {never}<>never
echo o >/proc/sysrq-trigger
read -r -u $never
