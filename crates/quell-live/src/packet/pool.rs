//! Memory for packets: the queue handles only the numbers of their places.

use quell_qdisc::num;
/// Places per piece of memory.
const CHUNK: usize = 256;

/// A pool of places of equal size.
#[derive(Debug)]
pub struct Pool {
    chunks: Vec<Box<[u8]>>,
    free: Vec<u32>,
    /// Bytes of a place.
    size: usize,
    /// Largest number of pieces of memory.
    max_chunks: usize,
}

impl Pool {
    /// A pool of places of `size` bytes, of at most `max_bytes` bytes in total (but at least one
    /// piece of 256 places).
    pub fn new(size: usize, max_bytes: usize) -> Self {
        Self {
            chunks: Vec::new(),
            free: Vec::new(),
            size,
            max_chunks: (max_bytes / (size * CHUNK)).max(1),
        }
    }

    /// Most places that there can be.
    pub fn max_places(&self) -> usize {
        self.max_chunks * CHUNK
    }

    /// Takes a place for a packet; `None` if all are in use.
    pub fn take(&mut self) -> Option<u32> {
        if self.free.is_empty() && self.chunks.len() < self.max_chunks {
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

    /// Number of places in use.
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
