use super::*;
use crate::Packet;
use crate::packet::TestPacket;
use crate::time::{MS, SEC, US};

/// Hash of a flow, in a bucket of its own.
fn hash(flow: u32) -> u32 {
    (flow + 1) << 22
}

/// A model that does not change when the one that quell ships does.
const MODEL: &str = "hush 3
target -3.11308 0.15282 0.26839 -0.32857 0.33520 -0.04067 -0.81959 0.58945 -0.29882
wait -2.60525 -1.20207 -0.52954 0.24781 0.02810 0.20969 -0.00016 -0.22368 -0.04588
hold 1.26761 -0.48932 -0.04736 0.85698 0.12434 0.18937 0.19164 0.41046 -0.11332
cap 0.36353 0.27037 0.04275 -1.34371 -0.11602 0.10529 -0.03702 -0.57252 0.45504
step -4.51058 -0.36992 -0.68696 1.13579 0.10378 0.06622 -0.00400 0.10469 0.02201
dry -2.1 0.4 0 0
power 0.659698
longest 0.0503769
window 4
service 1
steady 0.5
kappa 0.53314
lead 0
own 1
gain 0.02448
falls -2.5
rises 0.09259
end
";

fn params() -> Params {
    Params {
        model: Arc::new(Model::parse(MODEL).expect("a model")),
        ..Params::default()
    }
}

struct Bed {
    q: Hush<TestPacket>,
    now: Instant,
    rng: Rng,
    drops: Vec<(TestPacket, DropCause)>,
    id: u64,
}

impl Bed {
    fn new(params: Params) -> Self {
        Self {
            q: Hush::new(params),
            now: Instant::from_secs(1),
            rng: Rng::new(1, "hush"),
            drops: Vec::new(),
            id: 0,
        }
    }

    fn put(&mut self, flow: u32, ecn: Ecn) {
        let packet = TestPacket::new(self.id, 1500, hash(flow), ecn);
        self.id += 1;
        (self.q).enqueue(self.now, packet, &mut self.rng, &mut self.drops);
    }

    fn take(&mut self) -> Option<TestPacket> {
        match self.q.dequeue(self.now, &mut self.rng, &mut self.drops) {
            Dequeued::Packet(packet) => Some(packet),
            _ => None,
        }
    }

    /// Runs a link that sends a packet per millisecond, with `arrivals` in each; returns the
    /// packets sent.
    fn run(
        &mut self,
        ms: u64,
        ecn: Ecn,
        mut arrivals: impl FnMut(u64) -> Vec<u32>,
    ) -> Vec<TestPacket> {
        let step = |i| {
            self.now += MS;
            arrivals(i).into_iter().for_each(|flow| self.put(flow, ecn));
            self.take()
        };
        (0..ms).filter_map(step).collect()
    }
}

#[test]
fn a_load_below_the_rate_is_left_alone() {
    let mut bed = Bed::new(params());
    let out = bed.run(20_000, Ecn::NotEct, |i| {
        if i % 10 == 0 { vec![] } else { vec![1] }
    });
    assert_eq!((out.len(), bed.drops.len()), (18_000, 0));
}

#[test]
fn a_dequeue_before_the_first_packet_finds_the_queue_empty() {
    for order in [Order::Fair, Order::Arrival, Order::Single] {
        for dry_run in [false, true] {
            let mut bed = Bed::new(Params {
                order,
                dry_run,
                ..params()
            });
            assert_eq!(bed.take(), None, "{order:?}");
            bed.put(1, Ecn::NotEct);
            assert!(bed.take().is_some());
        }
    }
}

#[test]
fn an_overload_that_does_not_yield_is_held_below_the_cap() {
    for order in [Order::Fair, Order::Arrival, Order::Single] {
        let mut bed = Bed::new(Params { order, ..params() });
        let out = bed.run(20_000, Ecn::NotEct, |i| {
            if i % 4 == 0 { vec![1, 2] } else { vec![1] }
        });
        assert!(out.len() >= 19_990, "{order:?}: {}", out.len());
        let settings = *bed.q.settings();
        let drain = bed.q.link().drain(bed.q.bytes());
        assert!(
            drain <= settings.cap + 2 * MS,
            "{order:?}: {drain:?} above {settings:?}"
        );
        assert!(settings.cap < 100 * MS, "{settings:?}");
        assert!(
            bed.drops
                .iter()
                .all(|(_, cause)| *cause == DropCause::Early)
        );
    }
}

