//! BPF programs, assembled here or precompiled, and loaded by the system call bpf(2) without
//! compiler and library (RFC 9669 has the instructions).
#![allow(unsafe_code)]

pub mod btf;
pub mod disciplines;
pub mod linked;
pub mod page;

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use libc::c_int;
use quell_link::Error;
use quell_qdisc::num;

use crate::system::host;

// linux/bpf.h: commands, types of maps.
const MAP_CREATE: c_int = 0;
const MAP_UPDATE: c_int = 2;
const PROG_LOAD: c_int = 5;
const MAP_BY_ID: c_int = 14;
const INFO_BY_FD: c_int = 15;
const TYPES_LOAD: c_int = 18;
const MAP_FREEZE: c_int = 22;
const LINK_CREATE: c_int = 28;
/// Type of maps whose keys are indices.
pub const ARRAY: u32 = 2;
const STRUCT_OPS: u32 = 26;
/// BPF_STRUCT_OPS, a type of attachment.
const REGISTER: u32 = 44;
/// BPF_F_RDONLY_PROG.
const CONSTANT: u32 = 1 << 7;
/// BPF_F_LINK.
const BY_LINK: u32 = 1 << 13;
/// BPF_F_MMAPABLE.
pub const MAPPED: u32 = 1 << 10;
/// Buffer for the verifier's log, bytes.
const LOG: usize = 64 << 10;
/// Number of the log's last lines that an error message has.
const LINES: usize = 3;
/// Licence of quell's small programs, whose helpers do not require the GPL.
const LICENSE: &std::ffi::CStr = c"Apache-2.0";
/// Licence of the disciplines, which call kernel functions that require the GPL. Their sources are
/// under the MIT licence or the GPL.
const DUAL: &std::ffi::CStr = c"Dual MIT/GPL";

/// A memory mapping.
pub struct Map {
    /// Start of the mapping.
    pub at: *mut u8,
    /// Length, bytes.
    pub length: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl Send for Map {}
// SAFETY: `at` is only handed out; its users are responsible for accesses.
unsafe impl Sync for Map {}

impl Map {
    /// Maps new private memory, or a descriptor from an offset on.
    pub fn new(length: usize, fd: Option<(&OwnedFd, i64)>) -> io::Result<Self> {
        Self::with(libc::PROT_READ | libc::PROT_WRITE, length, fd)
    }

    /// Maps a descriptor read-only. The descriptor of a BPF map must nevertheless allow writing
    /// (`bpf_map_mmap`).
    pub fn to_read(length: usize, fd: &OwnedFd) -> io::Result<Self> {
        Self::with(libc::PROT_READ, length, Some((fd, 0)))
    }

    fn with(rights: c_int, length: usize, fd: Option<(&OwnedFd, i64)>) -> io::Result<Self> {
        let (flags, fd, offset) = match fd {
            None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0),
            Some((fd, offset)) => (
                libc::MAP_SHARED | libc::MAP_POPULATE,
                fd.as_raw_fd(),
                offset,
            ),
        };
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
        // SAFETY: the mapping belongs to `self`, and no reference into it exists.
        unsafe { libc::munmap(self.at.cast(), self.length) };
    }
}

/// The system call bpf(2), with its attributes as 32-bit words.
fn bpf(command: c_int, words: &[u32]) -> io::Result<c_int> {
    // SAFETY: the attributes, and the memory to which addresses in them point, outlive the call;
    // the kernel only writes to buffers that are meant for that.
    let done = unsafe { libc::syscall(libc::SYS_bpf, command, words.as_ptr(), size_of_val(words)) };
    match c_int::try_from(done) {
        Ok(done) if done >= 0 => Ok(done),
        _ => Err(io::Error::last_os_error()),
    }
}

