//! The dashboard: one page on 127.0.0.1 that draws what the queues do now. Read only; who asks needs the token of its address.

use serde::Serialize;
use serde_json::json;

use super::serve::Told;
use super::shell::random_key;
use crate::link::{BOUNDS, View};

const PAGE: &str = include_str!("dashboard.html");
/// The page fetches from here only, and nothing can be put around it.
const HEADERS: &str = "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nX-Content-Type-Options: nosniff\r\n\
    Content-Security-Policy: default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; \
    img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'\r\n";

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
}

impl Look {
    /// A look at this queue.
    pub fn new(name: impl Into<String>, queue: impl Into<String>, view: View) -> Self {
        Self {
            name: name.into(),
            queue: queue.into(),
            sojourns: view.sojourns.counts.to_vec(),
            view,
        }
    }
}

/// A token that nobody can guess.
pub fn token() -> String {
    let (one, two) = random_key();
    format!("{one:016x}{two:016x}")
}

/// The answer to the first line of a question in HTTP, from who named this machine as its host.
pub fn answer(line: &str, token: &str, state: &dyn Told) -> String {
    let mut words = line.split_whitespace();
    let (method, target) = (
        words.next().unwrap_or_default(),
        words.next().unwrap_or_default(),
    );
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let allowed = query
        .split('&')
        .any(|part| part.strip_prefix("token=") == Some(token));
    let text = "text/plain; charset=utf-8";
    match (method, path, allowed) {
        ("GET", "/", true) => reply("200 OK", "text/html; charset=utf-8", PAGE),
        ("GET", "/state", true) => {
            let body =
                json!({"title": state.title(), "bounds_ns": BOUNDS, "queues": state.looks()});
            reply("200 OK", "application/json", &body.to_string())
        }
        ("GET", _, false) => {
            let body = "The address has a token: copy it whole from where quell printed it\n";
            reply("403 Forbidden", text, body)
        }
        ("GET", _, _) => reply("404 Not Found", text, "There are / and /state\n"),
        _ => reply("405 Method Not Allowed", text, "Only GET\n"),
    }
}

fn reply(status: &str, kind: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.0 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{HEADERS}\r\n{body}"
    )
}
