/* SPDX-License-Identifier: BSD-3-Clause */
/* Two nodes and three PEs that know each other: what most tests of the data path start from. */
#ifndef GUEST_NET_H
#define GUEST_NET_H

#include "guest.h"

#define DOM 7u
#define ALL ANGARA_ACCESS_ALL

enum { FAR, NEAR }; /* a's pairs: to b on the other node, to c on its own */

typedef struct {
    fabric_t fabric;
    guest_t  guests[2];
    pe_t     a, b, c; /* domains DOM, DOM and DOM + 1 */
} net_t;

/* The test's argument, if any, is the seed of chaos mode. */
void net_options(int argc, char **argv);
int  net_is_chaotic(void);
/* option: one more of the emulator's, or NULL. */
void net_start(net_t *net, const char *option);
void net_stop(net_t *net);

#endif
