//! Training of the networks that [`Policy`] evaluates: gradients, SGD and Adam, with the same bits
//! on every machine.
//!
//! The forward pass is the one of `forward.rs`. A gradient is summed by fused multiply-adds in one
//! declared order: over the rows of a batch from the first to the last, and, from a layer back to
//! its inputs, over its outputs from the first to the last. Elementary functions come from `libm`,
//! and optimisers use additions, products, quotients and square roots only, each rounded
//! separately. So a training with the same data repeats bit for bit, whatever the CPU.

use std::ops::Range;
use std::sync::Arc;

use super::card::{Activation, Card};
use super::forward::{BATCH, Cpu, add_scaled};
use super::layer::padded;
use super::mlp::{Affine, derive};
use super::{Error, Net, Policy};
use crate::num;
use crate::rng::Rng;

/// A network in training: weights, their gradients, and the last batch. Plain data: a clone
/// continues identically.
///
/// One step is [`Trainee::forward`] for a batch, [`Trainee::backward`] with the derivative of the
/// loss with respect to each output, and [`Trainee::step`]. Several calls of `forward` and
/// `backward` before a step add up their gradients.
#[derive(Clone, Debug)]
pub struct Trainee {
    policy: Policy,
    layers: Vec<Span>,
    weights: Vec<f32>,
    gradients: Vec<f32>,
    batch: Batch,
}

/// Position of a layer's numbers among all weights: the matrix row by row, then the bias.
#[derive(Clone, Debug)]
struct Span {
    inputs: usize,
    outputs: usize,
    activation: Activation,
    weight: Range<usize>,
    bias: Range<usize>,
}

/// Results of the last forward pass: the scaled inputs, then the output of each hidden layer, then
/// of each head, in rows padded to whole lines; and buffers for the backward pass.
#[derive(Clone, Debug, Default)]
struct Batch {
    rows: usize,
    values: Vec<Vec<f32>>,
    outputs: Vec<f32>,
    above: Vec<f32>,
    below: Vec<f32>,
}

impl Batch {
    /// Clears `below` for slopes of `width` values in each row.
    fn clear_below(&mut self, width: usize) {
        self.below.clear();
        self.below.resize(self.rows * padded(width), 0.0);
    }
}

/// How gradients change the weights. Plain data; its moments have the size of the first [`Trainee`]
/// that it steps.
#[derive(Clone, Debug)]
pub enum Optimizer {
    /// `w -= rate * g`.
    Sgd {
        /// Learning rate.
        rate: f32,
    },
    /// Adam (Kingma and Ba, "Adam: A Method for Stochastic Optimization", 2015, algorithm 1).
    Adam(Adam),
}

/// The settings and moments of Adam.
#[derive(Clone, Debug)]
pub struct Adam {
    /// Learning rate; a schedule sets it between steps.
    pub rate: f32,
    /// Decay of the first moment, in [0, 1).
    pub beta1: f32,
    /// Decay of the second moment, in [0, 1).
    pub beta2: f32,
    /// Added to the square root of the second moment.
    pub epsilon: f32,
    /// Steps taken.
    pub steps: u64,
    /// First moments, one per number of [`Trainee::weights`]; empty before the first step.
    pub first: Vec<f32>,
    /// Second moments, as `first`.
    pub second: Vec<f32>,
}

impl Adam {
    /// Adam with the paper's decays (.9, .999) and epsilon (1e-8), which are torch's too.
    pub fn new(rate: f32) -> Self {
        Self {
            rate,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            steps: 0,
            first: Vec::new(),
            second: Vec::new(),
        }
    }
}

/// Distribution of the initial weights; biases are 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// Uniform in ±1/√inputs, as torch's `nn.Linear`.
    Uniform,
    /// Rows (or columns, if there are fewer) that are orthogonal to each other and of this length
    /// (Saxe et al., 2014).
    Orthogonal(f32),
}

impl Affine {
    /// Initial weights of a layer, drawn from `rng`.
    pub fn random(inputs: usize, outputs: usize, init: Init, rng: &mut Rng) -> Self {
        let weight = match init {
            Init::Uniform => {
                let bound = 1.0 / libm::sqrt(inputs as f64);
                (0..inputs * outputs)
                    .map(|_| num::single((2.0 * rng.f64() - 1.0) * bound))
                    .collect()
            }
            Init::Orthogonal(gain) => orthogonal(inputs, outputs, f64::from(gain), rng),
        };
        Self {
            weight,
            bias: vec![0.0; outputs],
        }
    }
}

