/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The target's side of joint copies (provider/soft/joint.h): which pieces it takes and when, and
 * that requests which make no sense are given back, with nothing copied. This process plays the
 * requester, too: its domain is the one that the requests name.
 */
#define _GNU_SOURCE
#include "service_slot.h"

#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#define LONG  (1u << 20)
#define FIRST (128u << 10) /* bytes of the first piece of so many */

static char       *far_end, *near_end;
static angara_mr_h far_mr, near_mr, near_readable, far_readable;

static angara_mr_h region(char *addr, unsigned access)
{
    angara_mr_h mr;

    assert_int_equal(angara_mr_register(f.dom, addr, LONG, access, &mr), ANGARA_OK);
    return mr;
}

static int joint_setup(void **state_p)
{
    far_end  = mmap(NULL, 2 * LONG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    near_end = far_end + LONG;
    if (far_end == MAP_FAILED || setup(state_p) != 0) {
        return -1;
    }
    far_mr        = region(far_end, ANGARA_ACCESS_REMOTE_READ | ANGARA_ACCESS_REMOTE_WRITE);
    far_readable  = region(far_end, ANGARA_ACCESS_REMOTE_READ);
    near_mr       = region(near_end, ANGARA_ACCESS_LOCAL_WRITE);
    near_readable = region(near_end, 0);
    return 0;
}

static int joint_teardown(void **state_p)
{
    angara_mr_deregister(far_mr);
    angara_mr_deregister(far_readable);
    angara_mr_deregister(near_mr);
    angara_mr_deregister(near_readable);
    munmap(far_end, 2 * LONG);
    return teardown(state_p);
}

static void fill(void)
{
    for (unsigned i = 0; i < LONG; ++i) {
        far_end[i]  = (char)(i * 7 + i / 4096);
        near_end[i] = 0x55;
    }
}

static soft_request_t joint(ang_op_t op)
{
    soft_request_t r = request(op, angara_mr_key(far_mr), 0, LONG);

    r.by         = SOFT_BY_JOINT;
    r.start_time = f.target->base.address.loc[1];
    r.domain_fd  = f.target->seg->domain_fd;
    r.domain_id  = f.target->seg->domain_id;
    r.near_key   = angara_mr_key(near_mr);
    return r;
}

static soft_phase_t phase(void)
{
    return soft_state_phase(state());
}

static uint64_t claims(void)
{
    return __atomic_load_n(&f.slot->request.operand, __ATOMIC_ACQUIRE);
}

/* Bytes that the target has claimed, from the back. */
static uint64_t claimed(void)
{
    return claims() >> 32;
}

/* ---- what the kernel is asked for ------------------------------------------------------------ */

ssize_t __real_process_vm_readv(pid_t pid, const struct iovec *local, unsigned long liovcnt,
                                const struct iovec *remote, unsigned long riovcnt,
                                unsigned long flags);
ssize_t __real_process_vm_writev(pid_t pid, const struct iovec *local, unsigned long liovcnt,
                                 const struct iovec *remote, unsigned long riovcnt,
                                 unsigned long flags);
ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *local, unsigned long liovcnt,
                                const struct iovec *remote, unsigned long riovcnt,
                                unsigned long flags);
ssize_t __wrap_process_vm_writev(pid_t pid, const struct iovec *local, unsigned long liovcnt,
                                 const struct iovec *remote, unsigned long riovcnt,
                                 unsigned long flags);

/* While a piece is copied the requester's region is held, and the slot says so. */
static void check_held(void)
{
    const soft_domain_seg_t *seg;
    unsigned                 held = 0;

    if (f.slot == NULL || f.slot->request.by != SOFT_BY_JOINT) {
        return; /* the library looks whether it may */
    }
    seg = f.target->dom->shared;
    for (unsigned i = 0; i < seg->hazards_used; ++i) {
        held += seg->hazards[i].key == f.slot->request.near_key;
    }
    assert_int_equal(held, 1);
    assert_int_equal(phase(), SOFT_SERVING);
}

ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *local, unsigned long liovcnt,
                                const struct iovec *remote, unsigned long riovcnt,
                                unsigned long flags)
{
    check_held();
    return __real_process_vm_readv(pid, local, liovcnt, remote, riovcnt, flags);
}

