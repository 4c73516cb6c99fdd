/* SPDX-License-Identifier: BSD-3-Clause */
/* Regions and PEs of a guest. See guest.h. */
#include "guest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- regions --------------------------------------------------------------------------------- */

/* Pages in an order that isn't that of their addresses; level 0 wants them contiguous. */
static void place_pages(region_t *region, int contiguous)
{
    uint64_t size = 1ull << region->page_shift;
    uint64_t base = guest_alloc(region->guest, region->npages * size, size);
    uint64_t half = (region->npages + 1) / 2;

    for (uint64_t i = 0; i < region->npages; ++i) {
        uint64_t place = contiguous ? i : i % 2 == 0 ? i / 2 : half + i / 2;

        region->pages[i] = base + place * size;
    }
}

/* A page of a list whose words cover pages from `first` on; returns its bus address. */
static uint64_t build_list(region_t *region, unsigned level, uint64_t first)
{
    uint64_t  bus   = guest_alloc(region->guest, GUEST_PAGE, GUEST_PAGE);
    uint64_t *words = guest_at(region->guest, bus);
    uint64_t  step  = 1ull << (9 * (level - 1));

    for (unsigned i = 0; i < 512 && first + i * step < region->npages; ++i) {
        words[i] = level == 1 ? region->pages[first + i] :
                                build_list(region, level - 1, first + i * step);
    }
    return bus;
}

struct angara_hw_mr *region_entry(region_t *region)
{
    return &region->guest->mrs[region->key % (1u << ANGARA_HW_KEY_INDEX_BITS)];
}

void region_register(region_t *region, guest_t *guest, uint32_t domain, uint64_t length,
                     unsigned access, unsigned levels, unsigned page_shift, uint64_t first)
{
    uint64_t             size = 1ull << page_shift;
    struct angara_hw_mr *mr;

    *region            = (region_t){.guest = guest, .length = length, .first = first};
    region->page_shift = page_shift;
    region->npages     = (first + length + size - 1) / size;
    region->pages      = calloc(region->npages, sizeof(uint64_t));
    assert_non_null(region->pages);
    assert_true(guest->next_mr < GUEST_MR_ENTRIES);
    free(guest->pages[guest->next_mr]);
    guest->pages[guest->next_mr] = region->pages;
    place_pages(region, levels == 0);

    region->key = guest->next_mr++ | 0xabcdef0000000000ull | (uint64_t)random() << 24;
    mr          = region_entry(region);
    memset(mr, 0, sizeof(*mr));
    mr->length     = length;
    mr->first      = first;
    mr->domain     = domain;
    mr->access     = access;
    mr->npages     = region->npages;
    mr->page_shift = (uint8_t)page_shift;
    mr->levels     = (uint8_t)levels;
    mr->list       = levels == 0 ? region->pages[0] : build_list(region, levels, 0);
    __atomic_store_n(&mr->key, region->key, __ATOMIC_RELEASE);
}

void region_invalidate(region_t *region)
{
    __atomic_store_n(&region_entry(region)->key, 0, __ATOMIC_SEQ_CST);
    assert_int_equal(guest_admin_args(region->guest, ANGARA_HW_MR_INVALIDATE, region->key, 0),
                     ANGARA_HW_OK);
}

static uint8_t *byte_at(region_t *region, uint64_t offset)
{
    uint64_t at   = region->first + offset;
    uint64_t page = region->pages[at >> region->page_shift];

    return (uint8_t *)guest_at(region->guest, page) + (at & ((1ull << region->page_shift) - 1));
}

void region_store(region_t *region, uint64_t offset, const void *src, uint64_t length)
{
    for (uint64_t i = 0; i < length; ++i) {
        *byte_at(region, offset + i) = ((const uint8_t *)src)[i];
    }
}

void region_load(region_t *region, uint64_t offset, void *dst, uint64_t length)
{
    for (uint64_t i = 0; i < length; ++i) {
        ((uint8_t *)dst)[i] = *byte_at(region, offset + i);
    }
}

static uint8_t pattern(unsigned seed, uint64_t at)
{
    return (uint8_t)(seed * 37 + at * 11 + (at >> 8) * 7 + (at >> 16));
}

