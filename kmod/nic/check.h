/* SPDX-License-Identifier: GPL-2.0-only */
/* The check of what a device says that it has, for pci.c. */
#ifndef ANGARA_NIC_CHECK_H
#define ANGARA_NIC_CHECK_H

#include "hw.h"

/*
 * Is it sound? Numbers are such as the driver copes with; registers, doorbells and put rings are
 * whole pages of BARs that are memory, apart from each other; what users map is apart from the
 * pages of MSI-X, too.
 */
bool angara_limits_ok(struct pci_dev *pdev, const struct angara_hw_limits *limits);

#endif
