/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Open MPI component hook/angara: makes a plain mpirun use UCX with the Angara transport where
 * the transport was asked for. README.md says how it decides.
 *
 * Registering only declares parameters, so that ompi_info shows them without side effects. The
 * work is done when an MPI process opens the component, which Open MPI does before it looks at
 * any of the frameworks concerned. A component that has nothing to do asks to be dropped.
 */
#define _GNU_SOURCE
#include "hook_angara.h"

#include "src/line.h"

#include "ompi_config.h"
#include "ompi/mca/hook/hook.h"
#include "ompi/communicator/communicator.h"
#include "ompi/mca/pml/base/base.h"
#include "ompi/runtime/mpiruntime.h"
#include "opal/constants.h"
#include "opal/mca/base/mca_base_var.h"

#include <angara/angara.h>

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define VERSION_STR_(_major, _minor, _patch) #_major "." #_minor "." #_patch
#define VERSION_STR(_major, _minor, _patch)  VERSION_STR_(_major, _minor, _patch)

static int  hook_angara_register(void);
static int  hook_angara_open(void);
static int  hook_angara_close(void);
static void hook_angara_init_bottom(int argc, char **argv, int requested, int *provided);
static void hook_angara_init_error(int argc, char **argv, int requested, int *provided);

/* Open MPI finds the component by this name. */
__attribute__((visibility("default")))
ompi_hook_base_component_1_0_0_t mca_hook_angara_component = {
    .hookm_version = {OMPI_HOOK_BASE_VERSION_1_0_0, .mca_component_name = "angara",
                      MCA_BASE_MAKE_VERSION(component, ANGARA_VERSION_MAJOR, ANGARA_VERSION_MINOR,
                                            ANGARA_VERSION_PATCH),
                      .mca_open_component            = hook_angara_open,
                      .mca_close_component           = hook_angara_close,
                      .mca_register_component_params = hook_angara_register},
    /* Nothing here outlives a checkpoint. */
    .hookm_data = {.param_field = MCA_BASE_METADATA_PARAM_CHECKPOINT},

    .hookm_mpi_init_bottom = hook_angara_init_bottom,
    .hookm_mpi_init_error  = hook_angara_init_error,

    .hookm_mpi_finalize_top = hook_angara_osc_stop};

int hook_angara_verbosity;

static int   hook_angara_param_enable;
static char *hook_angara_param_plugin;
static char *hook_angara_param_version;

/* What this process did, for the report at the end of MPI_Init: who asked for the transport, why it
 * is missing nevertheless (empty: it isn't missing), and whether UCX was allowed. */
static hook_angara_request_t hook_angara_asked;
static char                  hook_angara_missing[600];
static bool                  hook_angara_ucx_allowed;
static bool                  hook_angara_has_gpu; /* whose memory the process may use */

void hook_angara_print(const char *level, const char *fmt, ...)
{
    char    rank[16];
    va_list args;

    ang_line_rank(rank, sizeof(rank));
    va_start(args, fmt);
    ang_line_print(rank, level, fmt, args);
    va_end(args);
}

bool hook_angara_is_speaker(void)
{
    /* of mpirun, srun, and launchers that descend from MPICH's */
    static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID",
                                        "MPI_LOCALRANKID"};
    const char              *rank    = NULL;
    size_t                   i;

    for (i = 0; (rank == NULL) && (i < sizeof(names) / sizeof(names[0])); ++i) {
        rank = getenv(names[i]);
    }
    return (rank == NULL) || (strcmp(rank, "0") == 0) || (hook_angara_verbosity > 0);
}

