//! Which accelerators do I get, in what order, and why? `docs/selection.md` has the language of specs.
use crate::error::{check, filled, made};
use crate::inventory::{DeviceInfo, Inventory};
use crate::{number, text, Result};
use gsel_sys as sys;
use std::fmt;
use std::mem::ManuallyDrop;
use std::path::Path;
use std::ptr::NonNull;
use std::time::Duration;

/// What to select. What is not set takes its default: every visible accelerator of one vendor, or the CPU.
///
/// ```
/// let selection = gsel::Resolve::new().devices("cpu").no_env().select()?;
/// assert_eq!(selection.devices()?.len(), 1);
/// println!("{}", selection); // which devices, and why
/// # Ok::<(), gsel::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Resolve<'a> {
    inventory: Option<&'a Inventory>,
    env: Option<Vec<(String, String)>>,
    flags: u32,
    text: [Option<String>; 8],
}

macro_rules! texts {
    ($($(#[$doc:meta])* $name:ident = $i:expr;)*) => {
        impl Resolve<'_> {
            $($(#[$doc])*
            pub fn $name(mut self, text: &str) -> Self {
                self.text[$i] = Some(text.to_owned());
                self
            })*
        }
    };
}
texts! {
    /// A spec, such as "count:2", "uuid:GPU-1234", "name:*A100* & free>=20GiB | cpu".
    devices = 0;
    /// cuda, hip, ze, habana, ascend, mps, cpu or auto.
    accelerator = 1;
    /// A system whose reading of `devices` and variables is reproduced, such as lightning; see [`compat_systems`].
    compat = 2;
    /// visible, pci, fastest, most_free or near.
    order = 3;
    /// Hosts to take: `NAME[:SLOT[,SLOT]]` joined by @.
    include = 4;
    /// Hosts to leave out, in the same form.
    exclude = 5;
    /// Path of a file of lines "NAME slots=N".
    hostfile = 6;
    /// The content of such a file.
    hostfile_text = 7;
}

impl<'a> Resolve<'a> {
    /// All defaults.
    pub fn new() -> Self {
        Self::default()
    }
    /// The machine to select on; default: this one.
    pub fn inventory(mut self, inventory: &'a Inventory) -> Self {
        self.inventory = Some(inventory);
        self
    }
    /// Variables to honour in place of the process's own.
    pub fn env<K: Into<String>, V: Into<String>>(mut self, variables: impl IntoIterator<Item = (K, V)>) -> Self {
        self.env = Some(
            variables
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        );
        self
    }
    /// Honour no variables.
    pub fn no_env(mut self) -> Self {
        self.flags |= sys::GSEL_RESOLVE_NO_ENV;
        self
    }
    /// Each device goes to a process of its own, see [`Selection::env`].
    pub fn per_rank(mut self) -> Self {
        self.flags |= sys::GSEL_RESOLVE_PER_RANK;
        self
    }

    fn with<R>(&self, call: impl FnOnce(&sys::gsel_resolve_options) -> R) -> R {
        let given = self.env.as_deref().unwrap_or(&[]);
        let env: Vec<_> = given
            .iter()
            .map(|(name, value)| sys::gsel_env_var {
                name: text::given(name),
                value: text::given(value),
            })
            .collect();
        let mut options = sys::sized::<sys::gsel_resolve_options>();
        options.inventory = self.inventory.map_or(std::ptr::null(), |inventory| inventory.raw());
        options.flags = self.flags;
        match &self.env {
            Some(given) if given.is_empty() => options.flags |= sys::GSEL_RESOLVE_NO_ENV,
            Some(_) => (options.env, options.n_env) = (env.as_ptr(), env.len()),
            None => {}
        }
        let at = |i: usize| text::optional(self.text[i].as_deref());
        options.devices = at(0);
        options.accelerator = at(1);
        options.compat = at(2);
        options.order = at(3);
        options.include = at(4);
        options.exclude = at(5);
        options.hostfile = at(6);
        options.hostfile_text = at(7);
        call(&options)
    }

    /// Selects. Errors have the offending token, its column, and the input that has it ([`Detail::file`](crate::Detail)).
    pub fn select(&self) -> Result<Selection> {
        let out = self.with(|options| made(|out, error| unsafe { sys::gsel_resolve(options, out, error) }))?;
        Ok(Selection(
            NonNull::new(out).expect("a call that succeeds gives an object"),
        ))
    }

    /// Selects among the devices that nobody uses, and locks them. Waits at most `wait` for devices to become free; zero does
    /// not wait.
    ///  * `folder`: of the locks; `None`: GSEL_RESERVE_FOLDER, else /run/lock/gsel, else /tmp/gsel-lock
    ///
    /// [`Code::BUSY`](crate::Code::BUSY) names the holders.
    pub fn reserve(&self, folder: Option<&Path>, wait: Duration) -> Result<Reservation> {
        let folder = folder.map(|folder| folder.to_string_lossy());
        let mut how = sys::sized::<sys::gsel_reserve_options>();
        how.folder = text::optional(folder.as_deref());
        how.wait_s = wait.as_secs_f64();
        let out = self.with(|options| made(|out, error| unsafe { sys::gsel_reserve(options, &how, out, error) }))?;
        let reservation = NonNull::new(out).expect("a call that succeeds gives an object");
        let selection = unsafe { sys::gsel_reservation_selection(out) } as *mut sys::gsel_selection;
        let selection = Selection(NonNull::new(selection).expect("a reservation has a selection"));
        Ok(Reservation {
            reservation,
            selection: ManuallyDrop::new(selection),
        })
    }
}

/// Systems that [`Resolve::compat`] accepts: name and summary.
pub fn compat_systems() -> Vec<(String, String)> {
    let name = |i| unsafe {
        (
            text::owned(sys::gsel_compat_name(i)),
            text::owned(sys::gsel_compat_summary(i)),
        )
    };
    (0..unsafe { sys::gsel_compat_count() }).map(name).collect()
}

/// Devices that were selected, and why. `Display` is the text for people.
#[derive(Debug)]
pub struct Selection(NonNull<sys::gsel_selection>);
// C allows any thread.
unsafe impl Send for Selection {}
unsafe impl Sync for Selection {}

/// A device or MIG instance of the inventory, and why it was kept or dropped.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Candidate {
    /// Of the device in the inventory.
    pub index: usize,
    /// In the selection; `None`: dropped.
    pub position: Option<usize>,
    /// The MIG instance.
    pub partition: Option<usize>,
    /// Why.
    pub reason: String,
}

/// What one token of a variable or of the request became, and by which rule.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Decision {
    /// Layer of software that reads it: "container", "cgroup", "ROCr", "HIP", "CUDA", "request", or a framework.
    pub layer: String,
    /// The variable, or "devices".
    pub input: String,
    /// The token.
    pub token: String,
    /// Column of the token in the input, from 1.
    pub column: u32,
    /// What it became.
    pub became: String,
    /// By which rule.
    pub rule: String,
}

