// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pinning of host memory, in chunks of one page of pointers, so that its cost in kernel memory
 * and the time between looks at signals are bounded.
 *
 * What is refused is decided by the pages that were pinned, not by a look at VMAs before: those may
 * change in between.
 */
#include <linux/hugetlb_inline.h>
#include <linux/memremap.h>
#include <linux/mm.h>
#include <linux/sched/signal.h>
#include <linux/version.h>

#include "memreg.h"

#define CHUNK	(PAGE_SIZE / sizeof(struct page *))

/*
 * Before 6.2, a long-term pin for reading of a private mapping keeps the page of now (zero page,
 * page cache, shared after fork) while the first write gives the process another one. Pinning for
 * writing breaks that first; it can't be had on a mapping that is shared and read-only, where it
 * isn't needed. FOLL_FORCE also passes over a lack of rights to read, which is looked for here.
 * Huge pages that may not be written can't be forced: they are pinned as they are, and if they can
 * be written later, and another page comes in, the region is stale. No test at compile time can
 * tell: the change is in get_user_pages' behaviour.
 */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 2, 0)
static bool read_breaks_cow(struct vm_area_struct *vma)
{
	return !(vma->vm_flags & (VM_SHARED | VM_MAYSHARE)) &&
	       (vma->vm_flags & VM_WRITE || !is_vm_hugetlb_page(vma));
}

static int read_flags(unsigned long addr, unsigned long *end, unsigned int *flags)
{
	struct mm_struct *mm = current->mm;
	struct vm_area_struct *vma;
	int ret = -EFAULT;

	mmap_read_lock(mm);
	vma = find_vma(mm, addr);
	if (vma && vma->vm_start <= addr && vma->vm_flags & VM_READ) {
		*end = min(*end, vma->vm_end);
		*flags = read_breaks_cow(vma) ? FOLL_FORCE | FOLL_WRITE : 0;
		ret = 0;
	}
	mmap_read_unlock(mm);
	return ret;
}
#else
static int read_flags(unsigned long addr, unsigned long *end, unsigned int *flags)
{
	*flags = 0;
	return 0;
}
#endif

/*
 * Pages whose owner must know of writes (shared file pages), or that may vanish (DAX). Anonymous
 * memory, shmem and hugetlb remain.
 */
static bool page_is_refused(struct page *page, bool writable)
{
	if (is_zone_device_page(page))
		return true;
	return writable && !angara_page_is_plain(page);
}

/* Newer kernels refuse writable shared file pages themselves, as a fault. */
static int explain_fault(unsigned long addr, bool writable)
{
	struct mm_struct *mm = current->mm;
	struct vm_area_struct *vma;
	int ret = -EFAULT;

	mmap_read_lock(mm);
	vma = find_vma(mm, addr);
	if (writable && vma && vma->vm_start <= addr && vma->vm_file &&
	    (vma->vm_flags & (VM_SHARED | VM_WRITE)) == (VM_SHARED | VM_WRITE) &&
	    !(vma->vm_flags & (VM_IO | VM_PFNMAP)))
		ret = -EOPNOTSUPP;
	mmap_read_unlock(mm);
	return ret;
}

/* Pin up to a chunk of [addr, end). Returns the number of pages. */
static long pin_chunk(unsigned long addr, unsigned long end, bool writable, struct page **pages)
{
	unsigned int flags = FOLL_WRITE;
	long pinned, i;
	int ret;

	if (!writable) {
		ret = read_flags(addr, &end, &flags);
		if (ret)
			return ret;
	}
	pinned = pin_user_pages_fast(addr, min_t(unsigned long, CHUNK, (end - addr) >> PAGE_SHIFT),
				     flags | FOLL_LONGTERM, pages);
	if (pinned <= 0)
		return !pinned || pinned == -EFAULT ? explain_fault(addr, writable) : pinned;
	for (i = 0; i < pinned; i++) {
		if (page_is_refused(pages[i], writable)) {
			unpin_user_pages(pages, pinned);
			return -EOPNOTSUPP;
		}
	}
	return pinned;
}

