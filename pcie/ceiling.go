package pcie

import (
	"fmt"
	"math"
)

// Bytes that a packet or an NVMe command costs on the link, for the model.
// Sources: PCIe Base 2.2 and 4.2; Intel AN-829 (overhead of 5 to 7 double
// words, DLLPs of 2); measured drives in the package's tests.
const (
	framingBytes = 8  // STP and LCRC, or the older framing: 4 + 4 either way
	header3DW    = 12 // completions, 32-bit addresses
	header4DW    = 16 // 64-bit addresses
	ecrcBytes    = 4
	dllpBytes    = 8 // an Ack, or a flow control update

	commandBytes    = 64 // submission queue entry
	completionEntry = 16 // completion queue entry
	interruptBytes  = 4  // MSI-X message
	doorbellBytes   = 4
	blockBytes      = 4096
	streamBytes     = 128 << 10 // one command of a sequential stream
	prpListBytes    = 31 * 8    // its list: 32 pages, the first in the command

	skipBlocks  = 371  // one in so many blocks is a skip ordered set, 8 GT/s up
	skipSymbols = 1538 // 4 in so many symbols, below
)

// CeilingError is the model's uncertainty as a fraction: how acknowledgements
// are joined and interrupts moderated is each device's own affair.
const CeilingError = 0.02

// Round trip of a read through a root complex, in seconds: the range seen on
// servers, and what the tag rule reckons with.
const (
	roundTripLow  = 0.6e-6
	roundTripHigh = 1.5e-6
	roundTrip     = 1.0e-6
)

// CeilingInput is what a link's ceiling depends on.
type CeilingInput struct {
	Speed Speed `json:"speed_gt_per_second"`
	Width Width `json:"width"`
	// MaxPayload is the payload size in force on the path, in bytes.
	MaxPayload Payload `json:"max_payload_bytes"`
	// MaxReadRequest is the device's, in bytes.
	MaxReadRequest Payload `json:"max_read_request_bytes"`
	// CompletionBytes is what the root complex answers reads with, if that is
	// less than the payload allows (some answer in 64 bytes); 0 for no less.
	CompletionBytes int `json:"completion_bytes,omitempty"`
	// Flit: the link runs in Flit Mode; always so at 64 GT/s.
	Flit bool `json:"flit_mode"`
	ECRC bool `json:"ecrc"`
	// Tags is how many reads can be outstanding; 0 leaves the limit out.
	Tags int `json:"tags,omitempty"`
}

// Ceiling is what a link can carry at most, in bytes of data per second. Read
// and write are the drive's: reading it sends data up the link.
type Ceiling struct {
	CeilingInput
	// Raw is the link's rate after encoding and skip ordered sets.
	Raw float64 `json:"raw_bytes_per_second"`
	// ReadHard and WriteHard count the data packets alone: nothing can be faster.
	ReadHard  float64 `json:"read_hard_bytes_per_second"`
	WriteHard float64 `json:"write_hard_bytes_per_second"`
	// Read and Write add what NVMe and the data link layer need, for 128 KiB
	// commands. The true ceiling is within ErrorFraction of them.
	Read  float64 `json:"read_bytes_per_second"`
	Write float64 `json:"write_bytes_per_second"`
	// Read4K is reads of 4096 bytes per second; Read4KHard counts data, fetched
	// commands and completions alone.
	Read4K     float64 `json:"read_4k_per_second"`
	Read4KHard float64 `json:"read_4k_hard_per_second"`
	// WriteByTagsLow and High bound writing by how many reads can be
	// outstanding, for round trips of 1.5 and 0.6 us; 0 where Tags is 0.
	WriteByTagsLow  float64 `json:"write_by_tags_low_bytes_per_second,omitempty"`
	WriteByTagsHigh float64 `json:"write_by_tags_high_bytes_per_second,omitempty"`
	ErrorFraction   float64 `json:"error_fraction"`
}

// RawRate is a link's rate in bytes per second after encoding; 0 for no data.
func RawRate(s Speed, w Width) float64 {
	if !s.Known() || !w.Known() {
		return 0
	}
	rate := s.GTPerSecond() * 1e9 * float64(w) / 8
	switch {
	case s <= Gen2:
		return rate * 0.8 * (1 - 4.0/skipSymbols)
	case s == Gen6:
		// Of a flit's 256 bytes 236 are packets.
		return rate * 236 / 256 * (1 - 1.0/skipBlocks)
	}
	return rate * 128 / 130 * (1 - 1.0/skipBlocks)
}

// costs are the bytes of packets by kind.
type costs struct {
	down, up float64 // a packet with a 3DW header, with a 4DW header, without data
	dllp     float64
}

func (in CeilingInput) costs() costs {
	c := costs{down: header3DW, up: header4DW, dllp: dllpBytes}
	if in.Flit || in.Speed == Gen6 {
		c.dllp = 0 // flits have room of their own for it
		return c
	}
	c.down, c.up = c.down+framingBytes, c.up+framingBytes
	if in.ECRC {
		c.down, c.up = c.down+ecrcBytes, c.up+ecrcBytes
	}
	return c
}

// completion is the size of the packets that bring the data of a write.
func (in CeilingInput) completion() float64 {
	c := float64(min(in.MaxPayload, in.MaxReadRequest))
	if in.CompletionBytes > 0 {
		c = min(c, float64(in.CompletionBytes))
	}
	return c
}

