//! A parser and a decoder of NVDECODE, and the surfaces between them and the preprocess.
//!
//! The parser calls back while it processes data: with the stream's format, for which the decoder is created; with each picture to
//! decode; with each picture to show. A picture to show is mapped: this waits until it is decoded, and makes the GPU copy it into
//! one of the decoder's output surfaces. So surfaces stay unchanged while decoding continues. Only two things wait for the copy,
//! both on the GPU: readers of the surface, and the next picture to decode, which may overwrite the copied one: by then the copy
//! is long over.
//!
//! The newest picture is still in the engine when it is to be shown. It is mapped by [`VideoDecoder::next_picture`], or before
//! the next picture is decoded; [`VideoDecoder::due`] says when that will not have to wait.
//!
//! If a stream does not state how far its pictures are reordered, the parser shows a picture only when it needs the memory, up to
//! two seconds late. With [`Showing::AtOnce`] each picture is shown when it is decoded.

use std::collections::VecDeque;
use std::ffi::{c_int, c_ulong, c_void};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::abi::{self, CreateInfo, DecodeStatus, DecoderHandle, DisplayInfo, MapInfo, ParserHandle, PictureStart};
use super::decode_time::DecodeTime;
use super::error::NvdecError;
use super::kind::{Chroma, VideoCodec, VideoKind};
use super::library::Library;
use super::limits::limits;
use crate::color::{ColorDescription, ColorMatrix, ColorRange};
use crate::cuda::{CudaError, CudaStream, Device, DeviceAddress, Event};
use visiond_ground::gpu_lost::is_gpu_lost;

/// Whether the process is ending, so that decoders need not be freed.
static PROCESS_ENDS: AtomicBool = AtomicBool::new(false);

/// Leaves decoders that are dropped from now on to the end of the process, which frees everything at once.
///
/// Freeing a decoder takes 20 ms, one at a time: with dozens of cameras, longer than a shutdown may take.
pub fn leave_decoders_to_the_end() {
    PROCESS_ENDS.store(true, Ordering::Relaxed);
}

/// Decode surfaces beyond what the stream requires, so that the engine need not wait for a picture to be mapped.
const SPARE_SURFACES: u32 = 2;

/// The most pictures of one coded unit: two fields, and a few that a camera sends together. Each takes the engine's time, and
/// the thread is busy until all are decoded.
const MOST_PICTURES: u32 = 8;

/// How long mapping usually takes, at most, when it need not wait for the engine.
const MAPPING: Duration = Duration::from_micros(100);

/// The most decode surfaces of any stream: H.264 and H.265 keep 16 pictures.
const MOST_SURFACES: u32 = 32;

/// The start of an intra slice in Annex B. At parameter sets alone, the parser does not call back.
const fn intra_slice(codec: VideoCodec) -> &'static [u8] {
    match codec {
        // An IDR picture's (5): macroblock 0, type I (7), parameter set 0.
        VideoCodec::H264 => &[0, 0, 0, 1, 0x65, 0x88, 0x84, 0x00, 0x10],
        // An IDR_W_RADL picture's (19): the first of its picture, parameter set 0, type I (2).
        VideoCodec::H265 => &[0, 0, 0, 1, 0x26, 0x01, 0xAF, 0x00, 0x10],
    }
}

/// The format of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VideoFormat {
    /// Codec, chroma and bits.
    pub kind: VideoKind,
    /// The width of the picture to show.
    pub width: u32,
    /// The height of the picture to show.
    pub height: u32,
    /// The colours that the stream declares, or the usual ones.
    pub color: ColorDescription,
    /// Whether pictures may consist of two fields, which are combined into one picture.
    pub is_interlaced: bool,
    /// Where the picture to show begins in the coded one.
    origin: (u32, u32),
    /// The size of the coded picture.
    coded: (u32, u32),
    surfaces: u32,
}

/// The output of a decoder, in display order.
#[derive(Debug)]
pub enum Picture {
    /// A picture.
    Shown {
        /// Its pixels.
        surface: Surface,
        /// When it is presented: the smallest outstanding number of those that pictures were given to the decoder with. Its own,
        /// if the stream has these in display order.
        presentation: i64,
        /// The number that its coded picture was given to the decoder with.
        given_with: i64,
    },
    /// A picture that could not be decoded completely.
    Damaged {
        /// As for a shown picture.
        given_with: i64,
    },
    /// A picture for which no surface was free.
    Skipped {
        /// As for a shown picture.
        given_with: i64,
    },
}

