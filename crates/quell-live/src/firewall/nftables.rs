//! The rules of `quell live` as its own table of nftables, which is made in one transaction and
//! removed as a whole.

use crate::firewall::{MARK, Queues, RuleChanges, range};
use crate::system::command;

/// Whether nft's message says that a table does not exist; its other errors do not match.
fn absent(text: &str) -> bool {
    text.starts_with("Error: ") && text.contains("No such file or directory")
}

/// Prefix of the names of quell's tables.
const PREFIX: &str = "quell_live_";
/// Text before the queues in a rule of quell.
const FLAGS: &str = " queue flags bypass to ";

/// Name of an interface's table: `quell_live_`, then letters, digits and `_`; `None` if nft does
/// not accept the interface's name. Other characters become `_` and their code, so that no two
/// interfaces have the same table. If the interface's name has only letters and digits, the result,
/// with the checksum at its end, is that of quell 0.2, so that a table left by it is replaced.
fn name(dev: &str) -> Option<String> {
    let mut name = PREFIX.to_owned();
    for c in dev.chars() {
        match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' => name.push(c),
            '.' | '_' | '-' | '+' | '@' => name += &format!("_{:02x}", u32::from(c)),
            _ => return None,
        }
    }
    let sum: u32 = dev.bytes().zip(1..).map(|(b, k)| u32::from(b) * k).sum();
    Some(format!("{name}_{sum}"))
}

/// The table of an interface.
#[derive(Clone, Debug)]
pub struct Table {
    name: String,
    /// Input for nft that makes the table.
    text: String,
    /// For each rule, its parts before and after the counters in nft's list.
    rules: Vec<[String; 2]>,
}

impl Table {
    /// The table that sends an interface's egress and ingress packets to these packet queues;
    /// `None` if nft does not accept the interface's name.
    pub fn new(dev: &str, egress: Option<&Queues>, ingress: Option<&Queues>) -> Option<Self> {
        let name = name(dev)?;
        let hooks = [
            ("egress", "postrouting", "oifname", egress),
            ("ingress", "prerouting", "iifname", ingress),
        ];
        let (mut text, mut rules) = (format!("table inet {name} {{\n"), Vec::new());
        for (chain, hook, flag, queue) in hooks {
            let Some(queues) = queue else { continue };
            let (first, last) = (queues.start(), queues.end());
            let queue = match first == last {
                true => first.to_string(),
                false => format!("{first}-{last}"),
            };
            let (from, to) = (
                format!("{flag} \"{dev}\" meta mark != {MARK:#x} counter"),
                format!("queue flags bypass to {queue}"),
            );
            text += &format!(
                "chain {chain} {{\ntype filter hook {hook} priority -150; policy accept;\n{from} {to}\n}}\n"
            );
            rules.push([from, to]);
        }
        text += "}\n";
        Some(Self { name, text, rules })
    }

    /// Whether nft and the kernel would accept the table.
    pub fn fits(&self) -> bool {
        command::run("nft", &["-c", "-f", "-"], &self.text).is_ok()
    }

    /// Makes the table again if rules are missing or it has other rules. Returns the changes.
    ///
    /// # Errors
    /// nft's message.
    pub fn make(&self) -> Result<RuleChanges, String> {
        let made = self.changes()?;
        if made == RuleChanges::default() {
            return Ok(made);
        }
        // One transaction, so that the table is never incomplete.
        let name = &self.name;
        let text = format!("table inet {name}\ndelete table inet {name}\n{}", self.text);
        command::run("nft", &["-f", "-"], &text)?;
        match self.changes()? == RuleChanges::default() {
            true => Ok(made),
            false => Err(format!(
                "nft accepted the table {name} but does not list it"
            )),
        }
    }

    /// The rules to add and to remove, by nft's list of the table.
    fn changes(&self) -> Result<RuleChanges, String> {
        let (status, text) =
            command::run_for_status("nft", &["list", "table", "inet", &self.name], "")?;
        if !status.success() && !absent(&text) {
            return Err(format!("nft: {}", text.lines().next().unwrap_or_default()));
        }
        Ok(self.compare(&text))
    }

    /// The rules to add and to remove, by this list of the table.
    fn compare(&self, text: &str) -> RuleChanges {
        let is_listed = |[from, to]: &&[String; 2]| {
            let is_rule = |line: &str| line.contains(from) && line.trim_end().ends_with(to);
            text.lines().any(is_rule)
        };
        let listed = self.rules.iter().filter(is_listed).count();
        let all = text.lines().filter(|line| line.contains(FLAGS)).count();
        RuleChanges {
            added: self.rules.len() - listed,
            removed: all.saturating_sub(listed),
            moved: 0,
        }
    }
}

/// nft's list of all tables (`None` if it fails), and the packet queues to which their rules lead.
/// If the whole ruleset cannot be listed, only the queues of quell's tables on all interfaces.
pub fn tables_and_queues() -> (Option<String>, Vec<Queues>) {
    let Ok(tables) = command::run("nft", &["list", "tables"], "") else {
        return (None, Vec::new());
    };
    // `-t` leaves out the elements of sets, of which there may be very many.
    let texts = match command::run("nft", &["-t", "list", "ruleset"], "") {
        Ok(text) => vec![text],
        Err(_) => own_tables(&tables),
    };
    let used = texts.iter().flat_map(|text| queues(text)).collect();
    (Some(tables), used)
}

