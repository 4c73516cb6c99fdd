/* SPDX-License-Identifier: BSD-3-Clause */
/* See kmod_user.h. */
#include "kmod_user.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#define HANG_S (20 * test_slow())

static unsigned number, failures;

void tap_ok(int condition, const char *file, int line, const char *text)
{
    int saved = errno;

    printf("%sok %u - %s\n", condition ? "" : "not ", ++number, text);
    if (!condition) {
        printf("# %s:%d: errno %d (%s)\n", file, line, saved, strerror(saved));
        failures++;
    }
    fflush(stdout);
}

void tap_skip(const char *text, const char *why)
{
    printf("ok %u - %s # SKIP %s\n", ++number, text, why);
    fflush(stdout);
}

int tap_finish(void)
{
    printf("1..%u\n", number);
    fflush(stdout);
    return failures != 0;
}

void must(int condition, const char *file, int line, const char *text)
{
    if (!condition) {
        printf("Bail out! %s:%d: %s: errno %d (%s)\n", file, line, text, errno, strerror(errno));
        fflush(stdout);
        _exit(1);
    }
}

int domain_open(void)
{
    int fd = open("/dev/angara0", O_RDWR | O_CLOEXEC);

    MUST(fd >= 0);
    return fd;
}

int info_get(int domain, struct angara_ioc_info *info)
{
    memset(info, 0, sizeof(*info));
    info->size    = sizeof(*info);
    info->version = ANGARA_UAPI_VERSION;
    return ioctl(domain, ANGARA_IOC_INFO, info);
}

int pe_ioctl(int domain, uint64_t window_size, struct angara_ioc_pe_create *out)
{
    memset(out, 0, sizeof(*out));
    out->size        = sizeof(*out);
    out->window_size = window_size;
    return ioctl(domain, ANGARA_IOC_PE_CREATE, out);
}

static void *part_map(int fd, unsigned part, uint64_t length, int prot)
{
    void *base = mmap(NULL, length, prot, MAP_SHARED, fd, (off_t)part << ANGARA_MMAP_SHIFT);

    MUST(base != MAP_FAILED);
    return base;
}

int pe_open_key(int domain, uint64_t window_size, uint64_t job_key, pe_t *pe)
{
    struct angara_ioc_pe_create create = {
        .size = sizeof(create), .window_size = window_size, .job_key = job_key};
    int rw = PROT_READ | PROT_WRITE;

    memset(pe, 0, sizeof(*pe));
    MUST(info_get(domain, &pe->info) == 0);
    if (ioctl(domain, ANGARA_IOC_PE_CREATE, &create) != 0) {
        return -1;
    }
    pe->fd          = create.fd;
    pe->index       = create.index;
    pe->generation  = create.generation;
    pe->window_size = window_size;
    pe->doorbell    = part_map(pe->fd, ANGARA_MMAP_DOORBELL, PAGE, rw);
    pe->status      = part_map(pe->fd, ANGARA_MMAP_STATUS, PAGE, PROT_READ);
    pe->cmd    = part_map(pe->fd, ANGARA_MMAP_CMD, pe->info.cmd_entries * sizeof(*pe->cmd), rw);
    pe->event  = part_map(pe->fd, ANGARA_MMAP_EVENT, pe->info.event_entries * sizeof(*pe->event),
                          PROT_READ);
    pe->marker = part_map(pe->fd, ANGARA_MMAP_MARKER,
                          (pe->info.marker_slots * 8 + PAGE - 1) / PAGE * PAGE, PROT_READ);
    pe->pio    = part_map(pe->fd, ANGARA_MMAP_PIO, pe->info.pio_bytes, rw);
    pe->window = part_map(pe->fd, ANGARA_MMAP_WINDOW, window_size, rw);
    return 0;
}

void pe_open(int domain, uint64_t window_size, pe_t *pe)
{
    MUST(pe_open_key(domain, window_size, 0, pe) == 0);
}

