//! Samples the queues, and compares them with what was set.

use std::time::SystemTime;

use quell_link::Error;
use quell_qdisc::num;
use quell_qdisc::time::Instant;

use super::Session;
use crate::rtnetlink;
use crate::rtnetlink::clsact::Hook;
use crate::rtnetlink::dump::is_partial;
use crate::rtnetlink::message::Queue;
use crate::rtnetlink::options::Knob;
use crate::rtnetlink::tree;
use crate::steer::steered::{Comparison, Steered};
use crate::system::host;
use crate::system::watchdog::Heartbeat;
use crate::watch::Sample;
use crate::watch::lines::Format;

/// The result of sampling the queues.
pub(super) enum ScanResult {
    /// All queues exist, and no other program has changed them, as far as is known.
    All,
    /// The device no longer exists, or another program removed a steered queue: with a description.
    Gone(String),
    /// Another program changed a steered queue: with a description.
    Changed(String),
}

impl Session {
    /// Samples the queues.
    pub(super) fn look(&mut self, now: Instant) -> Result<ScanResult, Error> {
        let (device, dev) = (self.device, self.plan.dev.as_str());
        let mut looks = Vec::new();
        let mut out = Vec::new();
        let dropping = self
            .actuator
            .as_ref()
            .and_then(|actuator| actuator.dropping.as_ref());
        // The counters of an attached queue include its drops.
        if let Some(program) = dropping.and_then(|dropping| dropping.point.program()) {
            let counts = program.counts();
            self.queues
                .iter_mut()
                .for_each(|queue| queue.dropped_before(counts));
        }
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let time = since.map_or(0, |since| num::low_u64(since.as_nanos()));
        let page = dropping.and_then(|dropping| dropping.point.page());
        let json = self.plan.json;
        let queues = &mut self.queues;
        queues.iter_mut().for_each(|queue| queue.seen = false);
        let classes = queues.iter().any(|queue| queue.found.key.class);
        let mut each = |row: Queue<'_>| {
            if row.key.device != device {
                return;
            }
            if let Some(at) = queues.iter().position(|queue| queue.overwrites(&row)) {
                looks.push((at, Comparison::LimitBelow));
            }
            queues.iter_mut().for_each(|queue| queue.look_below(&row));
            let is = |queue: &Steered| queue.found.key == row.key;
            let Some(at) = queues.iter().position(is) else {
                return;
            };
            let (look, rates) = queues[at].look(now, &row);
            if look != Comparison::Same {
                looks.push((at, look));
            }
            if json {
                let sample = Sample {
                    device: dev,
                    queue: row,
                    rates,
                    gauges: page
                        .and_then(|page| page.gauges(device, row.kind, row.key.handle, now)),
                };
                Format::Json.write(&mut out, time, &sample);
                if let Some(dropping) = dropping {
                    dropping.sample(&mut out, time, dev, queues[at].probability());
                }
            }
        };
        let listed = match classes {
            true => {
                let disciplines = self.dump.disciplines(device, &mut each);
                disciplines.and_then(|()| self.dump.classes(device, &mut each))
            }
            false => self.dump.disciplines(device, &mut each),
        };
        self.write(&out)?;
        match listed {
            Err(e) if e.raw_os_error() == Some(libc::ENODEV) => {
                return Ok(ScanResult::Gone(format!("{} is gone", self.plan.dev)));
            }
            // Queues missing from a partial list may exist.
            Err(e) => {
                self.queues.iter_mut().for_each(|queue| queue.seen = true);
                return match is_partial(&e) {
                    true => Ok(ScanResult::All),
                    false => Err(rtnetlink::failed(e)),
                };
            }
            Ok(()) => {}
        }
        if self.queues.iter().any(|queue| !queue.seen) {
            return Ok(self.missing());
        }
        let seen = self.others(looks);
        if std::mem::take(&mut self.filters) && matches!(seen, ScanResult::All) {
            let looked = self.look_at_filters()?;
            self.filters = looked.is_none();
            return Ok(looked.unwrap_or(ScanResult::All));
        }
        Ok(seen)
    }

    /// Checks quell's filter at clsact; `None` if filters or queues may be missing from the
    /// kernel's lists.
    fn look_at_filters(&mut self) -> Result<Option<ScanResult>, Error> {
        let Some(actuator) = &mut self.actuator else {
            return Ok(Some(ScanResult::All));
        };
        let program = actuator.dropping.as_ref();
        if program
            .and_then(|dropping| dropping.point.program())
            .is_none()
        {
            return Ok(Some(ScanResult::All));
        }
        match actuator.look_at_hook(&mut self.dump, Hook::look_once)? {
            Some(seen) if seen.ours => return Ok(Some(ScanResult::All)),
            Some(_) => {}
            None => return Ok(None),
        }
        if self.plan.insist {
            let (dev, device) = (&self.plan.dev, self.device);
            let rows = match tree::rows(&mut self.dump, device) {
                Err(e) if is_partial(&e) => return Ok(None),
                rows => rows.map_err(|e| Error::new(host::reason(&e)).key(dev))?,
            };
            actuator.prepare(device, &self.plan, &self.queues, &rows, &mut self.dump)?;
        }
        Ok(Some(ScanResult::Changed(format!(
            "another program has removed quell's filter at clsact of {}",
            self.plan.dev
        ))))
    }

    /// The result if a queue is missing.
    fn missing(&self) -> ScanResult {
        let dev = &self.plan.dev;
        if host::is_gone(self.device) {
            return ScanResult::Gone(format!("{dev} is gone"));
        }
        let mut gone = self.queues.iter().filter(|queue| !queue.seen);
        let name = gone.next().map_or(dev, |queue| &queue.name);
        let what = format!("another program has removed {name}");
        match self.plan.insist {
            true => ScanResult::Gone(what),
            false => ScanResult::Changed(what),
        }
    }

    /// Evaluates the comparisons of the queues with what was set.
    fn others(&mut self, looks: Vec<(usize, Comparison)>) -> ScanResult {
        let Some(actuator) = &self.actuator else {
            return ScanResult::All;
        };
        let mut changed = None;
        // A change of a tbf's limit also changes the limits below it.
        let limits = |at| {
            let limit = |look: &Comparison| matches!(look, Comparison::Other(Knob::Limit, _));
            looks.iter().any(|(of, look)| *of == at && limit(look))
        };
        let limited: Vec<_> = looks.iter().map(|(at, _)| limits(*at)).collect();
        for ((at, look), limited) in looks.into_iter().zip(limited) {
            let queue = &mut self.queues[at];
            match look {
                Comparison::Same => {}
                Comparison::LimitBelow if limited => {}
                // The next change undoes it.
                Comparison::Unsteered if self.plan.insist => {}
                // The watchdog restored it, because this loop had stalled.
                Comparison::Other(..) | Comparison::LimitBelow
                    if actuator.heartbeats.get(at).is_some_and(Heartbeat::acted) => {}
                Comparison::Other(knob, value) => {
                    queue.found_other(knob, value);
                    queue.ours = self.plan.insist;
                    let value = queue.text(knob, value);
                    let what = format!("{}: another program has set {}", queue.name, knob.name());
                    changed = Some(format!("{what} to {value}"));
                }
                Comparison::Replaced | Comparison::LimitBelow | Comparison::Unsteered => {
                    queue.ours = false;
                    let what = match look {
                        Comparison::Unsteered => {
                            format!("{}: another program has changed it", queue.name)
                        }
                        Comparison::LimitBelow => {
                            format!("another program has set a limit below {}", queue.name)
                        }
                        _ => format!("another program has replaced {}", queue.name),
                    };
                    match self.plan.insist {
                        true => return ScanResult::Gone(what),
                        false => changed = Some(what),
                    }
                }
            }
        }
        changed.map_or(ScanResult::All, ScanResult::Changed)
    }
}
