/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups of kmod_test: regions that are suspended, and many that end at once. */
#include "kmod_test.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define REGION "/sys/module/angara_hooks/parameters/region"
#define LENGTH (16 * PAGE)
#define CROWD  20000u

/* ---- suspended regions ----------------------------------------------------------------------- */

/* Post a put of the stage to the far region, and a marker. */
static void put_post(sides_t *s, uint64_t key)
{
    struct angara_desc put = {
        .op = ANGARA_OP_PUT, .lkey = s->stage_reg.key, .rkey = key, .length = LENGTH};
    struct angara_desc marker = {.op = ANGARA_OP_MARKER, .operand = ++s->near.marker_value};

    desc_post(&s->near, &put);
    desc_post(&s->near, &marker);
}

static int is_all(const char *at, char value)
{
    for (unsigned i = 0; i < LENGTH; ++i) {
        if (at[i] != value) {
            return 0;
        }
    }
    return 1;
}

/* The region that was made last. A client with memory that moves would ask for this. */
void test_suspend(void)
{
    enum { ROUNDS = 50 };
    struct angara_event_record event = {0};
    int                        right = 0;
    char                      *far   = pages_map(LENGTH / PAGE);
    struct angara_ioc_mr_reg   reg;
    sides_t                    s;
    pid_t                      pid;

    hooks_load();
    sides_open(&s);
    MUST(far_reg(&s, far, LENGTH, ALL, &reg) == 0);
    memset(s.stage, 1, LENGTH);
    file_write(REGION, "suspend");
    file_write(REGION, "suspend"); /* it is */
    put_post(&s, reg.key);
    usleep(100000);
    OK_SAY(s.near.marker[0] != s.near.marker_value && !event_take(&s.near, &event) &&
               is_all(far, 0),
           "a put waits for a suspended region");
    file_write(REGION, "resume");
    OK_SAY(word_wait(&s.near.marker[0], s.near.marker_value) && is_all(far, 1),
           "and goes on when it is resumed");
    file_write(REGION, "resume");
    OK(far_reads(&s, reg.key, 0, far, LENGTH));

    for (int i = 0; i < ROUNDS; ++i) {
        memset(s.stage, i, LENGTH);
        put_post(&s, reg.key);
        file_write(REGION, "suspend");
        file_write(REGION, "resume");
        right += word_wait(&s.near.marker[0], s.near.marker_value) && is_all(far, (char)i);
    }
    OK_SAY(right == ROUNDS, "suspended under puts, %d times: each arrives whole", ROUNDS);

    memset(far, 7, LENGTH);
    file_write(REGION, "suspend");
    put_post(&s, reg.key);
    MUST(mr_dereg(s.memreg, reg.handle) == 0);
    for (unsigned i = 0; i < 5000 && !event_take(&s.near, &event); ++i) {
        usleep(1000);
    }
    OK_SAY(event.type == ANGARA_EV_FAULT && event.status == ANGARA_ST_KEY && is_all(far, 7),
           "what waits for a region ends with it");
    pair_set(&s.near, 0, s.near.info.node, &s.far);

    pid = fork();
    if (pid == 0) {
        int domain = domain_open(), memreg = memreg_open();

        MUST(mr_reg(memreg, domain, far, LENGTH, ALL, &reg) == 0);
        file_write(REGION, "suspend");
        raise(SIGKILL);
    }
    waitpid(pid, NULL, 0);
    OK_SAY(SYSFS("mr_used") == 1, "a suspended region ends with its process");
    sides_close(&s);
    hooks_unload();
    munmap(far, LENGTH);
}

/* ---- a crowd --------------------------------------------------------------------------------- */

/* Regions of a page each; tells when they are there, and the key of the last. */
static void crowd_run(int out, int memreg_first)
{
    int                      memreg = memreg_first ? memreg_open() : -1;
    int                      domain = domain_open();
    char                    *at     = pages_map(CROWD);
    struct angara_ioc_mr_reg reg;

    memreg = memreg_first ? memreg : memreg_open();
    for (unsigned i = 0; i < CROWD; ++i) {
        MUST(mr_reg(memreg, domain, at + i * PAGE, PAGE, ALL, &reg) == 0);
    }
    MUST(write(out, "", 1) == 1);
    pause();
}

/* The end of a process with many regions is one command to the device, not one for each. */
void test_crowd(void)
{
    char                    *far = pages_map(1);
    int                      pipes[2];
    struct angara_ioc_mr_reg reg;
    sides_t                  s;

    sides_open(&s);
    MUST(pipe(pipes) == 0);
    MUST(far_reg(&s, far, PAGE, ALL, &reg) == 0);
    for (int memreg_first = 0; memreg_first < 2; ++memreg_first) {
        pid_t     pid = fork();
        long long commands;
        double    start;
        char      byte;

        if (pid == 0) {
            crowd_run(pipes[1], memreg_first);
            _exit(1);
        }
        MUST(pid > 0 && read(pipes[0], &byte, 1) == 1);
        MUST(SYSFS("mr_used") == CROWD + 2);
        commands = value_read(COUNTERS, "admin_commands");
        start    = now_seconds();
        kill(pid, SIGKILL);
        MUST(waitpid(pid, NULL, 0) == pid);
        printf("# %u regions ended in %.3f s\n", CROWD, now_seconds() - start);
        OK(SYSFS("mr_used") == 2 && pinned_pages() == s.pinned + STAGE / PAGE + 1);
        OK_SAY(value_read(COUNTERS, "admin_commands") <= commands + 2,
               "a process with %u regions ends by one command", CROWD);
    }
    OK_SAY(far_write(&s, reg.key, 0, "still here", 10), "others' regions stay");
    MUST(mr_dereg(s.memreg, reg.handle) == 0);
    close(pipes[0]);
    close(pipes[1]);
    sides_close(&s);
    munmap(far, PAGE);
}
