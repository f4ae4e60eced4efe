//! The CUDA layer itself: events, graphs, modules, errors. `visiond selftest` checks every kind of memory.

use std::ffi::c_void;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use visiond_ground::gpu_lost::is_gpu_lost;
use visiond_kernels::buffer::{Memory, MemoryKind, UnifiedBuffer};
use visiond_kernels::cuda::{
    CudaError, CudaStream, Device, DeviceAddress, DeviceBuffer, Event, Function, Module, ModuleError,
};

use crate::measure;
use crate::report::{Failure, Report};
use crate::setup::Setup;

const ROW: &str = "CUDA";

/// Small, because managed memory is slow to move on some machines.
const BYTES: usize = 64 * 1024;

/// The nanoseconds of a slow kernel.
const SLOW_NS: u64 = 100_000_000;

/// `add_one(from, to, n)`: `to[i] = from[i] + 1`. `spin(ns)`: returns after that time. `fault()`: writes to an invalid address.
const PTX: &str = r#"
.version 7.4
.target sm_72
.address_size 64
.visible .entry add_one(.param .u64 from, .param .u64 to, .param .u32 n)
{
    .reg .pred %p;
    .reg .b16 %h;
    .reg .b32 %r<6>;
    .reg .b64 %d<6>;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r1, %r2, %r3;
    ld.param.u32 %r5, [n];
    setp.ge.u32 %p, %r4, %r5;
    @%p bra END;
    ld.param.u64 %d1, [from];
    ld.param.u64 %d2, [to];
    cvt.u64.u32 %d3, %r4;
    add.u64 %d4, %d1, %d3;
    add.u64 %d5, %d2, %d3;
    ld.u8 %h, [%d4];
    add.u16 %h, %h, 1;
    st.u8 [%d5], %h;
END:
    ret;
}
.visible .entry spin(.param .u64 ns)
{
    .reg .pred %p;
    .reg .b64 %d<5>;
    ld.param.u64 %d1, [ns];
    mov.u64 %d2, %globaltimer;
AGAIN:
    mov.u64 %d3, %globaltimer;
    sub.u64 %d4, %d3, %d2;
    setp.lt.u64 %p, %d4, %d1;
    @%p bra AGAIN;
    ret;
}
.visible .entry fault()
{
    .reg .b64 %d<2>;
    mov.u64 %d1, 16;
    st.u8 [%d1], 1;
    ret;
}
"#;

/// The kernels, and the objects to run them.
struct Kit {
    device: Arc<Device>,
    stream: CudaStream,
    add_one: Function,
    spin: Function,
    fault: Function,
}

impl Kit {
    fn new(device: &Arc<Device>) -> Result<Self, Failure> {
        let module = Module::load(device, "checks", PTX)?;
        Ok(Self {
            device: Arc::clone(device),
            stream: CudaStream::new(device)?,
            add_one: module.function("add_one")?,
            spin: module.function("spin")?,
            fault: module.function("fault")?,
        })
    }

    /// Queues `to[i] = from[i] + 1`. Both ranges have `BYTES` bytes and live until the caller has waited for the stream.
    fn add_one(&self, stream: &CudaStream, from: DeviceAddress, to: DeviceAddress) -> Result<(), CudaError> {
        let (mut from, mut to, mut n) = (from.0, to.0, BYTES as u32);
        let mut args = [pointer(&mut from), pointer(&mut to), pointer(&mut n)];
        // SAFETY: the arguments are the kernel's three; every caller here keeps the ranges alive.
        unsafe { self.add_one.launch([n.div_ceil(256), 1, 1], [256, 1, 1], 0, stream, &mut args) }
    }

    fn spin(&self, stream: &CudaStream, mut ns: u64) -> Result<(), CudaError> {
        // SAFETY: the argument is the kernel's one; it touches no memory.
        unsafe { self.spin.launch([1; 3], [1; 3], 0, stream, &mut [pointer(&mut ns)]) }
    }

    /// Returns the content of `from`, through pinned memory.
    fn read(&self, from: DeviceAddress) -> Result<Vec<u8>, Failure> {
        let mut pinned = Memory::on(&self.device, MemoryKind::Mapped)?.allocate(BYTES)?;
        // SAFETY: `from` has that many bytes; both live until the stream was waited for.
        unsafe { self.stream.copy_to_host(from, pinned.as_mut_slice()) }?;
        self.stream.synchronize()?;
        Ok(pinned.as_slice().to_vec())
    }
}

fn pointer<T>(value: &mut T) -> *mut c_void {
    std::ptr::from_mut(value).cast()
}

/// Runs everything; with `fault` only the part that needs its own process.
pub fn run(setup: &Setup, report: &mut Report, fault: bool) -> Result<(), Failure> {
    let device = setup.device()?;
    if fault {
        return lose_the_gpu(&Kit::new(&device)?);
    }
    let kit = Kit::new(&device)?;
    events(&kit, report)?;
    graphs(&kit, report)?;
    across_graphs(&kit, report)?;
    modules(&kit, report)?;
    flat(&kit, report)?;
    lost(report)
}

