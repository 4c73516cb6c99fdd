/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Active messages: data, lengths, ids, headers and order, at every size that may be a threshold,
 * between two processes, to oneself, and between two interfaces of one process. Sender and receiver
 * follow the same script, so the receiver knows what must come next.
 */
#include "ut.h"

#define AM_IOV_MAX ((size_t)16)

typedef enum { AM_SHORT, AM_SHORT_IOV, AM_BCOPY, AM_ZCOPY, AM_KINDS } am_kind_t;

typedef struct {
    am_kind_t kind;
    uint8_t   id;
    size_t    header; /* bytes of header of am_zcopy, 8 for am_short */
    size_t    length; /* all bytes, header included */
    uint64_t  seed;
} am_item_t;

typedef struct {
    am_item_t *items;
    size_t     count;
} am_script_t;

/* The receiving end of a stream of messages. */
typedef struct {
    const am_script_t *script;
    size_t             next;
    size_t             longest;
} am_sink_t;

typedef struct {
    am_sink_t *sink;
    uint8_t    id;
} am_handler_t;

/* A direction: endpoint to send with, sink that must get it. Remote: the sinks are the peers'. */
typedef struct {
    const char *name;
    unsigned    nranks;
} am_where_t;

static const am_where_t am_remote = {"remote", 2};
static const am_where_t am_self   = {"self", 1};
static const am_where_t am_local  = {"two interfaces", 1};

static char        *am_buffer;
static uct_mem_h    am_memh;
static am_handler_t am_handlers[UCT_AM_ID_MAX];

static ucs_status_t am_receive(void *arg, void *data, size_t length, unsigned flags)
{
    am_handler_t    *handler = arg;
    am_sink_t       *sink    = handler->sink;
    const am_item_t *item    = &sink->script->items[sink->next];

    (void)flags;
    if (sink->next >= sink->script->count) {
        rank_fail(__FILE__, __LINE__, "a message too many: id %u, %zu bytes", handler->id, length);
    }
    if ((length != item->length) || (handler->id != item->id)) {
        rank_fail(__FILE__, __LINE__, "message %zu: id %u, %zu bytes, expected id %u, %zu bytes",
                  sink->next, handler->id, length, item->id, item->length);
    }
    CHECK_DATA(data, length, item->seed);
    ++sink->next;
    return UCS_OK;
}

static void am_sink_set(ut_iface_t *iface, am_sink_t *sink)
{
    uint8_t id;

    for (id = 0; id < UCT_AM_ID_MAX; ++id) {
        am_handlers[id].sink = sink;
        am_handlers[id].id   = id;
        CHECK_OK(uct_iface_set_am_handler(iface->iface, id, am_receive, &am_handlers[id], 0));
    }
}

/* ---- sending ------------------------------------------------------------------------------- */

static void am_send_zcopy(ut_t *t, uct_ep_h ep, const am_item_t *item, const uct_iface_attr_t *attr)
{
    uct_iov_t iov[AM_IOV_MAX];
    size_t    count = 1 + ut_random(t) % ucs_min(attr->cap.am.max_iov, AM_IOV_MAX);
    ut_comp_t comp;

    ut_iov_cut(t, am_buffer + item->header, item->length - item->header, am_memh, iov, count);
    COMPLETE_OK(t, &comp,
                uct_ep_am_zcopy(ep, item->id, am_buffer, (unsigned)item->header, iov, count, 0,
                                &comp.super));
}

static void am_send(ut_t *t, uct_ep_h ep, const am_item_t *item, const uct_iface_attr_t *attr)
{
    ut_pack_t pack = {am_buffer, item->length};
    uct_iov_t iov[AM_IOV_MAX];
    uint64_t  header;
    size_t    count;

    data_fill(am_buffer, item->length, item->seed);
    switch (item->kind) {
    case AM_SHORT:
        memcpy(&header, am_buffer, sizeof(header));
        POST_OK(t, uct_ep_am_short(ep, item->id, header, am_buffer + sizeof(header),
                                   (unsigned)(item->length - sizeof(header))));
        break;
    case AM_SHORT_IOV:
        count = 1 + ut_random(t) % ucs_min(attr->cap.am.max_iov, AM_IOV_MAX);
        ut_iov_cut(t, am_buffer, item->length, UCT_MEM_HANDLE_NULL, iov, count);
        POST_OK(t, uct_ep_am_short_iov(ep, item->id, iov, count));
        break;
    case AM_BCOPY:
        CHECK_EQ(UT_POST(t, uct_ep_am_bcopy(ep, item->id, ut_pack, &pack, 0)), item->length);
        break;
    default:
        am_send_zcopy(t, ep, item, attr);
    }
    /* whatever the call, the buffer may be reused now */
    memset(am_buffer, 0xee, item->length);
}

/* ---- scripts ------------------------------------------------------------------------------- */

