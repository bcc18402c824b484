//! Measurements of a world: totals of flows, the end of the warm-up, bins of the series.

use super::World;
use crate::measure::Totals;
use crate::slot::Slot;
use quell_qdisc::time::{Duration, MS};

impl World {
    /// Totals of each report's flows so far.
    pub(crate) fn totals(&self) -> Vec<Totals> {
        let mut totals: Vec<Totals> = self.measures.reports.iter().map(|r| r.closed).collect();
        for (i, slot) in self.slots.iter().enumerate() {
            match slot {
                Slot::Tcp(c) => {
                    totals[usize::from(c.report)].add(&Totals::of(c, self.net.losses(i)));
                }
                Slot::Udp(d) => totals[usize::from(d.report)].add(&Totals {
                    bytes: d.received,
                    in_order: d.received,
                    retransmits: 0,
                    sent: d.sent,
                    lost: self.net.losses(i),
                }),
                Slot::Free | Slot::Web(_) | Slot::Client(_) | Slot::Ping(_) => {}
            }
        }
        totals
    }

    /// By report: number of senders that have an RTT, and the sums of their smoothed RTTs and of
    /// their congestion windows (packets).
    fn senders(&self) -> Vec<(u64, Duration, u64)> {
        let mut sums = vec![(0, Duration::ZERO, 0); self.measures.reports.len()];
        for slot in &self.slots {
            if let Slot::Tcp(c) = slot
                && c.sender.s.srtt > Duration::ZERO
            {
                let sum = &mut sums[usize::from(c.report)];
                *sum = (
                    sum.0 + 1,
                    sum.1 + c.sender.s.srtt,
                    sum.2 + u64::from(c.sender.s.cwnd),
                );
            }
        }
        sums
    }

    /// Totals of each report's flows since the warm-up.
    pub(crate) fn measured(&self) -> Vec<Totals> {
        let reports = &self.measures.reports;
        let totals = self.totals();
        totals
            .iter()
            .zip(reports)
            .map(|(t, r)| t.since(&r.warm))
            .collect()
    }

    /// Ends the warm-up: statistics begin.
    pub(crate) fn end_warmup(&mut self) {
        let now = self.now;
        let totals = self.totals();
        let measures = &mut self.measures;
        let detailed = measures.is_detailed();
        let reports = measures.reports.iter_mut().zip(&mut measures.acks);
        for ((r, a), t) in reports.zip(totals) {
            r.warm = t;
            if detailed && !r.cc.is_empty() {
                a.rtt = Some(Box::default());
            }
        }
        for port in &mut self.net.ports {
            port.restart(now);
        }
        if let Some(cell) = &mut self.net.cell {
            cell.restart(now);
        }
        self.measures.end_warmup(now);
    }

    /// Ends a bin of the series.
    pub(crate) fn close_bin(&mut self) {
        let now = self.now;
        self.measures.bin_at = now + self.measures.bin;
        let totals = self.totals();
        let senders = self.senders();
        let m = &mut self.measures;
        let Some(s) = &mut m.series else { return };
        self.net.ports[0].close_bin(now, m.bin, s);
        let mbps = |bytes: f64| bytes * 8e3 / m.bin.as_nanos() as f64;
        s.goodput_mbps.resize(m.reports.len(), Vec::new());
        s.delivered_in_order_mbps
            .resize(m.reports.len(), Vec::new());
        for (k, (r, t)) in m.reports.iter_mut().zip(totals).enumerate() {
            let fresh = t.since(&r.bin);
            s.goodput_mbps[k].push(mbps(fresh.bytes as f64));
            s.delivered_in_order_mbps[k].push(mbps(fresh.in_order as f64));
            r.bin = t;
        }
        s.rtt_ms.resize(m.reports.len(), Vec::new());
        s.cwnd_packets.resize(m.reports.len(), Vec::new());
        for (k, sum) in senders.iter().enumerate() {
            let (n, srtt, cwnd) = *sum;
            let mean = |sum: u64, unit: f64| (n > 0).then(|| sum as f64 / n as f64 / unit);
            s.rtt_ms[k].push(mean(srtt.as_nanos(), MS.as_nanos() as f64));
            s.cwnd_packets[k].push(mean(cwnd, 1.0));
        }
    }
}
