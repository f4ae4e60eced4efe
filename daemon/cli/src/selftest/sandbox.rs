//! Repeats the tests inside the sandbox of visiond.service, by systemd-run with the unit's properties.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use visiond_config::types::CameraName;
use visiond_system::child_process::isolate;
use visiond_system::find_program::find_program;

use super::checks::{Area, AreaTest, Failed, LEAST_TIME, NO_TIME, Outcome, Row};
use super::child::supervise;
use super::nodes;
use super::report::{Report, Sandbox};

/// This version's unit.
const PACKAGED: &str = include_str!("../../../../systemd/visiond.service");
const UNIT: &str = "visiond.service";
/// Properties that start, monitor and stop a service, or pass secrets to it, and are not part of its sandbox.
const LEFT_OUT: &str = "Type NotifyAccess PIDFile BusName GuessMainPID RemainAfterExit WatchdogSec WatchdogSignal \
                        SuccessExitStatus Sockets FileDescriptorStoreMax FileDescriptorStorePreserve KillMode SetCredential \
                        SetCredentialEncrypted OOMPolicy NonBlocking";
/// Further such properties, by prefix.
const LEFT_OUT_FAMILIES: [&str; 4] = ["Exec", "Restart", "Timeout", "Standard"];

/// The areas to repeat there. Temperatures would be the same.
pub const AREAS: [Area; 7] =
    [Area::Board, Area::Nodes, Area::Cuda, Area::Memory, Area::Tensorrt, Area::Cameras, Area::Argus];

/// The row that says whether everything ran.
pub const CHECK: &str = "the unit's sandbox";

/// The row about system calls that visiond never makes.
const SYSTEM_CALLS: &str = "system calls";

/// Replaces the rows of an area that cannot pass in the sandbox.
const NO_ARGUS: &str = "not tested there: the unit's own /tmp (PrivateTmp=) hides /tmp/argus_socket; sources that use Argus need the \
                        drop-in systemd/argus.conf, see docs/jetson.md";

/// Runs the tests of `areas` again, and adds a row for each difference from `shell`.
pub fn run(test: &mut AreaTest, shell: &Report, mut areas: Vec<Area>, cameras: &[CameraName]) -> Option<Sandbox> {
    match prepare(test, shell, &mut areas, cameras) {
        Ok((command, patience)) => rerun(test, shell, &areas, command, patience),
        Err(why) => {
            test.skip(CHECK, why);
            None
        }
    }
}

/// Returns the command and its time limit; the error says why it cannot run. Removes areas that cannot pass in the sandbox.
fn prepare(
    test: &mut AreaTest,
    shell: &Report,
    areas: &mut Vec<Area>,
    cameras: &[CameraName],
) -> Result<(Vec<String>, Duration), Failed> {
    let unit = unit();
    let properties = properties(&unit);
    let program =
        std::env::current_exe().map_err(|error| format!("cannot find the program file of visiond: {error}"))?;
    if !Path::new("/run/systemd/system").is_dir() {
        return Err("systemd does not run here".into());
    }
    let systemd_run = find_program(Path::new("systemd-run")).ok_or("systemd-run is not installed")?;
    // SAFETY: the call takes no argument and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        let all: Vec<_> = std::env::args().skip(1).collect();
        return Err(format!("systemd allows this only to root: sudo {} {}", program.display(), all.join(" ")).into());
    }
    if let Some(user) = properties.iter().find_map(|property| property.strip_prefix("User="))
        && !nodes::accounts(&fs::read_to_string("/etc/passwd").unwrap_or_default()).any(|(name, _)| name == user)
    {
        return Err(format!("the unit's user {user} does not exist: install visiond's package").into());
    }
    let (program, seen) = program_there(&program, &unit)?;
    test.info("program", seen);
    if hides_argus(&properties) {
        areas.retain(|area| *area != Area::Argus);
        if shell.rows.iter().any(|row| row.area == Area::Argus && row.outcome != Outcome::Skipped) {
            test.info("argus", NO_ARGUS);
        }
    }
    if areas.is_empty() {
        return Err("nothing else runs there".into());
    }
    let patience = test.time_left().ok_or(NO_TIME)?;
    Ok((command(&systemd_run, &properties, &program, areas, cameras, patience), patience))
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
    // Killing systemd-run does not stop the unit.
    command.push(format!("--property=RuntimeMaxSec={}", patience.as_secs()));
    command.extend([program.display().to_string(), "selftest".to_owned()]);
    // Unredacted, like the shell's report that it is compared with, and finished some time before the unit's time limit.
    command.push(format!("--inner={}ms", patience.saturating_sub(LEAST_TIME).as_millis()));
    command.push(format!("--only={}", areas.iter().map(Area::to_string).collect::<Vec<_>>().join(",")));
    command.extend(cameras.iter().map(|camera| format!("--camera={camera}")));
    command
}

