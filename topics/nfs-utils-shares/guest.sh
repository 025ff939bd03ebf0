# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
# nfsdctl, exportfs and mountd with the patches, on a kernel that knows the clients of its server (patched), and on one that
# does not (base).
# Sourced, after cases.sh.

EXPORT=/srv/shares
begin_nfsdctl

# json EXPRESSION: whether it holds of what `nfsdctl shares --json` says; of(ADDRESS) is a list of clients.
json()
{
	"$ctl" shares --json >/tmp/json && python3 - "$1" <<-"END"
		import json, sys

		said = json.load(open("/tmp/json"))
		mode, weights, clients = (said[key] for key in ("mode", "weights", "clients"))
		weights = {each["prefix"]: each["weight"] for each in weights}

		def of(address):
		    return [client for client in clients if client["address"] == address]

		sys.exit(not eval(f"({sys.argv[1]})"))
	END
}

# set_to WORD…: the first line says so, in these words
set_to()
{
	[ "$("$ctl" shares | head -n 1)" = "$*" ]
}

# weighs CLIENT WEIGHT: the kernel's cache has the export, with this weight
weighs()
{
	cached "$EXPORT" "$1" weight "$2"
}

conf threads=32 grace-time=10
check "autostart starts the server" says 0 "$nothing" "$nothing" autostart
check "it has the threads that nfs.conf says" threads 32
dd if=/dev/urandom of="$EXPORT/file" bs=1M count=16 status=none
sync

# What is not asked of a kernel
check "an option that there is not is refused" says 1 'Usage: .* shares' 'invalid option' shares -x
check "--json is for what is shown" says 1 'Usage: .* shares' "$nothing" shares --json off
check "a mode that there is not is refused" \
	says 1 "$nothing" 'Invalid mode fast: it has to be off, count or share' shares fast
for word in 192.0.2.0=7 192.0.2.0/24 192.0.2/24=7 192.0.2.0/24=7x 192.0.2.0/x=7 192.0.2.0/4294967320=7 host/24=7 \
	2001:db8::g/32=7 /24=7 192.0.2.0/24=7=7 by-adress; do
	check "$word is refused" says 1 "$nothing" "Invalid weight $word: it has to be like 192.0.2.0/24=200" \
		shares share 198.51.100.0/24=7 "$word"
done

# exports(5), which is the same whatever the kernel knows
for weight in '' 0 10001 -1 4294967396 18446744073709551716 1x x 1.5; do
	check "weight=$weight is refused, with the file and the line" refused "$EXPORT *($OPTIONS,weight=$weight)" \
		"^exportfs: /etc/exports:2: bad weight \"weight=$weight\": it is from 1 to 10000\$"
done
check "weights are taken" exports "$EXPORT *($OPTIONS,fsid=0,io=direct,weight=1)"
ctl=exportfs check "exportfs -v has them" says 0 ',io=direct:direct,weight=1\)$' "$nothing" -v
check "the last one counts" exports "$EXPORT -weight=1 *($OPTIONS,fsid=0,weight=10000)"
ctl=exportfs check "exportfs -s has it" says 0 "^$EXPORT +\*\([^=]*,fsid=0,.*,weight=10000\)\$" "$nothing" -s
exportfs -s >/tmp/shown
check "what it prints is what it reads" exports "$(</tmp/shown)"
check "and means the same" cmp /tmp/shown <(exportfs -s)

if [ "$KERNEL" = base ]; then
	none='this kernel does not know the clients of the server'
	check "shares says in a line that the kernel has none" says 2 "$nothing" "nfsdctl: $none" shares
	check "with --json it prints nothing else" says 2 "$nothing" "nfsdctl: $none" shares --json
	check "it is the same to set them" says 2 "$nothing" "nfsdctl: $none" shares share 192.0.2.0/24=400
	mount -t nfs -o vers=4.2 localhost:/ /mnt || exit 1
	check "the server serves as before" cmp "$EXPORT/file" /mnt/file
	check "what has a weight has none in the kernel" weighs '*' none
	umount /mnt
	"$ctl" threads 0
	conf threads=4 shares=share shares-by-address=y shares-weights=192.0.2.0/24=400
	check "autostart says in a line that it ignores shares" says 0 "$nothing" "$none: shares is ignored" autostart
	check "and starts the server" threads 4
	return 0
