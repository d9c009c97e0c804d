package sim

import (
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
	"nvop/nvmeioctl/sim/ftl"
)

// The drive's map is scaled: one map page stands for scale mapping units of the
// drive, side by side in its capacity, and for all flash that they occupy. Write
// amplification depends on ratios and hardly on size, so about a million map
// pages behave like the two billion of the drive (measured: 0.4 % off at 256
// superblocks), while a superblock of the map still wears like one of the drive.
const (
	targetMapPages = 1 << 20
	// newClockNS is how far back a time must be to be of a clock that started
	// anew; no command is outstanding for so long.
	newClockNS = 30e9
	// ppm is the unit of the floor of write amplification in exact arithmetic.
	ppm = 1_000_000
)

// Statuses of the data path, with Do Not Retry set as a drive sets it.
const (
	statusInvalidField = nvmespec.Status(0x4002)
	statusLBARange     = nvmespec.Status(0x4080)
	// statusReadOnly is Attempted Write to Read Only Range (NVM Command Set
	// 1.x, "I/O command specific status").
	statusReadOnly = nvmespec.Status(0x4182)
)

// flashMedia is the drive's media: the flash, which part of it each namespace
// has, and what has been counted. It is used with the drive's lock held.
type flashMedia struct {
	flash     *ftl.FTL
	server    *ftl.Server
	buffer    ftl.Buffer
	volatile  bool     // the buffer is not protected from power loss
	through   bool     // and is turned off
	drainNS   int64    // what draining it takes
	slc       *ftl.SLC // nil for none
	clock     nvmeioctl.Clock
	seed      uint64
	unitBytes uint64 // what a map page stands for
	iuBytes   uint64 // the drive's mapping unit, a power of two
	iuShift   uint
	floorPPM  uint64 // w0, times what data shrinks to
	capacity  uint64

	namespaces map[uint32]*nsMap
	generation uint64 // changes with namespaces
	count      hostCounts

	writeTails, readTails tails
	queues                int   // open ones
	busyUntil             int64 // on the queues' clock
	heat                  heat
}

// hostCounts is what the host has asked for, since manufacture. 64 bits of
// bytes are 18 exabytes, forty lives of the largest drive.
type hostCounts struct {
	readBytes, writeBytes       uint64
	readCommands, writeCommands uint64
	// programmedBytes is what the flash programmed for the host's writes:
	// writeBytes, and the rest of the mapping unit for writes of a part of one.
	programmedBytes uint64
	// mergedBytes were read from the flash to complete such units.
	mergedBytes uint64
	busyNS      uint64
}

// fields lists the counters in the order in which they are stored.
func (c *hostCounts) fields() []*uint64 {
	return []*uint64{&c.readBytes, &c.writeBytes, &c.readCommands, &c.writeCommands,
		&c.programmedBytes, &c.mergedBytes, &c.busyNS}
}

// flashScale gives the configuration of the flash model for a drive, and how
// many mapping units a map page stands for. The error says why the scale that
// was asked for, or the drive itself, is beyond the model.
func flashScale(p *Profile, o Options) (ftl.Config, uint64, error) {
	iu := uint64(p.Flash.IndirectionBytes)
	scale := uint64(o.Scale)
	if scale == 0 {
		scale = max(1, (p.CapacityBytes/iu+targetMapPages/2)/targetMapPages)
		// A small drive has fewer units than that and is mapped one to one.
	}
	unit := scale * iu
	geometry, err := ftl.FitGeometry((p.Flash.holds() + unit/2) / unit)
	if err != nil {
		return ftl.Config{}, 0, fmt.Errorf("profile %q at scale %d: %w", p.Name, scale, err)
	}
	pages := (p.CapacityBytes+unit-1)/unit + uint64(p.MaxNamespaces) // each namespace rounds up
	cfg := ftl.Config{
		LogicalPages: uint32(min(pages, math.MaxUint32)),
		Geometry:     geometry,
		RatedCycles:  p.Flash.RatedCycles,
		Seed:         o.Seed,
		Shrinks:      p.Flash.Shrinks,
		Separates:    p.Flash.Separates,
	}
	if err := cfg.Validate(); err != nil {
		return ftl.Config{}, 0, fmt.Errorf("profile %q at scale %d: %w", p.Name, scale, err)
	}
	return cfg, scale, nil
}

