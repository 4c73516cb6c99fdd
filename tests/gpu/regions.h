/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the tests of regions of GPU memory share: over the conformance suite's harness, regions
 * wherever their bytes are. The processes run over the runtime that ANGARA_TEST_GPU names, real or
 * stand-in; the one that runs cmocka loads none.
 */
#ifndef ANGARA_TESTS_GPU_REGIONS_H
#define ANGARA_TESTS_GPU_REGIONS_H

#include "../conformance/conf.h"
#include "device.h"
#include "standin/standin.h"

#include <angara/angara_mem.h>

#define MB (1ul << 20)

/* Places of bytes, beside device_origin_t. */
enum {
    PLACE_HEAP = DEVICE_ORIGINS,
    PLACE_SHARED, /* angara_mem_alloc() */
    PLACES_NUM
};

extern const device_runtime_t *gpu;

/* Of this process, known after gpu_start(). */
extern unsigned  num_gpus;
extern int       is_standin;
extern standin_t standin; /* if it is one */

typedef struct {
    unsigned    place;
    unsigned    device;
    char       *base; /* of the memory; the region begins behind it, at an odd address */
    char       *addr;
    size_t      length;
    angara_mr_h mr;
    uint64_t    key;
} region_t;

/* For main(): is there a GPU? @return -1: yes; else what the program ends with */
int regions_begin(void);

/* Load and start the runtime. */
void gpu_start(void);
/* A place in text, for messages. */
const char *place_name(unsigned place);
/* Is it memory that the CPU can't touch? */
int place_is_gpu(unsigned place);

/* @return 0: there is no such memory here */
int  region_open(conf_t *t, region_t *region, unsigned place, unsigned device, size_t length,
                 unsigned access);
void region_close(region_t *region);
/* One region for the own end, on the first GPU, and one for the others', on the last; keys[]: of
 * each rank's latter. */
void regions_open(conf_t *t, unsigned here_place, unsigned there_place, size_t length,
                  region_t *here, region_t *there, uint64_t *keys);
/* The parts of region_close(). */
void region_deregister(region_t *region);
void region_free(region_t *region);
void region_write(const region_t *region, size_t at, const void *bytes, size_t length);
void region_read(const region_t *region, size_t at, void *bytes, size_t length);
/* Bytes of data_fill(); are they there? Ends the rank if not. */
void region_fill(const region_t *region, size_t at, size_t length, uint64_t key);
void region_check(const region_t *region, size_t at, size_t length, uint64_t key);
/* Can other processes map it, if their GPUs reach it? */
int region_has_handle(const region_t *region);

/*
 * Wait for what was posted to that rank. @return ANGARA_OK, or the status of the fault; then the
 * pair works again.
 */
angara_status_t end_of(conf_t *t, unsigned rank);
/* Post a transfer between an own region and that of a key. */
angara_status_t put_get_post(conf_t *t, unsigned rank, int is_put, const region_t *here, size_t at,
                             uint64_t key, size_t offset, size_t length);
/* The same, and wait for it: as end_of(). */
angara_status_t put_get(conf_t *t, unsigned rank, int is_put, const region_t *here, size_t at,
                        uint64_t key, size_t offset, size_t length);
/* Operations that the peers' helper threads have carried out for this PE. */
uint64_t services(conf_t *t);

/* Free GPU memory, get another allocation at its address if that can be. @return did it? */
int region_replace(region_t *region);
/* Make progress (if pe isn't NULL) until no memory of others is mapped here; on a real GPU, until
 * it has so many bytes free again. */
void await_unmapped(angara_pe_h pe, size_t available);

unsigned descriptors(void);
/* Lines of /proc/self/maps with these words. */
unsigned map_lines(const char *words);

#define TEST(_name) cmocka_unit_test(_name)

#endif
