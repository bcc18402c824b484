#![doc = include_str!("../README.md")]

pub mod agenda;
mod capture;
pub mod cc;
pub mod packet;
pub mod pcap;
pub mod pipe;
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
mod trace;

pub use run::{RunOptions, Session, run};
pub use world::{Status, World};
