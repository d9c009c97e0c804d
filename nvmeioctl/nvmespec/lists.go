package nvmespec

import "fmt"

// Offsets of the UUID list (CNS 17h): entries of 32 bytes from byte 32 on.
const (
	offUUIDEntry  = 32
	uuidEntry     = 32
	offUUIDHeader = 0
	offUUIDUUID   = 16
	// UUIDsMax is how many UUIDs the list holds.
	UUIDsMax = 127
)

// UUIDEntry is one entry of the UUID list.
type UUIDEntry struct {
	// Index is what commands name the UUID by, 1..127.
	Index uint8 `json:"index"`
	// Association is bits 1:0 of the entry's header: 0 none in particular, 1 the
	// PCI vendor's, 2 the PCI subsystem vendor's.
	Association uint8 `json:"association"`
	UUID        GUID  `json:"uuid"`
}

// UUIDList is the UUID list (CNS 17h): which vendor's meaning of a vendor
// specific log or feature a command can ask for.
type UUIDList struct {
	Entries []UUIDEntry `json:"entries"`
}

// Find is the index of a UUID, 0 where the list has none.
func (l UUIDList) Find(uuid GUID) uint8 {
	for _, e := range l.Entries {
		if e.UUID == uuid {
			return e.Index
		}
	}
	return 0
}

// DecodeUUIDList reads the list; the first entry without a UUID ends it.
func DecodeUUIDList(b []byte) (UUIDList, error) {
	p, err := view(b, IdentifySize, "UUID list")
	if err != nil {
		return UUIDList{}, err
	}
	l := UUIDList{Entries: []UUIDEntry{}}
	for i := range UUIDsMax {
		e := page(p.bytes(offUUIDEntry+uuidEntry*i, uuidEntry))
		u := UUIDEntry{Index: uint8(i + 1), Association: e.u8(offUUIDHeader) & 3}
		copy(u.UUID[:], e.bytes(offUUIDUUID, len(u.UUID)))
		if u.UUID.IsZero() {
			break
		}
		l.Entries = append(l.Entries, u)
	}
	return l, nil
}

// Append appends the 4096 bytes of the list; entries are written by their place.
func (l UUIDList) Append(b []byte) []byte {
	b, p := grow(b, IdentifySize)
	for i, u := range l.Entries[:min(len(l.Entries), UUIDsMax)] {
		e := page(p.bytes(offUUIDEntry+uuidEntry*i, uuidEntry))
		e.put8(offUUIDHeader, u.Association&3)
		copy(e.bytes(offUUIDUUID, len(u.UUID)), u.UUID[:])
	}
	return b
}

// Offsets of the domain list (CNS 18h): a count, and entries of 128 bytes from
// byte 128 on.
const (
	offDomNum   = 0
	offDomEntry = 128
	domEntry    = 128
	offDomID    = 0
	offDomCap   = 16
	offDomUnal  = 32
	offDomMaxEG = 48
	domainsMax  = 31
)

// Domain is one domain of the subsystem.
type Domain struct {
	ID uint16 `json:"domain_id"`
	// CapacityBytes, UnallocatedBytes and EnduranceGroupBytesMax are the domain's
	// capacity, what of it is free, and the largest endurance group in it.
	CapacityBytes          Uint128 `json:"capacity_bytes"`
	UnallocatedBytes       Uint128 `json:"unallocated_bytes"`
	EnduranceGroupBytesMax Uint128 `json:"endurance_group_bytes_max"`
}

// DomainList is the domain list (CNS 18h), at most 31 domains above the
// identifier asked for.
type DomainList struct {
	Domains []Domain `json:"domains"`
}

// DecodeDomainList reads the list.
func DecodeDomainList(b []byte) (DomainList, error) {
	p, err := view(b, IdentifySize, "domain list")
	if err != nil {
		return DomainList{}, err
	}
	n := int(p.u8(offDomNum))
	if n > domainsMax {
		return DomainList{}, fmt.Errorf("domain list: %w: %d entries, at most %d fit", ErrInvalidData, n, domainsMax)
	}
	l := DomainList{Domains: []Domain{}}
	for i := range n {
		e := page(p.bytes(offDomEntry+domEntry*i, domEntry))
		l.Domains = append(l.Domains, Domain{ID: e.u16(offDomID), CapacityBytes: e.u128(offDomCap),
			UnallocatedBytes: e.u128(offDomUnal), EnduranceGroupBytesMax: e.u128(offDomMaxEG)})
	}
	return l, nil
}

