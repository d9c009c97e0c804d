package journal

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// link is one place in a hash chain: the sha256 of the record before and of
// this record with it.
type link [sha256.Size]byte

// nextLink hashes a record onto the chain. The fields are bound by length, so
// that no text can be moved from one to its neighbour; an integer is eight
// bytes, big-endian. nil (SQL NULL) differs from empty.
func nextLink(prev link, fields ...any) link {
	h := sha256.New()
	h.Write(prev[:])
	var n [9]byte
	for _, f := range fields {
		var tag byte
		var b []byte
		switch v := f.(type) {
		case nil:
			tag = 'n'
		case int64:
			tag, b = 'i', binary.BigEndian.AppendUint64(nil, uint64(v))
		case int:
			tag, b = 'i', binary.BigEndian.AppendUint64(nil, uint64(int64(v)))
		case string:
			tag, b = 's', []byte(v)
		case []byte:
			tag, b = 'b', v
		default:
			// A programmer's mistake: no data of a drive reaches this.
			panic(fmt.Sprintf("journal: cannot hash a %T", f))
		}
		n[0] = tag
		binary.BigEndian.PutUint64(n[1:], uint64(len(b)))
		h.Write(n[:])
		h.Write(b)
	}
	var l link
	h.Sum(l[:0])
	return l
}

// scanLink reads a stored link; one of another length is damage.
func scanLink(b []byte) (link, error) {
	if len(b) != sha256.Size {
		return link{}, fmt.Errorf("a hash of %d bytes instead of %d", len(b), sha256.Size)
	}
	return link(b), nil
}
