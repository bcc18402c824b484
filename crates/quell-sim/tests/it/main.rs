//! The crate's integration tests in one program: one program per file would take minutes to link.

mod background;
mod bbr3;
mod behaviour;
mod cell;
mod congestion;
mod controls;
mod coupling;
mod determinism;
mod goodput;
mod guard;
mod linux;
mod no_alloc;
mod theory_tests;
mod wifi_tests;

// Parts of the example that `make fidelity` runs.
#[path = "../../examples/fidelity/cake.rs"]
mod cake;
#[path = "../../examples/fidelity/grid.rs"]
#[allow(dead_code, reason = "the example uses the rest")]
mod grid;
#[path = "../../examples/fidelity/l4s.rs"]
mod l4s;
#[path = "../../examples/fidelity/lfq.rs"]
mod lfq;
#[path = "../../examples/fidelity/ns3.rs"]
mod ns3;
#[path = "../../examples/fidelity/theory.rs"]
#[allow(dead_code, reason = "the example uses the rest")]
mod theory;
#[path = "../../examples/fidelity/wifi.rs"]
#[allow(dead_code, reason = "the example uses the rest")]
mod wifi;
