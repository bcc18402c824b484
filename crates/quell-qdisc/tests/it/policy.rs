//! Policy networks: torch's and onnxruntime's answers, the same bits on every CPU, and files that
//! are refused.

use proptest::prelude::*;
use quell_qdisc::policy::{Activation, Affine, Card, Error, FORMAT, Head, Input, Origin, Policy};
use safetensors::SafeTensors;

/// Written by `tools/policy_reference.py`.
const TORCH: &[u8] = include_bytes!("../data/policy/torch.safetensors");
const EXPECTED: &[u8] = include_bytes!("../data/policy/expected.safetensors");

/// The finaliser of MurmurHash3 over an index, as a number in [-bound, bound): `hashed` of
/// `tools/policy_reference.py`.
fn hashed(n: usize, salt: u32, bound: f32) -> Vec<f32> {
    let number = |i: u32| {
        let mut x = (salt << 24).wrapping_add(i);
        x = (x ^ x >> 16).wrapping_mul(0x85eb_ca6b);
        x = (x ^ x >> 13).wrapping_mul(0xc2b2_ae35);
        x ^= x >> 16;
        ((x >> 8) as f32 / (1 << 23) as f32 - 1.0) * bound
    };
    (0..n as u32).map(number).collect()
}

/// A card for layers of these widths, from the inputs to the only head.
fn card(widths: &[usize], hidden: Activation, head: Activation) -> Card {
    let names = |n: usize| (0..n).map(|i| format!("x{i}"));
    let (&inputs, &outputs) = (&widths[0], &widths[widths.len() - 1]);
    let input = |name| Input {
        name,
        offset: 0.0,
        scale: 1.0,
    };
    Card {
        format: FORMAT,
        name: "test".into(),
        what: "weights from a hash".into(),
        inputs: names(inputs).map(input).collect(),
        hidden: vec![hidden; widths.len() - 2],
        heads: vec![Head {
            name: "y".into(),
            activation: head,
            outputs: names(outputs).collect(),
        }],
        trained_on: "nothing".into(),
        seed: 1,
        quell: "0.1.0".into(),
        results: serde_json::Map::new(),
        origin: None,
    }
}

fn layers(widths: &[usize], bound: f32) -> Vec<Affine> {
    let affine = |(i, w): (usize, &[usize])| Affine {
        weight: hashed(w[0] * w[1], 2 * i as u32 + 1, bound),
        bias: hashed(w[1], 2 * i as u32 + 2, bound),
    };
    widths.windows(2).enumerate().map(affine).collect()
}

const LFQ: [usize; 5] = [60, 256, 256, 256, 1];

fn lfq() -> Policy {
    let card = card(&LFQ, Activation::LeakyRelu, Activation::Linear);
    Policy::new(card, &layers(&LFQ, 0.25)).unwrap()
}

