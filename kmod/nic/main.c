// SPDX-License-Identifier: GPL-2.0-only
/*
 * angara_nic: driver of the Angara NIC. Module parameters, device numbers, life of the device
 * structure. It touches no hardware. The head comment of nic.h says who owns what.
 */
#include <linux/fs.h>
#include <linux/log2.h>
#include <linux/module.h>
#include <linux/mount.h>
#include <linux/pseudo_fs.h>
#include <linux/slab.h>

#include "nic.h"
#include "pci.h"

#define DEVICES_MAX	64
#define FS_MAGIC	0x414e4752	/* "ANGR" */

unsigned int angara_cmd_entries = 256;
module_param_named(cmd_entries, angara_cmd_entries, uint, 0444);
MODULE_PARM_DESC(cmd_entries, "descriptors of a command ring, a power of two, 16 to 4096 (256)");

unsigned int angara_event_entries = 512;
module_param_named(event_entries, angara_event_entries, uint, 0444);
MODULE_PARM_DESC(event_entries, "records of an event ring, a power of two, 16 to 4096 (512)");

unsigned int angara_window_mb = 1024;
module_param_named(window_mb, angara_window_mb, uint, 0444);
MODULE_PARM_DESC(window_mb, "largest put window in MiB, 1 to 1024 (1024)");

unsigned int angara_mr_entries = 32768;
module_param_named(mr_entries, angara_mr_entries, uint, 0444);
MODULE_PARM_DESC(mr_entries, "regions of a device, 16 to 65536 (32768)");

unsigned int angara_pes_per_user;
module_param_named(pes_per_user, angara_pes_per_user, uint, 0444);
MODULE_PARM_DESC(pes_per_user,
		 "PEs of a device that one user may hold, 0 to 65536; 0: a quarter of them, root any (0)");

unsigned int angara_mrs_per_user;
module_param_named(mrs_per_user, angara_mrs_per_user, uint, 0444);
MODULE_PARM_DESC(mrs_per_user,
		 "regions of a device that one user may hold, 0 to 1048576; 0: a quarter of them, root any (0)");

unsigned int angara_mem_mb_per_user;
module_param_named(mem_mb_per_user, angara_mem_mb_per_user, uint, 0444);
MODULE_PARM_DESC(mem_mb_per_user,
		 "MiB of PEs' memory that one user may hold, 0 to 16777216; 0: a quarter of all, root any (0)");

unsigned int angara_job_keys = 256;
module_param_named(job_keys, angara_job_keys, uint, 0444);
MODULE_PARM_DESC(job_keys,
		 "job keys that can be granted for a device, to all users, 1 to 4096 (256)");

unsigned int angara_admin_timeout_ms = 5000;
module_param_named(admin_timeout_ms, angara_admin_timeout_ms, uint, 0444);
MODULE_PARM_DESC(admin_timeout_ms,
		 "a device that doesn't answer for so long has failed, 10 to 60000 (5000)");

static const struct {
	const char *name;
	const unsigned int *value;
	unsigned int min;
	unsigned int max;
	bool power_of_two;
} params[] = {
	{ "cmd_entries", &angara_cmd_entries, 16, 4096, true },
	{ "event_entries", &angara_event_entries, 16, 4096, true },
	{ "window_mb", &angara_window_mb, 1, 1024, false },
	{ "mr_entries", &angara_mr_entries, 16, 65536, false },
	{ "pes_per_user", &angara_pes_per_user, 0, 65536, false },
	{ "mrs_per_user", &angara_mrs_per_user, 0, 1048576, false },
	{ "mem_mb_per_user", &angara_mem_mb_per_user, 0, 16777216, false },
	{ "job_keys", &angara_job_keys, 1, 4096, false },
	{ "admin_timeout_ms", &angara_admin_timeout_ms, 10, 60000, false },
};

struct workqueue_struct *angara_wq;

static dev_t first_devt;
static DEFINE_IDA(minor_ida);
static struct vfsmount *inode_mnt;
static int inode_mnt_count;

static struct class angara_class = {
	.name = "angara",
	.dev_groups = angara_device_groups,
};

/* ---- an inode per device: all user mappings of a device hang off one address_space ----------- */

static int angara_fs_init_context(struct fs_context *fc)
{
	return init_pseudo(fc, FS_MAGIC) ? 0 : -ENOMEM;
}

/*
 * No owner: a device's mount must not keep the module. It ends with the last device, and those
 * have gone when the module's exit has unregistered the driver.
 */
static struct file_system_type angara_fs_type = {
	.name = "angara",
	.init_fs_context = angara_fs_init_context,
	.kill_sb = kill_anon_super,
};

static struct inode *device_inode_new(void)
{
	struct inode *inode;
	int ret;

	ret = simple_pin_fs(&angara_fs_type, &inode_mnt, &inode_mnt_count);
	if (ret)
		return ERR_PTR(ret);
	inode = alloc_anon_inode(inode_mnt->mnt_sb);
	if (IS_ERR(inode))
		simple_release_fs(&inode_mnt, &inode_mnt_count);
	return inode;
}

static void device_inode_free(struct inode *inode)
{
	iput(inode);
	simple_release_fs(&inode_mnt, &inode_mnt_count);
}

/* ---- life of a device ------------------------------------------------------------------------ */

/* The last reference: no file, domain or binding is left. */
static void device_release(struct device *dev)
{
	struct angara_device *adev = container_of(dev, struct angara_device, dev);

	ida_free(&minor_ida, adev->number);
	angara_grants_free(adev);
	device_inode_free(adev->inode);
	cleanup_srcu_struct(&adev->srcu);
	ida_destroy(&adev->mr_ida);
	ida_destroy(&adev->domain_ida);
	kfree(adev->pes);
	kfree(adev->pe_generation);
	kfree(adev);
}

