/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Replay of a log (log.c) against a device with empty memory. What guests handed over is handed
 * over again, in the same order and at the same times, without rings and doorbells: the bytes come
 * from the log. Compared is what the device decides: outcomes of admin commands, which PEs fail and
 * at what, and faults, in order for each pair (which is all that chaos mode leaves alike). Data
 * isn't: sources are empty.
 *
 * Tables: what the device read in guest memory on its way is put there beforehand, for each node up
 * to its next admin command or handshake: tables only change their meaning there. An operation that
 * was ended before it had read all that it would have stands still where the log knows no more.
 */
#include "emu.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_MAX   160
#define FAULTS_MAX 65536

typedef struct {
    char     kind;
    uint64_t time;
    uint32_t node;
    int      pe;
    char     text[TEXT_MAX];
    uint8_t *bytes;
    size_t   length;
} record_t;

/* A fault of the log that the replay hasn't come to yet, or the other way round. */
typedef struct {
    uint32_t node;
    int      pe;
    int      logged;
    char     text[TEXT_MAX]; /* "pair status" */
} fault_t;

static struct {
    record_t *records;
    size_t    count;
    fault_t  *faults;
    unsigned  num_faults;
    unsigned  different;
    size_t    at;
} replay;

static void differ(const record_t *record, const char *what)
{
    printf("line %zu (%c, node %u, PE %d): %s\n", (size_t)(record - replay.records) + 1,
           record->kind, record->node, record->pe, what);
    replay.different++;
}

/* ---- reading --------------------------------------------------------------------------------- */

static int parse_bytes(record_t *record, const char *hex)
{
    size_t digits = strspn(hex, "0123456789abcdef");

    record->length = digits / 2;
    record->bytes  = calloc(1, EMU_PUT_MAX);
    if (record->bytes == NULL || digits % 2 != 0 || record->length > EMU_PUT_MAX) {
        return 0;
    }
    for (size_t i = 0; i < record->length; ++i) {
        char byte[3] = {hex[2 * i], hex[2 * i + 1], '\0'};

        record->bytes[i] = (uint8_t)strtoul(byte, NULL, 16);
    }
    return 1;
}

static int parse_line(const emu_t *emu, record_t *record, char *line)
{
    char              *colon = strstr(line, " :");
    unsigned long long time;
    int                head = 0;

    if (colon == NULL) {
        return 0;
    }
    *colon = '\0';
    if (sscanf(line, "%c %llu %u %d %n", &record->kind, &time, &record->node, &record->pe, &head) !=
            4 ||
        record->node >= emu->num_nodes || record->pe < -1 ||
        record->pe >= (int)emu->config.pe_max || strlen(line + head) >= TEXT_MAX) {
        return 0;
    }
    record->time = time;
    strcpy(record->text, line + head);
    colon += 2 + (colon[2] == ' ');
    return *colon == '\0' || *colon == '\n' || parse_bytes(record, colon);
}