// Append appends the 4096 bytes of the list.
func (l DomainList) Append(b []byte) []byte {
	b, p := grow(b, IdentifySize)
	domains := l.Domains[:min(len(l.Domains), domainsMax)]
	p.put8(offDomNum, uint8(len(domains)))
	for i, d := range domains {
		e := page(p.bytes(offDomEntry+domEntry*i, domEntry))
		e.put16(offDomID, d.ID)
		e.put128(offDomCap, d.CapacityBytes)
		e.put128(offDomUnal, d.UnallocatedBytes)
		e.put128(offDomMaxEG, d.EnduranceGroupBytesMax)
	}
	return b
}

// EnduranceGroupList is the endurance group list (CNS 19h): the identifiers of
// groups, ascending, in the layout of a controller list.
type EnduranceGroupList struct {
	Groups []uint16 `json:"endurance_group_ids"`
}

// DecodeEnduranceGroupList reads the list.
func DecodeEnduranceGroupList(b []byte) (EnduranceGroupList, error) {
	ids, err := DecodeControllerList(b)
	if err != nil {
		return EnduranceGroupList{}, fmt.Errorf("endurance group list: %w", err)
	}
	return EnduranceGroupList{Groups: append([]uint16{}, ids...)}, nil
}

// Append appends the 4096 bytes of the list.
func (l EnduranceGroupList) Append(b []byte) []byte { return AppendControllerList(b, l.Groups) }

// Offsets of the NVM set list (CNS 04h): a count, and entries of 128 bytes from
// byte 128 on.
const (
	offSetNum   = 0
	offSetEntry = 128
	setEntry    = 128
	offSetID    = 0
	offSetEG    = 2
	offSetRR4KT = 8
	offSetOWS   = 12
	offSetTotal = 16
	offSetUnal  = 32
	nvmSetsMax  = 31
)

// NVMSet is one NVM set.
type NVMSet struct {
	ID               uint16 `json:"nvm_set_id"`
	EnduranceGroupID uint16 `json:"endurance_group_id"`
	// RandomRead4KNanoseconds is the typical time of a random read of 4 KiB, in
	// nanoseconds (100 ns units on the wire); 0 is not reported.
	RandomRead4KNanoseconds uint64 `json:"random_read_4k_nanoseconds"`
	// OptimalWriteBytes is OWS.
	OptimalWriteBytes uint32  `json:"optimal_write_bytes"`
	CapacityBytes     Uint128 `json:"capacity_bytes"`
	UnallocatedBytes  Uint128 `json:"unallocated_bytes"`
}

// NVMSetList is the NVM set list (CNS 04h), at most 31 sets.
type NVMSetList struct {
	Sets []NVMSet `json:"nvm_sets"`
}

// DecodeNVMSetList reads the list.
func DecodeNVMSetList(b []byte) (NVMSetList, error) {
	p, err := view(b, IdentifySize, "NVM set list")
	if err != nil {
		return NVMSetList{}, err
	}
	n := int(p.u8(offSetNum))
	if n > nvmSetsMax {
		return NVMSetList{}, fmt.Errorf("NVM set list: %w: %d entries, at most %d fit", ErrInvalidData, n, nvmSetsMax)
	}
	l := NVMSetList{Sets: []NVMSet{}}
	for i := range n {
		e := page(p.bytes(offSetEntry+setEntry*i, setEntry))
		l.Sets = append(l.Sets, NVMSet{ID: e.u16(offSetID), EnduranceGroupID: e.u16(offSetEG),
			RandomRead4KNanoseconds: uint64(e.u32(offSetRR4KT)) * 100, OptimalWriteBytes: e.u32(offSetOWS),
			CapacityBytes: e.u128(offSetTotal), UnallocatedBytes: e.u128(offSetUnal)})
	}
	return l, nil
}

