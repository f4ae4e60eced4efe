//! The board, its system, and the versions of the libraries that visiond uses.

use std::ffi::CStr;

use visiond_engine::engine::{Backend, EngineOptions};
use visiond_engine::onnx::known_faults::{KNOWN_FAULTS, KnownFault};
use visiond_system::board::{self, Board};

use super::checks::{AreaTest, gib};
use crate::probe::gpu::Gpus;
use crate::version;

/// Adds a row for each. Opens the GPU and the libraries.
pub fn run(test: &mut AreaTest) {
    let root = board::root();
    let Board { name, system, kernel, l4t, jetpack, memory_bytes } = Board::read(&root);
    let mut row = |check, value: Option<String>, missing: &str| match value {
        Some(value) => test.info(check, value),
        None => test.skip(check, missing),
    };
    row("board", name, "the firmware gives no name");
    row("device tree", Some(board::compatible(&root).join(", ")).filter(|names| !names.is_empty()), "there is none");
    let not_jetson = "no /etc/nv_tegra_release: not a Jetson";
    row("L4T", l4t.map(|l4t| l4t.to_string()), not_jetson);
    row("JetPack", jetpack.map(str::to_owned), if l4t.is_some() { "unknown for this release" } else { not_jetson });
    row("system", Some(system), "");
    row("kernel", Some(kernel), "");
    row("glibc", glibc(), "the C library reports no version");
    let memory = memory_bytes.map_or(String::new(), |bytes| format!(", {} of memory", gib(bytes)));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    row("processor", Some(format!("{}, {cores} cores{memory}", std::env::consts::ARCH)), "");
    let gpus = Gpus::find(&root);
    row("NVIDIA driver", gpus.driver, "no kernel module of NVIDIA's reports its version");
    row("CUDA", gpus.cuda, &gpus.reason.unwrap_or_default());
    let engines = version::engines();
    for engine in &engines {
        row(engine.name, engine.available.then(|| engine.description.clone()), &engine.description);
    }
    let path = std::env::current_exe().map_or(String::new(), |path| format!(" ({})", path.display()));
    row("visiond", Some(format!("{}{path}", env!("CARGO_PKG_VERSION"))), "");
    let available = |backend: Backend| engines.iter().any(|engine| engine.available && engine.name == backend.name());
    for fault in KNOWN_FAULTS.iter().filter(|fault| available(fault.backend)) {
        known_fault(fault, test);
    }
}

/// Runs the model of a fault with its backend.
fn known_fault(fault: &KnownFault, test: &mut AreaTest) {
    let wanted =
        format!("the right numbers, although {} {}: visiond {}", fault.backend, fault.behaviour, fault.workaround);
    let checked = fault.check(&EngineOptions::default());
    test.result(fault.name, wanted, checked.map(|backend| (backend, true, Vec::new())).map_err(Into::into));
}

fn glibc() -> Option<String> {
    // SAFETY: the call takes no argument and returns a string that is never freed.
    let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
    version.to_str().ok().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::selftest::checks::{Area, Outcome};

    #[test]
    fn the_faults_of_the_engines_that_are_here_are_checked() {
        let mut test = AreaTest::new(Area::Board, true, Instant::now());
        run(&mut test);
        for fault in KNOWN_FAULTS.iter().filter(|fault| fault.backend == Backend::Rten) {
            let row = test.rows.iter().find(|row| row.check == fault.name);
            assert!(row.is_some_and(|row| row.outcome == Outcome::Pass), "{row:?}");
        }
    }

    #[test]
    fn the_c_library_has_a_version() {
        assert!(glibc().is_some_and(|version| version.starts_with("2.")));
    }
}
