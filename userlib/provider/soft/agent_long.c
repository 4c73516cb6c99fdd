/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Longer puts and gets that a peer's process is asked for (see agent.h), in pieces through the
 * slot's staging memory; and what it must answer for a marker. Short ones: agent_short.c.
 */
#define _GNU_SOURCE
#include "agent.h"
#include "gpu_mem.h"
#include "way.h"

#include "src/clock.h"

#include <string.h>

/* Between staging memory and the own end, which is of that kind. */
static angara_status_t move(void *dst, const void *src, size_t length, unsigned kind)
{
    if (kind == SOFT_REF_GPU) {
        return soft_gpu_copy((uintptr_t)dst, (uintptr_t)src, length);
    }
    ang_cpu_copy(dst, src, length);
    return ANGARA_OK;
}

/*
 * Bytes of a piece of host memory. While the peer's process copies one, the next one of a put is
 * copied into another place of the staging memory; of a get nearly all of the last one has been
 * copied by the time that the next one begins.
 */
#define PUT_PIECE 32768u
#define GET_PIECE 65536u
_Static_assert(2 * PUT_PIECE <= SOFT_STAGING && 2 * GET_PIECE <= SOFT_STAGING, "two fit");

/* Two large pieces of GPU memory go by turns, if the slot has room for them. */
static int wants_large(const soft_peer_t *peer, const ang_ref_t *far)
{
    return far->kind == SOFT_REF_STAGED && !peer->has_no_large;
}

static int has_large(const soft_peer_t *peer, const ang_ref_t *far)
{
    return wants_large(peer, far) && peer->agent < SOFT_LARGE_SLOTS;
}

/* Is there a place for the next piece beside the one under way? */
static int has_places(const soft_peer_t *peer, const ang_ref_t *far)
{
    return far->kind != SOFT_REF_STAGED || has_large(peer, far);
}

/* A place of host memory's: a multiple of GET_PIECE, behind the last one or at the beginning. So
 * two that follow each other are apart wherever there are `least` bytes for both. */
static uint32_t piece_place(const soft_peer_t *peer, uint32_t least)
{
    return soft_agent_place(peer, soft_agent_staged(peer, least), GET_PIECE, GET_PIECE);
}

/* Where it is put. */
static uint32_t next_place(const soft_peer_t *peer, const ang_ref_t *far)
{
    return far->kind == SOFT_REF_STAGED ? SOFT_LARGE_PIECE - peer->agent_place :
                                          piece_place(peer, SOFT_STAGING);
}

/* Where the first one is put. */
static uint32_t first_place(const soft_peer_t *peer, const ang_ref_t *far)
{
    return far->kind == SOFT_REF_STAGED ? 0 : piece_place(peer, GET_PIECE);
}

/*
 * The peer's process has no memory for large pieces, or for something else that it needs for them.
 * @return 1: ask for the same again, in small ones
 */
static int goes_small(soft_peer_t *peer, const ang_ref_t *far, angara_status_t status)
{
    if (status != ANGARA_ERR_NO_MEMORY || !has_large(peer, far)) {
        return 0;
    }
    peer->has_no_large = 1;
    return 1;
}

static uint32_t piece_length(const soft_peer_t *peer, ang_op_t op, const ang_ref_t *far,
                             uint64_t left)
{
    uint32_t most = has_large(peer, far)         ? SOFT_LARGE_PIECE :
                    far->kind == SOFT_REF_STAGED ? SOFT_SMALL_PIECE :
                    op == ANG_OP_PUT             ? PUT_PIECE :
                                                   GET_PIECE;

    return left < most ? (uint32_t)left : most;
}

/* Staging memory for a piece of that length, which is copied between it and the own end. */
static char *staging_for(soft_peer_t *peer, uint32_t length, const ang_ref_t *near)
{
    char *staging = soft_agent_staging(peer);

    if (near->kind != SOFT_REF_GPU || length <= SOFT_SMALL_PIECE) {
        return staging;
    }
    if (peer->pinned_slot != peer->agent) {
        soft_unpin(&peer->pinned);
        peer->pinned_slot = peer->agent;
    }
    return soft_pinned(&peer->pinned, staging, soft_staging_size((unsigned)peer->agent),
                       near->addr);
}

/* Where the bytes of the one that is lie: in the slot, which the next request changes, or behind
 * it. */
static char *piece_bytes(soft_peer_t *peer, const ang_ref_t *near)
{
    return peer->agent_length <= SOFT_SLOT_BYTES ?
               soft_data_bytes(soft_agent_slot(peer), &soft_agent_slot(peer)->request,
                               peer->agent_length) :
               staging_for(peer, peer->agent_length, near) + peer->agent_place;
}

