/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Open MPI's variables that decide about UCX: reads where their values come from, and puts other
 * values into the environment for as long as MPI_Init runs, one of UCX's for longer. The
 * environment is the only place from which the frameworks take a value that beats a parameter file
 * when they start later on.
 */
#define _GNU_SOURCE
#include "hook_angara.h"

#include "ompi_config.h"
#include "opal/constants.h"
#include "opal/mca/base/mca_base_var.h"
#include "opal/mca/installdirs/installdirs.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Distributions exclude UCX by these very values, in the file of that name in sysconfdir. */
#define SYSTEM_PARAM_FILE      "openmpi-mca-params.conf"
#define PML_DISTRIBUTION_VALUE "^ucx"
#define OSC_DISTRIBUTION_VALUE "^ucx,pt2pt"

#define ENV_PREFIX             "OMPI_MCA_"

/* The same lists without ucx. An empty list can't be told from an unset one everywhere, so where
 * nothing remains excluded a name stands that no component has. */
#define PML_VALUE    "^nosuch"
#define OSC_VALUE    "^pt2pt"

#define OSC_PRIORITY "10"

#define MEMORY_VALUE "^patcher"

typedef enum {
    VAR_PML,
    VAR_OSC,
    VAR_OSC_PRIORITY,
    VAR_UCX_TLS,
    VAR_UCX_DEVICES,
    VAR_UCX_MEM_HOOKS,
    VAR_MEMORY,
    VAR_LAST
} var_id_t;

/*
 * Everything that identifies and describes a variable must equal what its owner registers later:
 * Open MPI keeps these from the first registration.
 */
typedef struct {
    const char             *env_name;
    const char             *new_value;
    const char             *project;
    const char             *framework;
    const char             *component;
    const char             *name;
    mca_base_var_type_t     type;
    mca_base_var_flag_t     flags;
    mca_base_var_info_lvl_t level;
    mca_base_var_scope_t    scope;
    const char             *description;
} var_def_t;

#define SELECTION_DESCRIPTION(_framework)                     \
    "Default selection set of components for the " _framework \
    " framework (<none> means use all components that can be found)"

