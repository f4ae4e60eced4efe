//! nats-server with JetStream, the broker that the NATS sink is tested with.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::port::Port;
use crate::wait_until_or_show;

/// A server on loopback in its own folder; killed when dropped.
pub struct NatsServer {
    /// Its folder: configuration, certificates, stored messages.
    pub folder: tempfile::TempDir,
    /// Where it listens.
    pub port: u16,
    _port: Port,
    child: Option<Child>,
}

impl NatsServer {
    /// A server without access control.
    pub fn start() -> Self {
        Self::start_with(|_| String::new())
    }

    /// A server with these lines in its configuration; `settings` may put files into its folder.
    pub fn start_with(settings: impl FnOnce(&Path) -> String) -> Self {
        Self::start_bare(|folder| {
            format!("jetstream {{ store_dir: \"{}\" }}\n{}", folder.join("store").display(), settings(folder))
        })
    }

    /// The same without JetStream.
    pub fn start_bare(settings: impl FnOnce(&Path) -> String) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let settings = settings(folder.path());
        let reserved = Port::reserve();
        let port = reserved.number;
        let log = folder.path().join("log");
        let text = format!("listen: \"127.0.0.1:{port}\"\nlog_file: \"{}\"\n{settings}", log.display());
        std::fs::write(folder.path().join("conf"), text).expect("the server's configuration");
        let mut server = Self { folder, port, _port: reserved, child: None };
        server.resume();
        server
    }

    /// Restarts it in the same folder and on the same port, and waits until it answers.
    pub fn resume(&mut self) {
        let program =
            ["/usr/sbin/nats-server", "/usr/local/bin/nats-server"].into_iter().find(|p| Path::new(p).exists());
        let mut command = Command::new(program.unwrap_or("nats-server"));
        command.arg("-c").arg(self.path("conf")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.child = Some(command.spawn().expect("nats-server starts: tests/setup --test says what to install"));
        // It listens before it has read its store, and sends INFO when it is ready.
        let greets = || {
            let connection = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
            let mut line = String::new();
            BufReader::new(connection).read_line(&mut line).ok()?;
            line.starts_with("INFO").then_some(())
        };
        wait_until_or_show("nats-server to answer", || greets().is_some(), || self.log());
    }

    /// Kills it.
    pub fn kill(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        child.kill().and_then(|()| child.wait()).expect("nats-server ends");
    }

    /// A path in its folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What it logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }
}

/// Three servers on loopback whose streams may have three replicas.
pub struct NatsCluster {
    /// The servers.
    pub servers: Vec<NatsServer>,
    _routes: Vec<Port>,
}

impl NatsCluster {
    /// Starts them. They elect leaders while they answer.
    pub fn start() -> Self {
        let routes: Vec<_> = (0..3).map(|_| Port::reserve()).collect();
        let urls: Vec<_> = routes.iter().map(|port| format!("\"nats://127.0.0.1:{}\"", port.number)).collect();
        let start = |(number, port): (usize, &Port)| {
            let (port, urls) = (port.number, urls.join(", "));
            let cluster = format!("cluster {{ name: c, listen: \"127.0.0.1:{port}\", routes: [{urls}] }}");
            NatsServer::start_with(|_| format!("server_name: n{number}\n{cluster}\n"))
        };
        Self { servers: routes.iter().enumerate().map(start).collect(), _routes: routes }
    }

    /// The URLs of their clients.
    pub fn urls(&self) -> Vec<String> {
        self.servers.iter().map(|server| format!("nats://127.0.0.1:{}", server.port)).collect()
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
