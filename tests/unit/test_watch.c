/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Counters that can be watched: what a process shows on its board, through the reader of
 * angara_top; what happens at fork, without room, and with boards that a hostile process makes.
 */
#define _GNU_SOURCE
#include "src/board.h"
#include "src/config.h"
#include "tools/top.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define OWN_OBJECTS 2 /* of a PE: itself, and what it asks of its peers */

typedef struct {
    angara_domain_h dom;
    angara_pe_h     pe;
    pthread_t       thread;  /* works on it beside the test */
    int             started; /* the thread is to be joined */
    int             stop;    /* the thread is to end */
    int             ended;   /* the thread has nothing more to do */
} fabric_t;

static int setup(void **state)
{
    fabric_t *f = calloc(1, sizeof(*f));

    assert_int_equal(angara_open("soft", &f->dom), ANGARA_OK);
    assert_int_equal(angara_pe_create(f->dom, NULL, &f->pe), ANGARA_OK);
    *state = f;
    return 0;
}

static void start(fabric_t *f, void *(*work)(void *))
{
    assert_int_equal(pthread_create(&f->thread, NULL, work, f), 0);
    f->started = 1;
}

static void stop(fabric_t *f)
{
    if (f->started) {
        f->started = 0;
        __atomic_store_n(&f->stop, 1, __ATOMIC_RELAXED);
        pthread_join(f->thread, NULL);
    }
}

/* A failed test leaves its thread running. */
static int teardown(void **state)
{
    fabric_t *f = *state;

    stop(f);
    if (f->pe != NULL) {
        angara_pe_destroy(f->pe);
    }
    angara_close(f->dom);
    free(f);
    return 0;
}

/* Two counters that always have the same value. */
typedef struct {
    uint64_t value;
} twins_t;

static void twins_read(const void *object, uint64_t *values)
{
    values[0] = values[1] = ((const twins_t *)object)->value;
}

static const char *const         twins_names[] = {"one", "other"};
static const angara_watch_kind_t twins = {sizeof(twins), "twins", twins_names, 2, twins_read};

/* The object of this kind, of the process; NULL: there is none. */
static const top_object_t *find(const top_sample_t *sample, const char *kind, const char *label)
{
    for (unsigned i = 0; sample->count == 1 && i < sample->processes[0].count; ++i) {
        const top_object_t *object = &sample->processes[0].objects[i];

        if (!strcmp(object->kind->name, kind) && (label == NULL || !strcmp(object->label, label))) {
            return object;
        }
    }
    return NULL;
}

static unsigned count(pid_t pid)
{
    top_sample_t sample;
    unsigned     objects;

    top_read(pid, &sample);
    objects = sample.count == 1 ? sample.processes[0].count : 0;
    top_free(&sample);
    return objects;
}

static void test_pe_and_peer(void **state)
{
    fabric_t        *f = *state;
    angara_address_t address;
    angara_peer_h    peer;
    top_sample_t     sample;
    char             data[40] = "";
    angara_event_t   event;

    angara_pe_address(f->pe, &address);
    assert_int_equal(angara_peer_connect(f->pe, &address, &peer), ANGARA_OK);
    assert_int_equal(angara_notify(peer, data, sizeof(data)), ANGARA_OK);
    assert_int_equal(angara_pe_event_poll(f->pe, &event), ANGARA_OK);
    /* A key of nobody's: the operation is taken, and faults. */
    assert_int_equal(angara_offload_put_inline(peer, data, 12345, 0, 8), ANGARA_ERR_KEY);
    assert_int_equal(angara_pe_event_poll(f->pe, &event), ANGARA_OK);
    usleep(120000); /* counters are copied ten times a second */
    angara_pe_progress(f->pe);

    top_read(getpid(), &sample);
    assert_int_equal(sample.count, 1);
    assert_int_equal(sample.processes[0].pid, getpid());
    assert_string_equal(sample.processes[0].head.program, "test_watch");
    assert_string_equal(sample.processes[0].head.version, angara_version());
    assert_non_null(find(&sample, "pe", "soft0"));
    assert_int_equal(top_value(find(&sample, "pe", NULL), "events"), 2);
    assert_int_equal(top_value(find(&sample, "pe", NULL), "faults"), 1);
    assert_non_null(find(&sample, "peer", angara_peer_name(peer)));
    assert_int_equal(top_value(find(&sample, "peer", NULL), "notifies"), 1);
    assert_int_equal(top_value(find(&sample, "peer", NULL), "faults"), 1);
    assert_int_equal(top_value(find(&sample, "peer", NULL), "puts"), 0);
    assert_true(find(&sample, "peer", NULL)->time_ns <= sample.time_ns);
    top_free(&sample);

    angara_peer_disconnect(peer);
    top_read(getpid(), &sample);
    assert_null(find(&sample, "peer", NULL));
    top_free(&sample);
    usleep(120000);
    angara_pe_progress(f->pe);
    top_read(getpid(), &sample);
    assert_int_equal(top_value(find(&sample, "peers", NULL), "notifies"), 1); /* of the gone one */
    top_free(&sample);
    angara_pe_destroy(f->pe);
    f->pe = NULL;
    assert_int_equal(count(getpid()), 0);
}

