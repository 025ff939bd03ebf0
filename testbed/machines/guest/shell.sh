#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# A prompt on the guest's terminal, for whoever runs `make shell`. That the last command failed is nothing to report.
exec 3<>"/dev/$TERMINAL"
stty sane rows "$LINES" columns "$COLUMNS" <&3
PS1='guest:\W\$ ' setsid --ctty --wait bash --norc -i <&3 >&3 2>&3
dmesg >/results/dmesg
exit 0
