/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * angara_nic: what its files share. This is the core: what holds for any device of this model. A
 * device is known by hw.h only, and has a folder of its own, where nothing of this file is known.
 *
 * Objects and lifetime (a -> b: a holds a reference on b)
 *
 *   file of /dev/angara<N> -> domain -> device
 *   domain -> owner (one per mm) -> struct mm_struct (mmgrab, not its pages)
 *   VMA -> PE file -> PE -> domain
 *   MR (of a client) -> domain
 *
 *   - The device structure outlives the binding to the PCI function: files that are still open keep
 *     it. Whoever touches hardware or DMA memory is in an SRCU read section and has seen
 *     device->removed clear, or is called by remove() itself, or destroys a region (for which
 *     remove() waits).
 *   - A PE ends in two steps. pe_stop(): the device forgets it (PE_RESET acknowledged); on close,
 *     on the end of the mm, or on removal. Then its memory and its number go, with the last VMA;
 *     on removal at once, because the user mappings have been zapped. Its number isn't given to
 *     another PE before. If its granted job key is revoked the device forgets it earlier; all else
 *     stays as it is until then.
 *   - User mappings are populated by faults only: at fault time the VMA is known to
 *     unmap_mapping_range(), in ->mmap() it isn't yet.
 *
 * Memory that the device can reach is given back only after it said so
 *
 *   - PE: PE_RESET acknowledged, then free. MR: key cleared, MR_INVALIDATE acknowledged, then
 *     unmap, then (the client) unpin.
 *   - A command that isn't answered in time, or answered with an error where there is no legal one,
 *     fails the device: DMA off. Acknowledged, or enforced by a function-level reset:
 *     device->quiesced, and everything may be freed. Otherwise everything that the device may reach
 *     is leaked on purpose, and counted.
 *   - So does an error that the PCI core reports. If the channel is frozen the device isn't asked:
 *     quiesced is it when the function can't be reached, or has been reset.
 *   - A failed device stays failed until the driver is bound again (probe resets it).
 *
 * Who may fail, and how
 *
 *   - Calls of users get an errno and change nothing. Only the owner's mm gets past -EPERM.
 *   - The ends of things (close, exit, remove, deregistration) can't fail: they return after the
 *     device said yes, or after the device has failed.
 *   - What the device writes isn't trusted for more than what it says about user data: indices of
 *     responses are checked, addresses are never read back from memory that it can write.
 *
 * Locks, outermost first. "m" may sleep; all but irq-safe ones are taken in process context.
 *
 *   lock			protects
 *   device_lock (kernel)	m the function's: probe, remove, suspend, handlers of errors
 *   mmap_lock (kernel)		m VMAs. Taken before the driver's locks by ->mmap, ->fault, vm_ops;
 *				never taken under them: no user copies, no pinning
 *   devices_lock		m lists of devices and clients; held in add() and remove() callbacks
 *   owner->lock		m objects of an mm; held in release() callbacks
 *   pe->commit_lock		m what a PE's window has: memory is allocated under it; outside
 *				device->srcu
 *   device->grants_lock	m granted job keys; inside device->srcu, outside domain->lock
 *   domain->lock		m PEs of a domain: creation, end, window
 *   domain->mr_sem		m states of a domain's regions; held while the device answers
 *   device->srcu		(read) device not removed. Outside domain->lock; handlers of calls
 *				begin and end it themselves, between the copies of arguments
 *   device->fail_lock		m the way from working to failed; the device's reset and DMA
 *   users_lock			m users and what they use
 *   device->pe_lock		irq-safe: table of PEs by number
 *   domain->mr_lock		list of a domain's regions
 *   admin->lock		irq-safe: the device's admin queue and who waits for answers
 *
 * remove() calls synchronize_srcu() with devices_lock at most.
 */
#ifndef ANGARA_NIC_H
#define ANGARA_NIC_H

