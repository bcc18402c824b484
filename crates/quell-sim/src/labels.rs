//! What packets' headers say beside their flow: hosts, DSCP, mark. Flows have it, not packets,
//! which are to be small; each queue that sorts by it has a table of the flows that pass (in its
//! [`crate::trace::Trace`]).

use std::hash::Hasher;

use quell_qdisc::num;
use siphasher::sip::SipHasher13;

use crate::scenario::{Flow, FlowKind};

/// The key of a world's hashes.
pub(crate) fn key(seed: u64) -> (u64, u64) {
    (seed, seed ^ 0x05ee_d0ff_10e5)
}

/// The name of a host at the other end.
pub(crate) fn far_host(seed: u64, name: Option<&str>) -> u64 {
    let name = name.map_or_else(|| "server".to_owned(), |name| format!("host {name}"));
    u64::from(hash(key(seed), &name))
}

/// Keyed hash of a host.
pub(crate) fn hash(key: (u64, u64), name: &str) -> u32 {
    let mut hasher = SipHasher13::new_with_keys(key.0, key.1);
    hasher.write(name.as_bytes());
    num::low_u32(hasher.finish())
}

/// The labels of the packets of a host of this name, from it and to it.
pub(crate) fn of_host(seed: u64, name: &str) -> [u32; 2] {
    [hash(key(seed), &format!("host {name}")); 2]
}

/// The same of a node of a cell.
pub(crate) fn of_node(seed: u64, name: &str) -> [u32; 2] {
    [hash(key(seed), &format!("node {name}")); 2]
}

/// Are its packets ECN-capable?
pub(crate) fn capable(flow: &Flow) -> bool {
    match &flow.kind {
        FlowKind::Web(web) => web.tcp.ecn,
        FlowKind::Cbr(cbr) => cbr.ecn,
        FlowKind::Poisson(poisson) => poisson.ecn,
        FlowKind::OnOff(onoff) => onoff.ecn,
        kind => kind.tcp().is_some_and(|tcp| tcp.ecn),
    }
}
