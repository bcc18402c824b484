//! Processor time of a run.

/// Measures the processor time of the calling thread.
pub struct CpuClock(#[cfg(not(target_family = "wasm"))] cpu_time::ThreadTime);

impl CpuClock {
    /// Starts to measure.
    pub fn start() -> Self {
        Self(
            #[cfg(not(target_family = "wasm"))]
            cpu_time::ThreadTime::now(),
        )
    }

    /// Seconds since the start; 0 in WebAssembly, which has no clock.
    pub fn elapsed_s(&self) -> f64 {
        #[cfg(not(target_family = "wasm"))]
        return self.0.elapsed().as_secs_f64();
        #[cfg(target_family = "wasm")]
        0.0
    }
}
