/* SPDX-License-Identifier: BSD-3-Clause */
/* See regions.h. */
#include "regions.h"

#include <cmocka.h>

#include <dirent.h>
#include <unistd.h>

#define SHIFT 3 /* of a region in its memory */

const device_runtime_t *gpu;
unsigned                num_gpus;
int                     is_standin;
standin_t               standin;

int regions_begin(void)
{
    int status = device_find(&gpu);

    if (status == -1) {
        setenv("ANGARA_PEER_CHECK", "20", 0);
    }
    return status;
}

void gpu_start(void)
{
    num_gpus = gpu->open();
    CHECK(num_gpus != 0);
    is_standin = standin_load(device_library(gpu), &standin);
}

/* ---- regions --------------------------------------------------------------------------------- */

const char *place_name(unsigned place)
{
    return place < DEVICE_ORIGINS ? device_origin_names[place] :
           place == PLACE_HEAP    ? "heap" :
                                    "shared";
}

int place_is_gpu(unsigned place)
{
    return place < DEVICE_PINNED && place != DEVICE_MANAGED;
}

int region_open(conf_t *t, region_t *region, unsigned place, unsigned device, size_t length,
                unsigned access)
{
    void  *addr = NULL;
    size_t size = length + SHIFT;

    *region = (region_t){.place = place, .device = device, .length = length};
    if (place == PLACE_SHARED) {
        CHECK_OK(angara_mem_alloc(t->dom, &size, access, &addr, &region->mr));
    } else {
        addr = place == PLACE_HEAP ? calloc(1, size) : gpu->alloc(device, size, place);
    }
    if (addr == NULL) {
        return 0;
    }
    region->base = addr;
    region->addr = (char *)addr + (place == PLACE_SHARED ? 0 : SHIFT);
    if (place != PLACE_SHARED) {
        CHECK_OK(angara_mr_register(t->dom, region->addr, length, access, &region->mr));
    }
    region->key = angara_mr_key(region->mr);
    return 1;
}

void region_deregister(region_t *region)
{
    if (region->place == PLACE_SHARED) {
        CHECK_OK(angara_mem_free(region->mr));
    } else {
        CHECK_OK(angara_mr_deregister(region->mr));
    }
}

void region_free(region_t *region)
{
    if (region->place == PLACE_HEAP) {
        free(region->base);
    } else if (region->place < DEVICE_ORIGINS) {
        gpu->free(region->base, region->place);
    }
}

void region_close(region_t *region)
{
    region_deregister(region);
    region_free(region);
}

void regions_open(conf_t *t, unsigned here_place, unsigned there_place, size_t length,
                  region_t *here, region_t *there, uint64_t *keys)
{
    CHECK(region_open(t, here, here_place, 0, length, ANGARA_ACCESS_ALL));
    CHECK(region_open(t, there, there_place, num_gpus - 1, length, ANGARA_ACCESS_ALL));
    conf_exchange(t, &there->key, keys, sizeof(there->key));
}

void region_write(const region_t *region, size_t at, const void *bytes, size_t length)
{
    if (place_is_gpu(region->place)) {
        gpu->write(region->addr + at, bytes, length);
    } else {
        memcpy(region->addr + at, bytes, length);
    }
}

void region_read(const region_t *region, size_t at, void *bytes, size_t length)
{
    if (place_is_gpu(region->place)) {
        gpu->read(bytes, region->addr + at, length);
    } else {
        memcpy(bytes, region->addr + at, length);
    }
}

void region_fill(const region_t *region, size_t at, size_t length, uint64_t key)
{
    char *bytes = malloc(length + 1);

    data_fill(bytes, length, key);
    region_write(region, at, bytes, length);
    free(bytes);
}

void region_check(const region_t *region, size_t at, size_t length, uint64_t key)
{
    char *bytes = malloc(length + 1);

    region_read(region, at, bytes, length);
    if (!rank_matches(bytes, length, key)) {
        rank_fail(__FILE__, __LINE__, "%zu bytes of %s memory aren't those of key %llu", length,
                  place_name(region->place), (unsigned long long)key);
    }
    free(bytes);
}

