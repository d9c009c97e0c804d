package ftl

import (
	"errors"
	"math"
	"time"
)

// Rates are what a drive's speed is made from. All rates are per second.
type Rates struct {
	// ReadLatency and WriteLatency are those of one 4 KiB command on an idle drive.
	ReadLatency, WriteLatency time.Duration
	// RandomReadIOPS is the rate of random 4 KiB reads.
	RandomReadIOPS float64
	// Bytes per second of sequential streams.
	SequentialReadBytes, SequentialWriteBytes float64
	// ProgramNS is the time in ns that the drive is busy for each page it
	// programs for random writes, the host's and those collection moves: the a
	// of t = a*W + b*(W-1).
	ProgramNS float64
	// BurstBytes is how many bytes a second an SLC cache takes; 0 without one.
	BurstBytes float64
	// MoveReadNS is the further time for each page that is moved: the b.
	MoveReadNS float64
}

// CalibrateProgram gives a and b, in ns, such that a drive of the given write
// amplification does iops random writes of one page each, with b = ratio * a.
// Sequential bandwidth would not do for a: on some drives random writes use
// only half of it.
func CalibrateProgram(iops, waf, ratio float64) (programNS, moveReadNS float64) {
	a := 1e9 / iops / (waf + ratio*(waf-1))
	return a, ratio * a
}

// Validate says whether the rates make sense.
func (r Rates) Validate() error {
	for _, v := range []float64{r.RandomReadIOPS, r.SequentialReadBytes, r.SequentialWriteBytes, r.ProgramNS} {
		if !(v > 0) || v > 1e15 {
			return errors.New("rates of a drive: every rate must be positive")
		}
	}
	if !(r.BurstBytes >= 0) || r.BurstBytes > 1e15 {
		return errors.New("rates of a drive: the burst rate is negative")
	}
	if !(r.MoveReadNS >= 0) || r.MoveReadNS > 1e9 || r.ReadLatency < 0 || r.WriteLatency < 0 {
		return errors.New("rates of a drive: a latency is negative")
	}
	return nil
}

// Fixed-point units: a tick is 2^-16 ns, so that a rate of 2828 thousand reads
// a second is exact to 2^-24; per-byte costs have 8 more bits.
const (
	tick     = 1 << 16
	byteBits = 8
	pageSize = 4096
)

// newClockNS is a backlog that no queue can have; a command that would have to
// wait for longer comes with a clock that started anew.
const newClockNS = int64(30 * time.Second)

// Server is a drive as one server that all commands share: each occupies it for
// some time, in order of arrival, and has a latency of its own that others do
// not wait for. From that follow saturation (Little's law), the harmonic law of
// mixes, and latency without load.
//
// Times are ns on the caller's clock; they go in and come out. Of commands of
// one kind, a later one never completes before an earlier one, unless the clock
// went back by more than half a minute: that is a new clock, see [Server.Reset]. The zero value
// is not usable; see [NewServer].
type Server struct {
	readBase, writeBase         int64
	readTicks                   uint64 // of one random command
	seqReadTicks, seqWriteTicks uint64 // per byte, times 2^byteBits
	programTicks, moveReadTicks uint64 // per page
	burstTicks                  uint64 // per byte, times 2^byteBits; 0 for no SLC cache
	freeNS                      int64  // when the last command stops occupying the server
	freeTicks                   uint64 // and the part of a ns
	pay                         uint64 // moved pages per host page, times debtUnit
	hostTicks                   uint64 // of a page of a random write, with what it moves
	movedTicks                  uint64 // of what a page moves
	slowNum, slowDen            uint64 // what ticks are multiplied by; see SetPower
}

// NewServer returns an idle server at time 0.
func NewServer(r Rates) (*Server, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	round := func(ns float64) uint64 { return uint64(math.Round(ns * tick)) }
	s := &Server{
		readBase:      int64(r.ReadLatency),
		writeBase:     int64(r.WriteLatency),
		readTicks:     round(1e9 / r.RandomReadIOPS),
		seqReadTicks:  round(1e9 / r.SequentialReadBytes * (1 << byteBits)),
		seqWriteTicks: round(1e9 / r.SequentialWriteBytes * (1 << byteBits)),
		programTicks:  round(r.ProgramNS),
		moveReadTicks: round(r.MoveReadNS),
	}
	if r.BurstBytes > 0 {
		s.burstTicks = round(1e9 / r.BurstBytes * (1 << byteBits))
	}
	s.setMoves(0)
	s.SetPower(0, 0)
	return s, nil
}

