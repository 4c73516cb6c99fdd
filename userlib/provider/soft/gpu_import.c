/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Allocations of other processes' GPUs that this one has mapped: see gpu_mem.h. Mapping takes
 * milliseconds, so it is done once, and the mapping outlives the region that it was made for.
 */
#include "gpu_mem.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct soft_import {
    uint64_t             id;  /* of the allocation in its process; 0: none */
    const ang_gpu_ops_t *ops; /* NULL: it couldn't be mapped; tried again after the next look */
    uint64_t             length;
    ang_gpu_map_t        map;
    uint64_t             here;  /* id that the mapping has in this process */
    unsigned             users; /* operations under way */
};

/* Of one process; its places are those of that process's table. */
struct soft_imports {
    soft_imports_t              *next;
    const soft_remote_process_t *process;
    soft_segment_t               segment;
    const soft_share_table_t    *table;
    soft_import_t                places[SOFT_SHARES];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all; leaf but for the runtime's */
static soft_imports_t *first;

/* ---- the table of the other process ---------------------------------------------------------- */

/* What it says of the allocation; ANGARA_ERR_UNSUPPORTED: it isn't shared any more. */
static angara_status_t share_read(const soft_share_table_t *table, uint32_t place, uint64_t id,
                                  soft_share_t *share)
{
    const soft_share_t *there = &table->shares[place];

    if (__atomic_load_n(&there->id, __ATOMIC_ACQUIRE) != id) {
        return ANGARA_ERR_UNSUPPORTED;
    }
    *share = *there;
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return __atomic_load_n(&there->id, __ATOMIC_RELAXED) == id ? ANGARA_OK : ANGARA_ERR_UNSUPPORTED;
}

static soft_imports_t *imports_new(soft_remote_process_t *process, int fd)
{
    soft_imports_t *imports = calloc(1, sizeof(*imports));

    if (imports == NULL) {
        return NULL;
    }
    if (soft_segment_open(process->pid, fd, sizeof(*imports->table), ANG_LOG_WARN,
                          &imports->segment) != ANGARA_OK) {
        goto err_free;
    }
    imports->table = imports->segment.base;
    if (imports->table->magic != SOFT_MAGIC_GPU || imports->table->layout != SOFT_LAYOUT ||
        soft_remote_process_dead(process)) { /* the number may have meant another process */
        goto err_segment;
    }
    imports->process = process;
    imports->next    = first;
    first            = imports;
    process->imports = imports;
    return imports;

err_segment:
    soft_segment_close(&imports->segment);
err_free:
    free(imports);
    return NULL;
}

/* ---- mappings -------------------------------------------------------------------------------- */

static void import_forget(soft_import_t *import)
{
    import->id  = 0;
    import->ops = NULL;
}

static void import_drop(soft_import_t *import)
{
    if (import->ops != NULL) {
        import->ops->unmap(&import->map);
    }
    import_forget(import);
}

static uint64_t id_here(const soft_import_t *import)
{
    ang_gpu_mem_t mem;

    ang_gpu_query(import->map.base, &mem);
    return ang_gpu_is_device(&mem) ? mem.mem.id : UINT64_MAX;
}

static void import_make(const soft_share_table_t *table, uint32_t place, uint64_t id, int device,
                        soft_import_t *import)
{
    soft_share_t share;

    if (import->id != 0) {
        import_drop(import);
    }
    import->id = id;
    if (share_read(table, place, id, &share) == ANGARA_OK) {
        import->length = share.length;
        import->ops    = ang_gpu_map(share.kind, device, &share.handle, share.length, &import->map);
        import->here   = import->ops != NULL ? id_here(import) : 0;
    }
}

angara_status_t soft_import_get(soft_remote_process_t *process, const soft_mr_entry_t *entry,
                                int device, soft_import_t **import_p, uint64_t *addr_p)
{
    uint32_t        place  = entry->share;
    uint64_t        id     = entry->id;
    uint64_t        offset = entry->offset;
    angara_status_t status = ANGARA_ERR_UNSUPPORTED;
    soft_import_t  *import;
    soft_imports_t *imports;

    if (place >= SOFT_SHARES || id == 0) {
        return ANGARA_ERR_UNSUPPORTED;
    }
    pthread_mutex_lock(&lock);
    imports = process->imports != NULL ? process->imports : imports_new(process, entry->fd);
    if (imports == NULL) {
        goto unlock;
    }
    import = &imports->places[place];
    /* With the context that it was made in, a mapping ends by itself. */
    if (import->ops != NULL && import->users == 0 && id_here(import) != import->here) {
        import_forget(import);
    }
    if (import->id != id && import->users == 0) {
        import_make(imports->table, place, id, device, import);
    }
    if (import->id == id && import->ops != NULL &&
        ang_in_bounds(offset, entry->length, import->length)) {
        import->users++;
        *import_p = import;
        *addr_p   = (uintptr_t)import->map.base + offset;
        status    = ANGARA_OK;
    }
unlock:
    pthread_mutex_unlock(&lock);
    return status;
}

void soft_import_hold(soft_import_t *import)
{
    pthread_mutex_lock(&lock);
    import->users++;
    pthread_mutex_unlock(&lock);
}

void soft_import_put(soft_import_t *import)
{
    pthread_mutex_lock(&lock);
    import->users--;
    pthread_mutex_unlock(&lock);
}

/* @return how many allocations of that process stay mapped */
static unsigned imports_look(soft_imports_t *imports)
{
    int      dead  = soft_remote_process_dead(imports->process);
    unsigned count = 0;

    for (uint32_t i = 0; i < SOFT_SHARES; ++i) {
        soft_import_t *import = &imports->places[i];
        uint64_t       id     = __atomic_load_n(&imports->table->shares[i].id, __ATOMIC_RELAXED);

        if (import->id != 0 && import->users == 0 &&
            (dead || import->ops == NULL || id != import->id)) {
            import_drop(import);
        }
        count += import->id != 0;
    }
    return count;
}

unsigned soft_imports_look(void)
{
    unsigned count = 0;

    pthread_mutex_lock(&lock);
    for (soft_imports_t *imports = first; imports != NULL; imports = imports->next) {
        count += imports_look(imports);
    }
    pthread_mutex_unlock(&lock);
    return count;
}

void soft_imports_close(soft_remote_process_t *process)
{
    soft_imports_t **link = &first;
    soft_imports_t  *imports;

    pthread_mutex_lock(&lock);
    imports = process->imports;
    if (imports != NULL) {
        while (*link != imports) {
            link = &(*link)->next;
        }
        *link            = imports->next;
        process->imports = NULL;
        for (uint32_t i = 0; i < SOFT_SHARES; ++i) {
            if (imports->places[i].id != 0) {
                import_drop(&imports->places[i]);
            }
        }
        soft_segment_close(&imports->segment);
        free(imports);
    }
    pthread_mutex_unlock(&lock);
}

/* No GPU memory outlives fork(), and the segments aren't inherited: what is left is only memory,
 * like the parent's other objects. */
static void imports_in_child(void)
{
    static soft_imports_t *parents;
    soft_imports_t       **end = &parents;

    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end  = first;
    first = NULL;
    pthread_mutex_init(&lock, NULL);
}

static void __attribute__((constructor)) imports_init(void)
{
    pthread_atfork(NULL, NULL, imports_in_child);
}
