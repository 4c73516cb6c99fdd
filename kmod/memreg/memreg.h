/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * angara_memreg: what its files share. A client of angara_nic: it pins, angara_nic maps.
 *
 * Objects (a -> b: a keeps b alive)
 *
 *   region -> memreg file	the file's end waits until its regions are gone
 *   region -> memreg device	so does the device's removal
 *   region -> domain		through angara_nic
 *
 * A region ends once, by whoever claims it: takes it out of its file's xarray, leaving the handle
 * reserved. Four want to: the deregistration call, the end of the file, the end of the mm, the
 * removal of the device. A fifth, the check of a stale region, claims it and puts it back. Its
 * handle becomes free when its mmu notifier is gone: a late invalidation can't mark the next region
 * of that handle stale.
 *
 * A registration keeps the device only while it talks to it: memory is pinned before, and the
 * answer is copied when others may already end the region. So whoever keeps a process from its
 * memory (userfaultfd, FUSE) doesn't keep a device from being removed.
 *
 * Order of the end: claimed, angara_mr_destroy() (the device acknowledges, unmapped), notifier
 * removed, unpinned, handle free, file told. The device isn't needed after the first two: its
 * removal leaves the others to a work item.
 *
 * Stale words: set by the mmu notifier without a lock, read by the owner through a read-only
 * mapping. MEMREG_STALE when the addresses of a region may mean other memory than was pinned; 0
 * again at the next registration of the handle, or when a check finds that nothing has changed. The
 * word is MEMREG_CHECKED meanwhile: if the notifier doesn't overwrite that, nothing came between.
 *
 * Locks, outermost first. None but the first two is held across a wait for the device, and none
 * across pinning or user copies.
 *
 *   owner->lock (angara_nic)	at the end of the mm, while its files are drained
 *   devices_lock (angara_nic)	callbacks add() and remove()
 *   memreg_devices_lock	list of devices
 *   file->call_lock		claims of calls about a region; held while pages are compared
 *   device->lock		its list of regions, dying
 *   file->regions (xa_lock)	regions by handle; claiming
 *   users->wait.lock		a count of users
 */
#ifndef ANGARA_MEMREG_H
#define ANGARA_MEMREG_H

#include <linux/list.h>
#include <linux/mmu_notifier.h>
#include <linux/mutex.h>
#include <linux/scatterlist.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include <angara_client.h>
#include <misc/angara.h>

#include "../compat/compat.h"

#define MEMREG_STALE_WORDS	(PAGE_SIZE / sizeof(u32))
#define MEMREG_STALE_PAGES	DIV_ROUND_UP(ANGARA_MR_HANDLES_MAX, MEMREG_STALE_WORDS)

/* Values of a stale word that aren't 0. */
#define MEMREG_STALE		1
#define MEMREG_CHECKED		2

/* Rights with which the device writes to the region. */
#define MEMREG_ACCESS_WRITE \
	(ANGARA_MR_REMOTE_WRITE | ANGARA_MR_REMOTE_ATOMIC | ANGARA_MR_LOCAL_WRITE)
#define MEMREG_ACCESS_ALL	(MEMREG_ACCESS_WRITE | ANGARA_MR_REMOTE_READ)

#define MEMREG_COUNTERS(X)							\
	X(registered)								\
	X(deregistered)								\
	X(pinned_pages)		/* now */					\
	X(leaked_pages)		/* pinned for ever: see ANGARA_IOC_MR_DEREG */	\
	X(stale)		/* regions that became stale */			\
	X(stale_cleared)	/* and turned out to be as they were */		\
	X(pin_repeated)		/* the mapping changed while it was pinned */	\
	X(calls_refused)

#define MEMREG_COUNTER_ENUM(name)	MEMREG_COUNTER_##name,
enum memreg_counter { MEMREG_COUNTERS(MEMREG_COUNTER_ENUM) MEMREG_COUNTERS_NUM };
extern atomic64_t memreg_counters[MEMREG_COUNTERS_NUM];

#define memreg_count(name, n)	atomic64_add(n, &memreg_counters[MEMREG_COUNTER_##name])

/**
 * struct memreg_users - users whose going an end has to wait for
 * @count:	of them, under wait.lock: a spinlock, because the last user's unlock is its last
 *		access, which mutex_unlock() doesn't promise
 * @wait:	for @count to become 0
 */
struct memreg_users {
	unsigned int count;
	wait_queue_head_t wait;
};

