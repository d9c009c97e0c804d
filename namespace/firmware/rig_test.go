package firmware_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"nvop/namespace/firmware"
	"nvop/namespace/txn"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/admin"
	"nvop/nvmeioctl/nvmespec"
	"nvop/nvmeioctl/sim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// drive has three slots, the first read-only and active.
const driveName = "pblaze7-7940-7.68tb"

// rig is a simulated drive with a device in front of it that can interfere.
type rig struct {
	t     testing.TB
	drive *sim.Drive
	log   *txn.MemoryLog
	// fault decides what happens to a command: pass it on, or answer in its place.
	fault func(cmd *nvmeioctl.Command) (pass bool, status nvmespec.Status, err error)
	// patch changes what a command has read.
	patch func(cmd *nvmeioctl.Command)
	// reset stands for the drive's own; nil is the drive's.
	reset func(ctx context.Context) error
	// sent counts the commands that change something.
	sent []nvmeioctl.Command
	dir  string
}

func newRig(t testing.TB, change func(*sim.Profile, *sim.Options)) *rig {
	t.Helper()
	p, ok := sim.LookupProfile(driveName)
	if !ok {
		t.Fatal("no such profile")
	}
	o := sim.Options{Scale: 8192}
	if change != nil {
		change(&p, &o)
	}
	d, err := sim.New(p, o)
	if err != nil {
		t.Fatal(err)
	}
	return &rig{t: t, drive: d, log: &txn.MemoryLog{}, dir: t.TempDir()}
}

func (r *rig) String() string { return "rig" }
func (r *rig) Close() error   { return nil }

func (r *rig) Submit(ctx context.Context, cmd *nvmeioctl.Command) (nvmeioctl.Completion, error) {
	if nvmespec.ClassOf(!cmd.IO, cmd.Opcode, cmd.CDW10) != nvmespec.ClassRead {
		kept := *cmd
		kept.Data = nil
		r.sent = append(r.sent, kept)
	}
	if r.fault != nil {
		if pass, status, err := r.fault(cmd); !pass {
			return nvmeioctl.Completion{Status: status}, err
		}
	}
	done, err := r.drive.Submit(ctx, cmd)
	if r.patch != nil && err == nil {
		r.patch(cmd)
	}
	return done, err
}

func (r *rig) ResetController(ctx context.Context) error {
	if r.reset != nil {
		return r.reset(ctx)
	}
	return r.drive.ResetController(ctx)
}
func (r *rig) ResetSubsystem(context.Context) error {
	r.t.Error("a subsystem reset (FW-04)")
	return errors.New("never")
}
func (r *rig) Rescan(context.Context) error { return nil }

func (r *rig) state() firmware.State {
	r.t.Helper()
	s, err := firmware.Read(r.t.Context(), r.drive)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// image makes an image file.
func (r *rig) image(revision string, size int) firmware.Image {
	r.t.Helper()
	b, err := sim.FirmwareImage(r.drive.Profile(), revision, size)
	if err != nil {
		r.t.Fatal(err)
	}
	return r.file(revision, b)
}

func (r *rig) file(name string, b []byte) firmware.Image {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		r.t.Fatal(err)
	}
	img, err := firmware.LoadImage(path)
	if err != nil {
		r.t.Fatal(err)
	}
	return img
}

// plan plans an image of this revision.
func (r *rig) plan(w firmware.Want, img *firmware.Image, o firmware.Options) firmware.Planned {
	r.t.Helper()
	if img != nil {
		w.Image = img.Path
	}
	p, err := firmware.Plan(r.state(), w, img, o)
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

func (r *rig) transaction(p firmware.Planned) txn.Transaction {
	r.t.Helper()
	id, err := admin.Identity(r.t.Context(), r.drive)
	if err != nil {
		r.t.Fatal(err)
	}
	return txn.Transaction{Title: "test", Address: "rig", Identity: id, Steps: p.Steps}
}

func (r *rig) runner() *txn.Runner {
	return &txn.Runner{Device: r, Clock: r.drive.Clock(), Log: r.log, Registry: firmware.Executors(firmware.ExecutorOptions{}), Identify: admin.Identity}
}

func (r *rig) run(p firmware.Planned) (txn.Report, error) {
	r.t.Helper()
	return r.runner().Run(r.t.Context(), r.transaction(p))
}

func (r *rig) must(p firmware.Planned) txn.Report {
	r.t.Helper()
	rep, err := r.run(p)
	if err != nil {
		r.t.Fatal(err)
	}
	return rep
}

// record is what the last step of a run left.
func (r *rig) record(p firmware.Planned, rep txn.Report) firmware.Record {
	r.t.Helper()
	rec, ok := firmware.DecodeRecord(p.Steps[len(p.Steps)-1], rep.States[len(rep.States)-1])
	if !ok {
		r.t.Fatalf("no record in %s", rep.States)
	}
	return rec
}

// commits are the commit commands sent, as slot and action.
func (r *rig) commits() []nvmespec.FirmwareCommitFields {
	var list []nvmespec.FirmwareCommitFields
	for _, c := range r.sent {
		if c.Opcode == nvmespec.AdminFirmwareCommit {
			list = append(list, nvmespec.DecodeFirmwareCommitFields(c.CDW10))
		}
	}
	return list
}

func exitCode(err error) int {
	if e, ok := errors.AsType[interface {
		error
		ExitCode() int
	}](err); ok {
		return e.ExitCode()
	}
	return 1
}

func mustJSON(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
