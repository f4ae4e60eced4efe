//! The sink around a broker's client: connects, sends, receives acknowledgements, and connects again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use visiond_config::types::SinkConfig;
use visiond_message::describe_topic;
use visiond_system::backoff::{Backoff, RateLimit};
use visiond_system::outage::IfUnusable;
use visiond_telemetry::trace;

use super::outbox::Outbox;
use super::queue_reader::{CLOSE_TIMEOUT, QueueReader};
use super::refused::{Due, RefusedCameras};
use super::window::Window;
use super::{BrokerClient, BrokerEvent, Loss, QueuedMessage, TICK, WINDOW};
use crate::queue::{Counters, Queue, Removed};
use crate::sink::{Sink, SinkEnd, SinkError};

/// How long an attempt to connect may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Shortest time between two log lines of the same kind.
const QUIET: Duration = Duration::from_secs(60);
/// How long a broker may go without accepting or acknowledging anything.
const ACK_TIMEOUT: Duration = Duration::from_secs(30);

/// A sink that sends its messages with a [`BrokerClient`].
pub struct BrokerSink<C> {
    name: String,
    client: C,
    outbox: Outbox,
    refused: RefusedCameras,
}

impl<C: BrokerClient> BrokerSink<C> {
    /// Opens the sink; its thread connects.
    pub fn open(config: &SinkConfig, client: C, if_unusable: IfUnusable) -> Result<Self, SinkError> {
        let (name, refused) = (config.name.clone(), RefusedCameras::new(config));
        Ok(Self { name, client, outbox: Outbox::open(config, if_unusable)?, refused })
    }
}

impl<C: BrokerClient> Sink for BrokerSink<C> {
    fn run(self: Box<Self>, queue: &Queue) -> SinkEnd {
        let name = self.name.clone();
        if let Err(error) = self.run_to_end(queue) {
            log::error!("sink {name}: cannot run: {error}");
        }
        SinkEnd::Closed
    }
}

impl<C: BrokerClient> BrokerSink<C> {
    /// Runs until the queue is closed and empty, or its deadline has passed. Fails if the runtime cannot be created.
    fn run_to_end(self, queue: &Queue) -> std::io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let result = runtime.block_on(async {
            SinkLoop::new(self, queue)?.run().await;
            Ok(())
        });
        // A task that the client left running must not delay the end.
        runtime.shutdown_timeout(Duration::from_millis(50));
        result
    }
}

/// How long a sink that a reload removed may take to clear its retained messages from the broker: a second for a thousand
/// messages.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(2);

/// Why the sink leaves a connection.
enum EndOfConnection {
    Lost(Loss),
    /// New settings require a new connection.
    Renew,
    /// The sink ends.
    End,
}

struct SinkLoop<'q, C> {
    name: String,
    client: C,
    queue_reader: QueueReader<'q>,
    window: Window,
    refused: RefusedCameras,
    /// The number of the last message that came from the outbox.
    taken: u64,
    connection: ConnectionState,
    counters: &'q Counters,
    /// Limits the lines about messages that the broker can never accept.
    left_out: RateLimit,
    ticked: Instant,
    /// When the broker last accepted or acknowledged something, or had nothing to do.
    moved: Instant,
}

impl<'q, C: BrokerClient> SinkLoop<'q, C> {
    /// Creates the loop of a sink. Must be called within a runtime.
    fn new(sink: BrokerSink<C>, queue: &'q Queue) -> std::io::Result<Self> {
        let BrokerSink { name, client, outbox, refused } = sink;
        let now = Instant::now();
        Ok(Self {
            name,
            client,
            queue_reader: QueueReader::new(queue, outbox)?,
            window: Window::default(),
            refused,
            taken: 0,
            connection: ConnectionState::new(),
            counters: &queue.counters,
            left_out: RateLimit::new(QUIET),
            ticked: now,
            moved: now,
        })
    }

