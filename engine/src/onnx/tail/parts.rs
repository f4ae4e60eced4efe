//! Determines the parts of an output's rows, from left to right: four numbers of a box, then scores, then distances.
//!
//! A part is a run of numbers computed by the same operators. The walk goes from the output back through joins (`Concat`) and
//! cuts (`Split`, `Slice`), and compares widths to distinguish joins of parts from joins of rows, such as those of several
//! grids.

use super::{Graph, MAX_NODES, Node, attribute, dims};

/// How the numbers of a part were computed, by their last operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartKind {
    /// They come straight from a layer with weights.
    Raw,
    /// They are probabilities from a sigmoid.
    Sigmoid,
    /// They went through a softmax.
    Softmax,
    /// They are the result of arithmetic, like a decoded box.
    Computed,
    /// They are a constant.
    Constant,
    /// An operator is unknown.
    Unknown,
}

/// A run of numbers in each row that the same operators computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// The number of its numbers.
    pub width: usize,
    /// How they were made.
    pub kind: PartKind,
    /// Whether some of them went through a sigmoid.
    pub sigmoid: bool,
    /// Whether some of them went through exp(x).
    pub exp: bool,
}

/// The most operators to visit for the parts and widths of one row.
const MAX_STEPS: usize = 2_000;

/// The maximum number of consecutive joins and cuts.
const MAX_DEPTH: usize = 64;

/// The most parts of a row.
const MAX_PARTS: usize = 256;

/// The remaining budget of visits.
struct Steps(usize);

impl Steps {
    fn take(&mut self) -> Option<()> {
        self.0 = self.0.checked_sub(1)?;
        Some(())
    }
}

/// Returns `width` numbers from `start` on.
fn cut(parts: &[Part], start: usize, width: usize) -> Vec<Part> {
    let mut at = 0;
    let piece = |part: &Part| {
        let (from, to) = (at.max(start), (at + part.width).min(start + width));
        at += part.width;
        Part { width: to.saturating_sub(from), ..*part }
    };
    parts.iter().map(piece).filter(|part| part.width > 0).collect()
}

impl<'a> Graph<'a> {
    /// Returns the parts of an output's rows of `width` numbers; none if the operators do not show them.
    pub(super) fn parts_of(&self, output: &[u8], width: usize) -> Vec<Part> {
        let parts = self.parts(output, width, MAX_DEPTH, &mut Steps(MAX_STEPS)).unwrap_or_default();
        let total: usize = parts.iter().map(|part| part.width).sum();
        if total == width { parts } else { Vec::new() }
    }

    fn parts(&self, value: &[u8], width: usize, depth: usize, steps: &mut Steps) -> Option<Vec<Part>> {
        let depth = depth.checked_sub(1)?;
        let mut value = value;
        loop {
            steps.take()?;
            let Some(node) = self.node(value) else { return Some(self.whole(value, width)) };
            let first = *node.inputs.first()?;
            match node.operator.as_str() {
                "Transpose" | "Squeeze" | "Unsqueeze" | "Flatten" | "Identity" | "Cast" | "Dropout" | "Clip"
                | "Reshape" => value = first,
                "Concat" => return self.joined(value, node, width, depth, steps),
                "Split" => {
                    let sizes = self.split_sizes(node);
                    let index = node.outputs.iter().position(|output| *output == value)?;
                    if sizes.get(index) != Some(&width) {
                        return Some(self.whole(value, width));
                    }
                    let (total, start) = (sizes.iter().sum(), sizes[..index].iter().sum());
                    return Some(cut(&self.parts(first, total, depth, steps)?, start, width));
                }
                "Slice" => {
                    let total = self.width(first, depth, steps).unwrap_or(width);
                    let start = self.slice_start(node).filter(|_| total > width);
                    let Some(start) = start.filter(|start| start + width <= total) else {
                        value = first;
                        continue;
                    };
                    return Some(cut(&self.parts(first, total, depth, steps)?, start, width));
                }
                _ => return Some(self.whole(value, width)),
            }
        }
    }

    /// Returns the parts of a join, which joins parts, or rows that all have the same parts.
    fn joined(
        &self,
        value: &[u8],
        node: &Node<'a>,
        width: usize,
        depth: usize,
        steps: &mut Steps,
    ) -> Option<Vec<Part>> {
        if node.inputs.len() > MAX_PARTS {
            return None;
        }
        let widths: Vec<Option<usize>> = node.inputs.iter().map(|input| self.width(input, depth, steps)).collect();
        let known: usize = widths.iter().flatten().sum();
        let unknown = widths.iter().filter(|width| width.is_none()).count();
        if widths.contains(&Some(width)) || widths.len() == 1 {
            return self.parts(node.inputs.first()?, width, depth, steps);
        }
        // A single part of unknown width gets the remaining numbers.
        let rest = width.checked_sub(known).filter(|rest| unknown <= 1 && (*rest > 0) == (unknown == 1));
        let Some(rest) = rest else {
            return Some(self.whole(value, width));
        };
        let mut parts = Vec::new();
        for (input, width) in node.inputs.iter().zip(widths) {
            let width = width.unwrap_or(rest);
            parts.extend(self.parts(input, width, depth, steps)?);
        }
        Some(parts)
    }