struct angara_device *angara_device_alloc(struct pci_dev *pdev)
{
	struct angara_device *adev;
	int minor, ret;

	adev = kzalloc(sizeof(*adev), GFP_KERNEL);
	if (!adev)
		return ERR_PTR(-ENOMEM);
	ret = init_srcu_struct(&adev->srcu);
	if (ret)
		goto free_adev;
	adev->inode = device_inode_new();
	if (IS_ERR(adev->inode)) {
		ret = PTR_ERR(adev->inode);
		goto cleanup_srcu;
	}
	/* Who has closed all files finds the device under its old number when it is bound again. */
	flush_workqueue(angara_wq);
	minor = ida_alloc_max(&minor_ida, DEVICES_MAX - 1, GFP_KERNEL);
	if (minor < 0) {
		ret = minor;
		goto free_inode;
	}

	adev->pdev = pdev;
	adev->number = minor;
	angara_grants_init(adev);
	angara_hw_init(adev);
	spin_lock_init(&adev->pe_lock);
	angara_admin_init(adev);
	ida_init(&adev->mr_ida);
	ida_init(&adev->domain_ida);

	device_initialize(&adev->dev);
	adev->dev.class = &angara_class;
	adev->dev.parent = &pdev->dev;
	adev->dev.release = device_release;
	adev->dev.devt = MKDEV(MAJOR(first_devt), MINOR(first_devt) + minor);
	cdev_init(&adev->cdev, &angara_domain_fops);
	adev->cdev.owner = THIS_MODULE;
	ret = dev_set_name(&adev->dev, "angara%d", minor);
	if (ret) {
		put_device(&adev->dev);
		return ERR_PTR(ret);
	}
	return adev;

free_inode:
	device_inode_free(adev->inode);
cleanup_srcu:
	cleanup_srcu_struct(&adev->srcu);
free_adev:
	kfree(adev);
	return ERR_PTR(ret);
}

/* Nobody can open the file any more: keep those who have from the device. */
static void users_end(struct angara_device *adev)
{
	WRITE_ONCE(adev->removed, true);
	WRITE_ONCE(adev->hw->going, true);
	/* After this no call is under way, and every later fault maps a dummy page. */
	synchronize_srcu(&adev->srcu);
	angara_wake_all(adev);
	unmap_mapping_range(adev->inode->i_mapping, 0, 0, 1);
	angara_clients_remove(adev);
	angara_debugfs_del(adev);
	angara_pes_remove(adev);
}

int angara_device_add(struct angara_device *adev)
{
	int ret;

	/* Clients first: who finds the device can register memory. */
	angara_debugfs_add(adev);
	angara_clients_add(adev);
	ret = cdev_device_add(&adev->cdev, &adev->dev);
	/* The file was there before the rest failed. */
	if (ret)
		users_end(adev);
	return ret;
}

void angara_device_del(struct angara_device *adev)
{
	cdev_device_del(&adev->cdev, &adev->dev);
	users_end(adev);
}

/* ---- module ---------------------------------------------------------------------------------- */

static int __init check_params(void)
{
	unsigned int i, value;

	for (i = 0; i < ARRAY_SIZE(params); i++) {
		value = *params[i].value;
		if (value < params[i].min || value > params[i].max ||
		    (params[i].power_of_two && !is_power_of_2(value))) {
			pr_err("angara_nic: %s=%u: must be %s%u to %u\n", params[i].name, value,
			       params[i].power_of_two ? "a power of two, " : "", params[i].min,
			       params[i].max);
			return -EINVAL;
		}
	}
	return 0;
}

static int __init angara_nic_init(void)
{
	int ret;

	ret = check_params();
	if (ret)
		return ret;
	angara_wq = alloc_workqueue("angara", WQ_UNBOUND, 0);
	if (!angara_wq)
		return -ENOMEM;
	ret = angara_mmap_init();
	if (ret)
		goto destroy_wq;
	ret = alloc_chrdev_region(&first_devt, 0, DEVICES_MAX, "angara");
	if (ret)
		goto exit_mmap;
	ret = class_register(&angara_class);
	if (ret)
		goto unregister_chrdev;
	ret = angara_grant_init();
	if (ret)
		goto unregister_class;
	angara_debugfs_init();
	ret = angara_pci_register();
	if (ret)
		goto exit_debugfs;
	return 0;

exit_debugfs:
	angara_debugfs_exit();
	angara_grant_exit();
unregister_class:
	class_unregister(&angara_class);
unregister_chrdev:
	unregister_chrdev_region(first_devt, DEVICES_MAX);
exit_mmap:
	angara_mmap_exit();
destroy_wq:
	destroy_workqueue(angara_wq);
	return ret;
}

static void __exit angara_nic_exit(void)
{
	angara_grant_exit();
	angara_pci_unregister();
	/* No file is open; domains may still be on their way out. */
	destroy_workqueue(angara_wq);
	angara_owner_exit();
	angara_debugfs_exit();
	class_unregister(&angara_class);
	unregister_chrdev_region(first_devt, DEVICES_MAX);
	angara_mmap_exit();
	ida_destroy(&minor_ida);
}

module_init(angara_nic_init);
module_exit(angara_nic_exit);

MODULE_DESCRIPTION("Angara NIC");
MODULE_LICENSE("GPL");
MODULE_VERSION(ANGARA_MODULE_VERSION);
