//! The GPU through CUDA: its attributes, the time to compile kernels, and each kind of memory for frames.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use visiond_ground::jetson::is_jetson;
use visiond_kernels::auto_memory::AutoMemory;
use visiond_kernels::buffer::{Memory, MemoryKind, RegisteredPages, UnifiedBuffer};
use visiond_kernels::color::ColorDescription;
use visiond_kernels::cuda::{CudaError, CudaStream, Device, DeviceAddress, DeviceBuffer, DeviceError, Event};
use visiond_kernels::frame::{BayerDepth, BayerOrder, FrameLayout, PixelFormat};
use visiond_kernels::placement::Fit;
use visiond_kernels::preprocess::cuda::CudaPreprocessor;
use visiond_kernels::preprocess::{PreprocessSpec, Preprocessor, TensorLayout};
use visiond_kernels::tensor::{DType, TensorMut};
use visiond_system::child_process::{die_with_parent, isolate};

use super::checks::{AreaTest, Failed, Seen, gib};

const WIDTH: u32 = 1920;
const HEIGHT: u32 = 1080;
/// Side of the tensor.
const SIDE: u32 = 640;
const FORMATS: [(&str, PixelFormat); 3] = [
    ("yuyv", PixelFormat::Yuyv),
    ("nv12", PixelFormat::Nv12),
    ("bayer 10 bit", PixelFormat::Bayer(BayerOrder::Rggb, BayerDepth::Bits10)),
];
/// The large piece of memory that is allocated, if at least twice as much is free: the size of the first reports of refused ones.
const LARGE_PIECE: u64 = 1 << 30;
/// The smallest piece that is tried after a large one was refused.
const SMALL_PIECE: u64 = 16 << 20;
/// Measured runs of the preprocess.
const RUNS: usize = 30;
/// Warm-up runs, to fill tables and raise clocks.
const WARM_RUNS: usize = 5;
/// Rounds of the coherence test.
const ROUNDS: u32 = 10_000;
/// Time limit for the rounds: those completed by then count.
const ROUNDS_TIME: Duration = Duration::from_secs(10);

/// Tests the GPU itself and its compiler.
pub fn cuda(test: &mut AreaTest) -> Result<(), Failed> {
    let Some(device) = open(test, "GPU") else { return Ok(()) };
    let facts = device.facts();
    test.verdict("GPU", "it opens", facts.label(), true);
    let whose = if facts.integrated { "shared with the CPU" } else { "its own" };
    test.info("memory", format!("{}, {whose}", gib(facts.memory_bytes)));
    test.figures([("memory_bytes", facts.memory_bytes as f64)]);
    let attributes = [
        ("multiprocessors", facts.multiprocessors),
        ("integrated", facts.integrated.into()),
        ("can_map_host_memory", facts.can_map_host_memory.into()),
        ("managed_memory", facts.managed_memory.into()),
        ("concurrent_managed_access", facts.concurrent_managed_access.into()),
        ("host_register_supported", facts.host_register_supported.into()),
        ("can_use_host_pointer_for_registered_mem", facts.can_use_host_pointer_for_registered_mem.into()),
        ("memory_clock_khz", facts.memory_clock_khz),
        ("memory_bus_bits", facts.memory_bus_bits),
        ("l2_kib", (facts.l2_bytes >> 10) as u32),
    ];
    test.info("attributes", attributes.map(|(name, value)| format!("{name} {value}")).join(", "));
    test.figures(attributes.map(|(name, value)| (name, f64::from(value))));
    let free = device.memory_free_bytes()?;
    let plausible = free > 0 && free <= facts.memory_bytes;
    test.verdict("free memory", "more than none, at most all", gib(free), plausible);
    test.figures([("free_bytes", free as f64)]);
    large_piece(test, free, |bytes| DeviceBuffer::new(&device, bytes));
    let same = Arc::ptr_eq(&device, &Device::open(0)?);
    let seen = if same { "the same context" } else { "another context" };
    test.verdict("opened twice", "the same context", seen, same);
    test.say("compiling kernels with an empty cache, and again");
    compile(test)
}

