/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A node's registers: layout of BAR 2, the reset and DMA handshakes, link state, interrupts, and
 * coming and going of VMs. See emu.h. Of the BAR this file writes the first two lines of the
 * control page and reads the third, which the guest may change at any time.
 */
#define _GNU_SOURCE
#include "emu.h"

#include "src/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#define ALIVE_NS 10000000ull /* the contract says 100 ms */

static uint64_t round_up(uint64_t value, uint64_t to)
{
    return (value + to - 1) / to * to;
}

static int bar_create(emu_node_t *node)
{
    const emu_config_t *config = &node->emu->config;
    size_t              size   = EMU_PAGE;

    node->doorbell_offset = EMU_PAGE;
    node->pio_offset = round_up(EMU_PAGE + (uint64_t)config->pe_max * EMU_PAGE, config->pio_bytes);
    while (size < node->pio_offset + (uint64_t)config->pe_max * config->pio_bytes) {
        size *= 2; /* BARs are powers of two */
    }
    node->bar_size = size;
    node->bar_fd   = memfd_create("angara-bar2", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (node->bar_fd < 0 || ftruncate(node->bar_fd, (off_t)size) != 0 ||
        fcntl(node->bar_fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) != 0) {
        return -1;
    }
    node->bar = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, node->bar_fd, 0);
    if (node->bar == MAP_FAILED) {
        node->bar = NULL;
        return -1;
    }
    node->control = (void *)node->bar;
    return 0;
}

int emu_node_init(emu_node_t *node)
{
    const emu_config_t *config = &node->emu->config;

    node->link        = 1;
    node->doorbell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    for (unsigned i = 0; i < config->vectors; ++i) {
        node->irq_fds[i] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (node->irq_fds[i] < 0) {
            goto err;
        }
    }
    node->mr_cache = calloc(config->mr_max, sizeof(*node->mr_cache));
    node->pes      = calloc(config->pe_max, sizeof(*node->pes));
    if (node->doorbell_fd < 0 || node->mr_cache == NULL || node->pes == NULL ||
        bar_create(node) != 0) {
        goto err;
    }
    for (uint32_t i = 0; i < config->pe_max; ++i) {
        node->pes[i].node  = node;
        node->pes[i].index = i;
        node->pes[i].state = EMU_PE_FREE;
    }
    return 0;

err:
    emu_say("node %u can't be set up: %s", node->id, strerror(errno));
    return -1;
}

void emu_node_cleanup(emu_node_t *node)
{
    if (node->pes != NULL) {
        emu_node_detach(node);
    }
    for (unsigned i = 0; i < EMU_VECTORS_MAX; ++i) {
        if (node->irq_fds[i] >= 0) {
            close(node->irq_fds[i]);
        }
    }
    if (node->bar != NULL) {
        munmap(node->bar, node->bar_size);
    }
    if (node->bar_fd >= 0) {
        close(node->bar_fd);
    }
    if (node->doorbell_fd >= 0) {
        close(node->doorbell_fd);
    }
    free(node->mr_cache);
    free(node->pes);
}

/* ---- the registers --------------------------------------------------------------------------- */

