/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two processes that use nothing but libangara and check each other's data. The second is this
 * program again, started under a command or with a variable of its own, so that the scripts can
 * give it another user, namespace, limit or version of the library. See usage().
 */
#define _GNU_SOURCE
#include "fault_common.h"

#include <angara/angara.h>
#include <angara/angara_fast.h>

#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define WINDOW  (1u << 20)
#define PUT     1024 /* bytes of a window put: every mode allows as many */
#define SECONDS 10   /* that any single wait may take */

typedef struct {
    angara_address_t address;
    uint64_t         private_key;
    uint64_t         shared_key;
} card_t; /* what the two tell each other */

typedef struct {
    char       *data;
    size_t      length;
    angara_mr_h mr;
} region_t;

static struct {
    const char *device;
    const char *peer_command; /* before the second process's own */
    char       *peer_env;     /* NAME=VALUE for it */
    size_t      size;
    size_t      stride; /* size rounded up, so that words behind it are aligned */
    unsigned    rounds;
    unsigned    regions;
    unsigned    victim_us; /* the second process dies so long after the traffic started */
    int         victim;
    int         undumpable;
    int         progress;
    int         socket; /* of the second process, else -1 */
} opt = {.size = 1u << 20, .rounds = 3, .socket = -1};

static angara_domain_h       dom;
static angara_pe_h           pe;
static angara_peer_h         peer;
static angara_marker_slot_t *slot;
static uint64_t              marker;
static region_t              private_region, shared_region;
static card_t                mine, theirs;
static int                   link_fd;

static void usage(void)
{
    puts("Usage: fault_pair [options]\n"
         "  --vars              list the library's variables: name, default, help\n"
         "  --open              open a device and close it again, nothing else\n"
         "  --pe                the same, with a PE of default size\n"
         "  --progress          make progress while waiting for the other process\n"
         "  --regions N         register N regions more\n"
         "  --device NAME       device to open; without it, what ANGARA_DEVICE says\n"
         "  --size BYTES        of a transfer (1M)\n"
         "  --rounds N          in each direction (3)\n"
         "  --peer COMMAND      start the second process by this command\n"
         "  --peer-env N=VALUE  in its environment\n"
         "  --undumpable        it forbids access to its /proc entries\n"
         "  --victim US         it is killed US microseconds after the traffic started; the first\n"
         "                      process goes on until the library tells\n"
         "Exit status: 0 all data right, 10 wrong data, 11 refused by the library, 13 the other\n"
         "process ended early, 14 too late");
}

/* ---- what both processes do ------------------------------------------------------------------ */

static void check(angara_status_t status, const char *what)
{
    if (status != ANGARA_OK) {
        fault_end(FAULT_REFUSED, "%s: %s", what, angara_strerror(status));
    }
}

static void tell(const void *data, size_t length)
{
    if (send(link_fd, data, length, MSG_NOSIGNAL) != (ssize_t)length) {
        fault_end(FAULT_GONE, "the other process has gone");
    }
}

