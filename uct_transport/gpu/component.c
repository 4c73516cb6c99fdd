/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Component and memory domain of GPU memory: is there a GPU, what is a pointer. Nothing is
 * registered here; zero copy between processes is the other component's.
 */
#include "gpu/copier.h"

#include "base/memtype.h"
#include "base/say.h"

#include <ucs/sys/topo/base/topo.h>

#include <string.h>

#define UCT_ANGARA_GPU_NAME "angara_gpu"

/* ---- what there is ------------------------------------------------------------------------- */

/* Does UCX have this component, and a device of it? Only that one is asked for its devices, as this
 * is part of our own answer. */
static int uct_angara_gpu_has_component(const char *name)
{
    int                  has = 0;
    uct_component_attr_t attr;
    uct_component_h     *components;
    unsigned             i, num_components;

    if (uct_query_components(&components, &num_components) != UCS_OK) {
        return 0;
    }
    for (i = 0; i < num_components; ++i) {
        attr.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME;
        if ((uct_component_query(components[i], &attr) != UCS_OK) ||
            (strcmp(attr.name, name) != 0)) {
            continue;
        }
        attr.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT;
        has = (uct_component_query(components[i], &attr) == UCS_OK) && (attr.md_resource_count > 0);
    }
    uct_release_component_list(components);
    return has;
}

/* Types of memory to be refused: UCX's own copy transports take what this one leaves out. */
static uint64_t uct_angara_gpu_left_out(void)
{
    uint64_t types = uct_angara_memtypes_left_out();

    if ((types & UCS_BIT(UCS_MEMORY_TYPE_CUDA)) && uct_angara_gpu_has_component("cuda_cpy")) {
        types &= ~UCS_BIT(UCS_MEMORY_TYPE_CUDA);
    }
    if ((types & UCS_BIT(UCS_MEMORY_TYPE_ROCM)) && uct_angara_gpu_has_component("rocm_cpy")) {
        types &= ~UCS_BIT(UCS_MEMORY_TYPE_ROCM);
    }
    return types;
}

/* Does UCX look after memory of GPUs that this transport doesn't know, of other kinds than these?
 */
static int uct_angara_gpu_has_others(uint64_t kinds)
{
    return (!(kinds & UCS_BIT(UCS_MEMORY_TYPE_CUDA)) && uct_angara_gpu_has_component("cuda_cpy")) ||
           (!(kinds & UCS_BIT(UCS_MEMORY_TYPE_ROCM)) && uct_angara_gpu_has_component("rocm_cpy")) ||
           uct_angara_gpu_has_component("ze_cpy");
}

static ucs_status_t uct_angara_gpu_query_md_resources(uct_component_t         *component,
                                                      uct_md_resource_desc_t **resources_p,
                                                      unsigned                *num_resources_p)
{
    if ((uct_angara_memtypes() == 0) && (uct_angara_gpu_left_out() == 0)) {
        return uct_md_query_empty_md_resource(resources_p, num_resources_p);
    }
    return uct_md_query_single_md_resource(component, resources_p, num_resources_p);
}

/* ---- memory domain ------------------------------------------------------------------------- */

static void uct_angara_gpu_md_close(uct_md_h tl_md)
{
    uct_angara_gpu_md_t *md = ucs_derived_of(tl_md, uct_angara_gpu_md_t);

    uct_angara_gpu_detect_stop(md);
    ucs_free(md);
}

/* Where UCX tells domains that copy from others it wants to hear of both ends. */
static const uint64_t uct_angara_gpu_md_host = UCT_ANGARA_MD_FLAG_MEMTYPE_COPY ?
                                                   UCS_BIT(UCS_MEMORY_TYPE_HOST) :
                                                   0;

static ucs_status_t uct_angara_gpu_md_query(uct_md_h tl_md, uct_angara_md_attr_t *attr)
{
    uct_angara_gpu_md_t *md   = ucs_derived_of(tl_md, uct_angara_gpu_md_t);
    uct_angara_md_caps_t caps = {.flags         = UCT_MD_FLAG_REG | UCT_ANGARA_MD_FLAG_MEMTYPE_COPY,
                                 .reg_mem_types = UCS_BIT(UCS_MEMORY_TYPE_HOST) | md->kinds,
                                 .access_mem_types = md->kinds | uct_angara_gpu_md_host,
                                 .detect_mem_types = md->kinds | md->left_out,
                                 .reg_cost         = ucs_linear_func_make(0, 0)};

    uct_angara_md_attr_fill(attr, &caps);
    return UCS_OK;
}

