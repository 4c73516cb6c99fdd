/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Configuration of the library: one table of ANGARA_* variables, read once from the environment.
 */
#ifndef ANG_CONFIG_H
#define ANG_CONFIG_H

#include <angara/angara.h>

/* ANGARA_GPU */
enum { ANG_CONFIG_GPU_AUTO, ANG_CONFIG_GPU_ROCM, ANG_CONFIG_GPU_CUDA, ANG_CONFIG_GPU_NONE };

typedef struct {
    char     device[32];
    uint64_t log_level;
    uint64_t gpu;            /* ANG_CONFIG_GPU_* */
    uint64_t node;           /* node id on the soft fabric */
    uint64_t loopback;       /* gets from the own node are performed by the initiator */
    uint64_t cma;            /* process_vm_readv/writev may be used */
    uint64_t catch_faults;   /* SIGSEGV and SIGBUS are caught in requests */
    uint64_t soft_answer_ms; /* how long a request may stay unanswered */
    uint64_t chaos;          /* seed, 0 for off */
    uint64_t chaos_delay_us; /* longest usual delay of an operation in chaos mode */
    uint64_t turn_bytes;     /* a post, or a turn of progress, copies no more */
    uint64_t joint_min;      /* bytes of a copy from which on both processes make it */
    uint64_t asked_max;      /* and of one up to which the peer's process is asked for it */
    uint64_t window_size;    /* default put window, bytes */
    uint64_t events;         /* default event ring, records */
    uint64_t mr_max;         /* regions of a domain */
    uint64_t peer_check_ms;  /* how often dead peers are looked for */
    uint64_t job_key;        /* granted value that a NIC's PEs ask for, 0: the user's own */
    uint64_t peer_wait_ms;   /* longest wait for a peer that doesn't go on */
    uint64_t watch;          /* counters can be watched */
} ang_config_t;

/* The configuration in force. Valid after ang_config_load() returned ANGARA_OK. */
extern ang_config_t ang_config;

/* Read the environment on the first call. Later calls return the first one's result. */
angara_status_t ang_config_load(void);

/* Read it again: for tests. */
angara_status_t ang_config_reload(void);

/* Warn about variables in the environment that say nothing to a NIC. */
void ang_config_warn_nic(void);

#endif
