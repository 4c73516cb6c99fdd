# SPDX-License-Identifier: BSD-3-Clause
#
# MPI and OpenSHMEM test programs. They know nothing of the transport: any Open MPI runs them, and any
# MPI all but select_probe.

MPI_TESTS := pt2pt_modes pt2pt_match pt2pt_flood datatypes collectives onesided accumulates \
             accumulates_long accumulates_info dynamic threads comms select_probe
MPI_TEST_PROGRAMS := $(MPI_TESTS:%=$(B)/tests/mpi/%)
SHMEM_TEST_PROGRAMS := $(B)/tests/mpi/shmem_basic

TEST_PROGRAMS += $(MPI_TEST_PROGRAMS) $(SHMEM_TEST_PROGRAMS)

MPI_TEST_MPICC := OMPI_CC='$(CC)' $(MPICC)

$(B)/obj/tests/mpi/%.o: tests/mpi/%.c $(B)/.flags
	$(SAY) MPI $<
	@mkdir -p $(@D)
	$(Q)$(MPI_TEST_MPICC) $(CFLAGS_COMMON) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

$(MPI_TEST_PROGRAMS): $(B)/tests/mpi/%: $(B)/obj/tests/mpi/%.o $(B)/obj/tests/mpi/mpi_test.o
	$(SAY) LINK $@
	@mkdir -p $(@D)
	$(Q)$(MPI_TEST_MPICC) $(CFLAGS_COMMON) $(CFLAGS) -o $@ $^ $(LDFLAGS_COMMON) $(LDFLAGS) \
		-lpthread

# It looks at what Open MPI has selected.
$(B)/obj/tests/mpi/select_probe.o: MPI_TEST_MPICC += $(OMPI_CFLAGS)

$(B)/obj/tests/mpi/shmem_basic.o: MPI_TEST_MPICC := OMPI_CC='$(CC)' $(OSHCC)

$(SHMEM_TEST_PROGRAMS): $(B)/tests/mpi/%: $(B)/obj/tests/mpi/%.o
	$(SAY) LINK $@
	@mkdir -p $(@D)
	$(Q)OMPI_CC='$(CC)' $(OSHCC) $(CFLAGS_COMMON) $(CFLAGS) -o $@ $^ $(LDFLAGS_COMMON) $(LDFLAGS)
