package sim

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"time"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// firmware is the slots and the image being downloaded.
type firmware struct {
	// Slots hold revisions, slot 1 first; empty is an empty slot.
	Slots []string `json:"slots"`
	// Running is the revision that runs, which stays the same when another
	// image is stored in its slot.
	Running string `json:"running"`
	// Active is the slot that runs now, Next the one that will run after a
	// reset; slots from 1, 0 for none.
	Active uint8 `json:"active"`
	Next   uint8 `json:"next"`
	// Parts are what has been downloaded, ascending by offset, none touching
	// another.
	Parts []firmwarePart `json:"parts"`
	// Defective are slots, from 1, ascending, whose image does not start: a reset
	// that should activate it leaves what ran before.
	Defective []uint8 `json:"defective,omitempty"`
	// BusyUntilNS is the end, on the drive's clock, of an activation without
	// reset: until then the controllers answer nothing.
	BusyUntilNS int64 `json:"busy_until_ns,omitempty"`
}

type firmwarePart struct {
	Offset uint32 `json:"offset"` // bytes
	Data   []byte `json:"data"`
}

// imageBytesMax bounds what may be downloaded.
const imageBytesMax = 16 << 20

// The event that tells of an activation without reset (NVMe Base 2.x,
// "Asynchronous Event Information - Notice"), and its bit in OAES and in the
// configuration of events.
const (
	infoFirmwareActivating = 1
	oaesFirmware           = 1 << 9
)

func factoryFirmware(p *Profile) firmware {
	f := firmware{Slots: make([]string, p.FirmwareSlots), Active: 1, Running: p.Firmware}
	f.Slots[0] = p.Firmware
	return f
}

func (f *firmware) clone() firmware {
	c := *f
	c.Slots = slices.Clone(f.Slots)
	c.Parts = slices.Clone(f.Parts) // their data is never changed in place
	c.Defective = slices.Clone(f.Defective)
	return c
}

// activateNext makes the pending slot the active one.
func (f *firmware) activateNext() {
	if f.Next != 0 {
		f.activate(f.Next)
	}
}

// activate makes a slot run, unless its image does not start.
func (f *firmware) activate(slot uint8) {
	f.Next = 0
	if slices.Contains(f.Defective, slot) {
		return
	}
	f.Active, f.Running = slot, f.Slots[slot-1]
}

// put stores an image in a slot.
func (f *firmware) put(slot uint8, image storedImage) {
	f.Slots[slot-1], f.Parts = image.revision, nil
	i, had := slices.BinarySearch(f.Defective, slot)
	switch {
	case image.defective && !had:
		f.Defective = slices.Insert(f.Defective, i, slot)
	case !image.defective && had:
		f.Defective = slices.Delete(f.Defective, i, i+1)
	}
}

// storedImage is what an image brings into a slot.
type storedImage struct {
	revision  string
	defective bool
}

func (f *firmware) validate(p *Profile) error {
	if len(f.Slots) != int(p.FirmwareSlots) || f.Active < 1 || int(f.Active) > len(f.Slots) || int(f.Next) > len(f.Slots) {
		return errors.New("firmware slots out of range")
	}
	if f.Running == "" || f.Slots[f.Active-1] == "" || f.Next != 0 && f.Slots[f.Next-1] == "" {
		return errors.New("an empty firmware slot is active")
	}
	for _, s := range append([]string{f.Running}, f.Slots...) {
		if len(s) > 8 || !printable(s) {
			return errors.New("a firmware revision is not 8 printable characters")
		}
	}
	for i, slot := range f.Defective {
		if slot < 1 || int(slot) > len(f.Slots) || i > 0 && slot <= f.Defective[i-1] {
			return errors.New("defective firmware slots out of order")
		}
	}
	end := uint64(0)
	for i, part := range f.Parts {
		if i > 0 && uint64(part.Offset) <= end || len(part.Data) == 0 {
			return errors.New("firmware parts overlap")
		}
		end = uint64(part.Offset) + uint64(len(part.Data))
	}
	if end > imageBytesMax {
		return errors.New("firmware image is too large")
	}
	return nil
}

// add puts downloaded data in its place; it is false where there is some already.
func (f *firmware) add(offset uint32, data []byte) bool {
	i := 0
	for i < len(f.Parts) && f.Parts[i].Offset < offset {
		i++
	}
	before := i > 0 && f.Parts[i-1].end() > offset
	after := i < len(f.Parts) && f.Parts[i].Offset < offset+uint32(len(data))
	if before || after {
		return false
	}
	f.Parts = slices.Insert(f.Parts, i, firmwarePart{Offset: offset, Data: bytes.Clone(data)})
	// Join what now touches, so that a whole image is one part.
	for j := min(i+1, len(f.Parts)-1); j >= max(i, 1); j-- {
		if a, b := f.Parts[j-1], f.Parts[j]; a.end() == b.Offset {
			f.Parts[j-1].Data = slices.Concat(a.Data, b.Data)
			f.Parts = slices.Delete(f.Parts, j, j+1)
		}
	}
	return true
}

