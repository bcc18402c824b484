/* CoDel on the FIFOs of flows.h: a law for each flow. */
#ifndef QUELL_CODELS_H
#define QUELL_CODELS_H

#include "codel.h"
#include "flows.h"
#include "page.h"

enum {
    DROP_BATCH = 64, /* most packets that a full queue drops at once */
    MEMORY_LIMIT = 32 << 20,
    /* Most turns of one dequeue: enough for each flow to repay its largest packet in quanta. */
    TURNS_MOST = 1 << 20,
};

struct codels {
    struct codel_params params;
    u32 ecn;
    u32 rests; /* the laws are off, because an outside controller decides */
    u64 marks;
    struct codel_state laws[FLOWS];
};

static always_inline struct codel_state *law_of(struct codels *c, s32 flow)
{
    return &c->laws[masked((u32)flow, FLOWS - 1)];
}

/* Clears the laws' state. */
global int codels_forget(struct codels *c nonnull)
{
    u32 i;

    repeat (i, FLOWS) {
        struct codel_state *law = law_of(c, i);

        law->first_above_time = law->drop_next = law->ldelay = 0;
        law->count = law->lastcount = 0;
        law->rec_inv_sqrt = law->dropping = 0;
    }
    return 0;
}

static always_inline void codels_init(struct codels *c)
{
    codels_forget(c);
    c->params.mtu = MTU;
    c->marks = 0;
}

/* Applies the knobs. */
static always_inline void codels_set(struct codels *c, struct flows *q, const struct quell_knobs *knobs, u64 now)
{
    c->params.target = knobs->target ? knobs->target : 5 * MS;
    c->params.interval = knobs->interval ? knobs->interval : 100 * MS;
    c->ecn = (knobs->flags & QUELL_MARKS) != 0;
    q->mark_next = (knobs->flags & QUELL_MARK_NEXT) != 0;
    c->rests = now < knobs->valid_until;
}

/* The next packet of a flow that its law lets through; NONE if there is none. */
global int codels_next(struct flows *q nonnull, struct codels *c nonnull, s32 flow, u64 now)
{
    struct codel_state *law = law_of(c, flow);
    enum codel_phase phase = CODEL_FIRST;
    u32 i;

    if (c->rests)
        return flows_pop(q, flow);
    repeat (i, PACKETS) {
        s32 at = flows_pop(q, flow);
        enum codel_verdict verdict;
        struct packet *p;

        if (at == NONE) {
            codel_empty(law, phase);
            return NONE;
        }
        p = packet_at(q, at);
        verdict = codel_judge(law, &c->params, &phase, p->enqueued, q->bytes, now, c->ecn && p->ecn != NOT_ECT);
        if (verdict == CODEL_SEND)
            return at;
        if (verdict == CODEL_MARK) {
            flows_mark(q, at);
            c->marks++;
            return at;
        }
        flows_drop(q, at, EARLY);
    }
    return NONE;
}

/* The next packet in deficit round robin that its flow's law lets through; NONE if there is none. */
global int codels_fair(struct flows *q nonnull, struct codels *c nonnull, u64 now)
{
    u32 i;

    repeat (i, TURNS_MOST) {
        s32 flow = flows_turn(q), at;

        if (flow == AGAIN)
            continue;
        if (flow == NONE)
            break;
        at = codels_next(q, c, flow, now);
        if (at != NONE)
            return at;
        flows_found_empty(q, flow);
    }
    return NONE;
}

static always_inline int flows_full(const struct flows *q, u32 limit)
{
    return q->packets_queued > limit || flows_memory(q) > MEMORY_LIMIT;
}

#endif