/// An orthogonal matrix by the Gram-Schmidt process over normal vectors, each projected twice,
/// because one projection leaves rounding errors.
fn orthogonal(inputs: usize, outputs: usize, gain: f64, rng: &mut Rng) -> Vec<f32> {
    let (count, length) = (inputs.min(outputs), inputs.max(outputs));
    let mut vectors: Vec<Vec<f64>> = Vec::with_capacity(count);
    while vectors.len() < count {
        let mut v: Vec<f64> = (0..length).map(|_| normal(rng)).collect();
        for _ in 0..2 {
            for u in &vectors {
                let along = dot(&v, u);
                v.iter_mut().zip(u).for_each(|(v, u)| *v -= along * u);
            }
        }
        let norm = libm::sqrt(dot(&v, &v));
        // A vector in the span of the others, within rounding errors, is drawn again.
        if norm > 1e-6 {
            v.iter_mut().for_each(|x| *x /= norm);
            vectors.push(v);
        }
    }
    let at = |o: usize, i: usize| {
        if outputs <= inputs {
            vectors[o][i]
        } else {
            vectors[i][o]
        }
    };
    (0..outputs)
        .flat_map(|o| (0..inputs).map(move |i| (o, i)))
        .map(|(o, i)| num::single(gain * at(o, i)))
        .collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).fold(0.0, |sum, (a, b)| sum + a * b)
}

/// Standard normal, by the method of Box and Muller.
fn normal(rng: &mut Rng) -> f64 {
    let radius = libm::sqrt(-2.0 * libm::log(1.0 - rng.f64()));
    radius * libm::cos(std::f64::consts::TAU * rng.f64())
}

impl Trainee {
    /// A network in training from its card and initial layers (the hidden ones, then the heads).
    ///
    /// # Errors
    /// As [`Policy::new`].
    pub fn new(card: Card, layers: &[Affine]) -> Result<Self, Error> {
        Ok(Self::from_policy(&Policy::new(card, layers)?))
    }

    /// A network that continues from a policy's weights.
    ///
    /// # Panics
    /// If the policy's weights are integers ([`Policy::to_integers`]).
    pub fn from_policy(policy: &Policy) -> Self {
        let (mut layers, mut weights) = (Vec::new(), Vec::new());
        for layer in policy.layers() {
            let affine = layer.unpack();
            let start = weights.len();
            weights.extend(affine.weight);
            let middle = weights.len();
            weights.extend(affine.bias);
            layers.push(Span {
                inputs: layer.inputs,
                outputs: layer.outputs,
                activation: layer.activation,
                weight: start..middle,
                bias: middle..weights.len(),
            });
        }
        Self {
            policy: policy.clone(),
            layers,
            gradients: vec![0.0; weights.len()],
            weights,
            batch: Batch::default(),
        }
    }

    /// The policy as trained so far. Later steps do not change it.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// All weights and biases: for each layer its matrix `[outputs][inputs]` row by row, then its
    /// bias.
    pub fn weights(&self) -> &[f32] {
        &self.weights
    }

    /// The gradient of each of [`Trainee::weights`], summed since the last step.
    pub fn gradients(&self) -> &[f32] {
        &self.gradients
    }

    /// Replaces all weights, in the order of [`Trainee::weights`].
    ///
    /// # Errors
    /// If a number is not finite.
    ///
    /// # Panics
    /// If their number differs.
    pub fn set_weights(&mut self, weights: &[f32]) -> Result<(), Error> {
        assert_eq!(weights.len(), self.weights.len(), "a network's weights");
        let before = std::mem::replace(&mut self.weights, weights.to_vec());
        self.repack().inspect_err(|_| self.weights = before)
    }

    /// The layers as [`Policy::new`] and [`Policy::save`] take them.
    pub fn layers(&self) -> Vec<Affine> {
        let part = |range: &Range<usize>| self.weights[range.clone()].to_vec();
        let affine = |l: &Span| Affine {
            weight: part(&l.weight),
            bias: part(&l.bias),
        };
        self.layers.iter().map(affine).collect()
    }

