use super::*;
use proptest::prelude::*;
use quell_link::words;
use quell_qdisc::outside::Handle;
use quell_qdisc::time::{Instant, MS};
use quell_qdisc::{Dequeued, Drops, Rng};

fn params(words: &str, bps: u64) -> Params {
    Params::line(Rate::from_bps(bps), Queue::parse(words).unwrap())
}

fn live(place: u32, bytes: u32, flow: u32, ecn: Ecn) -> Live {
    let class = Class {
        hash: flow.wrapping_mul(0x9e37_79b9),
        ecn,
        payload: bytes.saturating_sub(40),
        ..Class::default()
    };
    Live::new(place, bytes, &class)
}

#[test]
fn departures_follow_delay_and_rate_however_late_the_loop_is() {
    // 986 + 14 bytes at 8 Mbit/s take 1 ms.
    let mut link = LiveLink::new(Params {
        delay: 5 * MS,
        ..params("pfifo", 8_000_000)
    });
    for (at, place) in [(0, 0), (0, 1), (10, 2)] {
        link.arrive(Instant::from_millis(at), live(place, 986, 0, Ecn::NotEct));
    }
    let mut out = Vec::new();
    assert_eq!(link.next(), Instant::from_millis(5));
    link.advance(Instant::from_millis(6), |due, p| out.push((due, p.place)));
    link.advance(Instant::from_millis(100), |due, p| out.push((due, p.place)));
    let times = [(6, 0), (7, 1), (16, 2)].map(|(ms, place)| (Instant::from_millis(ms), place));
    assert_eq!(out, times);
    let record = crate::plane::report::Record::new(
        "down",
        &mut link,
        Instant::from_millis(100),
        0.0,
        Default::default(),
        &quell_link::Hist::new(),
    );
    assert_eq!(record.run.packets, 3);
    assert_eq!(record.run.throughput_mbps, 3.0 * 1000.0 * 8.0 / 1e5);
    assert_eq!(record.run.goodput_mbps, 3.0 * 946.0 * 8.0 / 1e5);
    // The second waited for 1 ms.
    assert!((record.run.sojourn_ms.mean - 1.0 / 3.0).abs() < 1e-9);
}

/// A FIFO that loses its third packet.
#[derive(Clone, Debug, Default)]
struct Leaky(VecDeque<Handle>, u64, u32);

impl Discipline<Handle> for Leaky {
    fn enqueue<D: Drops<Handle>>(&mut self, _: Instant, p: Handle, _: &mut Rng, _: &mut D) {
        self.2 += 1;
        if self.2 != 3 {
            self.1 += u64::from(p.len());
            self.0.push_back(p);
        }
    }
    fn dequeue<D: Drops<Handle>>(
        &mut self,
        _: Instant,
        _: &mut Rng,
        _: &mut D,
    ) -> Dequeued<Handle> {
        let Some(packet) = self.0.pop_front() else {
            return Dequeued::Empty;
        };
        self.1 -= u64::from(packet.len());
        Dequeued::Packet(packet)
    }
    fn len(&self) -> usize {
        self.0.len()
    }
    fn bytes(&self) -> u64 {
        self.1
    }
}

/// A queue of another crate that fails with its third packet.
pub fn leaky() -> Queue {
    Queue::outside("leaky", |_| Leaky::default()).unwrap()
}

#[test]
fn packets_pass_a_queue_from_outside_that_has_failed() {
    let mut link = LiveLink::new(Params::line(Rate::from_mbit(8), leaky()));
    let mut out = Vec::new();
    for place in 0..6 {
        link.arrive(Instant::from_nanos(10), live(place, 986, 0, Ecn::NotEct));
    }
    link.advance(Instant::from_millis(100), |_, p| out.push(p.place));
    // The first packet was on the line; the queue fails with the third.
    assert_eq!(link.failure().map(|why| &why[..14]), Some("leaky reports "));
    assert_eq!(out, [3, 4, 5, 0]);
    let mut freed: Vec<_> = std::iter::from_fn(|| link.freed()).collect();
    freed.sort_unstable();
    assert_eq!(freed, [1, 2]);
    link.arrive(Instant::from_millis(200), live(9, 986, 0, Ecn::NotEct));
    let mut late = Vec::new();
    link.advance(Instant::from_millis(300), |due, p| {
        late.push((due, p.place))
    });
    assert_eq!(late, [(Instant::from_millis(200), 9)]);
}

#[test]
fn a_limit_set_late_counts_from_then_on_in_the_mean() {
    let mut link = LiveLink::new(params("fixed limit 100", 8_000_000));
    link.advance(Instant::from_secs(1), |_, _| ());
    link.hold_at_most(Instant::from_secs(1), 10);
    let mean = link
        .record(Instant::from_secs(2))
        .limit_packets
        .expect("a mean limit");
    assert!((mean - 55.0).abs() < 0.01, "{mean}");
}

