//! Types in BTF, by which the kernel and BPF objects describe themselves (the kernel's Documentation/bpf/btf.rst).

/// Kinds of types.
use quell_qdisc::num;
pub const PTR: u32 = 2;
pub const ARRAY: u32 = 3;
pub const STRUCT: u32 = 4;
pub const FUNC: u32 = 12;
pub const VAR: u32 = 14;
pub const SECTION: u32 = 15;

const MAGIC: u32 = 0xeb9f;
/// Bytes of a type without what follows it.
const HEAD: usize = 12;
/// BTF_FUNC_EXTERN.
const EXTERN: u32 = 2;

/// A type.
#[derive(Clone, Copy, Debug)]
pub struct Type {
    at: usize,
    /// Its kind.
    pub kind: u32,
    /// How many members, variables or parameters it has; of a function its linkage.
    count: u32,
    /// Its size in bytes, or the type that it refers to.
    pub size: u32,
}

/// A member of a struct, or a variable of a section.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// Of a struct: its name.
    pub name: &'a str,
    /// Its type.
    pub id: u32,
    /// Of a struct: where it is, in bytes.
    pub at: usize,
}

/// Types, numbered from 1.
pub struct Btf {
    /// As the kernel takes them.
    pub bytes: Vec<u8>,
    types: Vec<Type>,
    strings: usize,
}

impl Btf {
    /// Reads them; none: they are damaged, or have a kind that came later.
    pub fn new(bytes: Vec<u8>) -> Option<Self> {
        let word = |at| word(&bytes, at);
        if word(0)? & 0xffff != MAGIC {
            return None;
        }
        let header = word(4)? as usize;
        let begin = header + word(8)? as usize;
        let end = begin + word(12)? as usize;
        let strings = header + word(16)? as usize;
        let mut types = Vec::new();
        let mut at = begin;
        while at < end {
            let info = word(at + 4)?;
            let (kind, count) = (info >> 24 & 31, info & 0xffff);
            let each = match kind {
                // INT, VAR and DECL_TAG have a word more, ARRAY three; TYPEDEF, FUNC and others none.
                1 | VAR | 17 => 4,
                ARRAY => 12,
                STRUCT | 5 | SECTION | 19 => 12 * count as usize,
                // ENUM, FUNC_PROTO
                6 | 13 => 8 * count as usize,
                PTR | 7..=FUNC | 16 | 18 => 0,
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

    /// The type of a number.
    pub fn get(&self, id: u32) -> Option<Type> {
        self.types.get((id as usize).checked_sub(1)?).copied()
    }

    /// The text at an offset.
    pub fn text(&self, offset: u32) -> Option<&str> {
        let text = self.bytes.get(self.strings + offset as usize..)?;
        let end = text.iter().position(|byte| *byte == 0)?;
        std::str::from_utf8(&text[..end]).ok()
    }

    /// A type's name.
    pub fn name(&self, of: Type) -> Option<&str> {
        self.text(word(&self.bytes, of.at)?)
    }

    /// The number of a type of this kind and name.
    pub fn find(&self, kind: u32, name: &str) -> Option<u32> {
        let is = |of: &Type| {
            let named = || {
                let at = self.strings + word(&self.bytes, of.at)? as usize;
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
                // Above 24 bits is the width of a bit field.
                _ => Some(Member {
                    name: self.text(first?)?,
                    id: second?,
                    at: (third? & 0xff_ffff) as usize / 8,
                }),
            }
        };
        (0..of.count).map_while(member).collect()
    }

    /// How many entries the array has that a pointer leads to: how an object says a number of a map.
    pub fn number(&self, pointer: u32) -> Option<u32> {
        let array = self.get(self.get(pointer)?.size)?;
        let at = array.at + HEAD + 8;
        word(&self.bytes, at).filter(|_| array.kind == ARRAY)
    }

    /// Makes an object's types ready for the kernel, which a linker would have done: sections get their size, and functions of the kernel,
    /// which it does not take as declarations, become pointers to such functions, their section a struct of them.
    pub fn finish(mut self, size: impl Fn(&str) -> Option<usize>) -> Option<Self> {
        let declared = |of: &Type| of.kind == FUNC && of.count == EXTERN;
        let is_declared: Vec<_> = self.types.iter().map(declared).collect();
        for (i, of) in self.types.clone().into_iter().enumerate() {
            if is_declared[i] {
                self.set(of.at, 0)?;
                self.set(of.at + 4, PTR << 24)?;
            } else if of.kind == SECTION {
                let ids: Vec<_> = self.members(of).iter().map(|member| member.id).collect();
                let mut declares = ids.iter().map(|id| is_declared.get(*id as usize - 1));
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

/// 32 bits in this machine's order.
pub fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let found = bytes.get(at..at.checked_add(4)?)?;
    found.try_into().ok().map(u32::from_ne_bytes)
}
