//! Rows that contradict the card: an error for the frame that has them, and for no other.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use proptest::prelude::*;
use visiond_kernels::tensor::{DType, TensorRef};

use crate::heads::finished_rows::{FinishedRow, RowCheck};
use crate::heads::spec::*;
use crate::heads::tests::tensor;
use crate::heads::*;

const SIZE: (u32, u32) = (640, 640);

/// Objects as rows of box, score, class.
const OBJECTS: [[f32; 6]; 3] = [
    [100.0, 120.0, 220.0, 260.0, 0.92, 2.0],
    [330.0, 80.0, 420.0, 330.0, 0.81, 0.0],
    [50.0, 400.0, 300.0, 600.0, 0.77, 1.0],
];

fn spec(columns: Option<&[Column]>) -> HeadSpec {
    let rows = RowsSpec { columns: columns.map(<[Column]>::to_vec), ..RowsSpec::default() };
    HeadSpec::YoloNms { keypoints: None, unit: BoxUnit::Pixels, oriented: false, rows }
}

/// Returns the class and score of each detection in rows of `width`, or the error.
fn decode(spec: &HeadSpec, classes: usize, width: usize, rows: &[f32]) -> Result<Vec<(u32, f32)>, String> {
    let shape = [rows.len() / width, width];
    let mut head = build(spec, &[tensor("output", &shape)], SIZE, classes).map_err(|error| error.to_string())?;
    let bytes: Vec<u8> = rows.iter().flat_map(|number| number.to_ne_bytes()).collect();
    let outputs = [NamedOutput { name: "output", tensor: TensorRef::new(DType::F32, &shape, &bytes).unwrap() }];
    let input = HeadInput { outputs: &outputs, input_size: SIZE, score_threshold: 0.25, mapping: None };
    let mut out = Decoded::default();
    let decoded = head.decode(&input, &mut out).map_err(|error| error.to_string());
    // The trial of a model reports the same as a frame.
    assert_eq!(head.check_numbers(&input).is_err(), decoded.is_err());
    assert!(decoded.is_ok() || out.candidates.is_empty(), "nothing of that frame is read");
    decoded.map(|()| out.candidates.iter().map(|found| (found.class_id, found.score)).collect())
}

/// Decodes the objects and one row more.
fn with_row(row: [f32; 6], classes: usize) -> Result<Vec<(u32, f32)>, String> {
    decode(&spec(None), classes, 6, &[&OBJECTS[..], &[row]].concat().concat())
}

#[test]
fn a_row_that_contradicts_the_card_is_an_error_with_its_place_and_its_numbers() {
    const NAN: f32 = f32::NAN;
    let named = ", or name at least 81 classes under [classes], from class 0 on";
    for (row, problem) in [
        (
            [10.0, 10.0, 50.0, 50.0, 1.002, 1.0],
            "class 1, score 1.002 and the box 10.0, 10.0, 50.0, 50.0: a score is from 0 to 1",
        ),
        ([10.0, 10.0, 50.0, 50.0, 300.0, 1.0], "a score is from 0 to 1"),
        ([10.0, 10.0, 50.0, 50.0, f32::INFINITY, 1.0], "a score is from 0 to 1"),
        ([10.0, 10.0, 50.0, 50.0, NAN, 1.0], "score NaN and the box 10.0, 10.0, 50.0, 50.0: a score is from 0 to 1"),
        ([10.0, 10.0, 50.0, 50.0, 0.5, 80.0], named),
        ([10.0, 10.0, 50.0, 50.0, 0.5, 0.92], "a class is a whole number from 0 on"),
        // Also in an unused row: there the column of scores may be that of classes, which are all 0.
        ([10.0, 10.0, 50.0, 50.0, 0.0, 0.92], "a class is a whole number from 0 on"),
        ([10.0, 10.0, 50.0, 50.0, 0.5, -1.0], "a class is a whole number from 0 on"),
        ([10.0, 10.0, 50.0, 50.0, 0.5, NAN], "a class is a whole number from 0 on"),
        ([10.0, 10.0, 7.0, 50.0, 0.5, 1.0], "a box is finite and ends after it begins"),
        ([10.0, 10.0, 50.0, 7.0, 0.5, 1.0], "a box is finite and ends after it begins"),
        ([10.0, NAN, 50.0, 50.0, 0.5, 1.0], "a box is finite and ends after it begins"),
        ([10.0, 10.0, f32::INFINITY, 50.0, 0.5, 1.0], "a box is finite and ends after it begins"),
    ] {
        let error = with_row(row, 80).unwrap_err();
        assert!(error.contains("row 3 of `output` gives ") && error.contains(problem), "{row:?}: {error}");
        assert!(error.contains("`output` f32 [4, 6]") && error.contains("`columns` under [head]"), "{error}");
    }
}

