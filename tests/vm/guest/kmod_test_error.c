/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Group of kmod_test: errors of PCI. The handlers are called by kmod/hooks, as the PCI core would;
 * and by the core itself: after errors of the port above, which QEMU raises, and at a reset.
 */
#include "kmod_test.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NODE      "/sys/class/angara/angara0/"
#define PCI_ERROR "/sys/module/angara_hooks/parameters/pci_error"

/* pci_ers_result_t */
enum { CAN_RECOVER = 2, NEED_RESET = 3, DISCONNECT = 4, RECOVERED = 5 };

/* A user of the device: a PE, a region, a thread that sleeps. */
typedef struct {
    int                      domain, memreg;
    pe_t                     pe;
    char                    *pages;
    struct angara_ioc_mr_reg reg;
    long long                pinned; /* before all */
    pthread_t                sleeper;
    short                    events; /* what has woken it */
} user_t;

static const char *slot; /* the function's address */

static void state_read(char line[64])
{
    FILE *file = fopen(NODE "state", "re");

    MUST(file != NULL && fgets(line, 64, file) != NULL);
    line[strcspn(line, "\n")] = 0;
    fclose(file);
}

static int state_reads(const char *state)
{
    char line[64];

    state_read(line);
    return strcmp(line, state) == 0;
}

/* The same, and tells what it is instead. */
static int state_is(const char *state)
{
    char line[64];

    state_read(line);
    if (strcmp(line, state) != 0) {
        printf("# state: %s\n", line);
    }
    return strcmp(line, state) == 0;
}

/* @return what the handler says */
static int error_inject(const char *what)
{
    char text[100];

    snprintf(text, sizeof(text), "%s %s", slot, what);
    file_write(PCI_ERROR, text);
    return (int)value_read(PCI_ERROR, NULL);
}

static void *sleep_run(void *arg)
{
    user_t       *user    = arg;
    struct pollfd poll_fd = {.fd = user->pe.fd, .events = POLLIN};

    user->events = poll(&poll_fd, 1, 60000) == 1 ? poll_fd.revents : 0;
    return NULL;
}

static void user_start(user_t *user)
{
    user->domain = domain_open();
    user->memreg = memreg_open();
    user->pinned = pinned_pages();
    user->pages  = pages_map(4);
    pe_open(user->domain, 1 << 20, &user->pe);
    MUST(window_commit(user->pe.fd, 0, PAGE) == 0);
    MUST(mr_reg(user->memreg, user->domain, user->pages, 4 * PAGE, ALL, &user->reg) == 0);
    MUST(pthread_create(&user->sleeper, NULL, sleep_run, user) == 0);
    usleep(20000);
}

/* What a user must have heard, and what he gets now. */
static void user_hears(user_t *user)
{
    struct angara_ioc_pe_create create;
    struct angara_ioc_info      info;
    struct angara_ioc_mr_reg    other;

    MUST(pthread_join(user->sleeper, NULL) == 0);
    OK_SAY(user->events == (POLLERR | POLLHUP), "who sleeps is woken");
    OK_SAY(user->pe.status->state == ANGARA_PE_GONE, "who polls memory sees it");
    OK(info_get(user->domain, &info) == -1 && errno == ENODEV);
    OK(pe_ioctl(user->domain, PAGE, &create) == -1 && errno == ENODEV);
    OK(window_commit(user->pe.fd, PAGE, PAGE) == -1 && errno == ENODEV);
    OK(mr_reg(user->memreg, user->domain, user->pages, PAGE, ALL, &other) == -1 && errno == ENODEV);
}

/* Nothing is lost: the device's DMA is known to be off. */
static void user_end(user_t *user)
{
    OK(mr_dereg(user->memreg, user->reg.handle) == 0);
    pe_close(&user->pe);
    close(user->memreg);
    close(user->domain);
    munmap(user->pages, 4 * PAGE);
    OK(pinned_pages() == user->pinned);
    OK(SYSFS("pe_used") == 0 && SYSFS("mr_used") == 0);
    OK(value_read(COUNTERS, "leaked_pages") == 0);
}

/* Binding the driver again is what brings it back: data goes through it. */
static void rebind(void)
{
    static const char        text[] = "after the error";
    struct angara_ioc_mr_reg reg;
    char                    *page = pages_map(1);
    sides_t                  s;

    file_write(DRIVER "unbind", slot);
    file_write(DRIVER "bind", slot);
    for (int i = 0; i < 5000 && access(NODE "state", F_OK) != 0; ++i) {
        usleep(1000);
    }
    OK(state_is("working"));
    sides_open(&s);
    MUST(far_reg(&s, page, PAGE, ALL, &reg) == 0);
    OK_SAY(far_write(&s, reg.key, 0, text, sizeof(text)) && memcmp(page, text, sizeof(text)) == 0,
           "and works when it is bound again");
    MUST(mr_dereg(s.memreg, reg.handle) == 0);
    sides_close(&s);
    munmap(page, PAGE);
}

