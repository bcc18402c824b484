//! Every discipline, in the variants that take different paths, small enough that tests reach their limits.

#![allow(dead_code)] // each test that includes this uses a part of it

use quell_qdisc::control::lfq::{FEATURES, Lfq, policy};
use quell_qdisc::packet::TestPacket;
use quell_qdisc::policy::Affine;
use quell_qdisc::{
    MS, Qdisc, Rng, cake, cobalt, codel, dualpi2, fifo, fq, fq_codel, fq_pie, l4s, lfq, pie,
    pie_ns3, red,
};

/// How full a discipline may get.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    /// The packets that its gauge says.
    Packets,
    /// So many bytes.
    Bytes(u64),
    /// So many bytes of memory, as Linux counts it.
    Memory(u64),
}

/// How many kinds of discipline there are.
pub const KINDS: usize = 13;

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
        Qdisc::Lfq(_) => 10,
        Qdisc::PieNs3(_) => 11,
        Qdisc::L4s(_) => 12,
    }
}

/// Whether it may make packets wait.
pub fn shapes(q: &Qdisc<TestPacket>) -> bool {
    matches!(q, Qdisc::Cake(_))
}

/// Whether packets of one flow that differ in ECN wait in different queues, so that they may overtake each other.
pub fn parts_flows(q: &Qdisc<TestPacket>) -> bool {
    matches!(q, Qdisc::DualPi2(_) | Qdisc::L4s(_))
}

/// LFQ's controller with a network of random weights that gives about 20 packets.
fn network() -> Lfq {
    let mut rng = Rng::new(1, "network");
    let widths = [FEATURES, 8, 8, 8, 1];
    let mut layers: Vec<Affine> = widths
        .windows(2)
        .map(|w| {
            let mut draw = |n| (0..n).map(|_| (4.0 * rng.f64() - 2.0) as f32).collect();
            Affine {
                weight: draw(w[0] * w[1]),
                bias: draw(w[1]),
            }
        })
        .collect();
    layers[3].bias[0] += 20.0;
    let params = quell_qdisc::control::lfq::Params::default();
    let policy = policy(&params, &layers).expect("a network");
    Lfq::new(params, policy).expect("a controller")
}

/// Name, discipline, bound.
pub fn every() -> Vec<(&'static str, Qdisc<TestPacket>, Bound)> {
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
    let pie_ns3 = pie::Params {
        limit: 60,
        target: MS,
        tupdate: MS,
        ..pie::Params::ns3_2018()
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
    vec![
        (
            "pfifo",
            fifo::Fifo::new(fifo.clone()).into(),
            Bound::Packets,
        ),
        (
            "fifo, selective",
            fifo::Fifo::new(fifo::Params {
                selective: true,
                ..fifo.clone()
            })
            .into(),
            Bound::Packets,
        ),
        (
            "bfifo",
            fifo::Fifo::new(fifo::Params {
                limit_packets: u32::MAX,
                limit_bytes: 60_000,
                ..fifo.clone()
            })
            .into(),
            Bound::Bytes(60_000),
        ),
        (
            "fifo drop",
            fifo::Fifo::new(fifo::Params { drop: 0.2, ..fifo }).into(),
            Bound::Packets,
        ),
        ("codel", codel::Codel::new(codel).into(), Bound::Packets),
        (
            "codel ecn",
            codel::Codel::new(codel_ecn.clone()).into(),
            Bound::Packets,
        ),
        ("pie", pie::Pie::new(pie).into(), Bound::Packets),
        (
            "pie ecn",
            pie::Pie::new(pie_ecn.clone()).into(),
            Bound::Packets,
        ),
        (
            "pie ns3-2018",
            pie_ns3::PieNs3::new(pie_ns3).into(),
            Bound::Packets,
        ),
        ("fq", fq::Fq::new(fq).into(), Bound::Packets),
        (
            "fq_codel",
            fq_codel::FqCodel::new(fq_codel.clone()).into(),
            Bound::Packets,
        ),
        (
            "fq_codel ecn, two buckets",
            fq_codel::FqCodel::new(fq_codel::Params {
                flows: 2,
                memory_limit: 80_000,
                codel: codel_ecn,
                ..fq_codel
            })
            .into(),
            Bound::Packets,
        ),
        (
            "fq_pie",
            fq_pie::FqPie::new(fq_pie.clone()).into(),
            Bound::Packets,
        ),
        (
            "fq_pie ecn, two buckets",
            fq_pie::FqPie::new(fq_pie::Params {
                flows: 2,
                memory_limit: 80_000,
                pie: pie_ecn,
                ..fq_pie
            })
            .into(),
            Bound::Packets,
        ),
        (
            "dualpi2",
            dualpi2::DualPi2::new(dualpi2.clone()).into(),
            Bound::Packets,
        ),
        (
            "dualpi2 any_ect drop_enqueue",
            dualpi2::DualPi2::new(dualpi2::Params {
                classifier: dualpi2::Classifier::AnyEct,
                drop_enqueue: true,
                drop_on_overload: false,
                step_thresh: dualpi2::Step::Packets(5),
                ..dualpi2
            })
            .into(),
            Bound::Packets,
        ),
        ("l4s", l4s::L4s::new(l4s.clone()).into(), Bound::Packets),
        (
            "l4s one pair max_ecnth",
            l4s::L4s::new(l4s::Params {
                pairs: 1,
                max_ecnth: Some(0.1),
                ..l4s.clone()
            })
            .into(),
            Bound::Packets,
        ),
        (
            "l4s as_published",
            l4s::L4s::new(l4s.as_published()).into(),
            Bound::Packets,
        ),
        (
            "red",
            red::Red::new(red.clone()).into(),
            Bound::Bytes(40_000),
        ),
        (
            "red ecn gentle adaptive",
            red::Red::new(red::Params {
                ecn: true,
                gentle: true,
                adaptive: true,
                ..red
            })
            .into(),
            Bound::Bytes(40_000),
        ),
        (
            "cobalt",
            cobalt::Cobalt::new(cobalt.clone()).into(),
            Bound::Packets,
        ),
        (
            "cobalt ecn",
            cobalt::Cobalt::new(cobalt::Params {
                ecn: true,
                ..cobalt
            })
            .into(),
            Bound::Packets,
        ),
        (
            "cake",
            cake::Cake::new(cake.clone()).into(),
            Bound::Memory(100_000),
        ),
        (
            "cake shaping",
            cake::Cake::new(cake::Params {
                bandwidth: Some(20_000_000),
                overhead: Some(44),
                mpu: 84,
                ..cake
            })
            .into(),
            Bound::Memory(100_000),
        ),
        (
            "lfq limit",
            lfq::Lfq::new(
                lfq::Params {
                    limit: Some(12),
                    ..lfq::Params::default()
                },
                None,
            )
            .into(),
            // Six flows of large packets, none above the greatest limit that a knob sets.
            Bound::Bytes(6 * 80 * 9000),
        ),
        (
            "lfq",
            lfq::Lfq::new(
                lfq::Params {
                    flows: 4,
                    idle: 20 * MS,
                    ..lfq::Params::default()
                },
                Some(network()),
            )
            .into(),
            Bound::Bytes(4 * 1000 * 9000),
        ),
    ]
}
