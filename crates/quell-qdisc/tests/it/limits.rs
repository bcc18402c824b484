//! The smallest and the largest value of each parameter that `check` accepts, and the adjacent
//! values, which it refuses.

// The macro changes one field of the defaults at a time.
#![allow(clippy::field_reassign_with_default)]

use quell_qdisc::control::{
    a3c, cake_autorate, fixed, learnqueue, lfq, pace, rlaqm, sqm_autorate, wqm,
};
use quell_qdisc::disciplines::{bands, cake, choke, drr, fifo, fq_fifo, htb, pie_ns3};
use quell_qdisc::parts::filter::Filter;
use quell_qdisc::parts::framing::Framing;
use quell_qdisc::rate::Rate;
use quell_qdisc::time::{Duration, MS, SEC, US};
use quell_qdisc::{
    cebinae, cobalt, codel, dualpi2, fq, fq_codel, fq_pie, hhf, hush, l4s, pie, red, sfb, sfq,
};

/// The defaults with one field changed: accepted with each value of the first list, refused with
/// each of the second.
macro_rules! limits {
    ($default:expr, $($field:ident: [$($good:expr),*] not [$($bad:expr),*];)+) => {$(
        $({
            let mut params = $default;
            params.$field = $good;
            assert_eq!(params.check(), Ok(()), "{} {:?}", stringify!($field), params.$field);
        })*
        $({
            let mut params = $default;
            params.$field = $bad;
            assert!(params.check().is_err(), "{} {:?}", stringify!($field), params.$field);
        })*
    )+};
}

/// The next larger float.
fn above(x: f64) -> f64 {
    x.next_up()
}

fn framing(mpu: u32) -> Framing {
    Framing {
        mpu,
        ..Framing::default()
    }
}

#[test]
fn single_queues() {
    limits! { fifo::Params::default(),
        limit_packets: [1] not [0];
        limit_bytes: [1514] not [1513];
        drop: [0.0, 1.0] not [-0.1, above(1.0)];
    }
    limits! { codel::Params::default(),
        interval: [US, 10 * SEC] not [US - Duration::from_nanos(1), 10 * SEC + Duration::from_nanos(1)];
        target: [Duration::ZERO, 10 * SEC] not [10 * SEC + Duration::from_nanos(1)];
        limit: [1] not [0];
    }
    limits! { cobalt::Params::default(),
        interval: [US, 4 * SEC] not [US - Duration::from_nanos(1), 4 * SEC + Duration::from_nanos(1)];
        target: [4 * SEC] not [4 * SEC + Duration::from_nanos(1)];
        limit: [1] not [0];
    }
    limits! { pie::Params::default(),
        target: [10 * SEC] not [10 * SEC + Duration::from_nanos(1)];
        tupdate: [MS, 10 * SEC] not [MS - Duration::from_nanos(1), 10 * SEC + Duration::from_nanos(1)];
        limit: [1] not [0];
        alpha: [32] not [33];
        beta: [32] not [33];
        ecn_prob: [100] not [101];
    }
    limits! { pie_ns3::Params::default(),
        target: [10 * SEC] not [10 * SEC + Duration::from_nanos(1)];
        tupdate: [MS, 10 * SEC] not [MS - Duration::from_nanos(1), 10 * SEC + Duration::from_nanos(1)];
        limit: [1] not [0];
        alpha: [32] not [33];
        beta: [32] not [33];
    }
    limits! { dualpi2::Params::default(),
        limit: [1] not [0];
        target: [10 * SEC] not [10 * SEC + Duration::from_nanos(1)];
        tupdate: [US, 10 * SEC] not [US - Duration::from_nanos(1), 10 * SEC + Duration::from_nanos(1)];
        alpha: [0.0, 4e6] not [-0.1, above(4e6)];
        beta: [0.0, 4e6] not [-0.1, above(4e6)];
        coupling_factor: [1, 255] not [0, 256];
        classic_protection: [100] not [101];
    }
    let usual = red::Params::default();
    limits! { red::Params::default(),
        avpkt: [] not [0];
        bandwidth: [Rate::from_bps(8)] not [Rate::from_bps(7)];
        min: [] not [0, usual.max];
        max: [] not [usual.min];
        limit: [usual.max] not [usual.max - 1];
        probability: [1.0] not [0.0, above(1.0), f64::NAN];
        nodrop: [] not [true];
    }
    let ecn = red::Params {
        ecn: true,
        nodrop: true,
        ..usual
    };
    assert_eq!(ecn.check(), Ok(()));
    let longest = u64::from(u32::MAX);
    limits! { red::Params { limit: 1 << 33, ..red::Params::default() },
        max: [longest] not [longest + 1];
    }
    // An average packet is 1000 bytes, so that the burst has to be at least min.
    let usual = choke::Params::of_limit(100, Rate::from_mbit(10));
    limits! { usual.clone(),
        avpkt: [1] not [0];
        bandwidth: [Rate::from_bps(8)] not [Rate::from_bps(7)];
        limit: [choke::LONGEST, usual.max] not [choke::LONGEST + 1, usual.max - 1];
        min: [1, usual.burst] not [0, usual.burst + 1, usual.max];
        max: [usual.min + 1, usual.limit] not [usual.min, usual.limit + 1];
        burst: [usual.min] not [usual.min - 1];
        probability: [1.0] not [0.0, above(1.0)];
    }
    let wide = choke::Params {
        burst: 100,
        ..usual.clone()
    };
    limits! { wide.clone(),
        min: [usual.max - 1] not [usual.max];
    }
}

