/* SPDX-License-Identifier: BSD-3-Clause */
#include "regperf.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS_MAX 10000

static const struct {
    size_t   bytes;
    unsigned share; /* of the rounds: 1 / share */
} sizes[] = {{4096, 1}, {2u << 20, 4}, {256u << 20, 40}};

enum { REG, DEREG, BOTH, TIMES };

static double now_us(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec * 1e-3;
}

static int compare(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static double median(double *times, unsigned count)
{
    qsort(times, count, sizeof(*times), compare);
    return times[count / 2];
}

/*
 * The same pages for all programs that are compared: how scattered they are decides about the time.
 * The file stays.
 */
static void *pages_map(size_t bytes)
{
    int   fd   = open("/dev/shm/regperf", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    void *base = MAP_FAILED;

    if (fd >= 0 && posix_fallocate(fd, 0, (off_t)bytes) == 0) {
        base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    }
    close(fd);
    return base;
}

/* @return 0, or -1 if a call failed */
static int measure(const regperf_device_t *device, size_t bytes, unsigned rounds)
{
    static double times[TIMES][ROUNDS_MAX];
    double        begin, middle, end;
    void         *base, *handle;

    base = pages_map(bytes);
    if (base == MAP_FAILED) {
        return -1;
    }
    handle = device->reg(base, bytes); /* the first of a process costs more */
    if (handle == NULL || device->dereg(handle) != 0) {
        return -1;
    }
    for (unsigned i = 0; i < rounds; ++i) {
        begin  = now_us();
        handle = device->reg(base, bytes);
        middle = now_us();
        if (handle == NULL || device->dereg(handle) != 0) {
            return -1;
        }
        end             = now_us();
        times[REG][i]   = middle - begin;
        times[DEREG][i] = end - middle;
        times[BOTH][i]  = end - begin;
    }
    printf("%zu %.1f %.1f %.1f\n", bytes, median(times[REG], rounds), median(times[DEREG], rounds),
           median(times[BOTH], rounds));
    fflush(stdout);
    munmap(base, bytes);
    return 0;
}

int regperf(const regperf_device_t *device, int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 400;

    if (rounds < 1 || rounds > ROUNDS_MAX) {
        fprintf(stderr, "Usage: %s [ROUNDS]    (of the smallest size, 400)\n", argv[0]);
        return 2;
    }
    printf("# Size  Register  Deregister  Both\n");
    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); ++i) {
        unsigned share = (unsigned)rounds / sizes[i].share;

        if (measure(device, sizes[i].bytes, share != 0 ? share : 1) != 0) {
            perror("registering memory");
            return 1;
        }
    }
    return 0;
}
