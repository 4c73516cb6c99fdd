/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A UCP program: one tagged message from a parent to its child. Nothing here is about Angara, which
 * UCX takes where UCX_TLS says so:
 *
 *     eval "$(angara_env --preload)"; UCX_TLS=angara,self ./ucp_message
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#define TAG 7

static ucp_worker_h worker;

static void must(ucs_status_t status)
{
    if (status != UCS_OK) {
        fprintf(stderr, "%s\n", ucs_status_string(status));
        exit(EXIT_FAILURE);
    }
}

/* Wait for what a call has started: NULL if it has ended already. */
static void wait_for(void *request)
{
    ucs_status_t status = UCS_PTR_IS_ERR(request) ? UCS_PTR_STATUS(request) : UCS_OK;

    if (UCS_PTR_IS_PTR(request)) {
        while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS) {
            ucp_worker_progress(worker);
        }
        ucp_request_free(request);
    }
    must(status);
}

/* Send the own worker's address, and receive the other's. */
static ucp_ep_h connect_to(int socket)
{
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    ucp_address_t  *mine;
    size_t          size, their_size;
    void           *theirs;
    ucp_ep_h        ep;

    must(ucp_worker_get_address(worker, &mine, &size));
    if (write(socket, &size, sizeof(size)) != sizeof(size) ||
        write(socket, mine, size) != (ssize_t)size ||
        recv(socket, &their_size, sizeof(their_size), MSG_WAITALL) != sizeof(their_size) ||
        (theirs = malloc(their_size)) == NULL ||
        recv(socket, theirs, their_size, MSG_WAITALL) != (ssize_t)their_size) {
        must(UCS_ERR_IO_ERROR);
    }
    params.address = theirs;
    must(ucp_ep_create(worker, &params, &ep));
    ucp_worker_release_address(worker, mine);
    free(theirs);
    return ep;
}

/*
 * Wait for the other process. Meanwhile the worker makes progress: what the other one does may need
 * that.
 */
static void meet(int socket)
{
    char byte = 0;

    if (send(socket, &byte, 1, MSG_NOSIGNAL) != 1) {
        must(UCS_ERR_IO_ERROR);
    }
    while (recv(socket, &byte, 1, MSG_DONTWAIT) != 1) {
        if (errno != EAGAIN) {
            must(UCS_ERR_IO_ERROR);
        }
        ucp_worker_progress(worker);
    }
}

int main(void)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_worker_params_t worker_params = {0};
    ucp_request_param_t none = {0}, flush = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS};
    ucp_context_h       context;
    ucp_ep_h            ep;
    char                text[64] = "a message by UCP";
    int                 sockets[2], end, status = 0;
    pid_t               child;

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0 || (child = fork()) < 0) {
        perror("two processes");
        return EXIT_FAILURE;
    }
    must(ucp_init(&params, NULL, &context));
    must(ucp_worker_create(context, &worker_params, &worker));
    end = sockets[child == 0];
    close(sockets[child != 0]);
    ep = connect_to(end);
    if (child != 0) {
        wait_for(ucp_tag_send_nbx(ep, text, sizeof(text), TAG, &none));
    } else {
        memset(text, 0, sizeof(text));
        wait_for(ucp_tag_recv_nbx(worker, text, sizeof(text), TAG, (ucp_tag_t)-1, &none));
        printf("received: %s\n", text);
    }
    meet(end);
    wait_for(ucp_ep_close_nbx(ep, &flush));
    meet(end);
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
    if (child != 0 && waitpid(child, &status, 0) != child) {
        status = EXIT_FAILURE;
    }
    return status != 0;
}
