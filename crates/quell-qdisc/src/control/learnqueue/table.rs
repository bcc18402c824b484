//! The table of a [`LearnQueue`](super::LearnQueue), as a file from which another one can start.
//!
//! The file is safetensors, so that Python's `safetensors` package reads and writes it too:
//!
//! | tensor | type, shape | contents |
//! |---|---|---|
//! | `q` | F64 `[states, 2]`, ms; I32, microseconds, where the card says `fixed_point` | Q |
//! | `visits` | U32 `[states, 2]` | how often the action was tried in the state |
//!
//! Each row belongs to a limit that is a state; its columns are the actions: the next smaller limit
//! and the next larger one. The metadata hold one key, `quell`: the [`Card`] as JSON, with a
//! checksum. ε and γ follow from the number of pairs tried and are not stored.

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde::{Deserialize, Serialize};

use super::readings::Arithmetic;
use super::{Params, Values};
use crate::policy::Error;
use crate::policy::file::{checksum, open, whole};

/// The version of the file format that this quell writes. It also reads 2, which has no checksum,
/// and 1, which has neither a checksum nor the parameters `step`, `alpha_min` and
/// `published_reward`; they are then 1, 0 and true.
pub const FORMAT: u32 = 3;
/// Kind of the file in its card.
const KIND: &str = "learnqueue table";

/// Description and origin of a table: JSON under the key `quell` of the file's metadata.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Card {
    /// Version of the file format: 1 to [`FORMAT`].
    pub format: u32,
    /// `learnqueue table`.
    pub kind: String,
    /// Parameters with which it was learned: weights, target, limits (1 to `max_size`) and the
    /// rest.
    pub params: Params,
    /// The limit in force at the end, from which another queue continues.
    pub limit: u32,
    /// Training data, and the command that trained it.
    pub trained_on: String,
    /// The seed of the (first) run.
    pub seed: u64,
    /// The version of quell that wrote it.
    pub quell: String,
    /// In a file from format 3 on: 64-bit FNV-1a, in hexadecimal, of this card as JSON without the
    /// checksum, followed by the bytes of `q` and `visits`. Empty in memory.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub checksum: String,
}

impl Card {
    fn json(&self) -> Result<String, Error> {
        serde_json::to_string(self).map_err(|e| Error::new(e.to_string()))
    }
}

/// A table with its card.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    card: Card,
    pub(super) q: Values,
    pub(super) visits: Vec<[u32; 2]>,
}

impl Table {
    pub(super) fn new(params: Params, limit: u32, q: Values, visits: Vec<[u32; 2]>) -> Self {
        let card = Card {
            format: FORMAT,
            kind: KIND.to_owned(),
            params,
            limit,
            trained_on: String::new(),
            seed: 0,
            quell: env!("CARGO_PKG_VERSION").to_owned(),
            checksum: String::new(),
        };
        Self { card, q, visits }
    }

    /// The same table with its origin in the card.
    pub fn from(mut self, trained_on: &str, seed: u64) -> Self {
        (self.card.trained_on, self.card.seed) = (trained_on.to_owned(), seed);
        self
    }

    /// The card.
    pub fn card(&self) -> &Card {
        &self.card
    }

    /// The parameters with which it was learned, with the limit at its end as the first limit.
    pub fn params(&self) -> Params {
        Params {
            initial: self.card.limit,
            ..self.card.params.clone()
        }
    }

    /// The limit of each row.
    pub fn limits(&self) -> Vec<u32> {
        self.card.params.limits().to_vec()
    }

    /// For every row, Q of the next smaller and of the next larger limit, ms.
    pub fn values(&self) -> Vec<[f64; 2]> {
        (0..self.visits.len())
            .map(|row| [self.q.ms(row, 0), self.q.ms(row, 1)])
            .collect()
    }

    /// For every row, how often the next smaller and the next larger limit were tried.
    pub fn visits(&self) -> &[[u32; 2]] {
        &self.visits
    }