void pe_close(pe_t *pe)
{
    munmap((void *)pe->doorbell, PAGE);
    munmap((void *)pe->status, PAGE);
    munmap(pe->cmd, pe->info.cmd_entries * sizeof(*pe->cmd));
    munmap(pe->event, pe->info.event_entries * sizeof(*pe->event));
    munmap((void *)pe->marker, (pe->info.marker_slots * 8 + PAGE - 1) / PAGE * PAGE);
    munmap(pe->pio, pe->info.pio_bytes);
    munmap(pe->window, pe->window_size);
    close(pe->fd);
}

int window_commit(int fd, uint64_t offset, uint64_t length)
{
    struct angara_ioc_window_commit commit = {sizeof(commit), 0, offset, length};

    return ioctl(fd, ANGARA_IOC_WINDOW_COMMIT, &commit);
}

int mr_reg(int memreg, int domain, const void *addr, uint64_t length, uint32_t access,
           struct angara_ioc_mr_reg *out)
{
    memset(out, 0, sizeof(*out));
    out->size      = sizeof(*out);
    out->domain_fd = domain;
    out->access    = access;
    out->addr      = (uintptr_t)addr;
    out->length    = length;
    return ioctl(memreg, ANGARA_IOC_MR_REG, out);
}

int mr_dereg(int memreg, uint32_t handle)
{
    struct angara_ioc_mr_dereg dereg = {sizeof(dereg), 0, handle, 0};

    return ioctl(memreg, ANGARA_IOC_MR_DEREG, &dereg);
}

int mr_check(int memreg, uint32_t handle, uint64_t offset, uint64_t length)
{
    struct angara_ioc_mr_check check = {sizeof(check), 0, handle, 0, offset, length};

    return ioctl(memreg, ANGARA_IOC_MR_CHECK, &check) == 0 ? (int)check.stale : -1;
}

int word32_wait(const volatile uint32_t *word, uint32_t value)
{
    double end = now_seconds() + HANG_S;

    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) != value) {
        if (now_seconds() > end) {
            return 0;
        }
    }
    return 1;
}

int word_wait(const volatile uint64_t *word, uint64_t value)
{
    double end = now_seconds() + HANG_S;

    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) != value) {
        if (now_seconds() > end) {
            return 0;
        }
    }
    return 1;
}

void desc_post(pe_t *pe, const struct angara_desc *desc)
{
    pe->cmd[pe->cmd_prod % pe->info.cmd_entries]          = *desc;
    pe->cmd[pe->cmd_prod % pe->info.cmd_entries].pio_prod = pe->pio_prod;
    pe->cmd_prod++;
    __atomic_store_n(&pe->doorbell->cmd_prod, pe->cmd_prod, __ATOMIC_RELEASE);
    MUST(word32_wait(&pe->status->cmd_cons, pe->cmd_prod));
}

void pair_set(pe_t *pe, uint32_t pair, uint32_t node, const pe_t *to)
{
    struct angara_desc desc = {
        .op      = ANGARA_OP_PAIR,
        .pair    = pair,
        .operand = (uint64_t)node << 32 | to->index,
        .compare = to->generation,
    };

    desc_post(pe, &desc);
}

int event_take(pe_t *pe, struct angara_event_record *event)
{
    volatile struct angara_event_record *next = &pe->event[pe->event_cons % pe->info.event_entries];

    if (__atomic_load_n(&next->valid, __ATOMIC_ACQUIRE) != pe->event_cons + 1) {
        return 0;
    }
    *event = *next;
    pe->event_cons++;
    __atomic_store_n(&pe->doorbell->event_cons, pe->event_cons, __ATOMIC_RELEASE);
    return 1;
}

