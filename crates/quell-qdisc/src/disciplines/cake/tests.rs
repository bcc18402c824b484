//! Tests of CAKE.

use super::*;
use crate::packet::{Ecn, TestPacket};
use crate::parts::framing::Framing;
use crate::rate::Rate;
use crate::time::MS;
use crate::{Acknowledgment, Labels};

type Dropped = Vec<(TestPacket, DropCause)>;

fn rng() -> Rng {
    Rng::new(1, "cake")
}

fn cake(bandwidth: Option<u64>) -> Cake<TestPacket> {
    let bandwidth = bandwidth.map_or(Bandwidth::Unlimited, |bps| {
        Bandwidth::Shaped(Rate::from_bps(bps))
    });
    Cake::new(Params {
        bandwidth,
        ..Params::default()
    })
}

fn put_ecn(
    q: &mut Cake<TestPacket>,
    now: Instant,
    hash: u32,
    n: u64,
    len: u32,
    ecn: Ecn,
) -> Dropped {
    let mut drops = Vec::new();
    for id in 0..n {
        let packet = TestPacket::new(id, len, hash, ecn);
        q.enqueue(now, packet, &mut rng(), &mut drops);
    }
    drops
}

fn put(q: &mut Cake<TestPacket>, now: Instant, hash: u32, n: u64, len: u32) -> Dropped {
    put_ecn(q, now, hash, n, len, Ecn::NotEct)
}

fn take(q: &mut Cake<TestPacket>, now: Instant, drops: &mut Dropped) -> TestPacket {
    match q.dequeue(now, &mut rng(), drops) {
        Dequeued::Packet(p) => p,
        other => panic!("{other:?}"),
    }
}

fn config_at(bps: u64) -> Config {
    config(&Params::default(), 0, bps / 8)
}

fn order(q: &mut Cake<TestPacket>, n: usize) -> Vec<u32> {
    let hash = |_| take(q, Instant::ZERO, &mut Vec::new()).hash;
    (0..n).map(hash).collect()
}

#[test]
fn a_slow_rate_stretches_target_and_interval_and_shrinks_the_quantum() {
    // 1 Mbit/s: a full-size packet takes 12.112 ms, the target is 1.5 times that.
    let c = config_at(1_000_000);
    assert_eq!(c.cobalt.target, Duration::from_nanos(18_168_000));
    assert_eq!(c.cobalt.interval, Duration::from_nanos(113_168_000));
    assert_eq!(c.quantum, 300);
    // 10 Mbit/s: as by default; 1.25 MB/s >> 12 = 305.
    let c = config_at(10_000_000);
    assert_eq!((c.cobalt.target, c.cobalt.interval), (5 * MS, 100 * MS));
    assert_eq!(c.quantum, 305);
    let c = config_at(0);
    assert_eq!((c.quantum, c.cobalt.mtu_time), (1514, Duration::ZERO));
    // 100 kbit/s: the interval is twice the target, which is more than the rtt gives.
    let c = config_at(100_000);
    assert_eq!(c.cobalt.target, Duration::from_nanos(181_680_000));
    assert_eq!(c.cobalt.interval, Duration::from_nanos(363_360_000));
}

#[test]
fn memory_is_four_bandwidth_delay_products_between_4_mib_and_10240_packets() {
    assert_eq!(cake(Some(10_000_000)).memory, 4 << 20);
    // 125 MB/s for 100 ms is 12.5 MB; four times that is more than 10240 * 1514.
    assert_eq!(cake(Some(1_000_000_000)).memory, 15_503_360);
    assert_eq!(cake(Some(200_000_000)).memory, 10_000_000);
    assert_eq!(cake(None).memory, 15_503_360);
    let set = Params {
        memory_limit: 1 << 20,
        ..Params::default()
    };
    assert_eq!(Cake::<TestPacket>::new(set).memory, 1 << 20);
}

#[test]
fn the_shaper_spaces_packets_exactly_and_without_a_burst() {
    // 12.112 Mbit/s: a packet of 1514 bytes each millisecond.
    let mut q = cake(Some(12_112_000));
    put(&mut q, Instant::ZERO, 1, 4, 1514);
    let mut now = Instant::ZERO;
    let mut times = Vec::new();
    while times.len() < 4 {
        match q.dequeue(now, &mut rng(), &mut Vec::new()) {
            Dequeued::Packet(_) => times.push(now),
            Dequeued::NotBefore(time) => now = time,
            Dequeued::Empty => unreachable!(),
        }
    }
    for (i, time) in times.iter().enumerate() {
        // Fixed point loses less than a nanosecond per packet.
        assert!(
            time.abs_diff(Instant::from_millis(i as u64)) <= Duration::from_nanos(4),
            "{times:?}"
        );
    }
}

