/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Groups of kmod_test: versions of programs and devices, generations of PEs, and what is left of a
 * PE whose job key is revoked. kmod_users has what is between users.
 */
#include "kmod_test.h"

#include <angara_hw.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* ---- versions -------------------------------------------------------------------------------- */

/* Structures of the first version of the interface. */
typedef struct {
    uint32_t size, flags, version, caps;
    uint8_t  rest[80];
} info1_t;

typedef struct {
    uint32_t size, flags;
    uint64_t window_size;
    int32_t  fd;
    uint32_t index, generation, reserved;
} create1_t;

static void outs_refused(int domain, int memreg)
{
    struct angara_ioc_info      info   = {.size = sizeof(info), .version = ANGARA_UAPI_VERSION};
    struct angara_ioc_pe_create create = {.size = sizeof(create), .window_size = PAGE};
    struct angara_ioc_mr_reg    reg    = {
              .size = sizeof(reg), .domain_fd = domain, .addr = (uintptr_t)&reg, .length = 1};

#define REFUSED(_fd, _call, _arg, _field, _value)                                               \
    do {                                                                                        \
        typeof(_arg) arg_ = _arg;                                                               \
                                                                                                \
        arg_._field = (_value);                                                                 \
        OK_SAY(ioctl(_fd, _call, &arg_) == -1 && errno == EINVAL, "not 0: " #_arg "." #_field); \
    } while (0)

    REFUSED(domain, ANGARA_IOC_INFO, info, caps, 1);
    REFUSED(domain, ANGARA_IOC_INFO, info, formats, 1);
    REFUSED(domain, ANGARA_IOC_INFO, info, reserved, 1);
    REFUSED(domain, ANGARA_IOC_INFO, info, name[31], 1);
    REFUSED(domain, ANGARA_IOC_PE_CREATE, create, fd, -1);
    REFUSED(domain, ANGARA_IOC_PE_CREATE, create, index, 1);
    REFUSED(domain, ANGARA_IOC_PE_CREATE, create, generation, 1);
    REFUSED(memreg, ANGARA_IOC_MR_REG, reg, key, 1);
    REFUSED(memreg, ANGARA_IOC_MR_REG, reg, handle, 1);
    REFUSED(memreg, ANGARA_IOC_MR_REG, reg, page_shift, 1);
#undef REFUSED
}

/* Programs of the first version are told the version that there is, and get nothing. */
void test_versions(void)
{
    int       domain = domain_open(), memreg = memreg_open();
    info1_t   info                    = {.size = sizeof(info), .version = 1, .caps = 7};
    create1_t create                  = {.size = sizeof(create), .window_size = PAGE};
    uint8_t   zero[sizeof(info.rest)] = {0};

    memset(info.rest, 0xee, sizeof(info.rest));
    OK_ERRNO(ioctl(domain, ANGARA_IOC_INFO, &info), EPROTO);
    OK(info.size == sizeof(info) && info.version == ANGARA_UAPI_VERSION && info.caps == 0);
    OK(memcmp(info.rest, zero, sizeof(zero)) == 0);
    OK_ERRNO(ioctl(domain, ANGARA_IOC_PE_CREATE, &create), EINVAL);
    OK(create.fd == 0 && SYSFS("pe_used") == 0);
    outs_refused(domain, memreg);
    OK(SYSFS("pe_used") == 0 && SYSFS("mr_used") == 0);
    close(memreg);
    close(domain);
}

/* ---- generations ----------------------------------------------------------------------------- */

/* Those of several PEs of each number: not 0, not the last one again, and nothing to count on. */
void test_generations(void)
{
    enum { ROUNDS = 3 };
    int                         domain = domain_open();
    struct angara_ioc_pe_create create;
    struct angara_ioc_info      info;
    unsigned                    zero = 0, again = 0, next = 0, count = 0;
    uint32_t                   *last;

    MUST(info_get(domain, &info) == 0);
    last = calloc(info.pe_max, sizeof(*last));
    MUST(last != NULL);
    for (unsigned i = 0; i < ROUNDS * info.pe_max; ++i) {
        MUST(pe_ioctl(domain, PAGE, &create) == 0 && create.index < info.pe_max);
        zero += create.generation == 0;
        if (last[create.index] != 0) {
            count++;
            again += create.generation == last[create.index];
            next += create.generation - last[create.index] < 1000;
        }
        last[create.index] = create.generation;
        close(create.fd);
    }
    OK_SAY(count >= info.pe_max, "numbers are used again");
    OK(zero == 0 && again == 0);
    OK_SAY(next <= 2, "generations can't be counted");
    free(last);
    close(domain);
}

/* ---- devices --------------------------------------------------------------------------------- */

/* One that would ignore keys is left alone; the message names both versions. */
void test_old_device(void)
{
    const char *slot = slot_name();

    file_write(DRIVER "unbind", slot);
    MUST(run("vm_host emu version 0 0x20001"));
    OK_SAY(!run("echo %s 2>/dev/null >" DRIVER "bind", slot), "an old device is refused");
    OK(access("/dev/angara0", F_OK) == -1);
    OK(run("dmesg | grep -q 'register version 2.1, this driver needs %u.x'",
           ANGARA_HW_VERSION >> 16));
    MUST(run("vm_host emu version 0 %#x", ANGARA_HW_VERSION));
    file_write(DRIVER "bind", slot);
    OK_SAY(access("/dev/angara0", F_OK) == 0, "a new one isn't");
}

/* ---- revoked keys ---------------------------------------------------------------------------- */

/* Who waits for an interrupt. */
typedef struct {
    pe_t *pe;
    int   error;
} reader_t;

static void *reader_run(void *arg)
{
    reader_t *reader = arg;
    uint64_t  count;

    reader->error = read(reader->pe->fd, &count, sizeof(count)) == -1 ? errno : 0;
    return NULL;
}

/* The owner of a PE whose key was revoked keeps what it has mapped, and can do nothing with it. */
static void revoked_use(pe_t *pe)
{
    struct pollfd poll_fd = {.fd = pe->fd, .events = POLLIN};
    uint64_t      count;
    char         *status;

    OK(pe->status->state == ANGARA_PE_GONE);
    OK(poll(&poll_fd, 1, 0) == 1 && poll_fd.revents == (POLLERR | POLLHUP));
    OK_ERRNO(read(pe->fd, &count, sizeof(count)), ENODEV);
    OK_ERRNO(window_commit(pe->fd, PAGE, PAGE), ENODEV);
    status = part(pe->fd, ANGARA_MMAP_STATUS, PAGE, PROT_READ, MAP_SHARED);
    OK(status != MAP_FAILED && touch(status, 0) == 0);
    munmap(status, PAGE);
    OK(touch((char *)pe->doorbell, 1) == 0 && touch(pe->pio, 1) == 0 && pe->window[5] == 7);
    pe->doorbell->cmd_prod = 3;
    pe->doorbell->arm      = 9;
    usleep(20000);
    OK(pe->status->cmd_cons == 1 && pe->status->arm_ack == 0);
    OK(SYSFS("pe_used") == 1);
}

void test_revoked(void)
{
    struct angara_ioc_job job    = {.size = sizeof(job), .uid = 0, .value = 5};
    int                   jobkey = open("/dev/angara_jobkey", O_RDWR | O_CLOEXEC);
    int                   domain = domain_open();
    const char           *slot   = slot_name();
    pthread_t             thread;
    reader_t              reader;
    pe_t                  pe;

    MUST(jobkey >= 0);
    for (int removed = 0; removed < 2; ++removed) {
        MUST(ioctl(jobkey, ANGARA_IOC_JOB_ADD, &job) == 0);
        MUST(pe_open_key(domain, 4 * PAGE, job.value, &pe) == 0);
        MUST(window_commit(pe.fd, 0, PAGE) == 0);
        pe.window[5] = 7;
        pair_set(&pe, 0, pe.info.node, &pe);
        reader = (reader_t){.pe = &pe};
        MUST(pthread_create(&thread, NULL, reader_run, &reader) == 0);
        usleep(20000);
        OK(ioctl(jobkey, ANGARA_IOC_JOB_DEL, &job) == 0);
        MUST(pthread_join(thread, NULL) == 0);
        OK_SAY(reader.error == ENODEV, "a sleeper is told");
        revoked_use(&pe);
        if (removed) {
            file_write(DRIVER "unbind", slot);
            OK(pe.status->state == ANGARA_PE_GONE && touch((char *)pe.doorbell, 1) == 0);
        }
        pe_close(&pe);
        OK(removed || SYSFS("pe_used") == 0);
    }
    close(domain);
    close(jobkey);
    file_write(DRIVER "bind", slot);
    OK(run("grep -qx working /sys/class/angara/angara0/state"));
}
