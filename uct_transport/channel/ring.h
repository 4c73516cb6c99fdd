/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receive rings: slot format, the sender's and the receiver's side of a ring, and the inline fast
 * paths of both. docs/protocols.md explains the format and why it is safe.
 *
 * A message is a contiguous run of slots. Its first 8 bytes are the header word, written last; the
 * payload follows. The receiver looks at nothing but the header word of the slot that comes next.
 */
#ifndef UCT_ANGARA_RING_H
#define UCT_ANGARA_RING_H

#include "base/compat.h"
#include "base/mutant.h"

#include <angara/angara_fast.h>

struct uct_angara_channel;
struct uct_angara_port;

/*
 * Header word. The sequence is the low bits of the absolute index of the slot, so that what an
 * earlier lap left at the place never looks valid.
 *
 *   bit 0      valid
 *   bits 1-5   active message id
 *   bits 6-7   kind
 *   bits 8-23  length: payload bytes, or slots to skip
 *   bits 24-63 sequence
 */
#define UCT_ANGARA_HDR_VALID     1ul
#define UCT_ANGARA_HDR_ID_SHIFT  1
#define UCT_ANGARA_HDR_ID_MASK   0x1ful
#define UCT_ANGARA_HDR_KIND      0xc0ul
#define UCT_ANGARA_HDR_LEN_SHIFT 8
#define UCT_ANGARA_HDR_LEN_MASK  0xfffful
#define UCT_ANGARA_HDR_SEQ_SHIFT 24
#define UCT_ANGARA_HDR_MATCH     ((~0ul << UCT_ANGARA_HDR_SEQ_SHIFT) | UCT_ANGARA_HDR_VALID)

/** Kinds of records. */
#define UCT_ANGARA_KIND_AM        0x00ul
#define UCT_ANGARA_KIND_PAD       0x40ul /**< skips the slots up to the end of the ring */

#define UCT_ANGARA_SLOT_SHIFT_MIN 6
#define UCT_ANGARA_SLOT_SHIFT_MAX 12
#define UCT_ANGARA_SLOTS_MIN      16u
#define UCT_ANGARA_SLOTS_MAX      32768u
#define UCT_ANGARA_NO_SEGS        15u      /**< segment shift: a run is one put */
#define UCT_ANGARA_RUN_MAX        0xfff8ul /**< what the length field can hold */

/**
 * Shape of a ring. The sender chooses how it writes, the receiver how many slots it spends; it
 * refuses what it can't take.
 */
typedef struct uct_angara_shape {
    uint32_t nslots;
    uint16_t run_slots;  /**< of the longest run: at most a quarter, so that pad and run fit */
    uint8_t  slot_shift; /**< log2 of bytes per slot */
    uint8_t  seg_shift;  /**< log2 of slots per put, UCT_ANGARA_NO_SEGS: a run is one put */
} uct_angara_shape_t;

/** Longest run that a ring of this many slots can take. */
static inline uint32_t uct_angara_run_slots_max(uint32_t nslots, unsigned slot_shift)
{
    return ucs_min(nslots / 4, (uint32_t)(UCT_ANGARA_RUN_MAX >> slot_shift));
}

/** Longest payload of a run. */
static inline size_t uct_angara_shape_run_bytes(const uct_angara_shape_t *shape)
{
    return ((size_t)shape->run_slots << shape->slot_shift) - sizeof(uint64_t);
}

/** Bytes of the slots. */
static inline size_t uct_angara_shape_slots_bytes(const uct_angara_shape_t *shape)
{
    return (size_t)shape->nslots << shape->slot_shift;
}

/** Bytes of the slots and of the segment flags behind them. */
static inline size_t uct_angara_shape_bytes(const uct_angara_shape_t *shape)
{
    return uct_angara_shape_slots_bytes(shape) +
           ((shape->seg_shift == UCT_ANGARA_NO_SEGS) ? 0 : shape->nslots * sizeof(uint64_t));
}

/** The sender's side. The first cache line is all that an eager send touches. */
typedef struct uct_angara_tx {
    uint64_t           head;      /**< absolute index of the next slot */
    uint64_t           limit;     /**< slots below it may be written; 0 while the peer is blocked */
    uint64_t           ring_off;  /**< the ring in the peer's window */
    uint64_t           ready_off; /**< its ready word there */
    uint64_t           msgs;      /**< records written */
    uint32_t           pos;       /**< slot number of head */
    uint16_t           ndirty;    /**< bits set in dirty */
    uint16_t           eager_max; /**< payload of one slot */
    uct_angara_shape_t shape;
    uint64_t           bytes; /**< counter: payload of messages */

    uint64_t           pads; /**< counters */
    uint64_t           sar;
    uint64_t           bcopy;
    uint64_t           zcopy;
    uint64_t           marked;     /**< head when the last marker was posted */
    uint64_t           confirmed;  /**< head when a flush last found the peer listening */
    uint64_t           credits;    /**< last credit value seen */
    volatile uint64_t *credit;     /**< credit line, written by the peer */
    uint64_t          *dirty;      /**< slots whose first word holds stale payload */
    uint32_t           last_run;   /**< slots of the last packed message: a guess at the next */
    int                ready_owed; /**< the ready word is still to be sent */
} uct_angara_tx_t;

