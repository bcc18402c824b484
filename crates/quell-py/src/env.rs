//! `quell._core.Environments`: worlds that wait for actions, stepped on all cores without the
//! interpreter's lock.

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard};

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use quell_lab::env::{Actions, Env, Knob, READINGS, Randomization, Reading, Reward, Task};
use quell_lab::team::Team;
use quell_link::Error;

use crate::scenario::Scenario;
use crate::{duration, input_error};

/// Pieces of a vector per thread, so that a thread whose environments need less time takes more
/// pieces.
const PIECES: usize = 4;

/// Environments of one task, numbered from 0.
#[pyclass(module = "quell._core")]
pub struct Environments {
    task: Arc<Task>,
    /// The environments, `per_piece` in each piece.
    team: Team<Piece>,
    per_piece: usize,
    len: usize,
    names: Vec<Py<PyString>>,
    /// Actions as Python passed them, and as the task takes them.
    indices: Vec<i64>,
    shares: Vec<f32>,
    actions: Vec<f64>,
    observations: Vec<f32>,
    rewards: Vec<f64>,
    over: Vec<u8>,
}

/// Some of the environments, with the actions and results of their steps.
struct Piece {
    task: Arc<Task>,
    envs: Vec<Env>,
    actions: Vec<f64>,
    seen: Vec<f32>,
    rewards: Vec<f64>,
    over: Vec<u8>,
    result: Result<(), Error>,
}

