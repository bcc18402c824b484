//! The sender's scoreboard: for each segment in flight the time it was last sent and its flags, in
//! eight bytes.

use quell_qdisc::num;
use quell_qdisc::time::Instant;

/// Flag of a segment: SACKed by the receiver.
pub const SACKED: u8 = 1;
/// Retransmitted, and the copy is believed to be in flight.
pub const RETRANS: u8 = 2;
/// Believed lost.
pub const LOST: u8 = 4;
/// Ever retransmitted.
pub const EVER: u8 = 8;

/// A ring over the segments from the first unacknowledged to the last sent.
#[derive(Clone, Debug)]
pub struct Segments {
    slots: Vec<u64>,
}

impl Default for Segments {
    fn default() -> Self {
        Self { slots: vec![0; 16] }
    }
}

impl Segments {
    #[inline]
    fn at(&self, seq: u64) -> usize {
        num::index(seq) & (self.slots.len() - 1)
    }

    /// Makes room for `count` segments starting with `una`.
    #[inline]
    pub fn reserve(&mut self, una: u64, count: u32) {
        if count as usize > self.slots.len() {
            self.grow(una, count);
        }
    }

    #[cold]
    fn grow(&mut self, una: u64, count: u32) {
        let size = (count as usize).next_power_of_two();
        let old = std::mem::replace(&mut self.slots, vec![0; size]);
        for seq in una..una + old.len() as u64 {
            let place = self.at(seq);
            self.slots[place] = old[num::index(seq) & (old.len() - 1)];
        }
    }

    /// Time at which the segment was last sent.
    #[inline]
    pub fn sent(&self, seq: u64) -> Instant {
        Instant::from_nanos(self.slots[self.at(seq)] >> 8)
    }

    /// Flags of the segment.
    #[inline]
    pub fn flags(&self, seq: u64) -> u8 {
        num::low_u8(self.slots[self.at(seq)])
    }

    /// Records a transmission at `now` and sets the flags.
    #[inline]
    pub fn set(&mut self, seq: u64, now: Instant, flags: u8) {
        let place = self.at(seq);
        self.slots[place] = now.as_nanos() << 8 | u64::from(flags);
    }

    /// Replaces the flags.
    #[inline]
    pub fn set_flags(&mut self, seq: u64, flags: u8) {
        let place = self.at(seq);
        self.slots[place] = self.slots[place] & !0xff | u64::from(flags);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growing_keeps_what_is_in_flight() {
        let mut s = Segments::default();
        for seq in 100..116 {
            s.set(seq, Instant::from_micros(seq), SACKED);
        }
        s.reserve(100, 17);
        for seq in 100..116 {
            assert_eq!(
                (s.sent(seq), s.flags(seq)),
                (Instant::from_micros(seq), SACKED)
            );
        }
        s.set_flags(105, LOST | EVER);
        assert_eq!(
            (s.sent(105), s.flags(105)),
            (Instant::from_micros(105), LOST | EVER)
        );
    }
}
