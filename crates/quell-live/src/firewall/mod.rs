//! Makes, checks and removes the firewall rules that send an interface's packets to packet queues.
//!
//! A rule counts as absent only if a complete list lacks it, never because a program failed.

mod nftables;
mod saved;

use std::fs;
use std::net::{Ipv6Addr, UdpSocket};
use std::ops::RangeInclusive;

use quell_link::Error;
use serde::{Deserialize, Serialize};

use crate::firewall::nftables::Table;
use crate::system::command;

/// Mark (`SO_MARK`) of packets of quell's own sockets, which are not queued.
pub const MARK: u32 = 0x7175_656c;
/// Attempts to remove rules; rules that are still listed after them are an error.
const MAX_PASSES: usize = 3;
/// Chains of the mangle table, with the option for a rule's interface in each.
const CHAINS: [(&str, &str); 2] = [("POSTROUTING", "-o"), ("PREROUTING", "-i")];

/// Numbers of the packet queues of a direction's loops. The kernel sends all packets between two
/// hosts to the same queue.
pub type Queues = RangeInclusive<u16>;

/// The firewall that has the rules. A state file records nothing else about them, since the
/// interface determines the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Firewall {
    /// A table of nftables.
    Nftables,
    /// The mangle tables of iptables and ip6tables.
    Iptables,
}

/// Numbers of rules to change, or that were changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleChanges {
    /// Rules that were missing and were added.
    pub added: usize,
    /// Rules that were moved to the end of their chain again, behind rules of other programs.
    pub moved: usize,
    /// Removed rules of an earlier process, which another program had put back.
    pub removed: usize,
}

/// Position of a rule in its chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// It is not in the chain.
    Missing,
    /// A rule that is not quell's follows it.
    Followed,
    /// Only rules of quell follow it, if any.
    Last,
}

/// A rule of iptables.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    program: &'static str,
    chain: &'static str,
    /// The words after the chain.
    words: Vec<String>,
}

/// The rules of an interface.
#[derive(Clone, Debug)]
pub struct RuleSet {
    dev: String,
    /// Programs of iptables to call; empty with nftables.
    programs: Vec<&'static str>,
    rules: Vec<Rule>,
    table: Option<Table>,
}

impl RuleSet {
    /// The rules that send an interface's egress and ingress packets to these packet queues: with
    /// nftables if nft and the kernel accept them, else (or with `QUELL_FIREWALL=iptables`) with
    /// iptables.
    ///
    /// # Errors
    /// If neither nftables nor iptables can be used here, or the interface's name does not suit
    /// iptables.
    pub fn new(dev: &str, egress: Option<Queues>, ingress: Option<Queues>) -> Result<Self, Error> {
        let iptables = std::env::var_os("QUELL_FIREWALL").is_some_and(|value| value == "iptables");
        let table = Table::new(dev, egress.as_ref(), ingress.as_ref()).filter(|_| !iptables);
        match table.filter(|table| is_in_path("nft") && table.fits()) {
            Some(table) => Ok(Self {
                dev: dev.to_owned(),
                programs: Vec::new(),
                rules: Vec::new(),
                table: Some(table),
            }),
            None => Self::iptables(dev, egress, ingress),
        }
    }

