/* SPDX-License-Identifier: BSD-3-Clause */
/* Identity of processes: what tells a peer from a later process with its number. See soft.h. */
#define _GNU_SOURCE
#include "soft.h"

#include "src/hash.h"
#include "src/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Fields of /proc/PID/stat. The main thread of a process may have ended before the others. */
#define STAT_THREADS     20
#define STAT_START_TIME  22
#define STAT_START_STACK 28

/* Read a small file. @return its length, or -1 with errno. */
static int read_file(const char *path, char *text, size_t size)
{
    int     fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length;
    int     error;

    if (fd < 0) {
        return -1;
    }
    length = read(fd, text, size - 1);
    error  = errno;
    close(fd);
    if (length < 0) {
        errno = error;
        return -1;
    }
    text[length] = '\0';
    return (int)length;
}

/*
 * *stack_p: where its stack began, 0 if that can't be seen: chosen by exec, as a rule at random,
 * and the same from then on.
 */
static soft_life_t look(pid_t pid, uint64_t *start_time, uint64_t *stack_p)
{
    char        path[64], text[1024], state;
    const char *field;
    long        threads;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    if (read_file(path, text, sizeof(text)) < 0) {
        return errno == ENOENT || errno == ESRCH ? SOFT_GONE : SOFT_UNKNOWN;
    }
    /* The name, field 2, may hold anything: count from its closing parenthesis. */
    field = strrchr(text, ')');
    if (field == NULL) {
        return SOFT_GONE; /* empty: it goes this moment */
    }
    state = field[2];
    for (int i = 2; field != NULL && i < STAT_THREADS; ++i) {
        field = strchr(field + 1, ' ');
    }
    threads = field != NULL ? strtol(field, NULL, 10) : 0;
    if (state == 'X' || state == 'x' || (state == 'Z' && threads <= 1)) {
        return SOFT_GONE; /* dead, though its parent hasn't noticed */
    }
    for (int i = STAT_THREADS; field != NULL && i < STAT_START_TIME; ++i) {
        field = strchr(field + 1, ' ');
    }
    if (field == NULL) {
        return SOFT_UNKNOWN;
    }
    *start_time = strtoull(field, NULL, 10);
    for (int i = STAT_START_TIME; field != NULL && i < STAT_START_STACK; ++i) {
        field = strchr(field + 1, ' ');
    }
    *stack_p = field != NULL ? strtoull(field, NULL, 10) : 0;
    return SOFT_ALIVE;
}

soft_life_t soft_process_look(pid_t pid, uint64_t *start_time)
{
    uint64_t stack;

    return look(pid, start_time, &stack);
}

/* Is its cgroup (version 2), or one above, frozen? */
static int is_frozen(pid_t pid)
{
    char path[512], text[512];

    snprintf(path, sizeof(path), "/proc/%d/cgroup", (int)pid);
    if (read_file(path, text, sizeof(text)) < 0 || strncmp(text, "0::", 3) != 0) {
        return 0;
    }
    text[strcspn(text, "\n")] = '\0';
    snprintf(path, sizeof(path), "/sys/fs/cgroup%.400s/cgroup.events", text + 3);
    return read_file(path, text, sizeof(text)) >= 0 && strstr(text, "frozen 1") != NULL;
}

int soft_process_stopped(pid_t pid)
{
    char        path[64], text[1024];
    const char *field;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    field = read_file(path, text, sizeof(text)) < 0 ? NULL : strrchr(text, ')');
    return field != NULL && (field[2] == 'T' || field[2] == 't' || is_frozen(pid));
}

pid_t soft_process_task(pid_t pid, pid_t except)
{
    char           path[64];
    DIR           *dir;
    struct dirent *entry;
    pid_t          task = -1;

    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    dir = opendir(path);
    if (dir == NULL) {
        return -1;
    }
    while (task < 0 && (entry = readdir(dir)) != NULL) {
        pid_t tid = (pid_t)strtol(entry->d_name, NULL, 10);

        task = tid > 0 && tid != pid && tid != except ? tid : -1;
    }
    closedir(dir);
    if (task < 0) {
        errno = ENOENT;
    }
    return task;
}

/* A number of bytes in a file of the cgroup of this process (version 2), or `otherwise`. */
static uint64_t cgroup_bytes(const char *file, uint64_t otherwise)
{
    char path[512], text[512], *end;

    if (read_file("/proc/self/cgroup", text, sizeof(text)) < 0 || strncmp(text, "0::", 3) != 0) {
        return otherwise;
    }
    text[strcspn(text, "\n")] = '\0';
    snprintf(path, sizeof(path), "/sys/fs/cgroup%.400s/%s", text + 3, file);
    if (read_file(path, text, sizeof(text)) < 0) {
        return otherwise;
    }
    uint64_t value = strtoull(text, &end, 10);

    return end != text ? value : otherwise; /* "max" is no number */
}

uint64_t soft_memory_available(void)
{
    char        text[4096];
    const char *field;
    uint64_t    available = UINT64_MAX, limit, used;

    if (read_file("/proc/meminfo", text, sizeof(text)) >= 0 &&
        (field = strstr(text, "MemAvailable:")) != NULL) {
        available = strtoull(field + strlen("MemAvailable:"), NULL, 10) * 1024;
    }
    limit = cgroup_bytes("memory.max", UINT64_MAX);
    used  = cgroup_bytes("memory.current", 0);
    if (limit != UINT64_MAX && (limit > used ? limit - used : 0) < available) {
        available = limit > used ? limit - used : 0;
    }
    return available;
}

