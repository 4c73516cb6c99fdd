// SPDX-License-Identifier: GPL-2.0-only
/*
 * Reset, DMA and failure: how long is waited for the device, and what follows when it doesn't.
 *
 * A device goes from working to failed once, here. What decides about memory afterwards is
 * whether DMA is known to be off (quiesced).
 */
#include <linux/delay.h>
#include <linux/jiffies.h>

#include "nic.h"
#include "trace.h"

/*
 * A function that has been pulled out can't do DMA, and reads as all ones. So may one that is
 * there, for a moment (a reset of the bus, say): gone is what reads so for this long.
 */
#define GONE_MS		500
#define WATCH_MS	500	/* between looks at whether it is there */

/* Wait while reads fail. -ENODEV: it has gone. What is written meanwhile may get lost. */
static int hw_readable(struct angara_device *adev)
{
	unsigned long now = jiffies, end = now + msecs_to_jiffies(GONE_MS);

	while (adev->hw->ops->reads_ones(adev->hw)) {
		if (time_after(now, end))
			return -ENODEV;
		usleep_range(20, 100);
		now = jiffies;
	}
	return 0;
}

static void hw_watch_next(struct angara_device *adev)
{
	queue_delayed_work(angara_wq, &adev->watch, msecs_to_jiffies(WATCH_MS));
}

/*
 * Hotplug may not tell: users who sleep, poll memory, or wait for a command learn about it from
 * here.
 */
static void hw_watch(struct work_struct *work)
{
	struct angara_device *adev = container_of(work, struct angara_device, watch.work);

	if (READ_ONCE(adev->failed))
		return;
	if (hw_readable(adev))
		angara_device_fail(adev, "it was pulled out");
	else
		hw_watch_next(adev);
}

void angara_hw_init(struct angara_device *adev)
{
	mutex_init(&adev->fail_lock);
	INIT_DELAYED_WORK(&adev->watch, hw_watch);
}

/* Wait until what was requested is done. */
static int hw_wait(struct angara_device *adev, bool (*is_done)(struct angara_hw *hw))
{
	unsigned long end = jiffies + msecs_to_jiffies(angara_admin_timeout_ms) + 1;
	bool late, done;
	int ret;

	for (;;) {
		late = time_after(jiffies, end);
		done = is_done(adev->hw);
		/* Only then is it known what that was worth. */
		ret = hw_readable(adev);
		if (ret || done)
			return ret;
		if (late)
			return -ETIMEDOUT;
		usleep_range(20, 100);
	}
}

static int hw_reset(struct angara_device *adev)
{
	int ret = hw_readable(adev);

	if (ret)
		return ret;
	adev->hw->ops->reset(adev->hw);
	return hw_wait(adev, adev->hw->ops->reset_done);
}

static int hw_dma(struct angara_device *adev, bool on)
{
	int ret = hw_readable(adev);

	if (ret)
		return ret;
	adev->hw->ops->dma(adev->hw, on);
	return hw_wait(adev, adev->hw->ops->dma_done);
}

/*
 * Last resort, for a function that doesn't acknowledge that DMA is off. 0: it is.
 *
 * Bus mastering is cleared, and read back: what the function has sent before has arrived then, as
 * completions don't overtake writes. That proves nothing of what comes later: whether the bit is
 * heeded is up to the logic that has just failed, and the DMA of an emulated device doesn't pass
 * a bus. So it doesn't count. A function-level reset does, where there is one: it ends with a
 * function that answers again and has forgotten where our memory is.
 */
static int hw_cut_off(struct pci_dev *pdev)
{
	u16 command;
	int ret;

	pci_clear_master(pdev);
	pci_read_config_word(pdev, PCI_COMMAND, &command);
	if (pcie_reset_flr(pdev, PCI_RESET_PROBE))
		return -ENOTTY;
	/*
	 * Not pci_reset_function(): who removes the device holds its lock. If accesses of users to
	 * the configuration space are blocked already, somebody else resets it just now.
	 */
	if (!pci_cfg_access_trylock(pdev))
		return -EBUSY;
	/* BARs and interrupts are needed until the driver is unbound. */
	pci_save_state(pdev);
	ret = pcie_reset_flr(pdev, PCI_RESET_DO_RESET);
	pci_restore_state(pdev);
	pci_save_state(pdev);
	pci_cfg_access_unlock(pdev);
	return ret;
}

/*
 * Its registers read all ones. What has been pulled out does no DMA; but one whose registers hang,
 * while the rest works, looks the same. If its configuration space answers, it is reset, if it can
 * be. Otherwise it is taken for gone.
 */
static int hw_gone(struct pci_dev *pdev)
{
	int ret;

	pci_clear_master(pdev);
	if (!pci_device_is_present(pdev))
		return 0;
	ret = hw_cut_off(pdev);
	return ret == -ENOTTY ? 0 : ret;
}

