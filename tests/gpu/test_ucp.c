/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GPU memory over UCP, by a worker that sleeps: messages to oneself, of all sizes, and the sleeper
 * is woken, or not let sleep, until they have ended. What UCX takes memory for, before there is a
 * worker, too; a runtime that is loaded when UCX has long been in use; children that use a device;
 * and workers and connections that end while messages are copied, or wait. Run with the transport
 * preloaded.
 */
#include "device.h"
#include "standin_test.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucp/api/ucp.h>
#include <ucm/api/ucm.h>
#include <ucs/memory/memtype_cache.h>
#include <uct/api/uct.h>
#include <unistd.h>

static ucp_context_h context;
static ucp_worker_h  worker;
static ucp_ep_h      ep;
static unsigned      num_tests, num_failed;

#define MUST(_call)                                                       \
    do {                                                                  \
        ucs_status_t status_ = (_call);                                   \
        if (status_ != UCS_OK) {                                          \
            fprintf(stderr, #_call ": %s\n", ucs_status_string(status_)); \
            exit(1);                                                      \
        }                                                                 \
    } while (0)

static void check(int good, const char *what, size_t size)
{
    num_failed += !good;
    printf("%sok %u - %zu %s\n", good ? "" : "not ", ++num_tests, size, what);
}

static void init(void)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                           .features   = UCP_FEATURE_TAG | UCP_FEATURE_RMA | UCP_FEATURE_WAKEUP};

    MUST(ucp_init(&params, NULL, &context));
}

static void connect_self(void)
{
    ucp_worker_params_t worker_params = {0};
    ucp_ep_params_t     ep_params     = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    ucp_address_t      *address;
    size_t              length;

    MUST(ucp_worker_create(context, &worker_params, &worker));
    MUST(ucp_worker_get_address(worker, &address, &length));
    ep_params.address = address;
    MUST(ucp_ep_create(worker, &ep_params, &ep));
    ucp_worker_release_address(worker, address);
}

/* As a program that has nothing else to do. */
static void wait_for(void *request)
{
    while (request != NULL && ucp_request_check_status(request) == UCS_INPROGRESS) {
        if (ucp_worker_progress(worker) == 0) {
            MUST(ucp_worker_wait(worker));
        }
    }
    if (request != NULL) {
        MUST(ucp_request_check_status(request));
        ucp_request_free(request);
    }
}

/* Mapped memory. */
static void check_kind(const device_runtime_t *gpu)
{
    size_t               size   = 1 << 20;
    char                *addr   = gpu->alloc(0, size, DEVICE_PLAIN);
    ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
                                                 UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                   .address = addr,
                                   .length  = size};
    ucp_mem_attr_t       attr   = {.field_mask = UCP_MEM_ATTR_FIELD_MEM_TYPE};
    ucp_mem_h            memh;

    MUST(ucp_mem_map(context, &params, &memh));
    MUST(ucp_mem_query(memh, &attr));
    check(attr.mem_type != UCS_MEMORY_TYPE_HOST, "bytes mapped as of a GPU", size);
    MUST(ucp_mem_unmap(context, memh));
    gpu->free(addr, DEVICE_PLAIN);
}

/* ---- what UCX has kept ----------------------------------------------------------------------- */

static int       forgotten; /* atomic: memory of which UCX has dropped everything */
static uct_md_h  gpu_md;
static pthread_t slow_thread;

/* Takes its time. */
static void on_free(ucm_event_type_t type, ucm_event_t *event, void *unused)
{
    (void)type;
    (void)event;
    (void)unused;
    usleep(pthread_equal(pthread_self(), slow_thread) ? 100000 : 0);
    __atomic_store_n(&forgotten, 1, __ATOMIC_RELEASE);
}

static void gpu_md_open(void)
{
    uct_component_attr_t attr = {.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME};
    uct_component_h     *components;
    uct_md_config_t     *config;
    unsigned             num, i;

    MUST(uct_query_components(&components, &num));
    for (i = 0; i < num && strcmp(attr.name, "angara_gpu") != 0; ++i) {
        MUST(uct_component_query(components[i], &attr));
    }
    if (strcmp(attr.name, "angara_gpu") != 0) {
        fprintf(stderr, "there is no component angara_gpu\n");
        exit(1);
    }
    MUST(uct_md_config_read(components[i - 1], NULL, NULL, &config));
    MUST(uct_md_open(components[i - 1], "angara_gpu", config, &gpu_md));
    uct_config_release(config);
    uct_release_component_list(components);
}