/// When a picture is returned by the decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Showing {
    /// In display order, when the parser knows its place.
    InOrder,
    /// When it is decoded: for pictures that no later picture is shown before.
    AtOnce,
}

/// A decoder for one stream.
pub struct VideoDecoder {
    parser: ParserHandle,
    /// The state of the parser's callbacks. From `Box::into_raw`; freed after the parser.
    state: NonNull<State>,
}

// SAFETY: the library allows a parser on any thread, one at a time; `State` is `Send`.
unsafe impl Send for VideoDecoder {}

/// The state of the callbacks.
struct State {
    library: &'static Library,
    device: Arc<Device>,
    codec: VideoCodec,
    output_surfaces: usize,
    accept: Accept,
    /// `None` until the format is known: from the first key frame, or before that by [`VideoDecoder::prepared`].
    hardware: Option<Arc<Hardware>>,
    format: Option<VideoFormat>,
    pictures: VecDeque<Picture>,
    /// How the picture that is being decoded is shown, and the number it was given with.
    showing: Showing,
    presentation: i64,
    /// Whether the parser holds a synthetic picture, made only to learn the format.
    is_preparing: bool,
    /// Whether it found the format in the stream itself.
    has_begun: bool,
    /// The number that the last picture in each decode surface was given with.
    given_with: [i64; u64::BITS as usize],
    /// How many pictures the current unit contained.
    pictures_of_unit: u32,
    /// Bit n: the last picture in decode surface n could not be decoded.
    failed: u64,
    /// Bit n: it was shown at once, so it is not shown again in its order.
    shown: u64,
    /// The decode surface of the last picture, and when the engine got it.
    newest: Option<(c_int, Instant)>,
    /// A picture to show that the engine has just received.
    unready: Option<(DisplayInfo, Instant)>,
    decode_time: DecodeTime,
    error: Option<NvdecError>,
}

/// Decides whether to accept pictures of a width and height, whose surfaces take this many bytes of the GPU's memory in total.
pub type Accept = Box<dyn Fn(u32, u32, u64) -> Result<(), String> + Send>;

/// The decoder. It lives as long as one of its surfaces.
struct Hardware {
    library: &'static Library,
    device: Arc<Device>,
    handle: DecoderHandle,
    /// The stream of surface copies. Dropped after the decoder is destroyed.
    stream: CudaStream,
    /// Recorded after the last copy. The stream runs in order, so all surfaces are complete when it is done.
    copied: Event,
    /// How many pictures were copied, and how many of these copies are known to be done: asking CUDA takes some 4 us.
    copies: AtomicU64,
    copies_done: AtomicU64,
    /// The rows of a surface's luma.
    rows: usize,
    surfaces: Mutex<Surfaces>,
}

/// The output surfaces that are mapped.
struct Surfaces {
    /// Surfaces that were dropped and await unmapping by the decoder's own thread. It has room for all.
    returned: Vec<u64>,
    mapped: usize,
    /// Whether the decoder's owner is gone, so that each surface is unmapped when it is dropped.
    is_over: bool,
}

// SAFETY: the library allows calls with a decoder from any thread where the context is current.
unsafe impl Send for Hardware {}
// SAFETY: as above. The decoder's owner alone decodes, maps and unmaps while it lives; after that, unmapping is one at a time, by
// the lock of `surfaces`. Stream and event are `Sync`.
unsafe impl Sync for Hardware {}

/// A decoded picture in the GPU's memory, which work on a stream may read once
/// [`FrameView::attach`](crate::frame::FrameView::attach) is queued there. Dropping it returns the memory to the decoder: wait for
/// GPU work on it first.
pub struct Surface {
    /// `None` only inside `drop`.
    hardware: Option<Arc<Hardware>>,
    address: DeviceAddress,
    pitch_bytes: usize,
    /// The rows of its luma.
    rows: usize,
    /// The number of the copy into it, and whether work on the GPU has waited for that.
    copy: u64,
    is_awaited: AtomicBool,
}

