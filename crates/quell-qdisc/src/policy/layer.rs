//! The layout of a layer in memory, which `mlp.rs` writes and `forward.rs` reads.

use super::card::Activation;

/// Number of weights in one line of the layout.
pub(super) const LANES: usize = 64;
/// Inputs of layers with integer weights are rounded to at most this many steps on either side of
/// zero. Inputs and weights (`step` in `mlp.rs`) so have about 12 bits each.
pub(super) const INTEGER_TOP: f32 = 4095.0;
/// 64 weights (or pairs of them), from a cache line's boundary on.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(super) struct Lanes<W>(pub [[W; 8]; 8]);

/// The matrix of a layer.
#[derive(Clone, Debug)]
pub(super) enum Weights {
    /// In panels of 64 outputs: a line per input.
    Panels(Vec<Lanes<f32>>),
    /// Row by row: for each output, its weights in lines of 64 inputs.
    Rows(Vec<Lanes<f32>>),
    /// Rounded to integers, in panels.
    Integers(Integers),
}

/// A matrix of 16-bit integers, in panels of 64 outputs and pairs of inputs.
#[derive(Clone, Debug)]
pub(super) struct Integers {
    pub lines: Vec<Lanes<[i16; 2]>>,
    /// Value of one unit of each output's weights.
    pub steps: Vec<f32>,
}

#[derive(Clone, Debug)]
pub(super) struct Layer {
    pub inputs: usize,
    pub outputs: usize,
    pub weights: Weights,
    /// One number per output, padded with zeros to whole lines.
    pub bias: Vec<f32>,
    pub activation: Activation,
}

/// `n` rounded up to whole lines.
pub(super) fn padded(n: usize) -> usize {
    n.next_multiple_of(LANES)
}
