//! One layer: a matrix in the layout in which the forward pass reads it, a bias, and an activation.
//!
//! Wide layers are stored in panels of 64 outputs, each with the inputs consecutive: eight vectors
//! of eight sums stay in registers while the panel is read once, front to back. Layers of up to
//! eight outputs (most heads) would waste a panel; they are stored row by row, with inputs in
//! chunks of 64, and 64 partial sums are added up in a fixed tree. The layout depends on the shape
//! alone.
//!
//! Integer weights are half as long and so take half the time to read. The weights of one output
//! have a common step, as have the inputs of one row, whose largest magnitude sets it at
//! evaluation. (f16 weights would be as short, but widening them occupies the units that multiply.)
//! `cargo bench -p quell-qdisc --bench policy` compares the time of both forms.

use super::card::{Activation, MAX_WIDTH};
use super::layer::{INTEGER_TOP, Integers, LANES, Lanes, Layer, Weights, padded};
use super::{Error, forward, forward::Cpu};
use crate::num;

/// Layers with at most this many outputs are stored row by row.
const MAX_BY_ROW: usize = 8;
/// Slope of the leaky ReLU for negative x: torch's default, and LFQ's.
const LEAK: f32 = 0.01;
/// Above this, torch's softplus is the identity.
const SOFTPLUS_LINEAR: f32 = 20.0;

/// A linear layer as torch's `nn.Linear` holds it.
#[derive(Clone, Debug, PartialEq)]
pub struct Affine {
    /// `[outputs][inputs]`, row by row.
    pub weight: Vec<f32>,
    /// One per output.
    pub bias: Vec<f32>,
}

impl Layer {
    /// Lays out `affine`.
    pub fn pack(
        affine: &Affine,
        inputs: usize,
        outputs: usize,
        activation: Activation,
    ) -> Result<Self, Error> {
        if !(1..=MAX_WIDTH).contains(&outputs) {
            return Err(Error::new(format!("{outputs} outputs"))
                .remedy(format!("a layer has 1 to {MAX_WIDTH}")));
        }
        for (name, values, due) in [
            ("weight", &affine.weight, inputs * outputs),
            ("bias", &affine.bias, outputs),
        ] {
            if values.len() != due {
                let n = values.len();
                return Err(Error::new(format!("{n} numbers instead of {due}")).under(name));
            }
            if let Some(i) = values.iter().position(|v| !v.is_finite()) {
                let v = values[i];
                return Err(Error::new(format!("number {i} is {v}"))
                    .remedy("every number must be finite; did the training diverge?")
                    .under(name));
            }
        }
        let mut bias = affine.bias.clone();
        bias.resize(padded(outputs), 0.0);
        let zero = Lanes([[0.0; 8]; 8]);
        let by_row = outputs <= MAX_BY_ROW;
        let mut lines = if by_row {
            vec![zero; outputs * inputs.div_ceil(LANES)]
        } else {
            vec![zero; outputs.div_ceil(LANES) * inputs]
        };
        for (o, row) in affine.weight.chunks_exact(inputs).enumerate() {
            for (i, &w) in row.iter().enumerate() {
                let (line, lane) = place(by_row, inputs, o, i);
                lines[line].0[lane / 8][lane % 8] = w;
            }
        }
        Ok(Self {
            inputs,
            outputs,
            weights: if by_row {
                Weights::Rows(lines)
            } else {
                Weights::Panels(lines)
            },
            bias,
            activation,
        })
    }

    /// The layer as it was given to [`Layer::pack`].
    ///
    /// # Panics
    /// If its weights are integers.
    pub fn unpack(&self) -> Affine {
        let (by_row, lines) = match &self.weights {
            Weights::Rows(lines) => (true, lines),
            Weights::Panels(lines) => (false, lines),
            Weights::Integers(_) => panic!("weights that were rounded to integers"),
        };
        let mut weight = Vec::with_capacity(self.inputs * self.outputs);
        for o in 0..self.outputs {
            for i in 0..self.inputs {
                let (line, lane) = place(by_row, self.inputs, o, i);
                weight.push(lines[line].0[lane / 8][lane % 8]);
            }
        }
        Affine {
            weight,
            bias: self.bias[..self.outputs].to_vec(),
        }
    }

