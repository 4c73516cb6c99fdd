/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whether the MPI processes of this environment find our component: looks where Open MPI looks, in
 * its order. Reads variables, folders and PMIx's parameter file; runs nothing but libmpi's own
 * question for its version.
 */
#define _GNU_SOURCE
#include "info.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COMPONENT    "mca_hook_angara.so"
#define LIST_NAME    "mca_base_component_path"
#define LIST_LONG    "opal_" LIST_NAME /* Open MPI prefers this name of it */
#define LIST_DEFAULT "SYS_DEFAULT:USER_DEFAULT"
#define VERSION_MAX  8192 /* MPI_MAX_LIBRARY_VERSION_STRING is less */

/* The Open MPI that the run-time linker finds. */
typedef struct {
    char     folder[PATH_MAX];      /* its components' */
    char     pmix_folder[PATH_MAX]; /* of PMIx's parameter files; empty: PMIx isn't found */
    unsigned major;
} ompi_t;

/* The list of component folders that its processes have. */
typedef struct {
    char folders[PATH_MAX];
    char file[PATH_MAX]; /* of PMIx, that has it; or empty */
} list_t;

static void cut_last(char *path)
{
    char *slash = strrchr(path, '/');

    if (slash != NULL) {
        *slash = '\0';
    }
}

/* Load a library. @return NULL: not found; else it stays loaded, and path[PATH_MAX] is its file */
static void *library_open(const char *name, char *path)
{
    void            *handle = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
    struct link_map *map;

    if (handle == NULL || dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 ||
        realpath(map->l_name, path) == NULL) {
        return NULL;
    }
    return handle;
}

/* The folder of the components, which may be empty: as Debian has it, or beside the library. */
static void folder_find(const char *library, char *folder)
{
    static const char *const places[] = {"openmpi/lib/openmpi*", "openmpi*"};
    char                     pattern[PATH_MAX + 64], beside[PATH_MAX];
    glob_t                   found;

    snprintf(beside, sizeof(beside), "%s", library);
    cut_last(beside);
    folder[0] = '\0';
    for (unsigned i = 0; i < sizeof(places) / sizeof(places[0]) && folder[0] == '\0'; ++i) {
        snprintf(pattern, sizeof(pattern), "%s/%s", beside, places[i]);
        if (glob(pattern, GLOB_ONLYDIR, NULL, &found) == 0) {
            snprintf(folder, PATH_MAX, "%s", found.gl_pathv[0]);
        }
        globfree(&found);
    }
}

/* What the parameter file list->file has for a name of the list. @return 0: nothing */
static int list_read(list_t *list, const char *name)
{
    FILE *stream = fopen(list->file, "r");
    char  line[PATH_MAX + 64], found[64], value[PATH_MAX];

    list->folders[0] = '\0';
    while (stream != NULL && fgets(line, sizeof(line), stream) != NULL) {
        if (sscanf(line, " %63[a-z_] = %4095s", found, value) == 2 && strcmp(found, name) == 0) {
            snprintf(list->folders, sizeof(list->folders), "%s", value);
        }
    }
    if (stream != NULL) {
        fclose(stream);
    }
    return list->folders[0] != '\0';
}

/* What PMIx's parameter files have for it, in the order in which they go. @return 0: nothing */
static int pmix_read(const ompi_t *ompi, const char *name, list_t *list)
{
    static const char *const files[] = {"pmix-mca-params.conf", "pmix-mca-params-override.conf"};
    const char              *home    = getenv("HOME");

    snprintf(list->file, sizeof(list->file), "%s/.pmix/mca-params.conf", home != NULL ? home : "");
    if (list_read(list, name)) {
        return 1;
    }
    for (unsigned i = 0; i < sizeof(files) / sizeof(files[0]); ++i) {
        snprintf(list->file, sizeof(list->file), "%.*s/%s", PATH_MAX - 32, ompi->pmix_folder,
                 files[i]);
        if (list_read(list, name)) {
            return 1;
        }
    }
    return 0;
}

/* Open MPI 5 takes what PMIx's parameter files have, unless the environment has that name. */
static void list_find(const ompi_t *ompi, list_t *list)
{
    static const char *const names[] = {LIST_LONG, LIST_NAME};
    char                     variable[64];
    const char              *value = NULL;

    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]) && value == NULL; ++i) {
        snprintf(variable, sizeof(variable), "OMPI_MCA_%s", names[i]);
        value = getenv(variable);
        if (value == NULL && ompi->major >= 5 && ompi->pmix_folder[0] != '\0' &&
            pmix_read(ompi, names[i], list)) {
            return;
        }
    }
    list->file[0] = '\0';
    snprintf(list->folders, sizeof(list->folders), "%s", value != NULL ? value : LIST_DEFAULT);
}

/* @return 0: there is none */
static int ompi_find(ompi_t *ompi)
{
    char  path[PATH_MAX], version[VERSION_MAX] = "";
    void *mpi                           = library_open("libmpi.so.40", path);
    int (*get)(char *text, int *length) = NULL;
    int length;

    *ompi = (ompi_t){.major = 0};
    if (mpi == NULL && (mpi = library_open("libmpi.so", path)) == NULL) {
        return 0;
    }
    *(void **)(&get) = dlsym(mpi, "MPI_Get_library_version");
    if (get == NULL || get(version, &length) != 0 ||
        sscanf(version, "Open MPI v%u", &ompi->major) != 1) {
        return 0;
    }
    folder_find(path, ompi->folder);
    if (library_open("libpmix.so.2", path) != NULL) {
        cut_last(path);
        cut_last(path);
        snprintf(ompi->pmix_folder, sizeof(ompi->pmix_folder), "%.*s/share", PATH_MAX - 32, path);
    }
    return 1;
}

