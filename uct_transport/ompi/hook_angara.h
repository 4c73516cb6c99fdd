/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the files of Open MPI's hook/angara component share. The component loads the Angara
 * transport into UCX and undoes the distribution's exclusion of UCX where the transport was asked
 * for. It never changes a choice that the user or the administrator made.
 */
#ifndef ANGARA_HOOK_ANGARA_H
#define ANGARA_HOOK_ANGARA_H

#include <stdbool.h>
#include <stddef.h>

#define HOOK_ANGARA_TL_NAME  "angara"
#define HOOK_ANGARA_GPU_NAME "angara_gpu" /* its component for GPU memory */
#define HOOK_ANGARA_DEVICE   "/dev/angara0"

/** Why the component acts, or that it doesn't. */
typedef enum {
    HOOK_ANGARA_REQUEST_NONE,    /* nobody asked */
    HOOK_ANGARA_REQUEST_DENIED,  /* the transport list excludes it, or the parameter does */
    HOOK_ANGARA_REQUEST_MISTAKE, /* a transport list has a name much like it */
    HOOK_ANGARA_REQUEST_PARAM,   /* hook_angara_enable */
    HOOK_ANGARA_REQUEST_TLS,     /* a transport list names it */
    HOOK_ANGARA_REQUEST_NAMED,   /* a variable names a NIC */
    HOOK_ANGARA_REQUEST_NIC      /* there is a NIC and nothing excludes the transport */
} hook_angara_request_t;

/** What became of the variables that decide about UCX. */
typedef enum {
    HOOK_ANGARA_UCX_ALLOWED, /* Open MPI may select pml/ucx */
    HOOK_ANGARA_UCX_REFUSED  /* a choice of the user excludes it: nothing was set */
} hook_angara_ucx_t;

/* hook_angara_component.c */
extern int hook_angara_verbosity;

/** Is this the process that speaks for those of its node? With hook_angara_verbose all do. */
bool hook_angara_is_speaker(void);

