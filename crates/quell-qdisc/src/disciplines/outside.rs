//! A discipline from another crate: any [`Discipline`] of [`Handle`]s that can be cloned.
//!
//! The owner's packets stay here; the discipline queues handles to them, so it does not depend on
//! the owner's type of packet. Each call is checked: a packet that the discipline loses, invents or
//! returns twice is an error at once. The discipline has then failed: none of its methods except
//! [`Discipline::wants`] is called again. The next call that can drop packets drops all that it
//! holds, and later arrivals are dropped, too. The caller checks [`Discipline::failure`].

use std::fmt::{self, Debug};
use std::sync::Arc;

use crate::discipline::Wants;
use crate::num;
use crate::rate::Rate;
use crate::time::{Instant, NEVER};
use crate::{
    Acknowledgment, Admission, Dequeued, Discipline, DropCause, Drops, Ecn, Gauges, KnobSet, Knobs,
    Labels, Packet, Rng, SubGauges, TinGauges,
};

/// Handle to one of the owner's packets, which an outside discipline queues. A mark of the handle
/// is copied to the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle {
    enqueued: Instant,
    len: u32,
    hash: u32,
    ecn: Ecn,
    /// Index of the packet in `Slab`, and how often that place has been filled or emptied up to
    /// now.
    place: u32,
    generation: u32,
}

impl Handle {
    fn of(packet: &impl Packet, (place, generation): (u32, u32)) -> Self {
        Self {
            enqueued: packet.enqueued(),
            len: packet.len(),
            hash: packet.flow_hash(),
            ecn: packet.ecn(),
            place,
            generation,
        }
    }

    /// Handle to a packet that is not held here, for calls that only read it.
    fn passing(packet: &impl Packet) -> Self {
        Self::of(packet, (u32::MAX, 0))
    }
}

impl Packet for Handle {
    #[inline]
    fn len(&self) -> u32 {
        self.len
    }
    #[inline]
    fn flow_hash(&self) -> u32 {
        self.hash
    }
    #[inline]
    fn ecn(&self) -> Ecn {
        self.ecn
    }
    #[inline]
    fn set_ce(&mut self) {
        self.ecn = Ecn::Ce;
    }
    #[inline]
    fn enqueued(&self) -> Instant {
        self.enqueued
    }
    #[inline]
    fn set_enqueued(&mut self, now: Instant) {
        self.enqueued = now;
    }
}

/// [`Discipline`] of [`Handle`]s as a trait object, with the same methods. Do not implement it:
/// every [`Discipline`] that is `Clone`, `Debug`, `Send` and `Sync` has it.
#[allow(missing_docs, clippy::len_without_is_empty)]
pub trait AnyDiscipline: Debug + Send + Sync {
    fn enqueue(
        &mut self,
        now: Instant,
        packet: Handle,
        rng: &mut Rng,
        drops: &mut dyn Drops<Handle>,
    );
    fn dequeue(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        drops: &mut dyn Drops<Handle>,
    ) -> Dequeued<Handle>;
    fn next_timer(&self) -> Instant;
    fn on_timer(&mut self, now: Instant);
    fn len(&self) -> usize;
    fn bytes(&self) -> u64;
    fn marks(&self) -> u64;
    fn failure(&self) -> Option<&str>;
    fn gauges(&self, now: Instant, gauges: &mut Gauges);
    fn knobs(&self) -> KnobSet;
    fn set_knobs(&mut self, knobs: &Knobs);
    fn sub_queues(&self) -> usize;
    fn sub_knobs(&self) -> KnobSet;
    fn sub_queue_of(&self, packet: &Handle) -> Option<usize>;
    fn admit(&mut self, now: Instant, packet: &Handle) -> Option<Admission>;
    fn sub_len(&self, sub_queue: usize) -> u32;
    fn sub_gauges(&self, now: Instant, sub_queue: usize) -> Option<SubGauges>;
    fn set_sub_knobs(&mut self, sub_queue: usize, knobs: &Knobs);
    fn tins(&self) -> Vec<TinGauges>;
    fn wants(&self) -> Wants;
    /// A copy of the discipline with the same handles.
    fn clone_box(&self) -> Box<dyn AnyDiscipline>;
}

