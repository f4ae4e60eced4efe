//! Ranges on the timeline of Nsight Systems (NVTX 3).
//!
//! NVTX has no library: a tool names its own in `NVTX_INJECTION64_PATH`, and the program loads it and passes it tables of
//! function pointers, which the tool fills in. This implements that protocol for two functions; the tables have every entry,
//! because tools fill them all. Definitions: <https://github.com/NVIDIA/NVTX>, `c/include/nvtx3/nvtxDetail/nvtxTypes.h` and
//! `nvtxInit.h` (unchanged since NVTX 3.0). Without a tool a range costs one load and one branch.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::{null, null_mut};
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The environment variable that names the tool's library.
const VARIABLE: &str = "NVTX_INJECTION64_PATH";

/// A function that a tool may set; null until then.
type Slot = AtomicPtr<c_void>;

/// The values of `NVTX_CBID_*_SIZE` by module: core, CUDA, OpenCL, CUDA runtime, core 2, synchronisation.
const SIZES: [usize; 6] = [16, 9, 15, 7, 16, 7];

/// The slots of all modules; the first of each is not a function.
static SLOTS: [[Slot; 16]; 6] = [const { [const { Slot::new(null_mut()) }; 16] }; 6];

/// An `NvtxFunctionTable` for each module: addresses of slots, after the first entry and up to a null pointer.
struct Tables([[*const Slot; 17]; 6]);

// SAFETY: the pointers are to statics of atomics, which any thread may use.
unsafe impl Sync for Tables {}

static TABLES: Tables = {
    let mut tables = [[null(); 17]; 6];
    let mut module = 0;
    while module < SIZES.len() {
        let mut index = 1;
        while index < SIZES[module] {
            tables[module][index] = &raw const SLOTS[module][index];
            index += 1;
        }
        module += 1;
    }
    Tables(tables)
};

/// `NVTX_CBID_CORE_RangePushA`: `int (const char*)`.
const RANGE_PUSH: usize = 9;
/// `NVTX_CBID_CORE_RangePop`: `int (void)`.
const RANGE_POP: usize = 11;

type RangePush = unsafe extern "C" fn(*const c_char) -> c_int;
type RangePop = unsafe extern "C" fn() -> c_int;
type GetExportTable = unsafe extern "C" fn(u32) -> *const c_void;
type InitializeInjection = unsafe extern "C" fn(GetExportTable) -> c_int;

/// `NvtxExportTableCallbacks`.
#[repr(C)]
struct Callbacks {
    struct_size: usize,
    get_module_function_table: unsafe extern "C" fn(c_int, *mut *const *const Slot, *mut c_uint) -> c_int,
}

/// `NvtxExportTableVersionInfo`.
#[repr(C)]
struct VersionInfo {
    struct_size: usize,
    version: u32,
    reserved: u32,
    set_injection_version: unsafe extern "C" fn(u32),
}

static CALLBACKS: Callbacks =
    Callbacks { struct_size: size_of::<Callbacks>(), get_module_function_table: module_function_table };
static VERSION_INFO: VersionInfo = VersionInfo {
    struct_size: size_of::<VersionInfo>(),
    version: 3,
    reserved: 0,
    set_injection_version: ignore_injection_version,
};

unsafe extern "C" fn export_table(id: u32) -> *const c_void {
    match id {
        1 => (&raw const CALLBACKS).cast(),
        3 => (&raw const VERSION_INFO).cast(),
        _ => null(),
    }
}

unsafe extern "C" fn ignore_injection_version(_version: u32) {}

unsafe extern "C" fn module_function_table(module: c_int, table: *mut *const *const Slot, size: *mut c_uint) -> c_int {
    let index = usize::try_from(module).ok().and_then(|module| module.checked_sub(1));
    let Some(module) = index.filter(|&index| index < SIZES.len()) else { return 0 };
    if !size.is_null() {
        // SAFETY: by the protocol, the caller's place for the size; not null.
        unsafe { size.write(SIZES[module] as c_uint) };
    }
    if !table.is_null() {
        // SAFETY: by the protocol, the caller's place for the table; not null.
        unsafe { table.write(TABLES.0[module].as_ptr()) };
    }
    1
}

/// Loads the tool that `NVTX_INJECTION64_PATH` names, once. Does nothing without one.
pub fn start() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let Some(path) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) else { return };
        if let Err(error) = load(&path) {
            log::warn!("cannot record ranges for Nsight Systems: {VARIABLE} names {}: {error}", path.display());
        }
    });
}

