//! The thread that serves HTTP.
//!
//! One thread with a runtime of its own serves everything, so that clients cost the lanes only CPU time. Long work runs on other
//! threads.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::runtime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use visiond_config::types::HttpConfig;
use visiond_ground::ranked_lock::{LockRank, RankedMutex};
use visiond_service::{HttpError, HttpServer};
use visiond_system::priority::{Rank, give_way};
use visiond_system::threads::finished_by;

use crate::guard::Guard;
use crate::listen::{Acceptors, Endpoint, PreparedListeners};
use crate::routes;
use crate::state::AppState;

/// How long open connections have to finish when the daemon ends.
const GRACE: Duration = Duration::from_millis(300);

/// The thread that serves HTTP.
pub struct Server {
    orders: UnboundedSender<Order>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// The endpoints that are served.
    served: RankedMutex<Vec<Endpoint>>,
}

/// A command for the server's thread.
enum Order {
    Serve(PreparedListeners),
    End,
}

impl Server {
    /// Starts the thread, which serves the prepared listeners.
    pub fn start(prepared: PreparedListeners, state: AppState) -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let (orders, to_do) = unbounded_channel();
        let served = RankedMutex::new(LockRank(4), prepared.endpoints());
        let thread = thread::Builder::new().name("web".to_owned()).spawn(move || {
            give_way(Rank::Batch);
            runtime.block_on(serve(prepared, to_do, state));
            // Work on other threads that has not ended is abandoned.
            runtime.shutdown_background();
        })?;
        Ok(Self { orders, thread: Mutex::new(Some(thread)), served })
    }

    /// Ends the thread; open connections have a moment to finish.
    pub fn end(&self) {
        let _ = self.orders.send(Order::End);
        let thread = self.thread.lock().take();
        let Some(thread) = thread else { return };
        if !finished_by([&thread], Instant::now() + 2 * GRACE) {
            log::warn!("http: a request did not finish in time and is abandoned");
            return;
        }
        // The panic hook has logged a panic.
        let _ = thread.join();
    }
}

impl HttpServer for Server {
    fn prepare(&self, config: &HttpConfig) -> Result<Box<dyn FnOnce() + '_>, HttpError> {
        let prepared = PreparedListeners::new(config, &self.served.lock())?;
        Ok(Box::new(move || {
            *self.served.lock() = prepared.endpoints();
            // The send fails only if the thread has ended.
            let _ = self.orders.send(Order::Serve(prepared));
        }))
    }
}

async fn serve(prepared: PreparedListeners, mut to_do: UnboundedReceiver<Order>, state: AppState) {
    let guard = Guard::new(&state.status.http);
    let live = Arc::clone(&state.live);
    let mut acceptors = Acceptors::new(routes::router(state.clone(), &guard), Arc::clone(&state.status));
    let begin = |prepared: PreparedListeners, acceptors: &mut Acceptors| {
        guard.enforce(prepared.rules.clone());
        live.set_max_fps(prepared.max_fps);
        acceptors.serve(prepared);
    };
    begin(prepared, &mut acceptors);
    tokio::spawn({
        let live = Arc::clone(&live);
        async move { live.messages().wake_readers().await }
    });
    while let Some(Order::Serve(prepared)) = to_do.recv().await {
        begin(prepared, &mut acceptors);
    }
    acceptors.end(GRACE).await;
}

#[cfg(test)]
mod tests;
