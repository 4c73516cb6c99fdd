/* SPDX-License-Identifier: BSD-3-Clause */
/* Layout of a PE's put window, see channel/window.h. */
#include "channel/window.h"

/* ---- sets of numbers ----------------------------------------------------------------------- */

static ucs_status_t uct_angara_idmap_init(uct_angara_idmap_t *map, unsigned size)
{
    map->used = ucs_calloc(ucs_div_round_up(size, 64), sizeof(*map->used), "angara_idmap");
    map->size = size;
    map->high = 0;
    return (map->used == NULL) ? UCS_ERR_NO_MEMORY : UCS_OK;
}

ucs_status_t uct_angara_idmap_get(uct_angara_idmap_t *map, unsigned *id_p)
{
    unsigned word, id;

    for (word = 0; word < ucs_div_round_up(map->size, 64); ++word) {
        if (map->used[word] == UINT64_MAX) {
            continue;
        }

        id = word * 64 + ucs_ffs64(~map->used[word]);
        if (id >= map->size) {
            break;
        }

        map->used[word] |= UCS_BIT(id % 64);
        map->high = ucs_max(map->high, id + 1);
        *id_p     = id;
        return UCS_OK;
    }

    return UCS_ERR_NO_RESOURCE;
}

void uct_angara_idmap_put(uct_angara_idmap_t *map, unsigned id)
{
    ucs_assert((id < map->size) && (map->used[id / 64] & UCS_BIT(id % 64)));
    map->used[id / 64] &= ~UCS_BIT(id % 64);
}

/* ---- layout -------------------------------------------------------------------------------- */

ucs_status_t uct_angara_window_layout(uct_angara_window_t *window, size_t ring_bytes, unsigned nbig,
                                      unsigned max_peers, size_t max)
{
    size_t stride = uct_angara_ring_stride(ring_bytes);

    window->ring_bytes  = ring_bytes;
    window->nbig        = nbig;
    window->max_peers   = max_peers;
    window->credits_off = 0;
    for (;;) {
        window->ready_off = uct_angara_window_credit_off(window, window->max_peers);
        window->rings_off = ucs_align_up_pow2(
            uct_angara_window_ready_off(window, uct_angara_window_words(window)),
            ucs_get_page_size());
        if (uct_angara_window_size(window) <= max) {
            return UCS_OK;
        }
        if (window->nbig > 0) {
            window->nbig = 0; /* room for all is worth more */
            continue;
        }
        if (window->max_peers == 1) {
            ucs_error("angara: one receive ring of %zu bytes (UCX_ANGARA_RING_SLOTS times "
                      "UCX_ANGARA_SLOT_SIZE) does not fit into a window of %zu bytes",
                      stride, max);
            return UCS_ERR_EXCEEDS_LIMIT;
        }
        window->max_peers = ucs_min(window->max_peers - 1, max / (stride + 128));
        window->max_peers = ucs_max(window->max_peers, 1u);
    }
}

ucs_status_t uct_angara_window_init(uct_angara_window_t *window)
{
    ucs_status_t status = uct_angara_idmap_init(&window->ring_ids, window->max_peers);

    return (status == UCS_OK) ? uct_angara_idmap_init(&window->credit_ids, window->max_peers) :
                                status;
}

void uct_angara_window_cleanup(uct_angara_window_t *window)
{
    ucs_free(window->credit_ids.used);
    ucs_free(window->ring_ids.used);
}
