//! Images for INT8 calibration, preprocessed as the model card says.

use std::collections::hash_map::DefaultHasher;
use std::error::Error;
use std::fs::Metadata;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};

use visiond_capture::{Buffers, image_file};
use visiond_config::types::{EngineConfig, ModelConfig};
use visiond_engine::onnx::file::OnnxFile;
use visiond_engine_builder::ShapeProfile;
use visiond_engine_builder::calibration::{CalibrationError, CalibrationFeed};
use visiond_kernels::preprocess::Preprocessor;
use visiond_kernels::tensor::{DType, TensorMut};
use visiond_service::model_trial;
use visiond_system::cache;
use visiond_system::exit::{Exit, ExitError};
use visiond_system::stop::Stop;

use super::arguments::Args;
use crate::media_decoder::images_of;
use crate::sample_model::stem;

/// The images of a folder as tensors.
pub struct CalibrationImages {
    files: Vec<PathBuf>,
    next: usize,
    preprocessor: Preprocessor,
    batch: usize,
}

impl CalibrationImages {
    /// Opens the images of `folder` for the model with these profiles.
    pub fn open(args: &Args, folder: &Path, profiles: &[ShapeProfile]) -> Result<Self, ExitError> {
        let files = spread(images_of(folder)?, usize::try_from(args.calibration_pictures).unwrap_or(usize::MAX));
        // Load the model with a CPU backend to get the preprocessing that its card describes.
        let shapes = profiles.first().into_iter().flatten();
        let model = ModelConfig {
            name: stem(&args.model),
            path: args.model.clone(),
            card: args.card.clone(),
            input_shapes: shapes.map(|(name, range)| (name.clone(), range.opt.clone())).collect(),
            ..ModelConfig::default()
        };
        let engine = args.trial.of(EngineConfig::default());
        let loaded = model_trial::load(&model, &engine, &Stop::new().map_err(ExitError::system)?)?;
        let spec = loaded.required_detector()?.preprocess_spec().clone();
        if spec.dtype != DType::F32 {
            let message = format!(
                "calibration requires an f32 input, but the model's is {}: export it with an f32 input",
                spec.dtype
            );
            return Err(ExitError::new(Exit::Model, message));
        }
        let batch = loaded.engine.inputs().first().and_then(|input| input.shape.as_ref()?.first()?.fixed());
        let preprocessor = Preprocessor::new(spec).map_err(|error| ExitError::new(Exit::Config, error))?;
        Ok(Self { files, next: 0, preprocessor, batch: batch.unwrap_or(1) })
    }

    /// Returns the cache file for the ranges of this model with these images.
    pub fn cache_file(&self, args: &Args, file: &OnnxFile) -> Option<PathBuf> {
        let mut pictures = DefaultHasher::new();
        for path in &self.files {
            path.hash(&mut pictures);
            let metadata = path.metadata().ok();
            (metadata.as_ref().map(Metadata::len), metadata.and_then(|m| m.modified().ok())).hash(&mut pictures);
        }
        self.batch.hash(&mut pictures);
        format!("{:?}", self.preprocessor.spec()).hash(&mut pictures);
        let model = file.file.sha256.get(..16).unwrap_or_default();
        let how = args.calibration.to_string().replace(':', "-");
        let name = format!("{model}-{:016x}-{how}.calibration", pictures.finish());
        cache::own_folder().map(|folder| folder.join("tensorrt").join(name))
    }

    /// Fills `out` with an image. The error is a sentence for [`CalibrationError::Picture`].
    fn fill(&mut self, path: &Path, out: &mut [u8]) -> Result<(), String> {
        let frame = image_file::load(path, &Buffers::host(1)).map_err(|error| error.to_string())?;
        let shape = self.preprocessor.spec().shape();
        let mut fill = || {
            let mut tensor = TensorMut::new(DType::F32, &shape, out)?;
            self.preprocessor.run(&frame.view()?, &mut tensor)?;
            Ok(())
        };
        fill().map_err(|error: Box<dyn Error>| format!("{}: {error}", path.display()))
    }
}

impl CalibrationFeed for CalibrationImages {
    fn count(&self) -> usize {
        self.files.len().div_ceil(self.batch)
    }

    /// Returns the next batch; the first images fill up the last one.
    fn next(&mut self) -> Result<Option<Vec<u8>>, CalibrationError> {
        if self.next >= self.files.len() {
            return Ok(None);
        }
        let one = self.preprocessor.spec().shape().iter().product::<usize>() * DType::F32.size_bytes();
        let mut bytes = vec![0; one * self.batch];
        for (index, slot) in bytes.chunks_exact_mut(one).enumerate() {
            let path = self.files[(self.next + index) % self.files.len()].clone();
            self.fill(&path, slot).map_err(CalibrationError::Picture)?;
        }
        self.next += self.batch;
        Ok(Some(bytes))
    }
}

/// Returns at most `most` of `files`, evenly spread, because neighbours in a folder often look alike.
fn spread(files: Vec<PathBuf>, most: usize) -> Vec<PathBuf> {
    let count = files.len();
    if count <= most {
        return files;
    }
    (0..most).filter_map(|index| files.get(index * count / most).cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_taken_from_all_over_the_folder() {
        let files: Vec<PathBuf> = (0..10).map(|n| PathBuf::from(n.to_string())).collect();
        assert_eq!(spread(files.clone(), 20).len(), 10);
        assert_eq!(spread(files, 3), ["0", "3", "6"].map(PathBuf::from));
    }

    #[test]
    fn as_many_pictures_as_wanted_are_all_taken() {
        let files: Vec<PathBuf> = (0..4).map(|n| PathBuf::from(n.to_string())).collect();
        assert_eq!(spread(files.clone(), 4), files);
        assert_eq!(spread(files.clone(), 2), ["0", "2"].map(PathBuf::from));
        assert_eq!(spread(files, 0), Vec::<PathBuf>::new());
    }
}
