package sim

// MemoryBytes is about how much memory the drive takes in a process that works
// it: its map, and what is needed to save that beside it. 0 for a drive without
// flash. The contents of a drive that keeps them are in its file.
func (d *Drive) MemoryBytes() uint64 {
	// Measured with maps of 260 thousand to a million pages: two tables of four
	// bytes, the garbage of one before the collector comes, and the saved form.
	const eachPage = 40
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.flash()
	if m == nil {
		return 0
	}
	return m.capacity / m.unitBytes * eachPage
}