static uint32_t load(const __le32 *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static void store(__le32 *word, uint32_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static void registers_fill(emu_node_t *node)
{
    const emu_config_t       *config  = &node->emu->config;
    struct angara_hw_control *control = node->control;

    memset(node->bar, 0, node->bar_size);
    control->version          = ANGARA_HW_VERSION;
    control->caps             = config->loopback ? ANGARA_HW_CAP_LOOPBACK : 0;
    control->node             = node->id;
    control->pe_max           = config->pe_max;
    control->mr_max           = config->mr_max;
    control->vectors          = config->vectors;
    control->doorbell_offset  = node->doorbell_offset;
    control->pio_offset       = node->pio_offset;
    control->pio_bytes        = config->pio_bytes;
    control->marker_slots     = config->marker_slots;
    control->put_max          = emu_put_max(config);
    control->window_pages_max = EMU_WINDOW_MAX;
    control->offload_max      = EMU_OFFLOAD_MAX;
    control->link             = (uint32_t)node->link;
    __atomic_store_n(&control->magic, ANGARA_HW_MAGIC, __ATOMIC_RELEASE);
}

/* Forget everything that the driver has said. */
static void device_reset(emu_node_t *node, angara_status_t status)
{
    for (uint32_t i = 0; i < node->emu->config.pe_max; ++i) {
        if (node->pes[i].state != EMU_PE_FREE) {
            emu_pe_destroy(&node->pes[i], status);
        }
    }
    emu_mr_reset(node);
    emu_admin_reset(node);
    node->dma = 0;
    store(&node->control->admin_cons, 0);
}

void emu_node_attach(emu_node_t *node)
{
    node->reset_ack = node->dma_ack = node->key_mismatches = 0;
    node->trouble.removed                                  = 0;
    node->trouble.muted_until                              = 0;
    node->muted_ms                                         = 0;
    registers_fill(node);
    emu_log(node, 'B', -1, NULL, 0, "vm");
    emu_say("node %u: a VM has come", node->id);
}

void emu_node_detach(emu_node_t *node)
{
    device_reset(node, ANGARA_ERR_PEER_DEAD);
    emu_memory_unmap(node);
    emu_log(node, 'E', -1, NULL, 0, "vm");
}

int emu_node_version(emu_node_t *node, uint32_t version)
{
    if (node->ram == NULL || node->trouble.removed || node->trouble.muted_until != 0) {
        return -1;
    }
    store(&node->control->version, version);
    return 0;
}

unsigned emu_node_handshakes(emu_node_t *node)
{
    struct angara_hw_control *control = node->control;
    uint32_t                  reset   = load(&control->reset_req);
    uint32_t                  dma     = load(&control->dma_req);
    unsigned                  work    = 0;

    if (reset != node->reset_ack && !node->trouble.stuck_reset) {
        device_reset(node, ANGARA_ERR_PEER_DEAD);
        node->reset_ack = reset;
        emu_log(node, 'R', -1, NULL, 0, "%u", reset);
        store(&control->reset_ack, reset);
        work++;
    } else if (dma != node->dma_ack && !node->trouble.stuck_dma) {
        node->dma     = dma & 1;
        node->dma_ack = dma;
        emu_log(node, 'D', -1, NULL, 0, "%u", dma);
        store(&control->dma_ack, dma);
        work++;
    }
    return work;
}

static void unmute(emu_node_t *node)
{
    struct angara_hw_control *control = node->control;
    const size_t behind   = offsetof(struct angara_hw_control, magic) + sizeof(control->magic);
    int          relinked = node->unmuted.link != (uint32_t)node->link;

    node->unmuted.link = (uint32_t)node->link;
    memcpy((char *)control + behind, (char *)&node->unmuted + behind, sizeof(*control) - behind);
    __atomic_store_n(&control->magic, node->unmuted.magic, __ATOMIC_RELEASE);
    node->trouble.muted_until = 0;
    node->muted_ms = 1 + (uint32_t)((ang_clock_ns(CLOCK_MONOTONIC) - node->muted_at) / 1000000);
    if (relinked) {
        emu_irq(node, EMU_VECTOR_ADMIN);
    }
}

int emu_node_mute(emu_node_t *node, uint64_t ns)
{
    if (node->ram == NULL || node->trouble.removed) {
        return -1;
    }
    if (node->trouble.muted_until == 0) {
        if (ns == 0) {
            return 0;
        }
        node->unmuted  = *node->control;
        node->muted_at = ang_clock_ns(CLOCK_MONOTONIC);
        node->muted_ms = 0;
        memset(node->control, 0xff, sizeof(*node->control));
    }
    node->trouble.muted_until = node->muted_at + ns;
    if (ns == 0) {
        unmute(node);
    }
    return 0;
}

/* @return 1 while the node is muted */
static int still_muted(emu_node_t *node)
{
    if (node->trouble.muted_until == 0) {
        return 0;
    }
    if (node->emu->now >= node->trouble.muted_until) {
        unmute(node);
        return 0;
    }
    memset(node->control, 0xff, sizeof(*node->control)); /* whatever the guest has written there */
    node->emu->busy = 1;
    return 1;
}

unsigned emu_node_turn(emu_node_t *node)
{
    unsigned work;

    if (node->ram == NULL || still_muted(node) || node->trouble.frozen) {
        return 0;
    }
    if (node->trouble.removed) {
        memset(node->bar, 0xff, EMU_PAGE); /* whatever the guest has written there */
        return 0;
    }
    if (node->emu->now - node->alive_at >= ALIVE_NS) {
        node->alive_at = node->emu->now;
        store(&node->control->key_mismatches, node->key_mismatches);
        store(&node->control->alive, ++node->alive);
    }
    work = emu_node_handshakes(node);
    if (node->dma) {
        work += emu_admin_turn(node);
        for (uint32_t i = 0; i < node->emu->config.pe_max; ++i) {
            if (node->pes[i].state != EMU_PE_FREE) {
                work += emu_pe_turn(&node->pes[i]);
            }
        }
    }
    return work;
}

void emu_irq(emu_node_t *node, uint32_t vector)
{
    static const uint64_t one = 1;

    if (node->trouble.lose_irqs != 0) {
        node->trouble.lose_irqs--;
    } else if (write(node->irq_fds[vector], &one, sizeof(one)) < 0 && errno != EAGAIN) {
        emu_say("node %u: interrupt %u can't be sent: %s", node->id, vector, strerror(errno));
    }
}

/* ---- link and removal ------------------------------------------------------------------------ */

int emu_linked(const emu_node_t *a, const emu_node_t *b)
{
    return a == b || (a->link && b->link);
}

void emu_node_link(emu_node_t *node, int up)
{
    if (node->link == up) {
        return;
    }
    node->link = up;
    emu_log(node, 'L', -1, NULL, 0, "%d", up);
    if (node->ram != NULL && !node->trouble.removed && node->trouble.muted_until == 0) {
        store(&node->control->link, (uint32_t)up);
        emu_irq(node, EMU_VECTOR_ADMIN);
    }
    for (uint32_t i = 0; i < node->emu->config.pe_max; ++i) {
        if (node->pes[i].state == ANGARA_PE_RUNNING) {
            node->pes[i].dirty = 1;
            emu_pe_status(&node->pes[i]); /* before the news */
            emu_event_raise(&node->pes[i], ANGARA_EV_LINK, NULL, (angara_status_t)up, 0);
            emu_pe_status(&node->pes[i]);
        }
    }
    emu_pairs_check(node->emu, ANGARA_ERR_PEER_DEAD); /* who died meanwhile? */
}

void emu_node_remove(emu_node_t *node)
{
    if (node->ram != NULL && !node->trouble.removed) {
        device_reset(node, ANGARA_ERR_PEER_DEAD);
        emu_log(node, 'E', -1, NULL, 0, "removed");
        memset(node->bar, 0xff, node->bar_size);
        node->trouble.removed     = 1;
        node->trouble.muted_until = 0;
    }
}

void emu_node_replug(emu_node_t *node)
{
    if (node->ram != NULL && node->trouble.removed) {
        emu_node_attach(node);
    }
}
