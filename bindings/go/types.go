package gsel

import (
	"unsafe"
)

// types.go: element types, operations, and the plain structs that Go shares with C byte by byte. This file needs no cgo;
// the layout test compares its numbers and structs with the headers.

// DType is the type of an element.
type DType int32

// Element types of gsel/types.h.
const (
	I8     DType = 1
	U8     DType = 2
	I16    DType = 3
	U16    DType = 4
	I32    DType = 5
	U32    DType = 6
	I64    DType = 7
	U64    DType = 8
	F16    DType = 9
	BF16   DType = 10
	F32    DType = 11
	F64    DType = 12
	F8E4M3 DType = 13
	F8E5M2 DType = 14
	Bool   DType = 15
)

// Float16, BFloat16, Float8E4M3 and Float8E5M2 are the bits of a number in these formats, which Go does not have.
type (
	Float16    uint16
	BFloat16   uint16
	Float8E4M3 uint8
	Float8E5M2 uint8
)

// Element is what slices of calls hold.
type Element interface {
	int8 | uint8 | int16 | uint16 | int32 | uint32 | int64 | uint64 | float32 | float64 |
		Float16 | BFloat16 | Float8E4M3 | Float8E5M2 | bool
}

// DTypeOf returns the DType of T.
func DTypeOf[T Element]() DType {
	var zero T
	switch any(zero).(type) {
	case float32:
		return F32
	case float64:
		return F64
	case int8:
		return I8
	case uint8:
		return U8
	case int16:
		return I16
	case uint16:
		return U16
	case int32:
		return I32
	case uint32:
		return U32
	case int64:
		return I64
	case uint64:
		return U64
	case Float16:
		return F16
	case BFloat16:
		return BF16
	case Float8E4M3:
		return F8E4M3
	case bool:
		return Bool
	default:
		return F8E5M2
	}
}

// Op is a reduction. Inputs are taken in rank order; the bits of a result depend only on the inputs. NewOp makes more.
type Op int32

// Operations of gsel/types.h. BAnd, BOr and BXor are for integers and bool, ScaledSum for floating point.
const (
	Sum       Op = 1
	Prod      Op = 2
	Min       Op = 3
	Max       Op = 4
	Avg       Op = 5
	BAnd      Op = 6
	BOr       Op = 7
	BXor      Op = 8
	ScaledSum Op = 9
	firstUser Op = 4096
)

// Axis is an axis of the mesh.
type Axis int32

// Axes of gsel/types.h. From inner to outer they are tensor, context, data and pipeline.
const (
	AxisTensor   Axis = 0
	AxisData     Axis = 1
	AxisPipeline Axis = 2
	AxisContext  Axis = 3
	maxAxes           = 8
)

// MaxDims is the most dimensions that a Tensor has.
const MaxDims = 6

// Tensor is a dense row-major view of memory of the library, valid during one call; its layout is that of gsel_tensor.
// Slice gives its elements.
type Tensor struct {
	Data  unsafe.Pointer
	Elems int64 // product of Shape
	dims  [MaxDims]int64
	nDims int32
	DType DType
}

// Shape is the size of each dimension, in elements; the first is the number of samples for values of a model.
func (t *Tensor) Shape() []int64 { return t.dims[:t.nDims] }

// NewTensor describes memory of C or of a device: shape elements of dtype at data.
func NewTensor(data unsafe.Pointer, dtype DType, shape ...int64) Tensor {
	t := Tensor{Data: data, Elems: 1, nDims: int32(copyDims(shape)), DType: dtype}
	for i, n := range shape[:t.nDims] {
		t.dims[i] = n
		t.Elems *= n
	}
	return t
}

func copyDims(shape []int64) int {
	if len(shape) > MaxDims {
		panic("gsel: a tensor has at most 6 dimensions")
	}
	return len(shape)
}

// Slice is the elements of t, shared with it; nil if t has no data. It panics if T is not t's type.
func Slice[T Element](t *Tensor) []T {
	if t.Data == nil {
		return nil
	}
	if t.DType != DTypeOf[T]() {
		panic("gsel: the tensor has elements of " + t.DType.String() + ", not " + DTypeOf[T]().String())
	}
	return unsafe.Slice((*T)(t.Data), int(t.Elems))
}

// Float32 is Slice[float32](t).
func (t *Tensor) Float32() []float32 { return Slice[float32](t) }

// Float64 is Slice[float64](t).
func (t *Tensor) Float64() []float64 { return Slice[float64](t) }

// Range is the half-open range [Begin, End).
type Range struct{ Begin, End int64 }

// Shard is what a rank has of a tensor that is split along Dim: elements [Begin, End) of each of Blocks blocks
// of Whole elements. Dim is -1 if the rank has the whole tensor.
type Shard struct {
	Dim, Blocks       int32
	Begin, End, Whole int64
}

// UniqueID identifies a communicator that is to be made. One rank creates it, and the program passes it to the others.
type UniqueID [128]byte

// CommCount is a number of calls made and of payload bytes sent.
type CommCount struct {
	Calls     uint64 `json:"calls"`
	BytesSent uint64 `json:"bytes_sent"`
}

// LogLevel is how detailed log lines are.
type LogLevel int32

// Levels of gsel/log.h.
const (
	LogError LogLevel = 1
	LogWarn  LogLevel = 2
	LogInfo  LogLevel = 3
	LogDebug LogLevel = 4
)

// WorkKind is what is to be computed, in work of a trainer, in schedules and in programs.
type WorkKind int32

// Kinds of gsel/types.h.
const (
	WorkInput          WorkKind = 1
	WorkForward        WorkKind = 2
	WorkBackwardInput  WorkKind = 3
	WorkBackwardWeight WorkKind = 4
	WorkBackward       WorkKind = 5
	workDone           WorkKind = 0
)
