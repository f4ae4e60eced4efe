//! A connection to a NATS server, until it is lost.

use std::collections::VecDeque;
use std::error::Error as _;
use std::future::{Future, ready};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_nats::jetstream;
use async_nats::jetstream::context::{ContextBuilder, PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::publish::PublishAck;
use async_nats::{AuthError, Client, ConnectError, ConnectErrorKind, ConnectOptions, Event, ServerAddr, Subject};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use visiond_config::split_broker;
use visiond_config::types::NatsSinkConfig;

use super::auth::ClientAuth;
use crate::broker::{QueuedMessage, WINDOW, tls};

/// How long one server may take to answer, before the client tries the next.
const ANSWER: Duration = Duration::from_secs(4);

/// How often to ping a silent server; the connection is lost after two unanswered pings.
const PING: Duration = Duration::from_secs(10);

type Acknowledgement = Pin<Box<dyn Future<Output = (QueuedMessage, bool, Result<PublishAck, PublishError>)> + Send>>;

pub struct NatsConnection {
    client: Client,
    pub jetstream: jetstream::Context,
    /// The sink's name, for the log.
    pub sink: String,
    /// The servers, for errors.
    servers: String,
    stream: Option<String>,
    ack_timeout: Duration,
    acknowledgements: FuturesUnordered<Acknowledgement>,
    /// The numbers of messages that are too large for this server.
    pub left_out: VecDeque<u64>,
    /// The message that no stream accepted, for which the connection is given up.
    pub unclaimed: Option<QueuedMessage>,
    /// Receives why the connection is lost.
    lost: UnboundedReceiver<String>,
}

impl NatsConnection {
    /// Connects to the first server that answers.
    pub async fn open(config: &NatsSinkConfig, auth: ClientAuth, device: &str, sink: &str) -> Result<Self, String> {
        let servers = config.url.join(", ");
        let addresses: Result<Vec<_>, _> = config.url.iter().map(|url| url.parse::<ServerAddr>()).collect();
        let addresses = addresses.map_err(|error| format!("{servers}: {error}"))?;
        let auth = Arc::new(auth);
        let connected = Arc::new(AtomicBool::new(false));
        let (loses, lost) = unbounded_channel();
        // The NATS client would reconnect by itself. This fails, because the callback gives no credentials from then on; the
        // client gives up after as many attempts as there are servers.
        let show = {
            let (auth, connected) = (Arc::clone(&auth), Arc::clone(&connected));
            move |nonce: Vec<u8>| {
                let again = connected.load(Ordering::Relaxed);
                ready(if again { Err(AuthError::new(io::Error::other("not again"))) } else { auth.answer(&nonce) })
            }
        };
        let mut options = ConnectOptions::with_auth_callback(show)
            .name(format!("visiond {device} {sink}"))
            .connection_timeout(ANSWER)
            .ping_interval(PING)
            .max_reconnects(addresses.len())
            .reconnect_delay_callback(|_| Duration::ZERO)
            .ignore_discovered_servers()
            .require_tls(config.ca.is_some() || config.certificate.is_some())
            .event_callback(move |event| {
                let reason = match event {
                    Event::Disconnected => Some("the server has ended the connection".to_owned()),
                    Event::ServerError(error) => Some(explain_server(&error.to_string())),
                    _ => None,
                };
                // The receiver is gone if the connection was given up already.
                let _ = reason.map(|reason| loses.send(reason));
                ready(())
            });
        if let Some(ca) = &config.ca {
            options = options.add_root_certificates(ca.clone());
        }
        if let (Some(certificate), Some(key)) = (&config.certificate, &config.key) {
            options = options.add_client_certificate(certificate.clone(), key.clone());
        }
        let client = options.connect(addresses).await.map_err(|error| explain(&error, &servers, &auth))?;
        connected.store(true, Ordering::Relaxed);
        // Messages that are sent again may be in flight in addition to the window.
        let jetstream =
            ContextBuilder::new().timeout(config.ack_timeout).max_ack_inflight(4 * WINDOW).build(client.clone());
        Ok(Self {
            client,
            jetstream,
            sink: sink.to_owned(),
            servers,
            stream: config.stream.clone(),
            ack_timeout: config.ack_timeout,
            acknowledgements: FuturesUnordered::new(),
            left_out: VecDeque::new(),
            unclaimed: None,
            lost,
        })
    }

    /// Waits for `work`, or for the loss of the connection.
    pub async fn unless_lost<T>(&mut self, work: impl Future<Output = T>) -> Result<T, String> {
        tokio::select! {
            biased;
            Some(reason) = self.lost.recv() => Err(self.at(&reason)),
            done = work => Ok(done),
        }
    }

    /// Hands a message to the NATS client, which sends it. `news`: the sink waits for its acknowledgement.
    pub async fn send(&mut self, subject: Subject, message: &QueuedMessage, news: bool) -> Result<(), String> {
        let mut publish = PublishMessage::build().payload(message.line.clone()).message_id(&message.id);
        if let Some(stream) = &self.stream {
            publish = publish.expected_stream(stream);
        }
        let message = message.clone();
        match self.jetstream.send_publish(subject, publish).await {
            Ok(acknowledgement) => {
                let acknowledgement = acknowledgement.into_future();
                self.acknowledgements.push(Box::pin(async move { (message, news, acknowledgement.await) }));
                Ok(())
            }
            Err(error) if error.kind() == PublishErrorKind::MaxPayloadExceeded => {
                log::error!(
                    "sink {}: {} rejects {} of camera {} as too large: leaving it out; raise max_payload there",
                    self.sink,
                    self.servers,
                    message.id,
                    message.camera
                );
                if news {
                    self.left_out.push_back(message.number);
                }
                Ok(())
            }
            Err(error) => Err(self.at(&error.to_string())),
        }
    }

    /// Returns the next message that the stream has acknowledged; `None` if the sink does not wait for it. The future may be
    /// dropped at any time.
    pub async fn next(&mut self) -> Result<Option<QueuedMessage>, String> {
        tokio::select! {
            biased;
            Some((message, news, acknowledgement)) = self.acknowledgements.next() => match acknowledgement {
                Ok(_) => Ok(news.then_some(message)),
                Err(error) => Err(self.explain_publish(&error, &message)),
            },
            Some(reason) = self.lost.recv() => Err(self.at(&reason)),
            // The sender of `lost` lives as long as the client.
            else => std::future::pending().await,
        }
    }

    /// Waits until the stream has acknowledged everything that was sent.
    pub async fn settle(&mut self) -> Result<(), String> {
        while !self.acknowledgements.is_empty() {
            self.next().await?;
        }
        Ok(())
    }

    /// Sends what the client holds, and closes the connection.
    pub async fn close(self, within: Duration) {
        // The next connection sends what does not go out in time.
        let _ = tokio::time::timeout(within, self.client.flush()).await;
    }

    fn explain_publish(&mut self, error: &PublishError, message: &QueuedMessage) -> String {
        // The server's own reason comes before the silence that follows.
        if let Ok(reason) = self.lost.try_recv() {
            return self.at(&reason);
        }
        let camera = &message.camera;
        if !matches!(error.kind(), PublishErrorKind::TimedOut | PublishErrorKind::BrokenPipe) {
            self.unclaimed = Some(message.clone());
        }
        match error.kind() {
            PublishErrorKind::StreamNotFound => self.at(&format!(
                "no stream accepts the messages of camera {camera}: make one (`nats stream add`), or set `stream` and \
                 `create_stream`; start the server with -js if it has no streams at all"
            )),
            PublishErrorKind::TimedOut => {
                self.at(&format!("no acknowledgement within {} s", self.ack_timeout.as_secs_f32()))
            }
            PublishErrorKind::BrokenPipe => self.at("the server has ended the connection"),
            _ => {
                let why = error.source().map_or_else(|| error.to_string(), ToString::to_string);
                self.at(&format!("the stream rejects the messages of camera {camera}: {why}"))
            }
        }
    }

    /// Prefixes `what` with the servers' addresses.
    pub fn at(&self, what: &str) -> String {
        format!("{}: {what}", self.servers)
    }
}

/// Adds a remedy to an error from the server.
fn explain_server(error: &str) -> String {
    let remedy = if error.to_lowercase().contains("permissions violation") {
        "; allow this login to publish its subjects and to subscribe to _INBOX.>, see docs/nats.md"
    } else {
        ""
    };
    format!("the server says: {error}{remedy}")
}

/// Returns why the connection failed.
fn explain(error: &ConnectError, servers: &str, auth: &ClientAuth) -> String {
    let host = split_broker(servers.split(", ").next().unwrap_or(servers)).map_or(servers, |(_, host, _)| host);
    let (mut words, mut tls) = (Vec::new(), None);
    let mut cause = error.source();
    while let Some(error) = cause {
        tls = tls.or_else(|| tls::explain(error.downcast_ref()?, host, "nats"));
        let text = error.to_string();
        if !words.iter().any(|word: &String| word.contains(&text)) {
            words.push(text);
        }
        cause = error.source();
    }
    if let Some(why) = tls {
        return format!("{servers}: {why}");
    }
    let why = words.join(": ");
    match error.kind() {
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
            format!("{servers}: the server {}", auth.remedy())
        }
        ConnectErrorKind::TimedOut => format!("{servers}: no answer within {} s", ANSWER.as_secs()),
        ConnectErrorKind::Dns => format!("{servers}: unknown host name: {why}"),
        _ if why.contains("refused") => format!("{servers}: {why}: check that nats-server runs there"),
        _ => format!("{servers}: {why}"),
    }
}
