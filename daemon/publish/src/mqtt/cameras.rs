//! Publishes what a broker retains about the cameras: states, snapshots and Home Assistant discovery.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::Value;
use visiond_config::types::{MqttProtocol, MqttSinkConfig, SinkConfig};
use visiond_live::{Live, PictureStream};
use visiond_message::status::{BundleStatus, CameraStatus};
use visiond_message::{Message, SettingsMessage, StateMessage};
use visiond_telemetry::metrics::{CameraLanes, ModelValues, Phase, cameras_of};
use visiond_telemetry::rules::RuleFacts;

use super::camera_state::StateTracker;
use super::codec::{Incoming, JSON, Publish, STATE_QOS};
use super::discovery::{self, Discovery, Ids, MODELS_SEPARATOR};
use super::session::MqttSession;
use super::topics::{DETECTIONS, SNAPSHOT, STATE, Topics};
use crate::sink::{CommandedCamera, Commander, SinkContext};

/// How many retained messages may wait to be sent before states and snapshots also wait, because the broker accepts nothing.
const MOST_WAITING: usize = 256;
/// How many bytes they may have.
const MOST_BYTES: usize = 8 << 20;
/// How many previously retained topics visiond remembers in order to clear them; the next session clears the others. Enough
/// for 1,000 cameras with ten labels.
const MOST_CLEARED: usize = 16 << 10;
/// How many bytes they may have.
const MOST_CLEARED_BYTES: usize = 2 << 20;
/// How many retained discovery topics visiond remembers for each camera.
const MOST_DISCOVERY: usize = 1024;
/// The longest topic that can be visiond's, in bytes.
const LONGEST_TOPIC: usize = 1024;
/// How long to wait for further retained messages after the last one.
const RETAINED_SCAN: Duration = Duration::from_secs(3);
/// The maximum time to receive retained messages.
const LONGEST_SCAN: Duration = Duration::from_secs(60);
/// How long to wait for a camera's next frame, to publish it as a snapshot.
const NEXT_FRAME: Duration = Duration::from_secs(5);

/// A snapshot, ready to be published.
struct Snapshot {
    camera: Arc<str>,
    jpeg: Bytes,
    /// See [`Picture::mask_changes`](visiond_live::Picture::mask_changes).
    mask_changes: u64,
}

/// The cameras that this sink publishes.
pub struct RetainedCameras {
    live: Arc<Live>,
    commander: Option<Arc<dyn Commander>>,
    config: MqttSinkConfig,
    /// The configured cameras; empty: all.
    chosen: Vec<String>,
    topics: Topics,
    discovery: Option<Discovery>,
    known: BTreeMap<Arc<str>, Known>,
    /// The published discovery messages, by topic.
    announced: BTreeMap<String, Value>,
    /// Whether the published discovery may be out of date.
    stale: bool,
    /// When each camera's next snapshot is due.
    next_snapshots: BTreeMap<Arc<str>, Instant>,
    snapshots: Arc<Mutex<Vec<Snapshot>>>,
    retained_scan: RetainedScan,
    /// Topics that the broker retains, to be cleared, and their bytes.
    to_clear: BTreeSet<String>,
    to_clear_bytes: usize,
}

/// The sink's knowledge about a camera.
#[derive(Debug, Default)]
struct Known {
    /// The names of its models, separated by commas.
    models: Arc<str>,
    /// Whether its messages have the results of all models.
    is_grouped: bool,
    /// The outputs of its models other than detections.
    values: Vec<Arc<ModelValues>>,
    /// Its lines and zones.
    rules: Vec<RuleFacts>,
    /// Those of its models that are bundles.
    bundles: BTreeSet<String>,
    /// Whether a command has switched it off.
    is_off: bool,
    /// The lines and zones that get commands; `None` if the camera gets none.
    commanded: Option<Vec<String>>,
    /// The form of its ids in Home Assistant; `None` while it depends on a search for retained messages that has not ended.
    ids: Option<Ids>,
    /// Discovery topics that the broker retained: with ids of the first form, or with distinct ids while `ids` is undecided.
    discovery_topics: BTreeSet<String>,
    tracker: StateTracker,
    /// How often its privacy masks had changed when its snapshot was last cleared for that.
    mask_changes: u64,
}

/// The search for messages that the broker retained for cameras that are gone, to clear them.
enum RetainedScan {
    /// Waits until the cameras are known.
    Pending,
    Receiving {
        topics: Vec<String>,
        since: Instant,
        /// When the last retained message arrived.
        last: Instant,
    },
    Done,
}

impl RetainedCameras {
    /// Creates the cameras of a sink; nothing is published yet.
    pub fn new(sink: &SinkConfig, config: &MqttSinkConfig, context: &SinkContext, topics: &Topics) -> Self {
        Self {
            live: Arc::clone(&context.live),
            commander: context.commander.clone(),
            config: config.clone(),
            chosen: sink.cameras.clone(),
            topics: topics.clone(),
            discovery: Discovery::new(sink, config, &context.device, topics),
            known: BTreeMap::new(),
            announced: BTreeMap::new(),
            stale: true,
            next_snapshots: BTreeMap::new(),
            snapshots: Arc::default(),
            retained_scan: RetainedScan::Pending,
            to_clear: BTreeSet::new(),
            to_clear_bytes: 0,
        }
    }

    /// Applies new settings.
    pub fn configure(&mut self, sink: &SinkConfig, config: &MqttSinkConfig, context: &SinkContext, topics: &Topics) {
        let before = std::mem::replace(&mut self.config, config.clone());
        self.chosen.clone_from(&sink.cameras);
        for camera in self.known.keys().cloned().collect::<Vec<_>>() {
            if before.retain && !config.retain {
                self.detections_of(&camera).into_iter().for_each(|topic| self.clear_later(topic));
            }
            if !before.snapshot_interval.is_zero() && config.snapshot_interval.is_zero() {
                self.clear_later(self.topics.snapshot(&camera));
            }
        }
        self.discovery = Discovery::new(sink, config, &context.device, topics);
        self.stale = true;
    }

    /// Starts a session, in which everything is published again.
    pub fn begin(&mut self, session: &mut MqttSession, now: Instant) {
        self.known.values_mut().for_each(|known| known.tracker.forget());
        self.next_snapshots.clear();
        self.snapshots.lock().clear();
        // The settings that made a new session may also have switched discovery off.
        let discovery = self.discovery.as_ref();
        let is_off = |topic: &String| discovery.is_none_or(|discovery| !discovery.has(topic));
        let outdated: Vec<_> = self.announced.keys().filter(|topic| is_off(topic)).cloned().collect();
        self.announced.clear();
        outdated.into_iter().for_each(|topic| self.clear_later(topic));
        self.stale = true;
        self.retained_scan = if session.retains() { RetainedScan::Pending } else { RetainedScan::Done };
        self.tick(session, now);
    }

