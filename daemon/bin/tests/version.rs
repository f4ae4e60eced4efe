//! The program itself. Because of this test, cargo builds the program for the tests of other packages, as `tests/mutants/run`
//! needs.

#[test]
fn it_says_its_name_and_version() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_visiond")).arg("--version").output();
    let said = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    assert!(said.starts_with(concat!("visiond ", env!("CARGO_PKG_VERSION"))), "{said}");
}
