package sim

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"nvop/nvmeioctl/nvmespec"
)

// maxControllers bounds the controllers of a subsystem; namespace attachments
// are kept as a bit a controller.
const maxControllers = 8

// state is everything about a drive but its flash: what a power cut must not
// lose, and what it may lose but the end of a process must not. It is plain
// data; commands change it through Drive.commit only.
type state struct {
	Profile Profile `json:"profile"`
	Options Options `json:"options"`
	// NowNS is the drive's clock at the time of saving, nanoseconds.
	NowNS      int64  `json:"now_ns"`
	Checkpoint uint64 `json:"checkpoint"`

	// IdentifiersUsed counts the namespace identifiers handed out, so that
	// none is given twice.
	IdentifiersUsed uint64 `json:"identifiers_used"`
	// Namespaces that exist, ascending by NSID.
	Namespaces  []namespace       `json:"namespaces"`
	Controllers []controllerState `json:"controllers"`
	Firmware    firmware          `json:"firmware"`
	Errors      errorLog          `json:"errors"`
	SelfTest    selfTest          `json:"self_test"`
	Sanitize    sanitize          `json:"sanitize"`
	Telemetry   telemetry         `json:"telemetry"`
	Persistent  persistent        `json:"persistent_events"`

	// Faults are what the drive was told to suffer.
	Faults faultState `json:"faults,omitzero"`

	PowerCycles     uint64 `json:"power_cycles"`
	UnsafeShutdowns uint64 `json:"unsafe_shutdowns"`
	// PercentUsed is the percentage used as of UsedHour, the power-on hour of
	// its last update: drives update it once an hour.
	PercentUsed uint8  `json:"percent_used"`
	UsedHour    uint64 `json:"used_hour"`
}

// namespace is one namespace that exists.
type namespace struct {
	NSID       uint32 `json:"nsid"`
	SizeBlocks uint64 `json:"size_blocks"`
	// AllocatedBytes is what it takes from the drive's capacity (NVMCAP).
	AllocatedBytes uint64 `json:"allocated_bytes"`
	FormatIndex    uint8  `json:"format_index"`
	// ExtendedMetadata, Protection and Shared are FLBAS bit 4, DPS and NMIC bit 0.
	ExtendedMetadata bool                `json:"extended_metadata"`
	Protection       nvmespec.Protection `json:"protection"`
	Shared           bool                `json:"shared"`
	NGUID            nvmespec.GUID       `json:"nguid"`
	EUI64            nvmespec.EUI64      `json:"eui64"`
	// Attached has bit i set where controller i has it attached.
	Attached uint8 `json:"attached"`
}

// sizeBytes is the user data of the namespace.
func (n *namespace) sizeBytes(p *Profile) uint64 {
	return n.SizeBlocks * uint64(p.Formats[n.FormatIndex].DataBytes)
}

// controllerState is what one controller of the subsystem keeps.
type controllerState struct {
	// Current and Saved are the values of features that were set; a feature
	// not in Current has its saved value, one not in Saved its default.
	Current []featureValue `json:"current"`
	Saved   []featureValue `json:"saved"`
	// ChangedNamespaces is the changed namespace list, ascending.
	ChangedNamespaces []uint32 `json:"changed_namespaces"`
	// Events waiting to be delivered, oldest first; Masked has the log pages
	// whose events are held back until the page is read.
	Events []event `json:"events"`
	Masked []uint8 `json:"masked"`
	// Operational is the last operational power state, to which a command brings
	// the controller back.
	Operational uint8 `json:"operational_state,omitempty"`
	// ResetNS is the drive's clock at the last reset: timestamps count from it.
	ResetNS int64 `json:"reset_ns"`
	// Host is the network host that had the controller last.
	Host networkHost `json:"host,omitzero"`
}

// networkHost is a host of NVMe over Fabrics; its NQN is empty if there was none.
type networkHost struct {
	NQN string   `json:"nqn"`
	ID  [16]byte `json:"id"`
}

