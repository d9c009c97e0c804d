package run

import (
	"encoding/hex"
	"fmt"
)

// Check says what of a phase is compared with what must be there.
type Check string

// What is checked.
const (
	// CheckNone compares nothing: what is read is thrown away.
	CheckNone Check = ""
	// CheckReads compares whatever the phase reads.
	CheckReads Check = "reads"
	// CheckEachPass lets each pass that writes be followed by one that reads the
	// whole region and compares it. Only for orders that have passes, and phases
	// that only write; a pass of the phase then counts as one.
	CheckEachPass Check = "each_pass"
)

// Trust says which writes must have survived a crash.
type Trust string

// What is trusted after a crash. Without one both are the same.
const (
	// TrustCompleted: every write that completed is on the drive, also after its
	// power failed: right for drives with power-loss protection, or without a
	// volatile write cache, and wherever only this process died.
	TrustCompleted Trust = ""
	// TrustFlushed: a write is on the drive once a flush that began after it
	// completed has completed. What completed later may have been lost.
	TrustFlushed Trust = "flushed"
)

// Verify is how a job's data are told from others and checked.
type Verify struct {
	// Trust is what is believed of writes before a crash.
	Trust Trust `json:"trust,omitempty"`
	// FlushIntervalNS is how often each worker flushes, so that what is written
	// becomes trusted; 0 means never. In the time of latencies.
	FlushIntervalNS int64 `json:"flush_interval_ns,omitempty"`
	// GenerationMap keeps a byte for each block in memory, and now and then in a
	// file, so that lost and stale blocks are told where the order draws each block
	// anew. After a crash the blocks that may have been written since it was saved
	// are undecided until they are written again.
	GenerationMap bool `json:"generation_map,omitempty"`
	// Of makes this a run that only compares what another one wrote.
	Of *VerifyOf `json:"of,omitempty"`
}

// VerifyOf names the state of a run that is compared.
type VerifyOf struct {
	// Run is its name in the same journal, Checkpoint the number of its last
	// checkpoint: should it have gone on since, nothing can be said.
	Run        string `json:"run"`
	Checkpoint uint64 `json:"checkpoint"`
}

// MismatchKind is what is wrong with a block.
type MismatchKind string

// The kinds of mismatch.
const (
	// MismatchLost: the block holds what was there before its last write, twice.
	MismatchLost MismatchKind = "lost"
	// MismatchStale: a first read was wrong, a second one right.
	MismatchStale MismatchKind = "stale"
	// MismatchMisdirected: an intact block of another address.
	MismatchMisdirected MismatchKind = "misdirected"
	// MismatchTorn: part of one write and part of another.
	MismatchTorn MismatchKind = "torn"
	// MismatchRotten: bits have changed.
	MismatchRotten MismatchKind = "rotten"
	// MismatchUnreadable: the drive does not give the block back.
	MismatchUnreadable MismatchKind = "unreadable"
)

// MismatchKinds lists them, in the order in which they are shown.
func MismatchKinds() []MismatchKind {
	return []MismatchKind{MismatchLost, MismatchStale, MismatchMisdirected, MismatchTorn, MismatchRotten, MismatchUnreadable}
}

// DataRun is the number by which the blocks of a run are told from those of other
// runs with the same seed, and of other drives that were begun at the same time:
// it follows from when the run began, and on what drive and namespace.
func DataRun(startWallUnixNS int64, seed uint64, drive string) uint64 {
	x := uint64(startWallUnixNS) ^ seed*0x9E3779B97F4A7C15
	for i := range len(drive) {
		x = (x ^ uint64(drive[i])) * 0x100000001B3 // FNV-1a
	}
	x = (x ^ x>>32) * 0xD6E8FEB86659FD93
	x = (x ^ x>>32) * 0xD6E8FEB86659FD93
	return x ^ x>>32
}

// Drive is what DataRun tells drives apart by.
func (h *Header) Drive() string { return fmt.Sprintf("%s/%s/%d", h.SubsystemNQN, h.Serial, h.NSID) }

// Mismatch is one logical block that is not as it must be.
type Mismatch struct {
	Second     int64        `json:"second"`
	WallUnixNS int64        `json:"wall_unix_ns"`
	Kind       MismatchKind `json:"kind"`
	LBA        uint64       `json:"lba"`
	// ExpectedGeneration is that of the last write of the block. Where that one is
	// in doubt and an earlier one may be there as well, it is the one that the block
	// was compared with: the nearest of them, or the one that must be there at
	// least. 0 when it cannot be told (the order draws anew).
	ExpectedGeneration uint64 `json:"expected_generation"`
	// FoundGeneration, FoundLBA and FoundRun are what the header says that was
	// found; FoundHeader is false when there is none.
	FoundHeader     bool   `json:"found_header"`
	FoundGeneration uint64 `json:"found_generation"`
	FoundLBA        uint64 `json:"found_lba"`
	FoundRun        uint64 `json:"found_run"`
	// OffsetBytes is where in the block the first difference is, and Bytes how
	// many bytes differ; both 0 when there is nothing to compare with.
	OffsetBytes uint32 `json:"offset_bytes"`
	Bytes       uint32 `json:"bytes"`
	// Expected and Found are up to 64 bytes from there on.
	Expected Hex `json:"expected_hex,omitempty"`
	Found    Hex `json:"found_hex,omitempty"`
	// Status is the drive's answer to the read, of an unreadable block.
	Status uint16 `json:"status,omitempty"`
	// Text is for people.
	Text string `json:"text"`
}

