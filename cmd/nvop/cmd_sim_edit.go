package main

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"slices"
	"strings"

	"nvop/cmd/nvop/internal/render"
	"nvop/nvmeioctl/sim"
)

type simEditCmd struct {
	File     string  `arg:"" help:"The drive's file. It may be one that is being served." placeholder:"FILE"`
	Action   string  `arg:"" enum:"copy,swap,flip,tear,snapshot,restore" help:"copy, swap, flip, tear, snapshot or restore." placeholder:"ACTION"`
	NSID     uint32  `name:"nsid" default:"1" help:"The namespace." placeholder:"N"`
	LBA      uint64  `name:"lba" required:"" help:"The first logical block." placeholder:"N"`
	Blocks   uint64  `default:"1" help:"How many logical blocks; flip takes one." placeholder:"N"`
	To       *uint64 `help:"copy, swap: the first block of the other place." placeholder:"N"`
	Bit      *uint64 `help:"flip: which bit of the block, counted from bit 0 of its first byte (default: 0)." placeholder:"N"`
	Keep     *int64  `help:"tear: how many bytes from the first on stay as they are (default: half of them)." placeholder:"BYTES"`
	Snapshot string  `help:"snapshot: the file to make, which must not exist; tear, restore: the file with the older state." placeholder:"PATH"`
}

func (simEditCmd) Help() string {
	return "Changes what a simulated drive has stored, below every command, as silent corruption does: the drive notices nothing. " +
		"Blocks are copied over others, exchanged, have a bit flipped, are torn (the rest of them is zeros, or what a snapshot has), or go back to an older state. " +
		"Nothing is asked: the drive does not exist.\n\n" +
		"Example:\n" +
		"  nvop sim edit drive.nvop flip --lba 1234 --bit 77\n" +
		"  nvop sim edit drive.nvop snapshot --lba 0 --blocks 64 --snapshot old.blocks\n" +
		"  nvop sim edit drive.nvop restore --lba 8 --blocks 2 --snapshot old.blocks"
}

// editBytesMax bounds one edit of the command line, in bytes.
const editBytesMax = 64 << 20

// simEdit is one edit of a drive's contents.
type simEdit struct {
	Action   string        `json:"action"`
	NSID     uint32        `json:"nsid"`
	LBA      uint64        `json:"lba"`
	Blocks   uint64        `json:"blocks"`
	To       uint64        `json:"to,omitempty"`
	Bit      uint64        `json:"bit,omitempty"`
	Keep     int64         `json:"keep"` // -1 is half
	Snapshot *sim.Snapshot `json:"snapshot,omitempty"`
}

// String says what is edited.
func (e simEdit) String() string {
	return fmt.Sprintf("%s of logical blocks %d to %d of namespace %d", e.Action, e.LBA, e.LBA+max(e.Blocks, 1)-1, e.NSID)
}

// apply edits a drive that this process has.
func (e simEdit) apply(d *sim.Drive) (snap *sim.Snapshot, blockBytes int, err error) {
	r, err := d.Raw(e.NSID)
	if err != nil {
		return nil, 0, err
	}
	if blockBytes, err = r.BlockBytes(); err != nil {
		return nil, 0, err
	}
	if e.Blocks > editBytesMax/uint64(blockBytes) {
		return nil, 0, usagef("--blocks %d: an edit of more than %d bytes", e.Blocks, editBytesMax)
	}
	if e.Action == "restore" && e.Snapshot == nil {
		return nil, 0, usagef("restore needs --snapshot")
	}
	switch e.Action {
	case "copy":
		err = r.Copy(e.LBA, e.To, e.Blocks)
	case "swap":
		err = r.Swap(e.LBA, e.To, e.Blocks)
	case "flip":
		err = r.Flip(e.LBA, e.Bit)
	case "tear":
		keep := e.Keep
		if keep < 0 {
			keep = int64(e.Blocks) * int64(blockBytes) / 2
		}
		err = r.Tear(e.LBA, e.Blocks, uint64(keep), e.Snapshot)
	case "snapshot":
		snap, err = r.Snapshot(e.LBA, e.Blocks)
	case "restore":
		err = r.Restore(e.Snapshot, e.LBA, e.Blocks)
	default:
		err = fmt.Errorf("unknown edit %q", e.Action)
	}
	return snap, blockBytes, err
}

type simEditResult struct {
	Schema     string `json:"schema"`
	Address    string `json:"address"`
	Served     bool   `json:"served"`
	Action     string `json:"action"`
	NSID       uint32 `json:"nsid"`
	LBA        uint64 `json:"lba"`
	Blocks     uint64 `json:"blocks"`
	BlockBytes int    `json:"block_bytes"`
	Snapshot   string `json:"snapshot,omitempty"`
}

