//! Raw outputs into candidates: one file a family of networks.
