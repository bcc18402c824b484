//! State files of `quell live`: a change of the system is recorded in a file before it is made, and
//! the file is removed when the change is undone.

use std::cell::Cell;
use std::path::PathBuf;

use quell_link::Error;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::firewall::{self, Firewall, RuleSet};
use crate::plane::exclusive::{self, Exclusive};
use crate::system::state::{self, Command, StateFile};

pub use crate::system::state::UndoOutcome;

/// The command that owns these state files.
pub const LIVE: Command = Command {
    name: "live",
    look: "iptables -t mangle -S",
    service: Some("/run/quell-live"),
    location: state::CHANGES,
};

/// Content of a state file: the firewall that has rules. The interface, which is in the file's
/// name, determines the rules.
#[derive(Debug, Deserialize, Serialize)]
#[serde(try_from = "StateFields")]
struct State {
    pid: u32,
    firewall: Firewall,
}

/// Fields of a state file of this release or of 0.2.0. The latter also recorded rules and their
/// programs, which are ignored.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StateFields {
    pid: u32,
    firewall: Option<Firewall>,
    rules: Option<Vec<IgnoredAny>>,
    table: Option<IgnoredAny>,
}

impl TryFrom<StateFields> for State {
    type Error = &'static str;

    fn try_from(written: StateFields) -> Result<Self, Self::Error> {
        let old = match (written.table, written.rules) {
            (Some(_), _) => Some(Firewall::Nftables),
            (None, Some(_)) => Some(Firewall::Iptables),
            (None, None) => None,
        };
        Ok(Self {
            pid: written.pid,
            firewall: written.firewall.or(old).ok_or("it names no firewall")?,
        })
    }
}

impl state::State for State {
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

/// An interface that this process manages exclusively until the value is dropped.
#[derive(Debug)]
pub struct HeldInterface {
    dev: String,
    file: StateFile,
    /// Firewall that has rules. The state file names it, too, but may have been deleted or damaged
    /// meanwhile.
    inserted: Cell<Option<Firewall>>,
    _exclusive: Exclusive,
}

/// Takes the interface for this process, and undoes what an earlier one left behind.
///
/// # Errors
/// If another process has the interface, the state file cannot be written, or the earlier changes
/// cannot be undone.
pub fn hold(dev: &str) -> Result<HeldInterface, Error> {
    let taken = |what: &str| {
        let error = Error::new(what).key(format!("--dev {dev}"));
        error.remedy("stop that one first")
    };
    let has = "another quell live is running on it";
    // Unlike the state file's lock, this one excludes processes of all users, but also those on
    // other interfaces with an equal index modulo `COUNT`.
    let or_like = || {
        let count = exclusive::COUNT;
        taken(&format!(
            "{has}, or on an interface whose index differs by a multiple of {count}"
        ))
    };
    let held = HeldInterface {
        dev: dev.to_owned(),
        file: LIVE.hold(dev)?.ok_or_else(|| taken(has))?,
        inserted: Cell::new(None),
        _exclusive: Exclusive::take(dev).ok_or_else(or_like)?,
    };
    held.undo()?;
    Ok(held)
}

impl HeldInterface {
    /// Records the rules in the state file, then adds all of them or, on an error, none.
    ///
    /// # Errors
    /// If the state file cannot be written, or a change is refused.
    pub fn insert(&self, rules: &RuleSet) -> Result<(), Error> {
        let state = State {
            pid: std::process::id(),
            firewall: rules.firewall(),
        };
        self.file.write(&state)?;
        self.inserted.set(Some(state.firewall));
        if let Err(why) = rules.make() {
            self.undo()?;
            return Err(Error::new(why).remedy("quell doctor says what is missing"));
        }
        Ok(())
    }

    /// Removes the inserted rules; returns how many there were.
    ///
    /// # Errors
    /// If a change cannot be undone.
    pub fn undo(&self) -> Result<usize, Error> {
        let Some(firewall) = self.inserted.get() else {
            return undo(&self.file, &self.dev);
        };
        let removed = firewall::undo(&self.dev, firewall).map_err(|why| self.file.kept(why))?;
        self.inserted.set(None);
        self.file.remove()?;
        Ok(removed)
    }
}

/// Removes the rules of a state file's interface, then the file; returns how many rules there were.
/// The file stays until no rule is listed any more.
fn undo(file: &StateFile, dev: &str) -> Result<usize, Error> {
    let Some(state) = file.read::<State>()? else {
        return Ok(0);
    };
    let removed = firewall::undo(dev, state.firewall).map_err(|why| file.kept(why))?;
    file.remove()?;
    Ok(removed)
}

/// The state files of this network namespace, each with its interface.
///
/// # Errors
/// If other users can write to their folder.
pub fn left() -> Result<Vec<(PathBuf, String)>, Error> {
    LIVE.left()
}

/// Undoes what dead processes left behind in this network namespace, on the interfaces `devs` or,
/// if that is empty, on all. For root this includes what the shipped service left. Rules that
/// another program has put back since, which have no state file, are removed, too. A failure on one
/// interface does not prevent the others.
pub fn restore(devs: &[String]) -> Vec<(String, UndoOutcome)> {
    let mut done = LIVE.restore(devs, |file, dev| match Exclusive::take(dev) {
        Some(_exclusive) => undo(file, dev).map(UndoOutcome::Undone),
        None => Ok(UndoOutcome::Runs),
    });
    for dev in firewall::ruled() {
        let known = done.iter().any(|(name, _)| *name == dev);
        let asked = devs.is_empty() || devs.contains(&dev);
        // Rules of a running process whose state file is elsewhere stay.
        if asked
            && !known
            && let Some(_exclusive) = Exclusive::take(&dev)
        {
            let removed = firewall::undo(&dev, Firewall::Iptables);
            let removed = removed.map(UndoOutcome::Undone);
            let failed = |why| UndoOutcome::Failed(Error::new(why).key(format!("--dev {dev}")));
            let outcome = removed.unwrap_or_else(failed);
            done.push((dev, outcome));
        }
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_firewall_of_a_state_file_is_used() {
        let read = |text: &str| serde_json::from_str::<State>(text).map(|state| state.firewall);
        let (nft, iptables) = (Firewall::Nftables, Firewall::Iptables);
        let state = State {
            pid: 7,
            firewall: nft,
        };
        let text = serde_json::to_string(&state).expect("text");
        assert_eq!(text, r#"{"pid":7,"firewall":"nftables"}"#);
        assert_eq!(read(&text).expect("as written"), nft);
        // State files of 0.2.0, and of an attacker.
        let table =
            r#"{"pid":1,"rules":[],"table":{"name":"x; flush ruleset","text":"","rules":[]}}"#;
        assert_eq!(read(table).expect("a table"), nft);
        let rules = r#"{"pid":1,"rules":[["EVIL","PREROUTING"]]}"#;
        assert_eq!(read(rules).expect("rules"), iptables);
        for bad in [
            "",
            "null",
            "[]",
            "{}",
            r#"{"pid":1}"#,
            r#"{"pid":-1,"firewall":"nftables"}"#,
            r#"{"pid":1e99,"firewall":"nftables"}"#,
            r#"{"pid":"$(id)","firewall":"nftables"}"#,
            r#"{"pid":1,"firewall":"sh"}"#,
            r#"{"pid":1,"firewall":["nftables"]}"#,
            r#"{"pid":1,"firewall":"nftables","run":"sh"}"#,
            r#"{"pid":1,"rules":"EVIL"}"#,
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
