// SPDX-License-Identifier: GPL-2.0-only
/*
 * The PCI function: probe, remove, shutdown, suspend, errors and resets of others. Here is the list
 * of devices; all else of one is in its folder.
 */
#include <linux/module.h>
#include <linux/pm.h>
#include <linux/slab.h>

#include "check.h"
#include "emu/ids.h"
#include "nic.h"
#include "pci.h"

static_assert(sizeof(struct angara_doorbell) == 256);
static_assert(sizeof(struct angara_desc) == 128);
static_assert(sizeof(struct angara_event_record) == 128);
static_assert(sizeof(struct angara_put) == ANGARA_PIO_GRANULE);

static phys_addr_t place_phys(struct pci_dev *pdev, struct angara_hw_place at)
{
	return pci_resource_start(pdev, at.bar) + at.offset;
}

static void limits_take(struct angara_device *adev, const struct angara_hw_limits *limits)
{
	adev->version = limits->version;
	adev->loopback = limits->loopback;
	adev->node_id = limits->node;
	adev->pe_max = limits->pe_max;
	adev->mr_entries = min3(limits->mr_max, angara_mr_entries, 1U << ANGARA_KEY_INDEX_BITS);
	adev->admin.depth = limits->admin_depth;
	adev->marker_slots = limits->marker_slots;
	adev->pio_bytes = limits->pio_bytes;
	adev->put_max = limits->put_max;
	adev->offload_max = limits->offload_max;
	adev->window_max = min(limits->window_pages_max,
			       (u64)angara_window_mb * SZ_1M >> ANGARA_HW_PAGE_SHIFT)
			   << ANGARA_HW_PAGE_SHIFT;
	adev->doorbell_phys = place_phys(adev->pdev, limits->doorbells);
	adev->pio_phys = place_phys(adev->pdev, limits->puts);
	adev->link = adev->hw->ops->link_up(adev->hw);
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

static int pci_setup(struct pci_dev *pdev)
{
	int ret;

	if (PAGE_SIZE != ANGARA_HW_PAGE) {
		dev_err(&pdev->dev, "kernels with pages other than 4 KiB aren't supported\n");
		return -ENODEV;
	}
	ret = pci_enable_device(pdev);
	if (ret)
		return ret;
	ret = pci_request_regions(pdev, "angara_nic");
	if (ret)
		pci_disable_device(pdev);
	return ret;
}

static void pci_cleanup(struct pci_dev *pdev)
{
	pci_clear_master(pdev);
	pci_release_regions(pdev);
	pci_disable_device(pdev);
}

/* The device behind the function, and what the core has for it. */
static struct angara_device *adev_attach(struct pci_dev *pdev, const struct angara_hw_ops *ops,
					 struct angara_hw_limits *limits)
{
	struct angara_device *adev;
	struct angara_hw *hw;

	hw = ops->attach(pdev, limits);
	if (IS_ERR(hw))
		return ERR_CAST(hw);
	hw->ops = ops;
	if (!angara_limits_ok(pdev, limits)) {
		dev_err(&pdev->dev, "what the device says of itself is nonsense\n");
		adev = ERR_PTR(-EINVAL);
		goto detach;
	}
	adev = angara_device_alloc(pdev);
	if (IS_ERR(adev))
		goto detach;
	hw->adev = adev;
	adev->hw = hw;
	limits_take(adev, limits);
	return adev;

detach:
	ops->detach(hw, false);
	return adev;
}

static void adev_detach(struct angara_device *adev)
{
	adev->hw->ops->detach(adev->hw, angara_device_must_leak(adev));
	adev->hw = NULL;
	put_device(&adev->dev);
}

static int angara_pci_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	const struct angara_hw_ops *ops = (const struct angara_hw_ops *)id->driver_data;
	struct angara_hw_limits limits = { };
	struct angara_device *adev;
	int ret;

	/* A driver_override may bind anything. */
	ret = ops ? ops->match(pdev) : -ENODEV;
	if (ret)
		return ret;
	ret = pci_setup(pdev);
	if (ret)
		return ret;
	adev = adev_attach(pdev, ops, &limits);
	if (IS_ERR(adev)) {
		ret = PTR_ERR(adev);
		goto cleanup_pci;
	}
	ret = angara_buf_check(adev);
	if (ret)
		goto detach;
	ret = pe_tables_alloc(adev);
	if (ret)
		goto detach;
	ret = angara_mr_table_alloc(adev);
	if (ret)
		goto detach;
	/* Before the start: what is signalled before MSI-X is on gets lost. */
	ret = angara_irq_setup(adev, limits.vectors);
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
detach:
	adev_detach(adev);
cleanup_pci:
	pci_cleanup(pdev);
	return ret;
}