ssize_t __wrap_process_vm_writev(pid_t pid, const struct iovec *local, unsigned long liovcnt,
                                 const struct iovec *remote, unsigned long riovcnt,
                                 unsigned long flags)
{
    check_held();
    return __real_process_vm_writev(pid, local, liovcnt, remote, riovcnt, flags);
}

/* ---------------------------------------------------------------------------------------------- */

/* One turn of the owner's progress, which may take part or not. @return requests served */
static unsigned turn(int joins)
{
    unsigned count = 0;

    for (unsigned i = 0; i < 100 && count == 0; ++i) { /* the helper may hold the lock */
        count = poll_requests(joins);
    }
    return count;
}

/* One piece a turn, from the back; POSTED between them. */
static void test_pieces(void **state_p)
{
    soft_request_t r      = joint(ANG_OP_GET);
    uint64_t       before = f.target->counters.joint_pieces;
    uint64_t       at     = LONG;
    unsigned       turns  = 0;

    (void)state_p;
    fill();
    post(&r);
    ring(SLOT);
    while (phase() == SOFT_POSTED) {
        assert_int_equal(turn(1), 1);
        assert_true(LONG - claimed() < at && at - (LONG - claimed()) <= FIRST);
        at = LONG - claimed();
        assert_memory_equal(near_end + at, far_end + at, claimed());
        assert_true(at == 0 || near_end[at - 1] == 0x55);
        turns++;
        assert_int_equal(phase(), at == 0 ? SOFT_DONE : SOFT_POSTED);
    }
    assert_int_equal(f.slot->status, ANGARA_OK);
    assert_int_equal(at, 0);
    assert_in_range(turns, LONG / FIRST, 2 * LONG / FIRST);
    assert_int_equal(f.target->counters.joint_pieces - before, turns);
}

static char far_byte(unsigned at)
{
    return (char)(at * 7 + at / 4096);
}

/* A put brings the requester's bytes; what the requester has claimed isn't touched. */
static void test_shared(void **state_p)
{
    const unsigned left = FIRST + 40000;
    soft_request_t r    = joint(ANG_OP_PUT);

    (void)state_p;
    fill();
    r.operand = LONG - left; /* the requester's, from the front */
    post(&r);
    ring(SLOT);
    assert_int_equal(turn(1), 1);
    assert_int_equal(far_end[LONG - 1], 0x55);
    assert_int_equal(far_end[LONG - FIRST], 0x55);
    assert_int_equal(far_end[LONG - FIRST - 1], far_byte(LONG - FIRST - 1));
    __atomic_fetch_add(&f.slot->request.operand, left - FIRST - 1, __ATOMIC_RELEASE);
    assert_int_equal(turn(1), 1);
    assert_int_equal(far_end[LONG - FIRST - 1], 0x55);
    assert_int_equal(far_end[LONG - FIRST - 2], far_byte(LONG - FIRST - 2));
    assert_int_equal(phase(), SOFT_DONE);
    assert_int_equal(f.slot->status, ANGARA_OK);
}

