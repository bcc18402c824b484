//! A steered discipline or class: its gauges, and its previous, present and wanted settings.

use quell_qdisc::control::Control;
use quell_qdisc::rate::Rate;
use quell_qdisc::{Gauges, Knobs, Rng, num, time};

use super::super::watch::meter::{Meter, Rates};
use super::dropper::{Counts, PROBABILITY_ONE};
use super::source::{Bounds, Setting};
use crate::packet::echo::Answer;
use crate::rtnetlink::message::{Counters, Key, Queue};
use crate::rtnetlink::options::{Charge, Kind, Knob, Values};
use crate::rtnetlink::request::QdiscState;
use crate::rtnetlink::{tree, xstats};

/// A queue's present settings compared with what quell set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// The settings are as set.
    Same,
    /// A knob has another value.
    Other(Knob, u64),
    /// Another kind of discipline is in its place.
    Replaced,
    /// An option that is not steered has another value, which the next change would overwrite.
    Unsteered,
    /// A discipline below it has its own limit, which the next change would overwrite.
    LimitBelow,
}

/// A steered queue.
#[derive(Debug)]
pub struct Steered {
    /// State before anything was changed.
    pub found: QdiscState,
    /// Kind, with the options that can be changed.
    pub kind: &'static Kind,
    /// Name in messages.
    pub name: String,
    /// Whether quell has set the present options. Only then are they restored.
    pub ours: bool,
    /// Whether it was listed in the last sample.
    pub seen: bool,
    /// Number of changes made.
    pub changes: u64,
    knobs: Vec<Knob>,
    /// Previous values, present values as far as known, and wanted values, in the kernel's units.
    was: Values,
    set: Values,
    wanted: Values,
    changed_at: Option<time::Instant>,
    controller: Option<Box<dyn Control>>,
    rng: Rng,
    /// Size of a packet for conversion, if the kernel's limit is in bytes.
    packet: u64,
    line: Rate,
    /// Size of the link's header, bytes, and the charging of bytes if the rate is steered.
    header: u64,
    charge: Charge,
    /// Limit of its rate, and a description of the discipline or class that sets it.
    cap: Option<(Rate, String)>,
    /// Handles of this class and of the classes below it, if it is a class.
    classes: Vec<u32>,
    /// Disciplines below these classes, with their drops, and whether they were listed since the
    /// last sample.
    below: Vec<(Key, u32, bool)>,
    /// Packets that these disciplines have dropped since the last sample.
    lost: Option<u64>,
    meter: Meter,
    /// Time and counters of the last sample, and the bytes dropped until then (0: not reported).
    last: Option<(time::Instant, Counters, u64)>,
    gauges: Gauges,
}

impl Steered {
    /// A queue that was found; `name` is its name in messages, `packet` its largest packet, bytes.
    pub fn new(
        found: QdiscState,
        kind: &'static Kind,
        name: String,
        knobs: &[Knob],
        packet: u64,
    ) -> Self {
        let mut was = kind.values(&found.options, knobs);
        if knobs.contains(&Knob::Drop) {
            was.set(Knob::Drop, 0);
        }
        Self {
            found,
            kind,
            name,
            ours: true,
            seen: true,
            changes: 0,
            knobs: knobs.to_vec(),
            was,
            set: was,
            wanted: Values::default(),
            changed_at: None,
            controller: None,
            rng: Rng::new(1, "steer"),
            packet,
            line: Rate::ZERO,
            header: 0,
            charge: Charge::default(),
            cap: None,
            classes: Vec::new(),
            below: Vec::new(),
            lost: None,
            meter: Meter::default(),
            last: None,
            gauges: Gauges::default(),
        }
    }

    /// Sets the size of the link's header, bytes, which cake does not charge.
    pub fn with_header(mut self, header: u64) -> Self {
        self.header = header;
        self
    }

