// SPDX-License-Identifier: GPL-2.0-only
/*
 * /sys/kernel/debug/angara/angara<N>/counters: a line per counter, "name value"; the last one is
 * the device's own.
 */
#include <linux/debugfs.h>
#include <linux/seq_file.h>

#include "nic.h"

#define COUNTER_NAME(name)	#name,

static const char *const counter_names[] = { ANGARA_COUNTERS(COUNTER_NAME) };
static struct dentry *root;

static int counters_show(struct seq_file *file, void *data)
{
	struct angara_device *adev = file->private;
	unsigned int i;

	for (i = 0; i < ANGARA_COUNTERS_NUM; i++)
		seq_printf(file, "%s %lld\n", counter_names[i],
			   (long long)atomic64_read(&adev->counters[i]));
	/* The file goes before the device is detached. */
	if (!READ_ONCE(adev->failed))
		seq_printf(file, "key_mismatches %u\n", adev->hw->ops->key_mismatches(adev->hw));
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(counters);

/* A line per PE: number, generation, domain, committed pages, interrupts. */
static int pes_show(struct seq_file *file, void *data)
{
	struct angara_device *adev = file->private;
	struct angara_pe *pe;
	u32 i;

	for (i = 0; i < adev->pe_max; i++) {
		spin_lock_irq(&adev->pe_lock);
		pe = adev->pes[i];
		if (pe)
			seq_printf(file, "%u %u %u %u %llu\n", pe->index, pe->generation,
				   pe->dom->number, READ_ONCE(pe->window.committed),
				   READ_ONCE(pe->irqs_seen));
		spin_unlock_irq(&adev->pe_lock);
	}
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(pes);

/* Of no device. */
static int calls_refused_show(struct seq_file *file, void *data)
{
	seq_printf(file, "%lld\n", (long long)atomic64_read(&angara_grant_refused));
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(calls_refused);

void angara_debugfs_init(void)
{
	root = debugfs_create_dir("angara", NULL);
	debugfs_create_file("jobkey_calls_refused", 0444, root, NULL, &calls_refused_fops);
}

void angara_debugfs_exit(void)
{
	debugfs_remove_recursive(root);
}

/* Debugfs files are removed before what they show: debugfs waits for readers. */
void angara_debugfs_add(struct angara_device *adev)
{
	adev->debugfs = debugfs_create_dir(dev_name(&adev->dev), root);
	debugfs_create_file("counters", 0444, adev->debugfs, adev, &counters_fops);
	debugfs_create_file("pes", 0444, adev->debugfs, adev, &pes_fops);
}

void angara_debugfs_del(struct angara_device *adev)
{
	debugfs_remove_recursive(adev->debugfs);
}
