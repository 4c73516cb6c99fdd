/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The binary interfaces of the kernel modules as they have been given to users: sizes, offsets and
 * numbers of the user interface, of the formats that programs and the device share, and of the
 * register file. Compiled only, for several machines, by test_abi_frozen.sh, which also sees to it
 * that nothing of the headers is missing here.
 *
 * A line changes only together with the version that tells of the change; see docs/abi.md,
 * "Versions". What is added to the headers is added here.
 */
#include <angara_hw.h>
#include <misc/angara.h>
#include <stddef.h>

#ifdef __cplusplus
#define _Static_assert static_assert
#endif

#define CONSTANT(name, value) _Static_assert((name) == (value), #name)
#define STRUCT(type, bytes)   _Static_assert(sizeof(struct type) == (bytes), #type)
#define FIELD(type, field, offset, bytes)                               \
    _Static_assert(offsetof(struct type, field) == (offset) &&          \
                       sizeof(((struct type *)NULL)->field) == (bytes), \
                   #type "." #field)

/* ---- misc/angara.h --------------------------------------------------------------------------- */

CONSTANT(ANGARA_UAPI_VERSION, 2);
CONSTANT(ANGARA_IOC_TYPE, 0xa6);
CONSTANT(ANGARA_INFO_LOOPBACK, 1);
CONSTANT(ANGARA_INFO_LINK_UP, 2);
CONSTANT(ANGARA_JOB_VALUES, 0x100000000000000ULL);
CONSTANT(ANGARA_IOC_INFO, 0xa600);
CONSTANT(ANGARA_IOC_PE_CREATE, 0xa601);
CONSTANT(ANGARA_IOC_WINDOW_COMMIT, 0xa620);
CONSTANT(ANGARA_MMAP_SHIFT, 32);
CONSTANT(ANGARA_MMAP_DOORBELL, 0);
CONSTANT(ANGARA_MMAP_STATUS, 1);
CONSTANT(ANGARA_MMAP_CMD, 2);
CONSTANT(ANGARA_MMAP_EVENT, 3);
CONSTANT(ANGARA_MMAP_MARKER, 4);
CONSTANT(ANGARA_MMAP_PIO, 5);
CONSTANT(ANGARA_MMAP_WINDOW, 6);
CONSTANT(ANGARA_MR_REMOTE_READ, 1);
CONSTANT(ANGARA_MR_REMOTE_WRITE, 2);
CONSTANT(ANGARA_MR_REMOTE_ATOMIC, 4);
CONSTANT(ANGARA_MR_LOCAL_WRITE, 8);
CONSTANT(ANGARA_MR_HOST, 0);
CONSTANT(ANGARA_IOC_MR_REG, 0xa640);
CONSTANT(ANGARA_IOC_MR_DEREG, 0xa641);
CONSTANT(ANGARA_IOC_MR_CHECK, 0xa642);
CONSTANT(ANGARA_MR_HANDLES_MAX, 262144);
CONSTANT(ANGARA_IOC_JOB_ADD, 0xa660);
CONSTANT(ANGARA_IOC_JOB_DEL, 0xa661);
CONSTANT(ANGARA_IOC_JOB_NEXT, 0xa662);

STRUCT(angara_ioc_info, 104);
FIELD(angara_ioc_info, size, 0, 4);
FIELD(angara_ioc_info, flags, 4, 4);
FIELD(angara_ioc_info, version, 8, 4);
FIELD(angara_ioc_info, caps, 12, 4);
FIELD(angara_ioc_info, node, 16, 4);
FIELD(angara_ioc_info, pe_max, 20, 4);
FIELD(angara_ioc_info, mr_max, 24, 4);
FIELD(angara_ioc_info, cmd_entries, 28, 4);
FIELD(angara_ioc_info, event_entries, 32, 4);
FIELD(angara_ioc_info, pio_bytes, 36, 4);
FIELD(angara_ioc_info, marker_slots, 40, 4);
FIELD(angara_ioc_info, put_max, 44, 4);
FIELD(angara_ioc_info, formats, 48, 4);
FIELD(angara_ioc_info, reserved, 52, 4);
FIELD(angara_ioc_info, window_max, 56, 8);
FIELD(angara_ioc_info, offload_max, 64, 8);
FIELD(angara_ioc_info, name, 72, 32);

STRUCT(angara_ioc_pe_create, 40);
FIELD(angara_ioc_pe_create, size, 0, 4);
FIELD(angara_ioc_pe_create, flags, 4, 4);
FIELD(angara_ioc_pe_create, window_size, 8, 8);
FIELD(angara_ioc_pe_create, job_key, 16, 8);
FIELD(angara_ioc_pe_create, fd, 24, 4);
FIELD(angara_ioc_pe_create, index, 28, 4);
FIELD(angara_ioc_pe_create, generation, 32, 4);
FIELD(angara_ioc_pe_create, reserved, 36, 4);

STRUCT(angara_ioc_window_commit, 24);
FIELD(angara_ioc_window_commit, size, 0, 4);
FIELD(angara_ioc_window_commit, flags, 4, 4);
FIELD(angara_ioc_window_commit, offset, 8, 8);
FIELD(angara_ioc_window_commit, length, 16, 8);

STRUCT(angara_ioc_mr_reg, 56);
FIELD(angara_ioc_mr_reg, size, 0, 4);
FIELD(angara_ioc_mr_reg, flags, 4, 4);
FIELD(angara_ioc_mr_reg, domain_fd, 8, 4);
FIELD(angara_ioc_mr_reg, type, 12, 4);
FIELD(angara_ioc_mr_reg, access, 16, 4);
FIELD(angara_ioc_mr_reg, reserved, 20, 4);
FIELD(angara_ioc_mr_reg, addr, 24, 8);
FIELD(angara_ioc_mr_reg, length, 32, 8);
FIELD(angara_ioc_mr_reg, key, 40, 8);
FIELD(angara_ioc_mr_reg, handle, 48, 4);
FIELD(angara_ioc_mr_reg, page_shift, 52, 4);

STRUCT(angara_ioc_mr_dereg, 16);
FIELD(angara_ioc_mr_dereg, size, 0, 4);
FIELD(angara_ioc_mr_dereg, flags, 4, 4);
FIELD(angara_ioc_mr_dereg, handle, 8, 4);
FIELD(angara_ioc_mr_dereg, reserved, 12, 4);

STRUCT(angara_ioc_mr_check, 32);
FIELD(angara_ioc_mr_check, size, 0, 4);
FIELD(angara_ioc_mr_check, flags, 4, 4);
FIELD(angara_ioc_mr_check, handle, 8, 4);
FIELD(angara_ioc_mr_check, stale, 12, 4);
FIELD(angara_ioc_mr_check, offset, 16, 8);
FIELD(angara_ioc_mr_check, length, 24, 8);

STRUCT(angara_ioc_job, 32);
FIELD(angara_ioc_job, size, 0, 4);
FIELD(angara_ioc_job, flags, 4, 4);
FIELD(angara_ioc_job, device, 8, 4);
FIELD(angara_ioc_job, uid, 12, 4);
FIELD(angara_ioc_job, value, 16, 8);
FIELD(angara_ioc_job, reserved, 24, 8);

/* ---- misc/angara_formats.h ------------------------------------------------------------------- */

CONSTANT(ANGARA_FORMATS_VERSION, 1);
CONSTANT(ANGARA_PE_RUNNING, 0);
CONSTANT(ANGARA_PE_FAILED, 1);
CONSTANT(ANGARA_PE_GONE, 0x2);
CONSTANT(ANGARA_CNT_PUTS, 0);
CONSTANT(ANGARA_CNT_OFF_PUTS, 1);
CONSTANT(ANGARA_CNT_OFF_GETS, 2);
CONSTANT(ANGARA_CNT_OFF_BYTES, 3);
CONSTANT(ANGARA_CNT_ATOMICS, 4);
CONSTANT(ANGARA_CNT_NOTIFIES, 5);
CONSTANT(ANGARA_CNT_REFUSED, 6);
CONSTANT(ANGARA_CNT_MARKERS, 7);
CONSTANT(ANGARA_CNT_FAULTS, 8);
CONSTANT(ANGARA_CNT_EVENTS, 9);
CONSTANT(ANGARA_CNT_LOST, 10);
CONSTANT(ANGARA_CNT_IRQS, 11);
CONSTANT(ANGARA_ST_OK, 0);
CONSTANT(ANGARA_ST_NO_RESOURCE, -3);
CONSTANT(ANGARA_ST_UNREACHABLE, -5);
CONSTANT(ANGARA_ST_KEY, -6);
CONSTANT(ANGARA_ST_BOUNDS, -7);
CONSTANT(ANGARA_ST_RIGHTS, -8);
CONSTANT(ANGARA_ST_PEER_DEAD, -9);
CONSTANT(ANGARA_ST_UNSUPPORTED, -11);
CONSTANT(ANGARA_ST_SYSTEM, -14);
CONSTANT(ANGARA_OP_PUT, 1);
CONSTANT(ANGARA_OP_PUT_INLINE, 2);
CONSTANT(ANGARA_OP_GET, 3);
CONSTANT(ANGARA_OP_ATOMIC, 4);
CONSTANT(ANGARA_OP_MARKER, 5);
CONSTANT(ANGARA_OP_MARKER_SELF, 6);
CONSTANT(ANGARA_OP_PAIR, 0x10);
CONSTANT(ANGARA_DESC_DATA, 32);
CONSTANT(ANGARA_PAIRS_MAX, 4096);
CONSTANT(ANGARA_PIO_GRANULE, 64);
CONSTANT(ANGARA_PIO_INLINE, 16);
CONSTANT(ANGARA_NOTIFY_BYTES, 64);
CONSTANT(ANGARA_PIO_PUT, 1);
CONSTANT(ANGARA_PIO_PUT_FLAG, 2);
CONSTANT(ANGARA_PIO_NOTIFY, 3);
CONSTANT(ANGARA_PIO_PAD, 4);
CONSTANT(ANGARA_EV_NOTIFY, 1);
CONSTANT(ANGARA_EV_FAULT, 2);
CONSTANT(ANGARA_EV_PEER_DOWN, 3);
CONSTANT(ANGARA_EV_LINK, 4);

STRUCT(angara_doorbell, 256);
FIELD(angara_doorbell, cmd_prod, 0, 4);
FIELD(angara_doorbell, reserved0, 4, 60);
FIELD(angara_doorbell, event_cons, 64, 4);
FIELD(angara_doorbell, reserved1, 68, 60);
FIELD(angara_doorbell, arm, 128, 4);
FIELD(angara_doorbell, reserved2, 132, 124);

STRUCT(angara_status, 448);
FIELD(angara_status, cmd_cons, 0, 4);
FIELD(angara_status, reserved0, 4, 60);
FIELD(angara_status, event_prod, 64, 4);
FIELD(angara_status, event_lost, 68, 4);
FIELD(angara_status, reserved1, 72, 56);
FIELD(angara_status, pio_cons, 128, 4);
FIELD(angara_status, armed, 132, 4);
FIELD(angara_status, state, 136, 4);
FIELD(angara_status, link, 140, 4);
FIELD(angara_status, notify_token, 144, 4);
FIELD(angara_status, notify_status, 148, 4);
FIELD(angara_status, arm_ack, 152, 4);
FIELD(angara_status, reserved2, 156, 36);
FIELD(angara_status, counters, 192, 256);

STRUCT(angara_desc, 128);
FIELD(angara_desc, op, 0, 1);
FIELD(angara_desc, atomic, 1, 1);
FIELD(angara_desc, width, 2, 1);
FIELD(angara_desc, flags, 3, 1);
FIELD(angara_desc, pair, 4, 4);
FIELD(angara_desc, lkey, 8, 8);
FIELD(angara_desc, loffset, 16, 8);
FIELD(angara_desc, rkey, 24, 8);
FIELD(angara_desc, roffset, 32, 8);
FIELD(angara_desc, length, 40, 8);
FIELD(angara_desc, operand, 48, 8);
FIELD(angara_desc, compare, 56, 8);
FIELD(angara_desc, trigger_counter, 64, 4);
FIELD(angara_desc, trigger_threshold, 68, 4);
FIELD(angara_desc, signal_offset, 72, 8);
FIELD(angara_desc, signal_value, 80, 8);
FIELD(angara_desc, pio_prod, 88, 8);
FIELD(angara_desc, data, 96, 32);

STRUCT(angara_put, 64);
FIELD(angara_put, valid, 0, 4);
FIELD(angara_put, op, 4, 1);
FIELD(angara_put, reserved, 5, 1);
FIELD(angara_put, length, 6, 2);
FIELD(angara_put, pair, 8, 4);
FIELD(angara_put, token, 12, 4);
FIELD(angara_put, offset, 16, 8);
FIELD(angara_put, flag_offset, 24, 8);
FIELD(angara_put, flag, 32, 8);
FIELD(angara_put, data, 40, 16);
FIELD(angara_put, reserved1, 56, 8);

STRUCT(angara_event_record, 128);
FIELD(angara_event_record, valid, 0, 4);
FIELD(angara_event_record, type, 4, 4);
FIELD(angara_event_record, node, 8, 4);
FIELD(angara_event_record, pe, 12, 4);
FIELD(angara_event_record, generation, 16, 4);
FIELD(angara_event_record, pair, 20, 4);
FIELD(angara_event_record, status, 24, 4);
FIELD(angara_event_record, length, 28, 4);
FIELD(angara_event_record, key, 32, 8);
FIELD(angara_event_record, data, 40, 64);
FIELD(angara_event_record, reserved, 104, 24);

/* ---- angara_hw.h ----------------------------------------------------------------------------- */

CONSTANT(ANGARA_HW_MAGIC, 0x30415241474e41);
CONSTANT(ANGARA_HW_GONE, 0xffffffffffffffffULL);
CONSTANT(ANGARA_HW_VERSION, 0x30000);
CONSTANT(ANGARA_HW_CONTROL, 0);
CONSTANT(ANGARA_HW_BELL, 12);
CONSTANT(ANGARA_HW_NODE_BITS, 24);
CONSTANT(ANGARA_HW_CAP_LOOPBACK, 1);
CONSTANT(ANGARA_HW_SETUP, 1);
CONSTANT(ANGARA_HW_PE_CREATE, 2);
CONSTANT(ANGARA_HW_PE_RESET, 3);
CONSTANT(ANGARA_HW_MR_INVALIDATE, 4);
CONSTANT(ANGARA_HW_WINDOW_SYNC, 5);
CONSTANT(ANGARA_HW_NOP, 6);
CONSTANT(ANGARA_HW_DOMAIN_INVALIDATE, 7);
CONSTANT(ANGARA_HW_MR_LIVE, 0);
CONSTANT(ANGARA_HW_MR_SUSPENDED, 1);
CONSTANT(ANGARA_HW_DIED, 0);
CONSTANT(ANGARA_HW_CLOSED, 1);
CONSTANT(ANGARA_HW_JOB_SHIFT, 56);
CONSTANT(ANGARA_HW_JOB_USER, 1);
CONSTANT(ANGARA_HW_JOB_LOCAL, 2);
CONSTANT(ANGARA_HW_JOB_GRANTED, 3);
CONSTANT(ANGARA_HW_OK, 0);
CONSTANT(ANGARA_HW_EINVAL, 1);
CONSTANT(ANGARA_HW_EBUSY, 2);
CONSTANT(ANGARA_HW_ESTALE, 3);
CONSTANT(ANGARA_HW_EFAULT, 4);
CONSTANT(ANGARA_HW_WINDOW_FANOUT, 512);
CONSTANT(ANGARA_HW_KEY_INDEX_BITS, 24);

STRUCT(angara_hw_control, 256);
FIELD(angara_hw_control, magic, 0, 8);
FIELD(angara_hw_control, version, 8, 4);
FIELD(angara_hw_control, caps, 12, 4);
FIELD(angara_hw_control, node, 16, 4);
FIELD(angara_hw_control, pe_max, 20, 4);
FIELD(angara_hw_control, mr_max, 24, 4);
FIELD(angara_hw_control, vectors, 28, 4);
FIELD(angara_hw_control, doorbell_offset, 32, 8);
FIELD(angara_hw_control, pio_offset, 40, 8);
FIELD(angara_hw_control, pio_bytes, 48, 4);
FIELD(angara_hw_control, marker_slots, 52, 4);
FIELD(angara_hw_control, put_max, 56, 4);
FIELD(angara_hw_control, window_pages_max, 60, 4);
FIELD(angara_hw_control, offload_max, 64, 8);
FIELD(angara_hw_control, reserved0, 72, 56);
FIELD(angara_hw_control, link, 128, 4);
FIELD(angara_hw_control, alive, 132, 4);
FIELD(angara_hw_control, reset_ack, 136, 4);
FIELD(angara_hw_control, dma_ack, 140, 4);
FIELD(angara_hw_control, admin_cons, 144, 4);
FIELD(angara_hw_control, key_mismatches, 148, 4);
FIELD(angara_hw_control, reserved1, 152, 40);
FIELD(angara_hw_control, reset_req, 192, 4);
FIELD(angara_hw_control, dma_req, 196, 4);
FIELD(angara_hw_control, admin_prod, 200, 4);
FIELD(angara_hw_control, admin_entries, 204, 4);
FIELD(angara_hw_control, admin_cmd, 208, 8);
FIELD(angara_hw_control, admin_resp, 216, 8);
FIELD(angara_hw_control, admin_quiet, 224, 4);
FIELD(angara_hw_control, reserved2, 228, 28);

STRUCT(angara_hw_pe, 80);
FIELD(angara_hw_pe, index, 0, 4);
FIELD(angara_hw_pe, generation, 4, 4);
FIELD(angara_hw_pe, domain, 8, 4);
FIELD(angara_hw_pe, vector, 12, 4);
FIELD(angara_hw_pe, cmd, 16, 8);
FIELD(angara_hw_pe, event, 24, 8);
FIELD(angara_hw_pe, status, 32, 8);
FIELD(angara_hw_pe, marker, 40, 8);
FIELD(angara_hw_pe, window, 48, 8);
FIELD(angara_hw_pe, cmd_entries, 56, 4);
FIELD(angara_hw_pe, event_entries, 60, 4);
FIELD(angara_hw_pe, marker_slots, 64, 4);
FIELD(angara_hw_pe, window_pages, 68, 4);
FIELD(angara_hw_pe, job_key, 72, 8);

STRUCT(angara_hw_cmd, 128);
FIELD(angara_hw_cmd, id, 0, 4);
FIELD(angara_hw_cmd, opcode, 4, 4);
FIELD(angara_hw_cmd, args, 8, 120);
FIELD(angara_hw_cmd, pe, 8, 80);

STRUCT(angara_hw_resp, 16);
FIELD(angara_hw_resp, valid, 0, 4);
FIELD(angara_hw_resp, id, 4, 4);
FIELD(angara_hw_resp, status, 8, 4);
FIELD(angara_hw_resp, generation, 12, 4);

STRUCT(angara_hw_mr, 64);
FIELD(angara_hw_mr, key, 0, 8);
FIELD(angara_hw_mr, length, 8, 8);
FIELD(angara_hw_mr, list, 16, 8);
FIELD(angara_hw_mr, first, 24, 8);
FIELD(angara_hw_mr, domain, 32, 4);
FIELD(angara_hw_mr, access, 36, 4);
FIELD(angara_hw_mr, npages, 40, 8);
FIELD(angara_hw_mr, page_shift, 48, 1);
FIELD(angara_hw_mr, levels, 49, 1);
FIELD(angara_hw_mr, state, 50, 1);
FIELD(angara_hw_mr, reserved0, 51, 5);
FIELD(angara_hw_mr, reserved1, 56, 8);