/* Who has claimed less takes what makes both equal, up to a longest piece; else half is taken. */
static void test_shares(void **state_p)
{
    const struct {
        unsigned length, claimed, piece; /* in units of a quarter of a longest piece */
    } cases[] = {
        {8, 4, 4}, {6, 4, 2}, {7, 4, 3}, {12, 4, 4}, {4, 0, 2}, {8, 0, 4}, {16, 0, 4}, {2, 1, 1},
    };

    (void)state_p;
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        const unsigned length = cases[i].length * FIRST / 4;
        const unsigned at     = length - cases[i].piece * FIRST / 4;
        soft_request_t r      = joint(ANG_OP_PUT);

        fill();
        r.length  = length;
        r.operand = cases[i].claimed * FIRST / 4;
        post(&r);
        ring(SLOT);
        assert_int_equal(turn(1), 1);
        assert_int_equal(far_end[length - 1], 0x55);
        assert_int_equal(far_end[at], 0x55);
        assert_int_equal(far_end[at - 1], far_byte(at - 1));
        while (phase() == SOFT_POSTED) {
            assert_int_equal(turn(1), 1);
        }
        assert_int_equal(phase(), SOFT_DONE);
    }
}

/* A request of less than two pages has a piece, too. */
static void test_short(void **state_p)
{
    soft_request_t r = joint(ANG_OP_PUT);

    (void)state_p;
    fill();
    r.length = 1;
    post(&r);
    ring(SLOT);
    assert_int_equal(turn(1), 1);
    assert_int_equal(far_end[0], 0x55);
    assert_int_equal(far_end[1], far_byte(1));
    assert_int_equal(phase(), SOFT_DONE);
}

/* Whoever may not take part leaves it where it is; others are served meanwhile. */
static void test_not_joining(void **state_p)
{
    soft_request_t r = joint(ANG_OP_GET);

    (void)state_p;
    fill();
    post(&r);
    ring(SLOT);
    for (unsigned i = 0; i < 10; ++i) {
        assert_int_equal(poll_requests(0), 0);
    }
    assert_int_equal(phase(), SOFT_POSTED);
    assert_int_equal(claimed(), 0);
    assert_true(angara_pe_is_asked(&f.target->base));
    assert_int_equal(turn(1), 1);
    assert_true(claimed() != 0);
    /* taken back: nothing is done for it any more */
    __atomic_store_n(&f.slot->state, soft_state_to(state(), SOFT_IDLE), __ATOMIC_RELEASE);
    r.operand = claims();
    assert_int_equal(turn(1), 0);
    assert_int_equal(claims(), r.operand);
    assert_false(angara_pe_is_asked(&f.target->base));
}

/* All is claimed, or more than all. */
static void test_nothing_left(void **state_p)
{
    static const uint64_t taken[] = {LONG,
                                     LONG + 1ull,
                                     UINT64_MAX,
                                     1ull << 63,
                                     UINT32_MAX,
                                     (uint64_t)LONG << 32,
                                     (LONG / 2) | (uint64_t)(LONG / 2) << 32};

    (void)state_p;
    fill();
    for (unsigned i = 0; i < sizeof(taken) / sizeof(taken[0]); ++i) {
        soft_request_t r = joint(ANG_OP_GET);

        r.operand = taken[i];
        assert_int_equal(status_of(r), ANGARA_OK);
        assert_int_equal(near_end[0], 0x55);
        assert_int_equal(near_end[LONG - 1], 0x55);
    }
}

/* What can't be copied is given back at once: nothing has been copied, nothing more is claimed. */
static void assert_given_back(soft_request_t r, const char *what)
{
    uint64_t at;

    fill();
    assert_int_equal(status_of(r), ANGARA_ERR_UNSUPPORTED);
    at = f.slot->request.compare;
    if (at + f.slot->request.length != LONG || near_end[at] != 0x55 ||
        far_end[at] != far_byte((unsigned)at)) {
        fail_msg("%s: something was copied, or another piece was given back", what);
    }
    assert_int_equal(claimed(), FIRST);
}

