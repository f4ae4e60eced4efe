//! Tells the tests which programs are available: tests without theirs are reported as ignored, not as passed.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(has_tensorrt)");
    println!("cargo::rerun-if-env-changed=VISIOND_TEST_TENSORRT");
    if std::env::var_os("VISIOND_TEST_TENSORRT").is_some() {
        println!("cargo::rustc-cfg=has_tensorrt");
    }
}
