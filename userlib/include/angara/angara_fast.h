/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Inline fast paths of libangara: window puts, short puts, gets and atomics of mapped regions, and
 * where longer ones are to be written or read, without a call, bound to the provider when the peer
 * is connected or the region was used first.
 *
 * A window put is written in place:
 *
 *     void *p = angara_put_begin(peer, offset, length, scratch);
 *     ... write at most length bytes to p, in any order ...
 *     status  = angara_put_commit(peer, p, offset, length, flag_offset, flag);
 *
 * p points into the peer's window where it can be written by CPU stores, and to the caller's
 * scratch memory where it can't (chaos mode, a NIC without a mapped window); then commit sends
 * the scratch bytes. Only bytes written through p count, and only commit makes them visible: the
 * 8-byte flag word lands after them. If commit isn't called, the bytes may or may not have landed,
 * so write only where the peer doesn't look before the flag.
 */
#ifndef ANGARA_FAST_H
#define ANGARA_FAST_H

#include <angara/angara.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ANGARA_LIKELY(_x)   __builtin_expect(!!(_x), 1)
#define ANGARA_UNLIKELY(_x) __builtin_expect(!!(_x), 0)

/* A cast from a void pointer, or of a number: without a warning in C++, too. */
#ifdef __cplusplus
#define ANGARA_CAST(_type, _value) static_cast<_type>(_value)
#define ANGARA_ADDRESS(_pointer)   reinterpret_cast<uintptr_t>(_pointer)
#else
#define ANGARA_CAST(_type, _value) ((_type)(_value))
#define ANGARA_ADDRESS(_pointer)   ((uintptr_t)(_pointer))
#endif

/** What a mapped region is touched for. */
enum angara_fast_right {
    ANGARA_FAST_READ,
    ANGARA_FAST_WRITE,
    ANGARA_FAST_ATOMIC,
    ANGARA_FAST_RIGHTS
};

/** A region of a peer's that is mapped into this process. */
struct angara_fast_map {
    uint64_t                 rkey;                       /**< 0: none */
    const volatile uint64_t *there;                      /**< holds rkey while it is registered */
    char                    *base;                       /**< of the region */
    uint64_t                 length[ANGARA_FAST_RIGHTS]; /**< bytes; 0: there is no such right */
    uint64_t                 words[ANGARA_FAST_ATOMIC];  /**< offsets at which 8 bytes may begin */
};

/** What was done on mapped memory, within calls and inline. */
struct angara_fast_counts {
    uint64_t puts, gets, atomics;
    uint64_t put_bytes, get_bytes;
};

#define ANGARA_FAST_MAPS  4    /**< a region's place is rkey % this */
#define ANGARA_FAST_MAX   256  /**< bytes of a short operation */
#define ANGARA_FAST_SHIFT 51   /**< where angara_peer_fast.since counts operations, */
#define ANGARA_FAST_TURN  4096 /**<   and how many set its highest bit: the next one is a call */

/**
 * Start of every provider's peer object. Read-only for users of the library, but for what the
 * functions below count. It is compiled into them: ANGARA_FAST_VERSION goes up with every change
 * here, and angara_open() compares.
 */
struct angara_peer_fast {
    char                    *window;      /**< window for plain stores; NULL: by call only */
    uint64_t                 window_size; /**< bytes, for bounds checks */
    const volatile uint32_t *armed;       /**< non-zero: the peer may sleep, wake it after a flag */
    uint32_t                 fence;       /**< full fence needed before *armed is read */

    /* for mapped regions */
    uint32_t                 generation;   /**< of the peer's PE */
    const volatile uint32_t *generation_p; /**< holds it while the PE is open and nothing is held */
    const volatile uint64_t *queued;       /**< non-zero: operations of the PE are queued */
    uint64_t since[ANGARA_FAST_RIGHTS]; /**< done inline since a call took note of it: operations,
                                             shifted by ANGARA_FAST_SHIFT, plus bytes */
    struct angara_fast_counts before;   /**< what was done before that */
    struct angara_fast_map    maps[ANGARA_FAST_MAPS];
};