static void am_script_add(am_script_t *script, am_kind_t kind, uint8_t id, size_t header,
                          size_t length)
{
    am_item_t *item;

    if ((script->count & (script->count - 1)) == 0) {
        script->items = realloc(script->items, 2 * (script->count + 1) * sizeof(*script->items));
        CHECK(script->items != NULL);
    }
    item         = &script->items[script->count];
    item->kind   = kind;
    item->id     = id;
    item->header = header;
    item->length = length;
    item->seed   = ++script->count;
}

static size_t am_kind_max(am_kind_t kind, const uct_iface_attr_t *attr)
{
    switch (kind) {
    case AM_SHORT:
    case AM_SHORT_IOV:
        return attr->cap.am.max_short;
    case AM_BCOPY:
        return attr->cap.am.max_bcopy;
    default:
        return attr->cap.am.max_zcopy;
    }
}

static uint64_t am_kind_flag(am_kind_t kind)
{
    return (kind == AM_BCOPY) ? UCT_IFACE_FLAG_AM_BCOPY :
           (kind == AM_ZCOPY) ? UCT_IFACE_FLAG_AM_ZCOPY :
                                UCT_IFACE_FLAG_AM_SHORT;
}

/* All interesting sizes of one kind; large ones a few times, so that they wrap around the ring. */
static void am_script_sizes(am_script_t *script, am_kind_t kind, const uct_iface_attr_t *attr)
{
    size_t   sizes[UT_SIZES_MAX];
    unsigned count = ut_sizes(am_kind_max(kind, attr), sizes);
    unsigned round, i;
    size_t   header;

    for (round = 0; round < 4; ++round) {
        for (i = 0; i < count; ++i) {
            header = (kind == AM_SHORT) ? sizeof(uint64_t) : 0;
            if (kind == AM_ZCOPY) {
                header = (round == 0) ? 0 :
                         (round == 1) ? attr->cap.am.max_hdr :
                                        (i * 7 + round) % 9;
                header = ucs_min(ucs_min(header, attr->cap.am.max_hdr), sizes[i]);
            }
            if (sizes[i] >= header) {
                am_script_add(script, kind, (uint8_t)(i % UCT_AM_ID_MAX), header, sizes[i]);
            }
        }
    }
}

/* A stream that both ends draw alike: mostly small, all kinds, ids and sizes. */
static void am_script_random(am_script_t *script, unsigned count, uint64_t seed,
                             const uct_iface_attr_t *attr)
{
    ut_t      dice = {.rng = seed};
    am_kind_t kind;
    size_t    length, max, header;
    unsigned  i;

    for (i = 0; i < count; ++i) {
        kind   = (am_kind_t)(ut_random(&dice) % AM_KINDS);
        max    = am_kind_max(kind, attr);
        max    = (ut_random(&dice) % 8 == 0) ? max : ucs_min(max, (size_t)200);
        length = ut_random(&dice) % (max + 1);
        header = 0;
        if (kind == AM_SHORT) {
            header = sizeof(uint64_t);
            length = ucs_max(length, header);
        } else if (kind == AM_ZCOPY) {
            header = ut_random(&dice) % (ucs_min(attr->cap.am.max_hdr, length) + 1);
        }
        am_script_add(script, kind, (uint8_t)(ut_random(&dice) % UCT_AM_ID_MAX), header, length);
    }
}

/* ---- running a script ---------------------------------------------------------------------- */

static void am_buffer_init(ut_t *t, ut_mem_t *mem, const uct_iface_attr_t *attr)
{
    size_t length = ucs_max(attr->cap.am.max_bcopy, attr->cap.am.max_zcopy);

    ut_mem_init(t, mem, UT_MEM_PRIVATE, ucs_max(length, attr->cap.am.max_short) + 4096);
    am_buffer = mem->addr;
    am_memh   = (t->md_attr.cap.flags & UCT_MD_FLAG_NEED_MEMH) ? mem->memh : UCT_MEM_HANDLE_NULL;
}

static void am_run_script(ut_t *t, const am_script_t *script)
{
    const am_where_t *where  = t->arg;
    ut_iface_t        second = {0};
    am_sink_t         sink   = {.script = script};
    uct_ep_h          ep     = t->ep[t->nranks - 1 - t->rank];
    ut_mem_t          mem;
    size_t            i;

    am_buffer_init(t, &mem, &t->main.attr);
    if (where == &am_local) {
        ut_iface_open(t, &second);
        ep = ut_ep_create(&second, &t->addr[0]);
    }
    am_sink_set(&t->main, &sink);
    ut_barrier(t);

    for (i = 0; i < script->count; ++i) {
        am_send(t, ep, &script->items[i], &t->main.attr);
    }
    UT_WAIT(t, sink.next == script->count);
    ut_progress_ms(t, 2);

    if (where == &am_local) {
        ut_flush(t, &second);
        uct_ep_destroy(ep);
        ut_iface_close(&second);
    }
    ut_barrier(t);
    ut_mem_cleanup(t, &mem);
}

