//! Options of each kind of discipline that can be changed at run time: tables, and the encoding in
//! `TCA_OPTIONS` (linux/pkt_sched.h).
//!
//! The tables only have options whose change keeps the discipline's backlog and state
//! (docs/lab/kernel.md has the measurements).

use quell_qdisc::num;
use quell_qdisc::time::Duration;
use serde::{Deserialize, Serialize};

use crate::rtnetlink::message::{attributes, u32_at, u64_at};
use crate::rtnetlink::request::put;

mod charge;

pub use charge::Charge;

/// A setting that can be steered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Knob {
    /// Most packets, or bytes, in the queue.
    Limit,
    /// Target delay of the discipline's own law.
    Target,
    /// Rate of the shaper.
    Rate,
    /// Drop probability before the queue: not an option of a discipline, but of quell's program at
    /// clsact.
    Drop,
}

impl Knob {
    /// All knobs.
    pub const ALL: [Self; 4] = [Self::Limit, Self::Target, Self::Rate, Self::Drop];

    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Knob::Limit => "limit",
            Knob::Target => "target",
            Knob::Rate => "rate",
            Knob::Drop => "drop",
        }
    }
}

/// Values of knobs in the kernel's units: a limit in packets or bytes ([`Kind::limits_bytes`]), a
/// target in microseconds, a rate in bytes per second, a probability in units of 2^-32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Values([Option<u64>; 4]);

impl Values {
    /// The value of a knob, if it has one.
    pub fn get(&self, knob: Knob) -> Option<u64> {
        self.0[knob as usize]
    }

    /// Sets a knob's value.
    pub fn set(&mut self, knob: Knob, value: u64) {
        self.0[knob as usize] = Some(value);
    }

    /// The value of one knob.
    pub fn of(knob: Knob, value: u64) -> Self {
        let mut values = Self::default();
        values.set(knob, value);
        values
    }

    /// The values without that of one knob.
    pub fn without(mut self, knob: Knob) -> Self {
        self.0[knob as usize] = None;
        self
    }

    /// The knobs that have a value, with it.
    pub fn each(&self) -> impl Iterator<Item = (Knob, u64)> {
        let all = Knob::ALL.into_iter();
        all.filter_map(|knob| Some((knob, self.get(knob)?)))
    }
}

/// Encoding of a knob in a discipline's options.
#[derive(Clone, Copy, Debug)]
enum Form {
    /// The only 32-bit word (struct tc_fifo_qopt).
    Word,
    /// An attribute of 32 bits.
    U32(u16),
    /// An attribute of 64 bits.
    U64(u16),
    /// A time that the kernel keeps in units of 2^10 ns (CODEL_SHIFT).
    Codel(u16),
    /// A time that the kernel keeps in units of 2^6 ns (PSCHED_SHIFT).
    Ticks(u16),
    /// The limit of dualpi2, a change of which would also set the memory limit.
    DualPi2,
    /// The limit in struct tc_tbf_qopt.
    TbfLimit,
    /// The rate in struct tc_tbf_qopt.
    TbfRate,
    /// The rate in struct tc_htb_opt.
    HtbRate,
}

/// A kind of discipline, or of class.
#[derive(Debug)]
pub struct Kind {
    /// The kernel's name.
    pub name: &'static str,
    /// Whether this is a class of the kind, not the discipline.
    pub class: bool,
    /// Shortest time between two changes.
    pub least: Duration,
    knobs: &'static [(Knob, Form)],
}

/// Shortest interval at which measured changes had no side effect.
const MIN_INTERVAL: Duration = Duration::from_millis(2);

const fn row(name: &'static str, knobs: &'static [(Knob, Form)]) -> Kind {
    Kind {
        name,
        class: false,
        least: MIN_INTERVAL,
        knobs,
    }
}

