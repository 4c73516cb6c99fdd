/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finds the boards of processes in /proc and reads them. What is read may be any bytes: it is
 * checked here, and nowhere behind. Nothing is mapped, so that nothing can be taken away.
 */
#define _GNU_SOURCE
#include "top.h"

#include "src/clock.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINK_TEXT "/memfd:" ANG_BOARD_NAME
#define RETRIES   20 /* of a block that is being written */

static void *checked(void *memory)
{
    if (memory == NULL) {
        fprintf(stderr, "angara_top: no memory\n");
        exit(EXIT_FAILURE);
    }
    return memory;
}

/* ---- what texts may be ----------------------------------------------------------------------- */

static void make_printable(char *text, size_t size)
{
    text[size - 1] = '\0';
    for (; *text != '\0'; ++text) {
        if (!isprint((unsigned char)*text) || !isascii((unsigned char)*text)) {
            *text = '?';
        }
    }
}

static void make_name(char *text, size_t size)
{
    text[size - 1] = '\0';
    for (; *text != '\0'; ++text) {
        if (!isascii((unsigned char)*text) ||
            (!islower((unsigned char)*text) && !isdigit((unsigned char)*text))) {
            *text = '_';
        }
    }
}

/* ---- one board ------------------------------------------------------------------------------- */

static int read_at(int fd, void *to, size_t size, size_t offset)
{
    return pread(fd, to, size, (off_t)offset) == (ssize_t)size ? 0 : -1;
}

static int read_head(int fd, ang_board_head_t *head)
{
    if (read_at(fd, head, sizeof(*head), offsetof(ang_board_t, head)) != 0 ||
        head->magic != ANG_BOARD_MAGIC || head->layout != ANG_BOARD_LAYOUT ||
        head->kinds > ANG_BOARD_KINDS || head->blocks > ANG_BOARD_BLOCKS) {
        return -1;
    }
    make_printable(head->version, sizeof(head->version));
    make_printable(head->host, sizeof(head->host));
    make_printable(head->program, sizeof(head->program));
    make_printable(head->rank, sizeof(head->rank));
    return 0;
}

static int read_kinds(int fd, top_process_t *process)
{
    unsigned count = process->head.kinds;

    process->kinds = checked(calloc(count + 1, sizeof(*process->kinds)));
    if (read_at(fd, process->kinds, count * sizeof(*process->kinds),
                offsetof(ang_board_t, kinds)) != 0) {
        return -1;
    }
    for (unsigned i = 0; i < count; ++i) {
        ang_board_kind_t *kind = &process->kinds[i];

        if (kind->count > ANGARA_WATCH_COUNTERS) {
            return -1;
        }
        make_name(kind->name, sizeof(kind->name));
        for (unsigned j = 0; j < kind->count; ++j) {
            make_name(kind->counters[j], sizeof(kind->counters[j]));
        }
    }
    return 0;
}

/* @return 0 if the block is in use and was read whole */
static int read_block(int fd, unsigned index, ang_board_block_t *block)
{
    size_t   offset = offsetof(ang_board_t, blocks) + index * sizeof(*block);
    uint32_t turn;

    for (unsigned i = 0; i < RETRIES; ++i) {
        if (read_at(fd, block, sizeof(*block), offset) != 0 ||
            read_at(fd, &turn, sizeof(turn), offset + offsetof(ang_board_block_t, turn)) != 0) {
            return -1;
        }
        if (turn == block->turn && (turn & 1) == 0) {
            return block->kind != 0 ? 0 : -1;
        }
    }
    return -1;
}

static void read_objects(int fd, top_process_t *process)
{
    ang_board_block_t block;

    process->objects = checked(calloc(process->head.blocks + 1, sizeof(*process->objects)));
    for (unsigned i = 0; i < process->head.blocks; ++i) {
        top_object_t *object = &process->objects[process->count];

        if (read_block(fd, i, &block) != 0 || block.kind > process->head.kinds) {
            continue;
        }
        object->kind    = &process->kinds[block.kind - 1];
        object->pe      = block.pe;
        object->time_ns = block.time_ns;
        memcpy(object->label, block.label, sizeof(object->label));
        make_printable(object->label, sizeof(object->label));
        memcpy(object->values, block.values, sizeof(object->values));
        process->count++;
    }
}

