//! Bundles: a model with its card, the proof that it works, and a signature, in one file, or settings for the configuration and a
//! signature; and the [store] of a device.
//!
//! A bundle is a tar archive (ustar), compressed with zstd:
//!
//! 1. `manifest.toml`, the [`Manifest`], which has the size and the SHA-256 of every other file;
//! 2. `manifest.toml.minisig`, its signature in minisign's format, if it is signed;
//! 3. the files, in the manifest's order.
//!
//! So a reader knows who vouches for the contents before it unpacks any of them, and how large each of them is. Nothing is
//! written that the manifest does not name.
//!
//! No engine is loaded here: whether a model works is for the caller to prove.

mod chosen_model;
mod engine_build;
mod error;
mod fetch;
mod files;
mod following;
mod index;
mod key_list;
mod manifest;
pub mod owner;
mod read;
pub mod rollout;
mod settings;
mod signature;
mod source;
pub mod store;
mod trial;
mod write;

#[cfg(test)]
mod tests;

pub use engine_build::{EngineBuild, Fallback};
pub use error::BundleError;
pub use fetch::{FetchError, FetchLimits, fetch};
pub use files::open_regular;
pub use following::Following;
pub use index::{Index, PART_BYTES, Published, check_followed, publish};
pub use key_list::{
    KEY_LIST, KeyList, KeyListError, KeysUpdated, ListedKey, SignedKeyList, key_list_files, publish_key_list,
    sign_key_list,
};
pub use manifest::{BundleFile, BundleModel, Live, Manifest, Proof, SETTINGS};
pub use read::Bundle;
pub use settings::BundleSettings;
pub use signature::{Signer, TrustedKeys};
pub use source::{BundleSource, FolderSource, Piece, SourceError, Take};
pub use trial::Trial;
pub use write::{Sources, generate_key, sign, write};

/// The manifest's name in the archive.
const MANIFEST: &str = "manifest.toml";

/// The name of its signature.
const SIGNATURE: &str = "manifest.toml.minisig";
