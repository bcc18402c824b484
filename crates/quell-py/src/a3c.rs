//! `quell._core.CoupledQueues`: a world that stops each period for somebody outside to set p' of every sub-queue of one queue.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use quell_link::Error;
use quell_qdisc::control::a3c::{self, INPUTS};
use quell_qdisc::{Gauges, Knobs, NEVER, Nanos, PieGauges};
use quell_sim::world::{Status, World};

use crate::scenario::Scenario;
use crate::{input_error, nanos};

/// What a period shows: the numbers that an actor reads of each sub-queue (float32, 12 each); of each whether it was in use, its delay
/// in ms and its share of losses (float32, 3 each); the link's utilisation, and whether the scenario is over.
type Seen<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>, f64, bool);

/// One world, and what was seen of it last.
#[pyclass(module = "quell._core")]
pub struct CoupledQueues {
    world: World,
    queue: usize,
    period: Nanos,
    published: bool,
    last: Vec<PieGauges>,
    gauges: Gauges,
}

#[pymethods]
impl CoupledQueues {
    /// The world of a scenario; `port` says which of its queues stops it: 0 is the bottleneck, then come the hops and the queue
    /// upwards. `published` reads gauges as the kernel's log has them.
    #[new]
    #[pyo3(signature = (scenario, queue, seed, *, port = 0, period_s = 0.015, published = false))]
    fn new(
        scenario: &Scenario,
        queue: &str,
        seed: u64,
        port: usize,
        period_s: f64,
        published: bool,
    ) -> PyResult<Self> {
        let mut world = World::new(scenario.0.clone(), queue, seed, None).map_err(input_error)?;
        if port >= world.queues() {
            return Err(input_error(format!(
                "port: there is no queue {port} among {}",
                world.queues()
            )));
        }
        let last: Vec<_> = world.sub_queues(port).collect();
        if last.is_empty() {
            let error = Error::new("this queue has no sub-queues to be set one by one");
            return Err(input_error(error.remedy("write l4s with its options")));
        }
        let period = nanos(period_s)?;
        world.set_external(port, period);
        Ok(Self {
            gauges: world.gauges(port),
            world,
            queue: port,
            period,
            published,
            last,
        })
    }

    /// How many sub-queues there are: the classic ones, then their L4S partners in the same order.
    #[getter]
    fn sub_queues(&self) -> usize {
        self.last.len()
    }

    /// Simulated seconds so far.
    #[getter]
    fn now_s(&self) -> f64 {
        self.world.now() as f64 / 1e9
    }

    /// Sets p' of every sub-queue (a negative number leaves it to the queue's own law) and runs on to the next decision.
    fn step<'py>(&mut self, py: Python<'py>, probabilities: Vec<f64>) -> PyResult<Seen<'py>> {
        if probabilities.len() != self.last.len() || !probabilities.iter().all(|p| *p <= 1.0) {
            return Err(input_error(format!(
                "write a number up to 1 for each of {} sub-queues",
                self.last.len()
            )));
        }
        for (sub_queue, &p) in probabilities.iter().enumerate() {
            let knobs = Knobs {
                base_probability: (p >= 0.0).then_some(p),
                release: p < 0.0,
                ..Knobs::default()
            };
            self.world.set_sub_queue(self.queue, sub_queue, &knobs);
        }
        let (readings, state, utilisation, over) = py.detach(|| self.run());
        Ok((
            PyBytes::new(py, &readings),
            PyBytes::new(py, &state),
            utilisation,
            over,
        ))
    }
}

impl CoupledQueues {
    fn run(&mut self) -> (Vec<u8>, Vec<u8>, f64, bool) {
        let over = self.world.run_until(NEVER) == Status::Done;
        let gauges = self.world.gauges(self.queue);
        let now: Vec<_> = self.world.sub_queues(self.queue).collect();
        let (mut readings, mut state) = (Vec::new(), Vec::new());
        let mut row = [0.0; INPUTS];
        for (last, now) in self.last.iter().zip(&now) {
            a3c::observe(self.published, self.world.now(), last, now, &mut row);
            readings.extend(row.iter().flat_map(|x| x.to_ne_bytes()));
            let busy = f32::from(u8::from(!a3c::is_idle(last, now)));
            let packets = (now.total_packets - last.total_packets).max(1) as f32;
            let loss = ((now.drops - last.drops) as f32 / packets).min(1.0);
            let values = [busy, now.qdelay as f32 / 1e6, loss];
            state.extend(values.iter().flat_map(|x| x.to_ne_bytes()));
        }
        let bytes = gauges.departed_bytes - self.gauges.departed_bytes;
        let room = gauges.rate_bps.max(1) as f64 * self.period as f64 / 8e9;
        self.last = now;
        self.gauges = gauges;
        (readings, state, (bytes as f64 / room).min(1.0), over)
    }
}

/// What an actor reads of a sub-queue, in order: its name, and where the default reading ends.
#[pyfunction]
#[pyo3(signature = (published = false))]
pub fn a3c_readings(published: bool) -> Vec<(&'static str, f64)> {
    match published {
        true => PieGauges::NAMES.map(|name| (name, f64::INFINITY)).to_vec(),
        false => a3c::READINGS
            .iter()
            .map(|r| (r.name, f64::from(r.most)))
            .collect(),
    }
}
