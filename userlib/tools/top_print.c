/* SPDX-License-Identifier: BSD-3-Clause */
/* Prints samples: as a table of rates or totals, in full, as JSON, as Prometheus's text format. */
#include "top.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* ---- what happened between two samples ------------------------------------------------------- */

static const top_process_t *same_process(const top_sample_t *sample, const top_process_t *process)
{
    for (unsigned i = 0; sample != NULL && i < sample->count; ++i) {
        if (sample->processes[i].pid == process->pid &&
            sample->processes[i].inode == process->inode) {
            return &sample->processes[i];
        }
    }
    return NULL;
}

static int compare(const void *a, const void *b)
{
    return top_compare(a, b);
}

static const top_object_t *same_object(const top_process_t *process, const top_object_t *object)
{
    return process == NULL ?
               NULL :
               bsearch(object, process->objects, process->count, sizeof(*object), compare);
}

/* Counts of an object, in a second or in all. */
typedef struct {
    const top_object_t *now, *before;
    double              seconds; /* that they are divided by */
} change_t;

static double count_of(const change_t *change, const char *name)
{
    uint64_t now    = top_value(change->now, name);
    uint64_t before = change->before != NULL ? top_value(change->before, name) : 0;

    return change->seconds > 0 && now > before ? (double)(now - before) / change->seconds : 0;
}

/* A line of the table. */
enum { SENT, RECEIVED, MESSAGE_MB, PUTS, GETS, RMA_MB, ATOMICS, MARKERS, RETRIES, FAULTS, COLUMNS };

static const char *const titles[COLUMNS] = {"SENT",   "RECV",    "MSG-MB",  "PUTS",    "GETS",
                                            "RMA-MB", "ATOMICS", "MARKERS", "RETRIES", "FAULTS"};

/* Who counts: the transport has its kinds, the library has its own. */
typedef enum { OF_TRANSPORT, OF_LIBRARY, OF_PE, OF_NOBODY } counter_of_t;

/* Counters of the columns. */
static const struct {
    counter_of_t of;
    unsigned     column;
    const char  *counter;
    double       scale;
} sources[] = {
    {OF_TRANSPORT, SENT, "eager_tx", 1},
    {OF_TRANSPORT, SENT, "sar_tx", 1},
    {OF_TRANSPORT, RECEIVED, "eager_rx", 1},
    {OF_TRANSPORT, RECEIVED, "sar_rx", 1},
    {OF_TRANSPORT, MESSAGE_MB, "tx_bytes", 1e-6},
    {OF_TRANSPORT, MESSAGE_MB, "rx_bytes", 1e-6},
    {OF_TRANSPORT, RETRIES, "no_credit", 1},
    {OF_LIBRARY, PUTS, "puts", 1},
    {OF_LIBRARY, GETS, "gets", 1},
    {OF_LIBRARY, RMA_MB, "bytes", 1e-6},
    {OF_LIBRARY, ATOMICS, "atomics", 1},
    {OF_LIBRARY, MARKERS, "markers", 1},
    {OF_LIBRARY, RETRIES, "refused", 1},
    {OF_LIBRARY, FAULTS, "faults", 1},
};

/* Which way messages and transfers took. */
static const struct {
    counter_of_t of;
    const char  *counter;
} ways[] = {
    {OF_TRANSPORT, "am_short"},  {OF_TRANSPORT, "am_bcopy"},  {OF_TRANSPORT, "am_zcopy"},
    {OF_TRANSPORT, "put_short"}, {OF_TRANSPORT, "put_bcopy"}, {OF_TRANSPORT, "put_zcopy"},
    {OF_TRANSPORT, "get_short"}, {OF_TRANSPORT, "get_bcopy"}, {OF_TRANSPORT, "get_zcopy"},
    {OF_PE, "services"},         {OF_PE, "gpu_copies"},       {OF_PE, "gpu_staged"},
};

#define NUM(_array) (sizeof(_array) / sizeof((_array)[0]))

typedef struct {
    double columns[COLUMNS];
    double ways[NUM(ways)];
} line_t;

/* Kinds of a PE as a whole, and of one of its peers. */
static const struct {
    const char  *name;
    counter_of_t of;
    int          is_peer;
} kinds[] = {{"interface", OF_TRANSPORT, 0},
             {"peers", OF_LIBRARY, 0},
             {"pe", OF_PE, 0},
             {"channel", OF_TRANSPORT, 1},
             {"peer", OF_LIBRARY, 1}};

static counter_of_t counter_of(const top_object_t *object, int is_peer)
{
    for (unsigned i = 0; i < NUM(kinds); ++i) {
        if (kinds[i].is_peer == is_peer && strcmp(object->kind->name, kinds[i].name) == 0) {
            return kinds[i].of;
        }
    }
    return OF_NOBODY;
}

static void line_add(line_t *line, counter_of_t of, const change_t *change)
{
    for (unsigned i = 0; i < NUM(sources); ++i) {
        if (sources[i].of == of) {
            line->columns[sources[i].column] += sources[i].scale *
                                                count_of(change, sources[i].counter);
        }
    }
    for (unsigned i = 0; i < NUM(ways); ++i) {
        if (ways[i].of == of) {
            line->ways[i] += count_of(change, ways[i].counter);
        }
    }
}

