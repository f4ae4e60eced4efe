//! Decides which shapes an engine's inputs have: those of the file, other fixed ones, or a range per profile.

use std::collections::BTreeMap;
use std::path::Path;

use super::error::BuildError;
use super::options::{ShapeProfile, ShapeRange, shape_text};
use visiond_engine::engine::EngineError;
use visiond_engine::engine::{Dim, TensorInfo, dims_text};

/// The inputs with other fixed shapes than the file's, and, if shapes vary, a range for every input with open dimensions in each
/// profile. One of the two is empty.
pub(super) type InputShapes = (BTreeMap<String, Vec<usize>>, Vec<ShapeProfile>);

/// Decides the shapes from the options and the file's declarations.
pub(super) fn plan(path: &Path, inputs: &[TensorInfo], profiles: &[ShapeProfile]) -> Result<InputShapes, BuildError> {
    for name in profiles.iter().flat_map(BTreeMap::keys) {
        if !inputs.iter().any(|input| input.name == *name) {
            return Err(EngineError::no_such_input(path, name, inputs).into());
        }
    }
    let is_fixed = profiles.len() <= 1 && profiles.iter().flat_map(BTreeMap::values).all(ShapeRange::is_fixed);
    if is_fixed {
        let asked = profiles.first().cloned().unwrap_or_default();
        let mut fixed: BTreeMap<_, _> = asked.into_iter().map(|(name, range)| (name, range.opt)).collect();
        for input in inputs {
            if is_open(input) && !fixed.contains_key(&input.name) {
                fixed.insert(input.name.clone(), of_one(path, input)?);
            }
        }
        return Ok((fixed, Vec::new()));
    }
    let complete = |profile: &ShapeProfile| {
        let mut ranges = ShapeProfile::new();
        for input in inputs {
            match profile.get(&input.name) {
                Some(range) => {
                    fits(path, input, range)?;
                    if is_open(input) {
                        ranges.insert(input.name.clone(), range.clone());
                    }
                }
                None if is_open(input) => {
                    ranges.insert(input.name.clone(), ShapeRange::fixed(of_one(path, input)?));
                }
                None => {}
            }
        }
        Ok(ranges)
    };
    profiles.iter().map(complete).collect::<Result<_, BuildError>>().map(|ranges| (BTreeMap::new(), ranges))
}

fn is_open(input: &TensorInfo) -> bool {
    input.shape.as_ref().is_none_or(|dims| dims.iter().any(|dim| dim.fixed().is_none()))
}

fn wrong(path: &Path, input: &TensorInfo, reason: String) -> BuildError {
    let (path, declared) = (path.to_owned(), dims_text(&input.shape));
    BuildError::Shape { path, input: input.name.clone(), declared, reason }
}

/// Returns the input's shape for one image, if only the batch is open.
fn of_one(path: &Path, input: &TensorInfo) -> Result<Vec<usize>, BuildError> {
    let dims = input.shape.as_deref().unwrap_or_default();
    match dims {
        [Dim::Dynamic(_), rest @ ..] if rest.iter().all(|dim| dim.fixed().is_some()) => {
            Ok(std::iter::once(1).chain(rest.iter().filter_map(Dim::fixed)).collect())
        }
        _ => {
            let example: Vec<usize> = match dims {
                [] => vec![1, 3, 640, 640],
                dims => {
                    let is_planes = matches!(dims, [_, _, _, width] if !matches!(width.fixed(), Some(1 | 3)));
                    let of = |index| match index {
                        0 => 1,
                        1 if is_planes => 3,
                        _ => 640,
                    };
                    let usual = |(index, dim): (usize, &Dim)| dim.fixed().unwrap_or(of(index));
                    dims.iter().enumerate().map(usual).collect()
                }
            };
            let (name, example) = (&input.name, shape_text(&example));
            Err(wrong(path, input, format!("set its shape, as in --shape {name}={example}")))
        }
    }
}