static void hear(void *data, size_t length)
{
    /* Without a helper thread, the other's requests wait for this one's progress. */
    while (opt.progress && recv(link_fd, data, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN) {
        angara_pe_progress(pe);
        sched_yield();
    }
    if (recv(link_fd, data, length, MSG_WAITALL) != (ssize_t)length) {
        fault_end(FAULT_GONE, "the other process has gone");
    }
}

static void barrier(void)
{
    char byte = 0;

    tell(&byte, 1);
    hear(&byte, 1);
}

static void open_all(void)
{
    const unsigned     access = ANGARA_ACCESS_ALL;
    angara_mr_h        more;
    angara_pe_params_t params = {.size = sizeof(params), .window_size = WINDOW, .events = 64};
    void              *addr;

    check(angara_open(opt.device, &dom), "angara_open");
    check(angara_pe_create(dom, &params, &pe), "angara_pe_create");
    check(angara_pe_window_commit(pe, 0, WINDOW), "angara_pe_window_commit");
    check(angara_marker_slot_get(pe, &slot), "angara_marker_slot_get");
    marker = *slot;

    /* Twice the size: the first half is written by the other, the second is sent from. */
    private_region.length = 2 * opt.stride;
    private_region.data   = malloc(private_region.length);
    if (private_region.data == NULL) {
        fault_end(FAULT_HARNESS, "malloc failed");
    }
    memset(private_region.data, 0, private_region.length);
    check(angara_mr_register(dom, private_region.data, private_region.length, access,
                             &private_region.mr),
          "angara_mr_register");
    shared_region.length = 2 * opt.stride;
    check(angara_mem_alloc(dom, &shared_region.length, access, &addr, &shared_region.mr),
          "angara_mem_alloc");
    shared_region.data = addr;
    for (unsigned i = 0; i < opt.regions; ++i) {
        check(angara_mr_register(dom, private_region.data, 8, access, &more), "angara_mr_register");
    }
}

static void close_all(void)
{
    angara_marker_slot_put(pe, slot);
    angara_peer_disconnect(peer);
    check(angara_mr_deregister(private_region.mr), "angara_mr_deregister");
    check(angara_mem_free(shared_region.mr), "angara_mem_free");
    angara_pe_destroy(pe);
    check(angara_close(dom), "angara_close");
    free(private_region.data);
}

static void meet(void)
{
    angara_pe_address(pe, &mine.address);
    mine.private_key = angara_mr_key(private_region.mr);
    mine.shared_key  = angara_mr_key(shared_region.mr);
    tell(&mine, sizeof(mine));
    hear(&theirs, sizeof(theirs));
    check(angara_peer_connect(pe, &theirs.address, &peer), "angara_peer_connect");
}

/* Repeat a call that may say "not now". */
#define POST(_call)                                                 \
    do {                                                            \
        double          post_end = fault_seconds() + SECONDS;       \
        angara_status_t post_status;                                \
        while ((post_status = (_call)) == ANGARA_ERR_NO_RESOURCE) { \
            if (fault_seconds() > post_end) {                       \
                fault_end(FAULT_LATE, "no room for " #_call);       \
            }                                                       \
            angara_pe_progress(pe);                                 \
        }                                                           \
        check(post_status, #_call);                                 \
    } while (0)

static void wait_marker(void)
{
    double end = fault_seconds() + SECONDS;

    POST(angara_marker(peer, slot, ++marker));
    while (!angara_marker_arrived(slot, marker)) {
        angara_pe_progress(pe);
        if (angara_peer_status(peer) != ANGARA_OK) {
            check(angara_peer_status(peer), "waiting for a marker");
        }
        if (fault_seconds() > end) {
            fault_end(FAULT_LATE, "a marker never came");
        }
        sched_yield(); /* the peer's helper may need this processor */
    }
}

/* ---- traffic --------------------------------------------------------------------------------- */

static void verify(const char *what, const void *data, size_t length, uint64_t key)
{
    long wrong = fault_verify(data, length, key);

    if (wrong >= 0) {
        fault_end(FAULT_WRONG, "%s: wrong data at byte %ld of %zu", what, wrong, length);
    }
}

/* Half `half` of a region: 0 is written by the other process, 1 is sent from. */
static char *half_of(const region_t *region, int half)
{
    return region->data + (half ? opt.stride : 0);
}

static void fetch_add(const region_t *local, uint64_t key, uint64_t expected)
{
    uint64_t *result = (uint64_t *)(void *)half_of(local, 1);

    POST(angara_atomic(peer, ANGARA_ATOMIC_ADD, 8, 1, 0, key, opt.stride, local->mr, result));
    wait_marker();
    if (*result != expected) {
        fault_end(FAULT_WRONG, "fetch-and-add gave %llu instead of %llu",
                  (unsigned long long)*result, (unsigned long long)expected);
    }
}

static void active_half(uint64_t round)
{
    const uint64_t keys[2] = {theirs.private_key, theirs.shared_key};
    char           note[32];

    for (int i = 0; i < 2; ++i) {
        uint64_t key = 4 * round + 2 * (uint64_t)i;

        fault_fill(half_of(&private_region, 1), opt.size, key);
        POST(angara_offload_put(peer, private_region.mr, half_of(&private_region, 1), keys[i], 0,
                                opt.size));
        wait_marker();
        memset(half_of(&shared_region, 1), 0, opt.size);
        POST(angara_offload_get(peer, shared_region.mr, half_of(&shared_region, 1), keys[i], 0,
                                opt.size));
        wait_marker();
        verify("get after put", half_of(&shared_region, 1), opt.size, key);
        fetch_add(&private_region, keys[i], 7 + round);
    }
    fault_fill(half_of(&private_region, 1), PUT, round);
    POST(angara_put_flag(peer, 64, half_of(&private_region, 1), PUT, 0, round + 1));
    wait_marker();
    snprintf(note, sizeof(note), "round %u", (unsigned)round);
    POST(angara_notify(peer, note, sizeof(note)));
}

static void passive_half(uint64_t round)
{
    const uint64_t *window = angara_pe_window(pe, &(size_t){0});
    angara_event_t  event;
    double          end = fault_seconds() + SECONDS;

    verify("put to private memory", half_of(&private_region, 0), opt.size, 4 * round);
    verify("put to shared memory", half_of(&shared_region, 0), opt.size, 4 * round + 2);
    if (__atomic_load_n(window, __ATOMIC_ACQUIRE) != round + 1) {
        fault_end(FAULT_WRONG, "the flag of a window put isn't there");
    }
    verify("window put", window + 8, PUT, round);
    while (angara_pe_event_poll(pe, &event) != ANGARA_OK || event.type != ANGARA_EVENT_NOTIFY) {
        if (fault_seconds() > end) {
            fault_end(FAULT_LATE, "a notify record never came");
        }
        angara_pe_progress(pe);
    }
}

static void set_counters(uint64_t value)
{
    memcpy(half_of(&private_region, 1), &value, sizeof(value));
    memcpy(half_of(&shared_region, 1), &value, sizeof(value));
}

static void exchange(int starts)
{
    for (unsigned turn = 0; turn < 2 * opt.rounds; ++turn) {
        if ((turn % 2 == 0) == starts) {
            barrier();
            active_half(turn);
            barrier();
        } else {
            set_counters(7 + turn);
            barrier();
            barrier(); /* the second one comes when the active side is through */
            passive_half(turn);
        }
    }
}

/* ---- death ----------------------------------------------------------------------------------- */

/* Operations without a pause until the library reports an error. @return that error. */
static angara_status_t flood(void)
{
    angara_status_t status = ANGARA_OK;
    size_t          chunk  = opt.size;

    for (unsigned i = 0; status == ANGARA_OK || status == ANGARA_ERR_NO_RESOURCE; ++i) {
        uint64_t key = i & 1 ? theirs.private_key : theirs.shared_key;

        switch (i % 5) {
        case 0:
        case 1:
            status = angara_offload_put(peer, private_region.mr, half_of(&private_region, 1), key,
                                        0, chunk);
            break;
        case 2:
            status = angara_offload_get(peer, private_region.mr, half_of(&private_region, 0), key,
                                        opt.stride, chunk);
            break;
        case 3:
            status = angara_atomic(peer, ANGARA_ATOMIC_ADD, 8, 1, 0, key, 0, NULL, NULL);
            break;
        default:
            status = angara_marker(peer, slot, ++marker);
            break;
        }
        angara_pe_progress(pe);
        if (status == ANGARA_OK && angara_peer_status(peer) != ANGARA_OK) {
            status = angara_peer_status(peer);
        }
    }
    return status;
}

static volatile double death; /* when the second process died */

static void note_death(int signal)
{
    (void)signal;
    death = fault_seconds();
}

static void flood_until_death(void)
{
    struct sigaction action = {.sa_handler = note_death, .sa_flags = SA_RESTART};
    angara_status_t  status;
    angara_event_t   event;
    double           now, late;

    sigaction(SIGCHLD, &action, NULL);
    barrier();
    status = flood();
    now    = fault_seconds();
    late   = death != 0 ? now - death : 0; /* the library may know before the signal comes */
    if (status != ANGARA_ERR_PEER_DEAD) {
        fault_end(FAULT_WRONG, "the death shows as: %s", angara_strerror(status));
    }
    if (late > 3) { /* a loaded machine needs its time, too */
        fault_end(FAULT_LATE, "the death was seen only after %.2f s", late);
    }
    /* The event may take another look at the peers, never longer. */
    while (fault_seconds() < now + 3) {
        angara_pe_progress(pe);
        if (angara_pe_event_poll(pe, &event) == ANGARA_OK && event.type == ANGARA_EVENT_PEER_DOWN &&
            event.peer == peer) {
            printf("death seen after %.3f s: %s\n", late, angara_peer_name(peer));
            return;
        }
    }
    fault_end(FAULT_WRONG, "no PEER_DOWN event came");
}

/* ---- the two processes ----------------------------------------------------------------------- */

static void second_process(void)
{
    link_fd = opt.socket;
    if (opt.undumpable && prctl(PR_SET_DUMPABLE, 0) != 0) {
        fault_end(FAULT_HARNESS, "prctl: %s", strerror(errno));
    }
    open_all();
    meet();
    if (opt.victim) {
        barrier();
        fault_kill_self_after(opt.victim_us);
        flood();
        fault_end(FAULT_WRONG, "the victim survived");
    }
    exchange(0);
    barrier();
    close_all();
    fault_end(FAULT_OK, "ok");
}

/* Split @a command at blanks into @a words. */
static unsigned split(char *command, char **words, unsigned max)
{
    unsigned count = 0;
    char    *save;

    for (char *word = strtok_r(command, " ", &save); word != NULL && count < max;
         word       = strtok_r(NULL, " ", &save)) {
        words[count++] = word;
    }
    return count;
}

static pid_t start_second(char **argv, int argc, int fd)
{
    char    *words[64 + 32], number[16], self[4096];
    char    *command = strdup(opt.peer_command != NULL ? opt.peer_command : "");
    unsigned count   = split(command, words, 32);
    ssize_t  length  = readlink("/proc/self/exe", self, sizeof(self) - 1);
    pid_t    pid;

    if (length < 0 || argc > 60) {
        fault_end(FAULT_HARNESS, "can't start the second process");
    }
    self[length]   = '\0';
    words[count++] = self;
    snprintf(number, sizeof(number), "%d", fd);
    for (int i = 1; i < argc; ++i) {
        words[count++] = argv[i];
    }
    words[count++] = "--socket";
    words[count++] = number;
    words[count]   = NULL;

    pid = fork();
    if (pid == 0) {
        close(link_fd);
        if (opt.peer_env != NULL) {
            putenv(opt.peer_env);
        }
        execvp(words[0], words);
        fault_end(FAULT_HARNESS, "%s: %s", words[0], strerror(errno));
    }
    free(command);
    if (pid < 0) {
        fault_end(FAULT_HARNESS, "fork: %s", strerror(errno));
    }
    return pid;
}

static int exit_status(pid_t pid)
{
    int status;

    while (waitpid(pid, &status, 0) != pid) {
        if (errno != EINTR) {
            return FAULT_HARNESS;
        }
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static pid_t second_pid;

/* The worse of two exit statuses. */
static int worse(int one, int other)
{
    static const int order[] = {FAULT_OK, FAULT_GONE, FAULT_REFUSED, FAULT_HARNESS, FAULT_LATE};
    int              rank[2] = {5, 5}; /* wrong data or a signal */

    for (int i = 0; i < 5; ++i) {
        rank[0] = one == order[i] ? i : rank[0];
        rank[1] = other == order[i] ? i : rank[1];
    }
    return rank[0] >= rank[1] ? one : other;
}

/* The first process ends: what the second one says counts too. */
static int wait_second(int status)
{
    int other;

    close(link_fd);
    other = exit_status(second_pid);
    if (opt.victim && other == 128 + SIGKILL) {
        other = FAULT_OK;
    }
    return worse(status, other);
}

static void first_process(int argc, char **argv)
{
    int fds[2];

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) != 0) {
        fault_end(FAULT_HARNESS, "socketpair: %s", strerror(errno));
    }
    link_fd    = fds[0];
    second_pid = start_second(argv, argc, fds[1]);
    close(fds[1]);
    fault_end_hook = wait_second;
    open_all();
    meet();
    if (opt.victim) {
        flood_until_death();
    } else {
        exchange(1);
        barrier();
    }
    close_all();
    fault_end(FAULT_OK, "ok");
}

static void list_variables(void)
{
    angara_config_var_t var;

    for (unsigned i = 0; angara_config_var(i, &var) == ANGARA_OK; ++i) {
        printf("%s\t%s\t%s\n", var.name, var.default_text, var.help);
    }
    exit(FAULT_OK);
}

static void open_only(int with_pe)
{
    check(angara_open(opt.device, &dom), "angara_open");
    if (with_pe) {
        check(angara_pe_create(dom, NULL, &pe), "angara_pe_create");
        check(angara_pe_window_commit(pe, 0, 65536), "angara_pe_window_commit");
        angara_pe_destroy(pe);
    }
    check(angara_close(dom), "angara_close");
    fault_end(FAULT_OK, "ok");
}

static void parse_options(int argc, char **argv)
{
    static const struct option options[] = {
        {"vars", no_argument, NULL, 'v'},
        {"open", no_argument, NULL, 'o'},
        {"device", required_argument, NULL, 'd'},
        {"size", required_argument, NULL, 's'},
        {"rounds", required_argument, NULL, 'r'},
        {"peer", required_argument, NULL, 'p'},
        {"peer-env", required_argument, NULL, 'e'},
        {"undumpable", no_argument, NULL, 'u'},
        {"victim", required_argument, NULL, 'k'},
        {"socket", required_argument, NULL, 'f'},
        {"pe", no_argument, NULL, 'P'},
        {"progress", no_argument, NULL, 'w'},
        {"regions", required_argument, NULL, 'R'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int just_open = 0, option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 'v':
            list_variables();
            break;
        case 'o':
            just_open = 1;
            break;
        case 'w':
            opt.progress = 1;
            break;
        case 'P':
            just_open = 2;
            break;
        case 'R':
            opt.regions = (unsigned)strtoul(optarg, NULL, 0);
            break;
        case 'd':
            opt.device = optarg;
            break;
        case 's':
            opt.size = strtoul(optarg, NULL, 0);
            break;
        case 'r':
            opt.rounds = (unsigned)strtoul(optarg, NULL, 0);
            break;
        case 'p':
            opt.peer_command = optarg;
            break;
        case 'e':
            opt.peer_env = optarg;
            break;
        case 'u':
            opt.undumpable = 1;
            break;
        case 'k':
            opt.victim    = 1;
            opt.victim_us = (unsigned)strtoul(optarg, NULL, 0);
            break;
        case 'f':
            opt.socket = atoi(optarg);
            break;
        default:
            usage();
            exit(option == 'h' ? FAULT_OK : FAULT_HARNESS);
        }
    }
    if (opt.size < 4096) {
        fault_end(FAULT_HARNESS, "--size is 4096 at least");
    }
    opt.stride = (opt.size + 63) & ~(size_t)63;
    if (just_open) {
        open_only(just_open == 2);
    }
}

int main(int argc, char **argv)
{
    fault_watchdog(30);
    parse_options(argc, argv);
    if (opt.socket >= 0) {
        second_process();
    }
    first_process(argc, argv);
}
