# SPDX-License-Identifier: BSD-3-Clause
#
# Tests of the transport at UCT level: one cmocka program per subject, all with the same harness.
# The transport is not linked but loaded at run time, as users load it.

UCT_TESTS     := $(patsubst tests/uct/%.c,%,$(sort $(wildcard tests/uct/test_*.c)))
UCT_TEST_BINS := $(UCT_TESTS:%=$(B)/tests/uct/%)
UCT_TEST_HARNESS := ut_ranks ut_uct ut_inside ut_hostile ut_batch ut_life
UCT_TEST_OBJS := $(UCT_TESTS:%=$(B)/obj/tests/uct/%.o) $(UCT_TEST_HARNESS:%=$(B)/obj/tests/uct/%.o)

TEST_PROGRAMS += $(UCT_TEST_BINS)

# The wire format and the counters are in the transport's own headers; UCX's are system headers.
$(UCT_TEST_OBJS): CFLAGS_EXTRA += -Iuct_transport $(subst -I,-isystem ,$(UCX_CFLAGS))
$(UCT_TEST_OBJS): | build/ucx/VERSION
$(B)/obj/tests/uct/test_owed.o: CFLAGS_EXTRA += -Iuserlib -Iuserlib/provider/soft

$(B)/tests/uct/%: $(B)/obj/tests/uct/%.o $(UCT_TEST_HARNESS:%=$(B)/obj/tests/uct/%.o) \
                  $(B)/obj/tests/common/ranks.o $(B)/lib/libangara.so $(B)/lib/libuct_angara.so
	$(SAY) LD $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS_COMMON) $(LDFLAGS_COMMON) $(LDFLAGS) -o $@ $(filter %.o,$^) -L$(B)/lib \
		-langara $(UCX_LDFLAGS) $(UCT_TEST_LIBS) -luct -lucs -lcmocka -ldl -Wl,-rpath,'$$ORIGIN/../../lib'

$(B)/tests/uct/test_ucp: UCT_TEST_LIBS := -lucp
$(B)/tests/uct/test_flush: $(B)/obj/tests/common/gate.o

# What a UCX with statistics would export, for test_version.
$(B)/tests/uct/ucs_with_stats.so:
	$(SAY) LD $@
	@mkdir -p $(@D)
	$(Q)echo 'void ucs_stats_node_alloc(void) {}' | $(CC) -shared -fPIC -x c -o $@ -

$(B)/tests/uct/test_version: | $(B)/tests/uct/ucs_with_stats.so

# What test_mutants.sh runs.
.PHONY: mutant-tests
mutant-tests: $(B)/tests/uct/test_complete

.SECONDARY: $(UCT_TEST_OBJS)
