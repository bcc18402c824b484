//! The state file with the settings of disciplines before they were steered.

use quell_link::Error;
use serde::{Deserialize, Serialize};

use crate::plane::exclusive::Exclusive;
use crate::rtnetlink;
use crate::rtnetlink::clsact::Hook;
use crate::rtnetlink::dump::Dump;
use crate::rtnetlink::message::Key;
use crate::rtnetlink::options::{Kind, Knob, Values};
use crate::rtnetlink::request::{self, MAX_OPTIONS, QdiscState, RtnlWriter};
use crate::rtnetlink::tree;
use crate::system::host;
use crate::system::state::{CHANGES, Command, State, StateFile, UndoOutcome};
use crate::system::watchdog::MAX_LOOPS;

/// The command that owns these state files.
pub const STEER: Command = Command {
    name: "steer",
    look: "tc qdisc show",
    service: None,
    location: CHANGES,
};

/// Content of a state file.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Saved {
    pid: u32,
    /// Identifies the system start in which the file was written; 0: unknown.
    #[serde(default)]
    boot: u64,
    device: u32,
    knobs: Vec<Knob>,
    queues: Vec<Row>,
    /// The attached filter.
    #[serde(default)]
    pub hook: Option<Hook>,
}

/// A steered discipline or class.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Row {
    class: bool,
    handle: u32,
    parent: u32,
    kind: String,
    /// Options in the kernel's format.
    options: Vec<u8>,
    /// Values of the knobs before and after the last change. `None`: unknown, as in files of quell
    /// 0.2.
    #[serde(default)]
    set: Option<[Values; 2]>,
}

impl State for Saved {
    fn check(&self) -> Result<(), String> {
        if self.knobs.len() > Knob::ALL.len() || self.queues.len() > MAX_LOOPS {
            return Err("more queues or knobs than quell steers".to_owned());
        }
        if let Some(row) = self
            .queues
            .iter()
            .find(|row| row.options.len() > MAX_OPTIONS)
        {
            return Err(format!("{} bytes of options", row.options.len()));
        }
        let unknown = |row: &&Row| Kind::find(&row.kind, row.class).is_none();
        if let Some(row) = self.queues.iter().find(unknown) {
            return Err(format!("quell does not steer {:?}", row.kind));
        }
        match self.hook {
            Some(hook) if hook.device() != self.device => {
                Err("a filter of another device".to_owned())
            }
            _ => Ok(()),
        }
    }
}

impl Saved {
    /// The state of these queues of a device, whose `knobs` will be changed.
    pub fn new<'a>(
        device: u32,
        knobs: &[Knob],
        queues: impl Iterator<Item = &'a QdiscState>,
    ) -> Self {
        let row = |found: &QdiscState| Row {
            class: found.key.class,
            handle: found.key.handle,
            parent: found.key.parent,
            kind: found.kind.clone(),
            options: found.options.clone(),
            set: None,
        };
        Self {
            pid: std::process::id(),
            boot: host::boot(),
            device,
            knobs: knobs.to_vec(),
            queues: queues.map(row).collect(),
            hook: None,
        }
    }

    /// Whether the file is from an earlier system start, so that its interface index may now belong
    /// to another device.
    fn is_old(&self) -> bool {
        host::is_earlier(self.boot)
    }

    /// Whether a state file other than `own` has one of these queues, by another name of the device
    /// or of the place.
    ///
    /// # Errors
    /// As [`is_changed`].
    pub fn is_shared(&self, own: &StateFile) -> Result<bool, Error> {
        let has = |row: &Row| self.queues.iter().any(|own| own.place() == row.place());
        let shares = |other: &Self| {
            other.device == self.device && !other.is_old() && other.queues.iter().any(has)
        };
        STEER.find(Some(own), shares).map(|found| found.is_some())
    }

    /// Takes these queues; `None` if another process has one of them, even one with another folder
    /// of state files.
    pub fn take(&self) -> Option<Exclusive> {
        Exclusive::take_queues(self.device, self.queues.iter().map(Row::place))
    }

    /// Records that knobs of a queue are about to change from `before` to `after`.
    pub fn changes(&mut self, key: &Key, before: Values, after: Values) {
        let place = (key.class, key.handle, key.parent);
        if let Some(row) = self.queues.iter_mut().find(|row| row.place() == place) {
            row.set = Some([before, after]);
        }
    }
}

