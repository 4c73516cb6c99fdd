/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR BSD-3-Clause */
/*
 * User interface of the Angara kernel modules.
 *
 * /dev/angara<N>       a NIC; every open file is a protection domain
 * (PE file)            made by ANGARA_IOC_PE_CREATE: a processing element, to be mapped and polled
 * /dev/angara_memreg   registers memory in a domain
 *
 * Every ioctl takes a pointer to a structure that begins with its size in bytes, as its caller
 * knows it, and flags. A structure may grow at its end: what an older caller doesn't have reads as
 * zero; what a newer caller sets and this kernel doesn't know is refused with E2BIG. Unknown flags
 * and reserved fields that aren't zero are refused with EINVAL. On error nothing has changed
 * and nothing stays pinned. All fields have fixed sizes and natural alignment: 32-bit callers use
 * the same layouts.
 *
 * All files belong to the process image (mm) that opened the domain: calls and mappings from
 * another one get EPERM, also through an inherited or passed descriptor.
 *
 * Errors that every call can return: EFAULT (bad pointer), EINVAL (see above), E2BIG, ENOTTY
 * (unknown call), EPERM (wrong process), ENODEV (the device has gone or failed), EINTR.
 */
#ifndef _UAPI_ANGARA_H
#define _UAPI_ANGARA_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* Changes that older programs wouldn't survive; compared at ANGARA_IOC_INFO. */
#define ANGARA_UAPI_VERSION	1

#define ANGARA_IOC_TYPE		0xA6

/* ---- the domain: /dev/angara<N> ------------------------------------------------------------ */

/* Capabilities of a device. */
#define ANGARA_INFO_LOOPBACK	(1U << 0)	/* gets from the own node are possible */
#define ANGARA_INFO_LINK_UP	(1U << 1)	/* at the time of the call */

/**
 * struct angara_ioc_info - ANGARA_IOC_INFO: handshake and limits
 * @size:		in: sizeof(struct angara_ioc_info)
 * @flags:		in: 0
 * @version:		in: ANGARA_UAPI_VERSION of the caller; out: of the kernel
 * @caps:		out: ANGARA_INFO_*
 * @node:		out: node id
 * @pe_max:		out: PEs of the device
 * @mr_max:		out: regions of the device
 * @cmd_entries:	out: descriptors of a command ring, a power of two
 * @event_entries:	out: records of an event ring, a power of two
 * @pio_bytes:		out: size of a put ring, a power of two
 * @marker_slots:	out: marker words of a PE
 * @put_max:		out: bytes of the largest put through the put ring
 * @window_max:		out: bytes of the largest put window
 * @offload_max:	out: bytes of the largest offload operation
 * @name:		out: device name, e.g. "angara0"
 *
 * Errors: EPROTO if the versions don't fit each other; @version has been set.
 */
struct angara_ioc_info {
	__u32 size;
	__u32 flags;
	__u32 version;
	__u32 caps;
	__u32 node;
	__u32 pe_max;
	__u32 mr_max;
	__u32 cmd_entries;
	__u32 event_entries;
	__u32 pio_bytes;
	__u32 marker_slots;
	__u32 put_max;
	__u64 window_max;
	__u64 offload_max;
	__u8  name[32];
};

/**
 * struct angara_ioc_pe_create - ANGARA_IOC_PE_CREATE: take a PE of the device
 * @size:		in: sizeof(struct angara_ioc_pe_create)
 * @flags:		in: 0
 * @window_size:	in: bytes of the put window, a multiple of the page size
 * @fd:			out: file of the PE, close-on-exec; the PE ends when the last descriptor (a
 *			child's included) and the last mapping of it have gone, or with the owner's
 *			mm (exit, exec)
 * @index:		out: number of the PE
 * @generation:		out: tells it from earlier PEs of that number; never 0
 * @reserved:		0
 *
 * Errors: ENOSPC (no PE is free), EDQUOT (quota of this user), ENOMEM, EMFILE,
 * EINVAL (window_size is 0, too large or not whole pages), EIO (the device refused).
 */
struct angara_ioc_pe_create {
	__u32 size;
	__u32 flags;
	__u64 window_size;
	__s32 fd;
	__u32 index;
	__u32 generation;
	__u32 reserved;
};

#define ANGARA_IOC_INFO		_IO(ANGARA_IOC_TYPE, 0x00)
#define ANGARA_IOC_PE_CREATE	_IO(ANGARA_IOC_TYPE, 0x01)

