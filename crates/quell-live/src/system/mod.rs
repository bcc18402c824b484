//! System calls, and what all commands share: privileges, state files, signals, the terminal, the
//! watchdog.

pub mod bounded_writer;
pub mod command;
pub mod frame;
pub mod host;
pub mod messages;
pub mod notice;
pub mod sandbox;
pub mod state;
pub mod sys;
pub mod systemd;
pub mod watchdog;
