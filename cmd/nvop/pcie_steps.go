package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"nvop/namespace/txn"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/admin"
	"nvop/nvmeioctl/inuse"
	"nvop/nvmeioctl/nvmespec"
	"nvop/pcie"
)

// The kinds of steps of a change of payload sizes.
const (
	pciePrepareKind = "pcie.prepare"
	pcieWriteKind   = "pcie.write"
	pcieResetKind   = "pcie.reset"
	pcieSmokeKind   = "pcie.smoke"
)

const (
	// pendingTries and pendingWait bound the wait for outstanding reads.
	pendingTries = 50
	pendingWait  = 100 * time.Millisecond
	// settleWait lets error messages arrive before counters are compared.
	settleWait = 200 * time.Millisecond
	// smokeReads are tried, of up to smokeBytes each.
	smokeReads = 64
	smokeBytes = 128 << 10
	// smokeTimeout bounds one of them.
	smokeTimeout = 30 * time.Second
)

// pcieParams are the parameters of every step but writes.
type pcieParams struct {
	Before    []pcie.Setting `json:"before"`
	Endpoints []pcie.Address `json:"endpoints"`
	// Final are the writes whose values hold at the end, one for each field.
	Final []pcie.Write `json:"final"`
}

// pcieSteps turns a plan into steps.
func pcieSteps(plan pcie.ChangePlan) ([]txn.Step, error) {
	params := pcieParams{Before: plan.Before, Endpoints: plan.Endpoints}
	for i, w := range plan.Writes {
		later := slices.ContainsFunc(plan.Writes[i+1:], func(l pcie.Write) bool { return l.Function == w.Function && l.Mask == w.Mask })
		if !later {
			params.Final = append(params.Final, w)
		}
	}
	shared, err := json.Marshal(params)
	if err != nil {
		return nil, err
	}
	steps := []txn.Step{{
		Kind: pciePrepareKind, Params: shared, TimeoutMS: (pendingTries * pendingWait).Milliseconds(),
		Title:    fmt.Sprintf("see that the sizes of %d functions are as planned from, wait for outstanding reads, note the error counters", len(plan.Before)),
		UndoText: "resets the controller, so that an error recovery keeps the old sizes",
	}}
	for _, w := range plan.Writes {
		one, err := json.Marshal(w)
		if err != nil {
			return nil, err
		}
		steps = append(steps, txn.Step{Kind: pcieWriteKind, Params: one, Title: w.String(), UndoText: "writes the old size again"})
	}
	steps = append(steps,
		txn.Step{
			Kind: pcieResetKind, Params: shared, Title: "reset the controller, so that an error recovery keeps the new sizes; read every register back",
			UndoText: "nothing: the first step's undo resets again",
		},
		txn.Step{
			Kind: pcieSmokeKind, Params: shared, TimeoutMS: smokeTimeout.Milliseconds(),
			Title: fmt.Sprintf("read %d times and compare the error counters of every function on the root port", smokeReads), UndoText: "nothing: reading changes nothing",
		})
	for i := range steps {
		steps[i].Index = i
	}
	return steps, nil
}

// pcieExecutor carries out the steps of all four kinds.
type pcieExecutor struct {
	sys      pcie.Sysfs
	drive    *drive
	accept   []inuse.Kind
	quiesced bool
}

// executors are by kind, for the registry.
func (x pcieExecutor) executors() map[string]txn.Executor {
	return map[string]txn.Executor{
		pciePrepareKind: pciePreparer{x}, pcieWriteKind: pcieWriter{x}, pcieResetKind: pcieResetter{x}, pcieSmokeKind: pcieSmoker{x},
	}
}

// pcieExecutors are what resume and rollback need to carry such a change on.
func pcieExecutors(d *drive, accept []inuse.Kind) map[string]txn.Executor {
	return pcieExecutor{sys: pcie.Sysfs{Root: d.host.Root}, drive: d, accept: accept}.executors()
}

// checkUse refuses while somebody uses the drive or one changed along.
func (x pcieExecutor) checkUse(endpoints []pcie.Address) error {
	if x.quiesced {
		return nil
	}
	if err := x.drive.checkUse(nil, x.accept); err != nil {
		return err
	}
	for _, a := range endpoints[1:] {
		sibling, err := x.sibling(a)
		if err != nil {
			return err
		}
		if sibling == nil {
			return refusedf("in use", a.String(), "--i-have-quiesced after stopping its traffic", "it is changed along and is no NVMe drive: whether it is in use is not known")
		}
		if err := sibling.checkUse(nil, x.accept); err != nil {
			return err
		}
	}
	return nil
}

