//! Other programs (iptables, nft), each for a limited time: none may keep `quell live` from its
//! signals.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::{host, sys};

/// The time that a program may take, including the wait for another program's lock.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How often a program that has closed its output is asked whether it has ended.
const NAP: Duration = Duration::from_millis(5);
/// Bytes that are read of a program's output.
const MAX_OUTPUT: u64 = 16 << 20;

/// Runs a program with this standard input; what it said, or why it failed: in the last line of
/// what it said, if it said anything.
pub fn run(program: &str, arguments: &[&str], input: &str) -> Result<String, String> {
    let (status, text) = ask(program, arguments, input)?;
    if status.success() {
        return Ok(text);
    }
    let last = text.trim().lines().last().unwrap_or_default();
    Err(match last {
        "" => format!("{program}: {status}"),
        last => format!("{program}: {last}"),
    })
}

/// Runs a program with this standard input; how it ended and what it said. An error means that it
/// did not run to its end.
pub fn ask(program: &str, arguments: &[&str], input: &str) -> Result<(ExitStatus, String), String> {
    let why = |error: io::Error| format!("{program}: {}", host::reason(&error));
    let (mut output, end) = io::pipe().map_err(why)?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(end.try_clone().map_err(why)?)
        .stderr(end)
        // A group of its own: Ctrl-C at the terminal is for us.
        .process_group(0);
    // After kill -9 it would make rules that nothing removes any more. This thread waits for it, so
    // that it does not end before it.
    sys::end_with_parent(&mut command);
    let mut child = command.spawn().map_err(why)?;
    // The command holds the writing ends; with it they close here.
    drop(command);
    if let Some(mut stdin) = child.stdin.take() {
        // What is written is shorter than a pipe.
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

/// Reads all that a program says until it closes its output; false if the time is over before.
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
    fn a_program_answers_fails_with_its_last_line_or_is_ended_when_its_time_is_over() {
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