void region_fill(region_t *region, unsigned seed)
{
    for (uint64_t i = 0; i < region->length; ++i) {
        *byte_at(region, i) = pattern(seed, i);
    }
}

int region_holds(region_t *region, uint64_t offset, unsigned seed, uint64_t from, uint64_t length)
{
    for (uint64_t i = 0; i < length; ++i) {
        if (*byte_at(region, offset + i) != pattern(seed, from + i)) {
            return 0;
        }
    }
    return 1;
}

/* ---- life of a PE ---------------------------------------------------------------------------- */

uint64_t *window_leaf(pe_t *pe, unsigned index)
{
    uint64_t bus = guest_alloc(pe->guest, GUEST_PAGE, GUEST_PAGE);

    pe->leaves[index] = bus | 1;
    return guest_at(pe->guest, bus);
}

void pe_prepare(pe_t *pe, guest_t *guest, uint32_t index, uint32_t domain)
{
    struct angara_hw_control *control = guest->control;

    memset(pe, 0, sizeof(*pe));
    pe->guest            = guest;
    pe->hw.index         = index;
    pe->hw.generation    = guest->next_generation++;
    pe->hw.domain        = domain;
    pe->hw.job_key       = GUEST_JOB;
    pe->hw.vector        = 1 + index % (control->vectors - 1);
    pe->hw.cmd_entries   = GUEST_CMDS;
    pe->hw.event_entries = GUEST_EVENTS;
    pe->hw.marker_slots  = GUEST_SLOTS;
    pe->hw.window_pages  = GUEST_WINDOW;
    pe->hw.cmd           = guest_alloc(guest, GUEST_CMDS * sizeof(*pe->cmd), GUEST_PAGE);
    pe->hw.event         = guest_alloc(guest, GUEST_EVENTS * sizeof(*pe->event), GUEST_PAGE);
    pe->hw.status        = guest_alloc(guest, GUEST_PAGE, GUEST_PAGE);
    pe->hw.marker        = guest_alloc(guest, GUEST_SLOTS * sizeof(*pe->marker), GUEST_PAGE);
    pe->hw.window        = guest_alloc(guest, GUEST_PAGE, GUEST_PAGE);
    pe->cmd              = guest_at(guest, pe->hw.cmd);
    pe->event            = guest_at(guest, pe->hw.event);
    pe->status           = guest_at(guest, pe->hw.status);
    pe->marker           = guest_at(guest, pe->hw.marker);
    pe->leaves           = guest_at(guest, pe->hw.window);
    pe->window           = window_leaf(pe, 0);
    pe->doorbell         = (void *)(guest->bar + control->doorbell_offset + index * GUEST_PAGE);
    pe->pio              = guest->bar + control->pio_offset + (size_t)index * control->pio_bytes;
    for (unsigned i = 0; i < GUEST_WINDOW; ++i) {
        pe->window[GUEST_WINDOW - 1 - i] = guest_alloc(guest, GUEST_PAGE, GUEST_PAGE) | 1;
    }
}

uint32_t pe_create_status(pe_t *pe)
{
    struct angara_hw_cmd cmd = {.opcode = ANGARA_HW_PE_CREATE};

    cmd.pe = pe->hw;
    return guest_admin(pe->guest, &cmd);
}

void pe_create(pe_t *pe, guest_t *guest, uint32_t index, uint32_t domain)
{
    pe_prepare(pe, guest, index, domain);
    assert_int_equal(pe_create_status(pe), ANGARA_HW_OK);
    assert_int_equal(pe_state(pe), ANGARA_PE_RUNNING);
}

static void end(pe_t *pe, uint64_t how)
{
    struct angara_hw_cmd cmd = {.opcode = ANGARA_HW_PE_RESET,
                                .args   = {pe->hw.index, pe->hw.generation, how}};

    assert_int_equal(guest_admin(pe->guest, &cmd), ANGARA_HW_OK);
}

void pe_reset(pe_t *pe)
{
    end(pe, ANGARA_HW_CLOSED);
}

void pe_die(pe_t *pe)
{
    end(pe, ANGARA_HW_DIED);
}

