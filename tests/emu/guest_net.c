/* SPDX-License-Identifier: BSD-3-Clause */
/* See guest_net.h. */
#include "guest_net.h"

#include <stddef.h>

static const char *chaos_seed; /* NULL: off */

void net_options(int argc, char **argv)
{
    chaos_seed = argc > 1 ? argv[1] : NULL;
}

int net_is_chaotic(void)
{
    return chaos_seed != NULL;
}

void net_start(net_t *net, const char *option)
{
    const char *options[8] = {"--timeout", "60000"};
    unsigned    count      = 2;

    if (chaos_seed != NULL) {
        options[count++] = "--chaos";
        options[count++] = chaos_seed;
    }
    if (option != NULL) {
        options[count++] = option;
    }
    fabric_start(&net->fabric, 2, options);
    for (unsigned i = 0; i < 2; ++i) {
        guest_connect(&net->guests[i], &net->fabric, i);
        guest_bind(&net->guests[i]);
    }
    pe_create(&net->a, &net->guests[0], 3, DOM);
    pe_create(&net->b, &net->guests[1], 3, DOM);
    pe_create(&net->c, &net->guests[0], 9, DOM + 1);
    pe_pair(&net->a, FAR, &net->b);
    pe_pair(&net->a, NEAR, &net->c);
    pe_pair(&net->b, 0, &net->a);
}

void net_stop(net_t *net)
{
    guest_disconnect(&net->guests[0]);
    guest_disconnect(&net->guests[1]);
    fabric_stop(&net->fabric);
}
