/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory domain, attributes and addresses: what is advertised is what is wired; registration with
 * and without the cache; allocation; keys, stale and hostile ones too; addresses of nonsense;
 * nothing leaks.
 */
#include "ut.h"

#include "base/compat.h"

#include <ucs/sys/stubs.h>

#include <dirent.h>

/* ---- attributes ---------------------------------------------------------------------------- */

typedef struct {
    const char *name;
    uint64_t    flag;
    size_t      op; /* offset of the operation in uct_iface_ops_t */
} md_wire_t;

#define MD_WIRE(_flag, _op)                                            \
    {                                                                  \
#_flag, UCT_IFACE_FLAG_##_flag, offsetof(uct_iface_ops_t, _op) \
    }

static const md_wire_t md_wires[] = {
    MD_WIRE(AM_SHORT, ep_am_short),
    MD_WIRE(AM_SHORT, ep_am_short_iov),
    MD_WIRE(AM_BCOPY, ep_am_bcopy),
    MD_WIRE(AM_ZCOPY, ep_am_zcopy),
    MD_WIRE(PENDING, ep_pending_add),
    MD_WIRE(PENDING, ep_pending_purge),
    MD_WIRE(PUT_SHORT, ep_put_short),
    MD_WIRE(PUT_BCOPY, ep_put_bcopy),
    MD_WIRE(PUT_ZCOPY, ep_put_zcopy),
    MD_WIRE(GET_SHORT, ep_get_short),
    MD_WIRE(GET_BCOPY, ep_get_bcopy),
    MD_WIRE(GET_ZCOPY, ep_get_zcopy),
    MD_WIRE(EP_CHECK, ep_check),
    MD_WIRE(CONNECT_TO_EP, ep_connect_to_ep),
    MD_WIRE(CONNECT_TO_EP, ep_get_address),
    MD_WIRE(TAG_EAGER_SHORT, ep_tag_eager_short),
    MD_WIRE(TAG_EAGER_BCOPY, ep_tag_eager_bcopy),
    MD_WIRE(TAG_EAGER_ZCOPY, ep_tag_eager_zcopy),
    MD_WIRE(TAG_RNDV_ZCOPY, ep_tag_rndv_zcopy),
};

static int md_is_wired(uct_iface_h iface, size_t offset)
{
    void *op = *(void **)((char *)&iface->ops + offset);

    return (op != NULL) && (op != (void *)ucs_empty_function_return_unsupported) &&
           (op != (void *)ucs_empty_function_do_assert);
}

/* Flags that say something about behaviour, each with a test of its own in this folder. */
#define MD_BEHAVIOUR                                                                     \
    (UCT_IFACE_FLAG_ATOMIC_CPU | UCT_IFACE_FLAG_ATOMIC_DEVICE | UCT_IFACE_FLAG_CB_SYNC | \
     UCT_IFACE_FLAG_CONNECT_TO_IFACE | UCT_IFACE_FLAG_ERRHANDLE_PEER_FAILURE |           \
     UCT_ANGARA_IFACE_FLAG_INTER_NODE)