    async fn run(mut self) {
        while self.connect().await {
            match self.run_connected().await {
                EndOfConnection::Lost(loss) => self.connection_lost(loss),
                EndOfConnection::Renew => {
                    self.client.close(CLOSE_TIMEOUT).await;
                    self.connection.left(Instant::now());
                }
                EndOfConnection::End => break,
            }
        }
        match self.queue_reader.removed() {
            Some(Removed { shares_discovery }) => {
                let within = self.queue_reader.left().clamp(CLOSE_TIMEOUT, REMOVE_TIMEOUT);
                self.client.remove(within, shares_discovery).await;
            }
            None => self.client.close(CLOSE_TIMEOUT).await,
        }
        self.report_connected(false);
        let unsent = self.queue_reader.outbox.close((self.window.outstanding() + self.refused.len()) as u64);
        self.counters.refused.store(0, Ordering::Relaxed);
        Counters::add(&self.counters.unsent, unsent);
    }

    /// Connects, with no time limit; returns `false` if the sink ends.
    async fn connect(&mut self) -> bool {
        loop {
            self.queue_reader.fill_outbox(0);
            self.reconfigure();
            while Instant::now() < self.connection.next_try {
                if self.gives_up() {
                    return false;
                }
                let next_try = tokio::time::Instant::from_std(self.connection.next_try);
                tokio::select! {
                    () = self.queue_reader.wait_and_fill(0) => self.reconfigure(),
                    () = tokio::time::sleep_until(next_try) => {}
                };
            }
            let attempt = {
                let Self { client, queue_reader, .. } = self;
                let mut attempt = std::pin::pin!(tokio::time::timeout(CONNECT_TIMEOUT, client.connect()));
                loop {
                    tokio::select! {
                        biased;
                        attempt = &mut attempt => break Some(attempt),
                        () = queue_reader.wait_and_fill(0) => {
                            let ends = queue_reader.is_over() || queue_reader.is_closing() && queue_reader.outbox.is_durable();
                            if ends || queue_reader.configured.is_some() {
                                break None;
                            }
                        }
                    }
                }
            };
            match attempt {
                Some(Ok(Ok(()))) => {
                    let waiting = self.window.outstanding() + self.refused.len();
                    let waiting = waiting as u64 + self.queue_reader.waiting();
                    if self.connection.connected(&self.name, waiting, Instant::now()) {
                        Counters::add(&self.counters.reconnects, 1);
                    }
                    self.report_connected(true);
                    return true;
                }
                Some(Ok(Err(reason))) => self.connection_lost(reason.into()),
                Some(Err(_)) => {
                    self.connection_lost(format!("no answer within {} s", CONNECT_TIMEOUT.as_secs()).into());
                }
                // New settings, or the end: see below.
                None => {}
            }
            if self.gives_up() {
                return false;
            }
        }
    }

    /// Sends messages and handles events until the connection ends.
    async fn run_connected(&mut self) -> EndOfConnection {
        self.window.rewind();
        self.moved = Instant::now();
        self.refused.try_all(self.moved);
        loop {
            self.queue_reader.fill_outbox(self.window.room());
            if let Some(config) = self.queue_reader.configured.take()
                && !self.configure(*config)
            {
                return EndOfConnection::Renew;
            }
            self.send_refused();
            let may_have_more = self.fill_window();
            self.queue_reader.outbox.settle();
            let all_out =
                self.window.len() == 0 && self.queue_reader.drained && self.queue_reader.outbox.waiting() == 0;
            if self.queue_reader.is_over() || all_out {
                return EndOfConnection::End;
            }
            let now = Instant::now();
            if now >= self.ticked + TICK {
                self.ticked = now;
                self.client.tick();
                self.forget_dropped();
                self.connection.check_lasting(&self.name, now);
            }
            if !self.window.awaits() {
                self.moved = now;
            } else if now >= self.moved + ACK_TIMEOUT {
                return EndOfConnection::Lost(format!("no acknowledgement for {} s", ACK_TIMEOUT.as_secs()).into());
            }
            let left = match self.window.next() {
                Some(_) => self.send().await,
                None if may_have_more => self.handle_events().await,
                None => self.listen().await,
            };
            if let Some(left) = left {
                return left;
            }
        }
    }