#[test]
fn a_token_bucket_lets_a_burst_through_and_keeps_the_packet_that_is_paid_for_queued() {
    // 986 + 14 bytes at 8 Mbit/s take 1 ms; the bucket holds 1.6 ms.
    let mut link = LiveLink::new(Params {
        burst: Some(1600),
        ..params("pfifo", 8_000_000)
    });
    for place in 0..4 {
        link.arrive(Instant::ZERO, live(place, 986, 0, Ecn::NotEct));
    }
    let mut out = Vec::new();
    link.advance(Instant::from_millis(2), |due, p| out.push((due, p.place)));
    let times = [(0, 0), (0, 1), (400, 2), (1400, 3)];
    assert_eq!(
        out,
        times.map(|(us, place)| (Instant::from_micros(us), place))
    );
    assert_eq!(link.inside(), 0);
}

#[test]
fn controllers_decide_on_their_cadence_also_when_nothing_moves() {
    let mut link = LiveLink::new(params("learnqueue initial 20 max 100", 12_000_000));
    let mut times = Vec::new();
    while link.next() < Instant::from_millis(50) {
        let next = link.next();
        link.advance(next, |_, _| ());
        times.push(next);
    }
    assert_eq!(times, [15, 30, 45].map(Instant::from_millis));
}

#[test]
fn a_guard_does_not_take_decisions_of_a_loop_that_is_late() {
    let decide = |late: Instant| {
        let mut link = LiveLink::new(params("rlaqm guard", 12_000_000));
        link.time_decisions(std::sync::Arc::new(move || late));
        link.advance(Instant::from_millis(100), |_, _| ());
        *link.guard().unwrap()
    };
    // RL-AQM decides every 20 ms. The clock is up to 100 ms behind the decisions' times, then 10 s
    // ahead of them.
    let calm = decide(Instant::ZERO);
    assert_eq!((calm.decisions, calm.learned, calm.fallbacks), (5, 5, 0));
    let late = decide(Instant::from_secs(10));
    assert_eq!((late.learned, late.stale, late.fallbacks), (0, 5, 1));
}

#[test]
fn a_series_has_every_bin() {
    let mut link = LiveLink::new(params("codel", 12_000_000));
    for k in 0..1000 {
        let now = Instant::ZERO + k * MS / 2;
        link.arrive(now, live(k as u32, 1486, 0, Ecn::Ect0));
        link.advance(now, |_, _| ());
        while link.freed().is_some() {}
    }
    link.advance(Instant::from_secs(1), |_, _| ());
    let s = link.series();
    assert_eq!(
        (s.drops.len(), s.marks.len(), s.backlog_ms.len()),
        (10, 10, 10)
    );
    assert!((s.throughput_mbps[2] - 12.0).abs() < 0.2, "{s:?}");
    assert_eq!(s.capacity_mbps[9], 12.0);
    let view = link.view();
    assert_eq!(
        view.marks + view.drops,
        s.marks.iter().sum::<u64>() + s.drops.iter().sum::<u64>()
    );
}

#[test]
fn a_restarted_record_keeps_no_earlier_values() {
    let mut link = LiveLink::new(params("pfifo limit 5", 8_000_000));
    let run = |link: &mut LiveLink, from: Instant| {
        for k in 0..200 {
            // Every 50th time 10 packets arrive at once, more than fit.
            for _ in 0..1 + u32::from(k % 50 == 0) * 9 {
                link.arrive(from + k * MS, live(0, 986, 0, Ecn::NotEct));
            }
            link.advance(from + k * MS, |_, _| ());
        }
        while link.freed().is_some() {}
    };
    let record = |link: &mut LiveLink, now| {
        let late = quell_link::Hist::new();
        crate::plane::report::Record::new("down", link, now, 0.0, Default::default(), &late).run
    };
    run(&mut link, Instant::ZERO);
    link.advance(Instant::from_millis(250), |_, _| ());
    link.restart(Instant::from_millis(250), true);
    run(&mut link, Instant::from_millis(250));
    link.advance(Instant::from_millis(500), |_, _| ());
    let again = record(&mut link, Instant::from_millis(500));
    let mut fresh = LiveLink::new(params("pfifo limit 5", 8_000_000));
    run(&mut fresh, Instant::ZERO);
    fresh.advance(Instant::from_millis(250), |_, _| ());
    let once = record(&mut fresh, Instant::from_millis(250));
    assert_eq!(again.measured_s, once.measured_s);
    assert_eq!((again.packets, again.drops), (once.packets, once.drops));
    assert_eq!(again.goodput_mbps, once.goodput_mbps);
    assert!(once.drops > 0);
    assert_eq!(again.sojourn_ms, once.sojourn_ms);
    assert_eq!(again.utilisation, once.utilisation);
    assert_eq!(again.series, once.series);
}