impl VideoDecoder {
    /// Makes a parser for a stream; the decoder follows with its first key frame, or by [`prepared`](Self::prepared).
    ///
    /// At most `output_surfaces` pictures exist at a time. `accept` decides about the size of the stream's pictures before memory
    /// is allocated for them.
    ///
    /// # Errors
    /// NVIDIA's library is missing, too old or fails.
    pub fn new(
        device: &Arc<Device>,
        codec: VideoCodec,
        output_surfaces: usize,
        accept: Accept,
    ) -> Result<Self, NvdecError> {
        let library = Library::get()?;
        device.bind()?;
        let state = State {
            library,
            device: device.clone(),
            codec,
            output_surfaces: output_surfaces.max(1),
            accept,
            hardware: None,
            format: None,
            pictures: VecDeque::new(),
            showing: Showing::InOrder,
            presentation: 0,
            is_preparing: false,
            has_begun: false,
            given_with: [0; u64::BITS as usize],
            pictures_of_unit: 0,
            failed: 0,
            shown: 0,
            newest: None,
            unready: None,
            decode_time: DecodeTime::default(),
            error: None,
        };
        let state = NonNull::from(Box::leak(Box::new(state)));
        let mut this = Self { parser: ptr::null_mut(), state };
        this.make_parser().map(|()| this)
    }

    /// Makes the parser, if there is none. The context must be current.
    fn make_parser(&mut self) -> Result<(), NvdecError> {
        // SAFETY: without a parser, nothing else refers to the state.
        let state = unsafe { self.state.as_ref() };
        let mut info = abi::ParserInfo {
            codec: state.codec.number(),
            // The format's callback says how many there are.
            max_decode_surfaces: 1,
            clock_rate_hz: 0,
            // Damaged pictures are decoded as far as possible, as ffmpeg does, and reported.
            error_threshold: 100,
            max_display_delay: 0,
            reserved1: [0; 5],
            user: self.state.as_ptr().cast(),
            sequence: Some(on_sequence),
            decode: Some(on_decode),
            display: Some(on_display),
            reserved2: [ptr::null_mut(); 8],
        };
        // SAFETY: both outlive the call, which copies `info`; the context is current.
        unsafe { state.library.create_parser(&mut self.parser, &mut info) }
    }

    /// Destroys the parser, if there is one.
    fn destroy_parser(&mut self) -> Result<(), NvdecError> {
        let parser = std::mem::replace(&mut self.parser, ptr::null_mut());
        if parser.is_null() {
            return Ok(());
        }
        // SAFETY: the parser is not called now.
        let state = unsafe { self.state.as_ref() };
        state.device.bind()?;
        // SAFETY: made once and destroyed once, here; the context is current.
        unsafe { state.library.destroy_parser(parser) }
    }

    /// Creates the decoder before the first picture arrives, for a stream with these parameter sets in Annex B. That takes 50 ms
    /// and more, for which pictures would have to wait. Does nothing if the parser finds no format in them.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    pub fn prepared(mut self, sets: &[u8]) -> Result<Self, NvdecError> {
        // SAFETY: the parser is not called now.
        let codec = unsafe {
            let state = self.state.as_mut();
            state.is_preparing = true;
            state.codec
        };
        let parsed = self.decode(&[sets, intra_slice(codec)].concat(), 0, Showing::InOrder);
        // The parser would show its picture some time.
        self.destroy_parser()?;
        // SAFETY: as above.
        unsafe { self.state.as_mut() }.is_preparing = false;
        parsed?;
        self.make_parser()?;
        Ok(self)
    }

    /// Decodes one coded picture in Annex B, in decoding order. `presentation` comes back with it.
    ///
    /// # Errors
    /// The GPU cannot decode the stream, or its parameters have changed. Pictures that cannot be decoded are not an error: they are
    /// returned as [`Picture::Damaged`].
    pub fn decode(&mut self, unit: &[u8], presentation: i64, showing: Showing) -> Result<(), NvdecError> {
        self.parse(unit, abi::PACKET_TIMESTAMP | abi::PACKET_END_OF_PICTURE, presentation, showing)
    }

    /// Flushes the pictures that wait for later ones, because none follow.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    pub fn finish(&mut self) -> Result<(), NvdecError> {
        self.parse(&[], abi::PACKET_END_OF_STREAM, 0, Showing::InOrder)
    }

    fn parse(&mut self, unit: &[u8], flags: c_ulong, presentation: i64, showing: Showing) -> Result<(), NvdecError> {
        let mut packet = abi::SourcePacket {
            flags,
            payload_bytes: unit.len() as _,
            payload: unit.as_ptr(),
            timestamp: presentation,
        };
        // SAFETY: the parser is not called now, so nothing else refers to the state.
        let library = unsafe {
            let state = self.state.as_mut();
            state.device.bind()?;
            state.show_unready()?;
            (state.showing, state.presentation, state.pictures_of_unit) = (showing, presentation, 0);
            state.library
        };
        // SAFETY: the parser is alive, packet and payload outlive the call, the context is current. The callbacks use the state,
        // to which no reference exists during the call.
        let parsed = unsafe { library.parse(self.parser, &mut packet) };
        // SAFETY: the call is over.
        let state = unsafe { self.state.as_mut() };
        state.error.take().map_or(parsed, Err)
    }

    /// Returns the next picture. Waits until the engine has decoded it: see [`due`](Self::due).
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    pub fn next_picture(&mut self) -> Result<Option<Picture>, NvdecError> {
        // SAFETY: the parser is not called now.
        if unsafe { self.state.as_ref() }.pictures.is_empty() {
            self.await_picture()?;
        }
        // SAFETY: as above.
        Ok(unsafe { self.state.as_mut() }.pictures.pop_front())
    }

    /// Waits until the engine has decoded the newest picture, if that is to be shown.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    pub fn await_picture(&mut self) -> Result<(), NvdecError> {
        // SAFETY: the parser is not called now.
        let state = unsafe { self.state.as_mut() };
        if state.unready.is_none() {
            return Ok(());
        }
        state.device.bind()?;
        state.show_unready()
    }

    /// Returns when the engine has probably decoded the next picture; `None` if there is none to wait for.
    pub fn due(&self) -> Option<Instant> {
        // SAFETY: the parser is not called now.
        let state = unsafe { self.state.as_ref() };
        let (_, given) = state.unready.filter(|_| state.pictures.is_empty())?;
        Some(state.decode_time.due(given))
    }

    /// Whether the stream's first key frame has arrived.
    pub fn has_begun(&self) -> bool {
        // SAFETY: the parser is not called now.
        unsafe { self.state.as_ref() }.has_begun
    }

    /// Returns the stream's format; `None` before its first key frame, unless it was [`prepared`](Self::prepared) for.
    pub fn format(&self) -> Option<VideoFormat> {
        // SAFETY: the parser is not called now.
        unsafe { self.state.as_ref() }.format
    }
}

