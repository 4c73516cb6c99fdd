/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The command ring and the put ring of a PE, and waiting for the device. See nic.h for what holds
 * of the indices and barrier.h for the fences. Writes the rings and the doorbell, reads the status.
 */
#include "nic.h"

#include "src/clock.h"
#include "src/log.h"

#include <sched.h>
#include <string.h>

_Static_assert(sizeof(struct angara_desc) == 128, "layout");
/* The library's descriptor is the NIC's up to here. */
_Static_assert(offsetof(struct angara_desc, pio_prod) == offsetof(ang_desc_t, data) &&
                   offsetof(struct angara_desc, operand) == offsetof(ang_desc_t, operand) &&
                   offsetof(struct angara_desc, signal_value) == offsetof(ang_desc_t, signal_value),
               "layout");
_Static_assert((int)ANGARA_OP_PUT == (int)ANG_OP_PUT &&
                   (int)ANGARA_OP_PUT_INLINE == (int)ANG_OP_PUT_INLINE &&
                   (int)ANGARA_OP_GET == (int)ANG_OP_GET &&
                   (int)ANGARA_OP_ATOMIC == (int)ANG_OP_ATOMIC &&
                   (int)ANGARA_OP_MARKER == (int)ANG_OP_MARKER &&
                   (int)ANGARA_OP_MARKER_SELF == (int)ANG_OP_MARKER_SELF,
               "operations");
_Static_assert(sizeof(struct angara_put) == ANGARA_PIO_GRANULE, "layout");
_Static_assert(offsetof(struct angara_put, data) + ANGARA_PIO_INLINE + 8 == ANGARA_PIO_GRANULE,
               "layout");

/* ---- waiting --------------------------------------------------------------------------------- */

/* Spin first; then give up the CPU now and then, as the device may be another process. */
angara_status_t nic_wait_turn(nic_pe_t *pe, nic_wait_t *wait)
{
    uint64_t now;

    if (++wait->turns % 256 != 0) {
        nic_relax();
        return ANGARA_OK;
    }
    if (!nic_pe_is_running(pe)) {
        nic_pe_die(pe);
        return ANGARA_ERR_PEER_DEAD;
    }
    now = ang_clock_ns(CLOCK_MONOTONIC);
    if (wait->deadline == 0) {
        wait->deadline = now + NIC_BOUND_NS;
    } else if (now > wait->deadline) {
        ang_error("the NIC doesn't answer: PE %u waited for %llu s; dmesg may have why",
                  pe->base.address.index, NIC_BOUND_NS / 1000000000ull);
        return ANGARA_ERR_UNREACHABLE;
    }
    sched_yield();
    return ANGARA_OK;
}

/* A ring is full: is there anybody to empty it? */
static angara_status_t full(nic_pe_t *pe)
{
    if (NIC_LIKELY(nic_pe_is_running(pe))) {
        return ANGARA_ERR_NO_RESOURCE;
    }
    nic_pe_die(pe);
    return ANGARA_ERR_PEER_DEAD;
}

/* ---- the command ring ------------------------------------------------------------------------ */

angara_status_t nic_cmd_room(nic_pe_t *pe, uint32_t count)
{
    uint32_t entries = pe->cmd_mask + 1;

    if (NIC_LIKELY(pe->cmd_prod - pe->cmd_cons + count <= entries)) {
        return ANGARA_OK;
    }
    /* Acquire: the NIC has copied the descriptors before it said so; we may write over them. */
    pe->cmd_cons = nic_load(&pe->status->cmd_cons);
    if (pe->cmd_prod - pe->cmd_cons + count <= entries) {
        return ANGARA_OK;
    }
    return full(pe);
}

void nic_cmd_write(nic_pe_t *pe, uint32_t ahead, const ang_desc_t *desc, const void *data)
{
    struct angara_desc *to = &pe->cmd[(pe->cmd_prod + ahead) & pe->cmd_mask];

    memcpy(to, desc, offsetof(struct angara_desc, pio_prod));
    to->pio_prod = pe->pio_prod;
    if (data != NULL) {
        memcpy(to->data, data, desc->length);
    }
}