static void *ask_about(void *addr)
{
    uct_md_mem_attr_t attr = {.field_mask = UCT_MD_MEM_ATTR_FIELD_MEM_TYPE};

    MUST(uct_md_mem_query(gpu_md, addr, 1, &attr));
    return NULL;
}

/* Two threads meet memory that UCX doesn't know: neither goes on before the old has been dropped.
 */
static void check_hearing(const device_runtime_t *gpu)
{
    char     *addr = gpu->alloc(0, 4096, DEVICE_PLAIN);
    pthread_t thread;

    gpu_md_open();
    MUST(ucm_set_event_handler(UCM_EVENT_MEM_TYPE_FREE, 2000, on_free, NULL));
    if (pthread_create(&slow_thread, NULL, ask_about, addr) != 0) {
        exit(1);
    }
    usleep(50000);
    if (pthread_create(&thread, NULL, ask_about, addr) != 0) {
        exit(1);
    }
    pthread_join(thread, NULL);
    check(forgotten, "threads ask: UCX has dropped what it kept about the address", 2);
    pthread_join(slow_thread, NULL);
    forgotten = 0;
    ask_about(addr);
    check(!forgotten, "of memory that UCX knows nothing is dropped", 4096);
    ucm_unset_event_handler(UCM_EVENT_MEM_TYPE_FREE, on_free, NULL);
    uct_md_close(gpu_md);
    gpu->free(addr, DEVICE_PLAIN);
}

/* ---- children -------------------------------------------------------------------------------- */

static int stop; /* atomic */

static void *look_up(void *unused)
{
    ucs_memory_info_t info;

    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        (void)ucs_memtype_cache_lookup(unused, 1, &info);
    }
    return NULL;
}

