/* `codel`: one FIFO with CoDel's law at its head, as `src/disciplines/codel.rs`. */
#ifndef QUELL_CODEL_FIFO_H
#define QUELL_CODEL_FIFO_H

#include "codels.h"

struct queue {
    struct flows flows; /* all packets are in flow 0 */
    struct codels codels;
    u32 limit;
};

static always_inline void queue_init(struct queue *q, u64 now)
{
    (void)now;
    flows_init(&q->flows, 0);
    codels_init(&q->codels);
}

static always_inline void queue_set(struct queue *q, const struct quell_knobs *knobs, u64 now)
{
    q->limit = quell_limit(knobs, now, 1000, LIMIT_MOST);
    codels_set(&q->codels, &q->flows, knobs, now);
}

static always_inline s32 queue_enqueue(struct queue *q, u32 hash, u32 bytes, u32 ecn, u64 now)
{
    (void)hash;
    if (q->flows.packets_queued >= q->limit)
        return NONE;
    return flows_push(&q->flows, 0, bytes, ecn, now);
}

static always_inline s32 queue_dequeue(struct queue *q, u64 now)
{
    return codels_next(&q->flows, &q->codels, 0, now);
}

static always_inline void queue_gauges(const struct queue *q, struct quell_gauges *gauges)
{
    gauges->marks = q->codels.marks;
}

#endif
