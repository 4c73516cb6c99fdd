/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The board: where a process shows its counters (src/watch.c) and angara_top reads them. An
 * anonymous file (memfd) that the process keeps open; others of its user open it through
 * /proc/PID/fd and read() it. They can't write it: the file is sealed. A board describes itself, so
 * that the reader need not be of the writer's version, as long as `layout` is the same.
 *
 * The reader may be root and the writer hostile: it checks whatever it takes from a board.
 */
#ifndef ANG_BOARD_H
#define ANG_BOARD_H

#include <angara/angara_watch.h>

#include <string.h>

#define ANG_BOARD_NAME   "angara-counters"
#define ANG_BOARD_MAGIC  0x64726162676e6121ull
#define ANG_BOARD_LAYOUT 1u
#define ANG_BOARD_SEALS  (F_SEAL_SHRINK | F_SEAL_GROW)
#define ANG_BOARD_KINDS  15u
#define ANG_BOARD_BLOCKS 8192u

/* Is that a name: lower case letters, digits and what is in `others`, one at least, and a final 0
 * within `size`? */
static inline int ang_board_is_name(const char *text, const char *others, size_t size)
{
    size_t length = 0;

    while (length < size && text[length] != '\0' &&
           ((text[length] >= 'a' && text[length] <= 'z') ||
            (text[length] >= '0' && text[length] <= '9') || strchr(others, text[length]) != NULL)) {
        length++;
    }
    return length > 0 && length < size && text[length] == '\0';
}

/* All texts end with 0. */
typedef struct {
    uint64_t magic;
    uint32_t layout;
    int32_t  pid;    /* as the process itself sees it */
    uint32_t kinds;  /* used so far; what is used stays as it is */
    uint32_t blocks; /* used so far: some of them may be free again */
    uint32_t lost;   /* watches that have found no room */
    uint32_t reserved;
    char     version[16]; /* of the library */
    char     host[64];
    char     program[32];
    char     rank[16]; /* in its job; empty if it has none */
} ang_board_head_t;

typedef struct {
    char     name[ANGARA_WATCH_KIND];
    uint32_t count;
    uint32_t reserved;
    char     counters[ANGARA_WATCH_COUNTERS][ANGARA_WATCH_NAME];
} ang_board_kind_t;

/* Counters of one object. Odd `turn`: they are being written; see ang_board_t. */
typedef struct {
    uint32_t turn;
    uint32_t kind; /* number of the kind, plus 1; 0: free */
    uint32_t pe;   /* index of the PE */
    uint32_t reserved;
    uint64_t time_ns; /* CLOCK_REALTIME when they were copied */
    char     label[ANGARA_WATCH_LABEL];
    uint64_t values[ANGARA_WATCH_COUNTERS];
} ang_board_block_t;

/* Memory is taken as blocks are used. */
typedef struct {
    ang_board_head_t  head;
    ang_board_kind_t  kinds[ANG_BOARD_KINDS];
    ang_board_block_t blocks[ANG_BOARD_BLOCKS];
} ang_board_t;

#endif
