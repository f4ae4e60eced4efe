//! Blanks a camera's masked areas, in each frame that its source returns.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use visiond_frames::frame::{Frame, FrameBytes, LossCause};
use visiond_kernels::frame::FrameLayout;
use visiond_kernels::nvdec::Surface;
use visiond_kernels::privacy::{BlankError, CudaMaskPlan, MaskPlan, PrivacyMask};
use visiond_system::stop::{Stop, Wake};

use crate::source::{Next, Open, Opener, Source, SourceError, Worked};

/// The layouts whose plans are kept: a camera that alternates between sizes, such as a folder of images, has a few.
const MOST_PLANS: usize = 4;

/// A source whose frames are blanked in place before they leave it.
///
/// A frame costs the writes of the masked areas, or up to three launches on the GPU, and no allocation unless its layout is new. A frame that cannot be blanked
/// counts as [`LossCause::Unmasked`] instead.
pub struct MaskedSource {
    source: Box<dyn Source>,
    masks: Arc<[PrivacyMask]>,
    /// For the layouts of the last frames, the last one first; with the same for surfaces, once there was one.
    plans: Vec<(MaskPlan, Option<CudaMaskPlan>)>,
    /// Whether a failure was logged.
    has_warned: bool,
}

impl MaskedSource {
    /// Returns `source` with its frames blanked; unchanged if there are no masks.
    pub fn wrap(source: Box<dyn Source>, masks: &Arc<[PrivacyMask]>) -> Box<dyn Source> {
        if masks.is_empty() {
            return source;
        }
        let masks = Arc::clone(masks);
        let plans = Vec::with_capacity(MOST_PLANS);
        Box::new(Self { source, masks, plans, has_warned: false })
    }

    fn masked(&mut self, mut frame: Frame) -> Next {
        let (plan, plan_on_gpu) = self.plan_of(&frame.layout);
        let blanked = match &mut frame.buffer {
            FrameBytes::Surface(surface) => blank_surface(surface, plan, plan_on_gpu).map_err(|e| e.to_string()),
            FrameBytes::Pooled(buffer) => blank_bytes(buffer.as_mut_slice(), plan),
            FrameBytes::Driver(lent) => blank_bytes(lent.as_mut_slice(), plan),
        };
        let Err(error) = blanked else { return Next::Frame(frame) };
        if !std::mem::replace(&mut self.has_warned, true) {
            log::warn!("a frame is dropped, because its privacy masks cannot be applied: {error}");
        }
        Next::Lost { frames: 1, cause: LossCause::Unmasked }
    }

    /// Returns the plan for a layout, which then is the first of the kept ones.
    fn plan_of(&mut self, layout: &FrameLayout) -> (&mut MaskPlan, &mut Option<CudaMaskPlan>) {
        match self.plans.iter().position(|(plan, _)| plan.layout() == layout) {
            Some(at) => self.plans[..=at].rotate_right(1),
            None => {
                self.plans.truncate(MOST_PLANS - 1);
                self.plans.insert(0, (MaskPlan::new(&self.masks, layout), None));
            }
        }
        let (plan, plan_on_gpu) = &mut self.plans[0];
        (plan, plan_on_gpu)
    }
}

fn blank_bytes(bytes: &mut [u8], plan: &mut MaskPlan) -> Result<(), String> {
    if plan.apply(bytes) { Ok(()) } else { Err("it is truncated; check the camera's cable and format".to_owned()) }
}

/// Blanks a picture in the GPU's memory; `plan_on_gpu` keeps the table for the next one.
fn blank_surface(
    surface: &mut Surface,
    plan: &MaskPlan,
    plan_on_gpu: &mut Option<CudaMaskPlan>,
) -> Result<(), BlankError> {
    let Some(device) = surface.device().cloned() else { return Ok(()) };
    made_once(plan_on_gpu, || CudaMaskPlan::new(plan, &device))?.blank(surface)
}

/// Returns what `made` holds, and makes it if there is nothing. After a failure, as of memory that is short for a moment, the next call
/// tries again.
fn made_once<T, E>(made: &mut Option<T>, make: impl FnOnce() -> Result<T, E>) -> Result<&mut T, E> {
    let ready = match made.take() {
        Some(ready) => ready,
        None => make()?,
    };
    Ok(made.insert(ready))
}

impl Source for MaskedSource {
    fn next(&mut self, stop: &Stop) -> Result<Next, SourceError> {
        Ok(match self.source.next(stop)? {
            Next::Frame(frame) => self.masked(frame),
            next => next,
        })
    }

    fn shares_thread(&mut self) -> Option<BorrowedFd<'_>> {
        self.source.shares_thread()
    }

    fn work(&mut self, is_readable: bool, stop: &Stop) -> Result<Worked, SourceError> {
        Ok(match self.source.work(is_readable, stop)? {
            Worked::Next(Next::Frame(frame)) => Worked::Next(self.masked(frame)),
            worked => worked,
        })
    }

    fn describe(&self) -> String {
        let masks = self.masks.len();
        let noun = if masks == 1 { "privacy mask" } else { "privacy masks" };
        format!("{}, {masks} {noun}", self.source.describe())
    }

    fn may_idle(&self) -> bool {
        self.source.may_idle()
    }

    fn io(&self) -> Option<&'static str> {
        self.source.io()
    }

    fn decoder(&self) -> Option<&'static str> {
        self.source.decoder()
    }

    fn copied_bytes(&self) -> u64 {
        self.source.copied_bytes()
    }
}

