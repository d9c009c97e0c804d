package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
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
}

func fixed(n uint64) func(nvmespec.Controller) uint64 {
	return func(nvmespec.Controller) uint64 { return n }
}

// logPages are the logs by name, in the order shown.
func logPages() []logPage {
	all := uint32(nvmespec.BroadcastNSID)
	return []logPage{
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
		{name: "endurance-group", id: nvmespec.LogIDEnduranceGroup, bytes: fixed(nvmespec.EnduranceGroupSize), group: true},
		{name: "ocp-c0", id: nvmespec.LogIDOCPHealth, bytes: fixed(nvmespec.OCPHealthSize), nsid: all},
		vendorPage("memblaze-ca", vendor.Memblaze),
		vendorPage("ymtc-ca", vendor.YMTC),
	}
}

// vendorPage is a vendor's health log, which means something else on another
// vendor's drive and is therefore not asked for there.
func vendorPage(name string, vendorID uint16) logPage {
	layout := vendor.Lookup(vendorID)[0]
	return logPage{
		name: name, id: layout.LogID, bytes: fixed(uint64(layout.SizeBytes)), nsid: nvmespec.BroadcastNSID,
		needs: func(c nvmespec.Controller) error {
			if c.VendorID == vendorID {
				return nil
			}
			return &nvmeioctl.UnsupportedError{
				Feature: "log " + name, Needs: fmt.Sprintf("a drive of PCI vendor 0x%04x", vendorID),
				Have: fmt.Sprintf("this one is of 0x%04x", c.VendorID),
			}
		},
	}
}

func logNames() string {
	var names []string
	for _, l := range logPages() {
		names = append(names, l.name)
	}
	return strings.Join(names, ", ")
}

