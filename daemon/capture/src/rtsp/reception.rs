//! Turns a stream's packets into access units with their times.

use std::mem;
use std::time::{Duration, Instant};

use visiond_frames::timestamp::Timestamp;
use visiond_rtsp::RtpPacket;
use visiond_rtsp::client::Media;
use visiond_rtsp::codec::Codec;
use visiond_rtsp::sdp::StreamDescription;
use visiond_system::logging::escape;

use super::access_unit::{self, AccessUnit, Assembler};
use super::cadence::Cadence;
use super::failure::Failure;
use super::frame_times::CameraClock;
use super::jpeg_payload::JpegAssembler;

/// An event while a stream plays.
pub(super) enum Received {
    Unit {
        unit: AccessUnit,
        /// Whether a sender report determines its time, at least that of its last packet.
        is_timed_by_report: bool,
    },
    /// This many units were damaged in transit, or could not be read for this reason.
    Damaged { units: u64, reason: Option<&'static str> },
    /// This many units were lost completely.
    Vanished { units: u64 },
}

/// The stream to play.
#[derive(Debug, Clone)]
pub(super) struct ChosenStream {
    /// Its index among the camera's streams.
    pub index: usize,
    pub codec: Codec,
    /// RTP time units per second.
    pub rate_hz: u32,
    /// Parameter sets of the session's description, in Annex B.
    pub sets: Vec<u8>,
    /// Width and height of JPEG images, if the description has them.
    pub size: Option<(u16, u16)>,
}

/// Returns why a stream of a known codec cannot be read.
fn unsupported(stream: &StreamDescription) -> Option<&'static str> {
    match (stream.is_encrypted, stream.is_interleaved) {
        (true, _) => {
            Some("the camera encrypts its video (SRTP): switch that off in the camera, or set `type = \"video\"`")
        }
        (_, true) => Some("the camera interleaves its packets (sprop-max-don-diff): set `type = \"video\"`"),
        _ => None,
    }
}

impl ChosenStream {
    /// Chooses the first stream that can be read.
    pub fn of(streams: &[StreamDescription]) -> Result<Self, Failure> {
        let mut known = streams.iter().enumerate().filter_map(|(at, stream)| Some((at, stream, stream.codec()?)));
        let Some((index, stream, codec)) = known.find(|(_, stream, _)| unsupported(stream).is_none()) else {
            if let Some(reason) = streams.iter().filter(|stream| stream.codec().is_some()).find_map(unsupported) {
                return Err(Failure::Unsupported(reason));
            }
            let name = |stream: &StreamDescription| {
                let name = format!("{}/{}", stream.media, stream.encoding);
                escape(&name.chars().take(40).collect::<String>()).to_string()
            };
            return Err(Failure::OtherCodec(streams.iter().take(4).map(name).collect()));
        };
        let mut sets = Vec::new();
        stream.sets.iter().for_each(|set| access_unit::put(&mut sets, set));
        Ok(Self { index, codec, rate_hz: stream.rate_hz, sets, size: stream.size.map(<(u16, u16)>::from) })
    }
}

/// Assembles a stream's packets and delivers its units.
pub(super) struct Reception {
    assembler: StreamAssembler,
    camera_clock: CameraClock,
    cadence: Cadence,
    /// How many units arrived since they were last counted.
    units: u32,
    /// When the last damaged one arrived, if none was complete since.
    pub damaged: Option<Instant>,
    /// When the last units arrived, and the average interval between them.
    pub last_units: Option<Instant>,
    pub interval: Duration,
}

impl Reception {
    pub fn new(stream: &ChosenStream) -> Self {
        Self {
            assembler: StreamAssembler::new(stream),
            camera_clock: CameraClock::new(stream.rate_hz),
            cadence: Cadence::default(),
            units: 0,
            damaged: None,
            last_units: None,
            interval: Duration::ZERO,
        }
    }

    /// Returns why the stream cannot be read, if that is known.
    pub fn reason(&self) -> Option<&'static str> {
        self.assembler.reason()
    }

    /// Takes the data that arrived at `arrival`.
    pub fn take(&mut self, media: &Media<'_>, arrival: Timestamp, receive: &mut dyn FnMut(Received)) {
        let packet = match media {
            Media::Packet(packet) => packet,
            Media::Report { timestamp, ntp } => return self.camera_clock.report(*timestamp, *ntp),
        };
        let captured = self.camera_clock.captured(packet.timestamp, arrival);
        let is_timed_by_report = captured != arrival;
        self.assembler.push(packet, (packet.timestamp, captured), |unit| {
            self.units += 1;
            receive(Received::Unit { unit, is_timed_by_report });
        });
        let damaged = self.assembler.take_damaged();
        // Each damaged unit lacks a packet.
        match self.cadence.next(packet.timestamp, u64::from(packet.lost), damaged) {
            0 => {}
            units => receive(Received::Vanished { units }),
        }
        match damaged {
            0 => {}
            units => {
                self.damaged = Some(Instant::now());
                receive(Received::Damaged { units, reason: self.assembler.reason() });
            }
        }
    }

    /// Returns whether units arrived since the last call.
    pub fn count_units(&mut self, now: Instant) -> bool {
        let units = mem::take(&mut self.units);
        if units == 0 {
            return false;
        }
        self.damaged = None;
        if let Some(last) = self.last_units.replace(now) {
            self.interval = (self.interval * 7 + now.saturating_duration_since(last) / units) / 8;
        }
        true
    }
}

