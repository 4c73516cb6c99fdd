# SPDX-License-Identifier: BSD-3-Clause
#
# Programs that run in the VMs: users of the kernel modules without a library, and two ranks of
# libangara in two VMs.

VM_KMOD  := kmod_test kmod_op
VM_GUEST := $(VM_KMOD) nic_pair

TEST_PROGRAMS += $(VM_GUEST:%=$(B)/tests/vm/%)

$(B)/obj/tests/vm/%.o: CFLAGS_EXTRA += -D_GNU_SOURCE -Itests/conformance -Ikmod/include \
	-Ikmod/include/uapi

$(VM_KMOD:%=$(B)/tests/vm/%): $(B)/tests/vm/%: $(B)/obj/tests/vm/guest/%.o \
		$(B)/obj/tests/vm/guest/kmod_user.o
	$(SAY) LD $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS_COMMON) $(LDFLAGS_COMMON) $(CFLAGS) $(LDFLAGS) -o $@ $^

$(B)/tests/vm/kmod_test: $(B)/obj/tests/vm/guest/kmod_test_life.o

$(B)/tests/vm/nic_pair: $(B)/obj/tests/vm/guest/nic_pair.o $(B)/obj/tests/conformance/conf.o \
		$(LIBANGARA)
	$(SAY) LD $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS_COMMON) $(LDFLAGS_COMMON) $(CFLAGS) $(LDFLAGS) -o $@ \
		$(filter %.o,$^) -L$(B)/lib -langara -lcmocka