impl Drop for VideoDecoder {
    fn drop(&mut self) {
        if PROCESS_ENDS.load(Ordering::Relaxed) {
            return;
        }
        if let Err(error) = self.destroy_parser() {
            log::warn!("{error}");
        }
        // SAFETY: made by `new` and freed once, here, after the parser, which is the only other user.
        let state = unsafe { Box::from_raw(self.state.as_ptr()) };
        if let Some(hardware) = &state.hardware {
            hardware.unmap_returned(true);
        }
    }
}

/// Calls `call` for a callback's state: neither a panic nor an error may unwind into the library. Returns 0, which stops the
/// parser, after both.
///
/// # Safety
/// `user` is a decoder's state, to which nothing else refers during the call.
unsafe fn guarded(user: *mut c_void, call: impl FnOnce(&mut State) -> Result<c_int, NvdecError>) -> c_int {
    // SAFETY: the caller's promise.
    let state = unsafe { &mut *user.cast::<State>() };
    let outcome = catch_unwind(AssertUnwindSafe(|| call(state))).unwrap_or(Err(NvdecError::Callback));
    outcome.unwrap_or_else(|error| {
        state.error.get_or_insert(error);
        0
    })
}

unsafe extern "C" fn on_sequence(user: *mut c_void, format: *mut abi::VideoFormat) -> c_int {
    // SAFETY: the parser calls with the pointers of `make_parser`, and a format that lives as long as the call.
    unsafe { guarded(user, |state| state.begin(&*format)) }
}

unsafe extern "C" fn on_decode(user: *mut c_void, picture: *mut PictureStart) -> c_int {
    // SAFETY: as above.
    unsafe { guarded(user, |state| state.decode(picture)) }
}

unsafe extern "C" fn on_display(user: *mut c_void, picture: *mut DisplayInfo) -> c_int {
    // SAFETY: as above. Null means the end of the stream.
    unsafe { guarded(user, |state| picture.as_ref().map_or(Ok(1), |picture| state.show_in_order(picture))) }
}

impl State {
    /// Makes the decoder; returns the number of its decode surfaces.
    fn begin(&mut self, declared: &abi::VideoFormat) -> Result<c_int, NvdecError> {
        let format = VideoFormat::new(self.codec, declared)?;
        match &self.format {
            Some(before) if *before == format => {}
            Some(_) => return Err(NvdecError::OtherParameters),
            None => {
                self.hardware = Some(Arc::new(self.create(&format)?));
                self.format = Some(format);
            }
        }
        self.has_begun = !self.is_preparing;
        Ok(format.surfaces as c_int)
    }

