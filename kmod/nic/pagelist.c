// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page list of a region: from DMA segments to what the device reads, with the largest page size
 * that they have in common. Lists are coherent host memory that only the device reads; they are
 * complete before the region's entry points at them.
 */
#include <linux/dma-mapping.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "nic.h"

#define SHIFT_MIN	12
#define SHIFT_MAX	30
#define FANOUT		512	/* bus addresses of a page of the list */
#define LEVELS_MAX	3

static unsigned int count_nodes(unsigned int entries)
{
	return DIV_ROUND_UP(entries, FANOUT);
}

/*
 * Largest page size of the segments: every boundary inside the region must be one of a page,
 * unless the segments are adjacent. Returns false if all are one run, of any page size.
 */
static bool common_shift(const struct sg_table *sgt, u64 length, u8 *shift)
{
	u64 mask = 0, end = 0, start = sg_dma_address(sgt->sgl);
	struct scatterlist *sg;
	bool scattered = false;
	unsigned int i;

	for_each_sgtable_dma_sg(sgt, sg, i) {
		if (i && sg_dma_address(sg) != end) {
			mask |= end | sg_dma_address(sg);
			scattered = true;
			if (mask & BIT_ULL(SHIFT_MIN))
				break; /* it can't be smaller */
		}
		end = sg_dma_address(sg) + sg_dma_len(sg);
	}
	/* Not larger than the region: that would say nothing. */
	length = ALIGN(start + length, ANGARA_HW_PAGE) - ALIGN_DOWN(start, ANGARA_HW_PAGE);
	*shift = clamp_t(unsigned int, ilog2(length), SHIFT_MIN, SHIFT_MAX);
	if (mask)
		*shift = min_t(unsigned int, *shift, __ffs64(mask));
	return scattered;
}

static int nodes_alloc(struct angara_device *adev, struct angara_pagelist *list, unsigned int count)
{
	struct angara_pagelist_node *node;

	list->nodes = kvcalloc(count, sizeof(*list->nodes), GFP_KERNEL_ACCOUNT);
	if (!list->nodes)
		return -ENOMEM;
	for (; list->num_nodes < count; list->num_nodes++) {
		node = &list->nodes[list->num_nodes];
		node->entries = dma_alloc_coherent(&adev->pdev->dev, FANOUT * sizeof(__le64),
						   &node->dma, GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
		if (!node->entries)
			return -ENOMEM;
	}
	return 0;
}

static void entry_set(struct angara_pagelist_node *nodes, u64 index, u64 address)
{
	nodes[index / FANOUT].entries[index % FANOUT] = cpu_to_le64(address);
}

/* Pages of the region into the leaves. Adjacent segments may meet inside a page. */
static void leaves_fill(struct angara_pagelist *list, const struct sg_table *sgt)
{
	u64 page_size = BIT_ULL(list->page_shift);
	u64 index = 0, address, end = 0;
	struct scatterlist *sg;
	unsigned int i;

	for_each_sgtable_dma_sg(sgt, sg, i) {
		address = sg_dma_address(sg);
		address = i && address == end ? ALIGN(address, page_size) :
						ALIGN_DOWN(address, page_size);
		end = sg_dma_address(sg) + sg_dma_len(sg);
		for (; address < end && index < list->npages; address += page_size)
			entry_set(list->nodes, index++, address);
	}
	WARN_ON_ONCE(index != list->npages);
}

/* Nodes of each level above the leaves, which they point at. Returns the root. */
static u64 parents_fill(struct angara_pagelist *list, unsigned int leaves)
{
	struct angara_pagelist_node *child = list->nodes;
	struct angara_pagelist_node *parent;
	unsigned int children = leaves, i;

	while (children > 1) {
		parent = child + children;
		for (i = 0; i < children; i++)
			entry_set(parent, i, child[i].dma);
		child = parent;
		children = count_nodes(children);
	}
	return child->dma;
}

int angara_pagelist_build(struct angara_device *adev, struct angara_pagelist *list,
			  const struct sg_table *sgt, u64 length)
{
	u64 start = sg_dma_address(sgt->sgl);
	unsigned int leaves, level, total;
	bool scattered;
	int ret;

	memset(list, 0, sizeof(*list));
	scattered = common_shift(sgt, length, &list->page_shift);
	list->first = start & (BIT_ULL(list->page_shift) - 1);
	list->npages = (list->first + length - 1 + BIT_ULL(list->page_shift)) >> list->page_shift;
	if (!scattered) {
		list->root = start - list->first;
		return 0;
	}
	if (list->npages > (u64)FANOUT * FANOUT * FANOUT)
		return -EINVAL;

	leaves = count_nodes(list->npages);
	list->levels = 1;
	for (total = level = leaves; level > 1; total += level) {
		level = count_nodes(level);
		list->levels++;
	}
	ret = nodes_alloc(adev, list, total);
	if (ret) {
		angara_pagelist_free(adev, list);
		return ret;
	}
	leaves_fill(list, sgt);
	list->root = parents_fill(list, leaves);
	return 0;
}

void angara_pagelist_free(struct angara_device *adev, struct angara_pagelist *list)
{
	struct angara_pagelist_node *node;

	while (list->num_nodes) {
		node = &list->nodes[--list->num_nodes];
		dma_free_coherent(&adev->pdev->dev, FANOUT * sizeof(__le64), node->entries,
				  node->dma);
		cond_resched();
	}
	kvfree(list->nodes);
	list->nodes = NULL;
}
