//! The description of a camera as lines of text.

use visiond_capture::v4l2::controls::Control;
use visiond_capture::v4l2::sample_alignment::SampleAlignment;

use super::{Camera, CameraFormat, Input, Io, Samples, Size};

/// Maximum number of sizes in the line of a format.
const SIZES_IN_A_LINE: usize = 6;

impl Camera {
    /// Returns the lines, each with its label. `whole` lists every size with every rate.
    pub fn lines(&self, whole: bool) -> Vec<(&'static str, String)> {
        let device = self.device.display();
        let mut lines = match (&self.error, self.api) {
            (Some(error), None) => vec![("camera", format!("{device} {error}"))],
            (error, api) => {
                let api = api.unwrap_or_default();
                let head = format!("{device}: {} (driver {}, {}, {api})", self.name, self.driver, self.bus);
                let wrong = error.iter().map(|error| ("", format!("cannot be used: {error}")));
                std::iter::once(("camera", head)).chain(wrong).collect()
            }
        };
        lines.extend(self.names().map(|name| ("", name)));
        for format in self.formats.iter().filter(|format| format.format.is_some()) {
            lines.extend(format.lines(whole).into_iter().map(|line| ("", line)));
        }
        let unread = self.formats.iter().filter(|format| format.format.is_none());
        let unread: Vec<_> = unread.map(|format| format.fourcc.as_str()).collect();
        if !unread.is_empty() {
            lines.push(("", format!("unsupported formats: {}", unread.join(", "))));
        }
        // The only input of a webcam is of no interest.
        if self.inputs.len() > 1 || self.inputs.iter().any(|input| input.signal.is_some()) {
            lines.extend(self.inputs.iter().map(|input| ("", input.text())));
        }
        lines.extend(self.io.map(|io| ("", io.text())));
        if let Some(chosen) = &self.chosen {
            let fps = chosen.fps.map_or(String::new(), |fps| format!(" at {} fps", tidy(fps)));
            let io = chosen.io.map_or(String::new(), |io| format!(" with {io}"));
            lines.push(("", format!("would use {}x{} {}{fps}{io}", chosen.width, chosen.height, chosen.format)));
        }
        lines.extend(self.samples.iter().map(|samples| ("", samples.text())));
        lines.extend(self.controls.iter().map(|control| ("control", line(control))));
        lines
    }

    fn names(&self) -> impl Iterator<Item = String> {
        let stable = self.stable_name.as_ref().map(|name| format!("stable name {name}"));
        let links = self.names.by_id.iter().chain(&self.names.by_path).map(|link| link.display().to_string());
        let others: Vec<_> = links
            .filter(|link| Some(link) != self.stable_name.as_ref())
            .chain(self.names.usb.clone())
            .chain(self.names.card.as_ref().map(|card| format!("{card:?}")))
            .collect();
        let others = (!others.is_empty()).then(|| format!("other names {}", others.join(", ")));
        stable.into_iter().chain(others)
    }
}

impl Input {
    fn text(&self) -> String {
        let set = if self.is_set { ", selected" } else { "" };
        let signal = self.signal.as_ref().map_or(String::new(), |signal| format!(": {signal}"));
        format!("input {} {:?}{set}{signal}", self.index, self.name)
    }
}

impl Io {
    fn text(&self) -> String {
        let ways = [("userptr", self.userptr), ("mmap", self.mmap)];
        let of = |state| ways.iter().filter(|(_, has)| *has == state).map(|(name, _)| *name).collect::<Vec<_>>();
        match (of(Some(true)).as_slice(), of(None).as_slice()) {
            ([], []) => "I/O: none".to_owned(),
            ([], _) => "I/O: unknown while another program streams".to_owned(),
            (known, _) => format!("I/O: {}", known.join(", ")),
        }
    }
}

impl Samples {
    fn text(&self) -> String {
        let Self { bits, found, read, error } = self;
        if let Some(error) = error {
            return format!("samples of {bits} bits: cannot capture a frame: {error}");
        }
        let stand = |place: &SampleAlignment| match place {
            SampleAlignment::Bottom => "in the low bits of 16",
            SampleAlignment::Top => "in the high bits of 16",
        };
        match found {
            None => {
                format!(
                    "samples of {bits} bits: the frames were too dark to locate them; point the camera at light and try again"
                )
            }
            Some(found) if found == read => format!("samples of {bits} bits: {}, as visiond reads them", stand(found)),
            Some(found) => format!(
                "samples of {bits} bits: {}, but visiond reads them {}: colours will be wrong; report this output",
                stand(found),
                stand(read)
            ),
        }
    }
}

