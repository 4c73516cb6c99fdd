/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Allocations of other processes' GPUs that this one has mapped: see gpu_mem.h. Mapping takes long,
 * so it is done once, and the mapping outlives the region that it was made for.
 *
 * What isn't needed any more is only taken off its place: gpu_leave.c has it unmapped.
 */
#include "gpu_mem.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct soft_import {
    soft_leaving_t       leaving; /* once it is off its place */
    soft_import_t       *next;    /* of its place */
    uint64_t             id;      /* of the allocation in its process */
    int                  device;  /* GPU that it was mapped for; -1: any */
    const ang_gpu_ops_t *ops;     /* NULL: it couldn't be mapped; tried again after the next look */
    ang_gpu_map_t        map;
    ang_gpu_mem_t        mem;     /* what this process's runtime says of it */
    unsigned             users;   /* operations under way */
    uint64_t             witness; /* see is_vouched_for(); 0: none */
};

/* Of one process; its places are those of that process's table. */
struct soft_imports {
    soft_imports_t              *next;
    const soft_remote_process_t *process;
    soft_segment_t               segment;
    const soft_share_table_t    *table;
    soft_import_t               *places[SOFT_SHARES]; /* lists: an allocation, by several GPUs */
};

/* Of all; only the runtime's locks, and that of what leaves, are taken behind it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
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

/* What is behind it is this process's, whatever the other one's table says. */
static void look_here(const soft_import_t *import, ang_gpu_mem_t *mem)
{
    ang_gpu_query_found(import->map.base, mem);
}

/* Bytes from its beginning. */
static uint64_t length_here(const soft_import_t *import)
{
    const ang_gpu_mem_t *mem = &import->mem;

    return ang_gpu_is_device(mem) ? mem->mem.length - (uint64_t)((const char *)import->map.base -
                                                                 (const char *)mem->mem.base) :
                                    0;
}

/* With the context that it was made in, a mapping ends by itself. */
static int has_ended(const soft_import_t *import)
{
    ang_gpu_mem_t now;

    if (import->ops == NULL) {
        return 0;
    }
    look_here(import, &now);
    return !ang_gpu_is_device(&now) || now.mem.id != import->mem.mem.id;
}

/*
 * A mapping lives as long as its context does, and so does an allocation of that context. So the
 * near end of a copy, which was found alive just now, vouches for a mapping that was alive together
 * with it before: the driver needn't be asked. (Only for allocations that have a handle: those of
 * pools and mapped ranges aren't a context's.)
 */
static int is_vouched_for(soft_import_t *import, const ang_gpu_mem_t *near)
{
    if (near == NULL || !near->mem.shares || near->mem.id == 0 || near->context == NULL ||
        import->ops == NULL || near->context != import->map.context) {
        return 0;
    }
    if (near->mem.id == import->witness) {
        return 1;
    }
    import->witness = near->mem.id; /* if it turns out not to have ended */
    return 0;
}

/* One that isn't reached from anywhere else. */
static int import_end(soft_leaving_t *leaving)
{
    soft_import_t *import = (soft_import_t *)leaving;

    if (!has_ended(import)) {
        if (!import->ops->is_idle(&import->map)) {
            return 0;
        }
        import->ops->unmap(&import->map);
    }
    free(import);
    return 1;
}

/* Take one that nobody uses off its place. */
static void import_drop(soft_import_t **link)
{
    soft_import_t *import = *link;

    *link = import->next;
    if (import->ops == NULL) {
        free(import);
    } else {
        soft_leave(&import->leaving, import_end);
    }
}

/* Map it for that GPU alone; -1: for any. */
static soft_import_t *import_new(soft_imports_t *imports, uint32_t place, uint64_t id, int device)
{
    soft_import_t *import = calloc(1, sizeof(*import));
    soft_share_t   share;

    if (import == NULL) {
        return NULL;
    }
    import->id     = id;
    import->device = device;
    if (soft_leaving_count() < SOFT_SHARES &&
        share_read(imports->table, place, id, &share) == ANGARA_OK) {
        import->ops = ang_gpu_map(share.kind, device, &share.handle, share.length, &import->map);
        if (import->ops != NULL) {
            look_here(import, &import->mem);
            import->mem.mem.pci = share.pci; /* the driver says which GPU has mapped it */
        }
    }
    import->next           = imports->places[place];
    imports->places[place] = import;
    return import;
}

