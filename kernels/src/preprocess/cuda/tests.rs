//! The kernel, compiled as C++ for the processor, against the CPU reference: every format, fit, order, layout, type and sampling,
//! with random frames, odd sizes and padded pitches. No GPU; what only a GPU can show, `visiond-gpu pixels` shows.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::ffi::CStr;
use std::path::Path;
use std::process::Command;

use libloading::Library;

use super::job::{DESCRIBE_GRID, Frame, Job, Kernel, Planes, TableCopy};
use super::preprocessor::{STAGED_ALIGNMENT, stage, staged_size};
use super::table_cache::{Found, TableCache};
use super::tables;
use crate::buffer::UnifiedBuffer;
use crate::color::{ColorDescription, ColorMatrix, ColorRange, GreyLevels, YuvArithmetic};
use crate::cuda::DeviceAddress;
use crate::frame::{FrameLayout, FrameView, PixelFormat, Plane};
use crate::placement::{Fit, Resize};
use crate::preprocess::axis::PlanKey;
use crate::preprocess::simd::Isa;
use crate::preprocess::{ChannelOrder, PreprocessSpec, Preprocessor, Sampling, TensorLayout};
use crate::tensor::{DType, TensorMut, TensorRef};
use crate::view::{Orientation, View};

/// The kernel as a library of this process. Its memory table is global: one test uses it.
struct HostKernel(Library);

type Run = unsafe extern "C" fn(*const Job, u32, u32, u32, u32, bool);

impl HostKernel {
    fn compile() -> Self {
        let folder = std::env::temp_dir().join(format!("visiond-kernel-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let library = folder.join("preprocess.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("cuda/host/preprocess.cpp");
        // Contracted multiplications would be fused where the kernel's are not.
        let flags =
            ["-std=c++17", "-O2", "-ffp-contract=off", "-shared", "-fPIC", "-Wall", "-Werror", "-Wno-unknown-pragmas"];
        let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
        let output = Command::new(compiler).args(flags).arg("-o").arg(&library).arg(source).output();
        let output = output.expect("a C++ compiler is there: tests/setup installs one");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        // SAFETY: just compiled from our own source; it has no initialisers but those of its global variables.
        let loaded = unsafe { Library::new(&library) }.unwrap();
        std::fs::remove_dir_all(folder).unwrap();
        Self(loaded)
    }

    fn symbol<T: Copy>(&self, name: &CStr) -> T {
        // SAFETY: every caller names the type that host/device.hpp and host/preprocess.cpp give `name`.
        *unsafe { self.0.get::<T>(name.to_bytes_with_nul()) }.unwrap()
    }

    /// Lets the kernel see `bytes`; where `writes` is given it may write them, and each write is counted there.
    fn allow(&self, bytes: &[u8], writes: Option<&mut [u8]>) -> u64 {
        let allow: unsafe extern "C" fn(u64, u64, *mut u8) = self.symbol(c"allow");
        let address = bytes.as_ptr() as u64;
        // SAFETY: only recorded; the test keeps both alive until the kernel has run.
        unsafe { allow(address, bytes.len() as u64, writes.map_or(std::ptr::null_mut(), <[u8]>::as_mut_ptr)) };
        address
    }

    /// Runs the kernel over all that was allowed since the last run, its threads first to last or last to first; returns how
    /// many accesses were out of it.
    fn run(&self, spec: &PreprocessSpec, job: &Job, frames: u32, last_first: bool) -> u64 {
        let kernel = Kernel::of(spec);
        let (threads, blocks) = kernel.grid(spec);
        let run: Run = self.symbol(c"preprocess_on_host");
        // SAFETY: `job` outlives the call; every access of the kernel is checked against what was allowed, which lives.
        unsafe { run(job, kernel as u32, blocks, threads, frames, last_first) };
        self.faults()
    }

    /// Runs the launch that a run begins with: copies descriptions, and tables to their places. Returns the descriptions.
    fn describe(&self, described: &[Frame], copies: &[u8], new_tables: &[u128], placed: &mut [Vec<u128>]) -> Vec<u64> {
        let mut out = vec![u64::MAX; size_of_val(described) / 8];
        let mut writes: Vec<Vec<u8>> = placed.iter().map(|table| vec![0; size_of_val(&table[..])]).collect();
        for (table, writes) in placed.iter().zip(&mut writes) {
            self.allow(bytes_of(table), Some(writes));
        }
        let mut out_writes = vec![0; size_of_val(described)];
        // SAFETY: plain integers and floats without padding, seen as their bytes.
        let (described_bytes, out_bytes) = unsafe { (described.align_to::<u8>().1, out.align_to_mut::<u8>().1) };
        let (from, to) = (self.allow(described_bytes, None), self.allow(out_bytes, Some(&mut out_writes)));
        // As aligned as the mapped memory is.
        let copies: Vec<u64> = copies.as_chunks::<8>().0.iter().map(|&bytes| u64::from_ne_bytes(bytes)).collect();
        // SAFETY: plain integers, seen as their bytes.
        let copies = self.allow(unsafe { copies.align_to::<u8>().1 }, None);
        self.allow(bytes_of(new_tables), None);
        let describe: unsafe extern "C" fn(u64, u64, u64, u32, u32, u32) = self.symbol(c"describe_on_host");
        let (threads, blocks) = DESCRIBE_GRID;
        // SAFETY: every access of the kernel is checked against what was allowed, which lives.
        unsafe { describe(from, to, copies, blocks, threads, described.len() as u32) };
        assert_eq!(self.faults(), 0, "accesses outside of descriptions and tables");
        let mut counts = writes.iter().flatten().chain(&out_writes);
        assert!(counts.all(|&count| count == 1), "descriptions and tables are copied once");
        out
    }

    /// Returns how many accesses of a run were out of what was allowed, and forgets both.
    fn faults(&self) -> u64 {
        let faults: unsafe extern "C" fn() -> u64 = self.symbol(c"fault_count");
        let forget: unsafe extern "C" fn() = self.symbol(c"forget_memory");
        // SAFETY: they read and clear the library's own variables.
        unsafe {
            let count = faults();
            forget();
            count
        }
    }
}

/// Returns plain integers as their bytes.
fn bytes_of(numbers: &[u128]) -> &[u8] {
    // SAFETY: any byte of an integer is one.
    unsafe { numbers.align_to::<u8>().1 }
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % limit
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.below(256) as u8).collect()
    }