#[test]
fn queues_with_classes() {
    // 16 bands of equal weight, or 255 classes of drr.
    let ets = |bands| bands::Params {
        bands: Some(bands),
        ..bands::Params::ets()
    };
    let drr = bands::Params {
        drr: true,
        ..ets(255)
    };
    limits! { ets(3),
        bands: [Some(16), Some(1), None] not [Some(17), Some(0)];
        strict: [Some(3)] not [Some(4)];
        quanta: [vec![1; 3]] not [vec![1; 4], vec![1, 0]];
        priomap: [[Some(2); bands::PRIORITIES]] not [[Some(3); bands::PRIORITIES]];
    }
    limits! { drr.clone(),
        quanta: [vec![1; 255]] not [vec![1; 256]];
    }
    let more = bands::Params {
        bands: None,
        quanta: vec![1; 256],
        ..drr
    };
    assert!(more.check().is_err());
    let class = |minor: u32, rate| htb::Class {
        id: 1 << 16 | minor,
        parent: None,
        rate: Rate::from_bps(rate),
        ceil: None,
        burst: None,
        cburst: None,
        prio: 0,
        quantum: None,
        filter: Filter::default(),
        queue: None,
    };
    let flat = |n| (1..=n).map(|minor| class(minor, 8)).collect::<Vec<_>>();
    let with = |class| vec![class];
    let other = htb::Class {
        id: 2 << 16 | 1,
        ..class(1, 8)
    };
    let ceil = |ceil| htb::Class {
        ceil: Some(Rate::from_bps(ceil)),
        ..class(1, 8)
    };
    limits! { htb::Params::default(),
        r2q: [1] not [0];
        classes: [flat(128), with(class(1, 8)), with(ceil(8))]
            not [flat(129), with(class(1, 7)), with(ceil(7)), with(class(0, 8)), vec![class(1, 8), other.clone()]];
    }
}

