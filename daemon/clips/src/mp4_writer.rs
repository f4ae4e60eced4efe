//! Writes coded frames into an MP4 file as they come. The index follows when it is finished, so a file that is cut off cannot be read.

use std::io::{self, Seek, SeekFrom, Write};
use std::time::SystemTime;

use shiguredo_mp4::boxes::{EsdsBox, SampleEntry, UnknownBox, VisualSampleEntryFields};
use shiguredo_mp4::descriptors::{DecoderConfigDescriptor, EsDescriptor, SlConfigDescriptor};
use shiguredo_mp4::mux::{Mp4FileMuxer, Mp4FileMuxerOptions, MuxError, Sample};
use shiguredo_mp4::{BoxSize, BoxType, Encode, FixedPointNumber, TrackKind, Uint};
use visiond_frames::coded_ring::{CodedFrame, Coding, FrameRole};
use visiond_kernels::jpeg::JpegDecoder;

use super::parameter_sets::ParameterSets;
use super::timeline::{FrameTime, Timeline};

/// The sample entry of MPEG-4 video and of JPEG.
const MP4V: BoxType = BoxType::Normal(*b"mp4v");

/// JPEG among the kinds of streams (ISO/IEC 14496-1, table 5).
const JPEG_STREAM: u8 = 0x6C;

/// A visual stream (ISO/IEC 14496-1, table 6).
const VISUAL_STREAM: u8 = 4;

/// Why a clip cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum Mp4Error {
    /// The file cannot be written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The camera's stream does not fit into an MP4 file.
    #[error("the camera's video cannot be stored as MP4: {0}; set another codec or size in the camera")]
    Stream(String),
    /// A side is longer than MP4 can say.
    #[error("the camera's video cannot be stored as MP4, as a side has {0} pixels; set a smaller size in the camera")]
    TooLarge(u32),
}

impl From<shiguredo_mp4::Error> for Mp4Error {
    fn from(error: shiguredo_mp4::Error) -> Self {
        Self::Stream(error.reason)
    }
}

impl From<MuxError> for Mp4Error {
    fn from(error: MuxError) -> Self {
        Self::Stream(error.to_string())
    }
}

/// What became of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Added {
    /// It is in the file, or left out because no decoder can use it there.
    Taken,
    /// Its codec, size or parameter sets differ from those of the frames before it: it is not in the file, and none after it can be.
    OtherParameters,
}

/// The parameters that all frames of a file share.
#[derive(Debug, PartialEq, Eq)]
struct Parameters {
    coding: Coding,
    rate_hz: u32,
    /// Of H.264 and H.265.
    sets: ParameterSets,
    /// Of JPEG.
    size: (u16, u16),
}

/// A frame in the file.
#[derive(Debug)]
struct Written {
    bytes: usize,
    time: FrameTime,
    is_entry: bool,
}

/// Writes an MP4 file with one video track.
pub struct Mp4Writer<W> {
    out: W,
    muxer: Mp4FileMuxer,
    /// `None` before the first frame.
    parameters: Option<(Parameters, SampleEntry)>,
    frames: Vec<Written>,
    /// Where the next sample begins in the file.
    position: u64,
    /// The sample that is written; its memory is reused.
    sample: Vec<u8>,
    jpeg: JpegDecoder,
}

impl<W: Write + Seek> Mp4Writer<W> {
    /// Begins a file at the start of `out`, which is empty.
    pub fn new(mut out: W) -> Result<Self, Mp4Error> {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let muxer =
            Mp4FileMuxer::with_options(Mp4FileMuxerOptions { creation_timestamp: since_1970, ..Default::default() })?;
        let head = muxer.initial_boxes_bytes();
        out.write_all(head)?;
        let position = head.len() as u64;
        let (frames, sample) = (Vec::new(), Vec::new());
        Ok(Self { out, muxer, parameters: None, frames, position, sample, jpeg: JpegDecoder::new() })
    }

    /// Writes a frame. The first one must be an entry, and is what the others must be like.
    pub fn add(&mut self, frame: &CodedFrame) -> Result<Added, Mp4Error> {
        let is_first_group = self.frames.len() == 1;
        if frame.role == FrameRole::Leading && is_first_group {
            return Ok(Added::Taken);
        }
        let parameters = match &self.parameters {
            Some((parameters, _)) => parameters,
            None => {
                let parameters = Parameters::of(frame, &mut self.jpeg)?;
                let entry = parameters.sample_entry()?;
                &self.parameters.insert((parameters, entry)).0
            }
        };
        if (parameters.coding, parameters.rate_hz) != (frame.coding, frame.rate_hz) {
            return Ok(Added::OtherParameters);
        }
        let bytes = match frame.coding {
            Coding::Jpeg => {
                if !self.frames.is_empty() && jpeg_size(frame, &mut self.jpeg)? != parameters.size {
                    return Ok(Added::OtherParameters);
                }
                &*frame.data
            }
            Coding::H264 | Coding::H265 => {
                if !parameters.sets.write_sample(frame.coding, &frame.data, &mut self.sample) {
                    return Ok(Added::OtherParameters);
                }
                &self.sample
            }
        };
        self.out.write_all(bytes)?;
        self.position += bytes.len() as u64;
        self.frames.push(Written {
            bytes: bytes.len(),
            time: FrameTime { presentation: frame.presentation, time: frame.time },
            is_entry: frame.role == FrameRole::Entry,
        });
        Ok(Added::Taken)
    }

