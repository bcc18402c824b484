//! Bands by priority: `pfifo_fast`, `prio` and `ets`, and the classes of `drr`. Each band is a FIFO
//! or another discipline. A packet joins the band of the first filter that it meets, or else the
//! band of its DSCP's priority. Strict bands are served first, in their order, and the others in
//! deficit round robin.
//!
//! Sources: Linux 7.x `net/sched/sch_generic.c` (`pfifo_fast`), `sch_prio.c`, `sch_ets.c`,
//! tc-prio(8), tc-ets(8); IEEE 802.1Qaz; `net/ipv4/route.c` (`ip_tos2prio`), which a router applies
//! to forwarded packets; `sch_drr.c`, tc-drr(8), whose classes are bands, none of them strict.
//! Deviations:
//! - a socket cannot choose the class of its packets (`SO_PRIORITY`);
//! - if a band's queue drops all its packets instead of sending one, the next band is served; Linux
//!   returns no packet.

use super::class::{Class, Classes};
use crate::discipline::Wants;
use crate::num;
use crate::parts::filter::{Filter, Filters};
use crate::parts::ring::Ring;
use crate::time::Instant;
use crate::{
    Dequeued, Discipline, DropCause, Drops, Gauges, Labels, MTU, Packet, Rng, TinGauges,
    disciplines, fifo,
};

/// Maximum number of bands.
pub const MAX_BANDS: u8 = 16;
/// Maximum number of classes of `drr`.
pub const MAX_CLASSES: usize = 255;
/// Priorities (`TC_PRIO_MAX` + 1).
pub const PRIORITIES: usize = 16;
/// Default number of bands.
const DEFAULT_BANDS: usize = 3;

/// The band of each priority; `None` is the last band.
pub type Priomap = [Option<u8>; PRIORITIES];

/// The map of `prio` and `pfifo_fast`.
pub const PRIOMAP: Priomap = {
    let bands = [1, 2, 2, 2, 1, 2, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1];
    let mut map = [None; PRIORITIES];
    let mut priority = 0;
    while priority < PRIORITIES {
        map[priority] = Some(bands[priority]);
        priority += 1;
    }
    map
};

/// The priority that Linux gives a forwarded packet. Linux reads the four bits of the old type of
/// service (RFC 1349), three of which are the lower bits of the DSCP. Only those with the values 2
/// (throughput) and 4 (low delay) matter. So `CS6` has the priority of best effort, and `EF` that
/// of interactive bulk traffic.
pub const fn priority(dscp: u8) -> u8 {
    match (dscp >> 1) & 3 {
        0 => 0, // TC_PRIO_BESTEFFORT
        1 => 2, // TC_PRIO_BULK
        2 => 6, // TC_PRIO_INTERACTIVE
        _ => 4, // TC_PRIO_INTERACTIVE_BULK
    }
}

/// Parameters, named as in tc-prio(8) and tc-ets(8).
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// Number of bands, 1 to 16; `None`: as many as there are strict bands and quanta together, or
    /// three if there are none.
    pub bands: Option<u8>,
    /// Number of strict bands, which come first; `None`: all.
    pub strict: Option<u8>,
    /// Bytes per round of each band after the strict ones; 1514 (one full-size packet) for bands
    /// that are left out.
    pub quanta: Vec<u32>,
    /// The band of each priority.
    pub priomap: Priomap,
    /// Packets of each band without its own queue: the device's `txqueuelen` (default 1000).
    pub limit: u32,
    /// Settings of single bands, in the order in which their filters are evaluated.
    pub classes: Vec<BandClass>,
    /// The bands are classes of `drr`: `classes` has each of them once, in their order, and packets
    /// that no filter takes are dropped.
    pub drr: bool,
}

/// Settings of a band.
#[derive(Clone, Debug, PartialEq)]
pub struct BandClass {
    /// The class's number in `tc`, with the major number in the upper 16 bits.
    pub id: u32,
    /// Number of the band, from 0 on.
    pub band: u8,
    /// Packets that meet this filter join the band, whatever their priority. A filter without
    /// conditions takes no packet.
    pub filter: Filter,
    /// Its queue; `None`: a FIFO.
    pub queue: Option<disciplines::Params>,
}

