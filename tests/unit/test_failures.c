/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Failure injection: a whole life of the library (open, PE, window, connect, regions, operations,
 * close) in which the n-th allocation or system call fails, for every n until one life has fewer.
 * Each must end with a status, outputs untouched, and nothing left: memory, descriptors, mappings.
 *
 * The calls are replaced at link time (ld --wrap, see build.mk); only those of this thread fail.
 */
#define _GNU_SOURCE
#include "../common/clock.h"
#include "soft.h"

#include "src/config.h"
#include "src/log.h"

#include <angara/angara.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define SIZE  65536u
#define HUGE_ (1ll << 30) /* nothing here may ask the kernel for that much memory */
#define UNSET ((void *)(uintptr_t)0x5a5a)

/* ---- the replaced calls -------------------------------------------------------------------- */

static __thread unsigned    countdown; /* 0: no failures; n: the n-th call from here on fails */
static __thread const char *failed;    /* which one did */
static long                 live;      /* blocks of memory allocated and not freed */
static int                  huge;      /* somebody asked for HUGE_ */

static int fails(const char *name, int error)
{
    if ((countdown == 0) || (--countdown != 0)) {
        return 0;
    }
    failed = name;
    errno  = error;
    return 1;
}

static void *counted(void *block)
{
    if (block != NULL) {
        __atomic_add_fetch(&live, 1, __ATOMIC_RELAXED);
    }
    return block;
}

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size)
{
    return fails("malloc", ENOMEM) ? NULL : counted(__real_malloc(size));
}

void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size)
{
    return fails("calloc", ENOMEM) ? NULL : counted(__real_calloc(count, size));
}

void *__real_realloc(void *block, size_t size);
void *__wrap_realloc(void *block, size_t size);
void *__wrap_realloc(void *block, size_t size)
{
    void *moved;

    if (fails("realloc", ENOMEM)) {
        return NULL;
    }
    moved = __real_realloc(block, size);
    return (block == NULL) ? counted(moved) : moved;
}

void __real_free(void *block);
void __wrap_free(void *block);
void __wrap_free(void *block)
{
    if (block != NULL) {
        __atomic_sub_fetch(&live, 1, __ATOMIC_RELAXED);
    }
    __real_free(block);
}

/* A call that returns an int, or a long, and -1 with errno. */
#define WRAP(_type, _name, _error, _params, _args)                \
    _type __real_##_name _params;                                 \
    _type __wrap_##_name _params;                                 \
    _type __wrap_##_name _params                                  \
    {                                                             \
        return fails(#_name, _error) ? -1 : __real_##_name _args; \
    }

WRAP(int, memfd_create, EMFILE, (const char *name, unsigned flags), (name, flags))
WRAP(int, ftruncate, ENOSPC, (int fd, off_t size), (fd, size))
WRAP(int, fstat, EIO, (int fd, struct stat *info), (fd, info))
WRAP(int, pipe2, EMFILE, (int *fds, int flags), (fds, flags))
WRAP(int, epoll_create1, EMFILE, (int flags), (flags))
WRAP(int, epoll_ctl, ENOSPC, (int fd, int op, int other, struct epoll_event *event),
     (fd, op, other, event))
WRAP(ssize_t, getrandom, ENOSYS, (void *buffer, size_t size, unsigned flags), (buffer, size, flags))
WRAP(ssize_t, process_vm_readv, EPERM,
     (pid_t pid, const struct iovec *to, unsigned long n, const struct iovec *from, unsigned long m,
      unsigned long flags),
     (pid, to, n, from, m, flags))
WRAP(ssize_t, process_vm_writev, EPERM,
     (pid_t pid, const struct iovec *from, unsigned long n, const struct iovec *to, unsigned long m,
      unsigned long flags),
     (pid, from, n, to, m, flags))

int __real_fallocate(int fd, int mode, off_t offset, off_t length);
int __wrap_fallocate(int fd, int mode, off_t offset, off_t length);
int __wrap_fallocate(int fd, int mode, off_t offset, off_t length)
{
    if (length >= HUGE_) { /* never for real: the machine is shared */
        huge  = 1;
        errno = ENOSPC;
        return -1;
    }
    return fails("fallocate", ENOSPC) ? -1 : __real_fallocate(fd, mode, offset, length);
}

void *__real_mmap(void *addr, size_t size, int prot, int flags, int fd, off_t offset);
void *__wrap_mmap(void *addr, size_t size, int prot, int flags, int fd, off_t offset);
void *__wrap_mmap(void *addr, size_t size, int prot, int flags, int fd, off_t offset)
{
    return fails("mmap", ENOMEM) ? MAP_FAILED : __real_mmap(addr, size, prot, flags, fd, offset);
}

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
                          void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
                          void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
                          void *arg)
{
    return fails("pthread_create", EAGAIN) ? EAGAIN : __real_pthread_create(thread, attr, run, arg);
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    return fails("open", EMFILE) ? -1 : __real_open(path, flags); /* nothing here creates files */
}

