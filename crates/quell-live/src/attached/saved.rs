//! The state file with a device's previous disciplines, and their restoration.

use std::io;

use quell_link::Error;
use serde::{Deserialize, Serialize};

use super::before::{PreviousQdiscs, RESTORABLE, is_ours};
use crate::bpf::disciplines::DISCIPLINES;
use crate::bpf::page::{PageId, SLOTS};
use crate::rtnetlink::clsact::Hook;
use crate::rtnetlink::dump::Dump;
use crate::rtnetlink::failed;
use crate::rtnetlink::message::{DEL_QDISC, Key, ROOT};
use crate::rtnetlink::request::{
    MAX_OPTIONS, QdiscState, REPLACE, Request, RtnlWriter, applied, change,
};
use crate::rtnetlink::tree;
use crate::system::host;
use crate::system::state::{CHANGES, Command, State};

/// Most filters in a state file: the current one, and earlier ones that have not been removed.
const MAX_HOOKS: usize = 64;

/// The command that owns these state files.
pub const ATTACH: Command = Command {
    name: "attach",
    look: "tc qdisc show",
    service: None,
    location: CHANGES,
};

/// Content of a state file.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Saved {
    /// Identifies the system start in which the file was written; 0: unknown.
    #[serde(default)]
    pub boot: u64,
    /// Interface index.
    pub device: u32,
    /// Name of the attached discipline, without `quell_`.
    pub name: String,
    /// ID of the map with its knobs and gauges.
    pub page: u32,
    /// Number of the discipline's queues.
    pub slots: u32,
    /// Handle of the root.
    pub root: u32,
    /// The disciplines to restore.
    pub before: PreviousQdiscs,
    /// Filters at clsact whose program marks packets.
    #[serde(default)]
    pub hooks: Vec<Hook>,
}

impl State for Saved {
    fn check(&self) -> Result<(), String> {
        if !DISCIPLINES.iter().any(|known| known.name == self.name) {
            return Err(format!("quell does not attach {:?}", self.name));
        }
        if !(1..=SLOTS).contains(&self.slots) || !is_ours(self.root) || self.hooks.len() > MAX_HOOKS
        {
            return Err("slots, root or hooks are out of range".to_owned());
        }
        let mut rows = self.before.rows.iter();
        if let Some(row) =
            rows.find(|row| !RESTORABLE.contains(&&*row.kind) || row.options.len() > MAX_OPTIONS)
        {
            return Err(format!("quell does not restore {:?}", row.kind));
        }
        match self.hooks.iter().all(|hook| hook.device() == self.device) {
            true => Ok(()),
            false => Err("a filter of another device".to_owned()),
        }
    }
}

