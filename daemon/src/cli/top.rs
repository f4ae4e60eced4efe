//! `visiond top`: what the running daemon does, live in a terminal.

mod facts;
mod screen;
mod table;

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use signal_hook::consts::{SIGHUP, SIGTERM};

use super::client::{Client, Place};
use super::run::duration;
use super::{CliError, print};
use crate::exit::Exit;
use crate::observe::log_tail::Tail;
use crate::observe::observation::Observation;
use facts::Sort;
use screen::Screen;

/// How often keys are looked for, at the least, so that a signal ends it soon.
const LOOK: Duration = Duration::from_millis(200);

/// Watch the running daemon: cameras, networks, sinks and log, live in this terminal
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    place: Place,

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
pub fn run(args: Args) -> Result<Exit, CliError> {
    let client = Client::find(&args.place)?;
    let first: Observation = client.get_json("/api/v1/status")?;
    if args.once || !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        print(&facts::text(&first, args.sort))?;
        return Ok(Exit::Success);
    }
    let address = client.address().to_string();
    let looks = look_on(client, args.interval).map_err(CliError::system)?;
    let signalled = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&signalled)).map_err(CliError::system)?;
    }
    let mut terminal = ratatui::try_init().map_err(|error| terminal_error(&error))?;
    let mut screen = Screen::new(address, args.sort);
    screen.take(Ok(Look { seen: first, tail: Tail::default() }));
    let result = show(&mut terminal, &mut screen, &looks, &signalled);
    ratatui::restore();
    result.map_err(|error| terminal_error(&error))?;
    Ok(Exit::Success)
}

fn terminal_error(error: &io::Error) -> CliError {
    CliError::new(Exit::Output, format!("this terminal cannot be drawn on: {error}; `visiond top --once` prints text"))
}

/// What the daemon told at one instant.
pub struct Look {
    seen: Observation,
    tail: Tail,
}

/// Asks in a thread of its own, so that keys are heard while the daemon does not answer.
fn look_on(client: Client, interval: Duration) -> io::Result<Receiver<Result<Look, String>>> {
    let (tell, looks) = channel();
    thread::Builder::new().name("top".to_owned()).spawn(move || ask(&client, interval, &tell))?;
    Ok(looks)
}

fn ask(client: &Client, interval: Duration, tell: &Sender<Result<Look, String>>) {
    let mut last = 0;
    loop {
        let look = client.get_json("/api/v1/status").and_then(|seen| {
            let tail: Tail = client.get_json(&format!("/api/v1/log?after={last}"))?;
            last = tail.last;
            Ok(Look { seen, tail })
        });
        if tell.send(look.map_err(|error| error.message)).is_err() {
            return;
        }
        thread::sleep(interval);
    }
}

fn show(
    terminal: &mut DefaultTerminal,
    screen: &mut Screen,
    looks: &Receiver<Result<Look, String>>,
    signalled: &AtomicBool,
) -> io::Result<()> {
    loop {
        looks.try_iter().for_each(|look| screen.take(look));
        terminal.draw(|frame| screen.draw(frame))?;
        let until = Instant::now() + LOOK;
        // Several keys may have come, and a paste is many.
        while event::poll(until.saturating_duration_since(Instant::now()))? {
            if let Event::Key(key) = event::read()?
                && key.kind != KeyEventKind::Release
                && pressed(screen, key)
            {
                return Ok(());
            }
            if !event::poll(Duration::ZERO)? {
                break;
            }
        }
        if signalled.load(Ordering::Relaxed) {
            return Ok(());
        }
    }
}

/// Does what a key asks for; `true`: it is to end.
fn pressed(screen: &mut Screen, key: KeyEvent) -> bool {
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => return true,
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return true,
        KeyCode::Up | KeyCode::Char('k') => screen.choose(-1),
        KeyCode::Down | KeyCode::Char('j') => screen.choose(1),
        KeyCode::Right | KeyCode::Char('s') => screen.sort_by(1),
        KeyCode::Left => screen.sort_by(-1),
        KeyCode::Char('r') => screen.turn_round(),
        _ => {}
    }
    false
}
