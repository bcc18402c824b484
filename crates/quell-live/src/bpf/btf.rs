//! BTF, the format in which the kernel and BPF objects describe their types (the kernel's
//! Documentation/bpf/btf.rst).

use quell_qdisc::num;

// Kinds of types (linux/btf.h).
const INT: u32 = 1;
pub const PTR: u32 = 2;
pub const ARRAY: u32 = 3;
pub const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const FWD: u32 = 7;
const TYPEDEF: u32 = 8;
const VOLATILE: u32 = 9;
const CONST: u32 = 10;
const RESTRICT: u32 = 11;
pub const FUNC: u32 = 12;
const FUNC_PROTO: u32 = 13;
pub const VAR: u32 = 14;
/// `BTF_KIND_DATASEC`.
pub const SECTION: u32 = 15;
const FLOAT: u32 = 16;
const DECL_TAG: u32 = 17;
const TYPE_TAG: u32 = 18;
const ENUM64: u32 = 19;

const MAGIC: u32 = 0xeb9f;
/// Size of `struct btf_type`, which the kind's own data follow, bytes.
const HEAD: usize = 12;
/// `BTF_FUNC_EXTERN`: the function is declared, not defined.
const EXTERN: u32 = 2;

/// A type, with what all kinds have.
#[derive(Clone, Copy, Debug)]
pub struct Type {
    at: usize,
    /// Kind of the type (linux/btf.h).
    pub kind: u32,
    /// Number of members, variables or parameters; for a function its linkage.
    count: u32,
    /// Size in bytes, or ID of the type to which it refers.
    pub size: u32,
}

/// A member of a struct, or a variable of a section.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// Name of a struct's member; empty for a variable.
    pub name: &'a str,
    /// ID of its type.
    pub id: u32,
    /// Offset of a struct's member, bytes; 0 for a variable.
    pub at: usize,
}

/// Types, with IDs from 1.
pub struct Btf {
    /// The encoded types, in the kernel's format.
    pub bytes: Vec<u8>,
    types: Vec<Type>,
    strings: usize,
}

impl Btf {
    /// Parses types. `None`: they are damaged, or contain a kind of a later kernel that is unknown
    /// here.
    pub fn new(bytes: Vec<u8>) -> Option<Self> {
        let word = |at| word(&bytes, at);
        if word(0)? & 0xffff != MAGIC {
            return None;
        }
        let header = word(4)? as usize;
        let begin = header.checked_add(word(8)? as usize)?;
        let end = begin.checked_add(word(12)? as usize)?;
        let strings = header.checked_add(word(16)? as usize)?;
        let mut types = Vec::new();
        let mut at = begin;
        while at < end {
            let info = word(at + 4)?;
            let (kind, count) = (info >> 24 & 31, info & 0xffff);
            let each = match kind {
                INT | VAR | DECL_TAG => 4,
                ARRAY => 12,
                STRUCT | UNION | SECTION | ENUM64 => 12 * count as usize,
                ENUM | FUNC_PROTO => 8 * count as usize,
                PTR | FWD | TYPEDEF | VOLATILE | CONST | RESTRICT | FUNC | FLOAT | TYPE_TAG => 0,
                _ => return None,
            };
            let size = word(at + 8)?;
            types.push(Type {
                at,
                kind,
                count,
                size,
            });
            at += HEAD + each;
        }
        Some(Self {
            bytes,
            types,
            strings,
        })
    }

    /// The type with this ID.
    pub fn get(&self, id: u32) -> Option<Type> {
        self.types.get((id as usize).checked_sub(1)?).copied()
    }

    /// The string at this offset of the string section.
    pub fn text(&self, offset: u32) -> Option<&str> {
        let at = self.strings.checked_add(offset as usize)?;
        let text = self.bytes.get(at..)?;
        let end = text.iter().position(|byte| *byte == 0)?;
        std::str::from_utf8(&text[..end]).ok()
    }

    /// A type's name.
    pub fn name(&self, of: Type) -> Option<&str> {
        self.text(word(&self.bytes, of.at)?)
    }

    /// ID of the first type of this kind and name.
    pub fn find(&self, kind: u32, name: &str) -> Option<u32> {
        let is = |of: &Type| {
            let named = || {
                let offset = word(&self.bytes, of.at)? as usize;
                let at = self.strings.checked_add(offset)?;
                let text = self.bytes.get(at..)?.strip_prefix(name.as_bytes())?;
                Some(text.first() == Some(&0))
            };
            of.kind == kind && named() == Some(true)
        };
        Some(num::count(self.types.iter().position(is)?) + 1)
    }

