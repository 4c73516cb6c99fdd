// SPDX-License-Identifier: GPL-2.0-only
/*
 * Regions: registration, and their end by whoever claims it. See memreg.h for the order of things.
 */
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/overflow.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

#include "memreg.h"

#define PIN_TRIES	4

/* ---- making ---------------------------------------------------------------------------------- */

/*
 * Pin what is mapped now, or know that it isn't: an invalidation that began before the word was
 * cleared is waited for, a later one sets the word. Pinning itself may invalidate (it breaks
 * copy-on-write), hence the second try; who remaps memory while registering it gets a stale
 * region.
 */
static int region_pin(struct memreg_region *region)
{
	unsigned int tries;
	int ret;

	for (tries = 1;; tries++) {
		WRITE_ONCE(*region->stale, 0);
		/* Pairs with the one in memreg_invalidate(). */
		smp_mb();
		mmu_interval_read_begin(&region->notifier);
		ret = memreg_pin(region);
		if (ret || !READ_ONCE(*region->stale) || tries == PIN_TRIES)
			return ret;
		memreg_unpin(region);
		memreg_count(pin_repeated, 1);
	}
}

/* Pin [addr, addr + length) of the caller, with a notifier and its handle's stale word. */
static int region_attach(struct memreg_region *region)
{
	struct memreg_file *file = region->file;
	struct mm_struct *mm = current->mm;
	int ret;

	ret = xa_alloc(&file->regions, &region->handle, XA_ZERO_ENTRY,
		       XA_LIMIT(0, ANGARA_MR_HANDLES_MAX - 1), GFP_KERNEL_ACCOUNT);
	if (ret)
		return ret == -EBUSY ? -ENOSPC : ret;
	ret = -ENOMEM;
	region->stale = memreg_stale_word(file, region->handle);
	if (!region->stale)
		goto erase_handle;
	ret = angara_pinned_charge(mm, region->npages);
	if (ret)
		goto erase_handle;
	ret = mmu_interval_notifier_insert(&region->notifier, mm, region->addr, region->length,
					   &memreg_notifier_ops);
	if (ret)
		goto uncharge;
	ret = region_pin(region);
	if (ret)
		goto remove_notifier;
	return 0;

remove_notifier:
	mmu_interval_notifier_remove(&region->notifier);
uncharge:
	angara_pinned_uncharge(mm, region->npages);
erase_handle:
	xa_erase(&file->regions, region->handle);
	return ret;
}

/*
 * Undo region_attach() and free the region. @leak: the device may still reach the pages; then
 * they, the charge, and the region with its scatter list stay.
 */
static void region_detach(struct memreg_region *region, bool leak)
{
	struct memreg_file *file = region->file;

	mmu_interval_notifier_remove(&region->notifier);
	xa_erase(&file->regions, region->handle);
	if (leak) {
		memreg_count(leaked_pages, region->npages);
		return;
	}
	memreg_unpin(region);
	angara_pinned_uncharge(angara_owned_mm(&file->owned), region->npages);
	kfree(region);
}

/* From here others may end the region. -ENODEV: the device is being removed. */
static int region_publish(struct memreg_region *region)
{
	struct memreg_device *mdev = region->mdev;
	struct memreg_file *file = region->file;
	int ret = -ENODEV;

	mutex_lock(&mdev->lock);
	if (!mdev->dying) {
		list_add_tail(&region->node, &mdev->regions);
		memreg_users_get(&file->users);
		/* Can't fail: the slot is there. */
		xa_store(&file->regions, region->handle, region, GFP_KERNEL);
		ret = 0;
	}
	mutex_unlock(&mdev->lock);
	return ret;
}

/* ---- end ------------------------------------------------------------------------------------- */

/* Give a claimed region back. False: its device is being removed, and it stays claimed. */
static bool region_unclaim(struct memreg_region *region)
{
	struct memreg_device *mdev = region->mdev;
	struct memreg_file *file = region->file;
	bool dying;

	mutex_lock(&mdev->lock);
	dying = mdev->dying;
	if (!dying)
		/* Can't fail: the slot is there. */
		xa_store(&file->regions, region->handle, region, GFP_KERNEL);
	mutex_unlock(&mdev->lock);
	return !dying;
}

