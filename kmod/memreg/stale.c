// SPDX-License-Identifier: GPL-2.0-only
/*
 * Stale words: what tells the owner that the addresses of a region may mean other memory now.
 * Pages of them are allocated when first needed, by a registration or a fault of the owner's
 * read-only mapping, and stay until the file ends.
 */
#include <linux/fs.h>
#include <linux/mm.h>

#include "memreg.h"

static struct page *stale_page(struct memreg_file *file, unsigned long index)
{
	struct page *page = READ_ONCE(file->stale[index]);
	struct page *new;

	if (page)
		return page;
	new = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO);
	if (!new)
		return NULL;
	page = cmpxchg(&file->stale[index], NULL, new);
	if (!page)
		return new;
	__free_page(new);
	return page;
}

u32 *memreg_stale_word(struct memreg_file *file, u32 handle)
{
	struct page *page = stale_page(file, handle / MEMREG_STALE_WORDS);

	return page ? (u32 *)page_address(page) + handle % MEMREG_STALE_WORDS : NULL;
}

void memreg_stale_free(struct memreg_file *file)
{
	unsigned int i;

	for (i = 0; i < MEMREG_STALE_PAGES; i++) {
		if (file->stale[i])
			put_page(file->stale[i]);
	}
}

/*
 * Called for what happens to the page tables of a region, in any context that may hold any lock
 * of the memory manager's. Changes of protection keep the pages; the rest may not.
 */
static bool memreg_invalidate(struct mmu_interval_notifier *notifier,
			      const struct mmu_notifier_range *range, unsigned long seq)
{
	struct memreg_region *region = container_of(notifier, struct memreg_region, notifier);

	switch (range->event) {
	case MMU_NOTIFY_PROTECTION_VMA:
	case MMU_NOTIFY_PROTECTION_PAGE:
	case MMU_NOTIFY_SOFT_DIRTY:
		return true;
	default:
		break;
	}
	/* First: who clears the word after this waits for the end of the invalidation. */
	mmu_interval_set_seq(notifier, seq);
	/* Pairs with the one in region_pin(). */
	smp_mb();
	if (!xchg(region->stale, MEMREG_STALE))
		memreg_count(stale, 1);
	return true;
}

const struct mmu_interval_notifier_ops memreg_notifier_ops = {
	.invalidate = memreg_invalidate,
};

/*
 * An invalidation that began before the word was changed is waited for, a later one changes it
 * back. The owner sees a word that isn't 0 until it is known that nothing has changed.
 */
bool memreg_stale_check(struct memreg_region *region)
{
	if (cmpxchg(region->stale, MEMREG_STALE, MEMREG_CHECKED) != MEMREG_STALE)
		return READ_ONCE(*region->stale);
	/* The cmpxchg() pairs with the barrier in memreg_invalidate(). */
	mmu_interval_read_begin(&region->notifier);
	if (!memreg_pages_same(region, 0, region->npages)) {
		cmpxchg(region->stale, MEMREG_CHECKED, MEMREG_STALE);
		return true;
	}
	if (cmpxchg(region->stale, MEMREG_CHECKED, 0) != MEMREG_CHECKED)
		return true;
	memreg_count(stale_cleared, 1);
	return false;
}

bool memreg_stale_check_part(struct memreg_region *region, unsigned long first,
			     unsigned long count)
{
	/* Invalidations that have begun. */
	mmu_interval_read_begin(&region->notifier);
	return !memreg_pages_same(region, first, count);
}

/* ---- the owner's mapping --------------------------------------------------------------------- */

static vm_fault_t stale_vma_fault(struct vm_fault *vmf)
{
	struct memreg_file *file = vmf->vma->vm_private_data;
	struct page *page;

	if (vmf->pgoff >= MEMREG_STALE_PAGES)
		return VM_FAULT_SIGBUS;
	page = stale_page(file, vmf->pgoff);
	if (!page)
		return VM_FAULT_OOM;
	get_page(page);
	vmf->page = page;
	return 0;
}

static const struct vm_operations_struct stale_vma_ops = {
	.fault = stale_vma_fault,
};

int memreg_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct memreg_file *mfile = file->private_data;

	if (!angara_owned_is_current(&mfile->owned))
		return -EPERM;
	/* A file that was opened for reading only has no VM_SHARED. */
	if (!(vma->vm_flags & VM_MAYSHARE) || vma->vm_pgoff ||
	    vma->vm_end - vma->vm_start > MEMREG_STALE_PAGES * PAGE_SIZE)
		return -EINVAL;
	if (vma->vm_flags & VM_WRITE)
		return -EACCES;
	/* VM_IO: madvise(MADV_DOFORK) must not give it to a child. */
	vm_flags_set(vma, VM_IO | VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP);
	vm_flags_clear(vma, VM_MAYWRITE);
	vma->vm_private_data = mfile;
	vma->vm_ops = &stale_vma_ops;
	return 0;
}
