//! `visiond man`: the manual pages, generated from the command line's and the configuration's declarations.

use std::io;
use std::path::PathBuf;

use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use visiond_config::man_page;
use visiond_system::exit::{Exit, ExitError};

use crate::output::{create_folder, print, write_file};

/// Print the manual page, or write all manual pages to a folder
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Write visiond.1, a page for each command and visiond.toml.5 to FOLDER [default: print visiond.1]
    #[arg(long, value_name = "FOLDER")]
    directory: Option<PathBuf>,
}

const AFTER_HELP: &str = "\
Examples:
  visiond man | man -l -                       show the page of visiond itself
  visiond man --directory /usr/local/man/man1  write all pages";

/// Prints the page of `visiond`, or writes all pages.
pub fn run(args: Args, command: clap::Command) -> Result<Exit, ExitError> {
    let mut root = command.disable_help_subcommand(true);
    root.build();
    let pages =
        pages(&root).map_err(|error| ExitError::new(Exit::Failure, format!("cannot make the manual page: {error}")))?;
    let Some(folder) = args.directory else { return print(&pages[0].1).map(|()| Exit::Success) };
    create_folder(&folder)?;
    for (name, text) in pages {
        write_file(&folder.join(name), text)?;
    }
    Ok(Exit::Success)
}

/// Returns each page's file name and text, first the page of visiond itself.
fn pages(root: &clap::Command) -> io::Result<Vec<(String, String)>> {
    let others: Vec<_> = root.get_subcommands().map(title).collect();
    let mut pages = vec![("visiond.1".to_owned(), page_of(root, &others)?)];
    for command in root.get_subcommands() {
        pages.push((format!("{}.1", title(command)), page_of(command, &["visiond".to_owned()])?));
    }
    pages.push(("visiond.toml.5".to_owned(), man_page::text()));
    Ok(pages)
}

fn title(command: &clap::Command) -> String {
    command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned()
}

/// Returns a command's page. It refers to `others` of section 1 and to the configuration's page at its end.
fn page_of(command: &clap::Command, others: &[String]) -> io::Result<String> {
    let man = Man::new(command.clone()).source(man_page::SOURCE).manual(man_page::MANUAL);
    let mut out = Vec::new();
    man.render_title(&mut out)?;
    man.render_name_section(&mut out)?;
    man.render_synopsis_section(&mut out)?;
    man.render_description_section(&mut out)?;
    man.render_options_section(&mut out)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut out)?;
    }
    let mut roff = Roff::new();
    for (heading, lines) in sections(&command.get_after_help().map(ToString::to_string).unwrap_or_default()) {
        roff.control("SH", [heading.to_uppercase().as_str()]);
        // No fill: a paragraph would lose the columns.
        roff.control("nf", []);
        for line in lines {
            roff.text([roman(line)]);
        }
        roff.control("fi", []);
    }
    roff.control("SH", ["SEE ALSO"]);
    let others: Vec<_> = others.iter().map(|name| format!("{name}(1)")).collect();
    roff.text([roman(format!("{}, visiond.toml(5)", others.join(", ")))]);
    roff.to_writer(&mut out)?;
    Ok(String::from_utf8_lossy(&out).into_owned())
}

/// Splits the text below the options into sections: headings that end with a colon, each with its lines.
fn sections(after_help: &str) -> Vec<(String, Vec<String>)> {
    let mut sections: Vec<(String, Vec<String>)> = Vec::new();
    for line in after_help.lines().filter(|line| !line.is_empty()) {
        match (line.strip_suffix(':'), sections.last_mut()) {
            (Some(heading), _) if !line.starts_with(' ') => sections.push((heading.to_owned(), Vec::new())),
            (_, Some((_, lines))) => lines.push(line.to_owned()),
            (_, None) => sections.push(("Notes".to_owned(), vec![line.to_owned()])),
        }
    }
    sections
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::arguments::command;

    #[test]
    fn every_command_has_a_page_with_its_options_and_examples() {
        let mut root = command().disable_help_subcommand(true);
        root.build();
        let pages = pages(&root).unwrap();
        for command in root.get_subcommands() {
            let (_, text) = pages.iter().find(|(name, _)| *name == format!("{}.1", title(command))).unwrap();
            let shown = command.get_arguments().filter(|argument| !argument.is_hide_set());
            for argument in shown.filter_map(clap::Arg::get_long) {
                let option = format!("\\-\\-{}", argument.replace('-', "\\-"));
                assert!(text.contains(&option), "{} lacks {option}", title(command));
            }
            assert!(text.contains(".SH \"EXIT STATUS\"\n.nf\n"), "{text}");
        }
    }

    #[test]
    fn the_sections_below_the_options_keep_their_lines() {
        let found = sections("Examples:\n  visiond x\n    more\n\nExit status:\n  0  fine\n");
        let expected = [
            ("Examples".to_owned(), vec!["  visiond x".to_owned(), "    more".to_owned()]),
            ("Exit status".to_owned(), vec!["  0  fine".to_owned()]),
        ];
        assert_eq!(found, expected);
    }
}
