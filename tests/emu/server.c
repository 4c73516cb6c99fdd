/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ivshmem server of a node: hands BAR 2 and the interrupts' eventfds to one QEMU at a time. The
 * protocol is one-way (QEMU docs/specs/ivshmem-spec: a stream of int64, some with a descriptor), so
 * nothing that a client sends is looked at; that it hangs up means that its VM is gone.
 *
 * Peers: 0 is the NIC (one vector: the doorbell hint), 1 is the VM.
 */
#define _GNU_SOURCE
#include "emu.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define PROTOCOL_VERSION 0
#define PEER_NIC         0
#define PEER_VM          1

int emu_listen(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int                fd;

    if (strlen(path) >= sizeof(address.sun_path)) {
        emu_say("%s: the path of a socket has at most %zu characters", path,
                sizeof(address.sun_path) - 1);
        return -1;
    }
    strcpy(address.sun_path, path);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    unlink(path);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        listen(fd, 4) != 0) {
        emu_say("can't listen at %s: %s", path, strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        return -1;
    }
    return fd;
}

int emu_server_open(emu_node_t *node)
{
    node->listen_fd = emu_listen(node->socket_path);
    return node->listen_fd < 0 ? -1 : 0;
}

void emu_server_close(emu_node_t *node)
{
    if (node->client_fd >= 0) {
        close(node->client_fd);
        node->client_fd = -1;
    }
    if (node->listen_fd >= 0) {
        close(node->listen_fd);
        unlink(node->socket_path);
        node->listen_fd = -1;
    }
}

/* The client's socket buffer holds all that is ever sent: a short write is a broken client. */
static int send_message(int client, int64_t value, int fd)
{
    union {
        struct cmsghdr head;
        char           bytes[CMSG_SPACE(sizeof(int))];
    } ancillary;
    struct iovec  iov = {&value, sizeof(value)};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

    if (fd >= 0) {
        memset(&ancillary, 0, sizeof(ancillary));
        msg.msg_control           = &ancillary;
        msg.msg_controllen        = sizeof(ancillary.bytes);
        ancillary.head.cmsg_level = SOL_SOCKET;
        ancillary.head.cmsg_type  = SCM_RIGHTS;
        ancillary.head.cmsg_len   = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(&ancillary.head), &fd, sizeof(fd));
    }
    return sendmsg(client, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof(value) ? 0 : -1;
}

static int greet(emu_node_t *node)
{
    int client = node->client_fd;

    if (send_message(client, PROTOCOL_VERSION, -1) != 0 || send_message(client, PEER_VM, -1) != 0 ||
        send_message(client, -1, node->bar_fd) != 0 ||
        send_message(client, PEER_NIC, node->doorbell_fd) != 0) {
        return -1;
    }
    for (unsigned i = 0; i < node->emu->config.vectors; ++i) {
        if (send_message(client, PEER_VM, node->irq_fds[i]) != 0) {
            return -1;
        }
    }
    return 0;
}

void emu_server_accept(emu_node_t *node)
{
    int      fd = accept4(node->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    uint64_t stale;

    if (fd < 0) {
        return;
    }
    if (node->client_fd >= 0) {
        emu_say("node %u: refused: another VM is connected", node->id);
        close(fd);
        return;
    }
    for (unsigned i = 0; i < node->emu->config.vectors; ++i) { /* interrupts for the VM before */
        while (read(node->irq_fds[i], &stale, sizeof(stale)) > 0) {
        }
    }
    if (emu_memory_map(node) != 0) {
        close(fd);
        return;
    }
    node->client_fd = fd;
    emu_node_attach(node);
    if (greet(node) != 0) {
        emu_say("node %u: the VM doesn't take its descriptors: %s", node->id, strerror(errno));
        emu_server_hangup(node);
    }
}

void emu_server_hangup(emu_node_t *node)
{
    char    bytes[64];
    ssize_t length = recv(node->client_fd, bytes, sizeof(bytes), MSG_DONTWAIT);

    if (length > 0 || (length < 0 && (errno == EAGAIN || errno == EINTR))) {
        return; /* chatter */
    }
    emu_say("node %u: its VM has gone", node->id);
    close(node->client_fd);
    node->client_fd = -1;
    emu_node_detach(node);
}