/* As a GPU's driver does, while a thread of the parent uses UCX. */
static void check_children(void)
{
    int       fd = open("/dev/zero", O_RDONLY | O_CLOEXEC), result, good = 1;
    pthread_t thread;
    pid_t     pid;

    if (fd < 0 || pthread_create(&thread, NULL, look_up, &stop) != 0) {
        exit(1);
    }
    for (unsigned i = 0; i < 100 && good; ++i) {
        pid = fork();
        if (pid == 0) {
            alarm(20);
            _exit(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED);
        }
        good = waitpid(pid, &result, 0) == pid && result == 0;
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    close(fd);
    check(good, "children hang", 0);
}

/* ---- messages -------------------------------------------------------------------------------- */

static void exchange(const void *from, void *to, size_t size)
{
    ucp_request_param_t param   = {0};
    void               *receive = ucp_tag_recv_nbx(worker, to, size, 1, 1, &param);
    void               *send    = ucp_tag_send_nbx(ep, from, size, 1, &param);

    wait_for(send);
    wait_for(receive);
}

static void send_to_self(const device_runtime_t *gpu, size_t size)
{
    char *host = malloc(size), *back = malloc(size);
    char *from = gpu->alloc(0, size, DEVICE_PLAIN), *to = gpu->alloc(0, size, DEVICE_PLAIN);

    memset(host, (int)size | 1, size);
    gpu->write(from, host, size);
    exchange(from, to, size);
    gpu->read(back, to, size);
    check(memcmp(host, back, size) == 0, "bytes", size);
    gpu->free(from, DEVICE_PLAIN);
    gpu->free(to, DEVICE_PLAIN);
    free(host);
    free(back);
}

/* Is a message sent before it is received? UCP's second generation of protocols doesn't do that. */
static int is_eager(const device_runtime_t *gpu)
{
    enum { SIZE = 1000, POLLS = 10000 };
    ucp_request_param_t param = {0};
    char               *from  = gpu->alloc(0, SIZE, DEVICE_PLAIN);
    void               *send  = ucp_tag_send_nbx(ep, from, SIZE, 1, &param);
    int                 result;

    for (unsigned i = 0; i < POLLS; ++i) {
        ucp_worker_progress(worker);
    }
    result = send == NULL || ucp_request_check_status(send) != UCS_INPROGRESS;
    wait_for(ucp_tag_recv_nbx(worker, from, SIZE, 1, 1, &param));
    wait_for(send);
    gpu->free(from, DEVICE_PLAIN);
    return result;
}

/* Messages of several sends are copied at the same time, and arrive in order, also among others. */
static void send_several(const device_runtime_t *gpu, size_t size)
{
    enum { SEVERAL = 8, ALL = SEVERAL + 1 };
    ucp_request_param_t param = {0};
    char               *from  = gpu->alloc(0, SEVERAL * size, DEVICE_PLAIN);
    char               *sent = malloc(ALL * size), *back = calloc(ALL, size);
    void               *sends[ALL], *receives[ALL];
    standin_t           standin;

    for (size_t i = 0; i < ALL * size; ++i) {
        sent[i] = (char)(i / size * 31 + i % size);
    }
    gpu->write(from, sent, SEVERAL * size);
    if (!standin_load(device_library(gpu), &standin)) {
        fprintf(stderr, "needs the stand-in\n");
        exit(1);
    }
    for (unsigned i = 0; i < ALL; ++i) {
        receives[i] = ucp_tag_recv_nbx(worker, back + i * size, size, 1, 1, &param);
    }
    standin.hold(1); /* who waits for a copy waits for ever */
    for (unsigned i = 0; i < SEVERAL; ++i) {
        sends[i] = ucp_tag_send_nbx(ep, from + i * size, size, 1, &param);
    }
    sends[SEVERAL] = ucp_tag_send_nbx(ep, sent + SEVERAL * size, size, 1, &param);
    ucp_worker_progress(worker);
    check(back[SEVERAL * size + 1] == 0, "bytes of host memory stay behind GPU memory's", size);
    standin.hold(0);
    for (unsigned i = 0; i < ALL; ++i) {
        wait_for(sends[i]);
        wait_for(receives[i]);
    }
    check(memcmp(sent, back, ALL * size) == 0, "bytes of several sends", size);
    gpu->free(from, DEVICE_PLAIN);
    free(sent);
    free(back);
}

/* Host memory, while there is no runtime: UCX looks nothing up, if it can watch mappings. */
static void send_host(const device_runtime_t *gpu)
{
    char from[8] = "message", to[8] = "";
    int  is_loaded  = dlopen(gpu->library, RTLD_LAZY | RTLD_NOLOAD) != NULL; /* by UCX */
    int  is_watched = getenv("UCX_MEM_EVENTS") == NULL && !is_loaded;
    ucs_memory_info_t info;

    exchange(from, to, sizeof(from));
    check(memcmp(from, to, sizeof(from)) == 0, "bytes of host memory", sizeof(from));
    check_children();
    check(ucs_memtype_cache_is_empty() == is_watched, "GPU runtimes: UCX looks nothing up", 0);
    check(ucs_memtype_cache_lookup(from, sizeof(from), &info) == UCS_ERR_UNSUPPORTED,
          "GPU runtimes: UCX takes no lock of its cache's", 0);
}

/* ---- ends ------------------------------------------------------------------------------------ */

enum { AMID_SIZE = 1000, AMID_MANY = 2000, AMID_FEW = 3 };

static standin_t amid; /* its copies are held */

static void let_go_of(void *request)
{
    if (UCS_PTR_IS_PTR(request)) {
        ucp_request_free(request);
    }
}

static void on_error(void *unused, ucp_ep_h failed, ucs_status_t status)
{
    (void)unused;
    (void)failed;
    (void)status;
}

static ucp_worker_h other_worker(void)
{
    ucp_worker_params_t params = {0};
    ucp_worker_h        other;

    MUST(ucp_worker_create(context, &params, &other));
    return other;
}

/* A connection that may be closed by force, with its lanes made. */
static ucp_ep_h connected(ucp_worker_h from, ucp_worker_h to)
{
    ucp_request_param_t param  = {0};
    ucp_ep_params_t     params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                                                UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                                UCP_EP_PARAM_FIELD_ERR_HANDLER,
                                  .err_mode       = UCP_ERR_HANDLING_MODE_PEER,
                                  .err_handler.cb = on_error};
    ucp_address_t      *address;
    char                byte = 0, got;
    void               *send, *receive;
    size_t              length;
    ucp_ep_h            made;

    MUST(ucp_worker_get_address(to, &address, &length));
    params.address = address;
    MUST(ucp_ep_create(from, &params, &made));
    ucp_worker_release_address(to, address);

    receive = ucp_tag_recv_nbx(to, &got, 1, 0, -1, &param);
    send    = ucp_tag_send_nbx(made, &byte, 1, 0, &param);
    while (ucp_request_check_status(receive) == UCS_INPROGRESS ||
           (send != NULL && ucp_request_check_status(send) == UCS_INPROGRESS)) {
        ucp_worker_progress(from);
        ucp_worker_progress(to);
    }
    for (unsigned i = 0; i < 1000; ++i) { /* what UCP says about its lanes, too */
        ucp_worker_progress(from);
        ucp_worker_progress(to);
    }
    let_go_of(send);
    let_go_of(receive);
    return made;
}

