package sim_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
	"nvop/nvmeioctl/sim"
)

// A drive in memory answers commands as a real one does.
func Example() {
	profile, _ := sim.LookupProfile("pblaze7-7940-7.68tb")
	drive, err := sim.New(profile, sim.Options{Serial: "SIM0001"})
	if err != nil {
		log.Fatal(err)
	}
	defer drive.Close()

	page := make([]byte, nvmespec.IdentifySize)
	done, err := drive.Submit(context.Background(), &nvmeioctl.Command{
		Opcode: nvmespec.AdminIdentify, CDW10: uint32(nvmespec.CNSController), Data: page, Timeout: time.Minute,
	})
	if err != nil || done.Err() != nil {
		log.Fatal(err, done.Err())
	}
	c, err := nvmespec.DecodeController(page)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(c.ModelNumber, c.SerialNumber)
	fmt.Println(nvmespec.FormatBytes(c.TotalCapacityBytes), "in", c.NamespaceIDMax, "namespaces at most")

	// Namespace 1 is in the way of any other: it has all the capacity.
	done, _ = drive.Submit(context.Background(), &nvmeioctl.Command{
		Opcode: nvmespec.AdminNamespaceManage, Timeout: time.Minute,
		Data: nvmespec.NamespaceCreate{SizeBlocks: 8, CapacityBlocks: 8}.Append(nil),
	})
	fmt.Printf("%#x\n", uint16(done.Status))
	// Output:
	// MEMBLAZE P7940DT0768M00 SIM0001
	// 7.68 TB (6.98 TiB) in 128 namespaces at most
	// 0x6115
}
