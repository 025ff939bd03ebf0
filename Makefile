# SPDX-License-Identifier: GPL-2.0
# The front door: each target is a command of testbed/cli.py, which knows the variables of each.

# Debian's own Python: the testbed's libraries are Debian packages.
PYTHON ?= /usr/bin/python3
COMMANDS := help setup tree export series post dkms deb check-exported check kernels demo bench record swarm coverage results figures \
	test test-all kunit shell gdb litmus mutants conformance clean

# Every variable of the command line, as 'NAME=value'. One that the command does not know is refused.
quoted = '$(subst ','\'',$(1)=$($(1)))'
GIVEN = $(foreach name,$(filter-out PYTHON,$(.VARIABLES)),$(if $(findstring command,$(origin $(name))),$(call quoted,$(name))))

$(COMMANDS):
	@PYTHONPATH="$(CURDIR)" PYTHONDONTWRITEBYTECODE=1 $(PYTHON) -m testbed $@ $(GIVEN)

.DEFAULT:
	@PYTHONPATH="$(CURDIR)" PYTHONDONTWRITEBYTECODE=1 $(PYTHON) -m testbed $@

.PHONY: $(COMMANDS)
.NOTPARALLEL:
