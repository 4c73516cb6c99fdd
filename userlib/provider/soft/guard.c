/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Touching memory of the own program that it may have unmapped: see vm.h. The CPU does it where its
 * faults are caught (catch.c), else the kernel does, or is asked before. (tests/unit/valgrind.supp
 * names the functions here whose system calls answer EFAULT.)
 */
#define _GNU_SOURCE
#include "vm.h"

#include "engine/atomic.h"
#include "src/mutant.h"
#include "src/own_fd.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* By the kernel, which says so where an end is unmapped. */
static angara_status_t kernel_copy(uint64_t dst, uint64_t src, uint64_t length)
{
    ssize_t moved = soft_vm_read(gettid(), dst, src, length); /* the main thread may have ended */

    if (moved == (ssize_t)length) {
        return ANGARA_OK;
    }
    if (moved >= 0 || errno == EFAULT) {
        return ANGARA_ERR_BOUNDS;
    }
    /* forbidden by seccomp */
    ang_cpu_copy((void *)(uintptr_t)dst, (const void *)(uintptr_t)src, length);
    return ANGARA_OK;
}

/*
 * Before an atomic, which only the CPU can perform: the kernel adds 0 to the word, and says EFAULT
 * where it is unmapped or read-only. (FUTEX_WAKE_OP; it may also wake one sleeper on that word, as
 * any futex must expect.)
 */
static angara_status_t kernel_writes(uint64_t addr)
{
    void    *word = (void *)(uintptr_t)addr;
    uint32_t probe;

    if (syscall(SYS_futex, word, FUTEX_WAKE_OP_PRIVATE, 0, 0, word,
                FUTEX_OP(FUTEX_OP_ADD, 0, FUTEX_OP_CMP_EQ, 0)) >= 0 ||
        errno != EFAULT) {
        return ANGARA_OK;
    }
    return kernel_copy((uintptr_t)&probe, addr, sizeof(probe)) == ANGARA_OK ? ANGARA_ERR_RIGHTS :
                                                                              ANGARA_ERR_BOUNDS;
}

typedef struct {
    uint64_t dst, src, length;
} copy_t;

static void copy(void *arg)
{
    const copy_t *args = arg;

    ang_cpu_copy((void *)(uintptr_t)args->dst, (const void *)(uintptr_t)args->src, args->length);
}

angara_status_t soft_guard_copy(uint64_t addr, void *data, uint64_t length, int is_put)
{
    uint64_t        here   = (uintptr_t)data;
    copy_t          args   = {is_put ? addr : here, is_put ? here : addr, length};
    angara_status_t status = soft_catch(addr, length, copy, &args);

    return status != ANGARA_ERR_UNSUPPORTED ? status :
           length == 0                      ? ANGARA_OK :
                                              kernel_copy(args.dst, args.src, length);
}

typedef struct {
    uint64_t          addr;
    const ang_desc_t *desc;
    uint64_t         *old;
    angara_status_t   status;
} atomic_t;

/* As if it were a read and a write. */
static void perform_in_two(const atomic_t *args)
{
    ang_u64_t   *word  = (ang_u64_t *)(uintptr_t)args->addr;
    uint64_t     value = __atomic_load_n(word, __ATOMIC_SEQ_CST);
    volatile int wait  = 0;

    ang_cpu_atomic(&value, args->desc, args->old);
    while (wait < 100) {
        wait = wait + 1;
    }
    __atomic_store_n(word, value, __ATOMIC_SEQ_CST);
}

static void perform(void *arg)
{
    atomic_t *args = arg;

    if (ang_mutant("atomic_in_two") && args->desc->width == 8) {
        perform_in_two(args);
        return;
    }
    args->status = ang_cpu_atomic((void *)(uintptr_t)args->addr, args->desc, args->old);
}

angara_status_t soft_guard_atomic(uint64_t addr, const ang_desc_t *desc, uint64_t *old)
{
    atomic_t        args   = {addr, desc, old, ANGARA_OK};
    angara_status_t status = soft_catch(addr, desc->width, perform, &args);
    angara_status_t asked;

    if (status == ANGARA_OK) {
        return args.status;
    }
    asked = kernel_writes(addr); /* before the access, or why it has faulted */
    if (asked != ANGARA_OK || status != ANGARA_ERR_UNSUPPORTED) {
        return asked != ANGARA_OK ? asked : status;
    }
    perform(&args);
    return args.status;
}

/* Of linux/fs.h since 6.11: what mapping is at an address. */
typedef struct {
    uint64_t size; /* of this */
    uint64_t query_flags;
    uint64_t query_addr;
    uint64_t start, end;
    uint64_t flags;
    uint64_t page_size, offset;
    uint64_t inode; /* 0: no file */
    uint64_t unused[4];
} mapping_t;