static const var_def_t var_defs[VAR_LAST] = {
    [VAR_PML] = {ENV_PREFIX "pml", PML_VALUE, "ompi", "pml", NULL, NULL, MCA_BASE_VAR_TYPE_STRING,
                 MCA_BASE_VAR_FLAG_SETTABLE, OPAL_INFO_LVL_2, MCA_BASE_VAR_SCOPE_ALL_EQ,
                 SELECTION_DESCRIPTION("pml")},
    [VAR_OSC] = {ENV_PREFIX "osc", OSC_VALUE, "ompi", "osc", NULL, NULL, MCA_BASE_VAR_TYPE_STRING,
                 MCA_BASE_VAR_FLAG_SETTABLE, OPAL_INFO_LVL_2, MCA_BASE_VAR_SCOPE_ALL_EQ,
                 SELECTION_DESCRIPTION("osc")},
    /* Open MPI 4.1 has osc/rdma (101) before osc/sm (100) and osc/ucx (60): behind both of them it
     * leaves windows within a node that Open MPI allocates to osc/sm, and the others to osc/ucx. */
    [VAR_OSC_PRIORITY] = {ENV_PREFIX "osc_rdma_priority", OSC_PRIORITY, "ompi", "osc", "rdma",
                          "priority", MCA_BASE_VAR_TYPE_UNSIGNED_INT, MCA_BASE_VAR_FLAG_DWG,
                          OPAL_INFO_LVL_3, MCA_BASE_VAR_SCOPE_GROUP,
                          "Priority of the osc/rdma component"},
    [VAR_UCX_TLS] = {ENV_PREFIX "opal_common_ucx_tls", HOOK_ANGARA_TL_NAME, "opal", "opal_common",
                     "ucx", "tls", MCA_BASE_VAR_TYPE_STRING, MCA_BASE_VAR_FLAG_SETTABLE,
                     OPAL_INFO_LVL_3, MCA_BASE_VAR_SCOPE_LOCAL,
                     "UCX transports that make Open MPI select UCX"},
    /* A list of devices is compared with InfiniBand drivers, which ours is none of. */
    [VAR_UCX_DEVICES] = {ENV_PREFIX "opal_common_ucx_devices", "any", "opal", "opal_common", "ucx",
                         "devices", MCA_BASE_VAR_TYPE_STRING, MCA_BASE_VAR_FLAG_SETTABLE,
                         OPAL_INFO_LVL_3, MCA_BASE_VAR_SCOPE_LOCAL,
                         "Devices that make Open MPI prefer UCX"},
    /* With Open MPI's own memory hooks, OpenSHMEM programs crash in finalize on any transport. */
    [VAR_UCX_MEM_HOOKS] = {ENV_PREFIX "opal_common_ucx_opal_mem_hooks", "0", "opal", "opal_common",
                           "ucx", "opal_mem_hooks", MCA_BASE_VAR_TYPE_BOOL, 0, OPAL_INFO_LVL_3,
                           MCA_BASE_VAR_SCOPE_LOCAL,
                           "Use OPAL memory hooks, instead of UCX internal memory hooks"},
    /* It overwrites UCX's hook of mmap(), by which the transport sees a program use a GPU. Without
     * that UCX asks what memory each buffer is. With this UCX watches the memory itself. */
    [VAR_MEMORY] = {ENV_PREFIX "memory", MEMORY_VALUE, "opal", "memory", NULL, NULL,
                    MCA_BASE_VAR_TYPE_STRING, MCA_BASE_VAR_FLAG_SETTABLE, OPAL_INFO_LVL_2,
                    MCA_BASE_VAR_SCOPE_ALL_EQ, SELECTION_DESCRIPTION("memory")}};

/* Whose value a variable has. */
typedef enum {
    VAR_OWNER_NOBODY,       /* built-in default */
    VAR_OWNER_DISTRIBUTION, /* the distribution's exclusion of UCX */
    VAR_OWNER_USER          /* anything else: not ours to change */
} var_owner_t;

/* Set by us and still in the environment. */
static bool var_is_set[VAR_LAST];
static bool osc_was_set;

/* Where Open MPI puts the value of a variable that is registered for a moment. */
static union {
    char *string;
    bool  boolean;
} var_storage;

static int var_find(const var_def_t *def)
{
    return mca_base_var_find(def->project, def->framework, def->component, def->name);
}

/*
 * Look up a variable through Open MPI itself, so that the environment, the command line and every
 * kind of parameter file count as they do for its owner. Unless MPI_T was initialized earlier the
 * owner has not registered it yet: then that is done for the moment and taken back. The owner's
 * own registration, later on, starts afresh.
 */
static int var_read(const var_def_t *def, char **value_p, mca_base_var_source_t *source_p,
                    const char **file_p)
{
    int          index      = var_find(def);
    bool         is_mine    = index < 0;
    char *const *string_ptr = NULL;
    int          ret;

    if (is_mine) {
        memset(&var_storage, 0, sizeof(var_storage));
        index = mca_base_var_register(def->project, def->framework, def->component, def->name,
                                      def->description, def->type, NULL, 0, def->flags, def->level,
                                      def->scope, &var_storage);
        if (index < 0) {
            return index;
        }
    }

    *value_p = NULL;
    ret      = mca_base_var_get_value(index, &string_ptr, source_p, file_p);
    if ((ret == OPAL_SUCCESS) && (def->type == MCA_BASE_VAR_TYPE_STRING) && (string_ptr != NULL) &&
        (*string_ptr != NULL)) {
        *value_p = strdup(*string_ptr);
    }
    if (is_mine) {
        (void)mca_base_var_deregister(index);
    }
    return ret;
}

