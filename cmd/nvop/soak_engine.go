package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"nvop/endurance"
	"nvop/endurance/run"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/admin"
	"nvop/nvmeioctl/syncio"
	"nvop/nvmeioctl/uring"
)

// The engines of --engine.
const (
	engineAuto  = "auto"
	engineURing = "uring"
	engineCmd   = "uring-cmd"
	engineSync  = "sync"
)

// engineFlags say how data is moved.
type engineFlags struct {
	Engine   string `enum:"auto,uring,uring-cmd,sync" default:"auto" help:"How data is moved: uring (io_uring on the block node), uring-cmd (NVMe commands through io_uring on the generic node), sync (plain system calls, a thread an operation) or auto: uring where this kernel allows it, else sync." placeholder:"KIND"`
	Buffered bool   `help:"Go through the page cache: for a plain file, to take the medium out of a measurement."`
	Polled   bool   `help:"Ask the drive for completions instead of waiting for interrupts: needs poll queues (nvme.poll_queues=N) and keeps a processor busy for each worker."`
	Capacity string `help:"How large file:/dev/null, file:/dev/zero or file:/dev/full, which have no size, is taken to be: 1TiB; literal." placeholder:"SIZE"`
}

// ioEngine is how the data of a soak is moved, chosen once.
type ioEngine struct {
	kind   string
	polled bool
	mode   nvmeioctl.DirectMode
	// why is for the user: what was chosen for lack of something better.
	why string
	// node and commands are those of uring-cmd.
	node     string
	commands uring.Commands
}

// asBefore are the flags with which a run goes on: what its header says was asked
// for, unless something else is asked for now.
func (f engineFlags) asBefore(h run.Header) engineFlags {
	f.Buffered = f.Buffered || h.Buffered
	if f.Engine == engineAuto || f.Engine == "" {
		f.Engine, f.Polled = cmp.Or(h.EngineAsked, f.Engine), f.Polled || h.Polled
	}
	return f
}

// asked keeps in a run's header how its data was to be moved.
func (f engineFlags) asked(h *run.Header) {
	h.Buffered, h.Polled = f.Buffered, f.Polled
	if f.Engine != engineAuto {
		h.EngineAsked = f.Engine
	}
}

// chooseEngine settles how the target's data is moved. What the user asked for
// by name is never replaced by something else.
func (t *soakTarget) chooseEngine(ctx context.Context, f engineFlags) error {
	t.engine = ioEngine{kind: f.Engine, polled: f.Polled, mode: nvmeioctl.DirectAuto}
	if f.Buffered {
		if t.drive != nil || f.Engine == engineCmd {
			return usagef("--buffered is for files; what is soaked on a drive goes to the drive")
		}
		t.engine.mode = nvmeioctl.DirectOff
	}
	if t.path == "" {
		if f.Engine != engineAuto && f.Engine != "" || f.Polled {
			return usagef("--engine and --polled are for what the kernel moves; %s is a simulated drive", t.address)
		}
		return nil
	}
	switch f.Engine {
	case engineSync:
		if f.Polled {
			return usagef("--polled needs --engine uring or uring-cmd")
		}
		return nil
	case engineCmd:
		return t.chooseCommands(ctx)
	case engineURing:
		if err := uring.Probe(); err != nil {
			return fmt.Errorf("%w (--engine sync works without)", err)
		}
		return nil
	}
	t.engine.kind = engineURing
	if err := uring.Probe(); err != nil {
		if f.Polled {
			return err
		}
		t.engine.kind, t.engine.why = engineSync, err.Error()
	}
	return nil
}