    /// Takes new messages into the window, except those of refused cameras, which are set aside. Handles a limited number at
    /// once, because these take no room; returns whether there may be more.
    fn fill_window(&mut self) -> bool {
        for _ in 0..WINDOW {
            if self.window.room() == 0 || self.refused.is_full() {
                return false;
            }
            let Some(message) = self.queue_reader.outbox.take(self.counters) else { return false };
            self.taken = message.number;
            if self.refused.contains(&message.camera) {
                self.hold([Arc::new(message)]);
            } else {
                self.window.push(Arc::new(message));
            }
        }
        true
    }

    /// Sends the window's next message.
    async fn send(&mut self) -> Option<EndOfConnection> {
        let trace = trace::work("send");
        let sent = {
            let Self { client, queue_reader, window, .. } = self;
            let message = window.next()?;
            let mut sending = std::pin::pin!(tokio::time::timeout(ACK_TIMEOUT, client.send(&message)));
            loop {
                tokio::select! {
                    biased;
                    sent = &mut sending => break sent,
                    () = queue_reader.wait_and_fill(0) => {
                        if queue_reader.is_over() {
                            return Some(EndOfConnection::End);
                        }
                    }
                }
            }
        };
        drop(trace);
        let accepted_nothing = |_| Err(format!("the broker accepted nothing for {} s", ACK_TIMEOUT.as_secs()));
        if let Err(reason) = sent.unwrap_or_else(accepted_nothing) {
            return Some(EndOfConnection::Lost(reason.into()));
        }
        if self.window.sent() {
            Counters::add(&self.counters.resent, 1);
        }
        self.handle_events().await
    }

    /// Handles the events that have already arrived; then the sockets get their turn.
    async fn handle_events(&mut self) -> Option<EndOfConnection> {
        for _ in 0..WINDOW {
            let Some(event) = self.client.event().now_or_never() else { break };
            if let Some(left) = self.handle_event(event) {
                return Some(left);
            }
        }
        tokio::task::yield_now().await;
        None
    }

    /// Waits for the next event, message or tick.
    async fn listen(&mut self) -> Option<EndOfConnection> {
        let tick = tokio::time::Instant::from_std(self.ticked + TICK);
        let room = self.window.room();
        let event = tokio::select! {
            event = self.client.event() => event,
            () = self.queue_reader.wait_and_fill(room) => BrokerEvent::Nothing,
            () = tokio::time::sleep_until(tick) => BrokerEvent::Nothing,
        };
        self.handle_event(event)
    }

    fn handle_event(&mut self, event: BrokerEvent) -> Option<EndOfConnection> {
        let (number, counter) = match event {
            BrokerEvent::Acknowledged(number) => (number, &self.counters.written),
            BrokerEvent::Impossible(number, reason) => {
                if let Some(held_back) = self.left_out.pass(Instant::now()) {
                    let more = if held_back > 0 { format!(" (and {held_back} more)") } else { String::new() };
                    log::error!("sink {}: cannot send a message, leaving it out: {reason}{more}", self.name);
                }
                (number?, &self.counters.failed)
            }
            BrokerEvent::Refused(number, reason) => {
                self.refuse(number, &reason);
                return None;
            }
            BrokerEvent::Lost(loss) => return Some(EndOfConnection::Lost(loss)),
            BrokerEvent::Nothing => return None,
        };
        // A message that was removed earlier counts only once.
        if self.window.acknowledge(number) {
            self.refused.done(number, std::ptr::eq(counter, &self.counters.written));
            self.moved = Instant::now();
            Counters::add(counter, 1);
            self.done(number);
        }
        None
    }

    /// Takes a message that the broker refuses out of the window, with the later ones of its camera.
    fn refuse(&mut self, number: u64, reason: &str) {
        let taken = self.window.take_refused(number);
        let Some(first) = taken.first() else { return };
        self.moved = Instant::now();
        if self.refused.refuse(&first.camera, number, reason, self.moved) {
            log::error!("sink {}: {reason}; the {} wait", self.name, describe_topic(&first.camera));
        }
        self.hold(taken);
        self.report_connected(true);
    }

    /// Keeps messages of a refused camera.
    fn hold(&mut self, messages: impl IntoIterator<Item = Arc<QueuedMessage>>) {
        let Self { queue_reader, refused, .. } = self;
        let hold = |message: Arc<QueuedMessage>| {
            let is_on_disk = queue_reader.outbox.is_on_disk(message.number);
            refused.hold(message, is_on_disk)
        };
        // Do this for all of them first: a message that is neither in the window nor here counts as done, and would not be
        // sent after a restart.
        let dropped: Vec<_> = messages.into_iter().flat_map(hold).collect();
        self.drop_refused(&dropped);
    }

