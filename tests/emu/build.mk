# SPDX-License-Identifier: BSD-3-Clause
#
# The emulated NIC and its tests. It takes the descriptor engine's objects from libangara, without
# the thread of its chaos mode (nothread.c).

EMU_SRCS := $(filter-out tests/emu/test_% tests/emu/guest%,$(wildcard tests/emu/*.c))
EMU_OBJS := $(EMU_SRCS:%.c=$(B)/obj/%.o) \
            $(patsubst %.c,$(B)/obj/%.o,$(wildcard userlib/engine/*.c) \
                                        userlib/src/log.c userlib/src/line.c)
EMU_TESTS := $(patsubst tests/emu/%.c,%,$(wildcard tests/emu/test_*.c))
EMU_GUEST := $(patsubst %.c,$(B)/obj/%.o,$(wildcard tests/emu/guest*.c))

TEST_PROGRAMS += $(B)/tests/emu/angara_emu $(EMU_TESTS:%=$(B)/tests/emu/%)

$(B)/obj/tests/emu/%.o: CFLAGS_EXTRA += -Iuserlib -Ikmod/include -Ikmod/include/uapi

$(B)/tests/emu/angara_emu: $(EMU_OBJS)
	$(SAY) LD $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS_COMMON) $(LDFLAGS_COMMON) $(CFLAGS) $(LDFLAGS) -o $@ $^ \
		-Wl,--wrap=pthread_create -Wl,--wrap=pthread_join -lpthread

$(EMU_TESTS:%=$(B)/tests/emu/%): $(B)/tests/emu/%: $(B)/obj/tests/emu/%.o $(EMU_GUEST)
	$(SAY) LD $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS_COMMON) $(LDFLAGS_COMMON) $(CFLAGS) $(LDFLAGS) -o $@ $^ -lcmocka

.SECONDARY: $(EMU_OBJS) $(EMU_GUEST) $(EMU_TESTS:%=$(B)/obj/tests/emu/%.o)
