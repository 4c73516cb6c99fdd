# SPDX-License-Identifier: BSD-3-Clause
#
# The UCX transport: $(B)/lib/libuct_angara.so, against the internal headers of the installed UCX.

UCT_ANGARA_SRCS := $(sort $(wildcard uct_transport/uct_angara_*.c))
UCT_ANGARA_OBJS := $(UCT_ANGARA_SRCS:%.c=$(B)/obj/%.o)
UCT_ANGARA_LIBS ?= -lucp -luct -lucs

# UCX's headers are system headers for us: their warnings are not ours to cure.
$(UCT_ANGARA_OBJS): CFLAGS_EXTRA += $(subst -I,-isystem ,$(UCX_CFLAGS))
$(UCT_ANGARA_OBJS): | build/ucx/VERSION

$(B)/lib/libuct_angara.so: $(UCT_ANGARA_OBJS) $(B)/lib/libangara.so
	$(SAY) LD $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS_COMMON) $(LDFLAGS_COMMON) $(CFLAGS) -shared -Wl,-soname,libuct_angara.so \
		-Wl,-rpath,'$$ORIGIN' -o $@ $(UCT_ANGARA_OBJS) -L$(B)/lib -langara \
		$(UCT_ANGARA_LIBS) -ldl -lpthread $(LDFLAGS)

ALL_TARGETS += $(B)/lib/libuct_angara.so