    /// Counts messages of refused cameras that are dropped.
    fn drop_refused(&mut self, dropped: &[u64]) {
        Counters::add(&self.counters.failed, dropped.len() as u64);
        dropped.iter().for_each(|number| self.done(*number));
        self.report_refused();
    }

    /// Moves the messages of refused cameras that are due into the window.
    fn send_refused(&mut self) {
        let now = Instant::now();
        while self.window.room_for_refused(|camera| self.refused.contains(camera)) > 0
            && let Some(due) = self.refused.due(now)
        {
            match due {
                Due::Send(message) => self.window.push(message),
                Due::Read(camera, numbers) => match self.queue_reader.outbox.read_again(&numbers) {
                    Some((found, settled)) if settled > 0 => {
                        let lost = self.refused.read_again(&camera, found, settled);
                        self.queue_reader.outbox.count_dropped(lost.len() as u64);
                    }
                    _ => self.refused.postpone(&camera, now),
                },
            }
        }
        for camera in self.refused.accepted() {
            log::info!("sink {}: the broker accepts the {} again", self.name, describe_topic(&camera));
            self.report_connected(true);
        }
        self.report_refused();
    }

    /// Forgets the messages of refused cameras that a full spool has dropped.
    fn forget_dropped(&mut self) {
        if let Some(first) = self.queue_reader.outbox.first_number() {
            let dropped = self.refused.forget_below(first);
            self.queue_reader.outbox.count_dropped(dropped.len() as u64);
        }
    }

    /// Notes that the message of this number is done with.
    fn done(&mut self, number: u64) {
        let first = [self.window.first_number(), self.refused.first_number()].into_iter().flatten().min();
        let through = first.map_or(self.taken, |first| first.saturating_sub(1));
        self.queue_reader.outbox.acknowledge(number, through);
    }

    fn report_refused(&self) {
        let in_memory = if self.queue_reader.outbox.is_durable() { 0 } else { self.refused.len() };
        self.counters.refused.store(in_memory as u64, Ordering::Relaxed);
    }

    /// Whether a sink that ends does so without another attempt to connect.
    fn gives_up(&self) -> bool {
        let in_vain =
            self.connection.outage().is_some() || self.queue_reader.is_over() || self.queue_reader.outbox.is_durable();
        self.queue_reader.is_closing() && in_vain
    }

    fn connection_lost(&mut self, loss: Loss) {
        self.connection.connection_lost(&self.name, loss, self.queue_reader.outbox.meanwhile(), Instant::now());
        self.report_connected(false);
    }

    fn reconfigure(&mut self) {
        if let Some(config) = self.queue_reader.configured.take() {
            // There is no connection, so it does not matter whether the settings require a new one.
            self.configure(*config);
            self.connection.next_try = Instant::now();
        }
    }

    /// Applies new settings; returns `false` if they require a new connection.
    fn configure(&mut self, config: SinkConfig) -> bool {
        let goes_on = self.client.configure(&config);
        self.queue_reader.outbox.configure(&config);
        self.name.clone_from(&config.name);
        let dropped = self.refused.configure(&config);
        if !dropped.is_empty() {
            log::warn!(
                "sink {}: dropped {} messages that the broker refused, of cameras that `cameras` no longer lists",
                self.name,
                dropped.len()
            );
            self.drop_refused(&dropped);
            self.queue_reader.outbox.settle();
        }
        goes_on
    }

    fn report_connected(&self, connected: bool) {
        self.counters.connected.store(if connected { 2 } else { 1 }, Ordering::Relaxed);
        let outage = if connected { self.refused.outage() } else { self.connection.outage().map(str::to_owned) };
        *self.counters.outage.lock() = outage;
    }
}