fn address(buffer: &UnifiedBuffer) -> Result<DeviceAddress, Failure> {
    buffer.device_address().ok_or_else(|| Failure::Broken(format!("{buffer:?} has no device address")))
}

/// A wait sleeps, and returns only when the work is done.
fn events(kit: &Kit, report: &mut Report) -> Result<(), Failure> {
    let (before, after) = (Event::new(&kit.device)?, Event::new(&kit.device)?);
    report.figure(ROW, "an event that was never recorded", "done", before.is_done()?, before.is_done()?);
    before.record(&kit.stream)?;
    kit.spin(&kit.stream, SLOW_NS)?;
    after.record(&kit.stream)?;
    let early = after.is_done()?;
    let (wall, cpu) = (Instant::now(), measure::cpu_time());
    after.wait()?;
    let (wall, cpu) = (wall.elapsed(), measure::cpu_time() - cpu);
    report.figure(ROW, "done while the kernel runs", "false, then true", early, !early && after.is_done()?);
    let share = cpu.as_secs_f64() / wall.as_secs_f64();
    report.figure(ROW, "CPU while waiting for an event", "<= 10 %", format!("{:.1} %", share * 100.0), share <= 0.1);
    let elapsed_us = after.elapsed_us(&before)?;
    let near = (SLOW_NS as f64 / 1e3..SLOW_NS as f64 / 1e3 * 1.2).contains(&elapsed_us);
    report.figure(ROW, "a kernel of 100 ms by events", "100 to 120 ms", format!("{:.2} ms", elapsed_us / 1e3), near);

    kit.spin(&kit.stream, SLOW_NS)?;
    let (wall, cpu) = (Instant::now(), measure::cpu_time());
    kit.stream.synchronize()?;
    let share = (measure::cpu_time() - cpu).as_secs_f64() / wall.elapsed().as_secs_f64();
    report.figure(ROW, "CPU while waiting for a stream", "<= 10 %", format!("{:.1} %", share * 100.0), share <= 0.1);
    Ok(())
}

/// A graph reads its inputs again at each launch and records events for the outside; a recording that fails leaves the stream
/// usable.
fn graphs(kit: &Kit, report: &mut Report) -> Result<(), Failure> {
    let mut input = Memory::on(&kit.device, MemoryKind::Mapped)?.allocate(BYTES)?;
    let from = address(&input)?;
    let there = DeviceBuffer::new(&kit.device, BYTES)?;
    let (read, end) = (Event::new(&kit.device)?, Event::new(&kit.device)?);
    let (mut graph, ()) = kit.stream.capture(|stream| {
        kit.add_one(stream, from, there.address())?;
        read.record_external(stream)?;
        kit.spin(stream, SLOW_NS)
    })?;
    let mut replayed = true;
    let mut order = true;
    let mut waited = Vec::new();
    for seed in 3..6 {
        measure::Noise::new(seed).fill(input.as_mut_slice());
        let written = input.as_slice().to_vec();
        let launched = Instant::now();
        // SAFETY: buffers, functions and the event live until the end of this function, which waits for the stream.
        unsafe { graph.launch(&kit.stream) }?;
        end.record(&kit.stream)?;
        read.wait()?;
        waited.push(launched.elapsed());
        order &= !end.is_done()?;
        // The input has already been read, so it may change before the graph ends.
        input.as_mut_slice().fill(0);
        end.wait()?;
        let seen = kit.read(there.address())?;
        replayed &= written.iter().zip(&seen).all(|(before, after)| before.wrapping_add(1) == *after);
    }
    let longest = waited.iter().max().copied().unwrap_or_default();
    report.figure(ROW, "a graph launched again with new input", "new output", replayed, replayed);
    order &= longest < Duration::from_nanos(SLOW_NS / 2);
    report.figure(
        ROW,
        "an event inside a graph, waited for outside",
        "done before the graph",
        format!("{longest:?}"),
        order,
    );

    let refused = kit.stream.capture(|_| DeviceBuffer::new(&kit.device, BYTES).map(drop)).err();
    let own = kit.stream.capture(|stream| kit.add_one(stream, from, there.address()).and(Err::<(), _>(own_error())));
    kit.add_one(&kit.stream, from, there.address())?;
    let usable = kit.stream.synchronize().is_ok();
    let refuses = matches!(&refused, Some(error) if !is_gpu_lost(error)) && own.err() == Some(own_error());
    let seen = refused.map_or_else(|| "no error".to_owned(), |error| error.to_string());
    report.figure(ROW, "an allocation within a recording", "an error, the stream usable", seen, refuses && usable);
    Ok(())
}

