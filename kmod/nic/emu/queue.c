// SPDX-License-Identifier: GPL-2.0-only
/*
 * Admin queue: two rings in host memory, for commands and for their responses in any order. The
 * core calls all of this under one lock, and has at most as many commands without response as there
 * are entries, so that neither ring overflows.
 */
#include <linux/dma-mapping.h>

#include "emu.h"

#define CMD_BYTES	(EMU_ADMIN_ENTRIES * sizeof(struct angara_hw_cmd))
#define RESP_BYTES	(EMU_ADMIN_ENTRIES * sizeof(struct angara_hw_resp))

static_assert(sizeof(struct angara_hw_cmd) == 128);
static_assert(sizeof(struct angara_hw_resp) == 16);
static_assert(ANGARA_END_DIED == ANGARA_HW_DIED && ANGARA_END_CLOSED == ANGARA_HW_CLOSED);
static_assert(ANGARA_HW_OK == 0);

int emu_queue_alloc(struct emu_device *emu)
{
	struct device *dev = &emu->hw.pdev->dev;

	emu->cmd = dma_alloc_coherent(dev, CMD_BYTES, &emu->cmd_dma, GFP_KERNEL);
	if (!emu->cmd)
		return -ENOMEM;
	emu->resp = dma_alloc_coherent(dev, RESP_BYTES, &emu->resp_dma, GFP_KERNEL);
	if (!emu->resp) {
		dma_free_coherent(dev, CMD_BYTES, emu->cmd, emu->cmd_dma);
		return -ENOMEM;
	}
	return 0;
}

void emu_queue_free(struct emu_device *emu)
{
	struct device *dev = &emu->hw.pdev->dev;

	dma_free_coherent(dev, RESP_BYTES, emu->resp, emu->resp_dma);
	dma_free_coherent(dev, CMD_BYTES, emu->cmd, emu->cmd_dma);
}

/* The rings change hands: the device reads where they are at the first command. */
void emu_admin_start(struct angara_hw *hw)
{
	struct emu_device *emu = to_emu(hw);

	memset(emu->resp, 0, RESP_BYTES);
	emu->prod = 0;
	emu->seen = 0;
	writel(EMU_ADMIN_ENTRIES, &emu->ctl->admin_entries);
	writeq(emu->cmd_dma, &emu->ctl->admin_cmd);
	writeq(emu->resp_dma, &emu->ctl->admin_resp);
}

static void pe_fill(struct angara_hw_pe *to, const struct angara_pe_context *pe)
{
	to->index = cpu_to_le32(pe->index);
	to->generation = cpu_to_le32(pe->generation);
	to->domain = cpu_to_le32(pe->domain);
	to->vector = cpu_to_le32(pe->vector);
	to->cmd = cpu_to_le64(pe->cmd);
	to->event = cpu_to_le64(pe->event);
	to->status = cpu_to_le64(pe->status);
	to->marker = cpu_to_le64(pe->marker);
	to->window = cpu_to_le64(pe->window);
	to->cmd_entries = cpu_to_le32(pe->cmd_entries);
	to->event_entries = cpu_to_le32(pe->event_entries);
	to->marker_slots = cpu_to_le32(pe->marker_slots);
	to->window_pages = cpu_to_le32(pe->window_pages);
	to->job_key = cpu_to_le64(pe->job_key);
}

static void cmd_fill(struct angara_hw_cmd *to, const struct angara_cmd *cmd)
{
	u32 opcode = 0;

	memset(to, 0, sizeof(*to));
	switch (cmd->kind) {
	case ANGARA_CMD_SETUP:
		opcode = ANGARA_HW_SETUP;
		to->args[0] = cpu_to_le64(cmd->setup.table);
		to->args[1] = cpu_to_le64(cmd->setup.entries);
		break;
	case ANGARA_CMD_PE_CREATE:
		opcode = ANGARA_HW_PE_CREATE;
		pe_fill(&to->pe, &cmd->pe_create);
		break;
	case ANGARA_CMD_PE_RESET:
		opcode = ANGARA_HW_PE_RESET;
		to->args[0] = cpu_to_le64(cmd->pe_reset.index);
		to->args[1] = cpu_to_le64(cmd->pe_reset.generation);
		to->args[2] = cpu_to_le64(cmd->pe_reset.how);
		break;
	case ANGARA_CMD_MR_INVALIDATE:
		opcode = ANGARA_HW_MR_INVALIDATE;
		to->args[0] = cpu_to_le64(cmd->mr_invalidate.key);
		break;
	case ANGARA_CMD_WINDOW_SYNC:
		opcode = ANGARA_HW_WINDOW_SYNC;
		to->args[0] = cpu_to_le64(cmd->window_sync.index);
		break;
	case ANGARA_CMD_DOMAIN_INVALIDATE:
		opcode = ANGARA_HW_DOMAIN_INVALIDATE;
		to->args[0] = cpu_to_le64(cmd->domain_invalidate.domain);
		break;
	}
	to->id = cpu_to_le32(cmd->id);
	to->opcode = cpu_to_le32(opcode);
}

void emu_post(struct angara_hw *hw, const struct angara_cmd *cmd)
{
	struct emu_device *emu = to_emu(hw);

	cmd_fill(&emu->cmd[emu->prod++ % EMU_ADMIN_ENTRIES], cmd);
	/* Orders the command, and whatever it is about, before the index. */
	dma_wmb();
	writel(emu->prod, &emu->ctl->admin_prod);
	emu_ring(emu);
}

void emu_poll(struct angara_hw *hw)
{
	struct emu_device *emu = to_emu(hw);
	struct angara_hw_resp *resp;

	for (;;) {
		resp = &emu->resp[emu->seen % EMU_ADMIN_ENTRIES];
		if (le32_to_cpu(READ_ONCE(resp->valid)) != emu->seen + 1)
			break;
		dma_rmb();
		emu->seen++;
		angara_hw_answer(hw, le32_to_cpu(READ_ONCE(resp->id)),
				 le32_to_cpu(READ_ONCE(resp->generation)),
				 le32_to_cpu(READ_ONCE(resp->status)));
	}
}

void emu_admin_irq(struct angara_hw *hw, bool on)
{
	struct emu_device *emu = to_emu(hw);

	writel(!on, &emu->ctl->admin_quiet);
	/* Reading it back waits until it has arrived; what the device wrote before comes first. */
	if (on)
		readl(&emu->ctl->admin_quiet);
}