/** A line on stderr that begins as those of the library's log. */
void hook_angara_print(const char *level, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/** A message for the user, printed by one process of each node. */
#define hook_angara_warn(...)                          \
    do {                                               \
        if (hook_angara_is_speaker()) {                \
            hook_angara_print("warning", __VA_ARGS__); \
        }                                              \
    } while (0)

/** A message that is only seen with hook_angara_verbose at @a _level or above. */
#define hook_angara_verbose(_level, ...)            \
    do {                                            \
        if ((_level) <= hook_angara_verbosity) {    \
            hook_angara_print("info", __VA_ARGS__); \
        }                                           \
    } while (0)

/* hook_angara_request.c */

/** The next element of a list with commas, from @a at on, and its length; NULL: there is none. */
const char *hook_angara_list_next(const char *at, size_t *length_p);

/**
 * Is the transport asked for in this process?
 *
 * @param enable  hook_angara_enable: -1 decide from the environment, 0 never, 1 always.
 * @param openmpi_tls  value of Open MPI's own transport list if somebody set it, else NULL.
 * @param is_openshmem whether OpenSHMEM's variables count as well.
 */
hook_angara_request_t hook_angara_request_get(int enable, const char *openmpi_tls,
                                              bool is_openshmem);

/**
 * Does a transport list that excludes the transport have a name much like it?
 *
 * @return the variable with the list, and the name in @a word[size]; NULL if not.
 */
const char *hook_angara_request_mistake(char *word, size_t size);

/** May UCX use other transports than ours for messages to other processes? */
bool hook_angara_request_has_others(void);

/** Does UCX's list name both our transport and shared memory, which UCX prefers within a node? */
bool hook_angara_request_names_memory(void);

/** How many peers UCX reckons with in a job of @a ranks. */
unsigned hook_angara_request_peers(unsigned ranks);

const char *hook_angara_request_str(hook_angara_request_t request);

/* hook_angara_vars.c */

/** The value of opal_common_ucx_tls if it is not the default, to be freed; else NULL. */
char *hook_angara_vars_ucx_tls(void);

/**
 * Let Open MPI select UCX with our transport, where only the distribution's default stops it.
 *
 * @param has_gpu  the process may use GPU memory: UCX watches memory, not Open MPI.
 */
hook_angara_ucx_t hook_angara_vars_set(bool is_openshmem, bool has_gpu);

/**
 * If osc/ucx was let in by hook_angara_vars_set(), withdraw it from the choice. For a job in which
 * pml/ucx turned out to be unusable; called when MPI_Init is through.
 */
void hook_angara_vars_withdraw_osc(void);

/** Was osc/ucx let in by hook_angara_vars_set()? */
bool hook_angara_vars_has_let_osc_in(void);

/** Take back what hook_angara_vars_set() put into the environment. May be called repeatedly. */
void hook_angara_vars_restore(void);

/* hook_angara_osc.c */

/** Is osc/ucx that of Open MPI 4.1? For who includes Open MPI's configuration. */
#define OSC_UCX_IS_OLD (OMPI_MAJOR_VERSION < 5)

/**
 * From here on accumulates of osc/ucx's windows are mended, and it has a dynamic window within a
 * node only if no other component takes it, and all processes of the window think so. For a job
 * over pml/ucx, when MPI_Init is through.
 *
 * @param may_yield  nobody has chosen osc/ucx. A priority that the user has given it is a choice.
 * @param has_gpu  windows may be in a GPU's memory, which others don't know.
 */
void hook_angara_osc_start(bool may_yield, bool has_gpu);

/** No longer. Before osc/ucx is closed; may be called if it never did. */
void hook_angara_osc_stop(void);

/* hook_angara_accumulate.c */

struct ompi_win_t;

/** Mend the accumulates of a window that osc/ucx has just been selected for. */
void hook_angara_accumulate_mend(struct ompi_win_t *win);

/* hook_angara_dynamic.c */

/** Mend a dynamic window that osc/ucx has just been selected for. */
void hook_angara_dynamic_mend(struct ompi_win_t *win);

/* hook_angara_am_files.c */

/** The value that a file given by --am has for a variable, to be freed; NULL if there is none. */
char *hook_angara_am_files_lookup(const char *name);

/* hook_angara_pack.c */

/** The transport's functions for memory of GPUs: uct_angara_gpu_is_device(), _read(). */
typedef struct {
    int (*is_device)(const void *address, size_t length);
    void (*read)(void *target, const void *address, size_t length);
} hook_angara_gpu_funcs_t;

/** From here on MPI_Sendrecv_replace() takes memory of GPUs, by these functions. */
void hook_angara_pack_start(const hook_angara_gpu_funcs_t *gpu);

/** No longer. May be called repeatedly, or if it never did. */
void hook_angara_pack_stop(void);

/* hook_angara_plugin.c */

/**
 * Load libuct_angara.so and check that UCX has the transport afterwards.
 *
 * @param path  file to load; NULL or "" to look next to this component, then where it was installed
 *              with it, then where the dynamic linker looks.
 * @param has_gpu_p  result: the transport sees a GPU whose memory the process may use.
 * @param reason  text for the user if the result is false.
 */
bool hook_angara_plugin_load(const char *path, bool *has_gpu_p, char *reason, size_t reason_size);

/** Of the transport that was loaded; NULL: it has none. */
const hook_angara_gpu_funcs_t *hook_angara_plugin_gpu(void);

/** Is that where a GPU has its memory, which the CPU can't use? */
bool hook_angara_plugin_is_on_gpu(const void *first);

/** Has the transport that was loaded a device? Whether that can be used is known later. */
bool hook_angara_plugin_has_device(void);

/** Has UCX opened an interface of the transport that was loaded? */
bool hook_angara_plugin_is_used(void);

/** Has another process of the job on this node said this? If not, it is this one's to say. */
bool hook_angara_plugin_is_said(const char *text);

/** @return false if UCX can't be used by several threads at once. True before it was loaded. */
bool hook_angara_plugin_has_threads(void);

/** How many peers the transport has room for: where there may be more, UCX prefers others. */
unsigned hook_angara_plugin_room(void);

#endif
