/* SPDX-License-Identifier: BSD-3-Clause */
/* kmod_fuzz: nonsense in the rings that a user shares with the device. */
#include "kmod_fuzz.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ALL          15u /* rights */

#define REGION_BYTES (8u * PAGE)

/* A PE with a region between two pages of canaries. */
typedef struct {
    int                      domain, memreg;
    pe_t                     pe;
    char                    *pages;
    struct angara_ioc_mr_reg reg;
} party_t;

static void party_open(party_t *p)
{
    p->domain = domain_open();
    p->memreg = open("/dev/angara_memreg", O_RDWR | O_CLOEXEC);
    p->pages  = pages_map(10);
    MUST(p->memreg >= 0);
    memset(p->pages, 0x77, 10 * PAGE);
    pe_open(p->domain, 4 * PAGE, &p->pe);
    MUST(window_commit(p->pe.fd, 0, 3 * PAGE) == 0);
    MUST(mr_reg(p->memreg, p->domain, p->pages + PAGE, REGION_BYTES, ALL, &p->reg) == 0);
}

/* @return 1 if nothing around the region was written */
static int party_close(party_t *p)
{
    int intact = 1;

    for (unsigned i = 0; i < PAGE; ++i) {
        intact &= p->pages[i] == 0x77 && p->pages[9 * PAGE + i] == 0x77;
    }
    pe_close(&p->pe);
    close(p->memreg);
    close(p->domain);
    munmap(p->pages, 10 * PAGE);
    return intact;
}

/*
 * Traffic that must not notice: checks each byte until the pipe is closed. @return 0, or what went
 * wrong
 */
static int bystander_run(int until)
{
    struct pollfd              poll_fd = {.fd = until, .events = POLLIN};
    struct angara_event_record event;
    party_t                    a, b;
    volatile uint64_t         *flag;
    unsigned                   n = 0;

    party_open(&a);
    party_open(&b);
    pair_set(&a.pe, 0, a.pe.info.node, &b.pe);
    flag = (volatile uint64_t *)(void *)b.pe.window;
    while (poll(&poll_fd, 1, 0) == 0) {
        unsigned length = 1 + n * 37 % (REGION_BYTES - 1);

        n++;
        memset(a.pages + PAGE, (int)n, length);
        if (!transfer(&a.pe, ANGARA_OP_PUT, 0, a.reg.key, 0, b.reg.key, 0, length) ||
            memcmp(a.pages + PAGE, b.pages + PAGE, length) != 0) {
            return 1;
        }
        put(&a.pe, 0, 64, &n, sizeof(n), 0, n);
        if (!word_wait(flag, n) || memcmp(b.pe.window + 64, &n, sizeof(n)) != 0) {
            return 2;
        }
        if (event_take(&a.pe, &event) || event_take(&b.pe, &event) ||
            a.pe.status->state != ANGARA_PE_RUNNING || b.pe.status->state != ANGARA_PE_RUNNING) {
            return 3;
        }
    }
    printf("# the bystander has moved data %u times\n", n);
    fflush(stdout);
    return party_close(&a) && party_close(&b) ? n < 20 ? 5 : 0 : 4;
}

/* What a thread rewrites while the other posts. */
static struct {
    pe_t    *pe; /* atomic; NULL: nothing now */
    int      idle, stop;
    uint64_t seed;
} rewriter;

static void slot_spoil(rng_t *rng, void *slot, unsigned bytes)
{
    volatile uint64_t *words = slot;

    words[below(rng, bytes / 8)] = nasty(rng);
}

static void *rings_rewrite(void *unused)
{
    rng_t rng = rng_make(rewriter.seed, 1);

    (void)unused;
    while (!__atomic_load_n(&rewriter.stop, __ATOMIC_ACQUIRE)) {
        pe_t *pe = __atomic_load_n(&rewriter.pe, __ATOMIC_ACQUIRE);

        __atomic_store_n(&rewriter.idle, pe == NULL, __ATOMIC_RELEASE);
        if (pe == NULL) {
            usleep(100);
        } else if (below(&rng, 3)) {
            slot_spoil(&rng, &pe->cmd[below(&rng, pe->info.cmd_entries)], sizeof(pe->cmd[0]));
        } else {
            slot_spoil(&rng, pe->pio + below(&rng, pe->info.pio_bytes / 64) * 64, 64);
        }
    }
    return unused;
}

