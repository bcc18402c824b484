//! Captures of a world's bottleneck, and of the up link's queue if the scenario has one. Header
//! fields that a packet descriptor does not have are taken from the flow's state.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::Path;

use quell_link::error::Error;
use quell_qdisc::time::Instant;
use quell_qdisc::{Ecn, Packet, num};

use crate::cc::EcnMode;
use crate::packet::{Kind, Pkt};
use crate::pcap::{Fate, PacketView, SCALE, TcpView, Transport, Writer};
use crate::scenario::Direction;
use crate::slot::Slot;
use crate::world::World;

/// A capture being written.
pub struct Capture {
    writer: Writer<BufWriter<File>>,
    file: String,
    /// The captured ports, each with the direction of its packets.
    ports: Vec<(usize, Direction)>,
}

impl Capture {
    /// Begins a capture in a file.
    pub fn create(path: &Path, world: &mut World) -> Result<Self, Error> {
        let file = path.display().to_string();
        let writer = File::create(path).and_then(|f| Writer::new(BufWriter::new(f)));
        let writer = writer.map_err(|e| failed(&file, &e))?;
        let mut ports = vec![(0, Direction::Down)];
        if world.scenario.up.is_some() {
            ports.push((world.net.up_port(), Direction::Up));
        }
        for (port, _) in &ports {
            world.net.ports[*port].trace_mut().capture = Some(Vec::new());
        }
        Ok(Self {
            writer,
            file,
            ports,
        })
    }

    /// Writes the packets that left the captured queues or were dropped since the last call, with
    /// the time `now`. Call it after each instant with events: the store keeps the ACKs of these
    /// packets only until others take their places.
    pub fn write(&mut self, now: Instant, world: &mut World) -> Result<(), Error> {
        for k in 0..self.ports.len() {
            let (port, direction) = self.ports[k];
            let capture = &mut world.net.ports[port].trace_mut().capture;
            let mut packets = capture.replace(Vec::new()).unwrap_or_default();
            for (fate, packet) in packets.drain(..) {
                let fate = match fate {
                    Some(cause) => Fate::Dropped(cause),
                    None if packet.ecn() == Ecn::Ce => Fate::Marked,
                    None => Fate::Sent,
                };
                self.packet(now, fate, direction, &packet, world)
                    .map_err(|e| failed(&self.file, &e))?;
            }
            world.net.ports[port].trace_mut().capture = Some(packets);
        }
        Ok(())
    }

    /// Writes buffered data.
    pub fn finish(self) -> Result<(), Error> {
        let done = self.writer.finish();
        done.map(drop).map_err(|e| failed(&self.file, &e))
    }

    fn packet(
        &mut self,
        now: Instant,
        fate: Fate,
        direction: Direction,
        p: &Pkt,
        world: &World,
    ) -> io::Result<()> {
        let flow = Flow::of(world, p);
        // Segments are numbered from 0; the SYN takes the first byte of the sequence space.
        let byte = |segment: u32| segment.wrapping_mul(flow.mss).wrapping_add(1);
        let mut sack = [(0, 0); 3];
        let mut tcp = TcpView {
            window: flow.window,
            cwr: p.cwr(),
            push: p.push(),
            timestamps: (p.tsval, 0),
            ..TcpView::default()
        };
        match p.kind() {
            Kind::Syn => {
                tcp.syn = true;
                // RFC 3168, section 6.1.1: both flags ask for ECN; with AE, for accurate feedback
                // (RFC 9768).
                (tcp.ece, tcp.cwr) = (flow.ecn, flow.ecn);
                tcp.ae = flow.ecn && flow.accurate;
            }
            Kind::Data => (tcp.seq, tcp.ack) = (byte(p.seq), 1),
            Kind::Ack => {
                let ack = world.net.store.get(p.seq);
                let count = usize::from(ack.count);
                for (bytes, block) in sack.iter_mut().zip(&ack.blocks[..count]) {
                    *bytes = (byte(block.0), byte(block.1));
                }
                tcp.syn = ack.syn;
                tcp.seq = u32::from(!ack.syn);
                tcp.ack = byte(ack.cumulative);
                tcp.sack = &sack[..count];
                tcp.timestamps = (num::low_u32(now.as_millis()) + 1, ack.tsecr);
                tcp.ece = ack.ece;
                if flow.accurate && !ack.syn {
                    // RFC 9768, section 3.2.1: the counter of CE begins at 5.
                    let ace = ack.ce.wrapping_add(5);
                    (tcp.ae, tcp.cwr, tcp.ece) = (ace & 4 != 0, ace & 2 != 0, ace & 1 != 0);
                }
            }
            Kind::Udp => {}
        }
        let transport = match p.kind() {
            Kind::Udp => Transport::Udp,
            _ => Transport::Tcp(tcp),
        };
        let view = PacketView {
            flow: u32::from(p.flow.slot) | u32::from(p.flow.generation) << 16,
            data: p.kind() != Kind::Ack,
            direction,
            ecn: p.ecn(),
            payload: u32::from(p.payload),
            transport,
        };
        self.writer.packet(now, fate, &view)
    }
}

