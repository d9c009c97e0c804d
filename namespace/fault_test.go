package namespace_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"nvop/namespace"
	"nvop/namespace/txn"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/admin"
	"nvop/nvmeioctl/nvmespec"
	"nvop/nvmeioctl/sim"
)

// is says what a changing command does: "create", "delete", "attach", "detach".
func is(cmd *nvmeioctl.Command) string {
	switch {
	case cmd.Opcode == nvmespec.AdminNamespaceManage && cmd.CDW10 == nvmespec.SelectCreate:
		return "create"
	case cmd.Opcode == nvmespec.AdminNamespaceManage:
		return "delete"
	case cmd.Opcode == nvmespec.AdminNamespaceAttach && cmd.CDW10 == nvmespec.SelectAttach:
		return "attach"
	case cmd.Opcode == nvmespec.AdminNamespaceAttach:
		return "detach"
	}
	return nvmespec.CommandName(true, cmd.Opcode)
}

func refuse(what string, status nvmespec.Status) func(int, *nvmeioctl.Command) (bool, nvmespec.Status, error) {
	return func(_ int, cmd *nvmeioctl.Command) (bool, nvmespec.Status, error) {
		if is(cmd) == what {
			return false, status, nil
		}
		return true, 0, nil
	}
}

// resize plans half of the drive.
func resize(t *testing.T, r *rig) (namespace.Plan, namespace.Inventory) {
	t.Helper()
	inv := r.inventory()
	plan, err := opSet(0, "50%", nil)(r, inv)
	if err != nil {
		t.Fatal(err)
	}
	return plan, inv
}

const oneNamespace = "memblaze-p6531-3.84tb"

// The drive refuses every new size at create: the old namespace comes back,
// attached, and the exit code is the drive's.
func TestFault_newSizeRefusedRestoresTheOld(t *testing.T) {
	r := newRig(t, oneNamespace, sim.Options{})
	plan, before := resize(t, r)
	old := before.Namespaces[0].SizeBlocks
	r.fault = func(_ int, cmd *nvmeioctl.Command) (bool, nvmespec.Status, error) {
		if is(cmd) == "create" {
			c, _ := nvmespec.DecodeNamespaceCreate(cmd.Data)
			if c.SizeBlocks != old {
				return false, 0x6002, nil
			}
		}
		return true, 0, nil
	}
	_, err := r.run(plan)
	if _, ok := errors.AsType[*txn.RolledBackError](err); !ok || exitCode(err) != 6 {
		t.Fatalf("error %v, exit %d", err, exitCode(err))
	}
	// The size is back, the data is not: both the message and the journal say so.
	history, lerr := r.log.Load(t.Context(), "1")
	for _, text := range []string{err.Error(), history.Transaction.Message} {
		if !strings.Contains(text, "lost for good: all data of namespace 1") || !strings.Contains(text, "identifiers cannot be brought back") {
			t.Errorf("%v: %q does not say what is lost", lerr, text)
		}
	}
	if got := shape(r.inventory()); got != shape(before) {
		t.Errorf("drive is %s", got)
	}
}

// A drive with more than one refuses the whole command set at the first command
// it has not got, as QEMU does: what was detached is attached again.
func TestFault_deleteRefusedKeepsTheData(t *testing.T) {
	r := newRig(t, pblaze, sim.Options{})
	plan, before := resize(t, r)
	r.fault = refuse("delete", 0x4001)
	_, err := r.run(plan)
	if exitCode(err) != 6 || !errors.Is(err, nvmespec.ErrInvalidOpcode) {
		t.Fatalf("error %v, exit %d", err, exitCode(err))
	}
	if got, want := jsonText(r.inventory().Namespaces), jsonText(before.Namespaces); got != want {
		t.Errorf("drive is\n%s\nwas\n%s", got, want)
	}
}

