/* SPDX-License-Identifier: BSD-3-Clause */
/* The emulator as a child process, and a VM with its driver. See guest.h. */
#define _GNU_SOURCE
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define ARGS_MAX 40

void wait_turn(wait_t *wait, const char *what)
{
    static const struct timespec nap = {0, 20000};
    struct timespec              now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    if (wait->deadline == 0) {
        wait->deadline = (uint64_t)now.tv_sec + GUEST_HANG_S;
    } else if ((uint64_t)now.tv_sec > wait->deadline) {
        fail_msg("waited too long for %s", what);
    }
    if (wait->turns++ < 100) {
        sched_yield();
    } else {
        nanosleep(&nap, NULL);
    }
}

/* ---- the emulator ---------------------------------------------------------------------------- */

static int connect_to(const char *dir, const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int                fd      = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s", dir, name);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

/* The emulator lies next to the test. */
static void emulator_path(char *path, size_t size)
{
    ssize_t length = readlink("/proc/self/exe", path, size - 1);

    assert_true(length > 0);
    path[length] = '\0';
    strcpy(strrchr(path, '/') + 1, "angara_emu");
}

/* log: "--log", "--replay" or NULL. */
static void run_child(const fabric_t *fabric, int out, const char *log)
{
    char        path[512], control[128], log_path[128], vms[GUEST_VMS][256];
    const char *args[ARGS_MAX] = {path, "--control", control};
    unsigned    count          = 3;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    emulator_path(path, sizeof(path) - 16);
    snprintf(control, sizeof(control), "%s/control", fabric->dir);
    snprintf(log_path, sizeof(log_path), "%s/log", fabric->dir);
    for (unsigned i = 0; i < fabric->vms; ++i) {
        snprintf(vms[i], sizeof(vms[i]), "%s/vm%u,%s/ram%u,%llu", fabric->dir, i, fabric->dir, i,
                 (unsigned long long)fabric->ram);
        args[count++] = "--vm";
        args[count++] = vms[i];
    }
    if (getenv("EMU_VERBOSE") == NULL) {
        args[count++] = "--quiet";
    }
    for (unsigned i = 0; i < 8 && fabric->options[i][0] != '\0'; ++i) {
        args[count++] = fabric->options[i];
    }
    if (log != NULL) {
        args[count++] = log;
        args[count++] = log_path;
    }
    dup2(out, STDOUT_FILENO);
    execv(path, (char *const *)(uintptr_t)args);
    _exit(127);
}

static pid_t start_child(const fabric_t *fabric, int out, const char *log)
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        run_child(fabric, out, log);
    }
    return pid;
}

void fabric_start(fabric_t *fabric, unsigned vms, const char *const *options)
{
    fabric_start_ram(fabric, vms, GUEST_RAM, options);
}

void fabric_start_ram(fabric_t *fabric, unsigned vms, uint64_t ram, const char *const *options)
{
    const char *tmp = getenv("TMPDIR");
    char        line[16];
    int         out[2];

    memset(fabric, 0, sizeof(*fabric));
    fabric->vms = vms;
    fabric->ram = ram;
    snprintf(fabric->dir, sizeof(fabric->dir), "%s/emu-XXXXXX",
             tmp != NULL && strlen(tmp) < 40 ? tmp : "/tmp");
    assert_non_null(mkdtemp(fabric->dir));
    for (unsigned i = 0; options != NULL && options[i] != NULL; ++i) {
        assert_true(i < 8 && strlen(options[i]) < sizeof(fabric->options[i]));
        strcpy(fabric->options[i], options[i]);
    }
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    fabric->pid = start_child(fabric, out[1], getenv("EMU_REPLAY") != NULL ? "--log" : NULL);
    close(out[1]);
    if (read(out[0], line, sizeof(line)) != 6 || memcmp(line, "ready\n", 6) != 0) {
        fail_msg("angara_emu doesn't start");
    }
    close(out[0]);
    fabric->control = connect_to(fabric->dir, "control");
}

static int exit_status(pid_t pid)
{
    int status;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

void fabric_quit(fabric_t *fabric)
{
    fabric_control(fabric, "quit");
    assert_int_equal(exit_status(fabric->pid), 0);
    close(fabric->control);
}

int fabric_replay(fabric_t *fabric)
{
    return exit_status(start_child(fabric, STDERR_FILENO, "--replay"));
}

void fabric_remove(fabric_t *fabric)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/log", fabric->dir);
    unlink(path);
    for (unsigned i = 0; i < fabric->vms; ++i) {
        snprintf(path, sizeof(path), "%s/ram%u", fabric->dir, i);
        unlink(path);
    }
    rmdir(fabric->dir);
}

