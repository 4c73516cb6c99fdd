/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Faults of a target that serves requests on memory that its program has taken away: they are
 * answers, whoever has handlers of SIGSEGV and SIGBUS, and all other faults are the program's.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "no_threads.h"
#include "service_slot.h"

#include "src/config.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define TICK_MS 20u /* the coarse clock goes on in between */

static volatile sig_atomic_t handled; /* by the program's handlers */
static void *volatile handled_addr;
static sigjmp_buf leave;

static void set_handlers(struct sigaction action)
{
    assert_int_equal(sigaction(SIGSEGV, &action, NULL), 0);
    assert_int_equal(sigaction(SIGBUS, &action, NULL), 0);
}

static void plain_handler(int sig)
{
    (void)sig;
    handled++;
    siglongjmp(leave, 1);
}

static void long_handler(int sig, siginfo_t *info, void *context)
{
    (void)context;
    handled_addr = info->si_addr;
    plain_handler(sig);
}

static struct sigaction handlers[2]; /* both kinds */

static int init(void **state_p)
{
    (void)state_p;
    no_threads               = 1; /* one that starts maps memory, maybe where some was taken away */
    handlers[0].sa_handler   = plain_handler;
    handlers[0].sa_flags     = SA_NODEFER;
    handlers[1].sa_sigaction = long_handler;
    handlers[1].sa_flags     = SA_NODEFER | SA_SIGINFO;
    return 0;
}

static int is_handler(int sig, const struct sigaction *action)
{
    struct sigaction now;

    assert_int_equal(sigaction(sig, NULL, &now), 0);
    return action->sa_flags & SA_SIGINFO ? now.sa_sigaction == action->sa_sigaction :
                                           now.sa_handler == action->sa_handler;
}

/* ---- memory that is gone --------------------------------------------------------------------- */

static char *map_file(int *fd)
{
    char *page;

    *fd = memfd_create("angara-test", MFD_CLOEXEC);
    assert_true(*fd >= 0);
    assert_int_equal(ftruncate(*fd, 2 * SIZE), 0);
    page = mmap(NULL, 2 * SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    assert_true(page != MAP_FAILED);
    return page;
}

/* All requests that touch 8 bytes to 4 KiB there, over the border between two pages. */
static void assert_status(angara_mr_h mr, angara_status_t read, angara_status_t write,
                          angara_status_t atomic)
{
    static const uint32_t lengths[] = {8, 16, 17, 1024, SIZE};
    uint64_t              key       = angara_mr_key(mr);
    soft_request_t        add       = request(ANG_OP_ATOMIC, key, SIZE, 0);

    for (unsigned i = 0; i < 5; ++i) {
        uint64_t at = SIZE - lengths[i] / 2;

        assert_int_equal(status_of(request(ANG_OP_GET, key, at, lengths[i])), read);
        assert_int_equal(status_of(request(ANG_OP_PUT, key, at, lengths[i])), write);
    }
    add.atomic  = ANGARA_ATOMIC_ADD;
    add.operand = 1;
    assert_int_equal(status_of(add), atomic);
}

/* Each step takes away more. */
static void take_away(void)
{
    int         fd;
    char       *pages = map_file(&fd);
    angara_mr_h mr;

    assert_int_equal(angara_mr_register(f.dom, pages, 2 * SIZE, ANGARA_ACCESS_ALL, &mr), ANGARA_OK);
    assert_status(mr, ANGARA_OK, ANGARA_OK, ANGARA_OK);
    assert_int_equal(mprotect(pages + SIZE, SIZE, PROT_READ), 0);
    assert_status(mr, ANGARA_OK, ANGARA_ERR_BOUNDS, ANGARA_ERR_RIGHTS);
    assert_int_equal(mprotect(pages + SIZE, SIZE, PROT_READ | PROT_WRITE), 0);
    assert_int_equal(ftruncate(fd, SIZE), 0); /* SIGBUS */
    assert_status(mr, ANGARA_ERR_BOUNDS, ANGARA_ERR_BOUNDS, ANGARA_ERR_BOUNDS);
    assert_int_equal(munmap(pages + SIZE, SIZE), 0);
    assert_status(mr, ANGARA_ERR_BOUNDS, ANGARA_ERR_BOUNDS, ANGARA_ERR_BOUNDS);
    assert_int_equal(munmap(pages, SIZE), 0);
    close(fd);
    assert_int_equal(angara_mr_deregister(mr), ANGARA_OK);
}

static void test_gone(void **state_p)
{
    assert_int_equal(setup(state_p), 0);
    take_away();
    assert_int_equal(teardown(state_p), 0);
}

static void test_gone_switched_off(void **state_p)
{
    struct sigaction before;

    ang_config.catch_faults = 0;
    assert_int_equal(sigaction(SIGSEGV, NULL, &before), 0);
    assert_int_equal(setup(state_p), 0);
    assert_true(is_handler(SIGSEGV, &before));
    take_away();
    assert_int_equal(teardown(state_p), 0);
    ang_config.catch_faults = 1;
}

/* The program's handler comes after the library's, for one of the signals, and goes again. */
static void test_gone_hidden(void **state_p)
{
    struct sigaction ours;

    assert_int_equal(setup(state_p), 0);
    handled = 0;
    for (unsigned i = 0; i < 4; ++i) {
        int sig = i < 2 ? SIGSEGV : SIGBUS;

        assert_int_equal(sigaction(sig, &handlers[i % 2], &ours), 0);
        sleep_ms(TICK_MS);
        take_away();
        assert_true(is_handler(sig, &handlers[i % 2]));
        assert_int_equal(sigaction(sig, &ours, NULL), 0);
        sleep_ms(TICK_MS);
        take_away();
    }
    assert_int_equal(handled, 0);
    assert_int_equal(teardown(state_p), 0);
}

/* Who blocks the signals in its thread would be killed by a fault. */
static void test_gone_blocked(void **state_p)
{
    sigset_t all, old;

    assert_int_equal(setup(state_p), 0);
    sigfillset(&all);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &all, &old), 0);
    sleep_ms(TICK_MS);
    take_away();
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &old, NULL), 0);
    sleep_ms(TICK_MS);
    take_away();
    assert_int_equal(teardown(state_p), 0);
}

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
/* No memory can be there: that fault has no address. (Nor does the address sanitizer know any.) */
static void test_gone_impossible(void **state_p)
{
    angara_mr_h mr;

    assert_int_equal(setup(state_p), 0);
    assert_int_equal(
        angara_mr_register(f.dom, (void *)(1ull << 62), 2 * SIZE, ANGARA_ACCESS_ALL, &mr),
        ANGARA_OK);
    assert_status(mr, ANGARA_ERR_BOUNDS, ANGARA_ERR_BOUNDS, ANGARA_ERR_BOUNDS);
    assert_int_equal(angara_mr_deregister(mr), ANGARA_OK);
    assert_int_equal(teardown(state_p), 0);
}
#endif

