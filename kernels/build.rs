//! Packs the PTX of the GPU's kernels: text of half a megabyte, of which a fifth is left.

use std::error::Error;
use std::fs::File;
use std::path::Path;
use std::{env, fs, io};

use flate2::Compression;
use flate2::write::DeflateEncoder;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=ptx");
    let out = env::var("OUT_DIR")?;
    for name in ["filter", "mask", "preprocess", "privacy"] {
        let text = fs::read(format!("ptx/{name}.ptx"))?;
        let mut packed = DeflateEncoder::new(File::create(Path::new(&out).join(name))?, Compression::best());
        io::copy(&mut text.as_slice(), &mut packed)?;
        packed.finish()?;
    }
    Ok(())
}
