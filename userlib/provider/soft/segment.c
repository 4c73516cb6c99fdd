/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared-memory segments of the soft fabric: anonymous sealed memfds, opened by peers through
 * /proc/PID/fd. See soft.h. Touches the kernel only.
 */
#define _GNU_SOURCE
#include "soft.h"

#include "src/limits.h"
#include "src/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define COMMIT_CHECK ((size_t)16 << 20) /* bytes from which on free memory is looked at first */
#define SOFT_SEALS   (F_SEAL_SHRINK | F_SEAL_GROW)

static angara_status_t from_errno_at(ang_log_level_t level, const char *what, const char *name,
                                     size_t size)
{
    int error = errno;

    switch (error) {
    case EMFILE:
    case ENFILE:
        ang_log_alike(level, "%s of %s failed: too many open files. Raise the limit with ulimit -n",
                      what, name);
        return ANGARA_ERR_LIMIT;
    case ENOMEM:
    case ENOSPC:
        ang_log_alike(
            level,
            "%s of %s, %zu bytes, failed: %s. Free memory, or raise the limit of this job's "
            "cgroup or ulimit -v",
            what, name, size, strerror(error));
        return ANGARA_ERR_NO_MEMORY;
    case EFBIG:
        ang_log_alike(level,
                      "%s of %s, %zu bytes, failed: larger than the file size limit. Raise it with "
                      "ulimit -f unlimited",
                      what, name, size);
        return ANGARA_ERR_LIMIT;
    default:
        ang_log_alike(level, "%s of %s failed: %s%s", what, name, strerror(error),
                      soft_cure(error));
        return ANGARA_ERR_SYSTEM;
    }
}

static angara_status_t from_errno(const char *what, const char *name, size_t size)
{
    return from_errno_at(ANG_LOG_ERROR, what, name, size);
}

static angara_status_t map(const char *name, void *at, soft_segment_t *seg, int fd,
                           ang_log_level_t level)
{
    int   flags = MAP_SHARED | MAP_NORESERVE | (at != NULL ? MAP_FIXED : 0);
    void *base  = mmap(at, seg->size, PROT_READ | PROT_WRITE, flags, fd, 0);

    if (base == MAP_FAILED) {
        return from_errno_at(level, "mapping", name, seg->size);
    }
    /* A forked child must not write into the parent's rings; its own objects are new ones. */
    madvise(base, seg->size, MADV_DONTFORK);
    seg->base = base;
    return ANGARA_OK;
}

angara_status_t soft_segment_create(const char *name, void *at, size_t size, soft_segment_t *seg)
{
    soft_segment_t  new_seg = {NULL, size, -1, 0, 0};
    angara_status_t status;

    if (ang_over_file_limit(size)) {
        errno = EFBIG;
        return from_errno("allocation", name, size);
    }
    new_seg.fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (new_seg.fd < 0) {
        return from_errno("creation", name, size);
    }
    if (ftruncate(new_seg.fd, (off_t)size) != 0) {
        status = from_errno("sizing", name, size);
        goto err;
    }
    if (fcntl(new_seg.fd, F_ADD_SEALS, SOFT_SEALS) != 0) {
        status = from_errno("sealing", name, size);
        goto err;
    }
    status = map(name, at, &new_seg, new_seg.fd, ANG_LOG_ERROR);
    if (status != ANGARA_OK) {
        goto err;
    }
    *seg = new_seg;
    return ANGARA_OK;

err:
    close(new_seg.fd);
    return status;
}

/* @return 0, or -1 with errno */
static int allocate(soft_segment_t *seg, size_t offset, size_t length)
{
    size_t start = offset & ~(size_t)(SOFT_PAGE - 1);
    int    ret;

    do {
        ret = fallocate(seg->fd, FALLOC_FL_KEEP_SIZE, (off_t)start,
                        (off_t)(offset - start + length));
    } while (ret != 0 && errno == EINTR);
    return ret;
}

angara_status_t soft_segment_commit(soft_segment_t *seg, size_t offset, size_t length)
{
    /* Allocation past what there is wouldn't fail but have some process killed. */
    if (length >= COMMIT_CHECK && length > soft_memory_available()) {
        errno = ENOMEM;
        return from_errno("allocation", "shared memory", length);
    }
    return allocate(seg, offset, length) == 0 ? ANGARA_OK :
                                                from_errno("allocation", "shared memory", length);
}