    fn color(&mut self) -> ColorDescription {
        ColorDescription {
            matrix: self.one(&[ColorMatrix::Bt601, ColorMatrix::Bt709, ColorMatrix::Bt2020]),
            range: self.one(&[ColorRange::Limited, ColorRange::Full]),
            arithmetic: self.one(&[YuvArithmetic::Nearest, YuvArithmetic::Ffmpeg]),
            // Samples are random words; the third has its black near most of them.
            levels: self.one(&[None, GreyLevels::new(21_000, 43_210), GreyLevels::new(30_000, 30_007)]),
        }
    }
}

/// A frame whose planes stand in blocks of their own, at random offsets, with random pitches.
struct RandomFrame {
    format: PixelFormat,
    size: (u32, u32),
    view: View,
    color: ColorDescription,
    planes: Vec<(Vec<u8>, usize, usize)>,
}

impl RandomFrame {
    fn new(random: &mut Random, format: PixelFormat, size: (u32, u32)) -> Self {
        // Half of them aligned, as drivers make them.
        let step = random.one(&[1, 16]);
        let planes = (0..format.plane_count())
            .map(|plane| {
                let (row, rows) = (format.row_bytes(plane, size.0), format.plane_rows(plane, size.1));
                let (offset, pitch) = (random.below(3) * step, row.next_multiple_of(step) + random.below(3) * step);
                // The last row has no padding.
                (random.bytes(offset + pitch * (rows - 1) + row), offset, pitch)
            })
            .collect();
        // Half of them are seen as they are.
        let plain = random.below(2) == 0;
        let orientation = if plain { Some(Orientation::UPRIGHT) } else { Orientation::all().nth(random.below(8)) };
        let part = |side: u32, random: &mut Random| {
            let from = if plain { 0 } else { random.below(side as usize) as u32 };
            (from, if plain { side } else { 1 + random.below((side - from) as usize) as u32 })
        };
        let ((x, width), (y, height)) = (part(size.0, random), part(size.1, random));
        let view = View::new(size, [x, y, width, height], orientation.unwrap()).unwrap();
        Self { format, size, view, color: random.color(), planes }
    }

