/*
 * Packets in FIFOs, one for each flow, and the lists of a deficit round robin: the same order as `src/parts/flows.rs`.
 *
 * A packet is an index into `packets`; its owner keeps the data that belongs to it (in the kernel: the buffer) under the same index. A
 * discipline puts dropped packets on a list, which the owner empties with flows_dropped() after each call. Zeroed memory is not yet a
 * queue: call flows_init().
 *
 * Sources: RFC 8290, sections 4.1 and 4.2; Linux `net/sched/sch_fq_codel.c`.
 */
#ifndef QUELL_FLOWS_H
#define QUELL_FLOWS_H

#include "types.h"

enum {
    FLOWS = 1024,         /* buckets; a power of 2 */
    PACKETS = 16384,      /* maximum number of packets; a power of 2 */
    LIMIT_MOST = 16000,   /* largest limit: an arrival that causes drops needs a place until these are done */
    NONE = -1,
    AGAIN = -2,           /* result of flows_turn(): call it again */
    PACKET_MEMORY = 790,  /* as `PACKET_MEMORY` of quell */
    MTU = 1514,
    QUANTUM = MTU,
};

#define MS 1000000ULL
#define SECOND 1000000000ULL
#define NEVER (~0ULL)

enum ecn { NOT_ECT, ECT_1, ECT_0, CE };
enum cause { OVERFLOW, EARLY };
enum turn { TURN_OFF, TURN_NEW, TURN_OLD, TURNS };

struct packet {
    u64 enqueued;
    u32 bytes;
    s32 next;
    u16 flow;
    u8 ecn;
    u8 cause;
    u32 marked; /* by the law */
};

struct flow {
    s32 head, tail;
    u32 packets;
    u32 bytes;
    s32 next, prev;
    s32 deficit;
    u32 turn;
    s32 owed; /* marks still to be made on its next arrivals */
};

struct flows {
    u32 mark_next; /* marks go to a flow's next arrivals */
    u32 packets_queued;
    u32 count;     /* flows ever used */
    u64 bytes;
    s32 free;      /* first of the packets that are free after use */
    u32 used;      /* packets ever used */
    s32 dropped_first, dropped_last;
    s32 firsts[4]; /* of each list, by enum turn */
    s32 buckets[FLOWS];
    struct flow flows[FLOWS];
    struct packet packets[PACKETS];
};

static always_inline struct packet *packet_at(struct flows *q, s32 i)
{
    return &q->packets[masked((u32)i, PACKETS - 1)];
}

static always_inline struct flow *flow_at(struct flows *q, s32 i)
{
    return &q->flows[masked((u32)i, FLOWS - 1)];
}

static always_inline s32 *first_of(struct flows *q, u32 turn)
{
    return &q->firsts[masked(turn, 3)];
}

static always_inline u64 flows_memory(const struct flows *q)
{
    return q->bytes + (u64)q->packets_queued * PACKET_MEMORY;
}

/* `flow`: the flow of every bucket at first. NONE: flow_of() makes one at first use; 0: all packets are in flow 0. */
global int flows_init(struct flows *q nonnull, s32 flow)
{
    u32 i;

    repeat (i, FLOWS) {
        struct flow *f = flow_at(q, i);

        q->buckets[masked(i, FLOWS - 1)] = flow;
        f->head = f->tail = f->next = f->prev = NONE;
        f->packets = f->bytes = f->turn = 0;
        f->deficit = f->owed = 0;
    }
    q->packets_queued = q->count = q->used = 0;
    q->bytes = 0;
    q->free = q->dropped_first = q->dropped_last = NONE;
    q->firsts[TURN_OFF] = q->firsts[TURN_NEW] = q->firsts[TURN_OLD] = NONE;
    return 0;
}

/* The flow of a hash, made on first use: flows are numbered in the order of their first packets. */
static always_inline s32 flow_of(struct flows *q, u32 hash)
{
    s32 *bucket = &q->buckets[masked((u64)hash * FLOWS >> 32, FLOWS - 1)];

    if (*bucket == NONE)
        *bucket = q->count++;
    return *bucket;
}

/* Appends a packet to a flow's FIFO; NONE if there is no place for it. */
global int flows_push(struct flows *q nonnull, s32 flow, u32 bytes, u32 ecn, u64 now)
{
    struct flow *f = flow_at(q, flow);
    struct packet *p;
    s32 at = q->free;

    if (at != NONE) {
        p = packet_at(q, at);
        q->free = p->next;
    } else {
        if (q->used >= PACKETS)
            return NONE;
        at = q->used++;
        p = packet_at(q, at);
    }
    p->enqueued = now;
    p->bytes = bytes;
    p->next = NONE;
    p->flow = flow;
    p->ecn = ecn;
    p->marked = 0;
    if (f->packets == 0)
        f->head = at;
    else
        packet_at(q, f->tail)->next = at;
    f->tail = at;
    f->packets++;
    f->bytes += bytes;
    q->packets_queued++;
    q->bytes += bytes;
    return at;
}

