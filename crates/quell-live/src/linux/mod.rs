//! Linux: devices, namespaces, the loop. Every `unsafe` says what makes it sound.

mod address;
mod af_packet;
mod af_xdp;
mod backend;
mod command;
mod device;
mod engine;
pub mod firewall;
mod host;
mod init;
pub mod live;
mod nftables;
mod notice;
mod pace;
pub mod rules;
mod running;
mod sandbox;
mod serve;
mod settings;
pub mod shell;
mod sys;
mod systemd;
mod upkeep;
pub mod watch;
mod watchdog;
mod worker;
