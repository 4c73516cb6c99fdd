/* SPDX-License-Identifier: GPL-2.0-only */
/* The emulated NIC, for the table of devices in pci.c. */
#ifndef ANGARA_EMU_IDS_H
#define ANGARA_EMU_IDS_H

#include <linux/pci.h>

#include "../hw.h"

extern const struct angara_hw_ops angara_emu_ops;

/* That of QEMU's ivshmem devices. */
#define ANGARA_EMU_ID	\
	PCI_DEVICE(0x1af4, 0x1110), .driver_data = (kernel_ulong_t)&angara_emu_ops

#endif