    fn create(&self, format: &VideoFormat) -> Result<Hardware, NvdecError> {
        let VideoFormat { kind, coded: (width, height), .. } = *format;
        // 4:2:0, in decode surfaces and output surfaces.
        let surfaces = u64::from(format.surfaces) + self.output_surfaces as u64;
        let bytes = u64::from(width) * u64::from(height) * 3 / 2 * kind.sample_bytes() as u64 * surfaces;
        (self.accept)(width, height, bytes).map_err(NvdecError::Refused)?;
        let limits = limits(&self.device, kind)?.ok_or(NvdecError::Kind(kind))?;
        let (least, most) = (limits.least, limits.most);
        let macroblocks = width.div_ceil(16) * height.div_ceil(16);
        if width < least.0
            || height < least.1
            || width > most.0
            || height > most.1
            || macroblocks > limits.most_macroblocks
        {
            let [least, most] = [least, most].map(|(width, height)| format!("{width}x{height}"));
            return Err(NvdecError::Size { kind, least, most, width, height });
        }
        let deinterlace = if format.is_interlaced { abi::DEINTERLACE_ADAPTIVE } else { abi::DEINTERLACE_WEAVE };
        let mut info = CreateInfo {
            width: width.into(),
            height: height.into(),
            decode_surfaces: format.surfaces.into(),
            codec: kind.codec.number(),
            chroma: kind.chroma.number(),
            flags: abi::CREATE_PREFER_CUVID,
            bit_depth_minus_8: (kind.bits - 8).into(),
            intra_only: 0,
            max_width: width.into(),
            max_height: height.into(),
            reserved1: 0,
            // The whole coded picture, unscaled; the frame's layout leaves out what is not shown.
            display_area: abi::ShortRect::default(),
            output_format: kind.surface_number(),
            deinterlace,
            target_width: width.into(),
            target_height: height.into(),
            output_surfaces: self.output_surfaces as _,
            lock: ptr::null_mut(),
            target_area: abi::ShortRect::default(),
            histogram: 0,
            reserved2: [0; 4],
        };
        let (stream, copied) = (CudaStream::new(&self.device)?, Event::silent(&self.device)?);
        let mut handle = ptr::null_mut();
        // SAFETY: both outlive the call; the context is current.
        unsafe { self.library.create_decoder(&mut handle, &mut info) }?;
        let returned = Vec::with_capacity(self.output_surfaces);
        let surfaces = Mutex::new(Surfaces { returned, mapped: 0, is_over: false });
        let (library, device) = (self.library, self.device.clone());
        let (copies, copies_done) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Hardware { library, device, handle, stream, copied, copies, copies_done, rows: height as usize, surfaces })
    }

    fn decode(&mut self, picture: *mut PictureStart) -> Result<c_int, NvdecError> {
        if self.is_preparing {
            return Ok(1);
        }
        self.pictures_of_unit += 1;
        if self.pictures_of_unit > MOST_PICTURES {
            return Err(NvdecError::ManyPictures(MOST_PICTURES));
        }
        // This picture may overwrite the one that is to be shown, or is copied.
        self.show_unready()?;
        let Some(hardware) = &self.hardware else { return Ok(0) };
        hardware.await_copies()?;
        // SAFETY: the parser calls with a picture that lives as long as the call; the decoder is alive, the context current.
        let (start, decoded) = unsafe { (*picture, self.library.decode_picture(hardware.handle, picture)) };
        let bit = bit(start.picture_index);
        // A second field adds to what its first has left in the surface.
        if start.second_field == 0 {
            self.failed &= !bit;
            self.shown &= !bit;
            if let Some(given_with) = self.given_with.get_mut(start.picture_index.unsigned_abs() as usize) {
                *given_with = self.presentation;
            }
        }
        match decoded {
            Err(error) if is_gpu_lost(&error) => return Err(error),
            Err(error) => {
                log::debug!("a picture of the stream was not decoded: {error}");
                self.failed |= bit;
            }
            Ok(()) => self.newest = Some((start.picture_index, Instant::now())),
        }
        let is_whole = start.field_pic_flag == 0 || start.second_field != 0;
        if self.showing == Showing::AtOnce && is_whole {
            let is_interlaced = self.format.is_some_and(|format| format.is_interlaced);
            self.show(&DisplayInfo {
                picture_index: start.picture_index,
                progressive_frame: c_int::from(!is_interlaced),
                top_field_first: 1,
                repeat_first_field: 0,
                timestamp: self.presentation,
            })?;
            self.shown |= bit;
        }
        Ok(1)
    }

    /// Shows a picture in display order, unless it was shown already.
    fn show_in_order(&mut self, picture: &DisplayInfo) -> Result<c_int, NvdecError> {
        if !self.is_preparing && self.shown & bit(picture.picture_index) == 0 {
            self.show(picture)?;
        }
        Ok(1)
    }

    /// Shows a picture, or postpones that if the engine has just received it.
    fn show(&mut self, shown: &DisplayInfo) -> Result<(), NvdecError> {
        self.show_unready()?;
        // All others are decoded by now.
        match self.newest.take_if(|(index, _)| *index == shown.picture_index) {
            Some((_, given)) => self.unready = Some((*shown, given)),
            None => self.map(shown, None)?,
        }
        Ok(())
    }

    /// Shows the picture that the engine had just received when it was due to be shown.
    fn show_unready(&mut self) -> Result<(), NvdecError> {
        self.unready.take().map_or(Ok(()), |(shown, given)| self.map(&shown, Some(given)))
    }

    /// Maps a picture that the engine has received just now or, with `None`, long ago.
    fn map(&mut self, shown: &DisplayInfo, given: Option<Instant>) -> Result<(), NvdecError> {
        let Some(hardware) = &self.hardware else { return Ok(()) };
        hardware.unmap_returned(false);
        let presentation = shown.timestamp;
        let given_with = self.given_with.get(shown.picture_index.unsigned_abs() as usize);
        let given_with = given_with.copied().unwrap_or(presentation);
        let picture = if self.failed & bit(shown.picture_index) != 0 {
            Picture::Damaged { given_with }
        } else if hardware.surfaces.lock().mapped >= self.output_surfaces {
            Picture::Skipped { given_with }
        } else {
            if let Some(given) = given {
                thread::sleep(self.decode_time.due(given).saturating_duration_since(Instant::now()));
            }
            let is_early = hardware.status(shown.picture_index) == abi::STATUS_IN_PROGRESS;
            let began = Instant::now();
            let surface = hardware.map(shown)?;
            match given {
                // A status may be stale: then mapping does not wait.
                Some(given) if is_early && began.elapsed() > MAPPING => self.decode_time.was_early(given.elapsed()),
                Some(_) => self.decode_time.was_ready(),
                None => {}
            }
            if let Err(error) = hardware.copied.record(&hardware.stream) {
                // The event does not cover this copy, which ends before the surface is given back.
                let _ = hardware.stream.synchronize();
                return Err(error.into());
            }
            match hardware.is_damaged(shown.picture_index) {
                true => Picture::Damaged { given_with },
                false => Picture::Shown { surface, presentation, given_with },
            }
        };
        self.pictures.push_back(picture);
        Ok(())
    }
}

