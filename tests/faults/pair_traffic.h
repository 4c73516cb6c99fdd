/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What fault_pair does with libangara: one domain, PE and peer, two regions, checked traffic of
 * every kind, and traffic until the other one dies. An error of the library ends the process with
 * FAULT_REFUSED.
 */
#ifndef ANGARA_TESTS_PAIR_TRAFFIC_H
#define ANGARA_TESTS_PAIR_TRAFFIC_H

#include <angara/angara.h>

#include <stddef.h>

typedef struct {
    const char *device;   /* NULL: what ANGARA_DEVICE says */
    size_t      size;     /* of a transfer */
    unsigned    rounds;   /* in each direction */
    unsigned    regions;  /* to register besides */
    int         progress; /* while waiting for the other process */
} pair_options_t;

/** Open a device and close it again, perhaps with a PE of default size. */
void pair_open_only(const char *device, int with_pe);

void pair_open(const pair_options_t *options);
void pair_close(void);

/** Connect to the process at the other end of the link. */
void pair_meet(void);

/** All rounds, in turns; one of the two starts. */
void pair_exchange(int starts);

/** Operations without a pause until the library reports an error. @return that error. */
angara_status_t pair_flood(void);

/** The same, and check that the error is the other's death, in time and with its event. */
void pair_flood_until_death(void);

#endif
