package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"nvop/cmd/nvop/internal/render"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/admin"
	"nvop/nvmeioctl/nvmespec"
	"nvop/nvmeioctl/nvmespec/vendor"
)

// logPage is a log that can be asked for by name. The name is also the kind
// under which decode reads a dump of it.
type logPage struct {
	name  string
	id    nvmespec.LogID
	bytes func(c nvmespec.Controller) uint64
	nsid  uint32
	group bool // of an endurance group
	// retain keeps the event that reading would clear.
	retain bool
	needs  func(c nvmespec.Controller) error
	// whole reads a log whose length is in itself.
	whole func(ctx context.Context, dev nvmeioctl.Device, c nvmespec.Controller, w io.Writer, p admin.Progress) error
	// length says from the first bytes of a log how long it is; bytes is then how
	// much of it to read first.
	length func([]byte) uint64
	// specific is the Log Specific Field.
	specific uint8
	// unverified marks a vendor's log whose units no real drive's output fixes.
	unverified bool
}

// kind is the kind of dump that the log is.
func (p logPage) kind() string {
	if p.id == nvmespec.LogIDFDPEvents {
		return p.id.String()
	}
	return p.name
}

func fixed(n uint64) func(nvmespec.Controller) uint64 {
	return func(nvmespec.Controller) uint64 { return n }
}

// logPages are the logs by name, in the order shown.
func logPages() []logPage {
	all := uint32(nvmespec.BroadcastNSID)
	pages := []logPage{
		{name: "smart", id: nvmespec.LogIDSMART, bytes: fixed(nvmespec.SMARTSize), nsid: all},
		{name: "error", id: nvmespec.LogIDError, nsid: all, retain: true, bytes: func(c nvmespec.Controller) uint64 {
			n := uint64(max(c.ErrorLogEntries, 1))
			if c.Logs&nvmespec.LogExtended == 0 {
				n = min(n, 4096/nvmespec.ErrorEntrySize)
			}
			return n * nvmespec.ErrorEntrySize
		}},
		{name: "fw", id: nvmespec.LogIDFirmware, bytes: fixed(nvmespec.FirmwareSlotsSize), nsid: all},
		{name: "changed-ns", id: nvmespec.LogIDChangedNamespaces, bytes: fixed(nvmespec.ChangedNamespacesSize), nsid: all, retain: true},
		{name: "effects", id: nvmespec.LogIDEffects, bytes: fixed(nvmespec.EffectsSize), nsid: all},
		{name: "self-test", id: nvmespec.LogIDSelfTest, bytes: fixed(nvmespec.SelfTestLogSize), nsid: all},
		{name: "sanitize", id: nvmespec.LogIDSanitize, bytes: fixed(nvmespec.SanitizeLogSize), nsid: all, retain: true},
		{name: "telemetry-host", id: nvmespec.LogIDTelemetryHost, bytes: fixed(nvmespec.TelemetryHeaderSize), nsid: all, retain: true},
		{name: "telemetry-ctrl", id: nvmespec.LogIDTelemetryController, bytes: fixed(nvmespec.TelemetryHeaderSize), nsid: all, retain: true},
		{name: "events", id: nvmespec.LogIDPersistentEvents, nsid: all, whole: persistentEvents},
		{name: "supported-logs", id: nvmespec.LogIDSupported, bytes: fixed(nvmespec.SupportedLogsSize), nsid: all},
		{name: "feature-effects", id: nvmespec.LogIDFeatureEffects, bytes: fixed(nvmespec.FeatureEffectsSize), nsid: all},
		{name: "endurance-group", id: nvmespec.LogIDEnduranceGroup, bytes: fixed(nvmespec.EnduranceGroupSize), group: true},
		{name: "endurance-group-events", id: nvmespec.LogIDEnduranceGroupEvents, bytes: fixed(512), nsid: all, retain: true, length: nvmespec.EnduranceGroupEventsBytes},
		{name: "ana", id: nvmespec.LogIDANA, bytes: fixed(4096), nsid: all, retain: true, length: nvmespec.ANALogBytes},
		{name: "lba-status-log", id: nvmespec.LogIDLBAStatus, bytes: fixed(512), nsid: all, retain: true, length: nvmespec.LBAStatusLogBytes},
		{name: "fdp-configs", id: nvmespec.LogIDFDPConfigurations, bytes: fixed(512), group: true, length: nvmespec.FDPConfigurationsBytes},
		{name: "fdp-usage", id: nvmespec.LogIDFDPUsage, bytes: fixed(512), group: true, length: nvmespec.FDPHandleUsageBytes},
		{name: "fdp-stats", id: nvmespec.LogIDFDPStatistics, bytes: fixed(nvmespec.FDPStatisticsSize), group: true},
		{name: "fdp-events", id: nvmespec.LogIDFDPEvents, bytes: fixed(nvmespec.FDPEventsSize), group: true, retain: true},
		{name: "fdp-host-events", id: nvmespec.LogIDFDPEvents, bytes: fixed(nvmespec.FDPEventsSize), group: true, retain: true, specific: nvmespec.FDPHostEvents},
		{name: "ocp-c0", id: nvmespec.LogIDOCPHealth, bytes: fixed(nvmespec.OCPHealthSize), nsid: all},
	}
	for _, p := range vendor.Pages() {
		pages = append(pages, vendorPage(p))
	}
	return pages
}

