//! Runs the kernels of a model against their contracts, before a rank trains with them.
use crate::error::{check, filled};
use crate::{guard, number, text, Code, DataOutcome, DataRequest, Model, Optimizer, Result};
use gsel_sys as sys;
use std::os::raw::c_void;

/// How a model is checked; zeros take defaults.
#[derive(Default)]
pub struct CheckOptions {
    /// Samples; 0 means 3.
    pub samples: usize,
    /// First sample id.
    pub first_sample: i64,
    /// Random integers are below this number; 0 means 2.
    pub index_limit: i64,
    /// Of initial values and noise; 0 means 1.
    pub seed: u64,
    /// Ranks that share layers in the check of shards; 0 means 2, 1: no such check.
    pub tensor_ranks: usize,
    /// Elements of each gradient that are compared with finite differences; 0: a default.
    pub differences: usize,
    /// Bits `1 << gsel::sys::GSEL_BREACH_*` to leave out.
    pub skip: u32,
    /// An optimizer to be checked as well.
    pub optimizer: Option<Optimizer>,
}

/// What a kernel did that its contract does not allow.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Breach {
    /// `gsel::sys::GSEL_BREACH_*`.
    pub kind: i32,
    /// Layer; `None`: the data or the optimizer.
    pub layer: Option<usize>,
    /// `gsel::sys::GSEL_FORWARD` to `GSEL_BACKWARD`, `GSEL_INPUT` for data, 0 for the optimizer.
    pub callback: i32,
    /// Flat index in the buffer.
    pub element: i64,
    /// Found and expected, where numbers were compared.
    pub numbers: (f64, f64),
    /// All of it in one line.
    pub text: String,
}

/// Result of a check. A model is right if there is no breach.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CheckReport {
    /// Such as "kernels: 14 layers checked, no breach".
    pub summary: String,
    /// What is no breach but worth knowing.
    pub notes: Vec<String>,
    /// One for each layer, kernel, buffer and kind.
    pub breaches: Vec<Breach>,
}

impl Model {
    /// Runs every layer's kernels against their contracts, on this thread and without ranks, on random inputs. A breach is
    /// part of the report; an error is what kept the check from its end.
    pub fn check(&mut self, options: CheckOptions) -> Result<CheckReport> {
        self.check_all::<fn(&DataRequest<'_>) -> DataOutcome>(options, None)
    }
    /// The same with inputs that `data` fills, and is checked for.
    pub fn check_with<F: FnMut(&DataRequest<'_>) -> DataOutcome>(
        &mut self,
        options: CheckOptions,
        data: F,
    ) -> Result<CheckReport> {
        self.check_all(options, Some(data))
    }

    fn check_all<F: FnMut(&DataRequest<'_>) -> DataOutcome>(
        &mut self,
        options: CheckOptions,
        mut data: Option<F>,
    ) -> Result<CheckReport> {
        let mut raw = sys::sized::<sys::gsel_model_check_options>();
        raw.skip = options.skip;
        raw.n_samples = options.samples as i64;
        raw.first_sample = options.first_sample;
        raw.index_limit = options.index_limit;
        raw.seed = options.seed;
        raw.tensor_ranks = number(options.tensor_ranks);
        raw.differences = number(options.differences);
        if let Some(data) = &mut data {
            raw.data = Some(crate::train::fill::<F>);
            raw.data_user_data = data as *mut F as *mut c_void;
        }
        // Borrowed for the call, so it is not the library that frees it.
        struct Lent(sys::gsel_optimizer_options);
        impl Drop for Lent {
            fn drop(&mut self) {
                unsafe { Optimizer::free(&self.0) }
            }
        }
        let optimizer = options.optimizer.map(|optimizer| {
            let lent = Lent(optimizer.into_raw());
            let mut options = lent.0;
            options.free_user_data = None;
            (lent, options)
        });
        raw.optimizer = optimizer
            .as_ref()
            .map_or(std::ptr::null(), |(_, options)| options as *const _);
        struct Report(*mut sys::gsel_model_check_report);
        impl Drop for Report {
            fn drop(&mut self) {
                unsafe { sys::gsel_model_check_free(self.0) }
            }
        }
        let mut report = Report(std::ptr::null_mut());
        let result =
            guard::resuming(|| check(|error| unsafe { sys::gsel_model_check(self.raw(), &raw, &mut report.0, error) }));
        match result {
            Err(error) if error.code != Code::MODEL || report.0.is_null() => return Err(error),
            _ => {}
        }
        let notes = unsafe { sys::gsel_model_check_note_count(report.0) };
        let breaches = unsafe { sys::gsel_model_check_breach_count(report.0) };
        Ok(CheckReport {
            summary: text::owned(unsafe { sys::gsel_model_check_summary(report.0) }),
            notes: (0..notes)
                .map(|i| text::owned(unsafe { sys::gsel_model_check_note(report.0, i) }))
                .collect(),
            breaches: (0..breaches)
                .map(|i| {
                    let out: sys::gsel_breach =
                        filled(|out, error| unsafe { sys::gsel_model_check_breach(report.0, i, out, error) })?;
                    Ok(Breach {
                        kind: out.kind,
                        layer: usize::try_from(out.layer).ok(),
                        callback: out.callback,
                        element: out.element,
                        numbers: (out.found, out.expected),
                        text: text::owned(out.text),
                    })
                })
                .collect::<Result<_>>()?,
        })
    }
}
