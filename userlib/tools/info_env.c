/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All variables of the library, the Open MPI component and the transport: the value in force, where
 * it comes from, the default. UCX reads the transport's: both are loaded here, and asked twice,
 * with and without the environment. Writes that for a moment; nothing else runs meanwhile.
 */
#define _GNU_SOURCE
#include "info.h"

#include "src/foreign.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TRANSPORT_PREFIX "UCX_ANGARA_"

/* What isn't ASCII would be no JSON perhaps. */
static void text_set(char *text, size_t size, const char *value)
{
    snprintf(text, size, "%s", value != NULL ? value : "");
    for (; *text != '\0'; ++text) {
        *text = *text < ' ' || *text > '~' ? '?' : *text;
    }
}

static void add(info_env_t *env, const char *name, const char *value, const char *origin,
                const char *default_text)
{
    info_env_var_t *var = &env->vars[env->count];

    if (env->count == INFO_ENV_MAX) {
        snprintf(env->lacks, sizeof(env->lacks), "there are more");
        return;
    }
    text_set(var->name, sizeof(var->name), name);
    text_set(var->value, sizeof(var->value), value);
    text_set(var->default_text, sizeof(var->default_text), default_text);
    var->origin = origin != NULL ? origin : "unknown";
    ++env->count;
}

static info_env_var_t *find(info_env_t *env, const char *name)
{
    for (unsigned i = 0; i < env->count; ++i) {
        if (strcmp(env->vars[i].name, name) == 0) {
            return &env->vars[i];
        }
    }
    return NULL;
}

static void add_library(info_env_t *env)
{
    angara_config_var_t var;

    for (unsigned i = 0; angara_config_var(i, &var) == ANGARA_OK; ++i) {
        add(env, var.name, var.value, var.origin, var.default_text);
    }
}

/* It reads them itself. */
static void add_component(info_env_t *env)
{
    for (unsigned i = 0; i < ANG_NUM_COMPONENT_VARS; ++i) {
        const char *value = getenv(ang_component_vars[i]);

        add(env, ang_component_vars[i], value != NULL ? value : "",
            value != NULL ? "environment" : "default", "");
    }
}

/* ANGARA_ names that nobody reads. */
static void add_misspelt(info_env_t *env)
{
    char name[INFO_ENV_NAME];

    for (char **variable = environ; *variable != NULL; ++variable) {
        size_t length = strcspn(*variable, "=");

        snprintf(name, sizeof(name), "%.*s", (int)length, *variable);
        if (!ang_is_foreign(*variable) && find(env, name) == NULL) {
            add(env, name, *variable + length + ((*variable)[length] == '='), "unknown, ignored",
                "");
        }
    }
}

/* ---- transport ------------------------------------------------------------------------------- */

typedef int (*print_t)(FILE *stream);

/* UCX's lines NAME=VALUE, if the environment were this one; to be freed. NULL: there are none. */
static char *ucx_lines(print_t print, char **variables)
{
    char **saved = environ;
    char  *lines = NULL;
    size_t size;
    FILE  *stream = open_memstream(&lines, &size);
    int    failed = 1;

    if (stream != NULL) {
        environ = variables;
        failed  = print(stream);
        environ = saved;
        fclose(stream);
    }
    if (failed) {
        free(lines);
        lines = NULL;
    }
    return lines;
}

static int is_transports(const char *variable)
{
    return strncmp(variable, TRANSPORT_PREFIX, strlen(TRANSPORT_PREFIX)) == 0;
}

/* Take the next line of lines, with its end cut off. @return its value, or NULL: no more */
static char *line_next(char **lines, const char **name)
{
    char *line, *value;

    while ((line = strsep(lines, "\n")) != NULL) {
        value = strchr(line, '=');
        if (value != NULL && is_transports(line)) {
            *name  = line;
            *value = '\0';
            return value + 1;
        }
    }
    return NULL;
}

/*
 * Names that UCX doesn't know, and those with which Open MPI overrides the others: it hands
 * MPI_UCX_ANGARA_SEG_SIZE to UCX in place of UCX_ANGARA_SEG_SIZE.
 */
static void add_strangers(info_env_t *env)
{
    static const char mpi[] = "MPI_";
    char              name[INFO_ENV_NAME];
    const char       *value;
    size_t            skip;

    for (char **variable = environ; *variable != NULL; ++variable) {
        skip  = strncmp(*variable, mpi, strlen(mpi)) == 0 ? strlen(mpi) : 0;
        value = strchr(*variable, '=');
        if (value == NULL || !is_transports(*variable + skip)) {
            continue;
        }
        snprintf(name, sizeof(name), "%.*s", (int)(value - *variable), *variable);
        if (find(env, name + skip) == NULL) {
            add(env, name, value + 1, "unknown, ignored", "");
        } else if (skip != 0) {
            add(env, name, value + 1, "environment, in MPI", "");
        }
    }
}

/* Put in the values of such lines. UCX_* stands for a variable of all transports: UCX_FAILURE, say.
 */
static void ucx_values(info_env_t *env, char *lines)
{
    info_env_var_t *var;
    const char     *name;
    char           *value;

    for (char *rest = lines; (value = line_next(&rest, &name)) != NULL;) {
        var = find(env, name);
        if (var == NULL) {
            continue;
        }
        text_set(var->value, sizeof(var->value), value);
        var->origin = getenv(name) != NULL                       ? "environment" :
                      strcmp(var->value, var->default_text) != 0 ? "UCX_*" :
                                                                   "default";
    }
}

/* UCX refuses all variables of a table for one wrong value, and says which one. */
static int add_ucx(info_env_t *env, print_t print)
{
    char       *none[]   = {NULL};
    char       *defaults = ucx_lines(print, none), *now = ucx_lines(print, environ);
    char       *rest, *value;
    const char *name;
    int         failed = defaults == NULL || now == NULL;

    if (!failed) {
        for (rest = defaults; (value = line_next(&rest, &name)) != NULL;) {
            add(env, name, "", "not in force: see the error", value);
        }
        ucx_values(env, now);
        add_strangers(env);
    }
    free(defaults);
    free(now);
    return failed;
}

void info_env(info_env_t *env)
{
    char    folder[PATH_MAX], path[PATH_MAX + 64];
    print_t print = NULL;
    void   *transport;

    memset(env, 0, sizeof(*env));
    add_library(env);
    add_component(env);
    add_misspelt(env);
    setenv("UCX_LOG_FILE", "stderr", 0); /* its errors don't belong into JSON */
    if (info_library_folder(folder, sizeof(folder)) != 0 ||
        !info_file_in(folder, INFO_TRANSPORT, path, sizeof(path))) {
        snprintf(env->lacks, sizeof(env->lacks),
                 INFO_TRANSPORT " isn't next to libangara.so: its variables aren't listed");
        return;
    }
    transport = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (transport != NULL) {
        *(void **)(&print) = dlsym(transport, "uct_angara_print_variables");
    }
    if (print == NULL) {
        snprintf(env->lacks, sizeof(env->lacks), "the transport's variables aren't listed: %s",
                 dlerror());
    } else if (add_ucx(env, print) != 0) {
        snprintf(env->lacks, sizeof(env->lacks),
                 "the transport's variables aren't listed: it was built for another UCX");
    }
}
