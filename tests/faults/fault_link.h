/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The two processes of a fault test and the socket between them: how the second one is started,
 * what the two tell each other, how the first learns of the other's end. Nothing here knows the
 * library.
 */
#ifndef ANGARA_TESTS_FAULT_LINK_H
#define ANGARA_TESTS_FAULT_LINK_H

#include <stddef.h>
#include <sys/types.h>

/** Called again and again while a process waits for the other's words, if set: for progress. */
extern void (*fault_link_idle)(void);

/** Fork with a link between the two. @return as fork(), but not on an error. */
pid_t fault_link_fork(void);

/** The link's descriptor, to pass to a program that the child executes. */
int fault_link_fd(void);

/** Use the link that this program was given. */
void fault_link_join(int fd);

/** Close the link and wait for the end. @return exit status, or 128 plus the signal. */
int fault_link_wait(pid_t pid);

/** Where the other process has gone these end with FAULT_GONE. */
void fault_tell(const void *data, size_t length);
void fault_hear(void *data, size_t length);

/** Both processes have come here. */
void fault_barrier(void);

#endif
