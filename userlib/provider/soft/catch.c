/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Catching the fault of an access to memory that has gone: see vm.h. Handlers of SIGSEGV and SIGBUS
 * are the process's: ours is there while the process has PEs, jumps out of accesses that were begun
 * here, by the same thread and within their range, and passes all else on to the handler that was
 * there before. A handler that comes later and hides ours is noticed within a tick of the clock;
 * faults aren't caught then. Ours isn't put before it, now or for a later PE: it may pass on to
 * ours, and the two would make a circle.
 */
#define _GNU_SOURCE
#include "vm.h"

#include "src/clock.h"
#include "src/config.h"

#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <ucontext.h>

static const int signals[2] = {SIGSEGV, SIGBUS};

static struct sigaction before[2]; /* what to pass other faults on to */
static int              is_set[2]; /* ours is there, or below another one */

#define ADDRESS_MAX (1ull << 47) /* from here on there may be no memory ever, on x86-64 */

/* The access under way: one of the process at a time. */
static struct {
    sigjmp_buf *back; /* NULL: none */
    pthread_t   thread;
    uint64_t    begin, end;
    uint64_t    looked; /* when the thread looked at the handlers; 0: not since they changed */
    int         ready;  /* they were ours, and the signals not blocked */
} catching;

static void set_default(int sig)
{
    struct sigaction action = {.sa_handler = SIG_DFL};

    sigaction(sig, &action, NULL);
}

/* As if ours had never been there. A fault comes again when the instruction is repeated. */
static void pass_on(int sig, siginfo_t *info, void *context)
{
    struct sigaction previous = before[sig == signals[1]];

    sigset_t mask = previous.sa_mask;

    if (!(previous.sa_flags & SA_NODEFER)) {
        sigaddset(&mask, sig);
    }
    if (previous.sa_flags & SA_RESETHAND) {
        set_default(sig);
    }
    if ((previous.sa_flags & SA_SIGINFO) ||
        (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN)) {
        pthread_sigmask(SIG_BLOCK, &mask, NULL); /* until ours returns */
        if (previous.sa_flags & SA_SIGINFO) {
            previous.sa_sigaction(sig, info, context);
        } else {
            previous.sa_handler(sig);
        }
    } else if (previous.sa_handler == SIG_DFL || info->si_code > 0) { /* no fault is ignored */
        set_default(sig);
        if (info->si_code <= 0) {
            raise(sig); /* sent by a process: nothing repeats it */
        }
    }
}

/* Is it the fault of the access under way? An address that none can be has no place in the report.
 */
static int is_caught(const siginfo_t *info)
{
    uint64_t addr = (uintptr_t)info->si_addr;

    return catching.back != NULL && pthread_equal(catching.thread, pthread_self()) &&
           info->si_code > 0 &&
           ((addr >= catching.begin && addr < catching.end) ||
            (info->si_code == SI_KERNEL && catching.end > ADDRESS_MAX));
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
    sigjmp_buf *back = catching.back;
    sigset_t    mask;

    if (is_caught(info)) { /* what the handlers, ours or one above, had blocked is so no more */
        sigemptyset(&mask);
        sigaddset(&mask, sig);
        if (context != NULL) {
            pthread_sigmask(SIG_SETMASK, &((const ucontext_t *)context)->uc_sigmask, NULL);
        } else {
            pthread_sigmask(SIG_UNBLOCK, &mask, NULL);
        }
        catching.back = NULL;
        siglongjmp(*back, 1);
    }
    pass_on(sig, info, context);
}

static int is_ours(const struct sigaction *action)
{
    return (action->sa_flags & SA_SIGINFO) && action->sa_sigaction == on_fault;
}

void soft_catch_open(void)
{
    struct sigaction action = {.sa_sigaction = on_fault,
                               .sa_flags     = SA_SIGINFO | SA_NODEFER | SA_RESTART};
    struct sigaction now;

    catching.looked = 0;
    sigemptyset(&action.sa_mask);
    for (unsigned i = 0; i < 2 && ang_config.catch_faults; ++i) {
        if (!is_set[i] && sigaction(signals[i], NULL, &before[i]) == 0) {
            now = action;
            now.sa_flags |= before[i].sa_flags & SA_ONSTACK; /* what is passed on runs there, too */
            is_set[i] = sigaction(signals[i], &now, NULL) == 0;
        }
    }
}

void soft_catch_close(void)
{
    struct sigaction now;

    catching.looked = 0;
    for (unsigned i = 0; i < 2; ++i) {
        if (sigaction(signals[i], NULL, &now) == 0 && is_ours(&now)) {
            is_set[i] = sigaction(signals[i], &before[i], NULL) != 0;
        }
    }
}

void soft_catch_look(void)
{
    uint64_t         now = ang_clock_ns(CLOCK_MONOTONIC_COARSE);
    struct sigaction action[2];
    sigset_t         blocked;

    if (now != catching.looked || !pthread_equal(catching.thread, pthread_self())) {
        catching.looked = now;
        catching.thread = pthread_self();
        catching.ready  = sigaction(SIGSEGV, NULL, &action[0]) == 0 && is_ours(&action[0]) &&
                         sigaction(SIGBUS, NULL, &action[1]) == 0 && is_ours(&action[1]) &&
                         pthread_sigmask(SIG_SETMASK, NULL, &blocked) == 0 &&
                         !sigismember(&blocked, SIGSEGV) && !sigismember(&blocked, SIGBUS);
    }
}

angara_status_t soft_catch(uint64_t addr, uint64_t length, void (*touch)(void *arg), void *arg)
{
    sigjmp_buf back;

    if (!catching.ready) {
        return ANGARA_ERR_UNSUPPORTED;
    }
    catching.begin = addr;
    catching.end   = addr + length;
    if (sigsetjmp(back, 0) != 0) {
        return ANGARA_ERR_BOUNDS;
    }
    catching.back = &back;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    touch(arg);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    catching.back = NULL;
    return ANGARA_OK;
}
