//! The congestion control of a sender by name, with its options.

use super::outside::{Congestion, Factory};

/// Congestion controls with their options.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Cc {
    /// `newreno` or `reno`.
    NewReno,
    /// `cubic`.
    Cubic {
        /// Whether to follow RFC 9438 instead of Linux.
        rfc9438: bool,
    },
    /// `bic`, as in Linux.
    Bic,
    /// `bic_ns3`, as in ns-3, with its β (0.8, as published in LFQ).
    BicNs3 {
        /// Multiplicative decrease.
        beta: f64,
    },
    /// `bbr` (v1).
    Bbr,
    /// `bbr3`.
    Bbr3,
    /// `dctcp`.
    Dctcp,
    /// `prague`, with a virtual RTT that is 15 ms longer than the RTT.
    Prague {
        /// Whether to use a virtual RTT of at least 25 ms instead (`rtt_scaling = "rate"`).
        rate_scaling: bool,
    },
    /// `vegas`.
    Vegas,
    /// `westwood` (Westwood+).
    Westwood,
    /// `illinois`.
    Illinois,
    /// `ledbat`.
    Ledbat,
    /// `ledbat++`.
    LedbatPlus,
    /// A congestion control of another crate; no file can name it.
    Outside(Factory),
}

impl Cc {
    /// Names for [`Cc::named`].
    pub(crate) const NAMES: &str = "newreno|reno|cubic|bic|bic_ns3|bbr|bbr3|dctcp|prague|vegas|westwood|illinois|ledbat|ledbat++";

    /// A congestion control of another crate: `name` appears in records, `make` is called for each
    /// connection.
    pub fn outside<C: Congestion + 'static>(
        name: &str,
        make: impl Fn() -> C + Send + Sync + 'static,
    ) -> Self {
        Self::Outside(Factory::new(name, make))
    }

    /// Name, as in a file.
    pub fn name(&self) -> &str {
        match self {
            Cc::NewReno => "newreno",
            Cc::Cubic { .. } => "cubic",
            Cc::Bic => "bic",
            Cc::BicNs3 { .. } => "bic_ns3",
            Cc::Bbr => "bbr",
            Cc::Bbr3 => "bbr3",
            Cc::Dctcp => "dctcp",
            Cc::Prague { .. } => "prague",
            Cc::Vegas => "vegas",
            Cc::Westwood => "westwood",
            Cc::Illinois => "illinois",
            Cc::Ledbat => "ledbat",
            Cc::LedbatPlus => "ledbat++",
            Cc::Outside(factory) => factory.name(),
        }
    }

    /// The congestion control of this name, or of the alias `reno`, with its defaults.
    pub(crate) fn named(name: &str) -> Self {
        match name {
            "cubic" => Cc::Cubic { rfc9438: false },
            "bic" => Cc::Bic,
            "bic_ns3" => Cc::BicNs3 { beta: 0.8 },
            "bbr" => Cc::Bbr,
            "bbr3" => Cc::Bbr3,
            "dctcp" => Cc::Dctcp,
            "prague" => Cc::Prague {
                rate_scaling: false,
            },
            "vegas" => Cc::Vegas,
            "westwood" => Cc::Westwood,
            "illinois" => Cc::Illinois,
            "ledbat" => Cc::Ledbat,
            "ledbat++" => Cc::LedbatPlus,
            _ => Cc::NewReno,
        }
    }
}