/// Allocates one large piece of `free` bytes of memory, and where that fails as much in smaller ones.
///
/// Jetson Linux 36.4.7 and later 36 refuse large pieces after a while though the memory is free (see
/// [`refusal_of_free_memory`](visiond_kernels::cuda::refusal_of_free_memory)); the error of `allocate` has the remedy.
fn large_piece<T, E: std::fmt::Display>(test: &mut AreaTest, free: u64, allocate: impl Fn(usize) -> Result<T, E>) {
    let large = (free / 2).min(LARGE_PIECE);
    if large < SMALL_PIECE {
        return test.skip("large piece", format!("only {} are free", gib(free)));
    }
    let expected = format!("{} in one piece, of {} free", gib(large), gib(free));
    let Err(error) = allocate(large as usize) else { return test.verdict("large piece", &expected, "allocated", true) };
    let mut piece = large / 2;
    while piece > SMALL_PIECE && allocate(piece as usize).is_err() {
        piece /= 2;
    }
    let wanted = large / piece;
    let pieces = (0..wanted).map_while(|_| allocate(piece as usize).ok()).collect::<Vec<_>>().len();
    let seen = format!("refused, but {pieces} of {wanted} pieces of {} MiB are allocated: {error}", piece >> 20);
    test.verdict("large piece", &expected, seen, false);
}

/// Opens the GPU. Otherwise `check` is skipped if there is no GPU, and fails if there is one. Every Jetson has one.
fn open(test: &mut AreaTest, check: &str) -> Option<Arc<Device>> {
    let has_node = || ["/dev/nvmap", "/dev/nvidia0", "/dev/nvidiactl"].iter().any(|node| Path::new(node).exists());
    match Device::open(0) {
        Ok(device) => return Some(device),
        Err(error @ (DeviceError::NoDriver { .. } | DeviceError::NoDevice))
            if !has_node() && !is_jetson(Path::new("/")) =>
        {
            test.skip(check, error);
        }
        Err(error) => test.fail(check, "the GPU opens", error),
    }
    None
}

/// Measures the time from an open GPU to runnable kernels, in separate processes, because CUDA's driver reads the path of its
/// cache when it starts.
fn compile(test: &mut AreaTest) -> Result<(), Failed> {
    let folder = std::env::temp_dir().join(format!("visiond-selftest-{}", std::process::id()));
    fs::create_dir(&folder)?;
    let measured = [measure(&folder), measure(&folder)];
    let kept = fs::read_dir(&folder).is_ok_and(|mut entries| entries.next().is_some());
    fs::remove_dir_all(&folder)?;
    let [cold, warm] = measured;
    let (cold, warm) = (cold?, warm?);
    let empty = if kept { "" } else { "; the cache stayed empty" };
    let seen = format!("{cold:.0} ms with an empty cache, {warm:.0} ms after that{empty}");
    test.verdict("kernels", "compiled, and kept in CUDA's cache", seen, kept);
    test.figures([("cold_ms", cold), ("warm_ms", warm)]);
    // The folder that the daemon would use for this user.
    let Some(cache) = std::env::var_os("CUDA_CACHE_PATH") else {
        test.skip("kernel cache", "this user has no cache folder: set HOME or XDG_CACHE_HOME");
        return Ok(());
    };
    let cache = Path::new(&cache);
    let probe = cache.join(format!("visiond-selftest-{}", std::process::id()));
    let written = fs::create_dir_all(cache).and_then(|()| fs::write(&probe, "")).and_then(|()| fs::remove_file(&probe));
    let error = written.as_ref().map_or_else(|error| format!(": {error}"), |()| String::new());
    let seen = format!("{}{error}", cache.display());
    test.verdict("kernel cache", "this user may write there", seen, written.is_ok());
    Ok(())
}

