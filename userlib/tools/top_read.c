/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finds the boards of processes in /proc and reads them. What is read may be any bytes: it is
 * checked here, and nowhere behind. Nothing is mapped, so that nothing can be taken away; nothing
 * but a sealed memfd is opened, as opening other files may have effects, and nothing is waited for.
 * A process has one board.
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
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINK_TEXT "/memfd:" ANG_BOARD_NAME
#define RETRIES   20 /* of a block that is being written */
#define CHUNK     64 /* blocks read at once */

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

/* Of the kind: names as they should be, and none twice. */
static int kind_is_good(const ang_board_kind_t *kind)
{
    if (kind->count > ANGARA_WATCH_COUNTERS ||
        !ang_board_is_name(kind->name, "", sizeof(kind->name))) {
        return 0;
    }
    for (unsigned i = 0; i < kind->count; ++i) {
        if (!ang_board_is_name(kind->counters[i], "_", sizeof(kind->counters[i]))) {
            return 0;
        }
        for (unsigned j = 0; j < i; ++j) {
            if (strcmp(kind->counters[i], kind->counters[j]) == 0) {
                return 0;
            }
        }
    }
    return 1;
}

/* One that isn't good has no counters, and no objects. */
static int read_kinds(int fd, top_process_t *process)
{
    unsigned count = process->head.kinds;

    process->kinds = checked(calloc(count + 1, sizeof(*process->kinds)));
    if (read_at(fd, process->kinds, count * sizeof(*process->kinds),
                offsetof(ang_board_t, kinds)) != 0) {
        return -1;
    }
    for (unsigned i = 0; i < count; ++i) {
        if (!kind_is_good(&process->kinds[i])) {
            memset(&process->kinds[i], 0, sizeof(process->kinds[i]));
        }
    }
    return 0;
}

/*
 * The same in both reads, and not being written. All of it is compared: the kernel copies a block
 * in any order, so that a copy may have the turn of its end, and counters of before.
 */
static int is_whole(const ang_board_block_t *block, const ang_board_block_t *again)
{
    return (block->turn & 1) == 0 && memcmp(block, again, sizeof(*block)) == 0;
}

static void take_block(const ang_board_block_t *block, top_process_t *process)
{
    top_object_t *object = &process->objects[process->count];

    if (block->kind == 0 || block->kind > process->head.kinds ||
        process->kinds[block->kind - 1].name[0] == '\0') {
        return;
    }
    object->kind    = &process->kinds[block->kind - 1];
    object->pe      = block->pe;
    object->time_ns = block->time_ns;
    memcpy(object->label, block->label, sizeof(object->label));
    make_printable(object->label, sizeof(object->label));
    memcpy(object->values, block->values, sizeof(object->values));
    process->count++;
}

/* Twice: what is the same both times was written before. What isn't is tried again by itself. */
static void read_chunk(int fd, unsigned first, unsigned count, top_process_t *process)
{
    ang_board_block_t blocks[CHUNK], again[CHUNK];
    size_t            offset = offsetof(ang_board_t, blocks) + first * sizeof(blocks[0]);

    if (read_at(fd, blocks, count * sizeof(blocks[0]), offset) != 0 ||
        read_at(fd, again, count * sizeof(blocks[0]), offset) != 0) {
        return;
    }
    for (unsigned i = 0; i < count; ++i) {
        size_t at = offset + i * sizeof(blocks[0]);

        for (unsigned j = 0; j < RETRIES && !is_whole(&blocks[i], &again[i]); ++j) {
            if (read_at(fd, &blocks[i], sizeof(blocks[0]), at) != 0 ||
                read_at(fd, &again[i], sizeof(blocks[0]), at) != 0) {
                return;
            }
        }
        if (is_whole(&blocks[i], &again[i])) {
            take_block(&blocks[i], process);
        }
    }
}

int top_compare(const top_object_t *x, const top_object_t *y)
{
    int order = (x->pe > y->pe) - (x->pe < y->pe);

    order = order != 0 ? order : strcmp(x->label, y->label);
    return order != 0 ? order : strcmp(x->kind->name, y->kind->name);
}

static int compare_objects(const void *a, const void *b)
{
    return top_compare(a, b);
}

/* In order, and none twice: of two that look the same the first counts. */
static void read_objects(int fd, top_process_t *process)
{
    unsigned blocks = process->head.blocks, kept = 0;

    process->objects = checked(calloc(blocks + 1, sizeof(*process->objects)));
    for (unsigned i = 0; i < blocks; i += CHUNK) {
        read_chunk(fd, i, blocks - i < CHUNK ? blocks - i : CHUNK, process);
    }
    qsort(process->objects, process->count, sizeof(*process->objects), compare_objects);
    for (unsigned i = 0; i < process->count; ++i) {
        if (kept == 0 || top_compare(&process->objects[kept - 1], &process->objects[i]) != 0) {
            process->objects[kept++] = process->objects[i];
        }
    }
    process->count = kept;
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

/* Where all memfds are. */
static dev_t memfd_device(void)
{
    static dev_t device;
    struct stat  info;
    int          fd;

    if (device == 0) {
        fd = memfd_create("angara_top", MFD_CLOEXEC);
        if (fd < 0 || fstat(fd, &info) != 0) {
            fprintf(stderr, "angara_top: memfd_create: %s\n", strerror(errno));
            exit(EXIT_FAILURE);
        }
        device = info.st_dev;
        close(fd);
    }
    return device;
}

/* Open a descriptor of another process for reading, if it is of a sealed memfd. */
static int open_board(int folder, const char *name)
{
    int         handle = openat(folder, name, O_PATH | O_CLOEXEC);
    int         fd     = -1;
    int         seals;
    struct stat info;
    char        path[64];

    if (handle < 0) {
        return -1;
    }
    if (fstat(handle, &info) == 0 && S_ISREG(info.st_mode) && info.st_dev == memfd_device()) {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", handle);
        fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a lease would be waited for */
    }
    close(handle);
    if (fd >= 0) {
        seals = fcntl(fd, F_GET_SEALS);
        if (seals < 0 || (seals & ANG_BOARD_SEALS) != ANG_BOARD_SEALS) {
            close(fd);
            return -1;
        }
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

/* @return non-zero if it was one */
static int add_board(top_sample_t *sample, int fd, pid_t pid)
{
    top_process_t process;

    if (read_board(fd, pid, &process) != 0) {
        return 0;
    }
    if (is_known(sample, process.inode)) {
        process_free(&process);
        return 0;
    }
    sample->processes = checked(
        reallocarray(sample->processes, sample->count + 1, sizeof(*sample->processes)));
    sample->processes[sample->count++] = process;
    return 1;
}

static void look_into(top_sample_t *sample, pid_t pid)
{
    char           path[64], text[sizeof(LINK_TEXT)];
    struct dirent *entry;
    DIR           *dir;
    int            fd, found = 0;

    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    dir = opendir(path);
    if (dir == NULL) {
        sample->closed += errno == EACCES;
        return;
    }
    while (!found && (entry = readdir(dir)) != NULL) {
        ssize_t length = readlinkat(dirfd(dir), entry->d_name, text, sizeof(text));

        if (length == sizeof(text) && strncmp(text, LINK_TEXT " ", sizeof(text)) == 0) {
            fd = open_board(dirfd(dir), entry->d_name);
            if (fd >= 0) {
                found = add_board(sample, fd, pid);
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
