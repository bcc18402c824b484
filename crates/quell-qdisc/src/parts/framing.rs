//! Bytes that an IP packet takes on a link: overhead, minimum packet size, and cells.
//!
//! Sources: `tc-cake(8)`, whose keywords these are; ITU-T I.363.5 (ATM's AAL5), IEEE 802.3 clause
//! 61.3 (PTM's 64b/65b).

/// Cells of the link layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cells {
    /// No cells.
    #[default]
    None,
    /// ATM: 53 bytes for each 48 bytes or part of them.
    Atm,
    /// PTM: one more byte for each 64 bytes or part of them.
    Ptm,
}

/// A link's framing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Framing {
    /// Bytes that the link adds to a packet; negative if a packet's length includes a header that
    /// the link does not carry.
    pub overhead: i32,
    /// Minimum size of a packet on the link, bytes.
    pub mpu: u32,
    /// Cells that carry the packet.
    pub cells: Cells,
}

/// A keyword, the overhead that it adds, and the `mpu` and the cells that it sets, if any.
type Keyword = (&'static str, i32, Option<u32>, Option<Cells>);

/// Keywords that add to the overhead of earlier keywords.
const KEYWORDS: [Keyword; 13] = [
    ("ipoa-vcmux", 8, None, Some(Cells::Atm)),
    ("ipoa-llcsnap", 16, None, Some(Cells::Atm)),
    ("bridged-vcmux", 24, None, Some(Cells::Atm)),
    ("bridged-llcsnap", 32, None, Some(Cells::Atm)),
    ("pppoa-vcmux", 10, None, Some(Cells::Atm)),
    ("pppoa-llc", 14, None, Some(Cells::Atm)),
    ("pppoe-vcmux", 32, None, Some(Cells::Atm)),
    ("pppoe-llcsnap", 40, None, Some(Cells::Atm)),
    ("pppoe-ptm", 30, None, Some(Cells::Ptm)),
    ("bridged-ptm", 22, None, Some(Cells::Ptm)),
    ("ethernet", 38, Some(84), None),
    ("ether-vlan", 4, None, None),
    ("docsis", 18, Some(64), Some(Cells::None)),
];

impl Framing {
    /// Every keyword of [`Framing::add`], joined by `|`.
    pub const WORDS: &'static str = "docsis|ethernet|ether-vlan|pppoe-ptm|bridged-ptm|pppoa-vcmux|pppoa-llc|pppoe-vcmux|\
                                     pppoe-llcsnap|bridged-vcmux|bridged-llcsnap|ipoa-vcmux|ipoa-llcsnap|conservative";

    /// Applies a keyword of `tc-cake(8)`; false if it is unknown. Overheads add up, except that
    /// `conservative` sets its own.
    pub fn add(&mut self, word: &str) -> bool {
        if word == "conservative" {
            (self.overhead, self.cells) = (48, Cells::Atm);
            return true;
        }
        let Some((_, overhead, mpu, cells)) = KEYWORDS.iter().find(|k| k.0 == word) else {
            return false;
        };
        self.overhead += overhead;
        self.mpu = mpu.unwrap_or(self.mpu);
        self.cells = cells.unwrap_or(self.cells);
        true
    }

    /// Bytes on the link for a packet of `len` bytes.
    #[inline]
    pub fn bytes(&self, len: u32) -> u32 {
        let len = len.saturating_add_signed(self.overhead).max(self.mpu);
        match self.cells {
            Cells::None => len,
            Cells::Atm => len.div_ceil(48) * 53,
            Cells::Ptm => len + len.div_ceil(64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framing(words: &str) -> Framing {
        let mut framing = Framing::default();
        for word in words.split_whitespace() {
            assert!(framing.add(word), "{word}");
        }
        framing
    }

    #[test]
    fn every_keyword_is_known_and_no_other() {
        for word in Framing::WORDS.split('|') {
            framing(word);
        }
        let listed = Framing::WORDS.split('|').count();
        assert_eq!(listed, KEYWORDS.len() + 1);
        assert!(!Framing::default().add("adsl"));
    }

    #[test]
    fn keywords_mean_what_the_manual_says() {
        // tc-cake(8): "Equivalent to overhead 18 mpu 64 noatm", "overhead 30 ptm", "overhead 40
        // atm".
        let of = |overhead, mpu, cells| Framing {
            overhead,
            mpu,
            cells,
        };
        assert_eq!(framing("docsis"), of(18, 64, Cells::None));
        assert_eq!(framing("ethernet ether-vlan"), of(42, 84, Cells::None));
        assert_eq!(framing("pppoe-ptm"), of(30, 0, Cells::Ptm));
        assert_eq!(framing("pppoe-llcsnap"), of(40, 0, Cells::Atm));
        assert_eq!(framing("docsis conservative"), of(48, 64, Cells::Atm));
    }

    #[test]
    fn atm_sends_whole_cells_and_ptm_a_byte_for_every_64_begun() {
        // 1500 + 40 bytes are 33 cells of 48; 52 + 40 bytes two.
        let atm = framing("pppoe-llcsnap");
        assert_eq!((atm.bytes(1500), atm.bytes(52)), (33 * 53, 106));
        assert_eq!(atm.bytes(56), 2 * 53);
        assert_eq!(atm.bytes(57), 3 * 53);
        // 1500 + 30 bytes begin 24 blocks of 64.
        assert_eq!(framing("pppoe-ptm").bytes(1500), 1530 + 24);
    }

    #[test]
    fn no_packet_is_shorter_than_the_mpu() {
        assert_eq!(framing("docsis").bytes(40), 64);
        assert_eq!(framing("ethernet").bytes(52), 90);
        let raw = Framing {
            overhead: -64,
            mpu: 0,
            cells: Cells::None,
        };
        assert_eq!(raw.bytes(40), 0);
    }
}
