//! The memory that a discipline in the kernel shares with user space, with knobs and gauges
//! (crates/quell-qdisc/bpf/page.h).
#![allow(unsafe_code)]

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use quell_link::Error;
use quell_qdisc::num;
use quell_qdisc::rate::Rate;
use quell_qdisc::time::Instant;
use serde_json::{Map as Object, Value as Json};

use super::super::bpf::{self, Map};
use crate::rtnetlink::xstats::Value;
use crate::system::command::quoted;
use crate::system::host;

/// Size of a queue's part, bytes: 64 of knobs, 192 of gauges.
pub const BYTES: usize = 256;
/// Prefix of a discipline's kind, before its name.
pub const KIND: &str = "quell_";
/// `QUELL_VERSION`.
const VERSION: u32 = 1;

// Offsets of knobs.
const RATE: usize = 0;
const LIMIT: usize = 16;
const FLAGS: usize = 20;
/// `QUELL_MARK_NEXT`.
const MARK_NEXT: u32 = 2;
/// Time (CLOCK_MONOTONIC) until which user space steers, ns.
const VALID_UNTIL: usize = 8;
/// Steered probability of a drop on arrival, in units of 2^-32.
const STEERED_DROP: usize = 28;
/// Offset of the gauges, the first of which is the version.
const GAUGES: usize = 64;
/// Offsets of the interface index, and of the time at which the gauges were written.
const DEVICE: usize = GAUGES + 4;
const UPDATED: usize = GAUGES + 8;
/// Name of the map.
pub const PAGE: &str = "page";
/// Most queues of a page, a power of 2: `QUELL_SLOTS`.
pub const SLOTS: u32 = 16;

/// Encoding of a number in memory.
#[derive(Clone, Copy)]
enum Form {
    /// 64 bits.
    Long,
    /// 64 bits; all ones: no value.
    Some,
    /// 64 bits; 0: no value.
    Set,
    /// 32 bits.
    Short,
    /// 32 bits; 0: no value.
    ShortSet,
    /// 32 bits, in units of 1 / 2 to this power.
    Share(i32),
}
use Form::{Long, Set, Share, Short, ShortSet};

/// Disciplines that have a gauge; empty: all.
type Of = &'static [&'static str];
const ALL: Of = &[];
const HUSH: Of = &["hush"];
const FLOWS: Of = &["fq_codel", "hush"];
const MARKING: Of = &["codel", "fq_codel", "hush"];
const LEARNED: Of = &["hush", "rlaqm"];
const RLAQM: Of = &["rlaqm"];

/// Gauges and knobs that are shown: name, offset, encoding, and the disciplines that have them.
#[rustfmt::skip]
const TABLE: [(&str, usize, Form, Of); 26] = [
    ("knob_rate_bytes", RATE, Set, ALL),
    ("knob_limit_packets", LIMIT, ShortSet, ALL),
    ("backlog_packets", GAUGES + 16, Short, ALL),
    ("backlog_bytes", GAUGES + 20, Short, ALL),
    ("enqueued", GAUGES + 24, Long, ALL),
    ("dequeued", GAUGES + 32, Long, ALL),
    ("dequeued_bytes", GAUGES + 40, Long, ALL),
    ("overflows", GAUGES + 48, Long, ALL),
    ("drops", GAUGES + 56, Long, ALL),
    ("marks", GAUGES + 64, Long, MARKING),
    ("sojourn_ns", GAUGES + 72, Long, ALL),
    ("sojourn_p95_ns", GAUGES + 80, Long, ALL),
    ("rate_bytes", GAUGES + 88, Set, LEARNED),
    ("round_trip_ns", GAUGES + 96, Long, HUSH),
    ("target_ns", GAUGES + 104, Long, HUSH),
    ("wait_ns", GAUGES + 112, Long, HUSH),
    ("hold_ns", GAUGES + 120, Long, HUSH),
    ("cap_ns", GAUGES + 128, Form::Some, HUSH),
    ("idle", GAUGES + 136, Share(30), HUSH),
    ("flows", GAUGES + 140, Short, FLOWS),
    ("trusted", GAUGES + 144, Short, HUSH),
    ("probability", GAUGES + 148, Share(32), RLAQM),
    ("decisions", GAUGES + 152, Long, LEARNED),
    ("steered", VALID_UNTIL, Long, ALL),
    ("steered_drop", STEERED_DROP, Share(32), ALL),
    ("age_ns", UPDATED, Long, ALL),
];

