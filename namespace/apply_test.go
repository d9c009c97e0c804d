package namespace_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"nvop/namespace"
	"nvop/namespace/txn"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
	"nvop/nvmeioctl/sim"
)

// rig is a simulated drive with a journal in memory. Commands pass through it,
// so that a test can refuse, lose or count them.
type rig struct {
	t     testing.TB
	drive *sim.Drive
	log   *txn.MemoryLog
	// fault is asked before each changing command: send says whether the
	// drive gets it; a status or an error replaces what the drive answers.
	fault func(n int, cmd *nvmeioctl.Command) (send bool, status nvmespec.Status, err error)
	// sent are the changing commands that reached the drive or a fault.
	sent []nvmeioctl.Command
	// rescans counts what the host was asked; visible answers for it.
	rescans int
	visible namespace.VisibleFunc
	// other is the identity reported in place of the drive's own.
	other *nvmeioctl.Identity
}

func newRig(t testing.TB, profile string, o sim.Options) *rig {
	t.Helper()
	p, ok := sim.LookupProfile(profile)
	if !ok {
		t.Fatalf("no profile %s", profile)
	}
	if o.Scale == 0 { // the smallest flash model: no data is moved here
		o.Scale = uint32(max(1, p.CapacityBytes/uint64(p.Flash.IndirectionBytes)/(1<<17)))
	}
	d, err := sim.New(p, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return &rig{t: t, drive: d, log: &txn.MemoryLog{}}
}

func changes(cmd *nvmeioctl.Command) bool {
	return !cmd.IO && nvmespec.ClassOf(true, cmd.Opcode, cmd.CDW10) != nvmespec.ClassRead
}

func (r *rig) Submit(ctx context.Context, cmd *nvmeioctl.Command) (nvmeioctl.Completion, error) {
	if !changes(cmd) {
		return r.drive.Submit(ctx, cmd)
	}
	if err := ctx.Err(); err != nil {
		return nvmeioctl.Completion{}, err
	}
	kept := *cmd
	kept.Data = slices.Clone(cmd.Data)
	r.sent = append(r.sent, kept)
	if r.fault != nil {
		send, status, err := r.fault(len(r.sent), cmd)
		if send {
			done, serr := r.drive.Submit(ctx, cmd)
			if serr != nil || err == nil && status == 0 {
				return done, serr
			}
		}
		return nvmeioctl.Completion{Status: status}, err
	}
	return r.drive.Submit(ctx, cmd)
}

func (r *rig) String() string                            { return "sim:test" }
func (r *rig) Close() error                              { return nil }
func (r *rig) ResetController(ctx context.Context) error { return r.drive.ResetController(ctx) }
func (r *rig) ResetSubsystem(ctx context.Context) error  { return r.drive.ResetSubsystem(ctx) }

func (r *rig) Rescan(ctx context.Context) error {
	r.rescans++
	return r.drive.Rescan(ctx)
}

func (r *rig) identify(ctx context.Context, dev nvmeioctl.Device) (nvmeioctl.Identity, error) {
	if r.other != nil {
		return *r.other, nil
	}
	return namespace.ReadIdentity(ctx, dev)
}

func (r *rig) runner() *txn.Runner {
	return &txn.Runner{
		Device: r, Clock: r.drive.Clock(), Log: r.log, Identify: r.identify, Describe: namespace.DescribeDrive,
		Registry: namespace.Executors(namespace.ExecutorOptions{Visible: r.visible}),
	}
}

func (r *rig) inventory() namespace.Inventory {
	r.t.Helper()
	inv, err := namespace.ReadInventory(r.t.Context(), r, namespace.ReadOptions{Transport: "sim", Clock: r.drive.Clock()})
	if err != nil {
		r.t.Fatal(err)
	}
	return inv
}

func (r *rig) run(p namespace.Plan) (txn.Report, error) {
	r.t.Helper()
	tx, err := p.Transaction()
	if err != nil {
		r.t.Fatal(err)
	}
	return r.runner().Run(r.t.Context(), tx)
}

// must plans and carries out, and checks the drive against the plan.
func (r *rig) must(p namespace.Plan, err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.run(p); err != nil {
		r.t.Fatal(err)
	}
	if bad := p.Verify(r.inventory()); len(bad) != 0 {
		r.t.Fatalf("%s: %v", p.Title, bad)
	}
}

func size(t testing.TB, text string) namespace.Size {
	t.Helper()
	s, err := namespace.ParseSize(text, false)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func exitCode(err error) int {
	if coder, ok := errors.AsType[interface {
		error
		ExitCode() int
	}](err); ok {
		return coder.ExitCode()
	}
	return 1
}

const pblaze = "pblaze7-7940-7.68tb"

func TestOPSet_resizesTheOnlyNamespace(t *testing.T) {
	r := newRig(t, pblaze, sim.Options{})
	target := namespace.OPTarget{Size: size(t, "6.4TB"), Title: "op set --size 6.4TB"}
	old := r.inventory().Namespaces[0]
	plan, err := namespace.PlanOPSet(r.inventory(), target, namespace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r.must(plan, nil)
	inv := r.inventory()
	n := inv.Namespaces[0]
	if len(inv.Namespaces) != 1 || n.SizeBytes() != 6_401_252_745_216 || n.CapacityBlocks != n.SizeBlocks {
		t.Fatalf("namespaces %v", inv.Namespaces)
	}
	if !slices.Equal(n.Controllers, old.Controllers) || n.Format != old.Format || n.NMIC != old.NMIC {
		t.Errorf("was %v, is %v", old, n)
	}
	var opcodes []uint8
	for _, cmd := range r.sent {
		opcodes = append(opcodes, cmd.Opcode)
		if cmd.Timeout < 5*time.Minute {
			t.Errorf("opcode 0x%02x has a time-out of %s", cmd.Opcode, cmd.Timeout)
		}
	}
	if !slices.Equal(opcodes, []uint8{0x15, 0x0d, 0x0d, 0x15}) {
		t.Errorf("opcodes %x", opcodes)
	}
	if r.rescans == 0 {
		t.Error("the host was not asked to look again")
	}
	again, err := namespace.PlanOPSet(inv, target, namespace.Options{})
	if err != nil || !again.AlreadySo() {
		t.Errorf("second run: %d steps, %v", len(again.Steps), err)
	}
}

// What was sent must be what the plan said.
func TestOPSet_sendsThePlannedCommands(t *testing.T) {
	r := newRig(t, pblaze, sim.Options{})
	plan, err := namespace.PlanOPSet(r.inventory(), namespace.OPTarget{Size: size(t, "6.4TB")}, namespace.Options{})
	r.must(plan, err)
	var planned []txn.Command
	for _, step := range plan.Steps {
		planned = append(planned, step.Commands...)
	}
	if len(planned) != len(r.sent) {
		t.Fatalf("%d planned, %d sent", len(planned), len(r.sent))
	}
	for i, cmd := range r.sent {
		p := planned[i]
		if p.NSIDFrom != "" {
			p.NSID = cmd.NSID
		}
		sent := txn.DescribeCommand(p.Name, &cmd, p.DataSummary)
		sent.NSIDFrom = p.NSIDFrom
		if p != sent {
			t.Errorf("planned %v\nsent    %v", p, sent)
		}
	}
}

// scenario prepares a drive and says what to plan for it.
type scenario struct {
	name    string
	profile string
	options sim.Options
	prepare func(r *rig)
	plan    func(r *rig, inv namespace.Inventory) (namespace.Plan, error)
}

func opSet(nsid uint32, text string, format *namespace.FormatSelector) func(*rig, namespace.Inventory) (namespace.Plan, error) {
	return func(r *rig, inv namespace.Inventory) (namespace.Plan, error) {
		return namespace.PlanOPSet(inv, namespace.OPTarget{NSID: nsid, Size: size(r.t, text), Format: format, Title: "op set"}, namespace.Options{})
	}
}

// three leaves the drive with namespaces 1, 2 and 3 of different shapes.
func three(r *rig) {
	r.must(namespace.PlanOPSet(r.inventory(), namespace.OPTarget{Size: size(r.t, "1TB"), Title: "prepare"}, namespace.Options{}))
	r.must(namespace.PlanCreate(r.inventory(), namespace.CreateTarget{Size: size(r.t, "500GB"), Title: "prepare",
		Format: &namespace.FormatSelector{DataBytes: 4096, MetadataBytes: 8}}, namespace.Options{}))
	r.must(namespace.PlanCreate(r.inventory(), namespace.CreateTarget{Size: size(r.t, "250GB"), Controllers: []uint16{}, Title: "prepare"}, namespace.Options{}))
	r.sent = nil
}

func scenarios() []scenario {
	var all []scenario
	for _, p := range sim.Profiles() {
		if p.AdminCommands&8 == 0 {
			continue
		}
		all = append(all,
			scenario{name: "shrink", profile: p.Name, plan: opSet(0, "50%", nil)},
			scenario{name: "shrink with another format", profile: p.Name, plan: opSet(0, "75%", &namespace.FormatSelector{DataBytes: 4096})},
		)
	}
	all = append(all,
		scenario{name: "one of three", profile: pblaze, prepare: three, plan: opSet(2, "600GB", nil)},
		scenario{name: "detached one of three", profile: pblaze, prepare: three, plan: opSet(3, "100GB", nil)},
		scenario{name: "two controllers", profile: pblaze, options: sim.Options{Controllers: 2}, plan: opSet(0, "6.4TB", nil)},
		scenario{name: "create", profile: pblaze, prepare: three, plan: func(r *rig, inv namespace.Inventory) (namespace.Plan, error) {
			return namespace.PlanCreate(inv, namespace.CreateTarget{Size: size(r.t, "100GB"), Title: "create"}, namespace.Options{})
		}},
		scenario{name: "delete two", profile: pblaze, prepare: three, plan: func(r *rig, inv namespace.Inventory) (namespace.Plan, error) {
			return namespace.PlanDelete(inv, []uint32{2, 3}, "delete", namespace.Options{})
		}},
		scenario{name: "attach", profile: pblaze, prepare: three, plan: func(r *rig, inv namespace.Inventory) (namespace.Plan, error) {
			return namespace.PlanAttach(inv, 3, nil, "attach", namespace.Options{})
		}},
		scenario{name: "detach", profile: pblaze, prepare: three, plan: func(r *rig, inv namespace.Inventory) (namespace.Plan, error) {
			return namespace.PlanDetach(inv, 2, nil, "detach", namespace.Options{})
		}},
		scenario{name: "format", profile: pblaze, prepare: three, plan: func(r *rig, inv namespace.Inventory) (namespace.Plan, error) {
			return namespace.PlanFormat(inv, namespace.FormatTarget{NSID: 1, Format: &namespace.FormatSelector{DataBytes: 4096}, Title: "format"}, namespace.Options{})
		}},
		scenario{name: "format a detached one", profile: pblaze, prepare: three, plan: func(r *rig, inv namespace.Inventory) (namespace.Plan, error) {
			return namespace.PlanFormat(inv, namespace.FormatTarget{NSID: 3, Format: &namespace.FormatSelector{DataBytes: 512, MetadataBytes: 8}, Title: "format"}, namespace.Options{})
		}},
		scenario{name: "spec", profile: pblaze, prepare: three, plan: func(r *rig, inv namespace.Inventory) (namespace.Plan, error) {
			s, err := namespace.ParseSpec("spec", []byte("version: 1\nnamespaces: [{size: 1TB}, {size: 2TB}, {size: 300GB, lba: {data: 4096}}]\nreplace: [2, 3]\n"))
			if err != nil {
				r.t.Fatal(err)
			}
			return namespace.PlanSpec(inv, s, namespace.Options{})
		}},
	)
	return all
}

func (s scenario) start(t testing.TB) (*rig, namespace.Plan) {
	t.Helper()
	r := newRig(t, s.profile, s.options)
	if s.prepare != nil {
		s.prepare(r)
	}
	plan, err := s.plan(r, r.inventory())
	if err != nil {
		t.Fatal(err)
	}
	return r, plan
}

var errCut = errors.New("cut")

func cutAt(n int) func(txn.Event) error {
	return func(txn.Event) error {
		if n--; n == 0 {
			return errCut
		}
		return nil
	}
}

// shape is what a rollback must restore: everything but the identifiers, which
// cannot be, and the NSIDs, which the drive chooses.
func shape(inv namespace.Inventory) string {
	var all []string
	for _, n := range inv.Namespaces {
		n.NSID, n.NGUID, n.EUI64, n.UsedBlocks = 0, "", "", 0
		all = append(all, jsonText(n))
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// jsonText is a value with all its fields: %+v would use its String method.
func jsonText(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// kept are the namespaces that a plan does not touch, whole.
func kept(inv namespace.Inventory, plan namespace.Plan) string {
	var all []string
	for _, n := range inv.Namespaces {
		if !slices.Contains(plan.NSIDs, n.NSID) && slices.ContainsFunc(plan.Before, func(b namespace.Namespace) bool { return b.NSID == n.NSID }) {
			all = append(all, jsonText(n))
		}
	}
	return strings.Join(all, "\n")
}

// TestCutEverywhere ends the process, so to speak, at every point of every plan,
// and goes on in one copy and back in the other. One seed gives one history, so
// a copy is the same run once more.
func TestCutEverywhere(t *testing.T) {
	for _, s := range scenarios() {
		t.Run(s.profile+"/"+s.name, func(t *testing.T) {
			points := 0
			for n := 1; ; n += raceStride {
				if !cutOnce(t, s, n, false) {
					break
				}
				cutOnce(t, s, n, true)
				points = n
			}
			if points < 5/raceStride {
				t.Errorf("only %d points were cut", points)
			}
		})
	}
}

// cutOnce cuts at the n-th event and goes on; false when there is no n-th event.
func cutOnce(t *testing.T, s scenario, n int, back bool) bool {
	t.Helper()
	r, plan := s.start(t)
	before := r.inventory()
	runner := r.runner()
	runner.Cut = cutAt(n)
	tx, err := plan.Transaction()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := runner.Run(t.Context(), tx); err == nil {
		return false
	} else if !errors.Is(err, errCut) {
		t.Fatalf("cut %d: %v", n, err)
	}
	open, err := r.log.Unfinished(t.Context(), before.Identity.Serial)
	if err != nil || len(open) != 1 {
		t.Fatalf("cut %d: unfinished %v, %v", n, open, err)
	}
	// The process that goes on knows the log and the drive alone.
	if !back {
		if _, err := r.runner().Resume(t.Context(), open[0].ID); err != nil {
			t.Fatalf("cut %d, resume: %v", n, err)
		}
		if bad := plan.Verify(r.inventory()); len(bad) != 0 {
			t.Fatalf("cut %d, resume: %v", n, bad)
		}
	} else {
		if _, err := r.runner().Rollback(t.Context(), open[0].ID); err != nil {
			t.Fatalf("cut %d, rollback: %v", n, err)
		}
		if got, want := shape(r.inventory()), shape(before); got != want {
			t.Fatalf("cut %d, rollback:\n%s\nwas\n%s", n, got, want)
		}
	}
	after := r.inventory()
	if got, want := kept(after, plan), kept(before, plan); got != want {
		t.Fatalf("cut %d: untouched namespaces are\n%s\nwere\n%s", n, got, want)
	}
	if open, _ := r.log.Unfinished(t.Context(), ""); len(open) != 0 {
		t.Fatalf("cut %d: unfinished %v", n, open)
	}
	return true
}

// TestCutEverywhere_twice cuts the way back, or on, as well.
func TestCutEverywhere_twice(t *testing.T) {
	s := scenario{profile: "memblaze-p6531-3.84tb", plan: opSet(0, "50%", nil)}
	for n := 1; n <= 25; n += raceStride {
		for m := 1; m <= 25; m += 3 * raceStride {
			for _, back := range []bool{false, true} {
				r, plan := s.start(t)
				before := shape(r.inventory())
				runner := r.runner()
				runner.Cut = cutAt(n)
				tx, _ := plan.Transaction()
				if _, err := runner.Run(t.Context(), tx); !errors.Is(err, errCut) {
					t.Fatalf("cut %d: %v", n, err)
				}
				second := r.runner()
				second.Cut = cutAt(m)
				do := second.Resume
				if back {
					do = second.Rollback
				}
				if _, err := do(t.Context(), "1"); err != nil && !errors.Is(err, errCut) {
					t.Fatalf("cuts %d, %d: %v", n, m, err)
				}
				if _, err := r.runner().Resume(t.Context(), "1"); err != nil {
					t.Fatalf("cuts %d, %d, back %v: %v", n, m, back, err)
				}
				if back && shape(r.inventory()) != before {
					t.Fatalf("cuts %d, %d: %s", n, m, shape(r.inventory()))
				}
				if bad := plan.Verify(r.inventory()); !back && len(bad) != 0 {
					t.Fatalf("cuts %d, %d: %v", n, m, bad)
				}
			}
		}
	}
}

// TestCut_stateFile does the same with a drive in a file that is opened anew, as
// another process would.
func TestCut_stateFile(t *testing.T) {
	p, _ := sim.LookupProfile("memblaze-p6531-3.84tb")
	path := filepath.Join(t.TempDir(), "drive")
	if err := sim.Create(path, p, sim.Options{Scale: uint32(p.CapacityBytes / uint64(p.Flash.IndirectionBytes) / (1 << 17))}); err != nil {
		t.Fatal(err)
	}
	image, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	open := func(log *txn.MemoryLog) *rig {
		d, err := sim.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		return &rig{t: t, drive: d, log: log}
	}
	for n := 1; n <= 25; n += 2 {
		if err := os.WriteFile(path, image, 0o600); err != nil {
			t.Fatal(err)
		}
		r := open(&txn.MemoryLog{})
		plan, err := opSet(0, "50%", nil)(r, r.inventory())
		if err != nil {
			t.Fatal(err)
		}
		before := shape(r.inventory())
		runner := r.runner()
		runner.Cut = cutAt(n)
		tx, _ := plan.Transaction()
		if _, err := runner.Run(t.Context(), tx); !errors.Is(err, errCut) {
			t.Fatalf("cut %d: %v", n, err)
		}
		r.drive.Close()
		r = open(r.log)
		if n%4 == 1 {
			_, err = r.runner().Rollback(t.Context(), "1")
			if err != nil || shape(r.inventory()) != before {
				t.Errorf("cut %d, rollback: %v, %s", n, err, shape(r.inventory()))
			}
		} else {
			_, err = r.runner().Resume(t.Context(), "1")
			if bad := plan.Verify(r.inventory()); err != nil || len(bad) != 0 {
				t.Errorf("cut %d, resume: %v, %v", n, err, bad)
			}
		}
		r.drive.Close()
	}
}