/// Whether the sink is connected, when to try again, and what to log: one line when the connection is lost, one when it is back,
/// and one in between only for another reason. If connections repeatedly break soon after they were made, it logs that once,
/// and little more until one lasts.
#[derive(Debug)]
struct ConnectionState {
    backoff: Backoff,
    /// Whether there ever was a connection.
    before: bool,
    connected_since: Option<Instant>,
    /// How many connections in a row were lost before they lasted [`LASTING`].
    short_connections: u32,
    /// Limits the lines about other reasons while connections are short.
    other_reasons: RateLimit,
    /// When the connection was lost, and why.
    lost: Option<(Instant, String)>,
    next_try: Instant,
}

const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Only a connection that lasted this long resets the pause. It is longer than the longest pause, because if two clients take
/// the session from each other, each keeps it during the other's pause.
const LASTING: Duration = Duration::from_secs(10);
/// From this many short connections in a row, they are logged as a group.
const MANY_SHORT: u32 = 4;

impl ConnectionState {
    /// Starts unconnected; the first attempt may be made at once.
    fn new() -> Self {
        Self {
            backoff: Backoff::new(FIRST_PAUSE, LONGEST_PAUSE),
            before: false,
            connected_since: None,
            short_connections: 0,
            other_reasons: RateLimit::new(QUIET),
            lost: None,
            next_try: Instant::now(),
        }
    }

    /// Returns why there is no connection, if an attempt failed.
    fn outage(&self) -> Option<&str> {
        self.lost.as_ref().map(|(_, reason)| reason.as_str())
    }

    /// Notes that the sink has left the connection by itself; the next attempt may be made at once.
    fn left(&mut self, now: Instant) {
        self.connected_since = None;
        self.next_try = now;
    }

    /// Notes and logs that an attempt failed or the connection is lost. `meanwhile` says what happens to the messages.
    fn connection_lost(&mut self, name: &str, loss: Loss, meanwhile: &str, now: Instant) {
        self.check_lasting(name, now);
        self.short_connections += u32::from(self.connected_since.take().is_some());
        let pause = self.backoff.pause();
        self.next_try = now + pause;
        log::debug!("sink {name}: next attempt in {:.3} s", pause.as_secs_f32());
        let Loss { reason, remedy } = loss;
        let are_short = self.short_connections >= MANY_SHORT;
        match &mut self.lost {
            Some((_, known)) if *known == reason => {}
            Some((_, known)) => {
                if !are_short || self.other_reasons.pass(now).is_some() {
                    log::error!("sink {name}: still not connected: {reason}");
                }
                *known = reason;
            }
            None => {
                if self.short_connections == MANY_SHORT {
                    let remedy = remedy.map_or_else(String::new, |remedy| format!("; {remedy}"));
                    log::error!(
                        "sink {name}: {MANY_SHORT} connections in a row were lost within {} s: {reason}{remedy}; retrying \
                         more slowly, {meanwhile}",
                        LASTING.as_secs()
                    );
                } else if !are_short {
                    let what = if self.before { "connection lost" } else { "not connected" };
                    log::error!("sink {name}: {what}: {reason}; retrying, {meanwhile}");
                }
                self.lost = Some((now, reason));
            }
        }
    }

    /// Notes and logs that the sink is connected; `waiting` messages go out late. Returns whether it was connected before.
    fn connected(&mut self, name: &str, waiting: u64, now: Instant) -> bool {
        self.connected_since = Some(now);
        match self.lost.take() {
            // Logged once the connection lasts.
            _ if self.short_connections >= MANY_SHORT => {}
            Some((since, _)) => {
                let seconds = now.duration_since(since).as_secs_f32();
                log::info!("sink {name}: connected after {seconds:.1} s; {waiting} messages waited");
            }
            None => log::info!("sink {name}: connected"),
        }
        std::mem::replace(&mut self.before, true)
    }

