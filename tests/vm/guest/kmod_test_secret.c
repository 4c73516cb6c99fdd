/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Groups of kmod_test: who may open the devices, when the modules may go, and that no address of
 * the kernel's or of memory is told to a user.
 */
#include "kmod_test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define GROUP 4242

static const char *const nodes[] = {"/dev/angara0", "/dev/angara_memreg"};

static void become_nobody(gid_t group)
{
    MUST(setgroups(group != 0, &group) == 0);
    MUST(setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
}

/* ---- who may open ---------------------------------------------------------------------------- */

/* @return how many of the nodes a user in that group (0: in none) can open, others being EACCES */
static int nodes_openable(gid_t group)
{
    int   status;
    pid_t pid = fork();

    if (pid == 0) {
        int count = 0;

        become_nobody(group);
        for (unsigned i = 0; i < 2; ++i) {
            int fd = open(nodes[i], O_RDWR | O_CLOEXEC);

            MUST(fd >= 0 || errno == EACCES);
            count += fd >= 0;
            MUST(open(nodes[i], O_RDONLY | O_CLOEXEC) >= 0 ? fd >= 0 : fd < 0);
        }
        _exit(count);
    }
    MUST(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    return WEXITSTATUS(status);
}

void test_nodes(void)
{
    struct stat before[2];

    for (unsigned i = 0; i < 2; ++i) {
        MUST(stat(nodes[i], &before[i]) == 0);
        OK_SAY((before[i].st_mode & 0777) == 0600 && before[i].st_uid == 0,
               "%s is root's when the module makes it", nodes[i]);
    }
    OK_SAY(nodes_openable(0) == 0, "a user can't open the devices");
    /* As the udev rule sets it. */
    for (unsigned i = 0; i < 2; ++i) {
        MUST(chown(nodes[i], 0, GROUP) == 0 && chmod(nodes[i], 0660) == 0);
    }
    OK_SAY(nodes_openable(0) == 0, "with the group's rights, one outside the group can't either");
    OK_SAY(nodes_openable(GROUP) == 2, "one in the group can");
    for (unsigned i = 0; i < 2; ++i) {
        MUST(chown(nodes[i], before[i].st_uid, before[i].st_gid) == 0);
        MUST(chmod(nodes[i], before[i].st_mode & 0777) == 0);
    }
}

/* ---- when the modules may go ----------------------------------------------------------------- */

static int module_delete(const char *name)
{
    return (int)syscall(SYS_delete_module, name, O_NONBLOCK);
}

void test_unload(void)
{
    struct angara_ioc_pe_create create;
    int                         domain, memreg = memreg_open();
    void                       *at;

    OK_SAY(module_delete("angara_nic") == -1 && errno == EWOULDBLOCK,
           "angara_nic stays while angara_memreg is there");
    OK_SAY(module_delete("angara_memreg") == -1 && errno == EWOULDBLOCK,
           "angara_memreg stays while its file is open");
    at = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, memreg, 0);
    MUST(at != MAP_FAILED);
    close(memreg);
    OK_SAY(module_delete("angara_memreg") == -1 && errno == EWOULDBLOCK, "or mapped");
    munmap(at, PAGE);
    OK_SAY(module_delete("angara_memreg") == 0, "then it goes");
    domain = domain_open();
    OK_SAY(module_delete("angara_nic") == -1 && errno == EWOULDBLOCK,
           "angara_nic stays while a domain is open");
    MUST(pe_ioctl(domain, PAGE, &create) == 0);
    close(domain);
    OK_SAY(module_delete("angara_nic") == -1 && errno == EWOULDBLOCK, "or a PE");
    at = part(create.fd, ANGARA_MMAP_DOORBELL, PAGE, RW, MAP_SHARED);
    MUST(at != MAP_FAILED);
    close(create.fd);
    OK_SAY(module_delete("angara_nic") == -1 && errno == EWOULDBLOCK, "or a mapping");
    OK_SAY(touch(at, 1) == 0, "which works");
    munmap(at, PAGE);
    OK_SAY(module_delete("angara_nic") == 0, "then it goes");
    MUST(run("vm_kmod load"));
    OK(SYSFS("pe_used") == 0);
}

/* ---- no addresses ---------------------------------------------------------------------------- */

#define FRAMES_MAX 1024

typedef struct {
    uint64_t frames[FRAMES_MAX]; /* numbers of pages of regions, sorted */
    size_t   count;
} frames_t;

/* The page behind an address, as only root is told. */
static void frame_add(frames_t *frames, const void *at)
{
    int      fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    uint64_t entry;

    MUST(fd >= 0);
    MUST(touch((char *)at, 0) == 0);
    MUST(pread(fd, &entry, 8, (off_t)((uintptr_t)at / PAGE * 8)) == 8);
    close(fd);
    MUST(entry >> 63 == 1 && (entry & ((1ull << 55) - 1)) != 0);
    MUST(frames->count < FRAMES_MAX);
    frames->frames[frames->count++] = entry & ((1ull << 55) - 1);
}

static int frame_compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* Is it an address of one of the pages, or of the kernel's? */
static int is_address(const frames_t *frames, uint64_t word)
{
    uint64_t frame = word / PAGE;

    if (word >= 0xffff800000000000 && word < 0xffffffffff000000) {
        return 1;
    }
    return frame != 0 &&
           bsearch(&frame, frames->frames, frames->count, sizeof(frame), frame_compare) != NULL;
}

/*
 * Not even root is told where the pages of a PE are, so that in what a PE maps each number that
 * could be a page of memory's address (of 2 GiB at most) is one.
 */
static int is_page(uint64_t word)
{
    return word % PAGE == 0 && word >= 1u << 20 && word < 1u << 31;
}

/* @return how many words of memory are addresses */
static unsigned words_scan(const frames_t *frames, const volatile void *at, size_t length,
                           int pages_too)
{
    const volatile uint64_t *words = at;
    unsigned                 found = 0;

    for (size_t i = 0; i < length / 8; ++i) {
        if (is_address(frames, words[i]) || (pages_too && is_page(words[i]))) {
            printf("# address %#llx at offset %zu\n", (unsigned long long)words[i], 8 * i);
            found++;
        }
    }
    return found;
}

/* @return how many hexadecimal numbers of a text are addresses */
static unsigned text_scan(const frames_t *frames, const char *name, char *text)
{
    unsigned found = 0;

    for (char *at = text; *at != '\0';) {
        size_t   digits  = strspn(at, "0123456789abcdefABCDEF");
        int      is_time = at - text >= 3 && memcmp(at - 3, "ns=", 3) == 0;
        uint64_t value   = digits >= 5 && digits <= 16 && !is_time ? strtoull(at, NULL, 16) : 0;

        /* Bare frame numbers would be told as such; short ones could be anything. */
        if (value > 0xffff && is_address(frames, value)) {
            printf("# %s: %.*s\n", name, (int)digits, at);
            found++;
        }
        at += digits + 1 - (at[digits] == '\0');
    }
    return found;
}

/*
 * The kernel's log is read by records, from the first of our modules on: before, it says where
 * the initial file system was, whose pages may be anybody's now.
 */
static size_t log_read(int fd, char *text, size_t size)
{
    size_t  length = 0;
    ssize_t count;
    char   *head_end;

    while (length < size - 9000 &&
           ((count = read(fd, text + length, 8192)) > 0 || (count < 0 && errno == EPIPE))) {
        if (count < 0 || (length == 0 && !memmem(text, (size_t)count, "angara_nic", 10))) {
            continue;
        }
        /* Microseconds look like an address. */
        head_end = memchr(text + length, ';', (size_t)count);
        MUST(head_end != NULL);
        memset(text + length, ' ', (size_t)(head_end - text) - length);
        length += (size_t)count;
    }
    MUST(length > 0 && count < 0 && errno == EAGAIN); /* to its end */
    return length;
}

static size_t text_read(int fd, char *text, size_t size)
{
    size_t  length = 0;
    ssize_t count;

    while (length < size && (count = read(fd, text + length, size - length)) > 0) {
        length += (size_t)count;
    }
    return length;
}

static unsigned file_scan(const frames_t *frames, const char *path, unsigned *files)
{
    static char text[1 << 20];
    int         fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    size_t      length;

    if (fd < 0) {
        return 0;
    }
    length       = strcmp(path, "/dev/kmsg") == 0 ? log_read(fd, text, sizeof(text) - 1) :
                                                    text_read(fd, text, sizeof(text) - 1);
    text[length] = '\0';
    close(fd);
    *files += length > 0;
    return text_scan(frames, path, text);
}

/* All regular files below a folder that this user can read. */
static unsigned folder_scan(const frames_t *frames, const char *path, unsigned *files)
{
    DIR           *dir   = opendir(path);
    unsigned       found = 0;
    struct dirent *entry;
    char           name[4200];

    if (dir == NULL) {
        return file_scan(frames, path, files);
    }
    while ((entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] == '.' || entry->d_type == DT_LNK ||
            strcmp(entry->d_name, "trace_pipe") == 0) {
            continue;
        }
        snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
        found += entry->d_type == DT_DIR ? folder_scan(frames, name, files) :
                                           file_scan(frames, name, files);
    }
    closedir(dir);
    return found;
}

