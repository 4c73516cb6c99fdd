/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A page of private memory whose first touch, by whichever process and also within the kernel,
 * waits until the test lets it go on (userfaultfd(2)): so a copy halts for sure in its middle. For
 * ranks (ranks.h); each has its own gates.
 */
#ifndef ANGARA_TESTS_GATE_H
#define ANGARA_TESTS_GATE_H

#include <pthread.h>

#define GATE_PAGE 4096u

typedef struct gate gate_t;

/** Somebody stands at the gate: called by a thread of its own, once; to end with one of the two
 * below. */
typedef void (*gate_func_t)(gate_t *gate, void *arg);

struct gate {
    int         fd;
    char       *page;
    char        bytes[GATE_PAGE];
    gate_func_t func;
    void       *arg;
    pthread_t   thread;
};

/** May this process have gates? They need CAP_SYS_PTRACE, or vm.unprivileged_userfaultfd. */
int gate_is_allowed(void);

/** Make a gate of a page, which keeps what it holds. */
void gate_init(gate_t *gate, char *page, gate_func_t func, void *arg);
/** @a gate was passed, or taken away. */
void gate_cleanup(gate_t *gate);

/** Whoever stands there goes on. */
void gate_open(gate_t *gate);
/** The page is none any more: who stands there meets that. */
void gate_take_away(gate_t *gate);

#endif