    /// Resets the pause once the connection has lasted.
    fn check_lasting(&mut self, name: &str, now: Instant) {
        if self.connected_since.is_none_or(|since| now.duration_since(since) < LASTING) {
            return;
        }
        self.backoff.reset();
        if std::mem::take(&mut self.short_connections) >= MANY_SHORT {
            log::info!("sink {name}: connection stable again");
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::path::Path;

    use visiond_message::Published;
    use visiond_message::testing::door_message;
    use visiond_system::stop::Stop;

    use super::*;

    /// A client of a silent broker.
    struct Silent;

    impl BrokerClient for Silent {
        async fn connect(&mut self) -> Result<(), String> {
            Ok(())
        }
        async fn send(&mut self, _: &QueuedMessage) -> Result<(), String> {
            Ok(())
        }
        async fn event(&mut self) -> BrokerEvent {
            std::future::pending().await
        }
        async fn close(&mut self, _: Duration) {}
        fn configure(&mut self, _: &SinkConfig) -> bool {
            true
        }
    }

    /// Runs `test` with a durable sink whose outbox has messages 1 to `messages` of the camera "door", which is refused.
    fn with_sink(messages: u64, queue: usize, test: impl FnOnce(&mut SinkLoop<'_, Silent>)) {
        let folder = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let config = durable(folder.path(), queue);
            let sink = BrokerSink::open(&config, Silent, IfUnusable::Refuse).unwrap();
            let queue = Queue::of(&config, &Stop::new().unwrap());
            let mut sink = SinkLoop::new(sink, &queue).unwrap();
            let messages: Vec<_> = (0..messages).map(|n| Arc::new(Published::new(door_message(n, 1)))).collect();
            sink.queue_reader.outbox.put(&messages, sink.counters);
            sink.refused.refuse(&"door".into(), 0, "no right", Instant::now());
            test(&mut sink);
        });
    }

    fn durable(folder: &Path, queue: usize) -> SinkConfig {
        SinkConfig {
            durable: true,
            spool_directory: Some(folder.to_owned()),
            spool_bytes: 1 << 30,
            queue,
            ..SinkConfig::default()
        }
    }

    #[test]
    fn a_dropped_message_does_not_settle_those_that_are_taken_out_with_it() {
        with_sink(3, 1, |sink| {
            let [trial, refused, waiting] = [0; 3].map(|_| sink.queue_reader.outbox.take(sink.counters).unwrap());
            sink.taken = 3;
            // The disk refused the last two.
            let writer = sink.queue_reader.outbox.spool_writer.as_mut().unwrap();
            writer.memory_only = [2, 3].into();
            sink.hold([Arc::new(waiting)]);
            sink.window.push(Arc::new(refused));
            sink.window.next();
            sink.window.sent();
            sink.window.push(Arc::new(trial));
            // Memory has room for one of the two.
            sink.refuse(2, "no right");
            assert_eq!((sink.refused.len(), sink.refused.first_number()), (2, Some(1)));
            assert_eq!(sink.counters.failed.load(Ordering::Relaxed), 1);
            let spool = sink.queue_reader.outbox.spool_writer.as_ref().unwrap().spool.as_ref().unwrap();
            assert_eq!(spool.records(), 3, "the first is not acknowledged");
        });
    }

    #[test]
    fn a_refused_camera_that_the_sink_has_no_more_leaves_the_spool() {
        with_sink(3, 1, |sink| {
            sink.fill_window();
            let records = |sink: &SinkLoop<'_, Silent>| {
                sink.queue_reader.outbox.spool_writer.as_ref().unwrap().spool.as_ref().unwrap().records()
            };
            assert_eq!((sink.refused.len(), records(sink)), (3, 3));
            sink.configure(SinkConfig { cameras: vec!["yard".to_owned()], ..SinkConfig::default() });
            assert_eq!((sink.refused.len(), records(sink)), (0, 0));
            assert_eq!(sink.counters.failed.load(Ordering::Relaxed), 3);
        });
    }

    #[test]
    fn a_long_backlog_of_a_refused_camera_is_read_in_parts() {
        with_sink(600, 10, |sink| {
            for (held, more) in [(256, true), (512, true), (600, false), (600, false)] {
                assert_eq!((sink.fill_window(), sink.refused.len(), sink.window.len()), (more, held, 0));
            }
        });
    }

    /// Connects, loses the connection after `lasted`, and returns the pause until the next attempt.
    fn pause_after(state: &mut ConnectionState, now: &mut Instant, lasted: Duration) -> Duration {
        state.connected("test", 0, *now);
        *now += lasted;
        state.connection_lost("test", "test: closed".to_owned().into(), "", *now);
        let pause = state.next_try - *now;
        *now = state.next_try;
        pause
    }

