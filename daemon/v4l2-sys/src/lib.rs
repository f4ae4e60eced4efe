//! The kernel's V4L2 structures and constants, for 64-bit Linux.
//!
//! `generate` made `bindings.rs` from Linux 5.10's headers, the oldest kernel that visiond runs on (JetPack 5); the kernel only
//! ever adds to them. The constants in `bindings.rs` that compute to `[(); 0]` hold each structure to the size and offsets that
//! libclang saw, on every architecture that this is compiled for; `tests/kernel_headers.rs` holds the same figures, and the
//! numbers of the ioctls, to the kernel's headers.

#![allow(missing_docs, non_camel_case_types, non_snake_case, non_upper_case_globals, clippy::all)]

#[cfg(not(all(target_pointer_width = "64", target_endian = "little")))]
compile_error!("these bindings are for 64-bit little-endian Linux: run daemon/v4l2-sys/generate for another one");

include!("bindings.rs");
