//! Labels by which queues classify packets: hosts, DSCP, mark. They are kept per flow, so that
//! packets stay small; each queue that reads labels has a table of the flows' labels (in its
//! [`crate::trace::Trace`]).

use std::hash::Hasher;

use quell_qdisc::num;
use siphasher::sip::SipHasher13;

use crate::scenario::{Flow, FlowKind};

/// Key of a world's hashes.
pub(crate) fn key(seed: u64) -> (u64, u64) {
    (seed, seed ^ 0x05ee_d0ff_10e5)
}

/// Keyed hash of a far host; its name is "server" if the flow names none.
pub(crate) fn far_host(seed: u64, name: Option<&str>) -> u64 {
    let name = name.map_or_else(|| "server".to_owned(), |name| format!("host {name}"));
    u64::from(hash(key(seed), &name))
}

/// Keyed hash of a host's name, 32 bits.
pub(crate) fn hash(key: (u64, u64), name: &str) -> u32 {
    let mut hasher = SipHasher13::new_with_keys(key.0, key.1);
    hasher.write(name.as_bytes());
    num::low_u32(hasher.finish())
}

/// Source label of packets from the host of this name, and destination label of packets to it.
pub(crate) fn of_host(seed: u64, name: &str) -> [u32; 2] {
    [hash(key(seed), &format!("host {name}")); 2]
}

/// Source label of packets from the node of this name in a cell, and destination label of packets
/// to it.
pub(crate) fn of_node(seed: u64, name: &str) -> [u32; 2] {
    [hash(key(seed), &format!("node {name}")); 2]
}

/// Whether a flow's packets are ECN-capable.
pub(crate) fn capable(flow: &Flow) -> bool {
    match &flow.kind {
        FlowKind::Web(web) => web.tcp.ecn,
        FlowKind::Cbr(cbr) => cbr.ecn,
        FlowKind::Poisson(poisson) => poisson.ecn,
        FlowKind::OnOff(onoff) => onoff.ecn,
        kind => kind.tcp().is_some_and(|tcp| tcp.ecn),
    }
}
