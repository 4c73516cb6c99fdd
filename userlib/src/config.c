/* SPDX-License-Identifier: BSD-3-Clause */
/* See config.h. Reads the environment, writes ang_config and the log level. */
#include "config.h"

#include "foreign.h"
#include "log.h"

#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

ang_config_t ang_config;

typedef enum {
    ANG_VAR_TEXT,
    ANG_VAR_NUMBER,
    ANG_VAR_POWER2,
    ANG_VAR_SIZE,
    ANG_VAR_BOOL,
    ANG_VAR_ENUM
} ang_var_kind_t;

typedef struct {
    const char    *name;
    const char    *default_text;
    ang_var_kind_t kind;
    size_t         offset;
    uint64_t       min;
    uint64_t       max;
    const char    *choices; /* ANG_VAR_ENUM: "first|second": values 0, 1, ... */
    const char    *help;
    int            soft_only; /* a NIC ignores it; the help says what does it there */
} ang_var_t;

#define FIELD(_name) offsetof(ang_config_t, _name)

static const ang_var_t ang_vars[] = {
    {"ANGARA_DEVICE", "auto", ANG_VAR_TEXT, FIELD(device), 0, 0, NULL,
     "Device to open where the program names none: soft, soft0, nic, angara0, or auto (the NIC "
     "if there is one, else the soft fabric)."},
    {"ANGARA_JOB_KEY", "0", ANG_VAR_NUMBER, FIELD(job_key), 0, (1ull << 56) - 1, NULL,
     "Job key that the PEs of a NIC ask for, 1 to 72057594037927935: the administrator must have "
     "granted it to the user (angara_jobkey). They reach PEs of the same key only. 0: the user's "
     "own. The soft fabric has no job keys."},
    {"ANGARA_GPU", "auto", ANG_VAR_ENUM, FIELD(gpu), 0, 0, "auto|rocm|cuda|none",
     "Which GPUs' memory may be used: auto (of every runtime that the program has loaded), rocm, "
     "cuda, or none. Other GPUs' memory is refused."},
    {"ANGARA_LOG_LEVEL", "warn", ANG_VAR_ENUM, FIELD(log_level), 0, 0, "error|warn|info|debug",
     "What the library writes to stderr: error, warn, info or debug."},
    {"ANGARA_WATCH", "y", ANG_VAR_BOOL, FIELD(watch), 0, 1, NULL,
     "Let angara_top, run by the same user or root, see the counters of this process, y or n. It "
     "takes one descriptor of the process."},
    {"ANGARA_SOFT_NODE", "0", ANG_VAR_NUMBER, FIELD(node), 0, 0xfffffffe, NULL,
     "Node id of this process on the soft fabric, 0 to 4294967294. Processes of one host with "
     "different ids count as different nodes."},
    {"ANGARA_SOFT_LOOPBACK", "y", ANG_VAR_BOOL, FIELD(loopback), 0, 1, NULL,
     "Loopback mode of the soft fabric, y or n. With n the initiator can't get from its own node, "
     "as on a NIC without a loopback port: gets, atomics and markers become requests to the peer."},
    {"ANGARA_SOFT_CMA", "y", ANG_VAR_BOOL, FIELD(cma), 0, 1, NULL,
     "Use process_vm_readv and process_vm_writev where the kernel permits, y or n. With n the "
     "peer's helper thread moves the data."},
    {"ANGARA_SOFT_CATCH", "y", ANG_VAR_BOOL, FIELD(catch_faults), 0, 1, NULL,
     "Catch SIGSEGV and SIGBUS while a peer's request is performed on memory that the program may "
     "have unmapped, y or n. With n the kernel is asked about it each time, which is slower."},
    {"ANGARA_SOFT_ANSWER", "30000", ANG_VAR_NUMBER, FIELD(soft_answer_ms), 100, 3600000, NULL,
     "How long a request to a peer's process may stay unanswered, milliseconds, 100 to 3600000: "
     "then the pair ends with an error. Time in which the peer is stopped doesn't count."},
    {"ANGARA_CHAOS", "0", ANG_VAR_NUMBER, FIELD(chaos), 0, UINT64_MAX, NULL,
     "Seed of chaos mode, 0 for off. For tests: delays, splits and reorders whatever the NIC model "
     "leaves unordered, and scribbles over bytes that are not delivered yet. Slow. On a NIC: the "
     "option --chaos of the emulated one.",
     1},
    {"ANGARA_CHAOS_DELAY", "50", ANG_VAR_NUMBER, FIELD(chaos_delay_us), 0, 1000000, NULL,
     "Longest usual delay of an operation in chaos mode, microseconds, 0 to 1000000. On a NIC: the "
     "option --chaos-delay of the emulated one.",
     1},
    {"ANGARA_TURN_BYTES", "1M", ANG_VAR_SIZE, FIELD(turn_bytes), 8192, 1ull << 40, NULL,
     "A post, or a turn of progress, copies at most so many bytes of offload operations, 8K to 1T. "
     "Longer ones go on piece by piece with later turns, and others between the pieces. A NIC "
     "has turns of its own: there it counts for operations on the own PE."},
    {"ANGARA_JOINT_MIN", "256K", ANG_VAR_SIZE, FIELD(joint_min), 4096, 1ull << 40, NULL,
     "Puts and gets from so many bytes on, above 40 KiB, are copied by both processes, if the "
     "target polls: a quarter of it where no other operation waits, four times as many in memory "
     "that peers map; 4K to 1T, which is never. On a NIC: nothing, it moves them itself.",
     1},
    {"ANGARA_ASKED_MAX", "1T", ANG_VAR_SIZE, FIELD(asked_max), 4096, 1ull << 40, NULL,
     "Puts and gets of up to so many bytes, of memory that peers can't map, are asked of the "
     "target's process where that polls and is faster; up to 40 KiB in any case; 4K to 1T. On a "
     "NIC: nothing.",
     1},
    {"ANGARA_WINDOW_SIZE", "64M", ANG_VAR_SIZE, FIELD(window_size), 4096, 1ull << 40, NULL,
     "Put window of a PE where the program asks for none, bytes, 4K to 1T. Address space only: "
     "memory is taken when a part is committed."},
    {"ANGARA_EVENTS", "256", ANG_VAR_POWER2, FIELD(events), 16, 65536, NULL,
     "Records of a PE's event ring, a power of two, 16 to 65536. On a NIC: the parameter "
     "event_entries of the module angara_nic.",
     1},
    {"ANGARA_MR_MAX", "262144", ANG_VAR_NUMBER, FIELD(mr_max), 16, 1u << 24, NULL,
     "Regions that a domain can have, 16 to 16777216. Table memory is taken as it fills. On a NIC: "
     "the parameters mr_entries and mrs_per_user of the module angara_nic.",
     1},
    {"ANGARA_PEER_CHECK", "100", ANG_VAR_NUMBER, FIELD(peer_check_ms), 1, 60000, NULL,
     "How often dead peers are looked for, milliseconds, 1 to 60000: the bound within which an "
     "operation to a dead peer ends. On a NIC: none, it tells of dead peers itself.",
     1},
    {"ANGARA_PEER_WAIT", "2000", ANG_VAR_NUMBER, FIELD(peer_wait_ms), 1, 60000, NULL,
     "How long deregistration, reset, disconnect and the end of a PE wait for a peer that doesn't "
     "go on, because it has been stopped, say; milliseconds, 1 to 60000. On a NIC: 10 s, fixed.",
     1},
};