    /// Determines from the device's disciplines and classes (`rows`) the classes below it and the
    /// limit of its rate, if the rate is steered.
    pub fn with_place(mut self, rows: &[QdiscState]) -> Self {
        if self.knobs.contains(&Knob::Rate) {
            self.classes = tree::classes(rows, &self.found);
            let cap = tree::cap(rows, &self.found);
            self.cap = cap.map(|(rate, by)| (rate, tree::describe(by)));
        }
        self
    }

    /// The limit of its rate, for messages: `at most 20mbit, ...`.
    pub fn bound(&self) -> Option<String> {
        let (rate, by) = self.cap.as_ref()?;
        Some(format!("at most {rate}, the limit of {by}"))
    }

    /// Whether options of the discipline itself are changed.
    pub fn has_options(&self) -> bool {
        self.was.without(Knob::Drop) != Values::default()
    }

    /// Gives the queue a controller, which sets the first values; with `from_current_rate`, a
    /// control loop that sets a rate starts from the present one.
    pub fn set_controller(
        &mut self,
        mut controller: Box<dyn Control>,
        line: Rate,
        from_current_rate: bool,
        bounds: &[Bounds],
    ) {
        self.line = line;
        if let Some(rate) = self
            .was
            .get(Knob::Rate)
            .filter(|rate| *rate > 0 && from_current_rate)
        {
            controller.adopt(&Knobs {
                rate: Some(Rate::from_bps(self.shown(Knob::Rate, rate))),
                ..Knobs::KEEP
            });
        }
        let knobs = controller.initial();
        self.controller = Some(controller);
        self.want_all(&knobs, bounds);
    }

    /// Takes over what a controller sets.
    fn want_all(&mut self, knobs: &Knobs, bounds: &[Bounds]) {
        if let Some(limit) = knobs.limit_packets {
            self.want((Knob::Limit, limit.into()), bounds);
        }
        if let Some(rate) = knobs.rate {
            self.want((Knob::Rate, rate.bps()), bounds);
        }
        if let Some(drop) = knobs.drop {
            self.want(
                (Knob::Drop, num::whole_u64(drop * PROBABILITY_ONE as f64)),
                bounds,
            );
        }
    }

    /// Takes over the counts of the program at clsact, before the queue.
    pub fn dropped_before(&mut self, counts: Counts) {
        self.gauges.drops_early = counts.dropped;
        self.gauges.marks = counts.marked;
    }

    /// Whether the next change would overwrite the limit of the discipline `below`
    /// ([`tree::overwritten`]).
    pub fn overwrites(&self, below: &Queue<'_>) -> bool {
        let limit = tree::limit_below(&self.found, below.key, below.kind, below.options);
        let set = self.set.get(Knob::Limit);
        let own = set.or_else(|| self.kind.read(&self.found.options, Knob::Limit));
        limit.is_some() && limit != own
    }

    /// Counts the drops of a discipline below it, since an htb class counts packets that its
    /// discipline refuses but not those that it drops later.
    pub fn look_below(&mut self, row: &Queue<'_>) {
        if row.key.class || !self.classes.contains(&row.key.parent) {
            return;
        }
        let drops = row.counters.drops;
        let known = self.below.iter_mut().find(|(key, ..)| *key == row.key);
        let before = match known {
            Some((_, before, seen)) => {
                *seen = true;
                std::mem::replace(before, drops)
            }
            None => {
                self.below.push((row.key, drops, true));
                drops
            }
        };
        let new = drops.wrapping_sub(before);
        // A smaller count means that another discipline is in its place.
        let new = if new > u32::MAX / 2 { 0 } else { new };
        *self.lost.get_or_insert(0) += u64::from(new);
    }

    /// Evaluates a sample: compares the settings, and computes rates and gauges.
    pub fn look(&mut self, now: time::Instant, queue: &Queue<'_>) -> (Comparison, Rates) {
        self.seen = true;
        if queue.kind != self.found.kind || queue.stab != self.found.stab {
            return (Comparison::Replaced, Rates::default());
        }
        let rates = self.meter.sample(now, &queue.counters);
        if self.knobs.contains(&Knob::Rate) {
            self.charge = self.kind.charge(queue.options, self.header);
        }
        let arrived = xstats::arrived_bytes(queue.kind, queue.xstats);
        self.read(now, &queue.counters, arrived, &rates);
        let has = self.kind.values(queue.options, &self.knobs);
        let mut other = has
            .each()
            .filter(|(knob, value)| self.set.get(*knob) != Some(*value));
        let kind = self.kind;
        let look = match other.next() {
            Some((knob, value)) => Comparison::Other(knob, value),
            None if kind.others_differ(&self.found.options, queue.options, &self.knobs) => {
                Comparison::Unsteered
            }
            None => Comparison::Same,
        };
        (look, rates)
    }

