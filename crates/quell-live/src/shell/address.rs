//! Addresses of a shell: a block within 100.64.0.0/10 (RFC 6598) or, if a route leads there, within
//! 198.18.0.0/15 (RFC 2544); in IPv6 the same block below fd71:7565:6c6c::/96. The far side is .1
//! of the block, the command's side .2. A nested shell takes its block out of the outer shell's, so
//! that plain routes lead through all links.

use std::ffi::CString;
use std::net::{Ipv4Addr, Ipv6Addr};

use quell_qdisc::num;

/// 100.64.0.0/10 and 198.18.0.0/15: network and prefix length.
const POOLS: [(u32, u8); 2] = [(100 << 24 | 64 << 16, 10), (198 << 24 | 18 << 16, 15)];
/// Prefix length of an outermost shell's block: the pools have 256 and 8 of them.
const FIRST_PREFIX: u8 = 18;
/// Bits by which a nested shell's prefix is longer. Of the 8 parts of a block, 1 to 7 are for
/// nested shells; part 0 has the block's own two addresses.
const STEP: u8 = 3;
/// fd71:7565:6c6c::, the letters of "quell" in a unique local prefix (RFC 4193).
const SIX: [u16; 6] = [0xfd71, 0x7565, 0x6c6c, 0, 0, 0];

/// An IPv4 route of this namespace; gateway 0: none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    to: u32,
    mask: u32,
    gateway: u32,
}

// linux/rtnetlink.h: type of a message, type of a route, attributes.
const NEW_ROUTE: u16 = 24;
const BROADCAST: u8 = 3;
const DESTINATION: u16 = 1;
const GATEWAY: u16 = 5;
const MULTIPATH: u16 = 9;
/// Bytes of a message's headers (struct nlmsghdr, struct rtmsg) and of a next hop's header (struct
/// rtnexthop).
const HEADERS: usize = 28;
const HOP: usize = 8;

impl Route {
    /// Parses a message of the kernel's list of routes (RTM_NEWROUTE): one route for each gateway,
    /// or one without. Broadcast routes are left out: their network has its own route.
    pub fn parse(message: &[u8]) -> Vec<Route> {
        let Some([family, length, _, _, _, _, _, kind]) = message.get(16..24) else {
            return Vec::new();
        };
        let ours = message[4..6] == NEW_ROUTE.to_ne_bytes();
        if !ours || i32::from(*family) != libc::AF_INET || *kind == BROADCAST || *length > 32 {
            return Vec::new();
        }
        let mask = u32::MAX.checked_shl(32 - u32::from(*length)).unwrap_or(0);
        let (mut to, mut gateways) = (0, Vec::new());
        for (kind, value) in attributes(message.get(HEADERS..).unwrap_or_default()) {
            match kind {
                DESTINATION => to = address(value).unwrap_or(0),
                GATEWAY => gateways.extend(address(value)),
                MULTIPATH => gateways.extend(hops(value)),
                _ => {}
            }
        }
        if gateways.is_empty() {
            gateways.push(0);
        }
        let route = |gateway| Route { to, mask, gateway };
        gateways.into_iter().map(route).collect()
    }

    /// Whether the route could make a block unavailable.
    pub fn concerns_pool(&self) -> bool {
        let covers = |(pool, _): &(u32, u8)| self.mask != 0 && pool & self.mask == self.to;
        in_pool(self.to) || in_pool(self.gateway) || POOLS.iter().any(covers)
    }

    /// Whether the route leads to a network that contains the block; a default route does not
    /// count.
    fn covers(&self, block: &Block) -> bool {
        self.mask != 0 && block.base & self.mask == self.to
    }
}

fn in_pool(address: u32) -> bool {
    let is_in = |(pool, prefix): &(u32, u8)| address & (u32::MAX << (32 - prefix)) == *pool;
    POOLS.iter().any(is_in)
}

fn address(value: &[u8]) -> Option<u32> {
    value.try_into().ok().map(u32::from_be_bytes)
}

/// Kinds and values of attributes (struct rtattr), up to the first truncated one.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let [a, b, c, d] = *bytes.first_chunk()?;
        let length = usize::from(u16::from_ne_bytes([a, b]));
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((u16::from_ne_bytes([c, d]), value))
    })
}

/// The gateways of several next hops.
fn hops(mut bytes: &[u8]) -> Vec<u32> {
    let mut found = Vec::new();
    while let Some([a, b]) = bytes.first_chunk() {
        let length = usize::from(u16::from_ne_bytes([*a, *b]));
        let Some(hop) = bytes.get(HOP..length) else {
            break;
        };
        let gateways = attributes(hop).filter(|(kind, _)| *kind == GATEWAY);
        found.extend(gateways.filter_map(|(_, value)| address(value)));
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    found
}

/// The addresses of one shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    base: u32,
    prefix: u8,
    /// Name of the device at both ends.
    pub device: CString,
}