// sibling finds the NVMe controller at an address; nil where there is none. Its
// device is not open.
func (x pcieExecutor) sibling(a pcie.Address) (*drive, error) {
	inv, err := x.drive.host.Discover()
	if err != nil {
		return nil, err
	}
	for _, c := range inv.Controllers {
		if c.PCIAddress == a.String() {
			target := nvmeioctl.Target{Path: c.Node, Kind: nvmeioctl.NodeController, Controllers: []nvmeioctl.Controller{c}}
			return &drive{address: c.Node, clock: x.drive.clock, transport: c.Transport, target: &target, host: x.drive.host}, nil
		}
	}
	return nil, nil
}

// reset resets the drive's controller and those of siblings, so that the copy of
// the registers that the kernel restores after an error is the present one.
func (x pcieExecutor) reset(ctx context.Context, s *txn.Scope, endpoints []pcie.Address) error {
	if err := resetController(ctx, s.Device); err != nil {
		return err
	}
	for _, a := range endpoints[1:] {
		sibling, err := x.sibling(a)
		if err != nil {
			return err
		}
		if sibling == nil {
			continue // not a drive: nothing here knows how to reset it
		}
		dev, err := sibling.host.Open(sibling.target.Path)
		if err != nil {
			return err
		}
		if err := errors.Join(resetController(ctx, dev), dev.Close()); err != nil {
			return fmt.Errorf("%s: %w", sibling.address, err)
		}
	}
	return nil
}

func resetController(ctx context.Context, dev nvmeioctl.Device) error {
	r, ok := nvmeioctl.As[nvmeioctl.Resetter](dev)
	if !ok {
		return &nvmeioctl.UnsupportedError{Feature: "resetting the controller of " + dev.String(), Needs: "a controller node"}
	}
	return r.ResetController(ctx)
}

func pcieParamsOf(s *txn.Scope) (p pcieParams, err error) {
	if err = json.Unmarshal(s.Step.Params, &p); err == nil && len(p.Endpoints) == 0 {
		err = errors.New("no endpoint in it")
	}
	if err != nil {
		err = fmt.Errorf("parameters of step %d: %w", s.Step.Index+1, err)
	}
	return p, err
}

// pciePreparer begins a change and ends its undoing.
type pciePreparer struct{ pcieExecutor }

// Prepare implements txn.Executor. The error counters are what it stores.
func (x pciePreparer) Prepare(ctx context.Context, s *txn.Scope) (txn.Prepared, error) {
	p, err := pcieParamsOf(s)
	if err != nil || s.Direction == txn.Backward {
		return txn.Prepared{}, err
	}
	if err := x.checkUse(p.Endpoints); err != nil {
		return txn.Prepared{}, err
	}
	changed, err := x.sys.Changed(p.Before)
	if err != nil {
		return txn.Prepared{}, err
	}
	if len(changed) > 0 {
		return txn.Prepared{}, refusedf("drift", s.Device.String(), "plan again", "the path is not as planned from: %s", strings.Join(changed, "; "))
	}
	for try := 0; ; try++ {
		pending, err := x.sys.Pending(p.Before)
		if err != nil {
			return txn.Prepared{}, err
		}
		if len(pending) == 0 {
			break
		}
		if try == pendingTries {
			return txn.Prepared{}, refusedf("outstanding reads", pending[0].String(), "stop the I/O", "it keeps waiting for answers to its reads")
		}
		if err := s.Clock.Sleep(ctx, pendingWait); err != nil {
			return txn.Prepared{}, err
		}
	}
	counters, err := x.sys.Errors(p.Before)
	if err != nil {
		return txn.Prepared{}, err
	}
	before, err := json.Marshal(counters)
	return txn.Prepared{Before: before}, err
}

// Take implements txn.Executor.
func (x pciePreparer) Take(ctx context.Context, s *txn.Scope) (json.RawMessage, error) {
	if s.Direction == txn.Forward {
		return s.Before, nil
	}
	p, err := pcieParamsOf(s)
	if err != nil {
		return nil, err
	}
	return nil, x.reset(ctx, s, p.Endpoints)
}

// Verify implements txn.Executor.
func (x pciePreparer) Verify(_ context.Context, s *txn.Scope) (txn.Verdict, json.RawMessage, error) {
	if s.Direction == txn.Forward {
		return txn.Done, s.Before, nil
	}
	p, err := pcieParamsOf(s)
	if err != nil {
		return txn.Unknown, nil, err
	}
	changed, err := x.sys.Changed(p.Before)
	switch {
	case err != nil:
		return txn.Unknown, nil, err
	case len(changed) > 0 || !s.Answered:
		return txn.NotDone, nil, nil
	}
	return txn.Done, nil, nil
}

