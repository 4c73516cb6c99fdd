/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Programs of UCP over the transport. Endpoints are closed by force in the middle of what they do,
 * and made anew: everything ends, and afterwards all is as at the start. Addresses for other nodes
 * lead here.
 */
#include "ut.h"

#include "../common/data.h"
#include "../common/ucp_wait.h"

#include <dlfcn.h>
#include <sys/socket.h>

#define UP_SIZE    ((size_t)1 << 20)
#define UP_SECONDS 20.0 /* in which any request ends */

typedef struct {
    ut_t         *t;
    ucp_context_h context;
    ucp_worker_h  worker;
    ucp_ep_h      ep;
    char         *send, *recv;
    unsigned      errors;
} up_t;

static const size_t up_sizes[] = {8, 5000, 300000, UP_SIZE};

static void up_open(up_t *up, ut_t *t)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_worker_params_t wparams = {.field_mask  = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                   .thread_mode = UCS_THREAD_MODE_SINGLE};
    ucp_config_t       *config;

    memset(up, 0, sizeof(*up));
    up->t = t;
    setenv("UCX_TLS", "angara", 1);
    CHECK(dlopen("libuct_angara.so", RTLD_NOW) != NULL);
    CHECK_OK(ucp_config_read(NULL, NULL, &config));
    CHECK_OK(ucp_init(&params, config, &up->context));
    ucp_config_release(config);
    CHECK_OK(ucp_worker_create(up->context, &wparams, &up->worker));
    up->send = malloc(UP_SIZE);
    up->recv = malloc(UP_SIZE);
}

static void up_close(up_t *up)
{
    ucp_worker_destroy(up->worker);
    ucp_cleanup(up->context);
    free(up->send);
    free(up->recv);
}

static void up_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    (void)ep;
    (void)status;
    ++((up_t *)arg)->errors;
}

/* @a flags: of UCP's address. */
static void up_connect_by(up_t *up, unsigned flags)
{
    ucp_ep_params_t   params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                                              UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                              UCP_EP_PARAM_FIELD_ERR_HANDLER,
                                .err_mode = UCP_ERR_HANDLING_MODE_PEER};
    ucp_worker_attr_t attr   = {.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS |
                                              UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS,
                                .address_flags = flags};
    char              buffer[2][2048];

    CHECK_OK(ucp_worker_query(up->worker, &attr));
    CHECK(attr.address_length <= sizeof(buffer[0]));
    memset(buffer, 0, sizeof(buffer));
    memcpy(buffer[0], attr.address, attr.address_length);
    ucp_worker_release_address(up->worker, attr.address);
    ut_send(up->t, 1 - up->t->rank, buffer[0], sizeof(buffer[0]));
    ut_recv(up->t, 1 - up->t->rank, buffer[1], sizeof(buffer[1]));
    params.address         = (const ucp_address_t *)buffer[1];
    params.err_handler.cb  = up_error;
    params.err_handler.arg = up;
    up->errors             = 0;
    CHECK_OK(ucp_ep_create(up->worker, &params, &up->ep));
}

static void up_connect(up_t *up)
{
    up_connect_by(up, 0);
}

static void up_sent(void *request, ucs_status_t status, void *arg)
{
    (void)request;
    (void)status;
    (void)arg;
}

static void up_received(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info,
                        void *arg)
{
    (void)request;
    (void)status;
    (void)info;
    (void)arg;
}

static ucs_status_ptr_t up_send(up_t *up, size_t size, uint64_t tag)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK,
                                 .cb           = {.send = up_sent}};

    return ucp_tag_send_nbx(up->ep, up->send, size, tag, &param);
}

static ucs_status_ptr_t up_recv(up_t *up, size_t size, uint64_t tag)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK,
                                 .cb           = {.recv = up_received}};

    return ucp_tag_recv_nbx(up->worker, up->recv, size, tag, UINT64_MAX, &param);
}

static ucs_status_t up_end(up_t *up, ucs_status_ptr_t request, const char *what)
{
    ucs_status_t status = ucp_wait(up->worker, request, UP_SECONDS);

    if (status == UCS_INPROGRESS) {
        rank_fail(__FILE__, __LINE__, "%s never ends", what);
    }
    return status;
}

