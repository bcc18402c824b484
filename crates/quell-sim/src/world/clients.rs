//! Clients of applications: their messages, connections and servers.

use std::collections::VecDeque;

use quell_qdisc::Ecn;
use quell_qdisc::time::NEVER;

use super::{World, arm};
use crate::app::client::*;
use crate::app::{Action, Event};
use crate::delay::Sampler;
use crate::net::Entry;
use crate::packet::{Ack, FlowId, Kind, Pkt, micros};
use crate::slot::{End, Slot, source};

impl World {
    /// Runs `act` for a client, then the actions that its model requests, then sets its timer.
    fn with_client(&mut self, slot: u16, act: impl FnOnce(&mut Self, &mut Client)) {
        let place = usize::from(slot);
        let mut taken = std::mem::replace(&mut self.slots[place], Slot::Free);
        if let Slot::Client(client) = &mut taken {
            act(self, client);
            let mut todo = std::mem::take(&mut client.todo);
            for action in todo.drain(..) {
                self.do_for(client, action);
            }
            client.todo = todo;
            match client.wake_at() {
                NEVER => self.net.timers.clear(source(slot, End::Sender)),
                at => self.net.timers.set(at, source(slot, End::Sender)),
            }
        }
        self.slots[place] = taken;
    }

    fn notify(&mut self, client: &mut Client, event: Event) {
        let measuring = self.measures.is_measuring();
        client
            .model
            .on(self.now, event, measuring, &mut client.todo);
    }

    fn do_for(&mut self, client: &mut Client, action: Action) {
        match action {
            Action::Resolve => self.send_message(client, MessageKind::Query),
            Action::Connect(number) => self.open(client, number),
            Action::Fetch(number, bytes) => {
                let segments = bytes.div_ceil(u64::from(client.tcp.mss)).max(1);
                self.send_message(client, MessageKind::Request(number, segments));
            }
            Action::HangUp(number) => self.hang_up(client, |n| n == number),
            Action::Close => {
                client.messages.clear();
                self.hang_up(client, |_| true);
            }
        }
    }

    fn open(&mut self, client: &mut Client, number: u8) {
        let (now, path, report) = (self.now, client.path, client.report);
        let span = (now, NEVER);
        let Ok(id) = self.connect(&client.tcp, Some(0), path, span, report) else {
            return self.measures.refuse(report);
        };
        if let Slot::Tcp(c) = &mut self.slots[id.index()] {
            c.owner = Some((client.id.slot, number));
            // Every segment is sampled, so that `on_sampled_segment` sees it.
            (c.sampler, c.receiver.until_sample) = Sampler::new(Some(2));
        }
        client.links.push(Link {
            number,
            slot: id.slot,
            ready: false,
            hello_sent: false,
            ends: VecDeque::new(),
        });
    }

    fn hang_up(&mut self, client: &mut Client, which: impl Fn(u8) -> bool) {
        for link in client.links.extract_if(.., |link| which(link.number)) {
            self.close(link.slot);
            for end in [End::Sender, End::Receiver] {
                self.net.timers.clear(source(link.slot, end));
            }
        }
    }

    /// Handles a client's timer: the client's stop, messages to be repeated, or the time that its
    /// model has set.
    #[cold]
    pub(crate) fn wake_client(&mut self, slot: u16) {
        self.with_client(slot, |world, client| {
            let now = world.now;
            if client.stop <= now {
                client.messages.clear();
                world.hang_up(client, |_| true);
                client.stop = NEVER;
                client.has_stopped = true;
                return;
            }
            for i in 0..client.messages.len() {
                if client.messages[i].due <= now {
                    let m = &mut client.messages[i];
                    m.timeout *= 2;
                    m.due = now + m.timeout;
                    let m = *m;
                    world.transmit(client, m.serial, m.what);
                }
            }
            if client.model.wake_at() <= now {
                world.notify(client, Event::Wake);
            }
        });
    }

    fn send_message(&mut self, client: &mut Client, what: MessageKind) {
        let serial = client.next;
        client.next += 1;
        let timeout = match what {
            MessageKind::Request(number, _) => client.link(number).map(|l| usize::from(l.slot)),
            _ => None,
        };
        let timeout = match timeout.map(|slot| &self.slots[slot]) {
            Some(Slot::Tcp(c)) => c.sender.rtt.rto,
            _ => INITIAL_TIMEOUT,
        };
        client.messages.push(Message {
            serial,
            what,
            due: self.now + timeout,
            timeout,
        });
        self.transmit(client, serial, what);
    }

