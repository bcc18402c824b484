//! Reads compiled objects and links programs from their functions: the part of libbpf's work that
//! quell's own objects need.
//!
//! The kernel fills in the offsets of fields in its types; it gets clang's records of the accesses
//! (CO-RE, since Linux 5.17).

use std::collections::HashMap;

use object::elf::{R_BPF_64_32, R_BPF_64_64};
use object::read::elf::ElfFile64;
use object::{
    LittleEndian, Object as _, ObjectSection as _, ObjectSymbol as _, RelocationFlags,
    RelocationTarget, SectionIndex, SymbolIndex,
};
use quell_qdisc::num;

use super::btf::{Btf, word};

/// Section that declares maps.
pub const MAPS: &str = ".maps";
/// Prefix of the names of sections of constants.
const CONSTANTS: &str = ".rodata";
/// Size of an instruction, bytes.
const INSTRUCTION: u64 = 8;
// Values of the second register that give the meaning of a number (linux/bpf.h): BPF_PSEUDO_MAP_FD,
// _MAP_VALUE, _CALL, _KFUNC_CALL.
const MAP: u8 = 1;
const MAP_VALUE: u8 = 2;
const CALL: u8 = 1;
const KERNEL_CALL: u8 = 2;

/// A linked program, in the kernel's format.
#[derive(Debug, Default)]
pub struct Program {
    /// Instructions.
    pub code: Vec<u64>,
    /// Functions: first instruction and type.
    pub functions: Vec<[u32; 2]>,
    /// Accesses to fields of the kernel's types: struct bpf_core_relo.
    pub accesses: Vec<[u32; 4]>,
}

/// A function's position in the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    section: SectionIndex,
    at: u64,
    bytes: u64,
}

impl Place {
    /// Offset within the function of a position in the section, if it is in the function.
    fn within(&self, at: u64) -> Option<u64> {
        at.checked_sub(self.at).filter(|at| *at < self.bytes)
    }
}

/// A relocation at a position in a section.
#[derive(Clone, Copy, Debug)]
struct Reference {
    at: u64,
    kind: u32,
    to: SymbolIndex,
}

/// A compiled object.
pub struct Object<'a> {
    file: ElfFile64<'a, LittleEndian>,
    /// Types, completed for the kernel.
    pub types: Btf,
    functions: HashMap<(SectionIndex, u64), u32>,
    accesses: Vec<(SectionIndex, [u32; 4])>,
}

impl<'a> Object<'a> {
    /// Reads an object; `None` if it has something that this loader does not know.
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        let file = ElfFile64::<LittleEndian>::parse(bytes).ok()?;
        let section = |name: &str| file.section_by_name(name);
        let mut bytes = section(".BTF")?.data().ok()?.to_vec();
        // Fills in the offsets of variables in their sections.
        for Reference { at, to, .. } in references(&file, section(".BTF")?.index()) {
            let place = bytes.get_mut(num::index(at)..num::index(at) + 4)?;
            let offset = num::low_u32(file.symbol_by_index(to).ok()?.address());
            let offset = word(place, 0)?.wrapping_add(offset);
            place.copy_from_slice(&offset.to_ne_bytes());
        }
        let types = Btf::new(bytes)?;
        let types = types.finish(|name| Some(num::index(section(name)?.size())))?;