#[test]
fn rounding_and_unused_rows_are_no_contradiction() {
    let rest = [(2, 0.92), (0, 0.81), (1, 0.77)];
    for (row, found) in [
        // As f16 rounds.
        ([10.0, 10.0, 9.0, 9.0, 1.0005, 79.0], Some((79, 1.0005))),
        ([-20.0, 10.0, 700.0, 640.0, 0.25, 0.004], Some((0, 0.25))),
        // Unused rows, whatever their other values.
        ([0.0; 6], None),
        ([-1.0; 6], None),
        ([f32::NAN, 9.0, 3.0, 2.0, 0.0, 500.0], None),
        ([9.0, 9.0, 3.0, 2.0, 0.1, f32::NAN], None),
        ([9.0, 9.0, 3.0, 2.0, f32::NEG_INFINITY, 1.0], None),
    ] {
        let wanted: Vec<_> = rest.into_iter().chain(found).collect();
        assert_eq!(with_row(row, 80), Ok(wanted), "{row:?}");
    }
    // Without names, any number may be a class.
    assert_eq!(with_row([10.0, 10.0, 50.0, 50.0, 0.5, 5000.0], 0).unwrap()[3], (5000, 0.5));
}

#[test]
fn the_error_names_the_order_that_fits_all_rows() {
    use Column::{Batch, CenterX, CenterY, Class, Height, Score, Width, X1, X2, Y1, Y2};
    let orders: [&[Column]; 6] = [
        &[Class, Score, X1, Y1, X2, Y2],
        &[X1, Y1, X2, Y2, Class, Score],
        &[Batch, X1, Y1, X2, Y2, Score, Class],
        &[Batch, Class, Score, X1, Y1, X2, Y2],
        &[Batch, Class, X1, Y1, X2, Y2, Score],
        &[CenterX, CenterY, Width, Height, Score, Class],
    ];
    for order in orders {
        let number = |object: &[f32; 6], column: &Column| match column {
            X1 => object[0],
            Y1 => object[1],
            X2 => object[2],
            Y2 => object[3],
            CenterX => (object[0] + object[2]) / 2.0,
            CenterY => (object[1] + object[3]) / 2.0,
            Width => object[2] - object[0],
            Height => object[3] - object[1],
            Score => object[4],
            Class => object[5],
            _ => 0.0,
        };
        let rows: Vec<f32> =
            OBJECTS.iter().flat_map(|object| order.iter().map(move |column| number(object, column))).collect();
        let error = decode(&spec(None), 4, order.len(), &rows).unwrap_err();
        let written = format!("write `columns = {}` under [head]", Column::list(order));
        assert!(error.contains(&written), "{order:?}: {error}");
        let found = decode(&spec(Some(order)), 4, order.len(), &rows);
        assert_eq!(found, Ok(vec![(2, 0.92), (0, 0.81), (1, 0.77)]), "{order:?}");
    }
    // A card of centres and sizes, whose rows are corners in another order.
    let card = [CenterX, CenterY, Width, Height, Score, Class];
    let rows = OBJECTS.map(|[x1, y1, x2, y2, score, class]| [x1, y1, x2, y2, class, score]).concat();
    let error = decode(&spec(Some(&card)), 4, 6, &rows).unwrap_err();
    assert!(error.contains("write `columns = [\"x1\", \"y1\", \"x2\", \"y2\", \"class\", \"score\"]`"), "{error}");
    // Corners of which one row is damaged.
    let rows = [&OBJECTS[..], &[[10.0, 10.0, 7.0, 50.0, 0.5, 1.0]]].concat().concat();
    assert!(decode(&spec(None), 4, 6, &rows).unwrap_err().contains("as `columns` under [head], such as"));
    // Scores and classes of a model of one class in exchanged columns: every score is 0.
    let rows = OBJECTS.map(|[x1, y1, x2, y2, score, _]| [0.0, x1, y1, x2, y2, score, 0.0]).concat();
    assert!(decode(&spec(None), 1, 7, &rows).unwrap_err().contains("\"score\", \"class\"]` under [head]"));
}

#[test]
fn rows_of_another_width_than_the_columns_are_refused() {
    let columns = [Column::Class, Column::Score, Column::X1, Column::Y1, Column::X2, Column::Y2];
    let error = build(&spec(Some(&columns)), &[tensor("output", &[1, 300, 7])], SIZE, 4).err().unwrap();
    let words = "`output` has rows of 7 numbers, but the card's `columns` are 6";
    assert!(error.to_string().contains(words) && error.key == "head.columns", "{error}");
}