    /// Publishes what is due.
    pub fn tick(&mut self, session: &mut MqttSession, now: Instant) {
        if session.own_waiting() > MOST_WAITING || session.own_bytes() > MOST_BYTES {
            return;
        }
        let snapshots = std::mem::take(&mut *self.snapshots.lock());
        for Snapshot { camera, jpeg, mask_changes } in snapshots {
            // A snapshot may arrive after snapshots were switched off, or after the privacy masks have changed.
            let is_current = |known: &Known| {
                known.mask_changes == mask_changes && self.live.view(&camera).mask_changes() == mask_changes
            };
            if self.known.get(&camera).is_some_and(is_current) && !self.config.snapshot_interval.is_zero() {
                let publish = self.retained(self.topics.snapshot(&camera), jpeg, "image/jpeg");
                session.publish(publish);
            }
        }
        let mut there = BTreeSet::new();
        let commander = self.commander.as_ref().filter(|_| self.config.commands);
        let commanded = commander.map(|commander| commander.cameras());
        for known in cameras_of(&self.live.lanes()) {
            let name = &known.camera.name;
            if self.is_chosen(name) {
                there.insert(Arc::clone(name));
                let commanded = commanded.as_ref().and_then(|cameras| cameras.get(&**name));
                self.camera(session, &known, commanded.map(|camera| &camera.settings), now);
            }
        }
        for (name, camera) in commanded.iter().flat_map(|cameras| cameras.iter()) {
            if self.is_chosen(name) && !there.contains(&**name) {
                let name: Arc<str> = name.as_str().into();
                if !camera.settings.enabled {
                    self.disabled_camera(session, &name, camera, now);
                }
                // One that is being switched on has no lane yet.
                there.insert(name);
            }
        }
        let gone: Vec<_> = self.known.keys().filter(|name| !there.contains(*name)).cloned().collect();
        for name in gone {
            // Its models' topics are known as long as it is.
            self.clear(session, &name);
            self.known.remove(&name);
            self.stale = true;
        }
        if std::mem::take(&mut self.stale) {
            self.announce(session);
        }
        self.scan_retained(session, now);
        while session.own_waiting() <= MOST_WAITING
            && let Some(topic) = self.to_clear.pop_first()
        {
            self.to_clear_bytes -= topic.len();
            session.publish(self.retained(topic, Bytes::new(), JSON));
        }
    }

    /// Handles a message that the broker retained earlier: clears it if its camera is gone or no longer publishes there.
    pub fn incoming(&mut self, message: &Incoming) {
        let is_ours = message.retained && !message.payload.is_empty() && message.topic.len() <= LONGEST_TOPIC;
        if !is_ours {
            return;
        }
        if let RetainedScan::Receiving { last, .. } = &mut self.retained_scan {
            *last = Instant::now();
        }
        let topic = &message.topic;
        match self.topics.camera_of(topic) {
            Some((camera, what)) => {
                let of = camera.split_once('/').map_or(camera, |(camera, _)| camera);
                let stays = self.known.contains_key(of)
                    && match what {
                        DETECTIONS => self.config.retain && self.detections_of(of).contains(topic),
                        SNAPSHOT => !self.config.snapshot_interval.is_zero(),
                        _ => true,
                    };
                if !stays {
                    self.clear_later(topic.clone());
                }
                // Also clear the other topics of a camera that is gone, which some brokers or permissions do not show.
                if !stays && what == STATE {
                    let (snapshot, detections) = (self.topics.snapshot(camera), self.topics.detections(camera));
                    self.clear_later(snapshot);
                    if self.config.retain {
                        self.clear_later(detections);
                    }
                }
            }
            None if self.keep_first_ids(message) || self.keep_undecided(topic) => {}
            None if !self.announced.contains_key(topic) && discovery::is_ours(&message.payload) => {
                self.clear_later(topic.clone());
            }
            None => {}
        }
    }

    /// Whether the broker may retain detections of this source (see [`QueuedMessage::camera`](crate::broker::QueuedMessage::camera)): its camera and model run. A message that
    /// waited for longer must not bring a topic back that was cleared.
    pub fn may_retain(&self, source: &str) -> bool {
        let camera = source.split_once('/').and_then(|(camera, _)| self.known.get(camera));
        self.live.messages().runs_topic(source) && !camera.is_some_and(|known| known.is_grouped)
    }

    /// Clears the retained message on this topic once there is room.
    fn clear_later(&mut self, topic: String) {
        let bytes = topic.len();
        if self.to_clear.len() < MOST_CLEARED
            && self.to_clear_bytes + bytes <= MOST_CLEARED_BYTES
            && self.to_clear.insert(topic)
        {
            self.to_clear_bytes += bytes;
        }
    }

    /// Clears the retained messages of every camera, because the sink is removed. This includes discovery, unless another
    /// sink announces it.
    pub fn removed(&self, session: &mut MqttSession, clears_discovery: bool) {
        self.known.keys().for_each(|camera| self.clear(session, camera));
        if clears_discovery {
            self.clear_discovery(session);
        }
    }

    /// Clears the discovery of every camera, because no other sink announces them there.
    pub fn clear_discovery(&self, session: &mut MqttSession) {
        for topic in self.announced.keys() {
            session.publish(self.retained(topic.clone(), Bytes::new(), JSON));
        }
    }

    /// Whether this announces one of the cameras with ids of the first form, which the camera then keeps.
    fn keep_first_ids(&mut self, message: &Incoming) -> bool {
        let Some(discovery) = &self.discovery else { return false };
        let mut open = self
            .known
            .iter_mut()
            .filter(|(camera, known)| known.ids != Some(Ids::Distinct) && discovery.is_ambiguous(camera));
        let found = open.find(|(camera, _)| discovery.has_first_ids(camera, &message.payload));
        let Some((_, known)) = found else { return false };
        known.ids = Some(Ids::First);
        self.stale = true;
        if known.discovery_topics.len() < MOST_DISCOVERY {
            known.discovery_topics.insert(message.topic.clone());
        }
        true
    }

    /// Whether this would be a topic of one of the cameras whose ids are undecided, if these became distinct. It stays until then.
    fn keep_undecided(&mut self, topic: &str) -> bool {
        let Some(discovery) = &self.discovery else { return false };
        if matches!(self.retained_scan, RetainedScan::Done) {
            return false;
        }
        let mut open =
            self.known.iter_mut().filter(|(camera, known)| known.ids.is_none() && discovery.is_ambiguous(camera));
        let found = open.find(|(camera, known)| {
            let announced = || known.discovery(discovery, camera, Ids::Distinct);
            discovery.may_be_of(camera, Ids::Distinct, topic) && announced().iter().any(|(wanted, _)| wanted == topic)
        });
        let Some((_, known)) = found else { return false };
        let has_room = known.discovery_topics.len() < MOST_DISCOVERY;
        if has_room {
            known.discovery_topics.insert(topic.to_owned());
        }
        has_room
    }

    /// Subscribes to previously retained messages once per session, after this session's own retained messages were sent.
    fn scan_retained(&mut self, session: &mut MqttSession, now: Instant) {
        match &self.retained_scan {
            RetainedScan::Pending if !session.has_wildcards() => self.end_scan(),
            RetainedScan::Pending if !self.known.is_empty() && session.own_waiting() <= MOST_WAITING => {
                let mut topics: Vec<_> = self.discovery.iter().map(Discovery::everywhere).collect();
                topics.push(self.topics.state("+"));
                // With 3.1.1 the broker would send this client's own detections, and snapshots larger than it accepts.
                if self.config.protocol == MqttProtocol::V5 {
                    let snapshots = self.config.snapshot_interval.is_zero().then(|| self.topics.snapshot("+"));
                    topics.extend(snapshots);
                    topics.extend((!self.config.retain).then(|| self.topics.detections("+")));
                    // Of further models, which a camera may have lost since the last run.
                    topics.push(self.topics.detections("+/+"));
                }
                session.subscribe(&topics, true);
                self.retained_scan = RetainedScan::Receiving { topics, since: now, last: now };
            }
            RetainedScan::Receiving { topics, since, last }
                if now >= *last + RETAINED_SCAN || now >= *since + LONGEST_SCAN =>
            {
                session.subscribe(topics, false);
                self.end_scan();
            }
            _ => {}
        }
    }

