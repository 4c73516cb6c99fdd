/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The files of the kernel modules: names, opening, handshake, ioctls, mappings, and what their
 * errors mean to a user. Touches no object of the provider.
 */
#define _GNU_SOURCE
#include "nic.h"

#include "src/log.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define DEVICES 64 /* that "nic" looks for */

/* ---- names ----------------------------------------------------------------------------------- */

/* "angara" and a number. */
static int is_device_name(const char *device)
{
    size_t digits = strlen("angara");

    if (strncmp(device, "angara", digits) != 0 || !isdigit((unsigned char)device[digits]) ||
        strlen(device) > digits + 4) {
        return 0;
    }
    while (isdigit((unsigned char)device[digits])) {
        digits++;
    }
    return device[digits] == '\0';
}

/* Path of the device; "nic" and "auto" are the first that is there. @return is there one? */
static int find_path(const char *device, char *path, size_t size)
{
    if (is_device_name(device)) {
        snprintf(path, size, "/dev/%s", device);
        return access(path, F_OK) == 0;
    }
    for (unsigned i = 0; i < DEVICES; ++i) {
        snprintf(path, size, "/dev/angara%u", i);
        if (access(path, F_OK) == 0) {
            return 1;
        }
    }
    snprintf(path, size, "/dev/angara0");
    return 0;
}

int nic_match(const char *device)
{
    static int  told;
    const char *refused = NULL;
    char        path[32];

    if (!strcmp(device, "nic") || is_device_name(device)) {
        return 1;
    }
    if (strcmp(device, "auto") != 0 || !find_path(device, path, sizeof(path))) {
        return 0;
    }
    if (access(path, R_OK | W_OK) != 0) {
        refused = path;
    } else if (access(NIC_MEMREG, R_OK | W_OK) != 0) {
        refused = NIC_MEMREG;
    }
    if (refused != NULL && !__atomic_exchange_n(&told, 1, __ATOMIC_RELAXED)) {
        ang_log_alike(
            ANG_LOG_WARN,
            "there is a NIC, but %s can't be used (%s): the soft fabric is taken instead. "
            "Load angara_memreg, add the user to the group angara, or set ANGARA_DEVICE=soft",
            refused, strerror(errno));
    }
    return refused == NULL;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* The driver wouldn't know which user's job key the PEs shall have. */
static int ids_differ(void)
{
    uid_t real, effective, saved;

    return getresuid(&real, &effective, &saved) == 0 && (real != effective || saved != effective);
}

static angara_status_t open_failed(const char *path, const char *module)
{
    switch (errno) {
    case ENOENT:
    case ENXIO:
    case ENODEV:
        ang_log_alike(
            ANG_LOG_ERROR,
            "there is no NIC behind %s: load the module %s, look at dmesg for why it finds "
            "none, or set ANGARA_DEVICE=soft for the soft fabric",
            path, module);
        return ANGARA_ERR_NO_DEVICE;
    case EPERM:
        if (ids_differ()) {
            ang_error("%s can't be opened by a program whose real, effective and saved user ids "
                      "differ: PEs belong to one user. Don't run it set-user-ID",
                      path);
            return ANGARA_ERR_SYSTEM;
        } /* fall through */
    case EACCES:
        ang_error("%s may not be opened: add the user to the group angara and log in again (in a "
                  "container, also pass the device)",
                  path);
        return ANGARA_ERR_SYSTEM;
    default:
        return nic_error(errno, path);
    }
}

angara_status_t nic_memreg_open(int *fd_p)
{
    int fd = open(NIC_MEMREG, O_RDWR | O_CLOEXEC);

    if (fd < 0) {
        return open_failed(NIC_MEMREG, "angara_memreg");
    }
    *fd_p = fd;
    return ANGARA_OK;
}

static int is_power2(uint32_t value)
{
    return value != 0 && (value & (value - 1)) == 0;
}

/* What the rest of the provider takes for granted. */
static int is_sound(const struct angara_ioc_info *info)
{
    return is_power2(info->cmd_entries) && is_power2(info->event_entries) &&
           is_power2(info->pio_bytes) && info->pio_bytes >= 4 * ANGARA_PIO_GRANULE &&
           info->marker_slots != 0 && info->put_max >= ANGARA_NOTIFY_MAX &&
           info->put_max <= info->pio_bytes / 2 && info->put_max <= UINT16_MAX &&
           info->window_max > NIC_PAGE;
}

angara_status_t nic_device_open(const char *device, int *fd_p, struct angara_ioc_info *info)
{
    angara_status_t status;
    char            path[32];
    int             error, fd;

    find_path(device, path, sizeof(path));
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return open_failed(path, "angara_nic");
    }
    *info = (struct angara_ioc_info){.size = sizeof(*info), .version = ANGARA_UAPI_VERSION};
    error = nic_ioctl(fd, ANGARA_IOC_INFO, info);
    if (error == ENOTTY) {
        ang_error("%s is of a driver that libangara %s doesn't know: install modules and library "
                  "of one release",
                  path, angara_version());
        status = ANGARA_ERR_VERSION;
    } else if (error == EPROTO) {
        ang_error("%s speaks version %u of the interface, libangara %s version %u: install modules "
                  "and library of one release",
                  path, info->version, angara_version(), ANGARA_UAPI_VERSION);
        status = ANGARA_ERR_VERSION;
    } else if (error != 0) {
        status = nic_error(error, path);
    } else if (info->formats != ANGARA_FORMATS_VERSION) {
        ang_error("%s has rings of version %u, libangara %s knows version %u: install modules and "
                  "library of one release",
                  path, info->formats, angara_version(), ANGARA_FORMATS_VERSION);
        status = ANGARA_ERR_VERSION;
    } else if (!is_sound(info)) {
        ang_error("%s tells sizes that make no sense: a fault of its driver's", path);
        status = ANGARA_ERR_VERSION;
    } else {
        info->name[sizeof(info->name) - 1] = '\0';
        *fd_p                              = fd;
        return ANGARA_OK;
    }
    close(fd);
    return status;
}

