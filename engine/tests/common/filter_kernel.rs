//! The candidate filter's CUDA kernel, compiled for the processor, against the heads.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, OnceLock};

use libloading::Library;
use visiond_kernels::filter::{FilterSpec, Filtered, Launch};
use visiond_kernels::tensor::DType;

/// One output of one frame.
pub struct Output<'a> {
    pub dtype: DType,
    pub bytes: &'a [u8],
}

/// The results that a launch wrote.
pub struct Results {
    launch: Launch,
    memory: Vec<u128>,
}

impl Results {
    pub fn frame(&self, slot: usize) -> Filtered<'_> {
        let bytes = bytes_of(&self.memory);
        self.launch.found(bytes, slot).expect("a frame of the launch")
    }
}

fn bytes_of(memory: &[u128]) -> &[u8] {
    // SAFETY: every byte of initialised integers is a valid u8, and the slice ends where they end.
    unsafe { std::slice::from_raw_parts(memory.as_ptr().cast(), size_of_val(memory)) }
}

/// A copy of `bytes` that lies as a GPU's memory does: aligned.
fn aligned(bytes: &[u8]) -> Vec<u128> {
    bytes
        .chunks(16)
        .map(|chunk| {
            let mut word = [0; 16];
            word[..chunk.len()].copy_from_slice(chunk);
            u128::from_ne_bytes(word)
        })
        .collect()
}

fn library() -> &'static Mutex<Library> {
    static LIBRARY: OnceLock<Mutex<Library>> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels/cuda/host/filter.cpp");
        let file = std::env::temp_dir().join(format!("visiond-filter-{}.so", std::process::id()));
        let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
        // As --fmad=false on the GPU.
        let options = ["-std=c++17", "-O1", "-ffp-contract=off", "-w", "-shared", "-fPIC", "-o"];
        let output = Command::new(&compiler).args(options).arg(&file).arg(source).output();
        let output = output.unwrap_or_else(|error| panic!("{compiler}: {error}: run tests/setup"));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        // SAFETY: just compiled of our own sources, which have no initialisers that do anything.
        let library = unsafe { Library::new(&file) }.unwrap();
        std::fs::remove_file(&file).unwrap();
        Mutex::new(library)
    })
}

/// Runs the kernel over two frames: the second holds `outputs`, the first the same bytes upside down.
///
/// Every read is checked to lie in an output, every write in the results; threads and blocks run backwards if `last_first`.
pub fn run(spec: &FilterSpec, outputs: &[Output<'_>], last_first: bool) -> Results {
    const FRAMES: usize = 2;
    let library = library().lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut launch = Launch::new(spec).unwrap();
    let both = |output: &Output<'_>| -> Vec<u8> {
        let upside_down = output.bytes.iter().rev();
        upside_down.chain(output.bytes).copied().collect()
    };
    let inputs: Vec<(Vec<u128>, usize, DType)> =
        outputs.iter().map(|o| (aligned(&both(o)), FRAMES * o.bytes.len(), o.dtype)).collect();
    // Memory that was never written is an impossible candidate.
    let mut memory = vec![u128::MAX; launch.results_bytes(FRAMES) / 16];
    let mut writes = vec![0_u8; launch.results_bytes(FRAMES)];
    let mut state_writes = vec![0_u8; Launch::state_bytes(FRAMES)];
    let mut state = vec![0_u64; Launch::state_bytes(FRAMES) / 8];
    launch.set_memory(memory.as_mut_ptr() as u64, state.as_mut_ptr() as u64);
    launch.set_outputs(inputs.iter().map(|(memory, _, dtype)| (memory.as_ptr() as u64, *dtype)));
    type Allow = unsafe extern "C" fn(u64, u64, *mut u8);
    type Run = unsafe extern "C" fn(*const std::ffi::c_void, u32, u32, bool);
    // SAFETY: the functions have these signatures in kernels/cuda/host; what they are given outlives the calls, and is as
    // long as they are said to be; the lock keeps other threads out of the library.
    let faults = unsafe {
        library.get::<unsafe extern "C" fn()>(b"forget_memory\0").unwrap()();
        let allow = library.get::<Allow>(b"allow\0").unwrap();
        for (memory, len, _) in &inputs {
            allow(memory.as_ptr() as u64, *len as u64, std::ptr::null_mut());
        }
        allow(state.as_mut_ptr() as u64, Launch::state_bytes(FRAMES) as u64, state_writes.as_mut_ptr());
        allow(memory.as_mut_ptr() as u64, writes.len() as u64, writes.as_mut_ptr());
        let run = library.get::<Run>(b"filter_on_host\0").unwrap();
        run(launch.argument(), launch.blocks(), FRAMES as u32, last_first);
        library.get::<unsafe extern "C" fn() -> u64>(b"fault_count\0").unwrap()()
    };
    assert_eq!(faults, 0, "the kernel reads or writes outside its memory: {spec:?}");
    assert!(writes.iter().all(|&count| count <= 1), "the kernel writes something twice: {spec:?}");
    assert!(state.iter().all(|&counter| counter == 0), "the kernel leaves its counters: {state:?}");
    Results { launch, memory }
}