/// Returns the bit of a decode surface.
fn bit(picture_index: c_int) -> u64 {
    1_u64.checked_shl(picture_index.unsigned_abs()).unwrap_or(0)
}

impl VideoFormat {
    fn new(codec: VideoCodec, declared: &abi::VideoFormat) -> Result<Self, NvdecError> {
        let chroma = Chroma::of(declared.chroma).ok_or(NvdecError::Chroma(declared.chroma))?;
        let bits = u32::from(declared.bit_depth_luma_minus_8.max(declared.bit_depth_chroma_minus_8)) + 8;
        let coded = (declared.coded_width, declared.coded_height);
        let side = |from: c_int, to: c_int, coded: u32| {
            let (from, to) = (u32::try_from(from).unwrap_or(0), u32::try_from(to).unwrap_or(0));
            // A display area outside of the picture: show all of it.
            if from < to && to <= coded { (from, to - from) } else { (0, coded) }
        };
        let [left, top, right, bottom] = declared.display_area;
        let (columns, rows) = (side(left, right, coded.0), side(top, bottom, coded.1));
        let usual = ColorDescription::default();
        // Tables E-4 and E-5 of H.264 and H.265.
        let matrix = match declared.matrix {
            1 => ColorMatrix::Bt709,
            5 | 6 => ColorMatrix::Bt601,
            9 | 10 => ColorMatrix::Bt2020,
            _ => usual.matrix,
        };
        let range = if declared.signal & 0x08 != 0 { ColorRange::Full } else { ColorRange::Limited };
        let surfaces = u32::from(declared.min_decode_surfaces).max(1) + SPARE_SURFACES;
        Ok(Self {
            kind: VideoKind { codec, chroma, bits },
            width: columns.1,
            height: rows.1,
            color: ColorDescription::new(matrix, range),
            is_interlaced: declared.progressive_sequence == 0,
            // Chroma of 4:2:0 has no odd pixels.
            origin: (columns.0 & !1, rows.0 & !1),
            coded,
            surfaces: surfaces.min(MOST_SURFACES),
        })
    }