/** The receiver's side. */
typedef struct uct_angara_rx {
    volatile uint64_t *next;         /**< header word of the next slot */
    uint64_t           expect;       /**< its valid bit and sequence */
    uint64_t           tail;         /**< slots consumed */
    uint64_t           credited;     /**< slots given back */
    uint32_t           credit_batch; /**< give back after so many */
    uint32_t           pos;          /**< slot number of tail */
    uint32_t           eager_max;
    uint16_t           index;    /**< of the ring and its ready word */
    uint16_t           msgs;     /**< records consumed */
    uint16_t          *consumed; /**< where msgs is kept for the scan of the ready array */
    char              *ring;

    uct_angara_shape_t shape;
    uint32_t           run_bytes;
    uint8_t            hot; /**< polled directly */
    uint8_t            open;
    uint64_t           credit_off;  /**< our credit line in the peer's window */
    uint64_t           last_active; /**< poll->ticks when last found busy */
    uint64_t           total;       /**< slots at the end, once the peer closes */
    uint64_t           am;          /**< counters */
    uint64_t           sar;
    uint64_t           bytes;
    int                credit_owed; /**< a credit is still to be sent */
} uct_angara_rx_t;

/** Sequence and valid bits of the slot of absolute index @a index. */
static UCS_F_ALWAYS_INLINE uint64_t uct_angara_hdr_seq(uint64_t index)
{
    return (index << UCT_ANGARA_HDR_SEQ_SHIFT) | UCT_ANGARA_HDR_VALID;
}

static UCS_F_ALWAYS_INLINE uint64_t uct_angara_hdr_am(uint64_t index, uint8_t id, size_t length)
{
    return uct_angara_hdr_seq(index) | ((uint64_t)id << UCT_ANGARA_HDR_ID_SHIFT) |
           ((uint64_t)length << UCT_ANGARA_HDR_LEN_SHIFT) | UCT_ANGARA_KIND_AM;
}

/** Active message id of a record. */
static UCS_F_ALWAYS_INLINE uint8_t uct_angara_hdr_id(uint64_t hdr)
{
    return (hdr >> UCT_ANGARA_HDR_ID_SHIFT) & UCT_ANGARA_HDR_ID_MASK;
}

/** Slots of a message of @a length payload bytes. */
static UCS_F_ALWAYS_INLINE uint32_t uct_angara_slots(const uct_angara_shape_t *shape, size_t length)
{
    return (uint32_t)((length + sizeof(uint64_t) + (1ul << shape->slot_shift) - 1) >>
                      shape->slot_shift);
}

/** Copy a small payload without a call. */
static UCS_F_ALWAYS_INLINE void uct_angara_copy_small(void *dst, const void *src, size_t length)
{
    typedef struct {
        uint64_t v[2];
    } UCS_S_PACKED uct_angara_pair_t;
    char          *d = dst;
    const char    *s = src;
    size_t         i;

    if (length >= sizeof(uct_angara_pair_t)) {
        for (i = 0; i + sizeof(uct_angara_pair_t) <= length; i += sizeof(uct_angara_pair_t)) {
            *(uct_angara_pair_t *)(d + i) = *(const uct_angara_pair_t *)(s + i);
        }
        i                             = length - sizeof(uct_angara_pair_t);
        *(uct_angara_pair_t *)(d + i) = *(const uct_angara_pair_t *)(s + i);
    } else if (length >= 8) {
        memcpy(d, s, 8);
        memcpy(d + length - 8, s + length - 8, 8);
    } else if (length >= 4) {
        memcpy(d, s, 4);
        memcpy(d + length - 4, s + length - 4, 4);
    } else {
        for (i = 0; i < length; ++i) {
            d[i] = s[i];
        }
    }
}

/** @return non-zero if a record has arrived. */
static UCS_F_ALWAYS_INLINE int uct_angara_rx_has_record(const uct_angara_rx_t *rx)
{
    return (*rx->next & UCT_ANGARA_HDR_MATCH) == rx->expect;
}

/** Prepare the sender's side for a granted ring of @a tx->shape. @return UCS_ERR_NO_MEMORY. */
ucs_status_t uct_angara_tx_open(uct_angara_tx_t *tx, uint64_t ring_off, uint64_t ready_off);
void         uct_angara_tx_close(uct_angara_tx_t *tx);

/**
 * Prepare the receiver's side; @a ring is zeroed, @a consumed is of the scan of the ready array.
 */
void uct_angara_rx_open(uct_angara_rx_t *rx, char *ring, const uct_angara_shape_t *shape,
                        uint16_t *consumed);

/**
 * Deliver what has arrived, at most @a max records.
 * @return number of records.
 */
unsigned uct_angara_rx_drain(struct uct_angara_port *port, uct_angara_rx_t *rx, unsigned max);

/** Give the consumed slots back now. */
void uct_angara_rx_return_credits(struct uct_angara_channel *ch);

/** Try again to send what uct_angara_tx_commit() could not: the ready word. */
void uct_angara_tx_retry_ready(struct uct_angara_channel *ch);

/**
 * @return UCS_OK if a run of @a slots may be written at the head, after a pad where needed. Else
 *         UCS_ERR_NO_RESOURCE, or what the owner's admit() says, or why the channel fails.
 */
ucs_status_t uct_angara_tx_reserve(struct uct_angara_channel *ch, uint32_t slots);

/** Where to write the payload of the next message. */
void *uct_angara_tx_buffer(struct uct_angara_channel *ch);

/**
 * Write the message whose payload lies at @a p (from uct_angara_tx_buffer(), after
 * uct_angara_tx_reserve()).
 */
ucs_status_t uct_angara_tx_commit(struct uct_angara_channel *ch, uint8_t id, const void *p,
                                  size_t length);

/** Sizes that am_bcopy needs: pack, then send. @return the length, or as uct_angara_tx_reserve().
 */
ssize_t uct_angara_tx_bcopy(struct uct_angara_channel *ch, uint8_t id, uct_pack_callback_t pack_cb,
                            void *arg);

#endif
