/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control socket: a test tells the device to misbehave, one command a line, one answer a line
 * ("ok ..." or "error ..."). See emu.h. Its users are trusted: whoever may connect may do all this.
 */
#define _GNU_SOURCE
#include "emu.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LINE_MAX_BYTES 512
#define WORDS_MAX      8

const char emu_control_help[] =
    "Commands of the control socket, one a line; each is answered by a line \"ok ...\" or\n"
    "\"error ...\" after it has taken effect:\n"
    "\n"
    "  link NODE up|down            cut or restore the node's link; operations wait (--timeout)\n"
    "  delay NODE US                hold each put and command of the node so long\n"
    "  timeout MS                   as --timeout, from now on\n"
    "  badkey N                     the next N remote accesses find a wrong key\n"
    "  loseirq NODE N               the next N interrupts to the node aren't sent\n"
    "  admin NODE COMMAND MS|never  answer late or never, until set to 0. COMMAND: setup,\n"
    "                               pe_create, pe_reset, mr_invalidate, window_sync, nop,\n"
    "                               domain_invalidate, any\n"
    "  stuck NODE reset|dma|all on|off  don't acknowledge; all: do nothing at all\n"
    "  mute NODE MS                 nothing is done so long, the control page reads all ones, and\n"
    "                               what is written there gets lost; 0: no more\n"
    "  version NODE N               the register file has version N (0x20001: 2.1) until the VM\n"
    "                               goes: an old device, for drivers that refuse it\n"
    "  remove NODE, replug NODE     surprise removal: BAR 2 reads all ones; and the reverse\n"
    "  map NODE BUS SIZE FILE       bus addresses [BUS, BUS + SIZE) are FILE's memory, until the\n"
    "                               VM goes: another device's BAR\n"
    "  state NODE                   vm, dma, link, reset_ack, PEs, operations that came with\n"
    "                               another job key than their target's, how long it was mute\n"
    "  counters NODE PE             of a PE: puts off_puts off_gets off_bytes atomics notifies\n"
    "                               refused markers faults events lost irqs\n"
    "  help                         the commands' names\n"
    "  quit                         end the emulator\n";

typedef struct {
    int    fd; /* -1: free */
    size_t length;
    char   line[LINE_MAX_BYTES];
} client_t;

static client_t clients[EMU_CLIENTS_MAX];

