//! Reads the `[head]` of a card: the family and its options.

use visiond_ground::nearest::nearest;

use super::class_name::{MAX_NAME_CHARS, is_too_long};
use super::sections::{CardSection, number_in};
use crate::heads::spec::{
    ACTIVATIONS, ANCHORS, Activation, AttributeKind, AttributeSpec, BACKGROUNDS, BlazefaceSpec, BoxUnit, BoxesSpec,
    COLUMNS, Column, DarknetSpec, DbTextSpec, DepthSpec, FACES, FORMATS, FacesSpec, FacesStyle, Family, GRID_STYLES,
    HeadSpec, HeatmapSpec, HeatmapStyle, Keypoints, MAX_GRID, NEARER, NanodetSpec, RowsSpec, STYLES, UNITS, YoloxSpec,
};

/// A limit far above any real model.
const MANY: u32 = 100_000;

fn keypoints(head: &mut CardSection<'_>) -> Option<Keypoints> {
    let shape = head.wholes("keypoints", 1, 1000, "a number of points and 2 or 3, as in [17, 3]")?;
    match shape[..] {
        [count, each @ 2..=3] => Some(Keypoints { count: count as usize, scored: each == 3 }),
        _ => {
            let message = "`keypoints` must be a number of points and 2 (x, y) or 3 (x, y, score), as in [17, 3]";
            head.wrong_at("keypoints", message);
            None
        }
    }
}

fn strides(head: &mut CardSection<'_>) -> Option<Vec<u32>> {
    let strides = head.wholes("strides", 1, 1024, "a list of whole numbers, as in [8, 16, 32]");
    if strides.as_ref().is_some_and(Vec::is_empty) {
        head.wrong_at("strides", "`strides` names no stride: write [8, 16, 32]");
    }
    strides
}

fn name(head: &mut CardSection<'_>, key: &'static str) -> Option<String> {
    head.text(key).map(str::to_owned)
}

/// Reads a list of numbers above 0.
fn positives(head: &mut CardSection<'_>, key: &'static str, wanted: &str) -> Option<Vec<f32>> {
    head.list(key, wanted, |section, element| {
        let number = number_in(element.get_ref()).map(|number| number as f32);
        let found = number.filter(|number| *number > 0.0 && number.is_finite());
        if found.is_none() {
            section.wrong_value(element, format!("`{key}` must be {wanted}"));
        }
        found
    })
}

/// Reads the anchors of Darknet's grids and the options that belong to them.
fn darknet(head: &mut CardSection<'_>) -> DarknetSpec {
    const KEY: &str = "anchors";
    const WANTED: &str = "pairs of width and height in pixels, as in [10, 14, 23, 27, 37, 58]";
    let anchors = positives(head, KEY, WANTED);
    match &anchors {
        Some(numbers) if !numbers.is_empty() && numbers.len().is_multiple_of(2) && numbers.len() <= MAX_COLUMNS => {}
        Some(_) => head.wrong_at(KEY, format!("`{KEY}` must be {WANTED}")),
        None if head.value(KEY).is_none() => {
            let message = "the card has no `anchors`: write those that the `mask` of each grid in the model's .cfg names, \
                           the grid of the smallest cells first";
            head.wrong_at(KEY, message);
        }
        None => {}
    }
    let scale_x_y = positives(head, "scale_x_y", "a number for each grid, as in [1.2, 1.1, 1.05]").unwrap_or_default();
    let activation = head.choice("activation", &ACTIVATIONS).unwrap_or(Activation::Sigmoid);
    if activation == Activation::None {
        head.wrong_at("activation", "the numbers of Darknet's layers are not scores: write \"sigmoid\" or \"softmax\"");
    }
    let anchors = anchors.unwrap_or_default().as_chunks::<2>().0.to_vec();
    let style = head.choice("style", &GRID_STYLES).unwrap_or_default();
    DarknetSpec { anchors, scale_x_y, activation, style }
}

/// Reads the options that the families of boxes and scores share.
fn boxes(head: &mut CardSection<'_>) -> BoxesSpec {
    BoxesSpec {
        boxes: name(head, "boxes"),
        scores: name(head, "scores"),
        labels: name(head, "labels"),
        count: None,
        activation: head.choice("activation", &ACTIVATIONS),
        format: head.choice("format", &FORMATS),
        unit: head.choice("unit", &UNITS),
        background: head.choice("background", &BACKGROUNDS),
        multi_label: head.flag("multi_label"),
        anchors: None,
    }
}

/// The most attributes of a model.
const MAX_ATTRIBUTES: usize = 256;