    /// Updates the gauges. `arrived`: bytes that have arrived so far, if the kernel reports them.
    fn read(
        &mut self,
        now: time::Instant,
        counters: &Counters,
        arrived: Option<u64>,
        rates: &Rates,
    ) {
        let (g, charge) = (&mut self.gauges, self.charge);
        let lost = self.lost.take();
        self.below.retain_mut(|(.., seen)| std::mem::take(seen));
        // Fewer bytes than before mean that the queue was recreated.
        let last = self
            .last
            .filter(|(_, last, _)| counters.bytes >= last.bytes);
        let dropped_before = last.map_or(0, |(.., dropped)| dropped);
        // The counters need not be of the same instant, so the difference may fall for a moment.
        let left = counters.bytes + u64::from(counters.backlog_bytes);
        let dropped = arrived.map_or(0, |arrived| arrived.saturating_sub(left));
        let dropped = dropped.max(dropped_before);
        self.last = Some((now, *counters, dropped));
        if let Some((then, last, _)) = last {
            let (sent, packets) = (
                counters.bytes - last.bytes,
                counters.packets.saturating_sub(last.packets),
            );
            let drops = u64::from(counters.drops.wrapping_sub(last.drops));
            // A class's own drops are among those of the disciplines below it.
            let drops = lost.unwrap_or(drops);
            g.departed_bytes += charge.of(sent, packets);
            g.departures += packets;
            g.drops_overflow += drops;
            // If the kernel does not report the bytes of dropped packets, each counts with a mean
            // size: that of the packets that waited at the last sample, since a discipline with
            // flows drops from the longest one; else of those sent since; else of all sent so far.
            let waited = (last.backlog_bytes.into(), last.backlog_packets.into());
            let all = (counters.bytes, counters.packets);
            let means = [waited, (sent, packets), all].into_iter();
            let mut means = means.filter_map(|(b, p)| charge.of(b, p).checked_div(p));
            g.dropped_bytes += match arrived {
                Some(_) => charge.of(dropped - dropped_before, drops),
                None => drops * means.next().unwrap_or(0),
            };
            let held = u128::from(now.saturating_since(then).as_nanos());
            g.backlog_ns += u128::from(last.backlog_packets) * held;
        }
        g.now = now;
        g.backlog_packets = counters.backlog_packets;
        let waits = (counters.backlog_bytes, counters.backlog_packets);
        g.backlog_bytes = charge.of(waits.0.into(), waits.1.into());
        let dropped = g.drops_overflow + g.drops_early;
        let arrived = g.departures + dropped + u64::from(counters.backlog_packets);
        // The counters of one sample may be of different instants.
        g.arrivals = g.arrivals.max(arrived);
        let sojourn = rates.sojourn_ms.unwrap_or(0.0) * 1e6;
        g.sojourn = time::Duration::from_nanos(num::whole_u64(sojourn));
        g.head_age = g.sojourn;
        g.rate = self.meter.busy_bps().map_or(self.line, Rate::from_bps_f64);
        g.share = 1.0;
        g.contenders = 1;
        g.aggregate = 1.0;
    }

    /// Makes the controller decide.
    pub fn decide(&mut self, bounds: &[Bounds]) {
        let limit = self
            .set
            .get(Knob::Limit)
            .map(|limit| self.shown(Knob::Limit, limit));
        self.gauges.limit_packets = num::low_u32(limit.unwrap_or(0).min(u32::MAX.into()));
        self.gauges.probability = self.probability();
        let Some(controller) = &mut self.controller else {
            return;
        };
        let knobs = controller.decide(&self.gauges, &mut [], &mut self.rng);
        self.want_all(&knobs, bounds);
    }

