//! Selects the disciplines or classes of a device that are steered, and evaluates their positions
//! in the tree.

use std::io;

use quell_link::Error;

use crate::rtnetlink::dump::{self, Dump};
use crate::rtnetlink::message::{Handle, Key, Queue, ROOT, u32_at};
use crate::rtnetlink::options::{ANY, Kind, Knob, ceil_of_htb, most_of_tbf, why_not};
use crate::rtnetlink::request::QdiscState;
use crate::system::command::quoted;
use crate::system::host;
use crate::system::watchdog::MAX_LOOPS;
use quell_qdisc::rate::Rate;

/// A place in a device's tree: a handle, or root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(pub u32);

impl Place {
    /// Handle of the discipline to which a class belongs; `None` for the root and for a discipline.
    pub fn discipline(self) -> Option<u32> {
        let class = self.0 & 0xffff != 0 && self != Self(u32::MAX);
        class.then_some(self.0 & 0xffff_0000)
    }

    /// Whether a word is a place and not the first of a controller's words.
    pub fn is(word: &str) -> bool {
        word == "root" || word.contains(':')
    }

    /// Parses `root`, `1:10` or `1:`.
    ///
    /// # Errors
    /// If it is none of them.
    pub fn parse(word: &str) -> Result<Self, Error> {
        if word == "root" {
            return Ok(Self(ROOT));
        }
        let half = |text: &str| match text {
            "" => Some(0),
            text => u16::from_str_radix(text, 16).ok(),
        };
        let parsed = word.split_once(':').and_then(|(major, minor)| {
            let (major, minor) = (half(major)?, half(minor)?);
            (major > 0).then(|| Self(u32::from(major) << 16 | u32::from(minor)))
        });
        parsed.ok_or_else(|| {
            Error::new(format!("\"{word}\" is not a place of a queue"))
                .remedy("write root, a class as in 1:10, or a handle as in 1:")
        })
    }
}

/// All disciplines and classes of a device.
///
/// # Errors
/// If the kernel refuses the request.
pub fn rows(dump: &mut Dump, device: u32) -> io::Result<Vec<QdiscState>> {
    dump::whole(|| listed(dump, device))
}

fn listed(dump: &mut Dump, device: u32) -> io::Result<Vec<QdiscState>> {
    let mut rows = Vec::new();
    let mut add = |queue: Queue<'_>| {
        // Older kernels list other devices' disciplines, too.
        if queue.key.device == device {
            rows.push(QdiscState {
                key: queue.key,
                kind: queue.kind.to_owned(),
                options: queue.options.to_vec(),
                stab: queue.stab,
            });
        }
    };
    dump.disciplines(device, &mut add)?;
    dump.classes(device, &mut add)?;
    Ok(rows)
}

/// The queue at this place, with its kind. For `mq` these are all its children, unless its drop
/// probability is steered.
///
/// # Errors
/// If there is none, or one of these knobs cannot be changed.
pub fn choose(
    rows: &[QdiscState],
    dev: &str,
    place: Place,
    knobs: &[Knob],
) -> Result<Vec<(QdiscState, &'static Kind)>, Error> {
    let disciplines = || rows.iter().filter(|row| !row.key.class);
    if knobs == [Knob::Rate] {
        let class =
            |row: &&QdiscState| row.key.class && row.key.handle == place.0 && row.kind == "htb";
        if let Some(class) = rows.iter().find(class) {
            return Ok(vec![(class.clone(), check(rows, class, dev, knobs)?)]);
        }
    }
    let at = |row: &&QdiscState| row.key.parent == place.0 || row.key.handle == place.0;
    let Some(found) = disciplines().find(at) else {
        let names: Vec<_> = disciplines().map(describe).collect();
        let names = match names.is_empty() {
            true => "none".to_owned(),
            false => names.join(", "),
        };
        let what = format!("no queue discipline at {}", Handle(place.0));
        return Err(Error::new(what)
            .key(dev)
            .remedy(format!("there are: {names}")));
    };
    if knobs.contains(&Knob::Drop) {
        check_only_queue(rows, found, dev)?;
    }
    if found.kind != "mq" || knobs.contains(&Knob::Drop) {
        return Ok(vec![(found.clone(), check(rows, found, dev, knobs)?)]);
    }
    let child = |row: &&QdiscState| {
        row.key.parent >> 16 == found.key.handle >> 16 && row.key.parent != ROOT
    };
    let children: Vec<_> = disciplines().filter(child).collect();
    if children.len() > MAX_LOOPS {
        let what = format!(
            "has {} queues; at most {MAX_LOOPS} can be steered",
            children.len()
        );
        let error = Error::new(what).key(format!("{dev} {}", describe(found)));
        return Err(error.remedy("name one of them, as in 1:1"));
    }
    let checked = children
        .iter()
        .map(|row| Ok(((*row).clone(), check(rows, row, dev, knobs)?)));
    checked.collect()
}

