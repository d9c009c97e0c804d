package sim

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// chunkBytes is how much of a namespace one file has: file systems limit
	// the size of a file (ext4: 16 TiB).
	chunkBytes = uint64(1) << 40
	// contentsOwner is the file that says whose contents a folder has.
	contentsOwner = "drive"
	// openFilesMax bounds the open files of one drive.
	openFilesMax = 128
)

// fileStore keeps contents in the sparse files of a folder.
type fileStore struct {
	dir   string
	files map[pageKey]*os.File // by namespace and chunk
	dirty map[pageKey]bool
}

// recordsFolder and kindsFile are in the folder of contents in blocks mode.
const (
	recordsFolder = "records"
	kindsFile     = "kinds"
	// blocksMark is the second line of the owner file then.
	blocksMark = "blocks"
)

// createFileContents makes the folder, or opens it if it is there.
func createFileContents(dir, serial string, blocks bool, stride func(uint32) uint64) (blockStore, error) {
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return openFileContents(dir, serial, stride)
	}
	if err != nil {
		return nil, err
	}
	owner := serial + "\n"
	if blocks {
		owner += blocksMark + "\n"
		if err := os.Mkdir(filepath.Join(dir, recordsFolder), 0o700); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, contentsOwner), []byte(owner), 0o600); err != nil {
		return nil, err
	}
	if err := errors.Join(syncDir(dir), syncDir(filepath.Dir(dir))); err != nil {
		return nil, err
	}
	return openFileContents(dir, serial, stride)
}

// openFileContents opens the folder of the drive with a serial number.
func openFileContents(dir, serial string, stride func(uint32) uint64) (blockStore, error) {
	text, err := os.ReadFile(filepath.Join(dir, contentsOwner))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &StateError{Path: dir, Kind: NotAState, Detail: "it is in the place of a drive's contents"}
	}
	if err != nil {
		return nil, err
	}
	owner, mark, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	switch {
	case owner != serial:
		return nil, &StateError{Path: dir, Kind: DamagedState, Detail: fmt.Sprintf("it has the contents of drive %q, not of %q", owner, serial)}
	case mark == "":
		return newFileStore(dir), nil
	case mark != blocksMark:
		return nil, &StateError{Path: dir, Kind: NewerState, Detail: fmt.Sprintf("contents kept as %q", mark)}
	}
	log, kinds, err := openKindFile(filepath.Join(dir, kindsFile))
	if err != nil {
		return nil, err
	}
	s := newBlocksStore(newFileStore(filepath.Join(dir, recordsFolder)), newFileStore(dir), log, stride)
	if err := s.loadKinds(kinds); err != nil {
		return nil, errors.Join(&StateError{Path: dir, Kind: DamagedState, Detail: err.Error()}, log.close())
	}
	return s, nil
}

// kindFile is the table of kinds in a file.
type kindFile struct {
	f     *os.File
	end   int64
	dirty bool
}

// openKindFile opens the table, or makes an empty one, and reads it.
func openKindFile(path string) (*kindFile, []byte, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, (kindsMax+1)*kindBytes))
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	b = b[:len(b)/kindBytes*kindBytes]
	return &kindFile{f: f, end: int64(len(b))}, b, nil
}

func (k *kindFile) append(b []byte) error {
	n, err := k.f.WriteAt(b, k.end)
	if err != nil {
		return err
	}
	k.end += int64(n)
	k.dirty = true
	return nil
}

func (k *kindFile) sync() error {
	if !k.dirty {
		return nil
	}
	k.dirty = false
	return k.f.Sync()
}

func (k *kindFile) close() error { return k.f.Close() }

func newFileStore(dir string) *fileStore {
	return &fileStore{dir: dir, files: map[pageKey]*os.File{}, dirty: map[pageKey]bool{}}
}

func (s *fileStore) path(key pageKey) string {
	return filepath.Join(s.dir, fmt.Sprintf("ns%d.%d", key.nsid, key.page))
}

// file gives the file of a chunk; nil if it is not there and is not to be made.
func (s *fileStore) file(key pageKey, make bool) (*os.File, error) {
	if f := s.files[key]; f != nil {
		return f, nil
	}
	if len(s.files) >= openFilesMax {
		if err := s.sync(); err != nil {
			return nil, err
		}
		if err := s.close(); err != nil {
			return nil, err
		}
	}
	flags := os.O_RDWR | unix.O_CLOEXEC
	if make {
		flags |= os.O_CREATE
	}
	f, err := os.OpenFile(s.path(key), flags, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s.files[key] = f
	return f, nil
}

func (s *fileStore) read(nsid uint32, b []byte, offset uint64) error {
	return eachPage(chunkBytes, offset, uint64(len(b)), func(chunk, from, to, at uint64) error {
		part := b[at : at+to-from]
		f, err := s.file(pageKey{nsid, chunk}, false)
		if err != nil {
			return err
		}
		n := 0
		if f != nil {
			n, err = f.ReadAt(part, int64(from))
			if err != nil && !errors.Is(err, io.EOF) {
				return err
			}
		}
		clear(part[n:])
		return nil
	})
}

func (s *fileStore) write(nsid uint32, b []byte, offset uint64) error {
	return eachPage(chunkBytes, offset, uint64(len(b)), func(chunk, from, to, at uint64) error {
		key := pageKey{nsid, chunk}
		f, err := s.file(key, true)
		if err != nil {
			return err
		}
		s.dirty[key] = true
		_, err = f.WriteAt(b[at:at+to-from], int64(from))
		return err
	})
}

func (s *fileStore) punch(nsid uint32, offset, length uint64) error {
	return eachPage(chunkBytes, offset, length, func(chunk, from, to, _ uint64) error {
		key := pageKey{nsid, chunk}
		f, err := s.file(key, false)
		if f == nil || err != nil {
			return err
		}
		s.dirty[key] = true
		err = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(from), int64(to-from))
		if err != nil {
			return fmt.Errorf("%s: %w", f.Name(), os.NewSyscallError("fallocate", err))
		}
		return nil
	})
}

func (s *fileStore) erase(nsid uint32) error {
	var errs []error
	for key, f := range s.files {
		if key.nsid == nsid {
			errs = append(errs, f.Close())
			delete(s.files, key)
			delete(s.dirty, key)
		}
	}
	chunks, err := filepath.Glob(filepath.Join(globQuote(s.dir), fmt.Sprintf("ns%d.*", nsid)))
	errs = append(errs, err)
	for _, path := range chunks {
		errs = append(errs, os.Remove(path))
	}
	if len(chunks) > 0 {
		errs = append(errs, syncDir(s.dir))
	}
	return errors.Join(errs...)
}

// globQuote makes a pattern that means the path itself.
func globQuote(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

func (s *fileStore) sync() error {
	var errs []error
	for key := range s.dirty {
		f := s.files[key]
		if err := f.Sync(); err != nil {
			errs = append(errs, err)
			continue
		}
		delete(s.dirty, key)
	}
	return errors.Join(errs...)
}

func (s *fileStore) close() error {
	var errs []error
	for key, f := range s.files {
		errs = append(errs, f.Close())
		delete(s.files, key)
	}
	return errors.Join(errs...)
}