static int read_log(const emu_t *emu, const char *path)
{
    FILE  *file = fopen(path, "re");
    char  *line = NULL;
    size_t size = 0, room = 0;
    int    sound = 1;

    if (file == NULL) {
        perror(path);
        return 0;
    }
    while (sound && getline(&line, &size, file) > 0) {
        if (replay.count == room) {
            room           = room * 2 + 1024;
            replay.records = realloc(replay.records, room * sizeof(record_t));
            if (replay.records == NULL) {
                abort();
            }
        }
        memset(&replay.records[replay.count], 0, sizeof(record_t));
        sound = parse_line(emu, &replay.records[replay.count++], line);
        if (!sound) {
            fprintf(stderr, "angara_emu: %s: line %zu isn't of a log of so many nodes and PEs\n",
                    path, replay.count);
        }
    }
    free(line);
    fclose(file);
    return sound;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static int ends_epoch(const record_t *record)
{
    return strchr("BEARD", record->kind) != NULL;
}

static void place(emu_node_t *node, uint64_t bus, const record_t *record)
{
    void *to = emu_bus(node, bus, record->length);

    if (to != NULL && record->length != 0) {
        memcpy(to, record->bytes, record->length);
    }
}

/* What was read as 0 is told from what wasn't read, which is 0 too; it makes no sense either way.
 */
static void place_word(emu_node_t *node, uint64_t bus, const record_t *record)
{
    uint64_t *to = emu_bus(node, bus, sizeof(*to));

    place(node, bus, record);
    if (to != NULL && *to == 0) {
        *to = 1;
    }
}

/* Put what the node's device reads from this record to its next epoch where it will look. */
static void fill_memory(emu_node_t *node, const record_t *from)
{
    const record_t *end = replay.records + replay.count;

    for (const record_t *record = from + 1; record < end; ++record) {
        uint64_t value;

        if (record->node != node->id) {
            continue;
        }
        if (ends_epoch(record)) {
            break;
        }
        value = strtoull(record->text, NULL, 10);
        if (record->kind == 'M') {
            place_word(node, node->mr_table + value * sizeof(struct angara_hw_mr), record);
        } else if (record->kind == 'P') {
            place_word(node, value, record);
        } else if (record->kind == 'W') {
            place(node, value, record);
        }
    }
}

/* ---- decisions ------------------------------------------------------------------------------- */

static int same_pair(const fault_t *a, const fault_t *b)
{
    return a->node == b->node && a->pe == b->pe &&
           strtoul(a->text, NULL, 10) == strtoul(b->text, NULL, 10);
}

/* The pair's first fault of the other side must be the same one. */
static void match_fault(const fault_t *fault)
{
    for (unsigned i = 0; i < replay.num_faults; ++i) {
        fault_t *other = &replay.faults[i];

        if (other->logged == fault->logged || !same_pair(other, fault)) {
            continue;
        }
        if (strcmp(other->text, fault->text) != 0) {
            differ(&replay.records[replay.at], "another fault");
        }
        memmove(other, other + 1, (--replay.num_faults - i) * sizeof(fault_t));
        return;
    }
    if (replay.num_faults < FAULTS_MAX) {
        replay.faults[replay.num_faults++] = *fault;
    }
}

void emu_replay_decided(emu_node_t *node, char kind, int pe, const char *text)
{
    fault_t fault = {.node = node->id, .pe = pe};

    if (kind == 'F') {
        strcpy(fault.text, text);
        match_fault(&fault);
    }
}

static void check_fault(const record_t *record)
{
    fault_t fault = {.node = record->node, .pe = record->pe, .logged = 1};

    strcpy(fault.text, record->text);
    match_fault(&fault);
}

/* ---- handing over ---------------------------------------------------------------------------- */

static void progress(emu_t *emu)
{
    for (unsigned n = 0; n < emu->num_nodes; ++n) {
        for (uint32_t i = 0; i < emu->config.pe_max; ++i) {
            emu_pe_t *pe = &emu->nodes[n].pes[i];
            unsigned  pending;

            if (pe->state != ANGARA_PE_RUNNING || !emu->nodes[n].dma) {
                continue;
            }
            do { /* as long as it leads anywhere: not while a link is down */
                pending = pe->engine.pending;
                ang_engine_progress(&pe->engine);
            } while (pe->engine.pending != 0 && pe->engine.pending != pending);
        }
    }
}

/* A line is written when the waiting is over. */
static void wait_for_links(emu_t *emu)
{
    emu->now += 1000000ull * emu->config.timeout_ms;
    progress(emu);
}

static void hand_command(emu_pe_t *pe, const record_t *record)
{
    struct angara_desc desc;

    memcpy(&desc, record->bytes, sizeof(desc));
    /* Granules are not counted here: every put of the log before this line has been performed. */
    if (desc.pio_prod <= pe->pio_cons + pe->node->emu->config.pio_bytes / ANGARA_PIO_GRANULE) {
        pe->pio_cons = desc.pio_prod > pe->pio_cons ? desc.pio_prod : pe->pio_cons;
    }
    pe->engine.turn_bytes = UINT64_MAX; /* there are no turns here */
    if (emu_cmd_execute(pe, &desc) == EMU_LATER) {
        wait_for_links(pe->node->emu);
        if (emu_cmd_execute(pe, &desc) == EMU_LATER) {
            differ(record, "the descriptor has to wait");
        }
    }
    if (pe->state != atoi(record->text)) {
        differ(record, "another state of the PE");
    }
}

static void hand_put(emu_pe_t *pe, const record_t *record)
{
    struct angara_put head;

    memcpy(&head, record->bytes, sizeof(head));
    if (emu_put_granules(pe, &head, (uint32_t)atoi(record->text)) != 0) {
        memcpy(pe->put, record->bytes, record->length);
        if (emu_put_execute(pe) == EMU_LATER) {
            wait_for_links(pe->node->emu);
            if (emu_put_execute(pe) == EMU_LATER) {
                differ(record, "the put has to wait");
            }
        }
    }
}

static void hand_admin(emu_node_t *node, const record_t *record)
{
    struct angara_hw_cmd cmd;
    uint32_t             generation;

    memcpy(&cmd, record->bytes, sizeof(cmd));
    if (emu_admin_execute(node, &cmd, &generation) != (uint32_t)atoi(record->text)) {
        differ(record, "another outcome");
    }
}

static void hand_node(emu_node_t *node, const record_t *record)
{
    unsigned long long value = 0, size = 0;

    sscanf(record->text, "%llu %llu", &value, &size);
    switch (record->kind) {
    case 'B':
        if (node->ram == NULL && emu_memory_map(node) != 0) {
            differ(record, "no memory for the replay");
            return;
        }
        emu_node_attach(node);
        break;
    case 'E':
        emu_node_detach(node);
        break;
    case 'R':
        node->control->reset_req = (uint32_t)value;
        emu_node_handshakes(node);
        break;
    case 'D':
        node->control->dma_req = (uint32_t)value;
        emu_node_handshakes(node);
        break;
    case 'A':
        hand_admin(node, record);
        break;
    case 'L':
        emu_node_link(node, value != 0);
        break;
    case 'Y':
        node->emu->bad_keys = (unsigned)value;
        break;
    case 'T':
        node->emu->config.timeout_ms = (uint32_t)value;
        break;
    case 'Z':
        emu_memory_add(node, value, size, NULL);
        break;
    default:
        break;
    }
}

static size_t wanted_length(char kind)
{
    return kind == 'A' ? sizeof(struct angara_hw_cmd) :
           kind == 'C' ? sizeof(struct angara_desc) :
           kind == 'U' ? sizeof(struct angara_put) :
                         0;
}

static void hand_over(emu_t *emu, const record_t *record)
{
    emu_node_t *node = &emu->nodes[record->node];
    emu_pe_t   *pe   = record->pe >= 0 ? &node->pes[record->pe] : NULL;

    if (record->length < wanted_length(record->kind)) {
        differ(record, "bytes are missing");
    } else if (record->kind == 'F') {
        check_fault(record);
    } else if (strchr("CUX", record->kind) == NULL) {
        hand_node(node, record);
    } else if (pe == NULL || pe->state == EMU_PE_FREE) {
        differ(record, "there is no such PE");
    } else if (record->kind == 'X') { /* decided on a doorbell, or by the line that follows */
        if (strncmp(record->text, "doorbell", 8) == 0) {
            emu_pe_fail(pe, record->text);
        }
    } else if (record->kind == 'C') {
        hand_command(pe, record);
    } else {
        hand_put(pe, record);
    }
    if (ends_epoch(record)) {
        fill_memory(node, record);
    }
}

int emu_replay(emu_t *emu, const char *path)
{
    emu->replaying    = 1;
    emu->config.chaos = 0;
    replay.faults     = calloc(FAULTS_MAX, sizeof(fault_t));
    if (replay.faults != NULL && read_log(emu, path)) {
        for (; replay.at < replay.count; ++replay.at) {
            emu->now = replay.records[replay.at].time;
            progress(emu);
            hand_over(emu, &replay.records[replay.at]);
        }
        for (unsigned i = 0; i < replay.num_faults; ++i) {
            const fault_t *fault = &replay.faults[i];

            printf("node %u, PE %d: fault (pair, status) %s only %s\n", fault->node, fault->pe,
                   fault->text, fault->logged ? "in the log" : "now");
        }
        printf("%zu lines, %u differences\n", replay.count, replay.different + replay.num_faults);
    } else {
        replay.different = 1;
    }
    for (size_t i = 0; i < replay.count; ++i) {
        free(replay.records[i].bytes);
    }
    free(replay.records);
    for (unsigned i = 0; i < emu->num_nodes; ++i) {
        emu_node_detach(&emu->nodes[i]);
    }
    free(replay.faults);
    return replay.different != 0 || replay.num_faults != 0;
}