    /// As [`Self::new`], but always with iptables.
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
            let dev = command::quoted(dev);
            return Err(error.remedy(format!("rename it: ip link set {dev} name ...")));
        }
        let mut rules = Vec::new();
        for ((chain, flag), queues) in CHAINS.into_iter().zip([egress, ingress]) {
            let Some(queues) = queues else { continue };
            for program in &programs {
                rules.push(Rule {
                    program,
                    chain,
                    words: words(flag, dev, &queues),
                });
            }
        }
        Ok(Self {
            dev: dev.to_owned(),
            programs,
            rules,
            table: None,
        })
    }

    /// The rules of iptables, each as program, chain and further words.
    pub fn rules(&self) -> Vec<Vec<String>> {
        let all = self.rules.iter();
        all.map(|rule| {
            let words = [rule.program, rule.chain].map(str::to_owned).into_iter();
            words.chain(rule.words.iter().cloned()).collect()
        })
        .collect()
    }

    /// The firewall that has the rules.
    pub fn firewall(&self) -> Firewall {
        match self.table {
            Some(_) => Firewall::Nftables,
            None => Firewall::Iptables,
        }
    }

    /// Adds missing rules. Removes rules that an earlier process left on the interface or another
    /// program has put back, since they would take these rules' packets. Moves rules of iptables
    /// behind those of other programs, since a queued packet skips the rest of its chain.
    ///
    /// # Errors
    /// The message of the program that refused a change. Earlier changes stay.
    pub fn make(&self) -> Result<RuleChanges, String> {
        let mut made = match &self.table {
            Some(table) => table.make()?,
            None => RuleChanges::default(),
        };
        for program in &self.programs {
            for (chain, flag) in CHAINS {
                let mut rules = self.rules.iter();
                let rule = rules.find(|rule| rule.program == *program && rule.chain == chain);
                let kept = rule.map(|rule| &rule.words[..]);
                let (removed, listed) = clear(program, (chain, flag), &self.dev, kept)?;
                made.removed += removed;
                if let Some(rule) = rule {
                    rule.make(&listed, &mut made)?;
                }
            }
        }
        Ok(made)
    }

    /// Whether the kernel sends notifications of changes: it does for nf_tables, not for the legacy
    /// tables of iptables.
    pub fn noticed(&self) -> bool {
        let new = |rule: &Rule| {
            command::run(rule.program, &["-V"], "").is_ok_and(|text| text.contains("nf_tables"))
        };
        self.rules.iter().all(new)
    }
}

/// The packet queues to which rules in any table lead already, as far as they can be listed: rules
/// of a killed process on another interface, or of another program.
pub fn used_queues() -> Vec<Queues> {
    let (tables, mut used) = tables();
    let saving = ["iptables-save", "ip6tables-save"].into_iter();
    let texts: Vec<_> = saving
        .filter(|program| is_in_path(program))
        .map(|program| command::run(program, &[], ""))
        .collect();
    if texts.len() < 2 || texts.iter().any(Result::is_err) {
        // At least the rules in the chains that quell uses.
        let rules = listed(tables.as_deref());
        used.extend(rules.iter().filter_map(|rule| queues(rule)));
    }
    used.extend(texts.iter().flatten().flat_map(|text| saved::queues(text)));
    used
}

/// The interfaces that have rules of quell's form in iptables, as far as they can be listed.
pub fn ruled() -> Vec<String> {
    let rules = listed(tables().0.as_deref()).into_iter();
    let mut devs: Vec<_> = rules
        .filter(|rule| is_quells(rule))
        .filter_map(|rule| rule.into_iter().nth(1))
        .collect();
    devs.sort();
    devs.dedup();
    devs
}

/// As [`nftables::tables_and_queues`]; empty without nft.
fn tables() -> (Option<String>, Vec<Queues>) {
    match is_in_path("nft") {
        true => nftables::tables_and_queues(),
        false => (None, Vec::new()),
    }
}

/// The rules of iptables in [`CHAINS`]; `tables` is nft's list of tables. Tables that do not exist
/// are not listed, since iptables would make them.
fn listed(tables: Option<&str>) -> Vec<Vec<String>> {
    let has_mangle = |family: &str| {
        let legacy = fs::read_to_string(format!("/proc/net/{family}_tables_names"));
        let legacy = legacy.is_ok_and(|names| names.lines().any(|name| name == "mangle"));
        let table = format!("table {family} mangle");
        let listed = |tables: &str| tables.lines().any(|line| line == table);
        legacy || tables.is_none_or(listed)
    };
    let mut rules = Vec::new();
    for (program, family) in [("iptables", "ip"), ("ip6tables", "ip6")] {
        if is_in_path(program) && has_mangle(family) {
            let chains = CHAINS.map(|(chain, _)| list(program, chain).unwrap_or_default());
            rules.extend(chains.into_iter().flatten());
        }
    }
    rules
}

/// Removes all of quell's rules on an interface, for any packet queues; returns how many there
/// were.
///
/// # Errors
/// The message of the program that refused a change. Some rules may be left.
pub fn undo(dev: &str, firewall: Firewall) -> Result<usize, String> {
    if firewall == Firewall::Nftables {
        return nftables::undo(dev);
    }
    let programs = programs().map_err(|error| error.to_string())?;
    let mut removed = 0;
    for place in CHAINS {
        for program in &programs {
            removed += clear(program, place, dev, None)?.0;
        }
    }
    Ok(removed)
}

