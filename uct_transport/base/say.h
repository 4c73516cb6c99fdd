/* SPDX-License-Identifier: BSD-3-Clause */
/* Errors that go into the library's log: of what there is no UCX for, and of a process that ends.
 */
#ifndef UCT_ANGARA_SAY_H
#define UCT_ANGARA_SAY_H

/** Say why the transport stays off, once for each node. */
void uct_angara_stays_off(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/**
 * The end of a process that can't go on, and can't tell UCX so: a line, without the traces of UCX's
 * and Open MPI's signal handlers.
 */
void uct_angara_abort(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

#endif
