//! The model card: description of a policy, its inputs and outputs, and its origin. It is stored in
//! the file.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Error;

/// The version of the file format that this quell writes; it reads all versions from 1 on. Version
/// 2 has [`Card::origin`], and the tensors from which a training resumes (`file.rs`).
pub const FORMAT: u32 = 2;
/// Largest number of hidden layers, and of heads, in one policy.
const MAX_LAYERS: usize = 32;
/// Largest number of inputs, and of outputs, of one layer.
pub(super) const MAX_WIDTH: usize = 8192;

/// The model card, JSON under the key `quell` of the file's metadata.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Card {
    /// Version of the file format, 1 to [`FORMAT`].
    pub format: u32,
    /// Short name, as in `lfq-offline-0.01`.
    pub name: String,
    /// Description, one sentence.
    pub what: String,
    /// Inputs, in order.
    pub inputs: Vec<Input>,
    /// Activation of each hidden layer, in order.
    pub hidden: Vec<Activation>,
    /// Heads, in order.
    pub heads: Vec<Head>,
    /// Training data, and the command that trained it.
    pub trained_on: String,
    /// The seed of the training.
    pub seed: u64,
    /// The version of quell that trained it.
    pub quell: String,
    /// Results, in any form.
    #[serde(default)]
    pub results: Map<String, Value>,
    /// How the policy was made, since format 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
}

/// How a policy was made: the information needed to repeat its training. Unknown fields are empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Origin {
    /// Commit of quell's source.
    pub commit: String,
    /// Versions of Python and of libraries, by name.
    pub versions: BTreeMap<String, String>,
    /// Model of the processor. Linear algebra libraries give different bits on different models.
    pub processor: String,
    /// Threads of the training; 0: unknown.
    pub threads: u32,
    /// SHA-256 of the scenario's canonical form, in hexadecimal.
    pub scenario_sha256: String,
    /// SHA-256 of all that follows the file's header, in hexadecimal.
    pub weights_sha256: String,
    /// Criterion that chose these weights among all that the training produced, as in
    /// `best mean reward on 16 validation links`.
    pub chosen_by: String,
}

/// One input. The first layer reads `(x - offset) * scale`, in f32.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Name with its unit, as in `sojourn_ms`.
    pub name: String,
    /// Subtracted from the raw input (default 0).
    #[serde(default)]
    pub offset: f32,
    /// Factor applied after the subtraction (default 1).
    #[serde(default = "one")]
    pub scale: f32,
}

fn one() -> f32 {
    1.0
}

/// One head: a linear layer on top of the last hidden one, and its activation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// Name, as in `limit`, `mean` or `action`.
    pub name: String,
    /// Activation after the linear layer.
    pub activation: Activation,
    /// The name of each output, with its unit.
    pub outputs: Vec<String>,
}

/// Activation after a linear layer, as defined by torch, with its defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Activation {
    /// None.
    Linear,
    /// `max(0, x)`.
    Relu,
    /// `x`, or `0.01 x` where x is negative.
    LeakyRelu,
    /// Hyperbolic tangent.
    Tanh,
    /// `ln(1 + exp(x))`; `x` itself above 20, as in torch.
    Softplus,
    /// `exp(x)` over the sum of all outputs' `exp`.
    Softmax,
}

/// A layer as the card declares it.
pub(super) struct Shape {
    /// Name of its tensors, without `.weight` and `.bias`.
    pub name: String,
    pub activation: Activation,
    /// Number of outputs; `None` for a hidden layer, where the length of the bias determines it.
    pub outputs: Option<usize>,
}

impl Card {
    /// The layers in order: hidden ones, then heads.
    pub(super) fn shapes(&self) -> Vec<Shape> {
        let hidden = self.hidden.iter().enumerate().map(|(i, &a)| Shape {
            name: format!("layers.{i}"),
            activation: a,
            outputs: None,
        });
        let heads = self.heads.iter().enumerate().map(|(i, h)| Shape {
            name: format!("heads.{i}"),
            activation: h.activation,
            outputs: Some(h.outputs.len()),
        });
        hidden.chain(heads).collect()
    }

    /// Refuses a card that cannot describe a network.
    pub(super) fn check(&self) -> Result<(), Error> {
        check_format(self.format)?;
        let within = |key: &str, n: usize, least: usize, most: usize| {
            if (least..=most).contains(&n) {
                return Ok(());
            }
            Err(Error::new(format!("{n} of them"))
                .remedy(format!("a policy has {least} to {most}"))
                .under(&format!("model card: {key}")))
        };
        within("inputs", self.inputs.len(), 1, MAX_WIDTH)?;
        within("hidden", self.hidden.len(), 0, MAX_LAYERS)?;
        within("heads", self.heads.len(), 1, MAX_LAYERS)?;
        for head in &self.heads {
            let key = format!("heads.{}.outputs", head.name);
            within(&key, head.outputs.len(), 1, MAX_WIDTH)?;
        }
        for input in &self.inputs {
            if !input.offset.is_finite() || !input.scale.is_finite() {
                return Err(Error::new("offset or scale is not a finite f32")
                    .under(&format!("model card: inputs.{}", input.name)));
            }
        }
        Ok(())
    }

    /// A card from its JSON. The version is checked first: cards of other versions may have another
    /// form.
    ///
    /// # Errors
    /// If its version or form is unknown.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }
        let bad = |e: serde_json::Error| Error::new(e.to_string()).under("model card");
        check_format(serde_json::from_str::<Version>(text).map_err(bad)?.format)?;
        serde_json::from_str(text).map_err(bad)
    }
}

fn check_format(format: u32) -> Result<(), Error> {
    match format {
        1..=FORMAT => Ok(()),
        _ => Err(Error::new(format!("format {format} is not known"))
            .remedy(format!(
                "this quell ({}) reads formats 1 to {FORMAT}",
                env!("CARGO_PKG_VERSION")
            ))
            .under("model card: format")),
    }
}
