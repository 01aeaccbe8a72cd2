package gsel

import (
	"errors"
	"fmt"
)

// status.go: errors. Every failed call returns an *Error with all that the library says about it; errors.Is compares
// with the statuses below, errors.As gets the Error. This file needs no cgo.

// Status is the code of an error. Each code is an error value of its own, for errors.Is.
type Status int32

// Codes of gsel/error.h.
const (
	OK                    Status = 0
	ErrArg                Status = -1   // invalid argument
	ErrNoMem              Status = -2   // out of memory
	ErrInternal           Status = -3   // internal error
	ErrUnsupported        Status = -4   // not supported
	ErrVersion            Status = -5   // version not accepted
	ErrIO                 Status = -6   // file or system call failed
	ErrParse              Status = -7   // text could not be parsed
	ErrConfig             Status = -8   // configuration not accepted
	ErrNotFound           Status = -9   // not found
	ErrPlugin             Status = -10  // plugin refused
	ErrPeer               Status = -11  // a peer rank died or left
	ErrTimeout            Status = -12  // timed out
	ErrMismatch           Status = -13  // ranks made different calls
	ErrAborted            Status = -14  // aborted
	ErrForked             Status = -15  // handle used after fork
	ErrCallback           Status = -16  // a callback failed
	ErrModel              Status = -17  // model description not accepted
	ErrProgram            Status = -18  // program not accepted
	ErrState              Status = -19  // call out of order
	ErrDevice             Status = -20  // a device failed
	ErrSyntax             Status = -101 // selection: syntax
	ErrType               Status = -102 // selection: wrong type
	ErrOutOfRange         Status = -103 // selection: out of range
	ErrDuplicate          Status = -104 // selection: duplicate
	ErrUnknownDevice      Status = -105 // selection: unknown device
	ErrAmbiguous          Status = -106 // selection: ambiguous
	ErrUnknownHost        Status = -107 // selection: unknown host
	ErrConflict           Status = -108 // selection: conflict
	ErrNoDevices          Status = -109 // selection: no devices
	ErrBusy               Status = -110 // selection: busy
	ErrAlreadyInitialized Status = -111 // selection: driver already initialized
	ErrPermission         Status = -112 // permission denied
	ErrRankOverflow       Status = -113 // selection: more ranks than devices
)

// Error is the library's text for the code.
func (s Status) Error() string { return statusText(s) }

// String is the code's name in C, such as "GSEL_ERR_PEER".
func (s Status) String() string { return statusName(s) }

// ErrNoCgo is the error of every call in a program that was built with CGO_ENABLED=0.
var ErrNoCgo = errors.New("gsel: built without cgo; set CGO_ENABLED=1")

// ErrClosed is the error of a call on an object that was closed.
var ErrClosed = errors.New("gsel: closed")

// ErrNoSamples is what a data callback returns, and Work.Fail takes for WorkInput, when this rank has no samples left. The
// micro-batch then has weight 0. It is no failure there; of any other callback it is an error like the others.
var ErrNoSamples = errors.New("gsel: no samples left")

// Error is a failed call, copied from the library's error object.
//
// Code is for errors.Is(err, gsel.ErrTimeout). Rank is the rank that the error is about, or -1. File, Line, Column and
// Token are the place in the input, if there is one; Line and Column count from 1 and are 0 when unknown. Cause is the
// error beneath: one of the library, the error or *PanicError of a callback of this rank, or that of a context.
type Error struct {
	Code    Status
	Message string
	Rank    int
	File    string
	Line    int
	Column  int
	Token   string
	Cause   error
}

// Error is the message, with those of the library's errors beneath.
func (e *Error) Error() string {
	text := "gsel: " + e.Message
	for cause := e.Cause; cause != nil; {
		beneath, ours := cause.(*Error)
		if !ours {
			break // its words are in the message already
		}
		text += ": " + beneath.Message
		cause = beneath.Cause
	}
	return text
}

// Unwrap returns Cause.
func (e *Error) Unwrap() error { return e.Cause }

// Is tells whether target is the error's Status.
func (e *Error) Is(target error) bool {
	status, ok := target.(Status)
	return ok && status == e.Code
}

// PanicError is a panic of a callback, carried to the call that ran the callback.
type PanicError struct {
	Value any    // what was given to panic
	Stack []byte // of the goroutine that panicked
}

// Error says what was given to panic.
func (e *PanicError) Error() string { return fmt.Sprintf("panic in a callback: %v", e.Value) }

// Unwrap returns the value given to panic if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// beneath puts cause at the end of err's chain.
func beneath(err error, cause error) error {
	e, ok := err.(*Error)
	if !ok || cause == nil {
		return err
	}
	for {
		next, ok := e.Cause.(*Error)
		if !ok {
			break
		}
		e = next
	}
	if e.Cause == nil {
		e.Cause = cause
	}
	return err
}

// failed makes an error of the binding's own.
func failed(code Status, format string, args ...any) error {
	return &Error{Code: code, Rank: -1, Message: fmt.Sprintf(format, args...)}
}
