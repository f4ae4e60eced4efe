//! How many classes an output has room for, and where the class for "nothing" stands.

use super::spec::Background;

/// The plural of "class" in messages.
pub(super) fn classes_text(count: usize) -> String {
    if count == 1 { "1 class".to_owned() } else { format!("{count} classes") }
}

/// The class count of an output whose rows (or columns: `what`) have `width` numbers, `besides` of them something else.
///
/// `named` is what the card names, 0 if nothing; `None` while the width is unknown and nothing is named.
pub(super) fn classes_in(
    width: Option<usize>,
    besides: usize,
    named: usize,
    what: &str,
) -> Result<Option<usize>, String> {
    match width {
        None => Ok((named > 0).then_some(named)),
        Some(width) if named == 0 => match width.checked_sub(besides) {
            Some(classes) if classes > 0 => Ok(Some(classes)),
            _ => Err(format!("has {what} of {width} numbers, which leaves no class after {besides} others")),
        },
        Some(width) if width == besides + named => Ok(Some(named)),
        Some(width) => Err(format!(
            "has {what} of {width} numbers where the card's {} and {besides} others make {}",
            classes_text(named),
            besides + named
        )),
    }
}

/// Which of `width` scores are classes.
pub(super) fn class_columns(background: Background, width: usize) -> std::ops::Range<usize> {
    match background {
        Background::None => 0..width,
        Background::First => width.min(1)..width,
        Background::Last => 0..width.saturating_sub(1),
    }
}

/// As [`classes_in`] where all numbers are classes, one of which may be none of them.
pub(super) fn classes_with_background(
    width: Option<usize>,
    background: Background,
    named: usize,
) -> Result<Option<usize>, String> {
    let besides = usize::from(background != Background::None);
    classes_in(width, besides, named, "rows").map_err(|problem| match width {
        Some(width) if besides == 0 && named > 0 && width == named + 1 => {
            format!("{problem} (if one of them is no class, say background = \"first\" or \"last\")")
        }
        _ => problem,
    })
}

/// Whether an output has a row for each cell of the grids.
pub(super) fn check_cells(
    rows: Option<usize>,
    wanted: usize,
    strides: &[u32],
    (width, height): (u32, u32),
) -> Result<(), String> {
    match rows {
        Some(rows) if rows != wanted => Err(format!(
            "has {rows} rows where grids of strides {strides:?} over {width}x{height} pixels have {wanted}"
        )),
        _ => Ok(()),
    }
}
