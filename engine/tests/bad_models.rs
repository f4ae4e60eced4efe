//! Models that cannot be loaded or run: each a typed error that names the file and the remedy, and never a panic.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::path::Path;

use common::*;
use proptest::prelude::*;
use rten_onnx::onnx::{
    DataType, ModelProto, OperatorSetIdProto, TensorProto, TypeProto, TypeProtoSequence, ValueInfoProto,
};
use visiond_engine::engine::{Backend, Engine, EngineError, EngineOptions};
use visiond_engine::onnx::file::OnnxFile;

fn good() -> ModelProto {
    let nodes = vec![node("Relu", &["x"], &["a"]), node("Relu", &["a"], &["y"])];
    let mut graph = graph(
        nodes,
        vec![value("x", DataType::FLOAT, Some(dims(&[1, 4])))],
        vec![value("y", DataType::FLOAT, Some(dims(&[1, 4])))],
    );
    graph.initializer.push(weights("unused", &[64], &[0.5; 64]));
    model(graph)
}

fn refused(path: &Path) -> EngineError {
    let errors: Vec<_> = backends().into_iter().map(|b| Engine::load(path, &options(b)).unwrap_err()).collect();
    let text = OnnxFile::read(path).unwrap_err().to_string();
    assert!(errors.iter().all(|error| error.to_string() == text), "{errors:?}");
    assert!(text.contains(&path.display().to_string()), "{text}");
    errors.into_iter().next().unwrap()
}

#[test]
fn what_is_not_a_model_is_told_for_what_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("m.onnx");
    assert!(matches!(refused(&path), EngineError::Missing { .. }));
    assert!(matches!(refused(directory.path()), EngineError::Directory { .. }));
    let endless = refused(Path::new("/dev/zero")).to_string();
    assert!(endless.contains("a device or a pipe"), "{endless}");
    // It takes no room on the disk, and must take none in memory.
    std::fs::File::create(&path).unwrap().set_len(1 << 31).unwrap();
    let large = refused(&path).to_string();
    assert!(large.contains("at most 2 GiB; export it with its weights"), "{large}");
    std::fs::write(&path, "").unwrap();
    assert!(matches!(refused(&path), EngineError::Empty { .. }));
    let cases: [(&[u8], &str); 18] = [
        (b"\x89PNG\r\n\x1a\n and so on", "a PNG picture"),
        (b"hello, world\n", "plain text"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "git lfs pull"),
        (b"<!DOCTYPE html><html>404</html>", "a web page"),
        (b"PK\x03\x04archive/data.pkl", "a ZIP archive"),
        (b"\x1c\0\0\0TFL3and so on", "TensorFlow Lite"),
        (b"\xff\xd8\xff\xe0", "a JPEG picture"),
        (b"GIF89a\x01", "a GIF picture"),
        (b"RIFF\0\0\0\0WEBP", "a WebP picture"),
        (b"\x1f\x8b\x08", "a gzip archive"),
        (b"\x28\xb5\x2f\xfd\x01", "a zstd archive"),
        (b"\x7fELF\x02", "a program or library"),
        (b"\x80\x02}q\x01", "a Python pickle"),
        (b"\0\0\0\x20ftypisom", "an MP4 video"),
        (&[0xff; 100], "an unknown format"),
        // The version of the format is 0; a number, and then nothing of a model; the name of a producer, and then damage.
        (&[0x08, 0], "an unknown format"),
        (&[0x08, 9, 0x12, 1, b'x'], "an unknown format"),
        (&[0x12, 1, b'x', 0x0a, 0x7f], "an unknown format"),
    ];
    for (bytes, says) in cases {
        std::fs::write(&path, bytes).unwrap();
        let error = refused(&path);
        assert!(matches!(&error, EngineError::NotOnnx(_, found) if found.contains(says)), "{error}");
    }
    // The version of the format, and then a field that is cut off, or the operator sets without a graph.
    for bytes in [&[0x08, 9, 0x0a, 0x7f][..], &[0x08, 9, 0x42, 2, 0x10, 17]] {
        std::fs::write(&path, bytes).unwrap();
        assert!(matches!(refused(&path), EngineError::Truncated { .. }));
    }
}

