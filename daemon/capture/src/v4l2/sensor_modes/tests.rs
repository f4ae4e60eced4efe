//! Tables of sensors out of their drivers: drivers/media/i2c of linux-nv-oot, l4t-r36.4.

#![allow(clippy::unwrap_used)]

use visiond_config::types::CameraFormat;
use visiond_kernels::frame::{BayerDepth, BayerOrder, PixelFormat};

use super::*;
use crate::v4l2::device::fake_camera::{FakeCamera, FakeControl, FakeFormat};

type Table = &'static [(u32, u32, f64)];

/// imx219_mode_tbls.h.
const IMX219: Table =
    &[(3280, 2464, 21.0), (3280, 1848, 28.0), (1920, 1080, 30.0), (1640, 1232, 30.0), (1280, 720, 60.0)];
/// imx477_mode_tbls.h.
const IMX477: Table = &[(3840, 2160, 30.0), (1920, 1080, 60.0)];
/// ov5693_mode_tbls.h, with ENABLE_EXTRA_MODES.
const OV5693: Table = &[
    (2592, 1944, 30.0),
    (2592, 1458, 30.0),
    (1280, 720, 120.0),
    (640, 480, 30.0),
    (1920, 1080, 30.0),
    (2592, 1944, 24.0),
    (1920, 1080, 30.0),
    (2592, 1944, 15.0),
];
/// imx185_mode_tbls.h: 12 and 10 bits, 30 and 60 frames per second, and HDR.
const IMX185: Table =
    &[(1920, 1080, 30.0), (1920, 1080, 30.0), (1920, 1080, 60.0), (1920, 1080, 60.0), (1920, 1080, 30.0)];
const IMX185_CODES: [&FourCc; 5] = [b"RG12", b"RG10", b"RG12", b"RG10", b"RG12"];
/// imx274_mode_tbls.h; the last two are exposed twice, one frame above the other.
const IMX274: Table = &[(3840, 2160, 60.0), (1920, 1080, 60.0), (3856, 4448, 30.0), (1936, 2264, 60.0)];

fn modes(table: Table) -> Vec<SensorMode> {
    let mode = |&(width, height, fps)| SensorMode { width, height, fps: Some(fps), fourcc: None };
    table.iter().map(mode).collect()
}

/// A configuration of width, height and rate; 0: left out.
fn wanted(width: u32, height: u32, fps: f64) -> V4l2Config {
    let given = |side: u32| (side > 0).then_some(side);
    let fps = (fps > 0.0).then_some(fps);
    V4l2Config { width: given(width), height: given(height), fps, ..V4l2Config::default() }
}

/// The mode for a configuration, where mode `stored` is set and has the current size.
fn chosen(table: Table, stored: usize, config: &V4l2Config) -> Option<usize> {
    let modes = modes(table);
    let current = (modes[stored].width, modes[stored].height);
    choose(&modes, Some(stored), Some(current), config)
}

#[test]
fn size_and_rate_choose_the_mode_by_its_place_in_the_drivers_list() {
    for stored in 0..IMX219.len() {
        assert_eq!(chosen(IMX219, stored, &wanted(1920, 1080, 30.0)), Some(2));
        assert_eq!(chosen(IMX219, stored, &wanted(1280, 720, 60.0)), Some(4));
    }
    for (index, &(width, height, fps)) in IMX219.iter().enumerate() {
        assert_eq!(chosen(IMX219, 0, &wanted(width, height, 0.0)), Some(index));
        assert_eq!(chosen(IMX219, 0, &wanted(width, height, fps)), Some(index));
        assert_eq!(chosen(IMX219, 0, &wanted(width, height, fps / 2.0)), Some(index));
    }
    assert_eq!(chosen(IMX477, 0, &wanted(1920, 1080, 60.0)), Some(1));
    assert_eq!(chosen(IMX477, 1, &wanted(3840, 2160, 30.0)), Some(0));
    assert_eq!(chosen(OV5693, 5, &wanted(1280, 720, 120.0)), Some(2));
    assert_eq!(chosen(OV5693, 2, &wanted(2592, 1944, 30.0)), Some(0));
    assert_eq!(chosen(IMX274, 2, &wanted(1920, 1080, 60.0)), Some(1));
    assert_eq!(chosen(IMX185, 0, &wanted(1920, 1080, 60.0)), Some(2));
    assert_eq!(chosen(IMX185, 4, &wanted(1920, 1080, 30.0)), Some(0));
}

