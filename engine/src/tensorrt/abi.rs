//! TensorRT's C++ interface in memory: objects, the slots of their methods, and the versions that have them.
//!
//! A public object is `[vptr][implementation]`, and its methods are virtual methods of the implementation; those of the ONNX
//! parser are virtual methods of the object itself. A method keeps its slot within a major version and may move in the next,
//! so each table has a column per layout and, for a method that was added later, the minor version that added it. Looking up
//! a method that the loaded version lacks returns `None` before anything is called.

pub mod builder;
pub mod runtime;

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr::NonNull;

use super::error::TensorRtError;
use super::version::{Layout, Version};

/// A version and its layout: the key to look up a method's slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abi {
    /// The version of the loaded library.
    pub version: Version,
    /// The layout of its objects.
    pub layout: Layout,
}

/// The slot of a method in one layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// The layout does not have the method.
    Absent,
    /// At this slot in every minor version.
    At(u16),
    /// At this slot from this minor version on.
    Since(u32, u16),
}

/// A method of class `C` whose function has the type `F`.
pub struct Method<C, F> {
    name: &'static str,
    /// The slots for 8, 10, 11 and RTX.
    slots: [Slot; 4],
    marker: PhantomData<fn(C) -> F>,
}

impl<C: Class, F: Copy> Method<C, F> {
    /// Declares a method and its slots for 8, 10, 11 and RTX.
    ///
    /// # Safety
    /// `F` is the type of an `unsafe extern "C"` function whose first parameter is `*mut Implementation`, and has the method's
    /// signature in every layout for which `slots` has a slot.
    pub const unsafe fn new(name: &'static str, slots: [Slot; 4]) -> Self {
        const { assert!(size_of::<F>() == size_of::<*const c_void>(), "a method's type is a function pointer") };
        Self { name, slots, marker: PhantomData }
    }

    /// Returns its slot in the virtual method table, if the version has it.
    pub fn slot(&self, abi: Abi) -> Option<usize> {
        match self.slots[abi.layout as usize] {
            Slot::Absent => None,
            Slot::At(slot) => Some(usize::from(slot)),
            Slot::Since(minor, slot) => (abi.version.minor >= minor).then_some(usize::from(slot)),
        }
    }

    /// Whether the version has it.
    pub fn is_in(&self, abi: Abi) -> bool {
        self.slot(abi).is_some()
    }
}

/// A class of TensorRT.
///
/// # Safety
/// `VIRTUALS` says where the class's virtual methods are, and `delete_slot` returns the slot of the deleting destructor in the
/// object's own table.
pub unsafe trait Class {
    /// Where the virtual methods are.
    const VIRTUALS: Virtuals;

    /// Returns the slot of the deleting destructor.
    fn delete_slot(_: Layout) -> usize {
        1
    }
}

/// Where a class's virtual methods are.
#[derive(PartialEq, Eq)]
pub enum Virtuals {
    /// In the table of the implementation that the object points to.
    OfImplementation,
    /// In the object's own table.
    OfObject,
}

/// A public object.
#[repr(C)]
pub struct RawObject {
    vtable: *const *const c_void,
    implementation: *mut Implementation,
}

/// The object that a public object points to; the `this` of its methods.
#[repr(C)]
pub struct Implementation {
    vtable: *const *const c_void,
}

/// A method of a living object: call `(bound.function)(bound.this, ...)`.
pub struct Bound<F> {
    pub function: F,
    pub this: *mut Implementation,
}

/// A living object with another owner.
pub struct Object<C> {
    raw: NonNull<RawObject>,
    abi: Abi,
    marker: PhantomData<fn(C)>,
}

impl<C> Clone for Object<C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C> Copy for Object<C> {}

/// Pointers below this are invalid: without CUDA, TensorRT 10 and 11 return the offset of a base class instead of null.
const LOWEST_POINTER: usize = 0x1000;

impl<C: Class> Object<C> {
    /// Wraps the object at `raw`; `None` if there is none.
    ///
    /// # Safety
    /// `raw` is what a function of a library of this `abi` returned for a `C`: null, a number below 0x1000, or an object that
    /// lives as long as the result and its copies are used.
    pub unsafe fn from_raw(raw: *mut RawObject, abi: Abi) -> Option<Self> {
        let raw = NonNull::new(raw).filter(|raw| raw.as_ptr().addr() >= LOWEST_POINTER)?;
        Some(Self { raw, abi, marker: PhantomData })
    }

