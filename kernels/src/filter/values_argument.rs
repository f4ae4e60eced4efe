//! The location of numbers in an output for a kernel: [`Values`] as a launch's argument.

use super::spec::Values;
use crate::tensor::DType;

/// `Values` of cuda/filter_argument.cuh, which the kernels of filter and masks share.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct ValuesArgument {
    address: u64,
    dtype: u32,
    offset: u32,
    row_step: u32,
    column_step: u32,
    frame_len: u32,
    unused: u32,
}

impl ValuesArgument {
    /// Returns the argument without an address.
    pub(crate) fn new(values: &Values) -> Self {
        let Values { offset, row_step, column_step, frame_len, .. } = *values;
        let [offset, row_step, column_step, frame_len] = [offset, row_step, column_step, frame_len].map(narrow);
        Self { offset, row_step, column_step, frame_len, ..Self::default() }
    }

    /// Sets the address and element type of the output; `None` has no numbers.
    pub(crate) fn set_output(&mut self, output: Option<(u64, DType)>) {
        (self.address, self.dtype) = output.map_or((0, 0), |(address, dtype)| (address, dtype as u32));
    }
}

/// Returns a size as the kernels count it. Checked specs need no more.
pub(crate) fn narrow(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
