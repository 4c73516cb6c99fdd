# SPDX-License-Identifier: BSD-3-Clause
# OSU-compatible MPI benchmarks (no dependency on libangara or UCX; GPUs' runtimes are loaded by those that
# are told to) and the cache-line ping-pong.

BENCH_COMMON := bench_common bench_options
BENCH_PT2PT  := osu_latency osu_multi_lat
BENCH_WINDOW := osu_bw osu_bibw osu_mbw_mr
BENCH_ICOLL  := osu_ibcast osu_iallreduce osu_ireduce_scatter osu_iallgather osu_ialltoall
BENCH_COLL   := osu_bcast osu_reduce osu_allreduce osu_reduce_scatter osu_allgather osu_alltoall $(BENCH_ICOLL)
BENCH_RMA    := osu_put_latency osu_get_latency osu_put_bw osu_get_bw osu_acc_latency osu_get_acc_latency \
                osu_fop_latency osu_cas_latency
# Not every build of Open MPI has OpenSHMEM.
ifneq ($(shell command -v $(OSHCC) 2>/dev/null),)
BENCH_SHMEM  := osu_oshm_put osu_oshm_get osu_oshm_put_mr osu_oshm_atomics
endif
BENCH_MPI    := $(BENCH_PT2PT) $(BENCH_WINDOW) $(BENCH_COLL) $(BENCH_RMA) $(BENCH_SHMEM) osu_barrier

BENCH_OBJ      := $(B)/obj/tests/bench
BENCH_PROGRAMS := $(addprefix $(B)/bench/,$(BENCH_MPI) cacheline_pingpong)

ALL_TARGETS += $(BENCH_PROGRAMS) $(B)/bench/hpcc_values

$(B)/bench/hpcc_values: tests/bench/hpcc_values
	@mkdir -p $(@D)
	$(Q)cp $< $@

# The wrapper is told the compiler that everything else is built with.
BENCH_MPICC := OMPI_CC='$(CC)' $(MPICC)

$(BENCH_OBJ)/%.o: tests/bench/%.c $(B)/.flags
	$(SAY) MPI $<
	@mkdir -p $(@D)
	$(Q)$(BENCH_MPICC) $(CFLAGS_COMMON) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

# Non-blocking forms: the same sources.
$(BENCH_ICOLL:%=$(BENCH_OBJ)/%.o): $(BENCH_OBJ)/osu_i%.o: tests/bench/osu_%.c $(B)/.flags
	$(SAY) MPI $@
	@mkdir -p $(@D)
	$(Q)$(BENCH_MPICC) $(CFLAGS_COMMON) $(CPPFLAGS) $(CFLAGS) -DBENCH_NONBLOCKING -MMD -MP -c -o $@ $<

$(addprefix $(B)/bench/,$(BENCH_MPI)): $(BENCH_COMMON:%=$(BENCH_OBJ)/%.o) $(GPU_DEVICE)
$(addprefix $(B)/bench/,$(BENCH_PT2PT)): $(BENCH_OBJ)/bench_pingpong.o
$(addprefix $(B)/bench/,$(BENCH_WINDOW)): $(BENCH_OBJ)/bench_window.o
$(addprefix $(B)/bench/,$(BENCH_COLL)): $(BENCH_OBJ)/bench_coll.o
$(addprefix $(B)/bench/,$(BENCH_RMA) $(BENCH_SHMEM)): $(BENCH_OBJ)/bench_rma.o
$(addprefix $(B)/bench/,$(BENCH_SHMEM)): $(BENCH_OBJ)/bench_shmem.o

$(BENCH_OBJ)/bench_shmem.o $(addprefix $(BENCH_OBJ)/,$(BENCH_SHMEM:=.o)) $(addprefix $(B)/bench/,$(BENCH_SHMEM)): \
	private BENCH_MPICC := OMPI_CC='$(CC)' $(OSHCC)

$(BENCH_PROGRAMS): $(B)/bench/%: $(BENCH_OBJ)/%.o
	$(SAY) LINK $@
	@mkdir -p $(@D)
	$(Q)$(BENCH_MPICC) $(CFLAGS_COMMON) $(CFLAGS) -o $@ $(filter %.o,$^) $(LDFLAGS_COMMON) $(LDFLAGS) -lpthread -ldl
