/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Library, domains, PEs, addresses and connecting: what is accepted, what is refused and how, and
 * that bytes which are no address never do harm.
 */
#include "conf.h"

#include <cmocka.h>

#include <sys/mman.h>

static void library(conf_t *t)
{
    int  major, minor, patch;
    char extra;
    int  status;

    (void)t;
    CHECK(sscanf(angara_version(), "%d.%d.%d%c", &major, &minor, &patch, &extra) == 3);
    CHECK_EQ(major, ANGARA_VERSION_MAJOR);
    CHECK_EQ(minor, ANGARA_VERSION_MINOR);
    CHECK_EQ(patch, ANGARA_VERSION_PATCH);
    for (status = -20; status <= 2; ++status) {
        const char *text = angara_strerror((angara_status_t)status);

        CHECK((text != NULL) && (text[0] != '\0'));
        if ((status > ANGARA_ERR_LAST) && (status < 0)) {
            CHECK(strcmp(text, angara_strerror(ANGARA_ERR_LAST)) != 0);
            CHECK(strcmp(text, angara_strerror((angara_status_t)(status + 1))) != 0);
        }
    }
}

static void open_names(conf_t *t)
{
    static const char *const bad[] = {
        "",       "sof",    "soft1",
        "softer", "nic7",   "/dev/null",
        "a b",    "soft0 ", "0123456789012345678901234567890123456789012345678901234567"};
    angara_domain_h dom = NULL;
    size_t          i;

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i) {
        CHECK_STATUS(angara_open(bad[i], &dom), ANGARA_ERR_NO_DEVICE);
        CHECK(dom == NULL);
    }
    CHECK_OK(angara_open(NULL, &dom));
    CHECK_OK(angara_close(dom));
    CHECK_OK(angara_open(conf_device(), &dom));
    CHECK_OK(angara_query(dom, &t->attr));
    CHECK(t->attr.provider[0] != '\0');
    CHECK(memchr(t->attr.provider, 0, sizeof(t->attr.provider)) != NULL);
    CHECK(memchr(t->attr.device, 0, sizeof(t->attr.device)) != NULL);
    CHECK(t->attr.device[0] != '\0');
    CHECK(t->attr.window_max >= CONF_WINDOW);
    CHECK(t->attr.put_max >= 64);
    CHECK(t->attr.offload_max >= (8u << 20));
    CHECK(t->attr.inline_max >= 8);
    CHECK(t->attr.mr_max >= 16);
    CHECK(t->attr.marker_slots >= 8);
    CHECK_EQ((t->attr.caps & ANGARA_CAP_CHAOS) != 0, rank_chaos());
    CHECK_EQ((t->attr.caps & ANGARA_CAP_LOOPBACK) != 0, conf_env_on("ANGARA_SOFT_LOOPBACK"));
    CHECK_OK(angara_close(dom));
    /* The device that query names can be opened by that name. */
    CHECK_OK(angara_open(t->attr.device, &dom));
    CHECK_OK(angara_close(dom));
    CHECK_STATUS(angara_open(conf_device(), NULL), ANGARA_ERR_INVALID);
    CHECK_STATUS(angara_close(NULL), ANGARA_ERR_INVALID);
}

static void lifetimes(conf_t *t)
{
    angara_pe_params_t params = {.size = sizeof(params), .window_size = CONF_WINDOW};
    angara_domain_h    dom;
    angara_pe_h        pe[20];
    angara_address_t   addr[20];
    angara_mr_h        mr;
    size_t             size, i, j;
    static char        memory[4096];

    (void)t;
    CHECK_OK(angara_open(conf_device(), &dom));
    CHECK_OK(angara_pe_create(dom, &params, &pe[0]));
    CHECK_STATUS(angara_close(dom), ANGARA_ERR_INVALID);
    angara_pe_destroy(pe[0]);
    CHECK_OK(angara_mr_register(dom, memory, sizeof(memory), ANGARA_ACCESS_ALL, &mr));
    CHECK_STATUS(angara_close(dom), ANGARA_ERR_INVALID);
    CHECK_OK(angara_mr_deregister(mr));
    /* Addresses are all different, also from those of PEs that are gone. */
    for (i = 0; i < 20; ++i) {
        CHECK_OK(angara_pe_create(dom, (i == 0) ? NULL : &params, &pe[i]));
        angara_pe_address(pe[i], &addr[i]);
        CHECK_EQ(addr[i].magic, ANGARA_ADDRESS_MAGIC);
        CHECK_EQ(addr[i].version, ANGARA_WIRE_VERSION);
        CHECK(addr[i].generation != 0);
        CHECK(angara_is_reachable(dom, &addr[i]));
        for (j = 0; j < i; ++j) {
            CHECK((addr[i].index != addr[j].index) || (addr[i].generation != addr[j].generation));
        }
        CHECK(angara_pe_window(pe[i], &size) != NULL);
        CHECK(size >= ((i == 0) ? 4096 : CONF_WINDOW));
        if ((i % 2) != 0) {
            angara_pe_destroy(pe[i]);
        }
    }
    for (i = 0; i < 20; i += 2) {
        angara_pe_destroy(pe[i]);
    }
    CHECK_OK(angara_close(dom));
}