static struct angara_desc desc_draw(rng_t *rng, const party_t *self, const party_t *other)
{
    static const uint8_t ops[] = {ANGARA_OP_PUT,    ANGARA_OP_PUT_INLINE,  ANGARA_OP_GET,
                                  ANGARA_OP_ATOMIC, ANGARA_OP_MARKER_SELF, ANGARA_OP_MARKER};
    struct angara_desc   desc  = {
           .op      = ops[below(rng, sizeof(ops))],
           .atomic  = (uint8_t)below(rng, 6),
           .pair    = below(rng, 2),
           .lkey    = self->reg.key,
           .loffset = below(rng, 256),
           .rkey    = other->reg.key,
           .roffset = below(rng, 1000) * 8,
           .length  = below(rng, REGION_BYTES / 2),
           .operand = draw(rng),
    };

    desc.width = desc.op == ANGARA_OP_ATOMIC ? 8 : 0;
    if (desc.op == ANGARA_OP_PUT_INLINE) {
        desc.length = below(rng, 33);
    }
    switch (below(rng, 40)) {
    case 0: /* a key of somebody's: the table is small, and not secret */
        desc.rkey = (draw(rng) << 24) | below(rng, 8);
        break;
    case 1:
        desc.lkey = (draw(rng) << 24) | below(rng, 8);
        break;
    case 2:
        desc.roffset = nasty(rng);
        break;
    case 3:
        desc.length = nasty(rng);
        break;
    case 4:
        desc.loffset = nasty(rng);
        break;
    case 5: /* another peer, which can't be met by its number alone */
        desc = (struct angara_desc){.op      = ANGARA_OP_PAIR,
                                    .pair    = 2 + below(rng, 4),
                                    .operand = below(rng, 4) ? below(rng, 64) : nasty(rng),
                                    .compare = (uint32_t)draw(rng)};
        break;
    case 6:
        if (below(rng, 5) == 0) { /* nonsense: the end of the PE */
            slot_spoil(rng, &desc, sizeof(desc));
        }
        break;
    default:
        break;
    }
    return desc;
}

static void cmd_attack(rng_t *rng, party_t *self, const party_t *other)
{
    pe_t              *pe   = &self->pe;
    struct angara_desc desc = desc_draw(rng, self, other);

    pe->cmd[pe->cmd_prod % pe->info.cmd_entries] = desc;
    pe->cmd_prod++;
    /* Usually as it should be; the device falls behind, and then it is nonsense too. */
    if (pe->cmd_prod - pe->status->cmd_cons >= pe->info.cmd_entries - 1) {
        usleep(100);
    }
    __atomic_store_n(&pe->doorbell->cmd_prod, below(rng, 400) ? pe->cmd_prod : (uint32_t)nasty(rng),
                     __ATOMIC_RELEASE);
}

static void pio_attack(rng_t *rng, party_t *self)
{
    pe_t             *pe    = &self->pe;
    uint32_t          slots = pe->info.pio_bytes / ANGARA_PIO_GRANULE;
    struct angara_put head  = {
         .valid       = pe->pio_prod + 1,
         .op          = (uint8_t)(1 + below(rng, 3)),
         .length      = (uint16_t)below(rng, 17),
         .pair        = below(rng, 2),
         .token       = below(rng, 100),
         .offset      = below(rng, 3 * PAGE - 16),
         .flag_offset = below(rng, 300) * 8,
         .flag        = draw(rng),
    };

    if (below(rng, 200) == 0) {
        slot_spoil(rng, &head, sizeof(head));
    }
    if (below(rng, 20) == 0) {
        head.offset = nasty(rng);
    }
    memcpy(pe->pio + pe->pio_prod % slots * ANGARA_PIO_GRANULE + 4, (char *)&head + 4,
           sizeof(head) - 4);
    __atomic_store_n((uint32_t *)(void *)(pe->pio + pe->pio_prod % slots * ANGARA_PIO_GRANULE),
                     head.valid, __ATOMIC_RELEASE);
    pe->pio_prod++;
}