// event is an asynchronous event.
type event struct {
	Type    uint8 `json:"type"`
	Info    uint8 `json:"info"`
	LogPage uint8 `json:"log_page"`
}

// newState is a drive as it is delivered.
func newState(p Profile, o Options) (*state, error) {
	o, err := completeOptions(p, o)
	if err != nil {
		return nil, err
	}
	if o.AllocationBytes != 0 {
		p.AllocationBytes, p.ReportsGranularity = o.AllocationBytes, true
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	st := &state{Profile: p, Options: o, PowerCycles: 1}
	st.Controllers = make([]controllerState, o.Controllers)
	st.Firmware = factoryFirmware(&st.Profile)
	block := uint64(p.Formats[p.FactoryFormat].DataBytes)
	ns := namespace{
		NSID: 1, SizeBlocks: (p.CapacityBytes - o.ReservedBytes) / block,
		AllocatedBytes: p.CapacityBytes - o.ReservedBytes, FormatIndex: p.FactoryFormat,
		Shared: o.Controllers > 1, Attached: uint8(1<<o.Controllers - 1),
	}
	st.identify(&ns)
	st.Namespaces = []namespace{ns}
	return st, st.validate()
}

// DefaultSerial is the serial number of a drive that was given none. Drives of
// one model and seed are told apart by name, which is that of their file; drives
// in memory have none.
func (p *Profile) DefaultSerial(seed uint64, name string) string {
	what := fmt.Appendf(nil, "serial %s %d", p.Name, seed)
	if name != "" {
		what = fmt.Appendf(what, " %s", name)
	}
	sum := sha256.Sum256(what)
	return p.SerialPrefix + strings.ToUpper(hex.EncodeToString(sum[:5]))
}

// ErrOptions is an option that no drive can be made with: what is asked for is
// wrong, not the place where it is to be.
var ErrOptions = errors.New("no drive can be made like that")

// completeOptions fills in defaults and refuses what cannot be; the error wraps
// [ErrOptions].
func completeOptions(p Profile, o Options) (Options, error) {
	if o.Controllers == 0 {
		o.Controllers = 1
	}
	if o.Start.IsZero() {
		o.Start = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	o.Start = o.Start.UTC().Round(0)
	if o.Serial == "" {
		o.Serial = p.DefaultSerial(o.Seed, "")
	}
	switch {
	case o.Controllers < 1 || o.Controllers > maxControllers:
		return o, fmt.Errorf("%w: controllers: %d is not 1 to %d", ErrOptions, o.Controllers, maxControllers)
	case len(o.Serial) > 20 || !printable(o.Serial) || strings.TrimSpace(o.Serial) != o.Serial:
		return o, fmt.Errorf("%w: serial number %q is not 1 to 20 printable characters", ErrOptions, o.Serial)
	case o.Start.Year() < 1970 || o.Start.Year() > 9999:
		return o, fmt.Errorf("%w: start: the year %d is not 1970 to 9999", ErrOptions, o.Start.Year())
	case o.ReservedBytes >= p.CapacityBytes:
		return o, fmt.Errorf("%w: reserved: %d bytes is all of the capacity", ErrOptions, o.ReservedBytes)
	case o.Contents > ContentsBlocks:
		return o, fmt.Errorf("%w: contents: %d is no mode", ErrOptions, o.Contents)
	case o.FirmwareReset > ResetByPowerCycle:
		return o, fmt.Errorf("%w: firmware reset: %d is no kind of reset", ErrOptions, o.FirmwareReset)
	}
	return o, nil
}

// identify gives a namespace identifiers that no other had before.
func (st *state) identify(ns *namespace) {
	st.IdentifiersUsed++
	sum := sha256.Sum256(fmt.Appendf(nil, "namespace %s %d %d", st.Options.Serial, st.Options.Seed, st.IdentifiersUsed))
	oui := [3]byte{byte(st.Profile.OUI >> 16), byte(st.Profile.OUI >> 8), byte(st.Profile.OUI)}
	// NGUID is 8 bytes of vendor extension, the OUI and 5 bytes; EUI64 is the
	// OUI and 5 bytes.
	copy(ns.NGUID[:8], sum[:8])
	copy(ns.NGUID[8:], oui[:])
	copy(ns.NGUID[11:], sum[8:13])
	copy(ns.EUI64[:], oui[:])
	copy(ns.EUI64[3:], sum[16:21])
}

// unallocatedBytes is UNVMCAP.
func (st *state) unallocatedBytes() uint64 {
	free := st.Profile.CapacityBytes
	for i := range st.Namespaces {
		free -= st.Namespaces[i].AllocatedBytes
	}
	return free
}

// find gives the namespace with an NSID, or nil.
func (st *state) find(nsid uint32) *namespace {
	i, ok := slices.BinarySearchFunc(st.Namespaces, nsid, func(n namespace, id uint32) int {
		return int(int64(n.NSID) - int64(id))
	})
	if !ok {
		return nil
	}
	return &st.Namespaces[i]
}

// clone is a copy that shares nothing which a command changes.
func (st *state) clone() *state {
	c := *st
	c.Namespaces = slices.Clone(st.Namespaces)
	c.Controllers = slices.Clone(st.Controllers)
	for i := range c.Controllers {
		k := &c.Controllers[i]
		k.Current, k.Saved = slices.Clone(k.Current), slices.Clone(k.Saved)
		k.ChangedNamespaces = slices.Clone(k.ChangedNamespaces)
		k.Events, k.Masked = slices.Clone(k.Events), slices.Clone(k.Masked)
	}
	c.Firmware = st.Firmware.clone()
	c.Faults = st.Faults.clone()
	c.Errors.Entries = slices.Clone(st.Errors.Entries)
	c.SelfTest.Results = slices.Clone(st.SelfTest.Results)
	c.Persistent.Events = slices.Clone(st.Persistent.Events)
	return &c
}

// hostNQNMax is the longest NVMe qualified name.
const hostNQNMax = 223

// validate says which promise the state breaks. States read from a file are
// checked with it; so are those that tests make.
func (st *state) validate() error {
	if err := st.Profile.Validate(); err != nil {
		return err
	}
	if o, err := completeOptions(st.Profile, st.Options); err != nil {
		return err
	} else if o != st.Options {
		return errors.New("options are not complete")
	}
	if st.NowNS < 0 || len(st.Controllers) != st.Options.Controllers {
		return errors.New("clock or controllers out of range")
	}
	var sum, last uint64
	seen := map[nvmespec.GUID]bool{}
	for i := range st.Namespaces {
		ns := &st.Namespaces[i]
		if err := st.validateNamespace(ns); err != nil {
			return fmt.Errorf("namespace %d: %w", ns.NSID, err)
		}
		if uint64(ns.NSID) <= last || seen[ns.NGUID] {
			return fmt.Errorf("namespace %d: out of order, or its identifier is taken", ns.NSID)
		}
		last, seen[ns.NGUID] = uint64(ns.NSID), true
		sum += ns.AllocatedBytes
		if sum > st.Profile.CapacityBytes {
			return errors.New("namespaces exceed the capacity")
		}
	}
	for i := range st.Controllers {
		if err := st.Controllers[i].validate(&st.Profile); err != nil {
			return fmt.Errorf("controller %d: %w", i, err)
		}
	}
	if err := st.Firmware.validate(&st.Profile); err != nil {
		return err
	}
	if err := st.Faults.compile(); err != nil {
		return err
	}
	if len(st.Errors.Entries) > st.Profile.ErrorLogEntries || len(st.SelfTest.Results) > maxSelfTestResults {
		return errors.New("too many log entries")
	}
	return errors.Join(st.Sanitize.validate(), st.Telemetry.Host.validate(), st.Telemetry.Controller.validate(), st.Persistent.validate())
}

func (st *state) validateNamespace(ns *namespace) error {
	p := &st.Profile
	switch {
	case ns.NSID < 1 || ns.NSID > p.MaxNamespaces:
		return errors.New("not a valid number")
	case int(ns.FormatIndex) >= len(p.Formats):
		return errors.New("its format does not exist")
	case ns.SizeBlocks == 0 || ns.SizeBlocks > ns.AllocatedBytes/uint64(p.Formats[ns.FormatIndex].DataBytes):
		return errors.New("it is larger than what is allocated, or empty")
	case ns.AllocatedBytes > p.CapacityBytes:
		return errors.New("it is larger than the drive")
	case int(ns.Attached) >= 1<<st.Options.Controllers:
		return errors.New("attached to a controller that does not exist")
	case !ns.Shared && ns.Attached&(ns.Attached-1) != 0:
		return errors.New("private and attached to several controllers")
	case checkProtection(p.Formats[ns.FormatIndex], ns.Protection) != 0:
		return errors.New("its protection does not fit its format")
	}
	return nil
}

func (c *controllerState) validate(p *Profile) error {
	for _, values := range [][]featureValue{c.Current, c.Saved} {
		for i, v := range values {
			if i > 0 && compareFeatures(values[i-1], v) >= 0 {
				return errors.New("features are out of order")
			}
			if spec, ok := lookupFeature(p, v.FID); !ok || len(v.Data) != spec.dataBytes {
				return fmt.Errorf("feature %02xh: not one of this model, or of another length", v.FID)
			}
			if v.FID == featurePower && int(v.Value&0x1F) >= len(p.PowerStates) || v.FID == featureVendorPower && int64(v.Value) >= int64(len(p.PowerStates)) {
				return errors.New("power state does not exist")
			}
		}
	}
	if len(c.Host.NQN) > hostNQNMax || !printable(c.Host.NQN) {
		return errors.New("the name of its host is not possible")
	}
	if len(c.ChangedNamespaces) > maxChangedNamespaces || !slices.IsSorted(c.ChangedNamespaces) || len(c.Events) > 256 || len(c.Masked) > 256 {
		return errors.New("event lists out of range")
	}
	return nil
}

// The state file. Every integer is little-endian.
//
//	0   8   magic
//	8   4   version of the format
//	12  4   number of sections
//	16  4   CRC-32 (IEEE) of bytes 0 to 15
//	20  4   zero
//	24      one entry a section: name[8], length u64, sha256[32]
//	        sha256 of all entries
//	        the sections, one after the other; nothing follows
//
// Bytes 0 to 19 stay as they are in every version, so that an older program
// can tell a newer file from a damaged one.
const (
	stateMagic     = "nvopsim\x00"
	stateVersion   = 1
	stateHeadBytes = 24
	sectionBytes   = 48
	sectionsMax    = 16
)

// The sections: the admin state as JSON, and what the media made.
const (
	sectionAdmin = "admin"
	sectionFlash = "flash"
)

// encodeState makes the bytes of a state file.
func encodeState(st *state, flash []byte) ([]byte, error) {
	admin, err := json.Marshal(st)
	if err != nil {
		return nil, fmt.Errorf("encode the state: %w", err)
	}
	sections := []struct {
		name string
		body []byte
	}{{sectionAdmin, admin}, {sectionFlash, flash}}

	size := stateHeadBytes + len(sections)*sectionBytes + sha256.Size + len(admin) + len(flash)
	b := make([]byte, 0, size)
	b = append(b, stateMagic...)
	b = binary.LittleEndian.AppendUint32(b, stateVersion)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(sections)))
	b = binary.LittleEndian.AppendUint32(b, crc(b))
	b = binary.LittleEndian.AppendUint32(b, 0)
	for _, s := range sections {
		var name [8]byte
		copy(name[:], s.name)
		b = append(b, name[:]...)
		b = binary.LittleEndian.AppendUint64(b, uint64(len(s.body)))
		sum := sha256.Sum256(s.body)
		b = append(b, sum[:]...)
	}
	sum := sha256.Sum256(b[stateHeadBytes:])
	b = append(b, sum[:]...)
	for _, s := range sections {
		b = append(b, s.body...)
	}
	return b, nil
}