fn measure(cache: &Path) -> Result<f64, Failed> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["selftest", "--compile-kernels"]).env("CUDA_CACHE_PATH", cache).env_remove("CUDA_CACHE_DISABLE");
    isolate(&mut command);
    die_with_parent(&mut command);
    let output = command.stdin(Stdio::null()).output()?;
    String::from_utf8_lossy(&output.stdout).trim().parse().map_err(|_| {
        let errors = String::from_utf8_lossy(&output.stderr);
        let last = errors.lines().last().unwrap_or_default();
        format!("the process that compiles ended with {}: {last}", output.status).into()
    })
}

/// Returns the milliseconds from an open GPU to a preprocessor.
pub fn compile_here() -> Result<f64, Failed> {
    let device = Device::open(0)?;
    let began = Instant::now();
    CudaPreprocessor::new(&spec(), &device, 1)?;
    Ok(began.elapsed().as_secs_f64() * 1e3)
}

/// Memory from which the GPU reads a frame.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FrameMemory {
    Mapped,
    Managed,
    Registered,
    Copied,
}

impl FrameMemory {
    const ALL: [Self; 4] = [Self::Mapped, Self::Managed, Self::Registered, Self::Copied];

    /// Its name in the rows, and the kind of memory that holds the frame.
    fn name_and_kind(self) -> (&'static str, MemoryKind) {
        match self {
            Self::Mapped => ("mapped", MemoryKind::Mapped),
            Self::Managed => ("managed", MemoryKind::Managed),
            Self::Registered => ("registered", MemoryKind::Host),
            Self::Copied => ("device copy", MemoryKind::Host),
        }
    }
}

/// A frame's memory, and its registration or copy for the GPU.
struct Block {
    /// The order of the fields undoes this before the memory is freed.
    registered: Option<RegisteredPages>,
    buffer: UnifiedBuffer,
    copy: Option<DeviceBuffer>,
}

impl Block {
    fn new(device: &Arc<Device>, memory: FrameMemory, bytes: usize) -> Result<Self, Failed> {
        let (_, kind) = memory.name_and_kind();
        let buffer = Memory::on(device, kind)?.allocate(bytes)?;
        let registered = match memory {
            // SAFETY: the pages belong to the buffer, which is dropped after the registration; `finish` waits for everything
            // that reads them.
            FrameMemory::Registered => Some(unsafe { RegisteredPages::new(device, buffer.start(), bytes) }?),
            _ => None,
        };
        let copy = (memory == FrameMemory::Copied).then(|| DeviceBuffer::new(device, bytes)).transpose()?;
        Ok(Self { registered, buffer, copy })
    }

    fn address(&self) -> Result<DeviceAddress, Failed> {
        let copy = self.copy.as_ref().map(DeviceBuffer::address);
        let registered = self.registered.as_ref().map(RegisteredPages::device_address);
        copy.or(registered)
            .or(self.buffer.device_address())
            .ok_or_else(|| "the memory has no address on the GPU".into())
    }
}

/// A model's usual input.
fn spec() -> PreprocessSpec {
    PreprocessSpec::yolo(SIDE, SIDE, DType::F16)
}

/// Copies bytes unchanged, so that the tensor holds what the GPU read.
fn identity(width: u32, height: u32) -> PreprocessSpec {
    PreprocessSpec {
        width,
        height,
        placement: Fit::Stretch.into(),
        pad: 0.0,
        layout: TensorLayout::Nhwc,
        dtype: DType::U8,
        scale: 1.0,
        ..spec()
    }
}

fn layout(format: PixelFormat, width: u32, height: u32) -> Result<FrameLayout, Failed> {
    Ok(FrameLayout::packed(format, width, height, ColorDescription::default())?)
}

