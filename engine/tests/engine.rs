//! Models loaded and run by every backend that is there.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeMap;
use std::path::Path;

use common::*;
use half::f16;
use rten_onnx::onnx::{DataType, ModelProto, StringStringEntryProto};
use visiond_engine::engine::{Backend, Dim, Engine, EngineError, EngineOptions};
use visiond_engine::onnx::file::OnnxFile;
use visiond_kernels::tensor::DType;

/// y = x + x, of the given type and shape.
fn doubling(dtype: DataType, shape: fn() -> Option<Vec<D>>) -> ModelProto {
    let nodes = vec![node("Add", &["x", "x"], &["y"])];
    model(graph(nodes, vec![value("x", dtype, shape())], vec![value("y", dtype, shape())]))
}

#[test]
fn a_network_runs_over_what_was_written_into_its_input() {
    let directory = tempfile::tempdir().unwrap();
    let path = write(directory.path(), "m.onnx", &doubling(DataType::FLOAT, || Some(dims(&[1, 3]))));
    for backend in backends() {
        let engine = load(backend, &path);
        assert_eq!(engine.backend(), backend);
        assert_eq!(engine.inputs()[0].to_string(), "x f32 [1, 3]");
        let mut session = engine.session().unwrap();
        set_f32(&mut session, 0, &[1.0, -2.0, 0.5]);
        assert_eq!(run(&mut session), (vec![1, 3], vec![2.0, -4.0, 1.0]));
        // The input keeps what was written; the next run gives the same.
        assert_eq!(run(&mut session).1, [2.0, -4.0, 1.0]);
    }
}

#[test]
fn sessions_of_one_engine_have_their_own_tensors_and_run_at_the_same_time() {
    let directory = tempfile::tempdir().unwrap();
    let path = write(directory.path(), "m.onnx", &doubling(DataType::FLOAT, || Some(dims(&[1, 64]))));
    for backend in backends() {
        let engine = load(backend, &path);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let mut session = engine.session().unwrap();
                scope.spawn(move || {
                    for round in 0..200 {
                        let number = (thread * 1000 + round) as f32;
                        set_f32(&mut session, 0, &[number; 64]);
                        assert_eq!(run(&mut session).1, [2.0 * number; 64]);
                    }
                });
            }
        });
    }
}

#[test]
fn a_session_outlives_its_engine() {
    let directory = tempfile::tempdir().unwrap();
    let path = write(directory.path(), "m.onnx", &doubling(DataType::FLOAT, || Some(dims(&[1]))));
    for backend in backends() {
        let mut session = load(backend, &path).session().unwrap();
        set_f32(&mut session, 0, &[4.0]);
        assert_eq!(run(&mut session).1, [8.0]);
    }
}

#[test]
fn open_dimensions_are_chosen_by_the_session_and_may_change() {
    let directory = tempfile::tempdir().unwrap();
    let shape = || Some(vec![D::Named("batch"), D::Is(2), D::Open]);
    let path = write(directory.path(), "m.onnx", &doubling(DataType::FLOAT, shape));
    for backend in backends() {
        let engine = load(backend, &path);
        let declared = [Dim::Dynamic("batch".into()), Dim::Fixed(2), Dim::Dynamic(String::new())];
        assert_eq!(engine.inputs()[0].shape.as_deref(), Some(&declared[..]));
        let mut session = engine.session().unwrap();
        let error = session.run().unwrap_err().to_string();
        assert!(error.contains("input `x` has no shape yet") && error.contains("[batch, 2, ?]"), "{error}");
        session.set_input_shape(0, &[1, 2, 3]).unwrap();
        set_f32(&mut session, 0, &[1.0; 6]);
        assert_eq!(run(&mut session).0, [1, 2, 3]);
        session.set_input_shape(0, &[2, 2, 1]).unwrap();
        assert_eq!(run(&mut session), (vec![2, 2, 1], vec![0.0; 4]));
        for (wrong, says) in [(&[1, 3, 3][..], "fixes"), (&[1, 2], "number of dimensions"), (&[1, 2, 0], "at least 1")]
        {
            let error = session.set_input_shape(0, wrong).unwrap_err().to_string();
            assert!(error.contains(says) && error.contains("`x`"), "{error}");
        }
        session.set_input_shape(0, &[usize::MAX, 2, 2]).unwrap_err();
    }
}

