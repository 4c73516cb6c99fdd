/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What angara_nic gives to the modules above it (angara_memreg).
 *
 * A client sees devices through its add() and remove() callbacks. Between the two it may create
 * regions in domains of that device; remove() returns when all of them are destroyed. angara_nic
 * can't be unloaded while a client uses its symbols.
 *
 * The memory behind a region belongs to the client: it pins pages, hands over their scatter list,
 * and may unpin only after angara_mr_destroy() has returned 0.
 */
#ifndef ANGARA_CLIENT_H
#define ANGARA_CLIENT_H

#include <linux/build_bug.h>
#include <linux/list.h>
#include <linux/mm_types.h>
#include <linux/scatterlist.h>
#include <linux/types.h>

struct angara_device;
struct angara_domain;
struct angara_mr;
struct angara_owner;

/* ---- devices --------------------------------------------------------------------------------- */

/**
 * struct angara_client - a module that wants to know the devices
 * @name:	for messages
 * @add:	a device has come. An error keeps this client from using it
 * @remove:	the device goes; may sleep. Returns when nothing of the client's refers to the
 *		device. Not called where @add failed
 * @node, @id:	of angara_nic
 *
 * Callbacks are serialised, for all clients and devices.
 */
struct angara_client {
	const char *name;
	int (*add)(struct angara_device *adev);
	void (*remove)(struct angara_device *adev);
	struct list_head node;
	unsigned int id;
};

int angara_client_register(struct angara_client *client);
void angara_client_unregister(struct angara_client *client);

/* Largest segment of a scatter list for angara_mr_create(). */
unsigned int angara_device_max_segment(struct angara_device *adev);
/* -EOPNOTSUPP if DMA of this device could go through bounce buffers, which a region can't. */
int angara_device_check_dma(struct angara_device *adev);

/* ---- domains --------------------------------------------------------------------------------- */

/*
 * Domain of an open file, with a reference on the domain, not on the file.
 * -EBADF: no domain; -EPERM: of another process; -ENODEV: its device has gone or failed.
 */
struct angara_domain *angara_domain_get(int fd);
void angara_domain_put(struct angara_domain *dom);
struct angara_device *angara_domain_device(struct angara_domain *dom);

/* ---- regions --------------------------------------------------------------------------------- */

/**
 * struct angara_mr_info - a new region
 * @key:	names it to remote PEs
 * @page_shift:	log2 of the page size that the device uses
 */
struct angara_mr_info {
	u64 key;
	u32 page_shift;
};

/*
 * Map [offset of the first entry, length) of @sgt for DMA and let the device know it. @access:
 * ANGARA_MR_*. @sgt must stay until angara_mr_destroy(). The region holds a reference on @dom.
 */
struct angara_mr *angara_mr_create(struct angara_domain *dom, struct sg_table *sgt, u64 length,
				   u32 access, struct angara_mr_info *info);
/*
 * For memory that moves. The device holds operations that meet a suspended region, and goes on with
 * them when it is resumed; they fail when it is destroyed.
 *
 * Suspend: returns 0 when no access is in flight or will start and the memory is unmapped. It
 * doesn't wait for the far end of any operation, so that two moves can't wait for each other. -EIO:
 * as of angara_mr_destroy(), which remains to be called.
 * Resume: map @sgt, which takes the place of the former one: as long, and beginning at the same
 * offset in a page. -ENODEV: the device has gone or failed; -ENOMEM, -EOPNOTSUPP, -EINVAL: it can't
 * be mapped. The region stays suspended then.
 *
 * Nothing is changed, and 0 returned, if the region is as wanted, or if the end of its domain's mm
 * has made an end of it. Calls about one region are serialised by the client.
 */
int angara_mr_suspend(struct angara_mr *mr);
int angara_mr_resume(struct angara_mr *mr, struct sg_table *sgt);
/*
 * Returns 0 when no access is in flight or will start and the memory is unmapped. -EIO: the device
 * didn't acknowledge, and its DMA couldn't be stopped: the pages must stay pinned for ever. The
 * region is gone in both cases.
 */
int angara_mr_destroy(struct angara_mr *mr);

/* ---- ownership by a process image ------------------------------------------------------------ */

/**
 * struct angara_owned - an object that belongs to one mm
 * @owner:	of angara_nic
 * @node:	of angara_nic
 * @release:	the mm ends (exit, exec): give back what the object holds. May sleep; runs at most
 *		once, never concurrently with a call of the owner's; must not call
 *		angara_owned_del()
 */
struct angara_owned {
	struct angara_owner *owner;
	struct list_head node;
	void (*release)(struct angara_owned *owned);
};

/* Let current->mm own the object. May take mmap_lock. */
int angara_owned_add(struct angara_owned *owned, void (*release)(struct angara_owned *owned));
/* Waits for a release() that is running. */
void angara_owned_del(struct angara_owned *owned);
bool angara_owned_is_current(const struct angara_owned *owned);
/* The mm; the struct lives as long as the object is owned. */
struct mm_struct *angara_owned_mm(const struct angara_owned *owned);

/* ---- limits ---------------------------------------------------------------------------------- */

/* Count pages on mm->pinned_vm against the caller's RLIMIT_MEMLOCK: -ENOMEM. */
int angara_pinned_charge(struct mm_struct *mm, unsigned long pages);
void angara_pinned_uncharge(struct mm_struct *mm, unsigned long pages);

/* ---- ioctls ---------------------------------------------------------------------------------- */

#define ANGARA_CALL_MAX	256	/* bytes of the largest argument */

/**
 * struct angara_call - an ioctl being served
 * @file:	where
 * @uarg:	argument of the caller
 * @usize:	its size, as the caller knows it
 * @ksize:	its size, as this kernel knows it
 * @arg:	copy, @ksize bytes: what the caller doesn't have is zero
 */
struct angara_call {
	struct file *file;
	void __user *uarg;
	u32 usize;
	u32 ksize;
	void *arg;
};

/**
 * struct angara_ioctl - entry of a file's table of ioctls
 * @cmd:	number
 * @size:	bytes of the argument
 * @min_size:	the same in the first version that had the call
 * @flags:	known flags
 * @any_version: callers of other versions are served too: the handler judges their flags, and what
 *		is behind the argument that this kernel knows isn't looked at
 * @handler:	returns 0 or a negative errno; replies itself
 */
struct angara_ioctl {
	unsigned int cmd;
	u32 size;
	u32 min_size;
	u32 flags;
	bool any_version;
	int (*handler)(struct angara_call *call);
};

/* Size of an argument, for the table: it must fit on the stack of angara_ioctl_serve(). */
#define ANGARA_CALL_SIZE(type)	\
	(sizeof(type) + BUILD_BUG_ON_ZERO(sizeof(type) > ANGARA_CALL_MAX))

/* Serve an ioctl by table; @owned: NULL if any mm may call. Counts refused ones in @refused. */
long angara_ioctl_serve(struct file *file, unsigned int cmd, unsigned long arg,
			const struct angara_ioctl *table, size_t entries,
			const struct angara_owned *owned, atomic64_t *refused);
/* Copy the argument back. */
int angara_call_reply(const struct angara_call *call);

#endif /* ANGARA_CLIENT_H */