/* Append pinned pages to the scatter list; only the first has an offset. */
static int append_chunk(struct memreg_region *region, struct page **pages, unsigned long pinned,
			unsigned long done)
{
	unsigned int offset = done ? 0 : offset_in_page(region->addr);

	return sg_alloc_append_table_from_pages(&region->sgt, pages, pinned, offset,
						(pinned << PAGE_SHIFT) - offset,
						region->max_segment,
						region->npages - done - pinned,
						GFP_KERNEL_ACCOUNT);
}

/* For a single page that is dirty already, as most are, there is a quicker way. */
static void unpin_segment(struct page *page, unsigned long pages, bool writable)
{
	if (pages == 1 && (!writable || PageDirty(page)))
		unpin_user_page(page);
	else
		unpin_user_page_range_dirty_lock(page, pages, writable);
}

/* sg_next() of one that isn't the last, without the call: the loop does little else. */
static struct scatterlist *segment_next(struct scatterlist *sg)
{
	sg++;
	return unlikely(sg_is_chain(sg)) ? sg_chain_ptr(sg) : sg;
}

/* What is on the scatter list, which may be less than the region. */
static void unpin_all(struct memreg_region *region)
{
	struct scatterlist *sg = region->sgt.sgt.sgl;
	unsigned int left = region->sgt.sgt.orig_nents;
	unsigned long pages, done = 0;

	if (!sg)
		return;
	while (left--) {
		pages = DIV_ROUND_UP(sg->offset + sg->length, PAGE_SIZE);
		unpin_segment(sg_page(sg), pages, region->writable);
		done += pages;
		if (done >= CHUNK) {
			done = 0;
			cond_resched();
		}
		if (left)
			sg = segment_next(sg);
	}
	sg_free_append_table(&region->sgt);
	memset(&region->sgt, 0, sizeof(region->sgt));
}

int memreg_pin(struct memreg_region *region)
{
	unsigned long start = region->addr & PAGE_MASK;
	unsigned long end = start + (region->npages << PAGE_SHIFT);
	unsigned long done = 0;
	struct page **pages;
	long pinned;
	int ret;

	if (region->npages > INT_MAX)
		return -ENOMEM;
	pages = (struct page **)__get_free_page(GFP_KERNEL_ACCOUNT);
	if (!pages)
		return -ENOMEM;
	while (done < region->npages) {
		pinned = fatal_signal_pending(current) ? -EINTR :
			 pin_chunk(start + (done << PAGE_SHIFT), end, region->writable, pages);
		if (pinned < 0) {
			ret = pinned;
			goto unpin;
		}
		ret = append_chunk(region, pages, pinned, done);
		if (ret) {
			unpin_user_pages(pages, pinned);
			goto unpin;
		}
		done += pinned;
		cond_resched();
	}
	free_page((unsigned long)pages);
	memreg_count(pinned_pages, region->npages);
	return 0;

unpin:
	free_page((unsigned long)pages);
	unpin_all(region);
	return ret;
}

/* Compare a chunk with what the iterator comes to. Nothing is faulted in. */
static bool chunk_is_same(struct sg_page_iter *iter, struct page **pages, unsigned long addr,
			  int count)
{
	bool same = true;
	int got, i;

	got = get_user_pages_fast_only(addr, count, 0, pages);
	for (i = 0; i < got; i++) {
		same = same && __sg_page_iter_next(iter) && sg_page_iter_page(iter) == pages[i];
		put_page(pages[i]);
	}
	return same && got == count;
}

bool memreg_pages_same(struct memreg_region *region, unsigned long first, unsigned long count)
{
	unsigned long addr = (region->addr & PAGE_MASK) + (first << PAGE_SHIFT), done = 0, some;
	struct sg_page_iter iter;
	struct page **pages;
	bool same = true;

	pages = (struct page **)__get_free_page(GFP_KERNEL_ACCOUNT);
	if (!pages)
		return false;
	__sg_page_iter_start(&iter, region->sgt.sgt.sgl, region->sgt.sgt.orig_nents, first);
	for (; same && done < count; done += some) {
		some = min_t(unsigned long, CHUNK, count - done);
		same = !fatal_signal_pending(current) &&
		       chunk_is_same(&iter, pages, addr + (done << PAGE_SHIFT), some);
		cond_resched();
	}
	free_page((unsigned long)pages);
	return same;
}

void memreg_unpin(struct memreg_region *region)
{
	unpin_all(region);
	memreg_count(pinned_pages, -(s64)region->npages);
}
