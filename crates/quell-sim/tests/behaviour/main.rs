//! What a scenario promises beyond one TCP bottleneck, each promise beside a number from first principles.

mod applications;
mod common;
mod transfers;