        // struct btf_ext_header: its length, then offset (from its end) and length of each part:
        // functions, lines, accesses.
        let notes = section(".BTF.ext")?.data().ok()?;
        let part = |at| {
            let begin = word(notes, 4)? as usize + word(notes, at)? as usize;
            notes.get(begin..begin + word(notes, at + 4)? as usize)
        };
        let mut functions = HashMap::new();
        let mut accesses = Vec::new();
        records(part(8)?, |name, [at, id]| {
            let place = (section(types.text(name)?)?.index(), u64::from(at));
            functions.insert(place, id);
            Some(())
        })?;
        records(part(24)?, |name, record| {
            accesses.push((section(types.text(name)?)?.index(), record));
            Some(())
        })?;
        Some(Self {
            file,
            types,
            functions,
            accesses,
        })
    }

    /// The content of a section.
    pub fn section(&self, name: &str) -> Option<&'a [u8]> {
        self.file.section_by_name(name)?.data().ok()
    }

    /// The names of all sections of constants.
    pub fn constants(&self) -> Vec<String> {
        let sections = self.file.sections();
        let names = sections.filter_map(|section| section.name().map(str::to_owned).ok());
        names.filter(|name| name.starts_with(CONSTANTS)).collect()
    }

    /// Names of undefined symbols: functions of the kernel.
    pub fn undefined(&self) -> impl Iterator<Item = &str> {
        let symbols = self.file.symbols();
        let undefined = symbols.filter(|symbol| symbol.is_undefined());
        undefined.filter_map(|symbol| symbol.name().ok())
    }

    /// Name of the function to which a section's pointer at an offset points.
    pub fn pointer(&self, section: &str, at: usize) -> Option<&str> {
        let section = self.file.section_by_name(section)?.index();
        let mut all = references(&self.file, section).into_iter();
        let to = all.find(|reference| reference.at == at as u64)?.to;
        self.file.symbol_by_index(to).ok()?.name().ok()
    }

    /// Links a program: the function of this name, followed by all functions that it calls.
    /// `outside` has, by name, descriptors of maps and of the maps of constant sections, and IDs of
    /// the kernel's functions.
    ///
    /// # Errors
    /// The name of what is unknown.
    pub fn program(&self, name: &str, outside: &HashMap<String, u32>) -> Result<Program, String> {
        let first = self.function_named(name).ok_or(name)?;
        let mut linker = Linker {
            object: self,
            outside,
            places: Vec::new(),
            end: 0,
            program: Program::default(),
        };
        linker.place(first);
        let mut next = 0;
        while let Some((place, begin)) = linker.places.get(next).copied() {
            linker
                .append(place, begin)
                .map_err(|what| format!("{what} in {name}()"))?;
            next += 1;
        }
        Ok(linker.program)
    }

    fn function_named(&self, name: &str) -> Option<Place> {
        let mut symbols = self.file.symbols();
        self.function(symbols.find(|symbol| symbol.name() == Ok(name))?.index())
    }

    fn function(&self, symbol: SymbolIndex) -> Option<Place> {
        let symbol = self.file.symbol_by_index(symbol).ok()?;
        Some(Place {
            section: symbol.section_index()?,
            at: symbol.address(),
            bytes: symbol.size(),
        })
    }

    fn code(&self, place: Place) -> Option<Vec<u64>> {
        let section = self.file.section_by_index(place.section).ok()?;
        let (begin, bytes) = (num::index(place.at), num::index(place.bytes));
        let code = section.data().ok()?.get(begin..begin + bytes)?;
        let each = code.chunks_exact(num::index(INSTRUCTION));
        each.map(|one| one.try_into().ok().map(u64::from_ne_bytes))
            .collect()
    }

    fn target(&self, kind: u32, to: SymbolIndex) -> Option<Target<'_>> {
        let symbol = self.file.symbol_by_index(to).ok()?;
        let section = symbol.section_index();
        let name = symbol.name().ok()?;
        match kind {
            R_BPF_64_32 if symbol.is_undefined() => Some(Target::Kernel(name)),
            R_BPF_64_32 if symbol.size() > 0 => self.function(to).map(Target::Function),
            R_BPF_64_64 => match self.file.section_by_index(section?).ok()?.name().ok()? {
                MAPS => Some(Target::Map(name)),
                constants if constants.starts_with(CONSTANTS) => {
                    Some(Target::Constants(constants, num::low_u32(symbol.address())))
                }
                _ => None,
            },
            _ => None,
        }
    }
}

/// The state of linking a program.
struct Linker<'a> {
    object: &'a Object<'a>,
    outside: &'a HashMap<String, u32>,
    /// Functions in the program, and the first instruction of each.
    places: Vec<(Place, u64)>,
    /// Number of instructions of these functions.
    end: u64,
    program: Program,
}

