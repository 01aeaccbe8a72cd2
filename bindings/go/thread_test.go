package gsel

import "syscall"

// threadID is the number of the thread that runs this goroutine now.
func threadID() int { return syscall.Gettid() }
