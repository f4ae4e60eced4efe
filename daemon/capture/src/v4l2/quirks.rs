//! Where a driver departs from what V4L2 says, by the name that QUERYCAP gives for it.
//!
//! Everything else in this folder follows the specification. A driver that departs from it gets a row here, with the source
//! that shows it, and the code asks [`Node::has`](super::device::Node::has) at the place that the row names.

/// A departure from V4L2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quirk {
    /// 10- and 12-bit mosaic samples stand at the top of their 16-bit words, the low bits repeat the highest: white is 65535,
    /// and such a picture reads as one of 16-bit samples. V4L2 puts them at the bottom, with zeros above.
    SamplesFillWords,
    /// The sensor has power only while it streams. Until then the driver stores the values of its controls, and the sensor
    /// gets them at the start only where the control `override_enable` is set. A value that is set again while it streams, and
    /// has not changed, does not reach the sensor either, because the kernel leaves it out (`cluster_changed` in
    /// v4l2-ctrls-core.c). Controls of the capture unit and of the sensor's mode decide about the format, and come before it.
    SensorOffUntilStreaming,
    /// There is no S_PARM. A control, `frame_rate`, sets the rate.
    RateByControl,
    /// A parameter of the module chooses between CLOCK_MONOTONIC and CLOCK_REALTIME for timestamps. Their flags say
    /// CLOCK_MONOTONIC either way.
    StampsOfEitherClock,
    /// Timestamps count the system counter of the machine, and mark the start of the frame. Their flags say CLOCK_MONOTONIC and
    /// the end of the frame.
    StampsOfSystemCounter,
}

/// NVIDIA's capture unit, VI5 and VI6, from Xavier on: one driver for all CSI and GMSL sensors. The files named below are those of
/// `drivers/media/platform/tegra/camera` in Jetson Linux 35 (linux-tegra-5.10) and 36 (linux-nv-oot, l4t-r36.4).
const TEGRA: &str = "tegra-video";

/// Every departure that is known, each with its source.
const TABLE: &[(&str, Quirk)] = &[
    // vi/vi5_formats.h: RAW10 and RAW12 are written as T_R16. The words, measured:
    // https://forums.developer.nvidia.com/t/questions-regarding-vis-raw-data-pixel-formatting/223616
    (TEGRA, Quirk::SamplesFillWords),
    // tegracam_ctrls.c: tegracam_s_ctrl returns early while the power is off, tegracam_ctrl_set_overrides; tegracam_v4l2.c:
    // v4l2sd_stream; camera_common.c: camera_common_try_fmt reads the mode and HDR; vi/channel.c: tegra_channel_s_ctrl.
    (TEGRA, Quirk::SensorOffUntilStreaming),
    // vi/channel.c: tegra_channel_ioctl_ops has no vidioc_s_parm; tegracam_ctrls.c: TEGRA_CAMERA_CID_FRAME_RATE.
    (TEGRA, Quirk::RateByControl),
    // vi/vi5_fops.c: vi5_capture_dequeue hands on sof_timestamp; vi/channel.c: timestamp_flags of the queue.
    (TEGRA, Quirk::StampsOfSystemCounter),
    // drivers/media/usb/uvc in Linux: uvc_driver.c, uvc_param_set_clock; uvc_queue.c, timestamp_flags of the queue.
    ("uvcvideo", Quirk::StampsOfEitherClock),
];

/// Whether a driver departs so.
pub fn has(driver: &str, quirk: Quirk) -> bool {
    TABLE.contains(&(driver, quirk))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_without_a_row_follows_v4l2() {
        assert!(has("tegra-video", Quirk::RateByControl) && !has("uvcvideo", Quirk::RateByControl));
        for &(_, quirk) in TABLE {
            assert!(!["vivid", "tegra", ""].iter().any(|driver| has(driver, quirk)));
        }
    }
}
