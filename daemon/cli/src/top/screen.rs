//! The screen: its content, and the user's selection.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, TableState};
use visiond_message::status::CameraStatus;
use visiond_system::logging::escape;
use visiond_system::logging::tail::{self, Tail};
use visiond_web::status::report::StatusReport;

use super::status::{self, Sort};
use crate::text_table::TextTable;

/// Maximum number of log lines kept.
const LINES: usize = 500;
/// Minimum number of rows for the log.
const LOG_ROWS: u16 = 4;
/// The help on keys and columns; fits 70 x 20 with the key line.
const HELP: &str = "\
q, Esc         quit
up, down       select a camera to show its stages (also k, j)
left, right    change the sort column (also s)
r              reverse the order

PHASE          opening, streaming, waiting, failed, ended or disabled
FPS            messages per second, over the last five seconds
P50, P99 MS    age of frames when their messages are published: median
               and 99th percentile, over the last 5 to 10 s
PUBLISHED      frames with a message
DROPPED, %     frames without one, and their share of both
DETECTIONS     on the newest frame, or why the camera is away
STAGE          total: capture to publishing; EVER: since the start
RUNS, ERRORS   inferences; frames and inferences that failed
REBUILT, ON    times that the model was loaded again; its backend
STATE, TO      of a sink; yellow: its messages wait, red: outage
WAITING        messages in the sink's queue and, with a spool, on disk
WRITTEN        messages written; acknowledged, where a broker does
LOST           messages that the sink lost";

/// The daemon's report at one instant: its status, and the log lines since the previous answer.
pub type StatusAnswer = (StatusReport, Tail);

/// The state of the screen.
pub struct Screen {
    address: String,
    pub sort: Sort,
    pub reversed: bool,
    /// Whether the help covers the screen.
    pub help: bool,
    /// Name of the selected camera, which stays selected when the order changes.
    chosen: Option<String>,
    seen: StatusReport,
    load: f64,
    log: Vec<tail::Line>,
    /// Why the last request failed.
    away: Option<String>,
}

impl Screen {
    /// An empty screen for the daemon at `address`.
    pub fn new(address: String, sort: Sort) -> Self {
        let seen = StatusReport::default();
        Self { address, sort, reversed: false, help: false, chosen: None, seen, load: 0.0, log: Vec::new(), away: None }
    }

    /// Applies an answer, or the error of a failed request.
    pub fn take(&mut self, answer: Result<StatusAnswer, String>) {
        let (seen, tail) = match answer {
            Ok(answer) => answer,
            Err(error) => return self.away = Some(error),
        };
        let seconds = seen.uptime_s - self.seen.uptime_s;
        let same = seen.started_at == self.seen.started_at && seconds > 0.0;
        self.load = match same {
            true => (seen.process.cpu_seconds - self.seen.process.cpu_seconds) / seconds,
            false => status::average_load(&seen),
        };
        if tail.lines.first().is_some_and(|line| self.log.last().is_some_and(|last| line.number <= last.number)) {
            // The daemon has restarted and counts from the start.
            self.log.clear();
        }
        self.log.extend(tail.lines);
        self.log.drain(..self.log.len().saturating_sub(LINES));
        (self.seen, self.away) = (seen, None);
    }

    /// Selects the camera `rows` further down.
    pub fn choose(&mut self, rows: isize) {
        let cameras = self.cameras();
        let last = cameras.len() as isize - 1;
        if last >= 0 {
            let at = self.chosen_at(&cameras).map_or(0, |at| (at as isize + rows).clamp(0, last));
            self.chosen = Some(cameras[at as usize].name.clone());
        }
    }

    fn cameras(&self) -> Vec<&CameraStatus> {
        self.sort.apply(&self.seen.cameras, self.reversed)
    }

    fn chosen_at(&self, cameras: &[&CameraStatus]) -> Option<usize> {
        let chosen = self.chosen.as_ref()?;
        cameras.iter().position(|camera| camera.name == *chosen)
    }

