//! Specs that are refused, and results that are not there. What the kernel does is tested with the heads.

use super::*;
use crate::buffer::UnifiedBuffer;

/// A model of 100 rows: a box, then 3 scores.
fn spec() -> FilterSpec {
    let values = Values::rows(0, 100, 7);
    let table = Table {
        first_row: 0,
        rows: 100,
        scores: values.from_column(4),
        objectness: None,
        labels: None,
        valid_rows: None,
        boxes: values,
        offsets: None,
        points: None,
        grid: Grid::default(),
        anchor: [0.0; 2],
        centre_scale: 1.0,
    };
    FilterSpec {
        input_size: (640, 640),
        score_threshold: 0.5,
        tables: vec![table],
        score_columns: 3,
        classes: 0..3,
        scores: ScoreCode::Plain,
        choice: Choice::BestRaw,
        labels: LabelCode::Plain,
        boxes: BoxCode::Plain { corners: Corners::Xyxy, scale: [1.0, 1.0] },
        points: None,
        keep_best: None,
    }
}

#[test]
fn a_spec_that_reads_outside_its_output_is_refused_before_a_gpu_does() {
    assert_eq!(spec().check(), Ok(()));
    let mut beyond = spec();
    beyond.tables[0].rows = 101;
    let told = Launch::new(&beyond).unwrap_err().to_string();
    assert_eq!(told, "table 0 reads scores beyond the 700 numbers of output 0");
    let mut beyond = spec();
    beyond.tables[0].boxes = Values::rows(0, 100, 7).from_column(4);
    assert_eq!(beyond.check().unwrap_err().to_string(), "table 0 reads boxes beyond the 700 numbers of output 0");
    let mut beyond = spec();
    beyond.tables[0].scores.row_step = usize::MAX;
    assert!(beyond.check().is_err());
}

#[test]
fn parts_that_do_not_go_together_are_refused() {
    let points = Some(Points { count: 2, code: PointCode::Anchor });
    let peaks = Choice::Every { peaks: true, row_step: 100 };
    for (wrong, told) in [
        (FilterSpec { classes: 1..4, ..spec() }, "a candidate filter cannot have classes outside its scores"),
        (FilterSpec { points, ..spec() }, "a candidate filter cannot have points that no table has"),
        (FilterSpec { boxes: BoxCode::Face, ..spec() }, "a candidate filter cannot have faces without offsets"),
        (
            FilterSpec { choice: peaks, ..spec() },
            "a candidate filter cannot have peaks of rows that do not fill a grid",
        ),
    ] {
        assert_eq!(wrong.check().unwrap_err().to_string(), told);
    }
    let distances = |bins| FilterSpec { boxes: BoxCode::Distances { bins }, ..spec() };
    for wrong in [distances(0), distances(257)] {
        assert!(wrong.check().unwrap_err().to_string().contains("distributions of no bins, or more than 256"));
    }
    let gridded = |columns, rows_per_cell| {
        let mut spec = spec();
        spec.tables[0].grid = Grid { columns, rows_per_cell, ..Grid::default() };
        spec
    };
    for wrong in [gridded(0, 1), gridded(1, 0)] {
        assert!(wrong.check().unwrap_err().to_string().contains("a grid without cells"));
    }
    let mut reversed = spec();
    (reversed.classes.start, reversed.classes.end) = (2, 1);
    assert!(reversed.check().unwrap_err().to_string().contains("classes outside its scores"));
    let mut last = spec();
    last.tables[0].first_row = u32::MAX as usize - 100;
    assert_eq!(last.check(), Ok(()));
    last.tables[0].first_row += 1;
    assert!(last.check().unwrap_err().to_string().contains("more rows than are counted in 32 bits"));
    let mut each = FilterSpec { choice: Choice::Every { peaks: false, row_step: 1 << 31 }, ..spec() };
    each.classes.end = 2;
    assert_eq!(each.check(), Ok(()));
    each.classes.end = 3;
    assert!(each.check().unwrap_err().to_string().contains("more rows than are counted in 32 bits"));
    let most = FilterSpec { tables: vec![spec().tables[0]; MAX_TABLES], ..spec() };
    assert_eq!(most.check(), Ok(()));
    let many = FilterSpec { tables: vec![spec().tables[0]; MAX_TABLES + 1], ..spec() };
    assert!(many.check().unwrap_err().to_string().contains("13 tables of candidates are more"));
}

#[test]
fn there_is_room_for_all_that_can_be_found_within_reason() {
    assert_eq!(spec().capacity(), 100);
    assert_eq!(FilterSpec { choice: Choice::Every { peaks: false, row_step: 0 }, ..spec() }.capacity(), 300);
    let values = Values::rows(0, 8400, 7);
    let table = Table { rows: 8400, scores: values.from_column(4), boxes: values, ..spec().tables[0] };
    assert_eq!(FilterSpec { tables: vec![table], ..spec() }.capacity(), CAPACITY);
    assert_eq!(FilterSpec { tables: Vec::new(), ..spec() }.capacity(), 1);
    let launch = |count| {
        let points = Some(Points { count, code: PointCode::Anchor });
        let mut spec = FilterSpec { points, ..spec() };
        spec.tables[0].points = Some(Values::rows(1, 100, 2 * count));
        Launch::new(&spec).unwrap()
    };
    // A head of 16 bytes; of each candidate 32 and its points, two numbers each; rounded up to 64.
    assert_eq!((launch(0).results_bytes(1), launch(0).results_bytes(3)), (3264, 3 * 3264));
    assert_eq!((launch(5).results_bytes(1), Launch::state_bytes(3)), (7232, 24));
    assert_eq!((launch(5).outputs(), launch(5).capacity()), (2, 100));
}

#[test]
fn results_are_read_only_where_they_are() {
    let launch = Launch::new(&spec()).unwrap();
    let mut results = UnifiedBuffer::host(launch.results_bytes(2)).unwrap();
    // 102 found, 100 kept.
    let second = launch.results_bytes(1);
    results.as_mut_slice()[second] = 102;
    let found = launch.found(results.as_slice(), 1).unwrap();
    assert_eq!((found.records.len(), found.lost), (100, 2));
    assert!(launch.found(results.as_slice(), 0).unwrap().records.is_empty());
    assert!(launch.found(results.as_slice(), 2).is_none());
    assert!(launch.found(&results.as_slice()[1..second + 1], 0).is_none());
}
