//! Compares all three with quell's own: `cargo run -- [RECORDS.json]`.

use std::path::Path;
use std::process::ExitCode;

use own_discipline::congestion::Delay;
use own_discipline::controller::Halving;
use own_discipline::discipline::DropHead;
use quell_lab::compare::{Comparison, table, write_json};
use quell_qdisc::outside::Handle;
use quell_sim::prelude::*;
use quell_sim::scenario::Cc;

fn main() -> ExitCode {
    match compare() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("own-discipline: {error}");
            ExitCode::FAILURE
        }
    }
}

fn compare() -> Result<(), Error> {
    let overrides = Overrides {
        rate: Some("20mbit".into()),
        flows: vec!["cubic:2@rtt=30ms".into()],
        duration: Some("20s".into()),
        ..Overrides::default()
    };
    let scenario = Scenario::load(None, &overrides)?;

    let drop_head = Queue::outside("drop_head 20ms", |_| DropHead::<Handle>::new(20 * MS))?;
    let records = Comparison::of(scenario.clone())
        .words("pfifo")?
        .words("fq_codel")?
        .queue(drop_head)
        .controlled(Queue::parse("fifo")?, Halving::new(10 * MS))
        .seeds(3)
        .run()?;
    print!("{}", table(&records));

    let mut delay = scenario;
    for tcp in delay
        .flows
        .iter_mut()
        .filter_map(|flow| flow.kind.tcp_mut())
    {
        tcp.cc = Cc::outside("delay", Delay::default);
    }
    let own_cc = Comparison::of(delay).words("pfifo")?.seeds(3).run()?;
    print!(
        "\nWith a congestion control of our own:\n{}",
        table(&own_cc)
    );

    if let Some(file) = std::env::args().nth(1) {
        write_json(Path::new(&file), &records)?;
        println!("\nquell show {file}");
    }
    Ok(())
}
