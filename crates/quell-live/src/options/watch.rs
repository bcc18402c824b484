//! The options of `quell watch`.

use std::path::PathBuf;

/// Example commands in the help text.
pub const EXAMPLES: &[&str] = &[
    "quell watch",
    "quell watch eth0 --every 10ms --out queues.csv --rotate 100mb --keep 10",
    "quell watch eth0 --every 100ms --json --duration 60s",
];

super::options! {
    /// The command line of `quell watch`.
    Options
    words {
        /// Interfaces; empty: all.
        devices: Vec<String> = "DEV..." "interfaces; default: all";
    }
    command {
        every: Option<String>, "TIME", "time between samples, 1ms to 60s", "1s";
        duration: Option<String>, "TIME", "stop after this time: 60s", "";
        out: Option<PathBuf>, "FILE", "write samples to this file: .csv or .jsonl; .parquet only with the Python package", "";
        rotate: Option<String>, "SIZE|TIME", "begin a new file at this size or age: 100mb, 3600s", "";
        keep: Option<usize>, "N", "keep only the N newest finished files", "";
        json: bool, "", "JSON lines on standard output", "";
        metrics: Option<u16>, "PORT", "port on 127.0.0.1 for Prometheus metrics", "";
        dashboard: Option<u16>, "[PORT]", "page with live charts of the queues on 127.0.0.1, at this port or any free one", "";
        flows: bool, "", "also the flows of fq_codel, cake and so on", "";
        quiet: bool, "", "print only errors", "";
    }
}
