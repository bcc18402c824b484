/*
 * Data shared by user space and a discipline in the kernel: the map `page`, mapped into memory, one entry for each queue.
 *
 * A queue's entry is the major number of its handle, modulo QUELL_SLOTS (`tc qdisc add dev X root handle 3: quell_hush` is entry
 * 3). A handle whose entry is taken, or handle 0:, is refused with EBUSY. User space writes knobs, the discipline writes gauges;
 * each field is written at once, so no reader sees half of one, but two fields may be of different moments.
 *
 * Times are nanoseconds of CLOCK_MONOTONIC, sizes bytes. All disciplines share this layout; a gauge that a discipline lacks is 0.
 */
#ifndef QUELL_PAGE_H
#define QUELL_PAGE_H

#include "types.h"

enum {
    QUELL_SLOTS = 16, /* queues at once, a power of 2 */
    QUELL_VERSION = 1,
};

enum quell_flags {
    QUELL_ECN = 1,       /* mark packets; not in the kernel, where a discipline cannot write them */
    QUELL_MARK_NEXT = 2, /* a mark goes to the next arrival of the packet's flow: attach the program `mark` to clsact egress first */
};

#ifdef __bpf__
#define QUELL_MARKS QUELL_MARK_NEXT
#else
#define QUELL_MARKS (QUELL_ECN | QUELL_MARK_NEXT)
#endif

struct quell_knobs {
    u64 rate;          /* shape to this many bytes per second; 0: do not shape */
    u64 valid_until;   /* time until which the steered knobs apply and the law is off; after it the law decides */
    u32 limit;         /* packets; 0: the discipline's own limit */
    u32 flags;         /* enum quell_flags */
    u32 steered_limit; /* packets; 0: `limit` */
    u32 steered_drop;  /* probability of a drop on arrival, times 2^32 */
    u64 target;        /* CoDel's target; 0: 5 ms. For codel, fq_codel, and the fallback law of hush and rlaqm */
    u64 interval;      /* CoDel's interval; 0: 100 ms */
    u64 reserved[2];
};

struct quell_gauges {
    u32 version;         /* QUELL_VERSION, once the queue exists; 0 while the entry is free */
    u32 ifindex;         /* the device */
    u64 updated;         /* time of the last update */
    u32 backlog_packets;
    u32 backlog_bytes;
    u64 enqueued;        /* packets that were queued */
    u64 dequeued;        /* packets that left */
    u64 dequeued_bytes;
    u64 overflows;       /* packets dropped because of a limit */
    u64 drops;           /* packets dropped by the law or by `steered_drop` */
    u64 marks;
    u64 sojourn;         /* of the last packet that left */
    u64 sojourn_p95;     /* a running estimate of the 95th percentile of the sojourn */
    u64 rate;            /* measured, bytes per second; 0: unknown */
    /* hush: readings and settings of the policy */
    u64 round_trip;
    u64 target;
    u64 wait;
    u64 hold;
    u64 cap;             /* all ones: none */
    u32 idle;            /* share of the time with nothing to send, times 2^30 */
    u32 flows;           /* active flows */
    u32 trusted;         /* 1 while the policy decides, 0 while CoDel does */
    u32 probability;     /* rlaqm: of a drop, times 2^32 */
    u64 decisions;       /* of the policy or the network */
    u64 reserved[4];
};

struct quell_page {
    struct quell_knobs knobs;
    struct quell_gauges gauges;
};

/* The limit in force, packets; `own` is the discipline's own limit, and no limit is above `most`. */
static always_inline u32 quell_limit(const struct quell_knobs *knobs, u64 now, u32 own, u32 most)
{
    u32 limit = knobs->limit;

    if (now < knobs->valid_until && knobs->steered_limit)
        limit = knobs->steered_limit;
    if (!limit)
        limit = own;
    return limit < most ? limit : most;
}

_Static_assert(sizeof(struct quell_knobs) == 64, "knobs");
_Static_assert(sizeof(struct quell_gauges) == 192, "gauges");

#endif