    /// The outputs for rows of raw inputs, the same bits as [`Policy::forward_batch`], kept for
    /// [`Trainee::backward`].
    ///
    /// # Panics
    /// If `inputs` are not whole rows.
    pub fn forward(&mut self, inputs: &[f32]) -> &[f32] {
        let policy = &self.policy;
        let (wide_in, wide_out) = (policy.inputs(), policy.outputs());
        let rows = inputs.len() / wide_in;
        assert_eq!(inputs.len(), rows * wide_in, "inputs are not whole rows");
        let hidden = policy.net.hidden.len();
        let batch = &mut self.batch;
        batch.rows = rows;
        batch.values.resize(1 + self.layers.len(), Vec::new());
        batch.values[0].resize(rows * padded(wide_in), 0.0);
        policy.scale(inputs, &mut batch.values[0]);
        let mut pairs = Vec::new();
        for (k, layer) in policy.layers().enumerate() {
            // Hidden layers read the layer before, heads the last hidden one.
            let (read, write) = batch.values.split_at_mut(1 + k);
            let (from, to) = (&read[k.min(hidden)], &mut write[0]);
            let (wide_from, wide_to) = (padded(layer.inputs), padded(layer.outputs));
            to.resize(rows * wide_to, 0.0);
            let mut done = 0;
            while done < rows {
                let n = 1 << (rows - done).min(BATCH).ilog2();
                let from = &from[done * wide_from..][..n * wide_from];
                let to = &mut to[done * wide_to..][..n * wide_to];
                layer.forward(policy.cpu, n, from, to, &mut pairs);
                done += n;
            }
        }
        batch.outputs.resize(rows * wide_out, 0.0);
        let mut at = 0;
        for (head, values) in policy.net.heads.iter().zip(&batch.values[1 + hidden..]) {
            let n = head.outputs;
            let rows = values.chunks_exact(padded(n));
            for (y, out) in rows.zip(batch.outputs.chunks_exact_mut(wide_out)) {
                out[at..at + n].copy_from_slice(&y[..n]);
            }
            at += n;
        }
        &batch.outputs
    }

    /// Adds the gradients of a loss whose derivatives with respect to the outputs of the last
    /// [`Trainee::forward`] are `slopes`, row after row. For a mean over a batch, the caller
    /// divides the slopes.
    ///
    /// # Panics
    /// If `slopes` do not fit the last batch.
    pub fn backward(&mut self, slopes: &[f32]) {
        let hidden = self.policy.net.hidden.len();
        let (rows, wide_out) = (self.batch.rows, self.policy.outputs());
        assert_eq!(slopes.len(), rows * wide_out, "slopes of the last batch");
        self.batch.clear_below(self.layers[hidden].inputs);
        let mut at = 0;
        for k in hidden..self.layers.len() {
            let n = self.layers[k].outputs;
            self.batch.above.clear();
            self.batch.above.resize(rows * padded(n), 0.0);
            let above = self.batch.above.chunks_exact_mut(padded(n));
            for (to, from) in above.zip(slopes.chunks_exact(wide_out)) {
                to[..n].copy_from_slice(&from[at..at + n]);
            }
            at += n;
            self.back(k, hidden);
        }
        for k in (0..hidden).rev() {
            std::mem::swap(&mut self.batch.above, &mut self.batch.below);
            self.batch.clear_below(self.layers[k].inputs);
            self.back(k, k);
        }
    }

    /// Backward pass of layer `k`, which reads the values with index `from`: computes gradients,
    /// and slopes in `below`, from the slopes in `above`.
    fn back(&mut self, k: usize, from: usize) {
        let (layer, batch) = (&self.layers[k], &mut self.batch);
        layer.derive(&batch.values[1 + k], &mut batch.above);
        // The derivative with respect to the policy's inputs is not needed.
        let below = (from > 0).then_some(&mut batch.below[..]);
        layer.back(
            self.policy.cpu,
            &batch.above,
            &batch.values[from],
            &self.weights,
            &mut self.gradients,
            below,
        );
    }

