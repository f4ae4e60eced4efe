//! Decoding by the GPU's video engine: frames bit for bit, surfaces that do not change, damaged streams, memory, rate.
//!
//! The streams come from tests/gpu/video_media.py, with the checksums of ffmpeg's frames.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use clap::Args;
use visiond_ground::gpu_lost::is_gpu_lost;
use visiond_kernels::color::ColorDescription;
use visiond_kernels::cuda::Device;
use visiond_kernels::frame::{FrameLayout, PixelFormat, PlaneLayout};
use visiond_kernels::nvdec::{
    self, Chroma, NvdecError, Picture, Showing, Surface, VideoCodec, VideoDecoder, VideoKind,
};
use visiond_kernels::polygon::Polygon;
use visiond_kernels::privacy::{CudaMaskPlan, Fill, MaskPlan, PrivacyMask};

use crate::measure::{Noise, Samples, resident_bytes, thread_cpu_time};
use crate::report::{Failure, Report};
use crate::setup::Setup;

const ROW: &str = "Video";

/// The surfaces of a decoder here, as many as a camera has buffers.
const SURFACES: usize = 4;

/// The streams.
#[derive(Args, Clone)]
pub struct Streams {
    /// Folder that tests/gpu/video_media.py has filled
    #[arg(long, value_name = "DIR")]
    media: Option<PathBuf>,
}

/// A stream: its access units, and ffmpeg's frames of it.
struct Stream {
    name: String,
    codec: VideoCodec,
    units: Vec<Vec<u8>>,
    size: (u32, u32),
    checksums: Vec<u32>,
}

impl Stream {
    fn read(path: &Path) -> Result<Self, Failure> {
        let codec = match path.extension().and_then(|end| end.to_str()) {
            Some("h264") => VideoCodec::H264,
            _ => VideoCodec::H265,
        };
        let text = fs::read_to_string(path.with_extension("txt"))?;
        let mut numbers = text.split_whitespace().map(str::parse::<u32>);
        let mut next = || numbers.next().transpose();
        let size = (next()?.unwrap_or(0), next()?.unwrap_or(0));
        let checksums = std::iter::from_fn(|| next().transpose()).collect::<Result<_, _>>()?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { name, codec, units: units(codec, &fs::read(path)?), size, checksums })
    }

    fn decoder(&self, device: &Arc<Device>, surfaces: usize) -> Result<VideoDecoder, NvdecError> {
        VideoDecoder::new(device, self.codec, surfaces, Box::new(|_, _, _| Ok(())))
    }
}

/// Splits a stream before each access unit delimiter.
fn units(codec: VideoCodec, stream: &[u8]) -> Vec<Vec<u8>> {
    let delimiter: &[u8] = if codec == VideoCodec::H264 { &[0, 0, 0, 1, 9] } else { &[0, 0, 0, 1, 0x46] };
    let mut starts: Vec<usize> =
        (0..stream.len()).filter(|&at| stream[at..].starts_with(delimiter)).chain([stream.len()]).collect();
    starts.dedup();
    starts.windows(2).map(|pair| stream[pair[0]..pair[1]].to_vec()).collect()
}

/// Returns the parameter sets of a unit in Annex B.
fn parameter_sets(codec: VideoCodec, unit: &[u8]) -> Vec<u8> {
    let is_set = |header: u8| match codec {
        VideoCodec::H264 => matches!(header & 0x1F, 7 | 8),
        VideoCodec::H265 => matches!((header >> 1) & 0x3F, 32..=34),
    };
    let mut starts: Vec<usize> =
        (0..unit.len()).filter(|&at| unit[at..].starts_with(&[0, 0, 1])).chain([unit.len()]).collect();
    starts.dedup();
    let nals = starts.windows(2).map(|pair| &unit[pair[0]..pair[1]]);
    nals.filter(|nal| nal.get(3).is_some_and(|&header| is_set(header))).collect::<Vec<_>>().concat()
}

/// Returns the layout of a decoder's frame.
fn layout(decoder: &VideoDecoder, surface: &Surface) -> Result<FrameLayout, Failure> {
    let format = decoder.format().ok_or_else(|| Failure::Broken("a picture without a format".to_owned()))?;
    let pitch_bytes = surface.pitch_bytes();
    let planes = format.plane_offsets(surface).map(|offset_bytes| PlaneLayout { offset_bytes, pitch_bytes });
    let pixels = if format.kind.bits > 8 { PixelFormat::P010 } else { PixelFormat::Nv12 };
    Ok(FrameLayout::with_planes(pixels, format.width, format.height, &planes, ColorDescription::default())?)
}

