//! Checks that two models can be compared, and compares their raw outputs, number by number.

use visiond_kernels::preprocess::PreprocessSpec;
use visiond_kernels::tensor::{ShapeText, TensorRef};

use crate::backend::{Dim, TensorInfo};

/// Why two models cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    /// The two get different input images.
    #[error(
        "cannot compare models with different inputs: {what} is {first} in the first and {second} in the second; they do not see \
         the same image; use the right card for both (--card), or builds of one model"
    )]
    Feed {
        /// The setting that differs.
        what: &'static str,
        /// Its value in the first.
        first: String,
        /// Its value in the second.
        second: String,
    },
    /// Their outputs do not correspond.
    #[error(
        "cannot compare different models: the first has the outputs {first}, the second {second}; compare builds of one model"
    )]
    Outputs {
        /// The first's outputs, with types and shapes.
        first: String,
        /// The second's outputs.
        second: String,
    },
    /// The shapes of an output differ after a run.
    #[error(
        "output `{name}` is {first} in the first and {second} in the second: build both with the same input size \
         and batch"
    )]
    Shape {
        /// The output.
        name: String,
        /// Its shape in the first, for one frame.
        first: String,
        /// Its shape in the second.
        second: String,
    },
}

/// Checks that both models get the same image.
///
/// Layout and element type may differ: they move or round numbers. The scaling of pixels may differ only if one of the two takes
/// integers, because then its scaling is inside the model.
pub fn same_feed(first: &PreprocessSpec, second: &PreprocessSpec) -> Result<(), CompareError> {
    let check = |what, a: &dyn std::fmt::Debug, b: &dyn std::fmt::Debug| {
        // Written as in a card: lower case, without quotes.
        let [first, second] = [a, b].map(|value| format!("{value:?}").to_lowercase().replace('"', ""));
        if first == second { Ok(()) } else { Err(CompareError::Feed { what, first, second }) }
    };
    let size = |spec: &PreprocessSpec| format!("{}x{}", spec.width, spec.height);
    check("the input's size", &size(first), &size(second))?;
    let (one, other) = (&first.placement, &second.placement);
    check("`fit`", &one.fit, &other.fit)?;
    check("`rounding`", &one.rounding, &other.rounding)?;
    check("`step`", &one.step, &other.step)?;
    check("`way_back`", &one.way_back, &other.way_back)?;
    check("`pad_first`", &one.pad_first, &other.pad_first)?;
    check("`sampling`", &first.sampling, &second.sampling)?;
    check("`pad`", &first.pad, &second.pad)?;
    check("`order`", &first.order, &second.order)?;
    let is_integer = |spec: &PreprocessSpec| spec.dtype.is_integer();
    if is_integer(first) == is_integer(second) {
        check("`scale`", &first.scale, &second.scale)?;
        check("`mean`", &first.mean, &second.mean)?;
        check("`std`", &first.std, &second.std)?;
    }
    Ok(())
}

/// For each output of the first model, the index of the second model's output.
pub type OutputPairs = Vec<usize>;

/// Pairs the outputs of two models, by name or otherwise by order.
///
/// Declared shapes must have the same number of dimensions, and fixed dimensions must agree, except the first, the batch.
pub fn pair_outputs(first: &[TensorInfo], second: &[TensorInfo]) -> Result<OutputPairs, CompareError> {
    let by_name = |info: &TensorInfo| second.iter().position(|other| other.name == info.name);
    let pairs: Option<OutputPairs> = first.iter().map(by_name).collect();
    let pairs = pairs.unwrap_or_else(|| (0..first.len()).collect());
    let fits = first.len() == second.len() && first.iter().zip(&pairs).all(|(info, &other)| fits(info, &second[other]));
    if fits {
        return Ok(pairs);
    }
    let listed = |outputs: &[TensorInfo]| outputs.iter().map(|i| format!("`{i}`")).collect::<Vec<_>>().join(", ");
    Err(CompareError::Outputs { first: listed(first), second: listed(second) })
}