/** The same of a local PE. */
struct angara_pe_fast {
    const volatile uint32_t *asked;   /**< non-zero: peers wait for this process's progress */
    const volatile uint64_t *watched; /**< so does one that writes here: ANGARA_FAST_ASKS, */
    const volatile uint64_t *front;   /**< or here */
};

#define ANGARA_FAST_PHASE 7u /**< bits of that word, */
#define ANGARA_FAST_ASKS  1u /**< and their value */

/**
 * Fence between a word of the own window or a marker slot, which has been read, and what came in
 * front of it: what a NIC stored first is seen first. x86-64 loads in order; on arm64 a
 * load-acquire orders against other CPUs, not against a device.
 */
static inline void angara_fence_landed(void)
{
#if defined(__aarch64__)
    __asm__ volatile("dmb oshld" ::: "memory");
#else
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
#endif
}

static inline const struct angara_peer_fast *angara_peer_fast(angara_peer_h peer)
{
    const void *start = peer;

    return ANGARA_CAST(const struct angara_peer_fast *, start);
}

static inline const struct angara_pe_fast *angara_pe_fast(angara_pe_h pe)
{
    const void *start = pe;

    return ANGARA_CAST(const struct angara_pe_fast *, start);
}

/** What was done on the peer's mapped memory. */
static inline struct angara_fast_counts angara_fast_done(angara_peer_h peer)
{
    const struct angara_peer_fast *fast  = angara_peer_fast(peer);
    const uint64_t                *since = fast->since;
    struct angara_fast_counts      done  = fast->before;
    const uint64_t                 bytes = (UINT64_C(1) << ANGARA_FAST_SHIFT) - 1;

    done.gets += since[ANGARA_FAST_READ] >> ANGARA_FAST_SHIFT;
    done.puts += since[ANGARA_FAST_WRITE] >> ANGARA_FAST_SHIFT;
    done.atomics += since[ANGARA_FAST_ATOMIC] >> ANGARA_FAST_SHIFT;
    done.get_bytes += since[ANGARA_FAST_READ] & bytes;
    done.put_bytes += since[ANGARA_FAST_WRITE] & bytes;
    return done;
}

/** Is the next one of a kind to be a call? */
static inline int angara_fast_is_turn(angara_peer_h peer, enum angara_fast_right right)
{
    return ANGARA_CAST(int64_t, angara_peer_fast(peer)->since[right]) < 0;
}

/** Count one of @a bytes. */
static inline void angara_fast_count(angara_peer_h peer, enum angara_fast_right right,
                                     uint64_t bytes)
{
    void *start = peer;

    ANGARA_CAST(struct angara_peer_fast *, start)->since[right] +=
        (UINT64_C(1) << ANGARA_FAST_SHIFT) + bytes;
}

/**
 * Does a peer ask this process to perform something? A poll loop that doesn't call
 * angara_pe_progress() in each turn calls it then: whoever is answered within microseconds wakes
 * nobody. Costs three loads.
 */
static inline int angara_pe_is_asked(angara_pe_h pe)
{
    const struct angara_pe_fast *fast = angara_pe_fast(pe);

    return *fast->asked != 0 || (*fast->watched & ANGARA_FAST_PHASE) == ANGARA_FAST_ASKS ||
           (*fast->front & ANGARA_FAST_PHASE) == ANGARA_FAST_ASKS;
}

/**
 * Start a flagged put of at most @a length bytes at @a offset. The caller has checked that the
 * range is within what the peer granted.
 */
static inline void *angara_put_begin(angara_peer_h peer, uint64_t offset, size_t length,
                                     void *scratch)
{
    const struct angara_peer_fast *fast = angara_peer_fast(peer);

    (void)length;
    return ANGARA_LIKELY(fast->window != NULL) ? fast->window + offset :
                                                 ANGARA_CAST(char *, scratch);
}

/**
 * Finish the put begun at @a p: @a length bytes, then the flag word. Parameters and errors as
 * angara_put_flag(). Doesn't wake a sleeping peer: see angara_wake_if_armed().
 */
