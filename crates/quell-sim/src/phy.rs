//! Durations of 802.11n frames at 5 GHz (IEEE 802.11-2012, clauses 18 and 20).

use quell_qdisc::num;
use quell_qdisc::rate::Rate;
use quell_qdisc::time::{Duration, US};

/// Slot time (aSlotTime, 20.4.4).
pub const SLOT: Duration = Duration::from_micros(9);
/// Short interframe space at 5 GHz (aSIFSTime).
pub const SIFS: Duration = Duration::from_micros(16);
/// Time until a transmission is sensed (aCCATime, 18.4.4: less than 4 us).
pub const CCA: Duration = Duration::from_micros(4);
/// aPHY-RX-START-Delay of a 20 MHz OFDM frame, such as an ACK (18.4.4).
pub const RX_START: Duration = Duration::from_micros(25);
/// Longest PPDU (aPPDUMaxTime, 20.4.4).
pub const LONGEST_PPDU: Duration = Duration::from_micros(5484);
/// Largest A-MPDU, bytes (7.3.2.56.3).
pub const LARGEST_AMPDU: u32 = 65_535;
/// A QoS data header and the frame check sequence, bytes.
pub const MAC_BYTES: u32 = 26 + 4;
/// LLC and SNAP headers before each IP packet, bytes.
pub const LLC_BYTES: u32 = 8;
/// Header of an A-MSDU subframe, bytes; the subframe is padded to a multiple of 4.
pub const AMSDU_BYTES: u32 = 14;
/// Delimiter before each MPDU of an A-MPDU, bytes; the subframe is padded to a multiple of 4.
pub const DELIMITER: u32 = 4;
/// An ACK or a CTS, bytes.
pub const ACK_BYTES: u32 = 14;
/// A compressed block ACK, bytes.
pub const BLOCK_ACK_BYTES: u32 = 32;
/// An RTS, bytes.
pub const RTS_BYTES: u32 = 20;

/// Data bits per symbol and stream, 52 data subcarriers (MCS 0 to 7, 20.6.2): BPSK 1/2, QPSK 1/2
/// and 3/4, 16-QAM 1/2 and 3/4, 64-QAM 2/3, 3/4 and 5/6.
const BITS_20: [u32; 8] = [26, 52, 78, 104, 156, 208, 234, 260];
/// Data bits per symbol and stream, 108 data subcarriers of 40 MHz (20.6.3).
const BITS_40: [u32; 8] = [54, 108, 162, 216, 324, 432, 486, 540];

/// PHY parameters of the whole cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phy {
    /// Channel width of 40 MHz instead of 20.
    pub wide: bool,
    /// Guard interval of 400 ns instead of 800.
    pub short_gi: bool,
}

impl Phy {
    /// Data bits per symbol of all streams.
    pub fn bits(self, mcs: u8) -> u32 {
        let bits = if self.wide { BITS_40 } else { BITS_20 };
        bits[usize::from(mcs & 7)] * streams(mcs)
    }

    /// The data rate.
    pub fn rate(self, mcs: u8) -> Rate {
        let per_second = u64::from(self.bits(mcs)) * 250_000;
        Rate::from_bps(match self.short_gi {
            true => per_second * 10 / 9,
            false => per_second,
        })
    }

    /// Duration of a PPDU with a PSDU of `bytes`: mixed format, convolutional code (20.4.3).
    pub fn data_time(self, mcs: u8, bytes: u32) -> Duration {
        let symbols = u64::from(self.coded_bits(mcs, bytes).div_ceil(self.bits(mcs)));
        let data = if self.short_gi {
            (symbols * 3600).div_ceil(4000) * 4 * US
        } else {
            symbols * 4 * US
        };
        preamble(mcs) + data
    }

    /// The largest PSDU, bytes, that fits in `time`.
    pub fn bytes_in(self, mcs: u8, time: Duration) -> u32 {
        let time = time.saturating_sub(preamble(mcs)) / (4 * US);
        let symbols = if self.short_gi {
            time * 4000 / 3600
        } else {
            time
        };
        let bits = symbols * u64::from(self.bits(mcs));
        num::low_u32(bits.saturating_sub(u64::from(self.coded_bits(mcs, 0))) / 8)
    }