static void *release_soon(void *unused)
{
    usleep(200000);
    amid.hold(0);
    return unused;
}

static pthread_t hold_a_while(void)
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, release_soon, NULL) != 0) {
        exit(1);
    }
    return thread;
}

/* @return number of sends that are under way. */
static unsigned under_way(void *const *sends, unsigned num)
{
    unsigned found = 0;

    for (unsigned i = 0; i < num; ++i) {
        found += UCS_PTR_IS_PTR(sends[i]) && ucp_request_check_status(sends[i]) == UCS_INPROGRESS;
    }
    return found;
}

/* @return 1 if it has ended before long, though nobody receives. */
static int close_by_force(ucp_worker_h of, ucp_ep_h closed)
{
    ucp_request_param_t param   = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                   .flags        = UCP_EP_CLOSE_FLAG_FORCE};
    void               *request = ucp_ep_close_nbx(closed, &param);

    for (unsigned i = 0; i < 2000 && under_way(&request, 1) > 0; ++i) {
        if (ucp_worker_progress(of) == 0) {
            usleep(1000);
        }
    }
    if (under_way(&request, 1) > 0) {
        return 0;
    }
    let_go_of(request);
    return 1;
}

/* A worker ends while messages are copied, whose requests have been freed. */
static void destroy_amid(const char *from)
{
    ucp_request_param_t param = {0};
    ucp_worker_h        ended = other_worker();
    ucp_ep_h            self  = connected(ended, ended);
    pthread_t           thread;

    amid.hold(1);
    for (unsigned i = 0; i < AMID_FEW; ++i) {
        let_go_of(ucp_tag_send_nbx(self, from, AMID_SIZE, 1, &param));
    }
    thread = hold_a_while();
    ucp_worker_destroy(ended);
    pthread_join(thread, NULL);
    check(1, "bytes are copied when a worker ends", AMID_SIZE);
}

/* Messages wait for a receiver that does nothing. */
static void close_amid(const char *from)
{
    ucp_request_param_t param  = {0};
    ucp_worker_h        sender = other_worker(), receiver = other_worker();
    ucp_ep_h            closed = connected(sender, receiver);
    void              **sends  = calloc(AMID_MANY, sizeof(*sends));
    int                 has_closed;

    for (unsigned i = 0; i < AMID_MANY; ++i) {
        sends[i] = ucp_tag_send_nbx(closed, from, AMID_SIZE, 1, &param);
        ucp_worker_progress(sender);
    }
    if (under_way(sends, AMID_MANY) == 0) {
        fprintf(stderr, "all of %u sends have found room\n", AMID_MANY);
        exit(1);
    }
    has_closed = close_by_force(sender, closed);
    check(has_closed, "bytes wait for room when a connection is closed by force", AMID_SIZE);
    check(under_way(sends, AMID_MANY) == 0, "bytes that waited for room: no send is left",
          AMID_SIZE);
    if (has_closed) {
        for (unsigned i = 0; i < AMID_MANY; ++i) {
            let_go_of(sends[i]);
        }
        ucp_worker_destroy(sender);
        ucp_worker_destroy(receiver);
    }
    free(sends);
}