static int hook_angara_register(void)
{
    const mca_base_component_t *component = &mca_hook_angara_component.hookm_version;

    hook_angara_param_enable = -1;
    (void)mca_base_component_var_register(
        component, "enable",
        "Whether to load the Angara transport into UCX and to let Open MPI select UCX: auto "
        "(if UCX_TLS names angara, or ANGARA_DEVICE or UCX_NET_DEVICES names a NIC, or one is "
        "present, and UCX_TLS does not exclude it), "
        "true, or false",
        MCA_BASE_VAR_TYPE_INT, &mca_base_var_enum_auto_bool, 0, 0, OPAL_INFO_LVL_2,
        MCA_BASE_VAR_SCOPE_ALL_EQ, &hook_angara_param_enable);

    hook_angara_param_plugin = NULL;
    (void)mca_base_component_var_register(
        component, "plugin",
        "File of the transport. Without it, and without the environment variable "
        "ANGARA_UCT_PLUGIN: libuct_angara.so in the folder above this component's, then "
        "where this component's installation has it, then where the dynamic linker looks",
        MCA_BASE_VAR_TYPE_STRING, NULL, 0, 0, OPAL_INFO_LVL_5, MCA_BASE_VAR_SCOPE_LOCAL,
        &hook_angara_param_plugin);

    hook_angara_verbosity = 0;
    (void)mca_base_component_var_register(
        component, "verbose",
        "Verbosity: 0 problems only, 1 decisions, 2 variables that are set, 5 where the "
        "values of variables come from",
        MCA_BASE_VAR_TYPE_INT, NULL, 0, 0, OPAL_INFO_LVL_3, MCA_BASE_VAR_SCOPE_LOCAL,
        &hook_angara_verbosity);

    hook_angara_param_version = VERSION_STR(ANGARA_VERSION_MAJOR, ANGARA_VERSION_MINOR,
                                            ANGARA_VERSION_PATCH);
    (void)mca_base_component_var_register(
        component, "version", "Version of the Angara software that this component is part of",
        MCA_BASE_VAR_TYPE_VERSION_STRING, NULL, 0, MCA_BASE_VAR_FLAG_DEFAULT_ONLY, OPAL_INFO_LVL_4,
        MCA_BASE_VAR_SCOPE_CONSTANT, &hook_angara_param_version);
    return OPAL_SUCCESS;
}

/* OpenSHMEM's library is linked to programs that use it, and to no other. */
static bool is_openshmem(void)
{
    return dlsym(RTLD_DEFAULT, "oshmem_shmem_init") != NULL;
}

/* A guard that is misspelled isn't off: all but the words for no are a yes. */
static bool is_strict(void)
{
    static const char *const no[]  = {"", "n", "no", "0", "off", "false"};
    const char              *value = getenv("ANGARA_STRICT");
    size_t                   i;

    for (i = 0; (value != NULL) && (i < sizeof(no) / sizeof(no[0])); ++i) {
        if (strcasecmp(value, no[i]) == 0) {
            return false;
        }
    }
    return value != NULL;
}

/* Whoever names GPUs has buffers in their memory, which crash other ways than GPU-aware ones. */
static bool is_gpu_named(void)
{
    const char *value = getenv("ANGARA_GPU");

    return (value != NULL) && (strcasecmp(value, "none") != 0) && (strcasecmp(value, "auto") != 0);
}

static bool is_request(hook_angara_request_t request)
{
    return (request != HOOK_ANGARA_REQUEST_NONE) && (request != HOOK_ANGARA_REQUEST_DENIED);
}

/* Must the job end rather than run over another way? */
static bool is_needed(hook_angara_request_t request)
{
    return (is_strict() || (is_gpu_named() && (request != HOOK_ANGARA_REQUEST_NAMED))) &&
           (request != HOOK_ANGARA_REQUEST_NIC);
}

/* The one that speaks, if it fails too, ends the job meanwhile: with many ranks mpirun takes
 * seconds for that. */
static void let_speak(void)
{
    if (!hook_angara_is_speaker()) {
        sleep(10);
    }
}

#define ENDS_BECAUSE \
    (is_strict() ? "ANGARA_STRICT" : "ANGARA_GPU: buffers in a GPU's memory might crash it")

/*
 * Open MPI's private structures differ from release to release, and a component of any is loaded
 * by all that look into its folder. ANGARA_TEST_OMPI_VERSION can refuse, but not allow.
 *
 * @return whether Open MPI is the one that this was built for; if not, what it is in version[].
 */
static bool is_built_for_this(char version[MPI_MAX_LIBRARY_VERSION_STRING])
{
    const char *pretended = getenv("ANGARA_TEST_OMPI_VERSION");
    unsigned    major = 0, minor = 0, release = 0;
    bool        is_same;
    int         length;

    PMPI_Get_library_version(version, &length); /* "Open MPI v4.1.4, package: ..." */
    version[strcspn(version, ",")] = '\0';
    is_same = (sscanf(version, "Open MPI v%u.%u.%u", &major, &minor, &release) == 3) &&
              (major == OMPI_MAJOR_VERSION) && (minor == OMPI_MINOR_VERSION) &&
              (release == OMPI_RELEASE_VERSION);
    if (is_same && (pretended != NULL)) {
        snprintf(version, MPI_MAX_LIBRARY_VERSION_STRING, "Open MPI v%s", pretended);
        return false;
    }
    return is_same;
}

