/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * PEs: contexts, doorbells, status pages, windows. See emu.h. The doorbell page is in the BAR and
 * the status page in guest memory; the PE's owner may change both at any time. The status is only
 * written.
 */
#include "emu.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(struct angara_desc) == 128, "layout");
_Static_assert(sizeof(struct angara_event_record) == 128, "layout");
_Static_assert(sizeof(struct angara_put) == ANGARA_PIO_GRANULE, "layout");
_Static_assert(sizeof(struct angara_doorbell) == 256, "layout");
_Static_assert(sizeof(struct angara_status) == 448, "layout");

struct angara_doorbell *emu_pe_doorbell(emu_pe_t *pe)
{
    return (void *)(pe->node->bar + pe->node->doorbell_offset + (size_t)pe->index * EMU_PAGE);
}

/* ---- life ------------------------------------------------------------------------------------ */

static int is_ring(uint32_t entries)
{
    return entries != 0 && entries <= EMU_RING_MAX && (entries & (entries - 1)) == 0;
}

/* Words of the upper level of its window table. */
static uint32_t window_leaves(const struct angara_hw_pe *hw)
{
    return (hw->window_pages + ANGARA_HW_WINDOW_FANOUT - 1) / ANGARA_HW_WINDOW_FANOUT;
}

static uint32_t check(emu_node_t *node, const struct angara_hw_pe *hw)
{
    const struct {
        uint64_t bus, size;
    } parts[] = {
        {hw->cmd, (uint64_t)hw->cmd_entries * sizeof(struct angara_desc)},
        {hw->event, (uint64_t)hw->event_entries * sizeof(struct angara_event_record)},
        {hw->status, sizeof(struct angara_status)},
        {hw->marker, (uint64_t)hw->marker_slots * sizeof(uint64_t)},
        {hw->window, (uint64_t)window_leaves(hw) * sizeof(uint64_t)},
    };

    if (hw->generation == 0 || hw->job_key == 0 || hw->vector >= node->emu->config.vectors ||
        !is_ring(hw->cmd_entries) || !is_ring(hw->event_entries) || hw->marker_slots == 0 ||
        hw->marker_slots > node->emu->config.marker_slots || hw->window_pages > EMU_WINDOW_MAX) {
        return ANGARA_HW_EINVAL;
    }
    for (unsigned i = 0; i < sizeof(parts) / sizeof(parts[0]); ++i) {
        if (parts[i].bus % 64 != 0) {
            return ANGARA_HW_EINVAL;
        }
        if (parts[i].size != 0 && emu_bus(node, parts[i].bus, parts[i].size) == NULL) {
            return ANGARA_HW_EFAULT;
        }
    }
    return ANGARA_HW_OK;
}

/* What an earlier PE of this number left in the BAR could be taken for the new one's. */
static void clear_bar(emu_pe_t *pe)
{
    uint32_t bytes = pe->node->emu->config.pio_bytes;

    memset(emu_pe_doorbell(pe), 0, EMU_PAGE);
    memset(pe->node->bar + pe->node->pio_offset + (size_t)pe->index * bytes, 0, bytes);
}

static void free_parts(emu_pe_t *pe)
{
    free(pe->pairs);
    free(pe->window_cache);
    free(pe->put);
    *pe = (emu_pe_t){.node = pe->node, .index = pe->index, .state = EMU_PE_FREE};
}

uint32_t emu_pe_create(emu_node_t *node, const struct angara_hw_pe *hw)
{
    const emu_config_t *config = &node->emu->config;
    emu_pe_t           *pe;
    uint32_t            status;

    if (hw->index >= config->pe_max) {
        return ANGARA_HW_EINVAL;
    }
    pe = &node->pes[hw->index];
    if (pe->state != EMU_PE_FREE) {
        return ANGARA_HW_EBUSY;
    }
    status = check(node, hw);
    if (status != ANGARA_HW_OK) {
        return status;
    }
    pe->hw           = *hw;
    pe->pairs        = calloc(ANGARA_PAIRS_MAX, sizeof(emu_pair_t *));
    pe->window_cache = calloc((size_t)hw->window_pages + 1, sizeof(*pe->window_cache));
    pe->put          = malloc(EMU_PUT_MAX);
    if (pe->pairs == NULL || pe->window_cache == NULL || pe->put == NULL ||
        ang_engine_init(&pe->engine, &emu_backend, pe, EMU_PENDING_MAX, EMU_TURN_BYTES,
                        config->chaos != 0 ? config->chaos + hw->index : 0,
                        config->chaos_delay_us) != ANGARA_OK) {
        free_parts(pe);
        return ANGARA_HW_EBUSY;
    }
    clear_bar(pe);
    pe->state = ANGARA_PE_RUNNING;
    pe->dirty = 1;
    node->emu->num_pes++;
    emu_pe_status(pe);
    return ANGARA_HW_OK;
}