// Create fails for ever: the message says so, names the geometry and the way on,
// and the way on works once the fault is gone.
func TestFault_createFailsForEver(t *testing.T) {
	r := newRig(t, oneNamespace, sim.Options{})
	plan, before := resize(t, r)
	r.fault = refuse("create", 0x4000|nvmespec.StatusInvalidFormat)
	_, err := r.run(plan)
	if exitCode(err) != 7 {
		t.Fatalf("error %v, exit %d", err, exitCode(err))
	}
	for _, part := range []string{
		"the old namespace could not be created again", fmt.Sprintf("nsze=%d", before.Namespaces[0].SizeBlocks),
		"nvop rollback 1", "NO namespace now", "step 3 was refused", "0x10a",
	} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("message lacks %q: %v", part, err)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("more than a line: %q", err)
	}
	r.fault = nil
	if _, err := r.runner().Rollback(t.Context(), "1"); err != nil || shape(r.inventory()) != shape(before) {
		t.Errorf("rollback: %v, %s", err, shape(r.inventory()))
	}
}

func TestFault_attachRefusedRestoresTheOld(t *testing.T) {
	r := newRig(t, oneNamespace, sim.Options{})
	plan, before := resize(t, r)
	attaches := 0
	r.fault = func(_ int, cmd *nvmeioctl.Command) (bool, nvmespec.Status, error) {
		if is(cmd) == "attach" {
			if attaches++; attaches == 1 {
				return false, 0x4000 | nvmespec.StatusInvalidControllerList, nil
			}
		}
		return true, 0, nil
	}
	_, err := r.run(plan)
	if exitCode(err) != 6 || shape(r.inventory()) != shape(before) {
		t.Errorf("error %v, drive %s", err, shape(r.inventory()))
	}
}

// An answer that is lost, whether the command was carried out or not, at each
// command of the plan: reading back tells, and resume ends well.
func TestFault_lostAnswers(t *testing.T) {
	for lost := 1; lost <= 4; lost++ {
		for _, carriedOut := range []bool{true, false} {
			r := newRig(t, oneNamespace, sim.Options{})
			plan, before := resize(t, r)
			r.fault = func(n int, _ *nvmeioctl.Command) (bool, nvmespec.Status, error) {
				if n == lost {
					return carriedOut, 0, fmt.Errorf("interrupted: %w", nvmeioctl.ErrIndeterminate)
				}
				return true, 0, nil
			}
			_, err := r.run(plan)
			if carriedOut && err != nil {
				t.Errorf("command %d carried out: %v", lost, err)
			}
			if !carriedOut && exitCode(err) != 7 {
				t.Errorf("command %d lost: %v", lost, err)
			}
			if !carriedOut && lost > 1 {
				// The other way first, in another run of the same history.
				other := newRig(t, oneNamespace, sim.Options{})
				other.fault = r.fault
				_, _ = other.run(plan)
				if _, err := other.runner().Rollback(t.Context(), "1"); err != nil || shape(other.inventory()) != shape(before) {
					t.Errorf("command %d lost, rollback: %v, %s", lost, err, shape(other.inventory()))
				}
			}
			if _, err := r.runner().Resume(t.Context(), "1"); err != nil {
				t.Errorf("command %d lost, resume: %v", lost, err)
			}
			if bad := plan.Verify(r.inventory()); len(bad) != 0 {
				t.Errorf("command %d: %v", lost, bad)
			}
		}
	}
}

// Statuses that do not say whether the command was carried out are no refusals.
func TestFault_abortedIsNotRefused(t *testing.T) {
	r := newRig(t, oneNamespace, sim.Options{})
	plan, _ := resize(t, r)
	r.fault = func(_ int, cmd *nvmeioctl.Command) (bool, nvmespec.Status, error) {
		if is(cmd) == "create" {
			return true, nvmespec.StatusAborted, nil // carried out all the same
		}
		return true, 0, nil
	}
	if _, err := r.run(plan); err != nil {
		t.Fatal(err)
	}
	if bad := plan.Verify(r.inventory()); len(bad) != 0 {
		t.Error(bad)
	}
}