impl Linker<'_> {
    /// The first instruction of a function, which is added to the program if necessary.
    fn place(&mut self, function: Place) -> u64 {
        if let Some((_, begin)) = self.places.iter().find(|(place, _)| *place == function) {
            return *begin;
        }
        let begin = self.end;
        self.places.push((function, begin));
        self.end += function.bytes / INSTRUCTION;
        begin
    }

    /// Appends a function's instructions and records.
    fn append(&mut self, place: Place, begin: u64) -> Result<(), String> {
        let object = self.object;
        let mut code = object.code(place).ok_or("a function")?;
        for Reference { at, kind, to } in references(&object.file, place.section) {
            if let Some(at) = place.within(at) {
                let here = (at / INSTRUCTION) as usize;
                let target = object.target(kind, to).ok_or("a reference")?;
                self.refer(&mut code[here..], target, begin + here as u64)?;
            }
        }
        self.program.code.append(&mut code);
        if let Some(id) = object.functions.get(&(place.section, place.at)) {
            self.program.functions.push([num::low_u32(begin), *id]);
        }
        for (section, [at, id, path, kind]) in &object.accesses {
            if *section == place.section
                && let Some(at) = place.within(u64::from(*at))
            {
                let at = num::low_u32(begin * INSTRUCTION + at);
                self.program.accesses.push([at, *id, *path, *kind]);
            }
        }
        Ok(())
    }

    /// Makes the first of these instructions, which becomes the program's instruction `here`, refer
    /// to its target.
    fn refer(&mut self, code: &mut [u64], target: Target<'_>, here: u64) -> Result<(), String> {
        let number = |name: &str| self.outside.get(name).copied().ok_or(name.to_owned());
        match target {
            Target::Map(name) => patch(&mut code[0], MAP, number(name)?),
            Target::Kernel(name) => patch(&mut code[0], KERNEL_CALL, number(name)?),
            Target::Constants(name, from) => {
                let offset = from + (code[0] >> 32) as u32;
                patch(&mut code[0], MAP_VALUE, number(name)?);
                patch(&mut code[1], 0, offset);
            }
            Target::Function(called) => {
                // Relative to the next instruction.
                let distance = self.place(called).cast_signed() - here.cast_signed() - 1;
                patch(&mut code[0], CALL, num::low_u32(distance.cast_unsigned()));
            }
        }
        Ok(())
    }
}

