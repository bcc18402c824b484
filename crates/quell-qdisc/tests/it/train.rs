//! Training of policies: gradients compared with finite differences, the same bits on every CPU,
//! and steps that are refused.

use quell_qdisc::Rng;
use quell_qdisc::policy::{
    Activation, Adam, Affine, Card, FORMAT, Head, Init, Input, Optimizer, Policy, Trainee,
};

/// A card with these inputs, hidden activations and heads.
fn card(inputs: usize, hidden: &[Activation], heads: &[(Activation, usize)]) -> Card {
    let names = |n: usize| (0..n).map(|i| format!("x{i}"));
    let input = |name| Input {
        name,
        offset: 0.25,
        scale: 1.5,
    };
    let head = |(i, &(activation, n)): (usize, &(Activation, usize))| Head {
        name: format!("head{i}"),
        activation,
        outputs: names(n).collect(),
    };
    Card {
        format: FORMAT,
        name: "test".into(),
        what: "a network in training".into(),
        inputs: names(inputs).map(input).collect(),
        hidden: hidden.to_vec(),
        heads: heads.iter().enumerate().map(head).collect(),
        trained_on: "nothing".into(),
        seed: 1,
        quell: "0.1.0".into(),
        results: serde_json::Map::new(),
        origin: None,
    }
}

fn trainee(
    inputs: usize,
    hidden: &[(Activation, usize)],
    heads: &[(Activation, usize)],
    rng: &mut Rng,
) -> Trainee {
    let activations: Vec<_> = hidden.iter().map(|h| h.0).collect();
    let mut layers = Vec::new();
    let mut width = inputs;
    for &(_, n) in hidden {
        layers.push(Affine::random(width, n, Init::Uniform, rng));
        width = n;
    }
    for &(_, n) in heads {
        layers.push(Affine::random(width, n, Init::Uniform, rng));
    }
    // Biases other than 0, so that an error in their use shows.
    for layer in &mut layers {
        layer.bias.fill_with(|| rng.f64() as f32 - 0.5);
    }
    Trainee::new(card(inputs, &activations, heads), &layers).unwrap()
}

fn numbers(n: usize, rng: &mut Rng) -> Vec<f32> {
    (0..n).map(|_| 2.0 * rng.f64() as f32 - 1.0).collect()
}

/// The network in f64, by the definitions of its activations: outputs for one row.
fn outputs(net: &Trainee, weights: &[f64], x: &[f32]) -> Vec<f64> {
    let card = net.policy().card();
    let mut values: Vec<f64> = x.iter().map(|x| (f64::from(*x) - 0.25) * 1.5).collect();
    let layers = net.layers();
    let (mut at, mut out) = (0, Vec::new());
    for (k, layer) in layers.iter().enumerate() {
        let (n, wide) = (layer.bias.len(), values.len());
        let bias = at + n * wide;
        let sums = (0..n).map(|o| {
            let row = &weights[at + o * wide..][..wide];
            weights[bias + o] + row.iter().zip(&values).map(|(w, x)| w * x).sum::<f64>()
        });
        let sums: Vec<f64> = sums.collect();
        at = bias + n;
        let activation = match card.hidden.get(k) {
            Some(activation) => *activation,
            None => card.heads[k - card.hidden.len()].activation,
        };
        let total: f64 = sums.iter().map(|s| s.exp()).sum();
        let f = |s: f64| match activation {
            Activation::Relu => s.max(0.0),
            Activation::LeakyRelu => s.max(0.01 * s),
            Activation::Tanh => s.tanh(),
            Activation::Softplus => s.exp().ln_1p(),
            Activation::Softmax => s.exp() / total,
            _ => s,
        };
        let y: Vec<f64> = sums.into_iter().map(f).collect();
        if k < card.hidden.len() {
            values = y;
        } else {
            out.extend(y);
        }
    }
    out
}

