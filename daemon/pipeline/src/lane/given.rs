//! What a lane is given: its cameras' frames, its network, the way out, how much it may do.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use visiond_annotate::annotator::Annotator;
use visiond_flow::frame::Frame;
use visiond_flow::message::{Message, ModelFacts};
use visiond_flow::metrics::CameraMetrics;
use visiond_live::CameraView;
use visiond_system::stop::Stop;

use crate::inbox::{Delivery, Inbox};
use crate::network::{Build, Network};

/// A frame in the mailbox.
#[derive(Debug)]
pub struct Arrival {
    /// The frame.
    pub frame: Frame,
    /// When it was put there, on CLOCK_MONOTONIC.
    pub queued_ns: u64,
}

/// Where messages go: the publisher, or a test's list.
pub type Outlet = Arc<dyn Fn(&Arc<Message>) + Send + Sync>;

/// How many messages may still go out, over all lanes.
#[derive(Debug)]
pub struct Budget {
    left: AtomicU64,
    stop: Stop,
}

impl Budget {
    /// `messages`, or no limit. The last one raises `stop`.
    pub fn new(messages: Option<u64>, stop: &Stop) -> Self {
        Self { left: AtomicU64::new(messages.unwrap_or(u64::MAX)), stop: stop.clone() }
    }

    /// Whether one more may go out.
    pub(super) fn spend(&self) -> bool {
        let spent = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if matches!(spent, Ok(0 | 1) | Err(_)) {
            self.stop.raise();
        }
        spent.is_ok()
    }
}

/// Why no lane can go on in this process, once one cannot: the first to say so.
pub type Lost = Arc<OnceLock<String>>;

/// Where the frames of a lane's cameras stand.
pub type LaneInbox = Inbox<Arc<LaneCamera>, Arrival>;

/// What a lane knows of a camera; it comes with each of its frames.
pub struct LaneCamera {
    /// Its counters and name.
    pub metrics: Arc<CameraMetrics>,
    /// Who draws its pictures.
    pub annotator: Option<Arc<Annotator>>,
    /// Who watches it.
    pub view: Arc<CameraView>,
    /// Whether its frames and pictures must not be lost.
    pub delivery: Delivery,
}

/// What a lane looks with.
pub struct LaneNetwork {
    /// What messages say of the model.
    pub model: Arc<ModelFacts>,
    /// The network; `None` until it is built anew.
    pub ready: Option<Box<dyn Network>>,
    /// Makes it anew.
    pub build: Build,
}

/// The way to another network: what is put there is taken between two runs, once the inbox has called. The one before goes
/// back to the sender, because it may take a while to free, and the lane has frames to look at.
#[derive(Default)]
pub struct Exchange(Mutex<Option<(LaneNetwork, Sender<LaneNetwork>)>>);

impl Exchange {
    /// Puts a network there, in place of one that was not taken yet; returns where the one before will come back.
    pub fn offer(&self, network: LaneNetwork) -> Receiver<LaneNetwork> {
        let (back, before) = channel();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((network, back));
        before
    }

    pub(super) fn take(&self) -> Option<(LaneNetwork, Sender<LaneNetwork>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
