/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernel.h"
