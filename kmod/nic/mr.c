// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory regions: the device's table of them, DMA mapping, and the order of things.
 *
 *   create:  mapped (DMA, page list), published (entry, key): live
 *   suspend: the entry says so, invalidated, unmapped: suspended
 *   resume:  mapped, published (entry, state), invalidated: live
 *   destroy: key cleared, invalidated: dead; unmapped, (client) unpinned
 *
 * Invalidated: MR_INVALIDATE is acknowledged, and nothing that the device knew of the entry and its
 * page list is used any more. The end of a domain's mm makes all its regions dead by one command.
 *
 * A key is the index of the entry and 40 random bits; the entry is reused under another key only
 * after the invalidation of the old one.
 */
#include <linux/dma-mapping.h>
#include <linux/random.h>
#include <linux/slab.h>

#include "nic.h"
#include "trace.h"

#define ACCESS_WRITE \
	(ANGARA_MR_REMOTE_WRITE | ANGARA_MR_REMOTE_ATOMIC | ANGARA_MR_LOCAL_WRITE)

/* There is nothing to synchronise: what would need it is refused. */
#define MAP_ATTRS	DMA_ATTR_SKIP_CPU_SYNC

/*
 * The table is contiguous. Memory is moved for it, but nobody is killed: it may be smaller as well.
 */
#define TABLE_GFP	(GFP_KERNEL | __GFP_RETRY_MAYFAIL | __GFP_NOWARN)

enum mr_state {
	MR_LIVE,	/* mapped; the device may use it */
	MR_SUSPENDED,	/* not mapped; the device holds operations that meet it */
	MR_DEAD,	/* the device doesn't know it; mapped if it was live before */
};

struct angara_mr {
	struct angara_domain *dom;
	struct list_head node;	/* in dom->mrs, until it is destroyed */
	enum mr_state state;	/* changed by its client, or with dom->mr_sem held for writing */
	bool mapped;		/* sgt and list are */
	struct sg_table *sgt;
	enum dma_data_direction dir;
	u32 access;
	u32 index;
	u64 key;
	u64 length;
	struct angara_pagelist list;
};

static size_t mr_table_size(const struct angara_device *adev)
{
	return adev->mr_entries * adev->hw->ops->mr_entry_size;
}

static const struct angara_hw_ops *mr_ops(const struct angara_mr *mr)
{
	return mr->dom->adev->hw->ops;
}

/* What the device reads of a region. */
static void *mr_entry(const struct angara_mr *mr)
{
	return mr->dom->adev->mr_table + mr->index * mr_ops(mr)->mr_entry_size;
}

int angara_mr_table_alloc(struct angara_device *adev)
{
	struct device *dev = &adev->pdev->dev;

	for (;;) {
		adev->mr_table = dma_alloc_coherent(dev, mr_table_size(adev), &adev->mr_table_dma,
						    TABLE_GFP);
		if (adev->mr_table)
			return 0;
		if (adev->mr_entries < 32)
			return -ENOMEM;
		adev->mr_entries /= 2;
		dev_warn(dev, "memory is fragmented: %u regions only\n", adev->mr_entries);
	}
}

void angara_mr_table_free(struct angara_device *adev)
{
	size_t size = mr_table_size(adev);

	if (angara_device_must_leak(adev)) {
		angara_count(adev, leaked_pages, PAGE_ALIGN(size) / PAGE_SIZE);
		return;
	}
	dma_free_coherent(&adev->pdev->dev, size, adev->mr_table, adev->mr_table_dma);
	adev->mr_table = NULL;
}

unsigned int angara_device_max_segment(struct angara_device *adev)
{
	return dma_get_max_seg_size(&adev->pdev->dev);
}
EXPORT_SYMBOL_GPL(angara_device_max_segment);

/* With bounce buffers possible there is a largest mapping. */
int angara_device_check_dma(struct angara_device *adev)
{
	if (dma_max_mapping_size(&adev->pdev->dev) == SIZE_MAX)
		return 0;
	angara_count(adev, bounce_refused, 1);
	return -EOPNOTSUPP;
}
EXPORT_SYMBOL_GPL(angara_device_check_dma);