impl Saved {
    /// The page that the discipline's queues share with user space.
    pub fn page(&self) -> PageId<'_> {
        PageId {
            map: self.page,
            device: self.device,
            slots: self.slots,
            name: &self.name,
        }
    }

    /// Whether the file is from an earlier system start, so that its interface index may now belong
    /// to another device.
    pub fn is_old(&self) -> bool {
        host::is_earlier(self.boot)
    }

    /// Whether the root of its device is one of quell's disciplines: the saved one, or an earlier
    /// one if a process was killed before it had replaced that.
    pub fn has_own_root(&self, rows: &[QdiscState]) -> bool {
        rows.iter().any(|row| self.is_root(row))
    }

    /// Whether the root of its device is the saved discipline and has this name.
    pub fn is_current(&self, name: &str, rows: &[QdiscState]) -> bool {
        let mut roots = rows.iter().filter(|row| self.is_root(row));
        self.name == name && roots.any(|row| row.key.handle == self.root)
    }

    /// Whether packets are marked or not, as `requested`; true for `None` (nothing requested).
    ///
    /// # Errors
    /// If the kernel refuses the request.
    pub fn marks_as_requested(&self, requested: Option<bool>) -> io::Result<bool> {
        let Some(requested) = requested else {
            return Ok(true);
        };
        let mut dump = Dump::new()?;
        let mut marks = false;
        for hook in &self.hooks {
            marks |= hook.look(&mut dump)?.ours;
        }
        Ok(marks == requested)
    }

    fn is_root(&self, row: &QdiscState) -> bool {
        let ours = row.kind == "mq" || row.kind.starts_with("quell_");
        let Key { device, parent, .. } = row.key;
        let place = device == self.device && parent == ROOT && is_ours(row.key.handle);
        !row.key.class && ours && place
    }

    /// Removes the filters and restores the previous disciplines.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn restore(&self, rtnl: &mut RtnlWriter) -> Result<(), Error> {
        unhook(&self.hooks, rtnl)?;
        let mut dump = Dump::new().map_err(failed)?;
        let rows = tree::rows(&mut dump, self.device).map_err(failed)?;
        let there = rows.iter().find(|row| self.is_root(row));
        // All requests are one message, so that the process cannot be killed between the removal of
        // the root and the rest: without the root, nothing shows that something must be restored.
        if let Some(root) = there {
            // The kernel then makes its default discipline, and mq's children.
            rtnl.request(&Request {
                what: DEL_QDISC,
                flags: 0,
                place: [self.device, root.key.handle, ROOT, 0],
                kind: &root.kind,
                options: None,
            });
        }
        for row in &self.before.rows {
            let found = QdiscState {
                key: Key {
                    device: self.device,
                    class: false,
                    handle: row.handle,
                    parent: row.parent,
                },
                kind: row.kind.clone(),
                options: Vec::new(),
                stab: false,
            };
            let mut request = change(&found, &row.options);
            request.flags = REPLACE;
            if row.options.is_empty() {
                request.options = None;
            }
            rtnl.request(&request);
        }
        let names = self.before.rows.iter().map(|row| row.kind.as_str());
        let names = there.map(|_| "root").into_iter().chain(names);
        applied(rtnl.send().map_err(failed)?, names).map(drop)
    }
}

/// Removes quell's filters at clsact, and clsact itself unless other programs use it or created it.
///
/// # Errors
/// If the kernel refuses.
pub fn unhook(hooks: &[Hook], rtnl: &mut RtnlWriter) -> Result<(), Error> {
    let mut dump = Dump::new().map_err(failed)?;
    hooks
        .iter()
        .try_for_each(|hook| hook.remove(&mut dump, rtnl).map(drop))
}

/// Detaches the discipline and restores the previous ones. Returns a description of what was done.
///
/// # Errors
/// If the kernel refuses.
pub fn undo(saved: &Saved) -> Result<String, Error> {
    if saved.is_old() {
        let what = "was attached before the last start of the system, which removed that";
        return Ok(what.to_owned());
    }
    // For a deleted device, some kernels list nothing and others return an error.
    if host::is_gone(saved.device) {
        return Ok("is gone".to_owned());
    }
    let rows = tree::rows(&mut Dump::new().map_err(failed)?, saved.device).map_err(failed)?;
    let mut rtnl = RtnlWriter::new().map_err(failed)?;
    if !saved.has_own_root(&rows) {
        unhook(&saved.hooks, &mut rtnl)?;
        return Ok("another program has replaced it; the replacement stays".to_owned());
    }
    saved.restore(&mut rtnl)?;
    let back = match saved.before.rows.first() {
        None => "the kernel's default".to_owned(),
        Some(row) => row.kind.clone(),
    };
    Ok(format!("quell_{} is detached; {back} is back", saved.name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::system::state::hostile;

    #[test]
    fn hostile_values_are_refused() {
        let saved = json!({
            "boot": 3, "device": 2, "name": "hush", "page": 9, "slots": 2, "root": 0x9DFF_0000u32,
            "before": {"rows": [{"handle": 65536, "parent": 4294967295u32, "kind": "fq_codel", "options": [1, 2]}]},
            "hooks": [{"device": 2, "priority": 49152, "program": 7, "makes": true, "removes": true}],
        });
        let accepted = hostile::accepted::<Saved>(&saved);
        assert_eq!(accepted, Vec::<String>::new());
    }
}
