//! The same tests in the sandbox of visiond.service, by systemd-run with the unit's properties.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::nodes;
use super::report::{Area, Outcome, Report, Row, Sandbox, Section};
use super::{Teller, supervise};
use crate::cli::machine::find_program;

/// The unit of this version.
const PACKAGED: &str = include_str!("../../../../systemd/visiond.service");
const UNIT: &str = "visiond.service";
/// What a service is started, watched and ended by is no part of its sandbox; nor is what is told to it in secret.
const LEFT_OUT: [&str; 17] = [
    "Type",
    "NotifyAccess",
    "PIDFile",
    "BusName",
    "GuessMainPID",
    "RemainAfterExit",
    "WatchdogSec",
    "WatchdogSignal",
    "SuccessExitStatus",
    "Sockets",
    "FileDescriptorStoreMax",
    "FileDescriptorStorePreserve",
    "KillMode",
    "SetCredential",
    "SetCredentialEncrypted",
    "OOMPolicy",
    "NonBlocking",
];
const LEFT_OUT_BEGINNINGS: [&str; 4] = ["Exec", "Restart", "Timeout", "Standard"];

/// What runs there: temperatures would be the same.
pub const AREAS: [Area; 7] =
    [Area::Board, Area::Nodes, Area::Cuda, Area::Memory, Area::Tensorrt, Area::Cameras, Area::Argus];

/// The row that says whether all of it ran.
const CHECK: &str = "the unit's sandbox";

/// After so long the unit is ended.
const PATIENCE: Duration = Duration::from_secs(240);

/// Runs the tests of `shell` again, and tells what differs. `arguments`: the areas and cameras of this run.
pub fn run(section: &mut Section, tell: &mut Teller, shell: &Report, arguments: &[String]) -> Option<Sandbox> {
    let unit = installed().unwrap_or_else(|| PACKAGED.to_owned());
    let properties = properties(&unit);
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => {
            section.skip(CHECK, format!("the program's own file is not known: {error}"));
            return None;
        }
    };
    if !Path::new("/run/systemd/system").is_dir() {
        section.skip(CHECK, "systemd does not run here");
        return None;
    }
    let Some(systemd_run) = find_program(Path::new("systemd-run")) else {
        section.skip(CHECK, "systemd-run is not installed");
        return None;
    };
    // SAFETY: it takes nothing and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        let all: Vec<_> = std::env::args().skip(1).collect();
        section.skip(CHECK, format!("systemd lets root alone do this: sudo {} {}", program.display(), all.join(" ")));
        return None;
    }
    if let Some(user) = properties.iter().find_map(|property| property.strip_prefix("User="))
        && !has_account(&fs::read_to_string("/etc/passwd").unwrap_or_default(), user)
    {
        section.skip(CHECK, format!("the unit's user {user} does not exist: install visiond's package"));
        return None;
    }
    let Some(program) = reachable(&program, &unit) else {
        let why = format!(
            "the sandbox hides {}: install visiond, or copy it to /usr/local/bin and run it there",
            program.display()
        );
        section.skip(CHECK, why);
        return None;
    };
    let command = command(&systemd_run, &properties, &program, arguments);
    rerun(section, tell, shell, command)
}

/// systemd-run with the unit's properties.
fn command(systemd_run: &Path, properties: &[String], program: &Path, arguments: &[String]) -> Vec<String> {
    let mut command = vec![systemd_run.display().to_string()];
    command.extend(["--quiet", "--pipe", "--wait", "--collect", "--service-type=exec"].map(str::to_owned));
    command.extend(properties.iter().map(|property| format!("--property={property}")));
    // What ends systemd-run does not end the unit.
    command.push(format!("--property=RuntimeMaxSec={}", PATIENCE.as_secs()));
    command.extend([program.display().to_string(), "selftest".to_owned(), "--json".to_owned()]);
    command.extend(arguments.iter().cloned());
    command
}

