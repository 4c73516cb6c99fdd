/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Groups of kmod_test: accesses that must be refused. Each must move no byte of any memory, raise a
 * FAULT event that says what was wrong, move the fault counter by one, and let no marker behind it
 * come back.
 */
#include "kmod_test.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Values of libangara's angara_status_t. */
#define ST_KEY       -6
#define ST_BOUNDS    -7
#define ST_RIGHTS    -8
#define ST_PEER_DEAD -9
#define BYTES        1000u /* of each region */
#define SKEW         100u  /* its offset in its page */

/* The regions of the test. "near" is the domain of the PE that acts, "far" that of its target. */
enum {
    NEAR_RW,
    NEAR_RO,
    FAR_ALL,
    FAR_READ,
    FAR_WRITE,
    FAR_ATOMIC,
    FAR_NONE,
    OTHER_ALL, /* of a third domain: neither */
    GONE_NEAR, /* deregistered */
    GONE_FAR,
    REGIONS
};

typedef struct {
    int                      domains[3], memreg;
    pe_t                     near, far, other;
    char                    *pages, *before; /* a page a region */
    struct angara_ioc_mr_reg regs[REGIONS];
} field_t;

static const struct {
    uint8_t  domain;
    uint32_t access;
} regions[REGIONS] = {
    [NEAR_RW]    = {0, ANGARA_MR_LOCAL_WRITE},
    [NEAR_RO]    = {0, 0},
    [FAR_ALL]    = {1, ALL},
    [FAR_READ]   = {1, ANGARA_MR_REMOTE_READ},
    [FAR_WRITE]  = {1, ANGARA_MR_REMOTE_WRITE},
    [FAR_ATOMIC] = {1, ANGARA_MR_REMOTE_ATOMIC},
    [FAR_NONE]   = {1, 0},
    [OTHER_ALL]  = {2, ALL | ANGARA_MR_LOCAL_WRITE},
    [GONE_NEAR]  = {0, ANGARA_MR_LOCAL_WRITE},
    [GONE_FAR]   = {1, ALL},
};

static void field_open(field_t *f)
{
    f->memreg = memreg_open();
    for (unsigned i = 0; i < 3; ++i) {
        f->domains[i] = domain_open();
    }
    pe_open(f->domains[0], PAGE, &f->near);
    pe_open(f->domains[1], 4 * PAGE, &f->far);
    pe_open(f->domains[2], PAGE, &f->other);
    MUST(window_commit(f->far.fd, 0, 2 * PAGE) == 0);
    pair_set(&f->near, 3, f->near.info.node, &f->far);
    f->pages  = pages_map(REGIONS);
    f->before = malloc(REGIONS * PAGE);
    MUST(f->before != NULL);
    for (unsigned i = 0; i < REGIONS * PAGE; ++i) {
        f->pages[i] = (char)(i * 7 + i / PAGE);
    }
    memcpy(f->before, f->pages, REGIONS * PAGE);
    for (unsigned i = 0; i < REGIONS; ++i) {
        MUST(mr_reg(f->memreg, f->domains[regions[i].domain], f->pages + i * PAGE + SKEW, BYTES,
                    regions[i].access, &f->regs[i]) == 0);
    }
    /* The device has seen them, so that it has something to forget. */
    MUST(transfer(&f->near, ANGARA_OP_PUT, 3, f->regs[GONE_NEAR].key, 0, f->regs[GONE_FAR].key, 0,
                  1));
    f->pages[GONE_FAR * PAGE + SKEW] = f->before[GONE_FAR * PAGE + SKEW];
    MUST(mr_dereg(f->memreg, f->regs[GONE_NEAR].handle) == 0);
    MUST(mr_dereg(f->memreg, f->regs[GONE_FAR].handle) == 0);
}

static void field_close(field_t *f)
{
    pe_close(&f->near);
    pe_close(&f->far);
    pe_close(&f->other);
    close(f->memreg);
    for (unsigned i = 0; i < 3; ++i) {
        close(f->domains[i]);
    }
    munmap(f->pages, REGIONS * PAGE);
    free(f->before);
}

static uint64_t faults(const field_t *f)
{
    return f->near.status->counters[ANGARA_CNT_FAULTS];
}

/* Perform it, behind another operation if there is one: one fault, as told, and nothing else. */
static void refused_behind(field_t *f, const char *name, const struct angara_desc *first,
                           const struct angara_desc *desc, int status, uint64_t key)
{
    struct angara_event_record event  = {0}, more;
    uint64_t                   before = faults(f);
    int                        came, marked;

    if (first != NULL) {
        desc_post(&f->near, first);
    }
    came = op_perform(&f->near, desc, &event);
    OK_SAY(!came && event.type == ANGARA_EV_FAULT && event.status == status && event.pair == 3 &&
               event.key == key,
           "%s: a fault, status %d", name, status);
    printf("# event type %u status %d pair %u\n", event.type, event.status, event.pair);
    /* The pair works again when it has been set, and that is in order behind all before. */
    pair_set(&f->near, 3, f->near.info.node, &f->far);
    marked = f->near.marker[0] == f->near.marker_value;
    OK_SAY(!marked && faults(f) == before + 1 && !event_take(&f->near, &more),
           "%s: counted once, no marker", name);
    OK_SAY(memcmp(f->pages, f->before, REGIONS * PAGE) == 0, "%s: no byte has moved", name);
}

