//! The annotated file and the manual's tables, printed from the declarations in [`types`](super::types).
