/* SPDX-License-Identifier: BSD-3-Clause */
/* kmod_fuzz: system calls with nonsense. */
#include "kmod_fuzz.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOBODY 65534

enum { DOMAIN, PE_FILE, MEMREG, KINDS };
#define FILES 6 /* two of each kind */

static const struct {
    unsigned    call, kind, size;
    const char *name;
    int         errors[8]; /* besides those of all calls */
} calls[] = {
    {ANGARA_IOC_INFO, DOMAIN, sizeof(struct angara_ioc_info), "INFO", {EPROTO}},
    {ANGARA_IOC_PE_CREATE,
     DOMAIN,
     sizeof(struct angara_ioc_pe_create),
     "PE_CREATE",
     {ENOSPC, EDQUOT, ENOMEM, EMFILE, ENFILE, EACCES}},
    {ANGARA_IOC_WINDOW_COMMIT,
     PE_FILE,
     sizeof(struct angara_ioc_window_commit),
     "WINDOW_COMMIT",
     {ERANGE, ENOMEM, EDQUOT, ENODEV}}, /* the PE's job key was revoked */
    {ANGARA_IOC_MR_REG,
     MEMREG,
     sizeof(struct angara_ioc_mr_reg),
     "MR_REG",
     {ENOMEM, EDQUOT, ENOSPC, EOPNOTSUPP}},
    {ANGARA_IOC_MR_DEREG, MEMREG, sizeof(struct angara_ioc_mr_dereg), "MR_DEREG", {ENOENT}},
    {ANGARA_IOC_MR_CHECK, MEMREG, sizeof(struct angara_ioc_mr_check), "MR_CHECK", {ENOENT, ERANGE}},
};
#define CALLS (sizeof(calls) / sizeof(calls[0]))

typedef union {
    struct angara_ioc_info          info;
    struct angara_ioc_pe_create     create;
    struct angara_ioc_window_commit commit;
    struct angara_ioc_mr_reg        reg;
    struct angara_ioc_mr_dereg      dereg;
    struct angara_ioc_mr_check      check;
    uint64_t                        words[PAGE / 8];
    struct {
        uint32_t size, flags;
    } head;
} args_t;

static struct {
    int      files[FILES]; /* of kind i % KINDS; closed and opened by a thread */
    args_t  *args;         /* rewritten by another */
    char    *edge;         /* end of a page, nothing behind */
    char    *fixed;        /* a page that can't be written */
    char    *memory;       /* to be registered */
    uint64_t seed;
    int      stop; /* atomic */
} field;

/* Held while a new file has a number of its own, and to close all that have one. */
static pthread_mutex_t numbers = PTHREAD_MUTEX_INITIALIZER;

/* What came of it; shared with the parent. */
typedef struct {
    unsigned good[CALLS], bad[CALLS], undocumented;
} outcome_t;

#define MEMORY  64u /* pages of it */
#define NUMBERS 24  /* of the descriptors that stay */

static int pe_new(int domain)
{
    struct angara_ioc_pe_create create;

    return pe_ioctl(domain, 1 << 20, &create) == 0 ? create.fd : -1;
}

