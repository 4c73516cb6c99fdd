/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Writes the counters of the process to the file named by UCX_ANGARA_STATS. Runs only when an
 * interface closes; may touch nothing but the totals below and that file.
 */
#include "base/compat.h"
#include "base/stats.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static struct {
    pthread_mutex_t    lock;
    pid_t              pid; /* a child of fork starts from zero */
    uct_angara_stats_t sum;
} uct_angara_totals = {PTHREAD_MUTEX_INITIALIZER, 0, {0}};

static void uct_angara_stats_write(const char *path, const uct_angara_stats_t *stats)
{
    FILE *stream = fopen(path, "we");

    if (stream == NULL) {
        ucs_warn("UCX_ANGARA_STATS: cannot write %s: %s", path, strerror(errno));
        return;
    }

#define UCT_ANGARA_COUNTER_PRINT(_name) fprintf(stream, #_name " %" PRIu64 "\n", stats->_name);
    UCT_ANGARA_COUNTERS(UCT_ANGARA_COUNTER_PRINT)
#undef UCT_ANGARA_COUNTER_PRINT

    if (fclose(stream) != 0) {
        ucs_warn("UCX_ANGARA_STATS: writing %s failed: %s", path, strerror(errno));
    }
}

void uct_angara_stats_report(const char *file, const uct_angara_stats_t *stats)
{
    char path[PATH_MAX];

    pthread_mutex_lock(&uct_angara_totals.lock);
    if (uct_angara_totals.pid != getpid()) {
        memset(&uct_angara_totals.sum, 0, sizeof(uct_angara_totals.sum));
        uct_angara_totals.pid = getpid();
    }

#define UCT_ANGARA_COUNTER_ADD(_name) uct_angara_totals.sum._name += stats->_name;
    UCT_ANGARA_COUNTERS(UCT_ANGARA_COUNTER_ADD)
#undef UCT_ANGARA_COUNTER_ADD

    if (file[0] != '\0') {
        ucs_fill_filename_template(file, path, sizeof(path));
        uct_angara_stats_write(path, &uct_angara_totals.sum);
    }
    pthread_mutex_unlock(&uct_angara_totals.lock);
}
