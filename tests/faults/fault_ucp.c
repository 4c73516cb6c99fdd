/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two processes that use UCP directly: endpoints made and closed again and again, and peers that
 * die while the program handles errors itself. See usage().
 */
#define _GNU_SOURCE
#include "../common/ucp_wait.h"
#include "fault_common.h"
#include "fault_link.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_SIZE  300000
#define SECONDS   (15 * test_slow()) /* that any single wait may take */
#define SLACK_KIB 4096               /* that allocators and UCX's pools may keep */
#define RING_KIB  512                /* of a ring that messages went through */

static ucp_context_h context;
static ucp_worker_h  worker;
static ucp_ep_h      ep;
static char         *send_data, *recv_data;
static volatile int  failed; /* the error handler was called */
static ucs_status_t  failure;
static const size_t  sizes[] = {8, 5000, MAX_SIZE};

static void usage(void)
{
    puts("Usage: fault_ucp cycles|workers|kills N\n"
         "  cycles   N times an endpoint on each side: create, messages, close\n"
         "  workers  the same, and the second process makes a worker anew each time\n"
         "  kills    N processes die in the middle of messages; the first one handles the errors");
}

static void check(ucs_status_t status, const char *what)
{
    if (status != UCS_OK) {
        fault_end(FAULT_REFUSED, "%s: %s", what, ucs_status_string(status));
    }
}

/* The other may need this one's progress while this one waits. */
static void progress(void)
{
    if (worker != NULL) {
        ucp_worker_progress(worker);
    }
}

/* ---- UCP ------------------------------------------------------------------------------------- */

static void open_context(void)
{
    ucp_params_t  params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_config_t *config;

    check(ucp_config_read(NULL, NULL, &config), "ucp_config_read");
    check(ucp_init(&params, config, &context), "ucp_init");
    ucp_config_release(config);
    send_data = malloc(MAX_SIZE);
    recv_data = malloc(MAX_SIZE);
    memset(recv_data, 0, MAX_SIZE);
}

static void open_worker(void)
{
    ucp_worker_params_t params = {.field_mask  = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SINGLE};

    check(ucp_worker_create(context, &params, &worker), "ucp_worker_create");
}

static void on_error(void *arg, ucp_ep_h bad_ep, ucs_status_t status)
{
    (void)arg;
    (void)bad_ep;
    failure = status;
    failed  = 1;
}

static void open_ep(int handles_errors)
{
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    ucp_address_t  *mine;
    char            theirs[4096];
    size_t          length;

    check(ucp_worker_get_address(worker, &mine, &length), "ucp_worker_get_address");
    fault_tell(&length, sizeof(length));
    fault_tell(mine, length);
    ucp_worker_release_address(worker, mine);
    fault_hear(&length, sizeof(length));
    if (length > sizeof(theirs)) {
        fault_end(FAULT_HARNESS, "the address is too long");
    }
    fault_hear(theirs, length);

    params.address = (const ucp_address_t *)theirs;
    if (handles_errors) {
        params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
        params.err_mode       = UCP_ERR_HANDLING_MODE_PEER;
        params.err_handler.cb = on_error;
    }
    failed = 0;
    check(ucp_ep_create(worker, &params, &ep), "ucp_ep_create");
}

static void noop_send(void *request, ucs_status_t status, void *arg)
{
    (void)request;
    (void)status;
    (void)arg;
}

static void noop_recv(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info,
                      void *arg)
{
    (void)request;
    (void)status;
    (void)info;
    (void)arg;
}

/* @return status of what was waited for; what doesn't end, ends the program. */
static ucs_status_t ended(ucs_status_t status, const char *what)
{
    if (status == UCS_INPROGRESS) {
        fault_end(FAULT_LATE, "%s never ends", what);
    }
    return status;
}

static ucs_status_t finish(ucs_status_ptr_t request, const char *what)
{
    return ended(ucp_wait(worker, request, SECONDS), what);
}

static void close_ep(int force)
{
    ucs_status_t status = ended(ucp_wait_close(worker, ep, force, SECONDS), "closing an endpoint");

    if (!force) {
        check(status, "ucp_ep_close_nbx");
    }
}

static ucs_status_ptr_t post_send(size_t size)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK,
                                 .cb           = {.send = noop_send}};

    return ucp_tag_send_nbx(ep, send_data, size, 1, &param);
}

static ucs_status_ptr_t post_recv(size_t size)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK,
                                 .cb           = {.recv = noop_recv}};

    return ucp_tag_recv_nbx(worker, recv_data, size, 1, UINT64_MAX, &param);
}

static void exchange(uint64_t key)
{
    ucs_status_ptr_t send, recv;

    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); ++i) {
        data_fill(send_data, sizes[i], key + i);
        recv = post_recv(sizes[i]);
        send = post_send(sizes[i]);
        check(finish(send, "a send"), "ucp_tag_send_nbx");
        check(finish(recv, "a receive"), "ucp_tag_recv_nbx");
        if (data_difference(recv_data, sizes[i], key + i) != sizes[i]) {
            fault_end(FAULT_WRONG, "wrong data, %zu bytes", sizes[i]);
        }
        fault_barrier(); /* the other's next message must not overtake */
    }
}

/* ---- cycles ---------------------------------------------------------------------------------- */

static fault_usage_t before;

/*
 * `clients` workers of others came and went meanwhile: UCP 1.13 keeps an endpoint of its own for
 * each that never ends, so mappings and memory may grow with them as over UCX's posix, by the ring
 * that went to each above all; descriptors not.
 */