/// A queue's gauges and knobs at one time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gauges([Option<Value>; TABLE.len()]);

impl Gauges {
    /// Calls `each` with the name and value of each that the queue has. The name of a time ends in
    /// its unit.
    pub fn each(&self, each: &mut dyn FnMut(&'static str, Value)) {
        for (value, (name, ..)) in self.0.iter().zip(&TABLE) {
            if let Some(value) = value {
                each(name, *value);
            }
        }
    }

    /// The value of this name.
    pub fn get(&self, name: &str) -> Option<f64> {
        let at = TABLE.iter().position(|(known, ..)| *known == name)?;
        self.0[at].map(|value| match value {
            Value::Count(count) => count as f64,
            Value::Signed(number) => number as f64,
            Value::Share(share) => share,
        })
    }

    /// The values that the law reads and sets, as text; times are in ms.
    pub fn describe(&self) -> String {
        let mut parts = Vec::new();
        let mut part = |name: &str, of: &str, scale: f64, decimals: usize, unit: &str| {
            if let Some(value) = self.get(name) {
                parts.push(format!("{of} {:.decimals$}{unit}", value * scale));
            }
        };
        part("target_ns", "target", 1e-6, 1, " ms");
        part("wait_ns", "wait", 1e-6, 1, " ms");
        part("hold_ns", "hold", 1e-6, 1, " ms");
        part("cap_ns", "cap", 1e-6, 1, " ms");
        part("idle", "idle", 100.0, 1, " %");
        part("round_trip_ns", "R", 1e-6, 1, " ms");
        part("flows", "flows", 1.0, 0, "");
        part("probability", "drop probability", 100.0, 1, " %");
        part("sojourn_p95_ns", "p95", 1e-6, 1, " ms");
        part("marks", "marks", 1.0, 0, "");
        if let Some(trusted) = self.get("trusted") {
            let decides = if trusted > 0.0 { "the policy" } else { "CoDel" };
            parts.push(format!("{decides} decides"));
        }
        if let Some(share) = self.get("steered_drop") {
            parts.push(format!("steered: drops {:.1} %", share * 100.0));
        }
        parts.join(", ")
    }
}

/// Knobs to set. Others stay as they are; initially they have the discipline's defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Knobs {
    /// Rate of the shaper.
    pub rate: Option<Rate>,
    /// Limit, packets.
    pub limit: Option<u32>,
}

impl Knobs {
    /// A new queue's part of the page.
    pub fn bytes(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        let rate = self.rate.map_or(0, Rate::bytes_per_sec);
        bytes[RATE..RATE + 8].copy_from_slice(&rate.to_ne_bytes());
        bytes[LIMIT..LIMIT + 4].copy_from_slice(&self.limit.unwrap_or(0).to_ne_bytes());
        bytes
    }
}

/// The page of a device: the memory of all its queues.
pub struct Page {
    memory: Map,
    slots: u32,
    /// Name of the discipline, without `quell_`.
    name: String,
}

/// Identifies a page: the map's ID, and the device and discipline to which it must belong.
#[derive(Clone, Copy, Debug)]
pub struct PageId<'a> {
    /// ID of the map.
    pub map: u32,
    /// Interface index.
    pub device: u32,
    /// Number of queues.
    pub slots: u32,
    /// Name of the discipline, without `quell_`.
    pub name: &'a str,
}

impl Page {
    /// Opens a page to change knobs.
    ///
    /// # Errors
    /// If it no longer exists, a privilege is missing, or it is not a page of this device.
    pub fn open(place: &PageId) -> Result<Self, Error> {
        Self::mapped(place, |fd| Map::new(BYTES, Some((fd, 0))))
    }