int __real_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...)
{
    va_list args;
    long    arg;

    va_start(args, command);
    arg = va_arg(args, long);
    va_end(args);
    return fails("fcntl", EINVAL) ? -1 : __real_fcntl(fd, command, arg);
}

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...)
{
    va_list args;
    long    a[6]; /* as many as any system call has */
    int     i;

    va_start(args, number);
    for (i = 0; i < 6; ++i) {
        a[i] = va_arg(args, long);
    }
    va_end(args);
    if (fails((number == SYS_pidfd_open) ? "pidfd_open" : "syscall",
              (number == SYS_pidfd_open) ? EMFILE : ENOSYS)) {
        return -1;
    }
    return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* ---- the peer: a process of its own -------------------------------------------------------- */

typedef struct {
    angara_address_t address;
    uint64_t         private_key, shared_key;
} hello_t;

static struct {
    pid_t   pid;
    int     sock;
    hello_t hello;
} peer;

static void peer_main(int sock)
{
    static char     memory[SIZE];
    angara_domain_h dom;
    angara_pe_h     pe;
    angara_mr_h     private_mr, shared_mr;
    size_t          length = SIZE;
    void           *addr;
    hello_t         hello;
    char            byte;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if ((angara_open("soft", &dom) != ANGARA_OK) ||
        (angara_pe_create(dom, NULL, &pe) != ANGARA_OK) ||
        (angara_pe_window_commit(pe, 0, SIZE) != ANGARA_OK) ||
        (angara_mr_register(dom, memory, SIZE, ANGARA_ACCESS_ALL, &private_mr) != ANGARA_OK) ||
        (angara_mem_alloc(dom, &length, ANGARA_ACCESS_ALL, &addr, &shared_mr) != ANGARA_OK)) {
        _exit(1);
    }
    memset(&hello, 0, sizeof(hello));
    angara_pe_address(pe, &hello.address);
    hello.private_key = angara_mr_key(private_mr);
    hello.shared_key  = angara_mr_key(shared_mr);
    if (write(sock, &hello, sizeof(hello)) != sizeof(hello)) {
        _exit(1);
    }
    while (read(sock, &byte, 1) > 0) { /* one byte asks to empty the event ring */
        angara_event_t event;

        while (angara_pe_event_poll(pe, &event) == ANGARA_OK) {
        }
        angara_pe_progress(pe);
        if (write(sock, &byte, 1) != 1) {
            break;
        }
    }
    _exit(0);
}

static int group_setup(void **state)
{
    struct rlimit limit;
    int           socks[2];

    (void)state;
    /* A wrong size fails in here and doesn't take the machine along. */
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0) {
        return -1;
    }
    limit.rlim_cur = (limit.rlim_cur < (4ul << 30)) ? limit.rlim_cur : 4ul << 30;
    setrlimit(RLIMIT_FSIZE, &limit);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, socks) != 0) {
        return -1;
    }
    peer.pid = fork();
    if (peer.pid == 0) {
        close(socks[0]);
        peer_main(socks[1]);
    }
    close(socks[1]);
    peer.sock = socks[0];
    if ((peer.pid < 0) ||
        (recv(peer.sock, &peer.hello, sizeof(peer.hello), MSG_WAITALL) != sizeof(peer.hello))) {
        return -1;
    }
    return (ang_config_load() == ANGARA_OK) ? 0 : -1;
}