static void test_own_counters(void **state)
{
    fabric_t      *f    = *state;
    twins_t        mine = {7};
    char           label[2 * ANGARA_WATCH_LABEL];
    angara_watch_h watch;
    top_sample_t   sample;

    memset(label, 'x', sizeof(label));
    label[sizeof(label) - 1] = '\0';
    label[3]                 = '\n';
    watch                    = angara_watch_add(f->pe, &twins, &mine, label);
    assert_non_null(watch);
    top_read(getpid(), &sample);
    assert_non_null(find(&sample, "twins", NULL));
    assert_int_equal(top_value(find(&sample, "twins", NULL), "other"), 7);
    assert_int_equal(strlen(find(&sample, "twins", NULL)->label), ANGARA_WATCH_LABEL - 1);
    assert_int_equal(find(&sample, "twins", NULL)->label[3], '?');
    top_free(&sample);
    angara_watch_remove(watch);
    angara_watch_remove(NULL);
    top_read(getpid(), &sample);
    assert_null(find(&sample, "twins", NULL));
    top_free(&sample);
}

static void test_refused(void **state)
{
    fabric_t           *f            = *state;
    twins_t             mine         = {0};
    angara_watch_kind_t kind         = twins;
    const char         *long_names[] = {"one", "a_name_that_is_too_long_for_a_counter"};
    const char         *many[ANGARA_WATCH_COUNTERS + 1];

    kind.name = "sixteenletters16";
    assert_null(angara_watch_add(f->pe, &kind, &mine, ""));
    kind          = twins;
    kind.counters = long_names;
    assert_null(angara_watch_add(f->pe, &kind, &mine, ""));
    for (unsigned i = 0; i <= ANGARA_WATCH_COUNTERS; ++i) {
        many[i] = "n";
    }
    kind          = twins;
    kind.counters = many;
    kind.count    = ANGARA_WATCH_COUNTERS + 1;
    assert_null(angara_watch_add(f->pe, &kind, &mine, ""));
    kind      = twins;
    kind.name = "a_b";
    assert_null(angara_watch_add(f->pe, &kind, &mine, ""));
    kind      = twins;
    kind.size = 8; /* of a version that there never was */
    assert_null(angara_watch_add(f->pe, &kind, &mine, ""));
    kind      = twins;
    kind.read = NULL;
    assert_null(angara_watch_add(f->pe, &kind, &mine, ""));
    assert_null(angara_watch_add(f->pe, NULL, &mine, ""));
    assert_null(angara_watch_add(NULL, &twins, &mine, ""));
    ang_config.watch = 0;
    assert_null(angara_watch_add(f->pe, &twins, &mine, ""));
    ang_config.watch = 1;
}

