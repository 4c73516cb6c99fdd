/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What around the library decides how well it works: kernel, limits, plug-ins. Every check tries
 * the thing itself where it can, instead of reading a setting, and changes nothing.
 */
#define _GNU_SOURCE
#include "info.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <linux/membarrier.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

const char *info_state_name(info_state_t state)
{
    static const char *const names[] = {"ok", "note", "missing", "error"};

    return names[state];
}

void info_set_value(info_check_t *check, info_state_t state, const char *format, ...)
{
    va_list ap;

    check->state = state;
    va_start(ap, format);
    vsnprintf(check->value, sizeof(check->value), format, ap);
    va_end(ap);
}

void info_set_fix(info_check_t *check, const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    vsnprintf(check->fix, sizeof(check->fix), format, ap);
    va_end(ap);
}

/* First line of a file, empty if it can't be read. */
static void read_line(const char *path, char *text, size_t size)
{
    FILE *file = fopen(path, "r");

    text[0] = '\0';
    if (file == NULL) {
        return;
    }
    if (fgets(text, (int)size, file) != NULL) {
        text[strcspn(text, "\n")] = '\0';
    }
    fclose(file);
}

/* ---- reading another process's memory ------------------------------------------------------ */

#define PROBE_WORD 0x616e67617261ull

/* In a child: read @a word of process @a pid. Ends with the errno. */
static void probe_reader(pid_t pid, uint64_t *word)
{
    uint64_t     value  = 0;
    struct iovec local  = {&value, sizeof(value)};
    struct iovec remote = {word, sizeof(*word)};

    if (process_vm_readv(pid, &local, 1, &remote, 1, 0) != sizeof(value)) {
        _exit((errno != 0) ? errno : EIO);
    }
    _exit((value == PROBE_WORD) ? 0 : EIO);
}

/*
 * May one process read another's memory? Tried between two siblings, as two ranks of a job are.
 * @return 0, or the errno of the attempt. `allow`: the target lifts Yama's restriction for itself.
 */
static int probe_cma(int allow)
{
    static uint64_t word = PROBE_WORD;
    int             ready[2], hold[2], status = 0;
    pid_t           target, reader;
    char            byte;

    if ((pipe(ready) != 0) || (pipe(hold) != 0)) {
        return errno;
    }
    target = fork();
    if (target == 0) {
        if (allow) {
            prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
        }
        close(hold[1]);
        if ((write(ready[1], "r", 1) != 1) || (read(hold[0], &byte, 1) < 0)) {
            _exit(1);
        }
        _exit(0);
    }
    close(ready[1]);
    close(hold[0]);
    if ((target < 0) || (read(ready[0], &byte, 1) != 1)) {
        status = EAGAIN;
    } else {
        reader = fork();
        if (reader == 0) {
            probe_reader(target, &word);
        }
        if ((reader > 0) && (waitpid(reader, &status, 0) == reader) && WIFEXITED(status)) {
            status = WEXITSTATUS(status);
        } else {
            status = EAGAIN;
        }
    }
    close(hold[1]);
    close(ready[0]);
    if (target > 0) {
        waitpid(target, NULL, 0);
    }
    return status;
}

static void check_cma(info_check_t *check)
{
    char scope[16];
    int  error = probe_cma(0);

    check->name = "process_vm_readv between processes";
    read_line("/proc/sys/kernel/yama/ptrace_scope", scope, sizeof(scope));
    if (error == 0) {
        info_set_value(check, INFO_OK, "permitted%s%s", (scope[0] != '\0') ? ", ptrace_scope " : "",
                       scope);
        return;
    }
    if (probe_cma(1) == 0) {
        info_set_value(check, INFO_OK, "permitted where the target allows it, ptrace_scope %s",
                       scope);
        return;
    }
    info_set_value(check, INFO_NOTE,
                   "forbidden (%s)%s%s: the peer's helper thread copies private memory, "
                   "slower",
                   strerror(error), (scope[0] != '\0') ? ", ptrace_scope " : "", scope);
    if (error == ENOSYS) {
        info_set_fix(check,
                     "use a kernel with CONFIG_CROSS_MEMORY_ATTACH, or allow process_vm_readv and "
                     "process_vm_writev in the container's seccomp profile");
    } else if ((scope[0] != '\0') && (scope[0] != '0')) {
        info_set_fix(check,
                     "sysctl kernel.yama.ptrace_scope=0, or in a container --cap-add=SYS_PTRACE");
    } else {
        info_set_fix(check,
                     "in a container add --cap-add=SYS_PTRACE, or allow process_vm_readv and "
                     "process_vm_writev in its seccomp profile");
    }
}

/* ---- kernel -------------------------------------------------------------------------------- */

