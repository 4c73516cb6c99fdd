/* SPDX-License-Identifier: BSD-3-Clause */
/* The pairs of an engine and what is queued to them, for who doesn't post. See engine.h. */
#include "entry.h"

#include <string.h>

void ang_engine_pair_add(ang_engine_t *engine, ang_pair_t *pair)
{
    memset(pair, 0, sizeof(*pair));
    pair->engine      = engine;
    pair->tail        = &pair->head;
    pair->window_tail = &pair->window;
    ang_engine_lock(engine);
    pair->next    = engine->pairs;
    engine->pairs = pair;
    ang_engine_unlock(engine);
}

void ang_engine_pair_remove(ang_pair_t *pair)
{
    ang_engine_t *engine = pair->engine;
    ang_pair_t  **link;

    ang_engine_lock(engine);
    ang_pair_drop(pair);
    ang_chaos_drop_windows(pair);
    for (link = &engine->pairs; *link != pair; link = &(*link)->next) {
    }
    *link = pair->next;
    if (engine->turn == pair) {
        engine->turn = pair->next;
    }
    ang_engine_unlock(engine);
}

void ang_engine_pair_reset(ang_pair_t *pair, angara_status_t error)
{
    ang_engine_lock(pair->engine);
    ang_pair_drop(pair);
    if (error == ANGARA_OK) {
        ang_chaos_land_windows(pair); /* what begins anew must not meet what was put before */
    }
    pair->error = error;
    ang_engine_unlock(pair->engine);
}

int ang_engine_guest_enter(ang_engine_t *engine)
{
    if (__atomic_load_n(&engine->pending, __ATOMIC_ACQUIRE) == 0) {
        return 0;
    }
    ang_engine_lock(engine);
    if (engine->chaos == NULL) {
        if (__atomic_load_n(&engine->pending, __ATOMIC_ACQUIRE) == 0) {
            ang_engine_unlock(engine); /* the queues are the caller's by now */
            return 0;
        }
        /* Who sees a queue empty sees this before: entries are counted down with release. */
        __atomic_store_n(&engine->guest, 1, __ATOMIC_RELAXED);
    }
    return 1;
}

void ang_engine_guest_leave(ang_engine_t *engine)
{
    __atomic_store_n(&engine->guest, 0, __ATOMIC_RELEASE);
    ang_engine_unlock(engine);
}

unsigned ang_engine_guest_progress(ang_engine_t *engine)
{
    return engine->chaos == NULL ? ang_engine_progress(engine) : 0;
}

uint64_t ang_pair_mark(const ang_pair_t *pair)
{
    const ang_entry_t *head = pair->head;

    if (head == NULL) {
        return 0;
    }
    /* An odd factor: no two operations that follow each other soon give the same number. */
    return (head->sequence + head->run_at + 1) * 0x9e3779b97f4a7c15ull + head->done +
           (head->flies ? pair->engine->looks : 0);
}

static int pair_uses_local(const ang_pair_t *pair, uint64_t key)
{
    for (const ang_entry_t *entry = pair->head; entry != NULL; entry = entry->next) {
        if (ang_entry_uses_local(entry, key)) {
            return 1;
        }
    }
    return 0;
}

ang_pair_t *ang_engine_local_user(const ang_engine_t *engine, const ang_pair_t *after, uint64_t key)
{
    ang_pair_t *pair = after != NULL ? after->next : engine->pairs;

    while (pair != NULL && !pair_uses_local(pair, key)) {
        pair = pair->next;
    }
    return pair;
}

int ang_engine_pair_flies(ang_pair_t *pair)
{
    int flies;

    ang_engine_lock(pair->engine);
    flies = pair->head != NULL && pair->head->flies;
    ang_engine_unlock(pair->engine);
    return flies;
}

int ang_engine_pair_idle(ang_pair_t *pair)
{
    int idle;

    ang_engine_lock(pair->engine);
    idle = pair->head == NULL && pair->window == NULL;
    ang_engine_unlock(pair->engine);
    return idle;
}