fn opened(command: c_int, words: &[u32]) -> io::Result<OwnedFd> {
    // SAFETY: a descriptor that the kernel has just returned has no other owner.
    bpf(command, words).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// An address as two 32-bit words.
fn halves<T: ?Sized>(of: *const T) -> [u32; 2] {
    let address = of.cast::<u8>() as u64;
    let pair = [num::low_u32(address), (address >> 32) as u32];
    if cfg!(target_endian = "big") {
        [pair[1], pair[0]]
    } else {
        pair
    }
}

/// Makes a map with one entry of `bytes` bytes; returns it and its memory, which programs and this
/// process share.
pub fn page(bytes: usize) -> io::Result<(OwnedFd, Map)> {
    let fd = opened(MAP_CREATE, &[ARRAY, 4, num::count(bytes), 1, MAPPED])?;
    let map = Map::new(bytes, Some((&fd, 0)))?;
    Ok((fd, map))
}

/// Opens the map with this ID.
pub fn existing(id: u32) -> io::Result<OwnedFd> {
    opened(MAP_BY_ID, &[id, 0, 0])
}

/// Makes a map of this type from 32-bit numbers to 32-bit numbers.
pub fn table(kind: u32, entries: u32) -> io::Result<OwnedFd> {
    opened(MAP_CREATE, &[kind, 4, 4, entries, 0])
}

/// Sets an entry of a [`table`].
pub fn enter(table: &OwnedFd, key: u32, value: u32) -> io::Result<()> {
    update(table, key, &value.to_ne_bytes())
}

/// Sets an entry of a map to `value`, which must have the size of the map's values.
pub fn update(map: &OwnedFd, key: u32, value: &[u8]) -> io::Result<()> {
    let ([k0, k1], [v0, v1]) = (halves(&raw const key), halves(value.as_ptr()));
    bpf(MAP_UPDATE, &[number(map), 0, k0, k1, v0, v1, 0, 0]).map(drop)
}

/// A descriptor's number, as in attributes of bpf(2).
pub fn number(fd: &OwnedFd) -> u32 {
    fd.as_raw_fd().cast_unsigned()
}

/// Loads an object's types (BTF). An error comes with the kernel's log.
pub fn types(bytes: &[u8]) -> Result<OwnedFd, (io::Error, String)> {
    let [t0, t1] = halves(bytes.as_ptr());
    logged(|level, size, [b0, b1]| {
        let length = num::count(bytes.len());
        opened(TYPES_LOAD, &[t0, t1, b0, b1, length, size, level])
    })
}

/// Makes an array of `entries` values of `bytes` bytes; `types` are BTF, and the types of keys and
/// values.
pub fn array(
    name: &str,
    bytes: u32,
    entries: u32,
    flags: u32,
    types: Option<(&OwnedFd, u32, u32)>,
) -> io::Result<OwnedFd> {
    let [n0, n1, n2, n3] = called(name);
    let (types, key, value) = types.map_or((0, 0, 0), |(fd, key, value)| (number(fd), key, value));
    let words = [
        ARRAY, 4, bytes, entries, flags, 0, 0, n0, n1, n2, n3, 0, types, key, value,
    ];
    opened(MAP_CREATE, &words)
}

/// Makes a map with these bytes, read-only for programs and frozen for user space.
pub fn constants(bytes: &[u8]) -> io::Result<OwnedFd> {
    let map = array("constants", num::count(bytes.len()), 1, CONSTANT, None)?;
    update(&map, 0, bytes)?;
    bpf(MAP_FREEZE, &[number(&map)])?;
    Ok(map)
}

/// Makes a map whose only value, of the kernel's type `value` and `bytes` bytes, is a struct of
/// programs that [`register`] registers. The kernel requires the object's types but uses none of
/// them.
pub fn struct_ops(name: &str, types: &OwnedFd, value: u32, bytes: u32) -> io::Result<OwnedFd> {
    let [n0, n1, n2, n3] = called(name);
    let types = number(types);
    let words = [
        STRUCT_OPS, 4, bytes, 1, BY_LINK, 0, 0, n0, n1, n2, n3, 0, types, 0, 0, value,
    ];
    opened(MAP_CREATE, &words)
}

/// Registers a map of [`struct_ops`] in the kernel until the result is closed.
pub fn register(map: &OwnedFd) -> io::Result<OwnedFd> {
    opened(LINK_CREATE, &[number(map), 0, REGISTER, 0])
}

/// The first 15 bytes of a name, which tools show, as words.
fn called(name: &str) -> [u32; 4] {
    let mut bytes = [0; 16];
    let shown = name.len().min(15);
    bytes[..shown].copy_from_slice(&name.as_bytes()[..shown]);
    let word = |i: usize| {
        let [a, b, c, d] = [0, 1, 2, 3].map(|more| bytes[4 * i + more]);
        u32::from_ne_bytes([a, b, c, d])
    };
    [0, 1, 2, 3].map(word)
}

/// Attaches a program to an interface until the result is closed.
pub fn link(program: &OwnedFd, index: u32, place: u32, flags: u32) -> io::Result<OwnedFd> {
    opened(LINK_CREATE, &[number(program), index, place, flags])
}

/// A program to load.
#[derive(Clone, Copy)]
pub struct Load<'a> {
    /// Name that tools show.
    pub name: &'a str,
    /// Type of program.
    pub kind: u32,
    /// Instructions.
    pub code: &'a [u64],
    /// Type of attachment; for a program of a kernel struct, the number of the member.
    pub place: u32,
    /// BTF ID of the kernel's struct of which it is a member.
    pub target: u32,
    /// Types to which the other fields refer. `None`: one of quell's small programs, which do not
    /// need the GPL.
    pub types: Option<&'a OwnedFd>,
    /// Functions: first instruction and type.
    pub functions: &'a [[u32; 2]],
    /// Accesses to the kernel's structs, whose offsets the kernel fills in (struct bpf_core_relo).
    pub accesses: &'a [[u32; 4]],
}

