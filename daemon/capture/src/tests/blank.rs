//! The source that docs/contributing/add-a-source.md adds, and a test that the page shows the code that is built.

use std::sync::Arc;
use std::time::Duration;

use visiond_frames::clock::simulated::SimulatedClock;
use visiond_frames::clock::{self, Clock};
use visiond_frames::frame::{Frame, FramePool, LossCause};
use visiond_kernels::color::ColorDescription;
use visiond_kernels::frame::{FrameLayout, PixelFormat};
use visiond_system::stop::Stop;

use crate::buffers::Buffers;
use crate::pacer::SourcePacer;
use crate::source::{Next, Source, SourceError};

/// As the configuration declares it.
struct BlankConfig {
    width: u32,
    height: u32,
    fps: f64,
    level: u32,
}

struct BlankSource {
    config: BlankConfig,
    layout: FrameLayout,
    pool: FramePool,
    pacer: SourcePacer,
    clock: Arc<dyn Clock>,
    sequence: u64,
}

impl BlankSource {
    fn open(config: BlankConfig, buffers: &Buffers, clock: Arc<dyn Clock>) -> Result<Self, SourceError> {
        let layout = FrameLayout::packed(PixelFormat::Grey, config.width, config.height, ColorDescription::JPEG)
            .map_err(|error| SourceError::permanent(format!("cannot make blank frames: {error}")))?;
        let pool = buffers.pool(layout.size_bytes())?;
        Ok(Self { pacer: SourcePacer::new(config.fps), config, layout, pool, clock, sequence: 0 })
    }
}

impl Source for BlankSource {
    fn next(&mut self, stop: &Stop) -> Result<Next, SourceError> {
        let now_ns = self.clock.monotonic_ns();
        let missed = self.pacer.skip_missed(now_ns);
        if missed > 0 {
            self.sequence += missed;
            return Ok(Next::Lost { frames: missed, cause: LossCause::Overload });
        }
        let due_ns = self.pacer.due_ns(now_ns);
        if self.clock.sleep_until(due_ns, stop) {
            return Ok(Next::Stopped);
        }
        self.pacer.advance();
        let sequence = self.sequence;
        self.sequence += 1;
        let Some(mut buffer) = self.pool.take() else {
            return Ok(Next::Lost { frames: 1, cause: LossCause::Overload });
        };
        let timestamp = clock::now(self.clock.as_ref());
        buffer.as_mut_slice().fill(self.config.level as u8);
        Ok(Next::Frame(Frame {
            layout: self.layout,
            buffer: buffer.into(),
            sequence,
            timestamp,
            damaged: false,
            name: None,
        }))
    }

    fn describe(&self) -> String {
        format!("blank, {}x{} at {} fps", self.config.width, self.config.height, self.config.fps)
    }
}

#[test]
fn the_source_of_the_walk_through_gives_grey_frames_counts_losses_and_stops() {
    let (stop, clock) = (Stop::new().unwrap(), Arc::new(SimulatedClock::default()));
    let config = BlankConfig { width: 8, height: 4, fps: 10.0, level: 77 };
    let mut source = BlankSource::open(config, &Buffers::host(2), clock.clone()).unwrap();
    let Next::Frame(first) = source.next(&stop).unwrap() else { panic!("no frame") };
    assert_eq!((first.sequence, first.buffer.as_slice()), (0, &[77; 32][..]));
    let Next::Frame(second) = source.next(&stop).unwrap() else { panic!("no frame") };
    assert_eq!((second.sequence, second.timestamp.monotonic_ns), (1, 100_000_000));
    assert!(matches!(source.next(&stop).unwrap(), Next::Lost { frames: 1, cause: LossCause::Overload }));
    clock.advance(Duration::from_millis(350));
    assert!(matches!(source.next(&stop).unwrap(), Next::Lost { frames: 2, cause: LossCause::Overload }));
    stop.raise();
    assert!(matches!(source.next(&stop).unwrap(), Next::Stopped));
}

#[test]
fn the_walk_through_shows_code_that_is_built() {
    let page = include_str!("../../../../docs/contributing/add-a-source.md");
    let sources = [include_str!("blank.rs"), include_str!("../../../config/src/tests/blank.rs")];
    // Whatever the indentation.
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let sources = sources.map(words);
    let blocks: Vec<_> = page.split("```rust\n").skip(1).filter_map(|rest| rest.split_once("\n```")).collect();
    assert_eq!(blocks.len(), 3);
    for (block, _) in blocks {
        assert!(sources.iter().any(|source| source.contains(&words(block))), "no source has this any more:\n{block}");
    }
}
