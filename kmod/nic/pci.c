// SPDX-License-Identifier: GPL-2.0-only
/*
 * The PCI function: probe, remove, shutdown, suspend, and the constants of the control page.
 *
 * The id is that of QEMU's ivshmem devices. Those that aren't a NIC (no MSI-X BAR, or no magic at
 * the start of BAR 2) are left alone.
 *
 * Only the control page is ever mapped by the kernel: a kernel mapping of a page forces its memory
 * type on all user mappings.
 */
#include <linux/module.h>
#include <linux/overflow.h>
#include <linux/pm.h>
#include <linux/slab.h>

#include "nic.h"
#include "pci.h"

#define PCI_VENDOR_IVSHMEM	0x1af4
#define PCI_DEVICE_IVSHMEM	0x1110
#define BAR_BELL		0
#define BAR_MSIX		1
#define BAR_NIC			2
#define MARKER_SLOTS_MAX	65536
#define PIO_BYTES_MAX		SZ_1M

static_assert(sizeof(struct angara_hw_control) == 256);
static_assert(sizeof(struct angara_hw_cmd) == 128);
static_assert(sizeof(struct angara_hw_resp) == 16);
static_assert(sizeof(struct angara_hw_mr) == 64);
static_assert(sizeof(struct angara_doorbell) == 256);
static_assert(sizeof(struct angara_desc) == 128);
static_assert(sizeof(struct angara_event_record) == 128);
static_assert(sizeof(struct angara_put) == ANGARA_PIO_GRANULE);

/* Range [offset, offset + count * each) lies in BAR 2, behind the control page, in whole pages. */
static bool bar_range_ok(u64 bar_size, u64 offset, u32 count, u32 each)
{
	u64 size = (u64)count * each;

	return IS_ALIGNED(offset, ANGARA_HW_PAGE) && IS_ALIGNED(each, ANGARA_HW_PAGE) &&
	       offset >= ANGARA_HW_PAGE && offset <= bar_size && size <= bar_size - offset;
}

/* A put of the largest size and the pad before it must fit into the ring. */
static bool put_max_ok(const struct angara_device *adev)
{
	u32 granules = 1 + DIV_ROUND_UP(adev->put_max - ANGARA_PIO_INLINE, ANGARA_PIO_GRANULE);

	return adev->put_max >= ANGARA_NOTIFY_BYTES && adev->put_max <= U16_MAX &&
	       granules <= adev->pio_bytes / 2 / ANGARA_PIO_GRANULE;
}

/* Read the constants; nothing of what the device says is used unchecked. */
static int read_control(struct angara_device *adev, unsigned int *vectors)
{
	struct angara_hw_control __iomem *ctl = adev->ctl;
	struct pci_dev *pdev = adev->pdev;
	u64 bar_size = pci_resource_len(pdev, BAR_NIC);
	u64 doorbell, pio;

	adev->version = readl(&ctl->version);
	if (adev->version >> 16 != ANGARA_HW_VERSION >> 16) {
		dev_err(&pdev->dev, "register version %u.%u, this driver needs %u.x: update it\n",
			adev->version >> 16, adev->version & 0xffff, ANGARA_HW_VERSION >> 16);
		return -EPROTO;
	}
	adev->caps = readl(&ctl->caps);
	adev->node_id = readl(&ctl->node);
	adev->pe_max = readl(&ctl->pe_max);
	adev->mr_entries = min3(readl(&ctl->mr_max), angara_mr_entries,
				1U << ANGARA_HW_KEY_INDEX_BITS);
	adev->marker_slots = readl(&ctl->marker_slots);
	adev->pio_bytes = readl(&ctl->pio_bytes);
	adev->put_max = readl(&ctl->put_max);
	adev->offload_max = readq(&ctl->offload_max);
	adev->window_max = min((u64)readl(&ctl->window_pages_max) << ANGARA_HW_PAGE_SHIFT,
			       (u64)angara_window_mb * SZ_1M);
	adev->link = readl(&ctl->link) == 1;
	*vectors = readl(&ctl->vectors);
	doorbell = readq(&ctl->doorbell_offset);
	pio = readq(&ctl->pio_offset);

	if (adev->node_id >> ANGARA_HW_NODE_BITS ||
	    !adev->pe_max || adev->pe_max > ANGARA_PE_LIMIT || !adev->mr_entries ||
	    !adev->marker_slots || adev->marker_slots > MARKER_SLOTS_MAX || *vectors < 2 ||
	    !is_power_of_2(adev->pio_bytes) || adev->pio_bytes > PIO_BYTES_MAX ||
	    !put_max_ok(adev) || !adev->window_max || !adev->offload_max ||
	    !bar_range_ok(bar_size, doorbell, adev->pe_max, ANGARA_HW_PAGE) ||
	    !bar_range_ok(bar_size, pio, adev->pe_max, adev->pio_bytes) ||
	    (doorbell < pio ? doorbell + adev->pe_max * ANGARA_HW_PAGE > pio :
			      pio + (u64)adev->pe_max * adev->pio_bytes > doorbell)) {
		dev_err(&pdev->dev, "the control page is nonsense\n");
		return -EINVAL;
	}
	adev->doorbell_phys = pci_resource_start(pdev, BAR_NIC) + doorbell;
	adev->pio_phys = pci_resource_start(pdev, BAR_NIC) + pio;
	return 0;
}

