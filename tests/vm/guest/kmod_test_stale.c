/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Groups of kmod_test: memory that changes behind a region. Only the old pages are reached, the
 * word of the region says so, and a check tells a change from a false alarm, whatever happens
 * meanwhile.
 */
#include "kmod_test.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- stale words ----------------------------------------------------------------------------- */

void test_stale(void)
{
    int                      domain = domain_open(), memreg = memreg_open();
    size_t                   bytes = ANGARA_MR_HANDLES_MAX * 4;
    volatile uint32_t       *stale = mmap(NULL, bytes, PROT_READ, MAP_SHARED, memreg, 0);
    char                    *page  = pages_map(4);
    struct angara_ioc_mr_reg reg, other;

    OK(stale != MAP_FAILED);
    OK(mmap(NULL, PAGE, RW, MAP_SHARED, memreg, 0) == MAP_FAILED && errno == EACCES);
    OK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, memreg, PAGE) == MAP_FAILED && errno == EINVAL);
    OK(stale[ANGARA_MR_HANDLES_MAX - 1] == 0);
    OK_ERRNO(madvise((void *)stale, PAGE, MADV_DOFORK), EINVAL);
    /* Read first: registering has to break the zero page, which must not make the region stale. */
    OK(page[0] == 0);
    OK(mr_reg(memreg, domain, page, 2 * PAGE, ALL, &reg) == 0);
    OK(mr_reg(memreg, domain, page + 2 * PAGE, PAGE, ALL, &other) == 0);
    OK(reg.handle != other.handle && stale[reg.handle] == 0 && stale[other.handle] == 0);
    mprotect(page, PAGE, PROT_READ);
    mprotect(page, PAGE, RW);
    OK(stale[reg.handle] == 0);
    if (fork() == 0) {
        _exit(0);
    }
    wait(NULL);
    page[0] = 1;
    OK(stale[reg.handle] == 0);
    madvise(page + PAGE, PAGE, MADV_DONTNEED);
    OK(stale[reg.handle] == 1 && stale[other.handle] == 0);
    OK(mr_dereg(memreg, reg.handle) == 0);
    OK(mr_reg(memreg, domain, page, 2 * PAGE, ALL, &reg) == 0 && stale[reg.handle] == 0);
    munmap(page, PAGE);
    OK(stale[reg.handle] == 1);
    OK(mr_dereg(memreg, reg.handle) == 0 && mr_dereg(memreg, other.handle) == 0);
    munmap((void *)stale, bytes);
    close(memreg);
    close(domain);
}

/* ---- regions name pages, not addresses ------------------------------------------------------- */

/* What the program does to the second of three pages; @return where that page is now, or NULL. */
typedef char *(*change_t)(char *page);