int region_has_handle(const region_t *region)
{
    angara_mem_t mem;

    CHECK_OK(angara_mem_query(region->addr, &mem));
    return mem.shares && mem.id != 0;
}

/* ---- operations ------------------------------------------------------------------------------ */

angara_status_t end_of(conf_t *t, unsigned rank)
{
    uint64_t       value = ++t->value;
    angara_event_t event;

    if (CONF_POST(t, angara_marker(t->peer[rank], t->slot, value)) == ANGARA_OK) {
        CONF_WAIT(t, angara_marker_arrived(t->slot, value) ||
                         angara_peer_status(t->peer[rank]) != ANGARA_OK);
    }
    if (angara_peer_status(t->peer[rank]) == ANGARA_OK) {
        return ANGARA_OK;
    }
    CHECK(conf_event(t, &event, RANK_TIMEOUT));
    CHECK_EQ(event.type, ANGARA_EVENT_FAULT);
    CHECK_OK(angara_peer_reset(t->peer[rank]));
    return (angara_status_t)event.status;
}

angara_status_t put_get_post(conf_t *t, unsigned rank, int is_put, const region_t *here, size_t at,
                             uint64_t key, size_t offset, size_t length)
{
    angara_peer_h peer = t->peer[rank];

    return is_put ?
               CONF_POST(t,
                         angara_offload_put(peer, here->mr, here->addr + at, key, offset, length)) :
               CONF_POST(t,
                         angara_offload_get(peer, here->mr, here->addr + at, key, offset, length));
}

angara_status_t put_get(conf_t *t, unsigned rank, int is_put, const region_t *here, size_t at,
                        uint64_t key, size_t offset, size_t length)
{
    (void)put_get_post(t, rank, is_put, here, at, key, offset, length);
    return end_of(t, rank);
}

uint64_t services(conf_t *t)
{
    angara_counters_t counters;

    angara_pe_counters(t->pe, &counters);
    return counters.services;
}

/* ---- what becomes of memory ------------------------------------------------------------------ */

#define TRIES_MAX 64

int region_replace(region_t *region)
{
    void    *others[TRIES_MAX];
    unsigned tries = 0;
    void    *addr;

    region_free(region);
    while ((addr = gpu->alloc(region->device, region->length + SHIFT, region->place)) !=
               region->base &&
           addr != NULL && tries < TRIES_MAX) {
        others[tries++] = addr;
    }
    while (tries != 0) {
        gpu->free(others[--tries], region->place);
    }
    if (addr != region->base) {
        fprintf(stderr, "# %s memory has another address now\n", place_name(region->place));
    }
    return addr == region->base;
}

#define ROUGHLY (32 * MB) /* what drivers need may change */

void await_unmapped(angara_pe_h pe, size_t available)
{
    double end = now_seconds() + RANK_TIMEOUT;

    while (is_standin ? standin.mappings() != 0 : gpu->available(0) + ROUGHLY < available) {
        CHECK(now_seconds() < end);
        if (pe != NULL) {
            angara_pe_progress(pe);
        }
        sleep_ms(2);
    }
}

/* ---- the process ----------------------------------------------------------------------------- */

unsigned descriptors(void)
{
    DIR     *dir   = opendir("/proc/self/fd");
    unsigned count = 0;

    CHECK(dir != NULL);
    while (readdir(dir) != NULL) {
        ++count;
    }
    closedir(dir);
    return count;
}

unsigned map_lines(const char *words)
{
    FILE    *file  = fopen("/proc/self/maps", "r");
    unsigned count = 0;
    char     line[512];

    CHECK(file != NULL);
    while (fgets(line, sizeof(line), file) != NULL) {
        count += strstr(line, words) != NULL;
    }
    fclose(file);
    return count;
}