/* A copy needs no registration of its ends. */
static ucs_status_t uct_angara_gpu_md_mem_reg(uct_md_h tl_md, void *address, size_t length,
                                              uct_angara_mem_reg_arg_t arg, uct_mem_h *memh_p)
{
    (void)address;
    (void)length;
    (void)arg;
    *memh_p = tl_md;
    return UCS_OK;
}

static ucs_status_t uct_angara_gpu_md_mem_dereg(uct_md_h                         tl_md,
                                                const uct_md_mem_dereg_params_t *params)
{
    (void)tl_md;
    UCT_MD_MEM_DEREG_CHECK_PARAMS(params, 0);
    return UCS_OK;
}

/* UCX's number of the device; the last one that was asked for is known. */
static ucs_sys_device_t uct_angara_gpu_sys_device(uint32_t pci)
{
    static uint64_t  last; /* pci, then the number; atomic */
    uint64_t         known = __atomic_load_n(&last, __ATOMIC_RELAXED);
    ucs_sys_device_t sys_dev;
    ucs_sys_bus_id_t bus_id = {.domain   = pci >> 16,
                               .bus      = (pci >> 8) & 0xff,
                               .slot     = (pci >> 3) & 0x1f,
                               .function = pci & 7};

    if (pci == 0) {
        return UCS_SYS_DEVICE_ID_UNKNOWN;
    } else if (known >> 32 == pci) {
        return (ucs_sys_device_t)known;
    } else if (ucs_topo_find_device_by_bus_id(&bus_id, &sys_dev) != UCS_OK) {
        return UCS_SYS_DEVICE_ID_UNKNOWN;
    }
    __atomic_store_n(&last, (uint64_t)pci << 32 | sys_dev, __ATOMIC_RELAXED);
    return sys_dev;
}

/* What UCX has asked about last. */
static __thread struct {
    const void  *address;
    angara_mem_t mem;
} uct_angara_gpu_asked;

const angara_mem_t *uct_angara_gpu_last_asked(const void *address)
{
    return (uct_angara_gpu_asked.address == address) ? &uct_angara_gpu_asked.mem : NULL;
}

/*
 * Bytes of the allocation, as UCX is told. A buffer that runs past its end does no harm as long as
 * no message does, of a receive. What does meets an error when it is registered, or copied. UCX
 * 1.13 asserts that the allocation covers what it asks about; later versions keep what they
 * register, so that they must not be told of neighbours.
 */
static size_t uct_angara_gpu_length(const angara_mem_t *mem, const void *address, size_t length)
{
    size_t offset = (const char *)address - (const char *)mem->base;

    if (mem->base == NULL) {
        return length;
    }
    return UCT_ANGARA_HAS_RCACHE ?
               ucs_max(mem->length, offset + ucs_min(length, SIZE_MAX - offset)) :
               mem->length;
}

/*
 * Is it memory of a GPU that this process may use? UCX takes what it isn't told of for the host's,
 * and can't be told of an error: what nobody can touch would end in a crash a little later.
 */
static int uct_angara_gpu_is_known(const uct_angara_gpu_md_t *md, const void *address,
                                   size_t length, angara_mem_t *mem)
{
    uint64_t        changes = uct_angara_gpu_changes(md);
    angara_status_t status;
    int             is_known;

    if (uct_angara_gpu_is_hosts(address, changes)) {
        return 0; /* a driver takes as long for its answer as a short message does */
    }

    status   = angara_mem_query(address, mem);
    is_known = (status == ANGARA_OK) && (mem->kind != ANGARA_MEM_HOST);
    if (is_known || (length == 0)) {
        return is_known;
    }
    if ((status == ANGARA_ERR_UNSUPPORTED) &&
        (md->left_out & UCS_BIT(uct_angara_memtype(mem->kind)))) {
        uct_angara_abort("a buffer of %zu bytes at %p is memory of a GPU, which ANGARA_GPU leaves "
                         "out: aborting",
                         length, address);
    }
    if ((status == ANGARA_OK) && !md->has_others && uct_angara_gpu_is_gone(address)) {
        uct_angara_abort("there is no memory at %p, where a buffer of %zu bytes begins: it was "
                         "freed, or the pointer is wrong: aborting",
                         address, length);
    }
    if (status == ANGARA_OK) {
        uct_angara_gpu_see_hosts(address, changes);
    }
    return 0;
}

