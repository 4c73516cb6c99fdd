# SPDX-License-Identifier: BSD-3-Clause
#
# Open MPI's component hook/angara. It is compiled against Open MPI's private headers, which
# libopenmpi-dev installs, and never linked to the transport that it loads.

OMPI_HOOK     := $(B)/lib/openmpi/mca_hook_angara.so
OMPI_HOOK_SRC := $(wildcard uct_transport/ompi/*.c)
OMPI_HOOK_OBJ := $(OMPI_HOOK_SRC:%.c=$(B)/obj/%.o)

OMPI_INCDIRS := $(shell $(MPICC) --showme:incdirs 2>/dev/null)
OMPI_LIBDIRS := $(shell $(MPICC) --showme:libdirs 2>/dev/null)
OMPI_VERSION := $(shell $(MPICC) --showme:version 2>/dev/null)

# Open MPI 5's headers include PMIx's, and some that libopenmpi-dev leaves out: include/ has those.
OMPI_INCDIRS += $(patsubst -I%,%,$(shell pkg-config --cflags-only-I pmix 2>/dev/null))

# Its headers are not ours to make warning-free.
OMPI_CFLAGS := $(UCX_INCLUDE) $(addprefix -isystem ,$(OMPI_INCDIRS)) -idirafter uct_transport/ompi/include
$(OMPI_HOOK_OBJ): CFLAGS_EXTRA += -Iuct_transport -Iuserlib $(OMPI_CFLAGS)

# Of the transport's and the library's, which know neither UCX nor Open MPI.
OMPI_HOOK_OBJ += $(B)/obj/uct_transport/base/entry.o $(B)/obj/userlib/src/line.o

# libopen-pal comes with libmpi, so its symbols are undefined here. By itself it has another name in each major
# version: the component couldn't be loaded there, and couldn't say why it stays off.
$(OMPI_HOOK): $(OMPI_HOOK_OBJ)
	$(SAY) LD $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS_COMMON) $(LDFLAGS_COMMON) $(CFLAGS) $(LDFLAGS) -shared \
		-Wl,-soname,$(@F) -o $@ $^ $(addprefix -L,$(OMPI_LIBDIRS)) -Wl,-z,undefs -lmpi -ldl

ALL_TARGETS += $(OMPI_HOOK)