/// Runs the command, and compares what it prints.
fn rerun(section: &mut Section, tell: &mut Teller, shell: &Report, command: Vec<String>) -> Option<Sandbox> {
    const WANTED: &str = "the tests run";
    let ended = match supervise(Command::new(&command[0]).args(&command[1..]), PATIENCE, |words| tell.say(words)) {
        Ok(ended) => ended,
        Err(error) => {
            section.fail(CHECK, WANTED, error);
            return None;
        }
    };
    let Ok(report) = serde_json::from_slice::<Report>(&ended.output) else {
        section.fail(CHECK, WANTED, format!("systemd-run ended with {}: {}", ended.status, ended.last_words));
        return None;
    };
    differences(section, shell, &report);
    let command = command.into_iter().map(without_environment).collect();
    Some(Sandbox { command, rows: report.rows, nodes: report.nodes })
}

/// An argument as it is told: variables of the environment may be secrets.
fn without_environment(argument: String) -> String {
    match argument.strip_prefix("--property=Environment=") {
        Some(_) => "--property=Environment=<secret>".to_owned(),
        None => argument,
    }
}

/// The unit as it is installed here, with its drop-ins.
fn installed() -> Option<String> {
    let systemctl = find_program(Path::new("systemctl"))?;
    let mut command = Command::new(systemctl);
    let output = command.args(["cat", UNIT]).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && text.contains("[Service]")).then_some(text)
}

/// Each line of the sections [Service], `Key=value`; what makes no sandbox is left out.
fn properties(unit: &str) -> Vec<String> {
    let joined = unit.replace("\\\n", " ");
    let mut in_service = false;
    let mut properties = Vec::new();
    for line in joined.lines().map(str::trim) {
        if line.starts_with('[') {
            in_service = line == "[Service]";
        } else if in_service
            && !line.starts_with(['#', ';'])
            && let Some((key, value)) = line.split_once('=')
        {
            let (key, value) = (key.trim(), value.trim());
            let is_left_out = LEFT_OUT.contains(&key) || LEFT_OUT_BEGINNINGS.iter().any(|start| key.starts_with(start));
            if !is_left_out {
                properties.push(format!("{key}={value}"));
            }
        }
    }
    // Otherwise the folder, in which a daemon that runs has its sockets, would go with this unit.
    let preserves = properties.iter().any(|property| property == "RuntimeDirectoryPreserve=yes");
    properties.retain(|property| preserves || !property.starts_with("RuntimeDirectory"));
    properties
}

fn has_account(passwd: &str, user: &str) -> bool {
    passwd.lines().any(|line| line.split(':').next() == Some(user))
}

/// This program where the sandbox can see it, else the unit's own.
fn reachable(program: &Path, unit: &str) -> Option<PathBuf> {
    const HIDDEN: [&str; 5] = ["/home", "/root", "/run/user", "/tmp", "/var/tmp"];
    if !HIDDEN.iter().any(|folder| program.starts_with(folder)) {
        return Some(program.to_owned());
    }
    let start = unit.lines().rev().find_map(|line| line.trim().strip_prefix("ExecStart="))?;
    let installed = PathBuf::from(start.split_whitespace().next()?);
    installed.is_file().then_some(installed)
}

