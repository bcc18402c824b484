//! Provides the commit, the profile and the features of the build for `quell --version`. It runs
//! again when a crate has changed, not at each commit.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Sources of the Rust code, relative to the root of the checkout.
const SOURCES: [&str; 3] = ["crates", "Cargo.toml", "Cargo.lock"];

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for source in SOURCES {
        println!("cargo:rerun-if-changed={}", root.join(source).display());
    }
    let commit = commit(&root).unwrap_or_else(|| "unknown".to_owned());
    let profile = profile().unwrap_or_else(|| "unknown".to_owned());
    let features = env::vars()
        .filter_map(|(name, _)| Some(name.strip_prefix("CARGO_FEATURE_")?.to_lowercase()))
        .collect::<Vec<_>>();
    let features = match features.is_empty() {
        true => "none".to_owned(),
        false => features.join(" "),
    };
    println!(
        "cargo:rustc-env=QUELL_BUILD=built from commit {commit}; profile: {profile}; features: {features}"
    );
}

/// The commit of this checkout; `None` if this is not a checkout, even if it is inside of another
/// repository.
fn commit(root: &Path) -> Option<String> {
    let top = PathBuf::from(git(root, &["rev-parse", "--show-toplevel"])?);
    if top.canonicalize().ok()? != root.canonicalize().ok()? {
        return None;
    }
    let commit = git(root, &["rev-parse", "--short=12", "HEAD"])?;
    let status = ["status", "--porcelain", "--untracked-files=no", "--"];
    let changed = git(root, &[&status[..], &SOURCES[..]].concat())?;
    Some(match changed.is_empty() {
        true => commit,
        false => format!("{commit} with changes"),
    })
}

fn git(root: &Path, words: &[&str]) -> Option<String> {
    let done = Command::new("git")
        .args(["--no-optional-locks", "-C"])
        .arg(root)
        .args(words)
        .output()
        .ok()?;
    let text = String::from_utf8(done.stdout).ok()?;
    done.status.success().then(|| text.trim().to_owned())
}

/// The name of the profile, which is known only from the path of the output folder:
/// `target/PROFILE/build/quell-py-HASH/out`.
fn profile() -> Option<String> {
    let out = PathBuf::from(env::var_os("OUT_DIR")?);
    Some(out.ancestors().nth(3)?.file_name()?.to_str()?.to_owned())
}
