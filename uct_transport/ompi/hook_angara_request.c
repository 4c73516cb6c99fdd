/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whether this job asked for the Angara transport: reads UCX's transport lists the way UCX does.
 * Touches nothing but the environment, and that only for reading.
 */
#include "hook_angara.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

typedef enum {
    TL_LIST_UNSET,  /* no such list */
    TL_LIST_NAMES,  /* names the transport */
    TL_LIST_ALLOWS, /* doesn't name it and doesn't exclude it: "all", "^tcp" */
    TL_LIST_EXCLUDES
} tl_list_t;

/*
 * One element of a list: "angara", or "\angara" where UCX is told not to look for an alias of that
 * name. "angara:aux" allows the transport for wire-up only, which moves no data.
 */
static bool tl_element_matches(const char *element, size_t length)
{
    if ((length > 0) && (*element == '\\')) {
        ++element;
        --length;
    }
    return (length == strlen(HOOK_ANGARA_TL_NAME)) &&
           !strncmp(element, HOOK_ANGARA_TL_NAME, length);
}

static bool tl_element_is(const char *element, size_t length, const char *word)
{
    return (length == strlen(word)) && !strncmp(element, word, length);
}

const char *hook_angara_list_next(const char *at, size_t *length_p)
{
    at += strspn(at, ",");
    *length_p = strcspn(at, ",");
    return (*length_p > 0) ? at : NULL;
}

/* "all" counts for UCX in the first place only; "any" is Open MPI's word for it. */
static bool tl_list_is_all(const char *list)
{
    size_t      length;
    const char *first = hook_angara_list_next(list, &length);

    return (first != NULL) &&
           (tl_element_is(first, length, "all") || tl_element_is(first, length, "any"));
}

static tl_list_t tl_list_parse(const char *list)
{
    const char *element;
    size_t      length;
    bool        negate;

    if (list == NULL) {
        return TL_LIST_UNSET;
    }

    negate = *list == '^';
    for (element = hook_angara_list_next(list + negate, &length); element != NULL;
         element = hook_angara_list_next(element + length, &length)) {
        if (tl_element_matches(element, length)) {
            return negate ? TL_LIST_EXCLUDES : TL_LIST_NAMES;
        }
    }
    return negate || tl_list_is_all(list) ? TL_LIST_ALLOWS : TL_LIST_EXCLUDES;
}

/* A list in the application's own name space takes the place of the general one. */
static const char *list_env(const char *specific, const char *general)
{
    const char *value = getenv(specific);

    return (value != NULL) ? value : getenv(general);
}

static tl_list_t tl_list_env(const char *specific, const char *general)
{
    return tl_list_parse(list_env(specific, general));
}

/* The name of a NIC, angara0 as the library has it: as one element of a list. */
static bool is_nic(const char *element, size_t length)
{
    const size_t prefix = strlen(HOOK_ANGARA_TL_NAME);
    size_t       digits = prefix;

    if ((length <= prefix) || (strncasecmp(element, HOOK_ANGARA_TL_NAME, prefix) != 0)) {
        return false;
    }
    while ((digits < length) && isdigit((unsigned char)element[digits])) {
        ++digits;
    }
    return digits == length;
}

/* UCX's list of devices, of an application's name space or the general one, has NICs only. */
static bool list_is_nics(const char *specific)
{
    const char *list = list_env(specific, "UCX_NET_DEVICES");
    const char *element;
    size_t      length;
    bool        has_any = false;

    for (element = (list != NULL) ? hook_angara_list_next(list, &length) : NULL; element != NULL;
         element = hook_angara_list_next(element + length, &length)) {
        if (!is_nic(element, length)) {
            return false;
        }
        has_any = true;
    }
    return has_any;
}

