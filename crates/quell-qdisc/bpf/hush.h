/*
 * `hush`: flow queues in deficit round robin under one law, whose settings a trained policy takes from what it sees of the link; the
 * decisions of `src/disciplines/hush/` (docs/explanation/hush.md), bit for bit, as long as no more than PACKETS are queued.
 */
#ifndef QUELL_HUSH_H
#define QUELL_HUSH_H

#include "codels.h"
#include "hush_policy.h"

enum {
    BLOCK = 32,           /* flows in a block of the search for the flow that pays */
    BLOCKS = FLOWS / BLOCK,
};

struct queue {
    struct flows flows;
    struct codels codels; /* what serves while the policy cannot be trusted */
    struct link link;
    struct law law;
    struct policy policy;
    struct settings settings;
    struct guard guard;
    struct reading reading;
    u64 due; /* when the gauges or the policy are */
    u64 marks;
    u32 limit;
    u32 ecn;
    u32 bounds[BLOCKS]; /* no score in a block is higher */
};

static always_inline void queue_init(struct queue *q, u64 now)
{
    u32 i;

    (void)now;
    flows_init(&q->flows, NONE);
    codels_init(&q->codels);
    link_init(&q->link);
    law_init(&q->law);
    policy_init(&q->policy);
    guard_init(&q->guard);
    q->settings = (struct settings){ NEVER, NEVER, NEVER, NEVER, NEVER, 0 };
    q->due = q->marks = 0;
    repeat (i, BLOCKS)
        q->bounds[masked(i, BLOCKS - 1)] = 0;
}

static always_inline void queue_set(struct queue *q, const struct quell_knobs *knobs, u64 now)
{
    q->limit = quell_limit(knobs, now, 10240, LIMIT_MOST);
    codels_set(&q->codels, &q->flows, knobs, now);
    q->ecn = q->codels.ecn;
    q->codels.ecn &= !q->flows.mark_next;
}

/* What decides which flow pays: bytes queued, and a share of those served lately; 0 without a packet. */
static always_inline u32 score_of(struct queue *q, s32 flow)
{
    u32 queued = flow_at(&q->flows, flow)->bytes;
    u64 served = peer_at(&q->link, flow)->served;

    if (!queued)
        return 0;
    return min64(queued + (served * HUSH_SERVICE >> Q), ~0U);
}

/* The highest score in a block, and in the upper half its flow, the first of equals. */
global u64 best_of_block(struct queue *q nonnull, u32 block)
{
    u32 i, most = 0, best = block * BLOCK;

    repeat (i, BLOCK) {
        u32 flow = block * BLOCK + i, score;

        if (flow >= q->flows.count)
            break;
        score = score_of(q, flow);
        if (score > most) {
            most = score;
            best = flow;
        }
    }
    return (u64)best << 32 | most;
}

/* The block with the highest bound, the first of equals, and in the upper half the bound. */
global u64 highest_block(const struct queue *q nonnull)
{
    u32 i, most = 0, best = 0;

    repeat (i, BLOCKS) {
        u32 bound = q->bounds[masked(i, BLOCKS - 1)];

        if (bound > most) {
            most = bound;
            best = i;
        }
    }
    return (u64)most << 32 | best;
}

/* The flow with the most bytes queued and served lately, of those that have a packet. A score rises only when a packet arrives, which
 * raises its block's bound; so the search looks through few blocks (`src/disciplines/hush/scores.rs`). */
global int victim(struct queue *q nonnull)
{
    s32 flow = 0;
    u32 i;

    repeat (i, 2 * BLOCKS) {
        u64 highest = highest_block(q), best;
        u32 block = highest, most;

        best = best_of_block(q, block);
        most = best;
        flow = best >> 32;
        q->bounds[masked(block, BLOCKS - 1)] = most;
        if (most >= highest_block(q) >> 32)
            break;
    }
    return flow;
}

/* Drops the packet at the head of a flow; its bytes. */
global int drop_from(struct queue *q nonnull, s32 flow, enum cause cause)
{
    s32 at = flows_pop(&q->flows, flow);

    if (at == NONE)
        return 0;
    flows_drop(&q->flows, at, cause);
    return packet_at(&q->flows, at)->bytes;
}