impl Selection {
    fn raw(&self) -> *const sys::gsel_selection {
        self.0.as_ptr()
    }
    /// Selected devices, in the order selected.
    pub fn devices(&self) -> Result<Vec<DeviceInfo>> {
        (0..unsafe { sys::gsel_selection_device_count(self.raw()) })
            .map(|i| {
                filled(|out, error| unsafe { sys::gsel_selection_device(self.raw(), i, out, error) })
                    .map(DeviceInfo::of)
            })
            .collect()
    }
    /// Every device and MIG instance, with the reason it was kept or dropped.
    pub fn candidates(&self) -> Result<Vec<Candidate>> {
        (0..unsafe { sys::gsel_selection_candidate_count(self.raw()) })
            .map(|i| {
                let out: sys::gsel_candidate =
                    filled(|out, error| unsafe { sys::gsel_selection_candidate(self.raw(), i, out, error) })?;
                Ok(Candidate {
                    index: out.index as usize,
                    position: usize::try_from(out.position).ok(),
                    partition: usize::try_from(out.partition).ok(),
                    reason: text::owned(out.reason),
                })
            })
            .collect()
    }
    /// What each token became.
    pub fn decisions(&self) -> Result<Vec<Decision>> {
        (0..unsafe { sys::gsel_selection_decision_count(self.raw()) })
            .map(|i| {
                let out: sys::gsel_decision =
                    filled(|out, error| unsafe { sys::gsel_selection_decision(self.raw(), i, out, error) })?;
                Ok(Decision {
                    layer: text::owned(out.layer),
                    input: text::owned(out.input),
                    token: text::owned(out.token),
                    column: out.column as u32,
                    became: text::owned(out.became),
                    rule: text::owned(out.rule),
                })
            })
            .collect()
    }
    /// Warnings.
    pub fn warnings(&self) -> Vec<String> {
        let count = unsafe { sys::gsel_selection_warning_count(self.raw()) };
        (0..count)
            .map(|i| text::owned(unsafe { sys::gsel_selection_warning(self.raw(), i) }))
            .collect()
    }
    /// Number of processes that the compat system would start on this host.
    pub fn process_count(&self) -> Option<usize> {
        usize::try_from(unsafe { sys::gsel_selection_process_count(self.raw()) }).ok()
    }
    /// Variables that make a child process see exactly this selection, or device `local_rank` of it alone.
    pub fn env(&self, local_rank: Option<usize>) -> Result<Vec<(String, String)>> {
        self.variables(|out, n, error| unsafe { sys::gsel_selection_env(self.raw(), local(local_rank), out, n, error) })
    }
    /// The same of one of several hosts.
    pub fn host_env(&self, host: &str, local_rank: Option<usize>) -> Result<Vec<(String, String)>> {
        self.variables(|out, n, error| unsafe {
            sys::gsel_selection_host_env(self.raw(), text::given(host), local(local_rank), out, n, error)
        })
    }
    fn variables(
        &self,
        call: impl FnOnce(*mut *const sys::gsel_env_var, *mut usize, *mut *mut sys::gsel_error) -> i32,
    ) -> Result<Vec<(String, String)>> {
        let (mut first, mut n) = (std::ptr::null::<sys::gsel_env_var>(), 0);
        check(|error| call(&mut first, &mut n, error))?;
        let variable = |i: usize| unsafe { &*first.add(i) };
        Ok((0..n)
            .map(|i| (text::owned(variable(i).name), text::owned(variable(i).value)))
            .collect())
    }
    /// The selection as JSON.
    pub fn json(&self) -> &str {
        text::borrowed(self, unsafe { sys::gsel_selection_json(self.raw()) })
    }
}

fn local(rank: Option<usize>) -> i32 {
    rank.map_or(-1, number)
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(text::borrowed(self, unsafe { sys::gsel_selection_text(self.raw()) }))
    }
}

impl Drop for Selection {
    fn drop(&mut self) {
        unsafe { sys::gsel_selection_free(self.0.as_ptr()) }
    }
}

/// Devices that this process has locked, until it is dropped or the process ends. It is a [`Selection`].
#[derive(Debug)]
pub struct Reservation {
    reservation: NonNull<sys::gsel_reservation>,
    /// Borrowed from the reservation, so never released by itself.
    selection: ManuallyDrop<Selection>,
}
unsafe impl Send for Reservation {}
unsafe impl Sync for Reservation {}

impl std::ops::Deref for Reservation {
    type Target = Selection;
    fn deref(&self) -> &Selection {
        &self.selection
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        unsafe { sys::gsel_reservation_free(self.reservation.as_ptr()) }
    }
}
