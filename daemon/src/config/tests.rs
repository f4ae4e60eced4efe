#![allow(clippy::unwrap_used)]

use super::*;

#[test]
fn what_is_written_reads_back() {
    let text = Config::default().to_toml();
    assert_eq!(Config::parse(&text, Path::new("visiond.toml")).unwrap(), Config::default());
}
