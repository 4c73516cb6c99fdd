// SPDX-License-Identifier: GPL-2.0-only
/*
 * Admin queue: commands of the kernel, and their responses in any order.
 *
 * At most ANGARA_ADMIN_ENTRIES commands are without response, so neither ring overflows.
 * Interrupts are hints: who waits also looks. As long as everybody who waits only looks, they are
 * off, as they cost more than most answers take. A response is taken only by the command with its
 * id that is waiting, and only if it is about the same generation of the PE; others are counted and
 * dropped.
 */
#include <linux/delay.h>
#include <linux/jiffies.h>
#include <linux/ktime.h>

#include "nic.h"
#include "trace.h"

#define SPIN_NS		(30 * NSEC_PER_USEC)	/* a quick answer isn't worth a sleep */
#define SPIN_LOOKS	16			/* per reading of the clock: that may be slow */
#define LOOK_MS		4			/* look again when interrupts get lost */

/* A command without response; on the stack of who waits, in admin->pending under admin->lock. */
struct admin_wait {
	struct list_head node;
	u32 id;
	u32 opcode;
	u32 generation;
	u32 status;
	bool done;
};

int angara_admin_alloc(struct angara_device *adev)
{
	struct angara_admin *admin = &adev->admin;
	struct device *dev = &adev->pdev->dev;

	admin->cmd = dma_alloc_coherent(dev, ANGARA_ADMIN_ENTRIES * sizeof(*admin->cmd),
					&admin->cmd_dma, GFP_KERNEL);
	if (!admin->cmd)
		return -ENOMEM;
	admin->resp = dma_alloc_coherent(dev, ANGARA_ADMIN_ENTRIES * sizeof(*admin->resp),
					 &admin->resp_dma, GFP_KERNEL);
	if (!admin->resp) {
		dma_free_coherent(dev, ANGARA_ADMIN_ENTRIES * sizeof(*admin->cmd), admin->cmd,
				  admin->cmd_dma);
		admin->cmd = NULL;
		return -ENOMEM;
	}
	return 0;
}

void angara_admin_free(struct angara_device *adev)
{
	struct angara_admin *admin = &adev->admin;
	struct device *dev = &adev->pdev->dev;

	if (angara_device_must_leak(adev))
		return;
	dma_free_coherent(dev, ANGARA_ADMIN_ENTRIES * sizeof(*admin->resp), admin->resp,
			  admin->resp_dma);
	dma_free_coherent(dev, ANGARA_ADMIN_ENTRIES * sizeof(*admin->cmd), admin->cmd,
			  admin->cmd_dma);
	admin->resp = NULL;
	admin->cmd = NULL;
}

void angara_admin_restart(struct angara_device *adev)
{
	struct angara_admin *admin = &adev->admin;

	spin_lock_irq(&admin->lock);
	memset(admin->resp, 0, ANGARA_ADMIN_ENTRIES * sizeof(*admin->resp));
	admin->prod = 0;
	admin->seen = 0;
	admin->outstanding = 0;
	writel(!admin->sleepers, &adev->ctl->admin_quiet);
	spin_unlock_irq(&admin->lock);
}

static bool admin_post(struct angara_device *adev, struct angara_hw_cmd *cmd, struct admin_wait *w)
{
	struct angara_admin *admin = &adev->admin;
	bool room;

	spin_lock_irq(&admin->lock);
	room = admin->outstanding < ANGARA_ADMIN_ENTRIES;
	if (room) {
		w->id = admin->next_id++;
		cmd->id = cpu_to_le32(w->id);
		admin->cmd[admin->prod % ANGARA_ADMIN_ENTRIES] = *cmd;
		list_add_tail(&w->node, &admin->pending);
		admin->outstanding++;
		admin->prod++;
		/* Orders the command, and whatever it is about, before the index. */
		dma_wmb();
		writel(admin->prod, &adev->ctl->admin_prod);
		angara_hw_ring(adev);
	}
	spin_unlock_irq(&admin->lock);
	return room;
}

static void admin_take(struct angara_device *adev, u32 id, u32 status, u32 generation)
{
	struct angara_admin *admin = &adev->admin;
	struct admin_wait *w;

	lockdep_assert_held(&admin->lock);
	list_for_each_entry(w, &admin->pending, node) {
		if (w->id != id)
			continue;
		if (generation && generation != w->generation)
			break;
		list_del(&w->node);
		admin->outstanding--;
		w->status = status;
		/* Pairs with the acquire in admin_done(): then the waiter's stack is its own. */
		smp_store_release(&w->done, true);
		return;
	}
	angara_count(adev, admin_stale, 1);
	trace_angara_admin_stale(adev, id, generation);
}