// flashRates are the model's constants, solved from the figures of the profile.
func flashRates(f *Flash) ftl.Rates {
	waf := ftl.UniformWAF(float64(f.holds()) / float64(f.RandomWriteBytes))
	a, b := ftl.CalibrateProgram(f.RandomWriteIOPS, waf, f.CollectRatio)
	return ftl.Rates{
		ReadLatency:          f.ReadLatency,
		WriteLatency:         f.WriteLatency,
		RandomReadIOPS:       f.RandomReadIOPS,
		SequentialReadBytes:  f.SequentialReadBytesPerSecond,
		SequentialWriteBytes: f.SequentialWriteBytesPerSecond,
		BurstBytes:           f.SLCWriteBytesPerSecond,
		ProgramNS:            a,
		MoveReadNS:           b,
	}
}

// newFlashMedia makes the media of a new drive, without namespaces.
func newFlashMedia(p *Profile, o Options, clock nvmeioctl.Clock) (*flashMedia, error) {
	cfg, scale, err := flashScale(p, o)
	if err != nil {
		return nil, err
	}
	flash, err := ftl.New(cfg)
	if err != nil {
		return nil, err
	}
	server, err := ftl.NewServer(flashRates(&p.Flash))
	if err != nil {
		return nil, fmt.Errorf("profile %q: %w", p.Name, err)
	}
	iu := uint64(p.Flash.IndirectionBytes)
	m := &flashMedia{
		flash:      flash,
		server:     server,
		buffer:     ftl.NewBuffer(p.Flash.BufferBytes / iu),
		volatile:   p.VolatileWriteCache,
		drainNS:    int64(p.Flash.DrainLatency),
		clock:      clock,
		seed:       o.Seed,
		unitBytes:  scale * iu,
		iuBytes:    iu,
		iuShift:    uint(bits.TrailingZeros64(iu)),
		floorPPM:   uint64(math.Round(p.Flash.FloorWAF * p.Flash.compression() * ppm)),
		capacity:   p.CapacityBytes,
		namespaces: map[uint32]*nsMap{},
		heat:       heat{milliKelvin: idleKelvin * 1000},
	}
	if p.Flash.SLCShare > 0 {
		if m.slc, err = ftl.NewSLC(p.SLCBytes(), p.Flash.SLCFoldBytesPerSecond); err != nil {
			return nil, fmt.Errorf("profile %q: %w", p.Name, err)
		}
	}
	return m, nil
}

// counters implements media.
func (m *flashMedia) counters() mediaCounters {
	wear := m.flash.Wear()
	u := nvmespec.U128
	moved := u(m.flash.MovedPages()).Mul64(m.unitBytes)
	programmed := moved.Add(u(m.count.programmedBytes))
	written, _ := programmed.Mul64(m.floorPPM).DivMod64(ppm)
	if m.slc != nil {
		written = written.Add(u(m.slc.Programmed()))
	}
	mapped := make(map[uint32]uint64, len(m.namespaces))
	for nsid, n := range m.namespaces {
		mapped[nsid] = n.mappedBytes()
	}
	now := int64(m.clock.Now())
	m.heat.advance(now, m.count.busyNS)
	return mediaCounters{
		HostReadBytes:     u(m.count.readBytes),
		HostWriteBytes:    u(m.count.writeBytes),
		HostReadCommands:  u(m.count.readCommands),
		HostWriteCommands: u(m.count.writeCommands),
		MediaReadBytes:    moved.Add(u(m.count.readBytes)).Add(u(m.count.mergedBytes)),
		MediaWriteBytes:   written,
		MinErases:         wear.MinErases,
		MaxErases:         wear.MaxErases,
		AverageErases:     wear.MeanErases,
		UsedRatio:         wear.UsedRatio,
		SpareRatio:        wear.SpareRatio,
		BadBlocks:         uint64(wear.FailedBlocks),
		FreeBlocks:        uint64(m.flash.FreeSuperblocks()),
		TotalBlocks:       uint64(m.flash.Config().Geometry.Superblocks),
		BusyNS:            m.count.busyNS,
		MappedBytes:       mapped,
		Kelvin:            m.heat.kelvin(),
	}
}

// namespaceCreated implements media.
func (m *flashMedia) namespaceCreated(nsid uint32, sizeBytes uint64) {
	m.namespaceDeleted(nsid)
	n := &nsMap{sizeBytes: sizeBytes, salt: mix64(m.seed ^ uint64(nsid)<<32)}
	n.extents = m.takePages(m.pagesFor(sizeBytes))
	n.finish()
	m.namespaces[nsid] = n
	m.generation++
}

