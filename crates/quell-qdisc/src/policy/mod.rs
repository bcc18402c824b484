//! The small neural networks of learned controllers: multilayer perceptrons of f32, read from a
//! safetensors file.
//!
//! A [`Policy`] is immutable plain data behind an `Arc`, so that the clones of a world share it.
//! Evaluating it allocates nothing (the caller brings a [`Scratch`]) and gives the same bits on
//! every CPU: each sum is made of fused multiply-adds in one declared order (`forward.rs`), and
//! elementary functions come from `libm`.
//!
//! | file | holds |
//! |---|---|
//! | `card.rs` | the model card: what a policy is, its inputs, heads and origin |
//! | `layer.rs` | a layer in memory |
//! | `mlp.rs` | layers, laid out for the forward pass; activations |
//! | `forward.rs` | the vectorised sums and their portable twin |
//! | `file.rs` | the file format, read and written |
//! | `train.rs` | gradients and optimisers, for training that repeats bit for bit |

mod card;
pub(crate) mod file;
mod forward;
mod layer;
mod mlp;
mod train;

use std::sync::Arc;

pub use card::{Activation, Card, FORMAT, Head, Input, Origin};
use forward::{BATCH, Cpu};
use layer::{Layer, padded};
pub use mlp::Affine;
pub use train::{Adam, Init, Optimizer, Trainee};

pub use crate::error::Error;

/// A network with its model card. A clone shares both.
///
/// ```
/// use quell_qdisc::policy::{Affine, Card, Policy};
///
/// let card = r#"{"format": 1, "name": "sum", "what": "Twice a, plus b.", "hidden": [],
///     "inputs": [{"name": "a"}, {"name": "b"}],
///     "heads": [{"name": "sum", "activation": "linear", "outputs": ["sum"]}],
///     "trained_on": "nothing", "seed": 1, "quell": "0.2.0"}"#;
/// let layer = Affine { weight: vec![2.0, 1.0], bias: vec![0.5] };
/// let policy = Policy::new(Card::from_json(card)?, &[layer])?;
/// let mut scratch = policy.scratch();
/// assert_eq!(policy.forward(&[3.0, 4.0], &mut scratch), [10.5]);
/// # Ok::<(), quell_qdisc::policy::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Policy {
    net: Arc<Net>,
    card: Arc<Card>,
    cpu: Cpu,
}

/// The layers in the order in which they are computed: hidden ones, then the heads, which all read
/// the last hidden layer.
#[derive(Clone, Debug)]
struct Net {
    hidden: Vec<Layer>,
    heads: Vec<Layer>,
}

/// Room for the values between layers, for up to eight rows; made by [`Policy::scratch`].
#[derive(Clone, Debug)]
pub struct Scratch {
    from: Vec<f32>,
    to: Vec<f32>,
    pairs: Vec<[i16; 2]>,
    outputs: Vec<f32>,
}

impl Policy {
    /// A policy from its card and its layers: the hidden ones, then the heads.
    ///
    /// # Errors
    /// If the card contradicts itself or the shapes, or if a number is not finite.
    pub fn new(card: Card, layers: &[Affine]) -> Result<Self, Error> {
        card.check()?;
        Ok(Self {
            net: Arc::new(Net::pack(&card, layers)?),
            card: Arc::new(card),
            cpu: Cpu::Best,
        })
    }

    /// The same policy, evaluated without vector instructions: slow on a CPU without fused
    /// multiply-add, and with the same bits.
    pub fn portable(&self) -> Self {
        Self {
            cpu: Cpu::Portable,
            ..self.clone()
        }
    }

    /// The same policy with the weights of its wide hidden layers, the first excepted, rounded to
    /// integers of about 12 bits, which takes about three fifths of the time. The first layer,
    /// whose inputs have many magnitudes, and the heads, which are small, stay f32. The effect of
    /// the rounding on a controller has to be measured.
    pub fn to_integers(&self) -> Self {
        let mut net = Net::clone(&self.net);
        for layer in net.hidden.iter_mut().skip(1) {
            *layer = layer.to_integers();
        }
        Self {
            net: Arc::new(net),
            ..self.clone()
        }
    }

    /// The model card.
    pub fn card(&self) -> &Card {
        &self.card
    }

