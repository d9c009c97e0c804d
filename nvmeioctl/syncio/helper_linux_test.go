package syncio_test

import (
	"runtime"
	"strings"
	"unsafe"
)

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// calledByWorker says whether the queue's own goroutine asks.
func calledByWorker() bool {
	var pcs [16]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		f, more := frames.Next()
		if strings.HasSuffix(f.Function, ".(*Queue).work") {
			return true
		}
		if !more {
			return false
		}
	}
}