// namespaceDeleted implements media.
func (m *flashMedia) namespaceDeleted(nsid uint32) {
	m.buffer.Drain()
	n := m.namespaces[nsid]
	if n == nil {
		return
	}
	for _, e := range n.extents {
		m.flash.Deallocate(e.lpn, e.pages)
	}
	delete(m.namespaces, nsid)
	m.generation++
}

// namespaceFormatted implements media.
func (m *flashMedia) namespaceFormatted(nsid uint32, sizeBytes uint64, erase bool) {
	m.namespaceCreated(nsid, sizeBytes)
	if erase {
		m.flash.EraseUnused()
	}
}

// powerLimited implements media.
func (m *flashMedia) powerLimited(milliwatts, fullMilliwatts uint32) {
	m.server.SetPower(milliwatts, fullMilliwatts)
}

// pagesFor is how many map pages stand for a namespace: at least one.
func (m *flashMedia) pagesFor(sizeBytes uint64) uint32 {
	return uint32(max(1, min((sizeBytes+m.unitBytes/2)/m.unitBytes, ftl.MaxLogicalPages)))
}

// takePages finds map pages that no namespace has, lowest first. There are
// enough unless a namespace was created beyond the capacity; then what is left
// is taken.
func (m *flashMedia) takePages(pages uint32) []extent {
	var used []extent
	for _, n := range m.namespaces {
		used = append(used, n.extents...)
	}
	slices.SortFunc(used, func(a, b extent) int { return int(int64(a.lpn) - int64(b.lpn)) })
	used = append(used, extent{lpn: m.flash.Config().LogicalPages})
	var taken []extent
	next := uint32(0)
	for _, e := range used {
		if gap := min(e.lpn-next, pages); gap > 0 {
			taken = append(taken, extent{lpn: next, pages: gap})
			pages -= gap
		}
		next = e.lpn + e.pages
	}
	return taken
}

// nsids are the namespaces in order.
func (m *flashMedia) nsids() []uint32 { return slices.Sorted(maps.Keys(m.namespaces)) }

// access implements media.
func (m *flashMedia) access(op mediaOp, nsid uint32, offset, length uint64) nvmespec.Status {
	n := m.namespaces[nsid]
	switch {
	case n == nil:
		return statusInvalidField
	case length > n.sizeBytes || offset > n.sizeBytes-length:
		return statusLBARange
	case op != mediaRead && m.flash.WornOut():
		return statusReadOnly
	case length == 0:
		return 0
	}
	s := n.space(1)
	switch op {
	case mediaRead:
		m.readTails.sequential(nsid, offset, length)
		m.countRead(length, 1)
	case mediaWrite:
		m.write(n, s, nsid, offset, length, m.through)
	case mediaDeallocate:
		lo, hi := s.scaled(offset, offset+length)
		m.deallocate(n, s, lo, hi)
	}
	return 0
}

func (m *flashMedia) countRead(length, lapse uint64) {
	m.count.readBytes += length * lapse
	m.count.readCommands += lapse
}

// written is what became of a write.
type written struct {
	sequential bool   // it continues a stream
	burst      bool   // an SLC cache took it
	units      uint64 // mapping units that are programmed for it
}

// write counts a write, once for each of the space's lapse, and updates the
// map. through says that it may not wait in a buffer.
func (m *flashMedia) write(n *nsMap, s space, nsid uint32, offset, length uint64, through bool) written {
	w := written{sequential: m.writeTails.sequential(nsid, offset, length)}
	end := offset + length
	programmed := length
	whole := (offset|end)&(m.iuBytes-1) == 0
	if w.sequential {
		// The drive's buffer joins the parts of a unit.
		w.units = end>>m.iuShift - offset>>m.iuShift
	} else {
		offset &^= m.iuBytes - 1
		end = (end + m.iuBytes - 1) &^ (m.iuBytes - 1)
		programmed = end - offset
		w.units = programmed >> m.iuShift
	}
	merged := programmed - length
	m.count.writeBytes += length * s.lapse
	m.count.writeCommands += s.lapse
	if (whole || !w.sequential) && m.buffer.Active(s.lapse) {
		absorbed := m.programBuffered(n, s, nsid, offset, end, through)
		w.units -= absorbed
		programmed -= absorbed << m.iuShift
		merged = min(merged, programmed)
	} else {
		lo, hi := s.scaled(offset, end)
		m.program(n, s, lo, hi)
	}
	m.count.programmedBytes += programmed * s.lapse
	m.count.mergedBytes += merged * s.lapse
	w.burst = m.slc != nil && programmed > 0 && m.slc.Write(programmed*s.lapse)
	return w
}

