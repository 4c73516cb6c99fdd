/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The emulated NIC: one process that is the device of N VMs and the network between them.
 *
 * Who owns which memory
 *   - BAR 2 (one memfd a node): shared with the guest, who may change any byte of it at any time.
 * The device keeps copies of all that it wrote there and never reads it back.
 *   - Guest RAM (a file mapped by QEMU too): the same. It is reached by emu_bus() and nothing else,
 *     which answers NULL for what is no memory and for everything while DMA is off; pointers that
 * it gave are not kept across turns.
 *   - Everything else is private. What comes from a guest is copied to private memory once and then
 *     validated; what was validated is never read again from the guest.
 *
 * Threads: one. The engine's chaos mode has no thread of its own here (see nothread.c), so
 * nothing is in flight between two turns: what is cancelled between turns can't land any more, and
 * admin commands are acknowledged when they have been executed. Engine callbacks run under the
 * engine's lock: they raise events but never call the engine.
 *
 * Work per turn is bounded for each PE (EMU_TURN_*), so that none can starve the others. What its
 * pairs have queued goes first, in turns of the pairs; new commands have what is left.
 */
#ifndef EMU_H
#define EMU_H

#include "engine/engine.h"

#include <angara_hw.h>
#include <misc/angara.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define EMU_NODES_MAX    16
#define EMU_VECTORS_MAX  64
#define EMU_RANGES_MAX   6 /* of bus addresses: RAM below and above the hole, mapped BARs */
#define EMU_PAGE         4096u
#define EMU_OPCODES      (ANGARA_HW_DOMAIN_INVALIDATE + 1) /* of admin commands, and 0 */
#define EMU_LEVELS_MAX   3
#define EMU_RING_MAX     65536u       /* entries of a command or event ring */
#define EMU_WINDOW_MAX   (1u << 18)   /* pages of a put window: 1 GiB */
#define EMU_OFFLOAD_MAX  (1ull << 30) /* bytes of a ring operation */
#define EMU_ADMIN_MAX    4096u        /* entries of the admin rings */
#define EMU_ADMIN_WAIT   64u          /* admin commands fetched but not executed */
#define EMU_TURN_COUNT   16u          /* puts, and commands, of one PE in one turn */
#define EMU_TURN_BYTES   (256u << 10) /* bytes moved for one PE in one turn */
#define EMU_PENDING_MAX  256u         /* operations of one PE fetched but not performed */
#define EMU_GUESS_NS     1000000ull   /* what a wrong key costs its PE */
#define EMU_PUT_MAX      (sizeof(struct angara_put) + UINT16_MAX + ANGARA_PIO_INLINE)
#define EMU_NEVER        UINT64_MAX
#define EMU_PE_FREE      (-1) /* emu_pe_t.state, besides ANGARA_PE_* */
#define EMU_VECTOR_ADMIN 0

typedef struct emu      emu_t;
typedef struct emu_node emu_node_t;
typedef struct emu_pe   emu_pe_t;

/* Set by the command line; constant afterwards, but for the time-out. */
typedef struct {
    uint32_t pe_max;
    uint32_t mr_max;
    uint32_t vectors;
    uint32_t pio_bytes;
    uint32_t marker_slots;
    int      loopback;
    uint64_t chaos; /* seed, 0 for off */
    uint32_t chaos_delay_us;
    uint32_t timeout_ms; /* an operation that can't reach its node faults after that */
} emu_config_t;

/* Bus addresses [bus, bus + size) are memory at base. */
typedef struct {
    uint64_t bus;
    uint64_t size;
    char    *base;
} emu_range_t;

/* An entry of a PE's pair table. The engine knows it by its first member. */
typedef struct emu_pair {
    ang_pair_t base;
    emu_pe_t  *pe;
    uint32_t   index;
    uint32_t   node, target, generation; /* the far end */
    uint8_t    met;                      /* the far end has been seen */
    uint8_t    down;                     /* PEER_DOWN has been raised */
    uint64_t   stall_since;              /* ns; 0: it isn't waiting for a link */
} emu_pair_t;

struct emu_pe {
    emu_node_t         *node;
    uint32_t            index;
    int                 state;
    struct angara_hw_pe hw; /* validated copy */
    ang_engine_t        engine;
    emu_pair_t        **pairs; /* [ANGARA_PAIRS_MAX], NULL until set */
    uint64_t *window_cache;    /* [hw.window_pages]: 0 unknown, 1 absent, else the page's word */
    uint8_t  *put;             /* [EMU_PUT_MAX]: the put being looked at: head, data */