/* Memory at an address, in place of what is there: peers reach it as they do other memory. */
static void allocated_at(conf_t *t)
{
    char       *place  = (char *)0x500000000000 + ((size_t)t->rank << 30);
    size_t      length = 4097, other = 1;
    uint64_t    keys[RANK_MAX], key, value = t->rank + 1;
    angara_mr_h mr, again = NULL;

    conf_open(t);
    CHECK(mmap(place, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == place);
    CHECK_OK(angara_mem_alloc_at(t->dom, place, &length, ANGARA_ACCESS_ALL, &mr));
    CHECK_EQ(length, 8192);
    memset(place, 0xee, length);
    CHECK_STATUS(angara_mem_alloc_at(t->dom, place + 1, &other, ANGARA_ACCESS_ALL, &again),
                 ANGARA_ERR_INVALID);
    CHECK_STATUS(angara_mem_alloc_at(t->dom, NULL, &other, ANGARA_ACCESS_ALL, &again),
                 ANGARA_ERR_INVALID);
    CHECK(again == NULL);
    key = angara_mr_key(mr);
    conf_exchange(t, &key, keys, sizeof(key));
    POST_OK(t, angara_offload_put_inline(t->peer[1 - t->rank], &value, keys[1 - t->rank], 8, 8));
    conf_marker(t, 1 - t->rank);
    conf_barrier(t);
    memcpy(&value, place + 8, sizeof(value));
    CHECK_EQ(value, 2 - t->rank);
    conf_barrier(t);
    CHECK_OK(angara_mem_free(mr));
    CHECK(mprotect(place, 4096, PROT_READ) != 0); /* nothing is left there */
    conf_close(t);
}

static void arguments(conf_t *t)
{
    angara_pe_params_t params;
    char               memory[128];
    angara_pe_h        pe;
    angara_mr_h        mr = NULL;
    void              *addr;
    size_t             length = 0;
    int                fd;

    conf_open(t);
    CHECK_STATUS(angara_mr_register(t->dom, memory, 0, 0, &mr), ANGARA_ERR_INVALID);
    CHECK_STATUS(angara_mr_register(t->dom, memory, 16, 0x10, &mr), ANGARA_ERR_INVALID);
    CHECK_STATUS(angara_mr_register(t->dom, memory, 16, ~0u, &mr), ANGARA_ERR_INVALID);
    CHECK_STATUS(angara_mr_register(t->dom, memory, SIZE_MAX, 0, &mr), ANGARA_ERR_INVALID);
    CHECK_STATUS(angara_mr_register(t->dom, (void *)(UINTPTR_MAX - 7), 16, 0, &mr),
                 ANGARA_ERR_INVALID);
    CHECK_STATUS(angara_mr_register(NULL, memory, 16, 0, &mr), ANGARA_ERR_INVALID);
    CHECK_STATUS(angara_mem_alloc(t->dom, &length, 0, &addr, &mr), ANGARA_ERR_INVALID);
    length = SIZE_MAX - 100;
    CHECK(angara_mem_alloc(t->dom, &length, 0, &addr, &mr) < 0);
    CHECK(mr == NULL);
    CHECK_OK(angara_mr_register(t->dom, memory, 1, 0, &mr));
    CHECK_STATUS(angara_mem_free(mr), ANGARA_ERR_INVALID);
    CHECK_OK(angara_mr_deregister(mr));

    memset(&params, 0, sizeof(params));
    CHECK_STATUS(angara_pe_create(t->dom, &params, &pe), ANGARA_ERR_INVALID);
    params.size   = sizeof(params);
    params.events = 17;
    CHECK_STATUS(angara_pe_create(t->dom, &params, &pe), ANGARA_ERR_INVALID);
    params.events      = 0;
    params.window_size = SIZE_MAX;
    CHECK(angara_pe_create(t->dom, &params, &pe) < 0);
    params.window_size = t->attr.window_max + 1;
    CHECK(angara_pe_create(t->dom, &params, &pe) < 0);

    CHECK_STATUS(angara_pe_event_fd(t->pe, NULL), ANGARA_ERR_INVALID);
    CHECK_OK(angara_pe_event_fd(t->pe, &fd));
    CHECK(fd >= 0);
    CHECK_STATUS(angara_marker(t->peer[0], NULL, 1), ANGARA_ERR_INVALID);
    CHECK_STATUS(angara_marker(NULL, t->slot, 1), ANGARA_ERR_INVALID);
    CHECK(angara_marker(t->peer[0], (angara_marker_slot_t *)(void *)memory, 1) < 0);
    CHECK(angara_marker_self(t->pe, (angara_marker_slot_t *)(void *)memory, 1) < 0);
    CHECK_STATUS(angara_peer_status(NULL), ANGARA_ERR_INVALID);
    conf_close(t);
}

/* The table has the size that query says, and entries can be used again. */
static void region_table(conf_t *t)
{
    size_t       count, max, i;
    angara_mr_h *mrs;
    char         memory[64];

    conf_open(t);
    max   = t->attr.mr_max;
    count = (max < 100000) ? max : 1000;
    mrs   = calloc(count + 1, sizeof(*mrs));
    CHECK(mrs != NULL);
    for (int round = 0; round < 3; ++round) {
        for (i = 0; i < count; ++i) {
            angara_status_t status = angara_mr_register(t->dom, memory, sizeof(memory), 0, &mrs[i]);

            if (status != ANGARA_OK) {
                CHECK_STATUS(status, ANGARA_ERR_NO_MEMORY);
                CHECK(i + 8 >= max); /* a few may be the library's own */
                break;
            }
            CHECK((i == 0) || (angara_mr_key(mrs[i]) != angara_mr_key(mrs[i - 1])));
        }
        if (i == max) {
            CHECK_STATUS(angara_mr_register(t->dom, memory, sizeof(memory), 0, &mrs[count]),
                         ANGARA_ERR_NO_MEMORY);
        }
        while (i-- > 0) {
            CHECK_OK(angara_mr_deregister(mrs[i]));
        }
    }
    free(mrs);
    conf_close(t);
}

static void connecting(conf_t *t)
{
    unsigned       other = 1 - t->rank;
    angara_peer_h  again;
    angara_event_t event;
    int            user;
    char           name[64];

    conf_open(t);
    CHECK_OK(angara_peer_connect(t->pe, &t->addr[other], &again));
    CHECK(again == t->peer[other]);
    CHECK_OK(angara_peer_status(again));
    CHECK(angara_peer_user(again) == NULL);
    angara_peer_set_user(again, &user);
    CHECK(angara_peer_user(t->peer[other]) == &user);
    snprintf(name, sizeof(name), "%d", (int)t->pid[other]);
    if (strstr(angara_peer_name(again), name) == NULL) {
        rank_fail(__FILE__, __LINE__, "name \"%s\" lacks the pid %s", angara_peer_name(again),
                  name);
    }
    angara_peer_disconnect(again);
    conf_marker(t, other); /* one reference is left */
    /* Without any reference the pair can be made anew. */
    angara_peer_disconnect(t->peer[other]);
    CHECK_OK(angara_peer_connect(t->pe, &t->addr[other], &t->peer[other]));
    conf_marker(t, other);
    conf_barrier(t);
    POST_OK(t, angara_notify(t->peer[other], "hi", 2));
    CHECK(conf_event(t, &event, RANK_TIMEOUT));
    CHECK(event.peer == t->peer[other]);
    conf_close(t);
}

/* An address with fields changed is refused with the matching status; nothing else happens. */
static void wrong_addresses(conf_t *t)
{
    angara_peer_h    peer = NULL;
    angara_address_t addr;
    angara_status_t  status;

    conf_open(t);
    addr         = t->addr[1 - t->rank];
    addr.version = ANGARA_WIRE_VERSION + 1;
    CHECK_STATUS(angara_peer_connect(t->pe, &addr, &peer), ANGARA_ERR_VERSION);
    CHECK(!angara_is_reachable(t->dom, &addr));
    addr.version = 0;
    CHECK_STATUS(angara_peer_connect(t->pe, &addr, &peer), ANGARA_ERR_VERSION);
    addr       = t->addr[1 - t->rank];
    addr.magic = 0x1234;
    CHECK(angara_peer_connect(t->pe, &addr, &peer) < 0);
    CHECK(!angara_is_reachable(t->dom, &addr));
    addr          = t->addr[1 - t->rank];
    addr.provider = 99;
    CHECK_STATUS(angara_peer_connect(t->pe, &addr, &peer), ANGARA_ERR_UNREACHABLE);
    CHECK(!angara_is_reachable(t->dom, &addr));
    addr = t->addr[1 - t->rank];
    addr.node += 1;
    CHECK_STATUS(angara_peer_connect(t->pe, &addr, &peer), ANGARA_ERR_UNREACHABLE);
    CHECK(!angara_is_reachable(t->dom, &addr));
    addr = t->addr[1 - t->rank];
    addr.generation += 1;
    status = angara_peer_connect(t->pe, &addr, &peer);
    CHECK((status == ANGARA_ERR_PEER_DEAD) || (status == ANGARA_ERR_UNREACHABLE));
    CHECK_STATUS(angara_peer_connect(t->pe, NULL, &peer), ANGARA_ERR_INVALID);
    CHECK(peer == NULL);
    CHECK(!angara_is_reachable(t->dom, NULL));
    conf_marker(t, 1 - t->rank);
    conf_close(t);
}

/*
 * The soft fabric's addresses name a process. A test must not point the library at other people's:
 * what would be one becomes a number beyond the kernel's largest.
 */
static void tame_address(const conf_t *t, angara_address_t *addr)
{
    uint32_t pid = addr->loc[0] & 0x7fffffff;

    if ((pid != (uint32_t)t->pid[0]) && (pid != (uint32_t)t->pid[1])) {
        addr->loc[0] |= 0x40000000;
    }
}

/* Random bytes, random bytes behind a good head, and a good address with any one bit changed. */
static void hostile_addresses(conf_t *t)
{
    unsigned         rounds = conf_rounds(20000), n, bit;
    angara_address_t addr;
    angara_peer_h    peer;
    angara_status_t  status;
    size_t           i;

    conf_open(t);
    for (n = 0; (t->rank == 0) && (n < rounds); ++n) {
        addr = t->addr[1];
        if (n % 3 == 0) {
            bit = (unsigned)(conf_random(t) % (8 * sizeof(addr)));
            ((uint8_t *)&addr)[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        } else {
            for (i = (n % 3 == 1) ? 0 : offsetof(angara_address_t, index); i < sizeof(addr); ++i) {
                ((uint8_t *)&addr)[i] = (uint8_t)conf_random(t);
            }
        }
        tame_address(t, &addr);
        angara_is_reachable(t->dom, &addr);
        status = angara_peer_connect(t->pe, &addr, &peer);
        CHECK(status <= 0);
        if (status == ANGARA_OK) {
            /* Bits that this provider doesn't use: the same PE. */
            if (peer != t->peer[1]) {
                angara_put(peer, 0, "x", 1);
                angara_offload_put_inline(peer, "x", n, 0, 1);
                angara_notify(peer, "x", 1);
            }
            angara_peer_disconnect(peer);
        }
    }
    conf_barrier(t);
    conf_marker(t, 1 - t->rank);
    conf_close(t);
}

#define TEST(_ranks, _name)                \
    static void test_##_name(void **state) \
    {                                      \
        (void)state;                       \
        conf_run(_ranks, _name, NULL);     \
    }

TEST(1, library)
TEST(1, open_names)
TEST(1, lifetimes)
TEST(1, arguments)
TEST(1, region_table)
TEST(2, allocated_at)
TEST(2, connecting)
TEST(2, wrong_addresses)
TEST(2, hostile_addresses)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_library),           cmocka_unit_test(test_open_names),
        cmocka_unit_test(test_lifetimes),         cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_allocated_at),      cmocka_unit_test(test_region_table),
        cmocka_unit_test(test_connecting),        cmocka_unit_test(test_wrong_addresses),
        cmocka_unit_test(test_hostile_addresses),
    };

    return cmocka_run_group_tests_name("basic", tests, NULL, NULL);
}
