/* SPDX-License-Identifier: BSD-3-Clause */
/* The stand-in for ROCm's HSA runtime: does it do what the tests of the library count on? */
#include "standin_test.h"

#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define SIZE   ((size_t)128 << 10) /* whole pages */
#define PAGE   ((size_t)4096)
#define OK(_c) CHECK_IS(_c, HSA_STATUS_SUCCESS)

/* Of newer headers. */
typedef hsa_status_t (*export_dmabuf_t)(const void *, size_t, int *, uint64_t *);
typedef hsa_status_t (*copy_on_engine_t)(void *, hsa_agent_t, const void *, hsa_agent_t, size_t,
                                         uint32_t, const hsa_signal_t *, hsa_signal_t, unsigned,
                                         bool);

#define CALLS(X)                                               \
    X(agent_get_info, hsa_agent_get_info)                      \
    X(allow_access, hsa_amd_agents_allow_access)               \
    X(async_copy, hsa_amd_memory_async_copy)                   \
    X(init, hsa_init)                                          \
    X(ipc_attach, hsa_amd_ipc_memory_attach)                   \
    X(ipc_create, hsa_amd_ipc_memory_create)                   \
    X(ipc_detach, hsa_amd_ipc_memory_detach)                   \
    X(iterate_agents, hsa_iterate_agents)                      \
    X(iterate_pools, hsa_amd_agent_iterate_memory_pools)       \
    X(lock, hsa_amd_memory_lock)                               \
    X(on_deallocation, hsa_amd_register_deallocation_callback) \
    X(pointer_info, hsa_amd_pointer_info)                      \
    X(pool_allocate, hsa_amd_memory_pool_allocate)             \
    X(pool_free, hsa_amd_memory_pool_free)                     \
    X(pool_get_info, hsa_amd_memory_pool_get_info)             \
    X(set_userdata, hsa_amd_pointer_info_set_userdata)         \
    X(shut_down, hsa_shut_down)                                \
    X(signal_create, hsa_amd_signal_create)                    \
    X(signal_destroy, hsa_signal_destroy)                      \
    X(signal_load, hsa_signal_load_scacquire)                  \
    X(signal_store, hsa_signal_store_screlease)                \
    X(signal_value_pointer, hsa_amd_signal_value_pointer)      \
    X(signal_wait, hsa_signal_wait_scacquire)                  \
    X(system_get_info, hsa_system_get_info)                    \
    X(unlock, hsa_amd_memory_unlock)

#define MEMBER(_name, _symbol) __typeof__(&_symbol) _name;

static struct {
    CALLS(MEMBER)
    export_dmabuf_t  export_dmabuf;
    copy_on_engine_t copy_on_engine;
} hsa;

static standin_t standin;

/* As they come. */
static hsa_agent_t           cpu, gpus[8];
static unsigned              num_gpus;
static hsa_amd_memory_pool_t cpu_pool, gpu_pools[8];