static inline angara_status_t angara_put_commit(angara_peer_h peer, const void *p, uint64_t offset,
                                                size_t length, uint64_t flag_offset, uint64_t flag)
{
    const struct angara_peer_fast *fast = angara_peer_fast(peer);

    if (ANGARA_LIKELY(fast->window != NULL)) {
        void *word = fast->window + flag_offset;

        __atomic_store_n(ANGARA_CAST(uint64_t *, word), flag, __ATOMIC_RELEASE);
        return ANGARA_OK;
    }
    return angara_put_flag(peer, offset, p, length, flag_offset, flag);
}

/**
 * Put one naturally aligned word of 1, 2, 4 or 8 bytes: credits, ready counters. Ordered only
 * against other writes of the same 8-byte word.
 */
static inline angara_status_t angara_put_u16(angara_peer_h peer, uint64_t offset, uint16_t value)
{
    const struct angara_peer_fast *fast = angara_peer_fast(peer);

    if (ANGARA_LIKELY(fast->window != NULL)) {
        void *word = fast->window + offset;

        __atomic_store_n(ANGARA_CAST(uint16_t *, word), value, __ATOMIC_RELEASE);
        return ANGARA_OK;
    }
    return angara_put(peer, offset, &value, sizeof(value));
}

/** As angara_put_u16(), 8 bytes. */
static inline angara_status_t angara_put_u64(angara_peer_h peer, uint64_t offset, uint64_t value)
{
    const struct angara_peer_fast *fast = angara_peer_fast(peer);

    if (ANGARA_LIKELY(fast->window != NULL)) {
        void *word = fast->window + offset;

        __atomic_store_n(ANGARA_CAST(uint64_t *, word), value, __ATOMIC_RELEASE);
        return ANGARA_OK;
    }
    return angara_put(peer, offset, &value, sizeof(value));
}

/** To be called after a flagged put that the peer should notice even when asleep. */
static inline void angara_wake_if_armed(angara_peer_h peer)
{
    const struct angara_peer_fast *fast = angara_peer_fast(peer);

    if (ANGARA_UNLIKELY(fast->fence)) {
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
    } else {
        __atomic_signal_fence(__ATOMIC_SEQ_CST); /* the peer's membarrier does the rest */
    }
    if (ANGARA_UNLIKELY(*fast->armed != 0)) {
        angara_wake(peer);
    }
}

/**
 * Does something wait in a queue of the PE's? Then angara_mapped_put(), _get(), _atomic() and
 * angara_asked_get() return 0.
 */
static inline int angara_fast_is_queued(angara_peer_h peer)
{
    return __atomic_load_n(angara_peer_fast(peer)->queued, __ATOMIC_ACQUIRE) != 0;
}

/** Is the range of the region, and may be touched for that? A word has one comparison. */
static inline int angara_fast_is_within(const struct angara_fast_map *map, uint64_t roffset,
                                        uint64_t length, enum angara_fast_right right)
{
    if (length == 8 && right < ANGARA_FAST_ATOMIC) {
        return roffset < map->words[right];
    }
    return roffset <= map->length[right] && length - 1 < map->length[right] - roffset;
}

/**
 * Where a short operation may touch a peer's memory now, as this CPU touches its own. Only if no
 * operation waits in front of it; and a region that wasn't used by a call before isn't known here.
 * Valid for one operation: ask again for the next.
 * @return NULL: not this way; always if @a length is 0.
 */
static inline char *angara_fast_reach(angara_peer_h peer, uint64_t rkey, uint64_t roffset,
                                      uint64_t length, enum angara_fast_right right)
{
    const struct angara_peer_fast *fast = angara_peer_fast(peer);
    const struct angara_fast_map  *map  = &fast->maps[rkey % ANGARA_FAST_MAPS];

    /* First: while something is queued, another thread may change the maps. */
    if (ANGARA_UNLIKELY(angara_fast_is_queued(peer) || *fast->generation_p != fast->generation ||
                        map->rkey != rkey || !angara_fast_is_within(map, roffset, length, right) ||
                        __atomic_load_n(map->there, __ATOMIC_ACQUIRE) != rkey ||
                        angara_fast_is_turn(peer, right))) {
        return NULL;
    }
    return map->base + roffset;
}

