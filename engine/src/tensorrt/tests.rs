//! Tables and calls proved without a GPU: against golden data, against libraries made for the test, and against NVIDIA's own.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod golden;
mod mock;
mod nvidia;
mod stub;
