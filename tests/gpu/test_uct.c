/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GPU memory at UCT level: active messages out of it, alone and among others. The CPU can't touch
 * it.
 */
#include "uct_buffer.h"

#include "base/compat.h"
#include "cuda_program.h"

#define AM_ID 3

/* ---- active messages ------------------------------------------------------------------------- */

/* Where the bytes of a message lie. */
typedef enum { AM_GPU, AM_GPU_PIECES, AM_MIXED, AM_LAYOUTS } am_layout_t;

/* The receiver's end: message number n has the bytes of key n. */
typedef struct {
    uint64_t received;
    size_t  *lengths; /* of each, if it isn't NULL */
} am_sink_t;

static ucs_status_t am_receive(void *arg, void *data, size_t length, unsigned flags)
{
    am_sink_t *sink = arg;

    (void)flags;
    if (sink->lengths != NULL) {
        CHECK_EQ(length, sink->lengths[sink->received]);
    }
    CHECK_DATA(data, length, sink->received);
    ++sink->received;
    return UCS_OK;
}

static void am_open(ut_t *t, am_sink_t *sink)
{
    ut_open(t);
    CHECK_OK(uct_iface_set_am_handler(t->main.iface, AM_ID, am_receive, sink, 0));
    ut_barrier(t);
}

/* What a sender sends from: the same bytes at both. */
typedef struct {
    buffer_t gpu, host;
} am_source_t;

static void am_source_open(ut_t *t, am_source_t *source, size_t length)
{
    source->gpu  = buffer_registered(t, 1, length, UCT_MD_MEM_ACCESS_RMA);
    source->host = buffer_new(0, length);
}

static void am_source_end(ut_t *t, am_source_t *source)
{
    buffer_end(t, &source->gpu);
    buffer_end(t, &source->host);
}

/* The bytes behind the header, which is the host's. @return number of pieces */
static size_t am_lay_out(ut_t *t, const am_source_t *source, am_layout_t layout, size_t header,
                         size_t length, uct_iov_t *iov)
{
    size_t count = layout == AM_GPU ? 1 : ucs_min(t->main.attr.cap.am.max_iov, (size_t)4);

    ut_iov_cut(t, source->gpu.addr + header, length - header, source->gpu.memh, iov, count);
    for (size_t i = 0; layout == AM_MIXED && i < count; i += 2) {
        iov[i].buffer = source->host.addr + ((char *)iov[i].buffer - source->gpu.addr);
        iov[i].memh   = UCT_MEM_HANDLE_NULL;
    }
    return count;
}

/* Send, wait, and overwrite the source. */
static void am_send(ut_t *t, const am_source_t *source, am_layout_t layout, size_t header,
                    size_t length, uint64_t key, int is_waited)
{
    uct_iov_t iov[4];
    size_t    count = am_lay_out(t, source, layout, header, length, iov);
    ut_comp_t comp;

    buffer_fill(&source->host, 0, length, key);
    buffer_fill(&source->gpu, 0, length, key);
    if (layout == AM_MIXED) { /* only the pieces' own bytes are right */
        buffer_poison(&source->gpu, 0, (size_t)((char *)iov[1].buffer - source->gpu.addr));
    }
    if (is_waited) {
        COMPLETE_OK(t, &comp,
                    uct_ep_am_zcopy(t->ep[1], AM_ID, source->host.addr, (unsigned)header, iov,
                                    count, 0, &comp.super));
    } else {
        POST_OK(t, uct_ep_am_zcopy(t->ep[1], AM_ID, source->host.addr, (unsigned)header, iov, count,
                                   0, NULL));
    }
    buffer_poison(&source->gpu, 0, length);
}

/* All sizes that may be a threshold, all layouts, with and without a header and a completion. */
static void am_sizes(ut_t *t)
{
    size_t      sizes[UT_SIZES_MAX], headers[3];
    am_sink_t   sink = {0};
    am_source_t source;
    uint64_t    sent = 0;
    unsigned    num;

    gpu_start();
    am_open(t, &sink);
    am_source_open(t, &source, t->main.attr.cap.am.max_zcopy);
    num        = ut_sizes(t->main.attr.cap.am.max_zcopy, sizes);
    headers[0] = 0;
    headers[1] = 8;
    headers[2] = t->main.attr.cap.am.max_hdr;
    for (unsigned i = 0; i < num; ++i) {
        for (unsigned way = 0; way < 2 * AM_LAYOUTS; ++way) {
            size_t header = ucs_min(headers[(i + way) % 3], sizes[i]);

            if (t->rank == 0) {
                am_send(t, &source, way / 2, header, sizes[i], sent, way % 2);
            }
            ++sent;
        }
    }
    if (t->rank == 1) {
        UT_WAIT(t, sink.received == sent);
    }
    am_source_end(t, &source);
    ut_close(t);
}