/// Reads the attributes of the family `attributes`.
fn attributes(head: &mut CardSection<'_>) -> Vec<AttributeSpec> {
    const TITLE: &str = "[[head.attribute]]";
    let sections = head.sections("attribute", TITLE);
    if sections.is_empty() {
        let message = format!("the card has no attribute: write {TITLE}, and `name` and `output` under it");
        head.wrong_at("attribute", message);
    }
    if sections.len() > MAX_ATTRIBUTES {
        head.wrong_at("attribute", format!("there are more than {MAX_ATTRIBUTES} attributes: remove some"));
    }
    let mut found: Vec<AttributeSpec> = Vec::new();
    for mut section in sections {
        if let Some(attribute) = attribute(&mut section) {
            if found.iter().any(|other| other.name == attribute.name) {
                let message = format!("`name` is `{}` in two attributes: rename one", attribute.name);
                section.wrong_at("name", message);
            }
            found.push(attribute);
        }
        section.finish();
    }
    found
}

fn attribute(section: &mut CardSection<'_>) -> Option<AttributeSpec> {
    let (name, output) = (name(section, "name"), name(section, "output"));
    for (key, missing) in [("name", name.is_none()), ("output", output.is_none())] {
        if missing && section.value(key).is_none() {
            section.wrong_at(
                key,
                format!("an attribute has no `{key}`: write `{key} = \"...\"` under [[head.attribute]]"),
            );
        }
    }
    if name.as_deref().is_some_and(|name| name.is_empty() || is_too_long(name)) {
        let message = format!("`name` must have 1 to {MAX_NAME_CHARS} characters: correct it");
        section.wrong_at("name", message);
    }
    let column = section.whole("column", 0, MANY).map(|column| column as usize);
    let names = section.texts("classes", "a list of texts, as in [\"no\", \"yes\"]");
    let activation = section.choice("activation", &ACTIVATIONS);
    let multi_label = section.flag("multi_label").unwrap_or(false);
    let any = f64::from(f32::MAX);
    let scale = section.number("scale", -any, any);
    let offset = section.number("offset", -any, any);
    let others: &[&'static str] = if names.is_some() { &["scale", "offset"] } else { &["activation", "multi_label"] };
    for &key in others {
        if section.value(key).is_some() {
            let (labels, number) = ("an attribute with `classes`", "a number, which has no `classes`");
            let what = if names.is_some() { labels } else { number };
            section.wrong_at(key, format!("`{key}` does not apply to {what}: remove one of the two"));
        }
    }
    let kind = match names {
        None => AttributeKind::Number { scale: scale.unwrap_or(1.0) as f32, offset: offset.unwrap_or(0.0) as f32 },
        Some(names) => {
            let least = if multi_label { 1 } else { 2 };
            if names.len() < least {
                section.wrong_at("classes", "`classes` has too few names: write two or more, or `multi_label = true`");
            }
            if names.iter().any(|name| is_too_long(name)) {
                let message = format!("a name in `classes` has more than {MAX_NAME_CHARS} characters: shorten it");
                section.wrong_at("classes", message);
            }
            if multi_label && activation == Some(Activation::Softmax) {
                let message =
                    "a softmax picks one label, so it cannot go with `multi_label`: write \"sigmoid\" or \"none\"";
                section.wrong_at("activation", message);
            }
            AttributeKind::Labels { names, activation, multi_label }
        }
    };
    Some(AttributeSpec { name: name?, output: output?, column, kind })
}

/// The most numbers per row.
const MAX_COLUMNS: usize = 1000;

/// Reads how the family of model-selected rows finds them.
fn rows(head: &mut CardSection<'_>) -> RowsSpec {
    let columns = columns(head);
    let rows = RowsSpec {
        columns,
        nms: head.flag("nms").unwrap_or(false),
        background: head.choice("background", &BACKGROUNDS).unwrap_or_default(),
        boxes: name(head, "boxes"),
        scores: name(head, "scores"),
        labels: name(head, "labels"),
    };
    let outputs = [("boxes", &rows.boxes), ("scores", &rows.scores), ("labels", &rows.labels)];
    if rows.columns.is_some()
        && let Some((key, _)) = outputs.into_iter().find(|(_, name)| name.is_some())
    {
        let message =
            format!("`{key}` names an output of its own, and `columns` are those of one output: remove one of the two");
        head.wrong_at(key, message);
    }
    rows
}

/// Reads the order of a row's numbers.
fn columns(head: &mut CardSection<'_>) -> Option<Vec<Column>> {
    const KEY: &str = "columns";
    const WANTED: &str = "a list of the numbers of a row, as in [\"class\", \"score\", \"x1\", \"y1\", \"x2\", \"y2\"]";
    let names = COLUMNS.map(|(name, _)| name);
    let columns = head.list(KEY, WANTED, |section, element| {
        let Some(word) = element.get_ref().as_str() else {
            section.wrong_value(element, format!("`{KEY}` must be {WANTED}"));
            return None;
        };
        let found = COLUMNS.iter().find(|(name, _)| *name == word).map(|(_, column)| *column);
        if found.is_none() {
            let near =
                nearest(word, names.iter().copied()).map_or(String::new(), |near| format!("did you mean `{near}`? "));
            let message = format!("`{KEY}` has no `{word}`: {near}There is {}", names.join(", "));
            section.wrong_value(element, message);
        }
        found
    })?;
    if columns.len() > MAX_COLUMNS {
        head.wrong_at(KEY, format!("`{KEY}` has more than {MAX_COLUMNS} numbers: remove some"));
        return None;
    }
    let is_centre =
        |column: &Column| matches!(column, Column::CenterX | Column::CenterY | Column::Width | Column::Height);
    let centred = columns.iter().any(is_centre);
    for (name, column) in COLUMNS {
        let count = columns.iter().filter(|other| **other == column).count();
        let right = match column {
            Column::Skipped => true,
            Column::Batch => count <= 1,
            Column::Class | Column::Score => count == 1,
            // Either corners, or centre and size, must be complete.
            _ => count == usize::from(is_centre(&column) == centred),
        };
        if !right {
            let found = match count {
                0 => "has no".to_owned(),
                1 => "also has".to_owned(),
                _ => format!("has {count} times"),
            };
            let four = if centred { "cx, cy, w, h" } else { "x1, y1, x2, y2" };
            head.wrong_at(
                KEY,
                format!("`{KEY}` {found} `{name}`: write each of class, score, {four} once, and `_` for others"),
            );
            return None;
        }
    }
    Some(columns)
}

/// Reads the options of faces on grids.
fn faces(head: &mut CardSection<'_>) -> FacesSpec {
    const KEY: &str = "min_sizes";
    const WANTED: &str = "a list of sizes for each grid, as in [[16, 32], [64, 128], [256, 512]]";
    let style = head.choice("style", &FACES).unwrap_or_default();
    let usual = FacesSpec::default();
    let strides = strides(head).unwrap_or(usual.strides);
    if style != FacesStyle::Retinaface {
        return FacesSpec { style, strides, min_sizes: usual.min_sizes };
    }
    let sizes = head.list(KEY, WANTED, |section, grid| section.wholes_in(KEY, grid, 1, 16_384, WANTED));
    let min_sizes = sizes.unwrap_or(usual.min_sizes);
    if min_sizes.len() != strides.len() || min_sizes.iter().any(|sizes| !(1..=MAX_PRIORS).contains(&sizes.len())) {
        let message =
            format!("`{KEY}` must have 1 to {MAX_PRIORS} sizes for each of the strides {strides:?}: write {WANTED}");
        head.wrong_at(KEY, message);
    }
    FacesSpec { style, strides, min_sizes }
}

/// The most prior boxes per cell.
const MAX_PRIORS: usize = 16;

fn grid(head: &mut CardSection<'_>) -> Option<[u32; 2]> {
    const WANTED: &str = "columns and rows, as in [8, 6]";
    match head.wholes("grid", 1, MAX_GRID, WANTED)?[..] {
        [columns, rows] => Some([columns, rows]),
        _ => {
            head.wrong_at("grid", format!("`grid` must be {WANTED}"));
            None
        }
    }
}

/// Returns the option that contradicts rows with their own columns.
fn beside_columns(spec: &HeadSpec) -> Option<&'static str> {
    match spec {
        HeadSpec::YoloNms { rows: RowsSpec { columns: Some(_), .. }, oriented, keypoints, .. } => match keypoints {
            Some(_) => Some("`keypoints`"),
            None => oriented.then_some("`oriented`"),
        },
        _ => None,
    }
}