void fabric_stop(fabric_t *fabric)
{
    fabric_quit(fabric);
    if (getenv("EMU_REPLAY") != NULL) {
        assert_int_equal(fabric_replay(fabric), 0);
    }
    fabric_remove(fabric);
}

static const char *control_line(fabric_t *fabric, const char *line)
{
    static char reply[8192];
    size_t      length = 0;

    assert_int_equal(send(fabric->control, line, strlen(line), MSG_NOSIGNAL), strlen(line));
    do {
        ssize_t part = recv(fabric->control, reply + length, sizeof(reply) - 1 - length, 0);

        if (part <= 0) {
            fail_msg("the emulator has gone (command %s)", line);
        }
        length += (size_t)part;
    } while (reply[length - 1] != '\n');
    reply[length - 1] = '\0';
    return reply;
}

const char *fabric_control(fabric_t *fabric, const char *format, ...)
{
    char        line[512];
    const char *reply;
    va_list     args;
    int         length;

    va_start(args, format);
    length = vsnprintf(line, sizeof(line) - 1, format, args);
    va_end(args);
    strcpy(line + length, "\n");
    reply = control_line(fabric, line);
    if (strncmp(reply, "ok", 2) != 0) {
        fail_msg("%s: %s", line, reply);
    }
    return reply[2] == ' ' ? reply + 3 : reply + 2;
}

void fabric_control_error(fabric_t *fabric, const char *command)
{
    char line[512];

    snprintf(line, sizeof(line), "%s\n", command);
    assert_memory_equal(control_line(fabric, line), "error", 5);
}

/* ---- a VM ------------------------------------------------------------------------------------ */

static int64_t receive(int socket, int *fd_p)
{
    union {
        struct cmsghdr head;
        char           bytes[CMSG_SPACE(sizeof(int))];
    } ancillary;
    int64_t       value;
    struct iovec  iov = {&value, sizeof(value)};
    struct msghdr msg = {.msg_iov        = &iov,
                         .msg_iovlen     = 1,
                         .msg_control    = &ancillary,
                         .msg_controllen = sizeof(ancillary)};

    *fd_p = -1;
    assert_int_equal(recvmsg(socket, &msg, MSG_CMSG_CLOEXEC | MSG_WAITALL), sizeof(value));
    if (CMSG_FIRSTHDR(&msg) != NULL) {
        memcpy(fd_p, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(int));
    }
    return value;
}

static void *map(int fd, size_t size)
{
    void *base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    assert_ptr_not_equal(base, MAP_FAILED);
    close(fd);
    return base;
}

void guest_connect(guest_t *guest, fabric_t *fabric, unsigned node)
{
    char        name[16], path[128];
    struct stat stat;
    int         fd;

    memset(guest, 0, sizeof(*guest));
    guest->fabric          = fabric;
    guest->node            = node;
    guest->next_generation = 1;
    guest->next_mr         = 1;
    guest->ram_used        = GUEST_PAGE; /* bus address 0 stays unused */
    snprintf(name, sizeof(name), "vm%u", node);
    guest->socket = connect_to(fabric->dir, name);

    assert_int_equal(receive(guest->socket, &fd), 0); /* protocol version */
    assert_int_equal(receive(guest->socket, &fd), 1); /* the VM's id */
    assert_int_equal(receive(guest->socket, &fd), -1);
    assert_int_equal(fstat(fd, &stat), 0);
    guest->bar_size = (size_t)stat.st_size;
    assert_int_equal(guest->bar_size & (guest->bar_size - 1), 0);
    guest->bar     = map(fd, guest->bar_size);
    guest->control = (void *)guest->bar;
    assert_int_equal(receive(guest->socket, &guest->bell_fd), 0); /* the NIC */
    assert_true(guest->bell_fd >= 0);

    assert_true(guest->control->vectors <= 64);
    for (guest->vectors = 0; guest->vectors < guest->control->vectors; ++guest->vectors) {
        assert_int_equal(receive(guest->socket, &guest->irq_fds[guest->vectors]), 1);
    }
    snprintf(path, sizeof(path), "%s/ram%u", fabric->dir, node);
    fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    guest->ram = map(fd, GUEST_RAM);
}

void guest_disconnect(guest_t *guest)
{
    for (unsigned i = 0; i < guest->vectors; ++i) {
        close(guest->irq_fds[i]);
    }
    for (unsigned i = 0; i < GUEST_MR_ENTRIES; ++i) {
        free(guest->pages[i]);
    }
    close(guest->bell_fd);
    close(guest->socket);
    munmap(guest->bar, guest->bar_size);
    munmap(guest->ram, GUEST_RAM);
    /* The emulator has noticed when the control socket says so. */
    WAIT_FOR(strncmp(fabric_control(guest->fabric, "state %u", guest->node), "vm=0", 4) == 0);
}