/* Open MPI isn't what this was built for: nothing that is private to it is touched. */
static int stay_off(const char *found, bool shmem)
{
    hook_angara_request_t request = hook_angara_request_get(hook_angara_param_enable, NULL, shmem);
    char                  text[ANG_LINE_SIZE];

    if (!is_request(request)) {
        return OPAL_ERR_NOT_AVAILABLE;
    }
    snprintf(text, sizeof(text),
             "Open MPI's component hook/angara was built for Open MPI v%s, but %s runs here: the "
             "transport isn't used",
             VERSION_STR(OMPI_MAJOR_VERSION, OMPI_MINOR_VERSION, OMPI_RELEASE_VERSION), found);
    if (is_needed(request)) {
        let_speak();
        hook_angara_print("error", "%s, and the job ends because of %s.", text, ENDS_BECAUSE);
        exit(1);
    }
    hook_angara_warn("%s. Build it for that one: make setup && make install, in its source tree.",
                     text);
    return OPAL_ERR_NOT_AVAILABLE;
}

static int hook_angara_open(void)
{
    bool                  shmem = is_openshmem();
    const char           *path  = hook_angara_param_plugin;
    hook_angara_request_t request;
    char                 *tls, word[64];
    char                  version[MPI_MAX_LIBRARY_VERSION_STRING];
    const char           *list;

    if (!is_built_for_this(version)) {
        return stay_off(version, shmem);
    }

    tls     = hook_angara_vars_ucx_tls();
    request = hook_angara_request_get(hook_angara_param_enable, tls, shmem);
    free(tls);
    hook_angara_verbose(1, "%s", hook_angara_request_str(request));
    hook_angara_asked = request;
    if (!is_request(request)) {
        list = (hook_angara_param_enable < 0) ? hook_angara_request_mistake(word, sizeof(word)) :
                                                NULL;
        if (list == NULL) {
            return OPAL_ERR_NOT_AVAILABLE;
        }
        hook_angara_asked = HOOK_ANGARA_REQUEST_MISTAKE;
        snprintf(hook_angara_missing, sizeof(hook_angara_missing),
                 "%s names \"%s\": is " HOOK_ANGARA_TL_NAME " meant?", list, word);
        return OPAL_SUCCESS;
    }

    if ((path == NULL) || (*path == '\0')) {
        path = getenv("ANGARA_UCT_PLUGIN");
    }
    if (!hook_angara_plugin_load(path, &hook_angara_has_gpu, hook_angara_missing,
                                 sizeof(hook_angara_missing))) {
        return OPAL_SUCCESS; /* Open MPI makes its default choice instead, which is reported */
    }

    hook_angara_missing[0]  = '\0';
    hook_angara_ucx_allowed = hook_angara_vars_set(shmem, hook_angara_has_gpu) ==
                              HOOK_ANGARA_UCX_ALLOWED;
    if (hook_angara_has_gpu && (hook_angara_plugin_gpu() != NULL)) {
        hook_angara_pack_start(hook_angara_plugin_gpu());
    }
    return OPAL_SUCCESS;
}

static int hook_angara_close(void)
{
    hook_angara_pack_stop();
    hook_angara_vars_restore();
    return OPAL_SUCCESS;
}

#define NO_DEVICE "UCX finds no device of it: see above, or angara_info"

/*
 * The transport was asked for, by a mistaken name perhaps, and doesn't carry this process: say what
 * does instead, and why, once for each node. Who has chosen another pml explicitly knows it
 * already. With a NIC in the node and nothing else nobody has asked.
 */
static void report_other_way(const char *way)
{
    bool        is_missing = hook_angara_missing[0] != '\0';
    bool        is_chosen  = !is_missing && !hook_angara_ucx_allowed;
    bool        is_asked   = hook_angara_asked != HOOK_ANGARA_REQUEST_NIC;
    const char *why        = is_missing ? hook_angara_missing :
                             is_chosen  ? "another pml was chosen explicitly" :
                                          NO_DEVICE;
    char        text[ANG_LINE_SIZE];

    snprintf(text, sizeof(text), "the transport isn't used (%s; %s)",
             hook_angara_request_str(hook_angara_asked), why);
    if (is_needed(hook_angara_asked) && !is_chosen) {
        let_speak();
        hook_angara_print("error", "%s: the job would run over %s, and ends because of %s.", text,
                          way, ENDS_BECAUSE);
        ompi_mpi_abort(&ompi_mpi_comm_world.comm, 1);
    } else if (is_missing || (is_asked && (is_strict() || !is_chosen))) {
        hook_angara_warn("%s: the job runs over %s.%s", text, way,
                         is_asked && !is_chosen ? " With ANGARA_STRICT=1 it would end." : "");
    } else {
        hook_angara_verbose(1, "%s: %s", text, way);
    }
}

/* Components that stand before the one that was selected. */
static bool is_wrapper(const char *pml)
{
    return (strcmp(pml, "monitoring") == 0) || (strcmp(pml, "v") == 0);
}

