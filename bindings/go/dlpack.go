package gsel

/*
#include "shim.h"
*/
import "C"

import (
	"runtime/cgo"
	"unsafe"
)

// dlpack.go: tensors of other libraries without a copy, as DLManagedTensor and DLManagedTensorVersioned of DLPack.

// DLPackDevice is where a tensor is, as DLPack counts devices: type 1 CPU, 2 CUDA, 3 page-locked by CUDA, 10 ROCm.
type DLPackDevice struct{ Type, ID int32 }

// FromDLPack describes the elements of a DLManagedTensor, which stay where they are and whose they are; FromDLPackVersioned
// those of a DLManagedTensorVersioned. They are borrowed until DeleteDLPack.
func FromDLPack(managed unsafe.Pointer) (t Tensor, device DLPackDevice, err error) {
	var cerr *C.gsel_error
	status := C.gsel_tensor_from_dlpack((*C.gsel_dlpack_tensor)(managed), (*C.gsel_tensor)(unsafe.Pointer(&t)),
		(*C.gsel_dlpack_device)(unsafe.Pointer(&device)), &cerr)
	return t, device, check(status, &cerr)
}

// FromDLPackVersioned is FromDLPack of a DLManagedTensorVersioned.
func FromDLPackVersioned(managed unsafe.Pointer) (t Tensor, device DLPackDevice, err error) {
	var cerr *C.gsel_error
	status := C.gsel_tensor_from_dlpack_versioned((*C.gsel_dlpack_versioned)(managed), (*C.gsel_tensor)(unsafe.Pointer(&t)),
		(*C.gsel_dlpack_device)(unsafe.Pointer(&device)), &cerr)
	return t, device, check(status, &cerr)
}

// ToDLPack makes a DLManagedTensorVersioned of memory of C or of a device, which must live until release is called, once,
// by the deleter. Give it to another library, or call DeleteDLPack.
func ToDLPack(t Tensor, device DLPackDevice, release func()) (unsafe.Pointer, error) {
	handle := cgo.Handle(0)
	if release != nil {
		handle = cgo.NewHandle(release)
	}
	var l lent
	defer l.free()
	inC := zeroed[C.gsel_tensor](&l)
	*(*Tensor)(unsafe.Pointer(inC)) = t
	p, err := made(func(out **C.gsel_dlpack_versioned, err **C.gsel_error) C.gsel_status {
		return C.go_tensor_to_dlpack(inC, C.gsel_dlpack_device{C.int32_t(device.Type), C.int32_t(device.ID)}, C.uintptr_t(handle), out, err)
	})
	if err != nil && handle != 0 {
		handle.Delete()
	}
	return unsafe.Pointer(p), err
}

// DeleteDLPack calls the deleter of a DLManagedTensorVersioned, or of a DLManagedTensor if versioned is false.
func DeleteDLPack(managed unsafe.Pointer, versioned bool) {
	v := C.int(0)
	if versioned {
		v = 1
	}
	C.go_dlpack_delete(managed, v)
}