    /// Notes that all retained messages are known.
    fn end_scan(&mut self) {
        self.retained_scan = RetainedScan::Done;
        if let Some(discovery) = &self.discovery {
            for (camera, known) in self.known.iter_mut().filter(|(_, known)| known.ids.is_none()) {
                known.ids = Some(Ids::Distinct);
                self.stale |= discovery.is_ambiguous(camera);
            }
        }
    }

    /// Publishes a camera that runs. `settings` are those that commands change.
    fn camera(
        &mut self,
        session: &mut MqttSession,
        of: &CameraLanes<'_>,
        settings: Option<&SettingsMessage>,
        now: Instant,
    ) {
        let (camera, name, models) = (of.camera, &of.camera.name, of.models());
        let values: Vec<_> = of.lanes.iter().map(|lane| lane.values()).collect();
        let view = self.live.view(name);
        let mask_changes = view.mask_changes();
        let known = self.known.entry(Arc::clone(name)).or_insert_with(|| {
            self.stale = true;
            Known { mask_changes, ..Known::default() }
        });
        let is_grouped = camera.is_grouped();
        if *known.models != *models || known.values != values || known.is_grouped != is_grouped {
            let before = known.detections(&self.topics, name);
            (known.models, known.values, known.is_grouped) = (models.into(), values, is_grouped);
            self.stale = true;
            let after = known.detections(&self.topics, name);
            for topic in before.into_iter().filter(|topic| self.config.retain && !after.contains(topic)) {
                session.publish(clearing(topic));
            }
        }
        let rules = camera.rules();
        if known.rules != rules {
            known.rules = rules;
            self.stale = true;
        }
        let live = self.live.bundles();
        let bundles = live.iter().filter(|one| of.lanes.iter().any(|lane| *lane.name == *one.lane));
        let bundles: BTreeMap<_, _> = bundles.map(|one| (one.model.clone(), one.status.clone())).collect();
        if !known.bundles.iter().eq(bundles.keys()) || known.is_off {
            (known.bundles, known.is_off) = (bundles.keys().cloned().collect(), false);
            self.stale = true;
        }
        self.stale |= known.set_commanded(settings);
        if let Some(topics) = known.masked(mask_changes, name, (&self.config, &self.topics)) {
            topics.into_iter().for_each(|topic| session.publish(clearing(topic)));
            self.next_snapshots.remove(name);
        }
        let status = CameraStatus { model: known.models.to_string(), ..camera.status() };
        let newest = self.live.messages().latest_of(name);
        let newest: Vec<_> = newest.iter().filter_map(|published| published.frame().map(|frame| &**frame)).collect();
        if let Some(state) = known.due_state(status, (&newest, settings, bundles), &self.config, now) {
            session.publish(self.retained(self.topics.state(name), state, JSON));
        }
        let interval = self.config.snapshot_interval;
        let is_due = self.next_snapshots.get(name).is_none_or(|next| now >= *next);
        if is_due && !interval.is_zero() && camera.phase() == Phase::Streaming {
            self.next_snapshots.insert(Arc::clone(name), now + interval);
            let (snapshots, camera) = (Arc::clone(&self.snapshots), Arc::clone(name));
            let overlay = self.config.snapshot_overlay;
            // Use the model's frames, because a preview is for viewers. Give up before the next snapshot is due, so that each
            // camera has at most one request.
            tokio::spawn(async move {
                // Without a frame there is no snapshot; the camera's state says why.
                if let Ok(picture) = view.jpeg(PictureStream::Model, overlay, NEXT_FRAME.min(interval)).await {
                    let (jpeg, mask_changes) = (picture.jpeg.clone(), picture.mask_changes);
                    snapshots.lock().push(Snapshot { camera, jpeg, mask_changes });
                }
            });
        }
    }

    /// Publishes a camera that is switched off, so that a command can switch it on.
    fn disabled_camera(
        &mut self,
        session: &mut MqttSession,
        name: &Arc<str>,
        CommandedCamera { models, settings }: &CommandedCamera,
        now: Instant,
    ) {
        let mask_changes = self.live.view(name).mask_changes();
        let known = self.known.entry(Arc::clone(name)).or_insert_with(|| {
            self.stale = true;
            // It has not run since the start.
            Known { models: models.as_str().into(), mask_changes, ..Known::default() }
        });
        self.stale |= known.set_commanded(Some(settings)) | !std::mem::replace(&mut known.is_off, true);
        if let Some(topics) = known.masked(mask_changes, name, (&self.config, &self.topics)) {
            topics.into_iter().for_each(|topic| session.publish(clearing(topic)));
            self.next_snapshots.remove(name);
        }
        let status = CameraStatus::disabled(name, &known.models);
        if let Some(state) = known.due_state(status, (&[], Some(settings), BTreeMap::new()), &self.config, now) {
            session.publish(self.retained(self.topics.state(name), state, JSON));
        }
    }

    /// Publishes the discovery of every camera, and clears the discovery of cameras that are gone.
    fn announce(&mut self, session: &mut MqttSession) {
        let is_decided = matches!(self.retained_scan, RetainedScan::Done);
        let wanted: BTreeMap<String, Value> = match &self.discovery {
            Some(discovery) => {
                let known = self.known.iter();
                let announced = known.flat_map(|(camera, known)| {
                    let ids = match known.ids {
                        Some(ids) => ids,
                        // An earlier version may have announced it with ids of the first form.
                        None if discovery.is_ambiguous(camera) && !is_decided => return Vec::new(),
                        None => Ids::Distinct,
                    };
                    known.discovery(discovery, camera, ids)
                });
                announced.chain(self.discovery_of_bundles(discovery)).collect()
            }
            None => BTreeMap::new(),
        };
        let decided = self.known.values_mut().filter(|known| is_decided || known.ids.is_some());
        let retained: BTreeSet<String> =
            decided.flat_map(|known| std::mem::take(&mut known.discovery_topics)).collect();
        let gone = self.announced.keys().chain(&retained).filter(|topic| !wanted.contains_key(*topic));
        gone.for_each(|topic| session.publish(self.retained(topic.clone(), Bytes::new(), JSON)));
        for (topic, entity) in wanted.iter().filter(|(topic, entity)| self.announced.get(*topic) != Some(*entity)) {
            session.publish(self.retained(topic.clone(), entity.to_string().into(), JSON));
        }
        self.announced = wanted;
    }

    /// Returns the discovery of each model that is a bundle. Of the cameras whose states have it, it names the first, and rather one that
    /// is on.
    fn discovery_of_bundles(&self, discovery: &Discovery) -> Vec<(String, Value)> {
        let mut cameras = BTreeMap::new();
        let (off, on): (Vec<_>, Vec<_>) = self.known.iter().partition(|(_, known)| known.is_off);
        for (camera, known) in on.into_iter().chain(off) {
            for model in &known.bundles {
                cameras.entry(model).or_insert(camera);
            }
        }
        cameras.into_iter().map(|(model, camera)| discovery.bundle(model, camera)).collect()
    }

    /// Clears the retained messages about a camera.
    fn clear(&self, session: &mut MqttSession, camera: &str) {
        let detections = self.detections_of(camera).into_iter().filter(|_| self.config.retain);
        for topic in [self.topics.state(camera), self.topics.snapshot(camera)].into_iter().chain(detections) {
            session.publish(self.retained(topic, Bytes::new(), JSON));
        }
    }

    /// Returns the topics of the detections of a known camera's models.
    fn detections_of(&self, camera: &str) -> Vec<String> {
        let known = self.known.get(camera);
        known.map_or_else(|| vec![self.topics.detections(camera)], |known| known.detections(&self.topics, camera))
    }

    fn is_chosen(&self, camera: &str) -> bool {
        self.chosen.is_empty() || self.chosen.iter().any(|chosen| chosen == camera)
    }

