//! The networks of `rlaqm learn`, and a file from which another queue continues.
//!
//! The file is safetensors. `champion` and `newest` are F32 and have all weights of a network in
//! the order of [`Trainee::weights`]; the network's shape is that of the first network, which is
//! not in the file. The metadata hold one key, `quell`: a card as JSON, with a checksum.

use safetensors::{Dtype, SafeTensors};
use serde::{Deserialize, Serialize};

use crate::policy::file::{checksum, open, whole};
use crate::policy::{Error, Policy, Trainee};
use crate::rng::fnv_1a;

/// Version of the file format.
const FORMAT: u32 = 1;
/// Kind of the file in its card.
const KIND: &str = "rlaqm networks";
/// What to do about a file that cannot be read.
const REMEDY: &str = "delete it: the queue then starts from the network in its words";

/// Networks of a queue that learns.
#[derive(Clone, Debug)]
pub struct Networks {
    /// The network in the queue's words.
    pub first: Policy,
    /// The network in force.
    pub champion: Policy,
    /// The learner's newest network.
    pub newest: Policy,
}

/// Networks are equal if they are clones of each other.
impl PartialEq for Networks {
    fn eq(&self, other: &Self) -> bool {
        self.first.is_same(&other.first)
            && self.champion.is_same(&other.champion)
            && self.newest.is_same(&other.newest)
    }
}

/// Description of a file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Card {
    format: u32,
    kind: String,
    /// What has learned the networks, and where.
    trained_on: String,
    /// 64-bit FNV-1a of the first network ([`hash`]), in hexadecimal.
    first: String,
    /// Version of quell that wrote it.
    quell: String,
    /// 64-bit FNV-1a, in hexadecimal, of this card as JSON with an empty checksum, followed by the
    /// bytes of `champion` and `newest`.
    checksum: String,
}

impl Card {
    fn json(&self) -> Result<String, Error> {
        serde_json::to_string(self).map_err(|e| Error::new(e.to_string()))
    }

    /// Sets the checksum for these tensors.
    fn seal(mut self, champion: &[u8], newest: &[u8]) -> Result<Self, Error> {
        self.checksum.clear();
        self.checksum = checksum(&self.json()?, [champion, newest]);
        Ok(self)
    }
}

/// All weights of a network, as bytes.
fn weights(policy: &Policy) -> Vec<u8> {
    let trainee = Trainee::from_policy(policy);
    let weights = trainee.weights().iter();
    weights.flat_map(|w| w.to_le_bytes()).collect()
}

/// A hash of what determines a network's answers.
fn hash(policy: &Policy) -> Result<String, Error> {
    let card = policy.card();
    let shape = serde_json::to_string(&(&card.inputs, &card.hidden, &card.heads));
    let shape = shape.map_err(|e| Error::new(e.to_string()))?;
    let bytes = shape.into_bytes().into_iter().chain(weights(policy));
    Ok(format!("{:016x}", fnv_1a(bytes)))
}

impl Networks {
    /// Those of a queue that has learned nothing yet.
    pub fn untrained(first: &Policy) -> Self {
        Self {
            first: first.clone(),
            champion: first.clone(),
            newest: first.clone(),
        }
    }

    /// Whether they began with this network.
    pub fn begin_with(&self, first: &Policy) -> bool {
        let same = |hashes: (Result<String, Error>, Result<String, Error>)| match hashes {
            (Ok(one), Ok(other)) => one == other,
            _ => false,
        };
        self.first.is_same(first) || same((hash(&self.first), hash(first)))
    }

    /// The bytes of a file that [`Networks::load`] reads back.
    ///
    /// # Errors
    /// If the card cannot be written, which does not happen.
    pub fn save(&self, origin: &str) -> Result<Vec<u8>, Error> {
        let (champion, newest) = (weights(&self.champion), weights(&self.newest));
        let card = Card {
            format: FORMAT,
            kind: KIND.to_owned(),
            trained_on: origin.to_owned(),
            first: hash(&self.first)?,
            quell: env!("CARGO_PKG_VERSION").to_owned(),
            checksum: String::new(),
        };
        let card = card.seal(&champion, &newest)?;
        let tensors = [("champion", &champion), ("newest", &newest)];
        let tensors =
            tensors.map(|(name, data)| (name, Dtype::F32, vec![data.len() / 4], &data[..]));
        whole(card.json()?, tensors)
    }

    /// Reads the networks of a queue with the same first network, and their origin; `file` is the
    /// name of the file, for errors.
    ///
    /// # Errors
    /// If the bytes are not what [`Networks::save`] wrote, or the first network was another.
    pub fn load(&self, file: &str, bytes: &[u8]) -> Result<(Self, String), Error> {
        self.read(bytes).map_err(|e| e.at(file))
    }

