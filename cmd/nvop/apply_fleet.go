package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"

	"nvop/cmd/nvop/internal/render"
	"nvop/namespace"
	"nvop/namespace/audit"
	"nvop/namespace/firmware"
	"nvop/nvmeioctl/inuse"
)

// digestShown is how many digits of a digest are shown and have to be given.
const digestShown = 12

// driftFunc says how a drive that changed since its plan was made is refused.
type driftFunc = func(address string, list []namespace.Mismatch) error

// lockedWriter lets several drives' notes share one stream, line by line.
type lockedWriter struct {
	mu     *sync.Mutex
	w      io.Writer
	prefix string
}

func (w *lockedWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := io.WriteString(w.w, w.prefix+string(b)); err != nil {
		return 0, err
	}
	return len(b), nil
}

// shared is the app for goroutines that work side by side: only what it writes to
// standard error is shared, and that takes turns.
func (a *app) shared() *app {
	b := *a
	b.err = &lockedWriter{mu: &sync.Mutex{}, w: a.err}
	return &b
}

// named is a shared app whose notes begin with a drive's name.
func (a *app) named(name string) *app {
	b := *a
	if w, ok := a.err.(*lockedWriter); ok {
		b.err = &lockedWriter{mu: w.mu, w: w.w, prefix: name + ": "}
	}
	return &b
}

// addresses are the drives named, or all of this host.
func (f fleetArg) addresses(all bool) ([]string, error) {
	switch {
	case all && len(f.Drives) > 0:
		return nil, usagef("--all, and drives are named too")
	case !all && len(f.Drives) == 0:
		return nil, usagef("which drive? name it, or give --all")
	case !all:
		return f.Drives, nil
	}
	list, err := everyDrive()
	if err == nil && len(list) == 0 {
		err = errors.New("no NVMe controller on this host")
	}
	return list, err
}

// fleetItem is one drive of many.
type fleetItem struct {
	address string
	drive   *drive // nil where it could not be opened
	plan    namespace.Plan
	// skipped says that no rule is for the drive, where none has to be.
	skipped bool
	begun   bool
	result  *changeResult
	err     error
}

// planFleet plans for each drive by itself. With loose set, a drive that no rule is
// for is left out.
func (a *app) planFleet(ctx context.Context, addresses []string, specs []namespace.Spec, trace traceFlag, o namespace.Options, loose bool) []*fleetItem {
	items := make([]*fleetItem, len(addresses))
	quiet := a.shared()
	eachDrive(addresses, func(i int, address string) {
		items[i] = &fleetItem{address: address}
		items[i].err = quiet.planOne(ctx, items[i], specs, trace, o, loose)
	})
	return items
}

func (a *app) planOne(ctx context.Context, item *fleetItem, specs []namespace.Spec, trace traceFlag, o namespace.Options, loose bool) error {
	d, err := a.open(item.address)
	if err != nil {
		return err
	}
	item.drive = d
	if err := a.dress(d, trace); err != nil {
		return err
	}
	inv, err := d.inventoryWith(ctx, namespace.FeaturesFor(specs...))
	if err != nil {
		return err
	}
	item.plan = namespace.Plan{Identity: inv.Identity, Address: item.address, Inventory: inv}
	if _, _, ok := audit.Choose(specs, d.subject(inv)); !ok && loose {
		item.skipped = true
		return nil
	}
	spec, err := d.chooseSpec(specs, inv)
	if err != nil {
		return err
	}
	if spec.Firmware != nil {
		// What is in progress counts for an update, and is not in the inventory.
		state, err := firmware.Read(ctx, d.dev)
		if err != nil {
			return err
		}
		inv.FirmwareState = &state
	}
	p, err := namespace.PlanSpec(inv, spec, o)
	if err != nil {
		return err
	}
	p.Title = "apply -f " + spec.File
	p.Address = d.durableAddress()
	p.Reads = namespace.FeaturesFor(specs...)
	p.JudgedOnly = append(p.JudgedOnly, d.judgedOnly(inv, spec)...)
	item.plan = p
	return nil
}

