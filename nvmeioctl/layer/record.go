package layer

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// Recorder is a device whose conversation is kept. Make one with [Record].
type Recorder struct {
	dev   nvmeioctl.Device
	clock nvmeioctl.Clock
	mu    sync.Mutex
	rec   Recording
}

// Record keeps every command that passes and its answer in memory, until
// [Recorder.Recording] is asked for it. What a command reads is kept; what it
// writes, and the data of I/O commands in both directions, is not: a recording is
// about the drive, not about what its owner stores on it.
func Record(dev nvmeioctl.Device, clock nvmeioctl.Clock) *Recorder {
	return &Recorder{dev: dev, clock: clock, rec: Recording{Address: dev.String(), Started: clock.Wall().UTC().Truncate(time.Second)}}
}

// Submit implements nvmeioctl.Device.
func (r *Recorder) Submit(ctx context.Context, cmd *nvmeioctl.Command) (nvmeioctl.Completion, error) {
	start := r.clock.Now()
	c, err := r.dev.Submit(ctx, cmd)
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return c, err // it was not sent
	}
	e := Exchange{
		IO: cmd.IO, Opcode: cmd.Opcode, NSID: cmd.NSID, CDW2: cmd.CDW2, CDW3: cmd.CDW3,
		CDW10: cmd.CDW10, CDW11: cmd.CDW11, CDW12: cmd.CDW12, CDW13: cmd.CDW13, CDW14: cmd.CDW14, CDW15: cmd.CDW15,
		Length: len(cmd.Data), Status: uint16(c.Status), Result: c.Result, TookNS: int64(r.clock.Now().Sub(start)),
	}
	if !cmd.IO && cmd.ReadsFromDevice() && err == nil {
		e.Data = trimZeros(bytes.Clone(cmd.Data))
	}
	if err != nil {
		e.Error = err.Error()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rec.Exchanges = append(r.rec.Exchanges, e)
	return c, err
}

// trimZeros cuts zeros off the end: most pages of a drive end in thousands.
func trimZeros(b []byte) []byte {
	return b[:len(bytes.TrimRight(b, "\x00"))]
}

// Recording gives what has been recorded so far.
func (r *Recorder) Recording() *Recording {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec := r.rec
	rec.Exchanges = slices.Clone(r.rec.Exchanges)
	return &rec
}

func (r *Recorder) String() string { return r.dev.String() }

// Close implements nvmeioctl.Device.
func (r *Recorder) Close() error { return r.dev.Close() }

// Unwrap implements nvmeioctl.Wrapper.
func (r *Recorder) Unwrap() nvmeioctl.Device { return r.dev }

// Exchange is one command and its answer.
type Exchange struct {
	IO     bool   `json:"io,omitempty"`
	Opcode uint8  `json:"opcode"`
	NSID   uint32 `json:"nsid,omitempty"`
	CDW2   uint32 `json:"cdw2,omitempty"`
	CDW3   uint32 `json:"cdw3,omitempty"`
	CDW10  uint32 `json:"cdw10,omitempty"`
	CDW11  uint32 `json:"cdw11,omitempty"`
	CDW12  uint32 `json:"cdw12,omitempty"`
	CDW13  uint32 `json:"cdw13,omitempty"`
	CDW14  uint32 `json:"cdw14,omitempty"`
	CDW15  uint32 `json:"cdw15,omitempty"`
	// Length is how long the buffer was, in bytes; Data is what was read into it,
	// without zeros at the end.
	Length int    `json:"length,omitempty"`
	Data   []byte `json:"data,omitempty"`
	// Status and Result are the completion; Error says that no answer came.
	Status uint16 `json:"status"`
	Result uint64 `json:"result,omitempty"`
	Error  string `json:"error,omitempty"`
	// TookNS is how long it took on the recorder's clock, in nanoseconds.
	TookNS int64 `json:"took_ns,omitempty"`
}

// Recording is a recorded conversation with a drive.
type Recording struct {
	// Address is how the user named the drive, Started when it began, UTC.
	Address string
	Started time.Time
	// Program says which program recorded it.
	Program string
	// Masked says that serial numbers and identifiers are not the drive's own.
	Masked    bool
	Exchanges []Exchange
}

// secretMin is the shortest serial number that is looked for outside the fields
// that are known to hold it: a shorter one would be found where it is not.
const secretMin = 6

// secret is a run of bytes to hide and what stands in its place, as long.
type secret struct{ find, put []byte }

// Mask replaces what identifies this one drive, its host and its namespaces, by
// other text of the same length and kind, the same wherever it appears: serial
// number, subsystem name, FRU and namespace identifiers, host identifiers. The
// bytes are looked for in every page, logs of the vendor's included.
func (rec *Recording) Mask() {
	m := &masker{known: map[string][]byte{}}
	for i := range rec.Exchanges {
		m.collect(&rec.Exchanges[i])
	}
	slices.SortStableFunc(m.secrets, func(a, b secret) int { return len(b.find) - len(a.find) })
	for i := range rec.Exchanges {
		m.apply(&rec.Exchanges[i])
	}
	if m.serial != nil {
		rec.Address = string(bytes.ReplaceAll([]byte(rec.Address), m.serial, m.known[string(m.serial)]))
	}
	for _, s := range m.secrets {
		rec.Address = string(bytes.ReplaceAll([]byte(rec.Address), s.find, s.put))
	}
	rec.Masked = true
}

