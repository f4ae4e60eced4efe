//! The part of ONNX Runtime's C API that tensors and runs need: checks each call and adds nothing.

use std::ffi::{CString, c_char, c_void};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use ort::memory::{AllocationDevice, AllocatorType, MemoryInfo, MemoryType};
use ort::session::Session;
use ort::{AsPointer, Error, Result, sys};
use visiond_kernels::tensor::DType;

/// The memory of our tensors, as ONNX Runtime describes it.
pub(super) struct CpuMemory(MemoryInfo<'static>);

impl CpuMemory {
    pub(super) fn new() -> Result<Self> {
        MemoryInfo::new(AllocationDevice::CPU, 0, AllocatorType::Device, MemoryType::Default).map(Self)
    }
}

/// A value of ONNX Runtime, released when dropped; `'a` is the memory that it borrows.
pub(super) struct RuntimeValue<'a> {
    value: NonNull<sys::OrtValue>,
    memory: PhantomData<&'a [u8]>,
}

// SAFETY: an `OrtValue` is plain data behind an atomic reference count; nothing in it is tied to a thread.
unsafe impl Send for RuntimeValue<'_> {}

impl Drop for RuntimeValue<'_> {
    fn drop(&mut self) {
        // SAFETY: this owns `value` and releases it once, here.
        unsafe { (ort::api().ReleaseValue)(self.value.as_ptr()) }
    }
}

/// Checks the status of a call and releases it.
fn checked(status: sys::OrtStatusPtr) -> Result<()> {
    // SAFETY: every status here comes straight from a call of the C API and is used nowhere else.
    unsafe { Error::result_from_status(status) }
}

impl<'a> RuntimeValue<'a> {
    /// Wraps `bytes` as an input tensor, which ONNX Runtime only reads.
    pub(super) fn input(memory: &CpuMemory, dtype: DType, shape: &[i64], bytes: &'a [u8]) -> Result<Self> {
        let mut value = ptr::null_mut();
        // SAFETY: `memory` describes CPU memory; `bytes` are borrowed for `'a`, as long as the value lives; the library checks
        // their number against shape and type; `shape` is copied; a run does not write to its inputs (the parameter is not
        // const because the same call serves outputs).
        checked(unsafe {
            (ort::api().CreateTensorWithDataAsOrtValue)(
                memory.0.ptr(),
                bytes.as_ptr().cast_mut().cast::<c_void>(),
                bytes.len(),
                shape.as_ptr(),
                shape.len(),
                element_type(dtype),
                &mut value,
            )
        })?;
        Self::owned(value)
    }

    fn owned(value: *mut sys::OrtValue) -> Result<Self> {
        let value = NonNull::new(value).ok_or_else(|| Error::new("it returned no value"))?;
        Ok(Self { value, memory: PhantomData })
    }

    /// Returns element type (a `TensorProto.DataType`), address and length of a tensor and fills `shape`; `None` for anything
    /// else.
    ///
    /// `dtype` returns the element types that the caller can take; the bytes of others are empty.
    pub(super) fn tensor(
        &self,
        shape: &mut Vec<usize>,
        dtype: impl Fn(i64) -> Option<DType>,
    ) -> Result<Option<(i64, *const u8, usize)>> {
        let mut is_tensor = 0;
        // SAFETY: `value` is alive, `is_tensor` is written.
        checked(unsafe { (ort::api().IsTensor)(self.value.as_ptr(), &mut is_tensor) })?;
        if is_tensor == 0 {
            return Ok(None);
        }
        let element = self.element_and_shape(shape)?;
        let Some(dtype) = dtype(element) else { return Ok(Some((element, ptr::null(), 0))) };
        let mut data = ptr::null_mut();
        // SAFETY: `value` is a tensor, not of strings; `data` is written with the address of its elements.
        checked(unsafe { (ort::api().GetTensorMutableData)(self.value.as_ptr(), &mut data) })?;
        Ok(Some((element, data.cast_const().cast(), shape.iter().product::<usize>() * dtype.size_bytes())))
    }