fn fits(path: &Path, input: &TensorInfo, range: &ShapeRange) -> Result<(), BuildError> {
    let Some(dims) = &input.shape else { return Ok(()) };
    if dims.len() != range.opt.len() {
        return Err(wrong(path, input, format!("{range} has another number of dimensions: give each a size")));
    }
    let held = |(index, dim): (usize, &Dim)| {
        dim.fixed().is_none_or(|size| [&range.min, &range.opt, &range.max].iter().all(|shape| shape[index] == size))
    };
    if dims.iter().enumerate().all(held) {
        return Ok(());
    }
    let reason = format!(
        "the model fixes what {range} changes: export it with dynamic axes, or give it one shape with --shape {}={}",
        input.name,
        shape_text(&range.opt)
    );
    Err(wrong(path, input, reason))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::options::parse_profile;
    use visiond_kernels::tensor::DType;

    fn input(dims: &[Option<usize>]) -> Vec<TensorInfo> {
        let dim = |dim: &Option<usize>| dim.map_or(Dim::Dynamic("n".to_owned()), Dim::Fixed);
        let shape = Some(dims.iter().map(dim).collect());
        vec![TensorInfo { name: "images".to_owned(), dtype: DType::F32, shape }]
    }

    fn planned(dims: &[Option<usize>], profiles: &[&str]) -> Result<InputShapes, String> {
        let profiles: Vec<_> = profiles.iter().map(|text| parse_profile(text).unwrap()).collect();
        plan(Path::new("net.onnx"), &input(dims), &profiles).map_err(|error| error.to_string())
    }

    const FIXED: [Option<usize>; 4] = [Some(1), Some(3), Some(64), Some(64)];
    const BATCH: [Option<usize>; 4] = [None, Some(3), Some(64), Some(64)];
    const OPEN: [Option<usize>; 4] = [None, Some(3), None, None];

    #[test]
    fn one_fixed_shape_makes_an_engine_of_fixed_shapes() {
        assert_eq!(planned(&FIXED, &[]).unwrap(), Default::default());
        let fixed = |shape: [usize; 4]| ([("images".to_owned(), shape.to_vec())].into(), Vec::new());
        assert_eq!(planned(&BATCH, &[]).unwrap(), fixed([1, 3, 64, 64]));
        assert_eq!(planned(&FIXED, &["images=2x3x32x32"]).unwrap(), fixed([2, 3, 32, 32]));
        assert_eq!(planned(&OPEN, &["images=1x3x32x32"]).unwrap(), fixed([1, 3, 32, 32]));
        let error = planned(&OPEN, &[]).unwrap_err();
        assert_eq!(
            error,
            "input `images` of net.onnx is [n, 3, n, n]: set its shape, as in --shape images=1x3x640x640"
        );
        let error = planned(&[None; 4], &[]).unwrap_err();
        assert!(error.ends_with("--shape images=1x3x640x640"), "{error}");
        let error = planned(&[None, None, None, Some(3)], &[]).unwrap_err();
        assert!(error.ends_with("--shape images=1x640x640x3"), "{error}");
        assert!(planned(&FIXED, &["image=1x3x32x32"]).unwrap_err().contains("has no input `image`"));
    }

    #[test]
    fn ranges_and_several_profiles_need_open_dimensions() {
        let (_, ranges) = planned(&BATCH, &["images=1x3x64x64,2x3x64x64,4x3x64x64"]).unwrap();
        assert_eq!(ranges[0]["images"].to_string(), "1x3x64x64..4x3x64x64");
        let two = planned(&OPEN, &["images=1x3x64x64", "images=1x3x32x32"]).unwrap();
        assert_eq!((two.0.len(), two.1.len()), (0, 2));
        let error = planned(&FIXED, &["images=1x3x64x64,2x3x64x64,4x3x64x64"]).unwrap_err();
        assert!(error.contains("the model fixes what 1x3x64x64..4x3x64x64 changes"), "{error}");
        let error = planned(&OPEN, &["images=1x3,2x3,4x3"]).unwrap_err();
        assert!(error.contains("another number of dimensions"), "{error}");
    }
}