/* Words of any alignment. */
typedef uint32_t angara_u32_t __attribute__((may_alias, aligned(1)));
typedef uint64_t angara_u64_t __attribute__((may_alias, aligned(1)));

/** Copy as the library does: words of 4 and 8 bytes at once where they are aligned. */
static inline void angara_fast_copy(void *dst, const void *src, size_t length)
{
    if (ANGARA_LIKELY(length == 8)) {
        *ANGARA_CAST(volatile angara_u64_t *, dst) = *ANGARA_CAST(const volatile angara_u64_t *,
                                                                  src);
    } else if (length == 4) {
        *ANGARA_CAST(volatile angara_u32_t *, dst) = *ANGARA_CAST(const volatile angara_u32_t *,
                                                                  src);
    } else {
        memmove(dst, src, length);
    }
}

/**
 * Where a put of at most @a room bytes may be written now, by plain stores, for who knows only
 * afterwards how many they are. angara_fast_put_end() ends it, before any other call for a peer of
 * this PE. What comes behind it needs a full fence, as behind angara_mapped_put().
 * @return NULL: post it, or try angara_mapped_put(); always if @a room is 0.
 */
static inline char *angara_fast_put_begin(angara_peer_h peer, uint64_t rkey, uint64_t roffset,
                                          uint64_t room)
{
    return angara_fast_reach(peer, rkey, roffset, room, ANGARA_FAST_WRITE);
}

/** End of a put that angara_fast_put_begin() has begun: at least 1 byte was written. */
static inline void angara_fast_put_end(angara_peer_h peer, uint64_t length)
{
    angara_fast_count(peer, ANGARA_FAST_WRITE, length);
}

/**
 * Where a get of @a length bytes may be read now, by plain loads, until angara_fast_get_end(). It
 * is counted, whether it is read or not.
 * @return NULL: post it, or try angara_mapped_get(); always if @a length is 0.
 */
static inline const char *angara_fast_get_begin(angara_peer_h peer, uint64_t rkey, uint64_t roffset,
                                                uint64_t length)
{
    const char *there = angara_fast_reach(peer, rkey, roffset, length, ANGARA_FAST_READ);

    if (ANGARA_LIKELY(there != NULL)) {
        angara_fast_count(peer, ANGARA_FAST_READ, length);
    }
    return there;
}

/** End of a get that angara_fast_get_begin() has begun: its bytes have been read. */
static inline void angara_fast_get_end(void)
{
    __atomic_thread_fence(__ATOMIC_ACQUIRE); /* what follows reads later */
}

/** As angara_mapped_put(), of at most ANGARA_FAST_MAX bytes; 0: try that. */
static inline int angara_fast_put(angara_peer_h peer, const void *src, uint64_t rkey,
                                  uint64_t roffset, size_t length)
{
    char *there = angara_fast_put_begin(peer, rkey, roffset, length);

    if (ANGARA_UNLIKELY(there == NULL || length > ANGARA_FAST_MAX)) {
        return 0;
    }
    angara_fast_put_end(peer, length); /* counts: first, so that no register waits for the copy */
    angara_fast_copy(there, src, length);
    return 1;
}

/** As angara_mapped_get(), of at most ANGARA_FAST_MAX bytes; 0: try that. */
static inline int angara_fast_get(angara_peer_h peer, void *dst, uint64_t rkey, uint64_t roffset,
                                  size_t length)
{
    const char *there;

    if (ANGARA_UNLIKELY(length > ANGARA_FAST_MAX)) {
        return 0;
    }
    there = angara_fast_get_begin(peer, rkey, roffset, length);
    if (ANGARA_UNLIKELY(there == NULL)) {
        return 0;
    }
    angara_fast_copy(dst, there, length);
    angara_fast_get_end();
    return 1;
}