static void test_nonsense(void **state_p)
{
    soft_request_t good = joint(ANG_OP_GET), r;
    int            pipe_fds[2];

    (void)state_p;
    r     = good;
    r.key = good.key ^ 1;
    assert_given_back(r, "a wrong key");
    r = good;
    r.near_key ^= 1ull << 40;
    assert_given_back(r, "a wrong key of the requester's");
    r          = good;
    r.near_key = angara_mr_key(near_readable);
    assert_given_back(r, "a near end that isn't writable");
    r     = joint(ANG_OP_PUT);
    r.key = angara_mr_key(far_readable);
    assert_given_back(r, "a far end that isn't writable");
    r        = good;
    r.offset = LONG;
    assert_given_back(r, "an offset behind the end");
    r        = good;
    r.offset = UINT64_MAX - 100;
    assert_given_back(r, "an offset that wraps");
    r             = good;
    r.near_offset = UINT64_MAX - 100;
    assert_given_back(r, "an offset of the requester's that wraps");
    r             = good;
    r.near_offset = LONG - 100;
    assert_given_back(r, "a near end that runs past its region");
    r = good;
    r.domain_id ^= 1;
    assert_given_back(r, "another domain");
    r = good;
    r.start_time++;
    assert_given_back(r, "another process");
    assert_int_equal(pipe(pipe_fds), 0);
    for (int i = 0; i < 4; ++i) {
        r           = good;
        r.domain_id = good.domain_id + 1; /* not the one that is kept */
        r.domain_fd = i == 0 ? -1 : i == 1 ? 0 : i == 2 ? pipe_fds[0] : INT32_MAX;
        assert_given_back(r, "a descriptor of something else");
    }
    close(pipe_fds[0]);
    close(pipe_fds[1]);
}

static void test_words(void **state_p)
{
    soft_request_t r;

    (void)state_p;
    for (unsigned by = SOFT_BY_SLOT_BEHIND + 1; by < 256; ++by) {
        r    = joint(ANG_OP_GET);
        r.by = (uint8_t)by;
        assert_int_equal(status_of(r), ANGARA_ERR_INVALID);
    }
    r = joint(ANG_OP_ATOMIC);
    assert_int_equal(status_of(r), ANGARA_ERR_INVALID);
    r = joint(ANG_OP_MARKER);
    assert_int_equal(status_of(r), ANGARA_ERR_INVALID);
    r        = joint(ANG_OP_GET);
    r.length = 0;
    assert_int_equal(status_of(r), ANGARA_ERR_INVALID);
}

/* Random requests and claims. Guards around both ends stay as they are. */
static void test_garbage(void **state_p)
{
    soft_request_t r;

    (void)state_p;
    for (unsigned n = 0; n < 300; ++n) {
        unsigned char *bytes = (void *)&r;

        r = joint(n % 2 ? ANG_OP_GET : ANG_OP_PUT);
        for (unsigned i = 0; i < 3; ++i) {
            bytes[4 + (unsigned)rand() % (sizeof(r) - 4)] = (unsigned char)rand();
        }
        r.by = SOFT_BY_JOINT;
        post(&r);
        ring(SLOT);
        for (unsigned i = 0; i < 100 && phase() == SOFT_POSTED; ++i) {
            turn(1);
            if (rand() % 8 == 0) {
                __atomic_store_n(&f.slot->request.operand, (uint64_t)rand() << rand() % 34,
                                 __ATOMIC_RELEASE);
            }
        }
        __atomic_store_n(&f.slot->state, soft_state_to(state(), SOFT_IDLE), __ATOMIC_RELEASE);
    }
    for (unsigned i = 0; i < 3; ++i) {
        for (unsigned j = 0; j < SIZE; ++j) {
            assert_int_equal(f.memory[i][j], 0x11);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces),      cmocka_unit_test(test_shared),
        cmocka_unit_test(test_shares),      cmocka_unit_test(test_short),
        cmocka_unit_test(test_not_joining), cmocka_unit_test(test_nothing_left),
        cmocka_unit_test(test_nonsense),    cmocka_unit_test(test_words),
        cmocka_unit_test(test_garbage),
    };

    return cmocka_run_group_tests(tests, joint_setup, joint_teardown);
}