// Reset makes the server idle at time 0, for a new clock.
func (s *Server) Reset() { s.freeNS, s.freeTicks = 0, 0 }

// Follow takes over how much the FTL moves at present for each page written.
func (s *Server) Follow(f *FTL) {
	if f.due.pay != s.pay {
		s.setMoves(f.due.pay)
	}
}

func (s *Server) setMoves(pay uint64) {
	s.pay = pay
	s.movedTicks = ((s.programTicks + s.moveReadTicks) * pay) / debtUnit
	s.hostTicks = s.programTicks + s.movedTicks
}

// Hold lets the server begin nothing before until: it wakes up.
func (s *Server) Hold(until int64) {
	if until > s.freeNS {
		s.freeNS, s.freeTicks = until, 0
	}
}

// Read is a read of n bytes that arrives at time at; it returns when it is done.
func (s *Server) Read(at int64, n uint32, sequential bool) (done int64) {
	ticks := uint64(n) * s.seqReadTicks >> byteBits
	if !sequential {
		ticks = max(ticks, s.readTicks)
	}
	return s.serve(at, ticks, s.readBase+transferNS(n, s.seqReadTicks))
}

// Write is a write of n bytes that arrives at time at and programs pages pages;
// it returns when it is done. A page of a random write costs what programming
// and moving cost; the later pages of the same command are laid out like those
// of a stream, so they cost what a stream costs, and what they move. A stream
// moves pages too as long as the drive has garbage from before.
func (s *Server) Write(at int64, n, pages uint32, sequential bool) (done int64) {
	stream := uint64(n) * s.seqWriteTicks >> byteBits
	ticks := stream + uint64(pages)*s.movedTicks
	if !sequential && pages > 0 {
		further := max(n, pageSize) - pageSize
		ticks = s.programTicks + uint64(pages)*s.movedTicks + uint64(further)*s.seqWriteTicks>>byteBits
	}
	return s.serve(at, ticks, s.writeBase+transferNS(n, s.seqWriteTicks))
}

// Burst is a write of n bytes that an SLC cache takes: as fast as that, and
// without what collection costs. Without a burst rate it is a stream's.
func (s *Server) Burst(at int64, n uint32) (done int64) {
	perByte := s.burstTicks
	if perByte == 0 {
		perByte = s.seqWriteTicks
	}
	return s.serve(at, uint64(n)*perByte>>byteBits, s.writeBase+transferNS(n, perByte))
}

// IdleBefore is for how many ns nothing has been served when a command arrives
// at time at; 0 on a clock that started anew.
func (s *Server) IdleBefore(at int64) int64 { return max(at-s.freeNS, 0) }

// Flush is a flush that arrives at time at. Where written data is safe once it is
// acknowledged (power-loss protection), a flush is an exchange and no more; a
// drive that has to program what waits in its buffer takes longer by that.
func (s *Server) Flush(at int64) (done int64) { return s.serve(at, 0, s.writeBase) }

// transferNS is what a command larger than a page takes longer.
func transferNS(n uint32, ticksPerByte uint64) int64 {
	if n <= pageSize {
		return 0
	}
	return int64(uint64(n-pageSize) * ticksPerByte >> byteBits / tick)
}

func (s *Server) serve(at int64, ticks uint64, latency int64) (done int64) {
	if at > s.freeNS || s.freeNS-at > newClockNS {
		s.freeNS, s.freeTicks = at, 0
	}
	start := s.freeNS
	if s.slowNum != s.slowDen {
		ticks = ticks * s.slowNum / s.slowDen
	}
	ticks += s.freeTicks
	s.freeNS += int64(ticks / tick)
	s.freeTicks = ticks % tick
	return max(start+latency, s.freeNS)
}

// SetPower lets the server work at limit/full of its rates, at least at a
// tenth and at most at all of them: a drive that may draw less does less at a
// time, while a single command takes as long as before. full of 0 is no limit.
func (s *Server) SetPower(limit, full uint32) {
	s.slowNum, s.slowDen = 1, 1
	if full != 0 && limit < full {
		s.slowNum, s.slowDen = uint64(full), uint64(max(limit, full/10, 1))
	}
}

// Answer is how long a command takes that the drive refuses, in ns.
func (s *Server) Answer() int64 { return s.writeBase }
