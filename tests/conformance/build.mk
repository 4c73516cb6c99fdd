# SPDX-License-Identifier: BSD-3-Clause
#
# Conformance suite of the NIC model: one cmocka program per chapter, all with the same harness.

CONFORMANCE_TESTS := $(patsubst tests/conformance/%.c,%,$(wildcard tests/conformance/test_*.c))
CONF_HARNESS      := $(B)/obj/tests/conformance/conf.o $(B)/obj/tests/common/ranks.o
CONFORMANCE_BINS  := $(CONFORMANCE_TESTS:%=$(B)/tests/conformance/%)

TEST_PROGRAMS += $(CONFORMANCE_BINS)

$(B)/tests/conformance/%: $(B)/obj/tests/conformance/%.o $(CONF_HARNESS) \
                          $(B)/lib/libangara.so.0
	$(SAY) LD $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS_COMMON) $(LDFLAGS_COMMON) $(LDFLAGS) -o $@ $(filter %.o,$^) -L$(B)/lib \
		-langara -lcmocka -Wl,-rpath,'$$ORIGIN/../../lib'

# Its chapter is long.
$(B)/tests/conformance/test_batch: $(B)/obj/tests/conformance/batch.o \
                                   $(B)/obj/tests/conformance/batch_fault.o

.SECONDARY: $(CONFORMANCE_TESTS:%=$(B)/obj/tests/conformance/%.o) $(CONF_HARNESS)