    /// Opens a page to read gauges.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_to_read(place: &PageId) -> Result<Self, Error> {
        Self::mapped(place, |fd| Map::to_read(BYTES, fd))
    }

    fn mapped(place: &PageId, map: impl Fn(&OwnedFd) -> io::Result<Map>) -> Result<Self, Error> {
        let fd = bpf::existing(place.map).map_err(|e| refused(&e))?;
        let is = bpf::map_info(&fd).map_err(|e| refused(&e))?;
        // The kernel may have given the ID in the state file to another map.
        let other = || {
            let dev = host::name(place.device).unwrap_or_default();
            let what = format!("the BPF map {} is not a page of this device", place.map);
            Error::new(what)
                .key(&dev)
                .remedy(format!("quell detach {}, then attach again", quoted(&dev)))
        };
        if !is.is_array(PAGE, num::count(BYTES), place.slots) {
            return Err(other());
        }
        let page = Self {
            memory: map(&fd).map_err(|e| refused(&e))?,
            slots: place.slots.min(SLOTS),
            name: place.name.to_owned(),
        };
        let device = |slot: &Slot<'_>| slot.short(DEVICE).load(Ordering::Relaxed);
        let foreign = |slot: Slot<'_>| slot.is_present() && device(&slot) != place.device;
        if page.slots().any(foreign) {
            return Err(other());
        }
        Ok(page)
    }

    /// For tests: a page in private memory, with the first queue of a device.
    #[cfg(test)]
    pub fn made(name: &str, device: u32) -> Self {
        let page = Self {
            memory: Map::new(BYTES * SLOTS as usize, None).expect("memory"),
            slots: 1,
            name: name.to_owned(),
        };
        for slot in page.slots() {
            slot.short(DEVICE).store(device, Ordering::Relaxed);
            slot.short(GAUGES).store(VERSION, Ordering::Relaxed);
        }
        page
    }

    /// The queues' parts of the page.
    pub fn slots(&self) -> impl Iterator<Item = Slot<'_>> {
        // At least a page of memory is mapped, which holds the parts of as many queues as a device
        // can have.
        (0..self.slots as usize).map(|slot| Slot {
            page: self,
            at: slot * BYTES,
        })
    }

    /// The gauges of a device's discipline of this kind and handle, if this page has them.
    pub fn gauges(&self, device: u32, kind: &str, handle: u32, now: Instant) -> Option<Gauges> {
        let slot = handle >> 16 & (SLOTS - 1);
        let slot = self.slots().nth(slot as usize)?;
        let same = kind.strip_prefix(KIND) == Some(&self.name);
        let here = slot.is_present() && slot.short(DEVICE).load(Ordering::Relaxed) == device;
        (same && here).then(|| slot.gauges(now))
    }
}

/// Turns a refusal of the kernel into an error for the user.
fn refused(error: &io::Error) -> Error {
    match error.raw_os_error() {
        // BPF_MAP_GET_FD_BY_ID requires it.
        Some(libc::EPERM) => {
            Error::new("gauges and knobs of attached queues need root (CAP_SYS_ADMIN)")
                .remedy("write sudo before it")
        }
        Some(libc::ENOENT) => {
            Error::new("it no longer exists: another program has removed it").remedy("quell detach")
        }
        _ => Error::new(format!("BPF: {}", host::reason(error))),
    }
}

/// A queue's part of the page.
pub struct Slot<'a> {
    page: &'a Page,
    at: usize,
}

