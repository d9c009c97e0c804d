package sim

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// contentsSuffix names the folder with a drive's contents: FILE.data.
const contentsSuffix = ".data"

// KeepContents makes the drive keep what is written to it by commands, from
// now on; before, reads give zeros. A drive in memory keeps it in memory, at
// most 1 GiB of it. A drive in FILE keeps it in the folder FILE.data: sparse
// files, one a namespace and TiB, in which a logical block lies at its number
// times its size (metadata included where the format has it in the data). Every
// later [Open] of FILE finds them, so deleting or formatting a namespace
// destroys its contents whichever program does it.
//
// A drive with a volatile write cache (Profile.VolatileWriteCache) holds
// writes back until it is told to flush, is shut down or runs out of cache;
// what it holds is lost by a PowerCycle that is not clean, and by the end of
// the process. All other drives keep what they have acknowledged.
//
// I/O queues discard data, so a drive that keeps its contents has none.
func (d *Drive) KeepContents() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.gone(); err != nil {
		return err
	}
	if d.kept() != nil {
		return nil
	}
	if d.file == nil {
		d.keep(newMemoryStore(memoryContentsMax))
		return nil
	}
	store, err := createFileStore(d.file.path+contentsSuffix, d.st.Options.Serial)
	if err != nil {
		return fmt.Errorf("%s: keep contents: %w", d.name, err)
	}
	d.keep(store)
	return nil
}

// findContents takes up the contents that a drive in a file has, if it has any.
// Nobody else has the drive.
func (d *Drive) findContents() error {
	path := d.file.path + contentsSuffix
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	store, err := openFileStore(path, d.st.Options.Serial)
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

// refuseQueue says why a drive with contents has no I/O queues.
func (d *Drive) refuseQueue() error {
	if d.kept() == nil {
		return nil
	}
	e := &nvmeioctl.UnsupportedError{
		Feature: "I/O queue of " + d.name, Needs: "a drive that keeps no contents",
		Have: "this one does; connect to it over NVMe/TCP",
	}
	if d.file != nil {
		e.Have = "this one does; connect to it over NVMe/TCP, or remove " + d.file.path + contentsSuffix + " to give its contents up"
	}
	return e
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
	enabled := r.state().Controllers[r.c].feature(r.profile(), uint8(nvmespec.FeatureWriteCache))&1 != 0
	through := !enabled || r.cmd.CDW12&forceUnitAccess != 0
	return r.storeStatus(k.write(ns.NSID, data, offset, through), nvmespec.StatusWriteFault)
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
	if err := k.cache.write(nsid, b, offset); err != nil {
		return err
	}
	if through {
		return k.cache.destageRange(nsid, offset, uint64(len(b)))
	}
	return nil
}
