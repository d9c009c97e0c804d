package pcie

import "fmt"

// explainBusMode says what one of the kernel's payload policies does at boot and
// at hot-plug (Linux drivers/pci/probe.c, pcie_bus_configure_settings and
// pci_configure_mps). The empty name is the kernel without such a parameter.
func explainBusMode(mode string) string {
	switch mode {
	case "pcie_bus_tune_off":
		return "pci=pcie_bus_tune_off: the kernel leaves payload sizes as firmware set them, and hot-plugged drives at 128 bytes"
	case "pcie_bus_safe":
		return "pci=pcie_bus_safe: the kernel gives everything below a root port the smallest supported payload, 128 bytes where a switch has hot-plug slots"
	case "pcie_bus_perf":
		return "pci=pcie_bus_perf: the kernel gives each function the most that it and its parent support, and read requests no larger than that; " +
			"reads of the host are safe so, packets from peers are not"
	case "pcie_bus_peer2peer":
		return "pci=pcie_bus_peer2peer: the kernel sets 128 bytes everywhere"
	case "":
		return "without a pci=pcie_bus_* parameter the kernel gives a device its parent's payload, lowers a root port for a lesser device below it, " +
			"and does not touch what is below a switch that disagrees"
	}
	return "the kernel was started with pci=" + mode
}

// numaFindings says where the load belongs on a machine with several sockets.
func (p Path) numaFindings(t *Topology, platform *Platform) []Finding {
	s := p.Endpoint().Sysfs
	if s == nil || platform == nil || platform.NUMANodes < 2 {
		return nil
	}
	f := Finding{Rule: RuleNUMA, Severity: Note, At: p.Endpoint().Address, Expected: "load from the drive's own node"}
	if s.NUMANode < 0 {
		f.Found, f.Why = "the platform does not say which node that is", "from another socket reads cost bandwidth and a microsecond; which CPUs are near is unknown"
		return []Finding{f}
	}
	f.Found = fmt.Sprintf("node %d, CPUs %s", s.NUMANode, s.LocalCPUs)
	f.Why = "from another socket every transfer crosses the socket link, which all drives of that socket share"
	if s.RemoteDistance > 10 {
		f.Why += fmt.Sprintf(" (the farthest node is at distance %d, its own at 10)", s.RemoteDistance)
	}
	if drives, sum := t.drivesOnNode(s.NUMANode); drives > 1 {
		f.Evidence = []string{fmt.Sprintf("%d of the drives looked at are on this node; their links carry %s raw together", drives, gbps(sum))}
	}
	f.Remedy = []string{"run the load on CPUs " + s.LocalCPUs}
	return []Finding{f}
}

// drivesOnNode counts the drives of a NUMA node and sums what their links carry,
// in bytes a second after encoding.
func (t *Topology) drivesOnNode(node int) (drives int, bytesPerSecond float64) {
	for _, f := range t.Endpoints() {
		if f.BaseClass() != 0x0108 || f.Sysfs == nil || f.Sysfs.NUMANode != node {
			continue
		}
		path, err := t.Path(f.Address)
		if err != nil || len(path.Links()) == 0 {
			continue
		}
		drives, bytesPerSecond = drives+1, bytesPerSecond+path.Links()[0].RawBytesPerSecond
	}
	return drives, bytesPerSecond
}