/* ---- the PE file --------------------------------------------------------------------------- */

/**
 * struct angara_ioc_window_commit - ANGARA_IOC_WINDOW_COMMIT: give a part of the window memory
 * @size:	in: sizeof(struct angara_ioc_window_commit)
 * @flags:	in: 0
 * @offset:	in: first byte
 * @length:	in: bytes; the range is widened to whole pages
 *
 * New memory is zeroed; what has been committed before stays as it is. Counts against
 * RLIMIT_MEMLOCK and the memory cgroup.
 *
 * Errors: ERANGE (beyond the window), EINVAL (also: length 0), ENOMEM (also: RLIMIT_MEMLOCK),
 * EIO or ENODEV (the device didn't take the memory, and has failed, or fails or goes meanwhile; it
 * may know part of it, so that the memory stays the PE's, and is counted, until the PE ends).
 */
struct angara_ioc_window_commit {
	__u32 size;
	__u32 flags;
	__u64 offset;
	__u64 length;
};

#define ANGARA_IOC_WINDOW_COMMIT _IO(ANGARA_IOC_TYPE, 0x20)

/*
 * Parts of a PE for mmap(), at offset part << ANGARA_MMAP_SHIFT. Shared mappings only. Parts
 * marked "ro" can't be mapped for writing (EACCES); another offset or length is EINVAL. A fork
 * doesn't inherit them. After removal of the device they read as zeroes, but for status.state
 * (ANGARA_PE_GONE), and writes reach nobody: not the device, not another process.
 */
#define ANGARA_MMAP_SHIFT	32
#define ANGARA_MMAP_DOORBELL	0	/* struct angara_doorbell, one page, uncached */
#define ANGARA_MMAP_STATUS	1	/* ro: struct angara_status, one page */
#define ANGARA_MMAP_CMD		2	/* struct angara_desc[cmd_entries] */
#define ANGARA_MMAP_EVENT	3	/* ro: struct angara_event_record[event_entries] */
#define ANGARA_MMAP_MARKER	4	/* ro: __u64[marker_slots] */
#define ANGARA_MMAP_PIO		5	/* struct angara_put granules, write-combining */
#define ANGARA_MMAP_WINDOW	6	/* the window; SIGBUS where it isn't committed */

/*
 * poll() on the PE file: EPOLLIN after an interrupt of an armed PE until the next arm or read();
 * EPOLLERR | EPOLLHUP when the device or the PE has gone or failed. read() of 8 bytes gives the
 * number of interrupts since the last read (EAGAIN if 0 and O_NONBLOCK), as an eventfd does.
 */

/**
 * struct angara_doorbell - what a PE's owner tells the device
 * @cmd_prod:	descriptors posted since the PE was made (free running)
 * @event_cons:	event records consumed (free running); never goes backwards
 * @arm:	a new value that isn't 0: interrupt once, at the next event record (or loss of one),
 *		flagged put, or marker that lands, or when the PE fails; 0: don't. The device sets
 *		status.arm_ack to the value when it has taken note; what came before is in the
 *		rings, or the marker's slot, by then
 *
 * The device reads these words at any time and trusts none.
 */
struct angara_doorbell {
	__u32 cmd_prod;
	__u32 reserved0[15];
	__u32 event_cons;
	__u32 reserved1[15];
	__u32 arm;
	__u32 reserved2[31];
};

/*
 * struct angara_status.state. A PE fails, for ever, by what no correct program writes:
 *   doorbell:	cmd_prod more than the ring ahead of cmd_cons; event_cons backwards, or ahead of
 *		event_prod
 *   descriptor:	an unknown operation, atomic or width; a reserved field or flag that isn't
 *		0; a pair beyond the table, or never set; a marker slot that doesn't exist; inline
 *		data longer than ANGARA_DESC_DATA; pio_prod more than the put ring ahead of
 *		pio_cons; a generation of more than 32 bits
 *   put:	an unknown operation; a reserved field that isn't 0; more than put_max bytes, or
 *		than ANGARA_NOTIFY_BYTES of a notify put; passing the end of the ring; a pair beyond
 *		the table, or never set
 * What was queued by then is dropped. All else that can't be done is a fault of the pair: see
 * ANGARA_EV_FAULT.
 */
#define ANGARA_PE_RUNNING	0
#define ANGARA_PE_FAILED	1
#define ANGARA_PE_GONE		2	/* closed, or the device has gone */

