/*
 * `hush`: flow queues served by deadline under one law, whose settings a trained policy computes from measurements of the link; the
 * decisions of `src/disciplines/hush/` (docs/explanation/hush.md), bit for bit, with the shipped numbers, 1,024 buckets and flows in the default
 * order, while at most PACKETS are queued.
 */
#ifndef QUELL_HUSH_H
#define QUELL_HUSH_H

#include "codels.h"
#include "hush_policy.h"
#include "tournament.h"

#define FLOW_BITS 16
#define FLOW_MASK 0xffffULL
#define BEFORE (1ULL << 38) /* added to every deadline, so that none is negative: handicaps are at least -85 s */
#define HALF 45426 /* ln 2: with less than half of the mean service, a flow's lone packets get a lead */
#define LARGEST_SHARE (47 * ONE / 100)
#define SHARE_STEP (ONE / 4)
#define END ((1ULL << (64 - FLOW_BITS)) - 2)

struct queue {
    struct flows flows;
    struct codels codels; /* the stand-in while the policy is not trusted */
    struct link link;
    struct law law;
    struct policy policy;
    struct settings settings;
    struct guard guard;
    struct reading reading;
    u64 due; /* time at which the gauges or the policy are due next */
    u64 marks;
    s64 scale, lead; /* `kappa` and `lead` targets */
    u32 service, steady; /* shares of a flow's service that count as if they were queued, Q fractional bits */
    u32 by_deadline; /* otherwise the flows are in the lists of a deficit round robin */
    u32 limit;
    u32 ecn;
    struct tournament deadlines; /* of the flows' heads, in units of 2^10 ns; the flow's number is in the low bits */
    struct tournament bounds;    /* upper bounds of the flows' scores */
};

static always_inline void queue_init(struct queue *q, u64 now)
{
    (void)now;
    flows_init(&q->flows, NONE);
    codels_init(&q->codels);
    link_init(&q->link);
    law_init(&q->law);
    policy_init(&q->policy);
    guard_init(&q->guard);
    q->settings = (struct settings){ NEVER, NEVER, NEVER, NEVER, NEVER, 0 };
    q->due = q->marks = 0;
    q->scale = q->lead = 0;
    q->service = q->steady = 0;
    q->by_deadline = 1;
    tournament_init(&q->deadlines);
    tournament_init(&q->bounds);
}

static always_inline void queue_set(struct queue *q, const struct quell_knobs *knobs, u64 now)
{
    q->limit = quell_limit(knobs, now, 10240, LIMIT_MOST);
    codels_set(&q->codels, &q->flows, knobs, now);
    q->ecn = q->codels.ecn;
    q->codels.ecn &= !q->flows.mark_next;
}

/* Score for the choice of the victim: bytes queued plus shares of recent and of steady service; 0 without a packet. */
static always_inline u32 score_of(struct queue *q, s32 flow)
{
    u32 queued = flow_at(&q->flows, flow)->bytes;
    u64 served = (u64)peer_at(&q->link, flow)->served * q->service >> Q;

    if (!queued)
        return 0;
    served += link_steady(&q->link, flow) * q->steady >> Q;
    return min64(queued + served, ~0U);
}

/* The highest score first, then the lowest flow. */
static always_inline u64 score_key(s32 flow, u32 score)
{
    return (u64)~score << FLOW_BITS | (u32)flow;
}

/* The flow with the highest score, of those that have a packet. A score rises when a packet arrives or the shares grow, and its bound
 * with it; so the search lowers bounds until the highest is exact (`src/disciplines/hush/scores.rs`). */
global int victim(struct queue *q nonnull)
{
    s32 flow = 0;
    u32 i;

    repeat (i, FLOWS + 1) {
        u64 least = tournament_least(&q->bounds), key;

        flow = least & FLOW_MASK;
        key = score_key(flow, score_of(q, flow));
        if (key == least)
            break;
        tournament_set(&q->bounds, flow, key);
    }
    return flow;
}

/* Sets the shares of service for the target. When they grow, all bounds are updated. */
global int follow_shares(struct queue *q nonnull)
{
    u64 target = power(ln(max64(q->settings.target, 1)) / SHARE_STEP * SHARE_STEP, 0);
    u32 service = min64((u64)HUSH_SERVICE * target / MEMORY, LARGEST_SHARE);
    u32 steady = min64((u64)HUSH_STEADY * target / MEMORY, LARGEST_SHARE);
    u32 grew = service > q->service || steady > q->steady, i;

    q->service = service;
    q->steady = steady;
    if (!grew)
        return 0;
    repeat (i, FLOWS) {
        if (i >= q->flows.count)
            break;
        tournament_set(&q->bounds, i, score_key(i, score_of(q, i)));
    }
    return 0;
}

