/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Atomics. The old value of a fetching operation lands in a bounce buffer and is copied out at its
 * marker.
 */
#include "verbs/ep.h"

_Static_assert(((int)ANGARA_ATOMIC_ADD == (int)UCT_ATOMIC_OP_ADD) &&
                   ((int)ANGARA_ATOMIC_AND == (int)UCT_ATOMIC_OP_AND) &&
                   ((int)ANGARA_ATOMIC_OR == (int)UCT_ATOMIC_OP_OR) &&
                   ((int)ANGARA_ATOMIC_XOR == (int)UCT_ATOMIC_OP_XOR) &&
                   ((int)ANGARA_ATOMIC_SWAP == (int)UCT_ATOMIC_OP_SWAP) &&
                   ((int)ANGARA_ATOMIC_CSWAP == (int)UCT_ATOMIC_OP_CSWAP),
               "the library numbers atomics as UCT does");

static void uct_angara_amo_done(uct_angara_port_t *port, uct_angara_op_t *op, ucs_status_t status)
{
    if (ucs_likely(status == UCS_OK)) {
        memcpy(op->fetch.result, op->bounce, op->fetch.length);
    }
    uct_angara_op_finish(port, op, status);
}

/* A NIC finds it out only at the far end, and what faults there ends the connection. */
#define UCT_ANGARA_CHECK_AMO_ALIGNMENT(_remote_addr, _width)                          \
    UCT_CHECK_PARAM(((_remote_addr) & ((_width)-1)) == 0,                             \
                    "atomic of %u bytes at the unaligned address 0x%" PRIx64, _width, \
                    _remote_addr)

/** Post what waits for the peer: osc/ucx has an atomic behind a put say that the put is done. */
static UCS_F_ALWAYS_INLINE ucs_status_t uct_angara_amo_push(uct_angara_peer_t *peer)
{
    return ucs_likely(!uct_angara_batch_is_of(&peer->ch.port->batch, &peer->ch)) ?
               UCS_OK :
               uct_angara_batch_push_of(&peer->ch);
}

/** Perform it now, on mapped memory that was used before. @return 0: it is to be posted. */
static UCS_F_ALWAYS_INLINE int uct_angara_amo_here(uct_angara_peer_t *peer, unsigned opcode,
                                                   unsigned width, uint64_t operand,
                                                   uint64_t compare, uint64_t remote_addr,
                                                   uct_rkey_t rkey, void *result)
{
    const uct_angara_rkey_t *key = (const uct_angara_rkey_t *)rkey;

    if (!angara_fast_atomic(peer->ch.ap, (angara_atomic_op_t)opcode, width, operand, compare,
                            key->key, remote_addr - key->base, result)) {
        return 0;
    }

    if (ANGARA_ATOMIC_IS_FENCE) {
        peer->ch.is_unfenced = 0;
    } else {
        uct_angara_channel_stored(&peer->ch);
    }
    return 1;
}

static ucs_status_t uct_angara_amo_post(uct_angara_peer_t *peer, unsigned opcode, unsigned width,
                                        uint64_t operand, uint64_t compare, uint64_t remote_addr,
                                        uct_rkey_t rkey, void *result)
{
    const uct_angara_rkey_t *key = (const uct_angara_rkey_t *)rkey;
    angara_status_t          status;

    status = angara_atomic(peer->ch.ap, (angara_atomic_op_t)opcode, width, operand, compare,
                           key->key, remote_addr - key->base,
                           (result == NULL) ? NULL : peer->ch.port->bounce.mr, result);
    if (ucs_unlikely(status < 0)) {
        return uct_angara_channel_error(&peer->ch, status, "atomic");
    }

    uct_angara_channel_posted(&peer->ch);
    ++peer->ch.stats.atomics;
    return UCS_OK;
}

static ucs_status_t uct_angara_amo(uct_ep_h tl_ep, unsigned opcode, unsigned width,
                                   uint64_t operand, uint64_t remote_addr, uct_rkey_t rkey)
{
    uct_angara_peer_t *peer = uct_angara_ep_peer(tl_ep);
    ucs_status_t       status;

    UCT_CHECK_PARAM(opcode <= UCT_ATOMIC_OP_XOR, "atomic operation %u cannot be posted", opcode);
    UCT_ANGARA_CHECK_AMO_ALIGNMENT(remote_addr, width);

    status = uct_angara_peer_check_rma(peer);
    if (ucs_likely(status == UCS_OK)) {
        status = uct_angara_amo_push(peer);
    }
    if (ucs_unlikely(status != UCS_OK)) {
        return status;
    }

    UCT_TL_EP_STAT_ATOMIC(&ucs_derived_of(tl_ep, uct_angara_ep_t)->super);
    if (uct_angara_amo_here(peer, opcode, width, operand, 0, remote_addr, rkey, NULL)) {
        return UCS_OK;
    }
    return uct_angara_amo_post(peer, opcode, width, operand, 0, remote_addr, rkey, NULL);
}