/// Returns the checksum of the rows of both planes, without padding.
fn checksum(layout: &FrameLayout, surface: &Surface, copy: &mut Vec<u8>) -> Result<u32, Failure> {
    let view = layout.view_on_gpu(surface);
    let view = view.on_host(copy)?;
    // Of 10 bits, the upper 8 count.
    let bytes = if layout.format() == PixelFormat::P010 { 2 } else { 1 };
    let (mut low, mut high) = (1_u32, 0_u32);
    for (plane, rows) in view.planes().iter().zip([layout.height(), layout.height() / 2]) {
        for row in 0..rows as usize {
            // At most 16384 bytes: `high` stays below 2^32 if it is reduced every 5552.
            for piece in plane.row(row)[..layout.width() as usize * bytes].chunks(5552 * bytes) {
                for &byte in piece.iter().skip(bytes - 1).step_by(bytes) {
                    low += u32::from(byte);
                    high += low;
                }
                low %= 65_521;
                high %= 65_521;
            }
        }
    }
    Ok(high << 16 | low)
}

/// Runs the row.
pub fn run(setup: &Setup, streams: &Streams, report: &mut Report) -> Result<(), Failure> {
    let device = setup.device()?;
    if let Err(error @ (NvdecError::NoLibrary { .. } | NvdecError::TooOld(_))) =
        nvdec::limits(&device, VideoKind { codec: VideoCodec::H264, chroma: Chroma::Yuv420, bits: 8 })
    {
        report.skipped(ROW, "all of it", "", error);
        return Ok(());
    }
    tell_limits(&device, report)?;
    let Some(folder) = &streams.media else {
        report.skipped(ROW, "frames", "", "no streams were given (--media)");
        return Ok(());
    };
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "h264" || end == "h265"));
    paths.sort();
    let all = paths.iter().map(|path| Stream::read(path)).collect::<Result<Vec<_>, _>>()?;
    for stream in &all {
        if let Err(Failure::Broken(why)) = compare(&device, stream, report) {
            report.figure(ROW, &stream.name, "decoded", why, false);
        }
    }
    let named = |name: &str| all.iter().find(|stream| stream.name == name);
    if let Some(stream) = named("main-b") {
        hold_surfaces(&device, stream, report)?;
    }
    for stream in ["main-b", "hevc"].into_iter().filter_map(named) {
        blank(&device, stream, report)?;
    }
    for stream in ["baseline", "high-pyramid", "hevc"].into_iter().filter_map(named) {
        damage(&device, stream, report)?;
    }
    if let Some(stream) = named("camera") {
        measure(&device, stream, report)?;
        start_again(&device, stream, report)?;
    }
    Ok(())
}

fn tell_limits(device: &Arc<Device>, report: &mut Report) -> Result<(), Failure> {
    let mut seen = Vec::new();
    for codec in [VideoCodec::H264, VideoCodec::H265] {
        for chroma in [Chroma::Monochrome, Chroma::Yuv420, Chroma::Yuv422, Chroma::Yuv444] {
            for bits in [8, 10, 12] {
                let kind = VideoKind { codec, chroma, bits };
                if let Some(limits) = nvdec::limits(device, kind)? {
                    let (width, height) = limits.most;
                    seen.push(format!("{kind} to {width}x{height} by {}", limits.engines));
                }
            }
        }
    }
    report.note(ROW, "what the engines decode", seen.join("; "));
    Ok(())
}

/// Compares each frame with ffmpeg's.
fn compare(device: &Arc<Device>, stream: &Stream, report: &mut Report) -> Result<(), Failure> {
    let sets = parameter_sets(stream.codec, stream.units.first().map_or(&[], Vec::as_slice));
    let mut decoder = stream.decoder(device, SURFACES)?.prepared(&sets)?;
    let prepared = decoder.format();
    let mut copy = Vec::new();
    let (mut sums, mut numbers, mut held_back, mut sizes) = (Vec::new(), Vec::new(), 0, Vec::new());
    let showing = if stream.name == "no-vui" { Showing::AtOnce } else { Showing::InOrder };
    for given in 0..=stream.units.len() {
        match stream.units.get(given) {
            Some(unit) => decoder.decode(unit, given as i64, showing)?,
            None => decoder.finish()?,
        }
        while let Some(picture) = decoder.next_picture()? {
            let Picture::Shown { surface, presentation, .. } = picture else {
                return Err(Failure::Broken(format!("after {given} units: {picture:?}")));
            };
            let layout = layout(&decoder, &surface)?;
            sums.push(checksum(&layout, &surface, &mut copy)?);
            numbers.push(presentation);
            sizes.push((layout.width(), layout.height()));
        }
        held_back = held_back.max((given + 1).min(stream.units.len()) - sums.len());
    }
    let equal = sums.iter().zip(&stream.checksums).filter(|(seen, wanted)| seen == wanted).count();
    let wanted = stream.checksums.len();
    let mut sorted = numbers.clone();
    sorted.sort_unstable();
    sorted.dedup();
    let all_once = sorted.len() == sums.len();
    let is_size = sizes.iter().all(|size| *size == stream.size);
    let seen = format!("{equal} of {} frames, {held_back} held back, numbers each once: {all_once}", sums.len());
    if prepared.is_none() || prepared != decoder.format() {
        let seen = format!("{prepared:?}, and {:?} with pictures", decoder.format());
        report.figure(ROW, &format!("{}, a decoder made of its parameter sets", stream.name), "the same", seen, false);
    }
    let what = format!("{}, frames equal to ffmpeg's bit for bit", stream.name);
    report.figure(ROW, &what, wanted, seen, equal == wanted && sums.len() == wanted && is_size && all_once);
    Ok(())
}

