//! Publishes what a broker retains about the cameras: states, pictures and Home Assistant discovery.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::Value;
use visiond_config::types::{MqttSinkConfig, SinkConfig};
use visiond_flow::metrics::{CameraMetrics, Phase};
use visiond_live::Live;

use super::camera_state::StateTracker;
use super::codec::{Incoming, JSON, Publish};
use super::discovery::{self, Discovery};
use super::session::MqttSession;
use super::topics::Topics;
use crate::sink::SinkContext;

/// How many retained messages may wait to be sent before states and pictures wait too, because the broker accepts nothing.
const MOST_WAITING: usize = 256;
/// How many of them may wait before visiond clears nothing more of what the broker retained earlier: the next session does.
const MOST_CLEARED: usize = 4 * MOST_WAITING;
/// Longer topics are not visiond's, in bytes.
const LONGEST_TOPIC: usize = 1024;
/// How long to receive what the broker retained earlier.
const RETAINED_SCAN: Duration = Duration::from_secs(3);
/// How long to wait for a camera's next frame, to publish it as a picture.
const NEXT_FRAME: Duration = Duration::from_secs(5);

/// Cameras with their pictures as JPEG, ready to be published.
type Snapshots = Vec<(Arc<str>, Bytes)>;

/// The cameras that this sink publishes.
pub struct RetainedCameras {
    live: Arc<Live>,
    config: MqttSinkConfig,
    /// The configured cameras; empty: all.
    chosen: Vec<String>,
    topics: Topics,
    discovery: Option<Discovery>,
    known: BTreeMap<Arc<str>, (Arc<str>, StateTracker)>,
    /// The published discovery messages, by topic.
    announced: BTreeMap<String, Value>,
    /// Whether the published discovery may be out of date.
    stale: bool,
    /// When each camera's next picture is due.
    next_snapshots: BTreeMap<Arc<str>, Instant>,
    snapshots: Arc<Mutex<Snapshots>>,
    retained_scan: RetainedScan,
}

/// The search for messages that the broker retained for cameras that are gone, to clear them.
enum RetainedScan {
    /// Waits until the cameras are known.
    Pending,
    /// Subscribed to these topics, until then.
    Receiving(Vec<String>, Instant),
    Done,
}

impl RetainedCameras {
    /// Creates the cameras of a sink; nothing is published yet.
    pub fn new(sink: &SinkConfig, config: &MqttSinkConfig, context: &SinkContext, topics: &Topics) -> Self {
        Self {
            live: Arc::clone(&context.live),
            config: config.clone(),
            chosen: sink.cameras.clone(),
            topics: topics.clone(),
            discovery: Discovery::new(config, &context.device, topics),
            known: BTreeMap::new(),
            announced: BTreeMap::new(),
            stale: true,
            next_snapshots: BTreeMap::new(),
            snapshots: Arc::default(),
            retained_scan: RetainedScan::Pending,
        }
    }

    /// Applies new settings.
    pub fn configure(&mut self, sink: &SinkConfig, config: &MqttSinkConfig, context: &SinkContext, topics: &Topics) {
        self.config = config.clone();
        self.chosen.clone_from(&sink.cameras);
        self.discovery = Discovery::new(config, &context.device, topics);
        self.stale = true;
    }

    /// Starts a session, in which everything is published again.
    pub fn begin(&mut self, session: &mut MqttSession, now: Instant) {
        self.known.values_mut().for_each(|(_, tracker)| tracker.forget());
        self.next_snapshots.clear();
        self.snapshots.lock().clear();
        self.announced.clear();
        self.stale = true;
        self.retained_scan = RetainedScan::Pending;
        self.tick(session, now);
    }

    /// Publishes what is due.
    pub fn tick(&mut self, session: &mut MqttSession, now: Instant) {
        if session.own_waiting() > MOST_WAITING {
            return;
        }
        let snapshots = std::mem::take(&mut *self.snapshots.lock());
        for (camera, jpeg) in snapshots {
            if self.known.contains_key(&camera) {
                let publish = self.retained(self.topics.snapshot(&camera), jpeg, "image/jpeg");
                session.publish(publish);
            }
        }
        let mut there = BTreeSet::new();
        for lane in self.live.lanes() {
            for camera in &lane.cameras {
                if self.is_chosen(&camera.name) {
                    there.insert(Arc::clone(&camera.name));
                    self.camera(session, camera, &lane.lane.name, now);
                }
            }
        }
        let gone: Vec<_> = self.known.keys().filter(|name| !there.contains(*name)).cloned().collect();
        for name in gone {
            self.known.remove(&name);
            self.stale = true;
            self.clear(session, &name);
        }
        if std::mem::take(&mut self.stale) {
            self.announce(session);
        }
        self.scan_retained(session, now);
    }

    /// Handles a message that the broker retained earlier: clears it if its camera is gone.
    pub fn incoming(&mut self, session: &mut MqttSession, message: &Incoming) {
        let is_ours = message.retained && !message.payload.is_empty() && message.topic.len() <= LONGEST_TOPIC;
        if !is_ours || session.own_waiting() > MOST_CLEARED {
            return;
        }
        match self.topics.camera_of_state(&message.topic) {
            Some(camera) if !self.known.contains_key(camera) => self.clear(session, camera),
            Some(_) => {}
            None if !self.announced.contains_key(&message.topic) && discovery::is_ours(&message.payload) => {
                session.publish(self.retained(message.topic.clone(), Bytes::new(), JSON));
            }
            None => {}
        }
    }

