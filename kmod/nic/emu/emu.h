/* SPDX-License-Identifier: GPL-2.0-only */
/* The emulated NIC behind QEMU's ivshmem-doorbell: what its files share. See device.c. */
#ifndef ANGARA_EMU_H
#define ANGARA_EMU_H

#include <linux/io.h>
#include <linux/io-64-nonatomic-lo-hi.h>
#include <linux/kernel.h>

#include <angara_hw.h>

#include "../hw.h"

#define EMU_ADMIN_ENTRIES	64

/**
 * struct emu_device - an emulated NIC
 * @hw:		for the core
 * @ctl:	the control page, the only page of BAR 2 that the kernel maps
 * @bell:	ANGARA_HW_BELL
 * @reset_req, @dma_req: what was last requested
 * @cmd, @resp:	admin rings, DMA memory
 * @cmd_dma, @resp_dma: their bus addresses
 * @prod:	commands posted since the reset
 * @seen:	responses consumed since the reset
 */
struct emu_device {
	struct angara_hw hw;
	struct angara_hw_control __iomem *ctl;
	void __iomem *bell;
	u32 reset_req;
	u32 dma_req;
	struct angara_hw_cmd *cmd;
	struct angara_hw_resp *resp;
	dma_addr_t cmd_dma;
	dma_addr_t resp_dma;
	u32 prod;
	u32 seen;
};

static inline struct emu_device *to_emu(struct angara_hw *hw)
{
	return container_of(hw, struct emu_device, hw);
}

/* Tell a device that may rest of a request that was written before. */
static inline void emu_ring(struct emu_device *emu)
{
	writel(0, emu->bell);
}

/* queue.c */
int emu_queue_alloc(struct emu_device *emu);
void emu_queue_free(struct emu_device *emu);
void emu_admin_start(struct angara_hw *hw);
void emu_post(struct angara_hw *hw, const struct angara_cmd *cmd);
void emu_poll(struct angara_hw *hw);
void emu_admin_irq(struct angara_hw *hw, bool on);

#endif /* ANGARA_EMU_H */