#[test]
fn an_idle_shaper_saves_no_credit_and_keeps_its_debt() {
    let mut q = cake(Some(12_112_000));
    put(&mut q, Instant::ZERO, 1, 1, 1514);
    take(&mut q, Instant::ZERO, &mut Vec::new());
    // The debt of the first packet runs until 1 ms though the queue was empty in between ...
    put(&mut q, Instant::ZERO + MS / 2, 1, 1, 1514);
    let got = q.dequeue(Instant::ZERO + MS / 2, &mut rng(), &mut Vec::new());
    assert!(
        matches!(got, Dequeued::NotBefore(t) if t.abs_diff(Instant::from_millis(1)) <= Duration::from_nanos(1)),
        "{got:?}"
    );
    take(&mut q, Instant::from_millis(1), &mut Vec::new());
    // ... and ten idle milliseconds give no credit.
    put(&mut q, Instant::from_millis(12), 1, 2, 1514);
    take(&mut q, Instant::from_millis(12), &mut Vec::new());
    let got = q.dequeue(Instant::from_millis(12), &mut rng(), &mut Vec::new());
    assert!(matches!(got, Dequeued::NotBefore(_)), "{got:?}");
}

#[test]
fn a_late_caller_gets_what_the_schedule_owes() {
    // The second packet is due at 1 ms. If the driver calls 3 ms late, three more are due by then.
    let mut q = cake(Some(12_112_000));
    put(&mut q, Instant::ZERO, 1, 9, 1514);
    take(&mut q, Instant::ZERO, &mut Vec::new());
    let mut out = 0;
    while let Dequeued::Packet(_) = q.dequeue(Instant::from_millis(4), &mut rng(), &mut Vec::new())
    {
        out += 1;
    }
    assert_eq!(out, 4);
}

#[test]
fn with_a_link_rate_cake_tunes_and_delays_nothing() {
    let mut q = Cake::new(Params {
        bandwidth: Bandwidth::Link(Rate::from_mbit(1)),
        ..Params::default()
    });
    put(&mut q, Instant::ZERO, 1, 5, 1514);
    assert_eq!(order(&mut q, 5).len(), 5);
    assert_eq!(
        q.tins[0].config.cobalt.target,
        Duration::from_nanos(18_168_000)
    );
}

#[test]
fn overhead_is_of_the_ip_packet_and_after_raw_of_its_length_as_it_is() {
    let counted = |of_ip| {
        let mut q: Cake<TestPacket> = Cake::new(Params {
            framing: Framing {
                overhead: 44,
                mpu: 96,
                ..Framing::default()
            },
            of_ip,
            ..Params::default()
        });
        [1514, 54].map(|len| q.charge(Instant::ZERO, 0, len, false))
    };
    assert_eq!(counted(true), [1544, 96]);
    assert_eq!(counted(false), [1558, 98]);
    let mut plain = cake(None);
    assert_eq!(plain.charge(Instant::ZERO, 0, 54, false), 54);
}

#[test]
fn eight_flows_of_one_set_do_not_collide_and_a_ninth_does() {
    let mut q = cake(None);
    // All have the same queue by their hashes: hash % 1024 = 5.
    for i in 0..9 {
        put(&mut q, Instant::ZERO, 5 + 1024 * i, 1, 100);
    }
    assert_eq!(q.tins[0].flows.iter().count(), 8);
    assert!(q.tins[0].flows.iter().all(|f| f.packets() >= 1));
    // The ninth shares the queue that its hash names, 5, which came first.
    assert_eq!(q.tins[0].flows.get(0).packets(), 2);
}

#[test]
fn a_flow_finds_its_queue_again() {
    let mut q = cake(None);
    put(&mut q, Instant::ZERO, 5, 1, 100);
    put(&mut q, Instant::ZERO, 5 + 1024, 2, 100);
    put(&mut q, Instant::ZERO, 5, 1, 100);
    let packets: Vec<u32> = q.tins[0].flows.iter().map(|f| f.packets()).collect();
    assert_eq!(packets, [2, 2]);
}

