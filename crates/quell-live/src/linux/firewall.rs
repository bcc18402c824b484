//! The firewall's rules that send an interface's packets to packet queues: made, looked at, removed.
//!
//! Nothing counts as absent because a program failed: only a list of rules that was read to its end and lacks one says so.

use std::ops::RangeInclusive;
use std::path::Path;

use quell_link::Error;
use serde::{Deserialize, Serialize};

use super::command;
use super::nftables::Table;

/// Packets with this mark (`SO_MARK`) are not queued: those of quell's own sockets.
pub const MARK: u32 = 0x7175_656c;
/// Most copies of one rule that are removed.
const MOST: usize = 100;

/// The packet queues of a direction's loops: the kernel keeps all packets between two hosts at one of them.
pub type Queues = RangeInclusive<u16>;

/// A rule: a program, then what follows its verb.
type Rule = Vec<String>;

/// What is changed: a state file holds it.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Changes {
    rules: Vec<Rule>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    table: Option<Table>,
}

impl Changes {
    /// What sends what leaves, or arrives at, an interface to these packet queues: with nftables where nft and the kernel take it, else
    /// (or with `QUELL_FIREWALL=iptables`) with iptables.
    ///
    /// # Errors
    /// If neither nftables nor iptables can be used here, or the interface's name does not suit iptables.
    pub fn new(dev: &str, egress: Option<Queues>, ingress: Option<Queues>) -> Result<Self, Error> {
        let iptables = std::env::var_os("QUELL_FIREWALL").is_some_and(|value| value == "iptables");
        let table = Table::new(dev, egress.as_ref(), ingress.as_ref()).filter(|_| !iptables);
        match table.filter(|table| there("nft") && table.fits()) {
            Some(table) => Ok(Self {
                rules: Vec::new(),
                table: Some(table),
            }),
            None => Self::iptables(dev, egress, ingress),
        }
    }

    /// The same with iptables.
    ///
    /// # Errors
    /// If a program is missing, or the interface's name does not suit iptables.
    pub fn iptables(
        dev: &str,
        egress: Option<Queues>,
        ingress: Option<Queues>,
    ) -> Result<Self, Error> {
        let programs = programs()?;
        if dev.ends_with('+') {
            let what = "iptables takes a + at the end for all names that begin so";
            let error = Error::new(what).key(format!("--dev {dev}"));
            return Err(error.remedy(format!("rename it: ip link set {dev} name ...")));
        }
        let ways = [("POSTROUTING", "-o", egress), ("PREROUTING", "-i", ingress)];
        let mut rules = Vec::new();
        for (chain, flag, queue) in ways {
            let Some(queues) = queue else { continue };
            let (first, last) = (queues.start(), queues.end());
            let (flag_of_queue, queue) = match first == last {
                true => ("--queue-num", first.to_string()),
                false => ("--queue-balance", format!("{first}:{last}")),
            };
            for program in &programs {
                let mark = format!("{MARK:#x}");
                let matching = ["-m", "mark", "!", "--mark", &mark];
                let action = ["-j", "NFQUEUE", flag_of_queue, &queue, "--queue-bypass"];
                let words = [program, chain, flag, dev].into_iter();
                let words = words.chain(matching).chain(action);
                rules.push(words.map(str::to_owned).collect());
            }
        }
        Ok(Self { rules, table: None })
    }

    /// The rules, each a program and what follows its verb.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Makes what is missing; how many rules that were.
    ///
    /// # Errors
    /// What the program said that refused a change; some may be made.
    pub fn make(&self) -> Result<usize, String> {
        let mut made = self.table.as_ref().map_or(Ok(0), Table::make)?;
        for rule in &self.rules {
            if count(rule)? > 0 {
                continue;
            }
            change("-A", rule)?;
            if count(rule)? == 0 {
                // What cannot be seen could not be undone later.
                change("-D", rule)?;
                let what = "took a rule but does not list it";
                return Err(format!("{}: {what}: {}", rule[0], rule[1..].join(" ")));
            }
            made += 1;
        }
        Ok(made)
    }

    /// Whether the kernel says when somebody changes them: nf_tables does, the tables of older iptables do not.
    pub fn noticed(&self) -> bool {
        let new = |rule: &Rule| {
            command::run(&rule[0], &["-V"], "").is_ok_and(|text| text.contains("nf_tables"))
        };
        self.rules.iter().all(new)
    }

    /// Removes all of it; how many rules there were.
    ///
    /// # Errors
    /// What the program said that refused a change; some may be left.
    pub fn undo(&self) -> Result<usize, String> {
        let mut removed = self.table.as_ref().map_or(Ok(0), Table::undo)?;
        for rule in &self.rules {
            for _ in 0..MOST {
                if count(rule)? == 0 {
                    break;
                }
                change("-D", rule)?;
                removed += 1;
            }
        }
        Ok(removed)
    }
}

/// iptables, and ip6tables where the kernel has IPv6.
fn programs() -> Result<Vec<&'static str>, Error> {
    let mut programs = vec!["iptables"];
    if Path::new("/proc/net/if_inet6").exists() {
        programs.push("ip6tables");
    }
    match programs.iter().find(|p| !there(p)) {
        None => Ok(programs),
        Some(p) => Err(Error::new(format!("{p} is missing"))
            .remedy("on Debian: apt-get install nftables, or iptables")),
    }
}

/// Whether there is such a program.
fn there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).exists())
}

/// How often a rule is there.
fn count(rule: &[String]) -> Result<usize, String> {
    let [program, chain, rest @ ..] = rule else {
        return Err("a rule without a program".to_owned());
    };
    let text = command::run(program, &["-w", "-t", "mangle", "-S", chain], "")?;
    // A list begins with its chain's policy: without it this is none.
    if !text
        .lines()
        .any(|line| line.starts_with(&format!("-P {chain} ")))
    {
        return Err(format!("{program}: cannot list the chain {chain}"));
    }
    let wanted = rest.iter().map(String::as_str);
    let is = |line: &&str| {
        let mut words = line.split_whitespace();
        words.next() == Some("-A")
            && words.next() == Some(chain)
            && words.map(|word| word.trim_matches('"')).eq(wanted.clone())
    };
    Ok(text.lines().filter(is).count())
}

/// Runs a rule's program with this verb.
fn change(verb: &str, rule: &[String]) -> Result<(), String> {
    let (program, rest) = rule.split_first().ok_or("a rule without a program")?;
    let mut arguments = vec!["-w", "-t", "mangle", verb];
    arguments.extend(rest.iter().map(String::as_str));
    command::run(program, &arguments, "").map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_leaves_out_our_own_packets_and_passes_when_nobody_reads() {
        let Ok(made) = Changes::iptables("eth0", Some(7..=7), Some(8..=11)) else {
            return;
        };
        let made = made.rules();
        for rule in made {
            assert!(rule.contains(&format!("{MARK:#x}")), "{rule:?}");
            assert!(rule.contains(&"--queue-bypass".to_owned()), "{rule:?}");
        }
        assert_eq!(made[0][1..4], ["POSTROUTING", "-o", "eth0"]);
        let last = &made[made.len() - 1];
        assert_eq!(last[1..4], ["PREROUTING", "-i", "eth0"]);
        assert_eq!(made[0][9..13], ["-j", "NFQUEUE", "--queue-num", "7"]);
        assert_eq!(last[9..13], ["-j", "NFQUEUE", "--queue-balance", "8:11"]);
    }
}