/* More objects, and kinds, than the board has room for; places that are used again. */
static void test_full(void **state)
{
    fabric_t           *f       = *state;
    twins_t             mine    = {1};
    angara_watch_h     *watches = calloc(ANG_BOARD_BLOCKS + 1, sizeof(*watches));
    char                names[ANG_BOARD_KINDS][8], label[16];
    angara_watch_kind_t kinds[ANG_BOARD_KINDS];
    top_sample_t        sample;
    unsigned            n, k;

    for (n = 0; n <= ANG_BOARD_BLOCKS; ++n) {
        snprintf(label, sizeof(label), "%u", n);
        watches[n] = angara_watch_add(f->pe, &twins, &mine, label);
        if (watches[n] == NULL) {
            break;
        }
    }
    assert_int_equal(n, ANG_BOARD_BLOCKS - OWN_OBJECTS);
    top_read(getpid(), &sample);
    assert_int_equal(sample.processes[0].count, ANG_BOARD_BLOCKS);
    assert_int_equal(sample.processes[0].head.lost, 1);
    top_free(&sample);
    for (unsigned i = 0; i < n; ++i) {
        angara_watch_remove(watches[i]);
    }
    assert_int_equal(count(getpid()), OWN_OBJECTS);
    free(watches);

    for (k = 0; k < ANG_BOARD_KINDS; ++k) {
        snprintf(names[k], sizeof(names[k]), "kind%u", k);
        kinds[k]      = twins;
        kinds[k].name = names[k];
        if (angara_watch_add(f->pe, &kinds[k], &mine, "") == NULL) {
            break;
        }
    }
    assert_int_equal(k, ANG_BOARD_KINDS - OWN_OBJECTS - 1); /* "twins" is there */
    assert_non_null(angara_watch_add(f->pe, &twins, &mine, ""));
    top_read(getpid(), &sample);
    assert_int_equal(sample.processes[0].head.lost, 2);
    top_free(&sample);
}

/* All objects get their turn, however many there are. */
static void test_turns(void **state)
{
    fabric_t    *f     = *state;
    twins_t      mine  = {0};
    unsigned     stale = 200;
    char         label[16];
    top_sample_t sample;

    for (unsigned i = 0; i < 200; ++i) {
        snprintf(label, sizeof(label), "%u", i);
        assert_non_null(angara_watch_add(f->pe, &twins, &mine, label));
    }
    mine.value = 5;
    for (unsigned looks = 0; stale > 0; ++looks) {
        assert_true(looks < 10);
        usleep(120000); /* counters are copied ten times a second */
        angara_pe_progress(f->pe);
        stale = 0;
        top_read(getpid(), &sample);
        for (unsigned i = 0; i < sample.processes[0].count; ++i) {
            const top_object_t *object = &sample.processes[0].objects[i];

            stale += !strcmp(object->kind->name, "twins") && object->values[0] == 0;
        }
        top_free(&sample);
    }
}

/* As many counters as there can be, all the same. */
static void wide_read(const void *object, uint64_t *values)
{
    for (unsigned i = 0; i < ANGARA_WATCH_COUNTERS; ++i) {
        values[i] = ((const twins_t *)object)->value;
    }
}

static void *change_often(void *arg)
{
    static char         names[ANGARA_WATCH_COUNTERS][8];
    static const char  *counters[ANGARA_WATCH_COUNTERS];
    angara_watch_kind_t wide = {sizeof(wide), "wide", counters, ANGARA_WATCH_COUNTERS, wide_read};
    fabric_t           *f    = arg;
    twins_t             mine = {0};
    char                label[ANGARA_WATCH_LABEL];

    for (unsigned i = 0; i < ANGARA_WATCH_COUNTERS; ++i) {
        snprintf(names[i], sizeof(names[i]), "c%u", i);
        counters[i] = names[i];
    }
    for (unsigned i = 1; i <= 100000 && !__atomic_load_n(&f->stop, __ATOMIC_RELAXED); ++i) {
        angara_watch_h watch;

        mine.value = i;
        snprintf(label, sizeof(label), "%080u", i);
        watch = angara_watch_add(f->pe, &wide, &mine, label);
        for (volatile unsigned pause = 0; pause < i % 64 * 256; ++pause) {
        }
        angara_watch_remove(watch);
    }
    __atomic_store_n(&f->ended, 1, __ATOMIC_RELEASE);
    return NULL;
}