/* No read() may wait: nobody would end it. */
static int file_open(unsigned kind)
{
    int domain, fd;

    if (kind == MEMREG) {
        return open("/dev/angara_memreg", O_RDWR | O_CLOEXEC | O_NONBLOCK);
    }
    domain = open("/dev/angara0", O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (kind == DOMAIN || domain < 0) {
        return domain;
    }
    fd = pe_new(domain);
    MUST(fd < 0 || fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    close(domain);
    return fd;
}

/* Put another file of the kind under the number, or, for a moment, none or one of another kind. */
static void *files_shuffle(void *unused)
{
    rng_t rng = rng_make(field.seed, 1);

    (void)unused;
    while (!__atomic_load_n(&field.stop, __ATOMIC_RELAXED)) {
        unsigned i = below(&rng, FILES);
        int      fd;

        if (below(&rng, 4) == 0) {
            dup3(field.files[below(&rng, FILES)], field.files[i], O_CLOEXEC);
            usleep(below(&rng, 200));
        }
        pthread_mutex_lock(&numbers);
        fd = file_open(i % KINDS);
        if (fd >= 0) {
            dup3(fd, field.files[i], O_CLOEXEC);
            close(fd);
        }
        pthread_mutex_unlock(&numbers);
        usleep(below(&rng, 5000));
    }
    return unused;
}

static void *args_rewrite(void *unused)
{
    rng_t rng = rng_make(field.seed, 2);

    (void)unused;
    while (!__atomic_load_n(&field.stop, __ATOMIC_RELAXED)) {
        volatile uint64_t *word = &field.args->words[below(&rng, 12)];
        uint64_t           was  = *word;

        *word = below(&rng, 2) ? nasty(&rng) : was ^ 1ull << below(&rng, 64);
        for (unsigned i = below(&rng, 200); i > 0; --i) {
            __asm__ volatile("" ::: "memory");
        }
        *word = was;
        if (below(&rng, 20) == 0) {
            usleep(below(&rng, 100));
        }
    }
    return unused;
}

/* Arguments of a call that would succeed. */
static void args_good(rng_t *rng, unsigned call, args_t *args)
{
    memset(args, 0, sizeof(*args));
    switch (calls[call].call) {
    case ANGARA_IOC_INFO:
        args->info.version = ANGARA_UAPI_VERSION;
        break;
    case ANGARA_IOC_PE_CREATE:
        args->create.window_size = (1u + below(rng, 512)) * PAGE;
        args->create.job_key     = below(rng, 8) == 0 ? below(rng, 4) : 0;
        break;
    case ANGARA_IOC_WINDOW_COMMIT:
        args->commit.offset = below(rng, 200) * PAGE;
        args->commit.length = 1 + below(rng, 4 * PAGE);
        break;
    case ANGARA_IOC_MR_REG:
        args->reg.domain_fd = field.files[below(rng, 2) * KINDS];
        args->reg.access    = below(rng, 16);
        args->reg.addr      = (uintptr_t)field.memory + below(rng, MEMORY / 2 * PAGE);
        args->reg.length    = 1 + below(rng, MEMORY / 2 * PAGE);
        break;
    case ANGARA_IOC_MR_CHECK:
        args->check.handle = below(rng, 10);
        args->check.offset = below(rng, PAGE);
        args->check.length = 1 + below(rng, 2 * PAGE);
        break;
    default:
        args->dereg.handle = below(rng, 10);
        break;
    }
    args->head.size = calls[call].size;
}

static void args_spoil(rng_t *rng, unsigned call, args_t *args)
{
    unsigned words = calls[call].size / 8;

    switch (below(rng, 6)) {
    case 0: /* a field */
        args->words[1 + below(rng, words - 1)] = nasty(rng);
        break;
    case 1: /* a bit */
        args->words[below(rng, words)] ^= 1ull << below(rng, 64);
        break;
    case 2: /* another size: truncated, or larger with something in it */
        args->head.size = (uint32_t)nasty(rng);
        break;
    case 3:
        args->head.size                    = calls[call].size + 8 * (1 + below(rng, 200));
        args->words[words + below(rng, 3)] = below(rng, 2);
        break;
    case 4: /* all of it */
        for (unsigned i = 0; i < words; ++i) {
            args->words[i] = nasty(rng);
        }
        break;
    default:
        args->head.flags = (uint32_t)nasty(rng);
        break;
    }
}

/* Where the kernel shall find them. */
static void *args_place(rng_t *rng, const args_t *args, unsigned size)
{
    size_t length = size + below(rng, 16);

    switch (below(rng, 12)) {
    case 0:
        return NULL;
    case 1: /* the kernel's memory, and what is no address at all */
        return (void *)(nasty(rng) | 0xffff800000000000);
    case 2:
        return (void *)nasty(rng);
    case 3: /* its end isn't there */
        memcpy(field.edge - size + 8, args, size - 8);
        return field.edge - size + 8;
    case 4: /* just there */
        memcpy(field.edge - size, args, size);
        return field.edge - size;
    case 5: /* the answer can't be written */
        mprotect(field.fixed, PAGE, RW);
        memcpy(field.fixed, args, sizeof(*args));
        mprotect(field.fixed, PAGE, PROT_READ);
        return field.fixed;
    case 6: /* not aligned */
        memmove((char *)field.args + 3, args, length);
        return (char *)field.args + 3;
    default:
        memcpy(field.args, args, sizeof(*args));
        return field.args;
    }
}

static int is_documented(unsigned call, int error)
{
    static const int common[] = {EFAULT, EINVAL, E2BIG, ENOTTY, EPERM, EBADF};

    for (size_t i = 0; i < sizeof(common) / sizeof(common[0]); ++i) {
        if (error == common[i]) {
            return 1;
        }
    }
    for (size_t i = 0; i < sizeof(calls[0].errors) / sizeof(int); ++i) {
        if (error == calls[call].errors[i] && error != 0) {
            return 1;
        }
    }
    return 0;
}

/* mmap(), poll() and read(): whatever comes of it. */
static void other_call(rng_t *rng)
{
    int           fd      = field.files[below(rng, FILES)];
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    char          bytes[32];
    size_t        length = below(rng, 4) ? (1u + below(rng, 40)) * PAGE : nasty(rng);
    void         *at;

    switch (below(rng, 4)) {
    case 0:
        poll(&poll_fd, 1, 0);
        break;
    case 1:
        if (read(fd, below(rng, 3) ? bytes : (void *)nasty(rng), below(rng, sizeof(bytes))) > 0) {
            return;
        }
        break;
    default:
        at = mmap(NULL, length, (int)below(rng, 8), below(rng, 4) ? MAP_SHARED : MAP_PRIVATE, fd,
                  below(rng, 8) ? (off_t)((uint64_t)below(rng, 9) << ANGARA_MMAP_SHIFT) :
                                  (off_t)(nasty(rng) & ~4095ull));
        if (at != MAP_FAILED) {
            void *moved = mremap(at, length, length + PAGE, MREMAP_MAYMOVE);

            munmap(moved != MAP_FAILED ? moved : at, moved != MAP_FAILED ? length + PAGE : length);
        }
        break;
    }
}

static void calls_child(unsigned count, outcome_t *outcome)
{
    struct rlimit limit = {1024 * PAGE, 1024 * PAGE};
    rng_t         rng   = rng_make(field.seed, 0);
    pthread_t     threads[2];
    args_t        args;
    int           last;

    MUST(setgroups(0, NULL) == 0 && setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
    MUST(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    field.args   = pages_map(3);
    field.edge   = (char *)pages_map(2) + PAGE;
    field.fixed  = pages_map(1);
    field.memory = pages_map(MEMORY);
    munmap(field.edge, PAGE);
    for (unsigned i = 0; i < FILES; ++i) {
        field.files[i] = file_open(i % KINDS);
        MUST(field.files[i] >= 0);
    }
    /* A PE that took a low number would stay, and count as one of the user's few. */
    do {
        last = open("/dev/null", O_RDONLY | O_CLOEXEC);
    } while (last < NUMBERS - 1);
    MUST(pthread_create(&threads[0], NULL, files_shuffle, NULL) == 0);
    MUST(pthread_create(&threads[1], NULL, args_rewrite, NULL) == 0);
    for (unsigned i = 0; i < count; ++i) {
        unsigned call = below(&rng, CALLS), kind = calls[call].kind;
        void    *place = &args;
        int      fd, ret;

        if (below(&rng, 10) == 0) {
            other_call(&rng);
            continue;
        }
        args_good(&rng, call, &args);
        if (below(&rng, 2)) {
            args_spoil(&rng, call, &args);
        }
        place = below(&rng, 3) ? args_place(&rng, &args, calls[call].size) : (void *)&args;
        fd    = field.files[below(&rng, 20) ? kind + KINDS * below(&rng, 2) : below(&rng, FILES)];
        ret   = ioctl(fd, below(&rng, 50) ? calls[call].call : (unsigned)nasty(&rng), place);
        if (ret == 0) {
            outcome->good[call]++;
            if (calls[call].call == ANGARA_IOC_PE_CREATE && place == &args) {
                close(args.create.fd);
            }
        } else {
            outcome->bad[call]++;
            if (!is_documented(call, errno)) {
                printf("# %s: errno %d (%s)\n", calls[call].name, errno, strerror(errno));
                outcome->undocumented++;
            }
        }
        /* PEs whose number went elsewhere. */
        if (i % 200 == 0) {
            pthread_mutex_lock(&numbers);
            close_range(NUMBERS, ~0u, 0);
            pthread_mutex_unlock(&numbers);
        }
    }
    __atomic_store_n(&field.stop, 1, __ATOMIC_RELAXED);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    fflush(stdout);
}

/* The administrator: grants and revokes keys that the user asks for, and says nonsense, too. */
static void jobs_fuzz(int jobkey, rng_t *rng, outcome_t *outcome)
{
    static const unsigned calls[] = {ANGARA_IOC_JOB_ADD, ANGARA_IOC_JOB_DEL, ANGARA_IOC_JOB_NEXT};
    static const int      documented[] = {EINVAL, EEXIST, ENOENT, ENOSPC, ENXIO, E2BIG};
    struct angara_ioc_job job = {.size = sizeof(job), .uid = NOBODY, .value = 1 + below(rng, 3)};
    uint64_t              words[sizeof(job) / 8];
    int                   known = 0;

    memcpy(words, &job, sizeof(job));
    if (below(rng, 4) == 0) {
        words[1 + below(rng, sizeof(words) / 8 - 1)] = nasty(rng);
    }
    if (ioctl(jobkey, calls[below(rng, 3)], words) != 0) {
        for (size_t i = 0; i < sizeof(documented) / sizeof(documented[0]); ++i) {
            known |= errno == documented[i];
        }
        if (!known) {
            printf("# a job key: errno %d (%s)\n", errno, strerror(errno));
            outcome->undocumented++;
        }
    }
}

/* Revokes what is left. @return did the module know it? */
static int jobs_end(int jobkey)
{
    struct angara_ioc_job job = {.size = sizeof(job)};

    while (ioctl(jobkey, ANGARA_IOC_JOB_NEXT, &job) == 0) {
        if (ioctl(jobkey, ANGARA_IOC_JOB_DEL, &job) != 0) {
            return 0;
        }
    }
    return errno == ENOENT;
}

void fuzz_calls(unsigned count, uint64_t seed)
{
    static const char *const nodes[] = {"/dev/angara0", "/dev/angara_memreg"};
    long long                pinned  = pinned_pages();
    long long                before  = value_read(COUNTERS, "calls_refused");
    outcome_t               *outcome;
    int                      status, jobkey = open("/dev/angara_jobkey", O_RDWR | O_CLOEXEC);
    rng_t                    rng = rng_make(seed, 3);
    pid_t                    pid;

    MUST(jobkey >= 0);
    field.seed = seed;
    outcome    = mmap(NULL, sizeof(*outcome), RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(outcome != MAP_FAILED);

    for (unsigned i = 0; i < 2; ++i) {
        MUST(chmod(nodes[i], 0666) == 0);
    }
    pid = fork();
    if (pid == 0) {
        calls_child(count, outcome);
        _exit(0);
    }
    while (waitpid(pid, &status, WNOHANG) == 0) {
        jobs_fuzz(jobkey, &rng, outcome);
        usleep(1000);
    }
    OK_SAY(jobs_end(jobkey), "granted keys can be revoked");
    close(jobkey);
    for (unsigned i = 0; i < 2; ++i) {
        MUST(chmod(nodes[i], 0600) == 0);
    }
    OK_SAY(status == 0, "the user of them ends well (status %#x)", status);
    for (unsigned i = 0; i < CALLS; ++i) {
        printf("# %s: %u good, %u refused\n", calls[i].name, outcome->good[i], outcome->bad[i]);
        /* In a slow kernel keys are revoked more often, and regions end with them. */
        OK_SAY(outcome->good[i] > count / 1000 && outcome->bad[i] > count / 1000,
               "%s: both succeeds and is refused", calls[i].name);
    }
    OK_SAY(outcome->undocumented == 0, "each error is one of the documented ones");
    OK(SYSFS("pe_used") == 0 && SYSFS("mr_used") == 0);
    OK(pinned_pages() == pinned);
    OK(value_read(COUNTERS, "window_pages") == 0);
    OK(value_read(COUNTERS, "calls_refused") > before);
    munmap(outcome, sizeof(*outcome));
    OK_SAY(run("grep -qx working /sys/class/angara/angara0/state"), "the device works");
}
