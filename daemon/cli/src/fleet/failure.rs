//! The exit status of each error of a fleet's servers.

use visiond_nats::NatsError;
use visiond_system::exit::{Exit, ExitError};

use crate::fleet_buckets::describe;

/// Returns the exit of an error of NATS.
pub fn refuse(error: NatsError) -> ExitError {
    let exit = match &error {
        NatsError::Setting(_) | NatsError::Login(_) | NatsError::Forbidden { .. } => Exit::Config,
        NatsError::MissingBucket { .. }
        | NatsError::MissingStore { .. }
        | NatsError::MissingObject { .. }
        | NatsError::BrokenObject { .. } => Exit::Input,
        _ => Exit::Failure,
    };
    ExitError::new(exit, describe(&error))
}