#[test]
fn a_fixed_size_is_overridden_where_the_network_works_at_others() {
    let directory = tempfile::tempdir().unwrap();
    // As CenterFace: declared for ten images of 32x32, convolutional all through; a shape in between says so too.
    let mut graph = graph(
        vec![node("MaxPool", &["x"], &["p"]), node("Relu", &["p"], &["y"])],
        vec![value("x", DataType::FLOAT, Some(dims(&[10, 1, 4, 4])))],
        vec![value("y", DataType::FLOAT, Some(dims(&[10, 1, 3, 3])))],
    );
    graph.node[0].attribute = vec![ints("kernel_shape", &[2, 2]), ints("strides", &[1, 1])];
    graph.value_info.push(value("p", DataType::FLOAT, Some(dims(&[10, 1, 3, 3]))));
    let path = write(directory.path(), "m.onnx", &model(graph));
    let shapes = BTreeMap::from([("x".to_owned(), vec![1, 1, 2, 3])]);
    let numbers = [1.0, 5.0, 2.0, 3.0, 4.0, -1.0];
    for backend in backends() {
        let engine = Engine::load(&path, &EngineOptions { input_shapes: shapes.clone(), ..options(backend) }).unwrap();
        assert_eq!(engine.inputs()[0].to_string(), "x f32 [1, 1, 2, 3]");
        assert_eq!(engine.outputs()[0].to_string(), "y f32 [?, ?, ?, ?]");
        let mut session = engine.session().unwrap();
        set_f32(&mut session, 0, &numbers);
        assert_eq!(run(&mut session), (vec![1, 1, 1, 2], vec![5.0, 5.0]));
        // And afterwards, on an engine as declared.
        let engine = load(backend, &path);
        let mut session = engine.session_with_shapes(&shapes).unwrap();
        set_f32(&mut session, 0, &numbers);
        assert_eq!(run(&mut session), (vec![1, 1, 1, 2], vec![5.0, 5.0]));
        let wrong = |name: &str, shape: &[usize]| {
            let input_shapes = BTreeMap::from([(name.to_owned(), shape.to_vec())]);
            Engine::load(&path, &EngineOptions { input_shapes, ..options(backend) }).unwrap_err().to_string()
        };
        assert!(wrong("z", &[1]).contains("no input `z`") && wrong("z", &[1]).contains("x f32 [10, 1, 4, 4]"));
        assert!(wrong("x", &[1]).contains("number of dimensions"));
        assert!(wrong("x", &[1, 0, 1, 1]).contains("at least 1"));
    }
}

#[test]
fn every_element_type_goes_in_and_comes_out() {
    let directory = tempfile::tempdir().unwrap();
    let cases = [
        (DataType::FLOAT, DType::F32),
        (DataType::FLOAT16, DType::F16),
        (DataType::INT32, DType::I32),
        (DataType::INT64, DType::I64),
        (DataType::UINT8, DType::U8),
        (DataType::INT8, DType::I8),
        (DataType::BOOL, DType::Bool),
    ];
    for (onnx, dtype) in cases {
        let nodes = vec![node("Identity", &["x"], &["y"])];
        let shape = || Some(dims(&[2]));
        let graph = graph(nodes, vec![value("x", onnx, shape())], vec![value("y", onnx, shape())]);
        let path = write(directory.path(), "m.onnx", &model(graph));
        for backend in backends() {
            let engine = load(backend, &path);
            assert_eq!(engine.inputs()[0].dtype, dtype);
            let mut session = engine.session().unwrap();
            match dtype {
                DType::F32 => set(&mut session, 0, [1.0_f32, 0.0].map(f32::to_ne_bytes)),
                DType::F16 => set(&mut session, 0, [1.0_f32, 0.0].map(|n| f16::from_f32(n).to_ne_bytes())),
                DType::I32 => set(&mut session, 0, [1_i32, 0].map(i32::to_ne_bytes)),
                DType::I64 => set(&mut session, 0, [1_i64, 0].map(i64::to_ne_bytes)),
                _ => set(&mut session, 0, [[1_u8], [0]]),
            }
            let (shape, numbers) = run(&mut session);
            assert_eq!((shape, numbers), (vec![2], vec![1.0, 0.0]), "{dtype} on {backend}");
            let found = session.output(0).unwrap().dtype();
            let expected = match (backend, dtype) {
                (Backend::Rten, DType::F16) => DType::F32,
                (Backend::Rten, DType::I64 | DType::Bool) => DType::I32,
                _ => dtype,
            };
            assert_eq!(found, expected, "{dtype} on {backend}");
        }
    }
}

