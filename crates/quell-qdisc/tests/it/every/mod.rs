//! Every discipline, in the variants that take different paths, small enough that tests reach their
//! limits.

#![allow(dead_code)] // each test that includes this uses a part of it

use std::sync::Arc;

use quell_qdisc::disciplines::Params;
use quell_qdisc::outside::{self, Handle};
use quell_qdisc::packet::TestPacket;
use quell_qdisc::parts::filter::Filter;
use quell_qdisc::parts::framing::{Cells, Framing};
use quell_qdisc::rate::Rate;
use quell_qdisc::time::MS;
use quell_qdisc::{
    Qdisc, bands, cake, cebinae, choke, cobalt, codel, drr, dualpi2, fifo, fq, fq_codel, fq_fifo,
    fq_pie, hhf, htb, hush, l4s, pie, pie_ns3, red, sfb, sfq,
};

/// The bound of a discipline's backlog.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    /// The limit in packets that its gauges report.
    Packets,
    /// This many bytes.
    Bytes(u64),
    /// This many bytes of memory, as Linux counts it.
    Memory(u64),
}

/// Number of kinds of discipline.
pub const KINDS: usize = 23;

/// A number per kind. A new kind is added here and to [`every`].
pub fn index(q: &Qdisc<TestPacket>) -> usize {
    match q {
        Qdisc::Fifo(_) => 0,
        Qdisc::Fq(_) => 1,
        Qdisc::FqCodel(_) => 2,
        Qdisc::FqPie(_) => 3,
        Qdisc::Codel(_) => 4,
        Qdisc::Pie(_) => 5,
        Qdisc::DualPi2(_) => 6,
        Qdisc::Red(_) => 7,
        Qdisc::Cobalt(_) => 8,
        Qdisc::Cake(_) => 9,
        Qdisc::FqFifo(_) => 10,
        Qdisc::PieNs3(_) => 11,
        Qdisc::L4s(_) => 12,
        Qdisc::Outside(_) => 13,
        Qdisc::Hush(_) => 14,
        Qdisc::Sfq(_) => 15,
        Qdisc::Choke(_) => 16,
        Qdisc::Sfb(_) => 17,
        Qdisc::Hhf(_) => 18,
        Qdisc::Bands(_) => 19,
        Qdisc::Drr(_) => 20,
        Qdisc::Htb(_) => 21,
        Qdisc::Cebinae(_) => 22,
    }
}

/// Whether the discipline is a shaper, which holds packets back although the link is free.
pub fn shapes(q: &Qdisc<TestPacket>) -> bool {
    matches!(q, Qdisc::Cake(_) | Qdisc::Htb(_))
}

/// Whether packets of one flow that differ in ECN wait in different queues, so that they may
/// overtake each other.
pub fn parts_flows(q: &Qdisc<TestPacket>) -> bool {
    matches!(q, Qdisc::DualPi2(_) | Qdisc::L4s(_))
}

/// Whether packets of one flow may overtake each other even with the same ECN field: in HHF the
/// first packets of a new heavy hitter wait among those of other flows, and Cebinae sends those of
/// its next round first from shortly before that round.
pub fn reorders(q: &Qdisc<TestPacket>) -> bool {
    matches!(q, Qdisc::Hhf(_) | Qdisc::Cebinae(_))
}

/// All disciplines: name, discipline, bound.
pub fn every() -> Vec<(&'static str, Qdisc<TestPacket>, Bound)> {
    let built_in = built_in().into_iter();
    let plain = built_in
        .clone()
        .map(|(name, params, bound)| (name, Qdisc::new(params), bound));
    let outside = built_in
        .filter(|(name, ..)| *name == "fq_codel")
        .map(|(_, params, bound)| ("outside", Qdisc::new(from_outside(params)), bound));
    plain.chain(outside).collect()
}

/// The same discipline, made as one of another crate is.
pub fn from_outside(params: Params) -> Params {
    Params::Outside(outside::Params {
        name: "outside".into(),
        rate: Rate::ZERO,
        make: Arc::new(move |_| Box::new(Qdisc::<Handle>::new(params.clone()))),
    })
}

/// A root class and two leaves that share its rate.
fn tree() -> htb::Params {
    let fifo = fifo::Params {
        limit_packets: 30,
        ..fifo::Params::default()
    };
    let class = |minor: u32, rate, filter| htb::Class {
        id: 1 << 16 | minor,
        parent: (minor > 1).then_some(1 << 16 | 1),
        rate,
        ceil: Some(Rate::from_mbit(20)),
        burst: None,
        cburst: None,
        prio: (minor % 2) as u8,
        quantum: None,
        filter,
        queue: (minor == 2).then(|| Params::Fifo(fifo.clone())),
    };
    let best_effort = Filter {
        dscps: 1,
        ..Filter::default()
    };
    htb::Params {
        direct_qlen: 30,
        classes: vec![
            class(1, Rate::from_mbit(20), Filter::default()),
            class(2, Rate::from_mbit(1), best_effort),
            class(3, Rate::from_mbit(5), Filter::default()),
        ],
        ..htb::Params::default()
    }
}

