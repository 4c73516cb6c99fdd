// SPDX-License-Identifier: GPL-2.0-only
/*
 * Put window of a PE: host memory that its peers' puts land in, given page by page on request. A
 * page once committed stays until the PE ends, so faults look pages up without a lock.
 */
#include <linux/mm.h>
#include <linux/overflow.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "nic.h"
#include "trace.h"

int angara_window_init(struct angara_pe *pe, u64 size)
{
	struct angara_window *window = &pe->window;
	struct device *dev = &pe->adev->pdev->dev;

	window->size = size;
	window->npages = size >> ANGARA_HW_PAGE_SHIFT;
	window->bufs = kvcalloc(window->npages, sizeof(*window->bufs), GFP_KERNEL_ACCOUNT);
	if (!window->bufs)
		return -ENOMEM;
	window->table = dma_alloc_coherent(dev, window->npages * sizeof(__le64),
					   &window->table_dma, GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	return window->table ? 0 : -ENOMEM;
}

void angara_window_cleanup(struct angara_pe *pe)
{
	struct angara_window *window = &pe->window;
	struct angara_device *adev = pe->adev;
	u32 i;

	if (!window->bufs)
		return;
	if (window->table)
		dma_free_coherent(&adev->pdev->dev, window->npages * sizeof(__le64), window->table,
				  window->table_dma);
	for (i = 0; i < window->npages && window->committed; i++) {
		angara_buf_free(adev, &window->bufs[i]);
		cond_resched();
	}
	kvfree(window->bufs);
	window->bufs = NULL;
	angara_count(adev, window_pages, -(s64)window->committed);
	angara_pinned_uncharge(angara_owned_mm(&pe->dom->owned), window->committed);
	window->committed = 0;
}

/* Pages of [first, last) that aren't there. */
static u32 window_missing(const struct angara_window *window, u32 first, u32 last)
{
	u32 i, missing = 0;

	for (i = first; i < last; i++)
		missing += !window->bufs[i].page;
	return missing;
}

/*
 * Get the missing pages of [first, last), in an array of their own: until all are there, nobody
 * sees any.
 */
static struct angara_buf *window_alloc(struct angara_pe *pe, u32 missing)
{
	struct angara_buf *bufs;
	int ret = -ENOMEM;
	u32 i;

	bufs = kvcalloc(missing, sizeof(*bufs), GFP_KERNEL);
	if (!bufs)
		return ERR_PTR(-ENOMEM);
	for (i = 0; i < missing; i++) {
		ret = fatal_signal_pending(current) ? -EINTR :
		      angara_buf_alloc(pe->adev, &bufs[i], ANGARA_HW_PAGE);
		if (ret)
			goto free_bufs;
		cond_resched();
	}
	return bufs;

free_bufs:
	while (i--)
		angara_buf_free(pe->adev, &bufs[i]);
	kvfree(bufs);
	return ERR_PTR(ret);
}

static int window_sync(struct angara_pe *pe)
{
	struct angara_hw_cmd cmd = {
		.opcode = cpu_to_le32(ANGARA_HW_WINDOW_SYNC),
		.args = { cpu_to_le64(pe->index) },
	};
	int ret = angara_admin_exec(pe->adev, &cmd, pe->generation);

	if (ret == -EIO)
		angara_device_fail(pe->adev, "it refused window memory");
	return ret && ret != -ENODEV ? -EIO : ret;
}

static void window_publish(struct angara_pe *pe, u32 first, u32 last, const struct angara_buf *bufs)
{
	struct angara_window *window = &pe->window;
	u32 i;

	/* The device may read an entry before it is told: the pages are zero by then. */
	dma_wmb();
	for (i = first; i < last; i++) {
		if (window->bufs[i].page)
			continue;
		window->bufs[i].dma = bufs->dma;
		window->bufs[i].size = bufs->size;
		WRITE_ONCE(window->table[i], cpu_to_le64(bufs->dma | 1));
		/* Pairs with the acquire in mmap.c. */
		smp_store_release(&window->bufs[i].page, bufs->page);
		bufs++;
	}
}

static int window_commit(struct angara_pe *pe, u32 first, u32 last)
{
	struct mm_struct *mm = angara_owned_mm(&pe->dom->owned);
	struct angara_buf *bufs;
	u32 missing;
	int ret;

	lockdep_assert_held(&pe->dom->lock);
	missing = window_missing(&pe->window, first, last);
	if (!missing)
		return 0;
	ret = angara_pinned_charge(mm, missing);
	if (ret)
		return ret;
	bufs = window_alloc(pe, missing);
	if (IS_ERR(bufs)) {
		angara_pinned_uncharge(mm, missing);
		return PTR_ERR(bufs);
	}
	window_publish(pe, first, last, bufs);
	pe->window.committed += missing;
	angara_count(pe->adev, window_pages, missing);
	kvfree(bufs);
	trace_angara_window_commit(pe, missing);
	return window_sync(pe);
}

/* Of the PE's file. */
int angara_window_commit_ioctl(struct angara_call *call)
{
	struct angara_pe *pe = call->file->private_data;
	struct angara_ioc_window_commit *arg = call->arg;
	int ret, idx;
	u64 end;

	if (!arg->length)
		return -EINVAL;
	if (check_add_overflow(arg->offset, arg->length, &end) || end > pe->window.size)
		return -ERANGE;
	idx = srcu_read_lock(&pe->adev->srcu);
	mutex_lock(&pe->dom->lock);
	ret = angara_device_check(pe->adev);
	if (!ret)
		ret = window_commit(pe, arg->offset >> ANGARA_HW_PAGE_SHIFT,
				    DIV_ROUND_UP_ULL(end, ANGARA_HW_PAGE));
	mutex_unlock(&pe->dom->lock);
	srcu_read_unlock(&pe->adev->srcu, idx);
	return ret;
}
