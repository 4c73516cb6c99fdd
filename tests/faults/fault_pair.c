/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two processes that use nothing but libangara and check each other's data. The second is this
 * program again, started under a command or with a variable of its own, so that the scripts can
 * give it another user, namespace, limit or version of the library. See usage().
 */
#define _GNU_SOURCE
#include "fault_common.h"
#include "fault_link.h"
#include "pair_traffic.h"

#include <angara/angara.h>

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static struct {
    pair_options_t pair;
    const char    *peer_command; /* before the second process's own */
    char          *peer_env;     /* NAME=VALUE for it */
    unsigned       victim_us;    /* it dies so long after the traffic started */
    int            victim;
    int            undumpable;
    int            socket; /* of the second process, else -1 */
} opt = {.pair = {.size = 1u << 20, .rounds = 3}, .socket = -1};

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

/* ---- the two processes ----------------------------------------------------------------------- */

static void second_process(void)
{
    fault_link_join(opt.socket);
    if (opt.undumpable && prctl(PR_SET_DUMPABLE, 0) != 0) {
        fault_end(FAULT_HARNESS, "prctl: %s", strerror(errno));
    }
    pair_open(&opt.pair);
    pair_meet();
    if (opt.victim) {
        fault_barrier();
        fault_kill_self_after(opt.victim_us);
        pair_flood();
        fault_end(FAULT_WRONG, "the victim survived");
    }
    pair_exchange(0);
    fault_barrier();
    pair_close();
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

static pid_t start_second(char **argv, int argc)
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
    for (int i = 1; i < argc; ++i) {
        words[count++] = argv[i];
    }
    words[count++] = "--socket";
    words[count++] = number;
    words[count]   = NULL;

    pid = fault_link_fork();
    if (pid == 0) {
        snprintf(number, sizeof(number), "%d", fault_link_fd());
        if (opt.peer_env != NULL) {
            putenv(opt.peer_env);
        }
        execvp(words[0], words);
        fault_end(FAULT_HARNESS, "%s: %s", words[0], strerror(errno));
    }
    free(command);
    return pid;
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
    int other = fault_link_wait(second_pid);

    if (opt.victim && other == 128 + SIGKILL) {
        other = FAULT_OK;
    }
    return worse(status, other);
}

static void first_process(int argc, char **argv)
{
    second_pid     = start_second(argv, argc);
    fault_end_hook = wait_second;
    pair_open(&opt.pair);
    pair_meet();
    if (opt.victim) {
        pair_flood_until_death();
    } else {
        pair_exchange(1);
        fault_barrier();
    }
    pair_close();
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
            opt.pair.progress = 1;
            break;
        case 'P':
            just_open = 2;
            break;
        case 'R':
            opt.pair.regions = (unsigned)strtoul(optarg, NULL, 0);
            break;
        case 'd':
            opt.pair.device = optarg;
            break;
        case 's':
            opt.pair.size = strtoul(optarg, NULL, 0);
            break;
        case 'r':
            opt.pair.rounds = (unsigned)strtoul(optarg, NULL, 0);
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
    if (opt.pair.size < 4096) {
        fault_end(FAULT_HARNESS, "--size is 4096 at least");
    }
    if (just_open) {
        pair_open_only(opt.pair.device, just_open == 2);
        fault_end(FAULT_OK, "ok");
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
