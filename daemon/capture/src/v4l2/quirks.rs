//! Drivers that depart from the V4L2 specification, by their name in QUERYCAP.
//!
//! Everything else in this folder follows the specification. A driver that departs from it gets a row here, with the source
//! that proves it, and the code asks [`Node::has`](super::device::Node::has) where it matters.

/// A departure from V4L2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quirk {
    /// 10- and 12-bit samples, of mosaics and of grey, are in the high bits of their 16-bit words, and the low bits repeat the
    /// highest: white is 65535, and such a frame reads like one of 16-bit samples. V4L2 puts them in the low bits, with zeros
    /// above.
    SamplesFillWords,
    /// The sensor has power only while it streams. Until then the driver stores the values of its controls, and the sensor
    /// receives them at the start only if the control `override_enable` is set. A value that is set again while streaming, and
    /// has not changed, does not reach the sensor either, because the kernel skips it (`cluster_changed` in v4l2-ctrls-core.c).
    /// Controls of the capture unit and of the sensor's mode affect the format, and must be set before it.
    SensorOffUntilStreaming,
    /// The control `sensor_mode` selects the sensor's mode: its value is the mode's index in the driver's list of sizes. Many
    /// device trees have the driver ignore the size that a program asks for.
    ModeByControl,
    /// STREAMON opens /dev/capture-vi-channelN inside the kernel, with the rights of the calling process.
    OpensChannelAtStart,
    /// S_PARM is missing. The control `frame_rate` sets the rate.
    RateByControl,
    /// A module parameter chooses between CLOCK_MONOTONIC and CLOCK_REALTIME for timestamps. Their flags say CLOCK_MONOTONIC in
    /// both cases.
    StampsOfEitherClock,
    /// The frames come from another program, which has the buffers mapped and can write to them at any time, also after the frame was
    /// taken.
    WrittenByPrograms,
    /// Timestamps are values of the machine's system counter at the start of the frame. Their flags say CLOCK_MONOTONIC and the
    /// end of the frame.
    StampsOfSystemCounter,
}

/// NVIDIA's capture unit, VI5 and VI6, from Xavier on: one driver for all CSI and GMSL sensors. The files named below are in
/// `drivers/media/platform/tegra/camera` of Jetson Linux 35 (linux-tegra-5.10) and 36 (linux-nv-oot, l4t-r36.4).
const TEGRA: &str = "tegra-video";

/// Every known quirk, with its source.
const TABLE: &[(&str, Quirk)] = &[
    // vi/vi5_formats.h: RAW10 and RAW12 are written as T_R16. The words, measured:
    // https://forums.developer.nvidia.com/t/questions-regarding-vis-raw-data-pixel-formatting/223616
    (TEGRA, Quirk::SamplesFillWords),
    // tegracam_ctrls.c: tegracam_s_ctrl returns early while the power is off, tegracam_ctrl_set_overrides; tegracam_v4l2.c:
    // v4l2sd_stream; camera_common.c: camera_common_try_fmt reads the mode and HDR; vi/channel.c: tegra_channel_s_ctrl.
    (TEGRA, Quirk::SensorOffUntilStreaming),
    // camera_common.c: camera_common_try_fmt with use_sensor_mode_id, camera_common_enum_framesizes; tegracam_ctrls.c:
    // TEGRA_CAMERA_CID_SENSOR_MODE_ID.
    (TEGRA, Quirk::ModeByControl),
    // vi/vi5_fops.c: vi5_channel_open, in release 36 and newer.
    (TEGRA, Quirk::OpensChannelAtStart),
    // vi/channel.c: tegra_channel_ioctl_ops has no vidioc_s_parm; tegracam_ctrls.c: TEGRA_CAMERA_CID_FRAME_RATE.
    (TEGRA, Quirk::RateByControl),
    // vi/vi5_fops.c: vi5_capture_dequeue hands on sof_timestamp; vi/channel.c: timestamp_flags of the queue.
    (TEGRA, Quirk::StampsOfSystemCounter),
    // drivers/media/usb/uvc in Linux: uvc_driver.c, uvc_param_set_clock; uvc_queue.c, timestamp_flags of the queue.
    ("uvcvideo", Quirk::StampsOfEitherClock),
    // https://github.com/v4l2loopback/v4l2loopback, v4l2loopback.c: vidioc_querycap, vm_ops and v4l2_loopback_mmap, which maps the same
    // pages for the writer and for each reader.
    ("v4l2 loopback", Quirk::WrittenByPrograms),
];

pub fn has(driver: &str, quirk: Quirk) -> bool {
    TABLE.contains(&(driver, quirk))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_without_a_row_follows_v4l2() {
        assert!(has("v4l2 loopback", Quirk::WrittenByPrograms) && !has("uvcvideo", Quirk::WrittenByPrograms));
        assert!(has("tegra-video", Quirk::RateByControl) && !has("uvcvideo", Quirk::RateByControl));
        for &(_, quirk) in TABLE {
            assert!(!["vivid", "tegra", ""].iter().any(|driver| has(driver, quirk)));
        }
    }
}
