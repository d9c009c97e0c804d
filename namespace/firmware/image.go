package firmware

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// ImageBytesMax bounds an image: the largest known are some 20 MB.
const ImageBytesMax = 1 << 30

// Image is an image file: what it is, not its bytes. The bytes are read again
// when they are sent, and must still have the sum.
type Image struct {
	// Path is absolute, so that another process finds it.
	Path      string `json:"path"`
	SizeBytes int64  `json:"size_bytes"`
	// SHA256 is 64 hexadecimal digits.
	SHA256 string `json:"sha256"`
}

// LoadImage looks at an image file. An empty one, one larger than ImageBytesMax
// and one that is not a whole number of dwords are refused.
func LoadImage(path string) (Image, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return Image{}, fmt.Errorf("firmware image: %w", err)
	}
	b, err := readImage(abs)
	if err != nil {
		return Image{}, err
	}
	sum := sha256.Sum256(b)
	return Image{Path: abs, SizeBytes: int64(len(b)), SHA256: hex.EncodeToString(sum[:])}, nil
}

// readImage reads an image file with its sanity checks.
func readImage(path string) ([]byte, error) {
	const check = "firmware image"
	// Opening a named pipe would wait for a writer.
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, refused(check, path, "", "not a regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("firmware image: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("firmware image: %w", err)
	}
	switch size := info.Size(); {
	case !info.Mode().IsRegular():
		return nil, refused(check, path, "", "not a regular file")
	case size == 0:
		return nil, refused(check, path, "", "the file is empty")
	case size > ImageBytesMax:
		return nil, refused(check, path, "", "%d bytes are more than any image has (%d)", size, int64(ImageBytesMax))
	case size%4 != 0:
		return nil, refused(check, path, "fetch the image again: it may be cut off", "%d bytes are not a whole number of dwords (4 bytes)", size)
	}
	b, err := io.ReadAll(io.LimitReader(f, ImageBytesMax+1))
	if err != nil {
		return nil, fmt.Errorf("firmware image: %w", err)
	}
	if int64(len(b)) != info.Size() {
		return nil, refused(check, path, "", "the file changed while it was read")
	}
	return b, nil
}
