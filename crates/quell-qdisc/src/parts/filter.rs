//! Filters, which assign packets to a class, as `tc filter` does.

use crate::Labels;

/// A filter of a class: a packet must meet every condition that is set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// A bit for each DSCP that it accepts; 0 accepts any.
    pub dscps: u64,
    /// The firewall's mark.
    pub mark: Option<u32>,
    /// Source or destination of the packet.
    pub host: Option<Host>,
}

/// A host as a filter names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its name in a scenario, or its address.
    pub name: String,
    /// [`Labels::source`] of the packets that it sends and [`Labels::destination`] of those that it
    /// receives. Only the owner of the packets knows them; `None` matches no packet.
    pub labels: Option<[u32; 2]>,
}

impl Filter {
    /// True if no condition is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// True if a packet with these labels meets all conditions.
    #[inline]
    pub fn matches(&self, labels: &Labels) -> bool {
        let dscp = self.dscps == 0 || self.dscps >> (labels.dscp & 63) & 1 == 1;
        let mark = self.mark.is_none_or(|mark| mark == labels.mark);
        dscp && mark && self.host.as_ref().is_none_or(|host| host.has(labels))
    }
}

/// Filters in the order in which they are evaluated, each with the index of its class.
#[derive(Clone, Debug)]
pub struct Filters(Vec<(Filter, u8)>);

impl Filters {
    /// Keeps the filters that have conditions.
    pub fn new<'a>(all: impl Iterator<Item = (&'a Filter, u8)>) -> Self {
        let some = all.filter(|(filter, _)| !filter.is_empty());
        Self(some.map(|(filter, at)| (filter.clone(), at)).collect())
    }

    /// Class index of the first filter that matches a packet with these labels.
    #[inline]
    pub fn find(&self, labels: &Labels) -> Option<u8> {
        let mut filters = self.0.iter();
        filters
            .find(|(filter, _)| filter.matches(labels))
            .map(|(_, at)| *at)
    }
}

impl Host {
    fn has(&self, labels: &Labels) -> bool {
        self.labels.is_some_and(|[source, destination]| {
            source == labels.source || destination == labels.destination
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_matches_packets_that_meet_all_its_conditions() {
        let labels = |dscp, mark, source| Labels {
            dscp,
            mark,
            source,
            destination: 9,
        };
        let filter = Filter {
            dscps: 1 << 46 | 1 << 34,
            mark: Some(6),
            host: None,
        };
        assert!(filter.matches(&labels(46, 6, 0)) && filter.matches(&labels(34, 6, 0)));
        assert!(!filter.matches(&labels(45, 6, 0)) && !filter.matches(&labels(46, 5, 0)));
        let of = |labels| Filter {
            host: Some(Host {
                name: "laptop".into(),
                labels,
            }),
            ..Filter::default()
        };
        assert!(of(Some([7, 8])).matches(&labels(0, 0, 7)), "from it");
        assert!(of(Some([7, 9])).matches(&labels(0, 0, 1)), "to it");
        assert!(!of(Some([7, 8])).matches(&labels(0, 0, 1)));
        assert!(!of(None).matches(&labels(0, 0, 0)), "unknown");
        assert!(Filter::default().matches(&labels(1, 2, 3)));
    }
}
