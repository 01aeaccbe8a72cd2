package gsel

/*
#cgo !gsel_static pkg-config: gsel
#cgo gsel_static pkg-config: gsel-static
#cgo gsel_static CFLAGS: -DGSEL_GO_STATIC
#include "shim.h"
*/
import "C"

import "unsafe"

// core.go: how the binding calls C: errors copied out, text and lists lent to C for one call, and library-wide queries.

// check turns the result of a call into a Go error, and frees the library's. It takes the address of err, which Go might
// otherwise read before the call has written it.
func check(status C.gsel_status, err **C.gsel_error) error {
	if status == C.GSEL_OK {
		return nil
	}
	return checkResult(C.go_result{err: *err, status: status})
}

func checkResult(result C.go_result) error {
	if result.status == C.GSEL_OK {
		return nil
	}
	defer C.gsel_error_free(result.err)
	if result.err == nil {
		return failed(Status(result.status), "%s", statusText(Status(result.status)))
	}
	return copyError(result.err)
}

func copyError(err *C.gsel_error) *Error {
	e := &Error{
		Code:    Status(C.gsel_error_code(err)),
		Message: text(C.gsel_error_message(err)),
		Rank:    int(C.gsel_error_rank(err)),
		File:    text(C.gsel_error_file(err)),
		Line:    int(C.gsel_error_line(err)),
		Column:  int(C.gsel_error_column(err)),
		Token:   text(C.gsel_error_token(err)),
	}
	if cause := C.gsel_error_cause(err); cause != nil {
		e.Cause = copyError((*C.gsel_error)(unsafe.Pointer(cause)))
	}
	return e
}

func statusText(s Status) string { return C.GoString(C.gsel_status_text(C.gsel_status(s))) }
func statusName(s Status) string { return C.GoString(C.gsel_status_name(C.gsel_status(s))) }

// text copies text of the library.
func text(s C.gsel_str) string {
	if s.data == nil {
		return ""
	}
	return unsafeString(s)
}

func unsafeString(s C.gsel_str) string {
	return string(unsafe.Slice((*byte)(unsafe.Pointer(s.data)), int(s.len)))
}

// lent is C memory for one call. Options hold pointers to names and lists, and what Go points C to may not point to Go
// memory, so options are made here as well.
type lent struct{ blocks []unsafe.Pointer }

func (l *lent) free() {
	for _, block := range l.blocks {
		C.free(block)
	}
}

func (l *lent) bytes(n uintptr) unsafe.Pointer {
	block := C.calloc(1, C.size_t(n)+1) // cgo's calloc ends the program rather than return NULL
	l.blocks = append(l.blocks, block)
	return block
}

// zeroed is a C struct of zeros; the caller sets struct_size.
func zeroed[T any](l *lent) *T {
	var t T
	return (*T)(l.bytes(unsafe.Sizeof(t)))
}

// list copies elements to C; nil for none.
func list[To, T any](l *lent, from []T) *To {
	if len(from) == 0 {
		return nil
	}
	to := l.bytes(uintptr(len(from)) * unsafe.Sizeof(from[0]))
	copy(unsafe.Slice((*T)(to), len(from)), from)
	return (*To)(to)
}

// text copies a string to C; "" is text that is given and empty.
func (l *lent) text(s string) C.gsel_str {
	to := l.bytes(uintptr(len(s)))
	copy(unsafe.Slice((*byte)(to), len(s)+1), s)
	return C.gsel_str{data: (*C.char)(to), len: C.size_t(len(s))}
}

// given is text, or "not given" for "".
func (l *lent) given(s string) C.gsel_str {
	if s == "" {
		return C.gsel_str{}
	}
	return l.text(s)
}

// Version is that of the loaded library, such as "0.1.0".
func Version() string { return C.GoString(C.gsel_version_text()) }

// VersionNumber is that of the loaded library as major * 10000 + minor * 100 + patch.
func VersionNumber() int { return int(C.gsel_version()) }

// Bytes is the size of one element; 0 for an unknown type.
func (d DType) Bytes() int { return int(C.gsel_dtype_bytes(C.gsel_dtype(d))) }

// String is the name in config files, such as "f32".
func (d DType) String() string { return C.GoString(C.gsel_dtype_name(C.gsel_dtype(d))) }

// String is the name in config files, such as "data".
func (a Axis) String() string { return C.GoString(C.gsel_axis_name(C.gsel_axis(a))) }

// AxisCount is the number of axes that the loaded library has.
func AxisCount() int { return int(C.gsel_axis_count()) }

// ShardRange is the range of shard index when n items are divided in parts: sizes differ by at most one, larger parts
// first. The range is empty for arguments out of range.
func ShardRange(n, parts, index int64) Range {
	r := C.gsel_shard_range(C.int64_t(n), C.int64_t(parts), C.int64_t(index))
	return Range{int64(r.begin), int64(r.end)}
}

// RandomUniform is a number in [0, 1) that depends only on key and counter (Philox 4x32-10).
func RandomUniform(key, counter uint64) float32 {
	return float32(C.gsel_random_uniform(C.uint64_t(key), C.uint64_t(counter)))
}

// RandomNormal is a number of mean 0 and deviation 1 that depends only on key and counter.
func RandomNormal(key, counter uint64) float32 {
	return float32(C.gsel_random_normal(C.uint64_t(key), C.uint64_t(counter)))
}

// NewUniqueID returns a fresh random id.
func NewUniqueID() (UniqueID, error) {
	var id UniqueID
	var err *C.gsel_error
	status := C.gsel_unique_id_create((*C.gsel_unique_id)(unsafe.Pointer(&id)), &err)
	return id, check(status, &err)
}

// ListenUniqueID returns an id by which ranks on several hosts meet: this process listens, and joins as rank 0 with it.
func ListenUniqueID() (UniqueID, error) {
	var id UniqueID
	var err *C.gsel_error
	status := C.gsel_unique_id_listen((*C.gsel_unique_id)(unsafe.Pointer(&id)), &err)
	return id, check(status, &err)
}
