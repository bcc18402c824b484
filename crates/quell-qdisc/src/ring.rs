//! A queue of packets in a ring whose size is a power of two and doubles when full: what every discipline stores packets in.
//! Never shrinks, so a queue that has reached its usual depth allocates no more.

/// First in, first out.
#[derive(Clone, Debug)]
pub struct Ring<P> {
    /// Empty, or a power of two of slots; those outside `head..head + len` hold stale copies.
    slots: Vec<P>,
    head: usize,
    len: usize,
}

impl<P> Default for Ring<P> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
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

    /// Appends at the tail.
    #[inline]
    pub fn push(&mut self, packet: P) {
        if self.len == self.slots.len() {
            self.grow(packet);
        }
        let slot = (self.head + self.len) & (self.slots.len() - 1);
        self.slots[slot] = packet;
        self.len += 1;
    }

    /// Takes from the head.
    #[inline]
    pub fn pop(&mut self) -> Option<P> {
        if self.len == 0 {
            return None;
        }
        let packet = self.slots[self.head];
        self.head = (self.head + 1) & (self.slots.len() - 1);
        self.len -= 1;
        Some(packet)
    }

    /// The head, left in place.
    #[inline]
    pub fn front(&self) -> Option<&P> {
        if self.len == 0 {
            return None;
        }
        Some(&self.slots[self.head])
    }

    /// Doubles; `filler` is any packet, since there is no empty one.
    #[cold]
    fn grow(&mut self, filler: P) {
        let old = self.slots.len();
        let mut slots = Vec::with_capacity((2 * old).max(8));
        slots.extend_from_slice(&self.slots[self.head..]);
        slots.extend_from_slice(&self.slots[..self.head]);
        slots.resize(slots.capacity().next_power_of_two(), filler);
        self.slots = slots;
        self.head = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    #[test]
    fn behaves_like_a_deque_while_it_grows_and_wraps() {
        let (mut ring, mut model) = (Ring::new(), VecDeque::new());
        let mut rng = crate::Rng::new(3, "ring");
        for i in 0..20_000_u32 {
            // Two phases: mostly pushes, then mostly pops, so that it grows at every offset of the head and empties.
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
        }
    }
}