#[test]
fn gradients_are_those_of_small_differences() {
    use Activation::{LeakyRelu, Linear, Relu, Softmax, Softplus, Tanh};
    let mut rng = Rng::new(1, "gradients");
    type Widths = Vec<(Activation, usize)>;
    let shapes: [(usize, Widths, Widths); 4] = [
        (3, vec![], vec![(Softmax, 4)]),
        (5, vec![(Tanh, 7)], vec![(Linear, 1), (Softplus, 2)]),
        (
            4,
            vec![(Relu, 70), (LeakyRelu, 9)],
            vec![(Softmax, 3), (Tanh, 12)],
        ),
        (66, vec![(Softplus, 5), (Softmax, 6)], vec![(LeakyRelu, 9)]),
    ];
    for (inputs, hidden, heads) in shapes {
        let mut net = trainee(inputs, &hidden, &heads, &mut rng);
        for rows in [1, 7, 11] {
            let x = numbers(rows * inputs, &mut rng);
            let wide = net.policy().outputs();
            // The loss is the sum of the outputs weighted by `slopes`.
            let slopes = numbers(rows * wide, &mut rng);
            net.forward(&x);
            net.backward(&slopes);
            let weights: Vec<f64> = net.weights().iter().map(|w| f64::from(*w)).collect();
            let loss = |weights: &[f64]| -> f64 {
                let rows = x.chunks_exact(inputs).zip(slopes.chunks_exact(wide));
                let dot = |(x, s): (&[f32], &[f32])| -> f64 {
                    let y = outputs(&net, weights, x);
                    y.iter().zip(s).map(|(y, s)| y * f64::from(*s)).sum()
                };
                rows.map(dot).sum()
            };
            for _ in 0..60 {
                let k = rng.below(weights.len() as u64) as usize;
                let moved = |by: f64| {
                    let mut weights = weights.clone();
                    weights[k] += by;
                    loss(&weights)
                };
                let expected = (moved(1e-6) - moved(-1e-6)) / 2e-6;
                let got = f64::from(net.gradients()[k]);
                assert!(
                    (got - expected).abs() < 1e-4 + 1e-4 * expected.abs(),
                    "{hidden:?} {heads:?}, number {k}: {got}, by differences {expected}"
                );
            }
            net.step(&mut Optimizer::Sgd { rate: 0.01 }).unwrap();
        }
    }
}

#[test]
fn the_forward_pass_has_the_bits_of_the_policy() {
    let mut rng = Rng::new(2, "forward");
    let (hidden, heads) = (
        [(Activation::Tanh, 65)],
        [(Activation::Linear, 3), (Activation::Softplus, 9)],
    );
    let mut net = trainee(6, &hidden, &heads, &mut rng);
    let x = numbers(13 * 6, &mut rng);
    let mut y = vec![0.0; 13 * 12];
    let policy = net.policy().clone();
    policy.forward_batch(&x, &mut policy.scratch(), &mut y);
    assert_eq!(net.forward(&x), y);
}

/// Trains the network on the product of its two inputs; returns the last loss.
fn learn(net: &mut Trainee, optimizer: &mut Optimizer, steps: usize, rng: &mut Rng) -> f32 {
    let mut loss = 0.0;
    for _ in 0..steps {
        let x = numbers(32 * 2, rng);
        let y = net.forward(&x);
        let rows = x.chunks_exact(2).zip(y);
        let errors: Vec<f32> = rows.map(|(x, y)| y - x[0] * x[1]).collect();
        loss = errors.iter().fold(0.0, |sum, e| sum + e * e) / 32.0;
        let slopes: Vec<f32> = errors.iter().map(|e| 2.0 * e / 32.0).collect();
        net.backward(&slopes);
        net.clip(1.0);
        net.step(optimizer).unwrap();
    }
    loss
}

const HIDDEN: [(Activation, usize); 2] = [(Activation::Tanh, 32), (Activation::Relu, 32)];

#[test]
fn both_optimizers_learn_a_product() {
    for (optimizer, steps, most) in [
        (Optimizer::Adam(Adam::new(0.01)), 600, 0.002),
        (Optimizer::Sgd { rate: 0.2 }, 3000, 0.01),
    ] {
        let (mut rng, mut optimizer) = (Rng::new(3, "learn"), optimizer);
        let mut net = trainee(2, &HIDDEN, &[(Activation::Linear, 1)], &mut rng);
        let first = learn(&mut net, &mut optimizer, 1, &mut rng);
        let last = learn(&mut net, &mut optimizer, steps, &mut rng);
        assert!(
            last < most && last < 0.1 * first,
            "{optimizer:?}: {first} to {last}"
        );
    }
}

#[test]
fn a_training_has_the_same_bits_without_vector_instructions_and_in_a_clone() {
    let train = |portable: bool, clone_at: usize| {
        let mut rng = Rng::new(4, "bits");
        let mut net = trainee(2, &HIDDEN, &[(Activation::Linear, 1)], &mut rng);
        if portable {
            net = Trainee::from_policy(&net.policy().portable());
        }
        let mut adam = Optimizer::Adam(Adam::new(0.01));
        learn(&mut net, &mut adam, clone_at, &mut rng);
        let (mut net, mut adam) = (net.clone(), adam.clone());
        learn(&mut net, &mut adam, 100 - clone_at, &mut rng);
        net.weights()
            .iter()
            .map(|w| w.to_bits())
            .collect::<Vec<_>>()
    };
    let bits = train(false, 0);
    assert_eq!(bits, train(true, 0));
    assert_eq!(bits, train(false, 37));
    // These bits are part of the contract: a training repeats on every machine.
    let hash = bits.iter().fold(0u64, |h, b| {
        (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3)
    });
    assert_eq!(hash, 0x6c49_0f73_c993_3171, "{hash:#x}");
}