// persistentEvents reads the persistent event log.
func persistentEvents(ctx context.Context, dev nvmeioctl.Device, c nvmespec.Controller, w io.Writer, p admin.Progress) error {
	if c.Logs&nvmespec.LogPersistentEvents == 0 {
		return &nvmeioctl.UnsupportedError{Feature: "log events", Needs: "a drive with a persistent event log (LPA bit 4)"}
	}
	_, err := admin.PersistentEvents(ctx, dev, admin.LimitsOf(c), w, p)
	return err
}

// limitWriter refuses more than fits in memory.
type limitWriter struct {
	w    io.Writer
	left int
}

func (l *limitWriter) Write(b []byte) (int, error) {
	if l.left -= len(b); l.left < 0 {
		return 0, fmt.Errorf("the log has more than %d bytes; write it to a file with --out", dumpLimit)
	}
	return l.w.Write(b)
}

// vendorPage is a vendor's log, which means something else on another vendor's
// drive and is therefore not asked for there.
func vendorPage(v vendor.Page) logPage {
	return logPage{
		name: v.Name, id: v.LogID, bytes: fixed(uint64(v.SizeBytes)), nsid: nvmespec.BroadcastNSID, unverified: !v.Verified,
		needs: func(c nvmespec.Controller) error {
			if slices.Contains(v.VendorIDs, c.VendorID) {
				return nil
			}
			return &nvmeioctl.UnsupportedError{
				Feature: "log " + v.Name, Needs: fmt.Sprintf("a drive of PCI vendor 0x%04x", v.VendorIDs[0]),
				Have: fmt.Sprintf("this one is of 0x%04x", c.VendorID),
			}
		},
	}
}

func logNames() string {
	names := []string{"vendor"}
	for _, l := range logPages() {
		names = append(names, l.name)
	}
	return strings.Join(names, ", ")
}

// plainName turns other names for a log into the one used here: those of
// nvme-cli's commands, and whole words.
func plainName(name string) string {
	if name == "lba-status-log" {
		return name // without its end it is the answer of a command (Get LBA Status)
	}
	name = strings.TrimSuffix(name, "-log")
	switch name {
	case "firmware", "fw-slot", "firmware-slot":
		return "fw"
	case "changed-ns-list", "changed-namespaces":
		return "changed-ns"
	case "endurance-event-agg", "endurance-group-event-agg":
		return "endurance-group-events"
	case "endurance":
		return "endurance-group"
	case "ocp", "ocp-smart":
		return "ocp-c0"
	case "persistent-event", "persistent-events", "pel":
		return "events"
	case "device-self-test", "selftest":
		return "self-test"
	case "telemetry":
		return "telemetry-host"
	case "supported", "supported-log-pages":
		return "supported-logs"
	case "fid-support-effects", "fid-supported-effects":
		return "feature-effects"
	}
	return name
}

