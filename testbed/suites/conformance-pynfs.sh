# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
# pynfs, 4.0 and 4.1, in the default mode and with direct I/O. Its status says nothing: what it writes is judged. WRT15
# takes longer than all others together, for 8192 WRITEs of a Python client, and is left out.
export PYTHONDONTWRITEBYTECODE=1
for mode in 0 2; do
	mode $mode
	for version in 4.0 4.1; do
		mkdir "/srv/test/$version-$mode"
		cd "$SUITE/nfs$version" || exit 1
		what=(--verbose --maketree --jsonout="/results/$version-mode$mode.json")
		case $version in
		4.0) what+=(all noWRT15) ;;
		4.1) what+=(--minorversion=1 all) ;;
		esac
		python3 -u testserver.py "localhost:/test/$version-$mode" "${what[@]}" >"/results/$version-mode$mode.log" 2>&1
	done
done
exit 0
