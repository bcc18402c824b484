/*
 * A queue discipline around a `struct queue`: the kernel's side of the disciplines in fifo.h, codel.h and the others.
 *
 * An includer first defines `struct queue`, queue_init(), queue_set(), queue_enqueue() (returns the packet's index; NONE at a
 * limit, another negative number if the law refuses it), queue_dequeue() (its index, or NONE) and queue_gauges();
 * after this file it uses DISCIPLINE(name). Buffers are in the map `buffers`, by the index of their packets in flows.h. The kernel holds
 * the queue's lock around enqueue and dequeue, so these do not lock.
 */
#include "kernel.h"
#include "page.h"

struct slot {
    u64 owner; /* the kernel's queue; 0: the slot is free */
    u64 next;  /* earliest time at which the shaper sends the next packet */
};

struct buffer {
    struct sk_buff kptr *skb;
};

#define ARRAY(type_, entries, flags, name)                                                   \
    struct {                                                                                 \
        int (*type)[BPF_MAP_TYPE_ARRAY];                                                     \
        int (*max_entries)[entries];                                                         \
        int (*map_flags)[flags];                                                             \
        u32 *key;                                                                            \
        type_ *value;                                                                        \
    } name SEC(".maps")

ARRAY(struct quell_page, QUELL_SLOTS, BPF_F_MMAPABLE, page);
ARRAY(struct queue, QUELL_SLOTS, 0, queues);
ARRAY(struct slot, QUELL_SLOTS, 0, slots);
ARRAY(struct buffer, QUELL_SLOTS * PACKETS, 0, buffers);

char _license[] SEC("license") = "Dual MIT/GPL";

static always_inline u32 slot_of(const struct Qdisc *sch)
{
    return sch->handle >> 16 & (QUELL_SLOTS - 1);
}

static always_inline struct buffer *buffer_at(u32 slot, s32 i)
{
    u32 key = slot * PACKETS + ((u32)i & (PACKETS - 1));

    return bpf_map_lookup_elem(&buffers, &key);
}

static always_inline u32 length_of(const struct sk_buff *skb)
{
    return ((struct qdisc_skb_cb *)skb->cb)->pkt_len;
}

/* The ECN field from the first two bytes of an IP header: the low two bits of the traffic class. */
static always_inline u32 ecn_field(const u8 *head)
{
    switch (head[0] >> 4) {
    case 4:
        return head[1] & 3;
    case 6:
        return head[1] >> 4 & 3;
    default:
        return NOT_ECT;
    }
}

static always_inline u32 ecn_of(struct sk_buff *skb)
{
    u32 offset = skb->network_header - (u32)((u64)skb->data - (u64)skb->head);
    struct bpf_dynptr bytes;
    u8 head[2] = { 0, 0 };

    bpf_dynptr_from_skb((struct __sk_buff *)skb, 0, &bytes);
    if (bpf_dynptr_read(head, 2, &bytes, offset, 0))
        return NOT_ECT;
    return ecn_field(head);
}

static always_inline void note_backlog(const struct queue *q, struct quell_gauges *gauges, u64 now)
{
    gauges->backlog_packets = q->flows.packets_queued;
    gauges->backlog_bytes = q->flows.bytes;
    gauges->updated = now;
}

/* Notes a packet's sojourn, and updates an estimate of the 95th percentile, which rises 19 times as fast as it falls. */
static always_inline void note_sojourn(struct quell_gauges *gauges, u64 sojourn)
{
    u64 p95 = gauges->sojourn_p95, step = (p95 >> 10) + 100;

    gauges->sojourn = sojourn;
    gauges->sojourn_p95 = sojourn > p95 ? p95 + 19 * step : p95 > step ? p95 - step : 0;
}

/* Counts a packet that was dropped after it had been queued. */
static always_inline void note_drop(struct Qdisc *sch, struct queue *q, struct quell_gauges *gauges, s32 at)
{
    struct packet *p = packet_at(&q->flows, at);

    sch->q.qlen--;
    sch->qstats.backlog -= p->bytes;
    sch->qstats.drops++;
    if (p->cause == OVERFLOW)
        gauges->overflows++;
    else
        gauges->drops++;
    flows_release(&q->flows, at);
}