    /// The bytes of a file that [`Table::load`] reads back as this table.
    ///
    /// # Errors
    /// If the card cannot be written, which does not happen.
    pub fn save(&self) -> Result<Vec<u8>, Error> {
        let (dtype, q): (_, Vec<u8>) = match &self.q {
            Values::Float(q) => (
                Dtype::F64,
                q.iter().flatten().flat_map(|x| x.to_le_bytes()).collect(),
            ),
            Values::Fixed(q) => (
                Dtype::I32,
                q.iter().flatten().flat_map(|x| x.to_le_bytes()).collect(),
            ),
        };
        let visits = self.visits.iter().flatten();
        let visits: Vec<u8> = visits.flat_map(|n| n.to_le_bytes()).collect();
        let shape = vec![self.visits.len(), 2];
        let tensors = [
            ("q", dtype, shape.clone(), &q[..]),
            ("visits", Dtype::U32, shape, &visits[..]),
        ];
        let mut card = Card {
            format: FORMAT,
            ..self.card.clone()
        };
        card.checksum = checksum(&card.json()?, [&q, &visits]);
        whole(card.json()?, tensors)
    }

    /// Reads a table from the bytes of a file; `file` is its name, for errors.
    ///
    /// # Errors
    /// If the bytes are truncated or not a safetensors file; if the card, its version, a shape or a
    /// number is wrong; or if the checksum does not match.
    pub fn load(file: &str, bytes: &[u8]) -> Result<Self, Error> {
        load(bytes).map_err(|e| e.at(file))
    }
}

fn load(bytes: &[u8]) -> Result<Table, Error> {
    let (card, tensors) = open(bytes)?;
    let mut card = read_card(&card)?;
    let limits = card.params.limits();
    let size = limits.len();
    let q = tensor(&tensors, "q")?;
    let visits = tensor(&tensors, "visits")?;
    if tensors.len() > 2 {
        let mut left = tensors.names();
        left.retain(|name| !["q", "visits"].contains(name));
        left.sort_unstable();
        return Err(
            Error::new("a table has no such tensor").under(left.first().copied().unwrap_or(""))
        );
    }
    let found = std::mem::take(&mut card.checksum);
    let data = [q.data(), visits.data()];
    let q = match card.params.arithmetic {
        Arithmetic::Fixed => Values::Fixed(pairs("q", &q, Dtype::I32, size, i32::from_le_bytes)?),
        Arithmetic::Float => Values::Float(pairs("q", &q, Dtype::F64, size, f64::from_le_bytes)?),
    };
    let visits = pairs("visits", &visits, Dtype::U32, size, u32::from_le_bytes)?;
    if let Some(row) = (0..size).find(|row| !(0..2).all(|action| q.ms(*row, action).is_finite())) {
        return Err(
            Error::new(format!("Q at limit {} is not a number", limits.at(row)))
                .remedy(RETRAIN)
                .under("q"),
        );
    }
    let has_checksum = card.format >= 3 || !found.is_empty();
    if has_checksum && found != checksum(&card.json()?, data) {
        let what = "the file is not as it was written";
        let remedy = format!("copy it again, or {RETRAIN}");
        return Err(Error::new(what).remedy(remedy).under("card: checksum"));
    }
    Ok(Table { card, q, visits })
}

const RETRAIN: &str = "make a new one with quell train learnqueue";

/// The version and the kind are checked first: cards of other versions or kinds may have another
/// form.
fn read_card(text: &str) -> Result<Card, Error> {
    #[derive(Deserialize)]
    struct Head {
        format: u32,
        #[serde(default)]
        kind: String,
    }
    let bad = |e: serde_json::Error| Error::new(e.to_string()).remedy(RETRAIN).under("card");
    let head: Head = serde_json::from_str(text).map_err(bad)?;
    if head.kind != KIND {
        return Err(Error::new("not a LearnQueue table").remedy(RETRAIN));
    }
    if !(1..=FORMAT).contains(&head.format) {
        return Err(Error::new(format!("format {} is not known", head.format))
            .remedy(format!(
                "this quell ({}) reads formats 1 to {FORMAT}; {RETRAIN}",
                env!("CARGO_PKG_VERSION")
            ))
            .under("card: format"));
    }
    let card: Card = serde_json::from_str(text).map_err(bad)?;
    let wrong = |e: &str, key: &str| Error::new(e).remedy(RETRAIN).under(key);
    card.params.check().map_err(|e| wrong(e, "card: params"))?;
    if !(1..=card.params.max_size).contains(&card.limit) {
        return Err(wrong("must be 1 to max_size packets", "card: limit"));
    }
    Ok(card)
}