func (p firmwarePart) end() uint32 { return p.Offset + uint32(len(p.Data)) }

// The image that simulated drives accept, little-endian:
//
//	0  8   magic
//	8  2   PCI vendor of the drives it is for
//	10 2   flags: bit 0, the image is accepted and does not start
//	12 4   length of the whole image
//	16 8   revision, padded with spaces
//	24     payload
//	       CRC-32 (IEEE) of all before it, 4 bytes
const (
	imageMagic     = "NVOPSIMF"
	imageHeadBytes = 24
	imageDefective = 1 << 0
)

// FirmwareImage makes an image that drives of the profile accept. revision
// is 1 to 8 printable characters; sizeBytes is the length of the image, at
// least 28, a multiple of 4.
func FirmwareImage(p Profile, revision string, sizeBytes int) ([]byte, error) {
	return firmwareImage(p, revision, sizeBytes, 0)
}

// DefectiveFirmwareImage makes an image that drives of the profile accept, store
// and stage, and that does not start: after the reset that should activate it the
// old revision runs, as has been seen of real drives (cases FW-07).
func DefectiveFirmwareImage(p Profile, revision string, sizeBytes int) ([]byte, error) {
	return firmwareImage(p, revision, sizeBytes, imageDefective)
}

func firmwareImage(p Profile, revision string, sizeBytes int, flags uint16) ([]byte, error) {
	if len(revision) < 1 || len(revision) > 8 || !printable(revision) {
		return nil, fmt.Errorf("firmware revision %q is not 1 to 8 printable characters", revision)
	}
	if sizeBytes < imageHeadBytes+4 || sizeBytes%4 != 0 || sizeBytes > imageBytesMax {
		return nil, fmt.Errorf("firmware image of %d bytes: must be a multiple of 4, from 28 to %d", sizeBytes, imageBytesMax)
	}
	b := make([]byte, 0, sizeBytes)
	b = append(b, imageMagic...)
	b = binary.LittleEndian.AppendUint16(b, p.VendorID)
	b = binary.LittleEndian.AppendUint16(b, flags)
	b = binary.LittleEndian.AppendUint32(b, uint32(sizeBytes))
	b = append(b, fmt.Sprintf("%-8s", revision)...)
	for i := len(b); i < sizeBytes-4; i++ {
		b = append(b, byte(uint32(i)*2654435761>>16)) // a payload that is not all alike
	}
	return binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b)), nil
}

// openImage checks an image and says what it brings.
func openImage(p *Profile, b []byte) (storedImage, bool) {
	if len(b) < imageHeadBytes+4 || string(b[:8]) != imageMagic || binary.LittleEndian.Uint16(b[8:]) != p.VendorID {
		return storedImage{}, false
	}
	flags, size := binary.LittleEndian.Uint16(b[10:]), binary.LittleEndian.Uint32(b[12:])
	if size < imageHeadBytes+4 || uint64(size) > uint64(len(b)) || flags&^imageDefective != 0 {
		return storedImage{}, false
	}
	// Only padding to the download granularity may follow the image.
	if len(bytes.Trim(b[size:], "\x00\xff")) != 0 {
		return storedImage{}, false
	}
	body := b[:size-4]
	if crc32.ChecksumIEEE(body) != binary.LittleEndian.Uint32(b[size-4:]) {
		return storedImage{}, false
	}
	revision := string(bytes.TrimRight(b[16:24], " "))
	return storedImage{revision, flags&imageDefective != 0}, revision != "" && printable(revision)
}

// downloadFirmware carries out Firmware Image Download.
func downloadFirmware(r *request) (uint32, nvmespec.Status) {
	length := (uint64(r.cmd.CDW10) + 1) * 4
	offset := uint64(r.cmd.CDW11) * 4
	if unit := uint64(r.profile().FirmwareGranularityBytes); unit != 0 && unit != 1<<32-1 {
		if offset%unit != 0 {
			return r.fail(nvmespec.StatusInvalidField, paramCDW10+4)
		}
		if length%unit != 0 {
			return r.fail(nvmespec.StatusInvalidField, paramCDW10)
		}
	}
	if length > uint64(len(r.cmd.Data)) {
		return r.fail(nvmespec.StatusDataTransfer, paramNone)
	}
	if offset+length > imageBytesMax {
		return r.fail(nvmespec.StatusInvalidField, paramCDW10+4)
	}
	return r.d.commit(func(st *state) (uint32, nvmespec.Status) {
		if !st.Firmware.add(uint32(offset), r.cmd.Data[:length]) {
			return r.fail(nvmespec.StatusOverlappingRange, paramCDW10+4)
		}
		return 0, nvmespec.StatusSuccess
	})
}

