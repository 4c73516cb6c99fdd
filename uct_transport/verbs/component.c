/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Component: what UCX sees first. Registers the transport when the library is loaded, but only with
 * the UCX that it was built for: UCX has no stable internal interface, so that another version
 * would crash later.
 */
#include "verbs/ep.h"

#include "base/say.h"
#include "gpu/copier.h"

#ifndef UCT_ANGARA_IN_TREE
#include <ucp/api/ucp.h>

#include <dlfcn.h>
#endif

#include <stdlib.h>
#include <string.h>

/** The device that reaches the peers of the node where the first one doesn't. */
#define UCT_ANGARA_NODE_DEVICE "soft0"

static void uct_angara_md_resource_set(uct_md_resource_desc_t *resource, const char *device)
{
    ucs_snprintf_zero(resource->md_name, sizeof(resource->md_name), "%.*s",
                      (int)sizeof(resource->md_name) - 1, device);
}

/*
 * One device, the library's default; and, if that is a NIC on which the PEs of a node can't reach
 * each other, the soft fabric for these. UCP takes for each peer the one that reaches it.
 */
static ucs_status_t uct_angara_query_md_resources(uct_component_t         *component,
                                                  uct_md_resource_desc_t **resources_p,
                                                  unsigned                *num_resources_p)
{
    uct_md_resource_desc_t *resources;
    angara_attr_t           attr;
    angara_domain_h         dom;
    angara_status_t         status;

    static int is_absent = 0; /* the library has said why, once is enough */

    (void)component;
    if (is_absent) {
        return uct_md_query_empty_md_resource(resources_p, num_resources_p);
    }

    status = angara_open(NULL, &dom);
    if (status != ANGARA_OK) {
        is_absent = 1;
        ucs_debug("angara: no device: %s", angara_strerror(status));
        return uct_md_query_empty_md_resource(resources_p, num_resources_p);
    }

    status = angara_query(dom, &attr);
    angara_close(dom);
    if (status != ANGARA_OK) {
        return uct_md_query_empty_md_resource(resources_p, num_resources_p);
    }

    resources = ucs_malloc(2 * sizeof(*resources), "angara_md_resources");
    if (resources == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    uct_angara_md_resource_set(&resources[0], attr.device);
    *num_resources_p = 1;
    if (!(attr.caps & ANGARA_CAP_NODE_PEERS)) {
        uct_angara_md_resource_set(&resources[1], UCT_ANGARA_NODE_DEVICE);
        *num_resources_p = 2;
    }
    *resources_p = resources;
    return UCS_OK;
}

/* The same region, at the same place. */
UCT_ANGARA_RKEY_COMPARE(uct_angara_rkey_compare,
                        memcmp((void *)rkey1, (void *)rkey2, sizeof(uct_angara_rkey_t)))

uct_component_t uct_angara_component = {
    .query_md_resources = uct_angara_query_md_resources,
    .md_open            = uct_angara_md_open,
    .cm_open            = UCT_ANGARA_UNSUPPORTED(uct_component_cm_open_func_t),
    .rkey_unpack        = uct_angara_rkey_unpack,
    .rkey_ptr           = UCT_ANGARA_UNSUPPORTED(uct_component_rkey_ptr_func_t),
    .rkey_release       = uct_angara_rkey_release,
    UCT_ANGARA_COMPONENT_MORE(uct_angara_rkey_compare).name = UCT_ANGARA_NAME,
    .md_config =
        {
            .name   = "Angara memory domain",
            .prefix = "ANGARA_",
            .table  = uct_angara_md_config_table,
            .size   = sizeof(uct_angara_md_config_t),
        },
    .cm_config   = UCS_CONFIG_EMPTY_GLOBAL_LIST_ENTRY,
    .tl_list     = UCT_COMPONENT_TL_LIST_INITIALIZER(&uct_angara_component),
    .flags       = 0,
    .md_vfs_init = UCT_ANGARA_EMPTY(uct_component_md_vfs_init_func_t, ucs_empty_function)};

static ucs_status_t uct_angara_query_tl_devices(uct_md_h                   tl_md,
                                                uct_tl_device_resource_t **tl_devices_p,
                                                unsigned                  *num_tl_devices_p)
{
    uct_angara_md_t *md = ucs_derived_of(tl_md, uct_angara_md_t);

    return uct_single_device_resource(tl_md, md->attr.device, UCT_DEVICE_TYPE_NET,
                                      UCS_SYS_DEVICE_ID_UNKNOWN, tl_devices_p, num_tl_devices_p);
}

UCT_TL_DEFINE_ENTRY(&uct_angara_component, angara, uct_angara_query_tl_devices, uct_angara_iface_t,
                    "ANGARA_", uct_angara_iface_config_table, uct_angara_iface_config_t)

#ifdef UCT_ANGARA_IN_TREE

/* A module of the UCX tree that it was built in. */
static int uct_angara_version_fits(void)
{
    return 1;
}

#else

static const char *uct_angara_with(int yes)
{
    return yes ? "with" : "without";
}

/* @return non-zero if this process's UCX has statistics, which it then exports. */
static int uct_angara_ucx_has_stats(void)
{
    return dlsym(RTLD_DEFAULT, "ucs_stats_node_alloc") != NULL;
}

/* @return non-zero if this process's UCX has assertions: it then clears more than the first word.
 */
static int uct_angara_ucx_has_assert(void)
{
    union {
        ucs_arbiter_group_t group;
        uint64_t            words[8];
    } probe;

    memset(&probe, 0xff, sizeof(probe));
    ucs_arbiter_group_init(&probe.group);
    return (probe.words[1] != UINT64_MAX) || (probe.words[2] != UINT64_MAX);
}

/* @return non-zero if UCX @a version is what the transport was built for, to the release. */
static int uct_angara_version_is_ours(const char *version)
{
    size_t length = strlen(UCT_ANGARA_UCX_STRING);

    /* a packager's suffix is none of our business */
    return (strncmp(version, UCT_ANGARA_UCX_STRING, length) == 0) &&
           ((version[length] < '0') || (version[length] > '9')) && (version[length] != '.');
}

/* @return non-zero if the UCX of this process is the one that the transport was built for. */
static int uct_angara_version_fits(void)
{
    const char *version   = ucp_get_version_string();
    const char *pretended = getenv("ANGARA_TEST_UCX_VERSION"); /* can refuse, but not allow */
    int         stats     = uct_angara_ucx_has_stats();
    int         asserts   = uct_angara_ucx_has_assert();

    if ((pretended != NULL) && uct_angara_version_is_ours(version)) {
        version = pretended;
    }

    if (!uct_angara_version_is_ours(version)) {
        uct_angara_stays_off(
            "the transport was built for UCX %s, but UCX %s runs here: it stays off. "
            "Build it for that one: make setup && make, in its source tree.",
            UCT_ANGARA_UCX_STRING, version);
        return 0;
    }

    if ((stats != UCT_ANGARA_UCX_STATS) || (asserts != UCT_ANGARA_UCX_ASSERT)) {
        uct_angara_stays_off(
            "the transport was built for a UCX %s configured %s statistics and %s "
            "assertions, but here one runs %s statistics and %s assertions: it stays "
            "off. Build it with the config.h of that UCX (scripts/gen_ucx_config).",
            UCT_ANGARA_UCX_STRING, uct_angara_with(UCT_ANGARA_UCX_STATS),
            uct_angara_with(UCT_ANGARA_UCX_ASSERT), uct_angara_with(stats),
            uct_angara_with(asserts));
        return 0;
    }

    return 1;
}

#endif

static int uct_angara_is_registered = 0;

/* For angara_info: print the variables of UCX and the transport. Non-zero: another UCX runs here.
 */
__attribute__((visibility("default"))) int uct_angara_print_variables(FILE *stream);

int uct_angara_print_variables(FILE *stream)
{
    if (!uct_angara_is_registered) {
        return -1;
    }
    ucs_config_parser_print_all_opts(stream, UCS_DEFAULT_ENV_PREFIX, UCS_CONFIG_PRINT_CONFIG,
                                     &ucs_config_global_list UCT_ANGARA_PRINT_FILTER);
    return 0;
}

UCS_F_CTOR static void uct_angara_register(void)
{
    if (uct_angara_version_fits()) {
        uct_component_register(&uct_angara_component);
        uct_tl_register(&uct_angara_component, &UCT_TL_NAME(angara));
        uct_angara_gpu_register();
        uct_angara_gpu_rndv_start();
        uct_angara_is_registered = 1;
    }
}

UCS_F_DTOR static void uct_angara_unregister(void)
{
    if (uct_angara_is_registered) {
        uct_angara_gpu_unregister();
        uct_tl_unregister(&UCT_TL_NAME(angara));
        uct_component_unregister(&uct_angara_component);
    }
}