/* By the helper thread, which blocks all other signals. */
static void test_gone_helper(void **state_p)
{
    char *pages = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    angara_mr_h    mr;
    soft_request_t get;

    assert_true(pages != MAP_FAILED);
    no_threads = 0;
    assert_int_equal(setup(state_p), 0);
    soft_helper_start();
    no_threads = 1;
    assert_int_equal(angara_mr_register(f.dom, pages, SIZE, ANGARA_ACCESS_ALL, &mr), ANGARA_OK);
    get = request(ANG_OP_GET, angara_mr_key(mr), 0, 8);
    for (unsigned i = 0; i < 2; ++i) {
        post(&get);
        ring(SLOT);
        assert_int_equal(write(soft_helper_wake_fd(), "", 1), 1);
        for (unsigned ms = 0; ms < LONG_MS && soft_state_phase(state()) != SOFT_DONE; ++ms) {
            sleep_ms(1);
        }
        assert_int_equal(soft_state_phase(state()), SOFT_DONE);
        assert_int_equal(f.slot->status, i == 0 ? ANGARA_OK : ANGARA_ERR_BOUNDS);
        if (i == 0) {
            assert_int_equal(munmap(pages, SIZE), 0);
        }
    }
    assert_int_equal(angara_mr_deregister(mr), ANGARA_OK);
    assert_int_equal(teardown(state_p), 0);
}

/* ---- faults of the program's own ------------------------------------------------------------- */

