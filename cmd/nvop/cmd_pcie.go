package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"nvop/nvmeioctl"
	"nvop/pcie"
)

type pcieCmd struct {
	Show    pcieShowCmd    `cmd:"" help:"Show the PCI Express registers of a drive."`
	Path    pciePathCmd    `cmd:"" help:"Show the way from a drive to its root port, and what hangs beside it."`
	Audit   pcieAuditCmd   `cmd:"" help:"Judge links, payload sizes, read requests, tags and errors; exit code 3 for findings."`
	Ceiling pcieCeilingCmd `cmd:"" help:"Say what a link can carry at most, and what a measured figure proves."`
	Set     pcieSetCmd     `cmd:"" help:"Change payload and read request sizes of a drive's path."`
}

// pcieSource is where a command finds its functions.
type pcieSource struct {
	Devices []string `arg:"" optional:"" name:"device" help:"A drive (/dev/nvme0, /dev/nvme0n1) or a PCI address (0000:01:00.0). Default: every NVMe controller." placeholder:"DEV"`
	From    string   `help:"Read the text of lspci -xxxx in this file instead of this machine; - for standard input." placeholder:"FILE"`
	Root    string   `help:"Find sys, proc and dev below this folder: another machine's tree, or the host's in a container." placeholder:"DIR"`
}

// pcieDevice is one function that a command speaks about.
type pcieDevice struct {
	// Device is what names it: the node, or the PCI address.
	Device string `json:"device"`
	// Controller is the kernel's name; "" from a dump.
	Controller string       `json:"controller,omitempty"`
	Serial     string       `json:"serial,omitempty"`
	Address    pcie.Address `json:"address"`

	topo *pcie.Topology
	path pcie.Path
}

// dumpBound bounds what is read of a dump: a large server's is a few megabytes.
const dumpBound = 64 << 20

// find reads everything the command is about. problems are functions that
// could not be read.
func (s pcieSource) find(a *app) (list []pcieDevice, problems []string, err error) {
	if s.From != "" && s.Root != "" {
		return nil, nil, usagef("--from and --root name two sources; give one")
	}
	if s.From != "" {
		return s.fromDump(a)
	}
	list, err = s.onHost()
	if err != nil {
		return nil, nil, err
	}
	addresses := make([]pcie.Address, len(list))
	for i := range list {
		addresses[i] = list[i].Address
	}
	topo, err := pcie.Sysfs{Root: s.Root}.Load(addresses...)
	if err != nil {
		return nil, nil, err
	}
	return attach(list, topo, topo.Problems)
}

// attach gives each device its path.
func attach(list []pcieDevice, topo *pcie.Topology, problems []error) ([]pcieDevice, []string, error) {
	said := []string{}
	for _, err := range problems {
		said = append(said, err.Error())
	}
	for i := range list {
		path, err := topo.Path(list[i].Address)
		if err != nil {
			return nil, nil, err
		}
		list[i].topo, list[i].path = topo, path
	}
	return list, said, nil
}

func (s pcieSource) fromDump(a *app) ([]pcieDevice, []string, error) {
	in := a.in
	if s.From != "-" {
		f, err := openInput(s.From)
		if err != nil {
			return nil, nil, err
		}
		defer f.Close()
		in = f
	}
	topo, problems, err := pcie.ReadDump(io.LimitReader(in, dumpBound))
	if err != nil {
		return nil, nil, fmt.Errorf("%s: not a dump of lspci -xxxx: %w", s.From, err)
	}
	var list []pcieDevice
	for _, name := range s.Devices {
		address, err := pcie.ParseAddress(name)
		if err != nil {
			return nil, nil, usagef("%s: a dump knows PCI addresses only, such as 0000:01:00.0", name)
		}
		list = append(list, pcieDevice{Device: name, Address: address})
	}
	if len(list) == 0 {
		functions := topo.Controllers()
		if len(functions) == 0 {
			functions = topo.Endpoints()
		}
		for _, f := range functions {
			list = append(list, pcieDevice{Device: f.Address.String(), Address: f.Address})
		}
	}
	if len(list) == 0 {
		return nil, nil, fmt.Errorf("%s: no NVMe controller and no other endpoint in it; name a function", s.From)
	}
	return attach(list, topo, problems)
}

