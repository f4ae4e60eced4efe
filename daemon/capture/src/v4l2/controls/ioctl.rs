//! The ioctls for controls, each as a safe function.
//!
//! <https://docs.kernel.org/userspace-api/media/v4l/vidioc-queryctrl.html>

use std::ffi::CString;
use std::{io, mem};

use v4l::v4l_sys as sys;
use v4l::v4l2::vidioc;

use super::control::{Control, ControlKind, MenuItem, Value, spelled};
use crate::v4l2::device::{self, Node};

/// The most items of a menu that are queried.
const MAX_ITEMS: i64 = 1024;

/// The most numbers of an array that are read. NVIDIA's largest has 36 for each of at most 30 modes.
const MAX_NUMBERS: u32 = 4096;

/// Lists every control, in the driver's order.
pub fn list(node: &Node) -> io::Result<Vec<Control>> {
    let mut controls: Vec<Control> = Vec::new();
    let mut last = 0;
    loop {
        let after = last | sys::V4L2_CTRL_FLAG_NEXT_CTRL | sys::V4L2_CTRL_FLAG_NEXT_COMPOUND;
        let raw = match query(node, after) {
            // The end of the list, or a node without controls.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOTTY)) => return Ok(controls),
            result => result?,
        };
        if raw.id <= last {
            // A faulty driver may never end its list.
            return Ok(controls);
        }
        last = raw.id;
        controls.extend(control(node, &raw));
    }
}

/// Whether an automatic mode, or another one, overrides the control now.
pub fn is_inactive(node: &Node, control: &Control) -> bool {
    query(node, control.id).is_ok_and(|raw| raw.flags & sys::V4L2_CTRL_FLAG_INACTIVE != 0)
}

fn query(node: &Node, id: u32) -> io::Result<sys::v4l2_query_ext_ctrl> {
    let fill = |raw: &mut sys::v4l2_query_ext_ctrl| raw.id = id;
    // SAFETY: QUERY_EXT_CTRL reads and writes a v4l2_query_ext_ctrl, integers and arrays of them.
    unsafe { node.query(vidioc::VIDIOC_QUERY_EXT_CTRL, fill) }
}

/// Converts the driver's description; `None` for a heading and for a disabled control.
fn control(node: &Node, raw: &sys::v4l2_query_ext_ctrl) -> Option<Control> {
    let kind = kind(raw)?;
    let has = |flag: u32| raw.flags & flag != 0;
    if has(sys::V4L2_CTRL_FLAG_DISABLED) {
        return None;
    }
    // C treats these bytes as signed on one machine and unsigned on another.
    let title = device::text(&raw.name.map(|byte| byte as u8));
    let mut control = Control {
        id: raw.id,
        name: spelled(&title),
        title,
        kind,
        minimum: raw.minimum,
        maximum: raw.maximum,
        step: raw.step,
        default: raw.default_value,
        items: Vec::new(),
        value: None,
        read_only: has(sys::V4L2_CTRL_FLAG_READ_ONLY),
        write_only: has(sys::V4L2_CTRL_FLAG_WRITE_ONLY),
        inactive: has(sys::V4L2_CTRL_FLAG_INACTIVE),
        changes_others: has(sys::V4L2_CTRL_FLAG_UPDATE),
        volatile: has(sys::V4L2_CTRL_FLAG_VOLATILE),
    };
    if kind == ControlKind::Bitmask {
        // A 32-bit mask.
        control.maximum &= 0xffff_ffff;
        control.default &= 0xffff_ffff;
    }
    if matches!(kind, ControlKind::Menu | ControlKind::IntegerMenu) {
        let indices = control.minimum..=control.maximum.min(control.minimum.saturating_add(MAX_ITEMS));
        control.items = indices.filter_map(|index| item(node, raw.id, index, kind)).collect();
    }
    if !control.write_only {
        control.value = get(node, &control).ok();
    }
    Some(control)
}

