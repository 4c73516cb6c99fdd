/* SPDX-License-Identifier: BSD-3-Clause */
/* See device.h. */
#include "device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

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

int device_find(const device_runtime_t **runtime_p)
{
    const char             *name    = getenv("ANGARA_TEST_GPU");
    const device_runtime_t *runtime = device_runtime(name != NULL ? name : "cuda");
    int                     status;
    pid_t                   pid;

    if (runtime == NULL) {
        fprintf(stderr, "ANGARA_TEST_GPU: cuda or rocm\n");
        return 2;
    }
    pid = fork();
    if (pid == 0) {
        _exit(runtime->open() == 0);
    }
    if (waitpid(pid, &status, 0) != pid || (status != 0 && getenv("ANGARA_TEST_MUST") != NULL)) {
        fprintf(stderr, "ANGARA_TEST_MUST is set, but there is no GPU of %s\n", runtime->name);
        return 1;
    }
    if (status != 0) {
        printf("1..0 # SKIP no GPU of %s\n", runtime->name);
        return 0;
    }
    *runtime_p = runtime;
    return -1;
}

void *device_library(const device_runtime_t *runtime)
{
    return dlopen(runtime->library, RTLD_LAZY | RTLD_LOCAL);
}