#include <linux/cdev.h>
#include <linux/device.h>
#include <linux/idr.h>
#include <linux/kref.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/refcount.h>
#include <linux/rwsem.h>
#include <linux/spinlock.h>
#include <linux/srcu.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include <angara_client.h>
#include <misc/angara.h>

#include "../compat/compat.h"
#include "hw.h"

/* ---- parameters (main.c), constant after load ------------------------------------------------ */

extern unsigned int angara_cmd_entries;
extern unsigned int angara_event_entries;
extern unsigned int angara_window_mb;
extern unsigned int angara_mr_entries;
extern unsigned int angara_pes_per_user;
extern unsigned int angara_mrs_per_user;
extern unsigned int angara_mem_mb_per_user;
extern unsigned int angara_job_keys;
extern unsigned int angara_admin_timeout_ms;

/* ---- counters (debugfs.c) -------------------------------------------------------------------- */

#define ANGARA_COUNTERS(X)							\
	X(irqs)			/* interrupts of all vectors */			\
	X(link_changes)								\
	X(admin_commands)							\
	X(admin_refused)	/* answered with an error */			\
	X(admin_timeouts)							\
	X(admin_stale)		/* responses that nobody waits for */		\
	X(calls_refused)	/* bad input of any kind, or a limit */		\
	X(quota_refused)							\
	X(bounce_refused)	/* regions that would need bounce buffers */	\
	X(owners_released)	/* domains whose process ended or ran exec */	\
	X(pes_created)								\
	X(pes_destroyed)							\
	X(mrs_created)								\
	X(mrs_destroyed)							\
	X(window_pages)		/* committed now */				\
	X(leaked_mrs)		/* never acknowledged: pinned for ever */	\
	X(leaked_pages)		/* the same, pages of PEs and regions */

#define ANGARA_COUNTER_ENUM(name)	ANGARA_COUNTER_##name,
enum angara_counter { ANGARA_COUNTERS(ANGARA_COUNTER_ENUM) ANGARA_COUNTERS_NUM };

