/* hush's policy, from gauges of the link to the law's settings, and its guard, as `src/disciplines/hush/policy.rs` and `guard.rs`. */
#ifndef QUELL_HUSH_POLICY_H
#define QUELL_HUSH_POLICY_H

#include "hush_law.h"
#include "hush_link.h"

enum {
    FINE = 24,    /* fractional bits of ratios to the round trip */
    BIAS = 2 * Q, /* fractional bits of the bias */
    DOUBLINGS = 6,
};
#define LONGEST (600 * SECOND)

struct policy {
    u64 due, last;
    s64 actions; /* per round trip, FINE fractional bits; like trough and peak (ns) a running mean */
    s64 trough, peak;
    s64 dry;  /* the dry share, a running mean with 30 fractional bits */
    s64 bias; /* ln of the factor of the target that follows it */
    u64 decisions;
};

struct guard {
    u64 until;
    u64 doublings;
    u64 began, last, sent, least; /* a period, with the bytes sent up to its start and the least backlog in it */
    u32 watching;                 /* there is such a period */
    u32 trusted;
};

struct reading {
    u64 rate, round_trip, head_age, queued, sent;
};

static always_inline void policy_init(struct policy *p)
{
    p->due = p->last = p->decisions = 0;
    p->actions = p->trough = p->peak = p->dry = p->bias = 0;
}

static always_inline void guard_init(struct guard *g)
{
    g->until = g->doublings = g->began = g->last = g->sent = g->least = 0;
    g->watching = 0;
    g->trusted = 1;
}

/* Updates the running means; `span` is the time since the last decision, 0 at the first. */
static always_inline void policy_remember(struct policy *p, u64 span, const struct link *link, struct law *law)
{
    u64 trip = link->round_trip;

    if (span) {
        /* A span counts as at least a thousandth of a round trip. */
        s64 per_trip = mul_div(law->actions * trip, 1 << FINE, max64(span, trip / 1000));

        p->actions = approached(p->actions, per_trip, decay(span, 10 * trip));
        if (law->peak > 0) {
            s64 share = decay(span, 4 * trip);

            p->trough = approached(p->trough, link_drain(link, law->trough), share);
            p->peak = approached(p->peak, link_drain(link, law->peak), share);
        }
    }
    law->actions = 0;
    law->trough = ~0ULL;
    law->peak = 0;
}

/* ln of x + more, with `bits` fractional bits in both. */
static always_inline s64 ln_fraction(s64 x, u32 bits, s64 more)
{
    return ln(x + more > 1 ? x + more : 1) - bits * LN2_Q;
}

static always_inline s64 weighed(const s32 *row, const s64 *x)
{
    s64 sum = 0;

    for (int i = 0; i < HUSH_FEATURES; i++)
        sum += row[i] * x[i];
    return sum >> Q;
}

static always_inline u64 in_range(u64 time)
{
    return min64(max64(time, SECOND / 100000), 5 * SECOND);
}

/* The target's factor follows the dry share: per round trip (at least 20 ms), its ln falls by at most `gain` and rises by twice that. */
static always_inline void policy_follow(struct policy *p, u64 span, const struct link *link, const s64 *x)
{
    s64 sum = HUSH_DRY[0] * x[0] + HUSH_DRY[1] * x[1] + HUSH_DRY[2] * x[3] + HUSH_DRY[3] * x[8];
    u64 set = min64(max64(power(sum >> Q, 30), 1), 1 << 30);
    s64 lately = link->idle_at && less(p->last, link->idle_at) <= link->round_trip ? 1 << 30 : 0;
    s64 ratio;
    u64 trip = max64(link->round_trip, 20 * MS);
    s64 trips = span >= trip ? ONE : (s64)((span << Q) / trip);
    s64 step = HUSH_GAIN * trips >> Q;

    if (!span)
        p->dry = set;
    p->dry = approached(p->dry, lately, decay(span, max64(20 * link->round_trip, SECOND)));
    ratio = min64(((u64)p->dry << Q) / set, 3 << Q);
    p->bias = clamped(p->bias + step * (ratio - ONE), (s64)HUSH_FALLS * ONE, (s64)HUSH_RISES * ONE);
}

