/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A descriptor that the library keeps. A program that closes all descriptors may have a file of its
 * own there then: that is neither used nor closed.
 */
#ifndef ANG_OWN_FD_H
#define ANG_OWN_FD_H

#include <sys/stat.h>
#include <unistd.h>

typedef struct {
    int   fd; /* -1: none */
    dev_t dev;
    ino_t ino;
} ang_own_fd_t;

/* Of a descriptor that was just opened, or -1. */
static inline ang_own_fd_t ang_own_fd(int fd)
{
    ang_own_fd_t own = {.fd = fd};
    struct stat  file;

    if (fd >= 0 && fstat(fd, &file) == 0) {
        own.dev = file.st_dev;
        own.ino = file.st_ino;
    }
    return own;
}

static inline int ang_own_fd_is_ours(const ang_own_fd_t *own)
{
    struct stat file;

    return own->fd >= 0 && fstat(own->fd, &file) == 0 && file.st_dev == own->dev &&
           file.st_ino == own->ino;
}

static inline void ang_own_fd_close(ang_own_fd_t *own)
{
    if (ang_own_fd_is_ours(own)) {
        close(own->fd);
    }
    own->fd = -1;
}

#endif
