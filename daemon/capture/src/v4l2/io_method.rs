//! How a camera's pictures come to the network: the best of the ways that the driver and the GPU take.
//!
//! | | the driver writes | copies |
//! |---|---|---|
//! | USERPTR | into the network's kind of memory, or into ordinary memory that was registered with CUDA | none |
//! | MMAP | into its own, which was registered with CUDA | none |
//! | MMAP, one copy | into its own; the picture is copied out and the buffer queued at once | one |
//!
//! Each is tried for real, with all its buffers, before it is chosen. USERPTR goes into managed memory only where that never
//! moves, and from there on to mapped memory. For a network on the CPU the middle one is for who asks
//! for it: some drivers' own memory is not cached, and then every read of it costs more than one copy.

use std::sync::Arc;

use visiond_config::types::IoMode;
use visiond_kernels::buffer::{Memory, MemoryKind};
use visiond_kernels::cuda::Device;

use super::device::{MAX_MEMORY_PLANES, Node};
use super::errors::unstarted;
use super::stream::io_support::IoSupport;
use super::stream::{self, Refusal, Stream};
use crate::buffers::Buffers;
use crate::source::SourceError;

/// Buffers with the driver: one being filled, one being copied, and two for when this thread comes late. Where frames stay
/// in them, as many more as a pool would have.
const DRIVER_BUFFERS: u32 = 4;

/// A stream that runs, and how its pictures are taken out.
#[derive(Debug)]
pub struct Chosen {
    /// The stream.
    pub stream: Stream,
    /// The way.
    pub mode: IoMode,
    /// The way and why it is not a better one, for the log.
    pub told: String,
}

/// One way.
#[derive(Clone, Copy)]
enum IoMethod<'a> {
    /// USERPTR into memory of this kind.
    Ours(&'a Memory),
    /// USERPTR into memory that is registered with CUDA.
    Registered(&'a Arc<Device>),
    /// MMAP, registered with CUDA.
    MappedForGpu(&'a Arc<Device>),
    /// MMAP, read there by the CPU.
    Mapped,
    /// MMAP, read there once, to copy it.
    Copied,
}

impl<'a> IoMethod<'a> {
    fn mode(self) -> IoMode {
        match self {
            Self::Ours(_) | Self::Registered(_) => IoMode::Userptr,
            Self::MappedForGpu(_) | Self::Mapped => IoMode::Mmap,
            Self::Copied => IoMode::Copy,
        }
    }

    fn name(self) -> String {
        match self {
            Self::Ours(memory) => format!("USERPTR into {} memory", memory.kind()),
            Self::Registered(_) => "USERPTR into registered memory".to_owned(),
            Self::MappedForGpu(_) => "MMAP registered with CUDA".to_owned(),
            Self::Mapped | Self::Copied => "MMAP".to_owned(),
        }
    }

    fn source(self) -> stream::Source<'a> {
        match self {
            Self::Ours(memory) => stream::Source::Ours(memory),
            Self::Registered(device) => stream::Source::Registered(device),
            Self::MappedForGpu(_) | Self::Mapped | Self::Copied => stream::Source::Driver,
        }
    }
}

/// What the buffers are for.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// Bytes of each piece of a picture's memory.
    pub lengths: [usize; MAX_MEMORY_PLANES],
    /// How many pieces.
    pub memories: usize,
    /// Whether the pictures are decoded here, out of whatever memory.
    pub is_jpeg: bool,
    /// The way that is configured.
    pub io: Option<IoMode>,
}