/// Quell's own disciplines: name, parameters, bound.
pub fn built_in() -> Vec<(&'static str, Params, Bound)> {
    let fifo = fifo::Params {
        limit_packets: 40,
        ..fifo::Params::default()
    };
    let fq = fq::Params {
        limit: 60,
        flow_limit: 20,
        ce_threshold: 2 * MS,
        ..fq::Params::default()
    };
    // Short times, so that the laws act within a few operations.
    let codel = codel::Params {
        limit: 50,
        target: MS,
        interval: 5 * MS,
        ..codel::Params::default()
    };
    let codel_ecn = codel::Params {
        ecn: true,
        ce_threshold: Some(3 * MS),
        ..codel.clone()
    };
    let pie = pie::Params {
        limit: 60,
        target: MS,
        ..pie::Params::default()
    };
    let pie_ecn = pie::Params {
        ecn: true,
        bytemode: true,
        dq_rate_estimator: true,
        ..pie.clone()
    };
    let pie_ns3 = pie_ns3::Params {
        limit: 60,
        target: MS,
        tupdate: MS,
        ..pie_ns3::Params::default()
    };
    let cake = cake::Params {
        rtt: 5 * MS,
        memory_limit: 100_000,
        ..cake::Params::default()
    };
    let dualpi2 = dualpi2::Params {
        limit: 60,
        target: MS,
        tupdate: MS,
        ..dualpi2::Params::default()
    };
    let l4s = l4s::Params {
        limit: 60,
        target: MS,
        tupdate: MS,
        max_burst: 2 * MS,
        ..l4s::Params::default()
    };
    let red = red::Params {
        burst: 8,
        min: 5_000,
        max: 15_000,
        limit: 40_000,
        probability: 0.1,
        ..red::Params::default()
    };
    let cobalt = cobalt::Params {
        limit: 50,
        target: MS,
        interval: 5 * MS,
        ecn: false,
        ..cobalt::Params::default()
    };
    let fq_codel = fq_codel::Params {
        limit: 60,
        drop_batch: 8,
        codel: codel.clone(),
        ..fq_codel::Params::default()
    };
    let fq_pie = fq_pie::Params {
        limit: 60,
        pie: pie.clone(),
        ..fq_pie::Params::default()
    };
    let hush = hush::Params {
        limit: 60,
        ..hush::Params::default()
    };
    let sfq = sfq::Params {
        limit: Some(60),
        depth: 20,
        ..sfq::Params::default()
    };
    let choke = choke::Params {
        min: 5,
        max: 20,
        burst: 8,
        probability: 0.1,
        ..choke::Params::of_limit(60, Rate::from_mbit(10))
    };
    let sfb = sfb::Params {
        limit: 60,
        increment: 0.05,
        rehash: 200,
        db: 100,
        ..sfb::Params::default()
    };
    let hhf = hhf::Params {
        limit: 60,
        admit_bytes: 20_000,
        ..hhf::Params::default()
    };
    let cebinae = cebinae::Params {
        limit: 60,
        dt: 20 * MS,
        ..cebinae::Params::default()
    };
    let bands = bands::Params {
        limit: 60,
        ..bands::Params::prio()
    };
    let drr = drr::Params {
        limit: 15,
        ..drr::Params::default()
    };
    vec![
        ("pfifo", Params::Fifo(fifo.clone()), Bound::Packets),
        (
            "fifo, selective",
            Params::Fifo(fifo::Params {
                selective: true,
                ..fifo.clone()
            }),
            Bound::Packets,
        ),
        (
            "bfifo",
            Params::Fifo(fifo::Params {
                limit_packets: u32::MAX,
                limit_bytes: 60_000,
                ..fifo.clone()
            }),
            Bound::Bytes(60_000),
        ),
        (
            "fifo drop",
            Params::Fifo(fifo::Params { drop: 0.2, ..fifo }),
            Bound::Packets,
        ),
        ("codel", Params::Codel(codel), Bound::Packets),
        (
            "codel ecn",
            Params::Codel(codel_ecn.clone()),
            Bound::Packets,
        ),
        ("pie", Params::Pie(pie), Bound::Packets),
        ("pie ecn", Params::Pie(pie_ecn.clone()), Bound::Packets),
        ("pie ns3-2018", Params::PieNs3(pie_ns3), Bound::Packets),
        ("fq", Params::Fq(fq), Bound::Packets),
        (
            "fq_codel",
            Params::FqCodel(fq_codel.clone()),
            Bound::Packets,
        ),
        (
            "fq_codel ecn, two buckets",
            Params::FqCodel(fq_codel::Params {
                flows: 2,
                memory_limit: 80_000,
                codel: codel_ecn,
                ..fq_codel
            }),
            Bound::Packets,
        ),
        ("fq_pie", Params::FqPie(fq_pie.clone()), Bound::Packets),
        (
            "fq_pie ecn, two buckets",
            Params::FqPie(fq_pie::Params {
                flows: 2,
                memory_limit: 80_000,
                pie: pie_ecn,
                ..fq_pie
            }),
            Bound::Packets,
        ),
        ("hush", Params::Hush(hush.clone()), Bound::Packets),
        (
            "hush in order, two buckets, noecn",
            Params::Hush(hush::Params {
                flows: 2,
                memory_limit: 80_000,
                ecn: false,
                order: hush::Order::Arrival,
                ..hush.clone()
            }),
            Bound::Packets,
        ),
        (
            "hush single",
            Params::Hush(hush::Params {
                order: hush::Order::Single,
                ..hush
            }),
            Bound::Packets,
        ),
        ("dualpi2", Params::DualPi2(dualpi2.clone()), Bound::Packets),
        (
            "dualpi2 any_ect drop_enqueue",
            Params::DualPi2(dualpi2::Params {
                classifier: dualpi2::Classifier::AnyEct,
                drop_enqueue: true,
                drop_on_overload: false,
                step_thresh: dualpi2::Step::Packets(5),
                ..dualpi2
            }),
            Bound::Packets,
        ),
        ("l4s", Params::L4s(l4s.clone()), Bound::Packets),
        (
            "l4s one pair max_ecnth",
            Params::L4s(l4s::Params {
                pairs: 1,
                max_ecnth: Some(0.1),
                ..l4s.clone()
            }),
            Bound::Packets,
        ),
        (
            "l4s as_published",
            Params::L4s(l4s.as_published()),
            Bound::Packets,
        ),
        ("red", Params::Red(red.clone()), Bound::Bytes(40_000)),
        (
            "red ecn gentle adaptive",
            Params::Red(red::Params {
                ecn: true,
                gentle: true,
                adaptive: true,
                ..red
            }),
            Bound::Bytes(40_000),
        ),
        ("sfq", Params::Sfq(sfq.clone()), Bound::Packets),
        (
            "sfq, RED with ECN at the head, perturbed, few buckets",
            Params::Sfq(sfq::Params {
                limit: Some(30),
                perturb: 50 * MS,
                divisor: 4,
                flows: 3,
                headdrop: true,
                red: Some(sfq::Red {
                    min: 3_000,
                    max: 15_000,
                    avpkt: 1000,
                    burst: 8,
                    probability: 0.2,
                    ecn: true,
                    harddrop: true,
                }),
                ..sfq
            }),
            Bound::Packets,
        ),
        ("choke", Params::Choke(choke.clone()), Bound::Packets),
        (
            "choke ecn",
            Params::Choke(choke::Params { ecn: true, ..choke }),
            Bound::Packets,
        ),
        ("sfb", Params::Sfb(sfb), Bound::Packets),
        ("hhf", Params::Hhf(hhf), Bound::Packets),
        ("cebinae", Params::Cebinae(cebinae.clone()), Bound::Packets),
        (
            "cebinae pool",
            Params::Cebinae(cebinae::Params {
                pool: true,
                p: 3,
                ..cebinae
            }),
            Bound::Packets,
        ),
        ("prio", Params::Bands(bands.clone()), Bound::Packets),
        (
            "ets",
            Params::Bands(bands::Params {
                strict: Some(1),
                bands: Some(3),
                quanta: vec![3000],
                ..bands
            }),
            Bound::Packets,
        ),
        ("drr", Params::Drr(drr), Bound::Packets),
        ("htb", Params::Htb(tree()), Bound::Packets),
        ("cobalt", Params::Cobalt(cobalt.clone()), Bound::Packets),
        (
            "cobalt ecn",
            Params::Cobalt(cobalt::Params {
                ecn: true,
                ..cobalt
            }),
            Bound::Packets,
        ),
        ("cake", Params::Cake(cake.clone()), Bound::Memory(100_000)),
        (
            "cake shaping",
            Params::Cake(cake::Params {
                bandwidth: cake::Bandwidth::Shaped(Rate::from_mbit(20)),
                framing: Framing {
                    overhead: 44,
                    mpu: 84,
                    cells: Cells::Atm,
                },
                of_ip: true,
                ..cake.clone()
            }),
            Bound::Memory(100_000),
        ),
        (
            "cake ingress",
            Params::Cake(cake::Params {
                bandwidth: cake::Bandwidth::Shaped(Rate::from_mbit(20)),
                ingress: true,
                autorate_ingress: true,
                isolation: cake::Isolation::Flowblind,
                ..cake.clone()
            }),
            Bound::Memory(100_000),
        ),
        (
            "cake unlimited",
            Params::Cake(cake::Params {
                bandwidth: cake::Bandwidth::Unlimited,
                tins: cake::Tins::Diffserv8,
                ..cake
            }),
            Bound::Memory(100_000),
        ),
        (
            "fq_fifo",
            Params::FqFifo(fq_fifo::Params {
                limit: 12,
                ..fq_fifo::Params::default()
            }),
            // Six flows of large packets, each at the largest limit that a knob sets.
            Bound::Bytes(6 * 80 * 9000),
        ),
        (
            "fq_fifo, four buckets",
            Params::FqFifo(fq_fifo::Params {
                flows: 4,
                idle: 20 * MS,
                ..fq_fifo::Params::default()
            }),
            Bound::Bytes(4 * 100 * 9000),
        ),
    ]
}
