//! Pictures with boxes drawn.
