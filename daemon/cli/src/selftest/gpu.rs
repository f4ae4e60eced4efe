//! The GPU by CUDA: what it is, what its driver's compiler takes, and each kind of memory that frames may lie in.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use visiond_kernels::auto_memory::AutoMemory;
use visiond_kernels::buffer::{Memory, MemoryKind, RegisteredPages, UnifiedBuffer};
use visiond_kernels::color::ColorDescription;
use visiond_kernels::cuda::{
    CudaError, CudaStream, Device, DeviceAddress, DeviceBuffer, DeviceError, Event, is_jetson,
};
use visiond_kernels::frame::{BayerDepth, BayerOrder, FrameLayout, PixelFormat};
use visiond_kernels::letterbox::Fit;
use visiond_kernels::preprocess::cuda::CudaPreprocessor;
use visiond_kernels::preprocess::{PreprocessSpec, Preprocessor, TensorLayout};
use visiond_kernels::tensor::{DType, TensorMut};
use visiond_system::child_process::die_with_parent;

use super::checks::{Row, Section};
use super::progress::TestProgress;

/// A check that cannot go on, in words.
type Failed = Box<dyn std::error::Error>;

const WIDTH: u32 = 1920;
const HEIGHT: u32 = 1080;
/// Side of the tensor.
const SIDE: u32 = 640;
const FORMATS: [(&str, PixelFormat); 3] = [
    ("yuyv", PixelFormat::Yuyv),
    ("nv12", PixelFormat::Nv12),
    ("bayer 10 bit", PixelFormat::Bayer(BayerOrder::Rggb, BayerDepth::Bits10)),
];
/// Runs of the preprocess that count.
const RUNS: usize = 30;
/// Runs before those, for tables and clocks.
const WARM_RUNS: usize = 5;
/// Rounds of coherence.
const ROUNDS: u32 = 10_000;
/// Longer than this they do not take: what was made by then counts.
const ROUNDS_TIME: Duration = Duration::from_secs(10);

/// The GPU's facts and the time of its compiler.
pub fn cuda(section: &mut Section, tell: &mut TestProgress) -> Result<(), Failed> {
    let device = match Device::open(0) {
        Ok(device) => device,
        Err(error) => {
            unopened(section, "GPU", &error);
            return Ok(());
        }
    };
    let facts = device.facts();
    section.verdict("GPU", "it opens", facts.label(), true);
    section
        .info(
            "memory",
            format!(
                "{:.1} GiB, {}",
                facts.memory_bytes as f64 / 1_073_741_824.0,
                if facts.integrated { "shared with the CPU" } else { "its own" }
            ),
        )
        .figure("memory_bytes", facts.memory_bytes as f64);
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
    let text: Vec<_> = attributes.iter().map(|(name, value)| format!("{name} {value}")).collect();
    let row = section.info("attributes", text.join(", "));
    for (name, value) in attributes {
        row.figure(name, f64::from(value));
    }
    let free = device.memory_free_bytes()?;
    let plausible = free > 0 && free <= facts.memory_bytes;
    section
        .verdict(
            "free memory",
            "more than none, at most all",
            format!("{:.1} GiB", free as f64 / 1_073_741_824.0),
            plausible,
        )
        .figure("free_bytes", free as f64);
    let again = Device::open(0)?;
    let same = Arc::ptr_eq(&device, &again);
    section.verdict(
        "opened twice",
        "the same context",
        if same { "the same context" } else { "another context" },
        same,
    );
    tell.say("compiling kernels with an empty cache, and again");
    compile(section)
}

/// A GPU that cannot be opened: skipped where there is none, failed where there is one. Every Jetson has one.
fn unopened(section: &mut Section, check: &str, error: &DeviceError) {
    let no_node = !["/dev/nvmap", "/dev/nvidia0", "/dev/nvidiactl"].iter().any(|node| Path::new(node).exists());
    let is_missing =
        no_node && !is_jetson(Path::new("/")) && matches!(error, DeviceError::NoDriver { .. } | DeviceError::NoDevice);
    match is_missing {
        true => section.skip(check, error),
        false => section.fail(check, "the GPU opens", error),
    };
}

