// SPDX-License-Identifier: GPL-2.0-only
/*
 * The emulated NIC: docs/emulator.md. Its registers are those of angara_hw.h; the function is
 * QEMU's ivshmem-doorbell device. Those that aren't a NIC (no MSI-X BAR, or no magic at the start
 * of BAR 2) are left alone.
 *
 * BAR 2 is plain memory that the device polls: what starts something is a pair of a request word
 * and an acknowledge word, and a write to the bell in BAR 0 wakes a device that rests.
 */
#include <linux/dma-mapping.h>
#include <linux/sizes.h>
#include <linux/slab.h>

#include "emu.h"
#include "pagelist.h"
#include "ids.h"

#define BAR_BELL	0
#define BAR_MSIX	1
#define BAR_NIC		2

static_assert(sizeof(struct angara_hw_control) == 256);
static_assert(sizeof(struct angara_hw_mr) == 64);
static_assert(ANGARA_NODE_BITS == ANGARA_HW_NODE_BITS);
static_assert(ANGARA_KEY_INDEX_BITS == ANGARA_HW_KEY_INDEX_BITS);
static_assert(ANGARA_WINDOW_FANOUT == ANGARA_HW_WINDOW_FANOUT);
static_assert(ANGARA_JOB_SHIFT == ANGARA_HW_JOB_SHIFT && ANGARA_JOB_USER == ANGARA_HW_JOB_USER &&
	      ANGARA_JOB_LOCAL == ANGARA_HW_JOB_LOCAL &&
	      ANGARA_JOB_GRANTED == ANGARA_HW_JOB_GRANTED);

/* ---- the function ---------------------------------------------------------------------------- */

static int emu_match(struct pci_dev *pdev)
{
	if (!pci_resource_len(pdev, BAR_MSIX) || !pdev->msix_cap ||
	    !(pci_resource_flags(pdev, BAR_NIC) & IORESOURCE_MEM) ||
	    pci_resource_len(pdev, BAR_NIC) < ANGARA_HW_PAGE ||
	    !(pci_resource_flags(pdev, BAR_BELL) & IORESOURCE_MEM) ||
	    pci_resource_len(pdev, BAR_BELL) < ANGARA_HW_BELL + sizeof(u32))
		return -ENODEV;
	return 0;
}

static int limits_read(struct emu_device *emu, struct angara_hw_limits *limits)
{
	struct angara_hw_control __iomem *ctl = emu->ctl;

	if (readq(&ctl->magic) != ANGARA_HW_MAGIC)
		return -ENODEV;
	limits->version = readl(&ctl->version);
	if (limits->version >> 16 != ANGARA_HW_VERSION >> 16) {
		dev_err(&emu->hw.pdev->dev,
			"register version %u.%u, this driver needs %u.x: update it\n",
			limits->version >> 16, limits->version & 0xffff, ANGARA_HW_VERSION >> 16);
		return -EPROTO;
	}
	limits->loopback = readl(&ctl->caps) & ANGARA_HW_CAP_LOOPBACK;
	limits->node = readl(&ctl->node);
	limits->pe_max = readl(&ctl->pe_max);
	limits->mr_max = readl(&ctl->mr_max);
	limits->admin_depth = EMU_ADMIN_ENTRIES;
	limits->vectors = readl(&ctl->vectors);
	limits->marker_slots = readl(&ctl->marker_slots);
	limits->pio_bytes = readl(&ctl->pio_bytes);
	limits->put_max = readl(&ctl->put_max);
	limits->window_pages_max = readl(&ctl->window_pages_max);
	limits->offload_max = readq(&ctl->offload_max);
	limits->registers.bar = BAR_NIC;
	limits->registers.offset = ANGARA_HW_CONTROL;
	limits->registers_size = ANGARA_HW_PAGE;
	limits->doorbells.bar = BAR_NIC;
	limits->doorbells.offset = readq(&ctl->doorbell_offset);
	limits->puts.bar = BAR_NIC;
	limits->puts.offset = readq(&ctl->pio_offset);
	return 0;
}

static struct angara_hw *emu_attach(struct pci_dev *pdev, struct angara_hw_limits *limits)
{
	struct emu_device *emu;
	int ret;

	emu = kzalloc(sizeof(*emu), GFP_KERNEL);
	if (!emu)
		return ERR_PTR(-ENOMEM);
	emu->hw.pdev = pdev;
	emu->ctl = pci_iomap_range(pdev, BAR_NIC, ANGARA_HW_CONTROL, ANGARA_HW_PAGE);
	if (!emu->ctl) {
		ret = -ENOMEM;
		goto free_emu;
	}
	ret = limits_read(emu, limits);
	if (ret)
		goto unmap_ctl;
	emu->bell = pci_iomap_range(pdev, BAR_BELL, ANGARA_HW_BELL, sizeof(u32));
	if (!emu->bell) {
		ret = -ENOMEM;
		goto unmap_ctl;
	}
	ret = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
	if (ret)
		goto unmap_bell;
	dma_set_max_seg_size(&pdev->dev, SZ_2G);
	ret = emu_queue_alloc(emu);
	if (ret)
		goto unmap_bell;
	return &emu->hw;

unmap_bell:
	pci_iounmap(pdev, emu->bell);
unmap_ctl:
	pci_iounmap(pdev, emu->ctl);
free_emu:
	kfree(emu);
	return ERR_PTR(ret);
}