SEC("struct_ops/enqueue")
int quell_enqueue(u64 *ctx)
{
    struct sk_buff *skb = (void *)ctx[0];
    struct Qdisc *sch = (void *)ctx[1];
    struct bpf_sk_buff_ptr *to_free = (void *)ctx[2];
    u32 slot = slot_of(sch), bytes = length_of(skb);
    struct quell_page *shared = bpf_map_lookup_elem(&page, &slot);
    struct queue *q = bpf_map_lookup_elem(&queues, &slot);
    struct buffer *buffer;
    u32 ecn = NOT_ECT;
    int verdict = NET_XMIT_SUCCESS;
    u64 now = bpf_ktime_get_ns();
    s32 at;
    u32 i;

    if (!shared || !q)
        goto refuse;
    if (now < shared->knobs.valid_until && shared->knobs.steered_drop && bpf_get_prandom_u32() < shared->knobs.steered_drop) {
        shared->gauges.drops++;
        goto refuse;
    }
    queue_set(q, &shared->knobs, now);
    /* The ECN field is read only if packets may be marked. */
    if (shared->knobs.flags & QUELL_MARKS)
        ecn = ecn_of(skb);
    at = queue_enqueue(q, bpf_skb_get_hash(skb), bytes, ecn, now);
    if (at < 0) {
        if (at == NONE)
            shared->gauges.overflows++;
        else
            shared->gauges.drops++;
        goto refuse;
    }
    buffer = buffer_at(slot, at);
    if (!buffer)
        goto refuse;
    skb = bpf_kptr_xchg(&buffer->skb, skb);
    if (skb)
        bpf_qdisc_skb_drop(skb, to_free);
    sch->q.qlen++;
    sch->qstats.backlog += bytes;
    shared->gauges.enqueued++;
    repeat (i, PACKETS) {
        s32 dropped = flows_dropped(&q->flows);

        if (dropped == NONE)
            break;
        if (dropped == at)
            verdict = NET_XMIT_CN;
        note_drop(sch, q, &shared->gauges, dropped);
        buffer = buffer_at(slot, dropped);
        if (!buffer)
            break;
        skb = bpf_kptr_xchg(&buffer->skb, 0);
        if (skb)
            bpf_qdisc_skb_drop(skb, to_free);
    }
    note_backlog(q, &shared->gauges, now);
    return verdict;
refuse:
    sch->qstats.drops++;
    bpf_qdisc_skb_drop(skb, to_free);
    return NET_XMIT_DROP;
}

SEC("struct_ops/dequeue")
struct sk_buff *quell_dequeue(u64 *ctx)
{
    struct Qdisc *sch = (void *)ctx[0];
    u32 slot = slot_of(sch), bytes;
    struct quell_page *shared = bpf_map_lookup_elem(&page, &slot);
    struct queue *q = bpf_map_lookup_elem(&queues, &slot);
    struct slot *own = bpf_map_lookup_elem(&slots, &slot);
    struct buffer *buffer;
    struct sk_buff *skb;
    u64 now, rate;
    s32 at;
    u32 i;

    if (!shared || !q || !own)
        return 0;
    now = bpf_ktime_get_ns();
    rate = shared->knobs.rate;
    if (rate && own->next > now) {
        if (sch->q.qlen) {
            bpf_qdisc_watchdog_schedule(sch, own->next, 0);
            sch->qstats.overlimits++;
        }
        return 0;
    }
    queue_set(q, &shared->knobs, now);
    at = queue_dequeue(q, now);
    repeat (i, PACKETS) {
        s32 dropped = flows_dropped(&q->flows);

        if (dropped == NONE)
            break;
        note_drop(sch, q, &shared->gauges, dropped);
        buffer = buffer_at(slot, dropped);
        if (!buffer)
            break;
        skb = bpf_kptr_xchg(&buffer->skb, 0);
        if (skb)
            bpf_kfree_skb(skb);
    }
    queue_gauges(q, &shared->gauges);
    note_backlog(q, &shared->gauges, now);
    if (at == NONE)
        return 0;
    note_sojourn(&shared->gauges, now - packet_at(&q->flows, at)->enqueued);
    bytes = packet_at(&q->flows, at)->bytes;
    flows_release(&q->flows, at);
    buffer = buffer_at(slot, at);
    if (!buffer)
        return 0;
    skb = bpf_kptr_xchg(&buffer->skb, 0);
    if (!skb)
        return 0;
    sch->q.qlen--;
    sch->qstats.backlog -= bytes;
    bpf_qdisc_bstats_update(sch, skb);
    shared->gauges.dequeued++;
    shared->gauges.dequeued_bytes += bytes;
    if (rate) {
        /* A late call makes up for at most a millisecond. */
        u64 from = own->next + MS > now ? own->next : now;

        own->next = from + bytes * SECOND / rate;
    }
    return skb;
}