/// Runs the command, and compares its report.
fn rerun(
    test: &mut AreaTest,
    shell: &Report,
    areas: &[Area],
    mut command: Vec<String>,
    patience: Duration,
) -> Option<Sandbox> {
    match printed_report(test, &mut command, patience) {
        Ok(mut report) => {
            let (own, others) = report.rows.iter().cloned().partition(|row| row.area == Area::Sandbox);
            report.rows = others;
            test.rows.extend::<Vec<Row>>(own);
            differences(test, shell, &report, areas);
            // Variables of the environment may be secrets.
            let is_variable = |argument: &&mut String| argument.starts_with("--property=Environment=");
            command.iter_mut().filter(is_variable).for_each(|it| "--property=Environment=<secret>".clone_into(it));
            Some(Sandbox { command, rows: report.rows, nodes: report.nodes })
        }
        Err(error) => {
            test.fail(CHECK, "the tests run", error);
            None
        }
    }
}

/// Returns the report that the command prints.
///
/// If this systemd does not know a property, a unit file works without it, but systemd-run fails and names the first such one
/// (bus-unit-util.c: `bus_append_unit_property_assignment`): run it again without that property.
fn printed_report(test: &mut AreaTest, command: &mut Vec<String>, patience: Duration) -> Result<Report, Failed> {
    loop {
        let exited = supervise(Command::new(&command[0]).args(&command[1..]), patience, |words| test.say(words))?;
        if let Ok(report) = serde_json::from_slice::<Report>(&exited.output) {
            return Ok(report);
        }
        let unknown =
            exited.errors.lines().find_map(|line| Some(line.split_once("Unknown assignment: ")?.1.split_once('=')?.0));
        let argument = unknown.map(|key| format!("--property={key}="));
        let arguments = command.len();
        command.retain(|other| !argument.as_ref().is_some_and(|argument| other.starts_with(argument)));
        match unknown {
            Some(key) if command.len() < arguments => {
                test.info(format!("property {key}"), "this systemd does not know it: left out, as in the unit");
            }
            _ => return Err(format!("systemd-run: {exited}").into()),
        }
    }
}

/// Tests that the unit blocks system calls that visiond never makes. Only in the sandbox: a shell blocks few of them.
pub fn system_calls(test: &mut AreaTest) {
    const CALLS: [(&str, libc::c_long); 7] = [
        ("io_uring_setup", libc::SYS_io_uring_setup),
        ("keyctl", libc::SYS_keyctl),
        ("mount", libc::SYS_mount),
        ("process_vm_readv", libc::SYS_process_vm_readv),
        ("process_vm_writev", libc::SYS_process_vm_writev),
        ("ptrace", libc::SYS_ptrace),
        ("userfaultfd", libc::SYS_userfaultfd),
    ];
    let is_refused = |call: libc::c_long| {
        // SAFETY: the arguments are not a valid request for any of these calls, so each fails without reading or writing
        // memory.
        let result = unsafe { libc::syscall(call, -1_i64, 0_usize, 0_usize, 0_usize, 0_usize, -1_i64) };
        result == -1 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EPERM)
    };
    let (refused, allowed): (Vec<_>, Vec<_>) = CALLS.iter().partition(|(_, call)| is_refused(*call));
    let (word, calls) = if allowed.is_empty() { ("refused", refused) } else { ("allowed", allowed) };
    let names: Vec<_> = calls.into_iter().map(|&(name, _)| name).collect();
    test.verdict(SYSTEM_CALLS, "refused", format!("{word}: {}", names.join(", ")), word == "refused");
}

