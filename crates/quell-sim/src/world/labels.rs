//! Labels of the packets of a world's flows, and far hosts that attack the control loop.

use quell_qdisc::{Discipline, Labels, num};

use super::World;
use crate::labels::{self, capable, hash};
use crate::packet::FlowId;
use crate::scenario::{Direction, Flow};
use crate::slot::{NO_PORT, Path};
use crate::stamps::DelayAttack;

impl World {
    /// Notes which queues read labels, and which read ACKs.
    pub(crate) fn note_label_readers(&mut self) {
        for (i, port) in self.net.ports.iter_mut().enumerate() {
            let wants = port.queue.discipline().wants();
            if wants.labels {
                self.net.labelled.push(num::low_u8(i as u64));
            }
            if wants.acknowledgments {
                port.trace_mut().acks = Some(Vec::new());
            }
        }
    }

    /// Labels of a table's packets in one direction.
    pub(crate) fn labels_of(&self, flow: &Flow, down: bool) -> Labels {
        if self.net.labelled.is_empty() {
            return Labels::default();
        }
        let (mut source, mut destination) = self.ends(flow);
        if down != (flow.direction == Direction::Down) {
            std::mem::swap(&mut source, &mut destination);
        }
        Labels {
            source: self.host(&source),
            destination: self.host(&destination),
            mark: flow.fwmark,
            dscp: flow.dscp,
        }
    }

    /// Names of the hosts where a table's data come from and go to.
    fn ends(&self, flow: &Flow) -> (String, String) {
        if let (Some(wifi), Some(ends)) = (&self.scenario.wifi, &flow.ends) {
            let name = |node: u16| format!("node {}", wifi.nodes[usize::from(node)].name);
            return (name(ends.from), name(ends.to));
        }
        let named = |name: &String| format!("host {name}");
        let here = flow.host.as_ref().map(named);
        let here =
            here.unwrap_or_else(|| format!("client {} {}", flow.rtt.as_nanos(), capable(flow)));
        let there = flow.to_host.as_ref().map(named);
        let there = there.unwrap_or_else(|| "server".to_owned());
        match flow.direction {
            Direction::Down => (there, here),
            Direction::Up => (here, there),
        }
    }

    fn host(&self, name: &str) -> u32 {
        hash(self.key, name)
    }

    /// Sets the labels of a new flow at the queues that read them.
    pub(crate) fn label(&mut self, flow: FlowId, path: &Path, mut data: Labels) {
        if self.net.labelled.is_empty() {
            return;
        }
        let acks = Labels {
            source: data.destination,
            destination: data.source,
            dscp: 0,
            mark: data.mark,
        };
        for i in 0..self.net.labelled.len() {
            let place = usize::from(self.net.labelled[i]);
            let passes = path.data.0 != NO_PORT && self.net.way(path.data).any(|p| p == place);
            let port = &mut self.net.ports[place];
            port.trace_mut().label(flow.slot, [data, acks]);
            // Packets that leave a queue with the option `wash` have no DSCP at later queues.
            let washed = port.queue.discipline().wants().washed;
            if washed && passes {
                data.dscp = 0;
            }
        }
    }

    /// Starts an attack by reflectors and far hosts.
    pub fn start_attack(&mut self, attack: DelayAttack) {
        if let Some(stamps) = &mut self.net.stamps {
            let hosts = attack
                .hosts
                .iter()
                .map(|name| labels::far_host(self.seed, Some(name)));
            stamps.delay_attack = Some((attack.clone(), hosts.collect()));
        }
        self.net.delay_attack = Some(attack);
    }
}