    /// Creates a message for the broker to retain.
    fn retained(&self, topic: String, payload: Bytes, content_type: &'static str) -> Publish {
        Publish::retained(topic, payload, STATE_QOS, Some(content_type))
    }
}

/// Returns a message that clears what the broker retains.
fn clearing(topic: String) -> Publish {
    Publish::retained(topic, Bytes::new(), STATE_QOS, Some(JSON))
}

impl Known {
    /// Returns the camera's discovery messages.
    fn discovery(&self, discovery: &Discovery, camera: &str, ids: Ids) -> Vec<(String, Value)> {
        let mut all = discovery.camera(camera, ids, &self.models, &self.values, &self.rules);
        if let Some(rules) = &self.commanded {
            all.extend(discovery.commands(camera, ids, &self.models, rules));
        }
        all
    }

    /// Notes which of its settings commands change; returns whether these are others now.
    fn set_commanded(&mut self, settings: Option<&SettingsMessage>) -> bool {
        let is_same = match (&self.commanded, settings) {
            (Some(known), Some(settings)) => known.iter().eq(settings.rules.keys()),
            (known, settings) => known.is_none() && settings.is_none(),
        };
        if !is_same {
            self.commanded = settings.map(|settings| settings.rules.keys().cloned().collect());
        }
        !is_same
    }

    /// Returns the topics to clear if the privacy masks have changed or the camera was switched off: the broker retains a snapshot and
    /// detections from before.
    fn masked(
        &mut self,
        mask_changes: u64,
        camera: &str,
        (config, topics): (&MqttSinkConfig, &Topics),
    ) -> Option<Vec<String>> {
        if std::mem::replace(&mut self.mask_changes, mask_changes) == mask_changes {
            return None;
        }
        let snapshot = Some(topics.snapshot(camera)).filter(|_| !config.snapshot_interval.is_zero());
        let detections = self.detections(topics, camera).into_iter().filter(|_| config.retain);
        Some(snapshot.into_iter().chain(detections).collect())
    }

    /// Returns the camera's state as JSON, if it is to be published now.
    fn due_state(
        &mut self,
        status: CameraStatus,
        (newest, settings, bundles): (&[&Message], Option<&SettingsMessage>, BTreeMap<String, BundleStatus>),
        config: &MqttSinkConfig,
        now: Instant,
    ) -> Option<Bytes> {
        let state = self.tracker.look(status, newest, config.occupancy_hold, now);
        let state = StateMessage { settings: settings.cloned(), bundles, ..state };
        if !self.tracker.due(&state, config.state_interval, now) {
            return None;
        }
        let json = serde_json::to_vec(&state);
        json.inspect_err(|error| log::error!("cannot write the state of camera {} as JSON: {error}", state.camera))
            .ok()
            .map(Bytes::from)
    }