    fn view(&self) -> FrameView<'_> {
        let planes: Vec<Plane<'_>> = self
            .planes
            .iter()
            .map(|(bytes, offset, pitch)| Plane { bytes: &bytes[*offset..], pitch_bytes: *pitch, device: None })
            .collect();
        FrameView::new(self.format, self.size.0, self.size.1, &planes, self.color).unwrap().viewed(self.view).unwrap()
    }
}

fn spec(random: &mut Random, fit: Fit, dtype: DType, layout: TensorLayout, sampling: Sampling) -> PreprocessSpec {
    let plain = random.below(2) == 0;
    // Some stored in whole groups, some wide enough for several warps.
    let width = match random.below(8) {
        0 => 16 * (1 + random.below(20)),
        1..4 => 4 * (1 + random.below(12)),
        _ => 1 + random.below(50),
    };
    PreprocessSpec {
        width: width as u32,
        height: 1 + random.below(if width > 50 { 8 } else { 40 }) as u32,
        placement: fit.into(),
        sampling,
        pad: random.below(256) as f32,
        order: random.one(&[ChannelOrder::Rgb, ChannelOrder::Bgr, ChannelOrder::Grey]),
        layout,
        dtype,
        scale: match dtype {
            DType::U8 | DType::I32 => 1.0,
            DType::I8 => 0.5,
            _ if plain => 1.0 / 255.0,
            _ => 1.0,
        },
        mean: if plain { [0.0; 3] } else { [0.485, 11.0, 3.5] },
        std: if plain { [1.0; 3] } else { [0.229, 1.5, 2.0] },
    }
}

/// Sizes with whole scales (one tap), odd and even, whole upscales (taps without weight), slivers.
fn size(random: &mut Random, spec: &PreprocessSpec) -> (u32, u32) {
    let any = |random: &mut Random| 1 + random.below(90) as u32;
    match random.below(6) {
        4 => (spec.width.div_ceil(3), spec.height.div_ceil(3)),
        0 => (spec.width * 3, spec.height * 3),
        1 => (spec.width * random.one(&[1, 2]), any(random)),
        2 => (spec.width * random.one(&[5, 17]), any(random)),
        3 => (any(random), 1 + random.below(3) as u32),
        _ => (any(random), any(random)),
    }
}

fn kernel_tensor(kernel: &HostKernel, spec: &PreprocessSpec, pictures: &[RandomFrame], misaligned: bool) -> Vec<u8> {
    let views: Vec<_> = pictures.iter().map(RandomFrame::view).collect();
    let (mut cache, mut placed) = (TableCache::new(views.len()), Vec::new());
    cache.begin_run();
    let found: Vec<Found> = views.iter().map(|view| cache.find_or_make(spec, PlanKey::of(view))).collect();
    // As aligned as the GPU's memory is.
    let mut new_tables: Vec<u128> = vec![0; cache.new_words().len() / 4];
    for (four, words) in new_tables.iter_mut().zip(cache.new_words().chunks_exact(4)) {
        *four = (0..4).fold(0, |four, i| four | u128::from(words[i]) << (32 * i));
    }
    for Found { words, .. } in found.iter().filter(|found| !found.words.is_empty()) {
        placed.push(vec![0xa5_u128; words.len() / 4]);
    }
    let mut described = Vec::new();
    let mut copies = Vec::new();
    for (view, Found { tables, place, words }) in views.iter().zip(&found) {
        let address = placed[*place].as_ptr() as u64;
        let axes = tables.axes(spec, address);
        let mut planes = Planes::default();
        for (plane, seen) in view.planes().iter().zip(&mut planes) {
            *seen = (DeviceAddress(plane.bytes.as_ptr() as u64), plane.pitch_bytes);
        }
        described.push(Frame::new(spec.sampling, view, &planes, (&tables.mapping, tables.rules, tables.tiles), axes));
        copies.extend(
            TableCopy::new(words, DeviceAddress(new_tables.as_ptr() as u64), DeviceAddress(address)).to_bytes(),
        );
    }
    let described = kernel.describe(&described, &copies, &new_tables, &mut placed);
    for view in &views {
        for (i, plane) in view.planes().iter().enumerate() {
            // Nothing beyond the last row's last pixel.
            let row = view.format().row_bytes(i, view.width());
            let end = plane.pitch_bytes * (view.format().plane_rows(i, view.height()) - 1) + row;
            kernel.allow(&plane.bytes[..end], None);
        }
    }
    for table in &placed {
        kernel.allow(bytes_of(table), None);
    }
    let each = spec.shape().iter().product::<usize>() * spec.dtype.size_bytes();
    let size = each * pictures.len();
    let mut out = vec![0xa5_a5_a5_a5_u128; size / 16 + 2];
    // SAFETY: plain integers, seen as their bytes.
    let out = unsafe { out.align_to_mut::<u8>().1 };
    let out = &mut out[if misaligned { spec.dtype.size_bytes() } else { 0 }..][..size];
    let mut writes = vec![0; size];
    let address = DeviceAddress(kernel.allow(out, Some(&mut writes)));
    let job = Job::new(spec).at(address, DeviceAddress(described.as_ptr() as u64));
    let faults = kernel.run(spec, &job, pictures.len() as u32, spec.height.is_multiple_of(2));
    assert_eq!(faults, 0, "accesses outside of the frame, the tables or the tensor: {spec:?}");
    assert!(writes.iter().all(|&count| count == 1), "every byte is written once: {spec:?}");
    if spec.dtype == DType::I32 {
        writes.fill(0);
        let address = kernel.allow(out, Some(&mut writes));
        let round: unsafe extern "C" fn(u64, u64) = kernel.symbol(c"round_on_host");
        // SAFETY: every access of the kernel is checked against the tensor, which was just allowed.
        unsafe { round(address, size as u64 / 4) };
        assert_eq!(kernel.faults(), 0, "accesses outside of the tensor: {spec:?}");
        assert!(writes.iter().all(|&count| count == 1), "every byte is rounded once: {spec:?}");
    }
    out.to_vec()
}