#define MESSAGES "/tmp/angara.messages" /* the kernel's, of our modules */

/* The last four are for root to be looked at, too. Not the others: root may see where modules are.
 */
static const char *const told[] = {
    "/sys/class/misc/angara_memreg/",
    "/sys/module/angara_nic",
    "/sys/module/angara_memreg",
    "/sys/bus/pci/drivers/angara_nic",
    "/proc/self/status",
    "/dev/kmsg",
    "/sys/kernel/tracing/trace",
    "/sys/kernel/tracing/events/angara",
    "/sys/class/angara/angara0/",
    "/sys/kernel/debug/angara",
    "/sys/kernel/debug/angara_memreg",
    "/sys/kernel/tracing/trace",
    MESSAGES,
};
#define TOLD      (sizeof(told) / sizeof(told[0]))
#define TOLD_ROOT 4

/* @return the number of addresses; *files: how many could be read */
static unsigned told_scan(const frames_t *frames, const char *const *names, size_t count,
                          int as_nobody, unsigned *files)
{
    unsigned result[2] = {0, 0};
    int      pipes[2];
    pid_t    pid;

    MUST(pipe(pipes) == 0);
    pid = fork();
    if (pid == 0) {
        if (as_nobody) {
            become_nobody(0);
        }
        for (size_t i = 0; i < count; ++i) {
            result[0] += folder_scan(frames, names[i], &result[1]);
        }
        fflush(stdout);
        _exit(write(pipes[1], result, sizeof(result)) != sizeof(result));
    }
    MUST(read(pipes[0], result, sizeof(result)) == sizeof(result));
    MUST(waitpid(pid, NULL, 0) == pid);
    close(pipes[0]);
    close(pipes[1]);
    *files = result[1];
    return result[0];
}