    /// The members of a struct, or the variables of a section.
    pub fn members(&self, of: Type) -> Vec<Member<'_>> {
        let member = |i| {
            let at = of.at + HEAD + 12 * i as usize;
            let [first, second, third] = [0, 4, 8].map(|more| word(&self.bytes, at + more));
            match of.kind {
                SECTION => Some(Member {
                    name: "",
                    id: first?,
                    at: 0,
                }),
                // The upper 8 bits are the width of a bit field.
                _ => Some(Member {
                    name: self.text(first?)?,
                    id: second?,
                    at: (third? & 0xff_ffff) as usize / 8,
                }),
            }
        };
        (0..of.count).map_while(member).collect()
    }

    /// Length of the array that pointer type `pointer` points to. This is how objects encode the
    /// numbers of a map (libbpf's `__uint`).
    pub fn number(&self, pointer: u32) -> Option<u32> {
        let array = self.get(self.get(pointer)?.size)?;
        let at = array.at + HEAD + 8;
        word(&self.bytes, at).filter(|_| array.kind == ARRAY)
    }

    /// Completes an object's types for the kernel, as libbpf does: sections get their size (`size`
    /// by name). The kernel rejects declarations of functions, so these become pointers to their
    /// prototypes, and their section becomes a struct of pointers. `None`: a size is unknown,
    /// or types are damaged.
    pub fn finish(mut self, size: impl Fn(&str) -> Option<usize>) -> Option<Self> {
        let declared = |of: &Type| of.kind == FUNC && of.count == EXTERN;
        let is_declared: Vec<_> = self.types.iter().map(declared).collect();
        for (i, of) in self.types.clone().into_iter().enumerate() {
            if is_declared[i] {
                self.set(of.at, 0)?;
                self.set(of.at + 4, PTR << 24)?;
            } else if of.kind == SECTION {
                let ids: Vec<_> = self.members(of).iter().map(|member| member.id).collect();
                // ID 0 is `void`.
                let mut declares = ids
                    .iter()
                    .map(|id| is_declared.get((*id as usize).checked_sub(1)?));
                if declares.any(|is| is == Some(&true)) {
                    self.set(of.at, 0)?;
                    self.set(of.at + 4, STRUCT << 24 | of.count)?;
                    self.set(of.at + 8, 8 * of.count)?;
                    for (i, id) in ids.into_iter().enumerate() {
                        let at = of.at + HEAD + 12 * i;
                        self.set(at, 0)?;
                        self.set(at + 4, id)?;
                        self.set(at + 8, 64 * num::count(i))?;
                    }
                } else {
                    let bytes = size(self.name(of)?)?;
                    self.set(of.at + 8, num::count(bytes))?;
                }
            }
        }
        Self::new(self.bytes)
    }

    fn set(&mut self, at: usize, value: u32) -> Option<()> {
        let place = self.bytes.get_mut(at..at + 4)?;
        place.copy_from_slice(&value.to_ne_bytes());
        Some(())
    }
}

/// The 32 bits at this offset, in this machine's byte order.
pub fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let found = bytes.get(at..at.checked_add(4)?)?;
    found.try_into().ok().map(u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// BTF with these words in the type section; the string section has one empty string.
    fn btf(types: &[u32]) -> Vec<u8> {
        let length = 4 * num::count(types.len());
        let header = [MAGIC | 1 << 16, 24, 0, length, length, 1];
        let words = header.iter().chain(types);
        let mut bytes: Vec<u8> = words.flat_map(|word| word.to_ne_bytes()).collect();
        bytes.push(0);
        bytes
    }

    #[test]
    fn a_section_with_a_variable_of_type_0_gets_its_size() {
        let types = Btf::new(btf(&[0, SECTION << 24 | 1, 0, 0, 0, 0])).unwrap();
        let types = types.finish(|_| Some(8)).unwrap();
        assert_eq!(types.get(1).unwrap().size, 8);
    }

    #[test]
    fn damaged_offsets_are_not_types() {
        for field in [4, 8, 12] {
            let mut bytes = btf(&[0, PTR << 24, 0]);
            bytes[field..field + 4].fill(0xff);
            assert!(Btf::new(bytes).is_none(), "{field}");
        }
        let mut bytes = btf(&[0, PTR << 24, 0]);
        bytes[16..20].fill(0xff);
        let types = Btf::new(bytes).unwrap();
        assert_eq!(types.text(u32::MAX), None);
        assert_eq!(types.find(PTR, ""), None);
    }
}
