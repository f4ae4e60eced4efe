//! libnvcuvid.so.1: the functions that are called, looked up by name when first needed.
//!
//! As with the driver's table, results stay plain numbers, and a missing symbol is an error.

use std::ffi::{c_int, c_uint, c_ulonglong};
use std::sync::OnceLock;

use super::abi::{
    CreateInfo, DecodeCaps, DecodeStatus, DecoderHandle, MapInfo, ParserHandle, ParserInfo, PictureStart, SourcePacket,
};
use super::error::NvdecError;
use crate::cuda::CudaError;

/// The library's soname, the same on every Linux. It is part of the driver.
const LIBRARY: &str = "libnvcuvid.so.1";

/// Declares the table: for each function, a field that is loaded by name and a method that turns its result into an error.
macro_rules! functions {
    ($($method:ident = $symbol:ident($($argument:ident: $kind:ty),*);)*) => {
        /// The loaded library. It is never unloaded: its threads may outlive the last decoder.
        pub struct Library {
            $($method: unsafe extern "C" fn($($kind),*) -> u32,)*
            _library: libloading::Library,
        }

        impl Library {
            fn from_library(library: libloading::Library) -> Result<Self, NvdecError> {
                Ok(Self {
                    // SAFETY: the type is the function's in the headers of Video Codec SDK 12.1, the same as in 11.1. The
                    // pointer stays valid because the library is stored in the table.
                    $($method: *unsafe { library.get(stringify!($symbol).as_bytes()) }
                        .map_err(|_| NvdecError::TooOld(stringify!($symbol)))?,)*
                    _library: library,
                })
            }

            $(
                #[doc = concat!("`", stringify!($symbol), "`")]
                /// Calls the function.
                ///
                /// # Safety
                /// As documented in NVIDIA's headers: pointers valid, handles alive, the right context current.
                pub unsafe fn $method(&self, $($argument: $kind),*) -> Result<(), NvdecError> {
                    // SAFETY: the caller's promise.
                    match unsafe { (self.$method)($($argument),*) } {
                        0 => Ok(()),
                        code => Err(NvdecError::Call(CudaError { call: stringify!($symbol), code, name: String::new() })),
                    }
                }
            )*
        }
    };
}

functions! {
    decoder_caps = cuvidGetDecoderCaps(caps: *mut DecodeCaps);
    create_decoder = cuvidCreateDecoder(decoder: *mut DecoderHandle, info: *mut CreateInfo);
    destroy_decoder = cuvidDestroyDecoder(decoder: DecoderHandle);
    decode_picture = cuvidDecodePicture(decoder: DecoderHandle, picture: *mut PictureStart);
    decode_status = cuvidGetDecodeStatus(decoder: DecoderHandle, picture: c_int, status: *mut DecodeStatus);
    map_frame = cuvidMapVideoFrame64(
        decoder: DecoderHandle, picture: c_int, address: *mut c_ulonglong, pitch: *mut c_uint, info: *mut MapInfo
    );
    unmap_frame = cuvidUnmapVideoFrame64(decoder: DecoderHandle, address: c_ulonglong);
    create_parser = cuvidCreateVideoParser(parser: *mut ParserHandle, info: *mut ParserInfo);
    parse = cuvidParseVideoData(parser: ParserHandle, packet: *mut SourcePacket);
    destroy_parser = cuvidDestroyVideoParser(parser: ParserHandle);
}

impl Library {
    /// Returns the library, loaded once; after a failure the next call tries again.
    pub fn get() -> Result<&'static Self, NvdecError> {
        static LOADED: OnceLock<Library> = OnceLock::new();
        if let Some(library) = LOADED.get() {
            return Ok(library);
        }
        let library = Self::open(LIBRARY)?;
        Ok(LOADED.get_or_init(|| library))
    }

    fn open(name: &str) -> Result<Self, NvdecError> {
        // SAFETY: loading runs the library's initialisers, which NVIDIA makes for being loaded like this; they need nothing
        // from us.
        let library = unsafe { libloading::Library::new(name) }.map_err(|error| {
            let reason = std::error::Error::source(&error).map_or_else(|| error.to_string(), |inner| inner.to_string());
            NvdecError::NoLibrary { reason }
        })?;
        Self::from_library(library)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_reported_in_the_loaders_words() {
        let error = Library::open("libnvcuvid-that-is-nowhere.so.1").err().unwrap();
        assert!(error.to_string().contains("libnvcuvid-that-is-nowhere.so.1"), "{error}");
    }

    #[test]
    fn a_library_without_the_functions_is_too_old() {
        let error = Library::open("libc.so.6").err().unwrap();
        assert!(matches!(&error, NvdecError::TooOld(name) if *name == "cuvidGetDecoderCaps"), "{error}");
    }
}
