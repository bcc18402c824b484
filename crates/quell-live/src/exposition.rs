//! Metrics as text: Prometheus' text format (0.0.4), and OpenMetrics 1.0.0 for clients that ask for
//! it in the header `Accept`.
//!
//! Source: OpenMetrics 1.0.0, "Text format"; Prometheus' documentation, "Exposition formats".

use std::fmt::{Display, Write as _};

use crate::plane::link::{BOUNDS, Sojourns};

/// Text format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus' text format, which every client reads.
    Prometheus,
    /// OpenMetrics: a counter's family name lacks `_total`, and the text ends in `# EOF`.
    OpenMetrics,
}

/// Media type of OpenMetrics.
const OPEN: &str = "application/openmetrics-text";

impl Format {
    /// The format for a client with this header `Accept`: OpenMetrics if it is listed without
    /// `q=0`.
    pub fn accepted(accept: &str) -> Self {
        let open = accept.split(',').any(|range| {
            let mut parts = range.split(';').map(str::trim);
            let named = parts
                .next()
                .is_some_and(|kind| kind.eq_ignore_ascii_case(OPEN));
            let weight = parts.find_map(|part| part.strip_prefix("q=")?.parse::<f64>().ok());
            named && weight.is_none_or(|weight| weight > 0.0)
        });
        match open {
            true => Self::OpenMetrics,
            false => Self::Prometheus,
        }
    }

    /// Value of the header `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// A metric family.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// Type: `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// Name without the prefix `quell_`; a counter's ends in `_total`.
    pub name: &'static str,
    /// Description for the line `# HELP`, one sentence.
    pub about: &'static str,
}

/// The text under construction, family by family.
#[derive(Debug)]
pub struct Exposition {
    format: Format,
    text: String,
}

impl Exposition {
    /// A text without metrics.
    pub fn new(format: Format) -> Self {
        Self {
            format,
            text: String::new(),
        }
    }

    /// Begins a family: writes its lines `# HELP` and `# TYPE`.
    pub fn family(&mut self, family: Family) {
        let Family { kind, name, about } = family;
        let name = match self.format {
            Format::Prometheus => name,
            Format::OpenMetrics => name.strip_suffix("_total").unwrap_or(name),
        };
        self.text += &format!("# HELP quell_{name} {about}\n# TYPE quell_{name} {kind}\n");
    }

    /// Writes a sample of the current family.
    pub fn sample(&mut self, name: &str, labels: &str, value: impl Display) {
        let _ = writeln!(self.text, "quell_{name}{{{labels}}} {value}");
    }

    /// Writes sojourn times as a histogram in seconds; its buckets are every second one of
    /// [`BOUNDS`].
    pub fn sojourns(&mut self, name: &str, labels: &str, sojourns: &Sojourns) {
        let bucket = format!("{name}_bucket");
        let mut seen = 0;
        for (k, count) in sojourns.counts.iter().enumerate() {
            seen += count;
            if let Some(bound) = BOUNDS.get(k).filter(|_| k % 2 == 0) {
                // OpenMetrics requires 10.0, not 10.
                let bound = *bound as f64 / 1e9;
                self.sample(&bucket, &format!("{labels},le=\"{bound:?}\""), seen);
            }
        }
        self.sample(&bucket, &format!("{labels},le=\"+Inf\""), seen);
        self.sample(&format!("{name}_sum"), labels, sojourns.sum.as_secs_f64());
        self.sample(&format!("{name}_count"), labels, seen);
    }

    /// The finished text.
    pub fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.text += "# EOF\n";
        }
        self.text
    }
}

/// Escapes a label's value.
pub fn escaped(text: &str) -> String {
    let text = text.replace('\\', r"\\").replace('"', "\\\"");
    text.replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_requests_openmetrics_gets_it() {
        let prometheus =
            "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for accept in [
            prometheus,
            "text/plain;q=0.5, Application/OpenMetrics-Text; q=0.1",
        ] {
            assert_eq!(Format::accepted(accept), Format::OpenMetrics, "{accept}");
        }
        for accept in [
            "",
            "*/*",
            "text/plain",
            "application/openmetrics-text;q=0",
            "application/openmetrics-text-else",
        ] {
            assert_eq!(Format::accepted(accept), Format::Prometheus, "{accept}");
        }
    }

    #[test]
    fn times_in_the_queue_are_a_histogram() {
        let mut sojourns = Sojourns {
            sum: quell_qdisc::time::Duration::from_millis(2_500),
            ..Sojourns::default()
        };
        (sojourns.counts[0], sojourns.counts[7], sojourns.counts[31]) = (3, 2, 1);
        let mut out = Exposition::new(Format::Prometheus);
        out.sojourns("s", "d=\"e\"", &sojourns);
        let text = out.finish();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], r#"quell_s_bucket{d="e",le="0.0001"} 3"#);
        assert_eq!(lines[3], r#"quell_s_bucket{d="e",le="0.001"} 3"#);
        assert_eq!(lines[4], r#"quell_s_bucket{d="e",le="0.0022"} 5"#);
        assert_eq!(lines[15], r#"quell_s_bucket{d="e",le="10.0"} 5"#);
        assert_eq!(
            lines[16..],
            [
                r#"quell_s_bucket{d="e",le="+Inf"} 6"#,
                r#"quell_s_sum{d="e"} 2.5"#,
                r#"quell_s_count{d="e"} 6"#
            ]
        );
    }

    #[test]
    fn openmetrics_names_a_counter_without_total_and_has_an_end() {
        let family = Family {
            kind: "counter",
            name: "sent_total",
            about: "Sent.",
        };
        let text = |format| {
            let mut out = Exposition::new(format);
            out.family(family);
            out.sample("sent_total", "d=\"e\"", 3);
            out.finish()
        };
        let sample = "quell_sent_total{d=\"e\"} 3\n";
        let (old, new) = (text(Format::Prometheus), text(Format::OpenMetrics));
        assert_eq!(
            old,
            format!("# HELP quell_sent_total Sent.\n# TYPE quell_sent_total counter\n{sample}")
        );
        assert_eq!(
            new,
            format!("# HELP quell_sent Sent.\n# TYPE quell_sent counter\n{sample}# EOF\n")
        );
    }
}
