# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
# nfsdctl with the patches, on a kernel that has I/O modes and statistics of exports (patched), and on one that has not
# (base). $PROGRAMS is where it is. Sourced, after cases.sh.

EXPORT=/srv/io
begin_nfsdctl

# json EXPRESSION: whether it holds of what `nfsdctl stats --json` says: all is a list, and one() an entry of it.
json()
{
	"$ctl" stats --json >/tmp/json && python3 - "$1" <<-"END"
		import json, sys

		all = json.load(open("/tmp/json"))

		def one(path):
		    return next(entry for entry in all if entry["path"] == path)

		def ops(path, op, how, what="requests"):
		    return sum(each[what] for each in one(path)["ops"] if (each["op"], each["how"]) == (op, how))

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
check "io-mode wants a mode" says 1 'Usage: .* io-mode' "$nothing" io-mode "$EXPORT"
check "a mode that there is not is refused" says 1 "$nothing" 'Invalid I/O mode fast' io-mode "$EXPORT" read=fast
check "what has neither read= nor write= is refused" says 1 'Usage: .* io-mode' "$nothing" io-mode "$EXPORT" both=direct
mount -t nfs -o vers=4.2,rsize=524288,wsize=524288 localhost:/ /mnt || exit 1
dd if=/dev/urandom of="$EXPORT/file" bs=1M count=16 status=none
sync
echo 3 >/proc/sys/vm/drop_caches

if [ "$KERNEL" = base ]; then
	none='this kernel does not tell how I/O to exports is carried out'
	check "stats says in a line that the kernel has none" says 2 "$nothing" "nfsdctl: $none" stats
	check "with --json it prints nothing else" says 2 "$nothing" "nfsdctl: $none" stats --json
	check "io-mode says in a line that the kernel has none" \
		says 2 "$nothing" "nfsdctl: this kernel has no I/O modes of exports" io-mode "$EXPORT" read=direct
	check "the server serves as before" cmp "$EXPORT/file" /mnt/file
	umount /mnt
	"$ctl" threads 0
	conf threads=4 io-read=direct io-write=dontcache
	check "autostart says in a line that it ignores I/O modes" \
		says 0 "$nothing" 'this kernel has no I/O modes of exports: io-read and io-write are ignored' autostart
	check "and starts the server" threads 4
	return 0
fi

check "stats has the export, in no mode" says 0 "^$EXPORT"$'\n  read: mode default\n' "$nothing" stats
check "io-mode sets one direction" says 0 "$nothing" "$nothing" io-mode "$EXPORT" read=direct
check "stats has the mode" says 0 "^$EXPORT"$'\n  read: mode direct\n  write: mode default' "$nothing" stats
check "stats --json has the mode" json \
	'[one("/srv/io")[key] for key in ("read", "write", "read-now", "write-now")] == ["direct", "default"] * 2'
dd if=/mnt/file of=/dev/null bs=1M iflag=direct status=none
check "stats has the READs, and their bytes" \
	says 0 $'  read: mode direct\n    direct                 32 requests         16777216 bytes\n' "$nothing" stats
check "stats --json has them" json \
	'ops("/srv/io", "read", "direct") == 32 and ops("/srv/io", "read", "direct", "bytes") == 16 << 20'
dd if=/mnt/file of=/dev/null bs=4k count=3 iflag=direct status=none
whole="$EXPORT
  read: mode direct
    spliced                 3 requests            12288 bytes
    direct                 32 requests         16777216 bytes
    not direct              3 requests: small
  write: mode default"
check "stats has what was not direct, and why" says 0 "^$whole\$" "$nothing" stats
check "stats --json has it" json 'fallbacks("/srv/io", "read", "small") == 3'
check "both directions at once" says 0 "$nothing" "$nothing" io-mode "$EXPORT" read=default write=dontcache
dd if=/dev/zero of=/mnt/new bs=1M count=4 oflag=direct status=none
check "a WRITE is one of its direction" json \
	'ops("/srv/io", "write", "dontcache") == 8 and not ops("/srv/io", "read", "dontcache")'
says 0 "$nothing" "$nothing" io-mode "$EXPORT" read=default
check "the bytes on the disk are those that were sent" cmp <(head -c 4M /dev/zero) "$EXPORT/new"

# The same as the other program that reads it
"$TOOLS"/nfsd-metrics --output /tmp/nfsd.prom
for what in requests bytes; do
	# shellcheck disable=SC2016
	check "nfsd-metrics has the same $what" json "sum(each['$what'] for entry in all for each in entry['ops']) == \
		sum(int(line.split()[-1]) for line in open('/tmp/nfsd.prom') if line.startswith('nfsd_export_io_${what}_total{'))"
done

# What is above a path
check "the mode of / is everybody's" says 0 "$nothing" "$nothing" io-mode / write=buffered read=dontcache
check "stats says what that comes to" \
	says 0 "$EXPORT"$'\n  read: mode default, which is dontcache\n' "$nothing" stats
check "stats --json says so" json 'one("/srv/io")["read-now"] == "dontcache" == one("/")["read"]'
says 0 "$nothing" "$nothing" io-mode / write=default read=default

# What is refused, is refused in the kernel's own words.
check "a directory that there is not" says 1 "$nothing" 'Error: there is no such directory' io-mode /srv/none read=direct
check "a file" says 1 "$nothing" 'Error: the path is not a directory' io-mode "$EXPORT/file" read=direct
check "a path that does not begin with a slash" says 1 "$nothing" 'Error: the path has to begin' io-mode srv read=direct
check "a path that is too long" \
	says 1 "$nothing" 'Error: the path is too long|: too long' io-mode "/$(printf 'x%.0s' {1..5000})" read=direct
as=(setpriv --reuid=65534 --regid=65534 --clear-groups)
check "who is not root may not set a mode" says 1 "$nothing" 'Error: Operation not permitted' io-mode /srv read=direct
check "who is not root may see it" says 0 "$EXPORT" "$nothing" stats
as=()
check "nothing of that has changed anything" json \
	'{entry[key] for entry in all for key in ("read", "write") if entry["path"] != "/srv/io"} <= {"default"}'

# Names, and many of them
odd=$'/srv/io/a "quoted" \\ back\nslash \303\266'
mkdir "$odd"
check "any name can be set" says 0 "$nothing" "$nothing" io-mode "$odd" read=buffered
check "it is in one line of the text" says 0 'a "quoted" \\134 back\\012slash ö' "$nothing" stats
ODD=$odd check "it is the same in JSON" json 'one(__import__("os").environ["ODD"])["read"] == "buffered"'
for n in {1..300}; do
	mkdir -p "$EXPORT/$(printf 'x%.0s' {1..200})/$n" && "$ctl" io-mode "$_" read=direct || exit 1
done
check "a dump of many messages is whole" json 'sum(entry["read"] == "direct" for entry in all) == 300'
check "and in order" json '[entry["path"] for entry in all] == sorted(entry["path"] for entry in all)'
check "a network namespace has its own, and none is a list, too" \
	unshare -n bash -c '[ "$("$0" stats --json)" = "[]" ] && [ -z "$("$0" stats)" ]' "$ctl"

# nfs.conf
umount /mnt
"$ctl" threads 0
conf threads=4 io-read=direct io-write=dontcache
check "autostart takes I/O modes" says 0 "$nothing" "$nothing" autostart
check "they are those of /" json '(one("/")["read"], one("/")["write"]) == ("direct", "dontcache")'
check "and it starts the server" threads 4
"$ctl" threads 0
conf threads=4 io-read=fast
check "a mode in nfs.conf that there is not is an error" says 1 "$nothing" 'Invalid I/O mode fast' autostart
check "and no server starts" threads 0
