// SPDX-License-Identifier: GPL-2.0-only
/*
 * Processing elements: creation, and the two steps of their end. The head comment of nic.h has
 * the rules; pe_file.c has what users do with the file.
 */
#include <linux/mm.h>
#include <linux/random.h>
#include <linux/slab.h>

#include "nic.h"
#include "trace.h"

/* ---- numbers --------------------------------------------------------------------------------- */

/*
 * Nobody can guess it, and who remembers the last PE of that number doesn't take the new one for
 * it.
 */
static u32 generation_draw(u32 last)
{
	u32 generation;

	do {
		generation = get_random_u32();
	} while (!generation || generation == last);
	return generation;
}

/* Give the PE a number and make it visible to interrupts. Its memory is there. */
static int pe_number_take(struct angara_pe *pe)
{
	struct angara_device *adev = pe->adev;
	u32 i, index;
	int ret = -ENOSPC;

	spin_lock_irq(&adev->pe_lock);
	for (i = 0; i < adev->pe_max && ret; i++) {
		/* Not the one that was freed last: peers may still talk to it. */
		index = (adev->pe_next + i) % adev->pe_max;
		if (adev->pes[index])
			continue;
		adev->pes[index] = pe;
		adev->pe_next = index + 1;
		adev->pe_used++;
		pe->index = index;
		pe->generation = generation_draw(adev->pe_generation[index]);
		adev->pe_generation[index] = pe->generation;
		ret = 0;
	}
	spin_unlock_irq(&adev->pe_lock);
	return ret;
}

static void pe_number_free(struct angara_pe *pe)
{
	struct angara_device *adev = pe->adev;

	/* From here the file's reference may be the last: see angara_pes_remove(). */
	spin_lock_irq(&adev->pe_lock);
	adev->pes[pe->index] = NULL;
	adev->pe_used--;
	spin_unlock_irq(&adev->pe_lock);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void pe_mem_cleanup(struct angara_pe *pe)
{
	struct angara_device *adev = pe->adev;

	angara_window_cleanup(pe);
	angara_buf_free(adev, &pe->marker);
	angara_buf_free(adev, &pe->status);
	angara_buf_free(adev, &pe->event);
	angara_buf_free(adev, &pe->cmd);
	angara_pe_uncharge(pe, pe->charged);
}

/* Rings are contiguous: where that can't be had, not even by moving memory, there is no PE. */
static int pe_mem_init(struct angara_pe *pe, u64 window_size)
{
	struct angara_device *adev = pe->adev;
	const struct {
		struct angara_buf *buf;
		size_t size;
	} parts[] = {
		{ &pe->cmd, angara_cmd_entries * sizeof(struct angara_desc) },
		{ &pe->event, angara_event_entries * sizeof(struct angara_event_record) },
		{ &pe->status, sizeof(struct angara_status) },
		{ &pe->marker, adev->marker_slots * sizeof(u64) },
		{ &pe->window.table, angara_window_table_size(window_size) },
	};
	unsigned long pages = 0;
	unsigned int i;
	int ret;

	for (i = 0; i < ARRAY_SIZE(parts); i++)
		pages += angara_buf_pages(parts[i].size);
	ret = angara_pe_charge(pe, pages);
	for (i = 0; i < ARRAY_SIZE(parts) && !ret; i++)
		ret = angara_buf_alloc(adev, parts[i].buf, parts[i].size);
	if (!ret)
		ret = angara_window_init(pe, window_size);
	if (ret)
		pe_mem_cleanup(pe);
	return ret;
}

/*
 * The number goes first: then no interrupt looks at the memory. It may do so even if the memory
 * is leaked: a failed device gets no new PEs.
 */
static void pe_mem_free(struct angara_pe *pe)
{
	struct angara_device *adev = pe->adev;

	if (test_and_set_bit(ANGARA_PE_BIT_FREED, &pe->flags))
		return;
	pe_number_free(pe);
	if (angara_device_must_leak(adev))
		angara_count(adev, leaked_pages, pe->charged);
	else
		pe_mem_cleanup(pe);
	angara_user_uncharge(pe->dom->user, ANGARA_RESOURCE_PE);
	angara_count(adev, pes_destroyed, 1);
}

void angara_pe_mem_put(struct angara_pe *pe)
{
	if (refcount_dec_and_test(&pe->mem_refs))
		pe_mem_free(pe);
}

/* ---- the device's view ----------------------------------------------------------------------- */

static int pe_hw_create(struct angara_pe *pe)
{
	struct angara_device *adev = pe->adev;
	struct angara_cmd cmd = {
		.kind = ANGARA_CMD_PE_CREATE,
		.pe_create = {
			.index = pe->index,
			.generation = pe->generation,
			.domain = pe->dom->number,
			.vector = angara_pe_vector(adev, pe->index),
			.cmd = pe->cmd.dma,
			.event = pe->event.dma,
			.status = pe->status.dma,
			.marker = pe->marker.dma,
			.window = pe->window.table.dma,
			.cmd_entries = angara_cmd_entries,
			.event_entries = angara_event_entries,
			.marker_slots = adev->marker_slots,
			.window_pages = pe->window.size >> ANGARA_HW_PAGE_SHIFT,
			.job_key = pe->job_key,
		},
	};
	int ret;

	ret = angara_admin_exec(adev, &cmd, pe->generation);
	return ret == -ETIMEDOUT ? -EIO : ret;
}

/* The device forgets the PE, or has failed after this. */
static void pe_hw_reset(struct angara_pe *pe, enum angara_end how)
{
	struct angara_cmd cmd = {
		.kind = ANGARA_CMD_PE_RESET,
		.pe_reset = { pe->index, pe->generation, how },
	};

	if (angara_admin_exec(pe->adev, &cmd, pe->generation) == -EIO)
		angara_device_fail(pe->adev, "it refused to reset a PE");
}

/* A mapping that is left says that the owner went on using the PE whose file he had closed. */
enum angara_end angara_pe_end(struct angara_pe *pe)
{
	return test_bit(ANGARA_PE_BIT_CLOSED, &pe->flags) && refcount_read(&pe->mem_refs) == 1 ?
	       ANGARA_END_CLOSED : ANGARA_END_DIED;
}

/* Its owner sees that it has gone. */
static void pe_forget(struct angara_pe *pe, enum angara_end how)
{
	lockdep_assert_held(&pe->dom->lock);
	if (!test_and_clear_bit(ANGARA_PE_BIT_RUNNING, &pe->flags))
		return;
	pe_hw_reset(pe, how);
	trace_angara_pe_stop(pe, pe->window.committed);
	angara_status_gone(pe->status.page);
	wake_up_all(&pe->wait);
}

/* See nic.h. Idempotent. */
void angara_pe_stop(struct angara_pe *pe, enum angara_end how)
{
	lockdep_assert_held(&pe->dom->lock);
	if (!test_and_clear_bit(ANGARA_PE_BIT_HELD, &pe->flags))
		return;
	list_del(&pe->node);
	pe_forget(pe, how);
	angara_pe_mem_put(pe);
}

/* ---- life ------------------------------------------------------------------------------------ */

static void pe_free(struct kref *ref)
{
	struct angara_pe *pe = container_of(ref, struct angara_pe, ref);

	angara_domain_put(pe->dom);
	__free_page(pe->dummy);
	mutex_destroy(&pe->commit_lock);
	kfree(pe);
}

void angara_pe_put(struct angara_pe *pe)
{
	kref_put(&pe->ref, pe_free);
}

/* Called in an SRCU read section. */
struct angara_pe *angara_pe_create(struct angara_domain *dom, u64 window_size, u64 job_key)
{
	struct angara_device *adev = dom->adev;
	struct angara_pe *pe;
	int ret;

	pe = kzalloc(sizeof(*pe), GFP_KERNEL_ACCOUNT);
	if (!pe)
		return ERR_PTR(-ENOMEM);
	kref_init(&pe->ref);
	refcount_set(&pe->mem_refs, 1);
	init_waitqueue_head(&pe->wait);
	mutex_init(&pe->commit_lock);
	pe->adev = adev;
	pe->dom = dom;
	pe->job_key = job_key;
	pe->dummy = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO);
	if (!pe->dummy) {
		ret = -ENOMEM;
		goto free_pe;
	}
	ret = angara_user_charge(dom->user, ANGARA_RESOURCE_PE);
	if (ret) {
		angara_count(adev, quota_refused, 1);
		goto free_dummy;
	}
	ret = pe_mem_init(pe, window_size);
	if (ret)
		goto uncharge;
	ret = pe_number_take(pe);
	if (ret)
		goto cleanup_mem;

	mutex_lock(&dom->lock);
	ret = pe_hw_create(pe);
	if (!ret) {
		set_bit(ANGARA_PE_BIT_RUNNING, &pe->flags);
		set_bit(ANGARA_PE_BIT_HELD, &pe->flags);
		list_add_tail(&pe->node, &dom->pes);
		angara_domain_hold(dom);
	}
	mutex_unlock(&dom->lock);
	/* One that failed counts as destroyed below. */
	angara_count(adev, pes_created, 1);
	if (ret) {
		pe_mem_free(pe);
		goto free_dummy;
	}
	trace_angara_pe_create(pe, window_size);
	return pe;

cleanup_mem:
	pe_mem_cleanup(pe);
uncharge:
	angara_user_uncharge(dom->user, ANGARA_RESOURCE_PE);
free_dummy:
	__free_page(pe->dummy);
free_pe:
	kfree(pe);
	return ERR_PTR(ret);
}

