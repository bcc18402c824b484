//! Checks at run time: whether the rules of `quell live` still exist, its loops run and its
//! interfaces are unchanged.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use quell_link::Error;
use quell_link::units::counted;

use crate::firewall::{RuleChanges, RuleSet};
use crate::plane::backend::af_packet::{self, Registration};
use crate::plane::shared::Watches;
use crate::plane::worker::Worker;
use crate::system::command::quoted;
use crate::system::host;
use crate::system::messages::tell;
use crate::system::notice::Notices;

/// Time that an interface may be missing while it is deleted and created again.
const GRACE: Duration = Duration::from_secs(1);

/// An interface's properties when it was taken.
#[derive(Clone, Debug)]
pub struct Interface {
    pub name: String,
    pub index: u32,
    pub mtu: u32,
    /// Registration to which sockets are bound, if any are.
    registration: Option<Arc<Registration>>,
}

/// Changes of interfaces.
pub enum Links {
    /// Unchanged.
    Same,
    /// They have to be opened again, for this reason.
    Changed(String),
    /// The interface of this name does not exist.
    Missing(String),
}

impl Interface {
    /// Finds the interface that `option` names.
    pub fn find(option: &str, dev: &str) -> Result<Self, Error> {
        let index = host::index(dev).ok_or_else(|| {
            Error::new("there is no such interface")
                .key(format!("{option} {dev}"))
                .remedy(format!("there are {}", host::names().join(", ")))
        })?;
        let mtu = host::mtu(dev).map_err(|e| Error::new(format!("{dev}: {}", host::reason(&e))))?;
        let name = dev.to_owned();
        let registration = None;
        Ok(Self {
            name,
            index,
            mtu,
            registration,
        })
    }

    /// Registers the interface, so that [`look`] notices if sockets bound from now on have to be
    /// opened again.
    pub fn bind(&mut self) -> Result<(), Error> {
        self.registration = Some(Arc::new(Registration::of(self.index)?));
        Ok(())
    }

    fn has_ended(&self) -> bool {
        let registration = self.registration.as_ref();
        registration.is_some_and(|registration| registration.ended())
    }

    /// Checks for changes; a new name is taken over.
    fn look(&mut self) -> Links {
        let name = &self.name;
        match host::name(self.index) {
            None if !host::is_gone(self.index) => Links::Same,
            None if host::index(name).is_some() => Links::Changed(format!("{name} was recreated")),
            None => Links::Missing(name.clone()),
            Some(now) if now != *name => {
                let why = format!("{name} is now called {now}");
                self.name = now;
                Links::Changed(why)
            }
            Some(_) if self.has_ended() => Links::Changed(format!("{name} was gone and is back")),
            Some(_) => match host::mtu(name) {
                Ok(mtu) if mtu != self.mtu => {
                    self.mtu = mtu;
                    Links::Changed(format!("the MTU of {name} is now {mtu}"))
                }
                _ => Links::Same,
            },
        }
    }
}

/// Checks the interfaces for changes.
pub fn look(interfaces: &mut [Interface]) -> Links {
    let mut changed = Vec::new();
    for interface in interfaces {
        match interface.look() {
            Links::Same => {}
            Links::Changed(why) => changed.push(why),
            missing @ Links::Missing(_) => return missing,
        }
    }
    match changed.is_empty() {
        true => Links::Same,
        false => Links::Changed(changed.join(", ")),
    }
}

/// State of interfaces that are missing or could not be opened again.
#[derive(Default)]
pub struct DeviceLoss {
    /// Time since which an interface is missing.
    missing: Option<Instant>,
    /// Why the interfaces could not be opened again.
    pub trouble: Option<String>,
}

impl DeviceLoss {
    /// The reason to open the interfaces again, if there is one. It is an error if an interface has
    /// been missing for [`GRACE`].
    pub fn reason(&mut self, links: Links, now: Instant) -> Result<Option<String>, Error> {
        if let Links::Missing(name) = links {
            let since = *self.missing.get_or_insert(now);
            if now.saturating_duration_since(since) < GRACE {
                return Ok(None);
            }
            let what = format!("{name} has vanished");
            return Err(Error::new(what).remedy("start again when it is back"));
        }
        self.missing = None;
        Ok(match links {
            Links::Changed(why) => Some(why),
            _ => self.trouble.is_some().then(|| "another attempt".to_owned()),
        })
    }
}

/// The firewall rules, and notifications of other programs' changes.
pub struct Rules {
    rules: RuleSet,
    notices: Notices,
    /// Whether the kernel sends notifications of changes; if not, the rules are checked every
    /// second.
    noticed: bool,
    /// Why rules could not be put back.
    trouble: Option<String>,
}

impl Rules {
    /// `rules` have been added; `notices` were subscribed to before that.
    pub fn new(rules: RuleSet, notices: Notices) -> Self {
        Self {
            noticed: rules.noticed(),
            rules,
            notices,
            trouble: None,
        }
    }

