//! Queues written in Python: `quell._core.Packet`, and a discipline that calls a Python object for
//! each packet.
//!
//! A Python packet contains a handle of the simulator. The thread that runs the world calls the
//! Python object, with the interpreter's lock held.

use std::fmt::{self, Debug};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyBool;
use quell_link::{Error, Queue};
use quell_qdisc::outside::Handle;
use quell_qdisc::time::{Duration, Instant, NEVER};
use quell_qdisc::{Dequeued, Discipline, DropCause, Drops, Ecn, Packet as _, Rng, num};

use crate::input_error;

/// A packet in a queue written in Python.
#[pyclass(frozen, module = "quell._core")]
pub struct Packet {
    handle: Handle,
    queue: Arc<Shared>,
    ecn: AtomicU8,
    /// False once the packet has been returned, dropped or refused.
    held: AtomicBool,
}

#[pymethods]
impl Packet {
    /// Length in bytes, link layer included.
    #[getter]
    fn length(&self) -> u32 {
        self.handle.len()
    }

    /// Number of its flow, below 2^32.
    #[getter]
    fn flow(&self) -> u32 {
        self.handle.flow_hash()
    }

    /// The ECN field: `quell.experiments.queue.NOT_ECT`, `ECT1`, `ECT0` or `CE`.
    #[getter]
    fn ecn(&self) -> u8 {
        self.ecn.load(Relaxed)
    }

    /// Time of its arrival at this queue, seconds.
    #[getter]
    fn enqueued(&self) -> f64 {
        self.handle.enqueued().as_secs_f64()
    }

    /// Marks it CE and returns True if it is ECN-capable. Otherwise returns False.
    fn mark(&self) -> PyResult<bool> {
        self.must_be_held("mark")?;
        if self.ecn() == Ecn::NotEct.bits() {
            return Ok(false);
        }
        if self.ecn.swap(Ecn::Ce.bits(), Relaxed) != Ecn::Ce.bits() {
            self.queue.marks.fetch_add(1, Relaxed);
        }
        Ok(true)
    }

    /// Drops the packet: the queue must not return it any more.
    fn drop(&self) -> PyResult<()> {
        self.must_be_held("drop")?;
        self.held.store(false, Relaxed);
        self.queue.dropped().push(self.handle());
        Ok(())
    }

    fn __repr__(&self) -> String {
        format!(
            "<Packet of {} bytes, flow {}, ecn {}, since {} s>",
            self.length(),
            self.flow(),
            self.ecn(),
            self.enqueued()
        )
    }
}

impl Packet {
    /// The handle, with the ECN field as Python has set it.
    fn handle(&self) -> Handle {
        let mut handle = self.handle;
        if self.ecn() != handle.ecn().bits() {
            handle.set_ce();
        }
        handle
    }

    fn must_be_held(&self, act: &str) -> PyResult<()> {
        match self.held.load(Relaxed) {
            true => Ok(()),
            false => Err(input_error(format!(
                "{act}() of a packet that has left its queue"
            ))),
        }
    }
}

/// Called when nothing in Python refers to the packet any more. If it is still held, the queue has
/// lost it.
impl Drop for Packet {
    fn drop(&mut self) {
        if *self.held.get_mut() {
            self.queue.lost.fetch_add(1, Relaxed);
        }
    }
}

/// State that a queue shares with its packets.
#[derive(Default)]
struct Shared {
    /// Packets whose `drop()` was called, to be reported after the current call.
    dropped: Mutex<Vec<Handle>>,
    /// Number of packets marked.
    marks: AtomicU64,
    /// Number of packets that the queue lost: kept, but no longer referenced.
    lost: AtomicU64,
}

