/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Differences between kernels, 5.15 to current mainline. What a test compile can find out is in
 * angara_features.h (made by compat/probe at build time); nothing else asks for a version, except
 * for changes of behaviour (memreg/pin.c).
 */
#ifndef ANGARA_COMPAT_H
#define ANGARA_COMPAT_H

#include <linux/io.h>
#include <linux/mm.h>

#include "angara_features.h"

#ifndef ANGARA_HAVE_VM_FLAGS_SET
static inline void vm_flags_set(struct vm_area_struct *vma, unsigned long flags)
{
	vma->vm_flags |= flags;
}

static inline void vm_flags_clear(struct vm_area_struct *vma, unsigned long flags)
{
	vma->vm_flags &= ~flags;
}
#endif

/*
 * Anonymous memory, shmem or hugetlb: nobody but its users cares about writes to it. The first
 * test is a flag, and true of nearly all.
 */
static inline bool angara_page_is_plain(struct page *page)
{
#ifdef ANGARA_HAVE_FOLIO
	struct folio *folio = page_folio(page);

	return folio_test_swapbacked(folio) || folio_test_anon(folio) || folio_test_hugetlb(folio);
#else
	page = compound_head(page);
	return PageSwapBacked(page) || PageAnon(page) || PageHuge(page);
#endif
}

#endif /* ANGARA_COMPAT_H */