/* Takes the packet at the head of a flow's FIFO; NONE if it is empty. */
static always_inline s32 flows_pop(struct flows *q, s32 flow)
{
    struct flow *f = flow_at(q, flow);
    struct packet *p;
    s32 at = f->head;

    if (f->packets == 0)
        return NONE;
    p = packet_at(q, at);
    f->head = p->next;
    f->packets--;
    f->bytes -= p->bytes;
    q->packets_queued--;
    q->bytes -= p->bytes;
    return at;
}

/* Gives back the place of a packet that left. */
static always_inline void flows_release(struct flows *q, s32 at)
{
    packet_at(q, at)->next = q->free;
    q->free = at;
}

/* Puts a packet that was popped on the list of dropped ones. */
static always_inline void flows_drop(struct flows *q, s32 at, enum cause cause)
{
    struct packet *p = packet_at(q, at);

    p->next = NONE;
    p->cause = cause;
    if (q->dropped_first == NONE)
        q->dropped_first = at;
    else
        packet_at(q, q->dropped_last)->next = at;
    q->dropped_last = at;
}

/* Marks an ECN-capable packet, or notes that its flow's next arrival is to be marked; 0 if it is not ECN-capable. */
static always_inline int flows_mark(struct flows *q, s32 at)
{
    struct packet *p = packet_at(q, at);

    if (p->ecn == NOT_ECT)
        return 0;
    if (p->ecn == CE)
        return 1;
    if (q->mark_next) {
        __sync_fetch_and_add(&flow_at(q, p->flow)->owed, 1);
    } else {
        p->ecn = CE;
        p->marked = 1;
    }
    return 1;
}

/* 1 if an arrival of this hash is to be marked; counts that mark as made. In the kernel this runs without the queue's lock. */
static always_inline int flows_pay(struct flows *q, u32 hash)
{
    s32 flow = q->buckets[masked((u64)hash * FLOWS >> 32, FLOWS - 1)];

    if (flow == NONE || flow_at(q, flow)->owed <= 0)
        return 0;
    __sync_fetch_and_add(&flow_at(q, flow)->owed, -1);
    return 1;
}

/* The next dropped packet, which the owner must free and flows_release(); NONE after the last. */
static always_inline s32 flows_dropped(struct flows *q)
{
    s32 at = q->dropped_first;

    if (at != NONE)
        q->dropped_first = packet_at(q, at)->next;
    return at;
}

/* Moves a flow to the end of a list. Lists are rings, so that the first one goes to the end without a look at its neighbours. */
global int flows_move(struct flows *q nonnull, s32 flow, u32 turn)
{
    struct flow *f = flow_at(q, flow);
    s32 *first = first_of(q, turn);

    if (turn != TURN_OFF && *first == flow) {
        *first = f->next;
        return 0;
    }
    if (f->turn != TURN_OFF) {
        s32 *old = first_of(q, f->turn);

        flow_at(q, f->prev)->next = f->next;
        flow_at(q, f->next)->prev = f->prev;
        if (f->next == flow)
            *old = NONE;
        else if (*old == flow)
            *old = f->next;
    }
    f->turn = turn;
    if (turn == TURN_OFF)
        return 0;
    if (*first == NONE) {
        *first = f->prev = f->next = flow;
        return 0;
    }
    f->next = *first;
    f->prev = flow_at(q, *first)->prev;
    flow_at(q, f->prev)->next = flow;
    flow_at(q, *first)->prev = flow;
    return 0;
}

/* Activates a flow at a packet's arrival: a flow in no list becomes a new one, with a credit of one quantum. */
static always_inline void flows_activate(struct flows *q, s32 flow)
{
    struct flow *f = flow_at(q, flow);

    if (f->turn == TURN_OFF) {
        f->deficit = QUANTUM;
        flows_move(q, flow, TURN_NEW);
    }
}

/* The flow whose turn it is: new flows before old ones; NONE if there is none. One without credit gets a quantum and goes to the end
 * of the old ones: AGAIN. */
static always_inline s32 flows_turn(struct flows *q)
{
    s32 flow = q->firsts[TURN_NEW] != NONE ? q->firsts[TURN_NEW] : q->firsts[TURN_OLD];

    if (flow == NONE || flow_at(q, flow)->deficit > 0)
        return flow;
    flow_at(q, flow)->deficit += QUANTUM;
    flows_move(q, flow, TURN_OLD);
    return AGAIN;
}

/* Subtracts a departing packet from its flow's credit. */
static always_inline void flows_charge(struct flows *q, s32 at)
{
    struct packet *p = packet_at(q, at);

    flow_at(q, p->flow)->deficit -= p->bytes;
}

/* Handles a flow that is empty at its turn: a new flow first moves to the old ones, if there are any; an old flow leaves the lists. */
static always_inline void flows_found_empty(struct flows *q, s32 flow)
{
    int pass = flow_at(q, flow)->turn == TURN_NEW && q->firsts[TURN_OLD] != NONE;

    flows_move(q, flow, pass ? TURN_OLD : TURN_OFF);
}

#endif
