/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Peers that are stopped: outside of an access they delay nobody; within one, whoever waits for it
 * waits asleep, up to the bound, says for whom, and is told the truth.
 *
 * A peer is stopped where the test wants it: it sets its hazard as an access does, tells so, and is
 * sent SIGSTOP.
 */
#define _GNU_SOURCE
#include "../common/clock.h"
#include "soft.h"

#include "src/config.h"
#include "src/log.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define SIZE 4096u

static unsigned said; /* warnings */

void __real_ang_log_print(ang_log_level_t level, const char *format, ...);
void __wrap_ang_log_print(ang_log_level_t level, const char *format, ...);

void __wrap_ang_log_print(ang_log_level_t level, const char *format, ...)
{
    char    text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    said += level <= ANG_LOG_WARN;
    __real_ang_log_print(level, "%s", text);
}

/* ---- the peer ----------------------------------------------------------------------------------
 */

typedef struct {
    pid_t pid;
    int   fd;
} stranger_t;

/* What it is told to do: hold these regions (none: let go), as an access or a batch does. */
typedef struct {
    unsigned count;
    uint64_t keys[2];
    int      exec; /* and then to go over to another program, within the access */
} hold_t;

static void hold(soft_hazard_t *hazard, const hold_t *order)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < order->count; ++i) {
        hazard->regions[i] = SOFT_KEY_INDEX(order->keys[i]);
    }
    if (order->count != 0) {
        value = order->count == 1 ? order->keys[0] : soft_batch_value(1, order->count);
    }
    __atomic_exchange_n(&hazard->key, value, __ATOMIC_SEQ_CST);
}

static void be_stranger(int fd)
{
    angara_pe_params_t params = {.size = sizeof(params), .window_size = SIZE};
    angara_address_t   address;
    angara_domain_h    dom;
    angara_pe_h        pe;
    angara_peer_h      peer;
    hold_t             order;

    if (read(fd, &address, sizeof(address)) != (ssize_t)sizeof(address) ||
        angara_open("soft", &dom) != ANGARA_OK ||
        angara_pe_create(dom, &params, &pe) != ANGARA_OK ||
        angara_peer_connect(pe, &address, &peer) != ANGARA_OK || write(fd, "c", 1) != 1) {
        _exit(1);
    }
    while (read(fd, &order, sizeof(order)) == (ssize_t)sizeof(order)) {
        hold(soft_peer(peer)->remote.hazard, &order);
        if (order.exec) {
            execlp("sleep", "sleep", "60", (char *)NULL); /* closes fd */
        }
        if (write(fd, "d", 1) != 1) {
            _exit(1);
        }
    }
    _exit(0);
}

static void order(const stranger_t *stranger, hold_t what)
{
    char byte;

    assert_int_equal(write(stranger->fd, &what, sizeof(what)), sizeof(what));
    assert_int_equal(read(stranger->fd, &byte, 1), 1);
}

static void stop(const stranger_t *stranger)
{
    int status;

    assert_int_equal(kill(stranger->pid, SIGSTOP), 0);
    assert_int_equal(waitpid(stranger->pid, &status, WUNTRACED), stranger->pid);
    assert_true(WIFSTOPPED(status));
}

static void go_on(const stranger_t *stranger)
{
    assert_int_equal(kill(stranger->pid, SIGCONT), 0);
}

static void end(stranger_t *stranger)
{
    kill(stranger->pid, SIGKILL);
    waitpid(stranger->pid, NULL, 0);
    close(stranger->fd);
    stranger->pid = 0;
}

/* ---- the test's own side -----------------------------------------------------------------------
 */

static struct {
    angara_domain_h dom;
    angara_pe_h     pe;
    angara_mr_h     mr[2];
    char            memory[2][SIZE];
    stranger_t      stranger;
} f;

static int setup(void **state)
{
    angara_pe_params_t params = {.size = sizeof(params), .window_size = SIZE};
    angara_address_t   address;
    int                fds[2];
    char               byte;

    (void)state;
    memset(&f, 0, sizeof(f));
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    f.stranger.pid = fork();
    if (f.stranger.pid == 0) {
        close(fds[0]);
        be_stranger(fds[1]);
    }
    close(fds[1]);
    f.stranger.fd = fds[0];
    assert_int_equal(angara_open("soft", &f.dom), ANGARA_OK);
    assert_int_equal(angara_pe_create(f.dom, &params, &f.pe), ANGARA_OK);
    for (unsigned i = 0; i < 2; ++i) {
        assert_int_equal(angara_mr_register(f.dom, f.memory[i], SIZE, ANGARA_ACCESS_ALL, &f.mr[i]),
                         ANGARA_OK);
    }
    angara_pe_address(f.pe, &address);
    assert_int_equal(write(fds[0], &address, sizeof(address)), sizeof(address));
    assert_int_equal(read(fds[0], &byte, 1), 1);
    said = 0;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    if (f.stranger.pid != 0) {
        end(&f.stranger);
    }
    angara_pe_destroy(f.pe);
    return angara_close(f.dom) == ANGARA_OK ? 0 : -1;
}