// Ceiling computes the model.
func (in CeilingInput) Ceiling() (Ceiling, error) {
	switch {
	case !in.Speed.Known() || !in.Width.Known():
		return Ceiling{}, fmt.Errorf("no ceiling for a link of %s %s", in.Speed, in.Width)
	case !in.MaxPayload.Valid() || !in.MaxReadRequest.Valid():
		return Ceiling{}, fmt.Errorf("no ceiling for payloads of %d and read requests of %d bytes: not a power of two from 128 to 4096", in.MaxPayload, in.MaxReadRequest)
	case in.CompletionBytes < 0 || in.CompletionBytes > 0 && in.CompletionBytes < 64:
		return Ceiling{}, fmt.Errorf("no ceiling for completions of %d bytes", in.CompletionBytes)
	}
	c := Ceiling{CeilingInput: in, Raw: RawRate(in.Speed, in.Width), ErrorFraction: CeilingError}
	cost, payload, chunk := in.costs(), float64(in.MaxPayload), in.completion()
	c.ReadHard = c.Raw * payload / (payload + cost.up)
	c.WriteHard = c.Raw * chunk / (chunk + cost.down)
	c.Read = c.Raw * streamBytes / in.upBytes(streamBytes, prpListBytes)
	c.Write = c.Raw * streamBytes / in.downBytes()
	c.Read4K = c.Raw / in.upBytes(blockBytes, 0)
	c.Read4KHard = c.Raw / (blockBytes/payload*(payload+cost.up) + cost.up + completionEntry + cost.up)
	if in.Tags > 0 {
		outstanding := float64(in.Tags) * float64(in.MaxReadRequest)
		c.WriteByTagsLow, c.WriteByTagsHigh = outstanding/roundTripHigh, outstanding/roundTripLow
	}
	return c, nil
}

// upBytes is what one reading command of n bytes sends from the drive to the
// host: the data, the fetch of the command and of its list, the completion
// entry, the interrupt, and an acknowledgement and a flow control update for
// each packet that came down meanwhile.
func (in CeilingInput) upBytes(n, list float64) float64 {
	c, payload := in.costs(), float64(in.MaxPayload)
	bytes := n + math.Ceil(n/payload)*c.up
	bytes += c.up                   // fetch of the command
	bytes += completionEntry + c.up // completion entry
	bytes += interruptBytes + c.down
	down := 3.0 // the command, two doorbells
	if list > 0 {
		bytes += c.up
		down += math.Ceil(list / in.completion())
	}
	return bytes + down*2*c.dllp
}

// downBytes is what one writing command of a stream sends from the host to the
// drive.
func (in CeilingInput) downBytes() float64 {
	c, chunk := in.costs(), in.completion()
	bytes := streamBytes + streamBytes/chunk*c.down
	bytes += commandBytes + c.down
	bytes += prpListBytes + math.Ceil(prpListBytes/chunk)*c.down
	bytes += 2 * (doorbellBytes + c.up)
	up := streamBytes/float64(in.MaxReadRequest) + 4 // reads; both fetches, completion entry, interrupt
	return bytes + up*2*c.dllp
}

// Workload says what a measured figure is of.
type Workload string

// The workloads the model knows.
const (
	SequentialRead  Workload = "sequential read"
	SequentialWrite Workload = "sequential write"
	RandomRead4K    Workload = "4K random read"
)

// Reading is what a measured figure says about one payload size.
type Reading struct {
	MaxPayload Payload `json:"max_payload_bytes"`
	// Ceiling and Hard are in the measured figure's unit: bytes or commands per
	// second.
	Ceiling float64 `json:"ceiling"`
	Hard    float64 `json:"hard_ceiling"`
	// Fraction is measured over Ceiling.
	Fraction float64 `json:"fraction"`
	// Excluded: the figure is above what packets of this size can carry at all,
	// so a larger size was in force.
	Excluded bool `json:"excluded"`
}

// Explain compares a measured figure (bytes per second, or reads per second for
// [RandomRead4K]) with every payload size up to 4096, and says the smallest that
// the figure allows; 0 when it is impossible on this link altogether.
func Explain(w Workload, measured float64, in CeilingInput) ([]Reading, Payload, error) {
	var list []Reading
	least := Payload(0)
	for p := Payload(128); p.Valid(); p *= 2 {
		in.MaxPayload = p
		c, err := in.Ceiling()
		if err != nil {
			return nil, 0, err
		}
		r := Reading{MaxPayload: p}
		switch w {
		case SequentialRead:
			r.Ceiling, r.Hard = c.Read, c.ReadHard
		case SequentialWrite:
			r.Ceiling, r.Hard = c.Write, c.WriteHard
		case RandomRead4K:
			r.Ceiling, r.Hard = c.Read4K, c.Read4KHard
		default:
			return nil, 0, fmt.Errorf("no model for %q", w)
		}
		r.Fraction, r.Excluded = measured/r.Ceiling, measured > r.Hard
		if !r.Excluded && least == 0 {
			least = p
		}
		list = append(list, r)
	}
	return list, least, nil
}

// CeilingInput is what the path's ceiling depends on, and the hop whose link is
// the narrowest. ok is false where link or payload sizes are not known.
func (p Path) CeilingInput() (in CeilingInput, narrowest *Function, ok bool) {
	s, ok := p.Payloads()
	if !ok {
		return in, nil, false
	}
	x := p.Endpoint().Express
	in = CeilingInput{MaxPayload: s.InForce, MaxReadRequest: x.MaxReadRequest, Tags: x.Tags()}
	for _, l := range p.Links() {
		if rate := RawRate(l.Speed, l.Width); rate > 0 && (narrowest == nil || rate < RawRate(in.Speed, in.Width)) {
			in.Speed, in.Width, narrowest = l.Speed, l.Width, l.Lower
		}
	}
	if narrowest == nil || !in.MaxPayload.Valid() || !in.MaxReadRequest.Valid() {
		return in, narrowest, false
	}
	in.Flit = narrowest.Express.Flit()
	in.ECRC = p.Endpoint().AER != nil && p.Endpoint().AER.ECRC
	return in, narrowest, true
}
