//! The sums of the forward pass: one plain source, compiled with AVX-512 or AVX2 and FMA for CPUs
//! that have them, and portably.
//!
//! The order of additions is the same in all of them, and so are the bits. In a panel, the sum of
//! an output starts at its bias and takes the inputs in order, each by one fused multiply-add. In
//! layers stored row by row, 64 partial sums start at zero, sum k takes inputs k, k + 64, ... in
//! order, fused; then halves are added (k and k + 32, then 16, 8, 4, 2, 1), and the bias last. A
//! fused multiply-add rounds once, as in IEEE 754, whether an instruction or `libm::fmaf` does it.
//! Sums of integers are exact. One row is bound by reading the weights from the L2 cache, so
//! vectors of 16 gain nothing; several rows are bound by multiplying, and gain.

use super::layer::{INTEGER_TOP, Integers, LANES, Lanes, Layer, Weights, padded};
use crate::num;

/// Largest number of rows that are computed together.
pub(super) const BATCH: usize = 8;

/// Whether the CPU's vector instructions are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cpu {
    Best,
    Portable,
}

/// `to = weights * from + bias` for `rows` rows, 1, 2, 4 or [`BATCH`], each padded to whole lines.
/// `pairs` is room for integer weights.
#[allow(unsafe_code)] // See the SAFETY comments.
#[inline]
pub(super) fn affine(
    cpu: Cpu,
    layer: &Layer,
    rows: usize,
    from: &[f32],
    to: &mut [f32],
    pairs: &mut [[i16; 2]],
) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{
            __m256, __m256i, __m512, _mm256_add_epi32, _mm256_fmadd_ps, _mm256_madd_epi16,
            _mm256_set1_epi32, _mm256_set1_ps, _mm512_fmadd_ps, _mm512_set1_ps,
        };
        use std::mem::transmute;

        // Functions instead of closures, since functions are inlined in every build. SAFETY of all
        // four: arrays and vectors of the same size, for which every pattern of bits is a value;
        // called only by functions that were compiled for the features.
        #[inline(always)]
        fn each(x: f32, w: &[f32; 8], sums: [f32; 8]) -> [f32; 8] {
            unsafe {
                let w = transmute::<[f32; 8], __m256>(*w);
                let sums = transmute::<[f32; 8], __m256>(sums);
                let sums = _mm256_fmadd_ps(_mm256_set1_ps(x), w, sums);
                transmute::<__m256, [f32; 8]>(sums)
            }
        }

        #[inline(always)]
        fn each_wide(x: f32, w: &[f32; 16], sums: [f32; 16]) -> [f32; 16] {
            unsafe {
                let w = transmute::<[f32; 16], __m512>(*w);
                let sums = transmute::<[f32; 16], __m512>(sums);
                let sums = _mm512_fmadd_ps(_mm512_set1_ps(x), w, sums);
                transmute::<__m512, [f32; 16]>(sums)
            }
        }

        #[inline(always)]
        fn sixteens(lanes: &Lanes<f32>) -> &[[f32; 16]; 4] {
            unsafe { transmute::<&[[f32; 8]; 8], &[[f32; 16]; 4]>(&lanes.0) }
        }

        #[inline(always)]
        fn paired(x: [i16; 2], w: &[[i16; 2]; 8], sums: [i32; 8]) -> [i32; 8] {
            unsafe {
                let x = _mm256_set1_epi32(transmute::<[i16; 2], i32>(x));
                let w = transmute::<[[i16; 2]; 8], __m256i>(*w);
                let sums = transmute::<[i32; 8], __m256i>(sums);
                let sums = _mm256_add_epi32(sums, _mm256_madd_epi16(x, w));
                transmute::<__m256i, [i32; 8]>(sums)
            }
        }

        #[target_feature(enable = "avx2,fma")]
        fn vectorised(
            layer: &Layer,
            rows: usize,
            from: &[f32],
            to: &mut [f32],
            pairs: &mut [[i16; 2]],
        ) {
            let fused = |x: f32, w, sum| x.mul_add(w, sum);
            run(layer, rows, from, to, pairs, fused, each, paired);
        }

        #[target_feature(enable = "avx512f")]
        fn wide(layer: &Layer, weights: &[Lanes<f32>], rows: usize, from: &[f32], to: &mut [f32]) {
            panels::<4, 4, 16, 4>(layer, weights, rows, from, to, sixteens, each_wide);
        }

        if cpu == Cpu::Best
            && let Weights::Panels(w) = &layer.weights
            && rows.is_multiple_of(4)
            && is_x86_feature_detected!("avx512f")
        {
            // SAFETY: the CPU has the feature that the function was compiled for.
            return unsafe { wide(layer, w, rows, from, to) };
        }
        if cpu == Cpu::Best && is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: the CPU has the two features that the function was compiled for.
            return unsafe { vectorised(layer, rows, from, to, pairs) };
        }
    }
    let _ = cpu;
    run(layer, rows, from, to, pairs, fused, each, paired);
}

