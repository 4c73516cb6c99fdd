/* SPDX-License-Identifier: BSD-3-Clause */
/* Statuses of the library as UCX's. */
#include "base/status.h"

ucs_status_t uct_angara_status(angara_status_t status)
{
    switch (status) {
    case ANGARA_OK:
        return UCS_OK;
    case ANGARA_INPROGRESS:
        return UCS_INPROGRESS;
    case ANGARA_ERR_NO_MEMORY:
        return UCS_ERR_NO_MEMORY;
    case ANGARA_ERR_NO_RESOURCE:
        return UCS_ERR_NO_RESOURCE;
    case ANGARA_ERR_NO_DEVICE:
        return UCS_ERR_NO_DEVICE;
    case ANGARA_ERR_UNREACHABLE:
    case ANGARA_ERR_VERSION:
        return UCS_ERR_UNREACHABLE;
    case ANGARA_ERR_KEY:
    case ANGARA_ERR_BOUNDS:
    case ANGARA_ERR_RIGHTS:
        return UCS_ERR_INVALID_ADDR;
    case ANGARA_ERR_PEER_DEAD:
        return UCS_ERR_ENDPOINT_TIMEOUT;
    case ANGARA_ERR_PAIR:
        return UCS_ERR_CONNECTION_RESET;
    case ANGARA_ERR_UNSUPPORTED:
        return UCS_ERR_UNSUPPORTED;
    case ANGARA_ERR_LIMIT:
        return UCS_ERR_EXCEEDS_LIMIT;
    case ANGARA_ERR_INVALID:
        return UCS_ERR_INVALID_PARAM;
    case ANGARA_ERR_BUSY:
        return UCS_ERR_BUSY;
    default:
        return UCS_ERR_IO_ERROR;
    }
}
