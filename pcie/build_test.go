package pcie

import "encoding/binary"

// config builds a configuration space from the specification's offsets,
// without the package's own.
type config struct{ b []byte }

func (c *config) put8(at int, v uint8)   { c.b[at] = v }
func (c *config) put16(at int, v uint16) { binary.LittleEndian.PutUint16(c.b[at:], v) }
func (c *config) put32(at int, v uint32) { binary.LittleEndian.PutUint32(c.b[at:], v) }

// expAt is where the builder places the PCI Express capability.
const expAt = 0x80

// encode is the three-bit code of a payload size.
func encode(bytes int) uint32 {
	code := uint32(0)
	for n := 128; n < bytes; n *= 2 {
		code++
	}
	return code
}

// newConfig makes a function of a type with payload capability and setting,
// and a read request size. The link is 16 GT/s x4.
func newConfig(t PortType, supported, mps, mrrs int) *config {
	c := &config{b: make([]byte, 4096)}
	c.put16(0x00, 0x1b36)
	c.put16(0x02, 0x0010)
	c.put16(0x06, 0x0010) // capability list
	c.put8(0x0b, 0x01)
	c.put8(0x0a, 0x08)
	c.put8(0x09, 0x02)
	c.put8(0x34, expAt)
	c.put8(expAt, 0x10)
	c.put16(expAt+0x02, 2|uint16(t)<<4)
	c.put32(expAt+0x04, encode(supported)|1<<5|1<<15|1<<28)
	c.put16(expAt+0x08, uint16(encode(mps)<<5|encode(mrrs)<<12)|1<<4|1<<8|1<<11)
	c.put32(expAt+0x0c, 4|4<<4)
	c.put16(expAt+0x12, 4|4<<4|1<<13)
	c.put32(expAt+0x24, 0xf|1<<4)
	c.put32(expAt+0x2c, 0x0f<<1)
	c.put16(expAt+0x30, 4)
	if t != Endpoint && t != LegacyEndpoint {
		c.put32(expAt+0x04, encode(supported)|1<<5|1<<15)
		c.put8(0x0a, 0x04)
		c.put8(0x0b, 0x06)
		c.put8(0x09, 0x00)
		c.put8(0x0e, 0x01)
	}
	return c
}

// buses sets a bridge's bus numbers.
func (c *config) buses(primary, secondary, subordinate uint8) *config {
	c.put8(0x18, primary)
	c.put8(0x19, secondary)
	c.put8(0x1a, subordinate)
	return c
}

// link sets what a link can do and does.
func (c *config) link(maxSpeed Speed, maxWidth Width, speed Speed, width Width) *config {
	c.put32(expAt+0x0c, uint32(maxSpeed)|uint32(maxWidth)<<4)
	c.put16(expAt+0x12, uint16(speed)|uint16(width)<<4|1<<13)
	c.put32(expAt+0x2c, (1<<maxSpeed-1)<<1)
	c.put16(expAt+0x30, uint16(maxSpeed))
	return c
}

// extended puts the header of an extended capability.
func (c *config) extended(at int, id uint16, version uint8, next int) *config {
	c.put32(at, uint32(id)|uint32(version)<<16|uint32(next)<<20)
	return c
}
