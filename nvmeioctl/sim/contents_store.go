package sim

import (
	"errors"
	"maps"
	"slices"
)

// blockStore keeps the contents of namespaces. What was never written, or was
// punched or erased, reads as zeros. It is used with the drive's lock held.
type blockStore interface {
	read(nsid uint32, b []byte, offset uint64) error
	write(nsid uint32, b []byte, offset uint64) error
	// punch makes a range read as zeros and gives its space back.
	punch(nsid uint32, offset, length uint64) error
	// erase does so with all of a namespace.
	erase(nsid uint32) error
	// sync makes all of it survive a crash of the host.
	sync() error
	close() error
}

const (
	memoryPageBytes   = 64 << 10
	memoryContentsMax = 1 << 30
)

// pageKey names a page of a namespace.
type pageKey struct {
	nsid uint32
	page uint64
}

// memoryStore keeps contents in memory.
type memoryStore struct {
	pages     map[pageKey][]byte
	pageBytes uint64
	max       int // of pages
}

func newMemoryStore(maxBytes int, pageBytes uint64) *memoryStore {
	return &memoryStore{pages: map[pageKey][]byte{}, pageBytes: pageBytes, max: maxBytes / int(pageBytes)}
}

// errContentsFull: the memory for contents is used up.
var errContentsFull = errors.New("the drive keeps its contents in memory, and there is no room for more")

// eachPage calls f for each page of a range with the part of the page, and
// where in the range it begins.
func eachPage(pageBytes, offset, length uint64, f func(page, from, to, at uint64) error) error {
	for at := uint64(0); at < length; {
		page, from := (offset+at)/pageBytes, (offset+at)%pageBytes
		to := min(pageBytes, from+length-at)
		if err := f(page, from, to, at); err != nil {
			return err
		}
		at += to - from
	}
	return nil
}

func (m *memoryStore) read(nsid uint32, b []byte, offset uint64) error {
	return eachPage(m.pageBytes, offset, uint64(len(b)), func(page, from, to, at uint64) error {
		part := b[at : at+to-from]
		if p := m.pages[pageKey{nsid, page}]; p != nil {
			copy(part, p[from:to])
		} else {
			clear(part)
		}
		return nil
	})
}

func (m *memoryStore) write(nsid uint32, b []byte, offset uint64) error {
	return eachPage(m.pageBytes, offset, uint64(len(b)), func(page, from, to, at uint64) error {
		key := pageKey{nsid, page}
		p := m.pages[key]
		if p == nil {
			if len(m.pages) >= m.max {
				return errContentsFull
			}
			p = make([]byte, m.pageBytes)
			m.pages[key] = p
		}
		copy(p[from:to], b[at:])
		return nil
	})
}

func (m *memoryStore) punch(nsid uint32, offset, length uint64) error {
	first, last := offset/m.pageBytes, (offset+length-1)/m.pageBytes
	zero := func(key pageKey) {
		start := key.page * m.pageBytes
		from, to := max(offset, start)-start, min(offset+length, start+m.pageBytes)-start
		if from == 0 && to == m.pageBytes {
			delete(m.pages, key)
		} else if p := m.pages[key]; p != nil {
			clear(p[from:to])
		}
	}
	if last-first < uint64(len(m.pages)) {
		for page := first; page <= last; page++ {
			zero(pageKey{nsid, page})
		}
		return nil
	}
	for key := range m.pages {
		if key.nsid == nsid && key.page >= first && key.page <= last {
			zero(key)
		}
	}
	return nil
}

func (m *memoryStore) erase(nsid uint32) error {
	maps.DeleteFunc(m.pages, func(k pageKey, _ []byte) bool { return k.nsid == nsid })
	return nil
}

func (m *memoryStore) sync() error  { return nil }
func (m *memoryStore) close() error { return nil }

const (
	cachePageBytes = 4096
	// cachePagesMax is the size of a volatile write cache: 32 MiB.
	cachePagesMax = 8192
)

