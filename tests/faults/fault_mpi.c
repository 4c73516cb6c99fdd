/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI job for the fault tests: ranks exchange checked data in one way, and one of them may come to
 * harm in the middle of it. Knows nothing of the transport. See usage().
 */
#define _GNU_SOURCE
#include "fault_common.h"
#include "../gpu/device.h"

#include <mpi.h>

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_WINDOW 64

typedef enum { MODE_MSG, MODE_PUT, MODE_GET, MODE_ACC, MODE_ALLTOALL, MODE_ONEWAY } mode_t_;
typedef enum { HARM_NONE, HARM_KILL, HARM_EXIT, HARM_ABORT, HARM_SEGV, HARM_STOP } harm_t;

static const char *const mode_names[] = {"msg", "put", "get", "acc", "alltoall", "oneway", NULL};
static const char *const harm_names[] = {"none", "kill", "exit", "abort", "segv", "stop", NULL};

static struct {
    int      mode;
    size_t   size;
    int      window;  /* messages at once */
    double   seconds; /* of traffic */
    int      created; /* MPI_Win_create instead of MPI_Win_allocate */
    int      harm;
    int      victim;
    unsigned after_us; /* the harm comes so long after the traffic started */
    unsigned stop_ms;
    int      forks;   /* run system() during the traffic */
    int      returns; /* errors are returned by MPI */
    int      stats;   /* print open descriptors and memory at the end */
} opt = {.size = 8, .window = 16, .seconds = 0.3, .victim = 1, .stop_ms = 1000};

static int   rank, ranks, to, from;
static char *send_data, *recv_data;

static const device_runtime_t *gpu;                 /* NULL: messages are in host memory */
static char                   *gpu_send, *gpu_recv; /* of the same layout */

static MPI_Win     win = MPI_WIN_NULL;
static char       *win_data;
static MPI_Request requests[2 * MAX_WINDOW];
static unsigned    forked;

static void usage(void)
{
    puts("Usage: fault_mpi [options]\n"
         "  --mode NAME     msg (default), put, get, acc, alltoall,\n"
         "                  oneway: the victim sends to all others, which send nothing\n"
         "  --size BYTES    of a message (8)\n"
         "  --window N      messages at once (16)\n"
         "  --seconds S     of traffic (0.3)\n"
         "  --gpu RUNTIME   messages from and to GPU memory of cuda or rocm; for mode msg\n"
         "  --created       one-sided windows over the program's own memory\n"
         "  --harm KIND     kill, exit (no MPI_Finalize), abort, segv, stop (and continue later)\n"
         "  --victim RANK   who comes to harm (1)\n"
         "  --after US      microseconds of traffic before that\n"
         "  --stop-ms MS    how long it stands still (1000)\n"
         "  --fork          ranks run system() during the traffic\n"
         "  --returns       print what MPI returns for an error, and end\n"
         "  --stats         print descriptors and memory\n"
         "Exit status: 0 all data right, 10 wrong data");
}

static void parse_options(int argc, char **argv)
{
    static const struct option options[] = {
        {"mode", 1, NULL, 'm'},    {"size", 1, NULL, 's'},    {"window", 1, NULL, 'w'},
        {"seconds", 1, NULL, 't'}, {"created", 0, NULL, 'c'}, {"harm", 1, NULL, 'h'},
        {"victim", 1, NULL, 'v'},  {"after", 1, NULL, 'a'},   {"stop-ms", 1, NULL, 'p'},
        {"fork", 0, NULL, 'f'},    {"returns", 0, NULL, 'r'}, {"stats", 0, NULL, 'x'},
        {"gpu", 1, NULL, 'g'},     {NULL, 0, NULL, 0},
    };
    int option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 'm':
            opt.mode = fault_find_name(mode_names, optarg);
            break;
        case 's':
            opt.size = strtoul(optarg, NULL, 0);
            break;
        case 'w':
            opt.window = atoi(optarg);
            break;
        case 't':
            opt.seconds = atof(optarg);
            break;
        case 'g':
            gpu = device_runtime(optarg);
            if (gpu == NULL) {
                fault_end(FAULT_HARNESS, "unknown runtime %s", optarg);
            }
            break;
        case 'c':
            opt.created = 1;
            break;
        case 'h':
            opt.harm = fault_find_name(harm_names, optarg);
            break;
        case 'v':
            opt.victim = atoi(optarg);
            break;
        case 'a':
            opt.after_us = (unsigned)strtoul(optarg, NULL, 0);
            break;
        case 'p':
            opt.stop_ms = (unsigned)strtoul(optarg, NULL, 0);
            break;
        case 'f':
            opt.forks = 1;
            break;
        case 'r':
            opt.returns = 1;
            break;
        case 'x':
            opt.stats = 1;
            break;
        default:
            usage();
            exit(FAULT_HARNESS);
        }
    }
    if (opt.window < 1 || opt.window > MAX_WINDOW || opt.size < 8) {
        fault_end(FAULT_HARNESS, "--window is 1 to %d, --size 8 at least", MAX_WINDOW);
    }
    if (gpu != NULL && opt.mode != MODE_MSG) {
        fault_end(FAULT_HARNESS, "--gpu is for --mode msg");
    }
}