/// Every kind that can be steered.
pub const KINDS: &[Kind] = &[
    row("pfifo", &[(Knob::Limit, Form::Word)]),
    row("bfifo", &[(Knob::Limit, Form::Word)]),
    row(
        "codel",
        &[(Knob::Limit, Form::U32(2)), (Knob::Target, Form::Codel(1))],
    ),
    row(
        "pie",
        &[(Knob::Limit, Form::U32(2)), (Knob::Target, Form::Ticks(1))],
    ),
    row(
        "fq_codel",
        &[(Knob::Limit, Form::U32(2)), (Knob::Target, Form::Codel(1))],
    ),
    row(
        "fq_pie",
        &[(Knob::Limit, Form::U32(1)), (Knob::Target, Form::Ticks(3))],
    ),
    row("fq", &[(Knob::Limit, Form::U32(1))]),
    row(
        "dualpi2",
        &[(Knob::Limit, Form::DualPi2), (Knob::Target, Form::U32(3))],
    ),
    row(
        "cake",
        &[(Knob::Rate, Form::U64(2)), (Knob::Target, Form::U32(8))],
    ),
    Kind {
        name: "htb",
        class: true,
        least: MIN_INTERVAL,
        knobs: &[(Knob::Rate, Form::HtbRate)],
    },
    // Each change refills the bucket: 7.5 % more than the rate with changes every 100 ms, 1.5 %
    // every 500 ms.
    Kind {
        name: "tbf",
        class: false,
        least: Duration::from_millis(500),
        knobs: &[(Knob::Limit, Form::TbfLimit), (Knob::Rate, Form::TbfRate)],
    },
];

/// A discipline of any kind, none of whose options is changed.
pub static ANY: Kind = row("", &[]);

/// The reason why a kind cannot be steered.
pub fn why_not(kind: &str) -> &'static str {
    match kind {
        "red" => "each change empties the queue",
        "sfq" => "the kernel refuses to change it while it runs",
        "noqueue" | "ingress" | "clsact" => "it holds no packets",
        "pfifo_fast" | "mq" | "prio" => "it has no such option",
        "htb" => "its classes have the rates, and queues below them the limits",
        _ => "what a change does to it has not been measured",
    }
}

const DUALPI2_MEMORY: u16 = 2;
/// Attribute that holds the structure of tbf or htb.
const PARMS: u16 = 1;
// struct tc_tbf_qopt: two struct tc_ratespec, then limit, buffer, mtu.
const TBF: usize = 36;
const TBF_LIMIT: usize = 24;
const TBF_BUFFER: usize = 28;
const TBF_RATE64: u16 = 4;
const TBF_PEAK64: u16 = 5;
const TBF_BURST: u16 = 6;
// struct tc_htb_opt: two struct tc_ratespec, then buffer, cbuffer, quantum, level, prio.
const HTB: usize = 44;
const HTB_BUFFER: usize = 24;
const HTB_LEVEL: usize = 36;
const HTB_RATE64: u16 = 6;
const HTB_CEIL64: u16 = 7;
const LARGEST_PACKET: u128 = 1 << 16;
/// Offset of the rate (bytes/s) in struct tc_ratespec, and the size of that structure.
const RATE: usize = 8;
const SPEC: usize = 12;

/// The structure of tbf with the steered fields zeroed, then the 64-bit rate and peak rate that do
/// not fit into it, bytes/s.
type OthersOfTbf = ([u8; TBF], Option<u64>, Option<u64>);