// The drive has less than it reports: sizes are stepped down within the bounds
// of the plan, each attempt is recorded before it is sent.
func TestFault_stepDown(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		reserved uint64
		ok       bool
	}{{5*mib + 1, true}, {64 * mib, true}, {65 * mib, false}, {0, true}} {
		r := newRig(t, oneNamespace, sim.Options{ReservedBytes: 0})
		r.must(opSet(0, "50%", nil)(r, r.inventory()))
		full := r.inventory().Controller.TotalBytes
		limit := full - c.reserved
		r.fault = func(_ int, cmd *nvmeioctl.Command) (bool, nvmespec.Status, error) {
			if is(cmd) == "create" {
				data, _ := nvmespec.DecodeNamespaceCreate(cmd.Data)
				if data.SizeBlocks*512 > limit {
					return false, 0x6115, nil
				}
			}
			return true, 0, nil
		}
		before := r.inventory()
		plan, err := opSet(0, "max", nil)(r, before)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(strings.Join(plan.Notes, "\n"), "made smaller in steps") {
			t.Errorf("the plan does not announce steps: %v", plan.Notes)
		}
		r.sent = nil
		_, err = r.run(plan)
		if !c.ok {
			if exitCode(err) != 6 || !errors.Is(err, nvmespec.ErrInsufficientCapacity) || shape(r.inventory()) != shape(before) {
				t.Errorf("reserved %d: %v, %s", c.reserved, err, shape(r.inventory()))
			}
			continue
		}
		if err != nil {
			t.Errorf("reserved %d: %v", c.reserved, err)
			continue
		}
		got := r.inventory().Namespaces[0].SizeBytes()
		if got > limit || limit-got >= mib {
			t.Errorf("reserved %d: %d bytes of %d possible", c.reserved, got, limit)
		}
		if bad := plan.Verify(r.inventory()); len(bad) != 0 {
			t.Errorf("reserved %d: %v", c.reserved, bad)
		}
		checkAttempts(t, r)
		// The namespace has all the drive gives: asking again destroys nothing.
		again, err := opSet(0, "max", nil)(r, r.inventory())
		if err != nil || !again.AlreadySo() {
			t.Errorf("reserved %d: a second run has %d steps, %v", c.reserved, len(again.Steps), err)
		}
	}
}

// checkAttempts compares the creates sent with the intents recorded.
func checkAttempts(t *testing.T, r *rig) {
	t.Helper()
	var sent, recorded []string
	for _, cmd := range r.sent {
		if is(&cmd) == "create" {
			data, _ := nvmespec.DecodeNamespaceCreate(cmd.Data)
			sent = append(sent, fmt.Sprintf("nsze=%d", data.SizeBlocks))
		}
	}
	h, err := r.log.Load(t.Context(), "2")
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range h.Intents {
		for _, cmd := range in.Commands {
			if strings.HasSuffix(cmd.Name, "create") {
				recorded = append(recorded, strings.Fields(cmd.DataSummary)[0])
			}
		}
	}
	if !slices.Equal(sent, recorded) {
		t.Errorf("sent %v, recorded %v", sent, recorded)
	}
}

// Where the error log tells how much is lacking, one step is enough (NS-04).
func TestFault_stepDownByTheErrorLog(t *testing.T) {
	const lacking = 10<<20 - 4096
	r := newRig(t, pblaze, sim.Options{})
	r.must(opSet(0, "4TB", nil)(r, r.inventory()))
	r.must(namespace.PlanCreate(r.inventory(), namespace.CreateTarget{Size: size(t, "1TB")}, namespace.Options{}))
	inv := r.inventory()
	inv.Controller.UnallocatedBytes += lacking // the drive has less than it said
	plan, err := opSet(1, "max", nil)(r, inv)
	if err != nil {
		t.Fatal(err)
	}
	r.sent = nil
	if _, err := r.run(plan); err != nil {
		t.Fatal(err)
	}
	creates := 0
	for _, cmd := range r.sent {
		if is(&cmd) == "create" {
			creates++
		}
	}
	if creates != 2 || r.inventory().Controller.UnallocatedBytes >= 1<<20 {
		t.Errorf("%d creates, %d bytes left over", creates, r.inventory().Controller.UnallocatedBytes)
	}
}

