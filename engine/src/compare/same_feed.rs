//! Checks that two models get the same picture.

use visiond_kernels::preprocess::PreprocessSpec;
use visiond_kernels::tensor::DType;

use super::error::CompareError;

/// Checks that both models get the same picture.
///
/// Layout and element type may differ: they move or round numbers. The scaling of pixels may differ only if one of the two
/// takes bytes, because then its scaling is inside the model.
pub fn same_feed(first: &PreprocessSpec, second: &PreprocessSpec) -> Result<(), CompareError> {
    let check = |what, a: &dyn std::fmt::Debug, b: &dyn std::fmt::Debug| {
        // Written as in a card: lower case, without quotes.
        let [first, second] = [a, b].map(|value| format!("{value:?}").to_lowercase().replace('"', ""));
        if first == second { Ok(()) } else { Err(CompareError::Feed { what, first, second }) }
    };
    let size = |spec: &PreprocessSpec| format!("{}x{}", spec.width, spec.height);
    check("the input's size", &size(first), &size(second))?;
    check("`fit`", &first.fit, &second.fit)?;
    check("`sampling`", &first.sampling, &second.sampling)?;
    check("`pad`", &first.pad, &second.pad)?;
    check("`order`", &first.order, &second.order)?;
    let is_float = |spec: &PreprocessSpec| matches!(spec.dtype, DType::F32 | DType::F16);
    if is_float(first) == is_float(second) {
        check("`scale`", &first.scale, &second.scale)?;
        check("`mean`", &first.mean, &second.mean)?;
        check("`std`", &first.std, &second.std)?;
    }
    Ok(())
}
