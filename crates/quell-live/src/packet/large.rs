//! Large frames are kept whole while their packets wait one by one. Packets of a frame that leave
//! together leave as one frame, because a frame costs the system about the same whatever its size.
//!
//! Only adjacent packets of one frame are joined, so that outgoing frames can be split into exactly
//! the kernel's original packets. A packet that was marked here leaves alone, so that its receiver
//! counts marks as on the wire. The order within a flow is kept.

use std::io::IoSlice;

use quell_qdisc::num;

use crate::packet::header::{self, Change};
use crate::packet::segment::{Frame, HEADER};

/// Most runs of packets that are collected at the same time; a further one replaces the oldest,
/// which is written.
const RUNS: usize = 16;
/// Room for a frame's header and its packets' headers, bytes; frames with longer headers are not
/// kept.
const HEADERS: usize = 256;
/// Flag in the place of a packet that is part of a kept frame; below it are 15 bits for the frame
/// and 16 for the packet.
const PART: u32 = 1 << 31;
/// Largest frame, bytes.
pub const FRAME: usize = HEADER + 65_535;

/// Kept frames, and runs of their packets that are about to leave.
#[derive(Debug)]
pub struct Large {
    kept: Vec<Kept>,
    free: Vec<u32>,
    max_frames: usize,
    runs: Vec<Run>,
    /// Whether to clear the DSCP of packets that leave.
    pub wash: bool,
}

#[derive(Debug)]
struct Kept {
    bytes: Box<[u8]>,
    length: usize,
    /// Packets that have neither left nor been dropped.
    left: u32,
}

/// Adjacent packets of one frame.
#[derive(Clone, Copy, Debug)]
struct Run {
    hash: u32,
    frame: u32,
    first: u32,
    count: u32,
}

impl Large {
    /// Memory for at most `max_bytes` bytes of frames.
    pub fn new(max_bytes: usize) -> Self {
        Self {
            kept: Vec::new(),
            free: Vec::new(),
            max_frames: (max_bytes / FRAME).clamp(1, 1 << 15),
            runs: Vec::with_capacity(RUNS),
            wash: false,
        }
    }

    /// The buffer for the next frame; `None` if all are in use.
    pub fn room(&mut self) -> Option<&mut [u8]> {
        if self.free.is_empty() && self.kept.len() < self.max_frames {
            self.free.push(num::count(self.kept.len()));
            self.kept.push(Kept {
                bytes: vec![0; FRAME].into_boxed_slice(),
                length: 0,
                left: 0,
            });
        }
        let next = *self.free.last()?;
        Some(&mut self.kept[next as usize].bytes)
    }

    /// The first `length` bytes of the buffer that [`Self::room`] has returned.
    pub fn read(&self, length: usize) -> &[u8] {
        let next = self.free.last().map_or(0, |next| *next as usize);
        &self.kept[next].bytes[..length]
    }

    /// Keeps the frame in the buffer that [`Self::room`] has returned, if it is several packets of
    /// at most `mtu` bytes. Returns the place of the first packet; the others' places follow.
    pub fn keep(&mut self, length: usize, mtu: u32) -> Option<u32> {
        let frame = Frame::parse(self.read(length))?;
        let count = num::count(frame.count());
        let short = frame.header().is_some_and(|end| HEADER + end <= HEADERS);
        if !short || !(2..1 << 16).contains(&count) || frame.length(0).0 > mtu {
            return None;
        }
        let next = self.free.pop()?;
        let kept = &mut self.kept[next as usize];
        (kept.length, kept.left) = (length, count);
        Some(PART | next << 16)
    }

