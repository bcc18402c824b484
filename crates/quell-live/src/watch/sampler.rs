//! Samples all disciplines and classes of the chosen devices.

use std::collections::{BTreeSet, HashMap};
use std::io;

use quell_link::Error;
use quell_qdisc::time::Instant;

use super::attached::Attached;
use super::meter::{Meter, Rates};
use crate::attached;
use crate::bpf::page::Gauges;
use crate::rtnetlink::dump::Dump;
use crate::rtnetlink::message::{Key, Queue};
use crate::rtnetlink::xstats::{self, Each};
use crate::system::host;

/// Kinds whose classes have their own counters; those of others repeat a discipline's.
const CLASSFUL: [&str; 5] = ["htb", "hfsc", "drr", "qfq", "ets"];
/// Kinds whose classes are flows.
const FLOWS: [&str; 4] = ["fq_codel", "fq_pie", "cake", "sfq"];
/// Samples after which names are looked up again and deleted queues are forgotten.
const SWEEP: u32 = 256;

/// One sample of one queue.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// Name of the device.
    pub device: &'a str,
    /// The discipline or class.
    pub queue: Queue<'a>,
    /// Rates since the last sample.
    pub rates: Rates,
    /// Gauges that a queue of `quell attach` shares with user space.
    pub gauges: Option<Gauges>,
}

impl Sample<'_> {
    /// Calls `each` with the gauges of an attached queue, or with the kind-specific values of
    /// others.
    pub fn each(&self, each: Each<'_>) {
        let Queue {
            key, kind, xstats, ..
        } = self.queue;
        match &self.gauges {
            Some(gauges) => gauges.each(&mut |name, value| each(None, name, value)),
            None => xstats::each(kind, key.class, xstats, each),
        }
    }
}

/// Samples queues.
pub struct Sampler {
    dump: Dump,
    /// Names of the devices; empty: all.
    wanted: Vec<String>,
    flows: bool,
    /// Index of the device if only one is wanted, looked up again when it has no queue.
    only: Option<u32>,
    state: State,
    attached: Attached,
    /// Devices whose classes are sampled, too.
    classful: BTreeSet<u32>,
}

/// State that is kept from one sample to the next.
#[derive(Debug, Default)]
struct State {
    /// Number of the present sample. Wraps.
    count: u32,
    /// Names of devices by index; `None` for one that is not wanted.
    names: HashMap<u32, Option<String>>,
    /// Meter of each queue, with the number of the last sample that had the queue.
    meters: HashMap<Key, (u32, Meter)>,
}

impl Sampler {
    /// A sampler for these devices, or all; `flows`: with the flow queues of fq_codel, cake and so
    /// on.
    ///
    /// # Errors
    /// If there is no such device, or the socket cannot be opened.
    pub fn new(devices: &[String], flows: bool) -> Result<Self, Error> {
        for device in devices {
            host::existing(device)?;
        }
        let dump = Dump::new()
            .map_err(|e| Error::new(format!("no rtnetlink socket: {}", host::reason(&e))))?;
        Ok(Self {
            dump,
            wanted: devices.to_vec(),
            flows,
            only: None,
            state: State::default(),
            attached: Attached::new(attached::page),
            classful: BTreeSet::new(),
        })
    }

    /// Forgets earlier samples: the next one counts as the first.
    pub fn forget(&mut self) {
        self.state = State::default();
    }

    /// Messages since the last call: why queues have no gauges.
    pub fn notes(&mut self) -> Vec<String> {
        self.attached.notes()
    }

    /// Samples every queue at `now`; returns their number.
    ///
    /// # Errors
    /// If the kernel refuses or could not deliver the whole list; what it delivered has been passed
    /// to `each`.
    pub fn sample(&mut self, now: Instant, each: &mut dyn FnMut(&Sample<'_>)) -> io::Result<usize> {
        let Self {
            dump,
            wanted,
            flows,
            only,
            state,
            attached,
            classful,
        } = self;
        state.begin();
        attached.begin();
        classful.clear();
        let mut count = 0;
        let device = match wanted.as_slice() {
            [one] => match only.or_else(|| host::index(one)) {
                Some(device) => *only.insert(device),
                None => return Ok(0),
            },
            _ => 0,
        };
        let listed = dump.disciplines(device, |queue| {
            let Some(mut sample) = state.sample(now, queue, wanted) else {
                return;
            };
            sample.gauges = attached.gauges(now, sample.device, &queue);
            let kind = queue.kind;
            if CLASSFUL.contains(&kind) || *flows && FLOWS.contains(&kind) {
                classful.insert(queue.key.device);
            }
            count += 1;
            each(&sample);
        });
        if count == 0 {
            *only = None;
        }
        match listed {
            // The device vanished after its index was looked up.
            Err(e) if e.raw_os_error() == Some(libc::ENODEV) => return Ok(0),
            listed => listed?,
        }
        for device in classful.iter() {
            dump.classes(*device, |queue| {
                if !(CLASSFUL.contains(&queue.kind) || *flows && FLOWS.contains(&queue.kind)) {
                    return;
                }
                if let Some(sample) = state.sample(now, queue, wanted) {
                    count += 1;
                    each(&sample);
                }
            })?;
        }
        Ok(count)
    }
}

impl State {
    /// Starts a sample. Every [`SWEEP`] samples it forgets names and deleted queues, to bound
    /// memory and to notice renamed devices.
    fn begin(&mut self) {
        self.count = self.count.wrapping_add(1);
        if self.count.is_multiple_of(SWEEP) {
            let count = self.count;
            self.names.clear();
            self.meters
                .retain(|_, (seen, _)| count.wrapping_sub(*seen) <= SWEEP);
        }
    }

    fn sample<'a>(
        &'a mut self,
        now: Instant,
        queue: Queue<'a>,
        wanted: &[String],
    ) -> Option<Sample<'a>> {
        // A device without a queue has nothing to count.
        if queue.kind == "noqueue" {
            return None;
        }
        let is_wanted = |name: &String| wanted.is_empty() || wanted.contains(name);
        let name = self.names.entry(queue.key.device);
        let name = name.or_insert_with(|| host::name(queue.key.device).filter(is_wanted));
        let device = name.as_deref()?;
        let (seen, meter) = self.meters.entry(queue.key).or_default();
        *seen = self.count;
        let rates = meter.sample(now, &queue.counters);
        Some(Sample {
            device,
            queue,
            rates,
            gauges: None,
        })
    }
}
