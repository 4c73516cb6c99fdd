/* SPDX-License-Identifier: BSD-3-Clause */
/* See nic_fake.h. */
#define _GNU_SOURCE
#include "nic_fake.h"

#include "src/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define PART(_n) ((off_t)(_n) << ANGARA_MMAP_SHIFT)

nic_fake_t nic_fake;

/* The one PE. The device has it as long as `running`. */
static struct {
    int                         fd;
    int                         running;
    pthread_t                   thread;
    struct angara_doorbell     *doorbell;
    struct angara_status       *status;
    struct angara_desc         *cmd;
    struct angara_event_record *event;
    uint64_t                   *markers;
    char                       *pio;
} pe = {.fd = -1};

static struct {
    int       fd;
    uint32_t *stale;
    uint32_t  handles;
} memreg = {.fd = -1};

static int device_fd = -1;

/* ---- the device ------------------------------------------------------------------------------ */

static uint32_t load(const uint32_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static void store(uint32_t *word, uint32_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static void perform(const struct angara_desc *desc)
{
    switch (desc->op) {
    case ANGARA_OP_PAIR:
        nic_fake.pair_sets++;
        break;
    case ANGARA_OP_MARKER:
    case ANGARA_OP_MARKER_SELF:
        __atomic_store_n(&pe.markers[desc->loffset], desc->operand, __ATOMIC_RELEASE);
        break;
    default:
        nic_fake.data_ops++;
    }
}

static void turn_cmd(void)
{
    uint32_t cons = pe.status->cmd_cons;

    while (cons != load(&pe.doorbell->cmd_prod) && pe.status->state == ANGARA_PE_RUNNING) {
        if (nic_fake.fail_at != 0 && cons == nic_fake.fail_at) {
            store(&pe.status->state, ANGARA_PE_FAILED);
            return;
        }
        perform(&pe.cmd[cons % nic_fake.info.cmd_entries]);
        store(&pe.status->cmd_cons, ++cons);
    }
}

static void turn_pio(void)
{
    uint32_t granules = nic_fake.info.pio_bytes / ANGARA_PIO_GRANULE, used;

    for (;;) {
        uint32_t           cons = pe.status->pio_cons;
        uint32_t           slot = cons % granules;
        struct angara_put *put  = (struct angara_put *)(void *)(pe.pio + slot * ANGARA_PIO_GRANULE);

        if (load(&put->valid) != cons + 1) {
            return;
        }
        used = put->length <= ANGARA_PIO_INLINE ?
                   1 :
                   1 + (put->length - ANGARA_PIO_INLINE + ANGARA_PIO_GRANULE - 1u) /
                           ANGARA_PIO_GRANULE;
        if (put->op == ANGARA_PIO_PAD) {
            used = granules - slot;
        } else if (put->op == ANGARA_PIO_NOTIFY) {
            pe.status->notify_status = nic_fake.notify_status;
            store(&pe.status->notify_token, put->token);
        }
        for (uint32_t i = 0; i < used; ++i) {
            memset(pe.pio + (slot + i) * ANGARA_PIO_GRANULE, 0, sizeof(uint32_t));
        }
        store(&pe.status->pio_cons, cons + used);
    }
}

static void *device(void *arg)
{
    (void)arg;
    while (__atomic_load_n(&pe.running, __ATOMIC_ACQUIRE)) {
        if (!__atomic_load_n(&nic_fake.stuck, __ATOMIC_ACQUIRE)) {
            turn_cmd();
            turn_pio();
            store(&pe.status->arm_ack, load(&pe.doorbell->arm));
        }
        usleep(50);
    }
    return NULL;
}

/* ---- the driver ------------------------------------------------------------------------------ */

static void *map_part(unsigned part, size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, pe.fd, PART(part));

    if (p == MAP_FAILED) {
        abort();
    }
    return p;
}

static void pe_open(struct angara_ioc_pe_create *arg)
{
    const struct angara_ioc_info *info = &nic_fake.info;

    nic_fake.job_key = arg->job_key;

    pe.fd = memfd_create("nic_fake_pe", MFD_CLOEXEC);
    if (pe.fd < 0 || ftruncate(pe.fd, PART(ANGARA_MMAP_WINDOW) + (off_t)arg->window_size) != 0) {
        abort();
    }
    pe.doorbell = map_part(ANGARA_MMAP_DOORBELL, 4096);
    pe.status   = map_part(ANGARA_MMAP_STATUS, 4096);
    pe.cmd      = map_part(ANGARA_MMAP_CMD, info->cmd_entries * sizeof(*pe.cmd));
    pe.event    = map_part(ANGARA_MMAP_EVENT, info->event_entries * sizeof(*pe.event));
    pe.markers  = map_part(ANGARA_MMAP_MARKER, info->marker_slots * sizeof(*pe.markers));
    pe.pio      = map_part(ANGARA_MMAP_PIO, info->pio_bytes);
    pe.running  = 1;
    if (pthread_create(&pe.thread, NULL, device, NULL) != 0) {
        abort();
    }
    arg->fd         = pe.fd;
    arg->index      = 3;
    arg->generation = 9;
}

static void pe_close(void)
{
    const struct angara_ioc_info *info = &nic_fake.info;

    __atomic_store_n(&pe.running, 0, __ATOMIC_RELEASE);
    pthread_join(pe.thread, NULL);
    munmap(pe.doorbell, 4096);
    munmap(pe.status, 4096);
    munmap(pe.cmd, info->cmd_entries * sizeof(*pe.cmd));
    munmap(pe.event, info->event_entries * sizeof(*pe.event));
    munmap(pe.markers, info->marker_slots * sizeof(*pe.markers));
    munmap(pe.pio, info->pio_bytes);
    pe.fd = -1;
}

static int memreg_open(void)
{
    size_t size = ANGARA_MR_HANDLES_MAX * sizeof(uint32_t);

    memreg.fd = memfd_create("nic_fake_memreg", MFD_CLOEXEC);
    if (memreg.fd < 0 || ftruncate(memreg.fd, (off_t)size) != 0) {
        abort();
    }
    memreg.stale = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, memreg.fd, 0);
    return memreg.fd;
}