// masker finds what to hide and hides it.
type masker struct {
	known   map[string][]byte
	secrets []secret
	serial  []byte
}

// Fields that identify, by structure: offset, length. Identify Controller, Identify
// Namespace, the header of the persistent event log.
const (
	atCtrlSerial   = 4
	atCtrlFGUID    = 112
	atCtrlSubNQN   = 768
	atNSNGUID      = 104
	atNSEUI64      = 120
	atEventsSerial = 56
	atEventsNQN    = 116
	serialBytes    = 20
	nqnBytes       = 256
)

// field is a part of a page that identifies.
type field struct {
	off, n int
	text   bool
}

// fields are those of the page that an exchange read.
func (e *Exchange) fields() []field {
	if e.IO || len(e.Data) == 0 {
		return nil
	}
	switch e.Opcode {
	case nvmespec.AdminIdentify:
		switch nvmespec.CNS(e.CDW10) {
		case nvmespec.CNSController:
			return []field{{atCtrlSerial, serialBytes, true}, {atCtrlFGUID, 16, false}, {atCtrlSubNQN, nqnBytes, true}}
		case nvmespec.CNSNamespace, nvmespec.CNSAllocatedNamespace:
			return []field{{atNSNGUID, 16, false}, {atNSEUI64, 8, false}}
		case nvmespec.CNSDescriptors:
			return descriptorFields(e.Data)
		}
	case nvmespec.AdminGetLogPage:
		f := e.logFields()
		if f.Log == nvmespec.LogIDPersistentEvents && f.OffsetBytes == 0 {
			return []field{{atEventsSerial, serialBytes, true}, {atEventsNQN, nqnBytes, true}}
		}
	case nvmespec.AdminGetFeatures:
		if nvmespec.FeatureID(e.CDW10) == nvmespec.FeatureHostID {
			return []field{{0, 16, false}}
		}
	}
	return nil
}

// logFields are the fields of a Get Log Page.
func (e *Exchange) logFields() nvmespec.GetLogFields {
	return nvmespec.DecodeGetLogFields(nvmespec.GetLogDwords{CDW10: e.CDW10, CDW11: e.CDW11, CDW12: e.CDW12, CDW13: e.CDW13, CDW14: e.CDW14})
}

// descriptorFields are the identifiers in a list of namespace descriptors.
func descriptorFields(b []byte) []field {
	var list []field
	for off := 0; off+4 < len(b); {
		typ, n := b[off], int(b[off+1])
		if typ == 0 || n == 0 {
			break
		}
		if typ <= 3 { // EUI-64, NGUID, UUID
			list = append(list, field{off + 4, n, false})
		}
		off += 4 + n
	}
	return list
}

// content is the field's bytes without padding; nothing where it is absent. Data
// is cut behind its last byte that is not zero, so a field may be there in part.
func (f field) content(b []byte) []byte {
	if f.off >= len(b) {
		return nil
	}
	c := b[f.off:min(f.off+f.n, len(b))]
	if f.text {
		if i := bytes.IndexByte(c, 0); i >= 0 {
			c = c[:i]
		}
		return bytes.TrimRight(c, " ")
	}
	if len(bytes.Trim(c, "\x00")) == 0 {
		return nil
	}
	full := make([]byte, f.n)
	copy(full, c)
	return full
}

// collect notes what an exchange says that identifies.
func (m *masker) collect(e *Exchange) {
	for _, f := range e.fields() {
		c := bytes.Clone(f.content(e.Data))
		if len(c) == 0 || m.known[string(c)] != nil {
			continue
		}
		put := maskBytes(c, len(m.known)+1)
		if f.text {
			put = maskText(c)
		}
		m.known[string(c)] = put
		if f.text && f.n == serialBytes {
			m.serial = c
		}
		if len(c) >= secretMin {
			m.secrets = append(m.secrets, secret{c, put})
		}
	}
}

// maskText keeps a name's kind and length: the prefix of an NVMe qualified name
// and its punctuation stay, letters and digits become zeros.
func maskText(c []byte) []byte {
	put := bytes.Clone(c)
	start := 0
	if bytes.HasPrefix(c, []byte("nqn.")) {
		start = bytes.IndexByte(c, ':') + 1
		if bytes.HasPrefix(c[start:], []byte("uuid:")) {
			start += len("uuid:")
		}
	}
	for i := start; i < len(put); i++ {
		if b := put[i]; b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' {
			put[i] = '0'
		}
	}
	if start == 0 {
		copy(put, "MASKED"[:min(len(put), 6)])
	}
	return put
}

// maskBytes makes an identifier that is not zero and unlike the others.
func maskBytes(c []byte, number int) []byte {
	put := bytes.Repeat([]byte{0xFE}, len(c))
	put[len(put)-1] = byte(number)
	if len(put) > 1 {
		put[len(put)-2] = byte(number >> 8)
	}
	return put
}

// apply hides in one exchange what was collected.
func (m *masker) apply(e *Exchange) {
	for _, f := range e.fields() {
		c := f.content(e.Data)
		put := m.known[string(c)]
		if len(c) == 0 || put == nil {
			continue
		}
		for len(e.Data) < f.off+len(put) {
			e.Data = append(e.Data, 0)
		}
		copy(e.Data[f.off:], put)
	}
	for _, s := range m.secrets {
		e.Data = bytes.ReplaceAll(e.Data, s.find, s.put)
		e.Error = string(bytes.ReplaceAll([]byte(e.Error), s.find, s.put))
	}
}