impl Kind {
    /// The kind of this name, if it can be steered.
    pub fn find(name: &str, class: bool) -> Option<&'static Self> {
        let mut all = KINDS.iter();
        all.find(|kind| kind.name == name && kind.class == class)
    }

    /// The knobs of the kind.
    pub fn knobs(&self) -> impl Iterator<Item = Knob> {
        self.knobs.iter().map(|(knob, _)| *knob)
    }

    /// Whether the limit is in bytes.
    pub fn limits_bytes(&self) -> bool {
        matches!(self.name, "bfifo" | "tbf")
    }

    fn form(&self, knob: Knob) -> Option<Form> {
        let mut all = self.knobs.iter();
        all.find(|(has, _)| *has == knob).map(|(_, form)| *form)
    }

    /// A knob's value in these options; `None` if the kernel did not send it.
    pub fn read(&self, options: &[u8], knob: Knob) -> Option<u64> {
        let parms = || attribute(options, PARMS).filter(|parms| parms.len() >= TBF);
        Some(match self.form(knob)? {
            Form::Word => u32::from_ne_bytes(*options.first_chunk()?).into(),
            Form::U32(at) | Form::Codel(at) | Form::Ticks(at) => word(options, at)?,
            Form::DualPi2 => word(options, 1)?,
            Form::U64(at) => u64::from_ne_bytes(*attribute(options, at)?.first_chunk()?),
            Form::TbfLimit => u32_at(parms()?, TBF_LIMIT).into(),
            Form::TbfRate => rate(options, parms()?, 0, TBF_RATE64),
            Form::HtbRate => rate(options, parms()?, 0, HTB_RATE64),
        })
    }

    /// The values of these knobs in these options, as far as the kernel sent them.
    pub fn values(&self, options: &[u8], knobs: &[Knob]) -> Values {
        let mut values = Values::default();
        for knob in knobs {
            if let Some(value) = self.read(options, *knob) {
                values.set(*knob, value);
            }
        }
        values
    }

    /// For kinds whose options are one structure (tbf, htb): whether the present options `is`
    /// differ from the original ones `was` by more than changes of these knobs explain. Another
    /// program has then changed other options, which quell's next change would overwrite.
    pub fn others_differ(&self, was: &[u8], is: &[u8], knobs: &[Knob]) -> bool {
        match self.name {
            "tbf" => Self::others_of_tbf(was, knobs) != Self::others_of_tbf(is, knobs),
            "htb" => {
                let mut left = Vec::new();
                htb(&mut left, was, &self.values(is, knobs));
                class_of_htb(&left) != class_of_htb(is)
            }
            _ => false,
        }
    }

    fn others_of_tbf(options: &[u8], knobs: &[Knob]) -> Option<OthersOfTbf> {
        let mut parms = structure::<TBF>(options)?;
        let (mut rate, peak) = (attribute(options, TBF_RATE64), TBF_PEAK64);
        if knobs.contains(&Knob::Limit) {
            write_u32(&mut parms, TBF_LIMIT, 0);
        }
        if knobs.contains(&Knob::Rate) {
            write_u32(&mut parms, RATE, 0);
            // The bucket is a time, which depends on the rate.
            write_u32(&mut parms, TBF_BUFFER, 0);
            rate = None;
        }
        let long = |value: &[u8]| u64_at(value, 0);
        Some((parms, rate.map(long), attribute(options, peak).map(long)))
    }

    /// The value that the kernel reports after this one was set.
    pub fn stored(&self, knob: Knob, value: u64) -> u64 {
        let kept = |shift: u32| (value.saturating_mul(1000) >> shift << shift) / 1000;
        match self.form(knob) {
            Some(Form::Codel(_)) => kept(10),
            Some(Form::Ticks(_)) => kept(6),
            _ => value,
        }
    }

    /// The value to set so that the kernel reports this one.
    fn reported(&self, knob: Knob, value: u64) -> u64 {
        match self.stored(knob, value) {
            stored if stored == value => value,
            _ => value + 1,
        }
    }

    /// Whether the size of the bucket cannot be read from these options: tbf reports it as the time
    /// to fill it at the rate, modulo 2^32 ticks of 64 ns. Below about 2 kbit/s the time of a
    /// largest packet exceeds that.
    pub fn hides_bucket(&self, options: &[u8]) -> bool {
        let longest = u64::from(u32::MAX) << 6;
        let held = |rate: u64| u128::from(rate) * u128::from(longest) / 1_000_000_000;
        let rate = self.read(options, Knob::Rate);
        self.name == "tbf" && rate.is_some_and(|rate| held(rate) < LARGEST_PACKET)
    }

    /// Writes the options that set these values in a discipline whose options were `was` before
    /// anything was changed. Other options stay as they are or, in structures, become those of
    /// `was`.
    pub fn write(&self, out: &mut Vec<u8>, was: &[u8], values: &Values) {
        match self.name {
            "tbf" => self.tbf(out, was, values),
            "htb" => htb(out, was, values),
            _ => {
                for (knob, value) in values.each() {
                    self.put(out, was, knob, value);
                }
            }
        }
    }

    /// Writes the options that restore these knobs.
    pub fn restore(&self, out: &mut Vec<u8>, was: &[u8], knobs: &[Knob]) {
        let mut values = Values::default();
        for (knob, value) in self.values(was, knobs).each() {
            values.set(knob, self.reported(knob, value));
        }
        self.write(out, was, &values);
    }

    fn put(&self, out: &mut Vec<u8>, was: &[u8], knob: Knob, value: u64) {
        let short = num::low_u32(value.min(u32::MAX.into())).to_ne_bytes();
        match self.form(knob) {
            Some(Form::Word) => out.extend(short),
            Some(Form::U32(at) | Form::Codel(at) | Form::Ticks(at)) => put(out, at, &short),
            Some(Form::U64(at)) => put(out, at, &value.to_ne_bytes()),
            Some(Form::DualPi2) => {
                put(out, 1, &short);
                if let Some(memory) = attribute(was, DUALPI2_MEMORY) {
                    put(out, DUALPI2_MEMORY, memory);
                }
            }
            Some(Form::TbfLimit | Form::TbfRate | Form::HtbRate) | None => {}
        }
    }

    fn tbf(&self, out: &mut Vec<u8>, was: &[u8], values: &Values) {
        let Some(mut parms) = structure::<TBF>(was) else {
            return;
        };
        if let Some(limit) = values.get(Knob::Limit) {
            write_u32(&mut parms, TBF_LIMIT, limit);
        }
        let before = rate(was, &parms, 0, TBF_RATE64);
        let now = values.get(Knob::Rate).unwrap_or(before).max(1);
        write_u32(&mut parms, RATE, now);
        put(out, PARMS, &parms);
        long(out, TBF_RATE64, now);
        if let Some(peak) = attribute(was, TBF_PEAK64) {
            put(out, TBF_PEAK64, peak);
        }
        if now != before {
            // The bucket is a time in the structure; its size in bytes is kept.
            let ns = u128::from(u32_at(&parms, TBF_BUFFER)) << 6;
            let bytes = ns * u128::from(before) / 1_000_000_000;
            let bytes = num::low_u32(num::low_u64(bytes.min(u32::MAX.into())));
            put(out, TBF_BURST, &bytes.to_ne_bytes());
        }
    }
}