/// `to += scale * from`, each by one fused multiply-add: the sums of a gradient.
#[allow(unsafe_code)] // As in `affine`.
#[inline]
pub(super) fn add_scaled(cpu: Cpu, scale: f32, from: &[f32], to: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2,fma")]
        fn vectorised(scale: f32, from: &[f32], to: &mut [f32]) {
            for (to, from) in to.iter_mut().zip(from) {
                *to = scale.mul_add(*from, *to);
            }
        }

        if cpu == Cpu::Best && is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: the CPU has the two features that the function was compiled for.
            return unsafe { vectorised(scale, from, to) };
        }
    }
    let _ = cpu;
    for (to, from) in to.iter_mut().zip(from) {
        *to = fused(scale, *from, *to);
    }
}

/// `x * w + sum`, rounded once.
#[inline(always)]
fn fused(x: f32, w: f32, sum: f32) -> f32 {
    // Only if the target has the instruction: otherwise `mul_add` would call the system's function.
    if cfg!(any(target_arch = "aarch64", target_feature = "fma")) {
        x.mul_add(w, sum)
    } else {
        libm::fmaf(x, w, sum)
    }
}

/// Adds a product to each of eight sums.
#[inline(always)]
fn each(x: f32, w: &[f32; 8], mut sums: [f32; 8]) -> [f32; 8] {
    for (sum, w) in sums.iter_mut().zip(w) {
        *sum = fused(x, *w, *sum);
    }
    sums
}

/// Adds two products to each of eight sums.
#[inline(always)]
fn paired(x: [i16; 2], w: &[[i16; 2]; 8], sums: [i32; 8]) -> [i32; 8] {
    let [a, b] = x.map(i32::from);
    std::array::from_fn(|k| {
        let products = (a * i32::from(w[k][0])).wrapping_add(b * i32::from(w[k][1]));
        sums[k].wrapping_add(products)
    })
}

#[inline(always)]
#[allow(clippy::too_many_arguments)] // Three are the operations of a CPU.
fn run(
    layer: &Layer,
    rows: usize,
    from: &[f32],
    to: &mut [f32],
    pairs: &mut [[i16; 2]],
    fused: impl Fn(f32, f32, f32) -> f32,
    each: impl Fn(f32, &[f32; 8], [f32; 8]) -> [f32; 8],
    paired: impl Fn([i16; 2], &[[i16; 2]; 8], [i32; 8]) -> [i32; 8],
) {
    match &layer.weights {
        Weights::Rows(w) => dots(layer, w, rows, from, to, fused),
        Weights::Panels(w) if rows == 1 => {
            panels::<1, 8, 8, 8>(layer, w, rows, from, to, eights, each)
        }
        Weights::Panels(w) if rows == 2 => {
            panels::<2, 4, 8, 8>(layer, w, rows, from, to, eights, each)
        }
        Weights::Panels(w) => panels::<4, 2, 8, 8>(layer, w, rows, from, to, eights, each),
        Weights::Integers(w) => {
            let (wide_in, wide_out) = (padded(layer.inputs), padded(layer.outputs));
            let rows = from.chunks_exact(wide_in).take(rows);
            for (x, y) in rows.zip(to.chunks_exact_mut(wide_out)) {
                integers(layer, w, x, y, pairs, &paired);
            }
        }
    }
}

#[inline(always)]
fn eights(lanes: &Lanes<f32>) -> &[[f32; 8]; 8] {
    &lanes.0
}

