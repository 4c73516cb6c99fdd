/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What registering memory costs on soft-RoCE, with the rights that kmod_regperf asks for. See
 * regperf.h.
 */
#include "regperf.h"
#include "rxe_user.h"

static struct ibv_pd *pd;

static void *reg(void *addr, size_t length)
{
    return ibv_reg_mr(pd, addr, length, RXE_ACCESS);
}

static int dereg(void *handle)
{
    return ibv_dereg_mr(handle);
}

int main(int argc, char **argv)
{
    static const regperf_device_t device = {reg, dereg};

    pd = ibv_alloc_pd(rxe_open());
    MUST(pd != NULL);
    return regperf(&device, argc, argv);
}
