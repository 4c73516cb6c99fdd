/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Order between this CPU and the NIC: which of our stores it sees first, and which of its stores we
 * see first. Compiler barriers, fences and plain loads and stores of shared words only.
 *
 *                          x86-64                          arm64
 *   nic_fence_memory()     nothing: stores are in order,   dmb oshst
 *                          and the doorbell is uncached
 *   nic_fence_combining()  sfence: write-combining stores  dsb st: normal non-cacheable stores
 *                          go out in any order otherwise
 *   nic_load()             nothing: loads are in order     dmb oshld: a load-acquire orders
 *                                                          against CPUs, not against a device
 *
 * The emulated NIC is another CPU of the host that has the guest's memory; there the plain loads
 * and stores with these fences are what is needed between two CPUs.
 */
#ifndef NIC_BARRIER_H
#define NIC_BARRIER_H

#include <angara/angara_fast.h>
#include <stdint.h>

/* Stores to memory that the NIC reads, before a store to the doorbell page. */
static inline void nic_fence_memory(void)
{
#if defined(__x86_64__)
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
#elif defined(__aarch64__)
    __asm__ volatile("dmb oshst" ::: "memory");
#else
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

/* Stores to write-combining memory, before later stores there; also pushes them out. */
static inline void nic_fence_combining(void)
{
#if defined(__x86_64__)
    __asm__ volatile("sfence" ::: "memory");
#elif defined(__aarch64__)
    __asm__ volatile("dsb st" ::: "memory");
#else
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

/* A word that the NIC writes, before what it has written before that word. */
static inline uint32_t nic_load(const volatile uint32_t *word)
{
    uint32_t value = __atomic_load_n(word, __ATOMIC_ACQUIRE);

    angara_fence_landed();
    return value;
}

/* A word of the doorbell page or the put ring, in one piece. */
static inline void nic_store(volatile uint32_t *word, uint32_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static inline void nic_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
