//! The networks of a queue that learns, and their file, from which another queue continues.
//!
//! The file is safetensors. Each of its two tensors ([`Second`] names them) is F32 and has all
//! weights of a network in the order of [`Trainee::weights`]. Both networks have the shape of the
//! first network, which is not in the file. The metadata hold one key, `quell`: a card as JSON,
//! with a checksum.

use safetensors::{Dtype, SafeTensors};
use serde::{Deserialize, Serialize};

use crate::policy::file::{checksum, open, whole};
use crate::policy::{Error, Policy, Trainee};
use crate::rng::fnv_1a;

/// Version of the file format.
const FORMAT: u32 = 1;
/// What to do about a file that cannot be read.
const REMEDY: &str = "delete it: the queue then starts from the network that its words name";

/// Networks of a queue that learns.
#[derive(Clone, Debug)]
pub struct Networks {
    /// The network that the queue's words name, with which learning began.
    pub first: Policy,
    /// The network in force.
    pub acting: Policy,
    /// The second network, which has the shape of the first.
    pub second: Second,
}

/// What a learner keeps beside the network in force.
#[derive(Clone, Debug)]
pub enum Second {
    /// Of `rlaqm learn`: the learner's newest network. Tensors of the file: `champion` (the network
    /// in force) and `newest`.
    Newest(Policy),
    /// Of `lfq learn`: the critic. Tensors of the file: `actor` (the network in force) and
    /// `critic`.
    Critic(Critic),
}

/// A network that estimates rewards.
#[derive(Clone, Debug)]
pub struct Critic {
    /// The network.
    pub network: Policy,
    /// Number of batches with which it was trained.
    pub batches: u64,
}

impl Second {
    /// The network.
    pub fn network(&self) -> &Policy {
        match self {
            Self::Newest(network) | Self::Critic(Critic { network, .. }) => network,
        }
    }

    /// The same kind with another network, a critic with this number of batches.
    fn with(&self, network: Policy, batches: u64) -> Self {
        match self {
            Self::Newest(_) => Self::Newest(network),
            Self::Critic(_) => Self::Critic(Critic { network, batches }),
        }
    }

    /// Kind of the file in its card, and the names of the tensors of the network in force and of
    /// this one.
    fn names(&self) -> (&'static str, [&'static str; 2]) {
        match self {
            Self::Newest(_) => ("rlaqm networks", ["champion", "newest"]),
            Self::Critic(_) => ("lfq networks", ["actor", "critic"]),
        }
    }
}

/// Networks are equal if one is a clone of the other; critics, if their batches are equal, too.
impl PartialEq for Second {
    fn eq(&self, other: &Self) -> bool {
        let is_same = self.network().is_same(other.network());
        is_same
            && match (self, other) {
                (Self::Newest(_), Self::Newest(_)) => true,
                (Self::Critic(one), Self::Critic(other)) => one.batches == other.batches,
                _ => false,
            }
    }
}

