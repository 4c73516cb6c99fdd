/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control interface of the stand-in GPU runtimes, for tests. Both libraries, libcuda.so.1 and
 * libhsa-runtime64.so.1, export these functions as standin_NAME; each controls itself only. A
 * program finds them with standin_load(); where that says 0, it runs with a real GPU runtime.
 *
 * Environment, read at a process's first call:
 *   STANDIN_GPUS=N         GPUs of the node, 2 if not set, 8 at most
 *   STANDIN_MEMORY=BYTES   of each GPU, for each process; with K, M or G behind; 4G if not set
 *   STANDIN_VISIBLE=LIST   GPUs that the process sees, as "1,0"; CUDA_VISIBLE_DEVICES or
 *                          ROCR_VISIBLE_DEVICES come first
 *   STANDIN_DELAY_US=N     each asynchronous copy takes so long at least
 *   STANDIN_JITTER=SEED    delays at random, copies in pieces that arrive in any order
 *   STANDIN_FAIL=LIST      CALL:NTH:CODE,... as by fail_call() below; "*" for NTH: every call
 *   STANDIN_PEER=0         no GPU reaches another's memory
 *   STANDIN_DMABUF=0       no dma-buf export
 *   STANDIN_LOCK_SHIFT=1   HSA: locked host memory has another address for GPUs
 *   STANDIN_LATE=1         copies may reach what another process has freed while it is mapped here,
 *                          as drivers let them
 *
 * What a copy must not meet ends the process with abort(), after a line "standin: ..." on stderr:
 * memory that was freed, unmapped or unregistered after the copy was given to the runtime, by this
 * process or (memory of another process) by its owner; a destroyed completion signal.
 */
#ifndef STANDIN_H
#define STANDIN_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* X(result, name, arguments) */
#define STANDIN_CALLS(X)                                                                           \
    /* The nth call of `call` from now on fails with `code` and does nothing else; 0: each         \
     * call does. Code 0 ends that. The call "copy" is each asynchronous copy: it is accepted      \
     * and fails later, which in CUDA ends its context: `code` is all that it answers. */          \
    X(void, fail_call, (const char *call, unsigned nth, int code))                                 \
    /* Calls so far of a function, or (NULL) of all, failed ones too. CUDA: "detour" is each copy  \
     * that goes through the host, as one of its ends is of a GPU whose context's is closed to the \
     * copy's. */                                                                                  \
    X(unsigned long, calls, (const char *call))                                                    \
    /* The calling thread's, of all functions. */                                                  \
    X(unsigned long, own_calls, (void))                                                            \
    /* Calls of `call` are counted, then wait until another or none (NULL) is named here. */       \
    X(void, stall, (const char *call))                                                             \
    /* 1: asynchronous copies, and what is behind them, wait until 0. */                           \
    X(void, hold, (int on))                                                                        \
    /* As if the program captured a graph: what mustn't be called then is refused (900)... */      \
    X(void, capture, (int on))                                                                     \
    /* ...and counted. */                                                                          \
    X(unsigned long, capture_violations, (void))                                                   \
    X(void, allow_peer, (int on))                                                                  \
    X(void, allow_dmabuf, (int on))                                                                \
    /* As at the end of the process, when the runtime has gone: every call fails. */               \
    X(void, deinit, (void))                                                                        \
    /* CUDA: depth of the calling thread's stack of contexts; its current one. */                  \
    X(int, contexts, (void **current))                                                             \
    /* Contents of memory known to the runtime, now, whatever is under way. @return 0; -1 if       \
     * it isn't known or ends earlier. */                                                          \
    X(int, read, (const void *addr, void *buffer, size_t length))                                  \
    X(int, write, (const void *addr, const void *buffer, size_t length))                           \
    /* Where the CPU reaches memory known to the runtime, until it is freed; NULL: it isn't. What  \
     * a test does there is as if a kernel had done it. */                                         \
    X(void *, view, (const void *addr))                                                            \
    /* Live allocations, of all kinds, on GPUs and hosts. */                                       \
    X(unsigned, allocations, (void))                                                               \
    /* Host memory that the program made known. */                                                 \
    X(unsigned, registrations, (void))                                                             \
    /* Mappings of other processes' memory... */                                                   \
    X(unsigned, mappings, (void))                                                                  \
    /* ...and those of them that hold memory which its owner has freed. */                         \
    X(unsigned, mappings_freed, (void))                                                            \
    /* Work that has been given to the runtime and hasn't ended; somewhat later than its effects   \
     * are seen. */                                                                                \
    X(unsigned, pending, (void))

#define STANDIN_MEMBER(_result, _name, _arguments) _result(*_name) _arguments;

typedef struct {
    STANDIN_CALLS(STANDIN_MEMBER)
} standin_t;

/* @param library  of dlopen() @return 1; 0 if the library is no stand-in. */
static inline int standin_load(void *library, standin_t *standin)
{
#define STANDIN_FIND(_result, _name, _arguments)                           \
    *(void **)(void *)&standin->_name = dlsym(library, "standin_" #_name); \
    if (standin->_name == NULL) {                                          \
        fprintf(stderr, "standin_load: there is no standin_" #_name "\n"); \
        return 0;                                                          \
    }
    if (dlsym(library, "standin_fail_call") == NULL) {
        return 0;
    }
    STANDIN_CALLS(STANDIN_FIND)
#undef STANDIN_FIND
    return 1;
}

#endif
