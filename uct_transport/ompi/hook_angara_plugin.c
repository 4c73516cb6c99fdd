/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finds and loads libuct_angara.so, whose constructor registers the transport with UCX, and asks
 * UCX whether it did. Touches the dynamic linker's state only.
 */
#define _GNU_SOURCE
#include "hook_angara.h"

#include <ucp/api/ucp.h>
#include <uct/api/uct.h>

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PLUGIN_FILE "libuct_angara.so"

/* Where the installation that this component is of has the transport: another one may be found by
 * name alone. */
#ifdef HOOK_ANGARA_LIBDIR
#define PLUGIN_INSTALLED HOOK_ANGARA_LIBDIR "/" PLUGIN_FILE
#else
#define PLUGIN_INSTALLED PLUGIN_FILE
#endif

typedef ucs_status_t (*query_components_func_t)(uct_component_h **components_p,
                                                unsigned         *num_components_p);
typedef void (*release_component_list_func_t)(uct_component_h *components);
typedef ucs_status_t (*component_query_func_t)(uct_component_h       component,
                                               uct_component_attr_t *component_attr);
typedef ucs_status_t (*lib_query_func_t)(ucp_lib_attr_t *attr);

/* The transport is installed in the folder above this component's. */
static bool plugin_path_beside(char *path, size_t size)
{
    char    real[PATH_MAX];
    char   *slash;
    Dl_info info;
    int     i, length;

    if ((dladdr(&plugin_path_beside, &info) == 0) || (info.dli_fname == NULL) ||
        (realpath(info.dli_fname, real) == NULL)) {
        return false;
    }
    for (i = 0; i < 2; ++i) {
        slash = strrchr(real, '/');
        if (slash == NULL) {
            return false;
        }
        *slash = '\0';
    }
    length = snprintf(path, size, "%s/" PLUGIN_FILE, real);
    return (length > 0) && ((size_t)length < size) && (access(path, F_OK) == 0);
}

/* UCX has found a device of the transport. */
static bool plugin_device;

/*
 * The transport doesn't register itself when the UCX at run time is not the one it was built for,
 * so having loaded it proves nothing. UCX's functions are taken from the libraries that the
 * transport itself is linked to.
 */
static bool plugin_is_registered(void *handle, bool *has_gpu_p)
{
    query_components_func_t query_components = (query_components_func_t)dlsym(
        handle, "uct_query_components");
    release_component_list_func_t release_component_list = (release_component_list_func_t)dlsym(
        handle, "uct_release_component_list");
    component_query_func_t component_query = (component_query_func_t)dlsym(handle,
                                                                           "uct_component_query");
    uct_component_attr_t   attr            = {.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME};
    uct_component_h       *components;
    unsigned               i, num_components;
    bool                   is_found = false;

    attr.field_mask |= UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT;
    if ((query_components == NULL) || (release_component_list == NULL) ||
        (component_query == NULL) || (query_components(&components, &num_components) != UCS_OK)) {
        return false;
    }
    for (i = 0; i < num_components; ++i) {
        if (component_query(components[i], &attr) != UCS_OK) {
            continue;
        }
        if (!strcmp(attr.name, HOOK_ANGARA_TL_NAME)) {
            is_found      = true;
            plugin_device = attr.md_resource_count > 0;
        }
        *has_gpu_p |= !strcmp(attr.name, HOOK_ANGARA_GPU_NAME) && (attr.md_resource_count > 0);
    }
    release_component_list(components);
    return is_found;
}

bool hook_angara_plugin_has_device(void)
{
    return plugin_device;
}

/* Open MPI needs a UCX for any number of threads at once where the program does. */
static bool plugin_has_threads = true;

static void plugin_ask_threads(void *handle)
{
    lib_query_func_t lib_query = (lib_query_func_t)dlsym(handle, "ucp_lib_query");
    ucp_lib_attr_t   attr      = {.field_mask = UCP_LIB_ATTR_FIELD_MAX_THREAD_LEVEL};

    if ((lib_query != NULL) && (lib_query(&attr) == UCS_OK)) {
        plugin_has_threads = attr.max_thread_level == UCS_THREAD_MODE_MULTI;
    }
}

bool hook_angara_plugin_has_threads(void)
{
    return plugin_has_threads;
}

static hook_angara_gpu_funcs_t plugin_gpu;

const hook_angara_gpu_funcs_t *hook_angara_plugin_gpu(void)
{
    return ((plugin_gpu.is_device != NULL) && (plugin_gpu.read != NULL)) ? &plugin_gpu : NULL;
}

bool hook_angara_plugin_is_on_gpu(const void *first)
{
    const hook_angara_gpu_funcs_t *gpu = hook_angara_plugin_gpu();

    return (gpu != NULL) && gpu->is_device(first, 0);
}

static void plugin_find_gpu(void *handle)
{
    *(void **)&plugin_gpu.is_device = dlsym(handle, "uct_angara_gpu_is_device");
    *(void **)&plugin_gpu.read      = dlsym(handle, "uct_angara_gpu_read");
}

/* The library's angara_is_said(). */
static int (*plugin_is_said)(const char *text);

bool hook_angara_plugin_is_said(const char *text)
{
    return (plugin_is_said != NULL) && plugin_is_said(text);
}

/* Of the transport: the peers that its interfaces have room for; 0 before UCX has opened one. */
static const unsigned *plugin_room;

unsigned hook_angara_plugin_room(void)
{
    return (plugin_room == NULL) ? 0 : __atomic_load_n(plugin_room, __ATOMIC_RELAXED);
}

bool hook_angara_plugin_is_used(void)
{
    return hook_angara_plugin_room() != 0;
}

bool hook_angara_plugin_load(const char *path, bool *has_gpu_p, char *reason, size_t reason_size)
{
    char        beside[PATH_MAX];
    const char *error;
    void       *handle;

    if ((path == NULL) || (*path == '\0')) {
        path = plugin_path_beside(beside, sizeof(beside)) ? beside :
               (access(PLUGIN_INSTALLED, F_OK) == 0)      ? PLUGIN_INSTALLED :
                                                            PLUGIN_FILE;
    }

    /* UCX keeps pointers into the transport until the process ends, while this component is
     * unloaded in MPI_Finalize: it must not take the transport along. */
    handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle == NULL) {
        error = dlerror();
        snprintf(reason, reason_size, "it can't be loaded: %s", (error != NULL) ? error : path);
        return false;
    }
    *has_gpu_p = false;
    if (!plugin_is_registered(handle, has_gpu_p)) {
        snprintf(reason, reason_size, "%s did not register with the UCX of this process: see above",
                 path);
        dlclose(handle);
        return false;
    }

    plugin_ask_threads(handle);
    plugin_find_gpu(handle);
    plugin_room               = dlsym(handle, "uct_angara_room");
    *(void **)&plugin_is_said = dlsym(handle, "angara_is_said");
    hook_angara_verbose(1, "loaded %s", path);
    dlclose(handle);
    return true;
}
