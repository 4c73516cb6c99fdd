# SPDX-License-Identifier: BSD-3-Clause
#
# Programs of the fault tests, and libraries of "another version" to mix with this one.

FAULTS_OBJ := $(B)/obj/tests/faults
FAULTS_BIN := $(B)/tests/faults

FAULTS_MPI_PROGRAMS := $(FAULTS_BIN)/fault_mpi $(FAULTS_BIN)/fault_window
FAULTS_LIB_PROGRAMS := $(FAULTS_BIN)/fault_pair $(FAULTS_BIN)/fault_cycles
FAULTS_PROGRAMS     := $(FAULTS_LIB_PROGRAMS) $(FAULTS_MPI_PROGRAMS) $(FAULTS_BIN)/fault_ucp \
                       $(FAULTS_BIN)/fault_restrict
FAULTS_OTHERS       := wire layout
FAULTS_OTHER_LIBS   := $(FAULTS_OTHERS:%=$(FAULTS_BIN)/other-%/libangara.so.0)

TEST_PROGRAMS += $(FAULTS_PROGRAMS) $(FAULTS_OTHER_LIBS)

$(FAULTS_BIN)/%: $(FAULTS_OBJ)/%.o $(FAULTS_OBJ)/fault_common.o $(B)/lib/libangara.so.0
	$(SAY) LD $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS_COMMON) $(LDFLAGS_COMMON) $(CFLAGS) -o $@ $(filter %.o,$^) $(FAULTS_LIBS) \
		$(LDFLAGS)

$(FAULTS_LIB_PROGRAMS): FAULTS_LIBS := -L$(B)/lib -langara
$(FAULTS_BIN)/fault_ucp: FAULTS_LIBS := $(UCX_LDFLAGS) -lucp -lucs
$(FAULTS_OBJ)/fault_ucp.o: CFLAGS_EXTRA += $(UCX_INCLUDE)

$(FAULTS_LIB_PROGRAMS) $(FAULTS_BIN)/fault_ucp: $(FAULTS_OBJ)/fault_link.o
$(FAULTS_BIN)/fault_pair: $(FAULTS_OBJ)/pair_traffic.o

$(FAULTS_MPI_PROGRAMS:$(FAULTS_BIN)/%=$(FAULTS_OBJ)/%.o): $(FAULTS_OBJ)/%.o: tests/faults/%.c \
                                                          $(B)/.flags
	$(SAY) MPI $<
	@mkdir -p $(@D)
	$(Q)OMPI_CC='$(CC)' $(MPICC) $(CFLAGS_COMMON) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

$(FAULTS_MPI_PROGRAMS): $(FAULTS_BIN)/%: $(FAULTS_OBJ)/%.o $(FAULTS_OBJ)/fault_common.o \
                        $(patsubst %,$(B)/obj/tests/gpu/%.o,device device_cuda device_rocm)
	$(SAY) LINK $@
	@mkdir -p $(@D)
	$(Q)OMPI_CC='$(CC)' $(MPICC) $(CFLAGS_COMMON) $(CFLAGS) -o $@ $(filter %.o,$^) \
		$(LDFLAGS_COMMON) $(LDFLAGS) -lpthread -ldl

# libangara with one of its two versions changed: that of addresses, or that of shared memory.
FAULTS_EDIT_wire   := -e '/define ANGARA_WIRE_VERSION/s/[0-9]*$$/99/'
FAULTS_EDIT_layout := -e '/define SOFT_LAYOUT/s/SOFT_LAYOUT *[0-9]*/SOFT_LAYOUT 99/'
FAULTS_EDIT        := -e '/define ANGARA_VERSION_PATCH/s/[0-9]*$$/99/'

$(FAULTS_BIN)/other-%/libangara.so.0: $(LIBANGARA_OBJS) userlib/libangara.map tests/faults/build.mk
	$(SAY) LIB "$@"
	@rm -rf $(@D) && mkdir -p $(@D)/src && cp -r userlib $(@D)/src/
	@sed -i $(FAULTS_EDIT) $(FAULTS_EDIT_$*) $(@D)/src/userlib/include/angara/angara.h \
		$(@D)/src/userlib/provider/soft/shared.h
	$(Q)$(CC) $(subst -Iuserlib/include,,$(CFLAGS_COMMON)) -w $(CPPFLAGS) $(CFLAGS) -shared \
		-I$(@D)/src/userlib/include -I$(@D)/src/userlib -Ikmod/include/uapi -Wl,-soname,libangara.so.0 \
		-Wl,--version-script=userlib/libangara.map -o $@ \
		$(LIBANGARA_SRCS:%=$(@D)/src/%) $(LDFLAGS) -lpthread
