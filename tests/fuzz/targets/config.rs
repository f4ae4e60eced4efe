//! Configurations.
//!
//! A valid one is the same after it is written and read again; with its secrets hidden it is still valid; an invalid one has
//! a reason.

#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use visiond_config::types::Config;

fn parse(text: &str) -> Result<Config, visiond_config::ConfigErrors> {
    Config::parse(text, Path::new("/base/visiond.toml"))
}

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let config = match parse(text) {
        Ok(config) => config,
        Err(errors) => {
            assert!(!errors.findings.is_empty());
            return assert!(!errors.to_string().is_empty());
        }
    };
    let written = config.to_toml();
    match parse(&written) {
        Ok(again) => assert_eq!(again, config, "{written}"),
        Err(errors) => panic!("{errors}\n{written}"),
    }
    let shown = config.to_toml_without_secrets();
    assert!(toml::from_str::<toml::Table>(&shown).is_ok(), "{shown}");
});