    uint32_t cmd_cons;
    uint32_t event_prod, event_cons, event_lost;
    uint64_t pio_cons; /* granules, 64 bits of what status.pio_cons says */
    uint32_t arm_seen; /* last doorbell.arm taken note of */
    uint32_t armed;    /* the same, or 0 */
    uint32_t notify_token;
    int32_t  notify_status;
    uint64_t counters[32];
    uint64_t counted; /* operations of the engine that the counters include */

    uint64_t guess_until; /* no commands before that: wrong keys are slow */
    uint64_t delay_until; /* control's delay: 0 if no work waits for it */
    uint64_t moved;       /* bytes that the engine had moved when the turn began */
    uint8_t  dirty;       /* status differs from what the owner sees */
    uint8_t  dropped;     /* of a failed PE: its queues have been */
};

/* An admin command fetched but not executed. */
typedef struct {
    struct angara_hw_cmd cmd;
    uint64_t             due; /* ns */
    uint8_t              used;
} emu_admin_t;

/* What the control socket has asked of a node. */
typedef struct {
    uint64_t delay_ns;                    /* of puts and commands */
    uint64_t admin_delay_ns[EMU_OPCODES]; /* by opcode; EMU_NEVER */
    unsigned lose_irqs;                   /* so many interrupts aren't sent */
    uint64_t muted_until;                 /* ns; 0: it isn't */
    uint8_t  stuck_reset, stuck_dma, frozen, removed;
} emu_trouble_t;

struct emu_node {
    emu_t   *emu;
    uint32_t id;

    /* ivshmem, server.c */
    const char *socket_path;
    int         listen_fd, client_fd; /* -1: none */
    int         doorbell_fd;          /* the guest rings us; a hint */
    int         irq_fds[EMU_VECTORS_MAX];

    /* memory, memory.c */
    const char *ram_path;
    uint64_t    ram_size;
    char       *ram; /* NULL unless a VM is connected */
    emu_range_t ranges[EMU_RANGES_MAX];
    unsigned    num_ranges;

    /* registers, node.c */
    int                       bar_fd;
    size_t                    bar_size;
    char                     *bar;
    struct angara_hw_control *control;
    uint64_t                  doorbell_offset, pio_offset;
    int                       dma, link;
    uint32_t                  reset_ack, dma_ack, alive, key_mismatches;
    uint64_t                  alive_at, muted_at;
    uint32_t                  muted_ms; /* how long it was, rounded up; 0 until it ends */
    struct angara_hw_control  unmuted;  /* what the guest is to see again */

    /* admin queue, admin.c */
    int         admin_open, admin_failed;
    uint64_t    admin_cmd, admin_resp;
    uint32_t    admin_entries, admin_cons, admin_responses;
    emu_admin_t admin_waiting[EMU_ADMIN_WAIT];
    unsigned    admin_num_waiting;

    /* regions, mr.c */
    uint64_t             mr_table;
    uint32_t             mr_entries;
    struct angara_hw_mr *mr_cache; /* [mr_max] by index; key 0: not cached */

    emu_pe_t     *pes; /* [pe_max] */
    emu_trouble_t trouble;
};

struct emu {
    emu_config_t config;
    emu_node_t   nodes[EMU_NODES_MAX];
    unsigned     num_nodes;
    unsigned     num_pes;  /* that exist, of all nodes */
    uint64_t     now;      /* ns, read once a turn */
    uint64_t     random;   /* of chaos in the admin queue */
    unsigned     bad_keys; /* so many remote accesses fail with a wrong key */
    int          busy;     /* something is queued: don't sleep long */
    uint64_t     admin_at; /* ns, when an admin command was last executed */
    int          quit;
    FILE        *log;
    int          replaying;
    const char  *control_path;
    int          control_fd;
};

void       emu_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
extern int emu_verbose;

/* ---- memory.c -------------------------------------------------------------------------------- */

