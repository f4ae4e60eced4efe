//! HTTP: the page, the API, streams, metrics and health.
//!
//! One thread with a runtime of its own serves all of it, so that whoever asks, however much, costs the lanes nothing but
//! the processor's time. Work that takes long is handed to others and waited for.
//!
//! - `listen`: addresses, sockets, connections and their limits.
//! - `guard`, `login`: who may ask.
//! - `routes`: what is answered where, and what holds for every answer; `errors`: how an error looks.
//! - `api`, `health`: what is told; `masked`: what is not.
//! - `stream`, `pictures`: what comes as long as it is watched.
//! - `page`: the live page, and the one that asks for the token.

pub mod api;
mod changes;
pub mod errors;
pub mod guard;
pub mod health;
pub mod listen;
mod login;
mod masked;
mod metrics;
pub mod observe;
mod page;
mod pictures;
pub mod routes;
mod stream;
mod trace;

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::runtime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use visiond_config::types::HttpConfig;
use visiond_live::Live;
use visiond_service::reload::Reloads;
use visiond_service::{HttpServer, Service};
use visiond_system::exit::ExitError;
use visiond_system::priority::{Rank, give_way};
use visiond_system::threads::finished_by;

use crate::observe::Observer;
use guard::Guard;
use listen::Acceptors;
pub use listen::Prepared;

/// How long connections have to end by themselves when the daemon ends.
const GRACE: Duration = Duration::from_millis(300);

/// What handlers work with. Clones share it.
#[derive(Clone)]
pub struct State {
    /// All that runs.
    pub service: Arc<Service>,
    /// What can be watched.
    pub live: Arc<Live>,
    /// Looks at all of it, and keeps what the server counts.
    pub observer: Arc<Observer>,
    /// Asks for reloads.
    pub reloads: Reloads,
}

/// The thread that serves HTTP.
pub struct Server {
    orders: UnboundedSender<Order>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// What is served now.
    served: Mutex<Vec<listen::Place>>,
}

/// What the thread is to do.
enum Order {
    Serve(Prepared),
    End,
}

impl Server {
    /// Serves what was prepared.
    pub fn start(prepared: Prepared, state: State) -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let (orders, to_do) = unbounded_channel();
        let served = Mutex::new(prepared.places());
        let thread = thread::Builder::new().name("web".to_owned()).spawn(move || {
            give_way(Rank::Batch);
            runtime.block_on(serve(prepared, to_do, state));
            // Work that was handed over and still runs is left behind.
            runtime.shutdown_background();
        })?;
        Ok(Self { orders, thread: Mutex::new(Some(thread)), served })
    }

    /// Serves what was prepared, and no more what is not in it; connections that are open stay.
    fn change(&self, prepared: Prepared) {
        *self.served.lock().unwrap_or_else(PoisonError::into_inner) = prepared.places();
        // Without a thread there is nothing to change: it has ended.
        let _ = self.orders.send(Order::Serve(prepared));
    }

    /// Ends it by `deadline`; connections have a moment to end in order.
    pub fn end(&self, deadline: Instant) {
        let _ = self.orders.send(Order::End);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else { return };
        if !finished_by([&thread], deadline) {
            log::warn!("http: a request is not done and is left behind");
            return;
        }
        // A panic of it was logged by the hook.
        let _ = thread.join();
    }
}

impl HttpServer for Server {
    fn prepare(&self, config: &HttpConfig) -> Result<Box<dyn FnOnce() + '_>, ExitError> {
        let prepared = {
            let served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
            Prepared::new(config, &served)?
        };
        Ok(Box::new(move || self.change(prepared)))
    }
}

async fn serve(prepared: Prepared, mut to_do: UnboundedReceiver<Order>, state: State) {
    let guard = Guard::new(&state.observer);
    let live = Arc::clone(&state.live);
    let mut acceptors = Acceptors::new(routes::router(state.clone(), &guard), Arc::clone(&state.observer));
    let begin = |prepared: Prepared, acceptors: &mut Acceptors| {
        guard.set(prepared.rules());
        live.set_max_fps(prepared.max_fps());
        acceptors.serve(prepared);
    };
    begin(prepared, &mut acceptors);
    tokio::spawn({
        let live = Arc::clone(&live);
        async move { live.feed().hand_round().await }
    });
    while let Some(Order::Serve(prepared)) = to_do.recv().await {
        begin(prepared, &mut acceptors);
    }
    acceptors.end(GRACE).await;
}