/// Tests preprocessing and coherence in each kind of memory.
pub fn memory(test: &mut AreaTest) -> Result<(), Failed> {
    const UNREGISTERED: &str = "the GPU cannot register foreign memory";
    let Some(device) = open(test, "memory matrix") else { return Ok(()) };
    let auto = AutoMemory::of(&device);
    let why = auto.why().map_or(String::new(), |why| format!(" ({why})"));
    test.info("memory that `auto` takes", format!("{}{why}", auto.kind()));
    let facts = device.facts();
    for memory in FrameMemory::ALL {
        let (kind, _) = memory.name_and_kind();
        let missing = match memory {
            FrameMemory::Mapped if !facts.can_map_host_memory => "the GPU cannot map host memory",
            FrameMemory::Managed if !facts.managed_memory => "the GPU has no managed memory",
            FrameMemory::Registered if !facts.host_register_supported => UNREGISTERED,
            _ => "",
        };
        if !missing.is_empty() {
            test.skip(kind, missing);
            continue;
        }
        for (name, format) in FORMATS {
            test.say(&format!("preprocess of {name} in {kind} memory"));
            let result = preprocess(&device, memory, format);
            test.result(format!("{kind}, {name} 1080p"), "the CPU's tensor", result);
        }
        let result = coherence(&device, memory, test);
        test.result(format!("{kind}, coherence"), format!("{ROUNDS} rounds without a stale byte"), result);
    }
    for (name, is_shared) in [("pages of the process", false), ("pages of a shared mapping", true)] {
        let check = format!("registered {name}");
        if !facts.host_register_supported {
            test.skip(check, UNREGISTERED);
            continue;
        }
        test.result(check, "read in place", registered(&device, is_shared));
    }
    Ok(())
}

/// Tests the tensor of one pixel format in one kind of memory, and measures GPU time and the CPU's read speed.
fn preprocess(device: &Arc<Device>, memory: FrameMemory, format: PixelFormat) -> Result<Seen, Failed> {
    let layout = layout(format, WIDTH, HEIGHT)?;
    let frame = picture(&layout);
    let expected = on_the_cpu(&layout, &frame)?;
    let stream = CudaStream::new(device)?;
    let mut block = Block::new(device, memory, frame.len())?;
    let mut preprocessor = CudaPreprocessor::new(&spec(), device, 1)?;
    let tensor = DeviceBuffer::new(device, expected.len())?;
    let mut seen = vec![0; expected.len()];
    let mut times_us = Vec::new();
    for _ in 0..WARM_RUNS + RUNS {
        // Write every frame again, as a camera does: the GPU's caches must notice.
        block.buffer.as_mut_slice().copy_from_slice(&frame);
        let address = block.address()?;
        preprocessor.prepare(&[layout.view_at(block.buffer.as_slice(), Some(address))?])?;
        let (begin, end) = (Event::new(device)?, Event::new(device)?);
        finish(&stream, || {
            // SAFETY: the host touches the bytes again only after `finish`, which has waited for the stream.
            unsafe { block.buffer.attach(&stream) }?;
            let mut queue = || -> Result<(), Failed> {
                begin.record(&stream)?;
                // SAFETY: the block stays as it is until `finish` has waited.
                unsafe { copy(&block, &stream) }?;
                // SAFETY: the tensor has room for the one frame that was prepared; `finish` waits before any of it is dropped.
                unsafe { preprocessor.enqueue(tensor.address(), 1, &stream) }?;
                Ok(end.record(&stream)?)
            };
            let queued = queue();
            block.buffer.detach(&stream)?;
            queued
        })?;
        times_us.push(end.elapsed_us(&begin)?);
    }
    // SAFETY: the tensor is as long as `seen`, and neither is dropped or read before `finish` has waited.
    finish(&stream, || Ok(unsafe { stream.copy_to_host(tensor.address(), &mut seen) }?))?;
    let mut times_us = times_us.split_off(WARM_RUNS);
    times_us.sort_by(f64::total_cmp);
    let (median, least) = (times_us[times_us.len() / 2], times_us[0]);
    let differing = seen.iter().zip(&expected).filter(|(a, b)| a != b).count();
    let wrong =
        if differing == 0 { String::new() } else { format!("{differing} of {} bytes differ; ", expected.len()) };
    let mut text = format!("{wrong}{median:.0} us, at best {least:.0}");
    let mut figures = vec![("median_us", median), ("least_us", least), ("differing_bytes", differing as f64)];
    if memory != FrameMemory::Copied {
        let gb_per_s = read_gb_per_s(block.buffer.as_slice());
        text += &format!("; the CPU reads {gb_per_s:.2} GB/s");
        figures.push(("cpu_read_gb_per_s", gb_per_s));
    }
    Ok((text, differing == 0, figures))
}

