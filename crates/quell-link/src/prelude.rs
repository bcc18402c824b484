//! What the owner of a link uses, with the prelude of quell-qdisc: `use quell_link::prelude::*`.

pub use quell_qdisc::prelude::*;

pub use crate::bottleneck::{Params as LinkParams, Shaper};
pub use crate::queue::NoObserver;
pub use crate::record::Run;
pub use crate::server::Capacity;
pub use crate::trace::Trace;
pub use crate::{Bottleneck, Error, Queue};
