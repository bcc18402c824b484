//! What disciplines are built from.

pub mod flows;
pub mod ring;