// plainName turns other names for a log into the one used here: those of
// nvme-cli's commands, and whole words.
func plainName(name string) string {
	name = strings.TrimSuffix(name, "-log")
	switch name {
	case "firmware", "fw-slot", "firmware-slot":
		return "fw"
	case "changed-ns-list", "changed-namespaces":
		return "changed-ns"
	case "endurance":
		return "endurance-group"
	case "ocp", "ocp-smart":
		return "ocp-c0"
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

type logCmd struct {
	driveArg
	Name  string `arg:"" help:"smart, error, fw, changed-ns, effects, endurance-group, ocp-c0, memblaze-ca, ymtc-ca, or a number such as 0xC5." placeholder:"NAME"`
	Group uint16 `default:"1" help:"The endurance group." placeholder:"N"`
	Bytes uint64 `default:"512" help:"How much of a log that is named by number to read." placeholder:"N"`
	Save  string `type:"path" help:"Write the log's bytes to this new file too; nvop decode reads it." placeholder:"FILE"`
	traceFlag
}

func (logCmd) Help() string {
	return "Reading never clears an event that somebody else waits for.\n\nExample:\n  nvop log /dev/nvme0 smart\n  nvop log /dev/nvme0 0xC5 --bytes 4096 --save c5.bin"
}

// logResult is a log decoded, or as bytes where its layout is not known.
type logResult struct {
	Schema  string `json:"schema"`
	Address string `json:"address,omitempty"`
	Serial  string `json:"serial,omitempty"`
	Log     string `json:"log"`
	Value   any    `json:"value,omitempty"`
	RawHex  string `json:"raw_hex,omitempty"`
}

func (r logResult) Text(p *render.Page) {
	if r.Address != "" {
		p.Line("log %s of %s, serial number %s", r.Log, r.Address, r.Serial)
	} else {
		p.Line("%s", r.Log)
	}
	if r.RawHex != "" {
		raw, _ := hex.DecodeString(r.RawHex)
		p.Line("%s", strings.TrimRight(hex.Dump(raw), "\n"))
		return
	}
	p.Tree(r.Value)
}

func (c logCmd) Run(ctx context.Context, a *app) (err error) {
	page, err := findLog(c.Name, c.Bytes)
	if err != nil {
		return err
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
	raw, err := c.read(ctx, d, ctrl, page)
	if err != nil {
		return err
	}
	if err := saveNew(c.Save, raw); err != nil {
		return err
	}
	r := logResult{Schema: "nvop.log/1", Address: c.Drive, Serial: ctrl.SerialNumber, Log: page.name}
	if strings.HasPrefix(page.name, "0x") {
		r.RawHex = hex.EncodeToString(raw)
		return a.print(r)
	}
	if r.Value, err = vendor.DecodeKind(page.name, raw); err != nil {
		return &nvmeioctl.OpError{Op: "decode log " + page.name, Dev: c.Drive, Err: err}
	}
	return a.print(r)
}

// read gets the log's bytes. A log that the drive does not have is not a
// failure of the drive but something it does not support.
func (c logCmd) read(ctx context.Context, d *drive, ctrl nvmespec.Controller, page logPage) ([]byte, error) {
	if page.needs != nil {
		if err := page.needs(ctrl); err != nil {
			return nil, err
		}
	}
	req := admin.LogRequest{
		NSID: page.nsid, Extended: ctrl.Logs&nvmespec.LogExtended != 0, MaxTransferBytes: ctrl.MaxTransferBytes,
		Fields: nvmespec.GetLogFields{Log: page.id, RetainEvent: page.retain, LengthBytes: page.bytes(ctrl)},
	}
	if page.group {
		req.Fields.LogSpecificID = c.Group
	}
	raw, err := admin.GetLog(ctx, d.dev, req)
	if errors.Is(err, nvmespec.ErrInvalidLogPage) || err != nil && admin.IsUnsupported(err) {
		return nil, &codedError{exitUnsupported, fmt.Errorf("the drive has no log %s: %w", page.name, err)}
	}
	return raw, err
}

// saveNew writes bytes to a file that must not exist yet; no name, no file.
func saveNew(path string, raw []byte) error {
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(raw)
	return errors.Join(err, f.Close())
}

type decodeCmd struct {
	Kind string `arg:"" help:"What the dump is: id-ctrl, id-ns, smart, ... (nvop decode --kinds lists all)." placeholder:"KIND" optional:""`
	File string `arg:"" help:"The dump as nvme-cli saves it with --raw-binary; - for standard input." placeholder:"FILE" optional:""`
	List bool   `name:"kinds" help:"List the kinds."`
}

func (decodeCmd) Help() string {
	return "Needs no drive and no root.\n\nExample:\n  nvme id-ctrl /dev/nvme0 --raw-binary > id.bin\n  nvop decode id-ctrl id.bin -o json"
}

type kindsResult struct {
	Schema string   `json:"schema"`
	Kinds  []string `json:"kinds"`
}

func (r kindsResult) Text(p *render.Page) { p.Line("%s", strings.Join(r.Kinds, "\n")) }

// dumpLimit bounds what decode reads: far above any structure.
const dumpLimit = 16 << 20

func (c decodeCmd) Run(a *app) error {
	if c.List {
		return a.print(kindsResult{"nvop.decode-kinds/1", vendor.Kinds()})
	}
	if c.Kind == "" || c.File == "" {
		return usagef("decode needs a KIND and a FILE; the kinds are %s", strings.Join(vendor.Kinds(), ", "))
	}
	raw, err := readDump(a.in, c.File)
	if err != nil {
		return err
	}
	v, err := vendor.DecodeKind(plainName(c.Kind), raw)
	if errors.Is(err, nvmespec.ErrUnknownKind) {
		return &codedError{exitUsage, err}
	}
	if err != nil {
		return fmt.Errorf("%s: not a dump of kind %s: %w", c.File, c.Kind, err)
	}
	return a.print(logResult{Schema: "nvop.decode/1", Log: c.Kind, Value: v})
}

func readDump(in io.Reader, path string) ([]byte, error) {
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	var buf bytes.Buffer
	n, err := io.Copy(&buf, io.LimitReader(in, dumpLimit+1))
	if err != nil {
		return nil, err
	}
	if n > dumpLimit {
		return nil, fmt.Errorf("%s: longer than %d bytes; this is no dump of one structure", path, dumpLimit)
	}
	return buf.Bytes(), nil
}
