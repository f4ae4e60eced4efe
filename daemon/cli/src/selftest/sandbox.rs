//! The same tests in the sandbox of visiond.service, by systemd-run with the unit's properties.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use visiond_config::types::CameraName;

use super::checks::{Area, Outcome, Row, Section};
use super::child::supervise;
use super::deadline::{LEAST_TIME, NO_TIME, time_left};
use super::nodes;
use super::progress::TestProgress;
use super::report::{Report, Sandbox};
use crate::find_program::find_program;

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
pub const CHECK: &str = "the unit's sandbox";

/// Runs the tests of `areas` again, until `end`, and tells what differs from `shell`.
pub fn run(
    section: &mut Section,
    tell: &mut TestProgress,
    shell: &Report,
    mut areas: Vec<Area>,
    cameras: &[CameraName],
    end: Instant,
) -> Option<Sandbox> {
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
    let program = match runs_there(&program, &unit) {
        Ok((program, seen)) => {
            section.info("program", seen);
            program
        }
        Err(why) => {
            section.skip(CHECK, why);
            return None;
        }
    };
    if hides_argus(&properties) {
        areas.retain(|area| *area != Area::Argus);
        if shell.rows.iter().any(|row| row.area == Area::Argus && row.outcome != Outcome::Skipped) {
            section.info("argus", NO_ARGUS);
        }
    }
    let Some(patience) = time_left(end).filter(|_| !areas.is_empty()) else {
        section.skip(CHECK, if areas.is_empty() { "nothing else runs there" } else { NO_TIME });
        return None;
    };
    let command = command(&systemd_run, &properties, &program, &areas, cameras, patience);
    rerun(section, tell, shell, &areas, command, patience)
}

/// systemd-run with the unit's properties.
fn command(
    systemd_run: &Path,
    properties: &[String],
    program: &Path,
    areas: &[Area],
    cameras: &[CameraName],
    patience: Duration,
) -> Vec<String> {
    let mut command = vec![systemd_run.display().to_string()];
    command.extend(["--quiet", "--pipe", "--wait", "--collect", "--service-type=exec"].map(str::to_owned));
    command.extend(properties.iter().map(|property| format!("--property={property}")));
    // What ends systemd-run does not end the unit.
    command.push(format!("--property=RuntimeMaxSec={}", patience.as_secs()));
    command.extend([program.display().to_string(), "selftest".to_owned()]);
    // It prints its report raw, as the shell's is that it is compared to; and some time before it would be ended.
    command.push(format!("--inner={}ms", patience.saturating_sub(LEAST_TIME).as_millis()));
    command.push(format!("--only={}", areas.iter().map(|area| area.name()).collect::<Vec<_>>().join(",")));
    command.extend(cameras.iter().map(|camera| format!("--camera={camera}")));
    command
}

/// Runs the command, and compares what it prints.
///
/// A unit file with a property that this systemd does not know works without it, but systemd-run refuses it, and names the first
/// (bus-unit-util.c: `bus_append_unit_property_assignment`): it runs again without that.
fn rerun(
    section: &mut Section,
    tell: &mut TestProgress,
    shell: &Report,
    areas: &[Area],
    mut command: Vec<String>,
    patience: Duration,
) -> Option<Sandbox> {
    const WANTED: &str = "the tests run";
    let report = loop {
        let ended = match supervise(Command::new(&command[0]).args(&command[1..]), patience, |words| tell.say(words)) {
            Ok(ended) => ended,
            Err(error) => {
                section.fail(CHECK, WANTED, error);
                return None;
            }
        };
        if let Ok(report) = serde_json::from_slice::<Report>(&ended.output) {
            break report;
        }
        let arguments = command.len();
        let unknown = ended.errors.iter().find_map(|line| unknown_property(line));
        if let Some(key) = unknown {
            command.retain(|argument| !argument.starts_with(&format!("--property={key}=")));
        }
        match unknown {
            Some(key) if command.len() < arguments => {
                section.info(format!("property {key}"), "this systemd does not know it: left out, as the unit's is");
            }
            _ => {
                section.fail(CHECK, WANTED, format!("systemd-run: {ended}"));
                return None;
            }
        }
    };
    differences(section, shell, &report, areas);
    let command = command.into_iter().map(without_environment).collect();
    Some(Sandbox { command, rows: report.rows, nodes: report.nodes })
}

