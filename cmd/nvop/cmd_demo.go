package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"nvop/cmd/nvop/internal/render"
	"nvop/namespace"
)

// The demo's drive and workload.
const (
	demoProfile = "pblaze7-7940-7.68tb"
	// demoTimeLapse makes a petabyte of 4 KiB writes about 30 million operations.
	demoTimeLapse = 8192
	// demoHalfBytes is what each of the two soaks writes at least.
	demoHalfBytes = 500_000_000_000_000
	// demoFill and demoWarmUp are drive writes before anything is measured: the
	// workload has settled after about three (Lambert W law, ringing included).
	demoFill, demoWarmUp = 1, 3
)

type demoCmd struct {
	Size string `default:"6.4TB" help:"What the drive is resized to between the two soaks." placeholder:"SIZE"`
	Seed uint64 `default:"1" help:"One seed, one result." placeholder:"N"`
	Dir  string `type:"path" help:"A new folder for drive and journal (default: one below the system's temporary folder)." placeholder:"DIR"`
}

func (demoCmd) Help() string {
	return `Needs no drive and no root: it simulates a 7.68 TB PBlaze7, soaks it with random writes, resizes it, and soaks it again, a petabyte in all. Drive and journal stay, to be looked at with the other commands.

Example: nvop demo --size 5.12TB --seed 7`
}

// demoSide is the drive at one of the two sizes.
type demoSide struct {
	CapacityBytes uint64  `json:"capacity_bytes"`
	WAF           float64 `json:"waf"`
	WriteIOPS     uint64  `json:"write_iops"`
	HealthPercent int64   `json:"health_percent"`
	P99NS         *int64  `json:"latency_p99_ns"`
	Run           string  `json:"run"`
}

type demoResult struct {
	Schema      string   `json:"schema"`
	Before      demoSide `json:"before"`
	After       demoSide `json:"after"`
	HostBytes   uint64   `json:"host_bytes"`
	TimeLapse   uint32   `json:"time_lapse"`
	WallSeconds float64  `json:"wall_seconds"`
	Journal     string   `json:"journal"`
	Drive       string   `json:"drive"`
	Commands    []string `json:"commands"`
}

func (r demoResult) Text(p *render.Page) {
	p.Line("what was run")
	for _, c := range r.Commands {
		p.Line("  $ %s", c)
	}
	p.Title("what came of it (simulated drive; time lapse %d: each operation stands for as many)", r.TimeLapse)
	row := func(name string, s demoSide) []string {
		p99 := "n/a"
		if s.P99NS != nil {
			p99 = render.Duration(time.Duration(*s.P99NS))
		}
		return []string{name, render.Size(s.CapacityBytes), fmt.Sprintf("%.3f", s.WAF), render.Rate(float64(s.WriteIOPS)), p99, fmt.Sprintf("%d %%", s.HealthPercent)}
	}
	p.Grid([]string{"", ">capacity", ">WAF", ">4K random write IOPS", ">p99", ">health after"}, [][]string{row("before", r.Before), row("after", r.After)})
	p.Pairs("host writes", render.Size(r.HostBytes), "wall time", render.Duration(time.Duration(r.WallSeconds*1e9)),
		"drive", r.Drive, "journal", r.Journal)
}

// demo is one run of the demo.
type demo struct {
	app      *app
	dir      string
	drive    string
	journal  string
	commands []string
}

