//! Fidelity: compares quell with theory, with real Linux and with published logs, and writes
//! `docs/lab/fidelity.md`.
//!
//! `make fidelity`, or
//! `cargo run --release -p quell-sim --example fidelity -- [--quick] [--seeds N] [--cells
//! PART_OF_A_NAME] [--only PART] [--markdown FILE]`

#[allow(dead_code, reason = "the tests use the rest")]
mod cake;
mod grid;
mod l4s;
mod lfq;
mod ns3;
mod theory;
mod wifi;

use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use grid::{Cell, Compared, Measures, Verdict};
use quell_link::record::Run;
use quell_sim::RunOptions;
use theory::Row;

/// The command line.
struct Options {
    /// Runs per cell.
    seeds: u64,
    /// Only cells whose name contains this, and only the comparisons with Linux.
    cells: Option<String>,
    /// Only this part of the document.
    only: Option<String>,
    /// The document whose marked parts are rewritten.
    markdown: Option<String>,
}

fn options() -> Result<Options, String> {
    let mut options = Options {
        seeds: 20,
        cells: None,
        only: None,
        markdown: None,
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--quick" => options.seeds = 3,
            "--seeds" => {
                options.seeds = value()?
                    .parse()
                    .map_err(|_| "--seeds needs a whole number".to_string())?
            }
            "--cells" => options.cells = Some(value()?),
            "--only" => options.only = Some(value()?),
            "--markdown" => options.markdown = Some(value()?),
            _ => {
                return Err(format!(
                    "unknown option {arg}: --quick, --seeds N, --cells TEXT, --only PART, --markdown FILE"
                ));
            }
        }
    }
    if options.seeds == 0 {
        return Err("--seeds needs at least 1".into());
    }
    Ok(options)
}

/// Runs every cell with every seed, on all cores; the result does not depend on the number of
/// threads.
fn measure<M: Clone + Send>(cells: &[Cell], seeds: u64, see: fn(&Run) -> M) -> Vec<Vec<M>> {
    let scenarios: Vec<_> = cells.iter().map(Cell::scenario).collect();
    let jobs: Vec<(usize, u64)> = (0..cells.len())
        .flat_map(|c| (1..=seeds).map(move |s| (c, s)))
        .collect();
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    let never = AtomicBool::new(false);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(&(c, seed)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let run = quell_sim::run(
                        &scenarios[c],
                        &cells[c].queue,
                        seed,
                        &RunOptions::default(),
                        &never,
                    )
                    .unwrap_or_else(|error| panic!("{}: {error}", cells[c].name));
                    done.lock()
                        .expect("no thread panicked")
                        .push((c, seed, see(&run)));
                }
            });
        }
    });
    let mut done = done.into_inner().expect("no thread panicked");
    done.sort_by_key(|&(c, seed, _)| (c, seed));
    let of = |c| {
        done.iter()
            .filter(|d| d.0 == c)
            .map(|d| d.2.clone())
            .collect()
    };
    (0..cells.len()).map(of).collect()
}

/// `9.55 → 9.56 (+0.1 %)`; a sign follows if the difference exceeds the tolerance.
fn compared(c: &Compared, digits: usize) -> String {
    let sign = match (c.close, c.in_range) {
        (true, _) => "",
        (false, true) => " ≈",
        (false, false) => " ✗",
    };
    let percent = (c.percent() * 10.0).round() / 10.0 + 0.0; // no -0.0
    format!(
        "{:.digits$} → {:.digits$} ({percent:+.1} %){sign}",
        c.linux, c.quell
    )
}

/// A cell, quell's runs of it, and the comparison.
type Judged = (Cell, Vec<Measures>, Verdict);

fn judge(mut cells: Vec<Cell>, options: &Options) -> Vec<Judged> {
    if let Some(part) = &options.cells {
        cells.retain(|cell| cell.name.contains(part));
    }
    let quell = measure(&cells, options.seeds, grid::measures);
    let pairs = cells.into_iter().zip(quell);
    pairs
        .map(|(cell, runs)| {
            let verdict = Verdict::new(&cell, &runs);
            (cell, runs, verdict)
        })
        .collect()
}

fn summary(judged: &[Judged], seeds: u64) -> String {
    let held = judged.iter().filter(|(.., v)| v.holds()).count();
    let all = judged.len();
    format!("{held} of {all} cells agree ({seeds} seeds of quell's each).\n\n")
}

const COLUMNS: &str = "goodput, Mbit/s | mean backlog, ms | p95 backlog, ms | drops | marks | |\n";