impl Block {
    /// The blocks that a new shell may take, given this namespace's interfaces (name, address,
    /// mask) and routes. Blocks that another network uses are left out (carriers and VPNs use these
    /// pools, too); those to which no route leads come first. Empty if shells are nested too
    /// deeply.
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
        blocks.sort_by_key(|block| routes.iter().any(|route| route.covers(block)));
        blocks
    }

    fn all(interfaces: &[(String, u32, u32)]) -> Vec<Block> {
        // If this namespace is a shell's, that shell's device has address .2 of its block.
        let inside = interfaces.iter().find(|(name, address, mask)| {
            name.starts_with("quell") && address & !mask == 2 && in_pool(*address)
        });
        match inside {
            None => POOLS
                .iter()
                .flat_map(|(pool, prefix)| {
                    (0..1u32 << (FIRST_PREFIX - prefix))
                        .map(move |k| pool + (k << (32 - FIRST_PREFIX)))
                })
                .enumerate()
                .map(|(k, base)| Block::new(base, FIRST_PREFIX, format!("quell{k}")))
                .collect(),
            Some((name, address, mask)) => {
                let prefix = num::low_u8(mask.leading_ones().into()) + STEP;
                if prefix > 30 {
                    return Vec::new();
                }
                (1..1u32 << STEP)
                    .map(|k| {
                        let letter = char::from(b'a' + num::low_u8(k.into()) - 1);
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

    /// IPv4 address of the far side (`end` 1) or of the command (2).
    pub fn address(&self, end: u32) -> Ipv4Addr {
        Ipv4Addr::from(self.base + end)
    }

    /// The corresponding IPv6 address.
    pub fn address6(&self, end: u32) -> Ipv6Addr {
        let [a, b, c, d, e, f] = SIX;
        let low = self.base + end;
        Ipv6Addr::new(
            a,
            b,
            c,
            d,
            e,
            f,
            (low >> 16) as u16,
            num::low_u16(low.into()),
        )
    }

    fn mask(&self) -> u32 {
        u32::MAX << (32 - self.prefix)
    }

    /// The whole block, with the addresses of nested shells, as in `100.64.0.0/18`.
    pub fn network(&self) -> String {
        format!("{}/{}", self.address(0), self.prefix)
    }

    /// Prefix length in IPv4; in IPv6 it is 96 more.
    pub fn prefix(&self) -> u8 {
        self.prefix
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOL: u32 = POOLS[0].0;

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
        assert_eq!(free.len(), 255 + 8);
        assert_eq!(free[0].network(), "100.64.64.0/18");
    }

    #[test]
    fn a_block_that_another_network_uses_is_not_taken() {
        // A carrier's address in a large network, and a VPN's own address.
        let interfaces = [
            ("wan0".into(), POOL + 5, u32::MAX << 22),
            ("vpn0".into(), POOL + (1 << 14) + 7, u32::MAX),
        ];
        let routes: Vec<_> = [
            // The default route's gateway, and Tailscale's routes to a peer and to a peer's
            // network.
            route(0, 0, Some(POOL + (2 << 14) + 1), &[]),
            route(POOL + (3 << 14) + 9, 32, None, &[]),
            route(POOL + (5 << 14), 18, None, &[]),
            // The carrier's network is larger than a block; that does not exclude all blocks in it.
            route(POOL, 10, None, &[]),
            route(0, 0, None, &[POOL + (6 << 14) + 1, POOL + (7 << 14) + 1]),
        ]
        .iter()
        .flat_map(|message| Route::parse(message))
        .collect();
        assert_eq!(routes[0].gateway, POOL + (2 << 14) + 1);
        let free = Block::candidates(&interfaces, &routes);
        // Blocks in the carrier's network come after the others.
        assert_eq!(free.len(), 8 + 249);
        assert_eq!(free[0].network(), "198.18.0.0/18");
        assert_eq!(free[0].device.to_str(), Ok("quell256"));
        assert_eq!(free[7].network(), "198.19.192.0/18");
        assert_eq!(free[8].network(), "100.65.0.0/18");
        assert_eq!(free[9].network(), "100.66.0.0/18");
        // A VPN's two routes to all addresses do not exclude a block.
        let halves = [route(0, 1, None, &[]), route(1 << 31, 1, None, &[])];
        let halves: Vec<_> = halves.iter().flat_map(|it| Route::parse(it)).collect();
        assert!(halves.iter().all(Route::concerns_pool));
        let free = Block::candidates(&[], &halves);
        assert_eq!(free[0].network(), "100.64.0.0/18");
    }

    fn attribute(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
        out.extend(((4 + value.len()) as u16).to_ne_bytes());
        out.extend(kind.to_ne_bytes());
        out.extend(value);
    }

    /// A kernel message about a route to this network.
    fn route(to: u32, prefix: u8, gateway: Option<u32>, hops: &[u32]) -> Vec<u8> {
        let mut out = vec![0; 4];
        out.extend(NEW_ROUTE.to_ne_bytes());
        out.extend([0; 10]);
        out.extend([libc::AF_INET as u8, prefix, 0, 0, 52, 0, 0, 1, 0, 0, 0, 0]);
        if prefix > 0 {
            attribute(&mut out, DESTINATION, &to.to_be_bytes());
        }
        if let Some(gateway) = gateway {
            attribute(&mut out, GATEWAY, &gateway.to_be_bytes());
        }
        let mut several = Vec::new();
        for hop in hops {
            several.extend(16u16.to_ne_bytes());
            several.extend([0; 6]);
            attribute(&mut several, GATEWAY, &hop.to_be_bytes());
        }
        if !hops.is_empty() {
            attribute(&mut out, MULTIPATH, &several);
        }
        out
    }

    #[test]
    fn a_message_about_a_route_may_be_cut_anywhere() {
        let whole = route(POOL, 18, Some(POOL + 1), &[POOL + 2, POOL + 3]);
        assert_eq!(Route::parse(&whole).len(), 3);
        for length in 0..whole.len() {
            assert!(Route::parse(&whole[..length]).len() <= 3);
        }
        let mut broadcast = route(POOL, 32, None, &[]);
        broadcast[23] = BROADCAST;
        assert!(Route::parse(&broadcast).is_empty());
    }
}
