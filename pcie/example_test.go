package pcie_test

import (
	"fmt"
	"log"
	"os"

	"nvop/pcie"
)

// A dump from a bug report: the way from a drive to its root port, what is wrong
// with it, and what it would gain.
func Example() {
	f, err := os.Open("testdata/qemu-A-pcie-bus-tune-off.hex")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	topo, _, err := pcie.ReadDump(f)
	if err != nil {
		log.Fatal(err)
	}
	drive := topo.Controllers()[0]
	path, err := topo.Path(drive.Address)
	if err != nil {
		log.Fatal(err)
	}
	for _, hop := range path.Hops {
		fmt.Println(hop.Address, hop.Express.Type, hop.Express.MaxPayload, "of", hop.Express.MaxPayloadSupported)
	}
	finding := pcie.Audit(topo, path, pcie.AuditOptions{})[0]
	fmt.Println(finding.Severity, finding.Rule, "at", finding.At)
	// Output:
	// 0000:03:00.0 endpoint 128 of 512
	// 0000:02:00.0 switch downstream port 256 of 512
	// 0000:01:00.0 switch upstream port 256 of 512
	// 0000:00:03.0 root port 256 of 512
	// critical payload.h2-completion-exceeds-port at 0000:03:00.0
}