/*
 * The word that names a program of a process: the low bits of its start time, from bit OWNER_START
 * on; a mark of the program that exec has put into it, which pid and start time don't tell from
 * the one before, 0 if not known; the process's number.
 */
#define OWNER_PID_BITS   22 /* Linux has no longer pids */
#define OWNER_IMAGE_BITS 16
#define OWNER_START      (OWNER_PID_BITS + OWNER_IMAGE_BITS)

static uint64_t make_owner(pid_t pid, uint64_t start_time, uint64_t stack)
{
    uint64_t marks = (1u << OWNER_IMAGE_BITS) - 1; /* but 0 */
    uint64_t image = stack != 0 ? 1 + (stack * 0x9e3779b97f4a7c15ull >> 32) % marks : 0;

    return start_time << OWNER_START | image << OWNER_PID_BITS | (uint64_t)pid;
}

static uint64_t owner_image(uint64_t owner)
{
    return owner >> OWNER_PID_BITS & ((1u << OWNER_IMAGE_BITS) - 1);
}

/* The low `bits` bits of a word. */
static uint64_t owner_part(uint64_t owner, unsigned bits)
{
    return bits < 64 ? owner & ((1ull << bits) - 1) : owner;
}

pid_t soft_owner_pid(uint64_t owner)
{
    return (pid_t)(owner & ((1u << OWNER_PID_BITS) - 1));
}

static uint64_t own_word; /* 0: not known yet */

uint64_t soft_owner(void)
{
    pid_t    pid        = getpid();
    uint64_t owner      = __atomic_load_n(&own_word, __ATOMIC_RELAXED);
    uint64_t start_time = 0, stack = 0;

    if (soft_owner_pid(owner) != pid) {
        if (look(pid, &start_time, &stack) != SOFT_ALIVE) {
            return 0; /* not a word that a parent has left here */
        }
        owner = make_owner(pid, start_time, stack);
        __atomic_store_n(&own_word, owner, __ATOMIC_RELAXED);
    }
    return owner;
}

/* The number alone doesn't tell a process from its ancestors: it may be used again. */
static void forget_owner(void)
{
    own_word = 0;
}

static void __attribute__((constructor)) process_init(void)
{
    pthread_atfork(NULL, NULL, forget_owner);
}

int soft_owner_part_alive(uint64_t part, unsigned bits)
{
    uint64_t start_time = 0, stack = 0, now;

    switch (look(soft_owner_pid(part), &start_time, &stack)) {
    case SOFT_ALIVE:
        now = make_owner(soft_owner_pid(part), start_time, stack);
        return owner_part(now, bits) >> OWNER_START == part >> OWNER_START &&
               (owner_image(now) == owner_image(part) || owner_image(now) == 0 ||
                owner_image(part) == 0);
    case SOFT_GONE:
        return 0;
    default:
        return 1; /* can't look now: the safe answer */
    }
}

int soft_owner_alive(uint64_t owner)
{
    return soft_owner_part_alive(owner, 64);
}

const char *soft_cure(int error)
{
    switch (error) {
    case EMFILE:
        return ". Raise the limit with ulimit -n";
    case ENFILE:
        return ". The machine's table of open files is full: raise fs.file-max";
    case ENOSPC:
        return ". The user's watches are used up: raise fs.epoll.max_user_watches";
    case EPERM:
    case ENOSYS:
        return ". In a container, its seccomp profile must allow that call";
    default:
        return "";
    }
}

angara_status_t soft_random(void *bytes, size_t size)
{
    if (getrandom(bytes, size, 0) != (ssize_t)size) {
        ang_log_alike(ANG_LOG_ERROR, "getrandom failed: %s%s", strerror(errno), soft_cure(errno));
        return ANGARA_ERR_SYSTEM;
    }
    return ANGARA_OK;
}

static int register_membarrier(void)
{
    return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
}

void soft_membarrier(void)
{
    syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
}

/* Does /proc show this process by its own number? Else its numbers are those of others. */
static int is_own_proc(pid_t pid)
{
    char    text[16] = "";
    ssize_t length   = readlink("/proc/self", text, sizeof(text) - 1);

    return length > 0 && strtol(text, NULL, 10) == pid;
}

angara_status_t soft_process_self(soft_process_t *self)
{
    char        boot_id[64];
    struct stat info;

    self->pid = getpid();
    if (soft_process_look(self->pid, &self->start_time) != SOFT_ALIVE ||
        stat("/proc/thread-self/ns/pid", &info) != 0 ||
        read_file("/proc/sys/kernel/random/boot_id", boot_id, sizeof(boot_id)) < 0) {
        if (errno == EMFILE || errno == ENFILE) {
            ang_log_alike(ANG_LOG_ERROR,
                          "/proc can't be read: too many open files. Raise the limit "
                          "with ulimit -n");
            return ANGARA_ERR_LIMIT;
        }
        ang_log_alike(ANG_LOG_ERROR, "/proc can't be read (%s): the soft fabric needs it mounted",
                      strerror(errno));
        return ANGARA_ERR_SYSTEM;
    }
    if (!is_own_proc(self->pid)) {
        ang_log_alike(ANG_LOG_ERROR,
                      "/proc is of another PID namespace than this process: mount the one of its "
                      "own (mount -t proc proc /proc; unshare --mount-proc)");
        return ANGARA_ERR_SYSTEM;
    }
    self->pid_ns     = info.st_ino;
    self->user_ns    = stat("/proc/thread-self/ns/user", &info) == 0 ? info.st_ino : 0;
    self->host       = ang_hash(ANG_HASH_START, boot_id, strlen(boot_id));
    self->membarrier = register_membarrier();
    return ANGARA_OK;
}
