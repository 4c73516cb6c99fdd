/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A driver and user of the emulated NIC without a VM: starts angara_emu, connects as QEMU would,
 * maps BAR 2 and the RAM file, and speaks the contract of angara_hw.h and angara.h. For tests; a
 * call that can't do its work fails the test. Waits poll for a condition and give up after
 * GUEST_HANG_S.
 *
 * A guest's RAM is handed out once, from the bottom, and never taken back.
 */
#ifndef GUEST_H
#define GUEST_H

#include "../common/clock.h"

#include <angara/angara.h>
#include <angara_hw.h>
#include <misc/angara.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define GUEST_HANG_S     (60 * test_slow())
#define GUEST_PAGE       4096u
#define GUEST_RAM        (64u << 20)
#define GUEST_VMS        4
#define GUEST_ADMIN      16u /* entries of the admin rings */
#define GUEST_MR_ENTRIES 1024u
#define GUEST_CMDS       64u
#define GUEST_EVENTS     16u
#define GUEST_SLOTS      32u
#define GUEST_WINDOW     64u /* pages */
#define GUEST_VECTORS    8u
#define GUEST_JOB        0x0100000000001234ull /* job key of all PEs */

/* ---- the emulator ---------------------------------------------------------------------------- */

typedef struct {
    pid_t    pid;
    unsigned vms;
    uint64_t ram;
    char     dir[64];
    int      control;
    char     options[8][16];
} fabric_t;

/*
 * Start it for `vms` VMs with more options, NULL-terminated. With EMU_REPLAY set, it logs, and
 * fabric_stop() replays: the replay must decide the same.
 */
