//! Places for packets: the queue moves their indices around.

/// Places per piece of memory.
use quell_qdisc::num;
const CHUNK: usize = 256;

/// Places of one size, given out and taken back.
#[derive(Debug)]
pub struct Pool {
    chunks: Vec<Box<[u8]>>,
    free: Vec<u32>,
    size: usize,
    most: usize,
}

impl Pool {
    /// Places of `size` bytes, at most `most` bytes of them together (at least one piece of 256
    /// places).
    pub fn new(size: usize, most: usize) -> Self {
        Self {
            chunks: Vec::new(),
            free: Vec::new(),
            size,
            most: (most / (size * CHUNK)).max(1),
        }
    }

    /// How many places there can be.
    pub fn most(&self) -> usize {
        self.most * CHUNK
    }

    /// A place for one packet; None if all are taken.
    pub fn take(&mut self) -> Option<u32> {
        if self.free.is_empty() && self.chunks.len() < self.most {
            let first = self.chunks.len() * CHUNK;
            self.chunks
                .push(vec![0; self.size * CHUNK].into_boxed_slice());
            self.free
                .extend((num::count(first)..num::count(first + CHUNK)).rev());
        }
        self.free.pop()
    }

    /// Gives a place back.
    pub fn give(&mut self, place: u32) {
        self.free.push(place);
    }

    /// The bytes of a place.
    #[inline]
    pub fn bytes(&mut self, place: u32) -> &mut [u8] {
        let (chunk, at) = (place as usize / CHUNK, place as usize % CHUNK);
        &mut self.chunks[chunk][at * self.size..(at + 1) * self.size]
    }

    /// How many places are taken.
    pub fn taken(&self) -> usize {
        self.chunks.len() * CHUNK - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_do_not_overlap_and_are_used_again() {
        let mut pool = Pool::new(100, 2 * 256 * 100);
        let places: Vec<u32> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!((places.len(), pool.taken()), (512, 512));
        for &p in &places {
            pool.bytes(p).fill(p as u8);
        }
        for &p in &places {
            assert!(pool.bytes(p).iter().all(|b| *b == p as u8));
        }
        pool.give(places[7]);
        assert_eq!((pool.take(), pool.take()), (Some(places[7]), None));
    }
}