impl Params {
    /// `prio` without options, which is `pfifo_fast`.
    pub fn prio() -> Self {
        Self {
            bands: Some(3),
            strict: None,
            quanta: Vec::new(),
            priomap: PRIOMAP,
            limit: 1000,
            classes: Vec::new(),
            drr: false,
        }
    }

    /// `ets` without options.
    pub fn ets() -> Self {
        Self {
            bands: None,
            strict: Some(0),
            priomap: [None; PRIORITIES],
            ..Self::prio()
        }
    }

    /// Number of bands.
    fn count(&self) -> usize {
        let named = usize::from(self.strict.unwrap_or(0)) + self.quanta.len();
        match (self.bands, named) {
            (Some(bands), _) => bands.into(),
            (None, 0) => DEFAULT_BANDS,
            (None, named) => named,
        }
    }

    /// Checks the ranges of the parameters.
    ///
    /// # Errors
    /// The first fault found.
    pub fn check(&self) -> Result<(), &'static str> {
        let count = self.count();
        if self.drr && count > MAX_CLASSES {
            return Err("there may be at most 255 classes");
        }
        if !self.drr && (count == 0 || count > MAX_BANDS.into()) {
            return Err("there may be 1 to 16 bands");
        }
        let beyond = |class: &BandClass| usize::from(class.band) >= count;
        if self.classes.iter().any(beyond) {
            return Err(
                "a class names a band that does not exist; class 1:1 is the first band, so write more bands or another class",
            );
        }
        if usize::from(self.strict.unwrap_or(0)) + self.quanta.len() > count {
            return Err("bands must be at least as many as strict ones and quanta together");
        }
        if self.quanta.contains(&0) {
            return Err("quanta must be at least 1 byte");
        }
        let beyond = |band: &Option<u8>| band.is_some_and(|band| usize::from(band) >= count);
        if self.priomap.iter().any(beyond) {
            return Err(
                "priomap names a band that does not exist; bands are numbered from 0, so write more bands or another priomap",
            );
        }
        Ok(())
    }
}

const NAMES: [&str; MAX_BANDS as usize] = [
    "Band 0", "Band 1", "Band 2", "Band 3", "Band 4", "Band 5", "Band 6", "Band 7", "Band 8",
    "Band 9", "Band 10", "Band 11", "Band 12", "Band 13", "Band 14", "Band 15",
];

/// A band in the rotation.
#[derive(Clone, Copy, Debug)]
struct Credit {
    quantum: u32,
    /// Bytes that it may still send in this round.
    deficit: u32,
}

/// The queue of `pfifo_fast`, `prio`, `ets`, and `drr` with classes.
#[derive(Clone, Debug)]
pub struct Bands<P> {
    bands: Classes<P>,
    credits: Vec<Credit>,
    strict: usize,
    filters: Filters,
    /// The band of each priority; `None`: packets that no filter takes are dropped.
    map: Option<[u8; PRIORITIES]>,
    /// The bands in the rotation that have packets.
    round: Ring<u8>,
}

impl<P: Packet> Bands<P> {
    /// An empty queue.
    pub fn new(params: Params) -> Self {
        debug_assert_eq!(params.check(), Ok(()));
        let count = params.count().clamp(1, MAX_CLASSES);
        let strict = params.strict.map_or(count, usize::from);
        let credit = |band: usize| {
            let given = band.checked_sub(strict).and_then(|i| params.quanta.get(i));
            Credit {
                quantum: given.copied().unwrap_or(MTU),
                deficit: 0,
            }
        };
        let fifo = fifo::Params {
            limit_packets: params.limit,
            ..fifo::Params::default()
        };
        let band = |i: usize| {
            let mut of_band = params.classes.iter().filter(|c| usize::from(c.band) == i);
            let queue = of_band.clone().find_map(|class| class.queue.clone());
            let id = of_band.next().map_or(0, |class| class.id);
            let seen = TinGauges {
                name: NAMES.get(i).copied().unwrap_or_default(),
                class: if params.drr { id } else { 0 },
                ..TinGauges::default()
            };
            Class::new(
                queue.unwrap_or(disciplines::Params::Fifo(fifo.clone())),
                seen,
            )
        };
        Self {
            bands: Classes::new((0..count).map(band)),
            credits: (0..count).map(credit).collect(),
            strict,
            filters: Filters::new(params.classes.iter().map(|c| (&c.filter, c.band))),
            map: (!params.drr).then(|| {
                params
                    .priomap
                    .map(|band| band.unwrap_or(num::low_u8(count as u64) - 1))
            }),
            round: Ring::new(),
        }
    }