// findLog finds a log by name or number. A number is shown as it is: what it
// means is the vendor's.
func findLog(name string, length uint64) (logPage, error) {
	name = plainName(name)
	for _, l := range logPages() {
		if l.name == name {
			return l, nil
		}
	}
	n, err := strconv.ParseUint(strings.TrimPrefix(name, "0x"), 16, 8)
	if err != nil || !strings.HasPrefix(name, "0x") {
		return logPage{}, usagef("no log is called %q; there are %s, and 0x.. for any other", name, logNames())
	}
	if length < 4 || length%4 != 0 {
		return logPage{}, usagef("--bytes %d: a log is read in multiples of 4 bytes, at least 4", length)
	}
	return logPage{name: name, id: nvmespec.LogID(n), bytes: fixed(length), nsid: nvmespec.BroadcastNSID, retain: true}, nil
}

// ownLog finds the first log of the drive's own vendor.
func ownLog(c nvmespec.Controller) (logPage, error) {
	if pages := vendor.PagesOf(c.VendorID); len(pages) > 0 {
		return vendorPage(pages[0]), nil
	}
	return logPage{}, &nvmeioctl.UnsupportedError{Feature: "the vendor's own log",
		Needs: "an entry in the table of vendor logs", Have: fmt.Sprintf("PCI vendor 0x%04x has none", c.VendorID)}
}

type logCmd struct {
	driveArg
	Name  string `arg:"" help:"smart, error, fw, changed-ns, effects, self-test, sanitize, telemetry-host, telemetry-ctrl, events, supported-logs, feature-effects, endurance-group, endurance-group-events, ana, lba-status-log, fdp-configs, fdp-usage, fdp-stats, fdp-events, fdp-host-events, ocp-c0, vendor, or a number such as 0xC5." placeholder:"NAME"`
	Group uint16 `default:"1" help:"The endurance group." placeholder:"N"`
	Bytes uint64 `default:"512" help:"How much of a log that is named by number to read." placeholder:"N"`
	Save  string `name:"out" aliases:"save" type:"path" help:"Write the log's bytes to this new file too; nvop decode reads it." placeholder:"FILE"`
	traceFlag
}

func (logCmd) Help() string {
	return "Reading never clears an event that somebody else waits for.\n\nExample:\n  nvop log /dev/nvme0 smart\n  nvop log /dev/nvme0 events --out events.bin\n  nvop log /dev/nvme0 0xC5 --bytes 4096 --out c5.bin"
}

// logResult is a log decoded, or as bytes where its layout is not known.
type logResult struct {
	Schema  string `json:"schema"`
	Address string `json:"address,omitempty"`
	Serial  string `json:"serial,omitempty"`
	Log     string `json:"log"`
	// Note is what must be known before the values are believed.
	Note   string `json:"note,omitempty"`
	Value  any    `json:"value,omitempty"`
	RawHex string `json:"raw_hex,omitempty"`
}

const unverifiedNote = "unverified: no output of a real drive fixes the units of this log; what other programs take them for is in provenance"

func (r logResult) Text(p *render.Page) {
	if r.Address != "" {
		p.Line("log %s of %s, serial number %s", r.Log, r.Address, r.Serial)
	} else {
		p.Line("%s", r.Log)
	}
	if r.Note != "" {
		p.Line("%s", r.Note)
	}
	if r.RawHex != "" {
		raw, _ := hex.DecodeString(r.RawHex)
		p.Line("%s", strings.TrimRight(hex.Dump(raw), "\n"))
		return
	}
	if events, ok := r.Value.(nvmespec.PersistentLog); ok {
		eventsText(p, events)
		return
	}
	p.Tree(r.Value)
}