static int group_teardown(void **state)
{
    (void)state;
    close(peer.sock);
    return (waitpid(peer.pid, NULL, 0) == peer.pid) ? 0 : -1;
}

/* ---- what is left -------------------------------------------------------------------------- */

static unsigned descriptors(void)
{
    unsigned count = 0;
    DIR     *dir   = opendir("/proc/self/fd");

    assert_non_null(dir);
    while (readdir(dir) != NULL) {
        ++count;
    }
    closedir(dir);
    return count;
}

static unsigned mappings(void)
{
    unsigned count = 0;
    char     line[512];
    FILE    *maps = fopen("/proc/self/maps", "r");

    assert_non_null(maps);
    while (fgets(line, sizeof(line), maps) != NULL) {
        count += strstr(line, "memfd:") != NULL;
    }
    fclose(maps);
    return count;
}

/* ---- one life ------------------------------------------------------------------------------ */

typedef struct {
    angara_domain_h       dom;
    angara_pe_h           pe;
    angara_peer_h         remote, self;
    angara_mr_h           mr, shared;
    angara_marker_slot_t *slot;
    char                 *memory;
} life_t;

/* Marker to the peer, awaited until it lands or the pair has failed. */
static angara_status_t await(life_t *life, uint64_t value)
{
    angara_status_t status = angara_marker(life->remote, life->slot, value);
    double          end    = deadline_in(10);

    while ((status == ANGARA_OK) && (*life->slot != value)) {
        angara_pe_progress(life->pe);
        status = angara_peer_status(life->remote);
        if (now_seconds() > end) {
            fail_msg("a marker was lost after %s failed", (failed != NULL) ? failed : "nothing");
        }
    }
    return status;
}

#define TRY(_call)                         \
    do {                                   \
        angara_status_t _status = (_call); \
        if (_status != ANGARA_OK) {        \
            return _status;                \
        }                                  \
    } while (0)

static angara_status_t operations(life_t *life)
{
    uint64_t      base      = *life->slot;
    uint64_t      key       = peer.hello.private_key;
    char          record[8] = "record";
    angara_xfer_t xfers[]   = {{life->mr, life->memory, key, 0, 100},
                               {life->mr, life->memory, key, 4, 4},
                               {life->mr, life->memory, key, 8, 100}};
    unsigned      posted;

    TRY(angara_put_flag(life->remote, 8, life->memory, 1000, 0, 1));
    TRY(angara_offload_put(life->remote, life->mr, life->memory, peer.hello.shared_key, 0, 20000));
    TRY(angara_offload_put(life->remote, life->mr, life->memory, key, 0, 20000));
    TRY(await(life, base + 1));
    TRY(angara_offload_get(life->remote, life->mr, life->memory, key, 0, 20000));
    TRY(angara_offload_get(life->remote, life->mr, life->memory, key, 4, 4));
    TRY(angara_offload_batch(life->remote, ANGARA_BATCH_GET, xfers, 3, &posted));
    TRY(angara_atomic(life->remote, ANGARA_ATOMIC_ADD, 8, 1, 0, key, 0, life->mr, life->memory));
    TRY(angara_offload_put_inline(life->remote, record, key, 8, 8));
    TRY(await(life, base + 2));
    TRY(angara_notify(life->remote, record, sizeof(record)));
    TRY(angara_offload_put(life->self, life->mr, life->memory, angara_mr_key(life->shared), 0,
                           100));
    TRY(angara_marker(life->self, life->slot, base + 3));
    return ANGARA_OK;
}