/* 0: nothing is in flight or will start. */
static int hw_dma_off(struct angara_device *adev)
{
	int ret = adev->known ? hw_dma(adev, false) : 0;

	trace_angara_dma_off(adev, ret);
	if (ret == -ENODEV)
		return hw_gone(adev->pdev);
	if (ret)
		return hw_cut_off(adev->pdev);
	pci_clear_master(adev->pdev);
	return 0;
}

static int hw_setup(struct angara_device *adev)
{
	struct angara_cmd cmd = {
		.kind = ANGARA_CMD_SETUP,
		.setup = { adev->mr_table_dma, adev->mr_entries },
	};

	return angara_admin_exec(adev, &cmd, 0);
}

int angara_hw_start(struct angara_device *adev)
{
	const char *step = "reset";
	int ret;

	ret = hw_reset(adev);
	if (ret)
		goto fail;
	adev->known = true;
	angara_admin_restart(adev);

	step = "DMA on";
	/* For who restores it after a reset: without bus mastering. */
	pci_save_state(adev->pdev);
	pci_set_master(adev->pdev);
	ret = hw_dma(adev, true);
	if (ret)
		goto fail;
	step = "setup";
	/* Who waits for a command relies on it. */
	hw_watch_next(adev);
	ret = hw_setup(adev);
	if (ret)
		goto fail;
	return 0;

fail:
	angara_device_fail(adev, step);
	cancel_delayed_work_sync(&adev->watch);
	return ret;
}

int angara_hw_stop(struct angara_device *adev)
{
	int ret = 0;

	cancel_delayed_work_sync(&adev->watch);
	mutex_lock(&adev->fail_lock);
	if (!adev->failed) {
		ret = hw_dma_off(adev);
		if (ret) {
			dev_err(&adev->pdev->dev, "DMA off was not acknowledged\n");
			WRITE_ONCE(adev->failed, true);
		}
	}
	mutex_unlock(&adev->fail_lock);
	return ret;
}

void angara_hw_shutdown(struct angara_device *adev)
{
	cancel_delayed_work_sync(&adev->watch);
	mutex_lock(&adev->fail_lock);
	if (!adev->failed) {
		WRITE_ONCE(adev->failed, true);
		WRITE_ONCE(adev->quiesced, !hw_dma_off(adev));
	}
	mutex_unlock(&adev->fail_lock);
	angara_wake_all(adev);
}

void angara_device_fail(struct angara_device *adev, const char *why)
{
	bool first;

	mutex_lock(&adev->fail_lock);
	first = !adev->failed;
	if (first) {
		WRITE_ONCE(adev->failed, true);
		dev_err(&adev->pdev->dev,
			"the device failed (%s): bind the driver again to use it\n", why);
		WRITE_ONCE(adev->quiesced, !hw_dma_off(adev));
		if (!adev->quiesced)
			dev_err(&adev->pdev->dev,
				"DMA can't be stopped: memory that it may reach is never freed\n");
	}
	mutex_unlock(&adev->fail_lock);
	/* Not earlier: who hears of it may use memory for something else. */
	if (first)
		angara_wake_all(adev);
}

/* Nothing is asked of the device: in this state a driver leaves its registers alone. */
void angara_device_fail_frozen(struct angara_device *adev, const char *why)
{
	bool first;

	mutex_lock(&adev->fail_lock);
	first = !adev->failed;
	WRITE_ONCE(adev->failed, true);
	if (first)
		dev_err(&adev->pdev->dev,
			"the device failed (%s): bind the driver again to use it\n", why);
	pci_clear_master(adev->pdev);
	/*
	 * Frozen may mean that nothing comes through, or no more than that it will be reset; dead,
	 * that it is gone, or no more than that a reset has failed.
	 */
	if (!pci_device_is_present(adev->pdev))
		WRITE_ONCE(adev->quiesced, true);
	else if (!adev->quiesced)
		dev_err(&adev->pdev->dev,
			"until it is reset it may do DMA: what ends before is never freed\n");
	mutex_unlock(&adev->fail_lock);
	if (first)
		angara_wake_all(adev);
}

void angara_device_was_reset(struct angara_device *adev)
{
	mutex_lock(&adev->fail_lock);
	WRITE_ONCE(adev->quiesced, true);
	mutex_unlock(&adev->fail_lock);
}

bool angara_device_must_leak(struct angara_device *adev)
{
	bool leak;

	/* Not while somebody finds out whether DMA is off. */
	mutex_lock(&adev->fail_lock);
	leak = adev->failed && !adev->quiesced;
	mutex_unlock(&adev->fail_lock);
	return leak;
}
