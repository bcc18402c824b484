//! The file: safetensors, so that Python's `safetensors` package (numpy or torch) reads and writes
//! it too.
//!
//! | tensor, all F32 | shape |
//! |---|---|
//! | `layers.0.weight`, `layers.0.bias`, `layers.1.weight`, ... | `[outputs, inputs]`, `[outputs]`: the hidden layers, in order, as torch's `nn.Linear` holds them |
//! | `heads.0.weight`, `heads.0.bias`, ... | the same, each reading the last hidden layer |
//! | `critic.*`, `moments.*`, optional, from format 2 on | any: what a training needs to resume; the policy does not read it |
//!
//! The metadata hold one key, `quell`: the [`Card`] as JSON. No other tensor may be missing, and
//! tensors with other names are refused.

use std::collections::HashMap;

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;
use serde::de::IgnoredAny;
use sha2::{Digest, Sha256};

use super::{Affine, Card, Error, Policy};
use crate::rng::fnv_1a;

/// The metadata's key.
pub(crate) const KEY: &str = "quell";

impl Policy {
    /// Reads a policy from the bytes of a file; `file` is its name, for errors.
    ///
    /// # Errors
    /// If the bytes are truncated or not a safetensors file; if the card, its version, a shape or a
    /// number is wrong; or if the SHA-256 of the weights is not the one in the card.
    pub fn load(file: &str, bytes: &[u8]) -> Result<Self, Error> {
        load(bytes).map_err(|e| e.at(file))
    }

    /// The bytes of a file that [`Policy::load`] reads back as `card` and `layers` (the hidden
    /// ones, then the heads).
    ///
    /// # Errors
    /// As [`Policy::new`]: only files that can be loaded are saved.
    pub fn save(card: &Card, layers: &[Affine]) -> Result<Vec<u8>, Error> {
        let policy = Policy::new(card.clone(), layers)?;
        let le =
            |values: &[f32]| -> Vec<u8> { values.iter().flat_map(|v| v.to_le_bytes()).collect() };
        let mut tensors = Vec::new();
        for ((shape, affine), layer) in card.shapes().iter().zip(layers).zip(policy.layers()) {
            let name = &shape.name;
            let (inputs, outputs) = (layer.inputs, layer.outputs);
            tensors.push((
                format!("{name}.weight"),
                vec![outputs, inputs],
                le(&affine.weight),
            ));
            tensors.push((format!("{name}.bias"), vec![outputs], le(&affine.bias)));
        }
        let tensors = tensors
            .iter()
            .map(|(name, shape, data)| (name.as_str(), Dtype::F32, shape.clone(), &data[..]));
        let card = serde_json::to_string(card);
        let card = card.map_err(|e| Error::new(e.to_string()).under("model card"))?;
        whole(card, tensors)
    }
}

/// The bytes of a safetensors file with this card and these tensors: name, type, shape, data.
pub(crate) fn whole<'a>(
    card: String,
    tensors: impl IntoIterator<Item = (&'a str, Dtype, Vec<usize>, &'a [u8])>,
) -> Result<Vec<u8>, Error> {
    let bad = |e: safetensors::SafeTensorError| Error::new(e.to_string());
    let view = |(name, dtype, shape, data)| Ok((name, TensorView::new(dtype, shape, data)?));
    let views: Result<Vec<_>, _> = tensors.into_iter().map(view).collect();
    let metadata = [(KEY.to_owned(), card)].into_iter().collect();
    safetensors::serialize(views.map_err(bad)?, Some(metadata)).map_err(bad)
}

/// 64-bit FNV-1a, in hexadecimal, of a card whose own checksum is empty and of the tensors' bytes.
pub(crate) fn checksum(card: &str, tensors: [&[u8]; 2]) -> String {
    let tensors = tensors.into_iter().flatten().copied();
    format!("{:016x}", fnv_1a(card.bytes().chain(tensors)))
}

/// Prefixes of the names of tensors that only a training reads.
const EXTRA: [&str; 2] = ["critic.", "moments."];

/// Opens a whole safetensors file: the text of its model card, and its tensors.
pub(crate) fn open(bytes: &[u8]) -> Result<(String, SafeTensors<'_>), Error> {
    let bad = |e: safetensors::SafeTensorError| {
        Error::new(format!("not a whole safetensors file ({e})"))
            .remedy("copy or download it again")
    };
    check_spans(bytes)?;
    let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(bad)?;
    let tensors = SafeTensors::deserialize(bytes).map_err(bad)?;
    let card = metadata.metadata().as_ref().and_then(|m| m.get(KEY));
    let card = card.ok_or_else(|| {
        Error::new("no model card").remedy(format!(
            "put one into the metadata, as JSON under the key `{KEY}`"
        ))
    })?;
    Ok((card.clone(), tensors))
}

