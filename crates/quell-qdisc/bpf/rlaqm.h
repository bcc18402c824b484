/*
 * `rlaqm`: a FIFO whose drop probability a small network sets each 20 ms, as `src/control/rlaqm.rs` does, in integers.
 *
 * The network reads delay (ms), utilisation and the probability in force, and ranks five steps of it. Numbers have Q fractional
 * bits. It needs the rate, so CoDel decides without a shaper, and a FIFO serves while an outside controller is in charge.
 */
#ifndef QUELL_RLAQM_H
#define QUELL_RLAQM_H

#include "codels.h"
#include "fixed.h"
#include "rlaqm_numbers.h"

#ifdef __bpf__
#include "kernel.h"
#else
/* For tests: Marsaglia's xorshift generator. */
static inline u32 bpf_get_prandom_u32(void)
{
    static u32 x = 1;

    x ^= x << 13;
    x ^= x >> 17;
    return x ^= x << 5;
}
#endif

enum {
    WIDEST = 32,
    ACTIONS = 5,
    MOST_HUNDREDTHS = 50,
    MOST_TURNS = 5,
    DROPPED = -2, /* result of queue_enqueue() for a packet that the network's probability drops */
};
#define DECIDE_EVERY (20 * MS)

/* A step of the probability for each output, in hundredths. */
static const s32 STEPS[8] = { 0, 1, -1, 10, -10 };

struct network {
    s64 from[WIDEST], to[WIDEST];
    u64 decided, decided_bytes; /* time at which its last decision was due, and the bytes sent by then */
    u64 departed_bytes;
    u64 rate;                   /* bytes per second; 0: it does not decide */
    u64 decisions;
    s32 hundredths;             /* the probability */
};

/* Computes one layer, whose weights and then biases are at `offset`; `relu`: no output is negative. The outputs replace `from`. */
global int network_layer(struct network *n nonnull, u32 offset, u32 inputs, u32 outputs, int relu)
{
    u32 o, i;

    repeat (o, WIDEST) {
        s64 sum;

        if (o >= outputs)
            break;
        sum = (s64)RLAQM_WEIGHTS[masked(offset + inputs * outputs + o, 2047)] << Q;
        for (i = 0; i < WIDEST; i++) {
            if (i >= inputs)
                break;
            sum += RLAQM_WEIGHTS[masked(offset + o * inputs + i, 2047)] * n->from[i];
        }
        sum >>= Q;
        n->to[masked(o, WIDEST - 1)] = relu && sum < 0 ? 0 : sum;
    }
    for (i = 0; i < WIDEST; i++)
        n->from[i] = n->to[i];
    return 0;
}

/* The best step for these readings, the first of equals. */
global int network_action(struct network *n nonnull, u64 delay_us, u64 used, s32 hundredths)
{
    u32 i, best = 0;

    n->from[0] = (delay_us << Q) / 50000;
    n->from[1] = used;
    n->from[2] = ((u64)hundredths << Q) / 50;
    network_layer(n, 0, 3, 3, 1);
    network_layer(n, 12, 3, 32, 1);
    network_layer(n, 140, 32, 32, 1);
    network_layer(n, 1196, 32, ACTIONS, 0);
    for (i = 1; i < ACTIONS; i++)
        if (n->to[i] > n->to[masked(best, 7)])
            best = i;
    return best;
}

static always_inline void network_step(struct network *n, s32 step)
{
    n->hundredths = clamped(n->hundredths + step, 0, MOST_HUNDREDTHS);
}

/*
 * Makes the decisions that were due by now, with this backlog. It is called before each change of the queue, so the backlog is the same
 * as when they were due. They are due every 20 ms, whenever calls come: decisions timed from the first packet after the due time
 * would synchronise with flows whose round trip is about as long, and always see the queue at its emptiest. Five decisions take the
 * probability from its maximum to 0; more are skipped.
 */
global int network_decide(struct network *n nonnull, u64 now, u64 backlog)
{
    u64 delay_us, used;
    u32 i;

    if (!n->rate)
        return 0;
    delay_us = min64(backlog * 1000000 / n->rate, 100000000);
    repeat (i, MOST_TURNS) {
        if (less(now, n->decided) < DECIDE_EVERY)
            return 0;
        used = min64(mul_div(mul_div(n->departed_bytes - n->decided_bytes, SECOND, n->rate), ONE, DECIDE_EVERY), ONE);
        if (delay_us < 1000)
            network_step(n, -10);
        else
            network_step(n, STEPS[masked(network_action(n, delay_us, used, n->hundredths), 7)]);
        n->decided += DECIDE_EVERY;
        n->decided_bytes = n->departed_bytes;
        n->decisions++;
    }
    n->decided += less(now, n->decided) / DECIDE_EVERY * DECIDE_EVERY;
    return 0;
}

struct queue {
    struct flows flows; /* all packets are in flow 0 */
    struct codels codels;
    struct network network;
    u32 limit;
};

static always_inline void queue_init(struct queue *q, u64 now)
{
    struct network *n = &q->network;

    flows_init(&q->flows, 0);
    codels_init(&q->codels);
    n->decided = now;
    n->decided_bytes = n->departed_bytes = n->rate = n->decisions = 0;
    n->hundredths = 0;
}

static always_inline void queue_set(struct queue *q, const struct quell_knobs *knobs, u64 now)
{
    q->limit = quell_limit(knobs, now, 5000, LIMIT_MOST);
    codels_set(&q->codels, &q->flows, knobs, now);
    q->network.rate = q->codels.rests ? 0 : knobs->rate;
    if (q->network.rate)
        q->codels.rests = 1;
}

static always_inline s32 queue_enqueue(struct queue *q, u32 hash, u32 bytes, u32 ecn, u64 now)
{
    struct network *n = &q->network;

    (void)hash;
    network_decide(n, now, q->flows.bytes);
    if (q->flows.packets_queued >= q->limit)
        return NONE;
    if (n->rate && n->hundredths && (u64)bpf_get_prandom_u32() * 100 < (u64)n->hundredths << 32)
        return DROPPED;
    return flows_push(&q->flows, 0, bytes, ecn, now);
}

static always_inline s32 queue_dequeue(struct queue *q, u64 now)
{
    s32 at;

    network_decide(&q->network, now, q->flows.bytes);
    at = codels_next(&q->flows, &q->codels, 0, now);
    if (at != NONE)
        q->network.departed_bytes += packet_at(&q->flows, at)->bytes;
    return at;
}

static always_inline void queue_gauges(const struct queue *q, struct quell_gauges *gauges)
{
    gauges->marks = q->codels.marks;
    gauges->rate = q->network.rate;
    gauges->probability = ((u64)q->network.hundredths << 32) / 100;
    gauges->decisions = q->network.decisions;
}

#endif
