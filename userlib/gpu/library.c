/* SPDX-License-Identifier: BSD-3-Clause */
/* Libraries of runtimes: see library.h. */
#define _GNU_SOURCE
#include "library.h"

#include "src/log.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of what has been found */

/* Another thread may have held it. */
static void in_child(void)
{
    pthread_mutex_init(&lock, NULL);
}

__attribute__((constructor)) static void library_init(void)
{
    pthread_atfork(NULL, NULL, in_child);
}

int ang_gpu_library_is_listed(const ang_gpu_library_t *library, const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *file  = slash != NULL ? slash + 1 : path;

    return strncmp(file, library->stem, strlen(library->stem)) == 0;
}

/* RTLD_NOLOAD: the program decides whether there is a runtime. */
static void *library_open(const ang_gpu_library_t *library)
{
    const int flags = RTLD_NOLOAD | RTLD_LAZY | RTLD_LOCAL;
    char      name[64];
    void     *handle;

    snprintf(name, sizeof(name), "%s.1", library->stem);
    handle = dlopen(name, flags);
    return handle != NULL ? handle : dlopen(library->stem, flags);
}

/* What was resolved is valid for all threads. @return 0: another thread has done it before */
static int publish(ang_gpu_library_t *library, void *const *calls, const char *lacks)
{
    int is_first;

    pthread_mutex_lock(&lock);
    is_first = !library->is_found;
    if (is_first) {
        memcpy(library->calls, calls, library->size);
        memcpy(library->lacks, lacks, sizeof(library->lacks));
        library->is_found = 1;
    }
    pthread_mutex_unlock(&lock);
    return is_first;
}

/* Once a warning: it is looked for after each library that is loaded. */
static void tell(ang_gpu_library_t *library, const char *symbol)
{
    int was_told = __atomic_exchange_n(&library->was_told, 1, __ATOMIC_RELAXED);

    ang_log(was_told ? ANG_LOG_DEBUG : ANG_LOG_WARN,
            "%s has no %s: GPU memory isn't recognised; it needs %s", library->stem, symbol,
            library->needs);
}

/* The handle is kept: what was resolved stays in the process. */
int ang_gpu_library_find(ang_gpu_library_t *library)
{
    void  *handle                        = library_open(library);
    void  *calls[ANG_GPU_CALLS_MAX]      = {NULL};
    char   lacks[sizeof(library->lacks)] = "";
    size_t used                          = 0;

    if (handle == NULL) {
        return 0;
    }
    for (size_t i = 0; i < library->num_symbols; ++i) {
        const ang_gpu_symbol_t *symbol = &library->symbols[i];
        void                   *call   = dlsym(handle, symbol->symbol);

        calls[symbol->offset / sizeof(void *)] = call;
        if (call == NULL && symbol->cost == NULL) {
            tell(library, symbol->symbol);
            dlclose(handle);
            return 0;
        }
        if (call == NULL && used < sizeof(lacks)) {
            used += (size_t)snprintf(lacks + used, sizeof(lacks) - used, "%s%s: %s",
                                     used != 0 ? "\n" : "", symbol->symbol, symbol->cost);
        }
    }
    if (publish(library, calls, lacks)) {
        ang_debug("%s is in the process%s%s", library->stem, used != 0 ? ", without\n" : "", lacks);
    } else {
        dlclose(handle);
    }
    return 1;
}