    /// Descriptor that is readable when another program has changed rules.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.notices.as_fd()
    }

    /// Undoes and reports other programs' changes: puts removed rules back, moves rules of quell
    /// behind rules that were added after them, and removes rules of an earlier quell live that
    /// were put back. Returns how many were put back.
    pub fn keep(&mut self, dev: &str) -> usize {
        if !self.notices.drain() && self.noticed && self.trouble.is_none() {
            return 0;
        }
        match self.rules.make() {
            Ok(RuleChanges {
                added,
                moved,
                removed,
            }) => {
                self.trouble = None;
                if added > 0 {
                    tell(&format!(
                        "{dev}: {} put back that another program had removed; meanwhile traffic passed unmanaged",
                        counted(added as u64, "rule")
                    ));
                }
                if moved > 0 {
                    tell(&format!(
                        "{dev}: {} moved behind those that another program has added; until then these had no effect",
                        counted(moved as u64, "rule")
                    ));
                }
                if removed > 0 {
                    tell(&format!(
                        "{dev}: {} of an earlier quell live removed that another program had put back; until then packets may have gone to other queues",
                        counted(removed as u64, "rule")
                    ));
                }
                return added;
            }
            Err(why) => {
                if self.trouble.as_ref() != Some(&why) {
                    tell(&format!(
                        "{dev}: rules may be gone: {why}; tried again each second"
                    ));
                }
                self.trouble = Some(why);
            }
        }
        0
    }
}

/// State of the loops at the last check.
#[derive(Default)]
pub struct Progress {
    turns: Vec<u32>,
    stalls: u64,
    failures: Vec<(&'static str, String)>,
    /// Whether refused frames have been reported.
    refusing: bool,
}

impl Progress {
    /// Whether all loops have made a turn since the last check.
    pub fn all(&mut self, workers: &[(&'static str, Worker)]) -> bool {
        let turns: Vec<_> = workers.iter().map(|(_, worker)| worker.turns()).collect();
        let before = std::mem::replace(&mut self.turns, turns);
        self.turns
            .iter()
            .zip(&before)
            .all(|(now, then)| now != then)
    }

    /// Messages about queues of other crates that have failed, each once.
    pub fn failures(&mut self, dev: &str, watches: &[(&'static str, Watches)]) -> Vec<String> {
        let failures = watches
            .iter()
            .filter_map(|(name, watches)| Some((*name, watches.snapshot().failure?)))
            .collect();
        let before = std::mem::replace(&mut self.failures, failures);
        let new = self.failures.iter().filter(|now| !before.contains(now));
        new.map(|(direction, why)| {
            format!("{dev}: the queue of {direction} has failed and packets pass: {why}")
        })
        .collect()
    }

    /// Reports once that frames of many packets were refused.
    pub fn tell_refused(&mut self, dev: &str) {
        if !self.refusing && af_packet::inseparable() {
            self.refusing = true;
            tell(&format!(
                "{dev}: a frame of many packets was refused, since they could not be separated; \
                 ethtool -K {} gro off, or tso off where the frame is sent, makes them single packets",
                quoted(dev)
            ));
        }
    }

    /// Reports loops that stalled since the last check.
    pub fn tell_stalls(&mut self, workers: &[(&'static str, Worker)]) {
        let stalls: u64 = workers
            .iter()
            .map(|(_, w)| w.watch().snapshot().stalls)
            .sum();
        let new = stalls.saturating_sub(self.stalls);
        self.stalls = self.stalls.max(stalls);
        if new > 0 {
            tell(&format!(
                "{} stalled: meanwhile traffic passed unmanaged",
                counted(new, "loop")
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_absence_of_an_interface_has_the_whole_grace() {
        let (mut loss, start) = (DeviceLoss::default(), Instant::now());
        let mut see = |links, at| loss.reason(links, start + Duration::from_millis(at));
        let missing = || Links::Missing("eth0".to_owned());
        assert_eq!(see(missing(), 0).unwrap(), None);
        assert_eq!(see(missing(), 999).unwrap(), None);
        assert_eq!(see(Links::Same, 999).unwrap(), None);
        assert_eq!(see(missing(), 5000).unwrap(), None, "a second absence");
        let back = Links::Changed("eth0 was gone and is back".to_owned());
        assert!(see(back, 5500).unwrap().is_some());
        assert_eq!(see(missing(), 7000).unwrap(), None, "a third one");
        let error = see(missing(), 8000).unwrap_err().to_string();
        assert!(error.contains("eth0 has vanished"), "{error}");
    }

    #[test]
    fn a_failed_open_is_tried_again() {
        let (mut loss, now) = (DeviceLoss::default(), Instant::now());
        assert_eq!(loss.reason(Links::Same, now).unwrap(), None);
        loss.trouble = Some("no memory".to_owned());
        let why = loss.reason(Links::Same, now).unwrap();
        assert_eq!(why.as_deref(), Some("another attempt"));
    }
}