/// Returns the option that contradicts oriented boxes.
fn beside_oriented(spec: &HeadSpec) -> Option<&'static str> {
    match spec {
        HeadSpec::Yolov8 { oriented: true, masks: 1.., .. } => Some("`masks`"),
        HeadSpec::Yolov8 { oriented: true, keypoints: Some(_), .. }
        | HeadSpec::YoloNms { oriented: true, keypoints: Some(_), .. } => Some("`keypoints`"),
        // Fractions of two sides have no right angles.
        HeadSpec::YoloNms { oriented: true, unit: BoxUnit::Normalized, .. } => Some("`unit = \"normalized\"`"),
        _ => None,
    }
}

/// Reads the head; `None` if the family is missing or unknown, which is reported.
pub(super) fn read(mut head: CardSection<'_>) -> Option<HeadSpec> {
    if head.value("family").is_none() {
        let names = Family::ALL.map(|(name, _)| name).join(", ");
        let message = format!("the card has no head: write `family = \"...\"` under [head], one of {names}");
        head.wrong_at("family", message);
        return None;
    }
    // Without a family, the other valid keys are unknown.
    let family = head.choice("family", &Family::ALL)?;
    head.title = format!("the [head] of family `{}`", family.name());
    let spec = match family {
        Family::Yolov5 => HeadSpec::Yolov5 {
            keypoints: keypoints(&mut head),
            masks: head.whole("masks", 0, MANY).unwrap_or(0) as usize,
        },
        Family::Yolov8 => HeadSpec::Yolov8 {
            keypoints: keypoints(&mut head),
            masks: head.whole("masks", 0, MANY).unwrap_or(0) as usize,
            oriented: head.flag("oriented").unwrap_or(false),
        },
        Family::YoloNms => HeadSpec::YoloNms {
            keypoints: keypoints(&mut head),
            unit: head.choice("unit", &UNITS).unwrap_or(BoxUnit::Pixels),
            oriented: head.flag("oriented").unwrap_or(false),
            rows: rows(&mut head),
        },
        Family::Yolox => HeadSpec::Yolox(YoloxSpec {
            decoded: head.flag("decoded").unwrap_or(false),
            strides: strides(&mut head).unwrap_or_else(|| vec![8, 16, 32]),
        }),
        Family::Darknet => HeadSpec::Darknet(darknet(&mut head)),
        Family::Nanodet => HeadSpec::Nanodet(NanodetSpec {
            strides: strides(&mut head).unwrap_or_else(|| vec![8, 16, 32]),
            reg_max: head.whole("reg_max", 0, 256).unwrap_or(7) as usize,
            sigmoid: head.flag("sigmoid").unwrap_or(false),
            cell_centre: head.flag("cell_centre").unwrap_or(true),
            multi_label: head.flag("multi_label").unwrap_or(true),
        }),
        Family::Ssd => HeadSpec::Ssd(BoxesSpec {
            count: name(&mut head, "count"),
            anchors: head.choice("anchors", &ANCHORS),
            ..boxes(&mut head)
        }),
        Family::Detr => HeadSpec::Detr(boxes(&mut head)),
        Family::Heatmap => {
            let style = head.choice("style", &STYLES).unwrap_or(HeatmapStyle::CenterNet);
            HeadSpec::Heatmap(HeatmapSpec {
                style,
                stride: head.whole("stride", 1, 1024).unwrap_or(if style == HeatmapStyle::DetectNet { 16 } else { 4 }),
                sigmoid: (head.flag("sigmoid"))
                    .unwrap_or(!matches!(style, HeatmapStyle::CenterFace | HeatmapStyle::DetectNet)),
                heat: name(&mut head, "heat"),
                size: name(&mut head, "size"),
                offset: name(&mut head, "offset"),
                landmarks: name(&mut head, "landmarks"),
            })
        }
        Family::Blazeface => HeadSpec::Blazeface(BlazefaceSpec { strides: strides(&mut head) }),
        Family::Faces => HeadSpec::Faces(faces(&mut head)),
        Family::Fomo => HeadSpec::Fomo,
        Family::Movenet => HeadSpec::Movenet,
        Family::Pose => HeadSpec::Pose,
        Family::Semantic => HeadSpec::Semantic {
            activation: head.choice("activation", &ACTIVATIONS),
            background: head.choice("background", &BACKGROUNDS).unwrap_or_default(),
        },
        Family::DbText => {
            let usual = DbTextSpec::default();
            HeadSpec::DbText(DbTextSpec {
                thresh: head.number("thresh", 0.0, 1.0).map_or(usual.thresh, |number| number as f32),
                unclip_ratio: head.number("unclip_ratio", 0.0, 100.0).map_or(usual.unclip_ratio, |n| n as f32),
                max_candidates: head.whole("max_candidates", 1, MANY).map_or(usual.max_candidates, |n| n as usize),
                sigmoid: head.flag("sigmoid").unwrap_or(usual.sigmoid),
            })
        }
        Family::Classifier => HeadSpec::Classifier {
            activation: head.choice("activation", &ACTIVATIONS),
            background: head.choice("background", &BACKGROUNDS).unwrap_or_default(),
        },
        Family::Attributes => HeadSpec::Attributes(attributes(&mut head)),
        Family::Embedding => {
            HeadSpec::Embedding { output: name(&mut head, "output"), normalize: head.flag("normalize").unwrap_or(true) }
        }
        Family::Depth => HeadSpec::Depth(DepthSpec {
            output: name(&mut head, "output"),
            grid: grid(&mut head).unwrap_or(DepthSpec::default().grid),
            nearer: head.choice("nearer", &NEARER).unwrap_or_default(),
        }),
    };
    if let Some(other) = beside_oriented(&spec) {
        head.wrong_at("oriented", format!("`oriented` cannot go with {other}: no such model exists; keep one"));
    }
    if let Some(other) = beside_columns(&spec) {
        head.wrong_at(
            "columns",
            format!("`columns` cannot go with {other}: such rows have one order; remove one of the two"),
        );
    }
    head.finish();
    Some(spec)
}
