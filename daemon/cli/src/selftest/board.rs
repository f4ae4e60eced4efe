//! The board, its system, and the versions of what visiond uses.

use std::ffi::CStr;

use visiond_system::board::{self, Board};

use super::checks::Section;
use crate::probe;
use crate::probe::gpu::Gpus;

/// Tells them. Opens GPU and libraries.
pub fn run(section: &mut Section) {
    let root = board::root();
    let Board { name, system, kernel, l4t, jetpack, memory_bytes } = Board::read(&root);
    let mut told = |check, value: Option<String>, missing: &str| {
        match value {
            Some(value) => section.info(check, value),
            None => section.skip(check, missing),
        };
    };
    told("board", name, "the firmware tells no name");
    told("device tree", Some(board::compatible(&root).join(", ")).filter(|names| !names.is_empty()), "there is none");
    let not_jetson = "no /etc/nv_tegra_release: not a Jetson";
    told("L4T", l4t.map(|l4t| l4t.to_string()), not_jetson);
    let unknown = if l4t.is_some() { "not known of this release" } else { not_jetson };
    told("JetPack", jetpack.map(str::to_owned), unknown);
    told("system", Some(system), "");
    told("kernel", Some(kernel), "");
    told("glibc", glibc(), "the C library tells no version");
    let gib = |bytes: u64| format!(", {:.1} GiB of memory", bytes as f64 / 1_073_741_824.0);
    let memory = memory_bytes.map_or_else(String::new, gib);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    told("processor", Some(format!("{}, {cores} cores{memory}", std::env::consts::ARCH)), "");
    let gpus = Gpus::find(&root);
    let reason = gpus.reason.clone().unwrap_or_default();
    told("NVIDIA driver", gpus.driver.clone(), "no module of NVIDIA's tells its version");
    told("CUDA", gpus.cuda.clone(), &reason);
    for engine in probe::engines() {
        let (there, missing) = match engine.available {
            true => (Some(engine.description), String::new()),
            false => (None, engine.description),
        };
        told(engine.name, there, &missing);
    }
    told("visiond", Some(program()), "");
}

/// The version, and where the program is.
fn program() -> String {
    let path = std::env::current_exe().map_or(String::new(), |path| format!(" ({})", path.display()));
    format!("{}{path}", env!("CARGO_PKG_VERSION"))
}

/// The C library's own word.
fn glibc() -> Option<String> {
    // SAFETY: it takes nothing and returns a string that is never freed.
    let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
    version.to_str().ok().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_c_library_has_a_version() {
        assert!(glibc().is_some_and(|version| version.starts_with("2.")));
    }
}
