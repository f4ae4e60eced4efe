//! The loop of the main thread: handles signals, reports status, starts reloads, and notifies systemd.

use std::time::{Duration, Instant};

use visiond_config::types::StatusConfig;
use visiond_pipeline::status_line::Reporter;
use visiond_pipeline::watchdog::Watchdog;
use visiond_service::Service;
use visiond_service::reload::{Finished, FinishedCommand, FinishedReload, Reloader};
use visiond_system::logging;
use visiond_system::signals::{SignalRequest, Signals};
use visiond_system::stop::{Stop, Wake};
use visiond_system::systemd::{MoreTime, Notifier};
use visiond_system::thermal::Thermals;
use visiond_telemetry::metrics::LaneView;
use visiond_web::status::StatusCollector;

/// Time between two checks for readiness, until systemd has been notified.
const READY_INTERVAL: Duration = Duration::from_millis(20);

/// Interval of the status line on the terminal and in systemd.
const LIVE_INTERVAL: Duration = Duration::from_secs(1);

/// Why the loop ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// SIGTERM or SIGINT.
    Signal,
    /// The time of `--duration` has elapsed.
    Duration,
    /// The pipeline stopped by itself: every camera ended, `--max-messages` is reached, or no sink is left.
    Inside,
}

/// The loop of the main thread.
pub struct MainLoop<'a> {
    pub service: &'a Service,
    pub stop: &'a Stop,
    pub signals: &'a Signals,
    pub notifier: &'a Notifier,
    pub thermals: Option<&'a Thermals>,
    pub status: &'a StatusCollector,
    pub reloader: &'a mut Reloader,
}

/// The periodic tasks, each with the time when it is due.
struct Tasks {
    lanes: Vec<LaneView>,
    status: StatusConfig,
    live: Reporter,
    logged: Reporter,
    live_due: Option<Instant>,
    log_due: Option<Instant>,
    ready_due: Option<Instant>,
    watchdog: Option<Watchdog>,
    /// Whether systemd has been notified that the start is complete.
    started: bool,
    /// Extends systemd's timeout while a reload runs.
    more_time: Option<MoreTime>,
    /// Why the last reload was rejected.
    refused: Option<String>,
}

impl Tasks {
    fn new(service: &Service, notifier: &Notifier) -> Self {
        let lanes = service.lanes();
        let mut tasks = Self {
            live: Reporter::new(&lanes),
            logged: Reporter::new(&lanes),
            lanes,
            status: service.status(),
            live_due: None,
            log_due: None,
            ready_due: notifier.is_connected().then(Instant::now),
            watchdog: notifier.watchdog().map(Watchdog::new),
            started: false,
            more_time: None,
            refused: None,
        };
        tasks.schedule(notifier);
        tasks
    }

    /// Reports and watches these lanes from now on.
    fn follow(&mut self, lanes: Vec<LaneView>) {
        self.live.follow(&lanes);
        self.logged.follow(&lanes);
        self.lanes = lanes;
    }

    /// Schedules both reports one whole interval from now.
    fn schedule(&mut self, notifier: &Notifier) {
        let now = Instant::now();
        let StatusConfig { log_interval } = self.status;
        self.live_due = (logging::has_terminal() || notifier.is_connected()).then_some(now + LIVE_INTERVAL);
        // A terminal already shows what this would log.
        self.log_due = (!log_interval.is_zero() && !logging::has_terminal()).then_some(now + log_interval);
    }

    fn next_due(&self) -> Option<Instant> {
        let due = [self.live_due, self.log_due, self.ready_due, self.watchdog.as_ref().map(Watchdog::due)];
        due.into_iter().flatten().min()
    }
}