#[test]
fn the_model_that_is_spoilt_below_is_good() {
    let directory = tempfile::tempdir().unwrap();
    let path = write(directory.path(), "m.onnx", &good());
    for backend in backends() {
        load(backend, &path);
    }
}

#[test]
fn a_model_cut_off_anywhere_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("m.onnx");
    let whole = encode(&good());
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let error = refused(&path);
    assert!(matches!(error, EngineError::Truncated { .. }), "{error}");
    assert!(error.to_string().contains("copy or download it again"));
    for len in 1..whole.len() {
        std::fs::write(&path, &whole[..len]).unwrap();
        OnnxFile::read(&path).unwrap_err();
    }
}

#[test]
fn an_unknown_operator_is_named_with_its_node() {
    let directory = tempfile::tempdir().unwrap();
    for domain in ["", "com.acme"] {
        let mut odd = good();
        let opset = OperatorSetIdProto { domain: Some("com.acme".to_owned()), version: Some(1) };
        odd.opset_import.push(opset);
        let graph = odd.graph.as_mut().unwrap();
        graph.node[1].op_type = Some("Unheard".to_owned());
        graph.node[1].name = Some("layer7/odd".to_owned());
        graph.node[1].domain = Some(domain.to_owned());
        let path = write(directory.path(), "m.onnx", &odd);
        assert_eq!(OnnxFile::read(&path).unwrap().operators.len(), 2);
        for backend in backends() {
            let error = Engine::load(&path, &options(backend)).unwrap_err();
            let EngineError::UnknownOperator { operator, node, .. } = &error else { panic!("{backend}: {error}") };
            assert_eq!((operator.as_str(), node.as_deref()), ("Unheard", Some("layer7/odd")), "{backend}: {error}");
            assert!(error.to_string().contains(&backend.to_string()), "{error}");
        }
    }
}

#[test]
fn weights_that_are_missing_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let mut model = good();
    let graph = model.graph.as_mut().unwrap();
    graph.node[0] = node("Mul", &["x", "w"], &["a"]);
    graph.initializer.push(external("w", &[4], "m.onnx.data"));
    let path = write(directory.path(), "m.onnx", &model);
    for backend in backends() {
        let error = Engine::load(&path, &options(backend)).unwrap_err();
        assert!(matches!(&error, EngineError::ExternalData { file, .. } if file.ends_with("m.onnx.data")), "{error}");
    }
    // Too short is an error as well, in the backend's words.
    std::fs::write(directory.path().join("m.onnx.data"), [0; 3]).unwrap();
    for backend in backends() {
        let error = Engine::load(&path, &options(backend)).unwrap_err();
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    }
}

#[test]
fn weights_outside_of_the_models_directory_are_not_read() {
    let directory = tempfile::tempdir().unwrap();
    for file in ["../secret.data", "/etc/passwd", "a/../../secret.data"] {
        let mut model = good();
        model.graph.as_mut().unwrap().initializer.push(external("w", &[2], file));
        let path = write(directory.path(), "m.onnx", &model);
        for backend in backends() {
            let error = Engine::load(&path, &options(backend)).unwrap_err();
            assert!(matches!(error, EngineError::Malformed { .. }), "{error}");
            assert!(error.to_string().contains(file), "{error}");
        }
    }
    // Nor through a link.
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::os::unix::fs::symlink(secret.path(), directory.path().join("m.data")).unwrap();
    let mut model = good();
    model.graph.as_mut().unwrap().initializer.push(external("w", &[2], "m.data"));
    let path = write(directory.path(), "m.onnx", &model);
    for backend in backends() {
        let error = Engine::load(&path, &options(backend)).unwrap_err();
        assert!(matches!(error, EngineError::Malformed { .. }), "{error}");
    }
}

#[test]
fn an_output_that_is_not_a_tensor_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let mut model = good();
    let graph = model.graph.as_mut().unwrap();
    graph.node[1].op_type = Some("SequenceConstruct".to_owned());
    let inner = value("", DataType::FLOAT, Some(dims(&[1, 4]))).r#type;
    let sequence = Some(Box::new(TypeProtoSequence { elem_type: inner }));
    let kind = TypeProto { tensor_type: None, sequence };
    graph.output[0] = ValueInfoProto { name: Some("y".to_owned()), r#type: Some(kind) };
    let path = write(directory.path(), "m.onnx", &model);
    assert_eq!(OnnxFile::read(&path).unwrap().foreign[0].found, "a sequence");
    for backend in backends() {
        let error = Engine::load(&path, &options(backend)).unwrap_err();
        assert!(error.to_string().contains("output `y` is a sequence, which cannot be read"), "{error}");
    }
}