/// The property that systemd-run says it does not know.
fn unknown_property(line: &str) -> Option<&str> {
    Some(line.split_once("Unknown assignment: ")?.1.split_once('=')?.0)
}

/// What is said in place of tests that cannot pass.
const NO_ARGUS: &str = "not tested there: the unit's own /tmp (PrivateTmp=) hides /tmp/argus_socket; sources that use Argus need the \
                        drop-in systemd/argus.conf, see docs/jetson.md";

/// Whether the unit has a /tmp of its own, without the socket of NVIDIA's camera daemon.
fn hides_argus(properties: &[String]) -> bool {
    let values = |key: &'static str| {
        properties.iter().filter_map(move |property| property.split_once('=').filter(|(other, _)| *other == key))
    };
    let is_private = values("PrivateTmp")
        .next_back()
        .is_some_and(|(_, value)| !["", "no", "n", "false", "f", "off", "0"].contains(&value.to_lowercase().as_str()));
    let is_bound = ["BindPaths", "BindReadOnlyPaths"]
        .into_iter()
        .flat_map(values)
        .any(|(_, value)| value.contains("/tmp/argus_socket"));
    is_private && !is_bound
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

/// Each line of the sections `[Service]`, `Key=value`; what makes no sandbox is left out.
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

/// The program that runs in the sandbox, with a sentence on it: this one where the sandbox can see it, else the unit's own if that
/// is of this version.
fn runs_there(program: &Path, unit: &str) -> Result<(PathBuf, String), String> {
    const HIDDEN: [&str; 5] = ["/home", "/root", "/run/user", "/tmp", "/var/tmp"];
    /// `--version` looks for libraries, too.
    const PATIENCE: Duration = Duration::from_secs(20);
    let ours = env!("CARGO_PKG_VERSION");
    let here = program.display();
    if !HIDDEN.iter().any(|folder| program.starts_with(folder)) {
        return Ok((program.to_owned(), format!("{here}, visiond {ours}")));
    }
    let remedy = "install this version, or copy it to /usr/local/bin and run it there";
    let start = unit.lines().rev().find_map(|line| line.trim().strip_prefix("ExecStart="));
    let installed = start.and_then(|start| start.split_whitespace().next()).map(PathBuf::from);
    let Some(installed) = installed.filter(|path| path.is_file()) else {
        return Err(format!("the sandbox hides {here}: {remedy}"));
    };
    let there = installed.display();
    let said = supervise(Command::new(&installed).arg("--version"), PATIENCE, |_| {})
        .map_or_else(|error| error.to_string(), |ended| String::from_utf8_lossy(&ended.output).into_owned());
    let version = said.lines().next().unwrap_or_default();
    if version == format!("visiond {ours}") {
        Ok((installed.clone(), format!("{there}, {version}: the sandbox hides {here}")))
    } else {
        Err(format!("the sandbox hides {here}, and {there} is `{version}`, not {ours}: {remedy}"))
    }
}