/* Map the guest's RAM, creating the file if there is none. 0, or -1 and the reason printed. */
int  emu_memory_map(emu_node_t *node);
void emu_memory_unmap(emu_node_t *node);
/* Let [bus, bus + size) be the file's memory (NULL: nobody's): another device's BAR. */
int emu_memory_add(emu_node_t *node, uint64_t bus, uint64_t size, const char *path);
/* Memory behind [bus, bus + length), or NULL: outside, across two ranges, or DMA is off. */
void *emu_bus(emu_node_t *node, uint64_t bus, uint64_t length);
/* Copy from and to guest memory. @return 1, or 0 if it is none. */
int emu_read(emu_node_t *node, void *dst, uint64_t bus, uint64_t length);
/*
 * Copy: one word of up to 8 bytes, naturally aligned at both ends, is read at once; aligned words
 * of the target are written at once if the copy is small.
 */
void emu_copy(void *dst, const void *src, size_t length);
/* A write to a page that can't be had (no room in /dev/shm) hits a private page instead. */
void emu_memory_guard(void);

/* ---- node.c: registers, reset, link ---------------------------------------------------------- */

int  emu_node_init(emu_node_t *node);
void emu_node_cleanup(emu_node_t *node);
/* Do what reset_req and dma_req ask for. */
unsigned emu_node_handshakes(emu_node_t *node);
/* Look at the registers, the admin queue and all PEs once. @return how much was done. */
unsigned emu_node_turn(emu_node_t *node);
/* A VM has come (its RAM is mapped) or gone. */
void emu_node_attach(emu_node_t *node);
void emu_node_detach(emu_node_t *node);
void emu_node_link(emu_node_t *node, int up);
/*
 * The node does nothing for so long, its control page reads all ones, and what is written there
 * gets lost; 0 ends that. @return 0, or -1: there is no device
 */
int emu_node_mute(emu_node_t *node, uint64_t ns);
/* Show another version of the register file. @return 0, or -1: there is no device */
int emu_node_version(emu_node_t *node, uint32_t version);
/* Surprise removal: the BAR reads all ones. And the reverse. */
void emu_node_remove(emu_node_t *node);
void emu_node_replug(emu_node_t *node);
int  emu_linked(const emu_node_t *a, const emu_node_t *b);
void emu_irq(emu_node_t *node, uint32_t vector);

/* ---- admin.c --------------------------------------------------------------------------------- */

unsigned emu_admin_turn(emu_node_t *node);
void     emu_admin_reset(emu_node_t *node);
/* Execute one command. @return ANGARA_HW_* */
uint32_t emu_admin_execute(emu_node_t *node, const struct angara_hw_cmd *cmd, uint32_t *generation);

/* ---- pe.c ------------------------------------------------------------------------------------ */

uint32_t emu_pe_create(emu_node_t *node, const struct angara_hw_pe *hw);
/* End a PE: nothing of it is queued or can be reached afterwards. status: for PEER_DOWN. */
void emu_pe_destroy(emu_pe_t *pe, angara_status_t status);
/* Its owner wrote nonsense. Callable from engine callbacks. */
void     emu_pe_fail(emu_pe_t *pe, const char *why);
unsigned emu_pe_turn(emu_pe_t *pe);
/* Leave the engine the bytes that this turn hasn't moved yet. */
void emu_pe_budget(emu_pe_t *pe);
/*
 * The live PE that a pair names, with the job key of the pair's own, or NULL: nothing is done to a
 * PE but by who has found it here.
 */
emu_pe_t               *emu_pe_find(const emu_pair_t *pair);
struct angara_doorbell *emu_pe_doorbell(emu_pe_t *pe);
/* Show the owner what has changed. */
void emu_pe_status(emu_pe_t *pe);
/* Memory of the PE's put window, for at most *length bytes; shortens *length. NULL: not committed.
 */
void *emu_pe_window(emu_pe_t *pe, uint64_t offset, uint64_t *length);

/* ---- cmd.c: the command ring ----------------------------------------------------------------- */

unsigned emu_cmd_turn(emu_pe_t *pe, uint32_t prod);

typedef enum { EMU_DONE, EMU_LATER } emu_next_t;
/* Perform or queue one descriptor; EMU_LATER: it stays in the ring. May fail the PE. */
emu_next_t emu_cmd_execute(emu_pe_t *pe, const struct angara_desc *desc);
/* Has the target of a set pair gone (and can that be known)? Then raise PEER_DOWN, once. */
void emu_pair_check(emu_pair_t *pair, angara_status_t status);
/* The same for every pair of all nodes. */
void emu_pairs_check(emu_t *emu, angara_status_t status);
void emu_pairs_free(emu_pe_t *pe);

/* ---- put.c: the put ring --------------------------------------------------------------------- */

