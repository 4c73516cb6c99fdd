/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the calls of the kernel modules refuse, in a VM, as root: the errno that docs/abi.md names,
 * a counter that has moved, and nothing pinned, mapped or taken. Reports TAP: `CALL ERRNO: how`.
 */
#include "kmod_user.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOBODY   65534
#define WINDOW   (1u << 20)
#define RW       (PROT_READ | PROT_WRITE)
#define PES_MAX  1024
#define MRS_MAX  64
#define JOBS_MAX 64

/* ---- refusals -------------------------------------------------------------------------------- */

typedef struct {
    long long refused;
    long long left; /* pages pinned, PEs, regions, committed pages of windows, mappings: in all */
} state_t;

static unsigned mappings_count(void)
{
    FILE    *file  = fopen("/proc/self/maps", "r");
    unsigned count = 0;
    char     line[512];

    MUST(file != NULL);
    while (fgets(line, sizeof(line), file) != NULL) {
        count += strstr(line, "angara") != NULL;
    }
    fclose(file);
    return count;
}

static state_t state_take(void)
{
    return (state_t){
        .refused = value_read(COUNTERS, "calls_refused") + value_read(COUNTERS, "quota_refused") +
                   value_read("/sys/kernel/debug/angara_memreg/counters", "calls_refused") +
                   value_read("/sys/kernel/debug/angara/jobkey_calls_refused", NULL),
        .left = pinned_pages() + SYSFS("pe_used") + SYSFS("mr_used") +
                value_read(COUNTERS, "window_pages") + mappings_count(),
    };
}

static void refusal_check(const char *name, int wanted, int result, int error, state_t before)
{
    state_t after = state_take();
    char    text[200];

    snprintf(text, sizeof(text), "%s%s%s%s", name,
             result != -1 || error != wanted ? " (it is another error)" : "",
             after.refused == before.refused ? " (no counter has moved)" : "",
             after.left != before.left ? " (something is left)" : "");
    errno = error;
    tap_ok(result == -1 && error == wanted && after.refused > before.refused &&
               after.left == before.left,
           __FILE__, __LINE__, text);
}

/* REFUSED(CALL, ERRNO, "how", expression with the value of ioctl()) */
#define REFUSED(call, error, how, expression)                                               \
    do {                                                                                    \
        state_t before_ = state_take();                                                     \
        int     result_ = (expression);                                                     \
                                                                                            \
        refusal_check(#call " " #error ": " how, error, result_, result_ == -1 ? errno : 0, \
                      before_);                                                             \
    } while (0)

/* ---- what holds for all calls ---------------------------------------------------------------- */

typedef struct {
    uint32_t size;
    uint32_t flags;
    uint8_t  rest[4096];
} call_t;

/* In a child, which isn't root: the result of the call of another process, errno as the status. */
static int call_as_child(int fd, unsigned long number, void *argument)
{
    int   status;
    pid_t child = fork();

    MUST(child >= 0);
    if (child == 0) {
        MUST(setuid(NOBODY) == 0);
        _exit(ioctl(fd, number, argument) == -1 ? errno : 0);
    }
    MUST(waitpid(child, &status, 0) == child && WIFEXITED(status));
    errno = WEXITSTATUS(status);
    return errno != 0 ? -1 : 0;
}

/* An argument that would be accepted, made into one that isn't. */
static call_t changed(const void *argument, uint32_t size, uint32_t flags)
{
    call_t   call = {.size = 0};
    uint32_t known;

    memcpy(&known, argument, sizeof(known));
    memcpy(&call, argument, known);
    call.size  = size;
    call.flags = flags;
    return call;
}