static angara_status_t create(life_t *life)
{
    angara_pe_params_t params = {.size = sizeof(params), .window_size = SIZE, .events = 16};
    angara_address_t   address;
    size_t             length = SIZE;
    angara_event_t     event;
    void              *addr;
    int                fd;

    TRY(angara_open("soft", &life->dom));
    TRY(angara_pe_create(life->dom, &params, &life->pe));
    TRY(angara_pe_window_commit(life->pe, 0, SIZE));
    TRY(angara_peer_connect(life->pe, &peer.hello.address, &life->remote));
    angara_pe_address(life->pe, &address);
    TRY(angara_peer_connect(life->pe, &address, &life->self));
    TRY(angara_marker_slot_get(life->pe, &life->slot));
    TRY(angara_mr_register(life->dom, life->memory, SIZE, ANGARA_ACCESS_ALL, &life->mr));
    TRY(angara_mem_alloc(life->dom, &length, ANGARA_ACCESS_ALL, &addr, &life->shared));
    TRY(operations(life));
    TRY(angara_pe_event_fd(life->pe, &fd));
    if (angara_pe_event_arm(life->pe) == ANGARA_OK) {
        angara_pe_event_disarm(life->pe);
    }
    while (angara_pe_event_poll(life->pe, &event) == ANGARA_OK) {
    }
    return ANGARA_OK;
}

/* Undo what create() got to; failures are over by then, as undoing must not fail. */
static void destroy(life_t *life)
{
    if (life->shared != UNSET) {
        assert_int_equal(angara_mem_free(life->shared), ANGARA_OK);
    }
    if (life->mr != UNSET) {
        assert_int_equal(angara_mr_deregister(life->mr), ANGARA_OK);
    }
    if (life->slot != UNSET) {
        angara_marker_slot_put(life->pe, life->slot);
    }
    if (life->self != UNSET) {
        angara_peer_disconnect(life->self);
    }
    if (life->remote != UNSET) {
        angara_peer_disconnect(life->remote);
    }
    if (life->pe != UNSET) {
        angara_pe_destroy(life->pe);
    }
    if (life->dom != UNSET) {
        assert_int_equal(angara_close(life->dom), ANGARA_OK);
    }
}

/* @return 1 if the n-th call came and was made to fail. */
static int one_life(unsigned n, const char **name)
{
    static char     memory[SIZE];
    life_t          life = {UNSET, UNSET, UNSET, UNSET, UNSET, UNSET, UNSET, memory};
    angara_status_t status;
    char            byte = 0;

    failed    = NULL;
    countdown = n;
    status    = create(&life);
    countdown = 0;
    *name     = failed;
    assert_true((status <= ANGARA_OK) && (status > ANGARA_ERR_LAST));
    assert_int_not_equal(status, ANGARA_ERR_INVALID);
    destroy(&life);
    if (*name == NULL) {
        assert_int_equal(status, ANGARA_OK);
    }
    if ((write(peer.sock, &byte, 1) != 1) || (read(peer.sock, &byte, 1) != 1)) {
        fail_msg("the peer is gone");
    }
    return *name != NULL;
}

static void all_failures(void)
{
    unsigned    n, base_fds, base_maps;
    long        base_live;
    const char *name;

    assert_false(one_life(0, &name)); /* what a process keeps once is there after this */
    base_fds  = descriptors();
    base_maps = mappings();
    base_live = live;
    for (n = 1; one_life(n, &name); ++n) {
        if ((descriptors() != base_fds) || (mappings() != base_maps) || (live != base_live)) {
            fail_msg("call %u, %s, failed and left %d descriptors, %d mappings, %ld blocks", n,
                     name, (int)descriptors() - (int)base_fds, (int)mappings() - (int)base_maps,
                     live - base_live);
        }
        assert_true(n < 2000);
    }
    assert_true(n > 40); /* injection does reach the library */
    assert_false(huge);
}

