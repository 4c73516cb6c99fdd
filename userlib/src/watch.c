/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Writes the counters that can be watched to the board of this process (board.h).
 *
 * The board is made for the first watch and closed with the last. Which blocks and kinds are used
 * is under its lock, which is held across fork; a block is written by the thread that has the calls
 * on its PE, without. A forked child has no board, and makes one for PEs of its own.
 */
#define _GNU_SOURCE
#include "watch.h"

#include "board.h"
#include "check.h"
#include "clock.h"
#include "config.h"
#include "limits.h"
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* What every program's kinds have: of more there are no fields yet. */
#define KIND_SIZE      (offsetof(angara_watch_kind_t, read) + sizeof(void *))

#define PERIOD_NS      100000000ull /* between two looks */
#define LOOKS_PER_TURN 8u           /* in so many all objects of a PE have had their turn */
#define PER_LOOK_MIN   64u          /* objects whose counters are copied at once */

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

struct angara_watch {
    angara_pe_h pe;
    void (*read)(const void *object, uint64_t *values);
    const void          *object;
    unsigned             count; /* of counters */
    unsigned             epoch; /* ang_fork_epoch then */
    ang_board_block_t   *block;
    struct angara_watch *next; /* all of the PE */
};

static struct {
    pthread_mutex_t lock; /* taken at fork, too */
    int             fd;
    ang_board_t    *board; /* NULL: there is none */
    unsigned        users; /* blocks in use */
    unsigned        first; /* no free block below it */
    int             said;  /* that counters can't be watched */
} shown = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1};

/* ---- fork ------------------------------------------------------------------------------------ */

static void before_fork(void)
{
    pthread_mutex_lock(&shown.lock);
}

static void in_parent(void)
{
    pthread_mutex_unlock(&shown.lock);
}

static void in_child(void)
{
    if (shown.fd >= 0) {
        close(shown.fd);
    }
    shown.fd    = -1;
    shown.board = NULL; /* isn't mapped here */
    shown.users = 0;
    pthread_mutex_init(&shown.lock, NULL);
}

static void __attribute__((constructor)) watch_init(void)
{
    pthread_atfork(before_fork, in_parent, in_child);
}

/* ---- the board ------------------------------------------------------------------------------- */

static void board_describe(ang_board_head_t *head)
{
    head->layout = ANG_BOARD_LAYOUT;
    head->pid    = (int32_t)getpid();
    strncpy(head->version, angara_version(), sizeof(head->version) - 1);
    gethostname(head->host, sizeof(head->host) - 1);
    strncpy(head->program, program_invocation_short_name, sizeof(head->program) - 1);
    strncpy(head->rank, angara_job_rank(), sizeof(head->rank) - 1);
    __atomic_store_n(&head->magic, ANG_BOARD_MAGIC, __ATOMIC_RELEASE);
}

static ang_board_t *board_map(int fd)
{
    const size_t size = sizeof(ang_board_t);
    ang_board_t *board;

    if (ang_over_file_limit(size)) {
        errno = EFBIG;
        return NULL;
    }
    if (ftruncate(fd, (off_t)size) != 0) {
        return NULL;
    }
    if (fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)offsetof(ang_board_t, blocks)) != 0) {
        return NULL; /* to write there would kill the process */
    }
    board = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (board == MAP_FAILED) {
        return NULL;
    }
    madvise(board, size, MADV_DONTFORK);
    /* Nobody else may write; kernels before 5.1 can't forbid it. */
    fcntl(fd, F_ADD_SEALS, ANG_BOARD_SEALS);
    fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
    return board;
}

/* Told once: it would be the same for each object. */
static void say_unseen(const char *why)
{
    ang_log(shown.said ? ANG_LOG_DEBUG : ANG_LOG_INFO,
            "counters of this process can't be watched, or not all: %s", why);
    shown.said = 1;
}