/* A driver of another version tells its own, and nothing else. */
static void info(struct angara_ioc_info *arg)
{
    if (arg->version != nic_fake.info.version) {
        arg->version                   = nic_fake.info.version;
        nic_fake.errors[NIC_FAKE_INFO] = EPROTO;
    } else if (nic_fake.errors[NIC_FAKE_INFO] == 0) {
        *arg = nic_fake.info;
    }
}

static int outs_are_zero(nic_fake_call_t call, const void *arg)
{
    const struct angara_ioc_pe_create *create = arg;
    const struct angara_ioc_mr_reg    *reg    = arg;
    struct angara_ioc_info             empty  = {.size = 0};

    switch (call) {
    case NIC_FAKE_INFO:
        return memcmp((const char *)arg + offsetof(struct angara_ioc_info, caps), &empty.caps,
                      sizeof(empty) - offsetof(struct angara_ioc_info, caps)) == 0;
    case NIC_FAKE_PE:
        return create->fd == 0 && create->index == 0 && create->generation == 0;
    case NIC_FAKE_REG:
        return reg->key == 0 && reg->handle == 0 && reg->page_shift == 0;
    case NIC_FAKE_CHECK:
        return ((const struct angara_ioc_mr_check *)arg)->stale == 0;
    default:
        return 1;
    }
}

static int driver(unsigned long request, void *arg)
{
    static const struct {
        unsigned long   request;
        nic_fake_call_t call;
    } calls[] = {
        {ANGARA_IOC_INFO, NIC_FAKE_INFO},
        {ANGARA_IOC_PE_CREATE, NIC_FAKE_PE},
        {ANGARA_IOC_WINDOW_COMMIT, NIC_FAKE_COMMIT},
        {ANGARA_IOC_MR_REG, NIC_FAKE_REG},
        {ANGARA_IOC_MR_DEREG, NIC_FAKE_DEREG},
        {ANGARA_IOC_MR_CHECK, NIC_FAKE_CHECK},
    };
    struct angara_ioc_mr_reg   *reg = arg;
    struct angara_ioc_mr_check *check;
    unsigned                    i = 0;

    while (calls[i].request != request) {
        i++;
    }
    if (!outs_are_zero(calls[i].call, arg)) {
        errno = EINVAL;
        return -1;
    }
    switch (calls[i].call) {
    case NIC_FAKE_INFO:
        info(arg);
        break;
    case NIC_FAKE_PE:
        if (nic_fake.errors[NIC_FAKE_PE] == 0) {
            pe_open(arg);
        }
        break;
    case NIC_FAKE_REG:
        reg->handle = memreg.handles;
        reg->key    = 0x123456000000ull + ++memreg.handles;
        break;
    case NIC_FAKE_CHECK:
        check        = arg;
        check->stale = !nic_fake.same;
        if (nic_fake.same && check->offset == 0 && nic_fake.errors[NIC_FAKE_CHECK] == 0) {
            memreg.stale[check->handle] = 0;
        }
        break;
    default:
        break;
    }
    errno = nic_fake.errors[calls[i].call];
    return errno == 0 ? 0 : -1;
}