#[test]
fn queues_with_flows() {
    limits! { fq_codel::Params::default(),
        limit: [1] not [0];
        flows: [1, 65_536] not [0, 65_537];
        quantum: [256, 1 << 20] not [255, (1 << 20) + 1];
        memory_limit: [1 << 31] not [(1 << 31) + 1];
        drop_batch: [1] not [0];
        codel: [] not [codel::Params { limit: 0, ..Default::default() }];
    }
    limits! { fq_pie::Params::default(),
        limit: [1] not [0];
        flows: [1, 65_536] not [0, 65_537];
        quantum: [1, 1 << 20] not [0, (1 << 20) + 1];
        memory_limit: [1 << 31] not [(1 << 31) + 1];
        pie: [] not [pie::Params { limit: 0, ..Default::default() }];
    }
    limits! { hush::Params::default(),
        limit: [1] not [0];
        flows: [1, 65_536] not [0, 65_537];
        quantum: [256, 1 << 20] not [255, (1 << 20) + 1];
        memory_limit: [1 << 31] not [(1 << 31) + 1];
    }
    limits! { fq::Params::default(),
        quantum: [1, 1 << 20] not [0, (1 << 20) + 1];
        flow_limit: [65_535] not [65_536];
        initial_quantum: [i32::MAX as u32] not [1 << 31];
        flows: [1, 65_536] not [0, 3, 131_072];
    }
    limits! { drr::Params::default(),
        classes: [1, 65_536] not [0, 65_537];
        quantum: [1, 1 << 20] not [0, (1 << 20) + 1];
    }
    limits! { fq_fifo::Params::default(),
        flows: [1] not [0];
        quantum: [1, 1 << 20] not [0, (1 << 20) + 1];
        limit: [1] not [0];
    }
    limits! { sfq::Params::default(),
        divisor: [1, 65_536] not [0, 3, 131_072];
        quantum: [1 << 20] not [(1 << 20) + 1];
        flows: [] not [0];
        depth: [] not [0];
        limit: [Some(2)] not [Some(1)];
    }
    let usual = sfq::Red {
        min: 8000,
        max: 60_000,
        avpkt: 1000,
        burst: 20,
        probability: 0.02,
        ecn: false,
        harddrop: false,
    };
    let red = |change: fn(&mut sfq::Red)| {
        let mut red = usual.clone();
        change(&mut red);
        Some(red)
    };
    limits! { sfq::Params::default(),
        red: [
            red(|r| r.max = 8001), red(|r| r.max = u32::MAX.into()),
            red(|r| r.probability = 1.0), red(|r| r.burst = 8)
        ] not [
            red(|r| r.min = 0), red(|r| r.max = 8000), red(|r| r.max = 1 << 32), red(|r| r.avpkt = 0),
            red(|r| r.probability = 0.0), red(|r| r.probability = 1.1), red(|r| r.burst = 7)
        ];
    }
    limits! { hhf::Params::default(),
        limit: [1] not [0];
        quantum: [1] not [0, i32::MAX as u32];
        non_hh_weight: [1] not [0];
    }
    let heavy = hhf::Params {
        quantum: i32::MAX as u32,
        non_hh_weight: 1,
        ..Default::default()
    };
    assert_eq!(heavy.check(), Ok(()));
    limits! { sfb::Params::default(),
        limit: [1] not [0];
        max: [1] not [0];
        target: [1] not [0];
        increment: [0.0, 1.0] not [-0.1, above(1.0)];
        decrement: [0.0, 1.0] not [-0.1, above(1.0)];
    }
    limits! { l4s::Params::default(),
        pairs: [1, 1024] not [0, 1025];
        limit: [1] not [0];
        quantum: [1, 1 << 20] not [0, (1 << 20) + 1];
        target: [10 * SEC] not [10 * SEC + Duration::from_nanos(1)];
        max_burst: [10 * SEC] not [10 * SEC + Duration::from_nanos(1)];
        tupdate: [US, 10 * SEC] not [US - Duration::from_nanos(1), 10 * SEC + Duration::from_nanos(1)];
        alpha: [0.0, 7.0] not [-0.1, above(7.0)];
        beta: [0.0, 7.0] not [-0.1, above(7.0)];
        coupling_factor: [1, 255] not [0, 256];
        max_ecnth: [Some(0.0), Some(1.0)] not [Some(-0.1), Some(above(1.0))];
    }
    let usual = cebinae::Params::default();
    limits! { cebinae::Params::default(),
        limit: [2] not [1];
        rate: [Rate::from_bps(1)] not [Rate::ZERO];
        p: [1] not [0];
        dt: [cebinae::Params::LONGEST] not [cebinae::Params::LONGEST + Duration::from_nanos(1), cebinae::Params::SHORTEST - Duration::from_nanos(1)];
        l: [usual.dt - usual.vdt - Duration::from_nanos(1)] not [usual.dt - usual.vdt];
        vdt: [Duration::from_nanos(1)] not [Duration::ZERO];
        tau: [0.0, 1.0] not [-0.1, above(1.0)];
        delta_port: [0.0, 1.0] not [-0.1, above(1.0)];
        delta_flow: [0.0, 1.0] not [-0.1, above(1.0)];
    }
    let shaped = |bps| cake::Bandwidth::Shaped(Rate::from_bps(bps));
    limits! { cake::Params::default(),
        bandwidth: [shaped(512)] not [shaped(511)];
        rtt: [US] not [US - Duration::from_nanos(1), 4296 * SEC];
        target: [Some(Duration::ZERO)] not [Some(4296 * SEC)];
        memory_limit: [u64::from(u32::MAX)] not [1 << 32];
        framing: [framing(256)] not [framing(257)];
    }
}