#[test]
fn the_flow_with_most_service_is_the_victim_although_all_have_a_packet_queued() {
    let mut bed = Bed::new(Params {
        order: Order::Arrival,
        ..params()
    });
    // Flow 7 sends half of the arrivals; four others share the rest.
    bed.run(5000, Ecn::NotEct, |i| match i % 4 {
        0 => vec![7, (i / 4 % 4) as u32],
        1 => vec![(i / 4 % 4) as u32],
        _ => vec![7],
    });
    let of_7 = bed.drops.iter().filter(|(p, _)| p.hash == hash(7)).count();
    assert!(
        bed.drops.len() > 500 && of_7 * 100 >= bed.drops.len() * 95,
        "{of_7} of {}",
        bed.drops.len()
    );
}

#[test]
fn marks_replace_drops_only_where_the_window_is_large_and_ecn_is_on() {
    // Two large flows: the law marks. With noecn it drops.
    let load = |i: u64| {
        if i.is_multiple_of(50) {
            vec![1, 2]
        } else {
            vec![(i % 2) as u32 + 1]
        }
    };
    let mut on = Bed::new(params());
    on.run(700, Ecn::Ect0, load);
    assert!(
        on.q.marks() > 0 && on.drops.is_empty(),
        "{}",
        on.drops.len()
    );
    let mut off = Bed::new(Params {
        ecn: false,
        ..params()
    });
    off.run(2000, Ecn::Ect0, load);
    assert!(off.q.marks() == 0 && !off.drops.is_empty());
    // 500 flows have a tenth of a packet each in a round trip: drops.
    let mut many = Bed::new(params());
    many.run(2000, Ecn::Ect0, |i| {
        let flow = (i % 500) as u32;
        if i % 50 == 0 {
            vec![flow, flow + 25]
        } else {
            vec![flow]
        }
    });
    assert!(many.q.marks() == 0 && !many.drops.is_empty());
}

#[test]
fn with_mark_next_the_mark_goes_to_the_flows_next_arrival() {
    let mut bed = Bed::new(Params {
        mark_next: true,
        ..params()
    });
    let mut marks = 0;
    // Flow 1 has more than half of the link: it is the victim.
    for i in 0..400u64 {
        bed.now += MS;
        let arrives = bed.id;
        bed.put(1, Ecn::Ect0);
        if i.is_multiple_of(20) {
            bed.put(1, Ecn::Ect0);
        }
        let queue = bed.q.flows.flow_of(bed.q.flows.scale(hash(1)));
        let place = |(_, p): (_, &TestPacket)| (p.id >= arrives).then_some(p.ecn);
        let arrived = bed.q.flows.packets_in(queue).find_map(place);
        if bed.q.marks() > marks {
            // The mark was decided at the last departure, and no queued packet was changed.
            assert_eq!(arrived, Some(Ecn::Ce), "turn {i}");
        }
        marks = bed.q.marks();
        let queued: Vec<_> = bed.q.flows.packets_in(queue).map(|(_, p)| *p).collect();
        let left = bed.take();
        let after: Vec<_> = bed.q.flows.packets_in(queue).map(|(_, p)| *p).collect();
        assert!(left.iter().chain(&after).all(|p| queued.contains(p)));
    }
    assert!(marks > 0 && bed.drops.is_empty(), "{marks} marks");
}

#[test]
fn scalable_flows_are_marked_from_their_own_step_on() {
    let mut bed = Bed::new(params());
    bed.put(1, Ecn::Ect1);
    bed.run(100, Ecn::Ect1, |_| vec![1]);
    let before = bed.q.marks();
    let step = bed.q.settings().step;
    assert!((MS..20 * MS).contains(&step), "{step:?}");
    (0..20).for_each(|_| bed.put(1, Ecn::Ect1));
    let out = bed.run(20, Ecn::Ect1, |_| vec![]);
    let marked = out.iter().filter(|p| p.ecn == Ecn::Ce).count() as u64;
    assert!(marked > 0 && marked == bed.q.marks() - before);
}