/// nft's lists of quell's tables, whose names are in `tables`.
fn own_tables(tables: &str) -> Vec<String> {
    let names = tables.lines().filter_map(|line| {
        let name = line.strip_prefix("table inet ")?;
        name.starts_with(PREFIX).then_some(name)
    });
    names
        .filter_map(|name| command::run("nft", &["list", "table", "inet", name], "").ok())
        .collect()
}

/// The packet queues to which rules in this text lead by number, without duplicates: `queue to 7`,
/// `queue flags bypass to 8-9`, and `queue num 8-9 bypass`, the form of older releases and of rules
/// that iptables made.
fn queues(text: &str) -> Vec<Queues> {
    let queue = |line: &str| {
        let mut words = line.split_whitespace().skip_while(|word| *word != "queue");
        words.next();
        let number = match words.next()? {
            "to" | "num" => words.next()?,
            "flags" => words.nth(2)?,
            _ => return None,
        };
        range(number, '-')
    };
    super::sorted_unique(text.lines().filter_map(queue).collect())
}

/// Removes the table of an interface, until nft says that there is no such table; returns how many
/// rules it had.
///
/// # Errors
/// If nft does not accept the name, or its message.
pub fn undo(dev: &str) -> Result<usize, String> {
    let name =
        name(dev).ok_or_else(|| format!("nft does not accept the interface name {dev:?}"))?;
    let mut removed = 0;
    for _ in 0..3 {
        let (status, text) = command::run_for_status("nft", &["list", "table", "inet", &name], "")?;
        if absent(&text) {
            return Ok(removed);
        }
        if !status.success() {
            return Err(format!("nft: {}", text.lines().next().unwrap_or_default()));
        }
        let rules = text.lines().filter(|line| line.contains(FLAGS));
        removed = removed.max(rules.count());
        let (status, text) =
            command::run_for_status("nft", &["delete", "table", "inet", &name], "")?;
        if !status.success() && !absent(&text) {
            return Err(format!("nft: {}", text.lines().next().unwrap_or_default()));
        }
    }
    Err(format!(
        "nft still lists the table {name}, which was to be deleted"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_and_other_rules_of_a_list_are_counted() {
        let table = Table::new("eth0", Some(&(7..=7)), None).expect("a table");
        let rule = |queue| {
            let counter = "counter packets 3 bytes 99 queue flags bypass to";
            format!("\t\toifname \"eth0\" meta mark != 0x7175656c {counter} {queue}\n")
        };
        let counts = |text: &str| {
            let RuleChanges { added, removed, .. } = table.compare(text);
            (added, removed)
        };
        assert_eq!(counts(""), (1, 0));
        assert_eq!(counts(&rule(7)), (0, 0));
        assert_eq!(counts(&rule(17)), (1, 1), "of an earlier process");
        assert_eq!(counts(&(rule(7) + &rule(17) + &rule(7))), (0, 2));
    }

    #[test]
    fn rules_of_others_are_read_in_every_form_and_each_queue_once() {
        // Output of nft 1.0.6; the last two rules do not name a queue by number.
        let text = "\
table ip filter {
\tchain FORWARD {
\t\ttype filter hook forward priority filter; policy accept;
\t\tcounter packets 0 bytes 0 queue num 44
\t\tcounter packets 0 bytes 0 queue num 45-47 bypass
\t\tip saddr @ids queue to 3
\t\tqueue flags bypass,fanout to 1-2 comment \"mine\"
\t\tcounter packets 3 bytes 99 queue flags bypass to 44
\t\tqueue to symhash mod 2 offset 4
\t\tqueue flags bypass to tcp dport map { 22 : 4, 25 : 5 }
\t}
}
";
        assert_eq!(queues(text), [1..=2, 3..=3, 44..=44, 45..=47]);
        for text in [
            "",
            "queue",
            "queue flags",
            "queue flags bypass to",
            "queue num 70000",
        ] {
            assert_eq!(queues(text), [], "{text}");
        }
    }

    #[test]
    fn a_table_has_its_own_name_and_passes_packets_without_a_reader() {
        let table = Table::new("eth0.5", Some(&(7..=7)), Some(&(8..=9))).unwrap();
        assert_eq!(table.text.matches("flags bypass").count(), 2);
        assert_eq!(queues(&table.text), [7..=7, 8..=9]);
        assert!(table.text.contains(
            "oifname \"eth0.5\" meta mark != 0x7175656c counter queue flags bypass to 7"
        ));
        assert!(table.text.contains("queue flags bypass to 8-9\n"));
        // Exchanged characters, and characters that look like another name's code.
        for (dev, other) in [("eth0.5", "eth0_5"), ("a.--.b", "a-..-b"), ("a.b", "a_2eb")] {
            assert_ne!(name(dev), name(other));
        }
        assert_eq!(name("eth0").as_deref(), Some("quell_live_eth0_837"));
        for dev in ["eth0", "eth0.5", "a+", "-x", "a@b"] {
            let name = name(dev).unwrap();
            let letters = name.strip_prefix("quell_live_").unwrap();
            let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
            assert!(letters.chars().all(is_letter), "{name}");
        }
        for dev in ["a;b", "$(id)", "a b", "a\nb", "a/b", "a{b"] {
            assert_eq!(name(dev), None, "{dev}");
            assert!(undo(dev).is_err());
        }
        assert!(Table::new("a\"b", Some(&(7..=7)), None).is_none());
        assert!(
            Table::new("eth*", Some(&(7..=7)), None).is_none(),
            "nft's wildcard"
        );
    }
}