fn kind(raw: &sys::v4l2_query_ext_ctrl) -> Option<ControlKind> {
    if raw.nr_of_dims > 0 || raw.elems > 1 || raw.type_ >= sys::v4l2_ctrl_type_V4L2_CTRL_COMPOUND_TYPES {
        return Some(ControlKind::Compound);
    }
    match raw.type_ {
        sys::v4l2_ctrl_type_V4L2_CTRL_TYPE_INTEGER => Some(ControlKind::Integer),
        sys::v4l2_ctrl_type_V4L2_CTRL_TYPE_BOOLEAN => Some(ControlKind::Boolean),
        sys::v4l2_ctrl_type_V4L2_CTRL_TYPE_MENU => Some(ControlKind::Menu),
        sys::v4l2_ctrl_type_V4L2_CTRL_TYPE_INTEGER_MENU => Some(ControlKind::IntegerMenu),
        sys::v4l2_ctrl_type_V4L2_CTRL_TYPE_BUTTON => Some(ControlKind::Button),
        sys::v4l2_ctrl_type_V4L2_CTRL_TYPE_INTEGER64 => Some(ControlKind::Integer64),
        sys::v4l2_ctrl_type_V4L2_CTRL_TYPE_STRING => Some(ControlKind::String),
        sys::v4l2_ctrl_type_V4L2_CTRL_TYPE_BITMASK => Some(ControlKind::Bitmask),
        // V4L2_CTRL_TYPE_CTRL_CLASS, a heading.
        _ => None,
    }
}

/// Queries an item of a menu; `None` if the menu has a gap there.
fn item(node: &Node, id: u32, index: i64, kind: ControlKind) -> Option<MenuItem> {
    let number = u32::try_from(index).ok()?;
    let fill = |raw: &mut sys::v4l2_querymenu| (raw.id, raw.index) = (id, number);
    // SAFETY: QUERYMENU reads and writes a v4l2_querymenu: integers, and a union of bytes and an integer.
    let raw = unsafe { node.query(vidioc::VIDIOC_QUERYMENU, fill) }.ok()?;
    let text = if kind == ControlKind::IntegerMenu {
        // SAFETY: any bits are a valid integer; for an integer menu, the driver wrote it.
        unsafe { raw.__bindgen_anon_1.value }.to_string()
    } else {
        // SAFETY: any bits are valid bytes; for a menu, the driver wrote a name.
        device::text(unsafe { &raw.__bindgen_anon_1.name })
    };
    Some(MenuItem { index, text })
}

/// Reads a control's value.
pub fn get(node: &Node, control: &Control) -> io::Result<Value> {
    // SAFETY: the struct holds integers and a union of integers and pointers; zeros are valid for all of them.
    let mut raw: sys::v4l2_ext_control = unsafe { mem::zeroed() };
    raw.id = control.id;
    match control.kind {
        ControlKind::Button | ControlKind::Compound => Err(io::ErrorKind::Unsupported.into()),
        ControlKind::String => {
            let mut text = vec![0_u8; text_bytes(control)];
            // The number of bytes of a control's text; `text_bytes` checks that it fits.
            raw.size = text.len() as u32;
            raw.__bindgen_anon_1.string = text.as_mut_ptr().cast();
            // SAFETY: `string` points at `size` bytes that may be written and live through the call.
            unsafe { call(node, vidioc::VIDIOC_G_EXT_CTRLS, &mut raw)? };
            Ok(Value::Text(device::text(&text)))
        }
        kind => {
            // SAFETY: the value of a control of this kind is in the struct, and `size` is 0.
            unsafe { call(node, vidioc::VIDIOC_G_EXT_CTRLS, &mut raw)? };
            let value = raw.__bindgen_anon_1;
            Ok(Value::Number(match kind {
                // SAFETY: any bits are a valid integer; for this kind the driver wrote 64 bits, for the others 32.
                ControlKind::Integer64 => unsafe { value.value64 },
                // SAFETY: as above.
                ControlKind::Bitmask => i64::from(unsafe { value.value } as u32),
                // SAFETY: as above.
                _ => i64::from(unsafe { value.value }),
            }))
        }
    }
}

