// SPDX-License-Identifier: GPL-2.0-only
/*
 * Protection domains: open files of /dev/angara<N>. A domain lives as long as its file, its PEs
 * or its regions; the end of its mm stops its PEs, and has the device forget its regions (which
 * their client then ends).
 */
#include <linux/cred.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "nic.h"

static void domain_free_work(struct work_struct *work)
{
	struct angara_domain *dom = container_of(work, struct angara_domain, free_work);
	struct angara_device *adev = dom->adev;

	angara_owned_del(&dom->owned);
	angara_user_put(dom->user);
	ida_free(&adev->domain_ida, dom->number);
	mutex_destroy(&dom->lock);
	kfree(dom);
	put_device(&adev->dev);
}

static void domain_free(struct kref *ref)
{
	queue_work(angara_wq, &container_of(ref, struct angara_domain, ref)->free_work);
}

void angara_domain_hold(struct angara_domain *dom)
{
	kref_get(&dom->ref);
}

void angara_domain_put(struct angara_domain *dom)
{
	kref_put(&dom->ref, domain_free);
}
EXPORT_SYMBOL_GPL(angara_domain_put);

/* The owner ended, or runs another program: nothing of it is reachable after this. */
static void domain_release(struct angara_owned *owned)
{
	struct angara_domain *dom = container_of(owned, struct angara_domain, owned);
	struct angara_device *adev = dom->adev;
	struct angara_pe *pe, *next;
	int idx;

	/* A PE on the list wasn't stopped, so remove() hasn't come to it: the hardware is there. */
	idx = srcu_read_lock(&adev->srcu);
	mutex_lock(&dom->lock);
	list_for_each_entry_safe(pe, next, &dom->pes, node)
		angara_pe_stop(pe, angara_pe_end(pe));
	mutex_unlock(&dom->lock);
	angara_domain_kill_mrs(dom);
	srcu_read_unlock(&adev->srcu, idx);
	angara_count(adev, owners_released, 1);
}

static struct angara_domain *domain_create(struct angara_device *adev)
{
	struct angara_domain *dom;
	int ret;

	dom = kzalloc(sizeof(*dom), GFP_KERNEL_ACCOUNT);
	if (!dom)
		return ERR_PTR(-ENOMEM);
	kref_init(&dom->ref);
	mutex_init(&dom->lock);
	INIT_LIST_HEAD(&dom->pes);
	init_rwsem(&dom->mr_sem);
	spin_lock_init(&dom->mr_lock);
	INIT_LIST_HEAD(&dom->mrs);
	INIT_WORK(&dom->free_work, domain_free_work);
	dom->adev = adev;
	dom->uid = from_kuid(&init_user_ns, current_euid());
	ret = angara_job_key_own(adev, &dom->job_key);
	if (ret)
		goto free_dom;
	ret = ida_alloc_min(&adev->domain_ida, 1, GFP_KERNEL);
	if (ret < 0)
		goto free_dom;
	dom->number = ret;
	dom->user = angara_user_get(adev);
	if (!dom->user) {
		ret = -ENOMEM;
		goto free_number;
	}
	/* The device forgets all regions at once, before their client ends them one by one. */
	ret = angara_owned_add_first(&dom->owned, domain_release);
	if (ret)
		goto put_user;
	get_device(&adev->dev);
	return dom;

put_user:
	angara_user_put(dom->user);
free_number:
	ida_free(&adev->domain_ida, dom->number);
free_dom:
	kfree(dom);
	return ERR_PTR(ret);
}

/*
 * No read section: to own something may take mmap_lock, and whoever has that may wait for user
 * memory. A domain of a device that goes meanwhile is of no use, but no harm.
 */
static int domain_open(struct inode *inode, struct file *file)
{
	struct angara_device *adev = container_of(inode->i_cdev, struct angara_device, cdev);
	struct angara_domain *dom;
	int ret;

	ret = angara_device_check(adev);
	if (ret)
		return ret;
	dom = domain_create(adev);
	if (IS_ERR(dom))
		return PTR_ERR(dom);
	file->private_data = dom;
	return nonseekable_open(inode, file);
}