/* Make every page that the device writes have something in it. */
static void pages_use(pe_t *a, pe_t *b, uint64_t lkey, uint64_t rkey)
{
    struct angara_event_record event;
    struct angara_desc self_marker = {.op = ANGARA_OP_MARKER_SELF, .operand = 1, .loffset = 1};

    for (unsigned i = 0; i < 40; ++i) {
        MUST(transfer(a, i % 2 ? ANGARA_OP_PUT : ANGARA_OP_GET, 0, lkey, i * 64, rkey, i * 64, 64));
        put(a, 0, i * 64, "bytes of a put", 14, 2048, i);
    }
    desc_post(a, &self_marker);
    MUST(!transfer(a, ANGARA_OP_PUT, 0, lkey, 0, rkey ^ 1ull << 40, 0, 64));
    pair_set(a, 0, a->info.node, b);
    b->doorbell->arm = 1;
    MUST(word32_wait(&b->status->arm_ack, 1));
    put(a, 0, 0, "wake", 4, 2048, 7);
    while (event_take(a, &event)) {
    }
}

static unsigned pe_scan(const frames_t *frames, const pe_t *pe)
{
    const struct angara_ioc_info *info = &pe->info;

    return words_scan(frames, pe->doorbell, PAGE, 1) + words_scan(frames, pe->status, PAGE, 1) +
           words_scan(frames, pe->event, info->event_entries * sizeof(*pe->event), 1) +
           words_scan(frames, pe->marker, info->marker_slots * 8, 1) +
           words_scan(frames, pe->pio, info->pio_bytes, 1) +
           words_scan(frames, pe->window, PAGE, 1) +
           words_scan(frames, pe->cmd, info->cmd_entries * sizeof(*pe->cmd), 1);
}