    /// Returns a value as one part.
    fn whole(&self, value: &[u8], width: usize) -> Vec<Part> {
        let most = self.visits_left.get().min(MAX_NODES);
        let (tail, visited) = self.walk(value, most);
        self.visits_left.set(self.visits_left.get() - visited.min(most));
        let kind = if self.constants.contains_key(value) {
            PartKind::Constant
        } else if self.is_probability(value, 16) {
            PartKind::Sigmoid
        } else if self.last_operator(value) == Some("Softmax") {
            PartKind::Softmax
        } else if tail.is_raw() {
            PartKind::Raw
        } else if tail.known {
            PartKind::Computed
        } else {
            PartKind::Unknown
        };
        vec![Part { width, kind, sigmoid: tail.sigmoid, exp: tail.exp }]
    }

    /// Whether a value is a sigmoid, or a product of sigmoids.
    fn is_probability(&self, value: &[u8], depth: usize) -> bool {
        let Some((depth, node)) = depth.checked_sub(1).zip(self.node(self.behind_layout(value))) else { return false };
        match node.operator.as_str() {
            "Sigmoid" | "HardSigmoid" => true,
            "Mul" | "Sqrt" if node.inputs.len() <= 2 => {
                node.inputs.iter().all(|input| self.is_probability(input, depth / 2))
            }
            "Slice" | "Split" => node.inputs.first().is_some_and(|input| self.is_probability(input, depth)),
            _ => false,
        }
    }

    /// Returns the last operator that changes numbers.
    pub(super) fn last_operator(&self, value: &[u8]) -> Option<&str> {
        self.node(self.behind_layout(value)).map(|node| node.operator.as_str())
    }

