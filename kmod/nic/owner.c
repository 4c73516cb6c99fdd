// SPDX-License-Identifier: GPL-2.0-only
/*
 * Ownership by a process image. One struct angara_owner per mm, shared by all that it owns (and
 * by angara_memreg): it learns about the end of the mm (exit, exec) by an mmu_notifier, and lives
 * until its last object has gone, so that comparing mm pointers is safe.
 */
#include <linux/mmu_notifier.h>
#include <linux/mutex.h>
#include <linux/sched.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "nic.h"

/**
 * struct angara_owner - all objects of one mm
 * @mn:		holds the mm (mmgrab); its users are the objects
 * @lock:	@owned; held while release() callbacks run
 * @owned:	struct angara_owned
 */
struct angara_owner {
	struct mmu_notifier mn;
	struct mutex lock;	/* see above */
	struct list_head owned;
};

/* The mm ends. Its threads are gone: nobody can pass angara_owned_is_current() any more. */
static void owner_release(struct mmu_notifier *mn, struct mm_struct *mm)
{
	struct angara_owner *owner = container_of(mn, struct angara_owner, mn);
	struct angara_owned *owned;

	mutex_lock(&owner->lock);
	list_for_each_entry(owned, &owner->owned, node)
		owned->release(owned);
	mutex_unlock(&owner->lock);
}

static struct mmu_notifier *owner_alloc(struct mm_struct *mm)
{
	struct angara_owner *owner;

	owner = kzalloc(sizeof(*owner), GFP_KERNEL_ACCOUNT);
	if (!owner)
		return ERR_PTR(-ENOMEM);
	mutex_init(&owner->lock);
	INIT_LIST_HEAD(&owner->owned);
	return &owner->mn;
}

static void owner_free(struct mmu_notifier *mn)
{
	kfree(container_of(mn, struct angara_owner, mn));
}

static const struct mmu_notifier_ops owner_ops = {
	.release = owner_release,
	.alloc_notifier = owner_alloc,
	.free_notifier = owner_free,
};

static int owned_add(struct angara_owned *owned, void (*release)(struct angara_owned *owned),
		     bool first)
{
	struct angara_owner *owner;
	struct mmu_notifier *mn;

	if (!current->mm || (current->flags & PF_KTHREAD))
		return -EPERM;
	mn = mmu_notifier_get(&owner_ops, current->mm);
	if (IS_ERR(mn))
		return PTR_ERR(mn);
	owner = container_of(mn, struct angara_owner, mn);
	owned->owner = owner;
	owned->release = release;
	mutex_lock(&owner->lock);
	if (first)
		list_add(&owned->node, &owner->owned);
	else
		list_add_tail(&owned->node, &owner->owned);
	mutex_unlock(&owner->lock);
	return 0;
}

int angara_owned_add_first(struct angara_owned *owned, void (*release)(struct angara_owned *owned))
{
	return owned_add(owned, release, true);
}

int angara_owned_add(struct angara_owned *owned, void (*release)(struct angara_owned *owned))
{
	return owned_add(owned, release, false);
}
EXPORT_SYMBOL_GPL(angara_owned_add);

void angara_owned_del(struct angara_owned *owned)
{
	struct angara_owner *owner = owned->owner;

	mutex_lock(&owner->lock);
	list_del(&owned->node);
	mutex_unlock(&owner->lock);
	mmu_notifier_put(&owner->mn);
}
EXPORT_SYMBOL_GPL(angara_owned_del);

bool angara_owned_is_current(const struct angara_owned *owned)
{
	return owned->owner->mn.mm == current->mm;
}
EXPORT_SYMBOL_GPL(angara_owned_is_current);

struct mm_struct *angara_owned_mm(const struct angara_owned *owned)
{
	return owned->owner->mn.mm;
}
EXPORT_SYMBOL_GPL(angara_owned_mm);

/* Notifiers are freed after a grace period: not after the module. */
void angara_owner_exit(void)
{
	mmu_notifier_synchronize();
}