#[test]
fn an_ack_filter_drops_what_later_acks_repeat_and_notes_are_used_again() {
    let mut link = LiveLink::new(params("cake ack-filter", 1_000_000));
    assert!(link.wants().acknowledgments && link.wants().labels);
    let (mut sent, mut freed) = (0, 0);
    for number in 0..1000u32 {
        let now = Instant::ZERO + u64::from(number) * MS / 10;
        let ack = Acknowledgment {
            pure: true,
            number,
            ..Acknowledgment::default()
        };
        link.arrive_with(now, live(number, 52, 1, Ecn::NotEct), Some(ack));
        link.advance(now, |_, _| sent += 1);
        freed += std::iter::from_fn(|| link.freed()).count();
    }
    // 66 bytes take 0.53 ms, five arrivals: one in five is sent.
    assert!((180..200).contains(&sent), "{sent}");
    assert!(freed > 790, "{freed}");
    let notes = &link.bottleneck.queue.probe.observer;
    assert!(notes.acknowledgments.len() < 10);
}

/// A packet's distance from the one before, µs; its size, flow and ECN field; the loop's sleep
/// afterwards, µs.
type Step = (u64, u32, u32, u8, u64);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (0..3000u64, 20..1500u32, 0..4u32, 0..4u8, 0..20_000u64);
    proptest::collection::vec(step, 1..300)
}

fn kinds() -> Vec<String> {
    words::catalogue()
        .iter()
        .map(|k| k.name.to_owned())
        .collect()
}

/// Runs the steps. Returns the packets that left, with their times; the places of dropped or lost
/// ones; and the number of packets inside at the end.
fn drive(
    words: &str,
    steps: &[Step],
    loss: f64,
    sleepy: bool,
) -> (Vec<(Instant, Live)>, Vec<u32>, usize) {
    let mut link = LiveLink::new(Params {
        delay: MS,
        loss,
        ..params(words, 5_000_000)
    });
    let (mut out, mut freed, mut now) = (Vec::new(), Vec::new(), Instant::ZERO);
    for (place, &(gap, bytes, flow, ecn, sleep)) in steps.iter().enumerate() {
        now += Duration::from_micros(gap);
        link.arrive(now, live(place as u32, bytes, flow, Ecn::from_bits(ecn)));
        // A sleepy loop does not advance the link at a packet after which it sleeps 2 ms or more.
        let awake = !sleepy || sleep < 2000;
        if awake {
            link.advance(now, |due, p| out.push((due, p)));
        }
        freed.extend(std::iter::from_fn(|| link.freed()));
    }
    link.advance(now + 500 * MS, |due, p| out.push((due, p)));
    freed.extend(std::iter::from_fn(|| link.freed()));
    (out, freed, link.inside())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_packet_leaves_or_is_given_up_once_and_flows_keep_their_order(
        steps in steps(), kind in proptest::sample::select(kinds()), loss in prop_oneof![Just(0.0), Just(0.1)],
    ) {
        let (out, freed, inside) = drive(&kind, &steps, loss, false);
        let mut places: Vec<u32> = out.iter().map(|(_, p)| p.place).chain(freed).collect();
        prop_assert_eq!(places.len() + inside, steps.len());
        places.sort_unstable();
        places.dedup();
        prop_assert_eq!(places.len() + inside, steps.len(), "one left twice");
        prop_assert!(out.windows(2).all(|w| w[0].0 <= w[1].0));
        // DualPI2 and CAKE may put packets of one flow with different ECN fields into different
        // queues.
        for flow in 0..4u32 {
            for ecn in [Ecn::NotEct, Ecn::Ect0] {
                let of = |k: &u32| {
                    let (_, _, f, e, _) = steps[*k as usize];
                    f == flow && Ecn::from_bits(e) == ecn
                };
                let order: Vec<u32> = out.iter().map(|(_, p)| p.place).filter(of).collect();
                prop_assert!(order.is_sorted(), "{kind}: {order:?}");
            }
        }
    }

    #[test]
    fn a_loop_that_sleeps_loses_no_time(steps in steps(), kind in proptest::sample::select(kinds())) {
        let (punctual, ..) = drive(&kind, &steps, 0.0, false);
        let (sleepy, ..) = drive(&kind, &steps, 0.0, true);
        prop_assert_eq!(punctual, sleepy);
    }
}
