/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Regions: the MR table and the page lists. See emu.h and angara_hw.h. Both are guest memory. An
 * entry is copied and validated at its first use and kept until MR_INVALIDATE names its key: a
 * driver that unpins before the acknowledgement will see its pages written. Page lists are read at
 * each access, a word at a time, and each word is checked: whatever they say, only memory of the
 * same node is reached.
 */
#include "emu.h"

#include <string.h>

#define INDEX_MASK ((1u << ANGARA_HW_KEY_INDEX_BITS) - 1)
#define LIST_BITS  9            /* words of a page of a list */
#define ADDR_BASE  (1ull << 62) /* addresses of regions aren't 0, and aligned as in memory */

static int list_is_sound(const struct angara_hw_mr *mr)
{
    uint64_t page = 1ull << (mr->page_shift & 63);

    if (mr->page_shift < 12 || mr->page_shift > 30 || mr->levels > EMU_LEVELS_MAX ||
        mr->first >= page || mr->npages == 0 ||
        mr->npages > (1ull << (LIST_BITS * EMU_LEVELS_MAX))) {
        return 0;
    }
    if (mr->levels != 0 && mr->npages > (1ull << (LIST_BITS * mr->levels))) {
        return 0;
    }
    return mr->list % EMU_PAGE == 0 && mr->first + mr->length <= mr->npages << mr->page_shift;
}

static int is_suspended(const struct angara_hw_mr *mr)
{
    return mr->state == ANGARA_HW_MR_SUSPENDED;
}

static int is_sound(const struct angara_hw_mr *mr)
{
    if (mr->length == 0 || mr->length > ADDR_BASE / 2 ||
        (mr->access & ~(uint32_t)ANGARA_ACCESS_ALL) != 0 || mr->state > ANGARA_HW_MR_SUSPENDED) {
        return 0;
    }
    return is_suspended(mr) || list_is_sound(mr);
}

/* Key and state first: they say whether the rest is there. */
static int read_entry(emu_node_t *node, uint32_t index, struct angara_hw_mr *mr)
{
    uint64_t at = node->mr_table + (uint64_t)index * sizeof(*mr);

    if (!emu_read(node, mr, at, sizeof(*mr))) {
        return 0;
    }
    if (mr->key == 0 || is_suspended(mr)) {
        return 1;
    }
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return emu_read(node, mr, at, sizeof(*mr));
}

/* The entry of a key, in the cache. A replay has the entries that the device has read, no others.
 */
static angara_status_t find(emu_node_t *node, uint64_t key, const struct angara_hw_mr **mr_p)
{
    uint32_t             index = key & INDEX_MASK;
    struct angara_hw_mr *cached;
    struct angara_hw_mr  mr;

    if (key == 0 || index >= node->mr_entries) {
        return ANGARA_ERR_KEY;
    }
    cached = &node->mr_cache[index];
    if (cached->key != key) {
        if (!read_entry(node, index, &mr)) {
            return ANGARA_ERR_KEY;
        }
        if (mr.key == 0 && node->emu->replaying) {
            return ANGARA_INPROGRESS;
        }
        emu_log(node, 'M', -1, &mr, sizeof(mr), "%u", index);
        if (mr.key != key) {
            return ANGARA_ERR_KEY;
        }
        if (!is_sound(&mr)) {
            emu_say("node %u: entry %u of the MR table makes no sense", node->id, index);
            return ANGARA_ERR_KEY;
        }
        *cached = mr;
    }
    *mr_p = cached;
    return ANGARA_OK;
}

/* Whatever pages the region has while an operation is under way, where they begin stays. */
static uint64_t addr_base(const struct angara_hw_mr *mr)
{
    return ADDR_BASE + mr->first % EMU_PAGE;
}