static void compare_usage(const char *who, unsigned clients)
{
    const fault_usage_t slack = {.maps         = 8 + 2 * clients,
                                 .resident_kib = SLACK_KIB + (RING_KIB + 64) * clients};
    double              end   = now_seconds() + 3;

    /* The last ones that left may not have been noticed yet. */
    while (worker != NULL && fault_count_fds() > before.fds && now_seconds() < end) {
        ucp_worker_progress(worker);
    }
    fault_usage_check(who, before, slack);
}

static void cycles(unsigned count, unsigned clients, const char *who)
{
    for (unsigned i = 0; i < count; ++i) {
        if (i == count / 3) {
            before = fault_usage();
        }
        open_ep(0);
        exchange(i);
        close_ep(0);
        fault_barrier();
    }
    compare_usage(who, clients);
}

static void second(const char *mode, unsigned count)
{
    open_context();
    if (!strcmp(mode, "workers")) {
        for (unsigned i = 0; i < count; ++i) {
            if (i == count / 3) {
                before = fault_usage();
            }
            open_worker();
            open_ep(0);
            exchange(i);
            close_ep(0);
            ucp_worker_destroy(worker);
            worker = NULL;
            fault_barrier();
        }
        compare_usage("who comes and goes", 0);
    } else {
        open_worker();
        cycles(count, 0, "the other");
        ucp_worker_destroy(worker);
    }
    ucp_cleanup(context);
    fault_end(FAULT_OK, "ok");
}

/* ---- deaths ---------------------------------------------------------------------------------- */

static void victim(unsigned us)
{
    ucs_status_ptr_t recv;

    open_context();
    open_worker();
    open_ep(1);
    exchange(1); /* UCP 1.13 asserts where an endpoint fails that isn't wired up yet */
    fault_kill_self_after(us);
    for (;;) {
        recv = post_recv(MAX_SIZE);
        finish(post_send(sizes[us % 3]), "a send");
        finish(recv, "a receive");
    }
}

/*
 * End a receive that the peer's death may have interrupted. UCP 1.13 can't end one whose first
 * fragments have come, over whatever transport: that one is left alone.
 */
static void end_receive(ucs_status_ptr_t recv)
{
    double end = now_seconds() + 0.2;

    if (!UCS_PTR_IS_PTR(recv)) {
        return;
    }
    if (ucp_request_check_status(recv) == UCS_INPROGRESS) {
        ucp_request_cancel(worker, recv);
    }
    while (ucp_request_check_status(recv) == UCS_INPROGRESS) {
        ucp_worker_progress(worker);
        if (now_seconds() > end) {
            return;
        }
    }
    ucp_request_free(recv);
}

/* Messages until the peer's death is told. Every send must end. */
static void survive(unsigned i)
{
    const size_t     size = sizes[i % 3];
    double           end  = now_seconds() + SECONDS;
    ucs_status_ptr_t recv;
    ucs_status_t     status = UCS_OK;

    open_ep(1);
    exchange(1); /* UCP 1.13 asserts where an endpoint fails that isn't wired up yet */
    while (!failed) {
        recv   = post_recv(MAX_SIZE);
        status = finish(post_send(size), "a send to a dying peer");
        /* Nothing may come any more: a receive that is still posted is not the endpoint's. */
        while (UCS_PTR_IS_PTR(recv) && ucp_request_check_status(recv) == UCS_INPROGRESS &&
               !failed) {
            ucp_worker_progress(worker);
            if (now_seconds() > end) {
                fault_end(FAULT_LATE, "the error handler was never called");
            }
        }
        end_receive(recv);
        ucp_worker_progress(worker);
    }
    printf("death %u: handler says %s, last send %s\n", i, ucs_status_string(failure),
           ucs_status_string(status));
    close_ep(1);
}

/* ---- the two processes ----------------------------------------------------------------------- */

static pid_t start(const char *mode, unsigned count, unsigned us)
{
    char  number[3][16];
    pid_t pid = fault_link_fork();

    if (pid == 0) {
        snprintf(number[0], sizeof(number[0]), "%u", count);
        snprintf(number[1], sizeof(number[1]), "%d", fault_link_fd());
        snprintf(number[2], sizeof(number[2]), "%u", us);
        /* UCX must be started after the fork. */
        execl("/proc/self/exe", "fault_ucp", mode, number[0], number[1], number[2], (char *)NULL);
        fault_end(FAULT_HARNESS, "exec failed");
    }
    return pid;
}

static void first_kills(unsigned count)
{
    for (unsigned i = 0; i < count; ++i) {
        pid_t pid = start("kills", 0, 1 + i * 1777 % 9000);

        if (i == count / 3) {
            before = fault_usage();
        }
        survive(i);
        if (fault_link_wait(pid) != 128 + 9) {
            fault_end(FAULT_HARNESS, "the victim wasn't killed");
        }
    }
    compare_usage("who survives", 0);
}

int main(int argc, char **argv)
{
    unsigned count;
    pid_t    pid;

    fault_watchdog(60);
    fault_link_idle = progress;
    if (argc == 5) {
        fault_link_join(atoi(argv[3]));
        if (!strcmp(argv[1], "kills")) {
            victim((unsigned)atoi(argv[4]));
        }
        second(argv[1], (unsigned)atoi(argv[2]));
    }
    if (argc != 3) {
        usage();
        return FAULT_HARNESS;
    }
    count = (unsigned)atoi(argv[2]);
    open_context();
    open_worker();
    if (!strcmp(argv[1], "kills")) {
        first_kills(count);
    } else {
        pid = start(argv[1], count, 0);
        cycles(count, strcmp(argv[1], "workers") ? 0 : count, "who stays");
        if (fault_link_wait(pid) != FAULT_OK) {
            fault_end(FAULT_WRONG, "the second process failed");
        }
    }
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
    fault_end(FAULT_OK, "ok");
}