    /// The band of a packet with these labels.
    #[inline]
    fn band_of(&self, labels: &Labels) -> Option<usize> {
        let band = match self.filters.find(labels) {
            Some(band) => band,
            None => self.map.as_ref()?[usize::from(priority(labels.dscp))],
        };
        Some(band.into())
    }

    /// The packet of the first strict band that sends one, or else the earliest time at which a
    /// waiting strict band may send.
    #[inline]
    fn next_strict<D: Drops<P>>(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        drops: &mut D,
    ) -> Dequeued<P> {
        let mut wait = Dequeued::Empty;
        for at in 0..self.strict {
            if !self.bands.get(at).is_empty() {
                match self.bands.with(at, |band| band.dequeue(now, rng, drops)) {
                    Dequeued::Packet(packet) => return Dequeued::Packet(packet),
                    later => wait = wait.sooner(later),
                }
            }
        }
        wait
    }

    /// The packet of the band whose turn it is. A band whose credit is too small for its head gets
    /// a quantum and moves to the end.
    #[inline]
    fn next_in_round<D: Drops<P>>(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        drops: &mut D,
    ) -> Dequeued<P> {
        let (mut wait, mut waiting) = (Dequeued::Empty, 0);
        while let Some(&band) = self.round.front() {
            let at = usize::from(band);
            let head = match self.bands.with(at, |band| band.peek(now, rng, drops)) {
                Dequeued::Packet(head) => head,
                Dequeued::Empty => {
                    self.round.pop();
                    continue;
                }
                Dequeued::NotBefore(t) => {
                    wait = wait.sooner(Dequeued::NotBefore(t));
                    waiting += 1;
                    if waiting == self.round.len() {
                        return wait;
                    }
                    self.move_to_end(band);
                    continue;
                }
            };
            let credit = &mut self.credits[at];
            if head > credit.deficit {
                credit.deficit = credit.deficit.saturating_add(credit.quantum);
                self.move_to_end(band);
                waiting = 0;
                continue;
            }
            credit.deficit -= head;
            let got = self.bands.with(at, |band| band.dequeue(now, rng, drops));
            if self.bands.get(at).is_empty() {
                self.round.pop();
            }
            return got;
        }
        wait
    }

    /// Moves the band whose turn it is to the end.
    #[inline]
    fn move_to_end(&mut self, band: u8) {
        self.round.pop();
        self.round.push(band);
    }
}

impl<P: Packet> Discipline<P> for Bands<P> {
    #[inline]
    fn enqueue<D: Drops<P>>(&mut self, now: Instant, packet: P, rng: &mut Rng, drops: &mut D) {
        let Some(at) = self.band_of(&drops.labels(&packet)) else {
            return drops.drop(now, packet, DropCause::Early);
        };
        let was_empty = self.bands.get(at).is_empty();
        self.bands
            .with(at, |band| band.enqueue(now, packet, rng, drops));
        if was_empty && at >= self.strict && !self.bands.get(at).is_empty() {
            // It may still be in the rotation if its queue dropped all its packets.
            if !self.round.iter().any(|band| usize::from(*band) == at) {
                self.round.push(num::low_u8(at as u64));
            }
            self.credits[at].deficit = self.credits[at].quantum;
        }
    }

    #[inline]
    fn dequeue<D: Drops<P>>(&mut self, now: Instant, rng: &mut Rng, drops: &mut D) -> Dequeued<P> {
        match self.next_strict(now, rng, drops) {
            Dequeued::Packet(packet) => Dequeued::Packet(packet),
            later => match self.next_in_round(now, rng, drops) {
                Dequeued::Packet(packet) => Dequeued::Packet(packet),
                other => later.sooner(other),
            },
        }
    }

    #[inline]
    fn next_timer(&self) -> Instant {
        self.bands.next_timer()
    }

