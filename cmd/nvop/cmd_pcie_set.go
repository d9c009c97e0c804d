package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"nvop/cmd/nvop/internal/render"
	"nvop/journal"
	"nvop/namespace"
	"nvop/namespace/txn"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/inuse"
	"nvop/nvmeioctl/layer"
	"nvop/pcie"
)

type pcieSetCmd struct {
	Device       string `arg:"" help:"The drive: /dev/nvme0." placeholder:"DRIVE"`
	MPS          string `name:"mps" help:"Payload size of the whole path in bytes, or auto: the largest that everything on the root port supports." placeholder:"auto|BYTES"`
	MRRS         uint16 `name:"mrrs" help:"Read request size of the drive in bytes." placeholder:"BYTES"`
	Siblings     bool   `help:"Change other endpoints on the same root port along. They are checked for use and reset too."`
	AllowSmaller bool   `help:"Leave endpoints beside the path that support less, where their read requests are no larger than their payload. Not for peer-to-peer traffic."`
	Quiesced     bool   `name:"i-have-quiesced" help:"Go on although the drive is mounted or otherwise in use: its I/O has been stopped (fsfreeze)."`
	Apply        bool   `help:"Carry the change out. Without it the plan is printed and nothing is changed."`
	consentFlags
	traceFlag
}

func (pcieSetCmd) Help() string {
	return `A dry run unless --apply is given. The change is one transaction: the drive's reads are made small first, ports grow before the drive, each register is read back, the controller is reset so that an error recovery keeps the new sizes, and reads are tried while the error counters are watched. Whatever goes wrong, the old sizes come back.

Nothing of it survives a reboot or hot-plug; the result says what makes it last.

Example:
  nvop pcie set /dev/nvme0 --mps auto --mrrs 4096
  nvop pcie set /dev/nvme0 --mps auto --mrrs 4096 --apply --confirm-serial S1234`
}

// request is what the flags ask for.
func (c pcieSetCmd) request() (pcie.ChangeRequest, error) {
	r := pcie.ChangeRequest{MaxReadRequest: pcie.Payload(c.MRRS), Siblings: c.Siblings, AllowSmaller: c.AllowSmaller}
	switch {
	case c.MPS == "auto":
		r.Auto = true
	case c.MPS != "":
		n, err := strconv.ParseUint(c.MPS, 10, 16)
		if err != nil || !pcie.Payload(n).Valid() {
			return r, usagef("--mps %q: not auto, 128, 256, 512, 1024, 2048 or 4096", c.MPS)
		}
		r.MaxPayload = pcie.Payload(n)
	case c.MRRS == 0:
		return r, usagef("nothing to change: give --mps or --mrrs")
	}
	if c.MRRS != 0 && !r.MaxReadRequest.Valid() {
		return r, usagef("--mrrs %d: not 128, 256, 512, 1024, 2048 or 4096", c.MRRS)
	}
	return r, nil
}

// words are the flags again, for titles and unit files.
func (c pcieSetCmd) words() string {
	words := "pcie set " + c.Device
	if c.MPS != "" {
		words += " --mps " + c.MPS
	}
	if c.MRRS != 0 {
		words += fmt.Sprintf(" --mrrs %d", c.MRRS)
	}
	if c.Siblings {
		words += " --siblings"
	}
	if c.AllowSmaller {
		words += " --allow-smaller"
	}
	return words
}

type pcieSetResult struct {
	Schema      string          `json:"schema"`
	Device      string          `json:"device"`
	Serial      string          `json:"serial"`
	Title       string          `json:"title"`
	Changed     bool            `json:"changed"`
	AlreadySo   bool            `json:"already_so"`
	State       string          `json:"state"`
	Transaction string          `json:"transaction,omitempty"`
	Plan        pcie.ChangePlan `json:"plan"`
	// Writes are the plan's writes in words, with the setpci command of each.
	Writes  []string      `json:"writes_text"`
	Steps   []string      `json:"steps"`
	Ceiling *pcie.Ceiling `json:"ceiling_before,omitempty"`
	After   *pcie.Ceiling `json:"ceiling_after,omitempty"`
	// Persist says what makes the change last.
	Persist []string `json:"persist,omitempty"`
	Journal string   `json:"journal,omitempty"`
}