// chooseCommands finds what NVMe commands need to know of the namespace.
func (t *soakTarget) chooseCommands(ctx context.Context) error {
	if t.drive == nil {
		return usagef("--engine uring-cmd sends NVMe commands; %s is no NVMe drive", t.address)
	}
	if t.node == "" {
		return &nvmeioctl.UnsupportedError{Feature: t.drive.address + ": NVMe commands through io_uring", Needs: "the namespace's generic node (/dev/ngXnY, Linux 5.13 or later)"}
	}
	meta, protection := t.ns.Format.MetadataBytes, t.ns.Protection&7
	if meta != 0 && (protection == 0 || meta != 8) {
		return &nvmeioctl.UnsupportedError{
			Feature: fmt.Sprintf("%s: NVMe commands on a format with %d bytes of metadata", t.drive.address, meta),
			Needs:   "protection information in just eight bytes of metadata, which the controller makes and strips",
			Have:    "use --engine uring or another format",
		}
	}
	id, err := admin.IdentifyController(ctx, t.drive.dev)
	if err != nil {
		return err
	}
	t.engine.node = t.node
	t.engine.commands = uring.Commands{
		NSID: t.ns.NSID, SizeBlocks: t.ns.SizeBlocks, BlockBytes: t.ns.Format.DataBytes,
		MaxTransferBytes: id.MaxTransferBytes, Protect: protection != 0,
	}
	return nil
}

// text is the engine as the user and the journal have it.
func (e ioEngine) text(t *soakTarget) string {
	what := map[string]string{
		engineURing: "io_uring", engineCmd: "NVMe commands through io_uring", engineSync: "system calls, a thread an operation",
	}[e.kind]
	if what == "" {
		return ""
	}
	if e.polled {
		what += ", polled"
	}
	switch {
	case e.mode == nvmeioctl.DirectOff:
		what += ", through the page cache"
	case t.buffered:
		what += ", buffered: a character device has no direct I/O"
	}
	if e.why != "" {
		what += " (" + e.why + ")"
	}
	return what
}

// queues opens the queue of each worker. A queue for writing is opened only
// here, after the check.
func (t *soakTarget) queues(job run.Job, writes bool, clock nvmeioctl.Clock) endurance.QueueFactory {
	block := uint32(0)
	for _, p := range job.Phases {
		block = max(block, p.BlockBytes)
	}
	most := int(min(uint64(block), math.MaxInt32))
	return func(int) (nvmeioctl.IOQueue, error) {
		if t.drive != nil && t.drive.sim != nil {
			return t.drive.sim.Queue(t.ns.NSID, job.MaxDepth(), job.TimeLapse)
		}
		if most := uint64(uring.MaxDepth); uint64(job.MaxDepth()) > most {
			return nil, usagef("--qd %d: %d operations in flight are the limit of a worker", job.MaxDepth(), most)
		}
		opts := uring.Options{
			Depth: job.MaxDepth(), Write: writes, Clock: clock, MaxRequestBytes: most,
			OneThread: true, Polled: t.engine.polled,
		}
		switch t.engine.kind {
		case engineCmd:
			return uring.OpenCommands(t.engine.node, t.engine.commands, opts)
		case engineURing:
			opts.LogicalBlockBytes, opts.Direct = int(t.lbaBytes), t.engine.mode
			return uring.Open(t.path, opts)
		}
		if err := tooManyThreads(job); err != nil {
			return nil, err
		}
		return syncio.Open(t.path, syncio.Options{
			Depth: job.MaxDepth(), Write: writes, Clock: clock, LogicalBlockBytes: int(t.lbaBytes), MaxRequestBytes: most,
			Direct: t.engine.mode,
		})
	}
}

// tooManyThreads refuses what plain system calls cannot keep outstanding.
func tooManyThreads(job run.Job) error {
	const most = 4096
	if uint64(job.MaxDepth())*uint64(job.Workers) > most {
		return usagef("--qd %d with --workers %d: every operation outstanding takes a thread with --engine sync, and %d of them are the limit",
			job.MaxDepth(), job.Workers, most)
	}
	return nil
}

