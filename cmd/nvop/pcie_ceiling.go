package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"nvop/cmd/nvop/internal/render"
	"nvop/pcie"
)

type pcieCeilingCmd struct {
	pcieSource
	Link        string  `help:"Reckon for this link instead of a device's: gen4x4." placeholder:"genNxM"`
	MPS         *uint16 `name:"mps" help:"Payload size in bytes (default: the path's; 256 with --link)." placeholder:"BYTES"`
	MRRS        *uint16 `name:"mrrs" help:"Read request size in bytes (default: the drive's; 512 with --link)." placeholder:"BYTES"`
	Completions int     `help:"Size of the root complex's completions, if less than the payload: some answer in 64 bytes." placeholder:"BYTES"`
	Read        string  `help:"A measured sequential read rate: 7.46GB/s. What does it prove?" placeholder:"RATE"`
	Write       string  `help:"A measured sequential write rate." placeholder:"RATE"`
	Read4K      string  `name:"read-4k" help:"Measured 4K reads per second: 1772k." placeholder:"IOPS"`
}

func (pcieCeilingCmd) Help() string {
	return `A model of packets and their overhead, good to 2 %. A measured figure above what packets of a size can carry proves that a larger size was in force.

Example:
  nvop pcie ceiling /dev/nvme0
  nvop pcie ceiling --link gen4x4 --mrrs 4096 --read 7.46GB/s`
}

// pcieProof is what a measured figure says.
type pcieProof struct {
	Workload pcie.Workload `json:"workload"`
	// Measured is in bytes per second, or in reads per second.
	Measured float64        `json:"measured"`
	Readings []pcie.Reading `json:"readings"`
	// Least is the smallest payload that allows the figure, in bytes; 0 for none.
	Least      pcie.Payload `json:"least_max_payload_bytes"`
	Conclusion string       `json:"conclusion"`
}

// pcieCeilingOf is the ceilings of one link.
type pcieCeilingOf struct {
	Device  string        `json:"device,omitempty"`
	Address *pcie.Address `json:"address,omitempty"`
	// Narrowest is the hop whose link sets the ceiling.
	Narrowest *pcie.Address  `json:"narrowest_link_at,omitempty"`
	InForce   pcie.Ceiling   `json:"in_force"`
	ByPayload []pcie.Ceiling `json:"by_payload"`
	Proofs    []pcieProof    `json:"proofs,omitempty"`
}

type pcieCeilingResult struct {
	Schema   string          `json:"schema"`
	Links    []pcieCeilingOf `json:"links"`
	Problems []string        `json:"problems,omitempty"`
}

func (c pcieCeilingCmd) Run(a *app) error {
	r := pcieCeilingResult{Schema: "nvop.pcie-ceiling/1"}
	if c.MPS != nil && *c.MPS == 0 || c.MRRS != nil && *c.MRRS == 0 {
		return usagef("--mps and --mrrs are sizes in bytes, 128 to 4096; leave them out for the default")
	}
	if c.Link != "" {
		if len(c.Devices) > 0 || c.From != "" || c.Root != "" {
			return usagef("--link names a link; leave devices, --from and --root out")
		}
		speed, width, err := parseLink(c.Link)
		if err != nil {
			return err
		}
		one, err := c.reckon(pcie.CeilingInput{Speed: speed, Width: width, MaxPayload: 256, MaxReadRequest: 512, Tags: 256})
		if err != nil {
			return err
		}
		one.Device = c.Link
		r.Links = append(r.Links, one)
		return a.print(r)
	}
	list, problems, err := c.find(a)
	if err != nil {
		return err
	}
	r.Problems = problems
	for _, d := range list {
		in, narrowest, ok := d.path.CeilingInput()
		if !ok {
			if d.path.Endpoint().HeaderOnly {
				return fmt.Errorf("%s: %w", d.Device, pcie.ErrNoAccess)
			}
			return fmt.Errorf("%s: no ceiling: link or payload sizes are not known", d.Device)
		}
		one, err := c.reckon(in)
		if err != nil {
			return fmt.Errorf("%s: %w", d.Device, err)
		}
		one.Device, one.Address, one.Narrowest = d.Device, &d.Address, &narrowest.Address
		r.Links = append(r.Links, one)
	}
	return a.print(r)
}

// reckon computes the ceilings of one link with the wishes of the flags.
func (c pcieCeilingCmd) reckon(in pcie.CeilingInput) (pcieCeilingOf, error) {
	if c.MPS != nil {
		in.MaxPayload = pcie.Payload(*c.MPS)
	}
	if c.MRRS != nil {
		in.MaxReadRequest = pcie.Payload(*c.MRRS)
	}
	in.CompletionBytes = c.Completions
	one, err := pcieCeilingOf{}, error(nil)
	if one.InForce, err = in.Ceiling(); err != nil {
		return one, usagef("%w", err)
	}
	for p := pcie.Payload(128); p <= max(512, in.MaxPayload); p *= 2 {
		step := in
		step.MaxPayload = p
		ceiling, err := step.Ceiling()
		if err != nil {
			return one, err
		}
		one.ByPayload = append(one.ByPayload, ceiling)
	}
	for _, m := range []struct {
		text     string
		workload pcie.Workload
	}{{c.Read, pcie.SequentialRead}, {c.Write, pcie.SequentialWrite}, {c.Read4K, pcie.RandomRead4K}} {
		if m.text == "" {
			continue
		}
		measured, err := parseRate(m.text, m.workload == pcie.RandomRead4K)
		if err != nil {
			return one, err
		}
		proof := pcieProof{Workload: m.workload, Measured: measured}
		if proof.Readings, proof.Least, err = pcie.Explain(m.workload, measured, in); err != nil {
			return one, err
		}
		proof.conclude(m.text)
		one.Proofs = append(one.Proofs, proof)
	}
	return one, nil
}

