/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GPUs of this machine, and whether their memory is recognised. Loads and starts the runtimes,
 * which the library leaves to the program.
 */
#define _GNU_SOURCE
#include "info.h"

#include <angara/angara_mem.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    const char       *check;
    const char       *name; /* the library's */
    angara_mem_kind_t kind;
    const char       *node;
    const char       *library;
    const char       *package;
    const char       *start; /* the call that starts it */
    int               takes_flags;
} runtime_t;

static const runtime_t runtimes[] = {
    {"GPU memory, CUDA", "cuda", ANGARA_MEM_CUDA, "/dev/nvidiactl", "libcuda.so.1",
     "NVIDIA's driver (Debian: libcuda1)", "cuInit", 1},
    {"GPU memory, ROCm", "rocm", ANGARA_MEM_ROCM, "/dev/kfd", "libhsa-runtime64.so.1",
     "ROCm's runtime (Debian: libhsa-runtime64-1)", "hsa_init", 0},
};

/* @return the call's result; -1: it isn't there */
static int runtime_start(const runtime_t *runtime, void *library)
{
    int (*with_flags)(unsigned flags) = NULL;
    int (*without)(void)              = NULL;

    if (runtime->takes_flags) {
        *(void **)(&with_flags) = dlsym(library, runtime->start);
        return with_flags != NULL ? with_flags(0) : -1;
    }
    *(void **)(&without) = dlsym(library, runtime->start);
    return without != NULL ? without() : -1;
}

/* What the library says of it, once it is in the process. @return 0: it doesn't know it */
static int runtime_lacks(const runtime_t *runtime, const char **lacks)
{
    const char *name;

    for (unsigned i = 0; angara_mem_runtime(i, &name, lacks) == ANGARA_OK; ++i) {
        if (strcmp(name, runtime->name) == 0) {
            return 1;
        }
    }
    return 0;
}

/* Two processes on one GPU take turns unless CUDA's multi-process service runs. */
static int has_mps(void)
{
    const char *folder = getenv("CUDA_MPS_PIPE_DIRECTORY");
    char        path[512];

    snprintf(path, sizeof(path), "%s/control", folder != NULL ? folder : "/tmp/nvidia-mps");
    return access(path, F_OK) == 0;
}

static void check_runtime(info_check_t *check, const runtime_t *runtime)
{
    void       *library = dlopen(runtime->library, RTLD_LAZY | RTLD_LOCAL);
    const char *lacks   = "";
    int         result;

    if (library == NULL) {
        info_set_value(check, INFO_MISSING, "%s isn't found, but %s", runtime->library,
                       access(runtime->node, F_OK) == 0 ? "there is a GPU" :
                                                          "ANGARA_GPU asks for it");
        info_set_fix(check, "install %s, or set LD_LIBRARY_PATH", runtime->package);
        return;
    }
    result = runtime_start(runtime, library);
    if (result != 0) {
        info_set_value(check, INFO_MISSING, "%s doesn't start: %s gives %d", runtime->library,
                       runtime->start, result);
        info_set_fix(check, "see whether the GPU's own tools work, and who may open %s",
                     runtime->node);
    } else if (!runtime_lacks(runtime, &lacks)) {
        info_set_value(check, INFO_MISSING, "%s lacks what nothing works without",
                       runtime->library);
        info_set_fix(check, "a newer driver; ANGARA_LOG_LEVEL=debug says what it lacks");
    } else {
        int lacks_some  = lacks[0] != '\0';
        int takes_turns = runtime->kind == ANGARA_MEM_CUDA && !has_mps();

        info_set_value(check, lacks_some ? INFO_NOTE : INFO_OK, "recognised%s%s%s",
                       takes_turns ? "; processes that share a GPU take turns" : "",
                       lacks_some ? "; the runtime lacks " : "", lacks);
        info_set_fix(
            check, "%s%s%s", lacks_some ? "a newer driver" : "",
            lacks_some && takes_turns ? "; " : "",
            takes_turns ? "only with several ranks on one GPU: nvidia-cuda-mps-control -d" : "");
    }
}

unsigned info_gpu_checks(info_check_t *checks)
{
    const unsigned count = sizeof(runtimes) / sizeof(runtimes[0]);
    uint32_t       kinds = 0;
    unsigned       n     = 0;

    angara_mem_kinds(&kinds);
    for (unsigned i = 0; i < count; ++i) {
        if (kinds & 1u << runtimes[i].kind) {
            checks[n].name = runtimes[i].check;
            check_runtime(&checks[n++], &runtimes[i]);
        }
    }
    if (n == 0) {
        checks[n].name = "GPU memory";
        info_set_value(&checks[n++], INFO_OK, "no GPU (%s, %s), or ANGARA_GPU leaves it out",
                       runtimes[0].node, runtimes[1].node);
    }
    return n;
}
