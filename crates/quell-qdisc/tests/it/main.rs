//! The crate's integration tests in one program: one program per file would take minutes to link.

mod bpf;
mod every;
mod knobs;
mod learn;
mod limits;
mod linux;
mod no_alloc;
mod outside;
mod policy;
mod properties;
mod record;
mod recorded;
mod recorded_control;
mod train;
