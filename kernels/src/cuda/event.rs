//! A mark in a stream's work.

use std::fmt;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::sys::CUevent;

use super::device::Device;
use super::driver::flags;
use super::error::{CudaError, code};
use super::stream::CudaStream;

/// A mark in a stream's work, to wait for (asleep) and to measure by.
pub struct Event {
    device: Arc<Device>,
    handle: CUevent,
    /// Whether the GPU interrupts the host when it comes to it.
    wakes: bool,
}

/// Pause between two looks at an event that wakes nobody.
const NAP: Duration = Duration::from_micros(20);

// SAFETY: the driver allows an event on any thread and locks it.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// Makes an event. Until it is recorded it counts as done.
    pub fn new(device: &Arc<Device>) -> Result<Self, CudaError> {
        Self::create(device, true)
    }

    /// Makes an event that is looked at rather than waited for, measured by, or waited for by other streams: the GPU does
    /// not interrupt the host when it comes to it, which costs the CPU more than all else of a short run.
    pub fn silent(device: &Arc<Device>) -> Result<Self, CudaError> {
        Self::create(device, false)
    }

    fn create(device: &Arc<Device>, wakes: bool) -> Result<Self, CudaError> {
        device.bind()?;
        let mut handle = ptr::null_mut();
        let flags = if wakes { flags::EVENT_BLOCKING_SYNC } else { flags::EVENT_DEFAULT };
        // SAFETY: `handle` outlives the call; the context is current.
        unsafe { device.driver.event_create(&mut handle, flags) }?;
        Ok(Self { device: device.clone(), handle, wakes })
    }

    /// Marks the end of what is on `stream` now.
    pub fn record(&self, stream: &CudaStream) -> Result<(), CudaError> {
        self.device.bind()?;
        // SAFETY: both are alive and of this context.
        unsafe { self.device.driver.event_record(self.handle, stream.handle()) }
    }

    /// As [`record`](Self::record), within a capture: every launch of the graph records the event, for whoever waits
    /// outside the graph.
    ///
    /// The event must outlive the graph; [`Graph::launch`](super::Graph::launch) makes that the caller's promise.
    pub fn record_external(&self, stream: &CudaStream) -> Result<(), CudaError> {
        self.device.bind()?;
        // SAFETY: both are alive and of this context; outside a capture the driver returns an error.
        unsafe {
            self.device.driver.event_record_with_flags(self.handle, stream.handle(), flags::EVENT_RECORD_EXTERNAL)
        }
    }

    /// Waits, asleep, until the marked work is done; for a [`silent`](Self::silent) event in naps of some 70 us, since CUDA
    /// itself would spin.
    pub fn wait(&self) -> Result<(), CudaError> {
        if !self.wakes {
            while !self.is_done()? {
                std::thread::sleep(NAP);
            }
            return Ok(());
        }
        self.device.bind()?;
        // SAFETY: the event is alive; the context is current.
        unsafe { self.device.driver.event_synchronize(self.handle) }
    }

    /// Whether the marked work is done. An error of the work comes out here too.
    pub fn is_done(&self) -> Result<bool, CudaError> {
        self.device.bind()?;
        // SAFETY: the event is alive; the context is current.
        match unsafe { self.device.driver.event_query(self.handle) } {
            Ok(()) => Ok(true),
            Err(error) if error.code == code::NOT_READY => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Microseconds from `earlier` to this, both done. Good to about half a microsecond.
    pub fn elapsed_us(&self, earlier: &Self) -> Result<f64, CudaError> {
        self.device.bind()?;
        let mut milliseconds = 0.0;
        // SAFETY: `milliseconds` outlives the call; both events are alive.
        unsafe { self.device.driver.event_elapsed(&mut milliseconds, earlier.handle, self.handle) }?;
        Ok(f64::from(milliseconds) * 1000.0)
    }

    pub(super) fn handle(&self) -> CUevent {
        self.handle
    }
}

impl CudaStream {
    /// Lets what is queued from now on wait for what `event` last recorded.
    pub fn wait(&self, event: &Event) -> Result<(), CudaError> {
        self.device().bind()?;
        // SAFETY: both are alive; the driver keeps what it needs of the event.
        unsafe { self.device().driver.stream_wait_event(self.handle(), event.handle(), 0) }
    }

    /// As [`wait`](Self::wait), within a capture: every launch of the graph waits for what `event` last recorded outside it, or in
    /// another graph by [`Event::record_external`].
    ///
    /// The event must outlive the graph; [`Graph::launch`](super::Graph::launch) makes that the caller's promise.
    pub fn wait_external(&self, event: &Event) -> Result<(), CudaError> {
        self.device().bind()?;
        // SAFETY: both are alive and of this context; outside a capture the driver returns an error.
        unsafe { self.device().driver.stream_wait_event(self.handle(), event.handle(), flags::EVENT_WAIT_EXTERNAL) }
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event({:p})", self.handle)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let destroyed = self.device.bind().and_then(|()| {
            // SAFETY: made by `new` and destroyed once, here; the driver keeps what pending work needs of it.
            unsafe { self.device.driver.event_destroy(self.handle) }
        });
        if let Err(error) = destroyed {
            log::warn!("{error}");
        }
    }
}