static void emu_detach(struct angara_hw *hw, bool leak)
{
	struct emu_device *emu = to_emu(hw);

	if (!leak)
		emu_queue_free(emu);
	pci_iounmap(hw->pdev, emu->bell);
	pci_iounmap(hw->pdev, emu->ctl);
	kfree(emu);
}

/* ---- registers ------------------------------------------------------------------------------- */

static bool emu_reads_ones(struct angara_hw *hw)
{
	return readq(&to_emu(hw)->ctl->magic) == ANGARA_HW_GONE;
}

static void emu_reset(struct angara_hw *hw)
{
	struct emu_device *emu = to_emu(hw);

	emu->reset_req = readl(&emu->ctl->reset_ack) + 1;
	/* Nothing to fetch while the rings change hands. */
	writel(0, &emu->ctl->admin_prod);
	writel(emu->reset_req, &emu->ctl->reset_req);
	emu_ring(emu);
}

static bool emu_reset_done(struct angara_hw *hw)
{
	struct emu_device *emu = to_emu(hw);

	return readl(&emu->ctl->reset_ack) == emu->reset_req;
}

/* Bit 0 is the state, the others make the request a new one. */
static void emu_dma(struct angara_hw *hw, bool on)
{
	struct emu_device *emu = to_emu(hw);

	emu->dma_req = ((readl(&emu->ctl->dma_ack) | 1) + 1) | on;
	/* As a driver that doesn't know the word expects it. */
	if (!on)
		writel(0, &emu->ctl->admin_quiet);
	writel(emu->dma_req, &emu->ctl->dma_req);
	emu_ring(emu);
}

static bool emu_dma_done(struct angara_hw *hw)
{
	struct emu_device *emu = to_emu(hw);

	return readl(&emu->ctl->dma_ack) == emu->dma_req;
}

/* An interrupt is an event of the emulator's: there is nothing that could stay set. */
static void emu_irq_ack(struct angara_hw *hw, unsigned int vector)
{
}

static bool emu_link_up(struct angara_hw *hw)
{
	return readl(&to_emu(hw)->ctl->link) == 1;
}

static u32 emu_key_mismatches(struct angara_hw *hw)
{
	return readl(&to_emu(hw)->ctl->key_mismatches);
}

/* ---- tables in host memory ------------------------------------------------------------------- */

static int emu_list_build(struct angara_hw *hw, struct angara_pagelist *list,
			  const struct sg_table *sgt, u64 offset, u64 length)
{
	return emu_pagelist_build(&hw->pdev->dev, list, sgt, offset, length, &hw->going);
}

static void emu_list_free(struct angara_hw *hw, struct angara_pagelist *list)
{
	emu_pagelist_free(&hw->pdev->dev, list);
}

static void emu_mr_write(void *at, const struct angara_mr_entry *mr)
{
	struct angara_hw_mr *entry = at;

	entry->length = cpu_to_le64(mr->length);
	entry->list = cpu_to_le64(mr->list->root);
	entry->first = cpu_to_le64(mr->list->first);
	entry->domain = cpu_to_le32(mr->domain);
	entry->access = cpu_to_le32(mr->access);
	entry->npages = cpu_to_le64(mr->list->npages);
	entry->page_shift = mr->list->page_shift;
	entry->levels = mr->list->levels;
	dma_wmb();
	WRITE_ONCE(entry->state, ANGARA_HW_MR_LIVE);
	WRITE_ONCE(entry->key, cpu_to_le64(mr->key));
	/* Before any word that tells somebody the key. */
	wmb();
}

/* What is posted later comes later, of this and the next. */
static void emu_mr_suspend(void *at)
{
	struct angara_hw_mr *entry = at;

	WRITE_ONCE(entry->state, ANGARA_HW_MR_SUSPENDED);
}

static void emu_mr_clear(void *at)
{
	struct angara_hw_mr *entry = at;

	WRITE_ONCE(entry->key, 0);
}

static void emu_window_set(void *table, u32 index, dma_addr_t addr)
{
	__le64 *words = table;

	WRITE_ONCE(words[index], cpu_to_le64(addr | 1));
}

const struct angara_hw_ops angara_emu_ops = {
	.mr_entry_size = sizeof(struct angara_hw_mr),
	.match = emu_match,
	.attach = emu_attach,
	.detach = emu_detach,
	.reads_ones = emu_reads_ones,
	.reset = emu_reset,
	.reset_done = emu_reset_done,
	.dma = emu_dma,
	.dma_done = emu_dma_done,
	.admin_start = emu_admin_start,
	.post = emu_post,
	.poll = emu_poll,
	.admin_irq = emu_admin_irq,
	.irq_ack = emu_irq_ack,
	.link_up = emu_link_up,
	.key_mismatches = emu_key_mismatches,
	.list_build = emu_list_build,
	.list_free = emu_list_free,
	.mr_write = emu_mr_write,
	.mr_suspend = emu_mr_suspend,
	.mr_clear = emu_mr_clear,
	.window_set = emu_window_set,
};