/**
 * struct memreg_device - a device of angara_nic, between add() and remove()
 * @lock:	@regions, @dying
 * @regions:	of all files
 * @users:	regions, and who talks to the device
 */
struct memreg_device {
	struct list_head node;
	struct angara_device *adev;
	struct mutex lock;	/* see above */
	struct list_head regions;
	bool dying;
	struct memreg_users users;
};

/**
 * struct memreg_file - open file of /dev/angara_memreg
 * @owned:	the opener's mm owns it
 * @regions:	by handle
 * @users:	its regions, claimed ones included
 * @call_lock:	a claim by a call: another waits for it, instead of finding nothing
 * @stale:	pages of stale words; each is set once
 */
struct memreg_file {
	struct angara_owned owned;
	struct xarray regions;
	struct memreg_users users;
	struct mutex call_lock;	/* see above */
	struct page *stale[MEMREG_STALE_PAGES];
};

/**
 * struct memreg_region - pinned memory, registered in a domain
 * @sgt:	its pages; empty when they aren't pinned
 * @addr:	first byte
 * @length:	bytes
 * @npages:	pages
 * @max_segment: bytes of the largest segment of @sgt
 * @writable:	the device writes: pages are dirty when they are unpinned
 * @leaks:	while it retires: its pages stay
 * @key:	names it to remote PEs; no other has it
 * @retire_work: its end without its device
 * @stale:	its stale word
 */
struct memreg_region {
	struct memreg_file *file;
	struct memreg_device *mdev;
	struct list_head node;
	struct angara_mr *mr;
	struct mmu_interval_notifier notifier;
	struct sg_append_table sgt;
	unsigned long addr;
	unsigned long length;
	unsigned long npages;
	unsigned int max_segment;
	bool writable;
	bool leaks;
	u64 key;
	struct work_struct retire_work;
	u32 handle;
	u32 *stale;
};

/* ---- device.c -------------------------------------------------------------------------------- */

int memreg_client_register(void);
void memreg_client_unregister(void);

/* Begin a registration: keeps the device until memreg_device_put(). */
struct memreg_device *memreg_device_get(struct angara_device *adev);
void memreg_device_put(struct memreg_device *mdev);

void memreg_users_init(struct memreg_users *users);
void memreg_users_get(struct memreg_users *users);
void memreg_users_put(struct memreg_users *users);
void memreg_users_wait(struct memreg_users *users);
/* At most so long, jiffies. */
void memreg_users_wait_bounded(struct memreg_users *users, unsigned long timeout);

/* ---- region.c -------------------------------------------------------------------------------- */

int memreg_reg_ioctl(struct angara_call *call);
int memreg_dereg_ioctl(struct angara_call *call);
int memreg_check_ioctl(struct angara_call *call);
/* Become the one who ends the region, if it (still) has that handle. */
bool memreg_region_claim(struct memreg_file *file, u32 handle, struct memreg_region *region);
/* End a claimed region. -EIO: it is gone, but its pages are pinned for ever. */
int memreg_region_destroy(struct memreg_region *region);
/*
 * The same, for who removes its device: that is let go here. The rest is done by a work item, as
 * it waits for whatever is going on in the page tables of the region's mm.
 */
void memreg_region_retire(struct memreg_region *region);
extern struct workqueue_struct *memreg_wq;
extern struct memreg_users memreg_retiring;
/* End all regions of a file. */
void memreg_file_drain(struct memreg_file *file);

/* ---- pin.c ----------------------------------------------------------------------------------- */

int memreg_pin(struct memreg_region *region);
void memreg_unpin(struct memreg_region *region);
/*
 * Are the pinned pages [first, first + count) what is mapped at the addresses now? Of a region of
 * the current mm. Ends early, with false, when the process is killed.
 */
bool memreg_pages_same(struct memreg_region *region, unsigned long first, unsigned long count);

/* ---- stale.c --------------------------------------------------------------------------------- */

/* The word of a handle, or NULL: no memory. */
u32 *memreg_stale_word(struct memreg_file *file, u32 handle);
void memreg_stale_free(struct memreg_file *file);
/* The region is stale: is it really? Its word is 0 again if not. The caller has claimed it. */
bool memreg_stale_check(struct memreg_region *region);
/* Are those of its pages? */
bool memreg_stale_check_part(struct memreg_region *region, unsigned long first,
			     unsigned long count);
int memreg_mmap(struct file *file, struct vm_area_struct *vma);
extern const struct mmu_interval_notifier_ops memreg_notifier_ops;

#endif /* ANGARA_MEMREG_H */