/// Reads a compound control that is an array of unsigned 32-bit numbers.
pub fn numbers(node: &Node, control: &Control) -> io::Result<Vec<u32>> {
    let described = query(node, control.id)?;
    let count = described.elems.min(MAX_NUMBERS) as usize;
    if described.type_ != sys::v4l2_ctrl_type_V4L2_CTRL_TYPE_U32 || described.elem_size != 4 {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let mut numbers = vec![0_u32; count];
    // SAFETY: the struct holds integers and a union of integers and pointers; zeros are valid for all of them.
    let mut raw: sys::v4l2_ext_control = unsafe { mem::zeroed() };
    raw.id = control.id;
    // At most four times MAX_NUMBERS.
    raw.size = (numbers.len() * 4) as u32;
    raw.__bindgen_anon_1.p_u32 = numbers.as_mut_ptr();
    // SAFETY: `p_u32` points at `size` bytes that may be written and live through the call.
    unsafe { call(node, vidioc::VIDIOC_G_EXT_CTRLS, &mut raw)? };
    Ok(numbers)
}

/// Sets a control. [`resolve`](super::resolve::resolve) has checked `value` for it.
pub fn set(node: &Node, control: &Control, value: &Value) -> io::Result<()> {
    // SAFETY: the struct holds integers and a union of integers and pointers; zeros are valid for all of them.
    let mut raw: sys::v4l2_ext_control = unsafe { mem::zeroed() };
    raw.id = control.id;
    match value {
        Value::Text(text) => {
            let text = CString::new(text.as_str())?;
            let bytes = text.as_bytes_with_nul();
            raw.size = u32::try_from(bytes.len()).map_err(io::Error::other)?;
            raw.__bindgen_anon_1.string = bytes.as_ptr().cast_mut().cast();
            // SAFETY: `string` points at `size` bytes that live through the call; S_EXT_CTRLS only reads them.
            unsafe { call(node, vidioc::VIDIOC_S_EXT_CTRLS, &mut raw) }
        }
        Value::Number(number) => {
            if control.kind == ControlKind::Integer64 {
                raw.__bindgen_anon_1.value64 = *number;
            } else {
                // Numbers of other kinds have 32 bits, a mask unsigned ones: their range was checked.
                raw.__bindgen_anon_1.value = *number as i32;
            }
            // SAFETY: the value of a control of this kind is in the struct, and `size` is 0.
            unsafe { call(node, vidioc::VIDIOC_S_EXT_CTRLS, &mut raw) }
        }
    }
}

/// Returns the size of a control's text with its zero byte; at most 4 KiB if a driver claims absurdly long text.
fn text_bytes(control: &Control) -> usize {
    usize::try_from(control.maximum).ok().filter(|&length| length < 65_536).unwrap_or(4095) + 1
}

/// Gets or sets one control.
///
/// # Safety
///
/// `request` must be G_EXT_CTRLS or S_EXT_CTRLS; where the control has a payload, `control` must point at `size` bytes of it
/// that live through the call and, for G_EXT_CTRLS, may be written.
unsafe fn call(node: &Node, request: vidioc::_IOC_TYPE, control: &mut sys::v4l2_ext_control) -> io::Result<()> {
    // SAFETY: the struct holds integers, a union of integers, and a pointer; zeros are valid for all of them.
    let mut all: sys::v4l2_ext_controls = unsafe { mem::zeroed() };
    all.__bindgen_anon_1.which = sys::V4L2_CTRL_WHICH_CUR_VAL;
    all.count = 1;
    all.controls = control;
    // SAFETY: both requests read and write a v4l2_ext_controls; its pointer is valid for `count` controls, and the caller
    // guarantees the control's own pointer.
    unsafe { node.ioctl(request, &mut all) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::v4l2::device::fake_camera::{FakeCamera, FakeControl};

    const INTEGER: u32 = sys::v4l2_ctrl_type_V4L2_CTRL_TYPE_INTEGER;

    fn node(controls: &[FakeControl]) -> Node {
        FakeCamera { controls: controls.to_vec(), ..FakeCamera::default() }.node()
    }

    fn brightness() -> FakeControl {
        let range = (-64, 64);
        FakeControl {
            id: 0x0098_0900,
            title: "Brightness",
            kind: INTEGER,
            range,
            step: 2,
            value: -10,
            ..FakeControl::default()
        }
    }

    /// A control of every kind, not in the order of their numbers.
    fn every_kind() -> Vec<FakeControl> {
        let of = |id, title, kind| FakeControl { id, title, kind, range: (0, 9), step: 1, ..FakeControl::default() };
        vec![
            FakeControl {
                items: vec![(1, "Manual Mode"), (3, "Aperture Priority Mode"), (12, "beyond the range")],
                value: 3,
                flags: sys::V4L2_CTRL_FLAG_UPDATE,
                ..of(0x009a_0901, "Exposure, Auto", sys::v4l2_ctrl_type_V4L2_CTRL_TYPE_MENU)
            },
            brightness(),
            // A heading.
            of(0x0098_0001, "User Controls", sys::v4l2_ctrl_type_V4L2_CTRL_TYPE_CTRL_CLASS),
            FakeControl {
                value: 1,
                ..of(0x0098_090c, "White Balance, Automatic", sys::v4l2_ctrl_type_V4L2_CTRL_TYPE_BOOLEAN)
            },
            FakeControl { flags: sys::V4L2_CTRL_FLAG_DISABLED, ..of(0x0098_090d, "Gone", INTEGER) },
            FakeControl {
                flags: sys::V4L2_CTRL_FLAG_WRITE_ONLY,
                ..of(0x0098_090e, "Do White Balance", sys::v4l2_ctrl_type_V4L2_CTRL_TYPE_BUTTON)
            },
            FakeControl {
                range: (0, -1),
                default: -2,
                value: -1,
                ..of(0x0098_090f, "LEDs", sys::v4l2_ctrl_type_V4L2_CTRL_TYPE_BITMASK)
            },
            FakeControl {
                items: vec![(0, "42"), (1, "-7")],
                ..of(0x009f_0901, "Link Frequency", sys::v4l2_ctrl_type_V4L2_CTRL_TYPE_INTEGER_MENU)
            },
            FakeControl {
                value: 1 << 40,
                range: (0, 1 << 50),
                flags: sys::V4L2_CTRL_FLAG_READ_ONLY | sys::V4L2_CTRL_FLAG_VOLATILE,
                ..of(0x009a_2000, "Gain", sys::v4l2_ctrl_type_V4L2_CTRL_TYPE_INTEGER64)
            },
            FakeControl {
                text: "NDR 2".to_owned(),
                flags: sys::V4L2_CTRL_FLAG_INACTIVE,
                ..of(0x009b_0901, "RDS", sys::v4l2_ctrl_type_V4L2_CTRL_TYPE_STRING)
            },
            FakeControl { array: vec![7, 8, 9], ..of(0x009a_2001, "Matrix", sys::v4l2_ctrl_type_V4L2_CTRL_TYPE_U32) },
        ]
    }

    #[test]
    fn every_control_is_listed_as_the_driver_describes_it() {
        let node = node(&every_kind());
        let found = list(&node).unwrap();
        let shown: Vec<_> = found.iter().map(|one| (one.name.as_str(), one.kind, one.value.clone())).collect();
        let number = |number| Some(Value::Number(number));
        assert_eq!(
            shown,
            [
                ("brightness", ControlKind::Integer, number(-10)),
                ("white_balance_automatic", ControlKind::Boolean, number(1)),
                ("do_white_balance", ControlKind::Button, None),
                ("leds", ControlKind::Bitmask, number(0xffff_ffff)),
                ("exposure_auto", ControlKind::Menu, number(3)),
                ("gain", ControlKind::Integer64, number(1 << 40)),
                ("matrix", ControlKind::Compound, None),
                ("rds", ControlKind::String, Some(Value::Text("NDR 2".to_owned()))),
                ("link_frequency", ControlKind::IntegerMenu, number(0)),
            ]
        );
        let named = |name: &str| found.iter().find(|control| control.name == name).unwrap();
        let one = named("brightness");
        assert_eq!((one.title.as_str(), one.minimum, one.maximum, one.step), ("Brightness", -64, 64, 2));
        let leds = named("leds");
        assert_eq!((leds.maximum, leds.default), (0xffff_ffff, 0xffff_fffe));
        let items =
            |name: &str| named(name).items.iter().map(|item| (item.index, item.text.clone())).collect::<Vec<_>>();
        let item = |index, text: &str| (index, text.to_owned());
        assert_eq!(items("exposure_auto"), [item(1, "Manual Mode"), item(3, "Aperture Priority Mode")]);
        assert_eq!(items("link_frequency"), [item(0, "42"), item(1, "-7")]);
        assert!(items("brightness").is_empty());
        // Each flag, with the controls that have it.
        let with = |flag: fn(&Control) -> bool| {
            found.iter().filter(|control| flag(control)).map(|control| control.name.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(with(|one| one.read_only), ["gain"]);
        assert_eq!(with(|one| one.volatile), ["gain"]);
        assert_eq!(with(|one| one.write_only), ["do_white_balance"]);
        assert_eq!(with(|one| one.inactive), ["rds"]);
        assert_eq!(with(|one| one.changes_others), ["exposure_auto"]);
        assert!(is_inactive(&node, named("rds")) && !is_inactive(&node, named("gain")));
        assert!(list(&FakeCamera::default().node()).unwrap().is_empty());
    }

    #[test]
    fn what_is_set_is_what_is_read_back() {
        let node = node(&every_kind());
        let found = list(&node).unwrap();
        for (name, value) in [
            ("brightness", Value::Number(-64)),
            ("leds", Value::Number(0x8000_0001)),
            ("gain", Value::Number(3 << 41)),
            ("rds", Value::Text("SWR3".to_owned())),
            ("rds", Value::Text(String::new())),
            ("rds", Value::Text("123456789".to_owned())),
        ] {
            let control = found.iter().find(|control| control.name == name).unwrap();
            set(&node, control, &value).unwrap();
            assert_eq!(get(&node, control).unwrap(), value, "{name}");
        }
        let matrix = found.iter().find(|control| control.name == "matrix").unwrap();
        assert_eq!(numbers(&node, matrix).unwrap(), [7, 8, 9]);
        assert_eq!(get(&node, matrix).unwrap_err().kind(), io::ErrorKind::Unsupported);
        let gain = found.iter().find(|control| control.name == "gain").unwrap();
        assert_eq!(numbers(&node, gain).unwrap_err().kind(), io::ErrorKind::Unsupported);
        let gone = Control { id: 1, ..gain.clone() };
        assert_eq!(set(&node, &gone, &Value::Number(1)).unwrap_err().raw_os_error(), Some(libc::EINVAL));
        assert!(
            set(&node, found.iter().find(|control| control.name == "rds").unwrap(), &Value::Text("\0".into())).is_err()
        );
    }

    #[test]
    fn absurd_texts_and_arrays_are_bounded() {
        let text = |maximum| {
            let kind = sys::v4l2_ctrl_type_V4L2_CTRL_TYPE_STRING;
            let absurd = FakeControl { id: 5, title: "t", kind, range: (0, maximum), ..FakeControl::default() };
            text_bytes(&list(&node(&[absurd])).unwrap()[0])
        };
        assert_eq!([0, 8, 65_535, 65_536, i64::MAX, -1].map(text), [1, 9, 65_536, 4096, 4096, 4096]);
        let kind = sys::v4l2_ctrl_type_V4L2_CTRL_TYPE_U32;
        let large = FakeControl { id: 5, title: "a", kind, array: vec![1; 5000], ..FakeControl::default() };
        let node = node(&[large]);
        assert_eq!(numbers(&node, &list(&node).unwrap()[0]).unwrap().len(), MAX_NUMBERS as usize);
    }
}
