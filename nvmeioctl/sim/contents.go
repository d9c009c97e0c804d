package sim

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// contentsSuffix names the folder with a drive's contents: FILE.data.
const contentsSuffix = ".data"

// ContentsMode is how a drive keeps what is written to it.
type ContentsMode uint8

// The modes.
const (
	// ContentsOnDemand keeps nothing until KeepContents is called, which then
	// means ContentsSparse.
	ContentsOnDemand ContentsMode = iota
	// ContentsNone keeps nothing: reads give zeros, whoever asks.
	ContentsNone
	// ContentsSparse keeps blocks as they are. What was never written takes no
	// space.
	ContentsSparse
	// ContentsBlocks keeps of blocks that a soak wrote (package pattern) what
	// tells them from others, and makes them again when they are read: 8 bytes
	// a block on disk, about 10 in memory. All other blocks are kept whole. It
	// is for soaks of more data than the host has room for.
	ContentsBlocks
)

func contentsModeNames() []string { return []string{"", "none", "sparse", "blocks"} }

// String names the mode as the command line does; "" is ContentsOnDemand.
func (m ContentsMode) String() string {
	if names := contentsModeNames(); int(m) < len(names) {
		return names[m]
	}
	return fmt.Sprintf("mode %d", uint8(m))
}

// ParseContentsMode is the inverse of String.
func ParseContentsMode(name string) (ContentsMode, error) {
	if i := slices.Index(contentsModeNames(), name); i >= 0 {
		return ContentsMode(i), nil
	}
	return 0, fmt.Errorf("contents %q: it is none, sparse or blocks", name)
}

// KeepContents makes the drive keep what is written to it, from now on, in the
// way its Options say; before, reads give zeros. A drive in memory keeps it in
// memory, at most 1 GiB of it. A drive in FILE keeps it in the folder FILE.data:
// sparse files, one a namespace and TiB, in which a logical block lies at its
// number times its size (metadata included where the format has it in the data).
// Every later [Open] of FILE finds them, so deleting or formatting a namespace
// destroys its contents whichever program does it. A drive whose options say
// ContentsNone refuses with an [nvmeioctl.UnsupportedError].
//
// A drive with a volatile write cache (Profile.VolatileWriteCache) holds
// writes back until it is told to flush, is shut down or runs out of cache;
// what it holds is lost by a PowerCycle that is not clean, and by the end of
// the process. All other drives keep what they have acknowledged.
//
// I/O queues to a drive that keeps its contents move data, without time lapse.
func (d *Drive) KeepContents() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.lost(); err != nil {
		return err
	}
	return d.keepContents()
}

func (d *Drive) keepContents() error {
	mode := d.st.Options.Contents
	if d.kept() != nil {
		return nil
	}
	if f := d.media; f != nil && d.openQueues() > 0 {
		return fmt.Errorf("%s: keep contents: it has open I/O queues, which keep none", d.name)
	}
	switch {
	case mode == ContentsNone:
		return &nvmeioctl.UnsupportedError{Feature: "keeping the contents of " + d.name, Needs: "a drive that was not made with --contents none"}
	case d.file != nil:
		store, err := createFileContents(d.file.path+contentsSuffix, d.st.Options.Serial, mode == ContentsBlocks, d.strideOf)
		if err != nil {
			return fmt.Errorf("%s: keep contents: %w", d.name, err)
		}
		d.keep(store)
	case mode == ContentsBlocks:
		d.keep(newBlocksMemory(memoryContentsMax, d.strideOf))
	default:
		d.keep(newMemoryStore(memoryContentsMax, memoryPageBytes))
	}
	return nil
}

// openQueues counts the I/O queues of the drive's media.
func (d *Drive) openQueues() int {
	if f := d.flash(); f != nil {
		return f.queues
	}
	return 0
}

// strideOf is how many bytes a block of a namespace takes in the contents, 0 if
// there is no such namespace.
func (d *Drive) strideOf(nsid uint32) uint64 {
	ns := d.st.find(nsid)
	if ns == nil {
		return 0
	}
	return d.st.stride(ns)
}

// findContents takes up the contents that a drive in a file has, if it has any.
// Nobody else has the drive.
func (d *Drive) findContents() error {
	path := d.file.path + contentsSuffix
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		if d.st.Options.Contents >= ContentsSparse {
			return d.keepContents()
		}
		return nil
	}
	store, err := openFileContents(path, d.st.Options.Serial, d.strideOf)
	if err != nil {
		return err
	}
	d.keep(store)
	return nil
}

// refuseContents keeps a new drive from taking over the contents of an old one.
func refuseContents(path string) error {
	if _, err := os.Lstat(path + contentsSuffix); err == nil {
		return fmt.Errorf("create simulated drive: %s: %w: it has the contents of another drive", path+contentsSuffix, fs.ErrExist)
	}
	return nil
}

func (d *Drive) keep(store blockStore) {
	k := &keptMedia{media: d.media, store: store}
	if d.st.Profile.VolatileWriteCache {
		k.cache = newWriteCache(store)
	}
	d.media = k
}

// keptMedia is media with contents: what happens to a namespace happens to
// what is stored in it. What it destroys is destroyed before the drive's state
// says so: a power cut in the middle of a format may cost the data, but data
// never outlives the namespace that it was written to.
type keptMedia struct {
	media
	store blockStore
	cache *writeCache // nil: what is acknowledged is stored
	// failed is why contents could not be destroyed; the command that was to
	// do it fails when its state is to be saved.
	failed error
}

// kept is the drive's contents, nil if it keeps none.
func (d *Drive) kept() *keptMedia {
	k, _ := d.media.(*keptMedia)
	return k
}

