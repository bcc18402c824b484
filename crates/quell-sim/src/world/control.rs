//! Knobs, gauges and controllers of a world's queues.

use quell_link::error::Error;
use quell_qdisc::control::Control;
use quell_qdisc::time::{Duration, Instant};
use quell_qdisc::{Discipline, Gauges, KnobSet, Knobs, SubGauges};

use super::World;
use crate::port::Port;

impl World {
    /// Sets knobs of a queue, or of one of its sub-queues. If a packet waits for a decision about
    /// this queue or sub-queue, the packet continues.
    ///
    /// # Errors
    /// If there is no such queue or sub-queue, it lacks one of these knobs, or a value is out of
    /// its range.
    pub fn set_knobs(
        &mut self,
        queue: usize,
        sub_queue: Option<usize>,
        knobs: &Knobs,
    ) -> Result<(), Error> {
        let now = self.now;
        let known = self.knobs(queue, sub_queue.is_some())?;
        if let Some(lacking) = known.lacks(knobs) {
            return Err(self.lacks(queue, lacking, known));
        }
        if let Some(fault) = knobs.fault() {
            return Err(Error::new(format!("`{}`: {fault}", self.words(queue))));
        }
        let port = &mut self.net.ports[queue];
        let count = port.queue.discipline().sub_queues();
        if let Some(sub) = sub_queue.filter(|sub| *sub >= count) {
            let what = format!("there is no sub-queue {sub} of queue {queue}");
            return Err(Error::new(what).remedy(format!("it has {count}, the first is 0")));
        }
        let waited = port.question().is_some_and(|q| q.sub_queue == sub_queue);
        port.set_knobs(now, sub_queue, knobs);
        if waited {
            self.answers += 1;
            self.net.notify_cell(now, queue);
        }
        self.net.forget_acks(queue);
        Ok(())
    }

    /// The knobs of a queue, or of each of its sub-queues.
    ///
    /// # Errors
    /// If there is no such queue.
    pub fn knobs(&self, queue: usize, of_sub_queues: bool) -> Result<KnobSet, Error> {
        self.check_queue(queue)?;
        let discipline = self.net.ports[queue].queue.discipline();
        Ok(match of_sub_queues {
            true => discipline.sub_knobs(),
            false => discipline.knobs(),
        })
    }

    fn lacks(&self, queue: usize, knob: &str, known: KnobSet) -> Error {
        let names: Vec<_> = known.names().collect();
        let remedy = match names.is_empty() {
            true => "it has none".into(),
            false => format!("it has {}", names.join(", ")),
        };
        Error::new(format!("`{}` has no knob {knob}", self.words(queue))).remedy(remedy)
    }

    /// The queue words of a queue.
    fn words(&self, queue: usize) -> &str {
        let scenario = &self.scenario;
        let own = match (queue, &self.net.cell, &scenario.wifi) {
            (_, Some(cell), Some(wifi)) => {
                let node = usize::from(cell.links[queue].from);
                wifi.nodes[node].queue.as_ref()
            }
            (0, ..) => None,
            (port, ..) => match scenario.hops.get(port - 1) {
                Some(hop) => Some(&hop.queue),
                None if port == self.net.up_port() => scenario.up.as_ref().map(|up| &up.queue),
                None => return "bfifo",
            },
        };
        own.unwrap_or(&self.queue)
    }

    /// Checks that no queue has failed.
    ///
    /// # Errors
    /// The first failure of a queue from outside.
    pub fn check(&self) -> Result<(), Error> {
        let mut ports = self.net.ports.iter();
        match ports.find_map(|port| port.queue.discipline().failure()) {
            None => Ok(()),
            Some(why) => Err(Error::new(why)),
        }
    }

    /// Checks that there is a queue of this number.
    ///
    /// # Errors
    /// If there is none.
    pub fn check_queue(&self, queue: usize) -> Result<(), Error> {
        let last = self.net.ports.len() - 1;
        match queue <= last {
            true => Ok(()),
            false => Err(
                Error::new(format!("there is no queue {queue}")).remedy(match last {
                    0 => "choose 0, the only one".into(),
                    last => format!("choose 0 to {last}"),
                }),
            ),
        }
    }

