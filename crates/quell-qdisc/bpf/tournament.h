/* The least of many keys, one per flow, as `src/parts/tournament.rs`. */
#ifndef QUELL_TOURNAMENT_H
#define QUELL_TOURNAMENT_H

#include "flows.h"

enum { LEVELS = 5, INNER = (FLOWS - 1) / 3 }; /* FLOWS is 4 to the power of LEVELS */
#define LAST (~0ULL)                          /* key of a flow without a value */

struct tournament {
    u64 nodes[2 * FLOWS]; /* the root at 0, the children of i from 4 i + 1 on, the leaves from INNER on */
};

static always_inline u64 *node_at(struct tournament *t, u32 i)
{
    return &t->nodes[masked(i, 2 * FLOWS - 1)];
}

global int tournament_init(struct tournament *t nonnull)
{
    u32 i;

    repeat (i, 2 * FLOWS)
        *node_at(t, i) = LAST;
    return 0;
}

/* Sets a flow's key. */
global int tournament_set(struct tournament *t nonnull, s32 flow, u64 key)
{
    u32 at = INNER + flow, i;

    *node_at(t, at) = key;
    for (i = 0; i < LEVELS; i++) {
        u64 least;

        at = (at - 1) / 4;
        least = min64(min64(*node_at(t, 4 * at + 1), *node_at(t, 4 * at + 2)),
                      min64(*node_at(t, 4 * at + 3), *node_at(t, 4 * at + 4)));
        if (*node_at(t, at) == least)
            break;
        *node_at(t, at) = least;
    }
    return 0;
}

/* A flow's key; LAST before it was set. */
static always_inline u64 tournament_of(struct tournament *t, s32 flow)
{
    return *node_at(t, INNER + flow);
}

/* The least key; LAST without one. */
static always_inline u64 tournament_least(const struct tournament *t)
{
    return t->nodes[0];
}

#endif
