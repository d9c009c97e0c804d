package nvmespec

import "fmt"

// Plausible says what speaks against b being a dump of a kind, as ErrInvalidData;
// nil where nothing does, and for kinds that cannot be told from other bytes.
// Decoding itself is tolerant: this is for files, of which a wrong one may be given.
func Plausible(kind string, b []byte) error {
	if kind != "id-ctrl" && kind != "id-ns" {
		return nil
	}
	if len(b) > IdentifySize {
		return fmt.Errorf("%w: it has %d bytes, such a structure has %d", ErrInvalidData, len(b), IdentifySize)
	}
	p, err := view(b, IdentifySize, kind)
	if err != nil {
		return err
	}
	if kind == "id-ns" {
		return plausibleNamespace(p)
	}
	return plausibleController(p)
}

// plausibleController: serial number, model and firmware revision are text (NVMe
// Base Specification 2.x, Identify Controller bytes 71:04), and no drive is without
// a vendor and a model.
func plausibleController(p page) error {
	for _, f := range []struct {
		name    string
		off, at int
	}{{"serial number", offIDCtrlSN, 20}, {"model number", offIDCtrlMN, 40}, {"firmware revision", offIDCtrlFR, 8}} {
		for _, c := range p.bytes(f.off, f.at) {
			// Drives have been seen with a newline in it, and with zeros for blanks.
			if c > 0x7E || c < 0x20 && c != 0 && c != '\n' && c != '\r' && c != '\t' {
				return fmt.Errorf("%w: the place of the %s (byte %d on) holds no text", ErrInvalidData, f.name, f.off)
			}
		}
	}
	if p.u16(offIDCtrlVID) == 0 && p.text(offIDCtrlMN, 40) == "" {
		return fmt.Errorf("%w: neither a PCI vendor nor a model number is in it", ErrInvalidData)
	}
	return nil
}

// plausibleNamespace: the format in use is among those listed, and the capacity is
// no larger than the size. A namespace that is not there is all zero.
func plausibleNamespace(p page) error {
	size, capacity := p.u64(offIDNSNSZE), p.u64(offIDNSNCAP)
	formats, used := int(p.u8(offIDNSNLBAF))+1, p.u8(offIDNSFLBAS)
	index := int(used&15 | used>>5&3<<4)
	switch {
	case capacity > size:
		return fmt.Errorf("%w: a capacity of %d blocks in a size of %d", ErrInvalidData, capacity, size)
	case formats > 64:
		return fmt.Errorf("%w: it lists %d LBA formats, 64 are the most", ErrInvalidData, formats)
	case index >= formats:
		return fmt.Errorf("%w: it uses LBA format %d and lists %d", ErrInvalidData, index, formats)
	}
	return nil
}