    fn element_and_shape(&self, shape: &mut Vec<usize>) -> Result<i64> {
        let mut info = ptr::null_mut();
        // SAFETY: `value` is a tensor; `info` is written and released below.
        checked(unsafe { (ort::api().GetTensorTypeAndShape)(self.value.as_ptr(), &mut info) })?;
        let mut read = || {
            // Read the type as a number, because a newer library may have types that the enum lacks.
            let (mut element, mut rank) = (0_i32, 0);
            // SAFETY: `info` is alive; the enum is `repr(i32)`, so an i32 holds what is written.
            checked(unsafe { (ort::api().GetTensorElementType)(info, (&raw mut element).cast()) })?;
            // SAFETY: `info` is alive, `rank` is written.
            checked(unsafe { (ort::api().GetDimensionsCount)(info, &mut rank) })?;
            let mut dims = [0_i64; 16];
            let dims = dims.get_mut(..rank).ok_or_else(|| Error::new("a tensor has more than 16 dimensions"))?;
            // SAFETY: `info` is alive, `dims` has room for `rank` numbers.
            checked(unsafe { (ort::api().GetDimensions)(info, dims.as_mut_ptr(), rank) })?;
            shape.clear();
            shape.extend(dims.iter().map(|&dim| usize::try_from(dim).unwrap_or(0)));
            Ok(i64::from(element))
        };
        let result = read();
        // SAFETY: `info` came from `GetTensorTypeAndShape` and is released once.
        unsafe { (ort::api().ReleaseTensorTypeAndShapeInfo)(info) };
        result
    }
}

/// Runs `session` over `inputs`; clears `outputs` and fills it with the values for `output_names`.
pub(super) fn run(
    session: &Session,
    input_names: &[CString],
    inputs: &[RuntimeValue<'_>],
    output_names: &[CString],
    outputs: &mut Vec<RuntimeValue<'static>>,
) -> Result<()> {
    outputs.clear();
    assert_eq!(input_names.len(), inputs.len(), "a name for each input");
    let pointers = |names: &[CString]| names.iter().map(|name| name.as_ptr()).collect::<Vec<*const c_char>>();
    let (input_names, output_names) = (pointers(input_names), pointers(output_names));
    let inputs: Vec<_> = inputs.iter().map(|value| value.value.as_ptr().cast_const()).collect();
    let mut made = vec![ptr::null_mut(); output_names.len()];
    // SAFETY: the session is alive, and its inner pointer is what `Run` takes. ONNX Runtime documents that several threads may
    // call `Run` on one session at the same time; `ort` asks for `&mut` because of execution providers that break this, and
    // only the CPU's is used here. Names and values are alive and match the counts; `made` has room for every output, and its
    // null entries ask the library to allocate. Null run options are the defaults.
    let status = unsafe {
        (ort::api().Run)(
            session.inner().ptr().cast_mut(),
            ptr::null(),
            input_names.as_ptr(),
            inputs.as_ptr(),
            inputs.len(),
            output_names.as_ptr(),
            output_names.len(),
            made.as_mut_ptr(),
        )
    };
    checked(status)?;
    for value in made {
        outputs.push(RuntimeValue::owned(value)?);
    }
    Ok(())
}

fn element_type(dtype: DType) -> sys::ONNXTensorElementDataType {
    use sys::ONNXTensorElementDataType as T;
    match dtype {
        DType::F16 => T::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16,
        DType::U8 => T::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8,
        DType::I8 => T::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8,
        DType::I32 => T::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32,
        DType::I64 => T::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64,
        DType::Bool => T::ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL,
        DType::F32 => T::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT,
        // `DType` may gain variants; the library rejects a tensor of undefined type.
        _ => T::ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED,
    }
}