// flash is the model behind the drive, nil if there is none.
func (d *Drive) flash() *flashMedia {
	m := d.media
	if k := d.kept(); k != nil {
		m = k.media
	}
	f, _ := m.(*flashMedia)
	return f
}

func (k *keptMedia) destroy(nsid uint32) {
	if k.cache != nil {
		k.cache.forget(nsid)
	}
	k.failed = errors.Join(k.failed, k.store.erase(nsid))
}

// namespaceCreated implements media.
func (k *keptMedia) namespaceCreated(nsid uint32, sizeBytes uint64) {
	k.destroy(nsid)
	k.media.namespaceCreated(nsid, sizeBytes)
}

// namespaceDeleted implements media.
func (k *keptMedia) namespaceDeleted(nsid uint32) {
	k.destroy(nsid)
	k.media.namespaceDeleted(nsid)
}

// namespaceFormatted implements media.
func (k *keptMedia) namespaceFormatted(nsid uint32, sizeBytes uint64, erase bool) {
	k.destroy(nsid)
	k.media.namespaceFormatted(nsid, sizeBytes, erase)
}

// MarshalBinary implements media: a state is saved only when the contents that
// belong to it are on the medium of the host.
func (k *keptMedia) MarshalBinary() ([]byte, error) {
	err := errors.Join(k.failed, k.store.sync())
	k.failed = nil
	if err != nil {
		return nil, fmt.Errorf("contents: %w", err)
	}
	return k.media.MarshalBinary()
}

// powerCycled is what losing power does to contents.
func (d *Drive) powerCycled(clean bool) {
	if m := d.flash(); m != nil {
		m.buffer.Drain()
	}
	k := d.kept()
	if k == nil || k.cache == nil {
		return
	}
	if clean {
		k.failed = errors.Join(k.failed, k.cache.destage(nsidAll))
		return
	}
	k.cache.lose()
}

// closeContents gives the files of the contents free.
func (d *Drive) closeContents() error {
	if k := d.kept(); k != nil {
		return k.store.close()
	}
	return nil
}

// stride is how many bytes a logical block takes in the contents: its metadata
// travels with the data where the format has it there, and is not kept elsewhere.
func (st *state) stride(ns *namespace) uint64 {
	f := st.Profile.Formats[ns.FormatIndex]
	if ns.ExtendedMetadata {
		return uint64(f.DataBytes) + uint64(f.MetadataBytes)
	}
	return uint64(f.DataBytes)
}

// forceUnitAccess is bit 30 of CDW12 of reads and writes.
const forceUnitAccess = 1 << 30

// moveContents moves the data of a Read or Write that the media have taken.
func (r *request) moveContents(ns *namespace, lba uint64, data []byte) nvmespec.Status {
	k := r.d.kept()
	if k == nil {
		return nvmespec.StatusSuccess
	}
	offset := lba * r.state().stride(ns)
	if r.cmd.Opcode == nvmespec.IOOpRead {
		return r.storeStatus(k.read(ns.NSID, data, offset), nvmespec.StatusUnrecoveredRead)
	}
	through := !r.d.cacheEnabled(r.c) || r.cmd.CDW12&forceUnitAccess != 0
	return r.storeStatus(k.write(ns.NSID, data, offset, through), nvmespec.StatusWriteFault)
}

// cacheEnabled says whether a controller lets writes wait in a volatile cache.
func (d *Drive) cacheEnabled(controller int) bool {
	c := &d.st.Controllers[controller]
	return c.feature(&d.st.Profile, uint8(nvmespec.FeatureWriteCache))&1 != 0
}

// zeroContents makes blocks read as zeros, as deallocated ones do.
func (r *request) zeroContents(ns *namespace, lba, blocks uint64) nvmespec.Status {
	k := r.d.kept()
	if k == nil || blocks == 0 {
		return nvmespec.StatusSuccess
	}
	stride := r.state().stride(ns)
	if k.cache != nil {
		k.cache.zero(ns.NSID, lba*stride, blocks*stride)
	}
	return r.storeStatus(k.store.punch(ns.NSID, lba*stride, blocks*stride), nvmespec.StatusWriteFault)
}

// flushContents carries out Flush; FFFFFFFFh is every namespace.
func (r *request) flushContents(nsid uint32) nvmespec.Status {
	k := r.d.kept()
	if k == nil || k.cache == nil {
		return nvmespec.StatusSuccess
	}
	return r.storeStatus(k.cache.destage(nsid), nvmespec.StatusWriteFault)
}

// storeStatus is a failure of the host's storage as a drive would tell one of
// its medium.
func (r *request) storeStatus(err error, s nvmespec.Status) nvmespec.Status {
	if err == nil {
		return nvmespec.StatusSuccess
	}
	r.d.lastSaveError = fmt.Errorf("%s: contents: %w", r.d.name, err)
	_, s = r.fail(s, paramNone)
	return s
}

func (k *keptMedia) read(nsid uint32, b []byte, offset uint64) error {
	if err := k.store.read(nsid, b, offset); err != nil {
		return err
	}
	if k.cache != nil {
		k.cache.overlay(nsid, b, offset)
	}
	return nil
}

func (k *keptMedia) write(nsid uint32, b []byte, offset uint64, through bool) error {
	if k.cache == nil {
		return k.store.write(nsid, b, offset)
	}
	if !through {
		return k.cache.write(nsid, b, offset)
	}
	if err := k.store.write(nsid, b, offset); err != nil {
		return err
	}
	k.cache.update(nsid, b, offset)
	return nil
}
