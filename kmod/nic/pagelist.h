/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Page list of a region: what the device reads to find its pages. Knows nothing of angara_nic.
 */
#ifndef ANGARA_PAGELIST_H
#define ANGARA_PAGELIST_H

#include <linux/device.h>
#include <linux/scatterlist.h>
#include <linux/types.h>

struct angara_pagelist_node {
	__le64 *entries;
	dma_addr_t dma;
};

/**
 * struct angara_pagelist - page list
 * @root:	for struct angara_hw_mr.list
 * @first:	offset of the first byte in the first page
 * @npages, @page_shift, @levels: see struct angara_hw_mr
 * @nodes:	DMA memory, one page each, leaves first
 * @num_nodes:	of them
 */
struct angara_pagelist {
	u64 root;
	u64 first;
	u64 npages;
	u8 page_shift;
	u8 levels;
	struct angara_pagelist_node *nodes;
	unsigned int num_nodes;
};

/*
 * List [offset, offset + length) of a mapped scatter list. -EINVAL: a boundary between segments
 * inside of it isn't one of 4 KiB pages, the list is shorter, or it is too long for the device;
 * -ENOMEM. On error there is nothing to free.
 */
int angara_pagelist_build(struct device *dev, struct angara_pagelist *list,
			  const struct sg_table *sgt, u64 offset, u64 length);
void angara_pagelist_free(struct device *dev, struct angara_pagelist *list);

#endif /* ANGARA_PAGELIST_H */