unsigned emu_put_turn(emu_pe_t *pe);
/* Bytes of the largest put. */
uint32_t emu_put_max(const emu_config_t *config);
/* Granules of the put with this head, 0 if it makes no sense or passes the end of the ring. */
uint32_t emu_put_granules(emu_pe_t *pe, const struct angara_put *head, uint32_t slots_left);
/* Perform the put whose head, and all data behind it, is in pe->put. EMU_LATER: it stays. */
emu_next_t emu_put_execute(emu_pe_t *pe);

/* ---- event.c --------------------------------------------------------------------------------- */

/* Event about a pair (NULL: none). Lost and counted if the ring is full. */
void emu_event_raise(emu_pe_t *pe, uint32_t type, const emu_pair_t *pair, angara_status_t status,
                     uint64_t key);
/* @return ANGARA_OK, or ANGARA_ERR_NO_RESOURCE if there is no room. */
angara_status_t emu_event_notify(emu_pe_t *to, const emu_pe_t *from, const void *data,
                                 uint32_t length);
/* Take note of doorbell.event_cons. @return 0 if it makes no sense: the PE has failed. */
int emu_event_consume(emu_pe_t *pe);
/* Interrupt if armed. */
void emu_event_wake(emu_pe_t *pe);
/* A key or a PE that isn't there costs the PE time: there is no guessing. */
void emu_pe_slow(emu_pe_t *pe);
/* A fault towards a pair's far end: count, throttle guesses, tell. Doesn't touch the pair's error.
 */
void emu_event_fault(emu_pair_t *pair, uint64_t key, angara_status_t status);

/* ---- mr.c: regions --------------------------------------------------------------------------- */

/*
 * Check an access; *addr: what emu_mr_at() wants, grows with the offset. ANGARA_INPROGRESS, of
 * both: the region is suspended, call again.
 */
angara_status_t emu_mr_check(emu_node_t *node, uint32_t domain, uint64_t key, uint64_t offset,
                             uint64_t length, unsigned access, uint64_t *addr);
/* Memory at addr of a region that was checked, for at most *length bytes; shortens *length. */
angara_status_t emu_mr_at(emu_node_t *node, uint64_t key, uint64_t addr, uint64_t *length,
                          char **at);
void            emu_mr_invalidate(emu_node_t *node, uint64_t key);
void            emu_mr_invalidate_domain(emu_node_t *node, uint32_t domain);
void            emu_mr_reset(emu_node_t *node);

/* ---- backend.c ------------------------------------------------------------------------------- */

extern const ang_backend_t emu_backend;
/* Can the pair's far end be reached now? ANGARA_INPROGRESS: not yet. */
angara_status_t emu_pair_reach(emu_pair_t *pair, emu_pe_t **target);

/* ---- server.c, control.c --------------------------------------------------------------------- */

int  emu_server_open(emu_node_t *node);
void emu_server_close(emu_node_t *node);
/* Handle what poll() reported for the node's descriptors. */
void emu_server_accept(emu_node_t *node);
void emu_server_hangup(emu_node_t *node);
int  emu_listen(const char *path);

int  emu_control_open(emu_t *emu);
void emu_control_close(emu_t *emu);
/* Descriptors to poll, and their events. */
struct pollfd;
unsigned          emu_control_pollfds(emu_t *emu, struct pollfd *fds);
void              emu_control_events(emu_t *emu, const struct pollfd *fds, unsigned count);
extern const char emu_control_help[];
#define EMU_CLIENTS_MAX 8

/* ---- log.c, replay.c ------------------------------------------------------------------------- */

/*
 * A line: kind, time, node, PE or -1, the formatted words, ':', bytes in hex.
 *   what was handed to the device
 *     B, E  a VM came, went     R, D  reset, DMA request    A  admin command: its outcome
 *     C     descriptor: state   U  put: granules left in the ring
 *     L     link                Y, T, Z  control's badkey, timeout, map
 *   what it read in guest memory on the way
 *     M     MR entry: index     P, W  words of a page list, of a window table: bus address
 *   what it decided
 *     F     fault: pair, status X  PE failed: why
 */
void emu_log(emu_node_t *node, char kind, int pe, const void *bytes, size_t length,
             const char *format, ...) __attribute__((format(printf, 6, 7)));
/* 0: the device decided as it did. */
int emu_replay(emu_t *emu, const char *path);
/* In a replay: the device has decided. */
void emu_replay_decided(emu_node_t *node, char kind, int pe, const char *text);

#endif
