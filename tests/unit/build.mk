# SPDX-License-Identifier: BSD-3-Clause
#
# Unit tests of libangara's parts. They see its private headers, so they link its objects instead of
# the shared library; UNIT_WRAP_name lists what the linker replaces for a test (ld --wrap).

UNIT_TESTS := $(patsubst tests/unit/%.c,%,$(wildcard tests/unit/test_*.c))
UNIT_BINS  := $(UNIT_TESTS:%=$(B)/tests/unit/%)

TEST_PROGRAMS += $(UNIT_BINS)

UNIT_WRAP_test_failures := malloc calloc realloc free mmap memfd_create ftruncate fallocate \
	open fcntl fstat pipe2 epoll_create1 epoll_ctl pthread_create getrandom syscall \
	process_vm_readv process_vm_writev

UNIT_WRAP_test_engine  := malloc
UNIT_WRAP_test_stopped := ang_log_print
UNIT_WRAP_test_paced   := pthread_create
UNIT_WRAP_test_overlap := pthread_create
UNIT_WRAP_test_ahead   := pthread_create
UNIT_WRAP_test_front   := pthread_create
UNIT_WRAP_test_request := pthread_create
UNIT_WRAP_test_service := pthread_create
UNIT_WRAP_test_catch   := pthread_create
UNIT_WRAP_test_watch   := pread
UNIT_WRAP_test_said    := socket
UNIT_WRAP_test_joint_min := pthread_create
UNIT_WRAP_test_joint   := process_vm_readv process_vm_writev

UNIT_WRAP_test_channel := angara_put angara_put_flag
UNIT_WRAP_test_channel_marker := angara_marker angara_marker_self angara_offload_batch angara_peer_hurry angara_peer_settled
UNIT_WRAP_test_channel_flush  := $(UNIT_WRAP_test_channel_marker)

UNIT_NIC_TESTS := test_nic test_nic_device test_nic_own

UNIT_WRAP_test_nic        := open access close ioctl geteuid getresuid getrlimit clock_gettime ang_log_print
UNIT_WRAP_test_nic_device := $(UNIT_WRAP_test_nic)
UNIT_WRAP_test_nic_own    := $(UNIT_WRAP_test_nic)

$(B)/obj/tests/unit/%.o: CFLAGS_EXTRA += -Iuserlib -Iuserlib/provider/soft
$(UNIT_NIC_TESTS:%=$(B)/obj/tests/unit/%.o) $(B)/obj/tests/unit/nic_fake.o: \
	CFLAGS_EXTRA += -Ikmod/include/uapi

$(UNIT_NIC_TESTS:%=$(B)/tests/unit/%): $(B)/obj/tests/unit/nic_fake.o

$(B)/tests/unit/%: $(B)/obj/tests/unit/%.o $(LIBANGARA_OBJS)
	$(SAY) LD $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS_COMMON) $(LDFLAGS_COMMON) $(CFLAGS) $(LDFLAGS) -o $@ $^ \
		$(UNIT_WRAP_$(*F):%=-Wl,--wrap=%) $(UNIT_LIBS) -lcmocka -lpthread

# What a process shows is read by the part of angara_top that reads.
$(B)/obj/tests/unit/test_watch.o: CFLAGS_EXTRA += -Iuserlib/include
$(B)/tests/unit/test_watch: $(B)/obj/userlib/tools/top_print.o $(B)/obj/userlib/tools/top_read.o
$(B)/tests/unit/test_watch: UNIT_LIBS := $(TOOLS_JANSSON)

# It loads and unloads the library.
$(B)/tests/unit/test_said: | $(LIBANGARA)
$(B)/obj/tests/unit/test_said.o: CFLAGS_EXTRA += -DLIBANGARA='"$(abspath $(LIBANGARA))"'

# No UCX in the states of the transport's connections, nor in its queue of early messages.
$(B)/obj/tests/unit/test_life.o $(B)/obj/tests/unit/test_early.o: CFLAGS_EXTRA += -Iuct_transport
$(B)/tests/unit/test_life: $(B)/obj/uct_transport/life/states.o
$(B)/tests/unit/test_early: $(B)/obj/uct_transport/channel/early.o

# Nor where lines are written beside UCX's log.
$(B)/obj/tests/unit/test_say.o: CFLAGS_EXTRA += -Iuct_transport
$(B)/tests/unit/test_say: $(B)/obj/uct_transport/base/say.o

# A library's table of functions: one that is bound at the first call, and one that is closed.
ENTRY_CALLERS := $(B)/tests/unit/entry_lazy.so $(B)/tests/unit/entry_now.so
TEST_PROGRAMS += $(ENTRY_CALLERS)

$(ENTRY_CALLERS): $(B)/tests/unit/entry_%.so: $(B)/obj/tests/unit/plt_caller.o
	$(SAY) LD $@
	@mkdir -p $(@D)
	$(Q)$(CC) -shared -Wl,-z,relro $(CFLAGS_COMMON) $(LDFLAGS_COMMON) $(CFLAGS) $(LDFLAGS) -Wl,-z,$* -o $@ $^

$(B)/tests/unit/test_entry: $(B)/obj/uct_transport/base/entry.o | $(ENTRY_CALLERS)
$(B)/obj/tests/unit/test_entry.o: CFLAGS_EXTRA += -Iuct_transport \
	-DENTRY_LAZY='"$(abspath $(B))/tests/unit/entry_lazy.so"' -DENTRY_NOW='"$(abspath $(B))/tests/unit/entry_now.so"'

# Of UCX, channels need the data structures (libucs) and types; what hides its versions libuct, too.
UNIT_CHANNEL_TESTS := test_channel test_channel_poll test_channel_marker test_channel_flush

$(UNIT_CHANNEL_TESTS:%=$(B)/obj/tests/unit/%.o): \
	CFLAGS_EXTRA += -Iuct_transport $(subst -I,-isystem ,$(UCX_CFLAGS))
$(UNIT_CHANNEL_TESTS:%=$(B)/obj/tests/unit/%.o): | build/ucx/VERSION
$(UNIT_CHANNEL_TESTS:%=$(B)/tests/unit/%): \
	$(patsubst %.c,$(B)/obj/%.o,$(wildcard uct_transport/channel/*.c)) \
	$(B)/obj/uct_transport/base/alike.o $(B)/obj/uct_transport/base/compat.o $(B)/obj/uct_transport/base/stats.o \
	$(B)/obj/uct_transport/base/status.o
$(UNIT_CHANNEL_TESTS:%=$(B)/tests/unit/%): UNIT_LIBS := $(UCX_LDFLAGS) -luct -lucs

# Of the kernel modules, what needs so little of a kernel that it can be tested without one.
$(B)/obj/tests/unit/test_pagelist.o $(B)/obj/kmod/nic/emu/pagelist.o \
$(B)/obj/tests/unit/test_check.o $(B)/obj/kmod/nic/check.o: \
	CFLAGS_EXTRA += -Itests/unit/kernel -Ikmod/nic/emu -Ikmod/nic -Ikmod/include/uapi
$(B)/tests/unit/test_pagelist: $(B)/obj/kmod/nic/emu/pagelist.o
$(B)/tests/unit/test_check: $(B)/obj/kmod/nic/check.o

.SECONDARY: $(UNIT_TESTS:%=$(B)/obj/tests/unit/%.o)
