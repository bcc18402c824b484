//! What `quell live` changes in the system: iptables rules, written down before they are made, and undone.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use quell_link::Error;
use serde::{Deserialize, Serialize};

use super::host;

/// Where state files are. Gone after a reboot, as the rules are.
const FOLDER: &str = "/run/quell";
/// Packets with this mark (`SO_MARK`) are not queued: those of quell's own sockets.
pub const MARK: u32 = 0x7175_656c;

/// A rule: a program, then what follows its verb.
type Rule = Vec<String>;

/// What a state file says.
#[derive(Debug, Deserialize, Serialize)]
struct State {
    pid: u32,
    rules: Vec<Rule>,
}

/// An interface that no other process has; until it is dropped.
#[derive(Debug)]
pub struct Held {
    path: PathBuf,
    _lock: File,
}

/// The number of this network namespace: rules and interfaces' names belong to it.
fn namespace() -> u64 {
    fs::metadata("/proc/self/ns/net").map_or(0, |m| m.ino())
}

/// Takes the interface for this process, and undoes what one before it left behind.
pub fn hold(dev: &str) -> Result<Held, Error> {
    let path = Path::new(FOLDER).join(format!("live-{}-{dev}.json", namespace()));
    fs::create_dir_all(FOLDER).map_err(|e| no_state(Path::new(FOLDER), &e))?;
    let lock = lock(&path).map_err(|e| no_state(Path::new(FOLDER), &e))?;
    let Some(lock) = lock else {
        let error = Error::new("another quell live has it").key(format!("--dev {dev}"));
        return Err(error.remedy("stop that one first"));
    };
    undo(&path)?;
    Ok(Held { path, _lock: lock })
}

/// The lock beside a state file, which ends with the process at the latest; None if another process has it.
fn lock(path: &Path) -> io::Result<Option<File>> {
    let file = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path.with_extension("lock"))?;
    Ok(host::lock(file.as_fd())?.then_some(file))
}

fn no_state(path: &Path, error: &io::Error) -> Error {
    let text = format!("{}: {}", path.display(), host::reason(error));
    Error::new(text).remedy("the state file must be there before rules are made")
}

/// The rules that send what leaves, or arrives at, an interface to these packet queues.
pub fn rules(dev: &str, egress: Option<u16>, ingress: Option<u16>) -> Result<Vec<Rule>, Error> {
    let programs = programs()?;
    let ways = [("POSTROUTING", "-o", egress), ("PREROUTING", "-i", ingress)];
    let mut made = Vec::new();
    for (chain, flag, queue) in ways {
        for program in queue.iter().flat_map(|_| &programs) {
            let queue = queue.unwrap_or_default();
            let text = format!(
                "{program} {chain} {flag} {dev} -m mark ! --mark {MARK:#x} -j NFQUEUE --queue-num {queue} --queue-bypass"
            );
            made.push(text.split(' ').map(str::to_owned).collect());
        }
    }
    Ok(made)
}

/// iptables, and ip6tables where the kernel has IPv6.
fn programs() -> Result<Vec<&'static str>, Error> {
    let mut programs = vec!["iptables"];
    if Path::new("/proc/net/if_inet6").exists() {
        programs.push("ip6tables");
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let there = |p: &str| std::env::split_paths(&path).any(|folder| folder.join(p).exists());
    match programs.iter().find(|p| !there(p)) {
        None => Ok(programs),
        Some(p) => {
            Err(Error::new(format!("{p} is missing")).remedy("on Debian: apt-get install iptables"))
        }
    }
}

impl Held {
    /// Writes the rules down, then makes them: all, or none and an error.
    pub fn insert(&self, rules: Vec<Rule>) -> Result<(), Error> {
        let state = State {
            pid: std::process::id(),
            rules,
        };
        let part = self.path.with_extension("part");
        let written = write(&part, &state).and_then(|()| fs::rename(&part, &self.path));
        if let Err(error) = written {
            let _ = fs::remove_file(&part);
            return Err(no_state(&self.path, &error));
        }
        for rule in &state.rules {
            if let Err(why) = change("-A", rule) {
                undo(&self.path)?;
                return Err(Error::new(why).remedy("quell doctor says what is missing"));
            }
        }
        Ok(())
    }

