// SPDX-License-Identifier: GPL-2.0-only
/*
 * The check of what a device says that it has. Nothing here touches the device but its PCI
 * configuration; tests/unit/test_check.c runs it outside of a kernel.
 */
#include <linux/align.h>
#include <linux/limits.h>
#include <linux/log2.h>
#include <linux/math.h>
#include <linux/sizes.h>
#include <misc/angara_formats.h>

#include "check.h"

#define PE_LIMIT		4096
#define MARKER_SLOTS_MAX	65536
#define PIO_BYTES_MAX		SZ_1M
#define ADMIN_DEPTH_MAX		4096

/* What lies in a BAR. */
struct bar_range {
	struct angara_hw_place at;
	u64 size;
};

/* Whole pages of a BAR that is memory. */
static bool range_ok(struct pci_dev *pdev, const struct bar_range *range)
{
	unsigned int bar = range->at.bar;
	u64 offset = range->at.offset, bar_size;

	if (bar >= PCI_STD_NUM_BARS || !(pci_resource_flags(pdev, bar) & IORESOURCE_MEM))
		return false;
	bar_size = pci_resource_len(pdev, bar);
	return IS_ALIGNED(offset, ANGARA_HW_PAGE) && IS_ALIGNED(range->size, ANGARA_HW_PAGE) &&
	       offset <= bar_size && range->size <= bar_size - offset;
}

static bool ranges_apart(const struct bar_range *a, const struct bar_range *b)
{
	return a->at.bar != b->at.bar || a->at.offset + a->size <= b->at.offset ||
	       b->at.offset + b->size <= a->at.offset;
}

/* The pages in which a structure of MSI-X lies. */
static struct bar_range msix_range(struct pci_dev *pdev, int where, u32 size)
{
	struct bar_range range;
	u64 offset, end;
	u32 at;

	/* Table and pending bits are described alike. */
	pci_read_config_dword(pdev, pdev->msix_cap + where, &at);
	offset = ALIGN_DOWN(at & PCI_MSIX_TABLE_OFFSET, ANGARA_HW_PAGE);
	end = ALIGN((u64)(at & PCI_MSIX_TABLE_OFFSET) + size, ANGARA_HW_PAGE);
	range.at.bar = at & PCI_MSIX_TABLE_BIR;
	range.at.offset = offset;
	range.size = end - offset;
	return range;
}

/* Who writes there has the device write what he likes to where he likes. */
static bool apart_from_msix(struct pci_dev *pdev, const struct bar_range *range)
{
	struct bar_range table, pending;
	int vectors = pci_msix_vec_count(pdev);

	if (vectors < 0)
		return false;
	table = msix_range(pdev, PCI_MSIX_TABLE, vectors * PCI_MSIX_ENTRY_SIZE);
	pending = msix_range(pdev, PCI_MSIX_PBA, DIV_ROUND_UP(vectors, 64) * sizeof(u64));
	return ranges_apart(range, &table) && ranges_apart(range, &pending);
}

/* Nobody gets at what is another's, or the driver's. The number and size of them are sound. */
static bool ranges_ok(struct pci_dev *pdev, const struct angara_hw_limits *limits)
{
	const struct bar_range registers = { limits->registers, limits->registers_size };
	const u64 pes = limits->pe_max;
	const struct bar_range doorbells = { limits->doorbells, pes * ANGARA_HW_PAGE };
	const struct bar_range puts = { limits->puts, pes * limits->pio_bytes };

	return IS_ALIGNED(limits->pio_bytes, ANGARA_HW_PAGE) && range_ok(pdev, &registers) &&
	       range_ok(pdev, &doorbells) && range_ok(pdev, &puts) &&
	       ranges_apart(&registers, &doorbells) && ranges_apart(&registers, &puts) &&
	       ranges_apart(&doorbells, &puts) && apart_from_msix(pdev, &doorbells) &&
	       apart_from_msix(pdev, &puts);
}

/* A put of the largest size and the pad before it must fit into the ring. */
static bool put_max_ok(const struct angara_hw_limits *limits)
{
	u32 granules = 1 + DIV_ROUND_UP(limits->put_max - ANGARA_PIO_INLINE, ANGARA_PIO_GRANULE);

	return limits->put_max >= ANGARA_NOTIFY_BYTES && limits->put_max <= U16_MAX &&
	       granules <= limits->pio_bytes / 2 / ANGARA_PIO_GRANULE;
}

/* Nothing of what the device says is used unchecked. */
bool angara_limits_ok(struct pci_dev *pdev, const struct angara_hw_limits *limits)
{
	return !(limits->node >> ANGARA_NODE_BITS) &&
	       limits->pe_max && limits->pe_max <= PE_LIMIT && limits->mr_max &&
	       limits->admin_depth && limits->admin_depth <= ADMIN_DEPTH_MAX &&
	       limits->vectors >= 2 &&
	       limits->marker_slots && limits->marker_slots <= MARKER_SLOTS_MAX &&
	       is_power_of_2(limits->pio_bytes) && limits->pio_bytes <= PIO_BYTES_MAX &&
	       put_max_ok(limits) && limits->window_pages_max && limits->offload_max &&
	       ranges_ok(pdev, limits);
}