/// Removes quell's rules on an interface from a chain, except `kept`. Returns how many were
/// removed, and the chain's remaining rules.
fn clear(
    program: &'static str,
    (chain, flag): (&'static str, &str),
    dev: &str,
    kept: Option<&[String]>,
) -> Result<(usize, Vec<Vec<String>>), String> {
    let mut removed = 0;
    for _ in 0..MAX_PASSES {
        let listed = list(program, chain)?;
        let others = listed.iter();
        let others = others.filter(|rule| is_ours(rule, flag, dev) && kept != Some(&rule[..]));
        let rules: Vec<_> = others
            .map(|words| Rule {
                program,
                chain,
                words: words.clone(),
            })
            .collect();
        if rules.is_empty() {
            return Ok((removed, listed));
        }
        removed += rules.len();
        for rule in rules {
            rule.change("-D")?;
        }
    }
    Err(format!("{program}: lists rules of {dev} that it removed"))
}

/// The words of a rule after its chain.
fn words(flag: &str, dev: &str, queues: &Queues) -> Vec<String> {
    let (first, last) = (queues.start(), queues.end());
    let (flag_of_queue, queue) = match first == last {
        true => ("--queue-num", first.to_string()),
        false => ("--queue-balance", format!("{first}:{last}")),
    };
    let mark = format!("{MARK:#x}");
    let matching = [flag, dev, "-m", "mark", "!", "--mark", &mark].into_iter();
    let action = ["-j", "NFQUEUE", flag_of_queue, &queue, "--queue-bypass"];
    matching.chain(action).map(str::to_owned).collect()
}

/// The position of a rule in its chain. Rules of quell on other interfaces may follow it, since
/// they take none of its packets.
fn place(rule: &[String], chain: &[Vec<String>]) -> Place {
    match chain.iter().rposition(|listed| listed == rule) {
        None => Place::Missing,
        Some(at) if chain[at + 1..].iter().all(|rule| is_quells(rule)) => Place::Last,
        Some(_) => Place::Followed,
    }
}

/// Whether this is a rule of quell on any interface.
fn is_quells(rule: &[String]) -> bool {
    matches!(rule, [flag, dev, ..] if is_ours(rule, flag, dev))
}

/// Whether this is a rule of quell on this interface.
fn is_ours(rule: &[String], flag: &str, dev: &str) -> bool {
    queues(rule).is_some_and(|queues| rule == words(flag, dev, &queues))
}

/// The packet queues to which a rule leads.
fn queues(rule: &[String]) -> Option<Queues> {
    let is_option = |word: &String| matches!(&**word, "--queue-num" | "--queue-balance");
    range(rule.get(rule.iter().position(is_option)? + 1)?, ':')
}

/// Sorts the ranges and removes duplicates.
fn sorted_unique(mut queues: Vec<Queues>) -> Vec<Queues> {
    queues.sort_by_key(|queues| (*queues.start(), *queues.end()));
    queues.dedup();
    queues
}

/// Parses `7`, or `8:11` with the separator `sign`.
fn range(text: &str, sign: char) -> Option<Queues> {
    let (first, last) = text.split_once(sign).unwrap_or((text, text));
    Some(first.parse().ok()?..=last.parse().ok()?)
}

/// `iptables`, and `ip6tables` if the kernel has IPv6.
fn programs() -> Result<Vec<&'static str>, Error> {
    let mut programs = vec!["iptables"];
    if has_ipv6() {
        programs.push("ip6tables");
    }
    match programs.iter().find(|p| !is_in_path(p)) {
        None => Ok(programs),
        Some(p) => Err(Error::new(format!("{p} is missing"))
            .remedy("on Debian: apt-get install nftables, or iptables")),
    }
}

/// Whether the kernel has IPv6: unless it answers EAFNOSUPPORT.
fn has_ipv6() -> bool {
    let opened = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0));
    opened.err().and_then(|e| e.raw_os_error()) != Some(libc::EAFNOSUPPORT)
}

/// Whether the program is in `PATH`.
fn is_in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).exists())
}

/// The rules of a chain, each as the words after the chain's name.
fn list(program: &str, chain: &str) -> Result<Vec<Vec<String>>, String> {
    let text = command::run(program, &["-w", "-t", "mangle", "-S", chain], "")?;
    // A list begins with the chain's policy; without it, the output is not a list.
    let policy = format!("-P {chain} ");
    if !text.lines().any(|line| line.starts_with(&policy)) {
        return Err(format!("{program}: cannot list the chain {chain}"));
    }
    let rule = |line: &str| {
        let mut words = line.split_whitespace();
        let rule = words.next() == Some("-A") && words.next() == Some(chain);
        rule.then(|| {
            words
                .map(|word| word.trim_matches('"').to_owned())
                .collect()
        })
    };
    Ok(text.lines().filter_map(rule).collect())
}