func (p *pcieProof) conclude(text string) {
	switch {
	case p.Least == 0:
		p.Conclusion = fmt.Sprintf("%s of %s is more than this link can carry: another link, or a cache, was measured", text, p.Workload)
	case p.Least == 128:
		p.Conclusion = fmt.Sprintf("%s of %s fits any payload size: it proves nothing about it", text, p.Workload)
	default:
		p.Conclusion = fmt.Sprintf("%s of %s is impossible below payloads of %d bytes: at least %d were in force", text, p.Workload, p.Least, p.Least)
	}
}

// parseLink reads "gen4x4".
func parseLink(text string) (pcie.Speed, pcie.Width, error) {
	m := regexp.MustCompile(`^gen([1-6])x(1|2|4|8|12|16|32)$`).FindStringSubmatch(strings.ToLower(text))
	if m == nil {
		return 0, 0, usagef("--link %q: not a link such as gen4x4 (gen1 to gen6, x1 to x32)", text)
	}
	speed, err := strconv.ParseUint(m[1], 10, 8)
	if err != nil {
		return 0, 0, err
	}
	width, err := strconv.ParseUint(m[2], 10, 8)
	return pcie.Speed(speed), pcie.Width(width), err
}

// parseRate reads "7.46GB/s" (also MB/s, MiB/s, GiB/s) or, for reads per
// second, "1772k" (also M, or none).
func parseRate(text string, perSecond bool) (float64, error) {
	units := []struct {
		name   string
		factor float64
	}{{"GB/s", 1e9}, {"MB/s", 1e6}, {"GiB/s", 1 << 30}, {"MiB/s", 1 << 20}}
	if perSecond {
		units = []struct {
			name   string
			factor float64
		}{{"k", 1e3}, {"K", 1e3}, {"M", 1e6}, {"", 1}}
	}
	for _, u := range units {
		number, ok := strings.CutSuffix(text, u.name)
		if !ok {
			continue
		}
		if v, err := strconv.ParseFloat(strings.TrimSpace(number), 64); err == nil && v > 0 && v < 1e12 {
			return v * u.factor, nil
		}
	}
	if perSecond {
		return 0, usagef("%q: not a number of reads per second, such as 1772k", text)
	}
	return 0, usagef("%q: not a rate with its unit, such as 7.46GB/s or 13569MiB/s", text)
}

func (r pcieCeilingResult) Text(p *render.Page) {
	for _, l := range r.Links {
		in := l.InForce
		p.Title("%s: %s %s, payload %d bytes, read requests of %d bytes", l.Device, in.Speed, in.Width, in.MaxPayload, in.MaxReadRequest)
		if l.Narrowest != nil && l.Address != nil && *l.Narrowest != *l.Address {
			p.Line("  the narrowest link of the way is above %s", *l.Narrowest)
		}
		var rows [][]string
		for _, c := range l.ByPayload {
			mark := ""
			if c.MaxPayload == in.MaxPayload {
				mark = "in force"
			}
			rows = append(rows, []string{
				fmt.Sprint(c.MaxPayload), fmt.Sprintf("%.2f GB/s", c.Read/1e9), fmt.Sprintf("%.2f GB/s", c.Write/1e9), render.Rate(c.Read4K),
				fmt.Sprintf("%.2f GB/s", c.ReadHard/1e9), fmt.Sprintf("%.2f GB/s", c.WriteHard/1e9), mark,
			})
		}
		p.Grid([]string{">payload", ">read", ">write", ">4K reads/s", ">read, hard", ">write, hard", ""}, rows)
		p.Line("  within %.0f %%; nothing can be faster than the hard figures", 100*in.ErrorFraction)
		if in.WriteByTagsLow > 0 && in.WriteByTagsLow < in.Write {
			p.Line("  writing is bounded by %d outstanding reads too: %.2f to %.2f GB/s for round trips of 1.5 to 0.6 us", in.Tags, in.WriteByTagsLow/1e9, in.WriteByTagsHigh/1e9)
		}
		for _, proof := range l.Proofs {
			p.Line("  %s", proof.Conclusion)
			var rows [][]string
			for _, reading := range proof.Readings {
				if reading.MaxPayload > 512 && reading.MaxPayload > in.MaxPayload {
					continue
				}
				verdict := "possible"
				if reading.Excluded {
					verdict = "excluded"
				}
				rows = append(rows, []string{fmt.Sprint(reading.MaxPayload), fmt.Sprintf("%.1f %%", 100*reading.Fraction), verdict})
			}
			p.Grid([]string{">payload", ">of the ceiling", ""}, rows)
		}
	}
	problemLines(p, r.Problems)
}