impl<T: Discipline<Handle> + Clone + Debug + Send + Sync + 'static> AnyDiscipline for T {
    fn enqueue(
        &mut self,
        now: Instant,
        packet: Handle,
        rng: &mut Rng,
        mut drops: &mut dyn Drops<Handle>,
    ) {
        Discipline::enqueue(self, now, packet, rng, &mut drops);
    }
    fn dequeue(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        mut drops: &mut dyn Drops<Handle>,
    ) -> Dequeued<Handle> {
        Discipline::dequeue(self, now, rng, &mut drops)
    }
    fn next_timer(&self) -> Instant {
        Discipline::next_timer(self)
    }
    fn on_timer(&mut self, now: Instant) {
        Discipline::on_timer(self, now);
    }
    fn len(&self) -> usize {
        Discipline::len(self)
    }
    fn bytes(&self) -> u64 {
        Discipline::bytes(self)
    }
    fn marks(&self) -> u64 {
        Discipline::marks(self)
    }
    fn failure(&self) -> Option<&str> {
        Discipline::failure(self)
    }
    fn gauges(&self, now: Instant, gauges: &mut Gauges) {
        Discipline::gauges(self, now, gauges);
    }
    fn knobs(&self) -> KnobSet {
        Discipline::knobs(self)
    }
    fn set_knobs(&mut self, knobs: &Knobs) {
        Discipline::set_knobs(self, knobs);
    }
    fn sub_queues(&self) -> usize {
        Discipline::sub_queues(self)
    }
    fn sub_knobs(&self) -> KnobSet {
        Discipline::sub_knobs(self)
    }
    fn sub_queue_of(&self, packet: &Handle) -> Option<usize> {
        Discipline::sub_queue_of(self, packet)
    }
    fn admit(&mut self, now: Instant, packet: &Handle) -> Option<Admission> {
        Discipline::admit(self, now, packet)
    }
    fn sub_len(&self, sub_queue: usize) -> u32 {
        Discipline::sub_len(self, sub_queue)
    }
    fn sub_gauges(&self, now: Instant, sub_queue: usize) -> Option<SubGauges> {
        Discipline::sub_gauges(self, now, sub_queue)
    }
    fn set_sub_knobs(&mut self, sub_queue: usize, knobs: &Knobs) {
        Discipline::set_sub_knobs(self, sub_queue, knobs);
    }
    fn tins(&self) -> Vec<TinGauges> {
        Discipline::tins(self)
    }
    fn wants(&self) -> Wants {
        Discipline::wants(self)
    }
    fn clone_box(&self) -> Box<dyn AnyDiscipline> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn AnyDiscipline> {
    fn clone(&self) -> Self {
        self.as_ref().clone_box()
    }
}

/// Makes an empty queue for a link of this mean rate.
pub type Factory = Arc<dyn Fn(Rate) -> Box<dyn AnyDiscipline> + Send + Sync>;

/// Parameters of [`Outside`].
#[derive(Clone)]
pub struct Params {
    /// Name in records, tables and errors.
    pub name: Arc<str>,
    /// The link's mean rate.
    pub rate: Rate,
    /// Makes the discipline.
    pub make: Factory,
}

impl Debug for Params {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} bit/s", self.name, self.rate.bps())
    }
}

/// Equal if name and rate are equal and the factory is the same object.
impl PartialEq for Params {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, self.rate) == (&other.name, other.rate) && Arc::ptr_eq(&self.make, &other.make)
    }
}

/// Fault of a discipline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// It returned or dropped a packet that it does not hold.
    NotHeld,
    /// It marked a packet that is not ECN-capable.
    Marked,
    /// It returned nothing, though packets are queued.
    Nothing,
    /// It named a time that is not in the future.
    Past,
    /// It named a new time more than `MAX_WAITS` times in a row, each after the last one had
    /// passed, and no packet left or arrived in between.
    Waits,
    /// Its timer stays due however often it runs.
    Timer,
}