/// Queues work on the stream with `queue` and waits for all of it, even if `queue` failed half-way. Everything that the work
/// uses may be dropped once this returns.
fn finish<T>(stream: &CudaStream, queue: impl FnOnce() -> Result<T, Failed>) -> Result<T, Failed> {
    let queued = queue();
    stream.synchronize()?;
    queued
}

/// Queues the copy of a frame into the GPU's own memory.
///
/// # Safety
/// Both blocks stay as they are until the stream was waited for.
unsafe fn copy(block: &Block, stream: &CudaStream) -> Result<(), CudaError> {
    match &block.copy {
        // SAFETY: both have the same length; the caller guarantees the rest.
        Some(copy) => unsafe { stream.copy_to_device(block.buffer.as_slice(), copy.address()) },
        None => Ok(()),
    }
}

/// Returns a frame of gradients with noise; Bayer samples stay within their bit depth.
fn picture(layout: &FrameLayout) -> Vec<u8> {
    let mut state = 7_u32;
    let mut frame = vec![0; layout.size_bytes()];
    for (index, byte) in frame.iter_mut().enumerate() {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *byte = (40 + (index / 64) % 160) as u8 + (state >> 29) as u8;
    }
    if let PixelFormat::Bayer(_, depth) = layout.format()
        && depth.sample_bytes() == 2
    {
        frame.chunks_exact_mut(2).for_each(|sample| sample[1] &= ((1_u32 << (depth.bits() - 8)) - 1) as u8);
    }
    frame
}

/// Returns the CPU's tensor, which is the reference.
fn on_the_cpu(layout: &FrameLayout, frame: &[u8]) -> Result<Vec<u8>, Failed> {
    let spec = spec();
    let shape = spec.shape();
    let mut bytes = vec![0; shape.iter().product::<usize>() * spec.dtype.size_bytes()];
    let dtype = spec.dtype;
    Preprocessor::new(spec)?.run(&layout.view(frame)?, &mut TensorMut::new(dtype, &shape, &mut bytes)?)?;
    Ok(bytes)
}

/// Returns the speed at which the CPU reads the whole block, the best of five runs.
fn read_gb_per_s(bytes: &[u8]) -> f64 {
    let mut least = f64::INFINITY;
    for _ in 0..5 {
        let began = Instant::now();
        let sum = bytes
            .chunks_exact(8)
            .fold(0_u64, |sum, word| sum.wrapping_add(word.try_into().map_or(0, u64::from_ne_bytes)));
        std::hint::black_box(sum);
        least = least.min(began.elapsed().as_secs_f64());
    }
    bytes.len() as f64 / least.max(1e-9) / 1e9
}

/// The frame of a round: small enough to stay in every cache.
const ROUND_WIDTH: u32 = 64;
const ROUND_HEIGHT: u32 = 48;

