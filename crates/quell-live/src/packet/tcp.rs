//! Parses a TCP header's acknowledgment, for an ACK filter, and its timestamps (RFC 9293, section
//! 3.1; RFC 7323; RFC 2018).

use quell_qdisc::packet::SACK_BLOCKS;
use quell_qdisc::{Acknowledgment, num};

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;
const ECE_CWR: u8 = 0xc0;
const END: u8 = 0;
const NOP: u8 = 1;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;
const MD5: u8 = 19;

/// The acknowledgment in a segment; `connection` is a hash of its addresses and ports. `None`
/// without the ACK flag, with SYN, or if the header is truncated.
pub(crate) fn acknowledgment(segment: &[u8], connection: u64) -> Option<Acknowledgment> {
    let header = usize::from(segment.get(12)? >> 4) * 4;
    let flags = *segment.get(13)?;
    let list = segment.get(20..header)?;
    if flags & (ACK | SYN) != ACK {
        return None;
    }
    let reserved = segment[12] & 15;
    let mut ack = Acknowledgment {
        connection,
        // A segment with data, with unknown flags or with flags beyond ACK, ECE and CWR must not be
        // filtered.
        pure: flags & !ECE_CWR == ACK && reserved == 0 && segment.len() == header,
        echo: (flags & ECE_CWR).into(),
        number: word(segment, 8)?,
        ..Acknowledgment::default()
    };
    for (kind, option) in options(list) {
        match (kind, option.len()) {
            (TIMESTAMPS, 8) => {
                (ack.tsval, ack.tsecr) = (word(option, 0)?, word(option, 4)?);
            }
            (SACK, n) if n % 8 == 0 && n / 8 <= SACK_BLOCKS => {
                for (block, bytes) in ack.sack.iter_mut().zip(option.chunks_exact(8)) {
                    *block = (word(bytes, 0)?, word(bytes, 4)?);
                }
                ack.blocks = num::low_u8((n / 8) as u64);
            }
            (MD5, _) => {}
            _ => ack.pure = false,
        }
    }
    Some(ack)
}

/// The timestamps of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamps {
    /// TSval, the sender's clock.
    pub value: u32,
    /// TSecr, the echoed clock of the receiver; 0 without ACK.
    pub echo: u32,
    /// Whether it demands an answer, since it carries data, SYN or FIN.
    pub requires_answer: bool,
    /// Whether it accepts a connection: SYN and ACK.
    pub accepts: bool,
}

/// The timestamps of a segment; `whole` is false if it is truncated. `None` without the option, or
/// with RST, whose timestamps may be anything (RFC 7323, section 5.2).
pub(crate) fn stamps(segment: &[u8], whole: bool) -> Option<Stamps> {
    let header = usize::from(segment.get(12)? >> 4) * 4;
    let flags = *segment.get(13)?;
    let (_, option) = options(segment.get(20..header)?)
        .find(|(kind, option)| *kind == TIMESTAMPS && option.len() == 8)?;
    (flags & RST == 0).then_some(Stamps {
        value: word(option, 0)?,
        echo: if flags & ACK == 0 {
            0
        } else {
            word(option, 4)?
        },
        requires_answer: flags & (SYN | FIN) != 0 || segment.len() > header || !whole,
        accepts: flags & (SYN | ACK) == SYN | ACK,
    })
}

/// The options of a header: kind and value, up to the first malformed one.
fn options(mut rest: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        while rest.first() == Some(&NOP) {
            rest = &rest[1..];
        }
        let kind = *rest.first().filter(|kind| **kind != END)?;
        let length = usize::from(*rest.get(1)?);
        let option = rest.get(2..length)?;
        rest = &rest[length..];
        Some((kind, option))
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A segment with these flags and options.
    fn segment(flags: u8, options: &[u8], data: usize) -> Vec<u8> {
        let mut s = vec![0; 20];
        s[8..12].copy_from_slice(&7u32.to_be_bytes());
        s[12] = (((20 + options.len()) / 4) << 4) as u8;
        s[13] = flags;
        s.extend_from_slice(options);
        s.resize(s.len() + data, 1);
        s
    }

    const STAMPS: [u8; 12] = [NOP, NOP, TIMESTAMPS, 10, 0, 0, 0, 3, 0, 0, 0, 4];

    #[test]
    fn an_ack_tells_number_timestamps_and_blocks() {
        let mut options = STAMPS.to_vec();
        options.extend([NOP, NOP, SACK, 10, 0, 0, 0, 9, 0, 0, 0, 12]);
        let ack = acknowledgment(&segment(ACK, &options, 0), 5).expect("an ACK");
        assert_eq!((ack.connection, ack.number, ack.pure), (5, 7, true));
        assert_eq!((ack.tsval, ack.tsecr), (3, 4));
        assert_eq!((ack.blocks, ack.sack[0]), (1, (9, 12)));
    }

    #[test]
    fn an_acknowledgement_with_other_content_is_not_pure() {
        let pure = |s: Vec<u8>| acknowledgment(&s, 0).expect("an ACK").pure;
        assert!(pure(segment(ACK, &STAMPS, 0)));
        assert!(pure(segment(ACK | 0x40, &STAMPS, 0)), "ECE");
        assert!(!pure(segment(ACK, &STAMPS, 1)), "data");
        assert!(!pure(segment(ACK | 0x08, &STAMPS, 0)), "PSH");
        assert!(!pure(segment(ACK | 0x01, &STAMPS, 0)), "FIN");
        assert!(!pure(segment(ACK, &[30, 4, 0, 0], 0)), "an option unknown");
        let mut accurate = segment(ACK, &STAMPS, 0);
        accurate[12] |= 1;
        assert!(!pure(accurate), "AE");
    }

    #[test]
    fn connection_requests_and_what_is_cut_short_acknowledge_nothing() {
        assert_eq!(acknowledgment(&segment(SYN, &[], 0), 0), None);
        assert_eq!(acknowledgment(&segment(SYN | ACK, &[], 0), 0), None);
        assert_eq!(acknowledgment(&segment(ACK, &STAMPS, 0)[..24], 0), None);
        assert_eq!(acknowledgment(&[], 0), None);
    }

    #[test]
    fn timestamps_are_those_of_segments_that_may_be_matched() {
        let of = |flags, options: &[u8], data| stamps(&segment(flags, options, data), true);
        let ack = of(ACK, &STAMPS, 0).expect("an ACK");
        assert_eq!((ack.value, ack.echo, ack.requires_answer), (3, 4, false));
        assert!(of(ACK, &STAMPS, 9).is_some_and(|data| data.requires_answer));
        assert!(of(SYN, &STAMPS, 0).is_some_and(|syn| syn.requires_answer && syn.echo == 0));
        assert!(stamps(&segment(ACK, &STAMPS, 0), false).is_some_and(|cut| cut.requires_answer));
        assert_eq!(of(ACK | RST, &STAMPS, 0), None);
        assert_eq!(of(ACK, &[NOP; 12], 0), None);
        for wrong in [[8, 0], [8, 1], [8, 9], [8, 200]] {
            let mut options = STAMPS;
            options[2..4].copy_from_slice(&wrong);
            assert_eq!(of(ACK, &options, 0), None, "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = acknowledgment(&bytes, 0);
            let _ = stamps(&bytes, true);
        }
    }
}
