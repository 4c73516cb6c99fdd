/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Domains of other processes as a PE of this one accesses them, and the shared regions in them that
 * it has mapped.
 *
 * Invariants
 *   - A PE has one object, and so one hazard, for all its pairs with PEs of a domain: the engine
 *     holds nothing from one piece to the next, and works on one piece at a time. An operation that
 *     flies has another hazard, which is set before the first one lets the region go.
 *   - A mapping belongs to the PE, whatever pair it was made for. It isn't given up while a
 *     hazard of its domain, that of a flight too, names its region.
 *   - A mapping that can't be made is no error of the access: it goes another way. No other is
 *     tried for a while then, as each try costs system calls.
 */
#define _GNU_SOURCE
#include "soft.h"

#include "src/clock.h"
#include "src/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define REFUSED_NS 100000000 /* pause after a mapping that couldn't be made */

/* ---- domains --------------------------------------------------------------------------------- */

/* Claim a hazard slot: a free one, or in the second round (`reclaim`) one of a dead process. */
static soft_hazard_t *claim_round(soft_domain_seg_t *seg, int reclaim)
{
    uint64_t mine = soft_owner();
    uint64_t owner;
    uint32_t used;

    for (uint32_t i = 0; i < SOFT_HAZARDS; ++i) {
        soft_hazard_t *hazard = &seg->hazards[i];

        owner = __atomic_load_n(&hazard->owner, __ATOMIC_RELAXED);
        if (owner != 0 && !(reclaim && !soft_owner_alive(owner))) {
            continue;
        }
        if (__atomic_compare_exchange_n(&hazard->owner, &owner, mine, 0, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED)) {
            __atomic_store_n(&hazard->key, 0, __ATOMIC_RELAXED);
            used = __atomic_load_n(&seg->hazards_used, __ATOMIC_RELAXED);
            while (used < i + 1 &&
                   !__atomic_compare_exchange_n(&seg->hazards_used, &used, i + 1, 0,
                                                __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
            }
            return hazard;
        }
    }
    return NULL;
}

static soft_hazard_t *claim(soft_domain_seg_t *seg)
{
    soft_hazard_t *hazard = claim_round(seg, 0);

    return hazard != NULL ? hazard : claim_round(seg, 1);
}

static void hazard_free(soft_hazard_t *hazard)
{
    __atomic_store_n(&hazard->key, 0, __ATOMIC_RELEASE);
    __atomic_store_n(&hazard->owner, 0, __ATOMIC_RELEASE);
}

static angara_status_t claim_hazard(soft_remote_domain_t *domain, pid_t pid)
{
    if (soft_owner() == 0) {
        ang_error("/proc/self/stat can't be read: %s%s", strerror(errno), soft_cure(errno));
        return ANGARA_ERR_LIMIT;
    }
    domain->hazard = claim(domain->seg);
    if (domain->hazard != NULL) {
        return ANGARA_OK;
    }
    ang_error("%u PEs access a domain of pid %d already, which is the limit", SOFT_HAZARDS,
              (int)pid);
    return ANGARA_ERR_LIMIT;
}

static angara_status_t check_domain(soft_remote_domain_t *domain)
{
    const soft_domain_seg_t *seg    = domain->seg;
    uint32_t                 mr_max = seg->mr_max;

    if (seg->magic != SOFT_MAGIC_DOMAIN || seg->layout != SOFT_LAYOUT ||
        mr_max > (domain->map.size - sizeof(*seg)) / sizeof(seg->entries[0])) {
        return ANGARA_ERR_UNREACHABLE;
    }
    domain->mr_max = mr_max;
    return ANGARA_OK;
}

angara_status_t soft_remote_domain_open(soft_remote_process_t *process, int fd,
                                        ang_log_level_t level, soft_remote_domain_t **domain_p)
{
    soft_remote_domain_t *domain = calloc(1, sizeof(*domain));
    angara_status_t       status;

    if (domain == NULL) {
        return ANGARA_ERR_NO_MEMORY;
    }
    domain->refs    = 1;
    domain->process = process;
    status = soft_segment_open(process->pid, fd, sizeof(soft_domain_seg_t), level, &domain->map);
    if (status != ANGARA_OK) {
        goto err_free;
    }
    domain->seg = domain->map.base;
    status      = check_domain(domain);
    if (status == ANGARA_OK && soft_remote_process_dead(process)) {
        status = ANGARA_ERR_PEER_DEAD; /* the number may have meant another process */
    }
    if (status == ANGARA_OK) {
        status = claim_hazard(domain, process->pid);
    }
    if (status != ANGARA_OK) {
        goto err_map;
    }
    *domain_p = domain;
    return ANGARA_OK;

err_map:
    soft_segment_close(&domain->map);
err_free:
    free(domain);
    return status;
}

void soft_remote_domain_close(soft_remote_domain_t *domain)
{
    for (unsigned i = 0; i < SOFT_FLIGHTS && domain->flights[i] != NULL; ++i) {
        hazard_free(domain->flights[i]);
    }
    hazard_free(domain->hazard);
    soft_segment_close(&domain->map);
    free(domain);
}

static angara_status_t domain_new(soft_pe_t *pe, const soft_remote_t *remote,
                                  soft_remote_domain_t **domain_p)
{
    angara_status_t status = soft_remote_domain_open(remote->process, remote->seg->domain_fd,
                                                     ANG_LOG_ERROR, domain_p);

    if (status == ANGARA_OK && remote->seg->generation != remote->address.generation) {
        soft_remote_domain_close(*domain_p);
        status = ANGARA_ERR_PEER_DEAD; /* closed meanwhile: the number may have meant other files */
    }
    if (status == ANGARA_OK) {
        (*domain_p)->pe   = pe;
        (*domain_p)->next = pe->domains;
        pe->domains       = *domain_p;
    }
    return status;
}

angara_status_t soft_remote_domain_get(soft_pe_t *pe, const soft_remote_t *remote,
                                       soft_remote_domain_t **domain_p)
{
    for (soft_remote_domain_t *domain = pe->domains; domain != NULL; domain = domain->next) {
        if (domain->process == remote->process && domain->seg->id == remote->seg->domain_id) {
            domain->refs++;
            *domain_p = domain;
            return ANGARA_OK;
        }
    }
    return domain_new(pe, remote, domain_p);
}

void soft_remote_domain_put(soft_remote_domain_t *domain)
{
    soft_remote_domain_t **link;

    if (--domain->refs != 0) {
        return;
    }
    soft_maps_drop(&domain->pe->maps, domain);
    for (link = &domain->pe->domains; *link != domain; link = &(*link)->next) {
    }
    *link = domain->next;
    soft_remote_domain_close(domain);
}

soft_hazard_t *soft_remote_domain_hold(soft_remote_domain_t *domain, uint64_t key)
{
    for (unsigned i = 0; i < SOFT_FLIGHTS; ++i) {
        if (domain->flights[i] == NULL) {
            domain->flights[i] = claim(domain->seg);
        }
        if (domain->flights[i] == NULL) {
            break;
        }
        if (__atomic_load_n(&domain->flights[i]->key, __ATOMIC_RELAXED) == 0) {
            __atomic_exchange_n(&domain->flights[i]->key, key, __ATOMIC_SEQ_CST);
            return domain->flights[i];
        }
    }
    return NULL;
}

/* ---- mappings -------------------------------------------------------------------------------- */

static int names(const soft_hazard_t *hazard, uint64_t key)
{
    return __atomic_load_n(&hazard->key, __ATOMIC_RELAXED) == key;
}

static int in_use(const soft_map_t *map)
{
    const soft_remote_domain_t *domain = map->domain;

    for (unsigned i = 0; i < SOFT_FLIGHTS && domain->flights[i] != NULL; ++i) {
        if (names(domain->flights[i], map->key)) {
            return 1;
        }
    }
    return names(domain->hazard, map->key);
}

/* Take the map at a place of the table away. */
static void drop(soft_maps_t *maps, unsigned place)
{
    soft_map_t  *map = maps->places[place];
    soft_map_t **link;

    soft_peers_unmap(map->domain->pe);
    for (link = soft_maps_bucket(maps, map->key); *link != map; link = &(*link)->next) {
    }
    *link               = map->next;
    maps->places[place] = maps->places[--maps->count];
    soft_segment_close(&map->seg);
    free(map);
}

/* Give up one that wasn't used since the hand came by last (the clock algorithm). @return done? */
static int evict(soft_maps_t *maps)
{
    if (maps->count != 0) { /* inline code doesn't say what it uses: it asks for that again */
        soft_peers_unmap(maps->places[0]->domain->pe);
    }
    for (unsigned i = 0; i < 2 * maps->count; ++i) {
        unsigned    place = maps->hand++ % maps->count;
        soft_map_t *map   = maps->places[place];

        if (!map->used && !in_use(map)) {
            drop(maps, place);
            return 1;
        }
        map->used = 0;
    }
    return 0;
}

static angara_status_t map_region(soft_maps_t *maps, const soft_remote_domain_t *domain,
                                  const soft_mr_entry_t *entry, soft_segment_t *seg)
{
    uint64_t        size  = entry->offset + entry->length;
    ang_log_level_t level = maps->refused ? ANG_LOG_DEBUG : ANG_LOG_WARN;
    angara_status_t status;

    if (size < entry->offset) {
        return ANGARA_ERR_BOUNDS;
    }
    status = soft_segment_open(domain->process->pid, entry->fd, size, level, seg);
    if (status == ANGARA_ERR_NO_MEMORY && evict(maps)) {
        status = soft_segment_open(domain->process->pid, entry->fd, size, level, seg);
    }
    if (status == ANGARA_OK &&
        soft_remote_process_dead(domain->process)) { /* the number may have meant another process */
        soft_segment_close(seg);
        return ANGARA_ERR_PEER_DEAD;
    }
    return status;
}

static angara_status_t insert(soft_maps_t *maps, soft_remote_domain_t *domain, uint64_t key,
                              const soft_mr_entry_t *entry, soft_map_t **map_p)
{
    soft_map_t     *map = calloc(1, sizeof(*map));
    soft_map_t    **bucket;
    angara_status_t status;

    if (map == NULL) {
        return ANGARA_ERR_NO_MEMORY;
    }
    status = map_region(maps, domain, entry, &map->seg);
    if (status != ANGARA_OK) {
        free(map);
        return status;
    }
    bucket      = soft_maps_bucket(maps, key);
    map->key    = key;
    map->domain = domain;
    map->base   = (char *)map->seg.base + entry->offset;
    map->length = entry->length;
    map->access = entry->access;
    map->next   = *bucket;
    *bucket     = map;

    maps->places[maps->count++] = map;
    *map_p                      = map;
    return ANGARA_OK;
}

angara_status_t soft_maps_add(soft_maps_t *maps, soft_remote_domain_t *domain, uint64_t key,
                              const soft_mr_entry_t *entry, char **base_p)
{
    uint64_t        now = ang_clock_ns(CLOCK_MONOTONIC_COARSE);
    soft_map_t     *map;
    angara_status_t status;

    if (now < maps->retry_ns || (maps->count == SOFT_MAPS && !evict(maps))) {
        return ANGARA_ERR_NO_RESOURCE;
    }
    status = insert(maps, domain, key, entry, &map);
    if (status == ANGARA_OK) {
        *base_p = map->base;
    } else if (status == ANGARA_ERR_NO_MEMORY || status == ANGARA_ERR_LIMIT) {
        maps->refused  = 1;
        maps->retry_ns = now + REFUSED_NS;
        return ANGARA_ERR_NO_RESOURCE;
    }
    return status;
}

void soft_maps_drop(soft_maps_t *maps, const soft_remote_domain_t *domain)
{
    for (unsigned i = maps->count; i-- > 0;) {
        if (maps->places[i]->domain == domain) {
            drop(maps, i);
        }
    }
}

void soft_maps_trim(soft_maps_t *maps)
{
    for (unsigned i = maps->count; i-- > 0;) {
        const soft_map_t *map = maps->places[i];

        if (!in_use(map) && soft_mr_check(map->domain->seg, map->domain->mr_max, map->key, 0, 0, 0,
                                          NULL, NULL) != ANGARA_OK) {
            drop(maps, i);
        }
    }
}
