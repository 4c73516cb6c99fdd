/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Groups of kmod_test: two things at the same time, where one of them takes memory away. Delays by
 * kprobes (kmod/hooks) and an emulator that answers late make the windows wide.
 */
#include "kmod_test.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define HOOKS   "/sys/module/angara_hooks/parameters/"
#define CHUNK   (64u << 10)  /* bytes of a put */
#define VICTIM  (4u << 20)   /* bytes of a region that loses its memory */
#define FRESH   (16u << 20)  /* bytes that others allocate meanwhile */
#define SPARE   (112u << 20) /* bytes that are free where most of them are allocated */
#define PATTERN 0x11

void hooks_load(void)
{
    /* One that a test has left which didn't come to its end. */
    MUST(run("[ ! -d /sys/module/angara_hooks ] || /sbin/rmmod angara_hooks"));
    MUST(run(". /run/vm/config && /sbin/insmod \"$vm_modules/hooks/angara_hooks.ko\""));
}

void hooks_unload(void)
{
    MUST(run("/sbin/rmmod angara_hooks"));
}

void delay_add(const char *function, unsigned us)
{
    char text[100];

    snprintf(text, sizeof(text), "%s %u\n", function, us);
    file_write(HOOKS "delay", text);
}

void delays_clear(void)
{
    file_write(HOOKS "delay", "\n");
}

/* ---- kill -9 --------------------------------------------------------------------------------- */

/* Register and deregister, over and over. fd: domain, memreg, where to tell (or -1). */
static void *register_forever(void *fds)
{
    int                     *fd   = fds;
    char                    *at   = pages_map(VICTIM / PAGE);
    size_t                   size = VICTIM;
    struct angara_ioc_mr_reg reg;

    for (;;) {
        size = size > PAGE ? size / 2 : VICTIM;
        if (fd[2] >= 0 && size == VICTIM) { /* been through all sizes */
            MUST(write(fd[2], "", 1) == 1);
            fd[2] = -1;
        }
        if (mr_reg(fd[1], fd[0], at, size, ALL, &reg) == 0 && size % (3 * PAGE) != 0) {
            mr_dereg(fd[1], reg.handle);
        }
    }
    return NULL;
}

/* @return its process, when it is at it */
static pid_t registrar_start(void)
{
    int   pipes[2];
    char  byte;
    pid_t pid;

    MUST(pipe(pipes) == 0);
    pid = fork();

    if (pid == 0) {
        int       domain = domain_open(), memreg = memreg_open();
        int       quiet[3] = {domain, memreg, -1}, telling[3] = {domain, memreg, pipes[1]};
        pthread_t thread;

        pthread_create(&thread, NULL, register_forever, quiet);
        register_forever(telling);
    }
    MUST(pid > 0 && read(pipes[0], &byte, 1) == 1);
    close(pipes[0]);
    close(pipes[1]);
    return pid;
}

/* With ANGARA_TEST_QUICK, less. */
static unsigned some_of(unsigned rounds)
{
    return getenv("ANGARA_TEST_QUICK") != NULL ? (rounds + 2) / 3 : rounds;
}

static void kill_rounds(unsigned rounds, const char *name)
{
    long long pinned = pinned_pages();
    unsigned  clean  = 0;

    for (unsigned i = 0; i < rounds; ++i) {
        pid_t pid = registrar_start();

        usleep(draw(30000));
        kill(pid, SIGKILL);
        MUST(waitpid(pid, NULL, 0) == pid);
        clean += SYSFS("mr_used") == 0 && pinned_pages() == pinned;
    }
    OK_SAY(clean == rounds, "killed while it registers, %u times: %s", rounds, name);
}

void test_kill_register(void)
{
    static const char *const steps[] = {"angara_pinned_charge", "pin_user_pages_fast",
                                        "angara_mr_create",     "angara_call_reply",
                                        "angara_mr_destroy",    "mmu_interval_notifier_remove"};
    char                     name[60];

    kill_rounds(some_of(15), "at any time");
    hooks_load();
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); ++i) {
        long long delayed = value_read(HOOKS "delay", NULL);

        delay_add(steps[i], 3000);
        snprintf(name, sizeof(name), "held before %s", steps[i]);
        kill_rounds(4, name);
        OK_SAY(value_read(HOOKS "delay", NULL) > delayed, "it was held");
        delays_clear();
    }
    hooks_unload();
}