/* UCX has the transport, but UCP takes another one. @return whether it does, and in text[] why */
static bool is_overcrowded(char *text, size_t size)
{
    unsigned ranks = (unsigned)ompi_comm_size(&ompi_mpi_comm_world.comm);
    unsigned peers = hook_angara_request_peers(ranks);

    if ((peers <= hook_angara_plugin_room()) || !hook_angara_request_has_others()) {
        return false;
    }
    snprintf(
        text, size,
        "UCX reckons with %u peers, and UCX_ANGARA_MAX_PEERS has room for %u: raise it, or name "
        "no transport beside it but self",
        peers, hook_angara_plugin_room());
    return true;
}

/*
 * All ranks are of one node, and UCX's list names shared memory, too: UCX takes that for short
 * messages where it reaches the peer, but may send parts of long ones, and one-sided operations, by
 * the transport. So it is no other way, and ends nothing.
 */
static bool is_outdone(void)
{
    const char *local = getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
    int         ranks = ompi_comm_size(&ompi_mpi_comm_world.comm);

    return (local != NULL) && (ranks >= 2) && (atoi(local) == ranks) &&
           hook_angara_request_names_memory();
}

static void hook_angara_init_bottom(int argc, char **argv, int requested, int *provided)
{
    const char *pml      = mca_pml_base_selected_component.pmlm_version.mca_component_name;
    bool        is_used  = hook_angara_plugin_is_used();
    bool        is_ucx   = (strcmp(pml, "ucx") == 0) || (is_wrapper(pml) && is_used);
    bool        is_named = (hook_angara_asked == HOOK_ANGARA_REQUEST_TLS) ||
                    (hook_angara_asked == HOOK_ANGARA_REQUEST_NAMED);

    char way[96];

    (void)argc;
    (void)argv;
    (void)provided;

    snprintf(way, sizeof(way), "pml/%s", pml);
    if (!is_ucx) {
        hook_angara_vars_withdraw_osc();
    } else {
        hook_angara_osc_start(hook_angara_vars_has_let_osc_in(), hook_angara_has_gpu);
    }
    hook_angara_vars_restore();
    if (!is_ucx && hook_angara_ucx_allowed && (requested == MPI_THREAD_MULTIPLE) &&
        !hook_angara_plugin_has_threads()) {
        snprintf(hook_angara_missing, sizeof(hook_angara_missing),
                 "this UCX has no threads (it was configured without --enable-mt), and the program "
                 "asks for MPI_THREAD_MULTIPLE%s",
                 is_used ? "" : "; or UCX finds no device of it: see above, or angara_info");
    }
    /* OpenSHMEM turns to UCX later, by lists of its own; without a device it finds none there. */
    if ((!is_ucx || !is_used) && ((hook_angara_missing[0] != '\0') || !is_openshmem())) {
        report_other_way(way);
    } else if (is_openshmem() && is_named && !hook_angara_plugin_has_device()) {
        snprintf(hook_angara_missing, sizeof(hook_angara_missing), "%s", NO_DEVICE);
        report_other_way("another transport of UCX, or not at all");
    } else if (is_ucx && (hook_angara_asked == HOOK_ANGARA_REQUEST_TLS) && !is_openshmem() &&
               is_overcrowded(hook_angara_missing, sizeof(hook_angara_missing))) {
        report_other_way("another transport of UCX");
    } else if (is_ucx && (hook_angara_asked == HOOK_ANGARA_REQUEST_TLS) && !is_openshmem() &&
               is_outdone()) {
        hook_angara_warn("within this node UCX sends short messages by shared memory, which its "
                         "list of transports names, too; for the transport alone name no other "
                         "beside it but self");
    }
}

#define INIT_FAILED                                                                             \
    "MPI_Init failed in a process that has the transport. If a message above says that "        \
    "processes selected different pml components, or that the address of a UCX worker was not " \
    "found, others of the job lack it: check that `ompi_info --param hook angara` shows the "   \
    "component on every node, and that UCX_TLS reaches all of them (mpirun -x UCX_TLS)."

/*
 * Ranks with and without the transport choose different components, and Open MPI's own messages
 * about that don't say why.
 */
static void hook_angara_init_error(int argc, char **argv, int requested, int *provided)
{
    (void)argc;
    (void)argv;
    (void)requested;
    (void)provided;

    if (hook_angara_missing[0] != '\0') {
        hook_angara_warn("this process runs without the transport, because %s. If others of the "
                         "job have it, that is why MPI_Init failed: every node needs the same "
                         "installation.",
                         hook_angara_missing);
    } else if (hook_angara_ucx_allowed && !hook_angara_plugin_is_said(INIT_FAILED)) {
        hook_angara_print("warning", "%s", INIT_FAILED);
        sleep(1); /* those that fail a little later ask this process */
    }
    hook_angara_vars_restore();
}