/// The packets that a discipline was given and has neither returned nor dropped.
#[derive(Clone, Debug)]
struct Slab<P> {
    /// A place is in use while its generation is odd.
    places: Vec<(u32, P)>,
    free: Vec<u32>,
    bytes: u64,
}

impl<P: Packet> Slab<P> {
    #[inline]
    fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    fn put(&mut self, packet: P) -> Handle {
        self.bytes += u64::from(packet.len());
        let place = match self.free.pop() {
            Some(place) => {
                let (generation, kept) = &mut self.places[place as usize];
                *generation = generation.wrapping_add(1);
                *kept = packet;
                place
            }
            None => {
                self.places.push((1, packet));
                num::count(self.places.len() - 1)
            }
        };
        Handle::of(&packet, (place, self.places[place as usize].0))
    }

    fn take(&mut self, handle: &Handle) -> Result<P, Fault> {
        let place = self.places.get_mut(handle.place as usize);
        let (generation, packet) = place.ok_or(Fault::NotHeld)?;
        // A handle of another queue may have the same place and generation, but hardly the same
        // length and hash as well.
        if (*generation, packet.len(), packet.flow_hash())
            != (handle.generation, handle.len, handle.hash)
        {
            return Err(Fault::NotHeld);
        }
        if handle.ecn != packet.ecn() {
            if packet.ecn() == Ecn::NotEct {
                return Err(Fault::Marked);
            }
            packet.set_ce();
        }
        *generation = generation.wrapping_add(1);
        self.bytes -= u64::from(handle.len);
        self.free.push(handle.place);
        Ok(*packet)
    }

    /// The packet of a handle, if it is held.
    fn get(&self, handle: &Handle) -> Option<&P> {
        let (generation, packet) = self.places.get(handle.place as usize)?;
        (*generation == handle.generation).then_some(packet)
    }

    /// Takes out all packets.
    fn drain(&mut self) -> impl Iterator<Item = P> {
        let held = |(generation, packet): (u32, P)| (generation % 2 == 1).then_some(packet);
        self.bytes = 0;
        self.free.clear();
        std::mem::take(&mut self.places)
            .into_iter()
            .filter_map(held)
    }
}

/// Turns the handles that a discipline drops into the owner's packets.
struct Dropped<'a, P, D> {
    held: &'a mut Slab<P>,
    drops: &'a mut D,
    fault: Option<Fault>,
}

impl<P: Packet, D: Drops<P>> Drops<Handle> for Dropped<'_, P, D> {
    fn drop(&mut self, now: Instant, handle: Handle, cause: DropCause) {
        match self.held.take(&handle) {
            Ok(packet) => self.drops.drop(now, packet, cause),
            Err(fault) => self.fault = self.fault.or(Some(fault)),
        }
    }
    fn labels(&self, handle: &Handle) -> Labels {
        let packet = self.held.get(handle);
        packet.map_or_else(Labels::default, |p| self.drops.labels(p))
    }
    fn acknowledgment(&self, handle: &Handle) -> Option<Acknowledgment> {
        self.drops.acknowledgment(self.held.get(handle)?)
    }
}

/// A queue whose discipline comes from another crate.
#[derive(Clone, Debug)]
pub struct Outside<P>(Box<Inner<P>>);

#[derive(Clone, Debug)]
struct Inner<P> {
    name: Arc<str>,
    discipline: Box<dyn AnyDiscipline>,
    held: Slab<P>,
    failure: Option<String>,
    /// Packets marked until it failed.
    marks: u64,
    /// The time that it named last, and how many of the times that it named have passed since a
    /// packet left or arrived.
    named: Instant,
    waits: u32,
}

/// A discipline that names a time more often than this in a row counts as stuck: after 100 s if it
/// waits 1 ms each time.
const MAX_WAITS: u32 = 100_000;

