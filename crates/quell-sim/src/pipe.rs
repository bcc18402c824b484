//! Wires: a packet or ACK arrives after a fixed delay. Each delay class is therefore a queue in
//! order of arrival, and only the classes' first items need to be compared. Items live in one slab
//! with 32-bit links.

use quell_qdisc::num;
use quell_qdisc::time::{Duration, Instant};

use crate::agenda::{Agenda, MAX_TIME};

/// In place of a node's index: no node. Node 0 has the time "never", so that the time after the
/// last item can be read without a check.
const NIL: u32 = 0;

/// An item on a wire. With an ACK, it takes one cache line.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Node<T> {
    due: Instant,
    next: u32,
    /// In a [`Chain`]: the rank among items of its class that arrive at the same instant.
    rank: u32,
    item: T,
}

/// Items for one recipient, taken off their wires, in order of arrival: the indices of the first
/// and the last node.
#[derive(Clone, Copy, Debug, Default)]
pub struct Chain {
    head: u32,
    tail: u32,
}

/// An item to be put back on its wire: class, time, order at the same instant, node.
pub type Requeued = (u16, Instant, (u32, u32), u32);

/// Wires with the same delay and the same target, whose meaning the owner defines.
#[derive(Clone, Debug)]
struct Class {
    delay: Duration,
    target: u8,
    head: u32,
    tail: u32,
}

/// Wires that carry items of type `T`.
#[derive(Clone, Debug)]
pub struct Pipes<T> {
    nodes: Vec<Node<T>>,
    free: u32,
    classes: Vec<Class>,
    /// Shortest delay of all classes.
    min_delay: Duration,
    heads: Agenda,
}

impl<T: Default> Default for Pipes<T> {
    fn default() -> Self {
        Self {
            nodes: vec![Node {
                due: MAX_TIME,
                next: NIL,
                rank: 0,
                item: T::default(),
            }],
            free: NIL,
            classes: Vec::new(),
            min_delay: Duration::MAX,
            heads: Agenda::default(),
        }
    }
}

impl<T: Copy + Default> Pipes<T> {
    /// The class of wires with this delay and target, made if it is new; None if there are too many
    /// for 16 bits.
    pub fn class(&mut self, delay: Duration, target: u8) -> Option<u16> {
        let found = self
            .classes
            .iter()
            .position(|c| c.delay == delay && c.target == target);
        self.min_delay = self.min_delay.min(delay);
        let place = found.unwrap_or_else(|| {
            self.classes.push(Class {
                delay,
                target,
                head: NIL,
                tail: NIL,
            });
            self.classes.len() - 1
        });
        u16::try_from(place).ok()
    }

    /// Arrival time of the next item; `MAX_TIME` if there is none.
    #[inline]
    pub fn time(&self) -> Instant {
        self.heads.time()
    }

    /// Appends a node to a class.
    #[inline(always)]
    fn put_last(&mut self, class: u16, place: u32, due: Instant) {
        let c = &mut self.classes[usize::from(class)];
        if c.head == NIL {
            c.head = place;
            self.heads.set(due, u32::from(class));
        } else {
            self.nodes[c.tail as usize].next = place;
        }
        c.tail = place;
    }

    /// Sends an item, which arrives after the class's delay. The caller writes the item to the
    /// returned place, which still has an old value.
    #[inline]
    pub fn push(&mut self, now: Instant, class: u16) -> &mut T {
        self.make_room();
        let due = now + self.classes[class as usize].delay;
        let place = self.free;
        self.put_last(class, place, due);
        let node = &mut self.nodes[place as usize];
        self.free = std::mem::replace(&mut node.next, NIL);
        node.due = due;
        &mut node.item
    }

    /// Ensures that there is a free node.
    #[inline(always)]
    fn make_room(&mut self) {
        if self.free == NIL {
            self.free = num::count(self.nodes.len());
            self.nodes.push(Node {
                due: Instant::ZERO,
                next: NIL,
                rank: 0,
                item: T::default(),
            });
        }
    }

    /// The next item to arrive, in place, and its class's target: copy what is needed, then `pop`.
    /// Call only while `time` is less than `MAX_TIME`.
    #[inline]
    pub fn front(&self) -> (&T, u8) {
        let c = &self.classes[self.heads.source() as usize];
        (&self.nodes[c.head as usize].item, c.target)
    }

