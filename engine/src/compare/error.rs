//! Why two models cannot be compared.

/// Two networks cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    /// They look at different pictures.
    #[error(
        "the two are fed differently: {what} is {first} in the first and {second} in the second, so that they do not see \
         the same picture; give both the card that is right (--card), or builds of one network"
    )]
    Feed {
        /// What differs.
        what: &'static str,
        /// In the first.
        first: String,
        /// In the second.
        second: String,
    },
    /// Their outputs do not correspond.
    #[error(
        "these are two different networks: the first has the outputs {first}, the second {second}; compare builds of one network"
    )]
    Outputs {
        /// The first's, with types and shapes.
        first: String,
        /// The second's.
        second: String,
    },
    /// An output has different shapes after a run.
    #[error(
        "output `{name}` came out as {first} from the first and as {second} from the second: build both with the same input size \
         and batch"
    )]
    Shape {
        /// The output.
        name: String,
        /// Its shape in the first, of one frame.
        first: String,
        /// Its shape in the second.
        second: String,
    },
}
