/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A user of the kernel modules for tests in a VM: opens a domain, makes PEs, rings and regions with
 * bare system calls. What fails ends the test program.
 */
#ifndef KMOD_USER_H
#define KMOD_USER_H

#include "../../common/clock.h"

#include <misc/angara.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define PAGE 4096u

/* ---- TAP ------------------------------------------------------------------------------------- */

/* Count and print a result; text says what must hold. */
void tap_ok(int condition, const char *file, int line, const char *text);
void tap_skip(const char *text, const char *why);
/* Print the plan. @return exit status */
int tap_finish(void);
#define OK(condition) tap_ok(!!(condition), __FILE__, __LINE__, #condition)
#define OK_SAY(condition, ...)                            \
    do {                                                  \
        char text_[200];                                  \
                                                          \
        snprintf(text_, sizeof(text_), __VA_ARGS__);      \
        tap_ok(!!(condition), __FILE__, __LINE__, text_); \
    } while (0)
#define OK_ERRNO(call, e) OK((call) == -1 && errno == (e))
/* Setting up; the test can't go on without. */
#define MUST(condition) must(!!(condition), __FILE__, __LINE__, #condition)
void must(int condition, const char *file, int line, const char *text);

/* ---- domain, PE, region ---------------------------------------------------------------------- */

typedef struct {
    int                              fd;
    uint32_t                         index, generation;
    struct angara_ioc_info           info;
    volatile struct angara_doorbell *doorbell;
    volatile struct angara_status   *status;
    struct angara_desc              *cmd;
    struct angara_event_record      *event;
    volatile uint64_t               *marker;
    char                            *pio;
    char                            *window;
    uint64_t                         window_size;
    uint32_t                         cmd_prod, pio_prod, event_cons, token;
    uint64_t                         marker_value; /* of the last marker posted to slot 0 */
} pe_t;

int  domain_open(void);
int  info_get(int domain, struct angara_ioc_info *info);
int  pe_ioctl(int domain, uint64_t window_size, struct angara_ioc_pe_create *out);
void pe_open(int domain, uint64_t window_size, pe_t *pe);
/* With a granted job key. @return 0, or -1: errno says why there is none */
int  pe_open_key(int domain, uint64_t window_size, uint64_t job_key, pe_t *pe);
void pe_close(pe_t *pe);
int  window_commit(int fd, uint64_t offset, uint64_t length);
int  mr_reg(int memreg, int domain, const void *addr, uint64_t length, uint32_t access,
            struct angara_ioc_mr_reg *out);
int  mr_dereg(int memreg, uint32_t handle);
/* Of [offset, offset + length). @return 0: not stale, 1: stale, -1: errno says why not. */
int mr_check(int memreg, uint32_t handle, uint64_t offset, uint64_t length);

/* Post a descriptor; wait until it was fetched. */
void desc_post(pe_t *pe, const struct angara_desc *desc);
/* Set entry `pair` of the pair table to the PE `to` of node `node`. */
void pair_set(pe_t *pe, uint32_t pair, uint32_t node, const pe_t *to);
/* Put at most 16 bytes into the pair's window, then a flag if flag_offset isn't ~0. */
void put(pe_t *pe, uint32_t pair, uint64_t offset, const void *data, unsigned length,
         uint64_t flag_offset, uint64_t flag);
/* Notify put of at most 16 bytes. @return its outcome */
int32_t notify(pe_t *pe, uint32_t pair, const void *data, unsigned length);
/* Take the next event, if there is one by now. */
int event_take(pe_t *pe, struct angara_event_record *event);
/*
 * Post an operation and a marker (slot 0) behind it. @return 1 when the marker has come, 0 when an
 * event has come instead, which is in *event then (NULL: not wanted).
 */
int op_perform(pe_t *pe, const struct angara_desc *desc, struct angara_event_record *event);
/* The same for an ANGARA_OP_PUT or GET. */
int transfer(pe_t *pe, uint8_t op, uint32_t pair, uint64_t lkey, uint64_t loffset, uint64_t rkey,
             uint64_t roffset, uint64_t length);
/* Wait for *word == value. @return 1, or 0 after some seconds */
int word_wait(const volatile uint64_t *word, uint64_t value);
int word32_wait(const volatile uint32_t *word, uint32_t value);

/* ---- the machine ----------------------------------------------------------------------------- */

/* Number in a file of one value, or after "name " in a file of counters. */
long long value_read(const char *path, const char *name);
#define COUNTERS    "/sys/kernel/debug/angara/angara0/counters"
#define SYSFS(name) value_read("/sys/class/angara/angara0/" name, NULL)
/* Wait for a value in sysfs: what ends with a process ends when it is being reaped. */
int value_wait(const char *path, long long value);
/* Pages pinned by FOLL_PIN in the whole system. */
long long pinned_pages(void);
void      file_write(const char *path, const char *text);
/* Run a command line of the shell. @return 1 if it succeeded. */
int run(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