/* What a child tells of itself. */
typedef struct {
    uint32_t index, generation;
    uint64_t key;
} name_t;

/* A child with a region that the parent puts into while it moves data itself, until it is killed.
 */
static void mover_run(int out, const pe_t *parent, uint64_t parent_key)
{
    int                      domain = domain_open(), memreg = memreg_open();
    char                    *at = pages_map(VICTIM / PAGE);
    struct angara_ioc_mr_reg reg;
    name_t                   name;
    pe_t                     pe;

    memset(at, 3, VICTIM);
    pe_open(domain, PAGE, &pe);
    MUST(mr_reg(memreg, domain, at, VICTIM, ALL | ANGARA_MR_LOCAL_WRITE, &reg) == 0);
    pair_set(&pe, 0, parent->info.node, parent);
    name = (name_t){pe.index, pe.generation, reg.key};
    MUST(write(out, &name, sizeof(name)) == sizeof(name));
    for (;;) {
        struct angara_desc desc = {
            .op      = draw(2) ? ANGARA_OP_PUT : ANGARA_OP_GET,
            .lkey    = reg.key,
            .loffset = draw(VICTIM / CHUNK) * CHUNK,
            .rkey    = parent_key,
            .length  = CHUNK,
        };

        desc_post(&pe, &desc);
    }
}

static void chunk_put(pe_t *pe, uint64_t lkey, const name_t *to)
{
    struct angara_desc desc = {
        .op      = ANGARA_OP_PUT,
        .lkey    = lkey,
        .rkey    = to->key,
        .roffset = draw(VICTIM / CHUNK) * CHUNK,
        .length  = CHUNK,
    };

    desc_post(pe, &desc);
}