/* ---- the table ------------------------------------------------------------------------------- */

static const char *short_number(double value, char *text, size_t size)
{
    static const char letters[] = " kMGT";
    unsigned          letter    = 0;

    while (value >= 999.5 && letter < 4) {
        value /= 1000;
        letter++;
    }
    if (value == 0) {
        snprintf(text, size, "0");
    } else if (letter == 0) {
        snprintf(text, size, value < 9.95 ? "%.1f" : "%.0f", value);
    } else {
        snprintf(text, size, value < 9.95 ? "%.1f%c" : "%.0f%c", value, letters[letter]);
    }
    return text;
}

static void line_print(FILE *out, const line_t *line)
{
    char text[32];

    for (unsigned i = 0; i < COLUMNS; ++i) {
        fprintf(out, " %7s", short_number(line->columns[i], text, sizeof(text)));
    }
    fprintf(out, " ");
    for (unsigned i = 0; i < NUM(ways); ++i) {
        if (line->ways[i] > 0) {
            fprintf(out, " %s %s", ways[i].counter,
                    short_number(line->ways[i], text, sizeof(text)));
        }
    }
    fprintf(out, "\n");
}

static double seconds_between(uint64_t before, uint64_t now)
{
    return now > before ? (double)(now - before) * 1e-9 : 0;
}

static int is_empty(const line_t *line)
{
    static const line_t none;

    return memcmp(line, &none, sizeof(none)) == 0;
}

/* By the times at which the object was counted. `before` NULL: in all. */
static void change_close(change_t *change, const top_sample_t *before, const top_process_t *earlier)
{
    change->before  = same_object(earlier, change->now);
    change->seconds = before == NULL ?
                          1 :
                      change->before == NULL ?
                          0 :
                          seconds_between(change->before->time_ns, change->now->time_ns);
}

/* The lines of a process's peers. Objects of one stand together. */
static void print_peers(FILE *out, const top_sample_t *before, const top_process_t *process)
{
    const top_process_t *earlier = same_process(before, process);
    unsigned             next;

    for (unsigned i = 0; i < process->count; i = next) {
        const top_object_t *first = &process->objects[i];
        line_t              line  = {{0}, {0}};

        for (next = i; next < process->count && process->objects[next].pe == first->pe &&
                       strcmp(process->objects[next].label, first->label) == 0;
             ++next) {
            change_t change = {.now = &process->objects[next]};

            change_close(&change, before, earlier);
            line_add(&line, counter_of(change.now, 1), &change);
        }
        if (!is_empty(&line)) {
            fprintf(out, "   %-37.37s", first->label);
            line_print(out, &line);
        }
    }
}

/* The line of a process: of what PEs count as a whole, with peers that are gone. */
static void print_process(FILE *out, const top_sample_t *before, const top_sample_t *now,
                          const top_process_t *process)
{
    const top_process_t *earlier = same_process(before, process);
    line_t               line    = {{0}, {0}};
    uint64_t             newest  = 0;

    for (unsigned i = 0; i < process->count; ++i) {
        change_t change = {.now = &process->objects[i]};

        change_close(&change, before, earlier);
        line_add(&line, counter_of(change.now, 0), &change);
        newest = change.now->time_ns > newest ? change.now->time_ns : newest;
    }
    fprintf(out, "%-8d %-5s %-16.16s %7.1fs", (int)process->pid,
            process->head.rank[0] != '\0' ? process->head.rank : "-", process->head.program,
            seconds_between(newest, now->time_ns));
    line_print(out, &line);
}

void top_print_table(FILE *out, const top_sample_t *before, const top_sample_t *now, int peers)
{
    fprintf(out, "%-8s %-5s %-16s %8s", "PID", "RANK", "PROGRAM", "AGE");
    for (unsigned i = 0; i < COLUMNS; ++i) {
        fprintf(out, " %7s", titles[i]);
    }
    fprintf(out, "  WAYS (%s)\n",
            before != NULL ? "all numbers: in a second" : "all numbers: in all");
    for (unsigned i = 0; i < now->count; ++i) {
        print_process(out, before, now, &now->processes[i]);
        if (peers) {
            print_peers(out, before, &now->processes[i]);
        }
        if (now->processes[i].head.lost > 0) {
            fprintf(out, "   (%u objects of this process found no room on its board)\n",
                    now->processes[i].head.lost);
        }
    }
    if (now->count == 0) {
        fprintf(out, "no process with a PE whose counters can be seen%s\n",
                now->closed > 0 ? ": those of other users need root" : "");
    }
}