    /// Passes a reflector's answer to the controller; `back`: the queue's direction is that of the
    /// answers.
    pub fn on_answer(&mut self, answer: &Answer, back: bool, bounds: &[Bounds]) {
        let Some(controller) = &mut self.controller else {
            return;
        };
        let echo = answer.echo(self.gauges.now, back);
        let knobs = controller.on_probe(&echo, &self.gauges);
        self.want_all(&knobs, bounds);
    }

    /// The present drop probability, 0..1.
    pub fn probability(&self) -> f64 {
        self.set.get(Knob::Drop).unwrap_or(0) as f64 / PROBABILITY_ONE as f64
    }

    /// Sets the wanted value of a knob, within the bounds. Knobs that are not steered are ignored.
    pub fn want(&mut self, (knob, value): Setting, bounds: &[Bounds]) {
        if !self.knobs.contains(&knob) {
            return;
        }
        let bound = bounds.iter().find(|bound| bound.knob() == knob);
        let mut value = bound.map_or(value, |bound| bound.clamp(value));
        if let (Knob::Rate, Some((most, _))) = (knob, &self.cap) {
            value = value.min(most.bps());
        }
        self.wanted.set(knob, self.kernel(knob, value));
    }

    /// Makes the previous values the wanted ones.
    pub fn want_original(&mut self) {
        self.wanted = self.was;
    }

    /// The values to set now, if any.
    pub fn due(&self, now: time::Instant) -> Option<Values> {
        let early = |then: time::Instant| now.saturating_since(then) < self.kind.least;
        let early = self.changed_at.is_some_and(early);
        let mut values = Values::default();
        for (knob, value) in self.wanted.each() {
            // A probability can always be set: it is a store to memory.
            let wait = early && knob != Knob::Drop;
            if !wait && self.set.get(knob) != Some(self.kind.stored(knob, value)) {
                values.set(knob, value);
            }
        }
        values.each().next()?;
        Some(values)
    }

    /// The knobs' values, as far as known, before and after a change.
    pub fn around(&self, values: &Values) -> [Values; 2] {
        let mut after = self.set;
        for (knob, value) in values.each() {
            after.set(knob, self.kind.stored(knob, value));
        }
        [self.set, after].map(|values| values.without(Knob::Drop))
    }

    /// Writes the netlink options that make a change.
    pub fn options(&self, values: &Values, out: &mut Vec<u8>) {
        let mut all = *values;
        if matches!(self.kind.name, "tbf" | "htb") {
            // The structure is sent as a whole, with the other knobs as set.
            all = self.set;
            values.each().for_each(|(knob, value)| all.set(knob, value));
        }
        self.kind.write(out, &self.found.options, &all);
    }

    /// The options that restore the previous state; `None` if nothing was changed, or another
    /// program has set the present options.
    pub fn restoring(&self) -> Option<Vec<u8>> {
        let changed = self.set.without(Knob::Drop) != self.was.without(Knob::Drop);
        (self.ours && changed).then(|| self.before())
    }

    /// The options that restore the previous settings.
    pub fn before(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.kind
            .restore(&mut out, &self.found.options, &self.knobs);
        out
    }

    /// Records a change that was made.
    pub fn made(&mut self, now: time::Instant, values: &Values) {
        for (knob, value) in values.each() {
            self.set.set(knob, self.kind.stored(knob, value));
        }
        if values.without(Knob::Drop) != Values::default() {
            self.changed_at = Some(now);
        }
        self.changes += 1;
    }

    /// Records that the watchdog has restored the previous options.
    pub fn was_restored(&mut self) {
        let drop = self.set.get(Knob::Drop);
        self.set = self.was;
        if let Some(drop) = drop {
            self.set.set(Knob::Drop, drop);
        }
    }

    /// Records that another program has set a knob to this value.
    pub fn found_other(&mut self, knob: Knob, value: u64) {
        self.set.set(knob, value);
    }