int soft_segment_grow(soft_segment_t *seg, size_t offset, size_t length)
{
    return soft_memory_available() / 16 > length && allocate(seg, offset, length) == 0;
}

static int sealed(int fd)
{
    int seals = fcntl(fd, F_GET_SEALS);

    return seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
}

/* By another thread than the main one: any that has its files still, while others end. */
static int handle_of_task(pid_t pid, int fd)
{
    int            handle = -1;
    int            error  = ENOENT;
    char           path[64];
    struct dirent *entry;
    DIR           *dir;

    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    dir = opendir(path);
    if (dir == NULL) {
        return -1;
    }
    while (handle < 0 && (entry = readdir(dir)) != NULL) {
        pid_t task = (pid_t)strtol(entry->d_name, NULL, 10);

        if (task > 0 && task != pid) {
            snprintf(path, sizeof(path), "/proc/%d/task/%d/fd/%d", (int)pid, (int)task, fd);
            handle = open(path, O_PATH | O_CLOEXEC);
            error  = errno == ENOENT ? error : errno;
        }
    }
    closedir(dir);
    errno = error;
    return handle;
}

/* A handle on descriptor `fd` of the process: names the file without opening it. */
static int handle_of(pid_t pid, int fd)
{
    char path[64];
    int  handle;

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, fd);
    handle = open(path, O_PATH | O_CLOEXEC);
    /* Once the main thread has ended its folder is empty for root and closed to others. */
    if (handle < 0 && (errno == ENOENT || errno == EACCES || errno == EPERM)) {
        handle = handle_of_task(pid, fd);
    }
    return handle;
}

int soft_open_of(pid_t pid, int fd, mode_t type, int flags, struct stat *info)
{
    char path[64];
    int  handle = handle_of(pid, fd);
    int  opened = -1;
    int  error;

    if (handle < 0) {
        return -1;
    }
    if (fstat(handle, info) != 0 || (info->st_mode & S_IFMT) != type) {
        errno = ENOENT; /* what was meant has been closed, and the number used again */
    } else {
        snprintf(path, sizeof(path), "/proc/thread-self/fd/%d", handle);
        opened = open(path, flags | O_CLOEXEC);
    }
    error = errno;
    close(handle);
    errno = error;
    return opened;
}

angara_status_t soft_segment_open(pid_t pid, int fd, size_t min_size, ang_log_level_t level,
                                  soft_segment_t *seg)
{
    soft_segment_t  new_seg = {NULL, 0, -1, 0, 0};
    char            path[64];
    struct stat     info;
    angara_status_t status;
    int             opened;

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, fd);
    opened = soft_open_of(pid, fd, S_IFREG, O_RDWR, &info);
    if (opened < 0) {
        if (errno == ENOENT) {
            return ANGARA_ERR_PEER_DEAD;
        }
        if (errno == EACCES || errno == EPERM) {
            ang_log(
                level,
                "no permission to share memory with pid %d: both processes must run as the same "
                "user and group, with the same capabilities, and be dumpable",
                (int)pid);
            return ANGARA_ERR_UNREACHABLE;
        }
        return from_errno_at(level, "opening", path, 0);
    }
    if (!sealed(opened) || (uint64_t)info.st_size < min_size) {
        status = ANGARA_ERR_UNREACHABLE; /* some other file: not a segment of ours */
    } else {
        new_seg.size   = (size_t)info.st_size;
        new_seg.device = info.st_dev;
        new_seg.inode  = info.st_ino;
        status         = map(path, NULL, &new_seg, opened, level);
    }
    close(opened);
    if (status == ANGARA_OK) {
        *seg = new_seg;
    }
    return status;
}

int soft_segment_is(pid_t pid, int fd, const soft_segment_t *seg)
{
    struct stat info;
    int         handle = handle_of(pid, fd);
    int         same;

    if (handle < 0) {
        return errno != ENOENT;
    }
    same = fstat(handle, &info) != 0 || (info.st_dev == seg->device && info.st_ino == seg->inode);
    close(handle);
    return same;
}

void soft_segment_forget(soft_segment_t *seg)
{
    if (seg->fd >= 0) {
        close(seg->fd);
    }
    seg->fd = -1;
}

void soft_segment_close(soft_segment_t *seg)
{
    if (seg->base != NULL) {
        munmap(seg->base, seg->size);
    }
    seg->base = NULL;
    soft_segment_forget(seg);
}