/// Target of a reference.
enum Target<'a> {
    Map(&'a str),
    /// Constants in the section of this name, from this byte on.
    Constants(&'a str, u32),
    /// A function of the kernel.
    Kernel(&'a str),
    Function(Place),
}

fn references(file: &ElfFile64<'_, LittleEndian>, section: SectionIndex) -> Vec<Reference> {
    let Ok(section) = file.section_by_index(section) else {
        return Vec::new();
    };
    let reference = |(at, found): (u64, object::Relocation)| match (found.target(), found.flags()) {
        (RelocationTarget::Symbol(to), RelocationFlags::Elf { r_type: kind }) => {
            Some(Reference { at, kind, to })
        }
        _ => None,
    };
    section.relocations().filter_map(reference).collect()
}

/// Reads a part of .BTF.ext: the size of a record, then for each section its name, the number of
/// records, and the records.
fn records<const N: usize>(
    part: &[u8],
    mut take: impl FnMut(u32, [u32; N]) -> Option<()>,
) -> Option<()> {
    let each = word(part, 0)? as usize;
    let mut at = 4;
    while at < part.len() {
        let (name, count) = (word(part, at)?, word(part, at + 4)?);
        at += 8;
        for _ in 0..count {
            let mut record = [0; N];
            for (i, value) in record.iter_mut().enumerate() {
                *value = word(part, at + 4 * i)?;
            }
            take(name, record)?;
            at += each;
        }
    }
    Some(())
}

/// Sets an instruction's number, and the register that gives its meaning.
fn patch(instruction: &mut u64, register: u8, number: u32) {
    let mut bytes = instruction.to_ne_bytes();
    bytes[1] = bytes[1] & 0x0f | register << 4;
    bytes[4..].copy_from_slice(&number.to_ne_bytes());
    *instruction = u64::from_ne_bytes(bytes);
}

#[cfg(test)]
mod tests {
    use super::super::btf::{FUNC, SECTION};
    use super::*;
    use crate::bpf::disciplines::DISCIPLINES;

    const PROGRAMS: [&str; 6] = [
        "quell_enqueue",
        "quell_dequeue",
        "quell_init",
        "quell_reset",
        "quell_destroy",
        "mark",
    ];
    /// A call of any kind.
    const CALLS: u8 = 0x85;

    /// All external symbols have the number 7.
    fn numbers(object: &Object<'_>) -> HashMap<String, u32> {
        let maps = ["page", "queues", "slots", "buffers"].map(str::to_owned);
        let functions = object.undefined().map(str::to_owned);
        let all = functions.chain(maps).chain(object.constants());
        all.map(|name| (name, 7)).collect()
    }

    fn number(instruction: u64) -> i32 {
        (instruction >> 32) as i32
    }

    #[test]
    fn programs_are_linked_with_all_that_they_call() {
        for discipline in DISCIPLINES {
            let object = Object::new(discipline.object).expect("an object");
            for name in PROGRAMS {
                let program = object.program(name, &numbers(&object)).expect("a program");
                let begins: Vec<_> = program.functions.iter().map(|found| found[0]).collect();
                assert_eq!(begins[0], 0);
                assert!(begins.is_sorted_by(|a, b| a < b));
                let mut called = vec![0];
                for (i, instruction) in program.code.iter().enumerate() {
                    let [code, registers, ..] = instruction.to_ne_bytes();
                    match (code, registers >> 4) {
                        (CALLS, CALL) => called.push((i as i32 + 1 + number(*instruction)) as u32),
                        (CALLS, KERNEL_CALL) => assert_eq!(number(*instruction), 7),
                        _ => {}
                    }
                }
                called.sort_unstable();
                called.dedup();
                assert_eq!(called, begins, "{name} of {}", discipline.name);
                for [at, id, ..] in program.accesses {
                    assert!(at % 8 == 0 && (at as usize) < 8 * program.code.len());
                    assert!(object.types.get(id).is_some());
                }
            }
            let error = object
                .program("none", &HashMap::new())
                .expect_err("no program");
            assert_eq!(error, "none");
            let error = object
                .program(PROGRAMS[0], &HashMap::new())
                .expect_err("no maps");
            assert!(error.ends_with(" in quell_enqueue()"), "{error}");
        }
    }

    #[test]
    fn constants_are_reached_where_they_are() {
        let object = Object::new(DISCIPLINES[4].object).expect("an object");
        let constants = object.constants();
        assert!(constants.len() > 1, "{constants:?}");
        let mut numbers = numbers(&object);
        for (i, name) in constants.iter().enumerate() {
            numbers.insert(name.clone(), i as u32);
        }
        let code = object
            .program("quell_enqueue", &numbers)
            .expect("a program")
            .code;
        let mut found = 0;
        for pair in code.windows(2) {
            let [code, registers, ..] = pair[0].to_ne_bytes();
            if (code, registers >> 4) == (0x18, MAP_VALUE) {
                let section = object.section(&constants[number(pair[0]) as usize]);
                assert!((number(pair[1]) as usize) < section.expect("a section").len());
                found += 1;
            }
        }
        assert!(found > 2, "{found}");
    }

    #[test]
    fn types_are_as_the_kernel_takes_them() {
        for discipline in DISCIPLINES {
            let object = Object::new(discipline.object).expect("an object");
            let types = &object.types;
            let maps = types.find(SECTION, MAPS).and_then(|id| types.get(id));
            let maps = maps.expect("maps");
            assert_eq!(
                Some(maps.size as usize),
                object.section(MAPS).map(<[u8]>::len)
            );
            let names: Vec<_> = types
                .members(maps)
                .iter()
                .map(|map| {
                    let variable = types.get(map.id).expect("a variable");
                    types.name(variable).expect("a name")
                })
                .collect();
            assert_eq!(names, ["page", "queues", "slots", "buffers"]);
            // Declarations were replaced, definitions stay.
            assert_eq!(types.find(SECTION, ".ksyms"), None);
            assert_eq!(types.find(FUNC, "bpf_kfree_skb"), None);
            assert!(types.find(FUNC, "quell_enqueue").is_some());
        }
    }

    #[test]
    fn other_object_files_are_refused() {
        assert!(Object::new(b"no object").is_none());
        let whole = DISCIPLINES[0].object;
        for length in (0..whole.len()).step_by(997) {
            // A truncated object may merely lack sections; nothing panics.
            let _ = Object::new(&whole[..length]);
        }
    }
}
