//! quell-sim for a browser: one run per call, text in and text out, through three C functions that
//! JavaScript calls without generated code.
//!
//! The caller gets a buffer from [`request`], writes a [`Request`] as JSON into it and calls
//! [`run`], which returns a length in bytes. At the address that [`answer`] returns, the caller
//! then reads as many bytes: an [`Answer`] as JSON.
// Integers are converted by `From`, `try_from` or a function of `quell_qdisc::num`, whose name says
// what happens to a value that does not fit.
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]
#![allow(unsafe_code)] // only for the attribute that exports a function under its own name

use std::cell::RefCell;
use std::sync::atomic::AtomicBool;

use quell_link::error::Error;
use quell_link::record::Run;
use quell_sim::RunOptions;
use quell_sim::scenario::{Overrides, Source};
use serde::{Deserialize, Serialize};

/// What to run: options of `quell compare`, as on its command line.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Queue words, such as `fq_codel`.
    pub aqm: String,
    /// Rate of the bottleneck, such as `10mbit`.
    pub rate: String,
    /// Base round trip of every flow, such as `20ms`.
    pub rtt: String,
    /// Flows, such as `cubic:4`.
    pub flow: Vec<String>,
    /// Whether all TCP flows use ECN.
    pub ecn: bool,
    /// Simulated time, such as `10s`.
    pub duration: String,
    /// Seed of the run, a whole number.
    pub seed: String,
    /// Number of bins of the time series; 0 counts as 1.
    pub bins: u64,
}

/// The result of a run.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The run's record and the scenario with every default filled in.
    Record {
        /// As `quell compare --json` writes it. `cpu_s` is 0: WebAssembly has no clock.
        run: Box<Run>,
        /// A scenario file.
        scenario: String,
    },
    /// The error, in one line.
    Error(String),
}

thread_local! {
    /// The buffer for the request.
    static REQUEST: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    /// The last answer.
    static ANSWER: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Returns a buffer for a request of `bytes` bytes.
#[unsafe(no_mangle)]
pub extern "C" fn request(bytes: usize) -> *mut u8 {
    REQUEST.with_borrow_mut(|buffer| {
        buffer.clear();
        buffer.resize(bytes, 0);
        buffer.as_mut_ptr()
    })
}

/// Runs what the request asks for and returns the answer's length in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn run() -> usize {
    let text = REQUEST.with_borrow(|request| answer_to(request));
    ANSWER.with_borrow_mut(|kept| {
        *kept = text;
        kept.len()
    })
}

/// Returns the address of the answer, which is valid until the next [`run`].
#[unsafe(no_mangle)]
pub extern "C" fn answer() -> *const u8 {
    ANSWER.with_borrow(|text| text.as_ptr())
}

/// Answers a request; both are JSON.
pub fn answer_to(request: &[u8]) -> String {
    let request = serde_json::from_slice(request).map_err(|e| Error::new(format!("request: {e}")));
    let answer = request
        .and_then(simulate)
        .unwrap_or_else(|error| Answer::Error(error.to_string()));
    serde_json::to_string(&answer).unwrap_or_else(|e| format!(r#"{{"error":"the record: {e}"}}"#))
}

fn simulate(request: Request) -> Result<Answer, Error> {
    let overrides = Overrides {
        rate: Some(request.rate),
        rtt: Some(request.rtt),
        flows: request.flow,
        ecn: request.ecn,
        duration: Some(request.duration),
        seeds: Some("1".into()),
        seed: Some(request.seed),
        ..Overrides::default()
    };
    let scenario = Source::load(None, &overrides)?.read()?;
    let options = RunOptions {
        // A bin has a width of at least 1 ns.
        series_bin: Some(scenario.duration / request.bins.clamp(1, scenario.duration.as_nanos())),
        pcap: None,
    };
    let stop = AtomicBool::new(false);
    let run = quell_sim::run(&scenario, &request.aqm, scenario.seed, &options, &stop)?;
    Ok(Answer::Record {
        run: Box::new(run),
        scenario: scenario.to_toml(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = r#"{"aqm": "codel", "rate": "10mbit", "rtt": "20ms", "flow": ["cubic:2"], "ecn": false,
        "duration": "10s", "seed": "1", "bins": 100}"#;

    fn called(text: &str) -> serde_json::Value {
        let buffer = request(text.len());
        REQUEST.with_borrow_mut(|bytes| {
            assert_eq!(bytes.as_ptr(), buffer.cast_const());
            bytes.copy_from_slice(text.as_bytes());
        });
        let length = run();
        ANSWER.with_borrow(|text| {
            assert_eq!((text.len(), text.as_ptr()), (length, answer()));
            serde_json::from_str(text).expect("an answer is JSON")
        })
    }

    #[test]
    fn a_request_gives_a_record_and_its_scenario() {
        let answer = called(EXAMPLE);
        let run = &answer["record"]["run"];
        assert_eq!(run["queue"], "codel");
        assert_eq!(
            run["series"]["backlog_ms"].as_array().map(Vec::len),
            Some(100)
        );
        assert!(run["goodput_mbps"].as_f64() > Some(8.0));
        let scenario = answer["record"]["scenario"].as_str();
        assert!(scenario.is_some_and(|toml| toml.contains("10mbit")));
    }

    #[test]
    fn errors_are_one_line() {
        let wrong = [
            (EXAMPLE.replace("codel", "codl"), "codl"),
            (EXAMPLE.replace("10mbit", "fast"), "rate"),
            (EXAMPLE.replace("cubic:2", "cubic:-1"), "cubic:-1"),
            (EXAMPLE.replace("bins", "tins"), "tins"),
            ("{".into(), "request"),
            (String::new(), "request"),
        ];
        for (request, named) in wrong {
            let error = called(&request)["error"].as_str().map(str::to_owned);
            assert!(
                error.is_some_and(|s| s.contains(named) && !s.contains('\n')),
                "{request}"
            );
        }
    }
}
