//! The bindings match the kernel's headers: sizes and offsets of every structure, and the numbers of the ioctls.
//!
//! `bindings.rs` checks the layout of its structures against figures, on every architecture that compiles it. Here a C compiler
//! checks the same figures against `linux/videodev2.h`: this machine's, and those of x86-64 and arm64 that zig has.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::collections::HashMap;
use std::fmt::Write;
use std::process::Command;

use v4l::v4l2::vidioc;
use v4l2_sys_mit as sys;

const BINDINGS: &str = include_str!("../src/bindings.rs");

/// Linux 6.12 gave it three more fields; it stands in the union of `v4l2_format`, which has room.
const GROWN: &str = "v4l2_meta_format";

/// A structure's or union's fields: name and type.
fn structures() -> HashMap<&'static str, Vec<(&'static str, &'static str)>> {
    let mut found = HashMap::new();
    let mut lines = BINDINGS.lines();
    while let Some(line) = lines.next() {
        let Some(name) = line.strip_prefix("pub struct ").or_else(|| line.strip_prefix("pub union ")) else { continue };
        let fields = lines.by_ref().take_while(|line| *line != "}").filter_map(|line| {
            let (name, kind) = line.trim().strip_prefix("pub ")?.split_once(": ")?;
            Some((name, kind.trim_end_matches(',')))
        });
        found.insert(name.strip_suffix(" {").unwrap(), fields.collect());
    }
    found
}

/// A structure's name in C.
fn c_type(name: &str, unions: &str) -> String {
    let kind = if unions.contains(&format!("pub union {name} {{")) { "union" } else { "struct" };
    format!("{kind} {name}")
}

/// A field's name in C: bindgen sets an underscore behind a word that Rust keeps for itself.
fn in_c(field: &str) -> &str {
    field.strip_suffix('_').filter(|field| ["match", "priv", "type"].contains(field)).unwrap_or(field)
}

/// Where a structure stands that has no name of its own: in which structure, as which field (none where that has no name, too).
fn holder<'a>(name: &str, structures: &HashMap<&'a str, Vec<(&'a str, &'a str)>>) -> Option<(&'a str, &'a str)> {
    structures.iter().find_map(|(outer, fields)| {
        let (field, _) = fields.iter().find(|(_, kind)| *kind == name || kind.starts_with(&format!("[{name};")))?;
        Some((*outer, *field))
    })
}