// commitFirmware carries out Firmware Commit.
func commitFirmware(r *request) (uint32, nvmespec.Status) {
	slot, action := uint8(r.cmd.CDW10&7), uint8(r.cmd.CDW10>>3&7)
	if r.cmd.CDW10>>31 != 0 || action > 3 {
		// No boot partitions.
		return r.fail(nvmespec.StatusInvalidField, paramCDW10)
	}
	p, st := r.profile(), r.state()
	store := action != 2
	if action == 3 && len(st.Firmware.Parts) == 0 {
		store = false // action 3 with no image downloaded activates the slot
	}
	slot, ok := st.Firmware.chooseSlot(p, slot, store)
	if !ok {
		return r.fail(nvmespec.StatusInvalidFirmwareSlot, paramCDW10)
	}
	image := storedImage{revision: st.Firmware.Slots[slot-1]}
	if store {
		if len(st.Firmware.Parts) == 1 && st.Firmware.Parts[0].Offset == 0 {
			image, ok = openImage(p, st.Firmware.Parts[0].Data)
		} else {
			ok = false
		}
		if !ok {
			r.d.dropImage()
			return r.fail(nvmespec.StatusInvalidFirmwareImage, paramNone)
		}
	}
	if image.revision == "" {
		return r.fail(nvmespec.StatusInvalidFirmwareSlot, paramCDW10)
	}
	if store && !r.spend(commitTakes) {
		return 0, nvmespec.StatusInternal
	}
	return r.d.commit(func(st *state) (uint32, nvmespec.Status) {
		if store {
			st.Firmware.put(slot, image)
		}
		return st.commitSlot(slot, action, int64(r.d.clock.Now()))
	})
}

// commitTakes is how long storing an image takes: chosen.
const commitTakes = 2 * time.Second

// activating lets the time pass in which an activation without reset stops the
// controllers: a command that comes meanwhile waits. The lock is held.
// Hosts over a network wait in their own time.
func (d *Drive) activating(ctx context.Context) error {
	for d.hosts != nil && d.st.Firmware.BusyUntilNS > int64(d.clock.Now()) {
		if err := d.wait(ctx, hostPoll); err != nil {
			return err
		}
		if err := d.gone(); err != nil {
			return err
		}
	}
	if until := d.st.Firmware.BusyUntilNS; until > int64(d.clock.Now()) {
		d.clock.AdvanceTo(nvmeioctl.Instant(until))
	}
	return nil
}

// hostPoll is how often a command that waits looks at the drive's clock, which
// others move.
const hostPoll = 50 * time.Millisecond

// dropImage forgets an image that was refused, as the specification demands.
func (d *Drive) dropImage() {
	d.st = d.st.clone()
	d.st.Firmware.Parts = nil
}

// chooseSlot finds the slot of a commit; 0 lets the controller choose.
func (f *firmware) chooseSlot(p *Profile, slot uint8, store bool) (uint8, bool) {
	if slot == 0 {
		if !store {
			return f.Active, true
		}
		// The first writable slot that does not run and will not.
		for s := uint8(1); s <= p.FirmwareSlots; s++ {
			if s != f.Active && s != f.Next && !(s == 1 && p.Slot1ReadOnly) {
				return s, true
			}
		}
		return f.Active, !(f.Active == 1 && p.Slot1ReadOnly)
	}
	if slot > p.FirmwareSlots || store && slot == 1 && p.Slot1ReadOnly {
		return 0, false
	}
	return slot, true
}

// commitSlot activates as the action says: 0 not, 1 and 2 at reset, 3 at once.
func (st *state) commitSlot(slot, action uint8, nowNS int64) (uint32, nvmespec.Status) {
	f := &st.Firmware
	switch {
	case action == 0:
		return 0, nvmespec.StatusSuccess
	case action == 3 && st.Profile.ActivatesWithoutReset && st.Options.FirmwareReset == ResetByController:
		f.activate(slot)
		f.BusyUntilNS = nowNS + int64(st.Profile.MaxActivation)
		st.firmwareActivating()
		return 0, nvmespec.StatusSuccess
	}
	f.Next = slot
	switch {
	case st.Options.FirmwareReset == ResetBySubsystem:
		return 0, nvmespec.StatusNeedsSubsystemReset
	case st.Options.FirmwareReset == ResetByPowerCycle:
		return 0, nvmespec.StatusNeedsReset
	case action == 3:
		return 0, nvmespec.StatusNeedsControllerReset
	}
	return 0, nvmespec.StatusSuccess
}

// firmwareActivating tells the controllers whose hosts asked for it.
func (st *state) firmwareActivating() {
	for i := range st.Controllers {
		if c := &st.Controllers[i]; c.feature(&st.Profile, featureEvents)&oaesFirmware != 0 {
			c.post(event{Type: eventNotice, Info: infoFirmwareActivating, LogPage: uint8(nvmespec.LogIDFirmware)})
		}
	}
}
