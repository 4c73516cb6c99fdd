/* SPDX-License-Identifier: BSD-3-Clause */
/* GPU memory at UCT level: what the memory domains say about it and do with it. */
#include "uct_buffer.h"

#include "base/compat.h"
#include "cuda_program.h"

#include <strings.h>
#include <ucs/sys/topo/base/topo.h>

/* What UCX calls memory of that origin. */
static ucs_memory_type_t type_of(device_origin_t origin)
{
    return origin == DEVICE_PINNED  ? UCS_MEMORY_TYPE_HOST :
           origin == DEVICE_MANAGED ? UCS_MEMORY_TYPE_CUDA_MANAGED :
                                      gpu_type;
}

static uct_md_mem_attr_t mem_query(uct_md_h md, const void *addr, size_t length)
{
    uct_md_mem_attr_t attr = {
        .field_mask = UCT_MD_MEM_ATTR_FIELD_MEM_TYPE | UCT_MD_MEM_ATTR_FIELD_SYS_DEV |
                      UCT_MD_MEM_ATTR_FIELD_BASE_ADDRESS | UCT_MD_MEM_ATTR_FIELD_ALLOC_LENGTH};

    CHECK_OK(uct_md_mem_query(md, addr, length, &attr));
    return attr;
}

/* Memory of that origin is recognised, and registered, as the domains say. @return types it was */
static uint64_t md_origin(ut_t *t, ut_t *copier, device_origin_t origin)
{
    const size_t      length = 3 * 4096, offset = 5000;
    char             *addr = gpu->alloc(0, length, origin);
    ucs_memory_type_t type = type_of(origin), detected;
    uct_md_mem_attr_t attr;
    ucs_status_t      status;
    uct_mem_h         memh;

    if (addr == NULL) {
        return 0;
    }
    if (type == UCS_MEMORY_TYPE_HOST) {
        CHECK_ERR(uct_md_detect_memory_type(copier->md, addr, length, &detected));
    } else {
        CHECK_OK(uct_md_detect_memory_type(copier->md, addr, length, &detected));
        CHECK_EQ(detected, type);
        attr = mem_query(copier->md, addr + offset, 100);
        CHECK_EQ(attr.mem_type, type);
        CHECK(attr.sys_dev != UCS_SYS_DEVICE_ID_UNKNOWN);
        CHECK((char *)attr.base_address <= addr + offset);
        CHECK((char *)attr.base_address + attr.alloc_length >= addr + offset + 100);
    }
    CHECK(uct_md_detect_memory_type(t->md, addr, length, &detected) != UCS_OK);

    status = uct_md_mem_reg(t->md, addr + offset, 100,
                            UCT_MD_MEM_ACCESS_ALL | UCT_MD_MEM_FLAG_HIDE_ERRORS, &memh);
    if (t->md_attr.cap.reg_mem_types & UCS_BIT(type)) {
        CHECK_OK(status);
    }
    if (status == UCS_OK) {
        CHECK_OK(uct_md_mem_dereg(t->md, memh));
    }
    gpu->free(addr, origin);
    return UCS_BIT(type);
}

/* Where UCX thinks that the memory is, and where CUDA's driver says that this GPU is. */
static void md_place(const ut_t *copier, void *addr, unsigned number, char said[32])
{
    cuda_program_t cuda;
    char           expected[32];

    CHECK(ucs_topo_sys_device_bdf_name(mem_query(copier->md, addr, 4096).sys_dev, said, 32) !=
          NULL);
    if (gpu == &device_cuda) {
        CHECK(cuda_program_load(&cuda, gpu->library));
        CHECK_EQ(cuda.device_get_pci_bus_id(expected, sizeof(expected), (int)number), CUDA_SUCCESS);
        CHECK(strcasecmp(said, expected) == 0);
    }
}

/* UCX is told which GPU memory is on, also after it has asked about another one's. */
static void md_devices(const ut_t *copier)
{
    void *memory[] = {gpu->alloc(0, 4096, DEVICE_PLAIN), gpu->alloc(1, 4096, DEVICE_PLAIN)};
    char  places[2][32];

    for (unsigned i = 0; i < 4; ++i) {
        md_place(copier, memory[i % 2], i % 2, places[i % 2]);
    }
    CHECK(strcmp(places[0], places[1]) != 0);
    gpu->free(memory[0], DEVICE_PLAIN);
    gpu->free(memory[1], DEVICE_PLAIN);
}