/* ---- calls and errors ------------------------------------------------------------------------ */

int nic_ioctl(int fd, unsigned long request, void *arg)
{
    int ret;

    do {
        ret = ioctl(fd, request, arg);
    } while (ret != 0 && errno == EINTR);
    return ret == 0 ? 0 : errno;
}

angara_status_t nic_error(int error, const char *what)
{
    switch (error) {
    case EMFILE:
    case ENFILE:
        ang_error("%s: %s. Raise the limit with ulimit -n", what, strerror(error));
        return ANGARA_ERR_LIMIT;
    case ENODEV:
        ang_error("%s: the NIC has gone or failed; dmesg has why", what);
        return ANGARA_ERR_NO_DEVICE;
    case EDQUOT:
        ang_error(
            "%s: the user's quota is used up: pes_per_user, mrs_per_user and mem_mb_per_user are "
            "parameters of the module angara_nic",
            what);
        return ANGARA_ERR_LIMIT;
    case ENOMEM:
        ang_error("%s: out of memory; look at free memory, ulimit -v and the cgroup's limit", what);
        return ANGARA_ERR_NO_MEMORY;
    default:
        ang_error("%s: %s", what, strerror(error));
        return ANGARA_ERR_SYSTEM;
    }
}

angara_status_t nic_no_memory(const char *what, size_t length)
{
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};

    getrlimit(RLIMIT_MEMLOCK, &limit);
    if (limit.rlim_cur == RLIM_INFINITY || geteuid() == 0) {
        return nic_error(ENOMEM, what);
    }
    ang_error("%s: %zu KiB more can't be pinned. RLIMIT_MEMLOCK is %llu KiB for all that a process "
              "pins: raise it with ulimit -l, or memlock in limits.conf",
              what, length / 1024, (unsigned long long)limit.rlim_cur / 1024);
    return ANGARA_ERR_LIMIT;
}

void *nic_calloc(size_t count, size_t size)
{
    void *memory = calloc(count, size);

    if (memory == NULL) {
        nic_error(ENOMEM, "an object of the NIC");
    }
    return memory;
}

void *nic_map(int fd, uint64_t offset, size_t size, int prot, const char *what)
{
    void *base = mmap(NULL, size, prot, MAP_SHARED, fd, (off_t)offset);

    if (base == MAP_FAILED) {
        nic_error(errno, what);
        return NULL;
    }
    madvise(base, size, MADV_DONTFORK); /* the kernel has done it */
    return base;
}