    /// Returns the topics of the camera's detections: its own, and one for each further model that has messages of its own.
    fn detections(&self, topics: &Topics, camera: &str) -> Vec<String> {
        let further = self.models.split(MODELS_SEPARATOR).skip(1).filter(|_| !self.is_grouped);
        let further = further.map(|model| topics.detections(&format!("{camera}/{model}")));
        std::iter::once(topics.detections(camera)).chain(further).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use bytes::BytesMut;
    use rumqttc::v5::mqttbytes::v5;
    use tokio::io::{AsyncReadExt, DuplexStream, duplex};
    use visiond_config::command::{Command, CommandError};
    use visiond_config::types::MqttProtocol;
    use visiond_live::LiveBundle;
    use visiond_message::Published;
    use visiond_message::testing::{door_message, model};
    use visiond_system::testing::{HANG, at_once};
    use visiond_telemetry::metrics::{CameraMetrics, LaneMetrics, LaneView};

    use super::super::codec::{BrokerLimits, Codec};
    use super::*;

    #[test]
    fn a_broker_that_invents_cameras_without_end_fills_no_memory() {
        let (config, live) = (MqttSinkConfig::default(), Live::new());
        let context = SinkContext { live, device: "gate".into(), commander: None };
        let topics = Topics::new("visiond", "gate");
        let mut cameras = RetainedCameras::new(&SinkConfig::default(), &config, &context, &topics);
        let (stream, _broker) = tokio::io::duplex(1);
        let (codec, limits, keep_alive) = (Codec(MqttProtocol::V5), BrokerLimits::default(), Duration::from_secs(20));
        let mut session = MqttSession::new(Box::new(stream), codec, limits, keep_alive, BytesMut::new());
        let invent = |cameras: &mut RetainedCameras, camera: &str| {
            let (topic, payload) = (topics.state(camera), Bytes::from_static(b"{}"));
            cameras.incoming(&Incoming { topic, payload, retained: true });
            cameras.to_clear.len()
        };
        assert_eq!(invent(&mut cameras, &"x".repeat(LONGEST_TOPIC)), 0);
        assert_eq!(invent(&mut cameras, "gone"), 2, "its state and its picture are cleared");
        for number in 0..10_000 {
            invent(&mut cameras, &format!("gone-{number}"));
        }
        assert_eq!(cameras.to_clear.len(), MOST_CLEARED);
        cameras.tick(&mut session, Instant::now());
        assert_eq!(
            (session.own_waiting(), cameras.to_clear.len()),
            (MOST_WAITING + 1, MOST_CLEARED - MOST_WAITING - 1)
        );
        for number in 0..10_000 {
            invent(&mut cameras, &format!("{}-{number}", "x".repeat(900)));
        }
        assert!(cameras.to_clear_bytes <= MOST_CLEARED_BYTES);
    }

    const SECOND: Duration = Duration::from_secs(1);

    /// A sink's cameras with the session that they publish in, whose broker is the test.
    struct Bench {
        cameras: RetainedCameras,
        session: MqttSession,
        broker: DuplexStream,
        context: SinkContext,
        topics: Topics,
    }

    impl Bench {
        fn new(sink: &SinkConfig, config: &MqttSinkConfig) -> Self {
            let (context, topics) = (
                SinkContext { live: Live::new(), device: "gate".into(), commander: None },
                Topics::new("visiond", "gate"),
            );
            let cameras = RetainedCameras::new(sink, config, &context, &topics);
            let (stream, broker) = duplex(1 << 20);
            let (codec, limits) = (Codec(MqttProtocol::V5), BrokerLimits::default());
            let session = MqttSession::new(Box::new(stream), codec, limits, 20 * SECOND, BytesMut::new());
            Self { cameras, session, broker, context, topics }
        }

        fn run(&self, model: &str, cameras: &[&Arc<CameraMetrics>]) {
            let cameras = cameras.iter().map(|camera| Arc::clone(camera)).collect();
            self.context.live.set_lanes(vec![LaneView { lane: Arc::new(LaneMetrics::new(model.into())), cameras }]);
        }

        /// The packets that the cameras send at that time: topic and payload, or the topics that are subscribed or
        /// unsubscribed.
        async fn tick(&mut self, now: Instant) -> Vec<(String, String)> {
            self.cameras.tick(&mut self.session, now);
            self.said().await
        }

        async fn said(&mut self) -> Vec<(String, String)> {
            assert_eq!(at_once(self.session.next_event()).await, None);
            let mut bytes = BytesMut::new();
            while at_once(self.broker.read_buf(&mut bytes)).await.is_some_and(|n| n.unwrap() > 0) {}
            let mut said = Vec::new();
            while let Ok(packet) = v5::Packet::read(&mut bytes, None) {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                said.push(match packet {
                    v5::Packet::Publish(packet) => (text(&packet.topic), text(&packet.payload)),
                    v5::Packet::Subscribe(packet) => (
                        "subscribe".to_owned(),
                        packet.filters.iter().map(|f| f.path.as_str()).collect::<Vec<_>>().join(" "),
                    ),
                    v5::Packet::Unsubscribe(packet) => ("unsubscribe".to_owned(), packet.filters.join(" ")),
                    other => panic!("{other:?}"),
                });
            }
            said
        }
    }

    fn snapshot(camera: &str, jpeg: &'static [u8], mask_changes: u64) -> Snapshot {
        Snapshot { camera: camera.into(), jpeg: Bytes::from_static(jpeg), mask_changes }
    }

    /// The topics without their common prefix.
    fn topics_of(said: &[(String, String)]) -> Vec<&str> {
        let short = |topic: &'_ str| topic.rsplit_once("gate/").map_or(topic.len(), |(before, _)| before.len() + 5);
        said.iter().map(|(topic, _)| if topic.contains("gate/") { &topic[short(topic)..] } else { topic }).collect()
    }

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async { tokio::time::timeout(HANG, test).await.expect("no test hangs") });
    }

    fn everything() -> MqttSinkConfig {
        let snapshot_interval = 5 * SECOND;
        MqttSinkConfig { home_assistant: true, retain: true, snapshot_interval, ..MqttSinkConfig::default() }
    }

    #[test]
    fn cameras_are_published_as_they_come_change_and_go() {
        run(async {
            let only_door = SinkConfig { cameras: vec!["door".to_owned()], ..SinkConfig::default() };
            let mut bench = Bench::new(&only_door, &everything());
            let start = Instant::now();
            bench.cameras.begin(&mut bench.session, start);
            assert_eq!(bench.said().await, [], "there is no camera yet");
            let [door, yard] = ["door", "yard"].map(|name| Arc::new(CameraMetrics::new(name.into())));
            bench.run("objects", &[&door, &yard]);
            let said = bench.tick(start).await;
            const DISCOVERY: [&str; 4] =
                ["door_snapshot/config", "door_occupancy/config", "door_detections/config", "door_fps/config"];
            assert_eq!(topics_of(&said)[1], "cameras/door/state");
            let discovery = |said: &[(String, String)]| {
                topics_of(said)
                    .iter()
                    .filter(|topic| topic.ends_with("/config"))
                    .map(|t| (*t).to_owned())
                    .collect::<Vec<_>>()
            };
            let mut found = discovery(&said);
            found.sort_unstable();
            let mut wanted = DISCOVERY;
            wanted.sort_unstable();
            assert_eq!(found, wanted);
            let filters = "homeassistant/+/visiond_gate/+/config visiond/gate/cameras/+/state \
                           visiond/gate/cameras/+/+/detections"
                .to_owned();
            assert_eq!(said[0], ("subscribe".to_owned(), filters.clone()));
            assert_eq!(said.len(), 6);
            assert_eq!(bench.tick(start + SECOND / 2).await, [], "nothing is new");
            // A camera that streams has a snapshot when it is due, once in each interval.
            assert!(bench.cameras.next_snapshots.is_empty());
            door.enter(Phase::Streaming);
            let of_model = |name: &str| Message { model: model(name), ..Arc::unwrap_or_clone(door_message(1, 2)) };
            let publish = |bench: &Bench, name: &str| {
                bench.context.live.messages().publish(&Arc::new(Published::new(Arc::new(of_model(name)))));
            };
            publish(&bench, "objects");
            // A run of a model that a reload took from the camera may end late.
            publish(&bench, "gone");
            let said = bench.tick(start + 2 * SECOND).await;
            let [(topic, state)] = &said[..] else { panic!("{said:?}") };
            assert!(topic.ends_with("cameras/door/state") && state.contains("\"counts\":{\"person\":2}"), "{said:?}");
            let due = |bench: &Bench| bench.cameras.next_snapshots.get("door").copied();
            assert_eq!(due(&bench), Some(start + 7 * SECOND));
            // It ends the search for retained messages.
            assert_eq!(bench.tick(start + 3 * SECOND).await, [("unsubscribe".to_owned(), filters)]);
            assert_eq!(due(&bench), Some(start + 7 * SECOND));
            let snapshots = ["door", "gone"].map(|name| snapshot(name, b"jpeg", 0));
            bench.cameras.snapshots.lock().extend(snapshots);
            let said = bench.tick(start + 7 * SECOND).await;
            assert_eq!(said[0], ("visiond/gate/cameras/door/snapshot".to_owned(), "jpeg".to_owned()));
            assert!(!topics_of(&said).contains(&"cameras/gone/snapshot"));
            assert_eq!(due(&bench), Some(start + 12 * SECOND));
            // Another model.
            bench.run("faces", &[&door]);
            let said = bench.tick(start + 9 * SECOND).await;
            assert_eq!(discovery(&said).len(), 4);
            assert!(said.iter().all(|(_, payload)| payload.contains("faces")), "{said:?}");
            assert_eq!(discovery(&bench.tick(start + 11 * SECOND).await), [""; 0]);
            // Every camera, without discovery.
            let plain = MqttSinkConfig { home_assistant: false, snapshot_interval: Duration::ZERO, ..everything() };
            bench.cameras.configure(&SinkConfig::default(), &plain, &bench.context, &bench.topics);
            yard.enter(Phase::Streaming);
            bench.run("faces", &[&door, &yard]);
            let said = bench.tick(start + 13 * SECOND).await;
            assert!(topics_of(&said).contains(&"cameras/yard/state"), "{said:?}");
            let cleared: Vec<_> = said.iter().filter(|(_, payload)| payload.is_empty()).collect();
            assert_eq!((discovery(&said).len(), cleared.len()), (4, 5), "the discovery and the picture");
            assert!(!bench.cameras.next_snapshots.contains_key("yard"));
            // The door is gone.
            bench.run("faces", &[&yard]);
            let said = bench.tick(start + 13 * SECOND).await;
            assert_eq!(topics_of(&said), ["cameras/door/state", "cameras/door/snapshot", "cameras/door/detections"]);
            assert!(said.iter().all(|(_, payload)| payload.is_empty()));
            assert_eq!(bench.tick(start + 13 * SECOND).await, []);
            // A new session gets everything again.
            bench.cameras.begin(&mut bench.session, start + 13 * SECOND);
            assert_eq!(topics_of(&bench.said().await), ["subscribe", "cameras/yard/state"]);
        });
    }

    #[test]
    fn only_what_visiond_retained_for_cameras_that_are_gone_is_cleared() {
        run(async {
            let mut bench = Bench::new(&SinkConfig::default(), &MqttSinkConfig { retain: false, ..everything() });
            let door = Arc::new(CameraMetrics::new("door".into()));
            bench.run("objects", &[&door]);
            let start = Instant::now();
            bench.tick(start).await;
            let ours = r#"{"origin":{"name":"visiond"}}"#;
            let config = |entity: &str| format!("homeassistant/sensor/visiond_gate/{entity}/config");
            let state = |camera: &str| bench.topics.state(camera);
            let longest = "x".repeat(LONGEST_TOPIC - state("").len());
            let cases = [
                (state("gone"), "{}", true, 2),
                (bench.topics.detections("door/gone"), "{}", true, 1),
                (bench.topics.snapshot("gone"), "jpeg", true, 1),
                (bench.topics.snapshot("door"), "jpeg", true, 0),
                (bench.topics.detections("door"), "{}", true, 1),
                (bench.topics.detections("door"), "{}", false, 0),
                (state("gone"), "{}", false, 0),
                (state("gone"), "", true, 0),
                (state("door"), "{}", true, 0),
                (state(&longest), "{}", true, 2),
                (state(&(longest.clone() + "x")), "{}", true, 0),
                (config("gone_fps"), ours, true, 1),
                (config("gone_fps"), ours, false, 0),
                (config("gone_fps"), r#"{"origin":{"name":"other"}}"#, true, 0),
                (config("door_fps"), ours, true, 0),
            ];
            for (topic, payload, retained, wanted) in cases {
                let message =
                    Incoming { topic: topic.clone(), payload: Bytes::from_static(payload.as_bytes()), retained };
                bench.cameras.incoming(&message);
                let said = bench.tick(start).await;
                assert!(
                    said.len() == wanted && said.iter().all(|(_, payload)| payload.is_empty()),
                    "{topic}: {said:?}"
                );
            }
        });
    }

    #[test]
    fn what_is_switched_off_is_cleared_and_a_removed_sink_leaves_nothing() {
        run(async {
            let mut bench = Bench::new(&SinkConfig::default(), &everything());
            let door = Arc::new(CameraMetrics::new("door".into()));
            bench.run("objects", &[&door]);
            let start = Instant::now();
            bench.tick(start).await;
            let off = MqttSinkConfig { retain: false, snapshot_interval: Duration::ZERO, ..everything() };
            bench.cameras.configure(&SinkConfig::default(), &off, &bench.context, &bench.topics);
            bench.cameras.snapshots.lock().push(snapshot("door", b"late", 0));
            let said = bench.tick(start).await;
            let cleared = ["door_snapshot/config", "cameras/door/detections", "cameras/door/snapshot"];
            assert_eq!(topics_of(&said), cleared, "{said:?}");
            assert!(said.iter().all(|(_, payload)| payload.is_empty()), "{said:?}");
            bench.cameras.removed(&mut bench.session, true);
            let said = bench.said().await;
            assert_eq!((topics_of(&said)[0], said.len()), ("cameras/door/state", 5), "{said:?}");
            assert!(said.iter().all(|(_, payload)| payload.is_empty()), "{said:?}");
            // A reload that switches discovery off, or moves it, and also makes a new session.
            for (home_assistant, prefix, announced) in [(false, "homeassistant", 0), (true, "other", 3)] {
                let config = MqttSinkConfig { home_assistant, discovery_prefix: prefix.to_owned(), ..off.clone() };
                bench.cameras.configure(&SinkConfig::default(), &off, &bench.context, &bench.topics);
                bench.cameras.begin(&mut bench.session, start);
                bench.said().await;
                bench.cameras.configure(&SinkConfig::default(), &config, &bench.context, &bench.topics);
                bench.cameras.begin(&mut bench.session, start);
                let said = bench.said().await;
                let count = |prefix: &str, is_there: bool| {
                    let is = |(topic, payload): &&(String, String)| {
                        topic.starts_with(prefix) && topic.ends_with("/config") && payload.is_empty() != is_there
                    };
                    said.iter().filter(is).count()
                };
                assert_eq!((count("homeassistant/", false), count("other/", true)), (3, announced), "{said:?}");
            }
        });
    }

    #[test]
    fn a_snapshot_is_cleared_and_made_again_once_the_privacy_masks_have_changed() {
        run(async {
            let mut bench = Bench::new(&SinkConfig::default(), &everything());
            let door = Arc::new(CameraMetrics::new("door".into()));
            door.enter(Phase::Streaming);
            bench.run("objects", &[&door]);
            let start = Instant::now();
            bench.tick(start).await;
            let due = bench.cameras.next_snapshots["door"];
            bench.context.live.forget_frames("door");
            // It was made before the change, and no client has it yet.
            bench.cameras.snapshots.lock().push(snapshot("door", b"old", 0));
            let said = bench.tick(start + SECOND).await;
            assert_eq!(topics_of(&said), ["cameras/door/snapshot", "cameras/door/detections"]);
            assert!(said.iter().all(|(_, payload)| payload.is_empty()), "{said:?}");
            assert_ne!(bench.cameras.next_snapshots["door"], due, "the next one is asked for at once");
            bench.cameras.snapshots.lock().extend([snapshot("door", b"late", 0), snapshot("door", b"new", 1)]);
            let said = bench.tick(start + SECOND).await;
            assert_eq!(said, [("visiond/gate/cameras/door/snapshot".to_owned(), "new".to_owned())]);
            assert_eq!(bench.tick(start + SECOND).await, []);
        });
    }

    #[test]
    fn a_camera_that_an_earlier_version_announced_keeps_its_ids() {
        run(async {
            let mut bench = Bench::new(&SinkConfig::default(), &MqttSinkConfig { retain: false, ..everything() });
            let cameras = ["north_door", "south_door", "yard"].map(|name| Arc::new(CameraMetrics::new(name.into())));
            bench.run("objects", &[&cameras[0], &cameras[1], &cameras[2]]);
            let start = Instant::now();
            let ids = |said: &[(String, String)]| {
                let entities = said.iter().filter(|(topic, _)| topic.ends_with("_fps/config"));
                let id =
                    |json: &str| serde_json::from_str::<Value>(json).unwrap()["unique_id"].as_str().unwrap().to_owned();
                entities.map(|(_, json)| id(json)).collect::<Vec<_>>()
            };
            assert_eq!(ids(&bench.tick(start).await), ["visiond_gate_yard_fps"], "the others are not decided yet");
            let old = bench.cameras.discovery.as_ref().unwrap().camera("north_door", Ids::First, "objects", &[], &[]);
            for (topic, entity) in old {
                let payload = entity.to_string().into();
                bench.cameras.incoming(&Incoming { topic, payload, retained: true });
            }
            assert_eq!(ids(&bench.tick(start).await), ["visiond_gate_north_door_fps"]);
            let later = Instant::now() + LONGEST_SCAN;
            assert_eq!(bench.tick(later).await[0].0, "unsubscribe");
            let said = bench.tick(later).await;
            assert_eq!(ids(&said), ["visiond/gate/south_door/fps"]);
            assert!(said.iter().all(|(topic, payload)| !topic.ends_with("/config") || !payload.is_empty()), "{said:?}");
        });
    }

    #[test]
    fn distinct_ids_that_the_broker_retained_stay_until_the_search_decides() {
        run(async {
            // With and without a retained message from an earlier version.
            for is_old in [false, true] {
                let mut bench = Bench::new(&SinkConfig::default(), &MqttSinkConfig { retain: false, ..everything() });
                let (door, lane) =
                    (Arc::new(CameraMetrics::new("north_door".into())), Arc::new(LaneMetrics::new("objects".into())));
                lane.set_values(&Arc::new(ModelValues {
                    attributes: vec![("age".into(), true)],
                    ..ModelValues::default()
                }));
                let values = [lane.values()];
                bench.context.live.set_lanes(vec![LaneView { lane, cameras: vec![door] }]);
                let start = Instant::now();
                bench.tick(start).await;
                let discovery = bench.cameras.discovery.clone().unwrap();
                let of = |ids| discovery.camera("north_door", ids, "objects", &values, &[]);
                let mut retained = of(Ids::Distinct);
                let another = retained[0].0.replace("door", "door__gone");
                retained.push((another.clone(), retained[0].1.clone()));
                let first = of(Ids::First);
                retained.extend(first.iter().filter(|_| is_old).cloned());
                for (topic, entity) in retained {
                    let payload = entity.to_string().into();
                    bench.cameras.incoming(&Incoming { topic, payload, retained: true });
                }
                let cleared = |said: &[(String, String)]| -> Vec<String> {
                    let configs = said.iter().filter(|(topic, json)| topic.ends_with("/config") && json.is_empty());
                    configs.map(|(topic, _)| topic.clone()).collect()
                };
                let mut said = bench.tick(start).await;
                let later = Instant::now() + LONGEST_SCAN;
                said.extend(bench.tick(later).await);
                said.extend(bench.tick(later).await);
                let distinct = of(Ids::Distinct).into_iter().map(|(topic, _)| topic).filter(|_| is_old);
                let wanted: BTreeSet<_> = distinct.chain([another]).collect();
                assert_eq!(cleared(&said).into_iter().collect::<BTreeSet<_>>(), wanted, "{said:?}");
            }
        });
    }

    #[test]
    fn a_camera_that_keeps_its_ids_is_announced_although_it_is_alone() {
        run(async {
            let mut bench = Bench::new(&SinkConfig::default(), &MqttSinkConfig { retain: false, ..everything() });
            bench.run("objects", &[&Arc::new(CameraMetrics::new("north_door".into()))]);
            let start = Instant::now();
            bench.tick(start).await;
            let old = bench.cameras.discovery.as_ref().unwrap().camera("north_door", Ids::First, "other", &[], &[]);
            let wanted = old.len();
            for (topic, entity) in old {
                let payload = entity.to_string().into();
                bench.cameras.incoming(&Incoming { topic, payload, retained: true });
            }
            let mut said = bench.tick(start).await;
            let later = Instant::now() + LONGEST_SCAN;
            said.extend(bench.tick(later).await);
            said.extend(bench.tick(later).await);
            let announced: Vec<_> = said.iter().filter(|(topic, _)| topic.ends_with("/config")).collect();
            assert_eq!(announced.len(), wanted, "{said:?}");
            assert!(announced.iter().all(|(_, json)| json.contains("objects")), "{said:?}");
        });
    }

    #[test]
    fn a_broker_without_wildcards_is_not_asked_what_it_retains() {
        run(async {
            let mut bench = Bench::new(&SinkConfig::default(), &everything());
            let limits = BrokerLimits { wildcards: false, ..BrokerLimits::default() };
            let (stream, broker) = duplex(1 << 20);
            let codec = Codec(MqttProtocol::V5);
            bench.session = MqttSession::new(Box::new(stream), codec, limits, 20 * SECOND, BytesMut::new());
            bench.broker = broker;
            bench.run("objects", &[&Arc::new(CameraMetrics::new("door".into()))]);
            let said = bench.tick(Instant::now()).await;
            assert!(said.len() > 1 && !topics_of(&said).contains(&"subscribe"), "{said:?}");
        });
    }

    #[test]
    fn entities_of_a_model_are_announced_before_its_first_frame_and_those_of_another_cleared() {
        run(async {
            let mut bench = Bench::new(&SinkConfig::default(), &MqttSinkConfig { retain: false, ..everything() });
            let (door, lane) = (Arc::new(CameraMetrics::new("door".into())), Arc::new(LaneMetrics::new("m".into())));
            let gives = |attributes: &[(&str, bool)]| {
                let attributes = attributes.iter().map(|(name, is_number)| ((*name).into(), *is_number)).collect();
                lane.set_values(&Arc::new(ModelValues { attributes, ..ModelValues::default() }));
            };
            gives(&[("age", true)]);
            bench.context.live.set_lanes(vec![LaneView { lane: Arc::clone(&lane), cameras: vec![door] }]);
            let changed = |said: &[(String, String)]| -> Vec<(String, bool)> {
                let configs =
                    said.iter().filter(|(topic, _)| topic.ends_with("/config") && topic.contains("_attribute_"));
                let short = |topic: &str| topic.rsplit('/').nth(1).unwrap().to_owned();
                configs.map(|(topic, payload)| (short(topic), !payload.is_empty())).collect()
            };
            let of = |name: &str, is_there: bool| (name.to_owned(), is_there);
            let start = Instant::now();
            assert_eq!(changed(&bench.tick(start).await), [of("door_attribute_age", true)]);
            // The topics that an earlier start had announced.
            for entity in ["attribute_age", "attribute_hat", "share_road"] {
                let topic = format!("homeassistant/sensor/visiond_gate/door_{entity}/config");
                let payload = Bytes::from_static(br#"{"origin":{"name":"visiond"}}"#);
                bench.cameras.incoming(&Incoming { topic, payload, retained: true });
            }
            let said = bench.tick(start + SECOND).await;
            assert_eq!((changed(&said), said.len()), (vec![of("door_attribute_hat", false)], 2), "{said:?}");
            // Reloaded under the same name, with a label instead of the number.
            gives(&[("age", false), ("hat", false)]);
            let said = bench.tick(start + 4 * SECOND).await;
            assert_eq!(changed(&said), [of("door_attribute_age", true), of("door_attribute_hat", true)]);
            assert!(
                !said.iter().any(|(_, payload)| payload.contains("state_class") && payload.contains("attribute_age"))
            );
            gives(&[]);
            let said = bench.tick(start + 6 * SECOND).await;
            assert_eq!(changed(&said), [of("door_attribute_age", false), of("door_attribute_hat", false)]);
        });
    }

    #[test]
    fn entities_of_lines_and_zones_come_and_go_with_the_reload_and_stay_before_the_first_frame() {
        run(async {
            let mut bench = Bench::new(&SinkConfig::default(), &MqttSinkConfig { retain: false, ..everything() });
            let door = Arc::new(CameraMetrics::new("door".into()));
            let zone = |name: &str| (name.into(), RuleFacts { name: name.into(), kind: "zone".into(), sides: None });
            door.set_rules([zone("dock")].into_iter());
            bench.run("objects", &[&door]);
            let changed = |said: &[(String, String)]| -> Vec<(String, bool)> {
                let configs = said.iter().filter(|(topic, _)| topic.contains("_rule--"));
                let short = |topic: &str| topic.rsplit('/').nth(1).unwrap().to_owned();
                configs.map(|(topic, payload)| (short(topic), !payload.is_empty())).collect()
            };
            let of = |zone: &str, is_there: bool| {
                ["occupied", "inside"].map(|what| (format!("door_rule--{zone}--{what}"), is_there))
            };
            let start = Instant::now();
            assert_eq!(changed(&bench.tick(start).await), of("dock", true), "no frame yet");
            // The topics that an earlier start had announced.
            for zone in ["dock", "old"] {
                let topic = format!("homeassistant/sensor/visiond_gate/door_rule--{zone}--inside/config");
                let payload = Bytes::from_static(br#"{"origin":{"name":"visiond"}}"#);
                bench.cameras.incoming(&Incoming { topic, payload, retained: true });
            }
            let said = bench.tick(start + SECOND).await;
            assert_eq!(changed(&said), [("door_rule--old--inside".to_owned(), false)]);
            door.set_rules([zone("yard")].into_iter());
            let said = bench.tick(start + 2 * SECOND).await;
            assert_eq!(changed(&said), [of("dock", false), of("yard", true)].concat());
            door.set_rules(std::iter::empty());
            assert_eq!(changed(&bench.tick(start + 3 * SECOND).await), of("yard", false));
        });
    }

    #[test]
    fn a_model_that_is_a_bundle_has_one_entity_for_all_cameras_which_goes_with_the_bundle() {
        run(async {
            let config = MqttSinkConfig { retain: false, commands: true, ..everything() };
            let mut bench = Bench::new(&SinkConfig::default(), &config);
            let configured = Arc::new(Configured::default());
            bench.cameras.commander = Some(Arc::<Configured>::clone(&configured) as Arc<dyn Commander>);
            configured.set(&[("door", true), ("yard", true)]);
            let [door, yard] = ["door", "yard"].map(|name| Arc::new(CameraMetrics::new(name.into())));
            bench.run("cars", &[&door, &yard]);
            let status = |version| BundleStatus { name: "street".to_owned(), version, ..BundleStatus::default() };
            let of = |model: &str, version| LiveBundle {
                model: model.to_owned(),
                lane: "cars".to_owned(),
                status: status(version),
            };
            let of_others = LiveBundle { lane: "people".to_owned(), ..of("people", 1) };
            let live = Arc::clone(&bench.context.live);
            live.set_bundles(vec![of("cars", 7), of("plates", 2), of_others]);
            let updates = |said: &[(String, String)]| -> Vec<(String, String)> {
                let updates = said.iter().filter(|(topic, _)| topic.contains("/update/"));
                let short = |topic: &str| topic.rsplit('/').nth(1).unwrap().to_owned();
                let state = |text: &str| match serde_json::from_str::<Value>(text) {
                    Ok(entity) => entity["state_topic"].as_str().unwrap().to_owned(),
                    Err(_) => text.to_owned(),
                };
                updates.map(|(topic, payload)| (short(topic), state(payload))).collect()
            };
            let entity = |model: &str, state: &str| (format!("bundle_{model}"), state.to_owned());
            let start = Instant::now();
            let said = bench.tick(start).await;
            let at_door = bench_topic("door");
            assert_eq!(updates(&said), [entity("cars", &at_door), entity("plates", &at_door)]);
            let state_of = |said: &[(String, String)], topic: &str| -> Value {
                serde_json::from_str(&said.iter().find(|(of, _)| of == topic).unwrap().1).unwrap()
            };
            let bundles = &state_of(&said, &at_door)["bundles"];
            assert_eq!(
                *bundles,
                serde_json::json!({
                    "cars": { "name": "street", "version": 7 }, "plates": { "name": "street", "version": 2 },
                })
            );
            // Another version changes the state alone.
            live.set_bundles(vec![of("cars", 8), of("plates", 2)]);
            let said = bench.tick(start + 2 * SECOND).await;
            assert_eq!((updates(&said), said.len()), (vec![], 2), "two states: {said:?}");
            assert_eq!(state_of(&said, &at_door)["bundles"]["cars"]["version"], 8);
            // The door is switched off: the state of the other camera has it from now on.
            configured.set(&[("door", false), ("yard", true)]);
            bench.run("cars", &[&yard]);
            let at_yard = bench_topic("yard");
            let said = bench.tick(start + 4 * SECOND).await;
            assert_eq!(updates(&said), [entity("cars", &at_yard), entity("plates", &at_yard)]);
            // What an earlier run had announced, and a model that is a file from now on.
            let topic = "homeassistant/update/visiond_gate/bundle_old/config".to_owned();
            let payload = Bytes::from_static(br#"{"origin":{"name":"visiond"}}"#);
            bench.cameras.incoming(&Incoming { topic, payload, retained: true });
            live.set_bundles(vec![of("cars", 8)]);
            let said = bench.tick(start + 6 * SECOND).await;
            // The door, which is off, still names the model on detections.
            assert_eq!(updates(&said), [entity("plates", &at_door), entity("old", "")]);
            configured.set(&[("yard", true)]);
            let said = bench.tick(start + 8 * SECOND).await;
            assert_eq!(updates(&said), [entity("plates", "")]);
            live.set_bundles(Vec::new());
            assert_eq!(updates(&bench.tick(start + 10 * SECOND).await), [entity("cars", "")]);
        });
    }

    /// The cameras of a configuration.
    #[derive(Debug, Default)]
    struct Configured(Mutex<Arc<BTreeMap<String, CommandedCamera>>>);

    impl Configured {
        fn set(&self, cameras: &[(&str, bool)]) {
            let camera = |(name, enabled): &(&str, bool)| {
                let settings = SettingsMessage { enabled: *enabled, ..SettingsMessage::default() };
                ((*name).to_owned(), CommandedCamera { models: "objects".to_owned(), settings })
            };
            *self.0.lock() = Arc::new(cameras.iter().map(camera).collect());
        }
    }

    impl Commander for Configured {
        fn cameras(&self) -> Arc<BTreeMap<String, CommandedCamera>> {
            Arc::clone(&self.0.lock())
        }

        fn request(&self, _: Command) -> Result<(), CommandError> {
            Ok(())
        }
    }

    #[test]
    fn a_camera_that_is_switched_off_keeps_its_entities_and_says_so_and_one_that_is_removed_does_not() {
        run(async {
            let config = MqttSinkConfig { commands: true, ..everything() };
            let mut bench = Bench::new(&SinkConfig::default(), &config);
            let configured = Arc::new(Configured::default());
            bench.cameras.commander = Some(Arc::<Configured>::clone(&configured) as Arc<dyn Commander>);
            let door = Arc::new(CameraMetrics::new("door".into()));
            door.enter(Phase::Streaming);
            configured.set(&[("door", true), ("yard", false)]);
            bench.run("objects", &[&door]);
            let start = Instant::now();
            let said = bench.tick(start).await;
            let state = |said: &[(String, String)], camera: &str| -> Value {
                let topic = bench_topic(camera);
                let state = said.iter().find(|(of, _)| *of == topic).map(|(_, state)| state.clone());
                state.map_or(Value::Null, |state| serde_json::from_str(&state).unwrap())
            };
            let (of_door, of_yard) = (state(&said, "door"), state(&said, "yard"));
            assert_eq!((&of_door["phase"], &of_door["settings"]["enabled"]), (&"streaming".into(), &true.into()));
            assert_eq!((&of_yard["phase"], &of_yard["settings"]["enabled"]), (&"disabled".into(), &false.into()));
            let switches = |said: &[(String, String)]| said.iter().filter(|(of, _)| of.contains("/switch/")).count();
            assert_eq!(switches(&said), 2);
            // The door is switched off: nothing is cleared but what shows frames.
            configured.set(&[("door", false), ("yard", false)]);
            bench.context.live.forget_frames("door");
            bench.context.live.set_lanes(Vec::new());
            let said = bench.tick(start + 2 * SECOND).await;
            let cleared: Vec<_> = said.iter().filter(|(_, payload)| payload.is_empty()).cloned().collect();
            assert_eq!(topics_of(&cleared), ["cameras/door/snapshot", "cameras/door/detections"]);
            assert_eq!(state(&said, "door")["phase"], "disabled");
            // It is being switched on, and has no lane yet.
            configured.set(&[("door", true), ("yard", false)]);
            assert_eq!(bench.tick(start + 2 * SECOND).await, []);
            configured.set(&[("yard", false)]);
            let said = bench.tick(start + 4 * SECOND).await;
            assert!(said.iter().any(|(of, payload)| *of == bench_topic("door") && payload.is_empty()), "{said:?}");
            assert!(said.iter().any(|(of, payload)| of.contains("/switch/") && payload.is_empty()), "{said:?}");
        });
    }

    fn bench_topic(camera: &str) -> String {
        Topics::new("visiond", "gate").state(camera)
    }

    #[test]
    fn a_broker_that_takes_nothing_gets_no_more_states() {
        let (config, door) = (everything(), Arc::new(CameraMetrics::new("door".into())));
        let now = Instant::now();
        for (waiting, publishes) in [(255, true), (256, true), (257, false), (300, false)] {
            let mut bench = Bench::new(&SinkConfig::default(), &config);
            bench.run("objects", &[&door]);
            for _ in 0..waiting {
                bench.session.publish(Publish::retained("t".to_owned(), Bytes::new(), 0, None));
            }
            bench.cameras.tick(&mut bench.session, now);
            assert_eq!(bench.session.own_waiting() > waiting, publishes, "{waiting}");
        }
    }
}