static void md_types(ut_t *t)
{
    uint64_t types = UCS_BIT(UCS_MEMORY_TYPE_HOST);
    ut_t     copier;

    gpu_start();
    if (gpu == &device_rocm) {
        types |= UCS_BIT(UCS_MEMORY_TYPE_ROCM_MANAGED); /* device.h has none */
    }
    ut_open(t);
    copier_open(t, &copier);
    if (gpus_num > 1) {
        md_devices(&copier);
    }
    for (unsigned origin = 0; origin < DEVICE_ORIGINS; ++origin) {
        types |= md_origin(t, &copier, origin);
    }
    /* What is advertised has been seen to work. */
    CHECK(types & UCS_BIT(gpu_type));
    CHECK_EQ(t->md_attr.cap.reg_mem_types & ~types, 0);
    CHECK(t->md_attr.cap.reg_mem_types & UCS_BIT(gpu_type));
    CHECK_EQ(t->md_attr.cap.alloc_mem_types, UCS_BIT(UCS_MEMORY_TYPE_HOST));
    CHECK_EQ(t->md_attr.cap.access_mem_types, UCS_BIT(UCS_MEMORY_TYPE_HOST));
    CHECK_EQ(t->md_attr.cap.detect_mem_types, 0);
    CHECK_EQ(copier.md_attr.cap.detect_mem_types | UCS_BIT(UCS_MEMORY_TYPE_HOST), types);
    CHECK_EQ(copier.md_attr.cap.reg_mem_types, types);
    CHECK_EQ(copier.md_attr.cap.access_mem_types & ~types, 0);
    CHECK(copier.md_attr.cap.access_mem_types & UCS_BIT(gpu_type));
    CHECK_EQ(copier.md_attr.cap.alloc_mem_types, 0);
    CHECK_EQ(copier.md_attr.cap.flags & ~(UCT_MD_FLAG_REG | UCT_ANGARA_MD_FLAG_MEMTYPE_COPY), 0);
    copier_close(&copier);
    ut_close(t);
}

static void md_keys(ut_t *t)
{
    const unsigned    quiet = UCT_MD_MEM_ACCESS_ALL | UCT_MD_MEM_FLAG_HIDE_ERRORS;
    char              packed[UT_RKEY_MAX];
    uct_rkey_bundle_t key;
    uct_mem_h         memh, copier_memh;
    buffer_t          buffer;
    ut_t              copier;

    gpu_start();
    ut_open(t);
    copier_open(t, &copier);
    buffer = buffer_registered(t, 1, 4096, UCT_MD_MEM_ACCESS_RMA);
    CHECK_OK(uct_md_mkey_pack(t->md, buffer.memh, packed));
    CHECK_OK(uct_rkey_unpack(t->component, packed, &key));
    CHECK_OK(uct_rkey_release(t->component, &key));
    CHECK_ERR(uct_md_mem_reg(t->md, buffer.addr, 0, quiet, &memh));
    CHECK_ERR(uct_md_mem_reg(t->md, buffer.addr, SIZE_MAX, quiet, &memh));
    CHECK_ERR(uct_md_mem_reg(t->md, buffer.addr, 64 * MB, quiet, &memh)); /* past its end */

    CHECK_OK(uct_md_mem_reg(copier.md, buffer.addr, 4096, quiet, &copier_memh));
    CHECK_OK(uct_md_mkey_pack(copier.md, copier_memh, packed));
    CHECK_EQ(copier.md_attr.rkey_packed_size, 0);
    CHECK_OK(uct_md_mem_dereg(copier.md, copier_memh));
    buffer_end(t, &buffer);
    copier_close(&copier);
    ut_close(t);
}

static unsigned long questions(void)
{
    return standin.calls(gpu == &device_cuda ? "cuPointerGetAttributes" : "hsa_amd_pointer_info");
}

/* Does the domain find it to be a GPU's? */
static int is_gpus(const ut_t *copier, const void *addr)
{
    ucs_memory_type_t detected;

    return uct_md_detect_memory_type(copier->md, addr, 1, &detected) == UCS_OK;
}