/// In each round the CPU writes a new pattern, the GPU's preprocess copies it into memory of the same kind, and the CPU must
/// read it back. This reveals a cache that keeps stale bytes on either side.
fn coherence(device: &Arc<Device>, memory: FrameMemory, test: &mut AreaTest) -> Result<Seen, Failed> {
    let layout = layout(PixelFormat::Rgb, ROUND_WIDTH, ROUND_HEIGHT)?;
    let stream = CudaStream::new(device)?;
    let mut block = Block::new(device, memory, layout.size_bytes())?;
    let mut out = Block::new(device, memory, layout.size_bytes())?;
    let mut preprocessor = CudaPreprocessor::new(&identity(ROUND_WIDTH, ROUND_HEIGHT), device, 1)?;
    let address = block.address()?;
    preprocessor.prepare(&[layout.view_at(block.buffer.as_slice(), Some(address))?])?;
    let began = Instant::now();
    let (mut rounds, mut stale, mut first) = (0, 0_u32, None);
    for round in 1..=ROUNDS {
        pattern(round, block.buffer.as_mut_slice());
        finish(&stream, || {
            // SAFETY: the host touches the bytes again only after `finish`, which has waited for the stream.
            unsafe { block.buffer.attach(&stream) }?;
            // SAFETY: as above.
            unsafe { out.buffer.attach(&stream) }?;
            let mut queue = || -> Result<(), Failed> {
                let tensor = out.address()?;
                // SAFETY: the block stays as it is until `finish` has waited.
                unsafe { copy(&block, &stream) }?;
                // SAFETY: `out` is as long as the tensor of the one frame that was prepared; `finish` waits before any of it is
                // dropped.
                unsafe { preprocessor.enqueue(tensor, 1, &stream) }?;
                if let Some(copied) = &out.copy {
                    // SAFETY: both have the same length, and neither is read or dropped before `finish` has waited.
                    unsafe { stream.copy_to_host(copied.address(), out.buffer.as_mut_slice()) }?;
                }
                Ok(())
            };
            let queued = queue();
            block.buffer.detach(&stream)?;
            out.buffer.detach(&stream)?;
            queued
        })?;
        rounds = round;
        let (seen, written) = (out.buffer.as_slice(), block.buffer.as_slice());
        if let Some(at) = seen.iter().zip(written).position(|(seen, written)| seen != written) {
            stale += 1;
            let (seen, written) = (seen[at], written[at]);
            first.get_or_insert_with(|| {
                format!("first in round {round}, byte {at}: read {seen:#04x}, written {written:#04x}")
            });
        }
        if round % 100 == 0 {
            test.say(&format!("coherence of {} memory: {round} of {ROUNDS} rounds", memory.name_and_kind().0));
            if began.elapsed() > ROUNDS_TIME {
                break;
            }
        }
    }
    let seen = first.map_or("none stale".to_owned(), |first| format!("{stale} stale; {first}"));
    Ok((format!("{rounds} rounds, {seen}"), stale == 0, vec![("rounds", rounds.into()), ("stale", stale.into())]))
}

/// Fills `bytes` with a pattern that differs from the neighbouring rounds at every position.
fn pattern(round: u32, bytes: &mut [u8]) {
    for (index, word) in bytes.chunks_mut(4).enumerate() {
        let value = (round ^ ((index as u32) << 16)).wrapping_mul(0x9e37_79b9);
        word.copy_from_slice(&(value ^ (value >> 15)).to_le_bytes()[..word.len()]);
    }
}

/// Tests whether the GPU reads what the CPU wrote into pages after they were registered: pages of this process, or of a shared
/// mapping, like those of a capture driver.
fn registered(device: &Arc<Device>, is_shared: bool) -> Result<Seen, Failed> {
    const BYTES: usize = 64 * 1024;
    // Dropped after the registration, because they are declared before it.
    let mut own = UnifiedBuffer::host(BYTES)?;
    let mut shared = is_shared.then(|| SharedMapping::new(BYTES)).transpose()?;
    let bytes = shared.as_mut().map_or_else(|| own.as_mut_slice(), SharedMapping::as_mut_slice);
    let stream = CudaStream::new(device)?;
    let start = NonNull::new(bytes.as_mut_ptr()).ok_or("no memory")?;
    // SAFETY: the pages stay mapped longer than the registration lives; `finish` waits for the copies.
    let pages = unsafe { RegisteredPages::new(device, start, BYTES) }?;
    pattern(1, bytes);
    let there = DeviceBuffer::new(device, BYTES)?;
    let mut seen = vec![0; BYTES];
    finish(&stream, || {
        // SAFETY: both ranges are of that length, and are dropped after `finish`, which has waited for the stream.
        unsafe { stream.copy_on_device(pages.device_address(), there.address(), BYTES) }?;
        // SAFETY: as above; the host reads `seen` after `finish`.
        Ok(unsafe { stream.copy_to_host(there.address(), &mut seen) }?)
    })?;
    let right = seen == bytes;
    Ok((if right { "read in place" } else { "other bytes" }.to_owned(), right, Vec::new()))
}