/// A row for all that was seen in the shell and not in the sandbox, or the other way round.
fn differences(section: &mut Section, shell: &Report, sandbox: &Report) {
    const WANTED: &str = "as in the shell";
    let words = |row: Option<&Row>| match row {
        None => "not there".to_owned(),
        Some(Row { outcome, seen, .. }) => {
            let outcome = match outcome {
                Outcome::Pass => "passed",
                Outcome::Fail => "failed",
                Outcome::Skipped => "skipped",
                Outcome::Info => "seen",
            };
            format!("{outcome} ({seen})")
        }
    };
    let find =
        |rows: &[Row], wanted: &Row| rows.iter().position(|row| (row.area, &row.check) == (wanted.area, &wanted.check));
    let (mut compared, mut differing) = (0, BTreeSet::new());
    // Nodes are compared one by one, below.
    for row in shell.rows.iter().filter(|row| AREAS.contains(&row.area) && row.area != Area::Nodes) {
        compared += 1;
        let other = find(&sandbox.rows, row).map(|index| &sandbox.rows[index]);
        if other.map(|other| other.outcome) == Some(row.outcome) {
            continue;
        }
        let seen = format!("{} in the shell, {} in the sandbox", words(Some(row)), words(other));
        let check = format!("{}: {}", row.area, row.check);
        // What failed or was not to be had in the shell can only get better.
        match row.outcome {
            Outcome::Pass | Outcome::Info => section.fail(&check, WANTED, seen),
            Outcome::Fail | Outcome::Skipped => section.info(&check, seen),
        };
        differing.insert(check);
    }
    // A failure that the shell has no row for.
    for row in sandbox.rows.iter().filter(|row| row.outcome == Outcome::Fail && find(&shell.rows, row).is_none()) {
        section.fail(
            format!("{}: {}", row.area, row.check),
            WANTED,
            format!("failed in the sandbox alone ({})", row.seen),
        );
    }
    let changed = nodes::differences(&shell.nodes, &sandbox.nodes);
    for (path, seen) in &changed {
        section.info(path.display(), seen);
    }
    let seen = format!(
        "{compared} checks compared, {} differ; {} device nodes compared, {} differ",
        differing.len(),
        shell.nodes.len(),
        changed.len()
    );
    section
        .info("compared", seen)
        .figure("checks", f64::from(compared))
        .figure("differing", differing.len() as f64)
        .figure("nodes", shell.nodes.len() as f64)
        .figure("differing_nodes", changed.len() as f64);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::report::FORMAT;
    use super::*;

    fn report(rows: Vec<Row>) -> Report {
        let (visiond, arch, at) = ("0.1.0".to_owned(), "aarch64".to_owned(), String::new());
        Report { format: FORMAT, visiond, arch, at, seconds: 0.0, rows, nodes: Vec::new(), sandbox: None }
    }

    #[test]
    fn of_the_unit_the_sandbox_stays_and_the_service_goes() {
        let properties = properties(PACKAGED);
        let has = |property: &str| properties.iter().any(|other| other == property);
        for property in [
            "User=visiond",
            "ProtectSystem=strict",
            "DevicePolicy=closed",
            "DeviceAllow=char-81 rw",
            "CapabilityBoundingSet=",
        ] {
            assert!(has(property), "{property} of {properties:?}");
        }
        let keys: BTreeSet<_> = properties.iter().filter_map(|property| Some(property.split_once('=')?.0)).collect();
        for key in [
            "Type",
            "ExecStart",
            "ExecReload",
            "Restart",
            "RestartSec",
            "RestartPreventExitStatus",
            "WatchdogSec",
            "TimeoutStartSec",
            "Description",
            "WantedBy",
        ] {
            assert!(!keys.contains(key), "{key}");
        }
        assert!(has("RuntimeDirectory=visiond") && has("RuntimeDirectoryPreserve=yes"));
    }

    #[test]
    fn drop_ins_continued_lines_and_comments_are_read() {
        let unit = "[Service]\nRuntimeDirectory=x\n# Nice=1\nSystemCallFilter=a \\\n  b\n[Install]\nAlias=y\n\n# /etc/drop-in.conf\n[Service]\nNice = 5\n";
        assert_eq!(properties(unit), ["SystemCallFilter=a    b", "Nice=5"]);
    }

    #[test]
    fn a_program_below_home_is_replaced_by_the_units() {
        let unit = "[Service]\nExecStart=/bin/sh run x\n";
        assert_eq!(reachable(Path::new("/usr/bin/visiond"), unit), Some("/usr/bin/visiond".into()));
        assert_eq!(reachable(Path::new("/home/me/visiond"), unit), Some("/bin/sh".into()));
        assert_eq!(reachable(Path::new("/home/me/visiond"), "ExecStart=/usr/bin/no-such-program\n"), None);
    }

    #[test]
    fn what_works_in_the_shell_alone_fails() {
        let mut shell = Section::new(Area::Cuda);
        shell.info("GPU", "Orin");
        shell.verdict("kernels", "compiled", "compiled", true);
        shell.fail("kernel cache", "written", "refused");
        let mut sandbox = Section::new(Area::Cuda);
        sandbox.skip("GPU", "no node");
        sandbox.verdict("kernels", "compiled", "compiled as well", true);
        sandbox.verdict("kernel cache", "written", "written", true);
        sandbox.fail("new", "good", "bad");
        let mut section = Section::new(Area::Sandbox);
        differences(&mut section, &report(shell.rows), &report(sandbox.rows));
        let lines: Vec<_> =
            section.rows.iter().map(|row| format!("{:?} {}: {}", row.outcome, row.check, row.seen)).collect();
        assert_eq!(
            lines,
            [
                "Fail cuda: GPU: seen (Orin) in the shell, skipped (no node) in the sandbox",
                "Info cuda: kernel cache: failed (refused) in the shell, passed (written) in the sandbox",
                "Fail cuda: new: failed in the sandbox alone (bad)",
                "Info compared: 3 checks compared, 2 differ; 0 device nodes compared, 0 differ",
            ]
        );
    }

    #[test]
    fn what_the_unit_prints_is_compared_and_what_it_cannot_do_is_told() {
        // A shell stands for systemd-run: it prints a report behind as many arguments as a unit has.
        let folder = tempfile::tempdir().unwrap();
        let mut inner = Section::new(Area::Cuda);
        inner.skip("GPU", "no node");
        let report_file = folder.path().join("report.json");
        fs::write(&report_file, serde_json::to_string(&report(inner.rows)).unwrap()).unwrap();
        let mut outer = Section::new(Area::Cuda);
        outer.info("GPU", "Orin");
        let shell = report(outer.rows);
        let run = |script: &str| {
            let program = folder.path().join("systemd-run");
            fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
            let mut with_secret = properties(PACKAGED);
            with_secret.push("Environment=MQTT_PW=abc".to_owned());
            let as_unit =
                command(Path::new("/bin/sh"), &with_secret, Path::new("/usr/bin/visiond"), &["--only=cuda".to_owned()]);
            let command = [&["/bin/sh".to_owned(), program.display().to_string()], &as_unit[1..]].concat();
            let mut section = Section::new(Area::Sandbox);
            let sandbox = rerun(&mut section, &mut Teller::new(true), &shell, command);
            (section.rows.iter().map(|row| format!("{}: {}", row.check, row.seen)).collect::<Vec<_>>(), sandbox)
        };
        let check = "case \"$*\" in *--property=User=visiond*/usr/bin/visiond\\ selftest\\ --json\\ --only=cuda) ;; *) exit 9 ;; esac";
        let (rows, sandbox) = run(&format!("{check}\ncat {}", report_file.display()));
        assert_eq!(rows[0], "cuda: GPU: seen (Orin) in the shell, skipped (no node) in the sandbox");
        let sandbox = sandbox.unwrap();
        assert_eq!(sandbox.rows.len(), 1);
        assert!(sandbox.command.contains(&"--property=Environment=<secret>".to_owned()), "{:?}", sandbox.command);
        let (rows, sandbox) = run("echo 'Failed to start transient service unit: Unit is masked.' >&2; exit 1");
        assert_eq!(
            rows,
            [
                "the unit's sandbox: systemd-run ended with exit status: 1: Failed to start transient service unit: Unit is masked."
            ]
        );
        assert_eq!(sandbox, None);
    }

    #[test]
    fn an_account_is_found_by_its_whole_name() {
        let passwd = "root:x:0:0::/:/bin/sh\nvisiond:x:998:998::/:/bin/false\n";
        assert!(has_account(passwd, "visiond") && !has_account(passwd, "vision"));
    }
}