#[pymethods]
impl Environments {
    /// One environment per seed, at the start of its first episode, on `threads` cores (0: all).
    /// With `own_law` the queue follows its own law and actions are ignored.
    #[new]
    #[pyo3(signature = (scenario, queue, seeds, *, knob, bounds, initial, period_s, steps, observe, reward, vary, path = false,
        own_law = false, along = None, threads = 0))]
    #[allow(clippy::too_many_arguments)] // These are Python's keyword arguments.
    fn new(
        py: Python<'_>,
        scenario: &Scenario,
        queue: String,
        seeds: Vec<u64>,
        knob: &str,
        bounds: (f64, f64),
        initial: f64,
        period_s: f64,
        steps: Option<Vec<f64>>,
        observe: Vec<String>,
        reward: &str,
        vary: BTreeMap<String, Vec<String>>,
        path: bool,
        own_law: bool,
        along: Option<Vec<f64>>,
        threads: usize,
    ) -> PyResult<Self> {
        let mut ranges = Randomization::default();
        for (key, values) in &vary {
            let set = ranges.set(key, values);
            set.map_err(|e| input_error(e.under(&format!("vary: {key}"))))?;
        }
        let (knob, cadence) = Knob::parse(knob, duration(period_s)?).map_err(input_error)?;
        let task = Task {
            scenario: scenario.0.clone(),
            queue,
            path,
            knob,
            bounds,
            initial,
            cadence,
            actions: match (own_law, steps, along) {
                (true, ..) => Actions::None,
                (false, Some(steps), Some(values)) => Actions::Along { values, steps },
                (false, Some(steps), None) => Actions::Steps(steps),
                (false, None, None) => Actions::Share,
                (false, None, Some(_)) => return Err(input_error("along: needs steps")),
            },
            observe: observe
                .iter()
                .map(|name| Reading::parse(name))
                .collect::<Result<_, _>>()
                .map_err(input_error)?,
            reward: Reward::parse(reward).map_err(input_error)?,
            vary: ranges,
        };
        let task = task.checked().map_err(input_error)?;
        let task = Arc::new(task);
        let envs: Result<Vec<_>, _> = seeds.iter().map(|&s| Env::new(&task, s)).collect();
        let envs = envs.map_err(input_error)?;
        Self::around(py, task, envs, threads)
    }

    /// Copies all environments in the middle of their episodes: equal actions then give equal steps
    /// in both.
    #[pyo3(name = "clone", signature = (threads = 0))]
    fn copy(&self, py: Python<'_>, threads: usize) -> PyResult<Self> {
        let pieces = (0..self.team.pieces()).map(|i| self.team.piece(i));
        let envs = pieces.flat_map(|piece| piece.envs.clone()).collect();
        Self::around(py, self.task.clone(), envs, threads)
    }

    /// Number of agents in an environment. Actions and observations have one row per agent,
    /// environment by environment.
    #[getter]
    fn agents(&self) -> usize {
        self.task.agents()
    }

    /// Least and greatest value of each feature of an observation.
    #[getter]
    fn ranges(&self) -> Vec<(f64, f64)> {
        self.task.ranges()
    }

    /// Gives environment `index` a new seed and begins an episode.
    fn seed(&self, index: usize, seed: u64) -> PyResult<()> {
        let fresh = Env::new(&self.task, seed).map_err(input_error)?;
        let (mut piece, at) = self.at(index)?;
        piece.envs[at] = fresh;
        Ok(())
    }

    /// Begins the next episode of environment `index`.
    fn reset(&self, index: usize) -> PyResult<()> {
        let (mut piece, at) = self.at(index)?;
        piece.envs[at].reset(&self.task).map_err(input_error)
    }

    /// All readings of an agent of environment `index` in the last period, by name.
    #[pyo3(signature = (index, agent = 0))]
    fn readings<'py>(
        &self,
        py: Python<'py>,
        index: usize,
        agent: usize,
    ) -> PyResult<Bound<'py, PyDict>> {
        if agent >= self.task.agents() {
            return Err(PyValueError::new_err(format!("there is no agent {agent}")));
        }
        let all = {
            let (piece, at) = self.at(index)?;
            *piece.envs[at].readings(agent)
        };
        let dict = PyDict::new(py);
        for (info, name) in READINGS.iter().zip(&self.names) {
            dict.set_item(name.bind(py), all.get(info.reading))?;
        }
        Ok(dict)
    }

    /// Writes the current observations, float32, row by row.
    fn observe(&mut self, py: Python<'_>, observations: PyBuffer<f32>) -> PyResult<()> {
        let (agents, width) = (self.task.agents(), self.task.width());
        let rows = self
            .observations
            .chunks_mut(self.per_piece * agents * width);
        for (i, out) in rows.enumerate() {
            let piece = self.team.piece(i);
            for (k, out) in out.chunks_mut(width).enumerate() {
                piece.envs[k / agents].observe(&self.task, k % agents, out);
            }
        }
        observations.copy_from_slice(py, &self.observations)
    }

    /// Takes an action in every environment, the index of a step (int64), and runs to the next
    /// decisions. Writes observations (float32), rewards (float64) and whether episodes have ended
    /// (uint8).
    fn step(
        &mut self,
        py: Python<'_>,
        actions: PyBuffer<i64>,
        observations: PyBuffer<f32>,
        rewards: PyBuffer<f64>,
        over: PyBuffer<u8>,
    ) -> PyResult<()> {
        actions.copy_to_slice(py, &mut self.indices)?;
        for (action, &index) in self.actions.iter_mut().zip(&self.indices) {
            *action = index as f64;
        }
        self.run(py, &observations, &rewards, &over)
    }

    /// Like `step`; actions (float32) set the knob to a share of its range, 0 to 1.
    fn step_to(
        &mut self,
        py: Python<'_>,
        actions: PyBuffer<f32>,
        observations: PyBuffer<f32>,
        rewards: PyBuffer<f64>,
        over: PyBuffer<u8>,
    ) -> PyResult<()> {
        actions.copy_to_slice(py, &mut self.shares)?;
        for (action, &share) in self.actions.iter_mut().zip(&self.shares) {
            *action = f64::from(share);
        }
        self.run(py, &observations, &rewards, &over)
    }
}

