//! A daemon's HTTP server in memory.

use std::sync::Arc;

use tokio::runtime::{Builder, Runtime};
use visiond_config::types::Config;
use visiond_service::Service;
use visiond_service::reload::Reloader;
use visiond_system::credentials::Secret;
use visiond_system::stop::Stop;
use visiond_system::wake_pipe::WakePipe;
use visiond_web::AppState;
use visiond_web::fuzz::MemoryServer;
use visiond_web::status::StatusCollector;

/// A word of the configuration, which no answer shows without the token.
const PRIVATE: &str = "kestrel-7f3d";

/// A service whose camera has no frames, and its HTTP server.
pub struct WebDaemon {
    guarded: MemoryServer,
    open: MemoryServer,
    _stop: Stop,
    _folder: tempfile::TempDir,
}

impl WebDaemon {
    /// Starts the service.
    pub fn start() -> Self {
        Self::try_start().unwrap()
    }

    fn try_start() -> Result<Self, Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let token = folder.path().join("token");
        std::fs::write(&token, "fuzzing-token-fuzzing-token")?;
        let path = folder.path().join("visiond.toml");
        let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../vm/tiny.onnx");
        // The camera waits for images in an empty folder, so that only the clients act.
        let text = format!(
            "[device]\nname = \"{PRIVATE}\"\n[engine]\nbackend = \"rten\"\nthreads = 1\n\
             [[model]]\nname = \"tiny\"\npath = \"{model}\"\n[[camera]]\nname = \"{PRIVATE}\"\n\
             source = {{ type = \"images\", path = \".\", watch = true, watch_interval = \"1h\" }}\n\
             [[sink]]\ntype = \"file\"\npath = \"{PRIVATE}.jsonl\"\n"
        );
        let config = Config::parse(&text, &path)?;
        let stop = Stop::new()?;
        let service = Arc::new(Service::start(config, None, &stop)?);
        let reloader = Reloader::new(path.clone(), &service, Arc::new(WakePipe::new()?));
        // A request to reload is refused at once.
        reloader.close();
        let state = AppState {
            live: Arc::clone(service.live()),
            status: Arc::new(StatusCollector::new(&service, None, &path)),
            reloads: reloader.reloads.clone(),
            service,
        };
        let token = Secret::read_token(&token)?;
        let (guarded, open) = (MemoryServer::new(&state, Some(&token)), MemoryServer::new(&state, None));
        Ok(Self { guarded, open, _stop: stop, _folder: folder })
    }

    /// Sends `bytes` as a client of each kind, and checks the answers: HTTP, no internal error, and nothing private without the
    /// token.
    pub fn check(&self, bytes: &[u8]) {
        for (server, is_remote, may_see) in [(&self.open, false, true), (&self.guarded, true, false)] {
            // A new one for each, so that nothing of the first continues.
            let answer = simulated().block_on(server.answer(bytes, is_remote));
            if answer.is_empty() {
                continue;
            }
            let status = answer.strip_prefix(b"HTTP/1.").and_then(|rest| rest.get(2..5));
            let Some(status) = status else { panic!("no HTTP: {}", answer.escape_ascii()) };
            assert!(status != b"500", "{}", answer.escape_ascii());
            let shows = |text: &[u8]| text.windows(PRIVATE.len()).any(|window| window == PRIVATE.as_bytes());
            assert!(may_see || !shows(&answer) || shows(bytes), "without the token: {}", answer.escape_ascii());
        }
    }
}

/// Returns a runtime whose time advances at once whenever all tasks wait.
fn simulated() -> Runtime {
    Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}

/// Returns the head of a request for messages over a WebSocket, as a browser sends it.
pub fn upgrade() -> &'static [u8] {
    b"GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
      Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
}