// processors are those close to the drive, in order: its workers run there. nil
// where the machine does not tell.
func (t *soakTarget) processors() []int {
	if t.path == "" {
		return nil
	}
	name := filepath.Base(t.path)
	if resolved, err := filepath.EvalSymlinks(t.path); err == nil {
		name = filepath.Base(resolved)
	}
	// A namespace's device is its controller, whose device is the PCI function; a
	// multipath head has a subsystem in between and tells nothing.
	for _, at := range []string{"device/device", "device"} {
		text, err := os.ReadFile(filepath.Join("/sys/class/block", name, at, "local_cpulist"))
		if err == nil {
			return cpuList(strings.TrimSpace(string(text)))
		}
	}
	if t.drive != nil && t.drive.target != nil && t.drive.target.Controllers[0].PCIAddress != "" {
		text, err := os.ReadFile(filepath.Join("/sys/bus/pci/devices", t.drive.target.Controllers[0].PCIAddress, "local_cpulist"))
		if err == nil {
			return cpuList(strings.TrimSpace(string(text)))
		}
	}
	return nil
}

// cpuList reads the kernel's list of processors ("0-3,8"); what it cannot read
// gives nil.
func cpuList(text string) []int {
	const most = 1 << 16 // far beyond what a kernel can have
	var out []int
	for part := range strings.SplitSeq(text, ",") {
		var from, to int
		if n, err := fmt.Sscanf(part, "%d-%d", &from, &to); n != 2 || err != nil {
			if n, err := fmt.Sscanf(part, "%d", &from); n != 1 || err != nil {
				return nil
			}
			to = from
		}
		if from < 0 || to < from || to >= most {
			return nil
		}
		for cpu := from; cpu <= to; cpu++ {
			out = append(out, cpu)
		}
	}
	return out
}

// openSoakFile looks at a file, block or character device that is soaked as a
// plain data path.
func openSoakFile(address, path string, f soakFlags) (t *soakTarget, err error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	mode := nvmeioctl.DirectAuto
	if f.Buffered {
		mode = nvmeioctl.DirectOff
	}
	file, err := nvmeioctl.OpenData(abs, nvmeioctl.DataOptions{Direct: mode})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	t = &soakTarget{address: "file:" + abs, serial: "file:" + abs, path: abs, buffered: file.Character}
	t.region = region{capacityBytes: uint64(file.SizeBytes), lbaBytes: uint32(file.LogicalBlockBytes)}
	if f.resumedLBA != 0 {
		t.lbaBytes = f.resumedLBA
	} else if f.Buffered && !file.Block && t.capacityBytes%4096 == 0 {
		t.lbaBytes = 4096 // as a character device: it has no logical block
	}
	switch {
	case file.Character:
		if !dataSink(abs) {
			return nil, refusedf("target", address, "", "it is a character device, and of those only /dev/null, /dev/zero and /dev/full are harmless")
		}
		// It has no logical block either: that of current drives is taken.
		t.lbaBytes = 4096
		if t.capacityBytes, err = f.capacity(t.lbaBytes); err != nil {
			return nil, err
		}
	case f.Capacity != "":
		return nil, usagef("--capacity is for a node without a size; %s has %d bytes", address, file.SizeBytes)
	case t.capacityBytes == 0:
		return nil, fmt.Errorf("%s: it has no size; make the file as large as it shall be (truncate -s 10G FILE)", address)
	}
	t.header = run.Header{
		Address: t.address, Serial: t.serial, Model: "file", NGUID: fileIdentity(abs), OverProvisioningPermille: -1, PowerState: -1, LBADataBytes: t.lbaBytes,
	}
	return t, nil
}

// capacity is what a node without a size is taken to have.
func (f soakFlags) capacity(lba uint32) (uint64, error) {
	if f.resumed != 0 {
		return f.resumed, nil
	}
	if f.Capacity == "" {
		return 0, usagef("the node has no size: say how large it is taken to be, with --capacity 1TiB")
	}
	n, err := literalBytes("--capacity", f.Capacity)
	if err != nil {
		return 0, err
	}
	if n -= n % uint64(lba); n == 0 || n > math.MaxInt64 {
		return 0, usagef("--capacity %s: give at least a block of %d bytes, and less than 8 EiB", f.Capacity, lba)
	}
	return n, nil
}
