# SPDX-License-Identifier: BSD-3-Clause
#
# Programs that run in the VMs: users of the kernel modules without a library, two ranks of libangara
# in two VMs, and a program of UCP.

VM_KMOD  := kmod_test kmod_op kmod_errno kmod_fuzz kmod_regperf kmod_users
VM_GUEST := $(VM_KMOD) nic_pair ucp_gone

TEST_PROGRAMS += $(VM_GUEST:%=$(B)/tests/vm/%)

$(B)/obj/tests/vm/%.o: CFLAGS_EXTRA += -D_GNU_SOURCE -Itests/conformance -Ikmod/include \
	-Ikmod/include/uapi

$(VM_KMOD:%=$(B)/tests/vm/%): $(B)/tests/vm/%: $(B)/obj/tests/vm/guest/%.o \
		$(B)/obj/tests/vm/guest/kmod_user.o
	$(SAY) LD $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS_COMMON) $(LDFLAGS_COMMON) $(CFLAGS) $(LDFLAGS) -o $@ $^

$(B)/tests/vm/kmod_test: $(patsubst %,$(B)/obj/tests/vm/guest/kmod_test_%.o,access alloc error job life \
	limits memory race region secret stale suspend)

$(B)/tests/vm/kmod_fuzz: $(patsubst %,$(B)/obj/tests/vm/guest/kmod_fuzz_%.o,calls rings)

$(B)/tests/vm/kmod_users: $(B)/obj/tests/vm/guest/kmod_agent.o

$(B)/tests/vm/kmod_regperf: $(B)/obj/tests/vm/guest/regperf.o

$(B)/tests/vm/nic_pair: $(B)/obj/tests/vm/guest/nic_pair.o $(CONF_HARNESS) \
		$(LIBANGARA)
	$(SAY) LD $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS_COMMON) $(LDFLAGS_COMMON) $(CFLAGS) $(LDFLAGS) -o $@ \
		$(filter %.o,$^) -L$(B)/lib -langara -lcmocka $(CONF_LDFLAGS)

$(B)/obj/tests/vm/guest/ucp_gone.o: CFLAGS_EXTRA += $(UCX_INCLUDE)
$(B)/tests/vm/ucp_gone: $(B)/obj/tests/vm/guest/ucp_gone.o
	$(SAY) LD $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS_COMMON) $(LDFLAGS_COMMON) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(UCX_LDFLAGS) -lucp -lucs

# A 32-bit caller, without a C library: a 64-bit compiler is enough.
ifeq ($(shell uname -m),x86_64)
TEST_PROGRAMS += $(B)/tests/vm/kmod_user32
endif

KMOD_USER32_FLAGS := -std=gnu11 -m32 -O2 -g -Wall -Wextra -Wno-missing-field-initializers -Werror \
	-ffreestanding -fno-pic -fno-stack-protector -nostdlib -static -Ikmod/include/uapi \
	-isystem /usr/include/$(shell $(CC) -print-multiarch 2>/dev/null)

$(B)/tests/vm/kmod_user32: tests/vm/guest/kmod_user32.c $(wildcard kmod/include/uapi/misc/*.h) $(B)/.flags
	$(SAY) LD $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(KMOD_USER32_FLAGS) -o $@ $<

# For scripts/bench_vm: users of libangara, and of libibverbs where it is there.
VM_BENCH := nic_opcost $(if $(wildcard /usr/include/infiniband/verbs.h),rxe_opcost rxe_regperf)

TEST_PROGRAMS += $(VM_BENCH:%=$(B)/tests/vm/%)

$(VM_BENCH:%=$(B)/tests/vm/%): $(B)/tests/vm/%: $(B)/obj/tests/vm/guest/%.o $(LIBANGARA)
	$(SAY) LD $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS_COMMON) $(LDFLAGS_COMMON) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) \
		$(if $(findstring rxe,$*),-libverbs,-L$(B)/lib -langara)

$(B)/tests/vm/nic_opcost $(B)/tests/vm/rxe_opcost: $(B)/obj/tests/vm/guest/opcost.o
$(B)/tests/vm/rxe_regperf: $(B)/obj/tests/vm/guest/regperf.o