void emu_pe_destroy(emu_pe_t *pe, angara_status_t status)
{
    emu_t *emu = pe->node->emu;

    pe->state = ANGARA_PE_GONE;
    pe->dirty = 1;
    emu_pe_status(pe);
    emu_pairs_free(pe);
    ang_engine_cleanup(&pe->engine);
    free_parts(pe);
    emu->num_pes--;
    emu_pairs_check(emu, status);
}

void emu_pe_fail(emu_pe_t *pe, const char *why)
{
    if (pe->state == ANGARA_PE_RUNNING) {
        emu_say("node %u: PE %u failed: %s", pe->node->id, pe->index, why);
        emu_log(pe->node, 'X', (int)pe->index, NULL, 0, "%s", why);
        pe->state = ANGARA_PE_FAILED;
        pe->dirty = 1;
        emu_event_wake(pe);
    }
}

emu_pe_t *emu_pe_find(const emu_pair_t *pair)
{
    emu_t    *emu = pair->pe->node->emu;
    emu_pe_t *pe;

    if (pair->node >= emu->num_nodes || pair->target >= emu->config.pe_max) {
        return NULL;
    }
    pe = &emu->nodes[pair->node].pes[pair->target];
    if (pe->state != ANGARA_PE_RUNNING && pe->state != ANGARA_PE_FAILED) {
        return NULL;
    }
    if (pe->hw.job_key != pair->pe->hw.job_key) {
        pe->node->key_mismatches++; /* told by node.c, later: nobody can see when */
        return NULL;
    }
    return pe->hw.generation == pair->generation ? pe : NULL;
}

void emu_pe_slow(emu_pe_t *pe)
{
    uint64_t now = pe->node->emu->now;

    pe->guess_until = (pe->guess_until > now ? pe->guess_until : now) + EMU_GUESS_NS;
}

/* ---- one turn -------------------------------------------------------------------------------- */

/* @return 0 if the owner wrote nonsense. */
static int read_doorbell(emu_pe_t *pe, uint32_t *prod)
{
    struct angara_doorbell *doorbell = emu_pe_doorbell(pe);
    uint32_t                arm      = __atomic_load_n(&doorbell->arm, __ATOMIC_ACQUIRE);

    *prod = __atomic_load_n(&doorbell->cmd_prod, __ATOMIC_ACQUIRE);
    if (!emu_event_consume(pe)) {
        return 0;
    }
    if (*prod - pe->cmd_cons > pe->hw.cmd_entries) {
        emu_pe_fail(pe, "doorbell: cmd_prod is more than the ring ahead");
        return 0;
    }
    if (arm != pe->arm_seen) {
        pe->arm_seen = pe->armed = arm;
        pe->dirty                = 1;
    }
    return 1;
}

/* Control's delay: work that is seen is held for so long. */
static int delayed(emu_pe_t *pe, uint32_t prod)
{
    emu_t   *emu     = pe->node->emu;
    uint32_t granule = (uint32_t)pe->pio_cons % (emu->config.pio_bytes / ANGARA_PIO_GRANULE);
    uint32_t valid;

    memcpy(&valid,
           pe->node->bar + pe->node->pio_offset + (size_t)pe->index * emu->config.pio_bytes +
               granule * ANGARA_PIO_GRANULE,
           sizeof(valid));
    if (prod == pe->cmd_cons && valid != (uint32_t)pe->pio_cons + 1) {
        pe->delay_until = 0;
        return 0;
    }
    if (pe->delay_until == 0) {
        pe->delay_until = emu->now + pe->node->trouble.delay_ns;
    }
    emu->busy = 1;
    if (emu->now < pe->delay_until) {
        return 1;
    }
    pe->delay_until = 0;
    return 0;
}

static void drop_queues(emu_pe_t *pe)
{
    if (!pe->dropped) {
        for (uint32_t i = 0; i < ANGARA_PAIRS_MAX; ++i) {
            if (pe->pairs[i] != NULL) {
                ang_engine_pair_reset(&pe->pairs[i]->base, ANGARA_ERR_PAIR);
            }
        }
        pe->dropped = 1;
    }
}

void emu_pe_budget(emu_pe_t *pe)
{
    uint64_t moved = pe->engine.stats.bytes - pe->moved;

    pe->engine.turn_bytes = moved < EMU_TURN_BYTES ? EMU_TURN_BYTES - moved : 0;
}