uint64_t guest_alloc(guest_t *guest, uint64_t size, uint64_t align)
{
    uint64_t at = (guest->ram_used + align - 1) / align * align;

    assert_true(at + size <= GUEST_RAM);
    guest->ram_used = at + size;
    memset(guest->ram + at, 0, size);
    return at;
}

void *guest_at(guest_t *guest, uint64_t bus)
{
    return guest->ram + bus;
}

static void ring_bell(guest_t *guest)
{
    static const uint64_t one = 1;

    assert_int_equal(write(guest->bell_fd, &one, sizeof(one)), sizeof(one));
}

static uint32_t load(const __le32 *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

void guest_reset(guest_t *guest)
{
    struct angara_hw_control *control = guest->control;

    guest->admin_prod = guest->admin_seen = 0;
    control->admin_prod                   = 0;
    if (guest->resp != NULL) {
        memset(guest->resp, 0, GUEST_ADMIN * sizeof(*guest->resp));
    }
    __atomic_store_n(&control->reset_req, control->reset_req + 1, __ATOMIC_RELEASE);
    ring_bell(guest);
    WAIT_FOR(load(&control->reset_ack) == control->reset_req);
    assert_int_equal(control->admin_cons, 0);
}

void guest_dma(guest_t *guest, int on)
{
    struct angara_hw_control *control = guest->control;
    uint32_t                  request = (control->dma_req & ~1u) + 2 + (on ? 1 : 0);

    __atomic_store_n(&control->dma_req, request, __ATOMIC_RELEASE);
    ring_bell(guest);
    WAIT_FOR(load(&control->dma_ack) == request);
}

void guest_bind(guest_t *guest)
{
    struct angara_hw_control *control = guest->control;
    uint64_t                  table;

    assert_true(control->magic == ANGARA_HW_MAGIC);
    assert_int_equal(control->version >> 16, ANGARA_HW_VERSION >> 16);
    assert_int_equal(control->node, guest->node);
    guest_reset(guest);
    control->admin_entries = GUEST_ADMIN;
    control->admin_cmd     = guest_alloc(guest, GUEST_ADMIN * sizeof(*guest->cmd), GUEST_PAGE);
    control->admin_resp    = guest_alloc(guest, GUEST_ADMIN * sizeof(*guest->resp), GUEST_PAGE);
    guest->cmd             = guest_at(guest, control->admin_cmd);
    guest->resp            = guest_at(guest, control->admin_resp);
    guest_dma(guest, 1);
    table      = guest_alloc(guest, GUEST_MR_ENTRIES * sizeof(*guest->mrs), GUEST_PAGE);
    guest->mrs = guest_at(guest, table);
    assert_int_equal(guest_admin_args(guest, ANGARA_HW_SETUP, table, GUEST_MR_ENTRIES),
                     ANGARA_HW_OK);
}

/* ---- the admin queue ------------------------------------------------------------------------- */

uint32_t guest_admin_post(guest_t *guest, struct angara_hw_cmd *cmd)
{
    cmd->id                                     = 0x1000 + guest->admin_prod;
    guest->cmd[guest->admin_prod % GUEST_ADMIN] = *cmd;
    __atomic_store_n(&guest->control->admin_prod, ++guest->admin_prod, __ATOMIC_RELEASE);
    ring_bell(guest);
    return cmd->id;
}

struct angara_hw_resp guest_admin_take(guest_t *guest)
{
    struct angara_hw_resp *resp = &guest->resp[guest->admin_seen % GUEST_ADMIN];

    WAIT_FOR(load(&resp->valid) == guest->admin_seen + 1);
    guest->admin_seen++;
    return *resp;
}

uint32_t guest_admin(guest_t *guest, struct angara_hw_cmd *cmd)
{
    uint32_t              id   = guest_admin_post(guest, cmd);
    struct angara_hw_resp resp = guest_admin_take(guest);

    assert_int_equal(resp.id, id);
    return resp.status;
}

uint32_t guest_admin_args(guest_t *guest, uint32_t opcode, uint64_t arg0, uint64_t arg1)
{
    struct angara_hw_cmd cmd = {.opcode = opcode, .args = {arg0, arg1}};

    return guest_admin(guest, &cmd);
}

int guest_irq(guest_t *guest, unsigned vector)
{
    uint64_t count;

    return read(guest->irq_fds[vector], &count, sizeof(count)) == (ssize_t)sizeof(count);
}

void guest_irq_wait(guest_t *guest, unsigned vector)
{
    WAIT_FOR(guest_irq(guest, vector));
}