impl CameraFormat {
    fn lines(&self, whole: bool) -> Vec<String> {
        let name = self.format.unwrap_or_default();
        let head = format!("{name} ({}, {})", self.fourcc, self.description);
        if whole {
            return std::iter::once(head)
                .chain(self.sizes.iter().map(|size| format!("  {}", size.text(true))))
                .collect();
        }
        let sizes: Vec<_> = self.sizes.iter().take(SIZES_IN_A_LINE).map(|size| size.text(false)).collect();
        let more = if self.sizes.len() > SIZES_IN_A_LINE { ", ..." } else { "" };
        vec![format!("{name} ({}): {}{more}", self.fourcc, sizes.join(", "))]
    }
}

impl Size {
    /// Returns the size with its highest rate, or with all rates.
    fn text(&self, all_rates: bool) -> String {
        let Self { width, height, range, fps, fps_is_range } = self;
        let sizes = match range {
            Some(range) => {
                let steps = match (range.step_width, range.step_height) {
                    (0 | 1, 0 | 1) => String::new(),
                    (width, height) => format!(" in steps of {width}x{height}"),
                };
                format!("{}x{} to {width}x{height}{steps}", range.min_width, range.min_height)
            }
            None => format!("{width}x{height}"),
        };
        let rates = match fps.as_slice() {
            [] => String::new(),
            [highest, lowest] if *fps_is_range => format!(" at {} to {}", tidy(*lowest), tidy(*highest)),
            [highest, ..] if !all_rates => format!(" at {}", tidy(*highest)),
            all => format!(" at {}", all.iter().map(|fps| tidy(*fps)).collect::<Vec<_>>().join(", ")),
        };
        sizes + &rates
    }
}

/// Formats a rate with at most two decimals.
fn tidy(fps: f64) -> String {
    ((fps * 100.0).round() / 100.0).to_string()
}

fn line(control: &Control) -> String {
    let mut parts = vec![control.takes()];
    parts.extend(control.show_default().map(|default| format!("default {default}")));
    parts.extend(control.value.as_ref().map(|value| format!("is {}", control.show(value))));
    let notes = [
        (control.read_only, "read-only"),
        (control.write_only, "write-only"),
        (control.inactive, "inactive in the current mode"),
    ];
    parts.extend(notes.into_iter().filter(|(holds, _)| *holds).map(|(_, note)| note.to_owned()));
    format!("{}: {}", control.name, parts.join("; "))
}

#[cfg(test)]
mod tests {
    use super::super::{Names, SizeRange};
    use super::*;

    #[test]
    fn sizes_and_rates_are_lists_or_ranges() {
        let list = Size { width: 640, height: 480, range: None, fps: vec![30.0, 29.97, 5.0], fps_is_range: false };
        assert_eq!(list.text(false), "640x480 at 30");
        assert_eq!(list.text(true), "640x480 at 30, 29.97, 5");
        let range = SizeRange { min_width: 16, min_height: 16, step_width: 2, step_height: 2 };
        let range = Size { range: Some(range), fps: vec![60.0, 1.0], fps_is_range: true, ..list };
        assert_eq!(range.text(false), "16x16 to 640x480 in steps of 2x2 at 1 to 60");
    }

    #[test]
    fn inputs_and_io_are_a_line_each() {
        let signal = Some("1920x1080 at 60 fps".to_owned());
        let input = Input { index: 3, name: "HDMI 0".to_owned(), is_set: true, signal };
        assert_eq!(input.text(), "input 3 \"HDMI 0\", selected: 1920x1080 at 60 fps");
        let io = |userptr, mmap| Io { userptr, mmap }.text();
        assert_eq!(io(Some(true), Some(true)), "I/O: userptr, mmap");
        assert_eq!(io(Some(false), Some(true)), "I/O: mmap");
        assert!(io(None, None).contains("another program streams"));
    }

    #[test]
    fn samples_that_are_read_from_the_wrong_bits_are_told() {
        let text = |found| Samples { bits: 10, found, read: SampleAlignment::Top, error: None }.text();
        assert_eq!(
            text(Some(SampleAlignment::Top)),
            "samples of 10 bits: in the high bits of 16, as visiond reads them"
        );
        assert!(
            text(Some(SampleAlignment::Bottom))
                .contains("in the low bits of 16, but visiond reads them in the high bits of 16: colours")
        );
        assert!(text(None).contains("too dark"));
    }

    #[test]
    fn a_camera_that_may_not_be_opened_is_told_with_its_names() {
        let names = Names { usb: Some("046d:0825".to_owned()), ..Names::default() };
        let error = Some("may not be opened".to_owned());
        let camera = Camera { device: "/dev/video2".into(), names, error, ..Camera::default() };
        let lines: Vec<_> = camera.lines(false).into_iter().map(|(head, text)| format!("{head} {text}")).collect();
        assert_eq!(lines, ["camera /dev/video2 may not be opened", " other names 046d:0825"]);
    }
}