unsigned emu_pe_turn(emu_pe_t *pe)
{
    unsigned work = 0;
    uint32_t prod;

    pe->moved             = pe->engine.stats.bytes;
    pe->engine.turn_bytes = EMU_TURN_BYTES;
    if (pe->state == ANGARA_PE_RUNNING && read_doorbell(pe, &prod)) {
        work = ang_engine_progress(&pe->engine);
        if (pe->node->trouble.delay_ns == 0 || !delayed(pe, prod)) {
            work += emu_put_turn(pe);
            if (pe->state == ANGARA_PE_RUNNING) {
                work += emu_cmd_turn(pe, prod);
            }
        }
        pe->node->emu->busy |= pe->engine.pending != 0;
    }
    if (pe->state == ANGARA_PE_FAILED) {
        drop_queues(pe);
    }
    emu_pe_status(pe);
    return work;
}

/* ---- what the owner sees --------------------------------------------------------------------- */

static void store(__u32 *word, uint32_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static void count(emu_pe_t *pe)
{
    const ang_engine_stats_t *stats = &pe->engine.stats;
    uint64_t                  all   = stats->puts + stats->gets + stats->atomics + stats->markers;

    pe->dirty |= all != pe->counted;
    pe->counted = all;

    pe->counters[ANGARA_CNT_OFF_PUTS]  = stats->puts;
    pe->counters[ANGARA_CNT_OFF_GETS]  = stats->gets;
    pe->counters[ANGARA_CNT_OFF_BYTES] = stats->bytes;
    pe->counters[ANGARA_CNT_ATOMICS]   = stats->atomics;
    pe->counters[ANGARA_CNT_MARKERS]   = stats->markers;
    pe->counters[ANGARA_CNT_LOST]      = pe->event_lost;
}

void emu_pe_status(emu_pe_t *pe)
{
    struct angara_status *status;

    count(pe);
    if (!pe->dirty) {
        return;
    }
    status = emu_bus(pe->node, pe->hw.status, sizeof(*status));
    if (status == NULL) { /* DMA is off: told later */
        return;
    }
    for (unsigned i = 0; i < 32; ++i) {
        __atomic_store_n(&status->counters[i], pe->counters[i], __ATOMIC_RELAXED);
    }
    store(&status->cmd_cons, pe->cmd_cons);
    store(&status->event_prod, pe->event_prod);
    store(&status->event_lost, pe->event_lost);
    store(&status->pio_cons, (uint32_t)pe->pio_cons);
    store((__u32 *)&status->notify_status, (uint32_t)pe->notify_status);
    store(&status->notify_token, pe->notify_token); /* after its outcome */
    store(&status->link, (uint32_t)pe->node->link);
    store(&status->armed, pe->armed);
    store(&status->arm_ack, pe->arm_seen);
    store(&status->state, (uint32_t)pe->state);
    pe->dirty = 0;
}

/* ---- the put window -------------------------------------------------------------------------- */

#define WINDOW_ABSENT 1u
#define WINDOW_VALID  1u /* low bit of the table's words */

/* @return a word of the window table, WINDOW_ABSENT if it isn't valid, 0 if it isn't in memory */
static uint64_t window_word(emu_pe_t *pe, uint64_t bus)
{
    uint64_t word;

    if (!emu_read(pe->node, &word, bus, sizeof(word))) {
        return 0;
    }
    emu_log(pe->node, 'W', (int)pe->index, &word, sizeof(word), "%llu", (unsigned long long)bus);
    return (word & (EMU_PAGE - 1)) == WINDOW_VALID ? word : WINDOW_ABSENT;
}

static uint64_t window_lookup(emu_pe_t *pe, uint64_t page)
{
    uint64_t leaf = window_word(pe, pe->hw.window + page / ANGARA_HW_WINDOW_FANOUT * sizeof(leaf));

    if (leaf == 0 || leaf == WINDOW_ABSENT) {
        return leaf;
    }
    return window_word(pe, (leaf & ~(uint64_t)(EMU_PAGE - 1)) +
                               page % ANGARA_HW_WINDOW_FANOUT * sizeof(leaf));
}

/* A page that wasn't there stays absent until WINDOW_SYNC, one that was there until PE_RESET. */
void *emu_pe_window(emu_pe_t *pe, uint64_t offset, uint64_t *length)
{
    uint64_t page = offset / EMU_PAGE;
    uint64_t word;

    if (page >= pe->hw.window_pages) {
        return NULL;
    }
    word = pe->window_cache[page];
    if (word == 0) {
        word                   = window_lookup(pe, page);
        pe->window_cache[page] = word;
    }
    if (word == 0 || word == WINDOW_ABSENT) {
        return NULL;
    }
    if (*length > EMU_PAGE - offset % EMU_PAGE) {
        *length = EMU_PAGE - offset % EMU_PAGE;
    }
    return emu_bus(pe->node, (word & ~(uint64_t)(EMU_PAGE - 1)) + offset % EMU_PAGE, *length);
}
