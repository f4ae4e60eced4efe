//! A session with a broker: sends messages in order, and receives acknowledgements by packet id.
//!
//! All waiting is in [`MqttSession::next_event`]. Its future may be dropped at any await, because the session keeps what was read
//! or half written. The session is clean: after a lost connection, neither visiond nor the broker keeps any of it, and the
//! sink sends unacknowledged messages again.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use tokio::io::ReadBuf;

use super::codec::{
    BrokerLimits, Codec, DISCONNECT, Incoming, Oversized, PINGREQ, Packet, Publish, WillDelivery, pubrel,
};
use super::topics::SET;
use crate::broker::{TcpOrTls, UNASKED_BYTES, unasked};

/// How many bytes may wait for the socket before the session stops creating packets.
const OUTPUT_BYTES: usize = 256 << 10;
/// How many bytes a broker may send for a subscription: the retained messages of a thousand cameras.
const SUBSCRIBED_BYTES: usize = 64 << 20;
const SUBSCRIBED_MESSAGES: usize = 64 << 10;
/// How many topics of refused states and snapshots the session remembers.
const MOST_REFUSED: usize = 1024;
/// Larger refused messages are snapshots: the next one replaces them.
const MOST_KEPT_BYTES: usize = 64 << 10;
/// How long to wait before a refused state is sent again.
const REFUSED_WAIT: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionEvent {
    Acknowledged(u64),
    /// The broker can never accept the message of this number, or a state or snapshot, and why.
    Impossible(Option<u64>, String),
    /// The broker refuses the message of this number, which has this topic, and why.
    Refused(u64, String, String),
    /// The broker refuses a state or a snapshot for this topic, and why; the first refusal.
    OwnRefused(String, String),
    /// The broker again accepts states and snapshots for every topic that it had refused.
    OwnAccepted,
    /// The broker refuses the subscription to commands.
    CommandsRefused,
    /// A message on a subscribed topic.
    Incoming(Incoming),
    /// A message on this topic was not read, because it has this many bytes.
    TooLarge(String, usize),
    Lost(String),
    /// The session is lost: another client has connected with the same client id.
    TakenOver,
}

/// A message without an acknowledgement.
struct InFlight {
    /// The sink's number; `None` for a state or a snapshot.
    number: Option<u64>,
    publish: Publish,
    /// Whether PUBREL has gone out (QoS 2).
    released: bool,
}

/// A session that the broker has accepted.
pub struct MqttSession {
    stream: Box<dyn TcpOrTls>,
    codec: Codec,
    limits: BrokerLimits,
    input: BytesMut,
    /// How many bytes of a message that is too large are still to come.
    skip: usize,
    output: BytesMut,
    /// Bytes that the socket has taken so far.
    written: u64,
    unflushed: bool,
    /// Messages that have no number from the sink: states and snapshots.
    own: VecDeque<Publish>,
    messages: VecDeque<(u64, Publish)>,
    /// Sent messages without an acknowledgement, by packet id.
    in_flight: BTreeMap<u16, InFlight>,
    last_number: u16,
    /// Messages of QoS 0, each with the value of `written` once its last byte is out.
    leaving: VecDeque<(u64, u64)>,
    events: VecDeque<SessionEvent>,
    /// Whether the broker has acknowledged anything.
    has_acknowledged: bool,
    /// How the session was lost.
    lost: Option<SessionEvent>,
    keep_alive: Duration,
    /// The time of the last [`MqttSession::tick`].
    now: Instant,
    received_at: Instant,
    sent_at: Instant,
    /// When the last PINGREQ was sent, if nothing has arrived since.
    pinged_at: Option<Instant>,
    /// Whether the broker owes a PINGRESP.
    pinged: bool,
    /// How many bytes and messages the broker may still send for a subscription.
    subscribed: (usize, usize),
    /// The packet id of the subscription to commands, which may come at any time.
    commands: Option<u16>,
    /// Bytes since the last answer to something that visiond sent.
    unasked: usize,
    /// The topics of states and snapshots that the broker refused, with the newest state.
    refused: BTreeMap<String, Option<Publish>>,
    /// When to send one of them again.
    refused_until: Option<Instant>,
}