fn tensor<'a>(tensors: &SafeTensors<'a>, name: &str) -> Result<TensorView<'a>, Error> {
    tensors.tensor(name).map_err(|_| {
        Error::new("this tensor is missing")
            .remedy(RETRAIN)
            .under(name)
    })
}

/// Checks the type and the shape of a tensor; returns its numbers, two per row.
fn pairs<T: Copy, const BYTES: usize>(
    name: &str,
    tensor: &TensorView,
    dtype: Dtype,
    size: usize,
    read: fn([u8; BYTES]) -> T,
) -> Result<Vec<[T; 2]>, Error> {
    if tensor.dtype() != dtype || tensor.shape() != [size, 2] {
        let (found, shape) = (tensor.dtype(), tensor.shape());
        return Err(
            Error::new(format!("{found} {shape:?} instead of {dtype} [{size}, 2]"))
                .remedy(RETRAIN)
                .under(name),
        );
    }
    let (numbers, _) = tensor.data().as_chunks::<BYTES>();
    let (rows, _) = numbers.as_chunks::<2>();
    Ok(rows.iter().map(|[a, b]| [read(*a), read(*b)]).collect())
}

#[cfg(test)]
mod tests {
    use super::super::LearnQueue;
    use super::*;
    use crate::control::Control;
    use crate::policy::file::KEY;
    use crate::time::{Duration, MS};
    use crate::{Gauges, Rng};
    use proptest::prelude::*;

    fn learned(params: Params, seed: u64, decisions: u64) -> LearnQueue {
        let mut lq = LearnQueue::new(params);
        let (mut rng, mut g) = (Rng::new(seed, "t"), Gauges::default());
        for i in 0..decisions {
            g.departures += 1;
            g.arrivals += 3;
            g.drops_overflow += i % 2;
            g.sojourn = u64::from(lq.limit()) * MS + Duration::from_nanos(i * 7919 % 60);
            lq.decide(&g, &mut [], &mut rng);
        }
        lq
    }

    fn small(fixed_point: bool) -> Params {
        Params {
            max_size: 30,
            arithmetic: fixed_point.into(),
            delta: 0.9,
            eta: 0.1,
            ..Params::default().published_reward()
        }
    }

    fn table(fixed_point: bool) -> Table {
        learned(small(fixed_point), 4, 500)
            .table()
            .from("a test", 4)
    }

    fn error(bytes: &[u8]) -> String {
        let e = Table::load("t.safetensors", bytes).expect_err("a bad table");
        let text = e.to_string();
        assert!(text.starts_with("t.safetensors: "), "{text}");
        text
    }

    /// The card of [`table`] in format 2, without a checksum.
    fn card_of_format_2() -> String {
        let mut card = table(false).card;
        card.format = 2;
        card.json().unwrap()
    }

    /// The file of a table whose card's text was changed.
    fn with_card(change: impl Fn(&str) -> String) -> Vec<u8> {
        let bytes = table(false).save().unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let card = change(&card_of_format_2());
        let metadata = [(KEY.to_owned(), card)].into_iter().collect();
        safetensors::serialize(tensors.tensors(), Some(metadata)).unwrap()
    }

    /// The file of a table whose tensors were changed.
    fn with_tensors(tensors: Vec<(&str, Dtype, Vec<usize>, Vec<u8>)>) -> Vec<u8> {
        let views = tensors
            .iter()
            .map(|(n, d, s, b)| (*n, TensorView::new(*d, s.clone(), b).unwrap()));
        let metadata = [(KEY.to_owned(), card_of_format_2())].into_iter().collect();
        safetensors::serialize(views, Some(metadata)).unwrap()
    }