/**
 * struct angara_status - what the device tells a PE's owner
 * @cmd_cons:		descriptors fetched (free running); says nothing about completion
 * @event_prod:		event records written (free running)
 * @event_lost:		records lost since the PE was made, because the ring was full
 * @pio_cons:		granules of the put ring consumed (free running)
 * @armed:		struct angara_doorbell.arm until the device interrupts, then 0
 * @state:		ANGARA_PE_*
 * @link:		1 if the link is up
 * @arm_ack:		last value of doorbell.arm that the device has taken note of; stays when it
 *			interrupts, so that an owner who waits for it can't miss it
 * @notify_token:	token of the last notify put answered
 * @notify_status:	its outcome: 0, or a negative ANGARA_ST_*
 * @counters:		ANGARA_CNT_*
 */
struct angara_status {
	__u32 cmd_cons;
	__u32 reserved0[15];
	__u32 event_prod;
	__u32 event_lost;
	__u32 reserved1[14];
	__u32 pio_cons;
	__u32 armed;
	__u32 state;
	__u32 link;
	__u32 notify_token;
	__s32 notify_status;
	__u32 arm_ack;
	__u32 reserved2[9];
	__u64 counters[32];
};

/* Indices of angara_status.counters. */
#define ANGARA_CNT_PUTS		0	/* puts of the put ring performed */
#define ANGARA_CNT_OFF_PUTS	1
#define ANGARA_CNT_OFF_GETS	2
#define ANGARA_CNT_OFF_BYTES	3
#define ANGARA_CNT_ATOMICS	4
#define ANGARA_CNT_NOTIFIES	5	/* accepted by their target */
#define ANGARA_CNT_REFUSED	6	/* notify puts refused: the target's event ring was full */
#define ANGARA_CNT_MARKERS	7
#define ANGARA_CNT_FAULTS	8
#define ANGARA_CNT_EVENTS	9
#define ANGARA_CNT_LOST		10
#define ANGARA_CNT_IRQS		11

/* Outcomes in events and notify_status: the values of libangara's angara_status_t. */
#define ANGARA_ST_OK		0
#define ANGARA_ST_NO_RESOURCE	(-3)	/* notify put: the target's event ring is full */
#define ANGARA_ST_UNREACHABLE	(-5)	/* no such node, or its link has been down for too long */
#define ANGARA_ST_KEY		(-6)	/* no region of that key in the PE's or target's domain */
#define ANGARA_ST_BOUNDS	(-7)	/* outside the region or what is committed of the window;
					 * longer than offload_max; a word that isn't aligned
					 */
#define ANGARA_ST_RIGHTS	(-8)
#define ANGARA_ST_PEER_DEAD	(-9)
#define ANGARA_ST_UNSUPPORTED	(-11)	/* reads from the own node, without loopback */
#define ANGARA_ST_SYSTEM	(-14)	/* a page list that makes no sense: the driver's fault */

/* Operations of a descriptor. */
#define ANGARA_OP_PUT		1	/* local region -> remote region */
#define ANGARA_OP_PUT_INLINE	2	/* data[] -> remote region */
#define ANGARA_OP_GET		3	/* remote region -> local region */
#define ANGARA_OP_ATOMIC	4
#define ANGARA_OP_MARKER	5	/* read-back from the destination into slot loffset */
#define ANGARA_OP_MARKER_SELF	6
#define ANGARA_OP_PAIR		16	/* set entry @pair: node, PE, generation */

#define ANGARA_DESC_DATA	32

/**
 * struct angara_desc - descriptor of the command ring, 128 bytes
 * @op:		ANGARA_OP_*
 * @atomic:	add, and, or, xor, swap, compare-and-swap: 0 to 5
 * @width:	of an atomic: 4 or 8
 * @flags:	0
 * @pair:	destination: entry of the PE's pair table
 * @lkey:	local region
 * @loffset:	offset in it; marker slot
 * @rkey:	remote region
 * @roffset:	offset in it
 * @length:	bytes
 * @operand:	of an atomic; value of a marker; ANGARA_OP_PAIR: node << 32 | PE index
 * @compare:	of a compare-and-swap; ANGARA_OP_PAIR: generation
 * @trigger_counter, @trigger_threshold, @signal_offset, @signal_value: 0, kept for triggered
 *		operations and put with signal
 * @pio_prod:	granules of the put ring written before: the operation comes after those puts
 * @data:	of ANGARA_OP_PUT_INLINE
 *
 * ANGARA_OP_PAIR also clears the error of the pair. It is performed in the order of the ring, when
 * what was posted to the entry before has been performed or dropped: with status.cmd_cons past it,
 * it is done, and from then on puts may name the entry (the rings are read independently). A pair
 * to a PE that doesn't exist gets PEER_DOWN at once.
 */