static int pe_tables_alloc(struct angara_device *adev)
{
	adev->pes = kcalloc(adev->pe_max, sizeof(*adev->pes), GFP_KERNEL);
	adev->pe_generation = kcalloc(adev->pe_max, sizeof(u32), GFP_KERNEL);
	return adev->pes && adev->pe_generation ? 0 : -ENOMEM;
}

/* Users map the put rings write-combining; on x86 that needs the type to be reserved. */
static void pio_type_reserve(struct angara_device *adev)
{
	int ret = arch_io_reserve_memtype_wc(adev->pio_phys, (u64)adev->pe_max * adev->pio_bytes);

	adev->pio_wc = !ret;
	if (ret)
		dev_warn(&adev->pdev->dev, "put rings can't be write-combining (%d): slow puts\n",
			 ret);
}

static void pio_type_free(struct angara_device *adev)
{
	if (adev->pio_wc)
		arch_io_free_memtype_wc(adev->pio_phys, (u64)adev->pe_max * adev->pio_bytes);
}

/* Enable the function and map its control page: -ENODEV if it is no NIC. */
static int pci_setup(struct pci_dev *pdev, struct angara_hw_control __iomem **ctl_p)
{
	struct angara_hw_control __iomem *ctl;
	int ret;

	if (!pci_resource_len(pdev, BAR_MSIX) || !pdev->msix_cap ||
	    !(pci_resource_flags(pdev, BAR_NIC) & IORESOURCE_MEM) ||
	    pci_resource_len(pdev, BAR_NIC) < ANGARA_HW_PAGE ||
	    !(pci_resource_flags(pdev, BAR_BELL) & IORESOURCE_MEM) ||
	    pci_resource_len(pdev, BAR_BELL) < ANGARA_HW_BELL + sizeof(u32))
		return -ENODEV;
	if (PAGE_SIZE != ANGARA_HW_PAGE) {
		dev_err(&pdev->dev, "kernels with pages other than 4 KiB aren't supported\n");
		return -ENODEV;
	}
	ret = pci_enable_device(pdev);
	if (ret)
		return ret;
	ret = pci_request_regions(pdev, "angara_nic");
	if (ret)
		goto disable_device;
	ctl = pci_iomap_range(pdev, BAR_NIC, ANGARA_HW_CONTROL, ANGARA_HW_PAGE);
	if (!ctl) {
		ret = -ENOMEM;
		goto release_regions;
	}
	if (readq(&ctl->magic) != ANGARA_HW_MAGIC) {
		ret = -ENODEV;
		goto unmap;
	}
	ret = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
	if (ret)
		goto unmap;
	dma_set_max_seg_size(&pdev->dev, SZ_2G);
	*ctl_p = ctl;
	return 0;

unmap:
	pci_iounmap(pdev, ctl);
release_regions:
	pci_release_regions(pdev);
disable_device:
	pci_disable_device(pdev);
	return ret;
}

static void pci_cleanup(struct pci_dev *pdev, struct angara_hw_control __iomem *ctl)
{
	pci_clear_master(pdev);
	pci_iounmap(pdev, ctl);
	pci_release_regions(pdev);
	pci_disable_device(pdev);
}

