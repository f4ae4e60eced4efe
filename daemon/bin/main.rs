//! The program: all of it is in `visiond-cli`.

use std::process::ExitCode;

fn main() -> ExitCode {
    // SAFETY: the first statement of `main`: no other thread has been started.
    unsafe { visiond_cli::main() }
}