/// Opens a source whose frames are blanked.
pub struct MaskedOpener {
    open: Open,
    masks: Arc<[PrivacyMask]>,
}

impl MaskedOpener {
    /// Returns `open` for frames that are blanked; unchanged if there are no masks.
    pub fn wrap(open: Open, masks: Arc<[PrivacyMask]>) -> Open {
        if masks.is_empty() { open } else { Box::new(Self { open, masks }) }
    }
}

impl Opener for MaskedOpener {
    fn open(&mut self) -> Result<Box<dyn Source>, SourceError> {
        Ok(MaskedSource::wrap(self.open.open()?, &self.masks))
    }

    fn is_device(&self) -> bool {
        self.open.is_device()
    }

    fn wait(&mut self, pause: Duration, stop: &Stop) -> Wake {
        self.open.wait(pause, stop)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io;
    use std::os::fd::AsFd;
    use std::time::Instant;

    use visiond_frames::frame::FrameBytes;
    use visiond_frames::testing::{frame, pool};
    use visiond_kernels::color::ColorDescription;
    use visiond_kernels::frame::PixelFormat;
    use visiond_kernels::polygon::Polygon;
    use visiond_kernels::privacy::Fill;

    use super::*;

    #[test]
    fn what_could_not_be_made_once_is_tried_again_and_then_kept() {
        let (mut made, mut tries) = (None, 0);
        let mut next = || {
            let result = made_once(&mut made, || {
                tries += 1;
                if tries < 3 { Err("out of memory") } else { Ok(tries) }
            });
            result.map(|made| *made)
        };
        assert_eq!([next(), next(), next(), next()], [Err("out of memory"), Err("out of memory"), Ok(3), Ok(3)]);
    }

    /// Returns frames of white pixels, by both ways, then a truncated one.
    struct White(u64, io::PipeReader);

    impl White {
        fn frame(&mut self) -> Next {
            self.0 += 1;
            let mut frame = frame(&pool(1), u64::from(u8::MAX)).unwrap();
            if self.0 == 3
                && let FrameBytes::Pooled(_) = frame.buffer
            {
                let short = visiond_frames::frame::FramePool::new(&visiond_kernels::buffer::Memory::host(), 1, 7);
                frame.buffer = short.unwrap().take().unwrap().into();
            }
            Next::Frame(frame)
        }
    }

    impl Source for White {
        fn next(&mut self, _stop: &Stop) -> Result<Next, SourceError> {
            Ok(self.frame())
        }

        fn shares_thread(&mut self) -> Option<BorrowedFd<'_>> {
            Some(self.1.as_fd())
        }

        fn work(&mut self, is_readable: bool, _stop: &Stop) -> Result<Worked, SourceError> {
            Ok(if is_readable { Worked::Next(self.frame()) } else { Worked::Idle(Instant::now()) })
        }

        fn describe(&self) -> String {
            "white".to_owned()
        }
    }

    fn left_half() -> Arc<[PrivacyMask]> {
        let polygon = Polygon::new(&[[0.0, 0.0], [0.5, 0.0], [0.5, 1.0], [0.0, 1.0]], None).unwrap();
        Arc::new([PrivacyMask { polygon, fill: Fill::Color([0; 3]) }])
    }

    #[test]
    fn a_frame_is_blanked_whichever_way_it_comes_and_one_that_cannot_be_is_lost() {
        let (reader, _writer) = io::pipe().unwrap();
        let stop = Stop::new().unwrap();
        let mut source = MaskedSource::wrap(Box::new(White(0, reader)), &left_half());
        let bytes = |next: Next| match next {
            Next::Frame(frame) => frame.bytes(&mut Vec::new()).unwrap().to_vec(),
            other => panic!("{other:?}"),
        };
        // 4 x 2 pixels of limited range.
        let half = [16, 16, 255, 255, 16, 16, 255, 255];
        assert_eq!(bytes(source.next(&stop).unwrap()), half);
        assert!(source.shares_thread().is_some());
        assert!(matches!(source.work(false, &stop), Ok(Worked::Idle(_))));
        let Ok(Worked::Next(next)) = source.work(true, &stop) else { panic!("no frame") };
        assert_eq!(bytes(next), half);
        assert!(matches!(source.next(&stop), Ok(Next::Lost { frames: 1, cause: LossCause::Unmasked })));
        assert_eq!(bytes(source.next(&stop).unwrap()), half);
        assert_eq!(source.describe(), "white, 1 privacy mask");
    }

    #[test]
    fn frames_that_alternate_between_sizes_are_planned_once_each() {
        let layout = |side| FrameLayout::packed(PixelFormat::Grey, side, side, ColorDescription::default()).unwrap();
        let mut source = MaskedSource {
            source: Box::new(White(0, io::pipe().unwrap().0)),
            masks: left_half(),
            plans: Vec::new(),
            has_warned: false,
        };
        let planned =
            |source: &MaskedSource| source.plans.iter().map(|(plan, _)| plan.layout().width()).collect::<Vec<_>>();
        for side in [8, 16, 8, 16, 8] {
            assert_eq!(source.plan_of(&layout(side)).0.layout().width(), side);
        }
        assert_eq!(planned(&source), [8, 16]);
        for side in 1..100 {
            source.plan_of(&layout(side));
        }
        assert_eq!(planned(&source), [99, 98, 97, 96], "there are never more");
    }
}
