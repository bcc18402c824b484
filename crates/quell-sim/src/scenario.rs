//! The definition of a scenario: read from TOML, checked, with defaults filled in.
//!
//! A file becomes a tree ([`Table`]); the tree with overrides is a [`Source`]; checked key by key
//! against the tables in `keys`, it becomes a [`Scenario`] of plain values.

mod built_in;
mod catalogue;
mod cell;
mod key;
mod keys;
mod model;
mod overrides;
mod read;
mod schema;
mod source;
mod syntax;
mod toml;
mod traffic;
mod tree;
pub mod wifi;
mod write;

#[cfg(test)]
mod cell_tests;
#[cfg(test)]
mod tests;

use std::path::Path;

pub use quell_link::bottleneck::Shaper;
pub use quell_link::server::Capacity;
pub use quell_link::trace::Trace;
use quell_link::{Error, file};

pub use crate::cc::Cc;
pub use built_in::{BuiltIn, scenarios};
pub use catalogue::{KeyInfo, TableInfo, catalogue};
pub use model::{Direction, Flow, Link, MODEM_BUFFER, Scenario};
pub use overrides::Overrides;
pub use schema::json_schema;
pub use source::Source;
pub use traffic::{
    Adaptation, Call, Cbr, Codec, FlowKind, Game, OnOff, Page, Ping, Poisson, Size, Tcp, Video,
    VideoCall, Web,
};
pub use tree::{Node, Table};

impl Scenario {
    /// Reads a scenario's text. `path` appears in errors, and traces are looked up in its folder.
    ///
    /// # Errors
    /// If it is not TOML, a key or a value is wrong, or a file that it names cannot be read.
    pub fn parse(text: &str, path: &str, overrides: &Overrides) -> Result<Self, Error> {
        Source::parse(text, path)?.with(overrides)?.read()
    }

    /// Reads the scenario that a user named, with overrides: see [`Source::load`].
    ///
    /// # Errors
    /// If there is no such scenario, it cannot be read, or a key or a value is wrong.
    pub fn load(name: Option<&str>, overrides: &Overrides) -> Result<Self, Error> {
        Source::load(name, overrides)?.read()
    }

    /// The scenario as a file with all defaults written out, which reads back to the same scenario.
    /// Traces keep the path they were read from. A congestion control from outside
    /// ([`Cc::outside`]) is written as its name, which cannot be read back.
    pub fn to_toml(&self) -> String {
        toml::write(&write::scenario(self))
    }

    /// Total number of flows of all tables.
    pub fn flow_count(&self) -> u32 {
        self.flows.iter().map(|f| f.count).sum()
    }

    /// The seed of run `k` (from 0): see [`run_seed`].
    pub fn run_seed(&self, k: u32) -> u64 {
        run_seed(self.seed, k)
    }
}

/// The seed of run `k` (from 0) of a scenario with `seed`. Run 0 uses `seed` itself, so any
/// recorded run can be repeated alone by giving its seed. The other runs' seeds are computed by
/// SplitMix64 and cut to 53 bits, which JSON readers represent exactly.
pub fn run_seed(seed: u64, k: u32) -> u64 {
    if k == 0 {
        return seed;
    }
    let mut z = seed.wrapping_add(u64::from(k).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) >> 11
}

impl Source {
    /// Loads what a user named: a file, or else a built-in scenario. Without a name, the overrides
    /// alone make the scenario if they have a rate or a trace; otherwise it is the built-in `home`,
    /// even if there is a file of that name.
    ///
    /// # Errors
    /// If there is no such scenario, it cannot be read, or a key or a value is wrong.
    pub fn load(name: Option<&str>, overrides: &Overrides) -> Result<Self, Error> {
        let bare = overrides.rate.is_some() || overrides.trace.is_some();
        let source = match name {
            None if bare => Self::parse("", "")?,
            None => Self::built_in("home")?,
            Some(name) => Self::find(name)?,
        };
        source.with(overrides)
    }

    fn find(name: &str) -> Result<Self, Error> {
        let path = Path::new(name);
        // A folder is not a scenario: with a folder named `home`, the name still means the
        // built-in.
        if !path.exists() || (path.is_dir() && built_in::find(name).is_some()) {
            return Self::built_in(name);
        }
        let fail = |what: String| Error::new(what).at(name, None);
        let bytes = file::read(path, file::SCENARIO).map_err(|e| {
            fail(format!("cannot be read: {e}"))
                .remedy("name a scenario file or a built-in scenario")
        })?;
        let text = String::from_utf8(bytes).map_err(|e| {
            let good = &e.as_bytes()[..e.utf8_error().valid_up_to()];
            let line = 1 + good.iter().filter(|b| **b == b'\n').count();
            Error::new("not UTF-8 text")
                .remedy("save the file as UTF-8")
                .at(name, Some(line))
        })?;
        Self::parse(&text, name)
    }

    fn built_in(name: &str) -> Result<Self, Error> {
        match built_in::find(name) {
            Some(built_in) => Self::parse(built_in.toml, ""),
            None if name.contains(['/', '.']) => {
                let names: Vec<&str> = scenarios().iter().map(|s| s.name).collect();
                let remedy = format!(
                    "name a scenario file or a built-in scenario: {}",
                    names.join(", ")
                );
                Err(Error::new("no such file").remedy(remedy).at(name, None))
            }
            None => Err(Error::unknown(
                "scenario file or built-in scenario",
                name,
                scenarios().iter().map(|s| s.name),
            )),
        }
    }
}
