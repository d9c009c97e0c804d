package namespace_test

import (
	"math/big"
	"slices"
	"strings"
	"testing"

	"nvop/namespace"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
	"nvop/nvmeioctl/sim"
)

// Cases of public reports that lose data or lie, each under its id, as far as they
// are this package's and no other test has them.

// NS-15: metadata never counts towards the user's capacity, and sizes are rounded
// down, so that a size near all there is still fits.
func TestCase_NS15_metadataDoesNotCount(t *testing.T) {
	for _, format := range []namespace.FormatSelector{{DataBytes: 4096}, {DataBytes: 4096, MetadataBytes: 8}, {DataBytes: 4096, MetadataBytes: 64}} {
		p, err := namespace.PlanOPSet(drive(), namespace.OPTarget{Size: sizeOf("6.4TB"), Format: &format}, namespace.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := p.After[0].SizeBlocks; got != 6_401_252_745_216/4096 {
			t.Errorf("%s: %d blocks", format, got)
		}
	}
}

// NS-28: a shared namespace stays shared when it is made anew, and on a subsystem
// with several controllers a private one is warned about.
func TestCase_NS28_sharingIsKept(t *testing.T) {
	inv := drive()
	inv.Controller.MultiController = true
	inv.Namespaces[0].NMIC = 1
	p, err := namespace.PlanOPSet(inv, namespace.OPTarget{Size: sizeOf("6.4TB")}, namespace.Options{})
	if err != nil || !p.After[0].Shared() {
		t.Errorf("%v: %v", err, p.After)
	}
	inv.Namespaces[0].NMIC = 0
	p, err = namespace.PlanOPSet(inv, namespace.OPTarget{Size: sizeOf("6.4TB")}, namespace.Options{})
	if err != nil || !slices.ContainsFunc(p.Notes, func(n string) bool { return strings.Contains(n, "private namespace") }) {
		t.Errorf("%v: %v", err, p.Notes)
	}
}

// NS-30, NS-31: which controllers have a namespace is what the drive says of it
// (Identify CNS 12h), not which paths there are.
func TestCase_NS30_NS31_attachmentIsAskedOfTheDrive(t *testing.T) {
	r := newRig(t, pblaze, sim.Options{Controllers: 2})
	inv := r.inventory()
	if !slices.Equal(inv.Namespaces[0].Controllers, []uint16{1, 2}) {
		t.Fatalf("two controllers: %v", inv.Namespaces)
	}
	r.must(namespace.PlanDetach(inv, 1, []uint16{2}, "", namespace.Options{}))
	inv = r.inventory()
	if !inv.Controller.MultiController || !slices.Equal(inv.Namespaces[0].Controllers, []uint16{inv.Identity.CNTLID}) {
		t.Errorf("two controllers, one attached: %v", inv.Namespaces)
	}
}

// NS-34, NS-46, NS-49: the NSID of a new namespace is what the completion says, not
// 1 and not the old one.
func TestCase_NS34_NS46_NS49_nsidFromTheCompletion(t *testing.T) {
	r := newRig(t, pblaze, sim.Options{})
	r.must(opSet(0, "1TB", nil)(r, r.inventory()))
	r.must(namespace.PlanCreate(r.inventory(), namespace.CreateTarget{Size: size(t, "1TB")}, namespace.Options{}))
	r.must(namespace.PlanCreate(r.inventory(), namespace.CreateTarget{Size: size(t, "1TB")}, namespace.Options{}))
	r.sent = nil
	r.must(namespace.PlanDelete(r.inventory(), []uint32{2}, "", namespace.Options{}))
	r.must(opSet(3, "500GB", nil)(r, r.inventory()))
	attached := uint32(0)
	for _, cmd := range r.sent {
		if is(&cmd) == "attach" {
			attached = cmd.NSID
		}
	}
	if attached == 0 || attached == 1 {
		t.Errorf("attached namespace %d", attached)
	}
	for _, n := range r.inventory().Namespaces {
		if n.NSID == 1 && n.SizeBytes() != r.inventory().Namespaces[0].SizeBytes() {
			t.Errorf("namespace 1 was touched: %s", n)
		}
	}
}

// NS-50: both definitions of over-provisioning are printed, and --op-of chooses.
func TestCase_NS50_bothDefinitions(t *testing.T) {
	op := namespace.OverProvision(7_681_501_126_656, 6_401_252_745_216)
	if op.OfUserPercent != "20.00" || op.OfTotalPercent != "16.67" {
		t.Errorf("%+v", op)
	}
	for total, want := range map[bool]int64{false: 7_681_501_126_656 * 100 / 128, true: 7_681_501_126_656 * 72 / 100} {
		s, err := namespace.ParseOP("28", total)
		if err != nil {
			t.Fatal(err)
		}
		p, err := namespace.PlanOPSet(drive(), namespace.OPTarget{Size: s}, namespace.Options{})
		if err != nil {
			t.Fatal(err)
		}
		got := new(big.Int).SetUint64(p.After[0].SizeBytes())
		if d := new(big.Int).Sub(big.NewInt(want), got); d.Sign() < 0 || d.Cmp(big.NewInt(512)) >= 0 {
			t.Errorf("op 28 of total %v: %s bytes, want %d", total, got, want)
		}
	}
}

// NS-52: a namespace is found by NSID and identifiers after it came back, whatever
// the host calls it; what is not it is refused.
func TestCase_NS52_anotherNamespaceUnderTheNSID(t *testing.T) {
	r := newRig(t, pblaze, sim.Options{})
	plan, err := opSet(0, "6.4TB", nil)(r, r.inventory())
	if err != nil {
		t.Fatal(err)
	}
	r.must(opSet(0, "3TB", nil)(r, r.inventory())) // somebody else was faster
	r.sent = nil
	if _, err := r.run(plan); exitCode(err) != 4 || len(r.sent) != 0 {
		t.Errorf("%v, %d commands sent", err, len(r.sent))
	}
}

// NS-64: capacity is changed on PCIe unless told otherwise; a spec's settings are
// not held back by that.
func TestCase_NS64_transport(t *testing.T) {
	inv := drive()
	inv.Transport = "tcp"
	target := namespace.OPTarget{Size: sizeOf("6.4TB")}
	if _, err := namespace.PlanOPSet(inv, target, namespace.Options{}); exitCode(err) != 4 {
		t.Errorf("%v", err)
	}
	if _, err := namespace.PlanOPSet(inv, target, namespace.Options{AllowFabrics: true}); err != nil {
		t.Errorf("%v", err)
	}
	spec := specText(t, "namespaces: [{size: 6.4TB}]\n")
	if _, err := namespace.PlanSpec(inv, spec, namespace.Options{}); exitCode(err) != 4 {
		t.Errorf("by a spec: %v", err)
	}
}

// NS-70: whatever the kernel does by itself, the state of the drive is read back
// after each step: a command that was answered with success and not carried out is
// noticed.
func TestCase_NS70_readBack(t *testing.T) {
	r := newRig(t, pblaze, sim.Options{})
	r.fault = func(_ int, cmd *nvmeioctl.Command) (bool, nvmespec.Status, error) {
		return is(cmd) != "attach", 0, nil // success, and nothing done
	}
	plan, err := opSet(0, "6.4TB", nil)(r, r.inventory())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.run(plan); err == nil {
		t.Error("an attachment that did not happen passes")
	}
}

// LIST-04: NUSE is shown as reported and decides nothing.
func TestCase_LIST04_useDecidesNothing(t *testing.T) {
	for _, used := range []uint64{0, 1, ^uint64(0)} {
		inv := drive()
		inv.Namespaces[0].UsedBlocks = used
		p, err := namespace.PlanSpec(inv, specText(t, "namespaces: [{size: max}]\n"), namespace.Options{})
		if err != nil || !p.AlreadySo() || len(p.Drift(drive())) != 0 {
			t.Errorf("NUSE %d: %v %v", used, err, p.Drift(drive()))
		}
	}
}
