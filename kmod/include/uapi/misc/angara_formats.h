/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR BSD-3-Clause */
/*
 * What programs and the Angara NIC share: the rings, doorbells and status words of a PE, which
 * programs map (see misc/angara.h) and the device reads and writes by itself. The kernel stands
 * aside, so these are formats of the hardware: all words, the two signed ones too, are little
 * endian, whatever the machine.
 *
 * Reserved fields are 0. The device takes nothing here for true: what no correct program writes
 * fails the PE, see ANGARA_PE_FAILED.
 */
#ifndef _UAPI_ANGARA_FORMATS_H
#define _UAPI_ANGARA_FORMATS_H

#include <linux/types.h>

/*
 * Of all formats below: changes that older programs, or older devices, wouldn't survive. What a
 * device has belongs to the version of its register file; the driver tells programs by
 * ANGARA_IOC_INFO.
 */
#define ANGARA_FORMATS_VERSION	1

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
	__le32 cmd_prod;
	__le32 reserved0[15];
	__le32 event_cons;
	__le32 reserved1[15];
	__le32 arm;
	__le32 reserved2[31];
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
#define ANGARA_PE_GONE		2	/* closed, its job key revoked, or the device has gone */

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
	__le32 cmd_cons;
	__le32 reserved0[15];
	__le32 event_prod;
	__le32 event_lost;
	__le32 reserved1[14];
	__le32 pio_cons;
	__le32 armed;
	__le32 state;
	__le32 link;
	__le32 notify_token;
	__s32  notify_status;
	__le32 arm_ack;
	__le32 reserved2[9];
	__le64 counters[32];
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
 * to a PE that doesn't exist, or has another job key, which looks the same, gets PEER_DOWN at once,
 * and no command of the PE is fetched for a millisecond.
 */
struct angara_desc {
	__u8  op;
	__u8  atomic;
	__u8  width;
	__u8  flags;
	__le32 pair;
	__le64 lkey;
	__le64 loffset;
	__le64 rkey;
	__le64 roffset;
	__le64 length;
	__le64 operand;
	__le64 compare;
	__le32 trigger_counter;
	__le32 trigger_threshold;
	__le64 signal_offset;
	__le64 signal_value;
	__le64 pio_prod;
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
	__le32 valid;
	__u8  op;
	__u8  reserved;
	__le16 length;
	__le32 pair;
	__le32 token;
	__le64 offset;
	__le64 flag_offset;
	__le64 flag;
	__u8  data[ANGARA_PIO_INLINE];
	__le64 reserved1;
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
	__le32 valid;
	__le32 type;
	__le32 node;
	__le32 pe;
	__le32 generation;
	__le32 pair;
	__s32  status;
	__le32 length;
	__le64 key;
	__u8  data[64];
	__u8  reserved[24];
};

#endif /* _UAPI_ANGARA_FORMATS_H */