// Cut while stepping down: the attempt that was open is found.
func TestFault_stepDownCut(t *testing.T) {
	for n := 1; n <= 40; n += raceStride {
		for _, back := range []bool{false, true} {
			r := newRig(t, oneNamespace, sim.Options{})
			r.must(opSet(0, "50%", nil)(r, r.inventory()))
			before := r.inventory()
			limit := before.Controller.TotalBytes - 3<<20
			r.fault = func(_ int, cmd *nvmeioctl.Command) (bool, nvmespec.Status, error) {
				data, _ := nvmespec.DecodeNamespaceCreate(cmd.Data)
				if is(cmd) == "create" && data.SizeBlocks*512 > limit {
					return false, 0x6115, nil
				}
				return true, 0, nil
			}
			plan, err := opSet(0, "max", nil)(r, before)
			if err != nil {
				t.Fatal(err)
			}
			tx, _ := plan.Transaction()
			runner := r.runner()
			runner.Cut = cutAt(n)
			if _, err := runner.Run(t.Context(), tx); err == nil {
				return
			} else if !errors.Is(err, errCut) {
				t.Fatalf("cut %d: %v", n, err)
			}
			if back {
				if _, err := r.runner().Rollback(t.Context(), "2"); err != nil || shape(r.inventory()) != shape(before) {
					t.Errorf("cut %d, rollback: %v, %s", n, err, shape(r.inventory()))
				}
				continue
			}
			_, err = r.runner().Resume(t.Context(), "2")
			if bad := plan.Verify(r.inventory()); err != nil || len(bad) != 0 {
				t.Errorf("cut %d, resume: %v, %v", n, err, bad)
			}
		}
	}
	t.Error("there are more points than were cut")
}

func TestFault_identityChanges(t *testing.T) {
	r := newRig(t, oneNamespace, sim.Options{})
	plan, before := resize(t, r)
	swapped := before.Identity
	swapped.Serial = "ANOTHER"
	r.fault = func(_ int, cmd *nvmeioctl.Command) (bool, nvmespec.Status, error) {
		if is(cmd) == "detach" {
			r.other = &swapped // the node now leads to another drive
		}
		return true, 0, nil
	}
	_, err := r.run(plan)
	refused, ok := errors.AsType[*nvmeioctl.RefusedError](err)
	if !ok || refused.Check != "identity" || exitCode(err) != 7 || len(r.sent) != 1 {
		t.Fatalf("error %v, %d commands", err, len(r.sent))
	}
	r.other, r.fault = nil, nil
	if _, err := r.runner().Rollback(t.Context(), "1"); err != nil || shape(r.inventory()) != shape(before) {
		t.Errorf("rollback: %v", err)
	}
}

// Somebody deletes the namespace and makes another of the same number between
// plan and apply: it is not touched.
func TestFault_otherNamespaceUnderTheSameNSID(t *testing.T) {
	r := newRig(t, oneNamespace, sim.Options{})
	plan, _ := resize(t, r)
	r.must(opSet(0, "75%", nil)(r, r.inventory()))
	r.must(opSet(0, "max", nil)(r, r.inventory())) // the same shape, other identifiers
	if len(plan.Drift(r.inventory())) == 0 {
		t.Error("drift was not noticed")
	}
	r.sent = nil
	_, err := r.run(plan)
	if exitCode(err) != 4 || len(r.sent) != 0 {
		t.Errorf("error %v, %d commands", err, len(r.sent))
	}
}