/* An error of one transaction: the device can be asked to stop. */
static void inject_normal(void)
{
    user_t user;

    user_start(&user);
    OK(error_inject("normal") == CAN_RECOVER);
    OK(state_is("failed"));
    user_hears(&user);
    OK_SAY(error_inject("slot_reset") == RECOVERED && state_is("failed"),
           "it stays failed until it is bound again");
    user_end(&user);
    rebind();
}

/* The function still answers (here it always does): DMA isn't known to be off until a reset. */
static void inject_frozen(void)
{
    user_t user;

    user_start(&user);
    OK(error_inject("frozen") == NEED_RESET);
    OK(state_is("failed, leaking"));
    user_hears(&user);
    OK(error_inject("frozen") == NEED_RESET && state_is("failed, leaking"));
    OK(error_inject("slot_reset") == RECOVERED);
    OK_SAY(state_is("failed"), "what has been reset does no DMA");
    user_end(&user);
    rebind();
}

/* Bound between error and reset: it has heard of no error, but isn't what it was. */
static void inject_slot_reset(void)
{
    user_t user;

    user_start(&user);
    OK(error_inject("slot_reset") == RECOVERED);
    OK(state_is("failed"));
    user_hears(&user);
    user_end(&user);
    rebind();
}

static void inject_dead(void)
{
    user_t user;

    user_start(&user);
    OK(error_inject("perm_failure") == DISCONNECT);
    OK(state_is("failed"));
    user_hears(&user);
    user_end(&user);
    rebind();
}

/*
 * The device doesn't acknowledge that DMA is off, and the function has no reset of its own:
 * clearing its bus master bit proves nothing, nor does a slot_reset() of a channel that wasn't
 * frozen.
 */
static void inject_stuck(void)
{
    user_t user;

    user_start(&user);
    MUST(run("vm_host emu stuck 0 dma on"));
    OK(error_inject("normal") == CAN_RECOVER);
    OK(state_is("failed, leaking"));
    OK(error_inject("slot_reset") == RECOVERED && state_is("failed, leaking"));
    user_hears(&user);
    /* What has ended now would be lost. */
    OK(error_inject("frozen") == NEED_RESET && error_inject("slot_reset") == RECOVERED);
    OK(state_is("failed"));
    MUST(run("vm_host emu stuck 0 dma off"));
    user_end(&user);
    rebind();
}

/* An error that comes while the device has failed already. */
static void inject_again(void)
{
    user_t user;

    user_start(&user);
    MUST(error_inject("normal") == CAN_RECOVER);
    OK(error_inject("frozen") == NEED_RESET && state_is("failed"));
    OK(error_inject("perm_failure") == DISCONNECT && state_is("failed"));
    user_hears(&user);
    user_end(&user);
    rebind();
}

/* By the PCI core: advanced error reporting of the root port, which resets the bus if it is fatal.
 */
static void port_error(const char *error, const char *says)
{
    user_t user;

    if (access("/sys/class/angara/angara0/device/../aer_dev_fatal", F_OK) != 0) {
        tap_skip(says, "this kernel doesn't handle errors of the port");
        return;
    }
    user_start(&user);
    MUST(run("vm_host qmp 0 human-monitor-command "
             "'{\"command-line\": \"pcie_aer_inject_error port1 %s\"}' >/dev/null",
             error));
    user_hears(&user);
    for (int i = 0; i < 5000 && !state_reads("failed"); ++i) {
        usleep(1000);
    }
    OK_SAY(state_is("failed"), "%s", says);
    user_end(&user);
    rebind();
}

/* By the PCI core: somebody writes to sysfs. */
static void reset_by_user(void)
{
    char   path[128];
    user_t user;

    snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/reset", slot);
    if (access(path, F_OK) != 0) {
        tap_skip("a reset by the administrator", "this kernel knows of no way to reset it");
        return;
    }
    user_start(&user);
    file_write(path, "1");
    OK(state_is("failed"));
    user_hears(&user);
    user_end(&user);
    rebind();
}

void test_errors(void)
{
    slot = slot_name();
    hooks_load();
    inject_normal();
    inject_frozen();
    inject_slot_reset();
    inject_dead();
    inject_stuck();
    inject_again();
    hooks_unload();
    port_error("COMP_TIME", "after an error that isn't fatal it has stopped");
    port_error("DLP", "after a fatal one its bus has been reset, so its DMA is off");
    reset_by_user();
}
