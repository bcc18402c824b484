//! A queue of packets in a ring whose size is a power of two and doubles when full. It never
//! shrinks, so a queue that has reached its usual depth allocates no more.

/// A FIFO of packets.
#[derive(Clone, Debug)]
pub struct Ring<P> {
    /// Up to `mask` + 1 slots, appended at their first use; slots outside the queue hold stale
    /// copies.
    slots: Vec<P>,
    /// Capacity less one.
    mask: usize,
    head: usize,
    len: usize,
}

impl<P> Default for Ring<P> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            mask: 0,
            head: 0,
            len: 0,
        }
    }
}

impl<P: Copy> Ring<P> {
    /// An empty ring; the first `push` allocates.
    pub fn new() -> Self {
        Self::default()
    }

    /// Packets held.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if nothing is held.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends at the tail. To change a field of the packet, change it through the returned
    /// reference: a narrow store to a copy that is then moved with wide loads would stall the
    /// processor. (For the same reason the packet is passed only to inlined functions here.)
    #[inline(always)]
    pub fn push(&mut self, packet: P) -> &mut P {
        if self.len > self.mask || self.slots.is_empty() {
            self.grow();
        }
        let slot = (self.head + self.len) & self.mask;
        self.len += 1;
        if slot >= self.slots.len() {
            self.slots.push(packet);
        } else {
            self.slots[slot] = packet;
        }
        &mut self.slots[slot]
    }

    /// Removes and returns the head.
    #[inline(always)]
    pub fn pop(&mut self) -> Option<P> {
        if self.len == 0 {
            return None;
        }
        let packet = self.slots[self.head];
        self.head = (self.head + 1) & self.mask;
        self.len -= 1;
        Some(packet)
    }

    /// Removes the packet with `i` packets before it, and moves up those behind it.
    pub fn remove(&mut self, i: usize) -> Option<P> {
        if i >= self.len {
            return None;
        }
        let packet = self.slots[(self.head + i) & self.mask];
        for k in i + 1..self.len {
            self.slots[(self.head + k - 1) & self.mask] = self.slots[(self.head + k) & self.mask];
        }
        self.len -= 1;
        Some(packet)
    }

    /// All packets from the head on.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &P> + ExactSizeIterator {
        (0..self.len).map(|k| &self.slots[(self.head + k) & self.mask])
    }

    /// The head, left in place.
    #[inline]
    pub fn front(&self) -> Option<&P> {
        if self.len == 0 {
            return None;
        }
        Some(&self.slots[self.head])
    }

    /// The packet with `i` packets before it, left in place.
    #[inline]
    pub fn get_mut(&mut self, i: usize) -> Option<&mut P> {
        if i >= self.len {
            return None;
        }
        Some(&mut self.slots[(self.head + i) & self.mask])
    }

    /// Doubles the room and moves the head to slot 0.
    #[cold]
    fn grow(&mut self) {
        let room = (2 * self.slots.len()).max(8);
        let mut slots = Vec::with_capacity(room);
        slots.extend_from_slice(&self.slots[self.head..]);
        slots.extend_from_slice(&self.slots[..self.head]);
        self.slots = slots;
        self.mask = room - 1;
        self.head = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[test]
    fn behaves_like_a_deque_while_it_grows_and_wraps() {
        let (mut ring, mut model) = (Ring::new(), VecDeque::new());
        let mut rng = crate::Rng::new(3, "ring");
        for i in 0..20_000_u32 {
            // Phases of mostly pushes and of mostly pops alternate, so that the ring grows at many
            // offsets of the head, and empties.
            if rng.below(8) < if i / 500 % 2 == 0 { 5 } else { 3 } {
                ring.push(i);
                model.push_back(i);
            } else {
                assert_eq!(ring.pop(), model.pop_front());
            }
            assert_eq!(
                (ring.len(), ring.front()),
                (model.len(), model.front()),
                "step {i}"
            );
            assert_eq!(ring.is_empty(), model.is_empty());
            let middle = ring.len() / 2;
            assert_eq!(ring.get_mut(middle), model.get_mut(middle));
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Op {
        Push(u32),
        Pop,
        Remove(usize),
        Set(usize, u32),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            6 => any::<u32>().prop_map(Op::Push),
            4 => Just(Op::Pop),
            2 => (0..40_usize).prop_map(Op::Remove),
            1 => (0..40_usize, any::<u32>()).prop_map(|(i, p)| Op::Set(i, p)),
        ]
    }

    proptest! {
        /// After any operations, the ring and its clone hold what a deque holds, in both
        /// directions.
        #[test]
        fn nothing_is_lost_made_or_moved(ops in prop::collection::vec(op(), 0..400)) {
            let (mut ring, mut model) = (Ring::new(), VecDeque::new());
            for op in ops {
                match op {
                    Op::Push(p) => {
                        prop_assert_eq!(*ring.push(p), p);
                        model.push_back(p);
                    }
                    Op::Pop => prop_assert_eq!(ring.pop(), model.pop_front()),
                    Op::Remove(i) => prop_assert_eq!(ring.remove(i), model.remove(i)),
                    Op::Set(i, p) => {
                        let (of_ring, of_model) = (ring.get_mut(i), model.get_mut(i));
                        prop_assert_eq!(of_ring.is_some(), of_model.is_some());
                        of_ring.into_iter().chain(of_model).for_each(|slot| *slot = p);
                    }
                }
                prop_assert_eq!(ring.len(), model.len());
                prop_assert_eq!(ring.front(), model.front());
            }
            prop_assert!(ring.iter().eq(&model));
            prop_assert!(ring.clone().iter().rev().eq(model.iter().rev()));
        }
    }
}
