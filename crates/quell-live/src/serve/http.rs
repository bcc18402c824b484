//! HTTP responses.

/// An HTTP response that pages of other sites can neither read nor embed.
pub fn reply(status: &str, kind: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.0 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nX-Content-Type-Options: nosniff\r\n\
        Cross-Origin-Resource-Policy: same-origin\r\n{headers}\r\n{body}"
    )
}

/// An error response that gives the reason.
pub fn refusal(status: &str, why: &str) -> String {
    reply(status, "text/plain; charset=utf-8", "", why)
}