#[test]
fn sparse_flows_go_before_bulk_ones() {
    let mut q = cake(None);
    put(&mut q, Instant::ZERO, 1, 10, 1514);
    put(&mut q, Instant::ZERO, 2, 10, 1514);
    assert_eq!(order(&mut q, 4), [1, 2, 1, 2]);
    put(&mut q, Instant::ZERO, 3, 1, 100);
    assert_eq!(order(&mut q, 2), [3, 1]);
}

#[test]
fn a_quantum_of_less_than_a_packet_gives_equal_shares() {
    // Quantum 305 at 10 Mbit/s; flow 1 sends packets of 1514, flow 2 of 500 bytes.
    let mut q = Cake::new(Params {
        bandwidth: Bandwidth::Link(Rate::from_mbit(10)),
        ..Params::default()
    });
    put(&mut q, Instant::ZERO, 1, 200, 1514);
    put(&mut q, Instant::ZERO, 2, 600, 500);
    let mut sent = [0i64; 3];
    for _ in 0..400 {
        let p = take(&mut q, Instant::ZERO, &mut Vec::new());
        sent[p.hash as usize] += i64::from(p.len);
        assert!((sent[1] - sent[2]).abs() <= 1514 + 500 + 305, "{sent:?}");
    }
}

#[test]
fn overflow_drops_at_the_head_of_the_longest_flow_one_by_one() {
    // Ten packets of 1514 + 790 bytes fit.
    let mut q = Cake::new(Params {
        memory_limit: 23_040,
        ..Params::default()
    });
    assert!(put(&mut q, Instant::ZERO, 1, 8, 1514).is_empty());
    assert!(put(&mut q, Instant::ZERO, 2, 2, 1514).is_empty());
    let drops = put(&mut q, Instant::ZERO, 3, 1, 1514);
    assert_eq!(drops.len(), 1);
    let (packet, cause) = drops[0];
    assert_eq!((packet.hash, packet.id), (1, 0));
    assert_eq!(cause, DropCause::Overflow);
}

#[test]
fn overflow_wakes_blue_of_the_longest_flow_only() {
    let mut q = Cake::new(Params {
        memory_limit: 23_040,
        ..Params::default()
    });
    put(&mut q, Instant::from_millis(10), 1, 12, 1514);
    put(&mut q, Instant::from_millis(10), 2, 1, 100);
    let states = q.tins[0].states.iter();
    let p_drop: Vec<u32> = states.map(|s| s.law.p_drop).filter(|p| *p > 0).collect();
    // One step of 1/256, whatever the number of drops: the next one is possible a target later.
    assert_eq!(p_drop, [1 << 24]);
}

#[test]
fn cobalt_acts_per_flow() {
    // Flow 1 overloads the link, so its packets are dropped; those of flow 2 pass at once.
    let mut q = cake(None);
    let mut drops = Vec::new();
    put(&mut q, Instant::ZERO, 1, 1500, 1514);
    for i in 0..600 {
        let now = Instant::from_millis(i * 5);
        put(&mut q, now, 2, 1, 200);
        while take(&mut q, now, &mut drops).hash != 2 {}
    }
    assert!(drops.len() > 5 && drops.iter().all(|(p, _)| p.hash == 1));
}

#[test]
fn ecn_capable_packets_are_marked_and_others_dropped() {
    for (ecn, marked) in [(Ecn::Ect0, true), (Ecn::NotEct, false)] {
        let mut q = cake(None);
        put_ecn(&mut q, Instant::ZERO, 1, 500, 1514, ecn);
        let (mut drops, mut marks) = (Vec::new(), 0);
        for i in 0..200 {
            let p = take(&mut q, Instant::ZERO + 10 * MS + i * 5 * MS, &mut drops);
            marks += u64::from(p.ecn == Ecn::Ce);
        }
        assert_eq!(q.marks(), marks);
        assert_eq!((marks > 0, drops.is_empty()), (marked, marked));
    }
}

#[test]
fn the_last_packet_of_a_flow_is_never_dropped() {
    let mut q = cake(None);
    put(&mut q, Instant::ZERO, 1, 1, 1514);
    q.tins[0].states[0].law.p_drop = u32::MAX;
    assert_eq!(
        take(&mut q, Instant::from_millis(1), &mut Vec::new()).hash,
        1
    );
}