    proptest! {
        #[test]
        fn a_file_gives_back_the_table_and_the_table_the_learner(
            seed in 0..1000u64, decisions in 0..3000u64, fixed_point: bool, max_size in 2..60u32, delta in 0.0..2.0,
        ) {
            let params = Params { max_size, delta, ..small(fixed_point) };
            let before = learned(params, seed, decisions);
            let table = before.table().from("a test", seed);
            let bytes = table.save().unwrap();
            let again = Table::load("t", &bytes).unwrap();
            prop_assert_eq!(&again, &table);
            prop_assert_eq!(again.save().unwrap(), bytes);
            // It decides as the uninterrupted one does; only the counters of its own queue differ.
            let mut after = LearnQueue::resume(again.params(), &again);
            prop_assert_eq!(after.limit(), before.limit());
            prop_assert_eq!(after.epsilon(), before.epsilon());
            prop_assert_eq!(after.gamma(), before.gamma());
            prop_assert_eq!(after.discovered(), before.discovered());
            let mut before = before;
            let (mut a, mut b) = (Rng::new(1, "t"), Rng::new(1, "t"));
            let mut g = Gauges { arrivals: 100_000, departures: 100_000, drops_overflow: 50_000, ..Gauges::default() };
            before.observe(&g);
            after.observe(&g);
            for i in 0..50 {
                g.departures += 1;
                g.sojourn = i * MS;
                prop_assert_eq!(before.decide(&g, &mut [], &mut a), after.decide(&g, &mut [], &mut b));
            }
        }

        #[test]
        fn no_bytes_panic(at in 0..4000usize, byte: u8, length in 0..4000usize, fixed_point: bool) {
            let mut bytes = table(fixed_point).save().unwrap();
            let last = bytes.len() - 1;
            bytes[at.min(last)] = byte;
            let _ = Table::load("t", &bytes);
            bytes.truncate(length);
            let _ = Table::load("t", &bytes);
        }
    }

    #[test]
    fn integers_start_from_what_floating_point_learned_and_back() {
        for fixed_point in [false, true] {
            let table = table(fixed_point);
            let other = Params {
                arithmetic: (!fixed_point).into(),
                ..table.params()
            };
            let lq = LearnQueue::resume(other, &table);
            assert_eq!(table.values().len(), table.visits().len());
            for (row, values) in table.values().iter().enumerate() {
                for action in 0..2 {
                    let q = lq.q(row as u32 + 1, action);
                    assert!((q - values[action]).abs() <= 0.0005, "{q} {values:?}");
                }
            }
        }
    }

    #[test]
    fn every_prefix_of_a_file_is_refused() {
        let bytes = table(false).save().unwrap();
        for length in 0..bytes.len() {
            error(&bytes[..length]);
        }
    }

    #[test]
    fn a_file_of_which_a_byte_has_changed_is_refused_or_gives_the_same_table() {
        for fixed_point in [false, true] {
            let table = table(fixed_point);
            let bytes = table.save().unwrap();
            for (at, bit) in (0..bytes.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                if let Ok(loaded) = Table::load("t", &damaged) {
                    assert_eq!(loaded, table, "byte {at}, bit {bit}");
                }
            }
        }
    }

    #[test]
    fn a_card_of_format_3_needs_its_checksum_and_one_of_format_2_has_none() {
        let old = with_card(str::to_owned);
        assert_eq!(
            Table::load("t", &old).unwrap().values(),
            table(false).values()
        );
        let e = error(&with_card(|c| c.replace("\"format\":2", "\"format\":3")));
        let wrong = "card: checksum: the file is not as it was written; copy it again, or make";
        assert!(e.contains(wrong), "{e}");
    }