static int mr_map(struct angara_mr *mr, struct sg_table *sgt)
{
	struct angara_device *adev = mr->dom->adev;
	struct device *dev = &adev->pdev->dev;
	int ret;

	ret = angara_device_check_dma(adev);
	if (ret)
		return ret;
	if (dma_map_sgtable(dev, sgt, mr->dir, MAP_ATTRS))
		return -ENOMEM;
	/* One stands for all: where some could be bounced the check above fails, or this. */
	ret = -EOPNOTSUPP;
	if (!angara_dma_is_coherent(adev, sg_dma_address(sgt->sgl))) {
		angara_count(adev, bounce_refused, 1);
		goto unmap;
	}
	ret = adev->hw->ops->list_build(adev->hw, &mr->list, sgt, 0, mr->length);
	if (ret)
		goto unmap;
	mr->sgt = sgt;
	mr->mapped = true;
	return 0;

unmap:
	dma_unmap_sgtable(dev, sgt, mr->dir, MAP_ATTRS);
	return ret;
}

static void mr_unmap(struct angara_mr *mr)
{
	struct angara_device *adev = mr->dom->adev;

	if (!mr->mapped)
		return;
	adev->hw->ops->list_free(adev->hw, &mr->list);
	dma_unmap_sgtable(&adev->pdev->dev, mr->sgt, mr->dir, MAP_ATTRS);
	mr->mapped = false;
}

static u64 key_new(u32 index)
{
	u64 key;

	do {
		key = get_random_u64() << ANGARA_KEY_INDEX_BITS | index;
	} while (!(key >> ANGARA_KEY_INDEX_BITS));
	return key;
}

/* The entry is free, or says that the region is suspended. */
static void mr_publish(struct angara_mr *mr)
{
	const struct angara_mr_entry entry = {
		.key = mr->key,
		.length = mr->length,
		.domain = mr->dom->number,
		.access = mr->access,
		.list = &mr->list,
	};

	mr_ops(mr)->mr_write(mr_entry(mr), &entry);
}

/*
 * The device forgets what it knew of the entry (or of all of the domain's), or has failed after
 * this. The command comes after what was written there.
 */
static void invalidate(struct angara_device *adev, struct angara_cmd *cmd)
{
	if (angara_admin_exec(adev, cmd, 0) == -EIO)
		angara_device_fail(adev, "it refused to forget a region");
}

static void mr_invalidate(struct angara_mr *mr)
{
	struct angara_cmd cmd = {
		.kind = ANGARA_CMD_MR_INVALIDATE,
		.mr_invalidate.key = mr->key,
	};

	invalidate(mr->dom->adev, &cmd);
}

static void domain_invalidate(struct angara_domain *dom)
{
	struct angara_cmd cmd = {
		.kind = ANGARA_CMD_DOMAIN_INVALIDATE,
		.domain_invalidate.domain = dom->number,
	};

	invalidate(dom->adev, &cmd);
}

/* No access is in flight or will start after this, or the device has failed. */
static void mr_kill(struct angara_mr *mr)
{
	struct angara_domain *dom = mr->dom;

	down_read(&dom->mr_sem);
	if (mr->state != MR_DEAD) {
		mr_ops(mr)->mr_clear(mr_entry(mr));
		mr_invalidate(mr);
		mr->state = MR_DEAD;
	}
	spin_lock(&dom->mr_lock);
	list_del(&mr->node);
	spin_unlock(&dom->mr_lock);
	up_read(&dom->mr_sem);
}

/*
 * Called in an SRCU read section. Where there are regions they keep the device's tables, as nobody
 * gets them off the list meanwhile.
 */
void angara_domain_kill_mrs(struct angara_domain *dom)
{
	struct angara_mr *mr;

	down_write(&dom->mr_sem);
	if (!list_empty(&dom->mrs)) {
		list_for_each_entry(mr, &dom->mrs, node)
			mr_ops(mr)->mr_clear(mr_entry(mr));
		domain_invalidate(dom);
		list_for_each_entry(mr, &dom->mrs, node)
			mr->state = MR_DEAD;
	}
	up_write(&dom->mr_sem);
}

/*
 * The caller keeps the device from being removed (it is a client between add() and remove()), so
 * no read section is needed.
 */
