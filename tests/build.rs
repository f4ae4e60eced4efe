//! Tells the tests what is there to test with: those that lack it are reported as ignored, not as passed.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(has_tensorrt)");
    println!("cargo::rerun-if-env-changed=VISIOND_TEST_TENSORRT");
    if std::env::var_os("VISIOND_TEST_TENSORRT").is_some() {
        println!("cargo::rustc-cfg=has_tensorrt");
    }
}
