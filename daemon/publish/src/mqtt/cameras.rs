//! What a broker keeps of the cameras: their states, their pictures, and what announces them to Home Assistant.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::Value;
use visiond_config::types::{MqttSinkConfig, SinkConfig};
use visiond_flow::metrics::{CameraMetrics, Phase};
use visiond_live::Live;

use super::camera_state::StateTracker;
use super::codec::{Incoming, JSON, Publish, Qos};
use super::discovery::{self, Discovery};
use super::session::Session;
use super::snapshots::Snapshots;
use super::topics::Topics;
use crate::sink::SinkContext;

/// Messages of our own that may wait before states and pictures wait too: the broker takes nothing.
const UNSAID: usize = 256;
/// How long what is kept from before is listened to.
const LISTEN: Duration = Duration::from_secs(3);

/// The cameras that this sink publishes.
pub struct Cameras {
    live: Arc<Live>,
    config: MqttSinkConfig,
    /// These alone; empty: all.
    chosen: Vec<String>,
    topics: Topics,
    discovery: Option<Discovery>,
    known: BTreeMap<Arc<str>, (Arc<str>, StateTracker)>,
    /// What is announced, by topic.
    announced: BTreeMap<String, Value>,
    /// Whether the announcements may differ from what is to be.
    stale: bool,
    snapshots: Snapshots,
    listening: Listening,
}

/// Whether what is kept from before was looked through, so that what nobody stands for any more can be cleared.
enum Listening {
    /// Not before the cameras are known.
    NotYet,
    /// To these topics, until then.
    To(Vec<String>, Instant),
    Done,
}

impl Cameras {
    /// As configured; nothing is published yet.
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
            snapshots: Snapshots::default(),
            listening: Listening::NotYet,
        }
    }

    /// Set otherwise from now on.
    pub fn configure(&mut self, sink: &SinkConfig, config: &MqttSinkConfig, context: &SinkContext, topics: &Topics) {
        self.config = config.clone();
        self.chosen.clone_from(&sink.cameras);
        self.discovery = Discovery::new(config, &context.device, topics);
        self.stale = true;
    }

    /// A session begins: everything is published anew.
    pub fn begin(&mut self, session: &mut Session, now: Instant) {
        self.known.values_mut().for_each(|(_, tracker)| tracker.forget());
        self.snapshots.forget();
        self.announced.clear();
        self.stale = true;
        self.listening = Listening::NotYet;
        self.tick(session, now);
    }

    /// Publishes what is due.
    pub fn tick(&mut self, session: &mut Session, now: Instant) {
        if session.own_waiting() > UNSAID {
            return;
        }
        for (camera, jpeg) in self.snapshots.take() {
            if self.known.contains_key(&camera) {
                let publish = self.publish(self.topics.snapshot(&camera), jpeg, "image/jpeg");
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
        self.listen(session, now);
    }

    /// What a broker kept from before, and what nobody stands for any more is cleared.
    pub fn heard(&mut self, session: &mut Session, heard: &Incoming) {
        if !heard.retained || heard.payload.is_empty() {
            return;
        }
        match self.topics.camera_of_state(&heard.topic) {
            Some(camera) if !self.known.contains_key(camera) => self.clear(session, camera),
            Some(_) => {}
            None if !self.announced.contains_key(&heard.topic) && discovery::is_ours(&heard.payload) => {
                session.publish(self.publish(heard.topic.clone(), Bytes::new(), JSON));
            }
            None => {}
        }
    }

    /// Looks through what the broker keeps from before, once a session and where Home Assistant reads it.
    fn listen(&mut self, session: &mut Session, now: Instant) {
        match (&self.listening, &self.discovery) {
            (Listening::NotYet, Some(discovery)) if !self.known.is_empty() => {
                let topics = vec![discovery.everywhere(), self.topics.states()];
                session.subscribe(&topics, true);
                self.listening = Listening::To(topics, now + LISTEN);
            }
            (Listening::To(topics, until), _) if now >= *until => {
                session.subscribe(topics, false);
                self.listening = Listening::Done;
            }
            _ => {}
        }
    }

    fn camera(&mut self, session: &mut Session, camera: &CameraMetrics, model: &Arc<str>, now: Instant) {
        let name = &camera.name;
        let (known_model, tracker) = self.known.entry(Arc::clone(name)).or_insert_with(|| {
            self.stale = true;
            (Arc::clone(model), StateTracker::new())
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
                Ok(json) => session.publish(self.publish(self.topics.state(name), json.into(), JSON)),
                Err(error) => log::error!("the state of camera {name} is no JSON: {error}"),
            }
        }
        let interval = self.config.snapshot_interval;
        if !interval.is_zero() && camera.phase() == Phase::Streaming {
            self.snapshots.ask(&self.live, name, self.config.snapshot_overlay, interval, now);
        }
    }

    /// Announces the cameras, and takes back what is announced and no more.
    fn announce(&mut self, session: &mut Session) {
        let wanted: BTreeMap<String, Value> = match &self.discovery {
            Some(discovery) => {
                self.known.iter().flat_map(|(camera, (model, _))| discovery.camera(camera, model)).collect()
            }
            None => BTreeMap::new(),
        };
        let gone = self.announced.keys().filter(|topic| !wanted.contains_key(*topic));
        gone.for_each(|topic| session.publish(self.publish(topic.clone(), Bytes::new(), JSON)));
        for (topic, entity) in wanted.iter().filter(|(topic, entity)| self.announced.get(*topic) != Some(*entity)) {
            session.publish(self.publish(topic.clone(), entity.to_string().into(), JSON));
        }
        self.announced = wanted;
    }

    /// Has the broker forget what it keeps of a camera.
    fn clear(&self, session: &mut Session, camera: &str) {
        let detections = self.config.retain.then(|| self.topics.detections(camera));
        for topic in [self.topics.state(camera), self.topics.snapshot(camera)].into_iter().chain(detections) {
            session.publish(self.publish(topic, Bytes::new(), JSON));
        }
    }

    fn is_chosen(&self, camera: &str) -> bool {
        self.chosen.is_empty() || self.chosen.iter().any(|chosen| chosen == camera)
    }

    /// A message that the broker keeps.
    fn publish(&self, topic: String, payload: Bytes, content_type: &'static str) -> Publish {
        Publish {
            topic,
            payload,
            qos: Qos::new(self.config.qos_state),
            retain: true,
            content_type: Some(content_type),
            id: None,
            expiry_seconds: None,
        }
    }
}