static void am_sizes_of(ut_t *t, am_kind_t kind)
{
    am_script_t script = {0};

    ut_open(t);
    CHECK(t->main.attr.cap.flags & am_kind_flag(kind));
    am_script_sizes(&script, kind, &t->main.attr);
    am_run_script(t, &script);
    ut_close(t);
    free(script.items);
}

static void am_short_sizes(ut_t *t)
{
    am_sizes_of(t, AM_SHORT);
}

static void am_short_iov_sizes(ut_t *t)
{
    am_sizes_of(t, AM_SHORT_IOV);
}

static void am_bcopy_sizes(ut_t *t)
{
    am_sizes_of(t, AM_BCOPY);
}

static void am_zcopy_sizes(ut_t *t)
{
    am_sizes_of(t, AM_ZCOPY);
}

static void am_random_stream(ut_t *t)
{
    am_script_t script = {0};

    ut_open(t);
    am_script_random(&script, ut_rounds(30000), 99, &t->main.attr);
    am_run_script(t, &script);
    ut_close(t);
    free(script.items);
}

/* Nothing but small ones: the fast path through many laps of the ring. */
static void am_small_stream(ut_t *t)
{
    am_script_t script = {0};
    unsigned    i;

    ut_open(t);
    for (i = 0; i < ut_rounds(200000); ++i) {
        am_script_add(&script, AM_SHORT, (uint8_t)(i % UCT_AM_ID_MAX), 8, 8 + i % 40);
    }
    am_run_script(t, &script);
    ut_close(t);
    free(script.items);
}

/* ---- what must be refused ------------------------------------------------------------------ */

static void am_refusals(ut_t *t)
{
    am_script_t             script = {0};
    am_sink_t               sink   = {.script = &script};
    const uct_iface_attr_t *attr   = &t->main.attr;
    uct_ep_h                ep     = NULL;
    uct_iov_t               iov[AM_IOV_MAX + 64];
    ut_comp_t               comp;
    ut_mem_t                mem;
    size_t                  i;

    ut_needs_checks();
    ut_open(t);
    ep = t->ep[1 - t->rank];
    am_buffer_init(t, &mem, attr);
    am_sink_set(&t->main, &sink);
    ut_barrier(t);
    ut_comp_init(&comp, 1);
    for (i = 0; i < sizeof(iov) / sizeof(iov[0]); ++i) {
        ut_iov_cut(t, am_buffer, 1, am_memh, &iov[i], 1);
    }

    CHECK_ERR(uct_ep_am_short(ep, 1, 0, am_buffer, (unsigned)(attr->cap.am.max_short - 7)));
    CHECK_ERR(uct_ep_am_short(ep, 1, 0, am_buffer, UINT32_MAX));
    CHECK_ERR(uct_ep_am_short(ep, UCT_AM_ID_MAX, 0, am_buffer, 1));
    iov[0].length = attr->cap.am.max_short + 1;
    CHECK_ERR(uct_ep_am_short_iov(ep, 1, iov, 1));
    CHECK_ERR(uct_ep_am_short_iov(ep, UCT_AM_ID_MAX, iov + 1, 1));
    iov[0].length = attr->cap.am.max_zcopy + 1;
    CHECK_ERR(uct_ep_am_zcopy(ep, 1, NULL, 0, iov, 1, 0, &comp.super));
    iov[0].length = attr->cap.am.max_zcopy;
    CHECK_ERR(uct_ep_am_zcopy(ep, 1, am_buffer, 1, iov, 1, 0, &comp.super));
    iov[0].length = 1;
    CHECK_ERR(uct_ep_am_zcopy(ep, 1, am_buffer, (unsigned)attr->cap.am.max_hdr + 1, iov, 1, 0,
                              &comp.super));
    CHECK_ERR(uct_ep_am_zcopy(ep, UCT_AM_ID_MAX, am_buffer, 1, iov, 1, 0, &comp.super));
    if (attr->cap.am.max_iov < sizeof(iov) / sizeof(iov[0])) {
        CHECK_ERR(uct_ep_am_zcopy(ep, 1, NULL, 0, iov, attr->cap.am.max_iov + 1, 0, &comp.super));
    }
    CHECK_EQ(comp.calls, 0);

    /* nothing of it has arrived (the sink would fail), and the endpoint still works */
    am_script_sizes(&script, AM_SHORT, attr);
    for (i = 0; i < script.count; ++i) {
        am_send(t, ep, &script.items[i], attr);
    }
    UT_WAIT(t, sink.next == script.count);
    ut_barrier(t);
    ut_mem_cleanup(t, &mem);
    ut_close(t);
    free(script.items);
}