    fn port_mut(&mut self, queue: usize) -> Result<&mut Port, Error> {
        self.check_queue(queue)?;
        Ok(&mut self.net.ports[queue])
    }

    /// Gauges of a queue.
    ///
    /// # Panics
    /// If there is no such queue: see [`World::queues`].
    pub fn gauges(&self, queue: usize) -> Gauges {
        self.net.gauges(self.now, queue)
    }

    /// Gauges of the sub-queues of a queue; empty if it has none.
    ///
    /// # Panics
    /// If there is no such queue: see [`World::queues`].
    pub fn sub_gauges(&self, queue: usize) -> impl Iterator<Item = SubGauges> {
        let (now, discipline) = (self.now, self.net.ports[queue].queue.discipline());
        let all = 0..discipline.sub_queues();
        all.filter_map(move |sub| discipline.sub_gauges(now, sub))
    }

    /// Link-layer overhead at a queue, bytes per packet.
    ///
    /// # Panics
    /// If there is no such queue: see [`World::queues`].
    pub fn overhead(&self, queue: usize) -> u32 {
        self.net.ports[queue].overhead
    }

    /// The controller that sets a queue's knobs, if any.
    pub fn controller(&self, queue: usize) -> Option<&dyn Control> {
        self.net.ports.get(queue)?.queue.controller()
    }

    /// See [`World::controller`].
    pub fn controller_mut(&mut self, queue: usize) -> Option<&mut dyn Control> {
        let controller = self.net.ports.get_mut(queue)?.queue.controller_mut()?;
        Some(controller.as_mut())
    }

    /// Attaches a controller to a queue.
    ///
    /// # Errors
    /// If there is no such queue, it lacks a knob that the controller sets, or the time between
    /// decisions is 0.
    pub fn set_controller(
        &mut self,
        queue: usize,
        controller: Box<dyn Control>,
    ) -> Result<(), Error> {
        let now = self.now;
        if controller.period() == Duration::ZERO {
            let what = format!("the controller {} has a period of 0", controller.name());
            return Err(Error::new(what).remedy("let it decide every nanosecond at most"));
        }
        let sets = controller.knobs();
        for (wanted, of_sub_queues) in [(sets.queue, false), (sets.sub_queues, true)] {
            let known = self.knobs(queue, of_sub_queues)?;
            if let Some(lacking) = known.misses(wanted) {
                return Err(self.lacks(queue, lacking, known));
            }
        }
        if queue == 0 {
            self.controlled_by = Some(controller.name());
        }
        self.port_mut(queue)?.queue.set_controller(now, controller);
        self.net.control_at = Instant::ZERO;
        Ok(())
    }

    /// Detaches a queue's controller; knobs keep their values.
    pub fn release(&mut self, queue: usize) {
        if let Some(port) = self.net.ports.get_mut(queue) {
            port.queue.release();
            self.not_controlled(queue);
        }
    }

    /// Removes the controller's name from the record if the queue is the bottleneck's.
    fn not_controlled(&mut self, queue: usize) {
        if queue == 0 {
            self.controlled_by = None;
        }
    }

    /// Makes a queue's controller request a decision from outside for each packet for which it
    /// would evaluate its network. Returns false if the controller cannot do so.
    pub fn ask_outside(&mut self, queue: usize) -> bool {
        self.controller_mut(queue)
            .is_some_and(|controller| controller.ask_outside())
    }

    /// Inputs of the network of a queue's controller for the packet that waits for a decision;
    /// empty if none waits.
    pub fn question(&self, queue: usize) -> &[f32] {
        self.controller(queue).map_or(&[], |c| c.question())
    }

    /// Number of queues: the bottleneck, the hops in order, the up link, and the modems of both
    /// directions.
    pub fn queues(&self) -> usize {
        self.net.ports.len()
    }

    /// Attaches an outside controller to a queue: `run_until` then returns every `period` for a
    /// decision.
    ///
    /// # Errors
    /// If there is no such queue.
    pub fn set_outside(&mut self, queue: usize, period: Duration) -> Result<(), Error> {
        let now = self.now;
        self.port_mut(queue)?.queue.set_outside(now, period);
        self.not_controlled(queue);
        self.net.control_at = Instant::ZERO;
        Ok(())
    }
}
