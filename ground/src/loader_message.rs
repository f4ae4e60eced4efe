//! The loader's message about a shared library that it cannot open, with a remedy if another library is at fault.
//!
//! Libraries of NVIDIA need others, some of which a container gets from the host. The loader then blames a library that no user has
//! ever named.

use std::path::Path;

/// Returns the loader's `message` about `opened`, and what to do if it is about a library that `opened` needs.
pub fn explain(message: &str, opened: &Path) -> String {
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    // glibc: `NAME: cannot open shared object file: No such file or directory`, `PATH: file too short`.
    let Some((needed, problem)) = message.split_once(": ") else { return message.to_owned() };
    let is_missing = problem.starts_with("cannot open shared object file: No such file");
    let is_empty = problem == "file too short";
    let Some(needed) = name(Path::new(needed)).filter(|needed| name(opened).as_ref() != Some(needed)) else {
        return message.to_owned();
    };
    let opened = opened.display();
    match (is_missing, is_empty) {
        (true, _) => format!("{opened} needs {needed}, which the loader does not find: {}", remedy(&needed)),
        (_, true) => {
            format!("{opened} needs {needed}, which is an empty file, as in images for Jetson: {}", remedy(&needed))
        }
        _ => message.to_owned(),
    }
}

/// Returns how to get a library.
///
/// JetPack 7.2 has no libnvdla_compiler.so (github.com/blakeblackshear/frigate, pull request 23582, and
/// github.com/Jonah-May-OSS/wyoming-whisper-trt, issue 1038): its own TensorRT does not need one. On JetPack 6 it has a package of its own
/// (github.com/4paradigm/phanthymotus, pull request 154).
fn remedy(library: &str) -> &'static str {
    const FROM_HOST: [&str; 5] = ["libnvrm", "libnvos", "libnvsci", "libnvgpu", "libnvidia-"];
    const CUDA: [&str; 6] = ["libcudart", "libcublas", "libcudnn", "libcufft", "libcurand", "libnvrtc"];
    let is_one_of = |names: &[&str]| names.iter().any(|name| library.starts_with(name));
    if is_one_of(&["libnvdla_compiler"]) {
        "on JetPack 6 run `sudo apt install nvidia-l4t-dla-compiler`; JetPack 7.2 has no such library, so use its own TensorRT, in a \
         container that of an image for JetPack 7.2; start containers with `--runtime nvidia`"
    } else if is_one_of(&FROM_HOST) {
        "it is part of NVIDIA's driver: install the whole driver; start a container with `--runtime nvidia`, which mounts it"
    } else if is_one_of(&CUDA) {
        "install CUDA's libraries of the version in this name, on a Jetson with `sudo apt install nvidia-jetpack`"
    } else {
        "install the package that has it (`apt-file search` finds it); start a container for NVIDIA's GPU with `--runtime nvidia`"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOT_FOUND: &str = "cannot open shared object file: No such file or directory";

    fn said(needed: &str, opened: &str) -> String {
        explain(&format!("{needed}: {NOT_FOUND}"), Path::new(opened))
    }

    #[test]
    fn a_library_that_another_one_needs_is_named_with_what_brings_it() {
        let dla = said("libnvdla_compiler.so", "libnvinfer.so.10");
        assert!(
            dla.starts_with("libnvinfer.so.10 needs libnvdla_compiler.so, which the loader does not find: "),
            "{dla}"
        );
        assert!(dla.contains("apt install nvidia-l4t-dla-compiler") && dla.contains("JetPack 7.2"), "{dla}");
        let host = said("libnvrm_gpu.so", "libcuda.so.1");
        assert!(host.contains("--runtime nvidia") && host.contains("driver"), "{host}");
        assert!(said("libcublas.so.12", "/opt/libnvinfer.so.10").contains("nvidia-jetpack"));
        assert!(said("libfoo.so.1", "libnvinfer.so.10").contains("apt-file search"));
    }

    #[test]
    fn the_empty_file_of_an_image_asks_for_nvidias_runtime() {
        let path = "/usr/lib/aarch64-linux-gnu/nvidia/libnvdla_compiler.so";
        let text = explain(&format!("{path}: file too short"), Path::new("libnvinfer.so.10"));
        assert!(text.starts_with("libnvinfer.so.10 needs libnvdla_compiler.so, which is an empty file"), "{text}");
        assert!(text.ends_with("start containers with `--runtime nvidia`"), "{text}");
    }

    #[test]
    fn a_message_about_the_library_itself_stays_as_it_is() {
        for (message, opened) in [
            (format!("libnvinfer.so.10: {NOT_FOUND}"), "libnvinfer.so.10"),
            (format!("/opt/libnvinfer.so.10: {NOT_FOUND}"), "/opt/libnvinfer.so.10"),
            ("/opt/libnvinfer.so.10: file too short".to_owned(), "/opt/libnvinfer.so.10"),
            ("/opt/libnvinfer.so.10: undefined symbol: f".to_owned(), "/opt/libnvinfer.so.10"),
            ("/opt/libother.so: undefined symbol: f".to_owned(), "/opt/libnvinfer.so.10"),
            ("out of memory".to_owned(), "libnvinfer.so.10"),
        ] {
            assert_eq!(explain(&message, Path::new(opened)), message);
        }
    }
}