#[test]
fn arrival_order_holds_with_drops_from_the_middle() {
    let mut bed = Bed::new(Params {
        order: Order::Arrival,
        ..params()
    });
    let out = bed.run(5000, Ecn::NotEct, |i| vec![(i % 3) as u32, 1]);
    assert!(!bed.drops.is_empty());
    let arrivals = out.windows(2).map(|p| (p[0].enqueued(), p[1].enqueued()));
    assert!(arrivals.into_iter().all(|(first, second)| first <= second));
}

/// Mean sojourn of the packets of flow 9, which arrive every 20 ms beside a flow that sends more
/// than the link carries.
fn sojourn_of_a_thin_flow(kappa: f64, lead: f64) -> Duration {
    let text = MODEL
        .replace("kappa 0.53314", &format!("kappa {kappa}"))
        .replace("lead 0", &format!("lead {lead}"));
    let mut bed = Bed::new(Params {
        model: Arc::new(Model::parse(&text).expect("a model")),
        ..Params::default()
    });
    let mut waited = Vec::new();
    for i in 0..20_000u64 {
        bed.now += MS;
        bed.put(1, Ecn::NotEct);
        if i.is_multiple_of(20) {
            bed.put(9, Ecn::NotEct);
        }
        let left = bed.take();
        waited.extend(
            left.filter(|p| p.hash == hash(9))
                .map(|p| bed.now - p.enqueued()),
        );
    }
    assert!(waited.len() > 900);
    waited.iter().copied().sum::<Duration>() / waited.len() as u64
}

#[test]
fn a_flow_that_takes_little_goes_first_the_more_so_the_larger_kappa_is() {
    let [arrival, between, fair] = [0.0, 0.25, 4.0].map(|kappa| sojourn_of_a_thin_flow(kappa, 0.0));
    assert!(fair < MS && fair < between, "{fair:?}, {between:?}");
    assert!(
        between < arrival && arrival > 2 * MS,
        "{between:?}, {arrival:?}"
    );
}

#[test]
fn lone_packets_of_a_flow_that_takes_little_get_a_lead() {
    let [none, little, much] = [0.0, 0.5, 4.0].map(|lead| sojourn_of_a_thin_flow(0.0, lead));
    assert!(
        much < MS && much < little && little < none,
        "{none:?}, {little:?}, {much:?}"
    );
}

/// Number of dropped packets of flow 9, which sends bursts of 20 beside flow 1, which fills the
/// link.
fn drops_of_bursts(service: &str) -> usize {
    let text = MODEL
        .replace("service 1", service)
        .replace("steady 0.5", "steady 0");
    let mut bed = Bed::new(Params {
        model: Arc::new(Model::parse(&text).expect("a model")),
        ..Params::default()
    });
    bed.run(5000, Ecn::NotEct, |i| match i % 500 {
        0 => [vec![9; 20], vec![1]].concat(),
        _ => vec![1],
    });
    let of_9 = bed.drops.iter().filter(|(p, _)| p.hash == hash(9)).count();
    assert!(bed.drops.len() > 100, "{}", bed.drops.len());
    of_9
}

#[test]
fn a_burst_that_fills_the_queue_pays_unless_service_counts_for_more() {
    let [alone, little, much] = ["service 0", "service 0.5", "service 16"].map(drops_of_bursts);
    assert!(
        alone > 20 && little > 20 && much < 5,
        "{alone}, {little}, {much}"
    );
}

#[test]
fn a_link_that_is_never_idle_gets_an_ever_shorter_target_down_to_its_bound() {
    let target = |gain: &str| {
        let text = MODEL
            .replace("gain 0.02448", gain)
            .replace("falls -2.5", "falls -1");
        let mut bed = Bed::new(Params {
            model: Arc::new(Model::parse(&text).expect("a model")),
            ..Params::default()
        });
        bed.run(60_000, Ecn::NotEct, |i| {
            vec![1; 1 + usize::from(i % 8 == 0)]
        });
        bed.q.settings().target
    };
    let (fixed, followed) = (target("gain 0"), target("gain 0.1"));
    let e = fixed.as_nanos() as f64 / followed.as_nanos() as f64;
    // The other gauges change a little, too.
    assert!((2.0..3.5).contains(&e), "{fixed:?} {followed:?}");
}

