/* SPDX-License-Identifier: BSD-3-Clause */
/* See device.h. */
#include "device.h"

#include <dlfcn.h>
#include <string.h>

const char *const device_origin_names[DEVICE_ORIGINS] = {"plain", "managed", "pool", "mapped",
                                                         "pinned"};

const device_runtime_t *device_runtime(const char *name)
{
    if (strcmp(name, device_cuda.name) == 0) {
        return &device_cuda;
    }
#ifndef DEVICE_NO_ROCM
    if (strcmp(name, device_rocm.name) == 0) {
        return &device_rocm;
    }
#endif
    return NULL;
}

void *device_library(const device_runtime_t *runtime)
{
    return dlopen(runtime->library, RTLD_LAZY | RTLD_LOCAL);
}
