/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Dynamic windows of osc/ucx of Open MPI. It keeps the attached regions in a table by rising
 * address, where peers look them up by halves.
 *
 * Open MPI 4.1 and 5:
 *   - Where an entry is moved up to make room, its count of users isn't set back: the new one
 * begins with it, and stays in the table when it has been detached. So the counts are kept here,
 * too, and it is detached as often as it is counted.
 *   - A put or get of no bytes looks up an address that may be in no region.
 *
 * Open MPI 4.1, which goes wrong with more than one region:
 *   - The search includes the place behind the last entry, and puts a region that lies above all
 *     others one too far. That leaves a hole, by which lookups go wrong: a key is taken from in
 *     front of the table, and MPI_Win_free() may crash. So one lies above all from the start, a
 * page at the end of the address space that nobody uses.
 *   - The end of a region is compared as if its last byte didn't belong to it: one of a single byte
 *     is never found. So one byte more is attached, where that is on the same page.
 *   - A lookup lets go of the key that operations before it may still use. These end first.
 *   - MPI_Rput() and MPI_Rget() look up a wrong address beforehand. They become a put or a get that
 *     is waited for.
 *
 * Not mended: an operation that goes on from one region into the next; a target type that doesn't
 * begin at its displacement; a table that has an entry twice when attaching has failed; that each
 * operation reads the table first, 33 KB or more, which has 32 entries (4.1) or 48. With 4.1 also:
 * the last byte of a region that ends with its page; the key that is let go of between two fences,
 * or MPI_Win_start() and MPI_Win_complete(). With 5 also: a region just above one of a single byte.
 *
 * Touches functions of a window's module, and an attribute of the window.
 */
#define _GNU_SOURCE
#include "hook_angara.h"

#include "ompi_config.h"
#include "ompi/datatype/ompi_datatype.h"
#include "ompi/mca/osc/osc.h"
#include "ompi/request/request.h"
#include "ompi/win/win.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MAP_FIXED_NOREPLACE /* glibc before 2.27 */
#define MAP_FIXED_NOREPLACE 0x100000
#endif

/* Entries of osc/ucx's table. */
#define ENTRIES (OSC_UCX_IS_OLD ? 32 : 48)

/* Bits of an address: the last page that a program can have is a page or a few below 1 << bits. */
#define ADDRESS_BITS_MAX 48
#define ADDRESS_BITS_MIN 36

/* A window's table, as osc/ucx has it, by rising base. */
typedef struct {
    pthread_mutex_t lock;
    unsigned        count;
    struct {
        const void *base;
        unsigned    users;
    } entries[ENTRIES];
} table_t;

/* They are written once, with the lock held, before the first window is mended. */
static pthread_mutex_t        lock = PTHREAD_MUTEX_INITIALIZER;
static ompi_osc_base_module_t own; /* osc/ucx's functions */
static int                    table_key = MPI_KEYVAL_INVALID;
static size_t                 page;
static void                  *last_page; /* kept until the process ends; NULL: there is none */

/* ---- the table ------------------------------------------------------------------------------- */

static table_t *table_of(ompi_win_t *win)
{
    void *value    = NULL;
    int   is_there = 0;

    PMPI_Win_get_attr(win, table_key, &value, &is_there);
    return is_there ? value : NULL;
}

static int table_free(MPI_Win win, int key, void *table, void *state)
{
    (void)win;
    (void)key;
    (void)state;
    pthread_mutex_destroy(&((table_t *)table)->lock);
    free(table);
    return MPI_SUCCESS;
}

/* Where that base is, or would be. */
static unsigned table_find(const table_t *table, const void *base)
{
    unsigned i = 0;

    while ((i < table->count) && ((uintptr_t)table->entries[i].base < (uintptr_t)base)) {
        ++i;
    }
    return i;
}

/* As osc/ucx does it, what lies behind the last entry included. */
static void table_add(table_t *table, const void *base)
{
    unsigned i = table_find(table, base);

    memmove(&table->entries[i + 1], &table->entries[i],
            (ENTRIES - (i + 1)) * sizeof(table->entries[0]));
    ++table->count;
    table->entries[i].base = base;
    ++table->entries[i].users;
}

/* @return how often it was counted; 0: it isn't there */
static unsigned table_remove(table_t *table, const void *base)
{
    unsigned i = table_find(table, base), users;

    if ((i == table->count) || (table->entries[i].base != base)) {
        return 0;
    }
    users                   = table->entries[i].users;
    table->entries[i].users = 0;
    memmove(&table->entries[i], &table->entries[i + 1],
            (ENTRIES - (i + 1)) * sizeof(table->entries[0]));
    --table->count;
    return users;
}

/* ---- the functions of a window --------------------------------------------------------------- */

static int attach(ompi_win_t *win, void *base, size_t length)
{
    table_t *table = table_of(win);
    int      status;

    if (length == 0) {
        return OMPI_SUCCESS;
    }
    /* A byte behind the allocation of a GPU's memory is nobody's. */
    if (OSC_UCX_IS_OLD && (((uintptr_t)base + length) % page != 0) &&
        !hook_angara_plugin_is_on_gpu(base)) {
        ++length;
    }
    pthread_mutex_lock(&table->lock);
    status = own.osc_win_attach(win, base, length); /* refuses it if the table is full */
    if (status == OMPI_SUCCESS) {
        table_add(table, base);
    }
    pthread_mutex_unlock(&table->lock);
    return status;
}

static int detach(ompi_win_t *win, const void *base)
{
    table_t *table  = table_of(win);
    int      status = OMPI_SUCCESS;
    unsigned users;

    pthread_mutex_lock(&table->lock);
    for (users = table_remove(table, base); (users > 0) && (status == OMPI_SUCCESS); --users) {
        status = own.osc_win_detach(win, base);
    }
    pthread_mutex_unlock(&table->lock);
    return status;
}

