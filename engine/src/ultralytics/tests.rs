//! Metadata as exports carry it.