/// Starts a stream of `node` in the best way.
pub fn choose(node: &Arc<Node>, wanted: &Wanted, buffers: &Buffers) -> Result<Chosen, SourceError> {
    let ours = ours(wanted, buffers);
    let mut refused = Vec::new();
    let mut last = None;
    for method in methods(wanted, buffers, &ours) {
        match step(node, wanted, buffers, method) {
            Ok(stream) => {
                let told = tell(method, &stream, wanted.is_jpeg, &refused);
                return Ok(Chosen { stream, mode: method.mode(), told });
            }
            // Nothing else would do better.
            Err(Refusal::Driver { error, .. }) if is_final(error.raw_os_error()) => {
                return Err(unstarted(node.path(), &error));
            }
            Err(refusal) => {
                log::debug!("{}: no {}: {refusal}", node.path().display(), method.name());
                refused.push(format!("{} ({refusal})", method.name()));
                last = Some(refusal);
            }
        }
    }
    Err(match (wanted.io, last) {
        (Some(io), Some(refusal)) if io != IoMode::Copy => SourceError::transient(format!(
            "{} does not stream by `io = \"{}\"` ({refusal}): leave `io` out for the best way that works",
            node.path().display(),
            io.name()
        )),
        (_, Some(Refusal::Driver { error, .. })) => unstarted(node.path(), &error),
        (_, refusal) => SourceError::transient(format!(
            "{} does not start: {}",
            node.path().display(),
            refusal.map_or("there is no way to read it".to_owned(), |refusal| refusal.to_string())
        )),
    })
}

/// The way that [`choose`] would most likely take, by what the driver says of itself. Nothing is tried.
pub fn likely(modes: IoSupport, is_jpeg: bool, buffers: &Buffers) -> Option<IoMode> {
    let wanted = Wanted { lengths: [0; MAX_MEMORY_PLANES], memories: 0, is_jpeg, io: None };
    let has = |method: &IoMethod<'_>| match method.mode() {
        IoMode::Userptr => modes.userptr != Some(false),
        IoMode::Mmap | IoMode::Copy => modes.mmap != Some(false),
    };
    methods(&wanted, buffers, &ours(&wanted, buffers)).into_iter().find(has).map(IoMethod::mode)
}

/// Memory of ours that the driver may fill, the best first.
fn ours(wanted: &Wanted, buffers: &Buffers) -> Vec<Memory> {
    let memory = &buffers.memory;
    match memory.device() {
        // The decoder reads the JPEG, and writes the frame into the network's kind of memory.
        _ if wanted.is_jpeg => vec![Memory::host()],
        Some(gpu) if memory.kind() == MemoryKind::Managed => {
            let facts = gpu.facts();
            let stays = facts.integrated && !facts.concurrent_managed_access;
            // A GPU without one of the kinds goes without its method.
            instead_of_managed(stays).iter().filter_map(|&kind| Memory::on(gpu, kind).ok()).collect()
        }
        _ => vec![memory.clone()],
    }
}

/// The kinds that a driver may fill where frames live in managed memory; `stays`: that has the same pages for good.
///
/// A driver pins the pages when it is given a buffer for the first time and keeps them while the address is the same (the
/// kernel's videobuf2-core.c, `__prepare_userptr`). NVIDIA's UVM driver moves managed memory to other pages all the same
/// (`uvm_va_block.c`), and what the camera writes then is never seen. Without UVM, on a Jetson before Thor, the pages are
/// nvmap's and stay; NVIDIA's own sample for cameras has them filled by USERPTR (jetson_multimedia_api, `v4l2cuda`).
fn instead_of_managed(stays: bool) -> &'static [MemoryKind] {
    if stays { &[MemoryKind::Managed, MemoryKind::Mapped] } else { &[MemoryKind::Mapped] }
}

/// The ways that are tried, the best first.
fn methods<'a>(wanted: &Wanted, buffers: &'a Buffers, ours: &'a [Memory]) -> Vec<IoMethod<'a>> {
    let gpu = buffers.memory.device().filter(|_| buffers.memory.kind() != MemoryKind::Host);
    let mut methods: Vec<IoMethod<'a>> = ours.iter().map(IoMethod::Ours).collect();
    methods.extend(match gpu {
        _ if wanted.is_jpeg => vec![IoMethod::Mapped],
        Some(gpu) => vec![IoMethod::Registered(gpu), IoMethod::MappedForGpu(gpu), IoMethod::Copied],
        None => vec![IoMethod::Copied],
    });
    match wanted.io {
        None => {}
        Some(IoMode::Mmap) if matches!(methods.as_slice(), [IoMethod::Ours(_), IoMethod::Copied]) => {
            methods = vec![IoMethod::Mapped]
        }
        Some(IoMode::Copy) if wanted.is_jpeg => methods = vec![IoMethod::Mapped],
        Some(mode) => methods.retain(|method| method.mode() == mode),
    }
    methods
}

