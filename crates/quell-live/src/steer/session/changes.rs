//! Makes and restores changes of the queues, and handles a device that vanishes and comes back.

use quell_link::Error;
use quell_qdisc::time::Instant;

use super::Session;
use crate::rtnetlink;
use crate::rtnetlink::options::{Knob, Values};
use crate::rtnetlink::request;
use crate::steer::steered::Steered;
use crate::system::{host, sys};

impl Session {
    /// Sends the changes that are due.
    pub(super) fn change(&mut self, now: Instant) -> Result<(), Error> {
        let (mut asked, mut lines) = (Vec::new(), String::new());
        for (at, queue) in self.queues.iter_mut().enumerate() {
            let Some(values) = queue.due(now) else {
                continue;
            };
            let Some(actuator) = &mut self.actuator else {
                let line = format!("{}: {}\n", queue.name, queue.describe(&values));
                lines += &line;
                queue.made(now, &values);
                self.changes += 1;
                continue;
            };
            if let (Some(drop), Some(dropping)) = (values.get(Knob::Drop), &actuator.dropping) {
                dropping.point.set(drop);
                queue.made(now, &Values::of(Knob::Drop, drop));
                self.changes += 1;
            }
            let values = values.without(Knob::Drop);
            if values == Values::default() {
                continue;
            }
            actuator.add(queue, &values);
            asked.push((at, values));
        }
        self.write(lines.as_bytes())?;
        let Some(actuator) = self.actuator.as_mut().filter(|_| !asked.is_empty()) else {
            return Ok(());
        };
        actuator.write_down()?;
        let outcomes = match actuator.rtnl.send() {
            Ok(outcomes) => outcomes,
            Err(e) => {
                // Perhaps only the answer was lost, and not the request. The changes count as made,
                // so that they are restored.
                for (at, values) in asked {
                    self.queues[at].made(now, &values);
                }
                return Err(rtnetlink::failed(e));
            }
        };
        for (outcome, (at, values)) in outcomes.into_iter().zip(asked) {
            let queue = &mut self.queues[at];
            match outcome {
                Ok(()) => {
                    queue.made(now, &values);
                    self.changes += 1;
                }
                // The next sample notices that the queue no longer exists.
                Err(refusal) if refusal.is_gone() => {}
                Err(refusal) => return Err(refusal.explain(&queue.name)),
            }
        }
        Ok(())
    }

    /// Forgets the queues, which no longer exist: they need no restoration.
    pub(super) fn forget(&mut self) {
        self.fallbacks += self.queues.iter().map(Steered::fallbacks).sum::<u64>();
        self.queues.clear();
        if let Some(actuator) = &mut self.actuator {
            // The filter exists as long as the device. If it cannot be removed now, the state file
            // stays, which names it.
            let unhooked = actuator.unhook(&mut self.dump);
            actuator.watchdog.dismiss();
            actuator.heartbeats.clear();
            if unhooked.is_ok() || host::index(&self.plan.dev).is_none() {
                let _ = actuator.file.remove();
            }
        }
    }

    /// Steers the device again if it is back.
    pub(super) fn find_again(&mut self) {
        if host::index(&self.plan.dev).is_none() {
            return;
        }
        match self.take() {
            Ok(()) => {
                self.waiting = None;
                for queue in &self.queues {
                    let line = format!("{} is back, with {}", queue.name, queue.present());
                    self.plan.say(&line);
                    self.say_bound(queue);
                }
            }
            Err(error) => {
                let text = error.to_string();
                if self.waiting.as_ref() != Some(&text) {
                    self.plan
                        .say(&format!("{text}; waiting until it can be steered"));
                    self.waiting = Some(text);
                }
            }
        }
    }

    /// Restores the previous settings of queues that still have what quell set; returns their
    /// number.
    pub(super) fn restore(&mut self) -> Result<usize, Error> {
        let now = sys::monotonic();
        // Another program may have changed something since the last sample.
        if !self.queues.is_empty() && self.look(now).is_err() {
            // Queues that were not listed may exist nevertheless.
            self.queues.iter_mut().for_each(|queue| queue.seen = true);
        }
        self.fallbacks += self.queues.iter().map(Steered::fallbacks).sum::<u64>();
        let Some(actuator) = &mut self.actuator else {
            return Ok(0);
        };
        actuator
            .unhook(&mut self.dump)
            .map_err(|e| actuator.file.kept(e.to_string()))?;
        let mut names = Vec::new();
        for queue in self.queues.iter().filter(|queue| queue.seen) {
            if let Some(options) = queue.restoring() {
                actuator.rtnl.add(&queue.found, &options);
                names.push(queue.name.as_str());
            }
        }
        let mut count = 0;
        if !names.is_empty() {
            let outcomes = actuator.rtnl.send();
            let no = |e| actuator.file.kept(rtnetlink::failed(e).to_string());
            count = request::applied(outcomes.map_err(no)?, names)?;
        }
        actuator.watchdog.dismiss();
        actuator.file.remove()?;
        Ok(count)
    }
}