    /// Whether both share one network: one is a clone of the other.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.net, &other.net)
    }

    /// Whether another clone of this policy exists.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.net) > 1
    }

    /// Number of inputs.
    pub fn inputs(&self) -> usize {
        self.card.inputs.len()
    }

    /// Number of outputs: those of all heads, in sequence.
    pub fn outputs(&self) -> usize {
        self.net.heads.iter().map(|h| h.outputs).sum()
    }

    /// Number of weights and biases.
    pub fn parameters(&self) -> usize {
        self.layers().map(|l| (l.inputs + 1) * l.outputs).sum()
    }

    fn layers(&self) -> impl Iterator<Item = &Layer> {
        self.net.layers()
    }

    /// Room for this policy's forward pass.
    pub fn scratch(&self) -> Scratch {
        let widest = self.layers().map(|l| padded(l.inputs.max(l.outputs))).max();
        let room = vec![0.0; BATCH * widest.unwrap_or(0)];
        Scratch {
            from: room.clone(),
            to: room,
            pairs: vec![[0; 2]; widest.unwrap_or(0) / 2],
            outputs: vec![0.0; self.outputs()],
        }
    }

    /// The outputs for one row of raw (unscaled) inputs. An input that is not finite gives outputs
    /// that may not be finite either.
    ///
    /// # Panics
    /// If `inputs` is not [`Policy::inputs`] long, or `scratch` is another policy's and too small.
    #[inline]
    pub fn forward<'s>(&self, inputs: &[f32], scratch: &'s mut Scratch) -> &'s [f32] {
        let mut outputs = std::mem::take(&mut scratch.outputs);
        outputs.resize(self.outputs(), 0.0);
        self.rows(1, inputs, scratch, &mut outputs);
        scratch.outputs = outputs;
        &scratch.outputs
    }

    /// The outputs for any number of rows, row after row in `inputs` and in `outputs`. Eight rows
    /// at a time take two thirds of the time per row of [`Policy::forward`], and give the same
    /// bits.
    ///
    /// # Panics
    /// If `inputs` and `outputs` do not hold the same number of whole rows, or `scratch` is another
    /// policy's and too small.
    pub fn forward_batch(&self, inputs: &[f32], scratch: &mut Scratch, outputs: &mut [f32]) {
        let (wide_in, wide_out) = (self.inputs(), self.outputs());
        let rows = inputs.len() / wide_in;
        assert_eq!(inputs.len(), rows * wide_in, "inputs are not whole rows");
        assert_eq!(outputs.len(), rows * wide_out, "outputs do not fit inputs");
        let mut done = 0;
        while done < rows {
            // 8, 4, 2 or 1 rows.
            let n = 1 << (rows - done).min(BATCH).ilog2();
            let x = &inputs[done * wide_in..][..n * wide_in];
            let y = &mut outputs[done * wide_out..][..n * wide_out];
            self.rows(n, x, scratch, y);
            done += n;
        }
    }

    /// Scales whole rows of raw inputs into rows padded to whole lines.
    fn scale(&self, inputs: &[f32], to: &mut [f32]) {
        let n = self.inputs();
        for (x, row) in inputs.chunks_exact(n).zip(to.chunks_exact_mut(padded(n))) {
            let (scaled, padding) = row.split_at_mut(n);
            for ((x, input), y) in x.iter().zip(&self.card.inputs).zip(scaled) {
                *y = (x - input.offset) * input.scale;
            }
            padding.fill(0.0);
        }
    }

    /// Runs all layers for `rows` rows: 1, 2, 4 or [`BATCH`].
    fn rows(&self, rows: usize, inputs: &[f32], scratch: &mut Scratch, out: &mut [f32]) {
        let (mut from, mut to) = (&mut scratch.from, &mut scratch.to);
        assert_eq!(inputs.len(), rows * self.inputs(), "a policy's inputs");
        self.scale(inputs, from);
        for layer in &self.net.hidden {
            layer.forward(self.cpu, rows, from, to, &mut scratch.pairs);
            (from, to) = (to, from);
        }
        let (wide, mut at) = (self.outputs(), 0);
        for head in &self.net.heads {
            let n = head.outputs;
            head.forward(self.cpu, rows, from, to, &mut scratch.pairs);
            for (y, row) in to
                .chunks_exact(padded(n))
                .zip(out.chunks_exact_mut(wide))
                .take(rows)
            {
                row[at..at + n].copy_from_slice(&y[..n]);
            }
            at += n;
        }
    }
}

impl Net {
    /// Lays out the layers of a card, the hidden ones, then the heads.
    fn pack(card: &Card, layers: &[Affine]) -> Result<Self, Error> {
        let shapes = card.shapes();
        if layers.len() != shapes.len() {
            let (n, want) = (layers.len(), shapes.len());
            return Err(Error::new(format!(
                "{n} layers where the card names {want}"
            )));
        }
        let mut hidden = Vec::with_capacity(layers.len());
        let mut width = card.inputs.len();
        for (shape, affine) in shapes.iter().zip(layers) {
            let outputs = shape.outputs.unwrap_or(affine.bias.len());
            let layer = Layer::pack(affine, width, outputs, shape.activation)
                .map_err(|e| e.under(&shape.name))?;
            hidden.push(layer);
            if shape.outputs.is_none() {
                width = outputs;
            }
        }
        let heads = hidden.split_off(card.hidden.len());
        Ok(Self { hidden, heads })
    }

    fn layers(&self) -> impl Iterator<Item = &Layer> {
        self.hidden.iter().chain(&self.heads)
    }
}