static void angara_pci_remove(struct pci_dev *pdev)
{
	struct angara_device *adev = pci_get_drvdata(pdev);

	angara_device_del(adev);
	angara_hw_stop(adev);
	angara_irq_cleanup(adev);
	angara_mr_table_free(adev);
	pio_type_free(adev);
	adev_detach(adev);
	pci_cleanup(pdev);
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

/*
 * Errors. The device fails, its users hear of it, and it stays failed until the driver is bound
 * again: nothing of what users have in it could be trusted to have survived. All of these are
 * called with the lock that probe and remove hold.
 */
static pci_ers_result_t angara_pci_error_detected(struct pci_dev *pdev, pci_channel_state_t state)
{
	struct angara_device *adev = pci_get_drvdata(pdev);

	switch (state) {
	case pci_channel_io_normal:
		/* Something got lost, and be it a write before a marker. It can still be asked. */
		adev->frozen = false;
		angara_device_fail(adev, "PCI reports an error");
		return PCI_ERS_RESULT_CAN_RECOVER;
	case pci_channel_io_frozen:
		adev->frozen = true;
		angara_device_fail_frozen(adev, "PCI reports a fatal error");
		return PCI_ERS_RESULT_NEED_RESET;
	default:
		adev->frozen = false;
		angara_device_fail_frozen(adev, "PCI reports that it is dead");
		return PCI_ERS_RESULT_DISCONNECT;
	}
}

/*
 * The function's configuration is needed to unbind the driver; bus mastering was off when it was
 * saved, and stays so. Only after "frozen" does this prove that there was a reset: after an error
 * that can be lived with, the PCI core may call it without one.
 */
static pci_ers_result_t angara_pci_slot_reset(struct pci_dev *pdev)
{
	struct angara_device *adev = pci_get_drvdata(pdev);

	pci_restore_state(pdev);
	pci_save_state(pdev);
	/* If it had been bound meanwhile. */
	angara_device_fail(adev, "its slot was reset");
	if (adev->frozen)
		angara_device_was_reset(adev);
	adev->frozen = false;
	return PCI_ERS_RESULT_RECOVERED;
}

/*
 * Somebody resets it on purpose (sysfs): afterwards it would know of no PE. What reset_done() says
 * would prove nothing, as it is called after an attempt, too.
 */
static void angara_pci_reset_prepare(struct pci_dev *pdev)
{
	angara_device_fail(pci_get_drvdata(pdev), "a reset was asked for");
}

static const struct pci_error_handlers angara_pci_errors = {
	.error_detected = angara_pci_error_detected,
	.slot_reset = angara_pci_slot_reset,
	.reset_prepare = angara_pci_reset_prepare,
};

static SIMPLE_DEV_PM_OPS(angara_pm_ops, angara_pci_suspend, angara_pci_resume);

static const struct pci_device_id angara_pci_ids[] = {
	{ ANGARA_EMU_ID },
	{ }
};
MODULE_DEVICE_TABLE(pci, angara_pci_ids);

static struct pci_driver angara_pci_driver = {
	.name = "angara_nic",
	.id_table = angara_pci_ids,
	.probe = angara_pci_probe,
	.remove = angara_pci_remove,
	.shutdown = angara_pci_shutdown,
	.err_handler = &angara_pci_errors,
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
