// SPDX-License-Identifier: GPL-2.0-only
/*
 * Limits: quotas of a user (see user_kuid()), and pinned memory of an mm against RLIMIT_MEMLOCK, as
 * RDMA does. A user has a record per device, which lives as long as a domain of his.
 *
 * A quota that the administrator has set holds for everybody. Those that he hasn't are there so
 * that one user can't take a device, or all memory, from the others: a part of what there is, not
 * for who has CAP_SYS_RESOURCE.
 */
#include <linux/capability.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/sched/signal.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/uidgid.h>
#include <linux/user_namespace.h>

#include "nic.h"

#define DEFAULT_PART	4	/* a quarter */

struct angara_user {
	struct list_head node;
	struct angara_device *adev;
	kuid_t uid;
	unsigned int refs;
	unsigned long used[ANGARA_RESOURCES_NUM];
};

static DEFINE_MUTEX(users_lock);
static LIST_HEAD(users);

/* ---- users ----------------------------------------------------------------------------------- */

static struct angara_user *user_find(const struct angara_device *adev, kuid_t uid)
{
	struct angara_user *user;

	lockdep_assert_held(&users_lock);
	list_for_each_entry(user, &users, node) {
		if (user->adev == adev && uid_eq(user->uid, uid))
			return user;
	}
	return NULL;
}

/*
 * Who pays: the real uid. In a user namespace, who owns the outermost one: there he has as many
 * uids as he likes.
 */
static kuid_t user_kuid(void)
{
	const struct user_namespace *ns = current_user_ns();
	kuid_t uid = current_uid();

	for (; ns != &init_user_ns; ns = ns->parent)
		uid = ns->owner;
	return uid;
}

struct angara_user *angara_user_get(struct angara_device *adev)
{
	kuid_t uid = user_kuid();
	struct angara_user *user;

	mutex_lock(&users_lock);
	user = user_find(adev, uid);
	if (!user) {
		user = kzalloc(sizeof(*user), GFP_KERNEL_ACCOUNT);
		if (!user)
			goto unlock;
		user->adev = adev;
		user->uid = uid;
		list_add(&user->node, &users);
	}
	user->refs++;
unlock:
	mutex_unlock(&users_lock);
	return user;
}

void angara_user_put(struct angara_user *user)
{
	mutex_lock(&users_lock);
	if (!--user->refs) {
		/* Pages that were leaked on purpose are still there. */
		WARN_ON(user->used[ANGARA_RESOURCE_PE] || user->used[ANGARA_RESOURCE_MR]);
		list_del(&user->node);
		kfree(user);
	}
	mutex_unlock(&users_lock);
}

/* ---- quotas ---------------------------------------------------------------------------------- */

/* What the administrator has set (0: nothing), and what there is: of a device, memory of all. */
static unsigned long quota_set(enum angara_resource what)
{
	switch (what) {
	case ANGARA_RESOURCE_PE:
		return angara_pes_per_user;
	case ANGARA_RESOURCE_MR:
		return angara_mrs_per_user;
	default:
		return (u64)angara_mem_mb_per_user * SZ_1M >> PAGE_SHIFT;
	}
}

static unsigned long quota_whole(const struct angara_device *adev, enum angara_resource what)
{
	switch (what) {
	case ANGARA_RESOURCE_PE:
		return adev->pe_max;
	case ANGARA_RESOURCE_MR:
		return adev->mr_entries;
	default:
		return totalram_pages();
	}
}

/* Memory is that of all devices. */
static unsigned long user_used(const struct angara_user *user, enum angara_resource what)
{
	const struct angara_user *other;
	unsigned long used = 0;

	if (what != ANGARA_RESOURCE_PAGE)
		return user->used[what];
	list_for_each_entry(other, &users, node) {
		if (uid_eq(other->uid, user->uid))
			used += other->used[what];
	}
	return used;
}

static bool quota_allows(const struct angara_user *user, enum angara_resource what,
			 unsigned long count)
{
	unsigned long used = user_used(user, what) + count;
	unsigned long limit = quota_set(what);

	if (limit)
		return used <= limit;
	return used <= max(quota_whole(user->adev, what) / DEFAULT_PART, 1UL) ||
	       capable(CAP_SYS_RESOURCE);
}

static int user_charge(struct angara_user *user, enum angara_resource what, unsigned long count)
{
	int ret = -EDQUOT;

	mutex_lock(&users_lock);
	if (quota_allows(user, what, count)) {
		user->used[what] += count;
		ret = 0;
	}
	mutex_unlock(&users_lock);
	return ret;
}

static void user_uncharge(struct angara_user *user, enum angara_resource what, unsigned long count)
{
	mutex_lock(&users_lock);
	user->used[what] -= count;
	mutex_unlock(&users_lock);
}

int angara_user_charge(struct angara_user *user, enum angara_resource what)
{
	return user_charge(user, what, 1);
}

void angara_user_uncharge(struct angara_user *user, enum angara_resource what)
{
	user_uncharge(user, what, 1);
}

/* ---- memory ---------------------------------------------------------------------------------- */

int angara_pe_charge(struct angara_pe *pe, unsigned long pages)
{
	struct mm_struct *mm = angara_owned_mm(&pe->dom->owned);
	int ret;

	ret = angara_pinned_charge(mm, pages);
	if (ret)
		return ret;
	ret = user_charge(pe->dom->user, ANGARA_RESOURCE_PAGE, pages);
	if (ret) {
		angara_pinned_uncharge(mm, pages);
		angara_count(pe->adev, quota_refused, 1);
		return ret;
	}
	pe->charged += pages;
	return 0;
}

void angara_pe_uncharge(struct angara_pe *pe, unsigned long pages)
{
	pe->charged -= pages;
	user_uncharge(pe->dom->user, ANGARA_RESOURCE_PAGE, pages);
	angara_pinned_uncharge(angara_owned_mm(&pe->dom->owned), pages);
}

int angara_pinned_charge(struct mm_struct *mm, unsigned long pages)
{
	unsigned long limit = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;
	u64 pinned = atomic64_add_return(pages, &mm->pinned_vm);

	if (pinned > limit && !capable(CAP_IPC_LOCK)) {
		atomic64_sub(pages, &mm->pinned_vm);
		return -ENOMEM;
	}
	return 0;
}
EXPORT_SYMBOL_GPL(angara_pinned_charge);

void angara_pinned_uncharge(struct mm_struct *mm, unsigned long pages)
{
	atomic64_sub(pages, &mm->pinned_vm);
}
EXPORT_SYMBOL_GPL(angara_pinned_uncharge);