// Repeatable implements txn.Executor: a reset more does no harm.
func (pciePreparer) Repeatable(txn.Direction) bool { return true }

// pcieWriter writes one register.
type pcieWriter struct{ pcieExecutor }

func (pcieWriter) write(s *txn.Scope) (w pcie.Write, err error) {
	if err := json.Unmarshal(s.Step.Params, &w); err != nil {
		return w, fmt.Errorf("parameters of step %d: %w", s.Step.Index+1, err)
	}
	if s.Direction == txn.Backward {
		w = w.Reversed()
	}
	return w, nil
}

// Prepare implements txn.Executor.
func (x pcieWriter) Prepare(_ context.Context, s *txn.Scope) (txn.Prepared, error) {
	w, err := x.write(s)
	if s.Direction == txn.Forward { // the step's title says it already
		return txn.Prepared{}, err
	}
	return txn.Prepared{Note: w.String()}, err
}

// Take implements txn.Executor.
func (x pcieWriter) Take(_ context.Context, s *txn.Scope) (json.RawMessage, error) {
	w, err := x.write(s)
	if err != nil {
		return nil, err
	}
	return nil, x.sys.WriteRegister(w)
}

// Verify implements txn.Executor.
func (x pcieWriter) Verify(_ context.Context, s *txn.Scope) (txn.Verdict, json.RawMessage, error) {
	w, err := x.write(s)
	if err != nil {
		return txn.Unknown, nil, err
	}
	done, err := x.sys.Holds(w)
	if err != nil || done {
		return map[bool]txn.Verdict{true: txn.Done, false: txn.Unknown}[done], nil, err
	}
	untouched, err := x.sys.Holds(w.Reversed())
	return map[bool]txn.Verdict{true: txn.NotDone, false: txn.Partly}[untouched], nil, err
}

// Repeatable implements txn.Executor.
func (pcieWriter) Repeatable(txn.Direction) bool { return true }

// pcieResetter resets the controllers and reads everything back.
type pcieResetter struct{ pcieExecutor }

// Prepare implements txn.Executor.
func (pcieResetter) Prepare(_ context.Context, s *txn.Scope) (txn.Prepared, error) {
	_, err := pcieParamsOf(s)
	return txn.Prepared{}, err
}

// Take implements txn.Executor.
func (x pcieResetter) Take(ctx context.Context, s *txn.Scope) (json.RawMessage, error) {
	p, err := pcieParamsOf(s)
	if err != nil || s.Direction == txn.Backward {
		return nil, err
	}
	if err := x.reset(ctx, s, p.Endpoints); err != nil {
		return nil, err
	}
	for _, w := range p.Final {
		switch ok, err := x.sys.Holds(w); {
		case err != nil:
			return nil, err
		case !ok:
			return nil, &codedError{exitDriveError, fmt.Errorf("after the reset the register does not hold the value: %s", w)}
		}
	}
	return nil, nil
}

// Verify implements txn.Executor.
func (x pcieResetter) Verify(_ context.Context, s *txn.Scope) (txn.Verdict, json.RawMessage, error) {
	if s.Direction == txn.Backward || s.Answered {
		return txn.Done, nil, nil
	}
	return txn.NotDone, nil, nil
}

// Repeatable implements txn.Executor.
func (pcieResetter) Repeatable(txn.Direction) bool { return true }

// pcieSmoker tries the path.
type pcieSmoker struct{ pcieExecutor }

// Prepare implements txn.Executor.
func (pcieSmoker) Prepare(_ context.Context, s *txn.Scope) (txn.Prepared, error) {
	_, err := pcieParamsOf(s)
	return txn.Prepared{}, err
}

// smokeState is what the trial did.
type smokeState struct {
	Reads    int               `json:"reads"`
	Compares int               `json:"compares"`
	Bytes    uint64            `json:"bytes"`
	Errors   map[string]uint64 `json:"correctable_errors,omitempty"`
}

// Take implements txn.Executor. Errors of packets are the hardware saying no.
func (x pcieSmoker) Take(ctx context.Context, s *txn.Scope) (json.RawMessage, error) {
	p, err := pcieParamsOf(s)
	if err != nil || s.Direction == txn.Backward {
		return nil, err
	}
	state, tryErr := trial(ctx, s.Device)
	if err := s.Clock.Sleep(ctx, settleWait); err != nil {
		return nil, err
	}
	grown, err := x.errorsSince(s, p)
	if err != nil {
		return nil, errors.Join(tryErr, err)
	}
	var bad []string
	for _, name := range slices.Sorted(maps.Keys(grown)) {
		text := fmt.Sprintf("%s %d", name, grown[name])
		if strings.Contains(name, ": correctable ") {
			if state.Errors == nil {
				state.Errors = map[string]uint64{}
			}
			state.Errors[name] = grown[name]
			continue
		}
		bad = append(bad, text)
	}
	switch {
	case len(bad) > 0:
		return nil, &codedError{exitDriveError, errors.Join(fmt.Errorf("errors on the path while reading: %s", strings.Join(bad, ", ")), tryErr)}
	case tryErr != nil:
		return nil, &codedError{exitDriveError, fmt.Errorf("reading with the new sizes: %w", tryErr)}
	}
	return json.Marshal(state)
}

