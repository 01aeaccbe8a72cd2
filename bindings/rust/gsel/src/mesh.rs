//! The coordinates of ranks on the axes of a mesh.
use crate::error::{filled, made, Code, Error};
use crate::{number, text, Comm, Config, Result};
use gsel_sys as sys;

/// An axis of the mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Axis(pub i32);

impl Axis {
    /// Ranks that share layers.
    pub const TENSOR: Axis = Axis(sys::GSEL_AXIS_TENSOR);
    /// Replicas.
    pub const DATA: Axis = Axis(sys::GSEL_AXIS_DATA);
    /// Stages.
    pub const PIPELINE: Axis = Axis(sys::GSEL_AXIS_PIPELINE);
    /// Parts of a sequence.
    pub const CONTEXT: Axis = Axis(sys::GSEL_AXIS_CONTEXT);
    /// Number of axes of the loaded library.
    pub fn count() -> usize {
        unsafe { sys::gsel_axis_count() as usize }
    }
    /// Name as in configurations; "unknown" for a number without one.
    pub fn name(self) -> &'static str {
        text::fixed(unsafe { sys::gsel_axis_name(self.0) })
    }
}

/// A mesh of ranks.
#[derive(Clone, Copy)]
pub struct Mesh(sys::gsel_mesh);

impl Mesh {
    /// The mesh that a configuration asks for with this many ranks, "auto" resolved; `None`: all ranks on the data axis.
    pub fn resolve(config: Option<&Config>, world_size: usize) -> Result<Mesh> {
        let config = config.map_or(std::ptr::null(), |config| config.raw() as *const _);
        let n = i32::try_from(world_size).map_err(|_| {
            let text = format!("{} ranks were asked for, a mesh has {} at most", world_size, i32::MAX);
            Error::new(Code::ARG, text)
        })?;
        filled(|out, error| unsafe { sys::gsel_mesh_resolve(config, n, out, error) }).map(Mesh)
    }
    /// Number of ranks.
    pub fn world_size(&self) -> usize {
        self.0.world_size as usize
    }
    /// Ranks on an axis.
    pub fn size(&self, axis: Axis) -> usize {
        self.0.size.get(axis.0 as usize).map_or(1, |&size| size.max(1) as usize)
    }
    /// Coordinate of a rank on an axis.
    pub fn coordinate(&self, rank: usize, axis: Axis) -> Option<usize> {
        usize::try_from(unsafe { sys::gsel_mesh_coordinate(&self.0, number(rank), axis.0) }).ok()
    }
    /// The rank at these coordinates, by the numbers of axes; 0 on those that are missing.
    pub fn rank(&self, coordinates: &[i32]) -> Option<usize> {
        usize::try_from(unsafe { sys::gsel_mesh_rank(&self.0, coordinates.as_ptr(), number(coordinates.len())) }).ok()
    }
    /// Makes the communicator of the ranks whose coordinates differ from this rank's on these axes alone. Collective.
    pub fn split(&self, comm: &Comm, axes: &[Axis]) -> Result<Comm> {
        let mut bits = 0u32;
        for axis in axes {
            let at = usize::try_from(axis.0).ok().filter(|&at| at < Axis::count());
            bits |= 1
                << at.ok_or_else(|| {
                    let text = format!("axis {} was asked for, there are 0 to {}", axis.0, Axis::count() - 1);
                    Error::new(Code::ARG, text)
                })?;
        }
        let made = made(|out, error| unsafe { sys::gsel_mesh_split(comm.raw(), &self.0, bits, out, error) })?;
        Ok(Comm::owned(made, comm.has_device))
    }
}