/* What every call refuses; the argument is one that it would take. */
static void common_refused(const char *name, int fd, unsigned long number, void *argument,
                           uint32_t size)
{
    call_t small = changed(argument, size - 1, 0), newer = changed(argument, size + 8, 0);
    call_t flags = changed(argument, size, 1u << 31), huge = changed(argument, PAGE + 1, 0);
    const struct {
        const char   *error_name, *how;
        int           error;
        unsigned long number;
        void         *argument;
    } cases[] = {
        {"EFAULT", "no argument", EFAULT, number, NULL},
        {"EFAULT", "an address of the kernel", EFAULT, number, (void *)(~0ul << 20)},
        {"EINVAL", "too small", EINVAL, number, &small},
        {"EINVAL", "a flag", EINVAL, number, &flags},
        {"E2BIG", "a newer caller", E2BIG, number, &newer},
        {"E2BIG", "too large", E2BIG, number, &huge},
        {"ENOTTY", "another number", ENOTTY, _IO(ANGARA_IOC_TYPE, 0x7f), &small},
        {"EPERM", "another process", EPERM, number, argument},
    };
    size_t i;

    newer.rest[size - offsetof(call_t, rest)] = 1;
    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        state_t before = state_take();
        int     result = cases[i].error == EPERM ?
                             call_as_child(fd, cases[i].number, cases[i].argument) :
                             ioctl(fd, cases[i].number, cases[i].argument);
        int     error  = errno;
        char    text[100];

        snprintf(text, sizeof(text), "%s %s: %s", name, cases[i].error_name, cases[i].how);
        refusal_check(text, cases[i].error, result, error, before);
    }
}

/* ---- each call ------------------------------------------------------------------------------- */

static void test_info(int domain)
{
    struct angara_ioc_info info = {.size = sizeof(info), .version = ANGARA_UAPI_VERSION};
    struct angara_ioc_info old  = {.size = sizeof(old), .version = ANGARA_UAPI_VERSION - 1};

    common_refused("INFO", domain, ANGARA_IOC_INFO, &info, sizeof(info));
    REFUSED(INFO, EPROTO, "another version", ioctl(domain, ANGARA_IOC_INFO, &old));
}

/* As a user whose memory is limited: the result of an expression. */
#define AS_USER(expression)         \
    ({                              \
        int result__, error__;      \
                                    \
        MUST(seteuid(NOBODY) == 0); \
        result__ = (expression);    \
        error__  = errno;           \
        MUST(seteuid(0) == 0);      \
        errno = error__;            \
        result__;                   \
    })