// Hex is bytes that are hexadecimal digits as text.
type Hex []byte

// MarshalText implements encoding.TextMarshaler.
func (h Hex) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, h), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *Hex) UnmarshalText(text []byte) (err error) {
	*h, err = hex.AppendDecode(nil, text)
	return err
}

// GenerationText says which write a generation is: 62:48 are the phase, below
// them 1 + the pass, or the position where the order draws anew.
func GenerationText(generation uint64) string {
	if phase := generation >> 48; phase != 0 {
		return fmt.Sprintf("generation %d of phase %d", generation&(1<<48-1), phase)
	}
	return fmt.Sprintf("generation %d", generation)
}

// Verified counts logical blocks that were read to be compared.
type Verified struct {
	// Blocks is how many were compared. Right, Unknown, Undecided and the kinds
	// of mismatch add up to it.
	Blocks uint64 `json:"blocks"`
	// Right are exactly what was written last.
	Right uint64 `json:"right"`
	// Unknown are blocks whose last write failed or was under way in a crash:
	// they may hold the old or the new content, or a part of each. They are
	// not counted as right or wrong.
	Unknown uint64 `json:"unknown"`
	// Undecided are intact blocks of this run at their place, of which it cannot
	// be told whether they are the last that was written, and blocks of which it
	// is not known that they were ever written: the order draws anew.
	Undecided uint64 `json:"undecided"`
	// Unwritten are those of Unknown and Undecided that hold nothing of this run:
	// as far as can be told it never wrote them.
	Unwritten uint64 `json:"unwritten,omitempty"`

	Lost        uint64 `json:"lost"`
	Stale       uint64 `json:"stale"`
	Misdirected uint64 `json:"misdirected"`
	Torn        uint64 `json:"torn"`
	Rotten      uint64 `json:"rotten"`
	Unreadable  uint64 `json:"unreadable"`
	// Kept is how many mismatches were recorded one by one: not all of many are.
	Kept uint64 `json:"kept"`
}

// Mismatches is how many blocks are wrong.
func (v *Verified) Mismatches() uint64 {
	return v.Lost + v.Stale + v.Misdirected + v.Torn + v.Rotten + v.Unreadable
}

// Of is the count of one kind of mismatch, to read or to change.
func (v *Verified) Of(kind MismatchKind) *uint64 {
	switch kind {
	case MismatchLost:
		return &v.Lost
	case MismatchStale:
		return &v.Stale
	case MismatchMisdirected:
		return &v.Misdirected
	case MismatchTorn:
		return &v.Torn
	case MismatchRotten:
		return &v.Rotten
	}
	return &v.Unreadable
}

// Decided says whether anything was decided of any block: that it is right, that
// it is wrong, or that it is whole and this run's at least. Where nothing was,
// nothing has been verified.
func (v *Verified) Decided() bool {
	undecided := v.Undecided - min(v.Undecided, v.Unwritten)
	return v.Right+v.Mismatches()+undecided != 0
}

// Add adds what another stretch found.
func (v *Verified) Add(w *Verified) {
	v.Blocks += w.Blocks
	v.Right += w.Right
	v.Unknown += w.Unknown
	v.Undecided += w.Undecided
	v.Unwritten += w.Unwritten
	for _, k := range MismatchKinds() {
		*v.Of(k) += *w.Of(k)
	}
	v.Kept += w.Kept
}

// Doubt is a stretch of positions of a phase whose writes may or may not have
// reached the drive: they failed, or were not trusted to be there when a crash
// came. A block that was last written in one may hold that write, the one before
// it, or part of each.
type Doubt struct {
	Phase uint32 `json:"phase"`
	// First and Past are the positions, Past not among them.
	First uint64 `json:"first"`
	Past  uint64 `json:"past"`
	// Failed says that the write was answered with an error; otherwise it was
	// under way, or not flushed, in a crash.
	Failed bool `json:"failed,omitempty"`
}

// validateVerify refuses checks that cannot be carried out.
func (j *Job) validateVerify(p *Phase) error {
	switch p.Check {
	case CheckNone:
		if p.Kind == PhaseVerify {
			return jobError("a phase that verifies must check its reads")
		}
	case CheckReads:
		if p.ReadPercent == 0 {
			return jobError("it reads nothing, so there is nothing to check while it goes on; mix reads in, or check after it")
		}
	case CheckEachPass:
		if p.Pattern == PatternReplacement || p.ReadPercent != 0 {
			return jobError("a check of each pass needs an order that has passes, and only writes")
		}
		if p.End.Passes == 0 && p.End.DurationNS == 0 {
			return jobError("with a check of each pass it ends by passes or duration: part of a pass would not be checked")
		}
	default:
		return jobError("%q is no check", p.Check)
	}
	if p.Kind == PhaseVerify && (p.ReadPercent != 100 || p.Pattern == PatternReplacement) {
		return jobError("a phase that verifies only reads, and every block once")
	}
	return nil
}