void fabric_start(fabric_t *fabric, unsigned vms, const char *const *options);
/* The same with RAM files of another size; the guest maps the first GUEST_RAM bytes of them. */
void fabric_start_ram(fabric_t *fabric, unsigned vms, uint64_t ram, const char *const *options);
/* Ask it to quit; it must exit with 0. */
void fabric_stop(fabric_t *fabric);
/* The same in steps: end it, replay its log (@return the exit status), remove its files. */
void fabric_quit(fabric_t *fabric);
int  fabric_replay(fabric_t *fabric);
void fabric_remove(fabric_t *fabric);
/* A command of the control socket; must be answered "ok ...". @return what follows the ok. */
const char *fabric_control(fabric_t *fabric, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The same, must be refused. */
void fabric_control_error(fabric_t *fabric, const char *command);

/* ---- a VM and its driver --------------------------------------------------------------------- */

typedef struct {
    fabric_t                 *fabric;
    unsigned                  node;
    int                       socket;
    int                       bell_fd;
    int                       irq_fds[64];
    unsigned                  vectors;
    char                     *bar;
    size_t                    bar_size;
    struct angara_hw_control *control;
    char                     *ram;
    uint64_t                  ram_used;

    struct angara_hw_cmd  *cmd;
    struct angara_hw_resp *resp;
    uint32_t               admin_prod, admin_seen;
    uint32_t               next_generation;
    struct angara_hw_mr   *mrs;
    uint32_t               next_mr;
    void                  *pages[GUEST_MR_ENTRIES]; /* of regions, for the guest to free */
} guest_t;

/* Connect to the node's socket and map what comes. The device isn't touched. */
void guest_connect(guest_t *guest, fabric_t *fabric, unsigned node);
/* The VM ends. */
void guest_disconnect(guest_t *guest);
/* Reset, DMA on, MR table set up: what a driver does when it binds. */
void guest_bind(guest_t *guest);
/* The two handshakes. */
void guest_reset(guest_t *guest);
void guest_dma(guest_t *guest, int on);

/* Memory: a bus address. */
uint64_t guest_alloc(guest_t *guest, uint64_t size, uint64_t align);
void    *guest_at(guest_t *guest, uint64_t bus);

/* Post an admin command, with its id set. @return the id. */
uint32_t guest_admin_post(guest_t *guest, struct angara_hw_cmd *cmd);
/* Take the next response, in whatever order. */
struct angara_hw_resp guest_admin_take(guest_t *guest);
/* Post and wait for its answer: nothing else may be outstanding. @return ANGARA_HW_* */
uint32_t guest_admin(guest_t *guest, struct angara_hw_cmd *cmd);
uint32_t guest_admin_args(guest_t *guest, uint32_t opcode, uint64_t arg0, uint64_t arg1);
/* Has the vector been signalled since the last call? */
int  guest_irq(guest_t *guest, unsigned vector);
void guest_irq_wait(guest_t *guest, unsigned vector);

/* ---- regions --------------------------------------------------------------------------------- */

typedef struct {
    guest_t  *guest;
    uint64_t  key;
    uint64_t  length, first;
    unsigned  page_shift;
    uint64_t  npages;
    uint64_t *pages; /* bus addresses */
} region_t;

/* Scattered pages, a page list of so many levels, an entry of the table. first: in the first page.
 */
void region_register(region_t *region, guest_t *guest, uint32_t domain, uint64_t length,
                     unsigned access, unsigned levels, unsigned page_shift, uint64_t first);
void region_invalidate(region_t *region);
struct angara_hw_mr *region_entry(region_t *region);
void region_store(region_t *region, uint64_t offset, const void *src, uint64_t length);
void region_load(region_t *region, uint64_t offset, void *dst, uint64_t length);
void region_fill(region_t *region, unsigned seed);
/* Does [offset, offset + length) hold what fill(seed) puts at [from, from + length)? */
int region_holds(region_t *region, uint64_t offset, unsigned seed, uint64_t from, uint64_t length);

/* ---- PEs ------------------------------------------------------------------------------------- */

typedef struct {
    guest_t                    *guest;
    struct angara_hw_pe         hw;
    struct angara_doorbell     *doorbell;
    struct angara_status       *status;
    struct angara_desc         *cmd;
    struct angara_event_record *event;
    uint64_t                   *marker;
    char                       *pio;
    uint64_t                   *leaves; /* upper level of the window table: one word */
    uint64_t                   *window; /* its lower level: a word for each page */
    uint32_t                    cmd_prod, event_cons, arm, token;
    uint64_t                    pio_prod; /* granules */
    uint64_t                    marked;
} pe_t;

/* A context with fresh memory for a PE of that number; not yet created. All window pages committed.
 */
void pe_prepare(pe_t *pe, guest_t *guest, uint32_t index, uint32_t domain);
/* A page of the lower level of the PE's window table, in place of word `index` of the upper one. */
uint64_t *window_leaf(pe_t *pe, unsigned index);
/* @return ANGARA_HW_* */
uint32_t pe_create_status(pe_t *pe);
void     pe_create(pe_t *pe, guest_t *guest, uint32_t index, uint32_t domain);
void     pe_reset(pe_t *pe);
/* The same, of a PE whose process has died. */
void     pe_die(pe_t *pe);
uint32_t pe_state(pe_t *pe);
void    *pe_window(pe_t *pe, uint64_t offset);

/* Post a descriptor; waits for room. */
void pe_post(pe_t *pe, const struct angara_desc *desc);
/* Set an entry of the pair table, and wait until puts may name it. */
void pe_pair(pe_t *pe, uint32_t pair, const pe_t *target);
void pe_rma(pe_t *pe, uint8_t op, uint32_t pair, const region_t *local, uint64_t loffset,
            const region_t *remote, uint64_t roffset, uint64_t length);
/* result: NULL for a non-fetching one. */
void pe_atomic(pe_t *pe, uint32_t pair, angara_atomic_op_t op, uint8_t width, uint64_t operand,
               uint64_t compare, const region_t *remote, uint64_t roffset, const region_t *result,
               uint64_t loffset);
/* Post a marker towards a pair. @return the value that slot 0 will have. */
uint64_t pe_mark(pe_t *pe, uint8_t op, uint32_t pair);
void     pe_wait_mark(pe_t *pe, uint64_t value);
/* All that was posted to the pair has been performed. */
void pe_flush(pe_t *pe, uint32_t pair);

/* Write a put; waits for room. */
void pe_put(pe_t *pe, uint32_t pair, uint64_t offset, const void *src, uint32_t length);
void pe_put_flag(pe_t *pe, uint32_t pair, uint64_t offset, const void *src, uint32_t length,
                 uint64_t flag_offset, uint64_t flag);
/* @return notify_status. */
int32_t pe_notify(pe_t *pe, uint32_t pair, const void *src, uint32_t length);
/* A put with this head, whatever it says, and the bytes behind the first 16. */
void pe_put_raw(pe_t *pe, const struct angara_put *head, const void *more, uint32_t granules);

/* Arm, and wait until that was noted. */
void pe_arm(pe_t *pe);
/* Take the next event if there is one. */
int  pe_event(pe_t *pe, struct angara_event_record *event);
void pe_event_wait(pe_t *pe, struct angara_event_record *event);
/* The next event must be this one. */
void pe_expect(pe_t *pe, uint32_t type, uint32_t pair, int32_t status);

/* ---- waiting --------------------------------------------------------------------------------- */

typedef struct {
    uint64_t deadline;
    unsigned turns;
} wait_t;

/* for (wait_t w = {0}; !condition; wait_turn(&w, "what")) {} */
void wait_turn(wait_t *wait, const char *what);

#define WAIT_FOR(_condition)                                                  \
    for (wait_t wait_ = {0}; !(_condition); wait_turn(&wait_, #_condition)) { \
    }

#endif
