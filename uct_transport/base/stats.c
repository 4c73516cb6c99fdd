/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Writes the counters of the process to the file named by UCX_ANGARA_STATS. Runs only when an
 * interface opens or closes; may touch nothing but the totals below and that file.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "base/alike.h"
#include "base/compat.h"
#include "base/stats.h"

#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <ucs/sys/sys.h>

static struct {
    pthread_mutex_t    lock;
    pid_t              pid;        /* a child of fork starts from zero */
    int                is_refused; /* the file, and that has been said */
    uct_angara_stats_t sum;
    angara_counters_t  pe;
} uct_angara_totals = {PTHREAD_MUTEX_INITIALIZER, 0, 0, {0}, {0}};

const char *const uct_angara_stats_names[] = {
#define UCT_ANGARA_COUNTER_NAME(_name, _help) #_name,
    UCT_ANGARA_COUNTERS(UCT_ANGARA_COUNTER_NAME)
#undef UCT_ANGARA_COUNTER_NAME
};

_Static_assert(UCT_ANGARA_NUM_COUNTERS <= ANGARA_WATCH_COUNTERS, "all can be watched");

void uct_angara_stats_add(uct_angara_stats_t *sum, const uct_angara_stats_t *stats)
{
    /* processes are counted, not how many of the interfaces reach them */
    uint64_t peers = ucs_max(sum->peers, stats->peers);

#define UCT_ANGARA_COUNTER_ADD(_name, _help) sum->_name += stats->_name;
    UCT_ANGARA_COUNTERS(UCT_ANGARA_COUNTER_ADD)
#undef UCT_ANGARA_COUNTER_ADD
    sum->peers = peers;
}

static void uct_angara_stats_add_pe(angara_counters_t *sum, const angara_counters_t *pe)
{
#define UCT_ANGARA_COUNTER_ADD(_name, _help) sum->_name += pe->_name;
    ANGARA_COUNTERS(UCT_ANGARA_COUNTER_ADD)
#undef UCT_ANGARA_COUNTER_ADD
}

/* Under the lock. */
static void uct_angara_stats_print(FILE *stream)
{
    const char *rank = angara_job_rank();

    fprintf(stream, "host %s\npid %d\nrank %s\nprogram %s\n", ucs_get_host_name(), (int)getpid(),
            (rank[0] != '\0') ? rank : "-", program_invocation_short_name);
#define UCT_ANGARA_COUNTER_PRINT(_name, _help) \
    fprintf(stream, "%s %" PRIu64 " %s\n", #_name, uct_angara_totals.sum._name, _help);
    UCT_ANGARA_COUNTERS(UCT_ANGARA_COUNTER_PRINT)
#undef UCT_ANGARA_COUNTER_PRINT
#define UCT_ANGARA_COUNTER_PRINT(_name, _help) \
    fprintf(stream, "pe_%s %" PRIu64 " %s\n", #_name, uct_angara_totals.pe._name, _help);
    ANGARA_COUNTERS(UCT_ANGARA_COUNTER_PRINT)
#undef UCT_ANGARA_COUNTER_PRINT
}

/* With the name as it was asked for, which all ranks have alike. Under the lock. */
static void uct_angara_stats_refuse(const char *file)
{
    if (!uct_angara_totals.is_refused) {
        uct_angara_totals.is_refused = 1;
        uct_angara_log_alike(UCS_LOG_LEVEL_WARN, "UCX_ANGARA_STATS: cannot write %s: %s", file,
                             strerror(errno));
    }
}

/* No file is made: a process that is killed would leave an empty one. */
static int uct_angara_stats_may_write(char *path)
{
    return (access(path, W_OK) == 0) ||
           ((errno == ENOENT) && (access(dirname(path), W_OK | X_OK) == 0));
}

void uct_angara_stats_check(const char *file)
{
    char path[PATH_MAX];

    if (file[0] == '\0') {
        return;
    }

    ucs_fill_filename_template(file, path, sizeof(path));
    pthread_mutex_lock(&uct_angara_totals.lock);
    if (!uct_angara_stats_may_write(path)) {
        uct_angara_stats_refuse(file);
    }
    pthread_mutex_unlock(&uct_angara_totals.lock);
}

static void uct_angara_stats_write(const char *file)
{
    char  path[PATH_MAX];
    FILE *stream;

    ucs_fill_filename_template(file, path, sizeof(path));
    stream = fopen(path, "we");
    if (stream == NULL) {
        uct_angara_stats_refuse(file);
        return;
    }

    uct_angara_stats_print(stream);
    if (fclose(stream) != 0) {
        uct_angara_log_alike(UCS_LOG_LEVEL_WARN, "UCX_ANGARA_STATS: writing %s failed: %s", file,
                             strerror(errno));
    }
}

void uct_angara_stats_report(const char *file, const uct_angara_stats_t *stats,
                             const angara_counters_t *pe)
{
    pthread_mutex_lock(&uct_angara_totals.lock);
    if (uct_angara_totals.pid != getpid()) {
        memset(&uct_angara_totals.sum, 0, sizeof(uct_angara_totals.sum));
        memset(&uct_angara_totals.pe, 0, sizeof(uct_angara_totals.pe));
        uct_angara_totals.pid = getpid();
    }

    uct_angara_stats_add(&uct_angara_totals.sum, stats);
    uct_angara_stats_add_pe(&uct_angara_totals.pe, pe);
    if (file[0] != '\0') {
        uct_angara_stats_write(file);
    }
    pthread_mutex_unlock(&uct_angara_totals.lock);
}