/// A mapping of an in-memory file, which other processes could map as well.
struct SharedMapping {
    start: NonNull<u8>,
    length: usize,
}

impl SharedMapping {
    fn new(length: usize) -> io::Result<Self> {
        // SAFETY: the name is a C string; the call creates a descriptor.
        let descriptor = unsafe { libc::memfd_create(c"visiond-selftest".as_ptr(), libc::MFD_CLOEXEC) };
        // SAFETY: this code owns the descriptor; a bad one is an error.
        if descriptor < 0 || unsafe { libc::ftruncate(descriptor, length as libc::off_t) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: creates a new mapping of a file of that length, at an address that the kernel chooses; the result is
        // checked.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), length, access, libc::MAP_SHARED, descriptor, 0) };
        // SAFETY: this code owns the descriptor, and does not need it once the file is mapped.
        unsafe { libc::close(descriptor) };
        match NonNull::new(start.cast::<u8>()) {
            Some(pages) if start != libc::MAP_FAILED => Ok(Self { start: pages, length }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the mapping has that length, is readable, writable and zeroed, and `&mut self` makes this its only use.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `new` mapped; no slice of it is left.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// Keeps a GPU busy with the preprocess until `until`; returns the number of runs.
pub fn load(until: Instant) -> Result<u64, Failed> {
    let device = Device::open(0)?;
    let layout = layout(PixelFormat::Nv12, WIDTH, HEIGHT)?;
    let block = Block::new(&device, FrameMemory::Copied, layout.size_bytes())?;
    let stream = CudaStream::new(&device)?;
    let mut preprocessor = CudaPreprocessor::new(&spec(), &device, 1)?;
    let tensor = DeviceBuffer::new(&device, spec().shape().iter().product::<usize>() * spec().dtype.size_bytes())?;
    let address = block.address()?;
    preprocessor.prepare(&[layout.view_at(block.buffer.as_slice(), Some(address))?])?;
    let mut runs = 0;
    while Instant::now() < until {
        finish(&stream, || {
            for _ in 0..100 {
                // SAFETY: the tensor has room for the one frame that was prepared; both are dropped after `finish`.
                unsafe { preprocessor.enqueue(tensor.address(), 1, &stream) }?;
            }
            Ok(())
        })?;
        runs += 100;
    }
    Ok(runs)
}

/// Keeps one core of the CPU busy with the preprocess until `until`; returns the number of runs.
pub fn load_core(until: Instant) -> Result<u64, Failed> {
    let layout = layout(PixelFormat::Nv12, WIDTH, HEIGHT)?;
    let frame = picture(&layout);
    let mut runs = 0;
    while Instant::now() < until {
        std::hint::black_box(on_the_cpu(&layout, &frame)?);
        runs += 1;
    }
    Ok(runs)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::checks::{Area, Outcome};
    use super::*;

    #[test]
    fn a_kernel_that_refuses_large_pieces_of_free_memory_fails_with_what_it_still_gives() {
        let row = |free: u64, most: usize| {
            let mut test = AreaTest::new(Area::Cuda, true, Instant::now());
            large_piece(&mut test, free, |bytes| if bytes > most { Err("error 12") } else { Ok(()) });
            let row = test.rows.remove(0);
            (row.outcome, row.wanted, row.seen)
        };
        let wanted = "1.0 GiB in one piece, of 5.0 GiB free".to_owned();
        assert_eq!(row(5 << 30, 1 << 30), (Outcome::Pass, wanted.clone(), "allocated".to_owned()));
        let seen = "refused, but 16 of 16 pieces of 64 MiB are allocated: error 12".to_owned();
        assert_eq!(row(5 << 30, 64 << 20), (Outcome::Fail, wanted.clone(), seen));
        let seen = "refused, but 0 of 64 pieces of 16 MiB are allocated: error 12".to_owned();
        assert_eq!(row(5 << 30, 0), (Outcome::Fail, wanted, seen));
        // Half of what is free is left to others.
        assert_eq!(row(1 << 30, 1 << 29).1, "0.5 GiB in one piece, of 1.0 GiB free");
        assert_eq!(row(16 << 20, 0).0, Outcome::Skipped);
    }

    #[test]
    fn the_preprocess_copies_the_rounds_patterns_byte_for_byte() {
        let layout =
            FrameLayout::packed(PixelFormat::Rgb, ROUND_WIDTH, ROUND_HEIGHT, ColorDescription::default()).unwrap();
        let (mut frame, mut out) = (vec![0; layout.size_bytes()], vec![0; layout.size_bytes()]);
        let spec = identity(ROUND_WIDTH, ROUND_HEIGHT);
        let shape = spec.shape();
        let mut preprocessor = Preprocessor::new(spec).unwrap();
        for round in [1, 2, ROUNDS] {
            pattern(round, &mut frame);
            let mut tensor = TensorMut::new(DType::U8, &shape, &mut out).unwrap();
            preprocessor.run(&layout.view(&frame).unwrap(), &mut tensor).unwrap();
            assert!(frame == out, "round {round}");
        }
    }

    #[test]
    fn a_pattern_differs_from_the_last_ones_nearly_everywhere() {
        let (mut old, mut new) = (vec![0; 9216], vec![0; 9216]);
        pattern(41, &mut old);
        pattern(42, &mut new);
        let equal = old.iter().zip(&new).filter(|(a, b)| a == b).count();
        assert!(equal < 9216 / 50, "{equal} bytes would hide a stale read");
    }

    #[test]
    fn a_mosaics_samples_stay_within_their_bits() {
        let format = PixelFormat::Bayer(BayerOrder::Rggb, BayerDepth::Bits10);
        let layout = FrameLayout::packed(format, 64, 4, ColorDescription::default()).unwrap();
        let frame = picture(&layout);
        assert!(frame.chunks_exact(2).all(|sample| u16::from_le_bytes([sample[0], sample[1]]) < 1024));
    }

    #[test]
    fn a_frame_is_a_gradient_with_noise_so_that_no_part_is_like_another() {
        let of = |format| picture(&FrameLayout::packed(format, 256, 128, ColorDescription::default()).unwrap());
        let frame = of(PixelFormat::Yuyv);
        for (block, bytes) in frame.chunks(64).enumerate() {
            let least = 40 + (block % 160) as u8;
            assert!(bytes.iter().all(|byte| (least..=least + 7).contains(byte)), "block {block}");
            assert!(bytes.iter().any(|byte| *byte != bytes[0]), "block {block} has no noise");
        }
        // Samples of 10 bits use all of them.
        let samples = of(PixelFormat::Bayer(BayerOrder::Rggb, BayerDepth::Bits10));
        let used = samples.as_chunks::<2>().0.iter().fold(0, |used, sample| used | u16::from_le_bytes(*sample));
        assert_eq!(used, 0x03ff);
    }

    #[test]
    fn the_reference_tensor_is_of_the_usual_size() {
        let layout = FrameLayout::packed(PixelFormat::Grey, 64, 48, ColorDescription::default()).unwrap();
        let tensor = on_the_cpu(&layout, &picture(&layout)).unwrap();
        assert_eq!(tensor.len(), 3 * 640 * 640 * 2);
        assert!(load_core(Instant::now()).is_ok_and(|runs| runs == 0), "nothing after its time");
    }
}