    /// Times that the guard's classic controller took over.
    pub fn fallbacks(&self) -> u64 {
        let guard = self
            .controller
            .as_ref()
            .and_then(|controller| controller.guard());
        guard.map_or(0, |stats| stats.fallbacks)
    }

    /// A change as text: `limit 1000 -> 43`.
    pub fn describe(&self, values: &Values) -> String {
        let each = values.each().map(|(knob, value)| {
            let before = self.set.get(knob);
            let before = before.map_or("?".to_owned(), |value| self.text(knob, value));
            format!("{} {before} -> {}", knob.name(), self.text(knob, value))
        });
        each.collect::<Vec<_>>().join(", ")
    }

    /// The present settings as text: `limit 1000`.
    pub fn present(&self) -> String {
        let each = self
            .set
            .each()
            .map(|(knob, value)| format!("{} {}", knob.name(), self.text(knob, value)));
        each.collect::<Vec<_>>().join(", ")
    }

    /// A value in the kernel's units as text for users.
    pub fn text(&self, knob: Knob, value: u64) -> String {
        match knob {
            Knob::Limit if self.kind.limits_bytes() => format!("{value}b"),
            Knob::Limit => value.to_string(),
            Knob::Target => time::Duration::from_nanos(value.saturating_mul(1000)).to_string(),
            Knob::Rate if value == 0 => "unlimited".to_owned(),
            Knob::Rate => Rate::from_bytes_per_sec(value).to_string(),
            Knob::Drop => format!(
                "{}",
                (value as f64 / PROBABILITY_ONE as f64 * 1e6).round() / 1e6
            ),
        }
    }

    /// A setting in the kernel's units.
    fn kernel(&self, knob: Knob, value: u64) -> u64 {
        match knob {
            Knob::Limit if self.kind.limits_bytes() => value.saturating_mul(self.packet),
            Knob::Limit => value,
            Knob::Target => value / 1000,
            // 0 is "unlimited" for cake, and no rate for others.
            Knob::Rate => Rate::from_bps(value).bytes_per_sec().max(1),
            Knob::Drop => value,
        }
    }

