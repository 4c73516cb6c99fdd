# SPDX-License-Identifier: BSD-3-Clause
#
# The whole build: one non-recursive make. Each folder's build.mk adds what it makes to ALL_TARGETS
# or TEST_PROGRAMS and its rules; this file has what they share. `make help` lists the targets.

MAKEFLAGS += --no-print-directory --no-builtin-rules
.DELETE_ON_ERROR:
.SECONDARY:
.SUFFIXES:
SHELL := /bin/bash

# --- what a user may set -------------------------------------------------------------------------
# CC MPICC OSHCC CFLAGS CPPFLAGS LDFLAGS   as usual; flags are added after the project's own
# FLAVOR    asan     address and undefined-behaviour sanitizers
#           mutants  with the deliberate errors that the tests must catch
# WERROR=   lets warnings be: for packages, whose compilers and flags are not ours
# V=1       shows the commands
# PREFIX DESTDIR BINDIR SBINDIR LIBDIR INCLUDEDIR MANDIR OMPI_COMPONENT   for install: see scripts/install

ifeq ($(origin CC),default)
CC := gcc
endif
MPICC      ?= mpicc
OSHCC      ?= oshcc
PKG_CONFIG ?= pkg-config
PREFIX     ?= /usr/local
FLAVOR     ?=
WERROR     ?= -Werror

VERSION := $(shell sed -nE 's/^.define +ANGARA_VERSION_(MAJOR|MINOR|PATCH) +([0-9]+).*/\2/p' \
                   userlib/include/angara/angara.h 2>/dev/null | paste -sd.)
ifeq ($(VERSION),)
VERSION := 0.1.0
endif

# --- flavours and flags --------------------------------------------------------------------------
# Those for tests alone are built with -O1 -g1: half the time.

ifeq ($(FLAVOR),)
B            := build
FLAVOR_FLAGS :=
else ifeq ($(FLAVOR),asan)
B            := build/asan
FLAVOR_FLAGS := -fsanitize=address,undefined -fno-sanitize-recover=undefined \
                -fno-omit-frame-pointer -Wno-maybe-uninitialized -O1 -g1 -DANGARA_CHECKS=1
else ifeq ($(FLAVOR),mutants)
B            := build/mutants
FLAVOR_FLAGS := -DANGARA_MUTANTS=1 -O1 -g1
else
$(error FLAVOR=$(FLAVOR) is unknown: use asan, mutants or nothing)
endif

# CFLAGS_COMMON is enough to compile and to link anything; CFLAGS_EXTRA is for a fragment's own
# target-specific flags.
# Tuned for "generic", gcc clears and copies structures by string instructions, which take 10 ns to
# start: as much as the rest of a put.
TUNE          := $(if $(filter x86_64%,$(shell $(CC) -dumpmachine 2>/dev/null)),-mtune=skylake)
CFLAGS_COMMON := -std=gnu11 -O2 -g -Wall -Wextra -Wno-missing-field-initializers $(WERROR) \
                 -fPIC -fvisibility=hidden -Iuserlib/include $(TUNE) $(FLAVOR_FLAGS)
# A sanitizer's symbols are only there at run time, so -z defs is for the other flavours.
LDFLAGS_COMMON := $(filter -fsanitize=%,$(FLAVOR_FLAGS))
ifeq ($(LDFLAGS_COMMON),)
LDFLAGS_COMMON := -Wl,-z,defs
endif
UCX_CFLAGS    := -Ibuild/ucx/include -DHAVE_CONFIG_H
# For what has no need of its internal headers: the same ones, whichever others the compiler would find.
UCX_INCLUDE   := -isystem build/ucx/include
# Where its libraries are, unless the linker looks there anyway; behind our own folder, as it may have an older libangara.
UCX_LDFLAGS   := $(shell $(PKG_CONFIG) --libs-only-L ucx 2>/dev/null)

ifeq ($(V),1)
Q    :=
SAY  := @:
else
Q    := @
SAY  := @printf '  %-4s %s\n'
endif

ALL_TARGETS   :=
TEST_PROGRAMS :=

.PHONY: all
all: ## build the library, the transport, the Open MPI component, tools and benchmarks
all: build-all

# --- the parts -----------------------------------------------------------------------------------

-include userlib/build.mk
-include uct_transport/build.mk
-include uct_transport/ompi/build.mk
-include tests/unit/build.mk
-include tests/conformance/build.mk
-include tests/uct/build.mk
-include tests/emu/build.mk
-include tests/vm/build.mk
-include tests/mpi/build.mk
-include tests/faults/build.mk
-include tests/gpu/build.mk
-include tests/bench/build.mk

.PHONY: build-all tests
build-all: $(ALL_TARGETS)

tests: ## build the test programs too
tests: $(ALL_TARGETS) $(TEST_PROGRAMS)

# The library's rule makes this link too.
$(B)/lib/libangara.so: $(B)/lib/libangara.so.0