static ucs_status_t uct_angara_amo_fetch(uct_ep_h tl_ep, unsigned opcode, unsigned width,
                                         uint64_t operand, uint64_t compare, uint64_t remote_addr,
                                         uct_rkey_t rkey, void *result, uct_completion_t *comp)
{
    uct_angara_peer_t *peer = uct_angara_ep_peer(tl_ep);
    uct_angara_port_t *port = peer->ch.port;
    uct_angara_op_t   *op;
    ucs_status_t       status;
    uint64_t           value;

    UCT_CHECK_PARAM(opcode < UCT_ATOMIC_OP_LAST, "unknown atomic operation %u", opcode);
    UCT_ANGARA_CHECK_AMO_ALIGNMENT(remote_addr, width);

    status = uct_angara_peer_check_rma(peer);
    if (ucs_likely(status == UCS_OK)) {
        status = uct_angara_amo_push(peer);
    }
    if (ucs_unlikely(status != UCS_OK)) {
        return status;
    }

    if (uct_angara_amo_here(peer, opcode, width, operand, compare, remote_addr, rkey, result)) {
        UCT_TL_EP_STAT_ATOMIC(&ucs_derived_of(tl_ep, uct_angara_ep_t)->super);
        return UCS_OK;
    }

    status = uct_angara_bounce_op_get(peer, uct_angara_amo_done, comp, &op);
    if (ucs_unlikely(status != UCS_OK)) {
        return status;
    }

    op->fetch.result = result;
    op->fetch.length = width;
    status           = uct_angara_amo_post(peer, opcode, width, operand, compare, remote_addr, rkey,
                                           op->bounce);
    if (ucs_unlikely(status != UCS_OK)) {
        op->comp = NULL;
        uct_angara_op_finish(port, op, UCS_OK);
        return status;
    }

    UCT_TL_EP_STAT_ATOMIC(&ucs_derived_of(tl_ep, uct_angara_ep_t)->super);
    if (ucs_likely(uct_angara_channel_try_complete(&peer->ch, &value) == UCS_OK)) {
        angara_fast_copy(result, op->bounce, width);
        op->comp = NULL; /* told by the return value */
        uct_angara_op_finish(port, op, UCS_OK);
        return UCS_OK;
    }

    uct_angara_channel_enqueue(&peer->ch, op, value);
    return UCS_INPROGRESS;
}

ucs_status_t uct_angara_ep_atomic_cswap64(uct_ep_h tl_ep, uint64_t compare, uint64_t swap,
                                          uint64_t remote_addr, uct_rkey_t rkey, uint64_t *result,
                                          uct_completion_t *comp)
{
    return uct_angara_amo_fetch(tl_ep, UCT_ATOMIC_OP_CSWAP, 8, swap, compare, remote_addr, rkey,
                                result, comp);
}

ucs_status_t uct_angara_ep_atomic_cswap32(uct_ep_h tl_ep, uint32_t compare, uint32_t swap,
                                          uint64_t remote_addr, uct_rkey_t rkey, uint32_t *result,
                                          uct_completion_t *comp)
{
    return uct_angara_amo_fetch(tl_ep, UCT_ATOMIC_OP_CSWAP, 4, swap, compare, remote_addr, rkey,
                                result, comp);
}

ucs_status_t uct_angara_ep_atomic32_post(uct_ep_h tl_ep, unsigned opcode, uint32_t value,
                                         uint64_t remote_addr, uct_rkey_t rkey)
{
    return uct_angara_amo(tl_ep, opcode, 4, value, remote_addr, rkey);
}

ucs_status_t uct_angara_ep_atomic64_post(uct_ep_h tl_ep, unsigned opcode, uint64_t value,
                                         uint64_t remote_addr, uct_rkey_t rkey)
{
    return uct_angara_amo(tl_ep, opcode, 8, value, remote_addr, rkey);
}

ucs_status_t uct_angara_ep_atomic32_fetch(uct_ep_h tl_ep, unsigned opcode, uint32_t value,
                                          uint32_t *result, uint64_t remote_addr, uct_rkey_t rkey,
                                          uct_completion_t *comp)
{
    return uct_angara_amo_fetch(tl_ep, opcode, 4, value, 0, remote_addr, rkey, result, comp);
}

ucs_status_t uct_angara_ep_atomic64_fetch(uct_ep_h tl_ep, unsigned opcode, uint64_t value,
                                          uint64_t *result, uint64_t remote_addr, uct_rkey_t rkey,
                                          uct_completion_t *comp)
{
    return uct_angara_amo_fetch(tl_ep, opcode, 8, value, 0, remote_addr, rkey, result, comp);
}
