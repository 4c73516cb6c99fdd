# SPDX-License-Identifier: BSD-3-Clause
#
# Stand-ins for the GPUs' runtimes, with the real names, for LD_LIBRARY_PATH or dlopen(); those in
# old/ lack what older runtimes lack, that in bare/ all but its start. That for ROCm needs the headers
# of libhsa-runtime-dev.

STANDIN_DIR   := $(B)/tests/gpu/standin
STANDIN_OBJS   = $(patsubst %,$(B)/obj/tests/gpu/standin/%.o,$(1) core memory queue)
STANDIN_CUDA  := $(STANDIN_DIR)/libcuda.so.1 $(STANDIN_DIR)/old/libcuda.so.1 $(STANDIN_DIR)/bare/libcuda.so.1
STANDIN_HSA   := $(STANDIN_DIR)/libhsa-runtime64.so.1 $(STANDIN_DIR)/old/libhsa-runtime64.so.1
STANDIN_LIBS  := $(STANDIN_CUDA)
STANDIN_TESTS := $(B)/tests/gpu/test_standin $(B)/tests/gpu/test_standin_copy
ifneq ($(wildcard /usr/include/hsa/hsa_ext_amd.h),)
STANDIN_LIBS  += $(STANDIN_HSA)
STANDIN_TESTS += $(B)/tests/gpu/test_standin_hsa
endif

TEST_PROGRAMS += $(STANDIN_LIBS) $(STANDIN_TESTS)

$(B)/obj/tests/gpu/%.o: CFLAGS_EXTRA += -Iuserlib

$(STANDIN_CUDA): $(call STANDIN_OBJS,cuda_context cuda_memory cuda_virtual cuda_stream)
$(STANDIN_HSA): $(call STANDIN_OBJS,hsa_agent hsa_memory hsa_copy)
$(STANDIN_DIR)/old/%: STANDIN_FLAGS := -Wl,--version-script,tests/gpu/standin/old.map
$(STANDIN_DIR)/bare/%: STANDIN_FLAGS := -Wl,--version-script,tests/gpu/standin/bare.map
$(filter $(STANDIN_DIR)/old/%,$(STANDIN_LIBS)): tests/gpu/standin/old.map
$(filter $(STANDIN_DIR)/bare/%,$(STANDIN_LIBS)): tests/gpu/standin/bare.map

# They are never unloaded: their threads would be left without code.
$(STANDIN_CUDA) $(STANDIN_HSA):
	$(SAY) LD $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS_COMMON) $(LDFLAGS_COMMON) $(CFLAGS) $(LDFLAGS) -shared -Wl,-soname,$(@F) \
		-Wl,-Bsymbolic -Wl,-z,nodelete $(STANDIN_FLAGS) -o $@ $(filter %.o,$^) -lpthread

# They load the libraries that lie in standin/ beside them.
$(STANDIN_TESTS): $(B)/tests/gpu/%: $(B)/obj/tests/gpu/%.o | $(STANDIN_LIBS)
	$(SAY) LD $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS_COMMON) $(LDFLAGS_COMMON) $(CFLAGS) $(LDFLAGS) -o $@ $^ -lcmocka -lpthread -ldl

# GPU memory for programs, as device.h says.
GPU_DEVICE := $(patsubst %,$(B)/obj/tests/gpu/%.o,device device_cuda device_rocm)

# Of the library, linked with its objects, since they look at its insides; of MPI; of UCP.
GPU_TESTS  := $(patsubst %,$(B)/tests/gpu/%,test_mem test_mem_faults test_mem_find)
GPU_REGIONS := $(patsubst %,$(B)/tests/gpu/%,test_regions test_regions_ops test_regions_life \
                 test_regions_end test_regions_faults test_regions_flight test_regions_gather \
                 test_regions_direct test_regions_staged)
GPU_MPI    := $(patsubst %,$(B)/tests/gpu/%,mpi_gpu mpi_gpu_threads mpi_gpu_faults)
GPU_UCP    := $(B)/tests/gpu/test_ucp
GPU_ASIDE  := $(B)/tests/gpu/test_aside
GPU_UCT    := $(patsubst %,$(B)/tests/gpu/%,test_uct test_uct_md test_uct_copies)

# Bare copies of CUDA's driver.
GPU_FLOOR     := $(B)/tests/gpu/gpu_floor
TEST_PROGRAMS += $(GPU_FLOOR)

$(GPU_FLOOR): $(B)/obj/tests/gpu/gpu_floor.o
	$(SAY) LD $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS_COMMON) $(LDFLAGS_COMMON) $(CFLAGS) $(LDFLAGS) -o $@ $^ -ldl

