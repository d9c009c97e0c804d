package nvmespec

import "fmt"

// Offsets of the asymmetric namespace access log (0Ch) and of one of its groups.
const (
	offANACHGCNT  = 0
	offANANAGD    = 8
	anaHeader     = 16
	offANAGrpID   = 0
	offANAGrpNNID = 4
	offANAGrpCHG  = 8
	offANAGrpAST  = 16
	anaGroup      = 32
)

// ANAState is how namespaces of a group are reached through a controller.
type ANAState uint8

// The states. Others are reserved.
const (
	ANAOptimized      ANAState = 1
	ANANonOptimized   ANAState = 2
	ANAInaccessible   ANAState = 3
	ANAPersistentLoss ANAState = 4
	ANAChange         ANAState = 15
)

// String is the state in words; a number where it is reserved.
func (s ANAState) String() string {
	switch s {
	case ANAOptimized:
		return "optimized"
	case ANANonOptimized:
		return "non-optimized"
	case ANAInaccessible:
		return "inaccessible"
	case ANAPersistentLoss:
		return "persistent loss"
	case ANAChange:
		return "change"
	}
	return fmt.Sprintf("0x%x", uint8(s))
}

// MarshalText gives what String gives.
func (s ANAState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// ANAGroup is one ANA group.
type ANAGroup struct {
	GroupID uint32 `json:"ana_group_id"`
	// ChangeCount counts changes of this group; 0 is not reported.
	ChangeCount uint64   `json:"change_count"`
	State       ANAState `json:"state"`
	NSIDs       []uint32 `json:"nsids"`
}

// ANALog is the asymmetric namespace access log (0Ch).
type ANALog struct {
	// ChangeCount counts changes of the log; 0 is not reported.
	ChangeCount uint64 `json:"change_count"`
	// Announced is how many groups the drive says there are; more than Groups
	// where bytes are missing.
	Announced uint16     `json:"announced"`
	Groups    []ANAGroup `json:"groups"`
}

// DecodeANALog reads the groups that are whole in b.
func DecodeANALog(b []byte) (ANALog, error) {
	p, err := view(b, max(anaHeader, len(b)), "ANA log")
	if err != nil {
		return ANALog{}, err
	}
	l := ANALog{ChangeCount: p.u64(offANACHGCNT), Announced: p.u16(offANANAGD), Groups: []ANAGroup{}}
	off := anaHeader
	for range l.Announced {
		if !p.has(off, anaGroup) {
			break
		}
		g := page(p.bytes(off, anaGroup))
		n := int64(g.u32(offANAGrpNNID))
		if n > int64(len(p)-off-anaGroup)/4 {
			break
		}
		ids := make([]uint32, n)
		for i := range ids {
			ids[i] = p.u32(off + anaGroup + 4*i)
		}
		l.Groups = append(l.Groups, ANAGroup{GroupID: g.u32(offANAGrpID), ChangeCount: g.u64(offANAGrpCHG), State: ANAState(g.u8(offANAGrpAST) & 15), NSIDs: ids})
		off += anaGroup + 4*len(ids)
	}
	return l, nil
}

// ANALogBytes is how many bytes of an ANA log there are at least, as far as its
// first bytes tell; those are enough when it is not more than they are.
func ANALogBytes(b []byte) uint64 {
	p := page(b)
	off := uint64(anaHeader)
	for range p.u16(offANANAGD) {
		if off+anaGroup > uint64(len(p)) {
			return off + anaGroup
		}
		off += anaGroup + 4*uint64(p.u32(int(off)+offANAGrpNNID))
	}
	return off
}

// Append appends the log: 16 bytes, and 32 a group with 4 a namespace.
func (l ANALog) Append(b []byte) []byte {
	b, p := grow(b, anaHeader)
	p.put64(offANACHGCNT, l.ChangeCount)
	p.put16(offANANAGD, l.Announced)
	for _, g := range l.Groups {
		b, p = grow(b, anaGroup+4*len(g.NSIDs))
		p.put32(offANAGrpID, g.GroupID)
		p.put32(offANAGrpNNID, uint32(len(g.NSIDs)))
		p.put64(offANAGrpCHG, g.ChangeCount)
		p.put8(offANAGrpAST, uint8(g.State)&15)
		for i, id := range g.NSIDs {
			p.put32(anaGroup+4*i, id)
		}
	}
	return b
}

// Offsets of the LBA status information log (0Eh), of its elements and of their
// ranges. NVM Command Set Specification 1.x.
const (
	offLSLLSLPLEN = 0
	offLSLNLSLNE  = 4
	offLSLESTULB  = 8
	offLSLLSGC    = 14
	lslHeader     = 16
	offLSENEID    = 0
	offLSENLRD    = 4
	offLSERATYPE  = 8
	lslElement    = 16
	offLSRRSLBA   = 0
	offLSRRNLB    = 8
	lslRange      = 16
	// allRanges in NLRD: no ranges follow, all of the namespace is to be looked at.
	allRanges = 0xFFFFFFFF
)

// LBARange is blocks that may be unreadable.
type LBARange struct {
	StartLBA uint64 `json:"start_lba"`
	Blocks   uint32 `json:"blocks"`
}

// LBAStatusElement is what log 0Eh says of one namespace.
type LBAStatusElement struct {
	NSID uint32 `json:"nsid"`
	// WholeNamespace says that the drive names no ranges (NLRD FFFFFFFFh).
	WholeNamespace bool       `json:"whole_namespace"`
	Ranges         []LBARange `json:"ranges"`
	// Action is RATYPE, the action to give Get LBA Status: 10h looks at the media,
	// 11h reports what is known.
	Action uint8 `json:"recommended_action_raw"`
}

// LBAStatusLog is the LBA status information log (0Eh): where it is worth asking
// with Get LBA Status.
type LBAStatusLog struct {
	// TotalBytes is the length of the log (LSLPLEN).
	TotalBytes uint32 `json:"total_bytes"`
	// Announced is how many elements the drive says there are; more than Elements
	// where bytes are missing.
	Announced uint32 `json:"announced"`
	// UnrecoverableBlocksEstimate is ESTULB; 0 is none known or not reported.
	UnrecoverableBlocksEstimate uint32 `json:"unrecoverable_blocks_estimate"`
	// Generation counts changes of the log; it wraps around.
	Generation uint16             `json:"generation"`
	Elements   []LBAStatusElement `json:"elements"`
}

// DecodeLBAStatusLog reads the elements that are whole in b.
func DecodeLBAStatusLog(b []byte) (LBAStatusLog, error) {
	p, err := view(b, max(lslHeader, len(b)), "LBA status information log")
	if err != nil {
		return LBAStatusLog{}, err
	}
	l := LBAStatusLog{TotalBytes: p.u32(offLSLLSLPLEN), Announced: p.u32(offLSLNLSLNE), UnrecoverableBlocksEstimate: p.u32(offLSLESTULB),
		Generation: p.u16(offLSLLSGC), Elements: []LBAStatusElement{}}
	off := lslHeader
	for range l.Announced {
		if !p.has(off, lslElement) {
			break
		}
		h := page(p.bytes(off, lslElement))
		e := LBAStatusElement{NSID: h.u32(offLSENEID), Action: h.u8(offLSERATYPE), Ranges: []LBARange{}}
		n := int64(h.u32(offLSENLRD))
		if e.WholeNamespace = n == allRanges; e.WholeNamespace {
			n = 0
		}
		if n > int64(len(p)-off-lslElement)/lslRange {
			break
		}
		off += lslElement
		for range n {
			r := page(p.bytes(off, lslRange))
			e.Ranges = append(e.Ranges, LBARange{StartLBA: r.u64(offLSRRSLBA), Blocks: r.u32(offLSRRNLB)})
			off += lslRange
		}
		l.Elements = append(l.Elements, e)
	}
	return l, nil
}

// LBAStatusLogBytes is the length of the log as its first 4 bytes have it.
func LBAStatusLogBytes(b []byte) uint64 { return uint64(max(page(b).u32(offLSLLSLPLEN), lslHeader)) }

// Append appends the log: 16 bytes, and 16 an element and range.
func (l LBAStatusLog) Append(b []byte) []byte {
	b, p := grow(b, lslHeader)
	p.put32(offLSLLSLPLEN, l.TotalBytes)
	p.put32(offLSLNLSLNE, l.Announced)
	p.put32(offLSLESTULB, l.UnrecoverableBlocksEstimate)
	p.put16(offLSLLSGC, l.Generation)
	for _, e := range l.Elements {
		b, p = grow(b, lslElement)
		p.put32(offLSENEID, e.NSID)
		p.put8(offLSERATYPE, e.Action)
		if e.WholeNamespace {
			p.put32(offLSENLRD, allRanges)
			continue
		}
		p.put32(offLSENLRD, uint32(len(e.Ranges)))
		for _, r := range e.Ranges {
			b, p = grow(b, lslRange)
			p.put64(offLSRRSLBA, r.StartLBA)
			p.put32(offLSRRNLB, r.Blocks)
		}
	}
	return b
}

// Offsets of the endurance group event aggregate log (0Fh).
const (
	offEGENum = 0
	egeHeader = 8
)

// EnduranceGroupEvents is the endurance group event aggregate log (0Fh): the
// groups with an event that was not read yet.
type EnduranceGroupEvents struct {
	// Announced is how many groups the drive says there are; more than Groups
	// where bytes are missing.
	Announced uint64   `json:"announced"`
	Groups    []uint16 `json:"endurance_group_ids"`
}

// DecodeEnduranceGroupEvents reads as many groups as both the log and b have.
func DecodeEnduranceGroupEvents(b []byte) (EnduranceGroupEvents, error) {
	p, err := view(b, max(egeHeader, len(b)), "endurance group event aggregate log")
	if err != nil {
		return EnduranceGroupEvents{}, err
	}
	l := EnduranceGroupEvents{Announced: p.u64(offEGENum), Groups: []uint16{}}
	for i := range min(l.Announced, uint64(len(p)-egeHeader)/2) {
		l.Groups = append(l.Groups, p.u16(egeHeader+2*int(i)))
	}
	return l, nil
}

// EnduranceGroupEventsBytes is the length of the log as its first 8 bytes have it.
func EnduranceGroupEventsBytes(b []byte) uint64 {
	return egeHeader + 2*min(page(b).u64(offEGENum), 1<<16)
}

// Append appends the log: 8 bytes, and 2 a group.
func (l EnduranceGroupEvents) Append(b []byte) []byte {
	b, p := grow(b, egeHeader+2*len(l.Groups))
	p.put64(offEGENum, l.Announced)
	for i, id := range l.Groups {
		p.put16(egeHeader+2*i, id)
	}
	return b
}
