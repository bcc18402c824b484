//! What the owner of a queue, a discipline or a controller uses: `use quell_qdisc::prelude::*`.

pub use crate::control::{Control, SubQueue};
pub use crate::rate::Rate;
pub use crate::time::{Duration, Instant, MS, NEVER, SEC, US};
pub use crate::{
    Backlog, ControlledKnobs, Dequeued, Discipline, DropCause, Drops, Ecn, Gauges, KnobSet, Knobs,
    Packet, Qdisc, Rng,
};