impl Shared {
    fn dropped(&self) -> MutexGuard<'_, Vec<Handle>> {
        self.dropped.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The exception that ended a run.
pub type Raised = Arc<Mutex<Option<PyErr>>>;

/// A queue as described by `quell.experiments.queue.OwnQueue`.
#[derive(FromPyObject)]
pub struct OwnQueue {
    /// Name of the queue in records.
    name: String,
    /// Makes a new queue object.
    make: Py<PyAny>,
}

impl OwnQueue {
    /// The queue for the simulator. An exception of its methods is stored in `raised`.
    pub fn queue(self, raised: &Raised) -> Result<Queue, Error> {
        let Self { name, make } = self;
        let raised = raised.clone();
        Queue::outside(&name.clone(), move |_| {
            Python::attach(|py| PyQueue::new(py, &name, &make, &raised))
        })
    }
}

/// The discipline that calls Python.
struct PyQueue {
    name: String,
    /// The object's bound methods; `None` if it could not be made.
    methods: Option<(Py<PyAny>, Py<PyAny>)>,
    shared: Arc<Shared>,
    packets: usize,
    bytes: u64,
    raised: Raised,
    failure: Option<String>,
}

impl Debug for PyQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with {} packets", self.name, self.packets)
    }
}

/// Python objects cannot be copied in the middle of a run. Nothing in this module clones a world.
impl Clone for PyQueue {
    fn clone(&self) -> Self {
        Self {
            name: self.name.clone(),
            methods: None,
            shared: Arc::default(),
            packets: self.packets,
            bytes: self.bytes,
            raised: self.raised.clone(),
            failure: Some("a queue written in Python cannot be cloned".into()),
        }
    }
}

/// Why a call failed: an exception, or an error of the queue.
enum QueueError {
    Raised(PyErr),
    Invalid(String),
}

impl From<PyErr> for QueueError {
    fn from(error: PyErr) -> Self {
        Self::Raised(error)
    }
}

impl PyQueue {
    fn new(py: Python<'_>, name: &str, make: &Py<PyAny>, raised: &Raised) -> Self {
        let made = make.bind(py).call0().and_then(|object| {
            let method = |name| object.getattr(name).map(Bound::unbind);
            Ok((method("enqueue")?, method("dequeue")?))
        });
        let mut queue = Self {
            name: name.to_owned(),
            methods: None,
            shared: Arc::default(),
            packets: 0,
            bytes: 0,
            raised: raised.clone(),
            failure: None,
        };
        match made {
            Ok(methods) => queue.methods = Some(methods),
            Err(error) => queue.fail(QueueError::Raised(error)),
        }
        queue
    }

    #[cold]
    fn fail(&mut self, error: QueueError) {
        self.failure = Some(match error {
            QueueError::Invalid(what) => what,
            QueueError::Raised(error) => {
                let text = error.to_string();
                let mut raised = self.raised.lock().unwrap_or_else(PoisonError::into_inner);
                raised.get_or_insert(error);
                format!("it raised {text}")
            }
        });
    }

    /// Reports the packets that the queue dropped during a call.
    fn report<D: Drops<Handle>>(&mut self, now: Instant, drops: &mut D) {
        for handle in self.shared.dropped().drain(..) {
            self.packets -= 1;
            self.bytes -= u64::from(handle.len());
            drops.drop(now, handle, DropCause::Early);
        }
    }

    /// Turns the loss of packets during a call into an error, unless the call has failed already.
    fn check_lost<T>(&self, method: &str, answer: Result<T, QueueError>) -> Result<T, QueueError> {
        match self.shared.lost.load(Relaxed) {
            0 => answer,
            lost if answer.is_ok() => Err(QueueError::Invalid(format!(
                "{method}() lost packets: {lost}; keep each packet, return it, or call its drop()"
            ))),
            _ => answer,
        }
    }

    /// Passes an arrival to Python; returns whether the queue keeps the packet.
    fn call_enqueue(
        &self,
        py: Python<'_>,
        now: Instant,
        handle: Handle,
    ) -> Result<bool, QueueError> {
        let Some((enqueue, _)) = &self.methods else {
            return Ok(false);
        };
        let packet = Packet {
            handle,
            queue: self.shared.clone(),
            ecn: AtomicU8::new(handle.ecn().bits()),
            held: AtomicBool::new(true),
        };
        let packet = Bound::new(py, packet)?;
        let answer = enqueue.bind(py).call1((&packet, now.as_secs_f64()))?;
        if answer.is_none() {
            return Ok(true);
        }
        let Ok(kept) = answer.cast::<PyBool>() else {
            let what = format!(
                "enqueue() returned {}; it returns True or None for a packet that it keeps, False for one that it drops",
                shown(&answer)
            );
            return Err(QueueError::Invalid(what));
        };
        let kept = kept.is_true();
        // A packet that `drop()` has dropped counts as kept here; `report` reports it.
        Ok(kept || !packet.get().held.swap(false, Relaxed))
    }

