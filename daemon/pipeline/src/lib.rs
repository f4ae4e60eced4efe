//! From frames to messages: camera thread, mailbox, lane, collector, supervisor.

pub mod camera;
pub mod cascade;
pub mod collector;
mod complaints;
pub mod frame_rate;
pub mod lane;
pub mod lane_result;
pub mod mailbox;
pub mod model_runner;
pub mod outlet;
pub mod pacer;
mod preview_player;
pub mod status_line;
pub mod stream_threads;
pub mod summary;
pub mod supervisor;
pub mod watchdog;

#[cfg(test)]
mod tests;