    /// The frame of a kept packet.
    pub fn packets(&self, place: u32) -> Frame<'_> {
        let kept = &self.kept[((place & !PART) >> 16) as usize];
        Frame::parse(&kept.bytes[..kept.length]).expect("it was read before")
    }

    /// Whether a place belongs to a kept frame.
    #[inline]
    pub fn is_kept(place: u32) -> bool {
        place & PART != 0
    }

    /// Frees the place of a packet that has left or was dropped.
    pub fn give(&mut self, place: u32) {
        let frame = (place & !PART) >> 16;
        let kept = &mut self.kept[frame as usize];
        kept.left -= 1;
        if kept.left == 0 {
            self.free.push(frame);
        }
    }

    /// Adds a packet that leaves (place, flow hash, whether to mark it) to the run of its flow.
    /// `out` gets each finished frame in parts, with its number of packets, and returns whether the
    /// frame was sent. Returns whether this packet was marked here and sent.
    pub fn push(
        &mut self,
        (place, hash, mark): (u32, u32, bool),
        out: &mut impl FnMut(&[IoSlice<'_>], u64) -> bool,
    ) -> bool {
        let (frame, k) = ((place & !PART) >> 16, place & 0xffff);
        let one = Run {
            hash,
            frame,
            first: k,
            count: 1,
        };
        if mark && let Some(taken) = self.write(one, true, out) {
            return taken;
        }
        if let Some(run) = self.runs.iter_mut().find(|r| r.hash == hash)
            && (run.frame, run.first + run.count) == (frame, k)
        {
            run.count += 1;
            return false;
        }
        self.end(hash, out);
        if self.runs.len() == RUNS {
            let oldest = self.runs.remove(0);
            self.write(oldest, false, out);
        }
        self.runs.push(one);
        false
    }

    /// Writes the collected run of a flow.
    pub fn end(&mut self, hash: u32, out: &mut impl FnMut(&[IoSlice<'_>], u64) -> bool) {
        if let Some(at) = self.runs.iter().position(|r| r.hash == hash) {
            let run = self.runs.remove(at);
            self.write(run, false, out);
        }
    }

    /// Writes all collected runs.
    pub fn flush(&mut self, out: &mut impl FnMut(&[IoSlice<'_>], u64) -> bool) {
        while let Some(run) = self.runs.pop() {
            self.write(run, false, out);
        }
    }

    /// Writes a run. With `mark` it is written only if it can be marked, and after the rest of its
    /// flow. Returns whether it was sent; `None` if it was not written.
    fn write(
        &mut self,
        run: Run,
        mark: bool,
        out: &mut impl FnMut(&[IoSlice<'_>], u64) -> bool,
    ) -> Option<bool> {
        let wash = self.wash;
        let frame = self.packets(PART | run.frame << 16);
        let mut headers = [0; HEADERS];
        let (end, payload) = frame.headers(run.first as usize, run.count as usize, &mut headers)?;
        Change { mark: false, wash }.apply(&mut headers[HEADER..end]);
        if mark {
            if !header::set_ce(&mut headers[HEADER..end]) {
                return None;
            }
            self.end(run.hash, out);
        }
        let kept = &self.kept[run.frame as usize].bytes;
        let parts = [IoSlice::new(&headers[..end]), IoSlice::new(&kept[payload])];
        let taken = out(&parts, u64::from(run.count));
        for k in run.first..run.first + run.count {
            self.give(PART | run.frame << 16 | k);
        }
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::header::{TCP, classify};
    use proptest::prelude::*;

    const MTU: u32 = 1500;
    const ACK: u8 = 0x10;

    /// A kernel frame: a TCP packet of this flow, from `sequence` on, to be split into segments of
    /// `size` bytes.
    fn frame(six: bool, port: u8, sequence: u32, payload: &[u8], size: u16, flags: u8) -> Vec<u8> {
        let transport: u16 = if six { 40 } else { 20 };
        let mut p = vec![0; usize::from(transport) + 32];
        if six {
            (p[0], p[1], p[6]) = (0x60, 2 << 4, TCP);
        } else {
            (p[0], p[1], p[6], p[9]) = (0x45, 2, 0x40, TCP);
        }
        let (at, length) = match six {
            true => (4, 32 + payload.len()),
            false => (2, 52 + payload.len()),
        };
        p[at..at + 2].copy_from_slice(&(length as u16).to_be_bytes());
        let t = &mut p[usize::from(transport)..];
        t[1] = port;
        t[4..8].copy_from_slice(&sequence.to_be_bytes());
        t[12..16].copy_from_slice(&[8 << 4, flags, 0x10, 0]);
        p.extend_from_slice(payload);
        let mut f = vec![1, if six { 4 } else { 1 }];
        for word in [0, size, transport, 16] {
            f.extend(word.to_ne_bytes());
        }
        f.extend(p);
        f
    }

    /// The packets of a frame, split by its headers.
    fn apart(frame: &[u8]) -> Vec<Vec<u8>> {
        let frame = Frame::parse(frame).unwrap();
        let piece = |k| {
            let mut out = vec![0; 2000];
            let length = frame.write(k, &mut out).unwrap();
            out[HEADER..HEADER + length].to_vec()
        };
        (0..frame.count()).map(piece).collect()
    }

    fn hash(frame: &[u8]) -> u32 {
        classify(&frame[HEADER..], (1, 2)).hash
    }

    /// Keeps a frame; returns the places of its packets, with its hash.
    fn keep(large: &mut Large, frame: &[u8]) -> Vec<(u32, u32)> {
        large.room().unwrap()[..frame.len()].copy_from_slice(frame);
        let first = large.keep(frame.len(), MTU).unwrap();
        let count = large.packets(first).count() as u32;
        (0..count).map(|k| (first + k, hash(frame))).collect()
    }

    /// Frames that leave when these packets are pushed; the flag says which are marked.
    fn pushed(large: &mut Large, packets: &[((u32, u32), bool)]) -> Vec<Vec<u8>> {
        let mut gone = Vec::new();
        let mut out = |parts: &[IoSlice<'_>], _: u64| {
            gone.push(parts.iter().flat_map(|p| p.to_vec()).collect());
            true
        };
        for ((place, hash), mark) in packets {
            assert_eq!(large.push((*place, *hash, *mark), &mut out), *mark);
        }
        large.flush(&mut out);
        assert_eq!(large.free.len(), large.kept.len(), "all is free again");
        gone
    }

    fn unmarked(places: &[(u32, u32)]) -> Vec<((u32, u32), bool)> {
        places.iter().map(|p| (*p, false)).collect()
    }

    #[test]
    fn a_large_frame_of_the_kernel_leaves_as_one_frame() {
        for six in [false, true] {
            let mut large = Large::new(1 << 20);
            let whole = frame(six, 1, 5, &[7; 40_000], 1000, ACK | 8);
            let places = keep(&mut large, &whole);
            let gone = pushed(&mut large, &unmarked(&places));
            assert_eq!(gone.len(), 1);
            assert_eq!(apart(&gone[0]), apart(&whole));
        }
    }

    #[test]
    fn frames_of_several_flows_leave_side_by_side() {
        let mut large = Large::new(1 << 20);
        let flows: Vec<_> = (0..3)
            .map(|port| keep(&mut large, &frame(false, port, 0, &[port; 5000], 1000, ACK)))
            .collect();
        let turns: Vec<_> = (0..15).map(|i| flows[i % 3][i / 3]).collect();
        assert_eq!(pushed(&mut large, &unmarked(&turns)).len(), 3);
    }

    #[test]
    fn a_marked_packet_leaves_alone_and_in_order() {
        let mut large = Large::new(1 << 20);
        let whole = frame(false, 1, 0, &[1; 5000], 1000, ACK);
        let places = keep(&mut large, &whole);
        let marks: Vec<_> = (0..5).map(|k| (places[k], k == 2)).collect();
        let gone: Vec<_> = pushed(&mut large, &marks)
            .iter()
            .map(|f| apart(f))
            .collect();
        assert_eq!(gone.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1, 2]);
        let ecn: Vec<u8> = gone.iter().flatten().map(|p| p[1] & 3).collect();
        assert_eq!(ecn, [2, 2, 3, 2, 2]);
        let sequence = |p: &Vec<u8>| u32::from_be_bytes([p[24], p[25], p[26], p[27]]);
        let all: Vec<u32> = gone.iter().flatten().map(sequence).collect();
        assert_eq!(all, [0, 1000, 2000, 3000, 4000]);
    }

    #[test]
    fn single_packets_and_oversized_segments_are_not_kept_and_room_ends() {
        let mut large = Large::new(2 * FRAME);
        for bad in [
            frame(false, 1, 0, &[1; 500], 1000, ACK),
            frame(false, 1, 0, &[1; 5000], 1460, ACK),
            frame(false, 1, 0, &[1; 5000], 0, ACK),
        ] {
            large.room().unwrap()[..bad.len()].copy_from_slice(&bad);
            assert_eq!(large.keep(bad.len(), MTU), None);
        }
        let good = frame(false, 1, 0, &[1; 5000], 1000, ACK);
        let places = [keep(&mut large, &good), keep(&mut large, &good)].concat();
        assert!(large.room().is_none());
        // Packets dropped in the queue make room, too.
        places.iter().for_each(|(place, _)| large.give(*place));
        assert!(large.room().is_some());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn after_segmentation_each_flow_has_the_same_packets_in_the_same_order(
            frames in proptest::collection::vec(
                (any::<bool>(), 0..20u8, 0..6000usize, 9..1400u16, any::<u8>()), 1..40),
            shuffle in any::<u64>(),
        ) {
            let mut large = Large::new(64 << 20);
            let mut flows = Vec::new();
            for (k, (six, port, bytes, size, flags)) in frames.into_iter().enumerate() {
                let payload = vec![flags; bytes + usize::from(size) + 1];
                let f = frame(six, port, k as u32 * 10_000, &payload, size, flags);
                let packets = apart(&f);
                flows.push((keep(&mut large, &f), packets));
            }
            // The order is that of a fair queue: frames of one flow do not overtake each other, and
            // some packets are dropped.
            let (mut rng, mut left) = (shuffle | 1, flows.len());
            let mut next = vec![0; flows.len()];
            let (mut order, mut expected) = (Vec::new(), Vec::new());
            while left > 0 {
                rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let pick = (rng >> 33) as usize % flows.len();
                let same = |f: usize| flows[f].0[0].1 == flows[pick].0[0].1;
                let pick = (0..=pick).find(|&f| next[f] < flows[f].0.len() && same(f));
                let Some(pick) = pick else {
                    left = next.iter().zip(&flows).filter(|(n, f)| **n < f.0.len()).count();
                    continue;
                };
                let (places, packets) = &flows[pick];
                if rng >> 60 == 0 {
                    large.give(places[next[pick]].0);
                } else {
                    order.push(places[next[pick]]);
                    expected.push((places[0].1, packets[next[pick]].clone()));
                }
                next[pick] += 1;
            }
            let gone = pushed(&mut large, &unmarked(&order));
            let mut gone: Vec<_> = gone
                .iter()
                .flat_map(|f| apart(f).into_iter().map(|p| (hash(f), p)))
                .collect();
            gone.sort_by_key(|(hash, _)| *hash);
            expected.sort_by_key(|(hash, _)| *hash);
            prop_assert_eq!(gone, expected);
        }
    }
}