/* Look for the component in one element of Open MPI's list. */
static int element_has(const ompi_t *ompi, const char *element, char *path, size_t size)
{
    char        user[PATH_MAX];
    const char *home = getenv("HOME");

    if (strcmp(element, "SYS_DEFAULT") == 0) {
        return info_file_in(ompi->folder, COMPONENT, path, size);
    }
    if (strcmp(element, "USER_DEFAULT") == 0) {
        snprintf(user, sizeof(user), "%s/.openmpi/components", home != NULL ? home : "");
        return info_file_in(user, COMPONENT, path, size);
    }
    return info_file_in(element, COMPONENT, path, size);
}

/* Look for it in all of them. */
static int list_has(const ompi_t *ompi, const char *list, char *path, size_t size)
{
    char element[PATH_MAX];

    for (const char *at = list; *at != '\0'; at += strspn(at, ":")) {
        size_t length = strcspn(at, ":");

        snprintf(element, sizeof(element), "%.*s", (int)length, at);
        if (element_has(ompi, element, path, size)) {
            return 1;
        }
        at += length;
    }
    return 0;
}

/* As a shell reads it back as one word. @return word[size]; NULL: it is too long for that */
static const char *quote(const char *text, char *word, size_t size)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                "/._-+:,@%";
    size_t            used    = 0;

    if (text[strspn(text, plain)] == '\0') {
        return (size_t)snprintf(word, size, "%s", text) < size ? word : NULL;
    }
    used += (size_t)snprintf(word, size, "'");
    for (; *text != '\0' && used + 6 < size; ++text) {
        used += (size_t)snprintf(word + used, size - used, *text == '\'' ? "'\\''" : "%c", *text);
    }
    snprintf(word + used, size - used, "'");
    return *text == '\0' ? word : NULL;
}

/* The command that tells Open MPI, for the installation or the build tree of this program. */
static void fix_by_env(info_check_t *check)
{
    static const char *const places[] = {"angara_env", "../../scripts/angara_env"};
    char                     folder[PATH_MAX], path[PATH_MAX + 32], *script = NULL;
    char                     word[sizeof(check->fix) - 64];
    ssize_t                  length = readlink("/proc/self/exe", folder, sizeof(folder) - 1);
    const char              *quoted;

    folder[length > 0 ? length : 0] = '\0';
    cut_last(folder);
    for (unsigned i = 0; script == NULL && i < sizeof(places) / sizeof(places[0]); ++i) {
        snprintf(path, sizeof(path), "%s/%s", folder, places[i]);
        script = access(path, X_OK) == 0 ? realpath(path, NULL) : NULL;
    }
    if (script == NULL) {
        cut_last(folder);
    }
    quoted = quote(script != NULL ? script : folder, word, sizeof(word));
    if (quoted == NULL) {
        info_set_fix(check, "run the script angara_env: its path is too long to be printed here");
    } else if (script != NULL) {
        info_set_fix(check, "eval \"$(%s)\"", quoted);
    } else { /* a build folder elsewhere doesn't know its source tree */
        info_set_fix(check, "eval \"$(B=%s scripts/angara_env)\"", quoted);
    }
    free(script);
}

/* Does the list of Open MPI's components leave ours out? "^" excludes what it names. */
static int is_left_out(const char *names)
{
    const char *ours = strstr(names, "angara");
    int         has  = ours != NULL && (ours == names || ours[-1] == ',' || ours[-1] == '^') &&
              (ours[6] == '\0' || ours[6] == ',');

    return names[0] != '\0' && has == (names[0] == '^');
}

void info_ompi_check(info_check_t *check, const char *folder)
{
    const char *hooks = getenv("OMPI_MCA_hook");
    char        ours[PATH_MAX], path[PATH_MAX + 32];
    ompi_t      ompi;
    list_t      list;

    check->name = "Open MPI component";
    if (!ompi_find(&ompi)) {
        info_set_value(check, INFO_NOTE, "Open MPI isn't found");
        info_set_fix(check, "for MPI programs: install Open MPI (Debian: apt install openmpi-bin)");
        return;
    }
    if (hooks != NULL && is_left_out(hooks)) {
        info_set_value(check, INFO_MISSING, "OMPI_MCA_hook=%.200s leaves it out", hooks);
        info_set_fix(check, "unset OMPI_MCA_hook");
        return;
    }
    list_find(&ompi, &list);
    snprintf(ours, sizeof(ours), "%.*s/openmpi", PATH_MAX - 16, folder);
    if (list_has(&ompi, list.folders, path, sizeof(path))) {
        info_set_value(check, INFO_OK, "%.900s", path);
    } else if (list_has(&ompi, LIST_DEFAULT, path, sizeof(path)) ||
               info_file_in(ours, COMPONENT, path, sizeof(path))) {
        info_set_value(check, INFO_NOTE, "%.400s is there, but %s%.400s", path,
                       list.file[0] != '\0' ? "MPI processes don't see it, because of " :
                                              "Open MPI isn't told",
                       list.file);
        fix_by_env(check);
    } else {
        info_set_value(check, INFO_MISSING, COMPONENT " isn't in %.300s, nor in %.300s", ours,
                       ompi.folder);
        info_set_fix(check, "%s",
                     strncmp(folder, "/usr/lib", 8) == 0 ?
                         "install the component (Debian: apt install openmpi-angara)" :
                         "build and install all of the project: make install PREFIX=...");
    }
}