/// Kinds that hold no packets.
const WITHOUT_PACKETS: [&str; 3] = ["noqueue", "ingress", "clsact"];
/// Kinds whose classes are queues, or have queues below them.
const CLASSFUL: [&str; 8] = ["htb", "hfsc", "drr", "qfq", "ets", "prio", "mq", "mqprio"];

/// Checks that all packets of a device pass through this queue, since at clsact it is unknown to
/// which queue a packet will go.
fn check_only_queue(rows: &[QdiscState], found: &QdiscState, dev: &str) -> Result<(), Error> {
    let is_leaf = |row: &&QdiscState| {
        let (key, class) = (row.key, row.key.class);
        let below = |other: &QdiscState| match class {
            true => other.key.parent == key.handle,
            false => other.key.parent != ROOT && other.key.parent >> 16 == key.handle >> 16,
        };
        let kind = row.kind.as_str();
        let holds = !WITHOUT_PACKETS.contains(&kind) && (!class || CLASSFUL.contains(&kind));
        holds && !rows.iter().any(|other| other.key != key && below(other))
    };
    if found.key.parent == ROOT {
        return Ok(());
    }
    let other = rows.iter().filter(is_leaf).find(|row| row.key != found.key);
    let Some(other) = other else {
        return Ok(());
    };
    let what = format!(
        "there is also {}, and packets are dropped before they reach either",
        describe(other)
    );
    let error = Error::new(what).key(format!("{dev} {}", describe(found)));
    Err(error.remedy("leave the place out: all queues of the interface are then one"))
}

/// Name for messages, as in `pfifo 10: at 1:10`.
pub fn describe(row: &QdiscState) -> String {
    let Key { handle, parent, .. } = row.key;
    match row.key.class {
        true => format!("{} class {}", row.kind, Handle(handle)),
        false => format!("{} {} at {}", row.kind, Handle(handle), Handle(parent)),
    }
}

/// The kind of a queue, if these knobs of it can be changed; else an error with a remedy.
fn check(
    rows: &[QdiscState],
    row: &QdiscState,
    dev: &str,
    knobs: &[Knob],
) -> Result<&'static Kind, Error> {
    let name = &row.kind;
    let error = |what: String| Error::new(what).key(format!("{dev} {}", describe(row)));
    let options = || knobs.iter().filter(|knob| **knob != Knob::Drop);
    if options().next().is_none() && !WITHOUT_PACKETS.contains(&name.as_str()) {
        return Ok(Kind::find(name, row.key.class).unwrap_or(&ANY));
    }
    let Some(kind) = Kind::find(name, row.key.class) else {
        let classes = Kind::find(name, true).is_some();
        let remedy = match classes {
            true => "name a class of its, as in 1:10".to_owned(),
            false => replace(row, dev, knobs),
        };
        return Err(error(format!("cannot be steered: {}", why_not(name))).remedy(remedy));
    };
    if row.key.handle == 0 {
        let what = "is a default discipline, whose settings the kernel does not change".to_owned();
        return Err(error(what).remedy(replace(row, dev, knobs)));
    }
    if row.stab {
        let what = "has a size table (stab), which the kernel would drop with the first change";
        return Err(error(what.to_owned())
            .remedy("leave stab out: cake and the classes of htb have an overhead of their own"));
    }
    if kind.hides_bucket(&row.options) {
        let what = "has a rate at which the kernel does not report its bucket, which would be lost";
        return Err(error(what.to_owned()).remedy("give it 2kbit or more"));
    }
    if let Some(below) = overwritten(rows, row) {
        let what = format!(
            "each change would give {} the limit of the tbf above it",
            describe(below)
        );
        let parent = Handle(below.key.parent);
        return Err(error(what).remedy(format!(
            "tc qdisc replace dev {} parent {parent} fq_codel replaces it by one that keeps its own limit",
            quoted(dev)
        )));
    }
    if let Some(lacks) = options().find(|knob| !kind.knobs().any(|has| has == **knob)) {
        let has: Vec<_> = kind.knobs().map(Knob::name).collect();
        let what = format!("has no {}", lacks.name());
        return Err(error(what).remedy(format!("give --with {}", has.join(" or --with "))));
    }
    Ok(kind)
}

