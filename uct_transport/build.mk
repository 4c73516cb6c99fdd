# SPDX-License-Identifier: BSD-3-Clause
#
# The UCX transport: $(B)/lib/libuct_angara.so, against the internal headers of the installed UCX.

# From the bottom up: what is above may call what is below, never the other way round.
UCT_ANGARA_FLOORS := base channel life gpu verbs
UCT_ANGARA_SRCS   := $(sort $(wildcard $(UCT_ANGARA_FLOORS:%=uct_transport/%/*.c)))
UCT_ANGARA_OBJS   := $(UCT_ANGARA_SRCS:%.c=$(B)/obj/%.o)
UCT_ANGARA_LIBS   ?= -lucp -luct -lucs -lucm

# UCX's headers are system headers for us: their warnings are not ours to cure.
$(UCT_ANGARA_OBJS): CFLAGS_EXTRA += -Iuct_transport $(subst -I,-isystem ,$(UCX_CFLAGS))
$(UCT_ANGARA_OBJS): | build/ucx/VERSION

$(B)/lib/libuct_angara.so: $(UCT_ANGARA_OBJS) $(B)/lib/libangara.so
	$(SAY) LD $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS_COMMON) $(LDFLAGS_COMMON) $(CFLAGS) -shared -Wl,-soname,libuct_angara.so -Wl,-z,nodelete \
		-Wl,-rpath,'$$ORIGIN' -o $@ $(UCT_ANGARA_OBJS) -L$(B)/lib -langara \
		$(UCX_LDFLAGS) $(UCT_ANGARA_LIBS) -ldl -lpthread $(LDFLAGS)
# UCX from 1.22 on loads what has the suffix of its own libraries, from the folders in UCX_PLUGIN_PATH.
# The tree may have been built for such a one before: angara_env takes the name for a sign of it.
	$(Q)rm -f $@.0
	$(Q)! printf '1.22\n%s\n' "$$(cat build/ucx/VERSION)" | sort -VC || ln -sf $(@F) $@.0

.PHONY: transport-objects
transport-objects: $(UCT_ANGARA_OBJS)

ALL_TARGETS += $(B)/lib/libuct_angara.so
