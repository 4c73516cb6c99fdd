// SPDX-License-Identifier: GPL-2.0-only
/*
 * Granted job keys: /dev/angara_jobkey, through which the administrator lets a user's PEs have keys
 * besides the user's own. Grants belong to a device, and last until they are revoked or the device
 * goes.
 *
 * device->grants_lock is held for reading from the look whether there is the grant that a PE asks
 * for until the device knows the PE; for writing while a grant is taken away and the PEs that have
 * it end. So when that returns there is none, and none comes.
 */
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/uidgid.h>

#include "nic.h"

/* In the order of uid and value. */
struct angara_grant {
	struct list_head node;
	u32 uid;	/* of the initial user namespace */
	u64 value;
};

atomic64_t angara_grant_refused;

void angara_grants_init(struct angara_device *adev)
{
	init_rwsem(&adev->grants_lock);
	INIT_LIST_HEAD(&adev->grants);
}

void angara_grants_free(struct angara_device *adev)
{
	struct angara_grant *grant, *next;

	list_for_each_entry_safe(grant, next, &adev->grants, node)
		kfree(grant);
}

static int grant_compare(const struct angara_grant *grant, u32 uid, u64 value)
{
	if (grant->uid != uid)
		return grant->uid < uid ? -1 : 1;
	if (grant->value != value)
		return grant->value < value ? -1 : 1;
	return 0;
}

/* The first one that isn't before (uid, value), or NULL. */
static struct angara_grant *grant_from(struct angara_device *adev, u32 uid, u64 value)
{
	struct angara_grant *grant;

	lockdep_assert_held(&adev->grants_lock);
	list_for_each_entry(grant, &adev->grants, node) {
		if (grant_compare(grant, uid, value) >= 0)
			return grant;
	}
	return NULL;
}

static struct angara_grant *grant_find(struct angara_device *adev, u32 uid, u64 value)
{
	struct angara_grant *grant = grant_from(adev, uid, value);

	return grant && !grant_compare(grant, uid, value) ? grant : NULL;
}

int angara_grant_get(struct angara_domain *dom, u64 value)
{
	struct angara_device *adev = dom->adev;

	if (!value)
		return 0;
	down_read(&adev->grants_lock);
	if (grant_find(adev, dom->uid, value))
		return 0;
	up_read(&adev->grants_lock);
	return -EACCES;
}

void angara_grant_put(struct angara_domain *dom, u64 value)
{
	if (value)
		up_read(&dom->adev->grants_lock);
}

/* ---- the administrator's calls --------------------------------------------------------------- */

static int grant_add(struct angara_device *adev, struct angara_ioc_job *job)
{
	struct angara_grant *grant, *next;
	int ret = 0;

	grant = kzalloc(sizeof(*grant), GFP_KERNEL);
	if (!grant)
		return -ENOMEM;
	grant->uid = job->uid;
	grant->value = job->value;
	down_write(&adev->grants_lock);
	next = grant_from(adev, job->uid, job->value);
	if (next && !grant_compare(next, job->uid, job->value)) {
		ret = -EEXIST;
	} else if (adev->num_grants >= angara_job_keys) {
		ret = -ENOSPC;
	} else {
		list_add_tail(&grant->node, next ? &next->node : &adev->grants);
		adev->num_grants++;
	}
	up_write(&adev->grants_lock);
	if (ret)
		kfree(grant);
	return ret;
}

static int grant_del(struct angara_device *adev, struct angara_ioc_job *job)
{
	struct angara_grant *grant;
	unsigned int ended;
	int ret = -ENOENT;

	down_write(&adev->grants_lock);
	grant = grant_find(adev, job->uid, job->value);
	if (grant) {
		list_del(&grant->node);
		kfree(grant);
		adev->num_grants--;
		ended = angara_pes_revoke(adev, job->uid, angara_job_key_granted(job->value));
		dev_info_ratelimited(&adev->pdev->dev,
				     "a job key of user %u was revoked: %u PEs ended\n",
				     job->uid, ended);
		ret = 0;
	}
	up_write(&adev->grants_lock);
	return ret;
}

static int grant_next(struct angara_device *adev, struct angara_ioc_job *job)
{
	struct angara_grant *grant;
	int ret = -ENOENT;

	down_read(&adev->grants_lock);
	grant = grant_from(adev, job->uid, job->value + 1);
	if (grant) {
		job->uid = grant->uid;
		job->value = grant->value;
		ret = 0;
	}
	up_read(&adev->grants_lock);
	return ret;
}

static bool job_is_sound(const struct angara_ioc_job *job)
{
	return job->value && job->value < ANGARA_JOB_VALUES && job->uid != (u32)-1 &&
	       !job->reserved;
}

static int job_call(struct angara_call *call, bool sound,
		    int (*serve)(struct angara_device *adev, struct angara_ioc_job *job))
{
	struct angara_ioc_job *job = call->arg;
	struct angara_device *adev;
	int idx, ret;

	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	if (!sound)
		return -EINVAL;
	adev = angara_device_find(job->device);
	if (!adev)
		return -ENXIO;
	idx = srcu_read_lock(&adev->srcu);
	ret = angara_device_check(adev);
	if (!ret)
		ret = serve(adev, job);
	srcu_read_unlock(&adev->srcu, idx);
	put_device(&adev->dev);
	return ret;
}

static int add_ioctl(struct angara_call *call)
{
	return job_call(call, job_is_sound(call->arg), grant_add);
}

static int del_ioctl(struct angara_call *call)
{
	return job_call(call, job_is_sound(call->arg), grant_del);
}

static int next_ioctl(struct angara_call *call)
{
	const struct angara_ioc_job *job = call->arg;
	int ret = job_call(call, !job->reserved && job->value < ANGARA_JOB_VALUES, grant_next);

	return ret ? ret : angara_call_reply(call);
}

static const struct angara_ioctl grant_ioctls[] = {
	{ ANGARA_IOC_JOB_ADD, ANGARA_CALL_SIZE(struct angara_ioc_job),
	  offsetofend(struct angara_ioc_job, reserved), 0, false, add_ioctl },
	{ ANGARA_IOC_JOB_DEL, ANGARA_CALL_SIZE(struct angara_ioc_job),
	  offsetofend(struct angara_ioc_job, reserved), 0, false, del_ioctl },
	{ ANGARA_IOC_JOB_NEXT, ANGARA_CALL_SIZE(struct angara_ioc_job),
	  offsetofend(struct angara_ioc_job, reserved), 0, false, next_ioctl },
};

/* Who may is asked at each call: the file belongs to nobody. */
static long grant_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	return angara_ioctl_serve(file, cmd, arg, grant_ioctls, ARRAY_SIZE(grant_ioctls), NULL,
				  &angara_grant_refused);
}

static const struct file_operations grant_fops = {
	.owner = THIS_MODULE,
	.open = nonseekable_open,
	.unlocked_ioctl = grant_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

static struct miscdevice grant_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "angara_jobkey",
	.fops = &grant_fops,
	.mode = 0600,
};

int angara_grant_init(void)
{
	return misc_register(&grant_misc);
}

void angara_grant_exit(void)
{
	misc_deregister(&grant_misc);
}
