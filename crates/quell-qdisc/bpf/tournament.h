/* The least of many keys, one per flow, as `src/parts/tournament.rs`. */
#ifndef QUELL_TOURNAMENT_H
#define QUELL_TOURNAMENT_H

#include "flows.h"

enum { LEVELS = 10 }; /* FLOWS is 2 to the power of it */
#define LAST (~0ULL)  /* a key that is never least */

struct tournament {
    u32 leaves;           /* in use */
    u64 nodes[2 * FLOWS]; /* the root at 1, the children of i at 2 i and 2 i + 1, the leaves from `leaves` on */
};

static always_inline u64 *node_at(struct tournament *t, u32 i)
{
    return &t->nodes[masked(i, 2 * FLOWS - 1)];
}

static always_inline void tournament_init(struct tournament *t)
{
    t->leaves = 1;
    t->nodes[1] = LAST;
}

/* Doubles the leaves. */
global int tournament_grow(struct tournament *t nonnull)
{
    u32 leaves = t->leaves, i;

    repeat (i, FLOWS) {
        if (i >= leaves)
            break;
        *node_at(t, 2 * leaves + i) = *node_at(t, leaves + i);
        *node_at(t, 3 * leaves + i) = LAST;
    }
    /* From the deepest nodes up. */
    repeat (i, 2 * FLOWS) {
        u32 at = 2 * leaves - 1 - i;

        if (i >= 2 * leaves - 1)
            break;
        *node_at(t, at) = min64(*node_at(t, 2 * at), *node_at(t, 2 * at + 1));
    }
    t->leaves = 2 * leaves;
    return 0;
}

/* Sets a flow's key. */
global int tournament_set(struct tournament *t nonnull, s32 flow, u64 key)
{
    u64 least = key;
    u32 at, i;

    repeat (i, LEVELS) {
        if ((u32)flow < t->leaves)
            break;
        tournament_grow(t);
    }
    at = t->leaves + flow;
    *node_at(t, at) = key;
    for (i = 0; i < LEVELS; i++) {
        if (at <= 1)
            break;
        least = min64(least, *node_at(t, at ^ 1));
        at /= 2;
        if (*node_at(t, at) == least)
            break;
        *node_at(t, at) = least;
    }
    return 0;
}

/* A flow's key; LAST before it was set. */
static always_inline u64 tournament_of(struct tournament *t, s32 flow)
{
    return (u32)flow < t->leaves ? *node_at(t, t->leaves + flow) : LAST;
}

/* The least key; LAST without one. */
static always_inline u64 tournament_least(const struct tournament *t)
{
    return t->nodes[1];
}

#endif