    /// Removes the next item to arrive.
    #[inline]
    pub fn pop(&mut self) {
        let class = self.heads.source();
        let c = &mut self.classes[class as usize];
        let place = c.head;
        let node = &mut self.nodes[place as usize];
        let next = node.next;
        node.next = self.free;
        self.free = place;
        c.head = next;
        self.heads.set(self.nodes[next as usize].due, class);
    }
}

// Methods for items in chains, which `lookahead.rs` uses.
impl<T: Copy + Default> Pipes<T> {
    /// Shortest time between an item's departure and its arrival.
    pub fn min_delay(&self) -> Duration {
        self.min_delay
    }

    /// Takes all items off their wires; `number_of` gives the number of an item's chain.
    pub fn take_all(&mut self, chains: &mut [Chain], number_of: impl Fn(&T) -> usize) {
        for (number, class) in self.classes.iter_mut().enumerate() {
            let (mut before, mut rank) = (MAX_TIME, 0);
            while class.head != NIL {
                let place = class.head;
                let node = &mut self.nodes[place as usize];
                class.head = std::mem::replace(&mut node.next, NIL);
                rank = if node.due == before { rank + 1 } else { 0 };
                (before, node.rank) = (node.due, rank);
                let chain = &mut chains[number_of(&node.item)];
                if chain.head == NIL {
                    chain.head = place;
                } else {
                    self.nodes[chain.tail as usize].next = place;
                }
                chain.tail = place;
            }
            self.heads.set(MAX_TIME, num::count(number));
        }
    }

    /// Puts the items of all chains back on their wires; `room` is empty before and after.
    pub fn put_back(
        &mut self,
        chains: &mut [Chain],
        room: &mut Vec<Requeued>,
        class_of: impl Fn(usize) -> u16,
    ) {
        room.reserve(self.nodes.len());
        for (number, chain) in chains.iter_mut().enumerate() {
            let mut place = std::mem::take(chain).head;
            while place != NIL {
                let node = &self.nodes[place as usize];
                // Two ACKs that answer one packet keep their order.
                let order = (node.rank, num::count(room.len()));
                room.push((class_of(number), node.due, order, place));
                place = node.next;
            }
        }
        room.sort_unstable();
        for (class, due, _, place) in room.drain(..) {
            self.put_last(class, place, due);
            self.nodes[place as usize].next = NIL;
        }
    }

    /// Arrival time of a chain's first item; `MAX_TIME` if the chain is empty.
    #[inline(always)]
    pub fn due(&self, chain: &Chain) -> Instant {
        self.nodes[chain.head as usize].due
    }

    /// A chain's first item and its rank: copy what is needed, then `shift`.
    #[inline(always)]
    pub fn first(&self, chain: &Chain) -> (&T, u32) {
        let node = &self.nodes[chain.head as usize];
        (&node.item, node.rank)
    }

    /// Removes a chain's first item. Call only while there is one.
    #[inline(always)]
    pub fn shift(&mut self, chain: &mut Chain) {
        let place = chain.head;
        chain.head = std::mem::replace(&mut self.nodes[place as usize].next, self.free);
        self.free = place;
    }

    /// As `push`, but appends to a chain.
    #[inline(always)]
    pub fn append(&mut self, now: Instant, class: u16, chain: &mut Chain, rank: u32) -> &mut T {
        self.make_room();
        let place = self.free;
        if chain.head == NIL {
            chain.head = place;
        } else {
            self.nodes[chain.tail as usize].next = place;
        }
        chain.tail = place;
        let due = now + self.classes[usize::from(class)].delay;
        let node = &mut self.nodes[place as usize];
        self.free = std::mem::replace(&mut node.next, NIL);
        (node.due, node.rank) = (due, rank);
        &mut node.item
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_arrive_in_order_of_time_then_class() {
        let mut p = Pipes::default();
        let slow = p.class(Duration::from_nanos(10), 0).unwrap();
        let fast = p.class(Duration::from_nanos(3), 1).unwrap();
        assert_eq!(p.class(Duration::from_nanos(10), 0).unwrap(), slow);
        *p.push(Instant::ZERO, slow) = "a";
        *p.push(Instant::from_nanos(1), slow) = "b";
        *p.push(Instant::from_nanos(7), fast) = "c";
        *p.push(Instant::from_nanos(8), fast) = "d";
        assert_eq!(p.time(), Instant::from_nanos(10));
        let mut order = Vec::new();
        while p.time() < MAX_TIME {
            let (item, target) = p.front();
            order.push((*item, target));
            p.pop();
        }
        assert_eq!(order, [("a", 0), ("c", 1), ("b", 0), ("d", 1)]);
    }
}