#[test]
fn weights_listed_as_inputs_are_not_inputs() {
    let directory = tempfile::tempdir().unwrap();
    let inputs = vec![value("w", DataType::FLOAT, Some(dims(&[2]))), value("x", DataType::FLOAT, Some(dims(&[2])))];
    let mut graph =
        graph(vec![node("Mul", &["x", "w"], &["y"])], inputs, vec![value("y", DataType::FLOAT, Some(dims(&[2])))]);
    graph.initializer.push(weights("w", &[2], &[3.0, 4.0]));
    let mut old = model(graph);
    old.ir_version = Some(3);
    old.opset_import[0].version = Some(9);
    let path = write(directory.path(), "m.onnx", &old);
    for backend in backends() {
        let engine = load(backend, &path);
        assert_eq!(engine.inputs().iter().map(|i| i.name.as_str()).collect::<Vec<_>>(), ["x"]);
        let mut session = engine.session().unwrap();
        set_f32(&mut session, 0, &[1.0, 1.0]);
        assert_eq!(run(&mut session).1, [3.0, 4.0]);
    }
}

#[test]
fn weights_in_a_file_beside_the_model_are_found() {
    let directory = tempfile::tempdir().unwrap();
    let shape = || Some(vec![D::Named("n"), D::Is(2)]);
    let mut graph = graph(
        vec![node("Mul", &["x", "w"], &["y"])],
        vec![value("x", DataType::FLOAT, shape())],
        vec![value("y", DataType::FLOAT, shape())],
    );
    graph.initializer.push(external("w", &[2], "m.onnx.data"));
    let path = write(directory.path(), "m.onnx", &model(graph));
    std::fs::write(directory.path().join("m.onnx.data"), [5.0_f32, 6.0].map(f32::to_le_bytes).concat()).unwrap();
    let input_shapes = BTreeMap::from([("x".to_owned(), vec![1, 2])]);
    for backend in backends() {
        for input_shapes in [BTreeMap::new(), input_shapes.clone()] {
            let engine = Engine::load(&path, &EngineOptions { input_shapes, ..options(backend) }).unwrap();
            let mut session = engine.session().unwrap();
            session.set_input_shape(0, &[1, 2]).unwrap();
            set_f32(&mut session, 0, &[1.0, 1.0]);
            assert_eq!(run(&mut session).1, [5.0, 6.0], "{backend}");
        }
    }
}