    fn read(&self, bytes: &[u8]) -> Result<(Self, String), Error> {
        let wrong = |what: &str, key: &str| Error::new(what).remedy(REMEDY).under(key);
        let (card, tensors) = open(bytes)?;
        let card: Card = serde_json::from_str(&card).map_err(|e| wrong(&e.to_string(), "card"))?;
        if card.kind != KIND || card.format != FORMAT {
            let what = "not a file of this quell with networks of rlaqm learn";
            return Err(wrong(what, "card"));
        }
        let data = [tensor(&tensors, "champion")?, tensor(&tensors, "newest")?];
        let (found, origin) = (card.checksum.clone(), card.trained_on.clone());
        let first = card.first.clone();
        if card.seal(data[0], data[1])?.checksum != found {
            return Err(wrong("the file is not as it was written", "card: checksum"));
        }
        if first != hash(&self.first)? {
            return Err(wrong("was learned from another network", "card: first"));
        }
        let networks = Self {
            first: self.first.clone(),
            champion: self.network(data[0], "champion")?,
            newest: self.network(data[1], "newest")?,
        };
        Ok((networks, origin))
    }

    /// The network with these weights; the first one, if they are its weights.
    fn network(&self, data: &[u8], name: &str) -> Result<Policy, Error> {
        let mut trainee = Trainee::from_policy(&self.first);
        let (numbers, _) = data.as_chunks::<4>();
        let weights: Vec<f32> = numbers.iter().map(|b| f32::from_le_bytes(*b)).collect();
        if weights == trainee.weights() {
            return Ok(self.first.clone());
        }
        if weights.len() != trainee.weights().len() {
            return Err(Error::new("has the weights of a network of another shape").under(name));
        }
        trainee.set_weights(&weights).map_err(|e| e.under(name))?;
        Ok(trainee.policy().clone())
    }
}

fn tensor<'a>(tensors: &SafeTensors<'a>, name: &str) -> Result<&'a [u8], Error> {
    let tensor = tensors.tensor(name);
    match tensor.map_err(|_| Error::new("this tensor is missing").under(name))? {
        tensor if tensor.dtype() == Dtype::F32 => Ok(tensor.data()),
        _ => Err(Error::new("its type is not F32").under(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::linear;
    use super::*;

    /// Networks of one shape, with these biases: the first, the champion, the newest.
    fn networks(biases: [f32; 3]) -> Networks {
        let inputs = [("delay_ms", 0.02), ("utilisation", 1.0)];
        let network = |bias| {
            linear(
                &inputs,
                &["drop = 0", "drop = 0.5"],
                &[0.5; 4],
                &[bias, 0.0],
            )
        };
        let [first, champion, newest] = biases.map(network);
        Networks {
            first,
            champion,
            newest,
        }
    }

    #[test]
    fn a_file_gives_back_the_networks_of_a_queue_with_the_same_first_network() {
        let saved = networks([0.1, 0.2, 0.3]);
        let bytes = saved.save("here").unwrap();
        let untrained = Networks::untrained(&networks([0.1; 3]).first);
        let (loaded, origin) = untrained.load("t", &bytes).unwrap();
        assert_eq!(origin, "here");
        assert!(loaded.first.is_same(&untrained.first));
        assert_eq!(weights(&loaded.champion), weights(&saved.champion));
        assert_eq!(weights(&loaded.newest), weights(&saved.newest));
        assert_eq!(loaded.save("here").unwrap(), bytes);
        assert!(loaded.begin_with(&saved.first));
        // A queue that has promoted no network has one less.
        let bytes = networks([0.1, 0.1, 0.3]).save("here").unwrap();
        let (loaded, _) = untrained.load("t", &bytes).unwrap();
        assert!(loaded.champion.is_same(&untrained.first));
        let other = Networks::untrained(&networks([0.4; 3]).first);
        assert!(!loaded.begin_with(&other.first));
        let error = other.load("t", &bytes).unwrap_err().to_string();
        assert!(
            error.starts_with("t: card: first: was learned from another network"),
            "{error}"
        );
    }

    #[test]
    fn a_file_of_which_a_byte_has_changed_or_the_end_is_missing_is_refused() {
        let saved = networks([0.1, 0.2, 0.3]);
        let untrained = Networks::untrained(&saved.first);
        let bytes = saved.save("here").unwrap();
        for length in 0..bytes.len() {
            assert!(untrained.load("t", &bytes[..length]).is_err());
        }
        for (at, bit) in (0..bytes.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            // A changed blank of the header has no effect.
            if let Ok((loaded, origin)) = untrained.load("t", &damaged) {
                assert_eq!(loaded.save(&origin).unwrap(), bytes, "byte {at}, bit {bit}");
            }
        }
    }

    #[test]
    fn weights_that_are_not_numbers_are_refused() {
        let saved = networks([0.1, 0.2, 0.3]);
        let bytes = saved.save("here").unwrap();
        let (_, tensors) = open(&bytes).unwrap();
        let mut champion = tensors.tensor("champion").unwrap().data().to_vec();
        champion[..4].copy_from_slice(&f32::NAN.to_le_bytes());
        let error = saved.network(&champion, "champion").unwrap_err();
        assert!(
            error.to_string().starts_with("champion.heads.0.weight: "),
            "{error}"
        );
    }
}
