//! Limits for a process that runs risky work.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};
use rustix::system::sysinfo;

use crate::cgroup_memory;

/// Stack of every thread of a process after [`limit_stack`], unless the thread asks for another.
pub const STACK_BYTES: u64 = 2 << 20;

/// Limits the stack of the program's threads to [`STACK_BYTES`], the same as Rust's. The C library reads the limit when the
/// program starts, and its default of 8 MiB counts in full as memory for every thread.
pub fn limit_stack(command: &mut Command) {
    let hook = || limit(Resource::Stack, STACK_BYTES);
    // SAFETY: between fork and exec the hook makes only two system calls, allocates nothing and takes no lock.
    unsafe { command.pre_exec(hook) };
}

/// The threads of a program, by the number of processors: decoders and filters start one for each processor, up to 16.
const THREADS_PER_PROCESSOR: u64 = 3;
const MOST_PROCESSORS: u64 = 16;
const OTHER_THREADS: u64 = 8;

/// Limits the program to `bytes` of private memory plus the stacks of its threads, which it limits like [`limit_stack`]. It
/// cannot raise the limit. See [`limit_process`] for what counts.
pub fn limit_data(command: &mut Command, bytes: u64) {
    limit_stack(command);
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u64).min(MOST_PROCESSORS);
    let stacks = (THREADS_PER_PROCESSOR * processors + OTHER_THREADS) * STACK_BYTES;
    limit_memory(command, bytes.saturating_add(stacks));
}

/// Limits the program to `bytes` of private memory, the stacks of its threads included, which stay as large as they are.
pub fn limit_memory(command: &mut Command, bytes: u64) {
    let most = Some(bytes);
    let hook = move || {
        let maximum = getrlimit(Resource::Data).maximum.map_or(most, |maximum| most.map(|most| most.min(maximum)));
        Ok(setrlimit(Resource::Data, Rlimit { current: maximum, maximum })?)
    };
    // SAFETY: between fork and exec the hook makes only two system calls, allocates nothing and takes no lock.
    unsafe { command.pre_exec(hook) };
}

/// Returns the bytes of the machine's memory.
pub fn machine_memory() -> u64 {
    let machine = sysinfo();
    (machine.totalram as u64).saturating_mul(u64::from(machine.mem_unit))
}

/// Lets this process, for the rest of its life, use at most `bytes` of memory of its own, and leave no core dump.
///
/// The limit is that of RLIMIT_DATA: private memory that can be written. Address space would be the wrong measure, because
/// allocators and thread stacks reserve more than they use. The machine's memory and the control groups' limits are upper
/// bounds: returns the groups' limit if it is lower than `bytes`. If memory still runs out, the kernel ends this process
/// first.
///
/// # Errors
/// The system refuses a limit.
pub fn limit_process(bytes: u64) -> io::Result<Option<u64>> {
    let all = machine_memory();
    let left = cgroup_memory::left().filter(|left| *left < bytes.min(all));
    // This is best effort, and does nothing without /proc. It must happen before the process becomes undumpable, which makes
    // /proc/self inaccessible.
    let _ = fs::write("/proc/self/oom_score_adj", "1000");
    limit(Resource::Data, left.unwrap_or(bytes.min(all)))?;
    limit(Resource::Core, 0)?;
    // A core dump that is piped to a program ignores the limit.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(left)
}

/// Sets a soft limit, no higher than the hard one.
fn limit(resource: Resource, wanted: u64) -> io::Result<()> {
    let maximum = getrlimit(resource).maximum;
    let current = Some(maximum.map_or(wanted, |maximum| wanted.min(maximum)));
    Ok(setrlimit(resource, Rlimit { current, maximum })?)
}
