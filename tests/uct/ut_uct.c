/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Harness of the UCT tests: loading the transport, opening UCT objects, memory, completions.
 * Public API only.
 */
#include "ut.h"

#include "base/compat.h"

#include <ucs/debug/log_def.h>
#include <uct/api/v2/uct_v2.h>

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

const char *ut_mem_names[] = {"private", "alloc"};

/* ---- domain, interface, endpoint ----------------------------------------------------------- */

static void ut_component_find(ut_t *t)
{
    uct_component_attr_t attr = {.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME |
                                               UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT};
    uct_component_h     *components;
    unsigned             count, i;

    CHECK_OK(uct_query_components(&components, &count));
    for (i = 0; i < count; ++i) {
        CHECK_OK(uct_component_query(components[i], &attr));
        if (strcmp(attr.name, UT_NAME) == 0) {
            CHECK(t->component == NULL); /* once only */
            CHECK_EQ(attr.md_resource_count, 1);
            t->component = components[i];
        }
    }
    uct_release_component_list(components);
    if (t->component == NULL) {
        rank_fail(__FILE__, __LINE__, "there is no UCT component '%s'", UT_NAME);
    }
}

static void ut_md_open_named(ut_t *t)
{
    uct_md_resource_desc_t  md_resource;
    uct_component_attr_t    attr = {.field_mask   = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES,
                                    .md_resources = &md_resource};
    uct_tl_resource_desc_t *resources;
    uct_md_config_t        *config;
    unsigned                count;

    CHECK_OK(uct_component_query(t->component, &attr));
    CHECK_OK(uct_md_config_read(t->component, NULL, NULL, &config));
    CHECK_OK(uct_md_open(t->component, md_resource.md_name, config, &t->md));
    uct_config_release(config);
    CHECK_OK(uct_md_query(t->md, &t->md_attr));

    CHECK_OK(uct_md_query_tl_resources(t->md, &resources, &count));
    CHECK_EQ(count, 1);
    CHECK(strcmp(resources[0].tl_name, UT_NAME) == 0);
    snprintf(t->tl_name, sizeof(t->tl_name), "%s", resources[0].tl_name);
    snprintf(t->dev_name, sizeof(t->dev_name), "%s", resources[0].dev_name);
    uct_release_tl_resource_list(resources);
}

void ut_md_open(ut_t *t)
{
    /* as the plug-in for Open MPI does; no-op if preloaded */
    if (dlopen("libuct_angara.so", RTLD_NOW) == NULL) {
        rank_fail(__FILE__, __LINE__, "%s", dlerror());
    }
    CHECK_OK(ucs_async_context_create(UCS_ASYNC_MODE_THREAD_SPINLOCK, &t->async));
    ut_component_find(t);
    ut_md_open_named(t);
    CHECK_OK(uct_worker_create(t->async, UCS_THREAD_MODE_SINGLE, &t->worker));
}

void ut_md_close(ut_t *t)
{
    uct_worker_destroy(t->worker);
    t->worker = NULL;
    uct_md_close(t->md);
    ucs_async_context_destroy(t->async);
    t->component = NULL;
}

static ucs_status_t ut_error_handler(void *arg, uct_ep_h ep, ucs_status_t status)
{
    ut_iface_t *iface = arg;

    ++iface->errors;
    iface->error = status;
    if (iface->on_error != NULL) {
        iface->on_error(iface->on_error_arg, ep);
    }
    return iface->verdict;
}

ucs_status_t ut_iface_try_open(ut_t *t, ut_iface_t *iface)
{
    uct_iface_params_t  params;
    uct_iface_config_t *config;
    ucs_status_t        status;

    memset(&params, 0, sizeof(params));
    params.field_mask = UCT_IFACE_PARAM_FIELD_OPEN_MODE | UCT_IFACE_PARAM_FIELD_DEVICE |
                        UCT_IFACE_PARAM_FIELD_RX_HEADROOM | iface->param_mask;
    params.am_alignment         = iface->am_alignment;
    params.am_align_offset      = iface->am_align_offset;
    params.open_mode            = UCT_IFACE_OPEN_MODE_DEVICE;
    params.mode.device.tl_name  = t->tl_name;
    params.mode.device.dev_name = t->dev_name;
    if (!iface->no_handler) {
        params.field_mask |= UCT_IFACE_PARAM_FIELD_ERR_HANDLER |
                             UCT_IFACE_PARAM_FIELD_ERR_HANDLER_ARG |
                             UCT_IFACE_PARAM_FIELD_ERR_HANDLER_FLAGS;
        params.err_handler     = ut_error_handler;
        params.err_handler_arg = iface;
    }

    CHECK_OK(uct_md_iface_config_read(t->md, t->tl_name, NULL, NULL, &config));
    status = uct_iface_open(t->md, t->worker, &params, config, &iface->iface);
    uct_config_release(config);
    return status;
}

