//! `quell._core.Gate`: one direction of an interface under a queue. Linux only.

use pyo3::prelude::*;
use quell_link::server::Rate;
use quell_link::units::parse_rate;
use quell_link::{Error, Queue};
use quell_live::gate::{Gate as Running, Look, Source};
use quell_live::link::Params;
use quell_qdisc::MS;

use crate::input_error;

/// Width of the last look's bin.
const BIN: u64 = 100 * MS;

/// A running direction. Not for several threads at once.
#[pyclass(module = "quell._core")]
pub struct Gate {
    running: Option<Running>,
    /// What was seen last of one that has ended.
    last: Look,
}

#[pymethods]
impl Gate {
    /// Holds packets back to `rate` with the queue of these words. They come from the kernel's packet queue `queue` (or the next
    /// that is free); with `copies`, an interface's index and whether packets that leave it are meant, only copies of them.
    #[new]
    #[pyo3(signature = (rate, aqm, *, queue = 0, copies = None, overhead = 14, mtu = 1500))]
    fn new(
        rate: &str,
        aqm: &str,
        queue: u16,
        copies: Option<(u32, bool)>,
        overhead: u32,
        mtu: u32,
    ) -> PyResult<Self> {
        let source = copies.map_or(Source::Queue(queue), |(i, out)| Source::Copies(i, out));
        let params = params(rate, aqm, overhead).map_err(input_error)?;
        let running = Running::start(source, params, mtu).map_err(input_error)?;
        Ok(Self {
            running: Some(running),
            last: Look::default(),
        })
    }

    /// The number of the kernel's packet queue.
    #[getter]
    fn queue(&self) -> PyResult<u16> {
        Ok(self.running()?.queue)
    }

    /// Says what is wrong with a rate or with queue words.
    #[staticmethod]
    fn check(rate: &str, aqm: &str, overhead: u32) -> PyResult<()> {
        params(rate, aqm, overhead).map(|_| ()).map_err(input_error)
    }

    /// From now on another rate and queue; no packet is lost that fits into it.
    fn change(&self, rate: &str, aqm: &str, overhead: u32) -> PyResult<()> {
        let params = params(rate, aqm, overhead).map_err(input_error)?;
        self.running()?.change(params);
        Ok(())
    }

    /// A look at it, as JSON; after its end, the last one.
    fn look(&self) -> PyResult<String> {
        let look = self.running.as_ref().map_or(self.last, Running::look);
        serde_json::to_string(&look).map_err(input_error)
    }

    /// Whether its loop still runs.
    fn alive(&self) -> bool {
        self.running.as_ref().is_some_and(Running::alive)
    }

    /// Lets everything go on that is held, and that comes from now on.
    fn open(&self) -> PyResult<()> {
        self.running()?.open();
        Ok(())
    }

    /// Opens and ends it.
    fn finish(&mut self, py: Python<'_>) {
        if let Some(running) = self.running.take() {
            self.last = py.detach(|| running.finish());
        }
    }
}

impl Gate {
    fn running(&self) -> PyResult<&Running> {
        let over = || pyo3::exceptions::PyRuntimeError::new_err("this gate is closed");
        self.running.as_ref().ok_or_else(over)
    }
}

fn params(rate: &str, aqm: &str, overhead: u32) -> Result<Params, Error> {
    let bps = parse_rate(rate).map_err(|e| e.key("rate"))?;
    if bps == 0 {
        let error = Error::new("a rate of zero lets nothing pass").key("rate");
        return Err(error.remedy("write one as in tc: 18mbit"));
    }
    let queue = Queue::parse(aqm).map_err(|e| e.key("aqm"))?;
    queue.check(bps).map_err(|e| e.key("aqm"))?;
    Ok(Params {
        rate: Rate::Constant(bps),
        queue,
        delay: 0,
        loss: 0.0,
        overhead,
        burst: None,
        seed: 1,
        bin: BIN,
    })
}