/* Peers look at each other there, by their numbers. */
static void check_proc(info_check_t *check)
{
    static const char *const files[]  = {"/proc/self/stat", "/proc/thread-self/ns/pid",
                                         "/proc/sys/kernel/random/boot_id"};
    char                     text[16] = "";

    check->name = "/proc";
    for (unsigned i = 0; i < sizeof(files) / sizeof(files[0]); ++i) {
        if (access(files[i], R_OK) != 0) {
            info_set_value(check, INFO_ERROR, "%s can't be read: %s", files[i], strerror(errno));
        }
    }
    if (check->state == INFO_OK) {
        if ((readlink("/proc/self", text, sizeof(text) - 1) > 0) && (atoi(text) == getpid())) {
            info_set_value(check, INFO_OK, "of this PID namespace");
            return;
        }
        info_set_value(check, INFO_ERROR, "of another PID namespace than this process");
    }
    info_set_fix(check, "mount -t proc proc /proc, or start with unshare --mount-proc");
}

static void check_membarrier(info_check_t *check)
{
    long commands = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);

    check->name = "membarrier";
    if ((commands >= 0) && ((commands & MEMBARRIER_CMD_GLOBAL_EXPEDITED) != 0)) {
        info_set_value(check, INFO_OK, "global expedited");
        return;
    }
    info_set_value(check, INFO_NOTE,
                   "not available: senders pay a full fence for each wake-up check");
    info_set_fix(check,
                 "use Linux 5.10 or later, or allow membarrier in the container's seccomp profile");
}

static void check_memfd(info_check_t *check)
{
    int fd = (int)syscall(SYS_memfd_create, "angara-info", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    check->name = "sealed memfds";
    if ((fd >= 0) && (ftruncate(fd, 4096) == 0)) {
        info_set_value(check, INFO_OK, "available");
    } else {
        info_set_value(check, INFO_ERROR, "not available: %s", strerror(errno));
        info_set_fix(check,
                     "use Linux 5.10 or later, or allow memfd_create in the container's seccomp "
                     "profile; look at ulimit -n and ulimit -f");
    }
    if (fd >= 0) {
        close(fd);
    }
}

static void check_pidfd(info_check_t *check)
{
    int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);

    check->name = "pidfd_open";
    if (fd >= 0) {
        info_set_value(check, INFO_OK, "available");
        close(fd);
        return;
    }
    info_set_value(check, INFO_NOTE,
                   "not available (%s): the end of a peer is found by a look at /proc, after "
                   "ANGARA_PEER_CHECK, not at once",
                   strerror(errno));
    info_set_fix(check,
                 "use Linux 5.10 or later, or allow pidfd_open in the container's seccomp profile");
}

/* Memory that shared segments can still take: free memory, and what the cgroup leaves. */
static void check_memory(info_check_t *check)
{
    char               line[128], limit[64];
    FILE              *file      = fopen("/proc/meminfo", "r");
    unsigned long long available = 0;

    check->name = "memory available";
    if (file == NULL) {
        info_set_value(check, INFO_NOTE, "/proc/meminfo can't be read: %s", strerror(errno));
        return; /* what to do about /proc is said there */
    }
    while (fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "MemAvailable: %llu kB", &available) == 1) {
            break;
        }
    }
    fclose(file);
    read_line("/sys/fs/cgroup/memory.max", limit, sizeof(limit));
    info_set_value(check, INFO_OK, "%llu MiB%s%s", available / 1024,
                   (limit[0] != '\0') ? ", cgroup limit " : "", limit);
    if (available < 256 * 1024) {
        check->state = INFO_NOTE;
        info_set_fix(check, "free memory: windows and shared regions are allocated in advance");
    }
}

/* ---- limits -------------------------------------------------------------------------------- */

static void limit_text(rlim_t value, char *text, size_t size)
{
    if (value == RLIM_INFINITY) {
        snprintf(text, size, "unlimited");
    } else {
        snprintf(text, size, "%llu", (unsigned long long)value);
    }
}

static void check_limit(info_check_t *check, const char *name, int resource, rlim_t wanted,
                        const char *why, const char *fix)
{
    struct rlimit limit = {0, 0};
    char          soft[32], hard[32];

    check->name = name;
    getrlimit((__rlimit_resource_t)resource, &limit);
    limit_text(limit.rlim_cur, soft, sizeof(soft));
    limit_text(limit.rlim_max, hard, sizeof(hard));
    info_set_value(check, INFO_OK, "%s (hard limit %s)", soft, hard);
    if ((limit.rlim_cur != RLIM_INFINITY) && (limit.rlim_cur < wanted)) {
        info_set_value(check, INFO_NOTE, "%s (hard limit %s): %s", soft, hard, why);
        info_set_fix(check, "%s", fix);
    }
}

/* ---- device and plug-ins ------------------------------------------------------------------- */