struct angara_mr *angara_mr_create(struct angara_domain *dom, struct sg_table *sgt, u64 length,
				   u32 access, struct angara_mr_info *info)
{
	struct angara_device *adev = dom->adev;
	struct angara_mr *mr;
	int ret;

	ret = angara_device_check(adev);
	if (ret)
		return ERR_PTR(ret);
	mr = kzalloc(sizeof(*mr), GFP_KERNEL_ACCOUNT);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	mr->dom = dom;
	mr->length = length;
	mr->access = access;
	mr->dir = access & ACCESS_WRITE ? DMA_BIDIRECTIONAL : DMA_TO_DEVICE;
	ret = angara_user_charge(dom->user, ANGARA_RESOURCE_MR);
	if (ret) {
		angara_count(adev, quota_refused, 1);
		goto free_mr;
	}
	ret = ida_alloc_max(&adev->mr_ida, adev->mr_entries - 1, GFP_KERNEL);
	if (ret < 0)
		goto uncharge;
	mr->index = ret;
	mr->key = key_new(mr->index);
	ret = mr_map(mr, sgt);
	if (ret)
		goto free_index;

	angara_domain_hold(dom);
	atomic_inc(&adev->mr_used);
	angara_count(adev, mrs_created, 1);
	info->key = mr->key;
	info->page_shift = mr->list.page_shift;
	down_read(&dom->mr_sem);
	spin_lock(&dom->mr_lock);
	list_add_tail(&mr->node, &dom->mrs);
	spin_unlock(&dom->mr_lock);
	mr_publish(mr);
	up_read(&dom->mr_sem);
	trace_angara_mr_create(dom, mr->index, length, access, mr->list.page_shift,
			       mr->list.levels);
	return mr;

free_index:
	ida_free(&adev->mr_ida, mr->index);
uncharge:
	angara_user_uncharge(dom->user, ANGARA_RESOURCE_MR);
free_mr:
	kfree(mr);
	return ERR_PTR(ret);
}
EXPORT_SYMBOL_GPL(angara_mr_create);

int angara_mr_suspend(struct angara_mr *mr)
{
	struct angara_domain *dom = mr->dom;
	int ret = 0;

	down_read(&dom->mr_sem);
	if (mr->state == MR_LIVE) {
		mr_ops(mr)->mr_suspend(mr_entry(mr));
		mr_invalidate(mr);
		mr->state = MR_SUSPENDED;
	}
	up_read(&dom->mr_sem);
	if (angara_device_must_leak(dom->adev))
		ret = -EIO;
	else
		mr_unmap(mr); /* suspended, or dead meanwhile */
	return ret;
}
EXPORT_SYMBOL_GPL(angara_mr_suspend);

int angara_mr_resume(struct angara_mr *mr, struct sg_table *sgt)
{
	struct angara_domain *dom = mr->dom;
	int ret = 0;

	down_read(&dom->mr_sem);
	if (mr->state == MR_SUSPENDED) {
		ret = angara_device_check(dom->adev);
		if (!ret)
			ret = mr_map(mr, sgt);
		if (!ret) {
			mr_publish(mr);
			mr_invalidate(mr);
			mr->state = MR_LIVE;
		}
	}
	up_read(&dom->mr_sem);
	return ret;
}
EXPORT_SYMBOL_GPL(angara_mr_resume);

int angara_mr_destroy(struct angara_mr *mr)
{
	struct angara_domain *dom = mr->dom;
	struct angara_device *adev = dom->adev;
	int ret = 0;

	mr_kill(mr);
	if (angara_device_must_leak(adev)) {
		/* The mapping, the list and the entry stay, as the pages do. */
		angara_count(adev, leaked_mrs, 1);
		angara_count(adev, leaked_pages, mr->list.num_nodes);
		ret = -EIO;
	} else {
		mr_unmap(mr);
		ida_free(&adev->mr_ida, mr->index);
	}
	angara_user_uncharge(dom->user, ANGARA_RESOURCE_MR);
	atomic_dec(&adev->mr_used);
	angara_count(adev, mrs_destroyed, 1);
	trace_angara_mr_destroy(dom, mr->index, ret);
	if (!ret)
		kfree(mr);
	angara_domain_put(dom);
	return ret;
}
EXPORT_SYMBOL_GPL(angara_mr_destroy);