// eventsText lists persistent events in a table.
func eventsText(p *render.Page, l nvmespec.PersistentLog) {
	h := l.Header
	p.Line("%d events in %d bytes, generation %d, made %s at %s power-on hours", h.Events, h.TotalBytes, h.Generation, eventTime(h.Time), h.PowerOnHours)
	var rows [][]string
	for _, e := range l.Events {
		rows = append(rows, []string{eventTime(e.Time), e.Type.String(), fmt.Sprint(e.ControllerID), eventSummary(e)})
	}
	p.Grid([]string{"time", "event", ">controller", "details"}, rows)
	if l.Incomplete != "" {
		p.Line("the log is not complete: %s", l.Incomplete)
	}
}

// eventTime is a calendar time where a host has set the clock, else the time
// since the reset.
func eventTime(t nvmespec.Timestamp) string {
	if at, ok := t.Time(); ok {
		return at.Format("2006-01-02 15:04:05")
	}
	return fmt.Sprintf("%.3f s after reset", float64(t.Milliseconds)/1000)
}

// eventSummary is an event's data in a line.
func eventSummary(e nvmespec.PersistentEvent) string {
	v, err := e.Decode()
	if err != nil {
		return err.Error()
	}
	switch v := v.(type) {
	case nvmespec.SMART:
		return fmt.Sprintf("%d%% used, spare %d%%, %s data units written", v.UsedPercent, v.SparePercent, v.DataUnitsWritten)
	case nvmespec.FirmwareCommitEvent:
		return fmt.Sprintf("slot %d, action %d, %s to %s, %s", v.Slot, v.Action, v.OldRevision, v.NewRevision, v.Status.Name())
	case nvmespec.TimestampEvent:
		return "before: " + eventTime(v.Previous)
	case nvmespec.ResetEvent:
		return fmt.Sprintf("firmware %s, %d controllers", v.FirmwareRevision, len(v.Controllers))
	case nvmespec.HardwareErrorEvent:
		return fmt.Sprintf("code 0x%04x", v.Code)
	case nvmespec.NamespaceEvent:
		verb := "created"
		if v.Command&15 == nvmespec.SelectDelete {
			verb = "deleted"
		}
		return fmt.Sprintf("namespace %d %s, %d blocks", v.NSID, verb, v.SizeBlocks)
	case nvmespec.FormatStartEvent:
		f := nvmespec.DecodeFormatFields(v.Command)
		return fmt.Sprintf("namespace %s, LBA format %d, erase %d", nsidText(v.NSID), f.FormatIndex, f.Erase)
	case nvmespec.FormatDoneEvent:
		return fmt.Sprintf("namespace %s, %s", nsidText(v.NSID), v.Status.Name())
	case nvmespec.SanitizeStartEvent:
		return nvmespec.DecodeSanitizeFields(v.Command, v.Pattern).Action.String()
	case nvmespec.SanitizeDoneEvent:
		return v.State.String()
	case nvmespec.SetFeatureEvent:
		if id, ok := v.Feature(); ok {
			return "feature " + id.String()
		}
	case nvmespec.TelemetryHeader:
		return fmt.Sprintf("%d bytes, generation %d", v.SizeBytes(4), v.HostGeneration)
	case nvmespec.ThermalEvent:
		return fmt.Sprintf("%d degrees over threshold %d", v.OverDegrees, v.Threshold)
	}
	return fmt.Sprintf("%d bytes", len(e.Data))
}

func nsidText(nsid uint32) string {
	if nsid == nvmespec.BroadcastNSID {
		return "all"
	}
	return fmt.Sprint(nsid)
}

