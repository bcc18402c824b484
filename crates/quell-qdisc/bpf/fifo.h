/* A FIFO with a limit, without a law. */
#ifndef QUELL_FIFO_H
#define QUELL_FIFO_H

#include "flows.h"
#include "page.h"

struct queue {
    struct flows flows;
    u32 limit;
};

static always_inline void queue_init(struct queue *q, u64 now)
{
    (void)now;
    flows_init(&q->flows, 0);
    q->limit = 1000;
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
    (void)now;
    return flows_pop(&q->flows, 0);
}

static always_inline void queue_set(struct queue *q, const struct quell_knobs *knobs, u64 now)
{
    q->limit = quell_limit(knobs, now, 1000, LIMIT_MOST);
}

static always_inline void queue_gauges(const struct queue *q, struct quell_gauges *gauges)
{
    (void)q;
    (void)gauges;
}

#endif
