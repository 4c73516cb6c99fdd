/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What registering memory costs through the kernel modules' bare calls. See regperf.h.
 */
#include "kmod_user.h"
#include "regperf.h"

#include <fcntl.h>

#define ACCESS                                                                  \
    (ANGARA_MR_REMOTE_READ | ANGARA_MR_REMOTE_WRITE | ANGARA_MR_REMOTE_ATOMIC | \
     ANGARA_MR_LOCAL_WRITE)

static int domain, memreg;

/* Never 0 nor NULL: one more than the handle. */
static void *reg(void *addr, size_t length)
{
    struct angara_ioc_mr_reg arg;

    return mr_reg(memreg, domain, addr, length, ACCESS, &arg) == 0 ?
               (void *)((uintptr_t)arg.handle + 1) :
               NULL;
}

static int dereg(void *handle)
{
    return mr_dereg(memreg, (uint32_t)((uintptr_t)handle - 1));
}

int main(int argc, char **argv)
{
    static const regperf_device_t device = {reg, dereg};

    domain = domain_open();
    memreg = open("/dev/angara_memreg", O_RDWR | O_CLOEXEC);
    MUST(domain >= 0 && memreg >= 0);
    return regperf(&device, argc, argv);
}
