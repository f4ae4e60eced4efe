//! Clips of events: the camera's own bitstream, or frames with boxes drawn, as MP4.

mod clip_folder;
mod mp4_writer;
mod parameter_sets;
pub mod recorder;
mod timeline;
