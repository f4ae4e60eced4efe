//! How many classes an output has room for, and where the background class is.
//!
//! The errors are text: [`Checked`](super::decoder::Checked) puts it into `HeadError::Shape`.

use super::spec::Background;

/// Returns "1 class" or "N classes".
pub(super) fn classes_text(count: usize) -> String {
    if count == 1 { "1 class".to_owned() } else { format!("{count} classes") }
}

/// Returns the class count of an output whose rows (or columns: `what`) have `width` numbers, `besides` of them not classes.
///
/// `named` is the number of classes in the card, 0 if it names none. `None` if the width is unknown and the card names none.
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
            _ => Err(format!("has {what} of {width} numbers, which leaves no room for a class after {besides} others")),
        },
        Some(width) if width == besides + named => Ok(Some(named)),
        Some(width) => Err(format!(
            "has {what} of {width} numbers instead of {}: the card's {} and {besides} others",
            besides + named,
            classes_text(named)
        )),
    }
}

/// Returns which of `width` scores are classes.
pub(super) fn class_columns(background: Background, width: usize) -> std::ops::Range<usize> {
    match background {
        Background::None => 0..width,
        Background::First => width.min(1)..width,
        Background::Last => 0..width.saturating_sub(1),
    }
}

/// Does the same as [`classes_in`] if all numbers are classes, one of which may be the background.
pub(super) fn classes_with_background(
    width: Option<usize>,
    background: Background,
    named: usize,
) -> Result<Option<usize>, String> {
    let besides = usize::from(background != Background::None);
    classes_in(width, besides, named, "rows").map_err(|problem| match width {
        Some(width) if besides == 0 && named > 0 && width == named + 1 => {
            format!("{problem} (if one of them is the background, set background = \"first\" or \"last\")")
        }
        _ => problem,
    })
}

/// Checks that an output has a row for each cell of the grids.
pub(super) fn check_cells(
    rows: Option<usize>,
    wanted: usize,
    strides: &[u32],
    (width, height): (u32, u32),
) -> Result<(), String> {
    match rows {
        Some(rows) if rows != wanted => Err(format!(
            "has {rows} rows instead of {wanted}: grids of strides {strides:?} over {width}x{height} pixels"
        )),
        _ => Ok(()),
    }
}
