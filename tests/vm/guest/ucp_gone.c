/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program of UCP whose NIC goes away. It says "ready", goes on when it reads a line, which is to
 * come after the device has gone, and says "done" if it got through.
 *
 * Usage: ucp_gone idle|used
 *   idle  no endpoint uses the NIC
 *   used  one does: its error handler is called, and it can be closed
 */
#include "../../common/ucp_wait.h"

#include <dirent.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define SECONDS  (30 * test_slow())     /* more than any single wait takes */
#define ROUNDS   (10000u * test_slow()) /* more than anything here takes */
#define QUIET_MS 300

static ucp_context_h context;
static ucp_worker_h  worker;
static volatile int  failures;

static void check(int is_good, const char *what)
{
    if (!is_good) {
        printf("# failed: %s\n", what);
        exit(1);
    }
}

static void open_worker(void)
{
    ucp_params_t        params  = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                   .features   = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP};
    ucp_worker_params_t wparams = {.field_mask  = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                   .thread_mode = UCS_THREAD_MODE_SINGLE};

    check(ucp_init(&params, NULL, &context) == UCS_OK, "ucp_init");
    check(ucp_worker_create(context, &wparams, &worker) == UCS_OK, "ucp_worker_create");
}

/* Has the worker a PE, that is, an interface over the NIC? */
static int has_pe(void)
{
    DIR           *dir = opendir("/proc/self/fd");
    struct dirent *entry;
    char           to[64];
    int            found = 0;

    check(dir != NULL, "/proc/self/fd");
    while ((entry = readdir(dir)) != NULL) {
        ssize_t length = readlinkat(dirfd(dir), entry->d_name, to, sizeof(to) - 1);

        to[length > 0 ? length : 0] = '\0';
        found += strstr(to, "[angara_pe]") != NULL;
    }
    closedir(dir);
    return found;
}

static void on_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    (void)arg;
    (void)ep;
    (void)status;
    failures++;
}

/* To the worker itself. */
static ucp_ep_h open_ep(void)
{
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                                            UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                            UCP_EP_PARAM_FIELD_ERR_HANDLER,
                              .err_mode       = UCP_ERR_HANDLING_MODE_PEER,
                              .err_handler.cb = on_error};
    ucp_address_t  *address;
    ucp_ep_h        ep;
    size_t          length;

    check(ucp_worker_get_address(worker, &address, &length) == UCS_OK, "ucp_worker_get_address");
    params.address = address;
    check(ucp_ep_create(worker, &params, &ep) == UCS_OK, "ucp_ep_create");
    ucp_worker_release_address(worker, address);
    return ep;
}

static void message(ucp_ep_h ep)
{
    static const ucp_request_param_t none;
    char                             sent[] = "over the NIC", received[sizeof(sent)] = "";
    ucs_status_ptr_t                 request;

    request = ucp_tag_recv_nbx(worker, received, sizeof(received), 1, (ucp_tag_t)-1, &none);
    check(ucp_wait(worker, ucp_tag_send_nbx(ep, sent, sizeof(sent), 1, &none), SECONDS) == UCS_OK,
          "sent");
    check(ucp_wait(worker, request, SECONDS) == UCS_OK && strcmp(sent, received) == 0, "received");
}

static void close_failed(ucp_ep_h ep)
{
    for (unsigned i = 0; failures == 0; ++i) {
        check(i < ROUNDS, "the error handler is called");
        ucp_worker_progress(worker);
        usleep(1000);
    }
    check(ucp_wait_close(worker, ep, 1, SECONDS) != UCS_INPROGRESS, "closing ends");
}

static double cpu_seconds(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

/* The worker comes to rest, and so do UCX's own threads. */
static void sleep_well(void)
{
    struct pollfd pfd = {.events = POLLIN};
    ucs_status_t  status;
    double        before;

    check(ucp_worker_get_efd(worker, &pfd.fd) == UCS_OK, "ucp_worker_get_efd");
    for (unsigned i = 0;; ++i) {
        check(i < ROUNDS, "the worker's descriptor becomes silent");
        while (ucp_worker_progress(worker) != 0) {
        }
        status = ucp_worker_arm(worker);
        check(status == UCS_OK || status == UCS_ERR_BUSY, "ucp_worker_arm");
        if (status == UCS_OK && poll(&pfd, 1, QUIET_MS) == 0) {
            break;
        }
    }
    before = cpu_seconds();
    usleep(QUIET_MS * 1000);
    check(cpu_seconds() - before < QUIET_MS * 1e-3 / 4, "nobody spins");
}

int main(int argc, char **argv)
{
    ucp_ep_h ep = NULL;
    char     line[16];

    check(argc == 2 && (strcmp(argv[1], "idle") == 0 || strcmp(argv[1], "used") == 0),
          "usage: ucp_gone idle|used");
    open_worker();
    check(has_pe(), "the NIC is used");
    if (strcmp(argv[1], "used") == 0) {
        ep = open_ep();
        message(ep);
    }
    puts("ready");
    fflush(stdout);
    check(fgets(line, sizeof(line), stdin) != NULL, "a line to go on");
    if (ep != NULL) {
        close_failed(ep);
    }
    sleep_well();
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
    puts("done");
    return 0;
}