static void load(const char *name)
{
    void *library = dlopen(standin_path(name), RTLD_NOW | RTLD_LOCAL);

#define FIND(_name, _symbol)                                 \
    *(void **)(void *)&hsa._name = dlsym(library, #_symbol); \
    CHECK(hsa._name != NULL);
    CHECK(library != NULL && standin_load(library, &standin));
    CALLS(FIND)
    *(void **)(void *)&hsa.export_dmabuf  = dlsym(library, "hsa_amd_portable_export_dmabuf");
    *(void **)(void *)&hsa.copy_on_engine = dlsym(library, "hsa_amd_memory_async_copy_on_engine");
}

static hsa_status_t note_pool(hsa_amd_memory_pool_t pool, void *data)
{
    hsa_amd_segment_t segment;

    OK(hsa.pool_get_info(pool, HSA_AMD_MEMORY_POOL_INFO_SEGMENT, &segment));
    if (segment == HSA_AMD_SEGMENT_GLOBAL) {
        *(hsa_amd_memory_pool_t *)data = pool;
    }
    return HSA_STATUS_SUCCESS;
}

static hsa_status_t note_agent(hsa_agent_t agent, void *data)
{
    hsa_device_type_t type;

    (void)data;
    OK(hsa.agent_get_info(agent, HSA_AGENT_INFO_DEVICE, &type));
    if (type == HSA_DEVICE_TYPE_CPU) {
        cpu = agent;
        return hsa.iterate_pools(agent, note_pool, &cpu_pool);
    }
    gpus[num_gpus] = agent;
    return hsa.iterate_pools(agent, note_pool, &gpu_pools[num_gpus++]);
}

static void start(void)
{
    load("libhsa-runtime64.so.1");
    OK(hsa.init());
    OK(hsa.iterate_agents(note_agent, NULL));
}

static void *alloc(hsa_amd_memory_pool_t pool)
{
    void *ptr;

    OK(hsa.pool_allocate(pool, SIZE, 0, &ptr));
    return ptr;
}

static hsa_signal_t make_signal(hsa_signal_value_t value)
{
    hsa_signal_t signal;

    OK(hsa.signal_create(value, 0, NULL, HSA_AMD_SIGNAL_AMD_GPU_ONLY, &signal));
    return signal;
}

static hsa_signal_value_t wait_below(hsa_signal_t signal, hsa_signal_value_t value)
{
    return hsa.signal_wait(signal, HSA_SIGNAL_CONDITION_LT, value, UINT64_MAX,
                           HSA_WAIT_STATE_BLOCKED);
}

static hsa_amd_pointer_info_t info_of(const void *ptr)
{
    hsa_amd_pointer_info_t info = {.size = sizeof(info)};

    OK(hsa.pointer_info(ptr, &info, NULL, NULL, NULL));
    return info;
}

static unsigned reached_by(const void *ptr)
{
    hsa_amd_pointer_info_t info = {.size = sizeof(info)};
    uint32_t               num;
    hsa_agent_t           *list;

    OK(hsa.pointer_info(ptr, &info, malloc, &num, &list));
    free(list);
    return num;
}

/* --- start, end, agents ---------------------------------------------------------------------*/

static void run_start(void)
{
    hsa_amd_pointer_info_t info = {.size = sizeof(info)};
    uint32_t               a, b;
    uint16_t               major;
    void                  *ptr;
    pid_t                  pid;
    int                    status;

    load("libhsa-runtime64.so.1");
    CHECK_IS(hsa.system_get_info(HSA_SYSTEM_INFO_VERSION_MAJOR, &major),
             HSA_STATUS_ERROR_NOT_INITIALIZED);
    CHECK_IS(hsa.pointer_info(&info, &info, NULL, NULL, NULL), HSA_STATUS_ERROR_NOT_INITIALIZED);
    CHECK_IS(hsa.shut_down(), HSA_STATUS_ERROR_NOT_INITIALIZED);
    OK(hsa.init());
    OK(hsa.init());
    OK(hsa.iterate_agents(note_agent, NULL));
    CHECK_IS(num_gpus, 2);
    OK(hsa.agent_get_info(gpus[0], (hsa_agent_info_t)HSA_AMD_AGENT_INFO_BDFID, &a));
    OK(hsa.agent_get_info(gpus[1], (hsa_agent_info_t)HSA_AMD_AGENT_INFO_BDFID, &b));
    CHECK(a != b);
    ptr = alloc(gpu_pools[0]);

    pid = fork();
    if (pid == 0) {
        CHECK_IS(hsa.pool_free(ptr), HSA_STATUS_ERROR_NOT_INITIALIZED);
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_IS(status, 0);

    OK(hsa.shut_down());
    OK(hsa.system_get_info(HSA_SYSTEM_INFO_VERSION_MAJOR, &major));
    CHECK_IS(standin.allocations(), 1);
    OK(hsa.shut_down());
    CHECK_IS(standin.allocations(), 0);
    CHECK_IS(hsa.pool_free(ptr), HSA_STATUS_ERROR_NOT_INITIALIZED);
    OK(hsa.init());
}

static void run_visible(void)
{
    uint32_t bdf;

    setenv("ROCR_VISIBLE_DEVICES", "1", 1);
    start();
    CHECK_IS(num_gpus, 1);
    OK(hsa.agent_get_info(gpus[0], (hsa_agent_info_t)HSA_AMD_AGENT_INFO_BDFID, &bdf));
    CHECK_IS(bdf, 0x3700);
}

static void run_old(void)
{
    load("old/libhsa-runtime64.so.1");
    CHECK(hsa.export_dmabuf == NULL && hsa.copy_on_engine == NULL);
    OK(hsa.init());
}

static void test_start(void **state)
{
    (void)state;
    RUNS(run_start);
    RUNS(run_visible);
    RUNS(run_old);
}

/* --- memory ---------------------------------------------------------------------------------*/

static void note_free(void *ptr, void *data)
{
    *(void **)data = ptr;
    CHECK_IS(info_of(ptr).type, HSA_EXT_POINTER_TYPE_UNKNOWN);
}

static void run_memory(void)
{
    void                  *ptr, *host, *freed = NULL;
    hsa_amd_pointer_info_t info;
    uint64_t               offset;
    int                    fd;

    start();
    ptr  = alloc(gpu_pools[1]);
    info = info_of((char *)ptr + 100);
    CHECK_IS(info.type, HSA_EXT_POINTER_TYPE_HSA);
    CHECK(info.agentBaseAddress == ptr && info.sizeInBytes == SIZE);
    CHECK(info.agentOwner.handle == gpus[1].handle);
    CHECK_IS(info.global_flags, HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_COARSE_GRAINED);
    OK(hsa.set_userdata(ptr, &freed));
    CHECK(info_of(ptr).userData == &freed);
    CHECK_IS(reached_by(ptr), 1);
    OK(hsa.allow_access(1, gpus, NULL, ptr));
    CHECK_IS(reached_by(ptr), 2);
    standin.allow_peer(0);
    CHECK_IS(hsa.allow_access(1, gpus, NULL, ptr), HSA_STATUS_ERROR_INVALID_ARGUMENT);

    OK(hsa.export_dmabuf((char *)ptr + 100, 8, &fd, &offset));
    CHECK_IS(offset, 100);
    close(fd);
    standin.allow_dmabuf(0);
    CHECK_IS(hsa.export_dmabuf(ptr, 8, &fd, &offset), HSA_STATUS_ERROR);

    OK(hsa.on_deallocation((char *)ptr + 8, note_free, &freed));
    OK(hsa.pool_free(ptr));
    CHECK(freed == (char *)ptr + 8);
    CHECK_IS(hsa.pool_free(ptr), HSA_STATUS_ERROR_INVALID_ALLOCATION);
    CHECK(alloc(gpu_pools[1]) == ptr);

    host = alloc(cpu_pool);
    memset(host, 1, SIZE);
    info = info_of(host);
    CHECK(info.agentOwner.handle == cpu.handle && info.hostBaseAddress == host);
    CHECK_IS(reached_by(host), 1);
    CHECK_IS(info_of(&info).type, HSA_EXT_POINTER_TYPE_UNKNOWN);
}

static void run_lock(void)
{
    static char            own[SIZE];
    void                  *addr, *second;
    hsa_amd_pointer_info_t info;

    setenv("STANDIN_LOCK_SHIFT", "1", 1);
    start();
    OK(hsa.lock(own + 50, PAGE, gpus, 1, &addr));
    CHECK(addr != own + 50);
    info = info_of(own + 60);
    CHECK_IS(info.type, HSA_EXT_POINTER_TYPE_LOCKED);
    CHECK(info.hostBaseAddress == own + 50 && info.agentBaseAddress == addr);
    CHECK(info_of(addr).hostBaseAddress == own + 50);
    OK(hsa.lock(own, SIZE, NULL, 0, &second));
    CHECK_IS(standin.registrations(), 2);
    OK(hsa.unlock(own + 50));
    CHECK_IS(hsa.unlock(own + 50), HSA_STATUS_ERROR_INVALID_ARGUMENT);
    OK(hsa.unlock(own));
    CHECK_IS(hsa.lock((void *)"constant", 8, gpus, 1, &addr), HSA_STATUS_ERROR_OUT_OF_RESOURCES);
    CHECK_IS(hsa.lock(own, 0, gpus, 1, &addr), HSA_STATUS_ERROR_INVALID_ARGUMENT);
}

static void test_memory(void **state)
{
    (void)state;
    RUNS(run_memory);
    RUNS(run_lock);
}

/* --- copies ---------------------------------------------------------------------------------*/

static void run_copies(void)
{
    static char  own[SIZE], out[SIZE];
    char        *a, *b, *addr;
    hsa_signal_t first, second;

    setenv("STANDIN_LOCK_SHIFT", "1", 1);
    setenv("STANDIN_JITTER", "7", 1);
    start();
    a = alloc(gpu_pools[0]);
    b = alloc(gpu_pools[1]);
    memset(own, 4, SIZE);
    first  = make_signal(1);
    second = make_signal(1);

    /* Only what the GPU can reach, by its own address. */
    CHECK_IS(hsa.async_copy(a, gpus[0], own, cpu, SIZE, 0, NULL, first), 0x1001);
    OK(hsa.lock(own, SIZE, &gpus[0], 1, (void **)&addr));
    CHECK_IS(hsa.async_copy(a, gpus[0], own, cpu, SIZE, 0, NULL, first), 0x1001);
    CHECK_IS(hsa.async_copy(b, gpus[1], addr, cpu, SIZE, 0, NULL, first), 0x1001);
    CHECK_IS(hsa.async_copy(a, gpus[0], addr, cpu, SIZE + 1, 0, NULL, first), 0x1001);
    CHECK_IS(hsa.async_copy(b, gpus[1], a, gpus[0], SIZE, 0, NULL, first), 0x1001);
    OK(hsa.allow_access(1, &gpus[1], NULL, a));
    OK(hsa.allow_access(1, &gpus[0], NULL, b));

    /* The second waits for the first. */
    standin.hold(1);
    OK(hsa.async_copy(a, gpus[0], addr, cpu, SIZE, 0, NULL, first));
    OK(hsa.async_copy(b, gpus[1], a, gpus[0], SIZE, 1, &first, second));
    usleep(20000);
    CHECK(hsa.signal_load(first) == 1 && hsa.signal_load(second) == 1);
    standin.hold(0);
    CHECK_IS(wait_below(second, 1), 0);
    CHECK_IS(hsa.signal_load(first), 0);
    CHECK_IS(standin.read(b, out, SIZE), 0);
    CHECK(memcmp(own, out, SIZE) == 0);

    /* One that fails says so, and the next is done. */
    hsa.signal_store(first, 1);
    hsa.signal_store(second, 1);
    standin.fail_call("copy", 1, HSA_STATUS_ERROR);
    OK(hsa.copy_on_engine(a, gpus[0], a + 8, gpus[0], 8, 0, NULL, first, 1, true));
    OK(hsa.copy_on_engine(a, gpus[0], a + 8, gpus[0], 8, 0, NULL, second, 1, true));
    CHECK_IS(wait_below(second, 1), 0);
    CHECK(hsa.signal_load(first) < 0);
    CHECK_IS(hsa.async_copy(a, gpus[0], addr, cpu, 8, 0, NULL, (hsa_signal_t){77}), 0x1006);
    while (standin.pending() > 0) {
        usleep(100);
    }
}

static void run_signals(void)
{
    volatile hsa_signal_value_t *word;
    hsa_signal_t                 signal, plain;

    start();
    signal = make_signal(5);
    OK(hsa.signal_value_pointer(signal, &word));
    *word = 6;
    CHECK_IS(hsa.signal_load(signal), 6);
    CHECK_IS(hsa.signal_wait(signal, HSA_SIGNAL_CONDITION_EQ, 1, 1000000, HSA_WAIT_STATE_ACTIVE),
             6);
    OK(hsa.signal_create(1, 0, NULL, 0, &plain));
    CHECK_IS(hsa.signal_value_pointer(plain, &word), HSA_STATUS_ERROR_INVALID_SIGNAL);
    OK(hsa.signal_destroy(plain));
    CHECK_IS(hsa.signal_destroy(plain), HSA_STATUS_ERROR_INVALID_SIGNAL);
}

/* Who sees the signal may free the memory, whose address comes again at once. */
static void run_reuse(void)
{
    hsa_signal_t signal;
    char        *a, *before = NULL;

    start();
    signal = make_signal(0);
    for (unsigned i = 0; i < 300; ++i) {
        a = alloc(gpu_pools[0]);
        CHECK(before == NULL || a == before);
        before = a;
        hsa.signal_store(signal, 1);
        OK(hsa.async_copy(a, gpus[0], a + PAGE, gpus[0], PAGE, 0, NULL, signal));
        while (hsa.signal_load(signal) != 0) {
        }
        OK(hsa.pool_free(a));
    }
}

static void run_early_free(void)
{
    hsa_signal_t signal;
    char        *a;

    start();
    signal = make_signal(1);
    a      = alloc(gpu_pools[0]);
    standin.hold(1);
    OK(hsa.async_copy(a, gpus[0], a + PAGE, gpus[0], PAGE, 0, NULL, signal));
    OK(hsa.pool_free(a));
    standin.hold(0);
    wait_below(signal, 1);
}

static void run_early_destroy(void)
{
    hsa_signal_t signal;
    char        *a;

    start();
    signal = make_signal(1);
    a      = alloc(gpu_pools[0]);
    standin.hold(1);
    OK(hsa.async_copy(a, gpus[0], a + PAGE, gpus[0], PAGE, 0, NULL, signal));
    OK(hsa.signal_destroy(signal));
    standin.hold(0);
    sleep(10);
}

/* Copies that haven't begun don't any more; memory goes. */
static void run_end(void)
{
    hsa_signal_t signal;
    char        *a;

    start();
    signal = make_signal(1);
    a      = alloc(gpu_pools[0]);
    standin.hold(1);
    OK(hsa.async_copy(a, gpus[0], a + PAGE, gpus[0], PAGE, 0, NULL, signal));
    OK(hsa.shut_down());
    CHECK_IS(standin.pending() + standin.allocations(), 0);
}

static void test_copies(void **state)
{
    (void)state;
    RUNS(run_copies);
    RUNS(run_signals);
    RUNS(run_end);
    RUNS(run_reuse);
    ABORTS(run_early_free, "device memory");
    ABORTS(run_early_destroy, "completion signal");
}

/* --- memory of other processes --------------------------------------------------------------*/

static void offer(int socket)
{
    hsa_amd_ipc_memory_t handle;
    char                 bytes[8];
    void                *ptr;

    start();
    ptr = alloc(gpu_pools[0]);
    CHECK_IS(standin.write(ptr, "before", 7), 0);
    CHECK_IS(hsa.ipc_create(ptr, SIZE - 1, &handle), HSA_STATUS_ERROR_INVALID_ARGUMENT);
    OK(hsa.ipc_create(ptr, SIZE, &handle));
    tell(socket, &handle, sizeof(handle));
    await(socket);
    CHECK_IS(standin.read((char *)ptr + 8, bytes, 7), 0);
    CHECK(memcmp(bytes, "before", 7) == 0);
    OK(hsa.pool_free(ptr));
    tell(socket, "", 1);
    await(socket);
}

static void run_ipc(void)
{
    hsa_amd_ipc_memory_t handle;
    hsa_signal_t         signal;
    pid_t                pid;
    char                *a, *b;
    int                  socket = start_peer(offer, &pid);

    setenv("ROCR_VISIBLE_DEVICES", "1", 1);
    start();
    hear(socket, &handle, sizeof(handle));
    CHECK_IS(hsa.ipc_attach(&handle, SIZE - 1, 0, NULL, (void **)&a), 0x1001);
    OK(hsa.ipc_attach(&handle, SIZE, 1, gpus, (void **)&a));
    OK(hsa.ipc_attach(&handle, SIZE, 1, gpus, (void **)&b));
    CHECK_IS(info_of(a).type, HSA_EXT_POINTER_TYPE_IPC);
    CHECK_IS(info_of(a).agentOwner.handle, 0); /* isn't visible here */
    CHECK_IS(standin.mappings(), 2);
    signal = make_signal(1);
    OK(hsa.async_copy(b + 8, gpus[0], a, gpus[0], 7, 0, NULL, signal));
    CHECK_IS(wait_below(signal, 1), 0);
    tell(socket, "", 1);
    await(socket);
    CHECK_IS(standin.mappings_freed(), 2);
    OK(hsa.ipc_detach(a));
    OK(hsa.ipc_detach(b));
    CHECK_IS(hsa.ipc_detach(b), HSA_STATUS_ERROR_INVALID_ARGUMENT);
    CHECK_IS(hsa.ipc_attach(&handle, SIZE, 1, gpus, (void **)&a), 0x1001);
    tell(socket, "", 1);
    end_peer(socket, pid);
}

static void test_ipc(void **state)
{
    (void)state;
    RUNS(run_ipc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_start),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_ipc),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