#define NUM_VARS (sizeof(ang_vars) / sizeof(ang_vars[0]))

extern char **environ;

static int parse_bool(const char *text, uint64_t *value)
{
    static const char *const yes[] = {"y", "yes", "1", "on", "true"};
    static const char *const no[]  = {"n", "no", "0", "off", "false"};

    for (unsigned i = 0; i < 5; ++i) {
        if (!strcasecmp(text, yes[i]) || !strcasecmp(text, no[i])) {
            *value = !strcasecmp(text, yes[i]);
            return 0;
        }
    }
    return -1;
}

/* A plain decimal or 0x number, with K, M, G or T where @a units. */
static int parse_number(const char *text, int units, uint64_t *value)
{
    static const char letters[] = "KMGT";
    const char       *letter;
    char             *end;
    unsigned          shift;

    if (!isdigit((unsigned char)text[0])) {
        return -1; /* strtoull would take signs and spaces */
    }
    errno  = 0;
    *value = strtoull(text, &end, 0);
    if (errno != 0) {
        return -1;
    }
    if (units && *end != '\0') {
        letter = strchr(letters, toupper((unsigned char)*end));
        if (letter == NULL) {
            return -1;
        }
        shift = 10 * (unsigned)(letter - letters + 1);
        if (*value > UINT64_MAX >> shift) {
            return -1;
        }
        *value <<= shift;
        end++;
        if (toupper((unsigned char)*end) == 'B') {
            end++;
        }
    }
    return *end == '\0' ? 0 : -1;
}

static int parse_enum(const char *text, const char *choices, uint64_t *value)
{
    size_t length = strlen(text);

    for (*value = 0; choices != NULL; ++*value) {
        const char *next = strchr(choices, '|');
        size_t      size = next ? (size_t)(next - choices) : strlen(choices);

        if (size == length && !strncasecmp(choices, text, size)) {
            return 0;
        }
        choices = next ? next + 1 : NULL;
    }
    return -1;
}