// Append appends the 4096 bytes of the list.
func (l NVMSetList) Append(b []byte) []byte {
	b, p := grow(b, IdentifySize)
	sets := l.Sets[:min(len(l.Sets), nvmSetsMax)]
	p.put8(offSetNum, uint8(len(sets)))
	for i, s := range sets {
		e := page(p.bytes(offSetEntry+setEntry*i, setEntry))
		e.put16(offSetID, s.ID)
		e.put16(offSetEG, s.EnduranceGroupID)
		e.put32(offSetRR4KT, clip32(s.RandomRead4KNanoseconds/100))
		e.put32(offSetOWS, s.OptimalWriteBytes)
		e.put128(offSetTotal, s.CapacityBytes)
		e.put128(offSetUnal, s.UnallocatedBytes)
	}
	return b
}

// Offsets of the primary controller capabilities (CNS 14h).
const (
	offPriCNTLID = 0
	offPriPORTID = 2
	offPriCRT    = 4
	offPriVQ     = 32
	offPriVI     = 64
	offResFRT    = 0
	offResRFA    = 4
	offResRFAP   = 8
	offResPRT    = 10
	offResFRSM   = 12
	offResGRAN   = 14
	resourceSize = 16
)

// FlexibleResources are the queue or interrupt resources that a primary
// controller may give to its secondary ones.
type FlexibleResources struct {
	Total             uint32 `json:"total"`
	Assigned          uint32 `json:"assigned"`
	AllocatedPrimary  uint16 `json:"allocated_to_primary"`
	PrivateTotal      uint16 `json:"private_total"`
	SecondaryMax      uint16 `json:"secondary_max"`
	PreferredGranular uint16 `json:"preferred_granularity"`
}

func decodeResources(b []byte) FlexibleResources {
	p := page(b)
	return FlexibleResources{p.u32(offResFRT), p.u32(offResRFA), p.u16(offResRFAP), p.u16(offResPRT), p.u16(offResFRSM), p.u16(offResGRAN)}
}

func (r FlexibleResources) put(b []byte) {
	p := page(b)
	p.put32(offResFRT, r.Total)
	p.put32(offResRFA, r.Assigned)
	p.put16(offResRFAP, r.AllocatedPrimary)
	p.put16(offResPRT, r.PrivateTotal)
	p.put16(offResFRSM, r.SecondaryMax)
	p.put16(offResGRAN, r.PreferredGranular)
}

// PrimaryController is the primary controller capabilities structure (CNS 14h).
type PrimaryController struct {
	ControllerID uint16 `json:"controller_id"`
	PortID       uint16 `json:"port_id"`
	// ResourceTypes is CRT: bit 0 queues, bit 1 interrupts are flexible.
	ResourceTypes uint8             `json:"resource_types_raw"`
	Queues        FlexibleResources `json:"queues"`
	Interrupts    FlexibleResources `json:"interrupts"`
}

// DecodePrimaryController reads the structure.
func DecodePrimaryController(b []byte) (PrimaryController, error) {
	p, err := view(b, IdentifySize, "primary controller capabilities")
	if err != nil {
		return PrimaryController{}, err
	}
	return PrimaryController{ControllerID: p.u16(offPriCNTLID), PortID: p.u16(offPriPORTID), ResourceTypes: p.u8(offPriCRT),
		Queues: decodeResources(p.bytes(offPriVQ, resourceSize)), Interrupts: decodeResources(p.bytes(offPriVI, resourceSize))}, nil
}

// Append appends the 4096 bytes of the structure.
func (c PrimaryController) Append(b []byte) []byte {
	b, p := grow(b, IdentifySize)
	p.put16(offPriCNTLID, c.ControllerID)
	p.put16(offPriPORTID, c.PortID)
	p.put8(offPriCRT, c.ResourceTypes)
	c.Queues.put(p.bytes(offPriVQ, resourceSize))
	c.Interrupts.put(p.bytes(offPriVI, resourceSize))
	return b
}