// errorsSince compares the error counters with those noted by the first step.
func (x pcieSmoker) errorsSince(s *txn.Scope, p pcieParams) (map[string]uint64, error) {
	before := map[pcie.Address]*pcie.ErrorCounters{}
	if raw, ok := s.StateOf(0, txn.Forward); ok && len(raw) > 0 {
		if err := json.Unmarshal(raw, &before); err != nil {
			return nil, fmt.Errorf("error counters noted before: %w", err)
		}
	}
	now, err := x.sys.Errors(p.Before)
	if err != nil {
		return nil, err
	}
	grown := map[string]uint64{}
	for a, counters := range now {
		for name, n := range counters.Since(before[a]) {
			grown[fmt.Sprintf("%s: %s", a, name)] = n
		}
	}
	return grown, nil
}

// Verify implements txn.Executor.
func (x pcieSmoker) Verify(_ context.Context, s *txn.Scope) (txn.Verdict, json.RawMessage, error) {
	if s.Direction == txn.Backward || s.Answered {
		return txn.Done, nil, nil
	}
	return txn.NotDone, nil, nil
}

// Repeatable implements txn.Executor.
func (pcieSmoker) Repeatable(txn.Direction) bool { return true }

// trial moves data both ways without changing any: reads send packets up the
// path, and comparing what was read, where the drive can, sends them down.
func trial(ctx context.Context, dev nvmeioctl.Device) (smokeState, error) {
	var state smokeState
	ctrl, err := admin.IdentifyController(ctx, dev)
	if err != nil {
		return state, err
	}
	list, err := admin.ActiveNamespaces(ctx, dev)
	if err != nil {
		return state, err
	}
	for _, nsid := range list {
		ns, err := admin.IdentifyNamespace(ctx, dev, nsid)
		if err != nil {
			return state, err
		}
		if f, ok := ns.Format(); ok && f.MetadataBytes == 0 && ns.SizeBlocks > 0 {
			err := tryNamespace(ctx, dev, namespaceToTry{nsid, ns.SizeBlocks, uint64(f.DataBytes), ctrl}, &state)
			return state, err
		}
	}
	return state, nil // no namespace to read: the admin commands were the trial
}

// namespaceToTry is where the trial reads.
type namespaceToTry struct {
	nsid       uint32
	sizeBlocks uint64
	blockBytes uint64
	ctrl       nvmespec.Controller
}

func tryNamespace(ctx context.Context, dev nvmeioctl.Device, ns namespaceToTry, state *smokeState) error {
	size := uint64(smokeBytes)
	if m := ns.ctrl.MaxTransferBytes; m != 0 {
		size = min(size, uint64(m))
	}
	blocks := min(max(size/ns.blockBytes, 1), ns.sizeBlocks)
	buf := make([]byte, blocks*ns.blockBytes)
	command := func(opcode uint8, block uint64) (nvmeioctl.Completion, error) {
		return dev.Submit(ctx, &nvmeioctl.Command{
			IO: true, Opcode: opcode, NSID: ns.nsid, CDW10: uint32(block), CDW11: uint32(block >> 32), CDW12: uint32(blocks - 1),
			Data: buf, Timeout: smokeTimeout,
		})
	}
	for i := range uint64(smokeReads) {
		// Spread over the namespace, so that a cache does not answer them all.
		block := (ns.sizeBlocks - blocks) / smokeReads * i
		c, err := command(nvmespec.IOOpRead, block)
		if err == nil {
			err = c.Err()
		}
		if err != nil {
			return fmt.Errorf("read %d blocks at %d of namespace %d: %w", blocks, block, ns.nsid, err)
		}
		state.Reads++
		state.Bytes += uint64(len(buf))
		if ns.ctrl.IO&nvmespec.IOCompare == 0 {
			continue
		}
		// A difference is somebody else's write in between, not an error of ours.
		if _, err := command(nvmespec.IOOpCompare, block); err != nil {
			return fmt.Errorf("compare %d blocks at %d of namespace %d: %w", blocks, block, ns.nsid, err)
		}
		state.Compares++
	}
	return nil
}
