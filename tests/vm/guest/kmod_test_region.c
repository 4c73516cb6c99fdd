/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Groups of kmod_test: what can be registered, of what size and kind, and that the device finds the
 * right bytes there. Data always goes through the device: a PE in one domain puts and gets between
 * its own region and those of another domain, and what arrives is compared.
 */
#include "kmod_test.h"

#include "../../common/data.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MB         (1ull << 20)
#define REGIONS    10000u
#define EXT4_IMAGE "/tmp/ext4.image"
#define EXT4_DIR   "/tmp/ext4"

/* All bytes to the far side and back, with what lies around left alone. */
static void size_case(sides_t *s, size_t skew, size_t length)
{
    static char              bytes[STAGE];
    struct angara_ioc_mr_reg reg;
    size_t                   pages = (skew + length + 2 * PAGE) / PAGE + 1;
    char                    *base = pages_map(pages), *at = base + PAGE + skew;
    int                      good, edges                  = 1;

    data_fill(bytes, length, length + skew);
    memset(base, 0x5a, pages * PAGE);
    MUST(far_reg(s, at, length, ALL, &reg) == 0);
    good = far_write(s, reg.key, 0, bytes, length) && memcmp(at, bytes, length) == 0 &&
           far_reads(s, reg.key, 0, bytes, length);
    for (size_t i = 0; i < pages * PAGE; i += i + 1 == (size_t)(at - base) ? length + 1 : 1) {
        edges &= base[i] == 0x5a;
    }
    OK_SAY(good && edges, "%zu bytes at offset %zu of a page", length, skew);
    MUST(mr_dereg(s->memreg, reg.handle) == 0);
    munmap(base, pages * PAGE);
}

/* 256 MiB: a word of each page of the lower half to the upper half, by one operation. */
static void large_case(sides_t *s, int advice, unsigned min_shift, const char *name)
{
    const size_t             length = 256 * MB, half = length / 2;
    struct angara_ioc_mr_reg reg, own;
    char *map = mmap(NULL, length + 2 * MB, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *base;
    int   good;

    MUST(map != MAP_FAILED);
    base = (char *)(((uintptr_t)map + 2 * MB - 1) & ~(uintptr_t)(2 * MB - 1));
    MUST(madvise(base, length, advice) == 0);
    OK_SAY(far_reg(s, base, length, ALL, &reg) == 0 && reg.page_shift >= min_shift, "256 MiB of %s",
           name);
    printf("# page_shift %u\n", reg.page_shift);
    MUST(mr_reg(s->memreg, s->near_domain, base, half, 0, &own) == 0);
    OK(pinned_pages() == s->pinned + (long long)(STAGE + length + half) / PAGE);
    for (size_t at = 0; at < half; at += PAGE) {
        *(uint64_t *)(void *)(base + at + at / PAGE % 512 * 8) = at + 1;
    }
    good = transfer(&s->near, ANGARA_OP_PUT, 0, own.key, 0, reg.key, half, half);
    for (size_t at = 0; at < half; at += PAGE) {
        good &= *(uint64_t *)(void *)(base + half + at + at / PAGE % 512 * 8) == at + 1;
    }
    OK_SAY(good, "each page of it is where it should be");
    OK_SAY(far_write(s, reg.key, length - 3, "end", 3) && memcmp(base + length - 3, "end", 3) == 0,
           "so is its last byte");
    OK(mr_dereg(s->memreg, own.handle) == 0 && mr_dereg(s->memreg, reg.handle) == 0);
    munmap(map, length + 2 * MB);
}

void test_sizes(void)
{
    static const size_t lengths[] = {
        1, 2, 7, 8, 4095, 4096, 4097, 8191, 8192, 65537, 511 * PAGE / 2, MB - 4096, MB - 1, MB};
    static const size_t skews[] = {0, 1, 2048, 4095};
    sides_t             s;

    sides_open(&s);
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); ++i) {
        for (size_t j = 0; j < sizeof(skews) / sizeof(skews[0]); ++j) {
            size_case(&s, skews[j], lengths[i]);
        }
    }
    large_case(&s, MADV_NOHUGEPAGE, 12, "small pages");
    large_case(&s, MADV_HUGEPAGE, 21, "transparent huge pages");
    sides_close(&s);
}

/* ---- huge pages ------------------------------------------------------------------------------ */

