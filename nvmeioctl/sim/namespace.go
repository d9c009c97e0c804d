package sim

import (
	"math/bits"
	"slices"
	"time"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// allocated checks an NSID that must belong to a namespace that exists.
func (r *request) allocated(nsid uint32) (*namespace, nvmespec.Status) {
	if nsid == 0 || nsid > r.profile().MaxNamespaces {
		_, s := r.fail(nvmespec.StatusInvalidNamespace, paramNSID)
		return nil, s
	}
	ns := r.state().find(nsid)
	if ns == nil {
		// A valid NSID without a namespace is an invalid field, not an
		// invalid namespace (NVMe Base 2.x, "Namespace Identifier Usage").
		_, s := r.fail(nvmespec.StatusInvalidField, paramNSID)
		return nil, s
	}
	return ns, nvmespec.StatusSuccess
}

// active says that the namespace is attached to the controller of the request.
func (r *request) active(nsid uint32) bool {
	ns := r.state().find(nsid)
	return ns != nil && ns.Attached>>r.c&1 != 0
}

// manageNamespaces carries out Namespace Management.
func manageNamespaces(r *request) (uint32, nvmespec.Status) {
	switch r.cmd.CDW10 & 0xF {
	case 0:
		return createNamespace(r)
	case 1:
		if r.cmd.CDW11 != 0 {
			return r.fail(nvmespec.StatusInvalidField, paramCDW10+4)
		}
		return deleteNamespaces(r)
	}
	return r.fail(nvmespec.StatusInvalidField, paramCDW10)
}

func createNamespace(r *request) (uint32, nvmespec.Status) {
	if r.cmd.NSID != 0 {
		return r.fail(nvmespec.StatusInvalidField, paramNSID)
	}
	if r.cmd.CDW11>>24 != 0 {
		return r.fail(nvmespec.StatusCommandSetUnsupported, paramCDW10+7)
	}
	if len(r.cmd.Data) < dataBytes {
		return r.fail(nvmespec.StatusDataTransfer, paramNone)
	}
	want, err := nvmespec.DecodeNamespaceCreate(r.cmd.Data)
	if err != nil || !nvmespec.NamespaceCreateReservedClear(r.cmd.Data) {
		return r.fail(nvmespec.StatusInvalidField, paramNone)
	}
	ns, s := r.newNamespace(want)
	if s != 0 {
		return 0, s
	}
	if !r.spend(100 * time.Millisecond) {
		return 0, nvmespec.StatusInternal
	}
	return r.d.commitMedia(func(st *state) (uint32, nvmespec.Status) {
		return st.place(r, ns)
	})
}

// newNamespace checks what is asked for, in the order in which the fields
// lie, and makes the namespace without a number.
func (r *request) newNamespace(want nvmespec.NamespaceCreate) (namespace, nvmespec.Status) {
	p := r.profile()
	bad := func(s nvmespec.Status) (namespace, nvmespec.Status) {
		_, s = r.fail(s, paramNone)
		return namespace{}, s
	}
	endurance := uint16(0)
	if p.EnduranceGroup {
		endurance = 1
	}
	switch {
	case want.SizeBlocks == 0 || want.CapacityBlocks == 0 || want.CapacityBlocks > want.SizeBlocks:
		return bad(nvmespec.StatusInvalidField)
	case want.CapacityBlocks != want.SizeBlocks:
		return bad(nvmespec.StatusThinProvisioning)
	case !r.hasFormat(want.FormatIndex):
		return bad(nvmespec.StatusInvalidFormat)
	case want.Shared && r.state().Options.Controllers < 2:
		return bad(nvmespec.StatusInvalidField)
	case want.ANAGroupID != 0 || want.NVMSetID != 0 || want.StorageTagMask != 0 || len(want.PlacementHandles) != 0:
		return bad(nvmespec.StatusInvalidField)
	case want.EnduranceGroupID > endurance:
		return bad(nvmespec.StatusInvalidField)
	}
	f := p.Formats[want.FormatIndex]
	if want.MetadataExtended && f.MetadataBytes == 0 || checkProtection(f, want.Protection) != 0 {
		return bad(nvmespec.StatusInvalidFormat)
	}
	hi, size := bits.Mul64(want.SizeBlocks, uint64(f.DataBytes))
	if hi != 0 || size > 1<<62 {
		// No drive is so large; what it would take does not fit the log.
		r.specific = ^uint64(0)
		_, s := r.fail(nvmespec.StatusInsufficientCapacity|nvmespec.StatusMore, paramNone)
		return namespace{}, s
	}
	return namespace{
		SizeBlocks: want.SizeBlocks, AllocatedBytes: roundUp(size, p.AllocationBytes),
		FormatIndex: want.FormatIndex, ExtendedMetadata: want.MetadataExtended,
		Protection: want.Protection, Shared: want.Shared,
	}, nvmespec.StatusSuccess
}

func roundUp(n, unit uint64) uint64 { return (n + unit - 1) / unit * unit }

// place gives the namespace the lowest free number and its capacity. It is
// attached to no controller.
func (st *state) place(r *request, ns namespace) (uint32, nvmespec.Status) {
	ns.NSID = 1
	at := 0
	for at < len(st.Namespaces) && st.Namespaces[at].NSID == ns.NSID {
		at, ns.NSID = at+1, ns.NSID+1
	}
	if ns.NSID > st.Profile.MaxNamespaces {
		return r.fail(nvmespec.StatusNSIDUnavailable, paramNone)
	}
	if free := st.unallocatedBytes(); ns.AllocatedBytes+st.Options.ReservedBytes > free {
		r.specific = ns.AllocatedBytes
		return r.fail(nvmespec.StatusInsufficientCapacity|nvmespec.StatusMore, paramNone)
	}
	st.identify(&ns)
	st.Namespaces = slices.Insert(st.Namespaces, at, ns)
	r.d.media.namespaceCreated(ns.NSID, ns.sizeBytes(&st.Profile))
	return ns.NSID, nvmespec.StatusSuccess
}

// deleteNamespaces carries out the delete of Namespace Management, of one
// namespace or of all.
func deleteNamespaces(r *request) (uint32, nvmespec.Status) {
	var doomed []uint32
	var size uint64
	if r.cmd.NSID == nsidAll {
		for i := range r.state().Namespaces {
			doomed = append(doomed, r.state().Namespaces[i].NSID)
			size += r.state().Namespaces[i].AllocatedBytes
		}
	} else {
		ns, s := r.allocated(r.cmd.NSID)
		if s != 0 {
			return 0, s
		}
		doomed, size = []uint32{ns.NSID}, ns.AllocatedBytes
	}
	if r.d.anyFormatting(doomed) {
		return 0, nvmespec.StatusFormatInProgress
	}
	if !r.spend(time.Second + perTB(size, time.Second)) {
		return 0, nvmespec.StatusInternal
	}
	return r.d.commitMedia(func(st *state) (uint32, nvmespec.Status) {
		for _, nsid := range doomed {
			if st.remove(nsid) {
				r.d.media.namespaceDeleted(nsid)
				st.forgetUncorrectable(nsid)
			}
		}
		return 0, nvmespec.StatusSuccess
	})
}

// perTB is how long something takes that takes d for each terabyte.
func perTB(size uint64, d time.Duration) time.Duration {
	return time.Duration(float64(size) / 1e12 * float64(d)).Round(time.Millisecond)
}

// remove deletes a namespace and what controllers keep of it.
func (st *state) remove(nsid uint32) bool {
	i := slices.IndexFunc(st.Namespaces, func(n namespace) bool { return n.NSID == nsid })
	if i < 0 {
		return false
	}
	attached := st.Namespaces[i].Attached
	st.Namespaces = slices.Delete(st.Namespaces, i, i+1)
	of := func(v featureValue) bool { return v.NSID == nsid }
	for c := range st.Controllers {
		k := &st.Controllers[c]
		k.Current = slices.DeleteFunc(k.Current, of)
		k.Saved = slices.DeleteFunc(k.Saved, of)
	}
	st.namespaceChanged(attached, nsid)
	return true
}

// attachNamespace carries out Namespace Attachment.
func attachNamespace(r *request) (uint32, nvmespec.Status) {
	detach := r.cmd.CDW10&0xF == 1
	if r.cmd.CDW10&0xF > 1 {
		return r.fail(nvmespec.StatusInvalidField, paramCDW10)
	}
	ns, s := r.allocated(r.cmd.NSID)
	if s != 0 {
		return 0, s
	}
	if len(r.cmd.Data) < dataBytes {
		return r.fail(nvmespec.StatusDataTransfer, paramNone)
	}
	mask, ok := r.controllerMask()
	if !ok {
		return r.fail(nvmespec.StatusInvalidControllerList, paramNone)
	}
	if r.d.anyFormatting([]uint32{ns.NSID}) {
		return 0, nvmespec.StatusFormatInProgress
	}
	switch {
	case detach && ns.Attached&mask != mask:
		return r.fail(nvmespec.StatusNotAttached, paramNone)
	case !detach && ns.Attached&mask != 0:
		return r.fail(nvmespec.StatusAlreadyAttached, paramNone)
	case !detach && !ns.Shared && bits.OnesCount8(ns.Attached|mask) > 1:
		return r.fail(nvmespec.StatusPrivate, paramNone)
	}
	if !r.spend(10 * time.Millisecond) {
		return 0, nvmespec.StatusInternal
	}
	nsid := ns.NSID
	return r.d.commit(func(st *state) (uint32, nvmespec.Status) {
		ns := st.find(nsid)
		switch {
		case ns == nil:
			return r.fail(nvmespec.StatusInvalidField, paramNSID)
		case detach:
			ns.Attached &^= mask
		default:
			ns.Attached |= mask
		}
		st.namespaceChanged(mask, nsid)
		return 0, nvmespec.StatusSuccess
	})
}

// controllerMask reads a controller list: at least one controller of this
// subsystem, ascending, the rest of the list zero.
func (r *request) controllerMask() (uint8, bool) {
	ids, err := nvmespec.DecodeControllerList(r.cmd.Data[:dataBytes])
	if err != nil || len(ids) == 0 {
		return 0, false
	}
	if string(nvmespec.AppendControllerList(nil, ids)) != string(r.cmd.Data[:dataBytes]) {
		return 0, false
	}
	var mask uint8
	for i, id := range ids {
		k := int(id) - int(r.profile().FirstController)
		if k < 0 || k >= r.state().Options.Controllers || i > 0 && id <= ids[i-1] {
			return 0, false
		}
		mask |= 1 << k
	}
	return mask, true
}

// checkProtection says whether a format can carry the protection.
func checkProtection(f Format, p nvmespec.Protection) nvmespec.Status {
	switch {
	case p.Type == 0 && !p.First:
		return nvmespec.StatusSuccess
	case p.Type == 0, p.Type > 3, f.MetadataBytes < 8:
		return nvmespec.StatusInvalidFormat
	}
	return nvmespec.StatusSuccess
}

// formatCommand is what Format NVM asks for.
type formatCommand struct {
	index      uint8
	extended   bool
	protection nvmespec.Protection
	erase      uint8
}

// formatNVM carries out Format NVM.
func formatNVM(r *request) (uint32, nvmespec.Status) {
	p, dw := r.profile(), r.cmd.CDW10
	f := formatCommand{
		index: uint8(dw&0xF) | uint8(dw>>12&3)<<4, extended: dw>>4&1 != 0,
		protection: nvmespec.Protection{Type: uint8(dw >> 5 & 7), First: dw>>8&1 != 0},
		erase:      uint8(dw >> 9 & 7),
	}
	targets, s := r.formatTargets(f.erase)
	if s != 0 {
		return 0, s
	}
	if f.erase > 2 || f.erase == 2 && p.FormatAttributes&fnaCrypto == 0 {
		return r.fail(nvmespec.StatusInvalidField, paramCDW10+1|1<<8)
	}
	if !r.hasFormat(f.index) {
		return r.fail(nvmespec.StatusInvalidFormat, paramCDW10)
	}
	lbaf := p.Formats[f.index]
	if f.extended && lbaf.MetadataBytes == 0 || checkProtection(lbaf, f.protection) != 0 {
		return r.fail(nvmespec.StatusInvalidFormat, paramCDW10)
	}
	var size uint64
	for _, nsid := range targets {
		ns := r.state().find(nsid)
		if ns.AllocatedBytes < uint64(lbaf.DataBytes) {
			return r.fail(nvmespec.StatusInvalidFormat, paramCDW10)
		}
		size += ns.AllocatedBytes
	}
	if r.d.anyFormatting(targets) {
		return 0, nvmespec.StatusFormatInProgress
	}
	took := 2 * time.Second
	if f.erase == 1 {
		took += perTB(size, 20*time.Second)
	}
	if !r.formatFor(targets, took) {
		return 0, nvmespec.StatusInternal
	}
	return r.d.commitMedia(func(st *state) (uint32, nvmespec.Status) {
		for _, nsid := range targets {
			st.reformat(r, nsid, f)
		}
		return 0, nvmespec.StatusSuccess
	})
}

// formatTargets finds what a format reaches, after FNA.
func (r *request) formatTargets(erase uint8) ([]uint32, nvmespec.Status) {
	p, st := r.profile(), r.state()
	fna := p.FormatAttributes
	everything := fna&fnaFormatAll != 0 || erase != 0 && fna&fnaEraseAll != 0
	nsid := r.cmd.NSID
	switch {
	case nsid == nsidAll && fna&fnaNoBroadcast != 0, nsid == 0, nsid != nsidAll && nsid > p.MaxNamespaces:
		_, s := r.fail(nvmespec.StatusInvalidNamespace, paramNSID)
		return nil, s
	case nsid != nsidAll && !r.active(nsid):
		// A namespace must be attached to be formatted (cases NS-43).
		_, s := r.fail(nvmespec.StatusInvalidField, paramNSID)
		return nil, s
	}
	var targets []uint32
	for i := range st.Namespaces {
		ns := &st.Namespaces[i]
		if everything || ns.NSID == nsid || nsid == nsidAll && ns.Attached>>r.c&1 != 0 {
			targets = append(targets, ns.NSID)
		}
	}
	return targets, nvmespec.StatusSuccess
}

// reformat gives a namespace its new format. Its data is gone; its size in
// bytes stays, as near as whole blocks allow.
func (st *state) reformat(r *request, nsid uint32, f formatCommand) {
	ns := st.find(nsid)
	if ns == nil {
		return
	}
	block := uint64(st.Profile.Formats[f.index].DataBytes)
	ns.SizeBlocks = max(1, ns.sizeBytes(&st.Profile)/block)
	ns.FormatIndex, ns.ExtendedMetadata, ns.Protection = f.index, f.extended, f.protection
	st.SelfTest.finish(uint8(nvmespec.SelfTestAbortedFormat), int64(r.d.clock.Now()))
	r.d.media.namespaceFormatted(nsid, ns.sizeBytes(&st.Profile), f.erase == 1)
	st.forgetUncorrectable(nsid)
	// The controller that was told to format knows; the others are told.
	st.namespaceChanged(ns.Attached&^(1<<r.c), nsid)
}

// progress is a format under way.
type progress struct{ start, end nvmeioctl.Instant }

// remaining is the percentage of the format that remains.
func (p progress) remaining(now nvmeioctl.Instant) uint8 {
	if now >= p.end || p.end <= p.start {
		return 0
	}
	return uint8((int64(p.end-now)*100 + int64(p.end-p.start) - 1) / int64(p.end-p.start))
}

// formatFor lets the time of a format pass while the namespaces report its
// progress. It is false if the command timed out.
func (r *request) formatFor(nsids []uint32, took time.Duration) bool {
	now := r.d.clock.Now()
	for _, nsid := range nsids {
		r.d.formatting[nsid] = progress{start: now, end: now.Add(took)}
	}
	done := r.spend(took)
	for _, nsid := range nsids {
		delete(r.d.formatting, nsid)
	}
	return done
}

func (d *Drive) anyFormatting(nsids []uint32) bool {
	return slices.ContainsFunc(nsids, func(nsid uint32) bool {
		_, ok := d.formatting[nsid]
		return ok
	})
}
