/* SPDX-License-Identifier: GPL-2.0-only */
/* How a device finds the pages of a region. Its nodes, and what they mean, are the device's. */
#ifndef ANGARA_PAGELIST_H
#define ANGARA_PAGELIST_H

#include <linux/types.h>

struct angara_pagelist_node {
	__le64 *entries;
	dma_addr_t dma;
};

/**
 * struct angara_pagelist - page list; made by list_build() of the device
 * @root, @first, @levels: of the device
 * @npages, @page_shift: pages of the region, of that size
 * @nodes:	DMA memory, one page each
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

#endif /* ANGARA_PAGELIST_H */
