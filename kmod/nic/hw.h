/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The door between the driver's core and a device. The core (all of nic/ but the folders of
 * devices) has what holds for any NIC of this model: PEs, domains, regions, their mapping,
 * limits, owners, and all policy: how long to wait, when the device has failed, what is leaked
 * then, in which order things end. A device (a folder of its own: emu/) has mechanism: registers,
 * the admin queue, and the formats of what the device reads in host memory. It decides nothing
 * and waits for nothing.
 *
 * Calls go down, by struct angara_hw_ops. The only way up is angara_hw_answer(), from within
 * poll(). docs/kernel.md, "Another device", has the order of calls as a list of things to write.
 *
 *   match, attach,
 *     reset, reset_done .., admin_start, dma(on), dma_done .., post(SETUP),	each start
 *     post, poll .., tables,
 *     dma(off), dma_done ..,							each stop
 *   detach
 *
 * Contexts. "probe": process context, nobody else knows the device yet. "fail_lock": process
 * context, under device->fail_lock, or at a start, when nothing else is under way; may sleep, but
 * shouldn't: the core waits. "admin.lock": interrupts off, never two at once; must not sleep.
 * "any": any context, at any time between attach and detach, several at once.
 *
 * What reads all ones. A function may be pulled out at any time, and from then on all of its
 * registers read as all ones and writes are lost; also, both may happen for a moment. No op needs
 * to tell: the core asks reads_ones() before it believes what matters.
 */
#ifndef ANGARA_NIC_HW_H
#define ANGARA_NIC_HW_H

#include <linux/bits.h>
#include <linux/pci.h>
#include <linux/scatterlist.h>
#include <linux/types.h>

#include "pagelist.h"

struct angara_device;
struct angara_hw_ops;

/* ---- the model: what is the same for all devices --------------------------------------------- */

#define ANGARA_HW_PAGE_SHIFT	12		/* of doorbells, put rings, put windows */
#define ANGARA_HW_PAGE		BIT(ANGARA_HW_PAGE_SHIFT)
#define ANGARA_NODE_BITS	24		/* of a node id */
#define ANGARA_KEY_INDEX_BITS	24		/* of a key: which region; the rest is random */
#define ANGARA_WINDOW_FANOUT	512U		/* words of 8 bytes in a page of a window table */

/*
 * Job keys: a class, and a value below 1 << ANGARA_JOB_SHIFT, so that keys of different classes are
 * never the same. The drivers of one network agree on them; devices only compare.
 */
#define ANGARA_JOB_SHIFT	56
#define ANGARA_JOB_USER		1		/* user id: the same user on all nodes */
#define ANGARA_JOB_LOCAL	2		/* node id << 32 | user id */
#define ANGARA_JOB_GRANTED	3		/* by the administrator; not 0 */

/* How a PE has ended: its peers are told. */
enum angara_end {
	ANGARA_END_DIED,	/* its process, or the driver, took it away */
	ANGARA_END_CLOSED,	/* its owner said goodbye */
};

/* ---- constants ------------------------------------------------------------------------------- */

/* A place in a BAR. */
struct angara_hw_place {
	unsigned int bar;
	u64 offset;
};

/**
 * struct angara_hw_limits - what a device has, as it says itself: the core checks it before use
 * @version:	major << 16 | minor of its interface, for people
 * @loopback:	reads from PEs of the own node are possible
 * @node:	id, of ANGARA_NODE_BITS
 * @pe_max:	PEs
 * @mr_max:	entries of the largest MR table
 * @admin_depth: commands that may be without an answer
 * @vectors:	MSI-X vectors that it can use, at least 2. It interrupts vector 0 for answers to
 *		commands and for changes of the link, and for a PE the vector of its context
 * @marker_slots: of a PE
 * @pio_bytes:	of a put ring, a power of two of whole pages
 * @put_max:	bytes of the largest put; it fits into a put ring behind any pad
 * @window_pages_max: of a put window
 * @offload_max: bytes of the largest operation of a command ring
 * @registers, @registers_size: what the driver maps: users map nothing of it
 * @doorbells:	a page per PE, by number
 * @puts:	a put ring per PE, by number
 */
struct angara_hw_limits {
	u32 version;
	bool loopback;
	u32 node;
	u32 pe_max;
	u32 mr_max;
	u32 admin_depth;
	u32 vectors;
	u32 marker_slots;
	u32 pio_bytes;
	u32 put_max;
	u64 window_pages_max;
	u64 offload_max;
	struct angara_hw_place registers;
	u64 registers_size;
	struct angara_hw_place doorbells;
	struct angara_hw_place puts;
};

/* ---- commands -------------------------------------------------------------------------------- */