/// Keeps surfaces while decoding continues: they must not change, and without a free one, frames are skipped.
fn hold_surfaces(device: &Arc<Device>, stream: &Stream, report: &mut Report) -> Result<(), Failure> {
    let mut decoder = stream.decoder(device, SURFACES)?;
    let mut copy = Vec::new();
    let (mut held, mut skipped, mut shown) = (Vec::new(), 0, 0);
    for (given, unit) in stream.units.iter().enumerate() {
        decoder.decode(unit, given as i64, Showing::InOrder)?;
        while let Some(picture) = decoder.next_picture()? {
            match picture {
                Picture::Shown { surface, .. } if given < stream.units.len() / 2 => {
                    let sum = checksum(&layout(&decoder, &surface)?, &surface, &mut copy)?;
                    held.push((surface, sum));
                }
                Picture::Shown { .. } => shown += 1,
                Picture::Skipped { .. } => skipped += 1,
                Picture::Damaged { .. } => {
                    return Err(Failure::Broken("a sound stream has a damaged picture".to_owned()));
                }
            }
        }
        if given == stream.units.len() / 2 {
            for (surface, sum) in &held {
                let now = checksum(&layout(&decoder, surface)?, surface, &mut copy)?;
                report.figure(ROW, "a surface that is held", "unchanged", format!("{sum:08x}, {now:08x}"), *sum == now);
            }
            held.truncate(1);
        }
    }
    let kept = held.len();
    report.figure(
        ROW,
        "surfaces free again",
        "pictures are shown again",
        format!("{skipped} skipped, {shown} shown, {kept} held"),
        skipped > 0 && shown > 10,
    );
    // Surfaces outlive their decoder.
    drop(decoder);
    let (surface, sum) = held.pop().ok_or_else(|| Failure::Broken("no surface is held".to_owned()))?;
    surface.copy_to(&mut copy)?;
    drop(surface);
    report.note(ROW, "a surface that outlives its decoder", format!("{} bytes, {sum:08x}", copy.len()));
    Ok(())
}

/// Blanks surfaces, which must then equal those that the CPU has blanked, while the decoder goes on.
fn blank(device: &Arc<Device>, stream: &Stream, report: &mut Report) -> Result<(), Failure> {
    let corners = [[[0.1, 0.1], [0.6, 0.2], [0.4, 0.9]], [[0.5, 0.5], [1.0, 0.4], [0.9, 1.0]]];
    let fills = [Fill::Mosaic, Fill::Color([200, 30, 90])];
    let mask = |(corners, fill): (&[_; 3], Fill)| Ok(PrivacyMask { polygon: Polygon::new(corners, None)?, fill });
    let masks = corners.iter().zip(fills).map(mask).collect::<Result<Vec<_>, Failure>>()?;
    let mut decoder = stream.decoder(device, SURFACES)?;
    let (mut expected, mut found) = (Vec::new(), Vec::new());
    let (mut equal, mut shown, mut plans) = (0, 0, None);
    for (given, unit) in stream.units.iter().enumerate() {
        decoder.decode(unit, given as i64, Showing::InOrder)?;
        while let Some(picture) = decoder.next_picture()? {
            let Picture::Shown { mut surface, .. } = picture else { continue };
            let (on_cpu, on_gpu) = match &mut plans {
                Some(plans) => plans,
                none => {
                    let plan = MaskPlan::new(&masks, &layout(&decoder, &surface)?);
                    let on_gpu = CudaMaskPlan::new(&plan, device)?;
                    none.insert((plan, on_gpu))
                }
            };
            // Blanking damages no later picture.
            let sum = checksum(&layout(&decoder, &surface)?, &surface, &mut expected)?;
            on_cpu.apply(&mut expected);
            on_gpu.blank(&mut surface)?;
            surface.copy_to(&mut found)?;
            equal += usize::from(expected == found && stream.checksums.get(shown) == Some(&sum));
            shown += 1;
        }
    }
    let what = format!("{}, blanked for privacy", stream.name);
    report.figure(ROW, &what, "as on the CPU", format!("{equal} of {shown}"), equal == shown && shown > 10);
    Ok(())
}

