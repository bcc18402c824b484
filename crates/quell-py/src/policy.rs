//! `quell._core.Policy`: a policy network as evaluated by controllers.

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use quell_qdisc::policy;

use crate::input_error;

/// A network with its model card. Immutable.
#[pyclass(frozen, module = "quell._core")]
pub struct Policy(policy::Policy);

#[pymethods]
impl Policy {
    /// Reads a policy file's bytes; `file` is its name, for errors. With `integers` the weights of
    /// wide hidden layers are rounded to about 12 bits.
    #[new]
    #[pyo3(signature = (file, data, *, integers = false))]
    fn new(file: &str, data: &[u8], integers: bool) -> PyResult<Self> {
        let policy = policy::Policy::load(file, data).map_err(input_error)?;
        Ok(Self(match integers {
            true => policy.to_integers(),
            false => policy,
        }))
    }

    /// The model card as JSON.
    #[getter]
    fn card(&self) -> PyResult<String> {
        serde_json::to_string(self.0.card()).map_err(input_error)
    }

    /// Number of inputs.
    #[getter]
    fn inputs(&self) -> usize {
        self.0.inputs()
    }

    /// Number of outputs of all heads.
    #[getter]
    fn outputs(&self) -> usize {
        self.0.outputs()
    }

    /// Number of weights and biases.
    #[getter]
    fn parameters(&self) -> usize {
        self.0.parameters()
    }

    /// Writes the outputs (float32) for rows of raw inputs (float32).
    fn forward(
        &self,
        py: Python<'_>,
        inputs: PyBuffer<f32>,
        outputs: PyBuffer<f32>,
    ) -> PyResult<()> {
        let rows = inputs.item_count() / self.0.inputs();
        if (inputs.item_count(), outputs.item_count())
            != (rows * self.0.inputs(), rows * self.0.outputs())
        {
            return Err(PyValueError::new_err(
                "inputs and outputs are not whole rows",
            ));
        }
        let inputs = inputs.to_vec(py)?;
        let mut answers = vec![0.0; outputs.item_count()];
        py.detach(|| {
            let mut scratch = self.0.scratch();
            self.0.forward_batch(&inputs, &mut scratch, &mut answers);
        });
        outputs.copy_from_slice(py, &answers)
    }
}

/// The bytes of a policy file: its card as JSON, and for each hidden layer, then each head, the
/// matrix `[outputs][inputs]` and the bias, float32.
#[pyfunction]
pub fn policy_bytes(
    py: Python<'_>,
    card: &str,
    layers: Vec<(PyBuffer<f32>, PyBuffer<f32>)>,
) -> PyResult<Vec<u8>> {
    let card = policy::Card::from_json(card).map_err(input_error)?;
    let affine = |(weight, bias): (PyBuffer<f32>, PyBuffer<f32>)| {
        Ok(policy::Affine {
            weight: weight.to_vec(py)?,
            bias: bias.to_vec(py)?,
        })
    };
    let layers: Vec<_> = layers.into_iter().map(affine).collect::<PyResult<_>>()?;
    policy::Policy::save(&card, &layers).map_err(input_error)
}