/* Does the user want a NIC and nothing else, whether there is one or not? */
static bool is_nic_named(bool is_openshmem)
{
    const char *device = getenv("ANGARA_DEVICE");

    return ((device != NULL) &&
            ((strcasecmp(device, "nic") == 0) || is_nic(device, strlen(device)))) ||
           list_is_nics("MPI_UCX_NET_DEVICES") ||
           (is_openshmem && list_is_nics("OSHMEM_UCX_NET_DEVICES"));
}

hook_angara_request_t hook_angara_request_get(int enable, const char *openmpi_tls,
                                              bool is_openshmem)
{
    tl_list_t mpi, openshmem, openmpi;

    if (enable >= 0) {
        return enable ? HOOK_ANGARA_REQUEST_PARAM : HOOK_ANGARA_REQUEST_DENIED;
    }

    mpi       = tl_list_env("MPI_UCX_TLS", "UCX_TLS");
    openshmem = is_openshmem ? tl_list_env("OSHMEM_UCX_TLS", "UCX_TLS") : TL_LIST_EXCLUDES;
    openmpi   = tl_list_parse(openmpi_tls);

    if ((mpi == TL_LIST_NAMES) || (openshmem == TL_LIST_NAMES)) {
        return HOOK_ANGARA_REQUEST_TLS;
    }
    if ((mpi == TL_LIST_EXCLUDES) && (openshmem == TL_LIST_EXCLUDES)) {
        return HOOK_ANGARA_REQUEST_DENIED;
    }
    /* Open MPI's list says only which transports make UCX worth having: it can ask for ours if
     * UCX is free to use it, but what it leaves out is not forbidden. */
    if (openmpi == TL_LIST_NAMES) {
        return HOOK_ANGARA_REQUEST_TLS;
    }
    if (is_nic_named(is_openshmem)) {
        return HOOK_ANGARA_REQUEST_NAMED;
    }
    if (access(HOOK_ANGARA_DEVICE, R_OK | W_OK) == 0) {
        return HOOK_ANGARA_REQUEST_NIC;
    }
    return HOOK_ANGARA_REQUEST_NONE;
}

/* Of UCX's transports: does it carry messages to other processes? Those that don't are few. */
static bool tl_carries(const char *element, size_t length)
{
    static const char *const others[] = {"self", "cma", "knem",  "cuda", "gdr_copy",
                                         "rocm", "ze_", "gaudi", "gga",  "angara"};
    size_t                   i;

    if (*element == '\\') {
        ++element;
        --length;
    }
    for (i = 0; i < sizeof(others) / sizeof(others[0]); ++i) {
        if ((length >= strlen(others[i])) && !strncmp(element, others[i], strlen(others[i]))) {
            return false;
        }
    }
    return memchr(element, ':', length) == NULL; /* tcp:aux wires up only */
}

/* UCX's list; NULL: everything. */
static const char *tl_list(void)
{
    return list_env("MPI_UCX_TLS", "UCX_TLS");
}

/* Is one of these words in the list? */
static bool tl_list_has(const char *list, const char *const *words)
{
    const char *element;
    size_t      length;

    for (element = hook_angara_list_next(list, &length); element != NULL;
         element = hook_angara_list_next(element + length, &length)) {
        for (const char *const *word = words; *word != NULL; ++word) {
            if (tl_element_is(element + (*element == '\\'), length - (*element == '\\'), *word)) {
                return true;
            }
        }
    }
    return false;
}

/* Does the list permit a transport that has these names? */
static bool tl_list_permits(const char *list, const char *const *names)
{
    return (list == NULL) || ((*list == '^') ? !tl_list_has(list + 1, names) :
                                               tl_list_is_all(list) || tl_list_has(list, names));
}

/* The transports that are everywhere, with the words that UCX has for several. */
static const char *const tl_tcp[]   = {"tcp", NULL};
static const char *const tl_posix[] = {"posix", "mm", "sm", "shm", NULL};
static const char *const tl_sysv[]  = {"sysv", "mm", "sm", "shm", NULL};
static const char *const tl_ib[]    = {"ib", NULL};