#[test]
fn a_rate_that_no_mode_of_the_size_has_takes_the_fastest() {
    assert_eq!(chosen(IMX219, 0, &wanted(1920, 1080, 60.0)), Some(2));
    assert_eq!(chosen(IMX185, 0, &wanted(1920, 1080, 120.0)), Some(2));
    // Drivers round: 29.97 is 30.
    assert_eq!(chosen(IMX185, 0, &wanted(1920, 1080, 30.1)), Some(0));
}

#[test]
fn a_size_that_the_sensor_lacks_chooses_nothing() {
    assert_eq!(chosen(IMX219, 2, &wanted(640, 480, 0.0)), None);
    assert_eq!(chosen(IMX219, 2, &wanted(1920, 720, 0.0)), None);
    assert_eq!(choose(&[], Some(0), None, &wanted(1920, 1080, 30.0)), None);
}

#[test]
fn one_side_alone_takes_the_largest_mode_that_has_it() {
    assert_eq!(chosen(IMX219, 4, &wanted(3280, 0, 0.0)), Some(0));
    assert_eq!(chosen(IMX219, 4, &wanted(3280, 0, 28.0)), Some(1));
    assert_eq!(chosen(IMX219, 4, &wanted(0, 1232, 0.0)), Some(3));
}

#[test]
fn without_a_size_the_current_one_stays_if_it_is_fast_enough() {
    assert_eq!(chosen(IMX219, 2, &wanted(0, 0, 0.0)), Some(2));
    assert_eq!(chosen(IMX219, 2, &wanted(0, 0, 30.0)), Some(2));
    assert_eq!(chosen(IMX219, 0, &wanted(0, 0, 30.0)), Some(2), "the largest with that rate");
    assert_eq!(chosen(IMX219, 0, &wanted(0, 0, 60.0)), Some(4));
    assert_eq!(chosen(IMX219, 1, &wanted(0, 0, 90.0)), Some(1), "none has it");
    // The mode that is stored may be another one than the size that is set: the size is what a driver without
    // `use_sensor_mode_id` follows.
    let modes = modes(IMX219);
    assert_eq!(choose(&modes, Some(0), Some((1280, 720)), &wanted(0, 0, 0.0)), Some(4));
    assert_eq!(chosen(IMX185, 3, &wanted(0, 0, 30.0)), Some(3), "of equal ones the stored");
    // A bridge lists one size, and has that of its signal.
    assert_eq!(choose(&modes[2..3], Some(0), Some((1280, 720)), &wanted(0, 0, 0.0)), None);
}

#[test]
fn of_modes_of_one_size_the_one_with_the_format_counts() {
    let mut modes = modes(IMX185);
    modes.iter_mut().zip(IMX185_CODES).for_each(|(mode, code)| mode.fourcc = Some(*code));
    let choose = |depth, fps| {
        let format = Some(fourcc::format_of(depth).unwrap());
        choose(&modes, Some(0), None, &V4l2Config { format, ..wanted(1920, 1080, fps) })
    };
    assert_eq!(fourcc::word(fourcc::format_of(*b"RG10").unwrap()), "rggb10");
    assert_eq!([choose(*b"RG12", 30.0), choose(*b"RG10", 30.0)], [Some(0), Some(1)]);
    assert_eq!([choose(*b"RG12", 60.0), choose(*b"RG10", 60.0)], [Some(2), Some(3)]);
    let grey = CameraFormat::Raw(PixelFormat::Bayer(BayerOrder::Bggr, BayerDepth::Bits10));
    let config = V4l2Config { format: Some(grey), ..wanted(1920, 1080, 0.0) };
    assert_eq!(super::choose(&modes, Some(0), None, &config), None);
}

