/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory domain: one angara protection domain; registration, allocation, keys.
 */
#ifndef UCT_ANGARA_MD_H
#define UCT_ANGARA_MD_H

#include "uct_angara_compat.h"

#include <angara/angara.h>

#define UCT_ANGARA_NAME "angara"

typedef struct uct_angara_md_config {
    uct_md_config_t          super;
    ucs_ternary_auto_value_t rcache_enable;
    uct_md_rcache_config_t   rcache;
} uct_angara_md_config_t;

typedef struct uct_angara_md {
    uct_md_t          super;
    angara_domain_h   dom;
    angara_attr_t     attr;
    ucs_rcache_t     *rcache; /**< NULL: every registration is made anew */
    ucs_linear_func_t reg_cost;
} uct_angara_md_t;

/** Memory handle of UCT. */
typedef struct uct_angara_mem {
    angara_mr_h mr;
    void       *address;
    size_t      length;
} uct_angara_mem_t;

/** Packed remote key: what the owner of the memory gives away. */
typedef struct uct_angara_packed_rkey {
    uint64_t key;  /**< names the region; never 0 */
    uint64_t base; /**< its start address at the owner */
} UCS_S_PACKED uct_angara_packed_rkey_t;

/** Unpacked remote key: uct_rkey_t points here. */
typedef struct uct_angara_rkey {
    uint64_t key;
    uint64_t base;
} uct_angara_rkey_t;

extern uct_component_t    uct_angara_component;
extern ucs_config_field_t uct_angara_md_config_table[];

ucs_status_t uct_angara_md_open(uct_component_t *component, const char *md_name,
                                const uct_md_config_t *md_config, uct_md_h *md_p);
ucs_status_t uct_angara_rkey_unpack(UCT_ANGARA_RKEY_UNPACK_ARGS);
ucs_status_t uct_angara_rkey_release(uct_component_t *component, uct_rkey_t rkey, void *handle);

/** Register without the cache. */
ucs_status_t uct_angara_mem_register(uct_angara_md_t *md, void *address, size_t length, int silent,
                                     uct_angara_mem_t *mem);
void         uct_angara_mem_deregister(uct_angara_mem_t *mem);

/** Make the registration cache and switch md->super.ops to the functions that use it. */
ucs_status_t uct_angara_rcache_create(uct_angara_md_t *md, const uct_angara_md_config_t *config);

/** Operations of an md with a cache. */
extern uct_md_ops_t uct_angara_md_rcache_ops;
void                uct_angara_md_close(uct_md_h tl_md);
ucs_status_t        uct_angara_md_query(UCT_ANGARA_MD_QUERY_ARGS);
ucs_status_t        uct_angara_md_mem_alloc(uct_md_h tl_md, size_t *length_p, void **address_p,
                                            ucs_memory_type_t mem_type, unsigned flags,
                                            const char *alloc_name, uct_mem_h *memh_p);
ucs_status_t        uct_angara_md_mem_free(uct_md_h tl_md, uct_mem_h tl_memh);
ucs_status_t        uct_angara_md_mkey_pack(UCT_ANGARA_MKEY_PACK_ARGS);
ucs_status_t        uct_angara_md_mem_query(uct_md_h tl_md, const void *address, size_t length,
                                            uct_md_mem_attr_t *attr);
ucs_status_t uct_angara_md_detect_memory_type(uct_md_h tl_md, const void *address, size_t length,
                                              ucs_memory_type_t *mem_type_p);

/** UCX's text for a status of the library. */
ucs_status_t uct_angara_status(angara_status_t status);

#endif