/* ---- the replaced calls ---------------------------------------------------------------------- */

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    if (!strcmp(path, "/dev/angara0")) {
        errno = nic_fake.errors[NIC_FAKE_OPEN];
        return errno != 0 ? -1 : (device_fd = memfd_create("nic_fake", MFD_CLOEXEC));
    }
    if (!strcmp(path, "/dev/angara_memreg")) {
        errno = nic_fake.errors[NIC_FAKE_MEMREG];
        return errno != 0 ? -1 : memreg_open();
    }
    return __real_open(path, flags, 0600);
}

int __real_access(const char *path, int mode);
int __wrap_access(const char *path, int mode);
int __wrap_access(const char *path, int mode)
{
    if (!strcmp(path, "/dev/angara0") || !strcmp(path, "/dev/angara_memreg")) {
        return 0;
    }
    return __real_access(path, mode);
}

int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_close(int fd)
{
    if (fd == pe.fd) {
        pe_close();
    } else if (fd == memreg.fd) {
        munmap(memreg.stale, ANGARA_MR_HANDLES_MAX * sizeof(uint32_t));
        memreg.fd = -1;
    } else if (fd == device_fd) {
        device_fd = -1;
    }
    return __real_close(fd);
}

int __real_ioctl(int fd, unsigned long request, void *arg);
int __wrap_ioctl(int fd, unsigned long request, void *arg);
int __wrap_ioctl(int fd, unsigned long request, void *arg)
{
    if (fd == device_fd || fd == memreg.fd || fd == pe.fd) {
        return driver(request, arg);
    }
    return __real_ioctl(fd, request, arg);
}

int __wrap_getresuid(uid_t *real, uid_t *effective, uid_t *saved);
int __wrap_getresuid(uid_t *real, uid_t *effective, uid_t *saved)
{
    *real = *effective = nic_fake.uid;
    *saved             = nic_fake.saved_uid;
    return 0;
}

uid_t __wrap_geteuid(void);
uid_t __wrap_geteuid(void)
{
    return nic_fake.uid;
}

int __real_getrlimit(int resource, struct rlimit *limit);
int __wrap_getrlimit(int resource, struct rlimit *limit);
int __wrap_getrlimit(int resource, struct rlimit *limit)
{
    if (resource != RLIMIT_MEMLOCK) {
        return __real_getrlimit(resource, limit);
    }
    limit->rlim_cur = limit->rlim_max = nic_fake.memlock;
    return 0;
}

int __real_clock_gettime(clockid_t clock, struct timespec *time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *time)
{
    static uint64_t ahead;
    int             ret = __real_clock_gettime(clock, time);

    ahead += nic_fake.jump_ns;
    time->tv_sec += (time_t)(ahead / 1000000000u);
    return ret;
}

void __wrap_ang_log_print(ang_log_level_t level, const char *format, ...);
void __wrap_ang_log_print(ang_log_level_t level, const char *format, ...)
{
    size_t  used = strlen(nic_fake.log);
    va_list args;

    (void)level;
    va_start(args, format);
    vsnprintf(nic_fake.log + used, sizeof(nic_fake.log) - used, format, args);
    va_end(args);
}

/* ---- for the tests --------------------------------------------------------------------------- */

void nic_fake_reset(void)
{
    nic_fake = (nic_fake_t){
        .info =
            {
                .size          = sizeof(nic_fake.info),
                .version       = ANGARA_UAPI_VERSION,
                .caps          = ANGARA_INFO_LOOPBACK | ANGARA_INFO_LINK_UP,
                .node          = 5,
                .pe_max        = 64,
                .mr_max        = 1024,
                .cmd_entries   = 16,
                .event_entries = 16,
                .pio_bytes     = 4096,
                .marker_slots  = 8,
                .put_max       = 1024,
                .formats       = ANGARA_FORMATS_VERSION,
                .window_max    = 1 << 20,
                .offload_max   = 1 << 20,
                .name          = "angara0",
            },
        .uid       = 1000,
        .saved_uid = 1000,
        .memlock   = RLIM_INFINITY,
    };
}

void nic_fake_forget_log(void)
{
    nic_fake.log[0] = '\0';
}

void nic_fake_state(uint32_t state)
{
    store(&pe.status->state, state);
}

void nic_fake_event(const struct angara_event_record *model)
{
    uint32_t                    number = pe.status->event_prod++;
    struct angara_event_record *record = &pe.event[number % nic_fake.info.event_entries];

    *record = *model;
    store(&record->valid, number + 1);
}

void nic_fake_lost(uint32_t lost)
{
    store(&pe.status->event_lost, lost);
}

void nic_fake_stale(uint32_t handle)
{
    store(&memreg.stale[handle], 1);
}
