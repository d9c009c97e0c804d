package audit

import (
	"fmt"

	"nvop/namespace"
	"nvop/pcie"
)

// PCIeOf is what a path is, in the words of a spec; fields that cannot be read are
// zero.
func PCIeOf(p *pcie.Path) namespace.PCIeSpec {
	var s namespace.PCIeSpec
	if p == nil || len(p.Hops) == 0 {
		return s
	}
	if sizes, ok := p.Payloads(); ok && sizes.InForce.Valid() {
		s.PayloadBytes = uint16(sizes.InForce)
	}
	if x := p.Endpoint().Express; x != nil && x.MaxReadRequest.Valid() {
		s.ReadRequestBytes = uint16(x.MaxReadRequest)
	}
	for _, l := range p.Links() {
		if l.At != p.Endpoint().Address {
			continue
		}
		if l.Speed.Known() {
			s.Generation = uint8(l.Speed)
		}
		if l.Width.Known() {
			s.Width = uint8(l.Width)
		}
	}
	return s
}

func (j *judge) pcie() {
	want, found := j.spec.PCIe, PCIeOf(j.facts.Path)
	why := j.facts.PathProblem
	if why == "" {
		why = "the path does not tell; configuration space needs root"
	}
	address := j.facts.Inventory.Address
	judge := func(field string, want, found int, text func(int) string, remedy string) {
		if want == 0 {
			return
		}
		j.check(field)
		switch found {
		case want:
		case 0:
			j.unreadable(field, 0, text(want), why)
		default:
			j.add(Finding{Severity: Drift, Field: field, Expected: text(want), Found: text(found), Remedy: remedy})
		}
	}
	size := func(n int) string { return fmt.Sprintf("%d bytes", n) }
	judge("pcie.payload_bytes", int(want.PayloadBytes), int(found.PayloadBytes), size, fmt.Sprintf("nvop pcie set %s --mps %d", address, want.PayloadBytes))
	judge("pcie.read_request_bytes", int(want.ReadRequestBytes), int(found.ReadRequestBytes), size,
		fmt.Sprintf("nvop pcie set %s --mrrs %d", address, want.ReadRequestBytes))
	look := "nvop pcie audit " + address
	judge("pcie.speed", int(want.Generation), int(found.Generation), func(n int) string { return fmt.Sprintf("gen%d (%s)", n, pcie.Speed(n)) }, look)
	judge("pcie.width", int(want.Width), int(found.Width), func(n int) string { return pcie.Width(n).String() }, look)
}