static void test_pe_create(int domain)
{
    struct angara_ioc_pe_create create = {.size = sizeof(create), .window_size = WINDOW};
    struct angara_ioc_pe_create bad    = create;
    struct angara_ioc_info      info;
    struct rlimit               limit, none;
    int                         fds[PES_MAX];
    unsigned                    i, count;

    MUST(info_get(domain, &info) == 0 && info.pe_max < PES_MAX);
    common_refused("PE_CREATE", domain, ANGARA_IOC_PE_CREATE, &create, sizeof(create));
    bad.reserved = 1;
    REFUSED(PE_CREATE, EINVAL, "a reserved field", ioctl(domain, ANGARA_IOC_PE_CREATE, &bad));
    REFUSED(PE_CREATE, EINVAL, "no window", pe_ioctl(domain, 0, &bad));
    REFUSED(PE_CREATE, EINVAL, "a half page", pe_ioctl(domain, PAGE / 2, &bad));
    REFUSED(PE_CREATE, EINVAL, "too large", pe_ioctl(domain, info.window_max + PAGE, &bad));
    bad         = create;
    bad.job_key = ANGARA_JOB_VALUES;
    REFUSED(PE_CREATE, EINVAL, "a job key that can't be",
            ioctl(domain, ANGARA_IOC_PE_CREATE, &bad));
    bad.job_key = 12345;
    REFUSED(PE_CREATE, EACCES, "a job key that isn't granted",
            ioctl(domain, ANGARA_IOC_PE_CREATE, &bad));

    MUST(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    none = limit;
    /* Descriptors that are open stay; what state_take() reads needs one. */
    {
        state_t before = state_take();
        int     result, error;

        none.rlim_cur = 3;
        MUST(setrlimit(RLIMIT_NOFILE, &none) == 0);
        result = pe_ioctl(domain, WINDOW, &bad);
        error  = errno;
        MUST(setrlimit(RLIMIT_NOFILE, &limit) == 0);
        refusal_check("PE_CREATE EMFILE: no descriptor", EMFILE, result, error, before);
    }

    /* The system's limit on files; root is exempt. */
    {
        long long files  = value_read("/proc/sys/fs/file-max", NULL);
        state_t   before = state_take();
        int       result, error;

        file_write("/proc/sys/fs/file-max", "1");
        result = AS_USER(pe_ioctl(domain, PAGE, &bad));
        error  = errno;
        MUST(run("echo %lld >/proc/sys/fs/file-max", files));
        refusal_check("PE_CREATE ENFILE: no file", ENFILE, result, error, before);
    }
    MUST(getrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    none = (struct rlimit){PAGE, limit.rlim_max};
    MUST(setrlimit(RLIMIT_MEMLOCK, &none) == 0);
    REFUSED(PE_CREATE, ENOMEM, "over RLIMIT_MEMLOCK", AS_USER(pe_ioctl(domain, PAGE, &bad)));
    MUST(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);

    for (count = 0; count < info.pe_max && pe_ioctl(domain, PAGE, &create) == 0; ++count) {
        fds[count] = create.fd;
    }
    MUST(count == info.pe_max);
    REFUSED(PE_CREATE, ENOSPC, "all are taken", pe_ioctl(domain, WINDOW, &bad));
    for (i = 0; i < count; ++i) {
        close(fds[i]);
    }
}

static void test_window_commit(int pe)
{
    struct angara_ioc_window_commit commit = {sizeof(commit), 0, 0, PAGE};

    common_refused("WINDOW_COMMIT", pe, ANGARA_IOC_WINDOW_COMMIT, &commit, sizeof(commit));
    REFUSED(WINDOW_COMMIT, EINVAL, "nothing", window_commit(pe, 0, 0));
    REFUSED(WINDOW_COMMIT, ERANGE, "one byte beyond", window_commit(pe, WINDOW - PAGE, PAGE + 1));
    REFUSED(WINDOW_COMMIT, ERANGE, "wrapping", window_commit(pe, PAGE, ~0ull));
    REFUSED(WINDOW_COMMIT, ENOMEM, "over RLIMIT_MEMLOCK", AS_USER(window_commit(pe, 0, WINDOW)));
}

static void test_mr_reg(int domain, int memreg)
{
    char *memory                 = mmap(NULL, 2 * WINDOW, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *read_only              = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *gone                   = mmap(NULL, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct angara_ioc_mr_reg reg = {
        .size = sizeof(reg), .domain_fd = domain, .addr = (uintptr_t)memory, .length = PAGE};
    struct angara_ioc_mr_reg bad = reg, out;

    MUST(memory != MAP_FAILED && read_only != MAP_FAILED && munmap(gone, PAGE) == 0);
    MUST(munmap(memory + WINDOW, WINDOW) == 0);
    common_refused("MR_REG", memreg, ANGARA_IOC_MR_REG, &reg, sizeof(reg));
    bad.reserved = 1;
    REFUSED(MR_REG, EINVAL, "a reserved field", ioctl(memreg, ANGARA_IOC_MR_REG, &bad));
    bad      = reg;
    bad.type = ANGARA_MR_HOST + 77;
    REFUSED(MR_REG, EOPNOTSUPP, "an unknown kind", ioctl(memreg, ANGARA_IOC_MR_REG, &bad));
    REFUSED(MR_REG, EINVAL, "an unknown right",
            mr_reg(memreg, domain, memory, PAGE, 1u << 31, &out));
    REFUSED(MR_REG, EINVAL, "nothing", mr_reg(memreg, domain, memory, 0, 0, &out));
    REFUSED(MR_REG, EINVAL, "wrapping", mr_reg(memreg, domain, memory, ~0ull - PAGE, 0, &out));
    REFUSED(MR_REG, EFAULT, "not mapped", mr_reg(memreg, domain, gone, PAGE, 0, &out));
    REFUSED(MR_REG, EFAULT, "not mapped up to the end",
            mr_reg(memreg, domain, memory, WINDOW + 1, 0, &out));
    REFUSED(MR_REG, EFAULT, "not writable",
            mr_reg(memreg, domain, read_only, 1, ANGARA_MR_REMOTE_WRITE, &out));
    REFUSED(MR_REG, EBADF, "no descriptor", mr_reg(memreg, -1, memory, PAGE, 0, &out));
    REFUSED(MR_REG, EBADF, "no domain", mr_reg(memreg, memreg, memory, PAGE, 0, &out));
    REFUSED(MR_REG, ENOMEM, "over RLIMIT_MEMLOCK",
            AS_USER(mr_reg(memreg, domain, memory, WINDOW, 0, &out)));
    munmap(memory, WINDOW);
    munmap(read_only, PAGE);
}

static void test_mr_dereg(int domain, int memreg)
{
    static char                memory[8];
    struct angara_ioc_mr_reg   reg;
    struct angara_ioc_mr_dereg dereg = {.size = sizeof(dereg)}, bad;

    MUST(mr_reg(memreg, domain, memory, sizeof(memory), 0, &reg) == 0);
    dereg.handle = reg.handle;
    common_refused("MR_DEREG", memreg, ANGARA_IOC_MR_DEREG, &dereg, sizeof(dereg));
    bad          = dereg;
    bad.reserved = 1;
    REFUSED(MR_DEREG, EINVAL, "a reserved field", ioctl(memreg, ANGARA_IOC_MR_DEREG, &bad));
    REFUSED(MR_DEREG, ENOENT, "never given", mr_dereg(memreg, reg.handle + 1));
    REFUSED(MR_DEREG, ENOENT, "no handle at all", mr_dereg(memreg, ~0u));
    MUST(mr_dereg(memreg, reg.handle) == 0);
    REFUSED(MR_DEREG, ENOENT, "twice", mr_dereg(memreg, reg.handle));
}

static void test_mr_check(int domain, int memreg)
{
    static char                memory[8];
    struct angara_ioc_mr_reg   reg;
    struct angara_ioc_mr_check check = {.size = sizeof(check), .length = sizeof(memory)}, bad;

    MUST(mr_reg(memreg, domain, memory, sizeof(memory), 0, &reg) == 0);
    check.handle = reg.handle;
    common_refused("MR_CHECK", memreg, ANGARA_IOC_MR_CHECK, &check, sizeof(check));
    bad       = check;
    bad.stale = 1;
    REFUSED(MR_CHECK, EINVAL, "a result that isn't 0", ioctl(memreg, ANGARA_IOC_MR_CHECK, &bad));
    REFUSED(MR_CHECK, EINVAL, "length 0", mr_check(memreg, reg.handle, 0, 0));
    REFUSED(MR_CHECK, ERANGE, "too long", mr_check(memreg, reg.handle, 0, 9));
    REFUSED(MR_CHECK, ERANGE, "beyond", mr_check(memreg, reg.handle, 8, 1));
    REFUSED(MR_CHECK, ERANGE, "wraps", mr_check(memreg, reg.handle, ~0ull, 2));
    REFUSED(MR_CHECK, ENOENT, "never given", mr_check(memreg, reg.handle + 1, 0, 8));
    REFUSED(MR_CHECK, ENOENT, "no handle at all", mr_check(memreg, ~0u, 0, 8));
    MUST(mr_check(memreg, reg.handle, 0, 8) == 0 && mr_check(memreg, reg.handle, 7, 1) == 0);
    MUST(mr_dereg(memreg, reg.handle) == 0);
    REFUSED(MR_CHECK, ENOENT, "not any more", mr_check(memreg, reg.handle, 0, 8));
}

/* Where the modules were loaded with a small table. */
static void test_mr_full(int domain, int memreg)
{
    static char              memory[8];
    struct angara_ioc_info   info;
    struct angara_ioc_mr_reg regs[MRS_MAX], out;
    unsigned                 i, count;

    MUST(info_get(domain, &info) == 0);
    if (info.mr_max > MRS_MAX) {
        tap_skip("MR_REG ENOSPC: the table is full", "it is too large: load with mr_entries=16");
        return;
    }
    for (count = 0; count < info.mr_max; ++count) {
        if (mr_reg(memreg, domain, memory, sizeof(memory), 0, &regs[count]) != 0) {
            break;
        }
    }
    REFUSED(MR_REG, ENOSPC, "the table is full",
            mr_reg(memreg, domain, memory, sizeof(memory), 0, &out));
    for (i = 0; i < count; ++i) {
        MUST(mr_dereg(memreg, regs[i].handle) == 0);
    }
}

/* Grants until the list is full, where the module was loaded with a short one. */
static void test_jobs_full(int jobkey)
{
    struct angara_ioc_job job = {.size = sizeof(job), .uid = NOBODY};
    unsigned              count;

    for (job.value = 1; job.value <= JOBS_MAX && ioctl(jobkey, ANGARA_IOC_JOB_ADD, &job) == 0;
         ++job.value) {
    }
    count = (unsigned)job.value - 1;
    if (count == JOBS_MAX) {
        tap_skip("JOB_ADD ENOSPC: all are granted", "load with job_keys=8");
    } else {
        REFUSED(JOB_ADD, ENOSPC, "all are granted", ioctl(jobkey, ANGARA_IOC_JOB_ADD, &job));
    }
    for (job.value = 1; job.value <= count; ++job.value) {
        MUST(ioctl(jobkey, ANGARA_IOC_JOB_DEL, &job) == 0);
    }
}

static void test_jobs(void)
{
    int                   jobkey = open("/dev/angara_jobkey", O_RDWR | O_CLOEXEC);
    struct angara_ioc_job job    = {.size = sizeof(job), .uid = NOBODY, .value = 7}, bad, next;

    MUST(jobkey >= 0);
    next       = job;
    next.value = 0;
    bad        = job;
    common_refused("JOB_ADD", jobkey, ANGARA_IOC_JOB_ADD, &job, sizeof(job));
    common_refused("JOB_DEL", jobkey, ANGARA_IOC_JOB_DEL, &job, sizeof(job));
    common_refused("JOB_NEXT", jobkey, ANGARA_IOC_JOB_NEXT, &next, sizeof(next));

    bad.value = 0;
    REFUSED(JOB_ADD, EINVAL, "value 0", ioctl(jobkey, ANGARA_IOC_JOB_ADD, &bad));
    bad.value = ANGARA_JOB_VALUES;
    REFUSED(JOB_ADD, EINVAL, "too large a value", ioctl(jobkey, ANGARA_IOC_JOB_ADD, &bad));
    REFUSED(JOB_DEL, EINVAL, "too large a value", ioctl(jobkey, ANGARA_IOC_JOB_DEL, &bad));
    REFUSED(JOB_NEXT, EINVAL, "too large a value", ioctl(jobkey, ANGARA_IOC_JOB_NEXT, &bad));
    bad     = job;
    bad.uid = ~0u;
    REFUSED(JOB_ADD, EINVAL, "no user", ioctl(jobkey, ANGARA_IOC_JOB_ADD, &bad));
    bad          = job;
    bad.reserved = 1;
    REFUSED(JOB_ADD, EINVAL, "a reserved field", ioctl(jobkey, ANGARA_IOC_JOB_ADD, &bad));
    REFUSED(JOB_NEXT, EINVAL, "a reserved field", ioctl(jobkey, ANGARA_IOC_JOB_NEXT, &bad));
    bad        = job;
    bad.device = 77;
    REFUSED(JOB_ADD, ENXIO, "no such device", ioctl(jobkey, ANGARA_IOC_JOB_ADD, &bad));
    REFUSED(JOB_DEL, ENXIO, "no such device", ioctl(jobkey, ANGARA_IOC_JOB_DEL, &bad));
    REFUSED(JOB_NEXT, ENXIO, "no such device", ioctl(jobkey, ANGARA_IOC_JOB_NEXT, &bad));
    REFUSED(JOB_DEL, ENOENT, "not granted", ioctl(jobkey, ANGARA_IOC_JOB_DEL, &job));
    REFUSED(JOB_NEXT, ENOENT, "none is granted", ioctl(jobkey, ANGARA_IOC_JOB_NEXT, &next));
    MUST(ioctl(jobkey, ANGARA_IOC_JOB_ADD, &job) == 0);
    REFUSED(JOB_ADD, EEXIST, "twice", ioctl(jobkey, ANGARA_IOC_JOB_ADD, &job));
    MUST(ioctl(jobkey, ANGARA_IOC_JOB_NEXT, &next) == 0 && next.value == 7 && next.uid == NOBODY);
    REFUSED(JOB_NEXT, ENOENT, "no other", ioctl(jobkey, ANGARA_IOC_JOB_NEXT, &next));
    MUST(ioctl(jobkey, ANGARA_IOC_JOB_DEL, &job) == 0);
    test_jobs_full(jobkey);
    close(jobkey);
}

int main(void)
{
    int                         domain = domain_open();
    int                         memreg = open("/dev/angara_memreg", O_RDWR | O_CLOEXEC);
    struct angara_ioc_pe_create pe;
    struct rlimit               limit = {256 << 10, 256 << 10};

    MUST(memreg >= 0 && setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    test_info(domain);
    test_pe_create(domain);
    MUST(pe_ioctl(domain, WINDOW, &pe) == 0);
    test_window_commit(pe.fd);
    test_mr_reg(domain, memreg);
    test_mr_dereg(domain, memreg);
    test_mr_check(domain, memreg);
    test_mr_full(domain, memreg);
    test_jobs();
    return tap_finish();
}