    /// Scales the gradients so that their Euclidean length is at most `max`; returns their length
    /// before that.
    pub fn clip(&mut self, max: f32) -> f32 {
        let square = |sum: f64, g: &f32| sum + f64::from(*g) * f64::from(*g);
        let length = num::single(libm::sqrt(self.gradients.iter().fold(0.0, square)));
        if length > max {
            let scale = max / length;
            self.gradients.iter_mut().for_each(|g| *g *= scale);
        }
        length
    }

    /// Updates the weights with their gradients, and sets the gradients to 0.
    ///
    /// # Errors
    /// If a weight would not be finite: the weights are then unchanged, and the optimiser's moments
    /// must be discarded.
    ///
    /// # Panics
    /// If the optimiser's moments are of another network.
    pub fn step(&mut self, optimizer: &mut Optimizer) -> Result<(), Error> {
        let before = self.weights.clone();
        match optimizer {
            Optimizer::Sgd { rate } => {
                for (w, g) in self.weights.iter_mut().zip(&self.gradients) {
                    *w -= *rate * g;
                }
            }
            Optimizer::Adam(adam) => adam.step(&mut self.weights, &self.gradients),
        }
        self.gradients.fill(0.0);
        self.repack().inspect_err(|_| self.weights = before)
    }

    /// Makes the policy from the weights.
    fn repack(&mut self) -> Result<(), Error> {
        let card = Arc::clone(&self.policy.card);
        self.policy.net = Arc::new(Net::pack(&card, &self.layers())?);
        Ok(())
    }
}

impl Span {
    /// Turns `slopes`, derivatives with respect to the layer's outputs, into derivatives with
    /// respect to its sums.
    fn derive(&self, outputs: &[f32], slopes: &mut [f32]) {
        let wide = padded(self.outputs);
        for (y, slopes) in outputs
            .chunks_exact(wide)
            .zip(slopes.chunks_exact_mut(wide))
        {
            derive(
                self.activation,
                &y[..self.outputs],
                &mut slopes[..self.outputs],
            );
        }
    }

    /// Adds the gradients of the layer's weights and biases, and adds to `below` the derivatives
    /// with respect to its inputs, `from`.
    fn back(
        &self,
        cpu: Cpu,
        slopes: &[f32],
        from: &[f32],
        weights: &[f32],
        gradients: &mut [f32],
        mut below: Option<&mut [f32]>,
    ) {
        let (wide_in, wide_out) = (padded(self.inputs), padded(self.outputs));
        for (row, (slopes, from)) in slopes
            .chunks_exact(wide_out)
            .zip(from.chunks_exact(wide_in))
            .enumerate()
        {
            for (o, &slope) in slopes[..self.outputs].iter().enumerate() {
                // Most slopes are 0 behind a ReLU.
                if slope == 0.0 {
                    continue;
                }
                let line =
                    self.weight.start + o * self.inputs..self.weight.start + (o + 1) * self.inputs;
                add_scaled(
                    cpu,
                    slope,
                    &from[..self.inputs],
                    &mut gradients[line.clone()],
                );
                gradients[self.bias.start + o] += slope;
                if let Some(below) = &mut below {
                    let below = &mut below[row * wide_in..][..self.inputs];
                    add_scaled(cpu, slope, &weights[line], below);
                }
            }
        }
    }
}

impl Adam {
    fn step(&mut self, weights: &mut [f32], gradients: &[f32]) {
        if self.steps == 0 {
            self.first = vec![0.0; weights.len()];
            self.second = vec![0.0; weights.len()];
        }
        assert_eq!(self.first.len(), weights.len(), "moments of this network");
        self.steps += 1;
        // Corrections of the moments' bias towards 0, in f64 because beta2 to a power is near 1.
        let kept = |beta: f32| 1.0 - libm::pow(f64::from(beta), self.steps as f64);
        let rate = num::single(f64::from(self.rate) / kept(self.beta1));
        let second = num::single(libm::sqrt(kept(self.beta2)));
        let moments = self.first.iter_mut().zip(&mut self.second);
        for ((w, g), (m, v)) in weights.iter_mut().zip(gradients).zip(moments) {
            *m = self.beta1 * *m + (1.0 - self.beta1) * g;
            *v = self.beta2 * *v + (1.0 - self.beta2) * (g * g);
            // IEEE 754 prescribes the rounding of square roots, so all CPUs give the same bits.
            *w -= rate * *m / (v.sqrt() / second + self.epsilon);
        }
    }
}
