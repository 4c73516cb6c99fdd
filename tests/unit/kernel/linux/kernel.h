/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What kmod/nic/emu/pagelist.c and kmod/nic/check.c want of the kernel, for tests outside of it.
 * The other headers here include this one. "Coherent" memory comes from malloc, which says where it
 * went.
 */
#ifndef ANGARA_TESTS_KERNEL_H
#define ANGARA_TESTS_KERNEL_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef uint8_t  u8, __u8;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t  __s32;
typedef uint16_t __le16;
typedef uint32_t __le32;
typedef uint64_t __le64;
typedef uint64_t dma_addr_t;
typedef unsigned gfp_t;

struct device {
    int unused;
};

struct scatterlist {
    dma_addr_t          dma_address;
    unsigned            dma_length;
    struct scatterlist *next;
};

struct sg_table {
    struct scatterlist *sgl;
    unsigned            nents;
};

#define sg_dma_address(sg) ((sg)->dma_address)
#define sg_dma_len(sg)     ((sg)->dma_length)

static inline struct scatterlist *sg_next(struct scatterlist *sg)
{
    return sg->next;
}

#define BIT(nr)                (1ul << (nr))
#define BIT_ULL(nr)            (1ull << (nr))
#define DIV_ROUND_UP(n, d)     (((n) + (d)-1) / (d))
#define ALIGN_DOWN(x, a)       ((x) & ~((u64)(a)-1))
#define ALIGN(x, a)            ALIGN_DOWN((x) + (u64)(a)-1, a)
#define IS_ALIGNED(x, a)       (((x) & ((u64)(a)-1)) == 0)
#define SZ_1M                  0x100000
#define U16_MAX                UINT16_MAX
#define min(a, b)              ((a) < (b) ? (a) : (b))
#define min_t(type, a, b)      min((type)(a), (type)(b))
#define max_t(type, a, b)      ((type)(a) > (type)(b) ? (type)(a) : (type)(b))
#define clamp_t(type, v, l, h) min_t(type, max_t(type, v, l), h)
#define WARN_ON_ONCE(c)        ((c) ? abort() : (void)0)
#define cpu_to_le64(x)         ((__le64)(x))
#define READ_ONCE(x)           (*(const volatile __typeof__(x) *)&(x))
#define current                NULL
#define cond_resched()         ((void)0)

#define GFP_KERNEL_ACCOUNT     0
#define __GFP_NOWARN           0

static inline unsigned ilog2(u64 x)
{
    return 63 - (unsigned)__builtin_clzll(x);
}

static inline bool is_power_of_2(u64 x)
{
    return x != 0 && (x & (x - 1)) == 0;
}

static inline unsigned __ffs64(u64 x)
{
    return (unsigned)__builtin_ctzll(x);
}

/* PCI, as linux/pci.h and uapi/linux/pci_regs.h have it. */
#define PCI_STD_NUM_BARS      6
#define IORESOURCE_MEM        0x200
#define PCI_MSIX_TABLE        4
#define PCI_MSIX_PBA          8
#define PCI_MSIX_TABLE_BIR    7u
#define PCI_MSIX_TABLE_OFFSET 0xfffffff8u
#define PCI_MSIX_ENTRY_SIZE   16

struct pci_dev {
    u64           length[PCI_STD_NUM_BARS];
    unsigned long flags[PCI_STD_NUM_BARS];
    int           vectors;
    u8            msix_cap;
    u32           config[64];
};

#define pci_resource_len(pdev, bar)   ((pdev)->length[bar])
#define pci_resource_flags(pdev, bar) ((pdev)->flags[bar])
#define pci_msix_vec_count(pdev)      ((pdev)->vectors)

static inline int pci_read_config_dword(const struct pci_dev *pdev, int where, u32 *value)
{
    *value = pdev->config[where / 4];
    return 0;
}

int   fatal_signal_pending(const void *task);
void *dma_alloc_coherent(struct device *dev, size_t size, dma_addr_t *dma, gfp_t gfp);
void  dma_free_coherent(struct device *dev, size_t size, void *memory, dma_addr_t dma);
void *kvcalloc(size_t count, size_t size, gfp_t gfp);
void  kvfree(void *memory);

#endif