impl Row {
    /// Identity: whether it is a class, its handle and its parent.
    fn place(&self) -> (bool, u32, u32) {
        (self.class, self.handle, self.parent)
    }

    /// Whether quell has set the knobs to these values, as far as is known. Other values were set
    /// by an administrator.
    fn is_ours(&self, values: &Values) -> bool {
        self.set.is_none_or(|set| set.contains(values))
    }
}

/// Restores what killed processes left changed on a device, under any name of the device and any
/// place. Returns the number of restored disciplines.
pub fn undo_left(device: u32) -> usize {
    let undo = |file: &StateFile, _: &str| match file.read::<Saved>()? {
        Some(saved) if saved.device == device => undo(file).map(UndoOutcome::Undone),
        _ => Ok(UndoOutcome::Undone(0)),
    };
    let done = STEER.restore(&[], undo).into_iter();
    done.map(|(_, restored)| match restored {
        UndoOutcome::Undone(count) => count,
        _ => 0,
    })
    .sum()
}

/// Whether queues of a device are changed and not yet restored.
///
/// # Errors
/// If a state file cannot be read, or other users can write to the folder.
pub fn is_changed(device: u32) -> Result<bool, Error> {
    let is = |saved: &Saved| saved.device == device && !saved.queues.is_empty() && !saved.is_old();
    STEER.find(None, is).map(|found| found.is_some())
}

/// Restores what a state file says, then deletes it. Returns the number of restored disciplines.
/// Deleted ones, and those that another program has changed since, are skipped.
///
/// # Errors
/// If the file cannot be read, or the kernel refuses.
pub fn undo(file: &StateFile) -> Result<usize, Error> {
    let Some(saved) = file.read::<Saved>()? else {
        return Ok(0);
    };
    let count = match saved.is_old() {
        true => 0,
        false => put_back(&saved).map_err(|error| file.kept(error.to_string()))?,
    };
    file.remove()?;
    Ok(count)
}

/// Removes the filter and restores the settings. Returns the number of restored disciplines, plus 1
/// for a removed filter.
fn put_back(saved: &Saved) -> Result<usize, Error> {
    let mut dump = Dump::new().map_err(rtnetlink::failed)?;
    let there = match tree::rows(&mut dump, saved.device) {
        // The device no longer exists.
        Err(e) if e.raw_os_error() == Some(libc::ENODEV) => return Ok(0),
        rows => rows.map_err(rtnetlink::failed)?,
    };
    let mut rtnl = RtnlWriter::new().map_err(rtnetlink::failed)?;
    let removed = match &saved.hook {
        Some(hook) => usize::from(hook.remove(&mut dump, &mut rtnl)?),
        None => 0,
    };
    let mut names = Vec::new();
    for row in &saved.queues {
        let key = Key {
            device: saved.device,
            class: row.class,
            handle: row.handle,
            parent: row.parent,
        };
        // False if a size table, or a limit below it, has been set since, which a change would
        // discard.
        let keeps = |found: &QdiscState| !found.stab && tree::overwritten(&there, found).is_none();
        let same = |found: &&QdiscState| found.key == key && found.kind == row.kind && keeps(found);
        let found = there.iter().find(same);
        let kind = Kind::find(&row.kind, row.class);
        let ours = |kind: &Kind, found: &QdiscState| {
            row.is_ours(&kind.values(&found.options, &saved.knobs))
        };
        if let (Some(found), Some(kind)) = (found, kind)
            && ours(kind, found)
        {
            let mut options = Vec::new();
            kind.restore(&mut options, &row.options, &saved.knobs);
            rtnl.add(found, &options);
            names.push(tree::describe(found));
        }
    }
    let applied = request::applied(
        rtnl.send().map_err(rtnetlink::failed)?,
        names.iter().map(String::as_str),
    );
    Ok(removed + applied?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::system::state::hostile;

    #[test]
    fn hostile_values_are_refused() {
        let saved = json!({
            "pid": 1, "boot": 3, "device": 2, "knobs": ["limit", "target"],
            "queues": [{"class": false, "handle": 65536, "parent": 4294967295u32, "kind": "pfifo", "options": [1, 0, 0, 0]}],
            "hook": {"device": 2, "priority": 49152, "program": 7, "makes": true, "removes": true},
        });
        let accepted = hostile::accepted::<Saved>(&saved);
        assert_eq!(accepted, ["/hook: null"], "a file without a filter is one");
    }
}
