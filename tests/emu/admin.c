/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The admin queue of a node. See emu.h and angara_hw.h. Both rings are guest memory: a command is
 * copied once; where the rings are is latched at the first command after a reset.
 *
 * A command is executed when it is due, and answered at once then: until its answer the device goes
 * on with what it knew (a region cached, a PE running), as a real one may. Nobody promises an order
 * of the answers, and chaos mode uses that.
 */
#include "emu.h"

#include <string.h>

#define CMD_SIZE  sizeof(struct angara_hw_cmd)
#define RESP_SIZE sizeof(struct angara_hw_resp)

_Static_assert(sizeof(struct angara_hw_cmd) == 128, "layout");
_Static_assert(sizeof(struct angara_hw_resp) == 16, "layout");
_Static_assert(sizeof(struct angara_hw_mr) == 64, "layout");
_Static_assert(sizeof(struct angara_hw_control) == 256, "layout");

void emu_admin_reset(emu_node_t *node)
{
    memset(node->admin_waiting, 0, sizeof(node->admin_waiting));
    node->admin_num_waiting = 0;
    node->admin_open = node->admin_failed = 0;
    node->admin_cons = node->admin_responses = 0;
}

static void fail(emu_node_t *node, const char *why)
{
    emu_say("node %u: the admin queue stops until a reset: %s", node->id, why);
    node->admin_failed = 1;
}

static int open_rings(emu_node_t *node)
{
    const struct angara_hw_control *control = node->control;

    node->admin_entries = __atomic_load_n(&control->admin_entries, __ATOMIC_RELAXED);
    node->admin_cmd     = __atomic_load_n(&control->admin_cmd, __ATOMIC_RELAXED);
    node->admin_resp    = __atomic_load_n(&control->admin_resp, __ATOMIC_RELAXED);
    if (node->admin_entries == 0 || node->admin_entries > EMU_ADMIN_MAX ||
        (node->admin_entries & (node->admin_entries - 1)) != 0) {
        fail(node, "admin_entries is no power of two up to 4096");
        return 0;
    }
    if (node->admin_cmd % CMD_SIZE != 0 || node->admin_resp % RESP_SIZE != 0 ||
        emu_bus(node, node->admin_cmd, node->admin_entries * CMD_SIZE) == NULL ||
        emu_bus(node, node->admin_resp, node->admin_entries * RESP_SIZE) == NULL) {
        fail(node, "a ring is no memory, or not aligned");
        return 0;
    }
    node->admin_open = 1;
    return 1;
}

/* ---- executing ------------------------------------------------------------------------------- */

static uint32_t setup(emu_node_t *node, const struct angara_hw_cmd *cmd)
{
    uint64_t table   = cmd->args[0];
    uint64_t entries = cmd->args[1];

    if (entries == 0 || entries > node->emu->config.mr_max || table % 64 != 0) {
        return ANGARA_HW_EINVAL;
    }
    if (emu_bus(node, table, entries * sizeof(struct angara_hw_mr)) == NULL) {
        return ANGARA_HW_EFAULT;
    }
    emu_mr_reset(node);
    node->mr_table   = table;
    node->mr_entries = (uint32_t)entries;
    return ANGARA_HW_OK;
}

static uint32_t pe_reset(emu_node_t *node, const struct angara_hw_cmd *cmd)
{
    emu_pe_t *pe;

    if (cmd->args[0] >= node->emu->config.pe_max || cmd->args[2] > ANGARA_HW_CLOSED) {
        return ANGARA_HW_EINVAL;
    }
    pe = &node->pes[cmd->args[0]];
    if (pe->state == EMU_PE_FREE || pe->hw.generation != cmd->args[1]) {
        return ANGARA_HW_ESTALE;
    }
    emu_pe_destroy(pe, cmd->args[2] == ANGARA_HW_CLOSED ? ANGARA_OK : ANGARA_ERR_PEER_DEAD);
    return ANGARA_HW_OK;
}

static uint32_t window_sync(emu_node_t *node, const struct angara_hw_cmd *cmd, uint32_t *generation)
{
    emu_pe_t *pe;

    if (cmd->args[0] >= node->emu->config.pe_max) {
        return ANGARA_HW_EINVAL;
    }
    pe = &node->pes[cmd->args[0]];
    if (pe->state == EMU_PE_FREE) {
        return ANGARA_HW_ESTALE;
    }
    *generation = pe->hw.generation;
    memset(pe->window_cache, 0, pe->hw.window_pages * sizeof(*pe->window_cache));
    return ANGARA_HW_OK;
}