fi

for n in 6 7; do
	ip addr add "192.0.2.$n/32" dev lo
done

check "it is off, and no client is known" says 0 '^off$' "$nothing" shares
check "the same in JSON" json 'said == {"mode": "off", "by-address": False, "weights": [], "clients": []}'
check "clients are counted" says 0 "$nothing" "$nothing" shares count
check "nobody is there" says 0 '^count$' "$nothing" shares
mkdir /tmp/six /tmp/seven
mount -t nfs -o vers=4.1,nconnect=4,rsize=65536,wsize=65536 192.0.2.6:/ /tmp/six || exit 1
mount -t nfs -o vers=3,nolock,mountproto=tcp,rsize=65536,wsize=65536 "192.0.2.7:$EXPORT" /tmp/seven || exit 1
# Two who want the only thread, when the grace period is over
sleep 20
echo 3 >/proc/sys/vm/drop_caches
"$ctl" threads 1
dd if=/tmp/six/file of=/dev/null bs=64k iflag=direct status=none &
dd if=/dev/zero of=/tmp/seven/new bs=64k count=64 oflag=direct status=none
wait $!
"$ctl" threads 32
check "four connections of NFSv4.1 are one client" json '[client["connections"] for client in of("192.0.2.6")] == [4]'
check "it has the client ID that the kernel has" \
	grep -q "clientid: $(sed -n 's/.*"192.0.2.6", "clientid": "\(0x[0-9a-f]*\)".*/\1/p' /tmp/json)$" \
	/proc/fs/nfsd/clients/*/info
check "who has come by NFSv3 has none" json '[client["clientid"] for client in of("192.0.2.7")] == [None]'
check "bytes of replies are those of READs" json 'of("192.0.2.6")[0]["sent"] >= 16 << 20 > of("192.0.2.7")[0]["sent"]'
check "bytes of calls are those of WRITEs" \
	json 'of("192.0.2.7")[0]["received"] >= 4 << 20 > of("192.0.2.6")[0]["received"]'
check "there are dispatches and times of threads" \
	json 'all(client["dispatches"] >= 64 and client["thread-time"] > 0 for client in clients)'
check "and times of waiting" json 'all(client["waited"] > 0 for client in clients)'
check "who has had most of the threads comes first" json '[client["thread-time"] for client in clients] == 
	sorted((client["thread-time"] for client in clients), reverse=True) and len(clients) == 2'
head='client +clientid +weight +connections +dispatches +thread-time +waited +received +sent'
time='[0-9]+\.[0-9]{3}s'
check "the text has a line for each" says 0 "^count"$'\n'"$head" "$nothing" shares
check "who has a session has a client ID" \
	says 0 $'\n'"192\.0\.2\.6 +0x[0-9a-f]+ +100 +4 +[0-9]+ +$time +$time +[0-9]+ +[0-9]+" "$nothing" shares
check "who has none has a dash" \
	says 0 $'\n'"192\.0\.2\.7 +- +100 +[0-9]+ +[0-9]+ +$time +$time +[0-9]+ +[0-9]+" "$nothing" shares

check "clients share" says 0 "$nothing" "$nothing" shares share 192.0.2.6/32=400
# For the letter
"$ctl" shares >/results/shares
check "clients share, by weight" \
	says 0 "$nothing" "$nothing" shares share 192.0.2.0/24=400 192.0.2.7/32=9 0.0.0.0/0=1 2001:db8::/32=10000
check "the first line has it in the same words" \
	set_to share 192.0.2.7/32=9 192.0.2.0/24=400 0.0.0.0/0=1 2001:db8::/32=10000
check "JSON has it" json 'mode == "share" and weights == {"192.0.2.7/32": 9, "192.0.2.0/24": 400, "0.0.0.0/0": 1,
	"2001:db8::/32": 10000}'
check "each client has the weight of its longest prefix" \
	json 'of("192.0.2.6")[0]["weight"] == 400 and of("192.0.2.7")[0]["weight"] == 9'
"$TOOLS"/nfsd-metrics --output /tmp/nfsd.prom
six='client="192.0.2.6",clientid="0x[0-9a-f]*"'
check "nfsd-metrics has the weight" grep -qx "nfsd_client_weight{$six} 400" /tmp/nfsd.prom
check "nfsd-metrics has the bytes of replies, too" \
	grep -qx "nfsd_client_sent_bytes_total{$six} 1[67][0-9]\{6\}" /tmp/nfsd.prom
# shellcheck disable=SC2046
check "what is printed can be set" says 0 "$nothing" "$nothing" shares $("$ctl" shares | head -n 1)
check "that changes nothing" set_to share 192.0.2.7/32=9 192.0.2.0/24=400 0.0.0.0/0=1 2001:db8::/32=10000
check "a client is an address" says 0 "$nothing" "$nothing" shares share 192.0.2.6/32=10000 by-address
check "what is not named is not set any more" set_to share by-address 192.0.2.6/32=10000
dd if=/tmp/six/file of=/dev/null bs=64k iflag=direct status=none
check "then none has a client ID" json 'said["by-address"] and of("192.0.2.6")[0]["clientid"] is None'

# What is refused, is refused in the kernel's own words.
check "a weight of 0" says 1 "$nothing" 'Error: a weight is from 1 to 10000' shares share 192.0.2.0/24=0
for weight in 10001 4294967297 9999999999999999999 -5; do
	check "a weight of $weight" says 1 "$nothing" 'Error: a weight is from 1 to 10000' shares share 192.0.2.0/24=$weight
done
check "two weights for a prefix" \
	says 1 "$nothing" 'Error: there are two weights for .*192\.0\.2\.0' shares share 192.0.2.0/24=7 192.0.2.0/24=8
check "a prefix that is longer than an IPv4 address" \
	says 1 "$nothing" 'Error: the prefix is longer than the address' shares share 192.0.2.0/33=7
check "a prefix that is longer than an IPv6 address" \
	says 1 "$nothing" 'Error: the prefix is longer than the address' shares share 2001:db8::/129=7
check "bits behind the prefix" \
	says 1 "$nothing" 'Error: the address has bits behind the prefix' shares share 192.0.2.1/24=7
many=(10.{0..3}.{0..255}.0/24=7)
check "1025 weights" \
	says 1 "$nothing" 'Error: there are more than 1024 weights' shares share "${many[@]}" 192.0.2.0/24=7
as=(setpriv --reuid=65534 --regid=65534 --clear-groups)
check "who is not root may not set it" says 1 "$nothing" 'Error: Operation not permitted' shares off
check "nor see clients" says 1 "$nothing" 'Error: Operation not permitted' shares
as=()
check "nothing of that has changed anything" set_to share by-address 192.0.2.6/32=10000
as=(unshare -n)
check "a network namespace has its own" says 0 '^off$' "$nothing" shares
as=()
check "1024 weights can be set" says 0 "$nothing" "$nothing" shares share "${many[@]}"
check "and are seen" set_to share "${many[@]}"
umount /tmp/six /tmp/seven

# 500 clients, each with a connection, are in more than one message of a dump. Whoever has shown a filehandle may stay:
# each sends GETATTR, by NFSv3.
check "a dump of many messages is whole" python3 - "$ctl" "$EXPORT" <<-"END"
	import json, os, socket, struct, subprocess, sys

	ask = os.open("/proc/fs/nfsd/filehandle", os.O_RDWR)
	os.write(ask, f"* {sys.argv[2]} 64\n".encode())
	handle = bytes.fromhex(os.read(ask, 200).decode().strip().removeprefix("\\x"))
	call = struct.pack("!16I", 1, 0, 2, 100003, 3, 1, 1, 20, *[0] * 7, len(handle)) + handle + bytes(-len(handle) % 4)
	wanted = {f"127.1.{n // 250}.{n % 250 + 1}" for n in range(500)}
	socks = []
	for address in wanted:
	    socks.append(socket.create_connection(("127.0.0.1", 2049), source_address=(address, 0)))
	    socks[-1].sendall(struct.pack("!I", 1 << 31 | len(call)) + call)
	    assert socks[-1].recv(100)
	said = json.loads(subprocess.run([sys.argv[1], "shares", "--json"], stdout=subprocess.PIPE, check=True).stdout)
	found = [client["address"] for client in said["clients"] if client["address"].startswith("127.1.")]
	sys.exit(sorted(found) != sorted(wanted))
END
check "off again" says 0 "$nothing" "$nothing" shares off
check "then no client is known" says 0 '^off$' "$nothing" shares

# What the kernel is told of exports, by NFSv3, for with each MOUNT it is told again
exports "$EXPORT 192.0.2.6($OPTIONS,fsid=0,io=direct,weight=400) 192.0.2.7($OPTIONS,fsid=0)"
mounted() # ADDRESS
{
	umount /mnt 2>/dev/null
	mount -t nfs -o vers=3,nolock,mountproto=tcp "$1:$EXPORT" /mnt && cmp "$EXPORT/file" /mnt/file
}
check "an export that has a weight is served" mounted 192.0.2.6
check "so is one that has none" mounted 192.0.2.7
check "each client of a path has its own weight" weighs 192.0.2.6 400
check "and the other one none" weighs 192.0.2.7 none
check "the modes of I/O are there, too" grep -q "192.0.2.6(.*,io=direct:direct,weight=400)" /proc/fs/nfsd/exports
exports "$EXPORT 192.0.2.6($OPTIONS,fsid=0,weight=7) 192.0.2.7($OPTIONS,fsid=0)"
check "a weight that is changed counts after exportfs -ra" mounted 192.0.2.6
check "the next MOUNT has it" weighs 192.0.2.6 7
umount /mnt

# A file system that is mounted below, by NFSv4, which crosses to it
mkdir "$EXPORT/sub"
EXPORT=$EXPORT/sub disk sub 512
crosses() # OPTION…: the file system below is served, with these exports
{
	exports "$@" && mount -t nfs -o vers=4.2 localhost:/ /mnt && touch /mnt/sub/here && umount /mnt
}
check "what is mounted below is exported with crossmnt" \
	crosses "$EXPORT *($OPTIONS,fsid=0,crossmnt,weight=300)"
EXPORT=$EXPORT/sub check "it has the weight of the export" weighs '*' 300
check "which has the same" weighs '*' 300
check "or it is exported by itself" \
	crosses "$EXPORT *($OPTIONS,fsid=0,crossmnt,weight=300)" "$EXPORT/sub *($OPTIONS,weight=20)"
EXPORT=$EXPORT/sub check "then it has a weight of its own" weighs '*' 20
check "which does not change the export" weighs '*' 300
exports "$EXPORT *($OPTIONS,fsid=0)"

# nfs.conf
"$ctl" threads 0
conf threads=4 shares=share shares-by-address=y "shares-weights=192.0.2.0/24=400, 2001:db8::/32=50"
check "autostart takes shares" says 0 "$nothing" "$nothing" autostart
check "they are set" set_to share by-address 192.0.2.0/24=400 2001:db8::/32=50
check "and it starts the server" threads 4
"$ctl" threads 0
conf threads=4 shares-weights=192.0.2.0/24=7
check "autostart does not need shares" says 0 "$nothing" "$nothing" autostart
check "without shares= nothing is set" set_to share by-address 192.0.2.0/24=400 2001:db8::/32=50
"$ctl" threads 0
conf threads=4 shares=count
check "autostart takes a mode alone" says 0 "$nothing" "$nothing" autostart
check "then nothing else is set" set_to count
"$ctl" threads 0
conf threads=4 shares=fast
check "a mode in nfs.conf that there is not is an error" says 1 "$nothing" 'Invalid mode fast' autostart
conf threads=4 shares=share "shares-weights=192.0.2.0/24=7, 192.0.2.0/24=0"
check "a weight that the kernel refuses is an error" says 1 "$nothing" 'Error: a weight is from 1 to 10000' autostart
conf threads=4 shares=share shares-weights=192.0.2.0
check "what is no weight is an error" says 1 "$nothing" 'Invalid weight 192.0.2.0:' autostart
check "and no server starts" threads 0
check "and nothing is set" set_to count
