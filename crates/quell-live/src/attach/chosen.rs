//! The discipline that the command line selects, and whether it marks packets.

use quell_link::Error;

use crate::bpf::disciplines::{DISCIPLINES, Discipline};

/// The parsed words `NAME [ecn|noecn]`.
#[derive(Clone, Copy, Debug)]
pub struct Selection {
    /// Discipline of this name.
    pub discipline: Discipline,
    /// `ecn` (true) or `noecn` (false), if one is given.
    pub said: Option<bool>,
}

impl Selection {
    /// Parses `NAME [ecn|noecn]`.
    ///
    /// # Errors
    /// If there is no such discipline, or it has no such option.
    pub fn parse(words: &str) -> Result<Self, Error> {
        let mut words = words.split_whitespace();
        let name = words.next().unwrap_or_default();
        let names = DISCIPLINES.iter().map(|known| known.name);
        let discipline = DISCIPLINES.into_iter().find(|known| known.name == name);
        let discipline = discipline.ok_or_else(|| Error::unknown("discipline", name, names))?;
        let mut said = None;
        for word in words {
            said = Some(match word {
                "ecn" | "noecn" if discipline.ecn.is_some() => word == "ecn",
                "ecn" | "noecn" => {
                    let error = Error::new(
                        "it cannot mark packets in the kernel, where only hush, fq_codel and codel do",
                    );
                    return Err(error.key(format!("{name} {word}")).remedy("leave it out"));
                }
                _ => {
                    let error = Error::new("is not an option of an attached queue").key(word);
                    return Err(error.remedy("ecn or noecn; --rate and --limit set the rest"));
                }
            });
        }
        Ok(Self { discipline, said })
    }

    /// Whether the discipline is to mark packets.
    pub fn marks(&self) -> bool {
        self.said.or(self.discipline.ecn) == Some(true)
    }
}

#[cfg(test)]
mod tests {
    use quell_link::words::Queue;

    use super::*;

    #[test]
    fn a_discipline_marks_by_default_where_its_namesake_in_queue_words_does() {
        for Discipline { name, ecn, .. } in DISCIPLINES {
            let Some(ecn) = ecn else { continue };
            let queue = |words: String| Queue::parse(&words).expect("a queue").to_string();
            let other = if ecn { "noecn" } else { "ecn" };
            let said = if ecn { "ecn" } else { "noecn" };
            // A word for the default changes nothing.
            assert_eq!(queue(format!("{name} {said}")), queue(name.to_owned()));
            assert_ne!(queue(format!("{name} {other}")), queue(name.to_owned()));
        }
    }

    #[test]
    fn words_say_whether_packets_are_marked() {
        let marks = |words| Selection::parse(words).expect("a discipline").marks();
        assert!(marks("hush") && marks("codel ecn") && !marks("codel") && !marks("hush noecn"));
        let error = |words| Selection::parse(words).expect_err("refused").to_string();
        assert!(error("rlaqm ecn").contains("cannot mark"));
        assert!(error("hush quantum 300").contains("quantum: is not an option"));
        assert!(error("hosh").contains("`hush`"));
    }
}
