//! Kind-specific statistics of disciplines (`TCA_STATS_APP`), parsed by tables of fields. Names are
//! the kernel's (linux/pkt_sched.h); the name of a time ends in its unit. Older kernels send fewer
//! fields; unknown ones are skipped.

use super::message::attributes;

/// Value of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// An unsigned number: a count, bytes, a time.
    Count(u64),
    /// A signed number.
    Signed(i64),
    /// A probability, 0 to 1.
    Share(f64),
}

/// Encoding of a field.
#[derive(Clone, Copy)]
enum Form {
    U32,
    I32,
    U64,
    I64,
    /// A probability; 1 is the largest 32-bit number.
    Share32,
    /// A probability; 1 is the largest 64-bit number.
    Share64,
}
use Form::{I32, I64, Share32, Share64, U32, U64};

type Fields = [(&'static str, Form)];

const CODEL: &Fields = &[
    ("maxpacket", U32),
    ("count", U32),
    ("lastcount", U32),
    ("ldelay_us", U32),
    ("drop_next_us", I32),
    ("drop_overlimit", U32),
    ("ecn_mark", U32),
    ("dropping", U32),
    ("ce_mark", U32),
];
const FQ_CODEL: &Fields = &[
    ("maxpacket", U32),
    ("drop_overlimit", U32),
    ("ecn_mark", U32),
    ("new_flow_count", U32),
    ("new_flows_len", U32),
    ("old_flows_len", U32),
    ("ce_mark", U32),
    ("memory_usage", U32),
    ("drop_overmemory", U32),
];
const FQ_CODEL_FLOW: &Fields = &[
    ("deficit", I32),
    ("ldelay_us", U32),
    ("count", U32),
    ("lastcount", U32),
    ("dropping", U32),
    ("drop_next_us", I32),
];
/// Size of the type that precedes the fields of fq_codel, bytes; the type is 0 for the discipline,
/// 1 for a flow.
const FQ_CODEL_TYPE: usize = 4;
const PIE: &Fields = &[
    ("prob", Share64),
    ("delay_us", U32),
    ("avg_dq_rate", U32),
    ("dq_rate_estimating", U32),
    ("packets_in", U32),
    ("dropped", U32),
    ("overlimit", U32),
    ("maxq", U32),
    ("ecn_mark", U32),
];
const FQ_PIE: &Fields = &[
    ("packets_in", U32),
    ("dropped", U32),
    ("overlimit", U32),
    ("overmemory", U32),
    ("ecn_mark", U32),
    ("new_flow_count", U32),
    ("new_flows_len", U32),
    ("old_flows_len", U32),
    ("memory_usage", U32),
];
/// Fields up to `horizon_caps` since Linux 5.8, further ones since 6.7.
const FQ: &Fields = &[
    ("gc_flows", U64),
    ("highprio_packets", U64),
    ("tcp_retrans", U64),
    ("throttled", U64),
    ("flows_plimit", U64),
    ("pkts_too_long", U64),
    ("allocation_errors", U64),
    ("time_next_delayed_flow_ns", I64),
    ("flows", U32),
    ("inactive_flows", U32),
    ("throttled_flows", U32),
    ("unthrottle_latency_ns", U32),
    ("ce_mark", U64),
    ("horizon_drops", U64),
    ("horizon_caps", U64),
    ("fastpath_packets", U64),
    ("band0_drops", U64),
    ("band1_drops", U64),
    ("band2_drops", U64),
    ("band0_packets", U32),
    ("band1_packets", U32),
    ("band2_packets", U32),
];
const DUALPI2: &Fields = &[
    ("prob", Share32),
    ("delay_c_us", U32),
    ("delay_l_us", U32),
    ("packets_in_c", U32),
    ("packets_in_l", U32),
    ("maxq", U32),
    ("ecn_mark", U32),
    ("step_marks", U32),
    ("credit", I32),
    ("memory_used", U32),
    ("max_memory_used", U32),
    ("memory_limit", U32),
];
const RED: &Fields = &[
    ("early", U32),
    ("pdrop", U32),
    ("other", U32),
    ("marked", U32),
];
const CHOKE: &Fields = &[
    ("early", U32),
    ("pdrop", U32),
    ("other", U32),
    ("marked", U32),
    ("matched", U32),
];
const SFB: &Fields = &[
    ("earlydrop", U32),
    ("penaltydrop", U32),
    ("bucketdrop", U32),
    ("queuedrop", U32),
    ("childdrop", U32),
    ("marked", U32),
    ("maxqlen", U32),
    ("maxprob", U32),
    ("avgprob", U32),
];
const HHF: &Fields = &[
    ("drop_overlimit", U32),
    ("hh_overlimit", U32),
    ("hh_tot_count", U32),
    ("hh_cur_count", U32),
];
const HTB_CLASS: &Fields = &[
    ("lends", U32),
    ("borrows", U32),
    ("giants", U32),
    ("tokens", I32),
    ("ctokens", I32),
];
const HFSC_CLASS: &Fields = &[
    ("work", U64),
    ("rtwork", U64),
    ("period", U32),
    ("level", U32),
];
const DRR_CLASS: &Fields = &[("deficit", U32)];
const QFQ_CLASS: &Fields = &[("weight", U32), ("lmax", U32)];
const SFQ_FLOW: &Fields = &[("allot", I32)];

/// Attributes of cake (TCA_CAKE_STATS_*): number, name, encoding. 10 has the tins; from 11 on they
/// are a flow's.
const CAKE: &[(u16, &str, Form)] = &[
    (2, "capacity_estimate_bytes_per_s", U64),
    (3, "memory_limit", U32),
    (4, "memory_used", U32),
    (5, "avg_netoff", U32),
    (6, "min_netlen", U32),
    (7, "max_netlen", U32),
    (8, "min_adjlen", U32),
    (9, "max_adjlen", U32),
    (11, "deficit", I32),
    (12, "count", U32),
    (13, "dropping", U32),
    (14, "drop_next_us", I32),
    (15, "p_drop", Share32),
    (16, "blue_timer_us", I32),
];
const CAKE_TINS: u16 = 10;
/// Attributes of one of cake's tins (TCA_CAKE_TIN_STATS_*).
const CAKE_TIN: &[(u16, &str, Form)] = &[
    (2, "packets", U32),
    (3, "bytes", U64),
    (4, "drops", U32),
    (5, "dropped_bytes", U64),
    (6, "ack_drops", U32),
    (7, "ack_drop_bytes", U64),
    (8, "ecn_mark", U32),
    (9, "ecn_mark_bytes", U64),
    (10, "backlog_packets", U32),
    (11, "backlog_bytes", U32),
    (12, "threshold_bytes_per_s", U64),
    (13, "target_us", U32),
    (14, "interval_us", U32),
    (15, "way_indirect_hits", U32),
    (16, "way_misses", U32),
    (17, "way_collisions", U32),
    (18, "peak_delay_us", U32),
    (19, "avg_delay_us", U32),
    (20, "base_delay_us", U32),
    (21, "sparse_flows", U32),
    (22, "bulk_flows", U32),
    (23, "unresponsive_flows", U32),
    (24, "max_skblen", U32),
    (25, "flow_quantum", U32),
];
/// TC_CAKE_MAX_TINS: most tins that a kernel sends.
const TINS: u16 = 8;

/// Receives fields: tin (only of cake, from 0), name and value.
pub type Each<'a> = &'a mut dyn FnMut(Option<u16>, &'static str, Value);

/// Parses the statistics of a discipline (or, with `class`, of one of its classes) of this kind.
/// For a kind without a table it does nothing.
pub fn each(kind: &str, class: bool, bytes: &[u8], each: Each<'_>) {
    let fields = match (kind, class) {
        ("codel", false) => CODEL,
        ("fq_codel", _) => {
            let flow = bytes.first_chunk() == Some(&1u32.to_ne_bytes());
            let rest = bytes.get(FQ_CODEL_TYPE..).unwrap_or_default();
            let fields = if flow { FQ_CODEL_FLOW } else { FQ_CODEL };
            return structure(fields, rest, each);
        }
        ("pie", false) => PIE,
        ("fq_pie", false) => FQ_PIE,
        ("fq", false) => FQ,
        ("dualpi2", false) => DUALPI2,
        ("red", false) => RED,
        ("choke", false) => CHOKE,
        ("sfb", false) => SFB,
        ("hhf", false) => HHF,
        ("htb", true) => HTB_CLASS,
        ("hfsc", true) => HFSC_CLASS,
        ("drr", true) => DRR_CLASS,
        ("qfq", true) => QFQ_CLASS,
        ("sfq", true) => SFQ_FLOW,
        ("cake", _) => return cake(bytes, each),
        _ => return,
    };
    structure(fields, bytes, each);
}

/// Bytes that have arrived at a discipline of this kind; `None` if it does not report them. cake
/// counts the bytes of a tin when they arrive.
pub fn arrived_bytes(kind: &str, bytes: &[u8]) -> Option<u64> {
    let mut sum = None;
    if kind == "cake" {
        cake(bytes, &mut |tin, name, value| {
            if let (Some(_), "bytes", Value::Count(bytes)) = (tin, name, value) {
                *sum.get_or_insert(0) += bytes;
            }
        });
    }
    sum
}

/// Parses the consecutive fields of a structure, as far as it extends.
fn structure(fields: &Fields, mut bytes: &[u8], each: Each<'_>) {
    for (name, form) in fields {
        let Some((value, size)) = number(*form, bytes) else {
            return;
        };
        each(None, name, value);
        bytes = &bytes[size..];
    }
}

fn cake(bytes: &[u8], each: Each<'_>) {
    for (kind, value) in attributes(bytes) {
        match kind {
            CAKE_TINS => {
                for (tin, value) in attributes(value) {
                    // The attributes' types are the tins' numbers, from 1.
                    if (1..=TINS).contains(&tin) {
                        table(CAKE_TIN, Some(tin - 1), value, each);
                    }
                }
            }
            _ => entry(CAKE, None, kind, value, each),
        }
    }
}

fn table(known: &[(u16, &'static str, Form)], tin: Option<u16>, bytes: &[u8], each: Each<'_>) {
    for (kind, value) in attributes(bytes) {
        entry(known, tin, kind, value, each);
    }
}

fn entry(
    known: &[(u16, &'static str, Form)],
    tin: Option<u16>,
    kind: u16,
    value: &[u8],
    each: Each<'_>,
) {
    // The table is sorted by number.
    if let Ok(at) = known.binary_search_by_key(&kind, |(number, _, _)| *number) {
        let (_, name, form) = known[at];
        if let Some((value, _)) = number(form, value) {
            each(tin, name, value);
        }
    }
}

/// The number at the beginning of `bytes`, and its size.
fn number(form: Form, bytes: &[u8]) -> Option<(Value, usize)> {
    let four = || bytes.first_chunk().copied();
    let eight = || bytes.first_chunk().copied();
    Some(match form {
        U32 => (Value::Count(u32::from_ne_bytes(four()?).into()), 4),
        I32 => (Value::Signed(i32::from_ne_bytes(four()?).into()), 4),
        U64 => (Value::Count(u64::from_ne_bytes(eight()?)), 8),
        I64 => (Value::Signed(i64::from_ne_bytes(eight()?)), 8),
        Share32 => {
            let share = f64::from(u32::from_ne_bytes(four()?)) / f64::from(u32::MAX);
            (Value::Share(share), 4)
        }
        Share64 => {
            let share = u64::from_ne_bytes(eight()?) as f64 / u64::MAX as f64;
            (Value::Share(share), 8)
        }
    })
}
