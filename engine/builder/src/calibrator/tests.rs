//! The calibrator as TensorRT calls it: through its virtual method table, slot by slot.

#![allow(clippy::unwrap_used)]

use super::*;

struct Three {
    left: usize,
    fails: bool,
}

impl Batches for Three {
    fn size(&self) -> i32 {
        4
    }

    fn next(&mut self, inputs: &[String]) -> Result<Option<Vec<*mut c_void>>, CalibrationError> {
        if self.fails && self.left == 1 {
            return Err(CalibrationError::Picture("a picture is broken".to_owned()));
        }
        self.left = match self.left.checked_sub(1) {
            Some(left) => left,
            None => return Ok(None),
        };
        Ok(Some(inputs.iter().map(|_| 0xdead_0000_usize as *mut c_void).collect()))
    }
}

/// The object as TensorRT knows it: a pointer to the table, and the place of `getBatchSize` in it.
struct Caller {
    this: *mut c_void,
    first: usize,
}

impl Caller {
    fn new(calibrator: &Calibrator, layout: Layout) -> Self {
        Self { this: calibrator.as_ptr(), first: if layout == Layout::V8 { 0 } else { 4 } }
    }

    fn entry<F: Copy>(&self, slot: usize) -> F {
        // SAFETY: the object begins with its table, which has the slot; `F` is the type of a function pointer.
        unsafe {
            let table = *self.this.cast::<*const *const c_void>();
            std::mem::transmute_copy(&*table.add(slot))
        }
    }

    fn batch_size(&self) -> i32 {
        let call: unsafe extern "C" fn(*mut c_void) -> i32 = self.entry(self.first);
        // SAFETY: the signature is that in NvInfer.h.
        unsafe { call(self.this) }
    }

    fn batch(&self) -> Option<*mut c_void> {
        type Call = unsafe extern "C" fn(*mut c_void, *mut *mut c_void, *const *const c_char, i32) -> bool;
        let call: Call = self.entry(self.first + 1);
        let (mut binding, names) = (std::ptr::null_mut(), [c"images".as_ptr()]);
        // SAFETY: as NvInfer.h has it, with room for one binding and one name.
        unsafe { call(self.this, &mut binding, names.as_ptr(), 1) }.then_some(binding)
    }

    fn read_cache(&self) -> Vec<u8> {
        let call: unsafe extern "C" fn(*mut c_void, *mut usize) -> *const c_void = self.entry(self.first + 2);
        let mut length = usize::MAX;
        // SAFETY: as NvInfer.h has it; the bytes live until the next call.
        unsafe {
            let start = call(self.this, &mut length);
            if start.is_null() { Vec::new() } else { std::slice::from_raw_parts(start.cast(), length).to_vec() }
        }
    }

    fn write_cache(&self, bytes: &[u8]) {
        let call: unsafe extern "C" fn(*mut c_void, *const c_void, usize) = self.entry(self.first + 3);
        // SAFETY: the signature is that in NvInfer.h.
        unsafe { call(self.this, bytes.as_ptr().cast(), bytes.len()) }
    }

    fn algorithm(&self) -> i32 {
        let call: unsafe extern "C" fn(*mut c_void) -> i32 = self.entry(self.first + 4);
        // SAFETY: the signature is that in NvInfer.h.
        unsafe { call(self.this) }
    }

    fn quantile(&self) -> f64 {
        // After the destructors in TensorRT 8.
        let slot = if self.first == 0 { 7 } else { 9 };
        let call: unsafe extern "C" fn(*const c_void) -> f64 = self.entry(slot);
        // SAFETY: the signature is that in NvInfer.h.
        unsafe { call(self.this) }
    }

    fn kind(&self) -> String {
        let call: unsafe extern "C" fn(*const c_void) -> InterfaceInfo = self.entry(1);
        // SAFETY: as NvInferRuntimeBase.h has it, for TensorRT 10.
        unsafe { text(call(self.this).kind) }
    }
}

#[test]
fn batches_are_returned_until_there_are_none_in_both_layouts() {
    for layout in [Layout::V8, Layout::V10] {
        for (algorithm, number) in [(Algorithm::Entropy, 2), (Algorithm::MinMax, 3), (Algorithm::Percentile(99.5), 0)] {
            let batches = Box::new(Three { left: 3, fails: false });
            let calibrator = Calibrator::new(layout, algorithm, batches, None);
            let caller = Caller::new(&calibrator, layout);
            assert_eq!((caller.batch_size(), caller.algorithm()), (4, number));
            assert!((0..3).all(|_| caller.batch() == Some(0xdead_0000_usize as *mut c_void)));
            assert_eq!(caller.batch(), None);
            assert!(caller.read_cache().is_empty() && calibrator.take_failure().is_none());
            if number == 0 {
                assert_eq!(caller.quantile(), 0.995);
            }
        }
    }
}

#[test]
fn the_versioned_interface_says_its_kind() {
    for (algorithm, kind) in [
        (Algorithm::Entropy, "IInt8EntropyCalibrator2"),
        (Algorithm::MinMax, "IInt8MinMaxCalibrator"),
        (Algorithm::Percentile(99.9), "IInt8Calibrator"),
    ] {
        let calibrator = Calibrator::new(Layout::V10, algorithm, Box::new(Three { left: 0, fails: false }), None);
        assert_eq!(Caller::new(&calibrator, Layout::V10).kind(), kind);
    }
}

#[test]
fn ranges_are_stored_and_read_the_next_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep/net.cache");
    let calibrator =
        |left| Calibrator::new(Layout::V10, Algorithm::Entropy, Box::new(Three { left, fails: false }), Some(&path));
    let first = calibrator(3);
    let caller = Caller::new(&first, Layout::V10);
    assert!(caller.read_cache().is_empty());
    caller.write_cache(b"TRT-100300-EntropyCalibration2\nimages: 3c010a14\n");
    let second = calibrator(0);
    assert!(Caller::new(&second, Layout::V10).read_cache().starts_with(b"TRT-100300"));
}

#[test]
fn a_broken_picture_ends_the_calibration_and_keeps_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("net.cache");
    let batches = Box::new(Three { left: 2, fails: true });
    let calibrator = Calibrator::new(Layout::V8, Algorithm::MinMax, batches, Some(&path));
    let caller = Caller::new(&calibrator, Layout::V8);
    assert!(caller.batch().is_some());
    assert_eq!(caller.batch(), None);
    caller.write_cache(b"half of it");
    assert_eq!(calibrator.take_failure().unwrap().to_string(), "a picture is broken");
    assert!(!path.exists());
}
