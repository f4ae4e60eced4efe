//! Text boxes of DB models (differentiable binarisation): PaddleOCR's text detection.
//!
//! Reads one output `[1, 1, h, w]`: the probability that a cell is text, or its logit with `sigmoid = true`. Each text is an
//! oriented box. [`TextFinder`] has the arithmetic. The minimum score of a text, PaddleOCR's `box_thresh`, is the score
//! threshold.
//!
//! Coordinates are PaddleOCR's: cell `i` of a map of `w` cells is at `i / w` of the input.
//!
//! Source: `DBPostProcess` in PaddleOCR `ppocr/postprocess/db_postprocess.py`.

use visiond_kernels::filter::FilterSpec;
use visiond_kernels::text_map::{TextBox, TextFinder, TextMapOptions};

use super::decoded::Decoded;
use super::head::{Decoder, HeadInput, Suppression};
use super::misfit::Misfit;
use super::outputs::{ModelOutputs, classes_text};
use super::raw_numbers::{Numbers, not_logits, not_probabilities};
use super::semantic::covers;
use super::spec::DbTextSpec;

pub(super) struct DbText {
    /// The number of named classes, or 0.
    class_count: usize,
    spec: DbTextSpec,
    finder: TextFinder,
    texts: Vec<TextBox>,
}

pub(super) struct DbTextLayout {
    output: usize,
    height: usize,
    width: usize,
}

impl DbText {
    pub(super) fn new(class_count: usize, spec: DbTextSpec) -> Self {
        Self { class_count, spec, finder: TextFinder::new(), texts: Vec::new() }
    }
}

impl Decoder for DbText {
    type Layout = DbTextLayout;

    fn reads(&self) -> &'static str {
        "one map of probabilities [1, 1, h, w]"
    }

    fn layout(&self, outputs: ModelOutputs<'_>, input_size: (u32, u32)) -> Result<DbTextLayout, Misfit> {
        if self.class_count > 1 {
            let problem = format!("the card names {} instead of one", classes_text(self.class_count));
            return Err(Misfit::at("classes", problem, "name 1 class under [classes], or remove the names"));
        }
        outputs.first("no output is [1, 1, h, w]", |output| {
            let shape = outputs.shape(output);
            let sides = shape.last::<2>().filter(|_| !shape.has_rank(2))?;
            let [height, width] = sides.map(Option::unwrap_or_default);
            let (input_w, input_h) = input_size;
            Some(if covers(sides, input_size) {
                Ok(DbTextLayout { output, height, width })
            } else {
                Err(format!("has {width}x{height} cells, which do not match an input of {input_w}x{input_h}"))
            })
        })
    }

    fn decode(&mut self, layout: &DbTextLayout, input: &HeadInput<'_>, out: &mut Decoded) {
        let values = input.outputs[layout.output].tensor.to_f32();
        let options = TextMapOptions {
            thresh: self.spec.thresh,
            box_thresh: input.score_threshold,
            unclip_ratio: self.spec.unclip_ratio,
            max_candidates: self.spec.max_candidates,
            sigmoid: self.spec.sigmoid,
        };
        self.finder.run(&values, (layout.width, layout.height), &options, &mut self.texts);
        let (input_w, input_h) = (input.input_size.0 as f32, input.input_size.1 as f32);
        let (across, down) = (input_w / layout.width.max(1) as f32, input_h / layout.height.max(1) as f32);
        for (row, TextBox { oriented, score }) in self.texts.iter().enumerate() {
            // The scales differ by rounding only: the map has the input's aspect ratio.
            let ([x, y], [width, height]) = (oriented.center, oriented.size);
            let (x, y, half_width, half_height) = (x * across, y * down, width * across / 2.0, height * down / 2.0);
            let bounds = [x - half_width, y - half_height, x + half_width, y + half_height];
            if out.push(row, 0, *score, bounds) {
                out.push_angle(row, oriented.angle);
            }
        }
    }

    fn doubt(&self, layout: &DbTextLayout, input: &HeadInput<'_>) -> Option<Misfit> {
        const KEY: &str = "head.sigmoid";
        let numbers = Numbers::of(&*input.outputs[layout.output].tensor.to_f32());
        if self.spec.sigmoid {
            not_logits(numbers, KEY, "remove `sigmoid` under [head]")
        } else {
            not_probabilities(numbers, KEY, "write `sigmoid = true` under [head], or correct `family`")
        }
    }

    /// The outline of a text needs every cell, so whole outputs are copied.
    fn filter(&self, _: &DbTextLayout, _: ModelOutputs<'_>, _: (u32, u32)) -> Option<FilterSpec> {
        None
    }

    fn suppression(&self, _layout: &DbTextLayout) -> Suppression {
        Suppression::None
    }
}

#[cfg(test)]
mod tests;
