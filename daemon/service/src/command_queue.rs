//! Commands that wait until the main thread carries them out, together and between reloads.
//!
//! Those of one target are merged, so their number is limited by the configuration's cameras, lines and zones.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::oneshot;
use visiond_config::command::{Command, CommandError};
use visiond_config::types::{CameraConfig, Config};
use visiond_ground::ranked_lock::{LockRank, RankedMutex};
use visiond_message::{RuleSettingsMessage, SettingsMessage};
use visiond_publish::{CommandedCamera, Commander};
use visiond_system::wake_pipe::WakePipe;

use crate::error::ServiceError;

/// How many clients may wait for a result.
const MOST_CLIENTS: usize = 64;

/// The result of a command, which several clients may get.
pub type CommandResult = Result<(), Arc<ServiceError>>;

/// Commands from sinks and HTTP clients.
#[derive(Debug)]
pub struct CommandQueue(RankedMutex<QueueState>);

#[derive(Debug)]
struct QueueState {
    /// The configuration in force.
    config: Arc<Config>,
    cameras: Arc<BTreeMap<String, CommandedCamera>>,
    waiting: Vec<WaitingCommand>,
    /// Wakes the main thread, once it takes commands.
    wake_pipe: Option<Arc<WakePipe>>,
    /// Whether the daemon is ending.
    closed: bool,
}

/// A command, and the clients that wait for its result.
#[derive(Debug)]
pub struct WaitingCommand {
    /// The command.
    pub command: Command,
    clients: Vec<oneshot::Sender<CommandResult>>,
}

impl WaitingCommand {
    /// Gives the clients their answer.
    pub fn answer(self, result: &CommandResult) {
        for client in self.clients {
            // The client may have gone.
            let _ = client.send(result.clone());
        }
    }
}

impl CommandQueue {
    /// Creates an empty queue; `config` is in force.
    pub fn new(config: &Config) -> Self {
        let state = QueueState {
            config: Arc::new(config.clone()),
            cameras: Arc::new(cameras(config)),
            waiting: Vec::new(),
            wake_pipe: None,
            closed: false,
        };
        Self(RankedMutex::new(LockRank(7), state))
    }

    /// Notes which configuration is in force.
    pub fn follow(&self, config: &Config) {
        let (config, cameras) = (Arc::new(config.clone()), Arc::new(cameras(config)));
        let mut state = self.0.lock();
        (state.config, state.cameras) = (config, cameras);
    }

    /// Returns the configuration in force. It never waits for a reload.
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.0.lock().config)
    }

    /// Returns the settings of a camera that commands change; `None` if the configuration does not have it.
    pub fn settings_of(&self, camera: &str) -> Option<SettingsMessage> {
        self.cameras().get(camera).map(|camera| camera.settings.clone())
    }

    /// Queues a command. The receiver gets its result, or an error if the daemon ends first.
    ///
    /// # Errors
    /// The configuration does not have what it is for, or too many clients wait.
    pub fn ask(&self, command: Command) -> Result<oneshot::Receiver<CommandResult>, CommandError> {
        let (client, result) = oneshot::channel();
        self.push(command, Some(client))?;
        Ok(result)
    }

    fn push(&self, command: Command, client: Option<oneshot::Sender<CommandResult>>) -> Result<(), CommandError> {
        let mut state = self.0.lock();
        command.check(&state.config)?;
        let clients: usize = state.waiting.iter().map(|waiting| waiting.clients.len()).sum();
        if client.is_some() && clients >= MOST_CLIENTS {
            return Err(CommandError::Busy);
        }
        if state.closed {
            return Ok(());
        }
        match state.waiting.iter_mut().rev().find_map(|waiting| waiting.command.merge(&command).then_some(waiting)) {
            Some(waiting) => waiting.clients.extend(client),
            None => {
                state.waiting.push(WaitingCommand { command, clients: client.into_iter().collect() });
                state.wake_pipe.iter().for_each(|pipe| pipe.wake());
            }
        }
        Ok(())
    }

    /// Wakes the main thread by this pipe whenever a command comes, and now if one waits.
    pub(crate) fn wake_by(&self, pipe: Arc<WakePipe>) {
        let mut state = self.0.lock();
        if !state.waiting.is_empty() {
            pipe.wake();
        }
        state.wake_pipe = Some(pipe);
    }

    /// Whether a command waits.
    pub(crate) fn has_some(&self) -> bool {
        !self.0.lock().waiting.is_empty()
    }

    /// Takes all commands that wait, the oldest first.
    pub(crate) fn take(&self) -> Vec<WaitingCommand> {
        std::mem::take(&mut self.0.lock().waiting)
    }

    /// Drops all commands, also later ones, because the daemon is ending.
    pub(crate) fn close(&self) {
        let mut state = self.0.lock();
        state.closed = true;
        state.waiting.clear();
    }
}

