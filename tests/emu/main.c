/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * angara_emu: options and the loop. See emu.h. The loop looks at every node as long as there is
 * something to do, a little longer in case more comes, and then sleeps for longer and longer; a
 * doorbell, the control socket or a VM that connects wakes it.
 */
#define _GNU_SOURCE
#include "emu.h"

#include "src/clock.h"

#include <getopt.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define SPIN_NS       50000ull
#define YIELD_NS      5000ull
#define NAP_NS        2000
#define ADMIN_SPIN_NS 500000ull  /* a driver seldom has one admin command only: */
#define ADMIN_NAP_NS  2000000ull /* no long sleep for so long */
#define SLEEP_MIN_NS  20000ull
#define SLEEP_MAX_NS  200000ull
#define REST_AFTER_NS 1000000000ull /* nothing for so long, and there is no PE: */
#define REST_NS       2000000ull

#define FDS_MAX       (3 * EMU_NODES_MAX + 1 + EMU_CLIENTS_MAX)

int emu_verbose;

static volatile sig_atomic_t stop;

void emu_say(const char *format, ...)
{
    va_list args;

    if (!emu_verbose) {
        return;
    }
    va_start(args, format);
    fputs("angara_emu: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
}

/* ---- options --------------------------------------------------------------------------------- */

static const char usage_text[] =
    "Usage: angara_emu --vm SOCKET,RAM,SIZE [--vm ...] [OPTION]...\n"
    "The emulated NIC: a device per VM, and the network between them. Serves each VM's ivshmem\n"
    "device at the UNIX socket SOCKET; RAM is the file behind the VM's memory, of SIZE bytes\n"
    "(with K, M or G). Nodes are numbered from 0. Prints \"ready\" when the sockets listen.\n"
    "\n"
    "  -v, --vm SOCKET,RAM,SIZE   one VM\n"
    "  -c, --control PATH         control socket, see below\n"
    "  -p, --pes N                PEs of a node (64)\n"
    "  -b, --pio-bytes N          bytes of a put ring, a power of two (64K)\n"
    "  -m, --markers N            marker slots of a PE (512)\n"
    "  -r, --regions N            entries of the MR table (65536)\n"
    "  -i, --vectors N            MSI-X vectors (8)\n"
    "  -l, --loopback             reads from the own node are possible\n"
    "  -x, --chaos SEED           chaos mode (0: off)\n"
    "  -d, --chaos-delay US       longest usual delay in chaos mode (50)\n"
    "  -t, --timeout MS           an operation waits so long for a link (1000)\n"
    "  -L, --log FILE             log what the guests hand to the device\n"
    "  -R, --replay FILE          replay such a log against empty memory, compare what the device\n"
    "                             decides, and exit: 0 if it is the same. Same options otherwise\n"
    "  -q, --quiet                don't report on stderr\n"
    "  -h, --help                 this text\n"
    "\n";

static uint64_t parse_number(const char *text, uint64_t min, uint64_t max)
{
    char              *end;
    unsigned long long value = strtoull(text, &end, 0);

    switch (*end) {
    case 'G':
        value <<= 10; /* fall through */
    case 'M':
        value <<= 10; /* fall through */
    case 'K':
        value <<= 10;
        end++;
    }
    if (end == text || *end != '\0' || *text == '-' || value < min || value > max) {
        fprintf(stderr, "angara_emu: %s: a number from %llu to %llu is wanted\n", text,
                (unsigned long long)min, (unsigned long long)max);
        exit(2);
    }
    return value;
}

static uint32_t parse_power(const char *text, uint64_t min, uint64_t max)
{
    uint64_t value = parse_number(text, min, max);

    if ((value & (value - 1)) != 0) {
        fprintf(stderr, "angara_emu: %s is no power of two\n", text);
        exit(2);
    }
    return (uint32_t)value;
}

static void parse_vm(emu_t *emu, char *text)
{
    emu_node_t *node = &emu->nodes[emu->num_nodes];
    char       *ram  = strchr(text, ',');
    char       *size = ram != NULL ? strchr(ram + 1, ',') : NULL;

    if (size == NULL || emu->num_nodes == EMU_NODES_MAX) {
        fprintf(stderr, "angara_emu: --vm wants SOCKET,RAM,SIZE, at most %d times\n",
                EMU_NODES_MAX);
        exit(2);
    }
    *ram++            = '\0';
    *size++           = '\0';
    node->socket_path = text;
    node->ram_path    = ram;
    node->ram_size    = parse_number(size, EMU_PAGE, 1ull << 40) & ~(uint64_t)(EMU_PAGE - 1);
    node->listen_fd   = -1;
    node->client_fd   = -1;
    node->doorbell_fd = -1;
    node->bar_fd      = -1;
    memset(node->irq_fds, 0xff, sizeof(node->irq_fds)); /* -1 */
    node->emu = emu;
    node->id  = emu->num_nodes++;
}

static const struct option options[] = {
    {"vm", required_argument, NULL, 'v'},      {"control", required_argument, NULL, 'c'},
    {"pes", required_argument, NULL, 'p'},     {"pio-bytes", required_argument, NULL, 'b'},
    {"markers", required_argument, NULL, 'm'}, {"regions", required_argument, NULL, 'r'},
    {"vectors", required_argument, NULL, 'i'}, {"loopback", no_argument, NULL, 'l'},
    {"chaos", required_argument, NULL, 'x'},   {"chaos-delay", required_argument, NULL, 'd'},
    {"timeout", required_argument, NULL, 't'}, {"log", required_argument, NULL, 'L'},
    {"replay", required_argument, NULL, 'R'},  {"quiet", no_argument, NULL, 'q'},
    {"help", no_argument, NULL, 'h'},          {NULL, 0, NULL, 0},
};

static const char *log_path, *replay_path;

static void parse_options(emu_t *emu, int argc, char **argv)
{
    emu_config_t *config = &emu->config;
    int           option;

    while ((option = getopt_long(argc, argv, "v:c:p:b:m:r:i:lx:d:t:L:R:qh", options, NULL)) != -1) {
        switch (option) {
        case 'v':
            parse_vm(emu, optarg);
            break;
        case 'c':
            emu->control_path = optarg;
            break;
        case 'p':
            config->pe_max = (uint32_t)parse_number(optarg, 1, 1024);
            break;
        case 'b':
            config->pio_bytes = parse_power(optarg, EMU_PAGE, 1u << 20);
            break;
        case 'm':
            config->marker_slots = (uint32_t)parse_number(optarg, 1, 65536);
            break;
        case 'r':
            config->mr_max = (uint32_t)parse_number(optarg, 1, 1u << 24);
            break;
        case 'i':
            config->vectors = (uint32_t)parse_number(optarg, 2, EMU_VECTORS_MAX);
            break;
        case 'l':
            config->loopback = 1;
            break;
        case 'x':
            config->chaos = parse_number(optarg, 0, UINT64_MAX);
            break;
        case 'd':
            config->chaos_delay_us = (uint32_t)parse_number(optarg, 0, 1000000);
            break;
        case 't':
            config->timeout_ms = (uint32_t)parse_number(optarg, 1, 3600000);
            break;
        case 'L':
            log_path = optarg;
            break;
        case 'R':
            replay_path = optarg;
            break;
        case 'q':
            emu_verbose = 0;
            break;
        case 'h':
            fputs(usage_text, stdout);
            fputs(emu_control_help, stdout);
            exit(0);
        default:
            fputs("Try angara_emu --help\n", stderr);
            exit(2);
        }
    }
    if (optind != argc || emu->num_nodes == 0) {
        fputs(usage_text, stderr);
        exit(2);
    }
}

/* ---- the loop -------------------------------------------------------------------------------- */

static void on_signal(int signal_number)
{
    (void)signal_number;
    stop = 1;
}

static void add(struct pollfd *fds, unsigned *count, int fd)
{
    fds[(*count)++] = (struct pollfd){.fd = fd, .events = POLLIN};
}

/* Sleep, at most so long, and handle what comes from outside the BARs. */
static void look_outside(emu_t *emu, uint64_t sleep_ns)
{
    struct timespec limit = {0, (long)sleep_ns};
    struct pollfd   fds[FDS_MAX];
    unsigned        count = 0, at = 0;
    uint64_t        bell;

    for (unsigned i = 0; i < emu->num_nodes; ++i) { /* poll() skips negative ones */
        add(fds, &count, emu->nodes[i].listen_fd);
        add(fds, &count, emu->nodes[i].client_fd);
        add(fds, &count, emu->nodes[i].doorbell_fd);
    }
    count += emu_control_pollfds(emu, &fds[count]);
    if (ppoll(fds, count, &limit, NULL) <= 0) {
        return;
    }
    for (unsigned i = 0; i < emu->num_nodes; ++i, at += 3) {
        if (fds[at + 1].revents != 0) {
            emu_server_hangup(&emu->nodes[i]);
        }
        if (fds[at].revents != 0) {
            emu_server_accept(&emu->nodes[i]);
        }
        if (fds[at + 2].revents != 0 && read(fds[at + 2].fd, &bell, sizeof(bell)) < 0) {
            continue; /* somebody else's hint */
        }
    }
    emu_control_events(emu, &fds[at], count - at);
}

/*
 * Between two looks. Whoever asked may wait for this processor. A nap gets it back as soon as it
 * ends; where all processors are busy, sched_yield() gets it back after milliseconds. But a nap is
 * long compared to the pause between two admin commands.
 */
static void wait_short(uint64_t idle, int admin)
{
    static const struct timespec nap = {0, NAP_NS};

    if (idle < YIELD_NS) {
        __builtin_ia32_pause();
    } else if (admin) {
        sched_yield();
    } else {
        nanosleep(&nap, NULL);
    }
}

static void loop(emu_t *emu)
{
    uint64_t last = 0, outside = 0, sleep_ns = 0, idle;

    while (!stop && !emu->quit) {
        unsigned work = 0;

        emu->now  = ang_clock_ns(CLOCK_MONOTONIC);
        emu->busy = 0;
        for (unsigned i = 0; i < emu->num_nodes; ++i) {
            work += emu_node_turn(&emu->nodes[i]);
        }
        if (work != 0) {
            last     = emu->now;
            sleep_ns = 0;
        }
        idle = emu->now - last;
        if (idle < SPIN_NS || emu->now - emu->admin_at < ADMIN_NAP_NS) {
            if (emu->now - outside > 1000000) { /* however busy it is */
                outside = emu->now;
                look_outside(emu, 0);
            }
            wait_short(idle, emu->now - emu->admin_at < ADMIN_SPIN_NS);
            continue;
        }
        if (idle > REST_AFTER_NS && emu->num_pes == 0) {
            sleep_ns = REST_NS;
        } else {
            sleep_ns = sleep_ns == 0 || emu->busy ? SLEEP_MIN_NS : sleep_ns * 2;
            sleep_ns = sleep_ns < SLEEP_MAX_NS ? sleep_ns : SLEEP_MAX_NS;
        }
        outside = emu->now;
        look_outside(emu, sleep_ns);
    }
}

int main(int argc, char **argv)
{
    static emu_t emu = {
        .config     = {.pe_max         = 64,
                       .mr_max         = 65536,
                       .vectors        = 8,
                       .pio_bytes      = 65536,
                       .marker_slots   = 512,
                       .chaos_delay_us = 50,
                       .timeout_ms     = 1000},
        .control_fd = -1,
    };
    struct sigaction action = {.sa_handler = on_signal};
    int              result = 1;

    emu_verbose = 1;
    parse_options(&emu, argc, argv);
    emu.random = emu.config.chaos;
    prctl(PR_SET_TIMERSLACK, 1);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    emu_memory_guard();

    for (unsigned i = 0; i < emu.num_nodes; ++i) {
        if (emu_node_init(&emu.nodes[i]) != 0) {
            goto out;
        }
    }
    if (replay_path != NULL) {
        result = emu_replay(&emu, replay_path);
        goto out;
    }
    if (log_path != NULL && (emu.log = fopen(log_path, "we")) == NULL) {
        perror(log_path);
        goto out;
    }
    if (emu.log != NULL) {
        setvbuf(emu.log, NULL, _IOLBF, 0); /* the last lines matter when it crashes */
    }
    for (unsigned i = 0; i < emu.num_nodes; ++i) {
        if (emu_server_open(&emu.nodes[i]) != 0) {
            goto out;
        }
    }
    if (emu.control_path != NULL && emu_control_open(&emu) != 0) {
        goto out;
    }
    puts("ready");
    fflush(stdout);
    loop(&emu);
    result = 0;

out:
    emu_control_close(&emu);
    for (unsigned i = 0; i < emu.num_nodes; ++i) {
        emu_server_close(&emu.nodes[i]);
        emu_node_cleanup(&emu.nodes[i]);
    }
    if (emu.log != NULL) {
        fclose(emu.log);
    }
    return result;
}