// 0x118 and 0x11a count as done only if reading back agrees (NS-75).
func TestFault_alreadyAttachedIsReadBack(t *testing.T) {
	r := newRig(t, oneNamespace, sim.Options{})
	plan, _ := resize(t, r)
	lie := false
	r.fault = func(_ int, cmd *nvmeioctl.Command) (bool, nvmespec.Status, error) {
		switch is(cmd) {
		case "detach":
			return true, 0x4000 | nvmespec.StatusNotAttached, nil
		case "attach":
			return !lie, 0x4000 | nvmespec.StatusAlreadyAttached, nil
		}
		return true, 0, nil
	}
	if _, err := r.run(plan); err != nil {
		t.Errorf("true answers: %v", err)
	}
	r = newRig(t, oneNamespace, sim.Options{})
	plan, _ = resize(t, r)
	lie = true
	r.fault = refuse("attach", 0x4000|nvmespec.StatusAlreadyAttached)
	if _, err := r.run(plan); !errors.Is(err, nvmespec.ErrAlreadyAttached) {
		t.Errorf("a false answer was believed: %v", err)
	}
}

// NS-29, NS-51, SYS-14: a change waits for the host to show the namespace, found by
// the drive's identity, NSID, size and block size, with a bound and never for a time.
func TestRescan_waitsForTheHost(t *testing.T) {
	r := newRig(t, pblaze, sim.Options{})
	plan, _ := resize(t, r)
	var asked []namespace.Visible
	answers := 0
	r.visible = func(_ context.Context, want namespace.Visible) (bool, error) {
		asked = append(asked, want)
		answers++
		return answers > 3, nil
	}
	if _, err := r.run(plan); err != nil {
		t.Fatal(err)
	}
	last := asked[len(asked)-1]
	if !last.Present || last.NSID != 1 || last.Identity != plan.Identity || last.Identity.Serial == "" || last.SizeBytes != plan.After[0].SizeBytes() || last.BlockBytes != 512 || len(asked) < 4 {
		t.Errorf("asked %+v", asked)
	}
	for _, want := range asked {
		if !want.Present {
			t.Errorf("asked for %+v although its NSID is in use again", want)
		}
	}

	// A host that never shows it: a bounded wait, an honest message, and resume.
	r = newRig(t, pblaze, sim.Options{})
	plan, _ = resize(t, r)
	r.visible = func(context.Context, namespace.Visible) (bool, error) { return false, nil }
	_, err := r.run(plan)
	if exitCode(err) != 7 || !strings.Contains(err.Error(), "controller reset may be needed") {
		t.Fatalf("error %v", err)
	}
	r.visible = nil
	if _, err := r.runner().Resume(t.Context(), "1"); err != nil {
		t.Error(err)
	}
}