impl MqttSession {
    /// Creates a session on `stream`, which the broker has accepted.
    pub fn new(
        stream: Box<dyn TcpOrTls>,
        codec: Codec,
        limits: BrokerLimits,
        keep_alive: Duration,
        input: BytesMut,
    ) -> Self {
        let now = Instant::now();
        let keep_alive = limits.keep_alive_seconds.map_or(keep_alive, |s| Duration::from_secs(u64::from(s.max(1))));
        let mut session = Self {
            stream,
            codec,
            limits,
            input,
            skip: 0,
            output: BytesMut::new(),
            written: 0,
            unflushed: false,
            own: VecDeque::new(),
            messages: VecDeque::new(),
            in_flight: BTreeMap::new(),
            last_number: 0,
            leaving: VecDeque::new(),
            events: VecDeque::new(),
            has_acknowledged: false,
            lost: None,
            keep_alive,
            now,
            received_at: now,
            sent_at: now,
            pinged_at: None,
            pinged: false,
            subscribed: (0, 0),
            commands: None,
            unasked: 0,
            refused: BTreeMap::new(),
            refused_until: None,
        };
        // Packets may have arrived together with CONNACK.
        if let Err(reason) = session.decode() {
            session.lost = Some(SessionEvent::Lost(reason));
        }
        session
    }

    /// Queues a state or a snapshot, ahead of the sink's messages.
    pub fn publish(&mut self, publish: Publish) {
        if let Some(refused) = self.refused.get_mut(&publish.topic) {
            *refused = to_keep(&publish);
        }
        if publish.retain && publish.payload.is_empty() {
            // It overtakes the sink's messages, which must not be retained after it.
            let overtaken = self.messages.iter_mut().filter(|(_, message)| message.topic == publish.topic);
            overtaken.for_each(|(_, message)| message.retain = false);
        }
        self.own.push_back(publish);
    }

    /// Returns the number of states and snapshots that wait to be sent, or for their acknowledgement.
    pub fn own_waiting(&self) -> usize {
        self.own.len() + self.in_flight.values().filter(|sent| sent.number.is_none()).count()
    }

    /// Whether the broker allows subscriptions with wildcards.
    pub fn has_wildcards(&self) -> bool {
        self.limits.wildcards
    }

    /// Whether the broker retains messages.
    pub fn retains(&self) -> bool {
        self.limits.retain
    }

    /// Whether the broker has acknowledged a message.
    pub fn has_acknowledged(&self) -> bool {
        self.has_acknowledged
    }

    /// Restricts the session to the features of a broker that accepts no stronger will.
    pub fn limit_to(&mut self, WillDelivery { retain, qos }: WillDelivery) {
        self.limits.retain &= retain;
        if qos == 0 {
            self.limits.qos = 0;
        }
    }

    /// Returns their size in bytes.
    pub fn own_bytes(&self) -> usize {
        let sent = self.in_flight.values().filter(|sent| sent.number.is_none()).map(|sent| &sent.publish);
        self.own.iter().chain(sent).map(|publish| publish.payload.len()).sum()
    }

    /// Subscribes to topic filters, or unsubscribes from them.
    pub fn subscribe(&mut self, topics: &[String], listen: bool) {
        let number = self.free_number();
        let before = self.output.len();
        if self.codec.subscribe(topics, listen, number, &mut self.output).is_err() {
            self.output.truncate(before);
        }
        if listen {
            self.subscribed = (SUBSCRIBED_BYTES, SUBSCRIBED_MESSAGES);
        }
    }

    /// Subscribes to commands, for the whole session.
    pub fn subscribe_to_commands(&mut self, topics: &[String]) {
        let number = self.free_number();
        let before = self.output.len();
        match self.codec.subscribe(topics, true, number, &mut self.output) {
            Ok(()) => self.commands = Some(number),
            Err(_) => self.output.truncate(before),
        }
    }

    /// Queues a message and writes what the socket accepts now.
    pub async fn send(&mut self, number: u64, publish: Publish) {
        self.messages.push_back((number, publish));
        poll_fn(|context| {
            // `next_event` reports the error.
            let _ = self.write(context);
            Poll::Ready(())
        })
        .await;
    }

    /// Returns the next event. The future may be dropped and the method called again at any time.
    pub async fn next_event(&mut self) -> SessionEvent {
        poll_fn(|context| self.poll(context)).await
    }

