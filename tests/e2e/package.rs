//! The Debian packages of `./package all`, inspected without installing them. `./test --all` builds
//! them, names their folder in `VISIOND_PACKAGES` and runs these tests.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The packages.
fn packages() -> Vec<PathBuf> {
    let folder = std::env::var_os("VISIOND_PACKAGES").expect("set VISIOND_PACKAGES to the folder of the packages");
    let entries = std::fs::read_dir(root().join(folder)).unwrap();
    let found: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "deb"))
        .collect();
    assert!(!found.is_empty(), "VISIOND_PACKAGES names a folder without packages: run ./package all");
    found
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn run(program: &str, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).current_dir(root()).output().unwrap()
}

fn text(program: &str, arguments: &[&str]) -> String {
    let output = run(program, arguments);
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
#[ignore = "needs packages: ./test --all"]
fn a_package_has_the_expected_files_and_root_owns_them() {
    const EXPECTED: &[(&str, &str)] = &[
        ("./usr/bin/visiond", "-rwxr-xr-x"),
        ("./etc/visiond/visiond.toml", "-rw-r--r--"),
        ("./usr/lib/systemd/system/visiond.service", "-rw-r--r--"),
        ("./usr/lib/systemd/system/visiond-bundles.service", "-rw-r--r--"),
        ("./usr/lib/systemd/system/visiond@.service", "-rw-r--r--"),
        ("./usr/lib/sysusers.d/visiond.conf", "-rw-r--r--"),
        ("./usr/lib/tmpfiles.d/visiond.conf", "-rw-r--r--"),
        ("./usr/lib/udev/rules.d/70-visiond.rules", "-rw-r--r--"),
        ("./usr/share/visiond/models/nanodet-g-416.onnx", "-rw-r--r--"),
        ("./usr/share/visiond/models/nanodet-g-416.toml", "-rw-r--r--"),
        ("./usr/share/visiond/schema/message.schema.json", "-rw-r--r--"),
        ("./usr/share/man/man1/visiond.1.gz", "-rw-r--r--"),
        ("./usr/share/man/man1/visiond-run.1.gz", "-rw-r--r--"),
        ("./usr/share/man/man5/visiond.toml.5.gz", "-rw-r--r--"),
        ("./usr/share/lintian/overrides/visiond", "-rw-r--r--"),
        ("./usr/share/bash-completion/completions/visiond", "-rw-r--r--"),
        ("./usr/share/zsh/vendor-completions/_visiond", "-rw-r--r--"),
        ("./usr/share/fish/vendor_completions.d/visiond.fish", "-rw-r--r--"),
        ("./usr/share/doc/visiond/copyright", "-rw-r--r--"),
        ("./usr/share/doc/visiond/changelog.gz", "-rw-r--r--"),
        ("./usr/share/doc/visiond/changelog.Debian.gz", "-rw-r--r--"),
        ("./usr/share/doc/visiond/examples/visiond.toml", "-rw-r--r--"),
    ];
    for package in packages() {
        let listing = text("dpkg-deb", &["--contents", package.to_str().unwrap()]);
        let mut found = BTreeSet::new();
        for line in listing.lines() {
            let words: Vec<_> = line.split_whitespace().collect();
            assert_eq!(words[1], "root/root", "{line}");
            assert!(!words[0][1..].contains('s') && words[0].chars().nth(8) != Some('w'), "{line}");
            found.insert((words[5].to_owned(), words[0].to_owned()));
        }
        for (path, mode) in EXPECTED {
            assert!(found.contains(&((*path).to_owned(), (*mode).to_owned())), "{} lacks {path}", package.display());
        }
    }
}

#[test]
#[ignore = "needs packages: ./test --all"]
fn a_package_its_program_and_its_changelog_have_the_same_version() {
    for package in packages() {
        let path = package.to_str().unwrap();
        let version = text("dpkg-deb", &["--field", path, "Version"]);
        let version = version.trim();
        let tree = tempfile::tempdir().unwrap();
        let folder = tree.path().to_str().unwrap();
        text("dpkg-deb", &["--extract", path, folder]);
        let changes = text("gzip", &["-dc", &format!("{folder}/usr/share/doc/visiond/changelog.gz")]);
        let newest = changes.lines().find(|line| line.starts_with("## [") && !line.contains("Unreleased"));
        assert!(newest.is_some_and(|line| line.starts_with(&format!("## [{version}] - "))), "{path}: {newest:?}");
        if path.ends_with("_amd64.deb") && cfg!(target_arch = "x86_64") {
            let said = text(&format!("{folder}/usr/bin/visiond"), &["--version"]);
            assert!(said.starts_with(&format!("visiond {version}\n")), "{path}: {said}");
        }
    }
}

#[test]
#[ignore = "needs packages: ./test --all"]
fn lintian_finds_no_error() {
    for package in packages() {
        let mut lintian = Command::new("lintian");
        lintian.args(["--fail-on", "error"]).arg(&package);
        let output = lintian.output().expect("lintian checks the packages: tests/setup --all installs it");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
#[ignore = "needs packages: ./test --all"]
fn programs_need_no_newer_glibc_than_the_package_says() {
    for package in packages() {
        let tree = tempfile::tempdir().unwrap();
        let folder = tree.path().to_str().unwrap();
        text("dpkg-deb", &["--raw-extract", package.to_str().unwrap(), folder]);
        let control = std::fs::read_to_string(tree.path().join("DEBIAN/control")).unwrap();
        assert!(control.contains("libc6 (>= 2.31)"), "{control}");
        assert_eq!(
            std::fs::read_to_string(tree.path().join("DEBIAN/conffiles")).unwrap(),
            "/etc/visiond/visiond.toml\n"
        );
        let check = |glibc: &str| {
            let script = format!(". systemd/deb/build.sh; {glibc} check_binary {folder}/usr/bin/visiond");
            run("bash", &["-euo", "pipefail", "-c", &script])
        };
        assert!(check("").status.success(), "{:?}", check(""));
        // Proves that the check can fail.
        let refused = check("glibc=2.20;");
        assert!(!refused.status.success());
        let message = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(message.contains("but the package supports GLIBC_2.20 and newer"), "{message}");
    }
}

/// The most bytes that a package's program may have: a little more than it had when this was last set.
/// `tests/bench/weight.py` shows which crate grew.
const MOST_BYTES: [(&str, u64); 2] = [("amd64", 24_400_000), ("arm64", 20_300_000)];

#[test]
#[ignore = "needs packages: ./test --all"]
fn programs_stay_below_their_limit_of_bytes() {
    for package in packages() {
        let tree = tempfile::tempdir().unwrap();
        text("dpkg-deb", &["--extract", package.to_str().unwrap(), tree.path().to_str().unwrap()]);
        let name = package.file_stem().unwrap().to_str().unwrap();
        let (_, most) = MOST_BYTES.into_iter().find(|(architecture, _)| name.ends_with(architecture)).unwrap();
        let bytes = std::fs::metadata(tree.path().join("usr/bin/visiond")).unwrap().len();
        assert!(bytes <= most, "{name}: {bytes} bytes, more than {most}");
    }
}

#[test]
#[ignore = "needs packages: ./test --all"]
fn every_crate_inside_is_in_the_copyright_file() {
    for package in packages() {
        let tree = tempfile::tempdir().unwrap();
        let folder = tree.path().to_str().unwrap();
        text("dpkg-deb", &["--extract", package.to_str().unwrap(), folder]);
        let copyright = std::fs::read_to_string(tree.path().join("usr/share/doc/visiond/copyright")).unwrap();
        let name = package.file_stem().unwrap().to_str().unwrap();
        let target = if name.ends_with("arm64") { "aarch64-unknown-linux-gnu" } else { "x86_64-unknown-linux-gnu" };
        let arguments = [
            "tree",
            "--locked",
            "--package",
            "visiond",
            "--target",
            target,
            "--edges",
            "normal,no-proc-macro",
            "--prefix",
            "none",
            "--format",
            "{p}",
        ];
        let mut counted = 0;
        for line in text(env!("CARGO"), &arguments).lines() {
            let mut words = line.split_whitespace();
            let (crate_name, version) = (words.next().unwrap(), words.next().unwrap().trim_start_matches('v'));
            // Our own crates are listed with their folder.
            if words.next().is_none_or(|folder| folder == "(*)") {
                assert!(copyright.contains(&format!("\n  {crate_name} {version}: ")), "{name}: {line}");
                counted += 1;
            }
        }
        assert!(counted > 50, "{counted}");
    }
}