static void process_free(top_process_t *process)
{
    free(process->kinds);
    free(process->objects);
}

/* Read the board that `fd` is. @return 0, or -1 if it isn't one. */
static int read_board(int fd, pid_t pid, top_process_t *process)
{
    struct stat info;

    memset(process, 0, sizeof(*process));
    process->pid = pid;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        return -1;
    }
    process->inode = info.st_ino;
    if (read_head(fd, &process->head) != 0 || read_kinds(fd, process) != 0) {
        process_free(process);
        return -1;
    }
    read_objects(fd, process);
    return 0;
}

/* ---- all boards ------------------------------------------------------------------------------ */

/* Open a descriptor of another process for reading, if it is of a plain file. */
static int open_plain(int folder, const char *name)
{
    int         handle = openat(folder, name, O_PATH | O_CLOEXEC);
    int         fd     = -1;
    struct stat info;
    char        path[64];

    if (handle >= 0) {
        if (fstat(handle, &info) == 0 && S_ISREG(info.st_mode)) {
            snprintf(path, sizeof(path), "/proc/self/fd/%d", handle);
            fd = open(path, O_RDONLY | O_CLOEXEC);
        }
        close(handle);
    }
    return fd;
}

/* A process that has just forked shares its board with the child for a moment. */
static int is_known(const top_sample_t *sample, ino_t inode)
{
    for (unsigned i = 0; i < sample->count; ++i) {
        if (sample->processes[i].inode == inode) {
            return 1;
        }
    }
    return 0;
}

static void add_board(top_sample_t *sample, int fd, pid_t pid)
{
    top_process_t process;

    if (read_board(fd, pid, &process) != 0) {
        return;
    }
    if (is_known(sample, process.inode)) {
        process_free(&process);
        return;
    }
    sample->processes = checked(
        reallocarray(sample->processes, sample->count + 1, sizeof(*sample->processes)));
    sample->processes[sample->count++] = process;
}

static void look_into(top_sample_t *sample, pid_t pid)
{
    char           path[64], text[sizeof(LINK_TEXT)];
    struct dirent *entry;
    DIR           *dir;
    int            fd;

    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    dir = opendir(path);
    if (dir == NULL) {
        sample->closed += errno == EACCES;
        return;
    }
    while ((entry = readdir(dir)) != NULL) {
        ssize_t length = readlinkat(dirfd(dir), entry->d_name, text, sizeof(text));

        if (length == sizeof(text) && strncmp(text, LINK_TEXT " ", sizeof(text)) == 0) {
            fd = open_plain(dirfd(dir), entry->d_name);
            if (fd >= 0) {
                add_board(sample, fd, pid);
                close(fd);
            }
        }
    }
    closedir(dir);
}

static int compare_pids(const void *a, const void *b)
{
    const top_process_t *x = a, *y = b;

    return (x->pid > y->pid) - (x->pid < y->pid);
}

void top_read(pid_t pid, top_sample_t *sample)
{
    struct dirent *entry;
    DIR           *dir;

    memset(sample, 0, sizeof(*sample));
    sample->time_ns = ang_clock_ns(CLOCK_REALTIME);
    if (pid != 0) {
        look_into(sample, pid);
        return;
    }
    dir = opendir("/proc");
    if (dir == NULL) {
        fprintf(stderr, "angara_top: /proc can't be read: %s\n", strerror(errno));
        exit(EXIT_FAILURE);
    }
    while ((entry = readdir(dir)) != NULL) {
        pid = (pid_t)strtol(entry->d_name, NULL, 10);
        if (pid > 0) {
            look_into(sample, pid);
        }
    }
    closedir(dir);
    if (sample->count > 0) {
        qsort(sample->processes, sample->count, sizeof(*sample->processes), compare_pids);
    }
}

void top_free(top_sample_t *sample)
{
    for (unsigned i = 0; i < sample->count; ++i) {
        process_free(&sample->processes[i]);
    }
    free(sample->processes);
    memset(sample, 0, sizeof(*sample));
}

uint64_t top_value(const top_object_t *object, const char *name)
{
    for (unsigned i = 0; i < object->kind->count; ++i) {
        if (strcmp(object->kind->counters[i], name) == 0) {
            return object->values[i];
        }
    }
    return 0;
}
