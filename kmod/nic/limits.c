// SPDX-License-Identifier: GPL-2.0-only
/*
 * Limits: quotas of a user (real uid) over all devices, and pinned memory of an mm against
 * RLIMIT_MEMLOCK, as RDMA does. A user's record lives as long as a domain of his.
 */
#include <linux/capability.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uidgid.h>

#include "nic.h"

struct angara_user {
	struct list_head node;
	kuid_t uid;
	unsigned int refs;
	unsigned int used[ANGARA_RESOURCES_NUM];
};

static DEFINE_MUTEX(users_lock);
static LIST_HEAD(users);

static struct angara_user *user_find(kuid_t uid)
{
	struct angara_user *user;

	lockdep_assert_held(&users_lock);
	list_for_each_entry(user, &users, node) {
		if (uid_eq(user->uid, uid))
			return user;
	}
	return NULL;
}

struct angara_user *angara_user_get(kuid_t uid)
{
	struct angara_user *user;

	mutex_lock(&users_lock);
	user = user_find(uid);
	if (!user) {
		user = kzalloc(sizeof(*user), GFP_KERNEL_ACCOUNT);
		if (!user)
			goto unlock;
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
		WARN_ON(user->used[ANGARA_RESOURCE_PE] || user->used[ANGARA_RESOURCE_MR]);
		list_del(&user->node);
		kfree(user);
	}
	mutex_unlock(&users_lock);
}

int angara_user_charge(struct angara_user *user, enum angara_resource what)
{
	unsigned int limit = what == ANGARA_RESOURCE_PE ? angara_pes_per_user : angara_mrs_per_user;
	int ret = -EDQUOT;

	mutex_lock(&users_lock);
	if (user->used[what] < limit) {
		user->used[what]++;
		ret = 0;
	}
	mutex_unlock(&users_lock);
	return ret;
}

void angara_user_uncharge(struct angara_user *user, enum angara_resource what)
{
	mutex_lock(&users_lock);
	user->used[what]--;
	mutex_unlock(&users_lock);
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
