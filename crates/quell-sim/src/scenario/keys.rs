//! All keys of a scenario file, each defined once. These tables serve to read and write files, to
//! generate documents and schemas, and to suggest the right name for a misspelt key.

mod class;
mod file;
mod flow;
mod link;
mod node;
mod steps;
mod traffic;
mod wifi;

use quell_link::Error;
use quell_qdisc::time::Duration;

use super::key::{Keys, Names, Row};
use super::traffic::FlowKind;
use super::tree::Table;

pub(super) use class::{CLASS, SIDE};
pub(super) use file::FILE;
pub(super) use flow::{BETWEEN, Between, FLOW, MAX_FLOWS, WAY, Way, not_in_a_cell};
pub(super) use link::{CELL_QUEUE, LINK, check_queue};
pub(super) use node::{MEMBER, Member, RADIO};
pub(super) use traffic::{KINDS, Kind, walk};
pub(super) use wifi::{AIR, MAX_NODES, MEMBERS, Members, NOISE, ROUTES};

/// Longest simulated time: 2^47 ns, 39 hours.
pub(super) const MAX_DURATION: Duration = Duration::from_nanos(1 << 47);

/// Maximum length of the name of a scenario, flow, host or node, characters: that of a file's name,
/// which is the scenario's default name.
const MAX_NAME_CHARS: usize = 256;

/// Refuses a name that is too long for reports and records.
fn check_length(name: &str) -> Result<(), Error> {
    match name.chars().nth(MAX_NAME_CHARS) {
        None => Ok(()),
        Some(_) => {
            let what = format!("this name has more than {MAX_NAME_CHARS} characters");
            Err(Error::new(what).remedy("write a shorter one"))
        }
    }
}

/// A table of a scenario file.
pub(super) struct TableKeys {
    /// Path: `link.up`; empty for the file itself.
    pub name: &'static str,
    /// Name in errors.
    pub header: &'static str,
    pub about: &'static str,
    pub sections: &'static [&'static dyn Keys],
    /// Names of the tables in it.
    pub tables: &'static [&'static str],
}

/// All tables. `[[flow]]` has only the keys that do not depend on the kind.
pub(super) static TABLES: [TableKeys; 9] = [
    TableKeys {
        name: "",
        header: "a scenario",
        about: "what to simulate",
        sections: &[&FILE],
        tables: &["link", "class", "hop", "wifi", "flow"],
    },
    TableKeys {
        name: "link",
        header: "[link]",
        about: "the bottleneck",
        sections: &[&LINK],
        tables: &["up"],
    },
    TableKeys {
        name: "link.up",
        header: "[link.up]",
        about: "the other direction; it takes from `[link]` what it does not have",
        sections: &[&LINK],
        tables: &[],
    },
    TableKeys {
        name: "class",
        header: "a [[class]]",
        about: "a class of the link's queue, `htb`, `prio`, `ets` or `drr`",
        sections: &[&CLASS, &SIDE],
        tables: &[],
    },
    TableKeys {
        name: "hop",
        header: "[[hop]]",
        about: "a further queue behind the bottleneck; it takes nothing from `[link]`",
        sections: &[&LINK],
        tables: &[],
    },
    TableKeys {
        name: "wifi",
        header: "[wifi]",
        about: "an 802.11n cell in place of `[link]`",
        sections: &[&MEMBERS, &ROUTES, &CELL_QUEUE, &RADIO, &AIR],
        tables: &["noise", "node"],
    },
    TableKeys {
        name: "wifi.noise",
        header: "[wifi.noise]",
        about: "bursts of noise (Gilbert-Elliott)",
        sections: &[&NOISE],
        tables: &[],
    },
    TableKeys {
        name: "wifi.node",
        header: "[[wifi.node]]",
        about: "a node of the cell; it takes rate and losses from `[wifi]` where it has none of its own",
        sections: &[&MEMBER, &RADIO],
        tables: &[],
    },
    TableKeys {
        name: "flow",
        header: "a [[flow]]",
        about: "a table of like flows",
        sections: &[&FLOW, &WAY, &BETWEEN],
        tables: &[],
    },
];

/// The keys that only flows of this kind have.
pub(super) fn of_kind(kind: &FlowKind) -> Vec<&'static dyn Keys> {
    let mut names = Names(Vec::new());
    // Collecting names cannot fail.
    let _ = walk(&mut kind.clone(), &mut names);
    names.0
}

/// The keys of the table of this name: `link.up`, `flow`.
pub(super) fn keys_of(name: &str) -> Option<&'static TableKeys> {
    TABLES.iter().find(|t| t.name == name)
}

/// Whether a table of this name can have the key: false only for a flow whose kind does not have
/// it.
pub(super) fn takes(table: &Table, name: &str, key: &str) -> bool {
    let kind = table.text("kind").unwrap_or("tcp");
    let Some(kind) = KINDS.iter().find(|k| name == "flow" && k.name == kind) else {
        return true;
    };
    let common = keys_of(name).is_some_and(|t| names(t.sections).contains(&key));
    common || names(&of_kind(&(kind.make)())).contains(&key)
}

/// The names of all keys of some sections.
pub(super) fn names(sections: &[&'static dyn Keys]) -> Vec<&'static str> {
    rows(sections).into_iter().map(|r| r.name).collect()
}

/// All keys of some sections.
pub(super) fn rows(sections: &[&'static dyn Keys]) -> Vec<Row> {
    sections.iter().flat_map(|s| s.rows()).collect()
}

/// The keys of a table that a key replaces.
pub(super) fn replaced(table: &TableKeys, key: &str) -> Vec<&'static str> {
    let kinds = KINDS.iter().flat_map(|k| of_kind(&(k.make)()));
    let kinds = kinds.filter(|_| table.name == "flow");
    let rows = table
        .sections
        .iter()
        .copied()
        .chain(kinds)
        .flat_map(|s| s.rows());
    let same = rows.filter(|r| r.name == key);
    same.flat_map(|r| r.replaces).copied().collect()
}

/// Reports the first key that a table of this name does not have.
pub(super) fn known_only(table: &Table, name: &str) -> Result<(), Error> {
    let Some(keys) = keys_of(name) else {
        return Ok(());
    };
    let mut known = keys.tables.to_vec();
    known.extend(names(keys.sections));
    table.known_only(keys.header, &known)
}
