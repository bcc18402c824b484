//! The BPF program that drops or marks packets before the queue, with a probability in memory that
//! it shares with quell.
//!
//! It runs at the egress of clsact. All its parameters can change while it runs, by a store to
//! memory without a system call. A probability is valid until a given time; after that the program
//! lets all packets pass, even if quell has died.
//!
//! A packet larger than the device's MTU (GSO) counts as one packet, as in the kernel's queues.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use quell_link::Error;
use quell_qdisc::time::Instant;

use super::super::bpf::{self, Assembler, Map};
use crate::attached;
use crate::bpf::page::Page;

/// Probability 1: the program draws 32 random bits for each packet.
pub const PROBABILITY_ONE: u64 = 1 << 32;
/// Up to this probability ECN-capable packets are marked. Above it they are dropped, too, since too
/// few flows react to marks (RFC 8033, section 5.1: 10 %).
pub const MAX_MARKED: u64 = PROBABILITY_ONE / 10;

// linux/bpf.h: BPF_PROG_TYPE_SCHED_CLS, helpers.
const SCHED_CLS: u32 = 3;
const KTIME: i32 = 5;
const RANDOM: i32 = 7;
const PULL_DATA: i32 = 39;
const SET_CE: i32 = 97;
// linux/pkt_cls.h: let the next filter decide; drop the packet.
const UNSPEC: i32 = -1;
const SHOT: i32 = 2;

// Offsets of 64-bit numbers in the shared memory, and its size.
const PROBABILITY: i16 = 0;
const VALID_UNTIL: i16 = 8;
const MARKS: i16 = 16;
const DROPPED: i16 = 24;
const MARKED: i16 = 32;
const BYTES: usize = 40;

/// Packets dropped and marked so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets dropped.
    pub dropped: u64,
    /// Packets marked CE, including those that arrived marked.
    pub marked: u64,
}

/// Where the drop probability applies.
pub enum DropPoint {
    /// The program at clsact, before the queue.
    Program(Dropper),
    /// The queue itself, attached by `quell attach`; with its earlier drops.
    Queue(Page, u64),
}

impl DropPoint {
    /// The attached queue of a device.
    ///
    /// # Errors
    /// If there is none, or a privilege is missing.
    pub fn queue(device: u32) -> Result<Self, Error> {
        let page = attached::page_to_steer(device)?;
        let before = page.slots().map(|slot| slot.drops()).sum();
        Ok(Self::Queue(page, before))
    }

    /// Sets the drop probability, in units of 1/[`PROBABILITY_ONE`].
    pub fn set(&self, probability: u64) {
        match self {
            Self::Program(dropper) => dropper.set(probability),
            Self::Queue(page, _) => page.slots().for_each(|slot| slot.steer(probability)),
        }
    }

    /// Sets the time until which the probability is valid (CLOCK_MONOTONIC).
    pub fn valid_until(&self, time: Instant) {
        match self {
            Self::Program(dropper) => dropper.valid_until(time),
            Self::Queue(page, _) => page.slots().for_each(|slot| slot.valid_until(time)),
        }
    }

    /// Packets dropped and marked so far.
    pub fn counts(&self) -> Counts {
        match self {
            Self::Program(dropper) => dropper.counts(),
            Self::Queue(page, before) => {
                let dropped: u64 = page.slots().map(|slot| slot.drops()).sum();
                Counts {
                    dropped: dropped.saturating_sub(*before),
                    marked: 0,
                }
            }
        }
    }

    /// The program, if packets are dropped there.
    pub fn program(&self) -> Option<&Dropper> {
        match self {
            Self::Program(dropper) => Some(dropper),
            Self::Queue(..) => None,
        }
    }

    /// The attached queue's page, if packets are dropped there.
    pub fn page(&self) -> Option<&Page> {
        match self {
            Self::Program(_) => None,
            Self::Queue(page, _) => Some(page),
        }
    }
}

/// The loaded program, and the memory that it shares with quell.
pub struct Dropper {
    /// Descriptor of the program.
    pub program: OwnedFd,
    /// The kernel's ID of the program.
    pub id: u32,
    map: Map,
}

impl Dropper {
    /// Loads the program, which at first drops nothing. With `ecn`, ECN-capable packets are marked
    /// up to the probability [`MAX_MARKED`].
    ///
    /// # Errors
    /// If the kernel has no BPF, a privilege is missing, or the verifier refuses the program.
    pub fn load(ecn: bool) -> Result<Self, Error> {
        let no = |e: io::Error| bpf::refused(&e, "");
        let (fd, map) = bpf::page(BYTES).map_err(no)?;
        let program = bpf::load_explained(SCHED_CLS, &program(&fd))?;
        let id = bpf::id(&program).map_err(no)?;
        let loaded = Self { program, id, map };
        let most = if ecn { MAX_MARKED } else { 0 };
        loaded.number(MARKS).store(most, Ordering::Relaxed);
        Ok(loaded)
    }