/* Computes the settings from the law's actions and the link's gauges, and sets the time of the next decision. */
global int policy_decide(struct policy *p nonnull, u64 now, const struct link *link nonnull, struct law *law nonnull,
                         struct settings *s nonnull)
{
    u64 trip = link->round_trip, packet = link_drain(link, MTU), base, time, span = p->last ? less(now, p->last) : 0;
    s64 x[HUSH_FEATURES], above;

    p->last = now;
    policy_remember(p, span, link, law);
    p->due = now + min64(max64(trip / 4, 2 * MS), 100 * MS);
    p->decisions++;

    x[0] = ONE;
    x[1] = ln(trip) - ln(30 * MS);
    x[2] = ln(packet) - ln(MS);
    x[3] = link->ln_equals;
    x[4] = ln_fraction(link->idle, 30, 2147483) + 4 * ONE;                /* 0.002 */
    x[5] = ln_fraction(p->actions, FINE, 838860) + ONE;                   /* 0.05 */
    x[6] = ln_fraction(mul_div(p->trough, 1 << FINE, trip), FINE, 167772) + 3 * ONE; /* 0.01 */
    x[7] = ln_fraction(mul_div(p->peak, 1 << FINE, trip), FINE, 167772) + 2 * ONE;
    x[8] = clamped(ln(trip) - ln(packet) - x[3] - ln(20), 0, 5 * ONE);

    policy_follow(p, span, link, x);
    time = min64(power(weighed(HUSH_TARGET, x) + ln(SECOND) + (p->bias >> (BIAS - Q)), 0), HUSH_LONGEST * SECOND >> Q);
    s->target = in_range(max64(time, packet / 2));
    s->wait = in_range(scaled(trip, clamped(weighed(HUSH_WAIT, x), -6 * ONE, 3 * ONE)));
    s->hold = in_range(scaled(trip, clamped(weighed(HUSH_HOLD, x), -4 * ONE, 3 * ONE)));
    above = weighed(HUSH_CAP, x);
    base = s->target + 2 * packet;
    s->cap = above > 4 * ONE ? NEVER : in_range(base + scaled(base, above > -3 * ONE ? above : -3 * ONE));
    s->step = in_range(max64(power(weighed(HUSH_STEP, x) + ln(SECOND), 0), packet));
    s->power = HUSH_POWER;
    return 0;
}

/* 1 if the backlog was too long throughout a period in which packets left; while none leave, no law can shorten it. */
static always_inline int guard_stuck(struct guard *g, u64 now, const struct reading *r, u64 quiet)
{
    u64 span, least, left;

    if (!g->watching || less(now, g->last) > quiet / 2) {
        g->began = now;
        g->sent = r->sent;
        g->least = r->queued;
        g->watching = 1;
    }
    g->last = now;
    g->least = min64(g->least, r->queued);
    span = less(now, g->began);
    if (span < quiet)
        return 0;
    least = g->least;
    left = r->sent - g->sent;
    g->began = now;
    g->sent = r->sent;
    g->least = r->queued;
    return left && wider(product(least, span), product(left, max64(250 * MS, 2 * r->round_trip)));
}

/* Checks a decision of the policy on this reading; 1 if the policy decides again from now on. */
global int guard_turn(struct guard *g nonnull, u64 now, const struct reading *r nonnull)
{
    u64 quiet = max64(SECOND, 10 * r->round_trip);
    int impossible = r->rate <= SLOWEST || r->rate >= FASTEST || r->head_age > LONGEST;
    u32 before = g->trusted;

    if (impossible) {
        g->until = plus(now, quiet << masked(g->doublings, 7));
    } else if (before && guard_stuck(g, now, r, quiet)) {
        g->doublings = min64(g->doublings + 1, DOUBLINGS);
        g->until = plus(now, quiet << masked(g->doublings, 7));
    }
    g->trusted = now >= g->until;
    if (!g->trusted)
        g->watching = 0;
    return !before && g->trusted;
}

#endif