/// How long it takes from an open GPU to kernels that can run, in processes of their own, because CUDA's driver looks for its
/// cache when it starts.
fn compile(section: &mut Section) -> Result<(), Failed> {
    let folder = std::env::temp_dir().join(format!("visiond-selftest-{}", std::process::id()));
    std::fs::create_dir(&folder)?;
    let measured = [measure(&folder), measure(&folder)];
    let kept = std::fs::read_dir(&folder).is_ok_and(|mut entries| entries.next().is_some());
    std::fs::remove_dir_all(&folder)?;
    let [cold, warm] = measured;
    let (cold, warm) = (cold?, warm?);
    section
        .verdict(
            "kernels",
            "compiled, and kept in CUDA's cache",
            format!(
                "{cold:.0} ms with an empty cache, {warm:.0} ms after that{}",
                if kept { "" } else { "; the cache stayed empty" }
            ),
            kept,
        )
        .figure("cold_ms", cold)
        .figure("warm_ms", warm);
    // The folder that the daemon would use as this user.
    match std::env::var_os("CUDA_CACHE_PATH") {
        Some(cache) => {
            let probe = Path::new(&cache).join(format!("visiond-selftest-{}", std::process::id()));
            let written = std::fs::create_dir_all(&cache)
                .and_then(|()| std::fs::write(&probe, ""))
                .and_then(|()| std::fs::remove_file(&probe));
            let seen = written.as_ref().map_or_else(
                |error| format!("{}: {error}", Path::new(&cache).display()),
                |()| Path::new(&cache).display().to_string(),
            );
            section.verdict("kernel cache", "this user may write there", seen, written.is_ok());
        }
        None => {
            section.skip("kernel cache", "this user has no cache folder: set HOME or XDG_CACHE_HOME");
        }
    }
    Ok(())
}

fn measure(cache: &Path) -> Result<f64, Failed> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["selftest", "--compile-kernels"]).env("CUDA_CACHE_PATH", cache).env_remove("CUDA_CACHE_DISABLE");
    die_with_parent(&mut command);
    let output = command.stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    said.trim().parse().map_err(|_| {
        let complaint = String::from_utf8_lossy(&output.stderr);
        format!(
            "the process that compiles ended with {}: {}",
            output.status,
            complaint.lines().last().unwrap_or_default()
        )
        .into()
    })
}

/// Milliseconds from an open GPU to a preprocessor.
pub fn compile_here() -> Result<f64, Failed> {
    let device = Device::open(0)?;
    let began = Instant::now();
    CudaPreprocessor::new(&spec(), &device, 1)?;
    Ok(began.elapsed().as_secs_f64() * 1e3)
}

/// Where a frame lies when the GPU reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FrameMemory {
    Mapped,
    Managed,
    Registered,
    Copied,
}

impl FrameMemory {
    const ALL: [Self; 4] = [Self::Mapped, Self::Managed, Self::Registered, Self::Copied];

    fn name(self) -> &'static str {
        match self {
            Self::Mapped => "mapped",
            Self::Managed => "managed",
            Self::Registered => "registered",
            Self::Copied => "device copy",
        }
    }
}

/// A frame's memory, and what the GPU needs to see it.
struct Block {
    /// Undone before the memory is freed, by the order of the fields.
    registered: Option<RegisteredPages>,
    buffer: UnifiedBuffer,
    copy: Option<DeviceBuffer>,
}

