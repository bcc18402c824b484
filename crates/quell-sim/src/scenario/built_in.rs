//! The built-in scenarios.

/// A scenario that is part of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuiltIn {
    /// Name for `quell run` in place of a file.
    pub name: &'static str,
    /// Summary in one line: the file's first comment.
    pub summary: &'static str,
    /// Text of the file.
    pub toml: &'static str,
}

const FILES: [(&str, &str); 19] = [
    ("home", include_str!("../scenarios/home.toml")),
    ("household", include_str!("../scenarios/household.toml")),
    (
        "student-flat",
        include_str!("../scenarios/student-flat.toml"),
    ),
    ("office", include_str!("../scenarios/office.toml")),
    (
        "street-cabinet",
        include_str!("../scenarios/street-cabinet.toml"),
    ),
    ("rrul", include_str!("../scenarios/rrul.toml")),
    ("cable", include_str!("../scenarios/cable.toml")),
    ("fibre", include_str!("../scenarios/fibre.toml")),
    ("lte", include_str!("../scenarios/lte.toml")),
    ("satellite", include_str!("../scenarios/satellite.toml")),
    ("autorate", include_str!("../scenarios/autorate.toml")),
    ("datacenter", include_str!("../scenarios/datacenter.toml")),
    ("wifi-flat", include_str!("../scenarios/wifi-flat.toml")),
    ("wifi-house", include_str!("../scenarios/wifi-house.toml")),
    ("wifi-cafe", include_str!("../scenarios/wifi-cafe.toml")),
    ("wifi-mesh", include_str!("../scenarios/wifi-mesh.toml")),
    ("lfq", include_str!("../scenarios/lfq.toml")),
    ("rl-aqm", include_str!("../scenarios/rl-aqm.toml")),
    ("l4s", include_str!("../scenarios/l4s.toml")),
];

/// All built-in scenarios.
pub fn scenarios() -> Vec<BuiltIn> {
    FILES.iter().map(|(name, toml)| entry(name, toml)).collect()
}

/// The built-in scenario of this name.
pub(super) fn find(name: &str) -> Option<BuiltIn> {
    let file = FILES.iter().find(|(n, _)| *n == name);
    file.map(|(name, toml)| entry(name, toml))
}

fn entry(name: &'static str, toml: &'static str) -> BuiltIn {
    let first = toml.lines().next().unwrap_or_default();
    BuiltIn {
        name,
        summary: first.trim_start_matches(['#', ' ']),
        toml,
    }
}
