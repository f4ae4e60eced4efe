//! Recognises files that are not models.

/// Returns what the file is and what to do, if it is a well-known format other than ONNX.
pub(super) fn foreign_format(bytes: &[u8]) -> Option<&'static str> {
    const MAGICS: [(&[u8], &str); 14] = [
        (b"\x89PNG", "a PNG picture: the model and the picture may be swapped"),
        (b"\xff\xd8\xff", "a JPEG picture: the model and the picture may be swapped"),
        (b"GIF8", "a GIF picture: the model and the picture may be swapped"),
        (b"RIFF", "a WebP picture or an AVI video: the model and the source may be swapped"),
        (b"PK\x03\x04", "a ZIP archive, perhaps a PyTorch model: unpack it, or export the model to ONNX"),
        (b"\x1f\x8b", "a gzip archive: unpack it"),
        (b"\x28\xb5\x2f\xfd", "a zstd archive: unpack it"),
        (b"ftrt", "a TensorRT engine: name the .onnx file that it was built from"),
        (b"ptrt", "a TensorRT engine: name the .onnx file that it was built from"),
        (b"vtrt", "a TensorRT engine: name the .onnx file that it was built from"),
        (b"\x7fELF", "a program or library: name the .onnx file"),
        (b"version https://git-lfs", "a Git LFS pointer to the model: run `git lfs pull`"),
        (b"<", "a web page or XML: the download returned an error page; open its address in a browser"),
        (b"\x80\x02", "a Python pickle, perhaps a PyTorch model: export the model to ONNX"),
    ];
    if let Some((_, found)) = MAGICS.iter().find(|(magic, _)| bytes.starts_with(magic)) {
        return Some(found);
    }
    if bytes.get(4..8) == Some(b"TFL3") {
        return Some("a TensorFlow Lite model: export the model to ONNX");
    }
    if bytes.get(4..8) == Some(b"ftyp") {
        return Some("an MP4 video: the model and the source may be swapped");
    }
    let start = &bytes[..bytes.len().min(256)];
    let printable = |byte: &u8| matches!(byte, b' '..=b'~' | b'\t' | b'\r' | b'\n');
    // An ONNX file starts with byte 8 (a number field), which is not printable.
    (start.iter().filter(|byte| printable(byte)).count() == start.len())
        .then_some("plain text: name the .onnx file, or download it again")
}