    /// Follows a value back through the operators that only move numbers.
    fn behind_layout<'v>(&self, value: &'v [u8]) -> &'v [u8]
    where
        'a: 'v,
    {
        let mut value = value;
        for _ in 0..64 {
            let Some(node) = self.node(value) else { break };
            let moves = matches!(
                node.operator.as_str(),
                "Transpose"
                    | "Squeeze"
                    | "Unsqueeze"
                    | "Flatten"
                    | "Identity"
                    | "Cast"
                    | "Dropout"
                    | "Clip"
                    | "Reshape"
            );
            match node.inputs.first().filter(|_| moves) {
                Some(first) => value = first,
                None => break,
            }
        }
        value
    }

    fn node(&self, value: &[u8]) -> Option<&Node<'a>> {
        let index = self.makers.get(value).filter(|_| !self.constants.contains_key(value))?;
        self.nodes.get(*index)
    }

    fn split_sizes(&self, node: &Node<'a>) -> Vec<usize> {
        let sizes = node.inputs.get(1).map(|name| self.integers(name)).unwrap_or_default();
        let sizes = if sizes.is_empty() { attribute(node.message, "split") } else { sizes };
        sizes.iter().map(|&size| usize::try_from(size).unwrap_or(0).min(1 << 20)).collect()
    }

    /// Returns the start and end of a `Slice` as stated in the file, and its axis.
    fn slice_ends(&self, node: &Node<'a>) -> Option<(i64, i64, Option<i64>)> {
        let of = |index: usize, name: &str| {
            let constant = node.inputs.get(index).map(|name| self.integers(name)).unwrap_or_default();
            if constant.is_empty() { attribute(node.message, name) } else { constant }
        };
        let (starts, ends) = (of(1, "starts"), of(2, "ends"));
        match (&starts[..], &ends[..]) {
            (&[start], &[end]) => Some((start, end, of(3, "axes").first().copied())),
            _ => None,
        }
    }

    fn slice_start(&self, node: &Node<'a>) -> Option<usize> {
        usize::try_from(self.slice_ends(node)?.0).ok()
    }

    fn width(&self, value: &[u8], depth: usize, steps: &mut Steps) -> Option<usize> {
        self.channels(value, depth, steps).map(|channels| channels.count)
    }

    /// Returns the channels of a value, or the length of its rows, if the operators before it show them.
    fn channels(&self, value: &[u8], depth: usize, steps: &mut Steps) -> Option<Channels> {
        let depth = depth.checked_sub(1)?;
        steps.take()?;
        let node = self.node(value)?;
        let first = *node.inputs.first()?;
        let weights = |index: usize| node.inputs.get(index).and_then(|name| self.constants.get(name)).map(|w| dims(w));
        let plane = |count: &usize| Channels { count: *count, axis: Some(1), rank: Some(4) };
        let unplaced = |count: usize| Channels { count, axis: None, rank: None };
        match node.operator.as_str() {
            "Conv" => weights(1)?.first().map(plane),
            "ConvTranspose" => weights(1)?.get(1).map(plane),
            "MatMul" => weights(1)?.last().copied().map(unplaced),
            "Gemm" => {
                let [rows, columns] = weights(1)?[..] else { return None };
                let transposed = attribute(node.message, "transB").first().is_some_and(|&flag| flag != 0);
                Some(Channels { axis: Some(1), rank: Some(2), ..unplaced(if transposed { rows } else { columns }) })
            }
            "Identity" | "Cast" | "Dropout" | "Clip" | "Sigmoid" | "HardSigmoid" | "Softmax" | "LogSoftmax" | "Exp"
            | "Relu" | "LeakyRelu" | "Tanh" | "Neg" | "Abs" | "Sqrt" | "Pow" | "Floor" | "MaxPool"
            | "BatchNormalization" | "QuantizeLinear" | "DequantizeLinear" => self.channels(first, depth, steps),
            "Transpose" => {
                let before = self.channels(first, depth, steps)?;
                let order = attribute(node.message, "perm");
                let axis =
                    before.axis.and_then(|axis| order.iter().position(|&from| usize::try_from(from) == Ok(axis)));
                Some(Channels { axis, rank: Some(order.len()).filter(|rank| *rank > 0), ..before })
            }
            "Squeeze" | "Unsqueeze" | "Flatten" => self.width(first, depth, steps).map(unplaced),
            "Add" | "Sub" | "Mul" | "Div" | "Max" | "Min" => {
                node.inputs.iter().find_map(|input| self.channels(input, depth, steps))
            }
            "Split" => {
                let index = node.outputs.iter().position(|output| *output == value)?;
                let count = self.split_sizes(node).get(index).copied()?;
                let before = self.channels(first, depth, steps);
                let rank = before.and_then(|before| before.rank);
                let axis = attribute(node.message, "axis").first().copied().unwrap_or(0);
                Some(Channels { count, axis: place(axis, rank), rank })
            }
            "Reshape" => {
                let shape = self.integers(node.inputs.get(1)?);
                let sizes: Vec<usize> =
                    shape.iter().filter_map(|&dim| usize::try_from(dim).ok()).filter(|dim| *dim > 1).collect();
                let before = self.width(first, depth, steps);
                let count = match (before, &sizes[..]) {
                    (_, &[size]) => size,
                    (Some(1), []) => 1,
                    (Some(before), sizes) if sizes.contains(&before) => before,
                    // Adjacent anchors become separate rows.
                    (Some(before), sizes) => sizes.iter().copied().filter(|size| before.is_multiple_of(*size)).max()?,
                    (None, _) => return None,
                };
                // The first dimension is the batch.
                let axis = (1..shape.len()).find(|&axis| usize::try_from(shape[axis]) == Ok(count));
                Some(Channels { count, axis, rank: Some(shape.len()) })
            }
            "Slice" => {
                let before = self.channels(first, depth, steps);
                let (start, end, axis) = self.slice_ends(node)?;
                let rank = before.and_then(|before| before.rank);
                let axis = axis.and_then(|axis| place(axis, rank));
                // Cutting rows keeps all columns.
                if before.is_some_and(|before| before.axis.is_some() && axis.is_some() && before.axis != axis) {
                    return before;
                }
                let within = |at: i64| match before {
                    Some(Channels { count, .. }) if at < 0 => {
                        count.checked_sub(usize::try_from(at.unsigned_abs()).ok()?)
                    }
                    _ => usize::try_from(at).ok().map(|at| before.map_or(at, |before| at.min(before.count))),
                };
                let cut = within(end)?.checked_sub(within(start)?).filter(|width| (1..1 << 20).contains(width));
                cut.map(|count| Channels { count, axis, rank }).or(before)
            }
            "Concat" => {
                let axis = attribute(node.message, "axis").first().copied()?;
                let parts: Option<Vec<Channels>> =
                    node.inputs.iter().map(|input| self.channels(input, depth, steps)).collect();
                let parts = parts?;
                let joined = *parts.first()?;
                let sum = parts.iter().fold(0_usize, |sum, part| sum.saturating_add(part.count));
                // Equal widths may come from stacked grids.
                let of_parts = match joined.axis.zip(place(axis, joined.rank)) {
                    Some((channels, axis)) => channels == axis,
                    None if parts.iter().all(|part| part.count == joined.count) => return None,
                    None => true,
                };
                Some(if of_parts { Channels { count: sum, ..joined } } else { joined })
            }
            _ => None,
        }
    }
}

/// The channels of a value, or the length of its rows.
#[derive(Clone, Copy)]
struct Channels {
    count: usize,
    /// Their axis, and the number of axes, if known.
    axis: Option<usize>,
    rank: Option<usize>,
}

/// Returns the axis, which a file may count from either end.
fn place(axis: i64, rank: Option<usize>) -> Option<usize> {
    match usize::try_from(axis) {
        Ok(axis) => Some(axis),
        Err(_) => rank?.checked_sub(usize::try_from(axis.unsigned_abs()).ok()?),
    }
}
