//! Resolves the classes that a user wants to detect.

use super::error::DetectorError;

/// Returns the numbers of the wanted classes; `None` for all.
pub(super) fn wanted(asked: &[String], names: &[String]) -> Result<Option<Vec<u32>>, DetectorError> {
    if asked.is_empty() {
        return Ok(None);
    }
    let class = |name: &String| {
        if let Some(index) = names.iter().position(|known| known == name) {
            return Ok(index as u32);
        }
        match name.parse::<u32>() {
            Ok(number) if number as usize >= names.len() => Ok(number),
            _ => Err(DetectorError::UnknownClass(name.clone(), class_hint(name, names))),
        }
    };
    asked.iter().map(class).collect::<Result<_, _>>().map(Some)
}

/// Returns a hint with the nearest class names.
fn class_hint(name: &str, names: &[String]) -> String {
    if names.is_empty() {
        return ": its card names no classes; use their numbers".to_owned();
    }
    let likeness = |known: &str| strsim::jaro_winkler(&name.to_lowercase(), &known.to_lowercase());
    let mut near: Vec<_> = names.iter().map(|known| (likeness(known), known)).filter(|(l, _)| *l > 0.75).collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0));
    match near[..] {
        [] => format!(": it has {}", names.iter().take(100).map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ")),
        _ => {
            let near: Vec<_> = near.iter().take(3).map(|(_, known)| format!("`{known}`")).collect();
            format!(": did you mean {}?", near.join(" or "))
        }
    }
}
