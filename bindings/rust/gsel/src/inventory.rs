//! What a machine has: devices, MIG instances, what connects them, and which plugins were found.
use crate::error::{check, filled, made, Code, Error};
use crate::{number, text, Result};
use gsel_sys as sys;
use std::fmt;
use std::path::Path;
use std::ptr::NonNull;

/// Facts about one device; numbers that are not known are 0.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// Position in bus order on its host.
    pub index: usize,
    /// NUMA node.
    pub numa: Option<usize>,
    /// "nvidia", "amd", "intel", "habana", "ascend", "apple", "cpu", or another.
    pub vendor: String,
    /// Name as its driver tells it.
    pub name: String,
    /// Stable identity, such as "GPU-...".
    pub uuid: String,
    /// Such as "00000000:3b:00.0"; empty for a CPU.
    pub pci: String,
    /// Host that has it.
    pub host: String,
    /// "gfx942", "xe-hpc", ...; empty when not told.
    pub architecture: String,
    /// Uuid of the MIG instance that a selection chose; else empty.
    pub partition_uuid: String,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Bytes of it that are free.
    pub free_bytes: u64,
    /// Compute capability, major and minor.
    pub capability: (i32, i32),
    /// Multiprocessors, or CPU cores.
    pub compute_units: u32,
    /// Processes computing on it now.
    pub process_count: Option<usize>,
    /// Highest clock of the compute units, kHz.
    pub clock_khz: i64,
    /// Of a selection: the MIG instance.
    pub partition: Option<usize>,
    /// Of a selection: the tile of an Intel card.
    pub tile: Option<usize>,
    /// MIG instances.
    pub partition_count: usize,
    /// Tiles.
    pub tiles: usize,
    /// `gsel::sys::GSEL_COMPUTE_MODE_*`.
    pub compute_mode: i32,
    /// Shares the host's memory.
    pub integrated: bool,
    /// This user may open it.
    pub accessible: bool,
    /// Process that holds a reservation on it.
    pub reserved_by: Option<u32>,
}

impl DeviceInfo {
    pub(crate) fn of(info: sys::gsel_device_info) -> DeviceInfo {
        let known = |n: i32| usize::try_from(n).ok();
        DeviceInfo {
            index: info.index as usize,
            numa: known(info.numa),
            vendor: text::owned(info.vendor),
            name: text::owned(info.name),
            uuid: text::owned(info.uuid),
            pci: text::owned(info.pci),
            host: text::owned(info.host),
            architecture: text::owned(info.architecture),
            partition_uuid: text::owned(info.partition_uuid),
            memory_bytes: info.memory_bytes,
            free_bytes: info.free_bytes,
            capability: (info.capability_major, info.capability_minor),
            compute_units: info.compute_units as u32,
            process_count: known(info.process_count),
            clock_khz: info.clock_khz,
            partition: known(info.partition),
            tile: known(info.tile),
            partition_count: info.partition_count as usize,
            tiles: info.tiles as usize,
            compute_mode: info.compute_mode,
            integrated: info.integrated == 1,
            accessible: info.accessible == 1,
            reserved_by: u32::try_from(info.reserved_by).ok().filter(|&pid| pid > 0),
        }
    }
}

/// A MIG instance of a device.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Partition {
    /// Identity.
    pub uuid: String,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// GPU instance.
    pub gi: Option<usize>,
    /// Compute instance.
    pub ci: Option<usize>,
}

/// What connects two devices of one host.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Interconnect {
    /// Indices of the two devices in bus order on that host.
    pub between: (usize, usize),
    /// "NV4", "PIX", "PXB", "PHB", "NODE", "SYS", or another.
    pub kind: String,
    /// 0: not told.
    pub bytes_per_second: f64,
    /// 0: not told.
    pub latency_s: f64,
}

/// What machines have. `Display` is a table for people, with notes about what was looked for and not found.
#[derive(Debug)]
pub struct Inventory(NonNull<sys::gsel_inventory>);
// C allows any thread.
unsafe impl Send for Inventory {}
unsafe impl Sync for Inventory {}