void nic_cmd_ring(nic_pe_t *pe, uint32_t count)
{
    pe->cmd_prod += count;
    nic_fence_memory();
    nic_store(&pe->doorbell->cmd_prod, pe->cmd_prod);
}

angara_status_t nic_cmd_post(nic_pe_t *pe, const ang_desc_t *desc, const void *data)
{
    angara_status_t status = nic_cmd_room(pe, 1);

    if (NIC_LIKELY(status == ANGARA_OK)) {
        nic_cmd_write(pe, 0, desc, data);
        nic_cmd_ring(pe, 1);
    }
    return status;
}

angara_status_t nic_cmd_post_patient(nic_pe_t *pe, const ang_desc_t *desc)
{
    nic_wait_t      wait = {0};
    angara_status_t status;

    while ((status = nic_cmd_post(pe, desc, NULL)) == ANGARA_ERR_NO_RESOURCE) {
        status = nic_wait_turn(pe, &wait);
        if (status != ANGARA_OK) {
            return status;
        }
    }
    return status;
}

angara_status_t nic_cmd_wait(nic_pe_t *pe)
{
    angara_status_t status = ANGARA_OK;
    nic_wait_t      wait   = {0};

    while (status == ANGARA_OK && nic_load(&pe->status->cmd_cons) != pe->cmd_prod) {
        status = nic_wait_turn(pe, &wait);
    }
    return status;
}

/* ---- the put ring ---------------------------------------------------------------------------- */

static angara_status_t put_room(nic_pe_t *pe, uint32_t granules)
{
    if (NIC_LIKELY((uint32_t)pe->pio_prod - pe->pio_cons + granules <= pe->pio_granules)) {
        return ANGARA_OK;
    }
    /* Acquire: the NIC has cleared the granules before it said that it took them. */
    pe->pio_cons = nic_load(&pe->status->pio_cons);
    if ((uint32_t)pe->pio_prod - pe->pio_cons + granules <= pe->pio_granules) {
        return ANGARA_OK;
    }
    return full(pe);
}

/* Write one put, `more` bytes of it behind the head. */
static void write_granules(nic_pe_t *pe, const struct angara_put *head, const void *src,
                           size_t more, uint32_t granules)
{
    uint32_t  slot  = (uint32_t)(pe->pio_prod & (pe->pio_granules - 1));
    char     *to    = pe->pio + (size_t)slot * ANGARA_PIO_GRANULE;
    uint32_t *valid = (uint32_t *)(void *)to;

    memcpy(to + sizeof(head->valid), (const char *)head + sizeof(head->valid),
           sizeof(*head) - sizeof(head->valid));
    if (more != 0) {
        memcpy(to + sizeof(*head), src, more);
    }
    nic_fence_combining();
    nic_store(valid, (uint32_t)pe->pio_prod + 1);
    nic_fence_combining(); /* don't let it lie in a buffer */
    pe->pio_prod += granules;
}

angara_status_t nic_put_write(nic_pe_t *pe, const struct angara_put *model, const void *src,
                              size_t length)
{
    struct angara_put head   = *model;
    size_t            inside = length < sizeof(head.data) ? length : sizeof(head.data);
    size_t            more   = length - inside;
    uint32_t        granules = 1 + (uint32_t)((more + ANGARA_PIO_GRANULE - 1) / ANGARA_PIO_GRANULE);
    uint32_t        left     = pe->pio_granules - (uint32_t)(pe->pio_prod & (pe->pio_granules - 1));
    angara_status_t status;

    if (NIC_UNLIKELY(granules > left)) {
        struct angara_put pad = {.op = ANGARA_PIO_PAD};

        /* If then there is no room for the put itself, the pad is there for the next try. */
        status = put_room(pe, left);
        if (status != ANGARA_OK) {
            return status;
        }
        write_granules(pe, &pad, NULL, 0, left);
    }
    status = put_room(pe, granules);
    if (NIC_UNLIKELY(status != ANGARA_OK)) {
        return status;
    }
    head.length = (uint16_t)length;
    if (inside != 0) {
        memcpy(head.data, src, inside);
    }
    write_granules(pe, &head, (const char *)src + inside, more, granules);
    return ANGARA_OK;
}
