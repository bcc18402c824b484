//! A discipline, a controller and a congestion control of one's own; `docs/how-to/extending.md`
//! walks through them.

pub mod congestion;
pub mod controller;
pub mod discipline;
