//! An engine's tensors as sessions declare them: fixed sizes, open sizes and their limits.

use std::path::Path;
use std::sync::Arc;

use visiond_kernels::cuda::CudaStream;
use visiond_kernels::tensor::ShapeText;

use super::engine::{Scratch, TrtEngine};
use super::plan::rebuild_command;
use super::tensor::{Direction, ShapeLimits, TrtTensor};
use crate::backend::{Dim, EngineError, EngineOptions, TensorInfo};

/// Returns an engine's tensors as a session declares them. Sizes that the requested shapes or the profile fix are fixed.
/// Among the open sizes, only the batch stays open; the others get the size that the engine was tuned for.
pub(super) fn declared(
    path: &Path,
    engine: &Arc<TrtEngine>,
    options: &EngineOptions,
) -> Result<(Vec<TensorInfo>, Vec<TensorInfo>), EngineError> {
    let of = |direction| engine.tensors().iter().filter(move |tensor| tensor.direction == direction);
    let mut inputs = Vec::new();
    for tensor in of(Direction::Input) {
        let limits = &tensor.limits[0];
        let asked = options.input_shapes.get(&tensor.name);
        if let Some(asked) = asked {
            check_shape(path, tensor, asked)?;
        }
        let dim = |axis: usize, size: Option<usize>| match (size, asked) {
            (_, Some(asked)) => Dim::Fixed(asked[axis]),
            (Some(size), _) => Dim::Fixed(size),
            (None, _) => match (limits.min.get(axis), limits.opt.get(axis), limits.max.get(axis)) {
                (Some(min), _, Some(max)) if min == max => Dim::Fixed(*min),
                // Sessions run any batch size from 1 on, or a single one.
                (Some(min), Some(opt), _) if (axis > 0 || *min > 1) && !tensor.on_host => Dim::Fixed(*opt),
                _ => Dim::Dynamic(String::new()),
            },
        };
        let shape = tensor.shape.iter().enumerate().map(|(axis, size)| dim(axis, *size)).collect();
        inputs.push(TensorInfo { name: tensor.name.clone(), dtype: tensor.dtype, shape: Some(shape) });
    }
    for name in options.input_shapes.keys() {
        if !inputs.iter().any(|info| info.name == *name) {
            return Err(EngineError::no_such_input(path, name, &inputs));
        }
    }
    let outputs: Vec<TensorInfo> = of(Direction::Output).map(open).collect();
    let beyond_frames = |tensor: &TrtTensor| tensor.shape.iter().skip(1).any(Option::is_none);
    if of(Direction::Output).any(beyond_frames) && !engine.tensors().iter().any(|tensor| tensor.on_host) {
        let inferred = inferred(engine, &inputs)?;
        return Ok((inputs, inferred));
    }
    Ok((inputs, outputs))
}

/// Returns a tensor as the engine declares it.
fn open(tensor: &TrtTensor) -> TensorInfo {
    let dim = |size: &Option<usize>| size.map_or_else(|| Dim::Dynamic(String::new()), Dim::Fixed);
    TensorInfo { name: tensor.name.clone(), dtype: tensor.dtype, shape: Some(tensor.shape.iter().map(dim).collect()) }
}

/// Returns the outputs' shapes for these inputs, which only a context can compute. Computes them for two batch sizes, so that
/// sizes that follow from the batch stay open.
fn inferred(engine: &Arc<TrtEngine>, inputs: &[TensorInfo]) -> Result<Vec<TensorInfo>, EngineError> {
    let mut context = engine.context(Scratch::Own)?;
    let stream = CudaStream::new(engine.device())?;
    let mut profile = 0;
    let mut shapes_with = |frames: fn(&ShapeLimits) -> &[usize]| -> Result<Vec<Vec<usize>>, EngineError> {
        let shape = |info: &TensorInfo| -> Vec<usize> {
            let limits = engine.tensor(&info.name).and_then(|tensor| tensor.limits.first());
            let open = |axis: usize| limits.and_then(|limits| frames(limits).get(axis)).copied().unwrap_or(1);
            let dims = info.shape.iter().flatten().enumerate();
            dims.map(|(axis, dim)| dim.fixed().unwrap_or_else(|| open(axis))).collect()
        };
        let shapes: Vec<_> = inputs.iter().map(|info| (info.name.as_str(), shape(info))).collect();
        let wanted: Vec<_> = shapes.iter().map(|(name, shape)| (*name, shape.as_slice())).collect();
        if let Some(other) = engine.profile_for(&wanted).filter(|other| *other != profile) {
            context.set_profile(other, &stream)?;
            profile = other;
        }
        for (name, shape) in wanted {
            context.set_input_shape(name, shape)?;
        }
        context.infer_shapes()?;
        let outputs = engine.tensors().iter().filter(|tensor| tensor.direction == Direction::Output);
        outputs.map(|tensor| context.shape(&tensor.name)).collect()
    };
    let (few, many) = (shapes_with(|limits| &limits.min)?, shapes_with(|limits| &limits.max)?);
    let outputs = engine.tensors().iter().filter(|tensor| tensor.direction == Direction::Output);
    let info = |(tensor, (few, many)): (&TrtTensor, (Vec<usize>, Vec<usize>))| {
        let dim = |(few, many)| if few == many { Dim::Fixed(few) } else { Dim::Dynamic(String::new()) };
        let shape = few.into_iter().zip(many).map(dim).collect();
        TensorInfo { name: tensor.name.clone(), dtype: tensor.dtype, shape: Some(shape) }
    };
    Ok(outputs.zip(few.into_iter().zip(many)).map(info).collect())
}

/// Rejects a shape that no profile allows.
pub(super) fn check_shape(path: &Path, tensor: &TrtTensor, asked: &[usize]) -> Result<(), EngineError> {
    let info = open(tensor);
    if asked.len() != tensor.shape.len() {
        return Err(EngineError::shape(
            &info,
            asked,
            "the number of dimensions differs: give as many as the engine has",
        ));
    }
    if tensor.on_host || tensor.limits.iter().any(|limits| limits.allow(asked)) {
        return Ok(());
    }
    let text = |shape: &[usize]| ShapeText(shape).to_string();
    let built = tensor.limits.iter().map(|limits| match limits.min == limits.max {
        true => text(&limits.max),
        false => format!("{} to {}", text(&limits.min), text(&limits.max)),
    });
    let (built, command) = (built.collect::<Vec<_>>().join(" and "), rebuild_command(path));
    let reason = format!("the engine was built for {built}; build it with the shapes you need: `{command}`");
    Err(EngineError::shape(&info, asked, reason))
}
