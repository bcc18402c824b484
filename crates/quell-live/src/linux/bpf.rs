//! Programs for the kernel's BPF machine: put together here, loaded by the system call bpf(2), no compiler and no library (RFC 9669 has
//! the instructions).
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use libc::c_int;
use quell_link::Error;

use super::host;

// linux/bpf.h: commands, kinds of maps.
const MAP_CREATE: c_int = 0;
const MAP_UPDATE: c_int = 2;
const PROG_LOAD: c_int = 5;
const MAP_BY_ID: c_int = 14;
const INFO_BY_FD: c_int = 15;
const LINK_CREATE: c_int = 28;
const ARRAY: u32 = 2;
/// BPF_F_MMAPABLE.
const MAPPED: u32 = 1 << 10;
/// Bytes for the verifier's log.
const LOG: usize = 64 << 10;
/// How many of its last lines are told.
const LINES: usize = 3;
/// Neither helper that quell calls needs a program under the GPL.
const LICENSE: &std::ffi::CStr = c"Apache-2.0";

/// Memory that is mapped.
pub struct Map {
    /// Where it begins.
    pub at: *mut u8,
    /// Bytes.
    pub length: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl Send for Map {}
// SAFETY: `at` is only handed out; who writes where is up to its users.
unsafe impl Sync for Map {}

impl Map {
    /// Maps memory of its own, or what a descriptor has from an offset on.
    pub fn new(length: usize, fd: Option<(&OwnedFd, i64)>) -> io::Result<Self> {
        let (flags, fd, offset) = match fd {
            None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0),
            Some((fd, offset)) => (
                libc::MAP_SHARED | libc::MAP_POPULATE,
                fd.as_raw_fd(),
                offset,
            ),
        };
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, wherever the kernel likes.
        match unsafe { libc::mmap(std::ptr::null_mut(), length, rights, flags, fd, offset as _) } {
            libc::MAP_FAILED => Err(io::Error::last_os_error()),
            at => Ok(Self {
                at: at.cast(),
                length,
            }),
        }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nobody has a reference into it.
        unsafe { libc::munmap(self.at.cast(), self.length) };
    }
}

/// The system call bpf(2), its attributes as words of 32 bits.
fn bpf(command: c_int, words: &[u32]) -> io::Result<c_int> {
    // SAFETY: the attributes outlive the call, as does all that addresses in them lead to; what the kernel writes to is meant for that.
    let done = unsafe { libc::syscall(libc::SYS_bpf, command, words.as_ptr(), size_of_val(words)) };
    match c_int::try_from(done) {
        Ok(done) if done >= 0 => Ok(done),
        _ => Err(io::Error::last_os_error()),
    }
}

