//! Shared parts of the option tables: ranges, meanings and short forms of a row.

use quell_qdisc::time::Duration;

use super::{Field, Opt};

/// The largest number of packets, flows or buckets that an option takes.
pub(super) const MAX_COUNT: u32 = 1_000_000_000;
/// Largest limit in bytes.
pub(super) const MAX_BYTES: u64 = 1 << 40;
/// Longest target or interval.
pub(super) const MAX_TIME: Duration = Duration::from_secs(10);
/// Largest quantum, bytes.
pub(super) const QUANTUM: u32 = 1 << 20;

/// The flag that selects the classifier of the L4S queue, for parameters with a `Classifier` at
/// this path.
macro_rules! any_ect {
    ($($at:ident).+) => {
        Field::Switch {
            off: "l4s_ect",
            set: |p, on| {
                p.$($at).+ = match on {
                    true => Classifier::AnyEct,
                    false => Classifier::L4sEct,
                }
            },
            get: |p| p.$($at).+ == Classifier::AnyEct,
        }
    };
}

/// A preset that sets several options. The canonical words name these instead of the preset.
macro_rules! as_published {
    () => {
        Field::Switch {
            off: "",
            set: |p, _| *p = p.clone().as_published(),
            get: |_| false,
        }
    };
}

/// A row of a kind's options.
pub(super) const fn opt<T>(name: &'static str, field: Field<T>, meaning: &'static str) -> Opt<T> {
    Opt::new(name, field, meaning)
}

pub(super) const LIMIT: &str = "packets it holds";
pub(super) const LIMIT_ALL: &str = "packets in the whole queue";
pub(super) const FLOWS: &str = "flows that it can distinguish";
pub(super) const MEMORY: &str = "bytes in the whole queue";
pub(super) const QUANTUM_MEANS: &str = "bytes of each flow per round";
pub(super) const INTERVAL: &str =
    "time for which the delay may exceed target: a worst-case round trip";
pub(super) const TUPDATE: &str = "time between updates of the probability";
pub(super) const ALPHA: &str = "weight of the distance from target, in sixteenths";
pub(super) const BETA: &str = "weight of the change of delay, in sixteenths";
pub(super) const PIE_ECN: &str =
    "mark instead of dropping while the probability is at most ecn_prob";
pub(super) const ECN_PROB: &str = "largest probability at which ecn marks, percent";
pub(super) const BYTEMODE: &str = "scale the probability by packet size";
pub(super) const ESTIMATOR: &str =
    "delay from queue length and estimated rate instead of timestamps";
pub(super) const PERIOD: &str = "time between decisions";
pub(super) const ECN: &str = "mark ECN-capable packets instead of dropping them";
pub(super) const TARGET: &str = "delay to hold";
pub(super) const CE_THRESHOLD: &str = "mark every ECN-capable packet that waited longer";

pub(super) use {any_ect, as_published};
