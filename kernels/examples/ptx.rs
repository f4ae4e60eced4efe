//! Compiles kernels/cuda/*.cu to kernels/ptx/*.ptx with NVRTC. Needs no GPU.
//!
//!     ptx [--check] [--nvrtc LIBRARY] [--ptxas PROGRAM]
//!
//! `--check` writes nothing and fails if a file differs. `--ptxas` assembles the result for every GPU that matters, which proves
//! that it is valid, and prints its resources. By default both are searched where `tests/setup --test` puts them; ptxas may be
//! missing.
//!
//! Another version of NVRTC generates other instructions, so the version is part of the result.

use std::error::Error;
use std::ffi::{CStr, CString, c_char, c_int};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{fs, ptr};

use libloading::{Library, Symbol};

/// The command that mends what `--check` finds.
const COMMAND: &str = "cargo run -p visiond-kernels --example ptx";

/// The one NVRTC whose output is checked in.
const NVRTC: (c_int, c_int) = (12, 9);

/// Xavier's instruction set, the oldest that JetPack 5 runs on. `-default-device`: functions without a mark are the device's.
/// `--fmad=false`: `a * b + c` is fused only where the source says so, as in the CPU reference.
const OPTIONS: [&CStr; 4] = [c"--gpu-architecture=compute_72", c"--fmad=false", c"-default-device", c"--std=c++17"];

/// NVRTC writes its own PTX version, which older drivers refuse. This is CUDA 11.4's, the driver's of JetPack 5; nothing
/// that came later is used, and ptxas refuses a file that uses what its version does not have.
const PTX_VERSION: &str = "7.4";

/// Xavier, Orin, Hopper, Thor.
const PROCESSORS: [&str; 4] = ["sm_72", "sm_87", "sm_90", "sm_101"];

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ptx: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let (mut check, mut library, mut ptxas) = (false, cached("lib/nvrtc/libnvrtc.so.12"), None);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--check" => check = true,
            "--nvrtc" => library = arguments.next().ok_or("--nvrtc wants a library")?.into(),
            "--ptxas" => ptxas = Some(PathBuf::from(arguments.next().ok_or("--ptxas wants a program")?)),
            _ => return Err("usage: ptx [--check] [--nvrtc LIBRARY] [--ptxas PROGRAM]".into()),
        }
    }
    let ptxas = ptxas.or_else(|| Some(cached("bin/ptxas")).filter(|program| program.is_file()));

    let nvrtc = Nvrtc::open(&library)?;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let headers = sources(&folder.join("cuda"), "cuh")?;
    let mut stale = Vec::new();
    for (name, source) in sources(&folder.join("cuda"), "cu")? {
        let ptx = normalised(&name, &nvrtc.compile(&name, &source, &headers)?)?;
        let file = folder.join("ptx").join(&name).with_extension("ptx");
        let fresh = fs::read_to_string(&file).is_ok_and(|found| found == ptx);
        println!("{name}: {} bytes of PTX{}", ptx.len(), if fresh { ", as checked in" } else { "" });
        if check && !fresh {
            stale.push(name);
            continue;
        }
        if !fresh {
            fs::write(&file, &ptx)?;
        }
        if let Some(ptxas) = &ptxas {
            assemble(ptxas, &file)?;
        }
    }
    if stale.is_empty() {
        return Ok(());
    }
    Err(format!("kernels/ptx is not what kernels/cuda compiles to ({}): run `{COMMAND}` and commit", stale.join(", "))
        .into())
}

/// A file in the folder that tests/setup fills.
fn cached(name: &str) -> PathBuf {
    let folder = |variable| std::env::var_os(variable).map(PathBuf::from);
    let cache = folder("VISIOND_CACHE")
        .or_else(|| Some(folder("XDG_CACHE_HOME")?.join("visiond")))
        .or_else(|| Some(folder("HOME")?.join(".cache/visiond")));
    cache.unwrap_or_default().join(name)
}

/// Names and texts of the files with this extension, in the names' order.
fn sources(folder: &Path, extension: &str) -> Result<Vec<(String, String)>, Box<dyn Error>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|found| found == extension)
            && let Some(name) = path.file_name()
        {
            files.push((name.to_string_lossy().into_owned(), fs::read_to_string(&path)?));
        }
    }
    files.sort();
    Ok(files)
}

/// Without the compiler's build numbers, and for drivers from [`PTX_VERSION`] on.
fn normalised(name: &str, ptx: &str) -> Result<String, Box<dyn Error>> {
    let (_, body) = ptx.split_once("\n.version ").ok_or("NVRTC's output has no .version")?;
    let (_, body) = body.split_once('\n').ok_or("NVRTC's output ends at .version")?;
    // A hint for tools, of PTX 8.3: which bytes of a vector load are used.
    let code: Vec<&str> = body.trim_end().lines().filter(|line| !line.contains("\"used_bytes_mask ")).collect();
    let code = code.join("\n");
    Ok(format!("// Made from kernels/cuda/{name} by `{COMMAND}`: do not edit.\n.version {PTX_VERSION}\n{code}\n"))
}

