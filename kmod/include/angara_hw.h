/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * What the driver and the NIC share and users never see: the register file (BAR 2), the admin queue
 * and the tables in host memory. What programs share with the NIC is in misc/angara_formats.h, and
 * belongs to the version here. All words are little endian. "Bus address" is what the DMA API
 * gives.
 *
 * The emulated NIC sits behind QEMU's ivshmem-doorbell device: BAR 2 is plain memory that the
 * device polls, so a register that starts something is a pair of a request word and an acknowledge
 * word, and interrupts and doorbells are hints.
 *
 * BAR 2:
 *   ANGARA_HW_CONTROL     struct angara_hw_control, one page, kernel only
 *   doorbell_offset       one page per PE: struct angara_doorbell
 *   pio_offset            pio_bytes per PE: the put ring
 * BAR 0:
 *   ANGARA_HW_BELL        0 is written after each request (reset_req, dma_req, admin_prod): wakes a
 *                         device that rests, which would find the request by itself, but later
 */
#ifndef ANGARA_HW_H
#define ANGARA_HW_H

#ifdef __KERNEL__
#include <linux/types.h>
#else
#include <linux/types.h>
#endif

#define ANGARA_HW_MAGIC		0x30415241474e41ULL	/* "ANGARA0" */
#define ANGARA_HW_GONE		(~0ULL)			/* what reads return after removal */

/*
 * major << 16 | minor. The minor number counts additions that an older driver, or an older device,
 * does without: constants that read as zero, capability bits, commands that are refused as unknown.
 * Any other change is a new major number, which a driver of the old one refuses: so is a device of
 * an old one, which would ignore what it is told.
 */
#define ANGARA_HW_VERSION	0x00030000U

#define ANGARA_HW_CONTROL	0
#define ANGARA_HW_BELL		0x0c

#define ANGARA_HW_NODE_BITS	24

/* struct angara_hw_control.caps */
#define ANGARA_HW_CAP_LOOPBACK	(1U << 0)

/**
 * struct angara_hw_control - first page of BAR 2
 *
 * First two lines, written by the device before the driver binds, and constant:
 * @magic: ANGARA_HW_MAGIC, written last
 * @version: ANGARA_HW_VERSION
 * @caps: ANGARA_HW_CAP_*
 * @node: node id, of ANGARA_HW_NODE_BITS
 * @pe_max: PEs
 * @mr_max: largest MR table
 * @vectors: MSI-X vectors used: 0 admin and link, 1.. PEs (1 + index % (vectors - 1))
 * @doorbell_offset: in BAR 2, page aligned
 * @pio_offset: in BAR 2, page aligned
 * @pio_bytes: per PE, a power of two of whole pages
 * @marker_slots: per PE
 * @put_max: bytes of the largest put; it takes at most half of a put ring, so that it fits behind
 *           any pad
 * @window_pages_max: of a window table
 * @offload_max: bytes of the largest operation of a command ring
 *
 * Third line, written by the device:
 * @link: 1 up, 0 down
 * @alive: changes at least every 100 ms while the device works
 * @reset_ack, @dma_ack: follow the request words below
 * @admin_cons: commands fetched since the reset (free running)
 * @key_mismatches: what came for PEs of this node with another job key (free running): for the
 *                  administrator alone
 *
 * Fourth line, written by the driver:
 * @reset_req: a new value resets the device: all PEs and regions are forgotten, DMA is off. Done
 *             when @reset_ack is equal; then @admin_cons and the number of responses are 0
 * @dma_req: low bit: DMA allowed; the other bits count requests. Done when @dma_ack is equal: with
 *           the bit clear no access is in flight or will start, nothing of the rings is looked at,
 *           and to other nodes this one's PEs are dead
 * @admin_prod: commands posted since the reset (free running): 0 before a reset is requested
 * @admin_entries: of both admin rings, a power of two up to 4096
 * @admin_cmd: bus address of struct angara_hw_cmd[admin_entries], 128-byte aligned
 * @admin_resp: bus address of struct angara_hw_resp[admin_entries], 16-byte aligned, zeroed
 * @admin_quiet: 1: no interrupts for responses, as the driver looks for them itself. Read by the
 *               device after it has written a response: who has written 0, waited until that has
 *               arrived and then finds no response is interrupted by it. The driver leaves 0 behind
 *
 * @admin_entries, @admin_cmd and @admin_resp are read at the first command after a reset.
 */