    /// Writes the index; returns the finished file.
    pub fn finish(mut self) -> Result<W, Mp4Error> {
        let Some((parameters, entry)) = self.parameters.take() else {
            // Without a frame there is nothing to describe.
            return Err(Mp4Error::Io(io::ErrorKind::InvalidInput.into()));
        };
        let times: Vec<_> = self.frames.iter().map(|frame| frame.time).collect();
        let timeline = Timeline::new(&times, parameters.rate_hz);
        let is_reordered = timeline.samples.iter().any(|(_, offset)| *offset != 0);
        let mut at = self.position - self.frames.iter().map(|frame| frame.bytes as u64).sum::<u64>();
        for (number, (frame, (duration, offset))) in self.frames.iter().zip(timeline.samples).enumerate() {
            self.muxer.append_sample(&Sample {
                track_kind: TrackKind::Video,
                sample_entry: (number == 0).then(|| entry.clone()),
                keyframe: frame.is_entry,
                timescale: timeline.rate_hz,
                duration,
                composition_time_offset: is_reordered.then_some(offset),
                data_offset: at,
                data_size: frame.bytes,
            })?;
            at += frame.bytes as u64;
        }
        let boxes = self.muxer.finalize()?;
        let mut index = boxes.moov_box().clone();
        // The crate knows the size of its own sample entries only.
        if let (Coding::Jpeg, Some(track), (Ok(width), Ok(height))) = (
            parameters.coding,
            index.trak_boxes.first_mut(),
            (i16::try_from(parameters.size.0), i16::try_from(parameters.size.1)),
        ) {
            track.tkhd_box.width = FixedPointNumber::new(width, 0);
            track.tkhd_box.height = FixedPointNumber::new(height, 0);
        }
        let index = index.encode_to_vec()?;
        for (offset, bytes) in boxes.offset_and_bytes_pairs() {
            let is_index = offset == self.position;
            self.out.seek(SeekFrom::Start(offset))?;
            self.out.write_all(if is_index { &index } else { bytes })?;
        }
        self.out.flush()?;
        Ok(self.out)
    }
}

impl Parameters {
    fn of(frame: &CodedFrame, jpeg: &mut JpegDecoder) -> Result<Self, Mp4Error> {
        let (sets, size) = match frame.coding {
            Coding::Jpeg => (ParameterSets::default(), jpeg_size(frame, jpeg)?),
            coding => (ParameterSets::of(coding, &frame.data), (0, 0)),
        };
        Ok(Self { coding: frame.coding, rate_hz: frame.rate_hz, sets, size })
    }

    fn sample_entry(&self) -> Result<SampleEntry, Mp4Error> {
        match self.coding {
            Coding::Jpeg => Ok(jpeg_entry(self.size)?),
            coding => Ok(self.sets.sample_entry(coding)?),
        }
    }
}

fn jpeg_size(frame: &CodedFrame, jpeg: &mut JpegDecoder) -> Result<(u16, u16), Mp4Error> {
    let header = jpeg.header(&frame.data).map_err(|error| Mp4Error::Stream(error.to_string()))?;
    let side = |side| u16::try_from(side).map_err(|_| Mp4Error::TooLarge(side));
    Ok((side(header.width)?, side(header.height)?))
}

/// Returns the description of JPEG samples (MP4RA: object type 6C in `mp4v`), which the crate does not have.
fn jpeg_entry((width, height): (u16, u16)) -> Result<SampleEntry, shiguredo_mp4::Error> {
    let visual = VisualSampleEntryFields {
        data_reference_index: VisualSampleEntryFields::DEFAULT_DATA_REFERENCE_INDEX,
        width,
        height,
        horizresolution: VisualSampleEntryFields::DEFAULT_HORIZRESOLUTION,
        vertresolution: VisualSampleEntryFields::DEFAULT_VERTRESOLUTION,
        frame_count: VisualSampleEntryFields::DEFAULT_FRAME_COUNT,
        compressorname: VisualSampleEntryFields::NULL_COMPRESSORNAME,
        depth: VisualSampleEntryFields::DEFAULT_DEPTH,
    };
    let stream = EsdsBox {
        es: EsDescriptor {
            es_id: EsDescriptor::MIN_ES_ID,
            stream_priority: EsDescriptor::LOWEST_STREAM_PRIORITY,
            depends_on_es_id: None,
            url_string: None,
            ocr_es_id: None,
            dec_config_descr: DecoderConfigDescriptor {
                object_type_indication: JPEG_STREAM,
                stream_type: Uint::new(VISUAL_STREAM),
                up_stream: DecoderConfigDescriptor::UP_STREAM_FALSE,
                // 0 means unknown: the sizes of later frames are not known yet.
                buffer_size_db: Uint::new(0),
                max_bitrate: 0,
                avg_bitrate: 0,
                dec_specific_info: None,
            },
            sl_config_descr: SlConfigDescriptor,
        },
    };
    let payload = [visual.encode_to_vec()?, stream.encode_to_vec()?].concat();
    let box_size = BoxSize::with_payload_size(MP4V, payload.len() as u64);
    Ok(SampleEntry::Unknown(UnknownBox { box_type: MP4V, box_size, payload }))
}

#[cfg(test)]
mod tests;