#[test]
fn a_model_and_its_weights_may_be_links_into_one_store() {
    let (store, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let shape = || Some(vec![D::Is(1), D::Is(2)]);
    let mut graph = graph(
        vec![node("Mul", &["x", "w"], &["y"])],
        vec![value("x", DataType::FLOAT, shape())],
        vec![value("y", DataType::FLOAT, shape())],
    );
    graph.initializer.push(external("w", &[2], "m.onnx.data"));
    let stored = write(store.path(), "1f3a", &model(graph));
    std::fs::write(store.path().join("9c07"), [5.0_f32, 6.0].map(f32::to_le_bytes).concat()).unwrap();
    let path = cache.path().join("m.onnx");
    std::os::unix::fs::symlink(stored, &path).unwrap();
    std::os::unix::fs::symlink(store.path().join("9c07"), cache.path().join("m.onnx.data")).unwrap();
    let mut session = Engine::load(&path, &options(Backend::Rten)).unwrap().session().unwrap();
    set_f32(&mut session, 0, &[1.0, 1.0]);
    assert_eq!(run(&mut session).1, [5.0, 6.0]);
}

#[test]
fn the_file_tells_of_itself_without_a_backend() {
    let directory = tempfile::tempdir().unwrap();
    let mut strange = node("Fold", &["x"], &["y"]);
    strange.domain = Some("com.acme".to_owned());
    let nodes = vec![node("Relu", &["x"], &["a"]), node("Relu", &["a"], &["b"]), strange];
    let mut model = model(graph(
        nodes,
        vec![value("x", DataType::FLOAT, Some(vec![D::Named("n"), D::Is(-1)]))],
        vec![value("y", DataType::FLOAT, None), value("z", DataType::DOUBLE, None)],
    ));
    model.metadata_props.push(StringStringEntryProto { key: Some("names".into()), value: Some("{0: 'cat'}".into()) });
    let path = write(directory.path(), "m.onnx", &model);
    let file = OnnxFile::read(&path).unwrap();
    assert_eq!(file.inputs[0].to_string(), "x f32 [n, ?]");
    assert_eq!(file.outputs[0].to_string(), "y f32 of unknown shape");
    assert_eq!((file.foreign[0].name.as_str(), file.foreign[0].found.as_str()), ("z", "a tensor of f64"));
    assert_eq!(file.metadata["names"], "{0: 'cat'}");
    assert_eq!(file.operators, BTreeMap::from([("Relu".to_owned(), 2), ("com.acme.Fold".to_owned(), 1)]));
    assert_eq!((file.opsets["ai.onnx"], file.ir_version, file.producer.as_str()), (17, 8, "a test"));
    assert_eq!(file.file.size_bytes, std::fs::metadata(&path).unwrap().len());
    assert_eq!(file.file.sha256.len(), 64);
    for backend in backends() {
        let error = Engine::load(&path, &options(backend)).unwrap_err().to_string();
        assert!(error.contains("output `z` is a tensor of f64"), "{error}");
    }
}

#[test]
fn a_hash_is_the_one_that_everybody_computes() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/models/nanodet-g-416.onnx");
    let file = OnnxFile::read(&path).unwrap();
    let out = std::process::Command::new("sha256sum").arg(&path).output().unwrap();
    assert!(String::from_utf8_lossy(&out.stdout).starts_with(&file.file.sha256));
    assert_eq!(file.inputs.len(), 1);
    assert!(file.foreign.is_empty() && file.external_files.is_empty());
}

#[test]
fn both_backends_give_the_same_numbers_for_the_sample_network() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/models/nanodet-g-416.onnx");
    let outputs: Vec<_> = backends()
        .into_iter()
        .map(|backend| {
            let mut session = load(backend, &path).session().unwrap();
            let len = session.input_mut(0).bytes().len() / 4;
            // Not random, and of every frequency: a chirp.
            let numbers: Vec<f32> = (0..len).map(|i| ((i * i) as f32 * 1e-6).sin()).collect();
            set_f32(&mut session, 0, &numbers);
            run(&mut session)
        })
        .collect();
    for pair in outputs.windows(2) {
        assert_eq!(pair[0].0, pair[1].0);
        let largest = pair[0].1.iter().zip(&pair[1].1).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(largest < 1e-3, "outputs differ by {largest}");
    }
}

#[test]
fn an_output_is_there_only_after_a_run() {
    let directory = tempfile::tempdir().unwrap();
    let path = write(directory.path(), "m.onnx", &doubling(DataType::FLOAT, || Some(dims(&[1]))));
    for backend in backends() {
        let mut session = load(backend, &path).session().unwrap();
        assert!(matches!(session.output(0), Err(EngineError::NoOutput { .. })));
        session.run().unwrap();
        session.output(0).unwrap();
        assert!(matches!(session.output(1), Err(EngineError::NoOutput { .. })));
    }
}

#[test]
fn weights_in_another_file_stay_when_that_file_is_cut_off() {
    let directory = tempfile::tempdir().unwrap();
    let weights = directory.path().join("w.data");
    let flat = || Some(dims(&[4096]));
    let nodes = vec![node("Mul", &["x", "w"], &["y"])];
    let mut graph = graph(nodes, vec![value("x", DataType::FLOAT, flat())], vec![value("y", DataType::FLOAT, flat())]);
    graph.initializer.push(external("w", &[4096], "w.data"));
    let path = write(directory.path(), "m.onnx", &model(graph));
    for backend in backends() {
        std::fs::write(&weights, 2_f32.to_le_bytes().repeat(4096)).unwrap();
        let mut session = load(backend, &path).session().unwrap();
        set_f32(&mut session, 0, &[3.0; 4096]);
        std::fs::File::options().write(true).open(&weights).unwrap().set_len(0).unwrap();
        assert_eq!(run(&mut session).1, [6.0; 4096]);
    }
}
