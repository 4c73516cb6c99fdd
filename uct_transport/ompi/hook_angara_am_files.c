/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Parameter files given to mpirun by --am. The Open MPI 4.1 of the distributions passes their
 * names on but loses their contents (it joins them to its own list with the wrong separator), so
 * what such a file says is invisible in the variables. It still is a choice of the user.
 */
#define _GNU_SOURCE
#include "hook_angara.h"

#include "ompi_config.h"
#include "opal/class/opal_list.h"
#include "opal/mca/base/mca_base_vari.h"
#include "opal/mca/installdirs/installdirs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AM_FILES_ENV "OMPI_MCA_mca_base_param_file_prefix"

/* The value of a variable in one file, to be freed; NULL if it isn't there. */
static char *am_file_lookup(const char *path, const char *name)
{
    mca_base_var_file_value_t *entry;
    char                      *value = NULL;
    opal_list_t                list;

    OBJ_CONSTRUCT(&list, opal_list_t);
    (void)mca_base_parse_paramfile(path, &list);
    OPAL_LIST_FOREACH(entry, &list, mca_base_var_file_value_t)
    {
        if ((entry->mbvfv_var != NULL) && !strcmp(entry->mbvfv_var, name)) {
            free(value);
            value = strdup((entry->mbvfv_value != NULL) ? entry->mbvfv_value : "");
        }
    }
    OPAL_LIST_DESTRUCT(&list);
    return value;
}

/* A relative name is looked up in the working folder, then among Open MPI's own sets. */
static char *am_file_find(const char *name)
{
    char *path;

    if (access(name, R_OK) == 0) {
        return strdup(name);
    }
    if ((name[0] == '/') || (opal_install_dirs.opaldatadir == NULL) ||
        (asprintf(&path, "%s/amca-param-sets/%s", opal_install_dirs.opaldatadir, name) < 0)) {
        return NULL;
    }
    if (access(path, R_OK) == 0) {
        return path;
    }
    free(path);
    return NULL;
}

char *hook_angara_am_files_lookup(const char *name)
{
    const char *names = getenv(AM_FILES_ENV);
    char       *copy, *element, *state, *path, *value = NULL;

    if ((names == NULL) || (*names == '\0')) {
        return NULL;
    }
    copy = strdup(names);
    if (copy == NULL) {
        return NULL;
    }
    for (element = strtok_r(copy, ":,", &state); (element != NULL) && (value == NULL);
         element = strtok_r(NULL, ":,", &state)) {
        path = am_file_find(element);
        if (path != NULL) {
            value = am_file_lookup(path, name);
            free(path);
        }
    }
    free(copy);
    return value;
}