// Offsets of the secondary controller list (CNS 15h): a count, and entries of 32
// bytes from byte 32 on.
const (
	offSecNum    = 0
	offSecEntry  = 32
	secEntry     = 32
	offSecSCID   = 0
	offSecPCID   = 2
	offSecSCS    = 4
	offSecVFN    = 8
	offSecNVQ    = 10
	offSecNVI    = 12
	secondaryMax = 127
)

// SecondaryController is one secondary controller.
type SecondaryController struct {
	ControllerID        uint16 `json:"controller_id"`
	PrimaryControllerID uint16 `json:"primary_controller_id"`
	// Online is SCS bit 0.
	Online bool `json:"online"`
	// VirtualFunction is its number on the PCI function; 0 for none.
	VirtualFunction uint16 `json:"virtual_function"`
	Queues          uint16 `json:"queues"`
	Interrupts      uint16 `json:"interrupts"`
}

// SecondaryControllerList is the secondary controller list (CNS 15h), at most 127.
type SecondaryControllerList struct {
	Controllers []SecondaryController `json:"secondary_controllers"`
}

// DecodeSecondaryControllerList reads the list.
func DecodeSecondaryControllerList(b []byte) (SecondaryControllerList, error) {
	p, err := view(b, IdentifySize, "secondary controller list")
	if err != nil {
		return SecondaryControllerList{}, err
	}
	n := int(p.u8(offSecNum))
	if n > secondaryMax {
		return SecondaryControllerList{}, fmt.Errorf("secondary controller list: %w: %d entries, at most %d fit", ErrInvalidData, n, secondaryMax)
	}
	l := SecondaryControllerList{Controllers: []SecondaryController{}}
	for i := range n {
		e := page(p.bytes(offSecEntry+secEntry*i, secEntry))
		l.Controllers = append(l.Controllers, SecondaryController{ControllerID: e.u16(offSecSCID), PrimaryControllerID: e.u16(offSecPCID),
			Online: e.u8(offSecSCS)&1 != 0, VirtualFunction: e.u16(offSecVFN), Queues: e.u16(offSecNVQ), Interrupts: e.u16(offSecNVI)})
	}
	return l, nil
}

// Append appends the 4096 bytes of the list.
func (l SecondaryControllerList) Append(b []byte) []byte {
	b, p := grow(b, IdentifySize)
	list := l.Controllers[:min(len(l.Controllers), secondaryMax)]
	p.put8(offSecNum, uint8(len(list)))
	for i, c := range list {
		e := page(p.bytes(offSecEntry+secEntry*i, secEntry))
		e.put16(offSecSCID, c.ControllerID)
		e.put16(offSecPCID, c.PrimaryControllerID)
		e.put8(offSecSCS, bit8(c.Online, 0))
		e.put16(offSecVFN, c.VirtualFunction)
		e.put16(offSecNVQ, c.Queues)
		e.put16(offSecNVI, c.Interrupts)
	}
	return b
}

// commandSetsMax is how many combinations the list of I/O command sets holds.
const commandSetsMax = 512

// CommandSetCombinations is the Identify I/O Command Set structure (CNS 1Ch): which
// I/O command sets can be used together, each as bits (0 NVM, 1 key value, 2
// zoned, 3 subsystem local memory, 4 computational programs).
type CommandSetCombinations struct {
	Combinations []uint64 `json:"combinations"`
}

// DecodeCommandSetCombinations reads the list; the first empty entry ends it.
func DecodeCommandSetCombinations(b []byte) (CommandSetCombinations, error) {
	p, err := view(b, IdentifySize, "I/O command sets")
	if err != nil {
		return CommandSetCombinations{}, err
	}
	c := CommandSetCombinations{Combinations: []uint64{}}
	for i := range commandSetsMax {
		v := p.u64(8 * i)
		if v == 0 {
			break
		}
		c.Combinations = append(c.Combinations, v)
	}
	return c, nil
}

// Append appends the 4096 bytes of the list.
func (c CommandSetCombinations) Append(b []byte) []byte {
	b, p := grow(b, IdentifySize)
	for i, v := range c.Combinations[:min(len(c.Combinations), commandSetsMax)] {
		p.put64(8*i, v)
	}
	return b
}