impl<P: Packet> Outside<P> {
    /// An empty queue.
    pub fn new(params: Params) -> Self {
        Self(Box::new(Inner {
            discipline: (params.make)(params.rate),
            name: params.name,
            held: Slab {
                places: Vec::new(),
                free: Vec::new(),
                bytes: 0,
            },
            failure: None,
            marks: 0,
            named: Instant::ZERO,
            waits: 0,
        }))
    }
}

impl<P: Packet> Inner<P> {
    /// The discipline, unless it has failed.
    #[inline]
    fn working(&self) -> Option<&dyn AnyDiscipline> {
        self.failure.is_none().then_some(&*self.discipline)
    }

    /// The discipline, mutable, unless it has failed.
    #[inline]
    fn working_mut(&mut self) -> Option<&mut dyn AnyDiscipline> {
        match self.failure {
            None => Some(&mut *self.discipline),
            Some(_) => None,
        }
    }

    /// Checks the invariants after each call; on a violation the discipline has failed.
    fn check<D: Drops<P>>(&mut self, now: Instant, fault: Option<Fault>, drops: &mut D) {
        let (packets, bytes) = (self.discipline.len(), self.discipline.bytes());
        if let Some(why) = self.discipline.failure() {
            let why = format!("{}: {why}", self.name);
            self.stop(why);
        } else if let Some(fault) = fault {
            self.fail(fault);
        } else if (packets, bytes) != (self.held.len(), self.held.bytes) {
            self.stop(format!(
                "{} reports {packets} packets of {bytes} bytes; of the packets that it was given it has neither returned nor \
                 dropped {} packets of {} bytes",
                self.name,
                self.held.len(),
                self.held.bytes
            ));
        }
        if self.failure.is_some() {
            self.empty(now, drops);
        }
    }

    #[cold]
    fn fail(&mut self, fault: Fault) {
        let held = self.held.len();
        let what = match fault {
            Fault::NotHeld => {
                "returned or dropped a packet that it does not hold: for the second time, or it was never given it".into()
            }
            Fault::Marked => "marked a packet that is not ECN-capable".into(),
            Fault::Nothing => format!(
                "returned no packet though it holds {held}; return a time (NotBefore) if they must wait"
            ),
            Fault::Past => "returned a time (NotBefore) that is not in the future".into(),
            Fault::Waits => format!(
                "returned a time (NotBefore) {MAX_WAITS} times in a row and no packet; return the time at which the next packet may leave"
            ),
            Fault::Timer => "has a timer that stays due after it has run".into(),
        };
        self.stop(format!("{} {what}", self.name));
    }

    /// Records the failure; the discipline is not called again.
    #[cold]
    fn stop(&mut self, why: String) {
        self.marks = self.discipline.marks();
        self.failure = Some(why);
    }

    /// Drops all packets of a failed discipline.
    #[cold]
    fn empty<D: Drops<P>>(&mut self, now: Instant, drops: &mut D) {
        for packet in self.held.drain() {
            drops.drop(now, packet, DropCause::Overflow);
        }
    }
}

impl<P: Packet> Discipline<P> for Outside<P> {
    fn enqueue<D: Drops<P>>(&mut self, now: Instant, mut packet: P, rng: &mut Rng, drops: &mut D) {
        let inner = &mut *self.0;
        if inner.failure.is_some() {
            inner.empty(now, drops);
            return drops.drop(now, packet, DropCause::Overflow);
        }
        packet.set_enqueued(now);
        inner.waits = 0;
        let handle = inner.held.put(packet);
        let mut dropped = Dropped {
            held: &mut inner.held,
            drops,
            fault: None,
        };
        inner.discipline.enqueue(now, handle, rng, &mut dropped);
        let fault = dropped.fault;
        inner.check(now, fault, drops);
    }