/* As the domain that was opened last; those of a process are alike. */
static uct_angara_gpu_md_t uct_angara_gpu_opened;

int uct_angara_gpu_is_device(const void *address, size_t length)
{
    angara_mem_t mem;

    return uct_angara_gpu_is_asking() &&
           uct_angara_gpu_is_known(&uct_angara_gpu_opened, address, length, &mem) &&
           ((mem.kind == ANGARA_MEM_CUDA) || (mem.kind == ANGARA_MEM_ROCM));
}

static ucs_status_t uct_angara_gpu_md_mem_query(uct_md_h tl_md, const void *address, size_t length,
                                                uct_angara_mem_attr_t *attr)
{
    uct_angara_gpu_md_t *md = ucs_derived_of(tl_md, uct_angara_gpu_md_t);
    ucs_memory_type_t    type;
    angara_mem_t         mem;

    if (!uct_angara_gpu_is_asking() || !uct_angara_gpu_is_known(md, address, length, &mem)) {
        return UCS_ERR_INVALID_ADDR;
    }

    uct_angara_gpu_hear(address, &mem);
    uct_angara_gpu_asked.address = address;
    uct_angara_gpu_asked.mem     = mem;
    type                         = uct_angara_memtype(mem.kind);
    if (!(md->kinds & UCS_BIT(type))) {
        return UCS_ERR_INVALID_ADDR; /* this domain doesn't care for it */
    }

    if (attr->field_mask & UCT_MD_MEM_ATTR_FIELD_MEM_TYPE) {
        attr->mem_type = type;
    }
    if (attr->field_mask & UCT_MD_MEM_ATTR_FIELD_SYS_DEV) {
        attr->sys_dev = uct_angara_gpu_sys_device(mem.pci);
    }
    if (attr->field_mask & UCT_MD_MEM_ATTR_FIELD_BASE_ADDRESS) {
        attr->base_address = (mem.base != NULL) ? mem.base : (void *)address;
    }
    if (attr->field_mask & UCT_MD_MEM_ATTR_FIELD_ALLOC_LENGTH) {
        attr->alloc_length = uct_angara_gpu_length(&mem, address, length);
    }
    return UCS_OK;
}

static ucs_status_t uct_angara_gpu_md_detect_memory_type(uct_md_h tl_md, const void *address,
                                                         size_t             length,
                                                         ucs_memory_type_t *mem_type_p)
{
    uct_angara_mem_attr_t attr = {.field_mask = UCT_MD_MEM_ATTR_FIELD_MEM_TYPE};
    ucs_status_t          status;

    status = uct_angara_gpu_md_mem_query(tl_md, address, length, &attr);
    if (status == UCS_OK) {
        *mem_type_p = attr.mem_type;
    }
    return status;
}

static uct_md_ops_t uct_angara_gpu_md_ops = {
    .close     = uct_angara_gpu_md_close,
    .query     = uct_angara_gpu_md_query,
    .mem_alloc = UCT_ANGARA_UNSUPPORTED(uct_md_mem_alloc_func_t),
    .mem_free  = UCT_ANGARA_UNSUPPORTED(uct_md_mem_free_func_t),
    .mem_reg   = uct_angara_gpu_md_mem_reg,
    .mem_dereg = uct_angara_gpu_md_mem_dereg,
    .mem_query = uct_angara_gpu_md_mem_query,
    .mkey_pack = UCT_ANGARA_EMPTY(uct_md_mkey_pack_func_t, ucs_empty_function_return_success),
    .detect_memory_type = uct_angara_gpu_md_detect_memory_type,
    UCT_ANGARA_MD_OPS_MORE};