// judgedOnly are the fields of a spec that only an audit judges and that are not as
// wanted, or could not be read.
func (d *drive) judgedOnly(inv namespace.Inventory, spec namespace.Spec) []string {
	facts := audit.Facts{Inventory: inv}
	only := namespace.Spec{File: spec.File, PCIe: spec.PCIe, Health: spec.Health}
	if spec.PCIe != (namespace.PCIeSpec{}) {
		facts.Path, facts.PathProblem = d.pciePath()
	}
	var list []string
	for _, f := range audit.Judge(facts, only).Findings {
		if f.Severity == audit.Unreadable {
			f.Field += " (could not be read)"
		}
		list = append(list, f.Field)
	}
	return list
}

func closeFleet(items []*fleetItem) {
	for _, item := range items {
		if item != nil && item.drive != nil {
			_ = item.drive.close() // what mattered was reported when it was done
		}
	}
}

// plansOf are the plans that were made.
func plansOf(items []*fleetItem) []namespace.Plan {
	var list []namespace.Plan
	for _, item := range items {
		if item.err == nil && !item.skipped {
			list = append(list, item.plan)
		}
	}
	return list
}

// runFleet carries out plans side by side. After the first unexpected result no
// further one is begun; those begun go to their end.
func (a *app) runFleet(ctx context.Context, due []*fleetItem, jobs int, kinds []inuse.Kind, drifted driftFunc) {
	var wait sync.WaitGroup
	var stop atomic.Bool
	queue := make(chan *fleetItem)
	quiet := a.shared()
	for range min(jobs, len(due)) {
		wait.Go(func() {
			for item := range queue {
				if stop.Load() || ctx.Err() != nil {
					continue
				}
				item.begun = true
				item.result, item.err = quiet.named(item.plan.Identity.Serial).execute(ctx, item.drive, item.plan, kinds, drifted)
				if item.err != nil && exitCode(item.err) != exitResetPending {
					stop.Store(true)
				}
			}
		})
	}
	for _, item := range due {
		queue <- item
	}
	close(queue)
	wait.Wait()
}

// fleetResult is what became of many drives.
type fleetResult struct {
	Schema string       `json:"schema"`
	Digest string       `json:"digest,omitempty"`
	Drives []fleetDrive `json:"drives"`
	// Plans are shown where nothing was carried out.
	Plans []namespace.Plan `json:"plans,omitempty"`
}

type fleetDrive struct {
	Address     string `json:"address"`
	Serial      string `json:"serial"`
	Model       string `json:"model"`
	State       string `json:"state"`
	Steps       int    `json:"steps"`
	Transaction string `json:"transaction,omitempty"`
	ExitCode    int    `json:"exit_code"`
	Error       string `json:"error,omitempty"`
}

func (r fleetResult) Text(p *render.Page) {
	for _, plan := range r.Plans {
		p.Line("%s", plan.Text())
	}
	var rows [][]string
	for _, d := range r.Drives {
		rows = append(rows, []string{d.Address, d.Serial, d.Model, d.State, fmt.Sprint(d.Steps), d.Transaction, d.Error})
	}
	p.Grid([]string{"drive", "serial", "model", "state", ">steps", "transaction", ""}, rows)
	if r.Digest != "" {
		p.Line("digest of the plans: %s", r.Digest)
	}
}

// row says what became of one drive.
func (i *fleetItem) row(planned bool) fleetDrive {
	r := fleetDrive{Address: i.address, Serial: i.plan.Identity.Serial, Model: i.plan.Identity.Model, Steps: len(i.plan.Steps), ExitCode: exitCode(i.err)}
	if i.result != nil {
		r.Transaction = i.result.Transaction
	}
	if i.err != nil {
		r.Error = strings.Join(strings.Fields(i.err.Error()), " ")
	}
	switch {
	case i.skipped:
		r.State = "no rule is for it"
	case i.err != nil:
		r.State = map[int]string{exitFindings: "not as planned", exitRefused: "refused", exitUnsupported: "not supported",
			exitDriveError: "refused by the drive", exitPartly: "partly done", exitResetPending: "changed, reset pending",
			exitInterrupted: "interrupted"}[r.ExitCode]
		if r.State == "" {
			r.State = "failed"
		}
	case i.plan.AlreadySo():
		r.State = i.plan.Standing()
		if i.plan.Pending != firmware.ResetNone && !planned {
			r.ExitCode = exitResetPending
		}
	case planned:
		r.State = "planned"
	case i.result != nil:
		r.State = i.result.State
	default:
		r.State = "not begun"
	}
	return r
}

