//! Why two models cannot be compared.

/// Why two models cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    /// The two get different pictures.
    #[error(
        "cannot compare models that are fed differently: {what} is {first} in the first and {second} in the second; they do not see \
         the same picture; give both the card that is right (--card), or builds of one model"
    )]
    Feed {
        /// The setting that differs.
        what: &'static str,
        /// Its value in the first.
        first: String,
        /// Its value in the second.
        second: String,
    },
    /// Their outputs do not correspond.
    #[error(
        "cannot compare different models: the first has the outputs {first}, the second {second}; compare builds of one model"
    )]
    Outputs {
        /// The first's outputs, with types and shapes.
        first: String,
        /// The second's outputs.
        second: String,
    },
    /// The shapes of an output differ after a run.
    #[error(
        "output `{name}` is {first} in the first and {second} in the second: build both with the same input size \
         and batch"
    )]
    Shape {
        /// The output.
        name: String,
        /// Its shape in the first, for one frame.
        first: String,
        /// Its shape in the second.
        second: String,
    },
}
