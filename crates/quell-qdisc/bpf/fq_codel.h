/*
 * `fq_codel`: deficit round robin over flows, each with a CoDel of its own, as `src/disciplines/fq_codel.rs`.
 *
 * Sources: RFC 8290; Linux `net/sched/sch_fq_codel.c`.
 */
#ifndef QUELL_FQ_CODEL_H
#define QUELL_FQ_CODEL_H

#include "codels.h"

struct queue {
    struct flows flows;
    struct codels codels;
    u32 limit;
};

static always_inline void queue_init(struct queue *q, u64 now)
{
    (void)now;
    flows_init(&q->flows, NONE);
    codels_init(&q->codels);
}

static always_inline void queue_set(struct queue *q, const struct quell_knobs *knobs, u64 now)
{
    q->limit = quell_limit(knobs, now, 10240, LIMIT_MOST);
    codels_set(&q->codels, &q->flows, knobs, now);
}

/* The flow with the most bytes queued, the first of equals. */
global int fattest(struct flows *q nonnull)
{
    u32 i, most = 0;
    s32 fat = 0;

    repeat (i, FLOWS) {
        u32 bytes = flow_at(q, i)->bytes;

        if (i >= q->count)
            break;
        if (bytes > most) {
            most = bytes;
            fat = i;
        }
    }
    return fat;
}

/* Drops from the head of the flow with the most bytes, half of them or a batch; its CoDel counts the drops (RFC 8290, section 4.1). */
global int drop_batch(struct queue *q nonnull)
{
    s32 fat = fattest(&q->flows);
    u32 half = flow_at(&q->flows, fat)->bytes / 2;
    u32 packets = 0, bytes = 0, i;

    repeat (i, DROP_BATCH) {
        s32 at = flows_pop(&q->flows, fat);

        if (at == NONE)
            break;
        packets++;
        bytes += packet_at(&q->flows, at)->bytes;
        flows_drop(&q->flows, at, OVERFLOW);
        if (bytes >= half)
            break;
    }
    law_of(&q->codels, fat)->count += packets;
    return packets;
}

static always_inline s32 queue_enqueue(struct queue *q, u32 hash, u32 bytes, u32 ecn, u64 now)
{
    s32 flow = flow_of(&q->flows, hash);
    s32 at = flows_push(&q->flows, flow, bytes, ecn, now);

    if (at == NONE)
        return NONE;
    flows_activate(&q->flows, flow);
    if (flows_full(&q->flows, q->limit))
        drop_batch(q);
    return at;
}

static always_inline s32 queue_dequeue(struct queue *q, u64 now)
{
    s32 at = codels_fair(&q->flows, &q->codels, now);

    if (at != NONE)
        flows_charge(&q->flows, at);
    return at;
}

static always_inline void queue_gauges(const struct queue *q, struct quell_gauges *gauges)
{
    gauges->marks = q->codels.marks;
    gauges->flows = q->flows.count;
}

#endif
