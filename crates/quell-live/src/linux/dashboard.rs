//! The dashboard: one page on 127.0.0.1 that draws what the queues do now. Read only; who asks needs the token of its address.

use std::collections::BTreeMap;
use std::fmt::Display;

use serde::Serialize;
use serde_json::json;

use super::serve::{Told, refusal, reply};
use super::shell::random_key;
use crate::link::{BOUNDS, View};
use crate::talkers::Largest;

const PAGE: &str = include_str!("dashboard.html");
/// The page fetches from here only, and nothing can be put around it.
const HEADERS: &str = "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n\
    Content-Security-Policy: default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; \
    img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'\r\n";
/// Most queues that the page gets: `quell watch --flows` has thousands.
const MOST: usize = 64;

/// A queue as the page shows it.
#[derive(Clone, Debug, Serialize)]
pub struct Look {
    /// Where it is: a direction, or an interface and a handle.
    pub name: String,
    /// Its queue words, or its kind.
    pub queue: String,
    /// What it does.
    #[serde(flatten)]
    pub view: View,
    /// How many packets waited up to each bound, as the view has them.
    pub sojourns: Vec<u64>,
    /// The flows that send most: names and Mbit/s.
    pub flows: Vec<(String, f64)>,
    /// The hosts that send or receive most.
    pub hosts: Vec<(String, f64)>,
    /// What is or was wrong.
    pub faults: Vec<String>,
    /// What a law in the kernel reads and sets: titles and numbers.
    pub gauges: BTreeMap<&'static str, f64>,
}

/// Names and Mbit/s.
fn rates<K: Copy + Eq + Display>(largest: &Largest<K>) -> Vec<(String, f64)> {
    let named = |(key, bytes): (K, u64)| (key.to_string(), bytes as f64 * 8.0 / 1e6);
    largest.iter().map(named).collect()
}

impl Look {
    /// A look at this queue.
    pub fn new(name: impl Into<String>, queue: impl Into<String>, view: View) -> Self {
        Self {
            name: name.into(),
            queue: queue.into(),
            sojourns: view.sojourns.counts.to_vec(),
            flows: rates(&view.loudest.flows),
            hosts: rates(&view.loudest.hosts),
            faults: Vec::new(),
            gauges: BTreeMap::new(),
            view,
        }
    }
}

/// A token that nobody can guess.
pub fn token() -> String {
    let (one, two) = random_key();
    format!("{one:016x}{two:016x}")
}

/// Whether a guess is the token, in a time that does not depend on how much of it is right.
fn is_token(guess: &str, token: &str) -> bool {
    let pairs = guess.bytes().zip(token.bytes());
    let differ = pairs.fold(0, |all, (one, other)| all | (one ^ other));
    guess.len() == token.len() && std::hint::black_box(differ) == 0
}

/// The answer to the first line of a question in HTTP, from who named this machine as its host.
pub fn answer(line: &str, token: &str, state: &dyn Told) -> String {
    let mut words = line.split_whitespace();
    let (method, target) = (
        words.next().unwrap_or_default(),
        words.next().unwrap_or_default(),
    );
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut guesses = query
        .split('&')
        .filter_map(|part| part.strip_prefix("token="));
    let allowed = guesses.any(|guess| is_token(guess, token));
    match (method, path, allowed) {
        ("GET", "/", true) => reply("200 OK", "text/html; charset=utf-8", HEADERS, PAGE),
        ("GET", "/state", true) => {
            let mut looks = state.looks();
            let hidden = looks.len().saturating_sub(MOST);
            looks.truncate(MOST);
            let body = json!({"title": state.title(), "bounds_ns": BOUNDS, "queues": looks, "hidden": hidden});
            reply("200 OK", "application/json", HEADERS, &body.to_string())
        }
        ("GET", _, false) => {
            let body = "The address has a token: copy it whole from where quell printed it\n";
            refusal("403 Forbidden", body)
        }
        ("GET", _, _) => refusal("404 Not Found", "There are / and /state\n"),
        _ => refusal("405 Method Not Allowed", "Only GET\n"),
    }
}