#define angara_count(adev, name, n)	\
	atomic64_add(n, &(adev)->counters[ANGARA_COUNTER_##name])

/* ---- structures ------------------------------------------------------------------------------ */

/**
 * struct angara_admin - commands to the device
 * @lock:	all but @wait; held in the device's operations on its queue
 * @depth:	commands that may be without answer, so that the device's queue can't overflow
 * @next_id:	of the next command
 * @outstanding: commands without answer
 * @answers:	that have come
 * @pending:	struct admin_wait
 * @sleepers:	who needs the interrupts of answers
 * @wait:	for answers and for room
 */
struct angara_admin {
	spinlock_t lock;	/* see above */
	u32 depth;
	u32 next_id;
	u32 outstanding;
	u32 answers;
	struct list_head pending;
	unsigned int sleepers;
	wait_queue_head_t wait;
};

struct angara_vector {
	struct angara_device *adev;
	unsigned int index;
	int irq;
};

/**
 * struct angara_device - a NIC
 * @dev:	class device; its references are those of this structure
 * @pdev:	PCI function, while not @removed
 * @number:	N of /dev/angara<N>
 * @inode:	its i_mapping is that of all PE files: to zap all user mappings at once
 * @hw:		the device itself, behind hw.h; while it is bound
 * @srcu:	readers have seen @removed clear
 * @removed:	remove() has begun; set once
 * @fail_lock:	@failed, @quiesced
 * @failed:	no more commands; set once
 * @quiesced:	failed, but DMA is known to be off; set once
 * @link:	last link state seen
 * @known:	the device has been told where our memory is
 * @frozen:	the PCI core has said that the channel is, so that a reset comes next
 * @watch:	looks whether the function is still there, between start and stop
 * @num_vectors: MSI-X vectors in use
 * @vectors:	[num_vectors]
 * @version, @loopback, @node_id, @pe_max, @marker_slots, @pio_bytes, @put_max, @offload_max: as
 *		the device says, checked
 * @window_max:	bytes of the largest put window, as the device and the administrator say
 * @doorbell_phys, @pio_phys: the parts of BARs that users map
 * @pio_wc:	the put rings' memory type is reserved
 * @pe_lock:	@pes, @pe_next
 * @pes:	[pe_max], by number
 * @pe_generation: [pe_max], of the last PE of that number, or 0
 * @pe_next:	where to look for a free number
 * @pe_used:	numbers taken
 * @mr_table:	DMA memory, [mr_entries]; the device knows what is in an entry
 * @mr_ida:	its free entries
 * @mr_used:	regions
 * @domain_ida:	numbers of domains
 * @grants_lock: @grants, @num_grants; see grant.c
 * @grants:	struct angara_grant
 * @num_grants:	of them
 * @clients:	clients whose add() succeeded: a bit each, by angara_client.id (devices_lock)
 */
struct angara_device {
	struct device dev;
	struct cdev cdev;
	struct pci_dev *pdev;
	struct list_head node;
	unsigned int number;
	struct inode *inode;
	struct angara_hw *hw;
	struct srcu_struct srcu;
	bool removed;

	struct mutex fail_lock;	/* see the table above */
	bool failed;
	bool quiesced;
	bool known;
	bool frozen;
	struct delayed_work watch;
	u32 link;
	unsigned int num_vectors;
	struct angara_vector *vectors;

	u32 version;
	bool loopback;
	u32 node_id;
	u32 pe_max;
	u32 marker_slots;
	u32 pio_bytes;
	u32 put_max;
	u64 offload_max;
	u64 window_max;
	phys_addr_t doorbell_phys;
	phys_addr_t pio_phys;
	bool pio_wc;

	struct angara_admin admin;

	spinlock_t pe_lock;	/* see the table above */
	struct angara_pe **pes;
	u32 *pe_generation;
	u32 pe_next;
	u32 pe_used;

	void *mr_table;
	dma_addr_t mr_table_dma;
	u32 mr_entries;
	struct ida mr_ida;
	atomic_t mr_used;

	struct ida domain_ida;
	struct rw_semaphore grants_lock;	/* see the table above */
	struct list_head grants;
	unsigned int num_grants;
	unsigned long clients;
	struct dentry *debugfs;
	atomic64_t counters[ANGARA_COUNTERS_NUM];
};

/**
 * struct angara_domain - protection domain: an open file and what was made from it
 * @ref:	the file, each PE, each MR
 * @adev:	reference on its dev
 * @owned:	the opener's mm owns it
 * @user:	who pays
 * @uid:	the opener's, in the initial user namespace
 * @job_key:	of its PEs, if they don't ask for another: the opener's own
 * @number:	in the MR table and PE contexts; never 0
 * @lock:	@pes, and creation, end and window of each
 * @pes:	PEs that haven't been stopped
 * @mr_sem:	states and table entries of regions: read for one, written for all
 * @mr_lock:	@mrs, with @mr_sem read
 * @mrs:	regions (of mr.c)
 * @free_work:	the last reference may be dropped where angara_owned_del() would wait for itself
 */
struct angara_domain {
	struct kref ref;
	struct angara_device *adev;
	struct angara_owned owned;
	struct angara_user *user;
	u32 uid;
	u64 job_key;
	u32 number;
	struct mutex lock;	/* see above */
	struct list_head pes;
	struct rw_semaphore mr_sem;	/* see above */
	spinlock_t mr_lock;	/* see above */
	struct list_head mrs;
	struct work_struct free_work;
};

/* Coherent host memory that a user maps: pages, so that a fault finds them. */
struct angara_buf {
	struct page *page;
	dma_addr_t dma;
	size_t size;
};

/* A page of a put window. */
struct angara_window_page {
	struct page *page;
	dma_addr_t dma;
};

/**
 * struct angara_window_leaf - what there is of ANGARA_WINDOW_FANOUT pages of a put window
 * @pages:	[ANGARA_WINDOW_FANOUT]; page is set once, with release order
 * @table:	what the device reads: a word for each page. Never read back
 */
struct angara_window_leaf {
	struct angara_window_page *pages;
	struct angara_buf table;
};

/**
 * struct angara_window - put window of a PE (commit_lock; faults look pages up without)
 * @size:	bytes
 * @nleaves:	entries
 * @table:	what the device reads: a word for each leaf's table. Never read back
 * @leaves:	[nleaves]; set once, with release order, when something of it is committed
 * @committed:	pages
 */
struct angara_window {
	u64 size;
	u32 nleaves;
	struct angara_buf table;
	struct angara_window_leaf **leaves;
	u32 committed;
};

/* angara_pe.flags */
#define ANGARA_PE_BIT_RUNNING	0	/* the device knows it (domain->lock) */
#define ANGARA_PE_BIT_FREED	1	/* memory and number given back; set by who does it */
#define ANGARA_PE_BIT_CLOSED	2	/* its owner has closed the file; see angara_pe_end() */
#define ANGARA_PE_BIT_HELD	3	/* not stopped yet: in dom->pes (domain->lock) */

/**
 * struct angara_pe - processing element
 * @ref:	its file; users of device->pes
 * @mem_refs:	1 while held, each VMA: who drops the last frees the memory
 * @dom:	reference
 * @node:	in dom->pes
 * @index, @generation: its address, with the node id
 * @job_key:	which PEs exist for it; set before it has a number
 * @charged:	pages that count as its memory; see angara_pe_charge() (commit_lock)
 * @commit_lock: one commit at a time: the window's memory is allocated under it
 * @dummy:	what its writable mappings show after removal
 * @irqs_seen:	interrupts that have woken sleepers
 * @irqs_read:	interrupts that read() has reported
 */
struct angara_pe {
	struct kref ref;
	refcount_t mem_refs;
	unsigned long flags;
	struct angara_device *adev;
	struct angara_domain *dom;
	struct list_head node;
	u32 index;
	u32 generation;
	u64 job_key;
	struct angara_buf cmd;
	struct angara_buf event;
	struct angara_buf status;
	struct angara_buf marker;
	struct angara_window window;
	unsigned long charged;
	struct mutex commit_lock;	/* see above */
	struct page *dummy;
	u64 irqs_seen;
	u64 irqs_read;
	wait_queue_head_t wait;
};

/* ---- main.c ---------------------------------------------------------------------------------- */

extern struct workqueue_struct *angara_wq;

struct angara_device *angara_device_alloc(struct pci_dev *pdev);
/* Make the device visible to users and clients; and the reverse, up to the last access of users. */
int angara_device_add(struct angara_device *adev);
void angara_device_del(struct angara_device *adev);

/* -ENODEV: gone or failed. In an SRCU read section it isn't removed before the end of that. */
static inline int angara_device_check(struct angara_device *adev)
{
	return READ_ONCE(adev->removed) || READ_ONCE(adev->failed) ? -ENODEV : 0;
}

/* ---- hw.c ------------------------------------------------------------------------------------ */

void angara_hw_init(struct angara_device *adev);
/* Reset, hand over the queues, DMA on, SETUP; from there on, the watch is running. */
int angara_hw_start(struct angara_device *adev);
/* DMA off. 0: nothing is in flight or will start. */
int angara_hw_stop(struct angara_device *adev);
/* DMA off, and no commands any more: the kernel goes down. */
void angara_hw_shutdown(struct angara_device *adev);
/* The device doesn't do as told: stop it for good. May be called several times. */
void angara_device_fail(struct angara_device *adev, const char *why);
/*
 * The same, for a device that may not be asked (@why: what the PCI core says). Its DMA is known to
 * be off if the function can't be reached any more.
 */
void angara_device_fail_frozen(struct angara_device *adev, const char *why);
/* The function, which had failed, has been reset: its DMA is off. */
void angara_device_was_reset(struct angara_device *adev);
/* Failed, and it isn't known that DMA is off: what it can reach must be leaked. */
bool angara_device_must_leak(struct angara_device *adev);

/* ---- admin.c --------------------------------------------------------------------------------- */

void angara_admin_init(struct angara_device *adev);
/* After a reset of the device. */
void angara_admin_restart(struct angara_device *adev);
/*
 * Post a command and wait for its answer. @generation: of the PE concerned, or 0. -EIO: the
 * device refused; -ETIMEDOUT: it didn't answer, and is failed now; -ENODEV: it had failed before,
 * or has been pulled out.
 */
int angara_admin_exec(struct angara_device *adev, struct angara_cmd *cmd, u32 generation);
/* Look for answers. Any context. */
void angara_admin_poll(struct angara_device *adev);

/* ---- irq.c ----------------------------------------------------------------------------------- */

/* Is the link up? Logs and counts a change. The hardware must be there. */
bool angara_link_check(struct angara_device *adev);
int angara_irq_setup(struct angara_device *adev, unsigned int wanted);
void angara_irq_cleanup(struct angara_device *adev);
/* MSI-X vector of a PE. */
static inline u32 angara_pe_vector(const struct angara_device *adev, u32 index)
{
	return 1 + index % (adev->num_vectors - 1);
}

/* The device has gone or failed: tell who waits for anything. */
void angara_wake_all(struct angara_device *adev);

/* ---- buf.c: DMA memory that users map -------------------------------------------------------- */

/*
 * For what a user asks for: counted in his memory cgroup, and refused where it can't be had. The
 * OOM killer isn't asked: it looks for processes with much memory of their own, so that it would
 * find others.
 */
#define ANGARA_GFP_USER	(GFP_KERNEL_ACCOUNT | __GFP_RETRY_MAYFAIL | __GFP_NOWARN)

bool angara_dma_is_coherent(struct angara_device *adev, dma_addr_t addr);
/* At probe: can users map DMA memory of this device's? -EOPNOTSUPP, with a message. */
int angara_buf_check(struct angara_device *adev);
/* Pages that a buffer of so many bytes takes. */
static inline unsigned long angara_buf_pages(size_t size)
{
	return 1UL << get_order(size);
}

int angara_buf_alloc(struct angara_device *adev, struct angara_buf *buf, size_t size);
void angara_buf_free(struct angara_device *adev, struct angara_buf *buf);

/* ---- domain.c -------------------------------------------------------------------------------- */

extern const struct file_operations angara_domain_fops;

void angara_domain_hold(struct angara_domain *dom);

/* ---- jobkey.c -------------------------------------------------------------------------------- */

u64 angara_job_key_granted(u64 value);
/* The key that the caller has by itself. -EPERM: its real, effective and saved user ids differ. */
int angara_job_key_own(const struct angara_device *adev, u64 *key);

/* ---- grant.c --------------------------------------------------------------------------------- */

extern atomic64_t angara_grant_refused;	/* calls of /dev/angara_jobkey */

int angara_grant_init(void);
void angara_grant_exit(void);
void angara_grants_init(struct angara_device *adev);
void angara_grants_free(struct angara_device *adev);
/*
 * The domain's user has been granted the value (0: none is asked for), and that isn't revoked
 * before angara_grant_put(); or -EACCES.
 */
int angara_grant_get(struct angara_domain *dom, u64 value);
void angara_grant_put(struct angara_domain *dom, u64 value);

/* ---- pe.c, pe_file.c, window.c, mmap.c ------------------------------------------------------- */

extern const struct file_operations angara_pe_fops;

struct angara_pe *angara_pe_create(struct angara_domain *dom, u64 window_size, u64 job_key);
/* ANGARA_END_CLOSED if the owner has said goodbye, else ANGARA_END_DIED. */
enum angara_end angara_pe_end(struct angara_pe *pe);
/* First step of the end. @how: for its peers. */
void angara_pe_stop(struct angara_pe *pe, enum angara_end how);
void angara_pe_put(struct angara_pe *pe);
void angara_pe_mem_put(struct angara_pe *pe);
void angara_pes_remove(struct angara_device *adev);
/* The device forgets a user's PEs with that key; no more are made. @return how many it knew */
unsigned int angara_pes_revoke(struct angara_device *adev, u32 uid, u64 job_key);
int angara_pe_create_ioctl(struct angara_call *call);

/* A committed page of the window, or NULL. No lock is needed. */
struct page *angara_window_page(const struct angara_window *window, unsigned long index);
/* Bytes of the table's upper level. */
size_t angara_window_table_size(u64 window_size);
int angara_window_init(struct angara_pe *pe, u64 size);
void angara_window_cleanup(struct angara_pe *pe);
int angara_window_commit_ioctl(struct angara_call *call);

int angara_pe_mmap(struct file *file, struct vm_area_struct *vma);
int angara_mmap_init(void);
void angara_mmap_exit(void);

/* What the device says in a PE's status page is little endian. */
static inline const struct angara_status *angara_pe_status(const struct angara_pe *pe)
{
	return page_address(pe->status.page);
}

/* Interrupts that the device has sent for the PE. */
static inline u64 angara_pe_irqs(const struct angara_pe *pe)
{
	return le64_to_cpu(READ_ONCE(angara_pe_status(pe)->counters[ANGARA_CNT_IRQS]));
}

/* Who polls the status page sees that the PE has ended. */
static inline void angara_status_gone(struct page *page)
{
	struct angara_status *status = page_address(page);

	WRITE_ONCE(status->state, cpu_to_le32(ANGARA_PE_GONE));
}

/* ---- mr.c ------------------------------------------------------------------------------------ */

int angara_mr_table_alloc(struct angara_device *adev);
void angara_mr_table_free(struct angara_device *adev);
/* The domain's mm has ended: the device forgets its regions, which are still to be destroyed. */
void angara_domain_kill_mrs(struct angara_domain *dom);

/* ---- limits.c -------------------------------------------------------------------------------- */

enum angara_resource {
	ANGARA_RESOURCE_PE, ANGARA_RESOURCE_MR, ANGARA_RESOURCE_PAGE, ANGARA_RESOURCES_NUM
};

/* The current task's. */
struct angara_user *angara_user_get(struct angara_device *adev);
void angara_user_put(struct angara_user *user);
int angara_user_charge(struct angara_user *user, enum angara_resource what);
void angara_user_uncharge(struct angara_user *user, enum angara_resource what);
/*
 * Count pages that a PE is about to have: on its owner's mm against RLIMIT_MEMLOCK (-ENOMEM), and
 * on its user (-EDQUOT).
 */
int angara_pe_charge(struct angara_pe *pe, unsigned long pages);
void angara_pe_uncharge(struct angara_pe *pe, unsigned long pages);

/* ---- owner.c, client.c, sysfs.c, debugfs.c --------------------------------------------------- */

void angara_owner_exit(void);
/* As angara_owned_add(); released before those that were added so, in whichever order. */
int angara_owned_add_first(struct angara_owned *owned, void (*release)(struct angara_owned *owned));

void angara_clients_add(struct angara_device *adev);
void angara_clients_remove(struct angara_device *adev);
/* /dev/angara<number>, with a reference on its dev, or NULL. */
struct angara_device *angara_device_find(unsigned int number);

extern const struct attribute_group *angara_device_groups[];

void angara_debugfs_init(void);
void angara_debugfs_exit(void);
void angara_debugfs_add(struct angara_device *adev);
void angara_debugfs_del(struct angara_device *adev);

#endif /* ANGARA_NIC_H */