static void index_attack(rng_t *rng, party_t *self)
{
    struct angara_event_record event;
    pe_t                      *pe = &self->pe;

    switch (below(rng, 4)) {
    case 0:
        pe->doorbell->arm = (uint32_t)draw(rng);
        break;
    case 1:
        slot_spoil(rng, pe->window, PAGE);
        break;
    case 2:
        if (below(rng, 20) == 0) {
            pe->doorbell->event_cons = (uint32_t)nasty(rng);
        }
        break;
    default:
        while (event_take(pe, &event)) {
        }
        break;
    }
}

/* Attacks until the PE fails, or has been through many. @return how many */
static unsigned party_attack(rng_t *rng, party_t *self, party_t *other, unsigned limit)
{
    unsigned n = 0;

    pair_set(&self->pe, 0, self->pe.info.node, &other->pe);
    pair_set(&self->pe, 1, self->pe.info.node, &self->pe);
    if (below(rng, 2)) {
        __atomic_store_n(&rewriter.pe, &self->pe, __ATOMIC_RELEASE);
    }
    while (n < limit && self->pe.status->state == ANGARA_PE_RUNNING) {
        switch (below(rng, 4)) {
        case 0:
            pio_attack(rng, self);
            break;
        case 1:
            index_attack(rng, self);
            break;
        default:
            cmd_attack(rng, self, other);
            break;
        }
        /* A pair in error does nothing any more. */
        if (n % 64 == 63) {
            struct angara_desc desc = {.op      = ANGARA_OP_PAIR,
                                       .pair    = 0,
                                       .operand = (uint64_t)self->pe.info.node << 32 |
                                                  other->pe.index,
                                       .compare = other->pe.generation};

            self->pe.cmd[self->pe.cmd_prod++ % self->pe.info.cmd_entries] = desc;
            usleep(200);
        }
        n++;
    }
    __atomic_store_n(&rewriter.pe, NULL, __ATOMIC_RELEASE);
    while (!__atomic_load_n(&rewriter.idle, __ATOMIC_ACQUIRE)) {
        usleep(10);
    }
    return n;
}

void fuzz_rings(unsigned count, uint64_t seed)
{
    unsigned  attacks = 0, rounds = 0, failed = 0, intact = 0;
    uint64_t  faults = 0, performed = 0;
    rng_t     rng    = rng_make(seed, 0);
    long long pinned = pinned_pages();
    int       pipes[2], status;
    pthread_t thread;
    pid_t     pid;

    MUST(pipe(pipes) == 0);
    pid = fork();
    if (pid == 0) {
        close(pipes[1]);
        _exit(bystander_run(pipes[0]));
    }
    rewriter.seed = seed;
    rewriter.idle = 1;
    MUST(pthread_create(&thread, NULL, rings_rewrite, NULL) == 0);
    while (attacks < count) {
        volatile __u64 *counters;
        party_t         self, other;

        party_open(&self);
        party_open(&other);
        attacks += 1 + party_attack(&rng, &self, &other, 2000);
        rounds++;
        counters = self.pe.status->counters;
        failed += self.pe.status->state == ANGARA_PE_FAILED;
        faults += counters[ANGARA_CNT_FAULTS];
        performed += counters[ANGARA_CNT_PUTS] + counters[ANGARA_CNT_OFF_PUTS] +
                     counters[ANGARA_CNT_OFF_GETS] + counters[ANGARA_CNT_ATOMICS];
        intact += other.pe.status->state == ANGARA_PE_RUNNING;
        intact += party_close(&self) && party_close(&other);
    }
    __atomic_store_n(&rewriter.stop, 1, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    close(pipes[1]);
    MUST(waitpid(pid, &status, 0) == pid);
    printf("# %u PEs, %u failed; %llu operations, %llu faults\n", rounds, failed,
           (unsigned long long)performed, (unsigned long long)faults);
    OK_SAY(failed > 0 && faults > 0 && performed > count / 20,
           "operations, faults and PEs that fail were seen");
    OK_SAY(intact == 2 * rounds, "neither the target's PE nor memory around the regions suffers");
    OK_SAY(WIFEXITED(status) && WEXITSTATUS(status) == 0,
           "another process's traffic doesn't notice (status %#x)", status);
    OK(SYSFS("pe_used") == 0 && SYSFS("mr_used") == 0);
    OK(pinned_pages() == pinned);
    OK_SAY(run("grep -qx working /sys/class/angara/angara0/state"), "the device works");
}