    fn on_timer(&mut self, now: Instant) {
        self.bands.on_timer(now);
    }

    #[inline]
    fn len(&self) -> usize {
        self.bands.held().packets
    }

    #[inline]
    fn bytes(&self) -> u64 {
        self.bands.held().bytes
    }

    fn marks(&self) -> u64 {
        self.bands.marks()
    }

    fn failure(&self) -> Option<&str> {
        self.bands.failure()
    }

    fn gauges(&self, now: Instant, gauges: &mut Gauges) {
        self.bands.gauges(now, gauges);
    }

    fn tins(&self) -> Vec<TinGauges> {
        self.bands.tins()
    }

    fn wants(&self) -> Wants {
        self.bands.wants()
    }
}

#[cfg(test)]
mod tests {
    use super::super::class::Owner;
    use super::*;
    use crate::Ecn;
    use crate::packet::TestPacket;

    /// DSCPs of the four priorities: best effort, bulk, interactive, interactive bulk.
    const BEST: u8 = 0;
    const BULK: u8 = 2;
    const INTERACTIVE: u8 = 4;
    const INTERACTIVE_BULK: u8 = 6;

    struct Bed {
        q: Bands<TestPacket>,
        rng: Rng,
        owner: Owner,
        next: u64,
    }

    impl Bed {
        fn new(params: Params) -> Self {
            assert_eq!(params.check(), Ok(()));
            Self {
                q: Bands::new(params),
                rng: Rng::new(1, "bands"),
                owner: Owner::default(),
                next: 0,
            }
        }
        /// Offers packets of 1000 bytes with these DSCPs; their ids count up from 0.
        fn put(&mut self, dscps: &[u8]) {
            for dscp in dscps {
                let packet = TestPacket::new(self.next, 1000, (*dscp).into(), Ecn::NotEct);
                self.next += 1;
                self.q
                    .enqueue(Instant::ZERO, packet, &mut self.rng, &mut self.owner);
            }
        }
        /// The DSCPs of the next `n` packets.
        fn take(&mut self, n: usize) -> Vec<u8> {
            let mut next = || match self
                .q
                .dequeue(Instant::ZERO, &mut self.rng, &mut self.owner)
            {
                Dequeued::Packet(packet) => Some(packet.hash as u8),
                _ => None,
            };
            (0..n).map_while(|_| next()).collect()
        }
    }

    /// Interactive packets go to band 0, which is strict, bulk to band 1, interactive bulk to band
    /// 2, and all others to the last band.
    fn ets() -> Params {
        let mut priomap = [None; PRIORITIES];
        (priomap[6], priomap[2], priomap[4]) = (Some(0), Some(1), Some(2));
        Params {
            strict: Some(1),
            quanta: vec![4500, 3000, 1500],
            priomap,
            ..Params::ets()
        }
    }

    #[test]
    fn dscps_have_the_priorities_of_the_old_type_of_service() {
        // ip_tos2prio: low delay 0x10 is interactive (6), throughput 0x08 bulk (2), both
        // interactive bulk (4).
        let of_tos = |tos: u8| priority(tos >> 2);
        assert_eq!([0, 0x10, 0x08, 0x18, 0x04].map(of_tos), [0, 6, 2, 4, 0]);
        // CS1, EF, AF41, CS6.
        assert_eq!([8, 46, 34, 48].map(priority), [0, 4, 2, 0]);
    }

    #[test]
    fn prio_serves_low_delay_first_and_bulk_last() {
        let mut bed = Bed::new(Params::prio());
        bed.put(&[BULK, BEST, INTERACTIVE, 46, 48]);
        assert_eq!(bed.take(9), [INTERACTIVE, BEST, 46, 48, BULK]);
    }

    #[test]
    fn a_busy_band_starves_those_after_it() {
        let mut bed = Bed::new(Params::prio());
        bed.put(&[BULK]);
        for _ in 0..100 {
            bed.put(&[BEST]);
            assert_eq!(bed.take(1), [BEST]);
        }
    }

    #[test]
    fn priomap_leads_priorities_to_bands() {
        let mut priomap = PRIOMAP;
        (priomap[0], priomap[2]) = (Some(3), Some(0));
        let mut bed = Bed::new(Params {
            bands: Some(4),
            priomap,
            ..Params::prio()
        });
        bed.put(&[BEST, BULK]);
        assert_eq!(bed.take(2), [BULK, BEST]);
    }