#[test]
fn properties_are_read_row_by_row_whatever_their_length() {
    // Lists have the rate of the first mode of a size only.
    let mut modes: Vec<_> = IMX185.iter().map(|_| modes(IMX185)[0]).collect();
    let (image_row, control_row) = (16, 36);
    let (mut image, mut control) = (vec![0; 5 * image_row], vec![0; 5 * control_row]);
    for (index, (&(width, height, fps), code)) in IMX185.iter().zip(IMX185_CODES).enumerate() {
        image[index * image_row..][..4].copy_from_slice(&[width, height, 2200, u32::from_le_bytes(*code)]);
        control[index * control_row + 1] = 1_000_000;
        control[index * control_row + 8] = (fps * 1e6) as u32;
    }
    add_properties(&mut modes, 5, &image, &control);
    assert_eq!(modes.iter().map(|mode| mode.fps.unwrap()).collect::<Vec<_>>(), [30.0, 30.0, 60.0, 60.0, 30.0]);
    assert_eq!(modes.iter().map(|mode| mode.fourcc.unwrap()).collect::<Vec<_>>(), IMX185_CODES.map(|code| *code));
    assert_eq!(choose(&modes, Some(0), None, &wanted(1920, 1080, 60.0)), Some(2));
    // A driver without them, or with rows of another kind, gives no modes.
    let plain = super::tests::modes(IMX219);
    for (count, image, control) in [(0, vec![], vec![]), (5, vec![7; 5], vec![9; 10]), (9, vec![1; 5], vec![1; 5])] {
        let mut modes = plain.clone();
        add_properties(&mut modes, count, &image, &control);
        assert_eq!(modes, plain, "{count}");
    }
}

/// A node of NVIDIA's driver with the sizes of a table, and mode `stored` set.
fn sensor(driver: &'static str, table: Table, stored: usize) -> Node {
    let sizes = table.iter().map(|&(width, height, fps)| ((width, height), vec![fps as u32])).collect();
    let number = |id, title, value| FakeControl {
        id,
        title,
        kind: v4l::v4l_sys::v4l2_ctrl_type_V4L2_CTRL_TYPE_INTEGER,
        range: (0, 30),
        step: 1,
        value,
        ..FakeControl::default()
    };
    let controls = vec![number(0x009a_2008, "Sensor Mode", stored as i64), number(0x009a_2064, "Bypass Mode", 1)];
    let current = (0, (table[stored].0, table[stored].1));
    let formats = vec![FakeFormat { fourcc: *b"RG10", sizes }];
    FakeCamera { driver, formats, controls, current, ..FakeCamera::default() }.node()
}

#[test]
fn the_mode_and_its_own_size_are_set_by_control_where_the_driver_wants_that() {
    let number = |config: &V4l2Config, name: &str| match config.controls.get(name) {
        Some(ControlValue::Number(number)) => Some(*number),
        _ => None,
    };
    for (config, mode) in [
        (wanted(1920, 1080, 30.0), Some(2)),
        (wanted(0, 0, 60.0), Some(4)),
        (wanted(0, 0, 0.0), Some(1)),
        (wanted(1920, 0, 0.0), Some(2)),
        // A size that the sensor lacks has no mode: the stored mode stays.
        (wanted(1000, 1000, 0.0), Some(1)),
    ] {
        let found = resolved(&sensor("tegra-video", IMX219, 1), &config);
        assert_eq!((number(&found, "sensor_mode"), number(&found, "bypass_mode")), (mode, Some(0)), "{config:?}");
        let size = mode.map(|mode| (IMX219[mode as usize].0, IMX219[mode as usize].1));
        assert_eq!(found.width.zip(found.height), size, "{config:?}");
        assert_eq!(found.fps, config.fps);
        // Other drivers choose the mode themselves.
        assert_eq!(resolved(&sensor("uvcvideo", IMX219, 1), &config), config);
    }
}

#[test]
fn a_mode_that_is_configured_stays_and_decides_the_size() {
    let with = |name: &str, value| {
        let controls = [(name.to_owned(), value)].into_iter().collect();
        V4l2Config { controls, ..wanted(1920, 1080, 30.0) }
    };
    let node = sensor("tegra-video", IMX219, 1);
    for name in ["sensor_mode", "Sensor Mode"] {
        let found = resolved(&node, &with(name, ControlValue::Number(4)));
        assert_eq!((found.width, found.height), (Some(1280), Some(720)));
        assert_eq!(found.controls.get(name), Some(&ControlValue::Number(4)));
        assert_eq!(found.controls.len(), 2, "and the bypass mode: {:?}", found.controls);
    }
    // No such mode: the format decides, and setting the control says why.
    let found = resolved(&node, &with("sensor_mode", ControlValue::Number(9)));
    assert_eq!((found.width, found.height), (Some(1920), Some(1080)));
    let found = resolved(&node, &with("bypass_mode", ControlValue::Number(1)));
    assert_eq!(found.controls.get("bypass_mode"), Some(&ControlValue::Number(1)), "the user's choice");
}