/** Memory of the peer's program, whatever it has there. */
typedef uint32_t angara_word32_t __attribute__((may_alias));
typedef uint64_t angara_word64_t __attribute__((may_alias));

/** Is angara_cpu_atomic() a full fence, too, for what comes before and behind it? */
#if defined(__x86_64__)
#define ANGARA_ATOMIC_IS_FENCE 1
#else
#define ANGARA_ATOMIC_IS_FENCE 0
#endif

#define ANGARA_CPU_ATOMIC(_type)                                                       \
    do {                                                                               \
        _type *target = ANGARA_CAST(_type *, word);                                    \
        _type  value  = ANGARA_CAST(_type, operand);                                   \
        _type  was    = ANGARA_CAST(_type, compare);                                   \
        switch (op) {                                                                  \
        case ANGARA_ATOMIC_ADD:                                                        \
            was = __atomic_fetch_add(target, value, __ATOMIC_SEQ_CST);                 \
            break;                                                                     \
        case ANGARA_ATOMIC_AND:                                                        \
            was = __atomic_fetch_and(target, value, __ATOMIC_SEQ_CST);                 \
            break;                                                                     \
        case ANGARA_ATOMIC_OR:                                                         \
            was = __atomic_fetch_or(target, value, __ATOMIC_SEQ_CST);                  \
            break;                                                                     \
        case ANGARA_ATOMIC_XOR:                                                        \
            was = __atomic_fetch_xor(target, value, __ATOMIC_SEQ_CST);                 \
            break;                                                                     \
        case ANGARA_ATOMIC_SWAP:                                                       \
            was = __atomic_exchange_n(target, value, __ATOMIC_SEQ_CST);                \
            break;                                                                     \
        case ANGARA_ATOMIC_CSWAP: /* was: what was there, whether it matched or not */ \
            __atomic_compare_exchange_n(target, &was, value, 0, __ATOMIC_SEQ_CST,      \
                                        __ATOMIC_SEQ_CST);                             \
            break;                                                                     \
        default:                                                                       \
            return 0;                                                                  \
        }                                                                              \
        *old = was;                                                                    \
    } while (0)

/**
 * Perform an atomic on @a word of this process's memory, which is aligned to @a width, 4 or 8. Its
 * parameters are those of angara_atomic().
 * @param old  the value before
 * @return 0: there is no such operation
 */
static inline int angara_cpu_atomic(void *word, angara_atomic_op_t op, unsigned width,
                                    uint64_t operand, uint64_t compare, uint64_t *old)
{
    if (width == 8) {
        ANGARA_CPU_ATOMIC(angara_word64_t);
    } else {
        ANGARA_CPU_ATOMIC(angara_word32_t);
    }
    return 1;
}

/** As angara_mapped_atomic(); 0: try that. */
static inline int angara_fast_atomic(angara_peer_h peer, angara_atomic_op_t op, unsigned width,
                                     uint64_t operand, uint64_t compare, uint64_t rkey,
                                     uint64_t roffset, void *result)
{
    char    *there = angara_fast_reach(peer, rkey, roffset, width, ANGARA_FAST_ATOMIC);
    uint64_t old;

    if (ANGARA_UNLIKELY(there == NULL || (width != 4 && width != 8) ||
                        (ANGARA_ADDRESS(there) & (width - 1)) != 0 ||
                        !angara_cpu_atomic(there, op, width, operand, compare, &old))) {
        return 0;
    }
    angara_fast_count(peer, ANGARA_FAST_ATOMIC, 0);
    if (result != NULL) {
        angara_fast_copy(result, &old, width);
    }
    return 1;
}

/** @return non-zero once the marker @a value has arrived in the slot. */
static inline int angara_marker_arrived(const angara_marker_slot_t *slot, uint64_t value)
{
    int64_t ahead   = ANGARA_CAST(int64_t, __atomic_load_n(slot, __ATOMIC_ACQUIRE) - value);
    int     arrived = ahead >= 0;

    angara_fence_landed();
    return arrived;
}

#ifdef __cplusplus
}
#endif

#endif