uint32_t pe_state(pe_t *pe)
{
    return __atomic_load_n(&pe->status->state, __ATOMIC_ACQUIRE);
}

void *pe_window(pe_t *pe, uint64_t offset)
{
    uint64_t word = pe->window[offset / GUEST_PAGE];

    return (char *)guest_at(pe->guest, word & ~(uint64_t)(GUEST_PAGE - 1)) + offset % GUEST_PAGE;
}

/* ---- the command ring ------------------------------------------------------------------------ */

void pe_post(pe_t *pe, const struct angara_desc *desc)
{
    WAIT_FOR(pe->cmd_prod - __atomic_load_n(&pe->status->cmd_cons, __ATOMIC_ACQUIRE) < GUEST_CMDS);
    pe->cmd[pe->cmd_prod % GUEST_CMDS] = *desc;
    __atomic_store_n(&pe->doorbell->cmd_prod, ++pe->cmd_prod, __ATOMIC_RELEASE);
}

void pe_pair(pe_t *pe, uint32_t pair, const pe_t *target)
{
    struct angara_desc desc = {
        .op       = ANGARA_OP_PAIR,
        .pair     = pair,
        .operand  = (uint64_t)target->guest->node << 32 | target->hw.index,
        .compare  = target->hw.generation,
        .pio_prod = pe->pio_prod,
    };

    pe_post(pe, &desc);
    WAIT_FOR(__atomic_load_n(&pe->status->cmd_cons, __ATOMIC_ACQUIRE) == pe->cmd_prod);
}

void pe_rma(pe_t *pe, uint8_t op, uint32_t pair, const region_t *local, uint64_t loffset,
            const region_t *remote, uint64_t roffset, uint64_t length)
{
    struct angara_desc desc = {
        .op       = op,
        .pair     = pair,
        .lkey     = local->key,
        .loffset  = loffset,
        .rkey     = remote->key,
        .roffset  = roffset,
        .length   = length,
        .pio_prod = pe->pio_prod,
    };

    pe_post(pe, &desc);
}

void pe_atomic(pe_t *pe, uint32_t pair, angara_atomic_op_t op, uint8_t width, uint64_t operand,
               uint64_t compare, const region_t *remote, uint64_t roffset, const region_t *result,
               uint64_t loffset)
{
    struct angara_desc desc = {
        .op       = ANGARA_OP_ATOMIC,
        .atomic   = (uint8_t)op,
        .width    = width,
        .pair     = pair,
        .lkey     = result != NULL ? result->key : 0,
        .loffset  = loffset,
        .rkey     = remote->key,
        .roffset  = roffset,
        .operand  = operand,
        .compare  = compare,
        .pio_prod = pe->pio_prod,
    };

    pe_post(pe, &desc);
}

uint64_t pe_mark(pe_t *pe, uint8_t op, uint32_t pair)
{
    struct angara_desc desc = {
        .op = op, .pair = pair, .operand = ++pe->marked, .pio_prod = pe->pio_prod};

    pe_post(pe, &desc);
    return pe->marked;
}

void pe_wait_mark(pe_t *pe, uint64_t value)
{
    WAIT_FOR(__atomic_load_n(&pe->marker[0], __ATOMIC_ACQUIRE) >= value);
}

void pe_flush(pe_t *pe, uint32_t pair)
{
    pe_wait_mark(pe, pe_mark(pe, ANGARA_OP_MARKER, pair));
}

/* ---- the put ring ---------------------------------------------------------------------------- */

static uint32_t ring_granules(const pe_t *pe)
{
    return pe->guest->control->pio_bytes / ANGARA_PIO_GRANULE;
}

static void wait_granules(pe_t *pe, uint32_t granules)
{
    WAIT_FOR((uint32_t)pe->pio_prod + granules -
                 __atomic_load_n(&pe->status->pio_cons, __ATOMIC_ACQUIRE) <=
             ring_granules(pe));
}

static char *granule(pe_t *pe)
{
    return pe->pio + pe->pio_prod % ring_granules(pe) * ANGARA_PIO_GRANULE;
}

