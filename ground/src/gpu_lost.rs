//! The loss of the GPU, which can cause errors in many crates.

use std::error::Error;
use std::iter;

/// The process has lost the GPU: every later call also fails, and only a new process gets a working context.
///
/// It is the source of the CUDA error that lost it, and so of each error that follows from that one: see [`is_gpu_lost`].
#[derive(Debug, thiserror::Error)]
#[error("the process has lost the GPU")]
pub struct GpuLost;

/// Whether `error` follows from the loss of the GPU.
pub fn is_gpu_lost(error: &(dyn Error + 'static)) -> bool {
    iter::successors(Some(error), |error: &&(dyn Error + 'static)| (*error).source()).any(|error| error.is::<GpuLost>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot run: {0}")]
    struct Follows(#[source] Box<dyn Error + Send + Sync>);

    #[test]
    fn the_loss_is_found_behind_any_number_of_errors() {
        let follows = |error| Follows(Box::new(Follows(error)));
        assert!(is_gpu_lost(&GpuLost) && is_gpu_lost(&follows(Box::new(GpuLost))));
        assert!(!is_gpu_lost(&follows("the run failed".into())));
    }
}