/// A row for all that was seen in the shell and not in the sandbox, or the other way round.
fn differences(section: &mut Section, shell: &Report, sandbox: &Report, areas: &[Area]) {
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
    let is_late = |row: &Row| row.outcome == Outcome::Skipped && row.seen == NO_TIME;
    let late: BTreeSet<_> = sandbox.rows.iter().filter(|row| is_late(row)).map(|row| row.area).collect();
    // Nodes are compared one by one, below.
    for row in shell.rows.iter().filter(|row| areas.contains(&row.area) && row.area != Area::Nodes) {
        let other = find(&sandbox.rows, row).map(|index| &sandbox.rows[index]);
        if late.contains(&row.area) && other.is_none_or(is_late) {
            continue;
        }
        compared += 1;
        if other.map(|other| other.outcome) == Some(row.outcome) {
            continue;
        }
        let seen = format!("{} in the shell, {} in the sandbox", words(Some(row)), words(other));
        let check = format!("{}: {}", row.area, row.check);
        // What failed or was not to be had in the shell can only get better, and of a fact nothing is wanted.
        match row.outcome {
            Outcome::Pass => section.fail(&check, WANTED, seen),
            Outcome::Fail | Outcome::Skipped | Outcome::Info => section.info(&check, seen),
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
    for area in late {
        section.info(format!("{area}: not compared, or in part"), format!("in the sandbox: {NO_TIME}"));
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

    use std::os::unix::fs::PermissionsExt;

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
    fn a_program_below_home_is_replaced_by_the_units_if_that_is_of_this_version() {
        let folder = tempfile::tempdir().unwrap();
        let installed = folder.path().join("visiond");
        let unit = format!("[Service]\nExecStart={} run x\n", installed.display());
        let ours = env!("CARGO_PKG_VERSION");
        let runs = |program: &str| runs_there(Path::new(program), &unit);
        assert_eq!(
            runs("/usr/bin/visiond"),
            Ok(("/usr/bin/visiond".into(), format!("/usr/bin/visiond, visiond {ours}")))
        );
        let missing = runs("/home/me/visiond").unwrap_err();
        assert!(missing.starts_with("the sandbox hides /home/me/visiond: install this version"), "{missing}");
        let install = |version: &str| {
            fs::write(&installed, format!("#!/bin/sh\necho 'visiond {version}'\necho rten: here\n")).unwrap();
            fs::set_permissions(&installed, fs::Permissions::from_mode(0o755)).unwrap();
        };
        install(ours);
        let (program, seen) = runs("/home/me/visiond").unwrap();
        assert_eq!((&program, seen.ends_with("the sandbox hides /home/me/visiond")), (&installed, true), "{seen}");
        install("0.0.1");
        let older = runs("/home/me/visiond").unwrap_err();
        assert!(older.contains(&format!("is `visiond 0.0.1`, not {ours}: install")), "{older}");
    }

    /// The sandbox's rows as lines.
    fn lines(section: &Section) -> Vec<String> {
        section.rows.iter().map(|row| format!("{:?} {}: {}", row.outcome, row.check, row.seen)).collect()
    }

    #[test]
    fn what_passes_in_the_shell_alone_fails_and_facts_that_differ_do_not() {
        let mut shell = Section::new(Area::Cuda);
        shell.verdict("GPU", "it opens", "Orin", true);
        shell.verdict("kernels", "compiled", "compiled", true);
        shell.fail("kernel cache", "written", "refused");
        shell.info("memory", "8 GiB");
        let mut sandbox = Section::new(Area::Cuda);
        sandbox.skip("GPU", "no node");
        sandbox.verdict("kernels", "compiled", "compiled as well", true);
        sandbox.verdict("kernel cache", "written", "written", true);
        sandbox.fail("new", "good", "bad");
        let mut section = Section::new(Area::Sandbox);
        differences(&mut section, &report(shell.rows), &report(sandbox.rows), &AREAS);
        assert_eq!(
            lines(&section),
            [
                "Fail cuda: GPU: passed (Orin) in the shell, skipped (no node) in the sandbox",
                "Info cuda: kernel cache: failed (refused) in the shell, passed (written) in the sandbox",
                "Info cuda: memory: seen (8 GiB) in the shell, not there in the sandbox",
                "Fail cuda: new: failed in the sandbox alone (bad)",
                "Info compared: 4 checks compared, 3 differ; 0 device nodes compared, 0 differ",
            ]
        );
    }

    #[test]
    fn what_the_sandbox_had_no_time_for_is_not_compared() {
        let mut shell = Section::new(Area::Memory);
        shell.verdict("mapped", "right", "right", true);
        let mut sandbox = Section::new(Area::Memory);
        sandbox.skip("the test itself", NO_TIME);
        let mut section = Section::new(Area::Sandbox);
        differences(&mut section, &report(shell.rows), &report(sandbox.rows), &AREAS);
        assert_eq!(
            lines(&section),
            [
                format!("Info memory: not compared, or in part: in the sandbox: {NO_TIME}"),
                "Info compared: 0 checks compared, 0 differ; 0 device nodes compared, 0 differ".to_owned(),
            ]
        );
    }

    #[test]
    fn argus_is_hidden_by_a_tmp_of_the_units_own_without_its_socket() {
        const DROP_IN: &str = include_str!("../../../../systemd/argus.conf");
        assert!(hides_argus(&properties(PACKAGED)));
        assert!(!hides_argus(&properties(&format!("{PACKAGED}{DROP_IN}"))));
        let bound = format!("{PACKAGED}[Service]\nBindPaths=-/tmp/argus_socket\n");
        assert!(!hides_argus(&properties(&bound)));
        assert!(!hides_argus(&properties("[Service]\nUser=visiond\n")));
    }

    /// Runs a script in place of systemd-run, behind as many arguments as a unit has; what was seen, and of what it is.
    fn rerun_by(script: &str, shell: &Report) -> (Vec<String>, Option<Sandbox>) {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("systemd-run");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        let mut with_secret = properties(PACKAGED);
        with_secret.push("Environment=MQTT_PW=abc".to_owned());
        let (areas, patience) = ([Area::Cuda], Duration::from_secs(100));
        let camera = "046d:0825:A1B2C3D4".parse().unwrap();
        let visiond = Path::new("/usr/bin/visiond");
        let as_unit = command(Path::new("/bin/sh"), &with_secret, visiond, &areas, &[camera], patience);
        let command = [&["/bin/sh".to_owned(), program.display().to_string()], &as_unit[1..]].concat();
        let mut section = Section::new(Area::Sandbox);
        let sandbox = rerun(&mut section, &mut TestProgress::new(true), shell, &areas, command, patience);
        (lines(&section), sandbox)
    }

    fn gpu(outcome: Outcome, seen: &str) -> Report {
        let mut section = Section::new(Area::Cuda);
        section.info("GPU", seen).outcome = outcome;
        report(section.rows)
    }

    /// A script's line that prints a report.
    fn prints(report: &Report) -> String {
        format!("cat <<'END'\n{}\nEND", serde_json::to_string(report).unwrap())
    }

    #[test]
    fn what_the_unit_prints_is_compared_and_what_it_cannot_do_is_told() {
        let shell = gpu(Outcome::Pass, "Orin");
        // It is asked for its report as it is: a redacted one would differ in every row with a serial number in its name.
        let check = r#"case "$*" in *--property=User=visiond*"RuntimeMaxSec=100 /usr/bin/visiond selftest --inner=85000ms --only=cuda --camera=046d:0825:A1B2C3D4") ;; *) exit 9 ;; esac"#;
        let script = format!("{check}\n{}", prints(&gpu(Outcome::Skipped, "no node")));
        let (rows, sandbox) = rerun_by(&script, &shell);
        assert_eq!(rows[0], "Fail cuda: GPU: passed (Orin) in the shell, skipped (no node) in the sandbox");
        let sandbox = sandbox.unwrap();
        assert_eq!(sandbox.rows.len(), 1);
        assert!(sandbox.command.contains(&"--property=Environment=<secret>".to_owned()), "{:?}", sandbox.command);
        let (rows, sandbox) =
            rerun_by("echo 'Failed to start transient service unit: Unit is masked.' >&2; exit 1", &shell);
        assert_eq!(
            rows,
            [
                "Fail the unit's sandbox: systemd-run: its process ended with exit status: 1: Failed to start transient service unit: Unit is masked."
            ]
        );
        assert_eq!(sandbox, None);
    }

    #[test]
    fn a_property_that_an_older_systemd_does_not_know_is_left_out() {
        let shell = gpu(Outcome::Pass, "Orin");
        // As systemd 245 says it, one at a time.
        let refuse = r#"for key in ProtectProc ProtectClock; do
case "$*" in *"--property=$key="*) echo "Unknown assignment: $key=x" >&2; echo "Failed to create bus message: Invalid argument" >&2; exit 1 ;; esac
done"#;
        let (rows, sandbox) = rerun_by(&format!("{refuse}\n{}", prints(&shell)), &shell);
        let left_out = "this systemd does not know it: left out, as the unit's is";
        assert_eq!(
            rows,
            [
                format!("Info property ProtectProc: {left_out}"),
                format!("Info property ProtectClock: {left_out}"),
                "Info compared: 1 checks compared, 0 differ; 0 device nodes compared, 0 differ".to_owned(),
            ]
        );
        assert!(!sandbox.unwrap().command.iter().any(|argument| argument.contains("ProtectProc")));
        // It is refused however often it is left out.
        let (rows, _) = rerun_by("echo 'Unknown assignment: NoSuchKey=1' >&2; exit 1", &shell);
        assert_eq!(rows.len(), 1, "{rows:?}");
        assert!(rows[0].starts_with("Fail the unit's sandbox: systemd-run: "), "{rows:?}");
    }

    #[test]
    fn an_account_is_found_by_its_whole_name() {
        let passwd = "root:x:0:0::/:/bin/sh\nvisiond:x:998:998::/:/bin/false\n";
        assert!(has_account(passwd, "visiond") && !has_account(passwd, "vision"));
    }
}
