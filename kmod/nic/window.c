// SPDX-License-Identifier: GPL-2.0-only
/*
 * Put window of a PE: host memory that its peers' puts land in, given page by page on request. A
 * page once committed stays until the PE ends, so faults look pages up without a lock.
 *
 * Pages, and the words that tell the device of them, are kept in leaves, which come with the first
 * page that is committed in their range: what isn't committed costs a word and a pointer for
 * each ANGARA_WINDOW_FANOUT pages.
 */
#include <linux/mm.h>
#include <linux/overflow.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "nic.h"
#include "trace.h"

#define FANOUT		ANGARA_WINDOW_FANOUT
#define LEAF_BYTES	((u64)FANOUT << ANGARA_HW_PAGE_SHIFT)

static_assert(FANOUT * sizeof(__le64) == ANGARA_HW_PAGE);

/* ---- leaves ---------------------------------------------------------------------------------- */

static void leaf_free(struct angara_device *adev, struct angara_window_leaf *leaf)
{
	angara_buf_free(adev, &leaf->table);
	kfree(leaf->pages);
	kfree(leaf);
}

static struct angara_window_leaf *leaf_alloc(struct angara_device *adev)
{
	struct angara_window_leaf *leaf;

	leaf = kzalloc(sizeof(*leaf), ANGARA_GFP_USER);
	if (!leaf)
		return NULL;
	leaf->pages = kcalloc(FANOUT, sizeof(*leaf->pages), ANGARA_GFP_USER);
	if (!leaf->pages || angara_buf_alloc(adev, &leaf->table, ANGARA_HW_PAGE)) {
		leaf_free(adev, leaf);
		return NULL;
	}
	return leaf;
}

static int page_alloc(struct angara_device *adev, struct angara_window_page *page)
{
	struct angara_buf buf;
	int ret = angara_buf_alloc(adev, &buf, ANGARA_HW_PAGE);

	if (ret)
		return ret;
	page->page = buf.page;
	page->dma = buf.dma;
	return 0;
}

/* If it is there. */
static void page_free(struct angara_device *adev, const struct angara_window_page *page)
{
	struct angara_buf buf = { page->page, page->dma, ANGARA_HW_PAGE };

	angara_buf_free(adev, &buf);
}

struct page *angara_window_page(const struct angara_window *window, unsigned long index)
{
	const struct angara_window_leaf *leaf;

	/* Pairs with the release of the leaf in window_publish(). */
	leaf = smp_load_acquire(&window->leaves[index / FANOUT]);
	if (!leaf)
		return NULL;
	/* Pairs with the release of the page there. */
	return smp_load_acquire(&leaf->pages[index % FANOUT].page);
}

/* ---- life ------------------------------------------------------------------------------------ */

static u32 leaves_count(u64 window_size)
{
	return DIV_ROUND_UP_ULL(window_size, LEAF_BYTES);
}

size_t angara_window_table_size(u64 window_size)
{
	return leaves_count(window_size) * sizeof(__le64);
}

/* The table is there. */
int angara_window_init(struct angara_pe *pe, u64 size)
{
	struct angara_window *window = &pe->window;

	window->size = size;
	window->nleaves = leaves_count(size);
	window->leaves = kcalloc(window->nleaves, sizeof(*window->leaves), ANGARA_GFP_USER);
	return window->leaves ? 0 : -ENOMEM;
}

void angara_window_cleanup(struct angara_pe *pe)
{
	struct angara_window *window = &pe->window;
	struct angara_device *adev = pe->adev;
	struct angara_window_leaf *leaf;
	u32 i, n;

	angara_buf_free(adev, &window->table);
	for (n = 0; window->leaves && n < window->nleaves; n++) {
		leaf = window->leaves[n];
		if (!leaf)
			continue;
		for (i = 0; i < FANOUT; i++)
			page_free(adev, &leaf->pages[i]);
		leaf_free(adev, leaf);
		cond_resched();
	}
	kfree(window->leaves);
	window->leaves = NULL;
	angara_count(adev, window_pages, -(s64)window->committed);
	window->committed = 0;
}

/* ---- commit ---------------------------------------------------------------------------------- */

/* What a commit adds: until all of it is there, nobody sees any. */
struct window_more {
	struct angara_window_page *pages;
	struct angara_window_leaf **leaves;
	u32 npages;
	u32 nleaves;
};

/* What of [first, last) isn't there. */
static void more_count(const struct angara_window *window, u32 first, u32 last,
		       struct window_more *more)
{
	u32 i;

	for (i = first; i < last; i++) {
		more->npages += !angara_window_page(window, i);
		if (!window->leaves[i / FANOUT] && (i == first || !(i % FANOUT)))
			more->nleaves++;
	}
}

/* What wasn't reached is NULL. */
static void more_free(struct angara_device *adev, struct window_more *more)
{
	u32 i;

	for (i = 0; more->pages && i < more->npages; i++) {
		page_free(adev, &more->pages[i]);
		cond_resched();
	}
	for (i = 0; more->leaves && i < more->nleaves && more->leaves[i]; i++)
		leaf_free(adev, more->leaves[i]);
	kvfree(more->pages);
	kfree(more->leaves);
}