// writeCache is a volatile write cache: pages that have been written and are
// not in the store yet.
type writeCache struct {
	store blockStore
	pages map[pageKey][]byte
}

func newWriteCache(store blockStore) *writeCache {
	return &writeCache{store: store, pages: map[pageKey][]byte{}}
}

// write puts data into the cache. A cache that is full is destaged first.
func (c *writeCache) write(nsid uint32, b []byte, offset uint64) error {
	return eachPage(cachePageBytes, offset, uint64(len(b)), func(page, from, to, at uint64) error {
		key := pageKey{nsid, page}
		p := c.pages[key]
		if p == nil {
			if len(c.pages) >= cachePagesMax {
				if err := c.destage(nsidAll); err != nil {
					return err
				}
			}
			p = make([]byte, cachePageBytes)
			if to-from < cachePageBytes {
				if err := c.store.read(nsid, p, page*cachePageBytes); err != nil {
					return err
				}
			}
			c.pages[key] = p
		}
		copy(p[from:to], b[at:])
		return nil
	})
}

// overlay puts what the cache has over what was read from the store.
func (c *writeCache) overlay(nsid uint32, b []byte, offset uint64) {
	c.each(nsid, offset, uint64(len(b)), func(p []byte, at uint64) { copy(b[at:], p) })
}

// update puts what has been written to the store into what the cache has.
func (c *writeCache) update(nsid uint32, b []byte, offset uint64) {
	c.each(nsid, offset, uint64(len(b)), func(p []byte, at uint64) { copy(p, b[at:]) })
}

// zero clears a range of what the cache has.
func (c *writeCache) zero(nsid uint32, offset, length uint64) {
	c.each(nsid, offset, length, func(p []byte, _ uint64) { clear(p) })
}

// each calls f for the parts of a range that are in the cache, and where in
// the range they begin.
func (c *writeCache) each(nsid uint32, offset, length uint64, f func(part []byte, at uint64)) {
	if len(c.pages) == 0 || length == 0 {
		return
	}
	part := func(key pageKey, p []byte) {
		start := key.page * cachePageBytes
		from, to := max(offset, start), min(offset+length, start+cachePageBytes)
		f(p[from-start:to-start], from-offset)
	}
	first, last := offset/cachePageBytes, (offset+length-1)/cachePageBytes
	if last-first < uint64(len(c.pages)) {
		for page := first; page <= last; page++ {
			if p := c.pages[pageKey{nsid, page}]; p != nil {
				part(pageKey{nsid, page}, p)
			}
		}
		return
	}
	for key, p := range c.pages {
		if key.nsid == nsid && key.page >= first && key.page <= last {
			part(key, p)
		}
	}
}

// destage writes a namespace's pages to the store, in order; FFFFFFFFh is all.
func (c *writeCache) destage(nsid uint32) error {
	keys := slices.Collect(maps.Keys(c.pages))
	slices.SortFunc(keys, func(a, b pageKey) int {
		switch {
		case a.nsid != b.nsid:
			return int(int64(a.nsid) - int64(b.nsid))
		case a.page < b.page:
			return -1
		}
		return 1
	})
	for _, key := range keys {
		if nsid != nsidAll && key.nsid != nsid {
			continue
		}
		if err := c.destagePage(key); err != nil {
			return err
		}
	}
	return nil
}

func (c *writeCache) destagePage(key pageKey) error {
	p := c.pages[key]
	if p == nil {
		return nil
	}
	if err := c.store.write(key.nsid, p, key.page*cachePageBytes); err != nil {
		return err
	}
	delete(c.pages, key)
	return nil
}

// forget drops a namespace's pages.
func (c *writeCache) forget(nsid uint32) {
	maps.DeleteFunc(c.pages, func(k pageKey, _ []byte) bool { return k.nsid == nsid })
}

// lose is a power cut.
func (c *writeCache) lose() { clear(c.pages) }
