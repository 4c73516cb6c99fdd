// SPDX-License-Identifier: GPL-2.0-only
/*
 * User mappings of a PE. ->mmap() only checks and sets flags; faults map, in an SRCU read section
 * that has seen the device there. So remove() can zap everything: the VMA of a fault is known to
 * unmap_mapping_range(), that of an ->mmap() under way isn't.
 *
 * After removal, reads give zeroes (the status page: ANGARA_PE_GONE), and writes hit a page that
 * belongs to the PE, so that no user sees what another writes.
 */
#include <linux/fs.h>
#include <linux/mm.h>

#include "nic.h"

#define PART_SHIFT	(ANGARA_MMAP_SHIFT - PAGE_SHIFT)

/* Shown instead of a status page. */
static struct page *gone_page;

int angara_mmap_init(void)
{
	gone_page = alloc_page(GFP_KERNEL | __GFP_ZERO);
	if (!gone_page)
		return -ENOMEM;
	angara_status_gone(gone_page);
	return 0;
}

void angara_mmap_exit(void)
{
	__free_page(gone_page);
}

/* Bytes of a part, or 0 if there is no such part. */
static u64 part_size(const struct angara_pe *pe, unsigned long part)
{
	switch (part) {
	case ANGARA_MMAP_DOORBELL:
	case ANGARA_MMAP_STATUS:
		return PAGE_SIZE;
	case ANGARA_MMAP_CMD:
		return pe->cmd.size;
	case ANGARA_MMAP_EVENT:
		return pe->event.size;
	case ANGARA_MMAP_MARKER:
		return pe->marker.size;
	case ANGARA_MMAP_PIO:
		return pe->adev->pio_bytes;
	case ANGARA_MMAP_WINDOW:
		return pe->window.size;
	default:
		return 0;
	}
}

static bool part_is_ro(unsigned long part)
{
	return part == ANGARA_MMAP_STATUS || part == ANGARA_MMAP_EVENT ||
	       part == ANGARA_MMAP_MARKER;
}

/* Page frame at a page of a part; false: nothing is there. */
static bool part_pfn(const struct angara_pe *pe, unsigned long part, unsigned long page,
		     unsigned long *pfn)
{
	const struct angara_device *adev = pe->adev;
	struct page *window;

	switch (part) {
	case ANGARA_MMAP_DOORBELL:
		*pfn = PHYS_PFN(adev->doorbell_phys) + pe->index;
		return true;
	case ANGARA_MMAP_PIO:
		*pfn = PHYS_PFN(adev->pio_phys + (u64)pe->index * adev->pio_bytes) + page;
		return true;
	case ANGARA_MMAP_STATUS:
		*pfn = page_to_pfn(pe->status.page);
		return true;
	case ANGARA_MMAP_CMD:
		*pfn = page_to_pfn(pe->cmd.page) + page;
		return true;
	case ANGARA_MMAP_EVENT:
		*pfn = page_to_pfn(pe->event.page) + page;
		return true;
	case ANGARA_MMAP_MARKER:
		*pfn = page_to_pfn(pe->marker.page) + page;
		return true;
	default:
		window = angara_window_page(&pe->window, page);
		if (!window)
			return false;
		*pfn = page_to_pfn(window);
		return true;
	}
}

static unsigned long gone_pfn(const struct angara_pe *pe, unsigned long part)
{
	if (part == ANGARA_MMAP_STATUS)
		return page_to_pfn(gone_page);
	return part_is_ro(part) ? page_to_pfn(ZERO_PAGE(0)) : page_to_pfn(pe->dummy);
}

static vm_fault_t pe_vma_fault(struct vm_fault *vmf)
{
	struct vm_area_struct *vma = vmf->vma;
	struct angara_pe *pe = vma->vm_private_data;
	unsigned long part = vmf->pgoff >> PART_SHIFT;
	unsigned long page = vmf->pgoff & ((1UL << PART_SHIFT) - 1);
	vm_fault_t ret = VM_FAULT_SIGBUS;
	unsigned long pfn;
	int idx;

	idx = srcu_read_lock(&pe->adev->srcu);
	if (READ_ONCE(pe->adev->removed))
		ret = vmf_insert_pfn(vma, vmf->address, gone_pfn(pe, part));
	else if (part_pfn(pe, part, page, &pfn))
		ret = vmf_insert_pfn(vma, vmf->address, pfn);
	srcu_read_unlock(&pe->adev->srcu, idx);
	return ret;
}

static void pe_vma_open(struct vm_area_struct *vma)
{
	struct angara_pe *pe = vma->vm_private_data;

	refcount_inc(&pe->mem_refs);
}

static void pe_vma_close(struct vm_area_struct *vma)
{
	struct angara_pe *pe = vma->vm_private_data;
	struct angara_device *adev = pe->adev;
	int idx;

	/* remove() waits for who frees memory; see angara_pes_remove(). */
	idx = srcu_read_lock(&adev->srcu);
	angara_pe_mem_put(pe);
	srcu_read_unlock(&adev->srcu, idx);
}

static const struct vm_operations_struct pe_vma_ops = {
	.open = pe_vma_open,
	.close = pe_vma_close,
	.fault = pe_vma_fault,
};

static int pe_mmap_check(const struct angara_pe *pe, const struct vm_area_struct *vma)
{
	unsigned long part = vma->vm_pgoff >> PART_SHIFT;
	int ret = angara_device_check(pe->adev);

	if (ret)
		return ret;
	if (!angara_owned_is_current(&pe->dom->owned))
		return -EPERM;
	if (vma->vm_pgoff & ((1UL << PART_SHIFT) - 1) || !(vma->vm_flags & VM_SHARED) ||
	    vma->vm_end - vma->vm_start != part_size(pe, part))
		return -EINVAL;
	if (part_is_ro(part) && (vma->vm_flags & VM_WRITE))
		return -EACCES;
	return 0;
}

int angara_pe_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct angara_pe *pe = file->private_data;
	unsigned long part = vma->vm_pgoff >> PART_SHIFT;
	int idx, ret;

	/* The PE is held in the read section, so there is a reference to add to. */
	idx = srcu_read_lock(&pe->adev->srcu);
	ret = pe_mmap_check(pe, vma);
	if (!ret)
		refcount_inc(&pe->mem_refs);
	srcu_read_unlock(&pe->adev->srcu, idx);
	if (ret)
		return ret;

	vm_flags_set(vma, VM_PFNMAP | VM_IO | VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP);
	if (part_is_ro(part))
		vm_flags_clear(vma, VM_MAYWRITE);
	if (part == ANGARA_MMAP_DOORBELL)
		vma->vm_page_prot = pgprot_noncached(vma->vm_page_prot);
	else if (part == ANGARA_MMAP_PIO)
		vma->vm_page_prot = pgprot_writecombine(vma->vm_page_prot);
	vma->vm_private_data = pe;
	vma->vm_ops = &pe_vma_ops;
	return 0;
}