    /// Pings a silent broker, and gives up on one that does not answer. Must be called regularly.
    pub fn tick(&mut self, now: Instant) {
        self.now = now;
        let since = |then: Instant| now.saturating_duration_since(then);
        if self.refused_until.is_some_and(|until| now >= until) {
            self.refused_until = None;
            // One of them shows whether the broker accepts them now.
            self.own.extend(self.refused.values().flatten().next().cloned());
        }
        match self.pinged_at {
            Some(pinged_at) if since(pinged_at) >= self.keep_alive => {
                let seconds = since(self.received_at).as_secs();
                self.lost.get_or_insert_with(|| {
                    SessionEvent::Lost(format!(
                        "no packet from the broker for {seconds} s: check the broker and the network"
                    ))
                });
            }
            Some(_) => {}
            // Half of it, because the broker measures the same time at its end.
            None if since(self.received_at.min(self.sent_at)) >= self.keep_alive / 2 => {
                self.output.extend_from_slice(&PINGREQ);
                (self.pinged_at, self.pinged) = (Some(now), true);
            }
            None => {}
        }
    }

    /// Sends the queued states and snapshots and ends the session with DISCONNECT, so that the broker does not publish the will.
    /// Returns whether the broker has them.
    pub async fn close(mut self, within: Duration) -> bool {
        let ended = async {
            if !poll_fn(|context| self.poll_own_sent(context)).await {
                return false;
            }
            self.output.extend_from_slice(&DISCONNECT);
            let _ = poll_fn(|context| self.write(context)).await;
            let _ = poll_fn(|context| Pin::new(&mut *self.stream).poll_shutdown(context)).await;
            true
        };
        tokio::time::timeout(within, ended).await.unwrap_or(false)
    }