    fn call_dequeue(&self, py: Python<'_>, now: Instant) -> Result<Dequeued<Handle>, QueueError> {
        let Some((_, dequeue)) = &self.methods else {
            return Ok(Dequeued::Empty);
        };
        let time = now.as_secs_f64();
        let answer = dequeue.bind(py).call1((time,))?;
        if let Ok(packet) = answer.cast::<Packet>() {
            return self.returned(packet.get()).map_err(QueueError::Invalid);
        }
        if answer.is_none() {
            let held = self.packets - self.shared.dropped().len();
            return match held {
                0 => Ok(Dequeued::Empty),
                _ => Err(QueueError::Invalid(format!(
                    "dequeue() returned None while packets are queued: {held}; return a packet, or a later time to wait"
                ))),
            };
        }
        match answer.extract::<f64>() {
            Ok(later) if later > time && !answer.is_instance_of::<PyBool>() => {
                Ok(Dequeued::NotBefore(instant_after(now, later)))
            }
            Ok(_) if !answer.is_instance_of::<PyBool>() => Err(QueueError::Invalid(format!(
                "dequeue() returned the time {}, which is not after now, {time}",
                shown(&answer)
            ))),
            _ => Err(QueueError::Invalid(format!(
                "dequeue() returned {}; it returns a packet, None, or a time in seconds before which nothing leaves",
                shown(&answer)
            ))),
        }
    }

    fn returned(&self, packet: &Packet) -> Result<Dequeued<Handle>, String> {
        if !Arc::ptr_eq(&packet.queue, &self.shared) {
            return Err(
                "dequeue() returned a packet of another queue or run; does an attribute of the class hold packets?"
                    .into(),
            );
        }
        match packet.held.swap(false, Relaxed) {
            true => Ok(Dequeued::Packet(packet.handle())),
            false => {
                Err("dequeue() returned a packet that it had returned or dropped before".to_owned())
            }
        }
    }
}

impl Discipline<Handle> for PyQueue {
    fn enqueue<D: Drops<Handle>>(
        &mut self,
        now: Instant,
        handle: Handle,
        _: &mut Rng,
        drops: &mut D,
    ) {
        self.packets += 1;
        self.bytes += u64::from(handle.len());
        let kept = Python::attach(|py| self.call_enqueue(py, now, handle));
        let kept = self.check_lost("enqueue", kept);
        self.report(now, drops);
        match kept {
            Ok(true) => {}
            Ok(false) => {
                self.packets -= 1;
                self.bytes -= u64::from(handle.len());
                drops.drop(now, handle, DropCause::Overflow);
            }
            Err(error) => self.fail(error),
        }
    }

    fn dequeue<D: Drops<Handle>>(
        &mut self,
        now: Instant,
        _: &mut Rng,
        drops: &mut D,
    ) -> Dequeued<Handle> {
        let got = Python::attach(|py| self.call_dequeue(py, now));
        let got = self.check_lost("dequeue", got);
        self.report(now, drops);
        match got {
            Ok(Dequeued::Packet(handle)) => {
                self.packets -= 1;
                self.bytes -= u64::from(handle.len());
                Dequeued::Packet(handle)
            }
            Ok(got) => got,
            Err(error) => {
                self.fail(error);
                Dequeued::Empty
            }
        }
    }

    fn len(&self) -> usize {
        self.packets
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn marks(&self) -> u64 {
        self.shared.marks.load(Relaxed)
    }

    fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }
}

/// Converts a time from Python, s, to an instant later than `now`.
fn instant_after(now: Instant, seconds: f64) -> Instant {
    let nanos = seconds * 1e9;
    match nanos < u64::MAX as f64 {
        true => {
            Instant::from_nanos(num::whole_u64(nanos.round())).max(now + Duration::from_nanos(1))
        }
        false => NEVER,
    }
}

/// Python's `repr` of a value, in one line of limited length.
fn shown(value: &Bound<'_, PyAny>) -> String {
    let text = value.repr();
    let text = text.map_or_else(|_| "an object".into(), |text| text.to_string());
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    plain.take(60).collect()
}