fn htb(out: &mut Vec<u8>, was: &[u8], values: &Values) {
    let Some(mut parms) = structure::<HTB>(was) else {
        return;
    };
    let before = rate(was, &parms, 0, HTB_RATE64);
    let now = values.get(Knob::Rate).unwrap_or(before).max(1);
    let ceil_before = rate(was, &parms, SPEC, HTB_CEIL64);
    // A class that cannot borrow (ceil = rate) still cannot. Another one keeps its ceil, which is
    // raised to a newly set rate if it is below that.
    let ceil = if ceil_before == before {
        now
    } else if now == before {
        ceil_before
    } else {
        ceil_before.max(now)
    };
    for (at, before, now) in [
        (HTB_BUFFER, before, now),
        (HTB_BUFFER + 4, ceil_before, ceil),
    ] {
        // Both fields are times. Neither the times nor the corresponding numbers of bytes may
        // decrease.
        let time = u128::from(u32_at(&parms, at));
        let same_bytes = time * u128::from(before) / u128::from(now.max(1));
        write_u32(
            &mut parms,
            at,
            num::low_u64(same_bytes.max(time).min(u32::MAX.into())),
        );
    }
    write_u32(&mut parms, RATE, now);
    write_u32(&mut parms, SPEC + RATE, ceil);
    put(out, PARMS, &parms);
    long(out, HTB_RATE64, now);
    long(out, HTB_CEIL64, ceil);
}

/// The ceil of an htb class, bytes/s.
pub fn ceil_of_htb(options: &[u8]) -> Option<u64> {
    let parms = attribute(options, PARMS).filter(|parms| parms.len() >= HTB)?;
    Some(rate(options, parms, SPEC, HTB_CEIL64))
}

/// The largest rate that the kernel accepts for a tbf, bytes/s: below its peak rate, if it has one.
pub fn most_of_tbf(options: &[u8]) -> Option<u64> {
    let parms = attribute(options, PARMS).filter(|parms| parms.len() >= TBF)?;
    rate(options, parms, SPEC, TBF_PEAK64).checked_sub(1)
}

/// The structure of an htb class without its level, which depends on the classes below it, and its
/// rate and ceil, bytes/s.
fn class_of_htb(options: &[u8]) -> Option<([u8; HTB], u64, u64)> {
    let mut parms = structure::<HTB>(options)?;
    let rates = [(0, HTB_RATE64), (SPEC, HTB_CEIL64)];
    let [own, ceil] = rates.map(|(spec, long)| rate(options, &parms, spec, long));
    write_u32(&mut parms, HTB_LEVEL, 0);
    Some((parms, own, ceil))
}

fn attribute(options: &[u8], wanted: u16) -> Option<&[u8]> {
    let mut all = attributes(options);
    all.find(|(kind, _)| *kind == wanted)
        .map(|(_, value)| value)
}