#[test]
fn the_first_step_of_adam_is_the_rate_in_the_direction_of_each_sign() {
    let affine = Affine {
        weight: vec![1.0, -2.0],
        bias: vec![0.5],
    };
    let mut net = Trainee::new(card(2, &[], &[(Activation::Linear, 1)]), &[affine]).unwrap();
    // Scaled inputs: 1.5 and -0.375; the gradients are these, and 1 for the bias.
    net.forward(&[1.25, 0.0]);
    net.backward(&[1.0]);
    assert_eq!(net.gradients(), [1.5, -0.375, 1.0]);
    net.step(&mut Optimizer::Adam(Adam::new(0.125))).unwrap();
    for (got, due) in net.weights().iter().zip([0.875, -1.875, 0.375]) {
        assert!((got - due).abs() < 1e-6, "{got}, not {due}");
    }
    assert_eq!(net.gradients(), [0.0; 3]);
}

#[test]
fn gradients_add_up_until_a_step_and_are_clipped_by_length() {
    let mut rng = Rng::new(5, "clip");
    let mut net = trainee(2, &HIDDEN, &[(Activation::Linear, 1)], &mut rng);
    let once = |net: &mut Trainee| {
        net.forward(&[0.3, -0.7]);
        net.backward(&[1.0]);
    };
    once(&mut net);
    let single = net.gradients().to_vec();
    once(&mut net);
    assert!(
        net.gradients()
            .iter()
            .zip(&single)
            .all(|(g, s)| *g == 2.0 * s)
    );
    let length = net.clip(0.5);
    assert!(length > 0.5);
    assert!(
        (net.clip(1.0) - 0.5).abs() < 1e-6,
        "not longer than 1: unchanged"
    );
}

#[test]
fn a_step_to_a_number_that_is_not_finite_is_refused_and_changes_no_weight() {
    let mut rng = Rng::new(6, "diverge");
    let mut net = trainee(2, &HIDDEN, &[(Activation::Linear, 1)], &mut rng);
    let before = (net.weights().to_vec(), net.policy().clone());
    net.forward(&[1.0, 1.0]);
    net.backward(&[f32::INFINITY]);
    let error = net.step(&mut Optimizer::Sgd { rate: 1.0 }).unwrap_err();
    assert!(
        error.to_string().contains("did the training diverge?"),
        "{error}"
    );
    assert_eq!(net.weights(), before.0);
    let policy = before.1;
    let y = policy.forward(&[1.0, 1.0], &mut policy.scratch()).to_vec();
    assert_eq!(net.forward(&[1.0, 1.0]), y);
    let mut other = net.weights().to_vec();
    other[0] = f32::NAN;
    assert!(net.set_weights(&other).is_err());
    assert_eq!(net.weights(), before.0);
}

#[test]
fn a_training_continues_from_a_saved_policy() {
    let mut rng = Rng::new(7, "saved");
    let net = trainee(5, &HIDDEN, &[(Activation::Linear, 2)], &mut rng);
    let bytes = Policy::save(net.policy().card(), &net.layers()).unwrap();
    let loaded = Trainee::from_policy(&Policy::load("x.safetensors", &bytes).unwrap());
    assert_eq!(loaded.weights(), net.weights());
    assert_eq!(loaded.layers(), net.layers());
}

#[test]
fn orthogonal_weights_have_orthogonal_rows_or_columns_of_the_gain() {
    let mut rng = Rng::new(8, "orthogonal");
    for (inputs, outputs) in [(12, 5), (5, 12), (32, 32), (1, 1)] {
        let w = Affine::random(inputs, outputs, Init::Orthogonal(0.5), &mut rng).weight;
        let count = inputs.min(outputs);
        let at = |k: usize, j: usize| {
            if outputs <= inputs {
                w[k * inputs + j]
            } else {
                w[j * inputs + k]
            }
        };
        for a in 0..count {
            for b in 0..count {
                let dot: f32 = (0..inputs.max(outputs)).map(|j| at(a, j) * at(b, j)).sum();
                let due = if a == b { 0.25 } else { 0.0 };
                assert!(
                    (dot - due).abs() < 1e-6,
                    "{inputs} to {outputs}: {a}, {b}: {dot}"
                );
            }
        }
    }
}
