//! Where the log goes: standard error, or the journal with priorities.