# The headers of the installed UCX. No package is installed by a plain `make`. A tree that UCX_SOURCE names is
# looked at each time: it may be a wrong one, or another than before.
build/ucx/VERSION: $(if $(UCX_SOURCE),FORCE)
	@scripts/setup --headers

# Changes when the compiler, the flags, UCX's headers or Open MPI do, so that no object of others is kept: lists of
# what an object was made of leave system headers out.
FLAGS_NOW := $(CC) $(CFLAGS_COMMON) $(UCX_CFLAGS) $(UCX_LDFLAGS) $(CPPFLAGS) $(CFLAGS) $(OMPI_VERSION) $(OMPI_INCDIRS)
$(B)/.flags: FORCE | build/ucx/VERSION
	@mkdir -p $(@D); now=$$(printf '%s\n' '$(subst ','\'',$(FLAGS_NOW))'; cat build/ucx/KEY 2>/dev/null); \
		[ "$$now" = "$$(cat $@ 2>/dev/null)" ] || printf '%s\n' "$$now" >$@
.PHONY: FORCE
FORCE:

$(B)/obj/%.o: %.c $(B)/.flags | build/ucx/VERSION
	$(SAY) CC $<
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS_COMMON) $(CFLAGS_EXTRA) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

-include $(shell find $(B)/obj -name '*.d' 2>/dev/null)

# --- set-up, tests, demo -------------------------------------------------------------------------

# Under a plain `make check`, the builds below use all processors. (Where a recipe's line doesn't name MAKE
# itself, only a + tells make that it starts another one, which shares the processors with it.)
JOBS = $(if $(findstring jobserver,$(MAKEFLAGS)),,-j$(shell nproc))
SUB  = $(MAKE) $(JOBS)

.PHONY: setup flavors flavor-plain flavor-asan flavor-mutants check check-fast check-long check-vm \
        check-vm-long check-debug-kernel check-gpu gpu-bundle bench-gpu check-ucx-api check-debian13 \
        check-in-tree check-deb modules demo bench bench-vm
setup: ## install what is missing (apt) and get the headers of the installed UCX
	@scripts/setup

flavor-asan: ## build everything with the address and undefined-behaviour sanitizers
	+@$(SUB) FLAVOR=asan tests

flavor-mutants: ## build with the deliberate errors that the tests must catch what those tests need
	+@$(SUB) FLAVOR=mutants mutant-tests

# One make for all, so that no processor waits for the last link of a flavour.
flavors: flavor-plain flavor-asan flavor-mutants

flavor-plain:
	+@$(SUB) FLAVOR= tests

check: ## set up, build, and run every test layer; the last line counts
	@scripts/setup --vm || { echo 'setup: going on without virtual machines: their tests are skipped'; scripts/setup; }
	+@$(SUB) flavors
	@scripts/run_tests

check-fast: ## as check, but without MPI and virtual machines: some minutes
	@scripts/setup
	+@$(SUB) flavors
	@scripts/run_tests -l style -l unit -l conformance -l uct -l kmod

check-long: ## the same layers as check in more modes, one setting at a time, and with memcheck: an hour
	@scripts/setup
	+@$(SUB) flavors
	@scripts/run_tests --long

MAKE_KMOD = $(MAKE) -C kmod B='$(abspath $(B))/kmod' DESTDIR='$(DESTDIR)' $(if $(KDIR),KDIR='$(KDIR)')
modules: ## build the kernel modules (KDIR=kernel build folder; by default the running kernel's, or the newest that is installed)
	@$(MAKE_KMOD) all

check-vm: ## set up, build, and run the kernel modules' tests in virtual machines
	@scripts/setup --vm
	+@$(SUB) FLAVOR= tests
	@tests/vm/run_vm_tests

check-vm-long: check-vm ## as check-vm, then the tests in virtual machines that take minutes each
	@tests/vm/run_vm_tests --list-file tests/vm/list.long

check-debug-kernel: ## run check-vm's tests in a kernel that finds errors; builds it first: half an hour, 4 GB
	@scripts/setup --debug-kernel
	+@$(SUB) FLAVOR= tests
	@kernel=$$(tests/vm/vm_debug_kernel) && tests/vm/run_vm_tests --kernel "$$kernel" --slow 8 --memory 2048

gpu-bundle: ## a folder, build/gpu-bundle, that tests and measures GPU memory on another machine
	@scripts/setup
	+@$(SUB) FLAVOR= tests
	@rm -rf build/gpu-bundle && scripts/gpu_bundle build/gpu-bundle

check-gpu: gpu-bundle ## the tests with GPU memory, on this machine's GPUs; skipped without
	@build/gpu-bundle/run --tests build/gpu-logs

bench-gpu: gpu-bundle ## compare messages between GPU buffers with bare copies, on this machine's GPUs
	@build/gpu-bundle/run --bench build/gpu-logs