/**
 * enum angara_cmd_kind - what the device is asked to do; what its answer means
 * @ANGARA_CMD_SETUP: the table of regions is at cmd.setup. No region is known any more
 * @ANGARA_CMD_PE_CREATE: the PE works. Its doorbell page and put ring have been zeroed, as the
 *		kernel never maps them, and its status page has been written
 * @ANGARA_CMD_PE_RESET: nothing of the PE's is in flight, inbound or outbound, or cached, and none
 *		of its memory will be accessed. Its peers learn how it ended
 * @ANGARA_CMD_MR_INVALIDATE: no access to the region with that key is in flight, or will start,
 *		and nothing of its entry or its page list is cached. The entry has been cleared or
 *		written before. A key that the device doesn't know is no error. It doesn't wait
 *		for the far end of any operation
 * @ANGARA_CMD_DOMAIN_INVALIDATE: the same of all regions of a domain
 * @ANGARA_CMD_WINDOW_SYNC: words that were added to the PE's window table are seen: a page that the
 *		device has found missing is looked up again
 */
enum angara_cmd_kind {
	ANGARA_CMD_SETUP = 1,
	ANGARA_CMD_PE_CREATE,
	ANGARA_CMD_PE_RESET,
	ANGARA_CMD_MR_INVALIDATE,
	ANGARA_CMD_WINDOW_SYNC,
	ANGARA_CMD_DOMAIN_INVALIDATE,
};

/**
 * struct angara_pe_context - all that a device knows of a PE
 * @index, @generation: its address, with the node id
 * @domain:	its own regions are those of this domain
 * @vector:	MSI-X vector
 * @cmd, @cmd_entries: command ring
 * @event, @event_entries: event ring
 * @status:	struct angara_status
 * @marker, @marker_slots: marker words
 * @window, @window_pages: window table, of two levels: a word (see window_set()) for each
 *		ANGARA_WINDOW_FANOUT pages of the window, then one for each page
 * @job_key:	never 0: of PEs with another one the device does as if they weren't there
 *
 * Bus addresses are of whole pages; numbers of entries are powers of two.
 */
struct angara_pe_context {
	u32 index;
	u32 generation;
	u32 domain;
	u32 vector;
	dma_addr_t cmd;
	dma_addr_t event;
	dma_addr_t status;
	dma_addr_t marker;
	dma_addr_t window;
	u32 cmd_entries;
	u32 event_entries;
	u32 marker_slots;
	u32 window_pages;
	u64 job_key;
};

/**
 * struct angara_cmd - a command
 * @id:		of the core; to be repeated in the answer. Not used again while one is without
 *		answer
 * @kind:	says which of the others counts
 */
struct angara_cmd {
	u32 id;
	enum angara_cmd_kind kind;
	union {
		struct {
			dma_addr_t table;
			u32 entries;
		} setup;
		struct angara_pe_context pe_create;
		struct {
			u32 index;
			u32 generation;
			enum angara_end how;
		} pe_reset;
		struct {
			u64 key;
		} mr_invalidate;
		struct {
			u32 index;
		} window_sync;
		struct {
			u32 domain;
		} domain_invalidate;
	};
};

/* ---- regions --------------------------------------------------------------------------------- */

/**
 * struct angara_mr_entry - a region, for the device's table
 * @key:	the index is that of the entry
 * @length:	bytes
 * @domain:	number of the domain
 * @access:	ANGARA_MR_*
 * @list:	its pages
 */
struct angara_mr_entry {
	u64 key;
	u64 length;
	u32 domain;
	u32 access;
	const struct angara_pagelist *list;
};

/* ---- the device ------------------------------------------------------------------------------ */

/**
 * struct angara_hw - a device, as both sides know it; the device's own structure begins with it
 * @pdev:	PCI function, enabled, its regions reserved
 * @adev:	of the core; NULL until attach() has returned
 * @ops:	how to talk to it; set by the core
 * @going:	the core is about to take it away: who makes something big may stop
 */
struct angara_hw {
	struct pci_dev *pdev;
	struct angara_device *adev;
	const struct angara_hw_ops *ops;
	bool going;
};

