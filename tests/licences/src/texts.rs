//! Licence texts: from a crate's sources, or our own copy if they have none.

use std::fs;
use std::io;
use std::path::Path;

use crate::crates::Crate;
use crate::expression::offers;

/// How the names of files with terms or notices begin.
const NAMES: &[&str] = &["license", "licence", "copying", "copyright", "notice", "unlicense"];

const MIT: &str = "\
Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation files
(the \"Software\"), to deal in the Software without restriction, including without limitation the rights to use, copy, modify,
merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED \"AS IS\", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES
OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE
LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN
CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
";

/// The texts of a crate: its files, or if it has none, the text of the licence that it declares.
pub fn of(krate: &Crate, apache: &str) -> Result<Vec<String>, String> {
    let mut texts = Vec::new();
    collect(&krate.folder, 0, &mut texts).map_err(|error| format!("{}: {error}", krate.folder.display()))?;
    if !texts.is_empty() {
        return Ok(texts);
    }
    if offers(&krate.licence, "Apache-2.0") {
        return Ok(vec![apache.to_owned()]);
    }
    if offers(&krate.licence, "MIT") {
        let holders =
            if krate.authors.is_empty() { format!("the authors of {}", krate.name) } else { krate.authors.join(", ") };
        return Ok(vec![format!("Copyright (c) {holders}\n\n{MIT}")]);
    }
    Err(format!("{} {} names the licence {} and carries no text of it", krate.name, krate.version, krate.licence))
}

/// The files with terms in the folder and its direct subfolders, which may be other people's sources.
fn collect(folder: &Path, depth: usize, texts: &mut Vec<String>) -> io::Result<()> {
    let mut entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let name = entry.file_name().to_string_lossy().to_lowercase();
        let kind = entry.file_type()?;
        if kind.is_dir() && depth == 0 && name != "target" && !name.starts_with('.') {
            collect(&entry.path(), depth + 1, texts)?;
        } else if kind.is_file() && NAMES.iter().any(|beginning| name.starts_with(beginning)) {
            let text = String::from_utf8_lossy(&fs::read(entry.path())?).replace('\r', "");
            let source = [".rs", ".c", ".h", ".py"].iter().any(|ending| name.ends_with(ending));
            if !source && !text.trim().is_empty() && !texts.contains(&text) {
                texts.push(text);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn of_folder(folder: &Path, licence: &str) -> Crate {
        Crate {
            name: "x".to_owned(),
            version: "1.0.0".to_owned(),
            licence: licence.to_owned(),
            authors: vec!["A. Author".to_owned()],
            repository: String::new(),
            folder: folder.to_owned(),
            ours: false,
        }
    }

    #[test]
    fn texts_are_the_crates_own_or_written_from_what_it_says() {
        let folder = std::env::temp_dir().join(format!("visiond-licences-{}", std::process::id()));
        fs::create_dir_all(folder.join("vendored")).unwrap();
        assert_eq!(of(&of_folder(&folder, "MIT OR Apache-2.0"), "apache").unwrap(), ["apache"]);
        assert!(
            of(&of_folder(&folder, "MIT"), "apache").unwrap()[0].starts_with("Copyright (c) A. Author\n\nPermission")
        );
        assert!(of(&of_folder(&folder, "Zlib"), "apache").unwrap_err().contains("carries no text"));
        fs::write(folder.join("LICENSE-MIT"), "its own\r\n").unwrap();
        fs::write(folder.join("vendored/COPYING"), "the vendored one's\n").unwrap();
        assert_eq!(of(&of_folder(&folder, "MIT"), "apache").unwrap(), ["its own\n", "the vendored one's\n"]);
        fs::remove_dir_all(folder).unwrap();
    }
}