static bool tl_list_permits_memory(const char *list)
{
    return tl_list_permits(list, tl_posix) || tl_list_permits(list, tl_sysv);
}

bool hook_angara_request_names_memory(void)
{
    return (tl_list_parse(tl_list()) == TL_LIST_NAMES) && tl_list_permits_memory(tl_list());
}

bool hook_angara_request_has_others(void)
{
    const char *list = tl_list(), *element;
    size_t      length;

    if ((list == NULL) || (*list == '^') || tl_list_is_all(list)) {
        return tl_list_permits(list, tl_tcp) || tl_list_permits_memory(list) ||
               (tl_list_permits(list, tl_ib) && (access("/sys/class/infiniband", F_OK) == 0));
    }
    for (element = hook_angara_list_next(list, &length); element != NULL;
         element = hook_angara_list_next(element + length, &length)) {
        if (tl_carries(element, length)) {
            return true;
        }
    }
    return false;
}

unsigned hook_angara_request_peers(unsigned ranks)
{
    const char *mpi   = getenv("MPI_UCX_NUM_EPS");
    const char *value = (mpi != NULL) ? mpi : getenv("UCX_NUM_EPS");
    int         peers = (value != NULL) ? atoi(value) : 0;

    return (peers > 0) ? (unsigned)peers : ranks; /* "auto" is none */
}

/* Letters, large or small, to insert, delete or replace until one word is the other: Levenshtein's
 * distance. */
static size_t distance(const char *word, size_t length, const char *other)
{
    size_t other_length = strlen(other), row[32], i, k, left_above, above;

    if (other_length >= sizeof(row) / sizeof(row[0])) {
        return SIZE_MAX;
    }
    for (k = 0; k <= other_length; ++k) {
        row[k] = k;
    }
    for (i = 1; i <= length; ++i) {
        left_above = row[0];
        row[0]     = i;
        for (k = 1; k <= other_length; ++k) {
            above  = row[k];
            row[k] = left_above + (tolower((unsigned char)word[i - 1]) != other[k - 1]);
            if (above + 1 < row[k]) {
                row[k] = above + 1;
            }
            if (row[k - 1] + 1 < row[k]) {
                row[k] = row[k - 1] + 1;
            }
            left_above = above;
        }
    }
    return row[other_length];
}

const char *hook_angara_request_mistake(char *word, size_t size)
{
    const char *name = (getenv("MPI_UCX_TLS") != NULL) ? "MPI_UCX_TLS" : "UCX_TLS";
    const char *list = getenv(name), *element;
    size_t      length;

    if ((list == NULL) || (*list == '^')) {
        return NULL;
    }
    for (element = hook_angara_list_next(list, &length); element != NULL;
         element = hook_angara_list_next(element + length, &length)) {
        /* UCX's log has the device behind it, angara/soft0, which isn't part of the name. */
        if (distance(element, strcspn(element, ",/"), HOOK_ANGARA_TL_NAME) <= 2) {
            snprintf(word, size, "%.*s", (int)length, element);
            return name;
        }
    }
    return NULL;
}

const char *hook_angara_request_str(hook_angara_request_t request)
{
    switch (request) {
    case HOOK_ANGARA_REQUEST_NONE:
        return "nothing asks for the transport";
    case HOOK_ANGARA_REQUEST_DENIED:
        return "the transport is excluded";
    case HOOK_ANGARA_REQUEST_MISTAKE:
        return "a name is wrong";
    case HOOK_ANGARA_REQUEST_PARAM:
        return "hook_angara_enable is set";
    case HOOK_ANGARA_REQUEST_TLS:
        return "the transport list names it";
    case HOOK_ANGARA_REQUEST_NAMED:
        return "ANGARA_DEVICE or UCX_NET_DEVICES names a NIC";
    case HOOK_ANGARA_REQUEST_NIC:
        return HOOK_ANGARA_DEVICE " is present";
    }
    return "unknown";
}