bool memreg_region_claim(struct memreg_file *file, u32 handle, struct memreg_region *region)
{
	/* The handle stays reserved. No allocation: the slot is there. */
	return xa_cmpxchg(&file->regions, handle, region, XA_ZERO_ENTRY, GFP_KERNEL) == region;
}

/* The device forgets a claimed region, and isn't needed any more. */
static int region_leave(struct memreg_region *region)
{
	struct memreg_device *mdev = region->mdev;
	int ret;

	ret = angara_mr_destroy(region->mr);
	mutex_lock(&mdev->lock);
	list_del(&region->node);
	mutex_unlock(&mdev->lock);
	memreg_count(deregistered, 1);
	memreg_device_put(mdev);
	return ret;
}

int memreg_region_destroy(struct memreg_region *region)
{
	struct memreg_file *file = region->file;
	int ret;

	ret = region_leave(region);
	region_detach(region, ret);
	memreg_users_put(&file->users);
	return ret;
}

static void retire_work(struct work_struct *work)
{
	struct memreg_region *region = container_of(work, struct memreg_region, retire_work);
	struct memreg_file *file = region->file;

	region_detach(region, region->leaks);
	memreg_users_put(&file->users);
	memreg_users_put(&memreg_retiring);
}

void memreg_region_retire(struct memreg_region *region)
{
	region->leaks = region_leave(region);
	memreg_users_get(&memreg_retiring);
	INIT_WORK(&region->retire_work, retire_work);
	queue_work(memreg_wq, &region->retire_work);
}

void memreg_file_drain(struct memreg_file *file)
{
	struct memreg_region *region;
	unsigned long handle;

	xa_for_each(&file->regions, handle, region) {
		if (memreg_region_claim(file, handle, region))
			memreg_region_destroy(region);
		cond_resched();
	}
	/* Those that the removal of a device has claimed. */
	memreg_users_wait(&file->users);
}

/* What was loaded is only compared until it is claimed. NULL: there is none. */
static struct memreg_region *region_claim_handle(struct memreg_file *file, u32 handle)
{
	struct memreg_region *region = xa_load(&file->regions, handle);

	return region && memreg_region_claim(file, handle, region) ? region : NULL;
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* The end of a region of that key, unless others have ended it. */
static void region_drop(struct memreg_file *file, u32 handle, u64 key)
{
	struct memreg_region *region;

	mutex_lock(&file->call_lock);
	region = region_claim_handle(file, handle);
	/* Another one has that handle now. */
	if (region && region->key != key && region_unclaim(region))
		region = NULL;
	mutex_unlock(&file->call_lock);
	if (region)
		memreg_region_destroy(region);
}

static int reg_check(const struct angara_ioc_mr_reg *arg)
{
	u64 end;

	if (arg->key || arg->handle || arg->page_shift)
		return -EINVAL;
	if (arg->reserved || arg->access & ~MEMREG_ACCESS_ALL || !arg->length ||
	    check_add_overflow(arg->addr, arg->length, &end) || end > (ULONG_MAX & PAGE_MASK))
		return -EINVAL;
	return arg->type == ANGARA_MR_HOST ? 0 : -EOPNOTSUPP;
}

/* What pinning needs to know about the device, which isn't held meanwhile. */
static int region_prepare(struct memreg_region *region, struct angara_domain *dom)
{
	struct memreg_device *mdev = memreg_device_get(angara_domain_device(dom));
	int ret;

	if (IS_ERR(mdev))
		return PTR_ERR(mdev);
	ret = angara_device_check_dma(mdev->adev);
	region->max_segment = angara_device_max_segment(mdev->adev);
	memreg_device_put(mdev);
	return ret;
}

/* Let the device know an attached region; then others may end it. On error it is gone. */
static int region_create(struct memreg_region *region, struct angara_domain *dom,
			 struct angara_ioc_mr_reg *arg)
{
	struct memreg_device *mdev = memreg_device_get(angara_domain_device(dom));
	struct angara_mr_info info;
	bool leak = false;
	int ret;