static void refused(field_t *f, const char *name, const struct angara_desc *desc, int status,
                    uint64_t key)
{
    refused_behind(f, name, NULL, desc, status, key);
}

/* A valid operation: what is refused later is refused for its own fault. */
static void allowed(field_t *f, const char *name, const struct angara_desc *desc)
{
    OK_SAY(op_perform(&f->near, desc, NULL), "%s: is possible", name);
    memcpy(f->pages, f->before, REGIONS * PAGE);
}

static struct angara_desc operation(const field_t *f, uint8_t op, unsigned near, unsigned far)
{
    return (struct angara_desc){
        .op      = op,
        .pair    = 3,
        .atomic  = 4, /* swap */
        .width   = op == ANGARA_OP_ATOMIC ? 8 : 0,
        .lkey    = op == ANGARA_OP_PUT_INLINE ? 0 : f->regs[near].key,
        .rkey    = f->regs[far].key,
        .roffset = 4, /* 8-byte aligned in memory */
        .length  = op == ANGARA_OP_PUT_INLINE ? 32 :
                   op == ANGARA_OP_ATOMIC     ? 0 :
                                                64,
        .operand = 0x1122334455667788,
    };
}

static const struct {
    uint8_t     op;
    unsigned    near, far; /* with which it is allowed */
    const char *name;
    uint64_t    bytes;
    unsigned    wrong_far; /* has all rights but the one needed */
} operations[] = {
    {ANGARA_OP_PUT, NEAR_RO, FAR_WRITE, "put", 64, FAR_READ},
    {ANGARA_OP_GET, NEAR_RW, FAR_READ, "get", 64, FAR_WRITE},
    {ANGARA_OP_PUT_INLINE, NEAR_RO, FAR_WRITE, "inline put", 32, FAR_ATOMIC},
    {ANGARA_OP_ATOMIC, NEAR_RW, FAR_ATOMIC, "atomic", 8, FAR_WRITE},
};

static void operation_cases(field_t *f, unsigned n)
{
    uint8_t            op        = operations[n].op;
    struct angara_desc good      = operation(f, op, operations[n].near, operations[n].far), bad;
    int                has_local = op != ANGARA_OP_PUT_INLINE;
    uint64_t           bytes = operations[n].bytes, all_key = f->regs[FAR_ALL].key;
    char               name[100];

#define CASE(text, field, value, status)                                  \
    do {                                                                  \
        bad       = good;                                                 \
        bad.field = (value);                                              \
        snprintf(name, sizeof(name), "%s, %s", operations[n].name, text); \
        refused(f, name, &bad, status, bad.rkey);                         \
    } while (0)

    allowed(f, operations[n].name, &good);
    CASE("a key of another domain", rkey, f->regs[OTHER_ALL].key, ST_KEY);
    CASE("a key of the own domain", rkey, f->regs[NEAR_RW].key, ST_KEY);
    CASE("a revoked region", rkey, f->regs[GONE_FAR].key, ST_KEY);
    CASE("key 0", rkey, 0, ST_KEY);
    CASE("a wrong right", rkey, f->regs[operations[n].wrong_far].key, ST_RIGHTS);
    CASE("no right", rkey, f->regs[FAR_NONE].key, ST_RIGHTS);
    for (unsigned bit = 0; bit < 64; bit += 9) {
        CASE("a key wrong in one bit", rkey, good.rkey ^ 1ull << bit, ST_KEY);
    }
    good.rkey = all_key;
    if (op == ANGARA_OP_ATOMIC) {
        /* The last aligned word and the one behind it. */
        good.roffset = BYTES - 12;
        allowed(f, "atomic on the last word", &good);
        CASE("half a word out of bounds", roffset, BYTES - 4, ST_BOUNDS);
    } else {
        good.roffset = BYTES - bytes;
        allowed(f, "up to the last byte", &good);
        CASE("one byte out of bounds", roffset, BYTES - bytes + 1, ST_BOUNDS);
        CASE("an offset that wraps", roffset, ~0ull - bytes / 2, ST_BOUNDS);
    }
    good.roffset = 4;
    CASE("all out of bounds", roffset, 1ull << 40 | 4, ST_BOUNDS);
    if (has_local) {
        CASE("a local key of another domain", lkey, f->regs[OTHER_ALL].key, ST_KEY);
        CASE("the target's key as a local one", lkey, all_key, ST_KEY);
        CASE("a revoked local region", lkey, f->regs[GONE_NEAR].key, ST_KEY);
        CASE("local memory, one byte out of bounds", loffset, BYTES - bytes + 1, ST_BOUNDS);
        CASE("a local offset that wraps", loffset, ~0ull - bytes / 2, ST_BOUNDS);
    }
    if (has_local && op != ANGARA_OP_PUT) {
        CASE("local memory that isn't to be written", lkey, f->regs[NEAR_RO].key, ST_RIGHTS);
    }
    if (op == ANGARA_OP_PUT || op == ANGARA_OP_GET) {
        CASE("a length beyond the region", length, BYTES + 1, ST_BOUNDS);
        CASE("a length that wraps", length, ~0ull, ST_BOUNDS);
    }
#undef CASE
}