static char *page_unmap(char *page)
{
    MUST(munmap(page, PAGE) == 0);
    MUST(mmap(page, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == page);
    return NULL;
}

static char *page_map_over(char *page)
{
    MUST(mmap(page, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == page);
    return NULL;
}

static char *page_dontneed(char *page)
{
    MUST(madvise(page, PAGE, MADV_DONTNEED) == 0);
    return NULL;
}

static char *page_move(char *page)
{
    char *to = pages_map(1);

    MUST(mremap(page, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
    MUST(mmap(page, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == page);
    return to;
}

static void change_case(sides_t *s, const char *name, change_t change)
{
    size_t                   bytes = ANGARA_MR_HANDLES_MAX * 4;
    volatile uint32_t       *stale = mmap(NULL, bytes, PROT_READ, MAP_SHARED, s->memreg, 0);
    char                    *at    = pages_map(3), *moved, expected[16];
    struct angara_ioc_mr_reg reg, other;

    MUST(stale != MAP_FAILED);
    memset(at, 'o', 3 * PAGE);
    MUST(far_reg(s, at, 3 * PAGE, ALL, &reg) == 0);
    MUST(far_reg(s, at + 2 * PAGE, PAGE, ALL, &other) == 0);
    OK_SAY(!stale[reg.handle] && !stale[other.handle], "%s: not stale before", name);
    moved = change(at + PAGE);
    OK_SAY(stale[reg.handle] && !stale[other.handle], "%s: the region is stale, no other", name);
    OK_SAY(mr_check(s->memreg, reg.handle, 0, 3 * PAGE) == 1 && stale[reg.handle] &&
               mr_check(s->memreg, other.handle, 0, PAGE) == 0,
           "%s: and so it is found to be", name);
    OK_SAY(mr_check(s->memreg, reg.handle, 0, PAGE) == 0 &&
               mr_check(s->memreg, reg.handle, 0, PAGE + 1) == 1 &&
               mr_check(s->memreg, reg.handle, PAGE + 7, 9) == 1 &&
               mr_check(s->memreg, reg.handle, 2 * PAGE - 1, 2) == 1 &&
               mr_check(s->memreg, reg.handle, 2 * PAGE, PAGE) == 0 && stale[reg.handle],
           "%s: that page, no other", name);
    memset(at + PAGE, 'n', PAGE);
    memset(expected, 'o', sizeof(expected));
    OK_SAY(far_reads(s, reg.key, PAGE + 100, expected, 16), "%s: the old page is read", name);
    MUST(far_write(s, reg.key, PAGE + 100, "into the old one", 16));
    memset(expected, 'n', sizeof(expected));
    OK_SAY(memcmp(at + PAGE + 100, expected, 16) == 0, "%s: the new page isn't written", name);
    OK_SAY(far_reads(s, reg.key, PAGE + 100, "into the old one", 16) &&
               (moved == NULL || memcmp(moved + 100, "into the old one", 16) == 0),
           "%s: the old one is", name);
    OK_SAY(far_write(s, reg.key, 50, "first", 5) && memcmp(at + 50, "first", 5) == 0,
           "%s: the pages around are what they were", name);
    OK(mr_dereg(s->memreg, reg.handle) == 0 && mr_dereg(s->memreg, other.handle) == 0);
    munmap(at, 3 * PAGE);
    munmap((void *)stale, bytes);
    if (moved != NULL) {
        munmap(moved, PAGE);
    }
}

/* Pages that went away and came back: the region is marked, but it is what it was. */
static void change_and_back(sides_t *s, size_t pages)
{
    size_t                   bytes = ANGARA_MR_HANDLES_MAX * 4, last = (pages - 1) * PAGE;
    size_t                   length = pages * PAGE - 5;
    volatile uint32_t       *stale  = mmap(NULL, bytes, PROT_READ, MAP_SHARED, s->memreg, 0);
    char                    *at     = pages_map(pages), *moved;
    struct angara_ioc_mr_reg reg;

    MUST(stale != MAP_FAILED);
    memset(at, 'o', pages * PAGE);
    MUST(far_reg(s, at + 5, length, ALL, &reg) == 0);
    for (unsigned i = 0; i < 2; ++i) {
        moved = pages_map(1);
        MUST(mremap(at + last, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, moved) == moved);
        OK_SAY(stale[reg.handle] && mr_check(s->memreg, reg.handle, 0, length) == 1 &&
                   mr_check(s->memreg, reg.handle, 0, last - 5) == 0 &&
                   mr_check(s->memreg, reg.handle, last - 5, 1) == 1 && stale[reg.handle],
               "%zu pages: one isn't there", pages);
        MUST(mremap(moved, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, at + last) == at + last);
        OK_SAY(stale[reg.handle] && mr_check(s->memreg, reg.handle, last - 5, PAGE) == 0 &&
                   stale[reg.handle] && mr_check(s->memreg, reg.handle, 0, length) == 0 &&
                   !stale[reg.handle],
               "%zu pages: it has come back", pages);
        OK_SAY(far_reads(s, reg.key, last, at + 5 + last, 16), "%zu pages: read", pages);
    }
    MUST(madvise(at + last, PAGE, MADV_DONTNEED) == 0);
    at[last] = 'n';
    OK_SAY(stale[reg.handle] && mr_check(s->memreg, reg.handle, 0, length) == 1 &&
               stale[reg.handle],
           "%zu pages: the last is another one", pages);
    OK(mr_dereg(s->memreg, reg.handle) == 0);
    munmap(at, pages * PAGE);
    munmap((void *)stale, bytes);
}

void test_remap(void)
{
    sides_t s;

    sides_open(&s);
    change_and_back(&s, 2);
    change_and_back(&s, 1500); /* more than are compared at once */
    change_case(&s, "munmap", page_unmap);
    change_case(&s, "mmap over it", page_map_over);
    change_case(&s, "MADV_DONTNEED", page_dontneed);
    change_case(&s, "mremap", page_move);
    sides_close(&s);
}

/* ---- checks of stale regions ----------------------------------------------------------------- */

/* Take the page away and put it back, so that its region is marked stale, but isn't. */
static void page_shake(char *page)
{
    char *away = pages_map(1);

    MUST(mremap(page, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, away) == away);
    MUST(mremap(away, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, page) == page);
}

void *check_run(void *arg)
{
    checker_t *checker = arg;

    while (mr_check(checker->memreg, checker->handle, 0, checker->length) >= 0) {
    }
    checker->error = errno;
    return NULL;
}

/* Two threads check a region, which is shaken, while a third deregisters it: all calls wait. */
static void dereg_while_checked(int domain)
{
    enum { ROUNDS = 20, PAGES = 16 };
    int                      memreg = memreg_open();
    char                    *at     = pages_map(PAGES);
    long long                pinned = pinned_pages();
    unsigned                 ended = 0, once = 0;
    struct angara_ioc_mr_reg reg;

    for (unsigned i = 0; i < ROUNDS; ++i) {
        checker_t checkers[2];
        pthread_t threads[2];

        MUST(mr_reg(memreg, domain, at, PAGES * PAGE, ALL, &reg) == 0);
        for (unsigned k = 0; k < 2; ++k) {
            checkers[k] = (checker_t){memreg, reg.handle, PAGES * PAGE, 0};
            MUST(pthread_create(&threads[k], NULL, check_run, &checkers[k]) == 0);
        }
        for (unsigned k = draw(6); k > 0; --k) {
            page_shake(at + draw(PAGES) * PAGE);
            usleep(draw(1000));
        }
        once += mr_dereg(memreg, reg.handle) == 0;
        for (unsigned k = 0; k < 2; ++k) {
            MUST(pthread_join(threads[k], NULL) == 0);
            ended += checkers[k].error == ENOENT;
        }
    }
    OK_SAY(once == ROUNDS, "a region is deregistered while it is being checked");
    OK_SAY(ended == 2 * ROUNDS, "and checks succeed until then");
    OK(pinned_pages() == pinned);
    close(memreg);
    munmap(at, PAGES * PAGE);
}

/* The process is killed while it checks. */
static void kill_checker(void)
{
    enum { ROUNDS = 20, PAGES = 1024 };
    long long pinned = pinned_pages();

    for (unsigned i = 0; i < ROUNDS; ++i) {
        pid_t pid = fork();

        if (pid == 0) {
            int                      memreg = memreg_open();
            char                    *at     = pages_map(PAGES);
            struct angara_ioc_mr_reg reg;

            MUST(mr_reg(memreg, domain_open(), at, PAGES * PAGE, ALL, &reg) == 0);
            for (;;) {
                page_shake(at);
                MUST(mr_check(memreg, reg.handle, 0, PAGES * PAGE) == 0);
            }
        }
        usleep(5000 + draw(20000));
        kill(pid, SIGKILL);
        MUST(waitpid(pid, NULL, 0) == pid);
    }
    OK_SAY(pinned_pages() == pinned, "killed while it checks, %u times", ROUNDS);
}

/* ---- remapping under way --------------------------------------------------------------------- */

typedef struct {
    char    *at;
    unsigned pages;
    unsigned changes;
    unsigned before_us;
    unsigned between_us;
    unsigned back;    /* so many changes at first are undone: the page is moved away and back */
    int      is_done; /* all changes have been made; atomic */
} remapper_t;

static void *remap_run(void *arg)
{
    remapper_t *r = arg;

    usleep(r->before_us);
    for (unsigned i = 0; i < r->changes; ++i) {
        char *page = r->at + draw(r->pages) * PAGE;

        usleep(r->between_us);
        if (i < r->back) {
            page_shake(page);
            continue;
        } else if (i % 2 == 0) {
            madvise(page, PAGE, MADV_DONTNEED);
        } else if (mmap(page, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != page) {
            _exit(1);
        }
        *(volatile unsigned *)(void *)page = i + 77;
    }
    __atomic_store_n(&r->is_done, 1, __ATOMIC_RELEASE);
    return NULL;
}

/*
 * Memory is remapped while it is being registered, or while a region of it is being checked. A
 * region that isn't stale afterwards has the pages that the program has.
 */
static void remap_under_way(int domain, int checking)
{
    enum { ROUNDS = 60, PAGES = 24 };
    int                      memreg = memreg_open(), far_domain = domain_open();
    size_t                   bytes       = ANGARA_MR_HANDLES_MAX * 4;
    volatile uint32_t       *stale       = mmap(NULL, bytes, PROT_READ, MAP_SHARED, memreg, 0);
    char                    *stage       = pages_map(PAGES);
    unsigned                 outcomes[2] = {0, 0}, same = 0;
    struct angara_ioc_mr_reg stage_reg, reg;
    pe_t                     near, far;

    MUST(stale != MAP_FAILED);
    pe_open(domain, PAGE, &near);
    pe_open(far_domain, PAGE, &far);
    pair_set(&near, 0, near.info.node, &far);
    MUST(mr_reg(memreg, domain, stage, PAGES * PAGE, ANGARA_MR_LOCAL_WRITE, &stage_reg) == 0);
    for (unsigned i = 0; i < ROUNDS; ++i) {
        remapper_t r = {pages_map(PAGES), PAGES, draw(4), draw(4000), 0, 0, 0};
        pthread_t  thread;
        unsigned   is_stale;

        memset(r.at, (int)i, PAGES * PAGE);
        if (checking) {
            MUST(mr_reg(memreg, far_domain, r.at, PAGES * PAGE, ALL, &reg) == 0);
            r.changes += 2;
            r.back = draw(3) != 0 ? r.changes - 1 : r.changes; /* at last another page, or none */
            r.before_us /= 8;
            r.between_us = draw(1000);
        }
        MUST(pthread_create(&thread, NULL, remap_run, &r) == 0);
        if (checking) {
            while (!__atomic_load_n(&r.is_done, __ATOMIC_ACQUIRE)) {
                MUST(mr_check(memreg, reg.handle, 0, PAGES * PAGE) >= 0);
            }
            MUST(draw(2) != 0 || mr_check(memreg, reg.handle, 0, PAGES * PAGE) >= 0);
        } else {
            MUST(mr_reg(memreg, far_domain, r.at, PAGES * PAGE, ALL, &reg) == 0);
        }
        MUST(pthread_join(thread, NULL) == 0);
        is_stale = stale[reg.handle] != 0;
        outcomes[is_stale]++;
        MUST(transfer(&near, ANGARA_OP_GET, 0, stage_reg.key, 0, reg.key, 0, PAGES * PAGE));
        same += !is_stale && memcmp(stage, r.at, PAGES * PAGE) == 0;
        MUST(r.back < r.changes || !checking || mr_check(memreg, reg.handle, 0, PAGES * PAGE) == 0);
        MUST(mr_dereg(memreg, reg.handle) == 0);
        munmap(r.at, PAGES * PAGE);
    }
    OK_SAY(same == outcomes[0], "remapped while it is %s: not stale means the same memory",
           checking ? "checked" : "registered");
    OK_SAY(outcomes[0] > 0 && outcomes[1] > 0, "both were seen");
    printf("# %u not stale, %u stale\n", outcomes[0], outcomes[1]);
    pe_close(&near);
    pe_close(&far);
    munmap((void *)stale, bytes);
    close(memreg);
    close(far_domain);
}

void test_checks(void)
{
    int domain = domain_open();

    remap_under_way(domain, 0);
    remap_under_way(domain, 1);
    dereg_while_checked(domain);
    hooks_load();
    delay_add("pin_user_pages_fast", 1000);
    delay_add("angara_device_max_segment", 2000); /* between pinning and the look at the word */
    remap_under_way(domain, 0);
    delays_clear();
    delay_add("memreg_pages_same", 500);
    delay_add("free_pages", 200); /* between the comparison and the change of the word */
    remap_under_way(domain, 1);
    dereg_while_checked(domain);
    kill_checker();
    delays_clear();
    hooks_unload();
    close(domain);
    OK(SYSFS("mr_used") == 0 && SYSFS("pe_used") == 0);
}