    /// SERVICE field, PSDU and tail bits; above 300 Mbit/s there are two encoders (20.3.11.3).
    fn coded_bits(self, mcs: u8, bytes: u32) -> u32 {
        let encoders = if self.rate(mcs) > Rate::from_mbit(300) {
            2
        } else {
            1
        };
        16 + 8 * bytes + 6 * encoders
    }
}

/// Number of spatial streams.
pub fn streams(mcs: u8) -> u32 {
    u32::from(mcs / 8) + 1
}

/// Duration of L-STF, L-LTF, L-SIG, HT-SIG, HT-STF, and HT-LTFs: 1, 2, 4, 4 HT-LTFs for 1 to 4
/// streams (20.3.9.4).
fn preamble(mcs: u8) -> Duration {
    let ltfs = match streams(mcs) {
        1 => 1,
        2 => 2,
        _ => 4,
    };
    (8 + 8 + 4 + 8 + 4 + 4 * ltfs) * US
}

/// Duration of a non-HT OFDM frame of `bytes` at `mbps` (18.4.3).
pub fn legacy_time(mbps: u32, bytes: u32) -> Duration {
    let symbols = u64::from((16 + 8 * bytes + 6).div_ceil(4 * mbps));
    20 * US + 4 * US * symbols
}

/// Rate of the control response to a frame, Mbit/s: the highest of the basic rates 6, 12 and 24
/// that is not above the frame's non-HT reference rate (9.7.6.5). It is 6 for BPSK, 12 for QPSK,
/// and 24 for the other modulations.
pub fn answer_mbps(mcs: u8) -> u32 {
    match mcs & 7 {
        0 => 6,
        1 | 2 => 12,
        _ => 24,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Phy = Phy {
        wide: false,
        short_gi: false,
    };
    const FAST: Phy = Phy {
        wide: true,
        short_gi: true,
    };

    #[test]
    fn rates_are_those_of_the_standards_tables() {
        let mbps = |phy: Phy, mcs| phy.rate(mcs).bps_f64() / 1e6;
        let all: Vec<f64> = (0..8).map(|m| mbps(PLAIN, m)).collect();
        assert_eq!(all, [6.5, 13.0, 19.5, 26.0, 39.0, 52.0, 58.5, 65.0]);
        assert_eq!((mbps(PLAIN, 15), mbps(PLAIN, 31)), (130.0, 260.0));
        assert_eq!((mbps(FAST, 7), mbps(FAST, 31)), (150.0, 600.0));
    }

    #[test]
    fn a_frame_lasts_its_preamble_and_whole_symbols() {
        // 22 + 8 * 1538 bits, 260 per symbol: 47.4, so 48 symbols of 4 us after 36 us.
        assert_eq!(PLAIN.data_time(7, 1538), (36 + 48 * 4) * US);
        assert_eq!(PLAIN.data_time(0, 1538), (36 + 475 * 4) * US);
        // Four streams have four HT-LTFs; 28 + 12304 bits at 2160 are 6 symbols, 21.6 us, rounded
        // up to a 4 us boundary.
        assert_eq!(FAST.data_time(31, 1538), (48 + 24) * US);
        // ACKs: 134 bits after 20 us at 24, 48 and 96 bits per symbol.
        assert_eq!(legacy_time(6, ACK_BYTES), 44 * US);
        assert_eq!(legacy_time(12, ACK_BYTES), 32 * US);
        assert_eq!(legacy_time(24, ACK_BYTES), 28 * US);
        assert_eq!(legacy_time(24, BLOCK_ACK_BYTES), 32 * US);
    }

    #[test]
    fn a_frame_that_fits_in_a_time_lasts_no_longer() {
        for phy in [PLAIN, FAST] {
            for mcs in 0..32 {
                let bytes = phy.bytes_in(mcs, LONGEST_PPDU);
                assert!(phy.data_time(mcs, bytes) <= LONGEST_PPDU);
                assert!(phy.data_time(mcs, bytes + phy.bits(mcs) / 8 * 2) > LONGEST_PPDU);
            }
        }
    }
}
