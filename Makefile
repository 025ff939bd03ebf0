# SPDX-License-Identifier: GPL-2.0
# The front door: each target is a command of testbed/cli.py, and its variables are that command's options.

# Debian's own Python: the testbed's libraries are Debian packages.
PYTHON ?= /usr/bin/python3
TESTBED = PYTHONPATH=$(CURDIR) PYTHONDONTWRITEBYTECODE=1 $(PYTHON) -m testbed

help:
	@$(TESTBED) --help

setup:
	@$(TESTBED) setup

# What needs no package but Python and git does not wait for them.
check-exported series export clean:
	@$(TESTBED) $@

demo check dkms litmus results: setup
	@$(TESTBED) $@

figures: setup
	@$(TESTBED) figures $(if $(WRITE),--write)

post: setup
	@$(TESTBED) post "$(TOPIC)" "$(V)" $(if $(TO),--to "$(TO)") $(if $(PREVIOUS),--previous "$(PREVIOUS)")

tree: setup
	@$(TESTBED) tree $(if $(FORCE),--force)

deb: setup
	@$(TESTBED) $@ $(if $(LSMOD),--lsmod "$(LSMOD)")

kernels: setup
	@$(TESTBED) $@ $(if $(KIND),--kind $(KIND))

test-all: setup
	@$(TESTBED) $@ $(if $(PYNFS),--pynfs "$(PYNFS)") $(if $(CTHON),--cthon "$(CTHON)") $(if $(LTP),--ltp "$(LTP)") \
		$(if $(FSTESTS),--fstests "$(FSTESTS)") $(if $(STRESS),--stress "$(STRESS)")

test: setup
	@$(TESTBED) $@ $(if $(KIND),--kind $(KIND)) $(if $(T),--only $(T)) $(if $(NOISE),--noise $(NOISE)) \
		$(if $(MODE),--mode $(MODE))

kunit: setup
	@$(TESTBED) $@ '$(or $(S),*)' $(if $(CPUS),--cpus $(CPUS))

shell gdb: setup
	@$(TESTBED) $@ $(if $(KIND),--kind $(KIND)) $(if $(KERNEL),--kernel $(KERNEL)) $(if $(T),--topic $(T))

bench record: setup
	@$(TESTBED) $@ $(B)

mutants: setup
	@$(TESTBED) $@ $(T) $(if $(NEW),--new)

conformance: setup
	@$(TESTBED) $@ $(if $(PYNFS),--pynfs "$(PYNFS)") $(if $(CTHON),--cthon "$(CTHON)") $(if $(LTP),--ltp "$(LTP)") \
		$(if $(FSTESTS),--fstests "$(FSTESTS)") $(if $(STRESS),--stress "$(STRESS)") $(if $(RECORD),--record)

.PHONY: help setup demo test test-all kunit shell gdb litmus mutants conformance bench record results figures kernels tree export series post dkms deb check check-exported clean