/* Take memory until little is free, so that who allocates soon gets what was freed just now. */
static void *ballast_take(size_t *length)
{
    void *ballast;

    *length = (size_t)value_read("/proc/meminfo", "MemFree:") * 1024;
    MUST(*length > SPARE);
    *length = (*length - SPARE) / PAGE * PAGE;
    ballast = mmap(NULL, *length, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    MUST(ballast != MAP_FAILED);
    return ballast;
}

/* Allocate memory and put meanwhile. @return 1 if no put has come into that memory */
static int fresh_is_intact(pe_t *pe, uint64_t lkey, const name_t *to, unsigned length)
{
    char *fresh  = pages_map(length / PAGE);
    int   intact = 1;

    MUST(madvise(fresh, length, MADV_NOHUGEPAGE) == 0);
    for (unsigned at = 0; at < length; at += 4 * CHUNK) {
        memset(fresh + at, PATTERN, 4 * CHUNK);
        chunk_put(pe, lkey, to);
    }
    for (unsigned i = 0; i < 20; ++i) {
        chunk_put(pe, lkey, to);
    }
    for (unsigned at = 0; at < length; at += 64) {
        intact &= fresh[at] == PATTERN;
    }
    munmap(fresh, length);
    return intact;
}

static void kill_mover(unsigned rounds, const char *name)
{
    int                        domain = domain_open(), memreg = memreg_open(), pipes[2];
    char                      *near = pages_map(CHUNK / PAGE), *far = pages_map(CHUNK / PAGE);
    unsigned                   intact = 0, died = 0, clean = 0;
    struct angara_ioc_mr_reg   near_reg, far_reg;
    struct angara_event_record event;
    pe_t                       pe;

    MUST(pipe(pipes) == 0);
    pe_open(domain, PAGE, &pe);
    memset(near, 0xee, CHUNK);
    MUST(mr_reg(memreg, domain, near, CHUNK, 0, &near_reg) == 0);
    MUST(mr_reg(memreg, domain, far, CHUNK, ALL, &far_reg) == 0);
    for (unsigned i = 0; i < rounds; ++i) {
        long long pinned = pinned_pages();
        pid_t     pid    = fork();
        name_t    child;

        if (pid == 0) {
            mover_run(pipes[1], &pe, far_reg.key);
        }
        MUST(read(pipes[0], &child, sizeof(child)) == sizeof(child));
        pair_set(&pe, 0, pe.info.node,
                 &(pe_t){.index = child.index, .generation = child.generation});
        for (unsigned j = draw(50); j > 0; --j) {
            chunk_put(&pe, near_reg.key, &child);
        }
        kill(pid, SIGKILL);
        intact += fresh_is_intact(&pe, near_reg.key, &child, FRESH);
        MUST(waitpid(pid, NULL, 0) == pid);
        intact += fresh_is_intact(&pe, near_reg.key, &child, FRESH);
        clean += pinned_pages() == pinned && SYSFS("mr_used") == 2 && SYSFS("pe_used") == 1;
        /* The pair has ended, by the death or by a key that has gone just before. */
        died += event_take(&pe, &event) &&
                (event.type == ANGARA_EV_PEER_DOWN || event.type == ANGARA_EV_FAULT);
        while (event_take(&pe, &event)) {
        }
    }
    OK_SAY(died == rounds, "killed while data moves, %u times: %s: peers are told", rounds, name);
    OK_SAY(intact == 2 * rounds, "%s: its memory isn't reached when it is another's", name);
    OK_SAY(clean == rounds, "%s: nothing of it is left", name);
    pe_close(&pe);
    close(memreg);
    close(domain);
    close(pipes[0]);
    close(pipes[1]);
    munmap(near, CHUNK);
    munmap(far, CHUNK);
}

void test_kill_transfer(void)
{
    kill_mover(some_of(8), "at any time");
    MUST(run("vm_host emu admin 0 any 40"));
    kill_mover(2, "the device answers late");
    MUST(run("vm_host emu admin 0 any 0"));
}

/* ---- unpinning waits for the device ---------------------------------------------------------- */

typedef struct {
    int      memreg;
    uint32_t handle;
    int      ret;
} dereg_t;

static void *dereg_run(void *arg)
{
    dereg_t *dereg = arg;

    dereg->ret = mr_dereg(dereg->memreg, dereg->handle);
    return NULL;
}

/*
 * The device answers late and goes on until then. The pages belong to nobody but the region, so the
 * moment they are unpinned somebody else gets them.
 */
void test_unpin(void)
{
    enum { LATE_MS = 1000 };
    int                      domains[2] = {domain_open(), domain_open()}, memreg = memreg_open();
    char                    *near = pages_map(CHUNK / PAGE), *far = pages_map(VICTIM / PAGE);
    long long                pinned;
    struct angara_ioc_mr_reg near_reg, far_reg;
    dereg_t                  dereg = {.memreg = memreg};
    pthread_t                thread;
    unsigned                 looks = 0, held = 0, puts = 0;
    size_t                   ballast_length;
    void                    *ballast;
    double                   start;
    name_t                   to;
    pe_t                     a, b;

    pe_open(domains[0], PAGE, &a);
    pe_open(domains[1], PAGE, &b);
    pair_set(&a, 0, a.info.node, &b);
    memset(near, 0xee, CHUNK);
    MUST(mr_reg(memreg, domains[0], near, CHUNK, 0, &near_reg) == 0);
    pinned = pinned_pages();
    MUST(mr_reg(memreg, domains[1], far, VICTIM, ALL, &far_reg) == 0);
    to = (name_t){b.index, b.generation, far_reg.key};
    chunk_put(&a, near_reg.key, &to);
    munmap(far, VICTIM);
    ballast = ballast_take(&ballast_length);

    MUST(run("vm_host emu admin 0 mr_invalidate %d", LATE_MS));
    dereg.handle = far_reg.handle;
    start        = now_seconds();
    MUST(pthread_create(&thread, NULL, dereg_run, &dereg) == 0);
    while (now_seconds() < start + LATE_MS * 0.0005) {
        long long all = pinned_pages();

        /* By now the device can't have answered. */
        if (now_seconds() < start + LATE_MS * 0.001) {
            looks++;
            held += all == pinned + VICTIM / PAGE;
        }
        puts += transfer(&a, ANGARA_OP_PUT, 0, near_reg.key, 0, far_reg.key, 0, CHUNK);
    }
    OK_SAY(looks > 0 && held == looks, "pages stay pinned while the device has not answered");
    OK_SAY(puts > 0, "and it goes on writing to them");
    OK_SAY(fresh_is_intact(&a, near_reg.key, &to, 4 * FRESH), "they are nobody else's");
    MUST(pthread_join(thread, NULL) == 0);
    OK(dereg.ret == 0 && now_seconds() - start >= LATE_MS * 0.001);
    OK(pinned_pages() == pinned);
    OK_SAY(fresh_is_intact(&a, near_reg.key, &to, 4 * FRESH),
           "after the answer it reaches nothing");
    MUST(run("vm_host emu admin 0 mr_invalidate 0"));
    pe_close(&a);
    pe_close(&b);
    close(memreg);
    close(domains[0]);
    close(domains[1]);
    munmap(near, CHUNK);
    munmap(ballast, ballast_length);
    OK(SYSFS("mr_used") == 0);
}

/* ---- threads --------------------------------------------------------------------------------- */

/* Two threads deregister one region: one of them does. */
static void dereg_twice(int domain)
{
    enum { ROUNDS = 60 };
    int                      memreg = memreg_open();
    char                    *at     = pages_map(4);
    long long                pinned = pinned_pages();
    struct angara_ioc_mr_reg reg;
    unsigned                 once = 0;

    for (unsigned i = 0; i < ROUNDS; ++i) {
        dereg_t   a = {.memreg = memreg}, b = {.memreg = memreg};
        pthread_t thread;

        MUST(mr_reg(memreg, domain, at, 4 * PAGE, ALL, &reg) == 0);
        a.handle = b.handle = reg.handle;
        MUST(pthread_create(&thread, NULL, dereg_run, &a) == 0);
        dereg_run(&b);
        MUST(pthread_join(thread, NULL) == 0);
        once += a.ret + b.ret == -1;
    }
    OK_SAY(once == ROUNDS, "two threads deregister the same region: one succeeds");
    OK(pinned_pages() == pinned);
    close(memreg);
    munmap(at, 4 * PAGE);
}

void test_threads(void)
{
    int domain = domain_open();

    dereg_twice(domain);
    hooks_load();
    delay_add("angara_mr_destroy", 2000);
    dereg_twice(domain);
    delays_clear();
    hooks_unload();
    close(domain);
    OK(SYSFS("mr_used") == 0 && SYSFS("pe_used") == 0);
}

/* ---- over and over --------------------------------------------------------------------------- */

void test_cycles(void)
{
    enum { CYCLES = 1000 };
    char                       *at     = pages_map(8);
    long long                   pinned = pinned_pages();
    unsigned                    done   = 0;
    struct angara_ioc_pe_create create;
    struct angara_ioc_mr_reg    reg;

    while (done < CYCLES) {
        int domain = domain_open(), memreg = memreg_open();

        if (pe_ioctl(domain, 4 * PAGE, &create) != 0 ||
            window_commit(create.fd, 0, 2 * PAGE) != 0 ||
            mr_reg(memreg, domain, at, 8 * PAGE, ALL, &reg) != 0) {
            break;
        }
        /* In different orders, with the region alive. */
        close(done % 2 ? domain : memreg);
        close(create.fd);
        close(done % 2 ? memreg : domain);
        done++;
    }
    OK_SAY(done == CYCLES, "%u times open, PE, region, close", CYCLES);
    OK(pinned_pages() == pinned);
    OK(SYSFS("mr_used") == 0 && SYSFS("pe_used") == 0);
    OK(value_read(COUNTERS, "window_pages") == 0);
    OK(value_read("/sys/kernel/debug/angara_memreg/counters", "pinned_pages") == 0);
    munmap(at, 8 * PAGE);
}