/* An error without MPI_Win_lock(): between fences there is nothing that waits for one target. */
static int end_before(int target, ompi_win_t *win)
{
    return own.osc_flush_local(target, win);
}

static bool is_empty(int count, const ompi_datatype_t *type)
{
    size_t size;

    ompi_datatype_type_size(type, &size);
    return (size_t)count * size == 0;
}

static int put(const void *origin, int origin_count, ompi_datatype_t *origin_type, int target,
               ptrdiff_t disp, int target_count, ompi_datatype_t *target_type, ompi_win_t *win)
{
    if (is_empty(target_count, target_type)) {
        return OMPI_SUCCESS;
    }
    if (OSC_UCX_IS_OLD) {
        (void)end_before(target, win);
    }
    return own.osc_put(origin, origin_count, origin_type, target, disp, target_count, target_type,
                       win);
}

static int get(void *origin, int origin_count, ompi_datatype_t *origin_type, int target,
               ptrdiff_t disp, int target_count, ompi_datatype_t *target_type, ompi_win_t *win)
{
    if (is_empty(target_count, target_type)) {
        return OMPI_SUCCESS;
    }
    if (OSC_UCX_IS_OLD) {
        (void)end_before(target, win);
    }
    return own.osc_get(origin, origin_count, origin_type, target, disp, target_count, target_type,
                       win);
}

static int rput(const void *origin, int origin_count, ompi_datatype_t *origin_type, int target,
                ptrdiff_t disp, int target_count, ompi_datatype_t *target_type, ompi_win_t *win,
                ompi_request_t **request)
{
    bool empty = is_empty(target_count, target_type);
    int  status;

    if (!OSC_UCX_IS_OLD && !empty) {
        return own.osc_rput(origin, origin_count, origin_type, target, disp, target_count,
                            target_type, win, request);
    }
    status = end_before(target, win);
    if ((status == OMPI_SUCCESS) && !empty) {
        status = own.osc_put(origin, origin_count, origin_type, target, disp, target_count,
                             target_type, win);
    }
    *request = &ompi_request_empty;
    return (status == OMPI_SUCCESS) ? own.osc_flush_local(target, win) : status;
}

static int rget(void *origin, int origin_count, ompi_datatype_t *origin_type, int target,
                ptrdiff_t disp, int target_count, ompi_datatype_t *target_type, ompi_win_t *win,
                ompi_request_t **request)
{
    bool empty = is_empty(target_count, target_type);
    int  status;

    if (!OSC_UCX_IS_OLD && !empty) {
        return own.osc_rget(origin, origin_count, origin_type, target, disp, target_count,
                            target_type, win, request);
    }
    status = end_before(target, win);
    if ((status == OMPI_SUCCESS) && !empty) {
        status = own.osc_get(origin, origin_count, origin_type, target, disp, target_count,
                             target_type, win);
    }
    *request = &ompi_request_empty;
    return (status == OMPI_SUCCESS) ? own.osc_flush_local(target, win) : status;
}

/* ---- mending --------------------------------------------------------------------------------- */

/* The highest page that a program can have: not one below its stack. @return whether there is one
 */
static bool map_last_page(void)
{
    uintptr_t at;
    void     *got;

    for (unsigned bits = ADDRESS_BITS_MAX; bits >= ADDRESS_BITS_MIN; --bits) {
        at = ((uintptr_t)1 << bits) - 2 * page;
        if (at <= (uintptr_t)&at) {
            break;
        }
        got = mmap((void *)at, page, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (got == (void *)at) {
            last_page = got;
            break;
        }
        if (got != MAP_FAILED) { /* an old kernel takes the address for a wish */
            munmap(got, page);
        }
    }
    return last_page != NULL;
}

/* @return whether there is all that is needed. */
static bool prepare(const ompi_osc_base_module_t *module)
{
    bool is_there;

    pthread_mutex_lock(&lock);
    if ((table_key == MPI_KEYVAL_INVALID) &&
        (PMPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, table_free, &table_key, NULL) ==
         MPI_SUCCESS)) {
        own  = *module; /* the same of all windows */
        page = (size_t)sysconf(_SC_PAGESIZE);
        if (OSC_UCX_IS_OLD && !map_last_page()) {
            hook_angara_warn("a dynamic window can have one range only: addresses aren't random, "
                             "as in a debugger, so that no page is above the stack");
        }
    }
    is_there = table_key != MPI_KEYVAL_INVALID;
    pthread_mutex_unlock(&lock);
    return is_there;
}

void hook_angara_dynamic_mend(struct ompi_win_t *win)
{
    ompi_osc_base_module_t *module = win->w_osc_module;
    table_t                *table;

    /* A build for debugging checks the counts, and ends the program. */
    if (OPAL_ENABLE_DEBUG || !prepare(module)) {
        return;
    }
    module->osc_put  = put;
    module->osc_get  = get;
    module->osc_rput = rput;
    module->osc_rget = rget;
    if (OSC_UCX_IS_OLD && (last_page == NULL)) {
        return;
    }
    table = calloc(1, sizeof(*table));
    if (table == NULL) {
        return;
    }
    pthread_mutex_init(&table->lock, NULL);
    if (PMPI_Win_set_attr(win, table_key, table) != MPI_SUCCESS) {
        table_free(win, table_key, table, NULL);
        return;
    }
    if (OSC_UCX_IS_OLD) {
        if (own.osc_win_attach(win, last_page, page) != OMPI_SUCCESS) {
            return;
        }
        table_add(table, last_page);
    }
    module->osc_win_attach = attach;
    module->osc_win_detach = detach;
}