impl Slot<'_> {
    fn long(&self, at: usize) -> &AtomicU64 {
        // SAFETY: within the part and aligned as in the C structure; this shared memory is only
        // accessed as atomics.
        unsafe { AtomicU64::from_ptr(self.page.memory.at.add(self.at + at).cast()) }
    }

    fn short(&self, at: usize) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { AtomicU32::from_ptr(self.page.memory.at.add(self.at + at).cast()) }
    }

    /// Sets the given knobs.
    pub fn set(&self, knobs: &Knobs) {
        if let Some(rate) = knobs.rate {
            self.long(RATE)
                .store(rate.bytes_per_sec(), Ordering::Relaxed);
        }
        if let Some(limit) = knobs.limit {
            self.short(LIMIT).store(limit, Ordering::Relaxed);
        }
    }

    /// Drops packets on arrival with this probability, in units of 2^-32, as long as steering is
    /// valid.
    pub fn steer(&self, drop: u64) {
        let drop = num::low_u32(drop.min(u32::MAX.into()));
        self.short(STEERED_DROP).store(drop, Ordering::Relaxed);
    }

    /// Makes steering valid until `time` (CLOCK_MONOTONIC). Until then the queue's own law does
    /// not decide.
    pub fn valid_until(&self, time: Instant) {
        self.long(VALID_UNTIL)
            .store(time.as_nanos(), Ordering::Relaxed);
    }

    /// Rate to which the queue is shaped; 0: not shaped.
    pub fn rate(&self) -> Rate {
        Rate::from_bytes_per_sec(self.long(RATE).load(Ordering::Relaxed))
    }

    /// Packets that the queue's law or [`Self::steer`] dropped.
    pub fn drops(&self) -> u64 {
        self.long(GAUGES + 56).load(Ordering::Relaxed)
    }

    /// Makes the law mark packets; the program at clsact must be attached.
    pub fn mark(&self) {
        self.short(FLAGS).fetch_or(MARK_NEXT, Ordering::Relaxed);
    }

    /// Whether a queue uses this part.
    pub fn is_present(&self) -> bool {
        self.short(GAUGES).load(Ordering::Relaxed) == VERSION
    }

    /// The gauges at `now` (CLOCK_MONOTONIC).
    pub fn gauges(&self, now: Instant) -> Gauges {
        let long = |at| self.long(at).load(Ordering::Relaxed);
        let short = |at| self.short(at).load(Ordering::Relaxed);
        Gauges(TABLE.map(|(_, at, form, of)| {
            if !of.is_empty() && !of.contains(&self.page.name.as_str()) {
                return None;
            }
            let steered = now < Instant::from_nanos(long(VALID_UNTIL));
            if at == STEERED_DROP && !steered {
                return None;
            }
            Some(match (at, form) {
                (VALID_UNTIL, _) => Value::Count(steered.into()),
                (UPDATED, _) => {
                    let updated = Instant::from_nanos(Some(long(at)).filter(|at| *at > 0)?);
                    Value::Count(now.saturating_since(updated).as_nanos())
                }
                (_, Long) => Value::Count(long(at)),
                (_, Form::Some) => Value::Count(Some(long(at)).filter(|value| *value < u64::MAX)?),
                (_, Set) => Value::Count(Some(long(at)).filter(|value| *value > 0)?),
                (_, Short) => Value::Count(short(at).into()),
                (_, ShortSet) => Value::Count(Some(short(at)).filter(|value| *value > 0)?.into()),
                (_, Share(bits)) => Value::Share(f64::from(short(at)) / 2f64.powi(bits)),
            })
        }))
    }

    /// The gauges as a JSON object.
    pub fn json(&self, now: Instant) -> Json {
        let mut line = Object::new();
        line.insert("present".into(), self.is_present().into());
        self.gauges(now).each(&mut |name, value| {
            let value: Json = match value {
                Value::Count(count) => count.into(),
                Value::Signed(number) => number.into(),
                Value::Share(share) => share.into(),
            };
            line.insert(name.into(), value);
        });
        line.into()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const LAYOUT: &str = include_str!("../../../quell-qdisc/bpf/page.h");

    /// The fields of a structure of page.h, with offsets and sizes.
    fn fields(of: &str) -> BTreeMap<&'static str, (usize, usize)> {
        let begins = format!("struct {of} {{\n");
        let body = LAYOUT.split(&begins).nth(1).expect("the structure");
        let body = body.split("\n}").next().expect("its end");
        let mut at = 0;
        let mut found = BTreeMap::new();
        for line in body.lines() {
            let mut words = line.trim().split([' ', ';']);
            let size = match words.next() {
                Some("u32") => 4,
                Some("u64") => 8,
                _ => continue,
            };
            let name = words.next().expect("a name");
            found.insert(name, (at, size));
            at += size;
        }
        found
    }

    #[test]
    fn every_gauge_of_the_page_is_shown_from_where_it_is() {
        let bits = |form| match form {
            Long | Form::Some | Set => 8,
            Short | ShortSet | Share(_) => 4,
        };
        let gauges = fields("quell_gauges");
        for (name, (at, size)) in &gauges {
            if ["version", "ifindex", "updated", "reserved[4]"].contains(name) {
                continue;
            }
            let named = |(known, ..): &&(&str, usize, Form, Of)| {
                known == name
                    || known.strip_suffix("_ns").is_some_and(|base| base == *name)
                    || (*known, *name) == ("rate_bytes", "rate")
            };
            let (_, shown, form, _) = TABLE.iter().find(named).expect(name);
            assert_eq!((*shown, bits(*form)), (GAUGES + at, *size), "{name}");
        }
        assert_eq!(GAUGES + gauges["ifindex"].0, DEVICE);
        assert_eq!(GAUGES + gauges["updated"].0, UPDATED);
        let knobs = fields("quell_knobs");
        let names = ["rate", "valid_until", "limit", "flags", "steered_drop"];
        let at = names.map(|name| knobs[name].0);
        assert_eq!(at, [RATE, VALID_UNTIL, LIMIT, FLAGS, STEERED_DROP]);
    }

    #[test]
    fn a_map_that_is_not_a_page_of_the_device_is_not_opened() {
        fn saved(map: &OwnedFd, device: u32, slots: u32) -> PageId<'static> {
            PageId {
                map: bpf::id(map).expect("its number"),
                device,
                slots,
                name: "fifo",
            }
        }
        let made = |name: &str, bytes| bpf::array(name, bytes, 2, bpf::MAPPED, None);
        let page = match made(PAGE, BYTES as u32) {
            Ok(page) => page,
            Err(error) => return println!("not tried: no BPF maps here: {error}"),
        };
        let said = |place: &PageId| Page::open(place).err().map(|error| error.to_string());
        assert_eq!(said(&saved(&page, 1, 2)), None);
        for (map, slots) in [
            (made("other", BYTES as u32), 2),
            (made(PAGE, 64), 2),
            (Ok(page), 1),
        ] {
            let map = map.expect("a map");
            let why = said(&saved(&map, 1, slots)).expect("refused");
            assert!(why.contains("is not a page of this device"), "{why}");
        }
        let page = made(PAGE, BYTES as u32).expect("a map");
        let mut bytes = [0; BYTES];
        bytes[GAUGES..GAUGES + 4].copy_from_slice(&VERSION.to_ne_bytes());
        bytes[DEVICE..DEVICE + 4].copy_from_slice(&7u32.to_ne_bytes());
        bpf::update(&page, 1, &bytes).expect("written");
        assert_eq!(said(&saved(&page, 7, 2)), None);
        assert!(said(&saved(&page, 8, 2)).is_some(), "another device's");
    }

    #[test]
    fn gauges_are_those_of_the_discipline_and_none_where_there_is_none() {
        let page = Page::made("hush", 7);
        let slot = page.slots().next().expect("a queue");
        slot.set(&Knobs {
            rate: Some(Rate::from_bytes_per_sec(1_000_000)),
            limit: None,
        });
        let long = |at, value| slot.long(at).store(value, Ordering::Relaxed);
        long(GAUGES + 104, 8_250_000);
        long(GAUGES + 128, u64::MAX);
        slot.short(GAUGES + 136).store(1 << 28, Ordering::Relaxed);
        long(UPDATED, 40);
        slot.steer(1 << 30);
        slot.valid_until(Instant::from_nanos(60));
        let read = |now| page.gauges(7, "quell_hush", 0x9E00 << 16, Instant::from_nanos(now));
        let now = Instant::from_nanos(50);
        let gauges = read(50).expect("it is there");
        assert_eq!(gauges.get("target_ns"), Some(8_250_000.0));
        assert_eq!(gauges.get("idle"), Some(0.25));
        assert_eq!(gauges.get("knob_rate_bytes"), Some(1e6));
        assert_eq!(
            (gauges.get("age_ns"), gauges.get("steered")),
            (Some(10.0), Some(1.0))
        );
        let after = read(70).expect("it is there");
        assert_eq!(
            (after.get("steered"), after.get("steered_drop")),
            (Some(0.0), None)
        );
        // There is no cap and no limit; the probability is another discipline's.
        for name in ["cap_ns", "knob_limit_packets", "probability", "nonsense"] {
            assert_eq!(gauges.get(name), None, "{name}");
        }
        let said = gauges.describe();
        assert!(
            said.starts_with("target 8.2 ms, wait 0.0 ms, hold 0.0 ms, idle 25.0 %"),
            "{said}"
        );
        assert!(
            said.ends_with("CoDel decides, steered: drops 25.0 %"),
            "{said}"
        );
        assert_eq!(gauges.get("steered_drop"), Some(0.25));
        let json = slot.json(now);
        assert_eq!(
            (&json["present"], &json["target_ns"]),
            (&true.into(), &8_250_000.into())
        );

        assert_eq!(page.gauges(8, "quell_hush", 0, now), None, "another device");
        assert_eq!(
            page.gauges(7, "quell_codel", 0, now),
            None,
            "another discipline"
        );
        assert_eq!(
            page.gauges(7, "quell_hush", 1 << 16, now),
            None,
            "another queue"
        );
        slot.short(GAUGES).store(0, Ordering::Relaxed);
        assert_eq!(read(50), None, "it was taken away");
    }
}