static int parse_value(const ang_var_t *var, const char *text, ang_config_t *config)
{
    void    *field = (char *)config + var->offset;
    uint64_t value = 0;
    int      ret   = -1;

    switch (var->kind) {
    case ANG_VAR_TEXT:
        if (strlen(text) == 0 || strlen(text) >= sizeof(config->device)) {
            return -1;
        }
        strcpy(field, text);
        return 0;
    case ANG_VAR_BOOL:
        ret = parse_bool(text, &value);
        break;
    case ANG_VAR_ENUM:
        ret = parse_enum(text, var->choices, &value);
        break;
    case ANG_VAR_NUMBER:
    case ANG_VAR_POWER2:
    case ANG_VAR_SIZE:
        ret = parse_number(text, var->kind == ANG_VAR_SIZE, &value);
        if (ret == 0 && (value < var->min || value > var->max)) {
            ret = -1;
        }
        if (var->kind == ANG_VAR_POWER2 && (value & (value - 1)) != 0) {
            ret = -1;
        }
        break;
    }
    if (ret == 0) {
        memcpy(field, &value, sizeof(value));
    }
    return ret;
}

static void warn_unknown(void)
{
    for (char **env = environ; env != NULL && *env != NULL; ++env) {
        size_t length = strcspn(*env, "=");
        int    known  = ang_is_foreign(*env);

        for (unsigned i = 0; !known && i < NUM_VARS; ++i) {
            known = strlen(ang_vars[i].name) == length && !strncmp(*env, ang_vars[i].name, length);
        }
        if (!known) {
            ang_log_alike(
                ANG_LOG_WARN,
                "%.*s is not a variable of this library and is ignored: angara_info --config "
                "lists them",
                (int)length, *env);
        }
    }
}

void ang_config_warn_nic(void)
{
    for (unsigned i = 0; i < NUM_VARS; ++i) {
        if (ang_vars[i].soft_only && getenv(ang_vars[i].name) != NULL) {
            ang_log_alike(ANG_LOG_WARN, "%s is about the soft fabric: a NIC ignores it. %s",
                          ang_vars[i].name, ang_vars[i].help);
        }
    }
}

angara_status_t ang_config_reload(void)
{
    angara_status_t status = ANGARA_OK;

    ang_log_start();
    for (unsigned i = 0; i < NUM_VARS; ++i) {
        const ang_var_t *var  = &ang_vars[i];
        const char      *text = getenv(var->name);

        parse_value(var, var->default_text, &ang_config);
        if (text != NULL && parse_value(var, text, &ang_config) != 0) {
            ang_log_alike(ANG_LOG_ERROR, "%s=\"%s\" is not a valid value. %s", var->name, text,
                          var->help);
            status = ANGARA_ERR_INVALID;
        }
    }
    ang_log_level = (ang_log_level_t)ang_config.log_level;
    warn_unknown();
    return status;
}

static angara_status_t ang_config_status;

static void load_once(void)
{
    ang_config_status = ang_config_reload();
}

angara_status_t ang_config_load(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, load_once);
    return ang_config_status;
}

/* Text of the value in force. */
static void print_value(const ang_var_t *var, char *text, size_t size)
{
    const char *field = (const char *)&ang_config + var->offset;
    const char *choice;
    uint64_t    value = 0;

    if (var->kind == ANG_VAR_TEXT) {
        snprintf(text, size, "%s", field);
        return;
    }
    memcpy(&value, field, sizeof(value));
    if (var->kind == ANG_VAR_BOOL) {
        snprintf(text, size, "%s", value ? "y" : "n");
    } else if (var->kind == ANG_VAR_ENUM) {
        for (choice = var->choices; value > 0; --value) {
            choice = strchr(choice, '|') + 1;
        }
        snprintf(text, size, "%.*s", (int)strcspn(choice, "|"), choice);
    } else {
        snprintf(text, size, "%llu", (unsigned long long)value);
    }
}

static const char *origin_of(const ang_var_t *var)
{
    const char  *text = getenv(var->name);
    ang_config_t scratch;

    return text == NULL                          ? "default" :
           parse_value(var, text, &scratch) == 0 ? "environment" :
                                                   "refused";
}

angara_status_t angara_config_var_sized(unsigned index, angara_config_var_t *out, size_t size)
{
    angara_config_var_t var = {0};

    if (index >= NUM_VARS || out == NULL) {
        return ANGARA_ERR_INVALID;
    }
    ang_config_load();
    var.name         = ang_vars[index].name;
    var.default_text = ang_vars[index].default_text;
    var.help         = ang_vars[index].help;
    var.origin       = origin_of(&ang_vars[index]);
    print_value(&ang_vars[index], var.value, sizeof(var.value));
    memcpy(out, &var, size < sizeof(var) ? size : sizeof(var));
    return ANGARA_OK;
}