/* What is behind a fault in the ring is dropped with it, whatever it is. */
static void behind_a_fault(field_t *f)
{
    struct angara_desc bad  = operation(f, ANGARA_OP_GET, NEAR_RW, GONE_FAR);
    struct angara_desc good = operation(f, ANGARA_OP_PUT, NEAR_RW, FAR_ALL);

    refused_behind(f, "a put behind a faulted get", &bad, &good, ST_KEY, bad.rkey);
    allowed(f, "the same put when the pair is set again", &good);
}

/* Many wrong keys: none fits, and they cost time. */
static void guesses(field_t *f)
{
    enum { GUESSES = 200 };
    struct angara_desc         desc = operation(f, ANGARA_OP_GET, NEAR_RW, FAR_ALL);
    uint64_t                   key = desc.rkey, random = 88172645463325252ull;
    struct angara_event_record event;
    unsigned                   refusals = 0;
    double                     start    = now_seconds();

    for (unsigned i = 0; i < GUESSES; ++i) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        desc.rkey = random << 24 | (key & 0xffffff);
        if (desc.rkey != key && !op_perform(&f->near, &desc, &event)) {
            refusals += event.status == ST_KEY;
            pair_set(&f->near, 3, f->near.info.node, &f->far);
        }
    }
    OK_SAY(refusals == GUESSES, "guessed keys are refused");
    OK_SAY(now_seconds() - start >= GUESSES * 0.001, "a millisecond each at least");
    OK(memcmp(f->pages, f->before, REGIONS * PAGE) == 0);
}

void test_access(void)
{
    field_t f;

    field_open(&f);
    for (unsigned i = 0; i < sizeof(operations) / sizeof(operations[0]); ++i) {
        operation_cases(&f, i);
    }
    behind_a_fault(&f);
    guesses(&f);
    field_close(&f);
    OK(SYSFS("mr_used") == 0 && SYSFS("pe_used") == 0);
}

/* ---- windows --------------------------------------------------------------------------------- */

static void window_refused(field_t *f, const char *name, uint64_t offset, unsigned length,
                           uint64_t flag_offset)
{
    struct angara_event_record event  = {0};
    struct angara_desc         marker = {
                .op = ANGARA_OP_MARKER, .pair = 3, .operand = ++f->near.marker_value};
    uint64_t before = faults(f);
    int      clean  = 1;

    put(&f->near, 3, offset, "0123456789abcdef", length, flag_offset, ~0ull);
    desc_post(&f->near, &marker);
    pair_set(&f->near, 3, f->near.info.node, &f->far);
    OK_SAY(event_take(&f->near, &event) && event.type == ANGARA_EV_FAULT &&
               event.status == ST_BOUNDS && event.pair == 3 && faults(f) == before + 1,
           "window: %s: a fault", name);
    for (unsigned i = 0; i < 2 * PAGE; ++i) {
        clean &= f->far.window[i] == 0;
    }
    OK_SAY(clean && f->near.marker[0] != f->near.marker_value,
           "window: %s: no byte has moved, no marker", name);
}

void test_window_access(void)
{
    const uint64_t             none  = ~0ull;
    struct angara_event_record event = {0};
    field_t                    f;
    pe_t                       old;

    field_open(&f);
    put(&f.near, 3, 2 * PAGE - 8, "all good", 8, none, 0);
    put(&f.near, 3, 0, "", 0, 2 * PAGE - 16, 5);
    OK(word_wait((volatile uint64_t *)(void *)(f.far.window + 2 * PAGE - 16), 5));
    OK(memcmp(f.far.window + 2 * PAGE - 8, "all good", 8) == 0);
    memset(f.far.window + 2 * PAGE - 16, 0, 16);
    window_refused(&f, "one byte behind what is committed", 2 * PAGE - 7, 8, none);
    window_refused(&f, "not committed", 3 * PAGE, 1, none);
    window_refused(&f, "one byte behind the window", 4 * PAGE, 1, none);
    window_refused(&f, "an offset that wraps", ~0ull - 3, 8, none);
    window_refused(&f, "a flag that is not committed", 64, 8, 2 * PAGE);
    window_refused(&f, "a flag that is not aligned", 64, 8, 12);
    window_refused(&f, "a flag across the end", 64, 8, 2 * PAGE - 4);
    window_refused(&f, "a flag far away", 64, 8, 0ull - 8);

    /* The number of a PE with another generation is another PE, which has gone. */
    old            = f.far;
    old.generation = f.far.generation + 1;
    pair_set(&f.near, 4, f.near.info.node, &old);
    OK(event_take(&f.near, &event) && event.type == ANGARA_EV_PEER_DOWN &&
       event.status == ST_PEER_DEAD && event.pair == 4);
    put(&f.near, 4, 0, "ghost", 5, none, 0);
    OK(f.far.window[0] == 0);
    field_close(&f);
}