#[test]
fn controllers() {
    limits! { a3c::Params::default(),
        period: [US, 10 * SEC] not [US - Duration::from_nanos(1), 10 * SEC + Duration::from_nanos(1)];
    }
    limits! { rlaqm::Params::default(),
        period: [US, 10 * SEC] not [US - Duration::from_nanos(1), 10 * SEC + Duration::from_nanos(1)];
        limit: [1] not [0];
        epsilon: [0.0, 1.0] not [-0.1, above(1.0)];
    }
    limits! { lfq::Params::default(),
        every: [1] not [0];
    }
    limits! { fixed::Params::default(),
        limit: [Some(1), None] not [Some(0)];
        drop: [Some(0.0), Some(1.0), None] not [Some(-0.1), Some(above(1.0))];
    }
    limits! { pace::Params::default(),
        start: [Some(Rate::from_kbit(100)), None] not [Some(Rate::from_bps(99_999)), Some(Rate::ZERO)];
        drain: [Some(MS)] not [Some(MS - Duration::from_nanos(1))];
    }
    limits! { sqm_autorate::Params::default(),
        base: [Rate::from_kbit(10)] not [Rate::from_bps(9_999)];
        min: [1, 80] not [0, 81];
    }
    let usual = cake_autorate::Params::default();
    limits! { cake_autorate::Params::default(),
        min: [usual.base] not [usual.max];
        max: [usual.base] not [usual.min];
        up: [usual.delay] not [usual.delay + Duration::from_nanos(1)];
        down: [usual.delay] not [usual.delay - Duration::from_nanos(1)];
    }
    let usual = wqm::Params::default();
    limits! { wqm::Params::default(),
        interval: [US, 10 * SEC] not [US - Duration::from_nanos(1), 10 * SEC + Duration::from_nanos(1)];
        target: [10 * SEC] not [10 * SEC + Duration::from_nanos(1)];
        arrt: [10 * SEC] not [10 * SEC + Duration::from_nanos(1)];
        low: [Some(usual.target)] not [Some(usual.target + Duration::from_nanos(1))];
        packet_bytes: [1, 65_535] not [0, 65_536];
        ampdu: [] not [0];
        alarms: [1] not [0];
        contenders: [Some(1)] not [Some(0)];
        step: [Some(1)] not [Some(0)];
        min: [Some(1), Some(usual.max)] not [Some(0), Some(usual.max + 1)];
        weight: [1.0] not [0.0, above(1.0)];
        efficiency: [1.0] not [0.0, above(1.0)];
        least_share: [1.0] not [0.0, above(1.0)];
        restart: [above(1.0), 1e6] not [1.0, above(1e6)];
    }
    let usual = learnqueue::Params::default();
    limits! { learnqueue::Params::default(),
        period: [US, 10 * SEC] not [US - Duration::from_nanos(1), 10 * SEC + Duration::from_nanos(1)];
        target: [10 * SEC] not [10 * SEC + Duration::from_nanos(1)];
        max_size: [2, 65_536] not [1, 65_537];
        initial: [1, usual.max_size] not [0, usual.max_size + 1];
        delta: [0.0, 1000.0] not [-0.1, above(1000.0)];
        eta: [0.0, 1000.0] not [-0.1, above(1000.0)];
        packet_bytes: [1, 65_535] not [0, 65_536];
        basic_rate: [Rate::from_kbit(1)] not [Rate::from_bps(999)];
        alpha: [Some(1.0)] not [Some(0.0), Some(above(1.0))];
        alpha_min: [0.0, 1.0] not [-0.1, above(1.0)];
        step: [1.0, 2.0] not [0.9, above(2.0)];
        decay: [0.0, 1.0] not [-0.1, above(1.0)];
        epsilon: [0.0, 1.0] not [-0.1, above(1.0)];
        epsilon_min: [0.0, 1.0] not [-0.1, above(1.0)];
        gamma: [0.0, 1.0] not [-0.1, above(1.0)];
        gamma_max: [0.0, 1.0] not [-0.1, above(1.0)];
    }
}