/// Disciplines whose limit the kernel sets at each change of a tbf above them (`fifo_set_limit` in
/// sch_fifo.c).
const FIFOS: [&str; 3] = ["pfifo", "bfifo", "pfifo_head_drop"];

/// The limit of the discipline `key`, if each change of `found` sets it, too.
pub fn limit_below(found: &QdiscState, key: Key, kind: &str, options: &[u8]) -> Option<u64> {
    let is_below = key.parent != ROOT && key.parent >> 16 == found.key.handle >> 16;
    let follows = found.kind == "tbf" && FIFOS.contains(&kind);
    (follows && is_below && !key.class).then(|| u32_at(options, 0).into())
}

/// A discipline whose own limit each change of `found` would overwrite.
pub fn overwritten<'a>(rows: &'a [QdiscState], found: &QdiscState) -> Option<&'a QdiscState> {
    let limit = Kind::find(&found.kind, false)?.read(&found.options, Knob::Limit)?;
    let has_other = |row: &&QdiscState| {
        let below = limit_below(found, row.key, &row.kind, &row.options);
        below.is_some_and(|below| below != limit)
    };
    rows.iter().find(has_other)
}

/// The remedy: a command that replaces the discipline by one that can be steered.
fn replace(row: &QdiscState, dev: &str, knobs: &[Knob]) -> String {
    let at = match row.key.parent {
        ROOT => "root".to_owned(),
        parent => format!("parent {}", Handle(parent)),
    };
    let kind = match Kind::find(&row.kind, false) {
        _ if knobs.contains(&Knob::Rate) => "cake bandwidth 10mbit",
        Some(kind) => kind.name,
        None => "pfifo",
    };
    let dev = quoted(dev);
    format!("tc qdisc replace dev {dev} {at} {kind} replaces it by one that can be steered")
}

/// The discipline or class directly above a discipline or a class.
fn above<'a>(rows: &'a [QdiscState], row: &QdiscState) -> Option<&'a QdiscState> {
    let Key { handle, parent, .. } = row.key;
    if !row.key.class && parent == ROOT {
        return None;
    }
    let class = |other: &&QdiscState| other.key.class && other.key.handle == parent;
    let major = if row.key.class { handle } else { parent };
    let discipline =
        |other: &&QdiscState| !other.key.class && other.key.handle >> 16 == major >> 16;
    let others = || rows.iter().filter(|other| other.key != row.key);
    // The tbf itself and not its class, which has no options.
    let tbf = others().find(|other| discipline(other) && other.kind == "tbf");
    tbf.or_else(|| others().find(class))
        .or_else(|| others().find(discipline))
}

/// The lowest limit of a queue's rate, and the discipline or class that sets it: an htb
/// `ceil` or the rate of a tbf above the queue, or the queue's own peak rate if it is a tbf.
pub fn cap<'a>(rows: &'a [QdiscState], found: &'a QdiscState) -> Option<(Rate, &'a QdiscState)> {
    let passes = |row: &QdiscState| match (row.kind.as_str(), row.key.class) {
        ("htb", true) => ceil_of_htb(&row.options),
        ("tbf", false) => Kind::find("tbf", false)?.read(&row.options, Knob::Rate),
        _ => None,
    };
    let all = std::iter::successors(above(rows, found), |row| above(rows, row));
    // The kernel lists a tree, but its entries may be of different instants, so that a cycle is
    // possible.
    let each = all
        .take(rows.len())
        .filter_map(|row| Some((passes(row)?, row)));
    let own = most_of_tbf(&found.options).filter(|_| found.kind == "tbf");
    let each = own.map(|most| (most, found)).into_iter().chain(each);
    each.filter(|(bytes, _)| *bytes > 0)
        .map(|(bytes, row)| (Rate::from_bytes_per_sec(bytes), row))
        .min_by_key(|(rate, _)| *rate)
}

