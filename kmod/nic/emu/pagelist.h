/* SPDX-License-Identifier: GPL-2.0-only */
/* Page lists as the emulated NIC reads them, see struct angara_hw_mr. Knows no device. */
#ifndef ANGARA_EMU_PAGELIST_H
#define ANGARA_EMU_PAGELIST_H

#include <linux/device.h>
#include <linux/scatterlist.h>
#include <linux/types.h>

#include "../pagelist.h"

/*
 * List [offset, offset + length) of a mapped scatter list; DMA memory is @dev's. -EINVAL: a
 * boundary between segments inside of it isn't one of 4 KiB pages, the list is shorter, or it is
 * too long for the device; -ENOMEM; -EINTR: the process is being killed; -ENODEV: @going was set.
 * On error there is nothing to free.
 */
int emu_pagelist_build(struct device *dev, struct angara_pagelist *list, const struct sg_table *sgt,
		       u64 offset, u64 length, const bool *going);
void emu_pagelist_free(struct device *dev, struct angara_pagelist *list);

#endif /* ANGARA_EMU_PAGELIST_H */
