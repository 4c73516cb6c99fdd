/* SPDX-License-Identifier: GPL-2.0-only */
/* The PCI driver, for main.c. */
#ifndef ANGARA_NIC_PCI_H
#define ANGARA_NIC_PCI_H

int angara_pci_register(void);
void angara_pci_unregister(void);

#endif