impl Inventory {
    fn owned(inventory: *mut sys::gsel_inventory) -> Inventory {
        Inventory(NonNull::new(inventory).expect("a call that succeeds gives an object"))
    }
    /// Looks at this machine. Creates no context on any device.
    pub fn detect() -> Result<Inventory> {
        made(|out, error| unsafe { sys::gsel_inventory_detect(out, error) }).map(Inventory::owned)
    }
    /// Reads machines from a JSON file (`docs/inventory.md`).
    pub fn load(path: impl AsRef<Path>) -> Result<Inventory> {
        let path = path.as_ref().to_string_lossy();
        made(|out, error| unsafe { sys::gsel_inventory_load(text::given(&path), out, error) }).map(Inventory::owned)
    }
    /// The same from text; `name` stands for the file in messages.
    pub fn parse(json: &str, name: &str) -> Result<Inventory> {
        made(|out, error| unsafe { sys::gsel_inventory_parse(text::given(json), text::given(name), out, error) })
            .map(Inventory::owned)
    }
    pub(crate) fn raw(&self) -> *const sys::gsel_inventory {
        self.0.as_ptr()
    }
    /// Devices of all hosts, host after host.
    pub fn devices(&self) -> Result<Vec<DeviceInfo>> {
        (0..unsafe { sys::gsel_inventory_device_count(self.raw()) })
            .map(|i| {
                filled(|out, error| unsafe { sys::gsel_inventory_device(self.raw(), i, out, error) })
                    .map(DeviceInfo::of)
            })
            .collect()
    }
    /// MIG instance `partition` of device `device`, as counted by [`devices`](Inventory::devices).
    pub fn partition(&self, device: usize, partition: usize) -> Result<Partition> {
        let (device, partition) = (number(device), number(partition));
        let out: sys::gsel_partition_info =
            filled(|out, error| unsafe { sys::gsel_inventory_partition(self.raw(), device, partition, out, error) })?;
        Ok(Partition {
            uuid: text::owned(out.uuid),
            memory_bytes: out.memory_bytes,
            gi: usize::try_from(out.gi).ok(),
            ci: usize::try_from(out.ci).ok(),
        })
    }
    /// Names of the hosts.
    pub fn hosts(&self) -> Vec<String> {
        let count = unsafe { sys::gsel_inventory_host_count(self.raw()) };
        (0..count)
            .map(|i| text::owned(unsafe { sys::gsel_inventory_host_name(self.raw(), i) }))
            .collect()
    }
    /// What connects the devices of a host.
    pub fn interconnects(&self, host: usize) -> Result<Vec<Interconnect>> {
        let host = number(host);
        let hosts = unsafe { sys::gsel_inventory_host_count(self.raw()) };
        if host >= hosts {
            return Err(Error::new(
                Code::ARG,
                format!("host {} was asked for, there are {}", host, hosts),
            ));
        }
        (0..unsafe { sys::gsel_inventory_interconnect_count(self.raw(), host) })
            .map(|i| {
                let out: sys::gsel_interconnect_info =
                    filled(|out, error| unsafe { sys::gsel_inventory_interconnect(self.raw(), host, i, out, error) })?;
                Ok(Interconnect {
                    between: (out.a as usize, out.b as usize),
                    kind: text::owned(out.kind),
                    bytes_per_second: out.bytes_per_second,
                    latency_s: out.latency_s,
                })
            })
            .collect()
    }
    /// The inventory as JSON, which [`parse`](Inventory::parse) reads.
    pub fn json(&self) -> &str {
        text::borrowed(self, unsafe { sys::gsel_inventory_json(self.raw()) })
    }
}

impl fmt::Display for Inventory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(text::borrowed(self, unsafe { sys::gsel_inventory_text(self.raw()) }))
    }
}

impl Drop for Inventory {
    fn drop(&mut self) {
        unsafe { sys::gsel_inventory_free(self.0.as_ptr()) }
    }
}

/// Registers a plugin that is linked into the program, before all files of its kind and name. One that is registered
/// already is left as it is; another of its kind and name is an error.
///
/// # Safety
/// The tables are those of a plugin, as `gsel/plugin.h` describes them.
pub unsafe fn register_plugin(plugin: &'static sys::gsel_plugin_v1) -> Result<()> {
    check(|error| sys::gsel_plugin_register(plugin, error))
}

/// Registers the strategies that are linked into the program: all of them where gsel-sys was built with `GSEL_STATIC=1`,
/// so that no plugin file is needed. Else there are none, and libgsel finds the files of those that are used.
pub fn register_strategies() -> Result<()> {
    sys::linked_strategies()
        .iter()
        .try_for_each(|plugin| unsafe { register_plugin(plugin) })
}

/// A candidate on the search path of plugins.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PluginInfo {
    /// Absolute; empty for a plugin that the program registered.
    pub path: String,
    /// "strategy", "device", "transport"; empty when not known.
    pub kind: String,
    /// "ddp"; empty when not known.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Why it was refused; `None`: it is usable.
    pub refusal: Option<String>,
    /// What the library has that it wraps, such as NCCL; `None`: it has nothing to say.
    pub note: Option<String>,
}

/// Looks at every candidate on the search path, and runs its probe: those of "cuda" and "nccl" load NVIDIA's libraries and
/// start the driver, so a program that forks later makes this call in a child.
pub fn plugins() -> Result<Vec<PluginInfo>> {
    struct List(*mut sys::gsel_plugin_list);
    impl Drop for List {
        fn drop(&mut self) {
            unsafe { sys::gsel_plugin_list_free(self.0) }
        }
    }
    let list = List(made(|out, error| unsafe { sys::gsel_plugin_list_create(out, error) })?);
    (0..unsafe { sys::gsel_plugin_list_count(list.0) })
        .map(|i| {
            let out: sys::gsel_plugin_info =
                filled(|out, error| unsafe { sys::gsel_plugin_list_get(list.0, i, out, error) })?;
            Ok(PluginInfo {
                path: text::owned(out.path),
                kind: text::owned(out.kind),
                name: text::owned(out.name),
                version: text::owned(out.version),
                refusal: Some(text::owned(out.refusal)).filter(|refusal| !refusal.is_empty()),
                note: Some(text::owned(out.note)).filter(|note| !note.is_empty()),
            })
        })
        .collect()
}