    /// The layer with its weights rounded to integers; a layer with few outputs is not changed.
    pub fn to_integers(&self) -> Self {
        let Weights::Panels(panels) = &self.weights else {
            return self.clone();
        };
        let mut integers = Integers {
            lines: vec![
                Lanes([[[0; 2]; 8]; 8]);
                self.outputs.div_ceil(LANES) * self.inputs.div_ceil(2)
            ],
            steps: vec![0.0; padded(self.outputs)],
        };
        for (p, (panel, lines)) in panels
            .chunks_exact(self.inputs)
            .zip(integers.lines.chunks_exact_mut(self.inputs.div_ceil(2)))
            .enumerate()
        {
            for lane in 0..LANES {
                let row = panel.iter().map(|l| f64::from(l.0[lane / 8][lane % 8]));
                let step = step(row.clone(), self.inputs);
                integers.steps[p * LANES + lane] = num::single(step);
                if step > 0.0 {
                    for (i, w) in row.enumerate() {
                        lines[i / 2].0[lane / 8][lane % 8][i % 2] =
                            num::whole_i16(libm::rint(w / step));
                    }
                }
            }
        }
        Self {
            weights: Weights::Integers(integers),
            ..self.clone()
        }
    }

    /// `to = activation(weights * from + bias)` for `rows` rows, each padded to whole lines.
    #[inline]
    pub fn forward(
        &self,
        cpu: Cpu,
        rows: usize,
        from: &[f32],
        to: &mut [f32],
        pairs: &mut [[i16; 2]],
    ) {
        forward::affine(cpu, self, rows, from, to, pairs);
        for row in to.chunks_exact_mut(padded(self.outputs)).take(rows) {
            activate(self.activation, &mut row[..self.outputs]);
        }
    }
}

/// Line and lane of the weight of output `o` for input `i`, stored by row or in panels.
fn place(by_row: bool, inputs: usize, o: usize, i: usize) -> (usize, usize) {
    if by_row {
        (o * inputs.div_ceil(LANES) + i / LANES, i % LANES)
    } else {
        (o / LANES * inputs + i, o % LANES)
    }
}

/// The smallest step with which one output's weights fit 16 bits and its sum fits 32 bits for any
/// inputs.
fn step(weights: impl Iterator<Item = f64>, inputs: usize) -> f64 {
    let (mut top, mut sum) = (0.0f64, 0.0);
    for w in weights {
        top = top.max(w.abs());
        sum += w.abs();
    }
    // Rounding adds at most half a step per weight.
    let room = f64::from(i32::MAX) / f64::from(INTEGER_TOP) - inputs as f64;
    (top / f64::from(i16::MAX)).max(sum / room)
}

/// Applies `activation` to one row.
fn activate(activation: Activation, row: &mut [f32]) {
    match activation {
        Activation::Linear => {}
        Activation::Relu => each(row, |x| if x < 0.0 { 0.0 } else { x }),
        Activation::LeakyRelu => each(row, |x| if x < 0.0 { LEAK * x } else { x }),
        Activation::Tanh => each(row, libm::tanhf),
        Activation::Softplus => each(row, |x| {
            if x > SOFTPLUS_LINEAR {
                x
            } else {
                libm::log1pf(libm::expf(x))
            }
        }),
        Activation::Softmax => {
            // Subtract the greatest, so that no exponential overflows.
            let top = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            each(row, |x| libm::expf(x - top));
            let sum = row.iter().fold(0.0, |a, x| a + x);
            each(row, |x| x / sum);
        }
    }
}

/// Turns `slopes`, derivatives with respect to the outputs of `activation`, into derivatives with
/// respect to its inputs.
pub(super) fn derive(activation: Activation, outputs: &[f32], slopes: &mut [f32]) {
    let mut each = |f: fn(f32) -> f32| {
        for (slope, y) in slopes.iter_mut().zip(outputs) {
            *slope *= f(*y);
        }
    };
    match activation {
        Activation::Linear => {}
        // 0 at 0, as in torch.
        Activation::Relu => each(|y| f32::from(u8::from(y > 0.0))),
        Activation::LeakyRelu => each(|y| if y > 0.0 { 1.0 } else { LEAK }),
        Activation::Tanh => each(|y| 1.0 - y * y),
        // The logistic function of the input, from y = ln(1 + exp(x)).
        Activation::Softplus => each(|y| -libm::expm1f(-y)),
        Activation::Softmax => {
            let mean = slopes
                .iter()
                .zip(outputs)
                .fold(0.0, |sum, (s, y)| sum + s * y);
            for (slope, y) in slopes.iter_mut().zip(outputs) {
                *slope = y * (*slope - mean);
            }
        }
    }
}

#[inline]
fn each(row: &mut [f32], f: impl Fn(f32) -> f32) {
    row.iter_mut().for_each(|x| *x = f(*x));
}