/* Several spellings can name the file (links, doubled slashes). */
static bool is_system_param_file(const char *file)
{
    struct stat system_stat, file_stat;
    bool        is_same;
    char       *path;

    if ((file == NULL) || (opal_install_dirs.sysconfdir == NULL) ||
        (asprintf(&path, "%s/%s", opal_install_dirs.sysconfdir, SYSTEM_PARAM_FILE) < 0)) {
        return false;
    }

    is_same = !strcmp(file, path) ||
              ((stat(path, &system_stat) == 0) && (stat(file, &file_stat) == 0) &&
               (system_stat.st_dev == file_stat.st_dev) &&
               (system_stat.st_ino == file_stat.st_ino));
    free(path);
    return is_same;
}

/* @a value_p, if not NULL, gets the variable's value (to be freed) or NULL. */
static var_owner_t var_owner(var_id_t id, const char *distribution_value, char **value_p)
{
    const var_def_t      *def = &var_defs[id];
    mca_base_var_source_t source;
    const char           *file = NULL;
    char                 *value, *am_value;
    var_owner_t           owner;

    if (value_p != NULL) {
        *value_p = NULL;
    }
    if (var_read(def, &value, &source, &file) != OPAL_SUCCESS) {
        hook_angara_verbose(1, "can't look up %s: left alone", def->env_name);
        return VAR_OWNER_USER;
    }

    if (source == MCA_BASE_VAR_SOURCE_DEFAULT) {
        owner = VAR_OWNER_NOBODY;
    } else if ((source == MCA_BASE_VAR_SOURCE_FILE) && (distribution_value != NULL) &&
               (value != NULL) && !strcmp(value, distribution_value) &&
               is_system_param_file(file)) {
        owner = VAR_OWNER_DISTRIBUTION;
    } else {
        owner = VAR_OWNER_USER;
    }

    if (owner != VAR_OWNER_USER) {
        am_value = hook_angara_am_files_lookup(def->env_name + strlen(ENV_PREFIX));
        if (am_value != NULL) {
            owner = VAR_OWNER_USER;
            file  = "a file given by --am";
            free(value);
            value = am_value;
        }
    }

    hook_angara_verbose(5, "%s is '%s', from %s", def->env_name, (value != NULL) ? value : "",
                        (owner == VAR_OWNER_NOBODY)       ? "nowhere" :
                        (owner == VAR_OWNER_DISTRIBUTION) ? "the distribution" :
                        (file != NULL)                    ? file :
                                                            "the environment or command line");
    if (value_p != NULL) {
        *value_p = value;
    } else {
        free(value);
    }
    return owner;
}

/* The owner of the variable has read the environment already. */
static void var_set_registered(const var_def_t *def, int index)
{
    mca_base_var_storage_t *storage = NULL;

    switch (def->type) {
    case MCA_BASE_VAR_TYPE_STRING:
        (void)mca_base_var_set_value(index, def->new_value, strlen(def->new_value) + 1,
                                     MCA_BASE_VAR_SOURCE_SET, NULL);
        break;
    case MCA_BASE_VAR_TYPE_UNSIGNED_INT: /* those are not settable, officially */
        if ((mca_base_var_get_value(index, &storage, NULL, NULL) == OPAL_SUCCESS) &&
            (storage != NULL)) {
            storage->uintval = (unsigned)strtoul(def->new_value, NULL, 10);
        }
        break;
    default:
        break;
    }
}

static void var_set(var_id_t id)
{
    const var_def_t *def   = &var_defs[id];
    int              index = var_find(def);

    if (index >= 0) {
        var_set_registered(def, index);
    }
    if (setenv(def->env_name, def->new_value, 0) == 0) {
        var_is_set[id] = true;
        hook_angara_verbose(2, "set %s=%s for the time of MPI_Init", def->env_name, def->new_value);
    }
}

static void var_set_unless_user(var_id_t id)
{
    if (var_owner(id, NULL, NULL) == VAR_OWNER_NOBODY) {
        var_set(id);
    }
}