/// Loads a program of this type.
pub fn load(kind: u32, code: &[u64]) -> io::Result<OwnedFd> {
    load_quietly(&small(kind, code), 0, 0, [0, 0])
}

/// As [`load`], with the kernel's reason if it refuses the program.
///
/// # Errors
/// If a privilege is missing, the kernel has no such programs, or its verifier refuses this one;
/// the message has the end of the log.
pub fn load_explained(kind: u32, code: &[u64]) -> Result<OwnedFd, Error> {
    load_with_log(&small(kind, code)).map_err(|(error, log)| refused(&error, &log))
}

fn small(kind: u32, code: &[u64]) -> Load<'_> {
    Load {
        name: "quell",
        kind,
        code,
        place: 0,
        target: 0,
        types: None,
        functions: &[],
        accesses: &[],
    }
}

/// Loads a program. An error comes with the last lines of the verifier's log.
pub fn load_with_log(load: &Load<'_>) -> Result<OwnedFd, (io::Error, String)> {
    logged(|level, size, log| load_quietly(load, level, size, log))
}

/// Calls `what`; if the kernel refuses, calls it again with room for a log, which takes longer.
fn logged(
    what: impl Fn(u32, u32, [u32; 2]) -> io::Result<OwnedFd>,
) -> Result<OwnedFd, (io::Error, String)> {
    what(0, 0, [0, 0]).or_else(|error| {
        let mut log = vec![0; LOG];
        let again = what(1, num::count(LOG), halves(log.as_mut_ptr().cast_const()));
        // The first error is returned, since a log that is too long is an error, too.
        again.map_err(|_| (error, last_lines(&log)))
    })
}

fn load_quietly(load: &Load<'_>, level: u32, size: u32, log: [u32; 2]) -> io::Result<OwnedFd> {
    let license = match load.types {
        None => LICENSE,
        Some(_) => DUAL,
    };
    let mut words = [0; 35];
    words[0] = load.kind;
    words[1] = num::count(load.code.len());
    words[2..4].copy_from_slice(&halves(load.code.as_ptr()));
    words[4..6].copy_from_slice(&halves(license.as_ptr()));
    words[6..8].copy_from_slice(&[level, size]);
    words[8..10].copy_from_slice(&log);
    words[12..16].copy_from_slice(&called(load.name));
    words[17] = load.place;
    let Some(types) = load.types else {
        // Older kernels refuse attributes that they do not know, unless they are 0.
        return opened(PROG_LOAD, &words[..18]);
    };
    words[18..20].copy_from_slice(&[number(types), num::count(size_of::<[u32; 2]>())]);
    words[20..22].copy_from_slice(&halves(load.functions.as_ptr()));
    words[22] = num::count(load.functions.len());
    words[27] = load.target;
    words[29] = num::count(load.accesses.len());
    words[32..34].copy_from_slice(&halves(load.accesses.as_ptr()));
    words[34] = num::count(size_of::<[u32; 4]>());
    opened(PROG_LOAD, &words)
}

/// The message about a failure of BPF; `log` has the verifier's last lines.
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

/// The last lines of the verifier's log, without its statistics, joined.
pub fn last_lines(log: &[u8]) -> String {
    let text = String::from_utf8_lossy(log);
    let lines = text.trim_end_matches('\0').lines().map(str::trim);
    let kept: Vec<_> = lines
        .filter(|line| !line.is_empty() && !line.starts_with("processed "))
        .collect();
    kept[kept.len().saturating_sub(LINES)..].join(" / ")
}

/// The kernel's ID of a program or a map, which unlike a descriptor is the same in all processes.
pub fn id(of: &OwnedFd) -> io::Result<u32> {
    // struct bpf_prog_info and bpf_map_info begin with type and ID.
    let mut info = [0u32; 2];
    let [i0, i1] = halves(info.as_mut_ptr().cast_const());
    let size = num::count(size_of_val(&info));
    bpf(INFO_BY_FD, &[number(of), size, i0, i1])?;
    // SAFETY: the kernel has written it, which the compiler does not know.
    Ok(unsafe { (&raw const info[1]).read_volatile() })
}

