# SPDX-License-Identifier: BSD-3-Clause
#
# Conformance suite of the NIC model: one cmocka program per chapter, all with the same harness.

CONFORMANCE_TESTS := $(patsubst tests/conformance/%.c,%,$(wildcard tests/conformance/test_*.c))
CONF_HARNESS      := $(patsubst %,$(B)/obj/tests/%.o,conformance/conf conformance/conf_gpu common/ranks \
                       gpu/device gpu/device_cuda \
                       $(if $(wildcard /usr/include/hsa/hsa_ext_amd.h),gpu/device_rocm))
# Calls with an address of a region are wrapped: conf_gpu.h says why.
CONF_WRAPPED      := mr_register mr_range offload_put offload_get offload_batch atomic
CONF_LDFLAGS      := $(CONF_WRAPPED:%=-Wl,--wrap=angara_%) -lpthread -ldl
CONFORMANCE_BINS  := $(CONFORMANCE_TESTS:%=$(B)/tests/conformance/%)

TEST_PROGRAMS += $(CONFORMANCE_BINS)

$(B)/tests/conformance/%: $(B)/obj/tests/conformance/%.o $(CONF_HARNESS) \
                          $(B)/lib/libangara.so.0
	$(SAY) LD $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS_COMMON) $(LDFLAGS_COMMON) $(LDFLAGS) -o $@ $(filter %.o,$^) -L$(B)/lib \
		-langara -lcmocka $(CONF_LDFLAGS) -Wl,-rpath,'$$ORIGIN/../../lib'

# What several programs share, or one long one.
$(B)/tests/conformance/test_batch: $(B)/obj/tests/conformance/batch.o \
                                   $(B)/obj/tests/conformance/batch_fault.o

$(B)/tests/conformance/test_joint $(B)/tests/conformance/test_joint_halt: $(B)/obj/tests/conformance/joint.o
$(B)/tests/conformance/test_joint_halt: $(B)/obj/tests/common/gate.o

# What test_mutants.sh runs.
.PHONY: mutant-tests
mutant-tests: $(B)/tests/conformance/test_ways

.SECONDARY: $(CONFORMANCE_TESTS:%=$(B)/obj/tests/conformance/%.o) $(CONF_HARNESS)