/* Wait for the other's word with progress. */
static void up_wait_word(up_t *up)
{
    double end = now_seconds() + UP_SECONDS;

    while (recv(up->t->fd[1 - up->t->rank], &(char){0}, 1, MSG_DONTWAIT | MSG_PEEK) <= 0) {
        ucp_worker_progress(up->worker);
        CHECK(now_seconds() < end);
    }
    ut_recv_word(up->t, 1 - up->t->rank);
}

static void up_barrier(up_t *up)
{
    ut_send_word(up->t, 1 - up->t->rank, 0);
    up_wait_word(up);
}

static void up_exchange(up_t *up, uint64_t key)
{
    ucs_status_ptr_t send, recv;
    unsigned         i;

    for (i = 0; i < sizeof(up_sizes) / sizeof(up_sizes[0]); ++i) {
        data_fill(up->send, up_sizes[i], key + i);
        memset(up->recv, 0, up_sizes[i]);
        recv = up_recv(up, up_sizes[i], key + i);
        send = up_send(up, up_sizes[i], key + i);
        CHECK_OK(up_end(up, send, "a send"));
        CHECK_OK(up_end(up, recv, "a receive"));
        CHECK_EQ(data_difference(up->recv, up_sizes[i], key + i), up_sizes[i]);
        up_barrier(up);
    }
}

static void up_force_close(up_t *up)
{
    ucs_status_t status = ucp_wait_close(up->worker, up->ep, 1, UP_SECONDS);

    CHECK(status != UCS_INPROGRESS);
}

static void up_end_well(up_t *up)
{
    CHECK_EQ(up->errors, 0);
    CHECK_OK(ucp_wait_close(up->worker, up->ep, 0, UP_SECONDS));
    up_barrier(up);
    up_close(up);
}

/*
 * Rank 0 closes by force while its message waits at rank 1, which then fetches what isn't there any
 * more. Both make new endpoints.
 */
static void force_close(ut_t *t)
{
    unsigned            rounds = ut_rounds(20), round;
    ucp_tag_recv_info_t info;
    ucp_tag_message_h   message;
    ucs_status_ptr_t    request;
    double              end;
    up_t                up;

    up_open(&up, t);
    for (round = 0; round < rounds; ++round) {
        up_connect(&up);
        up_exchange(&up, 100 * round);
        if (t->rank == 0) {
            request = up_send(&up, UP_SIZE, 77);
            CHECK(UCS_PTR_IS_PTR(request));
            up_wait_word(&up); /* it is known to rank 1 */
            up_force_close(&up);
            CHECK(up_end(&up, request, "the send of a closed endpoint") != UCS_OK);
            ut_send_word(t, 1, 0);
            up_wait_word(&up);
        } else {
            end = now_seconds() + UP_SECONDS;
            do {
                ucp_worker_progress(up.worker);
                message = ucp_tag_probe_nb(up.worker, 77, UINT64_MAX, 1, &info);
                CHECK(now_seconds() < end);
            } while (message == NULL);
            ut_send_word(t, 0, 0);
            up_wait_word(&up);
            request = ucp_tag_msg_recv_nbx(
                up.worker, up.recv, UP_SIZE, message,
                &(ucp_request_param_t){.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK,
                                       .cb           = {.recv = up_received}});
            CHECK(up_end(&up, request, "a receive of what is gone") != UCS_OK);
            up_force_close(&up);
            ut_send_word(t, 0, 0);
        }
    }
    up_connect(&up);
    up_exchange(&up, 100 * rounds);
    up_end_well(&up);
}

static void test_force_close(void **state)
{
    (void)state;
    ut_run(2, force_close, NULL);
}

/* What Open MPI publishes for ranks on other nodes. */
static void net_only(ut_t *t)
{
    up_t up;

    up_open(&up, t);
    up_connect_by(&up, UCP_WORKER_ADDRESS_FLAG_NET_ONLY);
    up_exchange(&up, 0);
    up_end_well(&up);
}

static void test_net_only(void **state)
{
    (void)state;
    ut_run(2, net_only, NULL);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_force_close),
        cmocka_unit_test(test_net_only),
    };

    return ut_main(argc, argv, "ucp", tests, sizeof(tests) / sizeof(tests[0]));
}