    /// Returns the offsets of the first bytes to show in a surface: of luma, and of the interleaved chroma.
    pub fn plane_offsets(&self, surface: &Surface) -> [usize; 2] {
        let (x, y) = (self.origin.0 as usize * self.kind.sample_bytes(), self.origin.1 as usize);
        let pitch = surface.pitch_bytes;
        [y * pitch + x, (surface.rows + y / 2) * pitch + x]
    }
}

impl Hardware {
    /// Maps a decoded picture. Waits until it is decoded, and queues its copy into the surface.
    fn map(self: &Arc<Self>, shown: &DisplayInfo) -> Result<Surface, NvdecError> {
        let mut info = MapInfo {
            progressive_frame: shown.progressive_frame,
            second_field: 0,
            top_field_first: shown.top_field_first,
            unpaired_field: c_int::from(shown.repeat_first_field < 0),
            reserved1: [0; 2],
            raw_input: [0; 2],
            raw_output: [0; 2],
            stream: self.stream.raw(),
            reserved2: [0; 46],
            histogram: ptr::null_mut(),
            reserved3: ptr::null_mut(),
        };
        let (mut address, mut pitch) = (0, 0);
        // SAFETY: all outlive the call; decoder and stream are alive, the context is current.
        unsafe { self.library.map_frame(self.handle, shown.picture_index, &mut address, &mut pitch, &mut info) }?;
        self.surfaces.lock().mapped += 1;
        Ok(Surface {
            copy: self.copies.fetch_add(1, Ordering::Relaxed) + 1,
            hardware: Some(Arc::clone(self)),
            address: DeviceAddress(address),
            pitch_bytes: pitch as usize,
            rows: self.rows,
            is_awaited: AtomicBool::new(false),
        })
    }

