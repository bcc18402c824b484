/*
 * The few types and functions of the kernel that a discipline needs, instead of a vmlinux.h of megabytes: clang records by name which
 * fields are read, and the loader finds their offsets in the running kernel's type information (CO-RE).
 *
 * Sources: include/net/sch_generic.h, include/linux/skbuff.h, net/sched/bpf_qdisc.c (Linux 6.16 and newer); the numbers of helpers
 * are those of include/uapi/linux/bpf.h.
 */
#ifndef QUELL_KERNEL_H
#define QUELL_KERNEL_H

#include "types.h"

#define SEC(name) __attribute__((section(name), used))
#define kptr __attribute__((btf_type_tag("kptr")))

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct net_device {
    int ifindex;
};

struct netdev_queue {
    struct net_device *dev;
};

struct qdisc_skb_head {
    u32 qlen;
};

struct gnet_stats_queue {
    u32 qlen, backlog, drops, requeues, overlimits;
};

struct Qdisc {
    u32 limit;
    u32 handle;
    struct netdev_queue *dev_queue;
    struct qdisc_skb_head q;
    struct gnet_stats_queue qstats;
};

struct sk_buff {
    u32 len;
    u16 protocol;
    u16 network_header;
    unsigned char *head, *data;
    char cb[48];
};

struct qdisc_skb_cb {
    u32 pkt_len;
};

#pragma clang attribute pop

struct nlattr;
struct netlink_ext_ack;

/* A packet as a program at clsact sees it; the first fields of include/uapi/linux/bpf.h. */
struct __sk_buff {
    u32 len, pkt_type, mark, queue_mapping, protocol, vlan_present, vlan_tci, vlan_proto, priority, ingress_ifindex, ifindex;
};

/* Complete, because the loader compares the kinds of types. */
struct bpf_sk_buff_ptr {
    struct sk_buff *skb;
};

struct bpf_dynptr {
    u64 opaque[2];
} __attribute__((aligned(8)));

/* The loader fills the kernel's struct member by member, by name. */
struct Qdisc_ops {
    char id[16];
    int (*enqueue)(struct sk_buff *, struct Qdisc *, struct sk_buff **);
    struct sk_buff *(*dequeue)(struct Qdisc *);
    int (*init)(struct Qdisc *, struct nlattr *, struct netlink_ext_ack *);
    void (*reset)(struct Qdisc *);
    void (*destroy)(struct Qdisc *);
};

enum { BPF_MAP_TYPE_ARRAY = 2, BPF_F_MMAPABLE = 1 << 10 };
enum { NET_XMIT_SUCCESS, NET_XMIT_DROP, NET_XMIT_CN };
enum { TC_ACT_UNSPEC = -1, BPF_HDR_START_NET = 1 };
enum { EBUSY = 16, ENOSPC = 28 };

static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static u64 (*const bpf_ktime_get_ns)(void) = (void *)5;
static u32 (*const bpf_get_prandom_u32)(void) = (void *)7;
static u32 (*const bpf_get_hash_recalc)(struct __sk_buff *skb) = (void *)34;
static long (*const bpf_skb_pull_data)(struct __sk_buff *skb, u32 len) = (void *)39;
static long (*const bpf_skb_load_bytes_relative)(const void *skb, u32 offset, void *to, u32 len, u32 start) = (void *)68;
static long (*const bpf_skb_ecn_set_ce)(struct __sk_buff *skb) = (void *)97;
static void *(*const bpf_kptr_xchg)(void *at, void *ptr) = (void *)194;
static long (*const bpf_dynptr_read)(void *to, u32 len, const struct bpf_dynptr *from, u32 offset, u64 flags) = (void *)201;

extern int bpf_dynptr_from_skb(struct __sk_buff *skb, u64 flags, struct bpf_dynptr *bytes) ksym;
extern u32 bpf_skb_get_hash(struct sk_buff *skb) ksym;
extern void bpf_kfree_skb(struct sk_buff *skb) ksym;
extern void bpf_qdisc_skb_drop(struct sk_buff *skb, struct bpf_sk_buff_ptr *to_free) ksym;
extern void bpf_qdisc_watchdog_schedule(struct Qdisc *sch, u64 expire, u64 delta_ns) ksym;
extern void bpf_qdisc_bstats_update(struct Qdisc *sch, const struct sk_buff *skb) ksym;

#endif
