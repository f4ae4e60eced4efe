//! What is inside an engine: its layers with their precisions and tactics, as far as it was built to tell.

use super::abi::runtime::{Engine as EngineClass, Inspector};
use super::abi::{Owned, call};
use super::callback::text;
use super::context::TrtContext;
use super::engine::TrtEngine;
use crate::backend::EngineError;

/// `LayerInformationFormat::kJSON`.
const JSON: i32 = 1;

impl TrtEngine {
    /// The engine's layers as TensorRT's JSON: `{"Layers": [...], "Bindings": [...]}`. Names alone, unless it was built with
    /// detailed profiling verbosity. With a context, sizes that its shapes decide are filled in.
    pub fn information(&self, context: Option<&TrtContext>) -> Result<String, EngineError> {
        let abi = self.abi();
        self.make(|engine| {
            // SAFETY: the engine lives; the inspector is ours and goes at the end of this, before the engine and the context;
            // its text lives as long as it does, and is copied.
            unsafe {
                let raw = call!(engine, EngineClass::CREATE_INSPECTOR())?;
                let inspector: Owned<Inspector> =
                    Owned::from_raw(raw, abi).ok_or_else(|| self.refused("inspect the engine"))?;
                if let Some(context) = context {
                    call!(inspector.get(), Inspector::SET_CONTEXT(context.object().as_ptr()))?;
                }
                Ok(text(call!(inspector.get(), Inspector::ENGINE(JSON))?))
            }
        })
    }
}
