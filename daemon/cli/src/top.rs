//! `visiond top`: what the running daemon does, live in a terminal.

mod screen;
mod status;
mod table;

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::{Backend, TermionBackend};
use ratatui::termion::event::Key;
use ratatui::termion::input::TermRead;
use ratatui::termion::raw::IntoRawMode;
use ratatui::termion::screen::IntoAlternateScreen;
use signal_hook::consts::{SIGHUP, SIGTERM};
use visiond_system::exit::{Exit, ExitError};
use visiond_system::logging::tail::Tail;
use visiond_web::status::report::StatusReport;

use crate::client::{Client, DaemonArgs};
use crate::output::print;
use crate::value_parsers::duration;
use screen::{Screen, Snapshot};
use status::Sort;

/// How often keys are looked for, at the least, so that a signal ends it soon.
const LOOK: Duration = Duration::from_millis(200);

/// Watch the running daemon: cameras, networks, sinks and log, live in this terminal
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    daemon: DaemonArgs,

    /// Print once, as text; so it is in any case where standard output is no terminal
    #[arg(long)]
    once: bool,

    /// From one look to the next
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    interval: Duration,

    /// Cameras in this order
    #[arg(short, long, value_name = "COLUMN", default_value = "name")]
    sort: Sort,
}

const AFTER_HELP: &str = "\
Keys: q ends it; up and down choose a camera, of which more is shown; left and right, or s, choose what cameras are sorted by; r turns
the order round.

Examples:
  visiond top
  visiond top --once --sort latency
  visiond top --url http://127.0.0.1:8790
  ssh camera-box visiond top --once";

/// Shows it until a key or a signal ends it.
pub fn run(args: Args) -> Result<Exit, ExitError> {
    let client = Client::find(&args.daemon)?;
    let first: StatusReport = client.get_json("/api/v1/status")?;
    if args.once || !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        print(&status::text(&first, args.sort))?;
        return Ok(Exit::Success);
    }
    let address = client.address().to_string();
    let snapshots = poll(client, args.interval).map_err(ExitError::system)?;
    let signalled = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&signalled)).map_err(ExitError::system)?;
    }
    let keys = read_keys().map_err(ExitError::system)?;
    let mut screen = Screen::new(address, args.sort);
    screen.take(Ok(Snapshot { seen: first, tail: Tail::default() }));
    // Dropping the terminal gives the user's own screen back, after a panic as well.
    let drawn = io::stdout().into_raw_mode().and_then(IntoAlternateScreen::into_alternate_screen);
    drawn
        .and_then(|stdout| Terminal::new(TermionBackend::new(stdout)))
        .and_then(|mut terminal| show(&mut terminal, &mut screen, &snapshots, &keys, &signalled))
        .map_err(|error| terminal_error(&error))?;
    Ok(Exit::Success)
}

fn terminal_error(error: &io::Error) -> ExitError {
    ExitError::new(Exit::Output, format!("this terminal cannot be drawn on: {error}; `visiond top --once` prints text"))
}

/// Asks in a thread of its own, so that keys are heard while the daemon does not answer.
fn poll(client: Client, interval: Duration) -> io::Result<Receiver<Result<Snapshot, String>>> {
    let (tell, snapshots) = channel();
    thread::Builder::new().name("top".to_owned()).spawn(move || ask(&client, interval, &tell))?;
    Ok(snapshots)
}

fn ask(client: &Client, interval: Duration, tell: &Sender<Result<Snapshot, String>>) {
    let mut last = 0;
    loop {
        let snapshot = client.get_json("/api/v1/status").and_then(|seen| {
            let tail: Tail = client.get_json(&format!("/api/v1/log?after={last}"))?;
            last = tail.last;
            Ok(Snapshot { seen, tail })
        });
        if tell.send(snapshot.map_err(|error| error.message)).is_err() {
            return;
        }
        thread::sleep(interval);
    }
}

/// Reads keys in a thread of its own, which ends with the process: nothing interrupts a read of a terminal.
fn read_keys() -> io::Result<Receiver<Key>> {
    let (tell, keys) = channel();
    thread::Builder::new().name("keys".to_owned()).spawn(move || {
        for key in io::stdin().keys().map_while(Result::ok) {
            if tell.send(key).is_err() {
                return;
            }
        }
    })?;
    Ok(keys)
}

fn show<B: Backend<Error = io::Error>>(
    terminal: &mut Terminal<B>,
    screen: &mut Screen,
    snapshots: &Receiver<Result<Snapshot, String>>,
    keys: &Receiver<Key>,
    signalled: &AtomicBool,
) -> io::Result<()> {
    loop {
        snapshots.try_iter().for_each(|snapshot| screen.take(snapshot));
        terminal.draw(|frame| screen.draw(frame))?;
        // Several keys may have come, and a paste is many.
        let next = keys.recv_timeout(LOOK);
        if next.into_iter().chain(keys.try_iter()).any(|key| pressed(screen, key)) || signalled.load(Ordering::Relaxed)
        {
            return Ok(());
        }
        if next == Err(RecvTimeoutError::Disconnected) {
            return Err(io::Error::other("its input has ended"));
        }
    }
}

/// Does what a key asks for; `true`: it is to end.
fn pressed(screen: &mut Screen, key: Key) -> bool {
    match key {
        Key::Char('q') | Key::Esc | Key::Ctrl('c') => return true,
        Key::Up | Key::Char('k') => screen.choose(-1),
        Key::Down | Key::Char('j') => screen.choose(1),
        Key::Right | Key::Char('s') => screen.sort_by(1),
        Key::Left => screen.sort_by(-1),
        Key::Char('r') => screen.turn_round(),
        _ => {}
    }
    false
}