/* ---- harm ------------------------------------------------------------------------------------ */

static void stand_still(void)
{
    pid_t victim = getpid();
    pid_t child  = fork();

    if (child == 0) {
        kill(victim, SIGSTOP);
        sleep_ms(opt.stop_ms);
        kill(victim, SIGCONT);
        _exit(0);
    }
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR) {
    }
}

/* Called between two rounds, `elapsed` microseconds after the traffic started. */
static void harm_self(double elapsed)
{
    static int done;

    if (rank != opt.victim || done || opt.harm == HARM_NONE || opt.harm == HARM_KILL ||
        elapsed < opt.after_us) {
        return;
    }
    done = 1;
    switch ((harm_t)opt.harm) {
    case HARM_EXIT:
        _exit(0);
    case HARM_ABORT:
        abort();
    case HARM_SEGV:
        raise(SIGSEGV);
        break;
    case HARM_STOP:
        stand_still();
        break;
    default:
        break;
    }
}

static void run_system(void)
{
    char text[64];

    /* Children must not disturb the parent, whatever they do with what they inherited. */
    if (forked % 2) {
        snprintf(text, sizeof(text), "exit %d", (int)(forked % 7));
        if (WEXITSTATUS(system(text)) != (int)(forked % 7)) {
            fault_end(FAULT_WRONG, "system() failed");
        }
    } else {
        pid_t child = fork();
        int   status;

        if (child == 0) {
            memset(recv_data, 0x5a, opt.size);
            _exit(3);
        }
        if (waitpid(child, &status, 0) != child || WEXITSTATUS(status) != 3) {
            fault_end(FAULT_WRONG, "a child ended wrongly");
        }
    }
    forked++;
}

/* ---- traffic --------------------------------------------------------------------------------- */

static void check(int status, const char *what)
{
    char text[MPI_MAX_ERROR_STRING];
    int  length;

    if (status != MPI_SUCCESS) {
        MPI_Error_string(status, text, &length);
        fprintf(stderr, "fault_mpi: rank %d: MPI error in %s: %s\n", rank, what, text);
        MPI_Abort(MPI_COMM_WORLD, FAULT_REFUSED);
    }
}

static void verify(const char *what, const char *data, uint64_t key)
{
    size_t wrong = data_difference(data, opt.size, key);

    if (wrong < opt.size) {
        fprintf(stderr, "fault_mpi: rank %d: %s: wrong data at byte %zu of %zu\n", rank, what,
                wrong, opt.size);
        MPI_Abort(MPI_COMM_WORLD, FAULT_WRONG);
    }
}

static uint64_t key_of(int sender, uint64_t round, int i)
{
    return (uint64_t)sender << 40 ^ round << 8 ^ (uint64_t)i;
}