int op_perform(pe_t *pe, const struct angara_desc *desc, struct angara_event_record *event)
{
    struct angara_desc marker = {
        .op = ANGARA_OP_MARKER, .pair = desc->pair, .operand = ++pe->marker_value};
    struct angara_event_record unwanted;
    double                     end = now_seconds() + HANG_S;

    desc_post(pe, desc);
    desc_post(pe, &marker);
    do {
        if (event_take(pe, event != NULL ? event : &unwanted)) {
            return 0;
        }
        MUST(now_seconds() < end);
    } while (__atomic_load_n(&pe->marker[0], __ATOMIC_ACQUIRE) != pe->marker_value);
    return 1;
}

int transfer(pe_t *pe, uint8_t op, uint32_t pair, uint64_t lkey, uint64_t loffset, uint64_t rkey,
             uint64_t roffset, uint64_t length)
{
    struct angara_desc desc = {
        .op      = op,
        .pair    = pair,
        .lkey    = lkey,
        .loffset = loffset,
        .rkey    = rkey,
        .roffset = roffset,
        .length  = length,
    };

    return op_perform(pe, &desc, NULL);
}

static void put_write(pe_t *pe, struct angara_put *head, const void *data)
{
    uint32_t           slots = pe->info.pio_bytes / ANGARA_PIO_GRANULE;
    struct angara_put *slot  = (struct angara_put *)pe->pio + pe->pio_prod % slots;

    memcpy(head->data, data, head->length);
    memcpy((char *)slot + 4, (char *)head + 4, sizeof(*head) - 4);
    __atomic_store_n(&slot->valid, ++pe->pio_prod, __ATOMIC_RELEASE);
    MUST(word32_wait(&pe->status->pio_cons, pe->pio_prod));
}

void put(pe_t *pe, uint32_t pair, uint64_t offset, const void *data, unsigned length,
         uint64_t flag_offset, uint64_t flag)
{
    struct angara_put head = {
        .op     = flag_offset == ~0ull ? ANGARA_PIO_PUT : ANGARA_PIO_PUT_FLAG,
        .length = (uint16_t)length,
        .pair   = pair,
        .offset = offset,
    };

    if (flag_offset != ~0ull) {
        head.flag_offset = flag_offset;
        head.flag        = flag;
    }
    put_write(pe, &head, data);
}

int32_t notify(pe_t *pe, uint32_t pair, const void *data, unsigned length)
{
    struct angara_put head = {
        .op = ANGARA_PIO_NOTIFY, .length = (uint16_t)length, .pair = pair, .token = ++pe->token};

    put_write(pe, &head, data);
    MUST(word32_wait(&pe->status->notify_token, pe->token));
    return pe->status->notify_status;
}

long long value_read(const char *path, const char *name)
{
    char      line[256];
    long long value = -1;
    FILE     *file  = fopen(path, "r");

    MUST(file != NULL);
    while (fgets(line, sizeof(line), file) != NULL) {
        if (name == NULL) {
            value = atoll(line);
            break;
        }
        if (strncmp(line, name, strlen(name)) == 0 && strchr(" \t", line[strlen(name)]) != NULL) {
            value = atoll(line + strlen(name));
            break;
        }
    }
    fclose(file);
    return value;
}

int value_wait(const char *path, long long value)
{
    double end = now_seconds() + HANG_S;

    while (value_read(path, NULL) != value) {
        if (now_seconds() > end) {
            return 0;
        }
        usleep(1000);
    }
    return 1;
}

void file_write(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY);

    MUST(fd >= 0);
    MUST(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
}

long long pinned_pages(void)
{
    file_write("/proc/sys/vm/stat_refresh", "1");
    return value_read("/proc/vmstat", "nr_foll_pin_acquired") -
           value_read("/proc/vmstat", "nr_foll_pin_released");
}

int run(const char *format, ...)
{
    char    line[500];
    va_list args;
    int     length;

    va_start(args, format);
    length = vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    MUST(length > 0 && length < (int)sizeof(line));
    fflush(stdout);
    return system(line) == 0;
}
