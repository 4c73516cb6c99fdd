/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What an operation costs, counted instead of timed: the instructions that the process executes and
 * its system calls. The operation is performed in a child that is stepped through one instruction
 * at a time. Meanwhile devices work at full speed, so that the child finds at once what it waits
 * for.
 */
#ifndef OPCOST_H
#define OPCOST_H

#include <stddef.h>

/* Sets things up, in the child. */
typedef void (*opcost_open_t)(void);
/* Writes so many bytes to remote memory and returns when they are there. Ends the process on error.
 */
typedef void (*opcost_write_t)(size_t size);

/* Arguments of the program: calls | instructions. Prints lines `write SIZE COUNT UNIT`; of several
 * writes the median. @return exit status */
int opcost(int argc, char **argv, opcost_open_t open, opcost_write_t write);

#endif