static ucs_status_t uct_angara_gpu_md_open(uct_component_t *component, const char *md_name,
                                           const uct_md_config_t *config, uct_md_h *md_p)
{
    uct_angara_gpu_md_t *md;

    (void)md_name;
    (void)config;
    md = ucs_calloc(1, sizeof(*md), "angara_gpu_md");
    if (md == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    md->super.ops         = &uct_angara_gpu_md_ops;
    md->super.component   = component;
    md->kinds             = uct_angara_memtypes();
    md->left_out          = uct_angara_gpu_left_out();
    md->has_others        = uct_angara_gpu_has_others(md->kinds);
    uct_angara_gpu_opened = *md; /* outlives the domain: it never says that it is watching */
    uct_angara_gpu_detect_start(md);
    *md_p = &md->super;
    return UCS_OK;
}

/* ---- component ----------------------------------------------------------------------------- */

static ucs_status_t uct_angara_gpu_rkey_unpack(UCT_ANGARA_RKEY_UNPACK_ARGS)
{
    (void)rkey_buffer;
    *rkey_p   = 0;
    *handle_p = NULL;
    return UCS_OK;
}

UCT_ANGARA_RKEY_COMPARE(uct_angara_gpu_rkey_compare, (rkey1 > rkey2) - (rkey1 < rkey2))

static uct_component_t uct_angara_gpu_component = {
    .query_md_resources = uct_angara_gpu_query_md_resources,
    .md_open            = uct_angara_gpu_md_open,
    .cm_open            = UCT_ANGARA_UNSUPPORTED(uct_component_cm_open_func_t),
    .rkey_unpack        = uct_angara_gpu_rkey_unpack,
    .rkey_ptr           = UCT_ANGARA_UNSUPPORTED(uct_component_rkey_ptr_func_t),
    .rkey_release       = UCT_ANGARA_EMPTY(uct_component_rkey_release_func_t,
                                           ucs_empty_function_return_success),
    UCT_ANGARA_COMPONENT_MORE(uct_angara_gpu_rkey_compare).name = UCT_ANGARA_GPU_NAME,
    .md_config                                                  = UCT_MD_DEFAULT_CONFIG_INITIALIZER,
    .cm_config   = UCS_CONFIG_EMPTY_GLOBAL_LIST_ENTRY,
    .tl_list     = UCT_COMPONENT_TL_LIST_INITIALIZER(&uct_angara_gpu_component),
    .flags       = 0,
    .md_vfs_init = UCT_ANGARA_EMPTY(uct_component_md_vfs_init_func_t, ucs_empty_function)};

static ucs_status_t uct_angara_gpu_query_devices(uct_md_h md, uct_tl_device_resource_t **devices_p,
                                                 unsigned *num_devices_p)
{
    return uct_single_device_resource(md, UCT_ANGARA_GPU_NAME, UCT_DEVICE_TYPE_ACC,
                                      UCS_SYS_DEVICE_ID_UNKNOWN, devices_p, num_devices_p);
}

/* No variables: of those of all interfaces none means anything here. */
static ucs_config_field_t uct_angara_gpu_config_table[] = {{.name = NULL}};

/* As UCT_TL_DEFINE_ENTRY, which takes the name of the transport for that of the variable too. */
static uct_tl_t uct_angara_gpu_tl = {.name          = "angara",
                                     .query_devices = uct_angara_gpu_query_devices,
                                     .iface_open = UCS_CLASS_NEW_FUNC_NAME(uct_angara_gpu_iface_t),
                                     .config     = {.name   = UCT_ANGARA_GPU_NAME " transport",
                                                    .prefix = "ANGARA_GPU_",
                                                    .table  = uct_angara_gpu_config_table,
                                                    .size   = sizeof(uct_iface_config_t)}};

void uct_angara_gpu_register(void)
{
    uct_component_register(&uct_angara_gpu_component);
    uct_tl_register(&uct_angara_gpu_component, &uct_angara_gpu_tl);
}

void uct_angara_gpu_unregister(void)
{
    uct_tl_unregister(&uct_angara_gpu_tl);
    uct_component_unregister(&uct_angara_gpu_component);
}
