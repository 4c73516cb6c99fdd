/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Waiting for what another process has begun: for a moment by spinning, as it mostly takes a
 * microsecond, then asleep; up to a bound, because that process may have been stopped (by a signal,
 * a debugger, a freezer); and with one line that says for whom. Time in which this process itself
 * doesn't run isn't waited: the other one mayn't have run either. Touches no state but its own.
 */
#define _GNU_SOURCE
#include "soft.h"

#include "src/clock.h"
#include "src/config.h"
#include "src/log.h"

#include <sched.h>

#define SPINS     64         /* turns that only look again */
#define YIELDS    128        /* turns that let others run first */
#define SLEEP_MIN 50000u     /* ns, of the turns behind */
#define SLEEP_MAX 2000000u   /* ns */
#define SAY_NS    200000000u /* so long nothing is said */
#define TURN_MAX  50000000u  /* ns that a turn counts at most, however long it has taken */
#define NS_PER_MS 1000000u

void soft_wait_begin(soft_wait_t *wait)
{
    *wait = (soft_wait_t){.sleep_ns = SLEEP_MIN};
}

void soft_wait_since(soft_wait_t *wait, uint64_t since_ns)
{
    uint64_t now   = ang_clock_ns(CLOCK_MONOTONIC);
    uint64_t bound = ang_config.peer_wait_ms * NS_PER_MS;

    soft_wait_begin(wait);
    wait->looked_ns = now;
    wait->waited_ns = now - since_ns;
    if (wait->waited_ns > bound - bound / 16) {
        wait->waited_ns = bound - bound / 16; /* it may have gone on this moment */
        wait->said      = 1;                  /* the call that has waited for it did */
    }
}

void soft_wait_never(soft_wait_t *wait)
{
    *wait = (soft_wait_t){.turns = YIELDS, .sleep_ns = 0};
}

static void say(soft_wait_t *wait, pid_t pid, const char *what)
{
    wait->said = 1;
    ang_warn("waiting for pid %d, which %s, to end %s, %llu ms at most (ANGARA_PEER_WAIT)",
             (int)pid, soft_process_stopped(pid) ? "is stopped" : "doesn't go on", what,
             (unsigned long long)ang_config.peer_wait_ms);
}

int soft_wait_turn(soft_wait_t *wait, pid_t pid, const char *what)
{
    struct timespec nap;
    uint64_t        now;

    if (++wait->turns <= YIELDS) {
        if (wait->turns > SPINS) {
            sched_yield();
        }
        return 1;
    }
    if (wait->sleep_ns == 0) {
        return 0;
    }
    now = ang_clock_ns(CLOCK_MONOTONIC);
    if (wait->looked_ns != 0) {
        wait->waited_ns += now - wait->looked_ns < TURN_MAX ? now - wait->looked_ns : TURN_MAX;
    }
    wait->looked_ns = now;
    if (wait->waited_ns >= ang_config.peer_wait_ms * NS_PER_MS) {
        return 0;
    }
    if (!wait->said && wait->waited_ns >= SAY_NS) {
        say(wait, pid, what);
    }
    nap = (struct timespec){0, wait->sleep_ns};
    nanosleep(&nap, NULL);
    wait->sleep_ns = wait->sleep_ns < SLEEP_MAX / 2 ? 2 * wait->sleep_ns : SLEEP_MAX;
    return 1;
}

int soft_wait_is_long(const soft_wait_t *wait)
{
    return wait->sleep_ns == SLEEP_MAX;
}