/// Whether the unit has its own /tmp, without the socket of NVIDIA's camera daemon.
fn hides_argus(properties: &[String]) -> bool {
    let (mut is_private, mut is_bound) = (false, false);
    for (key, value) in properties.iter().filter_map(|property| property.split_once('=')) {
        match key {
            "PrivateTmp" => {
                is_private = !["", "no", "n", "false", "f", "off", "0"].contains(&value.to_lowercase().as_str());
            }
            "BindPaths" | "BindReadOnlyPaths" => is_bound |= value.contains("/tmp/argus_socket"),
            _ => {}
        }
    }
    is_private && !is_bound
}

/// The unit as installed here, with its drop-ins, otherwise this version's.
pub fn unit() -> String {
    installed().unwrap_or_else(|| PACKAGED.to_owned())
}

fn installed() -> Option<String> {
    let systemctl = find_program(Path::new("systemctl"))?;
    let mut command = Command::new(systemctl);
    isolate(&mut command);
    let output = command.args(["cat", UNIT]).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && text.contains("[Service]")).then_some(text)
}

/// Each line of the sections `[Service]` that is part of the sandbox, as `Key=value`.
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
            let is_left_out = LEFT_OUT.split(' ').any(|other| other == key)
                || LEFT_OUT_FAMILIES.iter().any(|start| key.starts_with(start));
            if !is_left_out {
                properties.push(format!("{key}={value}"));
            }
        }
    }
    // Otherwise this unit's end would remove the folder with a running daemon's sockets.
    let preserves = properties.iter().any(|property| property == "RuntimeDirectoryPreserve=yes");
    properties.retain(|property| preserves || !property.starts_with("RuntimeDirectory"));
    properties
}

/// Returns the program to run in the sandbox, with a sentence about it: this one if the sandbox can see it, otherwise the unit's
/// own if it has this version.
fn program_there(program: &Path, unit: &str) -> Result<(PathBuf, String), Failed> {
    const HIDDEN: [&str; 5] = ["/home", "/root", "/run/user", "/tmp", "/var/tmp"];
    /// `--version` searches for libraries as well.
    const PATIENCE: Duration = Duration::from_secs(20);
    let ours = env!("CARGO_PKG_VERSION");
    let here = program.display();
    if !HIDDEN.iter().any(|folder| program.starts_with(folder)) {
        return Ok((program.to_owned(), format!("{here}, visiond {ours}")));
    }
    let remedy = "install this version, or copy it to /usr/local/bin and run it there";
    let start = unit.lines().rev().find_map(|line| line.trim().strip_prefix("ExecStart="));
    let installed = start.and_then(|start| start.split_whitespace().next()).map(PathBuf::from);
    let installed =
        installed.filter(|path| path.is_file()).ok_or_else(|| format!("the sandbox hides {here}: {remedy}"))?;
    let there = installed.display();
    let said = supervise(Command::new(&installed).arg("--version"), PATIENCE, |_| {})
        .map_or_else(|error| error.to_string(), |exited| String::from_utf8_lossy(&exited.output).into_owned());
    let version = said.lines().next().unwrap_or_default();
    if version != format!("visiond {ours}") {
        return Err(format!("the sandbox hides {here}, and {there} is `{version}`, not {ours}: {remedy}").into());
    }
    Ok((installed.clone(), format!("{there}, {version}: the sandbox hides {here}")))
}