check-ucx-api: ## compile the transport against other versions of UCX (UCX_TREES=folder of unpacked sources), and without each shim
	@scripts/check_ucx_api
	@scripts/check_ucx_api --shims

check-debian13: ## run demo and check on Debian 13, in a root of its own below build/ (needs root, mmdebstrap)
	@scripts/check_debian13

check-deb: deb ## try Debian packages in a root of its own below build/: install, use, upgrade, purge (root, mmdebstrap)
	@scripts/check_deb

# Not `all` as a prerequisite: that takes UCX_SOURCE for a tree of the installed UCX, which this one needn't be.
check-in-tree: ## build the transport inside a UCX tree (UCX_SOURCE=unpacked source of any version); slow
	+@$(MAKE) UCX_SOURCE= all
	@scripts/check_in_tree '$(UCX_SOURCE)'

demo: ## set up, build, run the validated demo; tables, CSV and plots go to build/demo
	@scripts/setup --build
	+@$(SUB) FLAVOR= all
	@scripts/demo

bench: ## set up, build, compare with UCX's and Open MPI's own transports (an hour at most)
	@scripts/setup --build
	+@$(SUB) FLAVOR= all
	@scripts/bench

bench-vm: ## set up, build, compare with soft-RoCE in virtual machines
	@scripts/setup --bench-vm
	+@$(SUB) FLAVOR= tests
	@scripts/bench_vm

# --- install, distribute, clean ------------------------------------------------------------------

.PHONY: install install-modules install-dkms uninstall dist deb style format clean help
INSTALL_LIBDIR    := $(or $(LIBDIR),$(PREFIX)/lib)
INSTALL_COMPONENT := $(B)/install/mca_hook_angara.so
INSTALL_PLUGIN    := $(B)/install/hook_angara_plugin.o

# Open MPI only takes components from its own folders, so the component is copied there, away from
# the transport, which it finds by this path. A link would do no better, and Open MPI stops looking
# for any component when it meets one that points nowhere.
$(INSTALL_PLUGIN): FORCE
	@{ mkdir -p $(@D) && [ -w $(@D) ]; } 2>/dev/null || { echo "install: error: $(@D) can't be written by $$(id -un):" \
		"install as the user who built this tree, or build one of your own" >&2; exit 1; }
	$(Q)$(CC) $(CFLAGS_COMMON) $(OMPI_CFLAGS) $(CPPFLAGS) $(CFLAGS) -DHOOK_ANGARA_LIBDIR='"$(INSTALL_LIBDIR)"' \
		-c -o $@ uct_transport/ompi/hook_angara_plugin.c

$(INSTALL_COMPONENT): $(filter-out %/hook_angara_plugin.o,$(OMPI_HOOK_OBJ)) $(INSTALL_PLUGIN)
	$(Q)$(CC) $(CFLAGS_COMMON) $(LDFLAGS_COMMON) $(CFLAGS) $(LDFLAGS) -shared \
		-Wl,-soname,$(@F) -o $@ $^ $(addprefix -L,$(OMPI_LIBDIRS)) -lmpi -lopen-pal -ldl

install: ## install to PREFIX (default /usr/local), staged below DESTDIR
install: all $(INSTALL_COMPONENT)
	@PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' BINDIR='$(BINDIR)' SBINDIR='$(SBINDIR)' \
		LIBDIR='$(LIBDIR)' INCLUDEDIR='$(INCLUDEDIR)' MANDIR='$(MANDIR)' OMPI_COMPONENT='$(OMPI_COMPONENT)' \
		scripts/install --version '$(VERSION)' --build '$(B)'

install-modules: ## install the kernel modules (KDIR=...), udev rule and settings, below DESTDIR
	@$(MAKE_KMOD) install

install-dkms: ## install the kernel modules' source for DKMS, udev rule and settings, below DESTDIR
	@$(MAKE_KMOD) install-dkms

uninstall: ## remove what install put there
	@PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' scripts/install --uninstall

dist: ## make build/angara-VERSION.tar.gz
	@scripts/dist

deb: ## build Debian packages of this tree for the installed UCX and Open MPI, in build/deb
	@scripts/deb

style: ## check formatting, scripts, headers and exported symbols
style: all
	@scripts/run_tests -l style

format: ## format all C code with clang-format
	@scripts/style --format

clean: ## remove what was built, but not build/ucx
	rm -rf $(filter-out build/ucx,$(wildcard build/*))

help: ## list the targets
	@echo 'Targets:'
	@sed -nE 's/^([a-z-]+):.* ## (.*)/  \1\t\2/p; s/^([a-z-]+): ## (.*)/  \1\t\2/p' Makefile | \
		sort -u | awk -F'\t' '{ printf "%-18s %s\n", $$1, $$2 }'
	@echo
	@echo 'Variables: FLAVOR=asan|mutants  V=1  CC CFLAGS  PREFIX DESTDIR'
