# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
# nfsdctl, exportfs and mountd with the patches, on a kernel that has I/O modes and statistics of exports (patched), and
# on one that has not (base). $PROGRAMS is where they are. Sourced, after cases.sh.

EXPORT=/srv/io
begin_nfsdctl

# has PATH CLIENT MODES: the kernel's cache has the export, with these modes
has()
{
	cached "$1" "$2" io "$3"
}

# answer PATH WORD…: as if mountd had said so of an export to all
answer()
{
	local path=$1

	shift
	printf '* %s %s 1058 65534 65534 0 %s\n' "$path" "$(($(date +%s) + 10000))" "$*" >/proc/net/rpc/nfsd.export/channel
}

# mounted ADDRESS: $EXPORT is at /mnt, by NFSv3, from that address
mounted()
{
	umount /mnt 2>/dev/null
	mount -t nfs -o vers=3,nolock,rsize=524288,wsize=524288 "$1:$EXPORT" /mnt || exit 1
}

# reads: 8 MiB of the file, which are not in the cache
reads()
{
	echo 3 >/proc/sys/vm/drop_caches
	dd if="${1:-/mnt}/file" of=/dev/null bs=1M count=8 iflag=direct status=none
}

# json EXPRESSION: whether it holds of what `nfsdctl stats --json` says: all is a list, and one() an entry of it.
json()
{
	"$ctl" stats --json >/tmp/json && python3 - "$1" <<-"END"
		import json, sys

		all = json.load(open("/tmp/json"))

		def one(path, client="*"):
		    return next(entry for entry in all if (entry["path"], entry["client"]) == (path, client))

		def ops(path, op, how, what="requests", client="*"):
		    return sum(each[what] for each in one(path, client)["ops"] if (each["op"], each["how"]) == (op, how))

		def fallbacks(path, op, reason):
		    found = [each for each in one(path)["fallbacks"] if (each["op"], each["reason"]) == (op, reason)]
		    return sum(each["requests"] for each in found)

		sys.exit(not eval(sys.argv[1]))
	END
}

# What was there before, on both kernels
conf threads=8 grace-time=10
check "autostart starts the server" says 0 "$nothing" "$nothing" autostart
check "it has the threads that nfs.conf says" threads 8
check "threads" says 0 'pool-threads: 8' "$nothing" threads
check "threads are set" says 0 "$nothing" "$nothing" threads 16
check "version" says 0 '\+4\.2' "$nothing" version
check "listener" says 0 'tcp:0\.0\.0\.0:2049' "$nothing" listener
check "pool-mode" says 0 'pool-mode: ' "$nothing" pool-mode
check "nlm has the grace period of nfs.conf" says 0 'gracetime: 10' "$nothing" nlm
check "status" says 0 '' "$nothing" status
check "an option that there is not is refused" says 1 'Usage: .* stats' 'invalid option' stats -x

# exports(5), which is the same whatever the kernel knows
dd if=/dev/urandom of="$EXPORT/file" bs=1M count=16 status=none
sync
for mode in '' fast direct: :direct direct:fast fast:direct direct:direct:direct directly DIRECT 3; do
	check "io=$mode is refused, with the file and the line" \
		refused "$EXPORT *($OPTIONS,io=$mode)" "^exportfs: /etc/exports:2: bad I/O mode \"io=$mode\"\$"
done
check "so it is where it is an option of all clients" \
	refused "$EXPORT -io=fast *($OPTIONS)" '^exportfs: /etc/exports:2: bad I/O mode "io=fast"$'
: >/tmp/exports
ctl=exportfs check "and on the command line" \
	says 1 "$nothing" '^exportfs: command line:0: bad I/O mode "io=fast"$' -o "$OPTIONS,io=fast" "*:$EXPORT"
check "modes are taken" exports "$EXPORT *($OPTIONS,fsid=0,io=direct:dontcache)"
ctl=exportfs check "exportfs -v has them" says 0 ',io=direct:dontcache\)$' "$nothing" -v
ctl=exportfs check "exportfs -s has them" says 0 "^$EXPORT +\*\(.*,io=direct:dontcache\)\$" "$nothing" -s
exportfs -s >/tmp/shown
check "what it prints is what it reads" exports "$(</tmp/shown)"
check "and means the same" cmp /tmp/shown <(exportfs -s)
check "one mode is for both" exports "$EXPORT *($OPTIONS,fsid=0,io=direct)"
ctl=exportfs check "and is shown so" says 0 ',io=direct:direct\)$' "$nothing" -s
check "the last one counts" exports "$EXPORT -io=direct *($OPTIONS,fsid=0,io=buffered,io=default)"
ctl=exportfs check "and the default is no mode" says 0 'sec=sys,[^=]*\)$' "$nothing" -s
exports "$EXPORT *($OPTIONS,fsid=0,io=direct:dontcache)"

if [ "$KERNEL" = base ]; then
	none='this kernel does not tell how I/O to exports is carried out'
	check "stats says in a line that the kernel has none" says 2 "$nothing" "nfsdctl: $none" stats
	check "with --json it prints nothing else" says 2 "$nothing" "nfsdctl: $none" stats --json
	mounted localhost
	check "what has a mode is exported as before" cmp "$EXPORT/file" /mnt/file
	check "and has none in the kernel" has "$EXPORT" '*' none
	return 0
fi

mounted localhost
check "stats has the export, in its modes" \
	says 0 "^$EXPORT"$'\t\\*\n  read: mode direct\n.*  write: mode dontcache' "$nothing" stats