/// The assembler of the stream's codec.
enum StreamAssembler {
    Nal(Assembler),
    Jpeg(JpegAssembler),
}

impl StreamAssembler {
    fn new(stream: &ChosenStream) -> Self {
        match stream.codec {
            Codec::H264 | Codec::H265 => Self::Nal(Assembler::new(stream.codec, &stream.sets)),
            Codec::Jpeg => Self::Jpeg(JpegAssembler::new(stream.size)),
        }
    }

    fn push(&mut self, packet: &RtpPacket<'_>, time: (i64, Timestamp), give: impl FnMut(AccessUnit)) {
        let &RtpPacket { payload, marker, lost, extension, .. } = packet;
        match self {
            Self::Nal(assembler) => assembler.push(payload, time, marker, lost, give),
            Self::Jpeg(assembler) => assembler.push(payload, time, marker, lost, extension, give),
        }
    }

    fn take_damaged(&mut self) -> u64 {
        match self {
            Self::Nal(assembler) => assembler.take_damaged(),
            Self::Jpeg(assembler) => assembler.take_damaged(),
        }
    }

    fn reason(&self) -> Option<&'static str> {
        match self {
            Self::Nal(assembler) => assembler.reason(),
            Self::Jpeg(assembler) => assembler.reason(),
        }
    }
}

#[cfg(test)]
mod tests {
    use visiond_frames::clock::{self, simulated::SimulatedClock};

    use super::*;

    const SPS: &[u8] = &[0x67, 1, 2, 3];
    const KEY: &[u8] = &[0x65, 0x88, 9];
    const INTER: &[u8] = &[0x41, 0x9A, 8];
    /// The same frame in two fragments.
    const BEGIN: &[u8] = &[0x5C, 0x81, 0x9A];
    const END: &[u8] = &[0x5C, 0x41, 8];
    /// From one frame to the next.
    const STEP: i64 = 3600;

    /// Takes a packet: its payload, the number of its frame, whether it ends the frame, and how many packets are missing
    /// before it. Returns the resulting events.
    fn take(reception: &mut Reception, (payload, picture, marker, lost): (&[u8], i64, bool, u16)) -> Vec<String> {
        let packet = RtpPacket { marker, timestamp: picture * STEP, lost, extension: None, payload };
        let mut out = Vec::new();
        reception.take(&Media::Packet(packet), clock::now(&SimulatedClock::default()), &mut |received| {
            out.push(match received {
                Received::Unit { unit, .. } if unit.follows_loss => "unit after a loss".to_owned(),
                Received::Unit { .. } => "unit".to_owned(),
                Received::Damaged { units, .. } => format!("{units} damaged"),
                Received::Vanished { units } => format!("{units} vanished"),
            });
        });
        out
    }

    #[test]
    fn what_is_lost_on_the_way_is_counted_and_known_to_what_comes_after_it() {
        let mut sets = Vec::new();
        access_unit::put(&mut sets, SPS);
        let stream = ChosenStream { index: 0, codec: Codec::H264, rate_hz: 90_000, sets, size: None };
        let mut reception = Reception::new(&stream);
        let mut came = Vec::new();
        for picture in 0..20 {
            came.extend(take(&mut reception, (if picture == 0 { KEY } else { INTER }, picture, true, 0)));
        }
        assert!(came.len() >= 19 && came.iter().all(|what| what == "unit"), "{came:?}");
        assert!(reception.damaged.is_none());

        // The middle of a frame is missing.
        came = take(&mut reception, (BEGIN, 20, false, 0));
        came.extend(take(&mut reception, (END, 20, true, 1)));
        came.extend(take(&mut reception, (INTER, 21, true, 0)));
        came.retain(|what| what != "unit");
        assert_eq!(came, ["1 damaged", "unit after a loss"]);
        assert!(reception.damaged.is_some());

        // Two whole frames of one packet each are missing.
        came = (22..32).flat_map(|picture| take(&mut reception, (INTER, picture, true, 0))).collect();
        assert!(came.iter().all(|what| what == "unit"), "{came:?}");
        came = take(&mut reception, (INTER, 34, true, 2));
        assert_eq!(came, ["unit after a loss", "2 vanished"]);
        assert!(reception.count_units(Instant::now()) && !reception.count_units(Instant::now()));
        assert!(reception.damaged.is_none(), "whole ones have come since");
    }

    #[test]
    fn the_time_between_units_is_their_mean_and_follows_slowly() {
        let stream = ChosenStream { index: 0, codec: Codec::H264, rate_hz: 90_000, sets: Vec::new(), size: None };
        let mut reception = Reception::new(&stream);
        let start = Instant::now();
        let mut count = |units, ms| {
            reception.units = units;
            (reception.count_units(start + Duration::from_millis(ms)), reception.interval.as_micros())
        };
        assert_eq!(count(3, 0), (true, 0), "one time is no interval");
        assert_eq!(count(0, 400), (false, 0));
        // 20 in 800 ms are 40 ms each; an eighth of the change counts.
        assert_eq!(count(20, 800), (true, 5_000));
        assert_eq!(count(1, 840), (true, 9_375));
    }
}