func (r pcieSetResult) Text(p *render.Page) {
	p.Line("%s: %s (drive %s%s)", r.State, r.Title, r.Serial, prefixed(", transaction ", r.Transaction))
	if r.AlreadySo {
		return
	}
	for i, s := range r.Steps {
		p.Line("  step %d: %s", i+1, s)
	}
	if r.Ceiling != nil && r.After != nil {
		p.Pairs("reading", fmt.Sprintf("at most %.2f GB/s, before %.2f", r.After.Read/1e9, r.Ceiling.Read/1e9),
			"writing", fmt.Sprintf("at most %.2f GB/s, before %.2f", r.After.Write/1e9, r.Ceiling.Write/1e9))
	}
	for _, n := range r.Plan.Notes {
		p.Line("  note: %s", n)
	}
	if len(r.Persist) > 0 {
		p.Title("to make it last, in this order of preference")
		for _, s := range r.Persist {
			for line := range strings.Lines(s) {
				p.Line("  %s", strings.TrimRight(line, "\n"))
			}
		}
	}
}

func (c pcieSetCmd) Run(ctx context.Context, a *app) (err error) {
	if _, err := c.request(); err != nil {
		return err
	}
	d, err := a.open(c.Device)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	if err := a.dress(d, c.traceFlag); err != nil {
		return err
	}
	if !c.Apply {
		d.dev = layer.DryRun(d.dev) // even a mistake in planning sends nothing
	}
	return c.set(ctx, a, d, pcie.Sysfs{Root: d.host.Root})
}

// pcieChange is a planned change with what it was planned from.
type pcieChange struct {
	plan     pcie.ChangePlan
	result   pcieSetResult
	steps    []txn.Step
	identity nvmeioctl.Identity
	topo     *pcie.Topology
}

// set plans and, with --apply and consent, carries the plan out.
func (c pcieSetCmd) set(ctx context.Context, a *app, d *drive, sys pcie.Sysfs) error {
	kinds, err := c.kinds()
	if err != nil {
		return err
	}
	ch, err := c.plan(ctx, d, sys)
	if err != nil {
		return err
	}
	switch {
	case ch.plan.AlreadySo():
		ch.result.AlreadySo, ch.result.State = true, "already so"
		return a.print(ch.result)
	case !c.Apply:
		ch.result.State = "planned only, nothing was changed; --apply carries it out"
		return a.print(ch.result)
	}
	return c.carryOut(ctx, a, d, sys, ch, kinds)
}

// plan reads the path and says what has to be done.
func (c pcieSetCmd) plan(ctx context.Context, d *drive, sys pcie.Sysfs) (pcieChange, error) {
	if d.target == nil {
		return pcieChange{}, noPCIPath(d.address, "it is no device of this machine")
	}
	if len(d.target.Controllers) > 1 {
		return pcieChange{}, refusedf("path", d.address, "name one of the controllers", "%d controllers lead to it, each on a path of its own", len(d.target.Controllers))
	}
	address, err := pciAddressOf(d.address, d.target.Controllers[0])
	if err != nil {
		return pcieChange{}, err
	}
	request, err := c.request()
	if err != nil {
		return pcieChange{}, err
	}
	topo, err := sys.Load(address)
	if err != nil {
		return pcieChange{}, err
	}
	path, err := topo.Path(address)
	if err != nil {
		return pcieChange{}, err
	}
	ch := pcieChange{topo: topo}
	if ch.plan, err = pcie.PlanChange(topo, path, request); err != nil {
		return ch, err
	}
	if ch.identity, err = namespace.ReadIdentity(ctx, d.dev); err != nil {
		return ch, err
	}
	if ch.steps, err = pcieSteps(ch.plan); err != nil {
		return ch, err
	}
	ch.result = pcieSetResult{
		Schema: "nvop.pcie-set/1", Device: c.Device, Serial: ch.identity.Serial, Title: c.words(), Plan: ch.plan,
		Writes: []string{}, Steps: []string{}, Persist: c.persist(ch.identity.Serial),
	}
	for _, w := range ch.plan.Writes {
		ch.result.Writes = append(ch.result.Writes, w.String())
	}
	if !ch.plan.AlreadySo() {
		for _, s := range ch.steps {
			ch.result.Steps = append(ch.result.Steps, s.Title)
		}
	}
	ch.ceilings(path)
	return ch, nil
}