/* Messages have been sent and received: progress that finds nothing to do calls no driver. */
static void am_idle(ut_t *t)
{
    am_sink_t     sink = {0};
    am_source_t   source;
    unsigned long before;

    standin_start();
    am_open(t, &sink);
    am_source_open(t, &source, 500);
    if (t->rank == 0) {
        am_send(t, &source, AM_GPU, 8, 500, 0, 1);
    } else {
        UT_WAIT(t, sink.received == 1);
    }
    ut_barrier(t);
    ut_progress_ms(t, 5);
    before = standin.own_calls();
    CHECK(before > 0);
    ut_progress_ms(t, 100);
    CHECK_EQ(standin.own_calls(), before);
    ut_barrier(t);
    am_source_end(t, &source);
    ut_close(t);
}

/* Before there is a ring, as the peer does nothing: messages are taken with their bytes. */
static void am_early(ut_t *t)
{
    enum { NUM = 10, SIZE = 500 };
    am_sink_t   sink = {0};
    am_source_t source;

    gpu_start();
    am_open(t, &sink);
    am_source_open(t, &source, SIZE);
    if (t->rank == 0) {
        for (unsigned i = 0; i < NUM; ++i) {
            am_send(t, &source, i % AM_LAYOUTS, i % 2 * 8, SIZE, i, i % 4 < 2);
        }
        ut_send_word(t, 1, 0);
    } else {
        ut_recv_word_still(t, 0);
        CHECK_EQ(sink.received, 0);
        UT_WAIT(t, sink.received == NUM);
    }
    am_source_end(t, &source);
    ut_close(t);
}

static ucs_status_t am_post(ut_t *t, const buffer_t *buffer, size_t at, size_t length,
                            ut_comp_t *comp)
{
    uct_iov_t iov = {
        .buffer = buffer->addr + at, .length = length, .memh = buffer->memh, .count = 1};

    ut_comp_init(comp, 1);
    return uct_ep_am_zcopy(t->ep[1], AM_ID, NULL, 0, &iov, 1, 0, &comp->super);
}

enum { STREAM = 600, LANES = 8 };

/* Message n of a stream, from a lane that is free: every third one from the host. */
static void am_stream_send(ut_t *t, const buffer_t *lanes, uint64_t n, size_t length,
                           ut_comp_t *comp)
{
    size_t       size = t->main.attr.cap.am.max_zcopy, at = n % LANES * size;
    char        *host = malloc(size);
    ut_pack_t    pack = {host, length};
    ucs_status_t status;

    data_fill(host, length, n);
    if (n % 3 == 2) {
        CHECK_EQ(UT_POST(t, uct_ep_am_bcopy(t->ep[1], AM_ID, ut_pack, &pack, 0)), length);
    } else {
        UT_WAIT(t, comp->super.count <= 0);
        buffer_write(lanes, at, host, length);
        status = (ucs_status_t)UT_POST(t, am_post(t, lanes, at, length, comp));
        CHECK(status == UCS_OK || status == UCS_INPROGRESS);
        comp->super.count -= status == UCS_OK;
    }
    free(host);
}

/* Nobody waits for a message before the next one is sent. */
static void am_stream(ut_t *t)
{
    ut_t      dice            = {.rng = 5};
    ut_comp_t comps[LANES]    = {0};
    size_t    lengths[STREAM] = {0};
    am_sink_t sink            = {.lengths = lengths};
    buffer_t  lanes;

    setenv("STANDIN_JITTER", "3", 0);
    gpu_start();
    am_open(t, &sink);
    for (unsigned n = 0; n < STREAM; ++n) {
        size_t max = ut_random(&dice) % 3 ? 100 : t->main.attr.cap.am.max_zcopy;

        lengths[n] = 1 + ut_random(&dice) % max;
    }
    ut_barrier(t);
    if (t->rank == 0) {
        lanes = buffer_registered(t, 1, LANES * t->main.attr.cap.am.max_zcopy,
                                  UCT_MD_MEM_ACCESS_RMA);
        for (uint64_t n = 0; n < STREAM; ++n) {
            am_stream_send(t, &lanes, n, lengths[n], &comps[n % LANES]);
        }
        for (unsigned i = 0; i < LANES; ++i) {
            UT_WAIT(t, comps[i].super.count <= 0);
            CHECK(comps[i].calls <= 1);
        }
        buffer_end(t, &lanes);
    } else {
        UT_WAIT(t, sink.received == STREAM);
    }
    ut_close(t);
}