static volatile char *no_memory(void)
{
    char *page = mmap(NULL, SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_true(page != MAP_FAILED);
    return page;
}

static void test_passed_on(void **state_p)
{
    volatile char *page = no_memory();

    for (volatile unsigned i = 0; i < 2; ++i) {
        handled      = 0;
        handled_addr = NULL;
        set_handlers(handlers[i]);
        assert_int_equal(setup(state_p), 0);
        assert_false(is_handler(SIGSEGV, &handlers[i]));
        assert_false(is_handler(SIGBUS, &handlers[i]));
        take_away();
        if (sigsetjmp(leave, 1) == 0) {
            page[8] = 1;
            fail_msg("no fault");
        }
        assert_int_equal(handled, 1);
        assert_true(i == 0 || handled_addr == page + 8);
        if (sigsetjmp(leave, 1) == 0) {
            raise(SIGBUS);
            fail_msg("no signal");
        }
        assert_int_equal(handled, 2);
        take_away();
        assert_int_equal(handled, 2);
        assert_int_equal(teardown(state_p), 0);
        assert_true(is_handler(SIGSEGV, &handlers[i]));
        assert_true(is_handler(SIGBUS, &handlers[i]));
    }
}

static volatile sig_atomic_t blocked; /* in the handler: the signal, and one that it asks for */

static void masked_handler(int sig)
{
    sigset_t now;

    pthread_sigmask(SIG_SETMASK, NULL, &now);
    blocked = sigismember(&now, sig) && sigismember(&now, SIGUSR1);
    siglongjmp(leave, 1);
}

/* A handler runs with the signals blocked that it asks for. */
static void test_passed_on_masked(void **state_p)
{
    struct sigaction action = {.sa_handler = masked_handler};
    volatile char   *page   = no_memory();

    sigaddset(&action.sa_mask, SIGUSR1);
    set_handlers(action);
    assert_int_equal(setup(state_p), 0);
    blocked = 0;
    if (sigsetjmp(leave, 1) == 0) {
        page[0] = 1;
    }
    assert_true(blocked);
    assert_int_equal(teardown(state_p), 0);
}

/* What a child ends with that has a PE of its own, after a fault, or a signal that was sent. */
static int end_of(void (*handler)(int), int is_sent, void **state_p)
{
    volatile char   *page   = no_memory();
    struct sigaction action = {.sa_handler = handler};
    int              status;
    pid_t            pid = fork();

    if (pid == 0) {
        set_handlers(action);
        if (setup(state_p) != 0) {
            _exit(1);
        }
        if (is_sent) {
            raise(SIGSEGV);
        } else {
            page[0] = 1;
        }
        _exit(2);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void test_default(void **state_p)
{
    int status = end_of(SIG_DFL, 0, state_p);

    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    status = end_of(SIG_DFL, 1, state_p);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    status = end_of(SIG_IGN, 0, state_p); /* a fault can't be ignored */
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    status = end_of(SIG_IGN, 1, state_p);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 2);
}

/* A child of fork has the library's handlers from the parent: it mustn't pass on to itself. */
static void test_child(void **state_p)
{
    int   status;
    pid_t pid;

    set_handlers(handlers[0]);
    assert_int_equal(setup(state_p), 0);
    pid = fork();
    if (pid == 0) {
        if (setup(state_p) != 0 || teardown(state_p) != 0) {
            _exit(1);
        }
        _exit(is_handler(SIGSEGV, &handlers[0]) ? 0 : 2);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(teardown(state_p), 0);
    assert_true(is_handler(SIGSEGV, &handlers[0]));
}

static struct sigaction below; /* of a handler that passes on */

static void passing_handler(int sig, siginfo_t *info, void *context)
{
    below.sa_sigaction(sig, info, context);
}

/* A handler above the library's that passes on to it is left, with the signals that it has blocked.
 */
static void test_left_above(void **state_p)
{
    struct sigaction passing = {.sa_sigaction = passing_handler, .sa_flags = SA_SIGINFO};
    char            *page    = mmap(NULL, SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    angara_mr_h      mr;
    sigset_t         now;

    sigfillset(&passing.sa_mask);
    assert_true(page != MAP_FAILED);
    assert_int_equal(setup(state_p), 0);
    assert_int_equal(angara_mr_register(f.dom, page, SIZE, ANGARA_ACCESS_ALL, &mr), ANGARA_OK);
    for (unsigned i = 0; i < 20; ++i) { /* most of them before the clock's next tick */
        sleep_ms(TICK_MS);
        status_of(request(ANG_OP_GET, angara_mr_key(f.all), 0, 8));
        assert_int_equal(sigaction(SIGSEGV, &passing, &below), 0);
        assert_int_equal(status_of(request(ANG_OP_GET, angara_mr_key(mr), 0, 8)),
                         ANGARA_ERR_BOUNDS);
        assert_int_equal(sigaction(SIGSEGV, &below, NULL), 0);
        pthread_sigmask(SIG_SETMASK, NULL, &now);
        assert_false(sigismember(&now, SIGSEGV) || sigismember(&now, SIGBUS) ||
                     sigismember(&now, SIGTERM));
    }
    assert_int_equal(angara_mr_deregister(mr), ANGARA_OK);
    assert_int_equal(teardown(state_p), 0);
}

/* A handler above the library's stays when the last PE goes, and passes on when there is another.
 */
static void test_no_circle(void **state_p)
{
    struct sigaction passing = {.sa_sigaction = passing_handler, .sa_flags = SA_SIGINFO};
    struct sigaction usual   = {.sa_handler = SIG_DFL};
    volatile char   *page    = no_memory();
    int              status;
    pid_t            pid = fork();

    if (pid == 0) {
        alarm(20);
        set_handlers(usual);
        if (setup(state_p) != 0 || sigaction(SIGSEGV, &passing, &below) != 0 ||
            teardown(state_p) != 0 || setup(state_p) != 0) {
            _exit(1);
        }
        take_away();
        page[0] = 1;
        _exit(2);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gone),
        cmocka_unit_test(test_gone_switched_off),
        cmocka_unit_test(test_gone_hidden),
        cmocka_unit_test(test_gone_blocked),
        cmocka_unit_test(test_gone_helper),
        cmocka_unit_test(test_passed_on),
        cmocka_unit_test(test_default),
        cmocka_unit_test(test_child),
        cmocka_unit_test(test_no_circle),
        cmocka_unit_test(test_passed_on_masked),
        cmocka_unit_test(test_left_above),
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
        cmocka_unit_test(test_gone_impossible),
#endif
    };

    return cmocka_run_group_tests_name("catch", tests, init, NULL);
}