/* What isn't that allocation any more, and isn't used, goes. */
static void place_clean(soft_import_t **link, uint64_t id, const ang_gpu_mem_t *near)
{
    while (*link != NULL) {
        if ((*link)->users == 0 &&
            ((*link)->id != id || (!is_vouched_for(*link, near) && has_ended(*link)))) {
            import_drop(link);
        } else {
            link = &(*link)->next;
        }
    }
}

/* What came of mapping it for that GPU, now or before. */
static soft_import_t *import_for(soft_imports_t *imports, uint32_t place, uint64_t id, int device)
{
    soft_import_t *import = imports->places[place];

    while (import != NULL && (import->id != id || import->device != device)) {
        import = import->next;
    }
    return import != NULL ? import : import_new(imports, place, id, device);
}

/* The best mapping; NULL, or one without `ops`: there is no way. */
static soft_import_t *import_find(soft_imports_t *imports, uint32_t place, uint64_t id,
                                  const ang_gpu_mem_t *near)
{
    int            device = near != NULL ? near->mem.device : -1;
    soft_import_t *import;

    place_clean(&imports->places[place], id, near);
    if (device >= 0) {
        import = import_for(imports, place, id, device);
        if (import != NULL && import->ops != NULL) {
            return import;
        }
    }
    for (import = imports->places[place]; import != NULL; import = import->next) {
        if (import->id == id && import->ops != NULL) {
            return import;
        }
    }
    return import_for(imports, place, id, -1);
}

angara_status_t soft_import_get(soft_remote_process_t *process, const soft_mr_entry_t *entry,
                                const ang_gpu_mem_t *near, uint64_t at, uint64_t length,
                                soft_import_t **import_p, uint64_t *addr_p)
{
    uint32_t        share  = entry->share;
    uint64_t        id     = entry->id;
    uint64_t        offset = __atomic_load_n(&entry->offset, __ATOMIC_RELAXED);
    angara_status_t status = ANGARA_ERR_UNSUPPORTED;
    soft_import_t  *import;
    soft_imports_t *imports;

    if (share >= SOFT_SHARES || id == 0) {
        return ANGARA_ERR_UNSUPPORTED;
    }
    pthread_mutex_lock(&lock);
    imports = process->imports != NULL ? process->imports : imports_new(process, entry->fd);
    if (imports == NULL) {
        goto unlock;
    }
    import = import_find(imports, share, id, near);
    if (import != NULL && import->ops != NULL && ang_in_bounds(offset, at, length_here(import)) &&
        ang_in_bounds(offset + at, length, length_here(import))) {
        import->users++;
        *import_p = import;
        *addr_p   = (uintptr_t)import->map.base + offset + at;
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

const ang_gpu_mem_t *soft_import_mem(const soft_import_t *import)
{
    return &import->mem;
}

void soft_import_put(soft_import_t *import)
{
    pthread_mutex_lock(&lock);
    import->users--;
    pthread_mutex_unlock(&lock);
}

/* @return how many mappings of that process's allocations stay */
static unsigned imports_look(soft_imports_t *imports)
{
    int      dead  = soft_remote_process_dead(imports->process);
    unsigned count = 0;

    for (uint32_t i = 0; i < SOFT_SHARES; ++i) {
        soft_import_t **link = &imports->places[i];
        uint64_t        id   = __atomic_load_n(&imports->table->shares[i].id, __ATOMIC_RELAXED);

        while (*link != NULL) {
            if ((*link)->users == 0 && (dead || (*link)->ops == NULL || id != (*link)->id)) {
                import_drop(link);
            } else {
                link = &(*link)->next;
                count++;
            }
        }
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
            while (imports->places[i] != NULL) {
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