/// Networks are equal if one is a clone of the other.
impl PartialEq for Networks {
    fn eq(&self, other: &Self) -> bool {
        self.first.is_same(&other.first)
            && self.acting.is_same(&other.acting)
            && self.second == other.second
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
    /// [`Critic::batches`], if there is a critic.
    #[serde(default, skip_serializing_if = "is_zero")]
    batches: u64,
    /// Version of quell that wrote it.
    quell: String,
    /// 64-bit FNV-1a, in hexadecimal, of this card as JSON with an empty checksum, followed by the
    /// bytes of the two tensors.
    checksum: String,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl Card {
    fn json(&self) -> Result<String, Error> {
        serde_json::to_string(self).map_err(|e| Error::new(e.to_string()))
    }

    /// Sets the checksum for these tensors.
    fn seal(mut self, tensors: [&[u8]; 2]) -> Result<Self, Error> {
        self.checksum.clear();
        self.checksum = checksum(&self.json()?, tensors);
        Ok(self)
    }
}

/// All weights of a network, as bytes.
fn weights(policy: &Policy) -> Vec<u8> {
    let trainee = Trainee::from_policy(policy);
    let weights = trainee.weights().iter();
    weights.flat_map(|w| w.to_le_bytes()).collect()
}

/// A hash of everything that determines a network's answers: its inputs, its shape and its weights.
fn hash(policy: &Policy) -> Result<String, Error> {
    let card = policy.card();
    let shape = serde_json::to_string(&(&card.inputs, &card.hidden, &card.heads));
    let shape = shape.map_err(|e| Error::new(e.to_string()))?;
    let bytes = shape.into_bytes().into_iter().chain(weights(policy));
    Ok(format!("{:016x}", fnv_1a(bytes)))
}

impl Networks {
    /// The networks of an `rlaqm` that has learned nothing yet.
    pub fn untrained(first: &Policy) -> Self {
        Self {
            first: first.clone(),
            acting: first.clone(),
            second: Second::Newest(first.clone()),
        }
    }

    /// These networks, if they began with the same network as `untrained` and are of the same kind;
    /// otherwise `untrained`.
    pub fn or(&self, untrained: Self) -> Self {
        let same = |hashes: (Result<String, Error>, Result<String, Error>)| match hashes {
            (Ok(one), Ok(other)) => one == other,
            _ => false,
        };
        let (first, other) = (&self.first, &untrained.first);
        let fits = self.second.names() == untrained.second.names()
            && (first.is_same(other) || same((hash(first), hash(other))));
        match fits {
            true => Self {
                first: untrained.first,
                ..self.clone()
            },
            false => untrained,
        }
    }

    /// The bytes of a file that [`Networks::load`] reads back.
    ///
    /// # Errors
    /// If the card cannot be written, which does not happen.
    pub fn save(&self, origin: &str) -> Result<Vec<u8>, Error> {
        let (kind, names) = self.second.names();
        let tensors = [weights(&self.acting), weights(self.second.network())];
        let card = Card {
            format: FORMAT,
            kind: kind.to_owned(),
            trained_on: origin.to_owned(),
            first: hash(&self.first)?,
            batches: match &self.second {
                Second::Newest(_) => 0,
                Second::Critic(critic) => critic.batches,
            },
            quell: env!("CARGO_PKG_VERSION").to_owned(),
            checksum: String::new(),
        };
        let card = card.seal([&tensors[0], &tensors[1]])?;
        let tensor = |at: usize| {
            let data = &tensors[at];
            (names[at], Dtype::F32, vec![data.len() / 4], &data[..])
        };
        whole(card.json()?, [0, 1].map(tensor))
    }

    /// Reads networks of the same kind and with the same first network as these, and their origin;
    /// `file` is the name of the file, for errors.
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
        let (kind, names) = self.second.names();
        if card.kind != kind || card.format != FORMAT {
            let what = format!("not a file of this quell with {kind}");
            return Err(wrong(&what, "card"));
        }
        let data = [tensor(&tensors, names[0])?, tensor(&tensors, names[1])?];
        let (found, origin) = (card.checksum.clone(), card.trained_on.clone());
        let (first, batches) = (card.first.clone(), card.batches);
        if card.seal(data)?.checksum != found {
            return Err(wrong("the file is not as it was written", "card: checksum"));
        }
        if first != hash(&self.first)? {
            return Err(wrong("was learned from another network", "card: first"));
        }
        let second = self.network(data[1], names[1])?;
        let networks = Self {
            first: self.first.clone(),
            acting: self.network(data[0], names[0])?,
            second: self.second.with(second, batches),
        };
        Ok((networks, origin))
    }

    /// The network with these weights; a clone of the first one, if they are its weights.
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
    use super::super::rlaqm::tests::linear;
    use super::*;

    /// Networks of one shape, with these biases: of the first, of the one in force, of the second.
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
        let [first, acting, second] = biases.map(network);
        Networks {
            first,
            acting,
            second: Second::Newest(second),
        }
    }

    /// The same with a critic.
    fn with_critic(biases: [f32; 3], batches: u64) -> Networks {
        let networks = networks(biases);
        let network = networks.second.network().clone();
        Networks {
            second: Second::Critic(Critic { network, batches }),
            ..networks
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
        assert_eq!(weights(&loaded.acting), weights(&saved.acting));
        assert_eq!(loaded.save("here").unwrap(), bytes);
        let continued = loaded.or(Networks::untrained(&saved.first));
        assert!(continued.first.is_same(&saved.first));
        assert!(continued.acting.is_same(&loaded.acting));
        // In a queue that has promoted no network, the first one is in force.
        let bytes = networks([0.1, 0.1, 0.3]).save("here").unwrap();
        let (loaded, _) = untrained.load("t", &bytes).unwrap();
        assert!(loaded.acting.is_same(&untrained.first));
        let other = Networks::untrained(&networks([0.4; 3]).first);
        assert!(loaded.or(other.clone()) == other);
        let error = other.load("t", &bytes).unwrap_err().to_string();
        assert!(
            error.starts_with("t: card: first: was learned from another network"),
            "{error}"
        );
    }

    #[test]
    fn a_file_with_a_critic_keeps_its_batches_and_does_not_load_as_another_kind() {
        let saved = with_critic([0.1, 0.2, 0.3], 7);
        let bytes = saved.save("here").unwrap();
        let untrained = with_critic([0.1, 0.1, 0.5], 0);
        let (loaded, _) = untrained.load("t", &bytes).unwrap();
        assert!(matches!(
            loaded.second,
            Second::Critic(Critic { batches: 7, .. })
        ));
        assert_eq!(loaded.save("here").unwrap(), bytes);
        let error = networks([0.1; 3]).load("t", &bytes).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("t: card: not a file of this quell with rlaqm networks; {REMEDY}")
        );
        let other = Networks::untrained(&saved.first);
        assert!(saved.or(other.clone()) == other);
    }

    #[test]
    fn a_file_of_which_a_byte_has_changed_or_the_end_is_missing_is_refused() {
        let saved = with_critic([0.1, 0.2, 0.3], 7);
        let untrained = with_critic([0.1; 3], 0);
        let bytes = saved.save("here").unwrap();
        for length in 0..bytes.len() {
            assert!(untrained.load("t", &bytes[..length]).is_err());
        }
        for (at, bit) in (0..bytes.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            // A change in the padding of the header has no effect.
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