    /// Waits until the broker has the queued states and snapshots; `false` if the session ends before that.
    fn poll_own_sent(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        loop {
            match self.poll(context) {
                Poll::Ready(SessionEvent::Lost(_) | SessionEvent::TakenOver) => return Poll::Ready(false),
                Poll::Ready(_) => {}
                // Everything that can be written and read now has been.
                Poll::Pending => {
                    let said = self.own.is_empty() && self.in_flight.values().all(|sent| sent.number.is_some());
                    return if said && self.output.is_empty() { Poll::Ready(true) } else { Poll::Pending };
                }
            }
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<SessionEvent> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Poll::Ready(event);
            }
            if let Some(lost) = &self.lost {
                return Poll::Ready(lost.clone());
            }
            if let Poll::Ready(Err(error)) = self.write(context) {
                // The broker may have sent its reason before it closed: read it, or get the same error.
                self.lost = Some(SessionEvent::Lost(describe_io_error(&error)));
                let _ = self.read(context);
                continue;
            }
            if !self.events.is_empty() {
                continue;
            }
            match self.read(context) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(reason)) => self.lost = Some(SessionEvent::Lost(reason)),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Creates packets and writes them; ready when nothing is left to write.
    fn write(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            self.pack();
            if self.output.is_empty() {
                break;
            }
            let n = ready!(Pin::new(&mut *self.stream).poll_write(context, &self.output))?;
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.output.advance(n);
            self.written += n as u64;
            self.unflushed = true;
            self.sent_at = self.now;
            while let Some((_, number)) = self.leaving.pop_front_if(|(end, _)| *end <= self.written) {
                self.events.push_back(SessionEvent::Acknowledged(number));
            }
        }
        if self.unflushed {
            ready!(Pin::new(&mut *self.stream).poll_flush(context))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Creates packets from queued messages until the broker's limit or the output buffer is reached.
    fn pack(&mut self) {
        while self.output.len() < OUTPUT_BYTES {
            let message = self.messages.front().map(|(_, publish)| publish);
            let Some(next) = self.own.front().or(message) else { return };
            if next.qos > 0 && self.in_flight.len() >= usize::from(self.limits.in_flight) {
                return;
            }
            let (number, mut publish) = match self.own.pop_front() {
                Some(publish) => (None, publish),
                None => match self.messages.pop_front() {
                    Some((number, publish)) => (Some(number), publish),
                    None => return,
                },
            };
            publish.qos = publish.qos.min(self.limits.qos);
            publish.retain &= self.limits.retain;
            let id = if publish.qos == 0 { 0 } else { self.free_number() };
            let before = self.output.len();
            let bytes = self.codec.publish_bytes(&publish);
            let packed = if bytes > self.limits.packet_bytes {
                Err(format!("it has {bytes} bytes, the broker accepts at most {}", self.limits.packet_bytes))
            } else {
                self.codec.publish(&publish, id, &mut self.output)
            };
            if let Err(reason) = packed {
                self.output.truncate(before);
                self.events.push_back(SessionEvent::Impossible(number, reason));
                continue;
            }
            match number {
                Some(number) if id == 0 => self.leaving.push_back((self.written + self.output.len() as u64, number)),
                _ if id == 0 => {}
                number => drop(self.in_flight.insert(id, InFlight { number, publish, released: false })),
            }
        }
    }

    /// Returns a packet id that no message in flight uses. One is always free, because fewer than 65,535 are in flight.
    fn free_number(&mut self) -> u16 {
        loop {
            self.last_number = self.last_number.checked_add(1).unwrap_or(1);
            if !self.in_flight.contains_key(&self.last_number) {
                return self.last_number;
            }
        }
    }

    /// Reads once, and handles the packets.
    fn read(&mut self, context: &mut Context<'_>) -> Poll<Result<(), String>> {
        let mut chunk = [0; 4096];
        let mut buffer = ReadBuf::new(&mut chunk);
        if let Err(error) = ready!(Pin::new(&mut *self.stream).poll_read(context, &mut buffer)) {
            return Poll::Ready(Err(describe_io_error(&error)));
        }
        if buffer.filled().is_empty() {
            return Poll::Ready(Err("the broker closed the connection".to_owned()));
        }
        self.input.extend_from_slice(buffer.filled());
        self.unasked += buffer.filled().len();
        if self.unasked > UNASKED_BYTES {
            return Poll::Ready(Err(unasked("broker", UNASKED_BYTES)));
        }
        (self.received_at, self.pinged_at) = (self.now, None);
        Poll::Ready(self.decode())
    }

    /// Handles the packets that were read.
    fn decode(&mut self) -> Result<(), String> {
        loop {
            if self.skip_oversized() {
                return Ok(());
            }
            match self.codec.decode(&mut self.input) {
                Ok(Some(packet)) => self.received(packet),
                Ok(None) => return Ok(()),
                Err(error) => return Err(format!("the broker sent an invalid packet: {error}")),
            }
        }
    }

    /// Drops what has arrived of messages that are too large; returns whether more of one must come first. One that is larger than all
    /// that the broker may send stays, for the codec to refuse it.
    fn skip_oversized(&mut self) -> bool {
        loop {
            if self.skip == 0 {
                let Some(Oversized { bytes, topic }) = self.codec.oversized(&self.input) else { return false };
                let Some(topic) = topic else { return true };
                let left = self.subscribed.0.checked_sub(bytes);
                if left.is_none() && self.commands.is_none() {
                    return false;
                }
                (self.skip, self.subscribed.0) = (bytes, left.unwrap_or_default());
                self.events.push_back(SessionEvent::TooLarge(topic, bytes));
            }
            let arrived = self.skip.min(self.input.len());
            self.input.advance(arrived);
            self.skip -= arrived;
            // It fills no memory.
            self.unasked = 0;
            if self.skip > 0 {
                return true;
            }
        }
    }

    fn received(&mut self, packet: Packet) {
        self.has_acknowledged |= matches!(packet, Packet::PubAck(..) | Packet::PubRec(..));
        match packet {
            Packet::PubAck(id, Ok(())) | Packet::PubComp(id) => {
                let Some(sent) = self.in_flight.remove(&id) else { return };
                self.unasked = 0;
                match sent.number {
                    Some(number) => self.events.push_back(SessionEvent::Acknowledged(number)),
                    None if self.refused.remove(&sent.publish.topic).is_none() => {}
                    None if self.refused.is_empty() => self.events.push_back(SessionEvent::OwnAccepted),
                    // The others may also be accepted.
                    None => self.refused_until = Some(self.now),
                }
            }
            // Once for each message, so that a broker that repeats itself and reads nothing cannot fill the memory.
            Packet::PubRec(id, Ok(())) => match self.in_flight.get_mut(&id) {
                Some(sent) if sent.publish.qos == 2 && !sent.released => {
                    sent.released = true;
                    self.output.extend_from_slice(&pubrel(id));
                }
                _ => {}
            },
            Packet::PubAck(id, Err(refusal)) | Packet::PubRec(id, Err(refusal)) => {
                if let Some(sent) = self.in_flight.remove(&id) {
                    self.unasked = 0;
                    if refusal.is_too_large {
                        let topic = &sent.publish.topic;
                        let reason = refused(topic, &refusal.reason);
                        let reason = match sent.number {
                            Some(_) => format!("{reason}, or lower `max_detections`"),
                            None => reason,
                        };
                        self.events.push_back(SessionEvent::Impossible(sent.number, reason));
                        // It is not retried; another one must show whether the broker accepts them now.
                        if sent.number.is_none() && self.refused.remove(topic).is_some() && !self.refused.is_empty() {
                            self.refused_until = Some(self.now);
                        }
                    } else {
                        self.refused(id, sent, refusal.reason);
                    }
                }
            }
            Packet::SubAck(id, accepted) => {
                if !accepted && self.commands == Some(id) {
                    self.events.push_back(SessionEvent::CommandsRefused);
                }
            }
            Packet::UnsubAck => self.subscribed = (0, 0),
            Packet::PingResp if self.pinged => (self.pinged, self.unasked) = (false, 0),
            Packet::Disconnect(reason) => {
                self.lost = Some(SessionEvent::Lost(format!("the broker ended the session: {reason}")));
            }
            Packet::TakenOver => self.lost = Some(SessionEvent::TakenOver),
            Packet::Publish(message) => {
                // Give up on a broker that never stops, even if it does not end the subscription.
                let (bytes, messages) = self.subscribed;
                if let (Some(bytes), Some(messages)) = (bytes.checked_sub(self.unasked), messages.checked_sub(1)) {
                    (self.subscribed, self.unasked) = ((bytes, messages), 0);
                } else if self.commands.is_some() && (!message.retained || message.topic.ends_with(SET)) {
                    // Each is handled before more is read, so they fill no memory.
                    self.unasked = 0;
                }
                self.events.push_back(SessionEvent::Incoming(message));
            }
            Packet::ConnAck(_) | Packet::Refused(_) | Packet::PingResp | Packet::Other => {}
        }
    }

    /// Reports a refused message, which the sink sends again, or a refused state or snapshot.
    fn refused(&mut self, id: u16, InFlight { number, publish, .. }: InFlight, reason: String) {
        match number {
            Some(number) => self.events.push_back(SessionEvent::Refused(number, publish.topic, reason)),
            None => {
                if self.refused.is_empty() {
                    self.events.push_back(SessionEvent::OwnRefused(publish.topic.clone(), reason));
                }
                self.refused_until.get_or_insert(self.now + REFUSED_WAIT);
                if self.refused.len() < MOST_REFUSED && !self.refused.contains_key(&publish.topic) {
                    let kept = to_keep(self.newest(id, &publish));
                    self.refused.insert(publish.topic, kept);
                }
            }
        }
    }

    /// Returns the newest state or snapshot for the topic of `publish`, which had that packet id: others may be in flight.
    fn newest<'a>(&'a self, id: u16, publish: &'a Publish) -> &'a Publish {
        let same = |other: &&Publish| other.topic == publish.topic;
        let own = self.in_flight.iter().filter(|(_, sent)| sent.number.is_none());
        let sent = own.map(|(id, sent)| (*id, &sent.publish)).filter(|(_, other)| same(other));
        // Packet ids count up and wrap around.
        let newest = sent.chain([(id, publish)]).min_by_key(|(id, _)| self.last_number.wrapping_sub(*id));
        self.own.iter().rfind(same).or(newest.map(|(_, publish)| publish)).unwrap_or(publish)
    }
}

/// Describes a refusal.
pub fn refused(topic: &str, reason: &str) -> String {
    format!("the broker refuses a message to {topic}: {reason}")
}

/// Returns the state to send again if the broker refused one. A refused snapshot is replaced by the next one.
fn to_keep(publish: &Publish) -> Option<Publish> {
    (publish.payload.len() <= MOST_KEPT_BYTES).then(|| publish.clone())
}

/// Describes an error of the connection.
pub fn describe_io_error(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
            format!("the broker closed the connection ({error})")
        }
        _ => format!("lost the connection to the broker: {error}"),
    }
}

#[cfg(test)]
mod tests;