// programBuffered writes the map pages of whole mapping units but for the units
// that wait in the buffer, and returns how many those are.
func (m *flashMedia) programBuffered(n *nsMap, s space, nsid uint32, offset, end uint64, through bool) (absorbed uint64) {
	program := func(from, to uint64) {
		if from < to {
			lo, hi := s.scaled(from, to)
			m.program(n, s, lo, hi)
		}
	}
	from := offset
	if most := m.buffer.Units() / s.lapse << m.iuShift; end-offset > most {
		// More than the buffer holds: whatever waited leaves it, and so does all
		// of the write but its end.
		m.buffer.Drain()
		program(offset, end)
		offset, from = end-most, end
	}
	for at := offset; at < end; at += m.iuBytes {
		key := at>>m.iuShift | uint64(nsid)<<52
		if through {
			m.buffer.Forget(key)
			continue
		}
		if m.buffer.Absorb(key, s.lapse) {
			program(from, at)
			from = at + m.iuBytes
			absorbed++
		}
	}
	program(from, end)
	return absorbed
}

// flushed is a flush: an unprotected buffer is drained. It returns what that
// takes in ns.
func (m *flashMedia) flushed() int64 {
	if m.volatile && m.buffer.Drain() {
		return m.drainNS
	}
	return 0
}

// busy counts the time from at to done in which commands are outstanding, on a
// queue's clock, once for each of lapse.
func (m *flashMedia) busy(at, done int64, lapse uint64) {
	if m.busyUntil-done > newClockNS {
		m.busyUntil = at // the clock started anew
	}
	if from := max(at, m.busyUntil); done > from {
		m.count.busyNS += uint64(done-from) * lapse
		m.busyUntil = done
	}
}

// tails remembers where recent commands ended, to tell a stream from random
// commands: 64 sets of two places, the later first. The command that starts
// where another ended continues its stream, so many streams can be mixed; a
// random one is mistaken for a part of a stream once in (commands that fill the
// namespace)/128.
type tails [64][2]uint64

func (t *tails) sequential(nsid uint32, offset, length uint64) bool {
	start := offset + 1 + uint64(nsid)<<48
	set := &t[mix64(start)>>58]
	sequential := true
	switch start {
	case set[0]:
		set[0], set[1] = set[1], 0 // the stream has moved on
	case set[1]:
		set[1] = 0
	default:
		sequential = false
	}
	end := start + length
	set = &t[mix64(end)>>58]
	set[0], set[1] = end, set[0]
	return sequential
}

// mix64 is the finalizer of splitmix64: every bit of the result depends on
// every bit of x.
func mix64(x uint64) uint64 {
	x += 0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// heat is the drive's temperature: it follows how busy the drive was, slowly.
type heat struct {
	milliKelvin int64
	at          int64  // of the last advance, on the drive's clock
	busyNS      uint64 // then
}

const (
	idleKelvin   = 308
	busyKelvin   = 333 // when it is always busy
	heatPeriodNS = 60e9
	// heatLag is how many periods it takes to come within 1/e.
	heatLag = 5
)

// advance takes in what happened until now; less than a minute is left for
// the next time.
func (h *heat) advance(now int64, busyNS uint64) {
	elapsed := now - h.at
	if elapsed < heatPeriodNS {
		return
	}
	share := min(float64(busyNS-min(h.busyNS, busyNS))/float64(elapsed), 1)
	target := idleKelvin*1000 + int64(share*((busyKelvin-idleKelvin)*1000))
	for range min(elapsed/heatPeriodNS, 100) {
		h.milliKelvin += (target - h.milliKelvin) / heatLag
	}
	h.at, h.busyNS = now, busyNS
}

func (h *heat) kelvin() uint16 { return uint16((h.milliKelvin + 500) / 1000) }

// mulHigh is the upper half of a product: x scaled from 2^64 to n.
func mulHigh(x, n uint64) uint64 {
	hi, _ := bits.Mul64(x, n)
	return hi
}