/// The answers of `forward_batch` for all rows, each compared with that of `forward`.
fn answers(policy: &Policy, x: &[f32]) -> Vec<f32> {
    let mut scratch = policy.scratch();
    let mut batch = vec![f32::NAN; x.len() / policy.inputs() * policy.outputs()];
    policy.forward_batch(x, &mut scratch, &mut batch);
    let mut single = Vec::new();
    for row in x.chunks_exact(policy.inputs()) {
        single.extend_from_slice(policy.forward(row, &mut scratch));
    }
    assert_eq!(bits(&single), bits(&batch), "a batch and its rows");
    single
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

fn expected(name: &str) -> Vec<f32> {
    let file = SafeTensors::deserialize(EXPECTED).unwrap();
    let tensor = file.tensor(name).unwrap();
    let (numbers, _) = tensor.data().as_chunks::<4>();
    numbers.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

/// Asserts parity: within 1e-5 * max(1, |y|).
#[track_caller]
fn assert_close(got: &[f32], want: &[f32]) {
    assert_eq!(got.len(), want.len());
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        let tolerance = 1e-5 * w.abs().max(1.0);
        assert!((g - w).abs() <= tolerance, "{i}: {g} instead of {w}");
    }
}

#[test]
fn a_file_of_torch_with_every_activation_and_four_heads_answers_as_torch_and_onnxruntime_do() {
    let policy = Policy::load("torch.safetensors", TORCH).unwrap();
    assert_eq!((policy.inputs(), policy.outputs()), (5, 3 + 5 + 10 + 1));
    assert_eq!(policy.card().results["mean_ms"], 2.27);
    let got = answers(&policy, &expected("small.x"));
    assert_close(&got, &expected("small.torch"));
    assert_close(&got, &expected("small.onnx"));
}

#[test]
fn the_network_of_lfq_answers_as_torch_and_onnxruntime_do() {
    let policy = lfq();
    // 61 * 256 + 2 * 257 * 256 + 257.
    assert_eq!(policy.parameters(), 147_457);
    let got = answers(&policy, &expected("lfq.x"));
    assert_close(&got, &expected("lfq.torch"));
    assert_close(&got, &expected("lfq.onnx"));
}

#[test]
fn integer_weights_answer_within_a_thousandth_of_the_spread_of_the_answers() {
    let (x, exact) = (expected("lfq.x"), expected("lfq.torch"));
    let got = answers(&lfq().to_integers(), &x);
    let spread = exact.iter().fold(0.0f32, |a, y| a.max(y.abs()));
    let worst = got.iter().zip(&exact).map(|(a, b)| (a - b).abs());
    let worst = worst.fold(0.0, f32::max);
    assert!(worst < 1e-3 * spread, "{worst} of {spread}");
    assert!(worst > 0.0, "nothing was rounded");
}

#[test]
fn integer_sums_hold_the_worst_case() {
    // All weights and inputs at their greatest: the sum is as large as 32 bits allow, and must not
    // wrap.
    let widths = [1, 2048, 64, 1];
    let card = card(&widths, Activation::Linear, Activation::Linear);
    let mut layers = layers(&widths, 1.0);
    for layer in &mut layers {
        layer.weight.fill(3.0);
        layer.bias.fill(0.0);
    }
    let policy = Policy::new(card, &layers).unwrap();
    let exact = 7.0 * 3.0 * (2048.0 * 3.0) * (64.0 * 3.0);
    let y = answers(&policy.to_integers(), &[7.0])[0];
    assert!((y / exact - 1.0).abs() < 1e-3, "{y} instead of {exact}");
}

#[test]
fn an_input_that_is_not_a_number_shows_in_the_answer() {
    for policy in [lfq(), lfq().to_integers()] {
        let mut x = expected("lfq.x")[..60].to_vec();
        x[17] = f32::NAN;
        let y = policy.forward(&x, &mut policy.scratch())[0];
        assert!(y.is_nan(), "{y}");
    }
}

#[test]
fn inputs_are_shifted_then_scaled() {
    let widths = [2, 1];
    let mut card = card(&widths, Activation::Linear, Activation::Linear);
    (card.inputs[0].offset, card.inputs[0].scale) = (10.0, 0.5);
    let layer = Affine {
        weight: vec![1.0, 100.0],
        bias: vec![0.25],
    };
    let policy = Policy::new(card, &[layer]).unwrap();
    let y = policy.forward(&[14.0, 3.0], &mut policy.scratch())[0];
    assert_eq!(y, (14.0 - 10.0) * 0.5 + 100.0 * 3.0 + 0.25);
}

#[test]
fn a_saved_policy_reads_back_whole() {
    let widths = [3, 70, 9, 5];
    let mut card = card(&widths, Activation::Relu, Activation::Softmax);
    card.inputs[1].offset = 0.1;
    card.results.insert("reward".into(), 0.82.into());
    let layers = layers(&widths, 1.0);
    let bytes = Policy::save(&card, &layers).unwrap();
    let (saved, read) = (
        Policy::new(card.clone(), &layers).unwrap(),
        Policy::load("", &bytes),
    );
    let read = read.unwrap();
    assert_eq!(read.card(), &card);
    let x = hashed(30, 9, 2.0);
    assert_eq!(bits(&answers(&saved, &x)), bits(&answers(&read, &x)));
    assert_eq!(Policy::save(&card, &layers).unwrap(), bytes, "same bytes");
}

fn activations() -> impl Strategy<Value = Activation> {
    use Activation::*;
    prop::sample::select(vec![Linear, Relu, LeakyRelu, Tanh, Softplus, Softmax])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn vectorised_and_portable_code_give_the_same_bits(
        widths in prop::collection::vec(1usize..140, 2..5),
        hidden in activations(),
        head in activations(),
        rows in 1usize..18,
        magnitude in -30i32..8,
    ) {
        let bound = 2f32.powi(magnitude / 4);
        let policy = Policy::new(card(&widths, hidden, head), &layers(&widths, bound)).unwrap();
        let x = hashed(rows * widths[0], 200, 2f32.powi(magnitude));
        for policy in [policy.to_integers(), policy] {
            let (fast, plain) = (answers(&policy, &x), answers(&policy.portable(), &x));
            prop_assert_eq!(bits(&fast), bits(&plain));
        }
    }

    #[test]
    fn arbitrary_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(Policy::load("x", &bytes).is_err());
    }

    #[test]
    fn arbitrary_headers_are_refused(
        header in "\\{(\"(__metadata__|layers.0.bias|a)\":(\\{(\"(quell|dtype|shape|data_offsets|format)\":(\"F32\"|\\[[0-9]{1,20},[0-9]{1,20}\\]|1|\"\\{\\}\"),?){0,4}\\}|1|null|\\[\\]),?){0,4}\\}",
        data in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.into_bytes());
        bytes.extend(data);
        prop_assert!(Policy::load("x", &bytes).is_err());
    }

    #[test]
    fn a_damaged_file_never_panics_and_a_policy_that_loads_can_be_evaluated(
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0u8..8), 1..4),
        keep in any::<prop::sample::Index>(),
        truncate in any::<bool>(),
    ) {
        let mut bytes = TORCH.to_vec();
        for (at, bit) in flips {
            // Half of the damage is in the header, which is a tenth of the file.
            let span = if bit % 2 == 0 { 2400 } else { bytes.len() };
            bytes[at.index(span)] ^= 1 << bit;
        }
        if truncate {
            bytes.truncate(keep.index(bytes.len()));
        }
        match Policy::load("x", &bytes) {
            Ok(policy) => {
                policy.forward(&[0.5; 5], &mut policy.scratch());
                policy.to_integers();
            }
            Err(e) => prop_assert!(!e.to_string().contains('\n') && e.to_string().starts_with("x: ")),
        }
    }
}

