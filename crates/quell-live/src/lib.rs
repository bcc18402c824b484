#![doc = include_str!("../README.md")]
// Integers are converted by `From`, `try_from` or a function of `quell_qdisc::num`, whose name says
// what happens to a value that does not fit.
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

pub mod exposition;
pub mod options;
mod packet;
mod plane;

pub use packet::{echo, header, large, pool, segment};
pub use plane::{link, nfqueue, report, talkers};

#[cfg(target_os = "linux")]
pub mod attach;
#[cfg(target_os = "linux")]
mod attached;
#[cfg(target_os = "linux")]
mod bpf;
#[cfg(target_os = "linux")]
pub mod firewall;
#[cfg(target_os = "linux")]
pub mod live;
#[cfg(target_os = "linux")]
mod rtnetlink;
#[cfg(target_os = "linux")]
mod serve;
#[cfg(target_os = "linux")]
pub mod shell;
#[cfg(target_os = "linux")]
pub mod steer;
#[cfg(target_os = "linux")]
mod system;
#[cfg(target_os = "linux")]
pub mod watch;
#[cfg(target_os = "linux")]
pub use live::rules;
#[cfg(target_os = "linux")]
pub use system::host::{boot, reset_signals};
#[cfg(target_os = "linux")]
pub use system::state;