    /// Subscribes to what the broker retained earlier, once a session, where Home Assistant discovery is on.
    fn scan_retained(&mut self, session: &mut MqttSession, now: Instant) {
        match (&self.retained_scan, &self.discovery) {
            (RetainedScan::Pending, Some(discovery)) if !self.known.is_empty() => {
                let topics = vec![discovery.everywhere(), self.topics.state("+")];
                session.subscribe(&topics, true);
                self.retained_scan = RetainedScan::Receiving(topics, now + RETAINED_SCAN);
            }
            (RetainedScan::Receiving(topics, until), _) if now >= *until => {
                session.subscribe(topics, false);
                self.retained_scan = RetainedScan::Done;
            }
            _ => {}
        }
    }

    fn camera(&mut self, session: &mut MqttSession, camera: &CameraMetrics, model: &Arc<str>, now: Instant) {
        let name = &camera.name;
        let (known_model, tracker) = self.known.entry(Arc::clone(name)).or_insert_with(|| {
            self.stale = true;
            (Arc::clone(model), StateTracker::default())
        });
        if known_model != model {
            known_model.clone_from(model);
            self.stale = true;
        }
        let latest = self.live.messages().latest(name);
        let latest = latest.as_ref().map(|published| &**published.message());
        let state = tracker.look(camera, model, latest, self.config.occupancy_hold, now);
        if tracker.due(&state, self.config.state_interval, now) {
            match serde_json::to_vec(&state) {
                Ok(json) => session.publish(self.retained(self.topics.state(name), json.into(), JSON)),
                Err(error) => log::error!("cannot write the state of camera {name} as JSON: {error}"),
            }
        }
        let interval = self.config.snapshot_interval;
        let is_due = self.next_snapshots.get(name).is_none_or(|next| now >= *next);
        if is_due && !interval.is_zero() && camera.phase() == Phase::Streaming {
            self.next_snapshots.insert(Arc::clone(name), now + interval);
            let (view, snapshots, name) = (self.live.view(name), Arc::clone(&self.snapshots), Arc::clone(name));
            let overlay = self.config.snapshot_overlay;
            // Gives up before the next picture is due, so that each camera has at most one request.
            tokio::spawn(async move {
                // Without a frame there is no picture; the camera's state says why.
                if let Ok(picture) = view.jpeg(overlay, NEXT_FRAME.min(interval)).await {
                    snapshots.lock().push((name, picture.jpeg.clone()));
                }
            });
        }
    }

    /// Publishes the discovery of every camera, and clears the discovery of cameras that are gone.
    fn announce(&mut self, session: &mut MqttSession) {
        let wanted: BTreeMap<String, Value> = match &self.discovery {
            Some(discovery) => {
                self.known.iter().flat_map(|(camera, (model, _))| discovery.camera(camera, model)).collect()
            }
            None => BTreeMap::new(),
        };
        let gone = self.announced.keys().filter(|topic| !wanted.contains_key(*topic));
        gone.for_each(|topic| session.publish(self.retained(topic.clone(), Bytes::new(), JSON)));
        for (topic, entity) in wanted.iter().filter(|(topic, entity)| self.announced.get(*topic) != Some(*entity)) {
            session.publish(self.retained(topic.clone(), entity.to_string().into(), JSON));
        }
        self.announced = wanted;
    }

    /// Clears what the broker retains about a camera.
    fn clear(&self, session: &mut MqttSession, camera: &str) {
        let detections = self.config.retain.then(|| self.topics.detections(camera));
        for topic in [self.topics.state(camera), self.topics.snapshot(camera)].into_iter().chain(detections) {
            session.publish(self.retained(topic, Bytes::new(), JSON));
        }
    }

    fn is_chosen(&self, camera: &str) -> bool {
        self.chosen.is_empty() || self.chosen.iter().any(|chosen| chosen == camera)
    }

    /// Makes a message for the broker to retain.
    fn retained(&self, topic: String, payload: Bytes, content_type: &'static str) -> Publish {
        Publish::retained(topic, payload, self.config.qos_state, Some(content_type))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use bytes::BytesMut;
    use visiond_config::types::MqttProtocol;

    use super::super::codec::{BrokerLimits, Codec};
    use super::*;

    #[test]
    fn a_broker_that_invents_cameras_without_end_fills_no_memory() {
        let (config, live) = (MqttSinkConfig::default(), Live::new());
        let context = SinkContext { live, device: "gate".into() };
        let topics = Topics::new("visiond", "gate");
        let mut cameras = RetainedCameras::new(&SinkConfig::default(), &config, &context, &topics);
        let (stream, _broker) = tokio::io::duplex(1);
        let (codec, limits, keep_alive) = (Codec(MqttProtocol::V5), BrokerLimits::default(), Duration::from_secs(20));
        let mut session = MqttSession::new(Box::new(stream), codec, limits, keep_alive, BytesMut::new());
        let mut invent = |camera: &str| {
            let (topic, payload) = (topics.state(camera), Bytes::from_static(b"{}"));
            cameras.incoming(&mut session, &Incoming { topic, payload, retained: true });
            session.own_waiting()
        };
        assert_eq!(invent(&"x".repeat(LONGEST_TOPIC)), 0);
        assert_eq!(invent("gone"), 2, "its state and its picture are cleared");
        let most = (0..10_000).map(|number| invent(&format!("gone-{number}"))).max().unwrap();
        assert!((MOST_CLEARED..MOST_CLEARED + 3).contains(&most), "{most}");
    }
}