fn step(node: &Arc<Node>, wanted: &Wanted, buffers: &Buffers, method: IoMethod<'_>) -> Result<Stream, Refusal> {
    let stays = !wanted.is_jpeg && !matches!(method, IoMethod::Copied);
    // At most a few dozen, says the configuration.
    let count = DRIVER_BUFFERS + if stays { buffers.count as u32 } else { 0 };
    let new = || Stream::new(node, method.source(), count, wanted.lengths, wanted.memories);
    // A driver may refuse once for a reason that passes.
    let mut stream = match new() {
        Err(Refusal::Driver { error, .. }) if !is_final(error.raw_os_error()) => new()?,
        made => made?,
    };
    if let IoMethod::MappedForGpu(gpu) = method {
        stream.register(gpu)?;
    }
    let start = |stream: &mut Stream| stream.start().map_err(|error| Refusal::Driver { call: "STREAMON", error });
    match start(&mut stream) {
        Err(Refusal::Driver { error, .. }) if !is_final(error.raw_os_error()) => start(&mut stream)?,
        started => started?,
    }
    Ok(stream)
}

/// Whether an error is one of the camera, not of the way: gone, in use, without a signal, without bandwidth.
fn is_final(errno: Option<i32>) -> bool {
    matches!(errno, Some(libc::ENODEV | libc::EBUSY | libc::ENOLINK | libc::ENOLCK | libc::ENOSPC | libc::EPIPE))
}

fn tell(method: IoMethod<'_>, stream: &Stream, is_jpeg: bool, refused: &[String]) -> String {
    let read = match method {
        _ if is_jpeg => "decoded",
        IoMethod::Ours(_) | IoMethod::Registered(_) | IoMethod::MappedForGpu(_) | IoMethod::Mapped => "no copy",
        IoMethod::Copied => "one copy",
    };
    let why = if refused.is_empty() { String::new() } else { format!("; refused: {}", refused.join(", ")) };
    format!("{}, {} buffers, {read}{why}", method.name(), stream.buffer_count())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ways(is_jpeg: bool, io: Option<IoMode>) -> Vec<String> {
        let buffers = Buffers::default();
        let wanted = Wanted { lengths: [1, 0, 0], memories: 1, is_jpeg, io };
        methods(&wanted, &buffers, &ours(&wanted, &buffers))
            .into_iter()
            .map(|method| format!("{} {}", method.name(), method.mode().name()))
            .collect()
    }

    #[test]
    fn a_network_on_the_cpu_has_our_memory_before_a_copy() {
        let ours = "USERPTR into host memory userptr";
        assert_eq!(ways(false, None), [ours, "MMAP copy"]);
        assert_eq!(ways(false, Some(IoMode::Userptr)), [ours]);
        assert_eq!(ways(false, Some(IoMode::Mmap)), ["MMAP mmap"]);
        assert_eq!(ways(false, Some(IoMode::Copy)), ["MMAP copy"]);
    }

    #[test]
    fn no_driver_fills_managed_memory_that_moves_and_one_that_refuses_it_fills_mapped_memory() {
        assert_eq!(instead_of_managed(false), [MemoryKind::Mapped]);
        assert_eq!(instead_of_managed(true), [MemoryKind::Managed, MemoryKind::Mapped]);
    }

    #[test]
    fn jpeg_is_decoded_out_of_whatever_memory() {
        assert_eq!(ways(true, None), ["USERPTR into host memory userptr", "MMAP mmap"]);
        assert_eq!(ways(true, Some(IoMode::Copy)), ["MMAP mmap"]);
        assert_eq!(ways(true, Some(IoMode::Mmap)), ["MMAP mmap"]);
    }
}
