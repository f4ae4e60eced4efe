//! Reads the frames of a source.

use visiond_capture::source::{Next, Source, SourceError};
use visiond_frames::frame::{Frame, LossCause};
use visiond_system::stop::Stop;

/// Waits for a source's next frame. Returns `None` at its end and on `stop`. Each loss before the frame goes to `lost`, which can
/// end the wait with an error.
///
/// # Errors
/// The source fails, or has nothing to read yet: the daemon would wait, a command does not.
pub fn next_frame(
    source: &mut dyn Source,
    stop: &Stop,
    mut lost: impl FnMut(u64, LossCause) -> Result<(), SourceError>,
) -> Result<Option<Frame>, SourceError> {
    loop {
        match source.next(stop)? {
            Next::Frame(frame) => return Ok(Some(frame)),
            Next::Lost { frames, cause } => lost(frames, cause)?,
            Next::Waiting { reason } => return Err(SourceError::transient(reason)),
            Next::End | Next::Stopped => return Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use visiond_system::stop::Stop;

    use super::*;

    /// Yields its items from last to first.
    struct Listed(Vec<Next>);

    impl Source for Listed {
        fn next(&mut self, _stop: &Stop) -> Result<Next, SourceError> {
            Ok(self.0.pop().unwrap())
        }

        fn describe(&self) -> String {
            String::new()
        }
    }

    #[test]
    fn losses_are_passed_on_until_they_are_too_many_and_a_wait_is_an_error() {
        let stop = Stop::new().unwrap();
        let loss = || Next::Lost { frames: 3, cause: LossCause::Corrupt };
        let mut source = Listed(vec![Next::End, Next::Waiting { reason: "no signal".into() }, loss(), loss(), loss()]);
        let mut losses = 0;
        let error = next_frame(&mut source, &stop, |frames, _| {
            losses += frames;
            if losses < 6 { Ok(()) } else { Err(SourceError::transient("too many")) }
        });
        assert_eq!((error.unwrap_err().to_string().as_str(), losses), ("too many", 6));
        let error = next_frame(&mut source, &stop, |_, _| Ok(())).unwrap_err();
        assert_eq!(error.to_string(), "no signal");
        assert!(next_frame(&mut source, &stop, |_, _| Ok(())).unwrap().is_none());
    }
}
