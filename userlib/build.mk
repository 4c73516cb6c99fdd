# SPDX-License-Identifier: BSD-3-Clause
# libangara and its tools.

LIBANGARA_SRCS := $(wildcard userlib/src/*.c userlib/engine/*.c userlib/provider/*.c \
                             userlib/provider/soft/*.c userlib/provider/nic/*.c \
                             userlib/gpu/*.c)

# Its types are the runtime's (Debian: libhsa-runtime-dev); nothing of it is linked.
ifeq ($(wildcard /usr/include/hsa/hsa_ext_amd.h),)
LIBANGARA_SRCS := $(filter-out userlib/gpu/rocm%,$(LIBANGARA_SRCS))
$(B)/obj/userlib/gpu/gpu.o: CFLAGS_EXTRA += -DANG_NO_ROCM
endif

LIBANGARA_OBJS := $(LIBANGARA_SRCS:%.c=$(B)/obj/%.o)
LIBANGARA      := $(B)/lib/libangara.so.0

$(B)/obj/userlib/src/%.o $(B)/obj/userlib/engine/%.o $(B)/obj/userlib/provider/%.o \
$(B)/obj/userlib/gpu/%.o: \
	CFLAGS_EXTRA += -Iuserlib

$(B)/obj/userlib/provider/nic/%.o: CFLAGS_EXTRA += -Ikmod/include/uapi

# nodelete: a dlclose() would leave the helper thread without its code, and lose the descriptors that
# are kept for the log; a program's next dlopen() goes on with the library as it is.
$(LIBANGARA): $(LIBANGARA_OBJS) userlib/libangara.map
	@mkdir -p $(@D)
	$(CC) $(CFLAGS_COMMON) -shared -Wl,-soname,libangara.so.0 -Wl,-z,defs -Wl,-z,nodelete \
		-Wl,--version-script=userlib/libangara.map -o $@ $(LIBANGARA_OBJS) $(LDFLAGS) -lpthread -ldl
	@ln -sf libangara.so.0 $(B)/lib/libangara.so

ALL_TARGETS += $(LIBANGARA)

-include userlib/tools/build.mk