static void iface_wiring(ut_t *t)
{
    uint64_t       tested = MD_BEHAVIOUR;
    uct_iface_h    iface;
    const uint64_t flags = (ut_open(t), t->main.attr.cap.flags);
    unsigned       i;

    iface = t->main.iface;
    for (i = 0; i < sizeof(md_wires) / sizeof(md_wires[0]); ++i) {
        tested |= md_wires[i].flag;
        if (!!(flags & md_wires[i].flag) != md_is_wired(iface, md_wires[i].op)) {
            rank_fail(__FILE__, __LINE__, "%s is %s, but its operation is %s", md_wires[i].name,
                      (flags & md_wires[i].flag) ? "advertised" : "not advertised",
                      md_is_wired(iface, md_wires[i].op) ? "there" : "missing");
        }
    }
    CHECK_EQ(flags & ~tested, 0); /* a flag that nothing here tests */
    CHECK_EQ(flags & UCT_ANGARA_IFACE_FLAG_INTER_NODE, UCT_ANGARA_IFACE_FLAG_INTER_NODE);

#define MD_ATOMIC(_flags, _op) \
    CHECK_EQ((_flags) != 0, md_is_wired(iface, offsetof(uct_iface_ops_t, _op)))
    MD_ATOMIC(t->main.attr.cap.atomic32.op_flags, ep_atomic32_post);
    MD_ATOMIC(t->main.attr.cap.atomic64.op_flags, ep_atomic64_post);
    MD_ATOMIC(t->main.attr.cap.atomic32.fop_flags, ep_atomic32_fetch);
    MD_ATOMIC(t->main.attr.cap.atomic64.fop_flags, ep_atomic64_fetch);
    MD_ATOMIC(t->main.attr.cap.atomic32.fop_flags, ep_atomic_cswap32);
    MD_ATOMIC(t->main.attr.cap.atomic64.fop_flags, ep_atomic_cswap64);
    MD_ATOMIC(t->main.attr.cap.event_flags & UCT_IFACE_FLAG_EVENT_FD, iface_event_fd_get);
    MD_ATOMIC(t->main.attr.cap.event_flags, iface_event_arm);
    CHECK_EQ(t->main.attr.cap.event_flags & ~(UCT_IFACE_FLAG_EVENT_SEND_COMP |
                                              UCT_IFACE_FLAG_EVENT_RECV | UCT_IFACE_FLAG_EVENT_FD),
             0);
    ut_close(t);
}

/* What UCP of this version asks of a transport that carries everything (and what makes sense). */
static void iface_limits(ut_t *t)
{
    const uct_iface_attr_t *attr = &t->main.attr;

    ut_open(t);
    CHECK(attr->cap.am.max_short >= 64);
    CHECK(attr->cap.am.max_bcopy >= 1024);
    CHECK(attr->cap.am.max_bcopy >= attr->cap.am.max_short);
    CHECK(attr->cap.am.max_hdr < attr->cap.am.max_zcopy);
    CHECK(attr->cap.am.max_hdr >= 64);
    CHECK(attr->cap.am.max_iov >= 2);
    CHECK(attr->cap.put.max_short >= 8);
    CHECK(attr->cap.put.max_bcopy >= attr->cap.am.max_hdr);
    CHECK(attr->cap.put.max_zcopy >= 1ul << 30);
    CHECK(attr->cap.get.max_zcopy >= 1ul << 30);
    CHECK(attr->cap.get.max_bcopy >= 64);
    CHECK(attr->cap.put.min_zcopy <= 1);
    CHECK(attr->cap.get.min_zcopy <= 1);
    CHECK(attr->bandwidth.dedicated + attr->bandwidth.shared > 0);
    CHECK(attr->latency.c > 0);
    CHECK(attr->latency.c < 1e-3);
    CHECK(attr->overhead > 0);
    CHECK(attr->max_num_eps > 1);
    CHECK_EQ(attr->ep_addr_len, 0);
    ut_close(t);
}

static void md_attributes(ut_t *t)
{
    const uint64_t tested = UCT_MD_FLAG_ALLOC | UCT_MD_FLAG_FIXED | UCT_MD_FLAG_REG |
                            UCT_MD_FLAG_NEED_MEMH | UCT_MD_FLAG_NEED_RKEY |
                            UCT_ANGARA_MD_FLAG_INVALIDATE;
    const uct_md_attr_t *attr = &t->md_attr;

    ut_md_open(t);
    CHECK(strcmp(attr->component_name, UT_NAME) == 0);
    CHECK_EQ(attr->cap.flags, tested);
    CHECK(attr->cap.reg_mem_types & UCS_BIT(UCS_MEMORY_TYPE_HOST));
    CHECK(attr->cap.access_mem_types & UCS_BIT(UCS_MEMORY_TYPE_HOST));
    CHECK(attr->cap.alloc_mem_types & UCS_BIT(UCS_MEMORY_TYPE_HOST));
    CHECK(attr->cap.max_reg > 1ul << 40);
    CHECK(attr->rkey_packed_size > 0);
    CHECK(attr->rkey_packed_size <= UT_RKEY_MAX);
    CHECK(attr->reg_cost.c >= 0);
    CHECK(attr->reg_cost.c < 1e-3);
    ut_md_close(t);
}

