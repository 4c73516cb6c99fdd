// SPDX-License-Identifier: GPL-2.0-only
/*
 * Interrupts: vector 0 for admin responses and the link, the others for PEs. All are hints, and
 * may be coalesced: handlers look at what the device has written.
 */
#include <linux/interrupt.h>
#include <linux/slab.h>

#include "nic.h"
#include "trace.h"

bool angara_link_check(struct angara_device *adev)
{
	u32 link = readl(&adev->ctl->link) == 1;

	if (xchg(&adev->link, link) == link)
		return link;
	angara_count(adev, link_changes, 1);
	dev_info_ratelimited(&adev->pdev->dev, "%s: link %s\n", dev_name(&adev->dev),
			     link ? "up" : "down");
	return link;
}

static irqreturn_t admin_irq(int irq, void *data)
{
	struct angara_vector *vector = data;
	struct angara_device *adev = vector->adev;

	angara_count(adev, irqs, 1);
	angara_link_check(adev);
	angara_admin_poll(adev);
	return IRQ_HANDLED;
}

/* Wake the owners of PEs that have been interrupted: those whose count has changed. */
static irqreturn_t pe_irq(int irq, void *data)
{
	struct angara_vector *vector = data;
	struct angara_device *adev = vector->adev;
	struct angara_pe *pe;
	unsigned long flags;
	u64 count;
	u32 i;

	angara_count(adev, irqs, 1);
	spin_lock_irqsave(&adev->pe_lock, flags);
	/* Those with angara_pe_vector(i) == vector->index. */
	for (i = vector->index - 1; i < adev->pe_max; i += adev->num_vectors - 1) {
		pe = adev->pes[i];
		if (!pe)
			continue;
		count = READ_ONCE(angara_pe_status(pe)->counters[ANGARA_CNT_IRQS]);
		if (count == pe->irqs_seen)
			continue;
		pe->irqs_seen = count;
		trace_angara_pe_irq(pe, count);
		wake_up_all(&pe->wait);
	}
	spin_unlock_irqrestore(&adev->pe_lock, flags);
	return IRQ_HANDLED;
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
		ret = request_irq(vector->irq, i ? pe_irq : admin_irq, 0, "angara", vector);
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

/* For who polls memory, and who sleeps. */
void angara_wake_all(struct angara_device *adev)
{
	struct angara_status *status;
	unsigned long flags;
	u32 i;

	wake_up_all(&adev->admin.wait);
	spin_lock_irqsave(&adev->pe_lock, flags);
	for (i = 0; i < adev->pe_max; i++) {
		if (!adev->pes[i])
			continue;
		status = page_address(adev->pes[i]->status.page);
		WRITE_ONCE(status->state, ANGARA_PE_GONE);
		wake_up_all(&adev->pes[i]->wait);
	}
	spin_unlock_irqrestore(&adev->pe_lock, flags);
}