    /// Waits until all mapped pictures are in their surfaces. They usually are, except on a GPU that cannot keep up: always waiting
    /// for the stream would cost an interrupt each time.
    fn await_copies(&self) -> Result<(), CudaError> {
        let copies = self.copies.load(Ordering::Relaxed);
        if self.copies_done.load(Ordering::Relaxed) < copies {
            if !self.copied.is_done()? {
                self.stream.synchronize()?;
            }
            self.copies_done.fetch_max(copies, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Returns the engine's progress with a picture; 0 if it is unknown.
    fn status(&self, picture_index: c_int) -> c_int {
        let mut status = DecodeStatus { status: 0, reserved1: [0; 31], reserved2: [ptr::null_mut(); 8] };
        // SAFETY: the status outlives the call; the decoder is alive, the context current.
        let known = unsafe { self.library.decode_status(self.handle, picture_index, &mut status) };
        known.map_or(0, |()| status.status)
    }

    /// Whether the engine found an error in a picture that was mapped.
    fn is_damaged(&self, picture_index: c_int) -> bool {
        let mut status = self.status(picture_index);
        // Mapping has waited for the engine, as far as is known.
        if status == abi::STATUS_IN_PROGRESS && self.stream.synchronize().is_ok() {
            status = self.status(picture_index);
        }
        matches!(status, abi::STATUS_ERROR | abi::STATUS_ERROR_CONCEALED)
    }

    /// Unmaps the dropped surfaces. With `is_over`, surfaces that are dropped later are unmapped soon after, by this function.
    fn unmap_returned(&self, is_over: bool) {
        loop {
            let mut surfaces = self.surfaces.lock();
            surfaces.is_over |= is_over;
            let Some(address) = surfaces.returned.pop() else { return };
            surfaces.mapped -= 1;
            // Unmapping may wait for the decoder, and lanes drop surfaces. After the owner's end there is nothing to wait for, and
            // other threads may unmap.
            if surfaces.is_over {
                self.unmap(address);
            } else {
                drop(surfaces);
                self.unmap(address);
            }
        }
    }

    fn unmap(&self, address: u64) {
        // Nothing writes to it from here on.
        let ready = self.device.bind().and_then(|()| self.await_copies()).map_err(Into::into);
        // SAFETY: mapped once and unmapped once, here: a surface gives its address away in its drop.
        if let Err(error) = ready.and_then(|()| unsafe { self.library.unmap_frame(self.handle, address) }) {
            log::warn!("{error}");
        }
    }
}

impl Drop for Hardware {
    fn drop(&mut self) {
        self.unmap_returned(true);
        let bound = self.device.bind().map_err(Into::into);
        // SAFETY: created once and destroyed once, here; every surface holds this value, so none is left.
        if let Err(error) = bound.and_then(|()| unsafe { self.library.destroy_decoder(self.handle) }) {
            log::warn!("{error}");
        }
    }
}

impl Surface {
    /// Returns the GPU's address of the first byte.
    pub fn address(&self) -> DeviceAddress {
        self.address
    }

    /// Returns the distance between the first bytes of two rows, the same in both planes.
    pub fn pitch_bytes(&self) -> usize {
        self.pitch_bytes
    }

    /// Returns the GPU that has the picture.
    pub fn device(&self) -> Option<&Arc<Device>> {
        self.hardware.as_ref().map(|hardware| &hardware.device)
    }

    /// Returns the bytes of the picture: luma, then chroma of 4:2:0.
    pub(crate) fn len_bytes(&self) -> usize {
        self.pitch_bytes * self.rows * 3 / 2
    }

    /// Lets `queue` queue work that changes the picture, at its address, and returns without waiting: work that waits for the picture
    /// also waits for this. The decoder does not refer to what it has copied into a surface.
    ///
    /// # Errors
    /// A CUDA call failed. The picture may then be changed, or not.
    ///
    /// # Safety
    /// The work stays within [`len_bytes`](Self::len_bytes).
    pub(crate) unsafe fn change(
        &mut self,
        queue: impl FnOnce(DeviceAddress, &CudaStream) -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        let Some(hardware) = &self.hardware else { return Ok(()) };
        hardware.device.bind()?;
        // It counts as another copy, which the surface's return waits for.
        self.copy = hardware.copies.fetch_add(1, Ordering::Relaxed) + 1;
        let changed = queue(self.address, &hardware.stream).and_then(|()| hardware.copied.record(&hardware.stream));
        if changed.is_err() {
            // The event does not cover what was queued, which ends before the surface is given back.
            let _ = hardware.stream.synchronize();
        }
        changed
    }

    /// Makes work that is queued on `stream` from now on wait until the picture is in the surface.
    ///
    /// # Errors
    /// The CUDA call failed.
    pub(crate) fn await_on(&self, stream: &CudaStream) -> Result<(), CudaError> {
        let Some(hardware) = &self.hardware else { return Ok(()) };
        stream.wait(&hardware.copied)?;
        self.is_awaited.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Copies the whole surface into `bytes`, which is resized to it, and waits for the copy.
    ///
    /// # Errors
    /// The CUDA call failed.
    pub fn copy_to(&self, bytes: &mut Vec<u8>) -> Result<(), CudaError> {
        let Some(hardware) = &self.hardware else { return Ok(()) };
        bytes.resize(self.pitch_bytes * self.rows * 3 / 2, 0);
        // SAFETY: a mapped surface of 4:2:0 has that many bytes, and is mapped as long as this value lives; `bytes` outlives the
        // copy, which is waited for.
        unsafe { hardware.stream.copy_to_host(self.address, bytes) }?;
        hardware.stream.synchronize()
    }
}

impl Drop for Surface {
    fn drop(&mut self) {
        let (Some(hardware), address) = (self.hardware.take(), self.address.0) else { return };
        // Work that has waited for the copy is over before a surface is dropped, and so is the copy.
        if *self.is_awaited.get_mut() {
            hardware.copies_done.fetch_max(self.copy, Ordering::Relaxed);
        }
        let mut surfaces = hardware.surfaces.lock();
        surfaces.returned.push(address);
        if !surfaces.is_over {
            return;
        }
        drop(surfaces);
        // Unmapping, and freeing the decoder after its last surface, takes 20 ms, too long for a lane. If the system cannot start a
        // thread, dropping the last surface does it.
        let end = move || hardware.unmap_returned(true);
        let _ = thread::Builder::new().name("nvdec end".to_owned()).spawn(end);
    }
}

impl fmt::Debug for Surface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Surface({:?})", self.address)
    }
}