/// Loads the tool. The error is a sentence, because it only goes to the log.
fn load(path: &std::ffi::OsStr) -> Result<(), String> {
    // SAFETY: the user runs visiond under a tool that names its library; its initialisers run as in any program under that
    // tool.
    let library = unsafe { libloading::Library::new(path) }.map_err(|error| error.to_string())?;
    // Never close it: its functions are called until the process exits.
    let library = ManuallyDrop::new(library);
    // SAFETY: the protocol defines this name for a function of this type.
    let initialize = unsafe { library.get::<InitializeInjection>(c"InitializeInjectionNvtx2") };
    let initialize = initialize.map_err(|error| error.to_string())?;
    // SAFETY: the call is the protocol's; everything that it can reach from `export_table` is static.
    match unsafe { initialize(export_table) } {
        0 => {
            SLOTS[0].iter().for_each(|slot| slot.store(null_mut(), Ordering::Release));
            Err("the tool does not attach".to_owned())
        }
        _ => Ok(()),
    }
}

/// A range on this thread's timeline, until it is dropped.
#[must_use = "the range ends when this is dropped"]
#[derive(Debug)]
pub struct Range {
    is_open: bool,
    /// Ranges nest on the thread that opened them.
    _here: PhantomData<*const ()>,
}

/// Begins a range.
#[inline]
pub fn range(name: &'static CStr) -> Range {
    let push = SLOTS[0][RANGE_PUSH].load(Ordering::Acquire);
    let is_open = !push.is_null();
    if is_open {
        // SAFETY: what a tool puts into the slot has the slot's type; a tool stays loaded. `name` is NUL-terminated and static.
        unsafe { std::mem::transmute::<*mut c_void, RangePush>(push)(name.as_ptr()) };
    }
    Range { is_open, _here: PhantomData }
}

impl Drop for Range {
    #[inline]
    fn drop(&mut self) {
        if self.is_open {
            let pop = SLOTS[0][RANGE_POP].load(Ordering::Acquire);
            if !pop.is_null() {
                // SAFETY: what a tool puts into the slot has the slot's type; a tool stays loaded.
                unsafe { std::mem::transmute::<*mut c_void, RangePop>(pop)() };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Mutex;

    use super::*;

    static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());

    unsafe extern "C" fn push(name: *const c_char) -> c_int {
        // SAFETY: the name of a range ends in NUL.
        SEEN.lock().unwrap().push(unsafe { CStr::from_ptr(name) }.to_str().unwrap().to_owned());
        0
    }

    unsafe extern "C" fn pop() -> c_int {
        SEEN.lock().unwrap().push("end".to_owned());
        0
    }

    /// Acts like a tool: writes to each slot that a table of a module leads to.
    unsafe fn initialize_injection(get: GetExportTable) -> c_int {
        // SAFETY: the function and the tables behind it, as a tool uses them.
        unsafe {
            let callbacks = &*get(1).cast::<Callbacks>();
            assert_eq!(callbacks.struct_size, 16);
            assert_eq!((*get(3).cast::<VersionInfo>()).version, 3);
            assert!(get(2).is_null());
            for (module, functions) in [(1, 15), (2, 8), (3, 14), (4, 6), (5, 15), (6, 6)] {
                let (mut table, mut size) = (null(), 0);
                assert_eq!((callbacks.get_module_function_table)(module, &raw mut table, &raw mut size), 1);
                assert_eq!(size as usize, functions + 1);
                assert!((*table).is_null() && (*table.add(size as usize)).is_null());
                for index in 1..=functions {
                    assert!((**table.add(index)).load(Ordering::Relaxed).is_null());
                }
                if module == 1 {
                    let function = |index: usize| table.add(index).read().cast_mut().cast::<*const c_void>();
                    function(9).write(push as *const c_void);
                    function(11).write(pop as *const c_void);
                }
            }
            assert_eq!((callbacks.get_module_function_table)(7, null_mut(), null_mut()), 0);
        }
        1
    }

    #[test]
    fn ranges_reach_a_tool_that_fills_the_tables_in() {
        drop(range(c"no tool is loaded"));
        // SAFETY: it does what the protocol has tools do.
        assert_eq!(unsafe { initialize_injection(export_table) }, 1);
        {
            let _outer = range(c"engine");
            let _inner = range(c"filter");
        }
        assert_eq!(*SEEN.lock().unwrap(), ["engine", "filter", "end", "end"]);
    }
}
