//! Runs other programs (iptables, nft), each for a limited time, so that a program that hangs does
//! not keep `quell live` from handling signals.

use std::borrow::Cow;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::{host, sys};

/// Time after which a program is killed; it includes the wait for another program's lock.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Interval of the checks whether a program that has closed its output has ended.
const NAP: Duration = Duration::from_millis(5);
/// Largest output of a program, bytes.
const MAX_OUTPUT: u64 = 16 << 20;

/// A word of a command that is printed to be pasted into a shell: in quotes unless it is plain.
/// Names of interfaces may contain `;`, `$` and quotes.
pub fn quoted(word: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-:@%+=,/".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.into(),
        false => format!("'{}'", word.replace('\'', r"'\''")).into(),
    }
}

/// Runs a program with this standard input. Returns its output or, if it fails, an error with the
/// output's last line.
pub fn run(program: &str, arguments: &[&str], input: &str) -> Result<String, String> {
    let (status, text) = run_for_status(program, arguments, input)?;
    if status.success() {
        return Ok(text);
    }
    let last = text.trim().lines().last().unwrap_or_default();
    Err(match last {
        "" => format!("{program}: {status}"),
        last => format!("{program}: {last}"),
    })
}

/// Runs a program with this standard input. Returns its exit status and its output; an error means
/// that it did not run to its end.
pub fn run_for_status(
    program: &str,
    arguments: &[&str],
    input: &str,
) -> Result<(ExitStatus, String), String> {
    let why = |error: io::Error| format!("{program}: {}", host::reason(&error));
    let (mut output, end) = io::pipe().map_err(why)?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(end.try_clone().map_err(why)?)
        .stderr(end)
        // In its own process group, since Ctrl-C at the terminal is for quell.
        .process_group(0);
    // If it outlived a killed quell, it would make rules that nothing removes. The kernel kills it
    // when this thread ends, not only when the process does; this thread waits for it.
    sys::end_with_parent(&mut command);
    let mut child = command.spawn().map_err(why)?;
    // The command holds the pipe's writing ends, which this closes.
    drop(command);
    if let Some(mut stdin) = child.stdin.take() {
        // The input fits into a pipe's buffer.
        let _ = stdin.write_all(input.as_bytes());
    }
    let deadline = Instant::now() + TIMEOUT;
    let mut text = Vec::new();
    let ended = listen(&mut output, &mut text, deadline) && ends(&mut child, deadline);
    if !ended {
        sys::kill(-child.id().cast_signed(), libc::SIGKILL);
    }
    let status = child.wait().map_err(why)?;
    match ended {
        true => Ok((status, String::from_utf8_lossy(&text).into_owned())),
        false => Err(format!(
            "{program}: no answer within {} s",
            TIMEOUT.as_secs()
        )),
    }
}

/// Reads a program's output until the program closes it; false if that takes too long, if the
/// output is too large, or if it cannot be read.
fn listen(output: &mut io::PipeReader, text: &mut Vec<u8>, deadline: Instant) -> bool {
    let mut piece = [0; 4096];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || text.len() as u64 > MAX_OUTPUT {
            return false;
        }
        if sys::readable(output.as_fd(), left) {
            match output.read(&mut piece) {
                Ok(0) => return true,
                Ok(n) => text.extend_from_slice(&piece[..n]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
    }
}

/// Waits for the program's end; false if it still runs at the deadline.
fn ends(child: &mut Child, deadline: Instant) -> bool {
    while Instant::now() < deadline {
        match child.try_wait() {
            Ok(None) => std::thread::sleep(NAP),
            ended => return ended.is_ok(),
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_word_is_one_word_of_a_shell() {
        assert_eq!(quoted("eth0.5@if3"), "eth0.5@if3");
        for name in ["x;id", "$(id)", "`id`", "a'b", "a\"b", "*", "", "-n\u{e9}"] {
            let script = format!("printf %s {}", quoted(name));
            assert_eq!(run("sh", &["-c", &script], "").as_deref(), Ok(name));
        }
    }

    #[test]
    fn a_program_returns_its_output_its_last_line_or_a_timeout() {
        assert_eq!(run("cat", &[], "said\n"), Ok("said\n".to_owned()));
        let failed = run("sh", &["-c", "echo first; echo last >&2; exit 3"], "");
        assert_eq!(failed, Err("sh: last".to_owned()));
        assert_eq!(
            run("sh", &["-c", "exit 3"], ""),
            Err("sh: exit status: 3".to_owned())
        );
        assert!(run("no-such-program", &[], "").is_err());
        let before = Instant::now();
        let hung = run("sh", &["-c", "sleep 60 & sleep 60"], "");
        assert_eq!(hung, Err("sh: no answer within 5 s".to_owned()));
        assert!(before.elapsed().as_secs() < 60, "before it ends by itself");
    }
}