/* The memory of a handle is freed, and other memory gets its address: that is what is sent. */
static void am_again(ut_t *t)
{
    enum { TRIES = 64, SIZE = 4096 };
    am_sink_t    sink   = {0};
    buffer_t     source = {0};
    unsigned     num    = 0;
    ucs_status_t status;
    ut_comp_t    comp;
    void        *others[TRIES], *again;

    standin_start(); /* a real runtime may give another address */
    am_open(t, &sink);
    if (t->rank == 0) {
        source = buffer_registered(t, 1, SIZE, *(const unsigned *)t->arg);
        for (uint64_t key = 0; key < 3; ++key) {
            buffer_fill(&source, 0, SIZE, key);
            status = (ucs_status_t)UT_POST(t, am_post(t, &source, 0, SIZE, &comp));
            CHECK_OK(ut_comp_wait(t, status, &comp));
            gpu->free(source.addr, DEVICE_PLAIN);
            while ((again = gpu->alloc(0, SIZE, DEVICE_PLAIN)) != source.addr && num < TRIES) {
                others[num++] = again;
            }
            CHECK(again == source.addr);
        }
        while (num > 0) {
            gpu->free(others[--num], DEVICE_PLAIN);
        }
        buffer_end(t, &source);
    } else {
        UT_WAIT(t, sink.received == 3);
    }
    ut_close(t);
}

/* Both know each other: there is a ring. */
static void am_meet(ut_t *t, am_sink_t *sink)
{
    uint64_t word;

    if (t->rank == 0) {
        data_fill(&word, sizeof(word), 0);
        POST_OK(t, uct_ep_am_short(t->ep[1], AM_ID, word, NULL, 0));
        ut_flush(t, &t->main);
    } else {
        UT_WAIT(t, sink->received == 1);
    }
    ut_barrier(t);
}

/*
 * Memory that was freed, of a handle that is shared with others or not: a message out of it fails,
 * before there is a ring and with one, alone or beside other memory, whoever waits for it.
 */
static void am_freed(ut_t *t)
{
    const unsigned flags      = *(const unsigned *)t->arg;
    char           other[100] = {0};
    am_sink_t      sink       = {0};
    buffer_t       source     = {0};
    uct_iov_t      iov[2]     = {{.length = 4096, .count = 1},
                                 {.buffer = other, .length = sizeof(other), .count = 1}};
    ut_comp_t      comp;

    standin_start();
    am_open(t, &sink);
    for (int has_ring = 0; has_ring < 2; ++has_ring) {
        if (t->rank == 0) {
            source        = buffer_registered(t, 1, iov[0].length, flags);
            iov[0].buffer = source.addr;
            iov[0].memh   = source.memh;
            gpu->free(source.addr, DEVICE_PLAIN);
            ut_log_watch();
            CHECK_ERR(am_post(t, &source, 0, iov[0].length, &comp));
            CHECK(ut_log_has("is not the memory any more"));
            CHECK_ERR(uct_ep_am_zcopy(t->ep[1], AM_ID, NULL, 0, iov, 1, 0, NULL));
            CHECK_ERR(uct_ep_am_zcopy(t->ep[1], AM_ID, NULL, 0, iov, 2, 0, NULL));
            CHECK_OK(uct_md_mem_dereg(t->md, source.memh));
        }
        if (!has_ring) {
            am_meet(t, &sink);
        }
    }
    ut_close(t);
}

/* Puts, gets and keys of a handle that nobody shares: whoever asks for them is told. */
static void handle_freed(ut_t *t)
{
    char      packed[UT_RKEY_MAX];
    uct_iov_t iov = {.length = 4096, .count = 1};
    buffer_t  source;

    standin_start();
    ut_open(t);
    if (t->rank == 0) {
        source     = buffer_registered(t, 1, iov.length, UCT_MD_MEM_ACCESS_ALL);
        iov.buffer = source.addr;
        iov.memh   = source.memh;
        gpu->free(source.addr, DEVICE_PLAIN);
        ut_log_watch();
        CHECK_ERR(uct_ep_put_zcopy(t->ep[1], &iov, 1, 0, 0, NULL));
        CHECK(ut_log_has("is not the memory any more"));
        CHECK_ERR(uct_ep_get_zcopy(t->ep[1], &iov, 1, 0, 0, NULL));
        CHECK_ERR(uct_md_mkey_pack(t->md, source.memh, packed));
        CHECK_OK(uct_md_mem_dereg(t->md, source.memh));
    }
    ut_close(t);
}

/*
 * Copies that don't end: as many as there is room for are started, and none is waited for; nothing
 * overtakes them, and a flush doesn't end before them.
 */