/* ---- registration and allocation ------------------------------------------------------------ */

static void registration(ut_t *t)
{
    enum { COUNT = 2000 };
    static uct_mem_h memhs[COUNT];
    char            *memory = malloc(COUNT * 64);
    uct_mem_h        memh;
    unsigned         i;

    ut_md_open(t);
    CHECK_ERR(uct_md_mem_reg(t->md, memory, 0, UCT_MD_MEM_ACCESS_ALL, &memh));
    CHECK_ERR(uct_md_mem_reg(t->md, NULL, 8, UCT_MD_MEM_ACCESS_ALL, &memh));
    CHECK_ERR(uct_md_mem_reg(t->md, memory, SIZE_MAX,
                             UCT_MD_MEM_ACCESS_ALL | UCT_MD_MEM_FLAG_HIDE_ERRORS, &memh));
    for (i = 0; i < COUNT; ++i) {
        CHECK_OK(uct_md_mem_reg(t->md, memory + i * 64, 1 + i % 64,
                                (i % 2) ? UCT_MD_MEM_ACCESS_ALL : UCT_MD_MEM_ACCESS_RMA,
                                &memhs[i]));
    }
    for (i = 0; i < COUNT; ++i) {
        CHECK_OK(uct_md_mem_dereg(t->md, memhs[(i * 7) % COUNT]));
    }
    free(memory);
    ut_md_close(t);
}