// decodeState is the inverse of encodeState. Its errors are *StateError
// without a path.
func decodeState(b []byte) (*state, []byte, error) {
	sections, err := splitState(b)
	if err != nil {
		return nil, nil, err
	}
	admin, ok := sections[sectionAdmin]
	if !ok {
		return nil, nil, damaged("it has no admin section")
	}
	st, err := decodeAdmin(admin)
	if err != nil {
		return nil, nil, damaged("admin section: " + err.Error())
	}
	return st, sections[sectionFlash], nil
}

// splitState checks the frame and gives the sections by name.
func splitState(b []byte) (map[string][]byte, error) {
	if n := min(len(b), len(stateMagic)); string(b[:n]) != stateMagic[:n] {
		return nil, &StateError{Kind: NotAState, Detail: "it does not begin as one"}
	}
	if len(b) < stateHeadBytes {
		return nil, truncated(len(b), stateHeadBytes)
	}
	if binary.LittleEndian.Uint32(b[16:]) != crc(b[:16]) {
		return nil, damaged("the checksum of its first bytes does not match")
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != stateVersion {
		return nil, &StateError{Kind: NewerState, Detail: fmt.Sprintf("format %d, this program knows format %d", v, stateVersion)}
	}
	n := int64(binary.LittleEndian.Uint32(b[12:]))
	if n < 1 || n > sectionsMax || binary.LittleEndian.Uint32(b[20:]) != 0 {
		return nil, damaged("its header is not possible")
	}
	tableEnd := stateHeadBytes + n*sectionBytes
	if int64(len(b)) < tableEnd+sha256.Size {
		return nil, truncated(len(b), int(tableEnd+sha256.Size))
	}
	table := b[stateHeadBytes:tableEnd]
	if sum := sha256.Sum256(table); !bytes.Equal(sum[:], b[tableEnd:tableEnd+sha256.Size]) {
		return nil, damaged("the checksum of its table does not match")
	}
	return readSections(b, table, uint64(tableEnd+sha256.Size))
}

// readSections takes the sections that table lists from b.
func readSections(b, table []byte, at uint64) (map[string][]byte, error) {
	sections := map[string][]byte{}
	end := at
	for t := table; len(t) > 0; t = t[sectionBytes:] {
		length := binary.LittleEndian.Uint64(t[8:])
		if length > 1<<40 {
			return nil, damaged("a section is impossibly long")
		}
		end += length
	}
	if end > uint64(len(b)) {
		return nil, truncated(len(b), int(end))
	}
	if end < uint64(len(b)) {
		return nil, damaged(fmt.Sprintf("%d bytes follow its end", uint64(len(b))-end))
	}
	for t := table; len(t) > 0; t = t[sectionBytes:] {
		name := strings.TrimRight(string(t[:8]), "\x00")
		length := binary.LittleEndian.Uint64(t[8:])
		body := b[at : at+length : at+length]
		at += length
		if sum := sha256.Sum256(body); !bytes.Equal(sum[:], t[16:sectionBytes]) {
			return nil, damaged(fmt.Sprintf("the checksum of section %q does not match", name))
		}
		if _, dup := sections[name]; dup {
			return nil, damaged(fmt.Sprintf("section %q is there twice", name))
		}
		sections[name] = body
	}
	return sections, nil
}

// decodeAdmin reads and checks the admin section.
func decodeAdmin(b []byte) (*state, error) {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	st := new(state)
	if err := dec.Decode(st); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("something follows its end")
	}
	return st, st.validate()
}