/* Frees all packets of a slot. */
static always_inline void clear(u32 slot, struct queue *q)
{
    u32 i;

    repeat (i, PACKETS) {
        struct buffer *buffer;
        struct sk_buff *skb;

        if (i >= q->flows.used)
            break;
        buffer = buffer_at(slot, i);
        if (!buffer)
            break;
        skb = bpf_kptr_xchg(&buffer->skb, 0);
        if (skb)
            bpf_kfree_skb(skb);
    }
    queue_init(q, bpf_ktime_get_ns());
}

SEC("struct_ops/init")
int quell_init(u64 *ctx)
{
    struct Qdisc *sch = (void *)ctx[0];
    u32 slot = slot_of(sch);
    struct quell_page *shared = bpf_map_lookup_elem(&page, &slot);
    struct queue *q = bpf_map_lookup_elem(&queues, &slot);
    struct slot *own = bpf_map_lookup_elem(&slots, &slot);

    if (!shared || !q || !own)
        return -ENOSPC;
    if (own->owner || !(sch->handle >> 16))
        return -EBUSY;
    own->owner = (u64)sch;
    own->next = 0;
    queue_init(q, bpf_ktime_get_ns());
    __builtin_memset(&shared->gauges, 0, sizeof(shared->gauges));
    shared->gauges.ifindex = sch->dev_queue->dev->ifindex;
    shared->gauges.version = QUELL_VERSION;
    return 0;
}

SEC("struct_ops/reset")
void quell_reset(u64 *ctx)
{
    struct Qdisc *sch = (void *)ctx[0];
    u32 slot = slot_of(sch);
    struct queue *q = bpf_map_lookup_elem(&queues, &slot);
    struct slot *own = bpf_map_lookup_elem(&slots, &slot);

    if (!q || !own || own->owner != (u64)sch)
        return;
    clear(slot, q);
    sch->q.qlen = 0;
    sch->qstats.backlog = 0;
}

/* The kernel calls this for a queue that quell_init() refused, too. */
SEC("struct_ops/destroy")
void quell_destroy(u64 *ctx)
{
    struct Qdisc *sch = (void *)ctx[0];
    u32 slot = slot_of(sch);
    struct quell_page *shared = bpf_map_lookup_elem(&page, &slot);
    struct queue *q = bpf_map_lookup_elem(&queues, &slot);
    struct slot *own = bpf_map_lookup_elem(&slots, &slot);

    if (!shared || !q || !own || own->owner != (u64)sch)
        return;
    clear(slot, q);
    own->owner = 0;
    shared->gauges.version = 0;
}

/* At tcx (clsact) egress, before a packet is queued: makes the mark that a law of the device's queues still owes its flow. */
SEC("tcx/egress")
int mark(struct __sk_buff *skb)
{
    u8 head[2] = { 0, 0 };
    u32 ecn, hash, i;

    if (bpf_skb_load_bytes_relative(skb, 0, head, 2, BPF_HDR_START_NET))
        return TC_ACT_UNSPEC;
    ecn = ecn_field(head);
    if (ecn != ECT_0 && ecn != ECT_1)
        return TC_ACT_UNSPEC;
    hash = bpf_get_hash_recalc(skb);
    repeat (i, QUELL_SLOTS) {
        u32 slot = i;
        struct quell_page *shared = bpf_map_lookup_elem(&page, &slot);
        struct queue *q;

        if (!shared)
            break;
        if (!shared->gauges.version || shared->gauges.ifindex != skb->ifindex)
            continue;
        q = bpf_map_lookup_elem(&queues, &slot);
        if (q && flows_pay(&q->flows, hash)) {
            /*
             * A packet that shares its headers with a clone cannot be marked, such as a bridged one whose arrival a program
             * captures. This call gives it headers of its own; length 0: all that are in linear memory.
             */
            bpf_skb_pull_data(skb, 0);
            bpf_skb_ecn_set_ce(skb);
            break;
        }
    }
    return TC_ACT_UNSPEC;
}

#define DISCIPLINE(name)                                                                     \
    SEC(".struct_ops.link")                                                                  \
    struct Qdisc_ops name = {                                                                \
        .id = "quell_" #name,                                                                \
        .enqueue = (void *)quell_enqueue,                                                    \
        .dequeue = (void *)quell_dequeue,                                                    \
        .init = (void *)quell_init,                                                          \
        .reset = (void *)quell_reset,                                                        \
        .destroy = (void *)quell_destroy,                                                    \
    }