/// A file as a buggy or hostile writer might make it.
fn file(tensors: &[(&str, &str, Vec<usize>, Vec<u8>)], card: Option<String>) -> Vec<u8> {
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    if let Some(card) = card {
        header.insert("__metadata__".into(), serde_json::json!({ "quell": card }));
    }
    for (name, dtype, shape, bytes) in tensors {
        let span = [data.len(), data.len() + bytes.len()];
        data.extend_from_slice(bytes);
        let tensor = serde_json::json!({ "dtype": dtype, "shape": shape, "data_offsets": span });
        header.insert((*name).into(), tensor);
    }
    let header = serde_json::to_string(&header).unwrap();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.into_bytes());
    file.extend(data);
    file
}

fn ones(n: usize) -> Vec<u8> {
    [1f32.to_le_bytes()].concat().repeat(n)
}

fn refusal(bytes: &[u8]) -> String {
    Policy::load("bad.safetensors", bytes)
        .expect_err("refused")
        .to_string()
}

#[test]
fn a_refused_file_gets_one_line_with_the_remedy() {
    let two_to_one = |c: &dyn Fn(&mut Card)| {
        let mut card = card(&[2, 1], Activation::Linear, Activation::Linear);
        c(&mut card);
        Some(serde_json::to_string(&card).unwrap())
    };
    let good = || two_to_one(&|_| {});
    let weight = |bytes| ("heads.0.weight", "F32", vec![1, 2], bytes);
    let bias = || ("heads.0.bias", "F32", vec![1], ones(1));
    let both = || vec![weight(ones(2)), bias()];
    assert!(Policy::load("good", &file(&both(), good())).is_ok());

    let with = |value: f32| [1f32.to_le_bytes(), value.to_le_bytes()].concat();
    let again = "copy or download it again";
    let finite = "every number must be finite; did the training diverge?";
    for (bytes, line) in [
        (TORCH[..20].to_vec(), format!("the file ends within its header, or is not a safetensors file; {again}")),
        (TORCH[..9000].to_vec(), format!("layers.1.weight: this tensor ends beyond the end of the file; {again}")),
        ([TORCH, b"x"].concat(), format!("not a whole safetensors file (incomplete metadata, file not fully covered); {again}")),
        (b"# a README\n".to_vec(), format!("the file ends within its header, or is not a safetensors file; {again}")),
        (file(&both(), None), "no model card; put one into the metadata, as JSON under the key `quell`".into()),
        (file(&both(), Some("{".into())), "model card: EOF while parsing an object at line 1 column 1".into()),
        (
            file(&both(), Some(r#"{"format":3,"nonsense":[]}"#.into())),
            concat!("model card: format: format 3 is not known; this quell (", env!("CARGO_PKG_VERSION"), ") reads formats 1 to 2").into(),
        ),
        (
            file(&both(), two_to_one(&|c| c.inputs.clear())),
            "model card: inputs: 0 of them; a policy has 1 to 8192".into(),
        ),
        (
            file(&both(), good().map(|c| c.replace("\"scale\":1.0", "\"scale\":1e300"))),
            "model card: number out of range at line 1 column 104".into(),
        ),
        (
            file(&[weight(with(f32::NAN)), bias()], good()),
            format!("heads.0.weight: number 1 is NaN; {finite}"),
        ),
        (
            file(&[weight(with(f32::INFINITY)), bias()], good()),
            format!("heads.0.weight: number 1 is inf; {finite}"),
        ),
        (
            file(&[("heads.0.weight", "F32", vec![2, 1], ones(2)), bias()], good()),
            "heads.0.weight: shape [2, 1] instead of [1, 2]; weights are [outputs, inputs], as torch's nn.Linear holds them".into(),
        ),
        (
            file(&[("heads.0.weight", "F64", vec![1, 2], ones(4)), bias()], good()),
            "heads.0.weight: its type is F64; save it as F32".into(),
        ),
        (file(&[bias()], good()), "heads.0.weight: this tensor is missing; the model card calls for it".into()),
        (
            file(&[both(), vec![("layers.0.bias", "F32", vec![1], ones(1))]].concat(), good()),
            "layers.0.bias: the model card does not know this tensor".into(),
        ),
        (
            file(&both(), two_to_one(&|c| c.hidden.push(Activation::Relu))),
            "layers.0.bias: this tensor is missing; the model card calls for it".into(),
        ),
    ] {
        assert_eq!(refusal(&bytes), format!("bad.safetensors: {line}"));
    }
}

#[test]
fn a_layer_has_at_most_8192_outputs() {
    let wide = |n: usize| {
        let tensors = [
            ("layers.0.weight", "F32", vec![n, 1], ones(n)),
            ("layers.0.bias", "F32", vec![n], ones(n)),
            ("heads.0.weight", "F32", vec![1, n], ones(n)),
            ("heads.0.bias", "F32", vec![1], ones(1)),
        ];
        let card = card(&[1, n, 1], Activation::Linear, Activation::Linear);
        file(&tensors, Some(serde_json::to_string(&card).unwrap()))
    };
    assert!(Policy::load("wide", &wide(8192)).is_ok());
    assert_eq!(
        refusal(&wide(8193)),
        "bad.safetensors: layers.0: 8193 outputs; a layer has 1 to 8192"
    );
}

#[test]
fn tensors_that_end_near_2_to_the_64_are_refused() {
    // Nine tensors that pass safetensors 0.8's own checks (each has fewer than 2^64 bits) and end
    // 16 bytes before 2^64, to which it adds the header's length unchecked.
    let size = (1u64 << 61) - 4;
    let mut entries: Vec<String> = (0..8).map(|i| span(i, i * size, (i + 1) * size)).collect();
    entries.push(span(8, 8 * size, 8 * size + 16));
    let header = format!("{{{}}}", entries.join(","));
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.into_bytes());
    assert!(refusal(&bytes).contains("a0: this tensor ends beyond the end of the file"));

    fn span(i: u64, start: u64, end: u64) -> String {
        let numbers = (end - start) / 4;
        format!(r#""a{i}":{{"dtype":"F32","shape":[{numbers}],"data_offsets":[{start},{end}]}}"#)
    }
}

#[test]
fn weights_must_be_those_whose_hash_the_card_has() {
    let with = |weights_sha256: &str| {
        let mut card = card(&[2, 1], Activation::Linear, Activation::Linear);
        card.format = 2;
        card.origin = Some(Origin {
            weights_sha256: weights_sha256.into(),
            ..Origin::default()
        });
        let tensors = [
            ("heads.0.weight", "F32", vec![1, 2], ones(2)),
            ("heads.0.bias", "F32", vec![1], ones(1)),
        ];
        file(&tensors, Some(serde_json::to_string(&card).unwrap()))
    };
    // Of three times 1f32, as sha256sum prints it.
    let hash = "8a31a40ecac0ceb4d87b30bd156ca7a547e8e33dc071454b765fbc777d1c34a1";
    assert!(Policy::load("good", &with(hash)).is_ok());
    assert!(Policy::load("unknown", &with("")).is_ok());
    assert_eq!(
        refusal(&with(&hash.replace('0', "1"))),
        "bad.safetensors: model card: origin.weights_sha256: the weights are not those that were \
         saved with this card; copy or download the file again"
    );
}

#[test]
fn a_policy_that_could_not_be_loaded_is_not_saved() {
    let widths = [2, 3, 1];
    let card = card(&widths, Activation::Relu, Activation::Linear);
    let good = layers(&widths, 1.0);
    let save = |layers: &[Affine]| Policy::save(&card, layers).map_err(|e| e.to_string());
    assert_eq!(
        save(&good[..1]).unwrap_err(),
        "1 layers where the card names 2"
    );
    let mut bad = good.clone();
    bad[1].weight[2] = f32::NEG_INFINITY;
    assert!(
        save(&bad)
            .unwrap_err()
            .starts_with("heads.0.weight: number 2 is -inf")
    );
    let mut bad = good;
    bad[0].weight.pop();
    assert_eq!(
        save(&bad).unwrap_err(),
        "layers.0.weight: 5 numbers instead of 6"
    );
}

#[test]
fn an_error_is_one_line_that_names_file_key_and_remedy() {
    let error = Error {
        file: Some("a\nb".into()),
        key: Some("layers.1".into()),
        what: "\u{1b}[1m".into(),
        remedy: Some("save it again".into()),
    };
    assert_eq!(
        error.to_string(),
        "a\\nb: layers.1: \\u{1b}[1m; save it again"
    );
}

#[test]
fn tensors_for_training_alone_are_checked_and_skipped_since_format_2() {
    let with = |format: u32, name: &str, dtype: &str, bytes: Vec<u8>| {
        let mut card = card(&[2, 1], Activation::Linear, Activation::Linear);
        card.format = format;
        let tensors = [
            ("heads.0.weight", "F32", vec![1, 2], ones(2)),
            ("heads.0.bias", "F32", vec![1], ones(1)),
            (name, dtype, vec![1], bytes),
        ];
        let file = file(&tensors, Some(serde_json::to_string(&card).unwrap()));
        Policy::load("x", &file).map(|policy| policy.parameters())
    };
    for name in ["critic.layers.0.weight", "moments.first"] {
        assert_eq!(with(2, name, "F32", ones(1)), Ok(3));
        let error = with(1, name, "F32", ones(1)).unwrap_err().to_string();
        assert_eq!(
            error,
            format!("x: {name}: the model card does not know this tensor")
        );
        let error = with(2, name, "F32", f32::NAN.to_le_bytes().to_vec()).unwrap_err();
        assert_eq!(error.to_string(), format!("x: {name}: number 0 is NaN"));
        let error = with(2, name, "F16", vec![0; 2]).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("x: {name}: its type is F16; save it as F32")
        );
    }
    assert!(with(2, "other", "F32", ones(1)).is_err());
}