/* Ask for a piece; up to SOFT_HEAD_BYTES of a put are in `bytes`. The slot is ours. */
static void piece_post(soft_peer_t *peer, ang_op_t op, const ang_ref_t *far, uint64_t at,
                       uint32_t length, uint32_t place, const void *bytes)
{
    soft_request_t request = {
        .op = (uint8_t)op, .length = length, .key = far->key, .offset = far->offset + at};

    if (length - 1 >= SOFT_SLOT_BYTES) {
        request.compare = place;
    } else if (bytes != NULL && length <= SOFT_HEAD_BYTES) {
        memcpy(soft_request_bytes(&request), bytes, length);
    }
    peer->agent_place  = place;
    peer->agent_next   = place + length;
    peer->agent_copied = 0;
    soft_agent_post(peer, &request, far->kind == SOFT_REF_POLLED);
}

/*
 * Put the bytes of a put where its request takes them from: `word`, if there are up to
 * SOFT_HEAD_BYTES. @return 0 with ANGARA_OK: there is no staging memory yet
 */
static uint32_t piece_stage(soft_peer_t *peer, const ang_ref_t *src, uint64_t at, uint32_t length,
                            uint32_t place, void *word, angara_status_t *status)
{
    char *to = word;

    *status = ANGARA_OK;
    if (length > SOFT_SLOT_BYTES && soft_agent_staged(peer, 0) < (uint64_t)place + length) {
        return 0;
    }
    if (length > SOFT_SLOT_BYTES) {
        to = staging_for(peer, length, src) + place;
    } else if (length > SOFT_HEAD_BYTES) {
        to = soft_slot_bytes(soft_agent_slot(peer));
    }
    *status = move(to, (const void *)(uintptr_t)(src->addr + at), length, src->kind);
    return *status == ANGARA_OK ? length : 0;
}

/* Have a slot. ANGARA_ERR_UNSUPPORTED: there is none now, and there is another way. */
static angara_status_t piece_open(soft_peer_t *peer, const ang_ref_t *far)
{
    if (far->kind != SOFT_REF_POLLED) {
        return soft_agent_open(peer, wants_large(peer, far));
    }
    if (!soft_agent_try_open(peer)) {
        soft_agent_doubt(peer);
        return ANGARA_ERR_UNSUPPORTED;
    }
    return ANGARA_OK;
}

/* The peer doesn't poll, and there is another way: has the request been taken back? */
static int piece_taken_back(soft_peer_t *peer, const ang_ref_t *far)
{
    return far->kind == SOFT_REF_POLLED && !soft_agent_answered(peer) && soft_agent_is_late(peer) &&
           soft_agent_take_back(peer);
}

/* The answer to a piece is an error: is there another way? The slot has been given back then. */
static int piece_refused(soft_peer_t *peer, const ang_ref_t *far, angara_status_t status)
{
    if (far->kind != SOFT_REF_POLLED || status != ANGARA_ERR_NO_MEMORY) {
        return 0;
    }
    soft_agent_end(peer);
    soft_agent_doubt(peer);
    return 1;
}

static angara_status_t out_first(soft_peer_t *peer, const ang_ref_t *dst, const ang_ref_t *src,
                                 uint64_t end, uint64_t *done)
{
    angara_status_t status = piece_open(peer, dst);
    char            word[SOFT_HEAD_BYTES];
    uint32_t        length, staged, place;
    uint64_t        since;

    if (status != ANGARA_OK) {
        return status;
    }
    length = piece_length(peer, ANG_OP_PUT, dst, end - *done);
    place  = first_place(peer, dst);
    since  = soft_paces_spend(&peer->paces);
    staged = piece_stage(peer, src, *done, length, place, word, &status);
    soft_paces_spent(&peer->paces, since);
    if (status != ANGARA_OK) {
        soft_agent_end(peer);
        return status;
    }
    /* An empty one brings staging memory; its place tells how much. */
    if (staged == 0) {
        place = length > SOFT_SMALL_PIECE ? 2 * SOFT_LARGE_PIECE : 0;
    }
    piece_post(peer, ANG_OP_PUT, dst, *done, staged, place, word);
    *done += staged; /* counted when it is staged: that is what takes time here */
    return ANGARA_INPROGRESS;
}

/* While the peer's process copies a piece. Those that
 * lie in the slot have no place of their own: they wait. */
static angara_status_t out_ahead(soft_peer_t *peer, const ang_ref_t *dst, const ang_ref_t *src,
                                 uint64_t end, uint64_t done)
{
    uint32_t        place  = next_place(peer, dst);
    uint32_t        length = piece_length(peer, ANG_OP_PUT, dst, end - done);
    angara_status_t status = ANGARA_OK;

    /* Behind an empty one, which brings staging memory, there is no place yet. */
    if (peer->agent_ahead == 0 && peer->agent_length != 0 && has_places(peer, dst) &&
        length > SOFT_SLOT_BYTES) {
        peer->agent_ahead_place = place;
        peer->agent_ahead       = piece_stage(peer, src, done, length, place, NULL, &status);
    }
    return status;
}

