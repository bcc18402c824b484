/* hush's gauges of its link and its flows, as `src/disciplines/hush/link.rs`. */
#ifndef QUELL_HUSH_LINK_H
#define QUELL_HUSH_LINK_H

#include "fixed.h"
#include "flows.h"

#define PERIOD (50 * MS)
#define MEMORY (6 * PERIOD) /* memory of a flow's recent service */
#define PRIOR (50 * MS)     /* the round trip before the first measurement */
#define SILENCE SECOND      /* silence after which a flow may be a new connection */
#define SLOWEST 100ULL
#define FASTEST (1ULL << 40)
#define QUEUED 1ULL
enum {
    SMALL = 100,      /* largest packet that may begin a handshake, bytes */
    COUNTED_BITS = 3, /* in the mean service of the flows at most 2^COUNTED_BITS times their effective number count */
};

struct peer {
    u64 seen;      /* time of its last arrival; 0 before the first */
    u64 handshake; /* time at which its handshake left; QUEUED while that is queued, 0 without one */
    s32 round_trip; /* ln of it; 0 while unknown */
    u32 served;    /* recent service, bytes */
    u32 steady;    /* service over many round trips, bytes per MEMORY; like the excess, as of `at` on the clock `folds` */
    u32 at;
    s32 excess;    /* ln of steady service over the active flows' mean, a twentieth of which is added to both; -3 to 2, Q fractional bits */
};

struct link {
    u64 due;           /* end of the period */
    u64 last, since;   /* end of the last period, and of the last one that measured the rate */
    u64 idle_since;    /* time from which the link has nothing to send; NEVER while it has */
    u64 idle_ns, idle_ns_of_rate;
    u64 idle_at;       /* time at which a packet last arrived at an idle link; 0 before */
    u64 bytes;         /* sent since the rate was measured */
    u64 sent;
    u64 rate;          /* bytes per second; 0 while unknown */
    u64 per_byte;      /* nanoseconds, 16 fractional bits */
    s64 idle;          /* share, 30 fractional bits */
    u64 round_trip;
    u32 active;
    u32 asked;         /* a dequeue has found the queue empty since the last arrival */
    s64 ln_equals;     /* ln of the effective number of flows: (sum of service)^2 / (sum of squares); Q fractional bits */
    u64 sum_served, sum_squares;
    u64 sum;           /* of link_count(); in memory, because the verifier would follow each value of a register */
    u32 counted, known;
    u32 folds;         /* clock of the decay of steady service: e-folds with Q fractional bits; it wraps */
    u32 weight;        /* steady service that a byte adds, Q fractional bits */
    u64 total;         /* steady service of all flows */
    u64 twentieth;     /* of the mean of the active ones */
    s64 ln_mean;       /* ln of 1.05 times that mean */
    struct peer peers[FLOWS];
};

static always_inline struct peer *peer_at(struct link *link, s32 flow)
{
    return &link->peers[masked((u32)flow, FLOWS - 1)];
}

/* Memory of steady service: ten round trips, each counted as at least 30 ms. */
static always_inline u64 link_memory(u64 round_trip)
{
    return 10 * max64(round_trip, 30 * MS);
}

/* A flow's steady service at the clock's time. */
global u64 link_steady(struct link *link nonnull, s32 flow)
{
    struct peer *p = peer_at(link, flow);
    u32 past = link->folds - p->at;

    return past ? scaled(p->steady, -(s64)past) : p->steady;
}

/* Updates a flow's steady service and excess to the clock's time. */
global int link_fade_steady(struct link *link nonnull, s32 flow)
{
    struct peer *p = peer_at(link, flow);

    if (p->at == link->folds)
        return 0;
    p->steady = link_steady(link, flow);
    p->at = link->folds;
    p->excess = clamped(ln(p->steady + link->twentieth + 1) - link->ln_mean, -3 * ONE, 2 * ONE);
    return 0;
}

global int link_init(struct link *link nonnull)
{
    u32 i;

    repeat (i, FLOWS) {
        struct peer *p = peer_at(link, i);

        p->seen = p->handshake = 0;
        p->round_trip = 0;
        p->served = p->steady = p->at = 0;
        p->excess = 0;
    }
    link->due = NEVER;
    link->last = link->since = link->idle_since = link->idle_ns = link->idle_ns_of_rate = link->idle_at = 0;
    link->bytes = link->sent = link->rate = link->per_byte = 0;
    link->idle = (1 << 30) / 50;
    link->active = link->asked = 1;
    link->ln_equals = 0;
    link->round_trip = PRIOR;
    link->folds = 0;
    link->weight = (MEMORY << Q) / link_memory(PRIOR);
    link->total = link->twentieth = 0;
    link->ln_mean = 0;
    return 0;
}

/* Time that this many bytes take on the link. */
static always_inline u64 link_drain(const struct link *link, u64 bytes)
{
    struct wide w = product(bytes, link->per_byte);

    return w.high >> 16 ? 1ULL << 40 : min64(w.high << 48 | w.low >> 16, 1ULL << 40);
}

/* A flow's window in bytes: its queued bytes plus its service per round trip. */
static always_inline u64 link_window(struct link *link, s32 flow, u32 queued)
{
    return queued + (u64)peer_at(link, flow)->served * link->round_trip / MEMORY;
}