// ceilings says what the change is good for.
func (ch *pcieChange) ceilings(path pcie.Path) {
	in, _, ok := path.CeilingInput()
	if !ok {
		return
	}
	before, err := in.Ceiling()
	in.MaxPayload, in.MaxReadRequest = ch.plan.MaxPayload, ch.plan.MaxReadRequest
	after, err2 := in.Ceiling()
	if err == nil && err2 == nil {
		ch.result.Ceiling, ch.result.After = &before, &after
	}
}

// persist says what makes the change last.
func (c pcieSetCmd) persist(serial string) []string {
	list := []string{
		"1. the BIOS settings for Max Payload Size and Max Read Request Size",
		"2. where the whole tree is alike: the kernel parameter pci=pcie_bus_perf (it sets read requests to the payload size) or pci=pcie_bus_safe; verify with nvop pcie audit after the boot",
	}
	unit := `3. a unit file, /etc/systemd/system/nvop-pcie.service:
[Unit]
Description=PCI Express payload sizes of drive ` + serial + `
DefaultDependencies=no
After=systemd-udev-settle.service
Before=local-fs-pre.target
Wants=local-fs-pre.target
[Service]
Type=oneshot
ExecStart=/usr/bin/nvop ` + c.words() + ` --apply --confirm-serial ` + serial + ` --accept partition-table --accept signature
[Install]
WantedBy=sysinit.target`
	return append(list, unit, "4. for hot-plugged drives a udev rule that starts the unit for ACTION==\"add\", SUBSYSTEM==\"nvme\": it comes after the driver, which is why reads are made small first")
}

// carryOut runs a plan: consent, use, lock, transaction, and the way back if
// anything goes wrong.
func (c pcieSetCmd) carryOut(ctx context.Context, a *app, d *drive, sys pcie.Sysfs, ch pcieChange, kinds []inuse.Kind) (err error) {
	losses := []string{"an error on the way takes the drive off line until it is rolled back; no data is written"}
	x := pcieExecutor{sys: sys, drive: d, accept: kinds, quiesced: c.Quiesced}
	if err := x.checkUse(ch.plan.Endpoints); err != nil {
		return err
	}
	if err := a.confirm(ctx, c.consentFlags, ch.identity.Serial, ch.result.Title, losses); err != nil {
		return err
	}
	lock, err := lockDrive(lockDir(a.getenv), ch.identity.Serial, d.durableAddress(), ch.result.Title)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.release()) }()
	j, err := a.openJournal(ctx, journal.ReadWrite)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	if err := noneUnfinished(ctx, j, ch.identity.Serial); err != nil {
		return err
	}
	before, err := json.Marshal(ch.plan.Before)
	if err != nil {
		return err
	}
	t := txn.Transaction{Title: ch.result.Title, Address: d.durableAddress(), Identity: ch.identity, Steps: ch.steps, Inventory: before}
	// Steps of this kind send no commands that the guard would have to know:
	// use is looked at by their executor.
	runner := a.runner(d, j, namespace.Plan{Title: ch.result.Title, Identity: ch.identity, NSIDs: []uint32{}}, kinds)
	maps.Copy(runner.Registry, x.executors())
	report, err := runner.Run(ctx, t)
	if err != nil {
		return rollBackAfter(ctx, runner, err)
	}
	ch.result.Changed, ch.result.State, ch.result.Transaction, ch.result.Journal = true, "changed", report.ID, j.Path()
	return a.printChange(ch.result, report.ID)
}

// rollBackAfter undoes a change that stopped half way: sizes that disagree along
// a path are no state to leave a drive in.
func rollBackAfter(ctx context.Context, runner *txn.Runner, cause error) error {
	partly, ok := errors.AsType[*txn.PartlyDoneError](cause)
	if !ok || partly.Direction != txn.Forward {
		return cause
	}
	if _, err := runner.Rollback(context.WithoutCancel(ctx), partly.ID); err != nil {
		return fmt.Errorf("%w (after %w)", err, partly.Err)
	}
	return &txn.RolledBackError{
		ID: partly.ID, Step: partly.Step, Err: partly.Err, Drive: "what had been done before was undone: the old sizes are back, and the controller was reset",
	}
}
