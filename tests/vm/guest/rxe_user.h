/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A user of the first RDMA device (soft-RoCE) of a VM, for comparisons. What fails ends the
 * program.
 */
#ifndef RXE_USER_H
#define RXE_USER_H

#include <infiniband/verbs.h>

#include <stdio.h>
#include <stdlib.h>

#define MUST(_condition)                                                             \
    do {                                                                             \
        if (!(_condition)) {                                                         \
            fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #_condition); \
            exit(1);                                                                 \
        }                                                                            \
    } while (0)

#define RXE_ACCESS                                                               \
    (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | \
     IBV_ACCESS_REMOTE_ATOMIC)

static inline struct ibv_context *rxe_open(void)
{
    struct ibv_device **devices = ibv_get_device_list(NULL);
    struct ibv_context *context;

    MUST(devices != NULL && devices[0] != NULL);
    context = ibv_open_device(devices[0]);
    MUST(context != NULL);
    ibv_free_device_list(devices);
    return context;
}

#endif