static int angara_pci_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct angara_hw_control __iomem *ctl;
	struct angara_device *adev;
	unsigned int vectors;
	int ret;

	ret = pci_setup(pdev, &ctl);
	if (ret)
		return ret;
	adev = angara_device_alloc(pdev);
	if (IS_ERR(adev)) {
		ret = PTR_ERR(adev);
		goto cleanup_pci;
	}
	adev->ctl = ctl;
	ret = read_control(adev, &vectors);
	if (ret)
		goto put_adev;
	adev->bell = pci_iomap_range(pdev, BAR_BELL, ANGARA_HW_BELL, sizeof(u32));
	if (!adev->bell) {
		ret = -ENOMEM;
		goto put_adev;
	}
	ret = angara_buf_check(adev);
	if (ret)
		goto unmap_bell;
	ret = pe_tables_alloc(adev);
	if (ret)
		goto unmap_bell;
	ret = angara_admin_alloc(adev);
	if (ret)
		goto unmap_bell;
	ret = angara_mr_table_alloc(adev);
	if (ret)
		goto free_admin;
	/* Before the start: what is signalled before MSI-X is on gets lost. */
	ret = angara_irq_setup(adev, vectors);
	if (ret)
		goto free_mr_table;
	ret = angara_hw_start(adev);
	if (ret)
		goto cleanup_irq;
	pio_type_reserve(adev);
	pci_set_drvdata(pdev, adev);
	ret = angara_device_add(adev);
	if (ret)
		goto free_pio_type;
	dev_info(&pdev->dev, "%s: node %u, %u PEs, %u regions, %u vectors\n",
		 dev_name(&adev->dev), adev->node_id, adev->pe_max, adev->mr_entries,
		 adev->num_vectors);
	return 0;

free_pio_type:
	pio_type_free(adev);
	angara_hw_stop(adev);
cleanup_irq:
	angara_irq_cleanup(adev);
free_mr_table:
	angara_mr_table_free(adev);
free_admin:
	angara_admin_free(adev);
unmap_bell:
	pci_iounmap(pdev, adev->bell);
put_adev:
	put_device(&adev->dev);
cleanup_pci:
	pci_cleanup(pdev, ctl);
	return ret;
}

static void angara_pci_remove(struct pci_dev *pdev)
{
	struct angara_device *adev = pci_get_drvdata(pdev);

	angara_device_del(adev);
	angara_hw_stop(adev);
	angara_irq_cleanup(adev);
	angara_mr_table_free(adev);
	angara_admin_free(adev);
	pio_type_free(adev);
	pci_iounmap(pdev, adev->bell);
	pci_cleanup(pdev, adev->ctl);
	put_device(&adev->dev);
}

/* kexec, reboot: the next kernel's memory must not be written to. */
static void angara_pci_shutdown(struct pci_dev *pdev)
{
	angara_hw_shutdown(pci_get_drvdata(pdev));
}

static int __maybe_unused angara_pci_suspend(struct device *dev)
{
	struct angara_device *adev = dev_get_drvdata(dev);

	if (READ_ONCE(adev->pe_used)) {
		dev_warn(dev, "%u PEs are open: can't suspend; end the programs that use it\n",
			 adev->pe_used);
		return -EBUSY;
	}
	if (adev->failed)
		return 0;
	return angara_hw_stop(adev);
}

/* Regions survive: the MR table is host memory. */
static int __maybe_unused angara_pci_resume(struct device *dev)
{
	struct angara_device *adev = dev_get_drvdata(dev);

	return adev->failed ? 0 : angara_hw_start(adev);
}

static SIMPLE_DEV_PM_OPS(angara_pm_ops, angara_pci_suspend, angara_pci_resume);

static const struct pci_device_id angara_pci_ids[] = {
	{ PCI_DEVICE(PCI_VENDOR_IVSHMEM, PCI_DEVICE_IVSHMEM) },
	{ }
};
MODULE_DEVICE_TABLE(pci, angara_pci_ids);

static struct pci_driver angara_pci_driver = {
	.name = "angara_nic",
	.id_table = angara_pci_ids,
	.probe = angara_pci_probe,
	.remove = angara_pci_remove,
	.shutdown = angara_pci_shutdown,
	.driver.pm = &angara_pm_ops,
};

int angara_pci_register(void)
{
	return pci_register_driver(&angara_pci_driver);
}

void angara_pci_unregister(void)
{
	pci_unregister_driver(&angara_pci_driver);
}