/// A graph on one stream waits for an event inside a graph on another, at every launch.
fn across_graphs(kit: &Kit, report: &mut Report) -> Result<(), Failure> {
    let other = CudaStream::new(&kit.device)?;
    let (middle, end) = (Event::new(&kit.device)?, Event::new(&kit.device)?);
    let there = DeviceBuffer::new(&kit.device, BYTES)?;
    let (mut first, ()) = kit.stream.capture(|stream| {
        kit.spin(stream, SLOW_NS / 4)?;
        middle.record_external(stream)
    })?;
    let (mut second, ()) = other.capture(|stream| {
        stream.wait_external(&middle)?;
        kit.add_one(stream, there.address(), there.address())?;
        end.record_external(stream)
    })?;
    let mut shortest = Duration::MAX;
    for _ in 0..3 {
        let launched = Instant::now();
        // SAFETY: events and buffer live until both streams were waited for, below.
        unsafe { first.launch(&kit.stream) }?;
        // SAFETY: as above.
        unsafe { second.launch(&other) }?;
        end.wait()?;
        shortest = shortest.min(launched.elapsed());
        other.synchronize()?;
        kit.stream.synchronize()?;
    }
    let held = shortest >= Duration::from_nanos(SLOW_NS / 5);
    report.figure(
        ROW,
        "a graph that waits for an event in another",
        ">= 20 ms of its 25",
        format!("{shortest:?}"),
        held,
    );
    Ok(())
}

fn own_error() -> CudaError {
    CudaError { call: "the body", code: 1, name: "its own".to_owned() }
}

fn modules(kit: &Kit, report: &mut Report) -> Result<(), Failure> {
    let bad = PTX.replace("add.u16", "add.nonsense");
    let (text, named) = match Module::load(&kit.device, "broken", &bad) {
        Ok(_) => ("it was compiled".to_owned(), false),
        Err(error) => {
            let named = matches!(&error, ModuleError::Compile { log, .. } if !log.is_empty());
            (error.to_string(), named)
        }
    };
    report.figure(ROW, "PTX with a mistake", "refused with the compiler's words", text, named);
    let missing = Module::load(&kit.device, "checks", PTX)?.function("nowhere").err();
    let named = missing.as_ref().is_some_and(|error| error.to_string().contains("nowhere"));
    let seen = missing.map_or_else(|| "found".to_owned(), |error| error.to_string());
    report.figure(ROW, "a kernel that is not there", "an error that names it", seen, named);
    Ok(())
}

/// Creating and dropping objects a thousand times leaks nothing.
fn flat(kit: &Kit, report: &mut Report) -> Result<(), Failure> {
    let mapped = Memory::on(&kit.device, MemoryKind::Mapped)?;
    let mut before = None;
    for round in 0..3 {
        for _ in 0..300 {
            let stream = CudaStream::new(&kit.device)?;
            let event = Event::new(&kit.device)?;
            let mut buffer = DeviceBuffer::new(&kit.device, 1 << 20)?;
            let shared = mapped.allocate(BYTES)?;
            let from = address(&shared)?;
            buffer.zero(&stream)?;
            let (mut graph, ()) = stream.capture(|stream| kit.add_one(stream, from, buffer.address()))?;
            // SAFETY: all of it lives until the event was waited for.
            unsafe { graph.launch(&stream) }?;
            event.record(&stream)?;
            event.wait()?;
        }
        if round == 0 {
            before = Some((kit.device.memory_free_bytes()?, measure::resident_bytes()));
        }
    }
    let (free, resident) = before.unwrap_or_default();
    let lost = free.saturating_sub(kit.device.memory_free_bytes()?);
    let grown = measure::resident_bytes().saturating_sub(resident);
    let seen = format!("GPU {lost} bytes, host {grown} bytes");
    report.figure(ROW, "600 rounds of all objects", "GPU + 0, host below + 4 MB", seen, lost == 0 && grown < 4 << 20);
    Ok(())
}

/// Returns the error of a kernel that writes to an invalid address, in its own process, because that loses the GPU.
fn lost(report: &mut Report) -> Result<(), Failure> {
    let child = Command::new(std::env::current_exe()?).args(["cuda", "--fault"]).output()?;
    let seen = String::from_utf8_lossy(&child.stdout).trim().to_owned();
    let lost = child.status.success() && seen.ends_with("lost, lost, lost");
    let errors = String::from_utf8_lossy(&child.stderr).lines().last().unwrap_or_default().to_owned();
    report.figure(ROW, "a kernel that faults", "the GPU is lost to each later call", format!("{seen} {errors}"), lost);
    Ok(())
}

/// Prints the fault's error, and whether it, the next call and [`Device::lost`] report that the GPU is lost.
fn lose_the_gpu(kit: &Kit) -> Result<(), Failure> {
    // SAFETY: the kernel has no argument. That it faults is the point: the process ends after this.
    unsafe { kit.fault.launch([1; 3], [1; 3], 0, &kit.stream, &mut []) }?;
    let first = kit.stream.synchronize().err();
    let second = DeviceBuffer::new(&kit.device, BYTES).err();
    let word = |error: &Option<CudaError>| match error {
        Some(error) if is_gpu_lost(error) => "lost",
        Some(_) => "not lost",
        None => "no error",
    };
    let text = first.as_ref().map_or_else(String::new, ToString::to_string);
    println!("{text}: {}, {}, {}", word(&first), word(&second), word(&kit.device.lost()));
    Ok(())
}