static void check_nic(info_check_t *check)
{
    static const char *const nodes[] = {"/dev/angara0", "/dev/angara_memreg"};
    unsigned                 i;

    check->name = "NIC";
    for (i = 0; i < 2; ++i) {
        if (access(nodes[i], R_OK | W_OK) == 0) {
            continue;
        }
        if (errno == EACCES) {
            info_set_value(check, INFO_MISSING, "%s may not be opened", nodes[i]);
            info_set_fix(check, "add the user to the group angara and log in again");
        } else {
            info_set_value(check, INFO_NOTE, "none (%s doesn't exist): the soft fabric is used",
                           nodes[i]);
            info_set_fix(check, "only with a NIC: load the modules angara_nic and angara_memreg");
        }
        return;
    }
    info_set_value(check, INFO_OK, "%s and %s", nodes[0], nodes[1]);
}

int info_library_folder(char *folder, size_t size)
{
    char    path[PATH_MAX];
    char   *slash;
    Dl_info info;

    if ((dladdr((void *)(uintptr_t)angara_version, &info) == 0) ||
        (realpath(info.dli_fname, path) == NULL)) {
        return -1;
    }
    slash = strrchr(path, '/');
    if (slash == NULL) {
        return -1;
    }
    *slash = '\0';
    return (snprintf(folder, size, "%s", path) < (int)size) ? 0 : -1;
}

int info_file_in(const char *folder, const char *name, char *path, size_t size)
{
    return (folder[0] != '\0') && (snprintf(path, size, "%s/%s", folder, name) < (int)size) &&
           (access(path, R_OK) == 0);
}

/* Version of the UCX that the dynamic linker finds, as its own call tells. */
static int ucx_version(char *text, size_t size)
{
    unsigned major, minor, release;
    void (*get)(unsigned *, unsigned *, unsigned *) = NULL;
    void *handle                                    = dlopen("libucp.so.0", RTLD_LAZY | RTLD_LOCAL);

    if (handle == NULL) {
        return -1;
    }
    *(void **)(&get) = dlsym(handle, "ucp_get_version");
    if (get != NULL) {
        get(&major, &minor, &release);
        snprintf(text, size, "%u.%u.%u", major, minor, release);
    }
    return (get != NULL) ? 0 : -1; /* stays loaded: UCX doesn't like to be unloaded */
}

static void check_ucx(info_check_t *check, const char *folder)
{
    char        path[PATH_MAX + 64], version[32];
    int         have_ucx = ucx_version(version, sizeof(version)) == 0;
    const char *named    = getenv("ANGARA_UCT_PLUGIN"); /* wins in MPI programs */

    check->name = "UCX transport";
    if (!have_ucx) {
        info_set_value(check, INFO_MISSING, "libucp.so.0 isn't found");
        info_set_fix(check, "install UCX (Debian: apt install libucx0), or set LD_LIBRARY_PATH");
        return;
    }
    if (!info_file_in(folder, INFO_TRANSPORT, path, sizeof(path))) {
        info_set_value(check, INFO_MISSING, INFO_TRANSPORT " isn't next to libangara.so in %.160s",
                       folder);
        info_set_fix(check, "build and install all of the project: make install PREFIX=...");
        return;
    }
    if (named != NULL && named[0] != '\0' && access(named, R_OK) != 0) {
        info_set_value(check, INFO_MISSING, "ANGARA_UCT_PLUGIN names %.160s: %s", named,
                       strerror(errno));
        info_set_fix(check, "unset ANGARA_UCT_PLUGIN");
        return;
    }
    info_set_value(check, INFO_OK, "UCX %s, %.200s", version, path);
}

unsigned info_checks(info_check_t *checks)
{
    char     folder[PATH_MAX];
    unsigned n = 0;

    memset(checks, 0, INFO_CHECKS_MAX * sizeof(*checks));
    check_nic(&checks[n++]);
    check_proc(&checks[n++]);
    check_memfd(&checks[n++]);
    check_pidfd(&checks[n++]);
    check_cma(&checks[n++]);
    check_membarrier(&checks[n++]);
    check_memory(&checks[n++]);
    check_limit(&checks[n++], "open files (ulimit -n)", RLIMIT_NOFILE, 1024,
                "each peer takes a few descriptors", "ulimit -n 4096, or nofile in limits.conf");
    check_limit(&checks[n++], "file size (ulimit -f)", RLIMIT_FSIZE, RLIM_INFINITY,
                "shared segments count as files", "ulimit -f unlimited");
    check_limit(&checks[n++], "address space (ulimit -v)", RLIMIT_AS, RLIM_INFINITY,
                "each peer's window takes address space", "ulimit -v unlimited");
    check_limit(&checks[n++], "locked memory (ulimit -l)", RLIMIT_MEMLOCK, 64ul << 20,
                "enough for the soft fabric; on a NIC rings, windows and registered memory count",
                "only with a NIC: ulimit -l unlimited, or memlock in limits.conf");
    n += info_gpu_checks(&checks[n]);
    if (info_library_folder(folder, sizeof(folder)) == 0) {
        check_ucx(&checks[n++], folder);
        info_ompi_check(&checks[n++], folder);
    }
    return n;
}
