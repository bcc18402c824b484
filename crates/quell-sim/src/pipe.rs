//! Wires: what is on its way arrives after a fixed delay, so each delay class is a queue in order of arrival, and only the
//! heads of the classes need a heap. Items live in one slab with 32-bit links.

use quell_qdisc::Nanos;

use crate::heap::Heap;

const NIL: u32 = u32::MAX;

#[derive(Clone, Debug)]
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
    heads: Heap,
}

impl<T: Copy> Default for Pipes<T> {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            free: NIL,
            classes: Vec::new(),
            heads: Heap::default(),
        }
    }
}

impl<T: Copy> Pipes<T> {
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

    /// Sends `item` off.
    #[inline]
    pub fn push(&mut self, now: Nanos, class: u16, item: T) {
        let c = &mut self.classes[class as usize];
        let node = Node {
            due: now + c.delay,
            next: NIL,
            item,
        };
        let due = node.due;
        let place = if self.free == NIL {
            self.nodes.push(node);
            (self.nodes.len() - 1) as u32
        } else {
            let place = self.free;
            let slot = &mut self.nodes[place as usize];
            self.free = slot.next;
            *slot = node;
            place
        };
        if c.head == NIL {
            c.head = place;
            self.heads.push(due, class);
        } else {
            self.nodes[c.tail as usize].next = place;
        }
        c.tail = place;
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
        if next == NIL {
            self.heads.pop();
        } else {
            let due = self.nodes[next as usize].due;
            self.heads.replace_top(due, class);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::MAX_TIME;

    #[test]
    fn items_arrive_in_order_of_time_then_class() {
        let mut p = Pipes::default();
        let slow = p.class(10, 0).unwrap();
        let fast = p.class(3, 1).unwrap();
        assert_eq!(p.class(10, 0).unwrap(), slow);
        p.push(0, slow, "a");
        p.push(1, slow, "b");
        p.push(7, fast, "c");
        p.push(8, fast, "d");
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
