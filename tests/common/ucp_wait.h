/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What programs of UCP wait for: the end of a request, and of an endpoint. Nothing waits forever.
 */
#ifndef ANGARA_TESTS_UCP_WAIT_H
#define ANGARA_TESTS_UCP_WAIT_H

#include "clock.h"

#include <ucp/api/ucp.h>

/*
 * Progress the worker until the request (or status) of an _nbx() call has ended.
 * @return its status; UCS_INPROGRESS if it hasn't ended after so many seconds: then it is kept.
 */
static inline ucs_status_t ucp_wait(ucp_worker_h worker, ucs_status_ptr_t request, double seconds)
{
    double       end = now_seconds() + seconds;
    ucs_status_t status;

    if (!UCS_PTR_IS_PTR(request)) {
        return UCS_PTR_STATUS(request);
    }
    while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS) {
        if (now_seconds() > end) {
            return UCS_INPROGRESS;
        }
        ucp_worker_progress(worker);
    }
    ucp_request_free(request);
    return status;
}

/* Close an endpoint; one that has failed, by force. @return as ucp_wait(). */
static inline ucs_status_t ucp_wait_close(ucp_worker_h worker, ucp_ep_h ep, int force,
                                          double seconds)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                 .flags        = force ? UCP_EP_CLOSE_FLAG_FORCE : 0};

    return ucp_wait(worker, ucp_ep_close_nbx(ep, &param), seconds);
}

#endif