uint32_t emu_admin_execute(emu_node_t *node, const struct angara_hw_cmd *cmd, uint32_t *generation)
{
    *generation = 0;
    switch (cmd->opcode) {
    case ANGARA_HW_SETUP:
        return setup(node, cmd);
    case ANGARA_HW_PE_CREATE:
        *generation = cmd->pe.generation;
        return emu_pe_create(node, &cmd->pe);
    case ANGARA_HW_PE_RESET:
        *generation = (uint32_t)cmd->args[1]; /* the command's, also when it is refused */
        return pe_reset(node, cmd);
    case ANGARA_HW_MR_INVALIDATE:
        emu_mr_invalidate(node, cmd->args[0]);
        return ANGARA_HW_OK;
    case ANGARA_HW_WINDOW_SYNC:
        return window_sync(node, cmd, generation);
    case ANGARA_HW_DOMAIN_INVALIDATE:
        emu_mr_invalidate_domain(node, (uint32_t)cmd->args[0]);
        return ANGARA_HW_OK;
    case ANGARA_HW_NOP:
        return ANGARA_HW_OK;
    default:
        return ANGARA_HW_EINVAL;
    }
}

static void respond(emu_node_t *node, uint32_t id, uint32_t status, uint32_t generation)
{
    uint32_t               slot = node->admin_responses & (node->admin_entries - 1);
    struct angara_hw_resp *resp = emu_bus(node, node->admin_resp + slot * RESP_SIZE, RESP_SIZE);

    if (resp == NULL) { /* the rings were memory: DMA is off */
        return;
    }
    resp->id         = id;
    resp->status     = status;
    resp->generation = generation;
    __atomic_store_n(&resp->valid, ++node->admin_responses, __ATOMIC_RELEASE);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (!__atomic_load_n(&node->control->admin_quiet, __ATOMIC_RELAXED)) {
        emu_irq(node, EMU_VECTOR_ADMIN);
    }
}

static unsigned run_waiting(emu_node_t *node)
{
    unsigned work = 0;
    uint32_t status, generation;

    for (unsigned i = 0; i < EMU_ADMIN_WAIT && node->admin_num_waiting != 0; ++i) {
        emu_admin_t *waiting = &node->admin_waiting[i];

        if (!waiting->used || waiting->due > node->emu->now) {
            continue;
        }
        waiting->used = 0;
        node->admin_num_waiting--;
        status = emu_admin_execute(node, &waiting->cmd, &generation);
        emu_log(node, 'A', -1, &waiting->cmd, CMD_SIZE, "%u", status);
        respond(node, waiting->cmd.id, status, generation);
        node->emu->admin_at = node->emu->now;
        work++;
    }
    return work;
}

/* ---- fetching -------------------------------------------------------------------------------- */

static uint64_t draw(emu_t *emu, uint64_t below)
{
    emu->random = emu->random * 6364136223846793005ull + 1442695040888963407ull; /* Knuth, MMIX */
    return (emu->random >> 33) % below;
}

/* When a command of this kind is executed; EMU_NEVER. */
static uint64_t due_time(emu_node_t *node, uint32_t opcode)
{
    const emu_config_t *config = &node->emu->config;
    uint64_t            delay;

    delay = opcode < EMU_OPCODES ? node->trouble.admin_delay_ns[opcode] : 0;
    if (delay == EMU_NEVER) {
        return EMU_NEVER;
    }
    if (config->chaos != 0) {
        delay += draw(node->emu, 1000ull * config->chaos_delay_us + 1);
    }
    return node->emu->now + delay;
}

/* Slots are filled in order, so without chaos commands are executed as posted. */
static void enqueue(emu_node_t *node, const struct angara_hw_cmd *cmd)
{
    uint64_t due = due_time(node, cmd->opcode);
    unsigned i;

    if (due == EMU_NEVER) {
        emu_say("node %u: command %u (opcode %u) is never answered, as asked", node->id, cmd->id,
                cmd->opcode);
        return;
    }
    for (i = 0; i < EMU_ADMIN_WAIT && node->admin_waiting[i].used; ++i) {
    }
    node->admin_waiting[i] = (emu_admin_t){*cmd, due, 1};
    node->admin_num_waiting++;
}

unsigned emu_admin_turn(emu_node_t *node)
{
    uint32_t             prod = __atomic_load_n(&node->control->admin_prod, __ATOMIC_ACQUIRE);
    struct angara_hw_cmd cmd;
    unsigned             work = 0;

    if (node->admin_failed || (prod == node->admin_cons && node->admin_num_waiting == 0) ||
        (!node->admin_open && !open_rings(node))) {
        return 0;
    }
    if (prod - node->admin_cons > node->admin_entries) {
        fail(node, "admin_prod is more than the ring ahead");
        return 0;
    }
    while (prod != node->admin_cons && node->admin_num_waiting < EMU_ADMIN_WAIT &&
           work < EMU_TURN_COUNT) {
        uint32_t slot = node->admin_cons & (node->admin_entries - 1);

        if (!emu_read(node, &cmd, node->admin_cmd + slot * CMD_SIZE, CMD_SIZE)) {
            break;
        }
        enqueue(node, &cmd);
        node->admin_cons++;
        work++;
    }
    __atomic_store_n(&node->control->admin_cons, node->admin_cons, __ATOMIC_RELEASE);
    work += run_waiting(node);
    node->emu->busy |= node->admin_num_waiting != 0;
    return work;
}
