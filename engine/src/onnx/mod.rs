//! The CPU backends for `.onnx`.
