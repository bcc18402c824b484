//! The simulator compared with theory.

use crate::theory::Row;
use crate::{lfq, theory};

#[track_caller]
fn hold(rows: Vec<Row>) {
    let wrong: Vec<_> = rows.iter().filter(|row| !row.holds()).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn waiting_in_an_m_m_1_queue_is_exponential_above_zero() {
    hold(theory::mm1());
}

#[test]
fn waiting_in_an_m_d_1_queue_is_half_of_m_m_1s() {
    hold(theory::md1());
}

#[test]
fn a_finite_buffer_loses_and_delays_as_m_m_1_k() {
    hold(theory::mm1k());
}

#[test]
fn a_buffer_of_one_bandwidth_delay_product_keeps_the_link_just_full_and_just_empties() {
    hold(theory::sawtooth());
}

#[test]
fn goodput_under_random_loss_follows_mathis() {
    hold(theory::mathis());
}

#[test]
fn deficit_round_robin_shares_within_one_quantum() {
    hold(theory::drr());
}

#[test]
fn dualpi2_couples_by_the_square_law() {
    hold(theory::coupling());
}

#[test]
fn newreno_moves_what_lfqs_logs_say() {
    hold(lfq::all());
}
