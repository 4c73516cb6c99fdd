// SPDX-License-Identifier: GPL-2.0-only
/*
 * Devices of angara_nic, as a client sees them. Removal ends all regions of the device, in whatever
 * file they are, and waits for registrations under way.
 */
#include <linux/slab.h>

#include "memreg.h"

/* ---- counts that an end waits for ------------------------------------------------------------ */

void memreg_users_init(struct memreg_users *users)
{
	users->count = 0;
	init_waitqueue_head(&users->wait);
}

void memreg_users_get(struct memreg_users *users)
{
	spin_lock(&users->wait.lock);
	users->count++;
	spin_unlock(&users->wait.lock);
}

void memreg_users_put(struct memreg_users *users)
{
	spin_lock(&users->wait.lock);
	if (!--users->count)
		wake_up_locked(&users->wait);
	spin_unlock(&users->wait.lock);
}

static bool users_gone(struct memreg_users *users)
{
	bool gone;

	spin_lock(&users->wait.lock);
	gone = !users->count;
	spin_unlock(&users->wait.lock);
	return gone;
}

void memreg_users_wait(struct memreg_users *users)
{
	wait_event(users->wait, users_gone(users));
}

void memreg_users_wait_bounded(struct memreg_users *users, unsigned long timeout)
{
	wait_event_timeout(users->wait, users_gone(users), timeout);
}

/* ---- devices --------------------------------------------------------------------------------- */

struct workqueue_struct *memreg_wq;
struct memreg_users memreg_retiring;	/* regions whose device has been removed */

static DEFINE_MUTEX(memreg_devices_lock);
static LIST_HEAD(memreg_devices);

static struct memreg_device *device_find(struct angara_device *adev)
{
	struct memreg_device *mdev;

	lockdep_assert_held(&memreg_devices_lock);
	list_for_each_entry(mdev, &memreg_devices, node) {
		if (mdev->adev == adev)
			return mdev;
	}
	return NULL;
}

static int memreg_add(struct angara_device *adev)
{
	struct memreg_device *mdev;

	mdev = kzalloc(sizeof(*mdev), GFP_KERNEL);
	if (!mdev)
		return -ENOMEM;
	mdev->adev = adev;
	mutex_init(&mdev->lock);
	INIT_LIST_HEAD(&mdev->regions);
	memreg_users_init(&mdev->users);
	mutex_lock(&memreg_devices_lock);
	list_add_tail(&mdev->node, &memreg_devices);
	mutex_unlock(&memreg_devices_lock);
	return 0;
}

/* A region that nobody ends yet, claimed; NULL if there is none. */
static struct memreg_region *device_claim_any(struct memreg_device *mdev)
{
	struct memreg_region *region, *found = NULL;

	mutex_lock(&mdev->lock);
	list_for_each_entry(region, &mdev->regions, node) {
		if (memreg_region_claim(region->file, region->handle, region)) {
			found = region;
			break;
		}
	}
	mutex_unlock(&mdev->lock);
	return found;
}

static void memreg_remove(struct angara_device *adev)
{
	struct memreg_region *region;
	struct memreg_device *mdev;

	mutex_lock(&memreg_devices_lock);
	mdev = device_find(adev);
	list_del(&mdev->node);
	mutex_unlock(&memreg_devices_lock);

	mutex_lock(&mdev->lock);
	mdev->dying = true;
	mutex_unlock(&mdev->lock);
	while ((region = device_claim_any(mdev)))
		memreg_region_retire(region);
	memreg_users_wait(&mdev->users);
	mutex_destroy(&mdev->lock);
	kfree(mdev);
	/* Who looks for what is left doesn't find what is only late; but nobody waits for users. */
	memreg_users_wait_bounded(&memreg_retiring, HZ);
}

static struct angara_client memreg_client = {
	.name = "angara_memreg",
	.add = memreg_add,
	.remove = memreg_remove,
};

int memreg_client_register(void)
{
	int ret;

	memreg_users_init(&memreg_retiring);
	memreg_wq = alloc_workqueue("angara_memreg", WQ_UNBOUND, 0);
	if (!memreg_wq)
		return -ENOMEM;
	ret = angara_client_register(&memreg_client);
	if (ret)
		destroy_workqueue(memreg_wq);
	return ret;
}

void memreg_client_unregister(void)
{
	angara_client_unregister(&memreg_client);
	destroy_workqueue(memreg_wq);
}

struct memreg_device *memreg_device_get(struct angara_device *adev)
{
	struct memreg_device *mdev;

	mutex_lock(&memreg_devices_lock);
	mdev = device_find(adev);
	if (mdev)
		memreg_users_get(&mdev->users);
	mutex_unlock(&memreg_devices_lock);
	return mdev ? mdev : ERR_PTR(-ENODEV);
}

void memreg_device_put(struct memreg_device *mdev)
{
	memreg_users_put(&mdev->users);
}