    #[test]
    fn pauses_grow_over_connections_that_are_lost_at_once_and_start_over_after_one_that_lasted() {
        let (mut state, mut now) = (ConnectionState::new(), Instant::now());
        let mut pauses = |lasted| std::array::from_fn::<_, 5, _>(|_| pause_after(&mut state, &mut now, lasted));
        let short = pauses(Duration::from_millis(200));
        assert!(short.is_sorted_by(|a, b| a < b), "{short:?}");
        // The longest pause of another client with the same id.
        let longer = pauses(LONGEST_PAUSE);
        assert!(longer.iter().all(|pause| *pause > LONGEST_PAUSE / 2), "{longer:?}");
        let lasting = pauses(LASTING);
        assert!(lasting.iter().all(|pause| *pause <= FIRST_PAUSE), "{lasting:?}");
    }

    #[test]
    fn thirty_days_of_lost_connections_keep_the_pauses_within_their_bounds() {
        let (mut state, mut now) = (ConnectionState::new(), Instant::now());
        let (end, mut short) = (now + Duration::from_secs(30 * 86_400), 0_u64);
        while now < end {
            // A broker that ends each connection at once for a week, then one that is away for hours, then one that works.
            let left = (end - now).as_secs();
            let lasted = match left / 86_400 {
                23.. => Duration::from_millis(100),
                10..23 if left % 7200 < 3600 => {
                    state.connection_lost("test", "test: refused".to_owned().into(), "", now);
                    assert!(state.next_try - now <= LONGEST_PAUSE);
                    now = state.next_try;
                    continue;
                }
                10..23 => Duration::from_secs(600),
                _ => LASTING,
            };
            let pause = pause_after(&mut state, &mut now, lasted);
            short += u64::from(lasted < LASTING);
            let bounds = match lasted < LASTING {
                true if short > 6 => LONGEST_PAUSE.mul_f64(0.749)..=LONGEST_PAUSE,
                true => FIRST_PAUSE / 2..=LONGEST_PAUSE,
                false => FIRST_PAUSE / 2..=FIRST_PAUSE,
            };
            assert!(bounds.contains(&pause), "{lasted:?}: {pause:?}");
        }
        assert!(short > 100_000 && state.short_connections <= 1, "{short} {}", state.short_connections);
        assert_eq!(state.lost.as_ref().map(|(since, _)| *since <= now), Some(true));
    }

    #[test]
    fn an_attempt_that_fails_is_no_short_connection() {
        let (mut state, now) = (ConnectionState::new(), Instant::now());
        (0..9).for_each(|_| state.connection_lost("test", "test: refused".to_owned().into(), "", now));
        assert_eq!(state.short_connections, 0);
    }

    #[test]
    fn a_connection_that_new_settings_end_is_no_short_connection() {
        let (mut state, now) = (ConnectionState::new(), Instant::now());
        state.connected("test", 0, now);
        state.left(now);
        assert_eq!(state.next_try, now);
        state.connection_lost("test", "test: refused".to_owned().into(), "", now);
        assert_eq!(state.short_connections, 0);
    }

    #[test]
    fn only_a_connection_that_lasts_ends_a_row_of_short_ones() {
        const MS: Duration = Duration::from_millis(1);
        for (lasted, short) in [(LASTING - MS, MANY_SHORT), (LASTING, 0), (LASTING + MS, 0)] {
            let (mut state, mut now) = (ConnectionState::new(), Instant::now());
            for number in 0..MANY_SHORT {
                assert_eq!((state.connected("test", 0, now), state.outage()), (number > 0, None), "connected before");
                state.check_lasting("test", now);
                state.connection_lost("test", "test: closed".to_owned().into(), "", now);
                assert_eq!((state.short_connections, state.outage()), (number + 1, Some("test: closed")));
                state.connection_lost("test", "test: refused".to_owned().into(), "", now);
                assert_eq!((state.short_connections, state.outage()), (number + 1, Some("test: refused")));
                assert!(state.next_try > now);
                now = state.next_try;
            }
            state.connected("test", 0, now);
            state.check_lasting("test", now + lasted);
            assert_eq!(state.short_connections, short, "{lasted:?}");
        }
    }
}