check "so has the kernel's cache" has "$EXPORT" '*' direct:dontcache
check "stats --json has the modes" json '(one("/srv/io")["read"], one("/srv/io")["write"]) == ("direct", "dontcache")'
reads
check "stats has the READs, and their bytes" \
	says 0 $'  read: mode direct\n    direct                 16 requests          8388608 bytes\n' "$nothing" stats
check "stats --json has them" json \
	'ops("/srv/io", "read", "direct") == 16 and ops("/srv/io", "read", "direct", "bytes") == 8 << 20'
dd if=/mnt/file of=/dev/null bs=4k count=3 iflag=direct status=none
whole="$EXPORT"$'\t\\*'"
  read: mode direct
    spliced                 3 requests            12288 bytes
    direct                 16 requests          8388608 bytes
    not direct              3 requests: small
  write: mode dontcache"
check "stats has what was not direct, and why" says 0 "^$whole\$" "$nothing" stats
check "stats --json has it" json 'fallbacks("/srv/io", "read", "small") == 3'
dd if=/dev/zero of=/mnt/new bs=1M count=4 oflag=direct status=none
check "a WRITE is one of its direction" json \
	'ops("/srv/io", "write", "dontcache") == 8 and not ops("/srv/io", "read", "dontcache")'
check "the bytes on the disk are those that were sent" cmp <(head -c 4M /dev/zero) "$EXPORT/new"

# The same as the other program that reads it
"$TOOLS"/nfsd-metrics --output /tmp/nfsd.prom
for what in requests bytes; do
	# shellcheck disable=SC2016
	check "nfsd-metrics has the same $what" json "sum(each['$what'] for entry in all for each in entry['ops']) == \
		sum(int(line.split()[-1]) for line in open('/tmp/nfsd.prom') if line.startswith('nfsd_export_io_${what}_total{'))"
done

# A mode that is changed, as other options are
exports "$EXPORT *($OPTIONS,fsid=0,io=dontcache:default)"
reads
check "a mode that is changed counts after exportfs -ra" has "$EXPORT" '*' dontcache:default
check "from the next READ on" json 'ops("/srv/io", "read", "dontcache") == 16 == ops("/srv/io", "read", "direct")'
exports "$EXPORT *($OPTIONS,fsid=0)"
reads
check "an option that is gone leaves none" has "$EXPORT" '*' none
check "and the counters go on" json \
	'one("/srv/io")["read"] == "default" and ops("/srv/io", "read", "direct") == ops("/srv/io", "read", "buffered") == 16'

# Two clients of one path
ip addr add 127.0.0.2/32 dev lo
exports "$EXPORT 127.0.0.1($OPTIONS,fsid=0,io=direct) 127.0.0.2($OPTIONS,fsid=0,io=buffered:dontcache)"
mounted 127.0.0.1
reads
mounted 127.0.0.2
reads
check "each client of a path has its own modes" has "$EXPORT" 127.0.0.1 direct:direct
check "and the other one others" has "$EXPORT" 127.0.0.2 buffered:dontcache
check "by which its READs are carried out" json 'ops("/srv/io", "read", "direct", client="127.0.0.1") == 16 and \
	not ops("/srv/io", "read", "direct", client="127.0.0.2")'

# A file system that is mounted below
mkdir "$EXPORT/sub"
EXPORT=/srv/io/sub disk sub 512
dd if=/dev/urandom of="$EXPORT/sub/file" bs=1M count=8 status=none
exports "$EXPORT *($OPTIONS,fsid=0,crossmnt,io=direct:buffered)"
umount /mnt
mount -t nfs -o vers=4.2,rsize=524288,wsize=524288 localhost:/ /mnt || exit 1
check "what is mounted below is exported with crossmnt" cmp "$EXPORT/sub/file" /mnt/sub/file
check "in the modes of the export" has "$EXPORT/sub" '*' direct:buffered
check "which has the same" has "$EXPORT" '*' direct:buffered
exports "$EXPORT *($OPTIONS,fsid=0,crossmnt,io=direct:buffered)" "$EXPORT/sub *($OPTIONS,io=dontcache)"
reads /mnt/sub
check "unless it is exported by itself" has "$EXPORT/sub" '*' dontcache:dontcache
reads
check "which does not change the export" has "$EXPORT" '*' direct:buffered

as=(setpriv --reuid=65534 --regid=65534 --clear-groups)
check "who is not root may see it" says 0 "$EXPORT" "$nothing" stats
as=()

# Names, and many of them
odd=$'/srv/io/a "quoted" \\ back\nslash \303\266'
mkdir "$odd"
answer '/srv/io/a\040"quoted"\040\134\040back\012slash\040ö' io 1 0
check "an odd name is in one line of the text" says 0 'a "quoted" \\134 back\\012slash ö' "$nothing" stats
ODD=$odd check "it is the same in JSON" json 'one(__import__("os").environ["ODD"])["read"] == "buffered"'
other=$'caf\xe9' # not UTF-8
mkdir "$EXPORT/$other"
answer "$EXPORT/$other" io 1 0
check "a name that is no UTF-8 makes no other JSON" json 'one("/srv/io/caf\\xe9")["read"] == "buffered"'
for n in {1..300}; do
	mkdir -p "$EXPORT/$(printf 'x%.0s' {1..200})/$n" && answer "$_" io 2 2 || exit 1
done
check "a dump of many messages is whole" json \
	'sum(entry["read"] == entry["write"] == "dontcache" for entry in all) == 301'
check "and in order" json '[entry["path"] for entry in all] == sorted(entry["path"] for entry in all)'
check "a network namespace has its own, and none is a list, too" \
	unshare -n bash -c '[ "$("$0" stats --json)" = "[]" ] && [ -z "$("$0" stats)" ]' "$ctl"