// onHost finds the PCI addresses behind the names. A node of several
// controllers gives one device for each: they have ways of their own.
func (s pcieSource) onHost() ([]pcieDevice, error) {
	host := nvmeioctl.Host{Root: s.Root}
	var list []pcieDevice
	add := func(name string, c nvmeioctl.Controller) error {
		address, err := pciAddressOf(name, c)
		if err == nil {
			list = append(list, pcieDevice{Device: name, Controller: c.Name, Serial: c.Serial, Address: address})
		}
		return err
	}
	for _, name := range s.Devices {
		if address, err := pcie.ParseAddress(name); err == nil {
			list = append(list, pcieDevice{Device: name, Address: address})
			continue
		}
		if scheme, _, ok := strings.Cut(name, ":"); ok && (scheme == "sim" || scheme == "file" || scheme == "replay") {
			return nil, noPCIPath(name, "it is no device of this machine")
		}
		if !strings.HasPrefix(name, "/") {
			return nil, usagef("%s: not a drive; use /dev/%s, or a PCI address such as 0000:01:00.0", name, name)
		}
		controllers, err := host.ControllersOf(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if len(controllers) == 0 {
			return nil, fmt.Errorf("%s: no controller of this machine leads to it: %w", name, nvmeioctl.ErrDeviceGone)
		}
		for _, c := range controllers {
			if err := add(name, c); err != nil {
				return nil, err
			}
		}
	}
	if len(s.Devices) > 0 {
		return list, nil
	}
	inv, err := host.Discover()
	if err != nil {
		return nil, err
	}
	for _, c := range inv.Controllers {
		if c.PCIAddress == "" {
			continue
		}
		if err := add(c.Node, c); err != nil {
			return nil, err
		}
	}
	if len(list) == 0 {
		return nil, errors.New("no NVMe controller on PCI Express on this machine; --from FILE reads a dump of another")
	}
	return list, nil
}

func noPCIPath(name, why string) error {
	return &nvmeioctl.UnsupportedError{Feature: "looking at the PCI Express path of " + name, Needs: "a drive on PCI Express", Have: why}
}

// pciAddressOf is where a controller sits.
func pciAddressOf(name string, c nvmeioctl.Controller) (pcie.Address, error) {
	if c.PCIAddress == "" {
		return pcie.Address{}, noPCIPath(name, fmt.Sprintf("%s has the transport %s: there is no PCI path", c.Name, c.Transport))
	}
	return pcie.ParseAddress(c.PCIAddress)
}

type pcieShowCmd struct{ pcieSource }

func (pcieShowCmd) Help() string {
	return "Works without root as far as the kernel shows it, and says what it could not read.\n\nExample:\n  nvop pcie show /dev/nvme0\n  nvop pcie show --from lspci.txt 01:00.0 -o json"
}

// pcieShown is one device with its registers.
type pcieShown struct {
	pcieDevice
	Function *pcie.Function `json:"function"`
	// Virtual is set where the device is a virtual function; Function is the
	// physical one then.
	Virtual *pcie.Address `json:"virtual_function,omitempty"`
}

type pcieShowResult struct {
	Schema   string         `json:"schema"`
	Platform *pcie.Platform `json:"platform,omitempty"`
	Devices  []pcieShown    `json:"devices"`
	Problems []string       `json:"problems,omitempty"`
}

func (c pcieShowCmd) Run(a *app) error {
	list, problems, err := c.find(a)
	if err != nil {
		return err
	}
	r := pcieShowResult{Schema: "nvop.pcie-show/1", Problems: problems, Platform: list[0].topo.Platform}
	for _, d := range list {
		r.Devices = append(r.Devices, pcieShown{d, d.path.Endpoint(), d.path.Virtual})
	}
	return a.print(r)
}

type pciePathCmd struct{ pcieSource }

func (pciePathCmd) Help() string {
	return "Example:\n  nvop pcie path /dev/nvme0n1\n  nvop pcie path --from lspci.txt"
}

// pcieHop is one function on the way, shortened to what a path is about.
type pcieHop struct {
	Address        pcie.Address `json:"address"`
	Type           string       `json:"type"`
	VendorID       uint16       `json:"vendor_id"`
	DeviceID       uint16       `json:"device_id"`
	MaxPayload     pcie.Payload `json:"max_payload_bytes,omitempty"`
	Supported      pcie.Payload `json:"max_payload_supported_bytes,omitempty"`
	MaxReadRequest pcie.Payload `json:"max_read_request_bytes,omitempty"`
	Speed          pcie.Speed   `json:"speed_gt_per_second"`
	Width          pcie.Width   `json:"width"`
	OnPath         bool         `json:"on_path"`

	parent *pcie.Address
}

// pciePathOf is one device's way.
type pciePathOf struct {
	pcieDevice
	Complete bool             `json:"complete_to_root_port"`
	Virtual  *pcie.Address    `json:"virtual_function,omitempty"`
	VMD      *pcie.Address    `json:"vmd,omitempty"`
	Hops     []pcieHop        `json:"hops"`
	Links    []pcie.LinkState `json:"links"`
	// Payloads is absent where a hop's registers could not be read.
	Payloads *pcie.Payloads `json:"payloads,omitempty"`
	Ceiling  *pcie.Ceiling  `json:"ceiling,omitempty"`
	// Tree is the root port and everything below it.
	Tree []pcieHop `json:"tree"`
}

type pciePathResult struct {
	Schema   string       `json:"schema"`
	Devices  []pciePathOf `json:"devices"`
	Problems []string     `json:"problems,omitempty"`
}

func (c pciePathCmd) Run(a *app) error {
	list, problems, err := c.find(a)
	if err != nil {
		return err
	}
	r := pciePathResult{Schema: "nvop.pcie-path/1", Problems: problems}
	for _, d := range list {
		r.Devices = append(r.Devices, describePath(d))
	}
	return a.print(r)
}

func describePath(d pcieDevice) pciePathOf {
	r := pciePathOf{pcieDevice: d, Complete: d.path.Complete, Virtual: d.path.Virtual, Links: d.path.Links()}
	if d.path.VMD != nil {
		r.VMD = &d.path.VMD.Address
	}
	for _, f := range d.path.Hops {
		r.Hops = append(r.Hops, describeHop(d, f))
	}
	r.Tree = append(r.Tree, describeHop(d, d.path.Top()))
	for _, f := range d.path.Below {
		r.Tree = append(r.Tree, describeHop(d, f))
	}
	if s, ok := d.path.Payloads(); ok {
		r.Payloads = &s
	}
	if in, _, ok := d.path.CeilingInput(); ok {
		if c, err := in.Ceiling(); err == nil {
			r.Ceiling = &c
		}
	}
	return r
}

func describeHop(d pcieDevice, f *pcie.Function) pcieHop {
	h := pcieHop{
		Address: f.Address, Type: "unknown (only the header could be read)", VendorID: f.VendorID, DeviceID: f.DeviceID,
		OnPath: slices.Contains(d.path.Hops, f),
	}
	if up, ok := d.topo.Parent(f.Address); ok && f != d.path.Top() {
		h.parent = &up.Address
	}
	x := f.Express
	switch {
	case x != nil:
		h.Type, h.MaxPayload, h.Supported, h.MaxReadRequest = x.Type.String(), x.MaxPayload, x.MaxPayloadSupported, x.MaxReadRequest
		if x.Link != nil {
			h.Speed, h.Width = x.Link.Speed, x.Link.Width
		}
	case !f.HeaderOnly:
		h.Type = "PCI (no PCI Express capability)"
	}
	if f.Sysfs != nil && x == nil {
		h.Speed, h.Width = f.Sysfs.Speed, f.Sysfs.Width
	}
	return h
}

type pcieAuditCmd struct {
	pcieSource
	Baseline     string `help:"Compare with a baseline that --save-baseline wrote." placeholder:"FILE" type:"path"`
	SaveBaseline string `help:"Write the paths' settings to this new file, to compare with later." placeholder:"FILE" type:"path"`
}

func (pcieAuditCmd) Help() string {
	return "Exit code 0: nothing but notes; 3: something to do, or it could not be judged as a whole (missing privilege, or a dump without the extended space or the ports above).\n\nExample:\n  nvop pcie audit /dev/nvme0\n  nvop pcie audit --save-baseline good.json\n  nvop pcie audit --from lspci.txt -o json"
}

// pcieAudited is one device's findings.
type pcieAudited struct {
	pcieDevice
	Findings []pcie.Finding `json:"findings"`
}

type pcieAuditResult struct {
	Schema string `json:"schema"`
	// Worst is the severity of the worst finding of all; "" for none.
	Worst    pcie.Severity `json:"worst"`
	Devices  []pcieAudited `json:"devices"`
	Problems []string      `json:"problems,omitempty"`
}

// baselineFile is what --save-baseline writes.
type baselineFile struct {
	Schema string          `json:"schema"`
	Paths  []pcie.Baseline `json:"paths"`
}

const baselineFileSchema = "nvop.pcie-baselines/1"

func (c pcieAuditCmd) Run(a *app) error {
	list, problems, err := c.find(a)
	if err != nil {
		return err
	}
	baselines, err := readBaselines(c.Baseline)
	if err != nil {
		return err
	}
	if err := c.save(list); err != nil {
		return err
	}
	r := pcieAuditResult{Schema: "nvop.pcie-audit/1", Problems: problems}
	todo, unjudged := 0, len(problems) > 0
	for _, d := range list {
		o := pcie.AuditOptions{}
		for i := range baselines {
			if baselines[i].Device == d.path.Endpoint().Address {
				o.Baseline = &baselines[i]
			}
		}
		if c.Baseline != "" && o.Baseline == nil {
			return fmt.Errorf("%s: no baseline of %s in it", c.Baseline, d.path.Endpoint().Address)
		}
		findings := pcie.Audit(d.topo, d.path, o)
		for _, f := range findings {
			switch {
			case f.Rule == pcie.RuleAccess && f.Severity != pcie.Note:
				unjudged = true
			case f.Severity != pcie.Note:
				todo++
			}
		}
		if w := pcie.Worst(findings); rank(w) < rank(r.Worst) {
			r.Worst = w
		}
		r.Devices = append(r.Devices, pcieAudited{d, nonNil(findings)})
	}
	if err := a.print(r); err != nil {
		return err
	}
	switch {
	case todo > 0:
		return reported{&codedError{exitFindings, fmt.Errorf("findings on PCI Express that ask for something to be done: %d", todo)}}
	case unjudged:
		return reported{&codedError{exitFindings, errors.New("the path could not be judged as a whole; see the findings")}}
	}
	return nil
}

func rank(s pcie.Severity) int {
	if i := slices.Index([]pcie.Severity{pcie.Critical, pcie.Warning, pcie.Advice, pcie.Note}, s); i >= 0 {
		return i
	}
	return 4
}

func readBaselines(path string) ([]pcie.Baseline, error) {
	if path == "" {
		return nil, nil
	}
	text, err := readInput(path)
	if err != nil {
		return nil, err
	}
	var f baselineFile
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, fmt.Errorf("%s: not a baseline: %w", path, err)
	}
	if f.Schema != baselineFileSchema {
		return nil, fmt.Errorf("%s: not a baseline of this version (schema %q, not %q)", path, f.Schema, baselineFileSchema)
	}
	return f.Paths, nil
}