void test_secrets(void)
{
    int                      domain = domain_open(), memreg = memreg_open();
    size_t                   bytes = ANGARA_MR_HANDLES_MAX * 4;
    char                    *pages = pages_map(600), line[64];
    uint32_t                *stale;
    frames_t                 frames = {.count = 0};
    struct angara_ioc_mr_reg reg[2];
    unsigned                 files;
    uint64_t                 planted;
    pe_t                     pe[2];

    /* Without times: any number can look like an address. */
    MUST(run("echo nocontext-info >/sys/kernel/tracing/trace_options"));
    MUST(run("echo 1 >/sys/kernel/tracing/events/angara/enable"));
    stale = mmap(NULL, bytes, PROT_READ, MAP_SHARED, memreg, 0);
    MUST(stale != MAP_FAILED);
    memset(pages, 0, 600 * PAGE);
    for (unsigned i = 0; i < 2; ++i) {
        pe_open(domain, PAGE, &pe[i]);
        MUST(window_commit(pe[i].fd, 0, PAGE) == 0);
        MUST(mr_reg(memreg, domain, pages + i * 300 * PAGE, 300 * PAGE, ALL | ANGARA_MR_LOCAL_WRITE,
                    &reg[i]) == 0);
    }
    frame_add(&frames, stale);
    for (unsigned i = 0; i < 600; ++i) {
        frame_add(&frames, pages + i * PAGE);
    }
    qsort(frames.frames, frames.count, sizeof(frames.frames[0]), frame_compare);
    pair_set(&pe[0], 0, pe[0].info.node, &pe[1]);
    pages_use(&pe[0], &pe[1], reg[0].key, reg[1].key);
    madvise(pages, PAGE, MADV_DONTNEED);
    MUST(stale[reg[0].handle] == 1);

    OK_SAY(pe_scan(&frames, &pe[0]) + pe_scan(&frames, &pe[1]) == 0,
           "what a PE maps has no address of memory or the kernel");
    OK_SAY(words_scan(&frames, stale, bytes, 1) == 0, "nor have the stale words");
    OK_SAY(words_scan(&frames, &reg[0], sizeof(reg[0]), 0) == 0, "nor the answer to MR_REG");
    OK_SAY(told_scan(&frames, told, TOLD - TOLD_ROOT, 1, &files) == 0, "nor what a user can read");
    OK_SAY(files >= 12, "which are files like those of sysfs");
    MUST(run("dmesg --notime | grep angara >" MESSAGES));
    OK_SAY(told_scan(&frames, told + TOLD - TOLD_ROOT, TOLD_ROOT, 0, &files) == 0,
           "nor debugfs, the trace and the messages");
    OK_SAY(files >= 5, "which root can read");
    OK_SAY(run("grep -q angara_mr_create /sys/kernel/tracing/trace"), "and have something in them");

    /* That the scan would find one. */
    planted = frames.frames[frames.count / 2] * PAGE + 8;
    memcpy(pe[0].window + 80, &planted, sizeof(planted));
    OK_SAY(pe_scan(&frames, &pe[0]) == 1, "an address that is there is found");
    memset(pe[0].window + 80, 0, 8);
    snprintf(line, sizeof(line), "at 0x%llx,", (unsigned long long)planted);
    OK_SAY(text_scan(&frames, "planted", line) == 1, "in a text too");
    strcpy(line, "at ffffffff81000010");
    OK_SAY(text_scan(&frames, "planted", line) == 1, "and one of the kernel's");

    MUST(run("echo 0 >/sys/kernel/tracing/events/angara/enable; echo >/sys/kernel/tracing/trace; "
             "echo context-info >/sys/kernel/tracing/trace_options"));
    munmap(stale, bytes);
    for (unsigned i = 0; i < 2; ++i) {
        pe_close(&pe[i]);
    }
    close(memreg);
    close(domain);
    munmap(pages, 600 * PAGE);
}