/// Flips bits, leaves out units and cuts them short.
fn damage(device: &Arc<Device>, stream: &Stream, report: &mut Report) -> Result<(), Failure> {
    let mut noise = Noise::new(7);
    let (mut shown, mut damaged, mut failed, mut decoders) = (0, 0, 0, 0);
    let free = || device.memory_free_bytes();
    let (mut before, mut resident) = (0, 0);
    for round in 0..12 {
        let mut decoder = None;
        for (given, unit) in stream.units.iter().enumerate() {
            let mut unit = unit.clone();
            match noise.number() % 8 {
                0 => continue,
                1 => unit.truncate(noise.number() as usize % unit.len()),
                2 | 3 => {
                    for _ in 0..=noise.number() % 8 {
                        let at = noise.number() as usize % unit.len();
                        unit[at] ^= 1 << (noise.number() % 8);
                    }
                }
                _ => {}
            }
            let decoding = match &mut decoder {
                Some(decoding) => decoding,
                none => {
                    decoders += 1;
                    none.insert(stream.decoder(device, SURFACES)?)
                }
            };
            let mut pictures = || -> Result<(), NvdecError> {
                decoding.decode(&unit, given as i64, Showing::InOrder)?;
                while let Some(picture) = decoding.next_picture()? {
                    match picture {
                        Picture::Shown { .. } => shown += 1,
                        _ => damaged += 1,
                    }
                }
                Ok(())
            };
            match pictures() {
                Ok(()) => {}
                Err(error) if is_gpu_lost(&error) => return Err(error.into()),
                Err(_) => {
                    failed += 1;
                    decoder = None;
                }
            }
        }
        drop(decoder);
        if round == 3 {
            (before, resident) = (free()?, resident_bytes());
        }
    }
    let grown = before.saturating_sub(free()?) >> 20;
    let resident = resident_bytes().saturating_sub(resident) >> 20;
    let seen = format!(
        "{shown} shown, {damaged} damaged, {failed} decoders of {decoders} gave up; memory grew by {grown} MiB on the GPU, {resident} MiB here"
    );
    report.figure(ROW, &format!("{}, damaged", stream.name), "no crash, no growth", seen, grown <= 8 && resident <= 16);
    Ok(())
}

/// Decodes on many threads at once: frames per second, and CPU time per frame.
fn measure(device: &Arc<Device>, stream: &Stream, report: &mut Report) -> Result<(), Failure> {
    for decoders in [1_usize, 8, 64] {
        let began = Instant::now();
        let rounds = if decoders == 1 { 4 } else { 2 };
        let cpu_us: Vec<f64> = thread::scope(|scope| {
            let decode = || -> Result<f64, Failure> {
                let mut decoder = stream.decoder(device, SURFACES)?;
                let began = thread_cpu_time();
                let mut frames = 0;
                for unit in (0..rounds).flat_map(|_| &stream.units) {
                    decoder.decode(unit, frames, Showing::InOrder)?;
                    while decoder.next_picture()?.is_some() {
                        frames += 1;
                    }
                }
                Ok((thread_cpu_time() - began).as_secs_f64() * 1e6 / frames as f64)
            };
            let threads: Vec<_> = (0..decoders).map(|_| scope.spawn(decode)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Result<_, _>>()
        })?;
        let frames = decoders * rounds * stream.units.len();
        let rate = frames as f64 / began.elapsed().as_secs_f64();
        let cpu = Samples::new(cpu_us).median();
        let seen =
            format!("{rate:.0} frames/s, start included: {:.0} streams of 30; {cpu:.0} us of CPU a frame", rate / 30.0);
        report.note(ROW, &format!("1080p H.264, {decoders} decoders"), seen);
    }
    Ok(())
}

/// Creates and drops decoders with surfaces in flight.
fn start_again(device: &Arc<Device>, stream: &Stream, report: &mut Report) -> Result<(), Failure> {
    let mut times = Vec::new();
    let mut before = 0;
    for round in 0..60 {
        let began = Instant::now();
        let mut decoder = stream.decoder(device, SURFACES)?;
        for (given, unit) in stream.units.iter().take(8).enumerate() {
            decoder.decode(unit, given as i64, Showing::InOrder)?;
        }
        times.push(began.elapsed().as_secs_f64() * 1e3);
        let kept = decoder.next_picture()?;
        drop(decoder);
        drop(kept);
        if round == 9 {
            before = device.memory_free_bytes()?;
        }
    }
    let grown = before.saturating_sub(device.memory_free_bytes()?) >> 20;
    let seen = format!("{grown} MiB more after 50; {:.1} ms each, with 8 pictures", Samples::new(times).median());
    report.figure(ROW, "decoders made and dropped", "no growth", seen, grown <= 4);
    Ok(())
}