    /// Sets the drop probability, in units of 1/[`PROBABILITY_ONE`].
    pub fn set(&self, probability: u64) {
        let number = self.number(PROBABILITY);
        number.store(probability.min(PROBABILITY_ONE), Ordering::Relaxed);
    }

    /// Sets the time until which the probability is valid (CLOCK_MONOTONIC).
    pub fn valid_until(&self, time: Instant) {
        self.number(VALID_UNTIL)
            .store(time.as_nanos(), Ordering::Relaxed);
    }

    /// Packets dropped and marked so far.
    pub fn counts(&self) -> Counts {
        Counts {
            dropped: self.number(DROPPED).load(Ordering::Relaxed),
            marked: self.number(MARKED).load(Ordering::Relaxed),
        }
    }

    fn number(&self, at: i16) -> &AtomicU64 {
        // SAFETY: the mapping has BYTES of them, aligned; they are shared, and only used as
        // atomics.
        unsafe { AtomicU64::from_ptr(self.map.at.add(usize::from(at.cast_unsigned())).cast()) }
    }
}

/// The instructions of the program, for the memory of this map.
fn program(map: &OwnedFd) -> Vec<u64> {
    let mut p = Assembler::default();
    let (pass, drop) = (p.label(), p.label());
    // Register 6: the packet; 7: the memory; 8: the probability. Calls preserve these.
    p.copy(6, 1);
    p.address(7, map);
    p.load(8, 7, PROBABILITY);
    p.jump_zero(8, pass);
    // Is the probability out of date?
    p.call(KTIME);
    p.load(1, 7, VALID_UNTIL);
    p.jump_at_least(0, 1, pass);
    p.call(RANDOM);
    p.jump_at_least(0, 8, pass);
    // Mark or drop?
    p.load(1, 7, MARKS);
    p.jump_at_least(8, 1, drop);
    // A packet that shares its headers with a clone cannot be marked; a bridged packet does if a
    // program captures its arrival. This call gives it headers of its own; length 0: all that are
    // in linear memory. If it fails, so does the mark.
    p.copy(1, 6);
    p.set(2, 0);
    p.call(PULL_DATA);
    p.copy(1, 6);
    p.call(SET_CE);
    p.jump_zero(0, drop);
    p.set(1, 1);
    p.add_locked(7, MARKED, 1);
    p.jump(pass);
    p.here(drop);
    p.set(1, 1);
    p.add_locked(7, DROPPED, 1);
    p.set(0, SHOT);
    p.exit();
    p.here(pass);
    p.set(0, UNSPEC);
    p.exit();
    p.finish()
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use quell_qdisc::Rng;

    use super::super::super::bpf::{
        ADD_LOCKED, ADDRESS, CALL, EXIT, JUMP, JUMP_AT_LEAST, JUMP_ZERO, LOAD_64, MOVE, SET,
    };
    use super::*;

    /// Address of the shared memory in the machine below.
    const MEMORY: u64 = 1 << 40;

    /// Executes the instructions of [`program`] on shared memory and packets as the kernel would
    /// (RFC 9669).
    struct Machine {
        code: Vec<u64>,
        memory: [u64; BYTES / 8],
        now: u64,
        rng: Rng,
        /// ECN field of the packet.
        ecn: u8,
        /// Whether each packet shares its headers with a clone, and whether the present one still
        /// does.
        cloned: bool,
        shared: bool,
    }

    impl Machine {
        fn new() -> Self {
            let map = OwnedFd::from(File::open("/dev/null").expect("a descriptor"));
            Self {
                code: program(&map),
                memory: [0; BYTES / 8],
                now: 1000,
                rng: Rng::new(1, "packets"),
                ecn: 0,
                cloned: false,
                shared: false,
            }
        }

        fn at(&mut self, address: u64) -> &mut u64 {
            &mut self.memory[((address - MEMORY) / 8) as usize]
        }

        fn store(&mut self, at: i16, value: u64) {
            *self.at(MEMORY + at as u64) = value;
        }

        fn call(&mut self, helper: i32) -> u64 {
            match helper {
                KTIME => self.now,
                RANDOM => self.rng.below(PROBABILITY_ONE),
                PULL_DATA => {
                    self.shared = false;
                    0
                }
                // bpf_skb_ecn_set_ce: 1 if the packet is marked now.
                SET_CE if self.ecn == 0 || self.shared => 0,
                SET_CE => {
                    self.ecn = 3;
                    1
                }
                other => panic!("no helper {other}"),
            }
        }

        /// The program's result for a packet.
        fn run(&mut self) -> i32 {
            let mut r = [0u64; 11];
            let (mut at, mut steps) = (0i64, 0);
            loop {
                let bytes = self.code[at as usize].to_ne_bytes();
                let (to, from) = match cfg!(target_endian = "big") {
                    true => (bytes[1] >> 4, bytes[1] & 15),
                    false => (bytes[1] & 15, bytes[1] >> 4),
                };
                let (to, from) = (usize::from(to), usize::from(from));
                let offset = i16::from_ne_bytes([bytes[2], bytes[3]]);
                let value = i32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
                at += 1;
                steps += 1;
                assert!(steps < 100, "it does not end");
                let place = |base: u64| base.wrapping_add(offset as u64);
                match bytes[0] {
                    MOVE => r[to] = r[from],
                    SET => r[to] = i64::from(value) as u64,
                    ADDRESS => (r[to], at) = (MEMORY, at + 1),
                    LOAD_64 => r[to] = *self.at(place(r[from])),
                    ADD_LOCKED => *self.at(place(r[to])) += r[from],
                    CALL => {
                        r[0] = self.call(value);
                        // A call leaves these undefined.
                        r[1..6].fill(0xdead);
                    }
                    EXIT => return r[0] as i32,
                    JUMP => at += i64::from(offset),
                    JUMP_ZERO if r[to] == 0 => at += i64::from(offset),
                    JUMP_AT_LEAST if r[to] >= r[from] => at += i64::from(offset),
                    JUMP_ZERO | JUMP_AT_LEAST => {}
                    other => panic!("no instruction {other:#x}"),
                }
            }
        }

        /// Numbers of dropped and marked packets among 100,000 with this ECN field.
        fn fates(&mut self, ecn: u8) -> (u32, u32) {
            let (mut dropped, mut marked) = (0, 0);
            for _ in 0..100_000 {
                (self.ecn, self.shared) = (ecn, self.cloned);
                match self.run() {
                    SHOT => dropped += 1,
                    UNSPEC => marked += u32::from(self.ecn != ecn),
                    other => panic!("no fate {other}"),
                }
            }
            assert_eq!(self.memory[3..], [u64::from(dropped), u64::from(marked)]);
            self.memory[3..].fill(0);
            (dropped, marked)
        }
    }

    #[test]
    fn packets_are_dropped_with_the_probability_that_is_set() {
        let mut machine = Machine::new();
        machine.store(VALID_UNTIL, 2000);
        for p in [0.001, 0.01, 0.1, 0.5, 0.9] {
            machine.store(PROBABILITY, (p * PROBABILITY_ONE as f64) as u64);
            let (dropped, marked) = machine.fates(2);
            let (expected, deviation) = (1e5 * p, (1e5 * p * (1.0 - p)).sqrt());
            assert!(
                (f64::from(dropped) - expected).abs() < 4.0 * deviation,
                "{p}: {dropped}"
            );
            assert_eq!(marked, 0);
        }
        machine.store(PROBABILITY, 0);
        assert_eq!(machine.fates(2), (0, 0));
        machine.store(PROBABILITY, PROBABILITY_ONE);
        assert_eq!(machine.fates(2), (100_000, 0));
    }

    #[test]
    fn packets_that_can_be_marked_are_marked_below_a_tenth_and_dropped_above() {
        let mut machine = Machine::new();
        machine.store(VALID_UNTIL, 2000);
        machine.store(MARKS, MAX_MARKED);
        machine.store(PROBABILITY, PROBABILITY_ONE / 20);
        for (ect, cloned) in [(1, false), (2, false), (2, true)] {
            machine.cloned = cloned;
            let (dropped, marked) = machine.fates(ect);
            assert_eq!(dropped, 0);
            assert!((4700..5300).contains(&marked), "{marked}");
        }
        let (dropped, marked) = machine.fates(0);
        assert_eq!(marked, 0);
        assert!((4700..5300).contains(&dropped), "{dropped}");
        machine.store(PROBABILITY, PROBABILITY_ONE / 5);
        let (dropped, marked) = machine.fates(1);
        assert_eq!(marked, 0);
        assert!((19_400..20_600).contains(&dropped), "{dropped}");
    }

    #[test]
    fn a_probability_that_is_out_of_date_drops_nothing() {
        let mut machine = Machine::new();
        machine.store(PROBABILITY, PROBABILITY_ONE);
        machine.store(VALID_UNTIL, 1001);
        assert_eq!(machine.run(), SHOT);
        machine.now = 1001;
        assert_eq!(machine.run(), UNSPEC);
    }
}
