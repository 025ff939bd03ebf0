# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
# The programs of tools/ against real servers: knfsd with 16 threads and a disk that takes 10 ms for each request, and,
# on the patched kernel, NFS-Ganesha. $TOOLS is where they are, and $KERNEL is base or patched. Sourced, after cases.sh.

EXPORT=/srv/floor

# begin NAME OPTION…: nfs-floor in the background, as $!, which leaves NAME.json, NAME.out and NAME.err
begin()
{
	local name=$1

	shift
	"$TOOLS"/nfs-floor "$@" --yes --json "/results/$name.json" --svg "/results/$name.svg" \
		>"/results/$name.out" 2>"/results/$name.err" &
}

# floor NAME OPTION…: the same, to its end
floor()
{
	begin "$@"
	wait $!
}

# holds NAME EXPRESSION: whether it holds of a result
holds()
{
	python3 - "/results/$1.json" "$2" <<-"END"
		import json, sys

		result = json.load(open(sys.argv[1]))
		steps = {one["name"]: one for one in result["steps"]}
		did = result["did"]

		def ms(name, key="burst_ns"):
		    return steps[name][key]["p50"] / 1e6

		sys.exit(not eval(sys.argv[2]))
	END
}

# refused NAME TEXT OPTION…: it ends with one line that has the text
refused()
{
	local name=$1 text=$2

	shift 2
	! floor "$name" "$@" && [ "$(wc -l <"/results/$name.err")" -eq 1 ] && grep -qF -e "$text" "/results/$name.err"
}

empty()
{
	[ -z "$(ls -A "$EXPORT")" ]
}

no_clients()
{
	[ -z "$(ls /proc/fs/nfsd/clients)" ]
}

# metrics FILE EXPRESSION: whether it is in Prometheus' format, and the expression holds of it
metrics()
{
	python3 - "$1" "$2" <<-"END"
		import sys
		from prometheus_client import parser

		found = {}
		for family in parser.text_string_to_metric_families(open(sys.argv[1]).read()):
		    assert family.documentation and family.type in ("gauge", "counter")
		    for sample in family.samples:
		        found[sample.name, *(sample.labels[name] for name in sorted(sample.labels))] = sample.value
		waits = {name[1]: value for name, value in found.items() if name[0] == "nfsd_wait_median_seconds"}
		sys.exit(not eval(f"({sys.argv[2]})"))
	END
}

disk floor 1024
mkdir -p /run/rpcbind
# The file is on the disk when it has been written, and not in the page cache: each READ takes a turn of the disk.
echo 1 >/sys/kernel/debug/nfsd/io_cache_read
echo 1 >/sys/kernel/debug/nfsd/io_cache_write
options=rw,insecure,no_root_squash,no_subtree_check
exportfs -o $options,fsid=0 "*:$EXPORT" || exit 1
rpcbind -w && rpc.mountd || exit 1
echo 10 >/proc/fs/nfsd/nfsv4gracetime
rpc.nfsd 16 || exit 1

# On the base each READ of a burst waits until every busy connection had a turn, and a stat does so once: behind 32
# connections that is two requests of 10 ms for each of 16 threads.
case $KERNEL in
base) waits='ms("4") > 100 and ms("16") > 300 and ms("32") > 600 and 15 < ms("32", "stat_ns") < 25' ;;
patched) waits='ms("4") < 40 and ms("16") < 40 and ms("32") < 40 and ms("32", "stat_ns") < 40' ;;
esac
for vers in 3 4.1; do
	path=$EXPORT
	[ $vers = 3 ] || path=/
	check "nfs-floor measures knfsd, NFSv$vers" floor knfsd-$vers "localhost:$path" --vers $vers --seconds 30
	check "every step is made, NFSv$vers" holds knfsd-$vers 'list(steps) == "0 4 16 32 slow flood share".split()'
	check "a burst alone takes two turns of the disk, NFSv$vers" holds knfsd-$vers '20 <= ms("0") < 22'
	check "what a burst and a stat wait is of the kernel, NFSv$vers" holds knfsd-$vers "$waits"
	check "connections share alike, whatever they have in flight, NFSv$vers" \
		holds knfsd-$vers '0.8 < steps["share"]["many"] / steps["share"]["few"] < 1.25'
	check "no request fails, and none is without a reply, NFSv$vers" \
		holds knfsd-$vers 'not did["failed"] and did["requests"] == did["replies"] and not result["ended"]'
	check "it takes no longer than it may, NFSv$vers" holds knfsd-$vers 'did["elapsed_ns"] <= 30e9'
	check "nothing is left in the export, NFSv$vers" empty
	check "the server knows no client of it, NFSv$vers" no_clients
	check "mountd knows no mount of it, NFSv$vers" test ! -s /var/lib/nfs/rmtab
done

# One thread: each step ends when it has to, with fewer bursts, or none.
echo 1 >/proc/fs/nfsd/threads
check "a slow server is measured as far as the time goes" floor slow localhost:$EXPORT --vers 3 --seconds 20
check "on a slow server it takes no longer than it may" holds slow 'did["elapsed_ns"] <= 22e9 and not result["ended"]'
check "a slow server has nothing left of it" empty
echo 16 >/proc/fs/nfsd/threads