fn load(bytes: &[u8]) -> Result<Policy, Error> {
    let (card, tensors) = open(bytes)?;
    let card = Card::from_json(&card)?;
    card.check()?;
    if let Some(origin) = &card.origin {
        check_weights(bytes, &origin.weights_sha256)?;
    }

    let mut layers = Vec::new();
    let mut width = card.inputs.len();
    for shape in card.shapes() {
        let name = |part: &str| format!("{}.{part}", shape.name);
        let tensor = |name: &str| {
            tensors.tensor(name).map_err(|_| {
                Error::new("this tensor is missing")
                    .remedy("the model card calls for it")
                    .under(name)
            })
        };
        let bias = tensor(&name("bias"))?;
        let outputs = shape
            .outputs
            .unwrap_or(bias.shape().first().copied().unwrap_or(0));
        layers.push(Affine {
            weight: numbers(
                &name("weight"),
                &tensor(&name("weight"))?,
                &[outputs, width],
            )?,
            bias: numbers(&name("bias"), &bias, &[outputs])?,
        });
        if shape.outputs.is_none() {
            width = outputs;
        }
    }
    let mut names = tensors.names();
    names.sort_unstable();
    let known: Vec<_> = card.shapes().into_iter().map(|s| s.name).collect();
    for name in names {
        match name.rsplit_once('.') {
            Some((layer, "weight" | "bias")) if known.iter().any(|k| k == layer) => {}
            _ if card.format >= 2 && EXTRA.iter().any(|extra| name.starts_with(extra)) => {
                let tensor = tensors
                    .tensor(name)
                    .map_err(|e| Error::new(e.to_string()))?;
                let values = numbers(name, &tensor, tensor.shape())?;
                if let Some(i) = values.iter().position(|v| !v.is_finite()) {
                    return Err(Error::new(format!("number {i} is {}", values[i])).under(name));
                }
            }
            _ => {
                let error = Error::new("the model card does not know this tensor");
                return Err(error.under(name));
            }
        }
    }
    Policy::new(card, &layers)
}

/// Checks the type and the shape of one tensor; returns its numbers.
fn numbers(name: &str, tensor: &TensorView, shape: &[usize]) -> Result<Vec<f32>, Error> {
    if tensor.dtype() != Dtype::F32 {
        return Err(Error::new(format!("its type is {}", tensor.dtype()))
            .remedy("save it as F32")
            .under(name));
    }
    if tensor.shape() != shape {
        return Err(
            Error::new(format!("shape {:?} instead of {shape:?}", tensor.shape()))
                .remedy("weights are [outputs, inputs], as torch's nn.Linear holds them")
                .under(name),
        );
    }
    let (numbers, _) = tensor.data().as_chunks::<4>();
    Ok(numbers.iter().map(|b| f32::from_le_bytes(*b)).collect())
}

/// Splits a file into its header and the tensors' bytes; `None` if it ends within the header.
fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)
}

/// Refuses a file whose tensors do not have the SHA-256 `expected`, in hexadecimal; empty: unknown.
fn check_weights(bytes: &[u8], expected: &str) -> Result<(), Error> {
    let Some((_, weights)) = split(bytes).filter(|_| !expected.is_empty()) else {
        return Ok(());
    };
    let found = Sha256::digest(weights);
    let found: String = found.iter().map(|byte| format!("{byte:02x}")).collect();
    if expected == found {
        return Ok(());
    }
    Err(
        Error::new("the weights are not those that were saved with this card")
            .remedy("copy or download the file again")
            .under("model card: origin.weights_sha256"),
    )
}

/// Refuses tensors that claim to end beyond the file: safetensors 0.8 adds such an end to the
/// header's length unchecked.
fn check_spans(bytes: &[u8]) -> Result<(), Error> {
    #[derive(Deserialize)]
    struct Header {
        #[serde(rename = "__metadata__")]
        _metadata: Option<IgnoredAny>,
        #[serde(flatten)]
        tensors: HashMap<String, Span>,
    }
    #[derive(Deserialize)]
    struct Span {
        data_offsets: [u64; 2],
    }
    let whole = |what: String| Error::new(what).remedy("copy or download it again");
    let truncated =
        || whole("the file ends within its header, or is not a safetensors file".into());
    let (header, data) = split(bytes).ok_or_else(truncated)?;
    let header: Header = serde_json::from_slice(header)
        .map_err(|e| whole(format!("its header does not read as safetensors' ({e})")))?;
    let mut tensors: Vec<_> = header.tensors.into_iter().collect();
    tensors.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    let length = data.len() as u64;
    match tensors
        .iter()
        .find(|(_, span)| span.data_offsets[1] > length)
    {
        None => Ok(()),
        Some((name, _)) => {
            Err(whole("this tensor ends beyond the end of the file".into()).under(name))
        }
    }
}