/* Sets a flow's deadline from the packet at its head; `alone`: nothing of the flow was queued when that packet arrived. */
global int place(struct queue *q nonnull, s32 flow, u32 alone)
{
    struct flow *f = flow_at(&q->flows, flow);
    u64 key = LAST;

    if (f->packets) {
        s64 excess = peer_at(&q->link, flow)->excess;
        s64 handicap = q->scale * excess >> Q;
        u64 due;

        if (alone && excess < -HALF)
            handicap += q->lead * (excess + HALF) >> Q;
        due = plus(packet_at(&q->flows, f->head)->enqueued, BEFORE + handicap);

        key = min64(due >> 10, END) << FLOW_BITS | (u32)flow;
    }
    return tournament_set(&q->deadlines, flow, key);
}

/* Moves the flows from the order by deadline to the lists of a deficit round robin, or back. */
global int change_order(struct queue *q nonnull, u32 by_deadline)
{
    u32 i;

    q->by_deadline = by_deadline;
    if (!by_deadline) {
        codels_forget(&q->codels);
    } else if (q->link.rate) {
        law_init(&q->law);
        law_tune(&q->law, &q->settings, q->link.rate);
    }
    repeat (i, FLOWS) {
        if (i >= q->flows.count)
            break;
        if (by_deadline) {
            flows_move(&q->flows, i, TURN_OFF);
            place(q, i, 0);
        } else if (flow_at(&q->flows, i)->packets) {
            flows_activate(&q->flows, i);
        }
    }
    return 0;
}

/* Drops the packet at the head of a flow; returns its bytes. */
global int drop_from(struct queue *q nonnull, s32 flow, enum cause cause)
{
    s32 at = flows_pop(&q->flows, flow);

    if (at == NONE)
        return 0;
    flows_drop(&q->flows, at, cause);
    return packet_at(&q->flows, at)->bytes;
}

/* Drops from the victim, just over half of its bytes or a batch, so that one search serves many drops. */
global int drop_batch(struct queue *q nonnull)
{
    u32 i, k;

    repeat (i, PACKETS) {
        u64 bytes = 0, half;
        s32 flow;

        if (!flows_full(&q->flows, q->limit) || !q->flows.packets_queued)
            break;
        flow = victim(q);
        half = flow_at(&q->flows, flow)->bytes / 2;
        repeat (k, DROP_BATCH) {
            if (bytes > half || !q->flows.packets_queued)
                break;
            bytes += drop_from(q, flow, OVERFLOW);
        }
        if (q->by_deadline)
            place(q, flow, 0);
    }
    return 0;
}

static always_inline s32 queue_enqueue(struct queue *q, u32 hash, u32 bytes, u32 ecn, u64 now)
{
    s32 flow = flow_of(&q->flows, hash), at;
    u64 key;

    link_arrived(&q->link, now, flow, bytes);
    at = flows_push(&q->flows, flow, bytes, ecn, now);
    if (at == NONE)
        return NONE;
    if (!q->by_deadline)
        flows_activate(&q->flows, flow);
    else if (flow_at(&q->flows, flow)->packets == 1)
        place(q, flow, 1);
    key = score_key(flow, score_of(q, flow));
    if (key < tournament_of(&q->bounds, flow))
        tournament_set(&q->bounds, flow, key);
    if (flows_full(&q->flows, q->limit))
        drop_batch(q);
    return at;
}

/* Time that the next packet to leave has waited. */
static always_inline u64 head_age(struct queue *q, u64 now)
{
    s32 first = q->flows.firsts[TURN_NEW] != NONE ? q->flows.firsts[TURN_NEW] : q->flows.firsts[TURN_OLD];
    s32 flow = q->by_deadline ? (s32)(tournament_least(&q->deadlines) & FLOW_MASK) : first;
    struct flow *f = flow_at(&q->flows, flow);

    return f->packets ? less(now, packet_at(&q->flows, f->head)->enqueued) : 0;
}