fn word(options: &[u8], at: u16) -> Option<u64> {
    let value = attribute(options, at)?.first_chunk()?;
    Some(u32::from_ne_bytes(*value).into())
}

/// A rate in a structure, or in its own attribute if 32 bits are not enough.
fn rate(options: &[u8], parms: &[u8], spec: usize, long: u16) -> u64 {
    let beside = attribute(options, long).map(|value| u64_at(value, 0));
    beside.unwrap_or(u32_at(parms, spec + RATE).into())
}

fn structure<const N: usize>(options: &[u8]) -> Option<[u8; N]> {
    attribute(options, PARMS)?.first_chunk().copied()
}

fn write_u32(bytes: &mut [u8], at: usize, value: u64) {
    let value = num::low_u32(value.min(u32::MAX.into()));
    if let Some(place) = bytes.get_mut(at..at + 4) {
        place.copy_from_slice(&value.to_ne_bytes());
    }
}

/// Appends an attribute of 64 bits if 32 are not enough.
fn long(out: &mut Vec<u8>, kind: u16, value: u64) {
    if value > u32::MAX.into() {
        put(out, kind, &value.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(super) fn attrs(list: &[(u16, &[u8])]) -> Vec<u8> {
        let mut out = Vec::new();
        for (kind, value) in list {
            put(&mut out, *kind, value);
        }
        out
    }

    pub(super) fn kind(name: &str) -> &'static Kind {
        Kind::find(name, name == "htb").expect("a kind")
    }

    fn limit(value: u64) -> Values {
        let mut values = Values::default();
        values.set(Knob::Limit, value);
        values
    }

    fn rated(value: u64) -> Values {
        let mut values = Values::default();
        values.set(Knob::Rate, value);
        values
    }

    fn written(name: &str, was: &[u8], values: &Values) -> Vec<u8> {
        let mut out = Vec::new();
        kind(name).write(&mut out, was, values);
        out
    }

    /// Number of an attribute: its place in an enum of the header, after the entry `_UNSPEC`, which
    /// is 0. `None` if the header is older than the attribute.
    fn number(header: &str, name: &str) -> Option<u16> {
        let mut number = 0;
        for line in header.lines().map(str::trim) {
            let entry = line.split(',').next().unwrap_or_default();
            match entry {
                _ if entry.ends_with("_UNSPEC") => number = 0,
                _ if entry == name => return Some(number + 1),
                _ if entry.starts_with("TCA_") => number += 1,
                _ => {}
            }
        }
        None
    }

    #[test]
    fn attributes_have_the_numbers_of_the_kernels_header() {
        let Ok(header) = std::fs::read_to_string("/usr/include/linux/pkt_sched.h") else {
            println!("skipped: no linux/pkt_sched.h");
            return;
        };
        let mut found = 0;
        for (name, knob, attribute) in [
            ("codel", Knob::Target, "TCA_CODEL_TARGET"),
            ("codel", Knob::Limit, "TCA_CODEL_LIMIT"),
            ("pie", Knob::Target, "TCA_PIE_TARGET"),
            ("pie", Knob::Limit, "TCA_PIE_LIMIT"),
            ("fq_codel", Knob::Target, "TCA_FQ_CODEL_TARGET"),
            ("fq_codel", Knob::Limit, "TCA_FQ_CODEL_LIMIT"),
            ("fq_pie", Knob::Target, "TCA_FQ_PIE_TARGET"),
            ("fq_pie", Knob::Limit, "TCA_FQ_PIE_LIMIT"),
            ("fq", Knob::Limit, "TCA_FQ_PLIMIT"),
            ("dualpi2", Knob::Target, "TCA_DUALPI2_TARGET"),
            ("dualpi2", Knob::Limit, "TCA_DUALPI2_LIMIT"),
            ("cake", Knob::Rate, "TCA_CAKE_BASE_RATE64"),
            ("cake", Knob::Target, "TCA_CAKE_TARGET"),
        ] {
            let change = written(name, &[], &Values::of(knob, 1));
            let (kind, _) = attributes(&change).next().expect("an attribute");
            let number = number(&header, attribute);
            assert!(number.is_none_or(|number| number == kind), "{attribute}");
            found += usize::from(number.is_some());
        }
        let fixed = [
            (PARMS, "TCA_TBF_PARMS"),
            (TBF_RATE64, "TCA_TBF_RATE64"),
            (TBF_PEAK64, "TCA_TBF_PRATE64"),
            (TBF_BURST, "TCA_TBF_BURST"),
            (PARMS, "TCA_HTB_PARMS"),
            (HTB_RATE64, "TCA_HTB_RATE64"),
            (HTB_CEIL64, "TCA_HTB_CEIL64"),
            (DUALPI2_MEMORY, "TCA_DUALPI2_MEMORY_LIMIT"),
        ];
        for (kind, attribute) in fixed.into_iter().chain(charge::ATTRIBUTES) {
            let number = number(&header, attribute);
            assert!(number.is_none_or(|number| number == kind), "{attribute}");
            found += usize::from(number.is_some());
        }
        // An older header lacks those of dualpi2.
        assert!(found >= 22, "{found}");
    }

    #[test]
    fn a_change_names_nothing_but_the_knob() {
        assert_eq!(written("pfifo", &[0; 4], &limit(7)), 7u32.to_ne_bytes());
        let codel = written("codel", &[], &limit(30));
        assert_eq!(codel, attrs(&[(2, &30u32.to_ne_bytes())]));
        let cake = written("cake", &[], &rated(250_000));
        assert_eq!(cake, attrs(&[(2, &250_000u64.to_ne_bytes())]));
    }

    #[test]
    fn the_memory_limit_of_dualpi2_stays_what_it_was() {
        let was = attrs(&[(1, &10_000u32.to_ne_bytes()), (2, &77u32.to_ne_bytes())]);
        let changed = written("dualpi2", &was, &limit(50));
        assert_eq!(word(&changed, 1), Some(50));
        assert_eq!(word(&changed, 2), Some(77));
    }

    /// A tbf with a rate of 1 MB/s and a bucket of 10 kB, which is 10 ms, in ticks of 64 ns.
    pub(super) fn tbf() -> Vec<u8> {
        let mut parms = [0; TBF];
        write_u32(&mut parms, RATE, 1_000_000);
        write_u32(&mut parms, TBF_LIMIT, 60_000);
        write_u32(&mut parms, TBF_BUFFER, 10_000_000 >> 6);
        attrs(&[(PARMS, &parms)])
    }

    #[test]
    fn the_bucket_of_tbf_keeps_its_bytes_at_another_rate() {
        let changed = written("tbf", &tbf(), &rated(2_000_000));
        assert_eq!(kind("tbf").read(&changed, Knob::Rate), Some(2_000_000));
        assert_eq!(kind("tbf").read(&changed, Knob::Limit), Some(60_000));
        assert_eq!(word(&changed, TBF_BURST), Some(10_000));
        let mut restored = Vec::new();
        kind("tbf").restore(&mut restored, &tbf(), &[Knob::Rate]);
        assert_eq!(restored, tbf(), "to the byte");
    }

    #[test]
    fn a_bucket_is_known_where_the_largest_packet_passes_within_the_time_that_is_reported() {
        let at = |rate: u64| {
            let mut parms = structure::<TBF>(&tbf()).expect("parameters");
            write_u32(&mut parms, RATE, rate);
            attrs(&[(PARMS, &parms)])
        };
        // 2^32 ticks of 64 ns are 274.9 s: 65,536 bytes at 238.4 bytes/s.
        for (rate, hidden) in [(0, true), (1, true), (238, true), (239, false)] {
            assert_eq!(kind("tbf").hides_bucket(&at(rate)), hidden, "{rate}");
        }
        assert!(!kind("tbf").hides_bucket(&[]), "of which nothing is known");
        assert!(!kind("cake").hides_bucket(&attrs(&[(2, &1u64.to_ne_bytes())])));
    }

    #[test]
    fn a_tbf_takes_no_rate_of_its_peak_rate_or_more() {
        assert_eq!(most_of_tbf(&tbf()), None);
        let mut parms = structure::<TBF>(&tbf()).expect("parameters");
        write_u32(&mut parms, SPEC + RATE, 250_000);
        assert_eq!(most_of_tbf(&attrs(&[(PARMS, &parms)])), Some(249_999));
        let long = 5_000_000_000_u64.to_ne_bytes();
        let long = attrs(&[(PARMS, &parms), (TBF_PEAK64, &long)]);
        assert_eq!(most_of_tbf(&long), Some(4_999_999_999));
    }

    #[test]
    fn a_rate_beyond_32_bits_is_beside_the_structure() {
        let changed = written("tbf", &tbf(), &rated(5_000_000_000));
        assert_eq!(kind("tbf").read(&changed, Knob::Rate), Some(5_000_000_000));
    }

    #[test]
    fn a_class_that_may_not_borrow_still_may_not_and_no_bucket_shrinks() {
        let mut parms = [0; HTB];
        for at in [RATE, SPEC + RATE] {
            write_u32(&mut parms, at, 1_000_000);
        }
        for at in [HTB_BUFFER, HTB_BUFFER + 4] {
            write_u32(&mut parms, at, 25_000);
        }
        let was = attrs(&[(PARMS, &parms)]);
        let slower = written("htb", &was, &rated(500_000));
        let new = structure::<HTB>(&slower).expect("parameters");
        assert_eq!(u32_at(&new, RATE), 500_000);
        assert_eq!(u32_at(&new, SPEC + RATE), 500_000);
        assert_eq!(u32_at(&new, HTB_BUFFER), 50_000, "the same bytes");
        let faster = written("htb", &was, &rated(2_000_000));
        let new = structure::<HTB>(&faster).expect("parameters");
        assert_eq!(u32_at(&new, HTB_BUFFER), 25_000, "the same time");
        // A class that may borrow keeps its ceil.
        write_u32(&mut parms, SPEC + RATE, 4_000_000);
        let was = attrs(&[(PARMS, &parms)]);
        let new = structure::<HTB>(&written("htb", &was, &rated(2_000_000))).expect("parameters");
        assert_eq!(u32_at(&new, SPEC + RATE), 4_000_000);
        // The ceil may be below the rate, too.
        for ceil in [4_000_000, 500_000] {
            write_u32(&mut parms, SPEC + RATE, ceil);
            let was = attrs(&[(PARMS, &parms)]);
            let mut restored = Vec::new();
            kind("htb").restore(&mut restored, &was, &[Knob::Rate]);
            assert_eq!(restored, was, "to the byte");
        }
    }

    #[test]
    fn another_ceil_of_a_class_is_distinguished_from_the_one_after_a_change_of_the_rate() {
        let class = |rate: u64, ceil: u64, level: u64| {
            let mut parms = [0; HTB];
            write_u32(&mut parms, RATE, rate);
            write_u32(&mut parms, SPEC + RATE, ceil);
            write_u32(&mut parms, HTB_BUFFER, 25_000);
            write_u32(&mut parms, HTB_BUFFER + 4, 25_000);
            write_u32(&mut parms, HTB_LEVEL, level);
            attrs(&[(PARMS, &parms)])
        };
        let differ = |was: &[u8], is: &[u8]| kind("htb").others_differ(was, is, &[Knob::Rate]);
        let was = class(1_000_000, 4_000_000, 0);
        for rate in [1_000_000, 2_000_000, 9_000_000] {
            let left = written("htb", &was, &rated(rate));
            assert!(!differ(&was, &left), "{rate}");
        }
        assert!(!differ(&was, &class(1_000_000, 4_000_000, 1)));
        assert!(!differ(&was, &class(2_000_000, 4_000_000, 0)));
        assert!(differ(&was, &class(2_000_000, 5_000_000, 0)));
        let alone = class(1_000_000, 1_000_000, 0);
        assert!(!differ(&alone, &class(2_000_000, 2_000_000, 0)));
        assert!(differ(&alone, &class(2_000_000, 1_000_000, 0)));
    }

    proptest! {
        /// The kernel reports the same target before a change and after its restoration.
        #[test]
        fn a_target_is_restored_to_the_reported_value(us in 1u64..10_000_000) {
            for name in ["codel", "pie", "fq_pie", "dualpi2"] {
                let kind = kind(name);
                let was = kind.stored(Knob::Target, us);
                prop_assert_eq!(kind.stored(Knob::Target, kind.reported(Knob::Target, was)), was);
            }
        }

        #[test]
        fn options_that_are_cut_short_or_random_do_no_harm(
            options in proptest::collection::vec(any::<u8>(), 0..200),
            value in any::<u64>(),
        ) {
            for kind in KINDS {
                let mut out = Vec::new();
                let mut values = kind.values(&options, &Knob::ALL);
                for knob in Knob::ALL {
                    values.set(knob, value);
                }
                kind.write(&mut out, &options, &values);
                kind.restore(&mut out, &options, &Knob::ALL);
                prop_assert!(out.len() < 400);
            }
        }
    }
}
