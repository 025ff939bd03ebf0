# SPDX-License-Identifier: GPL-2.0
# The front door. What each command does is in testbed/; `make help` lists them.

# Debian's own Python: the testbed's libraries are Debian packages.
PYTHON ?= /usr/bin/python3
TESTBED = PYTHONPATH=$(CURDIR) PYTHONDONTWRITEBYTECODE=1 $(PYTHON) -m testbed

help:
	@echo 'make demo             the floor: base beside patched, as a table and a picture'
	@echo 'make test             everything that is tested; ends with "N passed, N failed"'
	@echo 'make test KIND=x86    the selftests on two emulated x86-64 CPUs, with disks that User-mode Linux has not'
	@echo 'make mutants [T=TOPIC] one fault after the other (tests/mutants): does a test notice?'
	@echo 'make litmus           the litmus tests, by herd7 on the kernel'\''s memory model'
	@echo 'make bench [B=NAME]   every experiment of bench/, or one'
	@echo 'make lwq [TURNS=N]    what the topic lwq changes, in counts and, in N boots each (5), in time on two CPUs'
	@echo 'make record [B=NAME]  the same, kept as bench/results and in the README'
	@echo 'make cost             instructions and cycles of queueing a transport, base beside patched'
	@echo 'make kernels          build/base/linux and build/patched/linux (KIND=smp, debug, x86: other machines)'
	@echo 'make tree             tree/: base + one commit a patch, to work in (FORCE=1: anew; nothing is lost)'
	@echo 'make export           patches/ from tree/'
	@echo 'make series           the paths of the patches: git am $$(make -s -C ../knfsd-queue series)'
	@echo 'make check            the series as its maintainers would look at it'
	@echo 'make check-exported   whether tree/ holds what patches/ does not; fast'
	@echo 'make setup            install the Debian packages that are missing'
	@echo 'make clean            remove build/'
	@echo
	@echo 'KSRC=/path uses your own kernel tree as the base instead of Debian'\''s linux-source.'

setup:
	@$(TESTBED) setup

demo test check kernels bench record litmus mutants lwq cost: setup

demo check check-exported series export litmus cost clean:
	@$(TESTBED) $@

mutants:
	@$(TESTBED) $@ $(T)

lwq:
	@$(TESTBED) $@ $(if $(TURNS),--turns $(TURNS))

kernels test:
	@$(TESTBED) $@ $(if $(KIND),--kind $(KIND))

bench record:
	@$(TESTBED) $@ $(B)

tree: setup
	@$(TESTBED) tree $(if $(FORCE),--force)

.PHONY: help setup demo test litmus mutants bench lwq record cost kernels tree export series check check-exported clean
