/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A NIC and its driver for unit tests of the nic provider, in the place of the system calls (ld
 * --wrap, see build.mk). Files are memfds; a thread is the device: it consumes the rings, sets
 * pairs, lands markers, answers notify puts and moves no data. What the driver refuses and what the
 * device does wrong is set by the test.
 */
#ifndef ANGARA_TESTS_NIC_FAKE_H
#define ANGARA_TESTS_NIC_FAKE_H

#include <misc/angara.h>

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Calls that can be refused. */
typedef enum {
    NIC_FAKE_OPEN,   /* of /dev/angara0 */
    NIC_FAKE_MEMREG, /* open of /dev/angara_memreg */
    NIC_FAKE_INFO,
    NIC_FAKE_PE,
    NIC_FAKE_COMMIT,
    NIC_FAKE_REG,
    NIC_FAKE_DEREG,
    NIC_FAKE_CHECK,
    NIC_FAKE_CALLS
} nic_fake_call_t;

typedef struct {
    /* set by the test */
    struct angara_ioc_info info;                   /* what the driver says */
    int                    errors[NIC_FAKE_CALLS]; /* 0, or the errno of that call */
    uid_t                  uid, saved_uid;
    uint64_t               memlock;       /* limit of RLIMIT_MEMLOCK */
    uint64_t               jump_ns;       /* the clock goes on by that at each look */
    int                    stuck;         /* the device does nothing any more */
    uint32_t               fail_at;       /* so many descriptors fetched: it fails at the next */
    int32_t                notify_status; /* outcome of notify puts */
    int                    same;          /* stale regions turn out to be as they were */
    /* read by it */
    char     log[4096]; /* what was logged */
    unsigned pair_sets; /* ANGARA_OP_PAIR performed */
    unsigned data_ops;  /* puts, gets and atomics fetched */
    uint64_t job_key;   /* that the PE has asked for */
} nic_fake_t;

extern nic_fake_t nic_fake;

/* Everything as it is with a good NIC; forgets the log. No PE may be open. */
void nic_fake_reset(void);
/* Forget the log only. */
void nic_fake_forget_log(void);
/* State of the one PE that is open. */
void nic_fake_state(uint32_t state);
/* Write an event record; valid is filled in. */
void nic_fake_event(const struct angara_event_record *record);
/* So many events were lost. */
void nic_fake_lost(uint32_t lost);
/* The addresses of that region are stale. */
void nic_fake_stale(uint32_t handle);

/* The log has that text; for the tests, which have cmocka.h. */
#define assert_logged(_text)                                      \
    do {                                                          \
        if (strstr(nic_fake.log, _text) == NULL) {                \
            fail_msg("\"%s\" isn't in: %s", _text, nic_fake.log); \
        }                                                         \
    } while (0)

#endif
