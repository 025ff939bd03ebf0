# SPDX-License-Identifier: GPL-2.0
import os
import sys


def run() -> None:
    # What these name says where builds are, and of what: it has to be known before any module of ours is read.
    for word in sys.argv[2:]:
        variable, equals, value = word.partition("=")
        if equals and variable in ("LTS", "BASE", "KSRC"):
            os.environ[variable] = value
    from .cli import main

    main()


run()
