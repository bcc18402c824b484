//! The tin of a packet, and the share of each tin.
//!
//! Source: Linux `net/sched/sch_cake.c`, whose tables follow RFC 4594 and RFC 8622.

use super::params::{Params, Tins};
use crate::Labels;
use crate::num;

/// DSCPs outside the default tin, with their tins.
type Table = &'static [(&'static [u8], u8)];

// LE is 1, CSn 8n, AFxy 8x + 2y, VA 44, EF 46 (IANA's registry); 2 and 4 are the old TOS bits for
// throughput and delay.
const DIFFSERV3: Table = &[(&[1, 8], 1), (&[4, 44, 46, 48, 56], 2)];
const DIFFSERV4: Table = &[
    (&[1, 8], 1),
    (&[4, 16, 18, 20, 22, 24, 26, 28, 30, 34, 36, 38], 2),
    (&[32, 40, 44, 46, 48, 56], 3),
];
const DIFFSERV8: Table = &[
    (&[1], 0),
    (&[2, 8, 10, 12, 14], 1),
    (&[24, 26, 28, 30, 34, 36, 38], 3),
    (&[4, 18, 20, 22], 4),
    (&[16], 5),
    (&[32, 40, 44, 46], 6),
    (&[48, 56], 7),
];

/// The share of a tin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Threshold, bytes per second: the rate up to which the tin has its priority.
    pub rate: u64,
    /// Bytes per round of the round robin that serves the tins while there is no rate.
    pub quantum: i32,
    pub name: &'static str,
}

impl Tins {
    /// Number of tins.
    pub(super) fn count(self) -> usize {
        match self {
            Tins::BestEffort => 1,
            Tins::Diffserv3 => 3,
            Tins::Diffserv4 => 4,
            Tins::Precedence | Tins::Diffserv8 => 8,
        }
    }

    /// The tins in the order in which `tc` shows them and in which marks number them, from 1 on.
    pub(super) fn order(self) -> &'static [usize] {
        match self {
            Tins::Diffserv3 => &[1, 0, 2],
            Tins::Diffserv4 => &[1, 0, 2, 3],
            _ => &[0, 1, 2, 3, 4, 5, 6, 7][..self.count()],
        }
    }

    /// The tin of a DSCP.
    fn of_dscp(self, dscp: u8) -> usize {
        let (table, rest) = match self {
            Tins::BestEffort => return 0,
            Tins::Precedence => return usize::from(dscp >> 3),
            Tins::Diffserv3 => (DIFFSERV3, 0),
            Tins::Diffserv4 => (DIFFSERV4, 0),
            Tins::Diffserv8 => (DIFFSERV8, 2),
        };
        let found = table.iter().find(|(codes, _)| codes.contains(&dscp));
        found.map_or(rest, |(_, tin)| usize::from(*tin))
    }

    /// The tin of every DSCP.
    pub(super) fn map(self) -> [u8; 64] {
        std::array::from_fn(|dscp| num::low_u8(self.of_dscp(num::low_u8(dscp as u64)) as u64))
    }

    /// The share of a tin at this rate (bytes per second).
    pub(super) fn part(self, tin: usize, rate: u64) -> Part {
        let halved = |names: [&'static str; 4], shifts: [u32; 4]| Part {
            rate: rate >> shifts[tin],
            quantum: 1024 >> shifts[tin],
            name: names[tin],
        };
        match self {
            Tins::BestEffort => Part {
                rate,
                quantum: 65_535,
                name: "Tin 0",
            },
            Tins::Diffserv3 => halved(["Best Effort", "Bulk", "Voice", ""], [0, 4, 2, 0]),
            Tins::Diffserv4 => halved(["Best Effort", "Bulk", "Video", "Voice"], [0, 4, 1, 2]),
            Tins::Precedence | Tins::Diffserv8 => {
                // Each has 7/8 of the one before it, rounded down each time.
                let seven_eighths = |first: u64| (0..tin).fold(first, |part, _| (part * 7) >> 3);
                Part {
                    rate: seven_eighths(rate),
                    quantum: num::low_i32(seven_eighths(256).max(1).cast_signed()),
                    name: [
                        "Tin 0", "Tin 1", "Tin 2", "Tin 3", "Tin 4", "Tin 5", "Tin 6", "Tin 7",
                    ][tin],
                }
            }
        }
    }
}