#[test]
fn a_link_that_is_idle_in_most_round_trips_gets_a_longer_target_up_to_its_bound() {
    let target = |gain: &str| {
        let text = MODEL
            .replace("gain 0.02448", gain)
            .replace("rises 0.09259", "rises 1")
            .replace("longest 0.0503769", "longest 1");
        let mut bed = Bed::new(Params {
            model: Arc::new(Model::parse(&text).expect("a model")),
            ..Params::default()
        });
        // A burst of 20 packets in 25 ms: the link is idle once in each prior round trip of 50 ms.
        bed.run(60_000, Ecn::NotEct, |i| match i % 25 {
            0 => vec![1; 20],
            _ => vec![],
        });
        bed.q.settings().target
    };
    let (fixed, followed) = (target("gain 0"), target("gain 0.1"));
    let e = followed.as_nanos() as f64 / fixed.as_nanos() as f64;
    // The other gauges change a little, too.
    assert!((2.0..3.5).contains(&e), "{fixed:?} {followed:?}");
}

#[test]
fn times_may_count_from_any_epoch() {
    let mut bed = Bed::new(params());
    bed.now = Instant::from_secs(1_760_000_000);
    let out = bed.run(2000, Ecn::NotEct, |i| {
        vec![(i % 2) as u32, 1 - (i % 2) as u32]
    });
    let of_0 = out.iter().filter(|p| p.hash == hash(0)).count();
    assert!((900..1100).contains(&of_0), "{of_0} of {}", out.len());
}

#[test]
fn the_stand_in_begins_afresh_each_time() {
    let mut bed = Bed::new(Params {
        model: idle_policy(),
        ..Params::default()
    });
    let (mut before, mut fallbacks, mut most) = (0, 0, 0);
    bed.run(1000, Ecn::NotEct, |_| vec![1, 2]);
    for _ in 0..60_000 {
        bed.now += MS;
        [1, 2]
            .into_iter()
            .for_each(|flow| bed.put(flow, Ecn::NotEct));
        bed.take();
        let stats = bed.q.guard().expect("counts");
        if stats.fallbacks > fallbacks {
            (fallbacks, most) = (stats.fallbacks, most.max(bed.drops.len() - before));
        }
        before = bed.drops.len();
    }
    assert!(
        fallbacks >= 3 && most <= 2,
        "{fallbacks} fallbacks, {most} drops at once"
    );
}

#[test]
fn a_full_queue_that_is_not_served_stays_at_its_limit() {
    let limit = 100;
    for order in [Order::Fair, Order::Arrival, Order::Single] {
        let mut bed = Bed::new(Params {
            order,
            limit,
            ..params()
        });
        for i in 0..10_000 {
            bed.now += US;
            bed.put(i % 7, Ecn::NotEct);
            assert!(bed.q.len() <= 100);
        }
        let mut last = 0;
        while let Some(packet) = bed.take() {
            assert!(order != Order::Single || packet.id >= last);
            last = packet.id;
        }
        assert!(bed.q.is_empty());
    }
}

#[test]
fn decisions_are_the_same_bits_on_every_machine() {
    let mut bed = Bed::new(params());
    bed.run(3000, Ecn::NotEct, |i| {
        if i % 8 == 0 {
            vec![1, 2]
        } else {
            vec![(i % 5) as u32]
        }
    });
    let settings = bed.q.settings();
    let digest = (bed.drops.iter()).fold(0u64, |d, (p, _)| d.wrapping_mul(1_000_003) ^ p.id);
    assert_eq!(
        (settings.target.as_nanos(), settings.hold.as_nanos(), digest),
        (2_345_041, 822_748_538, 13_068_404_574_493_885_073)
    );
}