/* One of two connections to a receiver is closed by force, while messages of both are copied. */
static void close_one_amid(const char *from, const char *bytes)
{
    ucp_request_param_t param  = {0};
    ucp_worker_h        sender = other_worker(), receiver = other_worker();
    ucp_ep_h            closed = connected(sender, receiver), kept = connected(sender, receiver);
    char               *to = calloc(AMID_FEW, AMID_SIZE);
    void               *dropped[AMID_FEW], *sends[AMID_FEW + 1], *receives[AMID_FEW], *flush;
    pthread_t           thread;
    int                 has_ended = 1;

    for (unsigned i = 0; i < AMID_FEW; ++i) {
        receives[i] = ucp_tag_recv_nbx(receiver, to + i * AMID_SIZE, AMID_SIZE, 2, -1, &param);
    }
    amid.hold(1);
    for (unsigned i = 0; i < AMID_FEW; ++i) {
        dropped[i] = ucp_tag_send_nbx(closed, from, AMID_SIZE, 1, &param);
        sends[i]   = ucp_tag_send_nbx(kept, from + i * AMID_SIZE, AMID_SIZE, 2, &param);
    }
    flush  = ucp_ep_flush_nbx(kept, &param);
    thread = hold_a_while();
    check(close_by_force(sender, closed), "bytes of two: one is closed by force", AMID_SIZE);
    check(under_way(dropped, AMID_FEW) == 0, "bytes of two: no send of that one is left",
          AMID_SIZE);
    pthread_join(thread, NULL);

    sends[AMID_FEW] = flush;
    for (unsigned i = 0;
         i < 2000 && (under_way(sends, AMID_FEW + 1) > 0 || under_way(receives, AMID_FEW) > 0);
         ++i) {
        if (ucp_worker_progress(sender) + ucp_worker_progress(receiver) == 0) {
            usleep(1000);
        }
    }
    for (unsigned i = 0; i < AMID_FEW; ++i) {
        has_ended &= sends[i] == NULL || ucp_request_check_status(sends[i]) == UCS_OK;
    }
    check(has_ended && under_way(sends, AMID_FEW + 1) == 0 && under_way(receives, AMID_FEW) == 0,
          "bytes of two: the sends, and a flush, of the other end well", AMID_SIZE);
    check(memcmp(to, bytes, AMID_FEW * AMID_SIZE) == 0, "bytes of two: the other's, in order",
          AMID_SIZE);
    for (unsigned i = 0; i < AMID_FEW; ++i) {
        let_go_of(dropped[i]);
        let_go_of(sends[i]);
        let_go_of(receives[i]);
    }
    let_go_of(flush);
    ucp_worker_destroy(sender);
    ucp_worker_destroy(receiver);
    free(to);
}

static void end_amid(const device_runtime_t *gpu)
{
    char *bytes = malloc(AMID_FEW * AMID_SIZE);
    char *from  = gpu->alloc(0, AMID_FEW * AMID_SIZE, DEVICE_PLAIN);

    if (!standin_load(device_library(gpu), &amid)) {
        exit(1);
    }
    for (size_t i = 0; i < AMID_FEW * AMID_SIZE; ++i) {
        bytes[i] = (char)(i / AMID_SIZE * 31 + i);
    }
    gpu->write(from, bytes, AMID_FEW * AMID_SIZE);
    close_amid(from);
    close_one_amid(from, bytes);
    destroy_amid(from);
    gpu->free(from, DEVICE_PLAIN);
    free(bytes);
}

/* ---- mapped memory that was freed ------------------------------------------------------------ */

/* A region of a receiver's, and the key to it. */
typedef struct {
    char      *addr;
    ucp_mem_h  memh;
    ucp_rkey_h rkey;
} mapped_t;

static void map_for(ucp_ep_h user, char *addr, size_t size, mapped_t *mapped)
{
    ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
                                                 UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                   .address = addr,
                                   .length  = size};
    void                *key;
    size_t               length;

    mapped->addr = addr;
    MUST(ucp_mem_map(context, &params, &mapped->memh));
    MUST(ucp_rkey_pack(context, mapped->memh, &key, &length));
    MUST(ucp_ep_rkey_unpack(user, key, &mapped->rkey));
    ucp_rkey_buffer_release(key);
}

/* @return UCS_OK once the bytes are there; or the error that the connection has ended with */
static ucs_status_t put_and_wait(ucp_worker_h from, ucp_worker_h to, ucp_ep_h user,
                                 const mapped_t *mapped, const void *bytes, size_t size)
{
    ucp_request_param_t param  = {0};
    ucs_status_t        status = UCS_OK;
    void               *ends[2];

    ends[0] = ucp_put_nbx(user, bytes, size, (uintptr_t)mapped->addr, mapped->rkey, &param);
    ends[1] = ucp_ep_flush_nbx(user, &param);
    while (under_way(ends, 2) > 0) {
        ucp_worker_progress(from);
        ucp_worker_progress(to);
    }
    for (unsigned i = 0; i < 2; ++i) {
        ucs_status_t end = UCS_PTR_IS_PTR(ends[i]) ? ucp_request_check_status(ends[i]) :
                                                     UCS_PTR_RAW_STATUS(ends[i]);

        status = end != UCS_OK ? end : status;
        let_go_of(ends[i]);
    }
    return status;
}