/* A packet of a flow arrived. */
static always_inline void link_arrived(struct link *link, u64 now, s32 flow, u32 bytes)
{
    struct peer *p = peer_at(link, flow);

    if (link->idle_since != NEVER) {
        if (link->due == NEVER) {
            /* The first packet: the time before it is unknown. */
            link->last = link->since = now;
            link->due = now + PERIOD;
        }
        u64 idle = less(now, max64(link->idle_since, link->last));

        if (idle)
            link->idle_at = now;
        link->idle_ns += idle;
        link->idle_ns_of_rate += less(now, max64(link->idle_since, link->since));
        link->idle_since = NEVER;
        link->asked = 0;
    }
    link_fade_steady(link, flow);
    if (bytes <= SMALL) {
        if (!p->seen || less(now, p->seen) > SILENCE)
            p->handshake = QUEUED;
    } else if (p->handshake) {
        if (p->handshake > QUEUED)
            p->round_trip = ln(min64(max64(less(now, p->handshake), MS / 10), 2 * SECOND));
        p->handshake = 0;
    }
    p->seen = max64(now, 1);
}

/* A packet of a flow left; `last`: the queue is empty now. */
static always_inline void link_departed(struct link *link, u64 now, s32 flow, u32 bytes, int last)
{
    struct peer *p = peer_at(link, flow);
    u32 more = (u64)bytes * link->weight >> Q;

    link_fade_steady(link, flow);
    p->steady = p->steady + more < more ? ~0U : p->steady + more;
    link->total += more;
    p->served = p->served + bytes < bytes ? ~0U : p->served + bytes;
    if (bytes <= SMALL && p->handshake == QUEUED)
        p->handshake = max64(now, QUEUED + 1);
    link->bytes += bytes;
    link->sent += bytes;
    if (last)
        link->idle_since = now + link_drain(link, bytes);
}

/* A dequeue found the queue empty. The first such call shows that the last packet has been transmitted. */
static always_inline void link_found_empty(struct link *link, u64 now)
{
    if (!link->asked) {
        link->asked = 1;
        link->idle_since = link->idle_since == NEVER ? now : max64(link->idle_since, now);
    }
}

static always_inline void link_set_rate(struct link *link, u64 rate)
{
    link->rate = min64(max64(rate, SLOWEST), FASTEST);
    link->per_byte = (SECOND << 16) / link->rate;
}

/* The rate is the bytes sent over the time in which the link was busy. A slow link takes more than a period to send enough bytes. */
static always_inline void link_measure_rate(struct link *link, u64 now)
{
    u64 span = less(now, link->since), busy = less(span, link->idle_ns_of_rate);

    if (link->bytes > 2 * MTU && 10 * busy > span) {
        u64 rate = mul_div(link->bytes, SECOND, busy), before = link->rate;

        link_set_rate(link, before ? before - 3 * before / 10 + 3 * rate / 10 : rate);
    } else if (span < SECOND && link->bytes > 0) {
        return;
    }
    link->bytes = link->idle_ns_of_rate = 0;
    link->since = now;
}

/* Counts active flows and computes the geometric mean of their round trips. */
global int link_count(struct link *link nonnull, u64 now, u32 flows)
{
    u64 span = max64(4 * link->round_trip, SECOND / 5), share;
    s64 most;
    u32 i;

    link->sum = link->counted = link->known = 0;
    link->sum_served = link->sum_squares = 0;
    repeat (i, FLOWS) {
        struct peer *p = peer_at(link, i);

        if (i >= flows)
            break;
        if (!p->seen || p->seen + span <= now)
            continue;
        share = p->served >> 6;
        link->sum_served += share;
        link->sum_squares += share * share;
        link->counted++;
        if (p->round_trip) {
            link->known++;
            link->sum += p->round_trip;
        }
    }
    link->active = link->counted ? link->counted : 1;
    most = ln(link->active);
    link->ln_equals = link->sum_squares ? clamped(2 * ln(link->sum_served) - ln(link->sum_squares), 0, most) : most;
    if (link->known)
        link->round_trip = power(link->sum / link->known, 0);
    return 0;
}

/* Removes a sixth of each flow's recent service. */
global int link_fade(struct link *link nonnull, u32 flows)
{
    u32 i;

    repeat (i, FLOWS) {
        struct peer *p = peer_at(link, i);

        if (i >= flows)
            break;
        p->served -= p->served / 6;
    }
    return 0;
}

/* Does this for each period that has passed; after 64 of them nothing is left. */
static always_inline void link_forget(struct link *link, u64 span, u32 flows)
{
    u64 periods = (span + PERIOD / 2) / PERIOD;
    u32 i;

    repeat (i, 64) {
        if (i >= periods)
            break;
        link_fade(link, flows);
    }
    if (periods <= 64)
        return;
    repeat (i, FLOWS)
        peer_at(link, i)->served = 0;
}

/* Moves the clock by which steady service decays. */
static always_inline void link_decay(struct link *link, u64 span)
{
    u64 memory = link_memory(link->round_trip), mean;
    u32 past = span / 64 >= memory ? 64 << Q : (span << Q) / memory;

    link->folds += past;
    link->total = scaled(link->total, -(s64)past);
    link->weight = (MEMORY << Q) / memory;
    mean = link->total / min64(link->active, power(link->ln_equals, COUNTED_BITS));
    link->twentieth = mean / 20;
    link->ln_mean = ln(mean + link->twentieth + 1);
}

/* Updates the gauges at the end of a period; called while packets are queued. `flows`: number of flows ever used. */
global int link_update(struct link *link nonnull, u64 now, u32 flows)
{
    u64 span = less(now, link->last);

    if (span > 0) {
        s64 idle = mul_div(min64(link->idle_ns, span), 1 << 30, span);

        link->idle = approached(link->idle, idle, decay(span, max64(10 * link->round_trip, SECOND / 2)));
        link_measure_rate(link, now);
        link_count(link, now, flows);
        link_forget(link, span, flows);
        link_decay(link, span);
    }
    link->idle_ns = 0;
    link->last = now;
    link->due = now + PERIOD;
    return 0;
}

#endif
