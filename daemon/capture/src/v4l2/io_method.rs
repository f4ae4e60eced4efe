//! Chooses the I/O method by which a camera's frames reach the model: the best one that the driver and the GPU accept.
//!
//! | | the driver writes | copies |
//! |---|---|---|
//! | USERPTR | into the model's kind of memory, or into ordinary memory that is registered with CUDA | none |
//! | MMAP | into its own memory, which is registered with CUDA | none |
//! | MMAP, one copy | into its own memory; visiond copies the frame and queues the buffer at once | one |
//!
//! visiond tries each method with all its buffers before it chooses it. USERPTR uses managed memory only if that never moves,
//! and otherwise mapped memory. For a model on the CPU, MMAP without a copy is used only if it is configured: some drivers'
//! memory is uncached, and then every read of it costs more than one copy.

use std::sync::Arc;

use visiond_config::types::IoMode;
use visiond_kernels::buffer::{Memory, MemoryKind};
use visiond_kernels::cuda::Device;

use super::device::{MAX_MEMORY_PLANES, Node};
use super::errors::unstarted;
use super::quirks::Quirk;
use super::stream::io_support::IoSupport;
use super::stream::{BufferOrigin, IoRefusal, Stream};
use crate::buffers::Buffers;
use crate::source::SourceError;

/// Buffers that the driver needs: one being filled, one being copied, and two in case this thread is late. If frames stay in
/// the driver's buffers, it also needs as many as a pool has.
const DRIVER_BUFFERS: u32 = 4;

/// An I/O method. With `io = "copy"`, the driver's memory is read once, to copy it.
#[derive(Clone, Copy)]
struct IoMethod<'a> {
    origin: BufferOrigin<'a>,
    /// The GPU that the driver's memory is registered with.
    register: Option<&'a Arc<Device>>,
    mode: IoMode,
}

impl IoMethod<'_> {
    fn name(self) -> String {
        match (self.origin, self.register) {
            (BufferOrigin::Ours(memory), _) => format!("USERPTR into {} memory", memory.kind()),
            (BufferOrigin::Registered(_), _) => "USERPTR into registered memory".to_owned(),
            (BufferOrigin::Driver, Some(_)) => "MMAP registered with CUDA".to_owned(),
            (BufferOrigin::Driver, None) => "MMAP".to_owned(),
        }
    }
}

/// The requirements for the buffers.
#[derive(Debug, Clone, Copy)]
pub(super) struct BufferRequest {
    /// The size of each memory plane in bytes.
    pub lengths: [usize; MAX_MEMORY_PLANES],
    pub memory_plane_count: usize,
    /// Whether the frames are JPEG, which is decoded from any memory.
    pub is_jpeg: bool,
    /// The configured method.
    pub io: Option<IoMode>,
}

/// Starts a stream of `node` with the best method; also returns the method, and a description of it for the log that says why
/// better ones were refused.
pub(super) fn choose(
    node: &Arc<Node>,
    wanted: &BufferRequest,
    buffers: &Buffers,
) -> Result<(Stream, IoMode, String), SourceError> {
    let ours = ours(wanted, buffers);
    let mut refused = Vec::new();
    let mut last = None;
    for method in methods(wanted, buffers, &ours) {
        match try_method(node, wanted, buffers, method) {
            Ok(stream) => {
                let read = match method.mode {
                    _ if wanted.is_jpeg => "decoded",
                    IoMode::Userptr | IoMode::Mmap => "no copy",
                    IoMode::Copy => "one copy",
                };
                let count = stream.buffer_count();
                let why = if refused.is_empty() { String::new() } else { format!("; refused: {}", refused.join(", ")) };
                let description = format!("{}, {count} buffers, {read}{why}", method.name());
                return Ok((stream, method.mode, description));
            }
            // No other method would do better.
            Err(IoRefusal::Driver { error, .. }) if is_final(error.raw_os_error()) => {
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
            "{} cannot stream with `io = \"{}\"` ({refusal}): remove `io` to use the best method that works",
            node.path().display(),
            io.name()
        )),
        (_, Some(IoRefusal::Driver { error, .. })) => unstarted(node.path(), &error),
        (_, refusal) => SourceError::transient(format!(
            "cannot start {}: {}",
            node.path().display(),
            refusal.map_or("there is no I/O method for it".to_owned(), |refusal| refusal.to_string())
        )),
    })
}

/// Returns the method to ask for instead of the configured one. Raw frames in buffers that a program `writes` to are copied once: such
/// a program could otherwise change a frame while it is read, and undo its privacy masks. JPEG is always copied.
pub(super) fn safe(writes: bool, is_jpeg: bool, configured: Option<IoMode>) -> Option<IoMode> {
    if writes && !is_jpeg { Some(IoMode::Copy) } else { configured }
}

/// Returns the method that [`choose`] would probably choose, from what the driver claims. Tries nothing.
pub fn likely(node: &Node, modes: IoSupport, is_jpeg: bool, buffers: &Buffers) -> Option<IoMode> {
    let io = safe(node.has(Quirk::WrittenByPrograms), is_jpeg, None);
    let wanted = BufferRequest { lengths: [0; MAX_MEMORY_PLANES], memory_plane_count: 0, is_jpeg, io };
    let has = |method: &IoMethod<'_>| match method.mode {
        IoMode::Userptr => modes.userptr != Some(false),
        IoMode::Mmap | IoMode::Copy => modes.mmap != Some(false),
    };
    methods(&wanted, buffers, &ours(&wanted, buffers)).into_iter().find(has).map(|method| method.mode)
}

