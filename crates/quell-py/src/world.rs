//! `quell._core.World`: a world that Python runs from decision to decision.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use quell_link::Error;
use quell_qdisc::{Gauges, Knobs};
use quell_sim::{RunOptions, Session, Status};

use crate::runs::AnyQueue;
use crate::scenario::Scenario;
use crate::{duration, input_error};

/// A pending decision: the queue, the sub-queue (None: the queue as a whole), and the queue's
/// gauges.
type Question<'py> = (usize, Option<usize>, Bound<'py, PyDict>);

/// One world and its run.
#[pyclass(module = "quell._core")]
pub struct World(Option<Session>);

#[pymethods]
impl World {
    /// The world of a scenario with this queue at the bottleneck. `series_bin_s` requests time
    /// series, `pcap` names a file for the bottleneck's packets.
    #[new]
    #[pyo3(signature = (scenario, queue, seed, *, series_bin_s = None, pcap = None))]
    fn new(
        scenario: &Scenario,
        queue: AnyQueue,
        seed: u64,
        series_bin_s: Option<f64>,
        pcap: Option<std::path::PathBuf>,
    ) -> PyResult<Self> {
        let options = RunOptions {
            series_bin: series_bin_s.map(duration).transpose()?,
            pcap,
        };
        let own = |_| PyTypeError::new_err("a queue that is written in Python has no knobs");
        let queue = queue.parsed()?.map_err(own)?.parsed;
        let (scenario, bin) = (scenario.0.clone(), options.series_bin);
        let world = quell_sim::World::builder(scenario)
            .queue(&*queue)
            .seed(seed)
            .series(bin)
            .build();
        let session = Session::new(world.map_err(input_error)?, &options);
        Ok(Self(Some(session.map_err(input_error)?)))
    }

    /// Gives the control of a queue (0: the bottleneck, then the hops, then the queue upwards) to
    /// the caller: `run` then stops every `period_s` seconds.
    #[pyo3(signature = (period_s, queue = 0))]
    fn control(&mut self, period_s: f64, queue: usize) -> PyResult<()> {
        let period = duration(period_s)?;
        let world = &mut self.session()?.world;
        world.set_outside(queue, period).map_err(input_error)
    }

    /// The knobs of a queue as a whole.
    #[pyo3(signature = (queue = 0))]
    fn knobs(&mut self, queue: usize) -> PyResult<Vec<&'static str>> {
        let known = self.session()?.world.knobs(queue, false);
        Ok(known.map_err(input_error)?.names().collect())
    }

    /// Runs to the next decision; None at the scenario's end. Releases the interpreter's lock;
    /// Ctrl-C ends the run.
    fn run<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Question<'py>>> {
        let session = self.session()?;
        let mut signal = None;
        let status = py.detach(|| {
            let mut poll = || {
                let checked = Python::attach(|py| py.check_signals());
                checked.map_err(|e| {
                    signal = Some(e);
                    Error::new("interrupted")
                })
            };
            session.run_to_decision(&mut poll)
        });
        if let Some(signal) = signal {
            return Err(signal);
        }
        match status.map_err(input_error)? {
            Status::Done => Ok(None),
            Status::Decide {
                queue,
                sub_queue,
                gauges,
            } => Ok(Some((queue, sub_queue, gauges_to_python(py, &gauges)?))),
        }
    }

    /// Sets knobs of a queue, or of one of its sub-queues. This answers a packet that waits for
    /// this decision.
    #[pyo3(signature = (knobs, queue = 0, sub_queue = None))]
    fn set(
        &mut self,
        knobs: &Bound<'_, PyAny>,
        queue: usize,
        sub_queue: Option<usize>,
    ) -> PyResult<()> {
        let knobs = knobs_from_python(knobs)?;
        let world = &mut self.session()?.world;
        world
            .set_knobs(queue, sub_queue, &knobs)
            .map_err(input_error)
    }

    /// Ends the run and returns its record as JSON. The world cannot be used afterwards.
    fn finish(&mut self) -> PyResult<String> {
        self.session()?;
        let run = self.0.take().map(Session::finish);
        let run = run.ok_or_else(ended)?.map_err(input_error)?;
        serde_json::to_string(&run).map_err(input_error)
    }
}

impl World {
    fn session(&mut self) -> PyResult<&mut Session> {
        self.0.as_mut().ok_or_else(ended)
    }
}

fn ended() -> PyErr {
    input_error("the run has ended")
}

fn gauges_to_python<'py>(py: Python<'py>, gauges: &Gauges) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("now", gauges.now.as_secs_f64())?;
    dict.set_item("backlog_packets", gauges.backlog_packets)?;
    dict.set_item("backlog_bytes", gauges.backlog_bytes)?;
    dict.set_item("limit_packets", gauges.limit_packets)?;
    dict.set_item("sojourn", gauges.sojourn.as_secs_f64())?;
    dict.set_item("head_age", gauges.head_age.as_secs_f64())?;
    dict.set_item("rate_bps", gauges.rate.bps())?;
    dict.set_item("share", gauges.share)?;
    dict.set_item("achieved_bps", gauges.achieved.bps())?;
    dict.set_item("busy", gauges.busy)?;
    dict.set_item("contenders", gauges.contenders)?;
    dict.set_item("aggregate", gauges.aggregate)?;
    dict.set_item("arrivals", gauges.arrivals)?;
    dict.set_item("departures", gauges.departures)?;
    dict.set_item("departed_bytes", gauges.departed_bytes)?;
    dict.set_item("dropped_bytes", gauges.dropped_bytes)?;
    dict.set_item("drops_overflow", gauges.drops_overflow)?;
    dict.set_item("drops_early", gauges.drops_early)?;
    dict.set_item("marks", gauges.marks)?;
    dict.set_item("probability", gauges.probability)?;
    dict.set_item("backlog_packet_seconds", gauges.backlog_ns as f64 / 1e9)?;
    Ok(dict)
}

fn knobs_from_python(answer: &Bound<'_, PyAny>) -> PyResult<Knobs> {
    let mut knobs = Knobs::default();
    if answer.is_none() {
        return Ok(knobs);
    }
    let dict = answer
        .cast::<PyDict>()
        .map_err(|_| PyTypeError::new_err("decide() gives a dict of knobs, or None"))?;
    for (name, value) in dict {
        let name: String = name.extract()?;
        let name = name.as_str();
        match name {
            "limit" => knobs.limit_packets = Some(packets(&value)?),
            "drop" => knobs.drop = Some(share(name, &value)?),
            "base_probability" => knobs.base_probability = Some(share(name, &value)?),
            other => {
                return Err(input_error(format!(
                    "unknown knob `{other}`; known: limit, drop, base_probability"
                )));
            }
        }
    }
    Ok(knobs)
}

fn packets(value: &Bound<'_, PyAny>) -> PyResult<u32> {
    match value.extract() {
        Ok(packets) if packets > 0 => Ok(packets),
        _ => Err(input_error(format!(
            "the knob limit is {value}; it must be a whole number of packets, at least 1"
        ))),
    }
}

fn share(name: &str, value: &Bound<'_, PyAny>) -> PyResult<f64> {
    match value.extract() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err(input_error(format!(
            "the knob {name} is {value}; it must be a probability between 0 and 1"
        ))),
    }
}
