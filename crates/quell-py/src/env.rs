//! `quell._core.Environments`: worlds that wait for actions, stepped over all cores with the interpreter's lock released.

use std::collections::BTreeMap;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use quell_lab::env::{Actions, Env, Knob, READINGS, Reading, Reward, Task, Vary};
use quell_link::Error;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::scenario::Scenario;
use crate::{input_error, nanos};

/// Environments of one task, numbered from 0.
#[pyclass(module = "quell._core")]
pub struct Environments {
    task: Task,
    envs: Vec<Env>,
    /// Actions as they came, and as the task takes them.
    indices: Vec<i64>,
    shares: Vec<f32>,
    actions: Vec<f64>,
    observations: Vec<f32>,
    rewards: Vec<f64>,
    over: Vec<u8>,
    /// The calling thread works too: one thread less than cores in use; None: it works alone.
    helpers: Option<ThreadPool>,
}

#[pymethods]
impl Environments {
    /// One environment per seed, at the start of its first episode, on `threads` cores (0: all).
    #[new]
    #[pyo3(signature = (scenario, queue, seeds, *, knob, bounds, initial, period_s, steps, observe, reward, vary, path = false,
        threads = 0))]
    #[allow(clippy::too_many_arguments)] // They are Python's keywords.
    fn new(
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
        threads: usize,
    ) -> PyResult<Self> {
        let mut ranges = Vary::default();
        for (key, values) in &vary {
            let set = ranges.set(key, values);
            set.map_err(|e| input_error(e.under(&format!("vary: {key}"))))?;
        }
        let (knob, cadence) = Knob::parse(knob, nanos(period_s)?).map_err(input_error)?;
        let task = Task {
            scenario: scenario.0.clone(),
            queue,
            path,
            knob,
            bounds,
            initial,
            cadence,
            actions: steps.map_or(Actions::Share, Actions::Steps),
            observe: observe
                .iter()
                .map(|name| Reading::parse(name))
                .collect::<Result<_, _>>()
                .map_err(input_error)?,
            reward: Reward::parse(reward).map_err(input_error)?,
            vary: ranges,
        };
        let task = task.checked().map_err(input_error)?;
        let n = seeds.len();
        let agents = n * task.agents();
        let envs = seeds.iter().map(|&seed| Env::new(&task, seed));
        let cores = match threads {
            0 => rayon::current_num_threads(),
            threads => threads,
        };
        let helpers = match cores.min(n) {
            0 | 1 => None,
            threads => {
                let pool = ThreadPoolBuilder::new().num_threads(threads - 1).build();
                Some(pool.map_err(input_error)?)
            }
        };
        Ok(Self {
            envs: envs.collect::<Result<_, _>>().map_err(input_error)?,
            indices: vec![0; agents],
            shares: vec![0.0; agents],
            actions: vec![0.0; agents],
            observations: vec![0.0; agents * task.width()],
            rewards: vec![0.0; agents],
            over: vec![0; n],
            helpers,
            task,
        })
    }

    /// How many agents an environment has; what they do and see stands row after row, environment by environment.
    #[getter]
    fn agents(&self) -> usize {
        self.task.agents()
    }

    /// Least and greatest value of every part of an observation.
    #[getter]
    fn ranges(&self) -> Vec<(f64, f64)> {
        self.task.ranges()
    }

    /// Gives environment `index` a new seed and begins an episode.
    fn seed(&mut self, index: usize, seed: u64) -> PyResult<()> {
        *self.at(index)? = Env::new(&self.task, seed).map_err(input_error)?;
        Ok(())
    }

    /// Begins the next episode of environment `index`.
    fn reset(&mut self, index: usize) -> PyResult<()> {
        self.at(index)?;
        self.envs[index].reset(&self.task).map_err(input_error)
    }

    /// Everything that an agent of environment `index` read of its last period, by name.
    #[pyo3(signature = (index, agent = 0))]
    fn readings(&mut self, index: usize, agent: usize) -> PyResult<BTreeMap<&'static str, f64>> {
        if agent >= self.task.agents() {
            return Err(PyValueError::new_err(format!("there is no agent {agent}")));
        }
        let all = *self.at(index)?.readings(agent);
        Ok(READINGS
            .iter()
            .map(|i| (i.name, all.get(i.reading)))
            .collect())
    }

    /// Writes what is seen now, float32, row by row.
    fn observe(&mut self, py: Python<'_>, observations: PyBuffer<f32>) -> PyResult<()> {
        let (agents, width) = (self.task.agents(), self.task.width());
        for (i, out) in self.observations.chunks_mut(width).enumerate() {
            self.envs[i / agents].observe(&self.task, i % agents, out);
        }
        observations.copy_from_slice(py, &self.observations)
    }

    /// Acts in every environment by the index of a step (int64) and goes on to the next decisions; writes observations
    /// (float32), rewards (float64) and whether episodes ended (uint8).
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

    /// As `step`, with shares of the knob's range (float32) for actions.
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
    fn at(&mut self, index: usize) -> PyResult<&mut Env> {
        let n = self.envs.len();
        self.envs.get_mut(index).ok_or_else(|| {
            PyValueError::new_err(format!("there is no environment {index} among {n}"))
        })
    }

    fn run(
        &mut self,
        py: Python<'_>,
        observations: &PyBuffer<f32>,
        rewards: &PyBuffer<f64>,
        over: &PyBuffer<u8>,
    ) -> PyResult<()> {
        for (env, actions) in self
            .envs
            .iter()
            .zip(self.actions.chunks(self.task.agents()))
        {
            for &action in actions {
                if !env.over() {
                    self.task.check_action(action).map_err(input_error)?;
                }
            }
        }
        py.detach(|| self.step_all()).map_err(input_error)?;
        observations.copy_from_slice(py, &self.observations)?;
        rewards.copy_from_slice(py, &self.rewards)?;
        over.copy_from_slice(py, &self.over)
    }

    /// Every thread steps an equal share of the environments.
    fn step_all(&mut self) -> Result<(), Error> {
        let threads = 1 + self.helpers.as_ref().map_or(0, |p| p.current_num_threads());
        let share = self.envs.len().div_ceil(threads).max(1);
        let task = &self.task;
        let agents = share * task.agents();
        let mut results = vec![Ok(()); threads];
        let mut parts = self
            .envs
            .chunks_mut(share)
            .zip(self.actions.chunks(agents))
            .zip(self.observations.chunks_mut(agents * task.width()))
            .zip(self.rewards.chunks_mut(agents))
            .zip(self.over.chunks_mut(share))
            .zip(&mut results)
            .map(
                |(((((envs, actions), seen), rewards), over), result)| Part {
                    envs,
                    actions,
                    seen,
                    rewards,
                    over,
                    result,
                },
            );
        let Some(mine) = parts.next() else {
            return Ok(());
        };
        match &self.helpers {
            None => mine.step(task),
            Some(pool) => pool.in_place_scope(|scope| {
                for part in parts {
                    scope.spawn(move |_| part.step(task));
                }
                mine.step(task);
            }),
        }
        results.into_iter().collect()
    }
}

/// What one thread does of a step.
struct Part<'a> {
    envs: &'a mut [Env],
    actions: &'a [f64],
    seen: &'a mut [f32],
    rewards: &'a mut [f64],
    over: &'a mut [u8],
    result: &'a mut Result<(), Error>,
}

impl Part<'_> {
    fn step(self, task: &Task) {
        let (agents, width) = (task.agents(), task.width());
        let acts = self.actions.chunks(agents);
        let mut seen = self.seen.chunks_mut(width).zip(self.rewards);
        for ((env, actions), over) in self.envs.iter_mut().zip(acts).zip(self.over) {
            if let Err(error) = env.step(task, actions) {
                *self.result = Err(error);
            }
            for (agent, (seen, reward)) in seen.by_ref().take(agents).enumerate() {
                env.observe(task, agent, seen);
                *reward = env.reward(agent);
            }
            *over = u8::from(env.over());
        }
    }
}

/// What can be observed: name, least, greatest value, meaning.
#[pyfunction]
pub fn readings() -> Vec<(&'static str, f64, f64, &'static str)> {
    READINGS
        .iter()
        .map(|i| (i.name, 0.0, i.most, i.meaning))
        .collect()
}