/// A policy that does nothing: its target is a second, its waits are 20 round trips, and it has no
/// cap.
fn idle_policy() -> Arc<Model> {
    let zeros = "0 0 0 0 0 0 0 0";
    let rows = [
        ("target", 5),
        ("wait", 5),
        ("hold", 5),
        ("cap", 90),
        ("step", 5),
    ];
    let rows: String = rows
        .map(|(word, x)| format!("{word} {x} {zeros}\n"))
        .concat();
    let text = format!(
        "hush 3\n{rows}dry 0 0 0 0\npower 0\nlongest 1\nwindow 4\nservice 1\nsteady 0\nkappa 0\nlead 0\nown 0\ngain 0\n\
         falls 0\nrises 0\nend\n"
    );
    Arc::new(Model::parse(&text).expect("a model"))
}

#[test]
fn a_policy_that_lets_the_backlog_grow_is_replaced_by_fq_codels_law_on_the_same_queues() {
    for order in [Order::Fair, Order::Arrival, Order::Single] {
        let mut bed = Bed::new(Params {
            order,
            model: idle_policy(),
            ..params()
        });
        // Three packets in two milliseconds, unresponsive.
        let out = bed.run(20_000, Ecn::NotEct, |i| {
            vec![(i % 3) as u32; 1 + (i % 2) as usize]
        });
        assert!(out.len() >= 19_990, "{order:?}: {}", out.len());
        assert!(order != Order::Single || out.windows(2).all(|pair| pair[0].id < pair[1].id));
        let stats = *bed.q.guard().expect("counts");
        assert!(
            stats.fallbacks >= 1 && stats.stuck >= 1,
            "{order:?}: {stats:?}"
        );
        assert!(!bed.drops.is_empty(), "{order:?}");
        let mut left = 0;
        while bed.take().is_some() {
            left += 1;
        }
        assert_eq!(
            left + out.len() + bed.drops.len(),
            bed.id as usize,
            "{order:?}"
        );
        assert!(bed.q.is_empty());
    }
}

#[test]
fn a_dry_run_is_fq_codel_packet_for_packet() {
    let load = |i: u64| match i % 8 {
        0 => vec![1, 2, 1],
        7 => vec![],
        _ => vec![(i % 5) as u32],
    };
    for ecn in [Ecn::NotEct, Ecn::Ect0] {
        let mut bed = Bed::new(Params {
            dry_run: true,
            ..params()
        });
        let out = bed.run(20_000, ecn, load);
        let (mut q, mut now, mut id) = (crate::fq_codel::FqCodel::new(Default::default()), SEC, 0);
        let (mut rng, mut drops) = (Rng::new(1, "hush"), Vec::new());
        let mut theirs = Vec::new();
        for i in 0..20_000 {
            now += MS;
            for flow in load(i) {
                let packet = TestPacket::new(id, 1500, hash(flow), ecn);
                q.enqueue(Instant::ZERO + now, packet, &mut rng, &mut drops);
                id += 1;
            }
            if let Dequeued::Packet(packet) = q.dequeue(Instant::ZERO + now, &mut rng, &mut drops) {
                theirs.push(packet);
            }
        }
        assert_eq!((out, &bed.drops), (theirs, &drops));
        assert_eq!(
            (bed.q.marks(), drops.is_empty()),
            (q.marks(), ecn == Ecn::Ect0)
        );
        assert!(q.marks() + drops.len() as u64 > 100);
        let stats = bed.q.guard().expect("counts");
        assert!(stats.decisions > 100 && stats.learned == 0 && stats.fallbacks == 0);
        assert!(bed.q.policy().is_some_and(|p| !p.trusted));
    }
}

#[test]
fn the_shipped_policy_is_trusted_on_steady_and_overloaded_links() {
    for load in [2, 3] {
        let mut bed = Bed::new(Params::default());
        assert_eq!(bed.q.policy(), None);
        bed.run(20_000, Ecn::NotEct, |i| vec![(i % 7) as u32; load]);
        let stats = bed.q.guard().expect("counts");
        assert_eq!((stats.fallbacks, stats.learned), (0, stats.decisions));
        let shown = bed.q.policy().expect("readings");
        assert!(shown.trusted && shown.flows == 7 && shown.target == bed.q.settings().target);
    }
}