angara_status_t soft_agent_copy_out(soft_peer_t *peer, const ang_ref_t *dst, const ang_ref_t *src,
                                    uint64_t end, uint64_t *done)
{
    angara_status_t status = ANGARA_OK;
    uint32_t        ahead;
    int             is_small = 0;

    if (peer->agent >= 0) {
        soft_paces_begin(&peer->paces, *done - peer->agent_length);
        status = *done < end ? out_ahead(peer, dst, src, end, *done) : ANGARA_OK;
        if (status == ANGARA_OK) {
            if (piece_taken_back(peer, dst)) {
                *done -= peer->agent_length;
                return ANGARA_ERR_UNSUPPORTED;
            }
            status   = soft_agent_receive(peer, 0);
            is_small = goes_small(peer, dst, status);
        }
        if (status == ANGARA_INPROGRESS) {
            return status;
        }
        if (piece_refused(peer, dst, status)) {
            *done -= peer->agent_length;
            return ANGARA_ERR_UNSUPPORTED;
        }
        ahead = peer->agent_ahead;
        if (status == ANGARA_OK && ahead != 0) {
            if (ahead > end - *done) {
                return ANGARA_INPROGRESS; /* staged by a turn that had more bytes left */
            }
            piece_post(peer, ANG_OP_PUT, dst, *done, ahead, peer->agent_ahead_place, NULL);
            peer->agent_ahead = 0;
            *done += ahead;
            return ANGARA_INPROGRESS;
        }
        *done -= status != ANGARA_OK ? peer->agent_length : 0;
        soft_agent_end(peer);
        if (status != ANGARA_OK && !is_small) {
            return status;
        }
    }
    if (*done >= end) {
        return ANGARA_OK;
    }
    return out_first(peer, dst, src, end, done);
}

/* Before the answer: copy what is there of the piece into host memory. */
static void in_early(soft_peer_t *peer, const ang_ref_t *dst, uint64_t *done)
{
    uint32_t copied = peer->agent_copied;

    if (dst->kind == ANG_REF_HOST && peer->agent_length > SOFT_SLOT_BYTES) {
        soft_agent_copy_early(peer, (char *)(uintptr_t)(dst->addr + *done - copied),
                              peer->agent_place, peer->agent_length);
        *done += peer->agent_copied - copied;
    }
}

angara_status_t soft_agent_copy_in(soft_peer_t *peer, const ang_ref_t *src, const ang_ref_t *dst,
                                   uint64_t end, uint64_t *done)
{
    uint32_t        left; /* of the piece */
    uint64_t        next; /* where the one behind begins */
    const char     *bytes;
    angara_status_t status;
    int             has_next, is_small;

    if (peer->agent >= 0) {
        soft_paces_begin(&peer->paces, *done);
        if (peer->agent_length - peer->agent_copied > end - *done) {
            return ANGARA_INPROGRESS; /* asked for by a turn that had more bytes left */
        }
        if (piece_taken_back(peer, src)) {
            return ANGARA_ERR_UNSUPPORTED;
        }
        if (!soft_agent_answered(peer)) {
            in_early(peer, dst, done);
        }
        status = soft_agent_receive(peer, 0);
        if (status == ANGARA_INPROGRESS) {
            return status;
        }
        if (piece_refused(peer, src, status)) {
            return ANGARA_ERR_UNSUPPORTED;
        }
        left     = peer->agent_length - peer->agent_copied;
        next     = *done + left;
        is_small = goes_small(peer, src, status);
        bytes    = status == ANGARA_OK ? piece_bytes(peer, dst) + peer->agent_copied : NULL;
        has_next = status == ANGARA_OK && has_places(peer, src) &&
                   peer->agent_length > SOFT_SLOT_BYTES && next < src->length;
        if (has_next) { /* the peer's process copies it meanwhile */
            uint64_t behind = src->length - next;

            piece_post(
                peer, ANG_OP_GET, src, next,
                piece_length(peer, ANG_OP_GET, src, behind < end - *done ? behind : end - *done),
                next_place(peer, src), NULL);
        }
        if (status == ANGARA_OK) {
            status = move((void *)(uintptr_t)(dst->addr + *done), bytes, left, dst->kind);
            *done += status == ANGARA_OK ? left : 0;
        }
        if (status != ANGARA_OK || !has_next) {
            soft_agent_end(peer);
        }
        if (status != ANGARA_OK && !is_small) {
            return status;
        }
        if (has_next) {
            return ANGARA_INPROGRESS;
        }
    }
    if (*done >= end) {
        return ANGARA_OK;
    }
    status = piece_open(peer, src);
    if (status == ANGARA_OK) {
        piece_post(peer, ANG_OP_GET, src, *done, piece_length(peer, ANG_OP_GET, src, end - *done),
                   first_place(peer, src), NULL);
        status = ANGARA_INPROGRESS;
    }
    return status;
}

/* ---- markers --------------------------------------------------------------------------------- */

angara_status_t soft_agent_read_back(soft_peer_t *peer)
{
    soft_request_t  request = {.op = ANG_OP_MARKER};
    angara_status_t status;

    if (peer->agent < 0) {
        status = soft_agent_open(peer, 0);
        if (status == ANGARA_OK) {
            soft_agent_post(peer, &request, 0);
            status = ANGARA_INPROGRESS;
        }
        return status;
    }
    status = soft_agent_receive(peer, 0);
    if (status != ANGARA_INPROGRESS) {
        soft_agent_end(peer);
    }
    return status;
}
