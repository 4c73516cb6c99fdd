/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All variables of the library, the Open MPI component and the transport: the value in force, where
 * it comes from, the default. UCX reads the transport's: both are loaded here, and asked twice,
 * with and without the environment. Writes that for a moment; nothing else runs meanwhile.
 */
#define _GNU_SOURCE
#include "info.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TRANSPORT_PREFIX "UCX_ANGARA_"

static void add(info_env_t *env, const char *name, const char *value, const char *origin,
                const char *default_text)
{
    info_env_var_t *var = &env->vars[env->count];

    if (env->count < INFO_ENV_MAX) {
        snprintf(var->name, sizeof(var->name), "%s", name);
        snprintf(var->value, sizeof(var->value), "%s", value);
        snprintf(var->default_text, sizeof(var->default_text), "%s", default_text);
        var->origin = origin;
        ++env->count;
    }
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
    static const char *const names[] = {"ANGARA_STRICT", "ANGARA_UCT_PLUGIN"};

    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
        const char *value = getenv(names[i]);

        add(env, names[i], value != NULL ? value : "", value != NULL ? "environment" : "default",
            "");
    }
}

/* ---- transport ------------------------------------------------------------------------------- */

typedef void (*print_t)(FILE *stream);

/* Lines NAME=VALUE of UCX's, if the environment were this one; to be freed. NULL: no memory. */
static char *ucx_lines(print_t print, char **variables)
{
    char **saved = environ;
    char  *lines = NULL;
    size_t size;
    FILE  *stream = open_memstream(&lines, &size);

    if (stream != NULL) {
        environ = variables;
        print(stream);
        environ = saved;
        fclose(stream);
    }
    return lines;
}

/* Take the next line of lines, with its end cut off. @return its value, or NULL: no more */
static char *line_next(char **lines, const char **name)
{
    char *line, *value;

    while ((line = strsep(lines, "\n")) != NULL) {
        value = strchr(line, '=');
        if (value != NULL && strncmp(line, TRANSPORT_PREFIX, strlen(TRANSPORT_PREFIX)) == 0) {
            *name  = line;
            *value = '\0';
            return value + 1;
        }
    }
    return NULL;
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

/* UCX takes UCX_SEG_SIZE for what UCX_ANGARA_SEG_SIZE doesn't say. */
static const char *ucx_origin(const char *name)
{
    char all[INFO_ENV_NAME];

    snprintf(all, sizeof(all), "UCX_%s", name + strlen(TRANSPORT_PREFIX));
    return getenv(name) != NULL ? "environment" : getenv(all) != NULL ? "UCX_*" : "default";
}

/* A name that UCX ignores without a word. */
static void add_unknown(info_env_t *env)
{
    char        name[INFO_ENV_NAME];
    const char *value;

    for (char **variable = environ; *variable != NULL; ++variable) {
        value = strchr(*variable, '=');
        if (value == NULL || strncmp(*variable, TRANSPORT_PREFIX, strlen(TRANSPORT_PREFIX)) != 0) {
            continue;
        }
        snprintf(name, sizeof(name), "%.*s", (int)(value - *variable), *variable);
        if (find(env, name) == NULL) {
            add(env, name, value + 1, "unknown, ignored", "");
        }
    }
}

/* UCX refuses all variables of a table for one wrong value, and says which one. */
static void add_ucx(info_env_t *env, print_t print)
{
    char           *none[]   = {NULL};
    char           *now      = ucx_lines(print, environ);
    char           *defaults = ucx_lines(print, none);
    char           *rest, *value;
    const char     *name;
    info_env_var_t *var;

    for (rest = defaults; (value = line_next(&rest, &name)) != NULL;) {
        add(env, name, "", "not in force: see the error", value);
    }
    for (rest = now; (value = line_next(&rest, &name)) != NULL;) {
        var = find(env, name);
        if (var != NULL) {
            snprintf(var->value, sizeof(var->value), "%s", value);
            var->origin = ucx_origin(name);
        }
    }
    free(defaults);
    free(now);
    add_unknown(env);
}

void info_env(info_env_t *env)
{
    char    folder[PATH_MAX], path[PATH_MAX + 64];
    print_t print = NULL;
    void   *transport;

    memset(env, 0, sizeof(*env));
    add_library(env);
    add_component(env);
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
        return;
    }
    add_ucx(env, print);
}