/// A C program that compiles if the headers agree, and how many figures it checks.
fn assertions() -> (String, usize) {
    let structures = structures();
    let mut program = String::from("#include <stddef.h>\n#include <linux/videodev2.h>\n");
    let mut checked = 0;
    let mut check = |expression: String, value: u64| {
        writeln!(program, "_Static_assert({expression} == {value}u, \"{expression} is not {value}\");").unwrap();
        checked += 1;
    };
    // The name in C of a field, seen from the outermost structure that has a name: that structure, and the path to the field.
    let path = |structure: &str, field: &str| -> (String, String) {
        let (mut outer, mut path) = (structure.to_owned(), field.to_owned());
        while outer.contains("__bindgen_ty_") {
            let (next, by) = holder(&outer, &structures).unwrap_or_else(|| panic!("nothing holds {outer}"));
            if !by.starts_with("__bindgen_anon_") {
                path = format!("{by}.{path}");
            }
            outer = next.to_owned();
        }
        (outer, path)
    };
    let figures: String = BINDINGS.split_whitespace().collect::<Vec<_>>().join(" ");
    for figure in figures.split("[\"").skip(1) {
        let (title, rest) = figure.split_once("\"]").unwrap();
        let value: u64 = rest.split_once("- ").unwrap().1.split_once("usize").unwrap().0.parse().unwrap();
        if let Some(name) = title.strip_prefix("Size of ") {
            if !name.contains("__bindgen_ty_") && name != GROWN {
                check(format!("sizeof({})", c_type(name, BINDINGS)), value);
            }
        } else if let Some(name) = title.strip_prefix("Alignment of ") {
            if !name.contains("__bindgen_ty_") {
                check(format!("_Alignof({})", c_type(name, BINDINGS)), value);
            }
        } else if let Some((name, field)) =
            title.strip_prefix("Offset of field: ").and_then(|rest| rest.split_once("::"))
        {
            // Newer headers take new fields from the front of what is reserved.
            if field.starts_with("__bindgen_") || field.starts_with("reserved") {
                continue;
            }
            let field = in_c(field);
            let (outer, path) = path(name, field);
            // A nested union has its own beginning, so the field's distance from it is checked.
            let own = structures[name].iter().map(|(field, _)| *field).next().unwrap_or_default();
            if outer == name {
                check(format!("offsetof({}, {path})", c_type(&outer, BINDINGS)), value);
            } else if !own.starts_with("__bindgen_") {
                let own = in_c(own);
                let first = path.rsplit_once('.').map_or(own.to_owned(), |(before, _)| format!("{before}.{own}"));
                let outer = c_type(&outer, BINDINGS);
                check(format!("offsetof({outer}, {path}) - offsetof({outer}, {first})"), value);
            }
        }
    }
    macro_rules! numbers {
        ($from:ident: $($name:ident)*) => {
            $(check(stringify!($name).to_owned(), $from::$name as u64);)*
        };
    }
    numbers! {
        vidioc: VIDIOC_QUERYCAP VIDIOC_ENUM_FMT VIDIOC_G_FMT VIDIOC_S_FMT VIDIOC_TRY_FMT VIDIOC_REQBUFS VIDIOC_QUERYBUF VIDIOC_QBUF
        VIDIOC_DQBUF VIDIOC_STREAMON VIDIOC_STREAMOFF VIDIOC_G_PARM VIDIOC_S_PARM VIDIOC_G_INPUT VIDIOC_S_INPUT VIDIOC_ENUMINPUT
        VIDIOC_QUERY_EXT_CTRL VIDIOC_QUERYMENU VIDIOC_G_EXT_CTRLS VIDIOC_S_EXT_CTRLS VIDIOC_ENUM_FRAMESIZES
        VIDIOC_ENUM_FRAMEINTERVALS VIDIOC_EXPBUF
    }
    numbers! {
        sys: VIDIOC_S_DV_TIMINGS VIDIOC_G_DV_TIMINGS VIDIOC_DQEVENT VIDIOC_SUBSCRIBE_EVENT VIDIOC_QUERY_DV_TIMINGS
    }
    (program, checked)
}

fn compile(compiler: &[&str], program: &str) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("assertions.c"), program).unwrap();
    let (name, arguments) = compiler.split_first().unwrap();
    let command = ["-std=gnu11", "-c", "assertions.c"];
    let output = Command::new(name).args(arguments).args(command).current_dir(folder.path()).output().unwrap();
    assert!(output.status.success(), "{compiler:?}:\n{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn this_machines_headers_have_the_same_layout_and_ioctls() {
    let (program, checked) = assertions();
    assert!(checked > 500, "only {checked} figures were found in bindings.rs");
    compile(&["cc"], &program);
}

#[test]
fn a_figure_that_differs_does_not_compile() {
    let (program, _) = assertions();
    let wrong = program.replacen("== 208u", "== 209u", 1);
    assert_ne!(wrong, program, "a v4l2_format has 208 bytes");
    assert!(std::panic::catch_unwind(|| compile(&["cc"], &wrong)).is_err());
}

#[test]
#[ignore = "needs zig: ./test --all"]
fn the_headers_of_both_architectures_have_the_same_layout_and_ioctls() {
    let zig = std::env::var("VISIOND_TEST_ZIG").expect("VISIOND_TEST_ZIG names zig");
    let (program, _) = assertions();
    for target in ["x86_64-linux-gnu", "aarch64-linux-gnu"] {
        compile(&[&zig, "cc", "-target", target], &program);
    }
}