/* Under the lock. */
static int board_open(void)
{
    if (shown.board != NULL) {
        return 0;
    }
    shown.fd = memfd_create(ANG_BOARD_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (shown.fd >= 0) {
        shown.board = board_map(shown.fd);
    }
    if (shown.board == NULL) {
        say_unseen(strerror(errno));
        if (shown.fd >= 0) {
            close(shown.fd);
            shown.fd = -1;
        }
        return -1;
    }
    shown.first = 0;
    board_describe(&shown.board->head);
    return 0;
}

/* Under the lock. */
static void board_close_if_unused(void)
{
    if (shown.users == 0) {
        munmap(shown.board, sizeof(*shown.board));
        close(shown.fd);
        shown.board = NULL;
        shown.fd    = -1;
    }
}

static int kind_is(const ang_board_kind_t *known, const angara_watch_kind_t *kind)
{
    unsigned same = 0;

    if (strcmp(known->name, kind->name) != 0 || known->count != kind->count) {
        return 0;
    }
    while (same < kind->count && strcmp(known->counters[same], kind->counters[same]) == 0) {
        same++;
    }
    return same == kind->count;
}

static int kind_fits(const angara_watch_kind_t *kind)
{
    unsigned good = 0;

    if (kind == NULL || kind->size < KIND_SIZE || kind->read == NULL ||
        kind->count > ANGARA_WATCH_COUNTERS || kind->name == NULL ||
        !ang_board_is_name(kind->name, "", ANGARA_WATCH_KIND)) {
        return 0;
    }
    while (good < kind->count && kind->counters[good] != NULL &&
           ang_board_is_name(kind->counters[good], "_", ANGARA_WATCH_NAME)) {
        good++;
    }
    return good == kind->count;
}

/* Under the lock. @return its number plus 1, or 0 if there is no room. */
static uint32_t board_kind(const angara_watch_kind_t *kind)
{
    ang_board_head_t *head = &shown.board->head;
    ang_board_kind_t *new_kind;

    for (uint32_t i = 0; i < head->kinds; ++i) {
        if (kind_is(&shown.board->kinds[i], kind)) {
            return i + 1;
        }
    }
    if (head->kinds == ANG_BOARD_KINDS) {
        return 0;
    }
    new_kind = &shown.board->kinds[head->kinds];
    strcpy(new_kind->name, kind->name);
    for (unsigned i = 0; i < kind->count; ++i) {
        strcpy(new_kind->counters[i], kind->counters[i]);
    }
    new_kind->count = kind->count;
    __atomic_store_n(&head->kinds, head->kinds + 1, __ATOMIC_RELEASE);
    return head->kinds;
}

/* Under the lock. @return a free block, or NULL. */
static ang_board_block_t *board_block(void)
{
    ang_board_head_t *head  = &shown.board->head;
    unsigned          index = shown.first;

    while (index < head->blocks && shown.board->blocks[index].kind != 0) {
        index++;
    }
    shown.first = index;
    if (index == ANG_BOARD_BLOCKS) {
        return NULL;
    }
    if (index == head->blocks) {
        size_t at = offsetof(ang_board_t, blocks) + index * sizeof(ang_board_block_t);

        if (fallocate(shown.fd, FALLOC_FL_KEEP_SIZE, (off_t)at, sizeof(ang_board_block_t)) != 0) {
            return NULL;
        }
        __atomic_store_n(&head->blocks, index + 1, __ATOMIC_RELEASE);
    }
    return &shown.board->blocks[index];
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* What is between both is seen whole or not at all. */
static void block_begin(ang_board_block_t *block)
{
    __atomic_store_n(&block->turn, block->turn | 1, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
}

static void block_end(ang_board_block_t *block)
{
    __atomic_store_n(&block->turn, block->turn + 1, __ATOMIC_RELEASE);
}

static void copy_counters(const angara_watch_h watch, uint64_t now)
{
    ang_board_block_t *block                         = watch->block;
    uint64_t           values[ANGARA_WATCH_COUNTERS] = {0};

    watch->read(watch->object, values);
    block_begin(block);
    memcpy(block->values, values, watch->count * sizeof(values[0]));
    block->time_ns = now;
    block_end(block);
}

static void publish(angara_pe_h pe)
{
    unsigned       count = pe->num_watches / LOOKS_PER_TURN;
    angara_watch_h watch = pe->watch_turn;
    uint64_t       now   = ang_clock_ns(CLOCK_REALTIME);

    count = count > PER_LOOK_MIN ? count : PER_LOOK_MIN;
    for (unsigned i = 0; i < count; ++i) {
        if (watch == NULL) {
            watch = pe->watches;
        }
        copy_counters(watch, now);
        watch = watch->next;
        if (watch == pe->watch_turn) {
            break; /* all of them */
        }
    }
    pe->watch_turn = watch;
}

void ang_watch_look(angara_pe_h pe, uint64_t now)
{
    if (pe->watches == NULL) {
        return;
    }
    now = now != 0 ? now : ang_clock_ns(CLOCK_MONOTONIC_COARSE);
    if (now >= pe->watch_ns) {
        pe->watch_ns = now + PERIOD_NS;
        publish(pe);
    }
}

/* ---- watches --------------------------------------------------------------------------------- */

/* A block of the board, or NULL. */
static ang_board_block_t *block_take(angara_pe_h pe, const angara_watch_kind_t *kind,
                                     const char *label)
{
    ang_board_block_t *block = NULL;
    uint32_t           number;

    pthread_mutex_lock(&shown.lock);
    if (board_open() == 0) {
        number = board_kind(kind);
        block  = number != 0 ? board_block() : NULL;
        if (block == NULL) {
            shown.board->head.lost++;
            say_unseen(number != 0 ? "there are too many objects, or no memory" :
                                     "there are too many kinds");
        } else {
            shown.users++;
            block_begin(block);
            memset(block->label, 0, sizeof(block->label));
            strncpy(block->label, label != NULL ? label : "", sizeof(block->label) - 1);
            memset(block->values, 0, sizeof(block->values));
            block->pe   = pe->address.index;
            block->kind = number;
            block_end(block);
        }
        board_close_if_unused();
    }
    pthread_mutex_unlock(&shown.lock);
    return block;
}

static void block_give_back(ang_board_block_t *block)
{
    unsigned index;

    pthread_mutex_lock(&shown.lock);
    block_begin(block);
    block->kind = 0;
    block_end(block);
    index       = (unsigned)(block - shown.board->blocks);
    shown.first = index < shown.first ? index : shown.first;
    shown.users--;
    board_close_if_unused();
    pthread_mutex_unlock(&shown.lock);
}

angara_watch_h angara_watch_add(angara_pe_h pe, const angara_watch_kind_t *kind, const void *object,
                                const char *label)
{
    angara_watch_h watch;

    if (check_pe(pe) != ANGARA_OK || !ang_config.watch || !kind_fits(kind)) {
        return NULL;
    }
    watch = calloc(1, sizeof(*watch));
    if (watch == NULL) {
        return NULL;
    }
    watch->block = block_take(pe, kind, label);
    if (watch->block == NULL) {
        free(watch);
        return NULL;
    }
    watch->pe     = pe;
    watch->read   = kind->read;
    watch->object = object;
    watch->count  = kind->count;
    watch->epoch  = ang_fork_epoch;
    watch->next   = pe->watches;
    pe->watches   = watch;
    pe->num_watches++;
    copy_counters(watch, ang_clock_ns(CLOCK_REALTIME));
    return watch;
}

void angara_watch_remove(angara_watch_h watch)
{
    angara_watch_h *link;

    if (watch == NULL) {
        return;
    }
    link = &watch->pe->watches;
    while (*link != watch) {
        link = &(*link)->next;
    }
    *link = watch->next;
    watch->pe->num_watches--;
    if (watch->pe->watch_turn == watch) {
        watch->pe->watch_turn = watch->next;
    }
    if (watch->epoch == ang_fork_epoch) {
        block_give_back(watch->block);
    }
    free(watch);
}

void ang_watch_end(angara_pe_h pe)
{
    while (pe->watches != NULL) {
        angara_watch_remove(pe->watches);
    }
}