void ut_iface_open(ut_t *t, ut_iface_t *iface)
{
    CHECK_OK(ut_iface_try_open(t, iface));
    uct_iface_progress_enable(iface->iface, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
    CHECK_OK(uct_iface_query(iface->iface, &iface->attr));
    CHECK(iface->attr.device_addr_len <= sizeof(iface->addr.dev));
    CHECK(iface->attr.iface_addr_len <= sizeof(iface->addr.iface));
    CHECK_OK(uct_iface_get_device_address(iface->iface, (void *)iface->addr.dev));
    CHECK_OK(uct_iface_get_address(iface->iface, (void *)iface->addr.iface));
    iface->errors  = 0;
    iface->error   = UCS_OK;
    iface->verdict = UCS_OK;
}

void ut_iface_close(ut_iface_t *iface)
{
    uct_iface_close(iface->iface);
}

ucs_status_t ut_ep_try_create(const ut_iface_t *iface, const ut_addr_t *addr, uct_ep_h *ep_p)
{
    uct_ep_params_t params = {.field_mask = UCT_EP_PARAM_FIELD_IFACE | UCT_EP_PARAM_FIELD_DEV_ADDR |
                                            UCT_EP_PARAM_FIELD_IFACE_ADDR,
                              .iface      = iface->iface,
                              .dev_addr   = (const void *)addr->dev,
                              .iface_addr = (const void *)addr->iface};

    return uct_ep_create(&params, ep_p);
}

uct_ep_h ut_ep_create(const ut_iface_t *iface, const ut_addr_t *addr)
{
    uct_ep_h ep;

    CHECK(uct_iface_is_reachable(iface->iface, (const void *)addr->dev, (const void *)addr->iface));
    CHECK_OK(ut_ep_try_create(iface, addr, &ep));
    return ep;
}

void ut_progress(ut_t *t)
{
    uct_worker_progress(t->worker);
}

void ut_progress_ms(ut_t *t, unsigned ms)
{
    double   end = now_seconds() + ms * 1e-3;
    unsigned i;

    do {
        for (i = 0; i < 64; ++i) {
            ut_progress(t);
        }
        sleep_ms(1);
    } while (now_seconds() < end);
}

void ut_flush(ut_t *t, ut_iface_t *iface)
{
    ut_timer_t   timer = {0, 0};
    ucs_status_t status;

    while ((status = uct_iface_flush(iface->iface, 0, NULL)) != UCS_OK) {
        if ((status != UCS_INPROGRESS) && (status != UCS_ERR_NO_RESOURCE)) {
            CHECK_OK(status);
        }
        ut_relax(t, &timer, __FILE__, __LINE__, "flush of the interface");
    }
    /* Again, with nothing to do: from here on it knows the peers for quiet, until one is used. */
    CHECK_OK(uct_iface_flush(iface->iface, 0, NULL));
}

void ut_cache_on(void)
{
    if (!UCT_ANGARA_HAS_RCACHE) {
        rank_skip("UCX caches registrations by itself");
    }
    setenv("UCX_ANGARA_RCACHE", "y", 1);
}

void ut_open(ut_t *t)
{
    unsigned i;

    ut_md_open(t);
    ut_iface_open(t, &t->main);
    ut_exchange(t, &t->main.addr, t->addr, sizeof(t->main.addr));
    for (i = 0; i < t->nranks; ++i) {
        t->ep[i] = ut_ep_create(&t->main, &t->addr[i]);
    }
    ut_barrier(t);
}

void ut_close_alone(ut_t *t)
{
    unsigned i;

    for (i = 0; i < t->nranks; ++i) {
        if (t->ep[i] != NULL) {
            uct_ep_destroy(t->ep[i]);
            t->ep[i] = NULL;
        }
    }
    ut_iface_close(&t->main);
    ut_md_close(t);
}

void ut_close(ut_t *t)
{
    ut_flush(t, &t->main);
    ut_barrier(t);
    CHECK_EQ(t->main.errors, 0);
    ut_close_alone(t);
}

/* ---- completions --------------------------------------------------------------------------- */

static void ut_comp_called(uct_completion_t *self)
{
    ut_comp_t *comp = (ut_comp_t *)self;

    ++comp->calls;
    comp->status = self->status;
}

void ut_comp_init(ut_comp_t *comp, int count)
{
    comp->super.func   = ut_comp_called;
    comp->super.count  = count;
    comp->super.status = UCS_OK;
    comp->calls        = 0;
    comp->status       = UCS_INPROGRESS;
}

ucs_status_t ut_comp_wait(ut_t *t, ucs_status_t posted, ut_comp_t *comp)
{
    if (posted != UCS_INPROGRESS) {
        CHECK_EQ(comp->calls, 0);
        return posted;
    }
    UT_WAIT(t, comp->calls > 0);
    CHECK_EQ(comp->calls, 1);
    return comp->status;
}

/* ---- memory -------------------------------------------------------------------------------- */

static void ut_mem_alloc(ut_t *t, ut_mem_t *mem, unsigned flags)
{
    uct_alloc_method_t     method = UCT_ALLOC_METHOD_MD;
    uct_mem_alloc_params_t params;

    memset(&params, 0, sizeof(params));
    params.field_mask = UCT_MEM_ALLOC_PARAM_FIELD_FLAGS | UCT_MEM_ALLOC_PARAM_FIELD_ADDRESS |
                        UCT_MEM_ALLOC_PARAM_FIELD_MEM_TYPE | UCT_MEM_ALLOC_PARAM_FIELD_MDS |
                        UCT_MEM_ALLOC_PARAM_FIELD_NAME;
    params.flags     = flags;
    params.mem_type  = UCS_MEMORY_TYPE_HOST;
    params.mds.mds   = &t->md;
    params.mds.count = 1;
    params.name      = "test";
    CHECK_OK(uct_mem_alloc(mem->length, &method, 1, &params, &mem->alloc));
    CHECK_EQ(mem->alloc.method, UCT_ALLOC_METHOD_MD);
    CHECK(mem->alloc.length >= mem->length);
    mem->addr = mem->alloc.address;
    mem->memh = mem->alloc.memh;
}

void ut_mem_init_flags(ut_t *t, ut_mem_t *mem, ut_mem_kind_t kind, size_t length, unsigned flags)
{
    mem->kind   = kind;
    mem->length = length;
    if (kind == UT_MEM_ALLOC) {
        ut_mem_alloc(t, mem, flags);
    } else {
        mem->addr = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(mem->addr != MAP_FAILED);
        CHECK_OK(uct_md_mem_reg(t->md, mem->addr, length, flags, &mem->memh));
    }
}

void ut_mem_init(ut_t *t, ut_mem_t *mem, ut_mem_kind_t kind, size_t length)
{
    ut_mem_init_flags(t, mem, kind, length, UCT_MD_MEM_ACCESS_ALL);
}

void ut_mem_cleanup(ut_t *t, ut_mem_t *mem)
{
    if (mem->kind == UT_MEM_ALLOC) {
        CHECK_OK(uct_mem_free(&mem->alloc));
    } else {
        CHECK_OK(uct_md_mem_dereg(t->md, mem->memh));
        munmap(mem->addr, mem->length);
    }
}

void ut_mem_exchange(ut_t *t, const ut_mem_t *mem, ut_remote_t *remotes)
{
    typedef struct {
        uint64_t addr;
        uint64_t length;
        uint8_t  rkey[UT_RKEY_MAX];
    } wire_t;
    wire_t   mine, all[RANK_MAX];
    unsigned i;

    memset(&mine, 0, sizeof(mine));
    mine.addr   = (uintptr_t)mem->addr;
    mine.length = mem->length;
    CHECK(t->md_attr.rkey_packed_size <= sizeof(mine.rkey));
    CHECK_OK(uct_md_mkey_pack(t->md, mem->memh, mine.rkey));
    ut_exchange(t, &mine, all, sizeof(mine));
    for (i = 0; i < t->nranks; ++i) {
        remotes[i].addr   = all[i].addr;
        remotes[i].length = all[i].length;
        CHECK_OK(uct_rkey_unpack(t->component, all[i].rkey, &remotes[i].key));
    }
}

void ut_remotes_release(ut_t *t, ut_remote_t *remotes)
{
    unsigned i;

    for (i = 0; i < t->nranks; ++i) {
        CHECK_OK(uct_rkey_release(t->component, &remotes[i].key));
    }
}

void ut_mem_dereg(ut_t *t, uct_mem_h memh, uct_completion_t *comp)
{
    uct_md_mem_dereg_params_t params = {.field_mask = UCT_MD_MEM_DEREG_FIELD_MEMH, .memh = memh};

    if (comp != NULL) {
        params.field_mask |= UCT_MD_MEM_DEREG_FIELD_FLAGS | UCT_MD_MEM_DEREG_FIELD_COMPLETION;
        params.flags = UCT_MD_MEM_DEREG_FLAG_INVALIDATE;
        params.comp  = comp;
    }
    CHECK_OK(uct_md_mem_dereg_v2(t->md, &params));
}

/* ---- small things -------------------------------------------------------------------------- */

size_t ut_pack(void *dest, void *arg)
{
    const ut_pack_t *pack = arg;

    memcpy(dest, pack->buffer, pack->length);
    return pack->length;
}

static char ut_log_text[4096];

static ucs_log_func_rc_t ut_log_handler(const char *file, unsigned line, const char *function,
                                        ucs_log_level_t                   level,
                                        const ucs_log_component_config_t *component,
                                        const char *message, va_list ap)
{
    size_t used = strlen(ut_log_text);

    (void)file;
    (void)line;
    (void)function;
    (void)component;
    if (level <= UCS_LOG_LEVEL_WARN) {
        vsnprintf(ut_log_text + used, sizeof(ut_log_text) - used, message, ap);
    }
    return UCS_LOG_FUNC_RC_STOP;
}

void ut_log_watch(void)
{
    ucs_log_push_handler(ut_log_handler);
}

void ut_log_forget(void)
{
    ut_log_text[0] = '\0';
}

int ut_log_has(const char *text)
{
    return strstr(ut_log_text, text) != NULL;
}

static int ut_size_compare(const void *a, const void *b)
{
    size_t x = *(const size_t *)a, y = *(const size_t *)b;

    return (x > y) - (x < y);
}

unsigned ut_sizes(size_t max, size_t sizes[UT_SIZES_MAX])
{
    static const int less[] = {0, 8, 16};
    unsigned         count = 0, kept = 1, i;
    size_t           power;
    int              around;

    sizes[count++] = 0;
    sizes[count++] = max;
    for (around = -2; around < 0; ++around) {
        if (max + (size_t)around < max) {
            sizes[count++] = max + (size_t)around;
        }
    }
    for (power = 1; (power <= 2 * max) && (power != 0); power *= 2) {
        for (i = 0; i < 3; ++i) {
            for (around = -1; around <= 1; ++around) {
                size_t size = power + (size_t)around - (size_t)less[i];

                if ((size <= max) && (count < UT_SIZES_MAX)) {
                    sizes[count++] = size;
                }
            }
        }
    }
    qsort(sizes, count, sizeof(*sizes), ut_size_compare);
    for (i = 1; i < count; ++i) {
        if (sizes[i] != sizes[kept - 1]) {
            sizes[kept++] = sizes[i];
        }
    }
    return kept;
}

void ut_iov_cut(ut_t *t, void *buffer, size_t length, uct_mem_h memh, uct_iov_t *iov, size_t count)
{
    size_t done = 0, part, i;

    for (i = 0; i < count; ++i) {
        part = (i + 1 == count) ? length - done :
                                  ut_random(t) % (2 * (length - done) / (count - i) + 1);
        part = (part > length - done) ? length - done : part;

        iov[i].buffer = (char *)buffer + done;
        iov[i].length = part;
        iov[i].memh   = memh;
        iov[i].stride = 0;
        iov[i].count  = 1;
        done += part;
    }
}