/**
 * struct angara_hw_ops - a kind of device. All are there
 * @mr_entry_size: bytes of an entry of the MR table
 *
 * @match: is it one of ours? [probe] Before the function is enabled: may look at its configuration
 *	space and the sizes of BARs, and changes nothing. -ENODEV: another driver may have it
 * @attach: take the function over. [probe] It is enabled and its regions are reserved; bus
 *	mastering is off. Maps registers (no page that users map: a kernel mapping forces its
 *	memory type on theirs), sets DMA masks and the largest segment, gets DMA memory for the
 *	admin queue, and reads constants into @limits. The device isn't told of anything yet.
 *	Errors, with nothing left: -ENODEV it is none of ours, -EPROTO its version (with a
 *	message), -ENOMEM, or of the DMA masks
 * @detach: the reverse, of all. Process context, nobody else uses the device. @leak: it may still
 *	do DMA: keep for ever what it was told of. The structure goes anyway
 *
 * @reads_ones: do reads fail now? [any]
 * @reset: request a reset. [fail_lock] After it no PE and no region is known, and DMA is off
 * @reset_done: is it done? [fail_lock] Of the last request. Once done it stays so
 * @dma: request that DMA be allowed or not. [fail_lock] Not allowed is meant of everything, also of
 *	answers and interrupts
 * @dma_done: is it done? [fail_lock] Of the last request. If DMA was turned off, true is a promise:
 *	no access to host memory is in flight or will start, and what was written has arrived
 *
 * @admin_start: after a reset: the queue is empty, and commands may be posted when DMA is on.
 *	[admin.lock]
 * @post: hand a command over. [admin.lock] At most limits.admin_depth are without answer, so
 *	there is room. Orders all earlier writes to host memory before it. The command is the
 *	caller's
 * @poll: call angara_hw_answer() for each command that has been answered since the last time.
 *	[admin.lock] Often there is none: must be cheap then
 * @admin_irq: shall answers interrupt? [admin.lock] They needn't if off. An answer that comes after
 *	this has returned with @on does, or is found by the next poll()
 * @irq_ack: acknowledge an interrupt, so that a later one isn't lost. Hard interrupt; before the
 *	core looks for what has happened
 *
 * @link_up: is the link up? [any]
 * @key_mismatches: how often something came for PEs of this node with another job key. [any]
 *
 * @list_build: describe the memory of a region, @length bytes from byte @offset of @sgt, which is
 *	mapped for DMA, with the largest pages possible. Process context, several at once. -ENOMEM,
 *	or -EINVAL if it can't be described; nothing is left then
 * @list_free: the reverse; the device doesn't use it any more. Process context
 * @mr_write: make an entry of the table valid. Process context, several at once, each with its
 *	own entry. The key comes last for the device; who learns the key by a later write finds
 *	the entry
 * @mr_suspend: have operations that meet the region wait, from the next MR_INVALIDATE on; after
 *	mr_write() and another MR_INVALIDATE they go on. The device has its list until then
 * @mr_clear: make it invalid; what the device has copied stays until the key is invalidated
 * @window_set: word @index of a page of a window table, of either level, is about @addr: memory
 *	of the device's from now on until PE_RESET. Called once for each; words of fresh pages are
 *	0, which means nothing. The device may read it at once: its contents have been written
 *	before. Process context, under the domain's lock
 */
struct angara_hw_ops {
	size_t mr_entry_size;

	int (*match)(struct pci_dev *pdev);
	struct angara_hw *(*attach)(struct pci_dev *pdev, struct angara_hw_limits *limits);
	void (*detach)(struct angara_hw *hw, bool leak);

	bool (*reads_ones)(struct angara_hw *hw);
	void (*reset)(struct angara_hw *hw);
	bool (*reset_done)(struct angara_hw *hw);
	void (*dma)(struct angara_hw *hw, bool on);
	bool (*dma_done)(struct angara_hw *hw);

	void (*admin_start)(struct angara_hw *hw);
	void (*post)(struct angara_hw *hw, const struct angara_cmd *cmd);
	void (*poll)(struct angara_hw *hw);
	void (*admin_irq)(struct angara_hw *hw, bool on);
	void (*irq_ack)(struct angara_hw *hw, unsigned int vector);

	bool (*link_up)(struct angara_hw *hw);
	u32 (*key_mismatches)(struct angara_hw *hw);

	int (*list_build)(struct angara_hw *hw, struct angara_pagelist *list,
			  const struct sg_table *sgt, u64 offset, u64 length);
	void (*list_free)(struct angara_hw *hw, struct angara_pagelist *list);
	void (*mr_write)(void *entry, const struct angara_mr_entry *mr);
	void (*mr_suspend)(void *entry);
	void (*mr_clear)(void *entry);
	void (*window_set)(void *table, u32 index, dma_addr_t addr);
};

/*
 * A command has been answered: the one with this id, concerning a PE of this generation (or 0).
 * @status: 0 done, else the device's own number for why not. Only from within poll(). What the
 * device says isn't trusted: answers that nobody waits for are counted and dropped.
 */
void angara_hw_answer(struct angara_hw *hw, u32 id, u32 generation, u32 status);

#endif /* ANGARA_NIC_HW_H */