static void am_held(ut_t *t)
{
    enum { MOST = 64 };
    const size_t length  = *(const size_t *)t->arg;
    am_sink_t    sink    = {0};
    uint64_t     started = 0, word;
    ucs_status_t status  = UCS_INPROGRESS;
    buffer_t     source  = {0};
    ut_comp_t    comps[MOST], flush;

    standin_start();
    am_open(t, &sink);
    am_meet(t, &sink);
    if (t->rank == 0) {
        source = buffer_registered(t, 1, MOST * length, UCT_MD_MEM_ACCESS_RMA);
        for (unsigned i = 0; i < MOST; ++i) {
            buffer_fill(&source, i * length, length, 1 + i);
        }
        standin.hold(1);
        while (started < MOST && status == UCS_INPROGRESS) {
            status = am_post(t, &source, started * length, length, &comps[started]);
            started += status == UCS_INPROGRESS;
        }
        CHECK_STATUS(status, UCS_ERR_NO_RESOURCE);
        CHECK(started >= 8);
        data_fill(&word, sizeof(word), started + 1);
        CHECK_STATUS(uct_ep_am_short(t->ep[1], AM_ID, word, NULL, 0), UCS_ERR_NO_RESOURCE);
        ut_comp_init(&flush, 1);
        CHECK_STATUS(uct_ep_flush(t->ep[1], 0, &flush.super), UCS_INPROGRESS);
        ut_progress_ms(t, 20);
        CHECK_EQ(flush.calls, 0);
        ut_send_word(t, 1, started);
        ut_recv_word(t, 1);
        standin.hold(0);
        for (unsigned i = 0; i < started; ++i) {
            CHECK_OK(ut_comp_wait(t, UCS_INPROGRESS, &comps[i]));
        }
        CHECK_OK(ut_comp_wait(t, UCS_INPROGRESS, &flush));
        POST_OK(t, uct_ep_am_short(t->ep[1], AM_ID, word, NULL, 0));
        buffer_end(t, &source);
    } else {
        started = ut_recv_word(t, 0);
        ut_progress_ms(t, 20);
        CHECK_EQ(sink.received, 1);
        ut_send_word(t, 0, 0);
        UT_WAIT(t, sink.received == started + 2);
    }
    ut_close(t);
}

/* A copy that fails: who waits for its message is told, and others go on. */
static void am_failed(ut_t *t)
{
    am_sink_t sink   = {0};
    buffer_t  source = {0};
    ut_comp_t comp;
    uint64_t  word;

    standin_start();
    am_open(t, &sink);
    am_meet(t, &sink);
    if (t->rank == 0) {
        source = buffer_registered(t, 1, 4096, UCT_MD_MEM_ACCESS_RMA);
        standin_fail();
        CHECK_ERR(ut_comp_wait(t, am_post(t, &source, 0, 1000, &comp), &comp));
        data_fill(&word, sizeof(word), 1);
        POST_OK(t, uct_ep_am_short(t->ep[1], AM_ID, word, NULL, 0));
    } else {
        UT_WAIT(t, sink.received == 2);
    }
    ut_barrier(t);
    ut_progress_ms(t, 5);
    CHECK_EQ(sink.received, t->rank == 1 ? 2 : 0);
    ut_close(t);
}

/* ---- the tests ------------------------------------------------------------------------------- */

#define TEST(_name, _nranks, _func)   \
    static void _name(void **state)   \
    {                                 \
        (void)state;                  \
        ut_run(_nranks, _func, NULL); \
    }

TEST(test_am_sizes, 2, am_sizes)
TEST(test_am_early, 2, am_early)
TEST(test_am_idle, 2, am_idle)
TEST(test_am_stream, 2, am_stream)
TEST(test_am_failed, 2, am_failed)
TEST(test_handle_freed, 2, handle_freed)

/* Of handles that are shared with others, and of those that aren't. */
static const unsigned sharings[] = {UCT_MD_MEM_ACCESS_RMA, UCT_MD_MEM_ACCESS_ALL};

static void test_am_again(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; ++i) {
        ut_run(2, am_again, &sharings[i]);
    }
}

static void test_am_freed(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; ++i) {
        ut_run(2, am_freed, &sharings[i]);
    }
}

static void test_am_held(void **state)
{
    static const size_t lengths[] = {1, 1000, 8000};

    (void)state;
    for (unsigned i = 0; i < 3; ++i) {
        ut_run(2, am_held, &lengths[i]);
    }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_am_sizes),     cmocka_unit_test(test_am_early),
        cmocka_unit_test(test_am_idle),      cmocka_unit_test(test_am_stream),
        cmocka_unit_test(test_am_failed),    cmocka_unit_test(test_am_freed),
        cmocka_unit_test(test_am_held),      cmocka_unit_test(test_am_again),
        cmocka_unit_test(test_handle_freed),
    };
    int result = gpu_find();

    return result >= 0 ? result :
                         ut_main(argc, argv, "uct", tests, sizeof(tests) / sizeof(tests[0]));
}
