use std::io::Write;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let mut d = visiond_kernels::jpeg::JpegDecoder::new();
    for f in &a[2..] {
        let b = std::fs::read(f).unwrap();
        let mut o = std::fs::File::create(format!(
            "{}/{}.rgb",
            a[1],
            std::path::Path::new(f).file_name().unwrap().to_str().unwrap()
        ))
        .unwrap();
        match d.header(&b) {
            Ok((w, h)) => {
                let mut v = vec![0u8; (w * h * 3) as usize];
                let t = std::time::Instant::now();
                match d.decode(&b, &mut v) {
                    Ok(_) => {
                        o.write_all(&v).unwrap();
                        println!("{f} {w}x{h} {:?}", t.elapsed())
                    }
                    Err(e) => println!("{f} ERR {e}"),
                }
            }
            Err(e) => println!("{f} HERR {e}"),
        }
    }
}
