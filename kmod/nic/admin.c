// SPDX-License-Identifier: GPL-2.0-only
/*
 * Commands to the device, and their answers in any order.
 *
 * At most as many are without answer as the device's queue holds. Interrupts are hints: who waits
 * also looks. As long as everybody who waits only looks, they are off, as they cost more than
 * most answers take. An answer is taken only by the command with its id that is waiting, and only
 * if it is about the same generation of the PE; others are counted and dropped.
 */
#include <linux/delay.h>
#include <linux/jiffies.h>
#include <linux/ktime.h>

#include "nic.h"
#include "trace.h"

#define SPIN_NS		(30 * NSEC_PER_USEC)	/* a quick answer isn't worth a sleep */
#define SPIN_LOOKS	16			/* per reading of the clock: that may be slow */
#define LOOK_MS		4			/* look again when interrupts get lost */

/* A command without answer; on the stack of who waits, in admin->pending under admin->lock. */
struct admin_wait {
	struct list_head node;
	u32 id;
	enum angara_cmd_kind kind;
	u32 generation;
	u32 status;
	bool done;
};

void angara_admin_init(struct angara_device *adev)
{
	struct angara_admin *admin = &adev->admin;

	spin_lock_init(&admin->lock);
	INIT_LIST_HEAD(&admin->pending);
	init_waitqueue_head(&admin->wait);
}

void angara_admin_restart(struct angara_device *adev)
{
	const struct angara_hw_ops *ops = adev->hw->ops;
	struct angara_admin *admin = &adev->admin;

	spin_lock_irq(&admin->lock);
	admin->outstanding = 0;
	ops->admin_start(adev->hw);
	ops->admin_irq(adev->hw, admin->sleepers);
	spin_unlock_irq(&admin->lock);
}

static bool admin_post(struct angara_device *adev, struct angara_cmd *cmd, struct admin_wait *w)
{
	struct angara_admin *admin = &adev->admin;
	bool room;

	spin_lock_irq(&admin->lock);
	room = admin->outstanding < admin->depth;
	if (room) {
		w->id = admin->next_id++;
		cmd->id = w->id;
		list_add_tail(&w->node, &admin->pending);
		admin->outstanding++;
		adev->hw->ops->post(adev->hw, cmd);
	}
	spin_unlock_irq(&admin->lock);
	return room;
}

void angara_hw_answer(struct angara_hw *hw, u32 id, u32 generation, u32 status)
{
	struct angara_device *adev = hw->adev;
	struct angara_admin *admin = &adev->admin;
	struct admin_wait *w;

	lockdep_assert_held(&admin->lock);
	admin->answers++;
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
	unsigned long flags;
	u32 before;
	bool any;

	spin_lock_irqsave(&admin->lock, flags);
	before = admin->answers;
	adev->hw->ops->poll(adev->hw);
	any = admin->answers != before;
	spin_unlock_irqrestore(&admin->lock, flags);
	if (any)
		wake_up_all(&admin->wait);
}

static bool admin_done(struct angara_device *adev, const struct admin_wait *w)
{
	angara_admin_poll(adev);
	/* Pairs with the release in angara_hw_answer(). */
	return smp_load_acquire(&w->done);
}

/* With the interrupts on, what has been answered before is found by looking once more. */
static void admin_sleeper(struct angara_device *adev, bool begins)
{
	struct angara_admin *admin = &adev->admin;
	bool change;

	spin_lock_irq(&admin->lock);
	change = begins ? !admin->sleepers++ : !--admin->sleepers;
	/* One that has failed may be out of reach. */
	if (change && !READ_ONCE(adev->failed))
		adev->hw->ops->admin_irq(adev->hw, begins);
	spin_unlock_irq(&admin->lock);
}

static unsigned long admin_deadline(void)
{
	return jiffies + msecs_to_jiffies(angara_admin_timeout_ms) + 1;
}

/* Look for the answer as long as a quick one takes. */
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
 * Wait for the answer. Returns false if there is none in time: the time begins again with each
 * answer to those that may have been before it, so that many callers don't make the device late.
 */
static bool admin_wait_done(struct angara_device *adev, struct admin_wait *w)
{
	struct angara_admin *admin = &adev->admin;
	unsigned long end = admin_deadline();
	u32 first = READ_ONCE(admin->answers), seen = first, now;
	bool late;

	if (admin_spin(adev, w))
		return true;
	admin_sleeper(adev, true);
	do {
		now = READ_ONCE(admin->answers);
		if (now != seen && now - first <= admin->depth)
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

int angara_admin_exec(struct angara_device *adev, struct angara_cmd *cmd, u32 generation)
{
	struct angara_admin *admin = &adev->admin;
	struct admin_wait w = {
		.kind = cmd->kind,
		.generation = generation,
	};
	u64 start = trace_angara_admin_done_enabled() ? ktime_get_ns() : 0;
	bool posted = false;
	u32 seen;

	might_sleep();
	/* As long as the device answers, there will be room. */
	do {
		seen = READ_ONCE(admin->answers);
		wait_event_timeout(admin->wait,
				   READ_ONCE(adev->failed) || (posted = admin_post(adev, cmd, &w)),
				   msecs_to_jiffies(angara_admin_timeout_ms) + 1);
	} while (!posted && !READ_ONCE(adev->failed) && READ_ONCE(admin->answers) != seen);
	if (!posted && READ_ONCE(adev->failed))
		return -ENODEV;
	angara_count(adev, admin_commands, 1);
	if (!posted || !admin_wait_done(adev, &w)) {
		if (READ_ONCE(adev->failed))
			return -ENODEV;
		if (adev->hw->ops->reads_ones(adev->hw)) {
			angara_device_fail(adev, "it was pulled out");
			return -ENODEV;
		}
		angara_count(adev, admin_timeouts, 1);
		angara_device_fail(adev, "an admin command was not answered in time");
		return -ETIMEDOUT;
	}
	if (start)
		trace_angara_admin_done(adev, w.kind, w.status, ktime_get_ns() - start);
	if (w.status) {
		angara_count(adev, admin_refused, 1);
		dev_warn_ratelimited(&adev->pdev->dev, "admin command %u refused: status %u\n",
				     w.kind, w.status);
		return -EIO;
	}
	return 0;
}
