//! `visiond man`: the manual pages, generated from the declarations of the command line and the configuration.

mod config_page;

use std::path::PathBuf;
use std::{env, io};

use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use jiff::Timestamp;
use visiond_system::exit::{Exit, ExitError};

use self::config_page::{MANUAL, SOURCE};
use crate::output::{create_folder, print, write_file};

/// Print the manual page, or write all manual pages to folders
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Write the commands' pages to FOLDER/man1 and visiond.toml.5 to FOLDER/man5 [default: print visiond.1]
    #[arg(long, value_name = "FOLDER")]
    directory: Option<PathBuf>,
}

const AFTER_HELP: &str = "\
The pages bear today's date, or that of SOURCE_DATE_EPOCH, in seconds since 1970.

Examples:
  visiond man | man -l -                         show the page of visiond
  visiond man --directory /usr/local/share/man   write all pages";

/// Prints the page of `visiond`, or writes all pages.
pub fn run(args: Args, command: clap::Command) -> Result<Exit, ExitError> {
    let mut root = command.disable_help_subcommand(true);
    root.build();
    let pages = pages(&root, &date()?)
        .map_err(|error| ExitError::new(Exit::Failure, format!("cannot make the manual page: {error}")))?;
    let Some(folder) = args.directory else { return print(&pages[0].1).map(|()| Exit::Success) };
    for section in ["man1", "man5"] {
        create_folder(&folder.join(section))?;
    }
    for (path, text) in pages {
        write_file(&folder.join(path), text)?;
    }
    Ok(Exit::Success)
}

/// Returns the date of the pages. Builds set `SOURCE_DATE_EPOCH`, so that the same sources produce the same pages.
/// See <https://reproducible-builds.org/specs/source-date-epoch/>.
fn date() -> Result<String, ExitError> {
    let time = match env::var("SOURCE_DATE_EPOCH") {
        Err(_) => Timestamp::now(),
        Ok(seconds) => {
            seconds.parse().ok().and_then(|seconds| Timestamp::from_second(seconds).ok()).ok_or_else(|| {
                let message = format!(
                    "cannot use SOURCE_DATE_EPOCH = {seconds:?} as the date of the pages: set it to seconds since 1970, or unset it"
                );
                ExitError::new(Exit::Failure, message)
            })?
        }
    };
    Ok(time.strftime("%Y-%m-%d").to_string())
}

/// Returns each page's path in a folder of manual pages and its text, first the page of visiond itself.
fn pages(root: &clap::Command, date: &str) -> io::Result<Vec<(String, String)>> {
    let mut pages = Vec::new();
    add_pages(root, date, None, &mut pages)?;
    pages.push(("man5/visiond.toml.5".to_owned(), config_page::text(date)));
    Ok(pages)
}

/// Adds the page of a command, which refers to the command above it and to those below it, then the pages of the latter.
fn add_pages(
    command: &clap::Command,
    date: &str,
    above: Option<&clap::Command>,
    pages: &mut Vec<(String, String)>,
) -> io::Result<()> {
    let others: Vec<_> = above.into_iter().chain(command.get_subcommands()).map(title).collect();
    pages.push((format!("man1/{}.1", title(command)), page_of(command, date, &others)?));
    command.get_subcommands().try_for_each(|below| add_pages(below, date, Some(command), pages))
}

fn title(command: &clap::Command) -> String {
    command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned()
}

/// Returns a command's page. At its end it refers to `others` in section 1 and to the configuration's page.
fn page_of(command: &clap::Command, date: &str, others: &[String]) -> io::Result<String> {
    let man = Man::new(command.clone()).date(date).source(SOURCE).manual(MANUAL);
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
        // Entries follow each other without blank lines.
        let table = lines.iter().any(|line| line.starts_with(' '));
        if table {
            roff.control("PD", ["0"]);
        }
        for (index, line) in lines.iter().enumerate() {
            match line.trim_start().split_once("  ") {
                Some((head, text)) => {
                    roff.control("TP", []);
                    roff.text([bold(head)]);
                    roff.text([roman(text.trim_start())]);
                }
                None => {
                    if index > 0 {
                        roff.control("PP", []);
                    }
                    roff.text([if heading == "Examples" { bold(line.trim_start()) } else { roman(line.trim_start()) }]);
                }
            }
        }
        if table {
            roff.control("PD", []);
        }
    }
    roff.control("SH", ["SEE ALSO"]);
    let others: Vec<_> = others.iter().map(|name| format!("{name}(1)")).collect();
    roff.text([roman(format!("{}, visiond.toml(5)", others.join(", ")))]);
    roff.to_writer(&mut out)?;
    // clap_mangen puts blank lines between line breaks, which mandoc's lint dislikes.
    Ok(String::from_utf8_lossy(&out).replace("\n.br\n\n.br\n", "\n.sp\n"))
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
        let pages = pages(&root, "2026-01-31").unwrap();
        for command in root.get_subcommands() {
            let (_, text) = pages.iter().find(|(name, _)| *name == format!("man1/{}.1", title(command))).unwrap();
            let shown = command.get_arguments().filter(|argument| !argument.is_hide_set());
            for argument in shown.filter_map(clap::Arg::get_long) {
                let option = format!("\\-\\-{}", argument.replace('-', "\\-"));
                assert!(text.contains(&option), "{} lacks {option}", title(command));
            }
            assert!(text.contains(".SH \"EXIT STATUS\"\n.PD 0\n.TP\n\\fB0\\fR\n"), "{text}");
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

    #[test]
    fn lines_above_the_first_heading_are_notes_and_an_indented_colon_is_no_heading() {
        let found = sections("First.\n\nSecond.\n\nKeys:\n  q  quit:\n");
        let expected = [
            ("Notes".to_owned(), vec!["First.".to_owned(), "Second.".to_owned()]),
            ("Keys".to_owned(), vec!["  q  quit:".to_owned()]),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn notes_are_paragraphs_examples_are_bold_and_entries_have_their_text() {
        let command = clap::Command::new("x").after_help("One.\n\nTwo.\n\nKeys:\n  q  quit\n\nExamples:\n  x y\n  x z");
        let page = page_of(&command, "2026-01-31", &["visiond".to_owned(), "a".to_owned()]).unwrap();
        let end = "\
.SH NOTES
One.
.PP
Two.
.SH KEYS
.PD 0
.TP
\\fBq\\fR
quit
.PD
.SH EXAMPLES
.PD 0
\\fBx y\\fR
.PP
\\fBx z\\fR
.PD
.SH \"SEE ALSO\"
visiond(1), a(1), visiond.toml(5)
";
        assert!(page.ends_with(end), "{page}");
    }
}