impl Block {
    fn new(device: &Arc<Device>, memory: FrameMemory, bytes: usize) -> Result<Self, Failed> {
        let kind = match memory {
            FrameMemory::Mapped => MemoryKind::Mapped,
            FrameMemory::Managed => MemoryKind::Managed,
            FrameMemory::Registered | FrameMemory::Copied => MemoryKind::Host,
        };
        let buffer = Memory::on(device, kind)?.allocate(bytes)?;
        let registered = match memory {
            // SAFETY: the pages are the buffer's, which is dropped after the registration; `finish` waits for all that reads them.
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

/// A network's usual input.
fn spec() -> PreprocessSpec {
    PreprocessSpec::yolo(SIDE, SIDE, DType::F16)
}

/// Bytes in, the same bytes out: what the GPU read is what the tensor holds.
fn identity(width: u32, height: u32) -> PreprocessSpec {
    PreprocessSpec {
        width,
        height,
        fit: Fit::Stretch,
        pad: 0.0,
        layout: TensorLayout::Nhwc,
        dtype: DType::U8,
        scale: 1.0,
        ..spec()
    }
}

/// The memory matrix, and the coherence of each kind.
pub fn memory(section: &mut Section, tell: &mut TestProgress) -> Result<(), Failed> {
    let device = match Device::open(0) {
        Ok(device) => device,
        Err(error) => {
            unopened(section, "memory matrix", &error);
            return Ok(());
        }
    };
    let auto = AutoMemory::of(&device);
    let why = auto.why().map_or(String::new(), |why| format!(" ({why})"));
    section.info("memory that `auto` takes", format!("{}{why}", auto.kind()));
    for memory in FrameMemory::ALL {
        let facts = device.facts();
        let missing = match memory {
            FrameMemory::Mapped if !facts.can_map_host_memory => Some("the GPU maps no host memory"),
            FrameMemory::Managed if !facts.managed_memory => Some("the GPU has no managed memory"),
            FrameMemory::Registered if !facts.host_register_supported => Some("the GPU registers no memory of others"),
            _ => None,
        };
        if let Some(missing) = missing {
            section.skip(memory.name(), missing);
            continue;
        }
        for (name, format) in FORMATS {
            tell.say(&format!("preprocess of {name} in {} memory", memory.name()));
            let check = format!("{}, {name} 1080p", memory.name());
            if let Err(error) = preprocess(&device, memory, format, &check, section) {
                section.fail(check, "the CPU's tensor", error);
            }
        }
        let check = format!("{}, coherence", memory.name());
        let wanted = format!("{ROUNDS} rounds without a stale byte");
        match coherence(&device, memory, tell) {
            Ok(Coherence { rounds, stale, first }) => {
                let seen = match &first {
                    None => format!("{rounds} rounds, none stale"),
                    Some(first) => format!("{rounds} rounds, {stale} stale; first {first}"),
                };
                section
                    .verdict(check, wanted, seen, stale == 0)
                    .figure("rounds", rounds.into())
                    .figure("stale", stale.into());
            }
            Err(error) => {
                section.fail(check, wanted, error);
            }
        }
    }
    for (name, pages) in [("pages of the process", Pages::Process), ("pages of a shared mapping", Pages::Shared)] {
        let check = format!("registered {name}");
        if !device.facts().host_register_supported {
            section.skip(check, "the GPU registers no memory of others");
            continue;
        }
        match registered(&device, pages) {
            Ok(right) => {
                section.verdict(check, "read in place", if right { "read in place" } else { "other bytes" }, right)
            }
            Err(error) => section.fail(check, "read in place", error),
        };
    }
    Ok(())
}

/// One cell of the matrix: the tensor, the GPU's time, and the CPU's way to read the memory.
fn preprocess(
    device: &Arc<Device>,
    memory: FrameMemory,
    format: PixelFormat,
    check: &str,
    section: &mut Section,
) -> Result<(), Failed> {
    let layout = FrameLayout::packed(format, WIDTH, HEIGHT, ColorDescription::default())?;
    let frame = picture(&layout);
    let expected = on_the_cpu(&layout, &frame)?;
    let stream = CudaStream::new(device)?;
    let mut block = Block::new(device, memory, frame.len())?;
    let mut preprocessor = CudaPreprocessor::new(&spec(), device, 1)?;
    let tensor = DeviceBuffer::new(device, expected.len())?;
    let mut seen = vec![0; expected.len()];
    let mut times_us = Vec::new();
    for _ in 0..WARM_RUNS + RUNS {
        // As a camera does: every frame is written anew, which is what the GPU's caches have to notice.
        block.buffer.as_mut_slice().copy_from_slice(&frame);
        let address = block.address()?;
        preprocessor.prepare(&[layout.view_at(block.buffer.as_slice(), Some(address))?])?;
        let (begin, end) = (Event::new(device)?, Event::new(device)?);
        finish(&stream, || {
            // SAFETY: the host touches the bytes again only behind `finish`, which has waited for the stream.
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
    let times_us = sorted(times_us.split_off(WARM_RUNS));
    let (median, least) = (times_us[times_us.len() / 2], times_us[0]);
    let differing = seen.iter().zip(&expected).filter(|(a, b)| a != b).count();
    let gb_per_s = read_gb_per_s(block.buffer.as_slice());
    let read =
        if memory == FrameMemory::Copied { String::new() } else { format!("; the CPU reads {gb_per_s:.2} GB/s") };
    let wrong =
        if differing == 0 { String::new() } else { format!("{differing} of {} bytes differ; ", expected.len()) };
    let row: &mut Row = section.verdict(
        check,
        "the CPU's tensor",
        format!("{wrong}{median:.0} us, at best {least:.0}{read}"),
        differing == 0,
    );
    row.figure("median_us", median).figure("least_us", least).figure("differing_bytes", differing as f64);
    if memory != FrameMemory::Copied {
        row.figure("cpu_read_gb_per_s", gb_per_s);
    }
    Ok(())
}

/// Queues work on the stream by `queue`, and waits for all that was queued, also when `queue` failed half-way: what the work
/// uses may be dropped when this returns.
fn finish<T>(stream: &CudaStream, queue: impl FnOnce() -> Result<T, Failed>) -> Result<T, Failed> {
    let queued = queue();
    stream.synchronize()?;
    queued
}

/// Queues the copy of a frame that the GPU reads in its own memory.
///
/// # Safety
/// Both blocks stay as they are until the stream was waited for.
unsafe fn copy(block: &Block, stream: &CudaStream) -> Result<(), CudaError> {
    match &block.copy {
        // SAFETY: they are of one length; the rest is the caller's promise.
        Some(copy) => unsafe { stream.copy_to_device(block.buffer.as_slice(), copy.address()) },
        None => Ok(()),
    }
}

/// Slopes with noise on them; samples of a mosaic stay within their bits.
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

/// The tensor by the CPU reference.
fn on_the_cpu(layout: &FrameLayout, frame: &[u8]) -> Result<Vec<u8>, Failed> {
    let spec = spec();
    let shape = spec.shape();
    let mut bytes = vec![0; shape.iter().product::<usize>() * spec.dtype.size_bytes()];
    let dtype = spec.dtype;
    Preprocessor::new(spec)?.run(&layout.view(frame)?, &mut TensorMut::new(dtype, &shape, &mut bytes)?)?;
    Ok(bytes)
}

/// The best of five, each over the whole block.
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

/// What came of the rounds.
struct Coherence {
    rounds: u32,
    stale: u32,
    first: Option<String>,
}

/// The frame of a round: small, so that it could stay in every cache.
const ROUND_WIDTH: u32 = 64;
const ROUND_HEIGHT: u32 = 48;

/// The CPU writes a pattern that is another one in every round, the GPU reads it by the preprocess and writes it into a block of
/// the same kind, and what the CPU reads there must be it: a cache that keeps old bytes on either side shows.
fn coherence(device: &Arc<Device>, memory: FrameMemory, tell: &mut TestProgress) -> Result<Coherence, Failed> {
    let layout = FrameLayout::packed(PixelFormat::Rgb, ROUND_WIDTH, ROUND_HEIGHT, ColorDescription::default())?;
    let stream = CudaStream::new(device)?;
    let mut block = Block::new(device, memory, layout.size_bytes())?;
    let mut out = Block::new(device, memory, layout.size_bytes())?;
    let mut preprocessor = CudaPreprocessor::new(&identity(ROUND_WIDTH, ROUND_HEIGHT), device, 1)?;
    let address = block.address()?;
    preprocessor.prepare(&[layout.view_at(block.buffer.as_slice(), Some(address))?])?;
    let began = Instant::now();
    let mut result = Coherence { rounds: 0, stale: 0, first: None };
    for round in 1..=ROUNDS {
        pattern(round, block.buffer.as_mut_slice());
        finish(&stream, || {
            // SAFETY: the host touches the bytes again only behind `finish`, which has waited for the stream.
            unsafe { block.buffer.attach(&stream) }?;
            // SAFETY: as above.
            unsafe { out.buffer.attach(&stream) }?;
            let queued = queue_round(&block, &mut out, &mut preprocessor, &stream);
            block.buffer.detach(&stream)?;
            out.buffer.detach(&stream)?;
            queued
        })?;
        result.rounds = round;
        let (seen, written) = (out.buffer.as_slice(), block.buffer.as_slice());
        if let Some(at) = seen.iter().zip(written).position(|(seen, written)| seen != written) {
            result.stale += 1;
            let (seen, written) = (seen[at], written[at]);
            result.first.get_or_insert_with(|| {
                format!("in round {round}, byte {at}: read {seen:#04x}, written {written:#04x}")
            });
        }
        if round % 100 == 0 {
            tell.say(&format!("coherence of {} memory: {round} of {ROUNDS} rounds", memory.name()));
            if began.elapsed() > ROUNDS_TIME {
                break;
            }
        }
    }
    Ok(result)
}

/// Queues what the GPU does in a round: `block` through the preprocess, which has it prepared, into `out`. Called within
/// [`finish`], which waits before either is touched or dropped.
fn queue_round(
    block: &Block,
    out: &mut Block,
    preprocessor: &mut CudaPreprocessor,
    stream: &CudaStream,
) -> Result<(), Failed> {
    let tensor = out.address()?;
    // SAFETY: the block stays as it is until `finish` has waited.
    unsafe { copy(block, stream) }?;
    // SAFETY: `out` is as long as the tensor of the one frame that was prepared; `finish` waits before any of it is dropped.
    unsafe { preprocessor.enqueue(tensor, 1, stream) }?;
    if let Some(copied) = &out.copy {
        // SAFETY: both are of one length, and neither is read or dropped before `finish` has waited.
        unsafe { stream.copy_to_host(copied.address(), out.buffer.as_mut_slice()) }?;
    }
    Ok(())
}

/// Bytes that differ from those of every neighbouring round, at every place.
fn pattern(round: u32, bytes: &mut [u8]) {
    for (index, word) in bytes.chunks_mut(4).enumerate() {
        let value = (round ^ ((index as u32) << 16)).wrapping_mul(0x9e37_79b9);
        word.copy_from_slice(&(value ^ (value >> 15)).to_le_bytes()[..word.len()]);
    }
}

/// Whose pages are registered.
#[derive(Clone, Copy)]
enum Pages {
    Process,
    /// As a capture driver's are.
    Shared,
}

/// Whether the GPU reads what the CPU wrote into pages after they were registered.
fn registered(device: &Arc<Device>, pages: Pages) -> Result<bool, Failed> {
    const BYTES: usize = 64 * 1024;
    match pages {
        Pages::Process => reads(device, UnifiedBuffer::host(BYTES)?.as_mut_slice()),
        Pages::Shared => {
            let mut mapping = Mapping::new(BYTES)?;
            reads(device, mapping.as_mut_slice())
        }
    }
}

fn reads(device: &Arc<Device>, bytes: &mut [u8]) -> Result<bool, Failed> {
    let stream = CudaStream::new(device)?;
    let start = NonNull::new(bytes.as_mut_ptr()).ok_or("no memory")?;
    // SAFETY: the slice is borrowed, and so mapped, longer than the registration lives; `finish` waits for the copies.
    let pages = unsafe { RegisteredPages::new(device, start, bytes.len()) }?;
    pattern(1, bytes);
    let there = DeviceBuffer::new(device, bytes.len())?;
    let mut seen = vec![0; bytes.len()];
    finish(&stream, || {
        // SAFETY: both ranges are of that length, and are dropped behind `finish`, which has waited for the stream.
        unsafe { stream.copy_on_device(pages.device_address(), there.address(), bytes.len()) }?;
        // SAFETY: as above; the host reads `seen` behind `finish`.
        Ok(unsafe { stream.copy_to_host(there.address(), &mut seen) }?)
    })?;
    Ok(seen == bytes)
}

/// A mapping of a file in memory that other processes could share.
struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

impl Mapping {
    fn new(length: usize) -> io::Result<Self> {
        // SAFETY: the name is a C string; the call makes a descriptor.
        let descriptor = unsafe { libc::memfd_create(c"visiond-selftest".as_ptr(), libc::MFD_CLOEXEC) };
        // SAFETY: the descriptor is ours; a bad one is an error.
        if descriptor < 0 || unsafe { libc::ftruncate(descriptor, length as libc::off_t) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping of a file of that length, at the kernel's choice of address; the result is checked.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), length, access, libc::MAP_SHARED, descriptor, 0) };
        // SAFETY: ours, and not needed once mapped.
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

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `new` mapped; no slice of it is left.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

/// Keeps a GPU busy with the preprocess until `until`; returns how often it ran.
pub fn load(until: Instant) -> Result<u64, String> {
    load_gpu(until).map_err(|error| error.to_string())
}

fn load_gpu(until: Instant) -> Result<u64, Failed> {
    let device = Device::open(0)?;
    let layout = FrameLayout::packed(PixelFormat::Nv12, WIDTH, HEIGHT, ColorDescription::default())?;
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
                // SAFETY: the tensor has room for the one frame that was prepared; both are dropped behind `finish`.
                unsafe { preprocessor.enqueue(tensor.address(), 1, &stream) }?;
            }
            Ok(())
        })?;
        runs += 100;
    }
    Ok(runs)
}

/// Keeps one core of the CPU busy with the preprocess until `until`; returns how often it ran.
pub fn load_core(until: Instant) -> Result<u64, String> {
    let work = || -> Result<u64, Failed> {
        let layout = FrameLayout::packed(PixelFormat::Nv12, WIDTH, HEIGHT, ColorDescription::default())?;
        let frame = picture(&layout);
        let mut runs = 0;
        while Instant::now() < until {
            std::hint::black_box(on_the_cpu(&layout, &frame)?);
            runs += 1;
        }
        Ok(runs)
    };
    work().map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn what_the_rounds_write_comes_out_of_the_preprocess_byte_for_byte() {
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
}
