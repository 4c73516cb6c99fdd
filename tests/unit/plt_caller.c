/* SPDX-License-Identifier: BSD-3-Clause */
/* A library that calls a function of another one, for test_entry.c. */
#include <unistd.h>

__attribute__((visibility("default"))) int entry_call(void);

int entry_call(void)
{
    return getpid();
}