struct angara_desc {
	__u8  op;
	__u8  atomic;
	__u8  width;
	__u8  flags;
	__u32 pair;
	__u64 lkey;
	__u64 loffset;
	__u64 rkey;
	__u64 roffset;
	__u64 length;
	__u64 operand;
	__u64 compare;
	__u32 trigger_counter;
	__u32 trigger_threshold;
	__u64 signal_offset;
	__u64 signal_value;
	__u64 pio_prod;
	__u8  data[ANGARA_DESC_DATA];
};

/* Entries of a PE's pair table. */
#define ANGARA_PAIRS_MAX	4096

#define ANGARA_PIO_GRANULE	64
#define ANGARA_PIO_INLINE	16
#define ANGARA_NOTIFY_BYTES	64

/* Operations of a put. */
#define ANGARA_PIO_PUT		1	/* @length bytes to @offset of the window */
#define ANGARA_PIO_PUT_FLAG	2	/* the same, then the word @flag at @flag_offset */
#define ANGARA_PIO_NOTIFY	3	/* @length bytes into the event ring; status answers */
#define ANGARA_PIO_PAD		4	/* skip to the end of the put ring */

/**
 * struct angara_put - first granule of a put
 * @valid:	number of this granule since the PE was made (free running, 32 bits), plus one.
 *		Written last, after a store fence: the granule is the device's from then on
 * @op:		ANGARA_PIO_*
 * @reserved:	0
 * @length:	bytes; the first ANGARA_PIO_INLINE are in @data, the others in the granules behind
 * @pair:	destination
 * @token:	of a notify put
 * @offset, @flag_offset, @flag: see the operations
 * @data:	first bytes
 *
 * A put doesn't wrap: a pad fills the end of the ring. The owner may write granules up to
 * pio_bytes / 64 ahead of status.pio_cons. Before it moves pio_cons the device writes the number of
 * each granule that it has consumed, plus one, into its first word: what was there before never
 * fits as @valid of the next lap.
 *
 * One notify put may be outstanding: until notify_token is its token there may be no other.
 */
struct angara_put {
	__u32 valid;
	__u8  op;
	__u8  reserved;
	__u16 length;
	__u32 pair;
	__u32 token;
	__u64 offset;
	__u64 flag_offset;
	__u64 flag;
	__u8  data[ANGARA_PIO_INLINE];
	__u64 reserved1;
};

/*
 * Kinds of event records: the values of libangara's angara_event_type_t.
 *
 * FAULT: an operation was refused (for KEY, BOUNDS, RIGHTS: nothing of it has moved). Its pair is
 * in error: what is queued to it is dropped, and so are later operations of the command ring,
 * markers included, without another event, until ANGARA_OP_PAIR sets it again (puts may still be
 * performed). After ANGARA_ST_KEY no command of the PE is fetched for a millisecond. A notify put
 * that is refused is told by notify_status alone.
 * PEER_DOWN: the far end has ended. The pair is in error.
 */
#define ANGARA_EV_NOTIFY	1
#define ANGARA_EV_FAULT		2
#define ANGARA_EV_PEER_DOWN	3
#define ANGARA_EV_LINK		4

/**
 * struct angara_event_record - record of the event ring, 128 bytes
 * @valid:	number of the record since the PE was made (free running, 32 bits), plus one; last
 * @type:	ANGARA_EV_*
 * @node, @pe, @generation: where it comes from
 * @pair:	FAULT, PEER_DOWN: entry of the pair table; ~0: none
 * @status:	FAULT: ANGARA_ST_*; PEER_DOWN: 0: closed by its owner, ANGARA_ST_PEER_DEAD: its
 *		process or its node has ended; LINK: 1 up, 0 down
 * @length:	NOTIFY: bytes of @data
 * @key:	FAULT: remote key
 * @data:	NOTIFY
 */
struct angara_event_record {
	__u32 valid;
	__u32 type;
	__u32 node;
	__u32 pe;
	__u32 generation;
	__u32 pair;
	__s32 status;
	__u32 length;
	__u64 key;
	__u8  data[64];
	__u8  reserved[24];
};

/* ---- /dev/angara_memreg -------------------------------------------------------------------- */

