//! An 802.11n cell against theory, and what holds in any cell.

#[path = "../examples/fidelity/theory.rs"]
#[allow(dead_code, reason = "the example uses the rest")]
mod theory;

#[path = "../examples/fidelity/wifi.rs"]
#[allow(dead_code, reason = "the example uses the rest")]
mod wifi;

use theory::Row;

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
