/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Joint copies: a long put or get between host memories of two processes, which both copy. Without
 * them one side copies while the other waits in its progress, and one processor sets the pace.
 *
 * The initiator posts a joint request (service.h) into a slot of the target. Its operand says what
 * is claimed: who will copy a piece adds its length by compare-and-swap, and the piece is his
 * alone. The initiator goes from the front, the target from the back, so that each copies the same
 * parts of a buffer that is used again, which its caches may still hold: pieces in turn were a
 * third slower. The initiator claims one with each turn of progress (as long as the target hasn't
 * come, as many as the turn may copy), the target's owner one in a turn of his own progress in
 * which it had nothing else to copy. So who comes to poll helps, and who computes costs nothing;
 * the helper thread takes no part.
 *
 * Invariants
 *   - The target claims and copies while the slot is SERVING, one piece, and makes it POSTED again
 *     (or DONE) when that has ended. So the initiator, which finds nothing left to claim and takes
 *     the request back while it is POSTED, knows that all is copied; while it is SERVING, a piece
 *     is on its way, and is waited for as any answer is.
 *   - A piece that the target couldn't copy it gives back by its answer, which says which it is.
 *     Then it does nothing for the request; the initiator copies that piece, and finds out what is
 *     wrong. No other piece is copied by two.
 *   - For each piece the near and the far region are looked up anew, under a hazard in the domain
 *     of the process whose memory is reached into, or with the helper's lock held in the own one.
 *     So both deregistrations wait for pieces, nothing is held between them, and a request that is
 *     given up ends with the piece under way.
 */
#ifndef SOFT_JOINT_H
#define SOFT_JOINT_H

#include "soft.h"

/* Should this operation be a joint one? `near`: its end here; `is_mapped`: so is the other one. */
int soft_joint_is_worth(soft_peer_t *peer, uint64_t length, const ang_ref_t *near, int is_mapped);
/*
 * As the backend's copy(), one piece a call if the peer takes part. With the last one *done comes
 * to the end of the operation, with what the peer has moved. ANGARA_ERR_UNSUPPORTED: it can't be
 * shared, nothing of it is under way any more.
 */
angara_status_t soft_joint_copy(soft_peer_t *peer, ang_op_t op, const ang_ref_t *far,
                                const ang_ref_t *near, uint64_t end, uint64_t *done);
/* Does the thread that calls share its processor? Then it neither asks for help nor gives it. */
int soft_is_crowded(soft_pe_t *pe);
/*
 * The target's side, with the helper's lock held: copy a piece. `request`: a checked copy of the
 * slot's. @return ANGARA_INPROGRESS: there is more to claim; ANGARA_OK: there isn't;
 * ANGARA_ERR_UNSUPPORTED: the piece is given back, the slot says which.
 */
angara_status_t soft_joint_serve(soft_pe_t *pe, soft_slot_t *slot, const soft_request_t *request);

#endif
