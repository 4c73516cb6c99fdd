/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The flush of an interface, which looks only at peers that were used since it last found nothing
 * to do there. With FLAVOR=asan the transport checks that it leaves none out; in chaos mode what
 * was left out isn't there yet.
 */
#include "ut.h"

#define IF_AM    6
#define IF_WAYS  5  /* of if_write() */
#define IF_TURNS 64 /* of progress, in which what has landed is delivered */

typedef struct {
    ut_mem_t    mem;
    ut_remote_t remotes[RANK_MAX];
    uint64_t    received;
} if_t;

static ucs_status_t if_receive(void *arg, void *data, size_t length, unsigned flags)
{
    if_t *fi = arg;

    (void)flags;
    CHECK_DATA(data, length, fi->received);
    ++fi->received;
    return UCS_OK;
}

static void if_init(if_t *fi, ut_t *t)
{
    const ut_mem_kind_t *kind = t->arg;

    memset(fi, 0, sizeof(*fi));
    ut_open(t);
    ut_mem_init(t, &fi->mem, *kind, 4096);
    memset(fi->mem.addr, 0, 4096);
    ut_mem_exchange(t, &fi->mem, fi->remotes);
    CHECK_OK(uct_iface_set_am_handler(t->main.iface, IF_AM, if_receive, fi, 0));
    ut_barrier(t);
}

static void if_cleanup(if_t *fi, ut_t *t)
{
    ut_flush(t, &t->main);
    ut_barrier(t);
    ut_remotes_release(t, fi->remotes);
    ut_mem_cleanup(t, &fi->mem);
    ut_close(t);
}

/* One short put or message; messages of one slot, since longer ones leave the fast way. @return its
 * number of messages */
static unsigned if_write(if_t *fi, ut_t *t, unsigned i, uint64_t sent)
{
    uint64_t   addr = fi->remotes[1].addr, value = i;
    uct_rkey_t key      = fi->remotes[1].key.rkey;
    char       data[80] = {0};
    ut_pack_t  pack = {data, sizeof(data)}, word = {(char *)&value, sizeof(value)};

    switch (i % IF_WAYS) {
    case 0:
        data_fill(&value, sizeof(value), sent);
        POST_OK(t, uct_ep_am_short(t->ep[1], IF_AM, value, NULL, 0));
        return 1;
    case 1:
        data_fill(data, sizeof(data), sent);
        CHECK_EQ(UT_POST(t, uct_ep_am_bcopy(t->ep[1], IF_AM, ut_pack, &pack, 0)), sizeof(data));
        return 1;
    case 2:
        POST_OK(t, uct_ep_put_short(t->ep[1], &value, sizeof(value), addr, key));
        return 0;
    case 3:
        CHECK_EQ(UT_POST(t, uct_ep_put_bcopy(t->ep[1], ut_pack, &word, addr, key)), sizeof(value));
        return 0;
    default: /* of what the way before has put there */
        POST_OK(t, uct_ep_atomic64_post(t->ep[1], UCT_ATOMIC_OP_ADD, 1, addr, key));
        return 0;
    }
}

/*
 * The flush of the interface knows a peer for quiet, and doesn't look at it. Each way to write
 * makes it look again: when the target hears of the flush, what was written is there.
 */
static void flush_of_quiet(ut_t *t)
{
    unsigned           rounds = ut_rounds(100), i, turns;
    uint64_t           sent = 0, word = 0;
    if_t               fi;
    volatile uint64_t *there;

    if_init(&fi, t);
    there = (volatile uint64_t *)fi.mem.addr;
    for (i = 0; i < rounds * IF_WAYS; ++i) {
        if (t->rank == 0) {
            ut_flush(t, &t->main);
            sent += if_write(&fi, t, i, sent);
            ut_flush(t, &t->main);
            ut_send_word(t, 1, sent);
            CHECK_EQ(ut_recv_word(t, 1), sent);
        } else {
            sent = (i == 0) ? ut_recv_word(t, 0) : ut_recv_word_still(t, 0);
            word = (i % IF_WAYS >= 2) ? i : word;
            CHECK_EQ(*there, word);
            for (turns = 0; (turns < IF_TURNS) && (fi.received < sent); ++turns) {
                ut_progress(t);
            }
            CHECK_EQ(fi.received, sent);
            ut_send_word(t, 0, sent);
        }
    }
    if_cleanup(&fi, t);
}

/* A message that waits for a new ring while the last one is being closed. */
static void flush_of_early(ut_t *t)
{
    uint64_t value;
    if_t     fi;

    if_init(&fi, t);
    data_fill(&value, sizeof(value), 0);
    if (t->rank == 0) {
        POST_OK(t, uct_ep_am_short(t->ep[1], IF_AM, value, NULL, 0));
        ut_flush(t, &t->main);
        ut_send_word(t, 1, 0);
        ut_recv_word(t, 1);
        /* without progress of the target's there is no answer to CLOSE */
        uct_ep_destroy(t->ep[1]);
        ut_progress_ms(t, 20);
        ut_flush(t, &t->main);
        t->ep[1] = ut_ep_create(&t->main, &t->addr[1]);
        data_fill(&value, sizeof(value), 1);
        CHECK_OK(uct_ep_am_short(t->ep[1], IF_AM, value, NULL, 0));
        CHECK_STATUS(uct_iface_flush(t->main.iface, 0, NULL), UCS_INPROGRESS);
        ut_send_word(t, 1, 0);
        ut_flush(t, &t->main);
    } else {
        ut_recv_word(t, 0);
        UT_WAIT(t, fi.received == 1);
        ut_send_word(t, 0, 0);
        ut_recv_word_still(t, 0);
        UT_WAIT(t, fi.received == 2);
    }
    if_cleanup(&fi, t);
}

/* ---- the tests ----------------------------------------------------------------------------- */

static const ut_mem_kind_t if_private = UT_MEM_PRIVATE;
static const ut_mem_kind_t if_alloc   = UT_MEM_ALLOC;

#define IF_TEST(_func, _kind)                        \
    static void test_##_func##_##_kind(void **state) \
    {                                                \
        (void)state;                                 \
        ut_run(2, _func, &if_##_kind);               \
    }

IF_TEST(flush_of_quiet, private)
IF_TEST(flush_of_quiet, alloc)
IF_TEST(flush_of_early, private)

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flush_of_quiet_private),
        cmocka_unit_test(test_flush_of_quiet_alloc),
        cmocka_unit_test(test_flush_of_early_private),
    };

    return ut_main(argc, argv, "iface_flush", tests, sizeof(tests) / sizeof(tests[0]));
}
