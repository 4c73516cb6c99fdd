/* SPDX-License-Identifier: BSD-3-Clause */
/* Private to angara_top: what was read from the boards of processes (src/board.h), as data. */
#ifndef ANGARA_TOOLS_TOP_H
#define ANGARA_TOOLS_TOP_H

#include "src/board.h"

#include <stdio.h>
#include <sys/types.h>

/* Counters of one object. Texts are printable; names have a-z and 0-9 only, those of counters _. */
typedef struct {
    const ang_board_kind_t *kind;
    uint32_t                pe;
    uint64_t                time_ns; /* CLOCK_REALTIME when they were counted */
    char                    label[ANGARA_WATCH_LABEL];
    uint64_t                values[ANGARA_WATCH_COUNTERS];
} top_object_t;

typedef struct {
    pid_t             pid; /* as this process sees it */
    ino_t             inode;
    ang_board_head_t  head;
    ang_board_kind_t *kinds;
    top_object_t     *objects; /* in order of PE, label, kind; each once */
    unsigned          count;
} top_process_t;

/* What was read at one time. */
typedef struct {
    uint64_t       time_ns; /* CLOCK_REALTIME */
    top_process_t *processes;
    unsigned       count;
    unsigned       closed; /* processes that this user may not look into */
} top_sample_t;

/* Read all boards, or that of `pid`. Ends the program when memory is exhausted. */
void top_read(pid_t pid, top_sample_t *sample);
void top_free(top_sample_t *sample);

/* That order. */
int top_compare(const top_object_t *x, const top_object_t *y);

/* A counter of the object by its name; 0 if it has none. */
uint64_t top_value(const top_object_t *object, const char *name);

/* Rates between two samples as a table; before NULL: totals. */
void top_print_table(FILE *out, const top_sample_t *before, const top_sample_t *now, int peers);
void top_print_all(FILE *out, const top_sample_t *now);
void top_print_json(FILE *out, const top_sample_t *now);
void top_print_prometheus(FILE *out, const top_sample_t *now);

#endif