impl Commander for CommandQueue {
    fn cameras(&self) -> Arc<BTreeMap<String, CommandedCamera>> {
        Arc::clone(&self.0.lock().cameras)
    }

    fn request(&self, command: Command) -> Result<(), CommandError> {
        self.push(command, None)
    }
}

fn cameras(config: &Config) -> BTreeMap<String, CommandedCamera> {
    let of = |camera: &CameraConfig| {
        let camera_of = CommandedCamera { models: model_names(config, camera), settings: settings_of(camera) };
        (camera.name.clone(), camera_of)
    };
    config.cameras.iter().map(of).collect()
}

/// Returns the names of a camera's models, separated by commas.
pub fn model_names(config: &Config, camera: &CameraConfig) -> String {
    config.models_of(camera).map(|(model, _)| model.name.clone()).collect::<Vec<_>>().join(", ")
}

fn settings_of(camera: &CameraConfig) -> SettingsMessage {
    let lines = camera.line.iter().map(|line| (&line.name, line.enabled, line.min_score));
    let rules = lines.chain(camera.zone.iter().map(|zone| (&zone.name, zone.enabled, zone.min_score)));
    SettingsMessage {
        enabled: camera.enabled,
        score_threshold: camera.score_threshold.unwrap_or(0.0),
        rules: rules
            .map(|(name, enabled, min_score)| (name.clone(), RuleSettingsMessage { enabled, min_score }))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::path::Path;

    use visiond_config::command::{Action, SettingsChange, Target};

    use super::*;

    fn queue() -> CommandQueue {
        let text = "[[model]]\nname = \"m\"\npath = \"m.onnx\"\n[[camera]]\nname = \"door\"\nsource = { type = \"pattern\" }\n\
                    track = {}\n[[camera.zone]]\nname = \"dock\"\n";
        CommandQueue::new(&Config::parse(text, Path::new("v.toml")).unwrap())
    }

    fn to(camera: &str, rule: Option<&str>, action: Action) -> Command {
        Command { target: Target { camera: camera.to_owned(), rule: rule.map(str::to_owned) }, action }
    }

    fn set(enabled: Option<bool>, min_score: Option<f64>) -> Action {
        Action::Set(SettingsChange { enabled, min_score })
    }

    #[test]
    fn of_the_commands_that_wait_the_last_value_of_each_setting_counts() {
        let queue = queue();
        for number in 0..1000 {
            queue.request(to("door", None, set(Some(number % 2 == 0), None))).unwrap();
            queue.request(to("door", Some("dock"), Action::Reset)).unwrap();
        }
        queue.request(to("door", Some("dock"), set(Some(false), None))).unwrap();
        queue.request(to("door", None, set(None, Some(0.5)))).unwrap();
        let waiting: Vec<_> = queue.take().into_iter().map(|waiting| waiting.command).collect();
        let dock = |action| to("door", Some("dock"), action);
        let door = |enabled, score| to("door", None, set(enabled, score));
        let (on, score) = (door(Some(false), None), door(None, Some(0.5)));
        // A score does not fail with a camera that cannot be switched on.
        assert_eq!(waiting, [on.clone(), dock(Action::Reset), dock(set(Some(false), None)), score.clone()]);
        assert!(!queue.has_some());
        // One that sets both comes after them, and is never without the later one of either.
        for command in [on, score, door(Some(true), Some(0.7)), door(None, Some(0.8)), door(Some(false), None)] {
            queue.request(command).unwrap();
        }
        let waiting: Vec<_> = queue.take().into_iter().map(|waiting| waiting.command).collect();
        assert_eq!(waiting, [door(Some(false), None), door(Some(false), Some(0.8))]);
    }

    #[test]
    fn no_number_of_commands_fills_the_memory() {
        let queue = queue();
        let command = to("door", None, set(Some(false), None));
        let gone = to("gone", None, set(Some(false), None));
        assert!(matches!(queue.request(gone), Err(CommandError::NoCamera(_))));
        let mut clients: Vec<_> = (0..MOST_CLIENTS).map(|_| queue.ask(command.clone()).unwrap()).collect();
        assert_eq!(queue.ask(command.clone()).unwrap_err(), CommandError::Busy);
        queue.request(command.clone()).unwrap();
        queue.wake_by(Arc::new(WakePipe::new().unwrap()));
        let waiting = queue.take().pop().unwrap();
        waiting.answer(&Ok(()));
        assert!(clients.iter_mut().all(|client| matches!(client.try_recv(), Ok(Ok(())))));
        let mut result = queue.ask(command).unwrap();
        queue.close();
        assert!(!queue.has_some());
        assert_eq!(result.try_recv().unwrap_err(), oneshot::error::TryRecvError::Closed, "the client learns of it");
    }
}