static void allocation(ut_t *t)
{
    static const size_t    lengths[] = {1, 4095, 4096, 4097, 1 << 20, (16 << 20) + 1};
    uct_alloc_method_t     method    = UCT_ALLOC_METHOD_MD;
    uct_mem_alloc_params_t params;
    uct_allocated_memory_t alloc;
    ut_mem_t               mem;
    unsigned               i;
    size_t                 j;

    ut_md_open(t);
    for (i = 0; i < sizeof(lengths) / sizeof(lengths[0]); ++i) {
        ut_mem_init(t, &mem, UT_MEM_ALLOC, lengths[i]);
        for (j = 0; j < lengths[i]; ++j) {
            CHECK_EQ(mem.addr[j], 0);
        }
        memset(mem.addr, 0xff, mem.alloc.length);
        ut_mem_cleanup(t, &mem);
    }

    memset(&params, 0, sizeof(params));
    params.field_mask = UCT_MEM_ALLOC_PARAM_FIELD_FLAGS | UCT_MEM_ALLOC_PARAM_FIELD_ADDRESS |
                        UCT_MEM_ALLOC_PARAM_FIELD_MEM_TYPE | UCT_MEM_ALLOC_PARAM_FIELD_MDS |
                        UCT_MEM_ALLOC_PARAM_FIELD_NAME;
    params.flags     = UCT_MD_MEM_ACCESS_ALL | UCT_MD_MEM_FLAG_HIDE_ERRORS;
    params.mem_type  = UCS_MEMORY_TYPE_HOST;
    params.mds.mds   = &t->md;
    params.mds.count = 1;
    params.name      = "test";
    CHECK_ERR(uct_mem_alloc((size_t)1 << 60, &method, 1, &params, &alloc));
    CHECK(t->md_attr.cap.flags & UCT_MD_FLAG_FIXED);
    params.flags |= UCT_MD_MEM_FLAG_FIXED;
    params.address = (void *)0x500000000000;
    /* Open MPI takes the place before it asks for memory there. */
    CHECK(mmap(params.address, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
          params.address);
    CHECK_OK(uct_mem_alloc(4097, &method, 1, &params, &alloc));
    CHECK(alloc.address == params.address);
    CHECK_EQ(alloc.length, 8192);
    memset(alloc.address, 0xee, alloc.length);
    uct_mem_free(&alloc);
    CHECK_OK(uct_mem_alloc(4096, &method, 1, &params, &alloc));
    CHECK_EQ(((const unsigned char *)alloc.address)[0], 0);
    uct_mem_free(&alloc);
    ut_md_close(t);
}

/* ---- addresses and settings of nonsense ------------------------------------------------------ */

static void addresses(ut_t *t)
{
    unsigned  rounds = ut_rounds(1000), i, j;
    ut_addr_t addr;
    uct_ep_h  ep;

    ut_open(t);
    for (i = 0; i < rounds; ++i) {
        addr = t->main.addr;
        if (i % 3 == 0) {
            for (j = 0; j < sizeof(addr); ++j) {
                ((uint8_t *)&addr)[j] = (uint8_t)ut_random(t);
            }
        } else if (i % 3 == 1) {
            for (j = 8; j < t->main.attr.iface_addr_len; ++j) {
                addr.iface[j] = (uint8_t)ut_random(t);
            }
        } else {
            addr.iface[ut_random(t) % t->main.attr.iface_addr_len] ^=
                (uint8_t)(1u << (ut_random(t) % 8));
        }
        uct_iface_is_reachable(t->main.iface, (void *)addr.dev, (void *)addr.iface);
        if (ut_ep_try_create(&t->main, &addr, &ep) == UCS_OK) {
            uct_ep_destroy(ep);
        }
    }
    memset(&addr, 0, sizeof(addr));
    CHECK(!uct_iface_is_reachable(t->main.iface, (void *)addr.dev, (void *)addr.iface));
    CHECK(ut_ep_try_create(&t->main, &addr, &ep) != UCS_OK);
    CHECK(uct_iface_is_reachable(t->main.iface, (void *)t->main.addr.dev,
                                 (void *)t->main.addr.iface));
    ut_close(t);
}

/* Another node of the soft fabric is out of reach, and says so. */
static void other_node(ut_t *t)
{
    ut_addr_t all[RANK_MAX];
    uct_ep_h  ep;

    setenv("ANGARA_SOFT_NODE", t->rank ? "1" : "0", 1);
    ut_md_open(t);
    ut_iface_open(t, &t->main);
    ut_exchange(t, &t->main.addr, all, sizeof(all[0]));
    CHECK(!uct_iface_is_reachable(t->main.iface, (void *)all[1 - t->rank].dev,
                                  (void *)all[1 - t->rank].iface));
    CHECK(ut_ep_try_create(&t->main, &all[1 - t->rank], &ep) != UCS_OK);
    ut_barrier(t);
    ut_iface_close(&t->main);
    ut_md_close(t);
}

static ucs_status_t md_try_iface(ut_t *t, const char *name, const char *value)
{
    uct_iface_params_t  params;
    uct_iface_config_t *config;
    ucs_status_t        status;
    uct_iface_h         iface;
    char                whole[64];

    memset(&params, 0, sizeof(params));
    params.field_mask           = UCT_IFACE_PARAM_FIELD_OPEN_MODE | UCT_IFACE_PARAM_FIELD_DEVICE;
    params.open_mode            = UCT_IFACE_OPEN_MODE_DEVICE;
    params.mode.device.tl_name  = t->tl_name;
    params.mode.device.dev_name = t->dev_name;
    CHECK_OK(uct_md_iface_config_read(t->md, t->tl_name, NULL, NULL, &config));
    status = uct_config_modify(config, name, value);
    if (status != UCS_OK) { /* newer ones want the whole name */
        snprintf(whole, sizeof(whole), "ANGARA_%s", name);
        status = uct_config_modify(config, whole, value);
    }
    if (status == UCS_OK) {
        status = uct_iface_open(t->md, t->worker, &params, config, &iface);
        if (status == UCS_OK) {
            uct_iface_close(iface);
        }
    }
    uct_config_release(config);
    return status;
}

static void settings(ut_t *t)
{
    static const char *const bad[][2] = {
        {"RING_SLOTS", "0"},        {"RING_SLOTS", "15"},  {"RING_SLOTS", "32769"},
        {"RING_SLOTS", "many"},     {"SLOT_SIZE", "0"},    {"SLOT_SIZE", "100"},
        {"SLOT_SIZE", "32"},        {"SLOT_SIZE", "8192"}, {"MAX_PEERS", "0"},
        {"DEAD_PEER", "resurrect"},
    };
    static const char *const good[][2] = {
        {"RING_SLOTS", "16"},   {"RING_SLOTS", "17"},  {"RING_SLOTS", "32768"},
        {"SLOT_SIZE", "64"},    {"SLOT_SIZE", "4096"}, {"MAX_PEERS", "1"},
        {"MAX_PEERS", "65535"}, {"BOUNCE_COUNT", "1"}, {"DEAD_PEER", "ignore"},
    };
    unsigned i;

    ut_md_open(t);
    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i) {
        if (md_try_iface(t, bad[i][0], bad[i][1]) == UCS_OK) {
            rank_fail(__FILE__, __LINE__, "%s=%s was taken", bad[i][0], bad[i][1]);
        }
    }
    for (i = 0; i < sizeof(good) / sizeof(good[0]); ++i) {
        if (rank_chaos() && (strcmp(good[i][1], "4096") == 0)) {
            continue; /* a slot must fit into one put, and chaos takes smaller ones */
        }
        if (md_try_iface(t, good[i][0], good[i][1]) != UCS_OK) {
            rank_fail(__FILE__, __LINE__, "%s=%s was refused", good[i][0], good[i][1]);
        }
    }
    ut_md_close(t);
}