fn fits(a: &TensorInfo, b: &TensorInfo) -> bool {
    let (Some(a), Some(b)) = (&a.shape, &b.shape) else { return true };
    let agree = |(a, b): (&Dim, &Dim)| match (a.fixed(), b.fixed()) {
        (Some(a), Some(b)) => a == b,
        _ => true,
    };
    a.len() == b.len() && a.iter().zip(b).skip(1).all(agree)
}

/// How far a model's output differs from the other's, over all images.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TensorDifference {
    /// The name of the output in the first model.
    pub name: String,
    /// The shape for one frame.
    pub shape: Vec<usize>,
    /// How many numbers were compared.
    pub numbers: u64,
    /// The largest difference.
    pub max_abs: f64,
    /// The image with the largest difference; `None` while all are equal.
    pub worst_picture: Option<usize>,
    /// The smallest and the largest number of the first model.
    pub range: Option<(f64, f64)>,
    /// Numbers that are infinite or NaN in only one of the two, or in different ways.
    pub not_finite: u64,
    sum_abs: f64,
    sum_squares: f64,
    product: f64,
    squares: [f64; 2],
}

impl TensorDifference {
    /// Starts with nothing compared.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Adds both models' outputs for an image. `first` and `second` are whole outputs of runs in which the image was the
    /// first of this many frames.
    pub fn add(
        &mut self,
        picture: usize,
        first: TensorRef<'_>,
        second: TensorRef<'_>,
        frames: (usize, usize),
    ) -> Result<(), CompareError> {
        let [a_shape, b_shape] = [of_one_frame(first.shape(), frames.0), of_one_frame(second.shape(), frames.1)];
        if a_shape != b_shape {
            return Err(CompareError::Shape {
                name: self.name.clone(),
                first: ShapeText(&a_shape).to_string(),
                second: ShapeText(&b_shape).to_string(),
            });
        }
        let (a, b) = (first.to_f32(), second.to_f32());
        let count = a_shape.iter().product::<usize>();
        let mut worst = self.max_abs;
        for (&a, &b) in a[..count].iter().zip(&b[..count]) {
            if !a.is_finite() || !b.is_finite() {
                // Both infinite with the same sign, or both NaN, counts as agreement.
                self.not_finite += u64::from(a != b && !(a.is_nan() && b.is_nan()));
                continue;
            }
            let (a, b) = (f64::from(a), f64::from(b));
            let difference = (a - b).abs();
            worst = worst.max(difference);
            self.sum_abs += difference;
            self.sum_squares += difference * difference;
            self.product += a * b;
            self.squares[0] += a * a;
            self.squares[1] += b * b;
            let (least, most) = self.range.unwrap_or((a, a));
            self.range = Some((least.min(a), most.max(a)));
        }
        if worst > self.max_abs {
            self.max_abs = worst;
            self.worst_picture = Some(picture);
        }
        self.numbers += count as u64;
        self.shape = a_shape;
        Ok(())
    }

    /// Returns the mean of the absolute differences.
    pub fn mean_abs(&self) -> f64 {
        self.sum_abs / self.numbers.max(1) as f64
    }

    /// Returns the root mean square of the differences.
    pub fn rms(&self) -> f64 {
        (self.sum_squares / self.numbers.max(1) as f64).sqrt()
    }

    /// Returns the cosine similarity: 1 if one is a multiple of the other.
    pub fn cosine(&self) -> f64 {
        let lengths = (self.squares[0] * self.squares[1]).sqrt();
        match lengths > 0.0 {
            true => (self.product / lengths).clamp(-1.0, 1.0),
            // Two zero vectors are equal; one zero vector resembles nothing.
            false if self.squares == [0.0; 2] => 1.0,
            false => 0.0,
        }
    }
}

/// Returns the shape for one frame of a run of `frames`.
fn of_one_frame(shape: &[usize], frames: usize) -> Vec<usize> {
    let mut shape = shape.to_vec();
    if frames > 1 && shape.first() == Some(&frames) {
        shape[0] = 1;
    }
    shape
}