/* Drops from the flow that pays, up to half of its bytes or a batch, so that one search for it pays for many drops. */
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
    }
    return 0;
}

static always_inline s32 queue_enqueue(struct queue *q, u32 hash, u32 bytes, u32 ecn, u64 now)
{
    s32 flow = flow_of(&q->flows, hash), at;
    u32 *bound = &q->bounds[masked((u32)flow / BLOCK, BLOCKS - 1)], score;

    link_arrived(&q->link, now, flow, bytes);
    at = flows_push(&q->flows, flow, bytes, ecn, now);
    if (at == NONE)
        return NONE;
    flows_activate(&q->flows, flow);
    score = score_of(q, flow);
    if (score > *bound)
        *bound = score;
    if (flows_full(&q->flows, q->limit))
        drop_batch(q);
    return at;
}

/* How long the packet has waited that waits longest of all flows' heads. */
global u64 head_age(struct flows *q nonnull, u64 now)
{
    u64 most = 0;
    u32 i;

    repeat (i, FLOWS) {
        struct flow *f = flow_at(q, i);

        if (i >= q->count)
            break;
        if (f->packets)
            most = max64(most, less(now, packet_at(q, f->head)->enqueued));
    }
    return most;
}

/* Brings the gauges up to date and lets the policy set the law, whichever is due; the guard looks at the policy's turn. */
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
        q->reading = (struct reading){ link->rate, link->round_trip, head_age(&q->flows, now), q->flows.bytes, link->sent };
        /* Back in charge: what the law remembers is of the time before. */
        if (guard_turn(&q->guard, now, &q->reading))
            law_init(&q->law);
    }
    law_tune(&q->law, &q->settings, link->rate);
    q->due = min64(link->due, q->policy.due);
    return 0;
}

/* Marks a flow's head, if it can be marked and the flow would slow down for it; else drops it. */
global int act(struct queue *q nonnull, s32 flow)
{
    struct flow *f = flow_at(&q->flows, flow);
    u64 least = (u64)HUSH_WINDOW * MTU;

    if (q->ecn && link_window(&q->link, flow, f->bytes) << Q >= least && f->packets
        && flows_mark(&q->flows, f->head)) {
        q->marks++;
        return 0;
    }
    drop_from(q, flow, EARLY);
    return 0;
}

/* What the law asks for now. The last packet leaves in any case, however large it is. */
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
        drop_from(q, flow, EARLY);
    }
    return 0;
}

/* Marks the head of a flow if it is scalable and waited for longer than the step, unless it is all there is. */
static always_inline void step(struct queue *q, s32 flow, u64 now)
{
    s32 at = flow_at(&q->flows, flow)->head;
    struct packet *head = packet_at(&q->flows, at);

    if (q->ecn && head->ecn == ECT_1 && less(now, head->enqueued) > q->settings.step
        && q->flows.bytes > MTU + head->bytes && flows_mark(&q->flows, at))
        q->marks++;
}

/* The packet whose turn it is; NONE if there is none. */
global int next_packet(struct queue *q nonnull, u64 now)
{
    struct flows *flows = &q->flows;
    u32 i;

    repeat (i, TURNS_MOST) {
        s32 flow = flows_turn(flows);

        if (flow == AGAIN)
            continue;
        if (flow == NONE)
            break;
        if (flow_at(flows, flow)->packets) {
            step(q, flow, now);
            return flows_pop(flows, flow);
        }
        flows_found_empty(flows, flow);
    }
    return NONE;
}

static always_inline s32 queue_dequeue(struct queue *q, u64 now)
{
    u32 bytes;
    s32 at, flow;

    if (q->flows.packets_queued && now >= q->due)
        learn(q, now);
    if (q->guard.trusted && !q->codels.rests) {
        if (q->flows.packets_queued)
            obey(q, now);
        at = next_packet(q, now);
    } else {
        at = codels_fair(&q->flows, &q->codels, now);
    }
    if (at == NONE) {
        link_found_empty(&q->link, now);
        return NONE;
    }
    flows_charge(&q->flows, at);
    flow = packet_at(&q->flows, at)->flow;
    bytes = packet_at(&q->flows, at)->bytes;
    link_departed(&q->link, now, flow, bytes, !q->flows.packets_queued);
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