fn compare(kernel: &HostKernel, spec: &PreprocessSpec, pictures: &[RandomFrame], misaligned: bool, fused: bool) {
    let found = kernel_tensor(kernel, spec, pictures, misaligned);
    let shape = spec.shape();
    let each = shape.iter().product::<usize>() * spec.dtype.size_bytes();
    let mut reference = Preprocessor::new(spec.clone()).unwrap();
    for (picture, found) in pictures.iter().zip(found.chunks_exact(each)) {
        let mut expected = vec![0x5a; each];
        let mut tensor = TensorMut::new(spec.dtype, &shape, &mut expected).unwrap();
        reference.run(&picture.view(), &mut tensor).unwrap();
        // A processor without fused multiply-add rounds once more.
        if fused {
            assert!(found == expected, "{} {:?}: not bit for bit {spec:?}", picture.format, picture.view);
            continue;
        }
        let values = |bytes| TensorRef::new(spec.dtype, &shape, bytes).unwrap().to_f32().into_owned();
        let std = spec.std.iter().fold(f32::INFINITY, |least, &std| least.min(std));
        let full_scale = 255.0 * spec.scale / std;
        let allowed = match spec.dtype {
            DType::F32 => 1e-5 * full_scale,
            DType::F16 => 2e-3 * full_scale,
            _ => 1.0,
        };
        for (found, expected) in values(found).iter().zip(values(&expected)) {
            assert!(
                (found - expected).abs() <= allowed,
                "{} {:?}: {found} {expected} {spec:?}",
                picture.format,
                picture.size
            );
        }
    }
}

