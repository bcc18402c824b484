//! An 802.11n cell compared with theory, and with ns-3 (`tests/data/ns3`).

use crate::theory::Row;
use crate::{ns3, wifi};

#[track_caller]
fn hold(rows: Vec<Row>) {
    let wrong: Vec<_> = rows.iter().filter(|row| !row.holds()).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn one_saturated_station_takes_the_time_that_its_frames_take() {
    hold(wifi::airtime());
}

#[test]
fn saturation_throughput_is_bianchis() {
    hold(wifi::bianchi());
}

#[test]
fn finite_retries_and_eifs_move_it_as_the_refined_model_says() {
    hold(wifi::refined());
}

/// Downloads of two stations, whose delays differ (docs/lab/fidelity.md): ns-3 counts a station's
/// frames on the air as part of its half of the queue; in quell they are in addition to that half.
const OWN_HALVES: &str = "2 stations, tcp down";

#[test]
fn goodput_and_delay_are_ns3s() {
    let rows = ns3::all(5);
    let wrong = rows.iter().filter(|row| {
        let halves = row.what.ends_with(OWN_HALVES) && row.goodput.close;
        !row.holds() && !halves
    });
    let wrong: Vec<_> = wrong.map(|r| (&r.what, &r.goodput, &r.delay)).collect();
    assert!(rows.len() == 16 && wrong.is_empty(), "{wrong:#?}");
}
