//! Building blocks of disciplines.

pub mod filter;
pub mod flows;
pub mod framing;
pub mod hash;
pub mod pie;
pub mod red;
pub mod ring;
pub mod tournament;
