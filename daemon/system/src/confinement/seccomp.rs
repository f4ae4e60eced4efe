//! A filter of system calls: a program of the kernel's classic BPF, which sees a call's number and arguments (seccomp(2)).
//!
//! A denied call fails with an error, which a library can handle; it does not end the program.

use std::io;
use std::mem::offset_of;

use libc::{c_int, c_long, sock_filter, sock_fprog};

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

/// Calls from this number on belong to the x32 ABI, which nothing needs.
#[cfg(target_arch = "x86_64")]
const X32: u32 = 0x4000_0000;

/// Calls that no decoder needs, and that reach other processes, the kernel's internals, or the machine's settings.
const DENIED: &[c_long] = &[
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
    // Calls that change a process's view of the system.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    // Interfaces with a history of kernel vulnerabilities.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_bpf,
    libc::SYS_userfaultfd,
    libc::SYS_perf_event_open,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_vmsplice,
    libc::SYS_lookup_dcookie,
    libc::SYS_fanotify_init,
    libc::SYS_fanotify_mark,
    libc::SYS_quotactl,
    libc::SYS_nfsservctl,
    // Calls that change the machine. All of them require a capability, which a daemon that root starts by hand has.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_personality,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_uselib,
];

/// Flags of clone(2) that create namespaces.
const NAMESPACES: c_int = libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET;

/// Requests of ioctl(2) that type into a terminal.
const TYPING: [libc::Ioctl; 2] = [libc::TIOCSTI, libc::TIOCLINUX];

/// Returns whether the kernel supports filters. Passes a null filter, which only a kernel with filters tries to read.
pub fn is_available() -> bool {
    // SAFETY: the kernel checks the address and returns an error; see prctl(2), PR_SET_SECCOMP.
    let result =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, std::ptr::null::<sock_fprog>()) };
    result == -1 && io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT)
}

/// Returns the filter for a program that may create sockets of these families.
pub fn filter(families: &[c_int]) -> Vec<sock_filter> {
    // Another architecture has other numbers.
    let mut filter = vec![load(offset_of!(libc::seccomp_data, arch)), skip_if(EQUAL, ARCHITECTURE), deny(libc::EPERM)];
    filter.push(load(offset_of!(libc::seccomp_data, nr)));
    #[cfg(target_arch = "x86_64")]
    filter.extend([skip_unless(libc::BPF_JGE, X32), deny(libc::ENOSYS)]);
    for &call in DENIED {
        filter.extend([skip_unless(EQUAL, call as u32), deny(libc::EPERM)]);
    }
    // Its flags are in memory, which a filter cannot read. glibc then uses clone(2).
    filter.extend([skip_unless(EQUAL, libc::SYS_clone3 as u32), deny(libc::ENOSYS)]);
    let flags = [load(argument(0)), skip_unless(libc::BPF_JSET, NAMESPACES as u32), deny(libc::EPERM)];
    filter.extend(only_for(libc::SYS_clone, &flags));
    let mut requests = vec![load(argument(1))];
    requests.extend(TYPING.iter().flat_map(|request| [skip_unless(EQUAL, *request as u32), deny(libc::EPERM)]));
    filter.extend(only_for(libc::SYS_ioctl, &requests));
    let mut domain = vec![load(argument(0))];
    domain.extend(families.iter().flat_map(|family| [skip_unless(EQUAL, *family as u32), finish(ALLOW)]));
    domain.push(deny(libc::EAFNOSUPPORT));
    filter.extend(only_for(libc::SYS_socket, &domain));
    filter.push(finish(ALLOW));
    filter
}

/// Applies `filter` permanently to this thread and everything that it starts. Requires `PR_SET_NO_NEW_PRIVS`. Makes only a
/// system call.
pub fn install(filter: &[sock_filter]) -> io::Result<()> {
    let len = u16::try_from(filter.len()).map_err(|_| io::Error::from_raw_os_error(libc::E2BIG))?;
    let program = sock_fprog { len, filter: filter.as_ptr().cast_mut() };
    // SAFETY: `program` names `len` instructions, which the kernel copies and does not change.
    let result = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const EQUAL: u32 = libc::BPF_JEQ;

/// The offset of an argument's low half, which comes first on these architectures. The kernel reads only that half of the
/// arguments checked here.
fn argument(index: usize) -> usize {
    offset_of!(libc::seccomp_data, args) + index * size_of::<u64>()
}

/// Makes `instructions`, which begin with a load, apply to this call only. For another call, execution continues after them with its
/// number loaded.
///
/// Instructions that do not finish the filter end in allowing the call.
fn only_for(call: c_long, instructions: &[sock_filter]) -> Vec<sock_filter> {
    // At most a dozen instructions, so their number fits.
    let behind = u8::try_from(instructions.len() + 1).unwrap_or(u8::MAX);
    let mut all = vec![instruction(libc::BPF_JMP | EQUAL | libc::BPF_K, call as u32, 0, behind)];
    all.extend_from_slice(instructions);
    all.push(finish(ALLOW));
    all
}

fn instruction(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: code as u16, jt, jf, k }
}

fn load(offset: usize) -> sock_filter {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset as u32, 0, 0)
}

/// Skips the next instruction if the loaded value compares this way to `k`.
fn skip_if(comparison: u32, k: u32) -> sock_filter {
    instruction(libc::BPF_JMP | comparison | libc::BPF_K, k, 1, 0)
}

/// Skips the next instruction unless the loaded value compares this way to `k`.
fn skip_unless(comparison: u32, k: u32) -> sock_filter {
    instruction(libc::BPF_JMP | comparison | libc::BPF_K, k, 0, 1)
}

fn finish(result: u32) -> sock_filter {
    instruction(libc::BPF_RET | libc::BPF_K, result, 0, 0)
}

/// Makes the call fail with `errno`.
fn deny(errno: c_int) -> sock_filter {
    finish(libc::SECCOMP_RET_ERRNO | (errno as u32 & libc::SECCOMP_RET_DATA))
}
