#![doc = include_str!("../README.md")]

mod agenda;
mod capture;
pub mod cc;
mod cpu;
pub mod packet;
mod pcap;
mod pipe;
pub mod run;
pub mod scenario;
pub mod tcp;
mod wifi;
pub mod world;

mod app;
mod delay;
mod labels;
mod measure;
mod net;
mod path;
mod port;
mod slot;
pub mod stamps;
mod trace;

pub use app::call::heard;
pub use run::{RunOptions, Session, run};
pub use world::{Status, World};