#[test]
fn an_emptied_flow_decays_before_it_is_forgotten() {
    let mut q = cake(None);
    put(&mut q, Instant::ZERO, 2, 100, 100);
    put(&mut q, Instant::ZERO, 1, 1, 100);
    q.tins[0].states[1].law.count = 3;
    // Both are new flows: 2 is served up to its quantum, then 1. The next call finds flow 1 empty
    // while its count is above 0.
    let mut now = Instant::ZERO;
    while take(&mut q, now, &mut Vec::new()).hash != 1 {}
    take(&mut q, now, &mut Vec::new());
    assert_eq!(q.tins[0].flows.get(1).list(), FlowList::Decaying);
    // Each dequeue lowers the count by one; then the flow leaves.
    for _ in 0..40 {
        now += 50 * MS;
        put(&mut q, now, 2, 1, 100);
        take(&mut q, now, &mut Vec::new());
    }
    assert_eq!(
        (q.tins[0].states[1].law.count, q.tins[0].flows.get(1).list()),
        (0, FlowList::Off)
    );
}

#[test]
fn a_decaying_flow_that_gets_a_packet_is_sparse_again() {
    let mut q = cake(None);
    put(&mut q, Instant::ZERO, 2, 100, 100);
    put(&mut q, Instant::ZERO, 1, 1, 100);
    q.tins[0].states[1].law.count = 3;
    while take(&mut q, Instant::ZERO, &mut Vec::new()).hash != 1 {}
    take(&mut q, Instant::ZERO, &mut Vec::new());
    put(&mut q, Instant::ZERO, 1, 1, 100);
    assert_eq!(q.tins[0].flows.get(1).list(), FlowList::New);
    assert_eq!(take(&mut q, Instant::ZERO, &mut Vec::new()).hash, 1);
}

/// An owner whose packets have labels that depend on their hashes.
struct Owner {
    /// The labels of a hash.
    labels: fn(u32) -> Labels,
    dropped: Dropped,
}

impl Drops<TestPacket> for Owner {
    fn drop(&mut self, _: Instant, packet: TestPacket, cause: DropCause) {
        self.dropped.push((packet, cause));
    }
    fn labels(&self, packet: &TestPacket) -> Labels {
        (self.labels)(packet.hash)
    }
    fn acknowledgment(&self, packet: &TestPacket) -> Option<Acknowledgment> {
        Some(Acknowledgment {
            pure: true,
            connection: packet.hash.into(),
            number: packet.id as u32,
            ..Acknowledgment::default()
        })
    }
}

fn owner(labels: fn(u32) -> Labels) -> Owner {
    Owner {
        labels,
        dropped: Vec::new(),
    }
}

/// The bytes that each hash below 16 sends among `packets` full-size packets, while all have enough
/// queued.
fn shares(params: Params, owner: &mut Owner, hashes: &[u32], packets: usize) -> [u64; 16] {
    let mut q = Cake::new(params);
    let mut rng = rng();
    let (mut sent, mut now) = ([0; 16], Instant::ZERO);
    for id in 0..64 {
        for &hash in hashes {
            let packet = TestPacket::new(id, 1514, hash, Ecn::Ect0);
            q.enqueue(now, packet, &mut rng, owner);
        }
    }
    let mut left = packets;
    while left > 0 {
        match q.dequeue(now, &mut rng, owner) {
            Dequeued::Packet(packet) => {
                sent[packet.hash as usize] += u64::from(packet.len);
                left -= 1;
                // A new packet arrives for each that leaves.
                let packet = TestPacket::new(99, 1514, packet.hash, Ecn::Ect0);
                q.enqueue(now, packet, &mut rng, owner);
            }
            Dequeued::NotBefore(time) => now = time,
            Dequeued::Empty => unreachable!("every flow has packets"),
        }
    }
    sent
}

/// Flows 1 to 3 come from one host, flow 4 from another; all go to the same host.
fn two_sources(hash: u32) -> Labels {
    Labels {
        source: 1 + hash / 4,
        destination: 77,
        ..Labels::default()
    }
}