    /// Sends a message on the path of ACKs, so that an exchange takes a round trip and the waiting
    /// times in the queues.
    fn transmit(&mut self, client: &Client, serial: u32, what: MessageKind) {
        let size = match what {
            MessageKind::Query => QUERY,
            MessageKind::Hello(_) => HELLO,
            MessageKind::Request(..) => REQUEST,
        };
        match client.path.acks {
            None => self.forward_message(client.path.acks_return_wire, client.id, serial),
            Some((first, _)) => {
                let p = self.message(client, serial, size, first, true);
                *self.net.wires.push(self.now, client.path.acks_entry_wire) = p;
            }
        }
    }

    /// Puts a client's message on the wire to its server, after the last queue on its path.
    pub(crate) fn forward_message(&mut self, wire: u16, flow: FlowId, serial: u32) {
        *self.net.acks.push(self.now, wire) = Ack {
            flow,
            cumulative: serial,
            ..Ack::default()
        };
    }

    fn message(&self, client: &Client, serial: u32, size: u32, port: u8, up: bool) -> Pkt {
        let bytes = size + self.net.ports[usize::from(port)].overhead;
        let hash = client.hashes[usize::from(up)];
        let mut p = Pkt::new(Kind::Udp, client.id, hash, serial, bytes, size, Ecn::NotEct);
        p.tsval = micros(self.now);
        p.set_flags(up, false);
        p
    }

    /// Handles a client's message that has reached the server.
    #[cold]
    pub(crate) fn serve(&mut self, slot: u16, serial: u32) {
        self.with_client(slot, |world, client| {
            let Some(i) = client.messages.iter().position(|m| m.serial == serial) else {
                return; // it arrived before, or the client has hung up
            };
            let (number, segments) = match client.messages[i].what {
                MessageKind::Query => {
                    let port = client.path.data.0;
                    let p = world.message(client, serial, ANSWER, port, false);
                    return world.net.enter(world.now, usize::from(port), p);
                }
                MessageKind::Hello(number) => (number, CERTIFICATES),
                MessageKind::Request(number, segments) => (number, segments),
            };
            client.messages.remove(i);
            let Some(link) = client.link(number) else {
                return;
            };
            let (now, from) = (world.now, link.slot);
            if let Slot::Tcp(c) = &mut world.slots[usize::from(from)] {
                link.ends.push_back(c.sender.offer(segments));
                let mut entry = Entry {
                    net: &mut world.net,
                    port: usize::from(c.path.data.0),
                };
                c.sender.resume(now, &mut c.cc, &mut entry);
                arm(c, &mut world.net, from, End::Sender);
            }
        });
    }

    /// Handles the answer to a name query that has reached the client.
    #[cold]
    pub(crate) fn on_name_answer(&mut self, slot: u16, serial: u32) {
        self.with_client(slot, |world, client| {
            let open = client.messages.iter().position(|m| m.serial == serial);
            if let Some(i) = open {
                client.messages.remove(i);
                world.notify(client, Event::Resolved);
            }
        });
    }

    /// Handles a client's connection whose sender has no more data to send. The first time is when
    /// the connection opens.
    #[cold]
    pub(crate) fn client_idle(&mut self, slot: u16, number: u8) {
        self.with_client(slot, |world, client| {
            if let Some(link) = client.link(number)
                && !link.hello_sent
            {
                link.hello_sent = true;
                world.notify(client, Event::Opened(number));
                world.send_message(client, MessageKind::Hello(number));
            }
        });
    }

    /// Handles the arrival of all segments before `next` on a client's connection.
    #[cold]
    pub(crate) fn client_received(&mut self, slot: u16, number: u8, next: u64) {
        self.with_client(slot, |world, client| {
            loop {
                let Some(link) = client.link(number) else {
                    return;
                };
                if link.ends.front().is_none_or(|end| *end > next) {
                    return;
                }
                link.ends.pop_front();
                let event = match std::mem::replace(&mut link.ready, true) {
                    false => Event::Connected(number),
                    true => Event::Received(number),
                };
                world.notify(client, event);
            }
        });
    }
}
