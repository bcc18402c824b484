//! Tests of `team.rs` with real threads. They are not in that file because `tests/team.rs` includes
//! it, too.

use std::time::Duration;

use crate::team::Team;

#[test]
fn every_piece_is_worked_on_once_a_round_also_after_a_sleep() {
    // Miri is about a thousand times slower, and tries different orders with each seed.
    let rounds = if cfg!(miri) { 4 } else { 2000 };
    for threads in [1, 2, 5] {
        let team = Team::new(vec![0u32; 7], threads, |n| *n += 1).unwrap();
        for round in 1..=rounds {
            team.round();
            let all: Vec<u32> = (0..team.pieces()).map(|i| *team.piece(i)).collect();
            assert_eq!(all, [round; 7], "{threads} threads");
            if round % (rounds / 4) == 0 {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }
}

#[test]
fn a_helper_that_panics_ends_neither_the_round_nor_the_others_work() {
    let team = Team::new((0..64).collect::<Vec<u32>>(), 3, |n| {
        assert!(*n != 5 || std::thread::current().name() != Some("quell"));
        *n += 1;
    })
    .unwrap();
    team.round();
    for i in (0..64).filter(|i| *i != 5) {
        assert_eq!(*team.piece(i), i as u32 + 1);
    }
}