#[test]
fn a_row_for_each_cell_needs_nms() {
    let rows = |nms| HeadSpec::YoloNms {
        keypoints: None,
        unit: BoxUnit::Pixels,
        oriented: false,
        rows: RowsSpec { nms, ..RowsSpec::default() },
    };
    let three = |shape: &[usize]| [tensor("boxes", &[1, 8400, 4]), tensor("scores", shape), tensor("classes", shape)];
    for outputs in [
        vec![tensor("output", &[1, 8400, 6])],
        vec![tensor("output", &[1, 25_200, 6])],
        three(&[1, 8400]).into(),
        three(&[1, 8400, 1]).into(),
    ] {
        let error = build(&rows(false), &outputs, SIZE, 4).err().unwrap();
        assert_eq!(error.key, "head.nms");
        assert!(error.to_string().ends_with("write `nms = true` under [head]"), "{error}");
        let head = build(&rows(true), &outputs, SIZE, 4).unwrap_or_else(|error| panic!("{error}"));
        assert_ne!(head.suppression(), Suppression::None);
    }
    // What a model has chosen, and cells of another size of input.
    for count in [100, 200, 300, 1000, 2100] {
        assert!(build(&rows(false), &[tensor("output", &[1, count, 6])], SIZE, 4).is_ok(), "{count}");
    }
    let error = build(&HeadSpec::Ssd(BoxesSpec::default()), &three(&[1, 8400]), SIZE, 4).err().unwrap().to_string();
    assert!(error.ends_with("write `family = \"yolo-nms\"` and `nms = true` under [head]"), "{error}");
}

#[test]
fn labels_of_open_size_are_not_read_as_rows() {
    let open = |name: &str, dtype: DType, width: Option<usize>| {
        let open = || crate::backend::Dim::Dynamic("n".to_owned());
        let dims = [open(), open()].into_iter().chain(width.map(crate::backend::Dim::Fixed)).collect();
        crate::backend::TensorInfo { name: name.to_owned(), dtype, shape: Some(dims) }
    };
    let labels = open("labels", DType::I64, None);
    let error = build(&spec(None), &[open("dets", DType::F32, Some(4)), labels.clone()], SIZE, 4).err().unwrap();
    assert!(error.to_string().contains("`dets` has rows of 4 numbers, but needs 6 or more"), "{error}");
    assert!(build(&spec(None), &[open("dets", DType::F32, Some(5)), labels], SIZE, 4).is_ok());
}

/// A number near the check's limits, or any bits.
fn number() -> impl Strategy<Value = f32> {
    let ends = prop_oneof![
        (-3..100_i32).prop_map(|whole| whole as f32),
        (20..26_u32).prop_map(|power| (1_u32 << power) as f32),
        Just(0.25),
        Just(1.001),
        Just(640.0),
    ];
    let fractions = prop_oneof![Just(0.0_f32), Just(0.01), Just(0.5), Just(0.99)];
    let near = (ends, fractions, -3..4_i32, any::<bool>()).prop_map(|(end, fraction, steps, negative)| {
        let number = if negative { -(end + fraction) } else { end + fraction };
        f32::from_bits(number.to_bits().wrapping_add_signed(steps))
    });
    prop_oneof![8 => near, 1 => any::<u32>().prop_map(f32::from_bits), 1 => Just(f32::NAN)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_row_at_fault_is_the_first_of_which_anything_is_wrong(
        rows in prop::collection::vec([number(), number(), number(), number(), number(), number()], 1..6),
        score_threshold in prop_oneof![Just(0.0_f32), Just(0.25), Just(1.0)],
        background in prop_oneof![Just(Background::None), Just(Background::First), Just(Background::Last)],
        class_count in prop_oneof![Just(0_usize), Just(80)],
    ) {
        let check = RowCheck { score_threshold, background, class_count, input_size: SIZE };
        let parts = |&[a, b, c, d, score, label]: &[f32; 6]| (score, label, [a, b, c, d]);
        let simple = rows.iter().map(parts).enumerate().find_map(|(index, (score, label, corners))| {
            Some((index, check.fault(FinishedRow { score, label, corners })?))
        });
        let found = check.first_fault(rows.iter().map(parts), |corners| corners);
        prop_assert_eq!(found.map(|(index, _, fault)| (index, fault)), simple);
    }
}
