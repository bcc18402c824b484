//! `quell._core.Dqn`: DQN training of `rlaqm`'s networks.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use quell_qdisc::control::rlaqm::dqn::{self, PeriodReward, Settings};
use quell_qdisc::policy::{Card, Policy};

use crate::input_error;

/// A network in training, its optimiser and its replay memory.
#[pyclass(module = "quell._core")]
pub struct Dqn(dqn::Dqn);

#[pymethods]
impl Dqn {
    /// Begins with random weights for a card (JSON) and widths of hidden layers, or with the
    /// weights of `model`, a policy file's bytes.
    #[new]
    #[pyo3(signature = (card, hidden, seed, *, model = None, weight = 1.0, square = true, scale_ms = 5.0, gamma = 0.95, horizon = 5,
        batch = 256, replay = 400_000, follow = 0.005, centring = 0.0, error_limit = 1.0))]
    #[allow(clippy::too_many_arguments)] // They are Python's keywords.
    fn new(
        card: &str,
        hidden: Vec<usize>,
        seed: u64,
        model: Option<&[u8]>,
        weight: f64,
        square: bool,
        scale_ms: f64,
        gamma: f64,
        horizon: usize,
        batch: usize,
        replay: usize,
        follow: f32,
        centring: f64,
        error_limit: f32,
    ) -> PyResult<Self> {
        let card = Card::from_json(card).map_err(input_error)?;
        let policy = match model {
            Some(bytes) => Policy::load("the model", bytes),
            None => {
                let layers = dqn::random_layers(&card, &hidden, seed);
                Policy::new(card, &layers)
            }
        };
        let settings = Settings {
            reward: PeriodReward {
                weight,
                square,
                scale_ms,
            },
            gamma,
            horizon,
            batch,
            replay,
            follow,
            centring,
            error_limit,
        };
        let policy = policy.map_err(input_error)?;
        dqn::Dqn::new(&policy, settings, seed)
            .map(Self)
            .map_err(input_error)
    }

    /// Adds an episode's transitions to the replay memory; returns its mean reward per decision.
    /// `inputs`: float32, a row for each decision; `actions`: float32.
    fn keep(&mut self, inputs: &[u8], actions: &[u8]) -> PyResult<f64> {
        let (inputs, actions) = (floats(inputs)?, floats(actions)?);
        let (width, rows) = (self.0.width(), actions.len());
        if inputs.len() != width * rows {
            return Err(input_error(format!(
                "{rows} actions need {rows} rows of {width} inputs, not {} numbers",
                inputs.len()
            )));
        }
        Ok(self.0.keep(&inputs, &actions))
    }

    /// Fits `count` batches, drawn with random stream `stream`, with learning rate `rate`. Returns
    /// the mean loss. Releases the interpreter's lock.
    fn fit(&mut self, py: Python<'_>, count: usize, rate: f32, stream: u64) -> PyResult<f64> {
        py.detach(|| self.0.fit(count, rate, stream))
            .map_err(input_error)
    }

    /// Adds the present weights to the mean of weights.
    fn average(&mut self) {
        self.0.average();
    }

    /// The bytes of a policy file with this card (JSON) and the present weights, or their mean.
    #[pyo3(signature = (card, *, mean = false))]
    fn model<'py>(&self, py: Python<'py>, card: &str, mean: bool) -> PyResult<Bound<'py, PyBytes>> {
        let card = Card::from_json(card).map_err(input_error)?;
        let layers = self.0.layers(mean).map_err(input_error)?;
        let bytes = Policy::save(&card, &layers).map_err(input_error)?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// The state on which the next fit depends, besides the constructor's arguments: float32 of the
    /// online, target and mean weights, Adam's first and second moments and the replay memory; the
    /// numbers of Adam's steps and of averaged weights; the baseline of rewards.
    fn state<'py>(&self, py: Python<'py>) -> (Vec<Bound<'py, PyBytes>>, u64, u32, f64) {
        let s = self.0.state();
        let all = [s.online, s.target, s.mean, s.first, s.second, s.rows];
        let bytes = |v: &Vec<f32>| {
            let bytes: Vec<u8> = v.iter().flat_map(|x| x.to_ne_bytes()).collect();
            PyBytes::new(py, &bytes)
        };
        (
            all.iter().map(bytes).collect(),
            s.steps,
            s.averaged,
            s.baseline,
        )
    }

    /// Restores a state that `state` has returned.
    fn restore(
        &mut self,
        numbers: [Vec<u8>; 6],
        steps: u64,
        averaged: u32,
        baseline: f64,
    ) -> PyResult<()> {
        let [online, target, mean, first, second, rows] = numbers.map(|bytes| floats(&bytes));
        let state = dqn::State {
            online: online?,
            target: target?,
            mean: mean?,
            first: first?,
            second: second?,
            steps,
            averaged,
            baseline,
            rows: rows?,
        };
        self.0.restore(state).map_err(input_error)
    }
}

fn floats(bytes: &[u8]) -> PyResult<Vec<f32>> {
    let (whole, rest) = bytes.as_chunks();
    if !rest.is_empty() {
        let length = bytes.len();
        return Err(input_error(format!(
            "{length} bytes are not a whole number of float32"
        )));
    }
    let of = |b: &[u8; 4]| f32::from_ne_bytes(*b);
    Ok(whole.iter().map(of).collect())
}
