//! Two models that run on the same pictures, and what they differ by.

use std::sync::mpsc::Receiver;

use visiond_engine::compare::{Agreement, CompareError, OutputPairs, TensorDifference, pair_outputs, same_feed};
use visiond_flow::frame::Frame;
use visiond_service::loaded_model::run_exit;
use visiond_system::exit::{Exit, ExitError};
use visiond_system::logging::{clear_live_line, escape};

use super::model::{LoadedModel, ModelRunner};
use crate::media_decoder::Item;
use crate::output::complain;
use crate::progress::Progress;

/// The two models, and their differences so far.
pub struct Comparison {
    pub runners: [ModelRunner; 2],
    pairs: OutputPairs,
    pub tensors: Vec<TensorDifference>,
    pub agreement: Agreement,
    /// The name of each compared picture.
    pub pictures: Vec<String>,
    progress: Progress,
    /// The exit status of the first picture that could not be read.
    pub exit: Exit,
}

impl Comparison {
    pub fn new(models: &[LoadedModel; 2], agreement: Agreement, floor: f64) -> Result<Self, ExitError> {
        let [a, b] = models.each_ref().map(|model| model.card.head.family().name());
        if a != b {
            let message = format!(
                "the card of the first model has the head {a}, that of the second {b}: set the right card for both with --card"
            );
            return Err(ExitError::new(Exit::Config, message));
        }
        let runner = |model| ModelRunner::new(model, floor as f32, models[0].card.iou_threshold);
        let (first, second) = (runner(&models[0])?, runner(&models[1])?);
        let [a, b] = [&first.detector, &second.detector];
        let refuse = |error: CompareError| ExitError::new(Exit::Model, error);
        let pairs = pair_outputs(a.outputs(), b.outputs()).map_err(refuse)?;
        same_feed(a.preprocess_spec(), b.preprocess_spec()).map_err(refuse)?;
        let tensors = a.outputs().iter().map(|info| TensorDifference::new(&info.name)).collect();
        Ok(Self {
            runners: [first, second],
            pairs,
            tensors,
            agreement,
            pictures: Vec::new(),
            progress: Progress::new(),
            exit: Exit::Success,
        })
    }

    pub fn run(&mut self, items: &Receiver<Item>) -> Result<(), ExitError> {
        for item in items {
            match item {
                Item::Begun { .. } => {}
                Item::Frame { is_video, frame, .. } => self.compare(is_video, &frame)?,
                Item::Failed { reason } => self.fail(&reason),
                // The source has logged the error.
                Item::Damaged => self.exit = Exit::Input,
            }
        }
        Ok(())
    }

    fn compare(&mut self, is_video: bool, frame: &Frame) -> Result<(), ExitError> {
        let name = escape(frame.name.as_deref().unwrap_or_default());
        let name = if is_video { format!("{name} frame {}", frame.sequence) } else { name };
        let view = match frame.view() {
            Ok(view) => view,
            Err(error) => {
                self.fail(&format!("{name}: {error}"));
                return Ok(());
            }
        };
        for runner in &mut self.runners {
            runner.run(&view).map_err(|error| ExitError::new(run_exit(&error), format!("{name}: {error}")))?;
        }
        let picture = self.pictures.len();
        let [first, second] = &self.runners;
        let [a, b] = [&first.detector, &second.detector];
        let frames = (a.frames_run(), b.frames_run());
        let refuse = |error: &dyn std::fmt::Display| ExitError::new(Exit::Model, format!("{name}: {error}"));
        for (index, (difference, &other)) in self.tensors.iter_mut().zip(&self.pairs).enumerate() {
            let a = a.raw_output(index).map_err(|error| refuse(&error))?;
            let b = b.raw_output(other).map_err(|error| refuse(&error))?;
            difference.add(picture, a, b, frames).map_err(|error| refuse(&error))?;
        }
        self.agreement.add(picture, &first.found, &second.found);
        self.pictures.push(name);
        let (count, name) = (self.pictures.len(), &self.pictures[picture]);
        self.progress.tell(|| format!("{count} pictures compared, the last {name}"));
        Ok(())
    }

    fn fail(&mut self, reason: &str) {
        clear_live_line();
        complain(reason);
        self.exit = Exit::Input;
    }
}