static void test_all(void **state)
{
    (void)state;
    ang_log_level = ANG_LOG_ERROR;
    all_failures();
}

/* The same where ptrace rules forbid process_vm: the helper's paths. */
static void test_all_helper(void **state)
{
    (void)state;
    ang_log_level  = ANG_LOG_ERROR;
    ang_config.cma = 0;
    all_failures();
    ang_config.cma = 1;
}

static void test_all_no_loopback(void **state)
{
    (void)state;
    ang_log_level       = ANG_LOG_ERROR;
    ang_config.loopback = 0;
    all_failures();
    ang_config.loopback = 1;
}

static void test_all_chaos(void **state)
{
    (void)state;
    ang_log_level    = ANG_LOG_ERROR;
    ang_config.chaos = 3;
    all_failures();
    ang_config.chaos = 0;
}

/* More memory than there is: refused before the kernel is asked, which would not refuse. */
static void test_too_much(void **state)
{
    static const size_t wanted[] = {(size_t)1 << 44, (size_t)1 << 46, SIZE_MAX / 4};
    angara_domain_h     dom;
    size_t              length, i;
    angara_mr_h         mr   = UNSET;
    void               *addr = UNSET;

    (void)state;
    ang_log_level = ANG_LOG_ERROR;
    assert_int_equal(angara_open("soft", &dom), ANGARA_OK);
    for (i = 0; i < sizeof(wanted) / sizeof(wanted[0]); ++i) {
        length = wanted[i];
        assert_true(angara_mem_alloc(dom, &length, 0, &addr, &mr) < 0);
        assert_true((mr == UNSET) && (addr == UNSET) && (length == wanted[i]));
    }
    assert_false(huge);
    assert_int_equal(angara_close(dom), ANGARA_OK);
}

/*
 * ptrace rules that change under way: the put goes on through the peer's helper, without the hazard
 * that the peer's deregistration would wait for while its helper waits for the peer.
 */
static void test_refused_under_way(void **state)
{
    static char     memory[SIZE];
    life_t          life = {UNSET, UNSET, UNSET, UNSET, UNSET, UNSET, UNSET, memory};
    angara_status_t status;
    const char     *name;

    (void)state;
    ang_log_level = ANG_LOG_ERROR;
    assert_int_equal(create(&life), ANGARA_OK);
    assert_true(soft_peer(life.remote)->cma);
    memset(memory, 0x5c, SIZE);
    failed    = NULL;
    countdown = 1;
    status    = angara_offload_put(life.remote, life.mr, memory, peer.hello.private_key, 0, SIZE);
    name      = failed;
    countdown = 0;
    assert_int_equal(status, ANGARA_OK);
    assert_string_equal(name, "process_vm_writev");
    assert_false(soft_peer(life.remote)->cma);
    assert_int_equal(soft_peer(life.remote)->remote.hazard->key, 0);
    assert_int_equal(await(&life, *life.slot + 1000), ANGARA_OK);
    memset(memory, 0, SIZE);
    assert_int_equal(
        angara_offload_get(life.remote, life.mr, memory, peer.hello.private_key, 0, SIZE),
        ANGARA_OK);
    assert_int_equal(await(&life, *life.slot + 1000), ANGARA_OK);
    for (unsigned i = 0; i < SIZE; ++i) {
        assert_int_equal(memory[i], 0x5c);
    }
    destroy(&life);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all),
        cmocka_unit_test(test_all_helper),
        cmocka_unit_test(test_all_no_loopback),
        cmocka_unit_test(test_all_chaos),
        cmocka_unit_test(test_refused_under_way),
        cmocka_unit_test(test_too_much),
    };

    return cmocka_run_group_tests_name("failures", tests, group_setup, group_teardown);
}