    /// Draws the whole screen.
    pub fn draw(&self, frame: &mut Frame<'_>) {
        if self.help {
            let [text, keys] = Layout::vertical([Constraint::Min(0), Constraint::Length(1)]).areas(frame.area());
            frame.render_widget(Paragraph::new(HELP), text);
            frame.render_widget(Paragraph::new("any key leaves this help".dim()), keys);
            return;
        }
        let cameras = self.cameras();
        let chosen = self.chosen_at(&cameras);
        let tables = [status::cameras(&cameras), status::models(&self.seen), status::sinks(&self.seen)];
        let head = self.head();
        let stages = chosen.map(|at| status::stages(cameras[at]));
        let rows = |table: &TextTable| if table.rows.is_empty() { 0 } else { table.rows.len() as u16 + 2 };
        let heights = [
            Constraint::Length(head.lines.len() as u16 + 1),
            Constraint::Max(rows(&tables[0]).max(2)),
            Constraint::Max(stages.as_ref().map_or(0, |stages| rows(stages) + 1)),
            Constraint::Max(rows(&tables[1])),
            Constraint::Max(rows(&tables[2])),
            Constraint::Min(LOG_ROWS),
            Constraint::Length(1),
        ];
        let [top, camera_area, stage_area, model_area, sink_area, log_area, keys] =
            Layout::vertical(heights).areas(frame.area());
        frame.render_widget(Paragraph::new(head), top);
        draw_table(frame, camera_area, &tables[0], chosen, |row| match row[1].as_str() {
            "streaming" => Style::new(),
            "failed" => Style::new().fg(Color::Red),
            _ => Style::new().fg(Color::Yellow),
        });
        if let (Some(stages), Some(at)) = (&stages, chosen) {
            let [line, table] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(stage_area);
            frame.render_widget(Paragraph::new(escape(&status::camera_line(cameras[at])).italic()), line);
            draw_table(frame, table, stages, None, |_| Style::new());
        }
        draw_table(frame, model_area, &tables[1], None, |_| Style::new());
        draw_table(frame, sink_area, &tables[2], None, |row| match row[1].as_str() {
            "connected" | "writing" => Style::new(),
            "outage" => Style::new().fg(Color::Red),
            _ => Style::new().fg(Color::Yellow),
        });
        self.draw_log(frame, log_area);
        let order = format!("{:?}{}", self.sort, if self.reversed { ", reversed" } else { "" }).to_lowercase();
        let text = format!("q quit  ? help  up/down select  r reverse  s sort: {order}");
        frame.render_widget(Paragraph::new(text.dim()), keys);
    }

    fn head(&self) -> Text<'static> {
        let mut lines: Vec<_> =
            status::head(&self.seen, self.load).iter().map(|line| Line::from(escape(line))).collect();
        if let Some(first) = lines.first_mut() {
            *first = std::mem::take(first).bold();
        }
        if let Some(away) = &self.away {
            let text = format!("no answer from {}, retrying: {away}", self.address);
            lines.push(Line::from(escape(&text)).fg(Color::Red));
        }
        Text::from(lines)
    }

    fn draw_log(&self, frame: &mut Frame<'_>, area: Rect) {
        let block = Block::new().borders(Borders::TOP).title("LOG".bold());
        let room = usize::from(area.height.saturating_sub(1));
        let lines = self.log.iter().skip(self.log.len().saturating_sub(room)).map(|line| {
            let style = match line.level.as_str() {
                "error" => Style::new().fg(Color::Red),
                "warn" => Style::new().fg(Color::Yellow),
                _ => Style::new(),
            };
            let time = line.at.get(11..19).unwrap_or_default().to_owned();
            Line::from(vec![Span::from(time).dim(), Span::from(format!(" {}", escape(&line.message))).style(style)])
        });
        frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()).block(block), area);
    }
}

