//! The keys that docs/contributing/add-a-source.md adds. A test in `capture` checks that the page shows them.

use visiond_kernels::frame::MAX_SIDE;

use crate::kinds::{real, whole};
use crate::table_macros::{section, union};
use crate::tables::Union;

union! {
    /// A source of one kind.
    pub enum BlankSource {
        /// Frames of one grey, made here.
        Blank(BlankConfig) = "blank",
        /// None.
        Nothing = "nothing",
    }
}

impl Default for BlankSource {
    fn default() -> Self {
        Self::Blank(BlankConfig::default())
    }
}

section! {
    /// Frames of one grey.
    pub struct BlankConfig {
        /// Width in pixels.
        width: u32 as whole(1..=MAX_SIDE) => default(1280),
        /// Height in pixels.
        height: u32 as whole(1..=MAX_SIDE) => default(720),
        /// Frames per second.
        fps: f64 as real(0.01..=1000.0) => default(30.0),
        /// Brightness of every pixel.
        level: u32 as whole(0..=255) => default(114),
    }
}

#[test]
fn the_source_of_the_walk_through_has_its_keys() {
    let source = BlankSource::Blank(BlankConfig::default());
    assert_eq!(source.name(), "blank");
    let keys: Vec<_> = source.write().into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, ["width", "height", "fps", "level"]);
}