    #[test]
    fn each_band_has_the_limit() {
        let mut bed = Bed::new(Params {
            limit: 2,
            ..Params::prio()
        });
        bed.put(&[BEST, BEST, BEST, INTERACTIVE, INTERACTIVE, INTERACTIVE]);
        assert_eq!((bed.owner.0.as_slice(), bed.q.len()), (&[2, 5][..], 4));
    }

    #[test]
    fn ets_serves_strict_bands_first_and_the_others_by_their_quanta() {
        let mut bed = Bed::new(ets());
        bed.put(&[BULK; 100]);
        bed.put(&[INTERACTIVE_BULK; 100]);
        bed.put(&[BEST; 100]);
        bed.put(&[INTERACTIVE; 5]);
        assert_eq!(bed.take(5), [INTERACTIVE; 5]);
        let served = bed.take(120);
        let of = |dscp| served.iter().filter(|d| **d == dscp).count() as i32;
        // 4500 : 3000 : 1500.
        assert!((of(BULK) - 60).abs() <= 4 && (of(INTERACTIVE_BULK) - 40).abs() <= 3);
    }

    #[test]
    fn a_band_of_ets_joins_the_round_with_a_quantum_and_leaves_it_when_empty() {
        let mut bed = Bed::new(ets());
        bed.put(&[BULK, BULK, BEST, BEST]);
        // 4500 bytes last for both of bulk; best effort has 1500 and needs another turn for its
        // second.
        assert_eq!(bed.take(3), [BULK, BULK, BEST]);
        bed.put(&[BULK]);
        assert_eq!(bed.take(3), [BULK, BEST]);
        assert!(bed.q.round.is_empty() && bed.q.len() == 0);
    }

    #[test]
    fn without_a_priomap_ets_leads_all_to_the_last_band() {
        let mut bed = Bed::new(Params {
            bands: Some(4),
            ..Params::ets()
        });
        bed.put(&[BEST, INTERACTIVE, BULK]);
        assert_eq!(bed.take(3), [BEST, INTERACTIVE, BULK]);
        assert_eq!(bed.q.tins()[3].sent_packets, 3);
    }

    #[test]
    fn without_bands_ets_has_as_many_as_strict_ones_and_quanta() {
        assert_eq!(Bed::new(ets()).q.bands.tins().len(), 4);
        assert_eq!(Bed::new(Params::ets()).q.bands.tins().len(), 3);
        let quanta: Vec<u32> = Bed::new(Params {
            bands: Some(6),
            ..ets()
        })
        .q
        .credits
        .iter()
        .map(|b| b.quantum)
        .collect();
        assert_eq!(quanta[1..], [4500, 3000, 1500, 1514, 1514]);
    }

    #[test]
    fn impossible_bands_are_refused() {
        let wrong = |params: Params| params.check().expect_err("wrong");
        let few = wrong(Params {
            bands: Some(3),
            ..ets()
        });
        assert!(few.starts_with("bands must be at least as many"), "{few}");
        let beyond = wrong(Params {
            bands: Some(2),
            ..Params::prio()
        });
        assert!(beyond.starts_with("priomap names a band"), "{beyond}");
        let many = wrong(Params {
            quanta: vec![1; 17],
            ..Params::ets()
        });
        assert_eq!(many, "there may be 1 to 16 bands");
    }

    #[test]
    fn bands_count_what_passes() {
        let mut bed = Bed::new(Params {
            limit: 2,
            ..Params::prio()
        });
        bed.put(&[BEST, BEST, BEST, INTERACTIVE]);
        bed.take(1);
        let seen = |b: &TinGauges| (b.name, b.packets, b.sent_bytes, b.drops, b.backlog_bytes);
        let tins: Vec<_> = bed.q.tins().iter().map(seen).collect();
        assert_eq!(tins[0], ("Band 0", 1, 1000, 0, 0));
        assert_eq!(tins[1], ("Band 1", 3, 0, 1, 2000));
        assert_eq!(tins[2], ("Band 2", 0, 0, 0, 0));
    }
}
