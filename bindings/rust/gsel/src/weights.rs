//! Parameters from safetensors files of other programs, and to such files.
use crate::error::filled;
use crate::{text, Comm, Config, DType, Result, Trainer};
use gsel_sys as sys;
use std::borrow::Borrow;

/// What a load or an export of weights did.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WeightsReport {
    /// Tensors of the file that parameters were read from or written to.
    pub tensors: i32,
    /// Optional parameters that the file has no tensor for.
    pub kept: i32,
    /// Tensors of the file that a rule ignores, or that are equal copies.
    pub ignored: i32,
    /// Tensors of 16 bits that became f32.
    pub widened: i32,
    /// Bytes of tensors that this rank read or wrote.
    pub bytes: u64,
    /// Bytes of tensors that this rank's placement needs, in the types of the file.
    pub needed_bytes: u64,
    /// Bytes that this rank read to compare copies of one tensor.
    pub compared_bytes: u64,
    /// Reads or writes of tensors.
    pub reads: u64,
    /// How long it took.
    pub seconds: f64,
}

impl WeightsReport {
    fn of(out: sys::gsel_weights_report) -> Self {
        WeightsReport {
            tensors: out.n_tensors,
            kept: out.n_kept,
            ignored: out.n_ignored,
            widened: out.n_widened,
            bytes: out.bytes,
            needed_bytes: out.needed_bytes,
            compared_bytes: out.compared_bytes,
            reads: out.reads,
            seconds: out.seconds,
        }
    }
}

fn raw(map: Option<&Config>) -> *const sys::gsel_config {
    map.map_or(std::ptr::null(), |map| map.raw() as *const _)
}

impl<C: Borrow<Comm>> Trainer<C> {
    /// Loads parameters from a safetensors file, or from a folder of a model hub, as `[weights]` of `map`, or of the
    /// trainer's own configuration, says. A collective.
    pub fn load_weights(&mut self, path: &str, map: Option<&Config>) -> Result<WeightsReport> {
        let path = text::given(path);
        filled(|out, error| unsafe { sys::gsel_trainer_load_weights(self.raw(), path, raw(map), out, error) })
            .map(WeightsReport::of)
    }
    /// Writes the parameters as one safetensors file, with the names and the layout of the map. A collective.
    pub fn export_weights(&mut self, path: &str, map: Option<&Config>, dtype: DType) -> Result<WeightsReport> {
        let path = text::given(path);
        filled(|out, error| unsafe {
            sys::gsel_trainer_export_weights(self.raw(), path, raw(map), dtype.0, out, error)
        })
        .map(WeightsReport::of)
    }
}
