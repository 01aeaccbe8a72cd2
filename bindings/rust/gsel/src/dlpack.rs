//! Tensors of other libraries without a copy, in the form of DLPack.
use crate::error::{check, made};
use crate::{guard, DType, Element, Result};
use gsel_sys as sys;
use std::os::raw::c_void;

/// Where a tensor is, as DLPack counts devices: type 1 CPU, 2 CUDA, 3 page-locked by CUDA, 10 ROCm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// Type.
    pub kind: i32,
    /// Index among those of its type.
    pub id: i32,
}

/// What a DLPack tensor describes: dense, row-major, aligned elements that stay where they are.
#[derive(Clone, Debug)]
pub struct View {
    /// First element.
    pub data: *mut c_void,
    /// Type of the elements.
    pub dtype: DType,
    /// Sizes, outermost first.
    pub dims: Vec<i64>,
    /// Where the elements are.
    pub device: Device,
}

impl View {
    fn of(
        call: impl FnOnce(*mut sys::gsel_tensor, *mut sys::gsel_dlpack_device, *mut *mut sys::gsel_error) -> i32,
    ) -> Result<View> {
        let mut tensor = sys::gsel_tensor {
            data: std::ptr::null_mut(),
            n_elems: 0,
            dims: [0; 6],
            n_dims: 0,
            dtype: 0,
        };
        let mut device = sys::gsel_dlpack_device { r#type: 0, id: 0 };
        check(|error| call(&mut tensor, &mut device, error))?;
        Ok(View {
            data: tensor.data,
            dtype: DType(tensor.dtype),
            dims: tensor.dims[..tensor.n_dims as usize].to_vec(),
            device: Device {
                kind: device.r#type,
                id: device.id,
            },
        })
    }
    /// Describes a tensor without a version. [`Code::ARG`](crate::Code::ARG) says what gsel cannot take, such as strides.
    ///
    /// # Safety
    /// `tensor` is a DLManagedTensor.
    pub unsafe fn from_dlpack(tensor: *const sys::DLManagedTensor) -> Result<View> {
        View::of(|out, device, error| sys::gsel_tensor_from_dlpack(tensor, out, device, error))
    }
    /// Describes a tensor with a version, of major 1.
    ///
    /// # Safety
    /// `tensor` is a DLManagedTensorVersioned.
    pub unsafe fn from_versioned(tensor: *const sys::DLManagedTensorVersioned) -> Result<View> {
        View::of(|out, device, error| sys::gsel_tensor_from_dlpack_versioned(tensor, out, device, error))
    }
    /// The elements, if they are of this type and in memory of the host.
    ///
    /// # Safety
    /// The tensor lives for `'a`, nothing else writes it, and work that writes it has ended.
    pub unsafe fn elements<'a, T: Element>(&self) -> Option<&'a mut [T]> {
        let n: i64 = self.dims.iter().product();
        if self.dtype != T::DTYPE || !matches!(self.device.kind, 1 | 3) {
            return None;
        }
        Some(std::slice::from_raw_parts_mut(self.data as *mut T, n as usize))
    }
}

/// Makes a versioned DLPack tensor of a vector, with these sizes. Whoever takes it calls its deleter once, on any thread,
/// which drops the vector. On an error the vector is dropped.
pub fn to_dlpack<T: Element>(elements: Vec<T>, dims: &[i64]) -> Result<*mut sys::DLManagedTensorVersioned> {
    let mut elements = Box::new(elements);
    let mut tensor = sys::gsel_tensor {
        data: elements.as_mut_ptr() as *mut c_void,
        n_elems: elements.len() as i64,
        dims: [0; 6],
        n_dims: i32::try_from(dims.len()).unwrap_or(i32::MAX),
        dtype: T::DTYPE.0,
    };
    tensor.dims.iter_mut().zip(dims).for_each(|(to, from)| *to = *from);
    if dims.len() > tensor.dims.len() {
        let message = format!("{} dimensions, at most {} are allowed", dims.len(), tensor.dims.len());
        return Err(crate::Error::new(crate::Code::ARG, message));
    }
    let device = sys::gsel_dlpack_device { r#type: 1, id: 0 };
    let user = Box::into_raw(elements);
    let free = Some(guard::free::<Vec<T>> as unsafe extern "C" fn(*mut c_void));
    let result = made(|out, error| unsafe {
        sys::gsel_tensor_to_dlpack(&tensor, &device, free, user as *mut c_void, out, error)
    });
    if result.is_err() {
        unsafe { guard::free::<Vec<T>>(user as *mut c_void) }
    }
    result
}