    /// A value in the kernel's units as a setting.
    fn shown(&self, knob: Knob, value: u64) -> u64 {
        match knob {
            Knob::Limit if self.kind.limits_bytes() => value / self.packet.max(1),
            Knob::Limit => value,
            Knob::Target => value.saturating_mul(1000),
            Knob::Rate => Rate::from_bytes_per_sec(value).bps(),
            Knob::Drop => value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rtnetlink::message::ROOT;
    use crate::rtnetlink::options::ANY;
    use crate::rtnetlink::request::put;

    fn row_of(kind: &str) -> QdiscState {
        QdiscState {
            key: Key::default(),
            kind: kind.to_owned(),
            options: Vec::new(),
            stab: false,
        }
    }

    #[test]
    fn a_rate_below_a_byte_per_second_is_a_byte_per_second() {
        for name in ["tbf", "cake"] {
            let kind = Kind::find(name, false).expect("a kind");
            let mut queue = Steered::new(row_of(name), kind, name.to_owned(), &[Knob::Rate], 1514);
            for (bps, bytes) in [(1, 1), (7, 1), (8, 1), (16, 2)] {
                queue.want((Knob::Rate, bps), &[]);
                assert_eq!(queue.wanted.get(Knob::Rate), Some(bytes), "{name} {bps}");
            }
        }
    }

    #[test]
    fn dropped_packets_are_as_large_as_those_that_were_sent_if_none_waited() {
        let mut queue = Steered::new(row_of(""), &ANY, "a queue".to_owned(), &[], 1514);
        let mut look = |bytes, packets, drops| {
            let counters = Counters {
                bytes,
                packets,
                drops,
                ..Counters::default()
            };
            queue.read(
                queue.gauges.now + time::Duration::from_nanos(1),
                &counters,
                None,
                &Rates::default(),
            );
            queue.gauges.dropped_bytes
        };
        let begin = u32::MAX - 1;
        assert_eq!(look(0, 0, begin), 0, "what was before does not count");
        assert_eq!(look(0, 0, begin + 1), 0, "nothing was sent");
        // Three drops of 1000 bytes; the counter wraps.
        assert_eq!(look(10_000, 10, 2), 3000);
        assert_eq!(look(10_600, 12, 6), 4200, "of 300 bytes");
        assert_eq!(look(10_600, 12, 8), 4200 + 2 * 883, "of all that was sent");
        assert_eq!(look(500, 1, 90), 5966, "another queue is in its place");
    }

    /// Samples of a cake: its counters, and the bytes that have arrived in its tins.
    fn samples_of_cake(samples: &[(Counters, [u64; 2])]) -> Vec<u64> {
        let kind = Kind::find("cake", false).expect("a kind");
        let mut queue = Steered::new(
            row_of("cake"),
            kind,
            "cake".to_owned(),
            &[Knob::Target],
            1514,
        );
        let dropped = (1..).zip(samples).map(|(k, (counters, tins))| {
            let (mut each, mut xstats) = (Vec::new(), Vec::new());
            for (tin, arrived) in (1..).zip(tins) {
                let mut fields = Vec::new();
                put(&mut fields, 3, &arrived.to_ne_bytes());
                put(&mut each, tin, &fields);
            }
            put(&mut xstats, 10, &each);
            let sample = Queue {
                kind: "cake",
                counters: *counters,
                xstats: &xstats,
                ..Queue::default()
            };
            queue.look(time::Instant::from_nanos(k), &sample);
            queue.gauges.dropped_bytes
        });
        dropped.collect()
    }

    #[test]
    fn the_dropped_bytes_of_cake_are_those_that_arrived_and_neither_left_nor_wait() {
        let counters = |bytes, packets, backlog_bytes, drops| Counters {
            bytes,
            packets,
            backlog_packets: backlog_bytes / 60,
            backlog_bytes,
            drops,
            ..Counters::default()
        };
        let samples = [
            // 500 bytes were dropped before.
            (counters(1000, 10, 500, 3), [1500, 500]),
            // Packets of 60 bytes left, two of 1500 were dropped.
            (counters(1600, 20, 500, 5), [5100, 500]),
            // The bytes that arrived were read before those that left.
            (counters(2200, 30, 500, 5), [5600, 500]),
            (counters(2200, 30, 500, 6), [7200, 500]),
            // Another queue is in its place.
            (counters(100, 1, 0, 0), [100, 0]),
            (counters(200, 2, 0, 1), [1200, 500]),
        ];
        let dropped = samples_of_cake(&samples);
        assert_eq!(dropped, [0, 3000, 3000, 4500, 4500, 6000]);
    }

    #[test]
    fn dropped_packets_are_as_large_as_those_that_waited() {
        let mut queue = Steered::new(row_of(""), &ANY, "a queue".to_owned(), &[], 1514);
        for (k, drops) in (1..).zip([0, 2]) {
            let counters = Counters {
                bytes: 600 * k,
                packets: 10 * k,
                backlog_packets: 4,
                backlog_bytes: 6000,
                drops,
                ..Counters::default()
            };
            let now = time::Instant::from_nanos(k);
            queue.read(now, &counters, None, &Rates::default());
        }
        assert_eq!(queue.gauges.dropped_bytes, 3000);
    }

    fn class_of_htb(knobs: &[Knob]) -> (Steered, Vec<QdiscState>) {
        let row = |class, handle, parent, kind: &str| QdiscState {
            key: Key {
                device: 2,
                class,
                handle,
                parent,
            },
            kind: kind.to_owned(),
            options: Vec::new(),
            stab: false,
        };
        let rows = vec![
            row(false, 0x10000, ROOT, "htb"),
            row(false, 0x100000, 0x10010, "fq_codel"),
            row(false, 0x200000, 0x10020, "fq_codel"),
            row(true, 0x10010, 0x10001, "htb"),
        ];
        let kind = Kind::find("htb", true).expect("a kind");
        let queue = Steered::new(rows[3].clone(), kind, "a class".to_owned(), knobs, 1514);
        (queue.with_place(&rows), rows)
    }

    #[test]
    fn drops_of_a_queue_below_a_class_count_once() {
        let (mut queue, rows) = class_of_htb(&[Knob::Rate]);
        let mut look = |bytes, refused, below: &[(usize, u32)]| {
            for (at, drops) in below {
                let counters = Counters {
                    drops: *drops,
                    ..Counters::default()
                };
                queue.look_below(&Queue {
                    key: rows[*at].key,
                    counters,
                    ..Queue::default()
                });
            }
            let counters = Counters {
                bytes,
                packets: bytes / 1000,
                drops: refused,
                ..Counters::default()
            };
            queue.read(
                queue.gauges.now + time::Duration::from_nanos(1),
                &counters,
                None,
                &Rates::default(),
            );
            (queue.gauges.drops_overflow, queue.gauges.dropped_bytes)
        };
        // The queue with handle 20 is below another class.
        assert_eq!(look(1000, 0, &[(1, u32::MAX - 1), (2, 70)]), (0, 0));
        // Five drops, two of which were refused packets; the counter wraps.
        assert_eq!(look(11_000, 2, &[(1, 3), (2, 90)]), (5, 5000));
        assert_eq!(look(21_000, 2, &[(1, 3)]), (5, 5000));
        assert_eq!(
            look(31_000, 2, &[(1, 1)]),
            (5, 5000),
            "another one is in its place"
        );
        // The kernel does not list a class's default FIFO.
        assert_eq!(look(41_000, 4, &[]), (7, 7000));
        assert_eq!(
            look(51_000, 9, &[(1, 500)]),
            (7, 7000),
            "what it dropped before"
        );
        assert_eq!(look(61_000, 9, &[(1, 501)]), (8, 8000));
    }

    #[test]
    fn bytes_count_as_the_shaper_charges_them() {
        let mut options = Vec::new();
        // ATM, with an overhead of 40 bytes relative to IP.
        for (attribute, value) in [(4, 1u32), (6, 40)] {
            put(&mut options, attribute, &value.to_ne_bytes());
        }
        let found = QdiscState {
            key: Key::default(),
            kind: "cake".to_owned(),
            options: options.clone(),
            stab: false,
        };
        let kind = Kind::find("cake", false).expect("a kind");
        for (knob, charged) in [(Knob::Rate, 106), (Knob::Target, 66)] {
            let queue = Steered::new(found.clone(), kind, "cake".to_owned(), &[knob], 1514);
            let mut queue = queue.with_header(14);
            for k in 1..3 {
                // ACKs of 66 bytes are 92 bytes with the overhead, which takes two cells.
                let counters = Counters {
                    bytes: 660 * k,
                    packets: 10 * k,
                    backlog_packets: 3,
                    backlog_bytes: 198,
                    drops: num::low_u32(k),
                    ..Counters::default()
                };
                queue.look(
                    time::Instant::from_nanos(k),
                    &Queue {
                        kind: "cake",
                        options: &options,
                        counters,
                        ..Queue::default()
                    },
                );
            }
            assert_eq!(queue.gauges.departed_bytes, 10 * charged, "{knob:?}");
            assert_eq!(queue.gauges.dropped_bytes, charged);
            assert_eq!(queue.gauges.backlog_bytes, 3 * charged);
        }
    }

    #[test]
    fn a_class_asks_for_at_most_the_rate_of_its_parents() {
        let (mut queue, _) = class_of_htb(&[Knob::Rate]);
        assert_eq!(queue.bound(), None);
        queue.cap = Some((Rate::from_mbit(20), "htb class 1:1".to_owned()));
        for (bits, bytes) in [(8_000_000, 1_000_000), (48_000_000, 2_500_000)] {
            queue.want((Knob::Rate, bits), &[]);
            assert_eq!(queue.wanted.get(Knob::Rate), Some(bytes));
        }
        let bound = queue.bound();
        let said = "at most 20mbit, the limit of htb class 1:1";
        assert_eq!(bound.as_deref(), Some(said));
    }
}
