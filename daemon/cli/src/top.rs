//! `visiond top`: watches the running daemon live in a terminal.

mod screen;
mod status;

use std::env;
use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use ratatui::backend::{Backend, TermionBackend};
use ratatui::layout::{Rect, Size};
use ratatui::termion::event::Key;
use ratatui::termion::input::TermRead;
use ratatui::termion::raw::IntoRawMode;
use ratatui::termion::screen::IntoAlternateScreen;
use ratatui::{Terminal, TerminalOptions, Viewport};
use signal_hook::consts::{SIGHUP, SIGTERM};
use visiond_system::exit::{Exit, ExitError};
use visiond_system::logging::tail::Tail;
use visiond_web::status::report::StatusReport;

use crate::client::{Client, DaemonArgs};
use crate::output::print;
use crate::value_parsers::duration;
use screen::{Screen, StatusAnswer};
use status::Sort;

/// Maximum time to wait for a key, so that a signal ends the command soon.
const KEY_TIMEOUT: Duration = Duration::from_millis(200);

/// Size of a terminal that does not know its own, such as a serial console.
const ASSUMED_SIZE: Size = Size::new(80, 24);

/// Watch cameras, models, sinks and log of the running daemon in this terminal
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    daemon: DaemonArgs,

    /// Print the status once as text [default if standard input or output is not a terminal]
    #[arg(long)]
    once: bool,

    /// Update every TIME
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    interval: Duration,

    /// Sort cameras by this column
    #[arg(short, long, value_name = "COLUMN", default_value = "name")]
    sort: Sort,
}

const AFTER_HELP: &str = "\
Keys:
  q               quit
  up, down        select a camera to show its stages
  left, right, s  change the sort column
  r               reverse the order
  ?               explain keys and columns

Examples:
  visiond top
  visiond top --once --sort age
  visiond top --url http://127.0.0.1:8790
  ssh camera-box visiond top --once";

/// Shows the status until a key or a signal ends the command.
pub fn run(args: Args) -> Result<Exit, ExitError> {
    let once = args.once || !io::stdout().is_terminal() || !io::stdin().is_terminal();
    if !once {
        can_draw(env::var_os("TERM")).map_err(undrawable)?;
    }
    let client = Client::find(&args.daemon, args.daemon.config.as_deref())?;
    let first: StatusReport = client.get_json("/api/v1/status")?;
    if once {
        print(&status::text(&first, args.sort))?;
        return Ok(Exit::Success);
    }
    let address = client.address.to_string();
    let answers = poll(client, args.interval).map_err(ExitError::system)?;
    let signalled = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&signalled)).map_err(ExitError::system)?;
    }
    let keys = read_keys().map_err(ExitError::system)?;
    let mut screen = Screen::new(address, args.sort);
    screen.take(Ok((first, Tail::default())));
    // `show` sets the size.
    let options = TerminalOptions { viewport: Viewport::Fixed(Rect::ZERO) };
    // Dropping the terminal restores the user's screen, even after a panic.
    let drawn = io::stdout().into_raw_mode().and_then(IntoAlternateScreen::into_alternate_screen);
    drawn
        .and_then(|stdout| Terminal::with_options(TermionBackend::new(stdout), options))
        .and_then(|mut terminal| show(&mut terminal, &mut screen, &answers, &keys, &signalled))
        .map_err(undrawable)?;
    Ok(Exit::Success)
}

/// Fails if a terminal of this kind does not understand escape sequences.
fn can_draw(term: Option<OsString>) -> io::Result<()> {
    match term.filter(|term| !term.is_empty()) {
        None => Err(io::Error::other("TERM is not set")),
        Some(term) if term == "dumb" => Err(io::Error::other("TERM is `dumb`")),
        Some(_) => Ok(()),
    }
}

fn undrawable(error: io::Error) -> ExitError {
    let message = format!("cannot draw on this terminal: {error}; `visiond top --once` prints text");
    ExitError::new(Exit::Output, message)
}

/// Polls the daemon on a separate thread, so that keys work while it does not answer. The error is a sentence for the screen.
fn poll(client: Client, interval: Duration) -> io::Result<Receiver<Result<StatusAnswer, String>>> {
    let (sender, answers) = channel();
    let mut last = 0;
    let mut ask = move || {
        let seen: StatusReport = client.get_json("/api/v1/status")?;
        let tail: Tail = client.get_json(&format!("/api/v1/log?after={last}"))?;
        last = tail.last;
        Ok((seen, tail))
    };
    thread::Builder::new().name("top".to_owned()).spawn(move || {
        while sender.send(ask().map_err(|error: ExitError| error.message)).is_ok() {
            thread::sleep(interval);
        }
    })?;
    Ok(answers)
}

/// Reads keys on a separate thread. It ends with the process, because nothing interrupts a read from a terminal.
fn read_keys() -> io::Result<Receiver<Key>> {
    let (sender, keys) = channel();
    let read = move || io::stdin().keys().map_while(Result::ok).all(|key| sender.send(key).is_ok());
    thread::Builder::new().name("keys".to_owned()).spawn(read)?;
    Ok(keys)
}