fn opened(command: c_int, words: &[u32]) -> io::Result<OwnedFd> {
    // SAFETY: a descriptor that the kernel gave out a moment ago has no other owner.
    bpf(command, words).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// An address as words.
fn halves<T: ?Sized>(of: *const T) -> [u32; 2] {
    let address = of.cast::<u8>() as u64;
    let pair = [address as u32, (address >> 32) as u32];
    if cfg!(target_endian = "big") {
        [pair[1], pair[0]]
    } else {
        pair
    }
}

/// A map with one entry of so many bytes, and its memory, which a program and this process share.
pub fn page(bytes: usize) -> io::Result<(OwnedFd, Map)> {
    let fd = opened(MAP_CREATE, &[ARRAY, 4, bytes as u32, 1, MAPPED])?;
    let map = Map::new(bytes, Some((&fd, 0)))?;
    Ok((fd, map))
}

/// The map that the kernel knows by this number.
pub fn existing(id: u32) -> io::Result<OwnedFd> {
    opened(MAP_BY_ID, &[id, 0, 0])
}

/// A map of this kind, from numbers to numbers of 32 bits.
pub fn table(kind: u32, entries: u32) -> io::Result<OwnedFd> {
    opened(MAP_CREATE, &[kind, 4, 4, entries, 0])
}

/// Sets an entry of a [`table`].
pub fn enter(table: &OwnedFd, key: u32, value: u32) -> io::Result<()> {
    let ([k0, k1], [v0, v1]) = (halves(&raw const key), halves(&raw const value));
    bpf(
        MAP_UPDATE,
        &[table.as_raw_fd() as u32, 0, k0, k1, v0, v1, 0, 0],
    )
    .map(drop)
}

/// Attaches a program to an interface; it stays as long as the result.
pub fn link(program: &OwnedFd, index: u32, place: u32, flags: u32) -> io::Result<OwnedFd> {
    opened(
        LINK_CREATE,
        &[program.as_raw_fd() as u32, index, place, flags],
    )
}

/// Has the kernel check a program of this kind and take it.
pub fn load(kind: u32, program: &[u64]) -> io::Result<OwnedFd> {
    load_with(kind, program, None)
}

fn load_with(kind: u32, program: &[u64], log: Option<&mut [u8]>) -> io::Result<OwnedFd> {
    let ([p0, p1], [l0, l1]) = (halves(program.as_ptr()), halves(LICENSE.as_ptr()));
    let (level, size, [b0, b1]) = match log {
        None => (0, 0, [0, 0]),
        Some(log) => (1, log.len() as u32, halves(log.as_mut_ptr().cast_const())),
    };
    let count = program.len() as u32;
    let mut words = [0; 16];
    words[..10].copy_from_slice(&[kind, count, p0, p1, l0, l1, level, size, b0, b1]);
    // As bpftool shows it.
    words[12] = u32::from_ne_bytes(*b"quel");
    words[13] = u32::from_ne_bytes(*b"l\0\0\0");
    opened(PROG_LOAD, &words)
}

/// As [`load`], with the reason in words where the kernel refuses it.
///
/// # Errors
/// If a right is missing, the kernel has no such programs, or its verifier refuses this one: with what it says.
pub fn load_explained(kind: u32, program: &[u64]) -> Result<OwnedFd, Error> {
    let mut log = vec![0; LOG];
    let loaded = load_with(kind, program, Some(&mut log));
    loaded.map_err(|error| refused(&error, &last_lines(&log)))
}

/// Why BPF cannot be used, in one line; `log`: what the verifier says.
pub fn refused(error: &io::Error, log: &str) -> Error {
    match error.raw_os_error() {
        Some(libc::EPERM) => Error::new("the kernel lets this process load no BPF program")
            .remedy("CAP_BPF is missing: write sudo before it"),
        Some(libc::ENOSYS) => {
            Error::new("the kernel has no BPF").remedy("a kernel with CONFIG_BPF_SYSCALL")
        }
        _ => {
            let what = match log {
                "" => format!("BPF: {}", host::reason(error)),
                log => format!("the kernel's verifier refuses the BPF program: {log}"),
            };
            Error::new(what).remedy("--with limit needs no BPF")
        }
    }
}

/// The last lines of the verifier's log, without its statistics, as one.
pub fn last_lines(log: &[u8]) -> String {
    let text = String::from_utf8_lossy(log);
    let lines = text.trim_end_matches('\0').lines().map(str::trim);
    let told: Vec<_> = lines
        .filter(|line| !line.is_empty() && !line.starts_with("processed "))
        .collect();
    told[told.len().saturating_sub(LINES)..].join(" / ")
}

/// The number by which the kernel knows a program: unlike its descriptor, it is the same for all.
pub fn id(program: &OwnedFd) -> io::Result<u32> {
    // struct bpf_prog_info begins with the program's kind and its number.
    let mut info = [0u32; 2];
    let [i0, i1] = halves(info.as_mut_ptr().cast_const());
    let size = size_of_val(&info) as u32;
    bpf(INFO_BY_FD, &[program.as_raw_fd() as u32, size, i0, i1])?;
    // SAFETY: the kernel has written it behind the compiler's back.
    Ok(unsafe { (&raw const info[1]).read_volatile() })
}

/// struct bpf_insn.
pub fn instruction(code: u8, to: u8, from: u8, offset: i16, value: i32) -> u64 {
    let (offset, value) = (offset.to_ne_bytes(), value.to_ne_bytes());
    let registers = if cfg!(target_endian = "big") {
        to << 4 | from
    } else {
        from << 4 | to
    };
    let mut bytes = [code, registers, 0, 0, 0, 0, 0, 0];
    bytes[2..4].copy_from_slice(&offset);
    bytes[4..].copy_from_slice(&value);
    u64::from_ne_bytes(bytes)
}

/// A place in a program that jumps lead to.
#[derive(Clone, Copy, Debug)]
pub struct Label(usize);

/// Puts a program together, instruction by instruction; registers by their numbers.
#[derive(Debug, Default)]
pub struct Assembler {
    code: Vec<u64>,
    labels: Vec<usize>,
    /// Jumps: where, their code and registers, and where to.
    jumps: Vec<(usize, [u8; 3], Label)>,
}

// Codes (RFC 9669, section 3): class, source and operation.
pub(crate) const MOVE: u8 = 0xbf;
pub(crate) const SET: u8 = 0xb7;
pub(crate) const LOAD_64: u8 = 0x79;
pub(crate) const ADDRESS: u8 = 0x18;
pub(crate) const ADD_LOCKED: u8 = 0xdb;
pub(crate) const CALL: u8 = 0x85;
pub(crate) const EXIT: u8 = 0x95;
pub(crate) const JUMP: u8 = 0x05;
pub(crate) const JUMP_ZERO: u8 = 0x15;
pub(crate) const JUMP_AT_LEAST: u8 = 0x3d;
/// The second register of [`ADDRESS`]: the number is a map's descriptor, and the address that of its first value (BPF_PSEUDO_MAP_VALUE).
const OF_VALUE: u8 = 2;

impl Assembler {
    /// A place that is not known yet.
    pub fn label(&mut self) -> Label {
        self.labels.push(usize::MAX);
        Label(self.labels.len() - 1)
    }

    /// The next instruction is there.
    pub fn here(&mut self, label: Label) {
        self.labels[label.0] = self.code.len();
    }

    fn push(&mut self, code: u8, to: u8, from: u8, offset: i16, value: i32) {
        self.code.push(instruction(code, to, from, offset, value));
    }

    /// Copies a register.
    pub fn copy(&mut self, to: u8, from: u8) {
        self.push(MOVE, to, from, 0, 0);
    }

    /// Sets a register to a number.
    pub fn set(&mut self, to: u8, value: i32) {
        self.push(SET, to, 0, 0, value);
    }

    /// Sets a register to the address of the value in a map of one.
    pub fn address(&mut self, to: u8, map: &OwnedFd) {
        self.push(ADDRESS, to, OF_VALUE, 0, map.as_raw_fd());
        self.push(0, 0, 0, 0, 0);
    }

    /// Loads 64 bits from an address.
    pub fn load(&mut self, to: u8, from: u8, offset: i16) {
        self.push(LOAD_64, to, from, offset, 0);
    }

    /// Adds a register to 64 bits at an address, undisturbed by other processors.
    pub fn add_locked(&mut self, to: u8, offset: i16, from: u8) {
        self.push(ADD_LOCKED, to, from, offset, 0);
    }

    /// Calls a helper (linux/bpf.h); the result is in register 0, and registers 1 to 5 are void.
    pub fn call(&mut self, helper: i32) {
        self.push(CALL, 0, 0, 0, helper);
    }

    /// Ends, with register 0 as the result.
    pub fn exit(&mut self) {
        self.push(EXIT, 0, 0, 0, 0);
    }

    /// Goes on there.
    pub fn jump(&mut self, label: Label) {
        self.jump_with([JUMP, 0, 0], label);
    }

    /// Goes on there if a register is zero.
    pub fn jump_zero(&mut self, register: u8, label: Label) {
        self.jump_with([JUMP_ZERO, register, 0], label);
    }

    /// Goes on there if `register` is at least `least`, another register.
    pub fn jump_at_least(&mut self, register: u8, least: u8, label: Label) {
        self.jump_with([JUMP_AT_LEAST, register, least], label);
    }

    fn jump_with(&mut self, parts: [u8; 3], label: Label) {
        self.jumps.push((self.code.len(), parts, label));
        self.code.push(0);
    }

    /// The program.
    pub fn finish(mut self) -> Vec<u64> {
        for (at, [code, to, from], label) in self.jumps {
            // Relative to the instruction behind.
            let offset = self.labels[label.0] as i64 - at as i64 - 1;
            self.code[at] = instruction(code, to, from, offset as i16, 0);
        }
        self.code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verifiers_last_words_are_told_without_its_statistics() {
        let log = b"0: (95) exit\nR0 !read_ok\nprocessed 1 insns (limit 1000000)\n\0\0\0";
        assert_eq!(last_lines(log), "0: (95) exit / R0 !read_ok");
        assert_eq!(last_lines(&[0; 8]), "");
    }

    #[test]
    fn a_program_that_the_kernel_refuses_is_explained() {
        // SAFETY: no arguments.
        if unsafe { libc::geteuid() } != 0 {
            println!("not tried: only root may load BPF programs");
            return;
        }
        let mut program = Assembler::default();
        program.exit();
        let error = load_explained(3, &program.finish()).expect_err("nothing is in register 0");
        let text = error.to_string();
        // Where the kernel has no BPF, that is said.
        assert!(
            text.contains("R0 !read_ok") || text.contains("no BPF"),
            "{text}"
        );
    }

    #[test]
    fn jumps_lead_over_what_is_between() {
        let mut program = Assembler::default();
        let (end, back) = (program.label(), program.label());
        program.here(back);
        program.jump_zero(1, end);
        program.jump(back);
        program.here(end);
        program.exit();
        let expected = [
            instruction(JUMP_ZERO, 1, 0, 1, 0),
            instruction(JUMP, 0, 0, -2, 0),
            instruction(EXIT, 0, 0, 0, 0),
        ];
        assert_eq!(program.finish(), expected);
    }
}