/// The columns of one cell.
fn columns((cell, runs, v): &Judged) -> String {
    let count = |f: fn(&Measures) -> f64| {
        let all = |runs: &[Measures]| grid::mean(&runs.iter().map(f).collect::<Vec<_>>());
        format!("{:.0} → {:.0}", all(&cell.linux), all(runs))
    };
    format!(
        "{} | {} | {} | {} | {} | {} |",
        compared(&v.goodput, 2),
        compared(&v.backlog, 2),
        compared(&v.p95, 1),
        count(|m| m.drops),
        count(|m| m.marks),
        if v.holds() { "agrees" } else { "**miss**" }
    )
}

/// One table per kind of traffic, with the order of the disciplines.
fn grid_tables(judged: &[Judged], seeds: u64) -> String {
    let mut out = summary(judged, seeds);
    let mut traffics: Vec<String> = judged.iter().map(|(cell, ..)| cell.traffic()).collect();
    traffics.dedup();
    for traffic in traffics {
        let of = |(cell, ..): &&Judged| cell.traffic() == traffic;
        let group: Vec<&Judged> = judged.iter().filter(of).collect();
        let _ = writeln!(
            out,
            "**{traffic}**\n\n| queue | {COLUMNS}|---|---|---|---|---|---|---|"
        );
        for one in &group {
            let _ = writeln!(out, "| {} | {}", one.0.queue, columns(one));
        }
        let wrong = grid::inversions(group.iter().map(|(cell, _, v)| (cell, *v)));
        let order = if wrong.is_empty() {
            "the same".into()
        } else {
            format!("**not the same**: {}", wrong.join(", "))
        };
        let _ = writeln!(out, "\nOrder by mean backlog: {order}.\n");
    }
    out
}

/// One table of all cells.
fn beyond_table(judged: &[Judged], seeds: u64) -> String {
    let mut out = summary(judged, seeds);
    let _ = writeln!(
        out,
        "| traffic | queue | {COLUMNS}|---|---|---|---|---|---|---|---|"
    );
    for one in judged {
        let _ = writeln!(
            out,
            "| {} | {} | {}",
            one.0.traffic(),
            one.0.queue,
            columns(one)
        );
    }
    out
}

/// Table of cells with the differences between the shares of groups of flows.
fn shares_table(
    mut all: Vec<cake::Shared>,
    see: fn(&Run) -> Measures,
    options: &Options,
) -> String {
    if let Some(part) = &options.cells {
        all.retain(|shared| shared.cell.name.contains(part));
    }
    let cells: Vec<Cell> = all.iter().map(|shared| shared.cell.clone()).collect();
    let runs = measure(&cells, options.seeds, Run::clone);
    let (mut held, mut rows) = (0, String::new());
    for (shared, runs) in all.iter().zip(&runs) {
        let measured: Vec<Measures> = runs.iter().map(see).collect();
        let shares: Vec<Vec<f64>> = runs.iter().map(|run| shared.shares(run)).collect();
        let v = Verdict::new(&shared.cell, &measured);
        let agrees = shared.agrees(&v, &shares);
        held += usize::from(agrees);
        let _ = writeln!(
            rows,
            "| {} | {} | {} | {} | {} | {:.1} | {} |",
            shared.cell.traffic(),
            shared.cell.queue,
            compared(&v.goodput, 2),
            compared(&v.backlog, 2),
            compared(&v.p95, 1),
            shared.share_difference(&shares),
            if agrees { "agrees" } else { "**miss**" }
        );
    }
    let (all, seeds) = (all.len(), options.seeds);
    format!(
        "{held} of {all} cells agree ({seeds} seeds of quell's each).\n\n\
         | traffic | queue | goodput, Mbit/s | mean backlog, ms | p95 backlog, ms | difference of shares, points | |\n\
         |---|---|---|---|---|---|---|\n{rows}"
    )
}

/// Table of scalable beside classic flows.
fn l4s_table(options: &Options) -> String {
    let mut pairs = l4s::pairs();
    if let Some(part) = &options.cells {
        pairs.retain(|pair| pair.cell.name.contains(part));
    }
    let cells: Vec<Cell> = pairs.iter().map(|pair| pair.cell.clone()).collect();
    let runs = measure(&cells, options.seeds, l4s::measures);
    let verdicts: Vec<_> = pairs
        .iter()
        .zip(&runs)
        .map(|(pair, runs)| l4s::Verdict::new(pair, runs))
        .collect();
    let held = verdicts.iter().filter(|v| v.holds()).count();
    let mut out = format!(
        "{held} of {} agree in both ({} seeds of quell's each).\n\n| traffic | queue | ratio of rates | delay, ms | p99 of the delay, ms | rates | delay |\n|---|---|---|---|---|---|---|\n",
        pairs.len(),
        options.seeds
    );
    let word = |holds| if holds { "agrees" } else { "**miss**" };
    for (pair, v) in pairs.iter().zip(&verdicts) {
        let show = |c: &Compared, digits: usize| match pair.linux.is_empty() {
            true => format!("{:.digits$}", c.quell),
            false => compared(c, digits),
        };
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {} |",
            pair.cell.traffic(),
            pair.cell.queue,
            show(&v.ratio, 2),
            show(&v.delay.0, 2),
            show(&v.p99.0, 2),
            word(v.rates_hold()),
            word(v.delays_hold()),
        );
    }
    out
}