fn isolated(isolation: Isolation) -> [u64; 4] {
    let params = Params {
        bandwidth: Bandwidth::Shaped(Rate::from_mbit(10)),
        isolation,
        ..Params::default()
    };
    let sent = shares(params, &mut owner(two_sources), &[1, 2, 3, 4], 3000);
    let all: u64 = sent.iter().sum();
    [1, 2, 3, 4].map(|i| (sent[i] * 100 + all / 2) / all)
}

#[test]
fn flows_share_alike_whatever_their_hosts() {
    assert_eq!(isolated(Isolation::Flows), [25, 25, 25, 25]);
}

#[test]
fn a_host_with_three_flows_gets_no_more_than_one_with_one() {
    let got = isolated(Isolation::DualSource);
    let near = |(got, wanted): (u64, u64)| got.abs_diff(wanted) <= 2;
    let wanted = [17, 17, 17, 50];
    assert!(got.into_iter().zip(wanted).all(near), "{got:?}");
}

#[test]
fn triple_isolation_divides_by_the_host_that_has_more_flows() {
    // All four go to one host, which has more flows than either source: they share alike.
    assert_eq!(isolated(Isolation::Triple), [25, 25, 25, 25]);
}

#[test]
fn the_other_sides_hosts_do_not_count_in_a_dual_mode() {
    assert_eq!(isolated(Isolation::DualDestination), [25, 25, 25, 25]);
}

#[test]
fn modes_by_host_have_a_queue_for_each_host_or_one_for_all() {
    let queues = |isolation| {
        let mut q = Cake::new(Params {
            isolation,
            ..Params::default()
        });
        for hash in [1, 2, 4, 5] {
            let packet = TestPacket::new(0, 100, hash, Ecn::NotEct);
            let labels = |hash| Labels {
                source: 100 + hash / 4,
                destination: 200 + hash % 2 * 8,
                ..Labels::default()
            };
            q.enqueue(Instant::ZERO, packet, &mut rng(), &mut owner(labels));
        }
        q.sub_queues()
    };
    assert_eq!(queues(Isolation::Flowblind), 1);
    assert_eq!(queues(Isolation::SourceHost), 2);
    assert_eq!(queues(Isolation::DestinationHost), 2);
    assert_eq!(queues(Isolation::Hosts), 4);
    assert_eq!(queues(Isolation::Flows), 4);
}

/// The hash is the DSCP.
fn dscp(hash: u32) -> Labels {
    Labels {
        dscp: hash as u8,
        ..Labels::default()
    }
}

#[test]
fn a_tin_above_its_threshold_gets_its_share_of_the_bandwidth() {
    // Bulk (LE, 1) beside best effort (0): 1/16 of the rate is its threshold. Both have packets all
    // the time.
    let params = Params {
        bandwidth: Bandwidth::Shaped(Rate::from_mbit(10)),
        tins: Tins::Diffserv4,
        ..Params::default()
    };
    let sent = shares(params.clone(), &mut owner(dscp), &[0, 1], 3000);
    let bulk = sent[1] * 1000 / (sent[0] + sent[1]);
    assert!((55..70).contains(&bulk), "{bulk} of 1000");
    // Video (TOS4, 4) has priority up to half of the rate.
    let sent = shares(params, &mut owner(dscp), &[0, 4], 3000);
    let video = sent[4] * 1000 / (sent[0] + sent[4]);
    assert!((480..520).contains(&video), "{video} of 1000");
}

#[test]
fn without_a_rate_tins_share_by_their_quanta() {
    let params = Params {
        bandwidth: Bandwidth::Unlimited,
        ..Params::default()
    };
    // The tins' quanta are 1024 and 64.
    let sent = shares(params, &mut owner(dscp), &[0, 8], 3400);
    let bulk = sent[8] * 1000 / (sent[0] + sent[8]);
    assert!((50..68).contains(&bulk), "{bulk} of 1000");
}

#[test]
fn a_voice_packet_below_its_threshold_goes_first() {
    let mut q = cake(Some(10_000_000));
    let mut owner = owner(dscp);
    let mut put = |q: &mut Cake<TestPacket>, now, hash, n| {
        for id in 0..n {
            let packet = TestPacket::new(id, 1000, hash, Ecn::NotEct);
            q.enqueue(now, packet, &mut rng(), &mut owner);
        }
    };
    put(&mut q, Instant::ZERO, 0, 20);
    take(&mut q, Instant::ZERO, &mut Vec::new());
    put(&mut q, Instant::from_millis(1), 46, 1);
    assert_eq!(
        take(&mut q, Instant::from_millis(1), &mut Vec::new()).hash,
        46
    );
    let tins: Vec<_> = q.tins().iter().map(|t| (t.name, t.sent_packets)).collect();
    assert_eq!(tins, [("Bulk", 0), ("Best Effort", 1), ("Voice", 1)]);
}

