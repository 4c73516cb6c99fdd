# SPDX-License-Identifier: BSD-3-Clause
#
# angara_info, angara_perf, angara_top and angara_jobkey. Included by userlib/build.mk.

TOOLS_JANSSON := $(shell $(PKG_CONFIG) --libs jansson 2>/dev/null || echo -ljansson)

ANGARA_INFO_OBJS := $(patsubst %.c,$(B)/obj/%.o,userlib/tools/angara_info.c userlib/tools/info_checks.c \
	userlib/tools/info_env.c userlib/tools/info_gpu.c userlib/tools/info_ompi.c)
ANGARA_PERF_OBJS := $(patsubst %.c,$(B)/obj/%.o,userlib/tools/angara_perf.c userlib/tools/perf_options.c \
                     userlib/tools/perf_remote.c userlib/tools/perf_tests.c tests/gpu/device.c tests/gpu/device_cuda.c tests/gpu/device_rocm.c)

ANGARA_TOP_OBJS  := $(patsubst %.c,$(B)/obj/%.o,userlib/tools/angara_top.c userlib/tools/top_print.c \
                     userlib/tools/top_read.c)

ALL_TARGETS += $(B)/bin/angara_info $(B)/bin/angara_perf $(B)/bin/angara_top

$(ANGARA_INFO_OBJS) $(ANGARA_PERF_OBJS) $(ANGARA_TOP_OBJS): CFLAGS_EXTRA += -Iuserlib

$(B)/bin/angara_info: $(ANGARA_INFO_OBJS)
$(B)/bin/angara_perf: $(ANGARA_PERF_OBJS)
$(B)/bin/angara_top: $(ANGARA_TOP_OBJS)

# The tools find the library next to themselves, installed or not.
$(B)/bin/angara_info $(B)/bin/angara_perf $(B)/bin/angara_top: $(B)/lib/libangara.so.0
	$(SAY) LD $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS_COMMON) $(LDFLAGS_COMMON) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) -L$(B)/lib \
		-langara $(TOOLS_JANSSON) -ldl -Wl,-rpath,'$$ORIGIN/../lib'

# For the administrator. It needs no library.
ALL_TARGETS += $(B)/sbin/angara_jobkey

$(B)/obj/userlib/tools/angara_jobkey.o: CFLAGS_EXTRA += -Ikmod/include/uapi

$(B)/sbin/angara_jobkey: $(B)/obj/userlib/tools/angara_jobkey.o
	$(SAY) LD $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS_COMMON) $(LDFLAGS_COMMON) $(CFLAGS) $(LDFLAGS) -o $@ $^