#[test]
fn shapes_that_do_not_fit_inside_are_an_error_of_the_run() {
    let directory = tempfile::tempdir().unwrap();
    let open = || Some(vec![D::Named("n")]);
    let mut graph = graph(
        vec![node("Add", &["x", "w"], &["y"])],
        vec![value("x", DataType::FLOAT, open())],
        vec![value("y", DataType::FLOAT, Some(vec![D::Named("m")]))],
    );
    graph.initializer.push(weights("w", &[3], &[1.0, 2.0, 3.0]));
    let path = write(directory.path(), "m.onnx", &model(graph));
    for backend in backends() {
        let mut session = load(backend, &path).session().unwrap();
        session.set_input_shape(0, &[2]).unwrap();
        let error = session.run().unwrap_err();
        assert!(matches!(error, EngineError::Run { .. }), "{error}");
        // The session continues with a shape that fits.
        session.set_input_shape(0, &[3]).unwrap();
        assert_eq!(run(&mut session).1, [1.0, 2.0, 3.0]);
    }
}

#[test]
fn a_computed_shape_whose_product_wraps_is_an_error_of_the_run() {
    let directory = tempfile::tempdir().unwrap();
    let x = value("x", DataType::FLOAT, Some(dims(&[8])));
    let mut graph =
        graph(vec![node("Expand", &["x", "shape"], &["y"])], vec![x], vec![value("y", DataType::FLOAT, None)]);
    // 2^64 elements.
    let shape = TensorProto {
        name: Some("shape".to_owned()),
        dims: vec![4],
        data_type: Some(DataType::INT64),
        int64_data: vec![1 << 30, 1 << 29, 4, 8],
        ..TensorProto::default()
    };
    graph.initializer.push(shape);
    let path = write(directory.path(), "m.onnx", &model(graph));
    for backend in backends() {
        let result = Engine::load(&path, &options(backend)).and_then(|engine| engine.session()?.run());
        let error = result.unwrap_err();
        assert!(
            matches!(error, EngineError::Run(..) | EngineError::Load(..) | EngineError::Panicked(..)),
            "{backend}: {error}"
        );
    }
}

#[test]
fn onnx_runtime_asked_for_where_it_is_not_is_an_error_with_its_path() {
    let directory = tempfile::tempdir().unwrap();
    let path = write(directory.path(), "m.onnx", &good());
    backends();
    for backend in [None, Some(Backend::OnnxRuntime)] {
        let onnxruntime_library = Some(directory.path().join("libonnxruntime.so"));
        let options = EngineOptions { backend, onnxruntime_library, ..EngineOptions::default() };
        let error = Engine::load(&path, &options).unwrap_err();
        assert!(matches!(error, EngineError::LibraryUnusable { .. }), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn damage_is_an_error_or_another_model_but_never_a_panic(
        hits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)
    ) {
        let directory = tempfile::tempdir().unwrap();
        let mut bytes = encode(&good());
        for (at, byte) in hits {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let path = directory.path().join("m.onnx");
        std::fs::write(&path, bytes).unwrap();
        for backend in backends() {
            if let Ok(engine) = Engine::load(&path, &options(backend)) {
                let mut session = engine.session().unwrap();
                let _ = session.run();
            }
        }
    }
}

#[test]
fn names_that_no_error_could_show_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("m.onnx");
    let long = "x".repeat(1 << 20);
    let named: &'static str = Box::leak(long.clone().into_boxed_str());
    let inputs =
        [value(&long, DataType::FLOAT, Some(dims(&[1, 4]))), value("z", DataType::FLOAT, Some(vec![D::Named(named)]))];
    for input in inputs {
        let mut model = good();
        model.graph.as_mut().unwrap().input.push(input);
        write(directory.path(), "m.onnx", &model);
        let error = refused(&path).to_string();
        assert!(error.contains("has a name of 1048576 bytes, more than 1000; copy or export it again"), "{error}");
    }
}