#[test]
fn a_tin_has_target_and_interval_of_its_threshold() {
    // Linux 7.2.12, tc -s qdisc show, "cake bandwidth 10Mbit diffserv4": Bulk has 625Kbit, target
    // 29.1ms, interval 124ms.
    let q: Cake<TestPacket> = Cake::new(Params {
        bandwidth: Bandwidth::Shaped(Rate::from_mbit(10)),
        tins: Tins::Diffserv4,
        ..Params::default()
    });
    let tins = q.tins();
    assert_eq!(tins[0].threshold, Rate::from_kbit(625));
    assert_eq!(tins[0].target / 100_000, Duration::from_nanos(290));
    assert_eq!(tins[0].interval / MS, 124);
    assert_eq!(
        (tins[3].name, tins[3].threshold),
        ("Voice", Rate::from_kbit(2500))
    );
}

#[test]
fn an_ingress_shaper_counts_what_it_drops() {
    // 12.112 Mbit/s: a packet each millisecond. Memory for ten packets; five more are dropped.
    let next = |ingress| {
        let mut q = Cake::new(Params {
            bandwidth: Bandwidth::Shaped(Rate::from_kbit(12_112)),
            memory_limit: 23_040,
            ingress,
            ..Params::default()
        });
        assert_eq!(put(&mut q, Instant::ZERO, 1, 15, 1514).len(), 5);
        take(&mut q, Instant::ZERO, &mut Vec::new());
        q.next
    };
    let took = [next(false), next(true)];
    assert!(
        took[0].abs_diff(Instant::from_millis(1)) <= Duration::from_nanos(9),
        "{took:?}"
    );
    assert!(
        took[1].abs_diff(Instant::from_millis(6)) <= Duration::from_nanos(9),
        "{took:?}"
    );
}

#[test]
fn an_ingress_shaper_is_held_up_by_drops_for_no_more_than_half_a_packet() {
    let mut q = Cake::new(Params {
        bandwidth: Bandwidth::Shaped(Rate::from_kbit(12_112)),
        memory_limit: 23_040,
        ingress: true,
        ..Params::default()
    });
    put(&mut q, Instant::ZERO, 1, 15, 1514);
    // Five drops have used up 5 ms, but nothing was sent.
    take(&mut q, Instant::ZERO, &mut Vec::new());
    let got = q.dequeue(Instant::ZERO, &mut rng(), &mut Vec::new());
    assert!(
        matches!(got, Dequeued::NotBefore(t) if t.abs_diff(Instant::ZERO + 3 * MS / 2) <= Duration::from_nanos(9)),
        "{got:?}"
    );
}

#[test]
fn the_knob_rate_sets_the_bandwidth_where_one_was_given() {
    let shaped = |bandwidth| {
        Cake::<TestPacket>::new(Params {
            bandwidth,
            ..Params::default()
        })
    };
    let mut q = shaped(Bandwidth::Shaped(Rate::from_kbit(12_112)));
    assert_eq!(Discipline::knobs(&q), KnobSet::RATE);
    let half = Knobs {
        rate: Some(Rate::from_kbit(6056)),
        ..Knobs::KEEP
    };
    q.set_knobs(&half);
    put(&mut q, Instant::ZERO, 1, 2, 1514);
    take(&mut q, Instant::ZERO, &mut Vec::new());
    let got = q.dequeue(Instant::ZERO, &mut rng(), &mut Vec::new());
    assert!(
        matches!(got, Dequeued::NotBefore(t) if t.abs_diff(Instant::from_millis(2)) <= Duration::from_nanos(9)),
        "1514 bytes at half the rate: {got:?}"
    );
    assert_eq!(
        Discipline::knobs(&shaped(Bandwidth::Link(Rate::from_mbit(1)))),
        KnobSet::NONE
    );
}