/// Returns the kinds of memory that the driver may fill, best first.
fn ours(wanted: &BufferRequest, buffers: &Buffers) -> Vec<Memory> {
    let memory = &buffers.memory;
    match memory.device() {
        // The decoder reads the JPEG, and writes the frame into the model's kind of memory.
        _ if wanted.is_jpeg => vec![Memory::host()],
        Some(gpu) if memory.kind() == MemoryKind::Managed => {
            let facts = gpu.facts();
            let stays = facts.integrated && !facts.concurrent_managed_access;
            // A GPU without one of the kinds does not use that method.
            instead_of_managed(stays).iter().filter_map(|&kind| Memory::on(gpu, kind).ok()).collect()
        }
        _ => vec![memory.clone()],
    }
}

/// Returns the kinds of memory that a driver may fill if frames live in managed memory; `stays`: managed memory never moves.
///
/// A driver pins the pages when it first gets a buffer, and keeps them while the address is the same (the kernel's
/// videobuf2-core.c, `__prepare_userptr`). NVIDIA's UVM driver still moves managed memory to other pages (`uvm_va_block.c`),
/// and everything that the camera writes after that is lost. Without UVM, on a Jetson before Thor, the pages belong to nvmap
/// and stay; NVIDIA's own camera sample fills them by USERPTR (jetson_multimedia_api, `v4l2cuda`).
fn instead_of_managed(stays: bool) -> &'static [MemoryKind] {
    if stays { &[MemoryKind::Managed, MemoryKind::Mapped] } else { &[MemoryKind::Mapped] }
}

/// Returns the methods to try, best first.
fn methods<'a>(wanted: &BufferRequest, buffers: &'a Buffers, ours: &'a [Memory]) -> Vec<IoMethod<'a>> {
    let gpu = buffers.memory.device().filter(|_| buffers.memory.kind() != MemoryKind::Host);
    let ours_in = |origin| IoMethod { origin, register: None, mode: IoMode::Userptr };
    let drivers = |register, mode| IoMethod { origin: BufferOrigin::Driver, register, mode };
    let mut methods: Vec<_> = ours.iter().map(|memory| ours_in(BufferOrigin::Ours(memory))).collect();
    methods.extend(match gpu {
        _ if wanted.is_jpeg => vec![drivers(None, IoMode::Mmap)],
        Some(gpu) => {
            let registered = ours_in(BufferOrigin::Registered(gpu));
            vec![registered, drivers(Some(gpu), IoMode::Mmap), drivers(None, IoMode::Copy)]
        }
        None => vec![drivers(None, IoMode::Copy)],
    });
    match wanted.io {
        None => {}
        // The CPU reads in place instead of copying, and decodes from memory without a copy.
        Some(IoMode::Mmap) if gpu.is_none() => methods = vec![drivers(None, IoMode::Mmap)],
        Some(IoMode::Copy) if wanted.is_jpeg => methods = vec![drivers(None, IoMode::Mmap)],
        Some(mode) => methods.retain(|method| method.mode == mode),
    }
    methods
}

fn try_method(
    node: &Arc<Node>,
    wanted: &BufferRequest,
    buffers: &Buffers,
    method: IoMethod<'_>,
) -> Result<Stream, IoRefusal> {
    let stays = !wanted.is_jpeg && method.mode != IoMode::Copy;
    // The configuration allows at most a few dozen.
    let count = DRIVER_BUFFERS + if stays { buffers.count as u32 } else { 0 };
    let new = || Stream::new(node, method.origin, count, wanted.lengths, wanted.memory_plane_count);
    // A driver may refuse once for a reason that passes.
    let mut stream = match new() {
        Err(IoRefusal::Driver { error, .. }) if !is_final(error.raw_os_error()) => new()?,
        made => made?,
    };
    if let Some(gpu) = method.register {
        stream.register(gpu)?;
    }
    let started = match stream.start() {
        Err(error) if !is_final(error.raw_os_error()) => stream.start(),
        started => started,
    };
    started.map_err(|error| IoRefusal::Driver { call: "STREAMON", error })?;
    Ok(stream)
}

/// Whether the error comes from the camera and not from the method: unplugged, in use, no signal, no bandwidth.
fn is_final(errno: Option<i32>) -> bool {
    matches!(errno, Some(libc::ENODEV | libc::EBUSY | libc::ENOLINK | libc::ENOLCK | libc::ENOSPC | libc::EPIPE))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ways(is_jpeg: bool, io: Option<IoMode>) -> Vec<String> {
        let buffers = Buffers::default();
        let wanted = BufferRequest { lengths: [1, 0, 0], memory_plane_count: 1, is_jpeg, io };
        methods(&wanted, &buffers, &ours(&wanted, &buffers))
            .into_iter()
            .map(|method| format!("{} {}", method.name(), method.mode.name()))
            .collect()
    }

    #[test]
    fn a_model_on_the_cpu_has_our_memory_before_a_copy() {
        let ours = "USERPTR into host memory userptr";
        assert_eq!(ways(false, None), [ours, "MMAP copy"]);
        assert_eq!(ways(false, Some(IoMode::Userptr)), [ours]);
        assert_eq!(ways(false, Some(IoMode::Mmap)), ["MMAP mmap"]);
        assert_eq!(ways(false, Some(IoMode::Copy)), ["MMAP copy"]);
    }

    #[test]
    fn a_raw_frame_that_another_program_can_change_is_copied_whatever_is_configured() {
        for configured in [None, Some(IoMode::Userptr), Some(IoMode::Mmap), Some(IoMode::Copy)] {
            assert_eq!(safe(true, false, configured), Some(IoMode::Copy));
            assert_eq!((safe(true, true, configured), safe(false, false, configured)), (configured, configured));
        }
        assert_eq!(ways(false, safe(true, false, Some(IoMode::Mmap))), ["MMAP copy"]);
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
