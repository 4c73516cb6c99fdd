/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What registering memory costs: the loop that programs for different devices share. Registers and
 * deregisters memory that is there already, over and over. Prints a table: a line per size with the
 * medians of registration, deregistration and of both together, in microseconds.
 */
#ifndef REGPERF_H
#define REGPERF_H

#include <stddef.h>

typedef struct {
    void *(*reg)(void *addr, size_t length); /* NULL: failed */
    int (*dereg)(void *handle);              /* 0: done */
} regperf_device_t;

/* Arguments of the program: [ROUNDS]. @return exit status */
int regperf(const regperf_device_t *device, int argc, char **argv);

#endif