/* ---- leaks --------------------------------------------------------------------------------- */

static unsigned md_count_fds(void)
{
    DIR     *dir   = opendir("/proc/self/fd");
    unsigned count = 0;

    CHECK(dir != NULL);
    while (readdir(dir) != NULL) {
        ++count;
    }
    closedir(dir);
    return count;
}

/* Open and close everything, with traffic in between: descriptors don't add up. */
static void leaks(ut_t *t)
{
    unsigned rounds = 30, before = 0, round;
    ut_mem_t mem;
    uint64_t word = 1;

    for (round = 0; round < rounds; ++round) {
        ut_remote_t remotes[RANK_MAX];

        memset(&t->main, 0, sizeof(t->main));
        ut_open(t);
        ut_mem_init(t, &mem, (ut_mem_kind_t)(round % UT_MEM_KINDS), 4096);
        ut_mem_exchange(t, &mem, remotes);
        POST_OK(t, uct_ep_put_short(t->ep[1 - t->rank], &word, 8, remotes[1 - t->rank].addr,
                                    remotes[1 - t->rank].key.rkey));
        ut_flush(t, &t->main);
        ut_barrier(t);
        ut_remotes_release(t, remotes);
        ut_mem_cleanup(t, &mem);
        ut_close(t);
        if (round == 2) {
            before = md_count_fds();
        }
    }
    CHECK_EQ(md_count_fds(), before);
}

/* ---- the tests ----------------------------------------------------------------------------- */

#define MD_TEST(_name, _nranks, _func) \
    static void _name(void **state)    \
    {                                  \
        (void)state;                   \
        ut_run(_nranks, _func, NULL);  \
    }

MD_TEST(test_iface_wiring, 1, iface_wiring)
MD_TEST(test_iface_limits, 1, iface_limits)
MD_TEST(test_md_attributes, 1, md_attributes)
MD_TEST(test_registration, 1, registration)
MD_TEST(test_allocation, 1, allocation)
MD_TEST(test_addresses, 1, addresses)
MD_TEST(test_other_node, 2, other_node)
MD_TEST(test_settings, 1, settings)
MD_TEST(test_leaks, 2, leaks)

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_iface_wiring),  cmocka_unit_test(test_iface_limits),
        cmocka_unit_test(test_md_attributes), cmocka_unit_test(test_registration),
        cmocka_unit_test(test_allocation),

        cmocka_unit_test(test_addresses),     cmocka_unit_test(test_other_node),
        cmocka_unit_test(test_settings),      cmocka_unit_test(test_leaks),
    };

    return ut_main(argc, argv, "md", tests, sizeof(tests) / sizeof(tests[0]));
}
