//! What shapers charge for packets in addition to the bytes in their counters.

use super::{Kind, SPEC, attribute, structure, word};
use crate::rtnetlink::message::u32_at;

// Attributes of cake for charging packets.
const CAKE_CELLS: u16 = 4;
const CAKE_OVERHEAD: u16 = 6;
const CAKE_RAW: u16 = 12;
const CAKE_MPU: u16 = 14;
/// Their names in linux/pkt_sched.h.
#[cfg(test)]
pub(super) const ATTRIBUTES: [(u16, &str); 4] = [
    (CAKE_CELLS, "TCA_CAKE_ATM"),
    (CAKE_OVERHEAD, "TCA_CAKE_OVERHEAD"),
    (CAKE_RAW, "TCA_CAKE_RAW"),
    (CAKE_MPU, "TCA_CAKE_MPU"),
];
// Offsets in struct tc_ratespec. The low half of the byte LINK_LAYER is the line's kind, 2 for ATM.
const LINK_LAYER: usize = 1;
const OVERHEAD: usize = 2;
const MPU: usize = 6;

/// How a shaper converts counted bytes into the bytes on the line that it charges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charge {
    /// Bytes added to each packet; may be negative.
    overhead: i64,
    /// Smallest charge for a packet, bytes.
    mpu: u64,
    cells: Cells,
}

/// A line's packing of bytes into cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Cells {
    #[default]
    None,
    /// 48 bytes in a cell of 53; the last cell of a packet is padded.
    Atm,
    /// 64 bytes in a codeword of 65.
    Ptm,
}

impl Charge {
    /// Bytes charged for `packets` packets of `bytes` bytes in total, as if all had their mean
    /// size.
    pub fn of(&self, bytes: u64, packets: u64) -> u64 {
        let Some(packets) = std::num::NonZero::new(packets) else {
            return bytes;
        };
        let number = packets.get();
        let added = self.overhead.unsigned_abs().saturating_mul(number);
        let bytes = match self.overhead < 0 {
            true => bytes.saturating_sub(added),
            false => bytes.saturating_add(added),
        };
        let bytes = bytes.max(self.mpu.saturating_mul(number));
        match self.cells {
            Cells::None => bytes,
            Cells::Atm => {
                let cells = bytes.div_ceil(number.saturating_mul(48));
                cells.saturating_mul(number).saturating_mul(53)
            }
            Cells::Ptm => bytes.saturating_add(bytes.div_ceil(64)),
        }
    }
}

impl Kind {
    /// How the kind charges packets whose counted bytes include a link header of `header` bytes.
    pub fn charge(&self, options: &[u8], header: u64) -> Charge {
        match self.name {
            // `cake_calc_overhead` in sch_cake.c: the overhead is relative to the IP packet, unless
            // it is raw.
            "cake" => {
                let raw = attribute(options, CAKE_RAW).is_some();
                let overhead = attribute(options, CAKE_OVERHEAD).map(|value| u32_at(value, 0));
                let overhead = i64::from(overhead.unwrap_or(0).cast_signed());
                let cells = match word(options, CAKE_CELLS) {
                    Some(1) => Cells::Atm,
                    Some(2) => Cells::Ptm,
                    _ => Cells::None,
                };
                Charge {
                    overhead: overhead - if raw { 0 } else { header.cast_signed() },
                    mpu: word(options, CAKE_MPU).unwrap_or(0),
                    cells,
                }
            }
            // `psched_l2t_ns` in sch_generic.h.
            "tbf" | "htb" => {
                let Some(spec) = structure::<SPEC>(options) else {
                    return Charge::default();
                };
                let short = |at: usize| u16::from_ne_bytes([spec[at], spec[at + 1]]);
                let atm = spec[LINK_LAYER] & 15 == 2;
                Charge {
                    overhead: short(OVERHEAD).into(),
                    mpu: short(MPU).into(),
                    cells: if atm { Cells::Atm } else { Cells::None },
                }
            }
            _ => Charge::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{attrs, kind, tbf};
    use super::super::{PARMS, TBF};
    use super::*;

    #[test]
    fn packets_are_charged_as_the_kernels_shapers_charge_them() {
        let word = |value: u32| value.to_ne_bytes();
        let raw: (u16, &[u8]) = (CAKE_RAW, &[]);
        let cake = |cells: u32, overhead: i32, mpu: u32, raw: &[(u16, &[u8])]| {
            let overhead = overhead.to_ne_bytes();
            let mut list: Vec<(u16, &[u8])> = raw.to_vec();
            let (cells, mpu) = (word(cells), word(mpu));
            list.extend([
                (CAKE_CELLS, &cells[..]),
                (CAKE_OVERHEAD, &overhead),
                (CAKE_MPU, &mpu),
            ]);
            kind("cake").charge(&attrs(&list), 14)
        };
        // An ACK of 66 bytes on Ethernet: 52 of IP.
        assert_eq!(cake(1, 40, 0, &[]).of(660, 10), 10 * 2 * 53);
        assert_eq!(cake(1, 48, 0, &[]).of(660, 10), 10 * 3 * 53);
        assert_eq!(cake(0, 38, 84, &[]).of(660, 10), 10 * 90);
        assert_eq!(cake(0, 18, 84, &[]).of(660, 10), 10 * 84);
        assert_eq!(cake(2, 12, 0, &[]).of(660, 10), 640 + 10);
        assert_eq!(cake(0, -14, 0, &[]).of(660, 10), 660 - 280);
        assert_eq!(cake(0, -60, 0, &[]).of(660, 10), 0);
        assert_eq!(cake(0, 0, 0, &[raw]).of(660, 10), 660);
        assert_eq!(cake(0, 40, 0, &[raw]).of(660, 10), 1060);
        assert_eq!(cake(1, 40, 0, &[]).of(0, 0), 0);
        assert_eq!(cake(1, 40, 0, &[]).of(u64::MAX, u64::MAX), u64::MAX);
        let mut parms = structure::<TBF>(&tbf()).expect("parameters");
        let charge = |parms: &[u8]| kind("tbf").charge(&attrs(&[(PARMS, parms)]), 14);
        assert_eq!(charge(&parms).of(660, 10), 660);
        parms[OVERHEAD] = 26;
        assert_eq!(charge(&parms).of(660, 10), 920);
        parms[MPU] = 96;
        assert_eq!(charge(&parms).of(660, 10), 960);
        parms[LINK_LAYER] = 2;
        assert_eq!(charge(&parms).of(660, 10), 10 * 2 * 53);
        assert_eq!(kind("fq_codel").charge(&[], 14).of(660, 10), 660);
    }
}
