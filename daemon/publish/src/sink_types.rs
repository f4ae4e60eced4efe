//! The types of sinks: the only place of this crate that lists them.

use visiond_config::types::SinkKind;

use crate::sink::SinkType;
use crate::stdout::StandardOutput;

/// Returns the type of a sink with its configuration.
pub fn type_of(kind: &SinkKind) -> &dyn SinkType {
    match kind {
        SinkKind::Stdout => &StandardOutput,
        SinkKind::File(config) => config,
        SinkKind::Unix(config) => config,
        SinkKind::Mqtt(config) => config,
        SinkKind::Nats(config) => config,
    }
}
