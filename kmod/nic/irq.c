// SPDX-License-Identifier: GPL-2.0-only
/*
 * Interrupts: vector 0 for answers to commands and the link, the others for PEs. All are hints, and
 * may be coalesced: handlers look at what the device has written.
 */
#include <linux/interrupt.h>
#include <linux/slab.h>

#include "nic.h"
#include "trace.h"

/* PEs that are looked at with interrupts off. */
#define PES_AT_ONCE	64

bool angara_link_check(struct angara_device *adev)
{
	/* Registers of one that has failed aren't touched: some buses take that for an error. */
	bool link = !READ_ONCE(adev->failed) && adev->hw->ops->link_up(adev->hw);

	if (xchg(&adev->link, link) == link)
		return link;
	angara_count(adev, link_changes, 1);
	dev_info_ratelimited(&adev->pdev->dev, "%s: link %s\n", dev_name(&adev->dev),
			     link ? "up" : "down");
	return link;
}

static void vector_begin(struct angara_vector *vector)
{
	struct angara_device *adev = vector->adev;

	angara_count(adev, irqs, 1);
	if (READ_ONCE(adev->failed))
		return;
	adev->hw->ops->irq_ack(adev->hw, vector->index);
}

static irqreturn_t admin_irq(int irq, void *data)
{
	struct angara_vector *vector = data;
	struct angara_device *adev = vector->adev;

	vector_begin(vector);
	angara_link_check(adev);
	angara_admin_poll(adev);
	return IRQ_HANDLED;
}

/*
 * Wake the owners of PEs that have been interrupted: those whose count has changed. Looks at some
 * of those with angara_pe_vector(i) == vector->index, from @i on, and returns where to go on.
 */
static u32 pe_irq_some(struct angara_vector *vector, u32 i)
{
	struct angara_device *adev = vector->adev;
	unsigned int left = PES_AT_ONCE;
	struct angara_pe *pe;
	unsigned long flags;
	u64 count;

	spin_lock_irqsave(&adev->pe_lock, flags);
	for (; i < adev->pe_max && left--; i += adev->num_vectors - 1) {
		pe = adev->pes[i];
		if (!pe)
			continue;
		count = angara_pe_irqs(pe);
		if (count == pe->irqs_seen)
			continue;
		pe->irqs_seen = count;
		trace_angara_pe_irq(pe, count);
		wake_up_all(&pe->wait);
	}
	spin_unlock_irqrestore(&adev->pe_lock, flags);
	return i;
}

/* Where a vector has more PEs, a thread looks at the others. */
static irqreturn_t pe_irq(int irq, void *data)
{
	struct angara_vector *vector = data;
	struct angara_device *adev = vector->adev;

	vector_begin(vector);
	return pe_irq_some(vector, vector->index - 1) < adev->pe_max ? IRQ_WAKE_THREAD :
								       IRQ_HANDLED;
}

static irqreturn_t pe_irq_thread(int irq, void *data)
{
	struct angara_vector *vector = data;
	struct angara_device *adev = vector->adev;
	u32 i = vector->index - 1 + PES_AT_ONCE * (adev->num_vectors - 1);

	while (i < adev->pe_max) {
		i = pe_irq_some(vector, i);
		cond_resched();
	}
	return IRQ_HANDLED;
}

/* A thread only where it may have to look at something. */
static int vector_request(struct angara_vector *vector)
{
	struct angara_device *adev = vector->adev;
	bool many = adev->pe_max > PES_AT_ONCE * (adev->num_vectors - 1);

	if (!vector->index)
		return request_irq(vector->irq, admin_irq, 0, "angara", vector);
	return request_threaded_irq(vector->irq, pe_irq, many ? pe_irq_thread : NULL, 0, "angara",
				    vector);
}

int angara_irq_setup(struct angara_device *adev, unsigned int wanted)
{
	struct pci_dev *pdev = adev->pdev;
	struct angara_vector *vector;
	int i, ret;

	ret = pci_alloc_irq_vectors(pdev, 2, wanted, PCI_IRQ_MSIX);
	if (ret < 0) {
		dev_err(&pdev->dev, "no MSI-X vectors (%d), at least 2 are needed\n", ret);
		return ret;
	}
	adev->num_vectors = ret;
	adev->vectors = kcalloc(adev->num_vectors, sizeof(*adev->vectors), GFP_KERNEL);
	if (!adev->vectors) {
		ret = -ENOMEM;
		goto free_pci;
	}
	for (i = 0; i < adev->num_vectors; i++) {
		vector = &adev->vectors[i];
		vector->adev = adev;
		vector->index = i;
		vector->irq = pci_irq_vector(pdev, i);
		ret = vector_request(vector);
		if (ret)
			goto free_irqs;
	}
	return 0;

free_irqs:
	while (i--)
		free_irq(adev->vectors[i].irq, &adev->vectors[i]);
	kfree(adev->vectors);
free_pci:
	pci_free_irq_vectors(pdev);
	return ret;
}

void angara_irq_cleanup(struct angara_device *adev)
{
	unsigned int i;

	for (i = 0; i < adev->num_vectors; i++)
		free_irq(adev->vectors[i].irq, &adev->vectors[i]);
	kfree(adev->vectors);
	pci_free_irq_vectors(adev->pdev);
}

/* For who polls memory, and who sleeps. A PE that is made meanwhile is refused by the device. */
void angara_wake_all(struct angara_device *adev)
{
	u32 i, end;

	wake_up_all(&adev->admin.wait);
	for (i = 0; i < adev->pe_max;) {
		end = min(i + PES_AT_ONCE, adev->pe_max);
		spin_lock_irq(&adev->pe_lock);
		for (; i < end; i++) {
			if (!adev->pes[i])
				continue;
			angara_status_gone(adev->pes[i]->status.page);
			wake_up_all(&adev->pes[i]->wait);
		}
		spin_unlock_irq(&adev->pe_lock);
		cond_resched();
	}
}