/// Assembles for every processor that matters; prints registers, spills and sizes.
fn assemble(ptxas: &Path, file: &Path) -> Result<(), Box<dyn Error>> {
    for processor in PROCESSORS {
        let output = Command::new(ptxas).args(["-v", "-arch", processor, "-o", "/dev/null"]).arg(file).output()?;
        let text = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            return Err(format!("ptxas refuses {} for {processor}: {text}", file.display()).into());
        }
        let mut facts = text.lines().filter(|line| line.contains("spill") || line.contains("Used"));
        while let (Some(spills), Some(used)) = (facts.next(), facts.next()) {
            let used = used.trim_start_matches("ptxas info    :").trim();
            println!("  {processor}: {used}; {}", spills.trim());
        }
    }
    Ok(())
}

type Handle = *mut std::ffi::c_void;

/// NVRTC, opened at run time: none of its headers is needed to build this.
struct Nvrtc(Library);

impl Nvrtc {
    fn open(path: &Path) -> Result<Self, Box<dyn Error>> {
        // SAFETY: the library's initialisers are NVIDIA's; the file is the one that the caller named.
        let library = unsafe { Library::new(path) }.map_err(|e| {
            format!("NVRTC cannot be opened ({e}): run `tests/setup --test`, or name libnvrtc.so.12 with --nvrtc")
        })?;
        let nvrtc = Self(library);
        let mut version = (0, 0);
        type Version = unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int;
        // SAFETY: `nvrtcVersion` has this signature in every NVRTC; both pointers are valid for writes.
        unsafe { nvrtc.symbol::<Version>(c"nvrtcVersion")?(&mut version.0, &mut version.1) };
        if version != NVRTC {
            let ((major, minor), path) = (version, path.display());
            return Err(format!(
                "{path} is NVRTC {major}.{minor}, the PTX is made by {}.{}: run `tests/setup --test`",
                NVRTC.0, NVRTC.1
            )
            .into());
        }
        Ok(nvrtc)
    }

    fn symbol<T>(&self, name: &CStr) -> Result<Symbol<'_, T>, libloading::Error> {
        // SAFETY: every caller names `T` as nvrtc.h declares `name`.
        unsafe { self.0.get(name.to_bytes_with_nul()) }
    }

    /// One source with the headers that it may include, as PTX. Fails with the compiler's messages.
    fn compile(&self, name: &str, source: &str, headers: &[(String, String)]) -> Result<String, Box<dyn Error>> {
        type Create = unsafe extern "C" fn(
            *mut Handle,
            *const c_char,
            *const c_char,
            c_int,
            *const *const c_char,
            *const *const c_char,
        ) -> c_int;
        type Compile = unsafe extern "C" fn(Handle, c_int, *const *const c_char) -> c_int;
        type Destroy = unsafe extern "C" fn(*mut Handle) -> c_int;

        let (source, file) = (CString::new(source)?, CString::new(name)?);
        let (mut texts, mut names) = (Vec::new(), Vec::new());
        for (name, text) in headers {
            names.push(CString::new(name.as_str())?);
            texts.push(CString::new(text.as_str())?);
        }
        let pointers = |strings: &[CString]| strings.iter().map(|string| string.as_ptr()).collect::<Vec<_>>();
        let (texts, names) = (pointers(&texts), pointers(&names));
        let (create, compile) =
            (self.symbol::<Create>(c"nvrtcCreateProgram")?, self.symbol::<Compile>(c"nvrtcCompileProgram")?);
        let destroy = self.symbol::<Destroy>(c"nvrtcDestroyProgram")?;
        let mut program = ptr::null_mut();
        // SAFETY: all strings end in NUL and live past the call; the two arrays hold as many pointers as is said.
        let created = unsafe {
            create(
                &mut program,
                source.as_ptr(),
                file.as_ptr(),
                c_int::try_from(texts.len())?,
                texts.as_ptr(),
                names.as_ptr(),
            )
        };
        if created != 0 {
            return Err(format!("nvrtcCreateProgram gave {created} for {name}").into());
        }
        let options = OPTIONS.map(CStr::as_ptr);
        // SAFETY: `program` was just made; the options are strings of static life.
        let compiled = unsafe { compile(program, c_int::try_from(options.len())?, options.as_ptr()) };
        let (size, text) = match compiled {
            0 => (c"nvrtcGetPTXSize", c"nvrtcGetPTX"),
            _ => (c"nvrtcGetProgramLogSize", c"nvrtcGetProgramLog"),
        };
        let text = self.text(program, size, text);
        // SAFETY: `program` is destroyed once, here.
        unsafe { destroy(&mut program) };
        if compiled == 0 { text } else { Err(format!("{name} does not compile:\n{}", text?).into()) }
    }

    /// One of a program's texts.
    fn text(&self, program: Handle, size: &CStr, text: &CStr) -> Result<String, Box<dyn Error>> {
        type Size = unsafe extern "C" fn(Handle, *mut usize) -> c_int;
        type Text = unsafe extern "C" fn(Handle, *mut u8) -> c_int;
        let (size, text) = (self.symbol::<Size>(size)?, self.symbol::<Text>(text)?);
        let mut len = 0;
        // SAFETY: `program` is alive; `len` is valid for writes.
        let sized = unsafe { size(program, &mut len) };
        let mut bytes = vec![0; len];
        // SAFETY: `bytes` is as long as NVRTC just said that the text is, its NUL included.
        if sized != 0 || unsafe { text(program, bytes.as_mut_ptr()) } != 0 {
            return Err("NVRTC gives no output".into());
        }
        bytes.pop();
        Ok(String::from_utf8(bytes)?)
    }
}