/// The first words of the kernel's `bpf_map_info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapInfo([u32; 10]);

impl MapInfo {
    /// Whether it is a mappable array of this name, with `entries` values of `bytes` bytes each.
    pub fn is_array(&self, name: &str, bytes: u32, entries: u32) -> bool {
        // struct bpf_map_info: type, ID, sizes of keys and of values, entries, flags, name.
        let [kind, _, keys, values, count, flags, name_words @ ..] = self.0;
        let map = [kind, keys, values, count, flags & MAPPED];
        map == [ARRAY, 4, bytes, entries, MAPPED] && name_words == called(name)
    }
}

/// Gets the kernel's description of a map.
pub fn map_info(map: &OwnedFd) -> io::Result<MapInfo> {
    let mut info = [0u32; 10];
    let [i0, i1] = halves(info.as_mut_ptr().cast_const());
    let size = num::count(size_of_val(&info));
    bpf(INFO_BY_FD, &[number(map), size, i0, i1])?;
    // SAFETY: the kernel has written it, which the compiler does not know.
    Ok(MapInfo(unsafe { (&raw const info).read_volatile() }))
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

/// A target of jumps in a program.
#[derive(Clone, Copy, Debug)]
pub struct Label(usize);

/// Assembles a program, instruction by instruction. Registers are given by number.
#[derive(Debug, Default)]
pub struct Assembler {
    code: Vec<u64>,
    labels: Vec<usize>,
    /// Jumps: position, opcode and registers, target.
    jumps: Vec<(usize, [u8; 3], Label)>,
}

// Opcodes (RFC 9669, section 3): class, source and operation.
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
/// Second register of [`ADDRESS`]: the number is a map's descriptor, and the result is the address
/// of the map's first value (BPF_PSEUDO_MAP_VALUE).
const OF_VALUE: u8 = 2;

impl Assembler {
    /// Makes a label whose position is not known yet.
    pub fn label(&mut self) -> Label {
        self.labels.push(usize::MAX);
        Label(self.labels.len() - 1)
    }

    /// Puts a label at the next instruction.
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

    /// Sets a register to the address of the only value of a map.
    pub fn address(&mut self, to: u8, map: &OwnedFd) {
        self.push(ADDRESS, to, OF_VALUE, 0, map.as_raw_fd());
        self.push(0, 0, 0, 0, 0);
    }

    /// Loads 64 bits from an address.
    pub fn load(&mut self, to: u8, from: u8, offset: i16) {
        self.push(LOAD_64, to, from, offset, 0);
    }

    /// Atomically adds a register to 64 bits at an address.
    pub fn add_locked(&mut self, to: u8, offset: i16, from: u8) {
        self.push(ADD_LOCKED, to, from, offset, 0);
    }

    /// Calls a helper (linux/bpf.h); the result is in register 0, and registers 1 to 5 are
    /// undefined afterwards.
    pub fn call(&mut self, helper: i32) {
        self.push(CALL, 0, 0, 0, helper);
    }

    /// Ends the program, with register 0 as the result.
    pub fn exit(&mut self) {
        self.push(EXIT, 0, 0, 0, 0);
    }

    /// Jumps to a label.
    pub fn jump(&mut self, label: Label) {
        self.jump_with([JUMP, 0, 0], label);
    }

    /// Jumps to a label if a register is zero.
    pub fn jump_zero(&mut self, register: u8, label: Label) {
        self.jump_with([JUMP_ZERO, register, 0], label);
    }

    /// Jumps to a label if `register` is at least the register `least`.
    pub fn jump_at_least(&mut self, register: u8, least: u8, label: Label) {
        self.jump_with([JUMP_AT_LEAST, register, least], label);
    }

    fn jump_with(&mut self, parts: [u8; 3], label: Label) {
        self.jumps.push((self.code.len(), parts, label));
        self.code.push(0);
    }

    /// The instructions of the program.
    pub fn finish(mut self) -> Vec<u64> {
        for (at, [code, to, from], label) in self.jumps {
            // Relative to the next instruction.
            let [to_label, here] =
                [self.labels[label.0], at].map(|at| num::count(at).cast_signed());
            let offset = num::short(to_label - here - 1).cast_signed();
            self.code[at] = instruction(code, to, from, offset, 0);
        }
        self.code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verifiers_last_lines_are_reported_without_its_statistics() {
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
        // Without BPF in the kernel, the message says so.
        assert!(
            text.contains("R0 !read_ok") || text.contains("no BPF"),
            "{text}"
        );
    }

    #[test]
    fn jumps_lead_over_the_instructions_between() {
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