/*
 * Is it still worth it? Memory that is charged to a small cgroup may take minutes, and whoever
 * removes the device waits for this.
 */
static int pe_check(const struct angara_pe *pe)
{
	/* Its job key may have been revoked: then the device doesn't know it. */
	if (!test_bit(ANGARA_PE_BIT_RUNNING, &pe->flags))
		return -ENODEV;
	return angara_device_check(pe->adev);
}

static int more_alloc(struct angara_pe *pe, struct window_more *more)
{
	struct angara_device *adev = pe->adev;
	int ret = 0;
	u32 i;

	more->pages = kvcalloc(more->npages, sizeof(*more->pages), ANGARA_GFP_USER);
	more->leaves = kcalloc(more->nleaves, sizeof(struct angara_window_leaf *), ANGARA_GFP_USER);
	if (!more->pages || !more->leaves)
		ret = -ENOMEM;
	for (i = 0; i < more->nleaves && !ret; i++) {
		more->leaves[i] = leaf_alloc(adev);
		ret = more->leaves[i] ? pe_check(pe) : -ENOMEM;
	}
	for (i = 0; i < more->npages && !ret; i++) {
		ret = fatal_signal_pending(current) ? -EINTR : pe_check(pe);
		if (!ret)
			ret = page_alloc(adev, &more->pages[i]);
		cond_resched();
	}
	if (ret)
		more_free(adev, more);
	return ret;
}

static int window_sync(struct angara_pe *pe)
{
	struct angara_cmd cmd = {
		.kind = ANGARA_CMD_WINDOW_SYNC,
		.window_sync.index = pe->index,
	};
	int ret = angara_admin_exec(pe->adev, &cmd, pe->generation);

	if (ret == -EIO)
		angara_device_fail(pe->adev, "it refused window memory");
	return ret && ret != -ENODEV ? -EIO : ret;
}

/* The device may read a word before it is told: what it points at is zero by then. */
static void window_publish(struct angara_pe *pe, u32 first, u32 last,
			   const struct window_more *more)
{
	const struct angara_hw_ops *ops = pe->adev->hw->ops;
	const struct angara_window_page *page = more->pages;
	struct angara_window_leaf *leaf, **next = more->leaves;
	struct angara_window *window = &pe->window;
	void *table = page_address(window->table.page);
	struct angara_window_page *entry;
	u32 i;

	dma_wmb();
	for (i = first; i < last; i++) {
		leaf = window->leaves[i / FANOUT];
		if (!leaf) {
			leaf = *next++;
			ops->window_set(table, i / FANOUT, leaf->table.dma);
			/* Pairs with the acquire in angara_window_page(). */
			smp_store_release(&window->leaves[i / FANOUT], leaf);
		}
		entry = &leaf->pages[i % FANOUT];
		if (entry->page)
			continue;
		entry->dma = page->dma;
		ops->window_set(page_address(leaf->table.page), i % FANOUT, page->dma);
		/* Pairs with the acquire in angara_window_page(). */
		smp_store_release(&entry->page, page->page);
		page++;
	}
}

static int window_commit(struct angara_pe *pe, u32 first, u32 last)
{
	struct window_more more = { };
	int ret;

	lockdep_assert_held(&pe->commit_lock);
	ret = pe_check(pe);
	if (ret)
		return ret;
	more_count(&pe->window, first, last, &more);
	if (!more.npages)
		return 0;
	ret = angara_pe_charge(pe, more.npages + more.nleaves);
	if (ret)
		return ret;
	ret = more_alloc(pe, &more);
	if (ret)
		goto uncharge;
	mutex_lock(&pe->dom->lock);
	ret = pe_check(pe);
	if (ret) {
		mutex_unlock(&pe->dom->lock);
		more_free(pe->adev, &more);
		goto uncharge;
	}
	window_publish(pe, first, last, &more);
	kvfree(more.pages);
	kfree(more.leaves);
	pe->window.committed += more.npages;
	angara_count(pe->adev, window_pages, more.npages);
	trace_angara_window_commit(pe, more.npages);
	ret = window_sync(pe);
	mutex_unlock(&pe->dom->lock);
	return ret;

uncharge:
	angara_pe_uncharge(pe, more.npages + more.nleaves);
	return ret;
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
	ret = mutex_lock_killable(&pe->commit_lock);
	if (ret)
		return ret;
	idx = srcu_read_lock(&pe->adev->srcu);
	ret = window_commit(pe, arg->offset >> ANGARA_HW_PAGE_SHIFT,
			    DIV_ROUND_UP_ULL(end, ANGARA_HW_PAGE));
	srcu_read_unlock(&pe->adev->srcu, idx);
	mutex_unlock(&pe->commit_lock);
	return ret;
}
