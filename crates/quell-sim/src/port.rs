//! A queue of the path with its link: a bottleneck with the overhead and delay that a network adds.

use std::ops::{Deref, DerefMut};

use quell_link::bottleneck::{self, Bottleneck, Hosts};
use quell_link::words::Queue;
use quell_qdisc::control::learn::Learner;
use quell_qdisc::time::{Duration, Instant};
use quell_qdisc::{Gauges, Rng};

use crate::labels;
use crate::packet::Pkt;
use crate::scenario::Link;
use crate::trace::Trace;

/// One queue with its link.
#[derive(Clone, Debug)]
pub struct Port {
    bottleneck: Bottleneck<Pkt, Trace>,
    /// Link-layer overhead, bytes per packet.
    pub overhead: u32,
    /// Propagation delay behind the queue.
    pub delay: Duration,
    /// Trains the controller's policy on its own decisions, in virtual time.
    learner: Option<Box<dyn Learner>>,
}

impl Deref for Port {
    type Target = Bottleneck<Pkt, Trace>;
    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        &self.bottleneck
    }
}

impl DerefMut for Port {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.bottleneck
    }
}

impl Port {
    /// An idle port; `name` names its stream of random numbers.
    pub fn new(link: &Link, queue: &Queue, duration: Duration, seed: u64, name: &str) -> Self {
        let hosts = Hosts {
            key: seed,
            labels: labels::of_host,
        };
        Self::with_hosts(link, queue, duration, seed, (name, hosts))
    }

    fn with_hosts(
        link: &Link,
        queue: &Queue,
        duration: Duration,
        seed: u64,
        (name, hosts): (&str, Hosts),
    ) -> Self {
        let params = bottleneck::Params {
            rate: link.rate.clone(),
            mean_rate: link.rate.mean_rate(duration),
            shaper: link.shaper,
            nic: link.nic as usize,
            loss: link.loss,
            overhead: link.overhead,
            framing: link.framing.clone().map(|words| words.framing),
            hosts: Some(hosts),
        };
        let rng = Rng::new(seed, name);
        Self {
            bottleneck: Bottleneck::new(&params, queue, rng, Trace::default()),
            overhead: link.overhead,
            delay: link.delay,
            learner: None,
        }
    }

    /// A port of a wireless cell. It has no line of its own: the cell dequeues its packets.
    pub fn in_cell(link: &Link, queue: &Queue, duration: Duration, seed: u64, name: &str) -> Self {
        let hosts = Hosts {
            key: seed,
            labels: labels::of_node,
        };
        let port = Self::with_hosts(link, queue, duration, seed, (name, hosts));
        Self {
            bottleneck: port.bottleneck.without_line(),
            ..port
        }
    }

    /// See [`Bottleneck::decide`]; the learner, if any, then takes the controller's samples.
    pub fn decide(&mut self, now: Instant, read: impl FnOnce(&mut Gauges)) -> bool {
        let outside = self.bottleneck.decide(now, read);
        if let Some(controller) = self.bottleneck.queue.controller_mut() {
            self.learner = controller.learner().or(self.learner.take());
            if let (Some(learner), Some(samples)) = (&mut self.learner, controller.samples()) {
                learner.take(samples);
                if let Some(update) = learner.train() {
                    controller.install(update);
                }
            }
        }
        outside
    }

    /// The record of packets that left the queue.
    #[inline(always)]
    pub fn trace(&self) -> &Trace {
        &self.bottleneck.queue.probe.observer
    }

    /// See [`Port::trace`].
    #[inline(always)]
    pub fn trace_mut(&mut self) -> &mut Trace {
        &mut self.bottleneck.queue.probe.observer
    }
}