struct angara_hw_control {
	__le64 magic;
	__le32 version;
	__le32 caps;
	__le32 node;
	__le32 pe_max;
	__le32 mr_max;
	__le32 vectors;
	__le64 doorbell_offset;
	__le64 pio_offset;
	__le32 pio_bytes;
	__le32 marker_slots;
	__le32 put_max;
	__le32 window_pages_max;
	__le64 offload_max;
	__le64 reserved0[7];

	__le32 link;
	__le32 alive;
	__le32 reset_ack;
	__le32 dma_ack;
	__le32 admin_cons;
	__le32 key_mismatches;
	__le32 reserved1[10];

	__le32 reset_req;
	__le32 dma_req;
	__le32 admin_prod;
	__le32 admin_entries;
	__le64 admin_cmd;
	__le64 admin_resp;
	__le32 admin_quiet;
	__le32 reserved2[7];
};

/*
 * Admin commands. A response comes for each, in any order; until then the device goes on with what
 * it knew. Addresses of tables and rings are multiples of 64.
 *
 * SETUP: args: bus address of the MR table, its entries. No region is known any more
 * PE_CREATE: struct angara_hw_pe behind the command's head. Before it answers the device zeroes the
 *            PE's doorbell page and put ring (the kernel never maps them) and writes its status
 * PE_RESET: args: index, generation, how: ANGARA_HW_CLOSED or ANGARA_HW_DIED. Acknowledged when
 *           nothing of the PE's is in flight, inbound or outbound, or cached. Who has a pair to it
 *           gets PEER_DOWN: status 0 if it was closed, else ANGARA_ST_PEER_DEAD, as also for a PE
 *           that ended while the link was down, or when its node did
 * MR_INVALIDATE: args: key. The driver has cleared the entry's key before, or changed the entry.
 *                Acknowledged when no access to the region is in flight, and nothing of the entry
 *                and its page list is cached; it doesn't wait for the far end of any operation. A
 *                key that isn't known is no error
 * WINDOW_SYNC: args: index: words were added to its window table, on either level. A word that is
 *              valid stays as it is until PE_RESET; a page that the device has found not to be
 *              there is looked up again once this is acknowledged
 * NOP: nothing
 * DOMAIN_INVALIDATE: args: domain. MR_INVALIDATE for all regions of that domain, whose keys the
 *                    driver has cleared before
 */
#define ANGARA_HW_SETUP		1
#define ANGARA_HW_PE_CREATE	2
#define ANGARA_HW_PE_RESET	3
#define ANGARA_HW_MR_INVALIDATE	4
#define ANGARA_HW_WINDOW_SYNC	5
#define ANGARA_HW_NOP		6
#define ANGARA_HW_DOMAIN_INVALIDATE 7

/* How a PE has ended, args[2] of ANGARA_HW_PE_RESET. */
#define ANGARA_HW_DIED		0	/* its process, or the driver, took it away */
#define ANGARA_HW_CLOSED	1	/* its owner said goodbye */

/*
 * Job keys. A PE has the key that the driver has given it. What leaves a PE, a window write or a
 * notify put included, carries the key of the PE whose rings it was in (never of a descriptor), and
 * is performed only if the PE that it is for has the same. Otherwise it is in every respect, the
 * time that it takes included, as if there were no such PE: nothing there is read, written, counted
 * or interrupted, the initiator gets PEER_DOWN, or its notify put ANGARA_ST_PEER_DEAD. Only
 * key_mismatches of the far device counts it. An entry of the pair table that is set to what isn't
 * there, for whichever reason, costs a millisecond in which no command of the PE is fetched.
 *
 * The device only compares. Drivers of one network agree on what is in a key: a class and a value
 * below 1 << ANGARA_HW_JOB_SHIFT, so that keys of different classes are never the same.
 *
 * ANGARA_HW_JOB_USER: id of the opener's user; the same user on all nodes
 * ANGARA_HW_JOB_LOCAL: node id << 32 | user id: of this node alone
 * ANGARA_HW_JOB_GRANTED: by the administrator; not 0
 */
#define ANGARA_HW_JOB_SHIFT	56
#define ANGARA_HW_JOB_USER	1
#define ANGARA_HW_JOB_LOCAL	2
#define ANGARA_HW_JOB_GRANTED	3

