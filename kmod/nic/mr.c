// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory regions: the device's table of them, DMA mapping, and the order of things.
 *
 *   create:  map, page list, entry, dma_wmb(), key
 *   destroy: key cleared, MR_INVALIDATE acknowledged, unmap, (client) unpin
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

struct angara_mr {
	struct angara_domain *dom;
	struct sg_table *sgt;
	enum dma_data_direction dir;
	u32 index;
	u64 key;
	u64 length;
	struct angara_pagelist list;
};

int angara_mr_table_alloc(struct angara_device *adev)
{
	struct device *dev = &adev->pdev->dev;

	for (;;) {
		adev->mr_table = dma_alloc_coherent(dev, adev->mr_entries * sizeof(*adev->mr_table),
						    &adev->mr_table_dma, TABLE_GFP);
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
	size_t size = adev->mr_entries * sizeof(*adev->mr_table);

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

static int mr_map(struct angara_mr *mr)
{
	struct angara_device *adev = mr->dom->adev;
	struct device *dev = &adev->pdev->dev;
	int ret;

	ret = angara_device_check_dma(adev);
	if (ret)
		return ret;
	if (dma_map_sgtable(dev, mr->sgt, mr->dir, MAP_ATTRS))
		return -ENOMEM;
	/* One stands for all: where some could be bounced the check above fails, or this. */
	ret = -EOPNOTSUPP;
	if (!angara_dma_is_coherent(adev, sg_dma_address(mr->sgt->sgl))) {
		angara_count(adev, bounce_refused, 1);
		goto unmap;
	}
	ret = angara_pagelist_build(adev, &mr->list, mr->sgt, mr->length);
	if (ret)
		goto unmap;
	return 0;

unmap:
	dma_unmap_sgtable(dev, mr->sgt, mr->dir, MAP_ATTRS);
	return ret;
}

static void mr_unmap(struct angara_mr *mr)
{
	struct angara_device *adev = mr->dom->adev;

	angara_pagelist_free(adev, &mr->list);
	dma_unmap_sgtable(&adev->pdev->dev, mr->sgt, mr->dir, MAP_ATTRS);
}

static u64 key_new(u32 index)
{
	u64 key;

	do {
		key = get_random_u64() << ANGARA_HW_KEY_INDEX_BITS | index;
	} while (!(key >> ANGARA_HW_KEY_INDEX_BITS));
	return key;
}

static void mr_publish(struct angara_mr *mr, u32 access)
{
	struct angara_hw_mr *entry = &mr->dom->adev->mr_table[mr->index];

	entry->length = cpu_to_le64(mr->length);
	entry->list = cpu_to_le64(mr->list.root);
	entry->first = cpu_to_le64(mr->list.first);
	entry->domain = cpu_to_le32(mr->dom->number);
	entry->access = cpu_to_le32(access);
	entry->npages = cpu_to_le64(mr->list.npages);
	entry->page_shift = mr->list.page_shift;
	entry->levels = mr->list.levels;
	dma_wmb();
	WRITE_ONCE(entry->key, cpu_to_le64(mr->key));
	/* Before any word that tells somebody the key. */
	wmb();
}

/* The device forgets the region, or has failed after this. */
static void mr_invalidate(struct angara_mr *mr)
{
	struct angara_device *adev = mr->dom->adev;
	struct angara_hw_cmd cmd = {
		.opcode = cpu_to_le32(ANGARA_HW_MR_INVALIDATE),
		.args = { cpu_to_le64(mr->key) },
	};

	/* admin_post() orders it before the command. */
	WRITE_ONCE(adev->mr_table[mr->index].key, 0);
	if (angara_admin_exec(adev, &cmd, 0) == -EIO)
		angara_device_fail(adev, "it refused to invalidate a region");
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
	mr->sgt = sgt;
	mr->length = length;
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
	ret = mr_map(mr);
	if (ret)
		goto free_index;

	angara_domain_hold(dom);
	atomic_inc(&adev->mr_used);
	angara_count(adev, mrs_created, 1);
	info->key = mr->key;
	info->page_shift = mr->list.page_shift;
	mr_publish(mr, access);
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

int angara_mr_destroy(struct angara_mr *mr)
{
	struct angara_domain *dom = mr->dom;
	struct angara_device *adev = dom->adev;
	int ret = 0;

	mr_invalidate(mr);
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