/* Rights of a region. */
#define ANGARA_MR_REMOTE_READ	(1U << 0)
#define ANGARA_MR_REMOTE_WRITE	(1U << 1)
#define ANGARA_MR_REMOTE_ATOMIC	(1U << 2)
#define ANGARA_MR_LOCAL_WRITE	(1U << 3)

/* Kinds of memory. */
#define ANGARA_MR_HOST		0	/* [addr, addr + length) of the caller */

/**
 * struct angara_ioc_mr_reg - ANGARA_IOC_MR_REG: register memory
 * @size:		in: sizeof(struct angara_ioc_mr_reg)
 * @flags:		in: 0
 * @domain_fd:		in: open file of /dev/angara<N>
 * @type:		in: ANGARA_MR_HOST
 * @access:		in: ANGARA_MR_*
 * @reserved:		0
 * @addr:		in: first byte
 * @length:		in: bytes, at least 1
 * @key:		out: names the region to remote PEs; never 0
 * @handle:		out: for ANGARA_IOC_MR_DEREG and the stale words
 * @page_shift:		out: log2 of the page size that the device uses
 *
 * The region names pages, not addresses: after munmap(), a remapping or madvise(MADV_DONTNEED) the
 * device still reaches the pages of now, and the stale word of the region is set.
 *
 * Errors: EBADF (domain_fd is no domain), EFAULT (not mapped, or not writable where @access needs
 * that), EINVAL (also: the range wraps), ENOMEM (also: over RLIMIT_MEMLOCK), EDQUOT (quota of
 * this user), ENOSPC (the device's table is full), EOPNOTSUPP (memory that must not be pinned for
 * long: writable shared file pages other than shmem and hugetlb, DAX; an unknown type; DMA through
 * bounce buffers), ENODEV.
 */
struct angara_ioc_mr_reg {
	__u32 size;
	__u32 flags;
	__s32 domain_fd;
	__u32 type;
	__u32 access;
	__u32 reserved;
	__u64 addr;
	__u64 length;
	__u64 key;
	__u32 handle;
	__u32 page_shift;
};

/**
 * struct angara_ioc_mr_dereg - ANGARA_IOC_MR_DEREG: take a region back
 * @size:	in: sizeof(struct angara_ioc_mr_dereg)
 * @flags:	in: 0
 * @handle:	in: of ANGARA_IOC_MR_REG
 * @reserved:	0
 *
 * On return no access is in flight and the pages are unpinned.
 *
 * Errors: ENOENT (no such region), EIO (the device didn't acknowledge: the pages stay pinned for
 * ever, which is counted, and the device is marked dead).
 */
struct angara_ioc_mr_dereg {
	__u32 size;
	__u32 flags;
	__u32 handle;
	__u32 reserved;
};

/**
 * struct angara_ioc_mr_check - ANGARA_IOC_MR_CHECK: do a region's addresses still mean its pages?
 * @size:	in: sizeof(struct angara_ioc_mr_check)
 * @flags:	in: 0
 * @handle:	in: of ANGARA_IOC_MR_REG
 * @stale:	in: 0; out: 0: those of the range do; 1: other pages are mapped there now, or some
 *		aren't mapped at the moment, or it can't be told
 * @offset:	in: first byte, in the region
 * @length:	in: bytes, at least 1
 *
 * For an owner who finds the stale word set: the kernel sets it for what may change the pages, also
 * when it then doesn't (it tries in vain to move them, say). If all of the region is asked about,
 * and is as it was, the word is 0 again. Nothing is mapped or faulted in.
 *
 * Errors: ENOENT (no such region, or not any more), ERANGE (beyond the region), EINVAL (also:
 * length 0), EINTR, ENODEV (the device is being removed, and the region has ended).
 */
struct angara_ioc_mr_check {
	__u32 size;
	__u32 flags;
	__u32 handle;
	__u32 stale;
	__u64 offset;
	__u64 length;
};

#define ANGARA_IOC_MR_REG	_IO(ANGARA_IOC_TYPE, 0x40)
#define ANGARA_IOC_MR_DEREG	_IO(ANGARA_IOC_TYPE, 0x41)
#define ANGARA_IOC_MR_CHECK	_IO(ANGARA_IOC_TYPE, 0x42)

/*
 * mmap() of /dev/angara_memreg at offset 0, read only: __u32 stale[], by handle. Non-zero: the
 * addresses of the region have been unmapped or remapped since it was registered, or may have been:
 * see ANGARA_IOC_MR_CHECK.
 */
#define ANGARA_MR_HANDLES_MAX	262144

#endif /* _UAPI_ANGARA_H */
