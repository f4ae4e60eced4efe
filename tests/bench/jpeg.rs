//! Our half of jpeg.py: decodes each image several times and prints the median of the thread's CPU time.
//!
//! Usage: jpeg FOLDER FILE... Writes FOLDER/NAME.rgb and prints a line `NAME milliseconds` for each.

use std::path::Path;
use std::{env, fs, io};

use visiond_kernels::jpeg::{JpegDecoder, JpegHeader};

const ROUNDS: usize = 15;

fn main() -> io::Result<()> {
    let mut arguments = env::args().skip(1);
    let folder = arguments.next().ok_or_else(|| io::Error::other("usage: jpeg FOLDER FILE..."))?;
    let mut decoder = JpegDecoder::new();
    for file in arguments {
        let bytes = fs::read(&file)?;
        let JpegHeader { width, height, .. } = decoder.header(&bytes).map_err(io::Error::other)?;
        let mut picture = vec![0; width as usize * height as usize * 3];
        let mut times = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            let start = processor_time_ms();
            decoder.decode(&bytes, &mut picture).map_err(io::Error::other)?;
            times.push(processor_time_ms() - start);
        }
        times.sort_by(f64::total_cmp);
        let name = Path::new(&file).file_name().unwrap_or_default().to_string_lossy();
        fs::write(Path::new(&folder).join(format!("{name}.rgb")), &picture)?;
        println!("{name} {:.3}", times[ROUNDS / 2]);
    }
    Ok(())
}

/// The thread's CPU time, which excludes other programs.
fn processor_time_ms() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid to write; the clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}