func (c pcieAuditCmd) save(list []pcieDevice) error {
	if c.SaveBaseline == "" {
		return nil
	}
	f := baselineFile{Schema: baselineFileSchema}
	for _, d := range list {
		b, ok := d.path.Baseline()
		if !ok {
			return fmt.Errorf("%s: no baseline can be saved: %w", d.Device, pcie.ErrNoAccess)
		}
		f.Paths = append(f.Paths, b)
	}
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	return saveNew(c.SaveBaseline, 0o600, append(text, '\n'))
}

// pcieSummary is one line about a drive's way, for other commands' pages; ""
// where there is none to tell. It never fails: what cannot be read is left out.
func pcieSummary(root, pciAddress string) string {
	address, err := pcie.ParseAddress(pciAddress)
	if err != nil {
		return ""
	}
	topo, err := pcie.Sysfs{Root: root}.Load(address)
	if err != nil {
		return ""
	}
	path, err := topo.Path(address)
	if err != nil {
		return ""
	}
	return summarize(topo, path)
}

func summarize(topo *pcie.Topology, path pcie.Path) string {
	var parts []string
	if links := path.Links(); len(links) > 0 && links[0].Verdict != pcie.LinkUnknown {
		parts = append(parts, fmt.Sprintf("%s %s (%s)", links[0].Speed, links[0].Width, links[0].Verdict))
	}
	if s, ok := path.Payloads(); ok {
		parts = append(parts, fmt.Sprintf("payload %d of %d bytes, read requests of %d", s.InForce, s.PathCapability, path.Endpoint().Express.MaxReadRequest))
	}
	if in, _, ok := path.CeilingInput(); ok {
		if c, err := in.Ceiling(); err == nil {
			parts = append(parts, fmt.Sprintf("at most %.2f GB/s reading, %.2f writing", c.Read/1e9, c.Write/1e9))
		}
	}
	if findings := pcie.Audit(topo, path, pcie.AuditOptions{}); len(findings) > 0 && rank(findings[0].Severity) < rank(pcie.Note) {
		parts = append(parts, fmt.Sprintf("%s: %s (nvop pcie audit)", findings[0].Severity, findings[0].Rule))
	}
	return strings.Join(parts, "; ")
}