/// Multiplies `ROWS` rows with panels of 64 outputs, of which `VECTORS` of the `LINE` vectors of
/// `WIDTH` are summed at once, in registers.
#[inline(always)]
fn panels<const ROWS: usize, const VECTORS: usize, const WIDTH: usize, const LINE: usize>(
    layer: &Layer,
    weights: &[Lanes<f32>],
    rows: usize,
    from: &[f32],
    to: &mut [f32],
    vectors: impl Fn(&Lanes<f32>) -> &[[f32; WIDTH]; LINE],
    fused: impl Fn(f32, &[f32; WIDTH], [f32; WIDTH]) -> [f32; WIDTH],
) {
    let (wide_in, wide_out) = (padded(layer.inputs), padded(layer.outputs));
    for (p, panel) in weights.chunks_exact(layer.inputs).enumerate() {
        for first in (0..LINE).step_by(VECTORS) {
            let at = p * LANES + first * WIDTH;
            let (bias, _) = layer.bias[at..].as_chunks::<WIDTH>();
            for row in (0..rows).step_by(ROWS) {
                let xs: [&[f32]; ROWS] =
                    std::array::from_fn(|r| &from[(row + r) * wide_in..][..panel.len()]);
                let mut sums: [[[f32; WIDTH]; VECTORS]; ROWS] =
                    std::array::from_fn(|_| std::array::from_fn(|v| bias[v]));
                for (i, lanes) in panel.iter().enumerate() {
                    for (v, w) in vectors(lanes)[first..][..VECTORS].iter().enumerate() {
                        for r in 0..ROWS {
                            sums[r][v] = fused(xs[r][i], w, sums[r][v]);
                        }
                    }
                }
                for (r, sums) in sums.iter().enumerate() {
                    for (v, sums) in sums.iter().enumerate() {
                        to[(row + r) * wide_out + at + v * WIDTH..][..WIDTH].copy_from_slice(sums);
                    }
                }
            }
        }
    }
}

/// Multiplies each row of inputs with each row of weights.
#[inline(always)]
fn dots(
    layer: &Layer,
    weights: &[Lanes<f32>],
    rows: usize,
    from: &[f32],
    to: &mut [f32],
    fused: impl Fn(f32, f32, f32) -> f32,
) {
    let wide_in = padded(layer.inputs);
    let rows = from.chunks_exact(wide_in).take(rows);
    for (x, y) in rows.zip(to.chunks_exact_mut(LANES)) {
        y.fill(0.0);
        for (o, lines) in weights.chunks_exact(wide_in / LANES).enumerate() {
            let mut sums = [[0.0; 8]; 8];
            for (lanes, x) in lines.iter().zip(x.as_chunks::<LANES>().0) {
                for v in 0..8 {
                    for k in 0..8 {
                        sums[v][k] = fused(x[v * 8 + k], lanes.0[v][k], sums[v][k]);
                    }
                }
            }
            let mut sums: [f32; LANES] = std::array::from_fn(|k| sums[k / 8][k % 8]);
            let mut half = LANES / 2;
            while half > 0 {
                for k in 0..half {
                    sums[k] += sums[k + half];
                }
                half /= 2;
            }
            y[o] = sums[0] + layer.bias[o];
        }
    }
}

/// Multiplies one row, rounded to integers with its own step, with panels of 64 outputs and pairs
/// of inputs.
#[inline(always)]
fn integers(
    layer: &Layer,
    weights: &Integers,
    x: &[f32],
    y: &mut [f32],
    pairs: &mut [[i16; 2]],
    paired: impl Fn([i16; 2], &[[i16; 2]; 8], [i32; 8]) -> [i32; 8],
) {
    /// Added to a small f32, this leaves the nearest integer, ties to even, in the lowest bits.
    const ROUND: f32 = (3 << 22) as f32;
    // Magnitudes compare as their bits do, and NaN is the greatest: it reaches the outputs as NaN.
    let magnitude = |x: &f32| x.to_bits() & 0x7fff_ffff;
    let top = f32::from_bits(x.iter().map(magnitude).fold(0, u32::max));
    let step = top / INTEGER_TOP;
    // If a step is too small to divide by, the row counts as zero.
    let per_step = if step > 1e-30 { 1.0 / step } else { 0.0 };
    let round = |x: f32| num::low_u16((x * per_step + ROUND).to_bits().into()).cast_signed();
    let pairs = &mut pairs[..layer.inputs.div_ceil(2)];
    for (pair, x) in pairs.iter_mut().zip(x.as_chunks::<2>().0) {
        *pair = x.map(round);
    }
    for ((p, panel), y) in weights
        .lines
        .chunks_exact(pairs.len())
        .enumerate()
        .zip(y.as_chunks_mut::<LANES>().0)
    {
        let mut sums = [[0; 8]; 8];
        for (x, lanes) in pairs.iter().zip(panel) {
            for (sums, w) in sums.iter_mut().zip(&lanes.0) {
                *sums = paired(*x, w, *sums);
            }
        }
        let sums = sums.as_flattened();
        let steps = &weights.steps[p * LANES..][..LANES];
        let bias = &layer.bias[p * LANES..][..LANES];
        for k in 0..LANES {
            y[k] = sums[k] as f32 * (step * steps[k]) + bias[k];
        }
    }
}