for vers in 3 4.1; do
	path=$EXPORT
	[ $vers = 3 ] || path=/
	begin term-$vers "localhost:$path" --vers $vers
	sleep 8
	kill -TERM $!
	wait $!
	check "SIGTERM ends it with the status of SIGTERM, NFSv$vers" test $? -eq 143
	check "SIGTERM leaves nothing in the export, NFSv$vers" empty
	check "SIGTERM leaves no client, NFSv$vers" no_clients
done

# All that it counts, and the waits, from when 32 connections have a backlog until users were measured beside it
begin busy localhost:$EXPORT --vers 3 --seconds 30
until [ "$(cat /proc/net/tcp /proc/net/tcp6 | grep -c ':0801 01 ')" -gt 32 ]; do
	sleep 0.1
	kill -0 $! || break
done
check "nfsd-metrics ends well" "$TOOLS"/nfsd-metrics --waits 8 --output /tmp/nfsd.prom
kill $!
wait $!
cp /tmp/nfsd.prom /results/
check "nfsd-metrics prints what Prometheus reads" metrics /tmp/nfsd.prom \
	'found["nfsd_threads",] == 16 and found["nfsd_pool_queued_total", "0"] > 10000'
check "nfsd-metrics has the bytes of the export" metrics /tmp/nfsd.prom \
	'found["nfsd_export_read_bytes_total", "*", "/srv/floor"] > 4096 * 10000'
case $KERNEL in
base)
	check "nfsd-metrics says what the base does not have" metrics /tmp/nfsd.prom \
		'found["nfsd_source_available", "export_io"] == 0 == found["nfsd_source_available", "clients"]'
	check "nfsd-metrics has the waits without tiers" metrics /tmp/nfsd.prom \
		'list(waits) == ["all"] and 0.015 < waits["all"] < 0.025'
	;;
patched)
	check "nfsd-metrics has the I/O of the export, as it was asked for" metrics /tmp/nfsd.prom \
		'found["nfsd_export_io_requests_total", "*", "/srv/floor", "dontcache", "read"] > 10000 and
		 found["nfsd_export_io_mode_info", "*", "/srv/floor", "default", "read"] == 1'
	check "nfsd-metrics would have clients, if they were counted" metrics /tmp/nfsd.prom \
		'found["nfsd_source_available", "clients"] == 1'
	check "nfsd-metrics has the waits by tier" metrics /tmp/nfsd.prom \
		'waits[max(waits)] > 0.015 > waits["0"]'
	;;
esac

check "a path that is not exported is refused" refused none "the server says" localhost:/srv/none --vers 3
check "the same of NFSv4.1" refused none-4 "the server says NOENT" localhost:/none
exportfs -o ro,insecure,no_root_squash,no_subtree_check,fsid=0 "*:$EXPORT"
check "an export that is read-only is refused" refused ro "the server says ROFS" localhost:$EXPORT --vers 3
exportfs -o $options,sec=krb5,fsid=0 "*:$EXPORT"
check "an export with Kerberos alone is refused" refused krb5 "Kerberos" localhost:$EXPORT --vers 3
exportfs -o rw,secure,no_root_squash,no_subtree_check,fsid=0 "*:$EXPORT"
setpriv --reuid=65534 --regid=65534 --clear-groups "$TOOLS"/nfs-floor localhost:/ --yes 2>/results/secure.err
check "an export that is secure says who may" grep -q "the server says PERM: .*: be root" /results/secure.err
exportfs -o $options,fsid=0 "*:$EXPORT"

begin gone localhost:$EXPORT --vers 3
sleep 8
rpc.nfsd 0
wait $!
check "a server that is stopped in the middle ends it with status 1" test $? -eq 1
check "what was measured until then is kept" holds gone 'list(steps)[:1] == ["0"] and result["ended"]'
check "the file that it could not delete is named" grep -qF "$(ls -A $EXPORT) may still be in" /results/gone.err
rm -f $EXPORT/.nfs-floor-*

[ "$KERNEL" = patched ] || return 0

# A server in user space, with files in memory, which answers as fast as it is asked. It looks for file systems in mtab.
pkill rpc.mountd
umount /proc/fs/nfsd
cp -a /etc /tmp/etc && ln -sf /proc/self/mounts /tmp/etc/mtab && mount --bind /tmp/etc /etc || exit 1
mkdir -p /run/ganesha /var/lib/nfs/ganesha
cat >/tmp/ganesha.conf <<-END
	NFS_CORE_PARAM { Protocols = 3, 4; Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = false; }
	NFSV4 { Graceless = true; }
	EXPORT { Export_Id = 1; Path = /mem; Pseudo = /mem; Access_Type = RW; Squash = None; SecType = sys; FSAL { Name = MEM; } }
END
ganesha.nfsd -f /tmp/ganesha.conf -L /results/ganesha.log -p /tmp/ganesha.pid -N NIV_EVENT || exit 1
sleep 10
for vers in 3 4.1; do
	check "nfs-floor measures NFS-Ganesha, NFSv$vers" \
		floor ganesha-$vers localhost:/mem --vers $vers --seconds 20 --rate 1000
	check "every step is made with it, NFSv$vers" holds ganesha-$vers 'list(steps) == "0 4 16 32 slow flood share".split()'
	check "no request to it fails, NFSv$vers" holds ganesha-$vers 'not did["failed"] and did["requests"] == did["replies"]'
done
mount -t nfs -o vers=4.1 localhost:/mem /mnt || exit 1
check "nothing is left on NFS-Ganesha" test -z "$(ls -A /mnt)"
umount /mnt
kill "$(cat /tmp/ganesha.pid)"
sleep 5