    /// Removes what was inserted; how many rules there were.
    pub fn undo(&self) -> Result<usize, Error> {
        undo(&self.path)
    }
}

fn write(path: &Path, state: &State) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(&serde_json::to_vec(state)?)?;
    file.sync_all()
}

/// Removes the rules that a state file names, then the file; how many there were.
fn undo(path: &Path) -> Result<usize, Error> {
    let name = path.display();
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(e) => return Err(Error::new(format!("{name}: {}", host::reason(&e)))),
    };
    let state: State = serde_json::from_slice(&text).map_err(|e| {
        Error::new(format!("{name}: is no state file ({e})"))
            .remedy("look at iptables -t mangle -S, then delete it")
    })?;
    let mut removed = 0;
    for rule in &state.rules {
        if change("-C", rule).is_ok() {
            change("-D", rule).map_err(|why| {
                Error::new(why).remedy(format!(
                    "{name} still says what to undo: quell live --restore"
                ))
            })?;
            removed += 1;
        }
    }
    let _ = fs::remove_file(path);
    Ok(removed)
}

/// The state files of this network namespace, and the interface that each is about.
pub fn left() -> Vec<(PathBuf, String)> {
    let prefix = format!("live-{}-", namespace());
    let files = fs::read_dir(FOLDER).into_iter().flatten().flatten();
    let named = files.filter_map(|file| {
        let name = file.file_name().into_string().ok()?;
        let dev = name.strip_prefix(&prefix)?.strip_suffix(".json")?;
        Some((file.path(), dev.to_owned()))
    });
    let mut found: Vec<_> = named.collect();
    found.sort();
    found
}

/// Undoes what dead processes left behind in this network namespace: interfaces, and how many rules each had.
pub fn restore(dev: Option<&str>) -> Result<Vec<(String, usize)>, Error> {
    let mut done = Vec::new();
    for (path, name) in left() {
        if dev.is_some_and(|dev| dev != name) {
            continue;
        }
        let Some(_lock) = lock(&path).map_err(|e| no_state(&path, &e))? else {
            let error = Error::new(format!("quell live still runs on {name}")).key("--restore");
            return Err(error.remedy("stop it, which restores all"));
        };
        done.push((name, undo(&path)?));
    }
    Ok(done)
}

/// Runs a rule's program with this verb; what it had to say if that failed.
fn change(verb: &str, rule: &[String]) -> Result<(), String> {
    let (program, rest) = rule.split_first().ok_or("a rule without a program")?;
    // A group of its own: Ctrl-C at the terminal is for us.
    let run = Command::new(program)
        .args(["-w", "-t", "mangle", verb])
        .args(rest)
        .process_group(0)
        .output();
    match run {
        Ok(Output { status, .. }) if status.success() => Ok(()),
        Ok(done) => {
            let text = String::from_utf8_lossy(&done.stderr).trim().to_owned();
            let why = text.lines().last().unwrap_or("it failed");
            Err(format!("{program}: {why}"))
        }
        Err(error) => Err(format!("{program}: {}", host::reason(&error))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_leaves_out_our_own_packets_and_passes_when_nobody_reads() {
        let Ok(made) = rules("eth0", Some(7), Some(8)) else {
            return;
        };
        for rule in &made {
            assert!(rule.contains(&format!("{MARK:#x}")), "{rule:?}");
            assert!(rule.contains(&"--queue-bypass".to_owned()), "{rule:?}");
        }
        assert_eq!(made[0][1..4], ["POSTROUTING", "-o", "eth0"]);
        assert_eq!(made[made.len() - 1][1..4], ["PREROUTING", "-i", "eth0"]);
    }
}