/* ---- replies from within a handler --------------------------------------------------------- */

typedef struct {
    ut_t    *t;
    uint64_t received;
    uint64_t to_send; /* replies that found no room */
} am_echo_t;

static ucs_status_t am_echo_receive(void *arg, void *data, size_t length, unsigned flags)
{
    am_echo_t   *echo = arg;
    uct_ep_h     ep   = echo->t->ep[1 - echo->t->rank];
    uint64_t     header;
    ucs_status_t status;

    (void)flags;
    CHECK(length >= sizeof(header));
    memcpy(&header, data, sizeof(header));
    CHECK_EQ(header, echo->received);
    ++echo->received;
    if ((echo->t->rank == 1) && (echo->to_send == 0)) {
        status = uct_ep_am_short(ep, 0, header, (char *)data + 8, (unsigned)length - 8);
        if (status == UCS_ERR_NO_RESOURCE) {
            ++echo->to_send;
        } else {
            CHECK_OK(status);
        }
    } else if (echo->t->rank == 1) {
        ++echo->to_send;
    }
    return UCS_OK;
}

static void am_replies(ut_t *t)
{
    am_echo_t echo  = {.t = t};
    unsigned  count = ut_rounds(20000);
    uint64_t  sent, header;
    char      data[24];

    ut_open(t);
    CHECK_OK(uct_iface_set_am_handler(t->main.iface, 0, am_echo_receive, &echo, 0));
    ut_barrier(t);
    memset(data, 7, sizeof(data));
    for (sent = 0; (t->rank == 0) && (sent < count); ++sent) {
        POST_OK(t, uct_ep_am_short(t->ep[1], 0, sent, data, (unsigned)(sent % sizeof(data))));
    }
    while ((t->rank == 1) && ((echo.received < count) || (echo.to_send > 0))) {
        ut_timer_t timer = {0, 0};

        ut_relax(t, &timer, __FILE__, __LINE__, "messages");
        while (echo.to_send > 0) {
            header = echo.received - echo.to_send;
            if (uct_ep_am_short(t->ep[0], 0, header, data, 8) != UCS_OK) {
                break;
            }
            --echo.to_send;
        }
    }
    UT_WAIT(t, echo.received == count);
    ut_barrier(t);
    ut_close(t);
}

/* ---- the tests ----------------------------------------------------------------------------- */

#define AM_TEST(_name, _func, _where)              \
    static void _name(void **state)                \
    {                                              \
        (void)state;                               \
        ut_run((_where).nranks, _func, &(_where)); \
    }

AM_TEST(short_sizes_remote, am_short_sizes, am_remote)
AM_TEST(short_sizes_self, am_short_sizes, am_self)
AM_TEST(short_sizes_local, am_short_sizes, am_local)
AM_TEST(short_iov_sizes_remote, am_short_iov_sizes, am_remote)
AM_TEST(short_iov_sizes_self, am_short_iov_sizes, am_self)
AM_TEST(bcopy_sizes_remote, am_bcopy_sizes, am_remote)
AM_TEST(bcopy_sizes_self, am_bcopy_sizes, am_self)
AM_TEST(bcopy_sizes_local, am_bcopy_sizes, am_local)
AM_TEST(zcopy_sizes_remote, am_zcopy_sizes, am_remote)
AM_TEST(zcopy_sizes_self, am_zcopy_sizes, am_self)
AM_TEST(zcopy_sizes_local, am_zcopy_sizes, am_local)
AM_TEST(random_stream_remote, am_random_stream, am_remote)
AM_TEST(random_stream_self, am_random_stream, am_self)
AM_TEST(random_stream_local, am_random_stream, am_local)
AM_TEST(small_stream_remote, am_small_stream, am_remote)
AM_TEST(refusals, am_refusals, am_remote)
AM_TEST(replies_from_handler, am_replies, am_remote)

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_sizes_remote),   cmocka_unit_test(short_sizes_self),
        cmocka_unit_test(short_sizes_local),    cmocka_unit_test(short_iov_sizes_remote),
        cmocka_unit_test(short_iov_sizes_self), cmocka_unit_test(bcopy_sizes_remote),
        cmocka_unit_test(bcopy_sizes_self),     cmocka_unit_test(bcopy_sizes_local),
        cmocka_unit_test(zcopy_sizes_remote),   cmocka_unit_test(zcopy_sizes_self),
        cmocka_unit_test(zcopy_sizes_local),    cmocka_unit_test(random_stream_remote),
        cmocka_unit_test(random_stream_self),   cmocka_unit_test(random_stream_local),
        cmocka_unit_test(small_stream_remote),  cmocka_unit_test(refusals),
        cmocka_unit_test(replies_from_handler),
    };

    return ut_main(argc, argv, "am", tests, sizeof(tests) / sizeof(tests[0]));
}
