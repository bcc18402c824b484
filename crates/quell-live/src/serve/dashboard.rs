//! The dashboard: a page on 127.0.0.1 that draws the queues' present state and past hour. It is
//! read-only; a request needs the token in its address.

use std::ffi::OsString;
use std::time::Instant;

use quell_link::Error;
use serde_json::json;

use super::history::History;
use super::http::{refusal, reply};
use super::source::{QueueStatus, StatusSource};
use crate::packet::header::random_key;
use crate::plane::link::BOUNDS;

const PAGE: &str = include_str!("dashboard.html");
/// The page fetches from this server only, and cannot be embedded.
const HEADERS: &str = "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n\
    Content-Security-Policy: default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; \
    img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'\r\n";
/// Most queues in the page's state, since `quell watch --flows` has thousands.
const MAX_QUEUES: usize = 64;

/// Environment variable with the token. With it the address stays the same and can be bookmarked.
pub const TOKEN: &str = "QUELL_DASHBOARD_TOKEN";
/// Fewest letters and digits of a token that a user chooses: as hexadecimal digits they have 128
/// bits.
const MIN_TOKEN_LEN: usize = 32;

/// The token: that of the environment, or a random one.
///
/// # Errors
/// If that of the environment is too short, or has other characters than letters and digits.
pub fn token() -> Result<String, Error> {
    chosen(std::env::var_os(TOKEN))
}

fn chosen(named: Option<OsString>) -> Result<String, Error> {
    let Some(named) = named else {
        let (one, two) = random_key();
        return Ok(format!("{one:016x}{two:016x}"));
    };
    let good = |text: &String| {
        text.len() >= MIN_TOKEN_LEN && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    named.into_string().ok().filter(good).ok_or_else(|| {
        let error = Error::new(format!(
            "is not at least {MIN_TOKEN_LEN} letters and digits"
        ));
        error
            .key(TOKEN)
            .remedy("generate one: openssl rand -hex 16")
    })
}

/// Whether a guess is the token, compared in constant time.
fn is_token(guess: &str, token: &str) -> bool {
    let pairs = guess.bytes().zip(token.bytes());
    let differ = pairs.fold(0, |all, (one, other)| all | (one ^ other));
    guess.len() == token.len() && std::hint::black_box(differ) == 0
}

/// The queues that the page shows, and the number of further ones.
pub fn shown(state: &dyn StatusSource) -> (Vec<QueueStatus>, usize) {
    let mut queues = state.queues();
    let hidden = queues.len().saturating_sub(MAX_QUEUES);
    queues.truncate(MAX_QUEUES);
    (queues, hidden)
}

/// The answer to the first line of an HTTP request, whose Host header has been checked.
pub fn answer(line: &str, token: &str, state: &dyn StatusSource, history: &History) -> String {
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
            let (queues, hidden) = shown(state);
            let body = json!({"title": state.title(), "bounds_ns": BOUNDS, "queues": queues, "hidden": hidden});
            reply("200 OK", "application/json", HEADERS, &body.to_string())
        }
        ("GET", "/history", true) => {
            let moments = history.json(Instant::now());
            let body = json!({"title": state.title(), "bounds_ns": BOUNDS, "moments": moments});
            reply("200 OK", "application/json", HEADERS, &body.to_string())
        }
        ("GET", _, false) => {
            let body = "The address has a token: copy it whole from where quell printed it\n";
            refusal("403 Forbidden", body)
        }
        ("GET", _, _) => refusal("404 Not Found", "There are /, /state and /history\n"),
        _ => refusal("405 Method Not Allowed", "Only GET\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_random_or_one_that_cannot_be_guessed() {
        let random = chosen(None).expect("one");
        assert_eq!(random.len(), MIN_TOKEN_LEN);
        assert_ne!(random, chosen(None).expect("another"));
        let own = "0123456789abcdefghijKLMNOPQRSTUV";
        assert_eq!(chosen(Some(own.into())).expect("long enough"), own);
        for bad in [
            "",
            "0123",
            &own[1..],
            &format!("{own}&x"),
            &format!("{own}\u{e4}"),
        ] {
            let error = chosen(Some(bad.into())).expect_err(bad).to_string();
            assert!(
                error.starts_with("QUELL_DASHBOARD_TOKEN: ") && !error.contains(own),
                "{error}"
            );
        }
    }
}
