// SPDX-License-Identifier: GPL-2.0-only
/*
 * angara_memreg: memory registration for the Angara NIC, /dev/angara_memreg. Module, file,
 * counters. The head comment of memreg.h says who owns what.
 */
#include <linux/debugfs.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/seq_file.h>
#include <linux/slab.h>

#include "memreg.h"

atomic64_t memreg_counters[MEMREG_COUNTERS_NUM];

/* ---- file ------------------------------------------------------------------------------------ */

/* The end of the mm: what it has registered ends with it, even if the file survives elsewhere. */
static void file_release(struct angara_owned *owned)
{
	memreg_file_drain(container_of(owned, struct memreg_file, owned));
}

static int memreg_open(struct inode *inode, struct file *file)
{
	struct memreg_file *mfile;
	int ret;

	mfile = kzalloc(sizeof(*mfile), GFP_KERNEL_ACCOUNT);
	if (!mfile)
		return -ENOMEM;
	xa_init_flags(&mfile->regions, XA_FLAGS_ALLOC | XA_FLAGS_ACCOUNT);
	memreg_users_init(&mfile->users);
	mutex_init(&mfile->call_lock);
	ret = angara_owned_add(&mfile->owned, file_release);
	if (ret) {
		kfree(mfile);
		return ret;
	}
	file->private_data = mfile;
	return nonseekable_open(inode, file);
}

static int memreg_close(struct inode *inode, struct file *file)
{
	struct memreg_file *mfile = file->private_data;

	memreg_file_drain(mfile);
	angara_owned_del(&mfile->owned);
	xa_destroy(&mfile->regions);
	memreg_stale_free(mfile);
	kfree(mfile);
	return 0;
}

static const struct angara_ioctl memreg_ioctls[] = {
	{ ANGARA_IOC_MR_REG, ANGARA_CALL_SIZE(struct angara_ioc_mr_reg),
	  offsetofend(struct angara_ioc_mr_reg, page_shift), 0, false, memreg_reg_ioctl },
	{ ANGARA_IOC_MR_DEREG, ANGARA_CALL_SIZE(struct angara_ioc_mr_dereg),
	  offsetofend(struct angara_ioc_mr_dereg, reserved), 0, false, memreg_dereg_ioctl },
	{ ANGARA_IOC_MR_CHECK, ANGARA_CALL_SIZE(struct angara_ioc_mr_check),
	  offsetofend(struct angara_ioc_mr_check, length), 0, false, memreg_check_ioctl },
};

static long memreg_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct memreg_file *mfile = file->private_data;

	return angara_ioctl_serve(file, cmd, arg, memreg_ioctls, ARRAY_SIZE(memreg_ioctls),
				  &mfile->owned, &memreg_counters[MEMREG_COUNTER_calls_refused]);
}

static const struct file_operations memreg_fops = {
	.owner = THIS_MODULE,
	.open = memreg_open,
	.release = memreg_close,
	.mmap = memreg_mmap,
	.unlocked_ioctl = memreg_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

static struct miscdevice memreg_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "angara_memreg",
	.fops = &memreg_fops,
};

/* ---- counters: /sys/kernel/debug/angara_memreg/counters -------------------------------------- */

#define COUNTER_NAME(name)	#name,

static const char *const counter_names[] = { MEMREG_COUNTERS(COUNTER_NAME) };
static struct dentry *debugfs_dir;

static int counters_show(struct seq_file *file, void *data)
{
	unsigned int i;

	for (i = 0; i < MEMREG_COUNTERS_NUM; i++)
		seq_printf(file, "%s %lld\n", counter_names[i],
			   (long long)atomic64_read(&memreg_counters[i]));
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(counters);

/* ---- module ---------------------------------------------------------------------------------- */

static int __init angara_memreg_init(void)
{
	int ret;

	ret = memreg_client_register();
	if (ret)
		return ret;
	ret = misc_register(&memreg_misc);
	if (ret) {
		memreg_client_unregister();
		return ret;
	}
	debugfs_dir = debugfs_create_dir("angara_memreg", NULL);
	debugfs_create_file("counters", 0444, debugfs_dir, NULL, &counters_fops);
	return 0;
}

static void __exit angara_memreg_exit(void)
{
	debugfs_remove_recursive(debugfs_dir);
	misc_deregister(&memreg_misc);
	memreg_client_unregister();
}

module_init(angara_memreg_init);
module_exit(angara_memreg_exit);

MODULE_DESCRIPTION("Memory registration for the Angara NIC");
MODULE_LICENSE("GPL");
MODULE_VERSION(ANGARA_MODULE_VERSION);