void angara_admin_poll(struct angara_device *adev)
{
	struct angara_admin *admin = &adev->admin;
	struct angara_hw_resp *resp;
	unsigned long flags;
	bool any = false;

	spin_lock_irqsave(&admin->lock, flags);
	while (admin->resp) {
		resp = &admin->resp[admin->seen % ANGARA_ADMIN_ENTRIES];
		if (le32_to_cpu(READ_ONCE(resp->valid)) != admin->seen + 1)
			break;
		dma_rmb();
		admin_take(adev, le32_to_cpu(READ_ONCE(resp->id)),
			   le32_to_cpu(READ_ONCE(resp->status)),
			   le32_to_cpu(READ_ONCE(resp->generation)));
		admin->seen++;
		any = true;
	}
	spin_unlock_irqrestore(&admin->lock, flags);
	if (any)
		wake_up_all(&admin->wait);
}

static bool admin_done(struct angara_device *adev, const struct admin_wait *w)
{
	angara_admin_poll(adev);
	/* Pairs with the release in admin_take(). */
	return smp_load_acquire(&w->done);
}

/* With the interrupts on, what has been answered before is found by looking once more. */
static void admin_sleeper(struct angara_device *adev, bool begins)
{
	struct angara_admin *admin = &adev->admin;

	spin_lock_irq(&admin->lock);
	if (begins ? !admin->sleepers++ : !--admin->sleepers)
		writel(!begins && !READ_ONCE(adev->failed), &adev->ctl->admin_quiet);
	spin_unlock_irq(&admin->lock);
	/* Reading it back waits until it has arrived; what the device wrote before comes first. */
	if (begins)
		readl(&adev->ctl->admin_quiet);
}

static unsigned long admin_deadline(void)
{
	return jiffies + msecs_to_jiffies(angara_admin_timeout_ms) + 1;
}

/* Look for the response as long as a quick one takes. */
static bool admin_spin(struct angara_device *adev, const struct admin_wait *w)
{
	u64 end = ktime_get_ns() + SPIN_NS;
	unsigned int i;

	do {
		for (i = 0; i < SPIN_LOOKS; i++) {
			if (admin_done(adev, w))
				return true;
			cpu_relax();
		}
	} while (ktime_get_ns() < end);
	return false;
}

/*
 * Wait for the response. Returns false if there is none in time: the time begins again with each
 * answer to those that may have been before it, so that many callers don't make the device late.
 */
static bool admin_wait_done(struct angara_device *adev, struct admin_wait *w)
{
	struct angara_admin *admin = &adev->admin;
	unsigned long end = admin_deadline();
	u32 first = READ_ONCE(admin->seen), seen = first, now;
	bool late;

	if (admin_spin(adev, w))
		return true;
	admin_sleeper(adev, true);
	do {
		now = READ_ONCE(admin->seen);
		if (now != seen && now - first <= ANGARA_ADMIN_ENTRIES)
			end = admin_deadline();
		seen = now;
		late = time_after(jiffies, end) || READ_ONCE(adev->failed);
		wait_event_timeout(admin->wait, admin_done(adev, w) || READ_ONCE(adev->failed),
				   msecs_to_jiffies(LOOK_MS) + 1);
	} while (!late && !w->done);
	admin_sleeper(adev, false);

	/* It leaves the queue, but its place stays taken: the answer may still come. */
	spin_lock_irq(&admin->lock);
	if (!w->done)
		list_del(&w->node);
	spin_unlock_irq(&admin->lock);
	return w->done;
}

int angara_admin_exec(struct angara_device *adev, struct angara_hw_cmd *cmd, u32 generation)
{
	struct angara_admin *admin = &adev->admin;
	struct admin_wait w = {
		.opcode = le32_to_cpu(cmd->opcode),
		.generation = generation,
	};
	u64 start = trace_angara_admin_done_enabled() ? ktime_get_ns() : 0;
	bool posted = false;
	u32 seen;

	might_sleep();
	/* As long as the device answers, there will be room. */
	do {
		seen = READ_ONCE(admin->seen);
		wait_event_timeout(admin->wait,
				   READ_ONCE(adev->failed) || (posted = admin_post(adev, cmd, &w)),
				   msecs_to_jiffies(angara_admin_timeout_ms) + 1);
	} while (!posted && !READ_ONCE(adev->failed) && READ_ONCE(admin->seen) != seen);
	if (!posted && READ_ONCE(adev->failed))
		return -ENODEV;
	angara_count(adev, admin_commands, 1);
	if (!posted || !admin_wait_done(adev, &w)) {
		if (READ_ONCE(adev->failed))
			return -ENODEV;
		if (angara_hw_reads_ones(adev)) {
			angara_device_fail(adev, "it was pulled out");
			return -ENODEV;
		}
		angara_count(adev, admin_timeouts, 1);
		angara_device_fail(adev, "an admin command was not answered in time");
		return -ETIMEDOUT;
	}
	if (start)
		trace_angara_admin_done(adev, w.opcode, w.status, ktime_get_ns() - start);
	if (w.status != ANGARA_HW_OK) {
		angara_count(adev, admin_refused, 1);
		dev_warn_ratelimited(&adev->pdev->dev, "admin command %u refused: status %u\n",
				     w.opcode, w.status);
		return -EIO;
	}
	return 0;
}