/* Label and counters of one object are of one moment: they are written in two steps, each whole. */
static void test_whole(void **state)
{
    fabric_t    *f    = *state;
    unsigned     seen = 0;
    top_sample_t sample;

    start(f, change_often);
    while (!__atomic_load_n(&f->ended, __ATOMIC_ACQUIRE)) {
        const top_object_t *object;

        top_read(getpid(), &sample);
        object = find(&sample, "wide", NULL);
        if (object != NULL) {
            for (unsigned j = 1; j < ANGARA_WATCH_COUNTERS; ++j) {
                assert_int_equal(object->values[j], object->values[0]);
            }
            assert_true(object->values[0] == 0 ||
                        strtoull(object->label, NULL, 10) == object->values[0]);
            seen++;
        }
        top_free(&sample);
    }
    stop(f);
    assert_true(seen > 0);
}

static unsigned torn; /* so many reads of blocks bring a counter of before */

ssize_t __real_pread(int fd, void *to, size_t size, off_t at);
ssize_t __wrap_pread(int fd, void *to, size_t size, off_t at);

ssize_t __wrap_pread(int fd, void *to, size_t size, off_t at)
{
    ang_board_block_t *blocks = to;
    ssize_t            length = __real_pread(fd, to, size, at);

    if (torn != 0 && at >= (off_t)offsetof(ang_board_t, blocks)) {
        torn--;
        for (unsigned i = 0; i < size / sizeof(*blocks); ++i) {
            blocks[i].values[1]--;
        }
    }
    return length;
}

/* The kernel copies in any order: with the turn of a write's end may come a counter of before it.
 */
static void test_torn(void **state)
{
    fabric_t      *f     = *state;
    twins_t        mine  = {7};
    angara_watch_h watch = angara_watch_add(f->pe, &twins, &mine, "torn");
    top_sample_t   sample;

    torn = 1;
    top_read(getpid(), &sample);
    assert_int_equal(find(&sample, "twins", "torn")->values[0], 7);
    assert_int_equal(find(&sample, "twins", "torn")->values[1], 7);
    top_free(&sample);
    angara_watch_remove(watch);
}

/* The descriptor of this process's board. */
static int board_fd(void)
{
    char path[64], text[64];

    for (int fd = 0; fd < 1024; ++fd) {
        ssize_t length;

        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        length = readlink(path, text, sizeof(text) - 1);
        if (length > 0 &&
            !strncmp(text, "/memfd:" ANG_BOARD_NAME, 8 + strlen(ANG_BOARD_NAME) - 1)) {
            return fd;
        }
    }
    return -1;
}

static void test_sealed(void **state)
{
    char path[64];
    int  fd;

    (void)state;
    assert_true(board_fd() >= 0);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", board_fd());
    fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "x", 1), -1);
    assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    assert_int_equal(ftruncate(fd, 0), -1);
    close(fd);
}

