// SPDX-License-Identifier: GPL-2.0-only
/*
 * The file of a PE: what its owner does with it. Whoever looks at the PE's memory is the owner
 * (its mm lives, so the PE is held) and in an SRCU read section that has seen the device
 * there.
 */
#include <linux/anon_inodes.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/poll.h>
#include <linux/uaccess.h>

#include "nic.h"

/*
 * The owner closes the file; others, to whom it was passed on, may still have it. A process that
 * ends has no mm any more.
 */
static int pe_flush(struct file *file, fl_owner_t id)
{
	struct angara_pe *pe = file->private_data;

	if (angara_owned_is_current(&pe->dom->owned))
		set_bit(ANGARA_PE_BIT_CLOSED, &pe->flags);
	return 0;
}

static int pe_close(struct inode *inode, struct file *file)
{
	struct angara_pe *pe = file->private_data;
	struct angara_device *adev = pe->adev;
	int idx;

	/* If the PE is still running, remove() hasn't come to it: the hardware is there. */
	idx = srcu_read_lock(&adev->srcu);
	mutex_lock(&pe->dom->lock);
	angara_pe_stop(pe, angara_pe_end(pe));
	mutex_unlock(&pe->dom->lock);
	srcu_read_unlock(&adev->srcu, idx);
	angara_pe_put(pe);
	return 0;
}

/* Take the interrupts since the last read(): -EAGAIN if there were none, -ENODEV if none comes. */
static int pe_irqs_take(struct angara_pe *pe, u64 *count)
{
	struct angara_device *adev = pe->adev;
	u64 irqs;
	int idx, ret;

	idx = srcu_read_lock(&adev->srcu);
	ret = angara_device_check(adev);
	if (!ret && angara_pe_status(pe)->state == cpu_to_le32(ANGARA_PE_GONE))
		ret = -ENODEV;
	if (!ret) {
		irqs = angara_pe_irqs(pe);
		*count = irqs - xchg(&pe->irqs_read, irqs);
		ret = *count ? 0 : -EAGAIN;
	}
	srcu_read_unlock(&adev->srcu, idx);
	return ret;
}

static ssize_t pe_read(struct file *file, char __user *buf, size_t size, loff_t *pos)
{
	struct angara_pe *pe = file->private_data;
	u64 count;
	int ret, err;

	if (!angara_owned_is_current(&pe->dom->owned))
		return -EPERM;
	if (size < sizeof(count))
		return -EINVAL;
	ret = pe_irqs_take(pe, &count);
	if (ret == -EAGAIN && !(file->f_flags & O_NONBLOCK)) {
		err = wait_event_interruptible(pe->wait,
					       (ret = pe_irqs_take(pe, &count)) != -EAGAIN);
		if (err)
			return err;
	}
	if (ret)
		return ret;
	return copy_to_user(buf, &count, sizeof(count)) ? -EFAULT : sizeof(count);
}

static __poll_t pe_poll(struct file *file, poll_table *wait)
{
	struct angara_pe *pe = file->private_data;
	struct angara_device *adev = pe->adev;
	const struct angara_status *status;
	__poll_t mask = 0;
	int idx;

	if (!angara_owned_is_current(&pe->dom->owned))
		return EPOLLERR;
	poll_wait(file, &pe->wait, wait);
	idx = srcu_read_lock(&adev->srcu);
	if (angara_device_check(adev)) {
		mask = EPOLLERR | EPOLLHUP;
	} else {
		status = angara_pe_status(pe);
		if (angara_pe_irqs(pe) != READ_ONCE(pe->irqs_read)) {
			/* The device clears armed before it counts the interrupt. */
			dma_rmb();
			if (!READ_ONCE(status->armed))
				mask = EPOLLIN | EPOLLRDNORM;
		}
		if (READ_ONCE(status->state) != cpu_to_le32(ANGARA_PE_RUNNING))
			mask |= EPOLLERR | EPOLLHUP;
	}
	srcu_read_unlock(&adev->srcu, idx);
	return mask;
}

static const struct angara_ioctl pe_ioctls[] = {
	{ ANGARA_IOC_WINDOW_COMMIT, ANGARA_CALL_SIZE(struct angara_ioc_window_commit),
	  offsetofend(struct angara_ioc_window_commit, length), 0, false,
	  angara_window_commit_ioctl },
};

static long pe_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct angara_pe *pe = file->private_data;
	struct angara_device *adev = pe->adev;

	return angara_ioctl_serve(file, cmd, arg, pe_ioctls, ARRAY_SIZE(pe_ioctls),
				  &pe->dom->owned, &adev->counters[ANGARA_COUNTER_calls_refused]);
}

const struct file_operations angara_pe_fops = {
	.owner = THIS_MODULE,
	.flush = pe_flush,
	.release = pe_close,
	.read = pe_read,
	.poll = pe_poll,
	.mmap = angara_pe_mmap,
	.unlocked_ioctl = pe_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

/* A PE in a file of its own, which isn't anybody's yet. In an SRCU read section. */
static struct file *pe_file_create(struct angara_domain *dom, u64 window_size, u64 job_value)
{
	struct angara_pe *pe;
	struct file *file;
	int ret;

	ret = angara_device_check(dom->adev);
	if (ret)
		return ERR_PTR(ret);
	ret = angara_grant_get(dom, job_value);
	if (ret)
		return ERR_PTR(ret);
	pe = angara_pe_create(dom, window_size,
			      job_value ? angara_job_key_granted(job_value) : dom->job_key);
	angara_grant_put(dom, job_value);
	if (IS_ERR(pe))
		return ERR_CAST(pe);
	file = anon_inode_getfile("[angara_pe]", &angara_pe_fops, pe, O_RDWR);
	if (IS_ERR(file)) {
		mutex_lock(&dom->lock);
		angara_pe_stop(pe, ANGARA_END_CLOSED);
		mutex_unlock(&dom->lock);
		angara_pe_put(pe);
		return file;
	}
	/* All mappings of the device hang off one address_space; see main.c. */
	file->f_mapping = dom->adev->inode->i_mapping;
	return file;
}

/* Of the domain's file. */
int angara_pe_create_ioctl(struct angara_call *call)
{
	struct angara_domain *dom = call->file->private_data;
	struct angara_ioc_pe_create *arg = call->arg;
	struct angara_pe *pe;
	struct file *file;
	int fd, ret, idx;

	if (arg->fd || arg->index || arg->generation || arg->reserved)
		return -EINVAL;
	if (!arg->window_size || !PAGE_ALIGNED(arg->window_size) ||
	    arg->window_size > dom->adev->window_max || arg->job_key >= ANGARA_JOB_VALUES)
		return -EINVAL;
	fd = get_unused_fd_flags(O_CLOEXEC);
	if (fd < 0)
		return fd;
	idx = srcu_read_lock(&dom->adev->srcu);
	file = pe_file_create(dom, arg->window_size, arg->job_key);
	srcu_read_unlock(&dom->adev->srcu, idx);
	if (IS_ERR(file)) {
		ret = PTR_ERR(file);
		goto put_fd;
	}
	pe = file->private_data;

	arg->fd = fd;
	arg->index = pe->index;
	arg->generation = pe->generation;
	ret = angara_call_reply(call);
	if (ret)
		goto put_file;
	fd_install(fd, file);
	return 0;

put_file:
	/* Closes the PE, when the call returns. */
	set_bit(ANGARA_PE_BIT_CLOSED, &pe->flags);
	fput(file);
put_fd:
	put_unused_fd(fd);
	return ret;
}