/**
 * struct angara_hw_pe - context of a PE, arguments of ANGARA_HW_PE_CREATE
 * @index, @generation: of the PE
 * @domain: number of its domain; regions of other domains are no local memory for it
 * @vector: MSI-X vector
 * @cmd, @cmd_entries: command ring
 * @event, @event_entries: event ring
 * @status: struct angara_status
 * @marker, @marker_slots: marker words
 * @window, @window_pages: window table, of two levels: a word for each ANGARA_HW_WINDOW_FANOUT
 *              pages of the window: bus address | 1 of a page of words, or 0; there, a word for
 *              each 4 KiB page of the window: its bus address | 1, or 0
 * @job_key: see above; never 0: ANGARA_HW_EINVAL
 *
 * Rings have powers of two of entries, at most 65536; at most marker_slots and window_pages_max of
 * the control page.
 */
struct angara_hw_pe {
	__le32 index;
	__le32 generation;
	__le32 domain;
	__le32 vector;
	__le64 cmd;
	__le64 event;
	__le64 status;
	__le64 marker;
	__le64 window;
	__le32 cmd_entries;
	__le32 event_entries;
	__le32 marker_slots;
	__le32 window_pages;
	__le64 job_key;
};

#define ANGARA_HW_WINDOW_FANOUT	512U	/* words of a page of the window table */

/**
 * struct angara_hw_cmd - admin command
 * @id: repeated in the response; never reused while one is outstanding
 * @opcode: ANGARA_HW_*
 */
struct angara_hw_cmd {
	__le32 id;
	__le32 opcode;
	union {
		__le64 args[15];
		struct angara_hw_pe pe;
	};
};

/* struct angara_hw_resp.status */
#define ANGARA_HW_OK		0
#define ANGARA_HW_EINVAL	1	/* unknown command, index out of range */
#define ANGARA_HW_EBUSY		2	/* the PE is in use */
#define ANGARA_HW_ESTALE	3	/* another generation */
#define ANGARA_HW_EFAULT	4	/* an address that is no memory */

/**
 * struct angara_hw_resp - response, at index (number of responses so far) % admin_entries
 * @valid: number of the response since the reset (free running), plus one; written last
 * @id: of the command
 * @status: ANGARA_HW_*
 * @generation: of the PE concerned (PE_CREATE, PE_RESET: the command's, also if it is refused;
 *              WINDOW_SYNC: of the PE of that index), or 0
 */
struct angara_hw_resp {
	__le32 valid;
	__le32 id;
	__le32 status;
	__le32 generation;
};

/**
 * struct angara_hw_mr - entry of the MR table, at index key & (2^24 - 1)
 *
 * The device may keep a copy of the entry, and of the page list, until it is invalidated. It reads
 * @key and @state before the rest.
 * @key: 0: none. Written last (after dma_wmb()), cleared first
 * @length: bytes
 * @list: root of the page list: levels 0: bus address of the region's first page (all are
 *        contiguous); 1: bus address of a page of up to 512 bus addresses of pages;
 *        2: of a page of up to 512 such pages; 3: one more
 * @first: offset of the first byte in the first page
 * @domain: number of the domain
 * @access: ANGARA_MR_*
 * @npages: pages
 * @page_shift: log2 of the page size, 12 to 30
 * @levels: of the list
 * @state: ANGARA_HW_MR_LIVE or ANGARA_HW_MR_SUSPENDED. Of a suspended region @list, @first,
 *         @npages, @page_shift and @levels mean nothing. An operation that meets it is checked as
 *         ever (domain, bounds, rights), and then held, with those behind it on its pair, until
 *         the device has looked the entry up again after the next MR_INVALIDATE and found it live,
 *         or gone. What was moved before that stays moved; the first byte keeps its offset in its
 *         4 KiB page
 */
struct angara_hw_mr {
	__le64 key;
	__le64 length;
	__le64 list;
	__le64 first;
	__le32 domain;
	__le32 access;
	__le64 npages;
	__u8   page_shift;
	__u8   levels;
	__u8   state;
	__u8   reserved0[5];
	__le64 reserved1;
};

#define ANGARA_HW_KEY_INDEX_BITS	24

/* struct angara_hw_mr.state */
#define ANGARA_HW_MR_LIVE	0
#define ANGARA_HW_MR_SUSPENDED	1

#endif /* ANGARA_HW_H */
