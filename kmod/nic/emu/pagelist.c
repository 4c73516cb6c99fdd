// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page list of a region: from DMA segments to what the device reads, with the largest page size
 * that they have in common. Lists are coherent host memory that only the device reads; they are
 * complete before the region's entry points at them.
 */
#include <linux/dma-mapping.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "pagelist.h"

#define SHIFT_MIN	12
#define SHIFT_MAX	30
#define FANOUT		512	/* bus addresses of a page of the list */
#define LEVELS_MAX	3

/* The DMA segments of a region, clipped to it; adjacent ones are one. */
struct segments {
	struct scatterlist *sg;		/* the next one */
	unsigned int left;		/* of them, @sg included */
	u64 skip;			/* bytes before the region, from @sg on */
	u64 length;			/* bytes of the region, from there on */
	u64 start;			/* the segment: bus addresses */
	u64 end;
};

static void segments_begin(struct segments *seg, const struct sg_table *sgt, u64 offset, u64 length)
{
	*seg = (struct segments){ sgt->sgl, sgt->nents, offset, length };
}

/* The next piece of the list that is in the region. False: there is none. */
static bool piece_next(struct segments *seg, u64 *start, u64 *end)
{
	u64 address, bytes;

	for (; seg->left && seg->length; seg->left--, seg->sg = sg_next(seg->sg)) {
		address = sg_dma_address(seg->sg);
		bytes = sg_dma_len(seg->sg);
		if (bytes <= seg->skip) {
			seg->skip -= bytes;
			continue;
		}
		*start = address + seg->skip;
		bytes = min(bytes - seg->skip, seg->length);
		*end = *start + bytes;
		return true;
	}
	return false;
}

static void piece_take(struct segments *seg, u64 start, u64 end)
{
	seg->skip = 0;
	seg->length -= end - start;
	seg->left--;
	seg->sg = sg_next(seg->sg);
}

static bool segments_next(struct segments *seg)
{
	u64 start, end;

	if (!piece_next(seg, &seg->start, &seg->end))
		return false;
	piece_take(seg, seg->start, seg->end);
	while (piece_next(seg, &start, &end) && start == seg->end) {
		piece_take(seg, start, end);
		seg->end = end;
	}
	return true;
}

static unsigned int count_nodes(unsigned int entries)
{
	return DIV_ROUND_UP(entries, FANOUT);
}

/*
 * Largest page size of the region: every boundary inside of it must be one of a page. A page isn't
 * larger than the region: that would say nothing. Sets all but the nodes. -EINVAL: see the header.
 */
static int list_measure(struct angara_pagelist *list, const struct sg_table *sgt, u64 offset,
			u64 length, bool *scattered)
{
	u64 mask = 0, first, end, size;
	struct segments seg;

	segments_begin(&seg, sgt, offset, length);
	if (!segments_next(&seg))
		return -EINVAL;
	first = seg.start;
	end = seg.end;
	*scattered = false;
	while (segments_next(&seg)) {
		mask |= end | seg.start;
		end = seg.end;
		*scattered = true;
	}
	if (seg.length || mask & (BIT_ULL(SHIFT_MIN) - 1))
		return -EINVAL;
	size = ALIGN(first + length, BIT_ULL(SHIFT_MIN)) - ALIGN_DOWN(first, BIT_ULL(SHIFT_MIN));
	list->page_shift = clamp_t(unsigned int, ilog2(size), SHIFT_MIN, SHIFT_MAX);
	if (mask)
		list->page_shift = min_t(unsigned int, list->page_shift, __ffs64(mask));
	list->first = first & (BIT_ULL(list->page_shift) - 1);
	list->npages = (list->first + length - 1 + BIT_ULL(list->page_shift)) >> list->page_shift;
	list->root = first - list->first;
	return 0;
}

static int nodes_alloc(struct device *dev, struct angara_pagelist *list, unsigned int count,
		       const bool *going)
{
	struct angara_pagelist_node *node;

	list->nodes = kvcalloc(count, sizeof(*list->nodes), GFP_KERNEL_ACCOUNT);
	if (!list->nodes)
		return -ENOMEM;
	for (; list->num_nodes < count; list->num_nodes++) {
		/* Charged to a small cgroup, memory may take minutes. */
		if (fatal_signal_pending(current))
			return -EINTR;
		if (READ_ONCE(*going))
			return -ENODEV;
		node = &list->nodes[list->num_nodes];
		node->entries = dma_alloc_coherent(dev, FANOUT * sizeof(__le64), &node->dma,
						   GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
		if (!node->entries)
			return -ENOMEM;
	}
	return 0;
}

static void entry_set(struct angara_pagelist_node *nodes, u64 index, u64 address)
{
	nodes[index / FANOUT].entries[index % FANOUT] = cpu_to_le64(address);
}

/* Pages of the region into the leaves. */
static void leaves_fill(struct angara_pagelist *list, const struct sg_table *sgt, u64 offset,
			u64 length)
{
	u64 page_size = BIT_ULL(list->page_shift);
	u64 index = 0, address;
	struct segments seg;

	segments_begin(&seg, sgt, offset, length);
	while (segments_next(&seg)) {
		address = ALIGN_DOWN(seg.start, page_size);
		for (; address < seg.end; address += page_size)
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

int emu_pagelist_build(struct device *dev, struct angara_pagelist *list,
			  const struct sg_table *sgt, u64 offset, u64 length, const bool *going)
{
	unsigned int leaves, level, total;
	bool scattered;
	int ret;

	memset(list, 0, sizeof(*list));
	ret = list_measure(list, sgt, offset, length, &scattered);
	if (ret || !scattered)
		return ret;
	if (list->npages > (u64)FANOUT * FANOUT * FANOUT)
		return -EINVAL;

	leaves = count_nodes(list->npages);
	list->levels = 1;
	for (total = level = leaves; level > 1; total += level) {
		level = count_nodes(level);
		list->levels++;
	}
	ret = nodes_alloc(dev, list, total, going);
	if (ret) {
		emu_pagelist_free(dev, list);
		return ret;
	}
	leaves_fill(list, sgt, offset, length);
	list->root = parents_fill(list, leaves);
	return 0;
}

void emu_pagelist_free(struct device *dev, struct angara_pagelist *list)
{
	struct angara_pagelist_node *node;

	while (list->num_nodes) {
		node = &list->nodes[--list->num_nodes];
		dma_free_coherent(dev, FANOUT * sizeof(__le64), node->entries, node->dma);
		cond_resched();
	}
	kvfree(list->nodes);
	list->nodes = NULL;
}