// printPlans shows plans that are not carried out.
func (a *app) printPlans(ctx context.Context, items []*fleetItem) error {
	plans := plansOf(items)
	r := fleetResult{Schema: "nvop.fleet-plan/1", Digest: namespace.Digest(plans), Drives: []fleetDrive{}, Plans: plans}
	return a.printRows(ctx, items, r, true)
}

// printFleet shows what became of each drive.
func (a *app) printFleet(ctx context.Context, items []*fleetItem) error {
	return a.printRows(ctx, items, fleetResult{Schema: "nvop.fleet-change/1", Drives: []fleetDrive{}}, false)
}

func (a *app) printRows(ctx context.Context, items []*fleetItem, r fleetResult, planned bool) error {
	code, bad := exitOK, 0
	var done []string
	waiting := 0
	for _, item := range items {
		item.plan.Pending = a.knownReset(ctx, item.plan)
		row := item.row(planned)
		r.Drives = append(r.Drives, row)
		if row.Transaction != "" {
			done = append(done, row.Transaction)
		}
		if row.ExitCode != exitOK && row.ExitCode != exitResetPending {
			bad++
		}
		if row.State == "not begun" {
			waiting++
		}
		if fleetRank(row.ExitCode) > fleetRank(code) {
			code = row.ExitCode
		}
	}
	if err := a.print(r); err != nil && len(done) == 0 {
		return err
	} else if err != nil {
		return fmt.Errorf("changes were done (transactions %s), their result could not be printed: %w", strings.Join(done, ", "), err)
	}
	switch {
	case code == exitOK:
		return nil
	case bad == 0:
		return reported{&codedError{code, fmt.Errorf("%s: a reset is pending", plural(len(items), "drive"))}}
	}
	text := fmt.Sprintf("%d of %s did not get there", bad, plural(len(items), "drive"))
	if waiting > 0 {
		text += fmt.Sprintf(", %d not begun after that", waiting)
	}
	return reported{&codedError{code, errors.New(text)}}
}

// fleetRank orders exit codes by how much they ask for: what is half done first.
func fleetRank(code int) int {
	for i, c := range []int{exitOK, exitResetPending, exitFindings, exitUnsupported, exitRefused, exitFailed, exitDriveError, exitInterrupted, exitPartly} {
		if c == code {
			return i
		}
	}
	return 5
}

// loadImages looks at the firmware images that specs name. One that is not there
// or not the right one is an error before anything is planned.
func loadImages(specs []namespace.Spec) (map[string]firmware.Image, error) {
	images := map[string]firmware.Image{}
	for _, s := range specs {
		if s.Firmware == nil || s.Firmware.Image == "" {
			continue
		}
		image, err := firmware.LoadImage(s.Firmware.Image)
		if err != nil {
			return nil, fmt.Errorf("%s: firmware.image: %w", s.Where("firmware.image"), err)
		}
		images[s.Firmware.Image] = image
	}
	return images, nil
}

// checkImage says what is wrong with the image that a spec names.
func checkImage(s namespace.Spec) error {
	image, err := firmware.LoadImage(s.Firmware.Image)
	if err == nil && s.Firmware.SHA256 != "" && !strings.EqualFold(s.Firmware.SHA256, image.SHA256) {
		err = fmt.Errorf("%s has the sha256 %s", s.Firmware.Image, image.SHA256)
	}
	return err
}

func writePlanFile(path string, f namespace.PlanFile) error {
	_, err := intoNewFile(path, 0o644, func(w io.Writer) error {
		enc := json.NewEncoder(w)
		enc.SetIndent("", " ")
		return enc.Encode(f)
	})
	return err
}
