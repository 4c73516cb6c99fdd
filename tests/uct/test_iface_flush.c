/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The flush of an interface, which looks only at peers that something was written to since it last
 * found nothing to do there. Under the address sanitizer the transport checks that it leaves none
 * out; in chaos mode what was left out isn't there yet.
 */
#include "ut.h"

#define IF_AM 6

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

/*
 * The flush of the interface knows peers for quiet, and doesn't look at them. Each way to write
 * makes it look again: when the target hears of the flush, what was written is there.
 */
static void flush_of_quiet(ut_t *t)
{
    const unsigned     count  = 4; /* ways */
    unsigned           rounds = ut_rounds(50), i, turns;
    uint64_t           sent = 0, puts = 0, value;
    char               data[1000] = {0};
    ut_pack_t          pack       = {data, sizeof(data)};
    if_t               fi;
    volatile uint64_t *words;

    if_init(&fi, t);
    words = (volatile uint64_t *)fi.mem.addr;
    for (i = 0; i < rounds * count; ++i) {
        if (t->rank == 0) {
            ut_flush(t, &t->main);
            switch (i % count) {
            case 0:
                data_fill(data, sizeof(uint64_t), sent++);
                memcpy(&value, data, sizeof(value));
                POST_OK(t, uct_ep_am_short(t->ep[1], IF_AM, value, NULL, 0));
                break;
            case 1:
                data_fill(data, sizeof(data), sent++);
                CHECK_EQ(UT_POST(t, uct_ep_am_bcopy(t->ep[1], IF_AM, ut_pack, &pack, 0)),
                         sizeof(data));
                break;
            case 2:
                value = i;
                POST_OK(t, uct_ep_put_short(t->ep[1], &value, sizeof(value), fi.remotes[1].addr,
                                            fi.remotes[1].key.rkey));
                break;
            default:
                POST_OK(t, uct_ep_atomic64_post(t->ep[1], UCT_ATOMIC_OP_ADD, 1,
                                                fi.remotes[1].addr + 8, fi.remotes[1].key.rkey));
            }
            ut_flush(t, &t->main);
            ut_send_word(t, 1, sent);
            CHECK_EQ(ut_recv_word(t, 1), sent);
        } else {
            sent = (i == 0) ? ut_recv_word(t, 0) : ut_recv_word_still(t, 0);
            puts = (i % count == 2) ? i : puts;
            CHECK_EQ(words[0], puts);
            CHECK_EQ(words[1], (i + 1) / count);
            for (turns = 0; (turns < 2000) && (fi.received < sent); ++turns) {
                ut_progress(t);
            }
            CHECK_EQ(fi.received, sent);
            ut_send_word(t, 0, sent);
        }
    }
    if_cleanup(&fi, t);
}

static void test_flush_of_quiet_private(void **state)
{
    static const ut_mem_kind_t kind = UT_MEM_PRIVATE;

    (void)state;
    ut_run(2, flush_of_quiet, &kind);
}

static void test_flush_of_quiet_alloc(void **state)
{
    static const ut_mem_kind_t kind = UT_MEM_ALLOC;

    (void)state;
    ut_run(2, flush_of_quiet, &kind);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flush_of_quiet_private),
        cmocka_unit_test(test_flush_of_quiet_alloc),
    };

    return ut_main(argc, argv, "iface_flush", tests, sizeof(tests) / sizeof(tests[0]));
}