    /// Returns the pointer to pass to the library.
    pub fn as_ptr(self) -> *mut RawObject {
        self.raw.as_ptr()
    }

    /// Returns the version and layout of the library that made the object.
    pub fn abi(self) -> Abi {
        self.abi
    }

    /// Returns `method` of this object, or an error if the loaded version lacks it.
    pub fn method<F: Copy>(self, method: &Method<C, F>) -> Result<Bound<F>, TensorRtError> {
        let missing = || TensorRtError::Missing(self.abi.version, method.name);
        let slot = method.slot(self.abi).ok_or_else(missing)?;
        let this = match C::VIRTUALS {
            Virtuals::OfObject => self.raw.as_ptr().cast::<Implementation>(),
            // SAFETY: the object is alive (`from_raw`), and one of such a class has both fields.
            Virtuals::OfImplementation => unsafe { (*self.raw.as_ptr()).implementation },
        };
        // SAFETY: `this` begins with the pointer to its virtual methods, which has at least `slot` entries: the slot belongs
        // to this layout, and later minor versions only append. The entry is a function of type `F` (`Method::new`), whose
        // size is that of a pointer.
        let function = unsafe { std::mem::transmute_copy(&*(*this).vtable.add(slot)) };
        Ok(Bound { function, this })
    }
}

/// An object that we own: deleted when dropped.
pub struct Owned<C: Class>(Object<C>);

// SAFETY: TensorRT's objects are not bound to the thread that created them.
unsafe impl<C: Class> Send for Owned<C> {}

impl<C: Class> Owned<C> {
    /// Takes ownership of the object at `raw`; `None` if there is none.
    ///
    /// # Safety
    /// The same as for [`Object::from_raw`], and nothing else deletes it; the objects that it needs outlive the
    /// result.
    pub unsafe fn from_raw(raw: *mut RawObject, abi: Abi) -> Option<Self> {
        // SAFETY: the conditions of this function.
        unsafe { Object::from_raw(raw, abi) }.map(Self)
    }

    /// Returns the object to call.
    pub fn get(&self) -> Object<C> {
        self.0
    }
}

impl<C: Class> Drop for Owned<C> {
    fn drop(&mut self) {
        let raw = self.0.as_ptr();
        // SAFETY: the object is alive and we own it; its own table has the deleting destructor at this slot (`Class`), which
        // takes only the object. Nothing uses it afterwards.
        unsafe {
            let entry = *(*raw).vtable.add(C::delete_slot(self.0.abi.layout));
            let delete: unsafe extern "C" fn(*mut RawObject) = std::mem::transmute(entry);
            delete(raw);
        }
    }
}

/// Dimensions up to TensorRT 8.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Dims32 {
    /// How many sizes are used; -1 for a tensor that TensorRT does not know.
    pub count: i32,
    /// The sizes; -1 where one is chosen at run time.
    pub sizes: [i32; 8],
}

/// Dimensions from TensorRT 10 on.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Dims64 {
    /// How many sizes are used; -1 for a tensor that TensorRT does not know.
    pub count: i32,
    /// The sizes; -1 where one is chosen at run time.
    pub sizes: [i64; 8],
}

/// Returns the sizes; -1 for one that is chosen at run time. `None` for a tensor that TensorRT does not know.
pub fn sizes_of_32(dims: Dims32) -> Option<Vec<i64>> {
    let count = usize::try_from(dims.count).ok()?;
    Some(dims.sizes.get(..count)?.iter().map(|&size| i64::from(size)).collect())
}

/// Does the same as [`sizes_of_32`].
pub fn sizes_of_64(dims: Dims64) -> Option<Vec<i64>> {
    let count = usize::try_from(dims.count).ok()?;
    Some(dims.sizes.get(..count)?.to_vec())
}

/// Returns a shape as `Dims32`, if TensorRT can hold it: at most 8 dimensions, each below 2^31.
pub fn dims_32(sizes: &[i64]) -> Option<Dims32> {
    let mut dims = Dims32 { count: i32::try_from(sizes.len()).ok()?, ..Dims32::default() };
    for (to, &size) in dims.sizes.get_mut(..sizes.len())?.iter_mut().zip(sizes) {
        *to = i32::try_from(size).ok()?;
    }
    Some(dims)
}