static hold_t holds(unsigned count)
{
    hold_t what = {.count = count};

    for (unsigned i = 0; i < count; ++i) {
        what.keys[i] = angara_mr_key(f.mr[i]);
    }
    return what;
}

/* Seconds of CPU that this process has used. */
static double cpu_seconds(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

static angara_status_t key_status(uint64_t key)
{
    soft_domain_t *dom = (soft_domain_t *)f.dom;

    return soft_mr_check(dom->shared, dom->mr_max, key, 0, 1, 0, NULL, NULL);
}

static void deregister_at_last(angara_mr_h mr, angara_status_t (*call)(angara_mr_h))
{
    angara_status_t status;
    double          limit = deadline_in(30);

    while ((status = call(mr)) == ANGARA_ERR_BUSY && now_seconds() < limit) {
        sleep_ms(5);
    }
    assert_int_equal(status, ANGARA_OK);
}

/* Outside of an access, or within one to another region, it delays nothing: nobody even waits. */
static void test_not_in_the_way(void **state)
{
    (void)state;
    stop(&f.stranger);
    assert_int_equal(angara_mr_deregister(f.mr[1]), ANGARA_OK);
    go_on(&f.stranger);
    order(&f.stranger, holds(1));
    assert_int_equal(angara_mr_register(f.dom, f.memory[1], SIZE, ANGARA_ACCESS_ALL, &f.mr[1]),
                     ANGARA_OK);
    stop(&f.stranger);
    assert_int_equal(angara_mr_deregister(f.mr[1]), ANGARA_OK);
    assert_int_equal(said, 0);
    end(&f.stranger);
    assert_int_equal(angara_mr_deregister(f.mr[0]), ANGARA_OK);
}

static void test_busy(void **state)
{
    uint64_t key = angara_mr_key(f.mr[0]);
    double   cpu;

    (void)state;
    order(&f.stranger, holds(1));
    stop(&f.stranger);
    cpu = cpu_seconds();
    assert_int_equal(angara_mr_deregister(f.mr[0]), ANGARA_ERR_BUSY);
    assert_true(cpu_seconds() - cpu < 0.5 * (double)ang_config.peer_wait_ms * 1e-3);
    assert_int_equal(said, 1);
    assert_int_equal(key_status(key), ANGARA_ERR_KEY); /* withdrawn */
    assert_int_equal(angara_mr_key(f.mr[0]), key);
    assert_int_equal(angara_mr_deregister(f.mr[0]), ANGARA_ERR_BUSY); /* it may be repeated */
    assert_int_equal(said, 1);
    assert_int_equal(angara_mr_deregister(f.mr[1]), ANGARA_OK);
    go_on(&f.stranger);
    order(&f.stranger, holds(0));
    deregister_at_last(f.mr[0], angara_mr_deregister);
}

/* The one who is stopped within the access is killed: his access doesn't count. */
static void test_killed(void **state)
{
    (void)state;
    order(&f.stranger, holds(1));
    stop(&f.stranger);
    assert_int_equal(angara_mr_deregister(f.mr[0]), ANGARA_ERR_BUSY);
    end(&f.stranger);
    assert_int_equal(angara_mr_deregister(f.mr[0]), ANGARA_OK);
    assert_int_equal(angara_mr_deregister(f.mr[1]), ANGARA_OK);
}

/*
 * He goes over to another program within the access, from another thread or a signal handler: his
 * access has ended with the program, though the process lives.
 */
static void test_exec(void **state)
{
    hold_t what = holds(1);
    char   byte;

    (void)state;
    what.exec = 1;
    assert_int_equal(write(f.stranger.fd, &what, sizeof(what)), sizeof(what));
    assert_int_equal(read(f.stranger.fd, &byte, 1), 0);
    assert_int_equal(kill(f.stranger.pid, 0), 0);
    assert_int_equal(angara_mr_deregister(f.mr[0]), ANGARA_OK);
    assert_int_equal(angara_mr_deregister(f.mr[1]), ANGARA_OK);
    assert_int_equal(said, 0);
}

/* Two regions of one batch: both are owed, and one wait is enough. */
static void test_batch(void **state)
{
    (void)state;
    order(&f.stranger, holds(2));
    stop(&f.stranger);
    assert_int_equal(angara_mr_deregister(f.mr[0]), ANGARA_ERR_BUSY);
    assert_int_equal(angara_mr_deregister(f.mr[1]), ANGARA_ERR_BUSY);
    assert_int_equal(said, 1);
    go_on(&f.stranger);
    order(&f.stranger, holds(0));
    deregister_at_last(f.mr[1], angara_mr_deregister);
    deregister_at_last(f.mr[0], angara_mr_deregister);
}

/* An entry that is owed isn't given to another region. */
static void test_entry_stays(void **state)
{
    uint64_t    index = SOFT_KEY_INDEX(angara_mr_key(f.mr[0]));
    angara_mr_h mr;

    (void)state;
    order(&f.stranger, holds(1));
    stop(&f.stranger);
    assert_int_equal(angara_mr_deregister(f.mr[0]), ANGARA_ERR_BUSY);
    for (unsigned i = 0; i < 8; ++i) {
        assert_int_equal(angara_mr_register(f.dom, f.memory[0], SIZE, ANGARA_ACCESS_ALL, &mr),
                         ANGARA_OK);
        assert_int_not_equal(SOFT_KEY_INDEX(angara_mr_key(mr)), index);
        assert_int_equal(angara_mr_deregister(mr), ANGARA_OK);
    }
    end(&f.stranger);
    assert_int_equal(angara_mr_deregister(f.mr[0]), ANGARA_OK);
    assert_int_equal(angara_mr_deregister(f.mr[1]), ANGARA_OK);
}

/* Memory of the library's own stays mapped while it is owed, and a forked child has it, too. */
static void test_mem_free(void **state)
{
    size_t      length = SIZE;
    angara_mr_h mr;
    void       *addr;
    hold_t      what = {1, {0, 0}, 0};
    int         status;
    pid_t       pid;

    (void)state;
    assert_int_equal(angara_mem_alloc(f.dom, &length, ANGARA_ACCESS_ALL, &addr, &mr), ANGARA_OK);
    memset(addr, 0x11, SIZE);
    what.keys[0] = angara_mr_key(mr);
    order(&f.stranger, what);
    stop(&f.stranger);
    assert_int_equal(angara_mem_free(mr), ANGARA_ERR_BUSY);
    assert_int_equal(((char *)addr)[SIZE - 1], 0x11);
    pid = fork();
    if (pid == 0) {
        _exit(angara_mem_free(mr) != ANGARA_ERR_FORKED || ((char *)addr)[SIZE - 1] != 0x11);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    go_on(&f.stranger);
    order(&f.stranger, holds(0));
    deregister_at_last(mr, angara_mem_free);
    assert_int_equal(angara_mr_deregister(f.mr[0]), ANGARA_OK);
    assert_int_equal(angara_mr_deregister(f.mr[1]), ANGARA_OK);
}

/* A domain with an owed region stays open; it is closed, the region included, once that can be. */
static void test_close(void **state)
{
    angara_pe_params_t params = {.size = sizeof(params), .window_size = SIZE};

    (void)state;
    order(&f.stranger, holds(1));
    stop(&f.stranger);
    assert_int_equal(angara_mr_deregister(f.mr[0]), ANGARA_ERR_BUSY);
    assert_int_equal(angara_close(f.dom), ANGARA_ERR_INVALID); /* the PE, the other region */
    assert_int_equal(angara_mr_deregister(f.mr[1]), ANGARA_OK);
    angara_pe_destroy(f.pe);
    assert_int_equal(angara_close(f.dom), ANGARA_ERR_BUSY);
    assert_int_equal(angara_pe_create(f.dom, &params, &f.pe), ANGARA_OK); /* nothing is broken */
    end(&f.stranger);
}

/* A machine, or a process, that stands still: the peer mayn't have run either. */
static void test_own_pause(void **state)
{
    soft_wait_t wait;

    (void)state;
    assert_int_equal(ang_config_load(), ANGARA_OK);
    soft_wait_begin(&wait);
    while (!soft_wait_is_long(&wait)) {
        assert_true(soft_wait_turn(&wait, getpid(), "a test"));
    }
    usleep(2000 * (useconds_t)ang_config.peer_wait_ms);
    assert_true(soft_wait_turn(&wait, getpid(), "a test"));
    while (soft_wait_turn(&wait, getpid(), "a test")) {
    }
}

#define TEST(_name) cmocka_unit_test_setup_teardown(_name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_not_in_the_way), TEST(test_busy),  TEST(test_killed),
        TEST(test_exec),           TEST(test_batch), TEST(test_entry_stays),
        TEST(test_mem_free),       TEST(test_close), cmocka_unit_test(test_own_pause),
    };

    setenv("ANGARA_PEER_WAIT", "600", 1);
    return cmocka_run_group_tests_name("stopped", tests, NULL, NULL);
}
