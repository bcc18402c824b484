//! Gauges of the queues that `quell attach` has put into the kernel. They are not in rtnetlink but
//! in the page that each device's queues share with user space (`crate::bpf::page`).

use std::collections::{BTreeSet, HashMap};

use quell_link::Error;
use quell_qdisc::time::{Duration, Instant};

use crate::bpf::page::{Gauges, KIND, Page};
use crate::rtnetlink::message::Queue;

/// Time between two attempts to open a device's page.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// The opened pages of devices.
pub struct Attached {
    /// Opens the page of a device.
    open: fn(u32) -> Result<Page, Error>,
    devices: HashMap<u32, Device>,
    /// Errors that have been reported.
    said: BTreeSet<String>,
    notes: Vec<String>,
}

#[derive(Default)]
struct Device {
    page: Option<Page>,
    /// Time of the next attempt to open the page.
    due: Instant,
    /// Whether a queue of quell was on the device in this sample.
    seen: bool,
}

impl Attached {
    /// `open` opens the page of a device.
    pub fn new(open: fn(u32) -> Result<Page, Error>) -> Self {
        Self {
            open,
            devices: HashMap::new(),
            said: BTreeSet::new(),
            notes: Vec::new(),
        }
    }

    /// Begins a new sample. Pages of devices without one of quell's queues in the last sample are
    /// released.
    pub fn begin(&mut self) {
        self.devices
            .retain(|_, device| std::mem::take(&mut device.seen));
    }

    /// The gauges of this queue at `now`. `None` if the queue is not quell's, its page cannot
    /// be opened, or the page belongs to an earlier queue.
    pub fn gauges(&mut self, now: Instant, name: &str, queue: &Queue<'_>) -> Option<Gauges> {
        let (key, kind) = (queue.key, queue.kind);
        if key.class || !kind.starts_with(KIND) {
            return None;
        }
        let device = self.devices.entry(key.device).or_default();
        device.seen = true;
        let read = |page: &Page| page.gauges(key.device, kind, key.handle, now);
        if let Some(gauges) = device.page.as_ref().and_then(read) {
            return Some(gauges);
        }
        // The queue is new, or another one is in its place, which has its own page.
        if now < device.due {
            return None;
        }
        device.due = now.saturating_add(RETRY_INTERVAL);
        match (self.open)(key.device) {
            Ok(page) => read(device.page.insert(page)),
            Err(error) => {
                device.page = None;
                let why = error.to_string();
                // An error of several devices is reported for the first one.
                if self.said.insert(why.clone()) {
                    self.notes
                        .push(format!("{name}: no gauges of {kind}: {why}"));
                }
                None
            }
        }
    }

    /// Messages since the last call, each once.
    pub fn notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::rtnetlink::message::Key;

    thread_local! {
        static OPENED: Cell<u32> = const { Cell::new(0) };
    }

    /// Devices 1 and 2 have `hush`, later `codel`; other devices have no page.
    fn open(device: u32) -> Result<Page, Error> {
        let opened = OPENED.replace(OPENED.get() + 1);
        match device {
            1 | 2 if opened < 2 => Ok(Page::made("hush", device)),
            1 | 2 => Ok(Page::made("codel", device)),
            _ => Err(Error::new("needs root").remedy("write sudo before it")),
        }
    }

    fn queue(device: u32, kind: &'static str) -> Queue<'static> {
        let key = Key {
            device,
            handle: 0x9E00 << 16,
            ..Key::default()
        };
        Queue {
            key,
            kind,
            ..Queue::default()
        }
    }

    #[test]
    fn each_device_has_a_page_that_is_found_again_when_another_queue_takes_the_place() {
        OPENED.set(0);
        let mut attached = Attached::new(open);
        let mut has = |after: Duration, device, kind| {
            let now = Instant::ZERO + after;
            let gauges = attached.gauges(now, "va", &queue(device, kind));
            gauges.is_some_and(|gauges| gauges.get("target_ns").is_some() || kind == "quell_codel")
        };
        assert!(has(Duration::ZERO, 1, "quell_hush") && has(Duration::ZERO, 2, "quell_hush"));
        assert!(
            !has(Duration::ZERO, 1, "fq_codel"),
            "the kernel's own have none"
        );
        assert!(has(Duration::from_nanos(1), 1, "quell_hush"));
        assert_eq!(OPENED.get(), 2, "once for each");
        assert!(
            !has(Duration::from_nanos(2), 1, "quell_codel"),
            "its page is not looked for all the time"
        );
        assert!(has(RETRY_INTERVAL, 1, "quell_codel"));
        assert!(!has(RETRY_INTERVAL, 1, "quell_hush"), "it was replaced");
        assert_eq!(OPENED.get(), 3);
    }

    #[test]
    fn the_page_of_a_device_without_an_attached_queue_is_released() {
        OPENED.set(0);
        let mut attached = Attached::new(open);
        for _ in 0..3 {
            attached.begin();
            assert!(
                attached
                    .gauges(Instant::ZERO, "va", &queue(1, "quell_hush"))
                    .is_some()
            );
        }
        assert_eq!((OPENED.get(), attached.devices.len()), (1, 1));
        attached.begin();
        attached.begin();
        assert!(attached.devices.is_empty());
    }

    #[test]
    fn missing_gauges_are_reported_once() {
        let mut attached = Attached::new(open);
        let mut notes = Vec::new();
        for (step, name) in ["va", "vb", "va"].into_iter().enumerate() {
            let now = Instant::ZERO + step as u64 * RETRY_INTERVAL;
            let device = 3 + step as u32 % 2;
            assert_eq!(
                attached.gauges(now, name, &queue(device, "quell_hush")),
                None
            );
            notes.extend(attached.notes());
        }
        assert_eq!(
            notes,
            ["va: no gauges of quell_hush: needs root; write sudo before it"]
        );
    }
}
