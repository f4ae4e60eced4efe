//! The head that docs/contributing/add-a-head.md adds, and a test that the page shows the code that is built.

use visiond_kernels::filter::FilterSpec;

use super::filter::{MadeUpModel, assert_same, noise};
use super::tensor;
use crate::heads::decoded::Decoded;
use crate::heads::gpu_filter::{best_of, plain_box, rows_of, table};
use crate::heads::head::{Decoder, HeadInput, checked};
use crate::heads::misfit::{FAMILY, Misfit};
use crate::heads::outputs::{ModelOutputs, classes_in};
use crate::heads::raw_numbers::{Numbers, not_probabilities, wrong_unit};
use crate::heads::rows::{best_class, corners, four};
use crate::heads::spec::{BoxFormat, BoxUnit};

/// One output of corners and scores.
struct Corners {
    class_count: usize,
    unit: BoxUnit,
}

struct CornersLayout {
    output: usize,
    width: usize,
    classes: usize,
}

impl Decoder for Corners {
    type Layout = CornersLayout;

    fn reads(&self) -> &'static str {
        "one output [1, N, 4 + classes]"
    }

    fn layout(&self, outputs: ModelOutputs<'_>, _input_size: (u32, u32)) -> Result<CornersLayout, Misfit> {
        outputs.table(|output, [_, width]| {
            let classes = classes_in(width, 4, self.class_count, "rows")?;
            Ok(CornersLayout { output, width: width.unwrap_or(0), classes: classes.unwrap_or(0) })
        })
    }

    fn decode(&mut self, layout: &CornersLayout, input: &HeadInput<'_>, out: &mut Decoded) {
        let values = input.outputs[layout.output].tensor.to_f32();
        for (index, row) in values.chunks_exact(layout.width.max(1)).enumerate() {
            let Some((class, score)) = best_class(&row[4..4 + layout.classes], input.score_threshold) else { continue };
            let Some(numbers) = four(row, 0) else { continue };
            out.push(index, class, score, corners(numbers, BoxFormat::Xyxy, self.unit, input.input_size));
        }
    }

    fn doubt(&self, layout: &CornersLayout, input: &HeadInput<'_>) -> Option<Misfit> {
        let values = input.outputs[layout.output].tensor.to_f32();
        let rows = || values.chunks_exact(layout.width.max(4));
        let scores = Numbers::of(rows().flat_map(|row| &row[4..]));
        let boxes: Vec<[f32; 4]> = rows().filter_map(|row| four(row, 0)).collect();
        not_probabilities(scores, FAMILY, "export the model with its last sigmoid")
            .or_else(|| wrong_unit(&boxes, self.unit, "head.unit"))
    }

    fn filter(&self, layout: &CornersLayout, outputs: ModelOutputs<'_>, input_size: (u32, u32)) -> Option<FilterSpec> {
        let (values, rows, _) = rows_of(outputs, layout.output)?;
        let table = table(rows, values.from_column(4), values);
        let boxes = plain_box(BoxFormat::Xyxy, self.unit, input_size);
        Some(best_of(vec![table], 0..layout.classes, boxes))
    }
}

#[test]
fn the_head_of_the_walk_through_finds_what_its_filter_finds() {
    let size = (640, 480);
    for unit in [BoxUnit::Pixels, BoxUnit::Normalized] {
        let model = MadeUpModel::new(vec![tensor("output", &[1, 300, 7])], noise(7, 0.0..1.0));
        let mut head = checked(Corners { class_count: 3, unit }, "corners", &model.infos, size).unwrap();
        let found = model.decode(head.as_mut(), size, 0.9).unwrap();
        assert!((20..300).contains(&found.candidates.len()), "{}", found.candidates.len());
        let filtered = model.filter(head.as_mut(), size, 0.9, true).unwrap().unwrap();
        assert_same(&filtered, &found, "corners");
    }
    let narrow = [tensor("output", &[1, 300, 4])];
    let error = checked(Corners { class_count: 0, unit: BoxUnit::Pixels }, "corners", &narrow, size).err().unwrap();
    assert!(error.to_string().contains("reads one output [1, N, 4 + classes], but `output` has rows of 4"), "{error}");
}

#[test]
fn the_walk_through_shows_code_that_is_built() {
    let page = include_str!("../../../../docs/contributing/add-a-head.md");
    let sources = [
        include_str!("corners.rs"),
        include_str!("../spec.rs"),
        include_str!("../build.rs"),
        include_str!("../../card/head.rs"),
    ];
    // Whatever the indentation.
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let sources = sources.map(words);
    let blocks: Vec<_> = page.split("```rust\n").skip(1).filter_map(|rest| rest.split_once("\n```")).collect();
    assert_eq!(blocks.len(), 4);
    for (block, _) in blocks {
        assert!(sources.iter().any(|source| source.contains(&words(block))), "no source has this any more:\n{block}");
    }
}