static int domain_close(struct inode *inode, struct file *file)
{
	angara_domain_put(file->private_data);
	return 0;
}

static int info_ioctl(struct angara_call *call)
{
	struct angara_domain *dom = call->file->private_data;
	struct angara_device *adev = dom->adev;
	struct angara_ioc_info *info = call->arg;
	bool link_up;
	int ret, idx;

	if (info->version != ANGARA_UAPI_VERSION) {
		memset(info, 0, sizeof(*info));
		info->size = call->usize;
		info->version = ANGARA_UAPI_VERSION;
		ret = angara_call_reply(call);
		return ret ? ret : -EPROTO;
	}
	/* One of ours: now all of it counts. */
	ret = copy_struct_from_user(info, call->ksize, call->uarg, call->usize);
	if (ret)
		return ret;
	info->size = call->usize;
	info->version = ANGARA_UAPI_VERSION;
	if (info->flags || call->usize < offsetofend(struct angara_ioc_info, name) ||
	    memchr_inv(&info->caps, 0, offsetofend(struct angara_ioc_info, name) -
				       offsetof(struct angara_ioc_info, caps)))
		return -EINVAL;

	idx = srcu_read_lock(&adev->srcu);
	ret = angara_device_check(adev);
	link_up = !ret && angara_link_check(adev);
	srcu_read_unlock(&adev->srcu, idx);
	if (ret)
		return ret;

	info->caps = (adev->loopback ? ANGARA_INFO_LOOPBACK : 0) |
		     (link_up ? ANGARA_INFO_LINK_UP : 0);
	info->node = adev->node_id;
	info->pe_max = adev->pe_max;
	info->mr_max = adev->mr_entries;
	info->cmd_entries = angara_cmd_entries;
	info->event_entries = angara_event_entries;
	info->pio_bytes = adev->pio_bytes;
	info->marker_slots = adev->marker_slots;
	info->put_max = adev->put_max;
	info->formats = ANGARA_FORMATS_VERSION;
	info->window_max = adev->window_max;
	info->offload_max = adev->offload_max;
	strscpy(info->name, dev_name(&adev->dev), sizeof(info->name));
	return angara_call_reply(call);
}

static const struct angara_ioctl domain_ioctls[] = {
	/* Callers of any version are told which one this is. */
	{ ANGARA_IOC_INFO, ANGARA_CALL_SIZE(struct angara_ioc_info),
	  offsetofend(struct angara_ioc_info, version), 0, true, info_ioctl },
	{ ANGARA_IOC_PE_CREATE, ANGARA_CALL_SIZE(struct angara_ioc_pe_create),
	  offsetofend(struct angara_ioc_pe_create, reserved), 0, false, angara_pe_create_ioctl },
};

static long domain_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct angara_domain *dom = file->private_data;
	struct angara_device *adev = dom->adev;

	return angara_ioctl_serve(file, cmd, arg, domain_ioctls, ARRAY_SIZE(domain_ioctls),
				  &dom->owned, &adev->counters[ANGARA_COUNTER_calls_refused]);
}

const struct file_operations angara_domain_fops = {
	.owner = THIS_MODULE,
	.open = domain_open,
	.release = domain_close,
	.unlocked_ioctl = domain_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

struct angara_domain *angara_domain_get(int fd)
{
	struct angara_domain *dom;
	struct file *file;
	int ret = 0;

	file = fget(fd);
	if (!file)
		return ERR_PTR(-EBADF);
	dom = file->private_data;
	if (file->f_op != &angara_domain_fops)
		ret = -EBADF;
	else if (!angara_owned_is_current(&dom->owned))
		ret = -EPERM;
	else
		ret = angara_device_check(dom->adev);
	if (!ret)
		angara_domain_hold(dom);
	fput(file);
	return ret ? ERR_PTR(ret) : dom;
}
EXPORT_SYMBOL_GPL(angara_domain_get);

struct angara_device *angara_domain_device(struct angara_domain *dom)
{
	return dom->adev;
}
EXPORT_SYMBOL_GPL(angara_domain_device);
