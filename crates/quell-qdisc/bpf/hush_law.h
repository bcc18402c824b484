/* hush's law: shaped like CoDel's, but on the drain time of the whole backlog, as `src/disciplines/hush/law.rs`. */
#ifndef QUELL_HUSH_LAW_H
#define QUELL_HUSH_LAW_H

#include "fixed.h"
#include "flows.h"

/* Settings that the policy computes: times, and the power of their count with which the intervals between actions fall. */
struct settings {
    u64 target, wait, hold, cap, step;
    s64 power;
};

enum verdict { PASS, ACT, DROP };

/* Beyond this many consecutive actions their spacing no longer changes. */
#define COUNT_MOST (1ULL << 20)

struct law {
    u64 target_bytes, cap_bytes;
    u64 ripe; /* time at which the backlog will have been above target for the wait; 0 while it is below */
    u64 next;
    u64 count;
    u64 ended;
    u64 trough, peak; /* bytes, since the policy's last decision */
    u32 acting;
    u32 actions; /* since the policy's last decision */
};

/* Without settings it never acts. */
static always_inline void law_init(struct law *law)
{
    law->target_bytes = law->cap_bytes = law->trough = ~0ULL;
    law->ripe = law->next = law->count = law->ended = law->peak = 0;
    law->acting = law->actions = 0;
}

static always_inline void law_tune(struct law *law, const struct settings *s, u64 rate)
{
    law->target_bytes = max64(mul_div(s->target, rate, SECOND), MTU + 1);
    law->cap_bytes = s->cap == NEVER ? ~0ULL : max64(mul_div(s->cap, rate, SECOND), 2 * MTU);
}

static always_inline enum verdict law_above(struct law *law, u64 now, u64 bytes, const struct settings *s)
{
    s64 slower;

    if (bytes > law->cap_bytes)
        return DROP;
    if (!law->ripe)
        law->ripe = plus(now, s->wait);
    if (now < law->ripe)
        return PASS;
    if (!law->acting) {
        law->acting = 1;
        if (law->ended && now < plus(law->ended, 16 * s->hold))
            law->count = max64(less(law->count, 1), 1);
        else
            law->count = 1;
        if (now < law->next)
            return PASS;
    } else if (now < law->next) {
        return PASS;
    } else {
        law->count = min64(law->count + 1, COUNT_MOST);
    }
    slower = s->power * ln(law->count) >> Q;
    law->next = plus(max64(now, law->next), scaled(s->hold, -slower));
    return ACT;
}

/* Judges the bytes queued before a packet leaves. */
static always_inline enum verdict law_judge(struct law *law, u64 now, u64 bytes, const struct settings *s)
{
    law->trough = min64(law->trough, bytes);
    law->peak = max64(law->peak, bytes);
    if (bytes >= law->target_bytes)
        return law_above(law, now, bytes, s);
    law->ripe = 0;
    if (law->acting) {
        law->acting = 0;
        law->ended = now;
    }
    return PASS;
}

#endif