/* Does a selection, such as "ob1", "^ucx" or "ucx,ob1", leave ucx in? */
static bool selection_has_ucx(const char *selection)
{
    bool        is_found = false, negate;
    const char *element;
    size_t      length;

    if ((selection == NULL) || (*selection == '\0')) {
        return true;
    }

    negate = *selection == '^';
    for (element = hook_angara_list_next(selection + negate, &length); element != NULL;
         element = hook_angara_list_next(element + length, &length)) {
        is_found |= (length == 3) && !strncmp(element, "ucx", length);
    }
    return is_found != negate;
}

char *hook_angara_vars_ucx_tls(void)
{
    char *value;

    if (var_owner(VAR_UCX_TLS, NULL, &value) == VAR_OWNER_NOBODY) {
        free(value);
        return NULL;
    }
    return value;
}

/* In UCX's order large memory (windows, from a huge page on) is taken with huge pages if it can be,
 * which peers don't map. It counts until the end: osc/ucx starts UCX with the first window. */
#define UCX_ALLOC_PRIO_NAME  "UCX_ALLOC_PRIO"
#define UCX_ALLOC_PRIO_VALUE "md:sysv,md:posix,md:" HOOK_ANGARA_TL_NAME ",huge,thp,mmap,heap"

hook_angara_ucx_t hook_angara_vars_set(bool is_openshmem, bool has_gpu)
{
    hook_angara_ucx_t result = HOOK_ANGARA_UCX_REFUSED;
    var_owner_t       owner;
    char             *pml;

    setenv(UCX_ALLOC_PRIO_NAME, UCX_ALLOC_PRIO_VALUE, 0);
    owner = var_owner(VAR_PML, PML_DISTRIBUTION_VALUE, &pml);
    if ((owner != VAR_OWNER_DISTRIBUTION) && !selection_has_ucx(pml)) {
        hook_angara_verbose(1, "pml=%s was chosen explicitly: left alone", pml);
        goto out;
    }

    if (owner == VAR_OWNER_DISTRIBUTION) {
        var_set(VAR_PML);
    }
    if (var_owner(VAR_OSC, OSC_DISTRIBUTION_VALUE, NULL) == VAR_OWNER_DISTRIBUTION) {
        var_set(VAR_OSC);
        var_set_unless_user(VAR_OSC_PRIORITY);
        osc_was_set = true;
    }
    var_set_unless_user(VAR_UCX_TLS);
    var_set_unless_user(VAR_UCX_DEVICES);
    if (is_openshmem) {
        var_set_unless_user(VAR_UCX_MEM_HOOKS);
    }
    if (has_gpu) {
        var_set_unless_user(VAR_MEMORY);
    }
    result = HOOK_ANGARA_UCX_ALLOWED;

out:
    free(pml);
    return result;
}

bool hook_angara_vars_has_let_osc_in(void)
{
    return osc_was_set;
}

void hook_angara_vars_withdraw_osc(void)
{
    int       index    = mca_base_var_find("ompi", "osc", "ucx", "priority");
    unsigned *priority = NULL;

    if (!osc_was_set || (index < 0) ||
        (mca_base_var_get_value(index, &priority, NULL, NULL) != OPAL_SUCCESS) ||
        (priority == NULL)) {
        return;
    }
    hook_angara_verbose(1, "pml/ucx was not selected: osc/ucx is not used either");
    /* osc/ucx answers with this number, and a negative answer means that it is not available. */
    *priority = (unsigned)-1;
}

void hook_angara_vars_restore(void)
{
    const char *value;
    var_id_t    id;

    for (id = 0; id < VAR_LAST; ++id) {
        if (!var_is_set[id]) {
            continue;
        }
        var_is_set[id] = false;
        value          = getenv(var_defs[id].env_name);
        if ((value != NULL) && !strcmp(value, var_defs[id].new_value)) {
            unsetenv(var_defs[id].env_name);
        }
    }
}
