//! Answers in HTTP.

/// An answer in HTTP that no other site's page can read or embed.
pub fn reply(status: &str, kind: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.0 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nX-Content-Type-Options: nosniff\r\n\
        Cross-Origin-Resource-Policy: same-origin\r\n{headers}\r\n{body}"
    )
}

/// An answer that says why there is none.
pub fn refusal(status: &str, why: &str) -> String {
    reply(status, "text/plain; charset=utf-8", "", why)
}
