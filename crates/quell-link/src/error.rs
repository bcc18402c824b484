//! An error in one line: the place of bad input, what is wrong with it, and the remedy.

use std::borrow::Cow;
use std::convert::Infallible;
use std::fmt;

/// Bad input. Its one-line display reads
/// `home.toml:3: link.rate: "15 parsecs" is not a rate; write it as 15mbit`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Error {
    /// The file, as the user named it.
    pub file: Option<String>,
    /// Line in the file, from 1.
    pub line: Option<usize>,
    /// The key or option, as in `link.rate`.
    pub key: Option<String>,
    /// What is wrong.
    pub what: String,
    /// How to correct it.
    pub remedy: Option<String>,
}

impl Error {
    /// An error without a place or a remedy.
    pub fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            ..Self::default()
        }
    }

    /// Adds the remedy.
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// Names the key, if none is named yet.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key.get_or_insert_with(|| key.into());
        self
    }

    /// Puts `name` before the key.
    pub fn under(mut self, name: &str) -> Self {
        self.key = Some(match self.key {
            Some(key) => format!("{name}: {key}"),
            None => name.to_owned(),
        });
        self
    }

    /// Names the file and the line, if none are named yet.
    pub fn at(mut self, file: &str, line: Option<usize>) -> Self {
        if self.file.is_none() && !file.is_empty() {
            self.file = Some(file.to_owned());
            self.line = line;
        }
        self
    }

    /// "unknown SORT `name`", with the nearest known name and the list of all.
    pub fn unknown<'a>(
        sort: &str,
        name: &str,
        known: impl IntoIterator<Item = &'a str> + Clone,
    ) -> Self {
        let list = known.clone().into_iter().collect::<Vec<_>>().join(", ");
        let what = format!("unknown {sort} `{name}`");
        Self::new(what).remedy(match nearest(name, known) {
            Some(near) => format!("did you mean `{near}`? Known: {list}"),
            None => format!("known: {list}"),
        })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write;
        let mut text = String::new();
        if let Some(file) = &self.file {
            text.push_str(file);
            if let Some(line) = self.line {
                write!(text, ":{line}")?;
            }
            text.push_str(": ");
        }
        if let Some(key) = &self.key {
            write!(text, "{key}: ")?;
        }
        text.push_str(&self.what);
        if let Some(remedy) = &self.remedy {
            write!(text, "; {remedy}")?;
        }
        // The text quotes the user's input, which must not break the line, fill the screen or send
        // control sequences to the terminal.
        for c in shortened(&text).chars() {
            match c {
                c if c.is_control() => write!(f, "{}", c.escape_default())?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl From<quell_qdisc::policy::Error> for Error {
    fn from(e: quell_qdisc::policy::Error) -> Self {
        Self {
            file: e.file,
            line: None,
            key: e.key,
            what: e.what,
            remedy: e.remedy,
        }
    }
}

/// Longest word and longest text that an error prints in full, characters.
const WORD: usize = 300;
const TEXT: usize = 1500;

/// Cuts the middle out of words longer than `WORD` and of a text longer than `TEXT`. `shortened` in
/// python/quell/common/text.py does the same to errors that Python writes.
fn shortened(text: &str) -> Cow<'_, str> {
    if text.len() <= WORD {
        return Cow::Borrowed(text);
    }
    let mut words = String::new();
    for word in text.split_inclusive(char::is_whitespace) {
        let bare = word.trim_end();
        words.push_str(&without_middle(bare, WORD));
        words.push_str(&word[bare.len()..]);
    }
    Cow::Owned(without_middle(&words, TEXT).into_owned())
}

/// At most `most` characters and an ellipsis: three quarters of them from the start, the rest from
/// the end.
fn without_middle(text: &str, most: usize) -> Cow<'_, str> {
    let Some((cut, _)) = text.char_indices().nth(most * 3 / 4) else {
        return Cow::Borrowed(text);
    };
    let tail = text
        .char_indices()
        .nth_back(most / 4 - 1)
        .map_or(0, |(at, _)| at);
    match text.chars().nth(most) {
        None => Cow::Borrowed(text),
        Some(_) => Cow::Owned(format!("{}…{}", &text[..cut], &text[tail..])),
    }
}

/// The known name closest to `name`, if their edit distance is at most a third of the longer one's
/// length (at least 1).
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_lowercase();
    let length = name.chars().count();
    if length > 40 {
        return None;
    }
    known
        .into_iter()
        .map(|k| (distance(&name, k), k))
        .filter(|(d, k)| *d <= (length.max(k.len()) / 3).max(1) && *d < length.max(k.len()))
        .min_by_key(|(d, _)| *d)
        .map(|(_, k)| k)
}

/// Levenshtein distance in which a swap of two neighbours costs 1.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let same = usize::from(a[i - 1] != b[j - 1]);
                let mut d = (rows[i - 1][j] + 1)
                    .min(rows[i][j - 1] + 1)
                    .min(rows[i - 1][j - 1] + same);
                if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                    d = d.min(rows[i - 2][j - 2] + 1);
                }
                d
            };
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_reads_as_one_line_with_place_key_and_remedy() {
        let e = Error::new("\"fast\" is not a rate")
            .remedy("write it as 15mbit")
            .key("link.rate")
            .at("home.toml", Some(3));
        assert_eq!(
            e.to_string(),
            "home.toml:3: link.rate: \"fast\" is not a rate; write it as 15mbit"
        );
        assert_eq!(Error::new("a\nb\u{1b}[1m").to_string(), "a\\nb\\u{1b}[1m");
    }

    #[test]
    fn long_words_and_texts_are_printed_without_their_middle() {
        let word = format!("{}{}", "ä".repeat(400_000), "z".repeat(400_000));
        let text = Error::unknown("queue", &word, ["pfifo"]).to_string();
        // The marks around it and the semicolon count as parts of the word.
        let (start, end) = ("ä".repeat(WORD * 3 / 4 - 1), "z".repeat(WORD / 4 - 2));
        assert_eq!(text, format!("unknown queue `{start}…{end}`; known: pfifo"));
        let text = Error::new("a b ".repeat(100_000))
            .remedy("say less")
            .to_string();
        assert_eq!(text.chars().count(), TEXT + 1);
        assert!(text.ends_with("a b ; say less"), "{text}");
        let most = "a".repeat(WORD);
        assert_eq!(Error::new(most.clone()).to_string(), most);
    }

    #[test]
    fn a_refused_policy_reads_the_same_as_an_error_of_the_link() {
        let e = quell_qdisc::policy::Policy::load("lfq.safetensors", b"?").unwrap_err();
        assert_eq!(Error::from(e.clone()).to_string(), e.to_string());
    }

    #[test]
    fn the_innermost_place_and_key_stay() {
        let e = Error::new("x")
            .key("in")
            .key("out")
            .at("a", Some(1))
            .at("b", None);
        assert_eq!(e.to_string(), "a:1: in: x");
    }

    #[test]
    fn a_typing_error_finds_the_name_that_was_meant() {
        let known = ["codel", "fq_codel", "pie", "pfifo"];
        assert_eq!(nearest("fqcodel", known), Some("fq_codel"));
        assert_eq!(nearest("CODLE", known), Some("codel"));
        assert_eq!(nearest("pi", known), Some("pie"));
        assert_eq!(nearest("hfsc", known), None);
        assert_eq!(nearest("", known), None);
    }
}