static void huge_case(sides_t *s, size_t skew, size_t length)
{
    const size_t             size = 8 * MB;
    struct angara_ioc_mr_reg reg;
    char *base = mmap(NULL, size, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);

    MUST(base != MAP_FAILED);
    OK_SAY(far_reg(s, base + skew, length, ALL, &reg) == 0 && reg.page_shift >= 21,
           "%zu bytes in huge pages at offset %zu are huge pages to the device", length, skew);
    OK(far_write(s, reg.key, length - 5, "huge", 5) &&
       memcmp(base + skew + length - 5, "huge", 5) == 0);
    strcpy(base + skew + 2 * MB, "second");
    OK(far_reads(s, reg.key, 2 * MB, "second", 7));
    OK(mr_dereg(s->memreg, reg.handle) == 0);
    munmap(base, size);
}

/* Private and only to be read: as it is; what is written later is there, or the region is stale. */
static void huge_read_only_case(sides_t *s, int touched)
{
    static const char        none[7];
    struct angara_ioc_mr_reg reg;
    char *base = mmap(NULL, 2 * MB, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    int   result;

    MUST(base != MAP_FAILED);
    if (touched) {
        memcpy(base + MB, "before", 7);
    }
    MUST(mprotect(base, 2 * MB, PROT_READ) == 0);
    OK_ERRNO(far_reg(s, base, 2 * MB, ALL, &reg), EFAULT);
    result = far_reg(s, base, 2 * MB, ANGARA_MR_REMOTE_READ, &reg);
    OK_SAY(result == 0, "huge pages that are only read%s", touched ? "" : ", never touched");
    if (result == 0) {
        OK(far_reads(s, reg.key, MB, touched ? "before" : none, 7));
        MUST(mprotect(base, 2 * MB, RW) == 0);
        memcpy(base + MB, "later!", 7);
        OK(far_reads(s, reg.key, MB, "later!", 7) || mr_check(s->memreg, reg.handle, 0, 2 * MB));
        OK(mr_dereg(s->memreg, reg.handle) == 0);
    }
    munmap(base, 2 * MB);
}

void test_huge(void)
{
    sides_t s;

    MUST(run("echo 1 >/proc/sys/vm/compact_memory; echo 8 >/proc/sys/vm/nr_hugepages"));
    MUST(value_read("/proc/sys/vm/nr_hugepages", NULL) == 8);
    sides_open(&s);
    huge_case(&s, 0, 8 * MB);
    huge_case(&s, 4097, 6 * MB + 11);
    huge_read_only_case(&s, 1);
    huge_read_only_case(&s, 0);
    sides_close(&s);
    file_write("/proc/sys/vm/nr_hugepages", "0");
}

/* ---- kinds of memory ------------------------------------------------------------------------- */

/*
 * A region for reading of memory that nobody has touched; the program's later writes are what is
 * read: also after a fork, whose child shares the pages for a moment.
 */
static void untouched_case(sides_t *s, char *at, size_t length, const char *first, const char *name)
{
    struct angara_ioc_mr_reg reg;
    pid_t                    child;
    int                      pipes[2];
    char                     byte;

    MUST(far_reg(s, at, length, ANGARA_MR_REMOTE_READ, &reg) == 0);
    OK_SAY(far_reads(s, reg.key, 0, first, 16), "%s: read before it is written", name);
    memcpy(at, "written, later..", 16);
    OK_SAY(far_reads(s, reg.key, 0, "written, later..", 16), "%s: written, then read", name);
    MUST(pipe(pipes) == 0);
    child = fork();
    if (child == 0) {
        close(pipes[1]);
        _exit(read(pipes[0], &byte, 1) != 0);
    }
    memcpy(at + length - 16, "after the fork..", 16);
    OK_SAY(far_reads(s, reg.key, length - 16, "after the fork..", 16),
           "%s: written after a fork, then read", name);
    close(pipes[1]);
    MUST(waitpid(child, NULL, 0) == child);
    close(pipes[0]);
    OK(mr_dereg(s->memreg, reg.handle) == 0);
}

/* Memory that two processes share: what the child writes is read, what is put the child sees. */
static void shared_case(sides_t *s, int fd, const char *name)
{
    struct angara_ioc_mr_reg reg;
    int                      flags = MAP_SHARED | (fd < 0 ? MAP_ANONYMOUS : 0), status;
    char                    *at    = mmap(NULL, 2 * PAGE, RW, flags, fd, 0);
    pid_t                    child;

    MUST(at != MAP_FAILED);
    MUST(far_reg(s, at, 2 * PAGE, ALL, &reg) == 0);
    MUST(far_write(s, reg.key, PAGE - 4, "for both", 8));
    child = fork();
    if (child == 0) {
        memcpy(at, "by child", 8);
        _exit(memcmp(at + PAGE - 4, "for both", 8) != 0);
    }
    MUST(waitpid(child, &status, 0) == child);
    OK_SAY(status == 0 && far_reads(s, reg.key, 0, "by child", 8), "shared with a child: %s", name);
    OK(mr_dereg(s->memreg, reg.handle) == 0);
    munmap(at, 2 * PAGE);
}

void test_kinds(void)
{
    static const char        zeroes[16];
    struct angara_ioc_mr_reg reg;
    sides_t                  s;
    char                    *at, *own;
    int                      fd;

    sides_open(&s);
    at = calloc(1, MB);
    MUST(at != NULL);
    untouched_case(&s, at, MB, zeroes, "calloc()");
    free(at);
    at = pages_map(2);
    MUST(*(volatile char *)at == 0); /* the zero page */
    untouched_case(&s, at, 2 * PAGE, zeroes, "memory that was only read");

    /* Our own program: a private mapping of a file of the root file system. */
    fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    at = mmap(NULL, 2 * PAGE, RW, MAP_PRIVATE, fd, 0);
    MUST(at != MAP_FAILED);
    own = malloc(16);
    MUST(own != NULL && pread(fd, own, 16, 0) == 16);
    untouched_case(&s, at, 2 * PAGE, own, "a private file");
    munmap(at, 2 * PAGE);
    at = mmap(NULL, 2 * PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
    OK_ERRNO(far_reg(&s, at, PAGE, ALL, &reg), EFAULT);
    OK_ERRNO(far_reg(&s, at, PAGE, ANGARA_MR_LOCAL_WRITE, &reg), EFAULT);
    MUST(far_reg(&s, at, 2 * PAGE, ANGARA_MR_REMOTE_READ, &reg) == 0);
    OK(far_reads(&s, reg.key, 0, own, 16));
    OK(mr_dereg(s.memreg, reg.handle) == 0);
    munmap(at, 2 * PAGE);
    close(fd);
    free(own);

    shared_case(&s, -1, "anonymous");
    fd = memfd_create("shmem", MFD_CLOEXEC);
    MUST(fd >= 0 && ftruncate(fd, 2 * PAGE) == 0);
    shared_case(&s, fd, "a memfd");
    close(fd);
    /* Shared for reading only, though the file may be written: by others, then. */
    fd = memfd_create("shmem", MFD_CLOEXEC);
    MUST(fd >= 0 && ftruncate(fd, PAGE) == 0);
    at = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
    OK_ERRNO(far_reg(&s, at, PAGE, ANGARA_MR_REMOTE_WRITE, &reg), EFAULT);
    OK(far_reg(&s, at, PAGE, ANGARA_MR_REMOTE_READ, &reg) == 0);
    MUST(pwrite(fd, "by write()", 10, 0) == 10);
    OK(far_reads(&s, reg.key, 0, "by write()", 10));
    OK(mr_dereg(s.memreg, reg.handle) == 0);
    close(fd);
    sides_close(&s);
}

/* ---- files of a real file system ------------------------------------------------------------- */

void test_ext4(void)
{
    struct angara_ioc_mr_reg reg;
    sides_t                  s;
    char                    *at, bytes[64];
    int                      fd;

    if (!run("command -v mkfs.ext4 >/dev/null")) {
        tap_skip("ext4", "there is no mkfs.ext4 (Debian: e2fsprogs)");
        return;
    }
    MUST(run("vm_modprobe loop && vm_modprobe ext4 && truncate -s 16M " EXT4_IMAGE
             " && mkfs.ext4 -q " EXT4_IMAGE " && mkdir -p " EXT4_DIR " && mount -o loop " EXT4_IMAGE
             " " EXT4_DIR));
    fd = open(EXT4_DIR "/file", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    MUST(fd >= 0 && ftruncate(fd, 4 * PAGE) == 0);
    MUST(pwrite(fd, "what the file has", 18, 0) == 18);
    sides_open(&s);

    at = mmap(NULL, 4 * PAGE, RW, MAP_SHARED, fd, 0);
    MUST(at != MAP_FAILED);
    OK_ERRNO(far_reg(&s, at, 4 * PAGE, ALL, &reg), EOPNOTSUPP);
    OK_ERRNO(far_reg(&s, at, 1, ANGARA_MR_LOCAL_WRITE, &reg), EOPNOTSUPP);
    memset(at, 'd', 4 * PAGE); /* present and dirty pages are the same case */
    OK_ERRNO(far_reg(&s, at, 4 * PAGE, ANGARA_MR_REMOTE_ATOMIC, &reg), EOPNOTSUPP);
    OK(pinned_pages() == s.pinned + STAGE / PAGE);
    OK(far_reg(&s, at, 4 * PAGE, ANGARA_MR_REMOTE_READ, &reg) == 0);
    memcpy(at, "shared", 6);
    OK(far_reads(&s, reg.key, 0, "shared", 6));
    OK(mr_dereg(s.memreg, reg.handle) == 0);
    munmap(at, 4 * PAGE);

    at = mmap(NULL, 4 * PAGE, RW, MAP_PRIVATE, fd, 0);
    MUST(at != MAP_FAILED);
    untouched_case(&s, at, 4 * PAGE, "shareddddddddddd", "a private ext4 file");
    OK(far_reg(&s, at, 4 * PAGE, ALL, &reg) == 0);
    OK(far_write(&s, reg.key, 2 * PAGE, "mine", 4) && memcmp(at + 2 * PAGE, "mine", 4) == 0);
    OK_SAY(pread(fd, bytes, 4, 2 * PAGE) == 4 && memcmp(bytes, "dddd", 4) == 0,
           "the file behind it has not changed");
    OK(mr_dereg(s.memreg, reg.handle) == 0);
    munmap(at, 4 * PAGE);
    sides_close(&s);
    close(fd);
    OK(run("umount " EXT4_DIR " && rm " EXT4_IMAGE));
}

/* ---- holes ----------------------------------------------------------------------------------- */

void test_holes(void)
{
    static const struct {
        unsigned    hole, count;
        const char *name;
    } cases[] = {{0, 1, "at the start"},
                 {5, 1, "inside"},
                 {9, 1, "at the end"},
                 {1, 8, "nearly everywhere"},
                 {0, 10, "only"}};
    struct angara_ioc_mr_reg reg;
    sides_t                  s;

    sides_open(&s);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        char *at = pages_map(10);

        memset(at, 1, 10 * PAGE);
        munmap(at + cases[i].hole * PAGE, cases[i].count * PAGE);
        for (uint32_t access = 0; access <= ALL; access += ALL) {
            OK_SAY(far_reg(&s, at + 1, 10 * PAGE - 2, access, &reg) == -1 && errno == EFAULT,
                   "a hole %s, rights %u: EFAULT", cases[i].name, access);
        }
        munmap(at, 10 * PAGE);
    }
    {
        /* More than a chunk of pinning is there, then a hole. */
        char *at = pages_map(2000);

        munmap(at + 1900 * PAGE, PAGE);
        OK_ERRNO(far_reg(&s, at, 2000 * PAGE, ALL, &reg), EFAULT);
        OK_SAY(far_reg(&s, at, 1900 * PAGE, ALL, &reg) == 0, "up to the hole");
        OK(mr_dereg(s.memreg, reg.handle) == 0);
        mprotect(at + 1800 * PAGE, PAGE, PROT_NONE);
        OK_ERRNO(far_reg(&s, at, 1900 * PAGE, 0, &reg), EFAULT);
        munmap(at, 2000 * PAGE);
    }
    OK_ERRNO(far_reg(&s, (void *)0x7ffffffff000, 2 * PAGE, 0, &reg), EFAULT);
    OK_ERRNO(far_reg(&s, (void *)0xffff888000000000, PAGE, 0, &reg), EFAULT);
    OK_ERRNO(far_reg(&s, (void *)0xffffffff81000000, PAGE, 0, &reg), EFAULT);
    OK_ERRNO(far_reg(&s, (void *)0xffffffffff600000, PAGE, 0, &reg), EFAULT); /* vsyscall */
    OK_ERRNO(far_reg(&s, (void *)-1, 1, 0, &reg), EINVAL);
    OK(pinned_pages() == s.pinned + STAGE / PAGE);
    sides_close(&s);
}

/* ---- several regions of the same memory ------------------------------------------------------ */

void test_overlap(void)
{
    struct angara_ioc_mr_reg a, b, c;
    sides_t                  s;
    char                    *at = pages_map(8);

    sides_open(&s);
    OK(far_reg(&s, at, 4 * PAGE, ALL, &a) == 0);
    OK(far_reg(&s, at, 4 * PAGE, ALL, &b) == 0);
    OK(far_reg(&s, at + 2 * PAGE + 7, 6 * PAGE - 7, ANGARA_MR_REMOTE_READ, &c) == 0);
    OK(a.key != b.key && b.key != c.key && a.handle != b.handle && b.handle != c.handle);
    OK_SAY(pinned_pages() == s.pinned + STAGE / PAGE + 4 + 4 + 6, "each pins for itself");
    OK(far_write(&s, a.key, 3 * PAGE, "through the first", 18));
    OK(far_reads(&s, b.key, 3 * PAGE, "through the first", 18));
    OK(far_reads(&s, c.key, PAGE - 7, "through the first", 18));
    OK(mr_dereg(s.memreg, a.handle) == 0);
    OK(far_reads(&s, b.key, 3 * PAGE, "through the first", 18));
    OK(mr_dereg(s.memreg, b.handle) == 0);
    OK(far_reads(&s, c.key, PAGE - 7, "through the first", 18));
    OK(!far_write(&s, c.key, PAGE - 7, "x", 1));
    pair_set(&s.near, 0, s.near.info.node, &s.far);
    OK_SAY(!far_reads(&s, b.key, 3 * PAGE, "through the first", 18), "the key has gone");
    pair_set(&s.near, 0, s.near.info.node, &s.far);
    OK(mr_dereg(s.memreg, c.handle) == 0);
    munmap(at, 8 * PAGE);
    sides_close(&s);
}

/* ---- many ------------------------------------------------------------------------------------ */

static int key_compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* Sorts them. @return 1 if all differ, in their random part too */
static int keys_differ(uint64_t *keys, size_t count)
{
    int differ = 1;

    for (size_t i = 0; i < count; ++i) {
        keys[i] >>= 24;
    }
    qsort(keys, count, sizeof(keys[0]), key_compare);
    for (size_t i = 1; i < count; ++i) {
        /* 40 random bits: two of 10,000 are equal once in 20,000 runs, three never. */
        differ &= i < 2 || keys[i] != keys[i - 2];
    }
    return differ && keys[0] < 1ull << 36 && keys[count - 1] > 15ull << 36;
}

void test_many(void)
{
    struct angara_ioc_mr_reg reg;
    uint64_t                *keys    = calloc(REGIONS, sizeof(*keys));
    uint32_t                *handles = calloc(REGIONS, sizeof(*handles));
    char                    *at      = pages_map(REGIONS);
    unsigned                 made = 0, right = 0, gone = 0;
    sides_t                  s;

    MUST(keys != NULL && handles != NULL);
    sides_open(&s);
    while (made < REGIONS && far_reg(&s, at + made * PAGE, PAGE, ALL, &reg) == 0) {
        keys[made]    = reg.key;
        handles[made] = reg.handle;
        memcpy(at + made * PAGE, &made, sizeof(made));
        made++;
    }
    OK_SAY(made == REGIONS, "%u regions", REGIONS);
    OK(SYSFS("mr_used") == REGIONS + 1);
    OK(pinned_pages() == s.pinned + STAGE / PAGE + REGIONS);
    for (unsigned i = 0; i < REGIONS; i += 101) {
        right += far_reads(&s, keys[i], 0, &i, sizeof(i));
    }
    OK_SAY(right == (REGIONS + 100) / 101, "each key finds its own");
    for (unsigned i = 0; i < REGIONS; i += 2) {
        gone += mr_dereg(s.memreg, handles[i]) == 0;
    }
    OK(gone == REGIONS / 2 && SYSFS("mr_used") == REGIONS / 2 + 1);
    right = 0;
    for (unsigned i = 1; i < REGIONS; i += 202) {
        right += far_reads(&s, keys[i], 0, &i, sizeof(i));
    }
    OK_SAY(right == (REGIONS + 200) / 202, "those that are left, when every other one has gone");
    OK_SAY(keys_differ(keys, REGIONS), "keys are random");
    /* The others end with their file. */
    MUST(mr_dereg(s.memreg, s.stage_reg.handle) == 0);
    close(s.memreg);
    OK(SYSFS("mr_used") == 0 && pinned_pages() == s.pinned);
    s.memreg = memreg_open();
    MUST(mr_reg(s.memreg, s.near_domain, s.stage, STAGE, 0, &s.stage_reg) == 0);
    munmap(at, REGIONS * PAGE);
    sides_close(&s);
    free(keys);
    free(handles);
}