/// The tin of a packet: by its mark, if that names one, else by its DSCP.
#[inline]
pub(super) fn tin_of(params: &Params, map: &[u8; 64], labels: &Labels) -> usize {
    let tins = params.tins;
    if params.fwmark != 0 && tins != Tins::BestEffort {
        let number = (labels.mark & params.fwmark) >> params.fwmark.trailing_zeros();
        if number > 0
            && let Some(tin) = tins.order().get(number as usize - 1)
        {
            return *tin;
        }
    }
    usize::from(map[usize::from(labels.dscp & 63)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tin(tins: Tins, dscp: u8) -> &'static str {
        tins.part(tins.of_dscp(dscp), 1 << 20).name
    }

    #[test]
    fn tins_are_those_of_the_manual() {
        // tc-cake(8): "Bulk (CS1, LE)", "Voice (CS7, CS6, EF, VA, TOS4)".
        for (dscp, name) in [(0, "Best Effort"), (10, "Best Effort"), (34, "Best Effort")] {
            assert_eq!(tin(Tins::Diffserv3, dscp), name);
        }
        for bulk in [1, 8] {
            assert_eq!(tin(Tins::Diffserv3, bulk), "Bulk");
            assert_eq!(tin(Tins::Diffserv4, bulk), "Bulk");
        }
        for voice in [46, 44, 48, 56] {
            assert_eq!(tin(Tins::Diffserv3, voice), "Voice");
            assert_eq!(tin(Tins::Diffserv4, voice), "Voice");
        }
        // "Video (AF4x, AF3x, CS3, AF2x, CS2, TOS4)", "Voice (..., CS5, CS4)".
        for video in [34, 36, 38, 26, 28, 30, 24, 18, 20, 22, 16, 4] {
            assert_eq!(tin(Tins::Diffserv4, video), "Video");
        }
        assert_eq!(tin(Tins::Diffserv4, 40), "Voice");
        assert_eq!(tin(Tins::Diffserv4, 32), "Voice");
        assert_eq!(tin(Tins::BestEffort, 46), "Tin 0");
        assert_eq!(tin(Tins::Precedence, 46), "Tin 5");
        assert_eq!(
            [0, 1, 8, 32, 16].map(|d| tin(Tins::Diffserv8, d)),
            ["Tin 2", "Tin 0", "Tin 1", "Tin 6", "Tin 5"]
        );
    }

    #[test]
    fn thresholds_are_shares_of_the_rate() {
        // tc-cake(8): Bulk 6.25 %, Video 50 %, Voice 25 %.
        let rates = |tins: Tins| -> Vec<u64> {
            let order = tins.order().iter();
            order.map(|tin| tins.part(*tin, 1_600_000).rate).collect()
        };
        assert_eq!(rates(Tins::Diffserv3), [100_000, 1_600_000, 400_000]);
        assert_eq!(
            rates(Tins::Diffserv4),
            [100_000, 1_600_000, 800_000, 400_000]
        );
        assert_eq!(
            rates(Tins::Diffserv8)[..3],
            [1_600_000, 1_400_000, 1_225_000]
        );
        let quanta: Vec<i32> = (0..8)
            .map(|t| Tins::Precedence.part(t, 0).quantum)
            .collect();
        assert_eq!(quanta, [256, 224, 196, 171, 149, 130, 113, 98]);
    }

    #[test]
    fn a_mark_under_its_mask_names_the_tin_in_tcs_order() {
        let params = Params {
            fwmark: 0xf0,
            tins: Tins::Diffserv4,
            ..Params::default()
        };
        let map = params.tins.map();
        let tin = |mark, dscp| {
            let labels = Labels {
                mark,
                dscp,
                ..Labels::default()
            };
            tin_of(&params, &map, &labels)
        };
        // 1 is Bulk, which tc shows first. With a number that no tin has, the DSCP decides.
        assert_eq!([tin(0x10, 46), tin(0x21, 46), tin(0x4f, 0)], [1, 0, 3]);
        assert_eq!([tin(0x0f, 46), tin(0x50, 46), tin(0, 8)], [3, 3, 1]);
    }
}