impl Environments {
    /// Divides environments among threads (0: all cores).
    fn around(
        py: Python<'_>,
        task: Arc<Task>,
        mut envs: Vec<Env>,
        threads: usize,
    ) -> PyResult<Self> {
        let (n, agents, width) = (envs.len(), task.agents(), task.width());
        let threads = match threads {
            0 => rayon::current_num_threads(),
            threads => threads,
        };
        let threads = threads.min(n).max(1);
        let per_piece = match threads {
            1 => n,
            threads => n.div_ceil(PIECES * threads),
        };
        let per_piece = per_piece.max(1);
        let mut pieces = Vec::with_capacity(n.div_ceil(per_piece));
        while !envs.is_empty() {
            let rest = envs.split_off(per_piece.min(envs.len()));
            let rows = envs.len() * agents;
            pieces.push(Piece {
                task: task.clone(),
                actions: vec![0.0; rows],
                seen: vec![0.0; rows * width],
                rewards: vec![0.0; rows],
                over: vec![0; envs.len()],
                result: Ok(()),
                envs,
            });
            envs = rest;
        }
        let team = Team::new(pieces, threads, Piece::step).map_err(input_error)?;
        let rows = n * agents;
        Ok(Self {
            team,
            per_piece,
            len: n,
            names: READINGS
                .iter()
                .map(|i| PyString::intern(py, i.name).unbind())
                .collect(),
            indices: vec![0; rows],
            shares: vec![0.0; rows],
            actions: vec![0.0; rows],
            observations: vec![0.0; rows * width],
            rewards: vec![0.0; rows],
            over: vec![0; n],
            task,
        })
    }

    /// The piece of environment `index`, and its index there.
    fn at(&self, index: usize) -> PyResult<(MutexGuard<'_, Piece>, usize)> {
        if index >= self.len {
            return Err(PyValueError::new_err(format!(
                "there is no environment {index} among {}",
                self.len
            )));
        }
        let piece = self.team.piece(index / self.per_piece);
        Ok((piece, index % self.per_piece))
    }

    fn run(
        &mut self,
        py: Python<'_>,
        observations: &PyBuffer<f32>,
        rewards: &PyBuffer<f64>,
        over: &PyBuffer<u8>,
    ) -> PyResult<()> {
        let agents = self.task.agents();
        let (rows, width) = (self.per_piece * agents, self.task.width());
        // All actions are checked before any is taken.
        for (i, actions) in self.actions.chunks(rows).enumerate() {
            let mut piece = self.team.piece(i);
            for (env, actions) in piece.envs.iter().zip(actions.chunks(agents)) {
                for &action in actions {
                    if !env.over() {
                        self.task.check_action(action).map_err(input_error)?;
                    }
                }
            }
            piece.actions.copy_from_slice(actions);
        }
        let team = &self.team;
        py.detach(|| team.round());
        for i in 0..team.pieces() {
            let piece = &mut *team.piece(i);
            std::mem::replace(&mut piece.result, Ok(())).map_err(input_error)?;
            let (row, env) = (i * rows, i * self.per_piece);
            self.observations[row * width..][..piece.seen.len()].copy_from_slice(&piece.seen);
            self.rewards[row..][..piece.rewards.len()].copy_from_slice(&piece.rewards);
            self.over[env..][..piece.over.len()].copy_from_slice(&piece.over);
        }
        observations.copy_from_slice(py, &self.observations)?;
        rewards.copy_from_slice(py, &self.rewards)?;
        over.copy_from_slice(py, &self.over)
    }
}

impl Piece {
    fn step(&mut self) {
        let task = &*self.task;
        // This result stays if a step panics.
        self.result = Err(Error::new("a step failed"));
        let mut result = Ok(());
        let (agents, width) = (task.agents(), task.width());
        let acts = self.actions.chunks(agents);
        let mut seen = self.seen.chunks_mut(width).zip(&mut self.rewards);
        for ((env, actions), over) in self.envs.iter_mut().zip(acts).zip(&mut self.over) {
            if let Err(error) = env.step(task, actions) {
                result = Err(error);
            }
            for (agent, (seen, reward)) in seen.by_ref().take(agents).enumerate() {
                env.observe(task, agent, seen);
                *reward = env.reward(agent);
            }
            *over = u8::from(env.over());
        }
        self.result = result;
    }
}

/// The readings that can be observed: name, least value, greatest value, meaning.
#[pyfunction]
pub fn readings() -> Vec<(&'static str, f64, f64, &'static str)> {
    READINGS
        .iter()
        .map(|i| (i.name, 0.0, i.max, i.meaning))
        .collect()
}
