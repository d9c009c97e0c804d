package pcie

import "fmt"

// Baseline is what a path was when it was good: for telling later what changed
// behind one's back (an error recovery, a reset, a firmware update).
type Baseline struct {
	Schema string        `json:"schema"`
	Device Address       `json:"device"`
	Hops   []BaselineHop `json:"hops"`
}

// BaselineSchema names the layout of a Baseline.
const BaselineSchema = "nvop.pcie-baseline/1"

// BaselineHop is one hop's settings.
type BaselineHop struct {
	Address        Address `json:"address"`
	VendorID       uint16  `json:"vendor_id"`
	DeviceID       uint16  `json:"device_id"`
	MaxPayload     Payload `json:"max_payload_bytes"`
	MaxReadRequest Payload `json:"max_read_request_bytes"`
	ExtendedTag    bool    `json:"extended_tag_enabled"`
	Speed          Speed   `json:"speed_gt_per_second"`
	Width          Width   `json:"width"`
	ASPM           ASPM    `json:"aspm_bits"`
}

// Baseline records a path; ok is false where a hop could not be read.
func (p Path) Baseline() (b Baseline, ok bool) {
	if !p.readable() {
		return Baseline{}, false
	}
	b = Baseline{Schema: BaselineSchema, Device: p.Endpoint().Address}
	for _, f := range p.Hops {
		h := BaselineHop{
			Address: f.Address, VendorID: f.VendorID, DeviceID: f.DeviceID, MaxPayload: f.Express.MaxPayload,
			MaxReadRequest: f.Express.MaxReadRequest, ExtendedTag: f.Express.ExtendedTag,
		}
		if l := f.Express.Link; l != nil {
			h.Speed, h.Width, h.ASPM = l.Speed, l.Width, l.ASPM
		}
		b.Hops = append(b.Hops, h)
	}
	return b, true
}

// Drift says how the path differs from a baseline.
func (p Path) Drift(b Baseline) []Finding {
	now, ok := p.Baseline()
	if !ok {
		return nil
	}
	var list []Finding
	say := func(at Address, what, was, is string) {
		list = append(list, Finding{
			Rule: RuleDrift, Severity: Warning, At: at, Expected: what + " " + was + ", as recorded", Found: what + " " + is,
			Why:    "settings changed since the baseline: an error recovery, a reset or firmware put other values there",
			Remedy: []string{"nvop pcie set brings payload sizes back", "record a new baseline if the change was meant"},
		})
	}
	found := map[Address]BaselineHop{}
	for _, h := range now.Hops {
		found[h.Address] = h
	}
	for _, was := range b.Hops {
		is, ok := found[was.Address]
		if !ok {
			say(was.Address, "hop", was.Address.String(), "is not on the path any more")
			continue
		}
		delete(found, was.Address)
		for _, c := range []struct {
			what    string
			was, is any
		}{
			{"device", fmt.Sprintf("%04x:%04x", was.VendorID, was.DeviceID), fmt.Sprintf("%04x:%04x", is.VendorID, is.DeviceID)},
			{"payload", was.MaxPayload, is.MaxPayload}, {"read request", was.MaxReadRequest, is.MaxReadRequest},
			{"extended tags", was.ExtendedTag, is.ExtendedTag}, {"link", linkText(was.Speed, was.Width), linkText(is.Speed, is.Width)},
			{"ASPM", was.ASPM.String(), is.ASPM.String()},
		} {
			if c.was != c.is {
				say(was.Address, c.what, fmt.Sprint(c.was), fmt.Sprint(c.is))
			}
		}
	}
	for _, h := range now.Hops {
		if _, extra := found[h.Address]; extra {
			say(h.Address, "hop", "absent", "is on the path now")
		}
	}
	return list
}