    fn dequeue<D: Drops<P>>(&mut self, now: Instant, rng: &mut Rng, drops: &mut D) -> Dequeued<P> {
        let inner = &mut *self.0;
        if inner.failure.is_some() {
            inner.empty(now, drops);
            return Dequeued::Empty;
        }
        let mut dropped = Dropped {
            held: &mut inner.held,
            drops,
            fault: None,
        };
        let got = inner.discipline.dequeue(now, rng, &mut dropped);
        let fault = dropped.fault;
        let got = match got {
            Dequeued::Packet(handle) => inner.held.take(&handle).map(Dequeued::Packet),
            Dequeued::Empty if inner.held.len() > 0 => Err(Fault::Nothing),
            Dequeued::NotBefore(time) if time <= now => Err(Fault::Past),
            Dequeued::NotBefore(_) if inner.waits == MAX_WAITS => Err(Fault::Waits),
            Dequeued::Empty => Ok(Dequeued::Empty),
            Dequeued::NotBefore(time) => Ok(Dequeued::NotBefore(time)),
        };
        match got {
            Ok(Dequeued::NotBefore(time)) => {
                inner.waits += u32::from(now >= inner.named);
                inner.named = time;
            }
            _ => inner.waits = 0,
        }
        inner.check(now, fault.or(got.err()), drops);
        match got {
            Ok(Dequeued::NotBefore(_)) if inner.failure.is_some() => Dequeued::Empty,
            Ok(got) => got,
            Err(_) => Dequeued::Empty,
        }
    }

    fn next_timer(&self) -> Instant {
        match self.0.failure {
            None => self.0.discipline.next_timer(),
            Some(_) => NEVER,
        }
    }
    fn on_timer(&mut self, now: Instant) {
        if let Some(discipline) = self.0.working_mut() {
            discipline.on_timer(now);
        }
    }
    fn run_timers(&mut self, now: Instant) {
        loop {
            let due = self.next_timer();
            if due > now {
                break;
            }
            self.on_timer(due);
            if self.next_timer() <= due {
                self.0.fail(Fault::Timer);
            }
        }
    }
    fn len(&self) -> usize {
        self.0.held.len()
    }
    fn bytes(&self) -> u64 {
        self.0.held.bytes
    }
    fn marks(&self) -> u64 {
        self.0.working().map_or(self.0.marks, |d| d.marks())
    }
    fn failure(&self) -> Option<&str> {
        self.0.failure.as_deref()
    }
    fn gauges(&self, now: Instant, gauges: &mut Gauges) {
        if let Some(discipline) = self.0.working() {
            discipline.gauges(now, gauges);
        }
    }
    fn knobs(&self) -> KnobSet {
        self.0.working().map_or(KnobSet::NONE, |d| d.knobs())
    }
    fn set_knobs(&mut self, knobs: &Knobs) {
        if let Some(discipline) = self.0.working_mut() {
            discipline.set_knobs(knobs);
        }
    }
    fn sub_queues(&self) -> usize {
        self.0.working().map_or(0, |d| d.sub_queues())
    }
    fn sub_knobs(&self) -> KnobSet {
        self.0.working().map_or(KnobSet::NONE, |d| d.sub_knobs())
    }
    fn sub_queue_of(&self, packet: &P) -> Option<usize> {
        self.0.working()?.sub_queue_of(&Handle::passing(packet))
    }
    fn admit(&mut self, now: Instant, packet: &P) -> Option<Admission> {
        let discipline = self.0.working_mut()?;
        discipline.admit(now, &Handle::passing(packet))
    }
    fn sub_len(&self, sub_queue: usize) -> u32 {
        self.0.working().map_or(0, |d| d.sub_len(sub_queue))
    }
    fn sub_gauges(&self, now: Instant, sub_queue: usize) -> Option<SubGauges> {
        self.0.working()?.sub_gauges(now, sub_queue)
    }
    fn set_sub_knobs(&mut self, sub_queue: usize, knobs: &Knobs) {
        if let Some(discipline) = self.0.working_mut() {
            discipline.set_sub_knobs(sub_queue, knobs);
        }
    }
    fn tins(&self) -> Vec<TinGauges> {
        self.0.working().map_or_else(Vec::new, |d| d.tins())
    }
    fn wants(&self) -> Wants {
        self.0.discipline.wants()
    }
}
