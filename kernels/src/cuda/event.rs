//! Events: marks in a stream's work.

use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::sys::{CUevent, CUevent_flags, CUevent_record_flags, CUevent_wait_flags};

use super::device::Device;
use super::error::{CudaError, code};
use super::stream::CudaStream;

/// A mark in a stream's work, to wait for and to measure with.
#[derive(Debug)]
pub struct Event {
    device: Arc<Device>,
    handle: CUevent,
    /// Whether the GPU interrupts the host when it reaches the event.
    wakes: bool,
}

/// The pause between two polls of an event that does not interrupt.
const POLL_INTERVAL: Duration = Duration::from_micros(20);

// SAFETY: the driver allows an event on any thread and locks it.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// Makes an event, which counts as done until it is recorded.
    pub fn new(device: &Arc<Device>) -> Result<Self, CudaError> {
        Self::create(device, true)
    }

    /// Makes an event that does not interrupt the host, for polling, measuring, or other streams to wait for. An interrupt
    /// costs more CPU time than everything else in a short run.
    pub fn silent(device: &Arc<Device>) -> Result<Self, CudaError> {
        Self::create(device, false)
    }

    fn create(device: &Arc<Device>, wakes: bool) -> Result<Self, CudaError> {
        let mut handle = ptr::null_mut();
        let flags = if wakes { CUevent_flags::CU_EVENT_BLOCKING_SYNC } else { CUevent_flags::CU_EVENT_DEFAULT };
        // SAFETY: `handle` outlives the call; the context is current.
        unsafe { device.driver()?.event_create(&mut handle, flags as u32) }?;
        Ok(Self { device: device.clone(), handle, wakes })
    }

    /// Records the event at the end of the work that is now on `stream`.
    pub fn record(&self, stream: &CudaStream) -> Result<(), CudaError> {
        // SAFETY: both are alive and of this context.
        unsafe { self.device.driver()?.event_record(self.handle, stream.handle) }
    }

    /// Does the same as [`record`](Self::record) within a capture: every launch of the graph records the event, for waiters
    /// outside the graph.
    ///
    /// The event must outlive the graph; the caller of [`Graph::launch`](super::Graph::launch) promises that.
    pub fn record_external(&self, stream: &CudaStream) -> Result<(), CudaError> {
        let flags = CUevent_record_flags::CU_EVENT_RECORD_EXTERNAL as u32;
        // SAFETY: both are alive and of this context; outside a capture the driver returns an error.
        unsafe { self.device.driver()?.event_record_with_flags(self.handle, stream.handle, flags) }
    }

    /// Waits until the recorded work is done, without spinning. For a [`silent`](Self::silent) event this polls between sleeps
    /// of [`POLL_INTERVAL`], and what Linux adds to it (50 us by default), because CUDA itself would spin.
    pub fn wait(&self) -> Result<(), CudaError> {
        if self.wakes {
            // SAFETY: the event is alive; the context is current.
            return unsafe { self.device.driver()?.event_synchronize(self.handle) };
        }
        while !self.is_done()? {
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Whether the recorded work is done. Errors of that work are also returned here.
    pub fn is_done(&self) -> Result<bool, CudaError> {
        // SAFETY: the event is alive; the context is current.
        match unsafe { self.device.driver()?.event_query(self.handle) } {
            Ok(()) => Ok(true),
            Err(error) if error.code == code::NOT_READY => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the microseconds from `earlier` to this event, both done. Accurate to about half a microsecond.
    pub fn elapsed_us(&self, earlier: &Self) -> Result<f64, CudaError> {
        let mut milliseconds = 0.0;
        // SAFETY: `milliseconds` outlives the call; both events are alive.
        unsafe { self.device.driver()?.event_elapsed(&mut milliseconds, earlier.handle, self.handle) }?;
        Ok(f64::from(milliseconds) * 1000.0)
    }
}

impl CudaStream {
    /// Makes work that is queued from now on wait for the last recording of `event`.
    pub fn wait(&self, event: &Event) -> Result<(), CudaError> {
        // SAFETY: both are alive; the driver keeps what it needs of the event.
        unsafe { self.device().driver()?.stream_wait_event(self.handle, event.handle, 0) }
    }

    /// Does the same as [`wait`](Self::wait) within a capture: every launch of the graph waits for the last recording of `event`
    /// outside it, or in another graph by [`Event::record_external`].
    ///
    /// The event must outlive the graph; the caller of [`Graph::launch`](super::Graph::launch) promises that.
    pub fn wait_external(&self, event: &Event) -> Result<(), CudaError> {
        let flags = CUevent_wait_flags::CU_EVENT_WAIT_EXTERNAL as u32;
        // SAFETY: both are alive and of this context; outside a capture the driver returns an error.
        unsafe { self.device().driver()?.stream_wait_event(self.handle, event.handle, flags) }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: made by `new` and destroyed once, here; the driver keeps what pending work needs of it.
        self.device.release(|driver| unsafe { driver.event_destroy(self.handle) });
    }
}