/// Table of 802.11n cells beside ns-3's.
fn ns3_table(seeds: u64) -> String {
    let rows = ns3::all(seeds);
    let held = rows.iter().filter(|row| row.holds()).count();
    let mut out = format!(
        "{held} of {} cells agree ({seeds} seeds of quell's each).\n\n| cell | goodput, Mbit/s | delay, ms | |\n|---|---|---|---|\n",
        rows.len()
    );
    for row in &rows {
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} |",
            row.what,
            compared(&row.goodput, 2),
            compared(&row.delay, 2),
            if row.holds() { "agrees" } else { "**miss**" }
        );
    }
    out
}

fn row_table(rows: &[Row]) -> String {
    let mut out = String::from(
        "| quantity | unit | expected | quell | difference | allowed | |\n|---|---|---|---|---|---|---|\n",
    );
    let share = |x: f64, row: &Row| {
        if row.expected == 0.0 {
            format!("{x:.2}")
        } else {
            format!("{:.2} %", x / row.expected * 100.0)
        }
    };
    for row in rows {
        let number = |x: f64| {
            if x.abs() < 1000.0 {
                format!("{x:.4}")
            } else {
                format!("{x:.0}")
            }
        };
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {} |",
            row.what,
            row.unit,
            number(row.expected),
            number(row.measured),
            share(row.measured - row.expected, row),
            share(row.tolerance, row),
            if row.holds() { "agrees" } else { "**miss**" }
        );
    }
    out
}

/// Puts `text` between the document's markers `<!-- NAME -->` and `<!-- /NAME -->`.
fn replace(document: &str, name: &str, text: &str) -> Result<String, String> {
    let (open, close) = (format!("<!-- {name} -->\n"), format!("<!-- /{name} -->"));
    let from = document
        .find(&open)
        .ok_or(format!("no line {}", open.trim()))?
        + open.len();
    let to = document.find(&close).ok_or(format!("no line {close}"))?;
    Ok(format!("{}{text}{}", &document[..from], &document[to..]))
}

fn main() -> ExitCode {
    match try_main() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fidelity: {error}");
            ExitCode::FAILURE
        }
    }
}

fn try_main() -> Result<(), String> {
    let options = options()?;
    let seeds = options.seeds;
    let wanted = |part: &str| match (&options.only, &options.cells) {
        (Some(only), _) => only == part,
        (None, Some(_)) => ["linux", "beyond", "l4s", "disciplines", "wide"].contains(&part),
        (None, None) => true,
    };
    type Part<'a> = (&'a str, &'a dyn Fn() -> String);
    let all: [Part; 9] = [
        ("linux", &|| {
            grid_tables(&judge(grid::cells(), &options), seeds)
        }),
        ("beyond", &|| {
            beyond_table(&judge(grid::beyond(), &options), seeds)
        }),
        ("l4s", &|| l4s_table(&options)),
        ("disciplines", &|| {
            shares_table(cake::disciplines(), grid::measures, &options)
        }),
        ("wide", &|| {
            shares_table(cake::wide(), grid::measures_of_all, &options)
        }),
        ("theory", &|| row_table(&theory::all())),
        ("lfq", &|| row_table(&lfq::all())),
        ("wifi", &|| row_table(&wifi::all())),
        ("ns3", &|| ns3_table(seeds)),
    ];
    let parts: Vec<(&str, String)> = all
        .iter()
        .filter(|(name, _)| wanted(name))
        .map(|(name, measure)| (*name, measure()))
        .collect();
    if parts.is_empty() {
        let names = all.map(|(name, _)| name).join(", ");
        return Err(format!("--only takes one of {names}"));
    }
    for (name, text) in &parts {
        println!("## {name}\n\n{text}");
    }
    if let Some(path) = &options.markdown {
        let mut document =
            std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
        for (name, text) in &parts {
            document =
                replace(&document, name, text).map_err(|error| format!("{path}: {error}"))?;
        }
        std::fs::write(path, document).map_err(|error| format!("{path}: {error}"))?;
    }
    Ok(())
}