func TestFormat_refusedByTheDriveNeverLoops(t *testing.T) {
	r := newRig(t, pblaze, sim.Options{})
	inv := r.inventory()
	plan, err := namespace.PlanFormat(inv, namespace.FormatTarget{Format: &namespace.FormatSelector{DataBytes: 4096}}, namespace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r.fault = func(int, *nvmeioctl.Command) (bool, nvmespec.Status, error) { return false, 0x410a, nil }
	if _, err := r.run(plan); exitCode(err) != 6 || len(r.sent) != 1 {
		t.Errorf("error %v, %d commands", err, len(r.sent))
	}
}

// A format whose answer was lost is done again unless reading back proves it:
// nothing tells whether data was erased, and the data is to go anyway.
func TestFormat_lostAnswer(t *testing.T) {
	fourK := &namespace.FormatSelector{DataBytes: 4096}
	for _, c := range []struct {
		target     namespace.FormatTarget
		carriedOut bool
		proven     bool
	}{
		{namespace.FormatTarget{}, true, false},
		{namespace.FormatTarget{}, false, false},
		{namespace.FormatTarget{Format: fourK}, true, true},
		{namespace.FormatTarget{Format: fourK}, false, false},
		{namespace.FormatTarget{Format: fourK, Erase: namespace.EraseCrypto}, true, false},
		{namespace.FormatTarget{Erase: namespace.EraseCrypto}, false, false},
	} {
		r := newRig(t, pblaze, sim.Options{})
		plan, err := namespace.PlanFormat(r.inventory(), c.target, namespace.Options{})
		if err != nil {
			t.Fatal(err)
		}
		r.fault = func(n int, _ *nvmeioctl.Command) (bool, nvmespec.Status, error) {
			if n == 1 {
				return c.carriedOut, 0, nvmeioctl.ErrIndeterminate
			}
			return true, 0, nil
		}
		_, err = r.run(plan)
		if c.proven {
			if err != nil || len(r.sent) != 1 {
				t.Errorf("%+v: %v, %d commands", c, err, len(r.sent))
			}
			continue
		}
		if exitCode(err) != 7 {
			t.Errorf("%+v: %v", c, err)
		}
		if _, err := r.runner().Resume(t.Context(), "1"); err != nil || len(r.sent) != 2 {
			t.Errorf("%+v: resume: %v, %d commands", c, err, len(r.sent))
		}
		if bad := plan.Verify(r.inventory()); len(bad) != 0 {
			t.Errorf("%+v: %v", c, bad)
		}
	}
}

// Between two steps somebody replaces the namespace by one that looks the same
// but for its identifiers: it is not deleted.
func TestFault_replacedBetweenSteps(t *testing.T) {
	r := newRig(t, oneNamespace, sim.Options{})
	plan, before := resize(t, r)
	stranger := func(cmd *nvmeioctl.Command, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if done, err := r.drive.Submit(t.Context(), cmd); err != nil || done.Err() != nil {
			t.Fatal(err, done.Err())
		}
	}
	runner := r.runner()
	runner.Notify = func(e txn.Event) {
		if e.Step.Index == 0 && e.Direction == txn.Forward && e.Phase == txn.PhaseAfterVerify {
			stranger(admin.DeleteNamespaceCommand(1, 0))
			old := before.Namespaces[0]
			stranger(admin.CreateNamespaceCommand(nvmespec.NamespaceCreate{SizeBlocks: old.SizeBlocks, CapacityBlocks: old.CapacityBlocks}, 0))
		}
	}
	tx, _ := plan.Transaction()
	_, err := runner.Run(t.Context(), tx)
	if _, ok := errors.AsType[*nvmeioctl.RefusedError](err); !ok || exitCode(err) != 7 || len(r.sent) != 1 {
		t.Errorf("error %v, %d commands", err, len(r.sent))
	}
	if len(r.inventory().Namespaces) != 1 {
		t.Error("the other namespace was deleted")
	}
}

// A create whose answer was lost, and a namespace there that this create did not
// ask for: it is not taken for ours.
func TestFault_otherNamespaceInsteadOfOurs(t *testing.T) {
	r := newRig(t, oneNamespace, sim.Options{})
	plan, _ := resize(t, r)
	r.fault = func(_ int, cmd *nvmeioctl.Command) (bool, nvmespec.Status, error) {
		if is(cmd) != "create" {
			return true, 0, nil
		}
		data, _ := nvmespec.DecodeNamespaceCreate(cmd.Data)
		data.SizeBlocks -= 2048 // as small as a step down would be
		data.CapacityBlocks = data.SizeBlocks
		other, err := admin.CreateNamespaceCommand(data, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.drive.Submit(t.Context(), other); err != nil {
			t.Fatal(err)
		}
		return false, 0, nvmeioctl.ErrIndeterminate
	}
	if _, err := r.run(plan); exitCode(err) != 7 {
		t.Fatalf("error %v", err)
	}
	r.sent = nil
	for name, do := range map[string]func(context.Context, string) (txn.Report, error){"resume": r.runner().Resume, "rollback": r.runner().Rollback} {
		if _, err := do(t.Context(), "1"); exitCode(err) != 7 || !strings.Contains(err.Error(), "does not tell") || len(r.sent) != 0 {
			t.Errorf("%s: %v, %d commands", name, err, len(r.sent))
		}
	}
}
