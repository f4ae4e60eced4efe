//! What Ultralytics writes into its exports' metadata.