func (c demoCmd) Run(ctx context.Context, a *app) error {
	began := a.clock.Now()
	if _, err := namespace.ParseSize(c.Size, false); err != nil {
		return err
	}
	dir, err := newFolder(c.Dir)
	if err != nil {
		return err
	}
	d := &demo{app: a, dir: dir, drive: "sim:" + filepath.Join(dir, "drive.nvop"), journal: a.journalPath}
	if d.journal == "" {
		d.journal = filepath.Join(dir, "journal.db")
	}
	r := demoResult{Schema: "nvop.demo/1", TimeLapse: demoTimeLapse, Journal: d.journal, Drive: d.drive}
	var created simCreateResult
	if err := d.nvop(ctx, &created, "sim", "create", strings.TrimPrefix(d.drive, "sim:"), "--profile", demoProfile, "--seed", strconv.FormatUint(c.Seed, 10), "--scale", strconv.Itoa(demoTimeLapse)); err != nil {
		return err
	}
	var plan planResult
	if err := d.quiet(ctx, &plan, "op", "set", d.drive, "--size", c.Size, "--dry-run"); err != nil {
		return err
	}
	const smallest = 1_000_000_000_000
	if op := plan.OverProvisioning; op == nil || op.UserBytes < smallest {
		return usagef("--size %s: the demo needs at least 1TB", c.Size)
	}
	if r.Before, err = d.soak(ctx, c.Seed, created.Serial, "before", &r.HostBytes); err != nil {
		return err
	}
	var changed changeResult
	if err := d.nvop(ctx, &changed, "op", "set", d.drive, "--size", c.Size, "--confirm-serial", created.Serial); err != nil {
		return err
	}
	if r.After, err = d.soak(ctx, c.Seed, created.Serial, "after", &r.HostBytes); err != nil {
		return err
	}
	r.Commands, r.WallSeconds = d.commands, a.clock.Now().Sub(began).Seconds()
	return a.print(r)
}

// newFolder makes the demo's folder. One that exists is refused: it may hold
// the drive of an earlier demo.
func newFolder(dir string) (string, error) {
	if dir == "" {
		return os.MkdirTemp("", "nvop-demo-")
	}
	err := os.Mkdir(dir, 0o700)
	return dir, err
}

// soak fills, warms up and measures random writes until half a petabyte has
// been written.
func (d *demo) soak(ctx context.Context, seed uint64, serial, name string, total *uint64) (demoSide, error) {
	var list nsListResult
	if err := d.quiet(ctx, &list, "ns", "list", d.drive); err != nil {
		return demoSide{}, err
	}
	ns := list.Namespaces[0]
	capacity := ns.SizeBlocks * uint64(ns.Format.DataBytes)
	measured := max(demoHalfBytes, (demoFill+demoWarmUp+1)*capacity) - (demoFill+demoWarmUp)*capacity
	const terabyte = 1_000_000_000_000
	var r soakResult
	err := d.nvop(ctx, &r, "soak", "start", d.drive, "--name", name, "--rw", "randwrite", "--bs", "4KiB", "--qd", "256",
		"--fill", strconv.Itoa(demoFill), "--warm-up", strconv.Itoa(demoWarmUp),
		"--size", fmt.Sprintf("%dTB", (measured+terabyte-1)/terabyte),
		"--time-lapse", strconv.Itoa(demoTimeLapse), "--seed", strconv.FormatUint(seed, 10), "--confirm-serial", serial)
	if err != nil {
		return demoSide{}, err
	}
	if r.WAF == nil || r.HealthPercent == nil {
		return demoSide{}, fmt.Errorf("soak %s: the drive did not tell its wear: %s", r.Run, r.WAFReason)
	}
	*total += r.WriteBytes
	side := demoSide{CapacityBytes: capacity, WAF: *r.WAF, WriteIOPS: r.WriteIOPS, HealthPercent: *r.HealthPercent, Run: r.Run}
	if r.WriteLatency != nil {
		side.P99NS = r.WriteLatency.P99NS
	}
	return side, nil
}

// nvop runs a command of this program as a user would and reads its document.
func (d *demo) nvop(ctx context.Context, result any, args ...string) error {
	args = append(args, "--journal", d.journal)
	line := "nvop " + strings.Join(args, " ")
	d.commands = append(d.commands, line)
	fmt.Fprintln(d.app.err, "$ "+line)
	return d.quiet(ctx, result, args...)
}

func (d *demo) quiet(ctx context.Context, result any, args ...string) error {
	var out bytes.Buffer
	code := execute(ctx, append(args, "-o", "json"), streams{in: strings.NewReader(""), out: &out, err: d.app.err}, d.app.getenv)
	if code != exitOK {
		return &codedError{code, fmt.Errorf("nvop %s ended with exit code %d; drive and journal are in %s", strings.Join(args, " "), code, d.dir)}
	}
	if err := json.Unmarshal(out.Bytes(), result); err != nil {
		return errors.Join(fmt.Errorf("nvop %s: its document could not be read", strings.Join(args, " ")), err)
	}
	return nil
}