#[test]
fn autorate_follows_what_arrives() {
    let mut q = Cake::new(Params {
        bandwidth: Bandwidth::Unlimited,
        autorate_ingress: true,
        ..Params::default()
    });
    // Packets of 1514 bytes each 900 us, with a longer gap after every 50, which ends a window of
    // the measurement.
    let mut now = Instant::ZERO;
    for id in 0..6000u64 {
        now += if id % 50 == 0 {
            6 * MS
        } else {
            Duration::from_micros(900)
        };
        put(&mut q, now, 1, 1, 1514);
        let _ = q.dequeue(now, &mut rng(), &mut Vec::new());
    }
    let bps = q.tins()[1].threshold.bps_f64();
    let arrived = 12_112_000.0 * 50.0 / (6.0 + 49.0 * 0.9);
    let share = bps / arrived;
    assert!((0.92..0.95).contains(&share), "15/16, not {share}");
}

#[test]
fn the_ack_filter_drops_superfluous_acks_of_a_connection() {
    let mut q = Cake::new(Params {
        ack_filter: AckFilter::Filter,
        ..Params::default()
    });
    let mut owner = owner(|_| Labels::default());
    for id in 0..10 {
        for hash in [1, 2] {
            let packet = TestPacket::new(id, 66, hash, Ecn::NotEct);
            q.enqueue(Instant::ZERO, packet, &mut rng(), &mut owner);
        }
    }
    // The last two of each flow are left.
    assert_eq!((q.len(), q.bytes()), (4, 264));
    assert_eq!(owner.dropped.len(), 16);
    assert_eq!(q.tins()[1].ack_drops, 16);
    let ids: Vec<u64> = (0..4)
        .map(|_| take(&mut q, Instant::ZERO, &mut Vec::new()).id)
        .collect();
    assert_eq!(ids, [8, 9, 8, 9]);
}

#[test]
fn hosts_beyond_the_table_share_entries_and_counts_return_to_0() {
    // Every flow has hosts of its own, and the hashes of all hosts fall into one set of eight.
    let mut q = Cake::new(Params::default());
    let labels = |hash| Labels {
        source: hash * 1024,
        destination: hash * 2048,
        ..Labels::default()
    };
    let mut owner = owner(labels);
    let mut rng = rng();
    for round in 0..200u64 {
        for hash in 0..40 {
            let packet = TestPacket::new(round, 1514, hash * 3, Ecn::NotEct);
            q.enqueue(Instant::from_millis(round), packet, &mut rng, &mut owner);
        }
        for _ in 0..30 {
            let _ = q.dequeue(Instant::from_millis(round), &mut rng, &mut owner);
        }
    }
    let mut now = Instant::from_millis(200);
    while !q.is_empty() {
        now += MS;
        let _ = q.dequeue(now, &mut rng, &mut owner);
    }
    // Some seconds later, no flow is counted any more.
    for _ in 0..400 {
        now += 50 * MS;
        q.enqueue(
            now,
            TestPacket::new(0, 100, 999, Ecn::NotEct),
            &mut rng,
            &mut owner,
        );
        let _ = q.dequeue(now, &mut rng, &mut owner);
    }
    let tin = q.tins()[1];
    assert!(tin.bulk_flows + tin.sparse_flows <= 1, "{tin:?}");
    assert_eq!(tin.unresponsive_flows, 0);
}

#[test]
fn flows_of_one_hash_have_eight_queues_and_then_share() {
    let mut q = cake(None);
    let counts = |q: &Cake<TestPacket>| {
        let tin = q.tins[0].gauges();
        (tin.indirect_hits, tin.misses, tin.collisions)
    };
    // Of the 1024 queues in sets of eight, these hashes all name the sixth of the first set.
    let hash = |flow: u32| 1024 * flow + 5;
    put(&mut q, Instant::ZERO, hash(0), 2, 1514);
    assert_eq!(counts(&q), (0, 1, 0));
    for flow in 1..8 {
        put(&mut q, Instant::ZERO, hash(flow), 2, 1514);
        assert_eq!(counts(&q), (flow.into(), u64::from(flow) + 1, 0));
    }
    put(&mut q, Instant::ZERO, hash(8), 1, 1514);
    assert_eq!(counts(&q), (7, 8, 1));
    // One turn each; the ninth has joined the first one's queue.
    let mut turns = order(&mut q, 8);
    turns.sort_unstable();
    assert_eq!(turns, (0..8).map(hash).collect::<Vec<_>>());
}