impl Rule {
    /// Adds the rule, or moves it behind the `listed` rules of other programs.
    fn make(&self, listed: &[Vec<String>], made: &mut RuleChanges) -> Result<(), String> {
        let before = place(&self.words, listed);
        if before == Place::Last {
            return Ok(());
        }
        self.change("-A")?;
        if place(&self.words, &list(self.program, self.chain)?) == Place::Missing {
            // A rule that is not listed could not be removed later.
            self.change("-D")?;
            let (program, words) = (self.program, self.words.join(" "));
            let what = "took a rule but does not list it";
            return Err(format!("{program}: {what}: {} {words}", self.chain));
        }
        if before == Place::Followed {
            // Deletes the first of two equal rules, so that traffic is managed all the time.
            self.change("-D")?;
            made.moved += 1;
        } else {
            made.added += 1;
        }
        Ok(())
    }

    /// Runs the rule's program with this verb.
    fn change(&self, verb: &str) -> Result<(), String> {
        let mut arguments = vec!["-w", "-t", "mangle", verb, self.chain];
        arguments.extend(self.words.iter().map(String::as_str));
        command::run(self.program, &arguments, "").map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_excludes_quells_packets_and_passes_packets_without_a_reader() {
        let Ok(made) = RuleSet::iptables("eth0", Some(7..=7), Some(8..=11)) else {
            return;
        };
        let made = made.rules();
        for rule in &made {
            assert!(rule.contains(&format!("{MARK:#x}")), "{rule:?}");
            assert!(rule.contains(&"--queue-bypass".to_owned()), "{rule:?}");
        }
        assert_eq!(made[0][1..4], ["POSTROUTING", "-o", "eth0"]);
        let last = &made[made.len() - 1];
        assert_eq!(last[1..4], ["PREROUTING", "-i", "eth0"]);
        assert_eq!(made[0][9..13], ["-j", "NFQUEUE", "--queue-num", "7"]);
        assert_eq!(last[9..13], ["-j", "NFQUEUE", "--queue-balance", "8:11"]);
    }

    #[test]
    fn rules_of_quell_are_known_by_their_form_whatever_queue_they_lead_to() {
        for queues in [7..=7, 8..=11, 0..=u16::MAX] {
            let rule = words("-o", "eth0", &queues);
            assert!(is_ours(&rule, "-o", "eth0"), "{rule:?}");
            assert!(!is_ours(&rule, "-i", "eth0") && !is_ours(&rule, "-o", "eth1"));
            let mut longer = rule.clone();
            longer.insert(2, "-p".to_owned());
            assert!(!is_ours(&longer, "-o", "eth0"), "{longer:?}");
            assert_eq!(super::queues(&longer), Some(queues), "whoever made it");
        }
        let mut other = words("-o", "eth0", &(7..=7));
        other[10] = "70000".to_owned();
        assert!(!is_ours(&other, "-o", "eth0"), "{other:?}");
        assert!(!is_ours(&[], "-o", "eth0"));
    }

    #[test]
    fn a_rule_is_last_if_only_quells_own_follow_it() {
        let (mine, other) = (words("-o", "eth0", &(7..=7)), words("-o", "eth1", &(8..=9)));
        let foreign = ["-j", "MARK", "--set-mark", "5"]
            .map(str::to_owned)
            .to_vec();
        let at = |chain: &[&Vec<String>]| {
            let chain: Vec<_> = chain.iter().copied().cloned().collect();
            place(&mine, &chain)
        };
        assert_eq!(at(&[]), Place::Missing);
        assert_eq!(at(&[&foreign, &other]), Place::Missing);
        assert_eq!(at(&[&foreign, &mine, &other]), Place::Last);
        assert_eq!(at(&[&mine, &foreign]), Place::Followed);
        assert_eq!(at(&[&mine, &other, &foreign, &other]), Place::Followed);
        // A process that is killed while it moves the rule leaves two.
        assert_eq!(at(&[&mine, &foreign, &mine]), Place::Last);
        assert_eq!(at(&[&mine, &Vec::new()]), Place::Followed);
    }
}