_Static_assert(sizeof(mapping_t) == 104, "the call's number tells it");

#define MAPPING_QUERY    _IOWR('f', 17, mapping_t)
#define MAPPING_READABLE ((uint64_t)1)
#define MAPPING_WRITABLE ((uint64_t)2)

/* Since 6.7: the first pages that are wanted. */
typedef struct {
    uint64_t start, end, categories;
} pages_t;

typedef struct {
    uint64_t size; /* of this */
    uint64_t flags;
    uint64_t start, end, walk_end;
    uint64_t vec, vec_len, max_pages;
    uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
} scan_t;

#define PAGES_SCAN    _IOWR('f', 16, scan_t)
#define PAGES_PRESENT ((uint64_t)8)

/*
 * Are all mappings from there on the process's own memory, with the rights? Pages of a file may be
 * there, and be gone before the copy, by a call of another process (ftruncate).
 */
static int mappings_allow(int fd, uint64_t addr, uint64_t end, int is_write)
{
    uint64_t  needed  = MAPPING_READABLE | (is_write ? MAPPING_WRITABLE : 0);
    mapping_t mapping = {.size = sizeof(mapping)};

    while (addr < end) {
        mapping.query_addr = addr;
        if (ioctl(fd, MAPPING_QUERY, &mapping) != 0 || (mapping.flags & needed) != needed ||
            mapping.inode != 0) {
            return 0;
        }
        addr = mapping.end;
    }
    return 1;
}

/* Pages that are there can be touched if their mapping can; guard pages aren't there. */
static int pages_are_there(int fd, uint64_t begin, uint64_t end)
{
    pages_t missing;
    scan_t  scan = {.size              = sizeof(scan),
                    .start             = begin,
                    .end               = end,
                    .vec               = (uintptr_t)&missing,
                    .vec_len           = 1,
                    .category_inverted = PAGES_PRESENT,
                    .category_mask     = PAGES_PRESENT,
                    .return_mask       = PAGES_PRESENT};

    return ioctl(fd, PAGES_SCAN, &scan) == 0;
}

/*
 * The process's list of mappings, and its pages: kept open, as that costs more than the questions.
 * With the helper's lock held.
 */
static struct {
    ang_fork_t   fork;
    ang_own_fd_t maps, pages;
} own = {.maps.fd = -1, .pages.fd = -1};

static int file_open(ang_own_fd_t *file, const char *path)
{
    if (!ang_own_fd_is_ours(file)) {
        *file = ang_own_fd(open(path, O_RDONLY | O_CLOEXEC));
    }
    return file->fd >= 0;
}

/* They are the parent's. */
static void own_in_child(ang_fork_t *node)
{
    (void)node;
    ang_own_fd_close(&own.maps);
    ang_own_fd_close(&own.pages);
}

static int own_open(void)
{
    if (own.fork.link == NULL) {
        ang_fork_add(&own.fork, own_in_child);
    }
    return file_open(&own.maps, "/proc/thread-self/maps") &&
           file_open(&own.pages, "/proc/thread-self/pagemap");
}

void soft_guard_close(void)
{
    ang_fork_remove(&own.fork);
    ang_own_fd_close(&own.maps);
    ang_own_fd_close(&own.pages);
}

/* As soft_guard_range(), twenty times cheaper; 0: not known. */
static int is_all_there(uint64_t begin, uint64_t end, int is_write)
{
    return own_open() && mappings_allow(own.maps.fd, begin, end, is_write) &&
           pages_are_there(own.pages.fd, begin, end);
}

/* The kernel does with each page what a first access would. Before 5.14 it can't at once. */
angara_status_t soft_guard_range(uint64_t addr, uint64_t length, int is_write)
{
    uint64_t page  = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t begin = addr / page * page;
    uint64_t end   = (addr + length + page - 1) / page * page;
    char     byte;

    if (is_all_there(begin, end, is_write)) {
        return ANGARA_OK;
    }
    if (madvise((void *)(uintptr_t)begin, end - begin,
                is_write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) == 0) {
        return ANGARA_OK;
    }
    if (errno != EINVAL) {
        return ANGARA_ERR_BOUNDS;
    }
    for (uint64_t at = begin; at < end; at += page) {
        if ((is_write ? kernel_writes(at) : kernel_copy((uintptr_t)&byte, at, 1)) != ANGARA_OK) {
            return ANGARA_ERR_BOUNDS;
        }
    }
    return ANGARA_OK;
}