void top_print_all(FILE *out, const top_sample_t *now)
{
    for (unsigned i = 0; i < now->count; ++i) {
        const top_process_t *process = &now->processes[i];

        fprintf(out, "pid %d rank %s program %s host %s version %s\n", (int)process->pid,
                process->head.rank[0] != '\0' ? process->head.rank : "-", process->head.program,
                process->head.host, process->head.version);
        for (unsigned j = 0; j < process->count; ++j) {
            const top_object_t *object = &process->objects[j];

            fprintf(out, "  %s of PE %u: %s\n   ", object->kind->name, object->pe, object->label);
            for (unsigned k = 0; k < object->kind->count; ++k) {
                fprintf(out, " %s %llu", object->kind->counters[k],
                        (unsigned long long)object->values[k]);
            }
            fprintf(out, "\n");
        }
    }
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *object_json(const top_sample_t *now, const top_object_t *object)
{
    json_t *counters = json_object();
    int64_t age      = (int64_t)(now->time_ns - object->time_ns);

    for (unsigned i = 0; i < object->kind->count; ++i) {
        json_object_set_new(counters, object->kind->counters[i],
                            json_integer((json_int_t)object->values[i]));
    }
    return json_pack("{s:s, s:I, s:s, s:f, s:o}", "kind", object->kind->name, "pe",
                     (json_int_t)object->pe, "label", object->label, "age_s",
                     age > 0 ? (double)age * 1e-9 : 0.0, "counters", counters);
}

static json_t *process_json(const top_sample_t *now, const top_process_t *process)
{
    const ang_board_head_t *head    = &process->head;
    json_t                 *objects = json_array();

    for (unsigned i = 0; i < process->count; ++i) {
        json_array_append_new(objects, object_json(now, &process->objects[i]));
    }
    return json_pack("{s:i, s:s, s:s, s:s, s:s, s:I, s:o}", "pid", (int)process->pid, "rank",
                     head->rank, "program", head->program, "host", head->host, "version",
                     head->version, "lost", (json_int_t)head->lost, "objects", objects);
}

void top_print_json(FILE *out, const top_sample_t *now)
{
    json_t *processes = json_array();
    json_t *all;

    for (unsigned i = 0; i < now->count; ++i) {
        json_array_append_new(processes, process_json(now, &now->processes[i]));
    }
    all = json_pack("{s:f, s:o}", "time", (double)now->time_ns * 1e-9, "processes", processes);
    json_dumpf(all, out, JSON_COMPACT | JSON_REAL_PRECISION(15));
    fprintf(out, "\n");
    json_decref(all);
}

/* ---- Prometheus ------------------------------------------------------------------------------ */

/* A label's value: printable already. */
static void print_quoted(FILE *out, const char *name, const char *text)
{
    fprintf(out, "%s=\"", name);
    for (; *text != '\0'; ++text) {
        fprintf(out, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    }
    fprintf(out, "\"");
}

/* All samples of one counter stand together, as the format demands. */
static void print_metric(FILE *out, const top_sample_t *now, const char *kind, const char *counter)
{
    fprintf(out, "# TYPE angara_%s_%s_total counter\n", kind, counter);
    for (unsigned i = 0; i < now->count; ++i) {
        const top_process_t *process = &now->processes[i];

        for (unsigned j = 0; j < process->count; ++j) {
            const top_object_t *object = &process->objects[j];

            if (strcmp(object->kind->name, kind) != 0) {
                continue;
            }
            for (unsigned k = 0; k < object->kind->count; ++k) {
                if (strcmp(object->kind->counters[k], counter) == 0) {
                    fprintf(out, "angara_%s_%s_total{pid=\"%d\",", kind, counter,
                            (int)process->pid);
                    print_quoted(out, "rank", process->head.rank);
                    print_quoted(out, ",program", process->head.program);
                    print_quoted(out, ",host", process->head.host);
                    fprintf(out, ",pe=\"%u\",", object->pe);
                    print_quoted(out, "name", object->label);
                    fprintf(out, "} %llu\n", (unsigned long long)object->values[k]);
                    break;
                }
            }
        }
    }
}

/* A process before this one, or a kind before this one, has had it. */
static int is_printed(const top_sample_t *now, unsigned process, unsigned kind, const char *counter)
{
    const char *name = now->processes[process].kinds[kind].name;

    for (unsigned i = 0; i <= process; ++i) {
        unsigned before = i < process ? now->processes[i].head.kinds : kind;

        for (unsigned j = 0; j < before; ++j) {
            const ang_board_kind_t *other = &now->processes[i].kinds[j];

            for (unsigned k = 0; strcmp(other->name, name) == 0 && k < other->count; ++k) {
                if (strcmp(other->counters[k], counter) == 0) {
                    return 1;
                }
            }
        }
    }
    return 0;
}

void top_print_prometheus(FILE *out, const top_sample_t *now)
{
    for (unsigned i = 0; i < now->count; ++i) {
        for (unsigned j = 0; j < now->processes[i].head.kinds; ++j) {
            const ang_board_kind_t *kind = &now->processes[i].kinds[j];

            for (unsigned k = 0; k < kind->count; ++k) {
                if (!is_printed(now, i, j, kind->counters[k])) {
                    print_metric(out, now, kind->name, kind->counters[k]);
                }
            }
        }
    }
}
