//! Samples of the delivery rate (draft-cheng-iccrg-delivery-rate-estimation, `tcp_rate.c` of
//! Linux), taken only for congestion controls that use them.

use quell_qdisc::num;
use quell_qdisc::time::{Duration, Instant};

use super::state::{Sender, Snapshot};
use crate::cc::bbr3::LOSS_PERCENT;
use crate::cc::{Lost, RateSample};

/// Number of segments lost since a segment was sent whose snapshot has `lost_limited`; `lost` is
/// the total now.
#[inline]
fn lost_since(lost_limited: u32, lost: u64) -> u32 {
    ((num::low_u32(lost) << 1).wrapping_sub(lost_limited & !1)) >> 1
}

impl Sender {
    /// `tcp_rate_skb_sent`: records the state of the deliveries when a segment is sent.
    /// `was_empty`: no other segment is in flight.
    pub(super) fn rate_sent(&mut self, now: Instant, seq: u64, was_empty: bool) {
        let is_retransmission = seq < self.s.nxt;
        let inflight = self.s.in_flight() + u32::from(!is_retransmission);
        let Some(r) = &mut self.rate else { return };
        let need = num::index(self.s.nxt + 1 - self.s.una);
        if need > r.slots.len() {
            let old = std::mem::take(&mut r.slots);
            r.slots = vec![Snapshot::default(); need.next_power_of_two().max(16)];
            let mask = r.slots.len() - 1;
            if !old.is_empty() {
                for seq in self.s.una..self.s.nxt {
                    r.slots[num::index(seq) & mask] = old[num::index(seq) & (old.len() - 1)];
                }
            }
        }
        if was_empty {
            r.first_sent = now;
            r.delivered_at = now;
        }
        let mask = r.slots.len() - 1;
        r.slots[num::index(seq) & mask] = Snapshot {
            first_sent: r.first_sent,
            delivered_at: r.delivered_at,
            delivered: self.s.delivered,
            inflight,
            lost_limited: num::low_u32(self.s.lost) << 1 | u32::from(self.s.app_limited != 0),
        };
    }

    /// `tcp_rate_skb_delivered`: the sample is that of the most recently sent segment delivered.
    /// `known`: the segment was delivered (SACKed) before.
    pub(super) fn rate_delivered(&mut self, seq: u64, known: bool, rs: &mut RateSample) {
        let sent = self.segs.sent(seq);
        let Some(r) = &mut self.rate else { return };
        if known {
            return;
        }
        let mask = r.slots.len() - 1;
        let snap = r.slots[num::index(seq) & mask];
        if r.sample_at == Instant::ZERO
            || sent > r.first_sent
            || sent == r.first_sent && seq + 1 > r.sample_end
        {
            rs.prior_delivered = snap.delivered;
            rs.app_limited = snap.app_limited();
            rs.tx_in_flight = snap.inflight;
            r.sample_lost = snap.lost_limited;
            rs.interval = sent - snap.first_sent;
            r.sample_at = snap.delivered_at;
            r.sample_end = seq + 1;
            r.first_sent = sent;
        }
    }

    /// Handles a segment that has just been counted as lost: notes for the next sample if more than
    /// `LOSS_PERCENT` of the packets in flight at its departure are lost.
    pub(super) fn rate_lost(&mut self, seq: u64) {
        let Some(r) = &mut self.rate else { return };
        let snap = r.slots[num::index(seq) & (r.slots.len() - 1)];
        let lost = lost_since(snap.lost_limited, self.s.lost);
        if r.too_much_lost.is_none()
            && u64::from(lost) * 100 > u64::from(snap.inflight) * LOSS_PERCENT
        {
            r.too_much_lost = Some(Lost {
                inflight: snap.inflight,
                lost,
                app_limited: snap.app_limited(),
            });
        }
    }

    /// `tcp_rate_gen`: completes the sample of an ACK, which delivered `delivered` segments and due
    /// to which `lost` segments were marked as lost.
    pub(super) fn rate_gen(
        &mut self,
        now: Instant,
        delivered: u32,
        lost: u32,
        rs: &mut RateSample,
    ) {
        rs.acked_sacked = delivered;
        rs.losses = lost;
        let Some(r) = &mut self.rate else { return };
        rs.too_much_lost = r.too_much_lost.take();
        if self.s.app_limited != 0 && self.s.delivered > self.s.app_limited {
            self.s.app_limited = 0;
        }
        if delivered > 0 {
            r.delivered_at = now;
        }
        if r.sample_at == Instant::ZERO {
            rs.delivered = -1;
            rs.interval = Duration::ZERO;
            return;
        }
        rs.lost = lost_since(r.sample_lost, self.s.lost);
        rs.delivered = num::low_i32((self.s.delivered - rs.prior_delivered).cast_signed());
        rs.interval = rs.interval.max(now - r.sample_at);
        r.sample_at = Instant::ZERO;
        if rs.interval < self.s.min_rtt {
            rs.interval = Duration::ZERO;
        }
    }
}
