package main

import (
	"bytes"
	"errors"
	"io"
	"os"
)

// allZero says whether the first size bytes of a file hold nothing but zeros.
// Holes of a sparse file are skipped, so an empty file of any size is quick.
func allZero(f *os.File, size uint64) (bool, error) {
	buf := make([]byte, 1<<20)
	zero := make([]byte, len(buf))
	for off := int64(0); uint64(off) < size; {
		data, err := f.Seek(off, 3) // SEEK_DATA, lseek(2)
		if err != nil && isNoData(err) {
			return true, nil
		}
		if err == nil {
			off = data
		}
		n, err := f.ReadAt(buf, off)
		if !bytes.Equal(buf[:n], zero[:n]) {
			return false, nil
		}
		if errors.Is(err, io.EOF) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		off += int64(n)
	}
	return true, nil
}
