//! Plans which disciplines of a device are replaced, and makes the requests.

use quell_link::Error;
use quell_qdisc::num;

use crate::attached::before::{HANDLES, PreviousQdiscs, RESTORABLE, Row};
use crate::attached::saved::Saved;
use crate::bpf::page::Knobs;
use crate::rtnetlink::clsact::Hook;
use crate::rtnetlink::failed;
use crate::rtnetlink::message::{NEW_QDISC, ROOT};
use crate::rtnetlink::request::{QdiscState, REPLACE, Request, RtnlWriter, applied};
use crate::rtnetlink::tree::describe;
use crate::system::command::quoted;
use crate::system::host;

/// Most queues, as `QUELL_SLOTS`. The major number of a queue's handle, modulo this, is its place
/// in memory.
const SLOTS: usize = 16;
/// The plan for a device.
#[derive(Debug)]
pub struct Plan {
    dev: String,
    /// Interface index.
    pub device: u32,
    /// Number of the queues of `mq`; 0 for a single discipline.
    children: u32,
    /// Handles of the first queue, and of the root if there are several.
    handles: (u32, u32),
    /// The disciplines to restore later.
    pub before: PreviousQdiscs,
    /// Description of the root that is replaced, for messages.
    had: String,
}

impl Plan {
    /// Decides what is replaced: the root, or the queues of `mq`. With a rate it is always the
    /// root, since a rate is that of the whole device. `ours`: if quell's discipline is attached
    /// now, the disciplines before it, from the state file.
    ///
    /// # Errors
    /// If another program configured the present discipline, or quell could not restore it later.
    pub fn new(
        dev: &str,
        device: u32,
        rows: &[QdiscState],
        ours: Option<PreviousQdiscs>,
        knobs: &Knobs,
        replace: bool,
    ) -> Result<Self, Error> {
        let mut disciplines = rows.iter().filter(|row| !row.key.class);
        let root = disciplines.clone().find(|row| row.key.parent == ROOT);
        let below = |row: &&QdiscState| {
            let parent = row.key.parent;
            root.is_some_and(|root| {
                root.kind == "mq" && parent != ROOT && parent >> 16 == root.key.handle >> 16
            })
        };
        let children = disciplines.clone().filter(below).count();
        let had = root.map_or("nothing".to_owned(), describe);
        let children = match knobs.rate {
            Some(_) => 0,
            None => children,
        };
        if children > SLOTS {
            let what = format!("has {children} queues; at most {SLOTS} can be in BPF");
            let error = Error::new(what).key(dev);
            return Err(error.remedy("give --rate: one queue then shapes all of the interface"));
        }
        let free = |(first, root): &(u32, u32)| {
            let taken = |row: &QdiscState| [*first, *root].contains(&row.key.handle);
            !rows.iter().any(taken)
        };
        let handles = HANDLES.into_iter().find(free).unwrap_or(HANDLES[0]);
        let before = match ours {
            Some(before) => before,
            None => {
                let chosen = |row: &&QdiscState| {
                    row.key.handle != 0 && (row.key.parent == ROOT || below(row))
                };
                let found: Vec<_> = disciplines.by_ref().filter(chosen).collect();
                let rows: Vec<_> = found.iter().map(|row| Row::new(row)).collect();
                check(dev, &rows, root, replace)?;
                if let Some(row) = found.iter().find(|row| row.stab) {
                    let what = "has a size table (stab), which quell could not put back later";
                    let error = Error::new(what).key(format!("{dev} {}", describe(row)));
                    return Err(error.remedy("make it without stab first"));
                }
                PreviousQdiscs { rows }
            }
        };
        Ok(Self {
            dev: dev.to_owned(),
            device,
            children: num::count(children),
            handles,
            before,
            had,
        })
    }

    /// Queues for which the discipline needs memory.
    pub fn slots(&self) -> u32 {
        self.children.max(1)
    }

    /// Describes the plan for messages.
    pub fn describe(&self, name: &str) -> String {
        let had = &self.had;
        match self.children {
            0 => format!("quell_{name} in place of {had}"),
            count => format!("quell_{name} in each of {count} queues in place of {had}"),
        }
    }

    /// Handle of the root, by which quell recognises it later.
    fn root(&self) -> u32 {
        match self.children {
            0 => self.handles.0,
            _ => self.handles.1,
        }
    }

    /// The state to save before the plan is carried out. `page` is the ID of the map with the
    /// discipline's knobs and gauges.
    pub fn saved(&self, name: &str, page: u32, hooks: Vec<Hook>) -> Saved {
        Saved {
            boot: host::boot(),
            device: self.device,
            name: name.to_owned(),
            page,
            slots: self.slots(),
            root: self.root(),
            before: self.before.clone(),
            hooks,
        }
    }

    /// Carries the plan out. If a request fails, the effects of the earlier ones stay.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn carry_out(&self, name: &str, rtnl: &mut RtnlWriter) -> Result<(), Error> {
        let kind = format!("quell_{name}");
        let (first, root) = self.handles;
        let request = |handle, parent, kind| Request {
            what: NEW_QDISC,
            flags: REPLACE,
            place: [self.device, handle, parent, 0],
            kind,
            options: None,
        };
        match self.children {
            0 => rtnl.request(&request(first, ROOT, &kind)),
            count => {
                rtnl.request(&request(root, ROOT, "mq"));
                for i in 0..count {
                    let (handle, parent) = (first + (i << 16), root + i + 1);
                    rtnl.request(&request(handle, parent, &kind));
                }
            }
        }
        let outcomes = rtnl.send().map_err(failed)?;
        applied(outcomes, std::iter::repeat(self.dev.as_str())).map(drop)
    }
}

/// Checks that the present disciplines may be replaced and can be restored later.
fn check(dev: &str, rows: &[Row], root: Option<&QdiscState>, replace: bool) -> Result<(), Error> {
    let Some(first) = rows.first() else {
        return Ok(());
    };
    let error = |what: &str| {
        let name = root.map_or_else(|| first.kind.clone(), describe);
        Error::new(what).key(format!("{dev} {name}"))
    };
    let unknown = rows.iter().find(|row| !RESTORABLE.contains(&&*row.kind));
    if let Some(row) = unknown {
        let what = format!("quell could not put {} back later", row.kind);
        let dev = quoted(dev);
        return Err(error(&what).remedy(format!("tc qdisc del dev {dev} root removes it")));
    }
    match replace {
        true => Ok(()),
        false => Err(error("another program configured it")
            .remedy("--replace puts quell's in its place; quell detach then brings it back")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rtnetlink::message::Key;

    #[test]
    fn a_queue_that_could_not_be_put_back_with_its_size_table_is_not_replaced() {
        let plan = |stab| {
            let root = QdiscState {
                key: Key {
                    device: 2,
                    class: false,
                    handle: 1 << 16,
                    parent: ROOT,
                },
                kind: "pfifo".to_owned(),
                options: vec![9, 0, 0, 0],
                stab,
            };
            Plan::new("va", 2, &[root], None, &Knobs::default(), true).map(|_| ())
        };
        assert!(plan(false).is_ok());
        let refused = plan(true).expect_err("a size table").to_string();
        assert!(
            refused.contains("va pfifo 1: at root: has a size table"),
            "{refused}"
        );
    }
}