	if (IS_ERR(mdev)) {
		ret = PTR_ERR(mdev);
		goto detach;
	}
	region->mdev = mdev;
	region->mr = angara_mr_create(dom, &region->sgt.sgt, region->length, arg->access, &info);
	if (IS_ERR(region->mr)) {
		ret = PTR_ERR(region->mr);
		goto put_device;
	}
	region->key = info.key;
	arg->key = info.key;
	arg->handle = region->handle;
	arg->page_shift = info.page_shift;
	ret = region_publish(region);
	if (ret) {
		leak = angara_mr_destroy(region->mr);
		goto put_device;
	}
	/* The region is a user of the device until its end. */
	memreg_count(registered, 1);
	return 0;

put_device:
	memreg_device_put(mdev);
detach:
	region_detach(region, leak);
	return ret;
}

/*
 * The device is held while it is talked to, not while user memory is waited for: that is pinned
 * before, and answered to when the region may be ended by others.
 */
int memreg_reg_ioctl(struct angara_call *call)
{
	struct memreg_file *file = call->file->private_data;
	struct angara_ioc_mr_reg *arg = call->arg;
	struct memreg_region *region;
	struct angara_domain *dom;
	int ret;

	ret = reg_check(arg);
	if (ret)
		return ret;
	dom = angara_domain_get(arg->domain_fd);
	if (IS_ERR(dom))
		return PTR_ERR(dom);
	region = kzalloc(sizeof(*region), GFP_KERNEL_ACCOUNT);
	if (!region) {
		ret = -ENOMEM;
		goto put_domain;
	}
	region->file = file;
	region->addr = untagged_addr(arg->addr);
	region->length = arg->length;
	region->npages = (PAGE_ALIGN(region->addr + region->length) >> PAGE_SHIFT) -
			 (region->addr >> PAGE_SHIFT);
	region->writable = arg->access & MEMREG_ACCESS_WRITE;
	ret = region_prepare(region, dom);
	if (!ret)
		ret = region_attach(region);
	if (ret) {
		kfree(region);
		goto put_domain;
	}
	ret = region_create(region, dom, arg);
	if (!ret) {
		ret = angara_call_reply(call);
		if (ret)
			region_drop(file, arg->handle, arg->key);
	}
put_domain:
	angara_domain_put(dom);
	return ret;
}

int memreg_dereg_ioctl(struct angara_call *call)
{
	struct memreg_file *file = call->file->private_data;
	struct angara_ioc_mr_dereg *arg = call->arg;
	struct memreg_region *region;

	if (arg->reserved)
		return -EINVAL;
	mutex_lock(&file->call_lock);
	region = region_claim_handle(file, arg->handle);
	mutex_unlock(&file->call_lock);
	return region ? memreg_region_destroy(region) : -ENOENT;
}

/* Of a claimed region. */
static int region_check(struct memreg_region *region, struct angara_ioc_mr_check *arg)
{
	unsigned long first, end;

	if (arg->length > region->length || arg->offset > region->length - arg->length)
		return -ERANGE;
	if (!READ_ONCE(*region->stale)) {
		arg->stale = 0;
	} else if (arg->length == region->length) {
		arg->stale = memreg_stale_check(region);
	} else {
		first = offset_in_page(region->addr) + arg->offset;
		end = PAGE_ALIGN(first + arg->length) >> PAGE_SHIFT;
		first >>= PAGE_SHIFT;
		arg->stale = memreg_stale_check_part(region, first, end - first);
	}
	return 0;
}

int memreg_check_ioctl(struct angara_call *call)
{
	struct memreg_file *file = call->file->private_data;
	struct angara_ioc_mr_check *arg = call->arg;
	struct memreg_region *region;
	bool is_back;
	int ret;

	if (arg->stale || !arg->length)
		return -EINVAL;
	ret = mutex_lock_killable(&file->call_lock);
	if (ret)
		return ret;
	region = region_claim_handle(file, arg->handle);
	if (!region) {
		mutex_unlock(&file->call_lock);
		return -ENOENT;
	}
	ret = region_check(region, arg);
	is_back = region_unclaim(region);
	mutex_unlock(&file->call_lock);
	if (!is_back) {
		/* The removal has passed it by, and waits. */
		memreg_region_destroy(region);
		return -ENODEV;
	}
	return ret ? ret : angara_call_reply(call);
}
