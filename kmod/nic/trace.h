/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tracepoints, /sys/kernel/tracing/events/angara. No addresses, and of a key only its index: the
 * rest of it is a secret.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM angara

#if !defined(ANGARA_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define ANGARA_TRACE_H

#include <linux/tracepoint.h>

#include "nic.h"

TRACE_DEFINE_ENUM(ANGARA_CMD_SETUP);
TRACE_DEFINE_ENUM(ANGARA_CMD_PE_CREATE);
TRACE_DEFINE_ENUM(ANGARA_CMD_PE_RESET);
TRACE_DEFINE_ENUM(ANGARA_CMD_MR_INVALIDATE);
TRACE_DEFINE_ENUM(ANGARA_CMD_WINDOW_SYNC);
TRACE_DEFINE_ENUM(ANGARA_CMD_DOMAIN_INVALIDATE);

#define angara_show_kind(kind)					\
	__print_symbolic(kind,					\
			 { ANGARA_CMD_SETUP, "setup" },		\
			 { ANGARA_CMD_PE_CREATE, "pe_create" },	\
			 { ANGARA_CMD_PE_RESET, "pe_reset" },	\
			 { ANGARA_CMD_MR_INVALIDATE, "mr_invalidate" },	\
			 { ANGARA_CMD_WINDOW_SYNC, "window_sync" },	\
			 { ANGARA_CMD_DOMAIN_INVALIDATE, "domain_invalidate" })

TRACE_EVENT(angara_admin_done,
	TP_PROTO(const struct angara_device *adev, u32 kind, u32 status, u64 ns),
	TP_ARGS(adev, kind, status, ns),
	TP_STRUCT__entry(
		__field(dev_t, devt)
		__field(u32, kind)
		__field(u32, status)
		__field(u64, ns)
	),
	TP_fast_assign(
		__entry->devt = adev->dev.devt;
		__entry->kind = kind;
		__entry->status = status;
		__entry->ns = ns;
	),
	TP_printk("minor=%u command=%s status=%u ns=%llu", MINOR(__entry->devt),
		  angara_show_kind(__entry->kind), __entry->status, __entry->ns)
);

TRACE_EVENT(angara_admin_stale,
	TP_PROTO(const struct angara_device *adev, u32 id, u32 generation),
	TP_ARGS(adev, id, generation),
	TP_STRUCT__entry(
		__field(dev_t, devt)
		__field(u32, id)
		__field(u32, generation)
	),
	TP_fast_assign(
		__entry->devt = adev->dev.devt;
		__entry->id = id;
		__entry->generation = generation;
	),
	TP_printk("minor=%u id=%u generation=%u", MINOR(__entry->devt), __entry->id,
		  __entry->generation)
);

TRACE_EVENT(angara_dma_off,
	TP_PROTO(const struct angara_device *adev, int ret),
	TP_ARGS(adev, ret),
	TP_STRUCT__entry(
		__field(dev_t, devt)
		__field(int, ret)
	),
	TP_fast_assign(
		__entry->devt = adev->dev.devt;
		__entry->ret = ret;
	),
	TP_printk("minor=%u ret=%d", MINOR(__entry->devt), __entry->ret)
);

DECLARE_EVENT_CLASS(angara_pe,
	TP_PROTO(const struct angara_pe *pe, u64 value),
	TP_ARGS(pe, value),
	TP_STRUCT__entry(
		__field(dev_t, devt)
		__field(u32, domain)
		__field(u32, index)
		__field(u32, generation)
		__field(u64, value)
	),
	TP_fast_assign(
		__entry->devt = pe->adev->dev.devt;
		__entry->domain = pe->dom->number;
		__entry->index = pe->index;
		__entry->generation = pe->generation;
		__entry->value = value;
	),
	TP_printk("minor=%u domain=%u pe=%u generation=%u value=%llu", MINOR(__entry->devt),
		  __entry->domain, __entry->index, __entry->generation, __entry->value)
);

/* value: bytes of the window */
DEFINE_EVENT(angara_pe, angara_pe_create,
	TP_PROTO(const struct angara_pe *pe, u64 value),
	TP_ARGS(pe, value)
);

/* value: pages of the window that were committed */
DEFINE_EVENT(angara_pe, angara_pe_stop,
	TP_PROTO(const struct angara_pe *pe, u64 value),
	TP_ARGS(pe, value)
);

/* value: pages committed by the call */
DEFINE_EVENT(angara_pe, angara_window_commit,
	TP_PROTO(const struct angara_pe *pe, u64 value),
	TP_ARGS(pe, value)
);

/* value: interrupts of the PE so far */
DEFINE_EVENT(angara_pe, angara_pe_irq,
	TP_PROTO(const struct angara_pe *pe, u64 value),
	TP_ARGS(pe, value)
);

TRACE_EVENT(angara_mr_create,
	TP_PROTO(const struct angara_domain *dom, u32 index, u64 length, u32 access, u32 page_shift,
		 u32 levels),
	TP_ARGS(dom, index, length, access, page_shift, levels),
	TP_STRUCT__entry(
		__field(dev_t, devt)
		__field(u32, domain)
		__field(u32, index)
		__field(u64, length)
		__field(u32, access)
		__field(u32, page_shift)
		__field(u32, levels)
	),
	TP_fast_assign(
		__entry->devt = dom->adev->dev.devt;
		__entry->domain = dom->number;
		__entry->index = index;
		__entry->length = length;
		__entry->access = access;
		__entry->page_shift = page_shift;
		__entry->levels = levels;
	),
	TP_printk("minor=%u domain=%u index=%u length=%llu access=%#x page_shift=%u levels=%u",
		  MINOR(__entry->devt), __entry->domain, __entry->index, __entry->length,
		  __entry->access, __entry->page_shift, __entry->levels)
);

TRACE_EVENT(angara_mr_destroy,
	TP_PROTO(const struct angara_domain *dom, u32 index, int ret),
	TP_ARGS(dom, index, ret),
	TP_STRUCT__entry(
		__field(dev_t, devt)
		__field(u32, domain)
		__field(u32, index)
		__field(int, ret)
	),
	TP_fast_assign(
		__entry->devt = dom->adev->dev.devt;
		__entry->domain = dom->number;
		__entry->index = index;
		__entry->ret = ret;
	),
	TP_printk("minor=%u domain=%u index=%u ret=%d", MINOR(__entry->devt), __entry->domain,
		  __entry->index, __entry->ret)
);

#endif /* ANGARA_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
