package workload

import (
	"errors"
	"fmt"
	"math"
)

// Pattern is the order of blocks.
type Pattern uint8

// The patterns.
const (
	// Sequential visits the blocks in rising order, pass after pass.
	Sequential Pattern = iota + 1
	// Random visits each block once a pass, each pass in another keyed order.
	Random
	// Replacement draws each block uniformly and independently: there are no
	// passes.
	Replacement
)

// ErrWorkload is wrapped by every error of [New].
var ErrWorkload = errors.New("workload")

// Config describes a stream of operations.
type Config struct {
	Seed    uint64
	Pattern Pattern
	// RegionBytes is how much is addressed, from offset 0: a multiple of LBABytes.
	RegionBytes uint64
	// BlockBytes is the size of an operation: a multiple of LBABytes. The last
	// block of the region is shorter when it does not divide.
	BlockBytes uint32
	// LBABytes is the data size of a logical block.
	LBABytes uint32
	// ReadPercent is how many of every 100 successive positions read.
	ReadPercent uint8
	// Workers is how many workers share the stream: worker w takes the
	// positions w, w+Workers, ... 0 means 1.
	Workers uint32

	// The following make a mix, for Replacement only.

	// ReadSizes and WriteSizes are the sizes of operations, none larger than
	// BlockBytes; empty means BlockBytes.
	ReadSizes, WriteSizes []Size
	// AlignBytes is what every offset of a mix is a multiple of; 0 means the
	// smallest size.
	AlignBytes uint32
	// Zones skew the addresses by place, ZipfMilli by popularity: the exponent
	// in thousandths. Not both.
	Zones     []Zone
	ZipfMilli uint32
}

// Op is one operation.
type Op struct {
	// Block is the number of the block in units of BlockBytes. In a mix it is
	// that of the first of Blocks cells: operations that overlap share a cell.
	Block uint64
	// Blocks is 1 but in a mix.
	Blocks      uint32
	OffsetBytes int64
	LengthBytes int32
	Write       bool
}

// Generator tells the operation at any position. It is not safe for concurrent
// use, since it keeps the permutation of the pass it was last asked for: each
// worker has its own, made from the same Config.
type Generator struct {
	config  Config
	blocks  uint64
	tail    int32
	mixKey  uint64
	drawKey uint64
	pass    uint64
	order   Permutation
	mix     *mix // nil for blocks of one size, evenly
}

// New checks the configuration.
func New(c Config) (*Generator, error) {
	c.Workers = max(c.Workers, 1)
	switch {
	case c.Pattern < Sequential || c.Pattern > Replacement:
		return nil, fmt.Errorf("%w: pattern %d is not known", ErrWorkload, c.Pattern)
	case c.LBABytes == 0 || c.BlockBytes == 0 || c.BlockBytes%c.LBABytes != 0:
		return nil, fmt.Errorf("%w: blocks of %d bytes are not whole logical blocks of %d bytes", ErrWorkload, c.BlockBytes, c.LBABytes)
	case c.BlockBytes > math.MaxInt32:
		return nil, fmt.Errorf("%w: blocks of %d bytes are too large", ErrWorkload, c.BlockBytes)
	case c.RegionBytes == 0 || c.RegionBytes%uint64(c.LBABytes) != 0 || c.RegionBytes > math.MaxInt64:
		return nil, fmt.Errorf("%w: a region of %d bytes is not whole logical blocks of %d bytes", ErrWorkload, c.RegionBytes, c.LBABytes)
	case c.ReadPercent > 100:
		return nil, fmt.Errorf("%w: %d %% of reads", ErrWorkload, c.ReadPercent)
	}
	g := &Generator{config: c, blocks: (c.RegionBytes-1)/uint64(c.BlockBytes) + 1}
	g.tail = int32(c.RegionBytes - (g.blocks-1)*uint64(c.BlockBytes))
	if uint64(c.Workers) > g.blocks {
		return nil, fmt.Errorf("%w: %d workers share %d blocks", ErrWorkload, c.Workers, g.blocks)
	}
	g.mixKey = draw(c.Seed, 0)
	g.drawKey = draw(c.Seed, 1)
	g.setPass(0)
	if c.mixed() {
		var err error
		// Keys 2 and on are those of passes, which a mix has not.
		if g.mix, err = newMix(&c, func(n uint64) uint64 { return draw(c.Seed, 2+n) }); err != nil {
			return nil, err
		}
	}
	return g, nil
}