angara_status_t emu_mr_check(emu_node_t *node, uint32_t domain, uint64_t key, uint64_t offset,
                             uint64_t length, unsigned access, uint64_t *addr)
{
    const struct angara_hw_mr *mr;
    angara_status_t            status = find(node, key, &mr);

    if (status != ANGARA_OK) {
        return status;
    }
    if (mr->domain != domain) {
        return ANGARA_ERR_KEY;
    }
    if (offset > mr->length || length > mr->length - offset || length > EMU_OFFLOAD_MAX) {
        return ANGARA_ERR_BOUNDS;
    }
    if ((mr->access & access) != access) {
        return ANGARA_ERR_RIGHTS;
    }
    if (is_suspended(mr)) {
        return ANGARA_INPROGRESS;
    }
    *addr = addr_base(mr) + offset;
    return ANGARA_OK;
}

/* Bus address of page number `page`. A replay has the words that the device has read, no others. */
static angara_status_t page_address(emu_node_t *node, const struct angara_hw_mr *mr, uint64_t page,
                                    uint64_t *bus)
{
    uint64_t at = mr->list;

    if (mr->levels == 0) {
        *bus = at + (page << mr->page_shift);
        return ANGARA_OK;
    }
    for (unsigned level = mr->levels; level-- != 0;) {
        uint64_t slot = (page >> (LIST_BITS * level)) & ((1u << LIST_BITS) - 1);
        uint64_t word;

        if (!emu_read(node, &word, at + slot * sizeof(word), sizeof(word))) {
            return ANGARA_ERR_SYSTEM;
        }
        if (word == 0 && node->emu->replaying) {
            return ANGARA_INPROGRESS;
        }
        emu_log(node, 'P', -1, &word, sizeof(word), "%llu",
                (unsigned long long)(at + slot * sizeof(word)));
        if (word == 0 || word % EMU_PAGE != 0) { /* no system hands out page 0 */
            return ANGARA_ERR_SYSTEM;
        }
        at = word;
    }
    *bus = at;
    return ANGARA_OK;
}

angara_status_t emu_mr_at(emu_node_t *node, uint64_t key, uint64_t addr, uint64_t *length,
                          char **at)
{
    const struct angara_hw_mr *mr;
    uint64_t                   offset, position, inside, bus;
    angara_status_t            status = find(node, key, &mr);

    if (status != ANGARA_OK) { /* invalidated since it was checked */
        return status;
    }
    if (is_suspended(mr)) {
        return ANGARA_INPROGRESS;
    }
    /* Its driver may have given another region the same key since: check again. */
    offset = addr - addr_base(mr);
    if (addr < addr_base(mr) || offset > mr->length || *length > mr->length - offset) {
        return ANGARA_ERR_BOUNDS;
    }
    position = mr->first + offset;
    inside   = position & ((1ull << mr->page_shift) - 1);
    if (*length > (1ull << mr->page_shift) - inside) {
        *length = (1ull << mr->page_shift) - inside;
    }
    status = page_address(node, mr, position >> mr->page_shift, &bus);
    if (status == ANGARA_OK) {
        *at    = emu_bus(node, bus + inside, *length);
        status = *at != NULL ? ANGARA_OK : ANGARA_ERR_SYSTEM;
    }
    if (status == ANGARA_ERR_SYSTEM) {
        emu_say("node %u: region %#llx: page %llu is no memory", node->id, (unsigned long long)key,
                (unsigned long long)(position >> mr->page_shift));
    }
    return status;
}

void emu_mr_invalidate(emu_node_t *node, uint64_t key)
{
    uint32_t index = key & INDEX_MASK;

    if (index < node->emu->config.mr_max && node->mr_cache[index].key == key) {
        node->mr_cache[index].key = 0;
    }
}

void emu_mr_invalidate_domain(emu_node_t *node, uint32_t domain)
{
    for (uint32_t i = 0; i < node->mr_entries; ++i) {
        if (node->mr_cache[i].domain == domain) {
            node->mr_cache[i].key = 0;
        }
    }
}

void emu_mr_reset(emu_node_t *node)
{
    for (uint32_t i = 0; i < node->mr_entries; ++i) {
        node->mr_cache[i].key = 0;
    }
    node->mr_entries = 0;
}
