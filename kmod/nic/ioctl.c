// SPDX-License-Identifier: GPL-2.0-only
/*
 * Ioctls by table, for all files of angara_nic and its clients: who may call, sizes, flags. See
 * the head of the uapi header for the rules.
 */
#include <linux/export.h>
#include <linux/uaccess.h>

#include "nic.h"

/* What every argument begins with. */
struct call_head {
	u32 size;
	u32 flags;
};

static const struct angara_ioctl *ioctl_find(const struct angara_ioctl *table, size_t entries,
					     unsigned int cmd)
{
	size_t i;

	for (i = 0; i < entries; i++) {
		if (table[i].cmd == cmd)
			return &table[i];
	}
	return NULL;
}

static int ioctl_call(struct file *file, const struct angara_ioctl *ioctl, void __user *uarg)
{
	union {
		struct call_head head;
		u64 bytes[ANGARA_CALL_MAX / sizeof(u64)];
	} arg = { };
	struct angara_call call = {
		.file = file,
		.uarg = uarg,
		.ksize = ioctl->size,
		.arg = &arg,
	};
	int ret;

	if (get_user(call.usize, (u32 __user *)uarg))
		return -EFAULT;
	if (call.usize < ioctl->min_size)
		return -EINVAL;
	if (call.usize > PAGE_SIZE)
		return -E2BIG;
	ret = copy_struct_from_user(&arg, call.ksize, uarg,
				    ioctl->any_version ? min(call.usize, call.ksize) : call.usize);
	if (ret)
		return ret;
	/* Another thread may have written it meanwhile. */
	arg.head.size = call.usize;
	if (!ioctl->any_version && arg.head.flags & ~ioctl->flags)
		return -EINVAL;
	return ioctl->handler(&call);
}

long angara_ioctl_serve(struct file *file, unsigned int cmd, unsigned long arg,
			const struct angara_ioctl *table, size_t entries,
			const struct angara_owned *owned, atomic64_t *refused)
{
	const struct angara_ioctl *ioctl;
	int ret;

	ioctl = ioctl_find(table, entries, cmd);
	if (!ioctl)
		ret = -ENOTTY;
	else if (owned && !angara_owned_is_current(owned))
		ret = -EPERM;
	else
		ret = ioctl_call(file, ioctl, (void __user *)arg);
	/* Not the caller's doing: the device, or a signal. */
	if (ret && ret != -EIO && ret != -ENODEV && ret != -EINTR)
		atomic64_inc(refused);
	return ret;
}
EXPORT_SYMBOL_GPL(angara_ioctl_serve);

int angara_call_reply(const struct angara_call *call)
{
	return copy_to_user(call->uarg, call->arg, min(call->usize, call->ksize)) ? -EFAULT : 0;
}
EXPORT_SYMBOL_GPL(angara_call_reply);
