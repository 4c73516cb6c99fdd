/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Dynamic windows of osc/ucx of Open MPI 4.1, which goes wrong with more than one region. It keeps
 * the attached ones in a table by rising address, where peers look them up by halves:
 *   - One that lies above all others is put an entry too far. Neither it nor some of the others is
 *     found then: a key is taken from in front of the table. So one lies above all from the start,
 *     a page at the end of the address space that nobody uses.
 *   - Where an entry makes room for a new one, this begins with its count of users, and is still
 *     there when it has been detached. So it is detached as often as it may be counted.
 *   - MPI_Rput() and MPI_Rget() look up a wrong address beforehand. They become a put or a get that
 *     is waited for.
 *
 * Not mended: an operation that begins at the last byte of a region, which isn't found, or that
 * goes on into the next one; 31 regions are all that there is room for; and the table, 33 KB, is
 * read before each operation.
 *
 * Touches functions of a window's module.
 */
#define _GNU_SOURCE
#include "hook_angara.h"

#include "ompi_config.h"
#include "ompi/datatype/ompi_datatype.h"
#include "ompi/mca/osc/osc.h"
#include "ompi/request/request.h"
#include "ompi/win/win.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

/* Entries of a table, each of which may have been counted once. */
#define REGIONS_MAX 32

/* Address spaces of this many bits end a page or a few below. */
#define ADDRESS_BITS_MAX 48
#define ADDRESS_BITS_MIN 38

static ompi_osc_base_module_t own; /* osc/ucx's functions */
static pthread_mutex_t        own_lock = PTHREAD_MUTEX_INITIALIZER;
static void                  *last_page; /* kept until the process ends; NULL: there is none */
static size_t                 page;

/* The highest page that a program can have, above its stack. @return whether there is one */
static bool map_last_page(void)
{
    uintptr_t at;
    void     *got;

    page = (size_t)sysconf(_SC_PAGESIZE);
    for (unsigned bits = ADDRESS_BITS_MAX; (bits >= ADDRESS_BITS_MIN) && (last_page == NULL);
         --bits) {
        at  = ((uintptr_t)1 << bits) - 2 * page;
        got = mmap((void *)at, page, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (got == (void *)at) {
            last_page = got;
        } else if (got != MAP_FAILED) { /* an old kernel takes the address for a wish */
            munmap(got, page);
        }
    }
    return last_page != NULL;
}

static int detach(ompi_win_t *win, const void *base)
{
    int status = OMPI_SUCCESS;

    for (unsigned i = 0; (i <= REGIONS_MAX) && (status == OMPI_SUCCESS); ++i) {
        status = own.osc_win_detach(win, base);
    }
    return status;
}

/* Waited for: it is complete in any case. */
static int complete(int status, int target, ompi_win_t *win, ompi_request_t **request)
{
    *request = &ompi_request_empty;
    return (status == OMPI_SUCCESS) ? own.osc_flush_local(target, win) : status;
}

static int rput(const void *origin, int origin_count, ompi_datatype_t *origin_type, int target,
                ptrdiff_t disp, int target_count, ompi_datatype_t *target_type, ompi_win_t *win,
                ompi_request_t **request)
{
    int status = own.osc_put(origin, origin_count, origin_type, target, disp, target_count,
                             target_type, win);

    return complete(status, target, win, request);
}

static int rget(void *origin, int origin_count, ompi_datatype_t *origin_type, int target,
                ptrdiff_t disp, int target_count, ompi_datatype_t *target_type, ompi_win_t *win,
                ompi_request_t **request)
{
    int status = own.osc_get(origin, origin_count, origin_type, target, disp, target_count,
                             target_type, win);

    return complete(status, target, win, request);
}

void hook_angara_dynamic_mend(struct ompi_win_t *win)
{
    ompi_osc_base_module_t *module = win->w_osc_module;
    bool                    is_there;

    if (!OSC_UCX_IS_OLD) {
        return;
    }
    pthread_mutex_lock(&own_lock);
    is_there = (last_page != NULL) || map_last_page();
    own      = *module; /* the same of all windows */
    pthread_mutex_unlock(&own_lock);
    if (!is_there || (module->osc_win_attach(win, last_page, page) != OMPI_SUCCESS)) {
        hook_angara_verbose(1, "a dynamic window can have one region only");
        return;
    }
    module->osc_win_detach = detach;
    module->osc_rput       = rput;
    module->osc_rget       = rget;
}