/* So many questions, about memory of the host. @return how many of them the runtime was asked */
static unsigned long asked_of(const ut_t *copier, const char *host, unsigned count)
{
    unsigned long before = questions();

    while (count-- > 0) {
        CHECK(!is_gpus(copier, host));
    }
    return questions() - before;
}

/* As a library that is loaded later may do, whose own hook doesn't call the one that was there:
 * bytes behind the jump. */
static void overwrite_hook(char change)
{
    char *code = (char *)(uintptr_t)munmap + 15;
    char *page = (char *)((uintptr_t)code & ~(uintptr_t)4095);

    CHECK_EQ(mprotect(page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC), 0);
    *code = (char)(*code ^ change);
    CHECK_EQ(mprotect(page, 4096, PROT_READ | PROT_EXEC), 0);
}

/* Asking about memory of the host that was found to be so asks no runtime, while mappings are
 * watched; but what comes to its address later is found. */
static void md_hosts(ut_t *t)
{
    const size_t length = 2 * MB;
    char        *pinned, *addr;
    ut_t         copier;

    standin_start(); /* a real runtime may give another address */
    ut_open(t);
    copier_open(t, &copier);
    pinned = gpu->alloc(0, length, DEVICE_PINNED);
    CHECK(pinned != NULL);
    memset(pinned, 1, length);
    CHECK(asked_of(&copier, pinned, 100) < 10); /* some thread may map something */
    overwrite_hook(1);
    CHECK_EQ(asked_of(&copier, pinned, 100), 100);
    overwrite_hook(1);
    CHECK(asked_of(&copier, pinned, 100) < 10);

    gpu->free(pinned, DEVICE_PINNED);
    addr = gpu->alloc(0, length, DEVICE_PLAIN);
    CHECK(addr == pinned);
    CHECK(is_gpus(&copier, addr));
    gpu->free(addr, DEVICE_PLAIN);
    copier_close(&copier);
    ut_close(t);
}

/* Addresses that a driver keeps for memory to come aren't taken for the host's, whether or not
 * something is mapped when that memory comes. */
static void md_reserved(ut_t *t)
{
    CUmemAllocationProp prop = {.type     = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    cuda_program_t               cuda;
    CUdeviceptr                  ptr;
    ut_t                         copier;

    standin_start(); /* a real runtime may have no page there */
    if (gpu != &device_cuda) {
        rank_skip("of CUDA only");
    }
    ut_open(t);
    copier_open(t, &copier);
    CHECK(cuda_program_load(&cuda, gpu->library));
    CHECK_EQ(cuda.vmm_reserve(&ptr, 2 * MB, 0, 0, 0), CUDA_SUCCESS);
    CHECK_EQ(cuda.vmm_create(&handle, 2 * MB, &prop, 0), CUDA_SUCCESS);
    CHECK(!is_gpus(&copier, (void *)(uintptr_t)ptr));
    CHECK_EQ(cuda.vmm_map(ptr, 2 * MB, 0, handle, 0), CUDA_SUCCESS);
    CHECK_EQ(cuda.vmm_set_access(ptr, 2 * MB, &access, 1), CUDA_SUCCESS);
    CHECK(is_gpus(&copier, (void *)(uintptr_t)ptr));
    CHECK_EQ(cuda.vmm_unmap(ptr, 2 * MB), CUDA_SUCCESS);
    CHECK_EQ(cuda.vmm_release(handle), CUDA_SUCCESS);
    CHECK_EQ(cuda.vmm_free(ptr, 2 * MB), CUDA_SUCCESS);
    copier_close(&copier);
    ut_close(t);
}

#define TEST(_name, _func)          \
    static void _name(void **state) \
    {                               \
        (void)state;                \
        ut_run(1, _func, NULL);     \
    }

TEST(test_md_types, md_types)
TEST(test_md_keys, md_keys)
TEST(test_md_hosts, md_hosts)
TEST(test_md_reserved, md_reserved)

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_md_types),
        cmocka_unit_test(test_md_keys),
        cmocka_unit_test(test_md_hosts),
        cmocka_unit_test(test_md_reserved),
    };
    int result = gpu_find();

    return result >= 0 ? result :
                         ut_main(argc, argv, "uct_md", tests, sizeof(tests) / sizeof(tests[0]));
}