/// Returns a shape as `Dims64`: at most 8 dimensions.
pub fn dims_64(sizes: &[i64]) -> Option<Dims64> {
    let mut dims = Dims64 { count: i32::try_from(sizes.len()).ok()?, ..Dims64::default() };
    dims.sizes.get_mut(..sizes.len())?.copy_from_slice(sizes);
    Some(dims)
}

/// Declares a class and its methods: `NAME "Class::method" fn(arguments) -> result = [8, 10, 11, RTX];`. A slot is a number,
/// `-` for none, or `(minor: number)` for a method that a minor version added.
macro_rules! methods {
    (
        $(#[$doc:meta])*
        $class:ident $($rest:tt)*
    ) => {
        $(#[$doc])*
        pub struct $class;
        $crate::tensorrt::abi::methods!(@class $class $($rest)*);
    };
    (@class $class:ident of object, deleted by [$($delete:expr),*] { $($body:tt)* }) => {
        // SAFETY: the class has no separate implementation; the slots come from the vtable dumps.
        unsafe impl $crate::tensorrt::abi::Class for $class {
            const VIRTUALS: $crate::tensorrt::abi::Virtuals = $crate::tensorrt::abi::Virtuals::OfObject;
            fn delete_slot(layout: $crate::tensorrt::version::Layout) -> usize {
                [$($delete),*][layout as usize]
            }
        }
        $crate::tensorrt::abi::methods!(@methods $class { $($body)* });
    };
    (@class $class:ident { $($body:tt)* }) => {
        // SAFETY: the class has a separate implementation, and the second entry of its own table deletes it.
        unsafe impl $crate::tensorrt::abi::Class for $class {
            const VIRTUALS: $crate::tensorrt::abi::Virtuals = $crate::tensorrt::abi::Virtuals::OfImplementation;
        }
        $crate::tensorrt::abi::methods!(@methods $class { $($body)* });
    };
    (@methods $class:ident { $($name:ident $text:literal fn($($argument:ty),*) $(-> $result:ty)? = [$($slot:tt),*];)* }) => {
        #[allow(dead_code, reason = "methods that are not called yet are tested too")]
        impl $class {
            $(
                #[doc = concat!("The method `", $text, "`.")]
                pub const $name: $crate::tensorrt::abi::Method<
                    $class,
                    unsafe extern "C" fn(*mut $crate::tensorrt::abi::Implementation $(, $argument)*) $(-> $result)?
                > =
                    // SAFETY: slots and signatures come from the vtable dumps of every version that the column covers.
                    unsafe { $crate::tensorrt::abi::Method::new($text, [$($crate::tensorrt::abi::methods!(@slot $slot)),*]) };
            )*

            /// Returns every method's name and slot.
            #[cfg(test)]
            pub fn slots(abi: $crate::tensorrt::abi::Abi) -> Vec<(&'static str, Option<usize>)> {
                vec![$(($text, Self::$name.slot(abi))),*]
            }

            /// Calls every method that the version has with zeros, and then `check` with its name.
            ///
            /// # Safety
            /// The object accepts zeros for every argument.
            #[cfg(test)]
            pub unsafe fn call_each(object: $crate::tensorrt::abi::Object<$class>, mut check: impl FnMut(&'static str)) {
                $(
                    if let Ok(bound) = object.method(&Self::$name) {
                        // SAFETY: guaranteed by the caller; every argument is a number, a pointer or a structure of numbers.
                        unsafe { (bound.function)(bound.this $(, std::mem::zeroed::<$argument>())*) };
                        check($text);
                    }
                )*
            }
        }
    };
    (@slot -) => { $crate::tensorrt::abi::Slot::Absent };
    (@slot ($minor:literal : $slot:literal)) => { $crate::tensorrt::abi::Slot::Since($minor, $slot) };
    (@slot $slot:literal) => { $crate::tensorrt::abi::Slot::At($slot) };
}
pub(crate) use methods;

/// Calls a method of an object: `call!(object, Class::METHOD(arguments))`. Returns `Err` if the loaded version lacks it.
///
/// Unsafe: the arguments must be what the method expects.
#[macro_export]
macro_rules! tensorrt_call {
    ($object:expr, $class:ident :: $method:ident ($($argument:expr),* $(,)?)) => {
        $object
            .method(&$class::$method)
            .map(|bound| (bound.function)(bound.this $(, $argument)*))
    };
}
pub use crate::tensorrt_call as call;
