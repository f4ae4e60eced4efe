//! Opens a file that the configuration names, and rejects anything whose opening or reading could block.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens `path` for reading.
///
/// # Errors
/// The system's error, or `InvalidInput` for a device, a pipe or a socket. Reading a folder fails with the system's error.
pub fn open(path: &Path) -> io::Result<File> {
    // Without O_NONBLOCK, opening a FIFO without a writer would never return.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() && !metadata.is_dir() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is a device or a pipe, not a file: copy it into one"));
    }
    Ok(file)
}

/// Reads `path`, which may have at most `most` bytes.
///
/// # Errors
/// Those of [`open`], and `FileTooLarge`.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let reason = format!("it has more than {most} bytes: name the right file");
        return Err(io::Error::new(ErrorKind::FileTooLarge, reason));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::testing::make_fifo;

    #[test]
    fn neither_a_pipe_without_a_writer_nor_an_endless_device_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        make_fifo(&fifo);
        for path in [&fifo, Path::new("/dev/zero"), Path::new("/dev/null")] {
            let error = read(path, 100).unwrap_err();
            assert!(error.to_string().starts_with("it is a device or a pipe"), "{}: {error}", path.display());
        }
        assert_eq!(read(folder.path(), 100).unwrap_err().kind(), ErrorKind::IsADirectory);
        let file = folder.path().join("file");
        std::fs::write(&file, [7; 100]).unwrap();
        assert_eq!(read(&file, 100).unwrap().len(), 100);
        assert_eq!(read(&file, 99).unwrap_err().kind(), ErrorKind::FileTooLarge);
    }
}
