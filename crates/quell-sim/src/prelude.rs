//! The types that a program needs to run a simulation, and the prelude of quell-link:
//! `use quell_sim::prelude::*`.

pub use quell_link::prelude::*;

pub use crate::scenario::{Overrides, Scenario};
pub use crate::{RunOptions, Session, Status, World};