func (r simEditResult) Text(p *render.Page) {
	p.Line("%s: %s", r.Address, simEdit{Action: r.Action, NSID: r.NSID, LBA: r.LBA, Blocks: r.Blocks})
	if r.Snapshot != "" && r.Action == "snapshot" {
		p.Line("kept in %s", r.Snapshot)
	}
}

// valueOr is what a flag says, or what it means where it is not given.
func valueOr[T any](given *T, otherwise T) T {
	if given == nil {
		return otherwise
	}
	return *given
}

// check refuses flags that the action does not take, or lacks: what is edited cannot
// be had back.
func (c simEditCmd) check() error {
	only := func(flag, of string, given bool) error {
		if given && !slices.Contains(strings.Split(of, ", "), c.Action) {
			return usagef("%s is for %s, not for %s", flag, of, c.Action)
		}
		return nil
	}
	if err := cmp.Or(only("--to", "copy, swap", c.To != nil), only("--bit", "flip", c.Bit != nil), only("--keep", "tear", c.Keep != nil),
		only("--snapshot", "snapshot, tear, restore", c.Snapshot != "")); err != nil {
		return err
	}
	switch {
	case c.Blocks == 0:
		return usagef("--blocks 0: at least one")
	case c.Action == "flip" && c.Blocks != 1:
		return usagef("--blocks %d: flip flips one bit of one block", c.Blocks)
	case (c.Action == "copy" || c.Action == "swap") && c.To == nil:
		return usagef("%s needs --to, the first block of the other place", c.Action)
	case c.Keep != nil && *c.Keep < 0:
		return usagef("--keep %d: 0 bytes or more", *c.Keep)
	case (c.Action == "snapshot" || c.Action == "restore") && c.Snapshot == "":
		return usagef("%s needs --snapshot PATH", c.Action)
	}
	return nil
}

func (c simEditCmd) Run(ctx context.Context, a *app) error {
	if err := c.check(); err != nil {
		return err
	}
	e := simEdit{Action: c.Action, NSID: c.NSID, LBA: c.LBA, Blocks: c.Blocks, To: valueOr(c.To, 0), Bit: valueOr(c.Bit, 0), Keep: valueOr(c.Keep, -1)}
	switch {
	case c.Action == "snapshot":
		if _, err := os.Lstat(c.Snapshot); err == nil {
			return refusedf("overwrite", c.Snapshot, "name another file", "it exists")
		}
	case c.Snapshot != "":
		s, err := readSnapshot(c.Snapshot)
		if err != nil {
			return err
		}
		e.Snapshot = s
	}
	r, served, err := a.act(ctx, c.File, simAction{Do: "edit", Edit: &e})
	if err != nil {
		return err
	}
	if c.Action == "snapshot" {
		if r.Snapshot == nil {
			return errors.New("the process that serves the drive gave no snapshot")
		}
		if err := writeSnapshot(c.Snapshot, r.Snapshot); err != nil {
			return err
		}
	}
	return a.print(simEditResult{
		Schema: "nvop.sim-edit/1", Address: "sim:" + strings.TrimPrefix(c.File, "sim:"), Served: served, Action: c.Action,
		NSID: c.NSID, LBA: c.LBA, Blocks: c.Blocks, BlockBytes: r.BlockBytes, Snapshot: c.Snapshot,
	})
}

// A snapshot's file, little-endian: magic, first block (u64), bytes of a block
// (u32), CRC-32 of all that follows (u32), the blocks.
const (
	snapshotMagic = "nvopSNP\x01"
	snapshotHead  = 24
)

func writeSnapshot(path string, s *sim.Snapshot) error {
	le := binary.LittleEndian
	b := append([]byte(nil), snapshotMagic...)
	b = le.AppendUint64(b, s.LBA)
	b = le.AppendUint32(b, s.BlockBytes)
	b = le.AppendUint32(b, crc32.ChecksumIEEE(s.Data))
	return saveNew(path, 0o600, append(b, s.Data...))
}

func readSnapshot(path string) (*sim.Snapshot, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if fi.Size() > editBytesMax+snapshotHead {
		return nil, fmt.Errorf("%s: not a snapshot: it is too large", path)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	le := binary.LittleEndian
	if len(b) < snapshotHead || string(b[:len(snapshotMagic)]) != snapshotMagic {
		return nil, fmt.Errorf("%s: not a snapshot of nvop sim edit", path)
	}
	s := &sim.Snapshot{LBA: le.Uint64(b[8:]), BlockBytes: le.Uint32(b[16:]), Data: b[snapshotHead:]}
	if crc32.ChecksumIEEE(s.Data) != le.Uint32(b[20:]) || s.BlockBytes == 0 || len(s.Data)%int(s.BlockBytes) != 0 {
		return nil, fmt.Errorf("%s: the snapshot is damaged", path)
	}
	return s, nil
}