// Checks says whether any phase compares what it reads.
func (j *Job) Checks() bool {
	for i := range j.Phases {
		if j.Phases[i].Check != CheckNone {
			return true
		}
	}
	return false
}

// validateTrust checks what holds for the whole job.
func (j *Job) validateTrust() error {
	switch v := &j.Verify; {
	case v.Trust != TrustCompleted && v.Trust != TrustFlushed:
		return jobError("%q is nothing to trust: flushed, or nothing for completed", v.Trust)
	case j.Data.CompressPermille > 1000 || j.Data.DedupPermille > 1000:
		return jobError("data of %d and %d thousandths: 1000 do not compress and do not repeat", j.Data.CompressPermille, j.Data.DedupPermille)
	case j.Data.HeaderOnly && (j.Checks() || v.Of != nil || j.Data.CompressPermille%1000 != 0 || j.Data.DedupPermille%1000 != 0):
		return jobError("where only headers are written nothing can be verified, and nothing compressed or repeated")
	case v.FlushIntervalNS < 0:
		return jobError("negative interval between flushes")
	case v.Trust == TrustFlushed && v.FlushIntervalNS == 0 && v.Of == nil:
		return jobError("only flushed writes are trusted, and nothing is ever flushed: give an interval")
	case j.dedupBreaks() != 0:
		return jobError("contents repeat in units of %d bytes, which operations of %d bytes would break: let sizes and alignment be multiples of it",
			j.DedupUnitBytes(), j.dedupBreaks())
	case j.Checks() && j.TimeLapse > 1:
		return jobError("under time lapse each block stands for many: nothing can be verified")
	case v.Of != nil:
		for i := range j.Phases {
			if j.Phases[i].ReadPercent != 100 {
				return fmt.Errorf("phase %d: %w", i, jobError("a run that verifies another does not write"))
			}
		}
	}
	return nil
}

// Data is how compressible what is written is.
type Data struct {
	// CompressPermille is what a block compresses to, in thousandths of its size,
	// and DedupPermille how many different contents there are, in thousandths of
	// the 4 KiB units written. 0 and 1000 mean that nothing compresses, and that
	// all differ. Duplicates cannot say where they belong, so fewer mistakes are
	// told among them.
	CompressPermille uint16 `json:"compress_permille,omitempty"`
	DedupPermille    uint16 `json:"dedup_permille,omitempty"`
	// HeaderOnly writes only the header of each block anew, over a body that does
	// not compress and stays in the buffer: it takes less of the processor, no two
	// blocks are equal, and nothing can be verified.
	HeaderOnly bool `json:"header_only,omitempty"`
}

// DedupUnitBytes is what is repeated as one: 4 KiB, or a logical block where that
// is larger.
func (j *Job) DedupUnitBytes() uint32 { return max(4096, j.LBABytes) }

// dedupBreaks is the size or alignment of operations that would write part of a
// repeated unit, so that it is no longer what it repeats; 0 where none does.
func (j *Job) dedupBreaks() uint32 {
	if j.Data.DedupPermille%1000 == 0 {
		return 0
	}
	for i := range j.Phases {
		p := &j.Phases[i]
		if p.Pattern == PatternNone || p.ReadPercent == 100 {
			continue
		}
		sizes := []uint32{p.BlockBytes}
		if p.Mixed() {
			sizes = []uint32{p.Align()}
			for _, s := range p.SizesOf(true) {
				sizes = append(sizes, s.Bytes)
			}
		}
		for _, n := range sizes {
			if n%j.DedupUnitBytes() != 0 {
				return n
			}
		}
	}
	return 0
}

// GenerationGranuleBytes is how many bytes of the drive share a byte of the
// generation map: what every operation of the phases that draw anew is made of.
// 0 means that there are none, and so no map.
func (j *Job) GenerationGranuleBytes() uint64 {
	granule := uint64(0)
	with := func(size uint64) {
		for a := granule; a != 0; {
			size, a = a, size%a
		}
		granule = size
	}
	for i := range j.Phases {
		p := &j.Phases[i]
		if !j.Verify.GenerationMap || p.Pattern != PatternReplacement || p.ReadPercent == 100 {
			continue
		}
		if !p.Mixed() {
			with(uint64(p.BlockBytes))
			continue
		}
		with(uint64(p.Align()))
		for _, s := range p.SizesOf(true) {
			with(uint64(s.Bytes))
		}
	}
	return granule
}

// GenerationMapBytes is how much memory the generation map takes; 0 without one.
func (j *Job) GenerationMapBytes() uint64 {
	granule := j.GenerationGranuleBytes()
	if granule == 0 {
		return 0
	}
	return (j.RegionBytes()-1)/granule + 1
}