/* Updates the gauges if they are due, and lets the policy set the law if it is due; the guard checks the policy's decision. */
global int learn(struct queue *q nonnull, u64 now)
{
    struct link *link = &q->link;

    if (now >= link->due)
        link_update(link, now, q->flows.count);
    if (!link->rate) {
        q->due = link->due;
        return 0;
    }
    if (now >= q->policy.due) {
        policy_decide(&q->policy, now, link, &q->law, &q->settings);
        q->scale = (s64)HUSH_KAPPA * (s64)min64(q->settings.target, SECOND) >> Q;
        q->lead = (s64)HUSH_LEAD * (s64)min64(q->settings.target, SECOND) >> Q;
        follow_shares(q);
        q->reading = (struct reading){ link->rate, link->round_trip, head_age(q, now), q->flows.bytes, link->sent };
        /* The policy is trusted again: the law's state is from before it was suspended. */
        if (guard_turn(&q->guard, now, &q->reading))
            law_init(&q->law);
    }
    law_tune(&q->law, &q->settings, link->rate);
    q->due = min64(link->due, q->policy.due);
    return 0;
}

/* Drops a flow's head by the law's decision. */
static always_inline void give_up(struct queue *q, s32 flow)
{
    drop_from(q, flow, EARLY);
    place(q, flow, 0);
}

/* Marks a flow's head if it is ECN-capable and the flow's window is at least HUSH_WINDOW packets; otherwise drops it. */
global int act(struct queue *q nonnull, s32 flow)
{
    struct flow *f = flow_at(&q->flows, flow);
    u64 least = (u64)HUSH_WINDOW * MTU;

    if (q->ecn && link_window(&q->link, flow, f->bytes) << Q >= least && f->packets
        && flows_mark(&q->flows, f->head)) {
        q->marks++;
        return 0;
    }
    give_up(q, flow);
    return 0;
}

/* Applies the law. The last packet is neither marked nor dropped, whatever its size. */
global int obey(struct queue *q nonnull, u64 now)
{
    u32 i;

    repeat (i, PACKETS) {
        enum verdict verdict = law_judge(&q->law, now, q->flows.bytes, &q->settings);
        s32 flow;

        if (verdict == PASS || q->flows.packets_queued <= 1)
            break;
        q->law.actions++;
        flow = victim(q);
        if (verdict == ACT) {
            act(q, flow);
            break;
        }
        give_up(q, flow);
    }
    return 0;
}

/* Marks the head of a flow if it is ECT(1), waited for longer than the step, and its flow's share of the backlog accounts for that;
 * not if at most MTU bytes are queued besides it. */
static always_inline void step(struct queue *q, s32 flow, u64 now)
{
    struct flow *f = flow_at(&q->flows, flow);
    struct packet *head = packet_at(&q->flows, f->head);
    u64 step = q->settings.step;

    if (q->ecn && head->ecn == ECT_1 && less(now, head->enqueued) > step && q->flows.bytes > MTU + head->bytes
        && link_drain(&q->link, (u64)f->bytes * q->link.active) > mul_shift(step, HUSH_OWN, Q) && flows_mark(&q->flows, f->head))
        q->marks++;
}

/* The packet that leaves next; NONE if there is none. */
global int next_packet(struct queue *q nonnull, u64 now)
{
    u64 least = tournament_least(&q->deadlines);
    s32 flow = least & FLOW_MASK;

    if (least == LAST)
        return NONE;
    step(q, flow, now);
    return flows_pop(&q->flows, flow);
}

static always_inline s32 queue_dequeue(struct queue *q, u64 now)
{
    u32 bytes, by_deadline;
    s32 at, flow;

    if (q->flows.packets_queued && now >= q->due)
        learn(q, now);
    by_deadline = q->guard.trusted && !q->codels.rests;
    if (by_deadline != q->by_deadline)
        change_order(q, by_deadline);
    if (by_deadline) {
        if (q->flows.packets_queued)
            obey(q, now);
        at = next_packet(q, now);
    } else {
        at = codels_fair(&q->flows, &q->codels, now);
        if (at != NONE)
            flows_charge(&q->flows, at);
    }
    if (at == NONE) {
        link_found_empty(&q->link, now);
        return NONE;
    }
    flow = packet_at(&q->flows, at)->flow;
    bytes = packet_at(&q->flows, at)->bytes;
    link_departed(&q->link, now, flow, bytes, !q->flows.packets_queued);
    if (by_deadline)
        place(q, flow, 0);
    return at;
}

static always_inline void queue_gauges(const struct queue *q, struct quell_gauges *gauges)
{
    gauges->marks = q->marks + q->codels.marks;
    gauges->rate = q->link.rate;
    gauges->round_trip = q->link.round_trip;
    gauges->target = q->settings.target;
    gauges->wait = q->settings.wait;
    gauges->hold = q->settings.hold;
    gauges->cap = q->settings.cap;
    gauges->idle = q->link.idle;
    gauges->flows = q->link.active;
    gauges->trusted = q->guard.trusted;
    gauges->decisions = q->policy.decisions;
}

#endif
