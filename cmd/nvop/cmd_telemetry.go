package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"nvop/cmd/nvop/internal/render"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/admin"
	"nvop/nvmeioctl/nvmespec"
)

type telemetryCmd struct {
	driveArg
	Out        string `required:"" type:"path" help:"Where to write the log; the file must not exist yet." placeholder:"FILE"`
	Controller bool   `help:"The data that the controller captured of its own accord, instead of having it capture some now."`
	Keep       bool   `help:"Host-initiated: read what was captured before instead of capturing now." xor:"which"`
	Area       int    `default:"0" help:"The highest data area to read, 1 to 4 (default: the highest that has data)." placeholder:"N"`
	Clear      bool   `help:"Controller-initiated: tell the controller that it may capture anew."`
	traceFlag
}

func (telemetryCmd) Help() string {
	return `Telemetry is for the drive's maker: its areas have no public layout. Serial numbers and more may be in it.

Example:
  nvop telemetry /dev/nvme0 --out telemetry.bin`
}

// telemetryResult is what was read.
type telemetryResult struct {
	Schema  string                   `json:"schema"`
	Address string                   `json:"address"`
	Serial  string                   `json:"serial"`
	File    string                   `json:"file"`
	Bytes   int64                    `json:"bytes"`
	Area    int                      `json:"area"`
	Header  nvmespec.TelemetryHeader `json:"header"`
}

func (r telemetryResult) Text(p *render.Page) {
	p.Line("telemetry (%s) of %s, serial number %s: %s bytes in %s", r.Header.Log, r.Address, r.Serial, render.Count(r.Bytes), r.File)
	var rows [][]string
	for i, n := range r.Header.AreaBytes() {
		read := "no"
		if i < r.Area {
			read = "yes"
		}
		rows = append(rows, []string{fmt.Sprint(i + 1), render.Count(n), read})
	}
	p.Grid([]string{">area", ">bytes", "read"}, rows)
	if r.Area == 0 {
		p.Line("  %s has no data, only a header", r.holder())
	}
}

// holder is whose log it is: a recording only knows what was so when it was made.
func (r telemetryResult) holder() string {
	if strings.HasPrefix(r.Address, "replay:") {
		return "the recording"
	}
	return "the drive"
}

func (c telemetryCmd) Run(ctx context.Context, a *app) (err error) {
	switch {
	case c.Area < 0 || c.Area > 4:
		return usagef("--area %d: 1 to 4, or 0 for all that has data", c.Area)
	case c.Clear && !c.Controller, c.Keep && c.Controller:
		return usagef("--clear is for --controller, --keep for the host-initiated log")
	}
	d, err := a.open(c.Drive)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	if err := a.dress(d, c.traceFlag); err != nil {
		return err
	}
	ctrl, err := admin.IdentifyController(ctx, d.dev)
	if err != nil {
		return err
	}
	if ctrl.Logs&nvmespec.LogTelemetry == 0 {
		return &nvmeioctl.UnsupportedError{Feature: "telemetry", Needs: "a drive that has it (LPA bit 3)"}
	}
	if d.transport == "replay" && !c.Controller && !c.Keep {
		return &nvmeioctl.UnsupportedError{Feature: "a capture of telemetry", Needs: "a drive: the recording does not hold one",
			Have: "--keep shows what the drive held when it was recorded, if that is in it"}
	}
	if c.Area == 4 && ctrl.Logs&nvmespec.LogTelemetryArea4 == 0 {
		return &nvmeioctl.UnsupportedError{Feature: "telemetry data area 4", Needs: "a drive that has it (LPA bit 6)"}
	}
	progress := render.NewProgress(a.err, terminal(a.err), 64)
	defer progress.Close()
	req := admin.TelemetryRequest{Controller: c.Controller, Keep: c.Keep, Area: c.Area, Acknowledge: c.Clear, Limits: admin.LimitsOf(ctrl),
		Progress: func(done, total uint64) {
			progress.Set(int64(done*1000/max(total, 1)), "telemetry, "+render.Decimal(done)+" of "+render.Decimal(total))
		}}
	var h nvmespec.TelemetryHeader
	size, err := intoNewFile(c.Out, 0o600, func(w io.Writer) (err error) {
		h, err = admin.Telemetry(ctx, d.dev, req, w)
		return err
	})
	if err != nil {
		return err
	}
	area := c.Area
	if area == 0 {
		area = h.Areas()
	}
	return a.print(telemetryResult{"nvop.telemetry/1", c.Drive, ctrl.SerialNumber, c.Out, size, area, h})
}
