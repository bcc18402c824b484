//! Wires: a packet or ACK arrives after a fixed delay, so each delay class is a queue in order of arrival, and only the
//! heads of the classes need a heap. Items live in one slab with 32-bit links.

use quell_qdisc::Nanos;

use crate::agenda::{Agenda, MAX_TIME};

/// No item: a node that is never due, so that what comes after an item has a time in any case.
const NIL: u32 = 0;

/// An ACK's node is one cache line.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Node<T> {
    due: Nanos,
    next: u32,
    item: T,
}

#[derive(Clone, Debug)]
struct Class {
    delay: Nanos,
    target: u8,
    head: u32,
    tail: u32,
}

/// Wires that carry `T`.
#[derive(Clone, Debug)]
pub struct Pipes<T> {
    nodes: Vec<Node<T>>,
    free: u32,
    classes: Vec<Class>,
    heads: Agenda,
}

impl<T: Default> Default for Pipes<T> {
    fn default() -> Self {
        Self {
            nodes: vec![Node {
                due: MAX_TIME,
                next: NIL,
                item: T::default(),
            }],
            free: NIL,
            classes: Vec::new(),
            heads: Agenda::default(),
        }
    }
}

impl<T: Copy + Default> Pipes<T> {
    /// The class of wires with this delay and target; None if there are 65,535 already.
    pub fn class(&mut self, delay: Nanos, target: u8) -> Option<u16> {
        let found = self
            .classes
            .iter()
            .position(|c| c.delay == delay && c.target == target);
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

    /// When the next item arrives; `MAX_TIME` if none is under way.
    #[inline]
    pub fn time(&self) -> Nanos {
        self.heads.time()
    }

    /// Sends something off: what is written where this points, which holds something old, arrives after the class's delay.
    #[inline]
    pub fn push(&mut self, now: Nanos, class: u16) -> &mut T {
        let c = &mut self.classes[class as usize];
        let due = now + c.delay;
        if self.free == NIL {
            self.free = self.nodes.len() as u32;
            self.nodes.push(Node {
                due: 0,
                next: NIL,
                item: T::default(),
            });
        }
        let place = self.free;
        if c.head == NIL {
            c.head = place;
            self.heads.set(due, u32::from(class));
        } else {
            self.nodes[c.tail as usize].next = place;
        }
        c.tail = place;
        let node = &mut self.nodes[place as usize];
        self.free = std::mem::replace(&mut node.next, NIL);
        node.due = due;
        &mut node.item
    }

    /// The item that arrives next with its class's target, in place: copy what is needed, then `pop`. Call only while `time`
    /// says that there is one.
    #[inline]
    pub fn front(&self) -> (&T, u8) {
        let c = &self.classes[self.heads.source() as usize];
        (&self.nodes[c.head as usize].item, c.target)
    }

    /// Takes the item that arrives next away.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_arrive_in_order_of_time_then_class() {
        let mut p = Pipes::default();
        let slow = p.class(10, 0).unwrap();
        let fast = p.class(3, 1).unwrap();
        assert_eq!(p.class(10, 0).unwrap(), slow);
        *p.push(0, slow) = "a";
        *p.push(1, slow) = "b";
        *p.push(7, fast) = "c";
        *p.push(8, fast) = "d";
        assert_eq!(p.time(), 10);
        let mut order = Vec::new();
        while p.time() < MAX_TIME {
            let (item, target) = p.front();
            order.push((*item, target));
            p.pop();
        }
        assert_eq!(order, [("a", 0), ("c", 1), ("b", 0), ("d", 1)]);
    }
}
