//! The network around the queue: events, links, TCP, applications, scenarios, probes.

pub mod cc;
pub mod pcap;
pub mod scenario;
