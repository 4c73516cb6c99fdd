/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR BSD-3-Clause */
/*
 * User interface of the Angara kernel modules. What programs share with the device itself is in
 * misc/angara_formats.h.
 *
 * /dev/angara<N>       a NIC; every open file is a protection domain
 * (PE file)            made by ANGARA_IOC_PE_CREATE: a processing element, to be mapped and polled
 * /dev/angara_memreg   registers memory in a domain
 * /dev/angara_jobkey   for the administrator: which job keys users may have
 *
 * Every ioctl takes a pointer to a structure that begins with its size in bytes, as its caller
 * knows it, and flags. A structure may grow at its end: what an older caller doesn't have reads as
 * zero; what a newer caller sets and this kernel doesn't know is refused with E2BIG. Unknown flags,
 * and fields that aren't zero though they are reserved or only "out", are refused with EINVAL: so
 * they can become inputs. On error nothing has changed and nothing stays pinned. All fields have
 * fixed sizes, natural alignment and the byte order of the machine: 32-bit callers use the same
 * layouts.
 *
 * All files but the last belong to the process image (mm) that opened the domain: calls and
 * mappings from another one get EPERM, also through an inherited or passed descriptor.
 *
 * Errors that every call can return: EFAULT (bad pointer), EINVAL (see above), E2BIG, ENOTTY
 * (unknown call), EPERM (wrong process, or not the administrator), ENODEV (the device has gone or
 * failed, or the PE's job key was revoked), EINTR.
 */
#ifndef _UAPI_ANGARA_H
#define _UAPI_ANGARA_H

#include <linux/ioctl.h>
#include <linux/types.h>
#include <misc/angara_formats.h>

/* Changes that older programs wouldn't survive; compared at ANGARA_IOC_INFO. */
#define ANGARA_UAPI_VERSION	2

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
 * @formats:		out: ANGARA_FORMATS_VERSION of the device
 * @reserved:		0
 * @window_max:		out: bytes of the largest put window
 * @offload_max:	out: bytes of the largest offload operation
 * @name:		out: device name, e.g. "angara0"
 *
 * The first call of a program: size, flags and version are the same in all versions, and versions
 * are compared before anything else is looked at.
 *
 * Errors: EPROTO if the versions don't fit each other; @version has been set, all behind it is 0.
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
	__u32 formats;
	__u32 reserved;
	__u64 window_max;
	__u64 offload_max;
	__u8  name[32];
};

/**
 * struct angara_ioc_pe_create - ANGARA_IOC_PE_CREATE: take a PE of the device
 * @size:		in: sizeof(struct angara_ioc_pe_create)
 * @flags:		in: 0
 * @window_size:	in: bytes of the put window, a multiple of the page size
 * @job_key:		in: value of a granted job key; 0: the opener's own key
 * @fd:			out: file of the PE, close-on-exec; the PE ends when the last descriptor (a
 *			child's included) and the last mapping of it have gone, or with the owner's
 *			mm (exit, exec)
 * @index:		out: number of the PE
 * @generation:		out: tells it from earlier PEs of that number: random, never 0
 * @reserved:		0
 *
 * Its rings, status, markers and window table count against RLIMIT_MEMLOCK and the memory cgroup.
 *
 * Errors: ENOSPC (no PE is free), EDQUOT (quota of this user: PEs, or their memory), ENOMEM (also:
 * RLIMIT_MEMLOCK), EMFILE, ENFILE, EINVAL (window_size is 0, too large or not whole pages; job_key
 * isn't below ANGARA_JOB_VALUES), EACCES (job_key isn't granted to this user), EIO (the device
 * refused), ENODEV.
 */
struct angara_ioc_pe_create {
	__u32 size;
	__u32 flags;
	__u64 window_size;
	__u64 job_key;
	__s32 fd;
	__u32 index;
	__u32 generation;
	__u32 reserved;
};

/* Values of granted job keys are below this. */
#define ANGARA_JOB_VALUES	(1ULL << 56)

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
 * RLIMIT_MEMLOCK and the memory cgroup, with a page more for each 2 MiB of the window in which it
 * is the first.
 *
 * Errors: ERANGE (beyond the window), EINVAL (also: length 0), ENOMEM (also: RLIMIT_MEMLOCK),
 * EDQUOT (quota of this user for the memory of PEs), EINTR (the process is being killed), EIO or
 * ENODEV (the device didn't take the memory, and has failed, or fails or goes meanwhile; it
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

/* ---- /dev/angara_jobkey -------------------------------------------------------------------- */

/**
 * struct angara_ioc_job - ANGARA_IOC_JOB_ADD: let a user's PEs have a job key besides his own
 * @size:	in: sizeof(struct angara_ioc_job)
 * @flags:	in: 0
 * @device:	in: N of /dev/angara<N>
 * @uid:	in: user id, in the initial user namespace
 * @value:	in: which key: 1 to ANGARA_JOB_VALUES - 1
 * @reserved:	0
 *
 * Calls of this file need CAP_SYS_ADMIN in the initial user namespace. A grant lasts until it is
 * revoked or the device goes. PEs ask for it by angara_ioc_pe_create.job_key.
 *
 * Errors: EINVAL (also: no such value or user id can be), ENXIO (no such device), EEXIST (it is
 * granted), ENOSPC (as many as the module's parameter job_keys allows are), ENOMEM.
 */
struct angara_ioc_job {
	__u32 size;
	__u32 flags;
	__u32 device;
	__u32 uid;
	__u64 value;
	__u64 reserved;
};

/*
 * ANGARA_IOC_JOB_DEL: revoke a grant. On return the device has forgotten the user's PEs with that
 * key: their owners see ANGARA_PE_GONE, their peers got PEER_DOWN.
 *
 * Errors: EINVAL (as above), ENXIO (no such device), ENOENT (it isn't granted).
 */
/*
 * ANGARA_IOC_JOB_NEXT: uid and value: in: a grant or none; out: the next one in order of uid and
 * value. The first one is behind 0, 0.
 *
 * Errors: EINVAL, ENXIO (no such device), ENOENT (there is none).
 */
#define ANGARA_IOC_JOB_ADD	_IO(ANGARA_IOC_TYPE, 0x60)
#define ANGARA_IOC_JOB_DEL	_IO(ANGARA_IOC_TYPE, 0x61)
#define ANGARA_IOC_JOB_NEXT	_IO(ANGARA_IOC_TYPE, 0x62)

#endif /* _UAPI_ANGARA_H */
