//! The network around the queue: events, links, TCP, applications, scenarios, probes.

pub mod agenda;
mod capture;
pub mod cc;
pub mod env;
pub mod learnqueue;
pub mod lfq;
pub mod packet;
pub mod pcap;
pub mod pipe;
pub mod probe;
pub mod run;
pub mod scenario;
pub mod tcp;
pub mod wifi;
pub mod world;

mod build;
mod measure;
mod net;
mod port;
mod slot;

pub use run::{RunOptions, run, run_controlled};
pub use world::{Status, World};