/* A child has no board of the parent's, and can have one of its own; the parent's goes on. */
static void test_fork(void **state)
{
    fabric_t      *f     = *state;
    twins_t        mine  = {3};
    angara_watch_h watch = angara_watch_add(f->pe, &twins, &mine, "parent");
    int            status, failed;
    pid_t          child;

    assert_non_null(watch);
    child = fork();
    if (child == 0) {
        fabric_t own;

        failed = board_fd() >= 0;
        angara_watch_remove(watch); /* as cleaning up does */
        failed |= (angara_watch_add(f->pe, &twins, &mine, "child") != NULL) << 1;
        failed |= (angara_open("soft", &own.dom) != ANGARA_OK ||
                   angara_pe_create(own.dom, NULL, &own.pe) != ANGARA_OK ||
                   count(getpid()) != OWN_OBJECTS)
                  << 2;
        angara_pe_destroy(own.pe);
        angara_close(own.dom);
        _exit(failed);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(count(getpid()), OWN_OBJECTS + 1);
    angara_watch_remove(watch);
}

static void *open_and_close(void *arg)
{
    fabric_t *f = arg;

    while (!__atomic_load_n(&f->stop, __ATOMIC_RELAXED)) {
        angara_pe_h pe;

        if (angara_pe_create(f->dom, NULL, &pe) == ANGARA_OK) {
            angara_pe_destroy(pe);
        }
    }
    return NULL;
}

/* Another thread may be anywhere in the board's making or end when the process forks. */
static void test_fork_races(void **state)
{
    fabric_t *f = *state, own;

#ifdef __SANITIZE_ADDRESS__
    skip(); /* its own allocator isn't whole in such a child */
#endif
    angara_pe_destroy(f->pe);
    f->pe = NULL;
    start(f, open_and_close);
    for (unsigned i = 0; i < 300; ++i) {
        int   status;
        pid_t child = fork();

        if (child == 0) {
            alarm(20);
            _exit(board_fd() >= 0 || angara_open("soft", &own.dom) != ANGARA_OK ||
                  angara_pe_create(own.dom, NULL, &own.pe) != ANGARA_OK);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    stop(f);
}

/* Who may write little makes no board, and isn't killed. */
static void test_small_files(void **state)
{
    fabric_t     *f = *state;
    struct rlimit before, small;

    angara_pe_destroy(f->pe);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small            = before;
    small.rlim_cur   = sizeof(ang_board_t) - 1;
    ang_config.watch = 0;
    assert_int_equal(angara_pe_create(f->dom, NULL, &f->pe), ANGARA_OK);
    ang_config.watch = 1;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_null(angara_watch_add(f->pe, &twins, &(twins_t){0}, ""));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
}

static void test_no_descriptors(void **state)
{
    fabric_t     *f = *state;
    struct rlimit before, none;
    twins_t       mine = {0};

    angara_pe_destroy(f->pe);
    f->pe = NULL;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none             = before;
    ang_config.watch = 0;
    assert_int_equal(angara_pe_create(f->dom, NULL, &f->pe), ANGARA_OK);
    ang_config.watch = 1;
    none.rlim_cur    = 3;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_null(angara_watch_add(f->pe, &twins, &mine, ""));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_non_null(angara_watch_add(f->pe, &twins, &mine, ""));
}

/* ---- boards of others ------------------------------------------------------------------------ */

/* The process holds a lease on the file: who opens it waits until that is broken, or doesn't wait.
 */
static int take_lease(int fd)
{
    char path[64];
    int  reader;

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    reader = open(path, O_RDONLY);
    close(fd);
    signal(SIGIO, SIG_IGN);
    return fcntl(reader, F_SETLEASE, F_WRLCK);
}

/* A process whose board has these bytes, with these seals. */
static void read_foreign_sealed(const ang_board_t *board, size_t size, int seals, int lease,
                                top_sample_t *sample)
{
    int   ready[2], fd;
    pid_t child;
    char  byte;

    assert_int_equal(pipe(ready), 0);
    child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        fd = memfd_create(ANG_BOARD_NAME, MFD_ALLOW_SEALING);
        if (write(fd, board, size) != (ssize_t)size || fcntl(fd, F_ADD_SEALS, seals) != 0 ||
            (lease && take_lease(fd) != 0) || write(ready[1], "r", 1) != 1) {
            _exit(1);
        }
        pause();
        _exit(0);
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    top_read(child, sample);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    close(ready[0]);
}

static void read_foreign(const ang_board_t *board, size_t size, top_sample_t *sample)
{
    read_foreign_sealed(board, size, F_SEAL_SHRINK | F_SEAL_GROW, 0, sample);
}

static ang_board_t *board_good(void)
{
    ang_board_t *board = calloc(1, sizeof(*board));

    board->head = (ang_board_head_t){
        .magic = ANG_BOARD_MAGIC, .layout = ANG_BOARD_LAYOUT, .kinds = 1, .blocks = 3};
    memset(board->head.program, '\033', sizeof(board->head.program)); /* without a final 0 */
    memset(board->head.rank, '"', sizeof(board->head.rank));
    strcpy(board->kinds[0].name, "good");
    board->kinds[0].count = 2;
    strcpy(board->kinds[0].counters[0], "one");
    strcpy(board->kinds[0].counters[1], "the_other");
    board->blocks[0].kind = 1;
    memset(board->blocks[0].label, 0x80, sizeof(board->blocks[0].label));
    board->blocks[1]    = board->blocks[0]; /* the same once more */
    board->blocks[2]    = board->blocks[0];
    board->blocks[2].pe = 7;
    return board;
}

/* How many objects the reader takes from the board; -1: it is none. */
static int objects_of(const ang_board_t *board, size_t size)
{
    top_sample_t sample;
    int          objects;

    read_foreign(board, size, &sample);
    objects = sample.count == 1 ? (int)sample.processes[0].count : -1;
    top_free(&sample);
    return objects;
}

static void test_hostile(void **state)
{
    ang_board_t *board = board_good(), *bad = calloc(1, sizeof(*bad));
    top_sample_t sample;
    FILE        *out = fopen("/dev/null", "w");

    (void)state;
    read_foreign(board, sizeof(*board), &sample);
    assert_int_equal(sample.count, 1);
    assert_int_equal(sample.processes[0].count, 2); /* none twice */
    assert_int_equal(strlen(sample.processes[0].head.program),
                     sizeof(sample.processes[0].head.program) - 1);
    assert_null(strchr(sample.processes[0].head.program, '\033'));
    top_print_table(out, NULL, &sample, 1);
    top_print_all(out, &sample);
    top_print_json(out, &sample);
    top_print_prometheus(out, &sample);
    top_free(&sample);

    read_foreign_sealed(board, sizeof(*board), 0, 0, &sample); /* it could be cut meanwhile */
    assert_int_equal(sample.count, 0);
    top_free(&sample);
    read_foreign_sealed(board, sizeof(*board), F_SEAL_SHRINK | F_SEAL_GROW, 1, &sample);
    assert_int_equal(sample.count, 0); /* after the break of the lease it would be seen */
    top_free(&sample);
    assert_int_equal(objects_of(board, sizeof(board->head)), -1); /* ends behind the head */

    *bad                = *board;
    bad->blocks[0].turn = bad->blocks[1].turn = 1; /* for ever being written */
    bad->blocks[2].kind                       = 2; /* a kind that isn't there */
    assert_int_equal(objects_of(bad, sizeof(*bad)), 0);
    *bad = *board;
    memset(bad->kinds[0].name, 'x', sizeof(bad->kinds[0].name)); /* without a final 0 */
    assert_int_equal(objects_of(bad, sizeof(*bad)), 0);
    *bad = *board;
    strcpy(bad->kinds[0].counters[0], "a{b=\"");
    assert_int_equal(objects_of(bad, sizeof(*bad)), 0);
    *bad = *board;
    strcpy(bad->kinds[0].counters[0], "the_other"); /* twice */
    assert_int_equal(objects_of(bad, sizeof(*bad)), 0);
    *bad                = *board;
    bad->kinds[0].count = ANGARA_WATCH_COUNTERS + 1;
    assert_int_equal(objects_of(bad, sizeof(*bad)), 0);
    *bad             = *board;
    bad->head.blocks = UINT32_MAX;
    assert_int_equal(objects_of(bad, sizeof(*bad)), -1);
    *bad            = *board;
    bad->head.kinds = ANG_BOARD_KINDS + 1;
    assert_int_equal(objects_of(bad, sizeof(*bad)), -1);
    *bad             = *board;
    bad->head.layout = ANG_BOARD_LAYOUT + 1;
    assert_int_equal(objects_of(bad, sizeof(*bad)), -1);
    fclose(out);
    free(bad);
    free(board);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_pe_and_peer, setup, teardown),
        cmocka_unit_test_setup_teardown(test_own_counters, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_full, setup, teardown),
        cmocka_unit_test_setup_teardown(test_turns, setup, teardown),
        cmocka_unit_test_setup_teardown(test_whole, setup, teardown),
        cmocka_unit_test_setup_teardown(test_torn, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sealed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fork, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fork_races, setup, teardown),
        cmocka_unit_test_setup_teardown(test_small_files, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_descriptors, setup, teardown),
        cmocka_unit_test(test_hostile),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