#[test]
fn the_kernel_computes_what_the_cpu_reference_does() {
    let kernel = HostKernel::compile();
    let fused = Isa::detect().fuses();
    let mut random = Random(1);
    let fits =
        [Fit::Letterbox, Fit::LetterboxTopLeft, Fit::Stretch, Fit::Crop { fraction: 1.0 }, Fit::Crop { fraction: 0.4 }];
    let mut cases = 0;
    for format in PixelFormat::all() {
        for fit in fits {
            for dtype in [DType::F32, DType::F16, DType::U8, DType::I8, DType::I32] {
                for layout in [TensorLayout::Nchw, TensorLayout::Nhwc] {
                    for sampling in [Sampling::Opencv, Sampling::Exact] {
                        let spec = spec(&mut random, fit, dtype, layout, sampling);
                        let size = size(&mut random, &spec);
                        let picture = RandomFrame::new(&mut random, format, size);
                        compare(&kernel, &spec, &[picture], random.below(4) == 0, fused);
                        cases += 1;
                    }
                }
            }
        }
    }
    // Any number of taps, and padding among them.
    let cut = Fit::ResizeCrop(Resize::Fraction(0.7));
    for format in PixelFormat::all() {
        for (_, sampling) in Sampling::ALL {
            for fit in [Fit::Letterbox, Fit::LetterboxTopLeft, Fit::Stretch, Fit::Crop { fraction: 0.4 }, cut] {
                let dtype = random.one(&[DType::F32, DType::F16, DType::U8, DType::I8, DType::I32]);
                let layout = random.one(&[TensorLayout::Nchw, TensorLayout::Nhwc]);
                let mut spec = spec(&mut random, fit, dtype, layout, sampling);
                spec.placement.pad_first = random.below(2) == 0;
                if sampling.only_warps() || random.below(4) == 0 && sampling.can_warp() {
                    spec.placement.fit = random.one(&[Fit::Warp, Fit::WarpStretch]);
                }
                let size = size(&mut random, &spec);
                let picture = RandomFrame::new(&mut random, format, size);
                compare(&kernel, &spec, &[picture], random.below(4) == 0, fused);
                cases += 1;
            }
        }
    }
    // Whatever comes, in one launch.
    for (_, sampling) in Sampling::ALL {
        let fit = if sampling.only_warps() { Fit::Warp } else { Fit::Letterbox };
        let spec = spec(&mut random, fit, DType::F16, TensorLayout::Nchw, sampling);
        let formats = PixelFormat::all();
        let pictures: Vec<_> = formats.map(|format| (format, size(&mut random, &spec))).collect();
        let pictures: Vec<_> =
            pictures.into_iter().map(|(format, size)| RandomFrame::new(&mut random, format, size)).collect();
        compare(&kernel, &spec, &pictures, false, fused);
    }
    assert_eq!(cases, 34 * 5 * (5 * 2 * 2 + Sampling::ALL.len()));
}

#[test]
fn layouts_of_drivers_are_read_by_words() {
    // 1080p as drivers give it takes the fast ways.
    let described = |format| {
        let layout = FrameLayout::packed(format, 1920, 1080, ColorDescription::default()).unwrap();
        let bytes = vec![0; layout.size_bytes()];
        let view = layout.view(&bytes).unwrap();
        let mut planes = Planes::default();
        for (plane, seen) in layout.planes().iter().zip(&mut planes) {
            *seen = (DeviceAddress(4096 + plane.offset_bytes as u64), plane.pitch_bytes);
        }
        let spec = PreprocessSpec::yolo(640, 640, DType::F32);
        let tables = tables::make(&spec, PlanKey::of(&view), &mut Vec::new());
        Frame::new(Sampling::Opencv, &view, &planes, (&tables.mapping, tables.rules, tables.tiles), Default::default())
            .source
    };
    for format in [PixelFormat::Yuyv, PixelFormat::Uyvy, PixelFormat::Yvyu, PixelFormat::Vyuy, PixelFormat::Rgba] {
        assert_eq!(described(format), 0, "{format}");
    }
    for format in [PixelFormat::Nv12, PixelFormat::Nv21, PixelFormat::Nv16, PixelFormat::Nv61] {
        assert_eq!(described(format), 1, "{format}");
    }
    assert_eq!(described(PixelFormat::I420), 2);
    assert_eq!([described(PixelFormat::Grey), described(PixelFormat::Grey16)], [2, 4]);
}

#[test]
fn a_staged_frame_is_the_same_frame() {
    let mut random = Random(5);
    let mut staging = UnifiedBuffer::host(1 << 16).unwrap();
    let mut used = 0;
    for format in PixelFormat::all() {
        let picture = RandomFrame::new(&mut random, format, (33, 7));
        let view = picture.view();
        let (planes, copied) = stage(&view, &mut staging, &mut used);
        let mut expected = 0;
        for (i, (plane, (address, pitch))) in view.planes().iter().zip(planes).enumerate() {
            let row_bytes = format.row_bytes(i, view.width());
            assert_eq!(address.0 % STAGED_ALIGNMENT as u64, 0);
            for y in 0..format.plane_rows(i, view.height()) {
                // Host memory has no address on a GPU: what is given counts from 0.
                let staged = &staging.as_slice()[address.0 as usize + y * pitch..][..row_bytes];
                assert_eq!(staged, &plane.row(y)[..row_bytes], "{format}");
                expected += row_bytes;
            }
        }
        assert_eq!(copied, expected);
        assert!(staged_size(&view) <= used);
    }
}