# Without the headers of libhsa-runtime-dev there are no programs of ROCm.
ifneq ($(wildcard /usr/include/hsa/hsa_ext_amd.h),)
TEST_PROGRAMS += $(GPU_TESTS) $(GPU_REGIONS) $(GPU_MPI) $(GPU_UCP) $(GPU_ASIDE) $(GPU_UCT)
else
$(B)/obj/tests/gpu/device.o: CFLAGS_EXTRA += -DDEVICE_NO_ROCM
endif

$(GPU_TESTS): $(B)/tests/gpu/%: $(B)/obj/tests/gpu/%.o $(GPU_DEVICE) $(LIBANGARA_OBJS) | $(STANDIN_LIBS)
	$(SAY) LD $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS_COMMON) $(LDFLAGS_COMMON) $(CFLAGS) $(LDFLAGS) -o $@ $^ -lcmocka -lpthread -ldl

$(B)/tests/gpu/test_mem_find: LDFLAGS += -rdynamic
$(B)/tests/gpu/test_mem_find: | $(B)/tests/gpu/slow_library.so
TEST_PROGRAMS += $(B)/tests/gpu/slow_library.so

# What it calls is the program's.
$(B)/tests/gpu/slow_library.so: $(B)/obj/tests/gpu/slow_library.o
	$(SAY) LD $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS_COMMON) $(LDFLAGS_COMMON) $(CFLAGS) $(LDFLAGS) -shared -Wl,-z,undefs -o $@ $^

# Of the library as programs have it, in several processes.
$(GPU_REGIONS): $(B)/tests/gpu/%: $(B)/obj/tests/gpu/%.o $(B)/obj/tests/gpu/regions.o $(CONF_HARNESS) \
		$(B)/lib/libangara.so.0 | $(STANDIN_LIBS)
	$(SAY) LD $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS_COMMON) $(LDFLAGS_COMMON) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) -L$(B)/lib \
		-langara -lcmocka $(CONF_LDFLAGS) -Wl,-rpath,'$$ORIGIN/../../lib'

$(B)/obj/tests/gpu/mpi_%.o: tests/gpu/mpi_%.c $(B)/.flags
	$(SAY) MPI $<
	@mkdir -p $(@D)
	$(Q)$(MPI_TEST_MPICC) $(CFLAGS_COMMON) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

$(GPU_MPI): $(B)/tests/gpu/%: $(B)/obj/tests/gpu/%.o $(B)/obj/tests/gpu/mpi_buffer.o $(GPU_DEVICE) \
		$(B)/obj/tests/mpi/mpi_test.o
	$(SAY) LINK $@
	@mkdir -p $(@D)
	$(Q)$(MPI_TEST_MPICC) $(CFLAGS_COMMON) $(CFLAGS) -o $@ $^ $(LDFLAGS_COMMON) $(LDFLAGS) -lpthread -ldl

$(B)/obj/tests/gpu/mpi_gpu.o: MPI_TEST_MPICC += $(UCX_INCLUDE)
$(B)/obj/tests/gpu/test_ucp.o: CFLAGS_EXTRA += $(UCX_INCLUDE)

$(GPU_UCP): $(B)/obj/tests/gpu/test_ucp.o $(GPU_DEVICE)
	$(SAY) LD $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS_COMMON) $(LDFLAGS_COMMON) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(UCX_LDFLAGS) -lucp -luct -lucs -lucm \
		-lpthread -ldl

# It is a component of UCX's, by UCX's internal headers.
$(B)/obj/tests/gpu/test_aside.o: CFLAGS_EXTRA += $(subst -I,-isystem ,$(UCX_CFLAGS))
$(B)/obj/tests/gpu/test_aside.o: | build/ucx/VERSION

$(GPU_ASIDE): $(B)/obj/tests/gpu/test_aside.o $(GPU_DEVICE)
	$(SAY) LD $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS_COMMON) $(LDFLAGS_COMMON) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(UCX_LDFLAGS) -luct -lucs -lcmocka -ldl

# With the harness of the UCT tests.
GPU_UCT_OBJS := $(GPU_UCT:$(B)/%=$(B)/obj/%.o) $(B)/obj/tests/gpu/uct_buffer.o
$(GPU_UCT_OBJS): CFLAGS_EXTRA += -Iuct_transport $(subst -I,-isystem ,$(UCX_CFLAGS))
$(GPU_UCT_OBJS): | build/ucx/VERSION

$(GPU_UCT): $(B)/tests/gpu/%: $(B)/obj/tests/gpu/%.o $(B)/obj/tests/gpu/uct_buffer.o $(GPU_DEVICE) \
		$(patsubst %,$(B)/obj/tests/%.o,uct/ut_ranks uct/ut_uct common/ranks) | $(STANDIN_LIBS) \
		$(B)/lib/libuct_angara.so
	$(SAY) LD $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS_COMMON) $(LDFLAGS_COMMON) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(UCX_LDFLAGS) -luct -lucs -lcmocka \
		-lpthread -ldl -Wl,-rpath,'$$ORIGIN/../../lib'
