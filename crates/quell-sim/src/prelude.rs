//! What a simulation uses, with the prelude of quell-link: `use quell_sim::prelude::*`.

pub use quell_link::prelude::*;

pub use crate::scenario::{Overrides, Scenario};
pub use crate::{RunOptions, Session, Status, World};
