//! `quell._core.Shell`: a command behind an emulated link. Linux only.

use std::ffi::OsString;
use std::num::NonZeroU64;
use std::os::fd::RawFd;
use std::time::Duration;

use pyo3::prelude::*;
use quell_link::{Error, Queue};
use quell_live::link::Params;
use quell_live::shell::{Config, ExitStatus, FarSide, Shell as Running};
use quell_qdisc::time;
use quell_sim::scenario::{Link, Shaper, run_seed};

use crate::scenario::Scenario;
use crate::{duration, input_error};

/// A running command. Not thread-safe.
#[pyclass(module = "quell._core")]
pub struct Shell {
    running: Option<Running>,
    ended: Option<ExitStatus>,
}

#[pymethods]
impl Shell {
    /// Runs `command` behind the scenario's links; without `[link.up]` that direction is like
    /// `[link]`. Each direction has the link's delay or, with `base_rtt` and a link without delay,
    /// half of the first flow's base round trip. With `hold` the command waits for `go`.
    #[new]
    #[pyo3(signature = (scenario, command, *, base_rtt, bin_s, server = None, mtu = 1500, offload = true,
        output = None, hold = false, dashboard = None))]
    #[allow(clippy::too_many_arguments)] // They are Python's keywords.
    fn new(
        py: Python<'_>,
        scenario: &Scenario,
        command: Vec<OsString>,
        base_rtt: bool,
        bin_s: f64,
        server: Option<Vec<OsString>>,
        mtu: u32,
        offload: bool,
        output: Option<(RawFd, RawFd)>,
        hold: bool,
        dashboard: Option<u16>,
    ) -> PyResult<Self> {
        let s = &scenario.0;
        if !s.hops.is_empty() {
            let error = Error::new("a shell has one link each way").key("hop");
            return Err(input_error(error.remedy("nest shells in place of [[hop]]")));
        }
        let rtt = s
            .flows
            .first()
            .filter(|_| base_rtt)
            .map_or(time::Duration::ZERO, |f| f.rtt);
        let bin = duration(bin_s)?;
        let params = |link, seed| params(link, rtt / 2, seed, bin).map_err(input_error);
        let config = Config {
            down: params(&s.link, s.seed)?,
            up: params(s.up.as_ref().unwrap_or(&s.link), run_seed(s.seed, 1))?,
            command,
            server,
            mtu,
            offload,
            output,
            hold,
            dashboard,
        };
        let running = py.detach(|| Running::start(config)).map_err(input_error)?;
        Ok(Self {
            running: Some(running),
            ended: None,
        })
    }

    /// Starts a command that `hold` has delayed.
    fn go(&mut self) -> PyResult<()> {
        self.running()?.go().map_err(input_error)
    }

    /// Waits for the command's end, at most `timeout_s` seconds; returns its exit status as in a
    /// shell, or None.
    fn wait(&mut self, py: Python<'_>, timeout_s: f64) -> PyResult<Option<i32>> {
        let running = self.running()?;
        let timeout = Duration::from_secs_f64(timeout_s.clamp(0.0, 3600.0));
        let ended = py.detach(|| running.wait(timeout)).map_err(input_error)?;
        self.ended = ended.or(self.ended);
        Ok(self.ended.map(ExitStatus::status))
    }

    /// Why the command could not be executed; None if it could.
    fn not_executed(&self) -> Option<String> {
        match self.ended {
            Some(ExitStatus::NotExecuted(error)) => Some(reason(error)),
            _ => None,
        }
    }

    /// The exit status of a server that has ended before the command, and why if it could not be
    /// executed.
    fn server_ended(&mut self) -> PyResult<Option<(i32, Option<String>)>> {
        Ok(self.running()?.server_ended.map(|ended| match ended {
            ExitStatus::NotExecuted(error) => (ended.status(), Some(reason(error))),
            _ => (ended.status(), None),
        }))
    }

    /// Whether the link was lost because a device was deleted; true once only.
    fn link_lost(&mut self) -> PyResult<bool> {
        Ok(self.running()?.link_lost())
    }

    /// Forwards SIGTERM or SIGHUP to the command.
    fn signal(&mut self, signal: i32) -> PyResult<()> {
        self.running()?.signal(signal);
        Ok(())
    }

    /// The other side's network namespace: that of the `caller`, or one for a `server` or an
    /// `unprivileged` caller.
    #[getter]
    fn outside(&mut self) -> PyResult<&'static str> {
        Ok(match self.running()?.outside {
            FarSide::Caller => "caller",
            FarSide::Server => "server",
            FarSide::Unprivileged => "unprivileged",
        })
    }

    /// The other side's addresses: IPv4, and IPv6 where there is one.
    #[getter]
    fn server(&mut self) -> PyResult<(String, Option<String>)> {
        Ok(self.running()?.server.clone())
    }

    /// The dashboard's address, with its token.
    #[getter]
    fn dashboard(&mut self) -> PyResult<Option<String>> {
        Ok(self.running()?.dashboard().map(str::to_owned))
    }

    /// The name of the device at both ends.
    #[getter]
    fn device(&mut self) -> PyResult<String> {
        Ok(self.running()?.device.clone())
    }

    /// The network of its addresses, as `100.64.0.0/18`.
    #[getter]
    fn network(&mut self) -> PyResult<String> {
        Ok(self.running()?.network.clone())
    }

    /// A snapshot of both directions, [down, up], as JSON.
    fn view(&mut self) -> PyResult<String> {
        serde_json::to_string(&self.running()?.view()).map_err(input_error)
    }

    /// Restarts the records, and with `series` their time series.
    fn restart(&mut self, series: bool) -> PyResult<()> {
        self.running()?.restart(series);
        Ok(())
    }

    /// Ends everything; returns the records of both directions, [down, up], as JSON.
    fn finish(&mut self, py: Python<'_>) -> PyResult<String> {
        self.running()?;
        let running = self.running.take();
        let records = py.detach(|| running.map(Running::finish).transpose());
        serde_json::to_string(&records.map_err(input_error)?).map_err(input_error)
    }
}

impl Shell {
    fn running(&mut self) -> PyResult<&mut Running> {
        let over = || pyo3::exceptions::PyRuntimeError::new_err("this shell is over");
        self.running.as_mut().ok_or_else(over)
    }
}

/// Parameters of the live link for a scenario's link.
fn params(
    link: &Link,
    base_delay: time::Duration,
    seed: u64,
    bin: time::Duration,
) -> Result<Params, Error> {
    if link.nic > 0 {
        let error = Error::new("a shell's link has no device queue").key("link.nic");
        return Err(error.remedy("write nic = 0"));
    }
    Ok(Params {
        rate: link.rate.clone(),
        queue: Queue::parse_without_learner(&link.queue)?,
        delay: if !link.delay.is_zero() {
            link.delay
        } else {
            base_delay
        },
        loss: link.loss,
        overhead: link.overhead,
        burst: match link.shaper {
            Shaper::Line => None,
            Shaper::Htb { burst } => Some(burst),
        },
        seed,
        bin: NonZeroU64::new(bin.as_nanos())
            .ok_or_else(|| Error::new("the bins have a width of 0"))?,
        talkers: false,
    })
}

fn reason(error: i32) -> String {
    let text = std::io::Error::from_raw_os_error(error).to_string();
    text.split(" (os error")
        .next()
        .unwrap_or_default()
        .to_owned()
}