static void round_msg(uint64_t round)
{
    size_t      length = opt.size * (size_t)opt.window;
    const char *sent   = gpu != NULL ? gpu_send : send_data;
    char       *room   = gpu != NULL ? gpu_recv : recv_data;
    int         n      = 0;

    for (int i = 0; i < opt.window; ++i) {
        check(MPI_Irecv(room + (size_t)i * opt.size, (int)opt.size, MPI_CHAR, from, i,
                        MPI_COMM_WORLD, &requests[n++]),
              "MPI_Irecv");
    }
    for (int i = 0; i < opt.window; ++i) {
        data_fill(send_data + (size_t)i * opt.size, opt.size, key_of(rank, round, i));
    }
    if (gpu != NULL) {
        gpu->write(gpu_send, send_data, length);
    }
    for (int i = 0; i < opt.window; ++i) {
        check(MPI_Isend(sent + (size_t)i * opt.size, (int)opt.size, MPI_CHAR, to, i, MPI_COMM_WORLD,
                        &requests[n++]),
              "MPI_Isend");
    }
    check(MPI_Waitall(n, requests, MPI_STATUSES_IGNORE), "MPI_Waitall");
    if (gpu != NULL) {
        gpu->read(recv_data, gpu_recv, length);
    }
    for (int i = 0; i < opt.window; ++i) {
        verify("message", recv_data + (size_t)i * opt.size, key_of(from, round, i));
    }
}