/* Called in an SRCU read section. */
unsigned int angara_pes_revoke(struct angara_device *adev, u32 uid, u64 job_key)
{
	unsigned int ended = 0;
	struct angara_pe *pe;
	u32 i;

	/* PEs that are being made have other keys. They may fail: no references to those. */
	lockdep_assert_held_write(&adev->grants_lock);
	for (i = 0; i < adev->pe_max; i++) {
		spin_lock_irq(&adev->pe_lock);
		pe = adev->pes[i];
		if (pe && pe->job_key == job_key && pe->dom->uid == uid)
			kref_get(&pe->ref);
		else
			pe = NULL;
		spin_unlock_irq(&adev->pe_lock);
		if (!pe)
			continue;
		mutex_lock(&pe->dom->lock);
		ended += test_bit(ANGARA_PE_BIT_RUNNING, &pe->flags);
		pe_forget(pe, ANGARA_END_DIED);
		mutex_unlock(&pe->dom->lock);
		angara_pe_put(pe);
	}
	return ended;
}

/* remove(): all user mappings have been zapped and no call is under way, so the memory goes too. */
void angara_pes_remove(struct angara_device *adev)
{
	struct angara_pe *pe;
	u32 i;

	for (i = 0; i < adev->pe_max; i++) {
		spin_lock_irq(&adev->pe_lock);
		pe = adev->pes[i];
		if (pe)
			kref_get(&pe->ref);
		spin_unlock_irq(&adev->pe_lock);
		if (!pe)
			continue;
		mutex_lock(&pe->dom->lock);
		angara_pe_stop(pe, ANGARA_END_DIED);
		mutex_unlock(&pe->dom->lock);
		pe_mem_free(pe);
		angara_pe_put(pe);
	}
	/* Files and VMAs that were closed meanwhile give back memory in a read section. */
	synchronize_srcu(&adev->srcu);
}