/// Header fields that come from the connection.
struct Flow {
    mss: u32,
    window: u16,
    ecn: bool,
    accurate: bool,
}

impl Flow {
    fn of(world: &World, p: &Pkt) -> Self {
        let same = world.generations[p.flow.index()] == p.flow.generation;
        match &world.slots[p.flow.index()] {
            Slot::Tcp(c) if same => {
                let mss = c.sender.s.mss;
                let window = u64::from(c.sender.window()) * u64::from(mss);
                Self {
                    mss,
                    window: num::low_u16((window >> SCALE).min(u64::from(u16::MAX))),
                    ecn: c.sender.ect() != Ecn::NotEct,
                    accurate: c.cc.ecn_mode() == EcnMode::Accurate,
                }
            }
            // A datagram, or a segment of a connection that has been closed.
            _ => Self {
                mss: u32::from(p.payload),
                window: u16::MAX,
                ecn: false,
                accurate: false,
            },
        }
    }
}

fn failed(file: &str, error: &io::Error) -> Error {
    Error::new(format!("the capture cannot be written: {error}"))
        .remedy("name a file in a folder with room")
        .at(file, None)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use crate::scenario::{Overrides, Scenario};
    use crate::{RunOptions, run};

    #[test]
    fn a_capture_holds_every_packet_and_changes_nothing() {
        let text = "duration = \"2s\"\nwarmup = \"0s\"\n[link]\nrate = \"10mbit\"\n[[flow]]\ncount = 2\n\
                    [[flow]]\nkind = \"cbr\"\nrate = \"1mbit\"\n[[flow]]\ndirection = \"up\"\n";
        let scenario = Scenario::parse(text, "", &Overrides::default()).unwrap();
        let folder = std::env::temp_dir().join(format!("quell-capture-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let path = folder.join("bottleneck.pcapng");
        let stop = AtomicBool::new(false);
        let plain = run(
            &scenario,
            "pfifo limit 20",
            1,
            &RunOptions::default(),
            &stop,
        )
        .unwrap();
        let options = RunOptions {
            series_bin: None,
            pcap: Some(path.clone()),
        };
        let captured = run(&scenario, "pfifo limit 20", 1, &options, &stop).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(plain.trace_hash, captured.trace_hash);
        assert!(plain.drops > 0);
        let up = plain.up.expect("a flow goes up");
        let both = plain.packets + plain.drops + up.packets + up.drops;
        assert_eq!(enhanced_packets(&bytes), both);
    }

    /// Counts blocks of type 6 (packets); a block's second word is its length.
    fn enhanced_packets(mut bytes: &[u8]) -> u64 {
        let word = |b: &[u8]| u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        let mut count = 0;
        while !bytes.is_empty() {
            count += u64::from(word(bytes) == 6);
            bytes = &bytes[word(&bytes[4..]) as usize..];
        }
        count
    }
}
