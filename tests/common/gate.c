/* SPDX-License-Identifier: BSD-3-Clause */
/* See gate.h. */
#define _GNU_SOURCE
#include "gate.h"

#include "ranks.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static int fd_open(void)
{
    return (int)syscall(SYS_userfaultfd, O_CLOEXEC);
}

int gate_is_allowed(void)
{
    int fd = fd_open();

    return fd >= 0 && close(fd) == 0;
}

void gate_open(gate_t *gate)
{
    struct uffdio_copy copy = {
        .dst = (uintptr_t)gate->page, .src = (uintptr_t)gate->bytes, .len = GATE_PAGE};

    CHECK(ioctl(gate->fd, UFFDIO_COPY, &copy) == 0);
}

void gate_take_away(gate_t *gate)
{
    struct uffdio_range range = {.start = (uintptr_t)gate->page, .len = GATE_PAGE};

    CHECK(mmap(gate->page, GATE_PAGE, PROT_NONE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
          gate->page);
    CHECK(ioctl(gate->fd, UFFDIO_WAKE, &range) == 0);
}

static void *thread_main(void *arg)
{
    gate_t         *gate  = arg;
    struct pollfd   entry = {.fd = gate->fd, .events = POLLIN};
    struct uffd_msg msg;

    CHECK(poll(&entry, 1, 1000 * RANK_TIMEOUT) == 1);
    CHECK(read(gate->fd, &msg, sizeof(msg)) == sizeof(msg));
    CHECK(msg.event == UFFD_EVENT_PAGEFAULT);
    gate->func(gate, gate->arg);
    return NULL;
}

void gate_init(gate_t *gate, char *page, gate_func_t func, void *arg)
{
    struct uffdio_api      api   = {.api = UFFD_API};
    struct uffdio_register range = {.range = {.start = (uintptr_t)page, .len = GATE_PAGE},
                                    .mode  = UFFDIO_REGISTER_MODE_MISSING};

    gate->fd   = fd_open();
    gate->page = page;
    gate->func = func;
    gate->arg  = arg;
    CHECK(gate->fd >= 0);
    memcpy(gate->bytes, page, GATE_PAGE);
    CHECK(ioctl(gate->fd, UFFDIO_API, &api) == 0);
    CHECK(ioctl(gate->fd, UFFDIO_REGISTER, &range) == 0);
    CHECK(madvise(page, GATE_PAGE, MADV_DONTNEED) == 0);
    CHECK(pthread_create(&gate->thread, NULL, thread_main, gate) == 0);
}

void gate_cleanup(gate_t *gate)
{
    CHECK(pthread_join(gate->thread, NULL) == 0);
    CHECK(close(gate->fd) == 0);
}
