//! The layout of a layer in memory, which `mlp.rs` writes and `forward.rs` reads.

use super::card::Activation;

/// Weights in one line of the layout.
pub(super) const LANES: usize = 64;
/// Inputs of integer weights are rounded to this many steps on either side of zero; with [`step`],
/// inputs and weights have about 12 bits each.
pub(super) const INTEGER_TOP: f32 = 4095.0;
/// 64 weights (or pairs of them), from a cache line's boundary on.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(super) struct Lanes<W>(pub [[W; 8]; 8]);

/// The matrix of a layer.
#[derive(Clone, Debug)]
pub(super) enum Weights {
    Panels(Vec<Lanes<f32>>),
    Rows(Vec<Lanes<f32>>),
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
    /// Zero-padded to whole lines.
    pub bias: Vec<f32>,
    pub activation: Activation,
}

/// `n` rounded up to whole lines.
pub(super) fn padded(n: usize) -> usize {
    n.next_multiple_of(LANES)
}