fn draw_table(
    frame: &mut Frame<'_>,
    area: Rect,
    table: &TextTable,
    chosen: Option<usize>,
    style: impl Fn(&[String]) -> Style,
) {
    let mut widths = table.widths().into_iter().map(|width| Constraint::Length(width as u16)).collect::<Vec<_>>();
    // The last column fills the remaining width, unless it holds numbers.
    if let Some((last, (_, false))) = widths.last_mut().zip(table.head.last()) {
        *last = Constraint::Fill(1);
    }
    let cell = |text: &str, number: bool| {
        let alignment = if number { Alignment::Right } else { Alignment::Left };
        Cell::new(Text::from(text.to_owned()).alignment(alignment))
    };
    let head = Row::new(table.head.iter().map(|(name, number)| cell(name, *number)));
    let rows = table.rows.iter().map(|row| {
        let cells = row.iter().zip(&table.head).map(|(text, (_, number))| cell(text, *number));
        Row::new(cells).style(style(row))
    });
    let widget = ratatui::widgets::Table::new(rows, widths)
        .header(head.style(Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED)))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
        .column_spacing(2);
    let mut state = TableState::new().with_selected(chosen);
    frame.render_stateful_widget(widget, area, &mut state);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use visiond_message::status::ModelStatus;
    use visiond_message::status::{SinkCounts, SpoolCounts};

    fn drawn(screen: &Screen, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        terminal.backend().to_string()
    }

    fn answer(names: &[&str], line: u64) -> StatusAnswer {
        let camera = |name: &&str| CameraStatus { name: (*name).to_owned(), ..CameraStatus::default() };
        let seen = StatusReport { cameras: names.iter().map(camera).collect(), ..StatusReport::default() };
        let message = format!("line {line} \x1b[2J");
        let line = tail::Line { number: line, message, ..tail::Line::default() };
        (seen, Tail { last: line.number, lines: vec![line], missed: 0 })
    }

    #[test]
    fn arrows_choose_a_camera_and_it_stays_chosen_in_another_order() {
        let mut screen = Screen::new("unix:/x".to_owned(), Sort::Name);
        screen.take(Ok(answer(&["door", "gate", "yard"], 1)));
        assert!(!drawn(&screen, 100, 40).contains("preprocess"));
        screen.choose(1);
        screen.choose(1);
        assert_eq!(screen.chosen.as_deref(), Some("gate"));
        screen.reversed = true;
        assert!(drawn(&screen, 100, 40).contains("preprocess"));
        screen.choose(5);
        assert_eq!(screen.chosen.as_deref(), Some("door"), "the last in this order");
        screen.take(Ok(answer(&["yard"], 2)));
        assert!(!drawn(&screen, 100, 40).contains("preprocess"), "it is gone");
    }

    #[test]
    fn without_an_answer_the_screen_says_so_and_keeps_the_last_status() {
        let mut screen = Screen::new("unix:/x".to_owned(), Sort::Name);
        screen.take(Ok(answer(&["door"], 7)));
        screen.take(Err("connection refused".to_owned()));
        let picture = drawn(&screen, 100, 40);
        assert!(picture.contains("no answer from unix:/x") && picture.contains("door"), "{picture}");
        assert!(picture.contains("line 7 \\u{1b}[2J"), "{picture}");
        screen.take(Ok(answer(&["door"], 3)));
        let picture = drawn(&screen, 100, 40);
        assert!(!picture.contains("no answer") && !picture.contains("line 7"), "{picture}");
    }

    #[test]
    fn a_small_terminal_works() {
        let mut screen = Screen::new("unix:/x".to_owned(), Sort::Name);
        screen.take(Ok(answer(&["door", "gate"], 1)));
        screen.choose(1);
        for (width, height) in [(1, 1), (20, 3), (40, 10), (300, 5)] {
            drawn(&screen, width, height);
        }
    }

    #[test]
    fn at_70_x_20_the_total_of_the_chosen_camera_and_the_keys_are_seen() {
        let mut screen = Screen::new("unix:/x".to_owned(), Sort::Age);
        let (mut seen, tail) = answer(&["door", "gate", "yard"], 1);
        seen.models = vec![ModelStatus::default(); 2];
        seen.sinks = vec![SinkCounts::default(); 2];
        screen.take(Ok((seen, tail)));
        screen.choose(1);
        screen.reversed = true;
        let picture = drawn(&screen, 70, 20);
        for word in ["STAGE", "total ", "? help", "sort: age, reversed"] {
            assert!(picture.contains(word), "{word}: {picture}");
        }
    }

    #[test]
    fn the_help_explains_every_key_and_column_at_70_x_20() {
        let mut screen = Screen::new("unix:/x".to_owned(), Sort::Name);
        screen.take(Ok(answer(&["door"], 1)));
        screen.help = true;
        let picture = drawn(&screen, 70, 20);
        for line in HELP.lines().chain(["any key leaves this help"]) {
            assert!(picture.contains(line), "{line}: {picture}");
        }
        assert!(!picture.contains("door"), "{picture}");
    }

    #[test]
    fn a_sink_is_yellow_while_its_messages_are_kept_and_red_in_an_outage() {
        let colour = |sink: SinkCounts| {
            let mut screen = Screen::new("unix:/x".to_owned(), Sort::Name);
            let name = "fleet".to_owned();
            let seen = StatusReport { sinks: vec![SinkCounts { name, ..sink }], ..StatusReport::default() };
            screen.take(Ok((seen, Tail::default())));
            let mut terminal = Terminal::new(TestBackend::new(100, 40)).unwrap();
            terminal.draw(|frame| screen.draw(frame)).unwrap();
            let buffer = terminal.backend().buffer();
            let row = (0..40).find(|&y| buffer[(0, y)].symbol() == "f" && buffer[(4, y)].symbol() == "t").unwrap();
            buffer[(0, row)].fg
        };
        let away = SinkCounts { connected: Some(false), outage: Some("refused".to_owned()), ..SinkCounts::default() };
        assert_eq!(colour(SinkCounts::default()), Color::Reset);
        assert_eq!(colour(SinkCounts { spool: Some(SpoolCounts::default()), ..away.clone() }), Color::Yellow);
        assert_eq!(colour(away), Color::Red);
    }

    #[test]
    fn the_screen_has_all_tables_and_marks_what_is_wrong() {
        let camera = |name: &str, phase: &str| CameraStatus {
            name: name.to_owned(),
            phase: phase.to_owned(),
            reason: (phase != "streaming").then(|| format!("{name} is away")),
            ..CameraStatus::default()
        };
        let line = |number: u64, level: &str| tail::Line {
            number,
            at: "2026-01-02T03:04:05.678Z".to_owned(),
            level: level.to_owned(),
            message: format!("{level} {number}"),
            ..tail::Line::default()
        };
        let seen = StatusReport {
            cameras: vec![camera("door", "streaming"), camera("gate", "waiting"), camera("yard", "failed")],
            models: vec![ModelStatus { name: "net".to_owned(), ..ModelStatus::default() }],
            sinks: vec![SinkCounts { name: "fleet".to_owned(), to: "mqtt".to_owned(), ..SinkCounts::default() }],
            ..StatusReport::default()
        };
        // More lines than there is room for: the last ones are shown.
        let lines = (1..20).map(|number| line(number, "info")).chain([line(20, "warn"), line(21, "error")]).collect();
        let mut screen = Screen::new("unix:/x".to_owned(), Sort::Name);
        screen.take(Ok((seen, Tail { lines, last: 21, missed: 0 })));
        let mut terminal = Terminal::new(TestBackend::new(90, 20)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let rows: Vec<String> = (0..20)
            .map(|y| (0..90).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned())
            .collect();
        assert_eq!(
            rows,
            [
                "visiond  on , up 0 s, not ready:",
                "0 MiB, 0 % of a core, 0 threads, 0 descriptors",
                "",
                "CAMERA  PHASE      FPS  P50 MS  P99 MS  PUBLISHED  DROPPED    %  DETECTIONS",
                "door    streaming  0.0     0.0     0.0          0        0  0.0",
                "gate    waiting    0.0     0.0     0.0          0        0  0.0  gate is away",
                "yard    failed     0.0     0.0     0.0          0        0  0.0  yard is away",
                "",
                "MODEL  RUNS  ERRORS  REBUILT  ON  FILE",
                "net       0       0        0",
                "",
                "SINK   STATE    WAITING  WRITTEN  LOST  TO",
                "fleet  writing        0        0     0  mqtt",
                "",
                "LOG───────────────────────────────────────────────────────────────────────────────────────",
                "03:04:05 info 18",
                "03:04:05 info 19",
                "03:04:05 warn 20",
                "03:04:05 error 21",
                "q quit  ? help  up/down select  r reverse  s sort: name",
            ]
        );
        let colours: Vec<_> =
            [(0, 4), (0, 5), (0, 6), (0, 12), (9, 16), (9, 17), (9, 18)].map(|at| buffer[at].fg).into();
        let [plain, yellow, red] = [Color::Reset, Color::Yellow, Color::Red];
        assert_eq!(colours, [plain, yellow, red, plain, plain, yellow, red]);
        assert!(buffer[(0, 0)].modifier.contains(Modifier::BOLD) && !buffer[(0, 1)].modifier.contains(Modifier::BOLD));
    }

    #[test]
    fn the_load_is_that_since_the_previous_answer_of_the_same_daemon() {
        let answer = |started_at: &str, uptime_s, cpu_seconds| {
            let mut seen = StatusReport { started_at: started_at.to_owned(), uptime_s, ..StatusReport::default() };
            seen.process.cpu_seconds = cpu_seconds;
            Ok((seen, Tail::default()))
        };
        let mut screen = Screen::new("unix:/x".to_owned(), Sort::Name);
        for (started_at, uptime_s, cpu_seconds, load) in [
            ("9:00", 10.0, 5.0, "50 % of a core"),
            ("9:00", 14.0, 11.0, "150 % of a core"),
            // Asked twice within the resolution of the uptime: the average since the start.
            ("9:00", 14.0, 14.0, "100 % of a core"),
            // Another daemon.
            ("9:01", 20.0, 15.0, "75 % of a core"),
        ] {
            screen.take(answer(started_at, uptime_s, cpu_seconds));
            let picture = drawn(&screen, 100, 40);
            assert!(picture.contains(&format!(", {load},")), "{load}: {picture}");
        }
    }

    #[test]
    fn the_log_keeps_its_last_lines_and_begins_again_with_a_restarted_daemon() {
        let lines = |numbers: std::ops::RangeInclusive<u64>| {
            let lines = numbers.map(|number| tail::Line { number, ..tail::Line::default() }).collect();
            Ok((StatusReport::default(), Tail { lines, ..Tail::default() }))
        };
        let mut screen = Screen::new("unix:/x".to_owned(), Sort::Name);
        let mut kept = |answer| {
            screen.take(answer);
            (screen.log.first().unwrap().number, screen.log.len())
        };
        assert_eq!(kept(lines(1..=LINES as u64)), (1, LINES));
        assert_eq!(kept(lines(501..=510)), (11, LINES));
        assert_eq!(kept(Ok((StatusReport::default(), Tail::default()))), (11, LINES), "no news");
        assert_eq!(kept(lines(510..=512)), (510, 3), "the number was there before");
    }

    #[test]
    fn every_stage_of_the_chosen_camera_is_shown_where_there_is_room() {
        let mut screen = Screen::new("unix:/x".to_owned(), Sort::Name);
        screen.take(Ok(answer(&["door"], 1)));
        screen.choose(1);
        let picture = drawn(&screen, 100, 40);
        for stage in ["total", "capture", "queue", "preprocess", "infer", "postprocess"] {
            assert!(picture.lines().any(|line| line.trim_start_matches('"').starts_with(stage)), "{stage}: {picture}");
        }
    }
}