func (g *Generator) setPass(pass uint64) {
	g.pass = pass
	if g.config.Pattern == Random {
		g.order = NewPermutation(g.blocks, draw(g.config.Seed, 2+pass))
	}
}

// Blocks is how many blocks the region has, the shorter last one included, and
// so how many positions a pass has.
func (g *Generator) Blocks() uint64 { return g.blocks }

// PassBytes is how many bytes a pass transfers.
func (g *Generator) PassBytes() uint64 { return g.config.RegionBytes }

// At returns the operation at index (below Blocks) of a pass. For Replacement
// there is one endless pass: its number must be 0, the index is unbounded, the
// draw is the first of [Generator.Draw].
func (g *Generator) At(pass, index uint64) Op {
	position := index
	var block uint64
	switch g.config.Pattern {
	case Sequential:
		block = index
		position += pass * g.blocks
	case Random:
		if pass != g.pass {
			g.setPass(pass)
		}
		block = g.order.At(index)
		position += pass * g.blocks
	default:
		return g.Redraw(index, 0)
	}
	return g.op(block, g.writes(position))
}

// op completes an operation.
func (g *Generator) op(block uint64, write bool) Op {
	length := int32(g.config.BlockBytes)
	if block == g.blocks-1 {
		length = g.tail
	}
	return Op{
		Block:       block,
		Blocks:      1,
		OffsetBytes: int64(block * uint64(g.config.BlockBytes)),
		LengthBytes: length,
		Write:       write,
	}
}

// Redraw returns the operation at a position of Replacement by another draw:
// attempt 0 is what At returns. A worker that has the block of one draw in
// flight takes the next, so that two writes of a block never overlap.
func (g *Generator) Redraw(position uint64, attempt uint32) Op {
	if g.mix != nil {
		return g.mixedOp(position, attempt)
	}
	return g.op(g.Draw(position, attempt), g.writes(position))
}

// Draw returns the block at a position of Replacement: uniform, without modulo
// bias, over the blocks that belong to the position's worker (those whose
// number leaves the same remainder), so that workers never collide.
func (g *Generator) Draw(position uint64, attempt uint32) uint64 {
	worker := uint64(0)
	stride := uint64(g.config.Workers)
	n := g.blocks
	if stride != 1 {
		worker = position % stride
		n = (g.blocks-worker-1)/stride + 1
	}
	key := g.drawKey
	if attempt != 0 {
		key = draw(g.drawKey, uint64(attempt))
	}
	return worker + below(draw(key, position), n)*stride
}

// Locate says when a pass visits a block: the inverse of At, for Sequential and
// Random. False for Replacement, where no order exists.
func (g *Generator) Locate(pass, block uint64) (index uint64, ok bool) {
	switch g.config.Pattern {
	case Sequential:
		return block, block < g.blocks
	case Random:
		if block >= g.blocks {
			return 0, false
		}
		if pass != g.pass {
			g.setPass(pass)
		}
		return g.order.Position(block), true
	}
	return 0, false
}

// writes says whether the operation at a position writes: of each 100 positions
// from a multiple of 100, exactly ReadPercent do not, in an order that is a
// keyed permutation of the hundred.
func (g *Generator) writes(position uint64) bool {
	percent := uint64(g.config.ReadPercent)
	if percent == 0 || percent == 100 {
		return percent == 0
	}
	return g.mixed(position) >= percent
}

// mixed is the number of a position within its hundred, by a keyed permutation
// of the hundred: those below ReadPercent read.
func (g *Generator) mixed(position uint64) uint64 {
	key := draw(g.mixKey, position/100)
	x := position % 100
	for {
		// Three rounds over 7 bits, each with its own 13 bits of the key.
		x = (x*(key&0x3F<<1|1) + key>>6) & 0x7F
		x ^= x >> 4
		x = (x*(key>>13&0x3F<<1|1) + key>>19) & 0x7F
		x ^= x >> 4
		x = (x*(key>>26&0x3F<<1|1) + key>>32) & 0x7F
		x ^= x >> 4
		if x < 100 {
			return x
		}
	}
}
