/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A short record that wakes a process: the receiver sleeps in poll() until there is an event.
 */
#include "two.h"

#include <poll.h>

int main(void)
{
    static const char record[] = "wake up";
    angara_status_t   status;
    angara_event_t    event;
    struct pollfd     wait = {.events = POLLIN};
    two_t             two;

    two_start(&two, 0);
    if (two.number == 0) {
        usleep(100000); /* the other one sleeps by now, most likely: it needn't */
        MUST(angara_notify(two.peer, record, sizeof(record)));
    } else {
        MUST(angara_pe_event_fd(two.pe, &wait.fd));
        while (angara_pe_event_poll(two.pe, &event) != ANGARA_OK) {
            status = angara_pe_event_arm(two.pe);
            if (status == ANGARA_OK) {
                poll(&wait, 1, -1);
                angara_pe_event_disarm(two.pe); /* sees, too, whether a peer has died */
            } else if (status == ANGARA_INPROGRESS) {
                angara_pe_progress(two.pe); /* something came, or has to go on */
            } else {
                MUST(status);
            }
        }
        if (event.type != ANGARA_EVENT_NOTIFY) {
            fprintf(stderr, "the other process has ended\n");
            return EXIT_FAILURE;
        }
        printf("received: %.*s\n", (int)event.len, (char *)event.data);
    }
    two_end(&two);
    return 0;
}