/// Handles of a class and all classes below it; empty for a discipline.
pub fn classes(rows: &[QdiscState], found: &QdiscState) -> Vec<u32> {
    let mut handles = Vec::new();
    if found.key.class {
        handles.push(found.key.handle);
    }
    let mut at = 0;
    while let Some(parent) = handles.get(at).copied() {
        let children = rows
            .iter()
            .filter(|row| row.key.class && row.key.parent == parent);
        for row in children {
            if !handles.contains(&row.key.handle) {
                handles.push(row.key.handle);
            }
        }
        at += 1;
    }
    handles
}

/// The rate of a queue, if one is known: its own, else that of the discipline or class above
/// it, else the device's speed.
pub fn rate(rows: &[QdiscState], found: &QdiscState, dev: &str) -> Option<Rate> {
    let own = |row: &QdiscState| {
        let kind = Kind::find(&row.kind, row.key.class)?;
        let bytes = kind.read(&row.options, Knob::Rate)?;
        (bytes > 0).then(|| Rate::from_bytes_per_sec(bytes))
    };
    let device = || host::speed(dev);
    own(found)
        .or_else(|| above(rows, found).and_then(own))
        .or_else(device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rtnetlink::request::put;

    fn row(class: bool, handle: u32, parent: u32, kind: &str, ceil: u32) -> QdiscState {
        let mut parms = [0; 44];
        // The rate of tbf, its peak rate, and htb's ceil.
        for at in [8, 20] {
            parms[at..at + 4].copy_from_slice(&ceil.to_ne_bytes());
        }
        let mut options = Vec::new();
        put(&mut options, 1, &parms);
        let key = Key {
            device: 2,
            class,
            handle,
            parent,
        };
        QdiscState {
            key,
            kind: kind.to_owned(),
            options,
            stab: false,
        }
    }

    /// A tbf of 8 Mbit/s with an htb below it. Its class 1:1 has 16 Mbit/s; in it are 1:2 of 4
    /// Mbit/s, with 1:10, and 1:20.
    fn tree() -> Vec<QdiscState> {
        vec![
            row(false, 0x70000, ROOT, "tbf", 1_000_000),
            row(false, 0x10000, 0x70001, "htb", 0),
            row(false, 0x100000, 0x10010, "fq_codel", 0),
            row(true, 0x70001, ROOT, "tbf", 0),
            row(true, 0x10001, ROOT, "htb", 2_000_000),
            row(true, 0x10002, 0x10001, "htb", 500_000),
            row(true, 0x10010, 0x10002, "htb", 9_000_000),
            row(true, 0x10020, 0x10001, "htb", 9_000_000),
        ]
    }

    #[test]
    fn the_lowest_rate_above_a_queue_is_its_cap() {
        let rows = tree();
        let cap = |at: usize| cap(&rows, &rows[at]).map(|(rate, row)| (rate.bps(), row.key.handle));
        assert_eq!(cap(6), Some((4_000_000, 0x10002)));
        assert_eq!(cap(7), Some((8_000_000, 0x70000)), "below the 16 of 1:1");
        assert_eq!(cap(2), Some((4_000_000, 0x10002)), "a queue below a class");
        assert_eq!(cap(0), Some((7_999_992, 0x70000)), "below its peak rate");
        assert_eq!(cap(4), Some((8_000_000, 0x70000)));
        let mut ring = tree();
        ring[4].key.parent = 0x10010;
        assert!(super::cap(&ring, &ring[6]).is_some());
    }

    #[test]
    fn classes_below_a_class_are_found_at_any_depth() {
        let mut rows = tree();
        let found = |rows: &[QdiscState], at: usize| classes(rows, &rows[at]);
        assert_eq!(found(&rows, 4), [0x10001, 0x10002, 0x10020, 0x10010]);
        assert_eq!(found(&rows, 6), [0x10010]);
        assert!(found(&rows, 2).is_empty());
        rows[4].key.parent = 0x10010;
        assert_eq!(found(&rows, 4).len(), 4, "a ring ends");
    }
}