func (c logCmd) Run(ctx context.Context, a *app) (err error) {
	page := logPage{name: "vendor"}
	if c.Name != "vendor" {
		if page, err = findLog(c.Name, c.Bytes); err != nil {
			return err
		}
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
	if page.name == "vendor" {
		if page, err = ownLog(ctrl); err != nil {
			return err
		}
	}
	raw, err := c.fetch(ctx, a, d.dev, ctrl, page)
	if err != nil {
		return err
	}
	r := logResult{Schema: "nvop.log/1", Address: c.Drive, Serial: ctrl.SerialNumber, Log: page.name}
	if page.unverified {
		r.Note = unverifiedNote
	}
	if strings.HasPrefix(page.name, "0x") {
		r.RawHex = hex.EncodeToString(raw)
		return a.print(r)
	}
	if r.Value, err = vendor.DecodeKind(page.kind(), raw); err != nil {
		return &nvmeioctl.OpError{Op: "decode log " + page.name, Dev: c.Drive, Err: err}
	}
	return a.print(r)
}

// fetch reads the log, into a file too if asked to. A log whose length is in
// itself goes to the file piece by piece, however long it is; of a very long one
// only the beginning is shown.
func (c logCmd) fetch(ctx context.Context, a *app, dev nvmeioctl.Device, ctrl nvmespec.Controller, page logPage) ([]byte, error) {
	if page.whole == nil || c.Save == "" {
		raw, err := page.read(ctx, dev, ctrl, c.Group)
		if err == nil {
			err = saveNew(c.Save, 0o600, raw)
		}
		return raw, err
	}
	progress := render.NewProgress(a.err, terminal(a.err), 64)
	defer progress.Close()
	start := &headWriter{}
	_, err := intoNewFile(c.Save, 0o600, func(w io.Writer) error {
		return page.whole(ctx, dev, ctrl, io.MultiWriter(w, start), func(done, total uint64) {
			progress.Set(int64(done*1000/max(total, 1)), "log "+page.name+", "+render.Decimal(done)+" of "+render.Decimal(total))
		})
	})
	return start.b, page.missing(err)
}

// headWriter keeps the first dumpLimit bytes.
type headWriter struct{ b []byte }

func (h *headWriter) Write(b []byte) (int, error) {
	h.b = append(h.b, b[:min(len(b), dumpLimit-len(h.b))]...)
	return len(b), nil
}

// read gets the log's bytes. A log that the drive does not have is not a
// failure of the drive but something it does not support.
func (page logPage) read(ctx context.Context, dev nvmeioctl.Device, ctrl nvmespec.Controller, group uint16) ([]byte, error) {
	if page.needs != nil {
		if err := page.needs(ctrl); err != nil {
			return nil, err
		}
	}
	raw, err := page.fetch(ctx, dev, ctrl, group)
	return raw, page.missing(err)
}

// missing says of a status that means it that the drive does not have the log.
func (page logPage) missing(err error) error {
	var status nvmespec.StatusError
	if errors.As(err, &status) && admin.IsUnsupported(err) {
		return &codedError{exitUnsupported, fmt.Errorf("the drive has no log %s: %w", page.name, err)}
	}
	return err
}

func (page logPage) fetch(ctx context.Context, dev nvmeioctl.Device, ctrl nvmespec.Controller, group uint16) ([]byte, error) {
	if page.whole != nil {
		var b bytes.Buffer
		err := page.whole(ctx, dev, ctrl, &limitWriter{&b, dumpLimit}, nil)
		return b.Bytes(), err
	}
	req := admin.LogRequest{
		NSID: page.nsid, Extended: ctrl.Logs&nvmespec.LogExtended != 0, MaxTransferBytes: ctrl.MaxTransferBytes,
		Fields: nvmespec.GetLogFields{Log: page.id, Specific: page.specific, RetainEvent: page.retain, LengthBytes: page.bytes(ctrl)},
	}
	if page.group {
		req.Fields.LogSpecificID = group
	}
	if page.length != nil {
		return admin.GetSizedLog(ctx, dev, req, page.length)
	}
	return admin.GetLog(ctx, dev, req)
}
