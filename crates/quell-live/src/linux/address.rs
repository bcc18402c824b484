//! Who has which address. Every shell gets a block of its own within 100.64.0.0/10 (RFC 6598) and in IPv6 the like below
//! fd71:7565:6c6c::/96: the side outside of the link is .1 of the block, the command's side .2. A shell within a shell takes its
//! block out of the outer one's, so that plain routes lead through all links.

use std::ffi::CString;
use std::net::{Ipv4Addr, Ipv6Addr};

/// 100.64.0.0/10.
const POOL: u32 = 100 << 24 | 64 << 16;
/// 256 blocks of the first level.
const FIRST_PREFIX: u8 = 18;
/// Blocks 1 to 7 of a block are for shells within; 0 has its own two addresses.
const STEP: u8 = 3;
/// fd71:7565:6c6c::, "quell" as far as it fits, in a unique local prefix (RFC 4193).
const SIX: [u16; 6] = [0xfd71, 0x7565, 0x6c6c, 0, 0, 0];

/// A route of this namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    to: u32,
    mask: u32,
    gateway: u32,
}

impl Route {
    /// Reads `/proc/net/route`: a heading, then columns, addresses as hexadecimal numbers of the machine's byte order.
    pub fn parse_all(text: &[u8]) -> Vec<Route> {
        let number = |word: &[u8]| {
            let word = std::str::from_utf8(word).ok()?;
            u32::from_str_radix(word, 16).ok().map(u32::from_be)
        };
        let line = |line: &[u8]| {
            let mut columns = line.split(|b| *b == b'\t');
            Some(Route {
                to: number(columns.nth(1)?)?,
                gateway: number(columns.next()?)?,
                mask: number(columns.nth(4)?)?,
            })
        };
        text.split(|b| *b == b'\n').filter_map(line).collect()
    }
}

/// The addresses of one shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    base: u32,
    prefix: u8,
    /// Both ends' device.
    pub device: CString,
}

impl Block {
    /// The blocks that a new shell may take, given this namespace's interfaces (name, address, mask) and routes: those in which
    /// nobody else is (carriers and VPNs use the same addresses). Empty if shells are nested too deeply.
    pub fn candidates(interfaces: &[(String, u32, u32)], routes: &[Route]) -> Vec<Block> {
        let mut blocks = Self::all(interfaces);
        blocks.retain(|block| {
            let here = |address| address & block.mask() == block.base;
            let narrower = |mask: u32| mask.leading_ones() >= u32::from(block.prefix);
            !interfaces.iter().any(|(_, address, _)| here(*address))
                && !routes
                    .iter()
                    .any(|route| (here(route.to) && narrower(route.mask)) || here(route.gateway))
        });
        blocks
    }

    fn all(interfaces: &[(String, u32, u32)]) -> Vec<Block> {
        // Our own shell's device is the one whose address is .2 of its block.
        let inside = interfaces.iter().find(|(name, address, mask)| {
            name.starts_with("quell") && address & !mask == 2 && address & POOL == POOL
        });
        match inside {
            None => (0..1 << (FIRST_PREFIX - 10))
                .map(|k| {
                    Block::new(
                        POOL + (k << (32 - FIRST_PREFIX)),
                        FIRST_PREFIX,
                        format!("quell{k}"),
                    )
                })
                .collect(),
            Some((name, address, mask)) => {
                let prefix = mask.leading_ones() as u8 + STEP;
                if prefix > 30 {
                    return Vec::new();
                }
                (1..1u32 << STEP)
                    .map(|k| {
                        let letter = char::from(b'a' + k as u8 - 1);
                        let base = (address & mask) + (k << (32 - prefix));
                        Block::new(base, prefix, format!("{name}{letter}"))
                    })
                    .collect()
            }
        }
    }

    fn new(base: u32, prefix: u8, device: String) -> Self {
        Self {
            base,
            prefix,
            device: CString::new(device).unwrap_or_default(),
        }
    }

    /// The address outside of the link (1) or of the command (2).
    pub fn address(&self, end: u32) -> Ipv4Addr {
        Ipv4Addr::from(self.base + end)
    }

    /// The same in IPv6.
    pub fn address6(&self, end: u32) -> Ipv6Addr {
        let [a, b, c, d, e, f] = SIX;
        let low = self.base + end;
        Ipv6Addr::new(a, b, c, d, e, f, (low >> 16) as u16, low as u16)
    }

    fn mask(&self) -> u32 {
        u32::MAX << (32 - self.prefix)
    }

    /// All its addresses, those of shells within included, as `100.64.0.0/18`.
    pub fn network(&self) -> String {
        format!("{}/{}", self.address(0), self.prefix)
    }

    /// Bits of the network's prefix in IPv4; in IPv6 96 more.
    pub fn prefix(&self) -> u8 {
        self.prefix
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inside(b: &Block) -> Vec<(String, u32, u32)> {
        vec![
            ("lo".into(), 0x7f00_0001, 0xff00_0000),
            (
                b.device.to_string_lossy().into_owned(),
                b.base + 2,
                b.mask(),
            ),
        ]
    }

    #[test]
    fn a_shell_within_a_shell_takes_its_addresses_from_the_outer_ones() {
        let mut block = Block::candidates(&[], &[])[3].clone();
        assert_eq!(block.device.to_str(), Ok("quell3"));
        assert_eq!(block.address(1), Ipv4Addr::new(100, 64, 192, 1));
        assert_eq!(block.address6(2).to_string(), "fd71:7565:6c6c::6440:c002");
        for depth in 2..=5 {
            let inner = Block::candidates(&inside(&block), &[]);
            assert_eq!(inner.len(), 7);
            let last = inner[6].clone();
            let mask = u32::MAX << (32 - block.prefix);
            assert_eq!(last.base & mask, block.base, "depth {depth}");
            assert!(inner.iter().all(|b| b.base != block.base));
            assert!(last.device.as_bytes().len() < 16);
            block = last;
        }
        assert!(
            Block::candidates(&inside(&block), &[]).is_empty(),
            "no room is left"
        );
    }

    #[test]
    fn the_outer_ends_of_other_shells_do_not_count_as_our_own() {
        let mask = u32::MAX << (32 - FIRST_PREFIX);
        let other = vec![("quell0".into(), POOL + 1, mask)];
        let free = Block::candidates(&other, &[]);
        assert_eq!(free.len(), 255);
        assert_eq!(free[0].network(), "100.64.64.0/18");
    }

    #[test]
    fn a_block_in_which_somebody_else_is_stays_theirs() {
        // A carrier's address of a large network, its gateway, a VPN's own address and the route to one of its peers.
        let interfaces = [
            ("wan0".into(), POOL + 5, u32::MAX << 22),
            ("vpn0".into(), POOL + (1 << 14) + 7, u32::MAX),
        ];
        let text = b"Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
            wan0\t00000000\t01804064\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
            wan0\t00004064\t00000000\t0001\t0\t0\t0\t0000C0FF\t0\t0\t0\n\
            vpn0\t09C04064\t00000000\t0001\t0\t0\t0\tFFFFFFFF\t0\t0\t0\n";
        let routes = Route::parse_all(text);
        if cfg!(target_endian = "little") {
            assert_eq!(routes[0].gateway, POOL + (2 << 14) + 1);
            let free = Block::candidates(&interfaces, &routes);
            assert_eq!(free.len(), 252);
            assert_eq!(free[0].network(), "100.65.0.0/18");
        }
        assert!(Route::parse_all(b"\xff\n\n\t\t\tg\n").is_empty());
    }
}