static void round_put(uint64_t round)
{
    for (int i = 0; i < opt.window; ++i) {
        data_fill(send_data + (size_t)i * opt.size, opt.size, key_of(rank, round, i));
        check(MPI_Put(send_data + (size_t)i * opt.size, (int)opt.size, MPI_CHAR, to,
                      (MPI_Aint)((size_t)i * opt.size), (int)opt.size, MPI_CHAR, win),
              "MPI_Put");
    }
    check(MPI_Win_flush(to, win), "MPI_Win_flush");
    check(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier");
    MPI_Win_sync(win);
    for (int i = 0; i < opt.window; ++i) {
        verify("put", win_data + (size_t)i * opt.size, key_of(from, round, i));
    }
    check(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier");
}

static void round_get(uint64_t round)
{
    for (int i = 0; i < opt.window; ++i) {
        data_fill(win_data + (size_t)i * opt.size, opt.size, key_of(rank, round, i));
    }
    MPI_Win_sync(win);
    check(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier");
    for (int i = 0; i < opt.window; ++i) {
        check(MPI_Get(recv_data + (size_t)i * opt.size, (int)opt.size, MPI_CHAR, to,
                      (MPI_Aint)((size_t)i * opt.size), (int)opt.size, MPI_CHAR, win),
              "MPI_Get");
    }
    check(MPI_Win_flush(to, win), "MPI_Win_flush");
    for (int i = 0; i < opt.window; ++i) {
        verify("get", recv_data + (size_t)i * opt.size, key_of(to, round, i));
    }
    check(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier");
}

/* Everybody adds to rank 0's first word; the sum is checked at the end. */
static uint64_t added;

static void round_acc(uint64_t round)
{
    const uint64_t one = 1;
    uint64_t       old = 0;

    (void)round;
    for (int i = 0; i < opt.window; ++i) {
        check(MPI_Fetch_and_op(&one, &old, MPI_UINT64_T, 0, 0, MPI_SUM, win), "MPI_Fetch_and_op");
        check(MPI_Win_flush(0, win), "MPI_Win_flush");
        added++;
    }
}

static void end_acc(void)
{
    uint64_t sum;

    check(MPI_Allreduce(&added, &sum, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD), "MPI_Allreduce");
    MPI_Win_sync(win);
    if (rank == 0 && memcmp(win_data, &sum, sizeof(sum)) != 0) {
        fprintf(stderr, "fault_mpi: the sum of the atomics is wrong\n");
        MPI_Abort(MPI_COMM_WORLD, FAULT_WRONG);
    }
}

static void round_alltoall(uint64_t round)
{
    for (int i = 0; i < ranks; ++i) {
        data_fill(send_data + (size_t)i * opt.size, opt.size, key_of(rank, round, i));
    }
    check(MPI_Alltoall(send_data, (int)opt.size, MPI_CHAR, recv_data, (int)opt.size, MPI_CHAR,
                       MPI_COMM_WORLD),
          "MPI_Alltoall");
    for (int i = 0; i < ranks; ++i) {
        verify("alltoall", recv_data + (size_t)i * opt.size, key_of(i, round, rank));
    }
}

static void round_oneway(uint64_t round)
{
    if (rank != opt.victim) {
        check(MPI_Recv(recv_data, (int)opt.size, MPI_CHAR, opt.victim, 0, MPI_COMM_WORLD,
                       MPI_STATUS_IGNORE),
              "MPI_Recv");
        verify("message", recv_data, key_of(opt.victim, round, 0));
        return;
    }
    data_fill(send_data, opt.size, key_of(rank, round, 0));
    for (int i = 0; i < ranks; ++i) {
        if (i != rank) {
            check(MPI_Send(send_data, (int)opt.size, MPI_CHAR, i, 0, MPI_COMM_WORLD), "MPI_Send");
        }
    }
}

static void (*const round_functions[])(uint64_t) = {round_msg, round_put,      round_get,
                                                    round_acc, round_alltoall, round_oneway};

/* ---- the job --------------------------------------------------------------------------------- */

static void allocate(void)
{
    size_t length   = opt.size * (size_t)(ranks > opt.window ? ranks : opt.window);
    int    onesided = opt.mode == MODE_PUT || opt.mode == MODE_GET || opt.mode == MODE_ACC;

    send_data = calloc(1, length);
    recv_data = calloc(1, length);
    if (send_data == NULL || recv_data == NULL) {
        fault_end(FAULT_HARNESS, "out of memory");
    }
    if (gpu != NULL) {
        unsigned num = gpu->open();

        gpu_send = num != 0 ? gpu->alloc((unsigned)rank % num, length, DEVICE_PLAIN) : NULL;
        gpu_recv = num != 0 ? gpu->alloc((unsigned)rank % num, length, DEVICE_PLAIN) : NULL;
        if (gpu_send == NULL || gpu_recv == NULL) {
            fault_end(FAULT_HARNESS, "no GPU memory");
        }
    }
    if (!onesided) {
        return;
    }
    if (opt.created) {
        win_data = calloc(1, length);
        check(MPI_Win_create(win_data, (MPI_Aint)length, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win),
              "MPI_Win_create");
    } else {
        check(MPI_Win_allocate((MPI_Aint)length, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win_data, &win),
              "MPI_Win_allocate");
        memset(win_data, 0, length);
    }
    if (opt.returns) {
        MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    }
    check(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier");
    check(MPI_Win_lock_all(0, win), "MPI_Win_lock_all");
}

/*
 * @return whether all ranks go on: rank 0's clock decides. Not a broadcast: a rank that is faster
 * than the others, as rank 0 is with atomics on its own memory, would run ahead of them without
 * limit.
 */
static int goes_on(double start)
{
    int mine = rank == 0 && now_seconds() - start < opt.seconds;
    int more = 0;

    check(MPI_Allreduce(&mine, &more, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD), "MPI_Allreduce");
    return more;
}

static uint64_t run_traffic(void)
{
    double   start = now_seconds();
    uint64_t round = 0;

    do {
        for (int i = 0; i < 8; ++i, ++round) {
            harm_self((now_seconds() - start) * 1e6);
            round_functions[opt.mode](round);
        }
        if (opt.forks) {
            run_system();
        }
    } while (opt.mode == MODE_ONEWAY || goes_on(start)); /* the harm ends the former */
    return round;
}

int main(int argc, char **argv)
{
    const struct rlimit no_core = {0, 0};
    uint64_t            rounds;

    parse_options(argc, argv);
    setrlimit(RLIMIT_CORE, &no_core);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (opt.returns) {
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    }
    to   = (rank + 1) % ranks;
    from = (rank + ranks - 1) % ranks;
    allocate();
    if (opt.mode != MODE_ONEWAY) { /* there receivers send nothing at all */
        check(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier");
    }
    if (rank == opt.victim && opt.harm == HARM_KILL) {
        fault_kill_self_after(opt.after_us);
    }
    rounds = run_traffic();
    if (opt.mode == MODE_ACC) {
        end_acc();
    }
    if (win != MPI_WIN_NULL) {
        MPI_Win_unlock_all(win);
        MPI_Win_free(&win);
    }
    if (opt.stats) {
        fault_usage_t usage = fault_usage();

        printf("stats rank %d fds %u rss %lu maps %u\n", rank, usage.fds, usage.resident_kib,
               usage.maps);
    }
    MPI_Finalize();
    if (gpu != NULL) {
        gpu->free(gpu_send, DEVICE_PLAIN);
        gpu->free(gpu_recv, DEVICE_PLAIN);
    }
    free(send_data);
    free(recv_data);
    if (rank == 0) {
        printf("right after %llu rounds, %u forks\n", (unsigned long long)rounds, forked);
    }
    return FAULT_OK;
}