/* Everything but `valid`, then that. */
static void write_put(pe_t *pe, const struct angara_put *head, const void *more, size_t length,
                      uint32_t granules)
{
    struct angara_put copy = *head;
    char             *to;

    wait_granules(pe, granules);
    to         = granule(pe);
    copy.valid = 0;
    memcpy(to + sizeof(copy.valid), (char *)&copy + sizeof(copy.valid),
           sizeof(copy) - sizeof(copy.valid));
    if (length != 0) {
        memcpy(to + sizeof(copy), more, length);
    }
    __atomic_store_n((uint32_t *)(void *)to, (uint32_t)pe->pio_prod + 1, __ATOMIC_RELEASE);
    pe->pio_prod += granules;
}

static void pad(pe_t *pe)
{
    struct angara_put head = {.op = ANGARA_PIO_PAD};

    write_put(pe, &head, NULL, 0, ring_granules(pe) - (uint32_t)(pe->pio_prod % ring_granules(pe)));
}

static void put(pe_t *pe, struct angara_put *head, const void *src)
{
    size_t   inside   = head->length < sizeof(head->data) ? head->length : sizeof(head->data);
    size_t   more     = head->length - inside;
    uint32_t granules = 1 + (uint32_t)((more + ANGARA_PIO_GRANULE - 1) / ANGARA_PIO_GRANULE);

    if (pe->pio_prod % ring_granules(pe) + granules > ring_granules(pe)) {
        pad(pe);
    }
    memcpy(head->data, src, inside);
    write_put(pe, head, (const char *)src + inside, more, granules);
}

void pe_put(pe_t *pe, uint32_t pair, uint64_t offset, const void *src, uint32_t length)
{
    struct angara_put head = {
        .op = ANGARA_PIO_PUT, .length = (uint16_t)length, .pair = pair, .offset = offset};

    put(pe, &head, src);
}

void pe_put_flag(pe_t *pe, uint32_t pair, uint64_t offset, const void *src, uint32_t length,
                 uint64_t flag_offset, uint64_t flag)
{
    struct angara_put head = {.op          = ANGARA_PIO_PUT_FLAG,
                              .length      = (uint16_t)length,
                              .pair        = pair,
                              .offset      = offset,
                              .flag_offset = flag_offset,
                              .flag        = flag};

    put(pe, &head, src);
}

int32_t pe_notify(pe_t *pe, uint32_t pair, const void *src, uint32_t length)
{
    struct angara_put head = {
        .op = ANGARA_PIO_NOTIFY, .length = (uint16_t)length, .pair = pair, .token = ++pe->token};

    put(pe, &head, src);
    WAIT_FOR(__atomic_load_n(&pe->status->notify_token, __ATOMIC_ACQUIRE) == pe->token);
    return pe->status->notify_status;
}

void pe_put_raw(pe_t *pe, const struct angara_put *head, const void *more, uint32_t granules)
{
    write_put(pe, head, more, (size_t)(granules - 1) * ANGARA_PIO_GRANULE, granules);
}

/* ---- events ---------------------------------------------------------------------------------- */

void pe_arm(pe_t *pe)
{
    __atomic_store_n(&pe->doorbell->arm, ++pe->arm, __ATOMIC_RELEASE);
    WAIT_FOR(__atomic_load_n(&pe->status->arm_ack, __ATOMIC_ACQUIRE) == pe->arm);
}

int pe_event(pe_t *pe, struct angara_event_record *event)
{
    struct angara_event_record *record = &pe->event[pe->event_cons % GUEST_EVENTS];

    if (__atomic_load_n(&record->valid, __ATOMIC_ACQUIRE) != pe->event_cons + 1) {
        return 0;
    }
    *event = *record;
    __atomic_store_n(&pe->doorbell->event_cons, ++pe->event_cons, __ATOMIC_RELEASE);
    return 1;
}

void pe_event_wait(pe_t *pe, struct angara_event_record *event)
{
    WAIT_FOR(pe_event(pe, event));
}

void pe_expect(pe_t *pe, uint32_t type, uint32_t pair, int32_t status)
{
    struct angara_event_record event;

    pe_event_wait(pe, &event);
    assert_int_equal(event.type, type);
    assert_int_equal(event.pair, pair);
    assert_int_equal(event.status, status);
}