/*
 * The memory of a handle is freed, and other memory gets its address: the handle doesn't reach it.
 * A new handle does, though UCX keeps registrations, and the old handle is still there.
 */
static void put_to_freed(const device_runtime_t *gpu, size_t size, size_t new_size)
{
    ucp_worker_h sender = other_worker(), receiver = other_worker();
    ucp_ep_h     user  = connected(sender, receiver);
    char        *bytes = malloc(new_size), *back = malloc(new_size), *zeros = calloc(1, new_size);
    char        *addr = gpu->alloc(0, size, DEVICE_PLAIN), *again;
    void        *others[64];
    unsigned     num = 0;
    mapped_t     old, new;

    memset(bytes, 7, new_size);
    map_for(user, addr, size, &old);
    check(put_and_wait(sender, receiver, user, &old, bytes, size) == UCS_OK, "bytes are put", size);
    gpu->read(back, addr, size);
    check(memcmp(bytes, back, size) == 0, "bytes have come", size);

    gpu->free(addr, DEVICE_PLAIN);
    while ((again = gpu->alloc(0, new_size, DEVICE_PLAIN)) != addr && num < 64) {
        others[num++] = again;
    }
    check(again == addr, "bytes of other memory at the same address", new_size);
    gpu->write(addr, zeros, new_size);
    check(put_and_wait(sender, receiver, user, &old, bytes, size) != UCS_OK,
          "bytes for memory that was freed are refused", size);
    gpu->read(back, addr, new_size);
    check(memcmp(zeros, back, new_size) == 0, "bytes of the new memory are as they were", new_size);

    ucp_rkey_destroy(old.rkey);
    check(close_by_force(sender, user), "bytes were refused: the connection closes", size);
    user = connected(sender, receiver);
    map_for(user, addr, new_size, &new);
    check(put_and_wait(sender, receiver, user, &new, bytes, new_size) == UCS_OK,
          "bytes are put by a new handle", new_size);
    gpu->read(back, addr, new_size);
    check(memcmp(bytes, back, new_size) == 0, "bytes have come by the new handle", new_size);
    ucp_rkey_destroy(new.rkey);
    MUST(ucp_mem_unmap(context, new.memh));
    MUST(ucp_mem_unmap(context, old.memh));
    while (num > 0) {
        gpu->free(others[--num], DEVICE_PLAIN);
    }
    gpu->free(addr, DEVICE_PLAIN);
    ucp_worker_destroy(sender);
    ucp_worker_destroy(receiver);
    free(bytes);
    free(back);
    free(zeros);
}

int main(void)
{
    const char             *name = getenv("ANGARA_TEST_GPU");
    const device_runtime_t *gpu  = device_runtime(name != NULL ? name : "cuda");

    if (gpu == NULL) {
        fprintf(stderr, "ANGARA_TEST_GPU: cuda or rocm\n");
        return 2;
    }
    if (getenv("ANGARA_TEST_GPU_LATE") != NULL) {
        init();
        connect_self();
        send_host(gpu);
    }
    if (gpu->open() == 0) {
        fprintf(stderr, "there is no GPU\n");
        return 1;
    }
    if (worker == NULL) {
        init();
        check_kind(gpu);
        connect_self();
    }
    if (getenv("UCX_MEM_EVENTS") == NULL) { /* without them UCX keeps nothing */
        check_hearing(gpu);
    }
    for (size_t size = 1; size <= 32u << 20; size *= 8) {
        send_to_self(gpu, size);
    }
    if (is_eager(gpu)) {
        send_several(gpu, 16);
        send_several(gpu, 1000);
        end_amid(gpu);
    } else {
        printf("ok %u - eager messages # SKIP GPU memory goes by rendezvous\n", ++num_tests);
    }
    put_to_freed(gpu, 8, 8);
    put_to_freed(gpu, 1000, 1008); /* alike for a cache that widens ranges to 16 bytes */
    put_to_freed(gpu, 300000, 300000);
    printf("1..%u\n", num_tests);
    fflush(stdout);
    return num_failed != 0;
}