impl MainLoop<'_> {
    /// Loops until the daemon must end, at `until` at the latest.
    pub fn run(&mut self, until: Option<Instant>) -> End {
        let mut tasks = Tasks::new(self.service, self.notifier);
        loop {
            let now = Instant::now();
            let due = [until, tasks.next_due(), self.reloader.commands_due(now)].into_iter().flatten().min();
            let timeout = due.map(|due| due.saturating_duration_since(now));
            match self.stop.wait_readable(self.signals.readable(), timeout) {
                Ok(Wake::Ready) => match self.signals.take_request() {
                    Some(SignalRequest::End(name)) => {
                        log::info!("{name}: shutting down");
                        return End::Signal;
                    }
                    Some(SignalRequest::Reload) if logging::terminal_is_gone() => {
                        log::info!("SIGHUP and the terminal is gone: shutting down");
                        return End::Signal;
                    }
                    Some(SignalRequest::Reload) => self.begin_reload(&mut tasks, "SIGHUP"),
                    None => {}
                },
                Ok(Wake::Stopped) => return End::Inside,
                Ok(Wake::TimedOut) => {}
                Err(error) => {
                    log::error!("cannot wait for signals: {error}");
                    return End::Inside;
                }
            }
            match self.reloader.finished() {
                Some(Finished::Reload(finished)) => self.end_reload(&mut tasks, *finished),
                Some(Finished::Commands(finished)) => self.end_commands(&mut tasks, finished),
                None => {}
            }
            if self.reloader.is_asked() {
                self.begin_reload(&mut tasks, "HTTP request");
            }
            let now = Instant::now();
            self.reloader.begin_commands(now);
            if until.is_some_and(|until| until <= now) {
                return End::Duration;
            }
            self.run_due(&mut tasks, now);
        }
    }

    /// Runs the tasks that are due.
    fn run_due(&self, tasks: &mut Tasks, now: Instant) {
        let is_due = |due: Option<Instant>| due.is_some_and(|due| due <= now);
        if is_due(tasks.ready_due) {
            tasks.ready_due = if tasks.lanes.iter().all(LaneView::is_ready) {
                tasks.started = true;
                self.notifier.ready();
                None
            } else {
                Some(now + READY_INTERVAL)
            };
        }
        if is_due(tasks.live_due) {
            let mut line = tasks.live.line();
            let thermals = self.thermals.map(Thermals::short).filter(|text| !text.is_empty());
            line.extend(thermals.map(|text| format!(" | {text}")));
            logging::live_line(&line);
            let refused = tasks.refused.iter().map(|why| format!("{why} | "));
            self.notifier.status(&refused.chain([line.clone()]).collect::<String>());
            tasks.live_due = Some(now + LIVE_INTERVAL);
        }
        if is_due(tasks.log_due) {
            tasks.logged.lines().iter().for_each(|line| log::info!("{line}"));
            self.thermals.into_iter().for_each(|thermals| log::info!("{}", thermals.line()));
            tasks.log_due = Some(now + tasks.status.log_interval);
        }
        if let Some(watchdog) = &mut tasks.watchdog
            && watchdog.due() <= now
            && watchdog.look(now, &tasks.lanes)
        {
            self.notifier.alive();
        }
    }

    fn begin_reload(&mut self, tasks: &mut Tasks, why: &str) {
        log::info!("{why}: reloading the configuration");
        // Until the start is complete, systemd waits for READY=1 and no RELOADING=1 may come.
        if tasks.started {
            self.notifier.reloading();
            tasks.ready_due = None;
        }
        tasks.more_time.get_or_insert_with(|| self.notifier.more_time());
        self.reloader.begin();
    }

    fn end_commands(&self, tasks: &mut Tasks, finished: Vec<FinishedCommand>) {
        tasks.follow(self.service.lanes());
        for finished in finished {
            let FinishedCommand { result, waiting } = &finished;
            match result {
                Ok(()) => log::info!("command: {}", waiting.command),
                Err(error) => log::error!("cannot carry out the command {}: {error}", waiting.command),
            }
            finished.answer();
        }
    }

    fn end_reload(&mut self, tasks: &mut Tasks, finished: FinishedReload) {
        let result = finished.result.as_ref().map(ToString::to_string).map_err(|error| error.message.clone());
        self.status.reloads.note(result);
        match &finished.result {
            Ok(changes) => {
                log::info!("reloaded: {changes}");
                changes.restart_needed.iter().for_each(|what| log::warn!("{what}"));
                tasks.refused = None;
                tasks.follow(self.service.lanes());
                tasks.status = self.service.status();
                if changes.tables.contains(&"status") {
                    tasks.schedule(self.notifier);
                }
            }
            Err(error) => {
                log::error!("configuration rejected; the running one stays in force:");
                error.message.lines().filter(|line| !line.is_empty()).for_each(|line| log::error!("{line}"));
                let why = error.message.lines().next().unwrap_or_default();
                tasks.refused = Some(format!("reload rejected: {why}"));
            }
        }
        self.reloader.answer(finished);
        if self.reloader.is_busy() {
            return;
        }
        tasks.more_time = None;
        if self.notifier.is_connected() {
            // Check readiness again, whether the reload changed anything or not.
            tasks.ready_due = Some(Instant::now());
            tasks.live_due = Some(Instant::now());
        }
    }
}