fn show<B: Backend<Error = io::Error>>(
    terminal: &mut Terminal<B>,
    screen: &mut Screen,
    answers: &Receiver<Result<StatusAnswer, String>>,
    keys: &Receiver<Key>,
    signalled: &AtomicBool,
) -> io::Result<()> {
    loop {
        answers.try_iter().for_each(|answer| screen.take(answer));
        let area = drawn_area(terminal.size()?);
        if terminal.get_frame().area() != area {
            terminal.resize(area)?;
        }
        terminal.draw(|frame| screen.draw(frame))?;
        // Take all pending keys: a paste has many.
        let next = keys.recv_timeout(KEY_TIMEOUT);
        if next.into_iter().chain(keys.try_iter()).any(|key| pressed(screen, key)) || signalled.load(Ordering::Relaxed)
        {
            return Ok(());
        }
        if next == Err(RecvTimeoutError::Disconnected) {
            return Err(io::Error::other("its input has ended"));
        }
    }
}

/// Returns the area of a terminal that reports `size`. A terminal that does not know its size reports zeros.
fn drawn_area(size: Size) -> Rect {
    let known = |reported, assumed| if reported == 0 { assumed } else { reported };
    Rect::new(0, 0, known(size.width, ASSUMED_SIZE.width), known(size.height, ASSUMED_SIZE.height))
}

/// Handles a key; returns whether it quits.
fn pressed(screen: &mut Screen, key: Key) -> bool {
    if screen.help {
        screen.help = false;
        return key == Key::Ctrl('c');
    }
    match key {
        Key::Char('?') => screen.help = true,
        Key::Char('q') | Key::Esc | Key::Ctrl('c') => return true,
        Key::Up | Key::Char('k') => screen.choose(-1),
        Key::Down | Key::Char('j') => screen.choose(1),
        Key::Right | Key::Char('s') => screen.sort = screen.sort.turned(1),
        Key::Left => screen.sort = screen.sort.turned(-1),
        Key::Char('r') => screen.reversed = !screen.reversed,
        _ => {}
    }
    false
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use ratatui::backend::TestBackend;
    use visiond_message::status::CameraStatus;

    use super::*;

    fn screen() -> Screen {
        let camera = |name: &str| CameraStatus { name: name.to_owned(), ..CameraStatus::default() };
        let seen = StatusReport { cameras: ["door", "gate", "yard"].map(camera).into(), ..StatusReport::default() };
        let mut screen = Screen::new("unix:/x".to_owned(), Sort::Name);
        screen.take(Ok((seen, Tail::default())));
        screen
    }

    /// The camera whose stages are shown.
    fn selected(screen: &Screen) -> Option<&'static str> {
        let mut terminal = Terminal::new(TestBackend::new(100, 40)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        let drawn = terminal.backend().to_string();
        ["door", "gate", "yard"].into_iter().find(|name| drawn.contains(&format!("{name}: 0x0")))
    }

    #[test]
    fn arrows_and_letters_select_sort_and_reverse() {
        let mut screen = screen();
        assert_eq!(selected(&screen), None);
        for (key, expected) in [
            (Key::Down, "door"),
            (Key::Down, "gate"),
            (Key::Char('j'), "yard"),
            (Key::Up, "gate"),
            (Key::Char('k'), "door"),
            (Key::Char('x'), "door"),
        ] {
            assert!(!pressed(&mut screen, key));
            assert_eq!(selected(&screen), Some(expected), "after {key:?}");
        }
        for (key, expected) in [(Key::Right, Sort::Fps), (Key::Char('s'), Sort::Age), (Key::Left, Sort::Fps)] {
            assert!(!pressed(&mut screen, key));
            assert_eq!(screen.sort, expected, "after {key:?}");
        }
        for expected in [true, false] {
            assert!(!pressed(&mut screen, Key::Char('r')));
            assert_eq!(screen.reversed, expected);
        }
    }

    #[test]
    fn q_escape_and_control_c_quit_and_any_key_leaves_the_help() {
        for key in [Key::Char('q'), Key::Esc, Key::Ctrl('c')] {
            assert!(pressed(&mut screen(), key), "{key:?}");
        }
        // In the help, q leaves the help alone.
        for (key, quits) in [(Key::Char('q'), false), (Key::Down, false), (Key::Ctrl('c'), true)] {
            let mut screen = screen();
            assert!(!pressed(&mut screen, Key::Char('?')));
            assert!(screen.help);
            assert_eq!((pressed(&mut screen, key), screen.help), (quits, false), "{key:?}");
            assert_eq!(selected(&screen), None, "{key:?} did nothing else");
        }
    }

    #[test]
    fn a_terminal_that_does_not_know_its_size_is_taken_for_80_x_24() {
        for (reported, drawn) in [((0, 0), (80, 24)), ((132, 0), (132, 24)), ((0, 50), (80, 50)), ((20, 5), (20, 5))] {
            let area = Rect::new(0, 0, drawn.0, drawn.1);
            assert_eq!(drawn_area(Size::new(reported.0, reported.1)), area, "{reported:?}");
        }
    }

    #[test]
    fn a_terminal_that_cannot_be_drawn_on_is_refused_with_the_way_to_have_text() {
        let refused = |term: Option<&str>| can_draw(term.map(Into::into)).err().map(|error| undrawable(error).message);
        assert_eq!(refused(Some("xterm-256color")), None);
        for (term, reason) in
            [(None, "TERM is not set"), (Some(""), "TERM is not set"), (Some("dumb"), "TERM is `dumb`")]
        {
            let expected = format!("cannot draw on this terminal: {reason}; `visiond top --once` prints text");
            assert_eq!(refused(term), Some(expected));
        }
    }
}
