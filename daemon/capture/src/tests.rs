//! Every source: what it copies, and that it frees what it opened.

mod copies;
mod leaks;
