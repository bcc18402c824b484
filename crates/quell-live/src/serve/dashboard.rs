//! The dashboard: a page on 127.0.0.1 that draws the queues' present state. It is read-only; a
//! request needs the token in its address.

use serde_json::json;

use super::http::{refusal, reply};
use super::source::StatusSource;
use crate::packet::header::random_key;
use crate::plane::link::BOUNDS;

const PAGE: &str = include_str!("dashboard.html");
/// The page fetches from this server only, and cannot be embedded.
const HEADERS: &str = "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n\
    Content-Security-Policy: default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; \
    img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'\r\n";
/// Most queues in the page's state, since `quell watch --flows` has thousands.
const MAX_QUEUES: usize = 64;

/// A random token.
pub fn token() -> String {
    let (one, two) = random_key();
    format!("{one:016x}{two:016x}")
}

/// Whether a guess is the token, compared in constant time.
fn is_token(guess: &str, token: &str) -> bool {
    let pairs = guess.bytes().zip(token.bytes());
    let differ = pairs.fold(0, |all, (one, other)| all | (one ^ other));
    guess.len() == token.len() && std::hint::black_box(differ) == 0
}

/// The answer to the first line of an HTTP request, whose Host header has been checked.
pub fn answer(line: &str, token: &str, state: &dyn StatusSource) -> String {
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
            let mut queues = state.queues();
            let hidden = queues.len().saturating_sub(MAX_QUEUES);
            queues.truncate(MAX_QUEUES);
            let body = json!({"title": state.title(), "bounds_ns": BOUNDS, "queues": queues, "hidden": hidden});
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
