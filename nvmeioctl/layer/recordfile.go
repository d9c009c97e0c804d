package layer

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// The file of a recording is JSON, one value a line: a head, one line an
// exchange, and a tail with the SHA-256 of all lines before it. So it can be read
// by eye, compared with diff, and sent by mail; and a file that was cut off or
// changed is noticed.
const (
	recordingFormat  = "nvop-recording"
	recordingVersion = 1
	// Limits on what a file may claim: it may come from anybody.
	recordingBytesMax    = 256 << 20
	recordingLineMax     = 96 << 20
	recordingExchangeMax = 200_000
	recordingBufferMax   = 64 << 20
)

// recordingHead is the first line.
type recordingHead struct {
	Format  string    `json:"format"`
	Version int       `json:"version"`
	Program string    `json:"program"`
	Address string    `json:"address"`
	Started time.Time `json:"started"`
	Masked  bool      `json:"serials_masked"`
}

// recordingTail is the last line.
type recordingTail struct {
	End       bool   `json:"end"`
	Exchanges int    `json:"exchanges"`
	SHA256    string `json:"sha256"`
}

// RecordingError says that a file is no recording that can be read.
type RecordingError struct {
	// Line is where, from 1 on; 0 for the file as a whole.
	Line   int
	Reason string
}

func (e *RecordingError) Error() string {
	if e.Line == 0 {
		return "not a recording that can be replayed: " + e.Reason
	}
	return fmt.Sprintf("not a recording that can be replayed: line %d: %s", e.Line, e.Reason)
}

// Write writes the recording to w.
func (rec *Recording) Write(w io.Writer) error {
	hash := sha256.New()
	out := bufio.NewWriter(w)
	line := func(v any, sum bool) error {
		b, err := json.Marshal(v)
		if err != nil {
			return err
		}
		b = append(b, '\n')
		if sum {
			hash.Write(b)
		}
		_, err = out.Write(b)
		return err
	}
	head := recordingHead{recordingFormat, recordingVersion, rec.Program, rec.Address, rec.Started, rec.Masked}
	if err := line(head, true); err != nil {
		return err
	}
	for i := range rec.Exchanges {
		if err := line(&rec.Exchanges[i], true); err != nil {
			return err
		}
	}
	if err := line(recordingTail{true, len(rec.Exchanges), hex.EncodeToString(hash.Sum(nil))}, false); err != nil {
		return err
	}
	return out.Flush()
}

// ReadRecording reads what [Recording.Write] wrote. Anything else is a
// *RecordingError, or an error of r.
func ReadRecording(r io.Reader) (*Recording, error) {
	sc := bufio.NewScanner(io.LimitReader(r, recordingBytesMax+1))
	sc.Buffer(make([]byte, 0, 64<<10), recordingLineMax)
	hash, rec, total := sha256.New(), &Recording{}, 0
	bad := func(n int, format string, args ...any) (*Recording, error) {
		return nil, &RecordingError{Line: n, Reason: fmt.Sprintf(format, args...)}
	}
	for n := 1; sc.Scan(); n++ {
		b := sc.Bytes()
		if total += len(b) + 1; total > recordingBytesMax {
			return bad(0, "it has more than %d bytes", recordingBytesMax)
		}
		if n == 1 {
			if err := rec.readHead(b); err != nil {
				return nil, err
			}
		} else if tail, ok := readTail(b); ok {
			switch {
			case sc.Scan():
				return bad(n+1, "something follows its end")
			case tail.Exchanges != len(rec.Exchanges) || tail.SHA256 != hex.EncodeToString(hash.Sum(nil)):
				return bad(n, "the checksum does not match: the file was changed")
			}
			return rec, nil
		} else if err := rec.readExchange(b); err != nil {
			return bad(n, "%v", err)
		}
		hash.Write(b)
		hash.Write([]byte{'\n'})
	}
	switch err := sc.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return bad(0, "a line has more than %d bytes", recordingLineMax)
	case err != nil:
		return nil, err
	case total == 0:
		return bad(0, "the file is empty")
	}
	return bad(0, "it is cut off: the last line is not there")
}

func (rec *Recording) readHead(b []byte) error {
	var h recordingHead
	if err := strictJSON(b, &h); err != nil || h.Format != recordingFormat {
		// A newer version may have more in its head; say that rather.
		var loose recordingHead
		if json.Unmarshal(b, &loose) == nil && loose.Format == recordingFormat && loose.Version > recordingVersion {
			h = loose
		} else {
			return &RecordingError{Line: 1, Reason: "it does not begin as one"}
		}
	}
	if h.Version != recordingVersion {
		return &RecordingError{Line: 1, Reason: fmt.Sprintf("it has version %d, this program knows version %d", h.Version, recordingVersion)}
	}
	rec.Program, rec.Address, rec.Started, rec.Masked = h.Program, h.Address, h.Started, h.Masked
	return nil
}

func readTail(b []byte) (recordingTail, bool) {
	var t recordingTail
	if !bytes.HasPrefix(b, []byte(`{"end":`)) || strictJSON(b, &t) != nil {
		return t, false
	}
	return t, t.End
}

func (rec *Recording) readExchange(b []byte) error {
	var e Exchange
	if err := strictJSON(b, &e); err != nil {
		return err
	}
	switch {
	case e.Length < 0 || e.Length > recordingBufferMax:
		return fmt.Errorf("a buffer of %d bytes", e.Length)
	case len(e.Data) > e.Length:
		return fmt.Errorf("%d bytes of data in a buffer of %d", len(e.Data), e.Length)
	case len(rec.Exchanges) >= recordingExchangeMax:
		return fmt.Errorf("more than %d commands", recordingExchangeMax)
	}
	rec.Exchanges = append(rec.Exchanges, e)
	return nil
}

// strictJSON reads exactly one value with no unknown fields.
func strictJSON(b []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the value")
	}
	return nil
}