    #[test]
    fn a_card_of_another_version_kind_or_range_is_refused() {
        let e = error(&with_card(|c| c.replace("\"format\":2", "\"format\":4")));
        assert!(
            e.contains("card: format: format 4 is not known; this quell"),
            "{e}"
        );
        let e = error(&with_card(|c| c.replace(KIND, "something")));
        assert!(
            e.ends_with("not a LearnQueue table; make a new one with quell train learnqueue"),
            "{e}"
        );
        let e = error(&with_card(|c| {
            c.replace("\"max_size\":30", "\"max_size\":1")
        }));
        assert!(
            e.contains("card: params: max must be 2 to 65536 packets"),
            "{e}"
        );
        let e = error(&with_card(|c| c.replace("\"limit\":", "\"limit\":9")));
        assert!(
            e.contains("card: limit: must be 1 to max_size packets"),
            "{e}"
        );
        let e = error(&with_card(|c| c.replace("\"eta\":0.1", "\"eta\":1e999")));
        assert!(e.contains("card: "), "{e}");
        let e = error(&with_card(|c| c.replace("\"seed\"", "\"sead\"")));
        assert!(e.contains("card: unknown field `sead`"), "{e}");
        assert!(error(&with_card(|_| "nonsense".into())).contains("card: "));
    }

    #[test]
    fn a_card_of_format_1_has_the_published_reward_on_every_limit() {
        let old = with_card(|c| {
            let c = c.replace("\"format\":2", "\"format\":1");
            let c = c
                .replace("\"step\":1.0,", "")
                .replace("\"alpha_min\":0.0,", "");
            c.replace("\"published_reward\":true,", "")
        });
        let (old, new) = (Table::load("t", &old).unwrap(), table(false));
        assert_eq!(old.params(), new.params());
        assert_eq!(old.values(), new.values());
    }

    #[test]
    fn a_table_has_a_row_per_state() {
        let table = learned(Params::default(), 4, 500).table();
        assert_eq!((table.limits().len(), table.values().len()), (39, 39));
        assert_eq!(Table::load("t", &table.save().unwrap()).unwrap(), table);
    }

    #[test]
    fn tensors_of_another_shape_type_or_name_are_refused() {
        let floats = |n: usize, x: f64| vec![x; n].iter().flat_map(|x| x.to_le_bytes()).collect();
        let q = || ("q", Dtype::F64, vec![30, 2], floats(60, 1.0));
        let visits = || ("visits", Dtype::U32, vec![30, 2], vec![0; 240]);
        assert!(Table::load("t", &with_tensors(vec![q(), visits()])).is_ok());
        let e = error(&with_tensors(vec![visits()]));
        assert!(e.contains("q: this tensor is missing"), "{e}");
        let e = error(&with_tensors(vec![q()]));
        assert!(e.contains("visits: this tensor is missing"), "{e}");
        let e = error(&with_tensors(vec![
            ("q", Dtype::F64, vec![29, 2], floats(58, 1.0)),
            visits(),
        ]));
        assert!(e.contains("q: F64 [29, 2] instead of F64 [30, 2]"), "{e}");
        let e = error(&with_tensors(vec![
            ("q", Dtype::F32, vec![30, 2], vec![0; 240]),
            visits(),
        ]));
        assert!(e.contains("q: F32 [30, 2] instead of F64 [30, 2]"), "{e}");
        let e = error(&with_tensors(vec![
            q(),
            visits(),
            ("more", Dtype::U8, vec![1], vec![0]),
        ]));
        assert!(e.contains("more: a table has no such tensor"), "{e}");
        for bad in [f64::NAN, f64::INFINITY] {
            let e = error(&with_tensors(vec![
                ("q", Dtype::F64, vec![30, 2], floats(60, bad)),
                visits(),
            ]));
            assert!(
                e.contains("q: Q at limit 1 is not a number; make a new one"),
                "{e}"
            );
        }
    }

    #[test]
    fn a_network_is_not_a_table() {
        let model = include_bytes!("../../../tests/data/policy/torch.safetensors");
        let e = error(model);
        assert!(e.contains("not a LearnQueue table"), "{e}");
    }
}