static void answer(int fd, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void answer(int fd, const char *format, ...)
{
    char    line[4096];
    va_list args;
    int     length;

    va_start(args, format);
    length = vsnprintf(line, sizeof(line) - 1, format, args);
    va_end(args);
    if (length > (int)sizeof(line) - 2) {
        length = sizeof(line) - 2;
    }
    line[length++] = '\n';
    if (send(fd, line, (size_t)length, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        return; /* it didn't wait for the answer */
    }
}

/* ---- the commands ---------------------------------------------------------------------------- */

/* Each gets the words behind its name, as many as its row says. @return NULL, or the error. */
typedef const char *(*command_t)(emu_t *emu, emu_node_t *node, char **words, char *reply,
                                 size_t size);

static int number(const char *text, uint64_t *value)
{
    char *end;

    errno  = 0;
    *value = strtoull(text, &end, 0);
    return errno == 0 && end != text && *end == '\0' && *text != '-';
}

static const char *do_link(emu_t *emu, emu_node_t *node, char **words, char *reply, size_t size)
{
    (void)emu, (void)reply, (void)size;
    if (strcmp(words[0], "up") != 0 && strcmp(words[0], "down") != 0) {
        return "up or down";
    }
    emu_node_link(node, strcmp(words[0], "up") == 0);
    return NULL;
}

static const char *do_delay(emu_t *emu, emu_node_t *node, char **words, char *reply, size_t size)
{
    uint64_t us;

    (void)emu, (void)reply, (void)size;
    if (!number(words[0], &us) || us > 10000000) {
        return "microseconds, up to 10000000";
    }
    node->trouble.delay_ns = us * 1000;
    return NULL;
}

static const char *do_timeout(emu_t *emu, emu_node_t *node, char **words, char *reply, size_t size)
{
    uint64_t ms;

    (void)node, (void)reply, (void)size;
    if (!number(words[0], &ms) || ms == 0 || ms > 3600000) {
        return "milliseconds, 1 to 3600000";
    }
    emu->config.timeout_ms = (uint32_t)ms;
    emu_log(&emu->nodes[0], 'T', -1, NULL, 0, "%u", emu->config.timeout_ms);
    return NULL;
}

static const char *do_badkey(emu_t *emu, emu_node_t *node, char **words, char *reply, size_t size)
{
    uint64_t count;

    (void)node, (void)reply, (void)size;
    if (!number(words[0], &count)) {
        return "a number";
    }
    emu->bad_keys = (unsigned)count;
    emu_log(&emu->nodes[0], 'Y', -1, NULL, 0, "%u", emu->bad_keys);
    return NULL;
}

static const char *do_loseirq(emu_t *emu, emu_node_t *node, char **words, char *reply, size_t size)
{
    uint64_t count;

    (void)emu, (void)reply, (void)size;
    if (!number(words[0], &count)) {
        return "a number";
    }
    node->trouble.lose_irqs = (unsigned)count;
    return NULL;
}

static const char *do_admin(emu_t *emu, emu_node_t *node, char **words, char *reply, size_t size)
{
    static const char *const names[EMU_OPCODES] = {
        "any",           "setup",       "pe_create", "pe_reset",
        "mr_invalidate", "window_sync", "nop",       "domain_invalidate"};
    uint64_t ms = 0;
    unsigned i;

    (void)emu, (void)reply, (void)size;
    for (i = 0; i < EMU_OPCODES && strcmp(names[i], words[0]) != 0; ++i) {
    }
    if (i == EMU_OPCODES) {
        return "no such admin command";
    }
    if (strcmp(words[1], "never") == 0) {
        ms = EMU_NEVER;
    } else if (!number(words[1], &ms) || ms > 3600000) {
        return "milliseconds, or never";
    } else {
        ms *= 1000000;
    }
    for (unsigned opcode = 0; opcode < EMU_OPCODES; ++opcode) {
        if (i == 0 || i == opcode) {
            node->trouble.admin_delay_ns[opcode] = ms;
        }
    }
    return NULL;
}

static const char *do_stuck(emu_t *emu, emu_node_t *node, char **words, char *reply, size_t size)
{
    uint8_t on = strcmp(words[1], "on") == 0;

    (void)emu, (void)reply, (void)size;
    if (!on && strcmp(words[1], "off") != 0) {
        return "on or off";
    }
    if (strcmp(words[0], "reset") == 0) {
        node->trouble.stuck_reset = on;
    } else if (strcmp(words[0], "dma") == 0) {
        node->trouble.stuck_dma = on;
    } else if (strcmp(words[0], "all") == 0) {
        node->trouble.frozen = on;
    } else {
        return "reset, dma or all";
    }
    return NULL;
}

static const char *do_mute(emu_t *emu, emu_node_t *node, char **words, char *reply, size_t size)
{
    uint64_t ms;

    (void)emu, (void)reply, (void)size;
    if (!number(words[0], &ms) || ms > 3600000) {
        return "milliseconds, up to 3600000";
    }
    return emu_node_mute(node, ms * 1000000) == 0 ? NULL : "there is no device";
}

static const char *do_version(emu_t *emu, emu_node_t *node, char **words, char *reply, size_t size)
{
    uint64_t version;

    (void)emu, (void)reply, (void)size;
    if (!number(words[0], &version) || version > UINT32_MAX) {
        return "a version: major << 16 | minor";
    }
    return emu_node_version(node, (uint32_t)version) == 0 ? NULL : "there is no device";
}

static const char *do_remove(emu_t *emu, emu_node_t *node, char **words, char *reply, size_t size)
{
    (void)emu, (void)words, (void)reply, (void)size;
    emu_node_remove(node);
    return NULL;
}

static const char *do_replug(emu_t *emu, emu_node_t *node, char **words, char *reply, size_t size)
{
    (void)emu, (void)words, (void)reply, (void)size;
    emu_node_replug(node);
    return NULL;
}

static const char *do_map(emu_t *emu, emu_node_t *node, char **words, char *reply, size_t size)
{
    uint64_t bus, length;

    (void)emu, (void)reply, (void)size;
    if (!number(words[0], &bus) || !number(words[1], &length)) {
        return "a bus address and a size";
    }
    if (emu_memory_add(node, bus, length, words[2]) != 0) {
        return "can't be mapped";
    }
    emu_log(node, 'Z', -1, NULL, 0, "%llu %llu", (unsigned long long)bus,
            (unsigned long long)length);
    return NULL;
}

static const char *do_state(emu_t *emu, emu_node_t *node, char **words, char *reply, size_t size)
{
    unsigned used = 0, failed = 0, pending = 0;

    (void)words;
    for (uint32_t i = 0; i < emu->config.pe_max; ++i) {
        if (node->pes[i].state != EMU_PE_FREE) {
            used++;
            failed += node->pes[i].state == ANGARA_PE_FAILED;
            pending += node->pes[i].engine.pending;
        }
    }
    snprintf(reply, size,
             "vm=%d dma=%d link=%d reset_ack=%u pes=%u failed=%u pending=%u "
             "key_mismatches=%u muted_ms=%u",
             node->ram != NULL, node->dma, node->link, node->reset_ack, used, failed, pending,
             node->key_mismatches, node->muted_ms);
    return NULL;
}

static const char *do_counters(emu_t *emu, emu_node_t *node, char **words, char *reply, size_t size)
{
    static const char *const names[] = {"puts",    "off_puts", "off_gets", "off_bytes",
                                        "atomics", "notifies", "refused",  "markers",
                                        "faults",  "events",   "lost",     "irqs"};
    uint64_t                 index;
    size_t                   at = 0;

    if (!number(words[0], &index) || index >= emu->config.pe_max ||
        node->pes[index].state == EMU_PE_FREE) {
        return "no such PE";
    }
    emu_pe_status(&node->pes[index]);
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
        at += (size_t)snprintf(reply + at, size - at, "%s%s=%llu", i != 0 ? " " : "", names[i],
                               (unsigned long long)node->pes[index].counters[i]);
    }
    return NULL;
}

static const char *do_help(emu_t *emu, emu_node_t *node, char **words, char *reply, size_t size);

static const char *do_quit(emu_t *emu, emu_node_t *node, char **words, char *reply, size_t size)
{
    (void)node, (void)words, (void)reply, (void)size;
    emu->quit = 1;
    return NULL;
}

static const struct {
    const char *name;
    command_t   run;
    int         has_node; /* the first word */
    int         words;    /* behind that */
} commands[] = {
    {"link", do_link, 1, 1},       {"delay", do_delay, 1, 1},     {"badkey", do_badkey, 0, 1},
    {"loseirq", do_loseirq, 1, 1}, {"admin", do_admin, 1, 2},     {"stuck", do_stuck, 1, 2},
    {"remove", do_remove, 1, 0},   {"replug", do_replug, 1, 0},   {"map", do_map, 1, 3},
    {"state", do_state, 1, 0},     {"quit", do_quit, 0, 0},       {"counters", do_counters, 1, 1},
    {"help", do_help, 0, 0},       {"timeout", do_timeout, 0, 1}, {"mute", do_mute, 1, 1},
    {"version", do_version, 1, 1},
};

static const char *do_help(emu_t *emu, emu_node_t *node, char **words, char *reply, size_t size)
{
    size_t at = 0;

    (void)emu, (void)node, (void)words;
    for (unsigned i = 0; i < sizeof(commands) / sizeof(commands[0]); ++i) {
        at += (size_t)snprintf(reply + at, size - at, "%s%s", i != 0 ? " " : "", commands[i].name);
    }
    return NULL;
}

static void run_line(emu_t *emu, int fd, char *line)
{
    char       *words[WORDS_MAX] = {0}, *save = NULL, reply[1024] = "";
    int         count = 0;
    emu_node_t *node  = NULL;
    uint64_t    id;
    const char *error = "no such command: see help";

    for (char *word = strtok_r(line, " \t\r", &save); word != NULL && count < WORDS_MAX;
         word       = strtok_r(NULL, " \t\r", &save)) {
        words[count++] = word;
    }
    if (count == 0) {
        return;
    }
    for (unsigned i = 0; i < sizeof(commands) / sizeof(commands[0]); ++i) {
        if (strcmp(words[0], commands[i].name) != 0) {
            continue;
        }
        if (count != 1 + commands[i].has_node + commands[i].words) {
            error = "wrong number of words: see help";
        } else if (commands[i].has_node && (!number(words[1], &id) || id >= emu->num_nodes)) {
            error = "no such node";
        } else {
            node  = commands[i].has_node ? &emu->nodes[id] : NULL;
            error = commands[i].run(emu, node, words + 1 + commands[i].has_node, reply,
                                    sizeof(reply));
        }
        break;
    }
    if (error != NULL) {
        answer(fd, "error %s", error);
    } else {
        answer(fd, "ok%s%s", reply[0] != '\0' ? " " : "", reply);
    }
}

/* ---- sockets --------------------------------------------------------------------------------- */

static void client_close(client_t *client)
{
    close(client->fd);
    client->fd     = -1;
    client->length = 0;
}

static void client_read(emu_t *emu, client_t *client)
{
    ssize_t length = recv(client->fd, client->line + client->length,
                          sizeof(client->line) - client->length - 1, MSG_DONTWAIT);
    char   *end;

    if (length <= 0) {
        if (length == 0 || (errno != EAGAIN && errno != EINTR)) {
            client_close(client);
        }
        return;
    }
    client->length += (size_t)length;
    client->line[client->length] = '\0';
    while ((end = memchr(client->line, '\n', client->length)) != NULL) {
        *end = '\0';
        run_line(emu, client->fd, client->line);
        client->length -= (size_t)(end + 1 - client->line);
        memmove(client->line, end + 1, client->length);
    }
    if (client->length == sizeof(client->line) - 1) {
        answer(client->fd, "error the line is too long");
        client_close(client);
    }
}

int emu_control_open(emu_t *emu)
{
    for (unsigned i = 0; i < EMU_CLIENTS_MAX; ++i) {
        clients[i].fd = -1;
    }
    emu->control_fd = emu_listen(emu->control_path);
    return emu->control_fd < 0 ? -1 : 0;
}

void emu_control_close(emu_t *emu)
{
    if (emu->control_fd < 0) {
        return;
    }
    for (unsigned i = 0; i < EMU_CLIENTS_MAX; ++i) {
        if (clients[i].fd >= 0) {
            client_close(&clients[i]);
        }
    }
    close(emu->control_fd);
    unlink(emu->control_path);
    emu->control_fd = -1;
}

unsigned emu_control_pollfds(emu_t *emu, struct pollfd *fds)
{
    unsigned count = 0;

    if (emu->control_fd >= 0) {
        fds[count++] = (struct pollfd){.fd = emu->control_fd, .events = POLLIN};
        for (unsigned i = 0; i < EMU_CLIENTS_MAX; ++i) {
            fds[count++] = (struct pollfd){.fd = clients[i].fd, .events = POLLIN};
        }
    }
    return count;
}

void emu_control_events(emu_t *emu, const struct pollfd *fds, unsigned count)
{
    int      fd;
    unsigned i;

    if (count == 0) {
        return;
    }
    for (i = 0; i < EMU_CLIENTS_MAX; ++i) {
        if (fds[1 + i].revents != 0) {
            client_read(emu, &clients[i]);
        }
    }
    if (fds[0].revents != 0 &&
        (fd = accept4(emu->control_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
        for (i = 0; i < EMU_CLIENTS_MAX && clients[i].fd >= 0; ++i) {
        }
        if (i == EMU_CLIENTS_MAX) {
            answer(fd, "error too many clients");
            close(fd);
        } else {
            clients[i].fd = fd;
        }
    }
}
