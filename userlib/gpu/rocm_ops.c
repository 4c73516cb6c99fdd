/* SPDX-License-Identifier: BSD-3-Clause */
/* ROCm's runtime for gpu.c. The uppermost of rocm*.c: all are behind this table, none uses it. */
#include "rocm.h"

const ang_gpu_ops_t ang_gpu_rocm = {
    .name       = "rocm",
    .nodes      = {"/dev/kfd", "/dev/dxg"}, /* WSL */
    .is_common  = 1,                        /* UCX's package of Debian 13 brings it */
    .kind       = ANGARA_MEM_ROCM,
    .managed    = ANGARA_MEM_ROCM_MANAGED,
    .library    = &rocm_library,
    .query      = rocm_query,
    .copy_start = rocm_copy_start,
    .copy_test  = rocm_copy_test,
    .is_pinned  = rocm_is_pinned,
    .share      = rocm_share,
    .map        = rocm_map,
    .unmap      = rocm_unmap,
    .is_idle    = rocm_is_idle,
    .dmabuf     = rocm_dmabuf,
};
