//! What the end-to-end tests share: where the binary and the fixtures are.