/// Adds a row for each check and node that differs between the shell and the sandbox.
fn differences(test: &mut AreaTest, shell: &Report, sandbox: &Report, areas: &[Area]) {
    const WANTED: &str = "as in the shell";
    let words = |row: &Row| {
        let outcome = match row.outcome {
            Outcome::Pass => "passed",
            Outcome::Fail => "failed",
            Outcome::Skipped => "skipped",
            Outcome::Info => "seen",
        };
        format!("{outcome} ({})", row.seen)
    };
    let is_same = |row: &&Row, other: &Row| (row.area, &row.check) == (other.area, &other.check);
    let is_late = |row: &Row| row.outcome == Outcome::Skipped && row.seen == NO_TIME;
    let late: BTreeSet<_> = sandbox.rows.iter().filter(|row| is_late(row)).map(|row| row.area).collect();
    let (mut compared, mut differing) = (0_u32, 0_u32);
    // For nodes, only the check is compared here; the nodes themselves are compared below.
    let is_compared = |row: &&Row| row.area != Area::Nodes || row.outcome == Outcome::Pass;
    for row in shell.rows.iter().filter(|row| areas.contains(&row.area)).filter(is_compared) {
        let other = sandbox.rows.iter().find(|other| is_same(other, row));
        if late.contains(&row.area) && other.is_none_or(is_late) {
            continue;
        }
        compared += 1;
        if other.is_some_and(|other| other.outcome == row.outcome) {
            continue;
        }
        differing += 1;
        let there = other.map_or("missing".to_owned(), words);
        let seen = format!("{} in the shell, {there} in the sandbox", words(row));
        let check = format!("{}: {}", row.area, row.check);
        // A check that failed or was skipped in the shell can only improve, and a fact has no requirement.
        match row.outcome {
            Outcome::Pass => test.fail(check, WANTED, seen),
            Outcome::Fail | Outcome::Skipped | Outcome::Info => test.info(check, seen),
        }
    }
    for row in sandbox.rows.iter().filter(|row| row.outcome == Outcome::Fail) {
        if !shell.rows.iter().any(|other| is_same(&other, row)) {
            let seen = format!("failed in the sandbox only ({})", row.seen);
            test.fail(format!("{}: {}", row.area, row.check), WANTED, seen);
        }
    }
    for area in late {
        test.info(format!("{area}: not compared, or in part"), format!("in the sandbox: {NO_TIME}"));
    }
    let changed = nodes::differences(&shell.nodes, &sandbox.nodes);
    for (path, seen) in &changed {
        test.info(path.display(), seen);
    }
    let (nodes, changed) = (shell.nodes.len(), changed.len());
    let seen =
        format!("{compared} checks compared, {differing} differ; {nodes} device nodes compared, {changed} differ");
    test.info("compared", seen);
    test.figures([
        ("checks", compared.into()),
        ("differing", differing.into()),
        ("nodes", nodes as f64),
        ("differing_nodes", changed as f64),
    ]);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::PermissionsExt;
    use std::time::Instant;

    use super::*;

    fn area_test(area: Area) -> AreaTest {
        AreaTest::new(area, true, Instant::now())
    }

    fn report(rows: Vec<Row>) -> Report {
        Report { rows, ..Report::default() }
    }

    #[test]
    fn of_the_unit_only_the_sandbox_is_kept() {
        let properties = properties(PACKAGED);
        let has = |property: &str| properties.iter().any(|other| other == property);
        for property in [
            "User=visiond",
            "ProtectSystem=strict",
            "DevicePolicy=closed",
            "DeviceAllow=char-81 rw",
            "CapabilityBoundingSet=",
            "KeyringMode=private",
            "SystemCallFilter=~@privileged @resources @keyring",
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
        let runs = |program: &str| program_there(Path::new(program), &unit);
        assert_eq!(
            runs("/usr/bin/visiond").unwrap(),
            ("/usr/bin/visiond".into(), format!("/usr/bin/visiond, visiond {ours}"))
        );
        let missing = runs("/home/me/visiond").unwrap_err().to_string();
        assert!(missing.starts_with("the sandbox hides /home/me/visiond: install this version"), "{missing}");
        let install = |version: &str| {
            fs::write(&installed, format!("#!/bin/sh\necho 'visiond {version}'\necho rten: here\n")).unwrap();
            fs::set_permissions(&installed, fs::Permissions::from_mode(0o755)).unwrap();
        };
        install(ours);
        let (program, seen) = runs("/home/me/visiond").unwrap();
        assert_eq!((&program, seen.ends_with("the sandbox hides /home/me/visiond")), (&installed, true), "{seen}");
        install("0.0.1");
        let older = runs("/home/me/visiond").unwrap_err().to_string();
        assert!(older.contains(&format!("is `visiond 0.0.1`, not {ours}: install")), "{older}");
    }

    /// The sandbox's rows as lines.
    fn lines(test: &AreaTest) -> Vec<String> {
        test.rows.iter().map(|row| format!("{:?} {}: {}", row.outcome, row.check, row.seen)).collect()
    }

    #[test]
    fn what_passes_in_the_shell_only_fails_and_facts_that_differ_do_not() {
        let mut shell = area_test(Area::Cuda);
        shell.verdict("GPU", "it opens", "Orin", true);
        shell.verdict("kernels", "compiled", "compiled", true);
        shell.fail("kernel cache", "written", "refused");
        shell.info("memory", "8 GiB");
        let mut sandbox = area_test(Area::Cuda);
        sandbox.skip("GPU", "no node");
        sandbox.verdict("kernels", "compiled", "compiled as well", true);
        sandbox.verdict("kernel cache", "written", "written", true);
        sandbox.fail("new", "good", "bad");
        let mut test = area_test(Area::Sandbox);
        differences(&mut test, &report(shell.rows), &report(sandbox.rows), &AREAS);
        assert_eq!(
            lines(&test),
            [
                "Fail cuda: GPU: passed (Orin) in the shell, skipped (no node) in the sandbox",
                "Info cuda: kernel cache: failed (refused) in the shell, passed (written) in the sandbox",
                "Info cuda: memory: seen (8 GiB) in the shell, missing in the sandbox",
                "Fail cuda: new: failed in the sandbox only (bad)",
                "Info compared: 4 checks compared, 3 differ; 0 device nodes compared, 0 differ",
            ]
        );
    }

    #[test]
    fn what_the_sandbox_had_no_time_for_is_not_compared() {
        let mut shell = area_test(Area::Memory);
        shell.verdict("mapped", "right", "right", true);
        let mut sandbox = area_test(Area::Memory);
        sandbox.skip("the test itself", NO_TIME);
        let mut test = area_test(Area::Sandbox);
        differences(&mut test, &report(shell.rows), &report(sandbox.rows), &AREAS);
        assert_eq!(
            lines(&test),
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

    /// Runs a script in place of systemd-run, after as many arguments as a unit has; returns the rows and the sandbox's report.
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
        let mut test = area_test(Area::Sandbox);
        let sandbox = rerun(&mut test, shell, &areas, command, patience);
        (lines(&test), sandbox)
    }

    fn gpu(outcome: Outcome, seen: &str) -> Report {
        let mut test = area_test(Area::Cuda);
        test.info("GPU", seen);
        test.rows[0].outcome = outcome;
        report(test.rows)
    }

    /// A script's line that prints a report.
    fn prints(report: &Report) -> String {
        format!("cat <<'END'\n{}\nEND", serde_json::to_string(report).unwrap())
    }

    #[test]
    fn the_units_report_is_compared_and_a_unit_that_cannot_start_fails() {
        let shell = gpu(Outcome::Pass, "Orin");
        // The report must not be redacted: it would differ in every row with a serial number in its name.
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
        // As systemd 245 reports it: one property at a time.
        let refuse = r#"for key in ProtectProc ProtectClock; do
case "$*" in *"--property=$key="*) echo "Unknown assignment: $key=x" >&2; echo "Failed to create bus message: Invalid argument" >&2; exit 1 ;; esac
done"#;
        let (rows, sandbox) = rerun_by(&format!("{refuse}\n{}", prints(&shell)), &shell);
        let left_out = "this systemd does not know it: left out, as in the unit";
        assert_eq!(
            rows,
            [
                format!("Info property ProtectProc: {left_out}"),
                format!("Info property ProtectClock: {left_out}"),
                "Info compared: 1 checks compared, 0 differ; 0 device nodes compared, 0 differ".to_owned(),
            ]
        );
        assert!(!sandbox.unwrap().command.iter().any(|argument| argument.contains("ProtectProc")));
        // Rejected, although the command does not use it.
        let (rows, _) = rerun_by("echo 'Unknown assignment: NoSuchKey=1' >&2; exit 1", &shell);
        assert_eq!(rows.len(), 1, "{rows:?}");
        assert!(rows[0].starts_with("Fail the unit's sandbox: systemd-run: "), "{rows:?}");
    }
}
