//! A frame of the daemon with what its model detected in it, as `/api/v1/cameras/NAME/frame` has it.

use base64::Engine;
use base64::prelude::BASE64_STANDARD as STANDARD;
use serde::Deserialize;
use visiond_engine::detector::Detection;
use visiond_kernels::oriented::OrientedBox;
use visiond_system::exit::{Exit, ExitError};

/// A frame with the message about it.
#[derive(Debug, Deserialize)]
pub struct LiveFrame {
    message: LiveMessage,
    pub width: u32,
    pub height: u32,
    /// Three bytes for each pixel, row by row, in Base64.
    rgb: String,
}

#[derive(Debug, Deserialize)]
struct LiveMessage {
    timings_us: LiveTimings,
    detections: Vec<LiveDetection>,
}

#[derive(Debug, Deserialize)]
struct LiveTimings {
    preprocess: u64,
    infer: u64,
}

#[derive(Debug, Deserialize)]
struct LiveDetection {
    label: String,
    score: f32,
    #[serde(rename = "box")]
    bounds: Option<LiveBox>,
    oriented: Option<LiveOriented>,
}

#[derive(Debug, Deserialize)]
struct LiveBox {
    x: f32,
    y: f32,
    width: f32,
    height: f32,
}

#[derive(Debug, Deserialize)]
struct LiveOriented {
    x: f32,
    y: f32,
    width: f32,
    height: f32,
    angle: f32,
}

impl LiveFrame {
    /// Returns the pixels.
    pub fn pixels(&self) -> Result<Vec<u8>, ExitError> {
        let needed = u64::from(self.width) * u64::from(self.height) * 3;
        let pixels = STANDARD.decode(&self.rgb).ok().filter(|pixels| pixels.len() as u64 == needed);
        pixels.ok_or_else(|| {
            ExitError::new(
                Exit::Failure,
                "the daemon gave a frame of another size than it says: use the same visiond as the daemon",
            )
        })
    }

    /// Returns what the daemon's model detected, best first; `class_of` gives the class number of a label.
    pub fn detections(&self, mut class_of: impl FnMut(&str) -> u32) -> Vec<Detection> {
        let detection = |one: &LiveDetection| Detection {
            class_id: class_of(&one.label),
            score: one.score,
            box_in_source: one.bounds.as_ref().map(|b| [b.x, b.y, b.x + b.width, b.y + b.height]),
            oriented: one.oriented.as_ref().map(|b| OrientedBox {
                center: [b.x, b.y],
                size: [b.width, b.height],
                angle: b.angle,
            }),
            ..Detection::default()
        };
        self.message.detections.iter().map(detection).collect()
    }

    /// Returns how long the run of the daemon's model took, in microseconds.
    pub fn run_us(&self) -> u64 {
        self.message.timings_us.preprocess + self.message.timings_us.infer
    }
}
